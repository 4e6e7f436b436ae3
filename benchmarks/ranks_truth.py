"""Comparisons of ranks against simulated jobs whose truth is known: matches, clocks, waits, links, and what stragglers cost.

    python -m benchmarks.ranks_truth [--large]

Prints tables in Markdown. --large: also 1,024 ranks, which takes a minute more. Savings are held against the same job simulated
without the straggler.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tb_sol_plugin.metrics.ranks.calls import Member, calls_of
from tb_sol_plugin.metrics.ranks.clocks import clocks
from tb_sol_plugin.metrics.ranks.group_kinds import group_kinds
from tb_sol_plugin.metrics.ranks.links import curves, sizes_of
from tb_sol_plugin.metrics.ranks.matching import matched
from tb_sol_plugin.metrics.ranks.own_time import CAUSES
from tb_sol_plugin.metrics.ranks.replay import model_of
from tb_sol_plugin.metrics.ranks.stragglers import Stragglers, stragglers
from tb_sol_plugin.metrics.ranks.waiting import Waits, waits
from tb_sol_plugin.tables.arrays import Ints
from tests.support.batched_pipeline import pipeline
from tests.support.rank_factory import Job, Made, Slow, simulate, without

OFFSETS = (3e5, 5e6, 1e9)
"""How far clocks of hosts are apart, ns rms."""


def table(title: str, header: Sequence[str], rows: Iterator[Sequence[object]]) -> None:
    """Prints rows as they come."""
    print(f"\n**{title}**\n\n| {' | '.join(header)} |\n|{' --- |' * len(header)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else str(cell) for cell in row)} |", flush=True)


def _judged(members: Sequence[Member], true: Ints) -> tuple[int, int, int, int]:
    """Returns (collectives that could be matched, those matched rightly, members in a wrong one, members in none). true: of each call."""
    calls = calls_of(members)
    found = matched(calls)
    number, of = true[found.rows], found.number
    wrong = np.asarray(found.least(number) != found.most(number), np.bool_)
    parts = np.bincount(true)
    right = ~wrong & (found.present == parts[number[found.begin[:-1]]]) & (found.present > 1)
    return int((parts > 1).sum()), int(right.sum()), int(wrong[of].sum()), len(calls) - len(found.rows)


def matching(large: bool) -> Iterator[Sequence[object]]:
    """Yields rows of matches by order alone, of recordings cut by 0 to 20 calls at both ends."""
    jobs = [
        ("TP 8, DP 2", Job(tp=8, dp=2, layers=8, steps=4, buckets=8)),
        ("TP 2, CP 2, PP 2, DP 2", Job(tp=2, cp=2, pp=2, dp=2, layers=4, steps=4, micro_batches=4)),
        ("PP 4, DP 4", Job(pp=4, dp=4, layers=4, steps=4, micro_batches=6)),
    ]
    if large:
        jobs.append(("TP 8, DP 128", Job(tp=8, dp=128, layers=11, steps=12)))
    for name, job in jobs:
        for offset in OFFSETS:
            made = simulate(replace(job, seq=False, cut=20, offset_ns=offset, seed=int(offset) % 97))
            yield name, job.world, _time(offset), *_judged(made.members(), made.truth.instance)
    with tempfile.TemporaryDirectory(prefix="tb-sol-truth-") as folder:
        for offset in OFFSETS:
            batches = pipeline(stages=4, micro_batches=8, steps=4)
            every = batches.members(Path(folder), cut=20, offset=int(offset))
            kept = [c[i * 7 % 21 : len(c) - i * 5 % 21] for i, c in enumerate(batches.calls)]
            true = np.array([one.instance for calls in kept for one in calls])
            yield "PP 4 in batches", 4, _time(offset), *_judged(every, true)


def aligned(large: bool) -> Iterator[Sequence[object]]:
    """Yields rows of errors of clocks, over all ends of collectives: a common shift is no error."""
    for tp, dp, steps in ((8, 2, 30), (8, 8, 30), (8, 32, 30), *(((8, 128, 24),) if large else ())):
        for offset in OFFSETS:
            made = simulate(Job(tp=tp, dp=dp, layers=2, steps=steps, layer_ns=8e6, offset_ns=offset, seed=tp * dp))
            clock = clocks(matched(calls_of(made.members())))
            calls = clock.calls
            away = clock.aligned(calls.end, calls.at) - made.truth.end_ns
            away -= np.median(away)
            hosts = np.array([np.median(away[calls.domain[calls.at] == one]) for one in range(len(calls.domains))])
            drift = clock.drift - made.drift[[int(name.removeprefix("node")) for name in calls.domains]]
            drift_error = f"{np.abs(drift - np.median(drift)).max() * 1e6:.2f} ppm" if clock.drift.any() else "not fitted"
            yield (
                made.job.world, len(calls.domains), _time(offset), _time(float(np.sqrt(np.mean(away**2)))),
                _time(float(np.abs(away).max())), _time(float(np.abs(hosts).max())), _time(float(np.median(clock.sigma_ns))),
                int((np.abs(hosts) > 3 * clock.sigma_ns + 100).sum()), drift_error, int(clock.violations.sum()),
            )  # fmt: skip


JOBS = {
    "TP 8, DP 4": Job(tp=8, dp=4, layers=6, steps=4),
    "TP 2, PP 2, DP 4": Job(tp=2, pp=2, dp=4, layers=3, steps=4, micro_batches=4),
    "DP 8, buckets that queue": Job(dp=8, layers=6, steps=4, bucket_bytes=512 << 20),
}


def _waited(made: Made) -> Waits:
    found = matched(calls_of(made.members()))
    return waits(found, clocks(found))


def waiting(_: bool) -> Iterator[Sequence[object]]:
    """Yields rows of errors of waits."""
    for name, job in JOBS.items():
        made = simulate(job)
        w = _waited(made)
        rows = w.found.rows
        error = np.abs(w.wait_ns - made.truth.wait_ns[rows])
        sync = w.found.sync[w.found.number]
        exact = (w.transfer_ns[w.found.number] + w.wait_ns == w.found.calls["duration_ns"][rows])[sync].all()
        for kind, some in (("collectives", sync), ("sends and receives", ~sync & (w.wait_ns >= 0))):
            if some.any():
                cells = (_time(float(np.percentile(error[some], q))) for q in (50, 99, 100))
                yield name, kind, int(some.sum()), *cells, "yes" if exact else "no"


def cost(_: bool) -> Iterator[Sequence[object]]:
    """Yields rows of what stragglers cost per step."""
    causes = (("compute", 1.15), ("host", 4e6), ("dataloader", 4e6))
    for name, job in JOBS.items():
        for cause, much in causes:
            slow = replace(job, stragglers=(Slow(5, cause, much),))  # type: ignore[arg-type]
            found, truth = _found(slow), _cost_of(slow, 5)
            one = found.suspects[0]
            yield name, cause, *_suspect(found, 0), *_saved(one.saved_ns, truth, job.steps), _exactness(found)
    name = "TP 8, DP 4"
    slow = replace(JOBS[name], stragglers=(Slow(5, "dataloader", 6e6), Slow(20, "host", 3e6)))
    found = _found(slow)
    one, other = found.suspects[:2]
    yield name, "dataloader, hides the next", *_suspect(found, 0), *_saved(one.saved_ns, _cost_of(slow, 5), 4), _exactness(found)
    both = _cost_of(slow, 5, 20)
    yield name, "host, with the one before", *_suspect(found, 1), *_saved(other.together_ns, both, 4), _exactness(found)


def _found(job: Job) -> Stragglers:
    return stragglers(model_of(_waited(simulate(job))))


def _cost_of(job: Job, *ranks: int) -> float:
    return simulate(job).truth.span_ns - simulate(without(job, *ranks)).truth.span_ns


def _suspect(found: Stragglers, place: int) -> tuple[int, str]:
    one = found.suspects[place]
    return int(found.calls.ranks[one.at]), CAUSES[one.cause]


def _saved(saved: float, truth: float, steps: int) -> tuple[str, str, str]:
    return _time(saved / steps), _time(truth / steps), f"{100 * (saved / truth - 1):+.2f} %"


def _exactness(found: Stragglers) -> str:
    return f"{100 * abs(found.model.unchanged_ns / found.model.span_ns - 1):.4f} %"


def link(_: bool) -> Iterator[Sequence[object]]:
    """Yields rows of fitted message curves between hosts: B of the slowest of them, and alpha."""
    for factor in (1.0, 0.5):
        slow = ((3, factor),) if factor < 1 else ()
        made = simulate(Job(tp=2, dp=16, ranks_per_host=2, layers=4, steps=8, slow_hosts=slow))
        w = _waited(made)
        one = next(c for c in curves(w, sizes_of(w, group_kinds(w.found.calls))) if (c.level, c.size) == ("between", 16))
        true = made.job.between * factor
        yield f"{true / 1e9:.1f} GB/s", f"{one.bytes_per_s / 1e9:.2f} GB/s", _time(made.job.alpha_ns), _time(one.alpha_ns), one.instances


def _time(ns: float) -> str:
    unit, scale = next(((u, s) for u, s in (("s", 1e9), ("ms", 1e6), ("us", 1e3)) if abs(ns) >= s), ("ns", 1.0))
    return f"{ns / scale:.3g} {unit}"


TABLES: tuple[tuple[str, Sequence[str], Callable[[bool], Iterator[Sequence[object]]]], ...] = (
    (
        "Matching by order alone, recordings cut by 0 to 20 calls",
        ("job", "ranks", "clocks apart", "collectives of several ranks", "right", "members in a wrong one", "unmatched"), matching,
    ),
    (
        "Clocks, drift of 8 ppm and devices 8 us apart",
        ("ranks", "hosts", "clocks apart", "error rms", "max", "of a host", "sigma", "hosts beyond 3 sigma", "drift", "violations"),
        aligned,
    ),
    ("Waits", ("job", "of", "members", "error median", "p99", "max", "transfer + wait = duration"), waiting),
    (
        "What a straggler costs per step",
        ("job", "straggler", "found rank", "cause", "saved", "truth", "error", "unchanged replay off by"), cost,
    ),
    ("Message curve between hosts", ("B", "fitted", "alpha", "fitted alpha", "collectives"), link),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.ranks_truth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--large", action="store_true", help="1,024 ranks as well")
    options = parser.parse_args()
    for title, header, rows in TABLES:
        table(title, header, rows(options.large))


if __name__ == "__main__":
    main()
