"""Scans a logdir for its runs, workers and spans; nothing is parsed and nothing is written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

from tb_sol_plugin import redact
from tb_sol_plugin.devices.places import NAMES as DEVICE_FILES
from tb_sol_plugin.model.recordings import GRAPH_CAPTURE, GRAPH_DETAILS, Recording, natural
from tb_sol_plugin.store import files, names
from tb_sol_plugin.store.files import Budget, Entry, Walked
from tb_sol_plugin.store.names import Root
from tb_sol_plugin.store.options import StoreOptions

if TYPE_CHECKING:
    from tb_sol_plugin.ingest import Classification


class Rejected(Struct, frozen=True):
    """A file that was looked into and not taken, and why."""

    file: str
    size: int
    what: str
    note: str


class Listing(Struct, frozen=True):
    """The outcome of one scan. `runs` holds recordings by run name, both in natural order.

    captures: files about graph captures that lie beside traces. files counts everything met, unrelated the files whose name said enough
    not to look inside.
    stopped says why the scan ended early, errors what could not be listed.
    """

    runs: Mapping[str, tuple[Recording, ...]] = msgspec.field(default_factory=dict)
    captures: tuple[Recording, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    files: int = 0
    unrelated: int = 0
    directories: int = 0
    elapsed_ms: int = 0
    stopped: str | None = None
    errors: tuple[str, ...] = ()


RECORDINGS = ("kineto", "sol_capture", "proton", "memory_timeline", "memory_snapshot")
"""Kinds that open; whatever else is recognized is listed with its reason."""


class Heads:
    """Classifications by content, remembered by path, size and time of change."""

    def __init__(self, fs_options: Mapping[str, object]) -> None:
        self._options = fs_options
        self._known: dict[str, tuple[int, float, Classification | str]] = {}

    def of(self, entry: Entry) -> Classification | str:
        """Returns the classification, or a sentence that says why the file could not be read."""
        from tb_sol_plugin.ingest import classify

        known = self._known.get(entry.path)
        if known and known[:2] == (entry.size, entry.mtime):
            return known[2]
        try:
            found: Classification | str = classify(files.head(entry.path, self._options), entry.file.rpartition("/")[2])
        except OSError as error:
            return error.strerror or type(error).__name__
        self._known[entry.path] = (entry.size, entry.mtime, found)
        return found

    def forget_others(self, seen: Iterable[str]) -> None:
        """Drop what is no longer there."""
        keep = set(seen)
        for path in [p for p in self._known if p not in keep]:
            del self._known[path]


def scan(roots: Sequence[Root], options: StoreOptions, heads: Heads) -> Listing:
    """List every recording below `roots` within the budget of `options`."""
    start = time.monotonic()
    budget = Budget(options.scan_seconds, options.scan_files)
    counts = Walked()
    taken: list[tuple[Root, Entry, str]] = []
    rejected: list[Rejected] = []
    seen: list[str] = []
    unrelated = 0
    for root in roots:
        unsure: list[Entry] = []
        for entry in files.walk(root, budget, counts, options.fs_options):
            name = entry.file.rpartition("/")[2]
            if name == names.DETAILS:
                taken.append((root, entry, GRAPH_DETAILS))
                continue
            if entry.file in DEVICE_FILES or name in names.BESIDE:
                continue  # no recording: `store.sidecars` reads them
            kind = names.kind_of(name)
            if kind:
                taken.append((root, entry, kind))
            elif names.MAYBE.search(name):
                unsure.append(entry)
            else:
                unrelated += 1
        for entry, found in _look(unsure, heads, root, budget):
            seen.append(entry.path)
            if isinstance(found, str):
                rejected.append(Rejected(_prefixed(root, entry.file), entry.size, "could not be read", found))
            elif found.kind in RECORDINGS:
                taken.append((root, entry, found.kind))
            elif names.LINES.search(entry.file):
                unrelated += 1
            elif entry.file.rpartition("/")[2] in DEVICE_FILES:
                note = "recordings made there hold its limits; in the logdir itself it is read for all runs"
                rejected.append(Rejected(_prefixed(root, entry.file), entry.size, "a device file in a run", note))
            else:
                rejected.append(Rejected(_prefixed(root, entry.file), entry.size, found.what, found.note))
    heads.forget_others(seen)
    recordings, captures = _captures(taken)
    runs, of_folder = _runs(recordings)
    rejected += [Rejected(_prefixed(root, one.file), one.size, *_taken_for(kind, of_folder[at])) for at, (root, one, kind) in captures]
    by_run = _captures_by_run(of_folder, captures)
    return Listing(
        runs=_with_captures(runs, by_run),
        captures=tuple(one for found in by_run.values() for one in found),
        rejected=tuple(sorted(rejected, key=lambda r: natural(r.file))),
        files=counts.files,
        unrelated=unrelated,
        directories=counts.directories,
        elapsed_ms=round((time.monotonic() - start) * 1000),
        stopped=budget.over,
        errors=tuple(counts.errors or ()),
    )


def _look(entries: list[Entry], heads: Heads, root: Root, budget: Budget) -> Iterable[tuple[Entry, Classification | str]]:
    if root.local:
        for entry in entries:
            if not budget.spend(0):
                return
            yield entry, heads.of(entry)
        return
    with ThreadPoolExecutor(8, "tb-sol-heads") as pool:
        for start in range(0, len(entries), 64):
            if not budget.spend(0):
                return
            batch = entries[start : start + 64]
            yield from zip(batch, pool.map(heads.of, batch), strict=True)


def _prefixed(root: Root, file: str) -> str:
    """Returns what may be shown of a file: its path in the logdir, without secrets."""
    return redact.name(f"{root.name}/{file}" if root.name else file)


_Taken: TypeAlias = "tuple[Root, Entry, str]"
_Folder: TypeAlias = tuple[Root, str]


def _captures(taken: Sequence[_Taken]) -> tuple[list[_Taken], list[tuple[_Folder, _Taken]]]:
    """Splits off the recordings of graph captures that lie beside traces, each with the folder of those; others are as any recording."""
    traces = [(root, entry.file) for root, entry, kind in taken if kind == "kineto" and names.replays_of(entry.file) is None]
    replays = {(root, file.rpartition("/")[0]) for root, file in traces}
    rest: list[_Taken] = []
    found: list[tuple[_Folder, _Taken]] = []
    for one in taken:
        root, entry, kind = one
        folder = names.replays_of(entry.file) if kind in ("kineto", GRAPH_DETAILS) else None
        if folder is not None and (root, folder) in replays:
            found.append(((root, folder), one))
        elif kind != GRAPH_DETAILS:
            rest.append(one)
    return rest, found


def _taken_for(kind: str, run: str) -> tuple[str, str]:
    if kind == GRAPH_DETAILS:
        return "a list of graph captures", f"says which batch each recording of captures of run {run} was made for"
    return "a recording of graph captures", f"tells what the graph launches of run {run} replay; no run of its own"


def _captures_by_run(of_folder: Mapping[_Folder, str], captures: Sequence[tuple[_Folder, _Taken]]) -> dict[str, list[Recording]]:
    """Returns the files about graph captures by the run beside which they lie, in natural order."""
    by_run: dict[str, list[Recording]] = {}
    for at, (root, entry, kind) in sorted(captures, key=lambda c: natural(c[1][1].file)):
        run = of_folder[at]
        by_run.setdefault(run, []).append(capture_recording(entry, run, _prefixed(root, entry.file), kind))
    return by_run


def _with_captures(runs: dict[str, tuple[Recording, ...]], by_run: Mapping[str, list[Recording]]) -> dict[str, tuple[Recording, ...]]:
    """Returns the runs, traces with the recordings of graph captures that lie beside them."""
    out = dict(runs)
    for run, found in by_run.items():
        out[run] = tuple(msgspec.structs.replace(r, captures=tuple(found)) if r.kind == "kineto" else r for r in runs[run])
    return out


def capture_recording(entry: Entry, run: str, file: str, kind: str) -> Recording:
    """Returns a file about the capture of graphs as a recording. kind: GRAPH_DETAILS, or of any trace. file: its name as it is shown."""
    worker, span = names.worker_and_span(entry.file.rpartition("/")[2])
    return Recording(run, worker, span, entry.path, file, entry.size, entry.mtime, kind if kind == GRAPH_DETAILS else GRAPH_CAPTURE)


def _runs(taken: Sequence[_Taken]) -> tuple[dict[str, tuple[Recording, ...]], dict[_Folder, str]]:
    """Returns (recordings by run, run of each folder)."""
    folders = {entry.file.rpartition("/")[0] for _, entry, _ in taken}
    by_run: dict[str, list[Recording]] = {}
    of_folder: dict[tuple[Root, str], str] = {}
    for root, entry, kind in sorted(_whole(taken), key=lambda t: natural(t[1].file)):
        folder, _, file_name = entry.file.rpartition("/")
        run = of_folder.get((root, folder)) or redact.free_name(names.run_name(root.name, root.label, folder, folders), by_run)
        of_folder[root, folder] = run
        worker, span = names.worker_and_span(file_name)
        present = by_run.setdefault(run, [])
        if any((r.worker, r.span) == (worker, span) for r in present):
            worker = redact.name(file_name)  # x.json beside x.json.gz: both are kept, the second under its whole name
            worker = redact.free_name(worker, {r.worker for r in present if r.span == span})
        present.append(Recording(run, worker, span, entry.path, _prefixed(root, entry.file), entry.size, entry.mtime, kind))
    order = sorted(by_run, key=natural)
    return {run: tuple(sorted(by_run[run], key=lambda r: (natural(r.worker), natural(r.span)))) for run in order}, of_folder


def _whole(taken: Sequence[tuple[Root, Entry, str]]) -> list[tuple[Root, Entry, str]]:
    """Returns the same with SOL captures of several files as one."""
    captures: dict[Root, list[Entry]] = {}
    for root, entry, kind in taken:
        if kind == "sol_capture":
            captures.setdefault(root, []).append(entry)
    merged = [(root, entry, "sol_capture") for root, entries in captures.items() for entry in files.merged(entries)]
    return [*(t for t in taken if t[2] != "sol_capture"), *merged]
