"""Search over the names of a recording, and what the list of runs knows of each run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.ingest import read
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.store import seal
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tb_sol_plugin.web.search import MOST, search
from tests.support.trace_builder import TraceBuilder

HOSTILE = 'void k<a, b\\c>("<img src=x onerror=alert(1)>&t.x=1")'


def written(path: Path) -> Path:
    trace = TraceBuilder()
    trace.step(1, 1_000, 90_000)
    trace.op("aten::mm", 2_000, 3_000)
    trace.launch("gemm_large", at=2_100, start=5_000, duration=9_000)
    trace.launch("gemm_large", at=2_500, start=15_000, duration=1_000)
    trace.op("aten::add", 20_000, 500)
    trace.launch(HOSTILE, at=20_100, start=21_000, duration=4_000)
    for i in range(MOST + 3):
        trace.launch(f"tiny_{i}", at=30_000 + 1_000 * i, start=30_500 + 1_000 * i, duration=10 + i)
    path.parent.mkdir(parents=True, exist_ok=True)
    return trace.write(path)


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return read(str(written(tmp_path / "worker.pt.trace.json")))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FlaskClient]:
    for run in ("a", "b"):
        written(tmp_path / "logs" / run / "worker.1.pt.trace.json")
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "cache")), executor=pool)
        store.rescan()
        yield create_app(store, WebOptions()).test_client()


def test_a_search_finds_every_name_with_all_words_in_any_case_and_its_time(capture: Capture) -> None:
    # WHEN two words are searched for, in another case and order
    found = search(capture, "LARGE gemm")

    # THEN the kernel is found with the sum over its calls, and its link filters the page to that one name
    (hit,) = found.hits
    assert (hit.kind, hit.name, hit.ns) == ("kernel", "gemm_large", 10_000)
    assert hit.link.analysis == "kernels" and hit.link.query == {"step": "", "t.kernels.c.name": "gemm_large"}
    assert found.counts["kernel"] == 1 and found.counts["operator"] == 0


def test_times_are_those_of_the_pages_that_the_hits_open(capture: Capture) -> None:
    # GIVEN the tables of the pages
    kernels = capture.analyze("kernels").table("kernels").set_index("name")["total_ns"]
    operators = capture.analyze("operators").table("operators").set_index("name")["device_self_ns"]

    # WHEN everything is listed
    hits = search(capture, "").hits

    # THEN each hit has the time of its row
    assert {h.kind for h in hits} >= {"kernel", "operator"}
    for hit in hits:
        if hit.kind in ("kernel", "operator"):
            assert hit.ns == int((kernels if hit.kind == "kernel" else operators)[hit.name]), hit.name


def test_the_largest_of_each_kind_are_listed_and_all_are_counted(capture: Capture) -> None:
    # WHEN more kernels match than are listed
    found = search(capture, "tiny_")

    # THEN the largest come first, and the count says how many there are
    assert [h.name for h in found.hits] == [f"tiny_{i}" for i in range(MOST + 2, 2, -1)]
    assert found.counts["kernel"] == MOST + 3
    # AND a name that is the query itself comes first, however small it is
    assert search(capture, "tiny_1").hits[0].name == "tiny_1"


def test_a_name_with_commas_backslashes_and_markup_comes_whole_in_its_link(capture: Capture) -> None:
    (hit,) = search(capture, "onerror").hits
    assert hit.name == HOSTILE
    assert hit.link.query["t.kernels.c.name"] == HOSTILE.replace("\\", "\\\\").replace(",", "\\,")


def test_nothing_found_and_a_query_without_end_are_answers(capture: Capture) -> None:
    assert search(capture, "no such name").hits == []
    assert len(search(capture, "x" * 100_000).query) == 200


def test_the_route_answers_json_and_refuses_what_it_does_not_know(client: FlaskClient) -> None:
    body = client.get("/api/v1/search?run=a&q=gemm&wait=20").get_json()
    assert [h["name"] for h in body["hits"] if h["kind"] == "kernel"] == ["gemm_large"] and body["query"] == "gemm"
    assert client.get("/api/v1/search?run=a&what=1").status_code == 400
    assert client.get("/api/v1/search?run=none&q=gemm").status_code == 404


def test_the_list_of_runs_knows_what_was_opened_and_opens_nothing(client: FlaskClient) -> None:
    # GIVEN two runs that nobody opened
    first = client.get("/api/v1/summaries").get_json()["runs"]
    assert [r["run"] for r in first] == ["a", "b"]
    assert all(r["mtime"] > 0 and r["device"] == "" and r["step_ns"] is None and r["ratio"] is None for r in first)
    states = [r["workers"][0]["spans"][0]["state"] for r in client.get("/api/v1/runs").get_json()["runs"]]
    assert states[1] in ("new", "queued"), "asking for summaries reads no file"

    # WHEN the overview of one is made
    overview = client.get("/api/v1/analysis/overview?run=a&wait=20").get_json()
    values = {k: v for s in overview["sections"] if s["kind"] == "facts" for k, v in s["values"].items()}

    # THEN its device, step and ratio are those of the overview; the other run is as unknown as before
    one, other = client.get("/api/v1/summaries").get_json()["runs"]
    assert one["device"] and one["step_ns"] == values["step_ns"] and not one["whole"]
    assert one["ratio"] == values.get("speed_of_light")
    assert other == first[1]


def test_what_another_version_noted_is_unknown(client: FlaskClient, tmp_path: Path) -> None:
    # GIVEN a run whose overview was noted
    client.get("/api/v1/analysis/overview?run=a&wait=20")
    (note,) = (tmp_path / "cache").glob("**/note.json")
    # WHEN another version wrote the note, or a broken one
    name = f"{note.parent.name}/note"
    kept = json.loads(seal.unsealed(note.read_bytes(), name) or b"")
    for body in (seal.sealed(json.dumps(kept | {"made_with": "0.0"}).encode(), name), seal.sealed(b"{", name), b"{"):
        note.write_bytes(body)
        # THEN step and ratio are unknown, what the facts say stays
        one = client.get("/api/v1/summaries").get_json()["runs"][0]
        assert one["step_ns"] is None and one["ratio"] is None and one["device"]
