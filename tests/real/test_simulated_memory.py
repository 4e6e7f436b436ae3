"""The sample of memory: a trace, a SOL capture and a snapshot of the same allocations tell the same, and what was planted is found.

Numbers come from the simulator's own sums (`truth.json`) and from its constants, worked out again here.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_sol_plugin.metrics.memory.curves import Curves, curves
from tb_sol_plugin.model.capture import Capture
from tests.support.captures import capture

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "samples" / "simulated_memory"
TRUTH: dict[str, dict[str, dict[str, Any]]] = {run: json.loads((FOLDER / run / "truth.json").read_text()) for run in ("before", "after")}
MIB = 1 << 20
each = pytest.mark.parametrize(("run", "worker"), [(run, w) for run, ranks in TRUTH.items() for w in sorted(ranks)])


def opened(run: str, worker: str, ending: str = "*.pt.trace.json.gz") -> Capture:
    (path,) = (FOLDER / run).glob(f"{worker}{ending}")
    return capture(path)


def curve(c: Capture, source: str) -> Curves:
    (found,) = [one for one in curves(c, most=100_000) if one.source == source]
    return found


# -- what was planted, by hand ----------------------------------------------------------------------------------

H, V = 8192, 32768
NORMS = 4 * 2 * H
"""Weights and biases of the four norms of two blocks."""
BLOCKS = 2 * 12 * H * H + NORMS
ELEMENTS = {0: V * H + BLOCKS + V * H, 1: BLOCKS + 2 * H + V * H}
"""Parameters by stage: embedding, blocks and a head that is not needed; blocks, norm and head."""


@each
def test_what_the_job_holds_follows_from_its_sizes(run: str, worker: str) -> None:
    # GIVEN the sizes of the model WHEN the simulator has run THEN 2 B a parameter, 2 B a gradient (none of the unused head), 4 B of each FP32
    # state, of which a changed job holds half
    truth = TRUTH[run][worker]
    count = ELEMENTS[truth["stage"]]
    share = count // 2 if run == "after" else count
    grads = count - (V * H if truth["stage"] == 0 else 0)
    assert truth["held"] == {"params": 2 * count, "grads": 2 * grads, "master_weights": 4 * share, "exp_avg": 4 * share, "exp_avg_sq": 4 * share}


@each
def test_steps_keep_what_was_planted(run: str, worker: str) -> None:
    # GIVEN the levels at the ends of all iterations THEN stage 0 of the first run gains 48 MiB a step, and 520 MiB once, after the third;
    # nobody else gains anything
    truth = TRUTH[run][worker]
    levels = {number: level for number, level, *_ in truth["levels"]}
    gains = np.diff([levels[n] for n in sorted(levels)])
    leak = 48 * MIB if run == "before" and truth["stage"] == 0 else 0
    assert gains.tolist() == [leak + (520 * MIB if n == 2 and run == "before" else 0) for n in range(39)]
    assert truth["leak"] == ({"module": "TokenStats_0", "bytes_per_step": leak} if leak else None)


# -- one source after the other -----------------------------------------------------------------------------------


@each
def test_events_of_the_trace(run: str, worker: str) -> None:
    # GIVEN the trace of one rank WHEN its curve is made THEN beginning, end and peak are those of the simulator
    c, truth = opened(run, worker), TRUTH[run][worker]
    found = curve(c, "events")
    assert c.facts.total_events == truth["total_events"] and len(c.tables["memory"]) == truth["memory_events"]
    assert found.before == truth["at_begin"]["allocated"] and not found.relative
    assert found.allocated is not None and found.reserved is not None
    assert (int(found.allocated[-1]), int(found.reserved[-1])) == (truth["at_end"]["allocated"], truth["at_end"]["reserved"])
    assert (found.peak, found.peak_ns + c.facts.origin_ns - 1_700_001_000 * 10**9) == (truth["peak"]["bytes"], truth["peak"]["time_ns"])
    assert c.steps["number"].tolist() == list(range(30, 36))


@each
def test_records_of_the_sol_capture(run: str, worker: str) -> None:
    # GIVEN the SOL capture of one rank THEN every iteration has the levels of the simulator, and the base is its context and communication
    c, truth = opened(run, worker, "_*.sol.jsonl.gz"), TRUTH[run][worker]
    table = c.tables["memory_records"]
    ends = table[table["since"] == "iteration"]
    columns = ["iteration", "allocated", "reserved", "max_allocated", "max_reserved"]
    assert ends[columns].to_numpy().tolist() == truth["levels"] and len(ends) == 40
    base = table[table["tag"].isin(["before the model", "after init_process_group"])]["device_used"].tolist()
    assert base == [truth["context"], truth["context"] + truth["communication"]] == [528 * MIB, 1632 * MIB]
    # AND each walk finds what the job holds, of what is there at that time
    parts = c.tables["memory_parts"]
    last = parts[parts["record"] == parts["record"].max()]
    held = {str(k): int(v) for k, v in last.groupby("category", observed=True)["bytes"].sum().items() if v}
    assert held == truth["held"]
    # AND the numbers of devices, ranks and groups stand in the header
    assert (c.facts.rank, c.facts.world_size) == (truth["rank"], 4)


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_the_snapshot(run: str) -> None:
    # GIVEN the snapshot of rank 0 THEN its blocks and its curve agree with the simulator's allocator
    c, truth = opened(run, "sim0_rank0", ".pickle.gz"), TRUTH[run]["sim0_rank0"]
    blocks, told = c.tables["memory_blocks"], truth["snapshot"]
    used = blocks["state"] == "active_allocated"
    segments = blocks.drop_duplicates("segment")
    assert (int(blocks["bytes"][used].sum()), int(segments["segment_bytes"].sum())) == (told["allocated"], told["reserved"])
    assert len(segments) == told["segments"]
    split = blocks[~used & blocks["segment"].isin(set(blocks["segment"][used]))]
    assert int(split["bytes"].sum()) == told["cut_off"]
    assert int(blocks["bytes"][~used].max()) == told["largest_free"]
    # AND what was planted: 6 GiB less a workspace of 520 MiB cannot be given back, though none of it is in use
    if run == "before":
        assert told["largest_free"] == (6 << 30) - 520 * MIB <= told["cut_off"]
    found = curve(c, "snapshot")
    assert found.allocated is not None and int(found.allocated[-1]) == truth["at_end"]["allocated"]
    # AND the failed allocation, which would fit if that rest were free: total less context, communication and what is in use
    if run == "after":
        assert not found.events and "oom" not in truth
        return
    (event,) = found.events
    assert (event.bytes, event.free) == (42 << 30, truth["oom"]["device_free"])
    assert event.time_ns + c.facts.origin_ns == truth["oom"]["time_us"] * 1000
    assert event.free < event.bytes < event.free + told["cut_off"]
    assert event.free == truth["total"] - 1632 * MIB - told["reserved"]  # the slices that came after it fit into that rest


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_the_sources_agree(run: str) -> None:
    # GIVEN the history of the snapshot, which begins within the traced steps WHEN both curves are read at its moments
    trace, snapshot = opened(run, "sim0_rank0"), opened(run, "sim0_rank0", ".pickle.gz")
    a, b = curve(trace, "events"), curve(snapshot, "snapshot")
    assert a.allocated is not None and b.allocated is not None and a.reserved is not None and b.reserved is not None
    # THEN in every microsecond the last level of either is the same: the snapshot's clock has no finer ticks
    of_a, of_b = ((x.time_ns + c.facts.origin_ns) // 1000 for x, c in ((a, trace), (b, snapshot)))
    common = np.intersect1d(of_a, of_b)
    assert len(common) > 500
    last = [np.searchsorted(of, common, side="right") - 1 for of in (of_a, of_b)]
    assert a.allocated[last[0]].tolist() == b.allocated[last[1]].tolist()
    assert a.reserved[last[0]].tolist() == b.reserved[last[1]].tolist()


def test_the_sample_is_what_its_script_writes(tmp_path: Path) -> None:
    # GIVEN the committed script WHEN it runs once more, in a copy of its folder THEN it writes the committed recordings
    for name in ("simulate_memory.py", "caching_allocator.py", "simulator.py"):
        (tmp_path / name).write_text((ROOT / "samples" / name).read_text())
    subprocess.run([sys.executable, str(tmp_path / "simulate_memory.py")], check=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""})
    names = sorted(str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*") if p.is_file())
    assert names == sorted(str(p.relative_to(tmp_path / "simulated_memory")) for p in (tmp_path / "simulated_memory").rglob("*") if p.is_file())
    for name in names:
        fresh, committed = (tmp_path / "simulated_memory" / name).read_bytes(), (FOLDER / name).read_bytes()
        if name.endswith(".gz"):
            fresh, committed = gzip.decompress(fresh), gzip.decompress(committed)
        assert fresh == committed, f"{name} is stale: run samples/simulate_memory.py"
    assert sum((FOLDER / name).stat().st_size for name in names) < 900_000
