"""Keeps the speed of a job from one start to the next: steps counted by configuration, fitted parameters, batch sizes.

    state.save(file)                 # versioned JSON, to an open file; save_file(path) writes under another name first and renames
    state.load(file)                 # once per process start; counters go on from there, also with another number of replicas
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, Final, NamedTuple, TypeVar, cast

FORMAT: Final = "tb-sol-metrics"
VERSION: Final = 1
MOST_BYTES: Final = 16 << 20
"""Of a saved state that is read."""
PERF: Final = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")
T = TypeVar("T")


class Key(NamedTuple):
    """A configuration: nodes, replicas of the whole model, samples of one micro-step on one replica."""

    num_nodes: int
    num_replicas: int
    atomic_bsz: int


@dataclass
class Counts:
    """Steps of one configuration; times in seconds. sync_count: of optim_count, steps whose wait for gradients is in optim_sync_time.

    A device reports waits a little late, so that a few of the last may be missing: their mean stands for them.
    """

    accum_step_time: float = 0.0
    accum_count: int = 0
    optim_step_time: float = 0.0
    optim_sync_time: float = 0.0
    optim_count: int = 0
    sync_count: int = 0

    def less(self, other: Counts | None) -> Counts:
        """Return these counts less the others."""
        if other is None:
            return self
        return Counts(*(getattr(self, name) - getattr(other, name) for name in Counts.__dataclass_fields__))

    @property
    def sync_time(self) -> float | None:
        """Seconds that all synchronized steps waited; None where no wait was measured."""
        return self.optim_sync_time / self.sync_count * self.optim_count if self.sync_count else None

    def times(self) -> tuple[float, float] | None:
        """Return (T_accum, T_optim) in seconds per step; None where they are not known.

        Without a measured wait, a synchronized step says nothing of its compute: then only steps that accumulate do.
        """
        if self.optim_count <= 0:
            return None
        optim = self.optim_step_time / self.optim_count
        sync = self.sync_time
        if sync is None:
            return (self.accum_step_time / self.accum_count, optim) if self.accum_count else None
        compute = self.accum_step_time + self.optim_step_time - sync
        return compute / (self.accum_count + self.optim_count), optim


@dataclass
class MetricsState:
    """What is saved of a job.

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
            )
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
