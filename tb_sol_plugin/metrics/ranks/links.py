"""Compares collectives with the links that they go over: bandwidth by size, and time as a fixed part and one by size.

Algorithm bandwidth is the sum of sizes over the sum of transfers, bus bandwidth that times the factor by which the best algorithm loads a
link (nccl-tests, doc/PERFORMANCE.md). Waits are no part of either. The message curve is transfer = alpha + wire bytes / B, fitted so
that few odd calls do not count (Huber, 1964); alpha holds the microseconds in which members leave a collective, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.ranks.group_kinds import GroupKind
from tb_sol_plugin.metrics.ranks.matching import Matched
from tb_sol_plugin.metrics.ranks.summary import ALGORITHMS, BATCH, DTYPES, KINDS, RankSummary
from tb_sol_plugin.metrics.ranks.waiting import Waits
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask

OF_OUTPUT: Final = "all_gather"
"""The size of this kind is that of its result, of all others that of what goes in, or the larger of both."""
HALVES: Final = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
"""Factor of bus bandwidth, times (n - 1) / n; of other kinds 1."""
LEAST_SIZES: Final = 3
LEAST_SPAN: Final = 8.0
LEAST_CALLS: Final = 20
"""Fewer sizes, sizes closer together, or fewer collectives identify no curve."""
HUBER: Final = 1.345
"""Residuals beyond so many standard deviations count by their sign alone."""
TURNS: Final = 30
LARGEST: Final = 0.1
HIGH: Final = 0.95
"""The observed ceiling is this quantile of bus bandwidths over this part of the sizes, the largest ones, however often each occurs."""


class Peak(NamedTuple):
    """What a link carries one way, bytes/s, and where that is from; None where it is not known. observed: the best of this recording."""

    bytes_per_s: float | None
    source: str
    observed: bool = False


class Sizes(NamedTuple):
    """Of each matched collective: size (bytes, -1 unknown), factor of bus bandwidth, level, group size; which can be compared."""

    size: Ints
    factor: Floats
    level: Ints
    members: Ints
    usable: Mask


LEVELS: Final = ("inside", "between", "mixed", "unknown")


def sizes_of(waited: Waits, kinds: Sequence[GroupKind]) -> Sizes:
    """Returns sizes of collectives; those that can be compared are whole, even, of a known size, and have a transfer."""
    found = waited.found
    calls, first = found.calls, found.first
    kind = calls["kind"][first]
    into, out = calls["bytes_in"][first], calls["bytes_out"][first]
    given = np.isin(kind, [KINDS.index(k) for k in ("all_reduce", "reduce_scatter", "all_to_all")])
    size = np.where(kind == KINDS.index(OF_OUTPUT), out, np.where(given, into, np.maximum(into, out))).astype(np.int64)
    members = found.size
    many = np.maximum(members, 1)
    share = (many - 1) / many
    factor = np.ones(len(found))
    for name, half in HALVES.items():
        factor = np.where(kind == KINDS.index(name), half * share, factor)
    level = np.array([*(LEVELS.index(k.level) for k in kinds), LEVELS.index("unknown")], np.int64)
    uneven = np.asarray(found.most(calls["uneven"][found.rows]), np.bool_) if len(found) else np.zeros(0, np.bool_)
    usable = (waited.transfer_ns > 0) & (size > 0) & (members > 1) & (found.present == members) & ~uneven & ~waited.apart & (kind != BATCH)
    of = found.calls.group_of_channel[found.channel]
    return Sizes(size, factor, level[of], members, np.asarray(usable, np.bool_))


def peaks(waited: Waits, sizes: Sizes, link: Peak, network: float) -> dict[int, Peak]:
    """Returns the peak of each level. link: inside of a host. network: bytes/s of a rank's way to other hosts, 0 unknown."""
    out = {LEVELS.index("inside"): link}
    between, mixed = LEVELS.index("between"), LEVELS.index("mixed")
    out[between] = Peak(network, "given as nic_bytes_per_s") if network > 0 else _observed(waited, sizes, between)
    if network > 0:
        known = [p for p in (link, out[between]) if p.bytes_per_s is not None]
        out[mixed] = min(known, key=lambda p: p.bytes_per_s or 0.0)
    else:
        out[mixed] = _observed(waited, sizes, mixed)
    if link.bytes_per_s is None:
        out[LEVELS.index("inside")] = _observed(waited, sizes, LEVELS.index("inside"))
    return out


