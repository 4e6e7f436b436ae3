"""Modules: the tree of `nn.Module` calls with host time, device time forward and backward, work and efficiency.

Device time of a module is that of the events whose launch starts inside one of its calls, on the same thread. Backward device time
is that of backward operators linked to forward operators inside its calls. A module called from two places has a row at each.
"""

from __future__ import annotations

import math
import re
from typing import ClassVar, Final, Literal

import msgspec
import numpy as np
import xxhash

from tb_sol_plugin.analyses.time import modules_tables as rows_of
from tb_sol_plugin.analyses.time.modules_tables import headline, known, module_source, node_names, notices, row_names, worded
from tb_sol_plugin.metrics.report.longest import LONGEST, on_timeline
from tb_sol_plugin.metrics.report.notes import source_notices
from tb_sol_plugin.metrics.time import scope as source
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.metrics.trees.label_times import module_calls, qualified_names
from tb_sol_plugin.metrics.trees.module_tree import labels_alone
from tb_sol_plugin.metrics.trees.modules import (
    CaptureModules,
    Columns,
    MergedRow,
    by_class,
    capture_has_modules,
    capture_modules,
    class_rows,
    merge_siblings,
    merged_sums,
    module_times,
    unmerged,
    work_of,
)
from tb_sol_plugin.metrics.work.columns import (
    BOUND,
    BYTES,
    EFFICIENCY,
    FLAGS,
    FLOP,
    MEASURED,
    MODELED,
    RECOMPUTE,
    SOL,
    WASTED,
    over_whole,
    ranked,
)
from tb_sol_plugin.metrics.work.sums import calls_of, marks_of
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import plain_list
from tb_sol_plugin.model.figure import efficiency_color, light
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Report,
    Scalar,
    Sort,
    TableSection,
    TreeSpec,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.units import capitalized, human, humans

MOST_NAMED = 500
IN_THE_MODEL = "Name in the model below that of its parent; equal siblings are merged, with how many they are."
OF_A_CAPTURE = ("qualified_name", "operator_ns", "backward_flop")
"""Columns that only a SOL capture fills."""
_NUMBERS = (
    Column("calls", "Calls", "count", "How often it was called."),
    Column(
        "time_ns",
        "Device time",
        "ns",
        "Device time in the chosen direction: forward (with forward work that runs again), backward or both.",
        "bar",
        color="compute",
    ),
    Column("share", "Share", "ratio", "Device time over all device work of the selection.", "share", rank=2),
    Column("device_total_ns", "Forward", "ns", "Sum of the durations of device events whose launch starts inside a call.", rank=2),
    Column("device_self_ns", "Self", "ns", "Forward device time launched outside every module inside it.", rank=2),
    Column(
        "backward_device_ns",
        "Backward",
        "ns",
        "Device time of backward operators linked to forward operators inside a call, less what the call itself launched "
        "and forward work that runs again.",
        rank=2,
    ),
    Column("device_events", "GPU events", "count", "Device events whose launch starts inside a call.", rank=3),
    Column("host_total_ns", "Host", "ns", "Sum of the durations of its calls, without those inside another.", "bar", color="host", rank=2),
    Column("host_self_ns", "Host self", "ns", "Host time less the modules called inside; never negative.", rank=3),
    Column(
        "operator_ns",
        "Operators",
        "ns",
        "Time of the operators counted in it in the chosen direction, by the wall clock of a CPU.",
        "bar",
        color="host",
        rank=3,
        missing="single operators were not timed",
    ),
    ranked(FLOP, 2, "Matrix operations of the modeled operators in the chosen direction."),
    Column("backward_flop", "FLOP, backward", "FLOP", "The part of them in the backward pass.", rank=3, missing="no backward work"),
    ranked(BYTES, 3, "Least memory traffic of the modeled operators in the chosen direction."),
    SOL,
    ranked(MEASURED, 3, "Device time of the operators that have a limit, in the chosen direction."),
    WASTED,
    ranked(MODELED, 2),
    EFFICIENCY,
    BOUND,
    RECOMPUTE,
    FLAGS,
    *LONGEST,
)

