"""What the roofline says in sentences: the headline and the notices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.efficiency.roofline_columns import COLUMNS, ID, KIND_COLUMNS, LIST_COLUMNS, UNMODELED_COLUMNS
from tb_sol_plugin.analyses.efficiency.roofline_selection import (
    COMMUNICATION,
    NO_MODEL,
    OUTSIDE,
    OVER_LINK,
    PARTS,
    Case,
    Selection,
    likely_cause,
)
from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.devices.limits import caution, why_no_limits
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.report.longest import on_timeline
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.kernel_names import short_name
from tb_sol_plugin.metrics.work.columns import ranked
from tb_sol_plugin.metrics.work.costs import KINDS
from tb_sol_plugin.metrics.work.rows import RowColumns
from tb_sol_plugin.metrics.work.sums import partial
from tb_sol_plugin.metrics.work.work import Work, launches_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import number_of
from tb_sol_plugin.model.report import (
    Column,
    Link,
    Mark,
    Notice,
    Scalar,
    Sort,
    TableSection,
    make_table,
)
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Places
from tb_sol_plugin.units import capitalized, human

# -- Query and columns ------------------------------------------------------------------------------------------------
# the calls of the selection, and where every nanosecond of its device time belongs.


PLAIN = 0.95
"""A modeled share from which the ratio stands without its share."""
LEAD = 0.80
"""The same from which the ratio leads."""


def headline(frame: RowColumns, facts: dict[str, Scalar], spec: DeviceSpec | None, *, by_host: bool, counted: str = "") -> str:
    """Returns how far the modeled work is from its limit, and how few rows hold the time above it.

    counted: of a SOL capture, what its work was counted in (`3 sampled iterations`).
    """
    share, efficiency = facts["modelled_share"], facts["efficiency"]
    if not isinstance(efficiency, float) and counted:
        return _counted(frame, facts, spec, counted, by_host=by_host)
    if not isinstance(efficiency, float):
        if by_host:
            return "This recording has no device work: rates are over host time, and the limits of this CPU are not known."
        covered = human(number_of(share), "ratio")
        if spec is not None:
            return f"No work with a known limit is selected: {covered} of device time is modeled."
        return f"The limits of the device are not known: rates are shown, efficiencies are not. {covered} of device time is modeled."
    who = "operators" if by_host else "kernels"
    first = f"Modeled {who} run at **{human(efficiency, 'ratio')}** of what the {spec.name if spec else 'device'} allows."
    if isinstance(share, float) and share < LEAD:
        first = f"Limits are known for **{human(share, 'ratio')}** of {'host' if by_host else 'device'} time; that part runs at "
        first += f"{human(efficiency, 'ratio')} of what the {spec.name if spec else 'device'} allows."
    elif isinstance(share, float) and share < PLAIN:
        covered = f"{human(share, 'ratio')} of {'host' if by_host else 'device'} time"
        first = f"Modeled {who}, {covered}, run at **{human(efficiency, 'ratio')}** of what the {spec.name if spec else 'device'} allows."
    wasted = frame["wasted_ns"]
    above = np.sort(wasted[np.isfinite(wasted) & (wasted > 0)])[::-1]
    if not len(above):
        return first
    running = np.cumsum(above) / above.sum()
    count = min(int(np.searchsorted(running, 0.8)) + 1, 5, len(above))
    word = ("", "One row holds", "Two rows hold", "Three rows hold", "Four rows hold", "Five rows hold")[count]
    rows = word if running[count - 1] >= 0.8 else "The five largest rows hold"
    return f"{first} {rows} **{human(float(running[count - 1]), 'ratio')}** of the time above the limit."


def _counted(frame: RowColumns, facts: dict[str, Scalar], spec: DeviceSpec | None, counted: str, *, by_host: bool) -> str:
    """Returns the work of a SOL capture, and its limit where that is known."""
    flop, vector = number_of(facts["total_flop"]), number_of(facts["total_vector_flop"])
    work = human(flop, "FLOP") if flop else f"{human(vector, 'FLOP')} of vector work" if vector else "no work with a cost model"
    traffic = f" and {human(number_of(facts['total_bytes']), 'B')}" if facts["total_bytes"] else ""
    first = f"{capitalized(counted)} hold **{work}**{traffic}" if counted[:1].isdigit() else f"The {counted} holds **{work}**{traffic}"
    sol = number_of(facts["sol_ns"])
    if sol is None or spec is None:
        return f"{first}; the limits of {'this CPU' if by_host else 'the device'} are not known."
    steps = number_of(facts.get("steps_ns"))
    if steps:
        took = f"; they took {human(steps, 'ns')}" if counted[:1].isdigit() else f"; it took {human(steps, 'ns')}"
        return f"{first}, which take **{human(sol, 'ns')}** at the limits of {spec.name}{took}."
    return f"{first}, which take **{human(sol, 'ns')}** at the limits of {spec.name}."


def notices(capture: Capture, done: Work, chosen: Selection, unmodeled: pd.DataFrame, *, direction: str, l2: bool) -> list[Notice]:
    """Returns why limits are missing or guessed, what is not modeled, what was launched before the window, what a choice leaves out."""
    spec = done.spec
    out: list[Notice] = []
    if spec is None:
        why = why_no_limits(capture)
        out.append(Notice(f"{capitalized(why)}.", "info" if done.by_host_time else "warn"))
    elif caution(spec):
        out.append(Notice(caution(spec)))
    if l2 and (spec is None or spec.l2_bytes_per_s is None):
        name = spec.name if spec else "this device"
        text = f"No L2 bandwidth of {name} is known, so there is no L2 roof; a device file can give it as `l2_bw_gb_per_s`."
        out.append(Notice(text, "info"))
    out += _without_model(chosen, unmodeled, by_host=done.by_host_time)
    early = chosen.ops["inferred"].to_numpy()
    if early.any():
        time = human(int(chosen.ops["measured_ns"].to_numpy()[early].sum()), "ns")
        left = chosen.outside.get(at.BEFORE, 0)
        rest = f" {human(left, 'ns')} more match no recorded call." if left else ""
        text = f"{time} were launched before the recording began and take the work of recorded calls with the same kernel, grid and block."
        out.append(Notice(f"{text} They are listed in rows of their own, marked estimated.{rest}", "info"))
    if direction != "both" and len(capture.device):
        alone = int(capture.device["duration_ns"].to_numpy().clip(min=0)[done.owner < 0].sum())
        if alone:
            text = f"Only the {direction} pass is shown. {human(alone, 'ns')} that no operator launched belong to no pass and are left out."
            out.append(Notice(text, "info"))
    return out


def _without_model(chosen: Selection, unmodeled: pd.DataFrame, *, by_host: bool) -> list[Notice]:
    without_model = chosen.whole_ns - chosen.modelled_ns - chosen.apart_ns
    if not chosen.whole_ns or without_model <= 0.1 * chosen.whole_ns or by_host:
        return []
    covered = human(chosen.modelled_ns / chosen.whole_ns, "ratio")
    apart = chosen.apart_ns
    rest = f" {human(apart, 'ns')} are communication and copies over a link, which this chart does not bound." if apart else ""
    largest = unmodeled.groupby("name", sort=False)["measured_ns"].sum().sort_values(ascending=False, kind="stable").head(3)
    named = ", ".join(f"`{name}` {human(int(time), 'ns')}" for name, time in largest.items()) if chosen.parts.get(NO_MODEL) else ""
    tail = f" Largest without: {named}." if named else ""
    return [Notice(f"A cost model covers {covered} of device time.{rest}{tail}", "info")]


# -- Tables of the roofline -------------------------------------------------------------------------------------------
# all rows, those with most time above their limit, the kinds of work, and what has no model.


MOST_ROWS: Final = 20_000
LISTED: Final = 10
ONE: Final = {
    "op_shape": "Operator",
    "op": "Operator",
    "kernel": "Kernel",
    "module": "Module",
    "layer": "Layer",
    "phase": "Phase",
    "step": "Step",
    "dtype": "Type",
    "kind": "Kind",
    "forward_phase": "Forward phase",
    "function": "Function",
}
LEADS: Final = {
    "kernel": ("kernels", "In the kernels"),
    "module": ("modules", "In the modules"),
    "layer": ("modules", "In the modules"),
    "phase": ("phases", "In the phases"),
    "forward_phase": ("phases", "In the phases"),
}
"""Where a row leads, by what it is grouped by; operators lead to the operators."""
HIDDEN: Final = "(rows not shown)"
KIND_NAMES: Final = {
    "gemm": "GEMM",
    "attention": "Attention",
    "conv": "Convolution",
    "norm": "Norm, softmax",
    "elementwise": "Elementwise",
    "other": "Other",
}
EVERYTHING: Final = "Everything is modeled."
EVERY_OPERATOR: Final = "Every operator is modeled. The rest is communication, copies over a link, or launched by no recorded operator."
KIND_PAGES: Final = {COMMUNICATION: "communication", OVER_LINK: "memcpy"}
_WHOLE: Final = ("calls", "measured_ns", "sol_ns", "compute_ns", "memory_ns", "wasted_ns", "flop", "vector_flop", "bytes")


def with_causes(frame: RowColumns, spec: DeviceSpec | None, short: Mapping[str, str], by: str = "") -> RowColumns:
    """Returns `frame` with `cause`: why a flagged row is faster than its limit, "" for the others; kernels by their short names.

    short: these, of the kernels of the recording; the others keep their names. Rows of kernels too, where no two share one.
    """
    causes = [""] * count_of(frame)
    if spec is not None:
        columns = ("kind", "dtype", "bound", "kernels", "calls", "bytes", "efficiency", "reason")
        picked = np.flatnonzero(frame["flagged"])
        cases = zip(*(frame[name][picked].tolist() for name in columns), strict=True) if len(picked) else ()
        for at, values in zip(picked.tolist(), cases, strict=True):
            causes[at] = likely_cause(Case(*values), spec)
    main = [_brief(name, short) for name in frame["main_kernel"].tolist()]
    out: RowColumns = frame | {"cause": np.array(causes, object), "main_kernel": np.array(main, object)}
    if by == "kernel":
        names = out["name"].tolist()
        brief = [_brief(name, short) if "::" in name else name for name in names]
        often = Counter(brief)
        out["name"] = np.array([new if often[new] == 1 else old for new, old in zip(brief, names, strict=True)], object)
    return out


def count_of(frame: RowColumns) -> int:
    """Returns how many rows there are."""
    return len(frame["name"])


def _brief(name: str, short: Mapping[str, str]) -> str:
    """Returns the short name of a kernel of the recording, or of a profile, which has no single kernels; "" for none."""
    return short.get(name) or (short_name(name) if name else "")


def shown_rows(frame: RowColumns, top: int, least_share: float) -> RowColumns:
    """Returns the `top` rows with most time above their limit (0: all) that hold at least `least_share` of the time; longest first."""
    if least_share > 0:
        frame = taken(frame, np.flatnonzero(frame["share"] >= least_share))
    if 0 < top < count_of(frame):
        wasted = np.nan_to_num(frame["wasted_ns"], nan=-np.inf)
        frame = taken(frame, np.sort(np.argsort(-wasted, kind="stable")[:top]))
    return frame


def taken(frame: RowColumns, rows: Places) -> RowColumns:
    """Returns some of the rows, in the order of their places."""
    return {name: values[rows] for name, values in frame.items()}


# -- All rows ---------------------------------------------------------------------------------------------------------


def rows_table(
    capture: Capture, frame: RowColumns, shown: RowColumns, chosen: Selection, total: dict[str, Scalar], by: str
) -> TableSection:
    """Builds the table of the rows, then what stands outside: rows left out by the query, and device time that no operator owns."""
    measured = float(np.nansum(frame["measured_ns"]))
    whole = measured + sum(chosen.outside.values())
    count, hidden = count_of(shown), count_of(frame) - count_of(shown)
    extra = {HIDDEN: measured - float(np.nansum(shown["measured_ns"]))} if hidden else {}
    extra |= {name: float(ns) for name, ns in chosen.outside.items()}
    body = _with_rows(taken(shown, np.arange(MOST_ROWS)) if count > MOST_ROWS else shown, extra)
    body["share"] = body["measured_ns"] / whole if whole else np.full(len(body["measured_ns"]), np.nan)
    body = _integers(body, _WHOLE)
    table = make_table(
        "ops",
        f"{ONE[by]}s",
        body,
        (ID, *_ranked(frame, by)),
        key="id",
        subtitle=_hidden_text(frame, shown),
        sort=Sort("measured_ns" if whole else "sol_ns"),
        total=total | {"measured_ns": round(whole) if whole or chosen.timed else None, "share": 1.0 if whole else None},
        last=list(extra),
        marks=_marks(body),
        filters=["kind", "bound"],
        timeline=on_timeline(capture, "calls"),
        truncated=max(count - MOST_ROWS, 0),
        footer="Bytes are a lower bound: each tensor read or written once.",
        empty="No operator has device time here.",
    )
    _add_links(table, set(extra), by)
    return table


_WORDS: Final = ("input_shapes", "dtype", "direction", "flags", "reason", "main_kernel", "cause")


def _with_rows(frame: RowColumns, times: Mapping[str, float]) -> RowColumns:
    """Returns the rows with one more for each name of `times`, of which only the time is known."""
    out = dict(frame)
    if not times:
        return out
    words = dict.fromkeys(_WORDS, "") | {"kind": "other", "bound": "none"}
    for name, values in frame.items():
        if values.dtype.kind == "O":
            out[name] = np.append(values, np.full(len(times), words.get(name), object))
        elif values.dtype.kind == "b":
            out[name] = np.append(values, np.zeros(len(times), bool))
        else:
            known = values.to_numpy(np.float64, na_value=np.nan) if isinstance(values, pd.arrays.IntegerArray) else values
            out[name] = np.append(known, np.full(len(times), np.nan))
    names = np.array(list(times), object)
    whole = {"id": names, "name": names, "measured_ns": np.array(list(times.values()))}
    return out | {name: np.append(frame[name], values) for name, values in whole.items()}


def _hidden_text(frame: RowColumns, shown: RowColumns) -> str:
    """Returns `showing 50 of 312 rows, 99.2 % of their time`; "" where all are shown."""
    if count_of(shown) == count_of(frame):
        return ""
    time, whole = float(np.nansum(shown["measured_ns"])), float(np.nansum(frame["measured_ns"]))
    share = f", {human(time / whole, 'ratio')} of their time" if whole else ""
    return f"showing {human(count_of(shown), 'count')} of {human(count_of(frame), 'count')} rows{share}"


def _ranked(frame: RowColumns, by: str) -> list[Column]:
    """The columns with their ranks for this grouping: what says nothing here steps back, what is rare steps forward where it is there."""
    ranks: dict[str, int] = {}
    ranks["input_shapes"] = 1 if by == "op_shape" else 3  # two rows of one name differ in their sizes
    if by != "op_shape":
        ranks["direction"] = 3
    if by == "dtype":
        ranks["dtype"] = 3
    if np.isnan(frame["efficiency"]).all():
        ranks |= {"wasted_ns": 3, "efficiency": 3, "bound": 3}
    if count_of(frame) and np.isnan(frame["measured_ns"]).all():
        ranks |= {"measured_ns": 3, "share": 3, "achieved_flop_per_s": 3, "achieved_bytes_per_s": 3, "flop": 1, "bytes": 2}
        ranks |= {"bound": 1, "sol_ns": 1} if not np.isnan(frame["sol_ns"]).all() else {}
    if (frame["recompute"] > 0).any():
        ranks["recompute"] = 2
    if frame["inferred"].any():
        ranks["flags"] = 2
    changed = {"name": msgspec.structs.replace(COLUMNS[0], label=ONE[by])}
    changed |= {c.name: msgspec.structs.replace(c, rank=ranks[c.name]) for c in COLUMNS if c.name in ranks}
    return [changed.get(c.name, c) for c in COLUMNS]


def _marks(body: RowColumns) -> dict[str, dict[str, Mark]]:
    marks: dict[str, dict[str, Mark]] = {"efficiency": {}, "sol_ns": {}}
    above = np.nan_to_num(body["efficiency"]) > TOLERATED
    guessed = body["estimated"].astype(bool)
    causes, reasons = body["cause"].tolist(), body["reason"].tolist()
    for row in np.flatnonzero(above).tolist():
        marks["efficiency"][str(row)] = Mark("flagged", f"above the limit: {causes[row]}" if causes[row] else "above the limit")
    known: dict[str, Mark] = {}
    for row in np.flatnonzero(guessed & ~above).tolist():
        why = str(reasons[row]) or "memory bandwidth unknown"
        mark = known.setdefault(why, Mark("estimated", why))
        marks["efficiency"][str(row)] = marks["sol_ns"][str(row)] = mark
    known_ratio = ~np.isnan(body["efficiency"])
    for row, share in enumerate(body["modelled_share"].tolist()):
        part = partial(share)
        if part is not None and not above[row] and known_ratio[row]:
            marks["efficiency"][str(row)] = part
    return marks


def _add_links(table: TableSection, outside: set[str], by: str) -> None:
    """Links each row to the page that holds it, its main kernel to the kernels."""
    page, words = LEADS.get(by, ("operators", "In the operators"))
    kernels: dict[str, Link] = {}
    cells: dict[str, Link] = {}
    links: dict[str, Link] = {}
    for row, (name, kernel) in enumerate(zip(table.data["name"], table.data["main_kernel"], strict=True)):
        text = str(name)
        if text in outside:
            if text != HIDDEN:
                links[str(row)] = Link("links", label="How events were linked")
        elif by == "step":
            number = text.removeprefix("step ")
            if number.isdigit():
                links[str(row)] = Link("timeline", {"step": number}, "On the timeline")
        elif (by in LEADS and not text.startswith("(")) or "::" in text:
            links[str(row)] = Link(page, {"find": text}, words)
        if kernel and by != "kernel":
            cells[str(row)] = kernels.setdefault(str(kernel), Link("kernels", {"find": str(kernel)}, "In the kernels"))
    table.row_links = links
    if cells:
        table.cell_links["main_kernel"] = cells


# -- Most time above the limit ----------------------------------------------------------------------------------------


def above_table(frame: RowColumns) -> TableSection:
    """Builds the table of the rows with most time above their limit and the share that they hold together."""
    wasted = frame["wasted_ns"]
    order = np.argsort(-np.nan_to_num(wasted, nan=-np.inf), kind="stable")
    order = order[np.nan_to_num(wasted[order], nan=-1.0) > 0]
    total = float(wasted[order].sum())
    above: RowColumns = {c.name: frame[c.name][order[:LISTED]] for c in (ID, *LIST_COLUMNS) if c.name in frame}
    above["running_share"] = np.cumsum(wasted[order])[:LISTED] / total if total else np.full(min(len(order), LISTED), np.nan)
    return make_table(
        "above",
        "Most time above the limit",
        _integers(above, ("wasted_ns",)),
        (ID, *LIST_COLUMNS),
        span=4,
        adds=["wasted_ns"],
        key="id",
        subtitle="with running share",
        empty="No row has a limit here.",
    )


# -- Kinds of work ----------------------------------------------------------------------------------------------------


def _calls_without_a_model(ops: pd.DataFrame) -> dict[str, int]:
    """Counts the calls that no cost model covers, collectives apart."""
    unmodeled, collective = ~ops["modeled"].to_numpy(), ops["collective"].to_numpy()
    return {NO_MODEL: int((unmodeled & ~collective).sum()), COMMUNICATION: int((unmodeled & collective).sum())}


def kinds_table(chosen: Selection, *, by_host: bool) -> TableSection:
    """Builds the table of device time by kind of modeled work, and the rest by the reason it has no limit: the rows add up to all of it."""
    frame = _kind_rows(chosen, by_host=by_host)
    names = frame["id"]
    table = make_table(
        "kinds",
        "By kind of work",
        frame,
        (ID, *_kind_columns(chosen, limits=any(v is not None for v in frame["sol_ns"]))),
        adds=["calls", "device_ns", "sol_ns", "wasted_ns", "flop", "bytes"],
        key="id",
        subtitle=_adds_up(chosen, by_host),
        last=[n for n in names if n not in KINDS],
        empty="No device time here.",
    )
    table.row_links = {str(row): link for row, name in enumerate(table.data["id"]) if (link := _kind_link(str(name))) is not None}
    return table


def _kind_rows(chosen: Selection, *, by_host: bool) -> dict[str, Any]:
    """Returns the columns of the table: kinds of work, the largest first, then the rest by reason."""
    sums = _kind_sums(chosen.ops)
    names = [part for part in PARTS if part in chosen.parts]
    limits = dict(zip(KINDS, np.nan_to_num(sums["sol_ns"]).tolist(), strict=True))
    weight = chosen.parts if chosen.timed else limits
    order = np.argsort([(names.index(n) + 100) if n not in KINDS else -weight[n] for n in names], kind="stable")
    names = [names[i] for i in order.tolist()]
    frame: dict[str, Any] = {
        "id": names,
        "name": [KIND_NAMES.get(n, n) for n in names],
        "kind": [n if n in KINDS else "other" for n in names],
        "device_ns": [chosen.parts[n] if chosen.timed else None for n in names],
        "share": [chosen.parts[n] / chosen.whole_ns if chosen.whole_ns else None for n in names],
        **{name: [float(values[KINDS.index(n)]) if n in KINDS else math.nan for n in names] for name, values in sums.items()},
        "modelled_share": [1.0 if n in KINDS else 0.0 for n in names],
    }
    if by_host or not chosen.timed:
        counts = _calls_without_a_model(chosen.ops)
        frame["calls"] = [counts.get(n, calls) for n, calls in zip(names, frame["calls"], strict=True)]
    frame["calls"] = [calls if calls > 0 else math.nan for calls in frame["calls"]]
    frame |= {name: _whole(frame[name]) for name in ("calls", "sol_ns", "wasted_ns", "flop", "vector_flop", "bytes")}
    return frame


def _kind_link(name: str) -> Link | None:
    """Returns the page that explains a kind of work, None where there is none."""
    if name in KIND_PAGES:
        return Link(KIND_PAGES[name])
    return Link("links", label="How events were linked") if name in OUTSIDE else None


def _kind_columns(chosen: Selection, *, limits: bool) -> list[Column]:
    """Returns the columns of the kinds; what nothing is known of steps back."""
    columns = list(KIND_COLUMNS) if chosen.timed else _untimed(KIND_COLUMNS)
    return columns if limits else [ranked(c, 3) if c.name in ("sol_ns", "wasted_ns", "efficiency") else c for c in columns]


def _adds_up(chosen: Selection, by_host: bool) -> str:
    if not chosen.timed:
        return "single calls were not timed: limits only"
    return "adds up to all host time of operators" if by_host else "adds up to all device time"


def _kind_sums(ops: pd.DataFrame) -> dict[str, np.ndarray]:
    """Returns per kind, over its modeled calls: calls, limit, time above it, efficiency, work and rates. NaN is unknown."""
    covered = ops["modeled"].to_numpy()
    kind = arrays.codes(ops["kind"])
    measured = ops["measured_ns"].to_numpy(dtype=np.float64)

    def total(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
        mask = mask & np.isfinite(values)
        out = np.bincount(kind[mask], values[mask], minlength=len(KINDS)).astype(np.float64)
        out[np.bincount(kind[mask], minlength=len(KINDS)) == 0] = np.nan
        return out

    sol = ops["sol_ns"].to_numpy(dtype=np.float64)
    timed = np.isfinite(sol) & (measured > 0)
    work = {name: total(ops[column].to_numpy(dtype=np.float64), covered) for name, column in _WORK.items()}
    least, spent, known = total(sol, timed), total(measured, timed), total(measured, covered)
    flop = np.where(np.nan_to_num(work["flop"]) > 0, work["flop"], np.where(work["vector_flop"] > 0, work["vector_flop"], np.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        return work | {
            "calls": np.bincount(kind[covered], launches_of(ops)[covered], minlength=len(KINDS)).astype(np.float64),
            "sol_ns": total(sol, np.isfinite(sol)),
            "wasted_ns": spent - least,
            "efficiency": least / spent,
            "achieved_flop_per_s": flop / known * 1e9,
            "achieved_bytes_per_s": work["bytes"] / known * 1e9,
        }


_WORK: Final = {"flop": "flop", "vector_flop": "flop_vector", "bytes": "bytes"}


# -- What has no model ------------------------------------------------------------------------------------------------


def unmodeled_table(found: pd.DataFrame, chosen: Selection) -> TableSection:
    """Builds the table of what has no model, largest first, with what is missing."""
    without_model = chosen.parts.get(NO_MODEL, 0)
    share = f", {human(without_model / chosen.whole_ns, 'ratio')} of the time" if chosen.whole_ns else ""
    return make_table(
        "unmodelled",
        "Not modeled",
        found,
        UNMODELED_COLUMNS if chosen.timed else _untimed(UNMODELED_COLUMNS),
        adds=["calls", "measured_ns", "share"],
        sort=Sort("measured_ns" if chosen.timed else "calls"),
        subtitle=f"{human(without_model, 'ns')}{share}" if without_model else "",
        empty=EVERYTHING if chosen.modelled_ns == chosen.whole_ns and (chosen.timed or NO_MODEL not in chosen.parts) else EVERY_OPERATOR,
    )


NEED_TIME: Final = ("device_ns", "measured_ns", "share", "wasted_ns", "efficiency", "achieved_flop_per_s", "achieved_bytes_per_s")


def _untimed(columns: Sequence[Column]) -> list[Column]:
    """Returns the columns of a selection whose calls were not timed: those that need a time are shown only when a reader asks for them."""
    return [ranked(c, 3) if c.name in NEED_TIME else c for c in columns]


def _integers(frame: RowColumns, columns: Sequence[str]) -> RowColumns:
    """Returns sums as whole numbers; unknown stays unknown, and so does what no integer holds (shapes that no memory holds)."""
    out = dict(frame)
    for name in columns:
        known = np.abs(frame[name]) < 2**63
        out[name] = pd.arrays.IntegerArray(np.rint(np.where(known, frame[name], 0)).astype(np.int64), ~known)
    return out


def _whole(values: Sequence[float]) -> list[int | None]:
    """Returns sums as whole numbers, None where one is unknown or larger than an integer."""
    return [round(v) if abs(v) < 2**63 else None for v in values]
