"""Serves listings and captures of one logdir to the web: scanned on demand, never by a timer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from tb_sol_plugin.errors import NotFound, StillLoading
from tb_sol_plugin.model.recordings import OtherNames, Recording
from tb_sol_plugin.redact import text
from tb_sol_plugin.store.join import companion
from tb_sol_plugin.store.names import IN_PROCESS, Root, near
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.scan import Heads, Listing, scan
from tb_sol_plugin.store.sidecars import DeviceFiles, SidecarFiles, folders_of

if TYPE_CHECKING:
    from tb_sol_plugin.devices.spec import DeviceBook
    from tb_sol_plugin.model.answer import AnalysisRequest, BaseRecording, KnownRanks
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.recordings import Compared, RecordingReduction, Reducer, Sidecar
    from tb_sol_plugin.model.report import FieldNow
    from tb_sol_plugin.store.load import Loader, Progress
    from tb_sol_plugin.store.pairs import Paired
    from tb_sol_plugin.store.reductions import PartialResults

P = TypeVar("P", bound=msgspec.Struct)
ScanState: TypeAlias = Literal["scanning", "done", "error"]

FIRST_LOOK = 0.003
"""Seconds that `active` may wait for the first scan: TensorBoard's whole page waits with it."""


class Store:
    """Listings and captures below some roots. Making one does nothing; the first question starts the first scan.

    executor: what reads recordings; None: processes of its own. ranks_executor: what reads them for comparisons over ranks, such as a
    cluster, and is ended with the store; None: the same.
    """

    def __init__(
        self, roots: Sequence[Root], options: StoreOptions | None = None, executor: Executor | None = None,
        ranks_executor: Executor | None = None,
    ) -> None:  # fmt: skip
        self.roots = tuple(roots)
        self.options = options or StoreOptions()
        self._executor = executor
        self._ranks_executor = ranks_executor
        self._loader: Loader | None = None
        self._partial_results: PartialResults | None = None
        self._heads = Heads(self.options.fs_options)
        self.devices = DeviceFiles(self.options.device, self.options.fs_options)
        self._sidecars = SidecarFiles(self.options.fs_options)
        self._listing = Listing()
        self._failed = ""
        self._scanned_at = float("-inf")
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None
        self._first = threading.Event()
        self._active = False
        self._was_asked = False

    @property
    def loader(self) -> Loader:
        """Made on first use: it brings pandas and pyarrow, which scanning does not need."""
        from tb_sol_plugin.store.load import Loader

        with self._lock:
            if self._loader is None:
                self._loader = Loader(self.options, self._executor)
            return self._loader

    @property
    def partial_results(self) -> PartialResults:
        """What makes the reductions of all recordings of a run; made on first use."""
        from tb_sol_plugin.store.reductions import PartialResults, ReductionFiles

        loader = self.loader
        with self._lock:
            if self._partial_results is None:
                files = ReductionFiles(loader.cache.directory, loader.cache.limit_bytes)
                self._partial_results = PartialResults(self.options, files, self._executor_of_ranks, loader.state, loader.analysed)
            return self._partial_results

    def _executor_of_ranks(self, recording: Recording) -> Executor:
        """Returns what reads a recording for a comparison over ranks."""
        elsewhere = self._ranks_executor if not recording.path.startswith(IN_PROCESS) else None
        return self.loader.executor_for(recording) if elsewhere is None else elsewhere

    # -- listings ----------------------------------------------------------------------------------------------

    def listing(self, wait: float = 0.0) -> tuple[ScanState, Listing]:
        """Returns the latest listing and whether one is being made. An old one is renewed in the background.

        wait: seconds to wait for the very first listing.
        """
        age = time.monotonic() - self._scanned_at
        if age > max(self.options.fresh_seconds, self._listing.elapsed_ms / 200):
            self._start()
        if not self._first.is_set() and wait:
            self._first.wait(wait)
        if not self._first.is_set():
            return "scanning", self._listing
        if self._failed:
            return "error", self._listing
        return "done", self._listing

    @property
    def failed(self) -> str:
        """Why the last scan as a whole failed, "" if it did not."""
        return self._failed

    def rescan(self, wait: float = 30.0) -> tuple[ScanState, Listing]:
        """Scan anew now, and let files that failed be tried again."""
        if self._loader is not None:
            self._loader.forget_errors()
        if self._partial_results is not None:
            self._partial_results.forget_errors()
        self.devices.forget()
        running = self._running
        if running is not None:
            running.join(wait)  # it may have begun before the change that the caller knows of
        self._start()
        running = self._running
        if running is not None:
            running.join(wait)
        return self.listing()

    def active(self) -> bool:
        """Whether there is something to show, at once: a yes is kept, an unknown counts as yes."""
        if self._active:
            return True
        if not self.roots:
            return False
        state, listing = self.listing(0.0 if self._was_asked else FIRST_LOOK)
        self._was_asked = True
        if state == "scanning":
            return True
        self._active = bool(listing.runs)
        return self._active or bool(listing.stopped)

    # -- recordings --------------------------------------------------------------------------------------------

    def recordings(self, run: str) -> tuple[Recording, ...]:
        """Returns all recordings of a run; NotFound offers near names."""
        _, listing = self.listing(5.0)
        if run not in listing.runs:
            self._listing_once_more()
            listing = self._listing
        found = listing.runs.get(run)
        if found is None:
            raise NotFound(f"no run {_short(run)!r} here", hint=near(run, listing.runs), field="run")
        return found

    def recording(self, run: str = "", worker: str = "", span: str = "") -> Recording:
        """Returns one recording; run, worker and span default to the first. NotFound names the parameter and offers near names."""
        if not run:
            _, listing = self.listing(5.0)
            if not listing.runs:
                raise NotFound("no recording here", hint="record one with torch.profiler or tb_sol_plugin.capture", field="run")
            run = next(iter(listing.runs))
        all_of = self.recordings(run)
        worker = worker or all_of[0].worker
        of_worker = [r for r in all_of if r.worker == worker]
        if not of_worker:
            raise NotFound(f"no worker {_short(worker)!r} in this run", hint=near(worker, {r.worker for r in all_of}), field="worker")
        for recording in of_worker:
            if recording.span == span or not span:
                return recording
        raise NotFound(f"no span {_short(span)!r} of this worker", hint=near(span, {r.span for r in of_worker}), field="span")

    def with_graph_capture(self, recording: Recording, name: str) -> Recording:
        """Returns a trace whose graph launches are named by the recording of captures that a reader chose, see `graphs.with_chosen`."""
        if not name:
            return recording
        from tb_sol_plugin.store.graphs import with_chosen

        _, listing = self.listing(5.0)
        return with_chosen(recording, name, listing.captures, [r for own in listing.runs.values() for r in own])

    def _as_listed(self, recording: Recording) -> Recording:
        """Returns a recording as it stands in the listing, whatever names its graph launches."""
        return next((r for r in self._listing.runs.get(recording.run, ()) if r.path == recording.path), recording)

    def capture(self, recording: Recording, wait: float = 0.0) -> Capture:
        """See `Loader.capture`; with the rows of device files and the SOL logs attached to it as they are now."""
        if self._partial_results is not None:
            self._after_its_reduction(recording, wait)
        from tb_sol_plugin.store.timelines import keep

        near = self._listing.runs.get(recording.run, ())
        found = self.loader.capture(recording, wait, self.book(recording), near)
        keep(found, self.loader.cache, self.loader.entry_of(recording, found, near))
        return found

    def _after_its_reduction(self, recording: Recording, wait: float) -> None:
        """Wait for a file that is being read for its reduction: it is not read twice at once. StillLoading after `wait` seconds."""
        job = self.partial_results.reading(recording)
        if job is None or self.loader.state(recording)[0] != "new":
            return
        futures.wait([job], timeout=wait)
        if not job.done():
            raise StillLoading("this recording is being read", hint="ask again in a moment", file=recording.file)

    def rank_reductions(
        self, shown: Recording, reducer: Reducer, decode: Callable[[bytes], P], *, wait: float = 0.0, with_sol_log: bool = False
    ) -> list[RecordingReduction[P]]:
        """Returns the reduction of every worker of a recording's run, in natural order; what is not there is made from now on.

        wait: seconds to wait for all of them. with_sol_log: reductions read what traces have from the SOL logs attached to them.
        """
        from tb_sol_plugin.store.reductions import no_reduction, recordings_like

        chosen = recordings_like(self._with_captures_of(shown), shown)
        there = [r for _, r in chosen if r is not None]
        found = dict(zip(there, self._reductions_of(there, reducer, decode, wait, with_sol_log), strict=True))
        return [found[recording] if recording is not None else no_reduction(worker, None) for worker, recording in chosen]

    def known_reductions(self, shown: Recording, reducer: Reducer, decode: Callable[[bytes], msgspec.Struct]) -> KnownRanks:
        """Returns the reduction of every worker of a recording's run where all of them were made before, else none. Makes none."""
        from tb_sol_plugin.model.answer import KnownRanks
        from tb_sol_plugin.store.reductions import rank_recordings, wanted_reductions

        there = rank_recordings(self._with_captures_of(shown), shown)
        wanted = wanted_reductions(there, reducer, devices=self.book(there[0])) if there else []
        if not wanted or not self.partial_results.made(wanted):
            return KnownRanks()
        return KnownRanks(tuple(w.key for w in wanted), lambda: self._reductions_of(there, reducer, decode, 0.0, False))

    def _with_captures_of(self, shown: Recording) -> tuple[Recording, ...]:
        """Returns the recordings of a run; where a reader chose what names the graph launches of one, that names those of all."""
        every = self.recordings(shown.run)
        if self._as_listed(shown).captures == shown.captures:
            return every
        return tuple(msgspec.structs.replace(r, captures=shown.captures) if r.kind == shown.kind else r for r in every)

    def _reductions_of(
        self, recordings: Sequence[Recording], reducer: Reducer, decode: Callable[[bytes], P], wait: float, with_sol_log: bool
    ) -> list[RecordingReduction[P]]:
        """Returns the reductions of recordings of any runs, in their order."""
        from tb_sol_plugin.store.reductions import WantedReduction, no_reduction, reduction_of, wanted_reductions

        partial_results = self.partial_results
        wanted: dict[Recording, WantedReduction] = {}
        for run in dict.fromkeys(r.run for r in recordings):
            own = [r for r in recordings if r.run == run]
            near = self.recordings(run) if with_sol_log else ()
            wanted |= zip(own, wanted_reductions(own, reducer, devices=self.book(own[0]), recordings=near), strict=True)
        answers = partial_results.ask([wanted[r] for r in recordings], wait)
        out: list[RecordingReduction[P]] = []
        for recording, answer in zip(recordings, answers, strict=True):
            body = partial_results.body(answer.key) if answer.there else None
            if body is None:
                out.append(no_reduction(recording.worker, recording, answer.error))
            else:
                again = partial(partial_results.body, answer.key)
                out.append(reduction_of(recording.worker, recording, answer.key, body, decode, again, partial_results.jobs))
        return out

    def paired(self, shown: Recording, wanted: OtherNames) -> Paired:
        """Returns the recording to compare with the one shown, see `pairs.paired`."""
        from tb_sol_plugin.store.pairs import paired

        if wanted.run and wanted.run not in self._listing.runs:
            self._listing_once_more()  # it may have appeared since
        found = paired(self._as_listed(shown), {**self._listing.runs, shown.run: self.recordings(shown.run)}, wanted)
        same = (r for r in self._with_captures_of(shown) if r.path == found.other.path)
        return replace(found, shown=shown, other=next(same, found.other))

    def has_other(self, shown: Recording) -> bool:
        """Whether there is a recording to compare with this one."""
        from tb_sol_plugin.store.pairs import has_other

        return has_other(self._as_listed(shown), {**self._listing.runs, shown.run: self.recordings(shown.run)})

    def pair_reductions(
        self, pair: Paired, reducer: Reducer, decode: Callable[[bytes], P], *, wait: float = 0.0, with_sol_log: bool = False
    ) -> tuple[Compared[P], Compared[P]]:
        """Returns both recordings of a pair with their reductions; what is not there is made from now on, as in `rank_reductions`."""
        from tb_sol_plugin.model.recordings import Compared

        found = self._reductions_of((pair.shown, pair.other), reducer, decode, wait, with_sol_log)
        return Compared(pair.names[0], pair.shown.run, found[0]), Compared(pair.names[1], pair.other.run, found[1], pair.chosen)

    def worker_count(self, shown: Recording) -> int:
        """Counts the workers of a run that can be compared with the recording shown, itself included."""
        from tb_sol_plugin.store.reductions import recordings_like

        return len(recordings_like(self.recordings(shown.run), shown))

    def run_reductions(
        self,
        reducer: Reducer,
        decode: Callable[[bytes], P],
        choose: Callable[[Sequence[str]], Sequence[str]],
        *,
        shown: str = "",
        alike: Callable[[RecordingReduction[P], RecordingReduction[P]], bool] | None = None,
        wait: float = 0.0,
        with_sol_log: bool = False,
    ) -> list[RecordingReduction[P]]:
        """Returns the reduction of the latest recording of every worker of the chosen runs, in natural order.

        alike: of runs whose first recording is not like the run that is shown, that one alone. In all else as `rank_reductions`.
        """
        from tb_sol_plugin.store.reductions import first_recordings, further_recordings, latest_recordings

        _, listing = self.listing(5.0)
        chosen = set(choose([*listing.runs]))
        recordings = latest_recordings({n: r for n, r in listing.runs.items() if n in chosen})
        if alike is None:
            return self._reductions_of(recordings, reducer, decode, wait, with_sol_log)
        first = first_recordings(recordings, shown)
        found = dict(zip(first, self._reductions_of(first, reducer, decode, wait, with_sol_log), strict=True))
        more = further_recordings(recordings, found, shown, alike)
        found |= zip(more, self._reductions_of(more, reducer, decode, wait, with_sol_log), strict=True)
        return [found[r] for r in recordings if r in found]

    def sidecar_files(self, names: Sequence[str]) -> list[Sidecar]:
        """Returns small text files of these names in the logdirs and in the folders of runs, see `SidecarFiles`."""
        roots = [(root.name, root.url) for root in self.roots]
        return self._sidecars.texts(folders_of(roots, self._listing.runs), names) if names else []

    def cancel(self, recording: Recording) -> bool:
        """Stop reading a recording, and the other workers of its run; False if nothing was being read."""
        others = self._partial_results is not None and self._partial_results.cancel(recording.run)
        return self.loader.cancel(recording) or others

    def leave(self) -> None:
        """A page that waited for the workers of runs waits no more."""
        if self._partial_results is not None:
            self._partial_results.leave()

    def companion(self, recording: Recording) -> Recording | None:
        """Returns the other recording of the same worker: of a trace its SOL capture, of a SOL capture its trace."""
        return companion(recording, self._listing.runs.get(recording.run, ()))

    def book(self, recording: Recording) -> DeviceBook:
        """Returns the rows of device files that hold for a recording: the reader's own, its logdir's, those of the command line."""
        inside = [root for root in self.roots if not root.name or recording.file.startswith(f"{root.name}/")]
        found = max(inside, key=lambda root: len(root.name), default=None)
        return self.devices.book(*([found.url] if found is not None else []))

    def device_notes(self) -> list[str]:
        """Returns what is wrong in the device files, once each. Remote folders are not read anew."""
        folders = [root.url for root in self.roots if root.local]
        books = [self.devices.book(folder) for folder in folders] or [self.devices.book()]
        return list(dict.fromkeys(note for book in books for note in book.notes()))

    def progress(self, recording: Recording) -> Progress | None:
        """See `Loader.progress`."""
        return self.loader.progress(recording)

    def source(self, wait: float) -> StoreSource:
        """Returns what opens and reduces its recordings for analyses. wait: seconds to wait for those that are being read."""
        return StoreSource(self, wait)

    def close(self) -> None:
        """End worker processes; a scan under way ends by its own budget."""
        if self._partial_results is not None:
            self._partial_results.close()
        if self._loader is not None:
            self._loader.close()
        if self._ranks_executor is not None:
            self._ranks_executor.shutdown(wait=False, cancel_futures=True)

    # -- inside ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._running is None:
                self._running = threading.Thread(target=self._scan, name="tb-sol-scan", daemon=True)
                self._running.start()

    def _scan(self) -> None:
        try:
            self._listing = scan(self.roots, self.options, self._heads)
            self._failed = ""
        except Exception as error:  # shown on the page; the listing before it stays
            self._failed = text(f"{type(error).__name__}: scanning failed")
        finally:
            self._scanned_at = time.monotonic()
            self._first.set()
            with self._lock:
                self._running = None

    def _listing_once_more(self) -> None:
        """Scan again for a name that is not there and may have appeared since, unless that was just done."""
        if time.monotonic() - self._scanned_at > 1.0:
            self._start()
            running = self._running
            if running is not None:
                running.join(2.0)


