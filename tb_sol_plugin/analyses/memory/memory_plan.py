"""Memory plan: what a transformer in training would hold on each pipeline stage, and on which devices that fits.

Closed forms over the sizes of a model and the way it is spread; nothing is measured and no recording is needed. Where one is named, the
plan starts from the model, the layout and the device that it tells of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tb_sol_plugin.analyses.memory import memory_plan_tables as T
from tb_sol_plugin.analyses.memory.memory_plan_query import DEVICES, FACTS, FORMULAS, LAYOUTS, STAGES, MemoryPlanQuery
from tb_sol_plugin.analyses.memory.memory_plan_tables import GIB, Plan, Verdict, planned, stand
from tb_sol_plugin.cost.transformer.memory import WIDTH, Stage, formula
from tb_sol_plugin.cost.transformer.query import Spread
from tb_sol_plugin.metrics.memory.labels import gib
from tb_sol_plugin.metrics.memory.labels import gib as gib_of
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.figure import light
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import FactsSection, FigureSection, Mark, Notice, Report, Scalar, make_facts
from tb_sol_plugin.units import NARROW, capitalized, digits, human, number, scale_of

TITLE: Final = "Memory plan"
NOT_COUNTED: Final = (
    "Not in these figures: CUDA context, NCCL, fragmentation, and workspaces of fused attention. They take memory too; leave room for them."
)
CLOSED: Final = Mark("estimated", "a closed form, not a measurement")


def _recorded(capture: Capture, query: MemoryPlanQuery) -> Report:
    return _report(planned(query, capture))


@analysis(
    scope="none",
    title=TITLE,
    question="What would each stage hold, and on which devices does it fit?",
    group="Run",
    order=20,
    query=MemoryPlanQuery,
    with_recording=_recorded,
    tables={"stages": STAGES, "devices": DEVICES, "layouts": LAYOUTS, "formulas": FORMULAS},
    facts=FACTS,
)
def memory_plan(query: MemoryPlanQuery) -> Report:
    """Expected bytes of every stage, the devices that they fit, other layouts of the same model on as many devices, and the formulas."""
    return _report(planned(query))


def _report(plan: Plan) -> Report:
    found = T.spread(plan)
    return Report(
        analysis="memory_plan",
        title=TITLE,
        headline=_headline(plan),
        notices=_way_out(plan, found) + _notices(plan),
        sections=[
            _tiles(plan),
            split_section(plan),
            stage_bars(plan),
            layouts_figure(plan, found, [T.key_of(one) for one, _ in found]),
            T.stage_table(plan),
            T.layout_table(plan, found),
            T.device_table(plan),
            T.formula_table(plan),
        ],
        fields=stand(plan),
    )


def _headline(plan: Plan) -> str:
    layout, most = plan.layout, plan.largest
    over = f"TP{NARROW}{layout.tp}, PP{NARROW}{layout.pp}, DP{NARROW}{layout.dp}"
    text = f"{capitalized(plan.name)} on {over}: the fullest stage needs **{in_gb(most.total_bytes)}** on each device"
    if plan.base.counted:
        text += f", beside {in_gb(plan.base.counted)} of base memory"
    left = plan.headroom(most.total_bytes)
    if left is None:
        return f"{text}; how much {plan.device.name} has is not known."
    verdict = plan.verdict(most.total_bytes)
    if verdict == "too large":
        return f"{text}, {in_gb(-left)} more than {plan.device.name} has."
    room = "fits" if verdict == "fits" else "fits tightly"
    return f"{text}. It {room} on {plan.device.name}, with {in_gb(left)} to spare."


def _tiles(plan: Plan) -> FactsSection:
    most, totals = plan.largest, [s.total_bytes for s in plan.stages]
    left = plan.headroom(most.total_bytes)
    values: dict[str, Scalar] = {
        "largest_bytes": most.total_bytes, "device_bytes": plan.device.memory, "headroom_bytes": left, "base_bytes": plan.base.size,
        "model_parameters": plan.model.parameters, "bytes_per_parameter": formula(plan.layout), "world": plan.layout.world,
        "imbalance": max(totals) / min(totals), "model": plan.name, "largest_stage": most.stage, "largest_gib": most.total_bytes / GIB,
        "device": plan.device.name, "device_gib": plan.device.memory / GIB if plan.device.memory is not None else None,
        "verdict": plan.verdict(most.total_bytes),
    }  # fmt: skip
    marks = {"largest_bytes": CLOSED}
    if left is not None:
        marks["headroom_bytes"] = Mark("flagged", f"more than {plan.device.name} has") if left < 0 else CLOSED
    if plan.base.size is None:
        marks["base_bytes"] = Mark("unknown", plan.base.origin)
    return make_facts(
        "answer", "Plan", values, FACTS, weight="headline", style="tiles", marks=marks,
        hidden=["model", "largest_stage", "largest_gib", "device", "device_gib", "verdict", "imbalance"],
        notes={
            "largest_bytes": f"stage {most.stage}, {gib(most.total_bytes)}"
            + (f"; {times:.2f} × the emptiest" if (times := max(totals) / min(totals)) > 1 else ""),
            "device_bytes": f"{plan.device.name}; {plan.device.origin}",
            "headroom_bytes": plan.verdict(most.total_bytes) or "",
            "base_bytes": plan.base.origin if plan.base.size is not None else "context and NCCL; not counted",
            "model_parameters": plan.name,
            "bytes_per_parameter": f"d = {plan.layout.dp * plan.layout.cp}" if "d" in formula(plan.layout) else "without activations",
            "world": " × ".join(f"{n} {getattr(plan.layout, n)}" for n in ("tp", "pp", "dp", "cp") if n != "cp" or plan.layout.cp > 1),
        },
    )  # fmt: skip


def _way_out(plan: Plan, found: list[tuple[Spread, Verdict | None]]) -> list[Notice]:
    out = T.way_out(plan, found)
    return [Notice(out[0], "info", out[1])] if out is not None else []


def _notices(plan: Plan) -> list[Notice]:
    out = [Notice(note, "info") for note in plan.notes]
    if plan.recorded:
        out.append(Notice(f"Taken from the recording: {', '.join(plan.recorded)}. What is chosen here stands over it.", "info"))
    layout = plan.layout
    apart = {"own": "", "all": "on every stage", "all_full": "whole on every rank"}
    placed = {"embedding": apart[layout.embedding_placement], "head": apart[layout.head_placement]}
    where = [f"the {name} stands {kind}" for name, kind in placed.items() if kind]
    saved = T.saved_by_placement(plan) if where else 0
    if saved > 0:
        text = " and ".join(where)
        out.append(Notice(
            f"{capitalized(text)}. With the embedding on the first stage alone, the head on the last alone, both divided over "
            f"tensor parallel ranks, and a cross entropy over the divided vocabulary, the fullest stage holds **{in_gb(saved)}** less.",
            "warn", T.with_own_placement(plan),
        ))  # fmt: skip
    gathered = ""
    if layout.sharding == "full":
        each = round(plan.model.layer / layout.tp * WIDTH[layout.number])
        gathered = f" Nor are the whole parameters of layers while they run, which full sharding gathers: about {in_gb(each)} a layer."
    out.append(Notice(NOT_COUNTED + gathered, "info"))
    return out


# -- Memory of each stage, as stacked bars ----------------------------------------------------------------------------


STACK: Final = (
    ("parameters", "compute"), ("gradients", "communication"), ("master weights", "conv"), ("optimizer state", "norm"),
    ("activations", "attention"), ("logits", "elementwise"), ("base", "host"),
)  # fmt: skip
"""Name and color of what a stage holds, in the order in which it is stacked."""
STACK_NAMES: Final = (
    "largest_parameter_bytes", "largest_gradient_bytes", "largest_master_bytes", "largest_optimizer_bytes", "largest_activation_bytes",
    "largest_logits_bytes", "base_bytes",
)  # fmt: skip
"""The same as facts of the fullest stage."""
MOST_BARS: Final = 32
"""Stages drawn, at most."""


def stack_bytes(stage: Stage, base: int) -> tuple[int, ...]:
    """Returns the bytes of each of `STACK`."""
    return (
        stage.parameter_bytes, stage.gradient_bytes + stage.main_gradient_bytes, stage.master_bytes, stage.optimizer_bytes,
        stage.activation_bytes, stage.logits_bytes, base,
    )  # fmt: skip


def stage_bars(plan: Plan) -> FigureSection:
    """Draws one bar per stage; the device's memory is a line."""
    shown = plan.stages[:MOST_BARS]
    names = [f"stage {s.stage}" for s in shown]
    values = [stack_bytes(s, plan.base.counted) for s in shown]
    totals = [sum(v) for v in values]
    longest = max(*totals, plan.device.memory or 0)
    data: list[fig.Plain] = []
    for i, (label, token) in enumerate(STACK):
        sizes = [v[i] for v in values]
        if not any(sizes):
            continue
        data.append({
            "type": "bar", "orientation": "h", "name": label, "y": names, "x": [b / 1e9 for b in sizes], "marker": fig.fill(token),
            "customdata": [s.stage for s in shown], "hoverinfo": "text",
            "hovertext": [f"<b>{n}</b><br>{label}: {in_gb(b)}<br>in all: {in_gb(t)}" for n, b, t in zip(names, sizes, totals, strict=True)],
        })  # fmt: skip
    data.append({
        "type": "scatter", "mode": "text", "y": names, "x": [t / 1e9 for t in totals], "text": [f"  {human(t, 'B')}" for t in totals],
        "textposition": "middle right", "textfont": {"size": 11.5, "color": light("ink-2")}, "hoverinfo": "skip", "cliponaxis": False,
    })  # fmt: skip
    shapes, notes = _device_line(plan)
    left = f"; the first {MOST_BARS} of {len(plan.stages)} stages" if len(plan.stages) > MOST_BARS else ""
    x = fig.axis("GB", range=[0, longest / 1e9 * 1.16], rangemode="tozero")
    y = fig.axis(type="category", autorange="reversed", showgrid=False, automargin=True)
    largest = plan.largest
    return FigureSection(
        id="bars",
        title="What one rank of each stage holds",
        subtitle=f"expected, by closed form{left}",
        figure=fig.figure(
            data, x=x, y=y, barmode="stack", bargap=0.42, shapes=shapes, annotations=notes, margin={"l": 70, "r": 14, "t": 26, "b": 46}
        ),
        summary=f"Stage {largest.stage} holds most: {in_gb(largest.total_bytes)}.",
        table="stages",
        span=7,
        height=max(210, 100 + 34 * len(shown)),
    )


