"""Who held memory, as a snapshot, a timeline and a recorder say it: by hand, and a snapshot against a slow replay of any history."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.ingest import read
from tb_sol_plugin.ingest.memory.snapshot import capture_of
from tb_sol_plugin.metrics.memory.attribution import BEFORE, GROUPINGS, UNKNOWN, attribution, groupings_of
from tb_sol_plugin.metrics.memory.categories import is_users, own_line
from tb_sol_plugin.metrics.memory.curves import curves, whole
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support import memory_snapshot as M
from tests.unit.metrics.memory.test_attribution import bytes_by_name

MIB = 1 << 20


def test_a_snapshot_by_line_at_its_end_and_before() -> None:
    # GIVEN 3 MiB - 100 B in use by train.py:12 and 500 B without a call stack at the end; 1,000 B were freed 5 us after the 3 MiB came
    c = capture_of(M.snapshot(), file="a.pickle")
    curve = next(x for x in curves(c) if x.device == "device 0")
    assert groupings_of(c, curve) == ("frame",)
    # WHEN asked at the peak THEN all three are alive
    found = attribution(c, curve, "frame")
    assert found.total == 3 * MIB - 100 + 1000 + 500 == curve.peak
    assert bytes_by_name(found) == {"train.py(12): forward": 3 * MIB - 100 + 1000, "(no call stack)": 500, UNKNOWN: 0}
    assert found.rows["allocations"].tolist() == [2, 1, -1]
    assert found.rows["stack"].tolist() == ["train.py(12): forward\ntrain.py(40): main", "", ""]
    # AND 12 us after the beginning only the two small ones, which is worked back from the end
    assert bytes_by_name(attribution(c, curve, "frame", 12_000)) == {"train.py(12): forward": 1000, "(no call stack)": 500, UNKNOWN: 0}
    assert bytes_by_name(attribution(c, curve, "module")) == {UNKNOWN: found.total}


def test_memory_from_before_the_history_that_was_freed_in_it_stands_apart() -> None:
    # GIVEN a history of one free of 700 B, and a block of 512 B that is older than it
    value = {
        "segments": [M.segment(4096, "small", [M.block(512, 400, "active_allocated", M.STACK), M.block(1024, 0, "inactive")])],
        "device_traces": [[M.entry("free_requested", 4608, 700, 10, M.STACK)]],
    }
    c = capture_of(value, file="a.pickle")
    (curve,) = curves(c)
    # WHEN asked before the free and after it THEN the block is known by its stack, the freed one is not
    first = attribution(c, curve, "frame")
    assert bytes_by_name(first) == {"train.py(12): forward": 400, BEFORE: 700, UNKNOWN: 0} and "no call stack" in first.notes[0]
    assert bytes_by_name(attribution(c, curve, "frame", 10**9)) == {"train.py(12): forward": 400, UNKNOWN: 0}


def test_the_line_of_an_allocation_is_the_programs_and_not_torchs() -> None:
    # GIVEN stacks as torch writes them: C++ first, then torch's python, then the program's
    frames = [
        ["CUDACachingAllocator.cpp", 10, "malloc"], ["/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 134, "forward"],
        ["/home/me/torch_models/net.py", 5, "forward"], ["train.py", 9, "main"],
    ]  # fmt: skip
    # THEN the innermost line outside of torch is told; without one the innermost python line; without python the innermost frame
    assert own_line(json.dumps(frames)) == "/home/me/torch_models/net.py(5): forward"
    assert own_line(json.dumps(frames[:2])) == "torch/nn/modules/linear.py(134): forward"
    assert own_line(json.dumps(frames[:1])) == "CUDACachingAllocator.cpp(10): malloc"
    assert own_line("") == own_line("[") == own_line("[]") == ""
    assert not is_users("torch/optim/adam.py") and not is_users("/usr/lib/python3.11/contextlib.py") and not is_users("<string>")
    assert is_users("torchvision/models/resnet.py") and is_users("/data/torch/train.py")


ACTIONS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 400), st.integers(0, 2), st.integers(0, 1)), min_size=4, max_size=16
)


@given(ACTIONS, st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_a_history_equals_a_slow_replay(actions: list[tuple[int, int, int, int, int]], forgotten: int) -> None:
    # GIVEN any allocations and frees on two devices of which the allocator has forgotten the first ones, and the blocks at the end
    live: list[dict[int, tuple[int, int, str]]] = [{}, {}]  # address -> number, bytes, line
    lines = ["", "a.py(1): f", "b.py(2): g"]
    stacks = [[], [{"filename": "a.py", "line": 1, "name": "f"}], [{"filename": "b.py", "line": 2, "name": "g"}]]
    every: list[list[tuple[dict[str, object], dict[int, tuple[int, int, str]]]]] = [[], []]
    for n, (what, slot, size, line, device) in enumerate(actions):
        address, here = 512 * slot, live[device]
        if what < 4 and address not in here:
            here[address] = (n, size, lines[line] or "(no call stack)")
            every[device].append((M.entry("alloc", address, size, n, stacks[line]), dict(here)))
        elif what >= 4 and address in here:
            size = here.pop(address)[1]
            every[device].append((M.entry("free_requested", address, size, n, stacks[line]), dict(here)))
    kept = [e[min(forgotten, len(e)) :] for e in every]
    segments = []
    for device in (0, 1):
        blocks = []
        for slot in range(4):
            held = live[device].get(512 * slot)
            stack = stacks[lines.index(held[2])] if held and held[2] in lines else []
            blocks.append(M.block(512, held[1] if held else 0, "active_allocated" if held else "inactive", stack))
        segments.append(M.segment(0, "small", blocks, device=device))
    c = capture_of({"segments": segments, "device_traces": [[e for e, _ in k] for k in kept]}, file="a.pickle")
    # WHEN asked after every entry THEN what is alive stands at its line; only what is forgotten and freed later has none
    drawn = {int(curve.device.split()[1]): curve for curve in whole(c)}
    for device, curve in drawn.items():
        numbers = {n for e, _ in kept[device] for n in [int(e["time_us"]) - M.T0]}  # type: ignore[call-overload]
        for entry, held in kept[device]:
            time = int(entry["time_us"]) * 1000 - c.facts.origin_ns  # type: ignore[call-overload]
            found = attribution(c, curve, "frame", time)
            wanted: dict[str, int] = {}
            lost = 0
            for address, (number, size, line) in held.items():
                if number in numbers or live[device].get(address, (-1,))[0] == number:
                    wanted[line] = wanted.get(line, 0) + size
                else:
                    lost += size
            rows = found.rows[found.rows["kind"] == "row"]
            assert dict(zip(rows["name"], rows["bytes"].tolist(), strict=True)) == wanted
            assert bytes_by_name(found).get(BEFORE, 0) == lost and found.unknown == 0
            assert found.total == sum(size for _, size, _ in held.values()) == int(found.rows["bytes"].sum())
        for by in GROUPINGS:
            assert int(attribution(c, curve, by).rows["bytes"].sum()) == curve.peak


def test_a_timeline_by_category(tmp_path: Path) -> None:
    # GIVEN a timeline: parameters 100 B, then 40 B of activations and 7 B of unknown kind
    path = tmp_path / "memory.raw.json"
    path.write_text(json.dumps([[-1, 1, 100, 0], [10, 2, 40, 4], [20, 2, 7, 7], [30, 4, -40, 4]]))
    c = read(str(path))
    (curve,) = curves(c)
    # WHEN asked THEN categories have their names here, none is estimated, and what the timeline calls unknown is the rest
    found = attribution(c, curve, "category")
    assert groupings_of(c, curve) == ("category",) and bytes_by_name(found) == {"params": 100, "activations": 40, UNKNOWN: 7}
    assert not found.rows["estimated"].any() and found.total == 147
    assert bytes_by_name(attribution(c, curve, "category", 25)) == {"params": 100, UNKNOWN: 7}
    assert bytes_by_name(attribution(c, curve, "operator")) == {UNKNOWN: 147}


def test_records_by_category_and_module() -> None:
    # GIVEN two records of device 0, of 1,000 B and 1,500 B; the first found 600 B of parameters in two modules and 50 B of gradients
    labels = S.LABELS.frame({"what": ["module", "module"], "parent": [-1, -1], "name": ["a", "b"], "class_name": ["Linear", "Linear"]})
    records = S.MEMORY_RECORDS.frame({
        "tag": ["setup", "later"], "time_ns": [1_000_000, 5_000_000], "device": [0, 0], "allocated": [1000, 1500], "reserved": [2048, 2048],
        "max_allocated": [1000, 1500], "since": ["process", "process"], "iteration": [0, 1], "phase": np.full(2, -1, np.int32),
    })  # fmt: skip
    parts = S.MEMORY_PARTS.frame({
        "record": [0, 0, 0, 0], "category": ["params", "params", "grads", "main_grads"], "dtype": ["bfloat16"] * 4,
        "module": [0, 1, -1, 0], "tensors": [2, 1, 1, 1], "bytes": [400, 200, 50, 0], "view_bytes": [400, 200, 50, 50],
    })  # fmt: skip
    c = Capture(Facts("sol_capture", "x", 0), {"labels": labels, "memory_records": records, "memory_parts": parts})
    (curve,) = curves(c)
    # WHEN asked at the first THEN its parts and the rest; a part whose storage another one counts holds nothing
    assert groupings_of(c, curve) == ("category", "module")
    now = attribution(c, curve, "category", 1_000_000)
    assert bytes_by_name(now) == {"params": 600, "grads": 50, UNKNOWN: 350} and now.rows["allocations"].tolist() == [3, 1, -1]
    assert bytes_by_name(attribution(c, curve, "module", 1_000_000)) == {"a": 400, "b": 200, "(no module)": 50, UNKNOWN: 350}
    # AND at the peak, which the second record saw, those of the nearest that looked, and that it did so 4 ms earlier
    peak = attribution(c, curve, "category")
    assert bytes_by_name(peak) == {"params": 600, "grads": 50, UNKNOWN: 850}
    assert peak.notes[0] == "parts as the record 'setup' found them, 4.0 ms earlier" and "57%" in peak.notes[1]