COLUMNS = (
    Column("id", "Key", "", "Key of the row: the path of instances from the root.", "code", rank=3),
    Column("parent", "Parent", "", "Key of the module that called it.", "code", rank=3),
    Column("name", "Module", "", "Instance as numbered by the recorder; the class where equal siblings are merged.", "tree"),
    Column(
        "qualified_name",
        "In the model",
        "",
        "Name in the model, of merged modules those of all.",
        "code",
        rank=3,
        missing="a profiler trace numbers the modules of a class",
    ),
    Column("class_name", "Class", "", "Class of the module.", "code", rank=3),
    Column("instances", "Merged", "count", "Module instances in the row.", rank=3),
    *_NUMBERS,
)
CLASS_COLUMNS = (
    Column("class_name", "Class", "", "Class of the module.", "code"),
    Column("instances", "Instances", "count", "Distinct instances of the class."),
    *_NUMBERS,
)

FACTS: Final = (
    Fact("instances", "Instances", "count", "Distinct module instances called in the selection."),
    Fact("calls", "Calls", "count", "Module calls in the selection."),
    Fact("classes", "Classes", "count", "Distinct classes of modules."),
    Fact("instances_with_device_time", "Instances with device time", "count", "Instances inside whose calls device work was launched."),
    Fact("device_ns", "Device work, sum", "ns", "Sum of the durations of all device events in the selection."),
    Fact("in_modules_ns", "Launched inside a module", "ns", "Device time launched inside some module call."),
    Fact("backward_ns", "Backward of a module", "ns", "Device time of backward work credited to some module."),
    Fact("flop", "Matrix work", "FLOP", "Matrix operations of all modeled operators of the selection, those outside every module "
         "included."),
    Fact("recompute_ns", "Forward run again", "ns", "Device time of forward work that runs again inside the backward pass."),
    Fact("outside_ns", "Of no module", "ns", "Device time of neither kind: outside every module, before the window, or without a launch "
         "record."),
)  # fmt: skip


class ModulesQuery(Query, kw_only=True, frozen=True):
    """Modules.

    direction: which work the columns of time and efficiency count.
    merge: on merges equal sibling modules into one row.
    width: what the width of a box in the chart stands for.
    """

    direction: Literal["both", "forward", "backward"] = "both"
    merge: Literal["off", "on"] = "off"
    width: Literal["device", "host", "flop"] = "device"

    PAGE: ClassVar[dict[str, str]] = {"merge": "on"}


@analysis(
    title="Modules",
    question="Which part of my model costs most and is worst?",
    group="Time",
    order=40,
    requirements=("modules",),
    counted=lambda capture: labels_alone(capture) or capture_has_modules(capture),
    query=ModulesQuery,
    tables={"modules": COLUMNS, "classes": CLASS_COLUMNS},
    facts=FACTS,
)
def modules(capture: Capture, query: ModulesQuery) -> Report:
    """Returns the module tree, by instance or with equal siblings merged, and the same by class.

    Of a trace without module calls that of the sampled iterations of the SOL capture beside it which do the same work.
    """
    part = scope(capture, query)
    attached = capture_modules(capture, part)
    if attached is None:
        return _report(capture, part, query, None)
    alone = msgspec.structs.replace(query, step="")
    return _report(attached.capture, scope(attached.capture, alone), alone, attached)


def _report(capture: Capture, part: Scope, query: ModulesQuery, captured: CaptureModules | None) -> Report:
    """Builds the report. beside: where `capture` is the view of a SOL log that was recorded with a trace."""
    nodes = module_times(capture, part, query.direction, query.device_limits)
    device = capture.device["duration_ns"].to_numpy()[part.device]
    whole = int(device.sum())
    rows = merge_siblings(nodes) if query.merge == "on" else unmerged(nodes)
    table = _derived(merged_sums(nodes, rows), query, whole, bool(len(capture.device)))
    if source.is_capture(capture):
        table = rows_of.with_label_times(capture, part, nodes, rows, table, query.direction)
    table |= rows_of.longest_calls(capture, part, nodes, rows)
    keys = _keys(nodes, rows)
    table["id"] = np.array(keys, object)
    table["parent"] = np.array([keys[p] if p >= 0 else None for p in table["parent"].tolist()], object)
    table["qualified_name"] = np.array(_qualified(capture, nodes, rows), object)
    each = node_names(nodes, qualified_names(capture)) if source.is_capture(capture) else nodes["name"].tolist()
    if source.is_capture(capture):
        table["name"] = np.array(row_names(rows, each), object)
    facts = _facts(capture, part, nodes, query.device_limits)
    report = Report(analysis="modules", title="Modules", headline=headline(capture, table, query.direction, whole))
    report.notices = (
        [module_source(captured)] if captured is not None else source_notices(capture, part) or notices(capture, query.direction, facts)
    )
    report.sections = [
        icicle(nodes, _time(nodes, query.direction), rows, keys, "flop" if labels_alone(capture) else query.width, whole, names=each),
        _table(capture, part, nodes, table, rows, query, facts),
        _classes(capture, part, nodes, query, facts),
        _facts_section(facts),
    ]
    if captured is not None:
        of = f"of {captured.words} of the SOL capture"
        for section in report.sections:
            section.subtitle = f"{of}; {section.subtitle}" if section.subtitle else of
            if isinstance(section, TableSection):
                section.columns = [worded(column, f"In {captured.words} of the SOL capture.") for column in section.columns]
    return report


