"""What the roofline says in sentences: the headline and the notices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.devices.limits import caution, devices_in_use, why_no_limits
from tb_sol_plugin.devices.spec import MATRIX_COLUMNS, DeviceSpec
from tb_sol_plugin.metrics.report.notes import check_of
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.kernel_names import short_name
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import windows_of
from tb_sol_plugin.metrics.work.columns import ranked
from tb_sol_plugin.metrics.work.kinds import KINDS
from tb_sol_plugin.metrics.work.ownership import over_link
from tb_sol_plugin.metrics.work.sums import utilisation
from tb_sol_plugin.metrics.work.work import Work, launches_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    Link,
    Mark,
    Notice,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
    number_of,
)
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import known_total
from tb_sol_plugin.units import capitalized, human

# -- What the roofline looks at --------------------------------------------------------------------------------------
# the calls of the selection, and where every nanosecond of its device time belongs.


Direction: TypeAlias = Literal["both", "forward", "backward"]

NO_MODEL: Final = "(no cost model)"
COMMUNICATION: Final = "(communication)"
OVER_LINK: Final = "(copies over a link)"
OUTSIDE: Final = (at.NO_OPERATOR, at.BEFORE, at.NO_RECORD)
PARTS: Final = (*KINDS, NO_MODEL, COMMUNICATION, OVER_LINK, *OUTSIDE)


class Selection(NamedTuple):
    """ops: the calls looked at, rows of `Work.ops`. whole_ns: plain sum of the device time (host time without a device).

    outside: device time that no operator owns, by the reason; none when one pass is chosen, as such work belongs to no pass.
    parts: the same whole_ns once more, split exactly: by kind where a cost model covers it, else communication, copies over a link,
    the reasons of `outside`, and what an operator without a model owns. Only parts with time; where no call has one (`timed`), those
    with calls.
    """

    ops: pd.DataFrame
    outside: dict[str, int]
    parts: dict[str, int]
    whole_ns: int
    timed: bool = True

    @property
    def modelled_ns(self) -> int:
        """Part of whole_ns that a cost model covers."""
        return sum(self.parts.get(kind, 0) for kind in KINDS)

    @property
    def apart_ns(self) -> int:
        """Communication and copies over a link: bound by the link, not by device memory."""
        return self.parts.get(COMMUNICATION, 0) + self.parts.get(OVER_LINK, 0)


def select(capture: Capture, done: Work, part: Scope, direction: Direction) -> Selection:
    """The calls of the steps and of the pass asked for. Forward work run again in the backward pass is forward work."""
    keep = np.ones(len(done.ops), bool) if part.whole else np.isin(done.ops["step"].to_numpy(), part.rows)
    if direction != "both":
        keep &= (done.ops["direction"].cat.codes.to_numpy() == 0) == (direction == "forward")
    ops = done.ops if keep.all() else done.ops[keep]
    if done.by_host_time or done.from_ledger:
        time, kind = np.nan_to_num(ops["measured_ns"].to_numpy(dtype=np.float64)), _kind(ops)
        if done.timed:
            return _selection(ops, {}, np.bincount(kind, time, minlength=len(PARTS)))
        present = np.bincount(kind, minlength=len(PARTS)) > 0
        return Selection(ops, {}, {name: 0 for name, some in zip(PARTS, present.tolist(), strict=True) if some}, 0, False)
    owner = done.owner
    owned = owner >= 0
    chosen = np.append(keep, direction == "both")[owner] & (owned | part.device)
    device = capture.device
    where = np.append(_kind(done.ops), len(PARTS))[owner]
    bare = ~np.append(done.ops["modelled"].to_numpy(), False)[owner]
    outside = np.where(device["link"].to_numpy() == S.BEFORE_WINDOW, 1, np.where(device["link"].to_numpy() == S.NO_RECORD, 2, 0))
    duration = device["duration_ns"].to_numpy().clip(min=0)
    alone = chosen & ~owned
    left = np.bincount(outside[alone], duration[alone], minlength=len(OUTSIDE))
    where = np.where(owned, where, PARTS.index(at.NO_OPERATOR) + outside)
    where[bare & over_link(capture)] = PARTS.index(OVER_LINK)
    where[bare & device["communication"].to_numpy()] = PARTS.index(COMMUNICATION)
    split = np.bincount(where[chosen], duration[chosen], minlength=len(PARTS))
    return _selection(ops, {name: round(ns) for name, ns in zip(OUTSIDE, left.tolist(), strict=True) if ns}, split)


def _kind(ops: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Per call the part it belongs to by its cost model, else whether it communicates."""
    bare = np.where(ops["collective"].to_numpy(), PARTS.index(COMMUNICATION), PARTS.index(NO_MODEL))
    return np.where(ops["modelled"].to_numpy(), ops["kind"].cat.codes.to_numpy().astype(np.int64), bare)


def _selection(ops: pd.DataFrame, outside: dict[str, int], split: npt.NDArray[np.generic]) -> Selection:
    parts = {name: round(ns) for name, ns in zip(PARTS, split.tolist(), strict=True) if ns}
    return Selection(ops, outside, parts, sum(parts.values()))


PLAIN = 0.95
"""A modelled share from which the ratio stands without its share."""


