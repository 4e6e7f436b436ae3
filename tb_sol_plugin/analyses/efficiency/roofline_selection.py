"""What the roofline looks at: the calls of the selection, where their device time belongs, and why a row beats its limit."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.work.costs import KINDS
from tb_sol_plugin.metrics.work.ownership import over_link
from tb_sol_plugin.metrics.work.work import Work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

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
    """Returns the calls of the steps and of the pass asked for. Forward work run again in the backward pass is forward work."""
    keep = np.ones(len(done.ops), bool) if part.whole else np.isin(done.ops["step"].to_numpy(), part.rows)
    if direction != "both":
        keep &= (arrays.coded(done.ops["direction"]).codes == 0) == (direction == "forward")
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
    unmodeled = ~np.append(done.ops["modeled"].to_numpy(), False)[owner]
    outside = np.where(device["link"].to_numpy() == S.BEFORE_WINDOW, 1, np.where(device["link"].to_numpy() == S.NO_RECORD, 2, 0))
    duration = device["duration_ns"].to_numpy().clip(min=0)
    alone = chosen & ~owned
    left = np.bincount(outside[alone], duration[alone], minlength=len(OUTSIDE))
    where = np.where(owned, where, PARTS.index(at.NO_OPERATOR) + outside)
    where[unmodeled & over_link(capture)] = PARTS.index(OVER_LINK)
    where[unmodeled & device["communication"].to_numpy()] = PARTS.index(COMMUNICATION)
    split = np.bincount(where[chosen], duration[chosen], minlength=len(PARTS))
    return _selection(ops, {name: round(ns) for name, ns in zip(OUTSIDE, left.tolist(), strict=True) if ns}, split)


def _kind(ops: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Returns per call the part it belongs to by its cost model, else whether it communicates."""
    part = np.where(ops["collective"].to_numpy(), PARTS.index(COMMUNICATION), PARTS.index(NO_MODEL))
    return np.where(ops["modeled"].to_numpy(), arrays.codes(ops["kind"]), part)


def _selection(ops: pd.DataFrame, outside: dict[str, int], split: npt.NDArray[np.generic]) -> Selection:
    parts = {name: round(ns) for name, ns in zip(PARTS, split.tolist(), strict=True) if ns}
    return Selection(ops, outside, parts, sum(parts.values()))


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
    """Returns one sentence without a full stop. Order: what the kernel's name proves, then what the numbers fit, then what was assumed."""
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
        return "the clock was above the one that the limit assumes"
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