def link_of(summaries: Sequence[RankSummary]) -> Peak:
    """Returns what the links of devices carry inside a host, of several the least."""
    known = [(s.link_bytes_per_s, s.link) for s in summaries if s.link_bytes_per_s is not None]
    return Peak(*min(known)) if known else Peak(None, "")


def _observed(waited: Waits, sizes: Sizes, level: int) -> Peak:
    some = np.flatnonzero(sizes.usable & (sizes.level == level))
    if len(some) < LEAST_CALLS:
        return Peak(None, "")
    size, count = np.unique(sizes.size[some], return_counts=True)
    enough = np.flatnonzero(np.cumsum(count[::-1]) >= LEAST_OF_GROUP)[0]  # one call of the largest size tells no ceiling
    some = some[sizes.size[some] >= size[::-1][max(enough, int(len(size) * LARGEST) - 1)]]
    bus = sizes.size[some] * sizes.factor[some] / waited.transfer_ns[some] * 1e9
    return Peak(float(np.quantile(bus, HIGH)), "observed: the best of the largest collectives", True)


def by_size(waited: Waits, kinds: Sequence[GroupKind], sizes: Sizes, peak: dict[int, Peak]) -> pd.DataFrame:
    """Returns one row per kind of collective, parallelism, level, group size, type and size, of collectives that can be compared.

    Columns: kind, group_kind ("" unknown), level, size (members), dtype ("" unknown), bytes, count, transfer_ns, wait_ns (of all members),
    algorithm_bandwidth_bytes_per_s, bus_bandwidth_bytes_per_s, peak_bytes_per_s (NaN unknown), peak_source, efficiency (NaN).
    """
    found, some = waited.found, np.flatnonzero(sizes.usable)
    calls = found.calls
    names = [*dict.fromkeys(k.kind for k in kinds), ""]
    of = calls.group_of_channel[found.channel[some]]
    served = np.array([names.index(k.kind) for k in kinds] or [0], np.int64)[of] if len(some) else some
    _, size = np.unique(sizes.size[some], return_inverse=True)
    kind, dtype = calls["kind"][found.first[some]].astype(np.int64), calls["dtype"][found.first[some]].astype(np.int64)
    code, first = (
        arrays.factorize([kind, served, sizes.level[some], sizes.members[some], dtype, size.reshape(-1)]) if len(some) else (some, some)
    )
    count = np.bincount(code, minlength=len(first))
    wait = np.zeros(len(found), np.int64)
    np.add.at(wait, found.number, np.maximum(waited.wait_ns, 0))
    transfer = arrays.exact_sums(code, waited.transfer_ns[some], len(first))
    at = some[first] if len(some) else some
    algorithm = sizes.size[at] * count / np.maximum(transfer, 1) * 1e9
    bus = algorithm * sizes.factor[at]
    limit = [peak.get(level, Peak(None, "")) for level in sizes.level[at].tolist()]
    highest = np.array([np.nan if p.bytes_per_s is None else p.bytes_per_s for p in limit], np.float64)
    return pd.DataFrame({
        "kind": [KINDS[k] for k in kind[first].tolist()], "group_kind": [names[k] for k in served[first].tolist()],
        "level": [LEVELS[k] for k in sizes.level[at].tolist()], "size": sizes.members[at],
        "dtype": [DTYPES[k] if k >= 0 else "" for k in dtype[first].tolist()], "bytes": sizes.size[at], "count": count,
        "transfer_ns": transfer, "wait_ns": arrays.exact_sums(code, wait[some], len(first)),
        "algorithm_bandwidth_bytes_per_s": algorithm, "bus_bandwidth_bytes_per_s": bus, "peak_bytes_per_s": highest,
        "peak_source": [p.source for p in limit], "efficiency": bus / highest,
    })  # fmt: skip


