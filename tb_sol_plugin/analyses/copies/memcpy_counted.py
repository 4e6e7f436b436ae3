"""Copies that were counted, not recorded as events: the report of a SOL log or profile."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.copies.memcpy_tables import COUNTED_CARD, _card_facts, _fact
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.copies import counted
from tb_sol_plugin.metrics.copies.counted import CountedPattern, counted_patterns
from tb_sol_plugin.metrics.copies.records import COLORS, NAMES, copies
from tb_sol_plugin.metrics.report.notes import profile_notices
from tb_sol_plugin.metrics.time.scope import Scope, in_steps, scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import plain_list
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    FactsSection,
    Finding,
    FindingsSection,
    Link,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
    only_row,
)
from tb_sol_plugin.tables.arrays import whole_numbers
from tb_sol_plugin.units import human

GROUPS: Final = {
    "device": Column("device", "Device", doc="device of the copy, or both of a peer copy"),
    "step": Column("step", "Step", doc="iteration in which the copies were counted"),
    "module": Column("module", "Module", doc="innermost module around the call", show="code"),
    "phase": Column("phase", "Phase", doc="innermost phase around the call"),
    "operator": Column("operator", "Operator", doc="operator that copies", show="code"),
}
NO_TIME: Final = "no time on the device"
_HEAD: Final = (
    Column("direction", "Direction", show="symbol",
           doc="HtoD, DtoH, DtoD, PtoP, HtoH; copy kernel: a kernel copies within a device, since the layouts differ"),
    Column("src_kind", "From", doc="kind of the source memory", missing="not known"),
    Column("dst_kind", "To", doc="kind of the destination memory", missing="a number that the host reads inside an operator"),
)  # fmt: skip
_VALUES: Final = (
    Column("count", "Copies", "count", "copies", show="bar", color_by="direction"),
    Column("bytes", "Bytes", "B", "bytes that crossed, of the copies whose size is known", show="bar", color_by="direction",
           missing="the size of no copy of this row is known"),
    Column("bytes_per_step", "Bytes per step", "B", "bytes over the steps in which copies were counted", missing="no size known"),
    Column("without_bytes", "Without size", "count", "copies whose size is not known", rank=3),
    Column("bytes_share", "Of bytes", "ratio", "bytes over the bytes of all rows", show="share", rank=2),
    Column("blocking", "Host waits", "count", "copies that the host waited for, by what is known of the memory and the call",
           missing="not known"),
    Column("call_ns", "Host in calls", "ns", "time of the host inside the calls, while copies were counted", missing="not timed"),
    Column("time_ns", "Time", "ns", "time on the device, sum", show="bar", color_by="direction", missing=NO_TIME),
    Column("mean_ns", "Mean", "ns", "time over copies", rank=3, missing=NO_TIME, per="call"),
    Column("share", "Share", "ratio", "time over the time of all rows", show="share", rank=3, missing=NO_TIME),
    Column("bandwidth_bytes_per_s", "Bandwidth", "B/s", "bytes over time", rank=2, missing=NO_TIME),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
COUNTED_COLUMNS: Final = (_HEAD[0], *GROUPS.values(), *_HEAD[1:], *_VALUES)
COMPARED_COLUMNS: Final = (
    Column("direction", "Direction", doc="direction of the copies", show="symbol"),
    Column("counted", "Counted per step", doc="copies per step that the SOL capture counted at the operators"),
    Column("recorded", "Recorded per step", doc="copies per step in the trace", missing="the profiler leaves them out"),
    Column("counted_bytes", "Bytes counted", "B", "per step, of those whose size is known", missing="none has a known size"),
    Column("recorded_bytes", "Bytes recorded", "B", "per step, of those that carry a size", missing="none carries a size"),
    Column("reason", "Where they differ", doc="what may explain a difference"),
)
TABLES: Final = {"counted": COUNTED_COLUMNS, "beside": COMPARED_COLUMNS}
"""Columns by section."""
UNTIMED: Final = ("blocking", "time_ns", "bandwidth_bytes_per_s")
"""Values that a card leaves out where they are not known."""
TITLES: Final = {
    "reads": "The host reads numbers off the device",
    "pageable_HtoD": "Copies to the device come from pageable memory",
    "pageable_DtoH": "Copies to the host go to pageable memory",
    "blocking_HtoD": "Copies to the device are asked to block",
    "blocking_DtoH": "Copies to the host are asked to block",
    "layout": "Tensors are copied into another layout",
}
FIXES: Final = {
    "reads": "total += loss.detach(); read total.item() once per report",
    "pageable_HtoD": "DataLoader(pin_memory=True); tensor.to(device, non_blocking=True)",
    "pageable_DtoH": "pinned.copy_(tensor, non_blocking=True); event.synchronize() when needed",
    "blocking_HtoD": "tensor.to(device, non_blocking=True)",
    "blocking_DtoH": "pinned.copy_(tensor, non_blocking=True); event.synchronize() when needed",
    "layout": "keep one layout: no contiguous(), one memory_format for model and input",
}
CALLED: Final = "Counted as they were called: copies inside of operators, graphs and collectives and those of other threads are not here."
PROFILED: Final = "Sums of a profile: how long a single copy took, and what hid it, is in a trace."


def opens(capture: Capture) -> bool:
    """Returns whether this page is the one to show: copies were counted, and none recorded as an event."""
    return counted.has(capture) and not len(capture.device)


def report(capture: Capture, query: Query, by: str) -> Report:
    """Returns the page of counted copies. by: how the table groups them; what they do not know (streams, frames) is one group."""
    where = scope(capture, query)
    rows = counted.counted(capture, where)
    if not len(rows):
        raise Unavailable("no copy in the selected steps", hint="choose another step")
    directions = counted.table(capture, "direction", where)
    stepped = bool((rows["iteration"].to_numpy() >= 0).all())
    steps = counted.iterations(capture, where) if stepped else 0
    each = max(steps, 1)
    return Report(
        analysis="memcpy",
        title="Memory copies",
        headline=_headline(directions, steps),
        notices=[*profile_notices(capture), *_notices(capture, directions)],
        sections=[*_cards(directions), *_findings(capture, where, each), _counted_table(capture, where, by, each)],
    )


def _headline(directions: pd.DataFrame, steps: int) -> str:
    time = directions["time_ns"].to_numpy(np.float64)
    if np.isfinite(time).all():
        first = directions.iloc[int(time.argmax())]
        rate = float(first["bandwidth_bytes_per_s"])
        fast = f" at {human(rate, 'B/s')}" if np.isfinite(rate) else ""
        return f"All copies together take **{human(round(time.sum()), 'ns')}**. Most is {NAMES[str(first['direction'])].lower()}{fast}."
    each, per = max(steps, 1), " per step" if steps else ""
    moves = [
        f"{_moved(directions, direction, each)} {words}"
        for direction, words in (("HtoD", "to the device"), ("DtoH", "back to the host"), ("PtoP", "from device to device"))
        if (directions["direction"] == direction).any()
    ]
    if not moves:
        return f"No copy crosses to a device: {_number(directions['count'].sum() / each)}{per} within one memory."
    waits = directions["blocking"].to_numpy(np.float64)
    text = ""
    if np.isfinite(waits).all():
        text = f" The host waits for {_number(float(waits.sum()) / each)}{per}." if waits.any() else " The host waits for none of them."
    return f"Copies move {', '.join(moves)}{per}.{text}"


def _moved(directions: pd.DataFrame, direction: str, each: int) -> str:
    """Returns the bytes of a direction, or the number of its copies where no size is known."""
    subset = directions[directions["direction"] == direction].iloc[0]
    size = float(subset["bytes"])
    return f"**{human(size / each, 'B')}**" if size > 0 else f"what {_number(float(subset['count']) / each)} of unknown size hold"


def _number(count: float) -> str:
    return f"**{human(round(count, 1), 'count')}** {'copy' if count == 1 else 'copies'}"


def _notices(capture: Capture, directions: pd.DataFrame) -> list[Notice]:
    text = []
    if directions["time_ns"].isna().all():
        text.append("These copies were counted at the operators: how many, how large, from where. A trace shows what they cost.")
    without = int(directions["without_bytes"].sum())
    if without:
        text.append(f"{human(without, 'count')} of {human(int(directions['count'].sum()), 'count')} have no known size.")
    if capture.tables["ledger"]["compiled"].any():
        text.append("Compiled regions ran eagerly while they were counted: compiled, they may copy less.")
    return [Notice(" ".join(text), "info")] if text else []


def _cards(directions: pd.DataFrame) -> list[AnySection]:
    out: list[AnySection] = [_counted_card(str(row["direction"]), row) for _, row in directions.iterrows()]
    for section, span in zip(out, _spans(len(out)), strict=True):
        section.span = span
    return out


def _counted_card(direction: str, row: pd.Series[float]) -> FactsSection:
    values = {n: plain_list([row[n]])[0] for n in COUNTED_CARD}
    for name in UNTIMED:
        if values[name] is None:
            del values[name]
    notes: dict[str, str] = {}
    call_ns = row["call_ns"]
    if "blocking" in values:
        held = f", {human(call_ns, 'ns')} in calls" if np.isfinite(call_ns) else ""
        notes[_fact(direction, "blocking")] = f"of {human(int(row['count']), 'count')}{held}"
    marks = {}
    if row["without_bytes"] and values["bytes"] is not None:
        marks[_fact(direction, "bytes")] = Mark("lower_bound", f"{int(row['without_bytes'])} copies have no known size")
    whole: dict[str, Scalar] = {
        _fact(direction, n): round(v) if isinstance(v, float) and n != "bandwidth_bytes_per_s" else v for n, v in values.items()
    }
    return make_facts(
        _fact(direction, "card"),
        NAMES.get(direction, direction),
        whole,
        _card_facts(direction, COUNTED_CARD),
        style="card",
        notes=notes,
        marks=marks,
    )


def _spans(count: int) -> list[int]:
    """Returns widths of the cards: up to four in a row, which they fill; one or two stay narrow."""
    if count <= 2:
        return [4] * count
    lines = -(-count // 4)
    each = [count // lines + (line < count % lines) for line in range(lines)]
    return [12 // n for n in each for _ in range(n)]


def _findings(capture: Capture, where: Scope, steps: int) -> list[AnySection]:
    """Returns the findings that counted copies allow; none where nothing is known of waiting or of anything else."""
    found = counted_patterns(capture, where)
    if not found and (counted.counted(capture, where)["blocking"].to_numpy() < 0).all():
        return []
    section = FindingsSection(
        id="findings",
        title="What to fix first",
        subtitle="what it would save cannot be derived from counts",
        findings=[_finding(f, steps, where) for f in found],
        empty="The host waits for no counted copy.",
    )
    return [section]


def _finding(f: CountedPattern, steps: int, where: Scope) -> Finding:
    key = f.rule if f.rule in TITLES else f"{f.rule}_{f.direction}"
    per = " per step" if where.steps else ""
    size = f", {human(f.sized_bytes / steps, 'B')}" if f.sized_bytes and f.rule != "reads" else ""
    often = f"{human(round(f.copies / steps, 1), 'count')}{per or ' copies'}{size}"
    held = ""
    if np.isfinite(f.call_ns) and f.waits:
        held = f"; the calls blocked the host for {human(f.call_ns / steps, 'ns')}{per} while they were counted"
    elif np.isfinite(f.time_ns):
        held = f", {human(round(f.time_ns / steps), 'ns')}{per} on the device"
    places = []
    if f.operators:
        places.append(" and ".join(f"`{o}`" for o in f.operators))
    if f.modules:
        places.append("in " + " and ".join(f"`{m}`" for m in f.modules))
    if f.phases:
        places.append("phase " + " and ".join(f"`{p}`" for p in f.phases))
    source = f" Most {'in ' if not f.modules or f.operators else ''}{', '.join(places)}." if places else ""
    by = "module" if f.modules else "operator"
    return Finding(
        rule=f"copies_{f.rule}",
        title=TITLES[key],
        evidence=f"{often}{held}.{source}",
        fix=FIXES[key],
        link=Link("memcpy", {"by": by} | only_row("counted", "direction", f.direction), f"{human(f.copies, 'count')} copies"),
        color="host" if f.waits else COLORS.get(f.direction, "other"),
        candidate=f.candidate,
    )


def _counted_table(capture: Capture, where: Scope, by: str, steps: int) -> TableSection:
    frame = counted.table(capture, by, where)
    parts = {"direction": ["direction"], "kind": ["direction", "src_kind", "dst_kind"]}.get(by, ["direction", "group"])
    frame["id"] = ["|".join(t) for t in zip(*(frame[c].astype(str) for c in parts), strict=True)]
    total = _total_row(frame, steps)
    frame["bytes_per_step"] = frame["bytes"] / steps
    marks: dict[str, dict[str, Mark]] = {"bytes": {}}
    for i, (size, without) in enumerate(zip(frame["bytes"], frame["without_bytes"], strict=True)):
        if without and size == size:
            marks["bytes"][str(i)] = Mark("lower_bound", f"{without} copies have no known size")
    for name in ("bytes", "bytes_per_step", "blocking", "call_ns", "time_ns", "mean_ns"):
        frame[name] = whole_numbers(frame[name])
    for name in ("src_kind", "dst_kind"):
        frame[name] = pd.Series([t or None for t in frame[name].tolist()], dtype=object)
    group = GROUPS.get(by)
    timed = bool(frame["time_ns"].notna().any())
    columns = _columns(by, timed=timed, called=bool(frame["call_ns"].notna().any()))
    words = "direction and kind of memory" if by == "kind" else by
    return make_table(
        "counted",
        f"Copies by {words}",
        frame if group is None else frame.rename(columns={"group": by}),
        columns,
        key="id",
        subtitle=f"{where.label}, {human(steps, 'count')} steps counted" if steps > 1 and where.whole else where.label,
        total={c.name: total.get(c.name) for c in columns},
        sort=Sort("time_ns" if timed else "bytes"),
        marks={n: m for n, m in marks.items() if m},
        filters=["direction", *([by] if group is not None else []), *(["src_kind", "dst_kind"] if by == "kind" else [])],
        footer=PROFILED if timed else CALLED,
        empty="No copy was counted.",
    )


def _total_row(frame: pd.DataFrame, steps: int) -> dict[str, Scalar]:
    """Returns the row `all`: sums over the groups, None where one of them is unknown; bytes are of the copies that carry a size."""
    total: dict[str, Scalar] = {c.name: None for c in COUNTED_COLUMNS}
    known = frame["bytes"].notna()
    whole = int(frame["bytes"][known].sum()) if known.any() else None
    total |= {"direction": "all", "count": int(frame["count"].sum()), "bytes": whole, "without_bytes": int(frame["without_bytes"].sum())}
    total |= {"bytes_per_step": None if whole is None else round(whole / steps), "bytes_share": 1.0 if whole else None}
    for name in ("blocking", "call_ns", "time_ns"):
        value = float(frame[name].sum(skipna=False)) if len(frame) else np.nan
        total[name] = round(value) if np.isfinite(value) else None
    total["share"] = 1.0 if total["time_ns"] else None
    return total


def _columns(by: str, *, timed: bool, called: bool) -> tuple[Column, ...]:
    """Returns the columns; unknown ones are hidden. timed: there are times on the device; called: of the host inside the calls."""
    group = GROUPS.get(by)
    head = _HEAD if group is None else (_HEAD[0], group, *(msgspec.structs.replace(c, rank=3) for c in _HEAD[1:]))
    rank = {} if called else {"call_ns": 3, "blocking": 3}
    if timed:
        rank |= {"time_ns": 1, "bandwidth_bytes_per_s": 1, "share": 2, "bytes_per_step": 3}
    else:
        rank |= {"time_ns": 3, "bandwidth_bytes_per_s": 3}
    return tuple(msgspec.structs.replace(c, rank=rank.get(c.name, c.rank)) for c in (*head, *_VALUES))


def compared_with_trace(capture: Capture, where: Scope) -> TableSection | None:
    """Compares what the SOL log of a trace counted with what the trace recorded, per step; None where there is no such log."""
    if not counted.has(capture) or not len(capture.device) or not where.whole:
        return None
    ours = counted.table(capture, "direction").set_index("direction")
    found = copies(capture, in_steps(capture, where))
    each, traced = counted.iterations(capture), where.step_count
    rows = []
    for direction in ("HtoD", "DtoH", "DtoD", "PtoP"):
        subset = found[found["direction"] == direction]
        if direction not in ours.index and not len(subset):
            continue
        count = float(ours["count"].get(direction, 0)) / each
        sized = float(ours["bytes"].get(direction, 0)) / each
        known = subset[subset["bytes"] >= 0]
        left_out = direction == "PtoP" and not len(subset)  # unknown, not zero
        rows.append(
            {
                "direction": direction,
                "counted": round(count, 1),
                "recorded": None if left_out else round(len(subset) / traced, 1),
                "counted_bytes": None if np.isnan(sized) else round(sized),
                "recorded_bytes": None if left_out or (len(subset) and not len(known)) else round(int(known["bytes"].sum()) / traced),
                "reason": _why(direction, count, len(subset) / traced),
            }
        )
    if not rows:
        return None
    frame = pd.DataFrame(rows, columns=[c.name for c in COMPARED_COLUMNS])
    for name in ("recorded", "counted_bytes", "recorded_bytes"):
        frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
    return make_table(
        "beside",
        "Counted in the SOL capture",
        frame,
        COMPARED_COLUMNS,
        key="direction",
        span=12,
        footer="The SOL capture counts calls in its sampled iterations, the trace records copies in others.",
    )


def _why(direction: str, ours: float, theirs: float) -> str | None:
    if abs(ours - theirs) < 0.5:
        return None
    if ours > theirs:
        if direction == "PtoP":
            return "the profiler leaves copies between devices out"
        return "the other iterations may copy less, or a copy was requested that the trace does not show as one"
    return "made inside operators, by other threads or by code that does not go through the dispatcher"
