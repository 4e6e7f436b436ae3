"""Finds products whose sizes do not suit the device: rows that are not aligned, tiles and rounds that are not full, too few blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Final

import numpy as np

from tb_sol_plugin.cost.products import ALIGNED, Product, product
from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.metrics.rules.engine import Answer, Finding, count_text, rule, subject_verb, time_text, with_sizes
from tb_sol_plugin.metrics.rules.time.context import Claim, TimeContext
from tb_sol_plugin.metrics.rules.time.recorded import tuning
from tb_sol_plugin.metrics.time.kernel_names import short_name, unit_name
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.units import human

# -- The tile of a matrix product, from the name of its kernel ---------------------------------------------------------

_TILES: Final = tuple(
    re.compile(p)
    for p in (
        r"tilesize(\d{1,9})x(\d{1,9})",  # xmma of cuBLAS and cuDNN
        r"_MT(\d{1,9})x(\d{1,9})x\d",  # Tensile
        r"nvjet_\w{1,400}?_(\d{1,9})x(\d{1,9})_",  # cuBLASLt since Hopper
        r"gemm\w{0,400}?_(\d{1,9})x(\d{1,9})_\d{1,9}x\d",  # CUTLASS: tile, then depth and stages
        r"gemm_(?:\w{1,400}?_)?(\d{1,9})x(\d{1,9})",  # cuBLAS, older
    )
)


@lru_cache(maxsize=4096)
def tile_of(kernel: str) -> tuple[int, int] | None:
    """Returns the part of the result that one block computes, by the kernel's name; None where the name does not say."""
    for pattern in _TILES:
        found = pattern.search(kernel)
        if found:
            return int(found[1]), int(found[2])
    return None


@lru_cache(maxsize=4096)
def aligned_by_name(kernel: str) -> int | None:
    """Returns elements that a CUTLASS kernel loads at once by its name (`align1`), None where the name does not say."""
    found = re.search(r"_align(\d{1,9})", kernel)
    return int(found[1]) if found else None