def _time(rows: Columns, direction: str) -> Ints:
    total, again, backward = (rows[name] for name in ("device_total_ns", "again_device_ns", "backward_device_ns"))
    return np.asarray(total + again if direction == "forward" else backward if direction == "backward" else total + again + backward)


def _derived(rows: Columns, query: ModulesQuery, whole: int, has_device: bool) -> Columns:
    """Returns shares and ratios, sums before ratios; without device activity the device columns are unknown."""
    time = _time(rows, query.direction)
    out = rows_of.with_ratios(rows | {"time_ns": time, "share": time / whole if whole else np.full(len(time), np.nan)})
    if not has_device:
        unknown = ("time_ns", "device_total_ns", "device_self_ns", "backward_device_ns", "device_events", "share", "modelled_share")
        out |= dict.fromkeys(unknown, np.full(len(time), None, object))
    return out


def _keys(nodes: Columns, rows: list[MergedRow]) -> list[str]:
    """Returns a stable key per row: the path of names from the root, `Class×n` for merged rows, a number after equal paths."""
    keys: list[str] = []
    seen: dict[str, int] = {}
    for row in rows:
        own = f"{row.class_name}×{len(row.nodes)}" if row.merged else row.name
        path = _below(keys[row.parent] if row.parent >= 0 else "", own)
        count = seen[path] = seen.get(path, 0) + 1
        keys.append(path if count == 1 else f"{path}~{count}")
    return keys


def _paths(above: list[int], names: list[str]) -> list[str]:
    """Returns a key per box. above: place of the parent, before its children; -1 at a root."""
    out: list[str] = []
    for up, name in zip(above, names, strict=True):
        out.append(_below(out[up] if up >= 0 else "", name))
    return out


def _below(above: str, own: str) -> str:
    """Returns the key of what stands below another: its key and the own name, the former as a checksum where modules nest so deeply that
    keys would outgrow all else.
    """
    if len(above) > LONGEST_KEY:
        above = f"~{xxhash.xxh3_64_hexdigest(above.encode())}"
    return f"{above}/{own}" if above else own


# -- Facts ------------------------------------------------------------------------------------------------------------


def _facts(capture: Capture, part: Scope, nodes: Columns, limits: str) -> dict[str, int | None]:
    device = capture.device["duration_ns"].to_numpy()
    module = capture.device["module"].to_numpy()
    roots = nodes["parent"] < 0
    names, events = nodes["name"].tolist(), nodes["device_events"].tolist()
    whole = int(device[part.device].sum())
    inside = int(device[part.device & (module >= 0)].sum())
    backward = int(nodes["backward_device_ns"][roots].sum())
    credited = int(_time(nodes, "both")[roots].sum())
    facts: dict[str, int | None] = {
        "instances": len(set(names)),
        "calls": int(nodes["calls"].sum()),
        "classes": len(set(nodes["class_name"].tolist())),
        "instances_with_device_time": len({name for name, count in zip(names, events, strict=True) if count > 0}),
        "device_ns": whole,
        "in_modules_ns": inside,
        "backward_ns": backward,
        "recompute_ns": round(float(np.nansum(calls_of(capture, part, limits).values["recompute_ns"]))),
        "outside_ns": max(whole - credited, 0),
    }
    if labels_alone(capture):
        calls = module_calls(capture, part)[nodes["node"]]
        facts["calls"] = int(calls.sum()) if np.isfinite(calls).all() else None
    if source.is_capture(capture):
        facts["flop"] = round(float(np.nansum(calls_of(capture, part, limits).values["flop"])))
    if not len(capture.device):
        facts |= dict.fromkeys(("instances_with_device_time", "device_ns", "in_modules_ns", "backward_ns", "recompute_ns", "outside_ns"))
    return facts


