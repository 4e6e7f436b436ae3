"""What is derived once and kept with a recording; what depends on device limits goes where others are asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tb_sol_plugin import ingest, metrics
from tb_sol_plugin.cached import cached_property
from tests.support.tiny import trace

ANALYSES = ("overview", "steps", "roofline", "phases", "kernels")


def test_a_large_recording_keeps_results_under_one_set_of_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = ingest.read(str(trace(tmp_path / "rank0.1.pt.trace.json.gz")))

    def ask(device: str) -> list[object]:
        return [capture.analyze(name, device_limits=device) for name in ANALYSES]

    # GIVEN a small recording under two sets of limits THEN both are kept, and asking again derives nothing
    first, other = ask("H100_SXM"), ask("A100_SXM_80")
    assert first != other
    small = set(capture.memo)
    assert ask("H100_SXM") == first and set(capture.memo) == small
    # GIVEN one that counts as large WHEN other limits are asked for THEN as many results are kept as under one, and the answers are the same
    monkeypatch.setattr(metrics, "LARGE", 0)
    assert ask("A100_SXM_80") == other
    one = len(capture.memo)
    assert one < len(small)
    assert ask("H100_SXM") == first and len(capture.memo) == one
    assert ask("A100_SXM_80") == other and len(capture.memo) == one


def test_threads_that_ask_at_once_get_one_result(tmp_path: Path) -> None:
    capture = ingest.read(str(trace(tmp_path / "rank0.1.pt.trace.json.gz")))
    made: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def slow() -> list[int]:
        begun.set()
        assert go.wait(30)
        made.append(1)
        return [len(made)]

    # GIVEN a thread that makes a result WHEN another one asks for it meanwhile THEN it waits, and both get the same
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(metrics.memo, capture, ("slow",), slow)
        assert begun.wait(30)
        second = pool.submit(metrics.memo, capture, ("slow",), slow)
        go.set()
        assert first.result(30) is second.result(30) and made == [1]


def test_an_error_is_not_kept(tmp_path: Path) -> None:
    capture = ingest.read(str(trace(tmp_path / "rank0.1.pt.trace.json.gz")))

    def fails() -> int:
        raise ValueError("not this time")

    # WHEN making a result fails THEN the caller gets the error, and the next one makes it again
    with pytest.raises(ValueError, match="not this time"):
        metrics.memo(capture, ("fails",), fails)
    assert ("fails",) not in capture.memo and metrics.memo(capture, ("fails",), lambda: 7) == 7


def test_a_large_recording_prepares_its_replay_meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # GIVEN one recording that counts as large and one that does not WHEN their overviews are made THEN they say the same
    small, large = (ingest.read(str(trace(tmp_path / f"rank{i}.1.pt.trace.json.gz"))) for i in range(2))
    expected = small.analyze("overview")
    monkeypatch.setattr(metrics, "APART", 0)
    started: list[str] = []
    own = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: started.append(self.name) or own(self))
    assert large.analyze("overview") == expected and started == ["tb-sol-meanwhile"]


def test_waiting_for_a_property_of_another_object_does_not_hang(tmp_path: Path) -> None:
    capture = ingest.read(str(trace(tmp_path / "rank0.1.pt.trace.json.gz")))
    begun = threading.Event()

    class Seen:
        def __init__(self, make: Callable[[], int]) -> None:
            self.make = make

        @cached_property
        def value(self) -> int:
            return self.make()

    def shared() -> int:
        begun.set()
        return Seen(lambda: 1).value  # the same property of another object, while the first one waits for this result

    def waits() -> int:
        assert begun.wait(30)
        return metrics.memo(capture, ("shared",), shared) + 1

    with ThreadPoolExecutor(2) as pool:
        outer = pool.submit(lambda: Seen(waits).value)
        inner = pool.submit(metrics.memo, capture, ("shared",), shared)
        assert (outer.result(30), inner.result(30)) == (2, 1)