def tiles(found: Product, tile: tuple[int, int]) -> tuple[int, float]:
    """Returns (blocks that cover the result, part of them that is used). Libraries may swap the sides: the better of both counts."""
    out = []
    for a, b in (tile, tile[::-1]):
        down, across = -(-found.m // a), -(-found.n // b)
        out.append((found.m * found.n / (down * a * across * b), down * across * found.batch))
    used, count = max(out)
    return count, used


LOW_BITS: Final = ("bf16", "fp16", "tf32", "fp8")
POOR: Final = 0.6
"""Above 60 % of its limit a product with odd sizes is as good as most with even ones."""


@dataclass(frozen=True)
class _Products:
    rows: Ints
    code: Ints
    found: list[Product | None]


def _products(context: TimeContext, *, compute_bound: bool) -> _Products | None:
    use = context.of_kind("gemm") & context.known & (context.left > context.limit) & (context.flop > 0)
    if compute_bound:
        use &= arrays.where(context.ops["bound"], "compute".__eq__)
    rows = np.flatnonzero(use)
    if not len(rows):
        return None
    code, read = context.by_signature(rows)
    found = [product(name, call) for name, call in read]
    keep = np.array([f is not None for f in found])[code]
    return _Products(rows[keep], code[keep], found) if keep.any() else None


@rule(
    "misaligned_products", title="Products have rows that are not a multiple of 16 bytes",
    fix="F.pad(x, (0, -x.shape[-1] % 8))  # or pad vocabulary, sequence and hidden sizes to multiples of 8", page="roofline",
    label="The products on the roofline", color="gemm",
)  # fmt: skip
def misaligned_products(context: TimeContext) -> Answer:
    """Finds low-precision products on NVIDIA devices whose rows are no multiple of 16 bytes apart, far below their limit."""
    if context.vendor != "nvidia" or context.on_host:
        return None
    p = _products(context, compute_bound=False)
    if p is None:
        return None
    odd = np.array([f is not None and f.aligned < ALIGNED for f in p.found])[p.code]
    odd &= context.of_type(*LOW_BITS)[p.rows] & (context.limit[p.rows] < POOR * context.time[p.rows])
    rows, code = p.rows[odd], p.code[odd]
    if not len(rows):
        return None
    grown = np.array([1.0 if f is None else _padded(f) for f in p.found])[code]
    wanted = np.maximum(context.left[rows] - context.limit[rows] * grown, 0.0)
    main = context.explains(rows, wanted)
    rows, code, grown, wanted = rows[main], code[main], grown[main], wanted[main]
    if not len(rows):
        return None
    spent, least = float(context.left[rows].sum()), float((context.limit[rows] * grown).sum())
    claim = context.claim(rows, wanted)
    shape = p.found[int(code[claim.worst])]
    loads = aligned_by_name(context.kernel_name(int(rows[claim.worst])))
    evidence = f"{subject_verb(len(rows), 'product', 'takes')} {time_text(spent)}, most in {claim.where}"
    evidence += f" with {shape.odd}" if shape is not None else ""
    evidence += f": its kernel loads {count_text(loads, 'element')} at a time" if loads is not None and loads < 8 else ""
    return context.finding(
        f"{evidence}; padded to 16 bytes the limit is {time_text(least)}.", claim, candidate=loads is None or loads >= 8
    )


def _padded(p: Product, step: int = 8) -> float:
    """Returns how much the work of a product grows when n and k are rounded up to a multiple of 8."""
    n, k = (-(-size // step) * step for size in (p.n, p.k))
    return n * k / (p.n * p.k)


@rule("unfilled_tiles", "small_products", page="roofline", label="The products on the roofline", color="gemm", candidate=True)
def unfilled_tiles(context: TimeContext) -> Answer:
    """Finds compute-bound products whose blocks do not fill their tiles or the last round, and those with fewer blocks than units.

    used = m n / (tiles that cover m × n); a unit works on ceil(blocks / units) blocks while blocks / units would do, whatever
    the number of blocks that it holds at once. The time that a perfect fit would save is time (1 - used × filled), and no more
    than the time above the limit.
    """
    units = context.spec.units if context.spec is not None else None
    if not units or context.on_host:
        return []
    p = _products(context, compute_bound=True)
    if p is None:
        return []
    blocks, used = _blocks(context, p)
    known = blocks > 0
    filled = np.where(known, blocks / units / np.ceil(np.maximum(blocks, 1) / units), 1.0)
    wasted = np.where(known, context.left[p.rows] * (1 - used * filled), 0.0)
    wanted = np.minimum(wasted, context.left[p.rows] - context.limit[p.rows])
    known &= context.explains(p.rows, wanted)
    small = known & (blocks < units)
    out = [
        _fit(context, p.rows[small], wanted[small], blocks[small], used[small], units, few=True),
        _fit(context, p.rows[known & ~small], wanted[known & ~small], blocks[known & ~small], used[known & ~small], units, few=False),
    ]
    return [f for f in out if f is not None]


def _blocks(context: TimeContext, p: _Products) -> tuple[Floats, Floats]:
    """Returns (blocks per call, part of its tiles that is used). 0 blocks where the kernel does not say its tile or its grid.

    A persistent kernel starts no more blocks than there are units and walks over the tiles: the larger of tiles and grid counts.
    """
    device = context.capture.device
    main = context.main[p.rows]
    names = np.where(main >= 0, arrays.codes(device["name"])[np.maximum(main, 0)], -1)
    grids = np.where(main >= 0, arrays.codes(device["grid"])[np.maximum(main, 0)], -1)
    which, first = arrays.factorize([p.code, names, grids])
    blocks, used = np.zeros(len(first)), np.ones(len(first))
    for i, (code, name, grid) in enumerate(zip(*(v[first].tolist() for v in (p.code, names, grids)), strict=True)):
        found = p.found[code]
        tile = tile_of(str(device["name"].cat.categories[name])) if name >= 0 else None
        if found is None or tile is None or grid < 0:
            continue
        count, used[i] = tiles(found, tile)
        started = prod(int(n) for n in re.findall(r"\d{1,18}", str(device["grid"].cat.categories[grid])))
        blocks[i] = max(count, started)
    return blocks[which], used[which]


def _fit(context: TimeContext, rows: Ints, wanted: Floats, blocks: Floats, used: Floats, units: int, *, few: bool) -> Finding | None:
    if not len(rows):
        return None
    claim = context.claim(rows, wanted)
    count, part = int(blocks[claim.worst]), float(used[claim.worst])
    unit = "CUs" if context.vendor == "amd" else "SMs"
    largest = f"Largest: {claim.where}, {claim.most}"
    if few:
        return context.finding(
            f"{subject_verb(len(rows), 'product', 'takes')} {time_text(context.time[rows].sum())} and leave {unit} without work. "
            f"{largest}, {count_text(count, 'block')} on {units} {unit}.",
            claim,
            rule="small_products",
            title=f"Products have fewer blocks than the device has {unit}",
            fix="# larger batches, or several products in one: torch.bmm, one Linear for q, k and v",
        )
    rounds = count / units
    filled = rounds / np.ceil(rounds)
    return context.finding(
        f"{subject_verb(len(rows), 'product', 'takes')} {time_text(context.time[rows].sum())}. {largest}: its tiles are "
        f"{human(part, 'ratio')} full, and {human(count, 'count')} blocks on {units} {unit} are {rounds:.2f} rounds where "
        f"{int(np.ceil(rounds))} run ({human(float(filled), 'ratio')}).",
        claim,
        title="Products do not fill their tiles or the last round of blocks",
        fix=_tuned(context, claim, "tries other tiles per size", "tries other tiles; or batch × sequence in multiples of the tile"),
    )


def _tuned(context: TimeContext, claim: Claim, amd: str, other: str) -> str:
    """Returns the tuner of the device's libraries, and what it does."""
    if context.vendor == "amd":
        return f"torch.cuda.tunable.enable()  # TunableOp {amd}"
    return tuning(context, claim, other)


# -- Products that the same device does faster elsewhere in the same recording ---------------------------------------


LARGE_NS: Final = 20_000
"""A product whose limit is below 20 µs ends before the clocks and caches settle: its time says little about its kernel."""
LEAST_CALLS: Final = 3
"""The median of fewer calls is chance."""
BEHIND: Final = 0.8
"""A product within a fifth of the best rate of its type is as good as it gets."""
SLOWER: Final = 1.15
"""Kernels within 15 % of each other are alike."""


@rule("slower_kernel", title="The same product runs faster elsewhere in this recording", page="kernels", label="The kernel", color="gemm")
def slower_kernel(context: TimeContext) -> Answer:
    """Finds large products whose kernel is slower than another kernel that ran for the same sizes and type."""
    if context.on_host:
        return None
    whole = context.known & (context.left == context.time) & (context.main >= 0)
    rows = np.flatnonzero(context.of_kind("gemm", "conv") & whole & (context.limit >= LARGE_NS))
    if len(rows) < 2 * LEAST_CALLS:
        return None
    names, time = arrays.coded(context.capture.device["name"]), context.time[rows]
    kernel = names.codes[context.main[rows]].astype(np.int64)
    size, of_sizes = arrays.numbered(_sizes(context, rows))
    pair, first = arrays.factorize([size, kernel])
    median = arrays.medians(pair, time, len(first))
    usual = np.flatnonzero(np.bincount(pair) >= LEAST_CALLS)
    usual = usual[np.lexsort((kernel[first[usual]], median[usual]))][::-1]  # the fastest of each size comes last
    best = np.full(len(of_sizes), -1, np.int64)
    best[size[first[usual]]] = usual
    best = best[size]
    if not (best >= 0).any():
        return None
    reference = np.where(best >= 0, median[best], np.nan)
    slow = (best >= 0) & (kernel[first[best]] != kernel) & (time > SLOWER * reference)
    slow = np.flatnonzero(slow & context.explains(rows, time - reference))
    if not len(slow):
        return None
    claim = context.claim(rows[slow], time[slow] - reference[slow])
    worst = slow[claim.worst]
    ran = short_name(context.kernel_name(int(rows[worst])))
    fast = str(names.categories[kernel[first[best[worst]]]])
    ratio = float(time[worst] / reference[worst])
    return context.finding(
        f"{subject_verb(len(slow), 'call', 'takes')} up to {ratio:.2f}× as long as the same sizes elsewhere: {claim.most} more in "
        f"{claim.where}, where `{ran}` ran instead of `{short_name(fast)}`.",
        claim,
        fix=_tuned(context, claim, "picks one kernel per size", "one kernel per size, by measurement"),
        names=context.kernel_names(claim.rows[claim.ns > 0]),
    )


@rule(
    "behind_the_best", title="Some large products reach far less of their limit than others here", page="roofline",
    label="The product on the roofline", color="gemm", candidate=True,
)  # fmt: skip
def behind_the_best(context: TimeContext) -> Answer:
    """Finds large compute-bound products of one type that reach far less of their limit than others of that type in the recording."""
    if context.on_host:
        return None
    large = context.of_kind("gemm") & context.known & (context.limit >= LARGE_NS) & arrays.where(context.ops["bound"], "compute".__eq__)
    rows = np.flatnonzero(large & (context.left == context.time))
    if len(rows) < 2 * LEAST_CALLS:
        return None
    time, limit, sizes = context.time[rows], context.limit[rows], _sizes(context, rows)
    types, of_types = arrays.numbered(arrays.codes(context.ops["dtype"])[rows])
    size, first = arrays.numbered(sizes)  # alike only in one type
    reached = arrays.medians(size, limit, len(first)) / arrays.medians(size, time, len(first))
    fair = np.flatnonzero((np.bincount(size) >= LEAST_CALLS) & (reached <= TOLERATED))
    fair = fair[np.lexsort((sizes[first[fair]], -reached[fair]))][::-1]  # the best of each type comes last
    best = np.full(len(of_types), -1, np.int64)
    best[types[first[fair]]] = fair
    best = best[types]
    reach, own = np.where(best >= 0, reached[best], np.nan), reached[size]
    wanted = time - limit / reach
    slow = np.flatnonzero((own < BEHIND * reach) & context.explains(rows, wanted))
    wanted = wanted[slow]
    if not len(slow):
        return None
    claim = context.claim(rows[slow], np.maximum(wanted, 0.0))
    worst = claim.worst
    model = rows[first[best[slow[worst]]]]
    good, good_shapes = (str(arrays.pick(context.ops[c], [model])[0]) for c in ("name", "shapes"))
    return context.finding(
        f"{subject_verb(len(slow), 'product', 'takes')} {time_text(time[slow].sum())}; {claim.where} reaches "
        f"{human(float(own[slow][worst]), 'ratio')} of its limit where {with_sizes(good, good_shapes)} reaches "
        f"{human(float(reach[slow][worst]), 'ratio')}: {claim.most} more than at that rate.",
        claim,
        fix=_tuned(context, claim, "tries other kernels per size", "tries other kernels per size"),
    )


def _sizes(context: TimeContext, rows: Ints) -> Ints:
    """Returns a number per call, alike for the same arguments in the same type: FP32 operands may run in FP32 and in TF32."""
    dtype = arrays.codes(context.ops["dtype"])[rows]
    return context.by_signature(rows)[0] * (int(dtype.max(initial=0)) + 2) + dtype + 1


# -- Matrix work that leaves the matrix units idle -------------------------------------------------------------------
# FP32 where TF32 or a 16-bit type would do, and 16-bit types on plain units.


MATRIX_KINDS: Final = ("gemm", "conv", "attention")
WORTH: Final = 1.5
"""A type is offered when its peak is at least half again the present one."""
WORDS: Final = {"tf32": "TF32", "bf16": "BF16", "fp16": "FP16", "fp32": "FP32", "fp8": "FP8", "int8": "INT8"}
PLAIN_PEAK: Final = 2.1
"""Plain units compute FP16 at no more than twice their FP32 rate; what is faster than 2.1 times cannot have run on them."""


def _better_types(context: TimeContext, fp32: float) -> list[str]:
    """Returns the types that the matrix units of the device compute at half again the peak of FP32 or more."""
    spec = context.spec
    found = [t for t in ("tf32", "bf16", "fp16") if spec and spec.matrix.get(t, 0.0) >= WORTH * fp32 and t not in spec.unsupported]
    return found if context.vendor == "nvidia" else [t for t in found if t != "tf32"]


@rule("fp32_matrix", page="roofline", label="FP32 work on the roofline")
def fp32_matrix(context: TimeContext) -> Answer:
    """Finds FP32 products and convolutions on plain units (or FP32 matrix units), against the limit in a type with a higher peak."""
    spec = context.spec
    fp32 = spec.matrix_peak("fp32") if spec is not None else None
    if spec is None or not fp32 or spec.memory_bandwidth is None:
        return None
    better = _better_types(context, fp32)
    if not better:
        return None
    use = context.of_kind(*MATRIX_KINDS) & context.of_type("fp32") & context.known & (context.flop > 0)
    if context.vendor == "nvidia":
        use &= context.matrix_unit == 0  # a matrix kernel on FP32 operands already uses TF32 or emulates FP32
    rows = np.flatnonzero(use & (context.left > 0))
    if not len(rows):
        return None
    limits = {t: _limit(context, rows, t) for t in better}
    chosen = better[0]
    spent = context.left[rows]
    gain = spent > limits[chosen]
    if not gain.any():
        return None
    total = float(spent[gain].sum())
    claim = context.claim(rows[gain], (spent - limits[chosen])[gain])
    least = " and ".join(f"{time_text(limits[t][gain].sum())} in {WORDS[t]}" for t in better[:2])
    kind = claim.largest("kind")
    plain = "Matrix work runs in FP32"
    return context.finding(
        f"{subject_verb(len(claim.rows), 'call', 'computes')} in FP32 for {time_text(total)}; the limit of the same work is {least}. "
        f"Largest: {claim.where}, {claim.most} above that. Results differ by rounding.",
        claim,
        title=plain if context.vendor in ("cpu", "amd") else f"{plain} and leaves the {unit_name(context.vendor)}s unused",
        fix=_precision_fix(context, chosen, kind),
        color=kind,
    )


FP32_KERNEL: Final = re.compile(r"sgemm|scudnn|_simt_s|(wgrad|dgrad)\w{0,400}_engine<float")
"""Kernels of cuBLAS, cuDNN and CUTLASS for FP32 operands on plain units."""
_HINTS: Final = ("sgemm", "scudnn", "_simt_s", "_engine<float")
"""What `FP32_KERNEL` matches holds one of these; looking for them is ten times faster."""


def _of_fp32(name: str) -> bool:
    return any(hint in name for hint in _HINTS) and FP32_KERNEL.search(name) is not None


@rule("fp32_kernels", page="kernels", label="The kernel", color="gemm", candidate=True)
def fp32_kernels(context: TimeContext) -> Answer:
    """Finds FP32 products and convolutions on plain units by the names of their kernels, where no sizes were recorded.

    Possible, not proven: without sizes the limit of the same work is unknown. The saving is below all of their time.
    """
    spec, device = context.spec, context.capture.device
    fp32 = spec.vector_peak("fp32") if spec is not None else None
    if spec is None or not fp32 or context.on_host or context.vendor != "nvidia":
        return None
    better = _better_types(context, fp32)
    own, owner = context.waterfall.own, context.waterfall.work.owner
    if not better or len(owner) != len(device):
        return None
    named = arrays.where(device["name"], _of_fp32, _HINTS) & (device["kind"].to_numpy() == S.KERNEL)
    free = ~context.waterfall.counted & (context.left > 0)  # calls without a limit, whose time no rule has taken
    rows = np.flatnonzero(named & (own > 0) & (owner >= 0))
    rows = rows[free[owner[rows]]]
    if not len(rows):
        return None
    calls, place = np.unique(owner[rows], return_inverse=True)
    wanted = np.minimum(np.bincount(place, own[rows]), context.left[calls])
    claim = context.claim(calls.astype(np.int64), wanted)
    (name,), most = arrays.largest([device["name"]], rows, own[rows].astype(np.float64))
    kernel, rate = short_name(str(name)), spec.matrix[better[0]] / fp32
    return context.finding(
        f"{subject_verb(len(rows), 'kernel', 'computes')} products or convolutions in FP32 on plain units for {time_text(claim.total)}, "
        f"{time_text(most)} of it in `{kernel}`; the peak in {WORDS[better[0]]} is {rate:.1f} times as high. "
        "Without recorded sizes how much of that they could use is unknown. Results differ by rounding.",
        claim,
        title=f"Matrix work runs in FP32 and leaves the {unit_name(context.vendor)}s unused",
        fix=_precision_fix(context, better[0], "gemm"),
        names=list(set(arrays.pick(device["name"], rows).tolist())),
    )


def _limit(context: TimeContext, rows: Ints, dtype: str) -> Floats:
    """Returns ns per call at the peak of another type. A 16-bit type halves the traffic; TF32 keeps it."""
    assert context.spec is not None and context.spec.memory_bandwidth is not None
    data = np.nan_to_num(context.bytes[rows]) * (1.0 if dtype == "tf32" else 0.5)
    seconds = np.maximum(context.flop[rows] / context.spec.matrix[dtype], data / context.spec.memory_bandwidth)
    return np.asarray(seconds * 1e9 / context.waterfall.parallel, np.float64)


def _precision_fix(context: TimeContext, dtype: str, kind: str) -> str:
    if dtype == "tf32":
        if kind == "conv":
            return 'torch.backends.cudnn.conv.fp32_precision = "tf32"  # before torch 2.9: torch.backends.cudnn.allow_tf32 = True'
        return 'torch.set_float32_matmul_precision("high")  # or torch.autocast("cuda", torch.bfloat16)'
    place = "cpu" if context.on_host else "cuda"
    scaler = "  # with torch.amp.GradScaler() in training" if dtype == "fp16" else ""
    return f'with torch.autocast("{place}", torch.{"float16" if dtype == "fp16" else "bfloat16"}):{scaler}'


@rule(
    "plain_units", fix="# make every size a multiple of 16 bytes: pad vocabulary and channels to multiples of 8", page="kernels",
    label="The kernel", color="gemm",
)  # fmt: skip
def plain_units(context: TimeContext) -> Answer:
    """Finds products and convolutions in a type that matrix units take, whose kernel is known to run on plain units."""
    spec = context.spec
    vector = spec.vector_peak("fp32") if spec is not None else None
    if spec is None or not vector or spec.memory_bandwidth is None or context.on_host:
        return None
    types = [t for t in ("fp16", "bf16", "fp8", "int8") if spec.matrix.get(t, 0.0) >= WORTH * vector]
    use = context.of_kind(*MATRIX_KINDS) & context.of_type(*types) & (context.matrix_unit == 0) & context.known & (context.flop > 0)
    data = np.nan_to_num(context.bytes) / spec.memory_bandwidth
    use &= context.flop / vector > data  # where memory is the wall anyway (a product with a vector), the unit does not matter
    with np.errstate(divide="ignore", invalid="ignore"):
        use &= ~(context.flop / np.where(context.time > 0, context.time, np.nan) * 1e9 > PLAIN_PEAK * vector)
    rows = np.flatnonzero(use & (context.left > context.limit))
    if not len(rows):
        return None
    spent, least = float(context.left[rows].sum()), float(context.limit[rows].sum())
    claim = context.claim(rows, context.left[rows] - context.limit[rows])
    kernel = short_name(context.kernel_name(int(rows[claim.worst])))
    unit = unit_name(context.vendor)
    return context.finding(
        f"{subject_verb(len(rows), 'call', 'runs')} {time_text(spent)} in kernels that do not use them (`{kernel}`), most in "
        f"{claim.where}; on {unit}s the limit is {time_text(least)}.",
        claim,
        title=f"Matrix work in {WORDS[claim.largest('dtype')]} misses the {unit}s",
        names=context.kernel_names(claim.rows[claim.ns > 0]),
    )
