"""The tables of the plan: stages, devices, layouts, formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pandas as pd

from tb_sol_plugin.analyses.memory_plan.plan import GIB, TIGHT, Plan, Verdict, verdict
from tb_sol_plugin.analyses.memory_plan.query import DEVICES, FORMULAS, LAYOUTS, STAGES
from tb_sol_plugin.cost.transformer.explain import explained
from tb_sol_plugin.cost.transformer.memory import Stage, stages
from tb_sol_plugin.cost.transformer.query import NAMES
from tb_sol_plugin.cost.transformer.search import MOST_WAYS, Spread, layouts
from tb_sol_plugin.devices.limits import choices, overridden
from tb_sol_plugin.model.report import Link, Mark, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.units import human

MOST_LAYOUTS: Final = 240
HOST: Final = 8
"""Devices that a host holds, as a rule: tensor parallel over more of them is slow."""
MOST_DEVICES: Final = 1024
"""Devices up to which a layout that fits is looked for."""
UNEVEN: Final = 1.25
"""Largest stage over the smallest from which a layout counts as uneven."""
BEYOND: Final = 10**12
SPREAD: Final = ("tp", "pp", "dp", "micro_batch", "microbatches", "recompute", "vpp", "world")
"""Query fields that a layout of the table sets."""
_OUT: Final = "\u2009·\u2009"


def stage_table(plan: Plan) -> TableSection:
    """What one rank of each stage holds; the first row sums one rank of every stage."""
    rows = [_of_stage(plan, s) for s in plan.stages]
    frame = pd.DataFrame(rows, columns=[c.name for c in STAGES])
    total: dict[str, Scalar] = {"stage": "sum"}
    for column in STAGES:
        if column.unit == "B" and column.name != "headroom_bytes":
            total[column.name] = int(frame[column.name].sum())
    total |= {"layers": int(frame["layers"].sum()), "parameters": int(frame["parameters"].sum())}
    total |= {"microbatches": None, "headroom_bytes": None}
    total |= {f"{name}_gib": float(frame[f"{name}_bytes"].sum()) / GIB for name in ("total", "state")}
    over = {str(i): Mark("flagged", f"more than {plan.device.name} has") for i, r in enumerate(rows) if _exceeds(r["headroom_bytes"])}
    return make_table(
        "stages", "Stages", frame, STAGES, key="stage", total=total, marks={"headroom_bytes": over} if over else {},
        subtitle="one rank of each; every figure is a closed form",
        footer="GB = 10^9 bytes, GiB = 2^30 bytes. Parameters, gradients, master weights, optimizer and activations add up to the total.",
    )  # fmt: skip


def _of_stage(plan: Plan, stage: Stage) -> dict[str, Scalar]:
    return {
        "stage": stage.stage, "layers": stage.layers, "microbatches": stage.microbatches, "parameters": stage.parameters,
        "parameter_bytes": stage.parameter_bytes, "gradient_bytes": stage.gradient_bytes + stage.main_gradient_bytes,
        "main_gradient_bytes": stage.main_gradient_bytes, "master_bytes": stage.master_bytes, "optimizer_bytes": stage.optimizer_bytes,
        "state_bytes": stage.state_bytes, "activation_bytes": stage.activation_bytes + stage.logits_bytes,
        "logits_bytes": stage.logits_bytes,
        "total_bytes": stage.total_bytes, "total_gib": stage.total_bytes / GIB, "state_gib": stage.state_bytes / GIB,
        "headroom_bytes": plan.headroom(stage.total_bytes),
    }  # fmt: skip


def _exceeds(headroom: Scalar) -> bool:
    return isinstance(headroom, int) and headroom < 0


def device_table(plan: Plan) -> TableSection:
    """Every device of the table, and of device files, against the fullest stage."""
    needed = plan.largest.total_bytes + plan.base.counted
    specs = {key: overridden(key, plan.book) for key in choices(plan.book)}
    rows = [
        {
            "device": key, "verdict": verdict(needed, spec.memory_bytes), "share": needed / spec.memory_bytes,
            "memory_bytes": spec.memory_bytes, "memory_gib": spec.memory_bytes / GIB, "headroom_bytes": spec.memory_bytes - needed,
            "name": spec.name,
        }
        for key, spec in specs.items() if spec.memory_bytes
    ]  # fmt: skip
    rows.sort(key=lambda r: (r["memory_bytes"], str(r["device"])))
    frame = pd.DataFrame(rows, columns=[c.name for c in DEVICES])
    beside = f"{human(plan.base.counted, 'B')} of base memory are counted" if plan.base.size is not None else plan.base.origin
    unsure = {str(i): Mark("unverified", "nobody confirmed the memory of this row") for i, k in enumerate(frame["device"])
              if "mem_gb" in specs[k].unverified}  # fmt: skip
    here = {str(i): _link(plan, {"device": str(k)}, f"Hold the plan against {k}") for i, k in enumerate(frame["device"])}
    fits = [r for r in rows if r["verdict"] == "fits"]
    return make_table(
        "devices", "Does it fit?", frame, DEVICES, key="device", cell_links={"device": here}, row_links=here,
        marks={"memory_bytes": unsure} if unsure else {}, sort=Sort("memory_bytes", descending=False), filters=["verdict"],
        subtitle=f"the fullest stage on every device of the table; it fits {len(fits)} of them with a tenth to spare",
        footer=f"{beside[:1].upper()}{beside[1:]}. A driver reports 1 to 2 % less than the memory a device is sold with.",
    )  # fmt: skip


def spread(plan: Plan) -> list[tuple[Spread, Verdict | None]]:
    """The same model on as many devices, in every other layout, with whether it fits; best first."""
    return sorted(((one, plan.verdict(one.largest_bytes)) for one in layouts(plan.model, plan.layout, plan.layout.world)), key=_order)


def way_out(plan: Plan, found: list[tuple[Spread, Verdict | None]]) -> tuple[str, Link] | None:
    """What fits where the plan does not: the best layout on as many devices, else on the fewest more, by doubling, with a tenth to spare at
    this micro-batch. None where the plan fits, where the memory is unknown, or where nothing up to `MOST_DEVICES` does."""
    if plan.verdict(plan.largest.total_bytes) != "too large":
        return None
    world, one = plan.layout.world, _first(found)
    while one is None and (world := world * 2) <= MOST_DEVICES:
        tried = layouts(plan.model, plan.layout, world, (plan.layout.micro_batch,))
        judged = sorted(((s, plan.verdict(s.largest_bytes)) for s in tried if s.micro_batch == plan.layout.micro_batch), key=_order)
        one = _first(judged)
    if one is None:
        return None
    where = "the same devices" if world == plan.layout.world else f"{human(world, 'count')} devices"
    how = f"TP {one.tp}, PP {one.pp}, DP {one.dp}, micro-batch {one.micro_batch}, recompute {one.recompute}"
    return f"It fits on {where} with {how}: {human(one.largest_bytes, 'B')} on the fullest stage.", _layout_link(plan, one)


def _first(found: list[tuple[Spread, Verdict | None]]) -> Spread | None:
    """The first that fits, one whose tensor parallel ranks stand within a host of `HOST` devices before others."""
    return min((s for s, fits in found if fits == "fits"), key=lambda s: s.tp > HOST, default=None)


def layout_table(plan: Plan, found: list[tuple[Spread, Verdict | None]]) -> TableSection:
    """The best of `spread`."""
    world = plan.layout.world
    shown = found[:MOST_LAYOUTS]
    rows = [_of_layout(plan, one, fits) for one, fits in shown]
    links = {str(i): _layout_link(plan, one) for i, (one, _) in enumerate(shown)}
    over = Mark("flagged", f"more than {plan.device.name} has left")
    uneven = Mark("flagged", f"one stage holds over {UNEVEN:g} times as much as another")
    marks = {
        "largest_bytes": {str(i): over for i, (_, fits) in enumerate(shown) if fits == "too large"},
        "imbalance": {str(i): uneven for i, (one, _) in enumerate(shown) if one.imbalance > UNEVEN},
    }
    ways = len({(one.tp, one.pp) for one, _ in found})
    cut = f" The first {MOST_WAYS} ways to choose TP and PP alone were looked at." if ways >= MOST_WAYS else ""
    here = sum(fits in ("fits", "tight") for _, fits in found)
    held = "" if plan.device.memory is None else f"; {human(here, 'count')} of {human(len(found), 'count')} fit {plan.device.name}"
    return TableSection(
        id="layouts", title=f"Layouts on {human(world, 'count')} device{'s' * (world != 1)}", columns=list(LAYOUTS),
        data={c.name: [r[c.name] for r in rows] for c in LAYOUTS}, key="id", filters=["verdict", "recompute"], apart=_apart(shown),
        cell_links={"layout": links}, row_links=links, marks={k: v for k, v in marks.items() if v}, truncated=len(found) - len(shown),
        subtitle=f"all else as it is{held}",
        footer=f"First what fits with {TIGHT:.0%} to spare, without recomputing whole layers, on the fewest devices per copy of the model. "
        f"A layout opens in the fields above.{cut}",
        empty="No layout of this model fits these devices evenly.",
    )  # fmt: skip


def _order(pair: tuple[Spread, Verdict | None]) -> tuple[int, bool, int, int]:
    """What fits first; then without whole layers recomputed, on the fewest devices per copy; then the least. Too large: the least first."""
    one, fits = pair
    if fits == "too large":
        return 2, False, 0, one.largest_bytes
    return int(fits == "tight"), one.recompute == "full", one.tp * one.pp, one.largest_bytes


def _of_layout(plan: Plan, one: Spread, fits: Verdict | None) -> dict[str, Scalar]:
    now = plan.layout
    same = (one.tp, one.pp, one.dp, one.micro_batch, one.recompute) == (now.tp, now.pp, now.dp, now.micro_batch, now.recompute)
    return {
        "layout": f"TP {one.tp}{_OUT}PP {one.pp}{_OUT}DP {one.dp}" + (" (now)" if same else ""), "micro_batch": one.micro_batch,
        "recompute": one.recompute, "verdict": fits, "largest_bytes": one.largest_bytes, "headroom_bytes": plan.headroom(one.largest_bytes),
        "first_bytes": one.first_bytes, "middle_bytes": one.middle_bytes, "last_bytes": one.last_bytes, "imbalance": one.imbalance,
        "tp": one.tp, "pp": one.pp, "dp": one.dp, "vpp": one.vpp, "microbatches": one.microbatches or None, "id": key_of(one),
    }  # fmt: skip


def key_of(one: Spread) -> str:
    """Key of a layout's row."""
    return f"{one.tp}x{one.pp}x{one.dp}.{one.micro_batch}.{one.recompute}"


