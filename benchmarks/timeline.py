"""Measures the page of the timeline: `python -m benchmarks.timeline FILE... [--seconds 10] [--check [--slack 2]]`.

By file, in a headless Chromium: the first picture, the script time per frame while a script pans, zooms and scrolls, the time between
frames, the time until the view is sharp after a jump, memory, and as many items drawn as plain rectangles in the same run. With `--check`
it ends with status 1 where a figure is over its budget. The server alone is measured by `benchmarks.timeline_server`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rest import serving
from benchmarks.timing import table
from tests.browser.conftest import CHROMIUM, FLAGS

SURFACE = "document.querySelector('.tl-plot').timeline"
DRIVE = """async ([seconds]) => {
    const surface = document.querySelector('.tl-plot').timeline, model = surface.model, gaps = [];
    surface.times.length = 0;
    const whole = model.all.peek(), began = performance.now();
    let last = began, frame = 0;
    await new Promise((done) => {
        const step = (now) => {
            if (frame) gaps.push(now - last);
            last = now;
            frame += 1;
            const part = frame % 240;
            if (part < 60) model.zoom(0.95, whole.end * 0.37);
            else if (part < 120) model.pan(0.02);
            else if (part < 180) model.zoom(1 / 0.95, whole.end * 0.37);
            else surface.scroller.scrollTop = (part - 180) * 12;
            if (now - began > seconds * 1000) done();
            else requestAnimationFrame(step);
        };
        requestAnimationFrame(step);
    });
    model.everything();
    return { script: surface.times, gaps, tiles: model.cache.bytes + model.cache.pinnedBytes };
}"""
CLICKED = """async () => {
    const began = performance.now();
    document.querySelector('.nav-item[href*="page=timeline"]').click();
    const drawn = () => document.querySelector('.tl-plot')?.timeline?.model.tally.peek().items > 0;
    while (!drawn()) await new Promise((done) => requestAnimationFrame(done));
    return performance.now() - began;
}"""
SHARP = """async () => {
    const surface = document.querySelector('.tl-plot').timeline, model = surface.model, out = [];
    const span = model.all.peek().end;
    for (const [at, part] of [[0.2, 0.3], [0.5, 0.05], [0.7, 0.01], [0.4, 0.5], [0.61, 0.002], [0.1, 0.1], [0.83, 0.02], [0.3, 0.004]]) {
        const began = performance.now();
        let sharp = began;
        const watch = model.waiting.subscribe(() => { sharp = performance.now(); }); // set by the frame that lacks nothing
        model.show({ start: span * at, end: span * (at + part) });
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        while (model.waiting.peek()) await new Promise((done) => requestAnimationFrame(done));
        watch();
        out.push(sharp - began);
        await new Promise((done) => setTimeout(done, 250)); // a person looks
    }
    model.everything();
    return out;
}"""
LIMITS: dict[str, tuple[float, float, float]] = {
    "picture": (250, 300, 500), "script": (4, 6, 6), "frame": (33.4, 33.4, 33.4), "sharp": (80, 100, 120), "heap": (60, 90, 120),
    "tiles": (16, 64, 64),
}  # fmt: skip
"""Budgets for 0.1, 1 and 10 million events: ms of the first picture after a click, of script per frame (p95), between frames (p95), until
sharp after a jump (p95); MB of the page and of its tiles."""
FASTER = 4.0
"""Times that strips are faster than rectangles, at least."""
RECTANGLES = """() => {
    const surface = document.querySelector('.tl-plot').timeline, model = surface.model, view = model.window.peek();
    const canvas = document.createElement('canvas');
    Object.assign(canvas, { width: model.width.peek(), height: model.height.peek() });
    const context = canvas.getContext('2d', { alpha: false }), tiles = [];
    for (const row of model.rows.shown.peek().rows) if (row.lanes) for (let i = 0; i < 9; i++) {
        const z = Math.max(0, Math.floor(Math.log2((view.end - view.start) / model.width.peek())));
        const found = model.cache.covering(row.track.track, z, i).tile;
        if (found && found.kind === 'slices') tiles.push([row, found]);
    }
    const once = (draw) => {
        const began = performance.now();
        draw();
        context.getImageData(0, 0, 1, 1);
        return performance.now() - began;
    };
    const time = (draw) => Array.from({ length: 15 }, () => once(draw)).sort((a, b) => a - b)[7];
    const here = tiles.reduce((sum, [, tile]) => sum + tile.start.length, 1);
    const times = Math.max(1, Math.ceil(50_000 / here)); // as a full screen of busy rows
    const fills = surface.fills(), categories = model.names.peek().categories;
    let items = 0;
    const rectangles = time(() => {
        items = 0;
        const scale = model.width.peek() / (view.end - view.start);
        for (let time = 0; time < times; time++) for (const [row, tile] of tiles)
         for (let lane = 0; lane < Math.min(row.lanes, tile.bounds.length - 1); lane++)
          for (let k = tile.bounds[lane]; k < tile.bounds[lane + 1]; k++) {
            context.fillStyle = fills[categories[tile.name[k]]];
            const wide = Math.max(1, (tile.end[k] - tile.start[k]) * scale);
            context.fillRect((tile.start[k] - view.start) * scale, row.y + lane * row.lane, wide, row.lane - 2);
            items += 1;
        }
    });
    const strips = time(() => surface.strips(tiles, context, times));
    return { rectangles, strips, items };
}"""


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.timeline", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=10, help="of panning, zooming and scrolling")
    parser.add_argument("--check", action="store_true", help="end with status 1 where the page is over a budget")
    parser.add_argument("--slack", type=float, default=1.0, help="times the budgets: 1 on a quiet machine, 2 on a shared one")
    options = parser.parse_args()
    over: list[str] = []
    for path in options.files:
        print(f"\n### {path.name}\n")
        page = measured(path, options.seconds)
        print(page.table())
        over += [f"{path.name}: {text}" for text in page.over(options.slack)]
    if options.check and over:
        print("\nOver the budget:\n" + "\n".join(over))
        sys.exit(1)


def measured(path: Path, seconds: float) -> Measured:
    """Returns what the page takes on a recording."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        shutil.copy(path, run / f"worker.{path.name}")
        with serving(folder) as (port, _):
            return Measured.of(port, seconds)


