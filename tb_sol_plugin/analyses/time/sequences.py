"""Frequent sequences: runs of kernels that repeat on a stream, by their names, with the time in them and between their kernels."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.report.graph_notes import replay_notices
from tb_sol_plugin.metrics.time import sequences as Q
from tb_sol_plugin.metrics.time.kernel_names import kinds_of, plain_name
from tb_sol_plugin.metrics.time.kernels import short_names_at
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.metrics.trees.module_tree import module_class_name
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, Link, Notice, OnTimeline, Report, Scalar, Sort, TableSection, make_facts, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human


class SequencesQuery(Query, kw_only=True, frozen=True):
    """sequence: whose kernels are listed below, by its rank in time; of one that is not there those of the first"""

    sequence: int = 1


_NO_OPERATOR: Final = "no operator is known of this launch"
_NO_MODULE: Final = "no module is known of this launch"
SEQUENCES: Final = (
    Column("rank", "Rank", doc="place by time, from 1", show="code"),
    Column("sequence", "Sequence", doc="short names of its kernels, those in the middle left out where there are many", show="text"),
    Column("kernels", "Kernels", "count", "kernels in it, in a row on one stream"),
    Column("count", "Times", "count", "how often it occurs, without overlap"),
    Column("total_ns", "Time", "ns", "plain sum of its kernels in all occurrences", "bar", color="compute"),
    Column("share", "Share", "ratio", "of the time of the kernels that were looked through", show="share"),
    Column("mean_ns", "Mean", "ns", "time of its kernels in one occurrence", per="call"),
    Column("gap_ns", "Gaps inside", "ns", "from the start of its first kernel to the end of its last, less the kernels, summed", rank=2),
    Column("first_operator", "First operator", doc="operator of its first kernel, in most occurrences", missing=_NO_OPERATOR, rank=2),
    Column("last_operator", "Last operator", doc="operator of its last kernel, in most occurrences", missing=_NO_OPERATOR, rank=3),
    Column("first_module", "First module", doc="class of the module of its first kernel, in most occurrences", missing=_NO_MODULE, rank=3),
    Column("last_module", "Last module", doc="class of the module of its last kernel, in most occurrences", missing=_NO_MODULE, rank=3),
    Column("start_ns", "First at", "ns", "start of its first occurrence, since the start of the recording", rank=3),
    Column("span_ns", "First lasts", "ns", "first occurrence from start to end, gaps included", rank=3),
)  # fmt: skip
KERNELS: Final = (
    Column("position", "Position", doc="place in the sequence, from 1", show="code"),
    Column("kernel", "Kernel", doc="its short name", show="symbol", color_by="kind", full="name"),
    Column("operator", "Operator", doc="operator that launched it, in most occurrences", missing=_NO_OPERATOR),
    Column("module", "Module", doc="class of the module around it, in most occurrences", missing=_NO_MODULE, rank=2),
    Column("mean_ns", "Mean", "ns", "mean of its durations", "bar", color_by="kind", per="call"),
    Column("gap_ns", "Gap before", "ns", "mean time from the end of the kernel before it in the sequence", missing="the first one"),
    Column("kind", "Kind", doc="kind of work, judged by the name", rank=3),
    Column("name", "Name", doc="as recorded", show="code", rank=3),
)  # fmt: skip
FACTS: Final = (
    Fact("kernels", "Kernels", "count", "kernels that were looked through"),
    Fact("sequences", "Sequences", "count", "sequences that occur at least twice, none of which a longer one occurs as often as"),
    Fact("layer_kernels", "Kernels of the layer", "count", "kernels of the sequence that looks like a layer"),
    Fact("layer_count", "How often", "count", "occurrences of that sequence"),
    Fact("layer_ns", "Time of one", "ns", "mean time of its kernels"),
    Fact("layer_gap_ns", "Gaps in one", "ns", "mean time between its kernels"),
    Fact("layer_share", "Share of the time", "ratio", "part of the kernel time that its occurrences take"),
)
SHOWN: Final = 2
"""Kernels that are named at either end of a sequence of many."""
LETTERS: Final = 24
"""Of a kernel's name in a sequence."""
AT_ONCE: Final = 1_000_000
"""Kernels whose owners are counted at once."""


