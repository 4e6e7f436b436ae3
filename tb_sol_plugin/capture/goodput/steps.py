"""Steps as training counts them, by nodes, replicas and batch size; every 30 s rank 0 fits the model of goodput to them.

    set_batch_sizes(init_batch_size=128, max_batch_size=4096, local_bsz_bounds=(16, 256), gradient_accumulation=True)
    for batch in loader:
        profile_step_start(atomic_bsz=len(batch))
        ...                                              # forward, backward
        profile_sync_time(seconds)                       # the wait for gradients; `watch_gradients` tells it by itself
        profile_step_commit(accumulation_step=False)     # True for a micro-step that only accumulates
    goodput = get_goodput_fn()

The fit, and the report to a supervisor where there is one, run on a thread of their own. None of these functions raises into training
or waits for anything: what fails is logged once.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from tb_sol_plugin.capture.loop.guard import log
from tb_sol_plugin.capture.loop.header import groups_of, known, rank_of
from tb_sol_plugin.format import PROFILE_ROW

if TYPE_CHECKING:
    from tb_sol_plugin.capture.goodput.hints import Supervisor
    from tb_sol_plugin.cost.goodput.model import GoodputFunction


# -- What training remembers of its own speed from one start to the next ---------------------------------------------
# counted steps by configuration, what was fitted, batch sizes.
#
#     state.save(file)                 # versioned JSON, to an open file; save_file(path) writes under another name first and renames
#     state.load(file)                 # once per process start; counters go on from there, also with another number of replicas


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

    A device tells waits a little late, so that a few of the last may be missing: their mean stands for them.
    """

    accum_step_time: float = 0.0
    accum_count: int = 0
    optim_step_time: float = 0.0
    optim_sync_time: float = 0.0
    optim_count: int = 0
    sync_count: int = 0

    def less(self, other: Counts | None) -> Counts:
        """These without those."""
        if other is None:
            return self
        return Counts(*(getattr(self, name) - getattr(other, name) for name in Counts.__dataclass_fields__))

    @property
    def sync_time(self) -> float | None:
        """Seconds that all synchronised steps waited; None where no wait was told."""
        return self.optim_sync_time / self.sync_count * self.optim_count if self.sync_count else None

    def times(self) -> tuple[float, float] | None:
        """(T_accum, T_optim) in seconds per step; None where they are not known.

        Without a wait that was told, a synchronised step says nothing of its compute: then only steps that accumulate do.
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
    """profile: counts by configuration. perf_params: the seven as last fitted (names in PERF). grad_sqr, grad_var: raw averages.

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
        """Columns for a fit: nodes, replicas, atomic batch sizes, T_accum and T_optim in seconds; keys without known times left out."""
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
    """The object in a file of that format, of that version at most. ValueError where it is something else."""
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
    """A file that appears under its name only when it is complete and on the disk."""
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


INTERVAL_S: Final = 30.0
"""Between fits."""
FIT_S: Final = 5.0
"""Hard limit of one."""
_MODEL_GROUPS: Final = ("tp", "pp", "cp")


