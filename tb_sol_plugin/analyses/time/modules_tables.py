"""Rows of the module tables that are no module: what a module launches itself, and device work of no module, by the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.metrics.report.longest import longest
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.trees.label_times import module_calls, module_device_ns
from tb_sol_plugin.metrics.trees.module_tree import labels_alone, module_tree
from tb_sol_plugin.metrics.trees.modules import OUTSIDE as NO_NODE
from tb_sol_plugin.metrics.trees.modules import OWN, CaptureModules, Direction, MergedRow, ModuleWork
from tb_sol_plugin.metrics.work.ownership import recomputed
from tb_sol_plugin.metrics.work.sums import VALUES, ratios_of, sums
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Link, Notice
from tb_sol_plugin.tables import tree
from tb_sol_plugin.tables.arrays import Mask, whole_numbers, whole_or_none
from tb_sol_plugin.tables.table import with_columns
from tb_sol_plugin.units import human

OUTSIDE: Final = "(outside every module)"
ACCUMULATION: Final = "(gradient accumulation)"
_WHOLE: Final = ("flop", "backward_flop", "operator_ns", "bytes", "sol_ns", "measured_ns", "wasted_ns")


def with_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns `frame` (VALUES and time_ns) with what `ratios` makes of its sums and modelled_share; sums as whole numbers, None unknown."""
    sums = {name: frame[name].to_numpy(dtype=np.float64) for name in VALUES}
    more = ratios_of(sums)
    more["modelled_share"] = ratio(np.nan_to_num(sums["modelled_sum_ns"]), frame["time_ns"].to_numpy(dtype=np.float64))
    every = sums | more | {"operator_ns": sums["owned_sum_ns"]}
    return with_columns(frame, more | {name: whole_or_none(every[name]) for name in _WHOLE})


def with_label_times(
    capture: Capture, part: Scope, nodes: pd.DataFrame, rows: list[MergedRow], frame: pd.DataFrame, direction: Direction
) -> pd.DataFrame:
    """Returns rows of a SOL capture with the forward device time that was measured around modules; unknown where one of a row was not.

    Where modules are known by labels alone, calls are those that were timed, and the host has no time.
    Where no call has a time of its own, the forward pass also gets its efficiency from it.
    """
    if labels_alone(capture):
        calls = module_calls(capture, part)[nodes["node"].to_numpy()]
        count = [calls[list(row.nodes)].sum() for row in rows]
        known = pd.Series([int(n) if n == n else None for n in count], dtype=object, index=frame.index)
        frame = frame.assign(calls=known, host_total_ns=None, host_self_ns=None)
    each = module_device_ns(capture, part)[nodes["node"].to_numpy()]
    time = np.array([each[list(row.nodes)].sum() for row in rows], np.float64)
    if not np.isfinite(time).any():
        return frame
    shown = whole_numbers(pd.Series(time, frame.index))
    out = frame.assign(device_total_ns=shown)
    if direction == "forward" and not frame["measured_ns"].notna().any():
        sol = pd.to_numeric(frame["sol_ns"]).to_numpy(dtype=np.float64)
        wasted = whole_numbers(pd.Series(time - sol, frame.index))
        out = out.assign(time_ns=shown, efficiency=ratio(sol, time), wasted_ns=wasted)
    return out


def with_longest(capture: Capture, part: Scope, nodes: pd.DataFrame, rows: list[MergedRow], frame: pd.DataFrame) -> pd.DataFrame:
    """Returns rows of `module_times`, merged or not, with the columns of LONGEST: the longest of the calls of all nodes of a row."""
    tree_ = module_tree(capture)
    h = at.host(capture)
    of_node = np.full(len(tree_.name) + 1, -1, np.int64)
    numbers = nodes["node"].to_numpy()
    for i, merged in enumerate(rows):
        of_node[numbers[list(merged.nodes)]] = i
    calls = np.flatnonzero(part.host & (tree_.node >= 0)) if len(tree_.node) else np.zeros(0, np.int64)
    found = longest(of_node[tree_.node[calls]], h.start[calls], h.duration[calls], len(rows))
    return frame.assign(**found)


