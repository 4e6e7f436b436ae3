"""How the fields of the query stand in a plan: the values used, and those that would do as well."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.analyses.memory_plan.plan import Plan
from tb_sol_plugin.cost.transformer.memory import Layout, Model
from tb_sol_plugin.cost.transformer.query import MODEL_FLAGS, MODEL_NUMBERS, WORDS, choices
from tb_sol_plugin.model.report import FieldNow

MOST: Final = 128
"""Largest parallel size that a slider offers, unless a larger one is used."""
_POWERS: Final = tuple(1 << n for n in range(18))


def stand(plan: Plan) -> dict[str, FieldNow]:
    """Every field that the plan resolves: what it is, and what its slider steps through."""
    model, layout = plan.model, plan.layout
    out: dict[str, FieldNow] = {}
    for name in (*MODEL_NUMBERS, *MODEL_FLAGS):
        out[name] = FieldNow(_text(getattr(model, name)))
    if not plan.query.preset and "preset" in plan.given:
        out["preset"] = FieldNow(str(plan.given["preset"]))
    out["kv_heads"] = FieldNow(_text(model.kv_heads or model.heads))
    out["channels"] = FieldNow(_text(model.channels or model.hidden // model.heads))
    for name, (part, _) in WORDS.items():
        out[name] = FieldNow(_text(getattr(layout, part)))
    for name in ("sequence_parallel", "microbatches"):
        out[name] = FieldNow(_text(getattr(layout, name)))
    out["distributed_optimizer"] = FieldNow(_text(layout.sharding != "none"))
    out["world"] = FieldNow(_text(layout.world))
    out["etp"] = FieldNow(_text(layout.etp or layout.tp))
    out["device"] = FieldNow(plan.device.key)
    out["base_gb"] = FieldNow(f"{plan.base.size / 1e9:.4g}" if plan.base.size is not None else "")
    for name in ("tp", "pp", "dp", "cp", "ep", "vpp", "micro_batch", "seq"):
        now: int = getattr(layout, name)
        out[name] = FieldNow(_text(now), tuple(_text(v) for v in sorted({now, *_steps(name, model, layout)})))
    return out


def _steps(name: str, model: Model, layout: Layout) -> tuple[int, ...]:
    """Possible values: those that divide what they must; powers of two where anything would do."""
    sizes = {"tp": model.heads, "pp": model.layers, "vpp": model.layers // layout.pp if layout.pp > 1 else 1, "ep": max(model.experts, 1)}
    if name in sizes:
        return choices(name, model, layout, range(1, min(sizes[name], MOST) + 1))
    low, high = {"dp": (1, 4096), "cp": (1, 64), "micro_batch": (1, 64), "seq": (512, 131_072)}[name]
    return choices(name, model, layout, [v for v in _POWERS if low <= v <= high])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
