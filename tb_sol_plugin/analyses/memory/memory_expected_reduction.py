"""What a rank holds and what it is expected to hold: the reduction of one recording, and the expectation beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, TypeAlias

import msgspec
import numpy as np

from tb_sol_plugin.cost.transformer.explain import Formula, explained
from tb_sol_plugin.cost.transformer.memory import PRESETS, WIDTH, Layout, Model, Stage, per_parameter, stage
from tb_sol_plugin.cost.transformer.query import (
    LAYOUT_NUMBERS,
    MODEL_FLAGS,
    MODEL_NUMBERS,
    NAMES,
    NEEDED,
    WORDS,
    model_and_layout,
    problems,
)
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.format import PLAN
from tb_sol_plugin.metrics.memory.budget import CATEGORIES, budget, totals
from tb_sol_plugin.metrics.memory.expected import LAYOUT, MODEL, ROWS, TRAINING, TrainingQuery, actual
from tb_sol_plugin.metrics.memory.labels import setting
from tb_sol_plugin.metrics.ranks.sections import LEFT_OUT
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Column, Fact


class MemoryExpectedQuery(TrainingQuery, kw_only=True, frozen=True):
    """Sizes of the model and its layout. What is left open is as recorded; what is said here stands over it.

    preset: sizes of a published model in place of the recorded ones
    """

    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {"Model": MODEL, "Layout": LAYOUT, "Training": TRAINING}
    SELDOM: ClassVar[tuple[str, ...]] = (*TrainingQuery.SELDOM, "sequence_parallel")


PARTS: Final = (
    Column("rank", "Rank", doc="rank, as recorded or from the name of the worker", missing="not known"),
    Column("stage", "Stage", doc="pipeline stage of the rank, from 0", missing="not known"),
    Column("part", "Part", doc="what is held; main parameters are the FP32 master weights", show="text"),
    Column("expected_bytes", "Expected", "B", "by formula, of a rank of this stage",
           missing="there is no formula for it, or sizes for it are not known"),
    Column("actual_bytes", "Actual", "B", "as recorded", missing="not recorded: the last column says how to"),
    Column("difference_bytes", "Difference", "B", "actual less expected", missing="one of the two is not known"),
    Column("of_expected", "Difference", "ratio", "difference over expected",
           missing="one of the two is not known, or nothing is expected"),
    Column("verdict", "Verdict", doc="ok: at most 5 % apart; more; less; not recorded; no expectation", show="badge"),
    Column("formula", "Formula", doc="how the expected bytes are worked out; the table of formulas has all steps", show="code",
           missing="no formula"),
    Column("inputs", "Inputs", doc="what was put in", show="code", rank=3, missing="no formula"),
    Column("source", "Actual from", doc="where the actual bytes are from, or what would record them", show="text", rank=2),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
    Column("tp", "TP", doc="tensor parallel rank and size", rank=3, missing="not recorded"),
    Column("dp", "DP", doc="data parallel rank and size", rank=3, missing="not recorded"),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
CAPTURED: Final = (
    Column("rank", "Rank", doc="rank of the worker", missing="not known"),
    Column("Actual_Captured_Master_Weight_MB", "Actual_Captured_Master_Weight_MB",
           doc="FP32 master weights on this rank, in MiB, as Megatron prints them", missing="no optimizer was inspected"),
    Column("Actual_Captured_Main_Grad_Mem_MB", "Actual_Captured_Main_Grad_Mem_MB", doc="FP32 main gradients on this rank, in MiB",
           missing="no optimizer was inspected"),
    Column("parameters", "Parameters", "count", "parameters that the program counted on this rank", missing="the model was not inspected"),
    Column("expected_parameters", "By formula", "count", "parameters that the formula gives a rank of its stage",
           missing="sizes of the model are not known"),
    Column("parameters_verdict", "Verdict", doc="ok: at most 5 % apart; more; less; not recorded; no expectation", show="badge"),
    Column("unknown_bytes", "Unknown", "B", "of all that was in use at the largest record, what nothing explains; negative: something is "
           "counted twice", missing="not recorded"),
    Column("in_all_bytes", "In all", "B", "what was in use at that record, which its categories add up to", rank=2, missing="not recorded"),
    Column("in_all_of", "Of", doc="what that is: device_used, allocated, or process_used (of a CPU)", show="code", rank=2,
           missing="not recorded"),
    Column("Actual_Captured_Master_Weight_bytes", "Master weights", "B", "FP32 master weights, exactly", rank=3,
           missing="no optimizer was inspected"),
    Column("Actual_Captured_Main_Grad_Mem_bytes", "Main gradients", "B", "FP32 main gradients, exactly", rank=3,
           missing="no optimizer was inspected"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
)  # fmt: skip
RECORDS: Final = (
    Column("rank", "Rank", doc="rank of the worker", missing="not known"),
    Column("tag", "Record", doc="name that the program gave the record; iteration: made at the end of one", show="code"),
    Column("iteration", "Iteration", "", "iteration that ran", missing="before the first one"),
    Column("total_bytes", "In use", "B", "what the categories add up to, exactly", show="stack",
           parts=("base_context_bytes", "nccl_bytes", "others_bytes", "params_bytes", "gradients_bytes", "master_weights_bytes",
                  "optimizer_bytes", "buffers_bytes", "fragmentation_bytes", "unknown_bytes"),
           part_colors=("host", "DtoD", "memset", "compute", "communication", "conv", "norm", "gemm", "bar-ink", "idle")),
    Column("of", "Of", doc="device_used: the device; allocated: the allocator; process_used: the process, of a CPU", show="code", rank=2),
    Column("base_context_bytes", "Base", "B", "context of the device; of a CPU the process before the model", missing="not recorded"),
    Column("nccl_bytes", "NCCL", "B", "what came with the process group: the gain between records before the first iteration", rank=2,
           missing="no second record before the first iteration"),
    Column("others_bytes", "Others", "B", "other processes on the device", rank=2, missing="the driver does not report it"),
    Column("params_bytes", "Parameters", "B", "parameters", missing="not looked at"),
    Column("buffers_bytes", "Buffers", "B", "buffers of the model", rank=3, missing="not looked at"),
    Column("gradients_bytes", "Gradients", "B", "gradients and main gradients", missing="not looked at"),
    Column("master_weights_bytes", "Master", "B", "master weights", missing="no optimizer was inspected"),
    Column("optimizer_bytes", "Optimizer", "B", "both moments and other state of the optimizer", missing="no optimizer was inspected"),
    Column("fragmentation_bytes", "Held", "B", "reserved by the allocator, and not in use", rank=2, missing="not recorded"),
    Column("unknown_bytes", "Unknown", "B", "the rest, activations among it; negative: something is counted twice"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
)  # fmt: skip
SIZES: Final = (
    Column("name", "Size", doc="as it is called in the plan", show="code"),
    Column("value", "Value", doc="what the formulas are given"),
    Column("from", "From", doc="asked for, recorded (and where it stood), of the preset, or assumed", show="text"),
)
FORMULAS: Final = (
    Column("figure", "Figure", doc="what is worked out", show="text"),
    Column("stage", "Stage", doc="pipeline stage it is of", missing="it is of the whole model"),
    Column("formula", "Formula", doc="how; each letter stands among the inputs", show="code"),
    Column("inputs", "Inputs", doc="what is put in", show="code"),
    Column("count", "Result", "count", "the result where it is a number of things", missing="the result is in bytes"),
    Column("bytes", "Result", "B", "the result where it is bytes", missing="the result is a number of things"),
)
TABLES: Final = {"parts": PARTS, "captured": CAPTURED, "records": RECORDS, "sizes": SIZES, "formulas": FORMULAS, "left_out": LEFT_OUT}
FACTS: Final = (
    Fact("workers", "", "count", "workers of the run"),
    Fact("workers_read", "", "count", "those whose recording could be read"),
    Fact("expected_bytes", "Expected", "B", "expected on the rank whose actual total is the largest (of all ranks where none has one), "
         "by formula"),
    Fact("actual_bytes", "In use at most", "B", "in use at most on that rank"),
    Fact("difference_bytes", "", "B", "actual less expected"),
    Fact("parts_compared", "", "count", "parts of all ranks that have both an expected and an actual number"),
    Fact("parts_ok", "Parts as expected", "count", "of these, at most 5 % apart"),
    Fact("worst_part", "", "", "the part whose actual and expected bytes lie farthest apart"),
    Fact("worst_rank", "", "", "its rank"),
    Fact("worst_difference_bytes", "Farthest off", "B", "its actual less expected bytes"),
    Fact("model_parameters", "Model", "count", "parameters of the whole model by formula"),
    Fact("Actual_Captured_Master_Weight_MB", "", "", "FP32 master weights in MiB, the most of any rank"),
    Fact("Actual_Captured_Main_Grad_Mem_MB", "", "", "FP32 main gradients in MiB, the most of any rank"),
)  # fmt: skip
MOST_RECORDS: Final = 60
"""Records of one worker whose budgets are shown."""
MOST_DIGITS: Final = 9
"""Of a rank; longer numbers are none."""


class Actual(msgspec.Struct, frozen=True):
    """One part that was recorded, as `metrics.memory.actual.Amount`."""

    bytes: int | None
    source: str
    estimated: str
    why: str


class Record(msgspec.Struct, frozen=True):
    """One record of the program with its budget: bytes by category of `budget.CATEGORIES`, None unknown; of: what they add up to."""

    tag: str
    iteration: int
    of: str
    total: int
    flag: str
    bytes: dict[str, int | None]


class ExpectedReduction(msgspec.Struct, frozen=True):
    """One worker. plan: sizes as recorded by their names; origin: where each stood. groups: {name: (rank, size)}. held: by part.

    parameters: counted on this rank, of type `dtype` for the most part. master_weight_bytes, main_grad_bytes: in FP32. whole: what the
    parts of its largest record add up to, `of` what that is, `unknown` of it what nothing explains, flag: negative, large or "". records:
    those before the first iteration and those that looked at the model, in order of time, and how many were left out.
    """

    plan: dict[str, str]
    origin: dict[str, str]
    groups: dict[str, tuple[int, int]]
    held: dict[str, Actual]
    parameters: int | None
    dtype: str
    master_weight_bytes: int | None
    main_grad_bytes: int | None
    whole: int | None
    of: str
    unknown: int | None
    flag: str
    records: list[Record]
    left_out: int
    extent_ns: int


def part(capture: Capture, query: Query) -> ExpectedReduction:
    """Reduces one recording to its memory per part, and what goes into the expectation."""
    metadata = capture.facts.metadata
    plan = {name: metadata[f"plan.{name}"] for name in PLAN if metadata.get(f"plan.{name}")}
    origin = {name: metadata.get(f"plan.{name}.from", "") for name in plan}
    groups = {}
    for name in ("tp", "pp", "dp", "cp", "ep"):
        own, of, size = metadata.get(f"groups.{name}", "").partition(" of ")
        if of and own.isdecimal() and size.isdecimal() and max(len(own), len(size)) <= MOST_DIGITS:
            groups[name] = (int(own), int(size))
    found = actual(capture)
    if found.optimizer and "optimizer" not in plan:
        plan["optimizer"], origin["optimizer"] = found.optimizer, "moments that were seen"
    held = {name: Actual(one.bytes, one.source, one.estimated, one.why) for name, one in found.parts.items()}
    records, left_out = _records(capture)
    start, end = capture.facts.extent_ns
    return ExpectedReduction(
        plan, origin, groups, held, found.parameters, found.dtype, found.master_weight_bytes, found.main_grad_bytes, found.whole, found.of,
        found.unknown, found.flag, records, left_out, max(end - start, 0),
    )  # fmt: skip


def _records(capture: Capture) -> tuple[list[Record], int]:
    """Returns budgets of the records that say most; of too many those that are evenly apart."""
    table, whole = capture.tables[S.MEMORY_RECORDS.name], totals(capture)
    row = whole["record"].to_numpy()
    seen = np.isin(row, capture.tables[S.MEMORY_PARTS.name]["record"].to_numpy()) | (table["iteration"].to_numpy()[row] < 0)
    seen &= whole["of"].astype(str).to_numpy() != "parts"
    at = np.flatnonzero(seen)
    at = at[np.argsort(table["time_ns"].to_numpy()[row[at]], kind="stable")]
    kept = at[np.unique(np.linspace(0, len(at) - 1, min(len(at), MOST_RECORDS)).round().astype(int))] if len(at) else at
    found = budget(capture)
    size, known = (found[name].to_numpy().reshape(-1, len(CATEGORIES)) for name in ("bytes", "known"))
    tags, iterations = table["tag"].astype(str).to_numpy(), table["iteration"].to_numpy()
    out = [
        Record(
            tags[row[i]], int(iterations[row[i]]), str(whole["of"].iloc[i]), int(whole["total"].iloc[i]), str(whole["flag"].iloc[i]),
            {c: int(b) if k else None for c, b, k in zip(CATEGORIES, size[i], known[i], strict=True)},
        )
        for i in kept.tolist()
    ]  # fmt: skip
    return out, len(at) - len(kept)


Requested: TypeAlias = Mapping[str, "str | int | bool"]
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
        """Returns all steps of the formulas, of the model and of the stage."""
        if self.model is None or self.layout is None or self.stage is None:
            return []
        return explained(self.model, self.layout, [self.stage])


def asked_for(query: MemoryExpectedQuery) -> Requested:
    """Returns what a query says, without what it leaves open."""
    return {name: value for name in NAMES if (value := getattr(query, name)) is not None and value != ""}


def expectation(own: ExpectedReduction, requested: Requested, *, rank: int | None, world: int | None) -> Expectation:
    """Works out the expected memory of one rank. BadQuery where what is asked for does not fit."""
    reported = {name: value for name, value in own.plan.items() if _understood(name, value)}
    taken: dict[str, str | int | bool] = {name: value for name, value in reported.items() if name not in requested}
    if "preset" in requested:
        taken = {name: value for name, value in taken.items() if name not in _MODEL}
    if "world" in requested:
        taken.pop("dp", None)
    if {"distributed_optimizer", "sharding"} & set(requested):
        taken.pop("sharding", None)
    values = taken | dict(requested)
    lacking = tuple(name for name in NEEDED if name not in values) if "preset" not in requested else ()
    if lacking:
        model_and_layout({"preset": "llama-7b"} | dict(requested))  # what is asked for must fit all the same
        return _counted(own, values, requested, lacking)
    model, layout = model_and_layout(values)
    sizes = _sizes(model, layout, requested, taken, own.origin)
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
        model_and_layout({"preset": "llama-7b", name: value})
    except BadQuery:
        return False
    return name in NAMES


def _stage(own: ExpectedReduction, layout: Layout, rank: int | None, world: int | None) -> tuple[int | None, bool]:
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


def _counted(own: ExpectedReduction, values: Requested, requested: Requested, lacking: tuple[str, ...]) -> Expectation:
    """Returns bytes per parameter times the parameters that were counted; what passes through the model cannot be said."""
    number = str(values.get("dtype", own.dtype))
    if own.parameters is None or number not in WIDTH:
        return Expectation(lacking=lacking)
    rest = {n: v for n, v in values.items() if n in (*LAYOUT_NUMBERS, *WORDS, "world", "sequence_parallel", "distributed_optimizer")}
    known = "optimizer" in rest
    _, layout = model_and_layout({"preset": "llama-7b"} | rest | {"dtype": number})
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
    sizes = {name: (setting(value), _from(name, requested, own.origin)) for name, value in rest.items()}
    sizes.setdefault("dtype", (number, "parameters as counted"))
    pp = own.groups.get("pp", (0, 1))
    k = pp[0] if pp[1] > 1 else 0 if layout.pp == 1 else None
    return Expectation(k, False, None, layout, parts, sizes, None, lacking)


def _sizes(model: Model, layout: Layout, requested: Requested, taken: Requested, origin: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Returns every size that goes into the formulas, and where it is from."""
    out = {}
    preset = str(requested.get("preset", ""))
    for name in (*_MODEL, *LAYOUT_NUMBERS, "sequence_parallel", *WORDS):
        holder: object = model if name in _MODEL else layout
        value: object = getattr(holder, WORDS[name][0] if name in WORDS else name)
        if name in requested or (name == "sharding" and "distributed_optimizer" in requested) or (name == "dp" and "world" in requested):
            where = "asked for"
        elif name in taken:
            where = _from(name, requested, origin)
        else:
            where = f"preset {preset}" if preset in PRESETS and name in _MODEL else "assumed"
        out[name] = (setting(value), where)
    return out


def _from(name: str, requested: Requested, origin: Mapping[str, str]) -> str:
    return "asked for" if name in requested else f"recorded: {origin.get(name) or 'in the header'}"
