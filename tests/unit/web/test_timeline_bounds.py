"""Whatever a recording holds, answers of the timeline stay below their bound, say what they leave out, and take one pass over its lanes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.metrics.timeline.tracks import LONGEST_LABEL
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.tables import pyramid
from tb_sol_plugin.tables.pyramid import MANY_LANES
from tb_sol_plugin.web import timeline
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.trace_builder import TraceBuilder

MOST, ROOM = 60_000, 2_000
NAMES, THREADS, STEPS, DEEP = 60, 70, 300, MANY_LANES + 200
LONG = "x" * 9_000


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names of 9,000 characters, on as many threads; steps; and a run whose calls are nested deeper than lanes are looked at one by one."""
    folder = tmp_path_factory.mktemp("bounds")
    t = TraceBuilder()
    for i in range(STEPS):
        t.step(i, i * 10_000, 9_000)
    for i in range(NAMES):
        t.op(f"op{i}{LONG}", i * 10_000 + 100, 900)
        t.launch(f"kernel{i}{LONG}{i}", at=i * 10_000 + 150, start=i * 10_000 + 500, duration=50)
    for i in range(THREADS):
        t.op("small", 5_000 + i, 100, thread=1_000 + i)
        t.metadata("thread_name", f"{i}{LONG}{i}", tid=1_000 + i)
    t.write(folder / "logs" / "long" / "w.1.pt.trace.json")
    t = TraceBuilder()
    for i in range(DEEP):
        t.op(f"aten::n{i % 7}", i, 4 * DEEP - 2 * i)
    t.write(folder / "logs" / "deep" / "w.1.pt.trace.json")
    return folder


@pytest.fixture(scope="module")
def client(logdir: Path) -> Iterator[FlaskClient]:
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(logdir / "logs")), StoreOptions(cache_dir=str(logdir / "cache")), executor=pool)
        yield create_app(store, WebOptions()).test_client()
        store.close()


def ask(client: FlaskClient, path: str, **query: object) -> Any:
    return client.get(f"/api/v1/timeline{path}", query_string={"run": "long", "wait": 20, **query})


def test_lists_of_events_have_short_names_and_one_event_has_all_of_its_name(client: FlaskClient) -> None:
    # GIVEN events whose names have 9,000 characters WHEN listed, searched, linked THEN each is cut in the middle, and none is another's
    shown = ask(client, "").json
    stream = next(t for t in shown["tracks"] if t["kind"] == "stream")
    listed = ask(client, "/events", track=stream["track"]).json["events"]
    found = ask(client, "/search", text="kernel", tracks=stream["track"], limit=1_000).json["hits"]
    flows = ask(client, "/flows").json["flows"]
    for names in ([e["name"] for e in listed], [e["name"] for e in found], [f["target"]["name"] for f in flows]):
        assert len(names) == len(set(names)) == NAMES and max(map(len, names)) < 1_600
    one = ask(client, "/event", track=listed[3]["track"], event=listed[3]["event"]).json
    assert one["name"] == f"kernel3{LONG}3"
    # AND rows have labels and paths that a page can hold
    for track in shown["tracks"]:
        assert len(track["label"]) <= LONGEST_LABEL and len(track["path"]) < 4 * LONGEST_LABEL
    assert len({t["path"] for t in shown["tracks"]}) == len(shown["tracks"]) and shown["notice"] == ""


def test_links_of_many_events_are_those_of_each(client: FlaskClient) -> None:
    stream = next(t for t in ask(client, "").json["tracks"] if t["kind"] == "stream")["track"]
    events = [e["event"] for e in ask(client, "/events", track=stream).json["events"]][:9]
    together = ask(client, "/flows", events=",".join(f"{stream}:{e}" for e in events)).json
    each = [flow for e in events for flow in ask(client, "/flows", events=f"{stream}:{e}").json["flows"]]
    assert together["total"] == len(each) == 9
    assert sorted(together["flows"], key=repr) == sorted(each, key=repr)


def test_an_answer_above_its_bound_says_what_it_leaves_out(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a bound of 60 kB in place of 20 MB
    names = ask(client, "/names").json
    monkeypatch.setattr(timeline, "MOST_ANSWER", MOST)
    monkeypatch.setattr(timeline, "ROOM", ROOM)
    monkeypatch.setattr(timeline, "_ROOM", 15_000)
    client.application.extensions["sol"].memo._kept.clear()
    # WHEN asked THEN every answer is below it; rows are the first ones, so that each parent is there
    reply = ask(client, "")
    shown = reply.json
    assert len(reply.data) < MOST
    numbers = [t["track"] for t in shown["tracks"]]
    assert numbers == list(range(len(numbers))) and all(t["parent"] < t["track"] for t in shown["tracks"])
    assert 0 < len(shown["steps"]) < STEPS and 0 < len(numbers) < THREADS
    assert f"{STEPS - len(shown['steps'])} of {STEPS} steps" in shown["notice"]
    # AND of the names each keeps its begin and its end
    cut = ask(client, "/names")
    assert len(cut.data) < MOST and cut.json["categories"] == names["categories"]
    for short, name in zip(cut.json["names"], names["names"], strict=True):
        begin, _, end = short.partition("…")
        assert short == name or (name.startswith(begin) and name.endswith(end) and end)
    # AND where not even that is enough the last names are missing
    monkeypatch.setattr(timeline, "MOST_ANSWER", ROOM + 700)
    client.application.extensions["sol"].memo._kept.clear()
    few = ask(client, "/names")
    assert 0 < len(few.json["names"]) == len(few.json["categories"]) < len(names["names"]) and len(few.data) < ROOM + 700
    client.application.extensions["sol"].memo._kept.clear()


@pytest.mark.parametrize("form", ["json", "binary"])
def test_tiles_above_the_bound_are_refused_with_what_to_do(client: FlaskClient, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(timeline, "MOST_ANSWER", ROOM + 900)
    monkeypatch.setattr(timeline, "ROOM", ROOM)
    reply = ask(client, "/tiles", z=4, i="0-7", tracks="0-60", format=form)
    assert reply.status_code == 400 and reply.json["error"]["field"] == "tracks" and "ask for fewer" in reply.json["error"]["hint"]


def test_deep_calls_are_looked_at_in_one_pass(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN calls nested hundreds deep, each in a lane of its own WHEN tiles, events and one event are asked for
    monkeypatch.setattr(pyramid, "_reaching", lambda *_: pytest.fail("lanes one after the other"))
    deep = {"run": "deep"}
    track = next(t for t in ask(client, "", **deep).json["tracks"] if t["kind"] == "thread")
    assert track["lanes"] == DEEP
    (block,) = ask(client, "/tiles", z=0, i=0, tracks=track["track"], format="json", **deep).json["blocks"]
    # THEN each is there, in its lane, at its time
    assert block["lanes"] == [1] * DEEP and block["start_ns"] == list(range(DEEP))
    listed = ask(client, "/events", track=track["track"], limit=1_000, **deep).json["events"]
    assert [(e["lane"], e["start_ns"], e["duration_ns"]) for e in listed] == [(i, i, 4 * DEEP - 2 * i) for i in range(DEEP)]
    near = ask(client, "/event", track=track["track"], start_ns=500, duration_ns=4 * DEEP - 1_000 + 1, **deep).json
    assert (near["start_ns"], near["exact"], near["depth"]) == (500, False, 500)
