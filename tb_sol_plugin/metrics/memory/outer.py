"""The outermost phases of a recording as marks on an axis of time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.names import phase_name
from tb_sol_plugin.metrics.phases import STEP
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays


def outer_phases(capture: Capture) -> pd.DataFrame:
    """User ranges with no other around them but a step, on the thread that has most of them: name, start_ns, end_ns, in order of time."""
    return memo(capture, ("memory.outer_phases",), lambda: _outer(capture))


def _outer(capture: Capture) -> pd.DataFrame:
    h = at.host(capture)
    rows = np.flatnonzero(h.kind == S.ANNOTATION)
    if not len(rows):
        return pd.DataFrame({"name": np.zeros(0, object), "start_ns": np.zeros(0, np.int64), "end_ns": np.zeros(0, np.int64)})
    step = arrays.where(capture.host["name"], lambda name: phase_name(name) == STEP)
    above = at.nearest(capture, S.ANNOTATION, rows, strict=True)
    rows = rows[((above < 0) | step[above.clip(0)]) & ~step[rows]]
    if len(rows):
        rows = rows[h.thread[rows] == np.bincount(h.thread[rows].clip(0)).argmax()]
    names = [phase_name(str(n)) for n in arrays.pick(capture.host["name"], rows)]
    return pd.DataFrame({"name": np.array(names, object), "start_ns": h.start[rows], "end_ns": h.stop[rows]})
