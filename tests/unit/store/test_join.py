"""Snapshots and timelines beside a trace or a SOL capture: which belong together, on which clock, and what goes wrong."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.metrics.memory.attribution import attribution, groupings_of
from tb_sol_plugin.metrics.memory.curves import whole
from tb_sol_plugin.metrics.memory.sources import memories
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts, own_work_until
from tb_sol_plugin.model.memory_join import joined_files, on_its_clock
from tb_sol_plugin.model.recordings import SNAPSHOT, TIMELINE, Recording
from tb_sol_plugin.store.join import attached_to, companions
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tests.support import memory_snapshot as M
from tests.support.sol_builder import WALL_NS, small
from tests.support.trace_builder import TraceBuilder
from tests.unit.metrics.memory.test_attribution import bytes_by_name
from tests.unit.store.test_captures import open_soon

T0_NS = M.T0 * 1000


def recording(file: str, kind: str, worker: str, span: str = "default") -> Recording:
    return Recording("run", worker, span, f"/x/{file}", f"run/{file}", 1, 0.0, kind)


def trace(path: Path, *, base_ns: int | None = T0_NS, rank: int | None = None) -> Path:
    """A trace that begins with the snapshot's history: 100 us in which 40 B and 60 B are allocated on top of 1,000 B."""
    t = TraceBuilder(base_ns=base_ns, origin_ns=0, rank=rank, world_size=2 if rank is not None else 1)
    t.step(1, 0, 100_000)
    t.op("aten::mm", 5_000, 50_000)
    t.memory(10_000, 40, address=1, allocated=1_040, reserved=1 << 21)
    t.memory(20_000, 60, address=2, allocated=1_100, reserved=1 << 21)
    t.memory(50_000, -60, address=2, allocated=1_040, reserved=1 << 21)
    return t.write(path)


def timeline(path: Path, at_ns: int = T0_NS) -> Path:
    """The timeline of that trace: 1,000 B of parameters, 40 B of activations, 60 B that pass."""
    rows = [[-1, 1, 1000, 0], [at_ns + 10_000, 2, 40, 4], [at_ns + 20_000, 2, 60, 3], [at_ns + 50_000, 4, -60, 3]]
    path.write_text(json.dumps(rows))
    return path


def opened(folder: Path) -> Capture:
    run = sol.open(str(folder), cache=False)
    return run.open(next(r for r in run.recordings if r.kind == "kineto"))


# -- which belong together ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bearers", "files", "wanted"),
    [
        # by the worker's name, whole and in front of another word
        (["host_7"], ["host_7", "host_8"], {"host_7": ["host_7"]}),
        (["host_7", "host_71"], ["host_7.memory", "host_71_oom"], {"host_7": ["host_7.memory"], "host_71": ["host_71_oom"]}),
        # by rank
        (["a_rank0", "a_rank1"], ["rank1", "rank0", "rank2"], {"a_rank0": ["rank0"], "a_rank1": ["rank1"]}),
        # the only ones of the run, unless the file is of another rank
        (["worker0"], ["memory"], {"worker0": ["memory"]}),
        (["worker_rank0"], ["memory_rank3"], {"worker_rank0": []}),
        (["worker0", "worker1"], ["memory"], {"worker0": [], "worker1": []}),
        (["worker0"], ["memory", "memory2"], {"worker0": []}),
    ],
)
def test_a_snapshot_belongs_to_the_worker_of_its_name_or_rank(bearers: list[str], files: list[str], wanted: dict[str, list[str]]) -> None:
    traces = [recording(f"{b}.1.pt.trace.json", "kineto", b, "1") for b in bearers]
    every = [*traces, *(recording(f"{f}.pickle", SNAPSHOT, f) for f in files)]
    assert {t.worker: [r.worker for r in attached_to(t, every)] for t in traces} == wanted


