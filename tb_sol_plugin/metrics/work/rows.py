"""Makes the rows of the roofline: calls grouped by what they have in common, with rates, efficiencies and both sides of their limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import TOLERATED, ratio
from tb_sol_plugin.metrics.report.longest import longest, longest_operator
from tb_sol_plugin.metrics.time.scope import Scope, is_capture, on_cpu, step_time
from tb_sol_plugin.metrics.trees.label_times import module_device_ns, module_names, phase_self_ns
from tb_sol_plugin.metrics.trees.module_tree import module_instance, module_tree, phase_name
from tb_sol_plugin.metrics.trees.phases import phase_tree
from tb_sol_plugin.metrics.work.costs import KINDS
from tb_sol_plugin.metrics.work.joined import COUNTED
from tb_sol_plugin.metrics.work.work import Work, grouped, sides
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask, factorize, numbered

By: TypeAlias = Literal["op_shape", "op", "kernel", "module", "layer", "phase", "step", "dtype", "kind"]
ByLabel: TypeAlias = Literal["forward_phase", "function"]
"""Labels that only the ledger of a SOL capture holds."""

OUTSIDE_MODULE: Final = "(outside every module)"
OUTSIDE_PHASE: Final = "(outside every phase)"
OUTSIDE_FUNCTION: Final = "(outside every function)"
OUTSIDE_STEP: Final = "(outside every step)"
NO_TYPE: Final = "(no type recorded)"
BEFORE_WINDOW: Final = "before the window"
"""Ends the key of a row of work that was launched before the recording began and is credited by likeness."""
SHARED: Final = "work of the operator shared among its kernels by time"
FLAGS: Final = ("above limit", "estimated", "link", "recompute", BEFORE_WINDOW)


class Key(NamedTuple):
    """A column as numbers: per call an index into words."""

    codes: Ints
    words: Sequence[str]


RowColumns: TypeAlias = dict[str, Any]
"""Columns of rows as arrays, by name."""


def rows(capture: Capture, done: Work, ops: pd.DataFrame, by: By | ByLabel) -> RowColumns:
    """Returns rows of the roofline table, longest first. ops: the calls of the selection, rows of `done.ops`.

    Columns: id, name, input_shapes, dtype, direction, kind, main_kernel, kernels (of flagged rows: all names, one a line), bound, flags,
    reason, estimated, flagged, inferred and the sums and ratios of `metrics.work.group`, with share, compute_ns, memory_ns,
    eff_achievable, recompute (share of the time), intensity_flop_per_byte, achieved_flop_per_s, achieved_bytes_per_s, and when the
    longest call was. NaN is unknown.

    Work that was launched before the recording began stands in rows of its own. With by="kernel" an operator's work is shared among
    its kernels by their time; a recording without device work has no kernels, its rows are then operators. Where no call has a time
    (`done.timed`), the largest limit comes first. ByLabel: of a SOL capture only.
    """
    kernels = by == "kernel" and not done.by_host_time and not done.from_ledger
    events = np.flatnonzero(_chosen(done, ops)[done.owner])
    if kernels:
        ops = _by_kernel(capture, done, events)
    keys = [_key(capture, ops, by, kernels), *(_plain(ops[c]) for c in ("shapes", "dtype", "direction") if by == "op_shape")]
    code, first = _number([*keys, Key(ops["inferred"].to_numpy().astype(np.int64), ("", ""))])
    sums = grouped(ops, code)
    size = len(first)
    words = [_words(key, first) for key in keys]
    split = by == "op_shape"
    dtype, direction = words[2:] if split else (_joined(code, _plain(ops[c]), size) for c in ("dtype", "direction"))
    at = code if kernels else _place(done, ops, code)[done.owner[events]]
    main, every = _kernels(capture, events, at, sums["flagged"])
    early = ops["inferred"].to_numpy()[first]
    parts = [*words, [BEFORE_WINDOW if late else "" for late in early.tolist()]]
    columns: dict[str, Any] = {name: values for name, values in sums.items() if name not in ("group", "bound")}
    columns |= {
        "name": [_early_name(name) if late else name for name, late in zip(words[0], early.tolist(), strict=True)],
        "input_shapes": words[1] if split else [""] * size,
        "dtype": dtype,
        "direction": direction,
        "kind": _main_kind(ops, code, size),
        "inferred": early,
        "main_kernel": main,
        "kernels": every,
        "flags": _flags(sums, ops, code, early),
        "bound": np.asarray(sums["bound"], object),
        "id": _ids(parts),
        **_measures(sums, ops, done, code, size),
        **(_longest_kernel(capture, events, code, size) if kernels else longest_operator(capture, ops, code, size)),
    }
    order = np.argsort(-columns["measured_ns" if done.timed else "sol_ns"], kind="stable")  # unknown last
    return {name: _text(values).take(order) for name, values in columns.items()}


def ids_of_calls(ops: pd.DataFrame, calls: Ints, by: Literal["op_shape", "op"]) -> list[str]:
    """Returns the ids of the rows that some calls stand in, each once. ops: `Work.ops`; calls: rows of it."""
    names = ("name", "shapes", "dtype", "direction")[: 4 if by == "op_shape" else 1]
    late = ops["inferred"].to_numpy()[calls]
    _, first = factorize([*(arrays.coded(ops[n]).codes[calls] for n in names), late.astype(np.int64)])
    words = [arrays.pick(ops[n], calls[first]).tolist() for n in names]
    return _ids([*words, [BEFORE_WINDOW if inferred else "" for inferred in late[first].tolist()]])


def _ids(parts: Sequence[Sequence[str]]) -> list[str]:
    return [" | ".join(p if p[-1] else p[:-1]) for p in zip(*parts, strict=True)]


# -- what makes a row -----------------------------------------------------------------------------------------


def _key(capture: Capture, ops: pd.DataFrame, by: By | ByLabel, kernels: bool) -> Key:
    if by == "forward_phase" or by == "function":
        return _labeled(capture, ops, by)
    if by == "module" and is_capture(capture):
        return _modules(capture, ops)
    if by in ("module", "phase"):
        return _around(capture, ops, by)
    if by == "layer":
        return _plain(ops["layer"], OUTSIDE_MODULE)
    if by == "dtype":
        return _plain(ops["dtype"], NO_TYPE)
    if by == "kind":
        return _plain(ops["kind"])
    if by == "step":
        numbers = capture.steps["number"].tolist()
        words = [f"step {n}" if n >= 0 else OUTSIDE_STEP for n in numbers]
        return Key(np.where(ops["step"].to_numpy() < 0, len(words), ops["step"].to_numpy()).astype(np.int64), [*words, OUTSIDE_STEP])
    return _plain(ops["kernel" if kernels else "name"])


def _plain(column: pd.Series, none: str = "") -> Key:
    """Returns a categorical column; no category and the empty word both read as `none`."""
    codes = arrays.codes(column)
    words = [str(w) or none for w in column.cat.categories]
    return Key(np.where(codes < 0, len(words), codes), [*words, none])


def _modules(capture: Capture, ops: pd.DataFrame) -> Key:
    """Returns the module of each call of a SOL capture, by its name in the model."""
    tree = module_tree(capture)
    if tree.of_label is not None:
        node = tree.of_label[capture.tables["ledger"]["module"].to_numpy()[ops["ledger"].to_numpy()]].astype(np.int64)
    else:
        node = np.append(tree.node, -1)[ops["module"].to_numpy()].astype(np.int64)
    code, words = pd.factorize(np.array([*module_names(capture), OUTSIDE_MODULE], object))
    return Key(code.astype(np.int64)[node], words.tolist())


def _labeled(capture: Capture, ops: pd.DataFrame, by: ByLabel) -> Key:
    """Returns the function that the program called, or the phase of the forward operator; of forward work its own phase."""
    table, labels = capture.tables["ledger"], capture.tables["labels"]
    row = ops["ledger"].to_numpy()
    own = table[by].to_numpy()[row].astype(np.int64)
    if by == "forward_phase":
        own = np.where(arrays.coded(ops["direction"]).codes == 1, own, table["phase"].to_numpy()[row])
    names = [str(name) for name in arrays.pick(labels["name"], np.arange(len(labels))).tolist()]
    none = OUTSIDE_FUNCTION if by == "function" else OUTSIDE_PHASE
    code, words = pd.factorize(np.array([*(names if by == "function" else map(phase_name, names)), none], object))
    return Key(code.astype(np.int64)[own], words.tolist())


def _around(capture: Capture, ops: pd.DataFrame, by: By) -> Key:
    """Returns the innermost module or phase around each call, by its name as a person reads it; several may read the same."""
    clean: Callable[[str], str] = module_instance if by == "module" else phase_name
    host = capture.host["name"]
    rows = ops["module" if by == "module" else "annotation"].to_numpy()
    codes = np.append(arrays.codes(host), -1)[rows]
    used, place = np.unique(codes, return_inverse=True)
    none = OUTSIDE_MODULE if by == "module" else OUTSIDE_PHASE
    words = [none if c < 0 else clean(str(host.cat.categories[c])) for c in used.tolist()]
    distinct = list(dict.fromkeys(words))
    number = {word: at for at, word in enumerate(distinct)}
    merged = np.array([number[w] for w in words], np.int64)
    return Key(merged[place.reshape(-1)], distinct)


def _number(keys: Sequence[Key]) -> tuple[Ints, Ints]:
    """Returns (row number per call, first call of each row), in order of first appearance."""
    total = keys[0].codes
    room = max(len(keys[0].words), 1)
    for key in keys[1:]:
        wide = len(key.words) + 1
        if room * wide >= 2**62:
            total, found = pd.factorize(total)
            room = max(len(found), 1)
        total, room = total * wide + key.codes, room * wide
    return numbered(total)


def _longest_kernel(capture: Capture, events: npt.NDArray[np.int64], code: Ints, size: int) -> dict[str, pd.arrays.IntegerArray]:
    """Returns when the longest kernel of each row ran. events: the device rows that are the calls."""
    start, duration = (capture.device[name].to_numpy()[events] for name in ("start_ns", "duration_ns"))
    return longest(code, start, duration, size)


def _text(values: Any) -> Any:
    """Returns lists of words as object arrays: a table of them is built at once, and empty ones keep their type."""
    return np.array(values, object) if isinstance(values, list) else values


def _words(key: Key, at: Ints) -> list[str]:
    return [key.words[c] for c in key.codes[at].tolist()]


def _by_kernel(capture: Capture, done: Work, events: npt.NDArray[np.int64]) -> pd.DataFrame:
    """Returns device rows as calls: a kernel takes the share of its operator's work that it has of the operator's time."""
    device = capture.device
    duration = device["duration_ns"].to_numpy()[events].astype(np.float64)
    wanted = ["device_sum_ns", "device_events", "kind", "direction", "dtype", "shapes", "flop", "flop_vector", "bytes", "sol_ns", "bound"]
    ops = done.ops[[*wanted, "estimated", "reason", "modeled", "link", "recompute", "inferred"]].take(done.owner[events])
    piece = ratio(duration, ops["device_sum_ns"].to_numpy(dtype=np.float64))
    several = ops["device_events"].to_numpy() > 1
    reason = ops["reason"].cat.add_categories([SHARED]) if SHARED not in ops["reason"].cat.categories else ops["reason"]
    why = np.where(several, list(reason.cat.categories).index(SHARED), arrays.coded(reason).codes)
    names = device["name"]
    counted = done.ops["name"].eq(COUNTED).to_numpy()[done.owner[events]]  # whose kernels do different things
    piece = np.where(counted, np.nan, piece)
    return ops.assign(
        kernel=pd.Categorical.from_codes(arrays.coded(names).codes[events], names.cat.categories),
        measured_ns=duration,
        **{c: ops[c].to_numpy(dtype=np.float64) * piece for c in ("flop", "flop_vector", "bytes", "sol_ns")},
        modeled=ops["modeled"].to_numpy() & ~counted,
        estimated=ops["estimated"].to_numpy() | (several & ops["modeled"].to_numpy()),
        reason=pd.Categorical.from_codes(why, reason.cat.categories),
    ).reset_index(drop=True)


# -- columns ----------------------------------------------------------------------------------------------------


def _early_name(name: str) -> str:
    """Returns `aten::mm (before the window)`; work of an unknown module or phase is named by its time alone."""
    return f"({BEFORE_WINDOW})" if name in (OUTSIDE_MODULE, OUTSIDE_PHASE) else f"{name} ({BEFORE_WINDOW})"


def _measures(sums: dict[str, Any], ops: pd.DataFrame, done: Work, code: Ints, size: int) -> dict[str, npt.NDArray[np.float64]]:
    """Returns rates, sides of the limit and shares. Sums before ratios."""
    measured = ops["measured_ns"].to_numpy(dtype=np.float64)
    work = np.where(sums["flop"] > 0, sums["flop"], sums["flop_vector"])
    work = np.where(work > 0, work, np.nan)
    known, data = sums["known_ns"] / 1e9, sums["bytes"]
    of = sides(ops, done.spec)
    again = ops["recompute"].to_numpy() & np.isfinite(measured)
    reach, timed = of.achievable_ns, np.isfinite(of.achievable_ns) & (measured > 0)
    time = sums["measured_ns"]
    return {
        "vector_flop": sums["flop_vector"],
        "compute_ns": _known_sum(code, of.compute_ns, size),
        "memory_ns": _known_sum(code, of.memory_ns, size),
        "eff_achievable": ratio(_known_sum(code[timed], reach[timed], size), _sum(code[timed], measured[timed], size)),
        "recompute": ratio(_sum(code[again], measured[again], size), time),
        "intensity_flop_per_byte": ratio(work, data),
        "achieved_flop_per_s": ratio(work, known),
        "achieved_bytes_per_s": ratio(data, known),
        "share": ratio(time, np.full(size, np.nansum(time))),
    }


def _sum(code: Ints, values: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.float64]:
    return np.bincount(code, values, minlength=size).astype(np.float64)


def _known_sum(code: Ints, values: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.float64]:
    """Returns per row the sum over the calls that have a value, NaN where none has."""
    good = np.isfinite(values)
    total = _sum(code[good], values[good], size)
    total[np.bincount(code[good], minlength=size) == 0] = np.nan
    return total


def _joined(code: Ints, key: Key, size: int) -> list[str]:
    """Returns per row the distinct words among its calls, joined."""
    width = len(key.words)
    found: list[list[str]] = [[] for _ in range(size)]
    for pair in pd.unique(code * width + key.codes).tolist():
        word = key.words[pair % width]
        if word:
            found[pair // width].append(word)
    return [", ".join(sorted(words)) for words in found]


def _main_kind(ops: pd.DataFrame, code: Ints, size: int) -> list[str]:
    """Returns per row the kind that holds most of its time; of calls without one, most of its limit."""
    time = ops["measured_ns"].to_numpy(dtype=np.float64)
    limit = ops["sol_ns"].to_numpy(dtype=np.float64)
    time = np.where(np.isnan(time), np.where(np.isfinite(limit), limit, 0.0), time)
    kinds = arrays.codes(ops["kind"])
    total = np.bincount(code * len(KINDS) + kinds, time, minlength=size * len(KINDS))
    return [KINDS[k] for k in total.reshape(size, len(KINDS)).argmax(axis=1).tolist()]


def _kernels(capture: Capture, events: npt.NDArray[np.int64], at: Ints, flagged: Mask) -> tuple[list[str], list[str]]:
    """Returns per row the device event name with most time among its events, and for flagged rows all names; "" without.

    at: per event its row.
    """
    size = len(flagged)
    if not len(events):
        return [""] * size, [""] * size
    names = capture.device["name"]
    width = len(names.cat.categories)
    number, pairs = pd.factorize(at * width + arrays.codes(names)[events])
    time = np.bincount(number, capture.device["duration_ns"].to_numpy()[events].astype(np.float64), minlength=len(pairs))
    order = np.argsort(time, kind="stable")
    best = np.full(size, -1, np.int64)
    best[pairs[order] // width] = pairs[order] % width
    every: list[list[str]] = [[] for _ in range(size)]
    of_flagged = pairs[flagged[pairs // width]]
    categories = arrays.coded(names).categories
    for row, name in zip((of_flagged // width).tolist(), categories.take(of_flagged % width).tolist(), strict=True):
        every[row].append(str(name))
    main = np.full(size, "", object)
    main[best >= 0] = [str(name) for name in categories.take(best[best >= 0]).tolist()]
    return main.tolist(), ["\n".join(found) for found in every]


def _chosen(done: Work, ops: pd.DataFrame) -> Mask:
    """Returns per row of `done.ops`, and once more for -1, whether it is among `ops`."""
    out = np.zeros(len(done.ops) + 1, bool)
    out[ops.index.to_numpy()] = True
    return out


def _place(done: Work, ops: pd.DataFrame, code: Ints) -> Ints:
    out = np.zeros(len(done.ops) + 1, np.int64)
    out[ops.index.to_numpy()] = code
    return out


def _flags(sums: dict[str, Any], ops: pd.DataFrame, code: Ints, early: Mask) -> list[str]:
    size = len(early)

    def any_of(mask: Mask) -> Mask:
        return np.bincount(code[mask], minlength=size) > 0

    flags = (
        sums["flagged"],
        sums["estimated"],
        any_of(ops["link"].to_numpy()) & (sums["known_ns"] == 0),
        any_of(ops["recompute"].to_numpy()),
        early,
    )
    bits = sum((mask.astype(np.int64) << at for at, mask in enumerate(flags)), np.zeros(size, np.int64))
    words = [", ".join(w for at, w in enumerate(FLAGS) if bit >> at & 1) for bit in range(1 << len(FLAGS))]
    return [words[b] for b in bits.tolist()]


# -- group_times -----------------------------------------------------------------------------------------------------


LAUNCH_BOUND_NS: Final = 20_000
"""Events on a stream say little about ranges with less than 20 µs per call: what they measure is how fast the host launches."""
LAUNCH_BOUND: Final = "launch-bound timing"


def group_times(capture: Capture, part: Scope, by: str, direction: str) -> dict[str, float]:
    """Returns time in ns by the name of a row, on a device or on the CPU; names of which some part was not timed are left out.

    Phases less the phases inside; modules only forward and on a device, as only that was timed.
    """
    if by == "phase":
        tree = phase_tree(capture)
        rows = np.flatnonzero(tree.node >= 0)
        names = arrays.pick(capture.host["name"], rows)
        word = {int(node): phase_name(str(name)) for node, name in zip(tree.node[rows].tolist(), names.tolist(), strict=True)}
        return _known(word, phase_self_ns(capture, part))
    if by == "step":
        table = capture.tables["iterations"]
        own = dict(zip(table["number"].tolist(), table["device_ns"].tolist(), strict=True))
        out = {}
        for row, step in zip(part.rows, part.steps, strict=True):
            usual = step_time(capture, (row,))
            time = np.nan if usual is None else usual.median_ns if on_cpu(capture) else usual.device_ns
            out[f"step {step}"] = float(time if time == time else own.get(step, np.nan))
        return {name: ns for name, ns in out.items() if ns == ns}
    if by == "module" and direction == "forward":
        return _known(dict(enumerate(module_names(capture))), module_device_ns(capture, part))
    return {}


def _known(word: dict[int, str], time: npt.NDArray[np.float64]) -> dict[str, float]:
    out: dict[str, float] = {}
    for node, name in word.items():
        out[name] = out.get(name, 0.0) + float(time[node])
    return {name: ns for name, ns in out.items() if ns == ns and ns > 0}


def with_group_times(frame: RowColumns, times: dict[str, float]) -> RowColumns:
    """Returns `frame` (rows of `work.rows.rows` without times) with those of `times`, and what follows from them; longest first."""
    time = np.array([times.get(str(n), np.nan) for n in frame["name"].tolist()], np.float64)
    sol, data, flop, vector = (np.asarray(frame[name], np.float64) for name in ("sol_ns", "bytes", "flop", "flop_vector"))
    work = np.where(flop > 0, flop, np.where(vector > 0, vector, np.nan))
    efficiency = ratio(sol, time)
    short = time < LAUNCH_BOUND_NS * np.asarray(frame["calls"], np.float64)
    flags = [
        ", ".join(filter(None, (str(f), LAUNCH_BOUND if s else ""))) for f, s in zip(frame["flags"].tolist(), short.tolist(), strict=True)
    ]
    out: RowColumns = frame | {
        "measured_ns": time,
        "known_ns": time,
        "wasted_ns": time - sol,
        "efficiency": efficiency,
        "flagged": np.nan_to_num(efficiency) > TOLERATED,
        "flags": np.array(flags, object),
        "share": ratio(time, np.full(len(time), np.nansum(time))),
        "achieved_flop_per_s": ratio(work, time / 1e9),
        "achieved_bytes_per_s": ratio(data, time / 1e9),
    }
    order = np.lexsort((-sol, -time))  # unknown last
    return {name: values.take(order) for name, values in out.items()}
