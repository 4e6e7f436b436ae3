"""Compares the iterations of a training loop: how long each took, what work it did, how far from its limit it ran.

The recorder times every iteration and counts the work of a few (the sampled ones). An iteration that was not sampled is credited with the
work of the last sampled iteration before it whose inputs had the same sizes (the same `signature`); where there is none its work is
unknown. Sums come before ratios.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.cost.roofline import limit, ratio
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.format import STARTING
from tb_sol_plugin.metrics import memo_under
from tb_sol_plugin.metrics.work.counted import COLLECTIVE, LedgerCosts, ledger_costs
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, series
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask

WORK: Final = ("flop", "recompute_flop", "flop_vector", "bytes", "sol_ns", "matrix_ns", "matrix_again_ns", "ops", "unknown")
"""Columns of work: what an iteration that was not sampled takes from a sampled one.

flop: matrix, without the work that is done again (recompute_flop: checkpoints, the scores of a fused attention's backward). matrix_ns:
time of that work at the matrix peaks of its types, matrix_again_ns with all of it.
"""
NO_PHASE: Final = "(no phase)"


@dataclass(frozen=True)
class Iterations:
    """The iterations of a training loop against their limits.

    frame: one row per iteration in order of time.

    id (unique name), number, start_ns, since_ns (since the start of the first), host_ns, device_ns (NaN not timed), time_ns (the device's
    where timed, else the host's), sampled, first (one-time costs: the first of the recording and of each restart), restart (its number
    does not follow), missing (iterations left out before it), evaluation_ns (of a sampled one: time in which it evaluated the model),
    signature, batch, tokens (NaN unknown), overhead_ns (own work of the recorder in it, and after it up to the next), setup_ns (of a first
    one: own work before it), WORK (NaN unknown), age (iterations since the work was counted; 0 for a sampled one, -1 unknown), eager
    (counted by running compiled code eagerly: no measure), life (restarts so far), segment (restarts and gaps so far: what follows each
    other has one),
    sol_ratio, mfu, hfu, bandwidth_utilisation, tokens_per_s, samples_per_s, traced (a profiler trace recorded it too).

    recorded_limits: sol_ns is as the recorder worked it out, for want of limits here.
    """

    frame: pd.DataFrame
    recorded_limits: bool


def iterations(capture: Capture, spec: DeviceSpec | None) -> Iterations:
    """Returns all iterations of a capture against the limits of `spec`; shared, not to be changed."""
    return memo_under(capture, spec, ("iterations",), lambda: _iterations(capture, spec))


def _iterations(capture: Capture, spec: DeviceSpec | None) -> Iterations:
    table = capture.tables["iterations"]
    order = np.argsort(table["start_ns"].to_numpy(), kind="stable")
    table = table.iloc[order].reset_index(drop=True)
    number = table["number"].to_numpy()
    before = np.concatenate(([number[0] - 1], number[:-1])) if len(number) else number
    restart = number <= before
    first = restart.copy()
    first[:1] = True
    host, device = table["duration_ns"].to_numpy(dtype=np.float64), table["device_ns"].to_numpy(dtype=np.float64)
    sampled, before_ns = table["sampled"].to_numpy(), table["before_ns"].to_numpy()
    frame = pd.DataFrame(
        {
            "id": _ids(number),
            "number": number,
            "start_ns": table["start_ns"].to_numpy(),
            "since_ns": _since(capture, table),
            "host_ns": host,
            "device_ns": device,
            "time_ns": np.where(np.isfinite(device), device, host),
            "sampled": sampled,
            "first": first,
            "restart": restart,
            "missing": np.where(restart, 0, number - before - 1),
            "life": np.cumsum(restart),
            "segment": np.cumsum(restart | (number > before + 1)),
            "evaluation_ns": np.maximum(table["evaluation_ns"].to_numpy(), 0),
            "signature": table["signature"],
            "batch": _known(table["batch"]),
            "tokens": _known(table["tokens"]),
            "overhead_ns": table["overhead_ns"].to_numpy() + np.append(np.where(first, 0, before_ns)[1:], 0)[: len(first)],
            "setup_ns": np.where(first, before_ns, 0),
        }
    )
    work, recorded, eager = _work(capture, frame, table, spec)
    evaluates = table["evaluation_ns"].to_numpy() > 0
    counted = sampled & ~evaluates if (sampled & ~evaluates).any() else sampled  # what an iteration evaluates is the work of no other
    source = last_alike(counted, np.where(arrays.where(table["signature"], bool), arrays.codes(table["signature"]), -1))
    known = source >= 0
    for name in WORK:
        values = work[name][np.maximum(source, 0)]
        frame[name] = np.where(known, values, np.nan)
    frame["age"] = np.where(known, np.arange(len(frame)) - source, -1)
    frame["eager"] = eager
    return Iterations(_with_rates(frame, spec).assign(traced=_traced(capture, frame)), recorded)


def _since(capture: Capture, table: pd.DataFrame) -> Ints:
    """Returns ns since the first iteration began, less the time of the recorder itself.

    Next to a trace, times are those of a clock that does not stand still for it.
    """
    since = table["start_ns"].to_numpy() - (int(table["start_ns"].iloc[0]) if len(table) else 0)
    if capture.facts.source != "sol_capture" and len(table):
        stood = np.cumsum(table["before_ns"].to_numpy() + np.append(0, table["overhead_ns"].to_numpy()[:-1]))
        since = since - (stood - stood[0])
    return np.asarray(since, np.int64)


def _ids(number: Ints) -> list[str]:
    """Returns names of iterations; one that comes again after a restart is `12 (2)`."""
    again = pd.Series(number).groupby(number).cumcount().to_numpy()
    return [str(n) if k == 0 else f"{n} ({k + 1})" for n, k in zip(number.tolist(), again.tolist(), strict=True)]


def _known(column: pd.Series) -> Floats:
    values = column.to_numpy(dtype=np.float64)
    return np.where(values < 0, np.nan, values)


def last_alike(sampled: Mask, signature: Ints) -> Ints:
    """Returns per iteration the last sampled one at or before it with its signature; -1 where there is none.

    Signature -1 is like no other.
    """
    at = np.arange(len(sampled))
    out = np.where(sampled, at, -1)
    for code in np.unique(signature[sampled & (signature >= 0)]).tolist():
        alike = np.flatnonzero(signature == code)
        out[alike] = np.maximum.accumulate(np.where(sampled[alike], at[alike], -1))
    return out


# -- work -------------------------------------------------------------------------------------------------------------


def _work(capture: Capture, frame: pd.DataFrame, table: pd.DataFrame, spec: DeviceSpec | None) -> tuple[dict[str, Floats], bool, Mask]:
    """Returns (WORK per iteration, whether limits are the recorder's, whether it ran eagerly in the place of compiled code)."""
    size = len(frame)
    ledger = capture.tables["ledger"]
    row = rows_of(frame, ledger["iteration"].to_numpy(), _step_starts(capture, ledger))
    count = ledger["count"].to_numpy(dtype=np.float64)
    known = ledger_costs(capture)
    flop, vector, data = known.flop, known.flop_vector, known.bytes
    apart = arrays.where(ledger["name"], lambda name: COLLECTIVE.match(name) is not None)
    repeats = np.where(np.isfinite(flop), known.flop_again, np.nan)
    matrix, sol = _times(known, apart, spec)

    def total(values: Floats, use: Mask | None = None) -> Floats:
        """Sum over the calls of each iteration that have a value; NaN where none has."""
        good = (row >= 0) & np.isfinite(values) & (True if use is None else use)
        out = np.bincount(row[good], (values * count)[good], minlength=size).astype(np.float64)
        out[np.bincount(row[good], minlength=size) == 0] = np.nan
        return out

    has = np.bincount(row[row >= 0], minlength=size) > 0
    reported = {n: table[n].to_numpy(dtype=np.float64) for n in ("flop", "flop_vector", "bytes", "sol_ns", "ops", "unknown")}
    apart_again = bool((known.flop_again > 0).any())  # what was stated includes work done again, and not how much
    values = {
        "flop": np.where(has, total(flop - repeats), np.nan if apart_again else reported["flop"]),
        "recompute_flop": np.where(has, np.nan_to_num(total(repeats)), np.nan),
        "flop_vector": np.where(has, total(vector), reported["flop_vector"]),
        "bytes": np.where(has, total(data, ~apart), reported["bytes"]),
        "sol_ns": total(sol) if spec is not None else reported["sol_ns"],
        "matrix_ns": total(matrix * (1 - known.flop_again / np.where(flop > 0, flop, 1))),
        "matrix_again_ns": total(matrix),
        "ops": np.where(has, np.nan_to_num(total(np.ones(len(ledger)))), _or_nan(reported["ops"])),
        "unknown": np.where(has, np.nan_to_num(total(np.ones(len(ledger)), ~known.usable & ~apart)), _or_nan(reported["unknown"])),
    }
    eager = np.bincount(row[(row >= 0) & ledger["compiled"].to_numpy()], minlength=size) > 0
    return values, spec is None and bool(np.isfinite(reported["sol_ns"]).any()), eager


def _times(known: LedgerCosts, apart: Mask, spec: DeviceSpec | None) -> tuple[Floats, Floats]:
    """Returns (ns at the matrix peak, least ns) of one call per row of the ledger; NaN without limits. apart: rows bound by a link."""
    if spec is None:
        nothing = np.full(len(apart), np.nan)
        return nothing, nothing
    code, names = pd.factorize(known.dtype)
    peak = np.array([*(spec.matrix_peak(str(n)) or np.nan for n in names), np.nan])[code]
    vector_peak = np.array([*(spec.vector_peak(str(n)) or np.nan for n in names), spec.vector_peak("") or np.nan])[code]
    sol, _ = limit(known.flop, known.flop_vector, known.bytes, peak, vector_peak, spec.memory_bandwidth or np.nan)
    return np.where(known.flop > 0, known.flop / peak * 1e9, np.nan), np.where(known.usable & ~apart, sol, np.nan)


def _or_nan(values: Floats) -> Floats:
    return np.where(values < 0, np.nan, values)


def _step_starts(capture: Capture, table: pd.DataFrame) -> Ints:
    """Returns the start of the step of each ledger row, -1 where it has none."""
    starts = np.append(capture.steps["host_start_ns"].to_numpy(), -1)
    return np.asarray(starts[table["step"].to_numpy()], np.int64)


def rows_of(frame: pd.DataFrame, number: Ints, start: Ints) -> Ints:
    """Returns the row of `frame` per record of an iteration: the one of that number whose time holds `start`, else the last of that number.

    -1 where there is none.
    """
    starts = frame["start_ns"].to_numpy()
    if not len(starts):
        return np.full(len(number), -1, np.int64)
    by_time = np.clip(np.searchsorted(starts, start, side="right") - 1, 0, None)
    last = frame.drop_duplicates("number", keep="last")
    place = pd.Index(last["number"]).get_indexer(pd.Index(number))
    by_number = np.where(place >= 0, last.index.to_numpy()[place], -1)
    return np.where(frame["number"].to_numpy()[by_time] == number, by_time, by_number).astype(np.int64)


def _with_rates(frame: pd.DataFrame, spec: DeviceSpec | None) -> pd.DataFrame:
    time = np.where(frame["eager"], np.nan, frame["time_ns"])
    bandwidth = spec.memory_bandwidth if spec is not None and spec.memory_bandwidth else np.nan
    return frame.assign(
        sol_ratio=ratio(frame["sol_ns"].to_numpy(), time),
        mfu=ratio(frame["matrix_ns"].to_numpy(), time),
        hfu=ratio(frame["matrix_again_ns"].to_numpy(), time),
        bandwidth_utilisation=ratio(frame["bytes"].to_numpy() / bandwidth * 1e9, time),
        tokens_per_s=ratio(frame["tokens"].to_numpy() * 1e9, frame["time_ns"].to_numpy()),
        samples_per_s=ratio(frame["batch"].to_numpy() * 1e9, frame["time_ns"].to_numpy()),
    )


def _traced(capture: Capture, frame: pd.DataFrame) -> Mask:
    """Returns iterations that a profiler trace recorded too.

    These are the ones that lie in its steps for more than half of their time, else by their number.
    """
    out = np.zeros(len(frame), bool)
    if capture.facts.source == "sol_capture" or capture.facts.pseudo_step or not len(frame):
        return out
    start = frame["start_ns"].to_numpy()
    end = start + frame["host_ns"].to_numpy()
    steps = capture.steps
    for low, high in zip(steps["host_start_ns"].tolist(), steps["host_end_ns"].tolist(), strict=True):
        inside = np.minimum(end, high) - np.maximum(start, low)
        out |= inside > 0.5 * (end - start)
    return out if out.any() else frame["number"].isin(steps["number"]).to_numpy()


# -- the recorder itself ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecorderOverhead:
    """Measured work of the recorder over all time that passed, it included; None where there is nothing to put it over.

    share: all iterations but first ones. sampled, between: of those that were sampled, and that were not. once_ns: setting up, and what
    belongs to first iterations (the costs of signatures that are new); None where the selection has no first iteration among others.
    """

    share: float | None
    sampled: float | None
    between: float | None
    once_ns: int | None


def recorder_overhead(frame: pd.DataFrame) -> RecorderOverhead:
    """Returns what the recorder itself took in rows of `Iterations.frame`."""
    first = frame["first"].to_numpy()
    later = ~first if not first.all() else first
    sampled, own, host = frame["sampled"].to_numpy(), frame["overhead_ns"].to_numpy(), frame["host_ns"].to_numpy()

    def share(rows: Mask) -> float | None:
        whole = float(own[rows].sum() + host[rows].sum())
        return float(own[rows].sum()) / whole if whole > 0 else None

    once = int((own[first] + frame["setup_ns"].to_numpy()[first]).sum()) if first.any() and not first.all() else None
    return RecorderOverhead(share(later), share(later & sampled), share(later & ~sampled), once)


# -- phases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PhaseTimes:
    """Time of each outermost phase in each iteration.

    names: longest first. times: [phase, iteration] in ns. on_device: by events on the device's stream.
    """

    names: tuple[str, ...]
    times: Floats
    on_device: bool


def phase_times(capture: Capture, frame: pd.DataFrame) -> PhaseTimes:
    """Returns the outermost phases of the rows of `frame` (part of `Iterations.frame`); a phase that an iteration does not have takes 0."""
    labels, ranges = capture.tables["labels"], capture.tables["label_times"]
    top = (labels["what"] == "phase").to_numpy() & (labels["parent"].to_numpy() < 0)
    label = ranges["label"].to_numpy()
    use = np.flatnonzero(top[label]) if len(label) else np.zeros(0, np.int64)
    whole = frame.reset_index(drop=True)
    row = rows_of(whole, ranges["iteration"].to_numpy()[use], ranges["start_ns"].to_numpy()[use])
    use, row = use[row >= 0], row[row >= 0]
    device = ranges["device_ns"].to_numpy(dtype=np.float64)[use]
    on_device = bool(len(use)) and bool(np.isfinite(device).all()) and bool(np.isfinite(whole["device_ns"]).all())
    spent = device if on_device else ranges["duration_ns"].to_numpy(dtype=np.float64)[use]
    code, names = pd.factorize(labels["name"].astype(object).to_numpy()[label[use]])
    size = len(whole)
    times = np.zeros((len(names), size))
    np.add.at(times, (code, row), spent)
    order = np.argsort(-times.sum(axis=1), kind="stable")
    return PhaseTimes(tuple(str(names[i]) for i in order), times[order], on_device)


# -- over time --------------------------------------------------------------------------------------------------------


STRETCH: Final = 100
"""Iterations in which a change of step time is stated."""


@dataclass(frozen=True)
class Trend:
    """How step time changes over the iterations that count (`counted`).

    slope: ns per iteration. change: the first lasting rise, or without one the first lasting fall, where levels describe the times better
    than a line; growing: a line does, and its slope is beyond chance and large enough to report. stable: neither, and the ends of the
    slope's interval leave no room for a change large enough to report. level_ns: median of all.
    """

    level_ns: float
    slope: series.Slope | None
    change: series.Change | None
    growing: bool
    stable: bool
    rows: Ints

    @property
    def stretch(self) -> int:
        """Iterations that a trend is stated over: 100, or all there are."""
        return int(min(STRETCH, max(self.rows[-1] - self.rows[0], 1))) if len(self.rows) else STRETCH

    def over_stretch(self, ns_per_iteration: float) -> float:
        """Returns the change of a slope over the stretch, never more than the whole step time."""
        return max(ns_per_iteration * self.stretch, -self.level_ns)


def counted(frame: pd.DataFrame) -> Mask:
    """Returns rows that medians are over: iterations that were not sampled; where all were, the sampled ones.

    First ones only where there are no others.
    """
    for mask in (~frame["sampled"] & ~frame["first"], ~frame["first"], frame["first"]):
        if mask.any():
            return mask.to_numpy()
    return np.zeros(len(frame), bool)


def startup(frame: pd.DataFrame) -> tuple[int, float] | None:
    """Returns (ns, share of the whole) that the first iterations of `Iterations.frame` take beyond usual ones; None without others."""
    host = frame["host_ns"].to_numpy()
    usual = counted(frame)
    later = usual & (np.arange(len(frame)) >= STARTING)
    usual = later if later.any() else usual & ~frame["first"].to_numpy()
    if not usual.any() or not host.sum() > 0:
        return None
    beyond = float(np.maximum(host[:STARTING] - np.median(host[usual]), 0).sum())
    return round(beyond), beyond / float(host.sum())


def alike(frame: pd.DataFrame) -> Ints:
    """Returns per iteration the number of its kind: inputs of one signature do the same work; without a recorded one, one batch size."""
    batch = np.where(arrays.where(frame["signature"], bool), 0.0, frame["batch"].to_numpy())
    kinds = pd.DataFrame({"signature": frame["signature"].cat.codes.to_numpy(), "batch": batch})
    return np.asarray(kinds.groupby(["signature", "batch"], dropna=False, sort=False).ngroup(), np.int64)


def trend(frame: pd.DataFrame) -> Trend:
    """Finds the trend of step time; times of inputs of several sizes (`alike`) are put on one scale by the median of each."""
    rows = np.flatnonzero(counted(frame))
    y = frame["time_ns"].to_numpy()[rows]
    level = float(np.median(y)) if len(y) else np.nan
    scaled = y * level / pd.Series(y).groupby(alike(frame)[rows]).transform("median").to_numpy() if len(y) else y
    scaled = np.where(np.isfinite(scaled), scaled, y)
    x = np.arange(len(frame), dtype=np.float64)[rows]
    found, steps = series.slope(x, scaled), series.changes(scaled)
    span = float(x[-1] - x[0]) if len(x) > 1 else 0.0
    large = found is not None and found.sure and abs(found.value) * span > series.WORTH * level
    line = found is not None and large and (not steps or series.drifts(x, scaled, found, steps))
    change = next((s for s in steps if s.after > s.before), steps[0] if steps else None) if not line else None
    room = max(abs(found.low), abs(found.high)) * span if found is not None else np.inf
    stable = change is None and not line and room <= 2 * series.WORTH * level
    return Trend(level, found, change, line, stable, rows.astype(np.int64))


def thinned(values: Floats, room: int) -> Ints:
    """Returns the rows to draw of a long series: in each of `room` / 2 equal stretches the smallest and the largest, and the ends.

    The rows are sorted and distinct.
    """
    size = len(values)
    if size <= room:
        return np.arange(size)
    edges = np.linspace(0, size, max(room // 2, 1) + 1).astype(np.int64)
    starts = edges[:-1]
    group = np.repeat(np.arange(len(starts)), np.diff(edges))
    order = np.lexsort((np.nan_to_num(values, nan=-np.inf), group))
    return np.unique(np.concatenate(([0, size - 1], order[starts], order[edges[1:] - 1])))
