"""Describes the process, the device and the model in the header of a capture file. Nothing raises, and no device is initialized."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from tb_sol_plugin.capture.hooks.module_names import any_compiled, models_in
from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.phases import PhaseStack, nvtx_functions, nvtx_usable
from tb_sol_plugin.capture.loop.timing import EventPool, event_pool
from tb_sol_plugin.capture.work.compiling import compiled_around, compilers_made
from tb_sol_plugin.format import SUFFIX, file_name
from tb_sol_plugin.version import __version__

if TYPE_CHECKING:
    from tb_sol_plugin.capture.device_specs import DeviceSpec
    from tb_sol_plugin.capture.hooks.instrument import Instrumentation
    from tb_sol_plugin.capture.loop.options import CaptureOptions
    from tb_sol_plugin.capture.loop.schedule import Schedule, ScriptOptions
    from tb_sol_plugin.capture.memory.plan import PlanFacts
    from tb_sol_plugin.capture.report.output import Places


CONVENTION: Final = "2mac"
"""How FLOP are counted: two per multiply-add."""
Json = dict[str, object]
T = TypeVar("T")

_MEGATRON: Final = {
    "tp": "tensor_model_parallel",
    "pp": "pipeline_model_parallel",
    "dp": "data_parallel",
    "ep": "expert_model_parallel",
    "cp": "context_parallel",
}
_MESH: Final = {
    "tp": ("tp", "tensor"),
    "pp": ("pp", "pipeline"),
    "dp": ("dp", "data", "fsdp", "dp_shard"),
    "ep": ("ep", "expert"),
    "cp": ("cp", "context"),
}


def value_or_none(ask: Callable[[], T]) -> T | None:
    """Return what the function returns; None, which is unknown, where it raises."""
    try:
        return ask()
    except Exception:
        return None


def rank_of() -> tuple[int, int]:
    """Return (rank, world size) of torch.distributed, else of the launcher's environment, else (0, 1)."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if value_or_none(lambda: distributed.is_available() and distributed.is_initialized()):  # type: ignore[union-attr]
        found = value_or_none(lambda: (int(distributed.get_rank()), int(distributed.get_world_size())))  # type: ignore[union-attr]
        if found is not None:
            return found
    for rank, world in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        found = value_or_none(lambda rank=rank, world=world: (int(os.environ[rank]), int(os.environ.get(world, "1"))))  # type: ignore[misc]
        if found is not None and 0 <= found[0] < found[1]:
            return found
    return 0, 1


def groups_of(models: list[object]) -> dict[str, list[int]]:
    """Return the process groups that split the work, as {name: [rank, size]}.

    They are those of Megatron where it is loaded, else those of a model's device mesh.
    """
    state = sys.modules.get("megatron.core.parallel_state") or sys.modules.get("megatron.core.mpu")
    if state is not None:
        found = {}
        for name, long in _MEGATRON.items():
            pair = value_or_none(
                lambda long=long: [int(getattr(state, f"get_{long}_rank")()), int(getattr(state, f"get_{long}_world_size")())]  # type: ignore[misc]
            )
            if pair is not None:
                found[name] = pair
        return found
    return value_or_none(lambda: _mesh_groups(models)) or {}


