"""Measures gradients of a model in training: their noise scale, and how long each step waits for their reduction.

    watch = watch_gradients(model, optimizer)        # after DistributedDataParallel, fully_shard; before the first step

It works with DistributedDataParallel, with fully_shard, and with one replica: from its micro-steps where it accumulates gradients, else
from differences of successive steps, which is marked biased and keeps a copy of the gradients. One small sum over the replicas per
measured step is all it communicates, on a group of its own; nothing waits for it. Hooks return nothing and never raise.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tb_sol_plugin.capture.goodput.pending import Pending, Processes, Schedule, own_group
from tb_sol_plugin.capture.goodput.state import Key
from tb_sol_plugin.capture.goodput.steps import StepRecorder, recorder

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer


# -- The gradient noise scale ----------------------------------------------------------------------------------------
# how much of a gradient is signal, from gradients of parts of a batch and from that of the whole.
#
# For `count` gradients of equal parts, local = mean of their squared norms, total = squared norm of their mean, M/M0 = scale:
#
#     sqr = (count total - local) / (count - 1),  var = (local - total) scale / (count - 1)
#
# Both are without bias where the parts are independent (McCandlish et al., An Empirical Model of Large-Batch Training, 2018, appendix A),
# var at the batch size M0. Averages over steps forget with 0.999^scale per step; their bias towards 0 at the start is taken out.


SMOOTHING: Final = 0.999


@dataclass
class Averages:
    """Averages gradient statistics over steps.

    sqr, var: per group of the optimizer. biased: of differences of successive steps. preconditioned: of g over the optimizer's scale.

    updates: steps taken in; skipped: not finite.
    """

    sqr: list[float] = field(default_factory=list)
    var: list[float] = field(default_factory=list)
    weight: float = 0.0
    biased: bool = False
    preconditioned: bool = False
    updates: int = 0
    skipped: int = 0

    def update(
        self,
        local: Sequence[float],
        total: Sequence[float],
        count: int,
        scale: float,
        *,
        biased: bool = False,
        preconditioned: bool = False,
    ) -> bool:
        """Add one step; False where its gradients are not finite, or there is but one part. Another way of measuring begins anew."""
        if count < 2 or scale <= 0 or not all(math.isfinite(v) for v in (*local, *total)):
            self.skipped += 1
            return False
        if biased != self.biased or preconditioned != self.preconditioned or len(local) != len(self.sqr):
            self.sqr, self.var, self.weight = [0.0] * len(local), [0.0] * len(local), 0.0
            self.biased, self.preconditioned = biased, preconditioned
        keep = SMOOTHING**scale
        for i, (one, whole) in enumerate(zip(local, total, strict=True)):
            self.sqr[i] = keep * self.sqr[i] + (1 - keep) * (count * whole - one) / (count - 1)
            self.var[i] = keep * self.var[i] + (1 - keep) * (one - whole) * scale / (count - 1)
        self.weight = keep * self.weight + 1 - keep
        self.updates += 1
        return True

    def grad_params(self) -> tuple[float, float] | None:
        """Return (sqr, var), summed over groups; None before the first step. Either may be below 0."""
        if self.weight <= 0:
            return None
        return math.fsum(self.sqr) / self.weight, math.fsum(self.var) / self.weight

    def state(self) -> dict[str, object]:
        """Return the state as a value of JSON."""
        return dict(asdict(self))

    @classmethod
    def of(cls, state: dict[str, object]) -> Averages:
        """Return averages from `state`; new ones where it is none."""
        new = cls()
        sqr, var, weight = state.get("sqr"), state.get("var"), state.get("weight")
        lists = isinstance(sqr, list) and isinstance(var, list) and len(sqr) == len(var)
        if lists and isinstance(weight, float) and 0 < weight <= 1 and all(isinstance(v, float) and math.isfinite(v) for v in [*sqr, *var]):  # type: ignore[misc]
            new.sqr, new.var, new.weight = list(sqr), list(var), weight  # type: ignore[call-overload]
            new.biased, new.preconditioned = state.get("biased") is True, state.get("preconditioned") is True
        return new


# -- The scale that Adam and its kin divide gradients by -------------------------------------------------------------
# sqrt(v) + eps, v without its bias towards 0.


FIRST: Final = 5
"""Updates before v says something."""


class Preconditioner:
    """Divides gradients as Adam does, by the optimizer's `exp_avg_sq`.

    Without one, and before the fifth update, it leaves them as they are.

    on: whether it divides; it changes between updates only.
    """

    def __init__(self, optimizer: Optimizer | None) -> None:
        self._optimizer = optimizer
        self._group = {} if optimizer is None else {p: group for group in optimizer.param_groups for p in group["params"]}
        self._updates: int | None = None
        self.on = False
        self.passed()

    def over(self, grad: Tensor, p: Tensor | None) -> Tensor:
        """Divide a gradient, or a tensor of its shape, by the scale of its parameter."""
        if not self.on or p is None or self._optimizer is None:
            return grad
        state, group = self._optimizer.state.get(p), self._group.get(p)
        square = None if state is None else state.get("exp_avg_sq")
        if square is None or group is None or square.shape != grad.shape:
            return grad
        unbiased: Any = 1 - group["betas"][1] ** state["step"]
        return grad / ((square / unbiased).sqrt() + group["eps"])  # type: ignore[no-any-return]

    def passed(self) -> None:
        """Count an update, or find how many there were before this began."""
        if self._optimizer is None:
            return
        if self._updates is not None:
            self._updates += 1
        else:
            for p, group in self._group.items():
                state = self._optimizer.state.get(p) or {}
                if "exp_avg_sq" in state and "step" in state and "betas" in group and "eps" in group:
                    self._updates = int(state["step"])
                    break
        self.on = self._updates is not None and self._updates >= FIRST


MOST_PENDING: Final = 64
"""Measurements that a device has not finished yet, and waits that it has not passed."""
LATE_S: Final = 60.0
"""Seconds after which a sum over replicas that has not arrived is reported."""


def watch_gradients(
    model: nn.Module,
    optimizer: Optimizer | None = None,
    *,
    every: int | None = None,
    group: object = None,
    loss_divided: bool = True,
    scaler: object = None,
    steps: StepRecorder | None = None,
) -> GradientMonitor:
    """Measure gradients of a model from now on, for the recorder of steps; `remove()` ends it. On every replica at the same place.

    optimizer: with Adam and its kin, norms are of gradients over its scale sqrt(v) + eps, from its fifth step on; its groups are measured
    apart and summed. every: measure each so manieth update; default: 20, and then as many as take 2 % of the time of steps. group: the
    data-parallel processes, default all. loss_divided: with accumulation the loss is divided by the number of micro-steps, as is usual.
    scaler: a GradScaler, whose factor is taken out. Gradients of sharded parameters are not divided by Adam's scale, which no replica
    has whole.
    """
    return GradientMonitor(
        model, optimizer, every=every, group=group, loss_divided=loss_divided, scaler=scaler, steps=steps or recorder()
    ).attach()


class GradientMonitor:
    """Measures the gradients of one model, see `watch_gradients`. averages: of what was measured so far."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        *,
        every: int | None,
        group: object,
        loss_divided: bool,
        scaler: object,
        steps: StepRecorder,
    ) -> None:
        self._model = weakref.ref(model)
        self._sharded = any(_is_sharded(m) for m in model.modules())
        self._groups = _groups(model, None if self._sharded else optimizer)
        self._preconditioner = Preconditioner(None if self._sharded else optimizer)
        self._schedule = Schedule(None if every is None else max(int(every), 1))
        self._spent = self._sending = self._took = 0.0  # seconds: in hooks, in sending the last measurement, in steps of this update
        self._divided, self._scaler, self._steps = loss_divided, scaler, steps
        self._processes = own_group(group)
        self.averages = Averages.of(steps.state.noise)
        self._handles: list[Any] = []
        self._hooked: dict[int, weakref.ref[Tensor]] = {}
        self._updates = 0
        self._inside = False  # a backward pass runs whose end is waited for
        self._began: Any = None
        self._waits: list[tuple[Any, Any]] = []
        self._unresolved_waits: list[tuple[Key, float, list[tuple[Any, Any]]]] = []
        self._chosen: bool | None = None  # whether this update is measured; None before its first backward pass
        self._accumulates = False
        self._local: list[list[Any]] = [[] for _ in self._groups]
        self._total: list[Any] | None = None
        self._scale: Any = 1.0  # of the loss when that was measured
        self._before: tuple[int, list[list[Any]]] | None = None
        self._difference: tuple[list[Any], list[Any]] | None = None
        self._pending: list[Pending] = []

    # --- Hooks ---

    def attach(self) -> GradientMonitor:
        """Put the hooks on; once."""
        model = self._model()
        if self._handles or model is None:
            return self
        if self._sharded:
            self._handles += [module.register_forward_pre_hook(self._unsharded) for module in model.modules()]
        else:
            for place, params in enumerate(self._groups):
                for p in params:
                    self._hook(p, place)
        self._handles.append(model.register_forward_hook(self._forward, prepend=True))
        self._steps.on_commit.append(self._commit)
        return self

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._hooked.clear()
        self._before = None
        if self._commit in self._steps.on_commit:
            self._steps.on_commit.remove(self._commit)

    def _hook(self, p: Tensor, place: int) -> None:
        own = weakref.ref(p)
        self._hooked[id(p)] = own
        self._handles.append(p.register_hook(lambda grad: self._guarded(lambda: self._gradient(grad, own(), place))))

    def _unsharded(self, module: nn.Module, _: object) -> None:
        """Return the parameters of a sharded module while it runs: whole, and others than those of the optimizer."""

        def look() -> None:
            for p in module._parameters.values():
                found = None if p is None else self._hooked.get(id(p))
                if p is not None and p.requires_grad and not hasattr(p, "placements") and (found is None or found() is not p):
                    self._hook(p, 0)

        self._guarded(look)

    def _guarded(self, call: Callable[[], None]) -> None:
        """Run the work of a hook; an error ends the measurement and does not reach training."""
        began = time.perf_counter()
        try:
            call()
            self._spent += time.perf_counter() - began
        except Exception as error:
            self._steps.warn_once("gradients", f"gradients are not measured any more: {type(error).__name__}: {error}"[:300])
            self.remove()

    def _forward(self, _: nn.Module, __: object, output: object) -> None:
        """Hook the outputs, to be called when their backward pass begins, before a wrapper queues what ends it."""

        def look() -> None:
            for tensor in _tensors(output):
                if tensor.requires_grad and not tensor.is_leaf:
                    tensor.register_hook(lambda grad: self._guarded(lambda: self._begin(grad.device)))
                    return

        self._guarded(look)

    # --- A backward pass ---

    def _begin(self, device: Any) -> None:
        if self._inside:
            return
        from torch.autograd import Variable

        self._inside = True
        if self._chosen is None:
            self._resolve()
            self._chosen = self._choose()
        Variable._execution_engine.queue_callback(lambda: self._guarded(lambda: self._through(device)))

    def _gradient(self, grad: Tensor, p: Tensor | None, place: int) -> None:
        """Measure the gradient of one parameter from one backward pass, before any reduction."""
        self._begin(grad.device)
        if not self._chosen:
            return
        import torch

        with torch.no_grad():
            self._local[place].append(torch.linalg.vector_norm(self._preconditioner.over(_dense(grad), p), dtype=torch.float32))

    def _through(self, device: Any) -> None:
        """Note that all gradients of this process are there; the wait for those of others comes next."""
        from torch.autograd import Variable

        self._began = _moment(device)
        Variable._execution_engine.queue_callback(lambda: self._guarded(lambda: self._end(device)))

    def _end(self, device: Any) -> None:
        """Note that all gradients are reduced; on a device, in the order of its stream."""
        self._inside = False
        if device.type in ("cpu", "cuda"):  # others have clocks of their own
            self._waits = [*self._waits[-MOST_PENDING:], (self._began, _moment(device))]
        alone = self._steps.replicas()[1] == 1 and not self._accumulates and not self._steps.micro_steps
        next_one = alone and self._updates + 1 >= self._schedule.next
        if self._chosen or next_one:
            self._whole(alone)

    def _choose(self) -> bool:
        """Return whether to measure the update that begins: all replicas the same one, and none while the last one's sum is under way."""
        if self._processes is None or self._steps.replicas()[1] == 1:
            return self._updates >= self._schedule.next and len(self._pending) < MOST_PENDING
        if not self._pending:
            return self._updates >= self._schedule.next
        self._schedule.passed()
        if self._pending[0].age > LATE_S:
            text = "for {:.0f} s the sum over replicas of an update's gradients has not arrived: another replica does not send its part"
            self._steps.warn_once("behind", text.format(self._pending[0].age) + "; gradients are measured again when it does")
        return False

    def _whole(self, alone: bool) -> None:
        """Measure squared norms of the gradients as they stand; for a lone replica, also of their mean with those of the update before."""
        import torch

        with torch.no_grad():
            self._scale = scale = self._loss_scale()
            pairs = [[(p, _local(p.grad)) for p in params if p.grad is not None] for params in self._groups]
            self._total = [_square_sum(self._preconditioner.over(g, p) for p, g in group) / scale**2 for group in pairs]
            if not alone:
                self._before = self._difference = None
                return
            now = [[g / scale if self._scaler is not None else g.clone() for _, g in group] for group in pairs]
            before, self._before, self._difference = self._before, (self._updates, now), None
            if before is None or before[0] != self._updates - 1 or [len(g) for g in before[1]] != [len(g) for g in now]:
                return
            earlier, means = [], []
            for group, old, new in zip(pairs, before[1], now, strict=True):
                earlier.append(_square_sum(self._preconditioner.over(g, p) for (p, _), g in zip(group, old, strict=True)))
                both = zip(group, old, new, strict=True)
                means.append(_square_sum(self._preconditioner.over((a + b) / 2, p) for (p, _), a, b in both))
            self._difference = [(a + b) / 2 for a, b in zip(earlier, self._total, strict=True)], means

    def _loss_scale(self) -> Any:
        scale = getattr(self._scaler, "_scale", None)
        return 1.0 if scale is None else scale.detach().clone()

    # --- The end of a step ---

    def _commit(self, key: Key, micro_steps: int, accumulation: bool) -> None:
        """Close a micro-step: with the last one of an update, what was measured becomes one step of the averages."""
        began = time.perf_counter()
        waits, self._waits, self._inside = self._waits, [], False
        self._took += self._steps.took
        if not accumulation and key.num_replicas > 1:
            self._unresolved_waits = [*self._unresolved_waits[-MOST_PENDING:], (key, self._steps.took, waits)]
        self._unresolved_waits = [one for one in self._unresolved_waits if not self._report_wait(*one)]
        self._resolve()
        if accumulation:
            return
        measuring, self._chosen = self._chosen, None
        self._updates, self._accumulates = self._updates + 1, micro_steps > 1
        local, total, difference = self._local, self._total, self._difference
        self._local, self._total, self._difference = [[] for _ in self._groups], None, None
        about = self._preconditioner.on
        self._preconditioner.passed()
        share = (self._spent + self._sending) / self._took if self._took > 0 else 0.0
        self._spent = self._took = 0.0
        if not measuring or total is None:
            return
        gap = self._schedule.gap(share)
        if self._processes is None or key.num_replicas == 1:
            self._schedule.measured(self._updates - 1, gap)
        initial = self._steps.state.init_batch_size
        if initial is None:
            return self._steps.warn_once("initial", "gradients are measured, but not used: call set_batch_sizes(init_batch_size=...)")
        scale = key.num_replicas * key.atomic_bsz * micro_steps / initial
        count = key.num_replicas * micro_steps
        if count > 1:
            square = (micro_steps if self._divided else 1) ** 2 / count / self._scale**2
            copies = self._copies() * (1 if self._divided else micro_steps**2)
            parts = [_squares(norms) * square for norms in local]
            processes = self._processes if key.num_replicas > 1 else None
            self._send(parts, [one / copies for one in total], (count, scale, False, about), processes, gap)
        elif difference is not None:
            self._send(*difference, (2, 2 * scale, True, about), None, gap)
        self._sending = time.perf_counter() - began

    def _copies(self) -> int:
        """Return on how many processes the same part of the gradients lies."""
        if self._processes is None:
            return 1
        grad = next((p.grad for params in self._groups for p in params if p.grad is not None), None)
        placements, mesh = getattr(self._first_parameter() if grad is None else grad, "placements", None), None
        if placements is None:
            return self._processes.size
        mesh = self._first_parameter().device_mesh
        size = 1
        for at, placement in enumerate(placements):
            size *= 1 if placement.is_shard() else mesh.size(at)
        return size

    def _first_parameter(self) -> Any:
        return next(p for params in self._groups for p in params)

    def _send(
        self, local: list[Any], total: list[Any], about: tuple[int, float, bool, bool], processes: Processes | None, gap: int
    ) -> None:
        import torch

        values = torch.stack([v.to(torch.float32) for v in (*local, *total)])
        self._pending.append(Pending(values, processes, about, update=self._updates - 1, gap=gap))
        self._resolve()

    def _resolve(self, *, seconds: float = 0.0) -> None:
        """Add the sums that have arrived, in their order."""
        arrived = False
        while self._pending and self._pending[0].done(seconds):
            one = self._pending.pop(0)
            if one.shared and not self._schedule.arrived(one):
                continue
            values, (count, scale, biased, preconditioned) = one.values, one.about
            half = len(values) // 2
            self.averages.update(values[:half], values[half:], count, scale, biased=biased, preconditioned=preconditioned)
            arrived = True
        found = self.averages.grad_params() if arrived else None
        if found is not None:
            self._steps.set_grad_params(*found, biased=self.averages.biased)
            self._steps.state.noise = self.averages.state()

    def flush(self, seconds: float = 10.0) -> None:
        """Wait that long for what was measured."""
        self._resolve(seconds=seconds)

    def _report_wait(self, key: Key, took: float, waits: list[tuple[Any, Any]]) -> bool:
        """Report how long a step waited; False while the device has not passed it."""
        if all(isinstance(began, float) for began, _ in waits):
            if waits:
                self._steps.waited(key, sum(ended - began for began, ended in waits), took)
            return True
        if not all(ended.query() for _, ended in waits):
            return False
        self._steps.waited(key, sum(began.elapsed_time(ended) for began, ended in waits) / 1e3, took)
        return True


