"""Many clients at once against `tb-sol serve`: `python -m benchmarks.clients LOGDIR [--clients 100] [--seconds 60]`.

First every report is asked for by all clients at once (cold), then they ask for made ones at random until the time ends (warm). Printed are
answers, errors, answers whose bytes differ from the first of their kind, percentiles of latency, and memory of the server and its processes
every tenth of the time. A request beyond `--patience` seconds counts as lost. The status is 1 where one was lost, failed or differed.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from urllib.parse import urlencode

import psutil

from benchmarks.rest import serving
from tb_sol_plugin.model.registry import registry

GZIP = b"\x1f\x8b"
"""What compressed bytes begin with."""


@dataclass
class Seen:
    """What the clients saw: seconds by answer, faults by what they were, the first answer's digest by address."""

    seconds: list[float] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)

    def fault(self, what: str) -> None:
        self.faults[what] = self.faults.get(what, 0) + 1

    def line(self) -> str:
        times = sorted(self.seconds) or [0.0]
        at = {p: times[min(len(times) - 1, int(len(times) * p / 100))] for p in (50, 95, 99)}
        spread = ", ".join(f"p{p} {value:.3f} s" for p, value in at.items())
        return f"{len(self.seconds):,} answers, {spread}, longest {times[-1]:.3f} s, faults {self.faults or 'none'}"


async def _get(port: int, address: str, patience: float) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {address} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        raw = await asyncio.wait_for(reader.read(-1), patience)
    finally:
        writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head else 0
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), len(body))
    return (status, body) if len(body) == length else (0, body)


async def _ask(port: int, address: str, seen: Seen, patience: float) -> None:
    """Ask until the report is there; the time until then counts."""
    begin = time.perf_counter()
    while True:
        try:
            status, body = await _get(port, address, patience)
        except (OSError, asyncio.TimeoutError) as error:
            return seen.fault(f"lost: {type(error).__name__}")
        if status != 409:
            break
        if time.perf_counter() - begin > patience:
            return seen.fault("lost: still loading")
        await asyncio.sleep(0.2)
    seen.seconds.append(time.perf_counter() - begin)
    if status != 200:
        return seen.fault(f"status {status}")
    digest = hashlib.blake2b(body, digest_size=12).hexdigest()
    if seen.bodies.setdefault(address, digest) != digest:
        seen.fault("differs")


def _memory(pid: int) -> float:
    server = psutil.Process(pid)
    return sum(process.memory_info().rss for process in [server, *server.children(recursive=True)]) / 1e6


async def _all(port: int, pid: int, options: argparse.Namespace) -> bool:
    runs: dict[str, list[dict[str, str]]] = {}
    while not runs.get("runs"):
        await asyncio.sleep(0.3)
        body = (await _get(port, "/api/v1/runs", 20))[1]
        runs = json.loads(gzip.decompress(body) if body[:2] == GZIP else body)  # a list of few runs comes as it is
    names = [name for name, item in registry().items() if item.scope == "capture"]
    which = [urlencode({"run": run["name"]}) for run in runs["runs"]]
    addresses = [f"/api/v1/analysis/{name}?{run}&wait=5&tables=pages" for name in names for run in which]
    dice, cold = random.Random(0), Seen()
    todo = [address for address in addresses for _ in range(max(1, options.clients // len(addresses)))]
    dice.shuffle(todo)
    await asyncio.gather(*(_ask(port, address, cold, options.patience) for address in todo))
    print("cold:", cold.line(), flush=True)
    warm, end, memory = Seen(bodies=cold.bodies), time.monotonic() + options.seconds, []

    async def client() -> None:
        while time.monotonic() < end:
            await _ask(port, dice.choice(addresses), warm, options.patience)

    async def watch() -> None:
        while time.monotonic() < end:
            memory.append(round(_memory(pid)))
            await asyncio.sleep(options.seconds / 10)

    await asyncio.gather(watch(), *(client() for _ in range(options.clients)))
    print("warm:", warm.line())
    print("memory, MB:", *memory)
    return not cold.faults and not warm.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logdir")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--patience", type=float, default=120.0)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="tb-sol-clients-") as cache,
        serving(options.logdir, "--cache-dir", cache, quiet=False) as (port, pid),
    ):
        return 0 if asyncio.run(_all(port, pid, options)) else 1


if __name__ == "__main__":
    sys.exit(main())
