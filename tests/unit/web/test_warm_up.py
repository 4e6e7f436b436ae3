"""Warming is done once, in the background, and what it reads holds a kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import Report
from tb_sol_plugin.store.processes import smallest_capture
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import http
from tests.support.tiny import trace


def test_the_smallest_capture_reaches_the_first_page() -> None:
    capture = smallest_capture()
    assert capture.facts.total_events == 4 and capture.device["duration_ns"].tolist() == [30_000]
    assert not capture.device["duration_ns"].to_numpy().flags.writeable  # mapped, as a real one: compiled loops differ by that
    assert isinstance(answer_capture(next(iter(registry())), capture, {}), Report)


def test_the_list_of_runs_starts_warming_up_once(client: FlaskClient, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(http, "warm", lambda *_: calls.append(1))
    store.rescan()
    for _ in range(3):
        client.get("/api/v1/runs")
    assert client.application.extensions["sol"].warm_up.wait(5) and calls == [1]


def test_an_empty_logdir_warms_nothing(tmp_path: Path) -> None:
    from tb_sol_plugin.store.names import single
    from tb_sol_plugin.web.routes import create_app

    store = Store(single(str(tmp_path)))
    store.rescan()
    client = create_app(store).test_client()
    client.get("/api/v1/runs")
    assert client.application.extensions["sol"].warm_up._thread is None


def test_a_process_that_ends_meanwhile_ends_in_order(tmp_path: Path) -> None:
    # GIVEN a server in a process that ends as soon as the list of runs was sent, while it still warms up
    trace(tmp_path / "job" / "worker0.1700000000000000000.pt.trace.json")
    code = f"""
import atexit
atexit.register(lambda: print("still at work" if thread.is_alive() else "over"))  # runs last
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.routes import create_app
store = Store(single({str(tmp_path)!r}))
store.rescan()
app = create_app(store)
app.test_client().get("/api/v1/runs")
thread = app.extensions["sol"].warm_up._thread
assert thread is not None and thread.is_alive()
store.close()
"""
    # THEN it ends first, leaves nothing behind and complains of nothing
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=os.environ | {"TMPDIR": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "") and [p.name for p in tmp_path.iterdir()] == ["job"]


def test_it_stops_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a process that ends when the second thing is asked THEN nothing is answered any more
    asked: list[bool] = []
    monkeypatch.setattr("tb_sol_plugin.model.answer.answer_capture", lambda *_: pytest.fail("answered"))

    def ending() -> bool:
        asked.append(True)
        return len(asked) > 1

    http.warm(ending)
    assert len(asked) == 2


def test_it_rests_while_a_report_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a warm-up of two steps
    done: list[str] = []
    began, go_on = threading.Event(), threading.Event()

    def warm(ending: Callable[[], bool], *_: object) -> None:
        began.set()
        go_on.wait(5)
        done.extend(step for step in ("first", "second") if not ending())

    monkeypatch.setattr(http, "warm", warm)
    monkeypatch.setattr(http, "LONGEST_REST", 60.0)
    warm_up = http.WarmUp()
    warm_up.start()
    assert began.wait(5)
    # WHEN two reports are made meanwhile THEN no step is done before the last of them is ready, and then all are
    with warm_up.paused():
        with warm_up.paused():
            go_on.set()
        assert not warm_up.wait(0.05) and not done
    assert warm_up.wait(5) and done == ["first", "second"]
