"""Reports over two recordings, on HTTP: loading, caching, wrong names, what the other one lacks, a file that grows."""

from __future__ import annotations

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
from tests.support.memory_ranks import MB, rank_trace
from tests.support.trace_builder import TraceBuilder
from tests.support.waiting import Gate, until

ASK = "/api/v1/analysis/memory_compare?run=job/a"
NAME = "1700000000000000000.pt.trace.json.gz"


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """Two runs of two ranks, and one without memory."""
    for run, peaks in (("job/a", (500, 500)), ("job/b", (300, 500))):
        for rank, peak in enumerate(peaks):
            rank_trace(rank, 2, peak=peak * MB).write(tmp_path / "logs" / run / f"rank{rank}.{NAME}")
    bare = TraceBuilder()
    bare.op("aten::mm", 0, 10)
    bare.write(tmp_path / "logs" / "plain" / f"w.{NAME}")
    return tmp_path / "logs"


@pytest.fixture
def client(logdir: Path, tmp_path: Path) -> Iterator[FlaskClient]:
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(logdir)), StoreOptions(cache_dir=str(tmp_path / "cache"), fresh_seconds=0), executor=pool)
        yield create_app(store, WebOptions(first_wait=0.05)).test_client()
        store.close()


def test_the_same_rank_of_the_other_run_is_chosen(client: FlaskClient) -> None:
    # GIVEN two runs in a folder WHEN nothing is said of the other one THEN it is the same rank of the other run
    answer = client.get(f"{ASK}&wait=30")
    body = answer.get_json()
    facts = next(s for s in body["sections"] if s["kind"] == "facts")["values"]
    assert answer.status_code == 200 and (facts["peak_delta_bytes"], facts["other_run"]) == (-200 * MB, "job/b")
    assert body["fields"]["other_run"] == {"value": "job/b", "values": ["job/a", "job/b", "plain"]}
    assert body["fields"]["other_worker"] == {"value": "rank0", "values": ["rank0", "rank1"]}
    # THEN it is known the next time, and a table of it is CSV
    assert client.get(ASK, headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304
    csv = client.get(f"{ASK}&format=csv&section=held")
    assert csv.mimetype == "text/csv" and csv.get_data(as_text=True).startswith("name,delta,a,b,")


def test_while_files_are_read_the_answer_says_how_many(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN files that are being read THEN the request says how many of the two are read; the page gets no failure
    gate = Gate().guard(monkeypatch, reductions, "open_here")
    answer = client.get(ASK)
    assert answer.status_code == 409 and answer.get_json()["progress"]["stage"] == "0 of 2 recordings"
    assert client.get(ASK, headers={"Prefer": "respond-async"}).status_code == 202
    gate.open()
    assert until(lambda: client.get(f"{ASK}&wait=30").status_code == 200)


def test_while_the_baseline_is_read_the_answer_says_how_far(logdir: Path, tmp_path: Path) -> None:
    # GIVEN a recording that is open, and a baseline whose reader is busy THEN it is the baseline that is named and waited for
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(logdir)), StoreOptions(cache_dir=str(tmp_path / "cache"), fresh_seconds=0), executor=pool)
        client, gate = create_app(store, WebOptions(first_wait=0.0)).test_client(), Gate()
        ask = "api/v1/analysis/operators?run=job/a&worker=rank0"
        assert client.get(f"{ask}&wait=30").status_code == 200
        pool.submit(gate.wait)
        body = client.get(f"{ask}&base=job/b").get_json()
        gate.open()
        assert body["error"]["code"] == "still_loading" and body["progress"]["of"] == "b" and body["progress"]["total"] > 0
        store.close()


