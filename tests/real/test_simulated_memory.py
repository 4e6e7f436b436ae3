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

import tb_sol_plugin as sol
from tb_sol_plugin.metrics.memory.attribution import attribution
from tb_sol_plugin.metrics.memory.curves import Curves, curves
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Report
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


# -- what the pages say -------------------------------------------------------------------------------------------


def answered(run: str, name: str, **query: object) -> Report:
    found = sol.open(str(FOLDER), run=run).analyze(name, **query)  # type: ignore[arg-type]
    assert isinstance(found, Report)
    return found


@each
def test_who_held_the_peak(run: str, worker: str) -> None:
    # GIVEN the trace of one rank WHEN its peak is told by module THEN activations and gradients of each are those of the simulator
    c, truth = opened(run, worker), TRUTH[run][worker]
    found = attribution(c, curve(c, "events"), "module")
    rows = found.rows.set_index("name")["bytes"].to_dict()
    want = {name: size for name, size in truth["peak"]["module"].items() if name}  # "": there before, or of no module
    assert {name: rows[name] for name in want} == want
    assert set(rows) - set(want) <= {"allocated before the window", "unknown", "(no module)"}
    assert rows["allocated before the window"] == truth["at_begin"]["allocated"] and rows["unknown"] == 0
    assert found.total == truth["peak"]["bytes"] == sum(rows.values())
    # AND what the module left behind in the steps so far, this one included: two micro batches of 24 MiB each
    if truth["leak"]:
        assert rows["TokenStats_0"] == 48 * MIB * (truth["peak"]["step"] - 29)


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_what_memory_is_for_at_the_peak(run: str) -> None:
    # GIVEN the trace of rank 0 with its SOL capture beside it WHEN the peak is told by category THEN parameters, gradients and state of the
    # optimizer are exact, and what nobody can name is what the module and the workspace hold
    run_, truth = sol.open(str(FOLDER), run=run), TRUTH[run]["sim0_rank0"]
    (recording,) = (r for r in run_.recordings if r.worker == "sim0_rank0" and r.kind == "kineto")
    c = run_.open(recording)
    rows = attribution(c, curve(c, "events"), "category").rows.set_index("name")["bytes"].to_dict()
    assert {name: rows[name] for name in truth["held"]} == truth["held"]
    peak = truth["peak"]["category"]
    assert rows["unknown"] == peak.get("leak", 0) + peak.get("workspace", 0)
    passing = ("activations", "inputs", "temporary", "autograd_detail")
    assert sum(rows.get(name, 0) for name in passing) == sum(peak.get(name, 0) for name in passing)


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_ranks_beside_each_other(run: str) -> None:
    # GIVEN four ranks of two stages THEN peaks, what is left and growth are those of the simulator, and rank 3 stands out in its stage
    found, truth = answered(run, "memory_ranks"), TRUTH[run]
    t = found.table("ranks").set_index("worker")
    for worker, told in truth.items():
        assert t.loc[worker, ["peak", "before", "end"]].tolist() == [
            told["peak"]["bytes"], told["at_begin"]["allocated"], told["at_end"]["allocated"],
        ]  # fmt: skip
        most = max(reserved for *_, reserved in told["levels"])
        assert t.loc[worker, "reserved"] <= most and t.loc[worker, "left"] == told["total"] - 1632 * MIB - most
        growth = told["leak"]["bytes_per_step"] if told["leak"] else 0
        assert t.loc[worker, "growth"] == pytest.approx(growth, abs=1.0)
        assert (t.loc[worker, "verdict"] == "leak") == bool(told["leak"])
    stages = found.table("stages").set_index("stage")
    peaks = [truth[f"sim0_rank{r}"]["peak"]["bytes"] for r in range(4)]
    assert stages["most_rank"].tolist()[1] == "rank 3" and stages["growing"].tolist() == ([2, 0] if run == "before" else [0, 0])
    assert stages.loc["stage 1", "excess"] == peaks[3] - (peaks[2] + peaks[3]) // 2 and stages.loc["stage 0", "excess"] == 0
    assert found.facts["imbalance"] == peaks[3] / ((peaks[2] + peaks[3]) / 2) and "rank 3" in found.headline


def test_both_runs_beside_each_other() -> None:
    # GIVEN the job before and after WHEN they are compared THEN half of each state of the optimizer, the leak and the workspace are gone
    found = answered("before", "memory_compare", other="after")
    a, b = (TRUTH[run]["sim0_rank0"] for run in ("before", "after"))
    t = found.table("held").set_index("name")["delta"].to_dict()
    half = 2 * ELEMENTS[0]
    gone = 24 * MIB * 2 * (a["peak"]["step"] + 1) + 520 * MIB  # of every step from 0 on, and once
    assert {name: size for name, size in t.items() if size} == {
        "master weights": -half, "optimizer: first moment": -half, "optimizer: second moment": -half, "unknown": -gone,
    }  # fmt: skip
    assert found.facts["peak_delta_bytes"] == b["peak"]["bytes"] - a["peak"]["bytes"] == -3 * half - gone
    assert found.facts["growth_delta_bytes"] == pytest.approx(-48 * MIB, abs=1.0)
    # AND by module the one that leaks is in the first run only
    t2 = answered("before", "memory_compare", other="after", by="module").table("held").set_index("name")
    assert t2.loc["TokenStats_0", "only"] == "only before" and t2.loc["Linear_2", "delta"] == 0


def test_two_ranks_beside_each_other() -> None:
    # GIVEN a rank of either stage of one run WHEN they are compared THEN the peaks are theirs, and that their batches differ is said
    found = answered("after", "memory_compare", other_run="after", other_worker=3, by="category")
    assert found.facts["other_worker"] == "sim0_rank3"
    ranks = {r: TRUTH["after"][f"sim0_rank{r}"]["peak"] for r in (0, 3)}
    assert found.facts["peak_delta_bytes"] == ranks[3]["bytes"] - ranks[0]["bytes"]
    assert any("8 192 tokens and 2 samples, 16 384 tokens" in n.text.replace("\u202f", " ") for n in found.notices)
