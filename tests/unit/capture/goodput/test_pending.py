"""The updates that replicas choose to measure together: the same ones, at the rate at which sums arrive, whatever each one's delays."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.capture.goodput.pending import Schedule


class Sum:
    """What a sum over replicas tells of their updates."""

    def __init__(self, updates: list[int], gaps: list[int]) -> None:
        self.newest, self.oldest, self.gap = max(updates), min(updates), max(gaps)


def simulate(every: int | None, latency, updates: int, replicas: int, share: float = 0.0) -> tuple[list[int], int]:
    """Measured updates, and sums left out. latency: of (replica, sum), updates until that replica sees that it is there.

    share: of the first replica's step that a measurement takes.
    """
    own = [Schedule(every) for _ in range(replicas)]
    sent: list[list[tuple[int, int]]] = [[] for _ in own]  # (update, gap) of each sum
    waiting: list[int | None] = [None for _ in own]
    measured: list[set[int]] = [set() for _ in own]
    for update in range(updates):
        for i, s in enumerate(own):
            sums = len(sent[i])
            if sums and waiting[i] is not None and all(len(x) >= sums for x in sent) and update >= waiting[i]:
                parts = [x[sums - 1] for x in sent]
                if s.arrived(Sum([u for u, _ in parts], [gap for _, gap in parts])):
                    measured[i].add(parts[i][0])
                waiting[i] = None
            if waiting[i] is not None:
                s.passed()
            elif update >= s.next:
                sent[i].append((update, s.gap(share if i == 0 else 0.0)))
                waiting[i] = update + 1 + latency(i, sums)
    sizes = {len(x) for x in sent}
    assert max(sizes) - min(sizes) <= 1  # nobody is more than one sum ahead
    common = set.intersection(*measured)
    assert all(max(m - common, default=-1) <= max(m, default=-1) and len(m - common) <= 1 for m in measured)
    return sorted(common), own[0].left_out


def test_where_sums_arrive_at_once_each_update_is_measured() -> None:
    measured, left_out = simulate(1, lambda *_: 0, 50, 2)
    assert measured == list(range(49)) and not left_out
    # AND with `every`, each so manieth
    measured, left_out = simulate(3, lambda *_: 0, 50, 2)
    assert measured == list(range(0, 49, 3)) and not left_out


def test_measurements_that_cost_more_than_two_percent_are_rarer_after_the_first_twenty() -> None:
    # GIVEN a replica where they take 15 % of a step THEN all measure each eighth update; half a step each 25th; no rarer than each hundredth
    for share, gap in ((0.15, 8), (0.5, 25), (9.0, 100)):
        measured, left_out = simulate(None, lambda *_: 0, 320, 2, share)
        assert measured[:20] == list(range(20)) and not left_out
        assert {b - a for a, b in itertools.pairwise(measured[20:])} == {gap}
    # AND where each so manieth is asked for, that is done
    assert simulate(3, lambda *_: 0, 50, 2, 9.0)[0] == list(range(0, 49, 3))


def test_where_sums_take_three_updates_each_fourth_is_measured() -> None:
    measured, left_out = simulate(1, lambda *_: 3, 100, 4)
    assert measured == list(range(0, 96, 4)) and not left_out
    # AND where one replica alone learns of them late, a sum or two are left out, and then they agree
    measured, left_out = simulate(1, lambda i, _: 3 if i == 1 else 0, 100, 4)
    assert left_out <= 2 and len(measured) >= 20


@given(st.integers(2, 5), st.integers(0, 6), st.integers(0, 1000))
def test_whatever_the_delays_most_sums_are_of_one_update(replicas: int, most: int, seed: int) -> None:
    r = random.Random(seed)
    delays = [[r.randint(0, most) for _ in range(400)] for _ in range(replicas)]
    measured, _ = simulate(1, lambda i, k: delays[i][k], 400, replicas)
    assert len(measured) >= 400 // (8 * (most + 1))