class Curve(NamedTuple):
    """Transfer against wire bytes: alpha_ns + bytes / bytes_per_s. residual_ns: their median size. why_not: "" where it is identified."""

    level: str
    kind: str
    size: int
    algorithm: str
    alpha_ns: float
    bytes_per_s: float
    residual_ns: float
    instances: int
    why_not: str

    @property
    def half_size_bytes(self) -> float:
        """Size at which half of the time is alpha."""
        return self.alpha_ns * self.bytes_per_s / 1e9


def curves(waited: Waits, sizes: Sizes) -> list[Curve]:
    """Returns the message curve of each level, kind, group size and algorithm, those with the most collectives first."""
    found, some = waited.found, np.flatnonzero(sizes.usable)
    if not len(some):
        return []
    first = found.first[some]
    kind, algorithm = found.calls["kind"][first].astype(np.int64), found.calls["algorithm"][first].astype(np.int64)
    code, unique = arrays.factorize([sizes.level[some], kind, sizes.members[some], algorithm])
    out = []
    for one, at in enumerate(unique.tolist()):
        mine = some[code == one]
        wire, time = sizes.size[mine] * sizes.factor[mine], waited.transfer_ns[mine].astype(np.float64)
        why = _why_not(wire)
        alpha, rate, residual = huber(wire, time) if not why else (np.nan, np.nan, np.nan)
        if not why and not (rate > 0 and alpha >= 0):
            why, alpha, rate, residual = "time does not grow with size", np.nan, np.nan, np.nan
        names = (LEVELS[sizes.level[some[at]]], KINDS[kind[at]], int(sizes.members[some[at]]), ALGORITHMS[algorithm[at]])
        out.append(Curve(*names, alpha, rate, residual, len(mine), why))
    return sorted(out, key=lambda c: -c.instances)


def of_curve(waited: Waits, sizes: Sizes, curve: Curve) -> Mask:
    """Returns which collectives a curve is fitted to."""
    first = waited.found.first
    kind, algorithm = waited.found.calls["kind"][first], waited.found.calls["algorithm"][first]
    same = (sizes.level == LEVELS.index(curve.level)) & (sizes.members == curve.size) & (kind == KINDS.index(curve.kind))
    return np.asarray(sizes.usable & same & (algorithm == ALGORITHMS.index(curve.algorithm)), np.bool_)


def _why_not(wire: Floats) -> str:
    """Returns what is missing for a curve, "" where nothing is."""
    distinct = np.unique(wire)
    if len(wire) < LEAST_CALLS:
        return f"{len(wire)} collectives, {LEAST_CALLS} are needed"
    if len(distinct) < LEAST_SIZES:
        return f"{len(distinct)} size{'s' * (len(distinct) > 1)}, {LEAST_SIZES} are needed"
    span = distinct[-1] / distinct[0]
    return "" if span >= LEAST_SPAN else f"sizes within a factor of {span:.1f}, {LEAST_SPAN:.0f} is needed"


def huber(x: Floats, y: Floats) -> tuple[float, float, float]:
    """Returns (alpha, 1e9 / slope, median absolute residual) of a line through points of which few are odd."""
    scale = float(x.max())
    design = np.stack((np.ones(len(x)), x / scale), axis=1)
    weight = np.ones(len(x))
    fit = new = np.zeros(2)
    for _ in range(TURNS):
        root = np.sqrt(weight)[:, None]
        new = np.asarray(np.linalg.lstsq(design * root, y * root[:, 0], rcond=None)[0], np.float64)
        residual = np.abs(y - design @ new)
        sigma = max(1.4826 * float(np.median(residual)), 1.0)
        weight = np.minimum(1.0, HUBER * sigma / np.maximum(residual, 1e-9))
        if np.allclose(new, fit, rtol=1e-9, atol=1e-3):
            break
        fit = new
    slope = float(new[1]) / scale
    return float(new[0]), 1e9 / slope if slope > 0 else float("nan"), float(np.median(np.abs(y - design @ new)))