def test_the_rank_of_a_trace_may_stand_in_its_header() -> None:
    every = [recording("a.json", "kineto", "a"), recording("b.json", "kineto", "b"), recording("rank1.pickle", SNAPSHOT, "rank1")]
    assert (
        attached_to(every[0], every) == []
        and attached_to(every[0], every, rank=1) == [every[2]]
        and attached_to(every[0], every, rank=0) == []
    )


def test_memory_is_attached_to_the_trace_rather_than_to_its_sol_log() -> None:
    # GIVEN a trace with a SOL capture, a SOL capture alone, and a snapshot and a timeline of either rank
    t = recording("h_rank0.5.pt.trace.json", "kineto", "h_rank0", "5")
    a, b = (
        recording("h_rank0_1_5.sol.jsonl", "sol_capture", "h_rank0", "5"),
        recording("h_rank1_1_5.sol.jsonl", "sol_capture", "h_rank1", "5"),
    )
    m = [recording(f"rank{n}.pickle", SNAPSHOT, f"rank{n}") for n in (0, 1)] + [recording("rank1.raw.json", TIMELINE, "rank1")]
    every = [t, a, b, *m]
    # THEN the trace gets both of its own, its SOL capture none, the other SOL capture both of rank 1
    assert attached_to(t, every) == [a, m[0]] and attached_to(a, every) == [] and attached_to(b, every) == [m[1], m[2]]
    # AND each is told with the recording that bears it
    assert {r: o for r, o in companions(tuple(every)).items() if r in m} == {m[0]: t, m[1]: b, m[2]: b}


# -- on one clock --------------------------------------------------------------------------------------------------------


def test_a_trace_gets_the_tables_of_attached_memory_on_its_clock(tmp_path: Path) -> None:
    # GIVEN a trace, and a snapshot and a timeline of the same time
    trace(tmp_path / "host_1.5.pt.trace.json")
    M.write(tmp_path / "host_1.pickle", M.snapshot())
    timeline(tmp_path / "host_1_memory.raw.json")
    # WHEN the trace is opened THEN all three tell memory, each at its place: the third allocation of the snapshot 25 us in
    c = opened(tmp_path)
    assert joined_files(c) == {SNAPSHOT: "host_1.pickle", TIMELINE: "host_1_memory.raw.json"} and not c.facts.warnings
    events = c.tables["memory_events"]
    assert events.loc[events["bytes"] == 3 * M.MIB - 100, "time_ns"].tolist() == [25_000]
    assert {(m.label, tuple(x.source for x in m.curves)) for m in memories(c)} >= {("CUDA 0", ("events", "snapshot", "timeline"))}
    # AND the timeline is known to be of that device, and says what memory in use was for
    assert set(c.tables["memory_timeline"]["device"]) == {"device 0"}
    found = attribution(c, whole(c)[0], "category")
    assert bytes_by_name(found) == {"params": 1_000, "temporary": 60, "activations": 40, "unknown": 0} and not found.rows["estimated"].any()


def test_without_absolute_times_nothing_is_joined_and_a_warning_says_so(tmp_path: Path) -> None:
    # GIVEN a trace that does not say when it was WHEN opened with a snapshot beside THEN it stands alone, and says why
    trace(tmp_path / "host_1.5.pt.trace.json", base_ns=None)
    M.write(tmp_path / "host_1.pickle", M.snapshot())
    c = opened(tmp_path)
    assert not joined_files(c) and any("host_1.pickle: this recording does not say when it was" in w for w in c.facts.warnings)


def test_a_snapshot_of_another_time_is_not_joined_and_a_warning_says_so(tmp_path: Path) -> None:
    # GIVEN a trace of an hour before the snapshot WHEN opened THEN it stands alone, and says why
    trace(tmp_path / "host_1.5.pt.trace.json", base_ns=T0_NS - 3_600 * 10**9)
    M.write(tmp_path / "host_1.pickle", M.snapshot())
    c = opened(tmp_path)
    assert not joined_files(c) and not len(c.tables["memory_events"])
    assert any("host_1.pickle: this allocator snapshot is of another time" in w for w in c.facts.warnings)


