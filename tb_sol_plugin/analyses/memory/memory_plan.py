"""Memory plan: what a transformer in training would hold on each pipeline stage, and on which devices that fits.

Closed forms over the sizes of a model and the way it is spread; nothing is measured and no recording is needed. Where one is named, the
plan starts from the model, the layout and the device that it tells of.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.analyses.memory import memory_plan_tables as T
from tb_sol_plugin.analyses.memory.memory_plan_figures import bars, both, glance, split
from tb_sol_plugin.analyses.memory.memory_plan_query import DEVICES, FACTS, FORMULAS, LAYOUTS, STAGES, MemoryPlanQuery
from tb_sol_plugin.analyses.memory.memory_plan_tables import GIB, Plan, Verdict, planned, stand
from tb_sol_plugin.cost.transformer.memory import WIDTH, formula
from tb_sol_plugin.cost.transformer.query import Spread
from tb_sol_plugin.metrics.memory.labels import gib
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import FactsSection, Mark, Notice, Report, Scalar, make_facts
from tb_sol_plugin.units import NARROW, capitalized

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
            split(plan),
            bars(plan),
            glance(plan, found, [T.key_of(one) for one, _ in found]),
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
    said = f"{capitalized(plan.name)} on {over}: the fullest stage needs **{both(most.total_bytes)}** on each device"
    if plan.base.counted:
        said += f", beside {both(plan.base.counted)} of base memory"
    left = plan.headroom(most.total_bytes)
    if left is None:
        return f"{said}; how much {plan.device.name} has is not known."
    verdict = plan.verdict(most.total_bytes)
    if verdict == "too large":
        return f"{said}, {both(-left)} more than {plan.device.name} has."
    room = "fits" if verdict == "fits" else "fits tightly"
    return f"{said}. It {room} on {plan.device.name}, with {both(left)} to spare."


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
        said = " and ".join(where)
        out.append(Notice(
            f"{capitalized(said)}. With the embedding on the first stage alone, the head on the last alone, both divided over "
            f"tensor parallel ranks, and a cross entropy over the divided vocabulary, the fullest stage holds **{both(saved)}** less.",
            "warn", T.with_own_placement(plan),
        ))  # fmt: skip
    gathered = ""
    if layout.sharding == "full":
        each = round(plan.model.layer / layout.tp * WIDTH[layout.number])
        gathered = f" Nor are the whole parameters of layers while they run, which full sharding gathers: about {both(each)} a layer."
    out.append(Notice(NOT_COUNTED + gathered, "info"))
    return out


__all__ = ["MemoryPlanQuery", "memory_plan"]
