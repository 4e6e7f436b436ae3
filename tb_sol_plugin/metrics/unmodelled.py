"""Device time that no cost model covers: by operator and sizes, with the reason."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin import cost
from tb_sol_plugin.cost.inputs import readable_shapes
from tb_sol_plugin.metrics import texts
from tb_sol_plugin.metrics.work.calls import Work
from tb_sol_plugin.metrics.work.costs import SIGNATURE, signature_inputs
from tb_sol_plugin.model.capture import Capture

COLUMNS: Final = ("name", "input_shapes", "types", "calls", "measured_ns", "share", "why")
MOST: Final = 1000
"""Rows; the reason is worked out once per row."""
NOT_OWNED: Final = "part of its time belongs to operators below it that have no model"
NO_ARGUMENTS: Final = "no arguments recorded"


def unmodelled(capture: Capture, done: Work, ops: pd.DataFrame) -> pd.DataFrame:
    """Calls of `ops` (rows of `done.ops`) without a model, one row per operator and signature, longest first.

    name; input_shapes, types as a reader sees them; calls; measured_ns (plain sum of device time, of host time without a device);
    share of the time of all `ops`; why: one sentence. Copies over a link and communication are left out: a link bounds them.
    """
    time = ops["measured_ns" if done.by_host_time else "device_sum_ns"].to_numpy()
    bare = np.flatnonzero(~(ops["modelled"] | ops["link"] | ops["collective"] | ops["inferred"]).to_numpy() & (time > 0))
    if not len(bare):
        return pd.DataFrame({c: [] for c in COLUMNS})
    rows = ops["host"].to_numpy()[bare]
    arguments = capture.operator_of_host[rows]
    table = capture.tables["operators"]
    name = texts.codes(ops["name"])[bare]
    parts = [np.where(arguments >= 0, texts.codes(table[c])[np.maximum(arguments, 0)], -1) for c in SIGNATURE]
    frame = pd.DataFrame({"name": name, **dict(zip(SIGNATURE, parts, strict=True)), "time": time[bare], "argument": arguments})
    by = frame.groupby(["name", *SIGNATURE[:2]], sort=False)
    grouped = by.agg(calls=("time", "size"), time=("time", "sum"), first=("argument", "first")).reset_index()
    grouped = grouped.sort_values("time", ascending=False, kind="stable").head(MOST)
    names = ops["name"].cat.categories
    shapes, types = table["shapes"].cat.categories, table["types"].cat.categories
    whole = float(time.sum())
    out = []
    for code, shape, kind, calls, spent, first in grouped[["name", "shapes", "types", "calls", "time", "first"]].itertuples(index=False):
        label = str(names[code])
        why = cost.explain(label, signature_inputs(capture, int(first))) if first >= 0 else _without_arguments(label)
        sizes = readable_shapes(str(shapes[shape])) if shape >= 0 else ""
        elements = _types(str(types[kind])) if kind >= 0 else ""
        out.append((label, sizes, elements, int(calls), int(spent), spent / whole, why or NOT_OWNED))
    return pd.DataFrame(out, columns=list(COLUMNS))


def _without_arguments(name: str) -> str:
    return NO_ARGUMENTS if cost.model_for(name) is not None else "no cost model"


def _types(text: str) -> str:
    return text.strip("[]").replace('"', "")
