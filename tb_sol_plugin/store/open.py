"""Opens a path without a server: a logdir, a run directory, one file, or an fsspec URL of any of these."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tb_sol_plugin import redact
from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.devices.spec import DeviceBook
from tb_sol_plugin.errors import BadInput, NotFound, SolError
from tb_sol_plugin.model.answer import AnalysisRequest, BaseRecording, KnownRanks, Run
from tb_sol_plugin.model.recordings import (
    GRAPH_CAPTURE,
    GRAPH_DETAILS,
    Compared,
    OtherNames,
    Recording,
    RecordingReduction,
    Sidecar,
    natural,
)
from tb_sol_plugin.model.report import FieldNow
from tb_sol_plugin.store import files, names
from tb_sol_plugin.store.join import MEMORY_KINDS, same_worker
from tb_sol_plugin.store.load import open_here
from tb_sol_plugin.store.names import basename, is_url, single
from tb_sol_plugin.store.options import StoreOptions, cache_directory
from tb_sol_plugin.store.pairs import Paired, paired
from tb_sol_plugin.store.reductions import (
    ReductionFiles,
    WantedReduction,
    first_recordings,
    further_recordings,
    latest_recordings,
    make_reduction,
    no_reduction,
    rank_recordings,
    recordings_like,
    reduction_of,
    wanted_reductions,
)
from tb_sol_plugin.store.scan import RECORDINGS, Heads, Listing, capture_recording, scan
from tb_sol_plugin.store.sidecars import DeviceFiles, SidecarFiles, check_choice, folders_above, folders_of

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture

MOST_BESIDE = 10_000
MOST_MEMORY = 32
MEMORY = re.compile(r"\.(?:pickle|pkl|raw|json)(?:\.gz)?$", re.IGNORECASE)
"""Names that recordings of memory have; traces, which may end so too, are told by what is in them."""
RECORD_ONE = (
    "record a few steps with torch.profiler.profile(on_trace_ready=torch.profiler.tensorboard_trace_handler(logdir)), "
    "or the whole job with tb_sol_plugin.capture(logdir, model=model)"
)
"""Both ways to record, where nothing is there."""


def options_for(cache: bool = True, fs_options: Mapping[str, object] | None = None, device: str = "") -> StoreOptions:
    """Returns options of a single read; `cache=False` neither reads nor writes the cache."""
    return StoreOptions(cache_dir=None if cache else "", fs_options=dict(fs_options or {}), scan_seconds=0, scan_files=0, device=device)


def is_file(path: str, options: StoreOptions) -> bool:
    """Whether `path` is one file. BadInput if it is not there at all."""
    if not is_url(path):
        path = os.path.expanduser(path)
        if not os.path.exists(path):
            raise BadInput("there is no such file or directory", hint="check the path", file=basename(path))
        return os.path.isfile(path)
    import fsspec

    try:
        fs, inner = fsspec.core.url_to_fs(path, **options.fs_options)
        if fs.isfile(inner):
            return True
        if not fs.exists(inner):
            raise BadInput("there is no such file or directory", hint="check the path", file=basename(path))
    except ImportError as error:
        raise BadInput(f"no driver for this address: {error}", hint="install the driver named here", file=basename(path)) from None
    except OSError as error:
        raise BadInput(f"cannot be reached: {type(error).__name__}", hint="check the address", file=basename(path)) from None
    return False


def recording_of(path: str, options: StoreOptions) -> Recording:
    """Returns one file as a recording, whatever its name: what is wrong with it shows when it is read."""
    if not is_url(path):
        path = os.path.abspath(os.path.expanduser(path))
    size, mtime = files.stat_parts(path, options.fs_options)
    name = files.shown(basename(path))
    worker, span = names.worker_and_span(name)
    kind = names.kind_of(name) or _kind_inside(path, name, options)
    return Recording("", worker, span, path, redact.name(name), size, mtime, kind)


def _kind_inside(path: str, name: str, options: StoreOptions) -> str:
    """Returns the kind of recording by what is in it; kineto where it is none of the others."""
    from tb_sol_plugin.ingest import classify

    try:
        found = classify(files.head(path, options.fs_options), name).kind
    except OSError:
        return "kineto"  # told when it is read
    return found if found in RECORDINGS else "kineto"


def captures_in_folder_of(path: str, options: StoreOptions) -> list[Recording]:
    """Returns SOL captures in the folder of a local file, by their names."""
    if is_url(path):
        return []
    folder = os.path.dirname(os.path.abspath(os.path.expanduser(path)))
    try:
        found = [entry for entry in os.scandir(folder) if names.kind_of(entry.name) == "sol_capture" and entry.is_file()]
        entries = [files.Entry(files.shown(e.name), e.path, e.stat().st_size, e.stat().st_mtime) for e in found[:MOST_BESIDE]]
    except OSError:
        return []
    merged = files.merged(entries)
    return [Recording("", *names.worker_and_span(e.file), e.path, redact.name(e.file), e.size, e.mtime, "sol_capture") for e in merged]


def captures_near(path: str, options: StoreOptions, named: str = "") -> tuple[Recording, ...]:
    """Returns the files about the capture of graphs that hold for a trace: those named, a file or a folder, else those that lie beside it.

    BadInput where there is nothing at `named`. Beside a trace on a remote only its logdir is looked into.
    """
    if named:
        if is_file(named, options):
            one = recording_of(named, options)
            return (msgspec.structs.replace(one, kind=GRAPH_CAPTURE),)
        walked = files.walk(single(named)[0], files.Budget(0, MOST_BESIDE), files.Walked(), options.fs_options)
        found = [e for e in walked if "/" not in e.file and _of_captures(e, options)]
        if not any(e.file != names.DETAILS for e in found):
            raise BadInput("no recording of graph captures here", hint=RECORD_CAPTURE, file=basename(named))
    else:
        path = os.path.abspath(os.path.expanduser(path)) if not is_url(path) else path
        if is_url(path) or names.replays_of(path) is not None:
            return ()
        found = []
        for folder in (os.path.dirname(path), os.path.join(os.path.dirname(path), names.CAPTURES)):
            with contextlib.suppress(OSError):
                there = [e for e in os.scandir(folder) if e.path != path and e.is_file() and names.replays_of(e.path) is not None]
                stats = [(e, e.stat()) for e in there[:MOST_BESIDE]]
                found += [files.Entry(files.shown(e.name), e.path, s.st_size, s.st_mtime) for e, s in stats]
        found = [e for e in found if _of_captures(e, options)]
    kinds = [GRAPH_DETAILS if e.file.rpartition("/")[2] == names.DETAILS else "kineto" for e in found]
    made = [capture_recording(e, "", redact.name(e.file), kind) for e, kind in zip(found, kinds, strict=True)]
    return tuple(sorted(made, key=lambda r: natural(r.file))) if any(r.kind == GRAPH_CAPTURE for r in made) else ()


def _of_captures(entry: files.Entry, options: StoreOptions) -> bool:
    """Whether a file is a trace, or a list of what traces of captures were made for."""
    if entry.file == names.DETAILS or names.kind_of(entry.file) == "kineto":
        return True
    return names.MAYBE.search(entry.file) is not None and _kind_inside(entry.path, entry.file, options) == "kineto"


RECORD_CAPTURE = "name the trace of the time when the engine captured its graphs, or the folder of several"


def near_it(one: Recording, path: str, options: StoreOptions) -> list[Recording]:
    """Returns what may be attached to one file that is opened alone."""
    return [*captures_in_folder_of(path, options), *memory_in_folder_of(one, options)]


def memory_in_folder_of(one: Recording, options: StoreOptions) -> list[Recording]:
    """Returns snapshots and timelines in the folder of a local file that are its worker's by their names: those of others stand there
    too.
    """
    if is_url(one.path):
        return []
    try:
        found = [e for e in os.scandir(os.path.dirname(one.path)) if MEMORY.search(e.name) and e.path != one.path and e.is_file()]
    except OSError:
        return []
    near = [recording_of(e.path, options) for e in found if same_worker(one.worker, names.worker_and_span(e.name)[0])]
    return [r for r in near[:MOST_MEMORY] if r.kind in MEMORY_KINDS]


def listing_of(path: str, options: StoreOptions) -> Listing:
    """Returns all runs below a directory."""
    return scan(single(path), options, Heads(options.fs_options))


def open_run(
    path: str,
    *,
    run: str = "",
    cache: bool = True,
    fs_options: Mapping[str, object] | None = None,
    device: str = "",
    capture: str = "",
) -> tuple[Run, tuple[str, ...]]:
    """Returns the run at `path`, and the names of all runs there. A logdir with several gives the one named, else the first.

    device: limits used where a query names none: a key, an expression, or the path of a device file. capture: a recording of the
    capture of the graphs that traces here launch, or a folder of such, in place of those that lie beside them.
    Raises BadInput where nothing is, NotFound for a run that is not there.
    """
    options = options_for(cache, fs_options, device)
    check_choice(device, options.fs_options)
    one = is_file(path, options)
    book = book_for(path, options, file=one)
    named = captures_near(path, options, capture) if one or capture else ()
    if one:
        one_file = msgspec.structs.replace(recording_of(path, options), captures=named)
        return _run("", [one_file], options, book, [one_file, *near_it(one_file, path, options)]), ("",)
    listing = listing_of(path, options)
    if not listing.runs:
        searched = f"looked at {listing.files:,} files in {listing.directories:,} directories"
        raise BadInput(f"no recording found ({searched})", hint=RECORD_ONE, file=basename(path))
    every = tuple(listing.runs)
    if run and run not in listing.runs:
        raise NotFound(f"no run {run!r} here", hint=f"there is: {', '.join(every[:8])}", field="run")
    chosen = run or every[0]
    runs = dict(listing.runs)
    if capture:
        runs[chosen] = tuple(msgspec.structs.replace(r, captures=named) if r.kind == "kineto" else r for r in runs[chosen])
    return _run(chosen, runs[chosen], options, book, runs[chosen], runs, path), every


def book_for(path: str, options: StoreOptions, *, file: bool) -> DeviceBook:
    """Returns the rows of device files that hold at `path`: a device file counts in its folder and in the two above."""
    return DeviceFiles(options.device, options.fs_options).book(*folders_above(path, file=file))


def _run(
    name: str,
    recordings: Sequence[Recording],
    options: StoreOptions,
    book: DeviceBook,
    nearby: Sequence[Recording],
    runs: Mapping[str, Sequence[Recording]] | None = None,
    root: str = "",
) -> Run:
    every = runs or {name: recordings}
    return Run(name, recordings, LocalSource(recordings, every, options, book, tuple(nearby), root))


class LocalSource(Struct, frozen=True, dict=True):
    """Opens and reduces recordings in this process, one after the other; nothing is ever waiting, and what is on disk is not made anew.

    recordings: of the run. every_run: all runs of the place, by name. nearby: recordings among which what is attached to a trace is found,
    where they are more than those of its run. root: of the files next to the runs. opener: opens a recording; None: in this process too.
    """

    recordings: Sequence[Recording]
    every_run: Mapping[str, Sequence[Recording]]
    options: StoreOptions
    book: DeviceBook
    nearby: Sequence[Recording] = ()
    root: str = ""
    opener: Callable[[Recording], Capture] | None = None

    @cached_property
    def _kept(self) -> ReductionFiles:
        return ReductionFiles(cache_directory(self.options.cache_dir), self.options.cache_bytes)

    def open(self, recording: Recording) -> Capture:
        """Returns one recording."""
        return open_here(recording, self.options, self.book, self.nearby) if self.opener is None else self.opener(recording)

    def ranks(self, request: AnalysisRequest) -> list[RecordingReduction[msgspec.Struct]]:
        """See `RecordingSource.ranks`."""
        chosen = recordings_like(self.recordings, request.recording)
        there = [r for _, r in chosen if r is not None]
        near = [*self.recordings, *self.nearby] if request.item.reduction.sol_log else ()
        wanted = dict(zip(there, wanted_reductions(there, request.reducer, devices=self.book, recordings=near), strict=True))
        planned: list[WantedReduction | RecordingReduction[msgspec.Struct]] = []
        planned += [no_reduction(worker, None) if recording is None else wanted[recording] for worker, recording in chosen]
        return self._read(planned, request)

    def known_ranks(self, request: AnalysisRequest) -> KnownRanks:
        """See `RecordingSource.known_ranks`."""
        found = []
        for wanted in wanted_reductions(rank_recordings(self.recordings, request.recording), request.reducer, devices=self.book):
            body = self._kept.load(wanted.key)
            if body is None:
                return KnownRanks()
            recording = wanted.recording
            found.append(reduction_of(recording.worker, recording, wanted.key, body, request.item.reduction.decode))
        return KnownRanks(tuple(one.key for one in found), lambda: found)

    def runs(self, request: AnalysisRequest) -> tuple[list[RecordingReduction[msgspec.Struct]], list[Sidecar]]:
        """See `RecordingSource.runs`."""
        names = set(request.chosen([*self.every_run]))
        recordings = latest_recordings({n: r for n, r in self.every_run.items() if n in names})
        alike = request.item.reduction.alike
        first = recordings if alike is None else first_recordings(recordings, request.run)
        found = dict(zip(first, self._of_runs(first, request), strict=True))
        more = [] if alike is None else further_recordings(recordings, found, request.run, alike)
        found |= zip(more, self._of_runs(more, request), strict=True)
        folders = folders_of([("", self.root)] if self.root else [], self.every_run)
        files = SidecarFiles(self.options.fs_options).texts(folders, request.item.reduction.files)
        return [found[r] for r in recordings if r in found], files

    def _of_runs(self, recordings: Sequence[Recording], request: AnalysisRequest) -> list[RecordingReduction[msgspec.Struct]]:
        """Returns the reductions of recordings of any runs, in order."""
        planned: list[WantedReduction | RecordingReduction[msgspec.Struct]] = []
        for recording in recordings:
            near = {*self.every_run[recording.run], *self.nearby} if request.item.reduction.sol_log else set()
            planned += wanted_reductions([recording], request.reducer, devices=self.book, recordings=sorted(near, key=lambda r: r.path))
        return self._read(planned, request) if planned else []

    def pair(self, request: AnalysisRequest) -> tuple[Compared[msgspec.Struct], Compared[msgspec.Struct], dict[str, FieldNow]]:
        """See `RecordingSource.pair`. The other recording is of a run that is named, of the recordings given, or at a path."""
        pair, there = self._paired(request, OtherNames.of(request.raw))
        planned: list[WantedReduction | RecordingReduction[msgspec.Struct]] = []
        for recording, source in ((pair.shown, self), (pair.other, there)):
            near = [*source.recordings, *source.nearby] if request.item.reduction.sol_log else []
            planned += wanted_reductions([recording], request.reducer, devices=source.book, recordings=near)
        ours, theirs = self._read(planned, request)
        return Compared(pair.names[0], pair.shown.run, ours), Compared(pair.names[1], pair.other.run, theirs, pair.chosen), pair.fields

    def base(self, request: AnalysisRequest) -> BaseRecording:
        """See `RecordingSource.base`. It is found as the other recording of a pair is."""
        pair, there = self._paired(request, request.base or OtherNames())
        return BaseRecording(pair.other, pair.names, there)

    def _paired(self, request: AnalysisRequest, wanted: OtherNames) -> tuple[Paired, LocalSource]:
        """Returns the pair of the recording that is shown, and what opens the other one."""
        every = dict(self.every_run)
        added = [*request.other] or (_recordings_at(wanted.run, self.options) if wanted.run and wanted.run not in every else [])
        if added:
            name = added[0].run if added[0].run not in every else f"{added[0].run} (2)"
            every[name] = [msgspec.structs.replace(r, run=name) for r in added]
            wanted = OtherNames(name, wanted.worker, wanted.span)
        pair = paired(request.recording, every, wanted)
        book = book_for(pair.other.path, self.options, file=True) if added else self.book
        nearby = self.nearby if pair.other.run == pair.shown.run else ()
        return pair, replace(self, recordings=every[pair.other.run], every_run=every, book=book, nearby=nearby)

    def _read(
        self, planned: Sequence[WantedReduction | RecordingReduction[msgspec.Struct]], request: AnalysisRequest
    ) -> list[RecordingReduction[msgspec.Struct]]:
        """Returns what is wanted of each recording, in order; what is known already stays as it is."""
        out: list[RecordingReduction[msgspec.Struct]] = []
        for done, one in enumerate(planned):
            request.progress(done, len(planned))
            out.append(self._one(one, request) if isinstance(one, WantedReduction) else one)
        request.progress(len(planned), len(planned))
        self._kept.evict()
        return out

    def _one(self, wanted: WantedReduction, request: AnalysisRequest) -> RecordingReduction[msgspec.Struct]:
        recording = wanted.recording
        try:
            made = make_reduction(wanted, self.options)
        except SolError as error:
            return no_reduction(recording.worker, recording, error)
        again = partial(self._kept.load, wanted.key) if made.kept else None
        return reduction_of(recording.worker, recording, wanted.key, made.body, request.item.reduction.decode, again)


def _recordings_at(path: str, options: StoreOptions) -> list[Recording]:
    """Returns the recordings of the one run at a path; none where nothing is there: then it is a name. NotFound where there are several
    runs.
    """
    try:
        one = is_file(path, options)
    except BadInput:
        return []
    if one:
        recording = recording_of(path, options)
        return [msgspec.structs.replace(r, run=recording.file) for r in (recording, *near_it(recording, path, options))]
    found = listing_of(path, options).runs
    if len(found) > 1:
        names_there = ", ".join([*found][:8])
        raise NotFound(f"{len(found)} runs at {basename(path)!r}", hint=f"name the folder of one: {names_there}", field="other_run")
    return list(next(iter(found.values()), ()))
