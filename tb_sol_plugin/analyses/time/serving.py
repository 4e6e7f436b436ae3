"""Serving: iterations of an inference engine by kind and batch, time per token, what is replayed, and what the device time is spent on."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.report.graph_notes import advice_for, replay_notices
from tb_sol_plugin.metrics.report.notes import edge_notices
from tb_sol_plugin.metrics.report.serving_findings import serving_findings
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.metrics.time.serving import PARTS, Serving, parts_of_calls, passed_ns, serving, took_ns
from tb_sol_plugin.metrics.work.work import Work, work
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.engines import DECODE, MIXED, PREFILL
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    FindingsSection,
    Mark,
    Notice,
    OnTimeline,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.units import capitalized, human


class ServingQuery(Query, kw_only=True, frozen=True):
    """kind: iterations of one kind only. by: which table stands first."""

    kind: Literal["all", "prefill", "decode", "mixed", "diffusion step", "other"] = "all"
    by: Literal["iteration", "kind", "batch"] = "iteration"


_NO_DEVICE: Final = "no device in this recording"
_UNSAID: Final = "the annotation does not say it"
_NO_GRAPH: Final = "no captured graph is known"
_NO_MODEL: Final = "no cost model knows its work"
LEAST: Final = 0.8
"""Part of the time of a kind of work that cost models have to know, for its limit to be shown."""
_MOSTLY: Final = "cost models know too little of it"
_SOL: Final = "least time of the work that a cost model knows, on this device"
ITERATIONS: Final = (
    Column("iteration", "Iteration", doc="its place in the recording, from 1: the number of its step", show="code"),
    Column("kind", "Kind", doc="prefill, decode, mixed, diffusion step or other, by the annotation", show="badge"),
    Column("requests", "Requests", "count", "requests that it ran", missing=_UNSAID),
    Column("context_tokens", "Context tokens", "count", "tokens of requests in prefill", missing=_UNSAID),
    Column("generation_tokens", "Generated tokens", "count", "tokens of requests in decode", missing=_UNSAID),
    Column("batch", "Batch", "count", "what a graph is chosen by: requests of decode, tokens of any other", rank=2, missing=_UNSAID),
    Column("captured_batch", "Captured batch", "count", "batch that its graph was captured for", rank=2, missing=_NO_GRAPH),
    Column("padding", "Padding", "ratio", "captured batch over batch, less one: work for requests that are not there", rank=2,
           missing=_NO_GRAPH),
    Column("graphs", "Graphs", doc="FULL, PIECEWISE, a graph whose capture is not known, or eager", show="badge"),
    Column("wall_ns", "Wall", "ns", "time of its annotation on the host", "bar", color="host"),
    Column("device_ns", "Device", "ns", "union of the device events that it launched", "bar", color="compute", missing=_NO_DEVICE),
    Column("gap_ns", "Host gap before", "ns", "from the end of the iteration before to its start", missing="no iteration before it"),
    Column("sol_ns", "Limit", "ns", _SOL, rank=2, missing=_NO_MODEL),
    Column("efficiency", "Efficiency", "ratio", "limit over the time of the work that it is of", show="share", rank=2,
           missing=_NO_MODEL),
    Column("modelled_share", "Modeled", "ratio", "part of its device time that a cost model knows", show="share", rank=3),
    Column("start_ns", "Start", "ns", "since the start of the recording", rank=3),
)  # fmt: skip
SUMS: Final = (
    Column("iterations", "Iterations", "count", "complete iterations"),
    Column("wall_ns", "Wall", "ns", "mean time of the annotation on the host", "bar", color="host"),
    Column("device_ns", "Device", "ns", "mean union of the device events launched", "bar", color="compute", missing=_NO_DEVICE),
    Column("gap_ns", "Host gap before", "ns", "mean time from the end of the iteration before", missing="no iteration before them"),
    Column("tokens", "Tokens", "count", "context and generated tokens, summed", missing=_UNSAID),
    Column("tokens_per_s", "Tokens/s, wall", "count", "tokens over the wall time of these iterations, of the device where the host is "
           "done before it", missing=_UNSAID),
    Column("tokens_per_device_s", "Tokens/s, device", "count", "tokens over their device time", rank=2, missing=_UNSAID),
    Column("replayed_share", "Replayed", "ratio", "part of the device time that graph launches replayed", show="share"),
    Column("sol_ns", "Limit", "ns", f"mean {_SOL}", rank=2, missing=_NO_MODEL),
    Column("efficiency", "Efficiency", "ratio", "limits over the time of the work that they are of", show="share", rank=2,
           missing=_NO_MODEL),
)  # fmt: skip
BY_KIND: Final = (Column("kind", "Kind", doc="kind of iteration", show="badge"), *SUMS)
BY_BATCH: Final = (
    Column("batch", "Batch", "count", "requests of decode iterations"),
    Column("captured_batch", "Captured batch", "count", "batch that the graph was captured for", missing="eager, or not known"),
    *SUMS,
)
PHASES: Final = (
    Column("kind", "Kind", doc="kind of iteration", show="badge"),
    Column("part", "Work", doc="what the device time is spent on, by operators, else by names of kernels", show="text"),
    Column("device_ns", "Device time", "ns", "sum of the durations of its device events, per iteration", "bar", color="compute"),
    Column("share", "Share", "ratio", "of the device time of that kind of iteration", show="share"),
    Column("sol_ns", "Limit", "ns", f"{_SOL}, per iteration", missing=_MOSTLY),
    Column("efficiency", "Efficiency", "ratio", "limit over the time of the work that it is of", show="share", missing=_MOSTLY),
)  # fmt: skip
FACTS: Final = (
    Fact("iterations", "Iterations", "count", "iterations of the engine in the selection"),
    *(Fact(f"{k}_iterations", capitalized(k), "count", f"{k} iterations") for k in (PREFILL, DECODE, MIXED)),
    Fact("context_tokens", "Context tokens", "count", "tokens of requests in prefill"),
    Fact("generation_tokens", "Generated tokens", "count", "tokens of requests in decode"),
    Fact("context_tokens_per_s", "Context tokens/s", "count", "over the time from the first iteration to the end of the last one's work"),
    Fact("generation_tokens_per_s", "Generated tokens/s", "count", "over the same wall time"),
    Fact("generation_tokens_per_device_s", "Generated tokens/s, device", "count", "of decode iterations, over their device time"),
    Fact("output_token_p50_ns", "Time per output token, p50", "ns", "median wall time of the decode iterations; the device's "
         "where the host is done before it"),
    Fact("output_token_p95_ns", "p95", "ns", "95 % of the decode iterations take no longer (nearest rank)"),
    Fact("output_token_max_ns", "Longest", "ns", "longest decode iteration"),
    *(Fact(f"{k}_share", f"In {k}", "ratio", f"part of the wall time in {k} iterations") for k in (PREFILL, DECODE, MIXED)),
    Fact("between_share", "Between iterations", "ratio", "part of the wall time between them: scheduler and host", "host"),
    Fact("graph_launch_ns", "Graph launch", "ns", "median time from the call of a graph launch to its first device event"),
    Fact("replayed_share", "Replayed", "ratio", "part of the device time that graph launches replayed"),
    Fact("named_share", "Named", "ratio", "part of the replayed time whose operators are known from a recording of the captures"),
    Fact("busy_share", "Device busy", "ratio", "part of the iterations, until their device work has ended, in which the device works"),
    Fact("compute_bound_batch", "Compute-bound from", "count", "batch from which a product with 16-bit weights is bound by arithmetic and "
         "not by reading its weights: dense 16-bit peak over memory bandwidth"),
)  # fmt: skip


@analysis(
    title="Serving",
    question="Where does the time of a token go?",
    group="Time",
    order=12,
    requirements=("serving",),
    query=ServingQuery,
    tables={"iterations": ITERATIONS, "by_kind": BY_KIND, "by_batch": BY_BATCH, "phases_of_iteration": PHASES},
    facts=FACTS,
)
def run(capture: Capture, query: ServingQuery) -> Report:
    where = scope(capture, query)
    done = work(capture, device_for(capture, query.device_limits))
    found = serving(capture, where, done)
    frame = found.frame if query.kind == "all" else found.frame[found.frame["kind"] == query.kind].reset_index(drop=True)
    if not len(frame):
        raise Unavailable(f"no {query.kind} iteration in this selection", hint="choose another kind")
    facts = _facts(found, frame, done)
    tables = {"iteration": _iterations(frame, where), "kind": _by_kind(frame), "batch": _by_batch(frame)}
    if not _any_batch(tables["batch"]):
        del tables["batch"]
    first = [tables.pop(query.by)] if query.by in tables else []
    return Report(
        analysis="serving",
        title="Serving",
        headline=_headline(frame, facts.values),
        notices=_notices(capture, where, facts.values),
        sections=[*_findings(capture, found, done), *_curve(frame), facts, *first, *tables.values(), _phases(capture, found, frame, done)],
    )


def _findings(capture: Capture, found: Serving, done: Work) -> list[FindingsSection]:
    made = serving_findings(capture, found, _turning_point(done))
    title, text = "What to change", "saving per iteration, at most; of the engine's schedule, besides What to fix"
    return [FindingsSection(id="findings", title=title, subtitle=text, findings=made, span=12)] if made else []


def _any_batch(table: TableSection) -> bool:
    """Whether there is a decode iteration whose batch is known."""
    return bool(table.data["batch"])


# -- facts ---------------------------------------------------------------------------------------------------------------


def _facts(found: Serving, frame: pd.DataFrame, done: Work) -> FactsSection:
    of = {kind: frame[frame["kind"] == kind] for kind in (PREFILL, DECODE, MIXED)}
    decode = of[DECODE][of[DECODE]["complete"]] if of[DECODE]["complete"].any() else of[DECODE]
    wall = np.sort(took_ns(decode))
    passed, gaps = passed_ns(frame)
    on_host = int(frame["wall_ns"].sum()) + gaps
    total, replayed = (int(frame[name].sum()) for name in ("sum_ns", "replayed_ns"))
    context, generated = (_sum(frame[name]) for name in ("context_tokens", "generation_tokens"))
    of_decode = _sum(of[DECODE]["generation_tokens"])
    values: dict[str, Scalar] = {
        "iterations": len(frame),
        **{f"{kind}_iterations": len(own) for kind, own in of.items()},
        "context_tokens": context,
        "generation_tokens": generated,
        "context_tokens_per_s": _rate(context, passed),
        "generation_tokens_per_s": _rate(generated, passed),
        "generation_tokens_per_device_s": _rate(of_decode, float(of[DECODE]["device_ns"].sum())),
        "output_token_p50_ns": _rank(wall, 0.5),
        "output_token_p95_ns": _rank(wall, 0.95),
        "output_token_max_ns": int(wall[-1]) if len(wall) else None,
        **{f"{kind}_share": _ratio(float(own["wall_ns"].sum()), on_host) for kind, own in of.items()},
        "between_share": _ratio(gaps, on_host),
        "graph_launch_ns": round(float(np.median(found.launch_ns))) if len(found.launch_ns) else None,
        "replayed_share": replayed / total if total else None,
        "named_share": int(frame["named_ns"].sum()) / replayed if replayed else None,
        "busy_share": _ratio(float(frame["device_ns"].sum(skipna=False)), float(frame["length_ns"].sum())),
        "compute_bound_batch": _turning_point(done),
    }
    often_none = ("_iterations", "_share", "_tokens", "_tokens_per_s")
    hidden = [name for name, value in values.items() if value is None or (value == 0 and name.endswith(often_none))]
    return make_facts("facts", "Serving", values, FACTS, span=12, hidden=hidden)


def _sum(column: pd.Series) -> int | None:
    values = column.to_numpy(dtype=np.float64)
    return int(np.nansum(values)) if len(values) and np.isfinite(values).all() else None


def _rate(count: int | None, ns: float) -> float | None:
    return count / ns * 1e9 if count is not None and ns > 0 else None


def _rank(ordered: np.ndarray, part: float) -> int | None:
    return int(ordered[max(int(np.ceil(part * len(ordered))) - 1, 0)]) if len(ordered) else None


def _turning_point(done: Work) -> int | None:
    """Returns the batch M at which 2 M N K FLOP take as long as reading 2 N K bytes of weights: peak over bandwidth."""
    if done.spec is None or not done.spec.memory_bandwidth:
        return None
    peak = done.spec.matrix_peak("bf16")
    return round(peak / done.spec.memory_bandwidth) if peak else None


# -- tables --------------------------------------------------------------------------------------------------------------


def _blank(values: pd.Series) -> pd.Series:
    """Returns whole numbers, None where they are not known."""
    return pd.Series([None if v != v else round(v) for v in values.astype(float).tolist()], dtype=object, index=values.index)


def _ratio(above: float, below: float) -> float | None:
    return above / below if below > 0 and above == above else None


BLANK: Final = (
    "requests", "context_tokens", "generation_tokens", "batch", "captured_batch", "gap_ns", "sol_ns", "device_ns",
)  # fmt: skip
"""Columns of whole numbers that can be unknown."""


def _iterations(frame: pd.DataFrame, where: Scope) -> TableSection:
    shown = frame.assign(
        iteration=frame["number"],
        efficiency=(frame["sol_ns"] / frame["measured_ns"].where(frame["measured_ns"] > 0)).astype(float),
        **{n: _blank(frame[n]) for n in BLANK},
    )
    marks = {str(n): Mark("incomplete", "cut by the recording; left out of the means") for n in shown.loc[~shown["complete"], "iteration"]}
    return make_table(
        "iterations", "Iterations", shown, ITERATIONS, key="iteration", subtitle=where.label, sort=Sort("start_ns", False),
        filters=["kind", "graphs"], marks={"iteration": marks} if marks else {}, timeline=OnTimeline("iteration", "start_ns", "wall_ns"),
    )  # fmt: skip


def _sums(own: pd.DataFrame) -> dict[str, Scalar]:
    """Returns the columns of SUMS for some iterations; the complete ones where there are such."""
    own = own[own["complete"]] if own["complete"].any() else own
    tokens = _sum(own["context_tokens"] + own["generation_tokens"])
    sol, measured = float(np.nansum(own["sol_ns"])), float(own["measured_ns"].sum())
    gaps = own["gap_ns"].to_numpy()
    return {
        "iterations": len(own),
        "wall_ns": round(float(own["wall_ns"].mean())),
        "device_ns": None if own["device_ns"].isna().any() else round(float(own["device_ns"].mean())),
        "gap_ns": round(float(np.nanmean(gaps))) if np.isfinite(gaps).any() else None,
        "tokens": tokens,
        "tokens_per_s": _rate(tokens, float(took_ns(own).sum())),
        "tokens_per_device_s": _rate(tokens, float(own["device_ns"].sum())),
        "replayed_share": _ratio(float(own["replayed_ns"].sum()), float(own["sum_ns"].sum())),
        "sol_ns": round(sol / len(own)) if measured > 0 else None,
        "efficiency": _ratio(sol, measured),
    }


def _by_kind(frame: pd.DataFrame) -> TableSection:
    rows = [{"kind": kind} | _sums(own) for kind, own in frame.groupby("kind", sort=False)]
    return make_table("by_kind", "By kind", pd.DataFrame(rows), BY_KIND, key="kind", subtitle="means of complete iterations")


def _by_batch(frame: pd.DataFrame) -> TableSection:
    decode = frame[(frame["kind"] == DECODE) & np.isfinite(frame["batch"])]
    rows = []
    for (batch, captured), own in decode.groupby(["batch", "captured_batch"], dropna=False):
        rows.append({"batch": int(batch), "captured_batch": None if captured != captured else int(captured)} | _sums(own))
    return make_table(
        "by_batch", "Decode by batch", pd.DataFrame(rows, columns=[c.name for c in BY_BATCH]), BY_BATCH,
        subtitle="means of complete decode iterations", sort=Sort("batch", False),
    )  # fmt: skip


def _phases(capture: Capture, found: Serving, frame: pd.DataFrame, done: Work) -> TableSection:
    """Returns what the device time of each kind of iteration is spent on; without a device that of its operators."""
    kind_of = np.full(len(capture.steps) + 1, -1)
    kinds = list(dict.fromkeys(frame["kind"]))
    kind_of[frame["row"].to_numpy()] = [kinds.index(k) for k in frame["kind"]]
    count = frame["kind"].value_counts()
    size = len(kinds) * len(PARTS)
    time, of_op = _on_host(kind_of, done, size) if done.by_host_time else _on_device(capture, kind_of, found, done, size)
    ops = done.ops
    usable = (of_op >= 0) & ops["modeled"].to_numpy() & np.isfinite(ops["sol_ns"].to_numpy())
    sol = np.bincount(of_op[usable], ops["sol_ns"].to_numpy()[usable], minlength=size)
    measured = np.bincount(of_op[usable], ops["measured_ns"].to_numpy(dtype=np.float64)[usable], minlength=size)
    rows = []
    for k, kind in enumerate(kinds):
        whole = float(time[k * len(PARTS) : (k + 1) * len(PARTS)].sum())
        for p, part in enumerate(PARTS):
            i, n = k * len(PARTS) + p, int(count[kind])
            if time[i] > 0:
                known = measured[i] >= LEAST * time[i]
                least, efficiency = (round(sol[i] / n), float(sol[i] / measured[i])) if known and measured[i] else (None, None)
                device = round(time[i] / n)
                share = _ratio(float(time[i]), whole)
                rows.append({"kind": kind, "part": part, "device_ns": device, "share": share, "sol_ns": least, "efficiency": efficiency})
    where, of = ("host", "operators") if done.by_host_time else ("device", "device events")
    relabeled = {"device_ns": msgspec.structs.replace(PHASES[2], label="Host time", doc=_OF_OPERATORS)} if done.by_host_time else {}
    return make_table(
        "phases_of_iteration", f"What the {where} time is spent on", pd.DataFrame(rows, columns=[c.name for c in PHASES]),
        tuple(relabeled.get(c.name, c) for c in PHASES), subtitle=f"per iteration; sums of {of}", sort=Sort("device_ns"),
        filters=["kind", "part"], empty="No iteration launched work on a device.",
    )  # fmt: skip


_OF_OPERATORS: Final = "time of its operators on the host, per iteration"


def _on_device(capture: Capture, kind_of: np.ndarray, found: Serving, done: Work, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (time of device events by kind of iteration and part, that place per row of the work)."""
    of_event = kind_of[capture.device["step"].to_numpy()]
    cell = np.where(of_event >= 0, of_event * len(PARTS) + found.part, -1)
    use = cell >= 0
    of_op = np.full(len(done.ops), -1, np.int64)
    owner = done.owner if len(done.owner) == len(cell) else np.full(len(cell), -1)
    of_op[owner[(owner >= 0) & use]] = cell[(owner >= 0) & use]
    return np.bincount(cell[use], capture.device["duration_ns"].to_numpy()[use], minlength=size), of_op


