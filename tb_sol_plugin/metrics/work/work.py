"""Compares work with its limit: who did how much, how long it took, how long it would take at the speed of light.

`work(capture, spec)` is the one place where device time, cost models and device limits meet. Sums come before ratios.
A recording without device work (CPU only) measures by host time; it has limits where those of its CPU were measured. The calls of a SOL
capture are those of its ledger (`work.counted`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.cost import Cost, roofline
from tb_sol_plugin.cost.inputs import first_dtype, readable_shapes
from tb_sol_plugin.cost.roofline import BOUNDS, TOLERATED, limit, ratio
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics import memo, memo_under
from tb_sol_plugin.metrics.time import attribution, scope
from tb_sol_plugin.metrics.time.kernel_names import TF32_HINTS, in_tf32
from tb_sol_plugin.metrics.trees.module_tree import module_class_name
from tb_sol_plugin.metrics.work.costs import DIRECTIONS, KINDS, costs
from tb_sol_plugin.metrics.work.counted import ledger_calls, profile_calls
from tb_sol_plugin.metrics.work.inferred import with_inferred
from tb_sol_plugin.metrics.work.joined import Match, with_counted
from tb_sol_plugin.metrics.work.ownership import above, in_backward, link_bytes, over_link, owners, recomputed
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, factorize, known_sums
from tb_sol_plugin.tables.table import as_table, frame_of

NOTHING: Final = (np.zeros(0, np.int64), np.zeros(0, np.int64))


class Work(Struct, frozen=True, dict=True):
    """The operator calls that own work, compared with their limits.

    ops: one row per operator call that owns work, by host row. NaN is unknown, -1 a row that is not there.

    host, name, kind, direction, dtype, shapes (readable), shapes_json; flop (matrix), flop_again (the part of it that is done again: all
    of a recomputed call, the scores of a fused attention's backward; 0 where flop is unknown), flop_vector, bytes; measured_ns (union of
    its device intervals, summed over devices), device_sum_ns, device_events; sol_ns, bound; estimated, reason, modeled, link (it
    only copies between host and device, whose limit is the link); collective (all its device work is communication); link_bytes (what
    copies and collectives move over a link); inferred (launched before the window, likened to recorded calls; host, module and
    annotation are -1); recompute (forward work run again in the backward pass); module
    (host row, for backward work that of its forward operator), layer (class of that module, ""), annotation (host row), step (row of
    `steps`).

    owner: per device row its row in ops, -1 where no operator is known. spec: the limits in use, None without.
    by_host_time: a recording without device work; measured_ns is then host time.
    from_ledger: calls of a SOL capture: host is -1, module and annotation are those of the ledger, `ledger` is a row of it. Of a
    profile each row of the ledger is one row here, all of its `launches` together.
    timed: whether any call has a time; where not (a SOL capture of a GPU), measured_ns is NaN and only whole phases, modules and steps
    have a time.
    match: of a trace beside a SOL capture, which iterations its steps were matched with. replaced: host rows of the calls that one row
    of work counted there stands for, and that row (`work.joined`).
    """

    ops: pd.DataFrame
    owner: npt.NDArray[np.int32]
    spec: DeviceSpec | None
    by_host_time: bool
    device_ns: int
    """Plain sum of all device time (of operator self times when by host time)."""
    unowned_ns: int
    """Plain sum of the device time that no operator owns."""
    from_ledger: bool = False
    timed: bool = True
    match: Match | None = None
    replaced: tuple[Ints, Ints] = NOTHING

    @property
    def modelled_ns(self) -> int:
        """Plain sum of the device time of calls that a model covers."""
        column = "measured_ns" if self.by_host_time else "device_sum_ns"
        return round(float(np.nansum(self.ops[column].to_numpy(dtype=np.float64)[self.ops["modeled"].to_numpy()])))

    @cached_property
    def values(self) -> dict[str, Floats]:
        """The columns that add up, by name: see `sums.VALUES`. Not to be changed."""
        sol = self.ops["sol_ns"].to_numpy(dtype=np.float64)
        time = self.ops["measured_ns"].to_numpy(dtype=np.float64)
        spent = time if self.by_host_time else self.ops["device_sum_ns"].to_numpy(dtype=np.float64)
        modeled = self.ops["modeled"].to_numpy()
        timed = np.isfinite(sol) & (time > 0)
        limited = timed | (np.isfinite(sol) & np.isnan(time))
        side = arrays.coded(self.ops["bound"]).codes
        sol = np.where(limited, sol, np.nan)
        flop = np.where(modeled, self.ops["flop"].to_numpy(dtype=np.float64), np.nan)
        return {
            "flop": flop,
            "bytes": np.where(modeled, self.ops["bytes"].to_numpy(dtype=np.float64), np.nan),
            "sol_ns": sol,
            "measured_ns": np.where(timed, time, np.nan),
            "timed_sol_ns": np.where(timed, sol, np.nan),
            "compute_limit_ns": np.where(limited & (side == 1), sol, np.where(limited, 0.0, np.nan)),
            "modelled_sum_ns": np.where(modeled, spent, np.nan),
            "owned_sum_ns": spent,
            "recompute_ns": np.where(self.ops["recompute"].to_numpy(), spent, 0.0),
            "backward_flop": np.where(arrays.coded(self.ops["direction"]).codes == 1, flop, np.nan),
            "estimated_calls": (limited & self.ops["estimated"].to_numpy()).astype(np.float64),
        }

    @property
    def takes_counted(self) -> bool:
        """Whether some unnamed work is that of the SOL capture beside the trace."""
        return self.match is not None and self.match.placed > 0

    @property
    def unmodelled_ns(self) -> int:
        """Plain sum of all other device time."""
        return self.device_ns - self.modelled_ns

    @property
    def modelled_share(self) -> float | None:
        """Share of the device time that a model covers; None without any time."""
        return self.modelled_ns / self.device_ns if self.device_ns else None


def work(capture: Capture, spec: DeviceSpec | None = None, *, dense: bool = False) -> Work:
    """Compares every owning call of `capture` with the limits of `spec`. The result is shared: do not change it.

    dense: count attention with every (query, key) pair; by default pairs behind a causal mask do not count.
    """
    return memo_under(capture, spec, ("work", dense), lambda: _work(capture, spec, dense))


def _work(capture: Capture, spec: DeviceSpec | None, dense: bool) -> Work:
    base = memo(capture, ("work.calls",), lambda: _calls(capture))
    ops = base.ops.copy(deep=False)
    if dense:
        every, aware = ops["flop_dense"].to_numpy(), ops["flop"].to_numpy()
        known = np.isfinite(every)
        ops["flop_again"] = ops["flop_again"].to_numpy() * np.where(known & (aware > 0), every / np.maximum(aware, 1), 1)
        ops["flop"] = np.where(known, every, aware)
    flop, vector, data = (ops[c].to_numpy() for c in ("flop", "flop_vector", "bytes"))
    dtype = ops["dtype"]
    if spec is None:
        ops["sol_ns"], ops["bound"] = np.nan, _coded(np.zeros(len(ops), np.int8), BOUNDS)
        return replace(base, ops=as_table(ops))
    names = dtype.cat.categories.tolist()
    codes = arrays.codes(dtype)
    peak = np.array([*(spec.matrix_peak(d) or np.nan for d in names), np.nan])[codes]
    vector_peak = np.array([*(spec.vector_peak(d) or np.nan for d in names), spec.vector_peak("") or np.nan])[codes]
    sol, bound = limit(flop, vector, data, peak, vector_peak, spec.memory_bandwidth or np.nan)
    apart = ~ops["modeled"].to_numpy() | (base.by_host_time and spec.vendor != "cpu")
    sol[apart], bound[apart] = np.nan, 0
    ops["sol_ns"] = sol
    ops["bound"] = _coded(bound, BOUNDS)
    if spec.memory_bandwidth is None:
        ops["estimated"] = True
    return replace(base, ops=as_table(ops), spec=spec)


def _calls(capture: Capture) -> Work:
    if scope.is_capture(capture):
        return _by_ledger(capture)
    if scope.is_profile(capture):
        return _by_profile(capture)
    found = costs(capture)
    host = capture.host
    end = host["end"].to_numpy()
    modeled = found.of_host >= 0
    by = _by_device_time if len(capture.device) else _by_host_time
    done = by(capture, end, modeled, found.wrapper, found.of_host, found.costs)
    return _with_counted(capture, done) if scope.source_of(capture) == "both" else done


def _with_counted(capture: Capture, done: Work) -> Work:
    """Adds work of the SOL capture beside the trace where the trace cannot name work."""
    ops, owner, replaced, match = with_counted(capture, done.ops, done.owner, by_host=done.by_host_time)
    device = capture.device["duration_ns"].to_numpy().clip(min=0)
    free = int(device[owner < 0].sum()) if len(owner) else 0
    return replace(done, ops=ops, owner=owner, unowned_ns=free, match=match, replaced=replaced)


def _by_ledger(capture: Capture) -> Work:
    ops = ledger_calls(capture)
    time = ops["measured_ns"].to_numpy(dtype=np.float64)
    known = bool(np.isfinite(time).any())
    owner = np.full(len(capture.device), -1, np.int32)
    return Work(ops, owner, None, scope.on_cpu(capture), round(float(np.nansum(time))), 0, from_ledger=True, timed=known or not len(ops))


def _by_profile(capture: Capture) -> Work:
    ops = profile_calls(capture)
    time = ops["measured_ns"].to_numpy(dtype=np.float64)
    return Work(ops, np.zeros(0, np.int32), None, False, round(float(np.nansum(time))), 0, from_ledger=True)


def _by_device_time(
    capture: Capture, end: npt.NDArray[np.int32], modeled: Mask, wrapper: Mask, of_host: npt.NDArray[np.int32], known: tuple[Cost, ...]
) -> Work:
    device = capture.device
    operator = device["operator"].to_numpy()
    duration = device["duration_ns"].to_numpy().clip(min=0)
    has = operator >= 0
    own = np.zeros(len(end), np.int64)
    np.add.at(own, operator[has], duration[has])
    owning = owners(end, modeled, wrapper, own, _matrix(known)[of_host])
    owner_host = above(owning, end, operator)
    owner_host = np.where(owner_host < 0, operator, owner_host)
    rows, first, owner = arrays.ranked(owner_host, len(end))
    size = len(rows)
    owned = np.flatnonzero(owner >= 0)
    group = owner[owned]
    tf32 = arrays.where(device["name"], in_tf32, TF32_HINTS)
    link = np.bincount(group, ~over_link(capture)[owned], minlength=size) == 0
    columns = {
        "measured_ns": _union(group, device["device"].to_numpy()[owned], device["start_ns"].to_numpy()[owned], duration[owned], size),
        "device_sum_ns": attribution.sum_by(group, duration[owned], size),
        "device_events": np.bincount(group, minlength=size).astype(np.int64),
        "collective": (np.bincount(group, ~device["communication"].to_numpy()[owned], minlength=size) == 0).astype(np.int64),
        "link_bytes": known_sums(group, link_bytes(capture)[owned], size),
        "module": device["module"].to_numpy()[first],
        "annotation": device["annotation"].to_numpy()[first],
        "step": device["step"].to_numpy()[first],
    }
    use_tf32 = np.bincount(group, tf32[owned], minlength=size) > 0
    ops = _frame(capture, rows, _at(rows, owning, of_host), known, link, use_tf32, columns)
    ops, owner = with_inferred(capture, ops, owner)
    return Work(ops, owner, None, False, int(duration.sum()), int(duration[owner < 0].sum()))


def _by_host_time(
    capture: Capture, end: npt.NDArray[np.int32], modeled: Mask, wrapper: Mask, of_host: npt.NDArray[np.int32], known: tuple[Cost, ...]
) -> Work:
    host = capture.host
    kind = host["kind"].to_numpy()
    operators = np.flatnonzero(kind == S.OPERATOR)
    start, duration = host["start_ns"].to_numpy(), host["duration_ns"].to_numpy().clip(min=0)
    parent, _, _, _ = tree.nest(host["thread"].to_numpy()[operators], start[operators], (start + duration)[operators])
    own = np.zeros(len(end), np.int64)
    own[operators] = tree.self_time(start[operators], duration[operators], parent)
    owning = owners(end, modeled, wrapper, own, _matrix(known)[of_host])
    below = above(owning, end, operators)
    alone = operators[(below < 0) & (own[operators] > 0)]
    rows = np.sort(np.concatenate((owning, alone)))
    total = tree.subtree_sum(own, end)
    measured = np.where(_among(rows, owning, len(end)), np.asarray(total[rows], np.int64), own[rows])
    size = len(rows)
    nothing = np.zeros(size, bool)
    columns = {
        "measured_ns": measured.astype(np.int64),
        "device_sum_ns": np.zeros(size, np.int64),
        "device_events": np.zeros(size, np.int64),
        "collective": np.zeros(size, np.int64),
        "link_bytes": np.full(size, np.nan),
        "module": attribution.nearest(capture, S.MODULE, rows),
        "annotation": attribution.nearest(capture, S.ANNOTATION, rows),
        "step": _step_of(capture, start[rows]),
    }
    ops = _frame(capture, rows, _at(rows, owning, of_host), known, nothing, nothing, columns)
    return Work(ops, np.zeros(0, np.int32), None, True, int(own.sum()), 0)


def _at(rows: Ints, owning: Ints, of_host: npt.NDArray[np.int32]) -> Ints:
    """Returns the cost of each row, -1 for a row that owns only what no model explains.

    A wrapper keeps its time, not the work of its leaves.
    """
    return np.where(_among(rows, owning, len(of_host)), of_host[rows], -1).astype(np.int64)


def _among(rows: Ints, some: Ints, size: int) -> Mask:
    """Returns which host rows are among some others, of `size` in all."""
    mask = np.zeros(size, bool)
    mask[some] = True
    return mask[rows]


def _frame(
    capture: Capture,
    rows: Ints,
    at: Ints,
    known: tuple[Cost, ...],
    link: Mask,
    use_tf32: Mask,
    columns: dict[str, Ints | Floats],
) -> pd.DataFrame:
    host, table = capture.host, capture.tables["operators"]
    arguments = capture.operator_of_host[rows]
    plain, types = _read(table["types"], arguments, first_dtype)
    types = [*(c.dtype for c in known), *types, "tf32"]
    dtype = np.where(at >= 0, at, plain + len(known))
    flop = _values(known, "flop")[at]
    single = np.array([name == "fp32" for name in types])
    dtype = np.where(use_tf32 & single[dtype] & (flop > 0), len(types) - 1, dtype)
    again = recomputed(capture)[rows]
    direction = np.where(in_backward(capture)[rows], 1, np.array([*(int(c.direction == "bwd") for c in known), 0], np.int8)[at])
    own = _module(capture, rows, columns["module"].astype(np.int64))
    kinds = np.array([*(KINDS.index(c.kind) for c in known), KINDS.index("other")], np.int8)[at]
    made = {
        "host": rows.astype(np.int32),
        "name": arrays.at(host["name"], rows),
        "kind": _coded(kinds, KINDS),
        "direction": _coded(direction.astype(np.int8), DIRECTIONS),
        "dtype": _labels(dtype, types),
        "shapes": _labels(*_read(table["shapes"], arguments, readable_shapes)),
        "shapes_json": arrays.at(table["shapes"], arguments),
        "flop": np.where(link, np.nan, flop),
        "flop_again": np.where(link, 0, np.nan_to_num(np.where(again, flop, _values(known, "flop_again")[at]))),
        "flop_vector": np.where(link, np.nan, _values(known, "flop_vector")[at]),
        "flop_dense": np.where(link, np.nan, _values(known, "flop_dense")[at]),
        "bytes": np.where(link, np.nan, _values(known, "bytes")[at]),
        **{name: values for name, values in columns.items() if name not in ("collective", "link_bytes")},
        "estimated": np.array([*(c.estimated for c in known), False], bool)[at],
        "reason": _labels(np.where(at >= 0, at, len(known)), [*(c.reason for c in known), ""]),
        "modeled": (at >= 0) & ~link,
        "link": link,
        "collective": columns["collective"] > 0,
        "link_bytes": columns["link_bytes"],
        "recompute": again,
        "inferred": np.zeros(len(rows), np.bool_),
        "module": own,
        "layer": _labels(*_read(host["name"], own, module_class_name)),
    }
    return frame_of(made)


def _coded(code: npt.NDArray[np.int8], texts: tuple[str, ...]) -> pd.Categorical:
    """Returns a column of some fixed texts from the place of each."""
    return pd.Categorical.from_codes(code, _fixed(texts), validate=False)  # type: ignore[return-value, call-overload]


@cache
def _fixed(texts: tuple[str, ...]) -> pd.Index:
    return pd.Index(texts)


def _module(capture: Capture, rows: Ints, own: Ints) -> npt.NDArray[np.int32]:
    """Returns the host row of the module call that each call belongs to: the one around it, else the one around its forward operator.

    -1 none.
    """
    if not len(attribution.of_kind(capture, S.MODULE)):
        return own.astype(np.int32)
    forward, _ = attribution.module_forward_rows(capture, rows)
    return np.where(own >= 0, own, attribution.nearest(capture, S.MODULE, forward)).astype(np.int32)


def _matrix(known: tuple[Cost, ...]) -> Floats:
    """Returns matrix FLOP per cost, 0 where unknown and for index -1."""
    return np.nan_to_num(_values(known, "flop"))


def _values(known: tuple[Cost, ...], field: str) -> Floats:
    """Returns per cost the field as float, NaN unknown; one NaN at the end for index -1."""
    return np.array([*(getattr(c, field) for c in known), None], np.float64)


def _codes(column: pd.Series, rows: npt.NDArray[np.integer]) -> Ints:
    """Returns the category codes at rows; -1 for row -1."""
    codes = arrays.coded(column).codes
    return np.where(rows >= 0, codes[rows], -1).astype(np.int64) if len(codes) else np.full(len(rows), -1, np.int64)


def _read(column: pd.Series, rows: npt.NDArray[np.integer], reader: Callable[[str], str]) -> tuple[Ints, list[str]]:
    """Returns (per row its place among texts, the texts): `reader` of the text at each row, "" for row -1; run once per distinct text."""
    codes, texts = _codes(column, rows), column.cat.categories
    used = np.flatnonzero(np.bincount(codes + 1, minlength=1)) - 1
    place = np.zeros(len(texts) + 1, np.int64)  # the last for none
    place[used] = np.arange(len(used))
    read = [*map(reader, arrays.spelled(texts, used[used >= 0]))]  # ascending: none comes first
    return place[codes], ["", *read] if len(read) < len(used) else read


def _labels(place: npt.NDArray[np.integer], texts: Sequence[str]) -> pd.Categorical:
    """Returns a column of texts from the place of each, with those in use as categories, in order."""
    used = np.flatnonzero(np.bincount(place, minlength=1))
    names = sorted({texts[i] for i in used.tolist()}) if len(place) else []
    code = {name: at for at, name in enumerate(names)}
    codes = np.array([code.get(text, -1) for text in texts], np.int32)[place]
    dtype: Any = arrays.distinct_texts(pd.Index(names))
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)


def _union(group: npt.NDArray[np.integer], device: Ints, start: Ints, duration: Ints, size: int) -> Ints:
    """Returns per group the length of the union of its intervals on each device, summed over devices."""
    if len(device) and (device == device[0]).all():
        return attribution.union_by(group, start, start + duration, size)
    pair, first = factorize([group.astype(np.int64), device])
    return attribution.sum_by(group[first], attribution.union_by(pair, start, start + duration, len(first)), size)


def _step_of(capture: Capture, at: Ints) -> Ints:
    steps = capture.steps
    start, end = steps["host_start_ns"].to_numpy(), steps["host_end_ns"].to_numpy()
    if len(steps) and (start[1:] >= end[:-1]).all() and (end >= start).all():  # one after another
        place = np.searchsorted(start, at, side="right") - 1
        return np.where((place >= 0) & (at < end[np.maximum(place, 0)]), place, -1).astype(np.int64)
    out = np.full(len(at), -1, np.int64)
    for row in range(len(steps)):
        out[(at >= start[row]) & (at < end[row])] = row
    return out


_BOUNDS: Final = pd.Index(BOUNDS, dtype=object)
SUMS: Final = ("flop", "flop_vector", "bytes", "measured_ns", "sol_ns")


def launches_of(ops: pd.DataFrame) -> Ints:
    """Returns calls that each row of `Work.ops` stands for: one, but of a profile, whose rows are sums, all of its launches."""
    return ops["launches"].to_numpy().astype(np.int64) if "launches" in ops else np.ones(len(ops), np.int64)


def group(ops: pd.DataFrame, by: str | Sequence[str] | npt.NDArray[np.integer]) -> pd.DataFrame:
    """Returns the columns of `grouped` as a table."""
    return pd.DataFrame(grouped(ops, by), copy=False)


def grouped(ops: pd.DataFrame, by: str | Sequence[str] | npt.NDArray[np.integer]) -> dict[str, Any]:
    """Sums rows of `Work.ops` by columns (or by an array of group numbers), sums before ratios, in order of first appearance.

    calls, flop, flop_vector, bytes, measured_ns, sol_ns: sums over the calls that have the value, NaN if none has it.
    known_ns: measured time of the calls with a cost model (the base of rates). modelled_ns: that of the calls with a limit;
    wasted_ns, efficiency: over these. modelled_share: known_ns over measured_ns. bound: the side that holds the larger part of the
    limit. A call whose time is unknown counts in the limit and in no ratio of times.
    flagged: efficiency above 102 %. estimated: of any call, reason: of the first such call.
    """
    out: dict[str, Any]
    if isinstance(by, np.ndarray):
        number, first = np.unique(by, return_index=True)
        code, out = np.searchsorted(number, by), {"group": number}
    else:
        names = [by] if isinstance(by, str) else list(by)
        texts = {n: arrays.coded(ops[n]) for n in names if isinstance(ops[n].dtype, pd.CategoricalDtype)}
        code, first = factorize([texts[n].codes if n in texts else ops[n].to_numpy() for n in names])
        out = {n: arrays.from_codes(texts[n].codes[first], texts[n].categories) if n in texts else ops[n].to_numpy()[first] for n in names}
    size = len(first)

    def total(values: Floats, of: Mask | None = None) -> Floats:
        some = (code, values) if of is None or of.all() else (code[of], values[of])
        return np.bincount(*some, minlength=size).astype(np.float64)

    def any_of(rows: Mask) -> Mask:
        return np.bincount(code[rows], minlength=size) > 0

    out["calls"] = np.bincount(code, launches_of(ops), minlength=size).astype(np.int64)
    value = {name: ops[name].to_numpy(dtype=np.float64) for name in SUMS}
    for name in SUMS:
        good = np.isfinite(value[name])
        out[name] = np.where(any_of(good), total(value[name], good), np.nan)
    measured, sol = value["measured_ns"], value["sol_ns"]
    both = np.isfinite(sol) & (measured > 0)
    limited = np.isfinite(sol) & ~(measured <= 0)
    timed, least, known = total(measured, both), total(sol, both), any_of(both)
    covered = total(measured, ops["modeled"].to_numpy() & np.isfinite(measured))
    efficiency = ratio(np.where(known, least, np.nan), timed)
    side = arrays.coded(ops["bound"]).codes
    parts = [total(sol, limited & (side == s)) for s in (1, 2)]
    bound = np.where(parts[0] + parts[1] == 0, 0, np.where(parts[0] >= parts[1], 1, 2))
    guessed = np.flatnonzero(ops["estimated"].to_numpy())[::-1]
    why = np.full(size, -1, np.int64)
    why[code[guessed]] = guessed  # the first of each
    out |= {
        "known_ns": covered,
        "modelled_ns": timed,
        "wasted_ns": np.where(known, timed - least, np.nan),
        "efficiency": efficiency,
        "modelled_share": ratio(covered, out["measured_ns"]),
        "bound": arrays.from_codes(bound.astype(np.int8), _BOUNDS),
        "flagged": efficiency > TOLERATED,
        "estimated": why >= 0,
        "reason": np.where(why >= 0, arrays.pick(ops["reason"], why), "") if len(ops) else np.zeros(0, object),
    }
    return out


# -- Both sides of the limit of every call ---------------------------------------------------------------------------
# what its arithmetic and what its traffic would take, and the limit at achievable rates.
#
#     compute = max(F / P, Fv / Pv)      memory = Q / W      achievable = max(F / A, Fv / Pv, Q / W)
#
# F, P, A: matrix FLOP, and the dense peak and the achievable rate of their type; Fv, Pv: vector FLOP and peak; Q, W: bytes and memory
# bandwidth. The limit is the larger side (`cost.roofline.limit`).


class Sides(NamedTuple):
    """Times in ns per row of `Work.ops`, NaN where unknown: no cost model, no peak of the type, no bandwidth.

    achievable_ns: the limit with the achievable rate in the place of the matrix peak; known only for matrix work in a type that has
    such a rate.
    """

    compute_ns: Floats
    memory_ns: Floats
    achievable_ns: Floats


def sides(ops: pd.DataFrame, spec: DeviceSpec | None) -> Sides:
    """Returns the sides of the limit of `ops` (rows of `Work.ops`) on `spec`. A call without a limit has none."""
    unknown = np.full(len(ops), np.nan)
    if spec is None:
        return Sides(unknown, unknown.copy(), unknown.copy())
    flop, vector, data = (ops[c].to_numpy(dtype=np.float64) for c in ("flop", "flop_vector", "bytes"))
    dense, vector_peak, reached = (
        _per_type(ops["dtype"], peak) for peak in (spec.matrix_peak, spec.vector_peak, lambda dtype: achievable(spec, dtype))
    )
    bandwidth = spec.memory_bandwidth or np.nan
    compute, memory = roofline.sides(flop, vector, data, dense, vector_peak, bandwidth)
    reach = np.where((flop > 0) & np.isfinite(reached), roofline.limit(flop, vector, data, reached, vector_peak, bandwidth)[0], np.nan)
    limited = np.isfinite(ops["sol_ns"].to_numpy(dtype=np.float64))
    return Sides(*(np.where(limited, time, np.nan) for time in (compute * 1e9, memory * 1e9, reach)))


def achievable(spec: DeviceSpec, dtype: str) -> float | None:
    """Returns FLOP/s that a good product of `dtype` reaches in practice on the device; None where no such figure is known."""
    return spec.achievable_bf16 if dtype == "bf16" else None


def _per_type(column: pd.Series, peak: Callable[[str], float | None]) -> Floats:
    """Returns `peak` of each row's type, NaN where there is none; asked once per type."""
    table = np.array([*(peak(str(d)) or np.nan for d in column.cat.categories), np.nan], np.float64)
    return np.asarray(table[arrays.coded(column).codes], np.float64)


