"""Matches collectives across ranks: which calls of different ranks are one collective.

Members of a group number their calls (`Seq`); where that is recorded, equal numbers are one collective. Sends and receives each rank counts
for itself, so their numbers are mostly those of one rank alone. Where numbers do not tell, the order of calls does, but recordings begin
and end at different calls and clocks differ by any amount. Against the member with the most calls each other one is shifted by so many
calls that kind, type, size and step agree, and that the ends of matched calls are the same time apart from the first to the last: the
right shift leaves the difference of the two clocks, a wrong one the times of other calls. Where two shifts do that almost as well, the
member stays unmatched: no match is better than a wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.ranks.calls import Calls
from tb_sol_plugin.metrics.ranks.summary import P2P, RECV, SEND
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask

FARTHEST: Final = 64
"""Calls that a member is shifted by at most, from where its steps say."""
FEWEST: Final = 20
"""Fewer matched calls prove nothing where steps do not agree."""
CLEAR: Final = 1.5
"""The best shift leaves so many times less than the second one."""
SAMPLE: Final = 256
"""Matched calls that a shift is judged by."""


@dataclass(frozen=True, eq=False)
class Matched:
    """Collectives over all ranks. `rows` holds calls by collective and rank, a send before its receive; those of collective i are
    `rows[begin[i] : begin[i + 1]]`.

    channel: of each collective. inconsistent: whether its members name different kinds, types or sizes. because: why calls of a channel
    stay unmatched, by channel.
    """

    calls: Calls
    rows: Ints
    begin: Ints
    channel: Ints
    inconsistent: Mask
    because: dict[int, str]

    def __len__(self) -> int:
        return len(self.channel)

    @cached_property
    def present(self) -> Ints:
        """Members of each collective that are recorded."""
        return np.diff(self.begin)

    @cached_property
    def size(self) -> Ints:
        """Members of each collective, -1 unknown."""
        return self.calls.size_of_channel[self.channel]

    @cached_property
    def of_row(self) -> Ints:
        """The collective of each call, -1 unmatched."""
        out = np.full(len(self.calls), -1, np.int64)
        out[self.rows] = self.number
        return out

    @cached_property
    def number(self) -> Ints:
        """The collective of each of `rows`."""
        return np.repeat(np.arange(len(self)), self.present)

    @cached_property
    def first(self) -> Ints:
        """The call of each collective on its first rank, of a send and its receive the send."""
        return self.rows[self.begin[:-1]]

    @cached_property
    def sync(self) -> Mask:
        """Collectives that no member leaves before the last one has come, with two members recorded at least."""
        return np.asarray(self.calls.sync[self.first] & (self.present > 1) & ~self.inconsistent, np.bool_)

    def least(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Returns the smallest value of each collective. values: of each of `rows`."""
        return np.minimum.reduceat(values, self.begin[:-1]) if len(self) else values[:0]

    def most(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Returns the largest value of each collective. values: of each of `rows`."""
        return np.maximum.reduceat(values, self.begin[:-1]) if len(self) else values[:0]

    def only(self, kept: Mask, because: dict[int, str]) -> Matched:
        """Returns the same without some collectives. because: why, by channel."""
        count = self.present[kept]
        begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(count)))
        return Matched(
            self.calls, self.rows[kept[self.number]], begin, self.channel[kept], self.inconsistent[kept], {**self.because, **because}
        )


def matched(calls: Calls) -> Matched:
    """Returns the collectives that calls of all ranks are of. A call that no other rank has recorded is a collective by itself."""
    order = _in_order(calls)
    number, because = _numbers(calls, order)
    key = calls.channel
    rows = np.flatnonzero((key >= 0) & (number > NONE))
    rows = rows[np.lexsort((calls.at[rows], calls["kind"][rows] == RECV, number[rows], key[rows]))]
    opens = np.ones(len(rows), np.bool_)
    opens[1:] = (np.diff(key[rows]) != 0) | (np.diff(number[rows]) != 0)
    begin = np.append(np.flatnonzero(opens), len(rows))
    if not len(rows):
        return Matched(calls, rows, np.zeros(1, np.int64), rows, np.zeros(0, np.bool_), because)
    code = _signature(calls)[rows]
    differ = np.maximum.reduceat(code, begin[:-1]) != np.minimum.reduceat(code, begin[:-1])
    return Matched(calls, rows, begin, key[rows[begin[:-1]]], np.asarray(differ, np.bool_), because)


NONE: Final = -(2**62)
"""The number of a call that is not matched."""


def _in_order(calls: Calls) -> Ints:
    """Returns the calls by channel, rank, and when each was launched: kernels of several streams may start in another order."""
    launch = np.where(calls["launch_ns"] >= 0, calls["launch_ns"], calls.start)
    return np.lexsort((calls.start, launch, calls.at, calls.channel))


def _signature(calls: Calls) -> Ints:
    """Returns a number per call that members of one collective have in common: kind, type and size."""
    kind = np.where(calls["kind"] == RECV, SEND, calls["kind"]).astype(np.int64)
    size = np.where(calls["uneven"], -1, np.maximum(calls["bytes_in"], calls["bytes_out"])).astype(np.int64)
    _, size = np.unique(size, return_inverse=True)
    columns = [kind, calls["dtype"].astype(np.int64), size.reshape(-1), _exchanges(calls)]
    return arrays.factorize(columns)[0] if len(calls) else np.zeros(0, np.int64)


def _exchanges(calls: Calls) -> Ints:
    """Returns a number per batch between two ranks that both have in common: what goes each way, in order. 0 for other calls."""
    out = np.zeros(len(calls), np.int64)
    known: dict[tuple[tuple[int | None, ...], ...], int] = {}
    upper = calls.partner < calls.ranks[calls.at]
    for number, batch in enumerate(calls.batches):
        ways = [tuple(one.bytes for one in batch if one.receives is way) for way in (False, True, None)]
        for mine, order in ((~upper, (0, 1, 2)), (upper, (1, 0, 2))):
            out[mine & (calls["batch"] == number)] = known.setdefault(tuple(ways[i] for i in order), len(known) + 1)
    return out


def _numbers(calls: Calls, order: Ints) -> tuple[Ints, dict[int, str]]:
    """Returns (number of each call within its channel, NONE where it is not known; why not, by channel)."""
    out, because = np.full(len(calls), NONE, np.int64), {}
    order = order[calls.channel[order] >= 0]
    channel, at = calls.channel[order], calls.at[order]
    edges = np.flatnonzero(np.diff(channel, prepend=-1, append=-1)) if len(order) else np.zeros(1, np.int64)
    signature = _signature(calls)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows = order[low:high]
        parts = np.split(rows, np.flatnonzero(np.diff(at[low:high])) + 1)
        numbered = (calls["seq"][rows] >= 0).all() and (calls["kind"][rows[0]] not in P2P or _shared(calls, parts))
        numbers, why = _recorded(calls, parts) if numbered else _ordered(calls, parts, signature)
        for part, number in zip(parts, numbers, strict=True):
            if number is not None:
                out[part] = number
        if why:
            because[int(channel[low])] = why
    return out, because


def _shared(calls: Calls, parts: list[Ints]) -> bool:
    """Whether numbers of sends and receives are those of both ranks: in a group of two, and the same wherever both have some.

    Each rank counts its own, whoever the other one is, and in the order in which it asked for them.
    """
    if calls.groups[int(calls["group"][parts[0][0]])].size != 2:
        return False
    own = [np.unique(calls["seq"][rows]) for rows in parts]
    low, high = max(one[0] for one in own), min(one[-1] for one in own)
    return len({one[(one >= low) & (one <= high)].tobytes() for one in own}) == 1


def _recorded(calls: Calls, parts: list[Ints]) -> tuple[list[Ints | None], str]:
    """Returns recorded numbers. Where they start again, a job was restarted: those of each start are by themselves."""
    found, starts = [], []
    for rows in parts:
        seq = calls["seq"][rows].astype(np.int64)
        start = np.cumsum(np.concatenate(([0], (np.diff(seq) <= 0).astype(np.int64))))
        starts.append(int(start[-1]))
        found.append(start * (1 << 40) + seq)
    if len(set(starts)) > 1:
        return [None] * len(parts), "its numbers start again on some ranks and not on others: the job was restarted while they recorded"
    return list(found), ""


class _Sequence(NamedTuple):
    """Calls of one member in order: what must agree, the step, when each ended."""

    signature: Ints
    step: Ints
    end: Ints


def _ordered(calls: Calls, parts: list[Ints], signature: Ints) -> tuple[list[Ints | None], str]:
    """Returns the places of calls in the order of their group, None for a member that cannot be placed."""
    own = [_Sequence(signature[rows], calls["step"][rows].astype(np.int64), calls.end[rows]) for rows in parts]
    longest = max(range(len(parts)), key=lambda i: len(parts[i]))
    found: list[Ints | None] = []
    lost: list[str] = []
    ranks: list[int] = []
    for i, (one, rows) in enumerate(zip(own, parts, strict=True)):
        shift, why = (0, "") if i == longest else _shift(own[longest], one)
        found.append(np.arange(len(rows), dtype=np.int64) + shift if not why else None)
        if why:
            lost.append(why)
            ranks.append(int(calls.ranks[calls.at[rows[0]]]))
    if not lost:
        return found, ""
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} of {len(parts)} ranks"
    return found, f"{who}: {lost[0]}"


def _shift(reference: _Sequence, own: _Sequence) -> tuple[int, str]:
    """Returns (calls that a member is behind the reference, ""), or (0, why that cannot be told)."""
    center, stepped = _center(reference, own)
    shifts = np.arange(center - FARTHEST, center + FARTHEST + 1)
    shifts = shifts[(shifts > -len(own.end)) & (shifts < len(reference.end))]
    agree = _agreeing(reference, own, shifts, stepped)
    if stepped and not len(agree):
        stepped, agree = False, _agreeing(reference, own, shifts, False)
    if not len(agree):
        return 0, "its calls agree with those of the others at no shift"
    if len(agree) == 1 and stepped:
        return int(agree[0]), ""
    overlap = np.array([_overlap(reference, own, s)[1] for s in agree.tolist()])
    if not stepped:
        agree = agree[overlap >= FEWEST]
        if not len(agree):
            return 0, f"fewer than {FEWEST} calls in common, and no steps that agree"
    left = np.array([_scatter(reference, own, s) for s in agree.tolist()])
    best = int(left.argmin())
    second = np.delete(left, best).min() if len(left) > 1 else np.inf
    if second <= CLEAR * left[best]:
        return 0, f"two orders of its calls fit almost as well ({left[best] / 1e3:.1f} and {second / 1e3:.1f} us apart)"
    return int(agree[best]), ""


def _center(reference: _Sequence, own: _Sequence) -> tuple[int, bool]:
    """Returns (the shift that steps both have suggest, whether there are such steps)."""
    common = np.intersect1d(reference.step[reference.step >= 0], own.step[own.step >= 0])
    if not len(common):
        return 0, False
    last = [np.array([int(np.flatnonzero(one.step == step)[-1]) for step in common.tolist()]) for one in (reference, own)]
    return int(np.median(last[0] - last[1])), True


def _overlap(reference: _Sequence, own: _Sequence, shift: int) -> tuple[int, int]:
    """Returns (first call of the member that the reference has, how many there are)."""
    first = max(0, -shift)
    return first, min(len(own.end), len(reference.end) - shift) - first


def _agreeing(reference: _Sequence, own: _Sequence, shifts: Ints, stepped: bool) -> Ints:
    """Returns the shifts at which all calls in common agree. stepped: their steps too."""
    out = []
    for shift in shifts.tolist():
        first, count = _overlap(reference, own, shift)
        if count < 1:
            continue
        mine, other = slice(first, first + count), slice(first + shift, first + shift + count)
        if (own.signature[mine] == reference.signature[other]).all() and (not stepped or (own.step[mine] == reference.step[other]).all()):
            out.append(shift)
    return np.array(out, np.int64)


def _scatter(reference: _Sequence, own: _Sequence, shift: int) -> float:
    """Returns how far the differences of ends are from a straight line: the median absolute deviation, ns."""
    first, count = _overlap(reference, own, shift)
    place = np.unique(np.linspace(first, first + count - 1, min(count, SAMPLE)).astype(np.int64))
    difference = (reference.end[place + shift] - own.end[place]).astype(np.float64)
    return _deviation(difference - difference[0], (own.end[place] - own.end[first]).astype(np.float64))


def _deviation(values: Floats, at: Floats) -> float:
    third = len(values) // 3
    if third > 1:
        run = np.median(at[-third:]) - np.median(at[:third])
        slope = (np.median(values[-third:]) - np.median(values[:third])) / run if run else 0.0
        values = values - slope * at
    return float(np.median(np.abs(values - np.median(values))))