def _on_host(kind_of: np.ndarray, done: Work, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the same of a recording without a device, by the time of its operators."""
    of_call = kind_of[done.ops["step"].to_numpy()]
    cell = np.where(of_call >= 0, of_call * len(PARTS) + parts_of_calls(done), -1)
    use = cell >= 0
    return np.bincount(cell[use], done.ops["measured_ns"].to_numpy(dtype=np.float64)[use], minlength=size), cell.astype(np.int64)


# -- figure and words ----------------------------------------------------------------------------------------------------


def _curve(frame: pd.DataFrame) -> list[FigureSection]:
    """Draws wall and device time of decode iterations over their batch, captured batches marked; nothing for one batch."""
    decode = frame[(frame["kind"] == DECODE) & np.isfinite(frame["batch"]) & frame["complete"]]
    if decode["batch"].nunique() < 2:
        return []
    mean = decode.groupby("batch")[["wall_ns", "device_ns"]].mean()
    divisor, unit = F.time_scale(float(np.nanmax(mean.to_numpy())))
    x = mean.index.astype(int).tolist()
    data: list[F.Plain] = [
        {
            "type": "scatter", "mode": "lines+markers", "name": label, "x": x, "y": (mean[name] / divisor).tolist(),
            "line": {"color": F.light(color), "width": 2}, "marker": {"color": F.light(color), "size": 8, "symbol": symbol},
            "hoverinfo": "text",
            "hovertext": [f"<b>{label}</b>, batch {b}<br>{human(float(v), 'ns')}" for b, v in zip(x, mean[name], strict=True)],
        }
        for name, label, color, symbol in (("wall_ns", "Wall", "host", "square"), ("device_ns", "Device", "compute", "circle"))
        if mean[name].notna().all()
    ]  # fmt: skip
    captured = sorted({int(v) for v in decode["captured_batch"].dropna()})
    dotted = {"color": F.light("line-strong"), "width": 1, "dash": "dot"}
    shapes = [{"type": "line", "x0": v, "x1": v, "yref": "paper", "y0": 0, "y1": 1, "line": dotted} for v in captured]
    words = f"; dotted: captured for {', '.join(map(str, captured))}" if captured else ""
    last, first = mean["wall_ns"].iloc[-1], mean["wall_ns"].iloc[0]
    return [
        FigureSection(
            id="curve", title="Decode by batch", subtitle=f"mean wall and device time of an iteration{words}", span=12, height=300,
            table="by_batch",
            figure=F.figure(data, x=F.axis("requests"), y=F.axis(unit, rangemode="tozero"), showlegend=True, shapes=shapes),
            summary=f"A decode iteration takes {human(float(first), 'ns')} for {x[0]} and {human(float(last), 'ns')} for {x[-1]} requests.",
        )
    ]  # fmt: skip


def _headline(frame: pd.DataFrame, facts: dict[str, Scalar]) -> str:
    median, rate = facts["output_token_p50_ns"], facts["generation_tokens_per_s"]
    kinds = frame["kind"].value_counts()
    counts = [f"{human(int(n), 'count')} {k}" for k, n in kinds.items() if k != DECODE]
    out = f"{human(len(frame), 'count')} iteration{'' if len(frame) == 1 else 's'} ({', '.join(counts)})."
    prefill, read = facts["context_tokens"], facts["context_tokens_per_s"]
    if len(kinds) == 1 and kinds.index[0] == PREFILL and isinstance(prefill, int) and isinstance(read, float):
        each = f"A prefill iteration takes **{human(round(float(frame['wall_ns'].median())), 'ns')}**"
        of = "one recorded" if len(frame) == 1 else f"median of {human(len(frame), 'count')}"
        out = f"{each} ({of}) for {human(prefill, 'count')} tokens{'' if len(frame) == 1 else ' in all'}: "
        out += f"**{human(round(read), 'count')} tokens/s**."
    if isinstance(median, int):
        on_device, on_host = (float(frame.loc[frame["kind"] == DECODE, name].median()) for name in ("device_ns", "wall_ns"))
        ahead = on_device > on_host
        of = f"median of {human(int(kinds[DECODE]), 'count')}" if kinds[DECODE] > 1 else "one recorded"
        takes = f"**{human(round(on_device), 'ns')}** of the device" if ahead else f"**{human(median, 'ns')}**"
        if ahead:
            of += f", {human(round(on_host), 'ns')} on the host, which does not wait for it"
        out = f"A decode iteration takes {takes} ({of}{', besides ' + ', '.join(counts) if counts else ''})"
        out += f": **{human(round(rate), 'count')} tokens/s**." if isinstance(rate, float) else "."
    share, busy = facts["between_share"], facts["busy_share"]
    if isinstance(busy, float):
        out += f" The device works for {human(busy, 'ratio')} of the iterations"
        out += f"; {human(share, 'ratio')} of the time passes between them." if isinstance(share, float) and share >= 0.01 else "."
    return out


def _notices(capture: Capture, where: Scope, facts: dict[str, Scalar]) -> list[Notice]:
    out = [*edge_notices(capture, where), *replay_notices(capture)]
    replayed, named = facts["replayed_share"], facts["named_share"]
    if isinstance(replayed, float) and replayed > 0 and not (isinstance(named, float) and named > 0):
        text = f"{human(replayed, 'ratio')} of the device time was replayed by graphs and has no operators"
        out.append(Notice(f"{text}. A recording of the captures names it: {advice_for(capture)}.", "info"))
    odd = (capture.steps["batch"] < 0).to_numpy()[list(where.rows)]
    if odd.any():
        count = human(int(odd.sum()), "count")
        out.append(Notice(f"{count} annotations do not say what they ran, or their numbers exclude each other.", "warn"))
    return out
