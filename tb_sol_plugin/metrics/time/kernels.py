"""Groups kernels: calls, times and launch figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time.kernel_classes import KernelClasses, classes_of
from tb_sol_plugin.metrics.time.kernel_names import MANY, kind_of, matrix_of
from tb_sol_plugin.metrics.work.joined import COUNTED
from tb_sol_plugin.metrics.work.sums import VALUES, ratios_of, summed
from tb_sol_plugin.metrics.work.work import Work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import Distinct, Spelled, of_codes, taken
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows

GroupBy: TypeAlias = Literal["name", "name_op", "name_annotation", "properties"]
KEYS: Final[dict[str, tuple[str, ...]]] = {
    "name": ("name",),
    "name_op": ("name", "operator"),
    "name_annotation": ("name", "annotation"),
    "properties": ("name", "operator", "grid", "block", "registers", "shared_memory"),
}
NO_OPERATOR: Final = "(no operator)"
NO_ANNOTATION: Final = "(no range)"
BEFORE_WINDOW: Final = "(launched before the window)"
NO_LAUNCH: Final = "(no launch record)"
OUTSIDE: Final = (NO_OPERATOR, BEFORE_WINDOW, NO_LAUNCH)
"""What stands for the operator of a kernel that has none, by reason."""


Columns: TypeAlias = dict[str, Any]
"""Groups of kernels by column: numbers as arrays, texts as a code per group, or spelled when they are shown."""


def groups(capture: Capture, rows: Mask, by: GroupBy = "name", done: Work | None = None) -> Columns:
    """Returns kernels among some device rows, grouped; longest total first. The totals add up to the plain sum of all their durations.

    done: the work of the capture; adds the columns of `work_sums`: VALUES and what `ratios` makes of them.

    Columns: the keys; id (stable text), crc (the number that it writes), short_name, kind, tensor_core (True, False, None unknown), unit,
    rule, calls, total_ns, mean_ns, median_ns, p95_ns, min_ns, max_ns, longest_ns (start of the longest call), share (of kernel time),
    streams, graph_share and linked_share (of the group's time), blocks_per_sm and occupancy_pct (duration-weighted means over the calls
    that carry them; NaN where none does).
    """
    at = np.flatnonzero(rows & (capture.device["kind"].to_numpy() == S.KERNEL))
    codes, keys = _keys(capture, at, by)
    count = len(keys["crc"])
    device = capture.device
    duration = device["duration_ns"].to_numpy()[at]
    stats = _spread(codes, duration, count)
    stats["longest_ns"] = device["start_ns"].to_numpy()[at][stats["longest_ns"]]
    total = stats["total_ns"]
    whole = int(total.sum())
    graph, known = device["graph"].to_numpy()[at], np.isin(device["link"].to_numpy()[at], (S.BY_CORRELATION, S.BY_FLOW))
    order = np.lexsort((keys["crc"], -stats["calls"], -total))
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    codes, total = place[codes], total[order]  # from here on in the final order
    columns = _in_order(keys | stats, order)
    del keys, stats, order, place  # of a million groups each column takes 8 MB: none is kept longer than it is needed
    columns |= _of_classes(capture, columns.pop("class"), columns["crc"])
    columns |= {
        "share": total / whole if whole else np.full(count, np.nan),
        "streams": _distinct(codes, device["device"].to_numpy()[at] * 1_000_003 + device["stream"].to_numpy()[at], count),
        "graph_share": _part(codes, duration, graph, count),
        "linked_share": _part(codes, duration, known, count),
        "blocks_per_sm": _weighted(codes, device["blocks_per_sm"].to_numpy()[at], duration, count),
        "occupancy_pct": _weighted(codes, device["occupancy_pct"].to_numpy()[at], duration, count),
    }
    if done is not None:
        work = summed(parts_of(done, device["duration_ns"].to_numpy(), at), codes, count)
        columns |= work | ratios_of(work)
    return columns


def _in_order(columns: Columns, order: npt.NDArray[np.intp]) -> Columns:
    """Returns columns in an order; one that stands there twice stays one."""
    done: dict[int, object] = {}
    for values in columns.values():
        if id(values) not in done:
            done[id(values)] = values[order] if isinstance(values, np.ndarray) else taken(values, order)
    return {name: done[id(values)] for name, values in columns.items()}


def parts_of(done: Work, duration: npt.NDArray[np.int64], at: npt.NDArray[np.intp]) -> dict[str, npt.NDArray[np.float64]]:
    """Returns the arrays of `work_sums.VALUES` for device rows `at`. duration: ns of every device row.

    Work that a SOL capture counted for a whole phase is that of no single kernel.

    A kernel takes the part of its operator's work that its time is of the operator's device time: exact where it is the only
    device event of its operator, estimated where there are several. Work whose operator is not known stays unknown.
    """
    if not len(done.ops):
        return dict.fromkeys(VALUES, np.full(len(at), np.nan))
    owner, own = done.owner[at], duration[at].clip(min=0).astype(np.float64)
    row = np.maximum(owner, 0)
    whole = done.ops["device_sum_ns"].to_numpy(dtype=np.float64)[row]
    known = (owner >= 0) & (whole > 0) & ~arrays.where(done.ops["name"], COUNTED.__eq__)[row]
    part = np.where(known, own / np.where(known, whole, 1.0), np.nan)
    of = done.values
    out = {name: of[name][row] * part for name in ("flop", "bytes", "sol_ns", "timed_sol_ns", "compute_limit_ns", "backward_flop")}
    limited = np.isfinite(out["sol_ns"])
    shared = done.ops["device_events"].to_numpy()[row] > 1
    guessed = np.append(done.ops["estimated"].to_numpy(), False)[row]
    return out | {
        "measured_ns": np.where(limited, own, np.nan),
        "modelled_sum_ns": np.where(known & np.isfinite(of["modelled_sum_ns"][row]), own, np.nan),
        "owned_sum_ns": own,
        "recompute_ns": np.where(known & (of["recompute_ns"][row] > 0), own, 0.0),
        "estimated_calls": (limited & (shared | guessed)).astype(np.float64),
    }


def kernel_classes(capture: Capture) -> KernelClasses:
    """Returns one row per distinct name of device work."""
    return _classified(capture)[0]


def class_of(capture: Capture, rows: npt.NDArray[np.integer] | slice) -> Rows:
    """Returns the rows of `kernel_classes` that rows on devices have, -1 for one without a name."""
    return _classified(capture)[1][arrays.coded(capture.device["name"]).codes[rows]]  # type: ignore[no-any-return]


def _classified(capture: Capture) -> tuple[KernelClasses, Rows]:
    def make() -> tuple[KernelClasses, Rows]:
        classes, row = classes_of(capture.device["name"], capture.facts.vendor)
        if len(classes):
            classes.short_name(0)  # names are read here: what takes so long to make is kept
        return classes, row

    return memo(capture, ("kernel_classes",), make)


def kinds_at(capture: Capture, rows: npt.NDArray[np.integer], places: Mapping[str, int]) -> Ints:
    """Returns the kind of work of rows on devices by their names, each by its place; of a kind without one that of "other".

    Where there are many names, what is known of them all is kept.
    """
    names, other = capture.device["name"], places["other"]
    if _of_few_names(names, rows):
        return arrays.per_text(names, rows, lambda name: places.get(kind_of(name), other), np.int64)
    classes = kernel_classes(capture)
    known = np.append(np.array([places.get(kind, other) for kind in classes.kind_names], np.int64)[classes.kind], other)
    return np.asarray(known[class_of(capture, rows)], np.int64)


def matrix_units_at(capture: Capture, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int8]:
    """Returns whether rows on devices run on matrix units, by their names: 1 yes, 0 no, -1 unknown."""
    names, vendor = capture.device["name"], capture.facts.vendor
    if _of_few_names(names, rows):
        return arrays.per_text(names, rows, lambda name: {True: 1, False: 0, None: -1}[matrix_of(name, vendor).tensor_core], np.int8)
    known: npt.NDArray[np.int8] = np.append(kernel_classes(capture).tensor_core, np.int8(-1))
    return known[class_of(capture, rows)]  # type: ignore[no-any-return]


def _of_few_names(names: pd.Series[str], rows: npt.NDArray[np.integer]) -> bool:
    """Whether rows have few names, whatever else is among the names of a recording."""
    text = arrays.coded(names)
    return len(text.categories) < MANY or len(arrays.in_use(text.codes[rows], len(text.categories))) < MANY


def short_kernel_names(capture: Capture, wanted: Iterable[str] | None = None) -> dict[str, str]:
    """Returns the short name of each device name of a recording. wanted: of those among them only, where there may be a million others.

    Those of few names are kept: do not change them.
    """
    classes = kernel_classes(capture)

    def made(rows: npt.NDArray[np.integer] | slice) -> dict[str, str]:
        return dict(zip(classes.names(rows), classes.short_names(rows), strict=True))

    if len(classes) <= MANY:
        return memo(capture, ("short_kernel_names",), lambda: made(slice(None)))
    if wanted is None:
        return made(slice(None))
    asked = set(wanted)
    return made(np.array([row for row, name in enumerate(classes.names()) if name in asked], np.int64))


def short_names_at(capture: Capture, rows: npt.NDArray[np.integer]) -> list[str]:
    """Returns the short names of rows on devices, "" for one without a name."""
    own = class_of(capture, rows)
    known = np.flatnonzero(own >= 0)
    out = [""] * len(own)
    for place, short in zip(known.tolist(), kernel_classes(capture).short_names(own[known]), strict=True):
        out[place] = short
    return out


def _keys(capture: Capture, at: npt.NDArray[np.intp], by: GroupBy) -> tuple[npt.NDArray[np.int64], Columns]:
    """Returns the group of each kernel, and by group: the row of its class, its keys, and the number that its id writes."""
    device = capture.device
    name = arrays.coded(device["name"])
    columns: dict[str, npt.NDArray[np.int64]] = {"name": name.codes[at].astype(np.int64)}
    if by in ("name_op", "properties"):
        columns["operator"] = _operator_codes(capture, at)
    if by == "name_annotation":
        columns["annotation"], ranges = annotations_of(capture, at)
    if by == "properties":
        columns |= {c: arrays.codes(device[c])[at] for c in ("grid", "block")}
        columns |= {c: device[c].to_numpy()[at] for c in ("registers", "shared_memory")}
    codes, first = arrays.factorize([values + 2 for values in columns.values()])  # of operators the least is -3
    picked = {c: values[first] for c, values in columns.items()}
    table: Columns = {"class": class_of(capture, at[first]), "name": of_codes(picked["name"], name.categories)}
    if "operator" in picked:
        used, place = arrays.in_order(picked["operator"])
        table["operator"] = Distinct(place.astype(np.int32), [*_operator_names(capture, used)])
    if by == "name_annotation":
        table["annotation"] = of_codes(picked["annotation"] % (len(ranges) + 1), np.array([*ranges, NO_ANNOTATION], object))
    if by == "properties":
        for c in ("grid", "block"):
            texts = [str(device[c].cat.categories[i]) or None if i >= 0 else None for i in picked[c].tolist()]
            table[c] = pd.Series(texts).to_numpy(object)  # beside others an unknown one is NaN, as ids spell it
        for c in ("registers", "shared_memory"):
            table[c] = np.where(picked[c] >= 0, picked[c], np.nan)
    words = zip(*(table[c] if isinstance(table[c], Distinct) else table[c].tolist() for c in KEYS[by]), strict=True)
    table["crc"] = np.fromiter((crc32(repr(t).encode()) for t in words), np.uint32, len(first))
    return codes, table


def _of_classes(capture: Capture, own: Rows, crc: npt.NDArray[np.uint32]) -> Columns:
    """Returns what the names of groups say. own, crc: the row of their class, and the number that their id writes."""
    classes = kernel_classes(capture)
    match, known = classes.match[own], classes.matches
    return {
        "short_name": Spelled(len(own), lambda rows: [*classes.short_names(own[rows])], len(arrays.in_use(own, len(classes)))),
        "tensor_core": of_codes(classes.tensor_core[own], np.array([False, True], object)),
        "unit": of_codes(match, np.array([m.unit for m in known], object)),
        "rule": of_codes(match, np.array([m.rule for m in known], object)),
        "kind": of_codes(classes.kind[own], np.array(classes.kind_names, object)),
        "id": Spelled(len(own), lambda rows: [f"{number:08x}" for number in crc[rows].tolist()]),
    }


def annotations_of(capture: Capture, at: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Returns (the user range of each of some device rows, by its place among the names; -1 none, these names).

    It is the innermost one around the launch; where no launch was recorded, the device's copy of a range that it starts in on its stream.
    """
    host, device, copies = capture.host, capture.device, capture.tables["annotations_device"]
    code = np.full(len(at), -1, np.int64)
    names = arrays.coded(host["name"])
    row = device["annotation"].to_numpy()[at]
    if len(host):
        code = np.where(row >= 0, names.codes[np.maximum(row, 0)].astype(np.int64), -1)
    lost = np.flatnonzero(device["call"].to_numpy()[at] < 0)
    texts = [str(n) for n in names.categories.tolist()]
    if len(lost) and len(copies):
        more = arrays.coded(copies["name"])
        begin, stop = (copies["start_ns"].to_numpy() + extra for extra in (0, copies["duration_ns"].to_numpy()))
        start = device["start_ns"].to_numpy()[at][lost]
        both = [np.concatenate((device[c].to_numpy()[at[lost]], copies[c].to_numpy())) for c in ("device", "stream")]
        stream, _ = arrays.factorize([arrays.numbered(values)[0] for values in both])
        own, theirs = stream[: len(lost)], stream[len(lost) :]
        order = np.lexsort((start, own))
        for one in np.lexsort((-stop, begin)).tolist():  # what lies inside comes later
            low, high = np.searchsorted(own[order], (theirs[one], theirs[one] + 1))
            mine = order[low:high]
            low, high = np.searchsorted(start[mine], (begin[one], stop[one]))
            code[lost[mine[low:high]]] = len(texts) + int(more.codes[one])
        texts += [str(n) for n in more.categories.tolist()]
    short, first = pd.factorize(np.array([*texts, ""], object))
    return np.where(code >= 0, short[code], -1), first.tolist()


