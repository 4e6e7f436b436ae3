"""Makes docs/performance.md of the figures that `benchmarks.performance` measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import table

FIGURES = Path(__file__).resolve().parent / "performance.json"
PARSER_BYTES_PER_S = 0.85e9
"""What a parser with vector instructions reads of such JSON in a second on one core, unpacking excluded: simdjson, on demand."""

HEAD = """# Performance

How long a trace takes to open, stage by stage, beside the lower bound of the work and beside torch-tb-profiler on the same file. Made by
`python -m benchmarks.performance` and `make generate`; do not edit.

{machine}, {cores} cores, Python {python}, {date}; medians of {repeats} runs, each in a process of its own with its imports done and its
compiled loops loaded. Seconds of wall clock, seconds of all threads in brackets.
"""
STAGES = (
    ("gunzip alone", "lower bound of unpacking"),
    ("read + decode", "unpack, scan, columns"),
    ("trees + links", "nesting, launches, flows"),
    ("cache write", "tables written to the cache"),
    ("analyses", "every analysis, as a server answers it"),
    ("first open", "all of it"),
)


def page(figures: dict[str, Any]) -> str:
    """Returns the page of figures."""
    parts = [HEAD.format(**figures)]
    files = figures["files"]
    parts.append("## First opening\n")
    parts.append(table(["stage", *files], [[f"{name}: {doc}", *(_both(f["first"], name) for f in files.values())] for name, doc in STAGES]))
    parts.append(
        f"\nThe lower bound of reading is unpacking plus a parser of {PARSER_BYTES_PER_S / 1e9:.2f} GB/s: "
        + "; ".join(f"{_seconds(floor(f['first']))} s for {name}" for name, f in files.items())
        + ".\n"
    )
    parts.append("## Beside torch-tb-profiler\n\nIts time is reading and generating its views; ours is reading and every analysis.\n")
    parts.append(table(["", *files], list(_compared(files.values()))))
    parts.append("\n## Second opening\n")
    names = list(dict.fromkeys(name for f in files.values() for name in f["second"] if not name.startswith("cpu ")))
    parts.append(table(["", *files], [[name, *(_seconds(f["second"].get(name)) for f in files.values())] for name in names]))
    if figures.get("grow"):
        parts.append("\n## Growth\n\nSeconds of all threads, for one recording repeated more and more often.\n")
        parts.append(table(["", *figures["grow"]], list(_growth(list(figures["grow"].values())))))
    return "\n".join(parts)


def floor(first: dict[str, float]) -> float:
    """Returns the seconds below which one core reads no such file: unpacking and parsing."""
    return first["gunzip alone"] + first["MB"] * 1e6 / PARSER_BYTES_PER_S


def _compared(files: Iterable[dict[str, dict[str, float]]]) -> Iterable[list[str]]:
    every = list(files)
    yield ["MB unpacked", *(f"{f['first']['MB']:,.0f}" for f in every)]
    yield ["events", *(f"{f['first']['events']:,.0f}" for f in every)]
    yield ["tb-sol, s", *(_both(f["first"], "first open") for f in every)]
    yield ["torch-tb-profiler, s", *(_both(f.get("theirs", {}), "first open") for f in every)]
    for name, key in (("times faster", "first open"), ("times less work", "cpu first open")):
        yield [name, *(_ratio(f.get("theirs", {}).get(key), f["first"].get(key)) for f in every)]
    yield ["peak memory, MB", *(f"{f['first']['peak MB']:,.0f}" for f in every)]
    yield ["of torch-tb-profiler, MB", *(f"{f['theirs']['peak MB']:,.0f}" if f.get("theirs") else "—" for f in every)]
    yield ["largest answer, MB", *(f"{f['first']['largest answer MB']:.2f}" for f in every)]


def _growth(files: Sequence[dict[str, dict[str, float]]]) -> Iterable[list[str]]:
    firsts = [f["first"] for f in files]
    yield ["MB unpacked", *(f"{f['MB']:,.0f}" for f in firsts)]
    yield ["peak memory, MB", *(f"{f['peak MB']:,.0f}" for f in firsts)]
    for name in ("read + decode", "trees + links", "analyses"):
        yield [name, *(_seconds(f.get(f"cpu {name}")) for f in firsts)]
    analyses = [name.removeprefix("cpu ") for name in firsts[-1] if name.startswith("cpu analysis ")]
    for name in sorted(analyses, key=lambda n: -firsts[-1][f"cpu {n}"]):
        yield [f"`{name.removeprefix('analysis ')}`", *(_seconds(f.get(f"cpu {name}")) for f in firsts)]


def _both(figures: dict[str, float], name: str) -> str:
    cpu = f" ({_seconds(figures[f'cpu {name}'])})" if f"cpu {name}" in figures else ""
    return _seconds(figures.get(name)) + cpu


def _seconds(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _ratio(theirs: float | None, ours: float | None) -> str:
    return f"{theirs / ours:.1f}" if theirs and ours else "—"