def headline(frame: pd.DataFrame, facts: dict[str, Scalar], spec: DeviceSpec | None, *, by_host: bool, counted: str = "") -> str:
    """How far the modelled work is from its limit, and how few rows hold the time above it.

    counted: of a SOL capture, what its work was counted in (`3 sampled iterations`).
    """
    share, efficiency = facts["modelled_share"], facts["efficiency"]
    if not isinstance(efficiency, float) and counted:
        return _counted(frame, facts, spec, counted, by_host=by_host)
    if not isinstance(efficiency, float):
        if by_host:
            return "This recording has no device work: rates are over host time, and the limits of this CPU are not known."
        covered = human(number_of(share), "ratio")
        if spec is not None:
            return f"No work with a known limit is selected: {covered} of device time is modelled."
        return f"The limits of the device are not known: rates are shown, efficiencies are not. {covered} of device time is modelled."
    who = "operators" if by_host else "kernels"
    first = f"Modelled {who} run at **{human(efficiency, 'ratio')}** of what the {spec.name if spec else 'device'} allows."
    if isinstance(share, float) and share < PLAIN:
        covered = f"{human(share, 'ratio')} of {'host' if by_host else 'device'} time"
        first = f"Modelled {who}, {covered}, run at **{human(efficiency, 'ratio')}** of what the {spec.name if spec else 'device'} allows."
    wasted = frame["wasted_ns"].to_numpy(dtype=np.float64)
    above = np.sort(wasted[np.isfinite(wasted) & (wasted > 0)])[::-1]
    if not len(above):
        return first
    running = np.cumsum(above) / above.sum()
    count = min(int(np.searchsorted(running, 0.8)) + 1, 5, len(above))
    word = ("", "One row holds", "Two rows hold", "Three rows hold", "Four rows hold", "Five rows hold")[count]
    rows = word if running[count - 1] >= 0.8 else "The five largest rows hold"
    return f"{first} {rows} **{human(float(running[count - 1]), 'ratio')}** of the time above the limit."


def _counted(frame: pd.DataFrame, facts: dict[str, Scalar], spec: DeviceSpec | None, counted: str, *, by_host: bool) -> str:
    """The work of a SOL capture, and its limit where that is known."""
    flop, vector = number_of(facts["total_flop"]), number_of(facts["total_vector_flop"])
    work = human(flop, "FLOP") if flop else f"{human(vector, 'FLOP')} of vector work" if vector else "no work with a cost model"
    traffic = f" and {human(number_of(facts['total_bytes']), 'B')}" if facts["total_bytes"] else ""
    first = (
        f"{capitalized(counted)} hold **{work}**{traffic}"
        if counted[:1].isdigit()
        else f"The {counted} holds **{work}**{traffic}"
    )
    sol = number_of(facts["sol_ns"])
    if sol is None or spec is None:
        return f"{first}; the limits of {'this CPU' if by_host else 'the device'} are not known."
    steps = number_of(facts.get("steps_ns"))
    if steps:
        took = f"; they took {human(steps, 'ns')}" if counted[:1].isdigit() else f"; it took {human(steps, 'ns')}"
        return f"{first}, which take **{human(sol, 'ns')}** at the limits of {spec.name}{took}."
    return f"{first}, which take **{human(sol, 'ns')}** at the limits of {spec.name}."


def notices(capture: Capture, done: Work, chosen: Selection, unmodelled: pd.DataFrame, *, direction: str, l2: bool) -> list[Notice]:
    """Why limits are missing or guessed, what is not modelled, what was launched before the window, what a choice leaves out."""
    spec = done.spec
    out: list[Notice] = []
    if spec is None:
        why = why_no_limits(capture)
        out.append(Notice(f"{capitalized(why)}.", "info" if done.by_host_time else "warn"))
    elif caution(spec):
        out.append(Notice(caution(spec)))
    if l2 and (spec is None or spec.l2_bytes_per_s is None):
        name = spec.name if spec else "this device"
        text = f"No L2 bandwidth of {name} is known, so there is no L2 roof; a device file can give it as `l2_bw_gb_per_s`."
        out.append(Notice(text, "info"))
    out += _without_model(chosen, unmodelled, by_host=done.by_host_time)
    early = chosen.ops["inferred"].to_numpy()
    if early.any():
        time = human(int(chosen.ops["measured_ns"].to_numpy()[early].sum()), "ns")
        left = chosen.outside.get(at.BEFORE, 0)
        rest = f" {human(left, 'ns')} more match no recorded call." if left else ""
        text = f"{time} were launched before the recording began and take the work of recorded calls with the same kernel, grid and block."
        out.append(Notice(f"{text} They stand in rows of their own, marked estimated.{rest}", "info"))
    if direction != "both" and len(capture.device):
        alone = int(capture.device["duration_ns"].to_numpy().clip(min=0)[done.owner < 0].sum())
        if alone:
            text = f"Only the {direction} pass is shown. {human(alone, 'ns')} that no operator launched belong to no pass and are left out."
            out.append(Notice(text, "info"))
    return out


def _without_model(chosen: Selection, unmodelled: pd.DataFrame, *, by_host: bool) -> list[Notice]:
    bare = chosen.whole_ns - chosen.modelled_ns - chosen.apart_ns
    if not chosen.whole_ns or bare <= 0.1 * chosen.whole_ns or by_host:
        return []
    covered = human(chosen.modelled_ns / chosen.whole_ns, "ratio")
    apart = chosen.apart_ns
    rest = f" {human(apart, 'ns')} are communication and copies over a link, which this chart does not bound." if apart else ""
    largest = unmodelled.groupby("name", sort=False)["measured_ns"].sum().sort_values(ascending=False, kind="stable").head(3)
    named = ", ".join(f"`{name}` {human(int(time), 'ns')}" for name, time in largest.items()) if chosen.parts.get(NO_MODEL) else ""
    tail = f" Largest without: {named}." if named else ""
    return [Notice(f"A cost model covers {covered} of device time.{rest}{tail}", "info")]


# -- Why a row runs faster than its limit ----------------------------------------------------------------------------
# the likeliest cause, from what the recording says.


WINOGRAD: Final = re.compile(r"winograd", re.IGNORECASE)
FFT: Final = re.compile(r"(?:^|[^a-z])c?fft|fft2d|cgemm_|_cgemm", re.IGNORECASE)
CLOCK: Final = 1.1
"""A rate up to this much over a compute limit can come from a clock above the one of the table."""
SMALL: Final = 32e6
"""Bytes of a call that some cache may hold where its size is not known, as on a CPU."""
NARROWER: Final = {
    "fp64": ("fp32",),
    "fp32": ("tf32", "bf16", "fp16"),
    "tf32": ("bf16", "fp16"),
    "bf16": ("fp8", "int8"),
    "fp16": ("fp8", "int8"),
    "fp8": ("fp4",),
}
"""Per type the faster ones that may have done the work."""


