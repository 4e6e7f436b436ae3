"""What runs on the host while the device has no work: Python frames, what is slow inside of a data loader, operators on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.findings import assert_disjoint, found, step
from tests.support.trace_builder import TraceBuilder

MS = 1_000_000
LOAD = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def plain(text: str) -> str:
    """A text with plain spaces between numbers and units."""
    return text.replace("\u202f", " ")


def late(*, start: int, length: int = 200) -> TraceBuilder:
    """A step of `length` ms; the device works only from `start` ms to its end, launched 10 µs before."""
    t = step(length * MS)
    t.op("aten::mm", start * MS - 20_000, 20_000)
    t.launch("k", at=start * MS - 10_000, start=start * MS, duration=(length - start) * MS, call_duration=5_000)
    return t


def test_python_before_the_first_kernel_is_found_by_its_frame(tmp_path: Path) -> None:
    # GIVEN a step whose first 150 ms run `preprocess`, 120 of them in a function of C code
    t = late(start=160)
    outer = t.frame("train.py(10): main", 0, 200 * MS)
    inner = t.frame("data/images.py(42): preprocess", 5 * MS, 150 * MS, parent=outer)
    zoom = t.frame("scipy/ndimage/_interpolation.py(739): zoom", 10 * MS, 125 * MS, parent=inner)
    t.frame("<built-in function zoom_shift>", 12 * MS, 120 * MS, parent=zoom)
    out = found(t, tmp_path)
    # THEN the function is named with what is slow in it, and the saving is its time
    finding = out["python_wait"]
    assert finding.saving == 150 * MS and not finding.candidate
    assert "it all in one call of `data/images.py:42 preprocess`" in plain(finding.evidence)
    assert "120.0 ms in `zoom_shift`, called at `scipy/ndimage/_interpolation.py:739 zoom`" in plain(finding.evidence)
    assert "`preprocess`" in finding.title and finding.fix.startswith("# preprocess()")
    assert_disjoint(list(out.values()))


def test_python_between_steps_of_work_is_summed_over_its_calls(tmp_path: Path) -> None:
    # GIVEN two stretches of work and a function of 30 ms before each
    t = step(100 * MS)
    for at in (0, 50):
        t.frame("train.py(7): log_images", at * MS, 30 * MS)
        t.launch("k", at=(at + 31) * MS, start=(at + 31) * MS + 10_000, duration=19 * MS - 10_000, call_duration=5_000)
    finding = found(t, tmp_path)["python_wait"]
    assert finding.saving == 60 * MS and "2 calls of `train.py:7 log_images`" in plain(finding.evidence)


@pytest.mark.parametrize("innocent", ["busy", "launches", "lock", "recorder", "thread", "torch"])
def test_python_that_does_not_hold_the_device_back_is_not_blamed(innocent: str, tmp_path: Path) -> None:
    # GIVEN a function of 100 ms that runs while the device works, launches by itself, waits for others, is the recorder, or elsewhere
    t = late(start=20 if innocent == "busy" else 160)
    names = {"recorder": "torch/profiler/profiler.py(700): start", "torch": "torch/nn/init.py(3): fill"}
    thread = 99 if innocent == "thread" else None
    own = t.frame(names.get(innocent, "train.py(7): work"), 30 * MS, 100 * MS, thread=thread)
    if innocent == "launches":
        t.launch("short", at=50 * MS, start=50 * MS + 10_000, duration=1_000)
    if innocent == "lock":
        t.frame("<built-in method acquire of _thread.lock object at 0x7f00>", 31 * MS, 98 * MS, parent=own)
    # THEN no finding names it as the cause
    assert "python_wait" not in found(t, tmp_path)


def test_a_slow_load_says_which_function_is_slow(tmp_path: Path) -> None:
    # GIVEN a batch that loads for 100 ms, 80 of them in one function, and a waiting thread beside it
    t = late(start=110)
    t.annotation(LOAD, 5 * MS, 100 * MS)
    load = t.frame("torch/utils/data/dataloader.py(700): __next__", 5 * MS, 100 * MS)
    inner = t.frame("images.py(3): preprocess", 6 * MS, 98 * MS, parent=load)
    t.frame("<built-in function zoom_shift>", 10 * MS, 80 * MS, parent=inner)
    t.frame("threading.py(355): wait", 0, 200 * MS, thread=77)
    finding = found(t, tmp_path)["input_wait"]
    assert finding.saving == 100 * MS
    assert "of that 98.00 ms in `images.py:3 preprocess`, 80.00 ms in `zoom_shift`, called at `images.py:3 preprocess`." in plain(finding.evidence)
    assert "faster zoom_shift()" in finding.fix


def test_a_load_that_waits_for_its_workers_names_no_frame(tmp_path: Path) -> None:
    # GIVEN a loader with workers: the training process only polls a pipe
    t = late(start=110)
    t.annotation(LOAD.replace("Single", "Multi"), 5 * MS, 100 * MS)
    load = t.frame("torch/utils/data/dataloader.py(1400): _try_get_data", 5 * MS, 100 * MS)
    t.frame("<built-in method poll of select.poll object at 0x7f11>", 6 * MS, 98 * MS, parent=load)
    finding = found(t, tmp_path)["input_wait"]
    assert "poll" not in finding.evidence + finding.fix


def test_an_operator_on_the_cpu_is_found(tmp_path: Path) -> None:
    # GIVEN `aten::max` for 40 ms on the thread that launches, with nothing on the device
    t = late(start=60)
    t.frame("train.py(9): scale", 9 * MS, 45 * MS)
    t.op("aten::max", 10 * MS, 40 * MS)
    out = found(t, tmp_path)
    finding = out["operator_wait"]
    assert finding.saving == 40 * MS and "one call of `aten::max`, called at `train.py:9 scale`" in plain(finding.evidence)
    assert finding.query == {"t.operators.c.name": "aten::max"} and finding.fix.startswith("x = x.to(device)  # before max()")
    assert_disjoint(list(out.values()))


@pytest.mark.parametrize("innocent", ["busy", "launches", "waits", "collective", "thread", "range", "view", "factory"])
def test_an_operator_that_does_not_compute_on_the_cpu_meanwhile_is_not_blamed(innocent: str, tmp_path: Path) -> None:
    # GIVEN an operator of 40 ms beside device work, that launches, that waits for the device, that waits for peers, of another
    # thread, or without work over data
    t = late(start=5 if innocent == "busy" else 60)
    names = {"collective": "c10d::allreduce_", "range": "autograd::engine::evaluate_function: MaxBackward0", "view": "aten::unflatten_dense_tensors",
             "factory": "aten::empty"}  # fmt: skip
    t.op(names.get(innocent, "aten::max"), 10 * MS, 40 * MS, thread=99 if innocent == "thread" else None)
    if innocent == "launches":
        t.launch("short", at=49 * MS, start=49 * MS + 10_000, duration=1_000)
    if innocent == "waits":
        t.call("cudaStreamSynchronize", 11 * MS, 38 * MS)
    assert "operator_wait" not in found(t, tmp_path)
