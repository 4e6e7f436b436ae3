"""Matching of collectives over ranks, against jobs whose every match is known."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tb_sol_plugin.metrics.ranks.calls import Calls, Member, calls_of
from tb_sol_plugin.metrics.ranks.matching import Matched, matched
from tb_sol_plugin.metrics.ranks.summary import PIECES, ROWS, RankSummary
from tb_sol_plugin.tables.packed import pack, unpack
from tests.support.rank_factory import Job, Made, simulate


def changed(one: RankSummary, **columns: object) -> RankSummary:
    """The same summary with other values in some columns of its calls."""
    return msgspec.structs.replace(one, rows=pack(unpack(one.rows, ROWS) | columns, ROWS))  # type: ignore[arg-type]


def between(one: RankSummary, low: int, high: int) -> RankSummary:
    """The same summary with some of its calls alone."""
    rows = {name: column[low:high] for name, column in unpack(one.rows, ROWS).items()}
    none = {name: np.zeros(0, np.int64) for name in PIECES}
    return msgspec.structs.replace(one, rows=pack(rows, ROWS), pieces=pack(none, PIECES))


def table(made: Made, **columns: object) -> Calls:
    return calls_of(
        [
            m._replace(summary=changed(m.summary, **{k: np.full(m.summary.rows.count, v) for k, v in columns.items()}))
            for m in made.members()
        ]
    )


def judged(made: Made, found: Matched) -> tuple[int, int, int]:
    """(collectives with members of several true ones, true ones that are in several, calls unmatched)"""
    true = made.truth.instance[found.rows]
    wrong = np.maximum.reduceat(true, found.begin[:-1]) != np.minimum.reduceat(true, found.begin[:-1])
    return int(wrong.sum()), len(found) - len(np.unique(true)), len(found.calls) - len(found.rows)


@pytest.mark.parametrize("offset_ns", [3e5, 5e6, 1e9])
@pytest.mark.parametrize("steps", [True, False])
def test_order_alone_matches_all_of_cut_recordings(offset_ns: float, steps: bool) -> None:
    # GIVEN 16 ranks on two hosts, no numbers of calls, recordings cut by 0 to 20 calls at both ends, clocks that differ by up to a second
    made = simulate(Job(tp=8, dp=2, layers=8, steps=4, buckets=8, seq=False, cut=20, offset_ns=offset_ns, seed=int(offset_ns) % 97))
    calls = table(made) if steps else table(made, step=-1)
    found = matched(calls)
    wrong, split, unmatched = judged(made, found)
    # THEN none is wrong, whether steps are recorded or not; with steps all are right, without the few of a step may stay unmatched
    assert (wrong, split) == (0, 0)
    assert unmatched == 0 if steps else unmatched < 0.05 * len(calls)
    assert (found.present[found.sync] > 1).all()
    if not steps:
        assert all("fewer than 20 calls" in why or "fit almost as well" in why for why in found.because.values())


def test_numbers_match_at_any_clock_and_in_any_order_of_files() -> None:
    # GIVEN all kinds of parallelism, numbered calls, 1024 ms of clock offsets THEN all are right, whatever the order of the files
    made = simulate(Job(tp=2, cp=2, pp=2, dp=2, layers=2, steps=2, micro_batches=3, cut=10, offset_ns=1e9))
    plain = matched(calls_of(made.members()))
    assert judged(made, plain) == (0, 0, 0) and not plain.because and not plain.inconsistent.any()
    mixed = matched(calls_of(made.members(np.random.default_rng(0).permutation(16).tolist())))
    assert (mixed.rows == plain.rows).all() and (mixed.begin == plain.begin).all()
    # AND a send and its receive are one, with both of its ranks
    pairs = plain.size == 2
    assert pairs.any() and (plain.present[pairs] <= 2).all()


def test_equal_calls_without_noise_are_not_guessed() -> None:
    # GIVEN 16 calls, all alike and 0.5 ms of computing apart to the nanosecond, without numbers or steps; one recording lacks the first
    quiet = {"jitter": 0.0, "completion_ns": 0.0, "device_ns": 0.0, "offset_ns": 0.0, "drift_ppm": 0.0}
    made = simulate(Job(tp=4, dp=1, layers=20, steps=1, seq=False, **quiet))  # type: ignore[arg-type]
    every = [
        m._replace(summary=between(changed(m.summary, step=np.full(m.summary.rows.count, -1)), m.rank == 1, 40)) for m in made.members()
    ]
    found = matched(calls_of(every))
    # THEN nothing tells the order: nothing is matched with the rank that has most
    assert list(found.because.values()) == ["3 of 4 ranks: two orders of its calls fit almost as well (0.0 and 0.0 us apart)"]
    assert (found.present == 1).all()


def test_a_size_that_differs_is_inconsistent_and_never_hidden() -> None:
    # GIVEN rank 1 reduces half as much in its third call as its peer
    made = simulate(Job(tp=2, dp=1, layers=4, steps=2))
    first, second = made.members()
    sizes = unpack(second.summary.rows, ROWS)["bytes_in"].copy()
    sizes[2] //= 2
    found = matched(calls_of([first, second._replace(summary=changed(second.summary, bytes_in=sizes, bytes_out=sizes))]))
    assert found.inconsistent.sum() == 1 and found.inconsistent[int(np.flatnonzero(found.inconsistent)[0])]
    assert not found.sync[found.inconsistent].any()


def test_numbers_that_start_again_are_split_or_left() -> None:
    # GIVEN a job of which both ranks restarted after their tenth call THEN calls before and after are told apart
    made = simulate(Job(tp=2, dp=1, layers=4, steps=2))
    seq = unpack(made.summary(0).rows, ROWS)["seq"].copy()
    group = unpack(made.summary(0).rows, ROWS)["group"]
    tp = np.flatnonzero(group == 0)
    again = seq.copy()
    again[tp[10:]] = np.arange(1, len(tp) - 9)
    every = made.members()
    both = [m._replace(summary=changed(m.summary, seq=again)) for m in every]
    assert judged(made, matched(calls_of(both))) == (0, 0, 0)
    # WHEN one recording alone has the restart THEN its group stays unmatched, and says why
    found = matched(calls_of([both[0], every[1]]))
    assert any("restarted" in why for why in found.because.values()) and judged(made, found)[0] == 0


def test_names_of_groups_mean_nothing() -> None:
    made = simulate(Job(tp=2, dp=2))
    plain = matched(calls_of(made.members()))
    renamed = [
        Member(
            m.rank, m.host, msgspec.structs.replace(m.summary, groups=tuple(msgspec.structs.replace(g, name="7") for g in m.summary.groups))
        )
        for m in made.members()
    ]
    assert (matched(calls_of(renamed)).rows == plain.rows).all()


def test_missing_ranks_leave_partial_collectives() -> None:
    made = simulate(replace(Job(tp=2, dp=2), missing=(3,)))
    found = matched(calls_of(made.members()))
    assert judged(made, found) == (0, 0, 0)
    assert sorted(set(zip(found.present.tolist(), found.size.tolist(), strict=True))) == [(1, 2), (2, 2), (3, 4)]