def _qualified(capture: Capture, nodes: Columns, rows: list[MergedRow]) -> list[str | None]:
    """Returns names in the model, where a SOL capture knows them; of merged modules all, so that a filter finds each."""
    if not source.is_capture(capture):
        return [None] * len(rows)
    names, node = qualified_names(capture), nodes["node"].tolist()
    listed = [list(dict.fromkeys(names[node[n]] for n in row.nodes if names[node[n]])) for row in rows]
    return [", ".join([*every[:MOST_NAMED], *(["…"] if len(every) > MOST_NAMED else [])]) or None for every in listed]


# -- Sections ---------------------------------------------------------------------------------------------------------


def _table(
    capture: Capture,
    part: Scope,
    nodes: Columns,
    table: Columns,
    rows: list[MergedRow],
    query: ModulesQuery,
    facts: dict[str, int | None],
) -> TableSection:
    shown, whole = table, facts["device_ns"]
    work = work_of(capture, part, query.direction, query.device_limits)
    outside = rows_of.outside_rows(capture, part, work, query.direction, whole or 0)
    if query.merge == "on":
        shown = rows_of.with_self_rows(capture, work, nodes, rows, table, whole or 0)
    columns = _columns(COLUMNS, facts, table)
    data = {c.name: plain_list(shown[c.name]) for c in columns}
    last = outside["id"].tolist() if outside else []
    if outside:
        data = {n: [*v, *(plain_list(outside[n]) if n in outside else [None] * len(last))] for n, v in data.items()}
    merged = sum(len(r.nodes) for r in rows if r.merged)
    how = f", {merged} equal modules merged" if merged else ""
    of = f"; shares of {human(whole, 'ns')} of device work" if whole else ""
    section = make_table(
        "modules",
        "Modules",
        data,
        columns,
        subtitle=f"{human(facts['instances'], 'count')} instances{how}{of}",
        key="id",
        tree=TreeSpec(),
        sort=Sort("time_ns" if whole else "flop" if labels_alone(capture) else "host_total_ns"),
        last=last,
        filters=["name", "class_name"] if "flop" not in facts else ["class_name"],
        timeline=on_timeline(capture, "calls"),
        footer="A module's work and time contain those of the modules it calls. Backward work is that of its forward operators."
        if "flop" in facts
        else "A module's time contains that of the modules it calls. Efficiency covers the modeled part.",
    )
    _mark(section)
    return section


def _columns(columns: tuple[Column, ...], facts: dict[str, int | None], table: Columns) -> list[Column]:
    """Hides columns that have nothing to say: backward without a backward pass, limits without any."""
    hidden_columns: set[str] = set()
    if not facts["backward_ns"]:
        hidden_columns |= {"device_total_ns", "backward_device_ns"}
    limited = known(table["efficiency"])
    if not limited:
        hidden_columns |= {"sol_ns", "wasted_ns", "efficiency", "modelled_share", "flop", "bound"}
    if facts["device_ns"] is None:
        hidden_columns |= {"time_ns", "share", "device_self_ns", "modelled_share"}
    if "flop" in facts:
        hidden_columns -= {"flop"} | ({"sol_ns", "bound"} if known(table["sol_ns"]) else set())
        hidden_columns -= {"device_total_ns"} if known(table["device_total_ns"]) else set()
    again = {"recompute_share"} if facts["recompute_ns"] else set()
    hosted = known(table["host_total_ns"]) or "flop" not in facts
    raised = {*(("host_total_ns",) if hosted else ()), *(("measured_ns",) if limited else ())} if facts["device_ns"] is None else set()
    hidden_columns |= set() if hosted else {"host_total_ns"}
    hidden_columns |= set() if known(table["calls"]) else {"calls"}
    counted = {"flop": 1, "backward_flop": 2, "class_name": 1} if "flop" in facts else {}
    counted |= {"operator_ns": 1} if known(table["owned_sum_ns"]) else {}
    rank = counted | dict.fromkeys(again, 2) | dict.fromkeys(raised, 1) | dict.fromkeys(hidden_columns, 3)
    shown = [ranked(c, rank[c.name]) if c.name in rank else c for c in columns if "flop" in facts or c.name not in OF_A_CAPTURE]
    shown = over_whole(shown, "module") if limited and not known(table["measured_ns"]) else shown
    return [msgspec.structs.replace(c, doc=IN_THE_MODEL) if c.name == "name" and "flop" in facts else c for c in shown]


