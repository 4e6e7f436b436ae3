"""What a step would take if parts of it were faster, slower, not there, or did not wait: a replay of every dependency, with an interval.

`item` is one kernel, operator, module, phase, thread or class, or single events; the others are all work of a kind. `scale` multiplies its
time, `set_ns` sets that of each of its events (of host events their own time, without what they call), `remove` leaves it out, with its
launches. `syncs` takes away every wait of the host for the device, as code without `.item()` would; `overlap` every wait of a stream for
another; `cuda_graph` leaves of the host's operators, runtime calls and launch latencies of each step one launch, as a step that is one
graph would; Python and data loading stay. `roofline` takes from every kernel of an operator with a cost model what is above its limit
on the device. `inside` limits a change to what host events of a name do: a module, an operator, a range, a Python function; of `cuda_graph`
each of these is one graph then.

`also` makes further changes at once, each with the same fields, of what those before it left: two halves are a quarter.

Three savings differ. Replayed: the new schedule, in which other work holds the step. First order: what of the change is on the critical
path. Naive: all of it, on the path or not. The interval is the replay plus and minus the error of the graph, which grows with what is
inferred; where the graph is graded poor the interval alone is given.
Not modeled: contention between streams, changes of clocks, the allocator, and what other ranks would do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import changes as W
from tb_sol_plugin.metrics.critical.items import items, keys_of
from tb_sol_plugin.metrics.critical.layout import layout_of
from tb_sol_plugin.metrics.critical.parts import PARTS
from tb_sol_plugin.metrics.critical.path import CLASSES, LABELS, PLACE, path_of, selected_path
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.critical.selection import Kind, What, edges_of, event_rows
from tb_sol_plugin.metrics.report.notes import edge_notices
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.kernels import short_kernel_names
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, FieldNow, FigureSection, Notice, Report, Scalar, TableSection, make_facts, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human, side_by_side

SCALES: Final = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
NOT_MODELED: Final = "Not in it: contention between streams, changes of clocks, the allocator, and what other ranks would do."
LONGEST_NS: Final = 1e15
POOR: Final = "the path is not well enough explained"
MOST_EVENTS: Final = 20
MOST_OFFERED: Final = 100
"""Items that the page offers to choose from."""
RECORD_SYNCS: Final = "profile(experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True))"
FACTS: Final = (
    Fact("step_ns", "Step now", "ns", "from the first start to the last end of the steps, over their number"),
    Fact("new_step_ns", "Step then", "ns", "the same after the change, by replay"),
    Fact("saved_ns", "Saved", "ns", "what a step takes less; negative where it takes longer"),
    Fact("low_ns", "At least", "ns", "that less the error of the graph"),
    Fact("high_ns", "At most", "ns", "that and the error of the graph"),
    Fact("bound_ns", "Step at best", "ns", "the step where what changes takes no time"),
    Fact("first_order_ns", "First order", "ns", "saving of what changes on the critical path alone, as if nothing took its place"),
    Fact("naive_ns", "Naive", "ns", "saving of all that changes, on the path or not, as if all time were in a row"),
    Fact("grade", "Grade", "", "how far the graph can be trusted: good, fair or poor"),
    Fact("dependencies", "Changed", "count", "pieces of work, latencies or waits in the steps that change"),
)
CLASSES_TABLE: Final = (
    Column("class", "Class", "", "what passes on the path"),
    Column("before_ns", "Now", "ns", "on the critical path of a step", "bar", color="bar-ink"),
    Column("after_ns", "Then", "ns", "on the critical path of the changed step", "bar", color="accent"),
    Column("change_ns", "Change", "ns", "then less now; the changes add up to the saving", rank=2),
)

CHANGES_TABLE: Final = (
    Column("place", "No.", "count", "in the order in which they are made"),
    Column("change", "Change", "", "what is different", "text"),
    Column("saved_ns", "Saved alone", "ns", "what a step takes less with this change alone, by replay", missing=POOR),
    Column("first_order_ns", "First order", "ns", "of what changes on the critical path alone", rank=2),
    Column("naive_ns", "Naive", "ns", "of all that changes", rank=2),
    Column("dependencies", "Changed", "count", "pieces of work, latencies or waits in the steps that change", rank=2),
)


class WhatIfQuery(Query, kw_only=True, frozen=True):
    """change: what gets faster, or which waits are taken away
    by: of an item, what it is
    item: its name ("" = the one that would save most); of events their rows in the tables of the recording: device 12, host 7
    inside: only in host events of this name: a module, operator, range or function ("" = everywhere)
    scale: its time then over its time now
    set_ns: in place of that, the time of each of its events
    remove: in place of that, it is not there
    also: further changes at once
    """

    change: Kind = "item"
    by: What = "kernel"
    item: str = ""
    inside: str = ""
    scale: float = 0.5
    set_ns: float | None = None
    remove: bool = False
    also: tuple[W.Change, ...] = ()

    SLIDERS: ClassVar[dict[str, tuple[str, ...]]] = {"scale": tuple(f"{i / 10:g}" for i in range(21))}
    LABELS: ClassVar[dict[str, str]] = {
        "by": "Item by", "inside": "Only in", "set_ns": "Each takes, ns", "remove": "Leave out", "also": "Change",
    }  # fmt: skip
    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {
        "What changes": ("change", "by", "item", "scale", "inside", "set_ns", "remove", "also")
    }
    SELDOM: ClassVar[tuple[str, ...]] = ("inside", "set_ns", "remove")

    @property
    def changes(self) -> tuple[W.Change, ...]:
        """All changes in order."""
        first = W.Change(**{name: getattr(self, name) for name in W.Change.__struct_fields__})
        return first, *self.also


@analysis(
    title="What if faster",
    question="What would a step take if part of it were faster or did not wait?",
    group="Time",
    order=8,
    requirements=("events", "program"),
    query=WhatIfQuery,
    tables={"classes": CLASSES_TABLE, "changes": CHANGES_TABLE},
    facts=FACTS,
    under="critical_path",
)
def run(capture: Capture, query: WhatIfQuery) -> Report:
    _refuse(query.changes)
    where, path = selected_path(capture, query)
    offered = [_offered(capture, where, one) for one in query.changes]
    changes = [_named(capture, one, items, i) for i, (one, items) in enumerate(zip(query.changes, offered, strict=True))]
    spec = device_for(capture, query.device_limits)
    found = W.outcome(capture, where, changes, spec)
    trust = trust_of(capture, where)
    values: dict[str, Scalar] = {
        "step_ns": found.window, "new_step_ns": None if trust.grade == "poor" else found.window - found.saved,
        "saved_ns": None if trust.grade == "poor" else found.saved, "low_ns": found.saved - found.error,
        "high_ns": found.saved + found.error, "bound_ns": found.window - found.at_most, "first_order_ns": found.first_order,
        "naive_ns": found.naive, "grade": trust.grade, "dependencies": found.changed,
    }  # fmt: skip
    whats = [_what(one, _name(capture, one), spec) for one in changes]
    what = ", and ".join(whats)
    each = [W.outcome(capture, where, (one,), spec) for one in changes] if len(changes) > 1 else []
    return Report(
        analysis="what_if",
        title="What if faster",
        headline=_headline(what, values, found.after),
        notices=[
            *_limit_notices(changes, values, spec), *_graph_notices(capture, where, changes), *_notices(values),
            *edge_notices(capture, where),
        ],
        fields=_fields(capture, changes, offered),
        sections=[
            make_facts("facts", "The step then", values, FACTS, span=4, subtitle=where.label, text=NOT_MODELED),
            _figure(capture, where, changes, found, each, what, len(path.rows)),
            *([_changes(whats, found, each, trust.grade)] if each else []),
            make_table(
                "classes", "Critical path, now and then", _classes(found), CLASSES_TABLE, key="class",
                adds=["before_ns", "after_ns", "change_ns"], footer="What holds the step then is the next thing to look at.",
            ),
        ],
    )  # fmt: skip


def _refuse(changes: Sequence[W.Change]) -> None:
    """Raises BadQuery for changes that say nothing."""
    if len(changes) > W.MOST:
        raise BadQuery(f"{len(changes)} changes at once", hint=f"give at most {W.MOST}", field="also")
    for i, one in enumerate(changes):
        if not 0 <= one.scale <= 1000:
            raise BadQuery(f"scale {one.scale:g} is no share of a time", hint="give a number from 0 to 1000", field=_field("scale", i))
        if one.set_ns is not None and not 0 <= one.set_ns <= LONGEST_NS:
            raise BadQuery(f"{one.set_ns:g} ns is no length of an event", hint="give a number from 0 to 1e15", field=_field("set_ns", i))
        if one.set_ns is not None and one.remove:
            raise BadQuery("what is left out takes no time", hint="choose one of set_ns and remove", field=_field("set_ns", i))
        if one.change == "item" and one.by == "event" and one.item and event_rows(one.item) is None:
            hint = "name rows of the tables of events: device 12, host 7"
            raise BadQuery(f"no events: {one.item[:100]!r}", hint=hint, field=_field("item", i))


def _field(name: str, place: int) -> str:
    """Returns the query field that a field of a change stands in."""
    return "also" if place else name


def _offered(capture: Capture, where: Scope, one: W.Change) -> tuple[str, ...]:
    """Returns the items to choose from, those that would save most first."""
    if one.change != "item":
        return ()
    if one.by == "event":  # the longest on the path
        path = path_of(capture, where)
        order = np.argsort(-path.duration, kind="stable")[: 10 * MOST_EVENTS]
        both = zip(path.device[order].tolist(), path.host[order].tolist(), strict=True)
        rows = [("device", device) if device >= 0 else ("host", host) for device, host in both]
        return tuple(dict.fromkeys(f"{table} {row}" for table, row in rows if row >= 0))[:MOST_EVENTS]
    frame = items(capture, where, one.by)
    saved = frame["saved_half_ns"].to_numpy()
    known = np.flatnonzero(saved >= 0)
    known = known[np.argsort(-saved[known], kind="stable")][:MOST_OFFERED]
    return tuple(str(n) for n in frame["name"].array.take(known))


def _named(capture: Capture, one: W.Change, offered: tuple[str, ...], place: int) -> W.Change:
    """Returns a change with the name of its item, and without what says nothing of it. BadQuery for names that there are not."""
    if one.inside and not at.any_named(capture, lambda n: n == one.inside):
        hint = f"for example {regions[0][:200]}" if (regions := _regions(capture)) else "leave it out"
        raise BadQuery(f"no host event {one.inside[:200]!r} in this recording", hint=hint, field=_field("inside", place))
    if one.change != "item":
        return msgspec.structs.replace(one, by="kernel", item="")
    if one.by == "event":
        one = msgspec.structs.replace(one, item=one.item or (offered[0] if offered else "device 0"))
        for table, rows in (event_rows(one.item) or {}).items():
            size = len(capture.device if table == "device" else capture.host)
            if rows and max(rows) >= size:
                text = f"no {table} event {max(rows)} in this recording"
                raise BadQuery(text, hint=f"it has {size:,}, from 0", field=_field("item", place))
        return one
    if one.item and keys_of(capture, one.by).code(one.item) is None:
        hint = f"for example {offered[0][:200]}" if offered else "choose another `by`"
        raise BadQuery(f"no {one.by} {one.item[:200]!r} in this recording", hint=hint, field=_field("item", place))
    return msgspec.structs.replace(one, item=one.item or (offered[0] if offered else ""))


def _regions(capture: Capture) -> tuple[str, ...]:
    """Returns names of host events to limit a change to: ranges, modules and operators, each kind in the order of the recording."""

    def make() -> tuple[str, ...]:
        names = arrays.coded(capture.host["name"])
        codes = [names.codes[at.of_kind(capture, kind)] for kind in (S.ANNOTATION, S.MODULE, S.OPERATOR)]
        first = [pd.unique(of)[:MOST_OFFERED] for of in codes]
        return tuple(str(name) for name in names.categories.take(pd.unique(np.concatenate(first))).tolist())

    return memo(capture, ("what_if.regions",), make)


def _fields(capture: Capture, changes: Sequence[W.Change], offered: Sequence[tuple[str, ...]]) -> dict[str, FieldNow]:
    """Returns how the fields of all changes stand; those of further ones as `also.0.item`."""
    out: dict[str, FieldNow] = {}
    for i, (one, names) in enumerate(zip(changes, offered, strict=True)):
        of = f"also.{i - 1}." if i else ""
        idle = {"by", "item"} if one.change != "item" else set()
        idle |= {"scale", "set_ns", "remove"} if one.how == "gone" else {"scale"} if one.how != "scale" else set()
        out |= {
            f"{of}change": FieldNow(one.change), f"{of}by": FieldNow(one.by), f"{of}item": FieldNow(one.item, names),
            f"{of}inside": FieldNow(one.inside, _regions(capture)), f"{of}scale": FieldNow(f"{one.scale:g}"),
        }  # fmt: skip
        out |= {of + name: FieldNow(idle=True) for name in idle}
    return out | {"also": FieldNow(_next(changes, offered[0]))}


def _next(changes: Sequence[W.Change], offered: Sequence[str]) -> str:
    """Returns a further change to begin with, as JSON: of the item that would save most after those that change, else of a kind."""
    named = {one.item for one in changes}
    item = next((name for name in offered if name not in named), "")
    if item:
        return json.dumps({"by": changes[0].by, "item": item})
    used = {one.change for one in changes}
    return json.dumps({"change": next((kind for kind in ("kernels", "host", "launches", "copies") if kind not in used), "kernels")})


def _name(capture: Capture, one: W.Change) -> str:
    """Returns what the item of a change is called in a sentence."""
    if one.change != "item" or one.by != "event":
        return f"`{short_kernel_names(capture, [one.item]).get(one.item, one.item)}`"
    rows = event_rows(one.item) or {}
    some = [(capture.device if table == "device" else capture.host)["name"].iloc[row] for table, own in rows.items() for row in own]
    if len(some) > 1:
        return f"{human(len(some), 'count')} events"
    return f"`{short_kernel_names(capture, some[:1]).get(some[0], some[0])}` ({one.item})" if some else "nothing"


def _what(one: W.Change, name: str, spec: DeviceSpec | None) -> str:
    """Returns a change as the end of a sentence."""
    words = {
        "kernels": "all kernels", "host": "Python and operators on the host", "launches": "launches and runtime calls",
        "dataloader": "data loading", "copies": "copies and sets", "communication": "communication",
    }  # fmt: skip
    inside = f" in `{one.inside}`" if one.inside else ""
    if one.how == "gone":
        return {
            "syncs": f"the host waited for the device nowhere{inside}", "overlap": f"no stream waited for another{inside}",
            "cuda_graph": f"operators, runtime calls and launches{inside} were those of one CUDA graph{' each' if inside else ''}",
            "roofline": f"every kernel with a cost model{inside} ran at the limits of {spec.name if spec is not None else 'the device'}",
        }[one.change]  # fmt: skip
    subject = f"{words.get(one.change, name)}{inside}"
    if one.how == "remove":
        return f"{subject} {'was' if one.change in ('item', 'dataloader', 'communication') else 'were'} left out"
    if one.how == "set":
        return f"each event of {subject} took {human(round(one.set_ns or 0), 'ns')}"
    return f"{subject} took {human(one.scale, 'ratio')} of the time"


def _headline(what: str, values: dict[str, Scalar], after: Ints) -> str:
    now, low, high = (int(values[n] or 0) for n in ("step_ns", "low_ns", "high_ns"))
    if not values["dependencies"]:
        return f"Nothing of this is in the selection: a step stays at **{human(now, 'ns')}**."
    saved = values["saved_ns"]
    if not isinstance(saved, int):
        between = f"between {human(low, 'ns')} and {human(high, 'ns')}"
        return f"If {what}, a step of {human(now, 'ns')} would save {between}: too little of it is explained to say more."
    texts = side_by_side([now, now - saved], "ns")
    word = "less" if saved >= 0 else "more"
    sentence = f"If {what}, a step would take **{texts[1]}** in place of {texts[0]}: {human(abs(saved), 'ns')} {word}."
    then = {label: int(after[[PLACE[c] for c in classes]].sum()) for label, _, _, classes in PARTS.values()}
    most = max(then, key=lambda label: then[label])
    return f"{sentence} {most} would then hold {human(then[most] / max(now - saved, 1), 'ratio')} of it."


def _limit_notices(changes: Sequence[W.Change], values: dict[str, Scalar], spec: DeviceSpec | None) -> list[Notice]:
    if all(one.change != "roofline" for one in changes) or values["dependencies"]:
        return []
    if spec is None:
        return [Notice("The limits of this device are not known: choose others in the bar, or give --device_limits.")]
    return [Notice("No kernel here has a limit: operators with sizes have one, recorded with record_shapes=True.")]


def _graph_notices(capture: Capture, where: Scope, changes: Sequence[W.Change]) -> list[Notice]:
    """Says what a graph cannot hold of the host events that it is to take the place of."""
    waits = sum(
        len(edges_of(capture, layout_of(capture, where), "syncs", inside=one.inside))
        for one in changes if one.change == "cuda_graph" and one.inside
    )  # fmt: skip
    text = "of the host for the device in it: a CUDA graph can hold none. They stay here; take them away with `syncs`."
    return [Notice(f"{human(waits, 'count')} {'wait' if waits == 1 else 'waits'} {text}", "info")] if waits else []


def _notices(values: dict[str, Scalar]) -> list[Notice]:
    low, high = int(values["low_ns"] or 0), int(values["high_ns"] or 0)
    if values["dependencies"] and low < 0 < high and low + high:
        text = "The interval holds none: the saving cannot be told from nothing. Record waits between streams to know more:"
        return [Notice(f"{text} `{RECORD_SYNCS}`.", "info")]
    return []


def _changes(whats: Sequence[str], found: W.Outcome, each: Sequence[W.Outcome], grade: str) -> TableSection:
    """Returns what each change gives by itself."""
    known = grade != "poor"
    frame = pd.DataFrame({
        "place": np.arange(1, len(each) + 1), "change": whats,
        "saved_ns": pd.array([one.saved if known else None for one in each], dtype="Int64"),
        "first_order_ns": [one.first_order for one in each], "naive_ns": [one.naive for one in each],
        "dependencies": [one.changed for one in each],
    })  # fmt: skip
    together = f" All of them save {human(found.saved, 'ns')}." if known else ""
    return make_table(
        "changes", "Each change alone", frame, CHANGES_TABLE, key="place",
        footer=f"What they save alone does not add up: one may hide behind another, or make room for it.{together}",
    )  # fmt: skip


def _classes(found: W.Outcome) -> dict[str, object]:
    rows = np.flatnonzero((found.before > 0) | (found.after > 0))
    before, after = found.before[rows], found.after[rows]
    return {"class": [LABELS[CLASSES[k]] for k in rows.tolist()], "before_ns": before, "after_ns": after, "change_ns": after - before}


def _figure(
    capture: Capture, where: Scope, changes: Sequence[W.Change], found: W.Outcome, each: Sequence[W.Outcome], what: str, steps: int
) -> FigureSection:  # fmt: skip
    """Draws the step over the scale of what changes; of what has none, and of several changes, now and then."""
    scaled = len(changes) == 1 and changes[0].how == "scale"
    return FigureSection(
        id="curve", title="Step time", span=8, height=320, table="classes",
        figure=_curve(capture, where, changes[0], found, steps) if scaled else _bars(found, each),
        summary=f"If {what}, a step takes {human(found.window - found.saved, 'ns')}.",
    )  # fmt: skip


def _bars(found: W.Outcome, each: Sequence[W.Outcome]) -> F.Plain:
    """Draws the step now, after each change alone, and after all of them."""
    alone = [(f"change {i} alone", float(one.window - one.saved)) for i, one in enumerate(each, 1)]
    names, ns = zip(("now", float(found.window)), *alone, ("then", float(found.window - found.saved)), strict=True)
    divisor, unit = F.time_scale(max(ns))
    bar: F.Plain = {
        "type": "bar", "orientation": "h", "x": [t / divisor for t in ns], "y": [*names], "marker": F.fill("accent"), "hoverinfo": "text",
        "hovertext": [f"<b>{name}</b><br>{human(t, 'ns')}" for name, t in zip(names, ns, strict=True)],
    }  # fmt: skip
    return F.figure([bar], x=F.axis(unit), y=F.axis(autorange="reversed"), showlegend=False)


def _curve(capture: Capture, where: Scope, one: W.Change, found: W.Outcome, steps: int) -> F.Plain:
    """Draws the step over the scale of what changes, and what subtracting would give."""
    chosen = W.plan_of(capture, where, (one,)).chosen
    took = [found.window - chosen.saved_ns(chosen.scaled(s)) / steps for s in SCALES]
    divisor, unit = F.time_scale(max(took))
    data: list[F.Plain] = [_line("by replay", took, divisor, "solid", "accent")]
    if one.scale != 1:
        whole = found.naive / (1 - one.scale)
        data.append(_line("by subtraction", [found.window - whole * (1 - s) for s in SCALES], divisor, "dot", "ink-3"))
    return F.figure(data, x=F.axis("time then over time now"), y=F.axis(unit, rangemode="tozero"), showlegend=True)


def _line(name: str, ns: list[float], divisor: float, dash: str, color: str) -> F.Plain:
    return {
        "type": "scatter", "mode": "lines+markers", "name": name, "x": [*SCALES], "y": [t / divisor for t in ns],
        "line": {"color": F.light(color), "dash": dash}, "hoverinfo": "text",
        "hovertext": [f"<b>{name}</b>, {s:g}×<br>{human(t, 'ns')}" for s, t in zip(SCALES, ns, strict=True)],
    }  # fmt: skip
