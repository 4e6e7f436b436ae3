"""Labels work with the module that is running: hooks push and pop labels and note times of calls, and never count work.

They are on a model only while a step is sampled. `remove` leaves every module as it was found. While they are on, compiled functions
run eagerly (see `compiled`).
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import torch
from torch.compiler import is_compiling

from tb_sol_plugin.capture.hooks.module_names import SUPPORTED, Layer, Place, layer_of, places
from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import NONE, Labels, Stack
from tb_sol_plugin.capture.loop.timing import EventPool, Pair
from tb_sol_plugin.capture.operation_registry import CapturedOp, OpRecord
from tb_sol_plugin.capture.work import dispatch
from tb_sol_plugin.capture.work.compiling import can_run_eagerly, force_eager, release_eager
from tb_sol_plugin.capture.work.sums import merged

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.hooks import RemovableHandle

__all__ = ["SUPPORTED", "LayerSOLHooks", "Several", "Site", "layer_of"]


class Recorder(Protocol):
    """Receives the calls of the lowest supported layers: the fallback mode, which counts them."""

    def layer_call(
        self, site: Site, label: int, args: tuple[object, ...], kwargs: dict[str, object], result: object, duration_ns: int
    ) -> None: ...


CALLS_OF_ONE: Final = 256
CALLS: Final = 20_000
"""Calls of one module, and of all, that are kept singly in a step. Further ones of a module are summed up, without events."""


@dataclass(frozen=True, slots=True)
class Several:
    """Stands in place of events in a row of `count` calls that are summed up: there are none."""

    count: int


Call: TypeAlias = "tuple[int, int, int, Pair | Several | None]"
"""(label, start_ns, duration_ns, events) of a call of a module, on the recorder's clock. With `Several`, start of the first, sum of all."""


class Site:
    """Describes one hooked module: its place, and its label below each label that it was called from."""

    __slots__ = ("calls", "ids", "place", "timed")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.calls = 0
        self.ids: dict[int, int] = {}
        # A compiled region runs eagerly while it is instrumented, so neither its times nor those of the modules around it are its own.
        self.timed = not (place.compiled or place.holds_compiled)


class _Frames(threading.local):
    """Calls in progress on this thread: (site, depth of the label stack before it, start, events)."""

    def __init__(self, stack: Stack, everyone: dict[int, _Open]) -> None:
        self.open = stack.open
        self.frames: list[tuple[Site, int, int, Pair | None]] = []
        everyone[threading.get_ident()] = (self.open, self.frames)


_Open: TypeAlias = "tuple[list[int], list[tuple[Site, int, int, Pair | None]]]"


