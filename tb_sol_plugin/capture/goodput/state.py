"""Keeps what a job measures from one start to the next: steps counted by configuration, fitted parameters, batch sizes, sums of replicas.

state.save(file)                 # versioned JSON, to an open file; save_file(path) writes under another name first and renames
state.load(file)                 # once per process start; counters go on from there, also with another number of replicas
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from types import ModuleType
from typing import IO, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

FORMAT: Final = "tb-sol-metrics"
VERSION: Final = 1
MOST_BYTES: Final = 16 << 20
"""Of a saved state that is read."""
PERF: Final = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")
T = TypeVar("T")


class Key(NamedTuple):
    """Names a configuration: nodes, replicas of the whole model, samples of one micro-step on one replica."""

    num_nodes: int
    num_replicas: int
    atomic_bsz: int


@dataclass
class Counts:
    """Counts the steps of one configuration; times in s.

    sync_count: of optim_count, the steps whose wait for gradients was measured; these waits are optim_sync_time, and those steps lasted
    sync_step_time. Waits are set against these steps only, and stand for no other.
    """

    accum_step_time: float = 0.0
    accum_count: int = 0
    optim_step_time: float = 0.0
    optim_sync_time: float = 0.0
    optim_count: int = 0
    sync_count: int = 0
    sync_step_time: float = 0.0

    def less(self, other: Counts | None) -> Counts:
        """Return these counts less the others."""
        if other is None:
            return self
        return Counts(*(getattr(self, name) - getattr(other, name) for name in Counts.__dataclass_fields__))

    def synced(self, took: float, wait: float) -> None:
        """Add a synchronized step that took and waited so long; a wait is at most its step."""
        self.optim_sync_time += min(max(wait, 0.0), took)
        self.sync_step_time += took
        self.sync_count += 1

    def times(self) -> tuple[float, float] | None:
        """Return (T_accum, T_optim) in seconds per step; None where they are not known.

        Both are of the steps whose waits were measured, and of those that accumulate. Without a measured wait, a synchronized step says
        nothing of its compute: then only steps that accumulate do.
        """
        if self.optim_count <= 0:
            return None
        if not self.sync_count:
            return (self.accum_step_time / self.accum_count, self.optim_step_time / self.optim_count) if self.accum_count else None
        compute = self.accum_step_time + self.sync_step_time - self.optim_sync_time
        return compute / (self.accum_count + self.sync_count), self.sync_step_time / self.sync_count


@dataclass
class MetricsState:
    """Is what is saved of a job.

    profile: counts by configuration. perf_params: the seven as last fitted (names in PERF). grad_sqr, grad_var: raw averages.

    noise: state of the averages of gradient statistics. init_batch_size, max_batch_size: of all replicas and micro-steps; None unknown.
    """

    profile: dict[Key, Counts] = field(default_factory=dict)
    perf_params: tuple[float, ...] | None = None
    grad_sqr: float | None = None
    grad_var: float | None = None
    grad_biased: bool = False
    noise: dict[str, object] = field(default_factory=dict)
    init_batch_size: int | None = None
    max_batch_size: int | None = None
    local_bsz_bounds: tuple[int, int] | None = None
    gradient_accumulation: bool = False

    def points(self) -> tuple[list[int], list[int], list[int], list[float], list[float]]:
        """Return columns for a fit.

        Nodes, replicas, atomic batch sizes, T_accum and T_optim in seconds; keys without known times left out.
        """
        rows = [(*key, *times) for key, counts in sorted(self.profile.items()) if (times := counts.times()) is not None]
        nodes, replicas, sizes, accum, optim = ([row[i] for row in rows] for i in range(5))
        return nodes, replicas, sizes, accum, optim  # type: ignore[return-value]

    def save(self, file: IO[str] | IO[bytes]) -> None:
        """Write it as JSON to an open file, of text or of bytes."""
        text = json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "profile": [{**key._asdict(), **vars(counts)} for key, counts in sorted(self.profile.items())],
                "perf_params": None if self.perf_params is None else dict(zip(PERF, self.perf_params, strict=True)),
                "grad_params": None if self.grad_sqr is None else {"sqr": self.grad_sqr, "var": self.grad_var, "biased": self.grad_biased},
                "noise": self.noise,
                "init_batch_size": self.init_batch_size,
                "max_batch_size": self.max_batch_size,
                "local_bsz_bounds": self.local_bsz_bounds,
                "gradient_accumulation": self.gradient_accumulation,
            },
            allow_nan=False,
        )
        put(file, text)

    def load(self, file: IO[str] | IO[bytes]) -> None:
        """Take everything from a saved state. ValueError where it is none; then nothing has changed."""
        found = read_json(file, FORMAT, VERSION)
        profile: dict[Key, Counts] = {}
        for row in _a(found.get("profile") or [], list, "profile"):
            key = Key(*(_whole(_a(row, dict, "profile").get(name), name, 1) for name in Key._fields))
            if key.num_replicas < key.num_nodes:
                raise ValueError(f"a saved state with {key.num_nodes} nodes for {key.num_replicas} replicas")
            profile[key] = Counts(
                _time(row.get("accum_step_time", 0.0), "accum_step_time"),
                _whole(row.get("accum_count", 0), "accum_count"),
                _time(row.get("optim_step_time", 0.0), "optim_step_time"),
                _time(row.get("optim_sync_time", 0.0), "optim_sync_time"),
                _whole(row.get("optim_count", 0), "optim_count"),
                _whole(row.get("sync_count", 0), "sync_count"),
                _time(row.get("sync_step_time", 0.0), "sync_step_time"),
            )
            _complete(profile[key], "sync_step_time" in row)
        perf, grad = found.get("perf_params"), found.get("grad_params")
        bounds = found.get("local_bsz_bounds")
        new = MetricsState(
            profile,
            None if perf is None else tuple(_time(_a(perf, dict, "perf_params").get(name), name) for name in PERF),
            None if grad is None else _number(_a(grad, dict, "grad_params").get("sqr"), "sqr"),
            None if grad is None else _number(grad.get("var"), "var"),
            grad is not None and grad.get("biased") is True,
            _a(found.get("noise") or {}, dict, "noise"),
            _optional(found.get("init_batch_size"), lambda v: _whole(v, "init_batch_size", 1)),
            _optional(found.get("max_batch_size"), lambda v: _whole(v, "max_batch_size", 1)),
            None if bounds is None else tuple(_whole(v, "local_bsz_bounds", 1) for v in _a(bounds, list, "local_bsz_bounds")[:2]),  # type: ignore[arg-type]
            found.get("gradient_accumulation") is True,
        )
        vars(self).update(vars(new))

    def save_file(self, path: str | os.PathLike[str]) -> None:
        """Write it to a path: under another name first, then renamed, so that the path always holds a whole state."""
        write_whole(path, self.save)

    def load_file(self, path: str | os.PathLike[str]) -> bool:
        """Take it from a path; False where there is no file."""
        if not os.path.exists(path):
            return False
        with open(path, "rb") as file:
            self.load(file)
        return True


def put(file: IO[str] | IO[bytes], text: str) -> None:
    """Write a text to a file of text or of bytes."""
    try:
        cast("IO[str]", file).write(text)
    except TypeError:
        cast("IO[bytes]", file).write(text.encode())


def read_json(file: IO[str] | IO[bytes], form: str, version: int) -> dict[str, Any]:
    """Read the object in a file of that format, of that version at most. ValueError where it is something else."""
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"a saved state of more than {MOST_BYTES} bytes")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no saved state: {str(error)[:100]}") from None
    if not isinstance(found, dict) or found.get("format") != form:
        raise ValueError(f"no saved state of format {form}")
    if not isinstance(found.get("version"), int) or found["version"] > version:
        raise ValueError(f"a saved state of version {str(found.get('version'))[:20]}; this library reads up to {version}")
    return found


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], None]) -> None:
    """Write a file that appears under its name only when it is complete and on the disk."""
    where = os.path.abspath(os.fspath(path))
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(where), prefix=f".{os.path.basename(where)}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, where)
    except BaseException:
        os.unlink(temporary)
        raise


def _complete(counts: Counts, measured: bool) -> None:
    """Set the time of the steps with a measured wait, where a state that says nothing of it says that all of them have one; else drop
    the waits."""
    if not measured and counts.sync_count == counts.optim_count:
        counts.sync_step_time = counts.optim_step_time
    elif not measured:
        counts.sync_count, counts.optim_sync_time = 0, 0.0
    counts.optim_sync_time = min(counts.optim_sync_time, counts.sync_step_time)


def _a(value: object, kind: type[T], name: str) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"a saved state whose {name} is {type(value).__name__}")
    return value


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a saved state whose {name} is no number")
    return float(value)


def _time(value: object, name: str) -> float:
    found = _number(value, name)
    if found < 0:
        raise ValueError(f"a saved state whose {name} is below 0")
    return found


def _whole(value: object, name: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**53:
        raise ValueError(f"a saved state whose {name} is {str(value)[:20]}, no whole number from {least}")
    return value


def _optional(value: object, read: Callable[[object], T]) -> T | None:
    return None if value is None else read(value)


# -- Adds up named values over all replicas of a job and all its starts ----------------------------------------------


ACCUMULATOR_FORMAT: Final = "tb-sol-accumulator"
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
    """Adds up named values over all replicas of a job and all its starts. group: of torch.distributed, default all ranks.

        acc = Accumulator()
        acc["loss"] += loss.item()               # on every replica; no communication
        acc["samples"] += len(batch)
        with acc.synchronized():                 # on every replica at the same place: adds up what each has added since the last time
            print(acc["loss"] / acc["samples"])

    It is a mapping of names to sums, 0 at first. `save` at a checkpoint, `load` after a restart: what was added after the checkpoint is
    not in it, so that steps which run again count once. Sums are exact as far as a float can be: the additions of all replicas are
    added up at once, with one rounding.
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
        """Take, outside of `synchronized`, only what `acc[name] += x` gives; inside, a number that is the same on every replica."""
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
        """Add up all replicas; inside, values are these sums. A collective: every replica enters it at the same place."""
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
        everyone = gathered(own, self._group)
        for name in sorted({name for one in everyone for name in one}):
            self._total[name] = _exactly([self._total.get(name, 0.0), *(one[name] for one in everyone if name in one)])
        self._own.clear()

    # --- What outlives the process ---

    def save(self, file: IO[str] | IO[bytes]) -> None:
        """Write the sums as JSON. A collective, like `synchronized`: on every replica; one of the files is enough."""
        if not self._open:
            self._sync()
        put(file, json.dumps({"format": ACCUMULATOR_FORMAT, "version": VERSION, "sums": self._total}))

    def load(self, file: IO[str] | IO[bytes]) -> None:
        """Take up saved sums, on every replica the same; what was added and not saved is dropped. ValueError where there are none."""
        found = read_json(file, ACCUMULATOR_FORMAT, VERSION).get("sums")
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
            text = json.dumps({"format": ACCUMULATOR_FORMAT, "version": VERSION, "sums": self._total})
            write_whole(path, lambda file: put(file, text))

    def load_file(self, path: str | os.PathLike[str]) -> bool:
        """Take them from a path; False where there is no file."""
        if not os.path.exists(path):
            return False
        with open(path, "rb") as file:
            self.load(file)
        return True


def _addend(value: object) -> object:
    """Return a number, or a tensor of one element, which is read only when it must be."""
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
    """Return their sum with one rounding; where one is infinite or no number, what plain addition gives."""
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return sum(values)


def gathered(own: dict[str, T], group: object) -> list[dict[str, T]]:
    """Return what each replica has, values of JSON, in their order. A collective."""
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
