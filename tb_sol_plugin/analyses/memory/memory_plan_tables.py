"""What is planned: model, layout, device and base, out of the query and of what a recording says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, TypeAlias

from tb_sol_plugin.analyses.memory.memory_plan_query import DEVICES, FORMULAS, LAYOUTS, STAGES, MemoryPlanQuery
from tb_sol_plugin.cost.transformer.explain import explained
from tb_sol_plugin.cost.transformer.memory import PRESETS, Layout, Model, Stage, stages
from tb_sol_plugin.cost.transformer.query import (
    DEFAULT_PRESET,
    MODEL_FLAGS,
    MODEL_NUMBERS,
    MOST_WAYS,
    NAMES,
    NEEDED,
    WORDS,
    Spread,
    choices,
    layouts,
    model_and_layout,
    must_be_possible,
)
from tb_sol_plugin.devices.limits import choices as device_choices
from tb_sol_plugin.devices.limits import device_for, overridden
from tb_sol_plugin.devices.spec import EMPTY, DeviceBook
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.memory.budget import budget
from tb_sol_plugin.metrics.memory.labels import setting
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FieldNow, Link, Mark, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.units import capitalized, human

# -- What can be asked of the memory plan, and what its tables hold ---------------------------------------------------


GIB: Final = 1 << 30
Verdict: TypeAlias = Literal["fits", "tight", "too large"]
TIGHT: Final = 0.1
"""Share of a device's memory that should be left for what the formulas do not hold."""
DEFAULT_DEVICE: Final = "H100_SXM"
CALLED: Final[dict[str, str]] = {
    "llama-7b": "LLaMA-7B", "llama-13b": "LLaMA-13B", "llama-70b": "LLaMA-70B", "llama3-8b": "Llama 3 8B", "llama3-70b": "Llama 3 70B",
    "llama3-405b": "Llama 3 405B", "mistral-7b": "Mistral 7B", "mixtral-8x7b": "Mixtral 8x7B", "qwen2.5-7b": "Qwen2.5 7B",
    "qwen2.5-72b": "Qwen2.5 72B", "qwen3-8b": "Qwen3 8B", "qwen3-32b": "Qwen3 32B", "qwen3-30b-a3b": "Qwen3 30B-A3B",
    "deepseek-v3": "DeepSeek-V3", "gpt2": "GPT-2", "gpt3-175b": "GPT-3 175B",
}  # fmt: skip
"""Presets as a person calls them."""
LARGEST: Final = 1 << 53
"""Bytes on one device beyond which nothing is computed: whole numbers stay whole on the way to a browser."""
_SIZE: Final = re.compile(r"^(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>gb|gib)$", re.IGNORECASE)
_MODEL: Final = (*MODEL_NUMBERS, *MODEL_FLAGS)


@dataclass(frozen=True)
class Device:
    """What the plan is held against. memory: bytes, None unknown. origin: why this one, in words."""

    key: str
    name: str
    memory: int | None
    origin: str


@dataclass(frozen=True)
class Base:
    """Memory in use beside what the plan holds; None where it is not counted. origin: in words."""

    size: int | None
    origin: str

    @property
    def counted(self) -> int:
        return self.size or 0


@dataclass(frozen=True)
class Plan:
    """A model and a layout with the stages that follow. name: of the model. recorded: what was taken from a recording.

    notes: what a reader should know of where values are from. given: names and values asked for, with the preset that stands for others.
    """

    query: MemoryPlanQuery
    model: Model
    layout: Layout
    stages: list[Stage]
    name: str
    device: Device
    base: Base
    book: DeviceBook
    recorded: tuple[str, ...]
    notes: tuple[str, ...]
    given: Mapping[str, object]

    @property
    def largest(self) -> Stage:
        """The fullest stage, the first of equals."""
        return max(self.stages, key=lambda s: s.total_bytes)

    def headroom(self, size: int) -> int | None:
        """Returns memory left beside `size` bytes and the base; None where the memory is not known."""
        return None if self.device.memory is None else self.device.memory - size - self.base.counted

    def verdict(self, size: int) -> Verdict | None:
        """Whether `size` bytes and the base fit the device."""
        return None if self.device.memory is None else verdict(size + self.base.counted, self.device.memory)