@analysis(
    title="Frequent sequences",
    question="Which kernels follow each other again and again?",
    group="Time",
    order=35,
    requirements=("device_events",),
    query=SequencesQuery,
    tables={"sequences": SEQUENCES, "kernels": KERNELS},
    facts=FACTS,
)
def run(capture: Capture, query: SequencesQuery) -> Report:
    where = scope(capture, query)
    chosen = where.device & (capture.device["kind"].to_numpy() == S.KERNEL)
    if not chosen.any():
        raise Unavailable("no kernel in this selection", hint="choose other steps")
    kernels, runs = memo(capture, ("sequences", where.rows, where.whole), lambda: _found(capture, chosen))
    layer = Q.layer_of(runs, kernels, where.step_count)
    total = int(kernels.duration.sum())
    owners = [_Owners(capture, kernels, column) for column in ("operator", "module")] if runs else []
    rows = _rows(capture, kernels, runs, owners, total)
    values: dict[str, Scalar] = {"kernels": len(kernels.rows), "sequences": len(runs)}
    if layer is not None:
        own = runs[layer.place]
        values |= {
            "layer_kernels": own.length, "layer_count": len(own.at), "layer_ns": round(own.total_ns / len(own.at)),
            "layer_gap_ns": round(own.gap_ns / len(own.at)), "layer_share": layer.share,
        }  # fmt: skip
    rank = query.sequence if 1 <= query.sequence <= len(runs) else 1
    return Report(
        analysis="sequences",
        title="Frequent sequences",
        headline=_headline(runs, rows, layer, where),
        notices=[*_notices(chosen), *replay_notices(capture)],
        sections=[
            make_facts("facts", "Frequent sequences", values, FACTS, span=12, hidden=[f.name for f in FACTS if f.name not in values]),
            _table(rows, where),
            *([_kernels(capture, kernels, runs[rank - 1], rank, owners)] if runs else []),
        ],
    )


def _found(capture: Capture, chosen: np.ndarray) -> tuple[Q.Kernels, list[Q.RepeatedRun]]:
    device = capture.device
    rows = np.flatnonzero(chosen)
    stream, _ = arrays.factorize([device[c].to_numpy()[rows].astype(np.int64) + 1 for c in ("device", "stream")])
    start, duration = (device[c].to_numpy()[rows] for c in ("start_ns", "duration_ns"))
    kernels = Q.kernels_of(rows, arrays.codes(device["name"])[rows], stream, start, duration)
    return kernels, Q.repeated_runs(kernels)


class _Owners:
    """Names the operators, or the classes of the modules, that launched kernels: of each, the name that most of some have.

    text: of each name in use, as a code into `texts`. code: of each kernel, the place of its name among those in use, 0 for none.
    """

    def __init__(self, capture: Capture, kernels: Q.Kernels, column: str) -> None:
        host = capture.device[column].to_numpy()[kernels.rows]
        names = arrays.coded(capture.host["name"])
        there = host >= 0
        of = np.where(there, names.codes[host], -1) if there.any() else np.full(len(host), -1)
        used, self._code = arrays.in_order(of.astype(np.int64))
        known = arrays.spelled(names.categories, used[used >= 0])
        spelled = [None] * int((used < 0).sum()) + (list(map(module_class_name, known)) if column == "module" else known)
        place: dict[str | None, int] = {}
        self._text = np.array([place.setdefault(name, len(place)) for name in spelled], np.int64)
        self._texts = [*place]

    def most(self, places: list[Ints]) -> list[str | None]:
        """Returns the name that most kernels of each list of places have; of equally frequent ones the first in order of their codes."""
        out: list[str | None] = []
        begin = 0
        while begin < len(places):  # so many at once that the arrays stay small
            size, end = len(places[begin]), begin + 1
            while end < len(places) and size + len(places[end]) <= AT_ONCE:
                size, end = size + len(places[end]), end + 1
            out += self._of(places[begin:end])
            begin = end
        return out

    def _of(self, places: list[Ints]) -> list[str | None]:
        of = np.repeat(np.arange(len(places)), [len(at) for at in places])
        code = self._code[np.concatenate(places)]
        pair, row = arrays.in_order(of * len(self._text) + code)  # by list, then by code
        run, text = pair // len(self._text), self._text[pair % len(self._text)]
        both, first = arrays.numbered(run * len(self._texts) + text)  # of two names of one text the first
        times = np.bincount(both, np.bincount(row)).astype(np.int64)
        order = np.lexsort((np.arange(len(first)), -times, run[first]))
        best = order[np.flatnonzero(np.diff(run[first][order], prepend=-1))]
        return [self._texts[k] for k in text[first[best]].tolist()]


def _cut(name: str) -> str:
    return name if len(name) <= LETTERS else f"{name[: LETTERS // 2]}…{name[-(LETTERS // 2 - 1) :]}"


