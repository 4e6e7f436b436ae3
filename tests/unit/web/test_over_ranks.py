"""Reports over the workers of a run, on HTTP: early answers, loading, caching, stopping, what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tb_sol_plugin.store import reductions
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.ranks import rank_trace, write_run
from tests.support.waiting import Gate, until

EARLY = {"Prefer": "respond-async"}
ASK = "/api/v1/analysis/memcpy_ranks?run=job"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twelve files, two of which cannot be read, and a run of one rank. Tests that change files change a copy."""
    root = tmp_path_factory.mktemp("written") / "logs"
    write_run(root / "job")
    rank_trace(0, world=1).write(root / "lone" / "rank0.1.pt.trace.json")
    return root


@contextmanager
def served(logdir: Path, cache: Path) -> Iterator[FlaskClient]:
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(logdir)), StoreOptions(cache_dir=str(cache)), executor=pool)
        yield create_app(store, WebOptions(first_wait=0.05)).test_client()
        store.close()


@pytest.fixture(scope="module")
def read(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    """A server that has read the run; tests that use it change nothing."""
    with served(written, tmp_path_factory.mktemp("cache")) as client:
        until(lambda: client.get(f"{ASK}&wait=30").status_code == 200)
        yield client


@pytest.fixture
def client(written: Path, tmp_path: Path) -> Iterator[FlaskClient]:
    """A server that has read nothing."""
    with served(written, tmp_path) as client:
        yield client


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Recordings are read as it is opened."""
    return Gate().guard(monkeypatch, reductions, "open_here")


def test_the_whole_run_in_one_answer(read: FlaskClient) -> None:
    # GIVEN a run of twelve workers WHEN asked for with a wait THEN all readable ones are in one report, the broken ones in a table
    answer = read.get(f"{ASK}&wait=30")
    body = answer.get_json()
    assert answer.status_code == 200 and body["available"] and "reading" not in body
    tables = {s["id"]: s["data"] for s in body["sections"] if s["kind"] == "table"}
    assert len(tables["ranks"]["rank"]) == 20 and tables["left_out"]["worker"] == ["rank8", "rank9"]
    assert body["selection"]["run"] == "job" and "ETag" in answer.headers
    # THEN it is known the next time
    assert read.get(ASK, headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304


def test_a_script_gets_no_half_answer(client: FlaskClient, gate: Gate) -> None:
    # GIVEN recordings that are being read WHEN a script asks THEN it is told to ask again, with the progress, until all are there
    answer = client.get(ASK)
    body = answer.get_json()
    assert answer.status_code == 409 and body["error"]["code"] == "still_loading" and answer.headers["Retry-After"] == "1"
    assert body["progress"]["stage"] == "0 of 12 workers" and body["progress"]["bytes"] == 0 < body["progress"]["total"]
    gate.open(1)
    until(lambda: client.get(ASK).get_json()["progress"]["bytes"] > 0)
    later = client.get(ASK)
    assert later.status_code == 409 and 0 < later.get_json()["progress"]["bytes"] < later.get_json()["progress"]["total"]
    assert client.get(f"{ASK}&format=csv&section=ranks").status_code == 409
    gate.open()
    until(lambda: client.get(f"{ASK}&wait=30").status_code == 200)


def test_the_page_gets_early_answers_until_all_are_read(client: FlaskClient, gate: Gate) -> None:
    # GIVEN the same WHEN the page asks THEN first it is told to wait, then it gets reports that say how much they speak of, then the whole
    assert client.get(ASK, headers=EARLY).status_code == 202
    seen = [0]

    def more() -> TestResponse | None:
        answer = client.get(ASK, headers=EARLY)
        return answer if answer.status_code == 200 and answer.get_json()["reading"]["done"] > seen[-1] else None

    for _ in range(2):
        gate.open(3)
        answer = until(more)
        assert answer is not None and answer.headers["Cache-Control"] == "no-store" and "Prefer" in answer.headers["Vary"]
        body = answer.get_json()
        assert body["reading"]["total"] == 12 and f"{body['reading']['done']} of 12 workers" in body["notices"][0]["text"]
        seen.append(body["reading"]["done"])
    assert seen[-1] < 12
    # THEN its tables are no CSV yet
    assert client.get(f"{ASK}&format=csv&section=ranks", headers=EARLY).status_code == 202
    gate.open()
    until(lambda: client.get(f"{ASK}&wait=30").status_code == 200)
    body = client.get(ASK, headers=EARLY).get_json()
    assert "reading" not in body and body["sections"][0]["values"]["workers_read"] == 10
    answer = client.get(f"{ASK}&format=csv&section=ranks", headers=EARLY)
    assert answer.status_code == 200 and answer.text.count("\r\n") == 21


def test_comparing_by_another_measure_reads_no_file(read: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a run that was read WHEN it is compared by another measure THEN no recording is opened, and the answer is at once
    assert read.get(f"{ASK}&wait=30").status_code == 200
    monkeypatch.setattr(reductions, "open_here", None)
    for what in ("exposed", "bytes", "bandwidth", "host"):
        assert read.get(f"{ASK}&what={what}").status_code == 200


def test_stopping_a_run(client: FlaskClient, gate: Gate) -> None:
    # GIVEN a run that is being read WHEN it is stopped THEN there is nothing left to stop; the next question reads it anew
    assert client.get(ASK).status_code == 409
    assert client.post("/api/v1/cancel?run=job").get_json()["done"] is True
    assert client.post("/api/v1/cancel?run=job").get_json()["done"] is False
    gate.open()
    until(lambda: client.get(f"{ASK}&wait=30").status_code == 200)


@pytest.mark.parametrize("others", [False, True])
def test_a_page_that_leaves_ends_the_reading_unless_others_wait(
    client: FlaskClient, gate: Gate, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    # GIVEN a run that is being read for a page WHEN the page leaves, and another one asks again or nobody does
    monkeypatch.setattr(reductions, "LEAVING_SECONDS", 0.0)
    assert client.post("/api/v1/leave").status_code == 200, "nothing is being read: nothing to leave"
    assert client.get(ASK).status_code == 409
    assert client.post("/api/v1/leave").get_json()["done"] is True
    assert not others or client.get(ASK).status_code == 409
    gate.open()
    # THEN the rest is read only where somebody waits; what was being read is read to its end
    results = client.application.extensions["sol"].store.partial_results  # type: ignore[attr-defined]

    def read_at_rest() -> int:
        with results._news:  # between a job and its outcome nothing is queued or running either
            return 0 if results._running or results._queue else len(results._on_disk)

    read = until(read_at_rest)
    assert read >= 10 if others else read < 10


def test_wrong_fields_and_runs_are_errors(read: FlaskClient) -> None:
    assert read.get(f"{ASK}&what=color").status_code == 400
    assert read.get("/api/v1/analysis/memcpy_ranks?run=no").status_code == 404
    answer = read.get(f"{ASK}&step=99&wait=30")
    assert answer.status_code == 400 and answer.get_json()["error"]["field"] == "step"


def test_the_catalog_knows_how_many_workers_there_are(read: FlaskClient) -> None:
    # GIVEN a run of many and a run of one THEN the page is offered for the first and says for the second what it takes
    def entry(run: str, worker: str) -> dict[str, object]:
        body = read.get(f"/api/v1/analyses?run={run}&worker={worker}&wait=30").get_json()
        found: dict[str, object] = next(a for a in body["analyses"] if a["name"] == "memcpy_ranks")
        return found

    many, one = entry("job", "rank0"), entry("lone", "rank0")
    assert many["available"] is True and many["under"] == "memcpy"
    assert one["available"] is False and "one worker here" in str(one["because"]) and "worker_name" in str(one["argument"])
    body = read.get("/api/v1/analysis/memcpy_ranks?run=lone&wait=30").get_json()
    assert body["available"] is False and body["because"] == one["because"]


def test_a_broken_first_worker_does_not_stand_in_the_way(tmp_path: Path) -> None:
    # GIVEN three ranks of which the first is an empty file THEN the two others are compared
    folder = tmp_path / "logs" / "job"
    for rank in (1, 2):
        rank_trace(rank, world=3).write(folder / f"rank{rank}.1.pt.trace.json.gz")
    (folder / "rank0.1.pt.trace.json.gz").write_bytes(b"")
    with served(tmp_path / "logs", tmp_path / "cache") as client:
        answer = client.get(f"{ASK}&wait=30")
        assert answer.status_code == 200 and answer.get_json()["sections"][0]["values"]["workers_read"] == 2
        # WHEN it is the one that is selected THEN the pages over ranks are offered, and name it; others say why they are not
        offered = {one["name"]: one for one in client.get("/api/v1/analyses?run=job&worker=rank0&wait=30").get_json()["analyses"]}
        assert all(offered[name]["available"] for name in ("ranks", "clocks", "memcpy_ranks", "scaling"))
        assert not offered["overview"]["available"] and "cannot be read" in offered["overview"]["because"]
        answer = client.get(f"{ASK}&worker=rank0&wait=30").get_json()
        assert "`rank0`" in answer["notices"][0]["text"] and answer["sections"][0]["values"]["workers_read"] == 2


def test_a_run_without_a_readable_file_says_so(tmp_path: Path) -> None:
    for rank in range(3):
        path = tmp_path / "logs" / "dead" / f"rank{rank}.1.pt.trace.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("no")
    with served(tmp_path / "logs", tmp_path / "cache") as client:
        body = client.get("/api/v1/analysis/memcpy_ranks?run=dead&wait=30").get_json()
    assert body["available"] is False and "none of the 3 workers can be read" in body["because"]


