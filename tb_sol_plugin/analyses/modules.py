"""Modules: the tree of `nn.Module` calls with host time, device time forward and backward, work and efficiency.

Device time of a module is that of the events whose launch starts inside one of its calls, on the same thread. Backward device time
is that of backward operators linked to forward operators inside its calls. A module called from two places has a row at each.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses import analysis
from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import texts
from tb_sol_plugin.metrics.modules import MergedRow, by_class, merge_siblings, merged_sums, module_times, module_tree, unmerged
from tb_sol_plugin.metrics.scope import Scope, scope
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.palette import efficiency_colour, light
from tb_sol_plugin.model.report import (
    Column,
    FactsSection,
    FigureSection,
    Link,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    TableSection,
    TreeSpec,
    make_table,
)
from tb_sol_plugin.model.selection import Query
from tb_sol_plugin.tables import tree
from tb_sol_plugin.units import human

OUTSIDE = "(outside every module)"
ACCUMULATION = "(gradient accumulation)"
CHART_PIXELS = 1150.0
"""Width of the icicle on a usual screen, to choose what its boxes say."""
NO_MODEL = "no cost model, no shapes, or an unknown device"

_NUMBERS = (
    Column("calls", "Calls", "count", "How often it was called."),
    Column("time_ns", "Device time", "ns", "Device time in the chosen direction: forward, backward or both.", "bar", color="compute"),
    Column("share", "Share", "ratio", "Device time over all device work of the selection.", "share", rank=2),
    Column("device_total_ns", "Forward", "ns", "Sum of the durations of device events whose launch starts inside a call.", rank=2),
    Column("device_self_ns", "Self", "ns", "Forward device time launched outside every module inside it.", rank=2),
    Column(
        "backward_device_ns",
        "Backward",
        "ns",
        "Device time of backward operators linked to forward operators inside a call, less what the call itself launched.",
        rank=2,
    ),
    Column("device_events", "GPU events", "count", "Device events whose launch starts inside a call.", rank=3),
    Column("host_total_ns", "Host", "ns", "Sum of the durations of its calls.", "bar", color="host", rank=2),
    Column("host_self_ns", "Host self", "ns", "Host time less the modules called inside; never negative.", rank=3),
    Column(
        "flop", "FLOP", "FLOP", "Floating point operations of the modelled operators in the chosen direction.", missing=NO_MODEL, rank=2
    ),
    Column("bytes", "Bytes", "B", "Least memory traffic of the modelled operators in the chosen direction.", missing=NO_MODEL, rank=3),
    Column("sol_ns", "Limit", "ns", "Least time of the modelled operators on this device.", missing=NO_MODEL),
    Column("measured_ns", "Modelled time", "ns", "Device time of the modelled operators.", missing=NO_MODEL, rank=3),
    Column("wasted_ns", "Above limit", "ns", "Modelled time less the limit.", missing=NO_MODEL),
    Column(
        "modelled_share",
        "Modelled",
        "ratio",
        "Part of the device time that a cost model covers.",
        "share",
        missing="no device time",
        rank=3,
    ),
    Column("efficiency", "Efficiency", "ratio", "Limit over modelled time.", "efficiency", missing=NO_MODEL),
)

COLUMNS = (
    Column("id", "Key", "", "Key of the row: the path of instances from the root.", "code", rank=3),
    Column("parent", "Parent", "", "Key of the module that called it.", "code", rank=3),
    Column("name", "Module", "", "Instance as numbered by the recorder; the class where equal siblings are merged.", "tree"),
    Column("class_name", "Class", "", "Class of the module.", "code", rank=3),
    Column("instances", "Merged", "count", "Module instances that the row stands for.", rank=3),
    *_NUMBERS,
)
CLASS_COLUMNS = (
    Column("class_name", "Class", "", "Class of the module.", "code"),
    Column("instances", "Instances", "count", "Distinct instances of the class."),
    *_NUMBERS,
)

FACTS = {
    "instances": "Distinct module instances called in the selection.",
    "calls": "Module calls in the selection.",
    "classes": "Distinct classes of modules.",
    "instances_with_device_time": "Instances inside whose calls device work was launched.",
    "device_ns": "Sum of the durations of all device events in the selection.",
    "in_modules_ns": "Device time launched inside some module call.",
    "backward_ns": "Device time of backward work credited to some module.",
    "outside_ns": "Device time of neither kind: outside every module, before the window, or without a launch record.",
}


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
    needs=("modules",),
    query=ModulesQuery,
    tables={"modules": COLUMNS, "classes": CLASS_COLUMNS},
    facts=FACTS,
)
def modules(capture: Capture, query: ModulesQuery) -> Report:
    """The module tree, by instance or with equal siblings merged, and the same by class."""
    part = scope(capture, query)
    nodes = module_times(capture, part, query.direction, query.device_limits)
    device = capture.device["duration_ns"].to_numpy()[part.device]
    whole = int(device.sum())
    rows = merge_siblings(nodes) if query.merge == "on" else unmerged(nodes)
    table = _derived(merged_sums(nodes, rows), query, whole, bool(len(capture.device)))
    keys = _keys(nodes, rows)
    table["id"] = keys
    table["parent"] = [keys[p] if p >= 0 else None for p in table["parent"].tolist()]
    facts = _facts(capture, part, nodes)
    report = Report(analysis="modules", title="Modules", headline=_headline(table, query, whole))
    report.notices = _notices(capture, table, query, facts)
    report.sections = [
        _icicle(nodes, rows, keys, query, whole),
        _table(capture, part, nodes, table, rows, query, facts),
        _classes(capture, nodes, query, facts),
        _facts_section(facts),
    ]
    return report


def _time(frame: pd.DataFrame, direction: str) -> pd.Series:
    if direction == "forward":
        return frame["device_total_ns"]
    return frame["backward_device_ns"] if direction == "backward" else frame["device_total_ns"] + frame["backward_device_ns"]


def _derived(frame: pd.DataFrame, query: ModulesQuery, whole: int, has_device: bool) -> pd.DataFrame:
    """Shares and ratios, sums before ratios; without device activity the device columns are unknown."""
    sol, measured = frame["sol_ns"].to_numpy(float), frame["measured_ns"].to_numpy(float)
    time = _time(frame, query.direction).to_numpy()
    both = np.isfinite(sol) & (measured > 0)
    positive = np.maximum(time, 1)
    out = frame.assign(
        time_ns=time,
        share=time / whole if whole else np.nan,
        wasted_ns=np.where(both, measured - sol, np.nan),
        efficiency=np.where(both, sol / np.where(both, measured, 1.0), np.nan),
        modelled_share=np.where(time > 0, np.nan_to_num(frame["modelled_sum_ns"].to_numpy(float)) / positive, np.nan),
    )
    for name in ("flop", "bytes", "sol_ns", "measured_ns", "wasted_ns"):
        out[name] = [None if v != v else round(v) for v in out[name].tolist()]
    if not has_device:
        for name in ("time_ns", "device_total_ns", "device_self_ns", "backward_device_ns", "device_events", "share", "modelled_share"):
            out[name] = None
    return out


def _keys(nodes: pd.DataFrame, rows: list[MergedRow]) -> list[str]:
    """A stable key per row: the path of names from the root, `Class×n` for merged rows, a number after equal paths."""
    keys: list[str] = []
    seen: dict[str, int] = {}
    for row in rows:
        own = f"{row.class_name}×{len(row.nodes)}" if row.merged else row.name
        path = f"{keys[row.parent]}/{own}" if row.parent >= 0 else own
        count = seen[path] = seen.get(path, 0) + 1
        keys.append(path if count == 1 else f"{path}~{count}")
    return keys


# -- words ----------------------------------------------------------------------------------------------------


def _facts(capture: Capture, part: Scope, nodes: pd.DataFrame) -> dict[str, int | None]:
    device = capture.device["duration_ns"].to_numpy()
    module = capture.device["module"].to_numpy()
    roots = nodes["parent"].to_numpy() < 0
    per_name = nodes.groupby("name", observed=True)["device_events"].sum()
    whole = int(device[part.device].sum())
    inside = int(device[part.device & (module >= 0)].sum())
    backward = int(nodes["backward_device_ns"].to_numpy()[roots].sum())
    facts: dict[str, int | None] = {
        "instances": int(nodes["name"].nunique()),
        "calls": int(nodes["calls"].sum()),
        "classes": int(nodes["class_name"].nunique()),
        "instances_with_device_time": int((per_name > 0).sum()),
        "device_ns": whole,
        "in_modules_ns": inside,
        "backward_ns": backward,
        "outside_ns": max(whole - inside - backward, 0),
    }
    if not len(capture.device):
        facts |= dict.fromkeys(("instances_with_device_time", "device_ns", "in_modules_ns", "backward_ns", "outside_ns"))
    return facts


def _headline(table: pd.DataFrame, query: ModulesQuery, whole: int) -> str:
    """Names the class whose own work (device self, below it nothing that stands out) is largest, with its efficiency."""
    if table.empty:
        return "No module was called in this selection."
    if not whole:
        by_host = table.groupby("class_name", observed=True)["host_self_ns"].sum()
        top = str(by_host.idxmax())
        return f"`{top}` takes **{human(int(by_host[top]), 'ns')}** of host time of its own; no device activity was recorded."
    own = (table["device_self_ns"] + table["backward_self_ns"]).groupby(table["class_name"], observed=True).sum()
    if not own.max():
        return "No device work was launched inside a module call."
    top = str(own.idxmax())
    rows = table[(table["class_name"] == top) & (table["parent"].map(dict(zip(table["id"], table["class_name"], strict=True))) != top)]
    count = int(rows["instances"].sum())
    time, sol, measured = (pd.to_numeric(rows[c]).sum() for c in ("time_ns", "sol_ns", "measured_ns"))
    efficiency = f" and runs at **{human(sol / measured, 'ratio')}** of its limit" if measured > 0 and sol > 0 else ""
    where = f"the {count} `{top}` modules" if count > 1 else f"`{top}`"
    direction = f", {query.direction}," if query.direction != "both" else ""
    return f"Work in {where}{direction} takes **{human(time / whole, 'ratio')}** of the device time{efficiency}."


def _notices(capture: Capture, table: pd.DataFrame, query: ModulesQuery, facts: dict[str, int | None]) -> list[Notice]:
    out = []
    if not len(capture.device):
        out.append(Notice("No device activity was recorded: host times only.", "info"))
    elif query.direction != "forward" and not len(capture.tables["backward"]):
        out.append(Notice("No backward pass is linked in this recording; device time is forward only.", "info", Link("links")))
    if query.direction != "forward" and facts["outside_ns"] and facts["device_ns"] and facts["outside_ns"] / facts["device_ns"] > 0.2:
        out.append(Notice(f"{human(facts['outside_ns'] / facts['device_ns'], 'ratio')} of the device time belongs to no module.", "info"))
    return out


# -- sections -------------------------------------------------------------------------------------------------


def _icicle(
    nodes: pd.DataFrame, rows: list[MergedRow], keys: list[str], query: ModulesQuery, whole: int, limit: int = 1500
) -> FigureSection:
    """Boxes for every node, the widest `limit` of them. With merged rows a box carries the key of its merged row."""
    row_of = {n: i for i, row in enumerate(rows) for n in row.nodes}
    path: list[str] = []
    position = {int(n): i for i, n in enumerate(nodes["node"].tolist())}
    for i, (up, name) in enumerate(zip(nodes["parent"].tolist(), nodes["name"].tolist(), strict=True)):
        above = position.get(int(up), -1)
        path.append((path[above] + "/" if above >= 0 else "") + f"{name}#{i}")
    has_time = bool(_time(nodes, query.direction).sum())
    width = query.width if query.width != "device" or has_time else "host"
    values = {"device": _time(nodes, query.direction), "host": nodes["host_total_ns"], "flop": nodes["flop"]}[width]
    value = np.nan_to_num(values.to_numpy(dtype=np.float64))
    value = _bounded(nodes, position, value)
    shown = set(np.argsort(-value, kind="stable")[:limit][value[np.argsort(-value, kind="stable")[:limit]] > 0].tolist())
    sol, measured = nodes["sol_ns"].to_numpy(float), nodes["measured_ns"].to_numpy(float)
    unit = "FLOP" if width == "flop" else "ns"
    pixels = value / max(float(value[nodes["parent"].to_numpy() < 0].sum()), 1.0) * CHART_PIXELS
    boxes: dict[str, list[Scalar]] = {k: [] for k in ("ids", "labels", "parents", "values", "text", "hovertext", "customdata")}
    colours: list[str] = []
    for i in sorted(shown):
        efficiency = float(sol[i] / measured[i]) if measured[i] > 0 and np.isfinite(sol[i]) else None
        above = position.get(int(nodes["parent"].iloc[i]), -1)
        name = str(nodes["name"].iloc[i])
        share = f", {human(value[i] / whole, 'ratio')} of device time" if whole and width == "device" else ""
        said = f"efficiency {human(efficiency, 'ratio')}" if efficiency is not None else "no cost model"
        boxes["ids"].append(path[i])
        boxes["parents"].append(path[above] if above in shown else "")
        boxes["labels"].append(name)
        boxes["values"].append(float(value[i]))
        boxes["text"].append(_box_text(name, efficiency, float(pixels[i])))
        boxes["hovertext"].append(f"<b>{name}</b><br>{human(float(value[i]), unit)}{share}<br>{said}")
        boxes["customdata"].append(keys[row_of[i]])
        colours.append(efficiency_colour(efficiency))
    trace: fig.Plain = {
        "type": "icicle",
        **boxes,
        "branchvalues": "total",
        "marker": {"colors": colours, "line": {"width": 0.8, "color": light("surface")}},
        "textinfo": "text",
        "textfont": {"size": 11.5},
        "hoverinfo": "text",
        "tiling": {"orientation": "v", "pad": 0},
        "pathbar": {"visible": False},
        "root": {"color": "rgba(0,0,0,0)"},
        "sort": False,
    }
    words = {"device": "device time", "host": "host time", "flop": "FLOP"}[width]
    wide = [i for i in shown if pixels[i] >= 3]
    depth = int(nodes["depth"].to_numpy()[wide].max()) + 1 if wide else 1
    trace["maxdepth"] = depth
    left_out = int((value > 0).sum()) - len(shown)
    more = f"; {left_out} narrow boxes left out" if left_out > 0 else ""
    return FigureSection(
        id="icicle",
        title="Device time by module" if width == "device" else f"{words.capitalize()} by module",
        subtitle=f"width is {words}, colour is efficiency: orange far below its limit, blue at it, grey without a cost model{more}",
        figure=fig.figure([trace], margin={"l": 4, "r": 4, "t": 4, "b": 4}),
        summary=f"Boxes of {len(shown)} modules in {depth} levels, as wide as their {words}, coloured by efficiency.",
        table="modules",
        height=min(60 + 38 * depth, 620),
    )


def _box_text(name: str, efficiency: float | None, pixels: float) -> str:
    """What fits into a box: name and efficiency, the name, or its initial and number (`EncoderLayer_12` is L12), or nothing."""
    percent = human(efficiency, "ratio") if efficiency is not None else ""
    words = re.findall(r"[A-Z][a-z]*", name)
    number = name.rpartition("_")[2] if "_" in name else ""
    short = f"{words[-1][0]}{number}" if words else ""
    for text in (f"{name}  {percent}".strip(), name, f"{short} {percent}".strip(), short):
        if text and len(text) * 6.6 + 8 < pixels:
            return text
    return ""


def _bounded(nodes: pd.DataFrame, position: dict[int, int], value: np.ndarray) -> np.ndarray:
    """Widths in which children never outgrow their parent, as a drawing of totals wants it: parents are raised to the sum."""
    below = np.zeros(len(value))
    out = value.copy()
    for i in reversed(range(len(value))):
        out[i] = max(out[i], below[i])
        up = position.get(int(nodes["parent"].iloc[i]), -1)
        if up >= 0:
            below[up] += out[i]
    return out


def _table(
    capture: Capture,
    part: Scope,
    nodes: pd.DataFrame,
    table: pd.DataFrame,
    rows: list[MergedRow],
    query: ModulesQuery,
    facts: dict[str, int | None],
) -> TableSection:
    frame = table
    outside = _outside_rows(capture, part, query, facts)
    if query.merge == "on":
        frame = _with_self_rows(capture, part, nodes, rows, frame)
    if outside:
        frame = pd.concat([frame.astype(object), pd.DataFrame(outside).reindex(columns=frame.columns).astype(object)], ignore_index=True)
    merged = sum(len(r.nodes) for r in rows if r.merged)
    how = f", {merged} equal modules merged" if merged else ""
    whole = facts["device_ns"]
    of = f"; shares of {human(whole, 'ns')} of device work" if whole else ""
    section = make_table(
        "modules",
        "Modules",
        frame,
        _columns(COLUMNS, facts),
        subtitle=f"{human(facts['instances'], 'count')} instances{how}{of}",
        key="id",
        tree=TreeSpec(),
        sort=Sort("time_ns" if whole else "host_total_ns"),
        last=[str(r["id"]) for r in outside],
        filters=["name", "class_name"],
        footer="A module's time contains that of the modules it calls. Efficiency covers the modelled part.",
    )
    _mark(section)
    return section


def _columns(columns: tuple[Column, ...], facts: dict[str, int | None]) -> list[Column]:
    """Without a backward pass its column, and forward beside the device time, are shown only when a reader asks for them."""
    if facts["backward_ns"]:
        return list(columns)
    return [msgspec.structs.replace(c, rank=3) if c.name in ("device_total_ns", "backward_device_ns") else c for c in columns]


def _mark(section: TableSection) -> None:
    """Efficiency of a partly modelled row is marked, and one above the limit flagged."""
    shares, efficiency = section.data["modelled_share"], section.data["efficiency"]
    for row, (share, value) in enumerate(zip(shares, efficiency, strict=True)):
        if not isinstance(value, int | float):
            continue
        if value > 1.02:
            section.marks.setdefault("efficiency", {})[str(row)] = Mark("flagged", "faster than the limit: the limit or the work is wrong")
        elif isinstance(share, int | float) and share < 0.95:
            section.marks.setdefault("efficiency", {})[str(row)] = Mark("partial", f"covers {human(share, 'ratio')} of the device time")


def _with_self_rows(capture: Capture, part: Scope, nodes: pd.DataFrame, rows: list[MergedRow], frame: pd.DataFrame) -> pd.DataFrame:
    """After each row with modules inside, a row `self: bmm, softmax` for the work that the module launches itself."""
    has_children = frame["id"].isin(set(frame["parent"].dropna())).to_numpy()
    own = pd.to_numeric(frame["device_self_ns"]).to_numpy(dtype=np.float64)
    named = _self_names(capture, part, nodes, rows)
    whole = pd.to_numeric(frame["time_ns"]).to_numpy(dtype=np.float64)
    share = pd.to_numeric(frame["share"]).to_numpy(dtype=np.float64)
    records = []
    for i in np.flatnonzero(has_children & (own > 0)).tolist():
        row = frame.iloc[i]
        record = {c: row[c] for c in ("class_name", "instances", "calls")}
        times = dict.fromkeys(("time_ns", "device_total_ns", "device_self_ns"), int(own[i]))
        label = f"self: {named.get(i, 'launched by the module itself')}"
        records.append(
            {
                **record,
                **times,
                "id": f"{row['id']}/self",
                "parent": row["id"],
                "name": label,
                "share": share[i] * own[i] / whole[i],
                "_at": i + 0.5,
            }
        )
    if not records:
        return frame
    out = pd.concat([frame.astype(object).assign(_at=range(len(frame))), pd.DataFrame(records).astype(object)], ignore_index=True)
    return out.sort_values("_at", kind="stable", ignore_index=True).drop(columns="_at")


def _self_names(capture: Capture, part: Scope, nodes: pd.DataFrame, rows: list[MergedRow], most: int = 3) -> dict[int, str]:
    """Per row the operators that launch most of its own device time, `aten::` left out."""
    place = {int(n): i for i, n in enumerate(nodes["node"].tolist())}
    row_of = {n: i for i, row in enumerate(rows) for n in row.nodes}
    device = capture.device
    use = np.flatnonzero(part.device & (device["module"].to_numpy() >= 0) & (device["operator"].to_numpy() >= 0))
    node = module_tree(capture).node[device["module"].to_numpy()[use]]
    names = texts.pick(capture.host["name"], device["operator"].to_numpy()[use])
    time = pd.Series(device["duration_ns"].to_numpy()[use]).groupby([node, names]).sum()
    by_row: dict[int, dict[str, int]] = {}
    for (n, name), value in zip(time.index.to_list(), time.to_list(), strict=True):
        if int(n) in place:
            sums = by_row.setdefault(row_of[place[int(n)]], {})
            short = str(name).rpartition("::")[2].lstrip("_")
            sums[short] = sums.get(short, 0) + int(value)
    return {i: ", ".join(sorted(sums, key=lambda s: -sums[s])[:most]) for i, sums in by_row.items()}


def _outside_rows(capture: Capture, part: Scope, query: ModulesQuery, facts: dict[str, int | None]) -> list[dict[str, object]]:
    """Device work of no module by reason; with backward counted, work credited to a module through its backward is left out."""
    if not len(capture.device):
        return []
    launch = at.launches(capture)
    owner = np.where(part.device, capture.device["module"].to_numpy(), 0)
    if query.direction != "forward":
        forward, _ = at.forward_rows(capture, launch.call, launch.time)
        credited = at.nearest(capture, S.MODULE, forward)
        owner = np.where(owner >= 0, owner, credited)
    duration = capture.device["duration_ns"].to_numpy()
    whole = facts["device_ns"] or 0
    out: list[dict[str, object]] = []
    reasons = at.unowned(capture, owner, OUTSIDE)
    if query.direction != "forward":
        reasons = _accumulation_apart(capture, reasons)
    for name, mask in reasons:
        time = int(duration[mask].sum())
        out.append(
            {
                "id": name,
                "parent": None,
                "name": name,
                "class_name": "",
                "time_ns": time,
                "device_total_ns": time,
                "device_self_ns": time,
                "device_events": int(mask.sum()),
                "share": time / whole if whole else None,
            }
        )
    return out


def _accumulation_apart(capture: Capture, reasons: list[tuple[str, at.Mask]]) -> list[tuple[str, at.Mask]]:
    """Gradient accumulation, which belongs to no forward operator, as a row of its own beside the rest of the work outside."""
    h = at.host(capture)
    wraps = texts.where(capture.host["name"], lambda n: n.startswith("autograd::engine::evaluate_function") and "AccumulateGrad" in n)
    if not wraps.any():
        return reasons
    launch = at.launches(capture)
    inside = tree.nearest(wraps, h.parent, h.stop, launch.call, launch.time) >= 0
    inside &= ~capture.device["communication"].to_numpy()
    out: list[tuple[str, at.Mask]] = []
    for name, mask in reasons:
        parts = ((ACCUMULATION, mask & inside), (name, mask & ~inside)) if name == OUTSIDE else ((name, mask),)
        out += [(label, part) for label, part in parts if part.any()]
    return out


def _classes(capture: Capture, nodes: pd.DataFrame, query: ModulesQuery, facts: dict[str, int | None]) -> TableSection:
    whole = facts["device_ns"] or 0
    frame = _derived(by_class(capture, nodes), query, whole, bool(len(capture.device)))
    section = make_table(
        "classes",
        "Classes",
        frame,
        _columns(CLASS_COLUMNS, facts),
        subtitle="summed over all instances; a class inside itself counts twice",
        key="class_name",
        sort=Sort("time_ns" if whole else "host_total_ns"),
        filters=["class_name"],
    )
    _mark(section)
    for row, name in enumerate(frame["class_name"].tolist()):
        section.row_links[str(row)] = Link("modules", {"find": str(name)}, "Its instances")
    return section


def _facts_section(facts: dict[str, int | None]) -> FactsSection:
    labels = {
        "instances": "Instances",
        "calls": "Calls",
        "classes": "Classes",
        "instances_with_device_time": "Instances with device time",
        "device_ns": "Device work, sum",
        "in_modules_ns": "Launched inside a module",
        "backward_ns": "Backward of a module",
        "outside_ns": "Of no module",
    }
    units = {k: "ns" if k.endswith("_ns") else "count" for k in facts}
    return FactsSection(id="facts", title="Counts", values=dict(facts), units=units, labels=labels, docs=dict(FACTS))
