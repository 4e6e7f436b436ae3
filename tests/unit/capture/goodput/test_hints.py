"""Hints to a scheduler, against a real HTTP server on this machine."""

from __future__ import annotations

import json
import logging
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tb_sol_plugin.capture.goodput import hints as H
from tb_sol_plugin.capture.goodput.hints import DEFAULTS, Supervisor, check_hints, hints_of, post_sched_hints
from tb_sol_plugin.capture.goodput.state import Counts, Key, MetricsState

HINTS = {
    "initBatchSize": 128, "localBszBounds": [16, 256], "globalBatchSize": 512, "maxBatchSize": 4096, "maxProfiledReplicas": 8,
    "gradientAccumulation": True, "gradParams": {"norm": 0.5, "var": 2.0},
    "perfParams": {"alpha_c": 0.12, "beta_c": 0.0056, "alpha_n": 0.4, "beta_n": 0.025, "alpha_r": 0.07, "beta_r": 0.0024, "gamma": 1.8},
}  # fmt: skip


class Server:
    """Answers with the statuses given, one per request, the last one for ever; keeps what it was sent."""

    def __init__(self, *answers: int | tuple[int, str], answers_after: threading.Event | None = None) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.requests.append((self.command, self.path, {k.title(): v for k, v in self.headers.items()}, body))
                assert answers_after is None or answers_after.wait(120)
                answer = answers[min(len(server.requests), len(answers)) - 1]
                status, where = answer if isinstance(answer, tuple) else (answer, "")
                self.send_response(status)
                if where:
                    self.send_header("Location", where)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_PUT = _answer

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (H.URL, H.JOB, H.TOKEN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(H, "_warned_of", set())


def test_body_path_and_headers(monkeypatch):
    with Server(200) as server:
        # GIVEN hints with some keys WHEN posted THEN all keys arrive, as JSON, at the job's path
        assert post_sched_hints({"initBatchSize": 128, "perfParams": HINTS["perfParams"]}, "team/job 1", url=server.url + "/", wait=True) is True
        ((method, path, headers, body),) = server.requests
        assert (method, path, headers["Content-Type"]) == ("POST", "/hints/team/job%201", "application/json")
        assert json.loads(body) == {**DEFAULTS, "initBatchSize": 128, "perfParams": HINTS["perfParams"]} and "Authorization" not in headers
        # AND method, path, headers, URL, job and token are as told
        monkeypatch.setenv(H.URL, server.url)
        monkeypatch.setenv(H.JOB, "j2")
        monkeypatch.setenv(H.TOKEN, "secret")
        assert post_sched_hints(HINTS, path="/v2/{job_id}/hints", method="PUT", headers={"X-Own": "1"}, wait=True) is True
        method, path, headers, body = server.requests[1]
        assert (method, path, headers["Authorization"], headers["X-Own"]) == ("PUT", "/v2/j2/hints", "Bearer secret", "1")
        assert json.loads(body) == HINTS and list(json.loads(body)) == list(DEFAULTS)


def test_without_a_url_or_a_job_nothing_is_sent(monkeypatch):
    with Server(200) as server:
        assert post_sched_hints(HINTS, "job", wait=True) is None
        assert post_sched_hints(HINTS, url=server.url, wait=True) is None
        for url in ("file:///etc/passwd", "ftp://127.0.0.1", "http://", "http://user:pass@127.0.0.1", "nonsense"):
            assert post_sched_hints(HINTS, "job", url=url, wait=True) is None
        for job in ("..", "a/../b", "a//b", "/a"):
            assert post_sched_hints(HINTS, job, url=server.url, wait=True) is None
        assert server.requests == []


@pytest.mark.parametrize(("statuses", "arrived", "requests"), [((503, 200), True, 2), ((500, 500, 200), False, 2), ((404, 200), False, 1)])
def test_a_post_is_repeated_once_where_the_server_may_recover(statuses, arrived, requests):
    with Server(*statuses) as server:
        assert Supervisor(server.url, "job", backoff_s=0.01).post(HINTS, wait=True) is arrived
        assert len(server.requests) == requests and {r[3] for r in server.requests} == {server.requests[0][3]}


def test_a_slow_server_costs_no_more_than_the_time_limit_and_is_logged_once(caplog):
    # GIVEN a server that does not answer WHEN told twice THEN both come back before it does
    answers = threading.Event()
    with Server(200, answers_after=answers) as server, caplog.at_level(logging.WARNING):
        slow = Supervisor(server.url, "job", timeout_s=0.1, backoff_s=0.01)
        assert slow.post(HINTS, wait=True) is False and slow.post(HINTS, wait=True) is False
        answers.set()
        assert len([r for r in caplog.records if "did not get the hints" in r.message]) == 1
    # AND so is one that is not there
    assert Supervisor("http://127.0.0.1:9", "job", timeout_s=0.2, backoff_s=0.01).post(HINTS, wait=True) is False


def test_redirects_stay_on_the_host():
    with Server(200) as other, Server((307, "/elsewhere"), 200) as same, Server((307, f"{other.url}/hints/job")) as away, Server((302, "/x"), 200) as get:
        # GIVEN a redirect on the same host WHEN posted THEN method and body go along
        assert Supervisor(same.url, "job").post(HINTS, wait=True) is True
        assert [(r[0], r[1]) for r in same.requests] == [("POST", "/hints/job"), ("POST", "/elsewhere")]
        assert json.loads(same.requests[1][3]) == HINTS
        # AND another host, or a redirect that would drop the body, is not followed
        assert Supervisor(away.url, "job", headers={"Authorization": "secret"}).post(HINTS, wait=True) is False
        assert Supervisor(get.url, "job").post(HINTS, wait=True) is False
        assert other.requests == [] and len(get.requests) == 1


def test_posting_does_not_wait_and_sends_the_newest():
    # GIVEN a server that answers nobody until all is posted
    answers = threading.Event()
    with Server(200, answers_after=answers) as server:
        to = Supervisor(server.url, "job", timeout_s=120)
        for size in range(1, 30):
            assert to.post({"initBatchSize": size}) is None
        answers.set()
        until = time.monotonic() + 120
        while time.monotonic() < until and (not server.requests or json.loads(server.requests[-1][3])["initBatchSize"] != 29):
            time.sleep(0.01)
        sent = [json.loads(r[3])["initBatchSize"] for r in server.requests]
        assert sent[-1] == 29 and len(sent) <= 3


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"colour": 1}, ValueError), ({"initBatchSize": 1.5}, TypeError), ({"initBatchSize": True}, TypeError), ({"maxBatchSize": -1}, ValueError),
        ({"maxProfiledReplicas": None}, TypeError), ({"globalBatchSize": "8"}, TypeError), ({"localBszBounds": 5}, TypeError),
        ({"localBszBounds": [1, 2, 3]}, TypeError), ({"localBszBounds": [9, 3]}, ValueError), ({"gradientAccumulation": 1}, TypeError),
        ({"gradParams": [1, 2]}, TypeError), ({"gradParams": {"sqr": 1.0, "var": 1.0}}, ValueError), ({"gradParams": {"norm": "1", "var": 1.0}}, TypeError),
        ({"gradParams": {"norm": float("nan"), "var": 1.0}}, ValueError), ({"perfParams": {"alpha_c": 1.0}}, ValueError),
    ],
)  # fmt: skip
def test_wrong_hints_raise_before_anything_is_sent(bad, error):
    with Server(200) as server:
        for wait in (True, False):
            with pytest.raises(error):
                post_sched_hints(bad, "job", url=server.url, wait=wait)
        assert server.requests == []


def test_hints_of_a_state():
    assert hints_of(MetricsState()) == DEFAULTS
    perf = HINTS["perfParams"]
    state = MetricsState(
        {Key(1, 8, 32): Counts(optim_count=1), Key(2, 16, 32): Counts(accum_count=1)}, tuple(perf.values()), 0.5, 2.0,
        init_batch_size=128, max_batch_size=4096, local_bsz_bounds=(16, 256), gradient_accumulation=True,
    )  # fmt: skip
    assert hints_of(state, 512) == HINTS
    check_hints(hints_of(state, 512))
    # an estimate below 0 counts as 0
    state.grad_sqr = -0.1
    assert hints_of(state)["gradParams"] == {"norm": 0.0, "var": 2.0}
