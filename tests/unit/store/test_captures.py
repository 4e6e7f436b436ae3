"""SOL captures in a logdir: listed by name and by content, parts as one, growing, and joined with the trace of the same worker."""

from __future__ import annotations

import gzip
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import BadInput, StillLoading
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.store import names
from tb_sol_plugin.store.files import stat_parts
from tb_sol_plugin.store.join import companion, sol_logs_of
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.scan import Heads, Listing, scan
from tb_sol_plugin.store.store import Store
from tests.support.sol_builder import WALL_NS, SolBuilder, small
from tests.support.trace_builder import TraceBuilder

NAME = f"node1_rank0_4242_{WALL_NS}.sol.jsonl"


def look(folder: Path) -> Listing:
    return scan(single(str(folder)), StoreOptions(), Heads({}))


def recordings(folder: Path) -> list[tuple[str, str, str]]:
    return [(r.worker, r.span, r.kind) for found in look(folder).runs.values() for r in found]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "logs" / "run").mkdir(parents=True)
    with ThreadPoolExecutor(1) as pool:
        made = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "cache"), fresh_seconds=0.0), executor=pool)
        yield made
        made.close()


def open_soon(store: Store, recording: Recording) -> Capture:
    """The capture as a page gets it: asked for until it is there."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            return store.capture(recording, 1.0)
        except StillLoading:
            continue
    raise AssertionError("not read in time")


def trace(path: Path, *, number: int = 2, at_ns: int = 10**9, rank: int | None = None, world_size: int = 1) -> Path:
    """A trace of one step that began `at_ns` after the SOL captures of `SolBuilder`."""
    t = TraceBuilder(base_ns=WALL_NS, origin_ns=at_ns, rank=rank, world_size=world_size)
    t.step(number, 0, 8_000_000)
    t.op("aten::mm", 1_000, 2_000, shapes=[[8, 4], [4, 2]], types=["float", "float"])
    t.launch("gemm_kernel", at=1_500, start=3_000, duration=4_000, stream=7)
    return t.write(path)


# -- listing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "worker", "span"),
    [
        (NAME, "node1_rank0", str(WALL_NS)),
        ("a_b-c.d_rank12_7_99.sol.jsonl.gz", "a_b-c.d_rank12", "99"),
        ("a_rank1_7_99.part3.sol.jsonl", "a_rank1", "99"),
        ("renamed.sol.jsonl", "renamed", "default"),
        ("renamed.part2.sol.jsonl.gz", "renamed", "default"),
        ("lines.jsonl", "lines", "default"),
    ],
)
def test_file_names_of_sol_logs_give_worker_and_span(file: str, worker: str, span: str) -> None:
    assert names.worker_and_span(file) == (worker, span)
    assert names.kind_of(file) == ("" if file == "lines.jsonl" else "sol_capture")


def test_captures_are_found_by_name_and_by_content(tmp_path: Path) -> None:
    # GIVEN a capture, one packed, one under another ending, an empty one, and lines of another program
    small().write(tmp_path / "run" / NAME)
    small(rank=1).write(tmp_path / "run" / f"node1_rank1_4242_{WALL_NS}.sol.jsonl.gz")
    (tmp_path / "run" / "copied.jsonl").write_bytes(b"".join(small().lines()))
    (tmp_path / "run" / "copied2.json").write_bytes(b"".join(small().lines()))
    (tmp_path / "run" / "new.sol.jsonl").write_bytes(b"")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"loss": 1}\n{"loss": 2}\n')
    # WHEN the folder is scanned, THEN each is listed as what it is, and foreign lines are no rejected recording
    listing = look(tmp_path)
    assert [(r.worker, r.kind) for r in listing.runs["run"]] == [
        ("copied", "sol_capture"), ("copied2", "sol_capture"), ("new", "sol_capture"), ("node1_rank0", "sol_capture"),
        ("node1_rank1", "sol_capture"),
    ]  # fmt: skip
    assert listing.rejected == () and listing.unrelated == 1


def test_parts_are_one_recording_and_a_restart_is_another_span(tmp_path: Path) -> None:
    # GIVEN three parts of one recording, a restart of the same rank, and a part whose beginning was deleted
    stem = NAME.removesuffix(".sol.jsonl")
    whole = small()
    for part in ("", ".part1", ".part2"):
        whole.write(tmp_path / f"{stem}{part}.sol.jsonl")
    small(pid=5).write(tmp_path / f"node1_rank0_5_{WALL_NS + 5}.sol.jsonl")
    small().write(tmp_path / "other_rank3_1_7.part4.sol.jsonl")
    # THEN parts that follow each other are one, of their size in sum
    assert recordings(tmp_path) == [
        ("node1_rank0", str(WALL_NS), "sol_capture"), ("node1_rank0", str(WALL_NS + 5), "sol_capture"), ("other_rank3", "7", "sol_capture"),
    ]  # fmt: skip
    found = next(iter(look(tmp_path).runs.values()))[0]
    size = (tmp_path / NAME).stat().st_size
    assert found.size == 3 * size and (found.size, found.mtime) == stat_parts(found.path, {})
    # AND it is read as one: every part defines its own labels, which are the same
    c = sol.open_capture(str(tmp_path / NAME))
    assert len(c.tables["iterations"]) == 9 and len(c.tables["labels"]) == 6 and c.facts.size == 3 * size


def test_a_growing_capture_is_read_again_when_it_grew(store: Store, tmp_path: Path) -> None:
    # GIVEN a recording of one iteration that is listed and read
    b = small()
    path = tmp_path / "logs" / "run" / NAME
    text = b.lines()
    path.write_bytes(b"".join(text[:17]))
    store.rescan()
    first = open_soon(store, store.recording("run"))
    assert first.tables["iterations"]["number"].tolist() == [0]
    # WHEN its recorder has written more
    with path.open("ab") as stream:
        stream.write(b"".join(text[17:]))
    store.rescan()
    # THEN the next look has it, without an error or a warning
    second = open_soon(store, store.recording("run"))
    assert second.tables["iterations"]["number"].tolist() == [0, 1, 2] and not second.facts.warnings
    assert store.active()


def test_while_a_grown_capture_is_read_the_older_one_is_shown(store: Store, tmp_path: Path) -> None:
    # GIVEN a capture of one iteration that is open, whose file has grown since
    path = tmp_path / "logs" / "run" / NAME
    text = small().lines()
    path.write_bytes(b"".join(text[:17]))
    store.rescan()
    older = open_soon(store, store.recording("run"))
    path.write_bytes(b"".join(text))
    store.rescan()
    # WHEN a page asks and does not wait, THEN it gets what there was, and the new one a moment later
    assert store.capture(store.recording("run"), 0.0) is older
    end = time.monotonic() + 120
    while len(store.capture(store.recording("run"), 0.2).tables["iterations"]) != 3:
        assert time.monotonic() < end


# -- joining --------------------------------------------------------------------------------------------------------


def named(worker: str, span: str = "1", kind: str = "kineto", file: str = "") -> Recording:
    return Recording("r", worker, span, f"/x/{file or worker}", file or worker, 1, 1.0, kind)


def test_the_sol_log_of_a_trace_is_found_by_name_process_or_rank() -> None:
    same, zero, three = (named(w, str(WALL_NS), "sol_capture", f"{w}_77_{WALL_NS}.sol.jsonl") for w in ("w", "h_rank0", "h_rank3"))
    # by the worker's name
    assert sol_logs_of(named("w"), [same, zero, three, named("w")]) == [same]
    # by host and process, as torch's own handler names workers
    assert sol_logs_of(named("h_77"), [zero]) == [zero]
    # by rank: in the name, or in the header
    assert sol_logs_of(named("job-rank_3"), [zero, three]) == [three]
    assert sol_logs_of(named("host_4711"), [zero, three], rank=0) == [zero]
    # where there is one of each; not where there are more
    assert sol_logs_of(named("host_4711"), [three, named("host_4711")]) == [three]
    assert sol_logs_of(named("a_1"), [three, named("a_1"), named("b_2")]) == []
    assert sol_logs_of(named("host_4711"), [zero, three]) == []
    # never a capture with a capture
    assert sol_logs_of(zero, [zero, three]) == []


def test_a_trace_and_its_sol_log_are_companions() -> None:
    # GIVEN two starts of one worker, and a trace of the second
    first, second = (named("w_rank0", str(WALL_NS + d), "sol_capture") for d in (0, 1000))
    late = named("w_rank0", str(WALL_NS + 2000))
    every = [first, second, late]
    assert companion(late, every) == second and companion(second, every) == late and companion(first, every) is None
    assert companion(late, [late]) is None


def test_a_trace_has_the_ledger_of_its_worker(store: Store, tmp_path: Path) -> None:
    # GIVEN a trace of iteration 2, a second after a capture of the same worker began, and captures of another
    run = tmp_path / "logs" / "run"
    small().write(run / NAME)
    small(rank=1).write(run / NAME.replace("rank0", "rank1"))
    trace(run / f"node1_rank0.{WALL_NS + 10**9}.pt.trace.json.gz")
    # WHEN a page opens it
    store.rescan()
    recording = next(r for r in store.recordings("run") if r.kind == "kineto")
    c = open_soon(store, recording)
    # THEN it stays a trace and knows the work, the iterations and the labels, on its own clock, which goes on while the recorder works
    assert c.facts.source == "kineto" and c.facts.metadata["sol_capture"] == f"run/{NAME}"
    assert len(c.tables["ledger"]) == 6 and c.tables["iterations"]["start_ns"].tolist() == [
        -(10**9),
        -(10**9) + 12 * 10**6,
        -(10**9) + 21 * 10**6,
    ]
    assert c.tables["label_times"]["start_ns"].iloc[0] == 10**6 - 10**9
    assert (c.tables["ledger"][["step", "module_host", "phase_host"]] == -1).all(axis=None), "its rows are none of the trace's"
    assert len(c.device) == 1 and c.missing("iterations") is None
    # AND asking again gives the very same, with what was derived from it
    assert store.capture(recording) is c
    beside = store.companion(recording)
    assert beside is not None and beside.worker == "node1_rank0" and store.companion(beside) == recording


def test_a_cpu_trace_has_the_device_limits_of_its_sol_log(tmp_path: Path) -> None:
    # GIVEN a trace made on a CPU, which has no limits of its own, beside a capture that was given some
    limits = {"peak_flops": {"fp32": 4e11}, "peak_flops_vector": {"fp32": 4e11}, "memory_bandwidth_bytes_per_sec": 3e10}
    small(device={"type": "cpu", "name": "a CPU", "key": "mine", "limits": limits, "provenance": {}}).write(tmp_path / NAME)
    t = TraceBuilder(device="", base_ns=WALL_NS, origin_ns=10**9)
    t.step(2, 0, 1000)
    t.op("aten::mm", 10, 20, shapes=[[8, 4], [4, 2]], types=["float", "float"])
    path = t.write(tmp_path / "node1_rank0.1.pt.trace.json")
    # THEN it is measured against those, and they are named as such
    c = sol.open_capture(str(path))
    spec = device_for(c)
    assert c.facts.source == "kineto" and spec is not None and (spec.key, spec.source, spec.matrix) == ("mine", "capture", {"fp32": 4e11})
    # AND without the capture there are none
    (tmp_path / NAME).unlink()
    assert device_for(sol.open_capture(str(path))) is None


def test_a_ledger_that_grows_is_attached_anew(store: Store, tmp_path: Path) -> None:
    # GIVEN a trace opened beside a capture of one iteration
    run = tmp_path / "logs" / "run"
    text = small().lines()
    (run / NAME).write_bytes(b"".join(text[:17]))
    trace(run / "node1_rank0.1.pt.trace.json")
    store.rescan()
    recording = next(r for r in store.recordings("run") if r.kind == "kineto")
    assert len(open_soon(store, recording).tables["iterations"]) == 1
    # WHEN the capture grew
    (run / NAME).write_bytes(b"".join(text))
    store.rescan()
    # THEN the trace is shown at once with what there was, and soon with what there is
    shown = store.capture(recording)
    assert len(shown.tables["iterations"]) in (1, 3)
    end = time.monotonic() + 120
    while len(store.capture(recording, 0.2).tables["iterations"]) != 3:
        assert time.monotonic() < end
    # AND without the capture it is the trace alone
    (run / NAME).unlink()
    store.rescan()
    alone = store.capture(recording)
    assert alone.tables["ledger"].empty and "sol_capture" not in alone.facts.metadata


def test_a_trace_is_not_joined_anew_with_every_iteration_that_is_written(store: Store, tmp_path: Path) -> None:
    # GIVEN a trace opened beside a capture that is being written
    run = tmp_path / "logs" / "run"
    text = small().lines()
    (run / NAME).write_bytes(b"".join(text[:17]))
    trace(run / "node1_rank0.1.pt.trace.json")
    store.rescan()
    recording = next(r for r in store.recordings("run") if r.kind == "kineto")
    first = open_soon(store, recording)
    # WHEN the capture has grown by the next listing, THEN the trace stays as it is, with what was derived from it
    (run / NAME).write_bytes(b"".join(text))
    end = time.monotonic() + 120
    while next(r for r in store.listing()[1].runs["run"] if r.kind != "kineto").size != (run / NAME).stat().st_size:
        assert time.monotonic() < end
    assert store.capture(recording, 1.0) is first
    # WHEN the reader asks for a new look, THEN it has all
    store.rescan()
    while len(store.capture(recording, 0.2).tables["iterations"]) != 3:
        assert time.monotonic() < end


def test_a_broken_capture_does_not_hide_the_trace(store: Store, tmp_path: Path) -> None:
    # GIVEN a trace beside a capture of a version from the future
    run = tmp_path / "logs" / "run"
    small(version=[7, 0]).write(run / NAME)
    trace(run / "node1_rank0.1.pt.trace.json")
    store.rescan()
    recording = next(r for r in store.recordings("run") if r.kind == "kineto")
    # WHEN it is opened, THEN it opens, and says why it stands alone
    c = open_soon(store, recording)
    assert len(c.device) == 1 and c.tables["ledger"].empty
    assert [w for w in c.facts.warnings if "SOL log of this trace cannot be read" in w and "format 7.0" in w]
    assert store.capture(recording) is c
    # WHEN the file is put right, THEN the warning goes
    small().write(run / NAME)
    store.rescan()
    mended = open_soon(store, recording)
    assert len(mended.tables["ledger"]) == 6 and not mended.facts.warnings


def test_of_several_captures_the_one_that_ran_then_is_taken(tmp_path: Path) -> None:
    # GIVEN three starts of one worker an hour apart, and a trace from the time of the second
    hour = 3600 * 10**9
    for start, count in ((0, 1), (hour, 2), (2 * hour, 3)):
        b = SolBuilder(wall_ns=WALL_NS + start, start_ns=WALL_NS + start)
        for number in range(count):
            b.iteration(number, number * 10**6, 10**6)
        b.write(tmp_path)
    trace(tmp_path / "node1_rank0.5.pt.trace.json", number=0, at_ns=hour + 2 * 10**6)
    # THEN the run opened in this process has that one
    run = sol.open(str(tmp_path))
    joined = next(c for c in run.captures if c.facts.source == "kineto")
    assert len(joined.tables["iterations"]) == 2 and joined.facts.metadata["sol_capture"].endswith(f"{WALL_NS + hour}.sol.jsonl")


def test_of_renamed_captures_the_one_with_the_steps_of_the_trace_is_taken(tmp_path: Path) -> None:
    # GIVEN two captures without a time in their names, and a trace without a base time, of step 8
    for rank, numbers in ((0, (7, 8, 9)), (1, (1, 2, 3))):
        b = SolBuilder()
        for number in numbers:
            b.iteration(number, number * 1000, 900)
        b.write(tmp_path / f"w{rank}_rank0.sol.jsonl")
    t = TraceBuilder(base_ns=None, origin_ns=0)
    t.step(8, 0, 1000)
    t.write(tmp_path / "rank0.pt.trace.json")
    joined = next(c for c in sol.open(str(tmp_path)).captures if c.facts.source == "kineto")
    assert joined.tables["iterations"]["number"].tolist() == [7, 8, 9]


def test_a_trace_opened_alone_finds_the_sol_log_in_its_folder(tmp_path: Path) -> None:
    small().write(tmp_path / NAME)
    path = trace(tmp_path / "node1_rank0.1.pt.trace.json")
    assert len(sol.open_capture(str(path)).tables["ledger"]) == 6
    assert sol.open_capture(str(tmp_path / NAME)).facts.source == "sol_capture"


def test_a_capture_from_elsewhere_opens_through_fsspec(tmp_path: Path) -> None:
    # GIVEN two parts behind an address, packed
    import fsspec

    stem = NAME.removesuffix(".sol.jsonl")
    memory = fsspec.filesystem("memory")
    text = gzip.compress(b"".join(small().lines()))
    for part in ("", ".part1"):
        memory.pipe(f"/sol/run/{stem}{part}.sol.jsonl.gz", text)
    try:
        c = sol.open("memory://sol").captures[0]
        assert len(c.tables["iterations"]) == 6 and c.worker == "node1_rank0" and c.facts.size == 2 * len(text)
    finally:
        memory.rm("/sol", recursive=True)


def test_a_removed_sol_log_is_an_error(tmp_path: Path) -> None:
    small().write(tmp_path / "run" / NAME)
    run = sol.open(str(tmp_path))
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(BadInput, match="not there any more"):
        run.captures  # noqa: B018
