"""What a link or memory can do in a direction, what copies reach of it, and what they say about the limit that is assumed.

Bandwidth is sum of bytes over sum of time of the copies that carry bytes, never a mean of rates. Recordings do not tell the link:
its limit is an assumption, and copies that contradict it are shown (`evidence`), never clamped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.devices.spec import PCIE_BYTES_PER_S, DeviceSpec
from tb_sol_plugin.metrics.memcpy.fitting import Fit, fits, latency_fit, resolution_ns, sized
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

__all__ = [
    "LARGE", "OVER", "Evidence", "Fit", "columns", "evidence", "expected", "fits", "latency_fit", "peaks", "rate", "suits",
]  # fmt: skip

LARGE: Final = 1 << 20
"""Copies of at least 1 MiB say something about the link; smaller ones are bound by latency."""
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
    """Bytes per second; NaN where there is no size or no time."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where((size > 0) & (time_ns > 0), size / time_ns * 1e9, np.nan), np.float64)


# -- limits ---------------------------------------------------------------------------------------------------


def peaks(spec: DeviceSpec | None) -> Limits:
    """Bytes/s that a direction can reach at most, and what limits it; directions without a known limit are left out.

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
    """The column of the table of devices behind the limit of each direction, to look up where it is from."""
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
    """(low, high) share of the limit that large copies between these kinds usually reach; None where nothing is known.

    Measured over PCIe 4.0 x16 (31.5 GB/s) on an RTX 4090: pinned 22.5 to 26.6 GB/s, pageable 9 to 18.
    """
    return _EXPECTED.get("Pageable" if "Pageable" in (src_kind, dst_kind) else "Pinned" if "Pinned" in (src_kind, dst_kind) else "")


def suits(bytes_per_s: float) -> tuple[str, str]:
    """(the slowest usual PCIe that carries a rate, what to write for it): `("PCIe 3.0 x16 or 4.0 x8", "+pcie=3x16")`; "" without one.

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
    """What large copies of a direction say against its limit.

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
    """What contradicts the limits, at most one line per direction; directions whose copies agree with their limit are left out.

    found: `records.copies(...)`. Only copies of at least 1 MiB count. A copy counts as faster than the limit where it is by more than
    5 % and by more than the clock's resolution explains. spec: for the size of its L2 cache.
    """
    at = np.flatnonzero(found["bytes"].to_numpy() >= LARGE)
    needed = [c for c in ("direction", "src_kind", "dst_kind", "bytes", "duration_ns", "oversize") if c in found]
    large = sized(found[needed].iloc[at].assign(_row=at))
    resolution = resolution_ns(found)
    out = []
    for direction, (limit, words) in limits.items():
        mine = large[large["direction"] == direction]
        if len(mine):
            said = _judge(direction, mine, limit, words, resolution, spec)
            out += [said] if said is not None else []
    return out


def _judge(direction: str, mine: pd.DataFrame, limit: float, words: str, resolution: int, spec: DeviceSpec | None) -> Evidence | None:
    size, time = mine["bytes"].to_numpy(), mine["duration_ns"].to_numpy()
    each, surely = size / time * 1e9, size / (time + (resolution if resolution > 1 else 0)) * 1e9
    fastest = int(np.argmax(surely))
    row, top = int(mine["_row"].to_numpy()[fastest]), float(each[fastest])
    told, assumed = f"{human(float(size[fastest]), 'B')} at {human(top, 'B/s')}", f"{human(limit, 'B/s')} of {words}"

    def say(verdict: Verdict, reached: float, text: str, better: tuple[str, str] = ("", "")) -> Evidence:
        return Evidence(direction, verdict, limit, words, reached, reached / limit, row, *better, text)

    pcie = words.startswith("PCIe") and direction in ("HtoD", "DtoH")
    if surely[fastest] > OVER * limit:
        if _cached(direction, size[surely > OVER * limit], spec):
            return say("cache", top, f"The fastest copy, {told}, beats the {assumed}: it is small enough for the L2 cache.")
        better = suits(top) if pcie else ("", "")
        more = f" {better[0]} would suit; say so with {better[1]}." if better[0] else ""
        return say("wrong", top, f"The link assumption is wrong: a copy of {told} is faster than the {assumed}.{more}", better)
    kinds = mine["src_kind"].to_numpy(object), mine["dst_kind"].to_numpy(object)
    pinned, pageable = ((kinds[0] == k) | (kinds[1] == k) for k in ("Pinned", "Pageable"))
    if pcie and pinned.sum() >= FEW:
        best = float(np.percentile(each[pinned], 90))
        if best <= SLOW * limit:
            better = suits(best)
            text = (
                f"The fastest pinned copies reach {human(best, 'B/s')}, {human(best / limit, 'ratio')} of the {assumed}: {better[0]} "
                f"would suit. If the device is plugged in so, say {better[1]}."
            )
            return say("slow", best, text, better)
    if pcie and pageable.sum() >= FEW:
        reached = float(size[pageable].sum() / time[pageable].sum() * 1e9)
        most = _EXPECTED["Pageable"][1]
        if reached > most * limit:
            text = (
                f"Pageable copies reach {human(reached, 'B/s')}, {human(reached / limit, 'ratio')} of the {assumed}; "
                f"{human(most, 'ratio')} is usually the most: the link may be faster than assumed."
            )
            return say("pageable", reached, text)
    return None


def _cached(direction: str, size: npt.NDArray[np.int64], spec: DeviceSpec | None) -> bool:
    """Whether copies inside a device are small enough that source and destination fit into its L2 cache."""
    ends = {"DtoD": 2, "Memset": 1}.get(direction, 0)
    return bool(ends and spec is not None and spec.l2_bytes and int(size.max()) * ends <= spec.l2_bytes)