class Case(NamedTuple):
    """One row above its limit.

    kernels: names of all its device events. bytes: of all calls, NaN where unknown. reason: what had to be assumed, "" for nothing.
    """

    kind: str
    dtype: str
    bound: str
    kernels: str
    calls: int
    bytes: float
    efficiency: float
    reason: str


def likely_cause(case: Case, spec: DeviceSpec) -> str:
    """One sentence without a full stop. Order: what the kernel's name proves, then what the numbers fit, then what was assumed."""
    if case.kind == "conv" and WINOGRAD.search(case.kernels):
        return "Winograd convolution: fewer operations than the definition counts"
    if case.kind == "conv" and FFT.search(case.kernels):
        return "FFT convolution: fewer operations than the definition counts"
    if case.bound == "memory":
        return _memory(case, spec)
    if case.reason:
        return f"its work is an estimate: {case.reason}"
    peak = spec.matrix_peak(case.dtype)
    if case.efficiency <= CLOCK:
        return "the clock was above the one that the limit holds at"
    for dtype in NARROWER.get(case.dtype, ()):
        faster = spec.matrix_peak(dtype)
        if peak and faster and case.efficiency * peak <= faster * CLOCK:
            return f"likely computed in {dtype}: within its limit of {human(faster, 'FLOP/s')}"
    if spec.sparse_factor and case.efficiency <= spec.sparse_factor * CLOCK:
        return "structured sparsity, or fewer operations by the algorithm"
    return "fewer operations by the algorithm, another type than recorded, or a wrong limit"


def _memory(case: Case, spec: DeviceSpec) -> str:
    each = case.bytes / case.calls if case.calls else float("nan")
    cache = spec.l2_bytes
    if cache and each <= cache:
        return f"its data stayed in cache: {human(each, 'B')} a call, L2 holds {human(cache, 'B')}"
    if not cache and each <= SMALL:
        return f"its data may have stayed in a cache: {human(each, 'B')} a call"
    if case.reason:
        return f"its work is an estimate: {case.reason}"
    if cache and each <= 3 * cache:
        return f"part of its data stayed in cache: {human(each, 'B')} a call, L2 holds {human(cache, 'B')}"
    return "it touched less data than its sizes say, its data stayed in cache, or the bandwidth of the limit is too low"


# -- Columns and facts of the roofline, with one sentence each -------------------------------------------------------


