"""Walks over a model and its optimizers: bytes of parameters, gradients, master weights and optimizer state as they are now.

Tensors are read, never estimated, and none is kept. Each byte counts once, in the first of these that has it: parameters, buffers, main
gradients, gradients, master weights, gradients of those (main gradients), the state of optimizers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tb_sol_plugin.capture.hooks.module_names import models_in, places, wrapped_as
from tb_sol_plugin.capture.loop.header import value_or_none

# -- Sums the bytes of tensors by the storages that they lie in ------------------------------------------------------
# each byte belongs to the first tensor that covers it.
#
# A storage is known by its device, its address and its size. Of a tensor only these numbers are kept, never the tensor.


MOST_TENSORS: Final = 500_000
"""Tensors of one walk; more are counted as left out."""
FLATTEN: Final = 4
"""Tensors within tensors (sharded and quantized ones) that are followed."""
NAMES: Final = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8", "float8_e4m3fnuz": "fp8",
    "float8_e5m2": "fp8", "float8_e5m2fnuz": "fp8",
}  # fmt: skip
"""Short names of types; the others have those of torch."""
WHOLE_HOST: Final = -1


class Extent(NamedTuple):
    """Locates the numbers of a tensor in its storage. first, past: bytes in its storage; view_bytes: its elements times their size.

    device: index, -1 the host. storage_bytes: of the whole storage at `address`.
    """

    device: int
    address: int
    storage_bytes: int
    first: int
    past: int
    view_bytes: int
    dtype: str


class Row(NamedTuple):
    """Names the category, dtype, module (a label or -1) and device that tensors are summed up by."""

    category: str
    dtype: str
    module: int
    device: int


class Sum(NamedTuple):
    """Sums tensors. tensors: that cover bytes of their own. bytes: of storages; view_bytes: of the tensors themselves."""

    tensors: int
    bytes: int
    view_bytes: int


class _Storage:
    """Tracks what is covered of one storage: intervals that do not overlap, in order, and bytes by row in order of the first claim."""

    __slots__ = ("firsts", "pasts", "rows", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.firsts: list[int] = []
        self.pasts: list[int] = []
        self.rows: dict[Row, int] = {}

    def cover(self, first: int, past: int) -> int:
        """Cover an interval; returns the bytes of it that nothing covered before."""
        low, high = bisect_left(self.pasts, first), bisect_right(self.firsts, past)
        fresh = past - first
        for k in range(low, high):
            fresh -= max(0, min(past, self.pasts[k]) - max(first, self.firsts[k]))
        if low < high:
            first, past = min(first, self.firsts[low]), max(past, self.pasts[high - 1])
        self.firsts[low:high], self.pasts[low:high] = [first], [past]
        return fresh


class Storages:
    """Sums over tensors. left_out: why tensors were not counted, and how many."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._known: dict[tuple[int, int, int], _Storage] = {}
        self._counts: dict[Row, list[int]] = {}
        self._met = 0

    def add(self, tensor: object, category: str, module: int = -1) -> None:
        """Count a tensor, or those it is made of, as part of a category. Bytes that are counted already stay where they are."""
        for extent in self._extents(tensor):
            row = Row(category, extent.dtype, module, extent.device)
            counts = self._counts.setdefault(row, [0, 0])
            key = extent.device, extent.address, extent.storage_bytes
            storage = self._known.get(key)
            if storage is None:
                storage = self._known[key] = _Storage(extent.storage_bytes)
            fresh = storage.cover(extent.first, extent.past) if extent.past > extent.first else 0
            if fresh:
                storage.rows[row] = storage.rows.get(row, 0) + fresh
                counts[0] += 1
                counts[1] += min(fresh, extent.view_bytes)

    def has_seen(self, tensor: object) -> bool:
        """Return whether a storage of the tensor has been met; False where it has none."""
        return any((e.device, e.address, e.storage_bytes) in self._known for e in self._extents(tensor, count=False))

    def sums(self) -> dict[Row, Sum]:
        """Sum by row. `bytes` add up to the sizes of all storages: what no tensor covers of one (padding) is its row's where it has one
        row, else it is of the category that met it first, without a module."""
        sizes: dict[Row, int] = dict.fromkeys(self._counts, 0)
        for storage in self._known.values():
            if not storage.rows:
                continue
            for row, covered in storage.rows.items():
                sizes[row] += covered
            first = next(iter(storage.rows))
            rest = storage.size - sum(storage.rows.values())
            owner = first if len(storage.rows) == 1 else first._replace(module=-1)
            if rest:
                sizes[owner] = sizes.get(owner, 0) + rest
        return {row: Sum(self._counts.get(row, (0, 0))[0], size, self._counts.get(row, (0, 0))[1]) for row, size in sizes.items() if size}

    def _extents(self, tensor: object, *, count: bool = True) -> Iterator[Extent]:
        try:
            for plain in _parts(tensor, FLATTEN):
                if count:
                    self._met += 1
                    if self._met > MOST_TENSORS:
                        self.left_out["too many tensors"] += 1
                        return
                why = _unreal(plain)
                if why:
                    self.left_out[why] += count
                else:
                    yield _extent(plain)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError) as error:
            self.left_out[f"a tensor without a storage ({type(error).__name__})"] += count


