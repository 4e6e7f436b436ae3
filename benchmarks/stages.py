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
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.timing import Stage
from tb_sol_plugin.process import claim, import_libraries

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture


def first(path: str) -> dict[str, float]:
    """Everything from the bytes to all reports, as the first opening of a file does it.

    A report is what a server answers: its large tables are in pages.
    """
    out: dict[str, float] = {}
    claim()  # as `tb-sol serve` and the workers do
    with Stage(out, "imports"):
        import_libraries()
        from tb_sol_plugin.ingest import Progress, read
        from tb_sol_plugin.model.registry import registry
        from tb_sol_plugin.store.open import options_for, recording_of

        names = list(registry())
        from tb_sol_plugin.web.http import warm  # a server does it while the reader of the page looks at the list of runs

        import_module("tb_sol_plugin.web.tables")
    with Stage(out, "compile or load kernels"):
        warm()
    marks: list[tuple[float, float]] = []

    def progress(state: Progress) -> None:
        if state.stage == "linking":
            marks.append((time.perf_counter(), time.process_time()))

    clock = Stage(out, "open")
    with clock:
        capture = read(path, progress=progress)
    out["read + decode"], out["cpu read + decode"] = marks[0][0] - clock.wall, marks[0][1] - clock.cpu
    for kind in ("", "cpu "):
        out[f"{kind}trees + links"] = out[f"{kind}open"] - out[f"{kind}read + decode"]
    with Stage(out, "cache write"):
        _save(capture, path, options_for, recording_of)
    out["largest answer MB"] = 0.0
    for name in names:
        with Stage(out, f"analysis {name}"):
            answer = _answer(capture, name)
        out["largest answer MB"] = max(out["largest answer MB"], len(answer) / 1e6)
    for kind in ("", "cpu "):
        out[f"{kind}analyses"] = sum(v for k, v in out.items() if k.startswith(f"{kind}analysis "))
        opened = out[f"{kind}open"] + out[f"{kind}cache write"]
        out[f"{kind}first page"] = opened + out[f"{kind}analysis overview"]
        out[f"{kind}first open"] = opened + out[f"{kind}analyses"]
    out["events"] = capture.facts.total_events
    out["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with Stage(out, "gunzip alone"):
        out["MB"] = _gunzip(path) / 1e6
    return out


def second(path: str) -> dict[str, float]:
    """From a warm cache to the first table, as a server over the file's folder sends it: computed, and as it was kept on disk."""
    import tb_sol_plugin as sol
    from tb_sol_plugin.model.registry import registry
    from tb_sol_plugin.model.report import encode

    registry()
    clock = time.perf_counter()
    capture = sol.open_capture(path)
    opened = time.perf_counter()
    name = "kernels" if len(capture.device) else "operators"
    encode(capture.analyze(name))
    computed = time.perf_counter() - opened
    _served(path, name)  # keeps it
    begin = time.perf_counter()
    _served(path, name)
    kept = time.perf_counter() - begin
    return {"open from cache": opened - clock, f"first table ({name})": computed, "second open": kept}


def _served(path: str, name: str) -> bytes:
    """Returns the answer of a server that was just started over the folder of a file."""
    from tb_sol_plugin.store.names import single
    from tb_sol_plugin.store.options import StoreOptions
    from tb_sol_plugin.store.store import Store
    from tb_sol_plugin.web.routes import create_app

    store = Store(single(str(Path(path).parent)), StoreOptions())
    try:
        client = create_app(store).test_client()
        store.listing(30.0)
        runs = client.get("/api/v1/runs").get_json()["runs"]
        places = [(r["name"], w["name"], s) for r in runs for w in r["workers"] for s in w["spans"]]
        run, worker, span = next(found for found in places if found[2]["file"] == Path(path).name)
        query = {"run": run, "worker": worker, "span": span["name"], "wait": "30", "tables": "pages"}
        answer = client.get(f"/api/v1/analysis/{name}", query_string=query)
        assert answer.status_code == 200, answer.data[:300]
        return bytes(answer.data)
    finally:
        store.close()


def _save(capture, path, options_for, recording_of) -> None:  # type: ignore[no-untyped-def]
    from tb_sol_plugin.store.cache import Cache, cache_key

    folder = os.environ.get("TB_SOL_CACHE_DIR")
    Cache(Path(folder) if folder else None).save(cache_key(recording_of(path, options_for())), capture)


def _answer(capture: Capture, name: str) -> bytes:
    """Returns the JSON of a report as a server sends it."""
    from tb_sol_plugin.model.report import Report, encode
    from tb_sol_plugin.web.tables import in_pages

    report = capture.analyze(name)
    return in_pages(report, "1")[0] if isinstance(report, Report) else encode(report)


def _gunzip(path: str) -> int:
    """Unpacks a file and returns how many bytes it holds."""
    from tb_sol_plugin.ingest.source import Source

    with Source(path) as source:
        return sum(len(block) for block in source.blocks())


if __name__ == "__main__":
    print(json.dumps({"first": first, "second": second}[sys.argv[1]](sys.argv[2])))
