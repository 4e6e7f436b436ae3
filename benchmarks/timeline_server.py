"""Measures what the server does for the timeline: `python -m benchmarks.timeline_server FILE...`.

By file: lanes and levels in memory; every route over HTTP from a server that has just been started on a filled cache, whose files the
system let go from memory, and then warm; private memory that the timeline adds to the server, and bytes of its files per event.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.rest import serving
from benchmarks.timing import table, timed

SCREEN = 1_600
"""Pixels of time on a screen."""
MOST_ROWS = 60
"""Tracks of a screen."""
MANY = 100_000
"""Events of a selection."""
REPEATS = 40
"""Requests of a route: of fewer, the slowest of all would be the 95th of a hundred."""
SHOWN = {"first": 1, "first_cpu": 0, "median": 1, "p95": 1, "cpu": 1, "kib": 0}
"""Columns of the table of routes, and their decimals."""
Shape = dict[str, Any]
Figures = dict[str, Any]
ROUTES: dict[str, Callable[[Shape, int], str]] = {
    "tracks": lambda s, i: "timeline?{}",
    "names": lambda s, i: f"timeline/names?{{}}&fp={s['fingerprint']}",
    "tiles, all of it": lambda s, i: f"timeline/tiles?{{}}&z={_level(s, 1)}&i=0-3&tracks={_rows(s)}",
    "tiles, 1 % of it": lambda s, i: f"timeline/tiles?{{}}&z={_level(s, 0.01)}&i={_tiles(s, 0.01)}&tracks={_rows(s)}",
    "event": lambda s, i: f"timeline/event?{{}}&track={_stream(s)}&start_ns={s['span_ns'] // 2}&duration_ns=0",
    "search": lambda s, i: f"timeline/search?{{}}&text=kernel&end_ns={s['span_ns'] + i}",
    "selection of everything": lambda s, i: f"analysis/timeline_selection?{{}}&start_ns=0&end_ns={s['span_ns'] + i}",
    "selection of 100 k events": lambda s, i: f"analysis/timeline_selection?{{}}&start_ns={s['span_ns'] // 2}&end_ns={_after(s, i)}",
    "page of the analysis": lambda s, i: "analysis/timeline?{}",
}
"""The address of each for its i-th request: windows differ by a ns, so that none is answered from memory."""


def _rows(shape: Shape) -> str:
    return ",".join(str(t["track"]) for t in shape["tracks"][:MOST_ROWS])


def _level(shape: Shape, part: float) -> int:
    return max(0, int(shape["span_ns"] * part / SCREEN).bit_length() - 1)


def _tiles(shape: Shape, part: float) -> str:
    first = int(shape["span_ns"] * 0.5) >> (_level(shape, part) + 10)
    return f"{first}-{first + 3}"


def _stream(shape: Shape) -> int:
    return int(next(t["track"] for t in shape["tracks"] if t["lanes"]))


def _after(shape: Shape, i: int) -> int:
    """The end of a window from the middle on that holds MANY events, or half of everything."""
    span = int(shape["span_ns"])
    return span // 2 + min(span * MANY // max(shape["events"], 1), span // 2) + i


def measured(path: Path, repeats: int) -> Figures:
    """Returns what lanes and levels cost in memory, latencies of a server on a filled cache, its memory and its files."""
    return {**built(path), **served(path, repeats)}


def tables(figures: Figures) -> str:
    """Returns the figures as tables."""
    events = f"{figures['events']:,} events"
    return "\n".join(
        (
            table(
                ("in memory", f"{events}, ms"),
                [("arranged in lanes", f"{figures['arranged']:.1f}"), ("merged to levels", f"{figures['merged']:.1f}")],
            ),
            table(
                ("server on a filled cache", events),
                [("files, B per event", f"{figures['bytes_per_event']:.1f}"), ("private memory, MB", f"{figures['private_mb']:.0f}")],
            ),
            table(
                ("route over HTTP", "first, ms", "its processor", "median", "p95", "processor", "KiB, gzip"),
                [(n, *(f"{r[k]:.{d}f}" for k, d in SHOWN.items())) for n, r in figures["routes"].items()],
            ),
        )
    )  # fmt: skip


def built(path: Path, repeats: int = 3) -> Figures:
    """Returns what lanes and levels cost in memory, ms."""
    from tb_sol_plugin import ingest
    from tb_sol_plugin.metrics.timeline.timeline import Timeline

    capture = ingest.read(str(path))

    def arranged() -> object:
        return Timeline(capture).arranged

    def merged() -> object:
        shown = Timeline(capture)
        begin = time.perf_counter()
        assert shown.pyramid.levels is not None
        return spent.append(time.perf_counter() - begin)

    spent: list[float] = []
    lanes = timed(arranged, repeats)
    timed(merged, repeats)
    return {"arranged": 1000 * lanes, "merged": 1000 * statistics.median(spent)}


def served(path: Path, repeats: int) -> Figures:
    """Returns latencies of a server on a filled cache, its memory and its files."""
    with tempfile.TemporaryDirectory() as folder:
        logs, cache = Path(folder) / "logs", Path(folder) / "cache"
        (logs / "run").mkdir(parents=True)
        shutil.copy(path, logs / "run" / f"worker.{path.name}")
        with serving(str(logs), "--cache-dir", str(cache)) as (port, _):
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
            query, shape = opened(client)
            get(client, ROUTES["tiles, all of it"](shape, 0).format(query))
            until(lambda: any(cache.rglob("timeline.json")))  # what is kept is written beside the answer
        kept = sum(f.stat().st_size for f in cache.rglob("timeline*"))
        let_go(cache)
        with serving(str(logs), "--cache-dir", str(cache)) as (port, pid):
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
            opened(client, "analysis/health")
            rest(pid)  # a person looks at the list of runs while the server warms up
            before = private_mb(pid)
            rows = {
                name: latencies(client, (lambda i, a=address: a(shape, i).format(query)), repeats, pid) for name, address in ROUTES.items()
            }
            memory = private_mb(pid) - before
    events = int(shape["events"])
    return {"events": events, "bytes_per_event": kept / max(events, 1), "private_mb": memory, "routes": rows}


def opened(client: http.client.HTTPConnection, route: str = "timeline", worker: str = "") -> tuple[str, Shape]:
    """Returns the query of the first run, of one of its workers where that is named, and what a route answers once it is read."""
    while not (runs := json.loads(get(client, "runs"))["runs"]):
        time.sleep(0.05)
    query = f"run={runs[0]['name']}&wait=30" + (f"&worker={worker}" if worker else "")
    while (shape := json.loads(get(client, f"{route}?{query}"))).get("error"):
        if shape["error"]["code"] != "still_loading":
            raise RuntimeError(shape)
        time.sleep(0.1)
    return query, shape


def latencies(client: http.client.HTTPConnection, address: Callable[[int], str], repeats: int, pid: int) -> dict[str, float]:
    """Returns ms of the first answer and of those after it; processor time of the first and of one of these, ms; KiB of one, as sent."""
    times, size, spent = [], 0, [cpu(pid)]
    for i in range(repeats + 1):
        begin = time.perf_counter()
        size = len(get(client, address(i), raw=True))
        times.append(1000 * (time.perf_counter() - begin))
        spent.append(cpu(pid))
    rest = sorted(times[1:])
    return {
        "first": times[0],
        "first_cpu": 1000 * (spent[1] - spent[0]),
        "median": statistics.median(rest),
        "p95": rest[min(len(rest) - 1, int(0.95 * len(rest)))],
        "cpu": 1000 * (spent[-1] - spent[1]) / repeats,
        "kib": size / 1024,
    }


def get(client: http.client.HTTPConnection, route: str, *, raw: bool = False) -> bytes:
    """Returns the body of an answer; raw: as it was sent."""
    client.request("GET", f"/api/v1/{route}", headers={"Accept-Encoding": "gzip"})
    reply = client.getresponse()
    body = reply.read()
    return gzip.decompress(body) if reply.getheader("Content-Encoding") == "gzip" and not raw else body


def until(done: Callable[[], bool], patience: float = 120) -> None:
    """Wait for something."""
    end = time.monotonic() + patience
    while not done() and time.monotonic() < end:
        time.sleep(0.05)


def rest(pid: int) -> None:
    """Wait until a process computes nothing for half a second."""
    spent = [cpu(pid)]

    def idle() -> bool:
        time.sleep(0.5)
        spent.append(cpu(pid))
        return spent[-1] - spent[-2] < 0.02

    until(idle)


def let_go(folder: Path) -> None:
    """Let the system drop the files of a folder from memory, so that they are read from the disk again."""
    os.sync()
    for path in (f for f in folder.rglob("*") if f.is_file()):
        with path.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def private_mb(pid: int) -> float:
    """Returns memory of a process that no file backs, MB."""
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


def cpu(pid: int) -> float:
    """Returns seconds that all threads of a process have computed."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.timeline_server", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="requests of each route after the first")
    options = parser.parse_args()
    for path in options.files:
        print(f"\n### {path.name}\n", flush=True)
        print(tables(measured(path, options.repeats)), flush=True)


if __name__ == "__main__":
    main()
