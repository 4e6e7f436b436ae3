"""What the replay of memory events costs where they are many: made-up events of one device, the stages, and a floor.

    python -m benchmarks.memory [--events 1000000] [--repeats 3]

The floor is one sort of the events by address and one running sum, with numpy. A snapshot of a tenth as many entries is read too.
The page is computed of the same events inside steps, modules and operators (as many host events as memory events): the first answer after
loading, the answer from what is kept then, and a window of a tenth of the time.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.timing import timed
from tb_sol_plugin.ingest.memory import snapshot as memory_snapshot
from tb_sol_plugin.metrics.memory import curves as C
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.tables import tree

SLOTS = 20_000
"""Addresses that are used one after the other."""
DEVICE = R.Device(1, 0)


def made(count: int) -> Capture:
    """A recording of `count` memory events 100 ns apart, half of them frees."""
    slots = np.random.default_rng(0).integers(0, SLOTS, count)
    size = np.zeros(count, np.int64)
    sizes = [0] * SLOTS
    for i, slot in enumerate(slots.tolist()):
        size[i] = -sizes[slot] if sizes[slot] else 512 * (1 + i * 7919 % 1000)
        sizes[slot] = max(int(size[i]), 0)
    columns = {
        "time_ns": np.arange(count) * 100, "device_type": np.ones(count), "device_id": np.zeros(count), "address": slots + 1,
        "bytes": size, "total_allocated": np.cumsum(size) + 10**9, "total_reserved": np.full(count, 10**11), "index": np.arange(count),
    }  # fmt: skip
    return Capture(Facts("kineto", "made", 0, extent_ns=(0, count * 100)), {"memory": S.MEMORY.frame(columns)})


def around(capture: Capture) -> Capture:
    """The same events within 100 steps of 20 modules; an operator around every 4 of them, and one inside it around each 2."""
    length = capture.facts.extent_ns[1]
    starts, lengths, kinds, names = [], [], [], []
    levels = ((length // 100, S.ANNOTATION, "ProfilerStep#{}", 100), (length // 2000, S.MODULE, "nn.Module: Layer_{}", 20),
              (400, S.OPERATOR, "aten::outer{}", 50), (200, S.OPERATOR, "aten::inner{}", 50))  # fmt: skip
    for size, kind, name, distinct in levels:
        begin = np.arange(0, length - size + 1, size)
        starts.append(begin)
        lengths.append(np.full(len(begin), size))
        kinds.append(np.full(len(begin), kind, np.int8))
        names.append(np.array([name.format(i % distinct) for i in range(len(begin))], object))
    start, duration, kind_of = (np.concatenate(part).astype(np.int64) for part in (starts, lengths, kinds))
    thread = np.zeros(len(start), np.int32)
    order = tree.preorder(thread, start, start + duration, np.zeros(len(start), np.int8))
    start, duration, kind_of, name_of = start[order], duration[order], kind_of[order], np.concatenate(names)[order]
    parent, depth, end, clipped = tree.nest(thread, start, start + duration)
    host = S.HOST.frame({
        "name": name_of, "kind": kind_of, "thread": thread, "start_ns": start, "duration_ns": duration, "parent": parent, "depth": depth,
        "end": end, "clipped": clipped, "index": np.arange(len(start)),
    })  # fmt: skip
    rows = np.flatnonzero(kind_of == S.ANNOTATION)
    steps = S.STEPS.frame({
        "number": np.arange(len(rows)), "name": name_of[rows], "host": rows, "host_start_ns": start[rows],
        "host_end_ns": start[rows] + duration[rows], "start_ns": start[rows], "end_ns": start[rows] + duration[rows],
    })  # fmt: skip
    memory = capture.tables["memory"].assign(thread=np.zeros(len(capture.tables["memory"]), np.int32))
    return Capture(capture.facts, {"memory": memory, "host": host, "steps": steps})


def snapshot(count: int) -> bytes:
    frames = [{"filename": "train.py", "line": n, "name": f"f{n}"} for n in range(2_000)]
    entries = [
        {"action": "alloc", "addr": n, "size": 512, "stream": 0, "time_us": 10**15 + n, "frames": frames[n % 1990 : n % 1990 + 8]}
        for n in range(count)
    ]
    return pickle.dumps({"segments": [], "device_traces": [entries]}, 4)


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.memory", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    capture = made(options.events)
    table = capture.tables["memory"]
    R.allocations(capture, DEVICE)

    def fresh(stage: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            capture.memo.clear()
            stage()

        return run

    stages = {
        "floor": lambda: (np.argsort(table["address"].to_numpy(), kind="stable"), np.cumsum(table["bytes"].to_numpy())),
        "levels": fresh(lambda: R.replay(capture, DEVICE)),
        "levels and allocations": fresh(lambda: R.allocations(capture, DEVICE)),
        "curves": fresh(lambda: C.curves(capture)),
    }
    whole = around(capture)
    part = f"0-{whole.facts.extent_ns[1] // 10}"

    def first() -> None:
        whole.memo.clear()
        answer_capture("memory", whole, {})

    answer_capture("memory", whole, {})
    stages |= {
        "page, first": first, "page, again": lambda: answer_capture("memory", whole, {}),
        "page, a window": lambda: answer_capture("memory", whole, {"window": part}),
        "page, a moment": lambda: answer_capture("memory", whole, {"at": "1000"}),
    }  # fmt: skip
    print(f"{options.events:,} events, {len(whole.host):,} host events")
    for name, stage in stages.items():
        print(f"{name:>24} {timed(stage, options.repeats):8.3f} s")
    with tempfile.TemporaryDirectory(prefix="tb-sol-bench-") as folder:
        path = Path(folder) / "m.pickle"
        path.write_bytes(snapshot(options.events // 10))
        memory_snapshot.read(str(path))
        label = f"snapshot of {options.events // 10:,}"
        print(f"{label:>24} {timed(lambda: memory_snapshot.read(str(path)), 1):8.3f} s, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
