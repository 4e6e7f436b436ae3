"""Memory that each rank should need by the formulas of its model and layout, beside what it held.

Sizes of the model and its layout are those that the recorder found or was told; each can be changed above. Where they are not known,
parameters that were counted stand in for them, and what passes through the model is not expected. What was not recorded is said to be
so, and how to record it. Context, NCCL and what the allocator holds without a use are measured, never expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from tb_sol_plugin.analyses.memory.memory_expected_reduction import (
    CAPTURED,
    FACTS,
    FORMULAS,
    PARTS,
    RECORDS,
    SIZES,
    TABLES,
    Actual,
    Expectation,
    Expected,
    ExpectedReduction,
    MemoryExpectedQuery,
    asked_for,
    expectation,
    part,
)
from tb_sol_plugin.cost.transformer.query import NAMES
from tb_sol_plugin.metrics.memory.expected import NOTHING, ROWS
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Ranks, label, ranks_of
from tb_sol_plugin.metrics.ranks.sections import columns_of
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.columns import number_of
from tb_sol_plugin.model.figure import escape, light
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import Reduction, analysis
from tb_sol_plugin.model.report import (
    AnySection,
    FactsSection,
    FieldNow,
    FigureSection,
    Link,
    Mark,
    Notice,
    Report,
    Scalar,
    TableSection,
    make_table,
)
from tb_sol_plugin.units import human, scale_of

# -- Expected and actual memory per rank and part ---------------------------------------------------------------------


TOLERANCE: Final = 0.05
"""Share of what is expected up to which a difference is ok."""
PART_LABELS: Final = {
    "parameters": "parameters", "main_parameters": "main parameters", "gradients": "gradients",
    "main_gradients": "main gradients", "optimizer_state": "optimizer state", "activations": "activations", "logits": "logits",
    "total": "in use at most", "base": "base", "other": "other, unknown",
}  # fmt: skip
GUESSED_STAGE: Final = "the stage is not recorded: it follows from the number of the rank, as Megatron orders ranks"


@dataclass(frozen=True)
class Rank:
    """One worker with what is expected of it."""

    worker: RecordingReduction[ExpectedReduction]
    part: ExpectedReduction
    expected: Expectation

    @property
    def label(self) -> str:
        return label(self.worker)

    def group(self, name: str) -> str | None:
        """Returns the place in a group: `0 of 4`."""
        found = self.part.groups.get(name)
        return None if found is None else f"{found[0]} of {found[1]}"


@dataclass(frozen=True)
class Row:
    """One part of one rank."""

    rank: Rank
    name: str
    expected: Expected
    held: Actual
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
            "rank": self.rank.worker.rank, "stage": self.rank.expected.stage, "part": PART_LABELS[self.name],
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
    """Returns ok (at most 5 % apart), more, less, not recorded, or no expectation."""
    if actual is None:
        return "not recorded"
    if expected is None:
        return "no expectation"
    if abs(actual - expected) <= TOLERANCE * expected:
        return "ok"
    return "more" if actual > expected else "less"


def rows_of(ranks: Sequence[Rank]) -> list[Row]:
    """Returns all parts of all ranks, in their order."""
    out = []
    for rank in ranks:
        for name in ROWS:
            expected = rank.expected.parts[name]
            against = expected.bytes
            if name == "activations" and against is not None:
                against += rank.expected.parts["logits"].bytes or 0
            out.append(Row(rank, name, expected, rank.part.held[name], against))
    return out


def expects(ranks: Sequence[Rank]) -> bool:
    """Returns whether anything is expected of any rank."""
    return any(one.bytes is not None for rank in ranks for one in rank.expected.parts.values())


def compared(rows: Sequence[Row]) -> list[Row]:
    """Returns rows with both numbers, without the total, which the others make up."""
    return [row for row in rows if row.difference is not None and row.name != "total"]


def _flag(part: ExpectedReduction) -> str:
    unknown, whole = human(part.unknown, "B"), human(part.whole, "B")
    if part.flag == "negative":
        return f"{unknown} of {whole} are unknown: something is counted twice, or memory around it was given back"
    return f"{unknown} of {whole} are unknown, more than 5 %"


# -- The tables of expected memory ------------------------------------------------------------------------------------
# parts of each rank, what was captured, sizes of the model, formulas.


MIB: Final = 1 << 20
MOST_RANKS: Final = 200
"""Ranks in the table of parts: those whose parts lie farthest from what is expected."""
OF_EXPECTED: Final = ("expected_bytes", "difference_bytes", "of_expected", "verdict", "formula")
"""Columns of the parts that say nothing where nothing is expected."""


def parts_table(ranks: Sequence[Rank], rows: Sequence[Row], links: list[Link]) -> TableSection | None:
    """Builds the table of parts; where nothing is expected it has those that were recorded. None where there are none of these either."""
    expected = expects(ranks)
    kept = list(rows) if expected else [row for row in rows if row.held.bytes is not None]
    if not kept:
        return None
    left_out = len(kept)
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
    hidden = frozenset() if expected else frozenset(OF_EXPECTED)
    hidden |= frozenset({"stage"} if not frame["stage"].notna().any() else ())
    columns = columns_of(PARTS, [all(rank.worker.rank is not None for rank in ranks)], hidden)
    if not expected:
        return make_table(
            "parts", "What was recorded of each part", frame, columns, key="id", filters=[] if alone else ["rank", "part"], marks=marks,
            truncated=left_out - len(kept), subtitle="bytes on each rank; nothing is expected until the sizes of the model are known",
        )  # fmt: skip
    return make_table(
        "parts", "Expected against actual", frame, columns, key="id", filters=["verdict"] if alone else ["rank", "part", "verdict"],
        marks=marks, links=links, truncated=left_out - len(kept),
        subtitle="bytes of each part on each rank; ok where they are at most 5 % apart",
        footer="Activations are the most that is kept for the backward pass at once; recordings hold them together with the logits. With "
        "BF16, gradients are expected to go into FP32 main gradients as they are made. Base and what is in none of the parts are measured, "
        "never expected. Of each part it is the most that was seen: not all need be there at one moment.",
    )  # fmt: skip


def captured_table(ranks: Sequence[Rank]) -> TableSection | None:
    """Builds the table of what the program read of its model and optimizer; None where it read nothing and nothing is expected."""
    rows: list[dict[str, Scalar]] = []
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
    silent = ("rank", "worker", "parameters_verdict")
    if not any(value is not None for row in rows for name, value in row.items() if name not in silent):
        return None
    return make_table(
        "captured", "Captured on each rank", pd.DataFrame(rows, columns=[c.name for c in CAPTURED], dtype=object), CAPTURED, key="worker",
        marks=marks, subtitle="master weights and main gradients as they were read, in MiB; parameters counted and by formula",
        footer="In all and unknown are those of the largest record that inspected the model: its parts, context and NCCL, and what the "
        "allocator holds without a use are taken off what is in use. Of a CPU that is the process, most of which is no tensor.",
    )  # fmt: skip


SUMS: Final = {"gradients_bytes": ("grads", "main_grads"), "optimizer_bytes": ("exp_avg", "exp_avg_sq", "other_optimizer")}
MOST_RECORD_ROWS: Final = 600


def records_table(ranks: Sequence[Rank]) -> TableSection | None:
    """Builds the table of the budget of each record; None where there is none."""
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
        subtitle="records before the first iteration, and those that inspected the model; the categories add up to what is in use",
        footer="What no record separates is unknown: activations while an iteration runs, and of a CPU all that is no tensor.",
    )  # fmt: skip


def sizes_table(first: Expectation, ranks: Sequence[Rank], links: list[Link]) -> TableSection:
    known = sorted(first.sizes.items(), key=lambda item: item[1][1] == "assumed")
    rows = [{"name": name, "value": value, "from": where} for name, (value, where) in known]
    differ = [name for name in first.sizes if len({r.expected.sizes.get(name) for r in ranks if r.expected.sizes}) > 1]
    why = Mark("partial", f"of {ranks[0].label}; other ranks differ")
    marks = {"value": {str(at): why for at, row in enumerate(rows) if row["name"] in differ}}
    return make_table(
        "sizes", "Model and layout", pd.DataFrame(rows, columns=[c.name for c in SIZES], dtype=object), SIZES, key="name", span=5,
        marks={n: m for n, m in marks.items() if m}, links=links, subtitle="what the formulas are given, and where it is from",
        footer="What is assumed was not recorded: change it above where it is wrong.",
    )  # fmt: skip


def formulas_table(ranks: Sequence[Rank]) -> TableSection | None:
    """Builds the table of all steps: of the model, and of one rank of every stage that was recorded."""
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


def plan_link(rank: Rank) -> Link:
    """Returns the memory plan with the sizes of this rank."""
    fields = {name: value for name, (value, where) in rank.expected.sizes.items() if name in NAMES and where != "assumed"}
    return Link("memory_plan", fields, "Plan")


ASSUMED: Final = ("gated", "rms_norm", "tied", "tp", "pp", "dp", "seq", "micro_batch", "recompute", "dtype", "optimizer", "sharding")
"""Sizes that matter most, where nobody says them."""


@analysis(
    scope="ranks",
    title="Expected",
    question="Does each rank hold what its model and layout need?",
    group="Run",
    order=12,
    requirements=("memory_use",),
    query=MemoryExpectedQuery,
    tables=TABLES,
    facts=FACTS,
    under="memory",
    reduce=Reduction(part, sol_log=True, least=1),
)
def run(workers: Sequence[RecordingReduction[ExpectedReduction]], query: MemoryExpectedQuery) -> Report:
    found = ranks_of(workers, lambda w: w.reduced.extent_ns)
    given = asked_for(query)
    parts = [w.reduced for w in found.read]
    expected = [expectation(p, given, rank=w.rank, world=found.world_size) for w, p in zip(found.read, parts, strict=True)]
    ranks = [Rank(*one) for one in zip(found.read, parts, expected, strict=True)]
    rows = rows_of(ranks)
    first = ranks[0].expected if ranks else Expectation()
    plan = [plan_link(ranks[0])] if ranks else []
    values = _values(found, ranks, rows)
    sections: list[AnySection] = [_tiles(values)]
    drawn = rank_bars(ranks, rows)
    if drawn is not None:
        sections.append(drawn)
    sizes = sizes_table(first, ranks, plan) if first.sizes else None
    tables = (parts_table(ranks, rows, plan), captured_table(ranks), records_table(ranks), sizes, formulas_table(ranks))
    sections += [table for table in tables if table is not None]
    sections += R.left_out(found)
    return Report(
        analysis="memory_expected",
        title="Expected",
        headline=_headline(ranks, rows),
        notices=[*R.notices(found), *_notices(ranks)],
        sections=sections,
        fields={name: FieldNow(value) for name, (value, _) in first.sizes.items()},
    )


# -- Numbers ----------------------------------------------------------------------------------------------------------


def _fullest(ranks: Sequence[Rank]) -> Rank | None:
    """Returns the rank with the most in use, else the one that should have most."""

    def size(rank: Rank) -> tuple[int, int]:
        return rank.part.held["total"].bytes or -1, rank.expected.parts["total"].bytes or -1

    return max(ranks, key=size, default=None)


def _worst(rows: Sequence[Row]) -> Row | None:
    return max((row for row in compared(rows) if row.verdict != "ok"), key=lambda row: abs(row.difference or 0), default=None)


def _values(found: Ranks[ExpectedReduction], ranks: Sequence[Rank], rows: Sequence[Row]) -> dict[str, Scalar]:
    full, worst, both = _fullest(ranks), _worst(rows), compared(rows)
    expected = full.expected.parts["total"].bytes if full is not None else None
    actual = full.part.held["total"].bytes if full is not None else None
    model = next((rank.expected.model for rank in ranks if rank.expected.model is not None), None)
    masters = [r.part.master_weight_bytes for r in ranks if r.part.master_weight_bytes is not None]
    gradients = [r.part.main_grad_bytes for r in ranks if r.part.main_grad_bytes is not None]
    return {
        "workers": found.total, "workers_read": len(found.read), "expected_bytes": expected, "actual_bytes": actual,
        "difference_bytes": actual - expected if actual is not None and expected is not None else None,
        "parts_compared": len(both), "parts_ok": sum(row.verdict == "ok" for row in both) if both else None,
        "worst_part": PART_LABELS[worst.name] if worst is not None else None, "worst_rank": worst.rank.label if worst is not None else None,
        "worst_difference_bytes": worst.difference if worst is not None else None,
        "model_parameters": model.parameters if model is not None else None,
        "Actual_Captured_Master_Weight_MB": max(masters) / MIB if masters else None,
        "Actual_Captured_Main_Grad_Mem_MB": max(gradients) / MIB if gradients else None,
    }  # fmt: skip


def _tiles(values: dict[str, Scalar]) -> FactsSection:
    marks = {"expected_bytes": Mark("estimated", "a closed form, not a measurement")} if values["expected_bytes"] is not None else {}
    notes = {
        "expected_bytes": f"by formula, {_gib(values['expected_bytes'])}",
        "actual_bytes": f"the fullest rank, {_gib(values['actual_bytes'])}",
        "parts_ok": f"of {values['parts_compared']} that can be compared", "model_parameters": "parameters by formula",
        "worst_difference_bytes": f"{values['worst_part']}, {values['worst_rank']}",
    }  # fmt: skip
    shown = ("expected_bytes", "actual_bytes", "parts_ok", "worst_difference_bytes", "model_parameters")
    title = "Expected and actual" if values["expected_bytes"] is not None else "Actual"
    return R.tiles(values, FACTS, title=title, weight="headline", shown=shown, notes=notes, marks=marks)


def _gib(size: Scalar) -> str:
    number = number_of(size)
    if number is None:
        return ""
    return f"{number / 2**30:.2f} GiB" if number >= 2**30 / 10 else f"{number / MIB:.2f} MiB"


# -- Words ------------------------------------------------------------------------------------------------------------


def _headline(ranks: Sequence[Rank], rows: Sequence[Row]) -> str:
    if not ranks:
        return "No worker of this run has been read."
    both, worst = compared(rows), _worst(rows)
    many = "The rank" if len(ranks) == 1 else f"The {human(len(ranks), 'count')} ranks"
    if not both:
        if expects(ranks):
            return "None of the expected parts was recorded."
        if any(rank.expected.problem for rank in ranks):
            return "Nothing is expected of this model in this layout: the two do not fit."
        return "How large is the model? The recording does not say it. Choose a preset or give its sizes, and its memory is worked out."
    fine = sum(row.verdict == "ok" for row in both)
    if worst is None or worst.difference is None:
        hold = "holds" if len(ranks) == 1 else "hold"
        return f"{many} {hold} what the formulas expect: all {human(len(both), 'count')} parts that can be compared are within 5 %."
    side = "more" if worst.difference > 0 else "less"
    where = f" on {worst.rank.label}" if len(ranks) > 1 else ""
    return (
        f"{human(fine, 'count')} of {human(len(both), 'count')} parts that can be compared are within 5 % of what is expected. "
        f"Farthest off: **{PART_LABELS[worst.name]}**{where}, {human(abs(worst.difference), 'B')} {side} than the "
        f"{human(worst.against, 'B')} expected."
    )


def _notices(ranks: Sequence[Rank]) -> list[Notice]:
    if not ranks:
        return []
    first = ranks[0].expected
    wrong = dict.fromkeys(rank.expected.problem for rank in ranks if rank.expected.problem)
    out = [Notice(f"Nothing is expected: {problem}.") for problem in wrong]
    if first.lacking:
        out.append(_request(first))
    guessed = [name for name, (_, where) in first.sizes.items() if where == "assumed" and name in ASSUMED]
    if guessed and first.model is not None:
        sentence = ", ".join(f"{name} = {first.sizes[name][0]}" for name in guessed)
        out.append(Notice(f"Not recorded, and so assumed: {sentence}. Change it above where it is wrong.", "info"))
    if any((r.part.held["gradients"].bytes or 0) > 0 == r.part.held["main_gradients"].bytes and r.expected.parts["main_gradients"].bytes
           for r in ranks):  # fmt: skip
        out.append(Notice(
            "Gradients stay here in the type in which the backward pass makes them. The formula expects them in FP32 main gradients, as "
            "Megatron keeps them: so the one row is more and the other less than expected.", "info",
        ))  # fmt: skip
    off = [r for r in ranks if verdict(r.part.parameters, r.expected.parameters) in ("more", "less")]
    if off:
        counted, formula = human(off[0].part.parameters, "count"), human(off[0].expected.parameters, "count")
        out.append(Notice(
            f"On {off[0].label} the program counted {counted} parameters, and the formula gives {formula}: the sizes above are not those "
            "of this model, or it has parts that the formula does not know."
        ))  # fmt: skip
    if all(rank.part.held[name].bytes is None for rank in ranks for name in ROWS[:5]):
        out.append(Notice(f"What parameters, gradients and optimizer hold was not recorded: {NOTHING}.", "info"))
    return out


def _request(first: Expectation) -> Notice:
    """Asks for the sizes of the model that the recording does not say, with the three ways to give them."""
    lacking = ", ".join(f"`{name}`" for name in first.lacking)
    sizes = ", ".join(f'"{name}": …' for name in first.lacking)
    stands = "Until then nothing is expected."
    if first.counted:
        stands = "Until then parameters as counted stand in for the formula, and activations and logits are not expected."
    return Notice(
        f"The recording does not say {lacking} of its model. Give them here or choose a preset, or let the program write them into its "
        f"recordings: `sol.capture(..., plan={{{sizes}}})`. {stands}", "info",
    )  # fmt: skip


# -- Expected and actual memory of each rank, as two bars -------------------------------------------------------------


COLORS: Final = {
    "parameters": "compute", "main_parameters": "conv", "gradients": "communication", "main_gradients": "DtoH", "optimizer_state": "norm",
    "activations": "attention", "logits": "elementwise",
}  # fmt: skip
REST_OF_PEAK: Final = "rest of the peak"
MOST_DRAWN: Final = 16
"""Ranks that are drawn."""


def _bars(own: Mapping[str, Row], *, both: bool) -> list[tuple[str, dict[str, int]]]:
    """Returns the bytes of each part of a rank, as expected (where `both`) and as they are; what no part explains is the rest."""
    expected = {name: row.expected.bytes or 0 for name, row in own.items() if name in COLORS}
    actual = {name: row.held.bytes or 0 for name, row in own.items() if name in COLORS}
    rest = (own["total"].held.bytes or 0) - sum(actual.values())
    return [("expected", expected)] * both + [("actual", {**actual, REST_OF_PEAK: max(rest, 0)})]


def _worth_drawing(lengths: Sequence[Mapping[str, int]], *, both: bool) -> bool:
    """Returns whether a bar has anything: where nothing is expected, anything beside the rest of the peak."""
    return any(size for one in lengths for name, size in one.items() if both or name != REST_OF_PEAK)


def rank_bars(ranks: Sequence[Rank], rows: Sequence[Row]) -> FigureSection | None:
    """Draws expected and actual memory of each rank; None where nothing is known of any rank."""
    shown = list(ranks)[:MOST_DRAWN]
    of = {(row.rank.worker.worker, row.name): row for row in rows}
    both = expects(ranks)
    names: list[tuple[str, str]] = []
    lengths: list[dict[str, int]] = []
    for rank in shown:
        stage = f", stage {rank.expected.stage}" if rank.expected.layout is not None and rank.expected.layout.pp > 1 else ""
        for kind, sizes_table in _bars({name: of[rank.worker.worker, name] for name in (*COLORS, "total")}, both=both):
            names.append((f"{escape(rank.label)}{stage}", kind))
            lengths.append(sizes_table)
    totals = [sum(sizes_table.values()) for sizes_table in lengths]
    if not _worth_drawing(lengths, both=both):
        return None
    factor, unit = scale_of(max(totals), "B")
    y = [[name for name, _ in names], [kind for _, kind in names]]
    data: list[F.Plain] = []
    for name_of_part, token in {**COLORS, REST_OF_PEAK: "idle"}.items():
        each = [one.get(name_of_part, 0) for one in lengths]
        if not any(each):
            continue
        label = PART_LABELS.get(name_of_part, name_of_part)
        data.append({
            "type": "bar", "orientation": "h", "name": label, "y": y, "x": [size / factor for size in each], "marker": F.fill(token),
            "hoverinfo": "text",
            "hovertext": [f"<b>{name}, {kind}</b><br>{label}: {human(size, 'B')}<br>in all: {human(total, 'B')}"
                          for (name, kind), size, total in zip(names, each, totals, strict=True)],
        })  # fmt: skip
    text = [f"  {human(total, 'B')}" if total else "  not known" for total in totals]
    data.append({
        "type": "scatter", "mode": "text", "y": y, "x": [total / factor for total in totals], "text": text, "showlegend": False,
        "textposition": "middle right", "textfont": {"size": 11.5, "color": light("ink-2")}, "hoverinfo": "skip", "cliponaxis": False,
    })  # fmt: skip
    left = f"; the first {MOST_DRAWN} of {len(ranks)} ranks" if len(ranks) > MOST_DRAWN else ""
    x = F.axis(unit, range=[0, max(totals) / factor * 1.16], rangemode="tozero")
    axis = F.axis(type="multicategory", autorange="reversed", showgrid=False, automargin=True, dividercolor=light("line"))
    margin = {"l": 90, "r": 14, "t": 10, "b": 46}
    figure = F.figure(data, x=x, y=axis, barmode="stack", bargap=0.3, showlegend=True, margin=margin)
    return FigureSection(
        id="bars", title="Expected and actual" if both else "Actual",
        subtitle=f"of each rank; parts that are not recorded are missing from its bar{left}",
        figure=figure, summary=_summary(names, totals), table="parts", height=80 + 30 * len(names),
    )  # fmt: skip


def _summary(names: Sequence[tuple[str, str]], totals: Sequence[int]) -> str:
    text = [f"{name}, {kind}: {human(total, 'B') if total else 'not known'}" for (name, kind), total in zip(names, totals, strict=True)]
    return "; ".join(text[:8]) + "."
