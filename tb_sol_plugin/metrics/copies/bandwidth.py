"""Measures bandwidth of copies by direction: the limit of the link or memory, the rate that copies reach, and evidence against the limit.

Bandwidth is sum of bytes over sum of time of the copies that carry bytes, never a mean of rates. Recordings do not state the link:
its limit is an assumption, and copies that contradict it are shown (`evidence`), never clamped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.devices.spec import PCIE_BYTES_PER_S, DeviceSpec
from tb_sol_plugin.metrics import kept_with
from tb_sol_plugin.metrics.copies.records import BINS, DIRECTIONS, EDGES, memory_kinds
from tb_sol_plugin.metrics.time.attribution import sum_by
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, Places
from tb_sol_plugin.units import human

# -- How long a copy takes by its size -------------------------------------------------------------------------------
# t = latency + bytes / bandwidth, fitted through the fastest copies of each size.
#
# Sizes are taken by octaves (powers of two); of each octave the fastest tenth represents it, so that copies which waited for others
# do not count. The line is the one through two of these points that all lie closest to, far ones counting alike; then least squares
# through the points near it, each weighted by its time and by the resolution of the clock. So one slow size changes nothing.
# Three filled bins of the histogram are needed. What the points do not determine is not given: there is no line where copies run clearly
# faster than its rate, and no latency where it comes out negative, within its own error, or below what a clock of whole microseconds shows.


NEEDED: Final = 3
"""Filled bins of the histogram that a fit takes."""
SCATTER: Final = 0.05
"""Relative error of a point in addition to the clock's: the fastest copies of one size differ by about that much."""
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
    """Returns the resolution of the clock of a recording: 1000 ns where every duration is a whole number of microseconds, else 1 ns."""
    duration = found["duration_ns"].to_numpy()
    return 1000 if len(duration) and bool((duration % 1000 == 0).all()) else 1


def fits(found: pd.DataFrame) -> list[Fit]:
    """Returns one fit per direction and pair of kinds that has copies with a size and a time, in order of display; each is made once."""
    return [_fit_of(found, group) for group in _groups(found)[1]]


def latency_fit(found: pd.DataFrame, direction: str) -> tuple[float, float] | None:
    """Returns (latency in ns, bytes/s) of a direction whatever the kinds of memory; None where its copies do not determine both."""
    same = [group for group in _groups(found)[1] if group[1] == direction]
    if len(same) == 1:
        fit = _fit_of(found, same[0])
    else:
        fit = kept_with(found, ("copies.fit", direction), lambda: _fit_of_direction(found, direction))
    return None if fit.why else (fit.latency_ns, fit.bytes_per_s)


_Group: TypeAlias = tuple[int, str, str, str, int]
"""Place in order of display, direction, kinds of both ends, and the number of them in `records.memory_kinds`."""


def _groups(found: pd.DataFrame) -> tuple[Mask, list[_Group]]:
    """Returns (copies with a size and a time; their directions and pairs of kinds, in order of display)."""

    def make() -> tuple[Mask, list[_Group]]:
        good, (code, kinds) = _sized(found), memory_kinds(found)
        place = {d: i for i, d in enumerate(DIRECTIONS)}
        there = np.flatnonzero(np.bincount(code[good], minlength=len(kinds))).tolist()
        return good, sorted((place.get(kinds[i][0], len(place)), *kinds[i], i) for i in there)

    return kept_with(found, "copies.fit_groups", make)


def _fit_of(found: pd.DataFrame, group: _Group) -> Fit:
    """Returns the fit of the copies of one direction between two kinds of memory."""

    def make() -> Fit:
        _, direction, src, dst, number = group
        return _fit(found, _groups(found)[0] & (memory_kinds(found).code == number), direction, src, dst)

    return kept_with(found, ("copies.fit", group), make)


def _fit_of_direction(found: pd.DataFrame, direction: str) -> Fit:
    return _fit(found, _groups(found)[0] & (found["direction"].to_numpy(object) == direction), direction, "", "")