def _groups(model: nn.Module, optimizer: Optimizer | None) -> list[list[Any]]:
    """Return the parameters that are trained, by group of the optimizer; in one without it."""
    if optimizer is None:
        return [[p for p in model.parameters() if p.requires_grad]]
    return [[p for p in group["params"] if p.requires_grad] for group in optimizer.param_groups]


def _is_sharded(module: nn.Module) -> bool:
    return any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)


def _local(grad: Any) -> Any:
    """Return the part of a gradient that lies on this process."""
    local = getattr(grad, "to_local", None)
    return _dense(grad if local is None else local())


def _dense(grad: Any) -> Any:
    return grad.coalesce().values() if grad.is_sparse else grad


def _square_sum(grads: Iterable[Any]) -> Any:
    """Return the squared norm of all of them together."""
    import torch

    return _squares([torch.linalg.vector_norm(g, dtype=torch.float32) for g in grads])


def _squares(norms: list[Any]) -> Any:
    import torch

    return torch.stack(norms).square().sum() if norms else torch.zeros(())


def _moment(device: Any) -> Any:
    """Read the time, on the clock of the device where there is one, else of the host (seconds)."""
    if device.type != "cuda":
        return time.perf_counter()
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _tensors(output: object) -> Iterator[Any]:
    if hasattr(output, "requires_grad") and hasattr(output, "register_hook"):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _tensors(value)
