"""Answers kept on disk: the next server sends the same bytes without computing them, and nothing else ever."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.model.answer import Inputs
from tb_sol_plugin.store import kept
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import answers
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.rank_factory import Job, simulate
from tests.support.sol_builder import small
from tests.support.trace_builder import TraceBuilder

PAGES = ("roofline", "kernels", "overview", "steps")


def record(folder: Path, kernel: str = "gemm") -> None:
    t = TraceBuilder()
    t.step(1, 0, 50_000)
    t.op("aten::mm", 0, 900, shapes=[[2048, 2048], [2048, 2048]], types=["c10::BFloat16", "c10::BFloat16"])
    t.launch(kernel, at=100, start=2000, duration=10_000)
    t.write(folder / "job" / "w.json")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    record(tmp_path / "logs")
    return tmp_path / "logs"


@contextmanager
def server(logs: Path, cache: str, **options: str) -> Iterator[FlaskClient]:
    """A server of its own over one cache."""
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(logs)), StoreOptions(cache_dir=cache, **options), executor=pool)  # type: ignore[arg-type]
        yield create_app(store, WebOptions()).test_client()
        store.close()


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the analyses that were computed."""
    names: list[str] = []
    report = Inputs.report

    def counted(self: Inputs) -> object:
        names.append(self.request.name)
        return report(self)

    monkeypatch.setattr(Inputs, "report", counted)
    return names


def ask(client: FlaskClient, name: str, **query: str) -> bytes:
    answer = client.get(f"/api/v1/analysis/{name}", query_string={"run": "job", "wait": "20", "tables": "pages", **query})
    assert answer.status_code == 200, answer.get_json()
    return answer.data


def test_the_next_server_sends_the_same_without_computing(logs: Path, tmp_path: Path, computed: list[str]) -> None:
    cache = str(tmp_path / "cache")
    with server(logs, cache) as client:
        first = [ask(client, name) for name in PAGES]
        ask(client, "timeline_selection", start_ns="0", end_ns="5000")  # a window that was drawn: not kept
        computed.remove("timeline_selection")
    assert computed == list(PAGES)
    # GIVEN another server over the same cache THEN it computes nothing, and a table in pages can still be asked for
    with server(logs, cache) as client:
        assert [ask(client, name) for name in PAGES] == first and computed == list(PAGES)
        shown = json.loads(ask(client, "kernels"))
        section = next(s for s in shown["sections"] if s["kind"] == "table")
        page = client.get("/api/v1/table/kernels", query_string={"run": "job", "section": section["id"]})
        assert page.status_code == 200 and computed == [*PAGES, "kernels"]
    # AND the files are the user's alone, and small
    folder = tmp_path / "cache" / answers.FOLDER
    assert folder.stat().st_mode & 0o077 == 0
    assert sum(f.stat().st_size for f in folder.rglob("*.part")) < sum(map(len, first)) / 2
    assert len([*folder.rglob("*.part")]) == len(PAGES)


def test_whatever_changes_an_answer_makes_it_anew(logs: Path, tmp_path: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cache = str(tmp_path / "cache")

    def again(**options: str) -> bytes:
        computed.clear()
        with server(logs, cache, **options) as client:
            return ask(client, "roofline")

    first = again()
    assert computed == ["roofline"] and again() == first and not computed
    # WHEN a device file appears, limits are chosen for the server, the code is another THEN it is computed
    path = logs / "sol_devices.json"
    path.write_text(json.dumps([{"key": "H100_SXM", "bf16_tensor_tflops": 494.7}]))
    assert again() != first and computed
    path.unlink()
    assert again() == first and not computed
    assert again(device="V100_SXM2_16") != first and computed
    monkeypatch.setattr(answers, "code_state", lambda: "other")
    assert again() == first and computed
    monkeypatch.undo()
    # AND where the recording is another one of the same name and time
    before = (logs / "job" / "w.json").stat()
    record(logs, "another_gemm")
    os.utime(logs / "job" / "w.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    with server(logs, cache) as client:
        assert b"another_gemm" in ask(client, "kernels")


def test_a_page_of_ranks_is_computed_once_until_a_rank_is_added(tmp_path: Path, computed: list[str]) -> None:
    # GIVEN two ranks of three WHEN another server is asked THEN it computes nothing; WHEN the third appears THEN it is in the answer
    folder, cache = tmp_path / "logs" / "job", str(tmp_path / "cache")
    made = simulate(Job(tp=3, dp=1, layers=1, steps=1))
    for rank in (0, 1):
        made.trace(rank).write(folder / f"rank{rank}.1.pt.trace.json.gz")
    with server(tmp_path / "logs", cache) as client:
        first = ask(client, "ranks")
    with server(tmp_path / "logs", cache) as client:
        assert ask(client, "ranks") == first and computed == ["ranks"]
    made.trace(2).write(folder / "rank2.1.pt.trace.json.gz")
    with server(tmp_path / "logs", cache) as client:
        found = json.loads(ask(client, "ranks"))
        assert computed == ["ranks", "ranks"] and next(s for s in found["sections"] if s["id"] == "facts")["values"]["ranks_present"] == 3


def test_a_damaged_answer_is_computed(logs: Path, tmp_path: Path, computed: list[str]) -> None:
    cache = tmp_path / "cache"
    with server(logs, str(cache)) as client:
        first = ask(client, "kernels")
    (file,) = (cache / answers.FOLDER).rglob("*.part")
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    file.write_bytes(body)
    computed.clear()
    with server(logs, str(cache)) as client:
        assert ask(client, "kernels") == first and computed == ["kernels"]


def test_nothing_is_kept_without_a_cache_and_of_code_of_others(
    logs: Path, tmp_path: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with server(logs, "") as client:
            ask(client, "kernels")
    assert computed == ["kernels"] * 2
    monkeypatch.setattr(answers, "_extended", lambda: True)
    with server(logs, str(tmp_path / "cache")) as client:
        ask(client, "kernels")
    assert not (tmp_path / "cache" / answers.FOLDER).exists()


def test_a_recording_that_changes_while_it_is_read_is_not_kept(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "unchanged", lambda recording, options: False)
    with server(logs, str(tmp_path / "cache")) as client:
        ask(client, "kernels")
    assert not (tmp_path / "cache" / answers.FOLDER).exists()


@pytest.mark.parametrize(("age", "kept_ones"), [(5, 0), (3_600, 1)])
def test_a_sol_capture_is_kept_once_it_rests(tmp_path: Path, age: int, kept_ones: int) -> None:
    path = tmp_path / "logs" / "job" / "host_rank0_1_2.sol.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in small().lines()))
    os.utime(path, (time.time() - age,) * 2)
    with server(tmp_path / "logs", str(tmp_path / "cache")) as client:
        ask(client, "overview")
    assert len([*(tmp_path / "cache").rglob("*.part")]) == kept_ones


def test_the_state_of_the_code_changes_with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "a.py").write_text("1")
    monkeypatch.setattr(kept, "__file__", str(tmp_path / "store" / "kept.py"))
    state = kept.code_state.__wrapped__
    first = state()
    assert state() == first
    (tmp_path / "note.txt").write_text("no code")
    assert state() == first
    (tmp_path / "a.py").write_text("12")
    assert state() != first