def with_self_rows(
    capture: Capture, work: ModuleWork, nodes: pd.DataFrame, rows: list[MergedRow], frame: pd.DataFrame, whole: int
) -> pd.DataFrame:
    """Adds after each row with modules inside a row `self: bmm, softmax` for the work of the module itself, backward work included.

    Its time is the row's less that of the rows inside, its work that of the calls that belong to the module and to none inside.
    """
    if not len(capture.device):
        return frame
    time = pd.to_numeric(frame["time_ns"]).to_numpy(dtype=np.int64)
    position = {key: i for i, key in enumerate(frame["id"].tolist())}
    up = np.array([position.get(p, -1) if p is not None else -1 for p in frame["parent"].tolist()], np.int64)
    inside = at.sum_by(up, time, len(frame))
    own = np.maximum(time - inside, 0)
    chosen = np.flatnonzero(np.isin(np.arange(len(frame)), up) & (own > 0))
    if not len(chosen):
        return frame
    named = _self_names(work, nodes, rows)
    part = frame.iloc[chosen]
    extra = pd.DataFrame({name: part[OWN + name].to_numpy(dtype=np.float64) for name in VALUES})
    extra = with_ratios(extra.assign(time_ns=own[chosen]))
    extra = extra.assign(
        id=[f"{key}/self" for key in part["id"]],
        parent=part["id"].tolist(),
        name=[f"self: {named.get(int(i), 'launched by the module itself')}" for i in chosen],
        share=own[chosen] / whole if whole else np.nan,
        _at=chosen + 0.5,
        **{name: part[name].tolist() for name in ("class_name", "instances", "calls", "device_self_ns")},
    )
    extra["device_total_ns"] = extra["device_self_ns"]
    extra["backward_device_ns"] = None
    columns = [*frame.columns, "_at"]
    out = pd.concat([frame.astype(object).assign(_at=range(len(frame))), extra.reindex(columns=columns).astype(object)], ignore_index=True)
    return out.sort_values("_at", kind="stable", ignore_index=True).drop(columns="_at")


def _self_names(work: ModuleWork, nodes: pd.DataFrame, rows: list[MergedRow], most: int = 3) -> dict[int, str]:
    """Returns per row the operators that own most of its own device time, `aten::` left out."""
    row_of_node = np.full(len(work.own["flop"]) + 1, -1, np.int64)
    numbers = nodes["node"].to_numpy()
    for i, merged in enumerate(rows):
        row_of_node[numbers[list(merged.nodes)]] = i
    row = row_of_node[np.where(work.node >= 0, work.node, -1)]
    name = work.calls.ops["name"]
    time = pd.Series(work.calls.values["owned_sum_ns"]).groupby([row, name.cat.codes.to_numpy()]).sum()
    by_row: dict[int, dict[str, float]] = {}
    words = name.cat.categories
    for (place, code), value in zip(time.index.to_list(), time.to_list(), strict=True):
        if place >= 0 and value > 0:
            short = str(words[code]).rpartition("::")[2].lstrip("_")
            of = by_row.setdefault(int(place), {})
            of[short] = of.get(short, 0.0) + value
    return {i: ", ".join(sorted(of, key=lambda s: -of[s])[:most]) for i, of in by_row.items()}


