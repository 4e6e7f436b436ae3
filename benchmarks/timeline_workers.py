"""Measures the timeline of many workers of a run, and writes it to docs/timeline.md: `python -m benchmarks.timeline_workers FILE`.

The run has so many copies of a recording. Its cache is filled by a server and opened by another one, and once more where the system let go
of its files; from a click in a headless Chromium to the summaries of all workers under each other on the screen.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks import timeline_speed
from benchmarks.rest import serving
from benchmarks.timeline import SURFACE
from benchmarks.timeline_server import cpu, get, let_go, opened, rest, until
from tests.browser.conftest import CHROMIUM, FLAGS

MANY = 64
"""Workers of the run: as many as the page shows under each other."""
SHOWN = f"""() => {{
    const model = document.querySelector('.tl-plot') && {SURFACE}?.model;
    return model && model.shape.peek() && model.cache.bytes + model.cache.pinnedBytes > 0 && !model.waiting.peek();
}}"""


def measured(path: Path, workers: int) -> dict[str, float]:
    """Returns events of one worker, ms until the picture, also where the files come from the disk, ms of the server's processor until then,
    and until all is read.
    """
    with tempfile.TemporaryDirectory() as folder:
        logs, cache = Path(folder) / "logs", Path(folder) / "cache"
        (logs / "run").mkdir(parents=True)
        ending = ".pt.trace.json.gz" if path.suffix == ".gz" else ".pt.trace.json"
        for rank in range(workers):
            shutil.copy(path, logs / "run" / f"host_{rank}.1{ending}")
        with serving(str(logs), "--cache-dir", str(cache)) as (port, _):
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
            for rank in range(workers):
                query, shape = opened(client, "timeline", f"host_{rank}")
                get(client, f"timeline/tiles?{query}&z=20&i=0&tracks=0-{min(len(shape['tracks']), 64) - 1}")
            until(lambda: len(list(cache.rglob("timeline.json"))) == workers)
        with serving(str(logs), "--cache-dir", str(cache)) as (port, pid):
            found = _page(port, pid)
        let_go(cache)
        with serving(str(logs), "--cache-dir", str(cache)) as (port, pid):
            return found | {"workers": workers, "from_disk": _page(port, pid)["picture"]}


def _page(port: int, pid: int) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1920, "height": 1080})
        page.goto(f"http://127.0.0.1:{port}/#sol&p.sol.v=1&p.sol.page=health")
        page.wait_for_selector("[data-section] table", timeout=600_000)
        rest(pid)
        spent, began = cpu(pid), time.perf_counter()
        page.evaluate("location.hash += '&p.sol.page=timeline&p.sol.lay=worker'")
        page.wait_for_function(SHOWN, timeout=600_000)
        picture, first = time.perf_counter() - began, cpu(pid)
        rest(pid)
        events = page.evaluate(f"{SURFACE}.model.shape.peek().events / {SURFACE}.model.shape.peek().alignment.length")
        browser.close()
        return {"events": events, "picture": 1000 * picture, "cpu": 1000 * (first - spent), "cpu_all": 1000 * (cpu(pid) - spent)}


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.timeline_workers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--workers", type=int, default=MANY)
    parser.add_argument("--dry", action="store_true", help="print the figures and write nothing")
    options = parser.parse_args()
    found = {name: round(value) for name, value in measured(options.file, options.workers).items()}
    print(timeline_speed.many_workers(found))
    if not options.dry:
        timeline_speed.write(json.loads(timeline_speed.FIGURES.read_text(encoding="utf-8")) | {"workers": found})


if __name__ == "__main__":
    main()
