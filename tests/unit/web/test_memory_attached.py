"""Memory beside a trace as the page gets it: listed with it, shown on its pages, and told where it cannot be read."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.cli import command, doctor
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support import memory_snapshot as M
from tests.unit.store.test_join import timeline, trace
from tests.unit.web.test_captures import ask

TRACE = "host_1.1700000000000.pt.trace.json"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FlaskClient]:
    """Runs: `whole` with a trace, a snapshot of its name and a timeline; `broken` with a trace and a snapshot that is cut."""
    for name in ("whole", "broken"):
        (tmp_path / "logs" / name).mkdir(parents=True)
        trace(tmp_path / "logs" / name / TRACE)
    M.write(tmp_path / "logs" / "whole" / "host_1.pickle", M.snapshot())
    timeline(tmp_path / "logs" / "whole" / "host_1_memory.raw.json")
    body = pickle.dumps(M.snapshot())
    (tmp_path / "logs" / "broken" / "host_1.pickle").write_bytes(body[: len(body) - 30])
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "cache")), executor=pool)
        made = create_app(store, WebOptions()).test_client()
        made.post("/api/v1/rescan")
        yield made


def test_memory_is_a_span_of_its_worker_and_not_the_one_shown_first(client: FlaskClient) -> None:
    # GIVEN the run WHEN listed THEN the snapshot is a span of the trace's worker, named, and the trace is the last one: it is shown first
    run = next(r for r in client.get("/api/v1/runs").get_json()["runs"] if r["name"] == "whole")
    listed = {w["name"]: [(s["kind"], s["label"], (s["companion"] or {}).get("worker")) for s in w["spans"]] for w in run["workers"]}
    assert listed == {
        "host_1": [("memory_snapshot", "allocator snapshot", "host_1"), ("kineto", "1", None)],
        "host_1_memory": [("memory_timeline", "memory timeline", "host_1")],
    }  # fmt: skip


def test_pages_of_the_trace_show_it_and_its_facts_name_it(client: FlaskClient) -> None:
    # GIVEN the trace WHEN its pages are asked THEN memory is told by all three, by category as measured, and the facts name both files
    query = {"run": "whole", "worker": "host_1", "span": "1700000000000"}
    memory = ask(client, "analysis/memory", **query)
    assert memory["available"] is True
    health = ask(client, "analysis/health", **query)
    said = [n["text"] for n in health["notices"]]  # type: ignore[attr-defined]
    assert "Read together with the allocator snapshot host_1.pickle and the memory timeline host_1_memory.raw.json." in said
    # AND each still opens alone
    alone = ask(client, "analysis/memory", run="whole", worker="host_1_memory")
    assert alone["available"] is True


def test_a_snapshot_that_cannot_be_read_is_a_warning_of_the_trace(
    client: FlaskClient, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a cut snapshot beside a trace WHEN the trace is shown THEN it is all there, and the facts and the doctor say what is wrong
    query = {"run": "broken", "worker": "host_1", "span": "1700000000000"}
    assert ask(client, "analysis/memory", **query)["available"] is True
    said = [n["text"] for n in ask(client, "analysis/health", **query)["notices"]]  # type: ignore[attr-defined]
    (line,) = [t for t in said if "host_1.pickle" in t]
    assert line.startswith("Memory beside this recording is not shown with it: host_1.pickle:")
    monkeypatch.setenv("TB_SOL_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(doctor, "_installed", lambda out: 0)
    status = command.main(["doctor", str(tmp_path / "logs")])
    text = " ".join(capsys.readouterr().out.split())
    assert status == 1 and "trace + memory snapshot + memory timeline" in text
    assert "memory beside this recording is not shown with it: host_1.pickle" in text
