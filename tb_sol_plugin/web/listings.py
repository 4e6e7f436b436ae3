"""What the lists of the page hold: runs with the state of their files, and the analyses of a recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import msgspec

from tb_sol_plugin.devices import limits as devices
from tb_sol_plugin.errors import BadInput, BadQuery
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import EAGER_RUN, GRAPH_CAPTURE, WORDS, Missing, Recording
from tb_sol_plugin.model.registry import ONE_RANK, Analysis, availability, failures, registry
from tb_sol_plugin.store.cache import cache_key
from tb_sol_plugin.store.graphs import capture_choices
from tb_sol_plugin.store.join import MEMORY_KINDS, companions
from tb_sol_plugin.store.names import labels, rank_in
from tb_sol_plugin.store.scan import Listing
from tb_sol_plugin.store.store import ScanState, Store
from tb_sol_plugin.version import __version__
from tb_sol_plugin.web import wire
from tb_sol_plugin.web.bounds import MOST_ANSWER, ROOM
from tb_sol_plugin.web.http import body_of
from tb_sol_plugin.web.mount import WebOptions

MOST_STEPS = 100_000
"""Steps of a recording that can be chosen one by one: the first."""
LONGEST_NAMES = 500
"""Characters of the names of files that name what graphs replay."""
LONGEST_STEP = 80
"""Characters of the name of a step."""
MOST_REJECTED = 500
"""Files listed as not taken; the counts go on."""


def listed_runs(store: Store, options: WebOptions, state: ScanState, listing: Listing) -> wire.Runs:
    """Returns all runs with the state of every file, and what was not taken."""
    errors = [*listing.errors, *([store.failed] if store.failed else [])]
    scan = wire.Scan(
        state=state, files=listing.files, unrelated=listing.unrelated, directories=listing.directories, elapsed_ms=listing.elapsed_ms,
        roots=[root.label for root in store.roots], stopped=listing.stopped, errors=errors,
    )  # fmt: skip
    rejected = [wire.Rejected(r.file, r.size, r.what, r.note) for r in listing.rejected[:MOST_REJECTED]]
    every = [wire.Run(name, workers(store, recordings)) for name, recordings in listing.runs.items()]
    found, said = within(every, MOST_ANSWER - ROOM)
    features = wire.Features(options.original, options.bind_all, __version__)
    return wire.Runs(scan, found, rejected, features, [*notes(store), *said], capture_choices(listing.captures))


def within(runs: Sequence[wire.Run], most: int) -> tuple[list[wire.Run], list[str]]:
    """Returns the first runs that have no more than `most` bytes of JSON, the last of them with its first workers alone, and what is left
    out in words.
    """
    found: list[wire.Run] = []
    left = most
    for run in runs:
        sizes = [len(part) + 1 for part in map(msgspec.json.encode, run.workers)]
        left -= len(msgspec.json.encode(wire.Run(run.name, []))) + 1
        if sum(sizes) > left:
            fits = [worker for worker, until in zip(run.workers, accumulate(sizes), strict=True) if until <= left]
            found += [wire.Run(run.name, fits)] if fits else []
            break
        left -= sum(sizes)
        found.append(run)
    shown, total = (sum(len(run.workers) for run in some) for some in (found, runs))
    if shown == total:
        return found, []
    hint = "give a folder further down as the logdir to see the others"
    return found, [f"{total - shown:,} of {total:,} workers are not listed: an answer has at most {MOST_ANSWER // 10**6} MB; {hint}"]


def notes(store: Store) -> list[str]:
    """Returns what a reader should know of the server."""
    note = store.loader.cache.note
    return [*([note] if note else []), *store.device_notes()]


def workers(store: Store, recordings: Sequence[Recording], facts: bool = False) -> list[wire.Worker]:
    """Returns workers of a run in natural order; with what is known of files that were read."""
    by_worker: dict[str, list[Recording]] = {}
    for recording in recordings:
        by_worker.setdefault(recording.worker, []).append(recording)
    pairs = companions(tuple(recordings))
    out = []
    for name, every in by_worker.items():
        own, shown = _in_order(every, pairs)
        spans = [_span(store, r, shown[r.span], facts, pairs.get(r)) for r in own]
        recorded = next((s.facts.rank for s in spans if s.facts is not None and s.facts.rank is not None), None)
        out.append(wire.Worker(name, recorded if recorded is not None else rank_in(name), spans))
    return out


def _in_order(recordings: Sequence[Recording], pairs: Mapping[Recording, Recording]) -> tuple[list[Recording], dict[str, str]]:
    """Returns (recordings of a worker, what a person calls their spans); what is shown with another one stands first: the last is shown
    first.
    """
    attached = [r for r in recordings if r.kind in MEMORY_KINDS and r in pairs]
    rest = [r for r in recordings if r not in attached]
    return attached + rest, {r.span: WORDS[r.kind] for r in attached} | labels(r.span for r in rest)


def _span(store: Store, recording: Recording, label: str, facts: bool, other: Recording | None) -> wire.Span:
    state, error = store.loader.state(recording)
    span = wire.Span(recording.span, label, recording.file, recording.size, recording.mtime, state, recording.kind)
    span.companion = wire.Companion(other.worker, other.span, other.file) if other is not None else None
    if error is not None:
        span.error = body_of(error)
    if facts and state == "ready":
        known = store.loader.cache.facts(cache_key(recording))
        span.facts = wire.facts_of(known) if known is not None else None
    return span


def catalog() -> wire.Analyses:
    """Returns every analysis, no recording in mind."""
    infos = _infos(lambda item: None)
    return wire.Analyses("catalogue", infos, [], None, "", list(devices.known_keys()), dict(failures()) or msgspec.UNSET)


def offered_analyses(capture: Capture, limits: str = "", workers: int = 1, others: bool = True) -> wire.Analyses:
    """Returns what can be asked of a capture: analyses, steps, the limits it is measured against.

    workers: of its run. others: whether there is another recording to compare it with.
    """
    device, note = _device(capture, limits)
    infos = _infos(lambda item: availability(item, capture, workers, others), capture)
    steps, keys = _steps(capture), list(devices.choices(capture.devices))
    named_by = ", ".join(filter(None, map(capture.facts.metadata.get, (GRAPH_CAPTURE, EAGER_RUN))))
    replays = bool(capture.device["graph"].to_numpy().any())
    return wire.Analyses("ready", infos, steps, device, note, keys, replays=replays, named_by=named_by[:LONGEST_NAMES])


def offered_without(error: BadInput, workers: int) -> wire.Analyses:
    """Returns what can be asked where the recording that is shown cannot be read: what is over all ranks of its run, or needs none.

    error: why it cannot be. workers: of its run.
    """

    def without(item: Analysis) -> Missing | None:
        if item.without_recording is not None or item.scope in ("runs", "none"):
            return None
        if item.scope == "ranks":
            return ONE_RANK if workers < item.reduction.least else None
        return Missing(f"this recording cannot be read: {error.message}", error.hint)

    return wire.Analyses("ready", _infos(without), [], None, error.message, [])


def _infos(missing_of: Callable[[Analysis], Missing | None], capture: Capture | None = None) -> list[wire.AnalysisInfo]:
    out = []
    for item in registry().values():
        missing = missing_of(item)
        because, record, argument = (missing.because, missing.record_it_with, missing.argument) if missing is not None else ("", "", "")
        count = item.count(capture) if item.count is not None and capture is not None else 0
        fields = [
            wire.QueryField(f.name, f.type, f.default, f.choices, f.label, f.doc, f.page, f.slider, f.group, f.seldom, f.rows)
            for f in item.fields
            if f.name not in item.query.LOCAL
        ]
        out.append(wire.AnalysisInfo(
            item.name, item.title, item.question, item.group, item.order, item.icon, missing is None, because, record, argument, fields,
            count, item.under, item.without_recording is not None, item.compares,
        ))  # fmt: skip
    return out


def _steps(capture: Capture) -> list[wire.Step]:
    if capture.facts.pseudo_step:
        return []
    table = capture.steps.iloc[:MOST_STEPS]
    columns = (table["number"], table["name"], table["start_ns"], table["end_ns"], table["complete"])
    rows = zip(*(c.tolist() for c in columns), strict=True)
    return [wire.Step(n, str(name)[:LONGEST_STEP], start, end - start, ok) for n, name, start, end, ok in rows]


def _device(capture: Capture, limits: str) -> tuple[wire.Device | None, str]:
    try:
        spec = devices.device_for(capture, limits)
    except BadQuery as error:
        return None, error.message
    if spec is None:
        return None, devices.why_no_limits(capture)
    figures = [wire.Figure(f.name, f.label, f.value, f.unit, f.provenance, f.source) for f in devices.figures(spec)]
    unsure = [f.name for f in figures if f.provenance == "unverified"]
    return wire.Device(spec.key, spec.name, spec.method, unsure, spec.source, spec.notes, devices.caution(spec), figures), ""
