"""Computes rooflines on single numbers, for pages and for the recorder.

    t = max(F / P, Fv / Pv, Q / W)      AI = F / Q      ridge = P / W      efficiency = t / t_measured

F, P: matrix FLOP and peak of their dtype; Fv, Pv: vector FLOP and peak; Q, W: bytes and memory bandwidth. None is unknown, and so is a
rate of 0. This module imports no other package, so a training process may load it; `cost.roofline` does the same over arrays.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

Bound: TypeAlias = Literal["none", "compute", "memory"]

TOLERATED: Final = 1.02
"""An efficiency above this is flagged, never cut off: a wrong dtype or peak, or data that never left the cache."""


class Limit(NamedTuple):
    """The least time of an operation in seconds, and what sets it; (None, "none") where it is unknown, (0, "none") without work."""

    seconds: float | None
    bound: Bound


def limit(
    flop: float | None, flop_vector: float | None, data: float | None, *, peak: float | None, vector_peak: float | None,
    bandwidth: float | None,
) -> Limit:  # fmt: skip
    """Returns the limit of some work. Work in FLOP and bytes, peaks in FLOP/s, bandwidth in bytes/s.

    Matrix work without a peak has no limit, and neither has vector work whose traffic is unknown. Where only the traffic of matrix work
    or the bandwidth is unknown, its compute time stands alone: a lower bound.
    """
    matrix = quotient(flop, peak) if flop else 0.0
    if matrix is None:
        return Limit(None, "none")
    vector = quotient(flop_vector, vector_peak) if flop_vector else 0.0
    compute = max(matrix, vector or 0.0)
    memory = quotient(data, bandwidth)
    if memory is None:
        return Limit(compute, "compute") if flop else Limit(None, "none")
    seconds = max(compute, memory)
    if not seconds:
        return Limit(0.0, "none")
    return Limit(seconds, "compute" if compute >= memory else "memory")


def quotient(above: float | None, below: float | None) -> float | None:
    """Returns above / below; None where one is unknown or `below` is not positive."""
    return above / below if above is not None and below is not None and below > 0 else None


def intensity(flop: float | None, data: float | None) -> float | None:
    """Returns arithmetic intensity in FLOP per byte."""
    return quotient(flop, data)


def ridge(peak: float | None, bandwidth: float | None) -> float | None:
    """Returns the arithmetic intensity in FLOP per byte below which memory sets the limit."""
    return quotient(peak, bandwidth) if peak else None


def efficiency(least: float | None, measured: float | None) -> float | None:
    """Returns least over measured time, both in one unit; above 1 where the limit was exceeded."""
    return quotient(least, measured)


def exceeds_limit(ratio: float | None) -> bool:
    """Whether an efficiency is above the limit by more than is tolerated."""
    return ratio is not None and ratio > TOLERATED


def vector_dtype(dtype: str) -> Literal["fp64", "fp32"]:
    """Returns the dtype whose vector peak holds for `dtype`: FP64 has its own, everything else computes at the FP32 rate."""
    return "fp64" if dtype == "fp64" else "fp32"