def _operator_codes(capture: Capture, at: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """Returns the code of the operator's name in the host table; -1, -2, -3: no operator, before the window, no launch record."""
    operator = capture.device["operator"].to_numpy()[at]
    link = capture.device["link"].to_numpy()[at]
    why = np.select([link == S.BEFORE_WINDOW, link == S.NO_RECORD], [-2, -3], -1)
    if not len(capture.host):
        return why.astype(np.int64)
    names = arrays.coded(capture.host["name"]).codes
    return np.where(operator >= 0, names[np.maximum(operator, 0)], why).astype(np.int64)


def _operator_names(capture: Capture, codes: npt.NDArray[np.int64]) -> list[str]:
    categories = capture.host["name"].cat.categories
    return [str(categories[c]) if c >= 0 else OUTSIDE[-1 - c] for c in codes.tolist()]


def _spread(codes: npt.NDArray[np.int64], duration: npt.NDArray[np.int64], count: int) -> dict[str, npt.NDArray[np.int64]]:
    """Returns exact integer statistics per group; the median is the mean of the middle two, p95 the nearest rank, both whole ns.

    longest_ns: the row of the longest call, instead of its start.
    """
    order = np.lexsort((duration, codes))
    value = duration[order]
    calls = np.bincount(codes, minlength=count).astype(np.int64)
    start = np.concatenate((np.zeros(1, np.int64), np.cumsum(calls)))[:-1]
    if not count:
        names = ("calls", "total_ns", "mean_ns", "median_ns", "p95_ns", "min_ns", "max_ns", "longest_ns")
        return dict.fromkeys(names, np.zeros(0, np.int64))
    if count == len(value):  # one call each, as of names that are numbered
        alike = dict.fromkeys(("total_ns", "mean_ns", "median_ns", "p95_ns", "min_ns", "max_ns"), value)
        return alike | {"calls": calls, "longest_ns": order}
    total = np.add.reduceat(value, start)
    middle = value[start + (calls - 1) // 2] + value[start + calls // 2]
    return {
        "calls": calls, "total_ns": total, "mean_ns": (2 * total + calls) // (2 * calls), "median_ns": middle // 2,
        "p95_ns": value[start + (95 * calls + 99) // 100 - 1], "min_ns": value[start], "max_ns": value[start + calls - 1],
        "longest_ns": order[start + calls - 1],
    }  # fmt: skip


def _part(codes: npt.NDArray[np.int64], duration: npt.NDArray[np.int64], chosen: Mask, count: int) -> npt.NDArray[np.float64]:
    """Returns the share of each group's time in the chosen calls; of its calls where the time is 0."""
    if not chosen.any():
        return np.zeros(count)
    calls, time = np.bincount(codes, minlength=count), np.bincount(codes, duration, minlength=count)
    chosen_calls, chosen_time = np.bincount(codes[chosen], minlength=count), np.bincount(codes[chosen], duration[chosen], minlength=count)
    return np.where(time > 0, chosen_time / np.maximum(time, 1), chosen_calls / np.maximum(calls, 1))


def _weighted(
    codes: npt.NDArray[np.int64], value: npt.NDArray[np.float64], duration: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.float64]:
    """Returns the duration-weighted mean per group over the calls that carry a value; plain mean where these have no time.

    NaN where none does.
    """
    there = np.isfinite(value)
    if not there.any():
        return np.full(count, np.nan)
    codes, value, duration = codes[there], value[there], duration[there]
    calls, time = np.bincount(codes, minlength=count), np.bincount(codes, duration, minlength=count)
    weighted, plain = np.bincount(codes, value * duration, minlength=count), np.bincount(codes, value, minlength=count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(time > 0, weighted / time, plain / np.where(calls > 0, calls, np.nan)), np.float64)


def _distinct(codes: npt.NDArray[np.int64], value: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Returns the number of different values per group."""
    values, distinct = pd.factorize(value)
    pairs = pd.unique(codes * max(len(distinct), 1) + values)
    return np.bincount(pairs // max(len(distinct), 1), minlength=count).astype(np.int64)