class LayerSOLHooks:
    """Puts label hooks on the modules of one or more models.

    stack: the open labels of the calling thread; `stack.top` is the innermost module. calls: finished calls of the step, in the order
    of their ends. supported: layer type by label, for those labels that are supported layers. compiled: labels of modules that run as
    part of a compiled region; saw_compiled: there was one when hooks were last put on. lost: reasons why labels or times are missing,
    with counts.

    `attach` and `remove` do not add to the clock's own time: whoever calls them inside a step does. The hooks do.
    """

    def __init__(self, labels: Labels, clock: Clock, stack: Stack | None = None, *, events: EventPool | None = None) -> None:
        self.labels, self.clock, self.events = labels, clock, events
        self.stack = Stack() if stack is None else stack
        self.calls: list[Call] = []
        self.supported: dict[int, Layer] = {}
        self.compiled: set[int] = set()
        self.saw_compiled = False
        self.lost: Counter[str] = Counter()
        self.recorder: Recorder | None = None
        self._sums: dict[int, int] = {}
        self._everyone: dict[int, _Open] = {}
        self._local = _Frames(self.stack, self._everyone)
        self._handles: list[RemovableHandle] = []
        self._sites: dict[int, Site] = {}

    def attach(self, model: object) -> int:
        """Put hooks on the modules of a model (see `module_names.places`) that have none of ours; returns on how many."""
        if not can_run_eagerly():
            self.lost["compiled code cannot be watched by this torch (before 2.6)"] += 1
            return 0
        force_eager(self)
        self.saw_compiled = False
        before = len(self._handles)
        for place in places(model):
            self.saw_compiled = self.saw_compiled or place.compiled
            if id(place.module) not in self._sites:
                self._hook(place)
        dispatch.hide_hooks(self, OwnHook)
        return (len(self._handles) - before) // 2

    def remove(self) -> None:
        """Remove all hooks. Hooks of others stay, in their order."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._sites.clear()
        dispatch.show_hooks(self)
        release_eager(self)

    @property
    def attached(self) -> bool:
        return bool(self._handles)

    def end_step(self) -> None:
        """Empty the stacks of all threads; what was still open is counted in `lost`."""
        left = 0
        for open_, frames in tuple(self._everyone.values()):
            left += len(frames)
            frames.clear()
            open_.clear()
        if left:
            self.lost["module call still open at the end of the step"] += left

    def clear(self) -> None:
        """Forget the calls and losses of the step."""
        self.calls.clear()
        self._sums.clear()
        self.lost.clear()
        for site in self._sites.values():
            site.calls = 0

    def lowest_layer(self) -> str | None:
        """Return the type of the lowest supported layer that the calling thread is in; None outside of all."""
        for site, *_ in reversed(self._local.frames):
            if site.place.lowest and site.place.layer is not None:
                return site.place.layer[0]
        return None

    def layer_type(self, label: int) -> str | None:
        """Return the layer type of a module's label, None where it is no supported layer."""
        layer = self.supported.get(label)
        return None if layer is None else layer[0]

    def records(self, ledger: Iterable[OpRecord]) -> list[CapturedOp]:
        """Return the ledger's records, summed up by supported layer, phase and direction."""
        return captured_ops(ledger)

    def _hook(self, place: Place) -> None:
        module, site = place.module, Site(place)
        if isinstance(module, torch.jit.ScriptModule):
            self.lost["scripted module: takes no hooks"] += 1
            return
        handles = []
        try:
            handles.append(module.register_forward_pre_hook(_Enter(self, site), prepend=True))
            handles.append(module.register_forward_hook(_Exit(self, site), always_call=True, with_kwargs=True))
        except BaseException as problem:
            for handle in handles:
                handle.remove()
            if not isinstance(problem, Exception):
                raise
            self.lost[f"module takes no hooks: {type(problem).__name__}"] += 1  # its class forbids them: its work is then its parent's
            return
        self._handles += handles
        self._sites[id(module)] = site

    def full(self, site: Site) -> bool:
        """Return whether the next call of a module will not be kept singly."""
        return site.calls >= CALLS_OF_ONE or len(self.calls) >= CALLS

    def _add(self, label: int, start: int, duration: int) -> None:
        """Add a call to the sum of those of its label that are not kept singly."""
        at = self._sums.get(label)
        if at is None:
            self._sums[label] = len(self.calls)
            self.calls.append((label, start, duration, Several(1)))
        else:
            _, first, before, several = self.calls[at]
            self.calls[at] = (label, first, before + duration, Several(several.count + 1 if isinstance(several, Several) else 1))

    def _repair(self, frames: list[tuple[Site, int, int, Pair | None]], site: Site) -> bool:
        """Drop the calls above that of `site`, whose ends never came; False if it has none itself."""
        if all(frame[0] is not site for frame in frames):
            self.lost["module call ended outside the step that it began in"] += 1
            return False
        while frames[-1][0] is not site:
            frames.pop()
            self.lost["module call without an end"] += 1
        return True

    def _label(self, site: Site, parent: int) -> int:
        place = site.place
        label = self.labels.id_of("module", parent, place.name, place.class_name)
        if place.layer is not None:
            self.supported[label] = place.layer
        (self.compiled.add if place.compiled else self.compiled.discard)(label)
        site.ids[parent] = label
        return label


