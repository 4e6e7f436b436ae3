"""Drives torch.profiler for a single iteration, and stores its trace beside the capture file under the same worker name.

A traced iteration is never a sampled one: a dispatch mode would show in the trace, and makes compiled models run eagerly.
"""

from __future__ import annotations

import gc
import gzip
import os
import tempfile
import time
from collections.abc import Callable
from typing import Protocol

import torch

from tb_sol_plugin.capture.nvtx import profiler_active


class _Range(Protocol):
    def __enter__(self) -> object: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> object: ...


class DrivenProfiler:
    """One trace at a time. `start` and `stop` belong outside of what is timed: starting the profiler takes a while.

    folder: of the capture file. stem: answers `<host>_rank<rank>` of that file. note: called with (code, text).
    """

    def __init__(self, folder: str, stem: Callable[[], str], note: Callable[[str, str], None], *, modules: bool = True) -> None:
        self._folder, self._stem, self._note, self._modules = folder, stem, note, modules
        self._profile: torch.profiler.profile | None = None
        self._range: _Range | None = None
        self._number = 0
        self.written: list[str] = []

    @property
    def running(self) -> bool:
        return self._profile is not None

    def start(self, number: int, kind: str) -> bool:
        """Trace the iteration that begins now, which should have that number; False where another profiler is at work."""
        if profiler_active() or _profiles_of_others():
            self._note("profiler", "the script has a profiler of its own; no iteration is traced beside it")
            return False
        activity = torch.profiler.ProfilerActivity
        device = getattr(activity, kind.upper(), None) if kind in ("cuda", "xpu") else None
        activities = [activity.CPU, *([device] if device is not None else [])]
        profile = torch.profiler.profile(activities=activities, record_shapes=True, with_modules=self._modules)
        profile.start()
        self._profile, self._number = profile, number
        self.restart()
        return True

    def restart(self) -> None:
        """The iteration begins anew: its range starts now."""
        self._close_range()
        self._range = torch.profiler.record_function(f"ProfilerStep#{self._number}")
        self._range.__enter__()

    def _close_range(self) -> None:
        opened, self._range = self._range, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def end(self) -> None:
        """The iteration has ended."""
        if self._profile is not None:
            self._close_range()

    def stop(self, number: int | None) -> None:
        """Stop, and write the trace of the iteration with that number; None: the iteration did not end, no trace is written."""
        profile, self._profile = self._profile, None
        if profile is None:
            return
        self._close_range()
        profile.stop()
        if number is None:
            return
        os.makedirs(self._folder, exist_ok=True)
        path = os.path.join(self._folder, f"{self._stem()}.{time.time_ns()}.pt.trace.json.gz")
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".trace-") as place:
            plain = os.path.join(place, "trace.json")
            profile.export_chrome_trace(plain)
            packed = os.path.join(place, "trace.gz")
            with open(plain, "rb") as source, gzip.open(packed, "wb", compresslevel=5) as target:
                old, new = f'"ProfilerStep#{self._number}"'.encode(), f'"ProfilerStep#{number}"'.encode()
                for line in source:  # the profiler writes one field a line
                    target.write(line.replace(old, new) if old != new else line)
            os.replace(packed, path)
        self.written.append(path)


def _profiles_of_others() -> bool:
    """True if the script holds a profiler, which may start at any of its own steps: two at once are an error in torch."""
    return any(type(one) is torch.profiler.profile for one in gc.get_objects())
