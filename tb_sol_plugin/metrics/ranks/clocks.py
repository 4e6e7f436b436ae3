"""Aligns the clocks of hosts by the ends of collectives: all members of one end at the same moment, within microseconds.

    aligned = local + offset + drift (local - reference) + device offset

Clocks of devices are told apart first, by collectives inside one host alone; then those of hosts, by collectives that cross hosts alone:
those inside one host say nothing about other hosts, and would hold the median where it is. Each is fitted by turns: the time of a
collective is the median of its members, the offset of a clock the median of its residuals. Waits and late ranks need no clock; the
timeline, start skew and directed operations do. How good a clock is says its `grade`. A clock that was set while it recorded (its residuals
jump by more than a millisecond from one collective to the next) has two parts: times after the jump are moved by it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.ranks.calls import Calls
from tb_sol_plugin.metrics.ranks.matching import Matched
from tb_sol_plugin.metrics.ranks.summary import RECV, SEND
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask

Grade: TypeAlias = Literal["good", "fair", "poor", "none"]
"""good: within 20 us and no effect before its cause. fair: within 200 us, and at most 1 % of such. none: nothing to go by."""

DEVICE_TURNS: Final = 6
HOST_TURNS: Final = 10
DRIFT_FROM: Final = 3
"""Turns before drift is fitted, too."""
LARGEST_DRIFT: Final = 200e-6
DRIFT_WINDOW_NS: Final = 1_000_000_000
"""A shorter window shows no drift."""
DRIFT_POINTS: Final = 20
"""Nor do fewer collectives."""
DRIFT_GAIN: Final = 0.9
"""Drift is kept where it leaves no more than this part of the residuals."""
SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
PER_CHANNEL: Final = 256
"""Collectives of a group that clocks are fitted by."""
LARGE_NS: Final = 10e6
"""A collective whose transfer takes this long counts half: its ends lie farther apart."""
GOOD_NS: Final = 20_000.0
FAIR_NS: Final = 200_000.0
FAIR_SHARE: Final = 0.01
TOLERANCE_NS: Final = 20_000.0
"""Ends and starts that contradict each other by less are within what clocks are known to."""


JUMP_NS: Final = 1_000_000.0
"""A clock that jumps by more than this was set."""
JUMP_POINTS: Final = 5
"""Collectives before and after a jump whose medians show it."""


@dataclass(frozen=True, eq=False)
class Clocks:
    """How the clocks of a job differ. By domain: offset_ns, drift, sigma_ns (NaN unknown), sync_points, violations, interval_ns (width
    of what causality allows; NaN without a crossing collective), component, grade. By rank: device_ns.

    Offsets begin at the median domain of each component; times of different components do not compare. reference_ns: where drift is 0.
    jump_ns, jump_at_ns: by domain, what is added to its local times after a moment of it; 0 and NaN where its clock was not set.
    """

    calls: Calls
    offset_ns: Floats
    drift: Floats
    device_ns: Floats
    reference_ns: float
    sigma_ns: Floats
    sync_points: Ints
    violations: Ints
    interval_ns: Floats
    component: Ints
    jump_ns: Floats
    jump_at_ns: Floats
    grade: tuple[Grade, ...]

    def aligned(self, local: npt.NDArray[np.generic], at: Ints, *, device: bool = True) -> Floats:
        """Returns times of ranks (places `at` of `calls.ranks`) on the common clock, ns since the origin of the calls."""
        domain = self.calls.domain[at]
        time = local.astype(np.float64)
        time = _set_back(time, domain, self.jump_ns, self.jump_at_ns)
        time = time + self.offset_ns[domain] + self.drift[domain] * (time - self.reference_ns)
        return np.asarray(time + self.device_ns[at] if device else time, np.float64)

    @property
    def worst(self) -> Grade:
        """The grade that everything over all ranks has; none where they are not of one component."""
        if len(set(self.component.tolist())) > 1:
            return "none"
        order: tuple[Grade, ...] = ("good", "fair", "poor", "none")
        return max(self.grade, key=order.index, default="none")

    @property
    def common(self) -> bool:
        """Whether times of all ranks compare."""
        return self.worst in ("good", "fair")


def clocks(found: Matched) -> Clocks:
    """Returns how the clocks differ, from matched collectives."""
    calls = found.calls
    used = np.flatnonzero(found.sync & _sampled(found.channel))
    rows = _Rows.of(found, used)
    reference = float(np.median(calls.end)) if len(calls) else 0.0
    device = _devices(calls, rows.only(~rows.crossing))
    crossing = rows.only(rows.crossing)
    component = components(crossing.domain, crossing.number, len(calls.domains))
    jump, when = _jumps(crossing, device, component, len(calls.domains))
    time = _set_back(crossing.end, crossing.domain, jump, when) + device[crossing.at]
    offset, drift = _fit(calls, crossing, time - reference, component)
    aligned = time + offset[crossing.domain] + drift[crossing.domain] * (time - reference)
    residual = np.abs(crossing.by_number.medians(aligned)[crossing.number] - aligned)
    sigma = SIGMA * crossing.by_domain.medians(residual)
    points = np.bincount(_distinct(crossing.domain, crossing.number), minlength=len(calls.domains))
    part = Clocks(
        calls, offset, drift, device, reference, sigma, points, np.zeros_like(points), np.full(len(points), np.nan), component,
        jump, when, (),
    )
    return _judged(found, part, rows)


# -- Rows of the collectives that are used -----------------------------------------------------------------------------


class _Segments:
    """Values in groups whose medians are taken again and again: groups of one size are the rows of one matrix."""

    def __init__(self, code: Ints, count: int) -> None:
        self._count = count
        order = np.argsort(code, kind="stable")
        size = np.bincount(code, minlength=count)
        begin = np.cumsum(size) - size
        self._matrices = []
        for one in np.unique(size[size > 0]).tolist():
            groups = np.flatnonzero(size == one)
            self._matrices.append((groups, order[begin[groups][:, None] + np.arange(one)]))

    def medians(self, values: Floats, weights: Floats | None = None) -> Floats:
        """Returns the median of each group, NaN without values. weights: of each value."""
        out = np.full(self._count, np.nan)
        for groups, places in self._matrices:
            if weights is None:
                out[groups] = np.median(values[places], axis=1)
                continue
            ascending = np.take_along_axis(places, np.argsort(values[places], axis=1), axis=1)
            total = np.cumsum(weights[ascending], axis=1)
            middle = (total < total[:, -1:] / 2).sum(axis=1)
            out[groups] = values[ascending[np.arange(len(groups)), middle]]
        return out


@dataclass(frozen=True, eq=False)
class _Rows:
    """Members of collectives: number of the collective, place of the rank, domain, end on its clock, weight; whether it crosses hosts."""

    number: Ints
    at: Ints
    domain: Ints
    end: Floats
    weight: Floats
    crossing: Mask
    by_number: _Segments
    by_domain: _Segments

    @classmethod
    def of(cls, found: Matched, used: Ints) -> _Rows:
        calls = found.calls
        place = np.full(len(found), -1, np.int64)
        place[used] = np.arange(len(used))
        number = place[found.number]
        rows, number = found.rows[number >= 0], number[number >= 0]
        domain = calls.domain[calls.at[rows]]
        duration = calls["duration_ns"][found.rows]
        transfer = found.least(duration)[used][number].astype(np.float64) if len(used) else np.zeros(0)
        low, high = np.full(len(used), len(calls.domains)), np.full(len(used), -1)
        np.minimum.at(low, number, domain)
        np.maximum.at(high, number, domain)
        end, weight = calls.end[rows].astype(np.float64), 1 / (1 + transfer / LARGE_NS)
        return cls.made(number, calls.at[rows], domain, end, weight, (low != high)[number])

    @classmethod
    def made(cls, number: Ints, at: Ints, domain: Ints, end: Floats, weight: Floats, crossing: Mask) -> _Rows:
        _, number = np.unique(number, return_inverse=True)
        number = number.reshape(-1)
        domains = int(domain.max(initial=-1)) + 1
        return cls(
            number, at, domain, end, weight, crossing, _Segments(number, int(number.max(initial=-1)) + 1), _Segments(domain, domains)
        )

    def only(self, some: Mask) -> _Rows:
        return self.made(self.number[some], self.at[some], self.domain[some], self.end[some], self.weight[some], self.crossing[some])


def _sampled(channel: Ints) -> Mask:
    """Returns at most PER_CHANNEL collectives of each channel, evenly spread. Collectives are by channel."""
    out = np.ones(len(channel), np.bool_)
    count = np.bincount(channel) if len(channel) else np.zeros(0, np.int64)
    place = np.arange(len(channel)) - np.searchsorted(channel, channel)
    many = count[channel] > PER_CHANNEL
    slot = place * PER_CHANNEL // np.maximum(count[channel], 1)
    out[many] = (np.diff(slot, prepend=-1) != 0)[many]
    return out


def _distinct(domain: Ints, number: Ints) -> Ints:
    """Returns the domains of distinct pairs."""
    width = int(domain.max(initial=0)) + 1
    return np.unique(number * width + domain) % width if len(domain) else domain


def components(left: Ints, right: Ints, count: int) -> Ints:
    """Returns the component of each of `count` nodes, which are connected where they share a number of `right`."""
    from scipy.sparse import coo_matrix  # takes a quarter of a second, and a job that was kept needs none of it
    from scipy.sparse.csgraph import connected_components

    others = int(right.max(initial=-1)) + 1
    graph = coo_matrix((np.ones(len(left), np.int8), (left, right + count)), shape=(count + others, count + others))
    return np.asarray(connected_components(graph, directed=False)[1][:count], np.int64)


# -- Fits --------------------------------------------------------------------------------------------------------------


def _devices(calls: Calls, inside: _Rows) -> Floats:
    """Returns the offset of each rank's device from the others of its host; 0 where nothing tells."""
    out = np.zeros(len(calls.ranks))
    if not len(inside.at):
        return out
    of_rank = _Segments(inside.at, len(out))
    for _ in range(DEVICE_TURNS):
        time = inside.end + out[inside.at]
        residual = inside.by_number.medians(time)[inside.number] - time
        out += np.nan_to_num(of_rank.medians(residual))
    component = components(inside.at, inside.number, len(out))
    mean = np.bincount(component, out) / np.maximum(np.bincount(component), 1)
    return np.asarray(out - mean[component], np.float64)


