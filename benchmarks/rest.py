"""Latencies over HTTP: `tb-sol serve` in a process of its own, with one request at a time on the loopback address."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psutil

ONE, ALL = "one", "all"
"""Stand for steps that no request asked for before: one of them, and all but a few."""
PLANS = {
    "runs": ("runs", {}),
    "ready-made table (kernels)": ("analysis/kernels", {}),
    "a new step (gpu_breakdown)": ("analysis/gpu_breakdown", {"step": ONE}),
    "a new step (operators)": ("analysis/operators", {"step": ONE}),
    "a new full scan (kernels)": ("analysis/kernels", {"step": ALL}),
    "a new full scan (operators by shape)": ("analysis/operators", {"group_by": "name_shape", "step": ALL}),
    "modules": ("analysis/modules", {}),
}


def latencies(logdir: Path, *, requests: int = 30, patience: float = 900.0) -> tuple[dict[str, list[float]], float, float]:
    """Seconds per request by plan, seconds from the first request to the first report, and the peak MB of all its processes."""
    peak = 0.0
    with serving(str(logdir)) as (port, pid):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        begin = time.perf_counter()
        selection = _selection(client)
        while True:
            status, body = _get(client, "analysis/health", selection)
            peak = max(peak, _memory(pid))
            if status == 200:
                break
            if status != 409 or time.perf_counter() - begin > patience:
                raise RuntimeError(f"the server answers {status}: {body[:200]!r}")
            time.sleep(0.02)
        first = time.perf_counter() - begin
        steps = _steps(json.loads(_get(client, "analysis/steps", selection)[1]))
        out: dict[str, list[float]] = {}
        for label, (route, query) in PLANS.items():
            times = []
            for turn in range(requests if steps or "step" not in query else 0):
                asked = query | ({"step": _new_steps(steps, turn, query["step"])} if "step" in query else {})
                clock = time.perf_counter()
                status, _body = _get(client, route, selection | asked if route != "runs" else {})
                if status == 200:
                    times.append(time.perf_counter() - clock)
            out[label] = times
            peak = max(peak, _memory(pid))
        return out, first, peak


@contextmanager
def serving(logdir: str, *options: str, quiet: bool = True) -> Iterator[tuple[int, int]]:
    """Yields (port, process id) of `tb-sol serve` once it answers; it ends with the block. quiet: without its log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tb_sol_plugin.cli", "serve", logdir, "--port", str(port), *options]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL if quiet else None)
    try:
        _until_up(port, server, 60.0)
        yield port, server.pid
    finally:
        server.terminate()
        server.wait(20)


def _until_up(port: int, server: subprocess.Popen[bytes], patience: float) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with status {server.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("the server did not come up")


def _get(client: http.client.HTTPConnection, route: str, query: dict[str, str]) -> tuple[int, bytes]:
    client.request("GET", f"/api/v1/{route}?{urlencode(query)}", headers={"Accept-Encoding": "gzip"})
    answer = client.getresponse()
    body = answer.read()
    if answer.getheader("Content-Encoding") == "gzip":
        import gzip

        body = gzip.decompress(body)
    return answer.status, body


def _selection(client: http.client.HTTPConnection) -> dict[str, str]:
    """The first recording that the server lists, waiting for its scan."""
    for _ in range(200):
        runs = json.loads(_get(client, "runs", {})[1])
        if runs.get("runs"):
            run = runs["runs"][0]
            name = run["name"] if isinstance(run, dict) else run
            return {"run": str(name)}
        time.sleep(0.05)
    raise RuntimeError("the server lists no run")


def _steps(report: dict[str, object]) -> list[int]:
    """The steps of a recording in order, where its table came whole."""
    sections = report.get("sections")
    for section in sections if isinstance(sections, list) else []:
        if section["id"] == "steps":
            return [step for step in section["data"]["step"] if isinstance(step, int)]
    return []


def _new_steps(steps: list[int], turn: int, which: str) -> str:
    """Other steps for each turn, as long as there are enough."""
    if which == ONE:
        return str(steps[turn % len(steps)])
    begin = turn % max(len(steps) // 2, 1)
    return f"{steps[begin]}-{steps[-1]}"


def _memory(pid: int) -> float:
    """Proportional memory (MB) of a process and its children: shared pages count once."""
    return sum(map(_own_memory, [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]))


def _own_memory(process: psutil.Process) -> float:
    try:
        return float(getattr(process.memory_full_info(), "pss", process.memory_info().rss)) / 2**20
    except psutil.Error:  # it ended meanwhile
        return 0.0
