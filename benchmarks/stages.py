"""One process's work on one file, by stage. Run as a module it prints one JSON line.

    python -m benchmarks.stages first FILE      gunzip alone, read + decode, trees + links, cache write, each analysis, peak memory
    python -m benchmarks.stages second FILE     from the cache to the first table (the cache is the one of TB_SOL_CACHE_DIR)

Times are seconds of wall clock in a process that has its imports and its compiled kernels; those are timed on their own.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path


def first(path: str) -> dict[str, float]:
    """Everything from the bytes to all reports, as the first opening of a file does it."""
    out: dict[str, float] = {}
    clock = time.perf_counter()
    from tb_sol_plugin.ingest import Progress, read
    from tb_sol_plugin.model.registry import registry
    from tb_sol_plugin.model.report import encode
    from tb_sol_plugin.store.open import options_for, recording_of

    names = list(registry())
    out["imports"] = time.perf_counter() - clock
    clock = time.perf_counter()
    _warm(read)
    out["compile or load kernels"] = time.perf_counter() - clock

    marks: list[float] = []

    def progress(state: Progress) -> None:
        if state.stage == "linking":
            marks.append(time.perf_counter())

    clock = time.perf_counter()
    capture = read(path, progress=progress)
    done = time.perf_counter()
    out["read + decode"] = marks[0] - clock
    out["trees + links"] = done - marks[0]
    clock = time.perf_counter()
    _save(capture, path, options_for, recording_of)
    out["cache write"] = time.perf_counter() - clock
    for name in names:
        clock = time.perf_counter()
        encode(capture.analyze(name))
        out[f"analysis {name}"] = time.perf_counter() - clock
    out["analyses"] = sum(v for k, v in out.items() if k.startswith("analysis "))
    out["first page"] = sum(out[k] for k in ("read + decode", "trees + links", "cache write", "analysis overview"))
    out["first open"] = sum(out[k] for k in ("read + decode", "trees + links", "cache write", "analyses"))
    out["events"] = capture.facts.total_events
    out["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    out["gunzip alone"] = _gunzip(path)
    return out


def second(path: str) -> dict[str, float]:
    """From a warm cache to the first table."""
    import tb_sol_plugin as sol
    from tb_sol_plugin.model.registry import registry
    from tb_sol_plugin.model.report import encode

    registry()
    clock = time.perf_counter()
    capture = sol.open_capture(path)
    opened = time.perf_counter()
    name = "kernels" if len(capture.device) else "operators"
    encode(capture.analyze(name))
    done = time.perf_counter()
    return {"open from cache": opened - clock, f"first table ({name})": done - opened, "second open": done - clock}


def _warm(read: object) -> None:
    from tests.support.trace_builder import TraceBuilder

    trace = TraceBuilder()
    trace.step(1, 0, 1_000)
    trace.op("aten::mm", 0, 500, shapes=[[2, 2], [2, 2]], types=["float", "float"], sequence=1)
    trace.launch("k", at=10, start=50, duration=10)
    with tempfile.TemporaryDirectory() as folder:
        capture = read(str(trace.write(Path(folder) / "warm.json")))  # type: ignore[operator]
        for name in ("operators", "kernels", "gpu_breakdown", "steps"):
            capture.analyze(name)


def _save(capture, path, options_for, recording_of) -> None:  # type: ignore[no-untyped-def]
    from tb_sol_plugin.store.cache import Cache, cache_key

    folder = os.environ.get("TB_SOL_CACHE_DIR")
    Cache(Path(folder) if folder else None).save(cache_key(recording_of(path, options_for())), capture)


def _gunzip(path: str) -> float:
    from tb_sol_plugin.ingest.source import Source

    clock = time.perf_counter()
    with Source(path) as source:
        for _ in source.blocks():
            pass
    return time.perf_counter() - clock


if __name__ == "__main__":
    print(json.dumps({"first": first, "second": second}[sys.argv[1]](sys.argv[2])))