def _fit(calls: Calls, rows: _Rows, time: Floats, component: Ints) -> tuple[Floats, Floats]:
    """Returns (offset, drift) of each domain. time: end of each row since the reference, device offset in it."""
    domains = len(calls.domains)
    none = np.zeros(domains)
    if not len(rows.at):
        return none, none
    first = _first_offsets(rows, time, domains, component)
    plain, _ = _alternate(rows, time, first, none, drifting=False)
    points = np.bincount(_distinct(rows.domain, rows.number), minlength=domains)
    if np.ptp(time + plain[rows.domain]) < DRIFT_WINDOW_NS or int(points[points > 0].min()) < DRIFT_POINTS:
        return _gauged(plain, component), none
    offset, drift = _alternate(rows, time, plain, none, drifting=True)
    if _left(rows, time, offset, drift) > DRIFT_GAIN * _left(rows, time, plain, none) or np.abs(drift).max() > LARGEST_DRIFT:
        return _gauged(plain, component), none
    gauged = _gauged(drift, component)
    offset -= (drift - gauged) * offset  # what all drift is taken off aligned times: local ones may be seconds from those
    return _gauged(offset, component), gauged


def _set_back(time: Floats, domain: Ints, jump: Floats, when: Floats) -> Floats:
    """Returns local times of domains without the jumps of their clocks."""
    return np.asarray(time + np.where(time > when[domain], jump[domain], 0.0), np.float64) if jump.any() else time


