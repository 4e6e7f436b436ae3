"""Python processes that start with torch imported: a server imports it once per test session, and each process is a fork of it.

`python("-c", text, ...)`, `python("-m", module, ...)` and `python(path, ...)` run what the interpreter would run with these arguments, in a
`__main__` of its own, and end as an interpreter ends: exit handlers run, an exception is printed, the exit code is that of the program.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

FORKS = hasattr(os, "fork") and hasattr(socket, "send_fds")
PRELOADED = (
    "torch", "torch._dynamo", "torch.distributed.fsdp", "torch.profiler", "torch.utils.tensorboard", "tb_sol_plugin.capture.hooks.instrument",
    "tb_sol_plugin.capture.tracker", "tb_sol_plugin.capture.report.analysis", "tb_sol_plugin.capture.report.loggers", "msgspec", "fsspec",
)  # fmt: skip
"""Modules that the server imports where they are there: those that cost seconds."""


class Process:
    """A running fork, in the manner of `subprocess.Popen`: its output and errors are kept in files until it has ended."""

    def __init__(self, arguments: tuple[str, ...], cwd: str, env: dict[str, str], errors_apart: bool) -> None:
        self._files = [tempfile.TemporaryFile("w+", encoding="utf-8") for _ in range(2 if errors_apart else 1)]  # noqa: SIM115  (closed in `communicate`)
        self._status, write = os.pipe()
        request = json.dumps({"arguments": arguments, "cwd": cwd, "env": env}).encode() + b"\n"
        descriptors = [self._files[0].fileno(), self._files[-1].fileno(), write]
        channel = server()
        try:
            sent = socket.send_fds(channel, [request], descriptors)
            channel.sendall(request[sent:])
        finally:
            os.close(write)
        self.returncode: int | None = None
        self._lines: list[bytes] = []
        self.pid = int(self._line(120))

    def _line(self, timeout: float | None) -> str:
        """Return the next line that the waiting process writes: the number of the fork, then its exit code."""
        if not self._lines:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("python", timeout or 0)
            self._lines = os.read(self._status, 64).splitlines()
        return self._lines.pop(0).decode()

    def poll(self) -> int | None:
        if self.returncode is None and (self._lines or select.select([self._status], [], [], 0)[0]):
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = int(self._line(timeout))
            os.close(self._status)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; the output and the errors, which are in the output where they are not kept apart."""
        self.wait(timeout)
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read())
            file.close()
        return texts[0], texts[1] if len(texts) > 1 else ""

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def python(*arguments: object, cwd: object = ROOT, env: dict[str, str] | None = None, errors_apart: bool = False) -> Any:
    """Start a process. env: what is set besides the environment of the tests."""
    texts = tuple(map(str, arguments))
    whole = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **(env or {})}
    if FORKS:
        return Process(texts, str(cwd), whole, errors_apart)
    errors = subprocess.PIPE if errors_apart else subprocess.STDOUT
    return subprocess.Popen([sys.executable, *texts], cwd=str(cwd), env=whole, text=True, stdout=subprocess.PIPE, stderr=errors)


@cache
def server() -> socket.socket:
    """The channel to the server of this session, which ends when the channel is closed."""
    here, there = socket.socketpair()
    command = [sys.executable, "-m", "tests.support.forked", str(there.fileno())]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL)
    there.close()

    def end() -> None:
        here.close()
        process.wait(60)

    atexit.register(end)
    return here


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; return it in the fork that runs the program, and None in the server once the channel is closed."""
    import importlib

    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    running = 0
    while True:
        text, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        while text and not text.endswith(b"\n"):
            text += channel.recv(1 << 20)
        while running and os.waitpid(-1, 0 if not text else os.WNOHANG)[0]:  # takes over the CPU times of those that have ended
            running -= 1
        if not text:
            return None
        running += 1
        if os.fork() == 0:
            channel.close()
            return program(json.loads(text), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def program(request: dict[str, Any], output: int, errors: int, status: int) -> dict[str, Any]:
    """Fork once more: the parent waits for the program and writes its exit code, the child returns with its own output."""
    pid = os.fork()
    if pid:
        os.write(status, b"%d\n" % pid)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, b"%d\n" % code)
        os._exit(0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for descriptor in (output, errors, status):
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    return request


def run(arguments: list[str]) -> None:
    """Run what the interpreter runs with these arguments."""
    import runpy
    from types import ModuleType

    first, *rest = arguments
    if first == "-c":
        main = sys.modules["__main__"] = ModuleType("__main__")
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv, sys.path[0] = rest, ""
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        torch = sys.modules.get("torch")
        if torch is not None:  # ranks that the program starts are forks, too
            torch.multiprocessing.spawn = lambda main, args, nprocs: torch.multiprocessing.start_processes(main, args, nprocs, start_method="fork")
        sys.argv, sys.path[0] = arguments, os.path.dirname(first)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        run(asked["arguments"])