def split_section(plan: Plan) -> FactsSection:
    """Builds what the fullest stage holds, part by part: the legend of the bars, with numbers."""
    most = plan.largest
    sizes = dict(zip(STACK_NAMES, stack_bytes(most, plan.base.counted), strict=True))
    shown = {name: size for name, size in sizes.items() if size}
    total = most.total_bytes + plan.base.counted
    title = f"Stage {most.stage}, the fullest" if len(plan.stages) > 1 else "The only stage"
    return make_facts(
        "parts",
        title,
        shown,
        FACTS,
        subtitle=in_gb(total),
        style="split",
        colors={n: token for n, (_, token) in zip(STACK_NAMES, STACK, strict=True) if n in shown},
    )


def _device_line(plan: Plan) -> tuple[list[fig.Plain], list[fig.Plain]]:
    """Returns the device's memory across all bars, with its name."""
    if plan.device.memory is None:
        return [], []
    at = plan.device.memory / 1e9
    line: fig.Plain = {
        "type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": {"color": light("ink-2"), "width": 1.6},
    }  # fmt: skip
    text: fig.Plain = {
        "xref": "x", "yref": "paper", "x": at, "y": 1, "yanchor": "bottom", "xanchor": "right", "showarrow": False,
        "text": f"{plan.device.name}: {in_gb(plan.device.memory)}", "font": {"size": 11.5, "color": light("ink-2")},
    }  # fmt: skip
    return [line], [text]