def test_of_several_snapshots_the_one_of_the_same_time_is_joined(tmp_path: Path) -> None:
    # GIVEN timelines of three cycles of a profiler, a minute apart, and the trace of the second
    trace(tmp_path / "host_1.5.pt.trace.json")
    for n, shift in enumerate((-60, 0, 60)):
        timeline(tmp_path / f"host_1_cycle{n}.raw.json", T0_NS + shift * 10**9)
    c = opened(tmp_path)
    assert joined_files(c) == {TIMELINE: "host_1_cycle1.raw.json"} and not c.facts.warnings


def test_a_broken_snapshot_hides_nothing_and_a_warning_names_it(tmp_path: Path) -> None:
    # GIVEN a trace, and beside it a snapshot that is cut and one that would run code
    trace(tmp_path / "host_1.5.pt.trace.json")
    whole_one = pickle.dumps(M.snapshot())
    (tmp_path / "host_1.pickle").write_bytes(whole_one[: len(whole_one) - 40])
    c = opened(tmp_path)
    # THEN the trace is all there, and the warning names the file
    assert whole(c)[0].peak == 1_100 and [w for w in c.facts.warnings if "host_1.pickle" in w] and not joined_files(c)
    # AND alone it ends in words
    with pytest.raises(BadInput):
        sol.open_capture(str(tmp_path / "host_1.pickle"), cache=False)


def test_memory_is_attached_to_a_sol_log_without_a_trace(tmp_path: Path) -> None:
    # GIVEN a SOL capture of 9 iterations, and a snapshot that begins 20 ms after it
    small().write(tmp_path / f"node1_rank0_4242_{WALL_NS}.sol.jsonl")
    value = M.snapshot()
    for device in value["device_traces"]:
        for entry in device:
            entry["time_us"] += WALL_NS // 1000 + 20_000 - M.T0
    del value["external_annotations"]
    M.write(tmp_path / "rank0.pickle", value)
    run = sol.open(str(tmp_path), cache=False)
    alone = sol.open_capture(str(tmp_path / "rank0.pickle"), cache=False)
    c = run.open(next(r for r in run.recordings if r.kind == "sol_capture"))
    # THEN it gets them, at the moment that its clock, which stands still while it records, showed then
    assert joined_files(c) == {SNAPSHOT: "rank0.pickle"}
    wall = alone.tables["memory_events"]["time_ns"].to_numpy() + alone.facts.origin_ns - c.facts.origin_ns
    assert c.tables["memory_events"]["time_ns"].tolist() == on_its_clock(c, wall).tolist()


def test_a_snapshot_has_categories_where_a_sol_log_recorded_them(tmp_path: Path) -> None:
    # GIVEN a SOL capture whose program found 2 MiB of parameters on device 0, and a snapshot with 3 MiB and more in use then
    b = small()
    b.records.append({
        "kind": "memory", "tag": "here", "time_ns": 20_000_000, "iteration": 1, "device": 0, "allocated": 4 << 20, "reserved": 22 << 20,
        "max_allocated": 4 << 20, "max_reserved": 22 << 20, "since": "process", "parts": [["params", "float32", -1, 0, 3, 2 << 20, 2 << 20]],
    })  # fmt: skip
    b.write(tmp_path / f"node1_rank0_4242_{WALL_NS}.sol.jsonl")
    value = M.snapshot()
    for device in value["device_traces"]:
        for entry in device:
            entry["time_us"] += WALL_NS // 1000 + 20_000 - M.T0
    M.write(tmp_path / "rank0.pickle", value)
    run = sol.open(str(tmp_path), cache=False)
    c = run.open(next(r for r in run.recordings if r.kind == "sol_capture"))
    # WHEN asked what the snapshot's peak is for THEN parameters are the recorded ones, and the rest is unknown
    curve = next(x for m in memories(c) for x in m.curves if x.source == "snapshot" and m.number == 0)
    assert groupings_of(c, curve) == ("category", "frame")
    found = attribution(c, curve, "category")
    assert bytes_by_name(found) == {"params": 2 << 20, "unknown": curve.peak - (2 << 20)} and curve.peak == 3 * M.MIB - 100 + 1500