def outside_rows(capture: Capture, part: Scope, work: ModuleWork, direction: Direction, whole: int) -> pd.DataFrame:
    """Returns device work of no module, a row per reason; work credited to a module through its forward operator is left out."""
    if not len(capture.device):
        return _outside_host(work)
    launch = at.launches(capture)
    owner = np.where(part.device, capture.device["module"].to_numpy(), 0)
    forward, _ = at.module_forward_rows(capture, launch.call, launch.time)
    credited = at.nearest(capture, S.MODULE, forward)
    if direction == "forward":
        operator = capture.device["operator"].to_numpy()
        credited = np.where((operator >= 0) & recomputed(capture)[np.maximum(operator, 0)], credited, -1) if len(capture.host) else credited
    owner = np.where(owner >= 0, owner, credited).astype(np.int32)
    duration = capture.device["duration_ns"].to_numpy()
    reasons = at.unowned(capture, owner, OUTSIDE)
    if direction != "forward":
        reasons = _accumulation_apart(capture, reasons)
    if not reasons:
        return pd.DataFrame()
    reason = np.full(len(owner), -1, np.int64)
    for i, (_, mask) in enumerate(reasons):
        reason[mask] = i
    names = [name for name, _ in reasons]
    time = at.sum_by(reason, duration, len(names))
    frame = pd.DataFrame(
        {
            "id": names,
            "parent": pd.Series([None] * len(names), dtype=object),
            "name": names,
            "class_name": "",
            "time_ns": time,
            "device_total_ns": time,
            "device_self_ns": time,
            "device_events": at.sum_by(reason, np.ones(len(reason), np.int64), len(names)),
            "share": time / whole if whole else np.nan,
        }
    )
    alone = work.node == NO_NODE
    code = np.where(alone, _reason_of_calls(work, reason)[work.calls.rows], -1)
    code = np.where(alone & (code < 0), 0, code)
    return with_ratios(pd.concat([frame, sums(work.calls.values, code, len(names))], axis=1))


def _reason_of_calls(work: ModuleWork, reason: np.ndarray) -> np.ndarray:
    """Returns per row of `Work.ops` the reason of its first device event without a module, -1 where it has none."""
    owner = work.calls.done.owner
    out = np.full(len(work.calls.done.ops), -1, np.int64)
    rows = np.flatnonzero((owner >= 0) & (reason >= 0))[::-1]
    out[owner[rows]] = reason[rows]
    return out


def _outside_host(work: ModuleWork) -> pd.DataFrame:
    """Returns the limits of operators outside every module of a recording without device work, where there are limits.

    Of a SOL capture their work too.
    """
    values = sums(work.calls.values, np.where(work.node == NO_NODE, 0, -1), 1)
    known = ("sol_ns", "flop", "bytes", "owned_sum_ns") if work.calls.done.from_ledger else ("sol_ns",)
    if not np.isfinite(values[list(known)].to_numpy(dtype=np.float64)).any():
        return pd.DataFrame()
    own = {"id": OUTSIDE, "parent": None, "name": OUTSIDE, "class_name": "", "time_ns": 0}
    return with_ratios(values.assign(**own)).assign(time_ns=None, modelled_share=None)


def _accumulation_apart(capture: Capture, reasons: list[tuple[str, Mask]]) -> list[tuple[str, Mask]]:
    """Returns gradient accumulation, which belongs to no forward operator, as a row of its own beside the rest of the work outside."""
    h = at.host(capture)
    wraps = at.where_named(capture, lambda n: n.startswith("autograd::engine::evaluate_function") and "AccumulateGrad" in n)
    if not wraps.any():
        return reasons
    launch = at.launches(capture)
    inside = tree.nearest(wraps, h.parent, h.stop, launch.call, launch.time) >= 0
    inside &= ~capture.device["communication"].to_numpy()
    out: list[tuple[str, Mask]] = []
    for name, mask in reasons:
        parts = ((ACCUMULATION, mask & inside), (name, mask & ~inside)) if name == OUTSIDE else ((name, mask),)
        out += [(label, part) for label, part in parts if part.any()]
    return out


# -- Labels of the tree -----------------------------------------------------------------------------------------------
# below `blocks.0`, the module `blocks.0.mlp` is `mlp`.


NUMBERED: Final = re.compile(r"(?P<stem>.*?)(?P<number>\d{1,9})$")
MOST_NAMED: Final = 3
MOST_LETTERS: Final = 32


def below(name: str, above: str) -> str:
    """The part of a qualified name that its parent's does not hold; all of it where the parent is no prefix (a module used elsewhere)."""
    return name.removeprefix(f"{above}.") if above else name


