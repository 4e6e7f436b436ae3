"""Brings numbers from a device and adds them up over the replicas of a job; nothing waits for them.

They are added up by gloo on a group of its own: a replica that stops sending holds up neither the training's collectives nor a device.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Processes:
    """Names a group for small numbers, and how many processes it has."""

    group: Any
    size: int


def own_group(like: object = None) -> Processes | None:
    """Return a group of the same processes (default all), on gloo; None for one process. A collective of these processes.

    RuntimeError where there are several, and no gloo.
    """
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    if distributed.get_world_size() > 1 and not distributed.is_gloo_available():
        raise RuntimeError("gradient statistics over several replicas need gloo")
    if like is None:
        group = distributed.new_group(backend="gloo")
    else:  # several such groups may be made at once, one for each part of the model
        ranks = distributed.get_process_group_ranks(like)
        group = distributed.new_group(ranks, backend="gloo", use_local_synchronization=True)
    size = distributed.get_world_size(group)
    return Processes(group, size) if size > 1 else None


class Pending:
    """Waits for a sum over processes that is under way.

    values: once `done`. sent: numbers as they lie on the device; processes: those over which they are added up, None for this one
    alone. update: the one that was measured; gap: updates until the next one, as this process wants it; these are compared over the
    processes, and `newest`, `oldest` and `gap` are the extremes of all once it is done.

    shared: whether there are other processes. about: count, scale, biased, preconditioned.
    """

    def __init__(
        self, sent: Tensor, processes: Processes | None, about: tuple[int, float, bool, bool], *, update: int = 0, gap: int = 1
    ) -> None:
        self.about = about
        self.values: list[float] = []
        self.newest = self.oldest = update
        self.gap = gap
        self._began = perf_counter()
        self.shared = processes is not None
        self._processes = processes
        self._works: list[Any] = []
        self._extremes: Any = None
        self._event: Any = None
        self._sent = sent  # kept: the copy reads it
        self._here: Tensor = sent
        if sent.device.type == "cuda":
            import torch

            self._here = torch.empty(sent.shape, dtype=sent.dtype, pin_memory=True)
            self._here.copy_(sent, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    @property
    def age(self) -> float:
        """Seconds since it was sent."""
        return perf_counter() - self._began

    def done(self, seconds: float = 0.0) -> bool:
        """Return whether the values are there, after so long at the most. Each process has one sum under way, so that all match."""
        until = perf_counter() + seconds
        while self._event is not None and not self._event.query():
            if perf_counter() >= until:
                return False
            sleep(0.001)
        self._event = None
        if self._processes is not None:
            self._start(self._processes.group)
            while not all(work.is_completed() for work in self._works):
                if perf_counter() >= until:
                    return False
                sleep(0.001)
            for work in self._works:
                work.wait(timedelta(seconds=1))
            newest, oldest, self.gap = self._extremes.tolist()
            self.newest, self.oldest = newest, -oldest
            self._works, self._processes = [], None
        self.values = self._here.tolist()
        return True

    def _start(self, group: Any) -> None:
        """Begin the sum, and the maximum of what is compared, once."""
        if self._works:
            return
        import torch

        self._extremes = torch.tensor([self.newest, -self.oldest, self.gap], dtype=torch.int64)
        distributed = torch.distributed
        self._works = [
            distributed.all_reduce(self._here, group=group, async_op=True),
            distributed.all_reduce(self._extremes, op=distributed.ReduceOp.MAX, group=group, async_op=True),
        ]


FIRST: Final = 20
"""Measurements of a job's start that may cost what they do, so that a short job has some."""
SHARE: Final = 0.02
"""Of a step's time, what measurements may take after these."""
LONGEST: Final = 100
"""Updates between two measurements that cost more."""


class Schedule:
    """Chooses the updates that all replicas measure, at the rate that their cost allows and at which their sums arrive.

    every: each so manieth at the most, whatever it costs; None: as the cost allows. A replica has one sum under way; until it is there,
    nothing is measured. Each sum also tells which update it is of, and how many updates from there its sender wants the next one: from
    that, all replicas choose the same. Where one learned of it too late and measured a later update, all see that the updates differ,
    leave that sum out, and choose anew.
    """

    def __init__(self, every: int | None) -> None:
        self.every = every
        self.next = 0
        self.left_out = 0
        self._missed = self._lag = self._measured = 0

    def passed(self) -> None:
        """Count an update that is not measured since a sum is still under way."""
        self._missed += 1

    def gap(self, share: float) -> int:
        """Return how many updates from this measured one the next should be. share: of the update's time that its measurement took.

        As many as passed before the last sum was there; a long delay is forgotten by 1 per sum.
        """
        self._lag, self._missed = max(self._missed, self._lag - 1, 0), 0
        free = self.every is not None or self._measured < FIRST
        return max(self._lag + 1, self.every or 1, 1 if free else min(math.ceil(share / SHARE), LONGEST))

    def measured(self, newest: int, gap: int) -> None:
        """Choose the next update after a measured one."""
        self._measured += 1
        self.next = newest + gap

    def arrived(self, one: Pending) -> bool:
        """Take in what a sum tells, the same on all replicas; False where it is of different updates."""
        self.measured(one.newest, one.gap)
        if one.newest != one.oldest:
            self.left_out += 1
        return one.newest == one.oldest