def is_tensor(thing: object) -> bool:
    """Return whether it is a tensor of torch."""
    import torch

    return isinstance(thing, torch.Tensor)


def _parts(tensor: object, depth: int) -> Iterator[object]:
    """Yield the plain tensors that a tensor is made of: the local part of a sharded one, values and indices of a sparse one."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        return
    special = depth > 0 and type(tensor) not in (torch.Tensor, torch.nn.Parameter)
    inner, local = getattr(type(tensor), "__tensor_flatten__", None), getattr(tensor, "_local_tensor", None) if special else None
    if special and inner is not None:
        for name in inner(tensor)[0]:
            yield from _parts(getattr(tensor, name), depth - 1)
    elif isinstance(local, torch.Tensor):
        yield from _parts(local, depth - 1)
    elif tensor.layout == torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    else:
        yield tensor


def _unreal(tensor: object) -> str:
    """Return why a tensor has no memory; "" if it has."""
    if type(tensor).__name__ == "FakeTensor":
        return "tensors without data (fake)"
    if tensor.device.type == "meta":  # type: ignore[attr-defined]
        return "tensors without data (meta)"
    return ""


def _extent(tensor: object) -> Extent:
    import torch

    assert isinstance(tensor, torch.Tensor)
    storage = tensor.untyped_storage()
    size, width = storage.nbytes(), tensor.element_size()
    spans = [(n - 1) * abs(step) for n, step in zip(tensor.shape, tensor.stride(), strict=True)]
    past = sum(spans) + 1 if tensor.numel() else 0
    first = tensor.storage_offset() * width
    device = tensor.device
    name = str(tensor.dtype).removeprefix("torch.")
    index = WHOLE_HOST if device.type == "cpu" else device.index or 0
    inside = min(first, size), min(first + past * width, size)  # a storage that was freed is of size 0
    return Extent(index, storage.data_ptr(), size, *inside, min(tensor.numel() * width, size), NAMES.get(name, name))


# -- Finds the tensors of optimizers by the names of their attributes; Megatron, Apex and DeepSpeed are never imported --------------------
# What a tensor of an optimizer is, in this order:
#
# 1. Under a name of MASTERS, or as `main_param` of a parameter, or in the state under a name of STATE_MASTERS: a master weight.
# 2. In `param_groups`, while it shares no storage with a parameter of the model, is of 32 bits or more and the model has parameters of
#    16 bits or less: a master weight. In any other case it is a parameter.
# 3. In the state: `exp_avg`, `exp_avg_sq`, or else other state.
#
# A master weight that lies in the storage of a parameter (an FP32 parameter is its own master) is that parameter, and counts as such.


INSIDE: Final = (
    "optimizer", "optimizers", "chained_optimizers", "sub_optimizers", "_optimizer", "_optimizers", "base_optimizer", "inner_optimizer",
    "optim",
)  # fmt: skip
"""Under these names an optimizer holds others, and a trainer or engine its own: `.optim` of ZeroRedundancyOptimizer."""
MASTERS: Final = (
    "shard_fp32_from_float16_groups", "fp32_from_float16_groups", "shard_fp32_groups",  # Megatron
    "param_to_fp32_param", "param_to_main_param",  # Megatron, with a part of the optimizer on the host
    "fp32_from_fp16_groups", "all_fp32_from_fp16_params",  # Apex: FP16_Optimizer, amp
    "single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition", "fp32_groups_flat",  # DeepSpeed
    "master_params", "main_params", "fp32_params",
)  # fmt: skip
STATE_MASTERS: Final = ("master_param", "master_params", "master_weight", "master", "main_param", "fp32_param")
MODEL_SIDE: Final = {
    "model_float16_groups": "shard_fp32_from_float16_groups",
    "float16_groups": "fp32_from_float16_groups",
    "fp16_groups": "fp32_from_fp16_groups",
    "all_fp16_params": "all_fp32_from_fp16_params",
}
"""Lists of parameters of the model, and the lists of their masters in the same order."""
PARAMETERS: Final = (
    "bit16_groups_flat", "fp16_groups_flat", "bf16_groups_flat", "fp16_partitioned_groups_flat", "param_data",
)  # fmt: skip
"""Flat copies of the parameters of a model."""
MAIN_GRADIENTS: Final = ("fp32_groups_gradients_flat", "fp32_groups_gradient_flat_partition", "fp32_groups_gradients")
GRADIENTS: Final = ("averaged_gradients", "ipg_buffer", "grad_partitions_flat_buffer")
"""FP32 and other gradients that DeepSpeed's optimizers hold."""
BUFFERS: Final = ("buffers", "expert_parallel_buffers", "per_model_buffers", "grad_buffers", "_grad_buffers")
"""Where Megatron's data parallel models and optimizers keep flat buffers."""
HIDDEN: Final = ("_amp_stash",)
"""Apex keeps its masters one object further."""
DEEPEST: Final = 8
MOST: Final = 256
"""Optimizers in one another, and all of them."""


