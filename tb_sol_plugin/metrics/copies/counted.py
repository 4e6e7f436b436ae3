"""Groups copies that were counted without being recorded as events: by a SOL capture at the dispatcher, or by Proton.

The columns are those of `groups.table`; what was not timed is NaN. A SOL capture times the calls of the host only, Proton the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.copies.records import COPY_KERNEL, DIRECTIONS
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.trees.label_times import label_paths
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, exact_sums

By: TypeAlias = Literal["direction", "kind", "device", "step", "phase", "module", "operator"]
Texts: TypeAlias = npt.NDArray[np.object_]

NO_STEP: Final = "(of no one step)"
NO_MODULE: Final = "(no module)"
NO_PHASE: Final = "(no phase)"
NO_OPERATOR: Final = "(no operator)"
NOT_KNOWN: Final = "(not recorded)"
READS: Final = "aten::_local_scalar_dense"
"""The operator behind `item()`, `float(tensor)` and `if tensor:`."""
WITHIN: Final = ("HtoH", "DtoD", COPY_KERNEL)
"""Directions that stay within the host or within a device."""

EVENTS_ONLY: Final = (
    "oversize", "median_ns", "p95_ns", "large_count", "large_bytes", "large_bytes_per_s", "union_ns", "hidden_ns", "exposed_ns",
    "idle_exposed_ns",
)  # fmt: skip
"""Columns of recorded copies that need each copy by itself: NaN here."""


def has(capture: Capture) -> bool:
    """Returns whether any copy was counted."""
    return len(capture.tables["copies"]) > 0


def counted(capture: Capture, where: Scope | None = None) -> pd.DataFrame:
    """Returns the rows of COPIES in a selection of steps; all of them where no step is asked for.

    Those of no one step are in every whole.
    """
    table = capture.tables["copies"]
    if where is None or where.whole:
        return table
    return table[np.isin(table["step"].to_numpy(), where.rows)].reset_index(drop=True)


def iterations(capture: Capture, where: Scope | None = None) -> int:
    """Returns the divisor of an average per step: the iterations in which copies were counted; 1 where they are of no one step."""
    if where is not None and not where.whole:
        return max(len(where.rows), 1)
    table = counted(capture, where)
    numbers = set(table["iteration"].to_numpy()[table["iteration"].to_numpy() >= 0].tolist())
    sampled = capture.tables["iterations"]
    looked_at = set(capture.steps["number"].to_numpy()[capture.steps["number"].to_numpy() >= 0].tolist())
    if len(sampled) and capture.facts.source == "sol_capture":
        numbers |= looked_at & set(sampled["number"].to_numpy()[sampled["sampled"].to_numpy()].tolist())
    return max(len(numbers), 1)


def labels(capture: Capture, rows: pd.DataFrame, by: str) -> Texts:
    """Returns what each row of COPIES is grouped by besides its direction; "" for direction and kind."""
    if by in ("direction", "kind"):
        return np.full(len(rows), "", object)
    if by == "step":
        return np.array([str(n) if n >= 0 else NO_STEP for n in rows["iteration"].tolist()], object)
    if by == "operator":
        return _or(arrays.pick(rows["name"], np.arange(len(rows))), NO_OPERATOR)
    if by == "device":
        return _devices(rows)
    if by == "module":
        table = capture.tables["labels"]
        names = arrays.pick(table["name"], np.arange(len(table)))
        classes = arrays.pick(table["class_name"], np.arange(len(table)))
        known = {i: str(n or c) for i, (n, c) in enumerate(zip(names.tolist(), classes.tolist(), strict=True))}
        return _by_label(rows["module"].to_numpy(), known, NO_MODULE)
    if by == "phase":
        return _by_label(rows["phase"].to_numpy(), {i: "/".join(p) for i, p in enumerate(label_paths(capture))}, NO_PHASE)
    return np.full(len(rows), NOT_KNOWN, object)


def _or(text: Texts, otherwise: str) -> Texts:
    return np.where(text == "", otherwise, text).astype(object)


def _by_label(label: npt.NDArray[np.integer], names: Mapping[int, str], none: str) -> Texts:
    return np.array([names.get(i) or none for i in label.tolist()], object)


def _devices(rows: pd.DataFrame) -> Texts:
    out = []
    for direction, src, dst in zip(rows["direction"].astype(str), rows["src_device"].tolist(), rows["dst_device"].tolist(), strict=True):
        if src >= 0 and dst >= 0 and src != dst:
            out.append(f"device {src} to {dst}")
        else:
            out.append(f"device {max(src, dst)}" if max(src, dst) >= 0 else "host" if direction == "HtoH" else NOT_KNOWN)
    return np.array(out, object)


def table(capture: Capture, by: str, where: Scope | None = None) -> pd.DataFrame:
    """Returns counted copies in groups, as `groups.table` has them. Count and bytes add up to the same sums whatever `by` is.

    Columns: those of `groups.table`, of which EVENTS_ONLY are NaN; time_ns, mean_ns, share and bandwidth_bytes_per_s too where any copy of
    the row was not timed. Besides: call_ns (of the host, inside the calls), blocking (copies that the host waited for); NaN where unknown
    for any copy of the row.
    """
    rows = counted(capture, where)
    group = labels(capture, rows, by)
    found = pd.DataFrame({c: arrays.pick(rows[c], np.arange(len(rows))) for c in ("direction", "src_kind", "dst_kind")})
    found["direction"] = _or(found["direction"].to_numpy(object), "Unknown")
    found["group"] = group
    keys = ["direction", "src_kind", "dst_kind"] if by == "kind" else ["direction"] if by == "direction" else ["direction", "group"]
    grouped = found.groupby(keys, sort=False)
    code = grouped.ngroup().to_numpy().astype(np.int64)
    first = np.unique(code, return_index=True)[1]
    out = found.iloc[first].reset_index(drop=True)
    if by != "kind":
        for c in ("src_kind", "dst_kind"):
            out[c] = _joined(code, found[c].to_numpy(object), len(out))
    out = out.assign(**_sums(code, rows, len(out)))
    place = {d: i for i, d in enumerate(DIRECTIONS)}
    out["_place"] = [place.get(d, len(place)) for d in out["direction"]]
    order = ["_place", "bytes", "count"] if by in ("direction", "kind") else ["bytes", "count", "_place"]
    return out.sort_values(order, ascending=[c == "_place" for c in order], kind="stable", ignore_index=True).drop(columns="_place")


def _joined(code: Ints, text: Texts, count: int) -> list[str]:
    seen: list[set[str]] = [set() for _ in range(count)]
    for c, t in set(zip(code.tolist(), text.tolist(), strict=True)):
        if t:
            seen[c].add(t)
    return [", ".join(sorted(s)) for s in seen]


def _sums(code: Ints, rows: pd.DataFrame, count: int) -> dict[str, npt.NDArray[np.generic]]:
    copies, size, without = (exact_sums(code, rows[c].to_numpy(), count) for c in ("count", "bytes", "without_bytes"))
    time, call = (np.bincount(code, rows[c].to_numpy(np.float64), count) for c in ("time_ns", "call_ns"))
    blocking = rows["blocking"].to_numpy(np.float64)
    waited = np.bincount(code, np.where(blocking < 0, np.nan, blocking), count)
    known = np.where(without < copies, size.astype(np.float64), np.nan)
    all_time, all_bytes = float(time.sum()), int(size.sum())
    none = np.full(count, np.nan)
    rated = rows["without_bytes"].to_numpy() == 0  # of the others it is not known what part of the time is theirs
    rated_bytes = np.bincount(code[rated], rows["bytes"].to_numpy(np.float64)[rated], count)
    rated_time = np.bincount(code[rated], rows["time_ns"].to_numpy(np.float64)[rated], count)
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "count": copies,
            "bytes": known,
            "without_bytes": without,
            "time_ns": time,
            "mean_ns": time / copies,
            "share": time / all_time if all_time > 0 else none,
            "bytes_share": size / all_bytes if all_bytes else none,
            "bandwidth_bytes_per_s": np.where(rated_time > 0, rated_bytes / rated_time * 1e9, np.nan),
            "call_ns": call,
            "blocking": waited,
            **dict.fromkeys(EVENTS_ONLY, none),
        }


# -- Counted copies for which the host waits ------------------------------------------------------------------------------
# numbers that the host reads, pageable memory, copies that were asked to block.
#
# What a copy costs is not known without its time on the device; this shows how often it happens, where, and how long the host was in
# the calls while copies were counted, which is no saving.


LAYOUT_BYTES: Final = 1 << 20
"""Bytes per step from which copies into another layout are reported."""
PLACES: Final = 2
NO_PLACE: Final = ("(", "Memcpy ")
"""Beginnings of what names no place: `(no module)`, and copies that another profiler names by their direction."""


@dataclass(frozen=True)
class CountedPattern:
    """Copies of one sort in the selected steps.

    rule: reads, pageable, blocking, layout. direction: of the copies. copies, sized_bytes, unsized: sums (unsized: copies without a size).
    waits: copies that the host waited for, 0 also where that is not known. call_ns: of the host inside the calls, time_ns: on the device;
    NaN unknown. operators, modules, phases: where most of
    them are made, the most first. candidate: may be meant.
    """

    rule: str
    direction: str
    copies: int
    sized_bytes: int
    unsized: int
    waits: int
    call_ns: float
    time_ns: float
    operators: tuple[str, ...]
    modules: tuple[str, ...]
    phases: tuple[str, ...]
    candidate: bool = False


def counted_patterns(capture: Capture, where: Scope | None = None) -> list[CountedPattern]:
    """Returns patterns of counted copies that make the host wait, ordered by host time in the calls, then by device time, then by number.

    From pageable memory every copy makes the host wait, so those count also where nobody knows of the waiting (a profile of Proton).
    """
    rows = counted(capture, where)
    if not len(rows):
        return []
    at = np.arange(len(rows))
    direction, src, dst = (arrays.pick(rows[c], at) for c in ("direction", "src_kind", "dst_kind"))
    waits, unknown = rows["blocking"].to_numpy() > 0, rows["blocking"].to_numpy() < 0
    timed = np.isfinite(rows["time_ns"].to_numpy(np.float64))
    crosses = (direction == "HtoD") | (direction == "DtoH")
    host_kind = np.where(direction == "HtoD", src, dst)
    reads = waits & (direction == "DtoH") & (host_kind == "")
    out = []
    if reads.any():
        out.append(_pattern(capture, rows, reads, "reads", "DtoH"))
    for one in ("HtoD", "DtoH"):
        of_direction = crosses & (direction == one)
        for rule, kind, waiting in (("pageable", "Pageable", waits | (unknown & timed)), ("blocking", "Pinned", waits)):
            chosen = of_direction & waiting & (host_kind == kind)
            if chosen.any():
                out.append(_pattern(capture, rows, chosen, rule, one))
    layout = direction == COPY_KERNEL
    moved = int(rows["bytes"].to_numpy()[layout].sum())
    if moved >= LAYOUT_BYTES * iterations(capture, where):
        out.append(_pattern(capture, rows, layout, "layout", COPY_KERNEL))
    return sorted(out, key=lambda f: (f.candidate, -np.nan_to_num(f.call_ns), -np.nan_to_num(f.time_ns), -f.copies))


def _pattern(capture: Capture, rows: pd.DataFrame, chosen: npt.NDArray[np.bool_], rule: str, direction: str) -> CountedPattern:
    chosen_rows = rows[chosen].reset_index(drop=True)
    count = chosen_rows["count"].to_numpy()

    def most(by: str) -> tuple[str, ...]:
        label = labels(capture, chosen_rows, by)
        sums = pd.Series(count).groupby(label, sort=False).sum().sort_values(ascending=False, kind="stable")
        return tuple(str(name) for name in sums.index if not str(name).startswith(NO_PLACE))[:PLACES]

    return CountedPattern(
        rule,
        direction,
        int(count.sum()),
        int(chosen_rows["bytes"].sum()),
        int(chosen_rows["without_bytes"].sum()),
        int(np.maximum(chosen_rows["blocking"].to_numpy(), 0).sum()),
        float(chosen_rows["call_ns"].to_numpy(np.float64).sum()),
        float(chosen_rows["time_ns"].to_numpy(np.float64).sum()),
        most("operator"),
        most("module"),
        most("phase"),
        rule == "layout",
    )
