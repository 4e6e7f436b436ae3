"""Scalars of every iteration, and the event file that is written without TensorBoard, against TensorBoard's own code."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.capture.loop.guard import Guard
from tb_sol_plugin.capture.loop.labels import NONE, Labels
from tb_sol_plugin.capture.loop.schedule import StepRecord
from tb_sol_plugin.capture.report import events, scalars
from tb_sol_plugin.capture.report.analysis import analyze, carry
from tb_sol_plugin.capture.report.analysis import scalars as work_scalars
from tb_sol_plugin.capture.report.scalars import Alike, Entry, Plain, ScalarLog, of_iteration, row_of
from tests.support.sol_step import device, gpu, op, records, step


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


# -- the file ----------------------------------------------------------------------------------------------------------


def test_checksums_are_those_of_the_standard() -> None:
    # GIVEN the check value of CRC-32C and 32 zeros of RFC 3720, B.4
    assert events.crc32c(b"123456789") == 0xE3069283 and events.crc32c(bytes(32)) == 0x8A9136AA


@settings(max_examples=30)
@given(st.binary(max_size=80))
def test_masked_checksums_are_those_of_tensorboard(data: bytes) -> None:
    theirs = pytest.importorskip("tensorboard.compat.tensorflow_stub.pywrap_tensorflow")
    assert events.masked(events.crc32c(data)) == theirs.masked_crc32c(data).to_bytes(4, "little")


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.text(max_size=12), min_size=1, max_size=5, unique=True), st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=12),
    st.lists(st.floats(width=32, allow_nan=False), min_size=5, max_size=5),
)  # fmt: skip
def test_events_are_those_of_protocol_buffers(tags: list[str], steps: list[int], values: list[float]) -> None:
    # GIVEN events of the same names, one by one and more than tables are made after, all at once
    proto = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    theirs = pytest.importorskip("tensorboard.compat.tensorflow_stub.pywrap_tensorflow")
    coded = len(events._varint(steps[0]))
    steps = [one for one in steps if len(events._varint(one)) == coded]
    layout = events._Layout(tags, coded)
    for count in (1, events.REPEATS + 1, len(steps)):
        of_each = [steps[n % len(steps)] for n in range(count)]
        rows = [[v / (n + 1) for v in values[: len(tags)]] for n in range(count)]
        # WHEN they are encoded THEN length, bytes and both checksums are as TensorBoard reads them
        data = layout.records(np.array(of_each, np.uint64), 1.7e9 + np.arange(count), np.array(rows))
        for n in range(count):
            size = int.from_bytes(data[:8], "little")
            assert theirs.masked_crc32c(data[:8]) == int.from_bytes(data[8:12], "little")
            assert theirs.masked_crc32c(data[12 : 12 + size]) == int.from_bytes(data[12 + size : 16 + size], "little")
            event = proto.Event.FromString(data[12 : 12 + size])
            assert event.step & (1 << 64) - 1 == of_each[n] and event.wall_time == 1.7e9 + n
            assert [(v.tag, v.simple_value) for v in event.summary.value] == [*zip(tags, np.float32(rows[n]).tolist(), strict=False)]
            data = data[16 + size :]
        assert data == b""


def test_tensorboard_reads_scalars_and_texts(tmp_path: Path) -> None:
    # GIVEN an event file with scalars of 300 steps, whose numbers take one and two bytes, and a text
    file = events.EventFile(str(tmp_path))
    for number in range(300):
        file.add_scalars({"sol/a": number / 3, "sol_phase/x ü/time_ms": -number}, number, time.time())
    file.add_text("sol/by_phase", "| a |\n| --- |\n| 1 |", 7)
    file.close()
    # WHEN TensorBoard reads it THEN all is there, in single precision
    found = read_back(tmp_path)
    assert found["sol/a"] == [(n, pytest.approx(n / 3, rel=1e-6)) for n in range(300)]
    assert found["sol_phase/x ü/time_ms"] == [(n, -n) for n in range(300)]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    every = EventAccumulator(str(tmp_path))
    every.Reload()
    (text,) = every.Tensors("sol/by_phase/text_summary")
    assert (text.step, text.tensor_proto.string_val[0]) == (7, b"| a |\n| --- |\n| 1 |")
    assert every.summary_metadata["sol/by_phase/text_summary"].plugin_data.plugin_name == "text"


def test_two_files_of_one_second_have_names_of_their_own(tmp_path: Path) -> None:
    first, second = events.EventFile(str(tmp_path)), events.EventFile(str(tmp_path))
    assert first.path != second.path
    first.close()
    second.close()
    second.close()


# -- an iteration ------------------------------------------------------------------------------------------------------


def labels_of(*names: str) -> Labels:
    labels = Labels()
    for name in names:
        labels.id_of("phase", NONE, name)
    return labels


def test_an_iteration_by_hand() -> None:
    # GIVEN 2 + 4 GFLOP at 100 TFLOP/s, 60 µs, and another GFLOP that is recomputed, in 8 ms with 16 samples of 2048 tokens; two ranges of a phase
    sample = analyze(records(), step(), device())
    row = (12, 0, 8_000_000, 0, 0, 12, *(0, 0, 1_000_000), *(0, 5_000_000, 2_000_000), *(1, 7_000_000, 500_000))
    plain = (0, row, Alike(16, 2048, sample))
    # WHEN its scalars are made THEN they are
    found = of_iteration(plain, labels_of("train/forward", "train/backward"))
    assert found == pytest.approx({
        "sol/step_time_ms": 8.0, "sol/tokens_per_s": 256_000, "sol/samples_per_s": 2000, "sol/mfu_pct": 0.75, "sol/hfu_pct": 0.875,
        "sol_phase/train/forward/time_ms": 3.0, "sol_phase/train/backward/time_ms": 0.5,
    })  # fmt: skip


def test_what_is_not_known_of_an_iteration_is_left_out() -> None:
    # GIVEN one without sizes and work, on a device that has timed it and one of its phases
    one = StepRecord(3, 0, 8_000_000, device_ns=4_000_000)
    one.phase_times = [(0, 0, 1_000_000, 600_000, 1), (1, 0, 1_000_000, None, 1)]
    assert row_of(one) == (3, 0, 4_000_000, 0, 0, 3, *(0, 0, 600_000), *(1, 0, None))
    found = of_iteration((0, row_of(one), Alike(None, None, None)), labels_of("a", "b"))
    assert found == {"sol/step_time_ms": 4.0, "sol_phase/a/time_ms": 0.6}
    # AND one of compiled code that ran eagerly to be counted has no time of its own
    assert of_iteration((0, row_of(one), Alike(1, 1, None, compiled=True)), labels_of("a", "b")) == {}


def test_the_rest_follows_from_the_sampled_one(tmp_path: Path) -> None:
    # GIVEN a sampled iteration of a GPU, one like it with a time on the device, and one without
    sample = analyze(records(timed=False), step(device_us=180.0), gpu())
    kept = ScalarLog(str(tmp_path), labels_of(), Guard(lambda *_: None, lambda _: None))
    like = Alike(None, None, sample)
    kept.add(Entry((time.perf_counter_ns(), (7, 0, 180_000, 0, 0), like), 180_000, sample, False))
    kept.add(Entry((time.perf_counter_ns(), (12, 0, 120_000, 0, 0), like), 120_000, None, False))
    kept.add((time.perf_counter_ns(), (13, 0, 200_000, 0, 0), like))
    kept.close()
    # WHEN they are read back THEN the work is the same in all, times are their own, and the age is counted
    found = read_back(tmp_path)
    whole = work_scalars(sample)
    assert [v for _, v in found["sol/total_ops"]] == [whole["sol/total_ops"]] * 3
    assert [s for s, _ in found["sol/total_ops"]] == [7, 12, 13] and [v for _, v in found["sol/capture_age_iters"]] == [0, 5, 6]
    later = work_scalars(carry(sample, step(12, device_us=120.0)))
    assert found["sol/efficiency_pct"][1] == (12, pytest.approx(later["sol/efficiency_pct"], rel=1e-6))
    assert [s for s, _ in found["sol/measured_time_ms"]] == [7, 12]
    assert {tag for tag in found if tag.startswith("sol_layer/")} == {tag for tag in whole if tag.startswith("sol_layer/")}


def test_iterations_that_are_written_together_are_those_that_are_written_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN iterations of two samples and of none, with and without phases, one phase twice, phases in another order, names that two labels
    # share, a time of 0 and an unknown one, numbers of one and two bytes and beyond 64 bits
    labels = labels_of("forward", "backward")
    labels.id_of("phase", 0, "forward")
    first, second = (analyze(records(), step(), device()) for _ in range(2))
    alike = [Alike(16, 2048, first), Alike(16, None, second), Alike(None, None, None), Alike(4, 8, first, compiled=True)]
    phases = [(), (0, 1, 70_000, 1, 2, 9_000), (1, 1, 70_000, 0, 2, 9_000), (0, 1, 5_000, 0, 2, 7, 2, 3, 11)]
    rows: list[tuple[Any, ...]] = [(n, n * 10, 100_000 + 997 * n, 0, 0) for n in range(200)]
    rows = [(*row, row[0], *phases[n // 30 % 4]) if phases[n // 30 % 4] else row for n, row in enumerate(rows)]
    rows[50] = (50, 0, 0, 0, 0, 50, 0, 1, 3)
    rows[100] = (100, 0, 5, 0, 0, 100, 0, 1, None)
    rows[199] = (1 << 70, *rows[199][1:])
    given: list[Plain] = [(10**9 * n // 7, row, alike[n // 45 % 4]) for n, row in enumerate(rows)]
    monkeypatch.setattr(scalars.time, "perf_counter_ns", lambda: 10**11)
    monkeypatch.setattr(scalars.time, "time", lambda: 1.7e9)
    # WHEN they are written at once, and each for itself THEN TensorBoard reads the same events: names, values, steps and wall times
    read = []
    for folder, turns in ((tmp_path / "once", [given]), (tmp_path / "each", [[one] for one in given])):
        kept = ScalarLog(str(folder), labels, Guard(lambda *_: None, lambda _: None))
        monkeypatch.setattr(ScalarLog, "_write_run", ScalarLog._write_run if len(turns) == 1 else lambda *_: False)
        for some in turns:
            for one in some:
                kept.add(one)
            kept.flush()
        kept.close()
        (path,) = folder.iterdir()
        loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader").LegacyEventFileLoader(str(path))
        read.append([*loader.Load()][1:])
    assert len(read[0]) == 200 and read[0] == read[1]
    assert len({value.tag for event in read[0] for value in event.summary.value}) == 12


def test_a_thousand_iterations_are_few_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a thread that writes once a second at most
    writes: list[float] = []
    real = events.EventFile.write
    monkeypatch.setattr(events.EventFile, "write", lambda self: (writes.append(time.monotonic()), real(self))[1])
    began = time.monotonic()
    kept = ScalarLog(str(tmp_path), labels_of(), Guard(lambda *_: None, lambda _: None))
    for number in range(1000):
        kept.add((time.perf_counter_ns(), (number, 0, 4_000_000, 0, 0), Alike(None, None, None)))
    kept.close()
    # WHEN it has ended THEN there were the writes of the beginning, of each second and of the end, and nothing is lost
    assert len(writes) <= 4 + (time.monotonic() - began) / scalars.FLUSH_SECONDS
    assert [n for n, _ in read_back(tmp_path)["sol/step_time_ms"]] == list(range(1000))


def test_a_full_disk_is_said_once_and_the_iterations_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[tuple[str, str]] = []
    kept = ScalarLog(str(tmp_path), labels_of(), Guard(lambda code, text: notes.append((code, text)), lambda _: None))

    def full(self: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(events.EventFile, "write", full)
    for number in range(5):
        kept.add((time.perf_counter_ns(), (number, 0, 4_000_000, 0, 0), Alike(None, None, None)))
        kept.flush()
    kept.close()
    assert len(notes) == 1 and notes[0][0] == "failed_tensorboard"


def test_a_writer_of_torch_gets_twenty_iterations_a_second(tmp_path: Path) -> None:
    # GIVEN a summary writer of torch, each of whose events takes half a millisecond WHEN 60 fast iterations are logged
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    import torch

    from tb_sol_plugin.capture.tracker import SOLTracker

    model = torch.nn.Linear(4, 4)
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        began = time.monotonic()
        with SOLTracker(every_n_steps=50, report_interval=1000, tensorboard=writer, console=False, wandb=False) as tracker:
            tracker.initialize(model)
            for _ in range(60):
                model(torch.ones(2, 4))
                tracker.step()
        lasted = time.monotonic() - began
    # THEN the sampled ones are all there, and of the others as many as the time allows
    found = [n for n, _ in read_back(tmp_path)["sol/step_time_ms"]]
    assert {0, 1, 50} <= set(found) and len(found) <= 4 + lasted / 0.05


def test_a_step_without_work_of_matrices_has_no_utilization() -> None:
    sample = analyze([op(flops=0, bytes=8)], step(), device())
    found = of_iteration((0, (1, 0, 1_000_000, 0, 0), Alike(None, None, sample)), labels_of())
    assert set(found) <= {"sol/step_time_ms"}


def test_tables_of_steps_that_have_become_longer_are_not_kept(tmp_path: Path) -> None:
    # GIVEN events of the same names whose step takes one, two and three bytes WHEN written THEN only the last layout is kept
    file = events.EventFile(str(tmp_path))
    for number in (*range(100, 150), 20_000):
        file.add_scalars({"a": 1.0, "b": 2.0}, number, 0.0)
    file.write()
    assert [length for length, _ in file._layouts] == [3]
    file.close()