def optimizers_in(thing: object) -> list[object]:
    """Return an optimizer with all that it wraps or chains, outermost first; each once. Lists and dicts of them too."""
    found: list[object] = []
    todo: list[tuple[object, int]] = [(thing, 0)]
    seen: set[int] = set()
    while todo and len(seen) < MOST:
        one, depth = todo.pop(0)
        if one is None or id(one) in seen or depth > DEEPEST or isinstance(one, (str, bytes, int, float)) or is_tensor(one):
            continue
        seen.add(id(one))
        if isinstance(one, Mapping):
            todo += [(inner, depth + 1) for inner in list(one.values())[:MOST]]
        elif isinstance(one, (list, tuple)):
            todo += [(inner, depth + 1) for inner in one[:MOST]]
        else:
            found.append(one)
            todo += [(inner, depth + 1) for name in INSIDE if (inner := attribute(one, name)) is not None and not callable(inner)]
    return found


def is_optimizer(thing: object) -> bool:
    """Return whether it has what every optimizer has, or master weights as some wrapper has."""
    return isinstance(attribute(thing, "param_groups"), (list, tuple)) or any(True for _ in masters(thing))


def attribute(thing: object, name: str) -> object:
    """Return an attribute; None where there is none, and where asking fails."""
    return value_or_none(lambda: getattr(thing, name, None))


def instance_attribute(thing: object, name: str) -> object:
    """Return what an object itself has under a name, not what its class has under it."""
    return value_or_none(lambda: vars(thing).get(name))


def tensors_in(thing: object, depth: int = DEEPEST) -> Iterator[object]:
    """Yield all tensors in nested lists, tuples and dicts, in order."""
    if is_tensor(thing):
        yield thing
    elif depth and isinstance(thing, Mapping):
        for inner in list(thing.values()):
            yield from tensors_in(inner, depth - 1)
    elif depth and isinstance(thing, (list, tuple, set, frozenset)):
        for inner in list(thing):
            yield from tensors_in(inner, depth - 1)


def group_parameters(optimizer: object) -> list[object]:
    """Return the tensors of its parameter groups."""
    groups = attribute(optimizer, "param_groups")
    if not isinstance(groups, (list, tuple)):
        return []
    return [tensor for group in groups if isinstance(group, Mapping) for tensor in tensors_in(group.get("params"))]


