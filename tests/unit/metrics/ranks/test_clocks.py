"""Clocks of hosts and devices, against the true offsets of simulated jobs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tb_sol_plugin.metrics.ranks.calls import calls_of
from tb_sol_plugin.metrics.ranks.clocks import Clocks, clocks
from tb_sol_plugin.metrics.ranks.matching import matched
from tb_sol_plugin.metrics.ranks.offsets import offsets_of_members
from tb_sol_plugin.metrics.ranks.summary import ROWS, RankSummary
from tb_sol_plugin.tables.packed import pack, unpack
from tests.support.rank_factory import Job, Made, simulate


def fitted(made: Made, order: list[int] | None = None) -> Clocks:
    return clocks(matched(calls_of(made.members(order or ()))))


def elsewhere(one: RankSummary) -> RankSummary:
    """The same summary with groups of another job."""
    return msgspec.structs.replace(one, groups=tuple(msgspec.structs.replace(g, key=f"other {g.key}") for g in one.groups))


def errors(made: Made, clock: Clocks) -> np.ndarray:
    """Error of each domain's aligned ends, ns, less that of the median domain: a common shift is no error."""
    calls = clock.calls
    away = clock.aligned(calls.end, calls.at) - made.truth.end_ns
    found = np.array([np.median(away[calls.domain[calls.at] == domain]) for domain in range(len(calls.domains))])
    return np.abs(found - np.median(found))


@pytest.mark.parametrize(("tp", "dp", "steps", "offset_ns"), [(8, 2, 30, 3e5), (8, 4, 30, 1e9), (4, 32, 12, 5e6), (8, 32, 8, 3.6e12)])
def test_offsets_are_within_what_they_claim(tp: int, dp: int, steps: int, offset_ns: float) -> None:
    # GIVEN 16 to 256 ranks, 8 to a host, hosts 0.3 ms to an hour apart, drifts of 8 ppm and devices 8 us apart, rms
    made = simulate(Job(tp=tp, dp=dp, layers=2, steps=steps, layer_ns=8e6, offset_ns=offset_ns, seed=tp * dp))
    clock = fitted(made)
    error = errors(made, clock)
    # THEN each is within three of its sigma and 5 us, good, and nothing ends before it began
    assert (error <= np.minimum(3 * clock.sigma_ns + 100, 5_000)).all(), error
    assert set(clock.grade) == {"good"} and clock.common and not clock.violations.any()
    assert (clock.interval_ns > 0).all() and len(set(clock.component.tolist())) == 1
    # AND the devices of each host are told apart, their mean at 0
    truth = made.truth.device_ns
    assert np.abs(clock.device_ns - truth).max() < 3_000 or tp < 8


def test_a_clock_that_is_set_while_it_records_has_two_parts() -> None:
    # GIVEN the clock of node2 of four set 20 ms ahead after two of four steps
    made = simulate(Job(tp=2, dp=4, ranks_per_host=2, layers=4, steps=4))
    members, edge = made.members(), int(made.local(4, made.step_at[2][4]))
    for at in (4, 5):
        rows = unpack(members[at].summary.rows, ROWS)
        start = np.where(rows["start_ns"] >= edge, rows["start_ns"] + 20_000_000, rows["start_ns"])
        changed = msgspec.structs.replace(members[at].summary, rows=pack({**rows, "start_ns": start}, ROWS))
        members[at] = members[at]._replace(summary=changed)
    clock = clocks(matched(calls_of(members)))
    # THEN the jump is found, all ends are aligned as without it, and no other clock has one
    assert clock.jump_ns.tolist() == pytest.approx([0, 0, -20e6, 0], abs=10_000) and set(clock.grade) == {"good"}
    calls = clock.calls
    away = clock.aligned(calls.end, calls.at) - made.truth.end_ns
    assert np.abs(away - np.median(away)).max() < 40_000 and not fitted(made).jump_ns.any()
    # AND the timeline, which moves a recording as a whole, goes by the longer part, and says how far the other one is off
    for ahead, set_at in ((True, 3), (False, 1)):
        edge, moved = int(made.local(4, made.step_at[set_at][4])), made.members()
        for at in (4, 5):
            rows = unpack(moved[at].summary.rows, ROWS)
            start = np.where(rows["start_ns"] >= edge, rows["start_ns"] + 20_000_000, rows["start_ns"])
            moved[at] = moved[at]._replace(summary=msgspec.structs.replace(moved[at].summary, rows=pack({**rows, "start_ns": start}, ROWS)))
        plain, found = offsets_of_members(made.members()), offsets_of_members(moved)
        assert found is not None and plain is not None
        less = found[4][0] - found[0][0] - (plain[4][0] - plain[0][0])
        assert less == pytest.approx(0 if ahead else -20_000_000, abs=60_000) and (found[4][1] or 0) >= 19_900_000 > (found[0][1] or 0)


