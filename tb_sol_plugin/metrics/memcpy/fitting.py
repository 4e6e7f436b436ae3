"""How long a copy takes by its size: t = latency + bytes / bandwidth, fitted through the fastest copies of each size.

Sizes are taken by octaves (powers of two); of each octave the fastest tenth stands for it, so that copies which waited for others
do not count. The line is the one through two of these points that all lie closest to, far ones counting alike; then least squares
through the points near it, each weighted by its time and by what the clock tells apart. So one slow size moves nothing.
Three filled bins of the histogram are needed. What the points do not determine is not given: there is no line where copies run clearly
faster than its rate, and no latency where it comes out negative, within its own error, or below what a clock of whole microseconds shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memcpy.records import DIRECTIONS, EDGES
from tb_sol_plugin.tables.arrays import Floats

NEEDED: Final = 3
"""Filled bins of the histogram that a fit takes."""
SCATTER: Final = 0.05
"""Relative error of a point beside the clock's: the fastest copies of one size differ by about that much."""
FAR: Final = 0.3
"""Points further off contradict the line and are left out: more of them than points that show its rate, and there is none."""
AT_MOST: Final = 0.5
GROWTH: Final = 0.25
"""Part of the time of the largest copies that their size must explain, or the bandwidth is not determined."""


@dataclass(frozen=True)
class Fit:
    """The line of one direction and pair of memory kinds.

    latency_ns: time of an empty copy; bytes_per_s: rate of an endless one; both NaN where the copies do not determine them, and `why`
    says why ("" where both are there). bins: filled bins of the histogram. copies: those with a size and a time.
    residual: root mean square of the relative distances of the points from the line (NaN without one).
    """

    direction: str
    src_kind: str
    dst_kind: str
    latency_ns: float
    bytes_per_s: float
    bins: int
    copies: int
    residual: float
    why: str = ""


def resolution_ns(found: pd.DataFrame) -> int:
    """What the clock of a recording tells apart: 1000 ns where every duration is a whole number of microseconds, else 1 ns."""
    duration = found["duration_ns"].to_numpy()
    return 1000 if len(duration) and bool((duration % 1000 == 0).all()) else 1


def fits(found: pd.DataFrame) -> list[Fit]:
    """One fit per direction and pair of kinds that has copies with a size and a time, in order of display."""
    known = sized(found[_columns(found)])
    place = {d: i for i, d in enumerate(DIRECTIONS)}
    resolution = resolution_ns(found)
    parts = [
        (str(direction), str(src), str(dst), part)
        for (direction, src, dst), part in known.groupby(["direction", "src_kind", "dst_kind"], sort=True)
    ]
    parts.sort(key=lambda p: place.get(p[0], len(place)))
    return [_fit(part, direction, src, dst, resolution) for direction, src, dst, part in parts]


def latency_fit(found: pd.DataFrame, direction: str) -> tuple[float, float] | None:
    """(latency in ns, bytes/s) of a direction whatever the kinds of memory; None where its copies do not determine both."""
    known = sized(found.loc[(found["direction"] == direction).to_numpy(), _columns(found)])
    fit = _fit(known, direction, "", "", resolution_ns(found))
    return None if fit.why else (fit.latency_ns, fit.bytes_per_s)


def _columns(found: pd.DataFrame) -> list[str]:
    return [c for c in ("direction", "src_kind", "dst_kind", "bytes", "duration_ns", "oversize") if c in found]


def sized(found: pd.DataFrame) -> pd.DataFrame:
    """Copies with a size and a time, without those that are larger than the memory of their device."""
    good = (found["bytes"].to_numpy() > 0) & (found["duration_ns"].to_numpy() > 0)
    if "oversize" in found:
        good &= ~found["oversize"].to_numpy()
    return found[good]