_NO_MODEL = "no cost model, or sizes not recorded"
_NO_LIMIT = "no cost model, sizes not recorded, or unknown device limits"
MODELLED = Column("modelled_share", "Modelled", "ratio", "Share of the time that a cost model covers.", "share", rank=3)
ID = Column("id", "Row", "", "Key of the row: what it is grouped by.", "code", rank=3)
COLUMNS = (
    Column("name", "Operator", "", "Operator, kernel, module, layer, phase, step, type or kind, as grouped.", "symbol", color_by="kind"),
    Column("kind", "Kind", "", "Kind of work: gemm, attention, conv, norm, elementwise, other.", "text", rank=3, color_by="kind"),
    Column(
        "input_shapes",
        "Input shapes",
        "",
        "Sizes of the tensors it was called with; empty where calls of several sizes are in one row.",
        "shapes",
        rank=2,
    ),
    Column("dtype", "Type", "", "Type that it computes in; several are joined.", "text", rank=2),
    Column("direction", "Direction", "", "fwd, or bwd for work of the backward pass; several are joined.", "badge", rank=2),
    Column("calls", "Calls", "count", "Calls that own device time."),
    Column("measured_ns", "Time", "ns", "Per call the union of its device intervals, summed over calls.", "bar", color_by="kind"),
    Column("share", "Share", "ratio", "Time over the time of all rows.", "share", rank=2),
    Column(
        "sol_ns",
        "Limit",
        "ns",
        "Least time on this device: per call the larger of compute and memory time, summed.",
        rank=3,
        missing=_NO_LIMIT,
    ),
    Column("wasted_ns", "Above limit", "ns", "Time less the limit, over the calls that have a limit.", missing=_NO_LIMIT),
    Column("efficiency", "Efficiency", "ratio", "Limit over time, sums over the calls that have a limit.", "efficiency", missing=_NO_LIMIT),
    Column(
        "eff_achievable",
        "Of achievable",
        "ratio",
        "Efficiency against the rate that a good product reaches in practice, over the calls whose type has such a rate.",
        "share",
        rank=3,
        missing="no matrix work in a type with a known achievable rate",
    ),
    Column(
        "compute_ns",
        "Compute side",
        "ns",
        "What the arithmetic of the calls would take at the peak of its type.",
        rank=3,
        missing=_NO_LIMIT,
    ),
    Column(
        "memory_ns",
        "Memory side",
        "ns",
        "What the bytes of the calls would take at the memory bandwidth.",
        rank=3,
        missing=_NO_LIMIT,
    ),
    Column(
        "intensity_flop_per_byte",
        "FLOP/B",
        "FLOP/B",
        "FLOP over bytes: matrix FLOP, or vector FLOP where there are no others.",
        missing="no arithmetic, or no cost model",
    ),
    Column(
        "achieved_flop_per_s",
        "FLOP/s",
        "FLOP/s",
        "FLOP over the time of the modelled calls: matrix FLOP, or vector FLOP where there are no others.",
        missing="no arithmetic, or no cost model",
    ),
    Column("achieved_bytes_per_s", "Bandwidth", "B/s", "Bytes over the time of the modelled calls.", missing=_NO_MODEL),
    Column("bound", "Bound", "", "Which limit holds the larger part: compute or memory; none without a limit.", "badge"),
    Column(
        "flop",
        "FLOP",
        "FLOP",
        "Matrix FLOP (products, convolutions, attention) of all calls; a multiply-add is 2, bias adds are none.",
        rank=3,
        missing=_NO_MODEL,
    ),
    Column("vector_flop", "Vector FLOP", "FLOP", "Elementwise, normalisation and reduction FLOP of all calls.", rank=3, missing=_NO_MODEL),
    Column(
        "bytes",
        "Bytes",
        "B",
        "Least device memory traffic of all calls: inputs read once, outputs written once.",
        rank=3,
        missing=_NO_MODEL,
    ),
    MODELLED,
    Column(
        "recompute",
        "Recomputed",
        "ratio",
        "Share of the time that is forward work run again inside the backward pass.",
        "share",
        rank=3,
        missing="no time",
    ),
    Column("main_kernel", "Main kernel", "", "Kernel that holds most of the row's device time, by its short name.", "code", rank=3),
    Column("cause", "Likely cause", "", "Why the row is faster than its limit, where it is flagged.", "text", rank=3),
    Column(
        "flags",
        "Flags",
        "",
        "above limit: efficiency over 102 %; estimated: something had to be assumed; link: a copy between host and device; recompute: "
        "part of it runs again inside the backward pass; before the window: launched before the recording began.",
        "badge",
        rank=3,
    ),
)
LIST_COLUMNS = (
    COLUMNS[0],
    COLUMNS[1],
    Column("input_shapes", "Input shapes", "", "Sizes of the tensors it was called with.", "shapes", rank=2),
    Column("wasted_ns", "Above limit", "ns", "Time less the limit.", "bar", color_by="kind", missing=_NO_LIMIT),
    Column(
        "running_share", "Running", "ratio", "Share of all time above the limit that this row and those before it hold.", "share", rank=2
    ),
)
_BY_NAME = {c.name: c for c in COLUMNS}
KIND_COLUMNS = (
    Column("name", "Part", "", "Kind of modelled work, or why the rest has no limit here.", "symbol", color_by="kind"),
    _BY_NAME["kind"],
    Column("calls", "Calls", "count", "Operator calls; device events where no operator is known.", rank=2),
    Column(
        "device_ns",
        "Time",
        "ns",
        "Plain sum of device time (host time in a recording without device work): the rows add up to all of it.",
        "bar",
        color_by="kind",
    ),
    Column("share", "Share", "ratio", "Time over the time of all rows.", "share"),
    msgspec.structs.replace(_BY_NAME["sol_ns"], rank=1),
    _BY_NAME["wasted_ns"],
    _BY_NAME["efficiency"],
    *(msgspec.structs.replace(_BY_NAME[name], rank=2) for name in ("achieved_flop_per_s", "achieved_bytes_per_s")),
    *(_BY_NAME[name] for name in ("flop", "vector_flop", "bytes", "modelled_share")),
)
UNMODELLED_COLUMNS = (
    Column("name", "Operator", "", "Operator that owns device time and has no limit.", "code"),
    Column("input_shapes", "Input shapes", "", "Sizes of its arguments as recorded.", "shapes", rank=2, missing="no sizes recorded"),
    Column("types", "Types", "", "Types of its arguments as recorded.", "code", rank=3),
    Column("calls", "Calls", "count", "Calls that own device time."),
    Column("measured_ns", "Time", "ns", "Plain sum of its device time.", "bar", color="other"),
    Column("share", "Share", "ratio", "Time over the device time of all operators of the selection.", "share"),
    Column("why", "Why", "", "What is missing: a cost model, or a size, type or value that the model needs.", "text"),
)
PEAK: Final = "peak_flop_per_s_"
FACTS: Final = (
    Fact("device", "Device limits", "", "Device whose limits are used."),
    Fact("limits_from", "Found by", "", "How the device was found: exact, token, memory, units (by recorded properties), derived (by "
         "generation), file (a device file names it) or override."),
    Fact("peak_flop_per_s", "Peak, main type", "FLOP/s", "Dense peak of the type that holds most of the matrix work."),
    Fact("peak_bytes_per_s", "Memory bandwidth", "B/s", "Memory bandwidth of the device."),
    Fact("achievable_flop_per_s", "Achievable, main type", "FLOP/s", "Rate that a good product of the main type reaches in practice: "
         "the dashed line."),
    Fact("mfu", "MFU", "ratio", "Model FLOP utilisation: matrix FLOP at the peak of their type over the time of the complete steps, "
         "recomputation left out."),
    Fact("hfu", "HFU", "ratio", "Hardware FLOP utilisation: the same with recomputed work."),
    Fact("bandwidth_utilisation", "Bandwidth utilisation", "ratio", "Least memory traffic of the modelled calls over the time of the "
         "complete steps and the memory bandwidth."),
    Fact("steps_ns", "Time of the steps", "ns", "Time of the complete steps that mfu, hfu and bandwidth_utilisation are over."),
    Fact("total_flop", "Matrix work", "FLOP", "Matrix FLOP of all modelled calls."),
    Fact("total_vector_flop", "Vector work", "FLOP", "Vector FLOP of all modelled calls."),
    Fact("total_bytes", "Memory traffic", "B", "Least memory traffic of all modelled calls."),
    Fact("device_ns", "Device time", "ns", "Plain sum of all device time of the selection."),
    Fact("measured_ns", "Time with a limit", "ns", "Time of the calls that have a limit."),
    Fact("sol_ns", "Limit", "ns", "Least time of the same calls."),
    Fact("efficiency", "Efficiency", "ratio", "sol_ns over measured_ns."),
    Fact("modelled_share", "Modelled", "ratio", "Share of the device time that a cost model covers."),
    Fact("unmodelled_ns", "Not modelled", "ns", "Device time without a cost model."),
    Fact("apart_ns", "Communication, link copies", "ns", "Part of it that is communication or copies over a link: bound by the link, "
         "not by this chart."),
    Fact("explained_flop", "Explained by the trace, per step", "FLOP", "Of a trace beside a SOL capture: matrix FLOP per step that the "
         "trace itself explains, recomputed work left out."),
    Fact("counted_flop", "Counted by the SOL capture, per step", "FLOP", "Of a trace beside a SOL capture: what the capture counted per "
         "step of the same work."),
    Fact("no_operator_ns", "Launched by no operator", "ns", "Part of it that no recorded operator launched."),
    *(Fact(f"{PEAK}{dtype}", f"Peak, {dtype}", "FLOP/s", f"Dense peak of products in {dtype}.") for dtype in MATRIX_COLUMNS),
    Fact(f"{PEAK}vector", "Peak, vector", "FLOP/s", "Peak of elementwise work."),
)  # fmt: skip


