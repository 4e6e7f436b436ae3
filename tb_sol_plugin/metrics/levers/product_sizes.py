"""Products whose sizes do not suit the device: rows that are not aligned, tiles and rounds that are not full, too few blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.levers.case import Case
from tb_sol_plugin.metrics.levers.lever import Lever, acting, counted, over, took
from tb_sol_plugin.metrics.levers.products import ALIGNED, Product, aligned_by_name, product, tile_of, tiles
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.units import human

LOW_BITS: Final = ("bf16", "fp16", "tf32", "fp8")
POOR: Final = 0.6
"""Above 60 % of its limit a product with odd sizes is as good as most with even ones."""


@dataclass(frozen=True)
class _Products:
    rows: Ints
    code: Ints
    found: list[Product | None]


def _products(case: Case, *, compute_bound: bool) -> _Products | None:
    use = case.of_kind("gemm") & case.known & (case.left > case.limit) & (case.flop > 0)
    if compute_bound:
        use &= arrays.where(case.ops["bound"], "compute".__eq__)
    rows = np.flatnonzero(use)
    if not len(rows):
        return None
    code, read = case.by_signature(rows)
    found = [product(name, call) for name, call in read]
    keep = np.array([f is not None for f in found])[code]
    return _Products(rows[keep], code[keep], found) if keep.any() else None


def misaligned_products(case: Case) -> Lever | None:
    """Low-precision products on NVIDIA devices whose rows are no multiple of 16 bytes apart, far below their limit."""
    if case.vendor != "nvidia" or case.on_host:
        return None
    p = _products(case, compute_bound=False)
    if p is None:
        return None
    odd = np.array([f is not None and f.aligned < ALIGNED for f in p.found])[p.code]
    odd &= case.of_type(*LOW_BITS)[p.rows] & (case.limit[p.rows] < POOR * case.time[p.rows])
    rows, code = p.rows[odd], p.code[odd]
    if not len(rows):
        return None
    grown = np.array([1.0 if f is None else _padded(f) for f in p.found])[code]
    wanted = np.maximum(case.left[rows] - case.limit[rows] * grown, 0.0)
    spent, least = float(case.left[rows].sum()), float((case.limit[rows] * grown).sum())
    claimed = case.claim(rows, wanted)
    worst = int(claimed.argmax())
    shape = p.found[int(code[worst])]
    kernel = case.kernel_name(int(rows[worst]))
    loads = aligned_by_name(kernel)
    (name, shapes), _ = arrays.largest([case.ops["name"], case.ops["shapes"]], rows, claimed)
    evidence = f"{acting(len(rows), 'product', 'takes')} {took(spent)}, most in {over(name, shapes)}"
    evidence += f" with {shape.odd}" if shape is not None else ""
    evidence += f": its kernel loads {counted(loads, 'element')} at a time" if loads is not None and loads < 8 else ""
    return Lever(
        "misaligned_products",
        "Products have rows that are not a multiple of 16 bytes",
        f"{evidence}; padded to 16 bytes the limit is {took(least)}.",
        case.each(float(claimed.sum())),
        "F.pad(x, (0, -x.shape[-1] % 8))  # or pad vocabulary, sequence and hidden sizes to multiples of 8",
        "gemm",
        "roofline",
        "The products on the roofline",
        find=name,
        candidate=loads is None or loads >= 8,
        rows=rows,
        claimed=claimed,
    )


def _padded(p: Product, step: int = 8) -> float:
    """How much the work of a product grows when n and k are rounded up to a multiple of 8."""
    n, k = (-(-size // step) * step for size in (p.n, p.k))
    return n * k / (p.n * p.k)


def unfilled_tiles(case: Case) -> list[Lever]:
    """Compute-bound products whose blocks do not fill their tiles or the last round, and those with fewer blocks than units.

    used = m n / (tiles that cover m × n); a unit works on ceil(blocks / units) blocks while blocks / units would do, whatever
    the number of blocks that it holds at once. The time that a perfect fit would save is time (1 - used × filled), and no more
    than the time above the limit.
    """
    units = case.spec.units if case.spec is not None else None
    if not units or case.on_host:
        return []
    p = _products(case, compute_bound=True)
    if p is None:
        return []
    blocks, used = _blocks(case, p)
    known = blocks > 0
    filled = np.where(known, blocks / units / np.ceil(np.maximum(blocks, 1) / units), 1.0)
    wasted = np.where(known, case.left[p.rows] * (1 - used * filled), 0.0)
    wanted = np.minimum(wasted, case.left[p.rows] - case.limit[p.rows])
    small = known & (blocks < units)
    out = [
        _fit(case, p.rows[small], wanted[small], blocks[small], used[small], units, few=True),
        _fit(case, p.rows[known & ~small], wanted[known & ~small], blocks[known & ~small], used[known & ~small], units, few=False),
    ]
    return [lever for lever in out if lever is not None]


def _blocks(case: Case, p: _Products) -> tuple[Floats, Floats]:
    """(blocks per call, part of its tiles that is used). 0 blocks where the kernel does not say its tile or its grid.

    A persistent kernel starts no more blocks than there are units and walks over the tiles: the larger of tiles and grid counts.
    """
    device = case.capture.device
    main = case.main[p.rows]
    names = np.where(main >= 0, arrays.codes(device["name"])[np.maximum(main, 0)], -1)
    grids = np.where(main >= 0, arrays.codes(device["grid"])[np.maximum(main, 0)], -1)
    pairs = np.stack([p.code, names, grids], axis=1)
    kinds, which = np.unique(pairs, axis=0, return_inverse=True)
    blocks, used = np.zeros(len(kinds)), np.ones(len(kinds))
    for i, (code, name, grid) in enumerate(kinds.tolist()):
        found = p.found[code]
        tile = tile_of(str(device["name"].cat.categories[name])) if name >= 0 else None
        if found is None or tile is None or grid < 0:
            continue
        count, used[i] = tiles(found, tile)
        started = prod(int(n) for n in re.findall(r"\d+", str(device["grid"].cat.categories[grid])))
        blocks[i] = max(count, started)
    which = which.reshape(-1)
    return blocks[which], used[which]


def _fit(case: Case, rows: Ints, wanted: Floats, blocks: Floats, used: Floats, units: int, *, few: bool) -> Lever | None:
    if not len(rows) or not (wanted > 0).any():
        return None
    claimed = case.claim(rows, np.maximum(wanted, 0.0))
    (name, shapes), most = arrays.largest([case.ops["name"], case.ops["shapes"]], rows, claimed)
    worst = int(claimed.argmax())
    count, part = int(blocks[worst]), float(used[worst])
    unit = "CUs" if case.vendor == "amd" else "SMs"
    largest = f"Largest: {over(name, shapes)}, {took(most)}"
    if few:
        return Lever(
            "small_products",
            f"Products have fewer blocks than the device has {unit}",
            f"{acting(len(rows), 'product', 'takes')} {took(case.time[rows].sum())} and leave {unit} without work. "
            f"{largest}, {counted(count, 'block')} on {units} {unit}.",
            case.each(float(claimed.sum())),
            "# larger batches, or several products in one: torch.bmm, one Linear for q, k and v",
            "gemm", "roofline", "The products on the roofline", find=name, candidate=True, rows=rows, claimed=claimed,
        )  # fmt: skip
    rounds = count / units
    filled = rounds / np.ceil(rounds)
    return Lever(
        "unfilled_tiles",
        "Products do not fill their tiles or the last round of blocks",
        f"{acting(len(rows), 'product', 'takes')} {took(case.time[rows].sum())}. {largest}: its tiles are {human(part, 'ratio')} full, and "
        f"{human(count, 'count')} blocks on {units} {unit} are {rounds:.2f} rounds where {int(np.ceil(rounds))} run "
        f"({human(float(filled), 'ratio')}).",
        case.each(float(claimed.sum())),
        "torch.cuda.tunable.enable()  # TunableOp tries other tiles per size"
        if case.vendor == "amd"
        else 'torch.compile(model, mode="max-autotune")  # tries other tiles; or batch × sequence in multiples of the tile',
        "gemm", "roofline", "The products on the roofline", find=name, candidate=True, rows=rows, claimed=claimed,
    )  # fmt: skip