class OwnHook:
    """Is a hook that copies and pickles of its module do not take along: in a copy it takes itself off, in a pickle it does nothing."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> _Leftover:
        return _Leftover()

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (contextlib.nullcontext, "__exit__")  # takes any arguments, does nothing, is in every Python


class _Hook(OwnHook):
    __slots__ = ("owner", "site")

    def __init__(self, owner: LayerSOLHooks, site: Site) -> None:
        self.owner, self.site = owner, site


class _Enter(_Hook):
    def __call__(self, module: nn.Module, args: tuple[object, ...]) -> None:
        if is_compiling():
            return
        began = perf_counter_ns()
        owner, site = self.owner, self.site
        try:
            local, clock = owner._local, owner.clock
            open_ = local.open
            parent = open_[-1] if open_ else NONE
            label = site.ids.get(parent)
            if label is None:
                label = owner._label(site, parent)
            pair = None
            if owner.events is not None and site.timed and not site.place.children and not owner.full(site):
                pair = owner.events.pair()
                if pair is not None:
                    pair.start()
            open_.append(label)
            end = perf_counter_ns()
            clock.own_ns += end - began
            local.frames.append((site, len(open_) - 1, end - clock.monotonic_ns - clock.own_ns, pair))
        except Exception as problem:  # the training loop must not feel it
            owner.lost[f"a hook failed: {type(problem).__name__}"] += 1


class _Exit(_Hook):
    def __call__(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], result: object = None) -> None:
        """End a call. result: missing where another thread takes the hook off meanwhile."""
        if is_compiling():
            return
        began = perf_counter_ns()
        owner, site = self.owner, self.site
        try:
            local, clock = owner._local, owner.clock
            frames = local.frames
            if (not frames or frames[-1][0] is not site) and not owner._repair(frames, site):
                return
            _, depth, start, pair = frames.pop()
            if pair is not None:
                pair.stop()
            label = local.open[depth]
            del local.open[depth:]
            duration = began - clock.monotonic_ns - clock.own_ns - start
            if site.timed:
                site.calls += 1
                if site.calls <= CALLS_OF_ONE and len(owner.calls) < CALLS:
                    owner.calls.append((label, start, duration, pair))
                else:
                    owner._add(label, start, duration)
            if owner.recorder is not None and site.place.lowest:
                owner.recorder.layer_call(site, label, args, kwargs, result, duration)
            clock.own_ns += perf_counter_ns() - began
        except Exception as problem:
            owner.lost[f"a hook failed: {type(problem).__name__}"] += 1


class _Leftover:
    """Replaces a hook in a copy of its module: it takes itself off at the first call."""

    __slots__ = ()

    def __call__(self, module: nn.Module, *_: object) -> None:
        if is_compiling():
            return
        for hooks, *extras in (
            (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs),
            (module._forward_hooks, module._forward_hooks_with_kwargs, module._forward_hooks_always_called),
        ):
            for key in [key for key, hook in hooks.items() if hook is self]:
                for taken in (hooks, *extras):
                    taken.pop(key, None)

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (contextlib.nullcontext, "__exit__")


def captured_ops(records: Iterable[OpRecord]) -> list[CapturedOp]:
    """Merges records inside supported layers by layer, phase, direction and recomputation, see `sums.merged`."""
    return [
        CapturedOp(
            layer_name=one.name[1],
            layer_type=one.name[0],
            op_type=SUPPORTED.get(one.name[0], one.main.op_type),
            input_shapes=one.main.input_shapes,
            output_shapes=one.main.output_shapes,
            dtype=one.main.dtype,
            measured_time_us=one.measured_time_us,
            phase=one.main.phase,
            flops=one.flops,
            bytes=one.bytes,
            direction=one.main.direction,
            is_recompute=one.main.is_recompute,
            count=one.count,
            source=one.main.source,
            estimated=one.estimated,
        )
        for one in merged(records, lambda record: (record.layer_type, record.layer_name))
    ]
