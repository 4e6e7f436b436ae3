"""Warming is done once, in the background, and what it reads holds a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import Report
from tb_sol_plugin.store.processes import smallest_capture
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import http


def test_the_smallest_capture_reaches_the_first_page() -> None:
    capture = smallest_capture()
    assert capture.facts.total_events == 4 and capture.device["duration_ns"].tolist() == [30_000]
    assert not capture.device["duration_ns"].to_numpy().flags.writeable  # mapped, as a real one: compiled loops differ by that
    assert isinstance(answer_capture(next(iter(registry())), capture, {}), Report)


def test_the_list_of_runs_starts_warming_up_once(client: FlaskClient, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(http, "warm", lambda: calls.append(1))
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
