"""Adds work that a trace cannot name, from the SOL capture next to it.

A replayed CUDA graph, a compiled region and a recording without shapes have device time and no sizes. The SOL capture of the same run
counted the work of a whole iteration by phase. What it counted in a phase beyond what the trace explains there is the work of that
phase's unnamed device time:

    rest[phase] = max(counted[phase] - explained[phase], 0)     matrix FLOP, recomputed work left out

It becomes one call per step and phase, in the place of the calls without a model: no bytes, its compute time as the limit, marked
estimated. A step takes the work of the nearest sampled iteration whose inputs had the same sizes; where the trace explains 98 % of it,
nothing changes, and the rests of a step are never more than what is missing in the whole step.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import COMPUTATION, classes
from tb_sol_plugin.metrics.time.kernel_names import in_tf32
from tb_sol_plugin.metrics.trees.label_times import label_paths, phase_nodes
from tb_sol_plugin.metrics.trees.phases import device_owners, phase_tree
from tb_sol_plugin.metrics.work.costs import DIRECTIONS
from tb_sol_plugin.metrics.work.counted import COLLECTIVE, ledger_costs
from tb_sol_plugin.metrics.work.inferred import stacked
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask

COUNTED: Final = "(work counted by the SOL capture)"
"""Name of a call that stands for the unnamed work of a phase."""
EXPLAINED: Final = 0.98
"""Part of the counted work from which a trace explains it all; the same of a phase."""
NO_HOME: Final = -1
SPEED: Final = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp8_e5m2", "fp8_e4m3", "fp4", "fp4_e2m1")
"""Types from the slowest to the fastest: work of several takes the limit of the fastest, so that it stays a limit."""
MAIN: Final = 0.99
"""Part of the work from which one type stands for all."""


class Step(NamedTuple):
    """A step of the trace, and what the SOL capture counted in an iteration of the same work. flop: by home (a phase node or NO_HOME).

    explained: matrix FLOP that the trace itself explains in that step. again: of the work that it does not, the part that is done again.
    """

    row: int
    iteration: int
    flop: dict[int, float]
    explained: dict[int, float]
    again: dict[int, float]

    @property
    def counted(self) -> float:
        return sum(self.flop.values())

    @property
    def missing(self) -> float:
        """Matrix FLOP of the step that the trace does not explain; 0 where it explains nearly all."""
        known = sum(self.explained.values())
        return self.counted - known if known < EXPLAINED * self.counted else 0.0


class Match(Struct, frozen=True):
    """The steps of a trace that were matched with counted iterations.

    steps: those of the trace with an iteration of the same work. placed: FLOP given to unnamed device time, over all steps.
    """

    steps: tuple[Step, ...]
    placed: float


class Joined(NamedTuple):
    """The calls of a trace with those that stand for its unnamed work.

    ops: rows of `Work.ops`, owner: per device row its row there. replaced: (host row, row in ops) of calls that one row stands for.

    match: None where no step has an iteration of its own work.
    """

    ops: pd.DataFrame
    owner: npt.NDArray[np.int32]
    replaced: tuple[Ints, Ints]
    match: Match | None


def with_counted(capture: Capture, ops: pd.DataFrame, owner: npt.NDArray[np.int32], *, by_host: bool) -> Joined:
    """Returns the calls of a trace with those that stand for its unnamed work. ops: rows of `Work.ops`, owner: their device rows."""
    none = np.zeros(0, np.int64)
    pairs = iterations_of(capture)
    if not pairs:
        return Joined(ops, owner, (none, none), None)
    node = _nodes(capture, ops, owner)
    home = _homes(capture)
    steps = [_step(capture, ops, home[node], row, number) for row, number in pairs.items()]
    rows: list[dict[str, object]] = []
    of_op = np.full(len(ops), -1, np.int64)
    of_event = np.full(len(owner), -1, np.int64)
    free = _unnamed_events(capture, ops, owner)
    where = home[device_owners(capture).node] if len(owner) else none
    unknown = (~(ops["modeled"] | ops["link"] | ops["collective"] | ops["inferred"])).to_numpy()
    placed = 0.0
    for step in steps:
        if not step.missing:
            continue
        rest = {h: f - step.explained.get(h, 0.0) for h, f in step.flop.items()}
        rest = {h: f for h, f in rest.items() if f > (1 - EXPLAINED) * step.flop[h]}
        scale = min(1.0, step.missing / sum(rest.values())) if rest else 0.0
        for place, flop in rest.items():
            calls = np.flatnonzero(unknown & (ops["step"].to_numpy() == step.row) & (home[node] == place))
            events = np.flatnonzero(free & (where == place) & (capture.device["step"].to_numpy() == step.row)) if len(owner) else none
            event_rows = np.concatenate((events, np.flatnonzero(np.isin(owner, calls)))) if len(owner) else none
            time = _time(capture, ops, calls, event_rows, by_host=by_host)
            if not scale or not time.union:
                continue
            of_op[calls], of_event[event_rows] = len(rows), len(rows)
            placed += flop * scale
            again = min(step.again.get(place, 0.0), flop) * scale
            rows.append(_row(capture, step, place, flop * scale, again, time, event_rows))
    match = Match(tuple(steps), placed)
    if not rows:
        return Joined(ops, owner, (none, none), match)
    kept = of_op < 0
    number = np.cumsum(kept) - 1
    size = int(kept.sum())
    moved = np.where(of_event >= 0, size + of_event, np.where(owner >= 0, number[owner] if len(ops) else owner, -1))
    gone = np.flatnonzero(~kept & (ops["host"].to_numpy() >= 0))
    added = pd.DataFrame(rows).reindex(columns=ops.columns)
    return Joined(
        stacked(ops[kept].reset_index(drop=True), added),
        moved.astype(np.int32),
        (ops["host"].to_numpy()[gone].astype(np.int64), size + of_op[gone]),
        match,
    )


def iterations_of(capture: Capture) -> dict[int, int]:
    """Returns per complete step of the trace (row) the sampled iteration that does the same work.

    Of the same signature as the iteration of the step's number; where the capture has none of that number, or not its signature, any,
    if all sampled iterations have one signature. Of several the nearest by number, the first of the recording only where there is no other.
    """

    def make() -> dict[int, int]:
        table, ledger = capture.tables["iterations"], capture.tables["ledger"]
        number = table["number"].to_numpy()
        signature, named = arrays.codes(table["signature"]), arrays.where(table["signature"], bool)
        sampled = np.isin(number, np.unique(ledger["iteration"].to_numpy()))
        later = sampled & (number > (number.min() if len(number) else 0))
        sampled = later if later.any() else sampled
        out: dict[int, int] = {}
        steps = capture.steps
        for row in np.flatnonzero(steps["complete"].to_numpy() & (steps["number"].to_numpy() >= 0)).tolist():
            own = int(steps["number"].iloc[row])
            here = np.flatnonzero(number == own)
            if len(here) and named[here[-1]]:
                alike = sampled & (signature == signature[here[-1]])
            else:
                alike = sampled if len(np.unique(signature[sampled])) == 1 and named[sampled].all() else np.zeros(len(number), bool)
            if alike.any():
                near = number[alike]
                out[row] = int(near[np.argmin(np.abs(near - own))])
        return out

    return memo(capture, ("joined.iterations",), make)


# -- phases ---------------------------------------------------------------------------------------------------


def _nodes(capture: Capture, ops: pd.DataFrame, owner: npt.NDArray[np.int32]) -> Ints:
    """Returns the phase node per call: of its first device event, else of the range around it; -1 outside every phase."""
    tree = phase_tree(capture)
    first = np.full(len(ops), -1, np.int64)
    rows = np.flatnonzero(owner >= 0)[::-1]
    if len(rows):
        first[owner[rows]] = device_owners(capture).node[rows]
    around, _ = at.annotation_around(capture, ops["host"].to_numpy())
    by_host = np.where(around >= 0, tree.node[np.maximum(around, 0)], -1) if len(tree.node) else np.full(len(ops), -1)
    return np.where(first >= 0, first, by_host).astype(np.int64)


def _homes(capture: Capture) -> Ints:
    """Returns per phase node, and once more for -1, the innermost phase around it that the capture has too; NO_HOME where there is none."""
    tree = phase_tree(capture)
    own = set(phase_nodes(capture).tolist()) - {-1}
    out = np.full(len(tree.name) + 1, NO_HOME, np.int64)
    for node, up in enumerate(tree.parent.tolist()):
        out[node] = node if node in own else out[up] if up >= 0 else NO_HOME
    return out


def _counted_by_home(capture: Capture, iteration: int, values: Floats) -> dict[int, float]:
    """Returns FLOP of an iteration by the phase of the trace that holds it. values: of one call per row of the ledger."""
    found: dict[int, float] = {}
    rows = _work_rows(capture, iteration)
    flop = np.nan_to_num(values[rows]) * capture.tables["ledger"]["count"].to_numpy()[rows]
    place = _label_homes(capture)[capture.tables["ledger"]["phase"].to_numpy()[rows]]
    for home, value in zip(place.tolist(), flop.tolist(), strict=True):
        found[home] = found.get(home, 0.0) + value
    return {home: value for home, value in found.items() if value > 0}


def _work_rows(capture: Capture, iteration: int) -> Ints:
    """Returns rows of the ledger of an iteration, recomputed work and communication left out."""
    ledger = capture.tables["ledger"]
    apart = ledger["recompute"].to_numpy(dtype=bool) | arrays.where(ledger["name"], lambda name: COLLECTIVE.match(name) is not None)
    return np.flatnonzero((ledger["iteration"].to_numpy() == iteration) & ~apart)


def _label_homes(capture: Capture) -> Ints:
    """Returns per label, and once more for -1, the phase node of the innermost phase that the trace has too.

    NO_HOME where there is none.
    """
    node, parent = phase_nodes(capture), capture.tables["labels"]["parent"].to_numpy()
    out = np.full(len(node) + 1, NO_HOME, np.int64)
    for label, path in enumerate(label_paths(capture)):
        out[label] = node[label] if node[label] >= 0 or not path else out[parent[label]]
    return out


def _step(capture: Capture, ops: pd.DataFrame, home: Ints, row: int, number: int) -> Step:
    use = (ops["step"].to_numpy() == row) & ops["modeled"].to_numpy() & ~ops["recompute"].to_numpy()
    flop = np.where(use, np.nan_to_num(ops["flop"].to_numpy(dtype=np.float64)), 0.0)
    explained = {int(h): float(flop[home == h].sum()) for h in np.unique(home[flop > 0]).tolist()}
    costs, known = ledger_costs(capture), np.where(use, ops["flop_again"].to_numpy(dtype=np.float64), 0.0)
    again = {h: f - float(known[home == h].sum()) for h, f in _counted_by_home(capture, number, costs.flop_again).items()}
    counted = _counted_by_home(capture, number, costs.flop)
    return Step(row, number, counted, explained, {home: max(value, 0.0) for home, value in again.items()})


# -- unnamed time -----------------------------------------------------------------------------------------------


class _Time(NamedTuple):
    union: int
    total: int
    events: int


def _unnamed_events(capture: Capture, ops: pd.DataFrame, owner: npt.NDArray[np.int32]) -> Mask:
    """Returns device rows of computation that no call owns."""
    return np.asarray((owner < 0) & (classes(capture) == COMPUTATION), np.bool_) if len(owner) else np.zeros(0, bool)


def _time(capture: Capture, ops: pd.DataFrame, calls: Ints, events: Ints, *, by_host: bool) -> _Time:
    if by_host:
        spent = round(float(ops["measured_ns"].to_numpy(dtype=np.float64)[calls].sum()))
        return _Time(spent, 0, 0)
    start = capture.device["start_ns"].to_numpy()[events]
    duration = capture.device["duration_ns"].to_numpy()[events].clip(min=0)
    _, unit = np.unique(capture.device["device"].to_numpy()[events], return_inverse=True)
    united = at.union_by(unit.reshape(-1), start, start + duration, int(unit.max(initial=-1)) + 1)
    return _Time(int(united.sum()), int(duration.sum()), len(events))


def _row(capture: Capture, step: Step, home: int, flop: float, again: float, time: _Time, events: Ints) -> dict[str, object]:
    dtype, direction, several = _main_types(capture, step.iteration, home)
    names = arrays.pick(capture.device["name"], events).tolist() if len(events) else []
    if dtype == "fp32" and any(in_tf32(str(name)) for name in names):
        dtype = "tf32"
    types = f"; types {several}, at the rate of {dtype}" if several else ""
    return {
        "host": -1, "name": COUNTED, "kind": "other", "direction": direction, "dtype": dtype, "shapes": "", "shapes_json": "",
        "flop": float(round(flop)), "flop_again": float(round(again)), "flop_vector": np.nan, "flop_dense": np.nan, "bytes": np.nan,
        "measured_ns": time.union, "device_sum_ns": time.total, "device_events": time.events, "module": -1,
        "annotation": _range_of(capture, step.row, home),
        "step": step.row, "estimated": True, "modeled": True, "link": False, "link_bytes": np.nan, "collective": False,
        "recompute": False, "inferred": False, "layer": "",
        "reason": f"matrix work that the SOL capture counted in iteration {step.iteration} and this trace does not name{types}",
    }  # fmt: skip


def _main_types(capture: Capture, iteration: int, home: int) -> tuple[str, str, str]:
    """Returns (type, direction, types in words where there are several) of the counted work of a phase."""
    rows = _work_rows(capture, iteration)
    rows = rows[_label_homes(capture)[capture.tables["ledger"]["phase"].to_numpy()[rows]] == home]
    costs, ledger = ledger_costs(capture), capture.tables["ledger"]
    flop = np.nan_to_num(costs.flop[rows]) * ledger["count"].to_numpy()[rows]
    by_type = pd.Series(flop).groupby(costs.dtype[rows]).sum().sort_values(ascending=False)
    by_type = by_type[by_type > (1 - MAIN) * flop.sum()]
    known = [str(t) for t in by_type.index]
    fastest = max(known, key=lambda t: SPEED.index(t) if t in SPEED else -1)
    backward = float(flop[ledger["direction"].to_numpy()[rows] > 0].sum())
    return fastest, DIRECTIONS[int(2 * backward > flop.sum())], " and ".join(known) if len(known) > 1 else ""


def _range_of(capture: Capture, step: int, home: int) -> int:
    """Returns the host row of the first range of a phase in a step, of the step's own where the work is in no phase."""
    own = int(capture.steps["host"].iloc[step])
    if home == NO_HOME:
        return own
    h, tree = at.host(capture), phase_tree(capture)
    low, high = int(capture.steps["host_start_ns"].iloc[step]), int(capture.steps["host_end_ns"].iloc[step])
    inside = (h.start >= low) & (h.start < high)
    rows = np.flatnonzero((tree.node == home) & inside)
    if not len(rows):  # a level that only names make
        rows = np.flatnonzero((tree.node > home) & (tree.node < tree.end[home]) & inside)
    return int(rows[np.argmin(h.start[rows])]) if len(rows) else own