def _sized(found: pd.DataFrame) -> Mask:
    good: Mask = (found["bytes"].to_numpy() > 0) & (found["duration_ns"].to_numpy() > 0)
    if "oversize" in found:
        good &= ~found["oversize"].to_numpy()
    return good


def sized(found: pd.DataFrame) -> pd.DataFrame:
    """Returns copies with a size and a time, without those that are larger than the memory of their device."""
    return found[_sized(found)]


def _fit(found: pd.DataFrame, rows: Mask, direction: str, src: str, dst: str) -> Fit:
    size, time = (found[name].to_numpy()[rows].astype(np.float64) for name in ("bytes", "duration_ns"))
    resolution = resolution_ns(found)
    bins = int(np.count_nonzero(np.bincount(_bin(size), minlength=len(BINS))))

    def fit(latency: float = np.nan, rate: float = np.nan, residual: float = np.nan, why: str = "") -> Fit:
        return Fit(direction, src, dst, latency, rate, bins, len(size), residual, why)

    if bins < NEEDED:
        return fit(why=f"copies of {bins} size bin{'' if bins == 1 else 's'} only; three are needed")
    x, t = _points(size, time)
    (start, slope), (start_error, slope_error) = _line(x, t, resolution)
    model = start + slope * x
    if slope <= 2 * slope_error or slope * x[-1] < GROWTH * t[-1]:
        return fit(why="their times do not grow with their size as a link's do")
    far = _off(t, model, resolution) > FAR
    if far.sum() > (~far & (slope * x >= GROWTH * t)).sum():
        return fit(why="too many of their times lie on no line")
    if (slope * x > (1 + FAR) * (t + (resolution if resolution > 1 else 0))).any():
        return fit(why="some are faster than the line through the others")
    residual = float(np.sqrt(np.mean((t / model - 1) ** 2))) if (model > 0).all() else np.nan
    rate = 1e9 / slope
    if start <= 0:
        return fit(rate=rate, residual=residual, why="the latency is not determined: it comes out negative")
    if start <= 2 * start_error or (resolution > 1 and start < 2 * resolution):
        small = "it is within its own error" if resolution == 1 else "the clock shows whole microseconds, and it is below 2 µs"
        return fit(rate=rate, residual=residual, why=f"the latency is not determined: {small}")
    return fit(start, rate, residual)


def _bin(size: npt.NDArray[np.generic]) -> npt.NDArray[np.intp]:
    """Returns the size bin of each copy, an index into BINS."""
    return np.searchsorted(np.array(EDGES), size, side="left")


