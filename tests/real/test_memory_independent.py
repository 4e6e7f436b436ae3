"""The pages of memory against a second reader that shares no code with them: traces made by others, and the samples of this project."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Report
from tests.support.captures import capture as opened
from tests.support.memory_reference import OUTSIDE, Change, Snapshot, Trace, Walk, load, operators

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
TYPES = {0: "CPU", 1: "CUDA", 6: "HIP"}
OLD = "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz"
OTHERS = (
    OLD,
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/perf_model/normalization/normalization_layer_test.json.gz",
)
OWN = (
    "capture_memory/worker0_rank0", "cpu_cnn/channels_last/worker0", "cpu_transformer/worker0", "simulated_gpu_train/rank1",
    "simulated_memory/before/sim0_rank0", "simulated_memory/after/sim0_rank3",
)  # fmt: skip


@pytest.fixture(params=[*(f"others/{n}" for n in OTHERS), *(f"samples/{n}" for n in OWN)])
def path(request: pytest.FixtureRequest) -> Path:
    kind, _, name = str(request.param).partition("/")
    if kind == "samples":
        (found,) = SAMPLES.glob(f"{name}*.pt.trace.json.gz")
        return found
    folder: Path = request.getfixturevalue("traces")
    return folder / name


@cache
def plain(path: Path) -> Trace:
    return Trace(path)


def asked(c: Capture, name: str, **query: object) -> Report:
    found = c.analyze(name, **query)
    assert isinstance(found, Report)
    return found


def has(report: Report, name: str) -> bool:
    return any(s.id == name for s in report.sections)


def devices(path: Path) -> list[tuple[tuple[int, int], str, list[Change], Walk]]:
    return [(d, TYPES[d[0]] + (f" {d[1]}" if d[1] >= 0 else ""), e, Walk(e)) for d, e in plain(path).by_device.items()]


def whole(value: Any) -> int | None:
    return None if value is None or value != value else int(value)


@pytest.mark.real
def test_the_page_of_a_trace(path: Path) -> None:
    # GIVEN every device of a trace, walked through event by event WHEN its page is asked
    c = opened(path)
    for device, label, events, walk in devices(path):
        host = device[0] == 0
        r = asked(c, "memory", device=label, source="events")
        f = r.facts
        # THEN ends, peak and its moment, what was before, and what the allocator held are those of the walk
        assert (f["peak_bytes"], f["end_bytes"]) == (walk.peak, walk.levels[-1])
        assert f["before_bytes"] == (walk.before if walk.known and not host else None)
        held = [e.reserved for e in events if e.reserved is not None]
        assert f["reserved_bytes"] == (max(held) if held and not host else None)
        if walk.peak_at >= 0:
            at = events[walk.peak_at]
            assert abs(int(f["peak_ns"] or 0) - at.time) <= 1
            assert f["fragmentation_bytes"] == (at.reserved - walk.peak if at.reserved is not None and not host else None)
        # AND every operator has its increases, counts and calls
        t = r.table("operators")
        columns = ["size_increase_bytes", "self_size_increase_bytes", "allocation_count", "self_allocation_count", "allocated_bytes"]
        numbers = t[[*columns, "self_allocated_bytes"]].to_numpy().tolist()
        assert {n: tuple(int(x) for x in row) for n, row in zip(t["name"], numbers, strict=True)} == operators(events)
        calls = {n: int(v) for n, v in zip(t["name"], t["calls"], strict=True) if n != OUTSIDE["operator"]}
        assert calls == {n: plain(path).count[n] for n in calls}
        # AND steps peak where they do, with what is allocated and freed in each
        if has(r, "per_step"):
            steps = r.table("per_step")
            expected = {str(n): walk.extremes(a, z)[1] for n, a, z in plain(path).steps}
            assert {str(n): int(v) for n, v in zip(steps["step"], steps["peak_bytes"], strict=True)} == expected
            inside = {str(n): [e.bytes for e in events if a <= e.time < z] for n, a, z in plain(path).steps}
            gains = {n: sum(b for b in sizes if b > 0) for n, sizes in inside.items()}
            losses = {n: -sum(b for b in sizes if b < 0) for n, sizes in inside.items()}
            assert {str(n): int(v) for n, v in zip(steps["step"], steps["allocated_bytes"], strict=True)} == gains
            assert {str(n): int(v) for n, v in zip(steps["step"], steps["freed_bytes"], strict=True)} == losses
        # AND single allocations are the largest, each with its own beginning, end and lifetime
        if walk.known:
            t = r.table("allocations")
            found = [(int(b), whole(a), whole(z), whole(life)) for b, a, z, life in
                     zip(t["bytes"], t["start_ns"], t["end_ns"], t["lifetime_ns"], strict=True)]  # fmt: skip
            time = [e.time for e in events]
            lives = Counter((x.bytes, None if x.begin is None else time[x.begin], None if x.end is None else time[x.end]) for x in walk.lives)
            assert sorted(b for b, *_ in found) == sorted(x.bytes for x in walk.lives)[-1000:]
            assert not Counter((b, a, z) for b, a, z, _ in found) - lives
            assert all(life == (z - a if a is not None and z is not None else None) for _, a, z, life in found)


@pytest.mark.real
def test_who_holds_memory_at_the_peak_and_at_three_other_times(path: Path) -> None:
    # GIVEN what is alive by a map of addresses, and the calls open around each allocation WHEN the page is asked
    c = opened(path)
    for _, label, events, walk in devices(path):
        if not walk.known:
            continue
        n = len(events)
        told = 0
        for at, groups in ((walk.peak_at, ("operator", "module", "frame", "phase", "category")), (n // 4, ("operator", "module")),
                           (n // 2, ("frame", "category")), (3 * n // 4, ("module", "phase"))):  # fmt: skip
            if at < 0:
                continue
            moment = {} if at == walk.peak_at else {"at": f"{events[at].time}ns"}
            at = walk.peak_at if not moment else walk.position(events[at].time)
            for by in groups:
                t = asked(c, "memory", device=label, source="events", by=by, **moment).table("peak")
                # THEN rows add up to what is in use, by category too
                assert int(t["bytes"].sum()) == walk.levels[at]
                rows = t[t["kind"] == "row"]
                if by == "category" or not len(rows) or len(rows) >= 500:
                    continue
                told += 1
                found = {name: (int(b), int(k)) for name, b, k in zip(rows["name"], rows["bytes"], rows["allocations"], strict=True)}
                assert found == walk.held_by(by, at), (label, by, at)
                assert int(t.loc[t["kind"] == "before", "bytes"].sum()) == walk.from_before(at)
        assert told or not any(x.begin is not None for x in walk.lives) or n < 20


# -- a snapshot, records and a trace of one worker ----------------------------------------------------------------

RUNS = [("before", "sim0_rank0"), ("after", "sim0_rank0"), ("before", "sim0_rank3")]


def worker(run: str, name: str) -> tuple[Path, Capture]:
    (file,) = (SAMPLES / "simulated_memory" / run).glob(f"{name}*.pt.trace.json.gz")
    every = sol.open(str(file.parent))
    return file, every.open(next(r for r in every.recordings if r.path.endswith(file.name)))


def records(run: str, name: str) -> list[dict[str, Any]]:
    import gzip
    import json

    (file,) = (SAMPLES / "simulated_memory" / run).glob(f"{name}_*.sol.jsonl.gz")
    return [x for x in map(json.loads, gzip.decompress(file.read_bytes()).splitlines()) if x.get("kind", x.get("k")) == "memory"]


@pytest.mark.parametrize("run", ["before", "after"])
def test_the_allocator_of_a_snapshot(run: str) -> None:
    # GIVEN the snapshot as plain dicts, and its history added up backwards from its blocks
    (file,) = (SAMPLES / "simulated_memory" / run).glob("sim0_rank0.pickle.gz")
    s = Snapshot(file)
    _, c = worker(run, "sim0_rank0")
    r = asked(c, "memory", source="snapshot")
    # WHEN its page is asked THEN curve, peak, reserved and failures are those
    assert (r.facts["peak_bytes"], r.facts["end_bytes"]) == (max(s.levels), s.levels[-1])
    assert (r.facts["reserved_bytes"], r.facts["before_bytes"]) == (max(s.held), s.levels[0])
    assert r.facts["failed_allocations"] == len(s.failures)
    # AND pools, what could be given back and the largest free block are sums of its blocks
    found = asked(c, "memory_findings", source="snapshot")
    pools = found.table("pools")
    sums = {n: int(pools[n].sum()) for n in ("reserved_bytes", "used_bytes", "awaiting_bytes", "free_bytes", "split_bytes", "rounding_bytes")}
    assert sums == {
        "reserved_bytes": s.reserved, "used_bytes": s.used, "awaiting_bytes": s.awaiting, "free_bytes": s.free, "split_bytes": s.split,
        "rounding_bytes": s.used - s.requested,
    }  # fmt: skip
    f = found.facts
    assert (f["largest_free_bytes"], f["returnable_bytes"], f["freeable_bytes"]) == (s.largest, s.whole, s.reserved - s.used - s.awaiting)
    if s.failures:
        assert (f["requested_bytes"], f["device_free_bytes"]) == (s.failures[-1]["size"], s.failures[-1]["device_free"])


@pytest.mark.parametrize(("run", "name"), RUNS)
def test_growth_and_headroom(run: str, name: str) -> None:
    # GIVEN the least that was in use in each iteration by the plain records WHEN a line goes through those that are not warm-up
    _, c = worker(run, name)
    every = [x for x in records(run, name) if x.get("since") != "phase"]
    r = asked(c, "memory_findings")
    steps = r.table("steps")
    least: dict[int, int] = {}
    for x in every:
        if x.get("iteration", -1) >= 0:
            least[x["iteration"]] = min(x["allocated"], least.get(x["iteration"], x["allocated"]))
    assert {int(n): int(v) for n, v in zip(steps["step"], steps["least_bytes"], strict=True)} == least
    cool = steps[steps["warm_up"] == ""]
    slope = np.polyfit(cool["step"].astype(float), cool["least_bytes"].astype(float), 1)[0]
    # THEN its slope is the growth, on every page that tells it
    assert r.facts["slope_bytes"] == pytest.approx(slope, abs=1)
    assert asked(c, "memory").facts["leak_bytes_per_step"] == pytest.approx(slope, abs=1)
    # AND what is left is the device less what lay beside the allocator at most, less what that held at most
    base = max(x["device_used"] - x["reserved"] for x in every)
    held = max(x["max_reserved"] for x in every)
    total = every[0]["total"]
    left = total - base - held
    f = r.facts
    assert (f["total_bytes"], f["base_bytes"], f["max_reserved_bytes"], f["left_bytes"]) == (total, base, held, left)
    assert asked(c, "memory").facts["headroom_bytes"] == left
    assert f["max_allocated_bytes"] == max(x["max_allocated"] for x in every)


@pytest.mark.parametrize("run", ["before", "after"])
def test_ranks_and_two_runs(run: str) -> None:
    # GIVEN every rank's trace, walked through, and its records WHEN ranks stand beside each other THEN each has its own numbers
    t = sol.open(str(SAMPLES / "simulated_memory" / run)).analyze("memory_ranks").table("ranks").set_index("worker")
    peaks: dict[int, list[int]] = {0: [], 1: []}
    for rank in range(4):
        (file,) = (SAMPLES / "simulated_memory" / run).glob(f"sim0_rank{rank}.*.pt.trace.json.gz")
        ((_, _, events, walk),) = devices(file)
        row = t.loc[f"sim0_rank{rank}"]
        every = [x for x in records(run, f"sim0_rank{rank}") if x.get("since") != "phase"]
        assert (int(row["peak"]), int(row["before"]), int(row["end"])) == (walk.peak, walk.before, walk.levels[-1])
        assert int(row["reserved"]) == max(int(e.reserved or 0) for e in events)
        assert int(row["reserved_at_peak"]) == events[walk.peak_at].reserved
        assert int(row["fragmentation"]) == int(row["reserved_at_peak"]) - walk.peak
        base = max(x["device_used"] - x["reserved"] for x in every)
        assert int(row["left"]) == every[0]["total"] - base - max(x["max_reserved"] for x in every)
        peaks[rank // 2].append(walk.peak)
    for rank in range(4):
        median = float(np.median(peaks[rank // 2]))
        assert float(t.loc[f"sim0_rank{rank}", "of_median"]) == pytest.approx(peaks[rank // 2][rank % 2] / median)


def test_two_runs_beside_each_other() -> None:
    # GIVEN two runs WHEN compared by each grouping THEN the difference of all rows is that of the peaks, and each row is its own difference
    here, there = (sol.open(str(SAMPLES / "simulated_memory" / run)) for run in ("after", "before"))
    files = [next((SAMPLES / "simulated_memory" / run).glob("sim0_rank0.*.pt.trace.json.gz")) for run in ("after", "before")]
    peaks = [devices(f)[0][3].peak for f in files]
    for by in ("category", "module", "operator", "frame", "phase"):
        r = here.analyze("memory_compare", other=there, by=by)
        assert isinstance(r, Report)
        assert sorted([r.facts["peak_a_bytes"], r.facts["peak_b_bytes"]]) == sorted(peaks)  # type: ignore[type-var]
        held = r.table("held")
        a, b = (held[n].fillna(0) for n in ("a", "b"))
        assert (int(a.sum()), int(b.sum())) == (r.facts["peak_a_bytes"], r.facts["peak_b_bytes"])
        assert (held["delta"] == b - a).all() or (held["delta"] == a - b).all()
        assert abs(int(held["delta"].sum())) == abs(peaks[0] - peaks[1])


@pytest.mark.parametrize(("run", "name"), RUNS)
def test_every_record_adds_up_to_what_the_device_used(run: str, name: str) -> None:
    # GIVEN the records of a program as they stand in the file WHEN the page of expected memory tells each by its parts
    every = [x for x in records(run, name) if x.get("since") != "phase"]
    r = sol.open(str(SAMPLES / "simulated_memory" / run)).analyze("memory_expected")
    assert isinstance(r, Report)
    t = r.table("records")
    own = t[t["worker"] == name].reset_index(drop=True)
    parts = [n for n in own.columns if n.endswith("_bytes") and n != "total_bytes"]
    assert "unknown_bytes" in parts
    # THEN each row adds up to what the device used then, and says what is unknown of it
    assert len(own) and own["unknown_bytes"].notna().all()
    assert (own[parts].fillna(0).sum(axis=1).astype("int64") == own["total_bytes"].astype("int64")).all()
    told = {(x["tag"], x.get("iteration", -1)): x for x in every}
    for row in own.to_dict("records"):
        x = told[row["tag"], -1 if pd.isna(row["iteration"]) else int(row["iteration"])]
        assert int(row["total_bytes"]) == x["device_used"]
        assert int(row["fragmentation_bytes"]) == x["reserved"] - x["allocated"]
        if "parts" in x:
            sums: Counter[str] = Counter()
            for category, *_, size in x["parts"]:
                sums[category] += size
            assert int(row["params_bytes"]) == sums["params"]
            assert int(row["master_weights_bytes"]) == sums["master_weights"]
            assert int(row["unknown_bytes"]) == x["allocated"] - sum(sums.values())


@pytest.mark.parametrize(("run", "name"), RUNS)
def test_sources_of_one_worker_say_the_same_of_one_moment(run: str, name: str) -> None:
    # GIVEN a worker whose memory a trace, records, and where there is one a snapshot tell WHEN each is asked what was in use at some moments
    file, c = worker(run, name)
    ((_, label, events, walk),) = devices(file)
    sources = [s for s in ("events", "snapshot", "recorder") if s != "snapshot" or name == "sim0_rank0"]
    curves = {s: asked(c, "memory", source=s).table("curve") for s in sources}
    first = max([int(curves[s]["time_ns"].min()) for s in sources if s != "recorder"])
    gaps = [i for i in range(len(events) - 1) if events[i].time > first and events[i + 1].time - events[i].time > 4000]
    assert len(gaps) > 100
    # THEN trace and snapshot say the same between any two changes
    for at in gaps[:: len(gaps) // 9]:
        moment = f"{events[at].time + 2000}ns"
        levels = {int(asked(c, "memory", source=s, device=label, at=moment).table("peak")["bytes"].sum()) for s in sources if s != "recorder"}
        assert levels == {walk.levels[at]}
    # AND the records that the program made in that time have the level of the trace
    own = curves["recorder"]
    inside = own[(own["time_ns"] > events[0].time) & (own["time_ns"] < events[-1].time)]
    assert len(inside) >= 3
    assert [int(v) for v in inside["allocated_bytes"]] == [walk.levels[walk.position(int(t))] for t in inside["time_ns"]]


@pytest.mark.real
def test_what_this_reader_reads(path: Path) -> None:
    # GIVEN a recording WHEN read here THEN it holds as many memory events as its plain text
    events = load(path)["traceEvents"]
    assert sum(len(e) for e in plain(path).by_device.values()) == sum(e.get("name") == "[memory]" for e in events) > 0


def test_failures_are_unknown_without_the_history_of_an_allocator() -> None:
    # GIVEN four ranks, of which only the first stored its allocator's history, with one failure in it WHEN asked THEN none is told of the others
    found = sol.open(str(SAMPLES / "simulated_memory" / "before")).analyze("memory_ranks")
    assert isinstance(found, Report) and found.facts["failures"] == 1
    told = found.table("ranks").set_index("worker")["failures"]
    assert [whole(told[f"sim0_rank{rank}"]) for rank in range(4)] == [1, None, None, None]
    for name, failed in (("sim0_rank0", 1), ("sim0_rank3", None)):
        assert asked(worker("before", name)[1], "memory").facts["failed_allocations"] == failed


def test_a_trace_opened_alone_tells_what_stands_beside_it() -> None:
    # GIVEN the trace of a worker by its own path, and the folder that holds it WHEN asked THEN records beside it are told of both the same
    (file,) = (SAMPLES / "simulated_memory" / "before").glob("sim0_rank0.*.pt.trace.json.gz")
    alone, of_all = (sol.open(str(p)).analyze("memory_expected") for p in (file, file.parent))
    assert isinstance(alone, Report) and isinstance(of_all, Report)
    rows = of_all.table("parts")
    own = rows[rows["worker"] == "sim0_rank0"]
    assert int(own["actual_bytes"].notna().sum()) >= 6
    assert alone.table("parts")["actual_bytes"].tolist()[:5] == own["actual_bytes"].tolist()[:5]
    # AND an analysis of one recording takes the trace of a folder first, which knows most
    by_folder = sol.open(str(file.parent)).analyze("memory")
    assert isinstance(by_folder, Report) and by_folder.facts == asked(opened(file), "memory").facts
