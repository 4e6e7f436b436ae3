"""A logdir with SOL captures as the page sees it: what each recording is, which belong together, and what can be asked of them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.store.join import companions
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.sol_builder import small
from tests.support.tiny import trace

CAPTURE = "node1_rank0"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FlaskClient]:
    """Runs: `alone` with a SOL capture, `both` with a trace of the same process beside it, `plain` with a trace."""
    for name in ("alone", "both"):
        b = small()
        b.write(tmp_path / "logs" / name / b.name)
    trace(tmp_path / "logs" / "both" / "node1_4242.1700000000000000000.pt.trace.json")
    trace(tmp_path / "logs" / "plain" / "worker0.pt.trace.json")
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "cache")), executor=pool)
        yield create_app(store, WebOptions()).test_client()


def spans(client: FlaskClient) -> dict[tuple[str, str], dict[str, object]]:
    client.post("/api/v1/rescan")
    runs = client.get("/api/v1/runs").get_json()["runs"]
    return {(r["name"], w["name"]): s for r in runs for w in r["workers"] for s in w["spans"]}


def ask(client: FlaskClient, path: str, **query: str) -> dict[str, object]:
    for _ in range(20):  # a busy machine may compile loops for longer than one wait
        answer = client.get(f"/api/v1/{path}?{urllib.parse.urlencode({'wait': '20', **query})}")
        if answer.status_code != 409:
            break
    assert answer.status_code == 200, answer.get_data(as_text=True)
    body = answer.get_json()
    assert isinstance(body, dict)
    return body


def test_each_recording_says_what_it_is_and_what_stands_beside_it(client: FlaskClient) -> None:
    # GIVEN the three runs WHEN they are listed THEN kinds are told, and the two of one process name each other
    found = spans(client)
    assert {key: s["kind"] for key, s in found.items()} == {
        ("alone", CAPTURE): "sol_capture", ("both", CAPTURE): "sol_capture", ("both", "node1_4242"): "kineto", ("plain", "worker0"): "kineto",
    }  # fmt: skip
    capture, trace_ = found["both", CAPTURE]["companion"], found["both", "node1_4242"]["companion"]
    assert isinstance(capture, dict) and capture["worker"] == "node1_4242" and capture["span"] == "1700000000000000000"
    assert isinstance(trace_, dict) and trace_["worker"] == CAPTURE and str(trace_["file"]).endswith(".sol.jsonl")
    assert found["alone", CAPTURE]["companion"] is None and found["plain", "worker0"]["companion"] is None


def test_pages_that_a_capture_cannot_fill_say_why_and_how_to_record(client: FlaskClient) -> None:
    # GIVEN a SOL capture alone WHEN its pages are listed
    pages = {a["name"]: a for a in ask(client, "analyses", run="alone")["analyses"]}  # type: ignore[attr-defined]
    # THEN the pages of work and time are there, and those of kernels and copies name what is missing and how to have it
    assert list(pages) == list(registry())
    assert all(
        pages[name]["available"] for name in ("overview", "findings", "steps", "iterations", "modules", "phases", "roofline", "health")
    )
    for name in ("gpu_breakdown", "kernels", "memcpy_findings", "operators", "links"):
        if name in ("operators", "links"):
            assert not pages[name]["available"] and "in a SOL capture" in pages[name]["because"], name
            assert "profile=True" in pages[name]["record_it_with"]
        else:
            assert not pages[name]["available"] and "the job ran on a CPU" in pages[name]["because"], name
        assert ask(client, f"analysis/{name}", run="alone")["available"] is False
    # AND copies that this recorder did not count say so
    copies = pages["memcpy"]
    assert not copies["available"] and copies["because"] == "copies were not counted" and "copies=True" in copies["record_it_with"]


def test_every_page_answers_on_a_capture_and_beside_a_trace(client: FlaskClient) -> None:
    # GIVEN a capture, and a trace with one beside it WHEN every page is asked for THEN none fails, and text and CSV come too
    for query in ({"run": "alone"}, {"run": "both", "worker": "node1_4242"}, {"run": "both", "worker": CAPTURE}):
        for name in registry():
            body = ask(client, f"analysis/{name}", **query)
            assert body["available"] in (True, False), name
            csv = client.get(f"/api/v1/analysis/{name}?{urllib.parse.urlencode({**query, 'format': 'csv'})}")
            assert csv.status_code == 200, name


def test_iterations_are_there_where_a_capture_is(client: FlaskClient) -> None:
    # GIVEN the trace beside a capture, and the trace alone WHEN iterations are asked for THEN only the first has them
    assert ask(client, "analysis/iterations", run="both", worker="node1_4242")["available"] is True
    plain = ask(client, "analysis/iterations", run="plain")
    assert plain["available"] is False and "sol.capture" in str(plain["record_it_with"])


def test_a_capture_that_grows_is_answered_anew(tmp_path: Path) -> None:
    # GIVEN a trace with a SOL capture of three iterations beside it, both on the page
    b = small()
    b.records.pop()
    path = b.write(tmp_path / "logs" / "both" / b.name)
    trace(tmp_path / "logs" / "both" / "node1_4242.1700000000000000000.pt.trace.json")
    with ThreadPoolExecutor(1) as pool:
        client = create_app(Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=""), executor=pool), WebOptions()).test_client()
        query = {"run": "both", "worker": "node1_4242"}
        before = ask(client, "analysis/iterations", **query)
        # WHEN an iteration is added to its file THEN the same question has four
        b.iteration(3, 26_000_000, 8_000_000)
        b.write(path)
        client.post("/api/v1/rescan")
        after = ask(client, "analysis/iterations", **query)
    assert [str(r["headline"]).split(" ")[0] for r in (before, after)] == ["3", "4"]


def test_pairs_of_a_large_run_are_found_at_once() -> None:
    # GIVEN 300 ranks with a trace and a capture each WHEN pairs are sought THEN each trace has the capture of its rank, and back
    made = []
    for rank in range(300):
        made.append(Recording("r", f"n_rank{rank}", "1", "", f"r/n_rank{rank}_7_1.sol.jsonl", 1, 0.0, "sol_capture"))
        made.append(Recording("r", f"rank{rank}_99", "1", "", f"r/rank{rank}_99.1.pt.trace.json", 1, 0.0))
    pairs = companions(tuple(made))
    assert len(pairs) == 600
    assert all(pairs[made[2 * r]] == made[2 * r + 1] and pairs[made[2 * r + 1]] == made[2 * r] for r in range(300))


def test_the_bytes_of_a_capture_in_parts_are_those_of_all_its_files(client: FlaskClient, tmp_path: Path) -> None:
    # GIVEN a SOL capture that went on in a second file WHEN its bytes are asked for
    first = next((tmp_path / "logs" / "alone").iterdir())
    second = first.with_name(first.name.replace(".sol.jsonl", ".part1.sol.jsonl"))
    small(part=1).write(second)
    client.post("/api/v1/rescan")
    answer = client.get("/api/v1/trace?run=alone")
    # THEN both files come after each other, as long as announced
    assert answer.data == first.read_bytes() + second.read_bytes()
    assert int(answer.headers["Content-Length"]) == len(answer.data)
    assert first.name in answer.headers["Content-Disposition"]