def _rows(
    capture: Capture, kernels: Q.Kernels, runs: list[Q.RepeatedRun], owners: list[_Owners], total: int
) -> list[dict[str, object]]:  # fmt: skip
    if not runs:
        return []
    code, first = arrays.numbered(arrays.codes(capture.device["name"])[kernels.rows])
    cut = [_cut(name) for name in short_names_at(capture, kernels.rows[first])]
    ends = [run.at for run in runs], [run.at + run.length - 1 for run in runs]
    of_ends = [owner.most(at) for owner in owners for at in ends]
    out = []
    for place, (run, *of) in enumerate(zip(runs, *of_ends, strict=True)):
        own = slice(int(run.at[0]), int(run.at[0]) + run.length)
        shown = [cut[k] for k in code[own].tolist()]
        if len(shown) > 2 * SHOWN + 1:
            shown = [*shown[:SHOWN], f"… {len(shown) - 2 * SHOWN} more", *shown[-SHOWN:]]
        start = int(kernels.start[run.at[0]])
        out.append({
            "rank": str(place + 1), "sequence": " → ".join(shown), "kernels": run.length, "count": len(run.at), "total_ns": run.total_ns,
            "share": run.total_ns / total if total else None, "mean_ns": round(run.total_ns / len(run.at)), "gap_ns": run.gap_ns,
            "first_operator": of[0], "last_operator": of[1], "first_module": of[2], "last_module": of[3], "start_ns": start,
            "span_ns": int((kernels.start[own] + kernels.duration[own]).max()) - start,
        })  # fmt: skip
    return out


def _table(rows: list[dict[str, object]], where: Scope) -> TableSection:
    frame = {c.name: [row[c.name] for row in rows] for c in SEQUENCES}
    links = {str(r["rank"]): Link("sequences", {"sequence": str(r["rank"])}, "its kernels") for r in rows}
    return make_table(
        "sequences", "Sequences", frame, SEQUENCES, key="rank", subtitle=where.label, sort=Sort("total_ns"), filters=["sequence"],
        row_links=links, timeline=OnTimeline("span_ns", "start_ns", "span_ns", what="its first occurrence"),
        footer=f"Runs of {Q.SHORTEST} to {Q.LONGEST} kernels that take {human(Q.LEAST, 'ratio')} of the kernel time or more. One may be a "
        "part of another that occurs less often: their times do not add up.",
        empty="No run of kernels occurs twice.",
    )  # fmt: skip


def _kernels(
    capture: Capture, kernels: Q.Kernels, run: Q.RepeatedRun, rank: int, owners: list[_Owners]
) -> TableSection:  # fmt: skip
    places = [run.at + k for k in range(run.length)]
    rows = kernels.rows[places[0][0] + np.arange(run.length)]
    every = np.stack(places)
    start, duration = kernels.start[every], kernels.duration[every]
    gaps = np.maximum(start[1:] - start[:-1] - duration[:-1], 0).mean(axis=1)
    operators, modules = (owner.most(places) for owner in owners)
    recorded = arrays.pick(capture.device["name"], rows).tolist()
    frame: dict[str, list[object]] = {
        "position": [str(k + 1) for k in range(run.length)],
        "kernel": [*short_names_at(capture, rows)],
        "operator": [*operators],
        "module": [*modules],
        "mean_ns": [round(mean) for mean in duration.mean(axis=1).tolist()],
        "gap_ns": [None, *(float(round(gap)) for gap in gaps.tolist())],
        "kind": [*kinds_of([plain_name(name) for name in recorded])],
        "name": [*recorded],
    }
    return make_table(
        "kernels", f"Kernels of sequence {rank}", frame, KERNELS, key="position",
        subtitle=f"means of {human(len(run.at), 'count')} occurrences",
    )  # fmt: skip


def _headline(runs: list[Q.RepeatedRun], rows: list[dict[str, object]], layer: Q.Layer | None, where: Scope) -> str:
    if not runs:
        return "No run of kernels occurs twice in this selection."
    if layer is None:
        best, row = runs[0], rows[0]
        return (
            f"The longest in sum are {best.length} kernels that follow each other **{human(len(best.at), 'count')} times** and take "
            f"**{human(float(str(row['share'])), 'ratio')}** of the kernel time. No sequence looks like a layer."
        )
    own = runs[layer.place]
    per_step = f", {len(own.at) / where.step_count:.3g} per step" if where.step_count > 1 else ""
    each = human(round(own.total_ns / len(own.at)), "ns")
    return (
        f"A sequence of {own.length} kernels occurs **{human(len(own.at), 'count')} times**{per_step} and takes "
        f"**{human(layer.share, 'ratio')}** of the kernel time, {each} each: it looks like a layer, or several alike in turn."
    )


def _notices(chosen: np.ndarray) -> list[Notice]:
    count = int(chosen.sum())
    if count <= Q.MOST_KERNELS:
        return []
    return [Notice(f"The first {human(Q.MOST_KERNELS, 'count')} of {human(count, 'count')} kernels were looked through.", "info")]