# -- Which link is slow -------------------------------------------------------------------------------------------------

SLOW: Final = 0.8
"""A group is slow where it has less than this part of the bandwidth of the fastest group of its kind."""
FAST: Final = 0.9
"""It is fast from this part on; between the two nothing is said of it."""
LARGE: Final = 0.5
"""Bandwidths of groups are compared over collectives of at least this part of the largest size."""
LEAST_OF_GROUP: Final = 3
"""Large collectives of a group that tell its bandwidth."""


class SlowLinks(NamedTuple):
    """Bandwidths of groups beside each other, and the hosts that all slow ones have in common.

    of_fastest: of each channel its bandwidth over that of the fastest one of its kind; NaN where there is none to compare with. hosts:
    places in `calls.domains` of the hosts that are in every slow group and in no fast one. ranks: where there is no such host, the
    numbers of the ranks that are. Both are empty where no group is slow, or the recordings cannot tell.
    """

    of_fastest: Floats
    hosts: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()

    @property
    def slow(self) -> Ints:
        """The slow channels."""
        return np.flatnonzero(self.of_fastest < SLOW)


def slow_links(waited: Waits, sizes: Sizes) -> SlowLinks:
    """Returns how fast groups over several hosts are beside others of their kind, and which hosts make some of them slow.

    Groups compare where they run the same collective over as many ranks on as many hosts. A host is named where groups differ in which
    hosts they contain: where every group contains every host, ranks may still tell.
    """
    found, calls = waited.found, waited.found.calls
    ratio = np.full(calls.channels, np.nan)
    channel, host = _pairs(found, calls.domain)
    hosts = np.bincount(channel, minlength=calls.channels)
    some = np.flatnonzero(sizes.usable & (hosts[found.channel] > 1)) if len(found) else found.channel
    if not len(some):
        return SlowLinks(ratio)
    of = found.channel[some]
    kind, first = arrays.factorize([calls["kind"][found.first[some]].astype(np.int64), sizes.members[some], hosts[of]])
    largest = np.zeros(len(first), np.int64)
    np.maximum.at(largest, kind, sizes.size[some])
    some, of, kind = (column[sizes.size[some] >= LARGE * largest[kind]] for column in (some, of, kind))
    pair, at = arrays.factorize([of, kind])
    count = np.bincount(pair)
    rate = np.bincount(pair, sizes.size[some]) / np.bincount(pair, waited.transfer_ns[some])
    rate[count < LEAST_OF_GROUP] = np.nan
    rate[np.bincount(kind[at][np.isfinite(rate)], minlength=len(first))[kind[at]] < 2] = np.nan
    best = np.full(len(first), -np.inf)
    np.fmax.at(best, kind[at], rate)
    np.fmin.at(ratio, of[at], rate / best[kind[at]])
    named = _in_all_slow(ratio, channel, host)
    if named:
        return SlowLinks(ratio, hosts=named)
    ranks = _in_all_slow(ratio, *_pairs(found, np.arange(len(calls.ranks))))
    return SlowLinks(ratio, ranks=tuple(int(calls.ranks[at]) for at in ranks))


def _pairs(found: Matched, part: Ints) -> tuple[Ints, Ints]:
    """Returns distinct pairs of channel and part that share a collective. part: of each rank, such as its host."""
    count = int(part.max(initial=0)) + 1
    pair = np.unique(found.channel[found.number] * count + part[found.calls.at[found.rows]])
    return pair // count, pair % count


def _in_all_slow(ratio: Floats, channel: Ints, part: Ints) -> tuple[int, ...]:
    """Returns the parts that are in every slow channel and in no fast one."""
    slow, fast = ratio < SLOW, ratio >= FAST
    if not slow.any():
        return ()
    count = int(part.max(initial=0)) + 1
    in_slow, in_fast = (np.bincount(part[which[channel]], minlength=count) for which in (slow, fast))
    return tuple(np.flatnonzero((in_slow == slow.sum()) & (in_fast == 0)).tolist())