def verdict(needed: int, memory: int) -> Verdict:
    """too large: beyond the memory; tight: less than a tenth of it would be left."""
    if needed > memory:
        return "too large"
    return "tight" if memory - needed < TIGHT * memory else "fits"


def planned(query: MemoryPlanQuery, capture: Capture | None = None) -> Plan:
    """Returns the plan that a query asks for; what it leaves open is that of the recording, of the preset, or the default. BadQuery."""
    given = {name: value for name in NAMES if (value := getattr(query, name)) is not None and value != ""}
    reported = _of_recording(capture) if capture is not None else {}
    base, notes = _recorded_model(reported, given) if capture is not None else (None, [])
    taken = {n: v for n, v in reported.items() if n not in _MODEL and n not in given}
    if "world" in given:
        taken.pop("dp", None)
    if {"distributed_optimizer", "sharding"} & set(given):
        taken.pop("sharding", None)
    open_sizes = [n for n in NEEDED if n not in given] if base is None and "preset" not in given else []
    if open_sizes:
        given = {"preset": DEFAULT_PRESET, **given}
        if set(given) & set(_MODEL):
            notes = [*notes, f"Not said: {', '.join(open_sizes)}. Theirs are the sizes of {CALLED[DEFAULT_PRESET]}."]
    model, layout = model_and_layout(taken | given, base=base)
    must_be_possible(model, layout)
    found = stages(model, layout)
    if max(s.total_bytes for s in found) > LARGEST:
        raise BadQuery("this would need more than 9 PB on one device", hint="look for a size with a digit too many", field="hidden")
    used = (*taken, *(reported if base is not None else ()))
    device, size = _device(query, capture), _base(query, capture)
    recorded = tuple(n for n in NAMES if n in used and n not in given)
    book = capture.devices if capture is not None else EMPTY
    return Plan(query, model, layout, found, _name(model, query, base), device, size, book, recorded, tuple(notes), given)


def _of_recording(capture: Capture) -> dict[str, str]:
    """Returns what a recording says of its model and layout, as far as the plan understands it."""
    out = {}
    for name in NAMES:
        value = capture.facts.metadata.get(f"plan.{name}", "")
        if value and _understood(name, value):
            out[name] = value
    return out


def _understood(name: str, value: str) -> bool:
    try:
        model_and_layout({"preset": DEFAULT_PRESET, name: value})
    except BadQuery:
        return False
    return True


def _recorded_model(recorded: Mapping[str, str], given: Mapping[str, object]) -> tuple[Model | None, list[str]]:
    """Returns the model as recorded, unless the query names a preset or the recording does not say enough of it."""
    sizes = {n: v for n, v in recorded.items() if n in _MODEL}
    if "preset" in given:
        return None, []
    lacking = [n for n in NEEDED if n not in sizes and n not in given]
    if lacking:
        name = CALLED[DEFAULT_PRESET]
        note = f"The recording does not say {', '.join(lacking)} of its model: the sizes are those of {name} until you give them."
        return None, [] if set(given) & set(_MODEL) else [note]
    known: dict[str, str | int | bool | None] = {**sizes, **{n: v for n in NEEDED if n in given and isinstance(v := given[n], int)}}
    return model_and_layout(known)[0], []