# -- Tables of the roofline ------------------------------------------------------------------------------------------
# all rows, those with most time above their limit, the kinds of work, and what has no model.


MOST_ROWS: Final = 20_000
LISTED: Final = 10
ONE: Final = {
    "op_shape": "Operator",
    "op": "Operator",
    "kernel": "Kernel",
    "module": "Module",
    "layer": "Layer",
    "phase": "Phase",
    "step": "Step",
    "dtype": "Type",
    "kind": "Kind",
    "forward_phase": "Forward phase",
    "function": "Function",
}
LEADS: Final = {
    "kernel": ("kernels", "In the kernels"),
    "module": ("modules", "In the modules"),
    "layer": ("modules", "In the modules"),
    "phase": ("phases", "In the phases"),
    "forward_phase": ("phases", "In the phases"),
}
"""Where a row leads, by what it is grouped by; operators lead to the operators."""
HIDDEN: Final = "(rows not shown)"
KIND_NAMES: Final = {
    "gemm": "GEMM",
    "attention": "Attention",
    "conv": "Convolution",
    "norm": "Norm, softmax",
    "elementwise": "Elementwise",
    "other": "Other",
}
EVERYTHING: Final = "Everything is modelled."
EVERY_OPERATOR: Final = "Every operator is modelled. The rest is communication, copies over a link, or launched by no recorded operator."
KIND_PAGES: Final = {COMMUNICATION: "communication", OVER_LINK: "memcpy"}
_WHOLE: Final = ("calls", "measured_ns", "sol_ns", "compute_ns", "memory_ns", "wasted_ns", "flop", "vector_flop", "bytes")


def with_causes(frame: pd.DataFrame, spec: DeviceSpec | None, by: str = "") -> pd.DataFrame:
    """`frame` with `cause`: why a flagged row is faster than its limit, "" for the others; kernels by their short names.

    Rows of kernels too, where no two share one.
    """
    causes = [""] * len(frame)
    if spec is not None:
        columns = ("kind", "dtype", "bound", "kernels", "calls", "bytes", "efficiency", "reason")
        picked = np.flatnonzero(frame["flagged"].to_numpy())
        for at, values in zip(picked.tolist(), frame[list(columns)].take(picked).itertuples(index=False), strict=True):
            causes[at] = likely_cause(Case(*values), spec)
    short = {name: short_name(name) if name else "" for name in frame["main_kernel"].unique().tolist()}
    frame = frame.assign(cause=causes, main_kernel=[short[name] for name in frame["main_kernel"].tolist()])
    if by != "kernel":
        return frame
    brief = frame["name"].map(lambda name: short_name(name) if "::" in name else name)
    return frame.assign(name=brief.where(~brief.duplicated(keep=False), frame["name"]))


def shown_rows(frame: pd.DataFrame, top: int, least_share: float) -> pd.DataFrame:
    """The `top` rows with most time above their limit (0: all) that hold at least `least_share` of the time; longest first."""
    if least_share > 0:
        frame = frame[frame["share"].to_numpy() >= least_share]
    if 0 < top < len(frame):
        wasted = np.nan_to_num(frame["wasted_ns"].to_numpy(dtype=np.float64), nan=-np.inf)
        frame = frame.iloc[np.sort(np.argsort(-wasted, kind="stable")[:top])]
    return frame


# -- all rows ---------------------------------------------------------------------------------------------------


def rows_table(frame: pd.DataFrame, shown: pd.DataFrame, chosen: Selection, total: dict[str, Scalar], by: str) -> TableSection:
    """The rows, then what stands outside: rows left out by the query, and device time that no operator owns."""
    whole = float(frame["measured_ns"].sum()) + sum(chosen.outside.values())
    body = shown.head(MOST_ROWS)
    rest = float(frame["measured_ns"].sum()) - float(shown["measured_ns"].sum())
    hidden = len(frame) - len(shown)
    extra = ({HIDDEN: rest} if hidden else {}) | {name: float(ns) for name, ns in chosen.outside.items()}
    if extra:
        words = ("input_shapes", "dtype", "direction", "flags", "reason", "main_kernel", "cause")
        more = pd.DataFrame(
            {"id": list(extra), "name": list(extra), "kind": "other", "bound": "none", "measured_ns": list(extra.values())}
            | dict.fromkeys(words, "")
        )
        body = pd.concat([body, more.reindex(columns=body.columns)], ignore_index=True)
    body = _integers(body, _WHOLE).assign(share=body["measured_ns"].to_numpy(dtype=np.float64) / whole if whole else np.nan)
    table = make_table(
        "ops",
        f"{ONE[by]}s",
        body,
        (ID, *_ranked(frame, by)),
        key="id",
        subtitle=_hidden_text(frame, shown),
        sort=Sort("measured_ns" if whole else "sol_ns"),
        total=total | {"measured_ns": round(whole) if whole or chosen.timed else None, "share": 1.0 if whole else None},
        last=list(extra),
        marks=_marks(body),
        filters=["kind", "bound"],
        truncated=max(len(shown) - MOST_ROWS, 0),
        footer="Bytes are a lower bound: each tensor read or written once.",
        empty="No operator has device time here.",
    )
    _add_links(table, set(extra), by)
    return table