def _fit(known: pd.DataFrame, direction: str, src: str, dst: str, resolution: int) -> Fit:
    size, time = known["bytes"].to_numpy().astype(np.float64), known["duration_ns"].to_numpy().astype(np.float64)
    bins = len(np.unique(np.searchsorted(np.array(EDGES), size, side="left")))

    def said(latency: float = np.nan, rate: float = np.nan, residual: float = np.nan, why: str = "") -> Fit:
        return Fit(direction, src, dst, latency, rate, bins, len(size), residual, why)

    if bins < NEEDED:
        return said(why=f"copies of {bins} size bin{'' if bins == 1 else 's'} only; three are needed")
    x, t = _points(size, time)
    (start, slope), (start_error, slope_error) = _line(x, t, resolution)
    model = start + slope * x
    if slope <= 2 * slope_error or slope * x[-1] < GROWTH * t[-1]:
        return said(why="their times do not grow with their size as a link's do")
    far = _off(t, model, resolution) > FAR
    if far.sum() > (~far & (slope * x >= GROWTH * t)).sum():
        return said(why="too many of their times lie on no line")
    if (slope * x > (1 + FAR) * (t + (resolution if resolution > 1 else 0))).any():
        return said(why="some are faster than the line through the others")
    residual = float(np.sqrt(np.mean((t / model - 1) ** 2))) if (model > 0).all() else np.nan
    rate = 1e9 / slope
    if start <= 0:
        return said(rate=rate, residual=residual, why="the latency is not determined: it comes out negative")
    if start <= 2 * start_error or (resolution > 1 and start < 2 * resolution):
        small = "it is within its own error" if resolution == 1 else "the clock shows whole microseconds, and it is below 2 µs"
        return said(rate=rate, residual=residual, why=f"the latency is not determined: {small}")
    return said(start, rate, residual)


def _points(size: Floats, time: Floats) -> tuple[Floats, Floats]:
    """(bytes, ns) of the fastest tenth of each octave of sizes, smallest first."""
    octave = np.floor(np.log2(size))
    order = np.lexsort((time, octave))
    begin = np.flatnonzero(np.concatenate(([True], np.diff(octave[order]) > 0)))
    count = np.diff(np.concatenate((begin, [len(order)])))
    picked = [order[b : b + max(1, n // 10)] for b, n in zip(begin.tolist(), count.tolist(), strict=True)]
    return np.array([np.median(size[p]) for p in picked]), np.array([np.median(time[p]) for p in picked])


def _line(x: Floats, t: Floats, resolution: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """((start, slope), their standard errors) of t = start + slope x through most of the points."""
    unit = float(x.max())
    design = np.stack((np.ones(len(x)), x / unit), axis=1)
    answer = _through_most(x / unit, t, resolution)
    covariance: Floats = np.full((2, 2), np.inf)
    for _ in range(10):
        model = design @ answer
        on_line = _off(t, model, resolution) <= FAR
        weight = on_line / np.sqrt((SCATTER * np.maximum(model, SCATTER * t)) ** 2 + resolution**2)
        before = answer
        answer = np.asarray(np.linalg.lstsq(design * weight[:, None], t * weight, rcond=None)[0], np.float64)
        spread = max(1.0, float(np.sum((weight * (t - design @ answer)) ** 2)) / max(int(on_line.sum()) - 2, 1))
        covariance = np.asarray(np.linalg.pinv((design * weight[:, None]).T @ (design * weight[:, None])) * spread, np.float64)
        if np.allclose(before, answer, rtol=1e-9, atol=0):
            break
    start_error, slope_error = np.sqrt(np.maximum(np.diag(covariance), 0)).tolist()
    return (float(answer[0]), float(answer[1]) / unit), (float(start_error), float(slope_error) / unit)


def _through_most(x: Floats, t: Floats, resolution: int) -> Floats:
    """Of the lines through two points the one that all points lie closest to, where no point counts for more than `AT_MOST`."""
    i, j = np.triu_indices(len(x), 1)
    slope = (t[j] - t[i]) / (x[j] - x[i])
    start = t[i] - slope * x[i]
    off = _off(t[None, :], start[:, None] + slope[:, None] * x[None, :], resolution)
    best = int(np.argmin(np.minimum(off, AT_MOST).sum(axis=1)))
    return np.array([start[best], slope[best]])


def _off(t: Floats, model: Floats, resolution: int) -> Floats:
    """Distance of points from a line as a part of the larger of both times; nothing within the clock's resolution."""
    distance = np.maximum(np.abs(t - model) - (resolution if resolution > 1 else 0), 0)
    return np.asarray(distance / np.maximum(t, model), np.float64)
