"""Reports over the workers of all runs, on HTTP: early answers, progress, caching, files beside the runs, what a server refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.metrics.goodput import fit as gathered
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.store import reductions
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.scaling_runs import write_run
from tests.support.waiting import Gate, until

EARLY = {"Prefer": "respond-async"}
ASK = "/api/v1/analysis/scaling?run=r1"
KEYS = {(1, 1, 16), (1, 1, 32), (1, 2, 16), (1, 2, 32)}


def write_runs(root: Path) -> Path:
    """Write four runs of one configuration each, and one file of text that is no trace."""
    for replicas, batch, name in ((1, 16, "r1"), (1, 32, "r1b"), (2, 16, "r2"), (2, 32, "r2b")):
        write_run(root / name, nodes=1, replicas=replicas, batch=batch, accum_s=0.01 * batch, optim_s=0.01 * batch + 0.02 * (replicas - 1), steps=2)
    (root / "broken").mkdir()
    (root / "broken" / "w.1.pt.trace.json").write_text("no JSON at all")
    return root


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return write_runs(tmp_path / "logs")


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    """A server that has read all runs; tests that use it change nothing."""
    folder = tmp_path_factory.mktemp("read")
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(write_runs(folder / "logs"))), StoreOptions(cache_dir=str(folder / "cache"), fresh_seconds=0), executor=pool)
        client = create_app(store, WebOptions(first_wait=0.05)).test_client()
        until(lambda: client.get(f"{ASK}&wait=30").status_code == 200)
        yield client
        store.close()


@pytest.fixture
def client(logdir: Path, tmp_path: Path) -> Iterator[FlaskClient]:
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(logdir)), StoreOptions(cache_dir=str(tmp_path / "cache"), fresh_seconds=0), executor=pool)
        yield create_app(store, WebOptions(first_wait=0.05)).test_client()
        store.close()


def points(body: dict[str, object]) -> dict[tuple[int, int, int], str]:
    data = next(s for s in body["sections"] if s["id"] == "points")["data"]  # type: ignore[attr-defined]
    return dict(zip(zip(data["num_nodes"], data["num_replicas"], data["atomic_bsz"], strict=True), data["run"], strict=True))


def test_all_runs_are_in_one_answer(read: FlaskClient) -> None:
    # GIVEN four runs and one that cannot be read WHEN asked with one of them THEN the points of all, and the broken one with its own reason
    answer = read.get(f"{ASK}&wait=30")
    body = answer.get_json()
    assert answer.status_code == 200 and body["available"] and "reading" not in body
    assert points(body) == {(1, 1, 16): "r1", (1, 1, 32): "r1b", (1, 2, 16): "r2", (1, 2, 32): "r2b"}
    (about,) = [n["text"] for n in body["notices"] if "`broken`" in n["text"]]
    assert "No point from" in about and "prof.step()" not in about
    assert body["selection"] == {"run": "r1"}
    # THEN it is known the next time, and without a run as well
    assert read.get(ASK, headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304
    assert set(points(read.get("/api/v1/analysis/scaling").get_json())) == KEYS


def test_tables_and_the_file_for_a_scheduler(read: FlaskClient) -> None:
    read.get(f"{ASK}&wait=30")
    csv = read.get(f"{ASK}&format=csv&section=predictions")
    head = csv.get_data(as_text=True).splitlines()[0].split(",")
    assert csv.mimetype == "text/csv"
    assert {"num_nodes", "num_replicas", "atomic_bsz", "accum_steps", "throughput", "efficiency", "goodput"} <= {h.partition(" ")[0] for h in head}
    hints = read.get(f"{ASK}&format=file&section=sched_hints")
    assert hints.mimetype == "application/json" and json.loads(hints.get_data(as_text=True))["maxProfiledReplicas"] == 2
    assert read.get(f"{ASK}&format=file&section=nothing").status_code in (400, 404)


def test_while_runs_are_read_there_is_progress_and_an_early_answer(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate().guard(monkeypatch, reductions, "open_here")
    first = client.get(ASK)
    progress = first.get_json()["progress"]
    assert first.status_code == 409 and progress["stage"].endswith("of 5 workers") and 0 <= progress["bytes"] < progress["total"]
    seen = []
    gate.open(2)

    def whole() -> bool:
        answer = client.get(ASK, headers=EARLY)
        body = answer.get_json()
        assert answer.status_code in (200, 202)
        if answer.status_code == 202:
            return False
        assert body["available"]  # what is missing may be in those that wait
        seen.append(body.get("reading"))
        if "reading" not in body:
            return True
        if body["reading"]["done"] > 0:
            gate.open(3)
        assert "workers are read" in body["notices"][0]["text"] and set(points(body)) < KEYS
        return False

    until(whole)
    assert any(r and 0 < r["done"] < r["total"] == 5 for r in seen)


def test_of_a_run_of_another_job_one_rank_is_read(client: FlaskClient, logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN beside four runs of one job a run of it with two ranks, and one of another job with three WHEN asked THEN both ranks of the first
    # are read and one of the second, which is left out with its reason
    write_run(logdir / "r4", nodes=2, replicas=4, batch=16, accum_s=0.16, optim_s=0.2, steps=2)
    write_run(logdir / "wide", nodes=3, replicas=6, batch=16, accum_s=0.16, optim_s=0.2, steps=2, width=64)
    read: list[str] = []
    whole = reductions.open_here

    def counted(recording: Recording, *more: Any, **named: Any) -> Capture:
        read.append(recording.run)
        return whole(recording, *more, **named)

    monkeypatch.setattr(reductions, "open_here", counted)
    until(lambda: client.get(f"{ASK}&wait=30").status_code == 200)
    body = client.get(ASK).get_json()
    assert (read.count("r4"), read.count("wide")) == (2, 1)
    assert points(body).keys() == KEYS | {(2, 4, 16)}
    left = next(s for s in body["sections"] if s["id"] == "left_out")["data"]
    assert dict(zip(left["run"], left["why"], strict=True))["wide"].startswith("its weights are not those of `r1`")


def test_no_file_is_read_because_a_request_names_it(read: FlaskClient, tmp_path: Path) -> None:
    secret = tmp_path / "points.json"
    secret.write_text("{}")
    answer = read.get(f"{ASK}&points={secret}")
    assert answer.status_code == 400 and answer.get_json()["error"]["field"] == "points" and "server" in answer.get_data(as_text=True)


@pytest.mark.parametrize(("more", "field"), [("share=101", "share"), ("price=-1", "price"), ("runs=nope", "runs"), ("color=1", "color")])
def test_an_unknown_or_impossible_query_field_is_an_error(read: FlaskClient, more: str, field: str) -> None:
    read.get(f"{ASK}&wait=30")
    answer = read.get(f"{ASK}&{more}")
    assert answer.status_code == 400 and answer.get_json()["error"]["field"] == field


def test_a_sidecar_file_in_the_folder_of_a_run_changes_the_answer(client: FlaskClient, logdir: Path) -> None:
    # GIVEN an answer that is kept WHEN a correction is laid into the folder of a run THEN the next answer has it
    before = client.get(f"{ASK}&wait=30")
    (logdir / "r2" / "sol_scaling.csv").write_text(
        "num_nodes,num_replicas,atomic_bsz,accum_step_time,optim_step_time\n1,2,16,0.16,0.5\n2,4,16,0.16,0.6\n"
    )
    after = client.get(ASK)
    assert after.headers["ETag"] != before.headers["ETag"]
    data = next(s for s in after.get_json()["sections"] if s["id"] == "points")["data"]
    kept = {(r, n, s) for r, n, s, why in zip(data["run"], data["num_replicas"], data["source"], data["why"], strict=True) if why is None}
    assert ("r2", 2, "given") in kept and ("r2", 2, "trace") not in kept and ("r2", 4, "given") in kept


def test_an_answer_is_kept_in_memory(read: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    read.get(f"{ASK}&wait=30")
    read.get(ASK)
    before = read.get(ASK)
    # WHEN asked again THEN no recording is opened, nothing is fitted, and the answer is the same
    monkeypatch.setattr(reductions, "open_here", None)
    monkeypatch.setattr(gathered, "fit", None)
    after = read.get(ASK)
    assert after.status_code == 200 and after.get_data() == before.get_data()


def test_the_simulated_cluster_answers_over_all_runs(read: FlaskClient) -> None:
    answer = read.get("/api/v1/analysis/scaling_cluster?run=r1&wait=30&hours=0")
    body = answer.get_json()
    assert answer.status_code == 200 and body["available"] and any("simulation" in n["text"] for n in body["notices"])
