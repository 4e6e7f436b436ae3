"""The store as the web sees it: listings and captures of one logdir, scanned on demand, never by a timer."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Literal, TypeAlias

from tb_sol_plugin.errors import NotFound
from tb_sol_plugin.model.redact import text
from tb_sol_plugin.model.run import Recording, Run
from tb_sol_plugin.store.devices import DeviceFiles
from tb_sol_plugin.store.join import companion
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.places import Root
from tb_sol_plugin.store.scan import Heads, Listing, scan

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.devices.book import DeviceBook
    from tb_sol_plugin.store.load import Loader, Progress

ScanState: TypeAlias = Literal["scanning", "done", "error"]

FIRST_LOOK = 0.003
"""Seconds that `active` may wait for the first scan: TensorBoard's whole page waits with it."""


class Store:
    """Listings and captures below some roots. Making one does nothing; the first question starts the first scan."""

    def __init__(self, roots: Sequence[Root], options: StoreOptions | None = None, executor: Executor | None = None) -> None:
        self.roots = tuple(roots)
        self.options = options or StoreOptions()
        self._executor = executor
        self._loader: Loader | None = None
        self._heads = Heads(self.options.fs_options)
        self.devices = DeviceFiles(self.options.device, self.options.fs_options)
        self._listing = Listing()
        self._failed = ""
        self._scanned_at = float("-inf")
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None
        self._first = threading.Event()
        self._active = False
        self._asked = False

    @property
    def loader(self) -> Loader:
        """Made on first use: it brings pandas and pyarrow, which scanning does not need."""
        from tb_sol_plugin.store.load import Loader

        with self._lock:
            if self._loader is None:
                self._loader = Loader(self.options, self._executor)
            return self._loader

    # -- listings ----------------------------------------------------------------------------------------------

    def listing(self, wait: float = 0.0) -> tuple[ScanState, Listing]:
        """The latest listing and whether one is being made. An old one is renewed in the background.

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
        state, listing = self.listing(0.0 if self._asked else FIRST_LOOK)
        self._asked = True
        if state == "scanning":
            return True
        self._active = bool(listing.runs)
        return self._active or bool(listing.stopped)

    # -- recordings --------------------------------------------------------------------------------------------

    def recordings(self, run: str) -> tuple[Recording, ...]:
        """All recordings of a run; NotFound offers near names."""
        _, listing = self.listing(5.0)
        if run not in listing.runs:
            self._listing_once_more()
            listing = self._listing
        found = listing.runs.get(run)
        if found is None:
            raise NotFound(f"no run {_short(run)!r} here", hint=_near(run, listing.runs), field="run")
        return found

    def recording(self, run: str = "", worker: str = "", span: str = "") -> Recording:
        """One recording; run, worker and span default to the first. NotFound names the parameter and offers near names."""
        if not run:
            _, listing = self.listing(5.0)
            if not listing.runs:
                raise NotFound("no recording here", hint="record one with torch.profiler or tb_sol_plugin.capture", field="run")
            run = next(iter(listing.runs))
        all_of = self.recordings(run)
        worker = worker or all_of[0].worker
        of_worker = [r for r in all_of if r.worker == worker]
        if not of_worker:
            raise NotFound(f"no worker {_short(worker)!r} in this run", hint=_near(worker, {r.worker for r in all_of}), field="worker")
        for recording in of_worker:
            if recording.span == span or not span:
                return recording
        raise NotFound(f"no span {_short(span)!r} of this worker", hint=_near(span, {r.span for r in of_worker}), field="span")

    def capture(self, recording: Recording, wait: float = 0.0) -> Capture:
        """See `Loader.capture`; with the rows of device files and the SOL captures beside it as they are now."""
        return self.loader.capture(recording, wait, self.book(recording), self._listing.runs.get(recording.run, ()))

    def companion(self, recording: Recording) -> Recording | None:
        """The other recording of the same worker: of a trace its SOL capture, of a SOL capture its trace."""
        return companion(recording, self._listing.runs.get(recording.run, ()))

    def book(self, recording: Recording) -> DeviceBook:
        """The rows of device files that hold for a recording: the reader's own, its logdir's, those of the command line."""
        inside = [root for root in self.roots if not root.name or recording.file.startswith(f"{root.name}/")]
        found = max(inside, key=lambda root: len(root.name), default=None)
        return self.devices.book(*([found.url] if found is not None else []))

    def device_notes(self) -> list[str]:
        """What is wrong in the device files, once each. Remote folders are not asked anew."""
        folders = [root.url for root in self.roots if root.local]
        books = [self.devices.book(folder) for folder in folders] or [self.devices.book()]
        return list(dict.fromkeys(note for book in books for note in book.notes()))

    def progress(self, recording: Recording) -> Progress | None:
        """See `Loader.progress`."""
        return self.loader.progress(recording)

    def run(self, name: str, wait: float = 60.0) -> Run:
        """A run whose captures open on demand."""
        return Run(name, self.recordings(name), lambda recording: self.capture(recording, wait))

    def close(self) -> None:
        """End worker processes; a scan under way ends by its own budget."""
        if self._loader is not None:
            self._loader.close()

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
        """A name that is not there may have appeared since: look again unless that was just done."""
        if time.monotonic() - self._scanned_at > 1.0:
            self._start()
            running = self._running
            if running is not None:
                running.join(2.0)


def _near(name: str, known: object) -> str:
    names = [str(n) for n in known]  # type: ignore[attr-defined]
    close = difflib.get_close_matches(name[:200], names, 3, 0.4) or names[:3]
    return f"there is: {', '.join(close)}" if close else ""


def _short(name: str) -> str:
    return name if len(name) <= 80 else name[:77] + "…"
