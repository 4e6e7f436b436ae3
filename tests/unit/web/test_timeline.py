"""The timeline over HTTP: tiles as plain loops say, in both forms; bad requests, stale fingerprints, several workers, links."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.metrics.timeline.events import COMMUNICATION, COMPUTE, OPERATOR
from tb_sol_plugin.metrics.timeline.workers import Workers
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import timeline as web_timeline
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tb_sol_plugin.web.tiles import Block
from tests.support.timeline_reference import decoded, merged, window
from tests.support.trace_builder import TraceBuilder

BASE = 1_700_000_000_000_000_000


def busy_trace(path: Path, seed: int, base_ns: int | None = BASE) -> None:
    """Write a trace of some thousand nested operators, launches, kernels on two streams that overlap, and memory."""
    r = random.Random(seed)
    t = TraceBuilder(base_ns=base_ns)
    t.step(1, 0, 4_000_000)
    at = 100
    for i in range(400):
        t.op(f"aten::op{i % 7}", at, 5_000)
        t.launch(
            f"kernel{i % 11}", at=at + 50, start=at + r.randrange(2_000, 9_000), duration=r.choice([3, 40, 900, 30_000]), stream=7 + i % 2
        )
        if i % 5 == 0:
            t.memory(at, 512, allocated=512 * (i + 1), reserved=10**6)
        at += 9_000
    t.write(path)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    root = tmp_path_factory.mktemp("timeline")
    (root / "logs" / "job").mkdir(parents=True)
    busy_trace(root / "logs" / "job" / "rank0.1.pt.trace.json", 1)
    busy_trace(root / "logs" / "job" / "rank1.1.pt.trace.json", 2, BASE + 1_500)
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(root / "logs")), StoreOptions(cache_dir=str(root / "cache")), executor=pool)
        yield create_app(store, WebOptions()).test_client()
        store.close()


def get(client: FlaskClient, path: str, **query: object) -> Any:
    reply = client.get(f"/api/v1/timeline{path}", query_string={"run": "job", "worker": "rank0", "wait": 20, **query})
    assert reply.status_code == 200, reply.text
    return reply.json


def binary(client: FlaskClient, **query: object) -> list[dict[str, Any]]:
    reply = client.get("/api/v1/timeline/tiles", query_string={"run": "job", "worker": "rank0", "wait": 20, **query})
    assert reply.status_code == 200, reply.text
    return decoded(reply.data)


def tracks(client: FlaskClient, kind: str, **query: object) -> list[dict[str, Any]]:
    return [t for t in get(client, "", **query)["tracks"] if t["kind"] == kind]


def test_tiles_are_what_plain_loops_find_in_the_events(client: FlaskClient) -> None:
    # GIVEN all events of each thread and stream
    shown = get(client, "")
    names = get(client, "/names")["names"]
    for track in (t for t in shown["tracks"] if t["kind"] in ("thread", "stream")):
        listed: list[dict[str, Any]] = []
        cursor = "0"
        while cursor:
            page = get(client, "/events", track=track["track"], cursor=cursor, limit=700)
            listed, cursor = listed + page["events"], page["cursor"]
        assert len(listed) == track["events"] == page["total"]
        lanes = [[(e["start_ns"], e["duration_ns"], e["event"]) for e in listed if e["lane"] == lane] for lane in range(track["lanes"])]
        name_of = {e["event"]: e["name"] for e in listed}
        for z in (0, 4, 8, 11, 13):
            wide = 1 << (z + 10)
            for i in sorted({0, 1, (track["last_ns"] - 1) // wide}):
                want = [window(merged(own, z), i * wide, (i + 1) * wide) for own in lanes]
                flat = [item for own in want for item in own]
                # THEN the tile has them as JSON, exactly
                (block,) = get(client, "/tiles", z=z, i=i, tracks=track["track"], format="json")["blocks"]
                assert list(zip(*(block[c] for c in ("start_ns", "end_ns", "event", "count", "busy_ns")), strict=True)) == flat
                assert [names[n] for n in block["name"]] == [name_of[item[2]] for item in flat]
                assert block["lanes"] == [len(own) for own in want]
                # AND as bytes, within a unit
                (packed,) = binary(client, z=z, i=i, tracks=track["track"])
                unit, begin = 1 << packed["shift"], i * wide
                assert (packed["event"], packed["count"], packed["name"]) == (block["event"], block["count"], block["name"])
                assert packed["complete"] == (all(item[3] == 1 for item in flat) and z <= 19)
                for start, end, item in zip(packed["start"], packed["end"], flat, strict=True):
                    assert start == max(item[0] - begin, -wide) // unit * unit
                    assert end == max(min(item[1] - begin, 2 * wide) // unit * unit, start + unit)
                if packed["complete"]:
                    assert unit == 1


def test_counters_and_summaries_agree_in_both_forms(client: FlaskClient) -> None:
    shown = get(client, "")
    for track in (t for t in shown["tracks"] if t["kind"] in ("counter", "device", "process", "worker")):
        for z in (2, 12):
            (block,) = get(client, "/tiles", z=z, i=0, tracks=track["track"], format="json")["blocks"]
            (packed,) = binary(client, z=z, i=0, tracks=track["track"])
            same = ("min", "max", "last", "before") if track["kind"] == "counter" else ("category", "busy", "depth")
            assert {k: packed[k] for k in same} == {k: block[k] for k in same}
            if track["kind"] == "counter":
                assert packed["time"] == block["time_ns"]


def test_several_tiles_and_tracks_come_in_one_answer(client: FlaskClient) -> None:
    found = binary(client, z=10, i="0-2", tracks="0-3")
    assert [(b["i"], b["track"]) for b in found] == [(i, t) for i in range(3) for t in range(4)]


def test_what_is_named_by_its_fingerprint_may_be_kept(client: FlaskClient) -> None:
    # GIVEN the fingerprint of the timeline THEN names and tiles may be kept for good, without it they are asked for again
    print_ = get(client, "")["fingerprint"]
    for path, query in (("names", {}), ("tiles", {"z": 3, "i": 0, "tracks": "0"})):
        for fp, wanted in (({"fp": print_}, "immutable"), ({}, "no-cache")):
            reply = client.get(f"/api/v1/timeline/{path}", query_string={"run": "job", "worker": "rank0", "wait": 20, **query, **fp})
            assert wanted in reply.headers["Cache-Control"] and "Accept-Encoding" in reply.headers["Vary"]
    # AND a stale one is refused, with what to do
    reply = client.get(
        "/api/v1/timeline/tiles", query_string={"run": "job", "worker": "rank0", "wait": 20, "z": 3, "i": 0, "tracks": "0", "fp": "old"}
    )
    assert reply.status_code == 409 and reply.json["error"]["code"] == "changed" and reply.json["error"]["field"] == "fp"
    # AND which one there is now
    assert reply.json["error"]["now"] == print_


def test_a_closed_connection_stops_the_work_at_the_next_track(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the socket of a request, closed by who asked while the first of three tracks is computed
    made: list[int] = []
    ours, theirs = socket.socketpair()
    block = web_timeline.tiles_made

    def counted(workers: Workers, track: int, z: int, first: int, last: int) -> list[Block]:
        made.append(track)
        theirs.close()
        return block(workers, track, z, first, last)

    monkeypatch.setattr(web_timeline, "tiles_made", counted)
    query = {"run": "job", "worker": "rank0", "wait": 20, "z": 9, "i": 5, "tracks": "0-2"}
    asked = {"query_string": query, "environ_overrides": {"werkzeug.socket": ours}}
    # WHEN it is answered THEN the others are not computed
    assert client.get("/api/v1/timeline/tiles", **asked).status_code == 400 and made == [0]
    assert client.get("/api/v1/timeline/tiles", **{**asked, "query_string": {**query, "format": "json"}}).status_code == 400
    ours.close()
    # AND one that waits, or has asked for more, is answered, and so is one of a server that does not say
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(web_timeline, "tiles_made", block)
    for say in (b"", b"GET /"):
        theirs.sendall(say)
        assert client.get("/api/v1/timeline/tiles", query_string=query, environ_overrides={"werkzeug.socket": ours}).status_code == 200
    ours.close()
    theirs.close()
    assert client.get("/api/v1/timeline/tiles", **asked).status_code == 200, "a socket that cannot be asked"


def test_a_tile_that_is_being_computed_is_waited_for(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a tile whose computation begins and waits
    begun, go_on, made = threading.Event(), threading.Event(), []
    block = web_timeline.tiles_made

    def slow(workers: Workers, track: int, z: int, first: int, last: int) -> list[Block]:
        made.append((track, first, last))
        begun.set()
        assert go_on.wait(60)
        return block(workers, track, z, first, last)

    monkeypatch.setattr(web_timeline, "tiles_made", slow)
    query = {"run": "job", "worker": "rank0", "wait": 20, "z": 7, "i": "1-3", "tracks": "4"}
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(client.application.test_client().get, "/api/v1/timeline/tiles", query_string=query)]
        assert begun.wait(60)
        # WHEN the same is asked meanwhile THEN it is computed once, and both have it
        ask = client.application.test_client().get
        answers += [pool.submit(ask, "/api/v1/timeline/tiles", query_string=query | {"i": i}) for i in ("1-3", "2")]
        go_on.set()
        assert answers[0].result().data == answers[1].result().data and made == [(4, 1, 3)]
        # AND so is a part of it
        assert [b["i"] for b in decoded(answers[2].result().data)] == [2]


def test_bytes_are_packed_only_when_asked_for(client: FlaskClient) -> None:
    query = {"run": "job", "worker": "rank0", "wait": 20, "z": 12, "i": 0, "tracks": "0-4"}
    plain = client.get("/api/v1/timeline/tiles", query_string=query)
    packed = client.get("/api/v1/timeline/tiles", query_string=query, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers and packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data and plain.mimetype == "application/octet-stream"


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("tiles", {"z": 53, "i": 0, "tracks": 0}, "z"),
        ("tiles", {"z": "x", "i": 0, "tracks": 0}, "z"),
        ("tiles", {"z": 3, "i": "0-8", "tracks": 0}, "i"),
        ("tiles", {"z": 3, "i": "5-3", "tracks": 0}, "i"),
        ("tiles", {"z": 3, "i": -1, "tracks": 0}, "i"),
        ("tiles", {"z": 52, "i": 1, "tracks": 0}, "i"),
        ("tiles", {"z": 30, "i": 2**40, "tracks": 0}, "i"),
        ("tiles", {"z": 3, "i": 0, "tracks": "0-99999"}, "tracks"),
        ("tiles", {"z": 3, "i": 0}, "tracks"),
        ("tiles", {"z": 3, "i": 0, "tracks": "0", "format": "xml"}, "format"),
        ("tiles", {"z": "9" * 5_000, "i": 0, "tracks": "0"}, "z"),
        ("event", {"track": 99, "event": 0}, "track"),
        ("event", {"track": 4, "event": 10**9}, "event"),
        ("event", {"track": 4, "event": "٣"}, "event"),
        ("events", {"track": 4, "limit": 1_001}, "limit"),
        ("events", {"track": 4, "start_ns": 10, "end_ns": 5}, "end_ns"),
        ("events", {"track": 4, "lane": 99}, "lane"),
        ("search", {}, "text"),
        ("search", {"text": "a", "direction": "up"}, "direction"),
        ("search", {"names": "0-999999999"}, "names"),
        ("flows", {"kind": "guess"}, "kind"),
        ("flows", {"events": "x:1"}, "events"),
        ("", {"color": "red"}, "color"),
        ("", {"al": "sideways"}, "al"),
        ("tiles", {"z": 3, "i": 0, "tracks": "0", "al": "manual:x"}, "al"),
        ("", {"lay": "upside down"}, "lay"),
        ("export", {"start_ns": 10, "end_ns": 5}, "end_ns"),
        ("export", {"start_ns": "soon"}, "start_ns"),
        ("export", {"tracks": "0-99999"}, "tracks"),
        ("export", {"clip": "perhaps"}, "clip"),
        ("export", {"color": "red"}, "color"),
    ],
)
def test_bad_requests_name_the_parameter(client: FlaskClient, path: str, query: dict[str, object], field: str) -> None:
    reply = client.get(f"/api/v1/timeline{'/' if path else ''}{path}", query_string={"run": "job", "worker": "rank0", "wait": 20, **query})
    assert reply.status_code == 400, reply.text
    assert reply.json["error"]["field"] == field and reply.json["error"]["hint"]


def test_an_event_by_its_place_and_its_neighbours(client: FlaskClient) -> None:
    # GIVEN an operator, found by name
    hit = get(client, "/search", text="aten::op3", limit=1)["hits"][0]
    by_id = get(client, "/event", track=hit["track"], event=hit["event"])
    # THEN it is found by start and duration too, and the nearest one where that is not there
    again = get(client, "/event", track=hit["track"], start_ns=hit["start_ns"], duration_ns=hit["duration_ns"])
    assert (again["event"], again["exact"]) == (hit["event"], True) and by_id["name"] == "aten::op3"
    near = get(client, "/event", track=hit["track"], start_ns=hit["start_ns"] + 3, duration_ns=hit["duration_ns"])
    assert (near["event"], near["exact"]) == (hit["event"], False)
    # AND it knows what it launched, what encloses it and where to go on
    (flow,) = by_id["flows"]
    assert (
        flow["kind"] == "launch"
        and flow["target"]["name"] == "kernel3"
        and flow["latency_ns"] == flow["target"]["start_ns"] - flow["source"]["start_ns"]
    )
    assert [p["name"] for p in by_id["parents"]] == ["ProfilerStep#1"]
    assert by_id["links"][0] == {"analysis": "operators", "query": {"find": "aten::op3"}, "label": "Operator"}


def test_a_window_is_a_trace_file(client: FlaskClient) -> None:
    # GIVEN a stream, and what is listed of it in a window
    stream = tracks(client, "stream")[0]
    asked = {"start_ns": 100_000, "end_ns": 200_000}
    listed = get(client, "/events", track=stream["track"], limit=1_000, **asked)["events"]
    query = {"run": "job", "worker": "rank0", "wait": 20, "tracks": stream["track"], **asked}
    # WHEN exported THEN the body itself is gzip, with a name to save it under
    reply = client.get("/api/v1/timeline/export", query_string=query, headers={"Accept-Encoding": "gzip"})
    assert (reply.status_code, reply.mimetype) == (200, "application/gzip") and "Content-Encoding" not in reply.headers
    assert reply.headers["Content-Disposition"].startswith('attachment; filename="rank0')
    assert reply.headers["Content-Disposition"].endswith('.pt.trace.json.gz"')
    made = json.loads(gzip.decompress(reply.data))
    # AND holds the same events at the same times, the window and the fingerprint
    written = sorted((round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in made["traceEvents"] if e["ph"] == "X")
    assert written == sorted((e["start_ns"], e["duration_ns"]) for e in listed) and written
    assert "100000-200000" in made["exported_window"] and get(client, "")["fingerprint"] in made["exported_from"]
    # AND one that begins earlier is cut where that is asked for
    cut = client.get("/api/v1/timeline/export", query_string={**query, "clip": 1})
    ends = [(e["ts"], e["ts"] + e["dur"]) for e in json.loads(gzip.decompress(cut.data))["traceEvents"] if e["ph"] == "X"]
    assert min(a for a, _ in ends) >= 100 and max(b for _, b in ends) <= 200.0005
    # AND before it is written, how many events it has is known exactly, and its size about
    size = client.get("/api/v1/timeline/export", query_string={**query, "size": 1}).get_json()
    assert size["events"] == len(listed) and size["bytes"] == 280 * len(listed)
    every = client.get("/api/v1/timeline/export", query_string={"run": "job", "worker": ["rank0", "rank1"], "wait": 20, "size": 1})
    counted = [t for t in get(client, "", worker=["rank0", "rank1"])["tracks"] if t["lanes"]]
    assert every.get_json()["events"] == sum(t["events"] for t in counted)


def test_kernels_have_the_names_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kernel of C++, an operator that is written like one, and a kernel whose name is short
    long = f"void at::native::fill<4>({'int, ' * 900}int)"
    names, categories = [long, "void at::mm(int)", "triton_0"], [COMPUTE, OPERATOR, COMMUNICATION]
    # THEN the first has a short name; of so many kernels that reading them takes long none has
    assert web_timeline._short_names(names, categories) == {0: "fill"}
    for bound in ("MOST_READ", "KEPT"):
        with monkeypatch.context() as patched:
            patched.setattr(web_timeline, bound, 1)
            assert web_timeline._short_names(names, categories) == {}


def test_several_workers_are_one_trace_file(client: FlaskClient) -> None:
    # GIVEN two workers of the same process ids, the second of which starts 1.5 µs later, and what each has in a window of its own clock
    def written(worker: list[str], **query: object) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        asked = {"run": "job", "worker": worker, "wait": 20, **query}
        made = json.loads(gzip.decompress(client.get("/api/v1/timeline/export", query_string=asked).data))
        return made, made["traceEvents"]

    alone = [written([name], start_ns=100_000 - by, end_ns=200_000 - by)[1] for name, by in (("rank0", 0), ("rank1", 1_500))]
    # WHEN both are exported THEN each has all of its events, 10,000,000 process ids apart, on one clock
    made, together = written(["rank0", "rank1"], start_ns=100_000, end_ns=200_000, al="manual:0,1500")
    assert "rank0" in made["exported_from"] and "rank1" in made["exported_from"] and "distributedInfo" not in made
    for number, (own, by) in enumerate(zip(alone, (0, 1_500), strict=True), 1):
        mine = [e for e in together if e["pid"] // 10_000_000 == number]
        for phase in "XiCsf":
            moved = sorted((e["name"], round(e["ts"] * 1000) - by, e["pid"] % 10_000_000, e["tid"]) for e in mine if e["ph"] == phase)
            assert moved == sorted((e["name"], round(e["ts"] * 1000), e["pid"], e["tid"]) for e in own if e["ph"] == phase), phase
        # AND every process is named after its worker, and links have numbers of their own
        assert {e["args"]["name"].partition(":")[0] for e in mine if e["name"] == "process_name"} == {f"rank{number - 1}"}
        assert {e["pid"] for e in mine} == {e["pid"] for e in mine if e["name"] == "process_name"}
    links = [e["id"] for e in together if e["ph"] == "s"]
    assert len(links) == len(set(links)) > 10
    # AND where rows of one are chosen, it alone is there
    one = tracks(client, "stream", worker=["rank0", "rank1"])[-1]["track"]
    assert {e["pid"] // 10_000_000 for e in written(["rank0", "rank1"], tracks=one)[1]} == {2}


def test_search_goes_on_in_both_directions(client: FlaskClient) -> None:
    everything = get(client, "/search", text="kernel5", limit=1_000)
    hits = everything["hits"]
    assert everything["total"] == len(hits) == sum(everything["histogram"]) == sum(t["count"] for t in everything["tracks"])
    middle = hits[len(hits) // 2]["start_ns"]
    after = get(client, "/search", text="kernel5", after_ns=middle, limit=1)["hits"]
    before = get(client, "/search", text="kernel5", after_ns=middle, direction="previous", limit=2)["hits"]
    assert (
        after[0]["start_ns"] == middle
        and [h["start_ns"] for h in before] == [h["start_ns"] for h in hits if h["start_ns"] < middle][-2:][::-1]
    )
    # AND ids of names find the same
    names = get(client, "/names")["names"]
    by_id = get(client, "/search", names=names.index("kernel5"), limit=1_000)
    assert by_id["hits"] == hits


def test_links_of_a_window_the_longest_first(client: FlaskClient) -> None:
    found = get(client, "/flows", kind="launch")
    assert found["total"] == len(found["flows"]) == 400
    latencies = [f["latency_ns"] for f in found["flows"]]
    assert latencies == sorted(latencies, reverse=True)
    shown = {t["track"]: t for t in get(client, "")["tracks"]}
    assert {shown[f["source"]["track"]]["kind"] for f in found["flows"]} == {"thread"}
    assert {shown[f["target"]["track"]]["stream"] for f in found["flows"]} == {7, 8}


def test_the_critical_path_is_a_chain_of_links_between_its_stretches(client: FlaskClient) -> None:
    # GIVEN a recording whose host works all the time WHEN its critical path is asked for THEN it is one stretch, on the thread, linked to itself
    found = get(client, "/flows", kind="path")
    (flow,) = found["flows"]
    assert found["total"] == 1 and flow["source"] == flow["target"] and flow["kind"] == "Other host code"
    shown = {t["track"]: t for t in get(client, "")["tracks"]}
    assert shown[flow["source"]["track"]]["kind"] == "thread"
    # AND in a window without it there is none
    assert get(client, "/flows", kind="path", start_ns=2**40, end_ns=2**41)["flows"] == []
    # AND two workers have chains of their own, linked in order of time
    both = get(client, "/flows", kind="path", worker=["rank0", "rank1"])
    assert both["total"] == 2


def test_two_workers_stand_under_each_other_on_one_clock(client: FlaskClient) -> None:
    # GIVEN two workers whose recordings begin 1,500 ns apart
    get(client, "", worker="rank1")
    one = get(client, "", worker=["rank0", "rank1"])
    assert [(a["worker"], a["method"], a["offset_ns"]) for a in one["alignment"]] == [("rank0", "clock", 0), ("rank1", "clock", 1_500)]
    second = next(t for t in one["tracks"] if t["worker"] == 1 and t["kind"] == "stream")
    alone = next(t for t in tracks(client, "stream", worker="rank1") if t["path"] == second["path"])
    assert (second["first_ns"], second["events"]) == (alone["first_ns"] + 1_500, alone["events"])
    # THEN tiles of the second have its events, moved
    (block,) = get(client, "/tiles", worker=["rank0", "rank1"], z=12, i=0, tracks=second["track"], format="json")["blocks"]
    (own,) = get(client, "/tiles", worker="rank1", z=12, i=0, tracks=alone["track"], format="json")["blocks"]
    assert block["start_ns"][:50] == [s + 1_500 for s in own["start_ns"][:50]]
    names, own_names = get(client, "/names", worker=["rank0", "rank1"])["names"], get(client, "/names", worker="rank1")["names"]
    assert [names[n] for n in block["name"][:50]] == [own_names[n] for n in own["name"][:50]]


def test_workers_are_aligned_as_asked_and_tiles_of_another_alignment_are_others(client: FlaskClient) -> None:
    both = {"worker": ["rank0", "rank1"]}
    shown = {al: get(client, "", **both, **({"al": al} if al else {})) for al in ("", "clock", "step", "manual:0,99", "none")}
    # GIVEN what can be chosen, and the step that both have
    assert {c["al"] for c in shown[""]["alignments"] if not c["why_not"]} == {"clock", "step", "manual", "none"}
    assert shown[""]["align_steps"] == [1] and get(client, "")["alignments"] == []
    # THEN each is used where it is asked for, with its own name for tiles, of which another one does not stand in for it
    assert [one["alignment"][1]["method"] for one in shown.values()] == ["clock", "clock", "step", "manual", "none"]
    assert shown["manual:0,99"]["alignment"][1]["offset_ns"] == 99 and not shown["step"]["absolute"]
    assert shown[""]["fingerprint"] == shown["clock"]["fingerprint"] and len({s["fingerprint"] for s in shown.values()}) == 4
    stale = {"run": "job", "wait": 20, **both, "al": "none", "z": 3, "i": 0, "tracks": "0", "fp": shown[""]["fingerprint"]}
    assert client.get("/api/v1/timeline/tiles", query_string=stale).status_code == 409
    # AND tiles have the second worker's events where it was put
    second = next(t["track"] for t in shown[""]["tracks"] if t["worker"] == 1 and t["kind"] == "stream")
    starts = {
        al: get(client, "/tiles", **both, al=al, z=12, i=0, tracks=second, format="json")["blocks"][0]["start_ns"][:50]
        for al in ("clock", "none", "manual:0,99")
    }
    assert starts["manual:0,99"] == [s + 99 for s in starts["none"]] and starts["clock"] == [s + 1_500 for s in starts["none"]]


def test_compact_streams_stand_on_as_few_lanes_as_run_at_one_time(client: FlaskClient) -> None:
    # GIVEN two streams WHEN their device is shown compact
    streams, (packed,) = tracks(client, "stream"), tracks(client, "stream", lay="compact")
    assert packed["path"].endswith("GPU 0/streams") and packed["label"] == "2 streams" and packed["stream"] == -1
    assert packed["events"] == sum(t["events"] for t in streams) and packed["lanes"] <= 8
    # THEN all of their events are in its lanes, none over another
    listed = [e for t in streams for e in get(client, "/events", track=t["track"], limit=1_000)["events"]]
    again = get(client, "/events", track=packed["track"], limit=1_000, lay="compact")["events"]
    assert {(e["event"], e["start_ns"], e["name"]) for e in again} == {(e["event"], e["start_ns"], e["name"]) for e in listed}
    for lane in range(packed["lanes"]):
        own = [e for e in again if e["lane"] == lane]
        assert all(b["start_ns"] >= a["start_ns"] + a["duration_ns"] for a, b in itertools.pairwise(own)) and own
    # AND the details of one say which stream it is on, selections and files take the track by its number
    one = get(client, "/event", track=packed["track"], event=again[0]["event"], lay="compact")
    assert {f["label"]: f["value"] for f in one["fields"]}["Stream"] in ("7", "8") and one["track"] == packed["track"]
    query = {"run": "job", "worker": "rank0", "wait": 20, "lay": "compact", "tracks": packed["track"]}
    report = client.get("/api/v1/analysis/timeline_selection", query_string={**query, "start_ns": 0, "end_ns": 4_000_000}).json
    chosen = next(s for s in report["sections"] if s["id"] == "tracks")["data"]
    assert chosen["path"] == [packed["path"]] and chosen["events"] == [packed["events"]]
    made = json.loads(gzip.decompress(client.get("/api/v1/timeline/export", query_string=query).data))
    assert {e["tid"] for e in made["traceEvents"] if e["ph"] == "X"} == {7, 8}
    # AND tiles of threads are as they were
    thread, same = tracks(client, "thread")[0], tracks(client, "thread", lay="compact")[0]
    a, b = (get(client, "/tiles", z=8, i=0, tracks=t["track"], format="json", **lay) for t, lay in ((thread, {}), (same, {"lay": "compact"})))
    assert {**a["blocks"][0], "track": 0} == {**b["blocks"][0], "track": 0}


def test_a_selection_names_its_tracks_by_path_or_number(client: FlaskClient) -> None:
    stream = tracks(client, "stream")[0]
    reports = [
        client.get(
            "/api/v1/analysis/timeline_selection",
            query_string={"run": "job", "worker": "rank0", "wait": 20, "start_ns": 1_000, "end_ns": 900_000, "tracks": tracks_},
        ).json
        for tracks_ in (stream["path"], str(stream["track"]))
    ]
    assert reports[0]["sections"] == reports[1]["sections"]
    groups = next(s for s in reports[0]["sections"] if s["id"] == "groups")
    assert all(name.startswith("kernel") for name in groups["data"]["name"])