def _jumps(rows: _Rows, device: Floats, component: Ints, domains: int) -> tuple[Floats, Floats]:
    """Returns (what is to be added to the times of each domain after its clock was set, 0 for none; the last local time before, NaN).

    Of two clocks alone it cannot be told which one was set: each gets half. When it was set is known between two collectives that cross
    hosts: times between these may be taken for ones of the other part.
    """
    jump, when = np.zeros(domains), np.full(domains, np.nan)
    if len(rows.at) < 2 * JUMP_POINTS:
        return jump, when
    none = np.zeros(domains)
    time = rows.end + device[rows.at]
    offset, _ = _alternate(rows, time, _first_offsets(rows, time, domains, component), none, drifting=False)
    residual = _residual(rows, time, offset, none)
    for one in range(domains):
        mine = np.flatnonzero(rows.domain == one)
        mine = mine[np.argsort(rows.end[mine], kind="stable")]
        if len(mine) < 2 * JUMP_POINTS:
            continue
        middle = np.median(np.lib.stride_tricks.sliding_window_view(residual[mine], JUMP_POINTS), axis=1)
        rise = middle[JUMP_POINTS:] - middle[:-JUMP_POINTS]
        most = int(np.abs(rise).argmax())
        if abs(rise[most]) > JUMP_NS:
            last, after = rows.end[mine[most + JUMP_POINTS - 1]], rows.end[mine[most + JUMP_POINTS]]
            jump[one], when[one] = rise[most], max(last, after + rise[most])
    return jump, when


