"""Records of memory: what the device and the allocator say, records before there is a tracker, records at intervals, peaks by phase."""

from __future__ import annotations

import gc
import gzip
import json
import mmap
import os
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tb_sol_plugin as sol  # noqa: E402
from tb_sol_plugin.capture import MemoryRecord, record_base_memory, record_memory  # noqa: E402
from tb_sol_plugin.capture.loop.guard import Clock  # noqa: E402
from tb_sol_plugin.capture.loop.labels import Labels  # noqa: E402
from tb_sol_plugin.capture.memory import records as memory_records  # noqa: E402
from tb_sol_plugin.capture.memory.records import MemoryTracking, OptimizerRef, PeakPhases, Peaks, weakly  # noqa: E402
from tests.support.packed_lines import records_in  # noqa: E402

MIB = 1 << 20
QUIET = {"tensorboard": False, "console": False, "wandb": False}


class Backend:
    """A device as `torch.cuda` shows it: 100 MiB, of which the allocator has 30 and uses 20, and 15 are used besides."""

    def __init__(self) -> None:
        self.now = [20 * MIB, 30 * MIB]
        self.most = [25 * MIB, 31 * MIB]
        self.resets = 0

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return 3

    def mem_get_info(self, device: int = 3) -> tuple[int, int]:
        return 100 * MIB - self.now[1] - 15 * MIB, 100 * MIB

    def memory_allocated(self, device: int = 3) -> int:
        return self.now[0]

    def memory_reserved(self, device: int = 3) -> int:
        return self.now[1]

    def max_memory_allocated(self, device: int = 3) -> int:
        return self.most[0]

    def max_memory_reserved(self, device: int = 3) -> int:
        return self.most[1]

    def reset_peak_memory_stats(self) -> None:
        self.resets += 1
        self.most = list(self.now)

    def use(self, size: int) -> None:
        """Allocate and free again."""
        self.most = [max(self.most[0], self.now[0] + size), max(self.most[1], self.now[1])]


