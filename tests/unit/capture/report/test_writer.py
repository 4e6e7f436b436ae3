"""The capture file as it is written: definitions before use, whole lines, caps, failures that end quietly."""

from __future__ import annotations

import errno
import os
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin import format as F
from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.loop.schedule import StepRecord
from tb_sol_plugin.capture.report import writer as W
from tb_sol_plugin.capture.report.writer import CaptureWriter
from tb_sol_plugin.ingest import read
from tests.support.forked import python
from tests.support.packed_lines import records_in
from tests.support.written_steps import HEADER, Ledger, Sig, labeled, sampled

NAME = "node1_rank3_77_1700000000000000000"


def records(path: Path) -> list[dict[str, object]]:
    """All records of a file; every line ends."""
    text = path.read_bytes()
    assert text.endswith(b"\n")
    return list(records_in(text))


def kinds(path: Path) -> list[object]:
    return [r["kind"] for r in records(path)]


def test_an_iteration_is_one_group_with_its_definitions_in_front(tmp_path: Path) -> None:
    # GIVEN a ledger of two signatures, one of them not used in this iteration
    labels, phase, module = labeled()
    ledger = Ledger([Sig(0), Sig(1, op="aten::add", flop=None, reason="no model")], {(0, module, phase, -1, -1, 0): [3, 4500]})
    writer = CaptureWriter(str(tmp_path), HEADER)
    # WHEN two iterations are written, the second with the other signature and times not taken
    writer.step(sampled(0, phase_times=[(phase, 10, 800, None, 1)], module_times=[(module, 20, 500, 450, 1)]), ledger, labels)
    ledger.rows = {(1, -1, phase, -1, -1, F.BACKWARD): [1, -1]}
    writer.step(sampled(1), ledger, labels)
    writer.close(2)
    # THEN each definition stands once, before its first use
    path = tmp_path / f"{NAME}.sol.jsonl"
    assert kinds(path) == [
        "header",
        "label",
        "label",
        "sig",
        "step",
        "ledger",
        "phase_time",
        "module_time",
        "sig",
        "step",
        "ledger",
        "close",
    ]
    header, _, fc, mm, step, first, phases, modules, add, _, second, close = records(path)
    assert header["format"] == "tb-sol-capture" and header["version"] == [2, 0] and header["part"] == 0 and header["rank"] == 3
    assert fc == {"kind": "label", "id": module, "what": "module", "parent": -1, "name": "fc", "class": "Linear"}
    assert mm["in"] == [[8, 16], [16, 4]] and mm["types"] == ["float", "float"] and mm["flop"] == 1024 and mm["class"] == "gemm"
    assert add["flop"] is None and add["reason"] == "no model"
    assert step["iteration"] == 0 and step["sampled"] is True and "device_ns" not in step
    assert first["rows"] == [[0, module, phase, -1, -1, 0, 3, 4500]]
    assert second["rows"] == [[1, -1, phase, -1, -1, F.BACKWARD, 1, None]]
    assert phases["rows"] == [[phase, 10, 800, None, 1]] and modules["rows"] == [[module, 20, 500, 450, 1]]
    assert close["iterations"] == 2 and writer.problem == "closed"


def test_a_group_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a writer whose calls of os.write are counted
    labels, phase, module = labeled()
    calls: list[bytes] = []
    real = os.write
    monkeypatch.setattr(W.os, "write", lambda fd, text: (calls.append(bytes(text)), real(fd, text))[1])
    writer = CaptureWriter(str(tmp_path), HEADER)
    # WHEN an iteration is written
    writer.step(sampled(0, phase_times=[(phase, 0, 1, None, 1)]), Ledger([Sig(0)], {(0, module, phase, -1, -1, 0): [1, 1]}), labels)
    # THEN there was one write for the header and one for the group, of whole lines
    assert len(calls) == 2 and all(call.endswith(b"\n") for call in calls) and calls[1].count(b"\n") == 6


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a file system that takes seven bytes at a time
    real = os.write
    monkeypatch.setattr(W.os, "write", lambda fd, text: real(fd, bytes(text)[:7]))
    labels, phase, module = labeled()
    # WHEN a recording is written
    writer = CaptureWriter(str(tmp_path), HEADER)
    writer.step(sampled(), Ledger([Sig(0)], {(0, module, phase, -1, -1, 0): [1, 1]}), labels)
    writer.close(1)
    # THEN nothing is missing
    assert kinds(Path(writer.path)) == ["header", "label", "label", "sig", "step", "ledger", "close"]