class StepRecorder:
    """Counts steps into `state`. clock: seconds. on_commit: what else is to happen at a commit, with the key, before the step is closed."""

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter, interval_s: float = INTERVAL_S) -> None:
        self.state = MetricsState()
        self.supervisor: Supervisor | None = None
        self.micro_steps = 0
        self.on_commit: list[Callable[[Key, int, bool], None]] = []
        self._clock, self._interval = clock, interval_s
        self._given: tuple[int, int] | None = None
        self._found: tuple[int, int] | None = None
        self._began: float | None = None
        self._bsz = 0
        self._sync = 0.0
        self._told = False
        self._last = clock()
        self._base: dict[Key, Counts] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._said: set[str] = set()
        self._pid = os.getpid()
        self.global_batch_size: int | None = None

    # --- What is told ---

    def set_replicas(self, num_nodes: int, num_replicas: int) -> None:
        """Nodes and replicas, where the environment does not tell them. ValueError unless 1 <= num_nodes <= num_replicas."""
        if not 1 <= int(num_nodes) <= int(num_replicas):
            raise ValueError(f"needs 1 <= num_nodes <= num_replicas, not {num_nodes} and {num_replicas}")
        self._given = int(num_nodes), int(num_replicas)

    def set_batch_sizes(
        self,
        init_batch_size: int,
        max_batch_size: int | None = None,
        local_bsz_bounds: tuple[int, int] | None = None,
        gradient_accumulation: bool = False,
    ) -> None:
        """Samples of all replicas and micro-steps that the job was made for and that it allows; bounds of those of one micro-step.

        ValueError where they contradict each other.
        """
        if init_batch_size < 1 or (max_batch_size is not None and max_batch_size < init_batch_size):
            raise ValueError(f"init_batch_size {init_batch_size} must be at least 1 and at most max_batch_size {max_batch_size}")
        if local_bsz_bounds is not None and not 1 <= local_bsz_bounds[0] <= local_bsz_bounds[1]:
            raise ValueError(f"local_bsz_bounds {local_bsz_bounds} must rise, from at least 1")
        s = self.state
        s.init_batch_size, s.max_batch_size = int(init_batch_size), None if max_batch_size is None else int(max_batch_size)
        s.local_bsz_bounds = None if local_bsz_bounds is None else (int(local_bsz_bounds[0]), int(local_bsz_bounds[1]))
        s.gradient_accumulation = bool(gradient_accumulation)

    def set_grad_params(self, sqr: float, var: float, *, biased: bool = False) -> None:
        """Squared norm and variance of the gradient, as they are; below 0 counts as 0 where they are used."""
        s = self.state
        s.grad_sqr, s.grad_var, s.grad_biased = float(sqr), float(var), biased

    def replicas(self) -> tuple[int, int]:
        """(nodes, replicas): as they were set, else of the launcher's environment and the running process group."""
        if self._given is not None:
            return self._given
        if self._found is None:
            self._found = replicas_found()
        return self._found

    # --- Steps ---

    def start(self, atomic_bsz: int) -> None:
        """A micro-step of so many samples on this replica begins."""
        size = known(lambda: int(atomic_bsz)) or 0
        if size < 1:
            self._began = None
            return self.say("atomic_bsz", f"a step with an atomic batch size of {str(atomic_bsz)[:40]} is not counted")
        self._bsz, self._sync, self._told = size, 0.0, False
        self._began = self._clock()

    def sync(self, seconds: float) -> None:
        """This step waited so long for the reduction of gradients, once its backward pass was through."""
        found = known(lambda: float(seconds))
        if found is None or not 0 <= found < 1e9:
            return self.say("sync", f"a wait of {str(seconds)[:40]} s is not counted")
        self._sync += found
        self._told = True

    def commit(self, accumulation_step: bool = False) -> None:
        """The micro-step ends. accumulation_step: it neither synchronised gradients nor updated parameters."""
        now = self._clock()
        if self._began is None:
            return self.say("commit", "profile_step_commit without profile_step_start: this step is not counted")
        took, self._began = max(now - self._began, 0.0), None
        if os.getpid() != self._pid:
            return
        nodes, replicas = self.replicas()
        key = Key(nodes, replicas, self._bsz)
        with self._lock:
            counts = self.state.profile.setdefault(key, Counts())
            if accumulation_step:
                counts.accum_step_time += took
                counts.accum_count += 1
            else:
                counts.optim_step_time += took
                counts.optim_count += 1
                if self._told or replicas == 1:
                    if self._sync > took:
                        self.say("long", f"a wait for gradients of {self._sync:g} s in a step of {took:g} s: it counts as all of the step")
                    counts.optim_sync_time += min(self._sync, took)
                    counts.sync_count += 1
        self.micro_steps += 1
        for hook in self.on_commit:
            try:
                hook(key, self.micro_steps, accumulation_step)
            except Exception as error:
                self.on_commit = [h for h in self.on_commit if h is not hook]
                self.say("commit hook", f"gradient statistics end: {type(error).__name__}: {error}")
        if accumulation_step:
            return
        self.global_batch_size = replicas * self._bsz * self.micro_steps
        self.micro_steps = 0
        if now - self._last > self._interval and rank_of()[0] == 0:
            self._last = now
            self.report()

    def waited(self, key: Key, seconds: float) -> None:
        """A wait of an earlier, synchronised step of that key, which a device has told only now."""
        with self._lock:
            counts = self.state.profile.get(key)
            if counts is not None and counts.sync_count < counts.optim_count:
                counts.optim_sync_time += max(seconds, 0.0)
                counts.sync_count += 1

    # --- Fits ---

    def report(self) -> threading.Thread | None:
        """Fit, then tell the supervisor, on a thread of its own; None while the one before still runs."""
        if self._thread is not None and self._thread.is_alive():
            return None
        self._thread = threading.Thread(target=self._report, name="tb-sol-goodput", daemon=True)
        self._thread.start()
        return self._thread

    def _report(self) -> None:
        try:
            from tb_sol_plugin.capture.goodput.hints import Supervisor

            self.fit()
            (self.supervisor or Supervisor()).post(self.hints(), wait=True)
        except Exception as error:
            self.say("report", f"goodput was not fitted or reported: {type(error).__name__}: {error}")

    def fit(self) -> bool:
        """Fit the seven parameters to what was counted; False where there is nothing to fit to."""
        with self._lock:
            columns = replace(self.state, profile={k: replace(v) for k, v in self.state.profile.items()}).points()
        if not columns[0]:
            if self.state.profile and self.replicas()[1] > 1:
                self.say("nothing", "no step tells its compute time: call profile_sync_time, watch_gradients, or accumulate gradients")
            return False
        from tb_sol_plugin.cost.goodput.fit import fit

        self.state.perf_params = tuple(fit(*columns, limit_s=FIT_S).params)
        return True

    def goodput_fn(self) -> GoodputFunction | None:
        """Goodput at other sizes, by what is known now; None while parameters of steps, gradient statistics or M0 are missing."""
        s = self.state
        if s.perf_params is None or s.grad_sqr is None or s.grad_var is None or s.init_batch_size is None:
            return None
        from tb_sol_plugin.cost.goodput.model import GoodputFunction

        return GoodputFunction(s.perf_params, (s.grad_sqr, s.grad_var), s.init_batch_size)

    def hints(self) -> dict[str, object]:
        """What a scheduler asks for, see `goodput_hints`."""
        from tb_sol_plugin.capture.goodput.hints import hints_of

        with self._lock:
            return hints_of(self.state, self.global_batch_size)

    # --- What outlives the process ---

    def loaded(self) -> None:
        """The state was taken from a file: what it has counted is not of this process."""
        with self._lock:
            self._base = {k: replace(v) for k, v in self.state.profile.items()}

    def record(self, *, last: bool = False) -> dict[str, object] | None:
        """The record `profile` of a capture file: what this process counted. last: later files begin anew. None while there is nothing."""
        s = self.state
        with self._lock:
            own = {key: counts.less(self._base.get(key)) for key, counts in sorted(s.profile.items())}
            if last:
                self._base = {k: replace(v) for k, v in s.profile.items()}
        rows = [_row(key, c) for key, c in own.items() if c.accum_count or c.optim_count]
        if not rows:
            return None
        return {
            "kind": "profile",
            "wall_ns": time.time_ns(),
            "rows": rows,
            "grad_sqr": s.grad_sqr,
            "grad_var": s.grad_var,
            "grad_biased": s.grad_biased,
            "init_batch_size": s.init_batch_size,
            "max_batch_size": s.max_batch_size,
            "local_bsz_bounds": None if s.local_bsz_bounds is None else list(s.local_bsz_bounds),
            "gradient_accumulation": s.gradient_accumulation,
        }

    def say(self, what: str, text: str) -> None:
        """Log a warning of one sort once."""
        if what not in self._said:
            self._said.add(what)
            log.warning("goodput: %s", text)