@dataclass(frozen=True)
class Measured:
    """What a headless Chromium took, 1920 x 1080, without a GPU. Times in ms, ascending; sizes in MB."""

    events: int
    address: float
    picture: float
    script: list[float]
    gaps: list[float]
    sharp: list[float]
    heap: float
    tiles: float
    plain: dict[str, float]

    @classmethod
    def of(cls, port: int, seconds: float) -> Measured:
        """Drives a page of the server at a port."""
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, "--enable-precise-memory-info"])
            page = browser.new_page(viewport={"width": 1920, "height": 1080})
            began = time.perf_counter()
            page.goto(f"http://127.0.0.1:{port}/#sol&p.sol.v=1&p.sol.page=timeline")
            drawn = f"() => document.querySelector('.tl[data-ready]') && {SURFACE}.model.tally.peek().items > 0"
            page.wait_for_function(drawn, timeout=600_000)
            address = 1000 * (time.perf_counter() - began)
            page.wait_for_function(f"() => !{SURFACE}.model.waiting.peek()")
            page.goto("about:blank")
            page.goto(f"http://127.0.0.1:{port}/#sol&p.sol.v=1&p.sol.page=health")
            page.wait_for_selector("[data-section] table", timeout=600_000)
            picture = page.evaluate(CLICKED)
            page.wait_for_function(f"() => !{SURFACE}.model.waiting.peek()")
            sharp = page.evaluate(SHARP)
            moved = page.evaluate(DRIVE, [seconds])
            heap = page.evaluate("performance.memory.usedJSHeapSize / 1e6")
            page.wait_for_function(f"() => !{SURFACE}.model.waiting.peek()")
            plain = page.evaluate(RECTANGLES)
            events = page.evaluate(f"{SURFACE}.model.shape.peek().events")
            browser.close()
        tiles = moved["tiles"] / 1e6
        return cls(events, address, picture, sorted(moved["script"]), sorted(moved["gaps"]), sorted(sharp), heap + tiles, tiles, plain)

    def over(self, slack: float) -> list[str]:
        """Returns which budgets for so many events are passed, each in words. slack: times the budget."""
        size = 0 if self.events < 300_000 else 1 if self.events < 3_000_000 else 2
        found = {
            "picture": self.picture, "script": _at(self.script, 0.95), "frame": _at(self.gaps, 0.95), "sharp": _at(self.sharp, 0.95),
            "heap": self.heap, "tiles": self.tiles,
        }  # fmt: skip
        most = {name: LIMITS[name][size] * slack for name in found}
        out = [f"{name} {value:.1f}, at most {most[name]:.1f}" for name, value in found.items() if value > most[name]]
        faster = self.plain["rectangles"] / self.plain["strips"]
        return out if faster >= FASTER else [*out, f"strips are {faster:.1f} times as fast as rectangles, at least {FASTER:.0f}"]

    def figures(self) -> dict[str, float]:
        """Returns the figures that have a budget, by name."""
        return {
            "picture": self.picture, "script_p50": _at(self.script, 0.5), "script_p95": _at(self.script, 0.95),
            "frame_p50": _at(self.gaps, 0.5), "frame_p95": _at(self.gaps, 0.95), "sharp_p50": _at(self.sharp, 0.5),
            "sharp_p95": _at(self.sharp, 0.95), "heap_mb": self.heap, "tiles_mb": self.tiles,
            "faster": self.plain["rectangles"] / self.plain["strips"],
        }  # fmt: skip

    def table(self) -> str:
        """Returns the figures as a table."""
        rows = [
            ("first picture, from the address", f"{self.address:.0f} ms"),
            ("first picture, after a click", f"{self.picture:.0f} ms"),
            ("script per frame, p50 / p95", f"{_at(self.script, 0.5):.1f} / {_at(self.script, 0.95):.1f} ms"),
            ("between frames, p50 / p95", f"{_at(self.gaps, 0.5):.1f} / {_at(self.gaps, 0.95):.1f} ms"),
            ("until sharp, p50 / p95", f"{_at(self.sharp, 0.5):.0f} / {_at(self.sharp, 0.95):.0f} ms"),
            ("page / tiles kept", f"{self.heap:.1f} / {self.tiles:.1f} MB"),
            (
                f"{self.plain['items']:,.0f} items as strips / as rectangles",
                f"{self.plain['strips']:.2f} / {self.plain['rectangles']:.2f} ms",
            ),
        ]
        return table(("page, 1920 x 1080, no GPU", f"{len(self.script)} frames"), rows)


def _at(values: list[float], part: float) -> float:
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


if __name__ == "__main__":
    main()