def in_gb(size: int) -> str:
    """Returns `34.2 GB (31.8 GiB)`: GB = 10^9 bytes, GiB = 2^30 bytes; in MiB where that is little: `46.9 MB (44.77 MiB)`."""
    gib = size / GIB
    if abs(gib) < 0.1:
        return f"{human(size, 'B')} ({gib_of(size)})"
    return f"{human(size, 'B')} ({number(gib, 1 if abs(gib) >= 10 else 2)}\u202fGiB)"


VERDICT_LOOKS: Final[Mapping[Verdict | None, tuple[str, str]]] = {
    "fits": ("accent-bg", "accent"), "tight": ("surface", "warn"), "too large": ("sunken", "error"), None: ("sunken", "ink-2"),
}  # fmt: skip
"""Fill, and outline and ink, of a square by its verdict."""
VERDICTS: Final[Mapping[Verdict | None, str]] = {"fits": "fits", "tight": "fits tightly", "too large": "too large", None: "memory unknown"}


def layouts_figure(plan: Plan, found: Sequence[tuple[Spread, Verdict | None]], keys: Sequence[str]) -> FigureSection:
    """Draws squares by TP and PP, of the present micro-batch and recomputation. found: layouts with their verdicts; keys: of their rows."""
    now = plan.layout
    own = [(one, fits, key) for (one, fits), key in zip(found, keys, strict=True)
           if (one.micro_batch, one.recompute) == (now.micro_batch, now.recompute)]  # fmt: skip
    least = min((one.largest_bytes for one, _, _ in own), default=1)
    factor, unit = scale_of(float(least), "B")
    data: list[fig.Plain] = []
    for verdict, (ground, ink) in VERDICT_LOOKS.items():
        part = [(one, key) for one, fits, key in own if fits == verdict]
        if not part:
            continue
        here = [(one.tp, one.pp) == (now.tp, now.pp) for one, _ in part]
        shown = [number(one.largest_bytes / factor, digits(one.largest_bytes / factor)) for one, _ in part]
        data.append({
            "type": "scatter", "mode": "markers+text", "name": VERDICTS[verdict], "x": [str(one.pp) for one, _ in part],
            "y": [str(one.tp) for one, _ in part], "customdata": [key for _, key in part], "text": shown,
            "textfont": {"size": 11.5, "color": light(ink)},
            "marker": {"symbol": "square", "size": 40, "color": light(ground), "line": {
                "width": [3.0 if h else 1.0 for h in here], "color": light(ink),
            }},
            "hoverinfo": "text",
            "hovertext": [
                f"<b>TP {one.tp}, PP {one.pp}, DP {one.dp}</b>{', as now' if h else ''}<br>{in_gb(one.largest_bytes)}, {VERDICTS[verdict]}"
                for (one, _), h in zip(part, here, strict=True)
            ],
        })  # fmt: skip
    tp, pp = ([str(n) for n in sorted({getattr(one, name) for one, _, _ in own})] for name in ("tp", "pp"))
    x = fig.axis("pipeline stages", type="category", categoryorder="array", categoryarray=pp, range=[-0.6, len(pp) - 0.4], showgrid=False)
    y = fig.axis("tensor parallel", type="category", categoryorder="array", categoryarray=tp, range=[-0.6, len(tp) - 0.4], showgrid=False)
    devices = f"{human(now.world, 'count')} device{'s' * (now.world != 1)}"
    fitting = sum(fits in ("fits", "tight") for _, fits, _ in own)
    return FigureSection(
        id="glance",
        title=f"Fullest stage in {unit}, by layout",
        subtitle=f"{devices}, micro-batch {now.micro_batch}, {now.recompute}; red: too large",
        figure=fig.figure(data, x=x, y=y, margin={"l": 58, "r": 14, "t": 10, "b": 46}),
        summary=f"{fitting} of {len(own)} ways to spread the model over {devices} fit {plan.device.name}.",
        table="layouts",
        span=5,
        height=max(210, 90 + 46 * len(tp)),
    )
