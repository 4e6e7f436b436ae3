"""Proposes the batch size of the highest goodput, and applies it with its learning rate when asked.

    adaptive = AdaptiveBatchSize(sampler, optimizer)      # an ElasticSampler; on every replica
    proposal = adaptive.propose()                         # now and then, on every replica at the same place, between updates
    if proposal and proposal.gain > 1.05:
        adaptive.apply(proposal)                          # else nothing changes

The replicas' first process proposes, by its fit and statistics of gradients (`watch_gradients`), within `set_batch_sizes` and the memory
of every device. AdaScale: Johnson et al., AdaScale SGD: A User-Friendly Algorithm for Distributed Training, 2020.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from tb_sol_plugin.capture.goodput.sampler import ElasticSampler
from tb_sol_plugin.capture.goodput.state import gathered
from tb_sol_plugin.capture.goodput.steps import StepRecorder, recorder

if TYPE_CHECKING:
    from torch.optim import Optimizer

Rule: TypeAlias = Literal["adascale", "square_root"]
GROWTH: Final = 2.0
"""A micro-step is proposed of so many times the largest one that ran, at the most: beyond that, times and memory are guesses."""
MEMORY_SHARE: Final = 0.9
"""Of the memory that a device could give this process, what a proposal may take."""


class Proposal(NamedTuple):
    """A batch size. atomic_bsz: samples of one micro-step on one replica; accum_steps: micro-steps of an update that only accumulate.

    batch_size: samples of an update on all replicas. goodput: samples per second, each worth as much as one at the first batch size;
    gain: that over the goodput of the sizes now, infinite where these are outside of the limits. lr_factor: of the learning rate at the
    first batch size. limit: what keeps the micro-step from being larger, where that would be better; else "". sqr, var: of the gradient.
    """

    atomic_bsz: int
    accum_steps: int
    batch_size: int
    goodput: float
    gain: float
    lr_factor: float
    limit: str
    sqr: float
    var: float


class AdaptiveBatchSize:
    """Proposes batch sizes for a sampler, and applies them.

    optimizer: whose learning rates are scaled once a proposal is applied, in its steps alone, so that schedulers see theirs. rule:
    "adascale", by what a larger batch is worth, or "square_root" of the batch size over the first one; default that for Adam and its
    kin, else AdaScale. memory: returns bytes in use between steps, at the peak, and that this process may use; None unknown. Default:
    those of the current CUDA device.
    """

    def __init__(
        self,
        sampler: ElasticSampler,
        optimizer: Optimizer | None = None,
        *,
        rule: Rule | None = None,
        memory: Callable[[], tuple[int, int, int] | None] | None = None,
        steps: StepRecorder | None = None,
    ) -> None:
        if rule not in (None, "adascale", "square_root"):
            raise ValueError(f"rule is {rule!r}, not adascale or square_root")
        adam = optimizer is not None and any("betas" in group for group in optimizer.param_groups)
        self.rule: Rule = rule or ("square_root" if adam else "adascale")
        self.applied = False
        self._sampler, self._optimizer, self._memory, self._steps = sampler, optimizer, memory or _cuda_memory, steps or recorder()
        self._initial = 0
        self._noise = 0.0, 0.0
        self._handles: list[Any] = []
        self._rates: list[Any] | None = None

    # --- Proposals ---

    def propose(self) -> Proposal | None:
        """Return the best sizes now, the same on every replica; None, with the reason in the log, where they are not known yet.

        A collective: on every replica at the same place, between updates. It waits for rank 0, which fits where there is no fit yet.
        """
        most = min(one["most"] for one in gathered({"most": self._most()}, self._sampler.group))
        own: dict[str, Any] = {}
        if self._sampler.rank == 0:
            try:
                found = self._best(most)
                own = {} if found is None else found._asdict()
            except Exception as error:  # the others wait for it
                self._steps.warn_once("proposal failed", f"no batch size is proposed: {type(error).__name__}: {error}"[:300])
        first = gathered(own, self._sampler.group)[0]
        return Proposal(**first) if first else None

    def _best(self, most: float) -> Proposal | None:
        """Return the sizes of the highest goodput; those now where they are as good."""
        s, replicas = self._steps.state, self._sampler.num_replicas
        goodput = self._steps.goodput_fn(fit=s.perf_params is None)
        if goodput is None or s.init_batch_size is None or goodput.grad_params is None:
            text = "no batch size is proposed yet: it needs counted steps, set_batch_sizes and statistics of gradients (watch_gradients)"
            self._steps.warn_once("proposal", text)
            return None
        nodes = min(self._steps.replicas()[0], replicas)
        total = s.max_batch_size or s.init_batch_size
        low, high = s.local_bsz_bounds or (1, total)
        caps = [(float(high), "local_bsz_bounds" if s.local_bsz_bounds else "max_batch_size"), (most, "memory")]
        tried = max((key.atomic_bsz for key in s.profile), default=self._sampler.batch_size)
        found, limit = None, ""
        for tries in ([*caps, (GROWTH * tried, "the largest one tried")], caps):
            cap, limit = min(tries)
            if cap >= low:
                found = goodput.optimize(nodes, replicas, total, (low, cap), s.gradient_accumulation, strict=True)
            if found is not None and found.atomic_bsz:
                break
        else:
            text = f"no batch size is proposed: none from init_batch_size {s.init_batch_size} to {total} fits {replicas} replicas of {low}"
            self._steps.warn_once("no size", f"{text} to {min(caps)[0]:g} samples in a micro-step")
            return None
        value, atomic, accum = float(found.goodput), int(found.atomic_bsz), int(found.accum_steps)
        now = self._sampler.batch_size, self._sampler.accum_steps
        gain = math.inf
        if s.init_batch_size <= replicas * now[0] * (now[1] + 1) <= total and low <= now[0] <= min(caps)[0]:
            value_now = float(goodput.evaluate(nodes, replicas, *now))
            gain = value / value_now
            if gain <= 1:
                value, (atomic, accum), gain = value_now, now, 1.0
        wider = goodput.optimize(nodes, replicas, total, (low, total), s.gradient_accumulation, strict=True)
        limit = limit if cap < total and float(wider.goodput) > value * (1 + 1e-6) else ""
        batch_size = replicas * atomic * (accum + 1)
        sqr, var = (max(v, 0.0) for v in goodput.grad_params)
        factor = lr_factor(self.rule, batch_size / s.init_batch_size, sqr, var)
        return Proposal(atomic, accum, batch_size, value, gain, factor, limit, sqr, var)

    def _most(self) -> float:
        """Return the samples of a micro-step that fit the memory, by those of the largest one that ran; infinite where that is not known.

        What is in use beyond the memory between steps grows with the samples.
        """
        found, largest = self._memory(), self._steps.largest_batch()
        if found is None or not largest:
            return math.inf
        rest, peak, usable = found
        return math.floor(max(MEMORY_SHARE * usable - rest, 0.0) * largest / (peak - rest)) if peak > rest else math.inf

    # --- Application ---

    def apply(self, proposal: Proposal) -> None:
        """Take the sizes from the next update that the sampler has not given out, and the learning rate from the updates of that size.

        On every replica at the same place, with the same proposal.
        """
        self._sampler.set_batch_size(proposal.atomic_bsz, proposal.accum_steps)
        self._noise, self._initial = (proposal.sqr, proposal.var), self._steps.state.init_batch_size or 0
        self.applied = True
        self._hook()

    def factor(self, batch_size: float) -> float:
        """Return the factor of the learning rate at a batch size, by what was last applied; 1 before."""
        if not self.applied or self._initial < 1:
            return 1.0
        return lr_factor(self.rule, batch_size / self._initial, *self._noise)

    def remove(self) -> None:
        """Leave the learning rates as they are from here on."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._restore()

    def _hook(self) -> None:
        if self._optimizer is not None and not self._handles:
            self._handles = [self._optimizer.register_step_pre_hook(self._scale), self._optimizer.register_step_post_hook(self._restore)]

    def _scale(self, optimizer: Any, *_: object) -> None:
        self._restore()  # of a step that failed
        factor = self.factor(self._sampler.update_size)
        self._rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    def _restore(self, *_: object) -> None:
        rates, self._rates = self._rates, None
        if rates is not None and self._optimizer is not None:
            for group, rate in zip(self._optimizer.param_groups, rates, strict=False):
                group["lr"] = rate

    # --- What outlives the process ---

    def state_dict(self) -> dict[str, float]:
        """Return the state as a value of JSON, the same on all replicas; the sizes are in the sampler's."""
        return {"applied": self.applied, "init_batch_size": self._initial, "sqr": self._noise[0], "var": self._noise[1]}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Scale learning rates as when the state was saved, on every replica."""
        self.applied, self._initial = bool(state["applied"]), int(state["init_batch_size"])
        self._noise = float(state["sqr"]), float(state["var"])
        if self.applied:
            self._hook()


def lr_factor(rule: Rule, scale: float, sqr: float, var: float) -> float:
    """Return the factor of the learning rate at `scale` times the first batch size, by the gradient's squared norm and variance there."""
    if rule == "square_root":
        return math.sqrt(scale)
    below = var / scale + sqr
    return (var + sqr) / below if below > 0 else 1.0


def _cuda_memory() -> tuple[int, int, int] | None:
    """Return bytes allocated now, at most so far, and that this process could have, of the current CUDA device; None without one."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_available() or not cuda.is_initialized():
        return None
    return cuda.memory_allocated(), cuda.max_memory_allocated(), cuda.mem_get_info()[0] + cuda.memory_reserved()
