"""Lists device time that no cost model covers: by operator and sizes, with the reason."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin import cost
from tb_sol_plugin.cost.inputs import readable_shapes
from tb_sol_plugin.metrics.work.costs import SIGNATURE, signature_inputs
from tb_sol_plugin.metrics.work.counted import ledger_inputs
from tb_sol_plugin.metrics.work.work import Work, launches_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints

# -- Where the arguments of a call stand -----------------------------------------------------------------------------
# in the operators of a trace, or in the ledger of a SOL capture.


def arguments_of(capture: Capture, done: Work, ops: pd.DataFrame, rows: Ints) -> tuple[pd.DataFrame, Ints]:
    """Returns (table with columns shapes, types, strides, concrete; per call, a row of `ops` out of `done.ops`, its row there, -1 none)."""
    if done.from_ledger:
        return capture.tables["ledger"], ops["ledger"].to_numpy()[rows].astype(np.int64)
    host = ops["host"].to_numpy()[rows]
    table = capture.tables["operators"]
    if not len(capture.host):
        return table, np.full(len(host), -1, np.int64)
    return table, np.where(host >= 0, capture.operator_of_host[np.maximum(host, 0)], -1).astype(np.int64)


COLUMNS: Final = ("name", "input_shapes", "types", "calls", "measured_ns", "share", "why")
MOST: Final = 1000
"""Rows; the reason is worked out once per row."""
NOT_OWNED: Final = "part of its time belongs to operators below it that have no model"
NO_ARGUMENTS: Final = "no arguments recorded"


def unmodeled(capture: Capture, done: Work, ops: pd.DataFrame) -> pd.DataFrame:
    """Returns calls of `ops` (rows of `done.ops`) without a model, one row per operator and signature, longest first.

    name; input_shapes, types as a reader sees them; calls; measured_ns (plain sum of device time, of host time without a device);
    share of the time of all `ops`; why: one sentence. A time that is not known is None.

    Copies over a link and communication are left out: a link bounds them.
    """
    time = ops["measured_ns" if done.by_host_time or done.from_ledger else "device_sum_ns"].to_numpy(dtype=np.float64)
    unmodeled = np.flatnonzero(~(ops["modeled"] | ops["link"] | ops["collective"] | ops["inferred"]).to_numpy() & ~(time <= 0))
    if not len(unmodeled):
        return pd.DataFrame({c: [] for c in COLUMNS})
    table, arguments = arguments_of(capture, done, ops, unmodeled)
    name = arrays.codes(ops["name"])[unmodeled]
    parts = [np.where(arguments >= 0, arrays.codes(table[c])[np.maximum(arguments, 0)], -1) for c in SIGNATURE[:2]]
    code, first = arrays.factorize([name, *parts])
    known = ~np.isnan(time[unmodeled])
    timed = np.bincount(code, known, minlength=len(first)) > 0
    spent = np.bincount(code, np.where(known, time[unmodeled], 0.0), minlength=len(first))
    calls = np.bincount(code, launches_of(ops)[unmodeled], minlength=len(first))
    longest = np.argsort(-(spent if done.timed else calls), kind="stable")[:MOST]
    names = arrays.coded(ops["name"]).categories
    shapes, types = table["shapes"].cat.categories, table["types"].cat.categories
    whole = float(np.nansum(time))
    out: list[tuple[object, ...]] = []
    each = [v[longest].tolist() for v in (name[first], *(part[first] for part in parts), arguments[first], calls, timed, spent)]
    for label, shape, kind, argument, many, has_time, ns in zip(*each, strict=True):
        why = _why(capture, done, str(names[label]), argument)
        sizes = readable_shapes(str(shapes[shape])) if shape >= 0 else ""
        elements = _types(str(types[kind])) if kind >= 0 else ""
        share = ns / whole if has_time and whole else None
        out.append((str(names[label]), sizes, elements, int(many), round(ns) if has_time else None, share, why or NOT_OWNED))
    return pd.DataFrame(out, columns=list(COLUMNS))


def _why(capture: Capture, done: Work, name: str, row: int) -> str:
    """Returns what is missing. row: of the table of arguments, -1 none."""
    if row < 0:
        return _without_arguments(name)
    if not done.from_ledger:
        return cost.explain(name, signature_inputs(capture, row))
    reason = str(arrays.pick(capture.tables["ledger"]["reason"], [row])[0])
    return reason or cost.explain(name, ledger_inputs(capture, row)) or NO_ARGUMENTS


def _without_arguments(name: str) -> str:
    return NO_ARGUMENTS if cost.model_for(name) is not None else "no cost model"


def _types(text: str) -> str:
    return text.strip("[]").replace('"', "")