@pytest.fixture(autouse=True)
def nobody_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record waits, and no tracker takes any."""
    state = memory_records._State()
    monkeypatch.setattr(memory_records, "_state", state)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Backend:
    backend = Backend()
    for module in (memory_records, __import__("tb_sol_plugin.capture.memory.records", fromlist=["x"])):
        monkeypatch.setattr(module, "backend_in_use", lambda: backend)
    return backend


def memory_in(folder: Path) -> list[dict[str, object]]:
    """The records of memory of the one file there, and a check that labels stand before their use."""
    (path,) = folder.glob("*.sol.jsonl")
    labels: dict[int, str] = {}
    out = []
    for record in records_in(path.read_bytes()):
        if record["kind"] == "label":
            labels[record["id"]] = record["name"]
        if record["kind"] == "memory":
            for row in record.get("parts", ()):
                assert row[2] in (-1, *labels)
                row[2] = labels.get(row[2], "")
            for row in record.get("phases", ()):
                row[0] = labels.get(row[0], "")
            out.append(record)
    return out


# --- One record ---


def test_on_the_host_a_record_says_what_the_process_has() -> None:
    # GIVEN no device WHEN memory is recorded THEN there is no allocator to ask, and all that it would say is unknown
    before = memory_records.resident()
    record = record_base_memory("start")
    assert (record.tag, record.device, record.rank) == ("start", None, 0)
    unknown = (record.total, record.device_used, record.allocated, record.reserved, record.max_allocated, record.context, record.others)
    assert unknown == (None,) * 7 and not record.problem
    # AND what the process has in memory is at least this library, and no more than a few times what it was a moment ago
    if before is not None:
        assert record.process_used is not None and 10 * MIB < record.process_used < 4 * before
        with mmap.mmap(-1, 64 * MIB) as fresh:  # pages of its own: an array might lie in memory that was free in the process
            fresh[:: mmap.PAGESIZE] = b"\1" * (len(fresh) // mmap.PAGESIZE)
            assert memory_records.resident() - record.process_used > 32 * MIB


def test_a_base_record_has_the_memory_of_the_device(device: Backend) -> None:
    # GIVEN 30 MiB reserved and 15 besides THEN 45 are used, 15 of them context, and the driver was not there to ask
    record = record_base_memory("start")
    assert (record.device, record.total, record.device_used) == (3, 100 * MIB, 45 * MIB)
    assert (record.allocated, record.reserved, record.max_allocated, record.max_reserved) == (20 * MIB, 30 * MIB, 25 * MIB, 31 * MIB)
    assert (record.context, record.process_used, record.others, record.since) == (15 * MIB, None, None, "process")


@pytest.mark.parametrize(("said", "expected"), [(40 * MIB, 40 * MIB), (29 * MIB, None), (None, None)])
def test_the_drivers_word_counts_where_it_can_be_true(device: Backend, monkeypatch: pytest.MonkeyPatch, said, expected) -> None:
    # GIVEN a driver that says what this process uses; less than its allocator has is said of another process
    monkeypatch.setattr(memory_records, "_of_driver", lambda backend, index: said)
    record = record_base_memory("x")
    assert record.process_used == expected and record.others == (None if expected is None else 5 * MIB)


def test_a_device_that_fails_leaves_things_unknown(device: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_):
        raise RuntimeError("out of order")

    # GIVEN a device that does not tell what is free THEN the rest is there
    monkeypatch.setattr(device, "mem_get_info", broken)
    record = record_base_memory("x")
    assert (record.total, record.device_used, record.allocated) == (None, None, 20 * MIB)
    # AND one that tells nothing gives a record that says so
    monkeypatch.setattr(device, "current_device", broken)
    assert record_base_memory("x").problem == "RuntimeError: out of order"


def test_no_device_is_initialized_for_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend()
    monkeypatch.setattr(torch, "cuda", backend)
    monkeypatch.setattr(backend, "is_initialized", lambda: False)
    assert record_base_memory("x").device is None
    monkeypatch.setattr(backend, "is_initialized", lambda: True)
    assert record_base_memory("x").device == 3


def test_master_weights_and_main_gradients_have_the_fields_of_megatron() -> None:
    # GIVEN 1 MiB of BF16 parameters, 2 MiB of FP32 masters and as much of main gradients
    model = nn.Linear(1024, 512, bias=False).bfloat16()
    (one,) = model.parameters()
    one.main_grad = torch.zeros(512, 1024)
    optimizer = torch.optim.SGD([one.detach().float()], lr=0.1)
    record = record_memory("x", model, optimizer)
    assert record.Actual_Captured_Master_Weight_MB == 2.0 == record.Actual_Captured_Main_Grad_Mem_MB
    assert record.Actual_Captured_Master_Weight_bytes == 2 * MIB == record.Actual_Captured_Main_Grad_Mem_bytes
    # AND without an optimizer the masters are unknown
    assert record_memory("x", model).Actual_Captured_Master_Weight_MB is None
    assert record_base_memory("x").Actual_Captured_Main_Grad_Mem_MB is None


def test_whatever_is_passed_nothing_is_raised() -> None:
    class Nasty:
        def __str__(self) -> str:
            raise RuntimeError("no name")

        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

    for thing in (None, 3, "x" * 1000, Nasty(), [Nasty()], {"a": Nasty()}):
        assert isinstance(record_memory(thing, thing, thing), MemoryRecord)
    assert len(record_base_memory("x" * 1000).tag) == 200


# --- Before, within and after a tracked run ---


def test_records_from_before_the_tracker_are_in_its_file(tmp_path: Path) -> None:
    # GIVEN two records before there is a tracker WHEN one runs
    record_base_memory("start")
    model = nn.Linear(10, 5)
    record_memory("model", model)
    with sol.capture(str(tmp_path), model=model, **QUIET) as tracker:
        tracker.step()
    # THEN they stand in its file, before its time 0 and in order, with the modules by their labels
    first, second = memory_in(tmp_path)
    assert (first["tag"], second["tag"], first["device"]) == ("start", "model", -1)
    assert first["time_ns"] < second["time_ns"] < 0 and "iteration" not in first
    assert ["params", "fp32", "Linear", -1, 2, 220, 220] in second["parts"] and ["buffers", "", "", -1, 0, 0, 0] in second["parts"]
    assert {row[0] for row in second["parts"]} == {"params", "buffers", "grads"}
    # AND they went to one file only
    with sol.capture(str(tmp_path / "other"), model=model, **QUIET) as tracker:
        tracker.step()
    assert memory_in(tmp_path / "other") == []


def test_a_tracker_without_a_file_leaves_them_for_one_with(tmp_path: Path) -> None:
    record_base_memory("start")
    with sol.capture(None, **QUIET) as tracker:
        tracker.step()
    with sol.capture(str(tmp_path), **QUIET) as tracker:
        tracker.step()
    assert [r["tag"] for r in memory_in(tmp_path)] == ["start"]


def test_records_while_a_tracker_runs(tmp_path: Path) -> None:
    # GIVEN a tracked loop with records in the middle of iterations, by either way, and one after the end
    model = nn.Linear(10, 5)
    optimizer = torch.optim.Adam(model.parameters())
    with sol.capture(str(tmp_path), model=model, every_n_steps=0, **QUIET) as tracker:
        for k in range(6):
            model(torch.ones(2, 10)).sum().backward()
            if k == 2:
                record_memory("gradients", optimizer=optimizer)
            optimizer.step()
            if k == 4:
                assert tracker.record_memory("moments").bytes_of("exp_avg") == 220  # the optimizer is that of the call before
            tracker.step()
    assert tracker.record_base_memory("late").device is None
    # THEN they are in the file with their iterations, times in order, and every iteration is there
    records = memory_in(tmp_path)
    assert [(r["tag"], r["iteration"]) for r in records] == [("gradients", 2), ("moments", 4)]
    assert 0 < records[0]["time_ns"] < records[1]["time_ns"]
    assert ["exp_avg", "fp32", "Linear", -1, 2, 220, 220] in records[1]["parts"]
    assert records[1]["Actual_Captured_Master_Weight_bytes"] == 0 and records[1]["Actual_Captured_Main_Grad_Mem_MB"] == 0.0
    (path,) = tmp_path.glob("*.sol.jsonl")
    steps = [r for r in records_in(path.read_bytes()) if r["kind"] == "step"]
    assert [s["iteration"] for s in steps] == [0, 1, 2, 3, 4, 5]
    # AND the work of a record is the recorder's own
    assert steps[2]["overhead_ns"] > steps[3]["overhead_ns"] and steps[2]["start_ns"] < records[0]["time_ns"]


def test_a_record_that_is_long_in_the_making_stands_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a machine that leaves the recorder waiting before it looks at the memory, the first time
    late, now = [0.05, 0.0], memory_records.moment

    def waited(*arguments: object) -> MemoryRecord:
        time.sleep(late.pop(0))
        return now(*arguments)  # type: ignore[arg-type]

    with sol.capture(str(tmp_path), every_n_steps=0, **QUIET) as tracker:
        tracker.step()
        monkeypatch.setattr(memory_records, "moment", waited)
        # WHEN two records are made one after the other THEN so their times are: the recorder's clock stands still for all of its work
        tracker.record_memory("first")
        tracker.record_memory("second")
    first, second = memory_in(tmp_path)
    assert first["time_ns"] < second["time_ns"]


def test_a_tracker_that_has_not_begun_keeps_them_for_its_file(tmp_path: Path) -> None:
    tracker = sol.capture.SOLTracker(logdir=str(tmp_path), **QUIET)
    tracker.record_base_memory("early")
    tracker.initialize(None)
    tracker.step()
    tracker.close()
    assert [r["tag"] for r in memory_in(tmp_path)] == ["early"]


def test_records_at_intervals(tmp_path: Path) -> None:
    # GIVEN reports every 6 iterations and memory every 4, in 14 iterations
    model = nn.Linear(10, 5)
    optimizer = torch.optim.Adam(model.parameters())
    options = {"every_n_steps": 0, "report_interval": 6, "memory": True, "memory_every": 4, "optimizer": optimizer}
    with sol.capture(str(tmp_path), model=model, **options, **QUIET) as tracker:
        for _ in range(14):
            model(torch.ones(2, 10)).sum().backward()
            optimizer.step()
            tracker.step()
    # THEN there are records at both, and the walk is made at reports only
    records = memory_in(tmp_path)
    between = [(0, True), (4, False), (6, True), (8, False), (12, True)]
    assert [(r["iteration"], "parts" in r) for r in records[1:-1]] == between and {r["tag"] for r in records[1:-1]} == {"iteration"}
    assert all(r["since"] == "process" for r in records)
    # AND one before the first and one after the last iteration, which has not been looked at
    assert [(r["tag"], r["iteration"], "parts" in r) for r in (records[0], records[-1])] == [("run start", 0, False), ("run end", 13, True)]
    # AND without being asked for there is none
    with sol.capture(str(tmp_path / "plain"), model=model, every_n_steps=0, report_interval=6, **QUIET) as tracker:
        for _ in range(14):
            tracker.step()
    assert memory_in(tmp_path / "plain") == []


def test_records_stand_at_the_ends_of_their_iterations(tmp_path: Path) -> None:
    # GIVEN a run whose iterations are counted and traced in between, which takes the recorder much longer than the iterations
    model = nn.Linear(10, 5)
    options = {"every_n_steps": 2, "memory": True, "memory_every": 1, "profile": True, "traces": 1}
    with sol.capture(str(tmp_path), model=model, **options, **QUIET) as tracker:
        for _ in range(6):
            model(torch.ones(2, 10)).sum().backward()
            tracker.step()
    # THEN the times of the records are those at which the iterations end, on the clock that leaves out the recorder's own work
    (path,) = tmp_path.glob("*.sol.jsonl")
    ends = {r["iteration"]: r["start_ns"] + r["duration_ns"] for r in records_in(path.read_bytes()) if r["kind"] == "step"}
    made = [r for r in memory_in(tmp_path) if r["tag"] == "iteration"]
    assert {r["iteration"]: r["time_ns"] for r in made} == ends and len(ends) == 6
    # AND the trace holds memory events
    (trace,) = tmp_path.glob("*.pt.trace.json.gz")
    assert b'"[memory]"' in gzip.decompress(trace.read_bytes())


def test_iterations_between_records_take_the_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN memory every 5 iterations WHEN 21 have ended THEN no more than two of five went the long way
    with sol.capture(str(tmp_path), every_n_steps=0, report_interval=100, memory_every=5, **QUIET) as tracker:
        long: list[int] = []
        finish = tracker.output.finish
        monkeypatch.setattr(tracker.output, "finish", lambda done: (long.append(done.step.iteration), finish(done))[1])
        for _ in range(21):
            tracker.step()
    assert [r["iteration"] for r in memory_in(tmp_path)] == [0, 0, 5, 10, 15, 20, 20]
    assert set(long) <= {n + k for n in (0, 5, 10, 15, 20) for k in (0, 1)}


def test_a_run_of_one_iteration_has_a_record_at_its_start_and_its_end(tmp_path: Path) -> None:
    # GIVEN a run that is over after its first iteration, which is reported WHEN it is read THEN its end is said once
    model = nn.Linear(10, 5)
    with sol.capture(str(tmp_path), model=model, memory=True, first_iteration=7, **QUIET) as tracker:
        model(torch.ones(2, 10))
        tracker.step()
    assert [(r["tag"], r["iteration"]) for r in memory_in(tmp_path)] == [("run start", 7), ("iteration", 7)]


def test_the_tracker_keeps_no_optimizer_alive(tmp_path: Path) -> None:
    model = nn.Linear(10, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sol.capture(str(tmp_path), model=model, memory=True, optimizer=[optimizer], **QUIET) as tracker:
        tracker.record_memory("x", model, {"a": optimizer})
        watched = weakref.ref(optimizer)
        del optimizer
        gc.collect()
        assert watched() is None
        # AND without it the walk goes on, and masters are unknown
        assert tracker.record_memory("y").bytes_of("master_weights") is None
    assert weakly(3)() is None and weakly([model])() == [model]


def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    record_base_memory("before")
    with sol.capture(str(tmp_path), **QUIET) as tracker:
        tracker.step()
        child = os.fork()
        if child == 0:
            try:
                record_base_memory("child")
                tracker.record_base_memory("child")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    assert [r["tag"] for r in memory_in(tmp_path)] == ["before"]


def test_a_file_goes_on_in_the_next_part_with_its_labels(tmp_path: Path) -> None:
    # GIVEN a file that is full WHEN memory is recorded THEN the next part has the labels of its modules
    from tb_sol_plugin.capture.report.writer import CaptureWriter

    labels = Labels()
    writer = CaptureWriter(str(tmp_path), {"rank": 0}, cap_bytes=600)
    for k in range(6):
        label = labels.id_of("module", -1, f"layer{k}", "Linear")
        writer.memory({"kind": "memory", "time_ns": k, "parts": [["params", "fp32", label, -1, 1, 4, 4]]}, labels)
    writer.close(0)
    files = sorted(tmp_path.glob("*.sol.jsonl"), key=lambda p: (len(p.name), p.name))
    assert len(files) > 1
    met = 0
    for path in files:
        known = set()
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "label":
                known.add(record["id"])
            if record["kind"] == "memory":
                met += 1
                assert record["parts"][0][2] in known
    assert met == 6


# --- Peaks by phase ---


def test_peaks_by_phase(device: Backend, tmp_path: Path) -> None:
    # GIVEN a loop whose forward takes 40 MiB beyond the 20 that are there, of which the loss inside 10, and backward 60, with records of
    # every second iteration
    options = {"every_n_steps": 0, "memory_every": 2, "memory_peaks": True}
    with sol.capture(str(tmp_path), **options, **QUIET) as tracker:
        for _ in range(4):
            with tracker.phase("forward"):
                device.use(40 * MIB)
                with tracker.phase("loss"):
                    device.use(10 * MIB)
                device.use(5 * MIB)
            device.use(1 * MIB)
            tracker.push_phase("backward")
            device.use(60 * MIB)
            tracker.pop_phase()
            tracker.step()
        assert tracker.record_base_memory("now").since == "reset"
    # THEN iteration 2 has them by phase: each what was reached while it was the innermost one (the first began without peaks)
    second = next(r for r in memory_in(tmp_path) if r.get("iteration") == 2)
    assert second["since"] == "iteration" and second["max_allocated"] == 80 * MIB and second["max_reserved"] == 30 * MIB
    assert {name: size // MIB for name, size, _ in second["phases"]} == {"": 21, "forward": 60, "loss": 30, "backward": 80}
    # AND the peaks of torch were reset at its start, at each of 6 changes and its end, and at the start of iteration 4
    assert device.resets == 8 + 1


def test_peaks_are_those_of_the_thread_of_the_step(device: Backend) -> None:
    labels, clock = Labels(), Clock()
    phases = PeakPhases(labels, clock, Peaks())
    phases.peaks.begin()
    with phases.phase("forward"):
        device.use(7 * MIB)
        import threading

        def elsewhere() -> None:
            with phases.phase("other"):
                device.use(50 * MIB)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    found = phases.peaks.end(-1)
    assert {labels.known[k].name if k >= 0 else "": v[0] // MIB for k, v in found.items()} == {"": 20, "forward": 70}
    assert not phases.peaks.on


def test_intervals_leave_the_rest_alone() -> None:
    output = SimpleNamespace(places=SimpleNamespace(logdir=None))
    for peaks in (None, Peaks()):
        tracking = MemoryTracking(Labels(), Clock(), output, OptimizerRef(), on=False, every=4, peaks=peaks)
        # GIVEN memory every 4 iterations THEN from 5 on three more may go by, one fewer where the next must begin with peaks
        assert [tracking.due(k, 100) for k in range(6)] == [True, False, False, False, True, False]
        assert [tracking.quiet(k, 100) for k in (0, 4, 5, 7)] == [0, 0, 3 - (peaks is not None), 1 - (peaks is not None)]
    assert not MemoryTracking(Labels(), Clock(), output, OptimizerRef(), on=False, every=None, peaks=None).on