def _mesh_groups(models: list[object]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for model in models:
        for parameter in model.parameters():  # type: ignore[attr-defined]
            mesh = getattr(parameter, "device_mesh", None)
            for at, dim in enumerate(getattr(mesh, "mesh_dim_names", None) or ()):
                for name, spellings in _MESH.items():
                    if dim in spellings and name not in found:
                        found[name] = [int(mesh.get_local_rank(at)), int(mesh.size(at))]  # type: ignore[union-attr]
    return found


def compiled(models: list[object]) -> bool:
    """Return whether a model, or a module of it, is compiled by torch.compile."""
    return bool(value_or_none(lambda: any_compiled(models)))


def device_kind(models: list[object]) -> str:
    """Return the type of the device that the models are on (cuda, cpu, …); without a model, of the accelerator that is in use."""
    return device_of(models)[0]


def device_of(models: list[object]) -> tuple[str, int | None]:
    """Return the type of the device as `device_kind` does, and which one of several the models are on; None where nobody says."""
    for model in models:
        for parameter in value_or_none(lambda model=model: model.parameters()) or ():  # type: ignore[attr-defined,misc]
            device = value_or_none(lambda parameter=parameter: parameter.device)  # type: ignore[misc]
            kind = value_or_none(lambda device=device: str(device.type))  # type: ignore[misc]
            if kind not in (None, "meta"):
                return str(kind), value_or_none(lambda device=device: None if device.index is None else int(device.index))  # type: ignore[misc]
    torch = sys.modules.get("torch")
    for kind in ("cuda", "xpu"):
        if value_or_none(lambda kind=kind: bool(getattr(torch, kind).is_initialized())):  # type: ignore[misc]
            return kind, None
    return "cpu", None


def model_facts(models: list[object]) -> Json:
    """Count parameters and modules of all models; a parameter that is used twice counts once.

    local: of the part of a sharded model on this rank.
    """
    seen: set[int] = set()
    counts = {"parameters": 0, "trainable": 0, "parameter_bytes": 0, "local_parameters": 0, "local_bytes": 0, "modules": 0}
    names: list[str] = []
    for model in models:
        inner = getattr(model, "_orig_mod", model)
        names.append(type(inner).__name__)
        whole = value_or_none(lambda model=model: _flat_sizes(model)) or {}  # type: ignore[misc]
        for parameter in value_or_none(lambda model=model: list(model.parameters())) or ():  # type: ignore[attr-defined,misc]
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            size = value_or_none(lambda parameter=parameter: (int(parameter.numel()), int(parameter.element_size())))  # type: ignore[misc]
            if size is None:  # not materialized yet
                continue
            local = value_or_none(lambda parameter=parameter: int(parameter._local_tensor.numel()))  # type: ignore[misc]
            local = size[0] if local is None else local
            size = (whole.get(id(parameter), size[0]), size[1])
            counts["parameters"] += size[0]
            counts["trainable"] += size[0] if parameter.requires_grad else 0
            counts["parameter_bytes"] += size[0] * size[1]
            counts["local_parameters"] += local
            counts["local_bytes"] += local * size[1]
        counts["modules"] += value_or_none(lambda model=model: sum(1 for _ in model.modules())) or 0  # type: ignore[attr-defined,misc]
    return {"class": ", ".join(dict.fromkeys(names)), **counts}


def _flat_sizes(model: object) -> dict[int, int]:
    """Return by id the elements of parameters that FullyShardedDataParallel has flattened, on all ranks: a rank holds a part of each."""
    found: dict[int, int] = {}
    for module in model.modules():  # type: ignore[attr-defined]
        flat = getattr(getattr(module, "_handle", None), "flat_param", None)
        sizes = [prod(shape) for shape in getattr(flat, "_shapes", ())]
        own = getattr(flat, "_params", None)  # with use_orig_params
        found |= {id(flat): sum(sizes)} if own is None else {id(p): n for p, n in zip(own, sizes, strict=True)}
    return found


def precision_flags() -> dict[str, object]:
    """Return the precision settings of torch. cudnn_tf32: whether convolutions use TF32."""
    torch = sys.modules.get("torch")
    matmul = value_or_none(lambda: str(torch.get_float32_matmul_precision()))  # type: ignore[union-attr]
    legacy = value_or_none(lambda: bool(torch.backends.cuda.matmul.allow_tf32))  # type: ignore[union-attr]
    if matmul == "highest" and legacy:
        matmul = "high"
    return {
        "matmul": matmul,
        "cudnn_tf32": value_or_none(lambda: bool(torch.backends.cudnn.allow_tf32)),  # type: ignore[union-attr]
        "autocast": value_or_none(lambda: bool(torch.is_autocast_enabled())),  # type: ignore[union-attr]
    }


def device_facts(kind: str, spec: DeviceSpec | None) -> Json:
    """Return the device as torch names it, and its limits."""
    torch = sys.modules.get("torch")
    module = getattr(torch, kind, None)
    name, memory, units = None, None, None
    if kind not in ("cpu", "meta") and value_or_none(lambda: bool(module.is_initialized())):  # type: ignore[union-attr]
        facts = value_or_none(lambda: module.get_device_properties(module.current_device()))  # type: ignore[union-attr]
        name = getattr(facts, "name", None)
        memory = getattr(facts, "total_memory", None)
        units = getattr(facts, "multi_processor_count", None)
    elif kind == "cpu":
        name = value_or_none(_cpu_name)
    return {
        "type": kind,
        "key": "" if spec is None else spec.name,
        "name": str(name or ""),
        "memory_bytes": memory,
        "units": units,
        "limits": None if spec is None else limits_of(spec),
        "provenance": {} if spec is None else dict(spec.provenance),
    }


def limits_of(spec: DeviceSpec) -> Json:
    """Return limits as plain JSON, in FLOP/s by type and bytes/s."""

    def rates(of: Mapping[object, float]) -> dict[str, float]:
        return {str(getattr(dtype, "value", dtype)): rate for dtype, rate in of.items()}

    return {
        "memory_bandwidth_bytes_per_sec": spec.memory_bandwidth_bytes_per_sec,
        "peak_flops": rates(spec.peak_flops),  # type: ignore[arg-type]
        "peak_flops_sparse": rates(spec.peak_flops_sparse),  # type: ignore[arg-type]
        "peak_flops_vector": rates(spec.peak_flops_vector),  # type: ignore[arg-type]
        "peak_flops_achievable": rates(spec.peak_flops_achievable),  # type: ignore[arg-type]
        "memory_bytes": spec.memory_bytes,
        "l2_bytes": spec.l2_bytes,
        "link_bytes_per_sec": spec.link_bytes_per_sec,
        "pcie_bytes_per_sec": spec.pcie_bytes_per_sec,
        "num_units": spec.num_units,
        "assume_sparsity": bool(getattr(spec, "assume_sparsity", False)),
    }


def _cpu_name() -> str:
    import platform

    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def header(
    clock: Clock,
    models: list[object],
    *,
    mode: str,
    every_n_steps: int,
    time_source: str,
    kind: str,
    spec: DeviceSpec | None,
    ranks: tuple[int, int],
    copies: bool = False,
    plan: Mapping[str, object] | None = None,
    is_compiled: bool = False,
) -> Json:
    """Return the header without its file's own fields (format, version, part), see `format.py`. ranks: (rank, world size).

    is_compiled: a part of the models, or what calls them, is compiled. plan: sizes of the model and its layout, see `memory_plan`.
    """
    torch = sys.modules.get("torch")
    return {
        "library": __version__,
        "torch": value_or_none(lambda: str(torch.__version__)),  # type: ignore[union-attr]
        "cuda": value_or_none(lambda: torch.version.cuda),  # type: ignore[union-attr]
        "hip": value_or_none(lambda: torch.version.hip),  # type: ignore[union-attr]
        "python": sys.version.split()[0],
        "convention": CONVENTION,
        "rank": ranks[0],
        "world_size": ranks[1],
        "groups": groups_of(models),
        "host": value_or_none(socket.gethostname) or "host",
        "pid": os.getpid(),
        "wall_ns": clock.wall_ns,
        "monotonic_ns": clock.monotonic_ns,
        "device": value_or_none(lambda: device_facts(kind, spec)) or {"type": kind},
        "precision": precision_flags(),
        "mode": mode,
        "every_n_steps": every_n_steps,
        "copies": copies,
        "time_source": time_source,
        "model": (value_or_none(lambda: model_facts(models)) or {}) | {"compiled": is_compiled},
        "plan": dict(plan or {}),
    }


class HeaderMaker:
    """Makes the header of one recording, when its first iteration is written and ranks and devices are known.

    plan: sizes of the model that the script gave. optimizer: answers the optimizer, None where none is known.
    """

    def __init__(
        self,
        clock: Clock,
        tracked: TrackedModels,
        environment: Environment,
        schedule: Schedule,
        instrumentation: Instrumentation,
        *,
        plan: PlanFacts,
        optimizer: Callable[[], object],
        note: Callable[[str, str], None],
    ) -> None:
        self._clock, self._tracked, self._environment, self._schedule = clock, tracked, environment, schedule
        self._instrumentation, self._plan, self._optimizer, self._note = instrumentation, plan, optimizer, note

    def make(self) -> Json:
        """Return the header; see `header`."""
        models, environment = self._tracked.models, self._environment
        kind = device_kind(models)  # asked late: models may move to their device after `initialize`
        return header(
            self._clock,
            models,
            mode=self._instrumentation.mode if self._schedule.every else "off",
            every_n_steps=self._schedule.every,
            time_source="cpu" if event_pool(kind) is None else "event",
            kind=kind,
            spec=environment.limits()[0],
            ranks=environment.ranks(),
            copies=self._instrumentation.copies is not None,
            plan=self._planned(),
            is_compiled=self._tracked.compiled or self._tracked.around == "wrapper",
        )

    def _planned(self) -> Mapping[str, object]:
        """Return the sizes of the model and its layout, as far as they are certain."""
        plan, models = self._plan, self._tracked.models
        if plan.unknown:
            self._note("plan", f"no fields of the memory plan, or no values for them: {', '.join(plan.unknown)}")
        world = self._environment.ranks()[1]
        return plan.found(models, groups=groups_of(models), world=world, optimizer=self._optimizer(), inputs=self._tracked.inputs)


# -- What a recording knows of its process: the tracked models, their device and its limits, the rank, the folder ------------------------


class TrackedModels:
    """Has the models that are tracked.

    given: as the script passed them, one or several in a list or dict. compiled: a part of them is compiled by torch.compile, or compiled
    code ran in a sampled iteration. around: what the script has compiled that may run them, see `compiled_around`. inputs: (samples,
    length) of each call of the first sampled iteration that was called with token ids.
    """

    def __init__(self) -> None:
        self.given: object = None
        self.models: list[object] = []
        self.compiled = False
        self.around: Literal["", "wrapper", "function"] = ""
        self._compilers = 0
        self.inputs: Sequence[tuple[int, int]] = ()

    def same(self, given: object) -> bool:
        """Return whether these are the very models that are tracked already."""
        models = list(models_in(given))
        return len(models) == len(self.models) and all(a is b for a, b in zip(models, self.models, strict=True))

    def set(self, given: object) -> None:
        """Track these models from now on."""
        self.given, self.models = given, list(models_in(given))
        self.compiled = compiled(self.models)
        self._compilers = 0
        self.look_around()

    def look_around(self) -> None:
        """Find out what is compiled around the models: often that happens only after the recorder got to know them."""
        made = value_or_none(compilers_made)
        if made is not None and made != self._compilers and not self.compiled:
            self._compilers = made
            ids = {id(module) for model in self.models for module in value_or_none(lambda model=model: list(model.modules())) or ()}  # type: ignore[attr-defined,misc]
            self.around = value_or_none(lambda: compiled_around(ids)) or ""

    def clear(self) -> None:
        """Let go of the models."""
        self.given, self.models = None, []


class Environment:
    """Knows the device of the tracked models, its limits, the rank of the process and the folder of its files.

    device: whose limits to judge by, see `find_device`. kind: type of the device in use (cuda, cpu), "" before the first look. events: its
    timing events, None where the clock of the host is used.
    """

    def __init__(
        self, options: CaptureOptions, places: Places, tracked: TrackedModels, phases: PhaseStack, note: Callable[[str, str], None]
    ) -> None:
        self.places, self.device, self.rank = places, options.device, options.rank
        self.assume_sparsity = options.assume_sparsity
        self.kind = ""
        self.events: EventPool | None = None
        self._index: int | None = None
        self._tracked, self._phases, self._note = tracked, phases, note
        self._limits: tuple[DeviceSpec | None, str] | None = None

    @property
    def logdir(self) -> str | None:
        """The folder of the capture file; None where none is written."""
        return self.places.logdir

    def take(self, script: ScriptOptions) -> None:
        """Take from the script's arguments what the constructor of the tracker left open."""
        if self.places.logdir is None:
            self.places.logdir = script.logdir
        if self.device == "auto" and script.device:
            self.device = script.device
        if self.rank is None:
            self.rank = script.rank

    def find_events(self) -> None:
        """Look at which device the models are, and let phases be timed and marked there."""
        kind, index = device_of(self._tracked.models)
        if kind != self.kind:
            self.kind, self._limits = kind, None
            self.events = None
        if self.events is None or index != self._index:
            self._index, self.events = index, event_pool(kind, index)
        self._phases.events = self.events
        self._phases.nvtx = nvtx_usable()
        if self._phases.nvtx:
            self._phases.push_range, self._phases.pop_range = nvtx_functions()

    def limits(self) -> tuple[DeviceSpec | None, str]:
        """Return the limits of the device, or None and the reason why they are unknown."""
        if self._limits is None:
            from tb_sol_plugin.capture.device_specs import find_device

            found = find_device(self.device, assume_sparsity=self.assume_sparsity, logdir=self.logdir or "", where=self.kind)
            for text in found.notes:
                self._note("device", text)
            self._limits = found.spec, found.reason
        return self._limits

    def ranks(self) -> tuple[int, int]:
        """Return (rank, world size)."""
        rank, world = rank_of()
        return (rank, world) if self.rank is None else (self.rank, max(world, self.rank + 1))

    def is_first_rank(self) -> bool:
        """Return whether metrics are logged here."""
        return self.ranks()[0] == 0

    def worker(self) -> str:
        """Return `<host>_rank<rank>`, as the capture file is called."""
        return file_name(socket.gethostname(), self.ranks()[0], 0, 0).removesuffix(f"_0_0{SUFFIX}")
