"""TensorBoard as it is: its WSGI application in this process, and its program in another."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.tiny import trace

URL = re.compile(r"http://[^\s]+?:(\d+)(/\S*)?")


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """A logdir with one run of two workers."""
    root = tmp_path / "logs"
    for name in ("rank0.1", "rank1.1"):
        trace(root / "job" / f"{name}.pt.trace.json.gz")
    return root


@pytest.fixture(scope="session")
def entry_point(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which TensorBoard finds the plugin, also where the package was not installed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = [p for p in importlib.metadata.entry_points(group="tensorboard_plugins") if p.value.startswith("tb_sol_plugin")]
    if not found:
        site = tmp_path_factory.mktemp("site")
        info = site / "tb_sol_plugin-0.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tb-sol-plugin\nVersion: 0.0\n")
        (info / "entry_points.txt").write_text("[tensorboard_plugins]\ntb_sol_plugin = tb_sol_plugin.loader:Loader\n")
        environment["PYTHONPATH"] = os.pathsep.join((str(site), str(ROOT)))
    return environment


class Server:
    """A running `tensorboard`."""

    def __init__(self, process: subprocess.Popen[str], address: str, lines: list[str], seconds: float) -> None:
        self.process = process
        self.address = address
        self.lines = lines
        self.seconds = seconds

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body; error statuses are answers too."""
        request = urllib.request.Request(self.address + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status, dict(reply.headers), reply.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()


@pytest.fixture
def tensorboard(entry_point: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Start `tensorboard` with flags; ended with the test."""
    running: list[subprocess.Popen[str]] = []

    # `-m` puts the working directory first on the path: an empty one, so that the checkout does not decide what is found
    neutral = tmp_path_factory.mktemp("neutral")

    def start(*flags: str, environment: dict[str, str] | None = None) -> Server:
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--port", "0", *flags],
            env={**entry_point, **(environment or {})}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=neutral,
        )  # fmt: skip
        running.append(process)
        lines: list[str] = []
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            match = URL.search(line)
            if match and "Press CTRL+C" in line:
                prefix = (match.group(2) or "/").rstrip("/")
                return Server(process, f"http://localhost:{match.group(1)}{prefix}", lines, time.monotonic() - begun)
        raise AssertionError("TensorBoard did not start:\n" + "".join(lines))

    yield start
    for process in running:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        if process.stderr is not None:
            process.stderr.close()
