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
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask

_FILE: Final = re.compile(r"^[^<].*\(\d+\): ", re.DOTALL)
_INNER: Final = re.compile(r"^(.*/)?(torch/|contextlib\.py|functools\.py|threading\.py|importlib)")
"""Frames that do not show what the program does: those of torch itself and what it is called through."""
_PROFILER: Final = re.compile(r"^(.*/)?torch/(autograd/)?(profiler|_?kineto)")
"""Frames of the recorder: what it costs is no part of the program."""


def program_frames(capture: Capture) -> Mask:
    """Returns the host rows of Python frames of the program: files that are no part of torch or of Python's wrappers."""

    def make() -> Mask:
        names = arrays.where(capture.host["name"], lambda n: _FILE.match(n) is not None and _INNER.search(n) is None)
        return np.asarray(names & (at.host(capture).kind == S.FRAME), np.bool_)

    return memo(capture, ("program_frames",), make)


def profiler_frames(capture: Capture) -> Mask:
    """Returns which host rows are Python frames of the profiler itself."""
    named = arrays.where(capture.host["name"], lambda n: _PROFILER.match(n) is not None)
    return np.asarray(named & (at.host(capture).kind == S.FRAME), np.bool_)


def launching_threads(capture: Capture) -> Ints:
    """Returns the host threads that launch device work."""
    call = capture.device["call"].to_numpy()
    return np.unique(at.host(capture).thread[call[call >= 0]])


def profiler_time(capture: Capture) -> iv.Spans:
    """Returns the time inside Python frames of the profiler on threads that launch device work, without the program's frames in them."""

    def make() -> iv.Spans:
        h = at.host(capture)
        profiler, own = profiler_frames(capture), np.flatnonzero(program_frames(capture))
        rows = np.flatnonzero(profiler & np.isin(h.thread, launching_threads(capture)))
        if not len(rows):
            return iv.empty()
        inside = own[tree.nearest(profiler, h.parent, h.stop, h.parent[own], h.start[own]) >= 0]
        return iv.subtract(iv.union(h.start[rows], h.stop[rows]), iv.union(h.start[inside], h.stop[inside]))

    return memo(capture, ("profiler_time",), make)
