"""The parts of the page of copies that are drawn or argued: bandwidth by size, and what to fix first."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memcpy import candidates, link, records
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FigureSection, Finding, FindingsSection, Link
from tb_sol_plugin.units import human

NAMES: Final = {
    "HtoD": "Host to device", "DtoH": "Device to host", "DtoD": "Device to device", "PtoP": "Peer to peer", "HtoH": "Host to host",
    "Memset": "Memset", records.COPY_KERNEL: "Copy kernels", "Unknown": "Direction unknown",
}  # fmt: skip
COLORS: Final = {"HtoD": "HtoD", "DtoH": "DtoH", "DtoD": "DtoD", "Memset": "Memset", "PtoP": "communication", records.COPY_KERNEL: "DtoD"}
TITLES: Final = {
    "small_to_host": "Small copies to the host drain the stream",
    "blocking_to_device": "Copies to the device block the host",
    "blocking_to_host": "Copies to the host block it",
    "exposed": "Large copies run while nothing computes",
    "tiny": "Many tiny copies, each mostly latency",
}
FIXES: Final = {
    "small_to_host": 'tensor.to("cpu", non_blocking=True) into pinned memory, read one step later',
    "blocking_to_device": "DataLoader(pin_memory=True); tensor.to(device, non_blocking=True)",
    "blocking_to_host": "pinned.copy_(tensor, non_blocking=True); event.synchronize() when needed",
    "exposed": "with torch.cuda.stream(copy_stream): next_batch.to(device, non_blocking=True)",
    "exposed_DtoH": "with torch.cuda.stream(copy_stream): pinned.copy_(tensor, non_blocking=True)",
    "tiny": "torch._foreach_copy_, or one copy of a packed buffer",
}


def findings_section(capture: Capture, found: pd.DataFrame, where: Scope, limits: dict[str, tuple[float, str]]) -> FindingsSection:
    steps = where.step_count
    step_ns = where.window_length_ns / steps
    worth = [
        f
        for f in candidates.findings(capture, found, steps, candidates.idle_ns(capture, where.window_ns))
        if f.saving_ns >= 0.001 * step_ns
    ][:5]
    per = "per step, at most; savings can overlap" if where.steps else "at most; savings can overlap"
    return FindingsSection(
        id="findings",
        title="What to fix first",
        subtitle=f"saving {per}",
        span=5,
        findings=[_finding(capture, found, f, where, step_ns, limits) for f in worth],
        empty="No copy here costs a thousandth of a step.",
    )


def _finding(
    capture: Capture, found: pd.DataFrame, f: candidates.CopyFinding, where: Scope, step_ns: float, limits: dict[str, tuple[float, str]]
) -> Finding:
    steps, count = where.step_count, len(f.rows)
    often = human(round(count / steps), "count") + (" per step" if where.steps else "") if count >= steps else f"{count} in {steps} steps"
    known = found.iloc[f.rows]
    known = known[known["bytes"] >= 0]
    moved, time = int(known["bytes"].sum()), int(known["duration_ns"].sum())
    size = f", {human(moved, 'B')} in all" if moved else ""
    if f.rule in ("small_to_host", "tiny") and len(known):
        size = f", at most {human(int(known['bytes'].max()), 'B')} each"
    rate = f" at {human(moved / time * 1e9, 'B/s')}" if f.rule == "exposed" and moved and time else ""
    peak = f" of {human(limits[f.direction][0], 'B/s')}" if rate and f.direction in limits else ""
    kinds = candidates.kinds(found, f.rows)
    ops = candidates.parents(capture, found, f.rows)[:2]
    source = f" Launched by {' and '.join(f'`{o}`' for o in ops)}." if ops else ""
    tail = (
        f"; the longest call holds the host for {human(f.worst_ns, 'ns')}{', mostly while the device works' if f.behind_work else ''}."
        if f.host
        else f"; the longest takes {human(f.worst_ns, 'ns')}."
    )
    step = {"step": ",".join(map(str, where.steps)) if len(where.steps) == 1 and not where.whole else ""}
    return Finding(
        rule=f"copies_{f.rule}",
        title=TITLES[f.rule] + (f" ({NAMES[f.direction].lower()})" if f.rule in ("exposed", "tiny") else ""),
        evidence=f"{often}{size}{rate}{peak}{f', {kinds}' if kinds else ''}{tail}{source}",
        saving_ns=f.saving_ns,
        share=f.saving_ns / step_ns if step_ns else None,
        fix="keep it on the device: .item() waits for all work"
        if "aten::_local_scalar_dense" in ops[:1]
        else FIXES.get(f"{f.rule}_{f.direction}", FIXES[f.rule]),
        link=Link("memcpy", {"by": "kind", "find": f.direction} | {k: v for k, v in step.items() if v}, f"{human(count, 'count')} copies"),
        color="host" if f.host else COLORS.get(f.direction, "memcpy"),
        candidate=f.rule == "tiny",
    )


def bandwidth_section(
    found: pd.DataFrame, limits: dict[str, tuple[float, str]], fits: dict[str, tuple[float, float]], *, keyed: bool
) -> FigureSection:
    known = found[(found["bytes"] > 0) & (found["duration_ns"] > 0)]
    points = _points(known)
    title, subtitle = "Bandwidth by copy size", "area: time; dashed: fitted latency and rate" if fits else "area: time"
    if not len(points):
        summary = "No copy carries both a size and a time."
        return FigureSection(id="bandwidth", title=title, span=7, height=160, figure=F.figure([]), summary=summary, table="copies")
    low, high = float(points["size"].min()), float(points["size"].max())
    span = np.geomspace(max(low / 2, 1), high * 2, 60)
    data: list[F.Plain] = []
    tops = [float(points["rate"].max())]
    for direction, mine in points.groupby("direction", sort=False):
        name = str(direction)
        color = COLORS.get(name, "other")
        area = np.maximum(6.0, 26.0 * np.sqrt(mine["time"].to_numpy() / points["time"].max()))
        trace: F.Plain = {
            "type": "scatter", "mode": "markers", "name": NAMES[name], "x": mine["size"].tolist(), "y": mine["rate"].tolist(),
            "marker": {"symbol": F.symbol(name), "size": area.tolist(), "color": F.light(color), "opacity": 0.8,
                       "line": {"width": 0.8, "color": F.light("surface")}},
            "hovertext": [f"{human(n, 'count')} copies of {human(s, 'B')}<br>{human(r, 'B/s')}, {human(t, 'ns')} in all"
                          for n, s, r, t in zip(mine["count"], mine["size"], mine["rate"], mine["time"], strict=True)],
            "hovertemplate": f"<b>{NAMES[name]}</b><br>%{{hovertext}}<extra></extra>",
        }  # fmt: skip
        data.append(trace | ({"customdata": [name] * len(mine)} if keyed else {}))
        if name in fits:
            latency, rate = fits[name]
            curve = span / (latency + span / rate * 1e9) * 1e9
            data.append(
                _line(span.tolist(), curve.tolist(), color, "dash", f"{NAMES[name]}: {human(latency, 'ns')} + bytes / {human(rate, 'B/s')}")
            )
    drawn: dict[str, float] = {}
    large = set(known.loc[known["bytes"] >= link.LARGE, "direction"]) | {"HtoD", "DtoH"}
    for name in points["direction"].unique():
        if name in limits and name in large and limits[name][1] not in drawn:
            peak, what = limits[name]
            drawn[what] = peak
            tops.append(peak)
            line = _line(
                [float(span[0]), float(span[-1])], [peak, peak], COLORS.get(name, "other"), "solid", f"{what}, {human(peak, 'B/s')}"
            )
            data.append(line | {"mode": "lines+text", "text": [f"{what}, {human(peak, 'B/s')}", ""], "textposition": "top right"})
    fastest = points.iloc[int(points["rate"].to_numpy().argmax())]
    return FigureSection(
        id="bandwidth",
        title=title,
        subtitle=subtitle,
        span=7,
        height=380,
        table="copies",
        figure=F.figure(
            data,
            x=F.axis("copy size", **F.sizes(low, high), range=[float(np.log10(span[0])), float(np.log10(span[-1]))]),
            y=F.axis("bandwidth", **F.decades(float(points["rate"].min()), max(tops), "B/s")),
            margin={"l": 78, "r": 14, "t": 10, "b": 46},
        ),
        summary=f"The fastest copies are {NAMES[str(fastest['direction'])].lower()}, {human(float(fastest['rate']), 'B/s')}.",
    )


def _line(x: list[float], y: list[float], color: str, dash: str, name: str) -> F.Plain:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "hoverinfo": "name",
        "textfont": {"size": 11, "color": F.light("ink-2")},
        "line": {"color": F.light(color), "width": 1.6 if dash == "solid" else 1.2, "dash": dash},
    }  # fmt: skip


def _points(known: pd.DataFrame) -> pd.DataFrame:
    """Copies of nearly equal size and rate as one point: quarters of a power of two by sixteenths of a decade."""
    size, time = known["bytes"].to_numpy(np.float64), known["duration_ns"].to_numpy(np.float64)
    cell = known[["direction"]].assign(a=np.round(4 * np.log2(size)), b=np.round(16 * np.log10(size / time)), size=size, time=time)
    out = cell.groupby(["direction", "a", "b"], sort=False, as_index=False).agg(
        count=("size", "size"), bytes=("size", "sum"), time=("time", "sum")
    )
    return out.assign(size=out["bytes"] / out["count"], rate=out["bytes"] / out["time"] * 1e9)
