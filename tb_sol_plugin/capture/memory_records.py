"""What a process holds in memory at one moment, as its device and its allocator say.

    record_base_memory("before the model")          # before there is a model, and again after init_process_group
    record_memory("after step 1", model, optimizer)

Records go into the capture file of the tracker that runs; those made before there is one are kept for the file of the next. Nothing here
raises, and no device is initialised for its sake.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Final, Protocol

from tb_sol_plugin.capture.boundary import log
from tb_sol_plugin.capture.header import known, rank_of
from tb_sol_plugin.capture.memory_walk import Part, Walk, walk

MIB: Final = 1 << 20
TAG: Final = 200
"""Characters of a tag."""
MOST_WAITING: Final = 200
"""Records that wait for a tracker; the first are kept."""
BACKENDS: Final = ("cuda", "xpu")
"""Modules of torch whose devices have memory of their own; HIP is `cuda` too."""


@dataclass(frozen=True)
class MemoryRecord:
    """Memory of one device, in bytes; None is unknown.

    time_ns: since 1970. device: its index, None the host. total, device_used: of the device, by whatever process. process_used: by this
    process, as the driver says; on the host, the pages that it has in memory. allocated, reserved: by torch's allocator, now; max_…: at
    most. since: what the maxima cover: `process` (since it began, or somebody reset them), `iteration`.
    walk: what was found among parameters, gradients and the state of optimizers; None where nothing was walked.
    iteration: that the tracker was in, None without one. phase: name of the phase with the largest peak; phases: {name: (max_allocated,
    max_reserved)}; both only where peaks by phase were asked for. problem: why something is unknown, "" where all went well.
    """

    tag: str
    time_ns: int
    rank: int
    device: int | None
    total: int | None = None
    device_used: int | None = None
    process_used: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    max_allocated: int | None = None
    max_reserved: int | None = None
    since: str = "process"
    walk: Walk | None = None
    iteration: int | None = None
    phase: str = ""
    phases: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    problem: str = ""
    monotonic_ns: int = field(default=0, repr=False, compare=False)

    @property
    def context(self) -> int | None:
        """Used on the device, but not by torch's allocator: the context, libraries, NCCL, and other processes."""
        return _less(self.device_used, self.reserved)

    @property
    def others(self) -> int | None:
        """Used on the device by other processes, where the driver tells what this one uses."""
        return None if self.device is None else _less(self.device_used, self.process_used)

    @property
    def parts(self) -> tuple[Part, ...]:
        return () if self.walk is None else self.walk.parts

    def bytes_of(self, category: str) -> int | None:
        """Bytes of storages of `params`, `buffers`, `grads`, `main_grads`, `master_weights`, `exp_avg`, `exp_avg_sq` or
        `other_optimizer`; None where it was not looked for."""
        return None if self.walk is None else self.walk.bytes_of(category)

    # The names under which Megatron's users know these two. MB is 2**20 bytes there.

    @property
    def Actual_Captured_Master_Weight_bytes(self) -> int | None:
        """FP32 master weights on this rank."""
        return None if self.walk is None else self.walk.master_weight_bytes

    @property
    def Actual_Captured_Master_Weight_MB(self) -> float | None:
        """The same in MiB."""
        return _mib(self.Actual_Captured_Master_Weight_bytes)

    @property
    def Actual_Captured_Main_Grad_Mem_bytes(self) -> int | None:
        """FP32 main gradients on this rank."""
        return None if self.walk is None else self.walk.main_grad_bytes

    @property
    def Actual_Captured_Main_Grad_Mem_MB(self) -> float | None:
        """The same in MiB."""
        return _mib(self.Actual_Captured_Main_Grad_Mem_bytes)


class Keeper(Protocol):
    """Who takes records: a tracker that runs."""

    def keeps(self) -> bool: ...
    def record_base_memory(self, tag: str) -> MemoryRecord: ...
    def record_memory(self, tag: str, model: object = None, optimizer: object = None) -> MemoryRecord: ...


class _State:
    def __init__(self) -> None:
        self.keeper: weakref.ref[Keeper] | None = None
        self.waiting: list[MemoryRecord] = []
        self.pid = os.getpid()


_state: Final = _State()


# --- What training code calls ---


def record_base_memory(tag: str) -> MemoryRecord:
    """What is in use on the current device. On the host alone, or before a device is in use, the record is one of the host.

    Call it before the model is made, and after `init_process_group`: what came in between is that of the communication.
    """
    keeper = _keeper()
    return keeper.record_base_memory(tag) if keeper is not None else _keep(moment(tag))


