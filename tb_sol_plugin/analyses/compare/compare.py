"""What changed between two runs, by how much, whether it is more than noise, and because of what.

Of two recordings the steps are compared: their length, the parts that they consist of, and the operators, kernels, modules, phases and
copies in them. Differences are B less A: A is the one shown and B the other one, or, against a
baseline, A is the baseline and B the one shown. The change of the step is that of the medians, with a
95 % interval: steps that follow each other are alike (a moving-block bootstrap knows that), and one run a side says nothing about the
noise from run to run, for which half a percent is assumed. The difference of the mean step is split into parts that add up to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from tb_sol_plugin.analyses.compare import compare_tables as T
from tb_sol_plugin.analyses.compare import compare_tree_tables as TT
from tb_sol_plugin.metrics.compare.alignment import Trees
from tb_sol_plugin.metrics.compare.causes import Cause, compared
from tb_sol_plugin.metrics.compare.differences import BASES, MetricChange, Rows, Side
from tb_sol_plugin.metrics.compare.findings import findings_of
from tb_sol_plugin.metrics.compare.on_path import samples_with_path
from tb_sol_plugin.metrics.compare.samples import GROUPINGS, PROFILER, Samples
from tb_sol_plugin.metrics.report.settings import SETTINGS, settings_table
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import PairQuery
from tb_sol_plugin.model.recordings import Compared
from tb_sol_plugin.model.registry import Reduction, analysis
from tb_sol_plugin.model.report import AnySection, FindingsSection, Notice, Report
from tb_sol_plugin.units import capitalized, human, number, signed_percent

By = Literal["auto", "operator", "kernel", "kind", "module", "phase", "copy", "tree"]


AsParts = Literal["auto", "path", "exclusive"]


class CompareQuery(PairQuery, kw_only=True, frozen=True):
    """by: what the rows of the table are; auto takes operators, or what both have; tree shows the aligned steps whatever they share
    basis: parts of the difference: of the critical path (what holds the step), or exclusive ones; auto takes the path where good or fair
    """

    by: By = "auto"
    basis: AsParts = "auto"


def reduced(capture: Capture, query: CompareQuery) -> Samples:
    """Returns the samples of a recording, with the critical paths of its steps."""
    return samples_with_path(capture, query)


@analysis(
    scope="pair",
    title="Compare",
    question="What is faster or slower than in another run, and why?",
    group="Run",
    order=5,
    requirements=("program",),
    query=CompareQuery,
    tables={"metrics": T.METRICS, "causes": T.CAUSES, "hidden": T.HIDDEN, "waterfall": T.WATERFALL, "rows": T.ROWS, "tree": TT.TREE,
            "executions": TT.EXECUTIONS, "settings": SETTINGS},
    facts=(*T.FACTS, *TT.FACTS),
    reduce=Reduction(reduced, fields=("step", "device_limits"), version=9),
)
def run(here: Compared[Samples], there: Compared[Samples], query: CompareQuery) -> Report:
    a, b = Side(here.name, [here.reduced]), Side(there.name, [there.reduced])
    both = compared(a, b, by_path=query.basis != "exclusive")
    alike = a.has_steps == b.has_steps
    if not alike:  # a whole recording beside a step: nothing follows from the one being longer
        unknown = [dataclasses.replace(m.change, change=None, low=None, high=None) for m in both.metrics]
        metrics = [dataclasses.replace(m, change=c, verdict="unknown") for m, c in zip(both.metrics, unknown, strict=True)]
        both = dataclasses.replace(both, causes=[], hidden=[], metrics=metrics)
    elif (a.values("device_busy") is None) != (b.values("device_busy") is None):
        both = dataclasses.replace(both, hidden=[])  # what one of them did not record is not gone
    metrics, found, causes = both.metrics, both.rows, both.causes
    falls = both.waterfall
    by = query.by if query.by in GROUPINGS else next((name for name in GROUPINGS if found[name] is not None), "operator")
    trees = Trees.of(a, b)
    offered = trees is not None and (query.by == "tree" or TT.is_alike(trees.found))
    rows = found[by]
    step = next(m for m in metrics if m.name == "step_time")
    sections: list[AnySection] = [T.facts(a, b, metrics, TT.facts_of_tree(trees))]
    if alike:
        sections.append(T.waterfall_figure(a, b, falls))
    if causes:
        sections.append(T.causes_table(causes, falls))
    found_here = findings_of(both, (a.name, b.name), (a.runs[0].settings, b.runs[0].settings)) if alike else []
    if found_here:
        sections.append(FindingsSection(id="findings", title="Findings", findings=found_here))
    if both.hidden:
        sections.append(T.hidden_table(both.hidden))
    settings = settings_table((a.name, b.name), (a.runs[0].settings, b.runs[0].settings))
    sections += [T.metrics_table(a, b, metrics), T.rows_table(a, b, rows, by), *([T.waterfall_table(a, b, falls)] if alike else [])]
    if trees is not None and offered:
        sections += TT.executions((a.name, b.name), trees) or ()
        sections.append(TT.tree_table((a.name, b.name), trees.found, device=trees.device, steps=trees.steps))
    sections.append(settings)
    notices = [*_notices(a, b, found, query.by, step), *_of_trees(trees, query.by, offered, (a.name, b.name))]
    if both.no_path and alike and query.basis != "exclusive":
        instead = BASES[falls.basis].removeprefix("by ")
        text = f"Not by the critical path: {both.no_path}; the difference is split by {instead}."
        notices.append(Notice(text, "warn" if query.basis == "path" else "info"))
    return Report(analysis="compare", title="Compare", headline=_headline(a, b, step, causes), notices=notices, sections=sections)


def _of_trees(trees: Trees | None, by: str, offered: bool, names: tuple[str, str]) -> list[Notice]:
    """Says why the aligned steps are not shown."""
    if trees is None:
        none = "No aligned steps: no operators were recorded in one of the two; kernels are compared by name."
        return [Notice(none)] if by == "tree" else []
    if offered:
        return []
    known = [f"{number(100 * s, 0)} % of {n}" for n, s in zip(names, trees.found.shares, strict=True) if s is not None]
    first = f"The two run mostly different operators (matched by place: {' and '.join(known)} of the time)"
    return [Notice(f"{first}, so that their steps are not shown aligned; `by=tree` shows them.", "info")]


def _headline(a: Side, b: Side, step: MetricChange, causes: list[Cause]) -> str:
    change = step.change
    bare = [side.name for side in (a, b) if not side.has_steps]
    if len(bare) == 1:
        whole = f"all of it takes {human(change.b if bare[0] == b.name else change.a, 'ns')}"
        return f"`{bare[0]}` has no steps, {whole}: its step cannot be set against that of `{a.name if bare[0] == b.name else b.name}`."
    if change.a is None or change.b is None or change.change is None:
        return f"The step of `{b.name}` cannot be set against that of `{a.name}`."
    sizes = f"{human(round(change.b), 'ns')} instead of {human(round(change.a), 'ns')}"
    part = f"{number(100 * abs(change.change), 1)} %"
    if step.verdict == "same":
        return f"A step of `{b.name}` takes **as long** as one of `{a.name}`: {sizes}."
    side = "longer" if change.change > 0 else "shorter"
    if step.verdict == "inconclusive":
        first = f"A step of `{b.name}` is {part} {side} than one of `{a.name}`, {sizes}: **within the noise** of these steps"
        return f"{first} ({_interval(step)})."
    few = " Too few steps to tell it from noise." if step.verdict == "unknown" else ""
    if bare:
        return f"`{b.name}` is **{part} {side}** than `{a.name}`: {sizes} in all. Without steps it cannot be told from noise."
    first = f"A step of `{b.name}` is **{part} {side}** than one of `{a.name}`: {sizes}{'' if few else f' ({_interval(step)})'}."
    because = f" {capitalized(causes[0].sentence)}." if causes else ""
    return f"{first}{few}{because}"


def _interval(step: MetricChange) -> str:
    low, high = step.change.low, step.change.high
    if low is None or high is None:
        return "interval unknown"
    return f"95 % interval {signed_percent(low)} to {signed_percent(high)}"


def _notices(a: Side, b: Side, found: Mapping[str, Rows | None], by: str, step: MetricChange) -> list[Notice]:
    out = []
    ours, theirs = a.runs[0].settings, b.runs[0].settings
    differ = [n for n in ours if n in theirs and ours[n] != theirs[n] and n not in T.SAYS_NOTHING]
    recorded = [n for n in differ if n in PROFILER]
    if recorded:
        names = ", ".join(recorded)
        out.append(Notice(f"The two were recorded with different settings of the profiler ({names}): its own cost is part of the times."))
    others = [f"{n} {ours[n]} and {theirs[n]}" for n in differ if n not in recorded]
    if others:
        out.append(Notice(f"The two were not made alike: {'; '.join(others)}."))
    if min(step.change.samples) < 5:
        few = " and ".join(f"{s.name} {T.how_many_steps(s)}" for s in (a, b))
        out.append(Notice(f"Too few steps to tell a change from noise: {few}. Record at least 5, better 30."))
    if by in GROUPINGS and found[by] is None:
        lacks = " and ".join(s.name for s in (a, b) if not s.knows(by))
        out.append(Notice(f"No rows by {by}: not recorded in {lacks}."))
    out += _of_what_was_recorded(a, b)
    for side in (a, b):
        run = side.runs[0]
        if run.incomplete:
            out.append(Notice(f"{side.name}: {run.incomplete} incomplete steps are left out."))
    if a.runs[0].source != b.runs[0].source:
        out.append(Notice("One is a trace and one a SOL log: only what both know is compared."))
    return out


def _of_what_was_recorded(a: Side, b: Side) -> list[Notice]:
    """Says what one recording holds and the other lacks, and what is compared then."""
    out = []
    for side, other in ((a, b), (b, a)):
        if not side.has_steps and other.has_steps:
            out.append(Notice(f"{side.name} has no steps: all of it stands beside a step of {other.name}. Calls and times per call can be "
                              "compared, sums cannot. Call `prof.step()` after every iteration."))  # fmt: skip
        if side.values("device_busy") is None and other.values("device_busy") is not None and side.runs[0].source == "kineto":
            out.append(Notice(f"No device work was recorded in {side.name}: rows have times on the host."))
        trees = side.runs[0].tree, other.runs[0].tree
        if trees[0] is not None and trees[1] is not None and len(trees[0].inputs) == 1 < len(trees[1].inputs):
            text = f"No shapes were recorded in {side.name}: more work is not told from slower calls. Record both with record_shapes=True."
            out.append(Notice(text, "info"))
    return out


