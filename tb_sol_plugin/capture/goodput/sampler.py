"""Divides the samples of an epoch among replicas, and goes on where it was after a restart with another number of them.

    sampler = ElasticSampler(len(dataset), batch_size=32)
    loader = DataLoader(dataset, batch_sampler=sampler)
    while sampler.epoch < epochs:
        for batch in loader:
            (loss(batch) / sampler.micro_steps).backward()
            if sampler.last:                               # of the micro-steps of an update
                optimizer.step()
            sampler.advance()                              # this batch is trained; before a checkpoint of this step

All replicas walk through one permutation together, so that one number, `position`, says what an epoch still needs. Each replica has a
batch in each step. A sample comes once in an epoch, however often the job was restarted at whichever number of replicas.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from tb_sol_plugin.capture.loop.guard import log


class Batch(NamedTuple):
    """A micro-step of all replicas. samples: of the epoch; micro_steps: of its update; last: of them; size: of the update as it was set."""

    samples: int
    micro_steps: int
    last: bool
    size: int


class ElasticSampler:
    """Gives a DataLoader, as its `batch_sampler`, the batches of this replica.

    length: samples of the data set. batch_size: of one micro-step on one replica. accum_steps: micro-steps of an update that only
    accumulate. group: the data-parallel processes, default all; num_replicas and rank instead of them. epoch, position: what is trained;
    position counts samples of the epoch. ValueError for counts that cannot be.

    Near the end of an epoch batches are smaller, and differ by one sample between replicas; none is empty: where fewer samples than
    replicas are left after a restart, some replicas repeat one of them, which is logged.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        accum_steps: int = 0,
        *,
        shuffle: bool = True,
        seed: int = 0,
        group: object = None,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        found = _place(group)
        self.num_replicas = found[0] if num_replicas is None else int(num_replicas)
        self.rank = found[1] if rank is None else int(rank)
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"rank {self.rank} of {self.num_replicas} replicas")
        if int(length) < 1:
            raise ValueError(f"a data set of {length} samples")
        self.length, self.shuffle, self.seed = int(length), bool(shuffle), int(seed)
        self.group = group
        self.epoch = self.position = 0
        self.set_batch_size(batch_size, accum_steps)
        self._given: deque[Batch] = deque()

    def set_batch_size(self, batch_size: int, accum_steps: int = 0) -> None:
        """Set the sizes of updates that are not given out yet; on all replicas at the same place. ValueError below 1 and 0."""
        if int(batch_size) < 1 or int(accum_steps) < 0:
            raise ValueError(f"a batch size of {batch_size} with {accum_steps} accumulation steps")
        self.batch_size, self.accum_steps = int(batch_size), int(accum_steps)

    # --- Batches ---

    def __iter__(self) -> Iterator[list[int]]:
        """Give out the batches that the epoch still needs; what was given out before and is not trained comes again."""
        self._given.clear()
        order, drawn = self._order(), self.position
        while drawn < self.length:
            for batch in self._update(self.length - drawn):
                samples = list(order(drawn, drawn + batch.samples))
                drawn += batch.samples
                self._given.append(batch)
                yield self._share(samples)

    def __len__(self) -> int:
        """Return how many batches the epoch still needs, at the sizes that are set now."""
        left, count = self.length - self.position, 0
        while left:
            update = self._update(left)
            left -= sum(batch.samples for batch in update)
            count += len(update)
        return count

    def _update(self, left: int) -> list[Batch]:
        """Return the batches of the next update. The last ones of an epoch are chosen such that none has fewer samples than replicas."""
        replicas, whole, taken = self.num_replicas, self.num_replicas * self.batch_size, list[int]()
        while left and len(taken) <= self.accum_steps:
            take = left if left <= whole or left < 2 * replicas else min(whole, left - replicas)
            taken.append(take)
            left -= take
        size = whole * (self.accum_steps + 1)
        return [Batch(take, len(taken), i == len(taken) - 1, size) for i, take in enumerate(taken)]

    def _share(self, samples: list[int]) -> list[int]:
        if len(samples) >= self.num_replicas:
            return samples[self.rank :: self.num_replicas]
        if self.rank == 0:
            log.warning("sampler: %d samples are left for %d replicas: some are repeated", len(samples), self.num_replicas)
        return [samples[self.rank % len(samples)]]

    def _order(self) -> Callable[[int, int], Iterable[int]]:
        """Return what gives the samples between two positions of this epoch."""
        if not self.shuffle:
            return range
        import torch

        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.length, generator=generator)
        return lambda start, end: order[start:end].tolist()

    # --- The batch in training ---

    def _now(self) -> Batch:
        if not self._given:
            raise RuntimeError("no batch was given out that is not trained: one `advance` per batch, while the loader runs")
        return self._given[0]

    @property
    def micro_steps(self) -> int:
        """The micro-steps of the update in training, by which its losses are divided."""
        return self._now().micro_steps

    @property
    def last(self) -> bool:
        """Whether the batch in training is the last one of its update, after which the optimizer steps."""
        return self._now().last

    @property
    def update_size(self) -> int:
        """The samples of the update in training, on all replicas, as its sizes were set; before the first one, as they are."""
        return self._given[0].size if self._given else self.num_replicas * self.batch_size * (self.accum_steps + 1)

    def advance(self) -> None:
        """Count the batch in training as trained. After the last one, the next epoch begins. RuntimeError: none was given out."""
        self.position += self._now().samples
        self._given.popleft()
        if self.position >= self.length:
            self.epoch, self.position = self.epoch + 1, 0

    # --- What outlives the process ---

    def state_dict(self) -> dict[str, int | bool]:
        """Return the state as a value of JSON, the same on all replicas."""
        names = ("length", "shuffle", "seed", "epoch", "position", "batch_size", "accum_steps")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: Mapping[str, int | bool]) -> None:
        """Go on where a state was saved, on every replica. ValueError where it is of another data set or cannot be."""
        if state["length"] != self.length:
            raise ValueError(f"the state is of a data set of {state['length']} samples, this one has {self.length}")
        if not 0 <= state["position"] < self.length or state["epoch"] < 0:
            raise ValueError(f"a state at sample {state['position']} of epoch {state['epoch']}")
        self.set_batch_size(state["batch_size"], state["accum_steps"])
        self.shuffle, self.seed = bool(state["shuffle"]), int(state["seed"])
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self._given.clear()


def _place(group: object) -> tuple[int, int]:
    """Return (replicas, rank) of the processes of a group; (1, 0) without any."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return 1, 0
    return distributed.get_world_size(group), distributed.get_rank(group)