def record_memory(tag: str, model: object = None, optimizer: object = None) -> MemoryRecord:
    """The same, and what parameters, gradients and the state of optimizers hold: read from the tensors, each byte once.

    model: one or several (list, dict); None: that of the tracker. optimizer: one, several, or what wraps them; None: that of the call
    before, or `model.optimizer`. Tensors are not kept. It takes a few µs per tensor.
    """
    keeper = _keeper()
    if keeper is not None:
        return keeper.record_memory(tag, model, optimizer)
    return _keep(walked(moment(tag), model, optimizer))


# --- Who takes them ---


def kept_by(keeper: Keeper) -> None:
    """From now on records go to that tracker, while it runs."""
    _state.keeper = weakref.ref(keeper)


def take_waiting() -> list[MemoryRecord]:
    """What was recorded before there was a tracker; it waits no longer."""
    waiting, _state.waiting = _state.waiting, []
    return waiting if _state.pid == os.getpid() else []


def _keeper() -> Keeper | None:
    found = None if _state.keeper is None else _state.keeper()
    return found if found is not None and found.keeps() else None


def _keep(record: MemoryRecord) -> MemoryRecord:
    if _state.pid != os.getpid():
        _state.pid, _state.waiting = os.getpid(), []
    if len(_state.waiting) < MOST_WAITING:
        _state.waiting.append(record)
    return record


# --- Reading ---


def moment(tag: object, iteration: int | None = None) -> MemoryRecord:
    """Memory as it is now. Never raises."""
    when = time.time_ns(), time.perf_counter_ns()
    text = (known(lambda: str(tag)) or "")[:TAG]
    rank = (known(rank_of) or (0, 1))[0]
    values: dict[str, int | None] = {}
    device, problem = None, ""
    try:
        backend = backend_in_use()
        if backend is None:
            values = {"process_used": resident()}
        else:
            device = int(backend.current_device())
            values = _of_device(backend, device)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"[:200]
        log.debug("SOL capture: memory", exc_info=error)
    return MemoryRecord(text, when[0], rank, device, iteration=iteration, problem=problem, monotonic_ns=when[1], **values)  # type: ignore[arg-type]


def walked(record: MemoryRecord, model: object, optimizer: object) -> MemoryRecord:
    """The record with what model and optimizer hold. Never raises."""
    try:
        return replace(record, walk=walk(model, optimizer))
    except Exception as error:
        log.debug("SOL capture: memory", exc_info=error)
        return replace(record, problem=f"{type(error).__name__}: {error}"[:200])


def backend_in_use() -> ModuleType | None:
    """torch.cuda or torch.xpu, if it has been initialised; None on the host alone."""
    torch = sys.modules.get("torch")
    for name in BACKENDS:
        backend = getattr(torch, name, None)
        if backend is not None and known(lambda backend=backend: bool(backend.is_available() and backend.is_initialized())):  # type: ignore[misc]
            return backend  # type: ignore[no-any-return]
    return None


def _of_device(backend: ModuleType, device: int) -> dict[str, int | None]:
    """What the device says, each part by itself: an answer that fails is unknown."""
    free, total = known(lambda: tuple(map(int, backend.mem_get_info(device)))) or (None, None)
    values = {
        "total": total,
        "device_used": _less(total, free),
        "allocated": known(lambda: int(backend.memory_allocated(device))),
        "reserved": known(lambda: int(backend.memory_reserved(device))),
        "max_allocated": known(lambda: int(backend.max_memory_allocated(device))),
        "max_reserved": known(lambda: int(backend.max_memory_reserved(device))),
    }
    own = known(lambda: _of_driver(backend, device))
    # A number below what the allocator holds is of another process that has our number outside of our container.
    return {**values, "process_used": own if own is not None and own >= (values["reserved"] or 0) else None}


def _of_driver(backend: ModuleType, device: int) -> int | None:
    """Bytes that this process uses on the device, by NVML where its bindings are installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        uuid = str(backend.get_device_properties(device).uuid)
        handle = nvml.nvmlDeviceGetHandleByUUID((uuid if uuid.startswith("GPU-") else f"GPU-{uuid}").encode())
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return next((int(one.usedGpuMemory) for one in running if one.pid == os.getpid() and one.usedGpuMemory), None)
    finally:
        nvml.nvmlShutdown()


def resident() -> int | None:
    """Bytes of this process that are in the memory of the host; None where the system does not tell as Linux does."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _less(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a - b


def _mib(size: int | None) -> float | None:
    return None if size is None else size / MIB
