"""Reports over the workers of a run, on HTTP: early answers, loading, caching, stopping, what cannot be read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.store import reductions
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.ranks import rank_trace, write_run

EARLY = {"Prefer": "respond-async"}
ASK = "/api/v1/analysis/memcpy_ranks?run=job"


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    write_run(tmp_path / "logs" / "job")
    rank_trace(0, world=1).write(tmp_path / "logs" / "lone" / "rank0.1.pt.trace.json")
    return tmp_path / "logs"


@pytest.fixture
def store(logdir: Path, tmp_path: Path) -> Iterator[Store]:
    with ThreadPoolExecutor(1) as pool:
        made = Store(single(str(logdir)), StoreOptions(cache_dir=str(tmp_path / "cache")), executor=pool)
        yield made
        made.close()


@pytest.fixture
def client(store: Store) -> FlaskClient:
    return create_app(store, WebOptions(first_wait=0.05)).test_client()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = reductions.open_here

    def slowly(*args: object) -> object:
        time.sleep(0.2)
        return plain(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(reductions, "open_here", slowly)


def test_the_whole_run_in_one_answer(client: FlaskClient) -> None:
    # GIVEN a run of twelve workers WHEN asked for with a wait THEN all readable ones are in one report, the broken ones in a table
    answer = client.get(f"{ASK}&wait=30")
    body = answer.get_json()
    assert answer.status_code == 200 and body["available"] and "reading" not in body
    tables = {s["id"]: s["data"] for s in body["sections"] if s["kind"] == "table"}
    assert len(tables["ranks"]["rank"]) == 20 and tables["left_out"]["worker"] == ["rank8", "rank9"]
    assert body["selection"]["run"] == "job" and "ETag" in answer.headers
    # THEN it is known the next time
    assert client.get(ASK, headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304


def test_a_script_gets_no_half_answer(client: FlaskClient, slow: None) -> None:
    # GIVEN workers that take a while WHEN a script asks THEN it is told to ask again, with how far it is, until all are there
    answer = client.get(ASK)
    body = answer.get_json()
    assert answer.status_code == 409 and body["error"]["code"] == "still_loading" and answer.headers["Retry-After"] == "1"
    assert body["progress"]["stage"] == "0 of 12 workers" and body["progress"]["bytes"] == 0 < body["progress"]["total"]
    later = client.get(f"{ASK}&wait=0.5")
    assert later.status_code == 409 and 0 < later.get_json()["progress"]["bytes"] < later.get_json()["progress"]["total"]
    assert client.get(f"{ASK}&format=csv&section=ranks").status_code == 409
    assert client.get(f"{ASK}&wait=30").status_code == 200


def test_the_page_gets_what_there_is(client: FlaskClient, slow: None) -> None:
    # GIVEN the same WHEN the page asks THEN first it is told to wait, then it gets reports that say how much they speak of, then the whole
    assert client.get(ASK, headers=EARLY).status_code == 202
    seen = []
    while True:
        answer = client.get(f"{ASK}&wait=0.3", headers=EARLY)
        if answer.status_code == 202:
            continue
        assert answer.status_code == 200
        body = answer.get_json()
        if "reading" not in body:
            break
        assert answer.headers["Cache-Control"] == "no-store" and "Prefer" in answer.headers["Vary"]
        assert body["reading"]["total"] == 12 and f"{body['reading']['done']} of 12 workers" in body["notices"][0]["text"]
        seen.append(body["reading"]["done"])
    assert seen and seen == sorted(seen) and seen[-1] < 12
    assert body["sections"][0]["values"]["workers_read"] == 10


def test_no_csv_of_a_part_of_the_workers(client: FlaskClient, slow: None) -> None:
    client.get(f"{ASK}&wait=0.6")
    assert client.get(f"{ASK}&format=csv&section=ranks", headers=EARLY).status_code == 202
    answer = client.get(f"{ASK}&format=csv&section=ranks&wait=30", headers=EARLY)
    assert answer.status_code == 200 and answer.text.count("\r\n") == 21


def test_another_measure_reads_nothing(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a run that was read WHEN it is compared by another measure THEN no recording is opened, and the answer is at once
    assert client.get(f"{ASK}&wait=30").status_code == 200
    monkeypatch.setattr(reductions, "open_here", None)
    for what in ("exposed", "bytes", "bandwidth", "host"):
        assert client.get(f"{ASK}&what={what}").status_code == 200


def test_stopping_a_run(client: FlaskClient, store: Store, slow: None) -> None:
    assert client.get(ASK).status_code == 409
    assert client.post("/api/v1/cancel?run=job").get_json()["done"] is True
    assert client.post("/api/v1/cancel?run=job").get_json()["done"] is False
    assert not store.gather._queue
    assert client.get(f"{ASK}&wait=30").status_code == 200


def test_bad_queries(client: FlaskClient) -> None:
    assert client.get(f"{ASK}&what=color").status_code == 400
    assert client.get("/api/v1/analysis/memcpy_ranks?run=no").status_code == 404
    answer = client.get(f"{ASK}&step=99&wait=30")
    assert answer.status_code == 400 and answer.get_json()["error"]["field"] == "step"


def test_the_catalog_knows_how_many_workers_there_are(client: FlaskClient) -> None:
    # GIVEN a run of many and a run of one THEN the page is offered for the first and says for the second what it takes
    def entry(run: str, worker: str) -> dict[str, object]:
        body = client.get(f"/api/v1/analyses?run={run}&worker={worker}&wait=30").get_json()
        found: dict[str, object] = next(a for a in body["analyses"] if a["name"] == "memcpy_ranks")
        return found

    many, one = entry("job", "rank0"), entry("lone", "rank0")
    assert many["available"] is True and many["under"] == "memcpy"
    assert one["available"] is False and "one worker here" in str(one["because"]) and "worker_name" in str(one["argument"])
    body = client.get("/api/v1/analysis/memcpy_ranks?run=lone&wait=30").get_json()
    assert body["available"] is False and body["because"] == one["because"]


def test_a_broken_first_worker_does_not_stand_in_the_way(logdir: Path, client: FlaskClient) -> None:
    (logdir / "job" / "again_rank3.1700000000000000000.pt.trace.json.gz").write_bytes(b"")
    answer = client.get(f"{ASK}&wait=30")
    assert answer.status_code == 200 and answer.get_json()["sections"][0]["values"]["workers_read"] == 9


def test_of_a_run_that_nobody_can_read_the_reason(logdir: Path, client: FlaskClient) -> None:
    folder = logdir / "dead"
    folder.mkdir()
    for rank in range(3):
        (folder / f"rank{rank}.1.pt.trace.json").write_text("no")
    body = client.get("/api/v1/analysis/memcpy_ranks?run=dead&wait=30").get_json()
    assert body["available"] is False and "none of the 3 workers can be read" in body["because"]