def optimizer_states(optimizer: object) -> list[tuple[object, Mapping[object, object]]]:
    """Return (parameter, its state) as `optimizer.state` has them."""
    state = attribute(optimizer, "state")
    if not isinstance(state, Mapping):
        return []
    pairs = value_or_none(lambda: list(state.items())) or []
    return [(parameter, entries) for parameter, entries in pairs if isinstance(entries, Mapping)]


def masters(optimizer: object) -> Iterator[object]:
    """Tensors that stand where master weights stand."""
    for holder in (optimizer, *(attribute(optimizer, name) for name in HIDDEN)):
        for name in MASTERS:
            found = attribute(holder, name)
            if not callable(found):
                yield from tensors_in(found)


def parameters_and_masters(optimizer: object) -> Iterator[tuple[object, object]]:
    """Yield (parameter of the model, its master) where two lists run alike."""
    for holder in (optimizer, *(attribute(optimizer, name) for name in HIDDEN)):
        for ours, theirs in MODEL_SIDE.items():
            left, right = (_flat(attribute(holder, name)) for name in (ours, theirs))
            if len(left) == len(right):
                yield from ((a, b) for a, b in zip(left, right, strict=True) if is_tensor(a) and is_tensor(b))


def _flat(thing: object, depth: int = 4) -> list[object]:
    """Elements of nested lists, None among them, since they hold a place."""
    if isinstance(thing, (list, tuple)) and depth:
        return [one for inner in thing for one in _flat(inner, depth - 1)]
    return [] if isinstance(thing, (list, tuple)) else [thing]


def flat_buffers(thing: object) -> Iterator[tuple[str, object]]:
    """Yield ("param" or "grad", tensor) of the flat buffers of a model's wrapper or an optimizer."""
    for name in BUFFERS:
        for buffer in _objects(instance_attribute(thing, name), DEEPEST):
            for kind, inner in (("param", "param_data"), ("grad", "grad_data")):
                tensor = attribute(buffer, inner)
                if is_tensor(tensor):
                    yield kind, tensor
            if "grad_buffers" in name and is_tensor(attribute(buffer, "data")):
                yield "grad", attribute(buffer, "data")


def _objects(thing: object, depth: int) -> Iterator[object]:
    if depth and isinstance(thing, (Mapping, list, tuple)):
        for inner in (list(thing.values()) if isinstance(thing, Mapping) else thing)[:MOST]:
            yield from _objects(inner, depth - 1)
    elif thing is not None:
        yield thing


OF_MODEL: Final = ("params", "buffers", "grads", "main_grads")
OF_OPTIMIZER: Final = ("master_weights", "exp_avg", "exp_avg_sq", "other_optimizer")
CATEGORIES: Final = (*OF_MODEL, *OF_OPTIMIZER)
MOST_ROWS: Final = 20_000
"""Rows by module; with more, those of one category and type are summed up."""
WRAPPERS: Final = 8
"""Wrappers around a model that are looked into for flat buffers."""
_WIDE: Final = ("fp32", "fp64")


class Part(NamedTuple):
    """Sums one category, type, module and device. module: a qualified name, "" for what belongs to none. device: index, -1 the host.

    bytes: of storages; view_bytes: of the tensors themselves. With 0 tensors: it was looked for, and there is none.
    """

    category: str
    dtype: str
    module: str
    device: int
    tensors: int
    bytes: int
    view_bytes: int


@dataclass(frozen=True)
class Walk:
    """Has what a walk found. searched: categories that it could see; the others are unknown, not 0. left_out: tensors that count as
    none, by reason. classes: of all modules, by name, outermost first."""

    parts: tuple[Part, ...] = ()
    searched: frozenset[str] = frozenset()
    left_out: dict[str, int] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)

    def bytes_of(self, category: str, *, dtypes: tuple[str, ...] = ()) -> int | None:
        """Bytes of storages of a category (of those types), on all devices; None where it was not looked for."""
        if category not in self.searched:
            return None
        return sum(part.bytes for part in self.parts if part.category == category and (not dtypes or part.dtype in dtypes))

    def view_bytes_of(self, category: str) -> int | None:
        """Return the same of the tensors themselves."""
        return None if category not in self.searched else sum(p.view_bytes for p in self.parts if p.category == category)

    @property
    def master_weight_bytes(self) -> int | None:
        """Bytes of FP32 master weights."""
        return self.bytes_of("master_weights", dtypes=_WIDE)

    @property
    def main_grad_bytes(self) -> int | None:
        """Bytes of FP32 main gradients."""
        return self.bytes_of("main_grads", dtypes=_WIDE)