def _name(model: Model, query: MemoryPlanQuery, base: Model | None) -> str:
    """Returns what the model is called: the preset whose sizes these are, one with changes, the recorded one, or one of its own."""
    same = next((name for name, preset in PRESETS.items() if preset == model), "")
    if same:
        return CALLED[same]
    own = {f.name for f in fields(Model)}
    changed = [n for n in own if getattr(query, n, None) is not None]
    if query.preset:
        return f"{CALLED[query.preset]} with changes"
    if base is not None:
        return "the recorded model with changes" if changed else "the recorded model"
    return "a model of its own" if set(NEEDED) <= set(changed) else f"{CALLED[DEFAULT_PRESET]} with changes"


def _device(query: MemoryPlanQuery, capture: Capture | None) -> Device:
    """Returns what was asked for, else the device of the recording, else the default."""
    text = query.device.strip()
    size = _SIZE.match(text)
    if size:
        memory = round(float(size["number"]) * (GIB if size["unit"].lower() == "gib" else 1e9))
        if not 0 < memory <= LARGEST:
            raise BadQuery(f"no device has {text[:40]}", hint="say a size as 80GB or 80GiB", field="device")
        return Device(text, f"a device of {text}", memory, "as asked for")
    book = capture.devices if capture is not None else EMPTY
    if text:
        try:
            spec = overridden(text, book)
        except BadQuery as error:
            raise BadQuery(error.message, hint=f"{error.hint.partition(';')[0]}; or a size as 80GB", field="device") from None
        return Device(spec.key, spec.name, spec.memory_bytes, "as asked for")
    if capture is not None:
        props = next((p for p in capture.facts.devices if p.memory_bytes > 0), None)
        found = device_for(capture, query.device_limits)
        if props is not None and not query.device_limits:
            name = props.name or (found.name if found is not None else "the device")
            return Device(found.key if found is not None else "", name, props.memory_bytes, "as recorded")
        if found is not None and found.memory_bytes:
            return Device(found.key, found.name, found.memory_bytes, "its limits are those in use here")
    key = query.device_limits.partition("@")[0].partition("+")[0].strip()
    spec = overridden(key or DEFAULT_DEVICE, book)
    return Device(spec.key, spec.name, spec.memory_bytes, "its limits are those in use here" if key else "none was chosen")


def _base(query: MemoryPlanQuery, capture: Capture | None) -> Base:
    """Returns what was given, else what the program read of its device beside its allocator, else not counted."""
    if query.base_gb is not None:
        if not 0 <= query.base_gb < 1e6:
            raise BadQuery(f"base_gb does not fit: {query.base_gb}", hint="give GB from 0 up", field="base_gb")
        return Base(round(query.base_gb * 1e9), "as given")
    measured = _measured(capture) if capture is not None else None
    if measured is not None:
        return Base(measured, "measured: context and NCCL, as the program read them")
    return Base(None, "not counted: context and NCCL are not known")


def _measured(capture: Capture) -> int | None:
    """Returns bytes of context and NCCL on a device at the last record that tells of them; None where none does."""
    if not len(capture.tables[S.MEMORY_RECORDS.name]):
        return None
    found = budget(capture)
    device = capture.tables[S.MEMORY_RECORDS.name]["device"].to_numpy()
    own = found[found["category"].isin(("base_context", "nccl")) & found["known"] & (device[found["record"].to_numpy()] >= 0)]
    reported = own.loc[own["category"] == "base_context", "record"]
    return max(int(own.loc[own["record"] == reported.max(), "bytes"].sum()), 0) if len(reported) else None


# -- How the fields of the query stand in a plan ----------------------------------------------------------------------
# the values used, and those that would do as well.


MOST: Final = 128
"""Largest parallel size that a slider offers, unless a larger one is used."""
_POWERS: Final = tuple(1 << n for n in range(18))