def test_drift_is_fitted_where_there_is_time_to_see_it() -> None:
    # GIVEN 40 steps over more than a second with drifts of 20 ppm THEN drift is within 0.5 ppm, up to a common one
    long = Job(tp=8, dp=4, layers=2, steps=40, layer_ns=6e6, drift_ppm=20.0)
    made = simulate(long)
    clock = fitted(made)
    away = clock.drift - made.drift
    assert np.abs(away - np.median(away)).max() < 0.5e-6 and np.abs(made.drift).max() > 5e-6
    # AND no less so where the clocks are further apart than the job is long
    far = simulate(replace(long, offset_ns=3e9))
    away = fitted(far).drift - far.drift
    assert np.abs(away - np.median(away)).max() < 0.5e-6 and errors(far, fitted(far)).max() < 1_000
    # WHEN the window is a few ms THEN no drift is claimed
    assert not fitted(simulate(replace(long, steps=3, layer_ns=1e6))).drift.any()


def test_nothing_changes_with_the_order_of_files_or_a_constant_shift() -> None:
    job = Job(tp=8, dp=4, layers=2, steps=4)
    made = simulate(job)
    plain = fitted(made)
    mixed = fitted(made, np.random.default_rng(1).permutation(32).tolist())
    names = [mixed.calls.domains.index(name) for name in plain.calls.domains]
    assert np.allclose(mixed.offset_ns[names], plain.offset_ns) and np.allclose(mixed.sigma_ns[names], plain.sigma_ns)
    made.offset += 10**12  # all clocks a quarter of an hour late
    moved = fitted(made)
    assert np.abs(moved.offset_ns - plain.offset_ns).max() < 2 and np.abs(moved.sigma_ns - plain.sigma_ns).max() < 2


def test_hosts_without_a_common_collective_do_not_compare() -> None:
    # GIVEN two jobs of eight ranks that share nothing THEN each host is a component of its own, without a grade
    one, other = simulate(Job(tp=8, dp=1, layers=2)), simulate(Job(tp=8, dp=2, layers=2))
    far = [m._replace(rank=m.rank + 100, host="far", summary=elsewhere(m.summary)) for m in one.members()]
    clock = clocks(matched(calls_of([*other.members(), *far])))
    assert sorted(clock.component.tolist()) == [0, 0, 1] and not clock.common
    assert clock.grade[clock.calls.domains.index("far")] == "none" and clock.worst == "none"


def test_one_host_has_one_clock() -> None:
    clock = fitted(simulate(Job(tp=4, dp=2, layers=2)))
    assert clock.grade == ("good",) and clock.common and clock.offset_ns.tolist() == [0.0] and np.isnan(clock.sigma_ns).all()


def test_a_pipeline_alone_bounds_clocks_and_sets_none() -> None:
    # GIVEN two stages on two hosts that share sends and receives alone (their norm is not recorded)
    made = simulate(Job(pp=2, dp=1, ranks_per_host=1, layers=4, micro_batches=4, seed=3))
    made.calls = {name: column[made.calls["axis"] == 2] for name, column in made.calls.items()}
    clock = fitted(made)
    # THEN what is sent before it is received bounds them: an interval, no offset, and a violation where the clocks contradict it
    assert clock.grade == ("none", "none") and not clock.common and not clock.sync_points.any()
    assert clock.interval_ns[0] == pytest.approx(clock.interval_ns[1])
    # AND clocks a second apart make receives end before their sends began: violations
    made.offset[:] = (0, 10**9)
    assert (fitted(made).violations > 0).all()
