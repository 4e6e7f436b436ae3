"""Adds up named values over all replicas of a job and all its starts.

    acc = Accumulator()
    acc["loss"] += loss.item()               # on every replica; no communication
    acc["samples"] += len(batch)
    with acc.synchronized():                 # on every replica at the same place: adds up what each has added since the last time
        print(acc["loss"] / acc["samples"])

`save` at a checkpoint, `load` after a restart: what was added after the checkpoint is not in it, so that steps which run again count once.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from numbers import Real
from types import ModuleType
from typing import IO, Final, TypeAlias

from tb_sol_plugin.capture.goodput.state import put, read_json, write_whole

FORMAT: Final = "tb-sol-accumulator"
VERSION: Final = 1
Value: TypeAlias = "float | Update"
_OUTSIDE: Final = "values are readable only inside `with accumulator.synchronized()`: elsewhere they can be added to and subtracted from"


class Update:
    """Stands for a value outside of `synchronized`: it takes additions and subtractions, and cannot be read."""

    __slots__ = ("added", "name")

    def __init__(self, name: str, added: tuple[object, ...] = ()) -> None:
        self.name, self.added = name, added

    def __add__(self, other: object) -> Update:
        return Update(self.name, (*self.added, _addend(other)))

    def __sub__(self, other: object) -> Update:
        return Update(self.name, (*self.added, -_addend(other)))  # type: ignore[operator]

    __radd__ = __add__

    def __float__(self) -> float:
        raise RuntimeError(_OUTSIDE)

    __int__ = __index__ = __bool__ = __float__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.name}: {_OUTSIDE}>"


class Accumulator(MutableMapping[str, Value]):
    """A mapping of sums, see the module. Names are texts; values are sums, 0 at first. group: of torch.distributed, default all ranks.

    Sums are exact as far as a float can be: the additions of all replicas are added up at once, with one rounding.
    """

    def __init__(self, *, group: object = None) -> None:
        self._group = group
        self._total: dict[str, float] = {}
        self._own: dict[str, list[object]] = {}
        self._open = False

    # --- A mapping ---

    def __getitem__(self, name: str) -> Value:
        if self._open:
            return self._total[name]
        return Update(name)

    def __setitem__(self, name: str, value: Value) -> None:
        """Outside of `synchronized` only what `acc[name] += x` gives; inside a number, on every replica the same."""
        if not isinstance(name, str):
            raise TypeError(f"names are texts, not {type(name).__name__}")
        if self._open:
            self._total[name] = _real(value)
        elif isinstance(value, Update) and value.name == name:
            self._own.setdefault(name, []).extend(value.added)
            if len(self._own[name]) > 1024:
                self._own[name] = [_sum(self._own[name])]
        else:
            raise TypeError(f"outside of `synchronized` a value can only be added to: accumulator[{name!r}] += x")

    def __delitem__(self, name: str) -> None:
        self._needs_open()
        del self._total[name]

    def __iter__(self) -> Iterator[str]:
        self._needs_open()
        return iter(dict(self._total))

    def __len__(self) -> int:
        self._needs_open()
        return len(self._total)

    def __contains__(self, name: object) -> bool:
        self._needs_open()
        return name in self._total

    def _needs_open(self) -> None:
        if not self._open:
            raise RuntimeError(_OUTSIDE)

    # --- Sums ---

    @contextmanager
    def synchronized(self) -> Iterator[Accumulator]:
        """A collective: every replica enters it at the same place. Inside, values are the sums over all replicas, the same everywhere."""
        if self._open:
            raise RuntimeError("synchronized() inside of synchronized()")
        self._sync()
        self._open = True
        try:
            yield self
        finally:
            self._open = False

    def _sync(self) -> None:
        own = {name: _sum(parts) for name, parts in self._own.items()}
        everyone = _gathered(own, self._group)
        for name in sorted({name for one in everyone for name in one}):
            self._total[name] = _exactly([self._total.get(name, 0.0), *(one[name] for one in everyone if name in one)])
        self._own.clear()

    # --- What outlives the process ---

    def save(self, file: IO[str] | IO[bytes]) -> None:
        """Write the sums as JSON. A collective, like `synchronized`: on every replica; one of the files is enough."""
        if not self._open:
            self._sync()
        put(file, json.dumps({"format": FORMAT, "version": VERSION, "sums": self._total}))

    def load(self, file: IO[str] | IO[bytes]) -> None:
        """Take up saved sums, on every replica the same; what was added and not saved is dropped. ValueError where there are none."""
        found = read_json(file, FORMAT, VERSION).get("sums")
        if not isinstance(found, dict) or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in found.values()):
            raise ValueError("no saved sums")
        self._total = {name: float(value) for name, value in found.items()}
        self._own.clear()

    def save_file(self, path: str | os.PathLike[str]) -> None:
        """Write them to a path, on every replica, of which rank 0 writes: complete under its name, or as it was before."""
        if not self._open:
            self._sync()
        from tb_sol_plugin.capture.loop.header import rank_of

        if rank_of()[0] == 0:
            text = json.dumps({"format": FORMAT, "version": VERSION, "sums": self._total})
            write_whole(path, lambda file: put(file, text))

    def load_file(self, path: str | os.PathLike[str]) -> bool:
        """Take them from a path; False where there is no file."""
        if not os.path.exists(path):
            return False
        with open(path, "rb") as file:
            self.load(file)
        return True


def _addend(value: object) -> object:
    """A number, or a tensor of one element, which is read only when it must be."""
    if isinstance(value, Update):
        raise RuntimeError(_OUTSIDE)
    if hasattr(value, "detach") and hasattr(value, "numel"):
        if value.numel() != 1:
            raise TypeError(f"only single numbers can be added, not {value.numel()} at once")
        return value.detach().clone()
    return _real(value)


def _real(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"only numbers can be added, not {type(value).__name__}")
    return float(value)


def _sum(parts: list[object]) -> float:
    return _exactly([float(part) for part in parts])  # type: ignore[arg-type]


def _exactly(values: list[float]) -> float:
    """Their sum with one rounding; where one is infinite or no number, what plain addition gives."""
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return sum(values)


def _gathered(own: dict[str, float], group: object) -> list[dict[str, float]]:
    """Return what each replica has, in their order."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if torch is None or distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return [own]
    size = distributed.get_world_size(group)
    if size == 1:
        return [own]
    device = _device(torch, str(distributed.get_backend(group)))
    text = json.dumps(own).encode()
    lengths = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(size)]
    distributed.all_gather(lengths, torch.tensor([len(text)], dtype=torch.int64, device=device), group=group)
    most = max(int(one) for one in lengths)
    padded = torch.zeros(most, dtype=torch.uint8, device=device)
    padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(device)
    out = [torch.zeros(most, dtype=torch.uint8, device=device) for _ in range(size)]
    distributed.all_gather(out, padded, group=group)
    return [json.loads(bytes(one[: int(n)].cpu().tolist())) for one, n in zip(out, lengths, strict=True)]


def _device(torch: ModuleType, backend: str) -> str:
    """Return the device of tensors that a backend can send: nccl and similar ones send those of their device only."""
    if "gloo" in backend or "ccl" not in backend:
        return "cpu"
    accelerator = getattr(torch, "accelerator", None)
    return "cuda" if accelerator is None else str(accelerator.current_accelerator().type)
