"""Any tree that is written is read with the same sums, as JSON and as MessagePack, and comes back the same from an export."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.hatchet import hatchet
from tb_sol_plugin.model.capture import Capture
from tests.support.profile_sums import sums_of_profile
from tests.support.proton_profile import ONE, Frame, kernel, root, scope, write

NAMES = st.sampled_from(["a", "b", "matmul", "ROOT", "x/y", "ünï\n", "__proton_launch_metadata", ""])
COPIES = st.sampled_from(["Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memset (Device)", "memcpy", "Memcpy PtoP"])
AMOUNTS = st.none() | st.integers(0, 10**12)
KERNELS = st.builds(
    lambda name, time, count, device, work: kernel(name or "k", time, count, device=str(device), **{k: v for k, v in work.items() if v is not None}),
    NAMES, st.integers(0, 10**10), st.integers(1, 10**6), st.integers(0, 3),
    st.fixed_dictionaries({"bytes": AMOUNTS, "flops8": AMOUNTS, "flops16": AMOUNTS, "flops32": AMOUNTS}),
)  # fmt: skip
MOVES = st.builds(
    lambda name, time, count, size: kernel(name, time, count, **({} if size is None else {"bytes": size})),
    COPIES, st.integers(0, 10**10), st.integers(1, 10**6), AMOUNTS,
)  # fmt: skip
TREES = st.recursive(
    KERNELS | MOVES, lambda inner: st.builds(lambda name, below: scope(name, below), NAMES, st.lists(inner, max_size=4)), max_leaves=20
)


def leaves(frame: Frame, own: bool = False) -> list[dict[str, object]]:
    """Frames with a time, those below the profiler's own scope left out: a plain walk, apart from the reader."""
    name = frame["frame"]["name"]  # type: ignore[call-overload,index]
    own = own or name == "__proton_launch_metadata"
    found = [{"name": name, **frame["metrics"]}] if "time (ns)" in frame["metrics"] and not own else []  # type: ignore[dict-item,operator]
    return found + [leaf for child in frame["children"] for leaf in leaves(child, own)]  # type: ignore[union-attr,arg-type]


def is_move(leaf: dict[str, object]) -> bool:
    return str(leaf["name"]).lower().startswith("mem")


def totals(capture: Capture) -> Counter[str]:
    """Launches, time and work of the ledger, and copies by direction."""
    ledger, copies = capture.tables["ledger"], capture.tables["copies"]
    many = np.maximum(ledger["count"].to_numpy(), 1)
    out: Counter[str] = Counter(launches=int(ledger["count"].sum()), time=int(np.nansum(ledger["time_ns"])))
    out["bytes"] = round(float(np.nansum(ledger["bytes"] * many)))
    for dtype, flop in zip(ledger["dtype"].astype(str), ledger["flop"] * many, strict=True):
        out[f"flop {dtype}"] += round(flop) if flop == flop else 0
    for row in copies[["direction", "count", "bytes", "without_bytes", "time_ns"]].itertuples(index=False):
        for name, value in zip(("count", "bytes", "bare", "time"), row[1:], strict=True):
            out[f"{row[0]} {name}"] += int(value)
    return Counter({name: value for name, value in out.items() if value})


@settings(max_examples=12, deadline=None)
@given(st.lists(TREES, max_size=5))
def test_any_tree_is_read_with_the_sums_of_its_leaves(children: list[Frame]) -> None:
    # GIVEN any tree of scopes, kernels and copies WHEN it is read from JSON and from MessagePack
    tree = root(*children)
    found = leaves(tree)[1:]  # the root stands first
    with tempfile.TemporaryDirectory() as folder:
        plain = ingest.read(str(write(Path(folder) / "p.hatchet", tree)))
        packed = ingest.read(str(write(Path(folder) / "p.hatchet_msgpack", tree)))
    # THEN both hold the sums of the leaves
    kernels, moves = [f for f in found if not is_move(f)], [f for f in found if is_move(f)]
    for capture in (plain, packed):
        sums = totals(capture)
        assert sums["launches"] == sum(int(k["count"]) for k in kernels)  # type: ignore[call-overload]
        assert sums["time"] == sum(int(k["time (ns)"]) for k in kernels)  # type: ignore[call-overload]
        assert math.isclose(sums["bytes"], sum(int(k.get("bytes", 0)) for k in kernels), rel_tol=1e-9, abs_tol=1)  # type: ignore[call-overload]
        for width, dtype in ((8, "fp8"), (16, "fp16"), (32, "tf32")):
            stated = sum(int(k.get(f"flops{width}", 0)) for k in kernels)  # type: ignore[call-overload]
            assert math.isclose(sums[f"flop {dtype}"], stated, rel_tol=1e-9, abs_tol=len(kernels))
        copies = capture.tables["copies"]
        assert int(copies["count"].sum()) == sum(int(m["count"]) for m in moves)  # type: ignore[call-overload]
        assert int(copies["bytes"].sum()) == sum(int(m.get("bytes", 0)) for m in moves)  # type: ignore[call-overload]
        assert int(copies["without_bytes"].sum()) == sum(int(m["count"]) for m in moves if "bytes" not in m)  # type: ignore[call-overload]
        sums_of_profile(capture)


@settings(max_examples=15, deadline=None)
@given(st.lists(TREES, min_size=1, max_size=5))
def test_an_export_reads_back_with_the_same_sums(children: list[Frame]) -> None:
    # GIVEN a profile WHEN it is exported and read again
    with tempfile.TemporaryDirectory() as folder:
        first = ingest.read(str(write(Path(folder) / "p.hatchet", root(*children), ONE)))
        if not len(first.tables["ledger"]) and not len(first.tables["copies"]):
            return
        again = Path(folder) / "q.hatchet"
        again.write_bytes(b"".join(hatchet(first)))
        second = ingest.read(str(again))
    # THEN launches, times, work by type and copies by direction are equal, work to the rounding of a float
    before, after = totals(first), totals(second)
    for name in set(before) | set(after):
        assert math.isclose(before[name], after[name], rel_tol=1e-9, abs_tol=len(first.tables["ledger"]) if name.startswith(("flop", "bytes")) else 0), name
