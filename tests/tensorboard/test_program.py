"""`tensorboard` as a program, with the plugin found by its entry point."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny import EVENTS, trace

pytestmark = pytest.mark.tensorboard
HOME = "/data/plugin/sol"


def test_listed_served_and_loaded(tensorboard: Callable[..., Any], logdir: Path) -> None:
    # GIVEN a started TensorBoard WHEN its page asks THEN our tab is enabled and a recording loads in a process of its own
    server = tensorboard("--logdir", str(logdir))
    listing = json.loads(server.get("/data/plugins_listing")[2])
    assert listing["sol"]["enabled"] is True and listing["sol"]["tab_name"] == "SOL"
    status, _, body = server.get(f"{HOME}/api/v1/analysis/health?run=job&wait=30")
    assert status == 200 and json.loads(body)["available"] is True
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(120)
    end = time.monotonic() + 120
    while any(alive(int(c)) for c in children):
        assert time.monotonic() < end, "a reading process outlived the server"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_reader_is_an_error_on_the_page_and_tensorboard_lives(tensorboard: Callable[..., Any], logdir: Path) -> None:
    # GIVEN a recording large enough to be caught while it is read
    big = logdir / "big" / "w.pt.trace.json"
    big.parent.mkdir()
    one = json.dumps(EVENTS[0])
    with open(big, "w", encoding="ascii") as stream:
        stream.write('{"traceEvents":[')
        for _ in range(40):
            stream.write((one + ",") * 20_000)
        stream.write(one + "]}")
    server = tensorboard("--logdir", str(logdir))
    # WHEN the process that reads it is killed
    address = f"{HOME}/api/v1/analyses?run=big"
    status, _, body = server.get(address)
    assert status == 409 and json.loads(body)["progress"]["total"] == big.stat().st_size
    task = Path(f"/proc/{server.process.pid}/task")
    killed = False
    end = time.monotonic() + 120
    while not killed and time.monotonic() < end:
        progress = json.loads(server.get(address)[2]).get("progress") or {}
        if progress.get("stage") in ("reading", "linking", "starting"):
            for thread in task.iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread, or a child, that ended meanwhile
                    for child in (thread / "children").read_text().split():
                        os.kill(int(child), signal.SIGKILL)
                        killed = True
    assert killed
    # THEN the page gets an error with the file's name, soon; other recordings open; a new scan lets it be read after all
    end = time.monotonic() + 120
    while (reply := server.get(address))[0] == 409:
        assert time.monotonic() < end
        time.sleep(0.05)
    error = json.loads(reply[2])["error"]
    assert reply[0] == 500 and error["code"] == "worker_killed" and error["file"] == "big/w.pt.trace.json" and error["hint"]
    assert server.get(f"{HOME}/api/v1/analysis/health?run=job&wait=30")[0] == 200


def test_flags_and_a_path_prefix_reach_the_plugin(tensorboard: Callable[..., Any], logdir: Path, tmp_path: Path) -> None:
    trace(tmp_path / "two" / "a.json")
    cache = tmp_path / "my-cache"
    flags = ("--sol_cache_dir", str(cache), "--sol_serve_original", "off", "--path_prefix", "/a/b")
    server = tensorboard("--logdir_spec", f"x:{logdir},y:{tmp_path / 'two'}", *flags)
    assert server.address.endswith("/a/b")
    assert json.loads(server.get("/data/plugins_listing")[2])["sol"]["loading_mechanism"]["module_path"]
    end = time.monotonic() + 120
    while not (runs := json.loads(server.get(f"{HOME}/api/v1/runs")[2]))["runs"]:
        assert time.monotonic() < end
    assert [r["name"] for r in runs["runs"]] == ["x/job", "y"] and runs["features"]["original"] is False
    assert server.get(f"{HOME}/api/v1/analyses?run=y&wait=30")[0] == 200
    assert len(list(cache.iterdir())) == 1
    assert server.get(f"{HOME}/api/v1/trace?run=y")[0] == 403


def test_a_wrong_flag_is_refused(tensorboard: Callable[..., Any], logdir: Path) -> None:
    with pytest.raises(AssertionError, match="sol_cache_gb must not be negative"):
        tensorboard("--logdir", str(logdir), "--sol_cache_gb", "-1")
