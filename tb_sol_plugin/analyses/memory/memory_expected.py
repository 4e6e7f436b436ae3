"""Memory that each rank should need by the formulas of its model and layout, beside what it held.

Sizes of the model and its layout are those that the recorder found or was told; each can be changed above. Where they are not known,
parameters that were counted stand in for them, and what passes through the model is not expected. What was not recorded is said to be
so, and how to record it. Context, NCCL and what the allocator holds without a use are measured, never expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tb_sol_plugin.analyses.memory import memory_expected_tables as T
from tb_sol_plugin.analyses.memory.memory_expected_part import (
    FACTS,
    TABLES,
    Expectation,
    ExpectedPart,
    MemoryExpectedQuery,
    asked_for,
    expectation,
    part,
)
from tb_sol_plugin.analyses.memory.memory_expected_tables import ROWS_NAMES, Rank, Row, compared, rows_of, verdict
from tb_sol_plugin.metrics.memory.expected import NOTHING, ROWS
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Ranks, ranks_of
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.figure import escape, light
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import Reduction, analysis
from tb_sol_plugin.model.report import (
    AnySection,
    FactsSection,
    FieldNow,
    FigureSection,
    Mark,
    Notice,
    Report,
    Scalar,
    number_of,
)
from tb_sol_plugin.units import human, scale_of

MIB: Final = 1 << 20
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
def run(workers: Sequence[RecordingReduction[ExpectedPart]], query: MemoryExpectedQuery) -> Report:
    found = ranks_of(workers, lambda w: w.reduced.extent_ns)
    given = asked_for(query)
    parts = [w.reduced for w in found.read]
    expected = [expectation(p, given, rank=w.rank, world=found.world_size) for w, p in zip(found.read, parts, strict=True)]
    ranks = [Rank(*one) for one in zip(found.read, parts, expected, strict=True)]
    rows = rows_of(ranks)
    first = ranks[0].expected if ranks else Expectation()
    plan = [T.plan(ranks[0])] if ranks else []
    values = _values(found, ranks, rows)
    sections: list[AnySection] = [_tiles(values)]
    drawn = rank_bars(ranks, rows)
    if drawn is not None:
        sections.append(drawn)
    if ranks:
        sections += [T.parts(ranks, rows, plan), T.captured(ranks)]
    budgets = T.records(ranks)
    if budgets is not None:
        sections.append(budgets)
    if first.sizes:
        sections.append(T.sizes(first, ranks, plan))
    formulas = T.formulas(ranks)
    if formulas is not None:
        sections.append(formulas)
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
    """The rank with the most in use, else the one that should have most."""

    def size(rank: Rank) -> tuple[int, int]:
        return rank.part.held["total"].bytes or -1, rank.expected.parts["total"].bytes or -1

    return max(ranks, key=size, default=None)


def _worst(rows: Sequence[Row]) -> Row | None:
    return max((row for row in compared(rows) if row.verdict != "ok"), key=lambda row: abs(row.difference or 0), default=None)


def _values(found: Ranks[ExpectedPart], ranks: Sequence[Rank], rows: Sequence[Row]) -> dict[str, Scalar]:
    full, worst, both = _fullest(ranks), _worst(rows), compared(rows)
    expected = full.expected.parts["total"].bytes if full is not None else None
    actual = full.part.held["total"].bytes if full is not None else None
    model = next((rank.expected.model for rank in ranks if rank.expected.model is not None), None)
    masters = [r.part.master_weight_bytes for r in ranks if r.part.master_weight_bytes is not None]
    gradients = [r.part.main_grad_bytes for r in ranks if r.part.main_grad_bytes is not None]
    return {
        "workers": found.total, "workers_read": len(found.read), "expected_bytes": expected, "actual_bytes": actual,
        "difference_bytes": actual - expected if actual is not None and expected is not None else None,
        "parts_compared": len(both), "parts_ok": sum(row.verdict == "ok" for row in both),
        "worst_part": ROWS_NAMES[worst.name] if worst is not None else None, "worst_rank": worst.rank.label if worst is not None else None,
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
    return R.tiles(values, FACTS, title="Expected and actual", weight="headline", shown=shown, notes=notes, marks=marks)


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
        known = any(rank.expected.parts["parameters"].bytes is not None for rank in ranks)
        if not known:
            return "What is expected is not known: this recording does not say the sizes of the model. Name them above, or choose a preset."
        return "None of the expected parts was recorded."
    fine = sum(row.verdict == "ok" for row in both)
    if worst is None or worst.difference is None:
        hold = "holds" if len(ranks) == 1 else "hold"
        return f"{many} {hold} what the formulas expect: all {human(len(both), 'count')} parts that can be compared are within 5 %."
    side = "more" if worst.difference > 0 else "less"
    where = f" on {worst.rank.label}" if len(ranks) > 1 else ""
    return (
        f"{human(fine, 'count')} of {human(len(both), 'count')} parts that can be compared are within 5 % of what is expected. "
        f"Farthest off: **{ROWS_NAMES[worst.name]}**{where}, {human(abs(worst.difference), 'B')} {side} than the "
        f"{human(worst.against, 'B')} expected."
    )


def _notices(ranks: Sequence[Rank]) -> list[Notice]:
    if not ranks:
        return []
    first = ranks[0].expected
    wrong = dict.fromkeys(rank.expected.problem for rank in ranks if rank.expected.problem)
    out = [Notice(f"Nothing is expected: {problem}.") for problem in wrong]
    if first.lacking:
        lacking = ", ".join(f"`{name}`" for name in first.lacking)
        stands = "So nothing is expected."
        if first.counted:
            stands = "Parameters as counted stand in for the formula; activations and logits are not expected."
        text = (
            f"The recording does not say {lacking} of its model. {stands} Say them above, choose a preset, or record them: "
            "`sol.capture(..., plan={...})`."
        )
        out.append(Notice(text, "info"))
    guessed = [name for name, (_, where) in first.sizes.items() if where == "assumed" and name in ASSUMED]
    if guessed and first.model is not None:
        said = ", ".join(f"{name} = {first.sizes[name][0]}" for name in guessed)
        out.append(Notice(f"Nobody says, and so it is assumed: {said}. Change it above where it is wrong.", "info"))
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


# -- Expected and actual memory of each rank, as two bars -------------------------------------------------------------


COLORS: Final = {
    "parameters": "compute", "main_parameters": "conv", "gradients": "communication", "main_gradients": "DtoH", "optimizer_state": "norm",
    "activations": "attention", "logits": "elementwise",
}  # fmt: skip
REST_OF_PEAK: Final = "rest of the peak"
MOST_RANKS: Final = 16
"""Ranks that are drawn."""


def _two_bars(own: Mapping[str, Row]) -> tuple[tuple[str, dict[str, int]], ...]:
    """Bytes of each part of a rank, as expected and as they are; what no part explains is the rest."""
    expected = {name: row.expected.bytes or 0 for name, row in own.items() if name in COLORS}
    actual = {name: row.held.bytes or 0 for name, row in own.items() if name in COLORS}
    rest = (own["total"].held.bytes or 0) - sum(actual.values())
    return ("expected", expected), ("actual", {**actual, REST_OF_PEAK: max(rest, 0)})


def rank_bars(ranks: Sequence[Rank], rows: Sequence[Row]) -> FigureSection | None:
    """None where nothing is known of any rank."""
    shown = list(ranks)[:MOST_RANKS]
    of = {(row.rank.worker.worker, row.name): row for row in rows}
    names: list[tuple[str, str]] = []
    lengths: list[dict[str, int]] = []
    for rank in shown:
        stage = f", stage {rank.expected.stage}" if rank.expected.layout is not None and rank.expected.layout.pp > 1 else ""
        for kind, sizes in _two_bars({name: of[rank.worker.worker, name] for name in (*COLORS, "total")}):
            names.append((f"{escape(rank.label)}{stage}", kind))
            lengths.append(sizes)
    totals = [sum(sizes.values()) for sizes in lengths]
    if not any(totals):
        return None
    factor, unit = scale_of(max(totals), "B")
    y = [[name for name, _ in names], [kind for _, kind in names]]
    data: list[F.Plain] = []
    for name_of_part, token in {**COLORS, REST_OF_PEAK: "idle"}.items():
        each = [one.get(name_of_part, 0) for one in lengths]
        if not any(each):
            continue
        label = ROWS_NAMES.get(name_of_part, name_of_part)
        data.append({
            "type": "bar", "orientation": "h", "name": label, "y": y, "x": [size / factor for size in each], "marker": F.fill(token),
            "hoverinfo": "text",
            "hovertext": [f"<b>{name}, {kind}</b><br>{label}: {human(size, 'B')}<br>in all: {human(total, 'B')}"
                          for (name, kind), size, total in zip(names, each, totals, strict=True)],
        })  # fmt: skip
    said = [f"  {human(total, 'B')}" if total else "  not known" for total in totals]
    data.append({
        "type": "scatter", "mode": "text", "y": y, "x": [total / factor for total in totals], "text": said, "showlegend": False,
        "textposition": "middle right", "textfont": {"size": 11.5, "color": light("ink-2")}, "hoverinfo": "skip", "cliponaxis": False,
    })  # fmt: skip
    left = f"; the first {MOST_RANKS} of {len(ranks)} ranks" if len(ranks) > MOST_RANKS else ""
    x = F.axis(unit, range=[0, max(totals) / factor * 1.16], rangemode="tozero")
    axis = F.axis(type="multicategory", autorange="reversed", showgrid=False, automargin=True, dividercolor=light("line"))
    margin = {"l": 90, "r": 14, "t": 10, "b": 46}
    figure = F.figure(data, x=x, y=axis, barmode="stack", bargap=0.3, showlegend=True, margin=margin)
    return FigureSection(
        id="bars", title="Expected and actual", subtitle=f"of each rank; parts that are not recorded are missing from its bar{left}",
        figure=figure, summary=_summary(names, totals), table="parts", height=80 + 30 * len(names),
    )  # fmt: skip


def _summary(names: Sequence[tuple[str, str]], totals: Sequence[int]) -> str:
    said = [f"{name}, {kind}: {human(total, 'B') if total else 'not known'}" for (name, kind), total in zip(names, totals, strict=True)]
    return "; ".join(said[:8]) + "."
