"""Keeps answers about one recording, or all ranks of a run, on disk: the next server shows a page without computing it.

An answer is found again by the recording (path, size, time of change), by all that is joined to it, by the limits of its devices, by what
was asked, and by the code that made it; of all ranks by what was reduced from each. Whatever would change the answer changes its name.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Hashable
from functools import cache
from importlib.metadata import entry_points
from typing import Final

from isal import igzip

from tb_sol_plugin.cost.plugins import GROUP
from tb_sol_plugin.model.answer import Inputs
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.store.kept import KeptFiles, code_state
from tb_sol_plugin.store.reductions import unchanged
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.http import Packed, pack

FOLDER: Final = "answers"
RESTS_SECONDS: Final = 600.0
TIDY: Final = 64
"""Answers written between two looks at how much there is."""


class KeptAnswers:
    """Answers of one server's store on disk, compressed. Where nothing is cached, nothing is kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._made: KeptFiles | None = None
        self._saved = 0

    @property
    def _files(self) -> KeptFiles:
        with self._lock:
            if self._made is None:
                cache = self._store.loader.cache
                self._made = KeptFiles(cache.directory, FOLDER, cache.limit_bytes)
            return self._made

    def load(self, key: str) -> Packed | None:
        """Returns an answer as it was sent; None if there is none."""
        body = self._files.load(key)
        return pack(igzip.decompress(body)) if body is not None else None

    def save(self, key: str, packed: Packed, recording: Recording) -> None:
        """Keep an answer; nothing where the disk does not let us, or the file is another one by now: it may have grown meanwhile."""
        files = self._files
        body = packed.kept if packed.zipped else igzip.compress(packed.kept, compresslevel=1, mtime=0)
        if unchanged(recording, self._store.options) and files.save(key, body):
            with self._lock:
                self._saved += 1
                tidy = self._saved % TIDY == 1
            if tidy:
                files.evict()


def key_on_disk(asked: Hashable, inputs: Inputs) -> str:
    """Returns the name of an answer on disk, "" for one that is not kept there.

    asked: what was asked, in which form and of which state. Kept are answers about one recording or all ranks of a run, by analyses of
    this package: what code of others adds may change without being seen here. One about a window that somebody drew is hardly asked for
    again. A SOL capture that grows is shown as it was a moment ago: it is kept once it rests.
    """
    item, shown = inputs.request.item, inputs.request.shown
    ours = item.function.__module__.partition(".")[0] == __name__.partition(".")[0]
    if any(inputs.request.raw.get(name) for name in item.query.ONE_OFF):
        return ""
    known = inputs.capture is not None if item.scope == "capture" else item.scope == "ranks" and not inputs.waiting
    if not known or not inputs.kept or not ours or _extended() or shown is None:
        return ""
    if shown.kind == "sol_capture" and time.time() - shown.mtime < RESTS_SECONDS:
        return ""
    return hashlib.blake2b(repr((code_state(), asked)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@cache
def _extended() -> bool:
    """Whether other packages add cost models."""
    return bool(entry_points(group=GROUP))