def _hidden_text(frame: pd.DataFrame, shown: pd.DataFrame) -> str:
    """`showing 50 of 312 rows, 99.2 % of their time`; "" where all are shown."""
    if len(shown) == len(frame):
        return ""
    time, whole = float(shown["measured_ns"].sum()), float(frame["measured_ns"].sum())
    share = f", {human(time / whole, 'ratio')} of their time" if whole else ""
    return f"showing {human(len(shown), 'count')} of {human(len(frame), 'count')} rows{share}"


def _ranked(frame: pd.DataFrame, by: str) -> list[Column]:
    """The columns with their ranks for this grouping: what says nothing here steps back, what is rare steps forward where it is there."""
    ranks: dict[str, int] = {}
    ranks["input_shapes"] = 1 if by == "op_shape" else 3  # two rows of one name differ in their sizes
    if by != "op_shape":
        ranks["direction"] = 3
    if by == "dtype":
        ranks["dtype"] = 3
    if not frame["efficiency"].notna().any():
        ranks |= {"wasted_ns": 3, "efficiency": 3, "bound": 3}
    if len(frame) and not frame["measured_ns"].notna().any():
        ranks |= {"measured_ns": 3, "share": 3, "achieved_flop_per_s": 3, "achieved_bytes_per_s": 3, "flop": 1, "bytes": 2}
        ranks |= {"bound": 1, "sol_ns": 1} if frame["sol_ns"].notna().any() else {}
    if (frame["recompute"].to_numpy(dtype=np.float64) > 0).any():
        ranks["recompute"] = 2
    if frame["inferred"].to_numpy().any():
        ranks["flags"] = 2
    changed = {"name": msgspec.structs.replace(COLUMNS[0], label=ONE[by])}
    changed |= {c.name: msgspec.structs.replace(c, rank=ranks[c.name]) for c in COLUMNS if c.name in ranks}
    return [changed.get(c.name, c) for c in COLUMNS]


def _marks(body: pd.DataFrame) -> dict[str, dict[str, Mark]]:
    marks: dict[str, dict[str, Mark]] = {"efficiency": {}, "sol_ns": {}}
    above = np.nan_to_num(body["efficiency"].to_numpy(dtype=np.float64)) > TOLERATED
    guessed = np.fromiter((value is True or value == 1 for value in body["estimated"].tolist()), bool, len(body))
    causes, reasons = body["cause"].tolist(), body["reason"].tolist()
    for row in np.flatnonzero(above).tolist():
        marks["efficiency"][str(row)] = Mark("flagged", f"above the limit: {causes[row]}" if causes[row] else "above the limit")
    known: dict[str, Mark] = {}
    for row in np.flatnonzero(guessed & ~above).tolist():
        why = str(reasons[row]) or "memory bandwidth unknown"
        mark = known.setdefault(why, Mark("estimated", why))
        marks["efficiency"][str(row)] = marks["sol_ns"][str(row)] = mark
    return marks


def _add_links(table: TableSection, outside: set[str], by: str) -> None:
    """Each row to the page that holds it, its main kernel to the kernels."""
    page, words = LEADS.get(by, ("operators", "In the operators"))
    kernels: dict[str, Link] = {}
    cells: dict[str, Link] = {}
    for row, (name, kernel) in enumerate(zip(table.data["name"], table.data["main_kernel"], strict=True)):
        text = str(name)
        if text in outside:
            if text != HIDDEN:
                table.row_links[str(row)] = Link("links", label="How events were linked")
        elif by == "step":
            number = text.removeprefix("step ")
            if number.isdigit():
                table.row_links[str(row)] = Link("timeline", {"step": number}, "On the timeline")
        elif (by in LEADS and not text.startswith("(")) or "::" in text:
            table.row_links[str(row)] = Link(page, {"find": text}, words)
        if kernel and by != "kernel":
            cells[str(row)] = kernels.setdefault(str(kernel), Link("kernels", {"find": str(kernel)}, "In the kernels"))
    if cells:
        table.cell_links["main_kernel"] = cells


# -- most time above the limit -----------------------------------------------------------------------------------


def above_table(frame: pd.DataFrame) -> TableSection:
    """The rows with most time above their limit and the share that they hold together."""
    wasted = frame["wasted_ns"].to_numpy(dtype=np.float64)
    order = np.argsort(-np.nan_to_num(wasted, nan=-np.inf), kind="stable")
    order = order[np.nan_to_num(wasted[order], nan=-1.0) > 0]
    total = float(wasted[order].sum())
    above = frame.iloc[order[:LISTED]].assign(running_share=np.cumsum(wasted[order])[:LISTED] / total if total else np.nan)
    return make_table(
        "above",
        "Most time above the limit",
        _integers(above, ("wasted_ns",)),
        (ID, *LIST_COLUMNS),
        span=4,
        key="id",
        subtitle="with running share",
        empty="No row has a limit here.",
    )


# -- kinds of work ------------------------------------------------------------------------------------------------


def kinds_table(chosen: Selection, *, by_host: bool) -> TableSection:
    """Device time by kind of modelled work, and the rest by the reason it has no limit: the rows add up to all of it."""
    sums = _kind_sums(chosen.ops)
    names = [part for part in PARTS if part in chosen.parts]
    frame = pd.DataFrame({"id": names, "name": [KIND_NAMES.get(n, n) for n in names]})
    frame["kind"] = [n if n in KINDS else "other" for n in names]
    frame["device_ns"] = [chosen.parts[n] if chosen.timed else None for n in names]
    frame["share"] = [chosen.parts[n] / chosen.whole_ns if chosen.whole_ns else None for n in names]
    for column, values in sums.items():
        frame[column] = np.array([values[KINDS.index(n)] if n in KINDS else np.nan for n in names], np.float64)
    frame["modelled_share"] = [1.0 if n in KINDS else 0.0 for n in names]
    if by_host or not chosen.timed:
        bare, collective = ~chosen.ops["modelled"].to_numpy(), chosen.ops["collective"].to_numpy()
        counts = {NO_MODEL: int((bare & ~collective).sum()), COMMUNICATION: int((bare & collective).sum())}
        frame["calls"] = [counts.get(n, calls) for n, calls in zip(names, frame["calls"].tolist(), strict=True)]
    frame["calls"] = np.where(frame["calls"].to_numpy() > 0, frame["calls"].to_numpy(), np.nan)
    whole = ("calls", "sol_ns", "wasted_ns", "flop", "vector_flop", "bytes")
    weight = chosen.parts if chosen.timed else {n: float(np.nan_to_num(sums["sol_ns"][KINDS.index(n)])) for n in names if n in KINDS}
    order = np.argsort([(names.index(n) + 100) if n not in KINDS else -weight[n] for n in names], kind="stable")
    table = make_table(
        "kinds",
        "By kind of work",
        _integers(frame.iloc[order].reset_index(drop=True), whole),
        (ID, *_kind_columns(chosen, limits=bool(frame["sol_ns"].notna().any()))),
        key="id",
        subtitle=_adds_up(chosen, by_host),
        last=[n for n in names if n not in KINDS],
        empty="No device time here.",
    )
    for row, name in enumerate(table.data["id"]):
        text = str(name)
        if text in KIND_PAGES:
            table.row_links[str(row)] = Link(KIND_PAGES[text])
        elif text in OUTSIDE:
            table.row_links[str(row)] = Link("links", label="How events were linked")
    return table