def _first_offsets(rows: _Rows, time: Floats, domains: int, component: Ints) -> Floats:
    """Returns offsets to begin with: from the domain with the most collectives on to those that share one with it, and so on."""
    out = np.full(domains, np.nan)
    count = np.bincount(rows.domain, minlength=domains)
    for one in np.unique(component).tolist():
        mine = np.flatnonzero(component == one)
        out[mine[count[mine].argmax()]] = 0.0
    numbers = int(rows.number.max()) + 1
    while True:
        shift = out[rows.domain]
        known = ~np.isnan(shift)
        some = np.bincount(rows.number[known], minlength=numbers)
        total = np.bincount(rows.number[known], (time + shift)[known], minlength=numbers)
        new = ~known & (some > 0)[rows.number]
        if not new.any():
            return np.asarray(np.nan_to_num(out), np.float64)
        difference = total[rows.number[new]] / some[rows.number[new]] - time[new]
        unknown = np.isnan(out)
        out[unknown] = _Segments(rows.domain[new], domains).medians(difference)[unknown]


def _alternate(rows: _Rows, time: Floats, offset: Floats, drift: Floats, *, drifting: bool) -> tuple[Floats, Floats]:
    offset, drift = offset.copy(), drift.copy()
    seen = time + offset[rows.domain]  # clocks may be further apart than the job is long
    third = np.quantile(seen, (1 / 3, 2 / 3))
    early, late = np.flatnonzero(seen <= third[0]), np.flatnonzero(seen >= third[1])
    ends = [(part, _Segments(rows.domain[part], len(offset))) for part in (early, late)]
    for turn in range(HOST_TURNS):
        residual = _residual(rows, time, offset, drift)
        if drifting and turn >= DRIFT_FROM:
            run = ends[1][1].medians(seen[late]) - ends[0][1].medians(seen[early])
            rise = ends[1][1].medians(residual[late]) - ends[0][1].medians(residual[early])
            drift += np.nan_to_num(rise / np.where(run > 0, run, np.nan))
            residual = _residual(rows, time, offset, drift)
        found = rows.by_domain.medians(residual, rows.weight)
        offset[: len(found)] += np.nan_to_num(found)
    return offset, drift


def _residual(rows: _Rows, time: Floats, offset: Floats, drift: Floats) -> Floats:
    aligned = time + offset[rows.domain] + drift[rows.domain] * time
    return np.asarray(rows.by_number.medians(aligned)[rows.number] - aligned, np.float64)


def _left(rows: _Rows, time: Floats, offset: Floats, drift: Floats) -> float:
    return float(np.median(np.abs(_residual(rows, time, offset, drift))))