def _points(size: Floats, time: Floats) -> tuple[Floats, Floats]:
    """Returns (bytes, ns) of the fastest tenth of each octave of sizes, smallest first."""
    octave = np.floor(np.log2(size))
    order = np.lexsort((time, octave))
    opens = np.flatnonzero(np.concatenate(([True], np.diff(octave[order]) > 0)))
    count = np.diff(np.append(opens, len(order)))
    tenth = np.maximum(1, count // 10)
    code = np.repeat(np.arange(len(opens)), tenth)
    picked = order[np.repeat(opens, tenth) + np.arange(len(code)) - np.repeat(np.cumsum(tenth) - tenth, tenth)]
    return arrays.medians(code, size[picked], len(opens)), arrays.medians(code, time[picked], len(opens))


def _line(x: Floats, t: Floats, resolution: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns ((start, slope), their standard errors) of t = start + slope x through most of the points."""
    unit = float(x.max())
    design = np.stack((np.ones(len(x)), x / unit), axis=1)
    answer = _through_most(x / unit, t, resolution)
    for _ in range(10):
        model = design @ answer
        on_line = _off(t, model, resolution) <= FAR
        weight = on_line / np.sqrt((SCATTER * np.maximum(model, SCATTER * t)) ** 2 + resolution**2)
        before, weighted = answer, design * weight[:, None]
        answer = np.asarray(np.linalg.lstsq(weighted, t * weight, rcond=None)[0], np.float64)
        if (np.abs(before - answer) <= 1e-9 * np.abs(answer)).all():
            break
    spread = max(1.0, float(np.sum((weight * (t - design @ answer)) ** 2)) / max(int(on_line.sum()) - 2, 1))
    covariance = np.asarray(np.linalg.pinv(weighted.T @ weighted) * spread, np.float64)
    start_error, slope_error = np.sqrt(np.maximum(np.diag(covariance), 0)).tolist()
    return (float(answer[0]), float(answer[1]) / unit), (float(start_error), float(slope_error) / unit)


def _through_most(x: Floats, t: Floats, resolution: int) -> Floats:
    """Returns, of the lines through two points, the one that all points lie closest to. No point counts for more than `AT_MOST`."""
    i, j = np.triu_indices(len(x), 1)
    slope = (t[j] - t[i]) / (x[j] - x[i])
    start = t[i] - slope * x[i]
    off = _off(t[None, :], start[:, None] + slope[:, None] * x[None, :], resolution)
    best = int(np.argmin(np.minimum(off, AT_MOST).sum(axis=1)))
    return np.array([start[best], slope[best]])


def _off(t: Floats, model: Floats, resolution: int) -> Floats:
    """Returns the distance of points from a line as a part of the larger of both times; nothing within the clock's resolution."""
    distance = np.maximum(np.abs(t - model) - (resolution if resolution > 1 else 0), 0)
    return np.asarray(distance / np.maximum(t, model), np.float64)


LARGE: Final = 1 << 20
"""Copies of at least 1 MiB show the bandwidth of the link; smaller ones are bound by latency."""
OVER: Final = 1.05
"""Share of the limit above which the assumption is wrong."""
SLOW: Final = OVER / 2
"""Share of the limit up to which the fastest pinned copies would fit a link of half the rate: one generation or half the lanes less."""
FEW: Final = 3
"""Copies that it takes to call a link slow."""
_EXPECTED: Final = {"Pinned": (0.65, OVER), "Pageable": (0.0, 0.6)}
Limits: TypeAlias = dict[str, tuple[float, str]]
Verdict: TypeAlias = Literal["wrong", "cache", "slow", "pageable"]


def rate(size: Ints, time_ns: Ints) -> npt.NDArray[np.float64]:
    """Returns bytes per second; NaN where there is no size or no time."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where((size > 0) & (time_ns > 0), size / time_ns * 1e9, np.nan), np.float64)


# -- limits ---------------------------------------------------------------------------------------------------


def peaks(spec: DeviceSpec | None) -> Limits:
    """Returns bytes/s that a direction can reach at most, and what limits it; directions without a known limit are left out.

    Host copies go over PCIe, or over the link inside of a package (C2C) where there is one. A copy to another device goes over all links
    of NVLink, over one link of xGMI, and over PCIe where the device has neither. A copy on one device reads and writes each byte, so
    it gets half of the memory bandwidth. Copies within the host have no limit here.
    """
    if spec is None:
        return {}
    out: Limits = {}
    host = _host_link(spec)
    if host is not None:
        out |= dict.fromkeys(("HtoD", "DtoH"), host)
    if spec.memory_bandwidth is not None:
        out |= {"DtoD": (spec.memory_bandwidth / 2, "memory / 2"), "Memset": (spec.memory_bandwidth, "memory")}
    peer, kind = spec.peer_bytes_per_s, spec.link_kind.lower()
    if peer is not None:
        words = {"nvlink": "NVLink", "xgmi": "xGMI", "roce": "RoCE"}.get(kind, spec.link_kind or "link")
        out["PtoP"] = (peer, f"{words}, one link" if peer != spec.link_bytes_per_s else words)
    elif kind == "none" and spec.pcie_bytes_per_s is not None:
        out["PtoP"] = (spec.pcie_bytes_per_s, _pcie(spec))
    return out


def columns(spec: DeviceSpec) -> dict[str, str]:
    """Returns the column of the table of devices that the limit of each direction is from."""
    host = "c2c_bidir_gb_per_s" if spec.c2c_bytes_per_s is not None else "pcie_gen"
    peer = "pcie_gen" if spec.link_bytes_per_s is None else "link_bidir_gb_per_s"
    return {"HtoD": host, "DtoH": host, "DtoD": "mem_bw_gb_per_s", "Memset": "mem_bw_gb_per_s", "PtoP": peer}


def _host_link(spec: DeviceSpec) -> tuple[float, str] | None:
    if spec.c2c_bytes_per_s is not None:
        return spec.c2c_bytes_per_s, "C2C"
    return (spec.pcie_bytes_per_s, _pcie(spec)) if spec.pcie_bytes_per_s is not None else None


def _pcie(spec: DeviceSpec) -> str:
    return f"PCIe {spec.pcie_gen}.0 x{spec.pcie_lanes}" if spec.pcie_gen else "PCIe"


def expected(src_kind: str, dst_kind: str) -> tuple[float, float] | None:
    """Returns (low, high) share of the limit that large copies between these kinds usually reach; None where nothing is known.

    Measured over PCIe 4.0 x16 (31.5 GB/s) on an RTX 4090: pinned 22.5 to 26.6 GB/s, pageable 9 to 18.
    """
    return _EXPECTED.get("Pageable" if "Pageable" in (src_kind, dst_kind) else "Pinned" if "Pinned" in (src_kind, dst_kind) else "")


def suits(bytes_per_s: float) -> tuple[str, str]:
    """Returns (the slowest usual PCIe that carries a rate, what to write for it): `("PCIe 3.0 x16 or 4.0 x8", "+pcie=3x16")`.

    "" without one.

    A generation doubles the rate of a lane (nearly, the sixth): two widths of two generations carry the same.
    """
    levels: dict[int, list[tuple[int, int]]] = {}
    for generation, peak in PCIE_BYTES_PER_S.items():
        for lanes in (16, 8, 4):
            levels.setdefault(round(np.log2(peak * lanes / 16 / PCIE_BYTES_PER_S[3])), []).append((generation, lanes))
    for level in sorted(levels):
        ways = sorted(levels[level], key=lambda way: -way[1])
        generation, lanes = ways[0]
        if bytes_per_s <= OVER * PCIE_BYTES_PER_S[generation] * lanes / 16:
            return "PCIe " + " or ".join(f"{g}.0 x{n}" for g, n in ways[:2]), f"+pcie={generation}x{lanes}"
    return "", ""


# -- evidence -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """Evidence of the large copies of a direction against its limit.

    verdict: wrong (faster than the limit), cache (faster than memory, but small enough for the L2 cache), slow (the fastest pinned
    copies would fit a link of half the rate), pageable (pageable copies come closer to the limit than they usually do).
    bytes_per_s: the rate that shows it, share: of the limit. row: position in `found` of the fastest large copy.
    suits, override: a PCIe that would fit and how to ask for it, "" none. text: all this for a person.
    """

    direction: str
    verdict: Verdict
    limit_bytes_per_s: float
    words: str
    bytes_per_s: float
    share: float
    row: int
    suits: str
    override: str
    text: str


def evidence(found: pd.DataFrame, limits: Limits, spec: DeviceSpec | None = None) -> list[Evidence]:
    """Returns copies that contradict the limits, at most one line per direction.

    Directions whose copies agree with their limit are left out.

    found: `records.copies(...)`. Only copies of at least 1 MiB count. A copy counts as faster than the limit where it is by more than
    5 % and by more than the clock's resolution explains. spec: for the size of its L2 cache.
    """
    large = np.flatnonzero(_sized(found) & (found["bytes"].to_numpy() >= LARGE))
    of_large = found["direction"].to_numpy(object)[large]
    resolution = resolution_ns(found)
    out = []
    for direction, (limit, words) in limits.items():
        rows = large[of_large == direction]
        if len(rows):
            one = _judge(direction, found, rows, limit, words, resolution, spec)
            out += [one] if one is not None else []
    return out


def _judge(
    direction: str, found: pd.DataFrame, rows: Places, limit: float, words: str, resolution: int, spec: DeviceSpec | None
) -> Evidence | None:
    size, time = found["bytes"].to_numpy()[rows], found["duration_ns"].to_numpy()[rows]
    each, surely = size / time * 1e9, size / (time + (resolution if resolution > 1 else 0)) * 1e9
    fastest = int(np.argmax(surely))
    row, top = int(rows[fastest]), float(each[fastest])
    copy, assumed = f"{human(float(size[fastest]), 'B')} at {human(top, 'B/s')}", f"{human(limit, 'B/s')} of {words}"

    def result(verdict: Verdict, reached: float, text: str, better: tuple[str, str] = ("", "")) -> Evidence:
        return Evidence(direction, verdict, limit, words, reached, reached / limit, row, *better, text)

    pcie = words.startswith("PCIe") and direction in ("HtoD", "DtoH")
    if surely[fastest] > OVER * limit:
        if _cached(direction, size[surely > OVER * limit], spec):
            return result("cache", top, f"The fastest copy, {copy}, beats the {assumed}: it is small enough for the L2 cache.")
        better = suits(top) if pcie else ("", "")
        more = f" {better[0]} would fit; set it with {better[1]}." if better[0] else ""
        return result("wrong", top, f"The link assumption is wrong: a copy of {copy} is faster than the {assumed}.{more}", better)
    kinds = [found[name].to_numpy(object)[rows] for name in ("src_kind", "dst_kind")]
    pinned, pageable = ((kinds[0] == k) | (kinds[1] == k) for k in ("Pinned", "Pageable"))
    if pcie and pinned.sum() >= FEW:
        best = float(np.percentile(each[pinned], 90))
        if best <= SLOW * limit:
            better = suits(best)
            text = (
                f"The fastest pinned copies reach {human(best, 'B/s')}, {human(best / limit, 'ratio')} of the {assumed}: {better[0]} "
                f"would fit. If the device is connected this way, set {better[1]}."
            )
            return result("slow", best, text, better)
    if pcie and pageable.sum() >= FEW:
        reached = float(size[pageable].sum() / time[pageable].sum() * 1e9)
        most = _EXPECTED["Pageable"][1]
        if reached > most * limit:
            text = (
                f"Pageable copies reach {human(reached, 'B/s')}, {human(reached / limit, 'ratio')} of the {assumed}; "
                f"{human(most, 'ratio')} is usually the most: the link may be faster than assumed."
            )
            return result("pageable", reached, text)
    return None


def _cached(direction: str, size: npt.NDArray[np.int64], spec: DeviceSpec | None) -> bool:
    """Returns whether copies inside a device are small enough that source and destination fit into its L2 cache."""
    ends = {"DtoD": 2, "Memset": 1}.get(direction, 0)
    return bool(ends and spec is not None and spec.l2_bytes and int(size.max()) * ends <= spec.l2_bytes)


# -- Copies by size --------------------------------------------------------------------------------------------------
# the bins, and what is in each.


def sizes(found: pd.DataFrame) -> dict[str, npt.NDArray[Any]]:
    """Returns the size histogram as arrays by name: direction, bin (index into BINS), count, bytes, time_ns, bandwidth_bytes_per_s.

    In order of display, filled bins only. Copies without bytes are left out.
    """
    known = found["bytes"].to_numpy() >= 0
    size, time = found["bytes"].to_numpy()[known], found["duration_ns"].to_numpy()[known]
    code, names = pd.factorize(found["direction"].to_numpy(object)[known])
    order = sorted(range(len(names)), key=lambda i: (DIRECTIONS.index(names[i]) if names[i] in DIRECTIONS else len(DIRECTIONS), i))
    place = np.zeros(len(names), np.int64)
    place[order] = np.arange(len(names))
    cell = place[code] * len(BINS) + _bin(size) if len(code) else np.zeros(0, np.int64)
    cells = len(names) * len(BINS)
    count = np.bincount(cell, minlength=cells).astype(np.int64)
    filled = np.flatnonzero(count)
    moved, took = sum_by(cell, size, cells)[filled], sum_by(cell, time, cells)[filled]
    return {
        "direction": np.asarray(names, object)[order][filled // len(BINS)], "bin": filled % len(BINS), "count": count[filled],
        "bytes": moved, "time_ns": took, "bandwidth_bytes_per_s": rate(moved, took),
    }  # fmt: skip