def _mark(section: TableSection) -> None:
    """Marks the efficiency of a partly modeled row, and flags one above the limit."""
    marks = marks_of(section.data["efficiency"], section.data["flags"], section.data["modelled_share"])
    if marks:
        section.marks["efficiency"] = marks


def _classes(capture: Capture, part: Scope, nodes: Columns, query: ModulesQuery, facts: dict[str, int | None]) -> TableSection:
    whole = facts["device_ns"] or 0
    rows = class_rows(nodes)
    table = _derived(by_class(nodes, rows), query, whole, bool(len(capture.device)))
    if source.is_capture(capture):
        table = rows_of.with_label_times(capture, part, nodes, rows, table, query.direction)
    table |= rows_of.longest_calls(capture, part, nodes, rows)
    section = make_table(
        "classes",
        "Classes",
        table,
        _columns(CLASS_COLUMNS, facts, table),
        adds=["calls", "device_self_ns", "host_self_ns", "self_ns"],
        subtitle="summed over all instances; where an instance holds another of its class, both count",
        key="class_name",
        sort=Sort("time_ns" if whole else "flop" if labels_alone(capture) else "host_total_ns"),
        filters=["class_name"],
        timeline=on_timeline(capture, "calls"),
    )
    _mark(section)
    names = table["class_name"].tolist()
    section.row_links = {str(row): Link("modules", {"find": str(name)}, "Its instances") for row, name in enumerate(names)}
    return section


def _facts_section(facts: dict[str, int | None]) -> FactsSection:
    return make_facts("facts", "Counts", facts, FACTS, hidden=[k for k, v in facts.items() if v is None])


# -- Icicle -----------------------------------------------------------------------------------------------------------
# a box per instance, as wide as its time, in the color of its efficiency.


LONGEST_KEY: Final = 2_000
"""Letters of the key of a row, which below that names all modules around it."""
CHART_PIXELS: Final = 1150.0
"""Width of the icicle on a usual screen, to choose what its boxes say."""


