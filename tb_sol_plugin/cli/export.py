"""`tb-sol export`: a recording in the form of another tool, or several ranks of a run in one trace file."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from tb_sol_plugin.cli.files import replace
from tb_sol_plugin.errors import BadQuery, SolError, one_line
from tb_sol_plugin.units import human

if TYPE_CHECKING:
    from tb_sol_plugin.metrics.timeline.align import Alignment
    from tb_sol_plugin.metrics.timeline.timeline import Timeline
    from tb_sol_plugin.metrics.timeline.window import Window
    from tb_sol_plugin.model.answer import Run
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.recordings import Recording

WhichOne: TypeAlias = "Callable[[argparse.Namespace], tuple[Run, Recording]]"
OpenOne: TypeAlias = "Callable[[argparse.Namespace], Capture]"
BY: Final = ("auto", "module", "phase", "operator")
"""As `metrics.hatchet.CHOICES`, which is not loaded before it is needed."""
TIMELINE: Final = "a window of the timeline as a trace file, for Perfetto and to be opened again"
HATCHET: Final = "the tree of modules (or phases), operators, kernels and copies, as Proton writes it: for llnl-hatchet and proton-viewer"
MERGED: Final = "several ranks of a run on one clock, in one trace file for Perfetto"
ALIGN: Final = (
    "clocks of ranks: collective (by the ends of matched collectives), clock (absolute time), step, step:N, none "
    "(default: the first of collective, clock and none that can be)"
)
MOST_RANKS: Final = 64
"""Ranks in one file where none are chosen: viewers open no more."""
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def export_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the command."""
    forms = f"hatchet: {HATCHET}; timeline: {TIMELINE}; merged: {MERGED}"
    parser.add_argument("form", choices=("hatchet", "timeline", "merged"), metavar="FORM", help=forms)
    parser.add_argument("path", metavar="PATH", help="logdir, run directory, trace file, or fsspec URL of one")
    parser.add_argument("-o", "--output", default="-", metavar="OUT", help="file to write (default: -, the standard output)")
    parser.add_argument("--by", choices=BY, default="auto", help="what the tree is made of (default: modules where any were recorded)")
    window = parser.add_argument_group("of a timeline, and of merged ranks")
    window.add_argument("--start", type=int, default=None, metavar="NS", help="begin of the window, ns after the first event")
    window.add_argument("--end", type=int, default=None, metavar="NS", help="its end")
    window.add_argument("--clip", action="store_true", help="cut events to the window")
    window.add_argument("--no-flows", action="store_true", help="leave out links between events")
    window.add_argument("--critical-path", action="store_true", help="also the critical path: a row of its own, with links along it")
    window.add_argument("--split-overlaps", action="store_true", help="overlapping events on threads of their own, times from 0 on")
    timeline = parser.add_argument_group("of a timeline")
    timeline.add_argument("--tracks", default="", metavar="TRACKS", help="numbers and ranges as 0-5,9, or paths; default all")
    merged = parser.add_argument_group("of merged ranks")
    merged.add_argument("--ranks", default="", metavar="RANKS", help=f"numbers and ranges as 0-7,12 (default: all, up to {MOST_RANKS})")
    merged.add_argument("--align", default="", metavar="HOW", help=ALIGN)


def export(options: argparse.Namespace, which_one: WhichOne, open_one: OpenOne) -> int:
    """Writes the file. which_one, open_one: find and open what PATH and the flags name."""
    pieces: Iterable[bytes]
    if options.form == "timeline":
        pieces = _timeline(options, open_one)
    elif options.form == "merged":
        pieces = _merged(options, *which_one(options))
    else:
        from tb_sol_plugin.metrics.hatchet import hatchet

        pieces = hatchet(open_one(options), options.by)
    if options.output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.writelines(pieces)
        sys.stdout.buffer.flush()
        return 0
    replace(options.output, pieces, field="output", hint="choose another -o")
    print(f"tb-sol: wrote {options.output}", file=sys.stderr)
    return 0


def _timeline(options: argparse.Namespace, open_one: OpenOne) -> Iterable[bytes]:
    """Returns the bytes of the trace file that `export timeline` writes. BadQuery for a window or tracks that there are not."""
    from tb_sol_plugin.metrics.timeline.export import export
    from tb_sol_plugin.metrics.timeline.selection import named_tracks
    from tb_sol_plugin.metrics.timeline.timeline import timeline_of

    shown = timeline_of(open_one(options))
    return export(shown, _window(options, shown, named_tracks(shown, options.tracks) if options.tracks else None))


