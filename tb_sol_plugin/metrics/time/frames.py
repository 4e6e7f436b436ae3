"""Tells Python frames of the program from those of torch and of the profiler.

    program_frames(capture)     # host rows of the program's own files
    profiler_time(capture)      # when the profiler's own Python runs on threads that launch device work
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables import tree
from tb_sol_plugin.tables.arrays import Ints, Mask

_FILE: Final = re.compile(r"^[^<].*\(\d+\): ", re.DOTALL)
_INNER: Final = re.compile(r"^(.*/)?(torch/|contextlib\.py|functools\.py|threading\.py|importlib)")
"""Frames that do not show what the program does: those of torch itself and what it is called through."""
_PROFILER: Final = re.compile(r"^(.*/)?torch/(autograd/)?(profiler|_?kineto)")
"""Frames of the recorder: what it costs is no part of the program."""


def program_frames(capture: Capture) -> Mask:
    """Returns the host rows of Python frames of the program: files that are no part of torch or of Python's wrappers."""

    return memo(capture, ("program_frames",), lambda: at.mask_of(capture, program_frame_rows(capture)))


def program_frame_rows(capture: Capture) -> Ints:
    """Returns the host rows of Python frames of the program, ascending."""

    def own(name: str) -> bool:
        return "): " in name and _FILE.match(name) is not None and _INNER.search(name) is None

    return memo(capture, ("program_frame_rows",), lambda: at.named(capture, S.FRAME, own))


def profiler_frame_rows(capture: Capture) -> Ints:
    """Returns the host rows of Python frames of the profiler itself, ascending."""


    def own(name: str) -> bool:  # few names hold what the expression looks for
        return "torch/" in name and ("profiler" in name or "kineto" in name) and _PROFILER.match(name) is not None

    return memo(capture, ("profiler_frame_rows",), lambda: at.named(capture, S.FRAME, own))


def frames_of(capture: Capture, threads: Ints) -> Ints:
    """Returns the host rows of Python frames on some threads, ascending."""
    h, rows = at.host(capture), at.of_kind(capture, S.FRAME)
    thread = h.thread[rows]  # rows of a thread stand together
    wanted = np.unique(threads)
    low, high = np.searchsorted(thread, wanted), np.searchsorted(thread, wanted, side="right")
    return np.concatenate([rows[:0], *(rows[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True))])


def launching_threads(capture: Capture) -> Ints:
    """Returns the host threads that launch device work."""
    return memo(capture, ("launching_threads",), lambda: np.unique(at.host(capture).thread[at.launching_calls(capture)]))


def profiler_time(capture: Capture) -> iv.Spans:
    """Returns the time inside Python frames of the profiler on threads that launch device work, without the program's frames in them."""

    def make() -> iv.Spans:
        h = at.host(capture)
        rows = profiler_frame_rows(capture)
        if not len(rows):
            return iv.empty()
        own, profiler = program_frame_rows(capture), at.mask_of(capture, rows)
        rows = rows[np.isin(h.thread[rows], launching_threads(capture))]
        inside = own[tree.nearest(profiler, h.parent, h.stop, h.parent[own], h.start[own], h.end) >= 0]
        return iv.subtract(iv.union(h.start[rows], h.stop[rows]), iv.union(h.start[inside], h.stop[inside]))

    return memo(capture, ("profiler_time",), make)