def test_times_of_memory_are_moved_to_the_clock_of_a_sol_log() -> None:
    # GIVEN iterations from 0 and 1,000 ns on its clock, with 50 ns of own work before the second and 30 ns in the first
    columns = {"number": [0, 1], "start_ns": [0, 1000], "duration_ns": [1000, 500], "before_ns": [0, 50], "overhead_ns": [30, 0]}
    table = S.ITERATIONS.frame(columns)
    c = Capture(Facts("sol_capture", "x", 0), {"iterations": table})
    # WHEN times of a wall clock are asked THEN the second iteration begins at 1,080 there; what fell into the rest is its end
    assert on_its_clock(c, np.array([500, 1070, 1080, 1200])).tolist() == [500, 1000, 1000, 1120]


def test_a_changed_or_removed_file_is_noticed(tmp_path: Path) -> None:
    # GIVEN a store that has handed out a trace with its timeline
    folder = tmp_path / "logs" / "run"
    folder.mkdir(parents=True)
    trace(folder / "host_1.5.pt.trace.json")
    path = timeline(folder / "host_1.raw.json")
    store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "cache"), workers=1, fresh_seconds=0.0))
    try:
        store.rescan()
        shown = next(r for r in store.recordings("run") if r.kind == "kineto")
        assert len(open_soon(store, shown).tables["memory_timeline"]) == 4
        # WHEN the timeline is written anew, shorter, and then removed THEN the next look has it so
        path.write_text(json.dumps([[-1, 1, 1000, 0], [T0_NS + 10_000, 2, 40, 4]]))
        store.rescan()
        assert len(open_soon(store, shown).tables["memory_timeline"]) == 2
        path.unlink()
        store.rescan()
        c = open_soon(store, shown)
        assert not len(c.tables["memory_timeline"]) and not joined_files(c)
    finally:
        store.close()


def test_memory_records_of_a_sol_log_are_joined_with_it(tmp_path: Path) -> None:
    # GIVEN a trace that begins 10 ms after a SOL capture of its worker, which recorded memory 12 ms after its beginning
    b = small()
    b.records.append({
        "kind": "memory", "tag": "here", "time_ns": 12_000_000, "iteration": 1, "device": 0, "total": 10**9, "device_used": 5_000,
        "allocated": 3_000, "reserved": 4_000, "max_allocated": 3_500, "max_reserved": 4_000, "since": "process",
    })  # fmt: skip
    b.write(tmp_path / f"node1_rank0_4242_{WALL_NS}.sol.jsonl")
    alone = sol.open_capture(str(tmp_path / f"node1_rank0_4242_{WALL_NS}.sol.jsonl"), cache=False)
    trace(tmp_path / "node1_rank0.5.pt.trace.json", base_ns=WALL_NS + 10_000_000)
    # WHEN the trace is opened THEN it has the record at its place, and who held what the program knows
    c = opened(tmp_path)
    records, own = c.tables["memory_records"], alone.tables["memory_records"]
    shift = alone.facts.origin_ns - c.facts.origin_ns
    assert records["tag"].tolist() == ["here"] and records["allocated"].tolist() == [3_000]
    assert records["time_ns"].tolist() == [int(own["time_ns"].iloc[0]) + shift + int(own_work_until(alone, own["time_ns"].to_numpy())[0])]
    assert [x.source for m in memories(c) for x in m.curves if m.number == 0] == ["events", "recorder"]