def stand(plan: Plan) -> dict[str, FieldNow]:
    """Returns every field that the plan resolves: what it is, and what its slider steps through."""
    model, layout = plan.model, plan.layout
    out: dict[str, FieldNow] = {}
    for name in (*MODEL_NUMBERS, *MODEL_FLAGS):
        out[name] = FieldNow(setting(getattr(model, name)))
    if not plan.query.preset and "preset" in plan.given:
        out["preset"] = FieldNow(str(plan.given["preset"]))
    out["kv_heads"] = FieldNow(setting(model.kv_heads or model.heads))
    out["channels"] = FieldNow(setting(model.channels or model.hidden // model.heads))
    for name, (part, _) in WORDS.items():
        out[name] = FieldNow(setting(getattr(layout, part)))
    for name in ("sequence_parallel", "microbatches"):
        out[name] = FieldNow(setting(getattr(layout, name)))
    out["distributed_optimizer"] = FieldNow(setting(layout.sharding != "none"))
    out["world"] = FieldNow(setting(layout.world))
    out["etp"] = FieldNow(setting(layout.etp or layout.tp))
    out["device"] = FieldNow(plan.device.key)
    out["base_gb"] = FieldNow(f"{plan.base.size / 1e9:.4g}" if plan.base.size is not None else "")
    for name in ("tp", "pp", "dp", "cp", "ep", "vpp", "micro_batch", "seq"):
        now: int = getattr(layout, name)
        out[name] = FieldNow(setting(now), tuple(setting(v) for v in sorted({now, *_steps(name, model, layout)})))
    return out


def _steps(name: str, model: Model, layout: Layout) -> tuple[int, ...]:
    """Returns possible values: those that divide what they must; powers of two where anything would do."""
    sizes = {"tp": model.heads, "pp": model.layers, "vpp": model.layers // layout.pp if layout.pp > 1 else 1, "ep": max(model.experts, 1)}
    if name in sizes:
        return choices(name, model, layout, range(1, min(sizes[name], MOST) + 1))
    low, high = {"dp": (1, 4096), "cp": (1, 64), "micro_batch": (1, 64), "seq": (512, 131_072)}[name]
    return choices(name, model, layout, [v for v in _POWERS if low <= v <= high])


# -- The tables of the plan -------------------------------------------------------------------------------------------
# stages, devices, layouts, formulas.


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
    """Builds the table of what one rank of each stage holds; the first row sums one rank of every stage."""
    rows = [_of_stage(plan, s) for s in plan.stages]
    columns = {c.name: [row[c.name] for row in rows] for c in STAGES}
    total: dict[str, Scalar] = {"stage": "sum"}
    for column in STAGES:
        if column.unit == "B" and column.name != "headroom_bytes":
            total[column.name] = _sum(columns[column.name])
    total |= {"layers": _sum(columns["layers"]), "parameters": _sum(columns["parameters"])}
    total |= {"microbatches": None, "headroom_bytes": None}
    total |= {f"{name}_gib": _sum(columns[f"{name}_bytes"]) / GIB for name in ("total", "state")}
    over = {str(i): Mark("flagged", f"more than {plan.device.name} has") for i, r in enumerate(rows) if _exceeds(r["headroom_bytes"])}
    return make_table(
        "stages", "Stages", columns, STAGES, key="stage", total=total, marks={"headroom_bytes": over} if over else {},
        subtitle="one rank of each; every figure is a closed form",
        footer="GB = 10^9 bytes, GiB = 2^30 bytes. Parameters, gradients, master weights, optimizer and activations add up to the total.",
    )  # fmt: skip


def _sum(values: list[Scalar]) -> int:
    return sum(value for value in values if isinstance(value, int))


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
    """Builds the table of every device of the table, and of device files, against the fullest stage."""
    needed = plan.largest.total_bytes + plan.base.counted
    specs = {key: overridden(key, plan.book) for key in device_choices(plan.book)}
    rows = [
        {
            "device": key, "verdict": verdict(needed, spec.memory_bytes), "share": needed / spec.memory_bytes,
            "memory_bytes": spec.memory_bytes, "memory_gib": spec.memory_bytes / GIB, "headroom_bytes": spec.memory_bytes - needed,
            "name": spec.name,
        }
        for key, spec in specs.items() if spec.memory_bytes
    ]  # fmt: skip
    rows.sort(key=lambda r: (r["memory_bytes"], str(r["device"])))
    columns = {c.name: [row[c.name] for row in rows] for c in DEVICES}
    attached = f"{human(plan.base.counted, 'B')} of base memory are counted" if plan.base.size is not None else plan.base.origin
    unsure = {str(i): Mark("unverified", "the memory of this row is not confirmed") for i, k in enumerate(columns["device"])
              if "mem_gb" in specs[str(k)].unverified}  # fmt: skip
    here = {str(i): _link(plan, {"device": str(k)}, f"Hold the plan against {k}") for i, k in enumerate(columns["device"])}
    fits = [r for r in rows if r["verdict"] == "fits"]
    return make_table(
        "devices", "Does it fit?", columns, DEVICES, key="device", cell_links={"device": here}, row_links=here,
        marks={"memory_bytes": unsure} if unsure else {}, sort=Sort("memory_bytes", descending=False), filters=["verdict"],
        subtitle=f"the fullest stage on every device of the table; it fits {len(fits)} of them with a tenth to spare",
        footer=f"{capitalized(attached)}. A driver reports 1 to 2 % less than the memory a device is sold with.",
    )  # fmt: skip


def spread(plan: Plan) -> list[tuple[Spread, Verdict | None]]:
    """Returns the same model on as many devices, in every other layout, with whether it fits; best first."""
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
    """Returns the first that fits, one whose tensor parallel ranks stand within a host of `HOST` devices before others."""
    return min((s for s, fits in found if fits == "fits"), key=lambda s: s.tp > HOST, default=None)


def layout_table(plan: Plan, found: list[tuple[Spread, Verdict | None]]) -> TableSection:
    """Builds the table of the best layouts of `spread`."""
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
    """Returns the key of a layout's row."""
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
    """Returns this plan with some fields changed."""
    now = {n: _tables_text(value) for n in (*NAMES, "device", "base_gb") if (value := getattr(plan.query, n)) not in (None, "")}
    if set(changes) & set(SPREAD):
        now = {n: v for n, v in now.items() if n not in SPREAD}
    return Link("memory_plan", now | changes, label)


def _tables_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def formula_table(plan: Plan) -> TableSection:
    """Builds the table of every figure of the model, and of the first, the fullest and the last stage."""
    which = sorted({0, plan.largest.stage, len(plan.stages) - 1})
    rows = [
        {
            "figure": one.figure, "stage": one.stage, "formula": one.formula, "inputs": one.put_in,
            "count": one.result if one.unit == "count" else None, "bytes": round(one.result) if one.unit == "B" else None,
        }
        for one in explained(plan.model, plan.layout, which)
    ]  # fmt: skip
    data: dict[str, Sequence[Scalar]] = {c.name: [r[c.name] for r in rows] for c in FORMULAS}
    return TableSection(
        id="formulas", title="Formulas", columns=list(FORMULAS), data=data,
        subtitle="each figure with what was put in; of the model, then of a rank of "
        + (f"stages {', '.join(map(str, which))}" if len(which) > 1 else "the only stage"),
        footer="Not in them: CUDA context, NCCL, fragmentation, workspaces of fused attention.",
    )  # fmt: skip


def saved_by_placement(plan: Plan) -> int:
    """Returns bytes that the fullest stage would be smaller by, were embedding and head where they are needed and divided over tp."""
    own = stages(plan.model, replace(plan.layout, embedding_placement="own", head_placement="own"))
    return plan.largest.total_bytes - max(s.total_bytes for s in own)


def with_own_placement(plan: Plan) -> Link:
    """Returns this plan with that placement."""
    return _link(plan, {"embedding_placement": "own", "head_placement": "own"}, "Place them so")
