"""Roofline: which work wastes most, and against which wall.

Every operator call that a cost model covers is set against the limit of the device: the larger of its FLOP over the peak of its
type and its bytes over the memory bandwidth. Bytes are a lower bound: each tensor read or written once. Peaks are dense, without
structured sparsity; attention counts only the pairs that a causal mask leaves. Work without a model is shown with its time.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.efficiency import roofline_figures as chart
from tb_sol_plugin.analyses.efficiency.roofline_columns import (
    COLUMNS,
    FACTS,
    KIND_COLUMNS,
    LIST_COLUMNS,
    UNMODELED_COLUMNS,
    check_mark,
    dtypes_with,
    facts_of,
    facts_section,
)
from tb_sol_plugin.analyses.efficiency.roofline_figures import program_points, total_row
from tb_sol_plugin.analyses.efficiency.roofline_roofs import ceilings
from tb_sol_plugin.analyses.efficiency.roofline_selection import Direction, Selection, select
from tb_sol_plugin.analyses.efficiency.roofline_tables import (
    above_table,
    count_of,
    headline,
    kinds_table,
    notices,
    rows_table,
    shown_rows,
    taken,
    unmodeled_table,
    with_causes,
)
from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics import memo_under
from tb_sol_plugin.metrics.report.notes import edge_notices, joined_notices, sampled_words, source_notices
from tb_sol_plugin.metrics.time.kernels import short_kernel_names
from tb_sol_plugin.metrics.time.scope import Scope, has_ledger, scope
from tb_sol_plugin.metrics.work.rows import By, ByLabel, RowColumns, group_times, rows, with_group_times
from tb_sol_plugin.metrics.work.unmodeled import unmodeled
from tb_sol_plugin.metrics.work.work import Work, work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import FigureSection, Report, Scalar, TableSection
from tb_sol_plugin.units import human

MOST_POINTS: Final = 400
DRAWN_SHARE: Final = 0.995
"""The longest rows are drawn until they hold this share of the time; the axes then fit what matters."""


class RooflineQuery(Query, kw_only=True, frozen=True):
    """Roofline.

    by: what makes a row: operator, shapes, kernel, module, its class, phase, step, type, kind; of a SOL capture forward_phase, function.
    direction: which pass is counted; forward work run again inside the backward pass is forward work.
    attention: count the pairs that a causal mask leaves, or every pair as some counters do.
    level: whether the chart also draws the roof of the L2 cache, where its bandwidth is known.
    top: show only so many rows, those with most time above their limit; 0 shows all.
    least_share: show only rows with at least this share of the time, 0.01 for 1 %.
    """

    by: Literal[By, ByLabel] = "op_shape"
    direction: Direction = "both"
    attention: Literal["causal_aware", "dense_equivalent"] = "causal_aware"
    level: Literal["memory", "l2"] = "memory"
    top: int = 0
    least_share: float = 0.0


@analysis(
    title="Roofline",
    question="Which work wastes most, and against which wall?",
    group="Speed of light",
    order=10,
    requirements=("operators", "shapes"),
    counted=has_ledger,
    query=RooflineQuery,
    tables={"ops": COLUMNS, "above": LIST_COLUMNS, "kinds": KIND_COLUMNS, "unmodelled": UNMODELED_COLUMNS},
    facts=FACTS,
)
def roofline(capture: Capture, query: RooflineQuery) -> Report:
    """Returns one row per group of operator calls, against the limits of the device."""
    if query.top < 0:
        raise BadQuery("top is below 0", hint="0 shows all rows", field="top")
    if not 0 <= query.least_share < 1:
        raise BadQuery(f"not a share: {query.least_share:g}", hint="give a number from 0 to 1, 0.01 for 1 %", field="least_share")
    spec = device_for(capture, query.device_limits)
    part = scope(capture, query)
    done = work(capture, spec, dense=query.attention == "dense_equivalent")
    if query.by in get_args(ByLabel) and not done.from_ledger:
        what = "the function of a call" if query.by == "function" else "the phase of the forward operator"
        raise Unavailable(f"a profiler trace does not record {what}", hint="open a SOL capture: sol.capture(logdir, model=model)")
    chosen = select(capture, done, part, query.direction)
    frame = rows(capture, done, chosen.ops, query.by)
    if not done.timed:
        frame = with_group_times(frame, group_times(capture, part, query.by, query.direction))
    frame = with_causes(frame, spec, short_kernel_names(capture, {*frame["main_kernel"], *frame["name"]}), query.by)
    shown = shown_rows(frame, query.top, query.least_share)
    same = _for_any_rows(capture, done, chosen, part, query)
    facts = dict(same.facts)
    by_host = done.by_host_time
    counted = sampled_words(capture, part) if done.from_ledger else ""
    report = Report(analysis="roofline", title="Roofline", headline=headline(frame, facts, spec, by_host=by_host, counted=counted))
    report.notices = (
        source_notices(capture, part)
        + joined_notices(capture, done, part)
        + edge_notices(capture, part)
        + notices(capture, done, chosen, same.no_model, direction=query.direction, l2=query.level == "l2")
    )
    ranked = [above_table(frame)] if not np.isnan(frame["wasted_ns"]).all() else []
    report.sections = [
        _figure(frame, shown, same, done, query, span=8 if ranked else 12),
        *ranked,
        rows_table(capture, frame, shown, chosen, total_row(frame, facts), query.by),
        same.kinds,
        facts_section(facts, spec, list(same.matrix), check_mark(capture, done, part)),
        unmodeled_table(same.no_model, chosen),
    ]
    return report


class _Same(NamedTuple):
    """What does not depend on how rows are made. matrix, vector: types with FLOP of either class, most first."""

    facts: dict[str, Scalar]
    kinds: TableSection
    no_model: pd.DataFrame
    matrix: tuple[str, ...]
    vector: tuple[str, ...]
    program: list[chart.Program]


def _for_any_rows(capture: Capture, done: Work, chosen: Selection, part: Scope, query: RooflineQuery) -> _Same:
    """Computes what all ways to make rows share, once per device limits, steps, pass and count of pairs."""

    def make() -> _Same:
        ops = chosen.ops
        return _Same(
            facts_of(capture, done, chosen, part),
            kinds_table(chosen, by_host=done.by_host_time),
            unmodeled(capture, done, ops),
            tuple(dtypes_with(ops, "flop")),
            tuple(dtypes_with(ops, "flop_vector")),
            program_points(capture, ops),
        )

    return memo_under(capture, done.spec, ("roofline", query.attention, query.step.strip(), query.direction), make)


_POINT: Final = (
    "id", "name", "input_shapes", "kind", "calls", "measured_ns", "sol_ns", "intensity_flop_per_byte", "achieved_flop_per_s",
    "achieved_bytes_per_s", "efficiency", "bound", "main_kernel", "flagged", "cause", "allowed",
)  # fmt: skip


def _figure(frame: RowColumns, shown: RowColumns, same: _Same, done: Work, query: RooflineQuery, *, span: int) -> FigureSection:
    spec = done.spec
    untimed = bool(np.isnan(shown["measured_ns"]).all()) and not np.isnan(shown["sol_ns"]).all()
    if untimed:
        shown = taken(shown, np.argsort(-shown["sol_ns"], kind="stable"))  # unknown last
    time = np.nan_to_num(shown["sol_ns" if untimed else "measured_ns"])
    drawn_rows = np.flatnonzero(np.cumsum(time) - time < DRAWN_SHARE * time.sum())[:MOST_POINTS]
    work_done = np.nan_to_num(shown["flop"]) + np.nan_to_num(shown["flop_vector"])
    large = shown | {"allowed": ratio(work_done, shown["sol_ns"] / 1e9)}
    points = [chart.Point(*row) for row in zip(*(large[name][drawn_rows].tolist() for name in _POINT), strict=True)]
    roofs = ceilings(spec, same.matrix, same.vector, l2=query.level == "l2")
    program = same.program if query.by != "step" else same.program[:1]
    drawing = chart.draw(points, program, roofs)
    pairs = "causal-aware" if query.attention == "causal_aware" else "every pair of attention counted"
    passes = "" if query.direction == "both" else f", {query.direction} pass"
    drawn = len(drawing.notes)
    count = f"{human(drawn, 'count')} of {human(count_of(frame), 'count')} rows" if drawn < count_of(frame) else ""
    area = "calls were not timed: hollow marks stand at their limits, area is the limit" if untimed else "area is time"
    subtitle = (area, "the line is what the device allows" if spec else "no limits known", count)
    return FigureSection(
        id="roofline",
        title=(f"{spec.name}, {pairs}" if spec and spec.sparse else f"{spec.name}, dense, {pairs}" if spec else "Achieved rates") + passes,
        subtitle="; ".join(filter(None, subtitle)),
        figure=drawing.figure,
        notes=drawing.notes,
        span=span,
        table="ops",
        height=drawing.height,
        summary=f"{'Attainable' if untimed else 'Achieved'} FLOP per second over arithmetic intensity of {drawn} rows, "
        "with the limits of the device." + _worst(frame),
    )


def _worst(frame: RowColumns) -> str:
    wasted = frame["wasted_ns"]
    if not np.isfinite(wasted).any():
        return ""
    row = int(np.nanargmax(wasted))
    return f" Most time above its limit: {frame['name'][row]}, {human(float(wasted[row]), 'ns')}."
