"""The last record of what the program counted of its own steps to the table PROFILE: what cannot be is left out, and counted."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin import format as F
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.sol.records import Number, Profile, ProfileRow, amount
from tb_sol_plugin.ingest.values import FARTHEST
from tb_sol_plugin.model import schemas as S

MOST_ROWS: Final = 100_000
_MOST: Final = 2.0**53


def profile_table(found: tuple[Profile, int] | None, health: Health) -> pd.DataFrame:
    """Rows of the record, each with what the record says of gradients and limits. Empty without a record."""
    if found is None:
        return S.PROFILE.empty()
    record, number = found
    if len(record.rows) > MOST_ROWS:
        health.add("configurations of counted steps beyond the most that are kept", len(record.rows) - MOST_ROWS, f"line {number}")
    rows = []
    for row in record.rows[:MOST_ROWS]:
        read = _row(row)
        if read is None:
            health.add("counted steps that cannot be", 1, f"line {number}: {list(row)}")
        else:
            rows.append(read)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(F.PROFILE_ROW)}
    bounds = record.local_bsz_bounds or []
    known = len(bounds) == 2 and 0 < _whole(bounds[0]) <= _whole(bounds[1])
    sqr, var = _float(record.grad_sqr), _float(record.grad_var)
    if math.isnan(sqr) or math.isnan(var):
        sqr = var = math.nan
    same: dict[str, object] = {
        "grad_sqr": sqr,
        "grad_var": var,
        "grad_biased": bool(record.grad_biased),
        "init_batch_size": _whole(record.init_batch_size),
        "max_batch_size": _whole(record.max_batch_size),
        "least_atomic_bsz": _whole(bounds[0]) if known else -1,
        "most_atomic_bsz": _whole(bounds[1]) if known else -1,
        "gradient_accumulation": bool(record.gradient_accumulation),
    }
    return S.PROFILE.frame(
        {**{name: np.array(values, np.int64) for name, values in columns.items()}, **{k: np.full(len(rows), v) for k, v in same.items()}}
    )


def _row(row: ProfileRow) -> list[int] | None:
    """Whole numbers; None if they cannot be: 1 <= nodes <= replicas, a batch, time where there are steps."""
    nodes, replicas, atomic, accums, optims = (_whole(row[i]) for i in (0, 1, 2, 3, 5))
    values = [nodes, replicas, atomic, accums, _time(row[4]), optims, _time(row[6]), _time(row[7])]
    possible = (
        1 <= nodes <= replicas and atomic >= 1 and accums >= 0 and optims >= 0 and accums + optims > 0
        and (values[4] > 0 or not accums) and (values[6] > 0 or not optims)
    )  # fmt: skip
    if not possible or (row[7] is not None and values[7] < 0):
        return None
    return [max(v, 0) if i < 7 else v for i, v in enumerate(values)]


def _whole(value: Number) -> int:
    """A count of at least 0; -1 unknown."""
    found = amount(value)
    return int(found) if found < _MOST else -1


def _time(value: Number) -> int:
    found = amount(value)
    return int(found) if found < FARTHEST else -1


def _float(value: Number) -> float:
    found = amount(value, -math.inf)
    return float(found) if math.isfinite(found) else math.nan