# -- Limits against what a good kernel reaches instead of what the data sheet says -----------------------------------
# the second, lower ceiling.
#
# Matrix work of a type whose achievable rate is known (`DeviceSpec.achievable`) is bound by that rate; every other limit stays as it is.


def achievable_limits(ops: pd.DataFrame, spec: DeviceSpec) -> Floats | None:
    """Returns per row of `Work.ops` its limit in ns at the achievable rates; None where the device has none, or no matrix work uses it."""
    names = ops["dtype"].cat.categories.tolist()
    codes = arrays.coded(ops["dtype"]).codes
    reached = np.array([*(spec.achievable(d) or np.nan for d in names), np.nan])[codes]
    flop = ops["flop"].to_numpy(dtype=np.float64)
    if not (np.isfinite(reached) & (np.nan_to_num(flop) > 0)).any():
        return None
    dense = np.array([*(spec.matrix_peak(d) or np.nan for d in names), np.nan])[codes]
    vector = np.array([*(spec.vector_peak(d) or np.nan for d in names), spec.vector_peak("") or np.nan])[codes]
    time, _ = roofline.limit(
        flop,
        ops["flop_vector"].to_numpy(dtype=np.float64),
        ops["bytes"].to_numpy(dtype=np.float64),
        np.where(np.isfinite(reached), reached, dense),
        vector,
        spec.memory_bandwidth or np.nan,
    )
    return np.where(np.isfinite(ops["sol_ns"].to_numpy(dtype=np.float64)), time, np.nan)