def node_names(nodes: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Returns per row of `module_times` its name below its parent's. names: per node of the tree its name in the model, "" unknown."""
    own = [names[n] for n in nodes["node"].tolist()]
    at = {int(n): i for i, n in enumerate(nodes["node"].tolist())}
    ups = [at.get(int(up), -1) for up in nodes["parent"].tolist()]
    instances = nodes["name"].tolist()
    return [below(name, own[up] if up >= 0 else "") or str(number) for name, up, number in zip(own, ups, instances, strict=True)]


def row_names(rows: Sequence[MergedRow], each: Sequence[str]) -> list[str]:
    """Returns the same per row, merged ones in one word. each: of `node_names`."""
    return [_together([each[n] for n in row.nodes], row.class_name) if row.merged else each[row.nodes[0]] for row in rows]


def _together(names: list[str], class_name: str) -> str:
    """Returns `layers.0–23 24×`, `qkv + out 6×`; the class where there are too many."""
    distinct = list(dict.fromkeys(names))
    module_source = _range(distinct) or " + ".join(distinct)
    if (len(distinct) > MOST_NAMED and module_source.count(" + ")) or len(module_source) > MOST_LETTERS:
        module_source = class_name
    return f"{module_source} {len(names)}×"


def _range(names: list[str]) -> str:
    """Returns `layers.0–23` of names that count up by one, else ""."""
    found = [NUMBERED.match(name) for name in names]
    numbers = [int(m["number"]) for m in found if m is not None]
    one_stem = len({m["stem"] if m is not None else None for m in found}) == 1
    if len(names) < 2 or len(numbers) < len(names) or not one_stem or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return ""
    return f"{names[0]}–{numbers[-1]}"


# -- Headline and notices ---------------------------------------------------------------------------------------------
# the headline, and where its modules come from.


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
    rows = _outermost(table, top)
    count = int(rows["instances"].sum())
    time, sol, measured, modeled = (pd.to_numeric(rows[c]).sum() for c in ("time_ns", "sol_ns", "measured_ns", "modelled_sum_ns"))
    efficiency = ""
    if measured > 0 and sol > 0:
        part = f"its modeled part, {human(modeled / time, 'ratio')} of that, " if modeled < 0.95 * time else ""
        efficiency = f"{';' if part else ' and'} {part}runs at **{human(sol / measured, 'ratio')}** of its limit"
    where = f"the {count} `{top}` modules" if count > 1 else f"`{top}`"
    only = f", {direction}," if direction != "both" else ""
    return f"Work in {where}{only} takes **{human(time / whole, 'ratio')}** of the device time{efficiency}."


def _outermost(table: pd.DataFrame, class_name: str) -> pd.DataFrame:
    """Returns the rows of a class without a row of the same class anywhere above them: the time of one is no part of another's."""
    parent = dict(zip(table["id"], table["parent"], strict=True))
    same = set(table["id"][table["class_name"] == class_name])

    def inside(row: str) -> bool:
        above = parent.get(row)
        while isinstance(above, str) and above not in same:
            above = parent.get(above)
        return isinstance(above, str)

    return table[[name in same and not inside(name) for name in table["id"].tolist()]]


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
    """Says of a trace with module calls what its times leave out."""
    out = []
    if not len(capture.device):
        out.append(Notice("No device activity was recorded: host times only.", "info"))
    elif direction != "forward" and not len(capture.tables["backward"]):
        out.append(Notice("No backward pass is linked in this recording; device time is forward only.", "info", Link("links")))
    if direction != "forward" and facts["outside_ns"] and facts["device_ns"] and facts["outside_ns"] / facts["device_ns"] > 0.2:
        out.append(Notice(f"{human(facts['outside_ns'] / facts['device_ns'], 'ratio')} of the device time belongs to no module.", "info"))
    return out


def module_source(captured: CaptureModules) -> Notice:
    """Says where the modules of a trace without any come from."""
    text = (
        f"Work and times are those of {captured.words} of the SOL capture {captured.file}: this trace recorded no modules, "
        "record it with with_stack=True."
    )
    if not captured.alike:
        text += " No sampled iteration is known to have inputs of the same sizes as its steps: this is the last one that was sampled."
    elif captured.alike < captured.steps:
        text += (
            f" That is the work of {human(captured.alike, 'count')} of its {human(captured.steps, 'count')} steps;"
            " of the others none is known."
        )
    return Notice(text, "info" if captured.alike else "warn")


def worded(column: Column, where: str) -> Column:
    """Returns a column of numbers whose definition says where they were counted."""
    return msgspec.structs.replace(column, doc=f"{column.doc} {where}") if column.unit else column
