"""Tokens planted in every free text of every kind of recording come out nowhere: pages, tables, command line, files, logs, cache."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.cli import command as cli
from tb_sol_plugin.store import timelines
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.routes import create_app
from tests.support import memory_snapshot, proton_profile, sol_builder
from tests.support.html_file import packed

TAIL = "aBcDeFgHiJkLmNoPqRsTuVwXyZ0123"


class Plants:
    """Makes tokens, each another one, and knows where each was planted."""

    def __init__(self) -> None:
        self.places: list[str] = []

    def __call__(self, place: str) -> str:
        self.places.append(place)
        return f"ghp_{len(self.places) - 1:04d}{TAIL}"

    def found_in(self, body: bytes) -> set[str]:
        pieces = body.split(TAIL.encode())[:-1]
        return {self.places[int(p[-4:])] for p in pieces}


def planted_trace(path: Path, plant: Plants) -> None:
    x = {"ph": "X", "pid": 1, "tid": 1}
    k = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7}
    texts = {"Concrete Inputs": [plant("concrete input"), "", "2"], "Input type": ["float", plant("input type"), ""], "Input Dims": [[2, 2], [2, 2], []]}
    more = {"Call stack": plant("call stack"), "note": plant("argument"), "password": "hunter2" + TAIL[::-1], plant("key of an argument"): 1}
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": plant("process name")}},
        {"ph": "M", "name": "process_labels", "pid": 1, "tid": 0, "ts": 0, "args": {"labels": plant("process labels")}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": 0, "args": {"name": plant("thread name")}},
        {**x, "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 400, "args": {"External id": 90}},
        {**x, "cat": "user_annotation", "name": "load " + plant("annotation"), "ts": 2, "dur": 300, "args": {"External id": 91, "x": plant("annotation argument")}},
        {**x, "cat": "python_function", "name": "train.py(7): " + plant("frame"), "ts": 3, "dur": 250, "args": {"Python id": 1, "Python parent id": None}},
        {**x, "cat": "python_function", "name": "nn.Module: " + plant("module"), "ts": 4, "dur": 240, "args": {"Python id": 2, "Python parent id": 1, "Python module id": 0}},
        {**x, "cat": "cpu_op", "name": "mine::" + plant("operator"), "ts": 10, "dur": 200, "args": {"External id": 1, **texts, **more}},
        {**x, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 12, "dur": 2, "args": {"correlation": 7, "External id": 1}},
        {**x, "cat": "cuda_runtime", "name": "cudaMystery " + plant("runtime call"), "ts": 16, "dur": 2, "args": {"correlation": 8}},
        {**k, "name": "gemm " + plant("kernel"), "ts": 20, "dur": 30, "args": {"correlation": 7, "device": 0, "stream": 7, "External id": 1, "grid": [1, 1, 1], "kernel_file": plant("kernel argument")}},
        {**k, "cat": "gpu_user_annotation", "name": plant("annotation on the device"), "ts": 20, "dur": 60, "args": {"External id": 91, "stream": 7, "device": 0}},
        {**k, "name": "ncclKernel " + plant("collective"), "ts": 60, "dur": 30, "args": {"device": 0, "stream": 7, "Collective name": plant("collective name"), "Process Group Name": plant("process group"), "Process Group Description": plant("group"), "dtype": "Float", "In msg nelems": 8, "Group size": 2}},
        {**k, "cat": plant("category"), "name": "odd", "ts": 95, "dur": 3, "args": {}},
        {"ph": "i", "s": "t", "cat": "mine", "name": "instant " + plant("instant"), "pid": 1, "tid": 1, "ts": 14, "args": {"x": plant("instant argument")}},
        {"ph": "C", "name": plant("counter"), "pid": 1, "tid": 1, "ts": 15, "args": {plant("series"): 1}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": plant("process id"), "tid": plant("thread id"), "ts": 30, "dur": plant("duration")},
        {"ph": plant("phase"), "name": "x", "pid": 1, "tid": 1, "ts": 1},
    ]  # fmt: skip
    header = {
        "schemaVersion": 1, "record_shapes": 1, "with_stack": 1, "trace_id": plant("trace id"), "host_name": plant("host"), "username": plant("user"),
        "displayTimeUnit": "ms", "traceName": plant("trace name"), "PROFILE": plant("unknown header"),
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 " + plant("device"), "totalGlobalMem": 80 * 10**9, "numSms": 132}],
        "distributedInfo": {"backend": "nccl " + plant("backend"), "rank": 0, "world_size": 2, "pg_config": [{"pg_name": plant("group of the header")}]},
        "ERROR": ["ERROR: " + plant("error")], "WARNING": [plant("warning")],
        "cuda_runtime_version": plant("version"),
        "metadata": {
            "system": {"env": {"HF_TOKEN": plant("environment"), "X": plant("plain environment")}, "gpu": {"gpu_00": plant("metadata device")}},
            "experiment": {"repo_id": "acme/" + plant("model name"), "kind": plant("experiment")}, plant("metadata key"): 1, "model": {"name": plant("model")},
        },
    }  # fmt: skip
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**header, "traceEvents": events}))


def planted_sol(folder: Path, plant: Plants) -> None:
    b = sol_builder.small(host="node_" + plant("SOL host"), torch=plant("SOL version"), groups={plant("SOL group"): 2})
    head = b.records[0]
    head["model"] = {"class": plant("SOL class"), "parameters": 680, "trainable": 680, "parameter_bytes": 2720, "modules": 3, "compiled": False}
    head["device"] = {**head["device"], "name": plant("SOL device"), "key": plant("SOL device key")}  # type: ignore[dict-item]
    head["plan"] = {"hidden": 8, plant("SOL plan name"): 1, "attention": plant("SOL plan")}
    extra = [b.label(what, f"{what} " + plant(f"SOL {what}"), class_name=plant("SOL label class")) for what in ("phase", "module", "function")]
    sig = b.sig("mine::" + plant("SOL operator"), [[8]], concrete=[plant("SOL concrete")], flop=None, bytes=None, reason=plant("SOL reason"), work=plant("SOL work"))
    row = b.row(sig, module=extra[1], phase=extra[0], function=extra[2], time_ns=5000)
    b.iteration(3, 26_000_000, 8_000_000, rows=[row], phases=[b.time(extra[0], 26_000_000, 3_000_000)], lost={plant("SOL lost"): 2}, signature=plant("SOL signature"))
    b.note("failed_" + plant("SOL note code"), plant("SOL note"))
    folder.mkdir(parents=True)
    b.write(folder)


def planted_snapshot(path: Path, plant: Plants) -> None:
    made = memory_snapshot.snapshot()
    frames = [{"filename": f"/x/{plant('snapshot file')}/train.py", "line": 3, "name": plant("snapshot function")}]
    for traced in made["device_traces"]:
        for entry in traced:
            entry |= {"frames": frames, "compile_context": plant("snapshot context"), "user_metadata": plant("snapshot metadata")}
    for segment in made["segments"]:
        segment["segment_type"] = plant("snapshot segment")
        for block in segment["blocks"]:
            block["frames"] = frames
    made["external_annotations"] = [{"name": plant("snapshot annotation"), "stage": "START", "device": 0, "time_us": memory_snapshot.T0}]
    made["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": plant("snapshot settings"), plant("snapshot setting"): 1}
    path.write_bytes(pickle.dumps(made))


def planted_logdir(root: Path, plant: Plants) -> None:
    planted_trace(root / "job" / f"rank0_{plant('file name')}.pt.trace.json", plant)
    planted_trace(root / f"run {plant('folder name')}" / "rank0.json", plant)
    planted_sol(root / "sol", plant)
    (root / "memory").mkdir()
    planted_snapshot(root / "memory" / "rank0.pickle", plant)
    frame = proton_profile.root(proton_profile.scope(plant("Proton scope"), [proton_profile.kernel("k " + plant("Proton kernel"), 1000, 2)]))
    devices: proton_profile.Json = {"CUDA": {"0": {**proton_profile.H100, "arch": plant("Proton device")}}}
    proton_profile.write(root / "proton" / "decode.hatchet", frame, devices)
    (root / "sol_devices.json").write_text(json.dumps([{"key": plant("device key"), "name": plant("device row"), "mem_bw_gb_per_s": plant("device figure")}]))
    (root / "sol_scaling.json").write_text(json.dumps({"name": plant("scaling name"), "runs": [{"nodes": plant("scaling figure")}]}))
    (root / f"{plant('other file')}.json").write_text('{"a": 1}')


def answers(root: Path, cache: Path) -> Iterator[tuple[str, bytes]]:
    """Every page's data: runs, each recording, each analysis as JSON and as CSV, search, errors that quote what was asked."""
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(root)), StoreOptions(cache_dir=str(cache)), executor=pool)
        client = create_app(store).test_client()
        runs = client.get("/api/v1/runs")
        yield "runs", runs.data
        for run in runs.get_json()["runs"]:
            for worker in run["workers"]:
                query = {"run": run["name"], "worker": worker["name"], "wait": "20"}
                listed = client.get("/api/v1/analyses", query_string=query)
                yield "analyses", listed.data
                yield "run", client.get("/api/v1/run", query_string=query).data
                yield "search", client.get("/api/v1/search", query_string={**query, "q": "ghp"}).data
                yield "export", client.get("/api/v1/export", query_string=query).data
                page = client.get("/api/v1/export", query_string={**query, "form": "html"}).data
                yield "page as a file", b"".join((page, packed(page, "data"), packed(page, "tiles")))
                yield "summaries", client.get("/api/v1/summaries", query_string=query).data
                yield from timeline_answers(client, query)
                for item in (listed.get_json() or {}).get("analyses", []):
                    for form in ("json", "csv"):
                        reply = client.get(f"/api/v1/analysis/{item['name']}", query_string={**query, "format": form})
                        assert reply.status_code < 500, (item["name"], reply.data[:300])
                        if form == "json":
                            pages = [s["id"] for s in reply.get_json().get("sections", []) if s.get("pages")]
                            for page in pages:
                                asked = {**query, "section": page, "format": "csv"}
                                yield f"pages of {item['name']}", client.get(f"/api/v1/table/{item['name']}", query_string=asked).data
                        yield f"{item['name']} as {form} of {run['name']}", reply.data
        store.close()


