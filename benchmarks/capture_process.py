"""Process CPU of what is always on: a tracked training loop beside the same loop untracked, threads of the recorder included.

Turns are short and many, so that a busy machine is busy for both. What the training thread takes is the median of the differences; what
the other threads of the process took, over all of the tracked steps, is added to it: the plain turns have no others.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass

import torch

import tb_sol_plugin as sol
from benchmarks.capture_steps import NEVER, Job, job, no_phase

SIZES = {
    "4 ms": {"layers": 5, "width": 32, "heads": 4, "vocab": 128, "batch": 2, "length": 16},
    "6 ms": {"layers": 8, "width": 32, "heads": 4, "vocab": 128, "batch": 2, "length": 16},
    "90 ms": {"layers": 6, "width": 256, "heads": 4, "vocab": 2000, "batch": 2, "length": 128},
}
"""Decoders by the length that their step has on the machine of the committed figures."""
WAYS = {
    "always on": {"tensorboard": False},
    "with scalars for TensorBoard": {"tensorboard": True},
}
SECONDS = 0.08
"""Of one turn."""
TURNS = 12
"""Pairs of turns in a round."""


@dataclass
class Turns:
    """CPU seconds of a step on the training thread, untracked and tracked, of turns next to each other. others: of the other threads, for a
    tracked step."""

    plain: list[float]
    tracked: list[float]
    others: float = 0.0

    @property
    def more(self) -> float:
        """What a tracked step takes beyond the untracked one of its turn, as a share of an untracked step."""
        beyond = statistics.median(b - a for a, b in zip(self.plain, self.tracked, strict=True))
        return (beyond + self.others) / statistics.median(self.plain)

    @property
    def error(self) -> float:
        """Half of the middle half of the differences over the root of their number: how sure the median is."""
        differences = sorted(b - a for a, b in zip(self.plain, self.tracked, strict=True))
        quarter = len(differences) // 4
        return (differences[-1 - quarter] - differences[quarter]) / 2 / len(differences) ** 0.5 / statistics.median(self.plain)


def measure(*, rounds: int, device: str) -> dict[str, dict[str, Turns]]:
    """Every length of step by every way, interleaved: a turn untracked, a turn tracked."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    out: dict[str, dict[str, Turns]] = {}
    for name, size in SIZES.items():
        one = job(size, device)
        _turn(one, 20, None)
        count = max(1, round(SECONDS / _turn(one, 20, None)))
        out[name] = {way: _way(one, count, rounds, options) for way, options in WAYS.items()}
    return out


def _way(one: Job, count: int, rounds: int, options: dict[str, object]) -> Turns:
    found = Turns([], [])
    with tempfile.TemporaryDirectory(prefix="tb-sol-bench-") as folder:
        more = {"console": False, "wandb": False, "every_n_steps": NEVER, **options}
        with sol.capture(folder, model=one.model, **more) as tracker:  # type: ignore[arg-type]
            for _ in range(5):
                one.step(tracker.phase)
                tracker.step()
            before = time.process_time() - time.thread_time()
            for turn in range(rounds * TURNS):
                for tracked in (turn % 2 == 0, turn % 2 == 1):  # who comes first changes
                    cpu = _turn(one, count, tracker if tracked else None)
                    (found.tracked if tracked else found.plain).append(cpu)
                    if not tracked:
                        tracker.start_step()
        found.others = (time.process_time() - time.thread_time() - before) / (rounds * TURNS * count)
    return found


def _turn(one: Job, count: int, tracker: object) -> float:
    """CPU seconds of a step on this thread, over `count` of them."""
    cpu = time.thread_time()
    for _ in range(count):
        if tracker is None:
            one.step(no_phase)
        else:
            one.step(tracker.phase)  # type: ignore[attr-defined]
            tracker.step()  # type: ignore[attr-defined]
    return (time.thread_time() - cpu) / count


def table(figures: dict[str, dict[str, Turns]]) -> str:
    """Writes the figures as Markdown."""
    lines = ["| step | untracked, ms of CPU | " + " | ".join(WAYS) + " |", "| --- | ---: |" + " ---: |" * len(WAYS)]
    for name, ways in figures.items():
        first = next(iter(ways.values()))
        cells = [f"{one.more:+.1%} (±{one.error:.1%}), {one.others * 1e6:.0f} µs of it other threads" for one in ways.values()]
        lines.append(f"| {name} | {statistics.median(first.plain) * 1e3:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