def _apart(shown: list[tuple[Spread, Verdict | None]]) -> list[str]:
    """Rows that set no unit: those of a TB and more, where others take less."""
    beyond = [key_of(one) for one, _ in shown if one.largest_bytes >= BEYOND]
    return beyond if len(beyond) < len(shown) else []


def _layout_link(plan: Plan, one: Spread) -> Link:
    changes = {"tp": one.tp, "pp": one.pp, "dp": one.dp, "micro_batch": one.micro_batch}
    if plan.layout.vpp > 1:
        changes["vpp"] = one.vpp
    if one.microbatches:
        changes["microbatches"] = one.microbatches
    return _link(plan, {n: str(v) for n, v in changes.items()} | {"recompute": one.recompute}, "Open this layout")


def _link(plan: Plan, changes: dict[str, str], label: str) -> Link:
    """This plan with some fields changed."""
    now = {n: _text(value) for n in (*NAMES, "device", "base_gb") if (value := getattr(plan.query, n)) not in (None, "")}
    if set(changes) & set(SPREAD):
        now = {n: v for n, v in now.items() if n not in SPREAD}
    return Link("memory_plan", now | changes, label)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def formula_table(plan: Plan) -> TableSection:
    """Every figure of the model, and of the first, the fullest and the last stage."""
    which = sorted({0, plan.largest.stage, len(plan.stages) - 1})
    rows = [
        {
            "figure": one.figure, "stage": one.stage, "formula": one.formula, "inputs": one.put_in,
            "count": one.result if one.unit == "count" else None, "bytes": round(one.result) if one.unit == "B" else None,
        }
        for one in explained(plan.model, plan.layout, which)
    ]  # fmt: skip
    data: dict[str, list[Scalar]] = {c.name: [r[c.name] for r in rows] for c in FORMULAS}
    return TableSection(
        id="formulas", title="Formulas", columns=list(FORMULAS), data=data,
        subtitle="each figure with what was put in; of the model, then of a rank of "
        + (f"stages {', '.join(map(str, which))}" if len(which) > 1 else "the only stage"),
        footer="Not in them: CUDA context, NCCL, fragmentation, workspaces of fused attention.",
    )  # fmt: skip


def saved_by_placement(plan: Plan) -> int:
    """Bytes that the fullest stage would be smaller by, were embedding and head where they are needed and divided over tp."""
    own = stages(plan.model, replace(plan.layout, embedding_placement="own", head_placement="own"))
    return plan.largest.total_bytes - max(s.total_bytes for s in own)


def with_own_placement(plan: Plan) -> Link:
    """This plan, so placed."""
    return _link(plan, {"embedding_placement": "own", "head_placement": "own"}, "Place them so")
