"""Rows of the module tables that are no module: what a module launches itself, and device work of no module, by the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.metrics.report.longest import longest
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.trees.label_times import module_calls, module_device_ns
from tb_sol_plugin.metrics.trees.module_tree import labels_alone, module_tree
from tb_sol_plugin.metrics.trees.modules import OUTSIDE as NO_NODE
from tb_sol_plugin.metrics.trees.modules import OWN, CaptureModules, Columns, Direction, MergedRow, ModuleWork
from tb_sol_plugin.metrics.work.ownership import recomputed
from tb_sol_plugin.metrics.work.sums import VALUES, ratios_of, summed
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Link, Notice
from tb_sol_plugin.tables import tree
from tb_sol_plugin.tables.arrays import Mask, Places, whole_or_none
from tb_sol_plugin.units import human

OUTSIDE: Final = "(outside every module)"
ACCUMULATION: Final = "(gradient accumulation)"
_WHOLE: Final = ("flop", "backward_flop", "operator_ns", "bytes", "sol_ns", "measured_ns", "wasted_ns")


def with_ratios(rows: Columns) -> Columns:
    """Returns rows (VALUES and time_ns) with `ratios_of` their sums and modelled_share; sums as whole numbers, None unknown."""
    sums = {name: rows[name].astype(np.float64, copy=False) for name in VALUES}
    more = ratios_of(sums)
    more["modelled_share"] = ratio(np.nan_to_num(sums["modelled_sum_ns"]), rows["time_ns"].astype(np.float64))
    every = sums | more | {"operator_ns": sums["owned_sum_ns"]}
    return rows | more | {name: whole_or_none(every[name]) for name in _WHOLE}


def with_label_times(
    capture: Capture, part: Scope, nodes: Columns, rows: list[MergedRow], table: Columns, direction: Direction
) -> Columns:
    """Returns rows of a SOL capture with the forward device time that was measured around modules; unknown where one of a row was not.

    Where modules are known by labels alone, calls are those that were timed, and the host has no time.
    Where no call has a time of its own, the forward pass also gets its efficiency from it.
    """
    if labels_alone(capture):
        calls = module_calls(capture, part)[nodes["node"]]
        count = [calls[list(row.nodes)].sum() for row in rows]
        nothing = np.full(len(rows), None, object)
        table = table | {
            "calls": np.array([int(n) if n == n else None for n in count], object), "host_total_ns": nothing, "host_self_ns": nothing,
        }  # fmt: skip
    each = module_device_ns(capture, part)[nodes["node"]]
    time = np.array([each[list(row.nodes)].sum() for row in rows], np.float64)
    if not np.isfinite(time).any():
        return table
    shown = whole_or_none(time)
    out = table | {"device_total_ns": shown}
    if direction == "forward" and not known(table["measured_ns"]):
        sol = table["sol_ns"].astype(np.float64)
        out |= {"time_ns": shown, "efficiency": ratio(sol, time), "wasted_ns": whole_or_none(time - sol)}
    return out


def known(values: npt.NDArray[Any]) -> bool:
    """Whether any value of a column is known."""
    return bool(pd.notna(values).any())


def longest_calls(capture: Capture, part: Scope, nodes: Columns, rows: list[MergedRow]) -> Columns:
    """Returns the columns of LONGEST of rows of `module_times`, merged or not: the longest of the calls of all nodes of a row."""
    tree_ = module_tree(capture)
    h = at.host(capture)
    of_node = np.full(len(tree_.name) + 1, -1, np.int64)
    numbers = nodes["node"]
    of_node[numbers[[node for row in rows for node in row.nodes]]] = np.repeat(np.arange(len(rows)), [len(row.nodes) for row in rows])
    calls = np.flatnonzero(part.host & (tree_.node >= 0)) if len(tree_.node) else np.zeros(0, np.int64)
    found = longest(of_node[tree_.node[calls]], h.start[calls], h.duration[calls], len(rows))
    return {name: values.to_numpy(object, na_value=None) for name, values in found.items()}  # type: ignore[arg-type]


def with_self_rows(
    capture: Capture, work: ModuleWork, nodes: Columns, rows: list[MergedRow], table: Columns, whole: int
) -> Columns:
    """Adds after each row with modules inside a row `self: bmm, softmax` for the work of the module itself, backward work included.

    Its time is the row's less that of the rows inside, its work that of the calls that belong to the module and to none inside.
    """
    if not len(capture.device):
        return table
    time = table["time_ns"].astype(np.int64)
    keys = table["id"].tolist()
    position = {key: i for i, key in enumerate(keys)}
    up = np.array([position.get(p, -1) if p is not None else -1 for p in table["parent"].tolist()], np.int64)
    own = np.maximum(time - at.sum_by(up, time, len(rows)), 0)
    chosen = np.flatnonzero(np.isin(np.arange(len(rows)), up) & (own > 0))
    if not len(chosen):
        return table
    named = _self_names(work, nodes, rows)
    extra = with_ratios({name: table[OWN + name][chosen] for name in VALUES} | {"time_ns": own[chosen]})
    extra |= {name: table[name][chosen] for name in ("class_name", "instances", "calls", "device_self_ns")}
    extra |= {
        "id": np.array([f"{keys[i]}/self" for i in chosen.tolist()], object), "parent": table["id"][chosen],
        "name": np.array([f"self: {named.get(i, 'launched by the module itself')}" for i in chosen.tolist()], object),
        "share": own[chosen] / whole if whole else np.full(len(chosen), np.nan), "device_total_ns": extra["device_self_ns"],
        "backward_device_ns": np.full(len(chosen), None, object),
    }  # fmt: skip
    nothing = np.full(len(chosen), None, object)
    return {name: np.insert(values.astype(object), chosen + 1, extra.get(name, nothing)) for name, values in table.items()}


def _self_names(work: ModuleWork, nodes: Columns, rows: list[MergedRow], most: int = 3) -> dict[int, str]:
    """Returns per row the operators that own most of its own device time, `aten::` left out."""
    row_of_node = np.full(len(work.own["flop"]) + 1, -1, np.int64)
    numbers = nodes["node"]
    row_of_node[numbers[[node for row in rows for node in row.nodes]]] = np.repeat(np.arange(len(rows)), [len(row.nodes) for row in rows])
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


def outside_rows(capture: Capture, part: Scope, work: ModuleWork, direction: Direction, whole: int) -> Columns:
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
        return {}
    reason = np.full(len(owner), -1, np.int64)
    for i, (_, mask) in enumerate(reasons):
        reason[mask] = i
    names = np.array([name for name, _ in reasons], object)
    time = at.sum_by(reason, duration, len(names))
    alone = work.node == NO_NODE
    code = np.where(alone, _reason_of_calls(work, reason)[work.calls.rows], -1)
    code = np.where(alone & (code < 0), 0, code)
    return with_ratios({
        "id": names, "parent": np.full(len(names), None, object), "name": names, "class_name": np.full(len(names), "", object),
        "time_ns": time, "device_total_ns": time, "device_self_ns": time,
        "device_events": at.sum_by(reason, np.ones(len(reason), np.int64), len(names)),
        "share": time / whole if whole else np.full(len(names), np.nan), **summed(work.calls.values, code, len(names)),
    })  # fmt: skip


def _reason_of_calls(work: ModuleWork, reason: np.ndarray) -> np.ndarray:
    """Returns per row of `Work.ops` the reason of its first device event without a module, -1 where it has none."""
    owner = work.calls.done.owner
    out = np.full(len(work.calls.done.ops), -1, np.int64)
    rows = np.flatnonzero((owner >= 0) & (reason >= 0))[::-1]
    out[owner[rows]] = reason[rows]
    return out


def _outside_host(work: ModuleWork) -> Columns:
    """Returns the limits of operators outside every module of a recording without device work, where there are limits.

    Of a SOL capture their work too.
    """
    values = summed(work.calls.values, np.where(work.node == NO_NODE, 0, -1), 1)
    known = ("sol_ns", "flop", "bytes", "owned_sum_ns") if work.calls.done.from_ledger else ("sol_ns",)
    if not any(np.isfinite(values[name]).any() for name in known):
        return {}
    name, nothing = np.array([OUTSIDE], object), np.array([None], object)
    own = {"id": name, "parent": nothing, "name": name, "class_name": np.array([""], object)}
    return with_ratios({**values, **own, "time_ns": np.zeros(1, np.int64)}) | {"time_ns": nothing, "modelled_share": nothing}


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


def node_names(nodes: Columns, names: Sequence[str]) -> list[str]:
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


def headline(capture: Capture, table: Columns, direction: Direction, whole: int) -> str:
    """Names the class whose own work (device self, below it nothing that stands out) is largest, with its efficiency."""
    if not len(table["name"]):
        return "No module was called in this selection."
    if scope.is_capture(capture):
        return _counted(table, direction)
    if not whole:
        top, host = _largest_class(table, table["host_self_ns"])
        return f"`{top}` takes **{human(int(host), 'ns')}** of host time of its own; no device activity was recorded."
    top, own = _largest_class(table, table["device_self_ns"] + table["backward_self_ns"])
    if not own:
        return "No device work was launched inside a module call."
    rows = _outermost(table, top)
    count, time = int(table["instances"][rows].sum()), int(table["time_ns"][rows].sum())
    sol, measured, modeled = (float(np.nansum(table[c][rows].astype(np.float64))) for c in ("sol_ns", "measured_ns", "modelled_sum_ns"))
    efficiency = ""
    if measured > 0 and sol > 0:
        part = f"its modeled part, {human(modeled / time, 'ratio')} of that, " if modeled < 0.95 * time else ""
        efficiency = f"{';' if part else ' and'} {part}runs at **{human(sol / measured, 'ratio')}** of its limit"
    where = f"the {count} `{top}` modules" if count > 1 else f"`{top}`"
    only = f", {direction}," if direction != "both" else ""
    return f"Work in {where}{only} takes **{human(time / whole, 'ratio')}** of the device time{efficiency}."


def _largest_class(table: Columns, values: npt.NDArray[Any]) -> tuple[str, float]:
    """Returns the class with the largest sum of some values, of equal ones the first by name, and that sum."""
    names, code = np.unique(table["class_name"], return_inverse=True)
    total = np.zeros(len(names), values.dtype)
    np.add.at(total, code, values)
    best = int(total.argmax())
    return str(names[best]), total[best]


def _outermost(table: Columns, class_name: str) -> Places:
    """Returns the rows of a class without a row of the same class anywhere above them: the time of one is no part of another's."""
    keys = table["id"].tolist()
    parent = dict(zip(keys, table["parent"].tolist(), strict=True))
    rows = np.flatnonzero(table["class_name"] == class_name)
    same = {keys[row] for row in rows.tolist()}

    def inside(row: str) -> bool:
        above = parent.get(row)
        while isinstance(above, str) and above not in same:
            above = parent.get(above)
        return isinstance(above, str)

    return rows[[not inside(keys[row]) for row in rows.tolist()]]


def _counted(table: Columns, direction: Direction) -> str:
    """Of a SOL capture: the class whose own calls hold most matrix work (most host time where there is none), and its efficiency."""
    top, work = _largest_class(table, np.nan_to_num(table[f"{OWN}flop"]))
    if not work > 0:
        if not known(table["host_self_ns"]):
            return "No matrix work was counted in modules."
        top, host = _largest_class(table, table["host_self_ns"])
        return f"`{top}` takes **{human(int(host), 'ns')}** of host time of its own."
    rows, roots = table["class_name"] == top, pd.isna(table["parent"])
    count = int(table["instances"][rows].sum())
    least, measured = (float(np.nansum(table[f"{OWN}{n}"][rows])) for n in ("timed_sol_ns", "measured_ns"))
    efficiency = f" and runs at **{human(least / measured, 'ratio')}** of its limit" if measured > 0 and least > 0 else ""
    where = f"the {count} `{top}` modules" if count > 1 else f"`{top}`"
    only = f", {direction}," if direction != "both" else ""
    whole = max(float(np.nansum(table["flop"][roots].astype(np.float64))), float(work))
    return f"Work in {where}{only} is **{human(float(work) / whole, 'ratio')}** of the matrix work of all modules{efficiency}."


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
