"""Walks over a model and its optimizers: bytes of parameters, gradients, master weights and optimizer state as they are now.

Tensors are read, never estimated, and none is kept. Each byte counts once, in the first of these that has it: parameters, buffers, main
gradients, gradients, master weights, gradients of those (main gradients), the state of optimizers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tb_sol_plugin.capture.hooks.module_names import models_in, places, wrapped_as
from tb_sol_plugin.capture.loop.header import known
from tb_sol_plugin.capture.memory.optimizers import (
    GRADIENTS,
    MAIN_GRADIENTS,
    PARAMETERS,
    STATE_MASTERS,
    attribute,
    flat_buffers,
    group_parameters,
    looks_like,
    masters,
    optimizers_in,
    own,
    pairs,
    states,
    tensors_in,
)  # fmt: skip
from tb_sol_plugin.capture.memory.storages import Row, Storages, Sum, is_tensor

OF_MODEL: Final = ("params", "buffers", "grads", "main_grads")
OF_OPTIMIZER: Final = ("master_weights", "exp_avg", "exp_avg_sq", "other_optimizer")
CATEGORIES: Final = (*OF_MODEL, *OF_OPTIMIZER)
MOST_ROWS: Final = 20_000
"""Rows by module; with more, those of one category and type are summed up."""
WRAPPERS: Final = 8
"""Wrappers around a model that are looked into for flat buffers."""
_WIDE: Final = ("fp32", "fp64")


class Part(NamedTuple):
    """One category, type, module and device. module: a qualified name, "" for what belongs to none. device: index, -1 the host.

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
    """What a walk found. searched: categories that it could see; the others are unknown, not 0. left_out: tensors that count as
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
        """The same of the tensors themselves."""
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
    """Count what a model (several in a list or dict) and its optimizers hold. Either may be None.

    optimizer: one, several, or what holds them (a wrapper, an engine, a trainer); None looks for `model.optimizer` and the like.
    """
    return _Walker(model, optimizer).run()


class _Walker:
    """One walk; nothing of it outlives the call."""

    def __init__(self, model: object, optimizer: object) -> None:
        self.storages = Storages()
        self.places = known(lambda: places(model)) or []
        self.wrappers = known(lambda: list(_wrappers(model))) or []
        found = optimizers_in(self.wrappers if optimizer is None else optimizer)
        self.optimizers = [one for one in found if looks_like(one)]
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
        """The parameters of the model; without a model, those that optimizers name as such. They are added."""
        found: dict[int, object] = {}
        for number, place in enumerate(self.places):
            for parameter in _members(place.module, "_parameters"):
                if is_tensor(parameter) and id(parameter) not in found:
                    self._know(parameter, number)
                    found[id(parameter)] = parameter
        for optimizer in self.optimizers if not self.places else ():
            found.update((id(one), one) for one, _ in pairs(optimizer))
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
        """Master weights; what else is in `param_groups` joins the parameters, and is added."""
        found: dict[int, object] = {}
        for parameter in parameters:
            master = attribute(parameter, "main_param")
            if is_tensor(master):
                self._know(master, self._place(parameter))
                found[id(master)] = master
        grouped: dict[int, object] = {}
        for optimizer in self.optimizers:
            for one, master in pairs(optimizer):
                self._know(master, self._place(one))
            found.update((id(master), master) for master in masters(optimizer))
            grouped.update((id(one), one) for one in group_parameters(optimizer))
        self._like(list(grouped.values()), parameters)
        narrow = any(_width(one) in (1, 2) for one in parameters)
        for one in grouped.values():
            if id(one) in found or self.storages.holds(one):
                continue
            if narrow and _width(one) >= 4:
                found[id(one)] = one
            else:
                self.storages.add(one, "params", self._place(one))
                parameters.append(one)
        return list(found.values())

    def _like(self, grouped: list[object], parameters: list[object]) -> None:
        """Where an optimizer updates copies of all parameters in their order, each belongs to the module of its parameter."""
        if any(id(one) in self.owner for one in grouped):
            return
        wanted = [one for one in parameters if attribute(one, "requires_grad")]
        for mine in (wanted, parameters):
            if grouped and [attribute(a, "shape") for a in grouped] == [attribute(b, "shape") for b in mine]:
                for copy, one in zip(grouped, mine, strict=True):
                    self._know(copy, self.owner[id(one)])
                return

    def _state(self, optimizer: object) -> None:
        for parameter, entries in states(optimizer):
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
    """What was passed as a model (each of several), and what it wraps."""
    for one in models_in(model):
        for _ in range(WRAPPERS):
            yield one
            inner = wrapped_as(one)
            if inner is None:
                break
            one = _member(one, inner)


def _members(module: object, name: str) -> list[object]:
    """Parameters or buffers that a module holds itself."""
    held = own(module, name)
    return list(held.values()) if isinstance(held, Mapping) else []


def _member(module: object, name: str) -> object:
    held = own(module, "_modules")
    return held.get(name) if isinstance(held, Mapping) else None


def _width(tensor: object) -> int:
    """Bytes of one number; 0 for what is no tensor of floating point numbers."""
    return known(lambda: int(tensor.element_size()) if tensor.is_floating_point() else 0) or 0  # type: ignore[attr-defined]
