"""What the modules page says in sentences: the headline, and where its modules come from."""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.trees.modules import OWN, Beside, Direction
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Link, Notice
from tb_sol_plugin.units import human


def headline(capture: Capture, table: pd.DataFrame, direction: Direction, whole: int) -> str:
    """Names the class whose own work (device self, below it nothing that stands out) is largest, with its efficiency."""
    if scope.is_capture(capture):
        return _counted(table, direction)
    if table.empty:
        return "No module was called in this selection."
    if not whole:
        by_host = table.groupby("class_name", observed=True)["host_self_ns"].sum()
        top = str(by_host.idxmax())
        return f"`{top}` takes **{human(int(by_host[top]), 'ns')}** of host time of its own; no device activity was recorded."
    own = (table["device_self_ns"] + table["backward_self_ns"]).groupby(table["class_name"], observed=True).sum()
    if not own.max():
        return "No device work was launched inside a module call."
    top = str(own.idxmax())
    rows = table[(table["class_name"] == top) & (table["parent"].map(dict(zip(table["id"], table["class_name"], strict=True))) != top)]
    count = int(rows["instances"].sum())
    time, sol, measured, modelled = (pd.to_numeric(rows[c]).sum() for c in ("time_ns", "sol_ns", "measured_ns", "modelled_sum_ns"))
    efficiency = ""
    if measured > 0 and sol > 0:
        part = f"its modelled part, {human(modelled / time, 'ratio')} of that, " if modelled < 0.95 * time else ""
        efficiency = f"{';' if part else ' and'} {part}runs at **{human(sol / measured, 'ratio')}** of its limit"
    where = f"the {count} `{top}` modules" if count > 1 else f"`{top}`"
    only = f", {direction}," if direction != "both" else ""
    return f"Work in {where}{only} takes **{human(time / whole, 'ratio')}** of the device time{efficiency}."


def _counted(table: pd.DataFrame, direction: Direction) -> str:
    """Of a SOL capture: the class whose own calls hold most matrix work (most host time where there is none), and its efficiency."""
    if table.empty:
        return "No module was called in this selection."
    own = table.assign(work=np.nan_to_num(pd.to_numeric(table[f"{OWN}flop"])))
    work = own.groupby("class_name", observed=True)["work"].sum()
    roots = table[table["parent"].isna()]
    if not work.max() > 0 and not own["host_self_ns"].notna().any():
        return "No matrix work was counted in modules."
    if not work.max() > 0:
        by_host = table.groupby("class_name", observed=True)["host_self_ns"].sum()
        top = str(by_host.idxmax())
        return f"`{top}` takes **{human(int(by_host[top]), 'ns')}** of host time of its own."
    top = str(work.idxmax())
    rows = own[own["class_name"] == top]
    count = int(rows["instances"].sum())
    least, measured = (float(pd.to_numeric(rows[f"{OWN}{n}"]).sum()) for n in ("timed_sol_ns", "measured_ns"))
    efficiency = f" and runs at **{human(least / measured, 'ratio')}** of its limit" if measured > 0 and least > 0 else ""
    where = f"the {count} `{top}` modules" if count > 1 else f"`{top}`"
    only = f", {direction}," if direction != "both" else ""
    whole = max(float(np.nansum(pd.to_numeric(roots["flop"]))), float(work[top]))
    return f"Work in {where}{only} is **{human(float(work[top]) / whole, 'ratio')}** of the matrix work of all modules{efficiency}."


def notices(capture: Capture, direction: Direction, facts: dict[str, int | None]) -> list[Notice]:
    """Of a trace with module calls: what its times leave out."""
    out = []
    if not len(capture.device):
        out.append(Notice("No device activity was recorded: host times only.", "info"))
    elif direction != "forward" and not len(capture.tables["backward"]):
        out.append(Notice("No backward pass is linked in this recording; device time is forward only.", "info", Link("links")))
    if direction != "forward" and facts["outside_ns"] and facts["device_ns"] and facts["outside_ns"] / facts["device_ns"] > 0.2:
        out.append(Notice(f"{human(facts['outside_ns'] / facts['device_ns'], 'ratio')} of the device time belongs to no module.", "info"))
    return out


def said(beside: Beside) -> Notice:
    """Where the modules of a trace without any come from."""
    text = (
        f"Work and times are those of {beside.words} of the SOL capture {beside.file}: this trace recorded no modules, "
        "record it with with_stack=True."
    )
    if not beside.alike:
        text += " No sampled iteration is known to have inputs of the same sizes as its steps: this is the last one that was sampled."
    elif beside.alike < beside.steps:
        text += (
            f" That is the work of {human(beside.alike, 'count')} of its {human(beside.steps, 'count')} steps; of the others none is known."
        )
    return Notice(text, "info" if beside.alike else "warn")


def worded(column: Column, where: str) -> Column:
    """A column of numbers whose definition says where they were counted."""
    return msgspec.structs.replace(column, doc=f"{column.doc} {where}") if column.unit else column
