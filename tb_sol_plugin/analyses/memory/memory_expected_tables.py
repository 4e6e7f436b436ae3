"""What can be asked of expected memory, and what its tables hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, TypeAlias

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.cost.transformer.explain import Formula, explained
from tb_sol_plugin.cost.transformer.memory import PRESETS, WIDTH, Layout, Model, Stage, per_parameter, stage
from tb_sol_plugin.cost.transformer.query import LAYOUT_NUMBERS, MODEL_FLAGS, MODEL_NUMBERS, NAMES, NEEDED, WORDS, asked, problems
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.format import PLAN
from tb_sol_plugin.metrics.memory.budget import CATEGORIES, budget, totals
from tb_sol_plugin.metrics.memory.expected import LAYOUT, MODEL, ROWS, TRAINING, TrainingQuery, actual
from tb_sol_plugin.metrics.memory.labels import setting
from tb_sol_plugin.metrics.ranks.job import label
from tb_sol_plugin.metrics.ranks.sections import LEFT_OUT, columns_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import WorkerPart
from tb_sol_plugin.model.report import Column, Fact, Link, Mark, Scalar, TableSection, make_table
from tb_sol_plugin.units import human


class MemoryExpectedQuery(TrainingQuery, kw_only=True, frozen=True):
    """Sizes of the model and its layout. What is left open is as recorded; what is said here stands over it.

    preset: sizes of a published model in place of the recorded ones
    """

    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {"Model": MODEL, "Layout": LAYOUT, "Training": TRAINING}
    SELDOM: ClassVar[tuple[str, ...]] = (*TrainingQuery.SELDOM, "sequence_parallel")


PARTS: Final = (
    Column("rank", "Rank", doc="rank of the worker, as recorded or as its name says", missing="not known"),
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
    Column("source", "Actual from", doc="where the actual bytes are from, or what would tell them", show="text", rank=2),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
    Column("tp", "TP", doc="tensor parallel rank and size", rank=3, missing="not recorded"),
    Column("dp", "DP", doc="data parallel rank and size", rank=3, missing="not recorded"),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
CAPTURED: Final = (
    Column("rank", "Rank", doc="rank of the worker", missing="not known"),
    Column("Actual_Captured_Master_Weight_MB", "Actual_Captured_Master_Weight_MB",
           doc="FP32 master weights on this rank, in MiB, as Megatron prints them", missing="no optimizer was looked at"),
    Column("Actual_Captured_Main_Grad_Mem_MB", "Actual_Captured_Main_Grad_Mem_MB", doc="FP32 main gradients on this rank, in MiB",
           missing="no optimizer was looked at"),
    Column("parameters", "Parameters", "count", "parameters that the program counted on this rank", missing="the model was not looked at"),
    Column("expected_parameters", "By formula", "count", "parameters that the formula gives a rank of its stage",
           missing="sizes of the model are not known"),
    Column("parameters_verdict", "Verdict", doc="ok: at most 5 % apart; more; less; not recorded; no expectation", show="badge"),
    Column("unknown_bytes", "Unknown", "B", "of all that was in use at the largest record, what nothing explains; negative: something is "
           "counted twice", missing="not recorded"),
    Column("in_all_bytes", "In all", "B", "what was in use at that record, which its categories add up to", rank=2, missing="not recorded"),
    Column("in_all_of", "Of", doc="what that is: device_used, allocated, or process_used (of a CPU)", show="code", rank=2,
           missing="not recorded"),
    Column("Actual_Captured_Master_Weight_bytes", "Master weights", "B", "FP32 master weights, exactly", rank=3,
           missing="no optimizer was looked at"),
    Column("Actual_Captured_Main_Grad_Mem_bytes", "Main gradients", "B", "FP32 main gradients, exactly", rank=3,
           missing="no optimizer was looked at"),
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
    Column("others_bytes", "Others", "B", "other processes on the device", rank=2, missing="the driver does not tell"),
    Column("params_bytes", "Parameters", "B", "parameters", missing="not looked at"),
    Column("buffers_bytes", "Buffers", "B", "buffers of the model", rank=3, missing="not looked at"),
    Column("gradients_bytes", "Gradients", "B", "gradients and main gradients", missing="not looked at"),
    Column("master_weights_bytes", "Master", "B", "master weights", missing="no optimizer was looked at"),
    Column("optimizer_bytes", "Optimizer", "B", "both moments and other state of the optimizer", missing="no optimizer was looked at"),
    Column("fragmentation_bytes", "Held", "B", "reserved by the allocator, and not in use", rank=2, missing="not recorded"),
    Column("unknown_bytes", "Unknown", "B", "the rest, activations among it; negative: something is counted twice"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
)  # fmt: skip
SIZES: Final = (
    Column("name", "Size", doc="as it is called in the plan", show="code"),
    Column("value", "Value", doc="what the formulas are given"),
    Column("from", "From", doc="asked for, recorded (and where it stood), of the preset, or assumed since nobody says", show="text"),
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


# -- What expected against actual memory needs of one worker ---------------------------------------------------------


MOST_RECORDS: Final = 60
"""Records of one worker whose budgets are shown."""


MOST_DIGITS: Final = 9
"""Of a rank; longer numbers are none."""


class Held(msgspec.Struct, frozen=True):
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


class ExpectedPart(msgspec.Struct, frozen=True):
    """One worker. plan: sizes as recorded by their names; origin: where each stood. groups: {name: (rank, size)}. held: by part.

    parameters: counted on this rank, of type `dtype` for the most part. master_weight_bytes, main_grad_bytes: in FP32. whole: what the
    parts of its largest record add up to, `of` what that is, `unknown` of it what nothing explains, flag: negative, large or "". records:
    those before the first iteration and those that looked at the model, in order of time, and how many were left out.
    """

    plan: dict[str, str]
    origin: dict[str, str]
    groups: dict[str, tuple[int, int]]
    held: dict[str, Held]
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


def part(capture: Capture, query: Query) -> ExpectedPart:
    """The part of one worker."""
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
    held = {name: Held(one.bytes, one.source, one.estimated, one.why) for name, one in found.parts.items()}
    records, left_out = _records(capture)
    start, end = capture.facts.extent_ns
    return ExpectedPart(
        plan, origin, groups, held, found.parameters, found.dtype, found.master_weight_bytes, found.main_grad_bytes, found.whole, found.of,
        found.unknown, found.flag, records, left_out, max(end - start, 0),
    )  # fmt: skip


def _records(capture: Capture) -> tuple[list[Record], int]:
    """Budgets of the records that say most; of too many those that are evenly apart."""
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


# -- What a rank is expected to hold ---------------------------------------------------------------------------------
# by the formulas of a model whose sizes are known, else by the parameters that were counted on it.


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
    sizes = {name: (setting(value), _from(name, given, own.origin)) for name, value in rest.items()}
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
        out[name] = (setting(value), where)
    return out


def _from(name: str, given: Given, origin: Mapping[str, str]) -> str:
    return "asked for" if name in given else f"recorded: {origin.get(name) or 'in the header'}"


# -- Expected beside actual, one row per rank and part, and what is thought of each ----------------------------------


TOLERANCE: Final = 0.05
"""Share of what is expected up to which a difference is ok."""
ROWS_NAMES: Final = {
    "parameters": "parameters", "main_parameters": "main parameters", "gradients": "gradients",
    "main_gradients": "main gradients", "optimizer_state": "optimizer state", "activations": "activations", "logits": "logits",
    "total": "in use at most", "base": "base", "other": "other, unknown",
}  # fmt: skip
GUESSED_STAGE: Final = "the stage is not recorded: it follows from the number of the rank, as Megatron orders ranks"


@dataclass(frozen=True)
class Rank:
    """One worker with what is expected of it."""

    worker: WorkerPart[ExpectedPart]
    part: ExpectedPart
    expected: Expectation

    @property
    def label(self) -> str:
        return label(self.worker)

    def group(self, name: str) -> str | None:
        """`0 of 4`."""
        found = self.part.groups.get(name)
        return None if found is None else f"{found[0]} of {found[1]}"


@dataclass(frozen=True)
class Row:
    """One part of one rank."""

    rank: Rank
    name: str
    expected: Expected
    held: Held
    against: int | None
    """Bytes that the actual ones are held against: of activations with the logits, which are recorded together with them."""

    @property
    def difference(self) -> int | None:
        return None if self.held.bytes is None or self.against is None else self.held.bytes - self.against

    @property
    def verdict(self) -> str:
        return verdict(self.held.bytes, self.against)

    @property
    def key(self) -> str:
        return f"{self.rank.worker.worker}|{self.name}"

    def values(self) -> dict[str, Scalar]:
        """By column."""
        difference, against = self.difference, self.against
        return {
            "rank": self.rank.worker.rank, "stage": self.rank.expected.stage, "part": ROWS_NAMES[self.name],
            "expected_bytes": self.expected.bytes, "actual_bytes": self.held.bytes, "difference_bytes": difference,
            "of_expected": difference / against if difference is not None and against else None, "verdict": self.verdict,
            "formula": self.expected.formula or None, "inputs": self.expected.inputs or None,
            "source": self.held.source if self.held.bytes is not None else self.held.why, "worker": self.rank.worker.worker,
            "tp": self.rank.group("tp"), "dp": self.rank.group("dp"), "id": self.key,
        }  # fmt: skip

    def marks(self) -> dict[str, Mark]:
        """By column."""
        out = {}
        if self.held.bytes is not None and self.held.estimated:
            out["actual_bytes"] = Mark("estimated", self.held.estimated)
        if self.rank.expected.guessed:
            out["stage"] = Mark("estimated", GUESSED_STAGE)
        if self.held.bytes is None:
            out["actual_bytes"] = Mark("unknown", self.held.why)
        if self.name == "activations" and self.against is not None and self.against != self.expected.bytes:
            out["difference_bytes"] = Mark("partial", f"of activations and logits together, {human(self.against, 'B')}")
        if self.name == "other" and self.rank.part.flag:
            out["actual_bytes"] = Mark("flagged", _flag(self.rank.part))
        if self.verdict in ("more", "less"):
            out["verdict"] = Mark("flagged", f"{human(abs(self.difference or 0), 'B')} {self.verdict} than expected")
        return out


def verdict(actual: int | None, expected: int | None) -> str:
    """ok (at most 5 % apart), more, less, not recorded, or no expectation."""
    if actual is None:
        return "not recorded"
    if expected is None:
        return "no expectation"
    if abs(actual - expected) <= TOLERANCE * expected:
        return "ok"
    return "more" if actual > expected else "less"


def rows_of(ranks: Sequence[Rank]) -> list[Row]:
    """All parts of all ranks, in their order."""
    out = []
    for rank in ranks:
        for name in ROWS:
            expected = rank.expected.parts[name]
            against = expected.bytes
            if name == "activations" and against is not None:
                against += rank.expected.parts["logits"].bytes or 0
            out.append(Row(rank, name, expected, rank.part.held[name], against))
    return out


def compared(rows: Sequence[Row]) -> list[Row]:
    """Rows with both numbers, without the total, which the others make up."""
    return [row for row in rows if row.difference is not None and row.name != "total"]


def _flag(part: ExpectedPart) -> str:
    unknown, whole = human(part.unknown, "B"), human(part.whole, "B")
    if part.flag == "negative":
        return f"{unknown} of {whole} are unknown: something is counted twice, or memory around it was given back"
    return f"{unknown} of {whole} are unknown, more than 5 %"


# -- The tables of expected memory -----------------------------------------------------------------------------------
# parts of each rank, what was captured, sizes of the model, formulas.


MIB: Final = 1 << 20
MOST_RANKS: Final = 200
"""Ranks in the table of parts: those whose parts lie farthest from what is expected."""


def parts(ranks: Sequence[Rank], rows: Sequence[Row], links: list[Link]) -> TableSection:
    kept = list(rows)
    if len(ranks) > MOST_RANKS:
        off = {rank.worker.worker: 0 for rank in ranks}
        for row in compared(rows):
            off[row.rank.worker.worker] += abs(row.difference or 0)
        chosen = set(sorted(off, key=lambda name: -off[name])[:MOST_RANKS])
        kept = [row for row in rows if row.rank.worker.worker in chosen]
    frame = pd.DataFrame([row.values() for row in kept], columns=[c.name for c in PARTS], dtype=object)
    marks: dict[str, dict[str, Mark]] = {}
    for at, row in enumerate(kept):
        for column, mark in row.marks().items():
            marks.setdefault(column, {})[str(at)] = mark
    alone = len(ranks) == 1
    columns = columns_of(PARTS, [all(rank.worker.rank is not None for rank in ranks)])
    return make_table(
        "parts", "Expected against actual", frame, columns, key="id", filters=["verdict"] if alone else ["rank", "part", "verdict"],
        marks=marks, links=links, truncated=len(rows) - len(kept),
        subtitle="bytes of each part on each rank; ok where they are at most 5 % apart",
        footer="Activations are the most that is kept for the backward pass at once; recordings hold them together with the logits. With "
        "BF16, gradients are expected to go into FP32 main gradients as they are made. Base and what is in none of the parts are measured, "
        "never expected. Of each part it is the most that was seen: not all need be there at one moment.",
    )  # fmt: skip


def captured(ranks: Sequence[Rank]) -> TableSection:
    rows = []
    marks: dict[str, dict[str, Mark]] = {}
    for at, rank in enumerate(ranks):
        own, wide = rank.part, (rank.part.master_weight_bytes, rank.part.main_grad_bytes)
        rows.append({
            "rank": rank.worker.rank, "Actual_Captured_Master_Weight_MB": None if wide[0] is None else wide[0] / MIB,
            "Actual_Captured_Main_Grad_Mem_MB": None if wide[1] is None else wide[1] / MIB,
            "Actual_Captured_Master_Weight_bytes": wide[0], "Actual_Captured_Main_Grad_Mem_bytes": wide[1], "parameters": own.parameters,
            "expected_parameters": rank.expected.parameters, "parameters_verdict": verdict(own.parameters, rank.expected.parameters),
            "in_all_bytes": own.whole, "in_all_of": own.of or None, "unknown_bytes": own.unknown, "worker": rank.worker.worker,
        })  # fmt: skip
        if own.flag:
            why = "something is counted twice" if own.flag == "negative" else "more than 5 % of the whole"
            marks.setdefault("unknown_bytes", {})[str(at)] = Mark("flagged", why)
    return make_table(
        "captured", "Captured on each rank", pd.DataFrame(rows, columns=[c.name for c in CAPTURED], dtype=object), CAPTURED, key="worker",
        marks=marks, subtitle="master weights and main gradients as they were read, in MiB; parameters counted and by formula",
        footer="In all and unknown are those of the largest record that looked at the model: its parts, context and NCCL, and what the "
        "allocator holds without a use are taken off what is in use. Of a CPU that is the process, most of which is no tensor.",
    )  # fmt: skip


SUMS: Final = {"gradients_bytes": ("grads", "main_grads"), "optimizer_bytes": ("exp_avg", "exp_avg_sq", "other_optimizer")}
MOST_RECORD_ROWS: Final = 600


def records(ranks: Sequence[Rank]) -> TableSection | None:
    """The budget of each record; None where there is none."""
    rows: list[dict[str, Scalar]] = []
    marks: dict[str, Mark] = {}
    for rank in ranks:
        for one in rank.part.records:
            found: dict[str, Scalar] = {f"{name}_bytes": size for name, size in one.bytes.items()}
            for name, parts in SUMS.items():
                known = [size for part in parts if (size := one.bytes[part]) is not None]
                found[name] = sum(known) if known else None
            if one.flag:
                why = "something is counted twice" if one.flag == "negative" else "more than 5 % of what is in use"
                marks[str(len(rows))] = Mark("flagged", why)
            rows.append(found | {
                "rank": rank.worker.rank, "tag": one.tag, "iteration": one.iteration if one.iteration >= 0 else None, "of": one.of,
                "total_bytes": one.total, "worker": rank.worker.worker,
            })  # fmt: skip
    if not rows:
        return None
    shown = rows[:MOST_RECORD_ROWS]
    return make_table(
        "records", "Budget of each record", pd.DataFrame(shown, columns=[c.name for c in RECORDS], dtype=object), RECORDS,
        marks={"unknown_bytes": {at: mark for at, mark in marks.items() if int(at) < MOST_RECORD_ROWS}} if marks else {},
        filters=["rank"] if len(ranks) > 1 else [], truncated=len(rows) - len(shown) + sum(rank.part.left_out for rank in ranks),
        subtitle="records before the first iteration, and those that looked at the model; the categories add up to what is in use",
        footer="What no record tells apart is unknown: activations while an iteration runs, and of a CPU all that is no tensor.",
    )  # fmt: skip


def sizes(first: Expectation, ranks: Sequence[Rank], links: list[Link]) -> TableSection:
    known = sorted(first.sizes.items(), key=lambda item: item[1][1] == "assumed")
    rows = [{"name": name, "value": value, "from": where} for name, (value, where) in known]
    differ = [name for name in first.sizes if len({r.expected.sizes.get(name) for r in ranks if r.expected.sizes}) > 1]
    why = Mark("partial", f"of {ranks[0].label}; other ranks differ")
    marks = {"value": {str(at): why for at, row in enumerate(rows) if row["name"] in differ}}
    return make_table(
        "sizes", "Model and layout", pd.DataFrame(rows, columns=[c.name for c in SIZES], dtype=object), SIZES, key="name", span=5,
        marks={n: m for n, m in marks.items() if m}, links=links, subtitle="what the formulas are given, and where it is from",
        footer="What is assumed stands in no recording: change it above where it is wrong.",
    )  # fmt: skip


def formulas(ranks: Sequence[Rank]) -> TableSection | None:
    """All steps: of the model, and of one rank of every stage that was recorded."""
    seen: dict[tuple[str, int | None, str], dict[str, Scalar]] = {}
    for rank in ranks:
        for one in rank.expected.formulas():
            seen.setdefault((one.figure, one.stage, one.put_in), {
                "figure": one.figure, "stage": one.stage, "formula": one.formula, "inputs": one.put_in,
                "count": one.result if one.unit == "count" else None, "bytes": round(one.result) if one.unit == "B" else None,
            })  # fmt: skip
    if not seen:
        return None
    rows = sorted(seen.values(), key=lambda row: -1 if row["stage"] is None else int(str(row["stage"])))
    return make_table(
        "formulas", "Formulas", pd.DataFrame(rows, columns=[c.name for c in FORMULAS], dtype=object), FORMULAS, span=7,
        filters=["stage"] if len({row["stage"] for row in rows}) > 2 else [], subtitle="each expected figure with what was put in",
        footer="Not in them: context, NCCL, fragmentation, workspaces of fused attention.",
    )  # fmt: skip


def plan(rank: Rank) -> Link:
    """The memory plan with the sizes of this rank."""
    fields = {name: value for name, (value, where) in rank.expected.sizes.items() if name in NAMES and where != "assumed"}
    return Link("memory_plan", fields, "Plan")