@dataclass(frozen=True)
class StoreSource:
    """Opens and reduces the recordings of a store in its reading processes; what is not there after `wait` seconds is waiting."""

    store: Store
    wait: float

    def open(self, recording: Recording) -> Capture:
        """Returns one recording. StillLoading where it is not there yet."""
        return self.store.capture(recording, self.wait)

    def ranks(self, request: AnalysisRequest) -> list[RecordingReduction[msgspec.Struct]]:
        """See `RecordingSource.ranks`."""
        reduction = request.item.reduction
        shown, reducer, decode = request.recording, request.reducer, reduction.decode
        return self.store.rank_reductions(shown, reducer, decode, wait=self.wait, with_sol_log=reduction.sol_log)

    def known_ranks(self, request: AnalysisRequest) -> KnownRanks:
        """See `RecordingSource.known_ranks`."""
        return self.store.known_reductions(request.recording, request.reducer, request.item.reduction.decode)

    def runs(self, request: AnalysisRequest) -> tuple[list[RecordingReduction[msgspec.Struct]], list[Sidecar]]:
        """See `RecordingSource.runs`."""
        reduction = request.item.reduction
        reducer, decode = request.reducer, reduction.decode
        found = self.store.run_reductions(
            reducer, decode, request.chosen, shown=request.run, alike=reduction.alike, wait=self.wait, with_sol_log=reduction.sol_log
        )
        return found, self.store.sidecar_files(reduction.files)

    def pair(self, request: AnalysisRequest) -> tuple[Compared[msgspec.Struct], Compared[msgspec.Struct], dict[str, FieldNow]]:
        """See `RecordingSource.pair`."""
        reduction = request.item.reduction
        two = self.store.paired(request.recording, OtherNames.of(request.raw))
        shown, other = self.store.pair_reductions(two, request.reducer, reduction.decode, wait=self.wait, with_sol_log=reduction.sol_log)
        return shown, other, two.fields

    def base(self, request: AnalysisRequest) -> BaseRecording:
        """See `RecordingSource.base`."""
        from tb_sol_plugin.model.answer import BaseRecording

        two = self.store.paired(request.recording, request.base or OtherNames())
        return BaseRecording(two.other, two.names, self)


def _short(name: str) -> str:
    return name if len(name) <= 80 else name[:77] + "…"
