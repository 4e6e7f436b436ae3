"""What can be asked of expected memory, and what its tables hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from tb_sol_plugin.analyses.memory.memory_expected_part import (
    CAPTURED,
    FORMULAS,
    PARTS,
    RECORDS,
    SIZES,
    Expectation,
    Expected,
    ExpectedPart,
    Held,
)
from tb_sol_plugin.cost.transformer.query import NAMES
from tb_sol_plugin.metrics.memory.expected import ROWS
from tb_sol_plugin.metrics.ranks.comparison import label
from tb_sol_plugin.metrics.ranks.sections import columns_of
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.report import Link, Mark, Scalar, TableSection, make_table
from tb_sol_plugin.units import human

# -- Expected and actual memory per rank and part ---------------------------------------------------------------------


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

    worker: RecordingReduction[ExpectedPart]
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


# -- The tables of expected memory ------------------------------------------------------------------------------------
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