def _window(options: argparse.Namespace, shown: Timeline, tracks: Sequence[int] | None = None, offset_ns: int = 0) -> Window:
    """Returns the window of a timeline that the flags name. tracks: None for all. offset_ns: what its times are moved by. BadQuery."""
    from tb_sol_plugin.metrics.timeline.window import EVERYTHING, Window, rows_of

    begin = EVERYTHING[0] if options.start is None else options.start - offset_ns
    end = EVERYTHING[1] if options.end is None else options.end - offset_ns
    if end < begin:
        raise BadQuery("the window ends before it begins", hint="give --end at or after --start", field="end")
    how = (not options.no_flows, options.clip, options.split_overlaps, options.critical_path)
    return Window(begin, end, rows_of(shown, tracks), *how)


# -- ranks of a run --------------------------------------------------------------------------------------------------


def _merged(options: argparse.Namespace, run: Run, shown: Recording) -> Iterable[bytes]:
    """Returns the bytes of one trace file of several ranks; says on stderr which could not be read, and how clocks are aligned.

    BadQuery for ranks that there are not, for more than are written at once, and where none can be read.
    """
    from tb_sol_plugin.metrics.timeline.export import export_together
    from tb_sol_plugin.metrics.timeline.timeline import timeline_of
    from tb_sol_plugin.metrics.timeline.window import Place
    from tb_sol_plugin.metrics.timeline.workers import Workers

    opened = _opened(run, shown, options.ranks)
    timelines = [timeline_of(capture) for _, capture in opened]
    alignment = _aligned(timelines, options.align)
    unsure = [one.uncertainty_ns for one in alignment if one.uncertainty_ns]
    within = f", within {human(max(unsure), 'ns')}" if unsure else ""
    print(f"tb-sol: {len(opened):,} ranks, {alignment[0].text}{within}", file=sys.stderr)
    parts = [
        (one, _window(options, one, offset_ns=moved.offset_ns), Place(place, label, moved.offset_ns))
        for place, (one, moved, label) in enumerate(zip(timelines, alignment, _labels(opened), strict=True))
    ]
    return export_together(parts, Workers(timelines, alignment).origin_ns)


def _opened(run: Run, shown: Recording, asked: str) -> list[tuple[int | None, Capture]]:
    """Returns the rank and the capture of each recording that is asked for, in order of ranks. asked: "" for all."""
    from tb_sol_plugin.store.names import rank_in
    from tb_sol_plugin.store.reductions import recordings_like

    wanted = _ranks(asked)
    there = [one for _, one in recordings_like(run.recordings, shown) if one is not None]
    named = [one for one in there if wanted is None or rank_in(one.worker) in (None, *wanted)]
    if wanted is None and len(named) > MOST_RANKS:
        hint = f"choose some with --ranks, as --ranks 0-{MOST_RANKS - 1}"
        raise BadQuery(f"{len(named):,} ranks are more than a viewer opens", hint=hint, field="ranks")
    found: list[tuple[int | None, Capture]] = []
    for one in named:
        try:
            capture = run.open(one)
        except SolError as error:
            print(f"tb-sol: left out {one_line(one.worker)}: {one_line(error.message)}", file=sys.stderr)
            continue
        rank = rank_in(one.worker) if capture.facts.rank is None else capture.facts.rank
        if wanted is None or rank in wanted:
            found.append((rank, capture))
    lost = sorted((wanted or set()) - {rank for rank, _ in found if rank is not None})
    if lost or not found:
        numbers = sorted({rank for one in there if (rank := rank_in(one.worker)) is not None})
        known = ", ".join(map(str, numbers[:20])) or "none with a known number"
        what = f"no recording of rank {lost[0]} could be read" if lost else "no rank could be read"
        raise BadQuery(what, hint=f"ranks by the names of files: {known}", field="ranks")
    return sorted(found, key=lambda one: (one[0] is None, one[0] or 0))


def _ranks(asked: str) -> set[int] | None:
    """Returns the ranks of `0-7,12`; None for "". BadQuery."""
    if not asked:
        return None
    out: set[int] = set()
    for part in asked.split(","):
        found = _RANGE.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not 0 <= last - first < 10 * MOST_RANKS:
            raise BadQuery(f"no ranks {asked[:40]!r}", hint="give numbers and ranges as 0-7,12", field="ranks")
        out.update(range(first, last + 1))
    return out


def _aligned(timelines: Sequence[Timeline], asked: str) -> list[Alignment]:
    """Returns how the clocks of ranks are aligned: as asked, else by their collectives where that can be. BadQuery."""
    from tb_sol_plugin.metrics.timeline.align import aligned

    if asked or len(timelines) == 1:
        return aligned(timelines, asked)
    try:
        return aligned(timelines, "collective")
    except BadQuery:
        return aligned(timelines)


def _labels(opened: Sequence[tuple[int | None, Capture]]) -> list[str]:
    """Returns what processes of each are named after: its rank, and its worker where that is not known or two are of it."""
    ranks = [rank for rank, _ in opened]
    return [
        capture.worker if rank is None else f"rank {rank}" if ranks.count(rank) == 1 else f"rank {rank}, {capture.worker}"
        for rank, capture in opened
    ]
