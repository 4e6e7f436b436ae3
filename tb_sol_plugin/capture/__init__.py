"""Tracks the work, phases and times of a training loop's sampled steps, and writes them next to the run's traces.

Needs torch and the standard library; importing it loads neither torch nor the cost models.

    import tb_sol_plugin as sol

    with sol.capture("runs/first", model=model) as tracker:
        for batch in loader:
            with tracker.phase("forward"):
                ...
            tracker.step()
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tb_sol_plugin.capture.context import capture as capture
    from tb_sol_plugin.capture.current import loader as loader
    from tb_sol_plugin.capture.current import phase as phase
    from tb_sol_plugin.capture.device_specs import DeviceSpec as DeviceSpec
    from tb_sol_plugin.capture.functional_patcher import FunctionalPatcher as FunctionalPatcher
    from tb_sol_plugin.capture.goodput.adaptive import AdaptiveBatchSize as AdaptiveBatchSize
    from tb_sol_plugin.capture.goodput.gradients import watch_gradients as watch_gradients
    from tb_sol_plugin.capture.goodput.hints import post_sched_hints as post_sched_hints
    from tb_sol_plugin.capture.goodput.sampler import ElasticSampler as ElasticSampler
    from tb_sol_plugin.capture.goodput.state import Accumulator as Accumulator
    from tb_sol_plugin.capture.goodput.steps import get_goodput_fn as get_goodput_fn
    from tb_sol_plugin.capture.goodput.steps import load_metrics as load_metrics
    from tb_sol_plugin.capture.goodput.steps import profile_step_commit as profile_step_commit
    from tb_sol_plugin.capture.goodput.steps import profile_step_start as profile_step_start
    from tb_sol_plugin.capture.goodput.steps import profile_sync_time as profile_sync_time
    from tb_sol_plugin.capture.goodput.steps import save_metrics as save_metrics
    from tb_sol_plugin.capture.goodput.steps import set_batch_sizes as set_batch_sizes
    from tb_sol_plugin.capture.goodput.steps import set_grad_params as set_grad_params
    from tb_sol_plugin.capture.goodput.steps import set_replicas as set_replicas
    from tb_sol_plugin.capture.goodput.steps import set_supervisor as set_supervisor
    from tb_sol_plugin.capture.layer_hooks import LayerSOLHooks as LayerSOLHooks
    from tb_sol_plugin.capture.loop.schedule import add_sol_arguments as add_sol_arguments
    from tb_sol_plugin.capture.memory.records import MemoryRecord as MemoryRecord
    from tb_sol_plugin.capture.memory.records import record_base_memory as record_base_memory
    from tb_sol_plugin.capture.memory.records import record_memory as record_memory
    from tb_sol_plugin.capture.operation_registry import BoundType as BoundType
    from tb_sol_plugin.capture.operation_registry import CapturedFunctionalOp as CapturedFunctionalOp
    from tb_sol_plugin.capture.operation_registry import CapturedOp as CapturedOp
    from tb_sol_plugin.capture.operation_registry import DataType as DataType
    from tb_sol_plugin.capture.operation_registry import OpRecord as OpRecord
    from tb_sol_plugin.capture.operation_registry import OpType as OpType
    from tb_sol_plugin.capture.roofline import RooflineResult as RooflineResult
    from tb_sol_plugin.capture.sol_integration import clear_sol_captures as clear_sol_captures
    from tb_sol_plugin.capture.sol_integration import get_sol_tracker as get_sol_tracker
    from tb_sol_plugin.capture.sol_integration import initialize_sol as initialize_sol
    from tb_sol_plugin.capture.sol_integration import log_training_sol as log_training_sol
    from tb_sol_plugin.capture.sol_integration import sol_nvtx_range as sol_nvtx_range
    from tb_sol_plugin.capture.tracker import SOLTracker as SOLTracker
    from tb_sol_plugin.capture.work.memcpy_probe import MemcpyProbe as MemcpyProbe

_HOMES: Final = {
    "context": ("capture",),
    "current": ("loader", "phase"),
    "tracker": ("SOLTracker",),
    "sol_integration": ("clear_sol_captures", "get_sol_tracker", "initialize_sol", "log_training_sol", "sol_nvtx_range"),
    "loop.schedule": ("add_sol_arguments",),
    "layer_hooks": ("LayerSOLHooks",),
    "work.memcpy_probe": ("MemcpyProbe",),
    "memory.records": ("MemoryRecord", "record_base_memory", "record_memory"),
    "functional_patcher": ("FunctionalPatcher",),
    "goodput.adaptive": ("AdaptiveBatchSize",),
    "goodput.gradients": ("watch_gradients",),
    "goodput.hints": ("post_sched_hints",),
    "goodput.sampler": ("ElasticSampler",),
    "goodput.state": ("Accumulator",),
    "goodput.steps": (
        "get_goodput_fn", "load_metrics", "profile_step_commit", "profile_step_start", "profile_sync_time", "save_metrics",
        "set_batch_sizes", "set_grad_params", "set_replicas", "set_supervisor",
    ),
    "operation_registry": ("BoundType", "CapturedFunctionalOp", "CapturedOp", "DataType", "OpRecord", "OpType"),
    "roofline": ("RooflineResult",),
    "device_specs": ("DeviceSpec",),
}
"""Public names by the module they live in."""
_HOME: Final = {name: module for module, names in _HOMES.items() for name in names}
_MODULES: Final = tuple(module for module in _HOMES if module != "capture")

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})


class _Callable(ModuleType):
    """Lets `tb_sol_plugin.capture(logdir, ...)` start a tracker: this package and that function share their name."""

    def __call__(self, logdir: str | None = None, **options: object) -> SOLTracker:
        from tb_sol_plugin.capture.context import capture

        return capture(logdir, **options)  # type: ignore[arg-type]


sys.modules[__name__].__class__ = _Callable