def _gauged(values: Floats, component: Ints) -> Floats:
    """Returns values less that of the median domain of each component, of two in the middle the lower."""
    out = values.copy()
    for one in np.unique(component).tolist():
        mine = component == one
        out[mine] -= np.sort(values[mine])[(int(mine.sum()) - 1) // 2]
    return out


# -- How good they are -------------------------------------------------------------------------------------------------


def _judged(found: Matched, part: Clocks, rows: _Rows) -> Clocks:
    calls, domains = found.calls, len(part.calls.domains)
    sigma = np.concatenate((part.sigma_ns, np.full(domains - len(part.sigma_ns), np.nan)))
    start, end = part.aligned(calls.start[found.rows], calls.at[found.rows]), part.aligned(calls.end[found.rows], calls.at[found.rows])
    domain = calls.domain[calls.at[found.rows]]
    tolerance = np.maximum(TOLERANCE_NS, 3 * np.nan_to_num(sigma))
    low, high = np.full(domains, -np.inf), np.full(domains, np.inf)
    broken, seen = np.zeros(domains, np.int64), np.zeros(domains, np.int64)
    sync = np.flatnonzero(found.sync[found.number])
    if len(sync):
        last, first = (_of_others(found, sync, domain, sign * values) for sign, values in ((1.0, start), (-1.0, end)))
        np.minimum.at(high, domain[sync], -first - start[sync])
        np.maximum.at(low, domain[sync], last - end[sync])
        other = np.isfinite(last)
        np.add.at(seen, domain[sync][other], 1)
        np.add.at(broken, domain[sync], last > end[sync] + tolerance[domain[sync]])
    send, receive = directed(found)
    pair = domain[send] != domain[receive]
    send, receive = send[pair], receive[pair]
    room = end[receive] - start[send]
    np.minimum.at(high, domain[send], room)
    np.maximum.at(low, domain[receive], -room)
    for side in (send, receive):
        np.add.at(seen, domain[side], 1)
        np.add.at(broken, domain[side], room < -tolerance[domain[side]])
    both = np.isfinite(high) & np.isfinite(low)
    interval = np.full(domains, np.nan)
    interval[both] = high[both] - low[both]
    return replace(
        part, sigma_ns=sigma, violations=broken, interval_ns=interval,
        grade=tuple(_grade(part, sigma, broken, seen, i) for i in range(domains)),
    )  # fmt: skip


def _grade(part: Clocks, sigma: Floats, broken: Ints, seen: Ints, domain: int) -> Grade:
    """Returns the grade of a clock; where there is one clock alone, nothing can be wrong with it."""
    if len(sigma) == 1:
        return "good"
    if not part.sync_points[domain]:
        return "none"
    if sigma[domain] <= GOOD_NS and not broken[domain]:
        return "good"
    return "fair" if sigma[domain] <= FAIR_NS and broken[domain] <= FAIR_SHARE * seen[domain] else "poor"


def _of_others(found: Matched, some: Ints, domain: Ints, values: Floats) -> Floats:
    """Returns for each of some members the largest value among those of other domains in its collective; -inf where there are none."""
    number = found.number
    top, second = np.full(len(found), -np.inf), np.full(len(found), -np.inf)
    np.maximum.at(top, number[some], values[some])
    of_top = np.full(len(found), -1, np.int64)
    at_top = some[values[some] == top[number[some]]]
    of_top[number[at_top]] = domain[at_top]
    rest = some[domain[some] != of_top[number[some]]]
    np.maximum.at(second, number[rest], values[rest])
    return np.asarray(np.where(domain[some] != of_top[number[some]], top[number[some]], second[number[some]]), np.float64)


def directed(found: Matched) -> tuple[Ints, Ints]:
    """Returns of each matched send and receive their places in `rows`."""
    kind = found.calls["kind"][found.rows]
    low = found.begin[:-1][found.present == 2]
    pair = ((kind[low] == RECV) & (kind[low + 1] == SEND)) | ((kind[low] == SEND) & (kind[low + 1] == RECV))
    low = low[pair]
    first = kind[low] == SEND
    return np.where(first, low, low + 1), np.where(first, low + 1, low)