def test_a_full_disk_ends_the_file_with_whole_lines_and_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a disk that takes 20 bytes of the second iteration and then is full
    labels, phase, module = labeled()
    ledger = Ledger([Sig(0)], {(0, module, phase, -1, -1, 0): [1, 1]})
    writer = CaptureWriter(str(tmp_path), HEADER)
    writer.step(sampled(0), ledger, labels)
    real, taken = os.write, []

    def full(fd: int, text: memoryview) -> int:
        if taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken.append(1)
        return real(fd, bytes(text)[:20])

    monkeypatch.setattr(W.os, "write", full)
    # WHEN more is written
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in (1, 2, 3):
            writer.step(sampled(number), ledger, labels)
        writer.close(4)
    # THEN the file holds the first iteration alone, and one warning says why
    assert kinds(Path(writer.path)) == ["header", "label", "label", "sig", "step", "ledger"]
    assert writer.problem == "No space left on device"
    assert [str(w.message) for w in said] == [f"SOL capture: nothing more is written to {Path(writer.path).parent}: No space left on device"]


def test_a_disk_that_is_full_from_the_start_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, text: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    # GIVEN a disk without room for a header
    monkeypatch.setattr(W.os, "write", full)
    # WHEN a writer begins, THEN it says so and leaves nothing behind
    with pytest.warns(RuntimeWarning, match="No space left"):
        writer = CaptureWriter(str(tmp_path), HEADER)
    assert writer.problem and not list(tmp_path.iterdir())


@pytest.mark.parametrize("folder", ["file/inside", "gs://bucket/run"])
def test_a_folder_that_cannot_be_made_is_a_problem_and_no_error(tmp_path: Path, folder: str) -> None:
    # GIVEN a path below a plain file, or an address
    (tmp_path / "file").write_text("")
    # WHEN a writer begins there, with warnings that are errors
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = CaptureWriter(folder if "://" in folder else str(tmp_path / folder), HEADER)
        writer.step(sampled(), Ledger(), Labels())
        writer.note("x", "y")
        writer.close(1)
    # THEN nothing was raised
    assert writer.problem and not list(Path().glob("gs:*"))


def test_numbers_that_json_cannot_hold_are_null(tmp_path: Path) -> None:
    # GIVEN times and costs that are not finite, a header with a set and an object, and a numpy integer
    np = pytest.importorskip("numpy")
    labels, phase, module = labeled()
    sig = Sig(0, flop=float("nan"), bytes=float("inf"), flop_vector=np.int64(5))
    writer = CaptureWriter(str(tmp_path), HEADER | {"odd": {1, 2}, "thing": object(), "nested": {"a": float("nan")}})
    # WHEN they are written
    writer.step(
        sampled(0, batch=np.int64(4), totals={"flop": float("nan"), "ops": 1}),
        Ledger([sig], {(0, module, phase, -1, -1, 0): [1, 1]}),
        labels,
    )
    # THEN they are null, and everything else is there
    header, _, _, found, step, _ = records(Path(writer.path))
    assert header["nested"] == {"a": None} and sorted(header["odd"]) == [1, 2]  # type: ignore[call-overload]
    assert (found["flop"], found["bytes"], found["flop_vector"]) == (None, None, 5)
    assert step["batch"] == 4 and step["totals"] == {"flop": None, "ops": 1}
    assert not writer.problem