def timeline_answers(client: FlaskClient, query: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """What the timeline of a recording says: its rows, names, all events, one by one too, links, what a search finds, the saved file."""
    shown = client.get("/api/v1/timeline", query_string=query)
    if shown.status_code != 200:
        return
    yield "timeline", shown.data
    yield "timeline/names", client.get("/api/v1/timeline/names", query_string=query).data
    for track in shown.get_json()["tracks"]:
        if track["lanes"]:
            listed = client.get("/api/v1/timeline/events", query_string={**query, "track": track["track"]})
            yield "timeline/events", listed.data
            for event in listed.get_json()["events"]:
                yield "timeline/event", client.get("/api/v1/timeline/event", query_string={**query, "track": track["track"], "event": event["event"]}).data
    for path, more in (("search", {"text": "ghp_"}), ("search", {"text": "e", "limit": "1000"}), ("flows", {})):
        yield f"timeline/{path}", client.get(f"/api/v1/timeline/{path}", query_string={**query, **more}).data
    yield "timeline/export", gzip.decompress(client.get("/api/v1/timeline/export", query_string=query).data)
    area = {**query, "start_ns": "0", "end_ns": str(2**60)}
    yield "timeline/selection", client.get("/api/v1/analysis/timeline_selection", query_string=area).data


def plain(path: Path) -> bytes:
    """What a file of the cache holds: answers are compressed behind their checksum."""
    body = path.read_bytes()
    return gzip.decompress(body[33:]) if body[33:35] == b"\x1f\x8b" else body


def test_no_planted_token_comes_out_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a logdir with a token in every free text that a trace, a SOL capture, a snapshot, a profile and files beside them have
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TB_SOL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(timelines, "FEWEST", 1)
    plant = Plants()
    planted_logdir(tmp_path / "logs", plant)
    # WHEN every page is asked for, reports and exports are written, and the command line is used
    bodies = list(answers(tmp_path / "logs", tmp_path / "cache"))
    recordings = [p for p in sorted((tmp_path / "logs").rglob("*")) if p.is_file() and p.suffix in (".json", ".pickle", ".hatchet", ".jsonl")]
    written = tmp_path / "written"
    written.mkdir()
    monkeypatch.chdir(tmp_path / "logs")
    for number, path in enumerate(recordings):
        name = str(path.relative_to(tmp_path / "logs"))
        if path.name.startswith("sol_") or path.parent == tmp_path / "logs":
            continue
        out = str(written / str(number))
        shown = ["analyze", "health", name, "--format", "text"]
        for arguments in (shown, ["report", name], ["export", "hatchet", name, "-o", out], ["export", "timeline", name, "-o", f"{out}.gz"]):
            with contextlib.suppress(SystemExit):
                cli.main(arguments)
    with contextlib.suppress(SystemExit):
        cli.main(["doctor", "."])
    printed = capfd.readouterr()
    bodies += [("printed", printed.out.encode()), ("errors", printed.err.encode()), ("log", caplog.text.encode())]
    bodies += [(f"cache {p.name}", plain(p)) for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    bodies += [(f"written {p.name}", gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes()) for p in written.rglob("*") if p.is_file()]
    bodies += [(f"name in the cache {p.name}", p.name.encode()) for p in (tmp_path / "cache").rglob("*")]
    # THEN none of them holds a token
    leaks = {(where, place) for where, body in bodies for place in plant.found_in(body)}
    assert not leaks, sorted(leaks)
    assert not any(TAIL[::-1].encode() in body for _, body in bodies)
    assert sum(b"[redacted]" in body for _, body in bodies) > 20
    assert len(list(written.iterdir())) >= 6 and "usage:" not in printed.err
    there = {where.partition(" ")[0] for where, _ in bodies} | {where for where, _ in bodies}
    assert {"page as a file", "timeline/names", "timeline/event", "timeline/export", "cache timeline.json"} <= there and list(written.glob("*.gz"))
    assert list((tmp_path / "cache" / "answers").rglob("*.part"))