def _row(key: Key, counts: Counts) -> list[int | None]:
    sync = counts.sync_time
    accum_ns, optim_ns = round(counts.accum_step_time * 1e9), round(counts.optim_step_time * 1e9)
    row = [*key, counts.accum_count, accum_ns, counts.optim_count, optim_ns, None if sync is None else round(sync * 1e9)]
    assert len(row) == len(PROFILE_ROW)
    return row


def replicas_found() -> tuple[int, int]:
    """(nodes, replicas) of the environment: ADAPTDL_NUM_NODES and ADAPTDL_NUM_REPLICAS, else of torchrun or Slurm; replicas are ranks
    over tensor × pipeline × context parallel, where Megatron tells these."""
    world = rank_of()[1]
    nodes = _environment("ADAPTDL_NUM_NODES", "GROUP_WORLD_SIZE", "SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    local = _environment("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
    replicas = _environment("ADAPTDL_NUM_REPLICAS")
    if replicas is None:
        groups = known(lambda: groups_of([])) or {}
        model = 1
        for name in _MODEL_GROUPS:
            model *= groups.get(name, [0, 1])[1]
        replicas = max(world // model, 1)
    if nodes is None:
        nodes = -(-world // local) if local else 1
    return max(min(nodes, replicas), 1), replicas


def _environment(*names: str) -> int | None:
    for name in names:
        found = known(lambda name=name: int(os.environ[name]))  # type: ignore[misc]
        if found is not None and found >= 1:
            return found
    return None


# --- The process's recorder ---


class _Process:
    def __init__(self) -> None:
        self.recorder = StepRecorder()


_process: Final = _Process()


def recorder() -> StepRecorder:
    """The recorder of this process."""
    return _process.recorder


def use_recorder(new: StepRecorder) -> StepRecorder:
    """Count into another recorder from here on; the one before is returned."""
    old, _process.recorder = _process.recorder, new
    return old


def profile_step_start(atomic_bsz: int) -> None:
    """A micro-step of so many samples on this replica begins: notes the time, its wait for gradients is 0."""
    _process.recorder.start(atomic_bsz)


def profile_sync_time(sync_time: float) -> None:
    """Adds seconds that this step waited for the reduction of gradients once its backward pass was through, not all of it."""
    _process.recorder.sync(sync_time)


def profile_step_commit(accumulation_step: bool = False) -> None:
    """Closes the micro-step. accumulation_step: it neither synchronised gradients nor updated parameters."""
    _process.recorder.commit(accumulation_step)


def get_goodput_fn() -> GoodputFunction | None:
    """Goodput at other sizes, by what is known now; None while parameters of steps, gradient statistics or M0 are missing."""
    return _process.recorder.goodput_fn()


def set_batch_sizes(
    init_batch_size: int,
    max_batch_size: int | None = None,
    local_bsz_bounds: tuple[int, int] | None = None,
    gradient_accumulation: bool = False,
) -> None:
    """See `StepRecorder.set_batch_sizes`."""
    _process.recorder.set_batch_sizes(init_batch_size, max_batch_size, local_bsz_bounds, gradient_accumulation)


def set_replicas(num_nodes: int, num_replicas: int) -> None:
    """See `StepRecorder.set_replicas`."""
    _process.recorder.set_replicas(num_nodes, num_replicas)


def set_grad_params(sqr: float, var: float, *, biased: bool = False) -> None:
    """See `StepRecorder.set_grad_params`."""
    _process.recorder.set_grad_params(sqr, var, biased=biased)


def save_metrics(path: str | os.PathLike[str]) -> None:
    """Write the state of this process, on rank 0 (other ranks do nothing): complete under its name, or as it was before. OSError."""
    if rank_of()[0] == 0:
        _process.recorder.state.save_file(path)


def load_metrics(path: str | os.PathLike[str]) -> bool:
    """Take up the state of an earlier start, on every rank, before the first step; False where there is none. ValueError: no such state."""
    found = _process.recorder.state.load_file(path)
    if found:
        _process.recorder.loaded()
    return found


def profile_record(*, last: bool = False) -> dict[str, object] | None:
    """What capture files ask for, see `StepRecorder.record`."""
    return _process.recorder.record(last=last)