def icicle(
    nodes: Columns,
    time: Ints,
    rows: list[MergedRow],
    keys: list[str],
    asked: str,
    whole: int,
    *,
    names: list[str],
    limit: int = 1500,
) -> FigureSection:
    """Draws boxes for every node, the widest `limit` of them. With merged rows a box carries the key of its merged row.

    time: device time per node in the chosen direction. asked: device, host or flop. whole: all device time, ns. names: what a box is
    called, per node.
    """
    row_of = {n: i for i, row in enumerate(rows) for n in row.nodes}
    position = {n: i for i, n in enumerate(nodes["node"].tolist())}
    above = [position.get(up, -1) for up in nodes["parent"].tolist()]
    path = _paths(above, [f"{name}#{i}" for i, name in enumerate(nodes["name"].tolist())])
    has_time = bool(time.sum())
    width = asked if asked != "device" or has_time else "host"
    values = {"device": time, "host": nodes["host_total_ns"], "flop": nodes["flop"]}[width]
    value = np.nan_to_num(values.astype(np.float64))
    value = _bounded(above, value)
    widest = np.argsort(-value, kind="stable")[:limit]
    shown = set(widest[value[widest] > 0].tolist())
    reached = _efficiencies(nodes)
    kinds = nodes["class_name"].tolist()
    unit = "FLOP" if width == "flop" else "ns"
    pixels = value / max(float(value[nodes["parent"] < 0].sum()), 1.0) * CHART_PIXELS
    boxes: dict[str, list[Scalar]] = {k: [] for k in ("ids", "labels", "parents", "values", "text", "hovertext", "customdata")}
    colors: list[str] = []
    drawn = sorted(shown)
    widths, room = value[drawn].tolist(), pixels[drawn].tolist()
    for i, amount, length, space in zip(drawn, humans(widths, unit), widths, room, strict=True):
        percent = human(reached[i], "ratio") if reached[i] is not None else ""
        name = names[i]
        share = f", {human(length / whole, 'ratio')} of device time" if whole and width == "device" else ""
        text = f"efficiency {percent}" if percent else "no cost model"
        boxes["ids"].append(path[i])
        boxes["parents"].append(path[above[i]] if above[i] in shown else "")
        boxes["labels"].append(name)
        boxes["values"].append(length)
        boxes["text"].append(_box_text(name, percent, space))
        kind = str(kinds[i])
        titled = f"<b>{name}</b>" if name.startswith(kind) else f"<b>{name}</b> {kind}"
        boxes["hovertext"].append(f"{titled}<br>{amount}{share}<br>{text}")
        boxes["customdata"].append(keys[row_of[i]])
        colors.append(efficiency_color(reached[i]))
    trace: fig.Plain = {
        "type": "icicle",
        **boxes,
        "branchvalues": "total",
        "marker": {"colors": colors, "line": {"width": 0.8, "color": light("surface")}},
        "textinfo": "text",
        "textfont": {"size": 11.5},
        "hoverinfo": "text",
        "tiling": {"orientation": "v", "pad": 0},
        "pathbar": {"visible": False},
        "root": {"color": "rgba(0,0,0,0)"},
        "sort": False,
    }
    lacking = " (no device time known)" if asked == "device" and width == "host" else ""
    words = {"device": "device time", "host": "host time", "flop": "FLOP"}[width]
    wide = [i for i in shown if pixels[i] >= 3]
    depth = int(nodes["depth"][wide].max()) + 1 if wide else 1
    trace["maxdepth"] = depth
    left_out = int((value > 0).sum()) - len(shown)
    more = f"; {left_out} narrow boxes left out" if left_out > 0 else ""
    return FigureSection(
        id="icicle",
        title="Device time by module" if width == "device" else f"{capitalized(words)} by module",
        subtitle=f"width is {words}{lacking}, color is efficiency: orange far below its limit, blue at it, gray without a model{more}",
        figure=fig.figure([trace], margin={"l": 4, "r": 4, "t": 4, "b": 4}),
        summary=f"Boxes of {len(shown)} modules in {depth} levels, as wide as their {words}, colored by efficiency.",
        table="modules",
        height=min(60 + 38 * depth, 620),
    )


def _efficiencies(nodes: Columns) -> list[float | None]:
    """Returns limit over time of each node, None where one of them is not known."""
    pairs = zip(nodes["sol_ns"].tolist(), nodes["measured_ns"].tolist(), strict=True)
    return [sol / time if time > 0 and math.isfinite(sol) else None for sol, time in pairs]


LETTER_PIXELS: Final = 6.6
EDGE_PIXELS: Final = 8


def _box_text(name: str, percent: str, pixels: float) -> str:
    """What fits in a box: name and efficiency, the name, its initial and number (`EncoderLayer_12` is L12, `layers.12` l12), nothing."""
    if pixels <= LETTER_PIXELS + EDGE_PIXELS:
        return ""
    words = re.findall(r"[A-Z][a-z]*", name)
    number = name.rpartition("_")[2] if "_" in name else ""
    numbered = re.fullmatch(r"(?:.*\.)?([a-z])\w*\.(\d+)", name)
    short = f"{numbered[1]}{numbered[2]}" if numbered else f"{words[-1][0]}{number}" if words else ""
    for text in (f"{name}  {percent}".strip(), name, f"{short} {percent}".strip(), short):
        if text and len(text) * LETTER_PIXELS + EDGE_PIXELS < pixels:
            return text
    return ""


def _bounded(above: list[int], value: Floats) -> Floats:
    """Returns widths in which children never outgrow their parent, as a drawing of totals wants it: parents are raised to the sum.

    above: place of the parent, before its children; -1 at a root.
    """
    out = value.tolist()
    below = [0.0] * len(out)
    for i in reversed(range(len(out))):
        out[i] = max(out[i], below[i])
        if above[i] >= 0:
            below[above[i]] += out[i]
    return np.array(out, np.float64)
