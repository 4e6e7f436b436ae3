"""What a step would take if part of it were faster, slower, or did not wait: a replay of every dependency, with an interval.

`item` scales one kernel, operator, module, phase, thread or class, the others all work of a kind. `syncs` takes away every wait of the host
for the device, as code without `.item()` would; `overlap` every wait of a stream for another; `cuda_graph` the host's operators, runtime
calls and launch latencies, as a step that is launched as one graph would, Python and data loading stay. `roofline` takes from every kernel
of an operator with a cost model what is above its limit on the device.

Three savings differ. Replayed: the new schedule, in which other work holds the step. First order: what of the change is on the critical
path. Naive: all of it, on the path or not. The interval is the replay plus and minus the error of the graph, which grows with what is
inferred; where the graph is graded poor the interval alone is given.
Not modeled: contention between streams, changes of clocks, the allocator, and what other ranks would do.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
import pandas as pd

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.critical import changes as W
from tb_sol_plugin.metrics.critical.items import By, items, keys_of
from tb_sol_plugin.metrics.critical.layout import Chosen
from tb_sol_plugin.metrics.critical.path import CLASSES, LABELS, selected_path
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.report.notes import edge_notices
from tb_sol_plugin.metrics.time.kernels import short_kernel_names
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, FieldNow, FigureSection, Notice, Report, Scalar, make_facts, make_table
from tb_sol_plugin.units import human, side_by_side

SCALES: Final = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
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


class WhatIfQuery(Query, kw_only=True, frozen=True):
    """change: what gets faster, or which waits are taken away
    by: of an item, what it is
    item: its name ("" = the one that would save most)
    scale: its time then over its time now
    """

    change: W.Change = "item"
    by: By = "kernel"
    item: str = ""
    scale: float = 0.5

    SLIDERS: ClassVar[dict[str, tuple[str, ...]]] = {"scale": tuple(f"{i / 10:g}" for i in range(21))}
    LABELS: ClassVar[dict[str, str]] = {"by": "Item by"}
    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {"What changes": ("change", "by", "item", "scale")}


@analysis(
    title="What if faster",
    question="What would a step take if part of it were faster or did not wait?",
    group="Time",
    order=8,
    requirements=("events", "program"),
    query=WhatIfQuery,
    tables={"classes": CLASSES_TABLE},
    facts=FACTS,
    under="critical_path",
)
def run(capture: Capture, query: WhatIfQuery) -> Report:
    if not 0 <= query.scale <= 1000:
        raise BadQuery(f"scale {query.scale:g} is no share of a time", hint="give a number from 0 to 1000", field="scale")
    where, path = selected_path(capture, query)
    name, offered = _item(capture, where, query)
    spec = device_for(capture, query.device_limits)
    chosen = W.selected(capture, where, query.change, query.by, name, spec)
    found = W.outcome(capture, where, chosen, query.change, query.scale)
    trust = trust_of(capture, where)
    values: dict[str, Scalar] = {
        "step_ns": found.window, "new_step_ns": None if trust.grade == "poor" else found.window - found.saved,
        "saved_ns": None if trust.grade == "poor" else found.saved, "low_ns": found.saved - found.error,
        "high_ns": found.saved + found.error, "bound_ns": found.window - found.at_most, "first_order_ns": found.first_order,
        "naive_ns": found.naive, "grade": trust.grade, "dependencies": found.changed,
    }  # fmt: skip
    what = _what(query, short_kernel_names(capture, [name]).get(name, name), spec)
    return Report(
        analysis="what_if",
        title="What if faster",
        headline=_headline(query, what, values),
        notices=[*_limit_notices(query, values, spec), *_notices(values), *edge_notices(capture, where)],
        fields={"change": FieldNow(query.change), "by": FieldNow(query.by), "item": FieldNow(name, tuple(offered))},
        sections=[
            make_facts("facts", "The step then", values, FACTS, span=4, subtitle=where.label),
            _curve(query, chosen, found, what, len(path.rows)),
            make_table(
                "classes", "Critical path, now and then", _classes(found), CLASSES_TABLE, key="class",
                adds=["before_ns", "after_ns", "change_ns"], footer="What holds the step then is the next thing to look at.",
            ),
        ],
    )  # fmt: skip


def _item(capture: Capture, where: Scope, query: WhatIfQuery) -> tuple[str, list[str]]:
    """Returns the item that changes, and those to choose from: the ones that would save most first."""
    if query.change != "item":
        return "", []
    frame = items(capture, where, query.by)
    frame = frame[frame["saved_half_ns"] >= 0].sort_values("saved_half_ns", ascending=False, kind="stable")
    offered = [str(n) for n in frame["name"].tolist()][:MOST_OFFERED]
    if query.item and keys_of(capture, query.by).code(query.item) is None:
        hint = f"for example {offered[0][:200]}" if offered else "choose another `by`"
        raise BadQuery(f"no {query.by} {query.item[:200]!r} in this recording", hint=hint, field="item")
    return query.item or (offered[0] if offered else ""), offered


def _what(query: WhatIfQuery, name: str, spec: DeviceSpec | None) -> str:
    """Returns the change as the end of a sentence."""
    words = {
        "kernels": "all kernels", "host": "Python and operators on the host", "launches": "launches and runtime calls",
        "dataloader": "data loading", "copies": "copies and sets", "communication": "communication",
    }  # fmt: skip
    if query.change in words or query.change == "item":
        return f"{words.get(query.change) or f'`{name}`'} took {human(query.scale, 'ratio')} of the time"
    return {
        "syncs": "the host waited for the device nowhere", "overlap": "no stream waited for another",
        "cuda_graph": "operators, runtime calls and launches cost nothing, as in one CUDA graph",
        "roofline": f"every kernel with a cost model ran at the limits of {spec.name if spec is not None else 'the device'}",
    }[query.change]  # fmt: skip


def _headline(query: WhatIfQuery, what: str, values: dict[str, Scalar]) -> str:
    now, low, high = (int(values[n] or 0) for n in ("step_ns", "low_ns", "high_ns"))
    if not values["dependencies"]:
        return f"Nothing of this is in the selection: a step stays at **{human(now, 'ns')}**."
    saved = values["saved_ns"]
    if not isinstance(saved, int):
        between = f"between {human(low, 'ns')} and {human(high, 'ns')}"
        return f"If {what}, a step of {human(now, 'ns')} would save {between}: too little of it is explained to say more."
    texts = side_by_side([now, now - saved], "ns")
    word = "less" if saved >= 0 else "more"
    return f"If {what}, a step would take **{texts[1]}** in place of {texts[0]}: {human(abs(saved), 'ns')} {word}."


def _limit_notices(query: WhatIfQuery, values: dict[str, Scalar], spec: DeviceSpec | None) -> list[Notice]:
    if query.change != "roofline" or values["dependencies"]:
        return []
    if spec is None:
        return [Notice("The limits of this device are not known: choose others in the bar, or give --device_limits.")]
    return [Notice("No kernel here has a limit: operators with sizes have one, recorded with record_shapes=True.")]


def _notices(values: dict[str, Scalar]) -> list[Notice]:
    low, high = int(values["low_ns"] or 0), int(values["high_ns"] or 0)
    if values["dependencies"] and low < 0 < high and low + high:
        text = "The interval holds none: the saving cannot be told from nothing. Record waits between streams to know more:"
        return [Notice(f"{text} `{RECORD_SYNCS}`.", "info")]
    return []


def _classes(found: W.Outcome) -> pd.DataFrame:
    rows = np.flatnonzero((found.before > 0) | (found.after > 0))
    before, after = found.before[rows], found.after[rows]
    return pd.DataFrame({
        "class": [LABELS[CLASSES[k]] for k in rows.tolist()], "before_ns": before, "after_ns": after, "change_ns": after - before,
    })  # fmt: skip


def _curve(query: WhatIfQuery, chosen: Chosen, found: W.Outcome, what: str, steps: int) -> FigureSection:
    """Draws the step over the scale of what changes, and what subtracting would give; of a wait, which is there or not, now and then."""
    if query.change in W.DROPS or query.change in W.WHOLE:
        both = [float(found.window), float(found.window - found.saved)]
        divisor, unit = F.time_scale(max(both))
        bar: F.Plain = {
            "type": "bar", "orientation": "h", "x": [t / divisor for t in both], "y": ["now", "then"],
            "marker": F.fill("accent"), "hoverinfo": "text", "hovertext": [human(t, "ns") for t in both],
        }
        figure = F.figure([bar], x=F.axis(unit), y=F.axis(autorange="reversed"), showlegend=False)
    else:
        took = [found.window - ns / steps for ns in chosen.saved_at(SCALES).tolist()]
        divisor, unit = F.time_scale(max(took))
        data: list[F.Plain] = [_line("by replay", took, divisor, "solid", "accent")]
        if query.scale != 1:
            whole = found.naive / (1 - query.scale)
            data.append(_line("by subtraction", [found.window - whole * (1 - s) for s in SCALES], divisor, "dot", "ink-3"))
        figure = F.figure(data, x=F.axis("time then over time now"), y=F.axis(unit, rangemode="tozero"), showlegend=True)
    return FigureSection(
        id="curve", title="Step time", span=8, height=320, table="classes", figure=figure,
        summary=f"If {what}, a step takes {human(found.window - found.saved, 'ns')}.",
    )  # fmt: skip


def _line(name: str, ns: list[float], divisor: float, dash: str, color: str) -> F.Plain:
    return {
        "type": "scatter", "mode": "lines+markers", "name": name, "x": [*SCALES], "y": [t / divisor for t in ns],
        "line": {"color": F.light(color), "dash": dash}, "hoverinfo": "text",
        "hovertext": [f"<b>{name}</b>, {s:g}×<br>{human(t, 'ns')}" for s, t in zip(SCALES, ns, strict=True)],
    }  # fmt: skip
