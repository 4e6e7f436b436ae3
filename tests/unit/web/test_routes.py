"""Every route: its shape, its errors, its headers."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.model import registry as registry_module
from tb_sol_plugin.model.registry import get, registry
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.tiny import trace
from tests.support.waiting import Gate, until

READY = {"wait": "20"}


def test_runs_lists_everything_in_natural_order(client: FlaskClient, store: Store) -> None:
    store.rescan()
    body = client.get("/api/v1/runs").get_json()
    assert body["scan"]["state"] == "done" and body["scan"]["roots"] == ["logs"] and body["scan"]["files"] == 5
    assert [r["name"] for r in body["runs"]] == ["job", "odd"]
    workers = body["runs"][0]["workers"]
    assert [(w["name"], w["rank"], [(s["name"], s["label"]) for s in w["spans"]]) for w in workers] == [
        ("rank2", 2, [("1", "1"), ("2", "2")]),
        ("rank10", 10, [("1", "1")]),
    ]
    span = workers[0]["spans"][0]
    assert span["file"] == "job/rank2.1.pt.trace.json.gz" and span["state"] == "new" and span["error"] is None and span["size"] > 50
    assert [(r["file"], r["what"] != "") for r in body["rejected"]] == [("config.json", True)]
    assert body["features"] == {"original": True, "bind_all": False, "version": body["features"]["version"]}


def test_no_answer_holds_a_local_path(client: FlaskClient, logdir: Path) -> None:
    for address in ("/api/v1/runs", "/api/v1/run?run=job", "/api/v1/analyses?run=job&wait=20", "/api/v1/analysis/health?run=job&wait=20"):
        assert str(logdir.parent) not in client.get(address).get_data(as_text=True), address


def test_a_recording_loads_on_request_and_its_facts_follow(client: FlaskClient) -> None:
    body = client.get("/api/v1/analyses", query_string={"run": "job", **READY}).get_json()
    assert body["state"] == "ready"
    assert [a["name"] for a in body["analyses"]] == list(registry())
    for info in body["analyses"]:
        assert info["available"] or (info["because"] and info["record_it_with"])
        assert {f["name"] for f in info["fields"]} >= {"step", "device_limits"}
    run = client.get("/api/v1/run?run=job").get_json()
    first, second = run["workers"][0]["spans"]
    assert first["state"] == "ready" and first["facts"]["total_events"] == 3 and second["facts"] is None


def test_the_catalog_needs_no_recording(shared: FlaskClient) -> None:
    body = shared.get("/api/v1/analyses").get_json()
    assert body["state"] == "catalogue" and [a["name"] for a in body["analyses"]] == list(registry()) and body["devices"]


def test_still_loading_is_409_with_progress(store: Store) -> None:
    app, gate = create_app(store, WebOptions(first_wait=0.0)), Gate()
    store.loader._workers().submit(gate.wait)  # the only reader is busy
    reply = app.test_client().get("/api/v1/analyses?run=job")
    assert reply.status_code == 409 and reply.headers["Retry-After"]
    body = reply.get_json()
    assert body["error"]["code"] == "still_loading"
    assert set(body["progress"]) == {"bytes", "total", "events", "stage", "elapsed_s", "queue_position"}
    # AND a page, which asks again anyway, is told the same without a failure in the browser's log
    polite = app.test_client().get("/api/v1/analyses?run=job", headers={"Prefer": "respond-async"})
    assert polite.status_code == 202 and polite.get_json()["error"]["code"] == "still_loading"
    gate.open()
    until(lambda: app.test_client().get("/api/v1/analyses?run=job&wait=20").status_code == 200)


@pytest.mark.parametrize("name", list(registry()))
def test_every_analysis_answers_json_and_csv(shared: FlaskClient, name: str) -> None:
    # GIVEN a recording WHEN any analysis is asked THEN JSON without NaN in the contract's shape; CSV has the table's rows and numbers
    reply = shared.get(f"/api/v1/analysis/{name}", query_string={"run": "job", **READY})
    assert reply.status_code == 200 and reply.content_type == "application/json"
    body = json.loads(reply.data, parse_constant=lambda c: pytest.fail(f"{c} in {name}"))
    assert body["analysis"] == name
    if registry()[name].scope != "runs":  # one over all runs is of no worker
        assert body["selection"]["worker"] == "rank2"
    if not body["available"]:
        assert body["because"] and "record_it_with" in body
        return
    for section in body["sections"]:
        if section["kind"] != "table":
            continue
        names = [c["name"] for c in section["columns"]]
        text = shared.get(f"/api/v1/analysis/{name}", query_string={"run": "job", "format": "csv", "section": section["id"]}).get_data(
            as_text=True
        )
        rows = list(csv.reader(io.StringIO(text)))
        assert rows[0] == names
        assert len(rows) - 1 == len(section["data"][names[0]])
        for at, column in enumerate(names):
            for row, value in zip(rows[1:], section["data"][column], strict=True):
                if isinstance(value, bool):
                    assert row[at] == str(value).lower()
                elif isinstance(value, int | float):
                    assert float(row[at]) == value


def test_defaults_are_the_first_worker_and_span(shared: FlaskClient) -> None:
    one = shared.get("/api/v1/analysis/health", query_string={"run": "job", **READY})
    two = shared.get("/api/v1/analysis/health", query_string={"run": "job", "worker": "rank2", "span": "1", **READY})
    assert one.data == two.data and one.headers["ETag"] == two.headers["ETag"]
    third = shared.get("/api/v1/analysis/health", query_string=READY)
    assert third.get_json()["selection"]["run"] == "job"


@pytest.mark.parametrize(
    ("address", "status", "code", "field"),
    [
        ("/api/v1/run", 400, "bad_query", "run"),
        ("/api/v1/run?run=nope", 404, "not_found", "run"),
        ("/api/v1/analysis/nope?run=job", 404, "not_found", "name"),
        ("/api/v1/analysis/health?run=nope", 404, "not_found", "run"),
        ("/api/v1/analysis/health?run=job&worker=nope", 404, "not_found", "worker"),
        ("/api/v1/analysis/health?run=job&span=nope", 404, "not_found", "span"),
        ("/api/v1/analysis/health?run=job&color=red", 400, "bad_query", "color"),
        ("/api/v1/analysis/gpu_breakdown?run=job&scope=some", 400, "bad_query", "scope"),
        ("/api/v1/analysis/health?run=job&format=xml", 400, "bad_query", "format"),
        ("/api/v1/analysis/health?run=job&wait=nan", 400, "bad_query", "wait"),
        ("/api/v1/analysis/health?run=job&wait=1e9", 400, "bad_query", "wait"),
        ("/api/v1/analysis/health?run=job&format=csv&section=nope&wait=20", 400, "bad_query", "section"),
        ("/api/v1/analyses?run=job&x=1", 400, "bad_query", "x"),
        ("/api/v1/trace?run=nope", 404, "not_found", "run"),
        ("/api/v1/nothing", 404, "not_found", None),
        ("/nothing.js", 404, "not_found", None),
    ],
)
def test_errors_have_one_shape(shared: FlaskClient, address: str, status: int, code: str, field: str | None) -> None:
    reply = shared.get(address)
    assert reply.status_code == status and reply.content_type == "application/json"
    error = reply.get_json()["error"]
    assert error["code"] == code and error["message"] and error.get("field") == field


def test_a_wrong_method_is_json_too(shared: FlaskClient) -> None:
    reply = shared.post("/api/v1/runs")
    assert reply.status_code == 405 and reply.get_json()["error"]["code"] == "method_not_allowed" and "GET" in reply.headers["Allow"]


def test_an_analysis_that_fails_is_an_id_logged_once(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # GIVEN an analysis that raises with a secret and a path in its text
    def broken(*_: object) -> None:
        raise RuntimeError("token=hf_abcdefghijklmnop at /home/joe/x.py")

    monkeypatch.setitem(registry_module._FOUND, "health", msgspec.structs.replace(get("health"), function=broken))
    caplog.set_level(logging.ERROR)
    # WHEN it is asked for twice THEN 500 with the same id, one log entry without the secret, and the other analyses answer
    replies = [client.get("/api/v1/analysis/health", query_string={"run": "job", **READY}) for _ in range(2)]
    assert [r.status_code for r in replies] == [500, 500]
    errors = [r.get_json()["error"] for r in replies]
    assert errors[0] == errors[1] and "joe" not in str(errors) and "RuntimeError" in errors[0]["message"]
    logged = [r.getMessage() for r in caplog.records if errors[0]["id"] in r.getMessage()]
    assert len(logged) == 1 and "hf_abc" not in logged[0]
    assert client.get("/api/v1/analysis/links", query_string={"run": "job", **READY}).status_code == 200


def test_a_broken_recording_is_an_error_with_file_and_remedy(client: FlaskClient, logdir: Path, store: Store) -> None:
    (logdir / "bad").mkdir()
    (logdir / "bad" / "x.pt.trace.json").write_bytes(b"\x00\x01")
    store.rescan()
    reply = client.get("/api/v1/analyses", query_string={"run": "bad", **READY})
    assert reply.status_code == 422
    error = reply.get_json()["error"]
    assert error["file"] == "bad/x.pt.trace.json" and error["hint"]
    (shown,) = [r for r in client.get("/api/v1/runs").get_json()["runs"] if r["name"] == "bad"]
    assert shown["workers"][0]["spans"][0]["state"] == "error" and shown["workers"][0]["spans"][0]["error"] == error


# -- headers ---------------------------------------------------------------------------------------------------------


def test_etag_gzip_and_their_304(shared: FlaskClient) -> None:
    address = "/api/v1/analysis/health?run=job&wait=20"
    plain, zipped = shared.get(address), shared.get(address, headers={"Accept-Encoding": "gzip"})
    assert zipped.headers["Content-Encoding"] == "gzip" and gzip.decompress(zipped.data) == plain.data
    assert plain.headers["ETag"] != zipped.headers["ETag"] and "Accept-Encoding" in plain.headers["Vary"]
    for reply in (plain, zipped):
        again = shared.get(
            address, headers={"If-None-Match": reply.headers["ETag"], "Accept-Encoding": reply.headers.get("Content-Encoding", "")}
        )
        assert again.status_code == 304 and not again.data
        assert again.headers["Content-Type"] == "application/json" and "Content-Security-Policy" not in again.headers


@pytest.mark.parametrize(("address", "most"), [("/vendor/plotly-custom.min.js", 600_000), ("/vendor/plotly.min.js", 2_000_000)])
def test_plotly_comes_from_here_compressed(shared: FlaskClient, address: str, most: int) -> None:
    reply = shared.get(address, headers={"Accept-Encoding": "gzip"})
    assert reply.status_code == 200 and reply.content_type.startswith("text/javascript")
    assert len(reply.data) < most and b"plotly" in gzip.decompress(reply.data)[:200]
    again = shared.get(address, headers={"If-None-Match": reply.headers["ETag"], "Accept-Encoding": "gzip"})
    assert again.status_code == 304 and again.content_type.startswith("text/javascript")


def test_every_answer_has_the_safety_headers(shared: FlaskClient) -> None:
    for address in ("/api/v1/runs", "/api/v1/none", "/api/v1/analysis/health?run=job&wait=20", "/vendor/plotly.min.js", "/none"):
        reply = shared.get(address)
        assert reply.headers["X-Content-Type-Options"] == "nosniff" and reply.headers["Content-Type"] and reply.headers["Cache-Control"]
        assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin" and reply.headers["Referrer-Policy"] == "same-origin"
    page = shared.get("/")
    assert "frame-ancestors 'self'" in page.headers["Content-Security-Policy"] and page.headers["X-Frame-Options"] == "SAMEORIGIN"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:6006", "localhost.", "tb.localhost:1", "127.0.0.1:6007", "[::1]:6007", "::1", "192.168.1.5:80"])
def test_a_private_server_answers_under_names_of_this_machine(shared: FlaskClient, host: str) -> None:
    assert shared.get("/api/v1/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:6007", "localhost.evil.example", "127.0.0.1.evil.example", "xlocalhost", "", "[::1", "a:b:c"])
def test_a_private_server_answers_under_no_other_name(shared: FlaskClient, host: str) -> None:
    # GIVEN the name of another site that points to this machine (DNS rebinding) THEN nothing of a recording is answered, nor the page
    for address in ("/api/v1/health", "/api/v1/trace?run=job", "/api/v1/runs", "/"):
        reply = shared.get(address, headers={"Host": host})
        assert reply.status_code == 403 and reply.get_json()["error"]["code"] == "forbidden", address
    assert "--sol_hosts" in reply.get_json()["error"]["hint"]


def test_names_that_a_proxy_asks_for_can_be_allowed(store: Store) -> None:
    for options, status in ((WebOptions(hosts=("Hub.example",)), 200), (WebOptions(hosts=("*",)), 200), (WebOptions(bind_all=True), 200), (WebOptions(), 403)):
        client = create_app(store, options).test_client()
        assert client.get("/api/v1/health", headers={"Host": "hub.example:443"}).status_code == status


# -- the original bytes ----------------------------------------------------------------------------------------------


def test_a_recording_is_served_byte_by_byte(client: FlaskClient, logdir: Path) -> None:
    reply = client.get("/api/v1/trace?run=job&worker=rank10")
    assert reply.data == (logdir / "job" / "rank10.1.pt.trace.json.gz").read_bytes()
    assert reply.content_type == "application/gzip" and "attachment" in reply.headers["Content-Disposition"]
    assert "Content-Encoding" not in reply.headers
    part = client.get("/api/v1/trace?run=job&worker=rank10", headers={"Range": "bytes=0-1"})
    assert part.status_code == 206 and part.data == b"\x1f\x8b"
    hostile = client.get("/api/v1/trace?run=odd")
    assert hostile.status_code == 200 and "\n" not in hostile.headers["Content-Disposition"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (WebOptions(bind_all=True), 403),
        (WebOptions(bind_all=True, serve_original="on"), 200),
        (WebOptions(serve_original="off"), 403),
        (WebOptions(), 200),
    ],
)
def test_the_original_bytes_can_be_switched_off(store: Store, options: WebOptions, status: int) -> None:
    client = create_app(store, options).test_client()
    reply = client.get("/api/v1/trace?run=job")
    assert reply.status_code == status
    assert client.get("/api/v1/runs").get_json()["features"]["original"] is (status == 200)
    if status == 403:
        assert "--sol_serve_original" in reply.get_json()["error"]["hint"]


def test_a_link_gives_out_no_file_outside_the_logdir(store: Store, logdir: Path, tmp_path: Path) -> None:
    # GIVEN links named like recordings: to a file outside, to a file inside, and through a folder outside
    outside = tmp_path / "outside" / "secret.pt.trace.json"
    trace(outside)
    for name, target in (("out.1.pt.trace.json", outside), ("in.1.pt.trace.json.gz", logdir / "job" / "rank2.1.pt.trace.json.gz")):
        (logdir / "links").mkdir(exist_ok=True)
        (logdir / "links" / name).symlink_to(target)
    (logdir / "away").symlink_to(outside.parent)
    client = create_app(store, WebOptions()).test_client()
    # WHEN their originals are asked for THEN only that of the link inside comes, the others still open as recordings
    assert client.get("/api/v1/trace?run=links&worker=in").data == (logdir / "job" / "rank2.1.pt.trace.json.gz").read_bytes()
    for query in ("run=links&worker=out", "run=away"):
        reply = client.get(f"/api/v1/trace?{query}")
        assert reply.status_code == 403 and reply.get_json()["error"]["code"] == "forbidden" and str(tmp_path) not in reply.text
        assert client.get(f"/api/v1/analysis/kernels?{query}&wait=20").status_code == 200


def test_a_logdir_that_is_a_link_gives_out_its_originals(logdir: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(logdir)
    for root in (str(tmp_path / "link"), f"file://{logdir}", str(logdir / "job" / "rank2.1.pt.trace.json.gz")):
        with ThreadPoolExecutor(1) as pool:
            store = Store(single(root), StoreOptions(cache_dir=""), executor=pool)
            assert create_app(store, WebOptions()).test_client().get("/api/v1/trace").status_code == 200, root
            store.close()


# -- changing requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://outside.proxy"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_other_sites_change_nothing(client: FlaskClient, headers: dict[str, str], status: int) -> None:
    assert client.post("/api/v1/rescan", headers=headers).status_code == status


def test_rescan_finds_what_is_new(client: FlaskClient, logdir: Path) -> None:
    assert len(client.get("/api/v1/runs").get_json()["runs"]) in (0, 2)
    trace(logdir / "newer" / "a.json")
    assert client.post("/api/v1/rescan").get_json() == {"done": True, "scan": "done"}
    assert [r["name"] for r in client.get("/api/v1/runs").get_json()["runs"]] == ["job", "newer", "odd"]


def test_canceling_what_is_not_being_read_does_nothing(client: FlaskClient) -> None:
    assert client.post("/api/v1/cancel?run=job").get_json()["done"] is False
    assert client.post("/api/v1/cancel", data={"run": "job"}).get_json()["done"] is False
    assert client.post("/api/v1/cancel?run=none").status_code == 404


def test_the_health_route_answers_ok(shared: FlaskClient) -> None:
    assert shared.get("/api/v1/health").get_json()["status"] == "ok"


def test_the_device_of_the_server_is_the_default(logdir: Path, tmp_path: Path) -> None:
    options = StoreOptions(cache_dir=str(tmp_path / "cache"), device="A100_SXM_80@705MHz")
    with ThreadPoolExecutor(1) as pool:
        client = create_app(Store(single(str(logdir)), options, executor=pool), WebOptions()).test_client()
        shown = client.get("/api/v1/analyses?run=job&wait=20").get_json()["device"]
    # half the clock of the table (1410 MHz) is half the dense BF16 peak of 312 TFLOP/s
    assert (shown["key"], shown["method"]) == ("A100_SXM_80@705MHz", "override")
    assert {f["name"]: f["value"] for f in shown["figures"]}["bf16_tensor_tflops"] == 156e12
