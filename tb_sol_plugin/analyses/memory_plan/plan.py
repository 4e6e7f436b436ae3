"""What is planned: model, layout, device and base, out of the query and of what a recording says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal, TypeAlias

from tb_sol_plugin.analyses.memory_plan.query import MemoryPlanQuery
from tb_sol_plugin.cost.transformer.memory import PRESETS, Layout, Model, Stage, stages
from tb_sol_plugin.cost.transformer.query import DEFAULT_PRESET, MODEL_FLAGS, MODEL_NUMBERS, NAMES, NEEDED, asked, must_be_possible
from tb_sol_plugin.devices.limits import device_for, overridden
from tb_sol_plugin.devices.spec import EMPTY, DeviceBook
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.memory.budget import budget
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

GIB: Final = 1 << 30
Verdict: TypeAlias = Literal["fits", "tight", "too large"]
TIGHT: Final = 0.1
"""Share of a device's memory that should be left for what the formulas do not hold."""
DEFAULT_DEVICE: Final = "H100_SXM"
CALLED: Final[dict[str, str]] = {"llama-7b": "LLaMA-7B", "llama-13b": "LLaMA-13B", "llama-70b": "LLaMA-70B", "gpt3-175b": "GPT-3 175B"}
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
        """Memory left beside `size` bytes and the base; None where the memory is not known."""
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
    """The plan that a query asks for; what it leaves open is that of the recording, of the preset, or the default. BadQuery."""
    given = {name: value for name in NAMES if (value := getattr(query, name)) is not None and value != ""}
    told = _of_recording(capture) if capture is not None else {}
    base, notes = _recorded_model(told, given)
    taken = {n: v for n, v in told.items() if n not in _MODEL and n not in given}
    if "world" in given:
        taken.pop("dp", None)
    if {"distributed_optimizer", "sharding"} & set(given):
        taken.pop("sharding", None)
    open_sizes = [n for n in NEEDED if n not in given] if base is None and "preset" not in given else []
    if open_sizes:
        given = {"preset": DEFAULT_PRESET, **given}
        if set(given) & set(_MODEL):
            notes = [*notes, f"Not said: {', '.join(open_sizes)}. Theirs are the sizes of {CALLED[DEFAULT_PRESET]}."]
    model, layout = asked(taken | given, base=base)
    must_be_possible(model, layout)
    found = stages(model, layout)
    if max(s.total_bytes for s in found) > LARGEST:
        raise BadQuery("this would need more than 9 PB on one device", hint="look for a size with a digit too many", field="hidden")
    used = (*taken, *(told if base is not None else ()))
    device, size = _device(query, capture), _base(query, capture)
    recorded = tuple(n for n in NAMES if n in used and n not in given)
    book = capture.devices if capture is not None else EMPTY
    return Plan(query, model, layout, found, _name(model, query, base), device, size, book, recorded, tuple(notes), given)


def _of_recording(capture: Capture) -> dict[str, str]:
    """What a recording says of its model and layout, as far as the plan understands it."""
    out = {}
    for name in NAMES:
        value = capture.facts.metadata.get(f"plan.{name}", "")
        if value and _understood(name, value):
            out[name] = value
    return out


def _understood(name: str, value: str) -> bool:
    try:
        asked({"preset": DEFAULT_PRESET, name: value})
    except BadQuery:
        return False
    return True


def _recorded_model(told: Mapping[str, str], given: Mapping[str, object]) -> tuple[Model | None, list[str]]:
    """The model as recorded, unless the query names a preset or the recording does not say enough of it."""
    sizes = {n: v for n, v in told.items() if n in _MODEL}
    if "preset" in given or not sizes:
        return None, []
    lacking = [n for n in NEEDED if n not in sizes and n not in given]
    if lacking:
        note = f"The recording does not say {', '.join(lacking)} of its model: the sizes are those of {CALLED[DEFAULT_PRESET]}."
        return None, [] if set(given) & set(_MODEL) else [note]
    known: dict[str, str | int | bool | None] = {**sizes, **{n: v for n in NEEDED if n in given and isinstance(v := given[n], int)}}
    return asked(known)[0], []


def _name(model: Model, query: MemoryPlanQuery, base: Model | None) -> str:
    """What the model is called: the preset whose sizes these are, one with changes, the recorded one, or one of its own."""
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
    """What was asked for, else the device of the recording, else the default."""
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
    """What was given, else what the program read of its device beside its allocator, else not counted."""
    if query.base_gb is not None:
        if not 0 <= query.base_gb < 1e6:
            raise BadQuery(f"base_gb does not fit: {query.base_gb}", hint="give GB from 0 up", field="base_gb")
        return Base(round(query.base_gb * 1e9), "as given")
    measured = _measured(capture) if capture is not None else None
    if measured is not None:
        return Base(measured, "measured: context and NCCL, as the program read them")
    return Base(None, "not counted: context and NCCL are not known")


def _measured(capture: Capture) -> int | None:
    """Bytes of context and NCCL on a device at the last record that tells of them; None where none does."""
    found = budget(capture)
    device = capture.tables[S.MEMORY_RECORDS.name]["device"].to_numpy()
    own = found[found["category"].isin(("base_context", "nccl")) & found["known"] & (device[found["record"].to_numpy()] >= 0)]
    told = own.loc[own["category"] == "base_context", "record"]
    return max(int(own.loc[own["record"] == told.max(), "bytes"].sum()), 0) if len(told) else None