def walk(model: object = None, optimizer: object = None) -> Walk:
    """Count the bytes of a model (several in a list or dict) and its optimizers. Either may be None.

    optimizer: one, several, or what has them (a wrapper, an engine, a trainer); None looks for `model.optimizer` and the like.
    """
    return _Walker(model, optimizer).run()


class _Walker:
    """Does one walk; nothing of it outlives the call."""

    def __init__(self, model: object, optimizer: object) -> None:
        self.storages = Storages()
        self.places = value_or_none(lambda: places(model)) or []
        self.wrappers = value_or_none(lambda: list(_wrappers(model))) or []
        found = optimizers_in(self.wrappers if optimizer is None else optimizer)
        self.optimizers = [one for one in found if is_optimizer(one)]
        self.modules: list[str] = [place.name for place in self.places]
        self.owner: dict[int, int] = {}  # of tensors, by id: number of the module. They live as long as the walk: `self.kept_alive`
        self.kept_alive: list[object] = []

    def run(self) -> Walk:
        add, place_of = self.storages.add, self._place
        parameters = self._parameters()
        for number, place in enumerate(self.places):
            for buffer in _members(place.module, "_buffers"):
                add(buffer, "buffers", number)
        flat = [pair for one in (*self.wrappers, *self.optimizers) for pair in flat_buffers(one)]
        for kind, tensor in flat:
            if kind == "param":
                add(tensor, "params")
        masters = self._masters(parameters)
        self._main_gradients(parameters)
        for kind, tensor in flat:
            if kind == "grad":
                add(tensor, "main_grads")
        for one in parameters:
            add(attribute(one, "grad"), "grads", place_of(one))
        for master in masters:
            add(master, "master_weights", place_of(master))
        for master in masters:
            for name in ("grad", "decoupled_grad", "main_grad"):
                add(attribute(master, name), "main_grads", place_of(master))
        for optimizer in self.optimizers:
            self._state(optimizer)
        sums = self.storages.sums()
        searched = {row.category for row in sums}
        searched |= {"params", "buffers", "grads"} if self.places else set()
        searched |= {"params", "grads", "main_grads", *OF_OPTIMIZER} if self.optimizers else set()
        classes = {place.name: place.class_name for place in self.places}
        return Walk(self._parts(sums, searched), frozenset(searched), dict(self.storages.left_out), classes)

    # --- Tensors by their part ---

    def _parameters(self) -> list[object]:
        """Add the parameters of the model; without a model, those that optimizers name as such."""
        found: dict[int, object] = {}
        for number, place in enumerate(self.places):
            for parameter in _members(place.module, "_parameters"):
                if is_tensor(parameter) and id(parameter) not in found:
                    self._know(parameter, number)
                    found[id(parameter)] = parameter
        for optimizer in self.optimizers if not self.places else ():
            found.update((id(one), one) for one, _ in parameters_and_masters(optimizer))
        for parameter in found.values():
            for tensor in (parameter, attribute(parameter, "ds_tensor")):
                self.storages.add(tensor, "params", self._place(parameter))
        for optimizer in self.optimizers:
            for name in PARAMETERS:
                for tensor in tensors_in(attribute(optimizer, name)):
                    self.storages.add(tensor, "params")
        return list(found.values())

    def _main_gradients(self, parameters: list[object]) -> None:
        for parameter in parameters:
            self.storages.add(attribute(parameter, "main_grad"), "main_grads", self._place(parameter))
        for optimizer in self.optimizers:
            for name in MAIN_GRADIENTS:
                for tensor in tensors_in(attribute(optimizer, name)):
                    self.storages.add(tensor, "main_grads")

    def _masters(self, parameters: list[object]) -> list[object]:
        """Add the master weights; what else is in `param_groups` joins the parameters."""
        found: dict[int, object] = {}
        for parameter in parameters:
            master = attribute(parameter, "main_param")
            if is_tensor(master):
                self._know(master, self._place(parameter))
                found[id(master)] = master
        grouped: dict[int, object] = {}
        for optimizer in self.optimizers:
            for one, master in parameters_and_masters(optimizer):
                self._know(master, self._place(one))
            found.update((id(master), master) for master in masters(optimizer))
            grouped.update((id(one), one) for one in group_parameters(optimizer))
        self._like(list(grouped.values()), parameters)
        narrow = any(_width(one) in (1, 2) for one in parameters)
        for one in grouped.values():
            if id(one) in found or self.storages.has_seen(one):
                continue
            if narrow and _width(one) >= 4:
                found[id(one)] = one
            else:
                self.storages.add(one, "params", self._place(one))
                parameters.append(one)
        return list(found.values())

    def _like(self, grouped: list[object], parameters: list[object]) -> None:
        """Give each copy the module of its parameter, where an optimizer updates copies of all parameters in their order."""
        if any(id(one) in self.owner for one in grouped):
            return
        wanted = [one for one in parameters if attribute(one, "requires_grad")]
        for side in (wanted, parameters):
            if grouped and [attribute(a, "shape") for a in grouped] == [attribute(b, "shape") for b in side]:
                for copy, one in zip(grouped, side, strict=True):
                    self._know(copy, self.owner[id(one)])
                return

    def _state(self, optimizer: object) -> None:
        for parameter, entries in optimizer_states(optimizer):
            place = self._place(parameter)
            for name, value in list(entries.items()):
                if name in STATE_MASTERS:
                    category = "master_weights"
                else:
                    category = str(name) if name in ("exp_avg", "exp_avg_sq") else "other_optimizer"
                for tensor in tensors_in(value):
                    self.storages.add(tensor, category, place)
        for name in GRADIENTS:
            for tensor in tensors_in(attribute(optimizer, name)):
                self.storages.add(tensor, "grads")

    # --- Modules and rows ---

    def _know(self, tensor: object, place: int) -> None:
        self.owner.setdefault(id(tensor), place)
        self.kept_alive.append(tensor)

    def _place(self, tensor: object) -> int:
        return self.owner.get(id(tensor), -1)

    def _parts(self, sums: Mapping[Row, Sum], searched: set[str]) -> tuple[Part, ...]:
        rows: dict[tuple[str, str, str, int], list[int]] = {}
        single = len(sums) <= MOST_ROWS
        for row, found in sums.items():
            name = self.modules[row.module] if single and row.module >= 0 else ""
            into = rows.setdefault((row.category, row.dtype, name, row.device), [0, 0, 0])
            for at, value in enumerate(found):
                into[at] += value
        for category in CATEGORIES:
            if category in searched and not any(key[0] == category for key in rows):
                rows[category, "", "", -1] = [0, 0, 0]
        order = {category: at for at, category in enumerate(CATEGORIES)}
        return tuple(Part(*key, *values) for key, values in sorted(rows.items(), key=lambda item: order[item[0][0]]))


def _wrappers(model: object) -> Iterator[object]:
    """Yield what was passed as a model (each of several), and what it wraps."""
    for one in models_in(model):
        for _ in range(WRAPPERS):
            yield one
            inner = wrapped_as(one)
            if inner is None:
                break
            one = _member(one, inner)


def _members(module: object, name: str) -> list[object]:
    """Return the parameters or buffers of a module itself."""
    held = instance_attribute(module, name)
    return list(held.values()) if isinstance(held, Mapping) else []


def _member(module: object, name: str) -> object:
    held = instance_attribute(module, "_modules")
    return held.get(name) if isinstance(held, Mapping) else None


def _width(tensor: object) -> int:
    """Bytes of one number; 0 for what is no tensor of floating point numbers."""
    return value_or_none(lambda: int(tensor.element_size()) if tensor.is_floating_point() else 0) or 0  # type: ignore[attr-defined]
