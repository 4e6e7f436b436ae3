"""Numbers on their way from a device, and over the replicas of a job; nobody waits for them.

They are added up by gloo on a group of its own: a replica that stops sending holds up neither the training's collectives nor a device.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Processes:
    """A group for small numbers, and how many processes it has."""

    group: Any
    size: int


def own_group(like: object = None) -> Processes | None:
    """A group of the same processes (default all), on gloo; None for one process. A collective of these processes.

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
    """values: once `done`. sent: numbers as they lie on the device; processes: those over which they are added up, None for this one alone.

    about: count, scale, biased, preconditioned.
    """

    def __init__(self, sent: Tensor, processes: Processes | None, about: tuple[int, float, bool, bool]) -> None:
        self.about = about
        self.values: list[float] = []
        self._processes = processes
        self._work: Any = None
        self._event: Any = None
        self._sent = sent  # kept: the copy reads it
        self._here: Tensor = sent
        if sent.device.type == "cuda":
            import torch

            self._here = torch.empty(sent.shape, dtype=sent.dtype, pin_memory=True)
            self._here.copy_(sent, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def done(self, seconds: float = 0.0) -> bool:
        """Whether the values are there, after so long at the most. Replicas start their sums in the order of their measurements."""
        until = perf_counter() + seconds
        while self._event is not None and not self._event.query():
            if perf_counter() >= until:
                return False
            sleep(0.001)
        self._event = None
        if self._processes is not None:
            if self._work is None:
                import torch

                self._work = torch.distributed.all_reduce(self._here, group=self._processes.group, async_op=True)
            while not self._work.is_completed():
                if perf_counter() >= until:
                    return False
                sleep(0.001)
            self._work.wait(timedelta(seconds=1))
            self._work = self._processes = None
        self.values = self._here.tolist()
        return True
