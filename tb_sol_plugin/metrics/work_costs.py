"""The cost of every operator call of a recording, computed once per distinct signature (name, shapes, types, strides, values)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin import cost
from tb_sol_plugin.cost import Cost, Inputs
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

Rows = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

SIGNATURE = ("shapes", "types", "strides", "concrete")


@dataclass(frozen=True)
class Costs:
    """costs: one per distinct signature that has a usable model. of_host: index into it per host row, -1 none.

    wrapper: per host row, whether its model belongs to an operator that only calls others.
    """

    costs: tuple[Cost, ...]
    of_host: Rows
    wrapper: Mask


def costs(capture: Capture) -> Costs:
    """Costs of all operator calls with recorded arguments."""
    return memo(capture, ("work.costs",), lambda: _costs(capture))


def usable(found: Cost | None) -> bool:
    """Whether a cost says enough to place an operation: its traffic, or matrix work."""
    return found is not None and (found.bytes is not None or bool(found.flop))


def factorize(columns: list[npt.NDArray[np.int64]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(group per row, first row per group) of rows that agree in all of the integer columns."""
    key = columns[0]
    for column in columns[1:]:
        key = pd.factorize(key)[0].astype(np.int64)
        key = key * (int(column.max(initial=0)) + 2) + column
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return group.reshape(-1), first


def _costs(capture: Capture) -> Costs:
    host, table = capture.host, capture.tables["operators"]
    of_host = np.full(len(host), -1, np.int32)
    wrapper = np.zeros(len(host), bool)
    names = host["name"].cat.categories.tolist()
    models = [cost.model_for(str(name)) for name in names]
    has_model = np.fromiter((m is not None for m in models), bool, len(models))
    rows = table["host"].to_numpy()
    name_codes = host["name"].cat.codes.to_numpy()[rows].astype(np.int64)
    use = np.flatnonzero(has_model[name_codes] & (host["kind"].to_numpy()[rows] == S.OPERATOR)) if len(rows) else np.zeros(0, np.int64)
    if not len(use):
        return Costs((), of_host, wrapper)
    codes = [table[c].cat.codes.to_numpy()[use].astype(np.int64) for c in SIGNATURE]
    group, first = factorize([name_codes[use], *codes])
    texts = [table[c].cat.categories.tolist() for c in SIGNATURE]
    found: list[Cost] = []
    place = np.full(len(first), -1, np.int32)
    for at, row in enumerate(first.tolist()):
        call = Inputs(*(_text(texts[i], codes[i][row]) for i in range(4)))
        answer = cost.estimate(names[name_codes[use[row]]], call)
        if answer is not None and usable(answer):
            place[at] = len(found)
            found.append(answer)
    of_host[rows[use]] = place[group]
    is_wrapper = np.fromiter((m is not None and m.wrapper for m in models), bool, len(models))
    wrapper[rows[use]] = is_wrapper[name_codes[use]]
    return Costs(tuple(found), of_host, wrapper)


def _text(categories: list[object], code: np.int64) -> str:
    return str(categories[code]) if code >= 0 else ""
