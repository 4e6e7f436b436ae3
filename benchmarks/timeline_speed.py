"""Measures all that the timeline has a budget for, and writes the table of docs/timeline.md: `python -m benchmarks.timeline_speed FILE...`.

The files should hold about 0.1, 1 and 10 million events; with `--copies 1,10,96` they are made of one of 0.1 million. The table is printed
and written, its figures into `timeline.json`, from which `make generate` makes the same table; with `--dry` it is printed alone.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from isal import igzip

from benchmarks.multiply import multiply
from benchmarks.timing import rounded, table

FIGURES = Path(__file__).resolve().parent / "timeline.json"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "timeline.md"
BEGIN, END = "<!-- made by `make generate` of benchmarks/timeline.json -->\n", "<!-- end -->\n"
BUDGETS = {
    "arranged in lanes, merged to levels, ms": "-; 30, 250, 1,500",
    "screen of tiles: median, first one, ms": "10, 10, 15; 20, 30, 50",
    "full view, KiB": "100, 150, 250",
    "first picture after a click, ms": "250, 300, 500",
    "script per frame, p50, p95, ms": "-; 4, 6, 6",
    "between frames, p50, p95, ms": "16.7; 33",
    "until sharp after a jump, p50, p95, ms": "-; 80, 100, 120",
    "page, its tiles, MB": "60, 90, 120; 16, 64, 64",
    "private memory of the server, MB": "20, 40, 100",
    "files, B per event": "30",
    "selection of 100 k events, median, p95, processor, ms": "-; 20; -",
    "selection of everything, median, p95, processor, ms": "-; 30, 100, 800; -",
    "search, median, p95, processor, ms": "-; 20, 40, 150; -",
    "as many items drawn as rectangles, times the time": "at least 4",
}
"""What is measured, and its budget, of 0.1, 1 and 10 million events where they differ; `;` between the figures of a line."""


def lines(server: dict[str, Any], page: dict[str, float]) -> list[str]:
    """Returns the cells of one recording, in the order of BUDGETS."""
    routes = server["routes"]
    tiles, every = routes["tiles, 1 % of it"], routes["tiles, all of it"]

    def route(name: str) -> str:
        return " / ".join(f"{routes[name][k]:.0f}" for k in ("median", "p95", "cpu"))

    return [
        f"{server['arranged']:.0f} / {server['merged']:.0f}",
        f"{tiles['median']:.1f} / {every['first']:.0f}",
        f"{every['kib']:.0f}",
        f"{page['picture']:.0f}",
        f"{page['script_p50']:.1f} / {page['script_p95']:.1f}",
        f"{page['frame_p50']:.1f} / {page['frame_p95']:.1f}",
        f"{page['sharp_p50']:.0f} / {page['sharp_p95']:.0f}",
        f"{page['heap_mb']:.0f} / {page['tiles_mb']:.0f}",
        f"{server['private_mb']:.0f}",
        f"{server['bytes_per_event']:.1f}",
        route("selection of 100 k events"),
        route("selection of everything"),
        route("search"),
        f"{page['faster']:.1f}",
    ]


def section(figures: dict[str, Any]) -> str:
    """Returns the text that stands between BEGIN and END."""
    files = figures["files"]
    head = ("", "budget", *(f"{f['server']['events']:,} events" for f in files))
    columns = [lines(f["server"], f["page"]) for f in files]
    rows = [(name, budget, *(c[i] for c in columns)) for i, (name, budget) in enumerate(BUDGETS.items())]
    text = f"{figures['cores']} cores{figures['note']}, no GPU, Chromium at 1920 x 1080, {figures['date']}:\n\n{table(head, rows)}"
    return text + (f"\n{many_workers(figures['workers'])}\n" if "workers" in figures else "")


def many_workers(found: dict[str, float]) -> str:
    """Returns a sentence about the timeline of many workers; found: as `timeline_workers` measures it."""
    return (
        f"{found['workers']:.0f} workers of {found['events']:,.0f} events each under each other, as summaries: first picture\n"
        f"{found['picture']:,.0f} ms after a click (budget 1,000), of which the server computes {found['cpu']:,.0f} ms; "
        f"{found['from_disk']:,.0f} ms where the cache has to come from the disk."
    )


def write(figures: dict[str, Any]) -> None:
    """Writes the figures, and the page with the table that is made of them."""
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")


def page(text: str, figures: dict[str, Any]) -> str:
    """Returns docs/timeline.md with the table of the figures."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{section(figures)}{END}{rest.split(END)[1]}"


def copied(files: Sequence[Path], counts: Sequence[int]) -> Iterator[Path]:
    """Yields files of so many copies of each trace, one at a time; without a count the traces themselves."""
    if not counts:
        yield from files
        return
    with tempfile.TemporaryDirectory() as folder:
        for path, count in ((path, count) for path in files for count in counts):
            made = Path(folder) / f"{count}x.{path.name.removesuffix('.gz')}.gz"
            with igzip.open(made, "wt", compresslevel=1) as target:
                multiply(path, count, target)
            yield made
            made.unlink()


def main() -> None:
    from benchmarks import timeline, timeline_server

    parser = argparse.ArgumentParser("python -m benchmarks.timeline_speed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=timeline_server.REPEATS, help="requests of each route after the first")
    parser.add_argument("--seconds", type=float, default=10, help="of panning, zooming and scrolling")
    parser.add_argument("--copies", default="", metavar="N,...", help="measure files of so many copies of each FILE, as 1,10,96")
    parser.add_argument("--dry", action="store_true", help="print the table and write nothing")
    parser.add_argument("--note", default="", help="said of the machine, as `shared with other work`")
    options = parser.parse_args()
    files = []
    for path in copied(options.files, [int(n) for n in options.copies.split(",") if n]):
        server = timeline_server.measured(path, options.repeats)
        shown = timeline.measured(path, options.seconds)
        print(f"### {path.name}\n\n{timeline_server.tables(server)}\n{shown.table()}", flush=True)
        files.append({"server": server, "page": shown.figures()})
    made = {"cores": os.cpu_count(), "date": date.today().isoformat(), "note": f", {options.note}" if options.note else "", "files": files}
    figures = rounded(made)
    print(section(figures))
    if not options.dry:
        workers = json.loads(FIGURES.read_text(encoding="utf-8")).get("workers")  # measured by `timeline_workers`
        write(figures | ({"workers": workers} if workers else {}))


if __name__ == "__main__":
    main()
