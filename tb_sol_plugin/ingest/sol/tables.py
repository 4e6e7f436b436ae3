"""Builds the tables of a Capture from the columns of a SOL log.

On the timeline stand the sampled iterations, without the first one of the recording where a later one was sampled too: it carries
one-time costs. Where none was sampled, the latest iterations stand there with their phases alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin import format as F
from tb_sol_plugin.ingest.columns import Interner
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.kineto.decode import FARTHEST
from tb_sol_plugin.ingest.sol.collect import WHATS, Collected
from tb_sol_plugin.ingest.sol.records import Number, Profile, ProfileRow, amount
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import tree
from tb_sol_plugin.tables.arrays import Floats, Ints, Rows

# -- The last record of what the program counted of its own steps to the table PROFILE -------------------------------
# what cannot be is left out, and counted.


MOST_ROWS: Final = 100_000
_MOST: Final = 2.0**53


def profile_table(found: tuple[Profile, int] | None, health: Health) -> pd.DataFrame:
    """Returns rows of the record, each with what the record says of gradients and limits. Empty without a record."""
    if found is None:
        return S.PROFILE.empty()
    record, number = found
    if len(record.rows) > MOST_ROWS:
        health.add("step configurations beyond the limit", len(record.rows) - MOST_ROWS, f"line {number}")
    rows = []
    for row in record.rows[:MOST_ROWS]:
        read = _row(row)
        if read is None:
            health.add("impossible counted steps", 1, f"line {number}: {list(row)}")
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
    """Returns the whole numbers of a row; None if they cannot be: 1 <= nodes <= replicas, a batch, time where there are steps."""
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
    """Returns a count of at least 0; -1 unknown."""
    found = amount(value)
    return int(found) if found < _MOST else -1


def _time(value: Number) -> int:
    found = amount(value)
    return int(found) if found < FARTHEST else -1


def _float(value: Number) -> float:
    found = amount(value, -math.inf)
    return float(found) if math.isfinite(found) else math.nan


LATEST: Final = 50
"""Iterations on the timeline where none was sampled: at most so many of the last, as far as their inputs have one size."""
UNDEFINED: Final = "(not defined in the file)"


class Shown:
    """Which instances stand on the timeline. rows: of `iterations` by instance, -1. order: instances by start. steps: by instance, -1."""

    def __init__(self, c: Collected, first_part: bool) -> None:
        recorded, sampled, worked = (np.array(a, bool) for a in (c.iterations.reported, c.iterations.sampled, c.iterations.worked))
        self.number = np.array(c.iterations.whole["number"], np.int64)
        self.start = np.array(c.iterations.whole["start_ns"], np.int64)
        self.duration = np.array(c.iterations.whole["duration_ns"], np.int64)
        known = np.flatnonzero(recorded)
        self.listed = known[np.argsort(self.start[known], kind="stable")]
        self.row = np.full(len(recorded), -1, np.int64)
        self.row[self.listed] = np.arange(len(self.listed))
        self.sampled = sampled & worked
        self.whole = self.sampled.copy()  # with all of their work
        self.whole[np.array(c.ledger.gone, np.int64)] = False
        self.chosen = self._chosen(c, first_part, known)
        last: dict[int, int] = {int(self.number[i]): int(i) for i in self.chosen}
        again = len(self.chosen) - len(last)
        c.health.add("iteration with the number of an earlier one", again)
        self.chosen = np.array(sorted(last.values(), key=lambda i: (self.start[i], i)), np.int64)
        self.step = np.full(len(recorded), -1, np.int64)
        self.step[self.chosen] = np.arange(len(self.chosen))
        c.health.add("sampled iteration without its work", int((sampled & recorded & ~worked).sum()))
        c.health.add("work of an iteration that has no step record", int((worked & ~recorded).sum()))

    def _chosen(self, c: Collected, first_part: bool, known: Ints) -> Ints:
        work: Ints = known[self.whole[known]]
        if first_part and len(work) > 1 and work[0] == known[0]:
            work = work[1:]
        if len(work):
            return work
        last = known[-LATEST:]
        size, batch = np.array(c.iterations.signature, np.int64)[last], np.array(c.iterations.whole["batch"], np.int64)[last]
        unsaid = size == c.iterations.signatures[""]
        other = np.flatnonzero((size != size[-1:]) | (unsaid & (batch != batch[-1:])))
        chosen: Ints = last[other[-1] + 1 :] if len(other) else last
        return chosen


def build(c: Collected, *, thread: str, first_part: bool) -> dict[str, pd.DataFrame]:
    """Returns all tables. thread: the id of the recording process, the one thread of the timeline."""
    shown = Shown(c, first_part)
    phases, modules, work = c.phase_times.take(), c.module_times.take(), c.ledger.take()
    host, first_call = _host(c, shown, phases, modules)
    tables = {
        "labels": _labels(c),
        "iterations": _iterations(c, shown, work),
        "label_times": _label_times(shown, phases, modules),
        "host": host,
        "steps": _steps(shown, host, first_call),
        "ledger": _ledger(c, shown, work, first_call),
        "copies": _copies(c, shown),
        **c.memory.tables(),
        "profile": profile_table(c.profile, c.health),
    }
    if len(host):
        text = pd.Categorical([thread])
        tables["threads"] = S.THREADS.frame(
            {"process": text, "thread": text, "process_name": pd.Categorical([""]), "thread_name": pd.Categorical(["training loop"])}
        )
    c.health.add("work of early iterations", c.ledger.dropped)
    c.health.add("copies of early iterations", c.copies.dropped)
    c.health.add("times of early iterations", c.phase_times.dropped + c.module_times.dropped)
    return tables


def _labels(c: Collected) -> pd.DataFrame:
    labels = c.labels
    what = pd.Categorical.from_codes(np.array(labels.what, np.int8), categories=pd.Index(WHATS, dtype=object))  # type: ignore[arg-type]
    return S.LABELS.frame(
        {
            "what": what,
            "parent": np.array(labels.parent, np.int32),
            "name": labels.names.categorical(np.array(labels.name, np.int32)),
            "class_name": labels.classes.categorical(np.array(labels.class_name, np.int32)),
        }
    )


def _iterations(c: Collected, shown: Shown, work: Floats) -> pd.DataFrame:
    at, source = shown.listed, c.iterations
    whole = {name: np.array(values, np.int64) for name, values in source.whole.items()}
    floats = {name: np.array(values, np.float64) for name, values in source.floats.items()}
    _sum_up(c, work, shown.whole & (whole["ops"] < 0), whole, floats)
    return S.ITERATIONS.frame(
        {
            **{name: values[at] for name, values in whole.items()},
            **{name: values[at] for name, values in floats.items()},
            "sampled": shown.sampled[at],
            "signature": source.signatures.categorical(np.array(source.signature, np.int32)[at]),
        }
    )


def _sum_up(c: Collected, work: Floats, wanted: npt.NDArray[np.bool_], whole: dict[str, Ints], floats: dict[str, Floats]) -> None:
    """Adds the totals of sampled iterations whose recorder wrote none, from their ledgers."""
    work = work[wanted[work[:, 0].astype(np.int64)]]
    instance, sig, calls = work[:, 0].astype(np.int64), work[:, 1].astype(np.int64), work[:, 7]
    amounts = {name: _amount(np.array(values, np.float64), sig) for name, values in c.sigs.amounts.items()}
    unknown = np.isnan(amounts["bytes"]) & ~(amounts["flop"] > 0)
    for name, weights in (("ops", calls), ("unknown", calls * unknown)):
        whole[name][wanted] = np.bincount(instance, weights, len(wanted))[wanted].astype(np.int64)
    for name, each in amounts.items():
        floats[name][wanted] = np.bincount(instance, calls * np.nan_to_num(each), len(wanted))[wanted]


def _label_times(shown: Shown, phases: Floats, modules: Floats) -> pd.DataFrame:
    both = np.concatenate([phases, modules])
    instance = both[:, 0].astype(np.int64)
    both, instance = both[shown.number[instance] >= 0], instance[shown.number[instance] >= 0]
    order = np.lexsort((both[:, 2], instance))
    both, instance = both[order], instance[order]
    return S.LABEL_TIMES.frame(
        {
            "iteration": shown.number[instance],
            "label": both[:, 1].astype(np.int32),
            "start_ns": both[:, 2].astype(np.int64),
            "duration_ns": both[:, 3].astype(np.int64),
            "device_ns": both[:, 4],
            "count": both[:, 5].astype(np.int64),
        }
    )


# -- timeline -------------------------------------------------------------------------------------------------


def _host(c: Collected, shown: Shown, phases: Floats, modules: Floats) -> tuple[pd.DataFrame, dict[tuple[int, int], int]]:
    """Returns (the host table, host row of the first range of a label in a step by (step, label); of the step itself by (step, -1))."""
    names = Interner()
    pieces: list[tuple[Ints, Ints, Ints, Ints, Ints, npt.NDArray[np.int8]]] = []
    steps = np.arange(len(shown.chosen))
    codes = names.codes(f"ProfilerStep#{n}" for n in shown.number[shown.chosen].tolist())
    pieces.append(
        (steps, np.full(len(steps), -1), codes.astype(np.int64), shown.start[shown.chosen], shown.duration[shown.chosen],
         np.full(len(steps), S.ANNOTATION, np.int8))
    )  # fmt: skip
    for table, kind in ((phases, S.ANNOTATION), (modules, S.MODULE)):
        step = shown.step[table[:, 0].astype(np.int64)]
        single = table[:, 5] == 1
        c.health.add("ranges summed up while recording", int(((step >= 0) & ~single).sum()))
        rows = table[(step >= 0) & single]
        step = step[(step >= 0) & single]
        order = np.argsort(rows[:, 2], kind="stable")
        rows, step = rows[order], step[order]
        label = rows[:, 1].astype(np.int64)
        code = _module_names(c, label, names) if kind == S.MODULE else _phase_names(c, label, names)
        at = rows[:, 2].astype(np.int64), rows[:, 3].astype(np.int64)
        pieces.append((step, label, code, *at, np.full(len(rows), kind, np.int8)))
    step, label, code, start, duration, kinds = (np.concatenate(column) for column in zip(*pieces, strict=True))
    thread = np.zeros(len(step), np.int32)
    order = tree.preorder(thread, start, start + duration, (kinds == S.MODULE).astype(np.int8))
    step, label, code, start, duration, kinds = (v[order] for v in (step, label, code, start, duration, kinds))
    parent, depth, end, clipped = tree.nest(thread, start, start + duration)
    host = S.HOST.frame(
        {
            "name": names.categorical(code.astype(np.int32)),
            "category": _category(kinds == S.MODULE),
            "kind": kinds,
            "thread": thread,
            "start_ns": start,
            "duration_ns": duration,
            "parent": parent,
            "depth": depth,
            "end": end,
            "clipped": clipped,
            "index": np.arange(len(step)),
        }
    )
    c.health.add("overlaps its enclosing event", int(clipped.sum()))
    first: dict[tuple[int, int], int] = {}
    for row, key in enumerate(zip(step.tolist(), label.tolist(), strict=True)):
        first.setdefault(key, row)
    return host, first


def _category(module: npt.NDArray[np.bool_]) -> pd.Categorical:
    words = pd.Index(["user_annotation", "python_function"], dtype=object)
    return pd.Categorical.from_codes(module.astype(np.int8), categories=words)  # type: ignore[arg-type]


def _phase_names(c: Collected, label: Ints, names: Interner) -> Ints:
    words = list(c.labels.names)
    name = np.array(c.labels.name, np.int64)[label]
    distinct, place = np.unique(name, return_inverse=True)
    return np.fromiter((names[str(words[n]) or "(unnamed)"] for n in distinct.tolist()), np.int64, len(distinct))[place]


def _module_names(c: Collected, label: Ints, names: Interner) -> Ints:
    """Returns `nn.Module: Linear_3`: as a profiler trace numbers the modules of a class, in order of first call."""
    words = [str(w) for w in c.labels.classes]
    name, class_name = (np.array(a, np.int64) for a in (c.labels.name, c.labels.class_name))
    distinct, first, place = np.unique(label, return_index=True, return_inverse=True)
    numbers: dict[tuple[int, int], int] = {}
    used: dict[int, int] = {}
    codes = np.zeros(len(distinct), np.int64)
    for i in np.argsort(first, kind="stable").tolist():
        own = int(distinct[i])
        key = int(class_name[own]), int(name[own])
        if key not in numbers:
            numbers[key] = used.get(key[0], 0)
            used[key[0]] = numbers[key] + 1
        codes[i] = names[f"nn.Module: {words[key[0]] or 'Module'}_{numbers[key]}"]
    return codes[place]


def _steps(shown: Shown, host: pd.DataFrame, first: dict[tuple[int, int], int]) -> pd.DataFrame:
    if len(shown.chosen) == 0:
        return S.STEPS.frame(
            {
                "number": [-1],
                "name": pd.Categorical(["whole recording"]),
                "host": [-1],
                **{name: [0] for name in ("host_start_ns", "host_end_ns", "start_ns", "end_ns")},
                "device_events": [0],
                "complete": [True],
            }
        )
    rows = np.array([first[(step, -1)] for step in range(len(shown.chosen))], np.int64)
    start = host["start_ns"].to_numpy()[rows]
    end = start + host["duration_ns"].to_numpy()[rows]
    reach = np.maximum.accumulate(end)
    begun = np.maximum(start, np.concatenate([start[:1], reach[:-1]]))
    return S.STEPS.frame(
        {
            "number": shown.number[shown.chosen],
            "name": host["name"].iloc[rows].array,
            "host": rows,
            "host_start_ns": start,
            "host_end_ns": end,
            "start_ns": begun,
            "end_ns": np.maximum(end, begun),
            "device_events": np.zeros(len(rows), np.int64),
            "complete": np.ones(len(rows), bool),
        }
    )


# -- work -----------------------------------------------------------------------------------------------------


def _ledger(c: Collected, shown: Shown, rows: Floats, first: dict[tuple[int, int], int]) -> pd.DataFrame:
    instance = rows[:, 0].astype(np.int64)
    keep = _kept(shown, instance)
    rows, instance = rows[keep], instance[keep]
    sig = rows[:, 1].astype(np.int64)
    module, phase = rows[:, 2].astype(np.int64), rows[:, 3].astype(np.int64)
    flags = rows[:, 6].astype(np.int64)
    step = shown.step[instance]
    texts = {name: _text(c, name, sig) for name in c.sigs.TEXTS if name not in ("direction", "op")}
    parent = c.labels.parent
    return S.LEDGER.frame(
        {
            "iteration": shown.number[instance],
            "step": step.astype(np.int32),
            "name": _text(c, "op", sig, UNDEFINED),
            **texts,
            **{name: _amount(np.array(values, np.float64), sig) for name, values in c.sigs.amounts.items()},
            "direction": ((flags & F.BACKWARD) > 0).astype(np.int8),
            "recompute": (flags & F.RECOMPUTE) > 0,
            "estimated": ((flags & F.ESTIMATED) > 0) | (_amount(np.array(c.sigs.estimated, np.float64), sig) > 0),
            "compiled": ((flags & F.COMPILED) > 0) | np.array(c.iterations.compiled, bool)[instance],
            "count": rows[:, 7].astype(np.int64),
            "time_ns": rows[:, 8],
            "module": module.astype(np.int32),
            "phase": phase.astype(np.int32),
            "forward_phase": rows[:, 4].astype(np.int32),
            "function": rows[:, 5].astype(np.int32),
            "module_host": _host_of(step, module, first, parent, lambda _: -1),
            "phase_host": _host_of(step, phase, first, parent, lambda at: first.get((at, -1), -1)),
        }
    )


def _kept(shown: Shown, instance: Ints) -> npt.NDArray[np.bool_]:
    """Work of the iterations on the timeline, and of those that have no step record."""
    loose = (shown.row[instance] < 0) & (shown.number[instance] >= 0)
    return np.asarray((shown.step[instance] >= 0) | loose)


def _copies(c: Collected, shown: Shown) -> pd.DataFrame:
    instance = c.copies.instances()
    keep = _kept(shown, instance)
    instance = instance[keep]
    return c.copies.table(keep, shown.number[instance], shown.step[instance])


def _text(c: Collected, name: str, sig: Ints, none: str = "") -> pd.Categorical:
    """Returns a text of the signatures per row; those that are not defined get `none`."""
    interner, codes = c.sigs.interners[name], np.array(c.sigs.codes[name], np.int32)
    missing = interner[none] if (sig < 0).any() or not len(codes) else 0
    return interner.categorical(np.where(sig >= 0, codes[sig], missing).astype(np.int32) if len(codes) else np.full(len(sig), missing))


def _amount(values: Floats, sig: Ints) -> Floats:
    return np.where(sig >= 0, values[sig], np.nan) if len(values) else np.full(len(sig), np.nan)


def _host_of(step: Ints, label: Ints, first: dict[tuple[int, int], int], parent: Sequence[int], root: Callable[[int], int]) -> Rows:
    """Returns the host row of the first range of a label in its step, else of the label around it, else `root(step)`."""
    known: dict[tuple[int, int], int] = {}
    width = len(parent) + 1
    keys, place = np.unique(step * width + label + 1, return_inverse=True)  # few: many rows are of one label
    out = np.full(len(keys), -1, np.int32)
    for i, key in enumerate(keys.tolist()):
        at, own = key // width, key % width - 1
        way, up = [], own
        while up >= 0 and (at, up) not in known and (at, up) not in first:
            way.append(up)
            up = parent[up]
        if up < 0:
            found = root(at)
        elif (found := known.get((at, up), -2)) == -2:
            found = first[(at, up)]
        known.update(((at, passed), found) for passed in way)
        out[i] = found
    return out[place]
