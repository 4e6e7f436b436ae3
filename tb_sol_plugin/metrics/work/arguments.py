"""Where the arguments of a call stand: in the operators of a trace, or in the ledger of a SOL capture."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.work.work import Work
from tb_sol_plugin.model.capture import Capture


def arguments_of(capture: Capture, done: Work, ops: pd.DataFrame) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    """(table with columns shapes, types, strides, concrete; per call of `ops`, rows of `done.ops`, its row there, -1 none)."""
    if done.from_ledger:
        return capture.tables["ledger"], ops["ledger"].to_numpy().astype(np.int64)
    host = ops["host"].to_numpy()
    table = capture.tables["operators"]
    if not len(capture.host):
        return table, np.full(len(host), -1, np.int64)
    return table, np.where(host >= 0, capture.operator_of_host[np.maximum(host, 0)], -1).astype(np.int64)