def _kind_columns(chosen: Selection, *, limits: bool) -> list[Column]:
    """The columns of the kinds; what nothing is known of steps back."""
    columns = list(KIND_COLUMNS) if chosen.timed else _untimed(KIND_COLUMNS)
    return columns if limits else [ranked(c, 3) if c.name in ("sol_ns", "wasted_ns", "efficiency") else c for c in columns]


def _adds_up(chosen: Selection, by_host: bool) -> str:
    if not chosen.timed:
        return "single calls were not timed: limits only"
    return "adds up to all host time of operators" if by_host else "adds up to all device time"


def _kind_sums(ops: pd.DataFrame) -> dict[str, np.ndarray]:
    """Per kind, over its modelled calls: calls, limit, time above it, efficiency, work and rates. NaN is unknown."""
    covered = ops["modelled"].to_numpy()
    kind = ops["kind"].cat.codes.to_numpy().astype(np.int64)
    measured = ops["measured_ns"].to_numpy(dtype=np.float64)

    def total(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
        mask = mask & np.isfinite(values)
        out = np.bincount(kind[mask], values[mask], minlength=len(KINDS)).astype(np.float64)
        out[np.bincount(kind[mask], minlength=len(KINDS)) == 0] = np.nan
        return out

    sol = ops["sol_ns"].to_numpy(dtype=np.float64)
    timed = np.isfinite(sol) & (measured > 0)
    work = {name: total(ops[column].to_numpy(dtype=np.float64), covered) for name, column in _WORK.items()}
    least, spent, known = total(sol, timed), total(measured, timed), total(measured, covered)
    flop = np.where(np.nan_to_num(work["flop"]) > 0, work["flop"], np.where(work["vector_flop"] > 0, work["vector_flop"], np.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        return work | {
            "calls": np.bincount(kind[covered], launches_of(ops)[covered], minlength=len(KINDS)).astype(np.float64),
            "sol_ns": total(sol, np.isfinite(sol)),
            "wasted_ns": spent - least,
            "efficiency": least / spent,
            "achieved_flop_per_s": flop / known * 1e9,
            "achieved_bytes_per_s": work["bytes"] / known * 1e9,
        }


_WORK: Final = {"flop": "flop", "vector_flop": "flop_vector", "bytes": "bytes"}


# -- what has no model --------------------------------------------------------------------------------------------


def unmodelled_table(found: pd.DataFrame, chosen: Selection) -> TableSection:
    """What has no model, largest first, with what is missing."""
    bare = chosen.parts.get(NO_MODEL, 0)
    share = f", {human(bare / chosen.whole_ns, 'ratio')} of the time" if chosen.whole_ns else ""
    return make_table(
        "unmodelled",
        "Not modelled",
        found,
        UNMODELLED_COLUMNS if chosen.timed else _untimed(UNMODELLED_COLUMNS),
        sort=Sort("measured_ns" if chosen.timed else "calls"),
        subtitle=f"{human(bare, 'ns')}{share}" if bare else "",
        empty=EVERYTHING if chosen.modelled_ns == chosen.whole_ns and (chosen.timed or NO_MODEL not in chosen.parts) else EVERY_OPERATOR,
    )


NEED_TIME: Final = ("device_ns", "measured_ns", "share", "wasted_ns", "efficiency", "achieved_flop_per_s", "achieved_bytes_per_s")


def _untimed(columns: Sequence[Column]) -> list[Column]:
    """Columns of a selection whose calls were not timed: those that need a time are shown only when a reader asks for them."""
    return [ranked(c, 3) if c.name in NEED_TIME else c for c in columns]


def _integers(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Sums as whole numbers; unknown stays unknown, and so does what no integer holds (shapes that no memory holds)."""
    whole = {c: pd.array([round(v) if abs(v) < 2**63 else None for v in frame[c].tolist()], dtype="Int64") for c in columns}
    return frame.assign(**whole)


# -- Totals of the roofline's selection and the limits in use --------------------------------------------------------


OF_A_TIME: Final = (
    "device_ns", "measured_ns", "sol_ns", "efficiency", "modelled_share", "unmodelled_ns", "apart_ns", "no_operator_ns",
)  # fmt: skip
"""Facts that are left out where they are unknown: without times of calls, without a device or its limits."""
UNVERIFIED: Final = Mark("unverified", "this figure of the device table is not confirmed")


def facts_of(capture: Capture, done: Work, chosen: Selection, part: Scope) -> dict[str, Scalar]:
    """Every fact by name. Sums before ratios; unknown is None."""
    spec, ops = done.spec, chosen.ops
    sol = ops["sol_ns"].to_numpy(dtype=np.float64)
    time = ops["measured_ns"].to_numpy(dtype=np.float64)
    timed = np.isfinite(sol) & (time > 0)
    measured, least = round(float(time[timed].sum())), float(sol[timed].sum())
    limited = timed | (np.isfinite(sol) & np.isnan(time))
    facts: dict[str, Scalar] = {
        "device": spec.name if spec else _recorded_name(capture, done),
        "limits_from": spec.method if spec else "none",
    }
    if spec is not None:
        main = main_dtype(ops)
        facts["peak_flop_per_s"] = spec.matrix_peak(main) if main else None
        facts |= {f"{PEAK}{dtype}": spec.matrix_peak(dtype) for dtype in MATRIX_COLUMNS if spec.matrix_peak(dtype) is not None}
        facts[f"{PEAK}vector"] = spec.vector_peak("")
        facts["peak_bytes_per_s"] = spec.memory_bandwidth
        if main and spec.achievable(main) is not None:
            facts["achievable_flop_per_s"] = spec.achievable(main)
        facts |= _use(capture, done, part, spec)
    facts |= {
        "total_flop": known_total(ops, "flop"),
        "total_vector_flop": known_total(ops, "flop_vector"),
        "total_bytes": known_total(ops, "bytes"),
        "device_ns": None if done.by_host_time or not chosen.timed else chosen.whole_ns,
        "measured_ns": measured if timed.any() else None,
        "sol_ns": round(float(sol[limited].sum())) if limited.any() else None,
        "efficiency": least / measured if measured else None,
        "modelled_share": chosen.modelled_ns / chosen.whole_ns if chosen.whole_ns else None,
        "unmodelled_ns": chosen.whole_ns - chosen.modelled_ns if chosen.timed else None,
        "apart_ns": chosen.apart_ns if chosen.timed else None,
        "no_operator_ns": sum(chosen.outside.values()) if chosen.timed else None,
    }
    check = check_of(capture, done, part)
    if check is not None:
        facts |= {"explained_flop": round(check.explained / check.steps), "counted_flop": round(check.counted / check.steps)}
    return facts


def check_mark(capture: Capture, done: Work, part: Scope) -> Mark | None:
    """Where a trace that should explain all of its work differs from what the SOL capture beside it counted."""
    check = check_of(capture, done, part)
    if check is None or check.agree or not check.counted:
        return None
    part_of, word = human(abs(check.explained / check.counted - 1), "ratio"), "more" if check.explained > check.counted else "less"
    return Mark("flagged", f"{part_of} {word} than the SOL capture counted: one of them misses work, or counts some twice")


def _use(capture: Capture, done: Work, part: Scope, spec: DeviceSpec) -> dict[str, Scalar]:
    """MFU, HFU and bandwidth utilisation over the complete steps of the selection; nothing where no step was recorded.

    The steps of a SOL capture last as long as those of the same work in which nothing was counted, where there are any.
    """
    windows, rows = windows_of(capture, part)
    if not rows:
        return {}
    time = iv.length(windows)
    usual = scope.step_time(capture, rows) if done.from_ledger else None
    if usual is not None:
        time = round(usual.length_ns * len(rows))
    ops = done.ops[np.isin(done.ops["step"].to_numpy(), rows)]
    devices = max(len(np.unique(capture.device["device"].to_numpy())), 1)
    use = utilisation(ops, spec, time, devices=devices)
    return {"mfu": use.mfu, "hfu": use.hfu, "bandwidth_utilisation": use.bandwidth_utilisation, "steps_ns": time}


def _recorded_name(capture: Capture, done: Work) -> str:
    """What the recording calls a device without known limits."""
    names = sorted({props.name for props in devices_in_use(capture) if props.name})
    return "CPU" if done.by_host_time else ", ".join(names) or "unknown"


def dtypes_with(ops: pd.DataFrame, column: str) -> dict[str, float]:
    """Types that have work in a column of FLOP, with their sums, most first."""
    flop = np.nan_to_num(ops[column].to_numpy(dtype=np.float64))
    codes = ops["dtype"].cat.codes.to_numpy()
    words = [str(d) for d in ops["dtype"].cat.categories]
    sums = np.bincount(np.where(codes < 0, len(words), codes), flop, minlength=len(words) + 1)
    found = {word: float(total) for word, total in zip([*words, ""], sums.tolist(), strict=True) if total > 0}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def main_dtype(ops: pd.DataFrame) -> str:
    """The type that holds most of the matrix work, "" without any."""
    return next(iter(dtypes_with(ops, "flop")), "")


def facts_section(facts: dict[str, Scalar], spec: DeviceSpec | None, types: Sequence[str], check: Mark | None = None) -> FactsSection:
    """The facts, with a mark on every figure of the device that is not confirmed. types: with matrix work, most first."""
    marks: dict[str, Mark] = {} if check is None else {"explained_flop": check}
    main = types[0] if types else ""
    if spec is not None:
        for name in facts:
            dtype = name.removeprefix(PEAK)
            vector = dtype == "vector"
            if name.startswith(PEAK) and spec.is_unverified("fp32" if vector else dtype, vector=vector):
                marks[name] = UNVERIFIED
        if main and spec.is_unverified(main):
            marks["peak_flop_per_s"] = UNVERIFIED
        if "mem_bw_gb_per_s" in spec.unverified:
            marks["peak_bytes_per_s"] = UNVERIFIED
        if "achievable_bf16_tflops" in spec.unverified and "achievable_flop_per_s" in facts:
            marks["achievable_flop_per_s"] = UNVERIFIED
    used = {"vector", *types}  # the peak of the main type stands under the name of the type
    hidden = [name for name in facts if name.startswith(PEAK) and name.removeprefix(PEAK) not in used]
    hidden += [name for name in OF_A_TIME if facts.get(name) is None]
    if f"{PEAK}{main}" in facts or facts.get("peak_flop_per_s") is None:
        hidden.append("peak_flop_per_s")
    if facts.get("hfu") == facts.get("mfu") and "hfu" in facts:
        hidden.append("hfu")
    return make_facts("facts", "Limits and totals", facts, FACTS, marks=marks, hidden=hidden)
