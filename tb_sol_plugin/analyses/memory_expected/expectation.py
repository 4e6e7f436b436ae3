"""What a rank is expected to hold: by the formulas of a model whose sizes are known, else by the parameters that were counted on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from tb_sol_plugin.analyses.memory_expected.part import ExpectedPart
from tb_sol_plugin.analyses.memory_expected.query import MemoryExpectedQuery
from tb_sol_plugin.cost.transformer.explain import Formula, explained
from tb_sol_plugin.cost.transformer.memory import PRESETS, WIDTH, Layout, Model, Stage, per_parameter, stage
from tb_sol_plugin.cost.transformer.query import LAYOUT_NUMBERS, MODEL_FLAGS, MODEL_NUMBERS, NAMES, NEEDED, WORDS, asked, problems
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.memory.expected import ROWS

Given: TypeAlias = Mapping[str, "str | int | bool"]

FIGURES: Final = {
    "parameters": "Parameters", "main_parameters": "Master weights", "gradients": "Gradients", "main_gradients": "Main gradients",
    "optimizer_state": "Optimizer state", "activations": "Activations, R", "logits": "Logits and their gradient in FP32, Z",
    "total": "Total",
}  # fmt: skip
"""Parts by the names that their formulas have."""
OF_A_PARAMETER: Final = {
    "parameters": "parameter", "main_parameters": "master", "gradients": "gradient", "main_gradients": "main_gradient",
    "optimizer_state": "optimizer",
}  # fmt: skip
_MODEL: Final = (*MODEL_NUMBERS, *MODEL_FLAGS)
NONE: Final = "none in this training"


@dataclass(frozen=True)
class Expected:
    """bytes: None where nothing can be expected. formula, inputs: how it is worked out."""

    bytes: int | None = None
    formula: str = ""
    inputs: str = ""


@dataclass(frozen=True)
class Expectation:
    """One rank. stage: None unknown. guessed: the stage follows from the order of ranks. parts: by part of ROWS.

    sizes: {name: (value, where it is from)}. parameters: of a rank of the stage by formula. lacking: sizes that a formula would need.
    problem: why there is no expectation.
    """

    stage: int | None = None
    guessed: bool = False
    model: Model | None = None
    layout: Layout | None = None
    parts: dict[str, Expected] = field(default_factory=lambda: dict.fromkeys(ROWS, Expected()))
    sizes: dict[str, tuple[str, str]] = field(default_factory=dict)
    parameters: int | None = None
    lacking: tuple[str, ...] = ()
    problem: str = ""

    @property
    def counted(self) -> bool:
        """Whether it rests on parameters that were counted, without sizes of the model."""
        return self.model is None and self.parts["parameters"].bytes is not None

    def formulas(self) -> list[Formula]:
        """All steps, of the model and of the stage."""
        if self.model is None or self.layout is None or self.stage is None:
            return []
        return explained(self.model, self.layout, [self.stage])


def asked_for(query: MemoryExpectedQuery) -> Given:
    """What a query says, without what it leaves open."""
    return {name: value for name in NAMES if (value := getattr(query, name)) is not None and value != ""}


def expectation(own: ExpectedPart, given: Given, *, rank: int | None, world: int | None) -> Expectation:
    """Of one rank. BadQuery where what is asked for does not fit."""
    told = {name: value for name, value in own.plan.items() if _understood(name, value)}
    taken: dict[str, str | int | bool] = {name: value for name, value in told.items() if name not in given}
    if "preset" in given:
        taken = {name: value for name, value in taken.items() if name not in _MODEL}
    if "world" in given:
        taken.pop("dp", None)
    if {"distributed_optimizer", "sharding"} & set(given):
        taken.pop("sharding", None)
    values = taken | dict(given)
    lacking = tuple(name for name in NEEDED if name not in values) if "preset" not in given else ()
    if lacking:
        asked({"preset": "llama-7b"} | dict(given))  # what is asked for must fit all the same
        return _counted(own, values, given, lacking)
    model, layout = asked(values)
    sizes = _sizes(model, layout, given, taken, own.origin)
    wrong = problems(model, layout)
    if wrong:
        why = "; ".join(dict.fromkeys(f"{p.why}: {p.remedy}" for p in wrong))
        return Expectation(model=model, layout=layout, sizes=sizes, problem=why)
    k, guessed = _stage(own, layout, rank, world)
    if k is None:
        why = "the pipeline stage of this rank is not recorded"
        return Expectation(model=model, layout=layout, sizes=sizes, problem=why)
    done = stage(model, layout, k)
    return Expectation(k, guessed, model, layout, _parts(done, explained(model, layout, [k])), sizes, done.parameters)


def _understood(name: str, value: str) -> bool:
    try:
        asked({"preset": "llama-7b", name: value})
    except BadQuery:
        return False
    return name in NAMES


def _stage(own: ExpectedPart, layout: Layout, rank: int | None, world: int | None) -> tuple[int | None, bool]:
    """(stage, whether it follows from the order of ranks alone): stages are the outermost groups of ranks, as Megatron orders them."""
    if layout.pp == 1:
        return 0, False
    place, size = own.groups.get("pp", (-1, 0))
    if size == layout.pp and 0 <= place < size:
        return place, False
    if rank is not None and world and world % layout.pp == 0 and rank < world:
        return rank // (world // layout.pp), True
    return None, False


def _parts(done: Stage, formulas: list[Formula]) -> dict[str, Expected]:
    sizes = {
        "parameters": done.parameter_bytes, "main_parameters": done.master_bytes, "gradients": done.gradient_bytes,
        "main_gradients": done.main_gradient_bytes, "optimizer_state": done.optimizer_bytes, "activations": done.activation_bytes,
        "logits": done.logits_bytes, "total": done.total_bytes,
    }  # fmt: skip
    steps = {one.figure: one for one in formulas if one.stage is not None}
    out = dict.fromkeys(ROWS, Expected())
    for name, size in sizes.items():
        step = steps.get(FIGURES[name])
        out[name] = Expected(size, step.formula, step.put_in) if step is not None else Expected(size, NONE)
    return out


def _counted(own: ExpectedPart, values: Given, given: Given, lacking: tuple[str, ...]) -> Expectation:
    """Bytes per parameter times the parameters that were counted; what passes through the model cannot be said."""
    number = str(values.get("dtype", own.dtype))
    if own.parameters is None or number not in WIDTH:
        return Expectation(lacking=lacking)
    rest = {n: v for n, v in values.items() if n in (*LAYOUT_NUMBERS, *WORDS, "world", "sequence_parallel", "distributed_optimizer")}
    known = "optimizer" in rest
    _, layout = asked({"preset": "llama-7b"} | rest | {"dtype": number})
    here = replace(layout, sharding="none") if layout.sharding == "full" else layout  # what was counted is this rank's part already
    per, one = per_parameter(here), per_parameter(here, 1)
    d = here.dp * here.cp
    parts = dict.fromkeys(ROWS, Expected())
    for name, attribute in OF_A_PARAMETER.items():
        if name == "optimizer_state" and not known:
            continue
        each: float = getattr(per, attribute)
        whole: float = getattr(one, attribute)
        divided = each < whole
        text = f"{whole:g} · P{'/d' if divided else ''}" if whole else NONE
        inputs = f"P = {own.parameters}" + (f", d = {d}" if divided else "") if whole else ""
        parts[name] = Expected(round(own.parameters * each), text, inputs)
    sizes = {name: (_text(value), _from(name, given, own.origin)) for name, value in rest.items()}
    sizes.setdefault("dtype", (number, "parameters as counted"))
    pp = own.groups.get("pp", (0, 1))
    k = pp[0] if pp[1] > 1 else 0 if layout.pp == 1 else None
    return Expectation(k, False, None, layout, parts, sizes, None, lacking)


def _sizes(model: Model, layout: Layout, given: Given, taken: Given, origin: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Every size that goes into the formulas, and where it is from."""
    out = {}
    preset = str(given.get("preset", ""))
    for name in (*_MODEL, *LAYOUT_NUMBERS, "sequence_parallel", *WORDS):
        holder: object = model if name in _MODEL else layout
        value: object = getattr(holder, WORDS[name][0] if name in WORDS else name)
        if name in given or (name == "sharding" and "distributed_optimizer" in given) or (name == "dp" and "world" in given):
            where = "asked for"
        elif name in taken:
            where = _from(name, given, origin)
        else:
            where = f"preset {preset}" if preset in PRESETS and name in _MODEL else "assumed"
        out[name] = (_text(value), where)
    return out


def _from(name: str, given: Given, origin: Mapping[str, str]) -> str:
    return "asked for" if name in given else f"recorded: {origin.get(name) or 'in the header'}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