def test_a_file_at_its_cap_is_continued_with_header_and_definitions(tmp_path: Path) -> None:
    # GIVEN a cap of 2 kB
    labels, phase, module = labeled()
    ledger = Ledger([Sig(0), Sig(1, op="aten::bmm")], {(0, module, phase, -1, -1, 0): [2, 10], (1, module, phase, -1, -1, 1): [1, 20]})
    writer = CaptureWriter(str(tmp_path), HEADER, cap_bytes=2000)
    # WHEN 30 iterations are written
    for number in range(30):
        writer.step(sampled(number), ledger, labels)
    writer.close(30)
    # THEN no part is larger, each can be read alone, and all of them are one recording
    parts = sorted(tmp_path.iterdir(), key=lambda p: F.NAME.match(p.name)["part"] or "")  # type: ignore[index]
    assert len(parts) > 2 and all(p.stat().st_size <= 2100 for p in parts)
    assert [p.name for p in parts[:2]] == [f"{NAME}.sol.jsonl", f"{NAME}.part1.sol.jsonl"]
    for place, part in enumerate(parts):
        found = records(part)
        assert found[0]["kind"] == "header" and found[0]["part"] == place
        assert [r["kind"] for r in found[1:5]] == ["label", "label", "sig", "sig"]
        assert (found[-1]["kind"], found[-1].get("code")) in (("note", "continued"), ("close", None))
    whole = read(str(parts[0]))
    assert whole.tables["iterations"]["number"].tolist() == list(range(30))
    assert len(whole.tables["ledger"]) == 29 * 2 and len(whole.tables["labels"]) == 2, "the first iteration is left out, nothing else"