@pytest.mark.parametrize(("more", "status", "field"), [
    ("other_run=nope", 404, "other_run"), ("other_run=job/b&other_worker=rank9", 404, "other_worker"), ("other_span=x", 404, "other_span"),
    ("other_run=job/a&other_worker=rank0", 400, "other_worker"), ("by=color", 400, "by"), ("other=job/b", 400, "other"),
    ("other_run=/etc", 404, "other_run"), ("other_run=../job/b", 404, "other_run"),
])  # fmt: skip
def test_a_wrong_name_is_an_error_that_names_its_field(client: FlaskClient, more: str, status: int, field: str) -> None:
    # GIVEN a name that is not in the logdir, a path among them THEN the error names the field, and nothing outside is looked at
    answer = client.get(f"{ASK}&wait=30&{more}")
    assert answer.status_code == status and answer.get_json()["error"]["field"] == field


def test_another_recording_without_memory_says_what_to_record(client: FlaskClient) -> None:
    body = client.get(f"{ASK}&wait=30&other_run=plain").get_json()
    assert body["available"] is False and body["because"].startswith("plain") and "profile_memory" in body["argument"]
    assert body["fields"]["other_run"]["value"] == "plain"


def test_the_catalog_says_whether_there_is_a_second_recording(client: FlaskClient, logdir: Path) -> None:
    def available(query: str) -> bool:
        found = client.get(f"/api/v1/analyses?{query}&wait=30").get_json()["analyses"]
        return bool(next(a for a in found if a["name"] == "memory_compare")["available"])

    assert available("run=job/a")
    # GIVEN no second recording that goes with the worker THEN the page is not available, and says why
    assert not available("run=plain")
    body = client.get("/api/v1/analysis/memory_compare?run=plain&wait=30").get_json()
    assert body["available"] is False and "two recordings" in body["because"] and body["selection"]["run"] == "plain"


def test_a_run_that_appeared_after_the_listing_is_found(client: FlaskClient, logdir: Path) -> None:
    # GIVEN a listing that was made WHEN a run appears after it and is named THEN it is found
    assert client.get(f"{ASK}&wait=30").status_code == 200
    rank_trace(0, 2, peak=450 * MB).write(logdir / "job" / "c" / f"rank0.{NAME}")
    until(lambda: client.get(f"{ASK}&wait=30&other_run=job/c").status_code == 200)
    assert "50.0" in client.get(f"{ASK}&other_run=job/c").get_json()["headline"]


def test_a_page_is_set_against_a_baseline(client: FlaskClient) -> None:
    # GIVEN two runs WHEN a page names a baseline THEN it has the differences, of each baseline its own, and so have the rows of its tables
    ask = "/api/v1/analysis/memory?run=job/a&wait=30"
    plain, body = client.get(ask).get_json(), client.get(f"{ask}&base=job/b").get_json()
    assert (body["selection"]["base"], body["selection"]["base_worker"]) == ("job/b", "rank0") and "base" not in plain["selection"]
    assert next(s for s in body["sections"] if s["id"] == "answer")["base"]["peak_bytes"] == 300 * MB
    other = client.get(f"{ask}&base=job/a&base_worker=1").get_json()
    assert next(s for s in other["sections"] if s["id"] == "answer")["base"]["peak_bytes"] == 500 * MB
    rows = client.get(f"{ask.replace('analysis', 'table')}&section=peak&base=job/b").get_json()
    assert sum(v or 0 for v in rows["data"]["bytes_delta"]) == 200 * MB
    # AND a name that is not there, the recording itself, and a page that takes no baseline are said
    assert client.get(f"{ask}&base=nowhere").status_code == 404
    assert client.get(f"{ask}&base=job/a&base_worker=0").get_json()["error"]["code"] == "bad_query"
    assert "compares by itself" in client.get("/api/v1/analysis/trend?run=job/a&base=job/b").get_json()["error"]["message"]
    # AND a page that compares goes from the baseline to the run that is shown: 500 less 300 MB
    facts = next(s for s in client.get(f"{ASK}&base=job/b&wait=30").get_json()["sections"] if s["kind"] == "facts")["values"]
    assert (facts["peak_delta_bytes"], facts["peak_b_bytes"]) == (200 * MB, 500 * MB)
    # AND where the baseline has nothing of it, the page stands alone and says so
    bare = client.get(f"{ask}&base=plain&base_worker=w").get_json()
    assert bare["available"] and any("stands beside it" in n["text"] for n in bare["notices"])