def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    # GIVEN an open file
    labels, phase, module = labeled()
    writer = CaptureWriter(str(tmp_path), HEADER)
    before = Path(writer.path).read_bytes()
    # WHEN a forked process uses its copy of the writer
    child = os.fork()
    if child == 0:
        writer.step(sampled(), Ledger([Sig(0)], {(0, module, phase, -1, -1, 0): [1, 1]}), labels)
        writer.note("child", "was here")
        writer.close(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    # THEN the file is as it was, and goes on
    assert Path(writer.path).read_bytes() == before
    writer.close(0)
    assert kinds(Path(writer.path)) == ["header", "close"]


def test_two_writers_of_one_moment_have_files_of_their_own(tmp_path: Path) -> None:
    # GIVEN two trackers that begin in the same nanosecond
    one, two = CaptureWriter(str(tmp_path), HEADER), CaptureWriter(str(tmp_path), HEADER)
    # THEN neither writes into the other's file
    assert one.path != two.path and not one.problem and not two.problem


def test_notes_are_counted_and_come_with_the_next_iteration(tmp_path: Path) -> None:
    # GIVEN one remark made three times and another once
    labels, _, _ = labeled()
    writer = CaptureWriter(str(tmp_path), HEADER)
    for _ in range(3):
        writer.note("lost", "an odd tensor")
    writer.note("device", "no events")
    # WHEN an iteration that was not sampled is written, though its ledger holds rows
    writer.step(StepRecord(5, duration_ns=1), Ledger([Sig(0)], {(0, -1, -1, -1, -1, 0): [1, 1]}), labels)
    # THEN both stand there, and no work
    found = records(Path(writer.path))
    assert [(r["code"], r["count"]) for r in found if r["kind"] == "note"] == [("lost", 3), ("device", 1)]
    assert [r["kind"] for r in found[-1:]] == ["step"]


def test_an_interrupted_write_costs_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a write that Ctrl+C interrupts after some bytes
    labels, phase, module = labeled()
    ledger = Ledger([Sig(0)], {(0, module, phase, -1, -1, 0): [1, 1]})
    writer = CaptureWriter(str(tmp_path), HEADER)
    real = os.write

    def interrupted(fd: int, text: memoryview) -> int:
        real(fd, bytes(text)[:30])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(W.os, "write", interrupted)
        writer.step(sampled(0), ledger, labels)
    # WHEN training goes on
    writer.step(sampled(1), ledger, labels)
    writer.close(2)
    # THEN the next group stands on lines of its own and is read
    c = read(writer.path)
    assert c.tables["iterations"]["number"].tolist() == [1] and c.tables["ledger"]["flop"].tolist() == [1024.0]


class Broken(Sig):
    """A signature whose cost cannot be worked out."""

    @property
    def flop(self) -> float | None:  # type: ignore[override]
        raise ArithmeticError("no such cost")

    @flop.setter
    def flop(self, value: float | None) -> None: ...


def test_an_iteration_that_cannot_be_written_is_left_out_and_noted(tmp_path: Path) -> None:
    # GIVEN a signature whose cost raises, in the second of three iterations
    labels, phase, module = labeled()
    good = Ledger([Sig(0)], {(0, module, phase, -1, -1, 0): [1, 1]})
    bad = Ledger([Sig(0), Broken(1)], {(1, module, phase, -1, -1, 0): [1, 1]})
    writer = CaptureWriter(str(tmp_path), HEADER)
    # WHEN all are written
    for number, ledger in enumerate((good, bad, good)):
        writer.step(sampled(number), ledger, labels)
    # THEN the other two are there, and a note says what happened
    found = records(Path(writer.path))
    assert [r["iteration"] for r in found if r["kind"] == "step"] == [0, 2] and not writer.problem
    assert [(r["code"], r["text"]) for r in found if r["kind"] == "note"] == [("group_lost", "ArithmeticError: no such cost")]
    # WHEN it fails again and again, THEN the file ends with a warning
    with pytest.warns(RuntimeWarning, match="no such cost"):
        writer.step(sampled(3), bad, labels)
        writer.step(sampled(4), bad, labels)
    assert "no such cost" in writer.problem


ENDLESS = """
import sys
from tb_sol_plugin.capture.report.writer import CaptureWriter
from tests.support.written_steps import HEADER, Ledger, Sig, labeled, sampled
labels, phase, module = labeled()
ledger = Ledger([Sig(i) for i in range(300)])
writer = CaptureWriter(sys.argv[1], HEADER)
for number in range(10**9):
    ledger.rows = {(i, module, phase, -1, -1, 0): [1, number] for i in range(number % 300)}
    writer.step(sampled(number, phase_times=[(phase, number * 1000, 5, None, 1)]), ledger, labels)
"""


def test_a_process_that_is_killed_loses_one_iteration_at_most(tmp_path: Path) -> None:
    # GIVEN a process that writes iterations as fast as it can, killed in the middle, three times over
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        process = python("-c", ENDLESS, folder)
        while process.poll() is None and sum(path.stat().st_size for path in folder.glob("*")) < 50_000 * (1 + attempt):
            time.sleep(0.005)
        process.kill()
        process.communicate(60)
        # WHEN its file is read, THEN iterations stand there without a gap, each with its work
        (path,) = folder.iterdir()
        c = read(str(path))
        numbers = c.tables["iterations"]["number"].tolist()
        assert numbers == list(range(len(numbers))) and len(numbers) > 5
        work = c.tables["ledger"].groupby("iteration").size()
        assert all(work.get(number, 0) == number % 300 for number in numbers[1:-1])
        assert set(c.tables["issues"]["reason"].astype(str)) <= {
            "no close record",
            "truncated last line",
            "sampled iteration without its work",
        }


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"phase_times": [(1, 2, 3, None, 1)]},
        {"signature": "0123456789ab", "batch": 3, "tokens": 0, "phase_times": [(1, 2, 3, None, 1), (4, 5, 6, 7, 8)]},
        {"signature": "0123456789ab", "phase_times": [(1, 2, 3, None, 1)]},
        {"signature": 'odd "name"', "batch": 3},
        {"signature": "é"},
        {"signature": "a", "device_ns": 5, "lost": {"b": 1}, "module_times": [(1, 2, 3, 4, 5)], "compiled": True},
    ],
)
def test_the_short_way_of_ordinary_iterations_writes_the_same_records(tmp_path: Path, fields: dict[str, Any]) -> None:
    # GIVEN an iteration that was not sampled WHEN it is written the short way, and, because a note waits, the long way
    step = StepRecord(7, start_ns=10, duration_ns=20, overhead_ns=30, **fields)
    short, long = (CaptureWriter(str(tmp_path / name), HEADER) for name in ("short", "long"))
    long.note("waits", "for the next iteration")
    for writer in (short, long):
        writer.step(step, Ledger(), Labels())
    # THEN the records of both are equal
    of_short, of_long = ([r for r in records(Path(writer.path)) if r["kind"] not in ("header", "note")] for writer in (short, long))
    assert of_short == of_long and of_short
