"""Counts the steps of training by nodes, replicas and batch size; every 30 s rank 0 fits the model of goodput to them.

    set_batch_sizes(init_batch_size=128, max_batch_size=4096, local_bsz_bounds=(16, 256), gradient_accumulation=True)
    for batch in loader:
        profile_step_start(atomic_bsz=len(batch))
        ...                                              # forward, backward
        profile_sync_time(seconds)                       # the wait for gradients; `watch_gradients` measures it
        profile_step_commit(accumulation_step=False)     # True for a micro-step that only accumulates
    goodput = get_goodput_fn()

The fit, and the report to a supervisor where there is one, run on a thread of their own. None of these functions raises into training
or waits for anything: what fails is logged once.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from tb_sol_plugin.capture.goodput.hints import PATH, TIMEOUT_S, Supervisor, hints_of
from tb_sol_plugin.capture.goodput.state import Counts, Key, MetricsState
from tb_sol_plugin.capture.loop.guard import log
from tb_sol_plugin.capture.loop.header import groups_of, rank_of, value_or_none
from tb_sol_plugin.format import PROFILE_ROW

if TYPE_CHECKING:
    from tb_sol_plugin.cost.goodput.model import GoodputFunction

INTERVAL_S: Final = 30.0
"""Between fits."""
_MODEL_GROUPS: Final = ("tp", "pp", "cp")


class StepRecorder:
    """Counts steps into `state`. clock: seconds. on_commit: what else is to happen at a commit, with the key, before the step is closed.

    took: seconds of the last step.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter, interval_s: float = INTERVAL_S) -> None:
        self.state = MetricsState()
        self.supervisor: Supervisor | None = None
        self.micro_steps = 0
        self.took = 0.0
        self.on_commit: list[Callable[[Key, int, bool], None]] = []
        self._clock, self._interval = clock, interval_s
        self._given: tuple[int, int] | None = None
        self._found: tuple[int, int] | None = None
        self._began: float | None = None
        self._bsz = 0
        self._sync = 0.0
        self._sync_measured = False
        self._last = clock()
        self._base: dict[Key, Counts] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._warned_of: set[str] = set()
        self._pid = os.getpid()
        self.global_batch_size: int | None = None

    # --- What the script sets ---

    def set_replicas(self, num_nodes: int, num_replicas: int) -> None:
        """Set nodes and replicas, where the environment does not have them. ValueError unless 1 <= num_nodes <= num_replicas."""
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
        """Set the samples of all replicas and micro-steps that the job was made for and that it allows, with bounds of one micro-step.

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
        """Set squared norm and variance of the gradient, as they are; below 0 counts as 0 where they are used."""
        s = self.state
        s.grad_sqr, s.grad_var, s.grad_biased = float(sqr), float(var), biased

    def replicas(self) -> tuple[int, int]:
        """Return (nodes, replicas): as they were set, else of the launcher's environment and the running process group."""
        if self._given is not None:
            return self._given
        if self._found is None:
            self._found = replicas_found()
        return self._found

    # --- Steps ---

    def start(self, atomic_bsz: int) -> None:
        """Begin a micro-step of so many samples on this replica."""
        size = value_or_none(lambda: int(atomic_bsz)) or 0
        if size < 1:
            self._began = None
            return self.warn_once("atomic_bsz", f"a step with an atomic batch size of {str(atomic_bsz)[:40]} is not counted")
        self._bsz, self._sync, self._sync_measured = size, 0.0, False
        self._began = self._clock()

    def sync(self, seconds: float) -> None:
        """Add the seconds that this step waited for the reduction of gradients once its backward pass was through."""
        found = value_or_none(lambda: float(seconds))
        if found is None or not 0 <= found < 1e9:
            return self.warn_once("sync", f"a wait of {str(seconds)[:40]} s is not counted")
        self._sync += found
        self._sync_measured = True

    def commit(self, accumulation_step: bool = False) -> None:
        """End the micro-step. accumulation_step: it neither synchronized gradients nor updated parameters."""
        now = self._clock()
        if self._began is None:
            return self.warn_once("commit", "profile_step_commit without profile_step_start: this step is not counted")
        took, self._began = max(now - self._began, 0.0), None
        self.took = took
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
                if self._sync_measured or replicas == 1:
                    if self._sync > took:
                        text = f"a wait for gradients of {self._sync:g} s in a step of {took:g} s: it counts as all of the step"
                        self.warn_once("long", text)
                    counts.synced(took, self._sync)
        self.micro_steps += 1
        for hook in self.on_commit:
            try:
                hook(key, self.micro_steps, accumulation_step)
            except Exception as error:
                self.on_commit = [h for h in self.on_commit if h is not hook]
                self.warn_once("commit hook", f"gradient statistics end: {type(error).__name__}: {error}")
        if accumulation_step:
            return
        self.global_batch_size = replicas * self._bsz * self.micro_steps
        self.micro_steps = 0
        if now - self._last > self._interval and rank_of()[0] == 0:
            self._last = now
            self.report()

    def waited(self, key: Key, seconds: float, took: float) -> None:
        """Add the wait of an earlier, synchronized step of that key that took so long, which a device has reported only now."""
        with self._lock:
            counts = self.state.profile.get(key)
            if counts is not None and counts.sync_count < counts.optim_count:
                counts.synced(took, seconds)

    # --- Fits ---

    def report(self) -> threading.Thread | None:
        """Fit, then report to the supervisor, on a thread of its own; None while the one before still runs."""
        if self._thread is not None and self._thread.is_alive():
            return None
        self._thread = threading.Thread(target=self._report, name="tb-sol-goodput", daemon=True)
        self._thread.start()
        return self._thread

    def _report(self) -> None:
        try:
            self.fit()
            (self.supervisor or Supervisor()).post(self.hints(), wait=True)
        except Exception as error:
            self.warn_once("report", f"goodput was not fitted or reported: {type(error).__name__}: {error}")

    def fit(self) -> bool:
        """Fit the seven parameters to what was counted; False where there is nothing to fit to."""
        with self._lock:
            columns = replace(self.state, profile={k: replace(v) for k, v in self.state.profile.items()}).points()
        if not columns[0]:
            if self.state.profile and self.replicas()[1] > 1:
                text = "no step has a known compute time: call profile_sync_time, watch_gradients, or accumulate gradients"
                self.warn_once("nothing", text)
            return False
        from tb_sol_plugin.cost.goodput.fit import fit

        self.state.perf_params = tuple(fit(*columns).params)
        return True

    def goodput_fn(self, *, fit: bool = False) -> GoodputFunction | None:
        """Return goodput at other sizes, by what is known now; None while parameters of steps, gradient statistics or M0 are missing.

        fit: to what was counted until now, which takes up to 5 s.
        """
        s = self.state
        if fit:
            self.fit()
        if s.perf_params is None or s.grad_sqr is None or s.grad_var is None or s.init_batch_size is None:
            return None
        from tb_sol_plugin.cost.goodput.model import GoodputFunction

        return GoodputFunction(s.perf_params, (s.grad_sqr, s.grad_var), s.init_batch_size)

    def hints(self) -> dict[str, object]:
        """Return the hints for a scheduler, see `hints.py`."""
        with self._lock:
            return hints_of(self.state, self.global_batch_size)

    # --- What outlives the process ---

    def loaded(self) -> None:
        """Take what the state has counted, which came from a file, for the work of earlier processes."""
        with self._lock:
            self._base = {k: replace(v) for k, v in self.state.profile.items()}

    def largest_batch(self) -> int:
        """Return the most samples of a micro-step that this process counted; 0 for none."""
        with self._lock:
            own = {key: counts.less(self._base.get(key)) for key, counts in self.state.profile.items()}
        return max((key.atomic_bsz for key, c in own.items() if c.accum_count or c.optim_count), default=0)

    def record(self, *, last: bool = False) -> dict[str, object] | None:
        """Return the record `profile` of a capture file: what this process counted.

        last: later files begin anew. None while there is nothing.
        """
        s = self.state
        with self._lock:
            own = {key: counts.less(self._base.get(key)) for key, counts in sorted(s.profile.items())}
            if last:
                self._base = {k: replace(v) for k, v in s.profile.items()}
        rows = [row for key, c in own.items() for row in _rows(key, c)]
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

    def warn_once(self, what: str, text: str) -> None:
        """Log a warning of one kind once."""
        if what not in self._warned_of:
            self._warned_of.add(what)
            log.warning("goodput: %s", text)


def _rows(key: Key, counts: Counts) -> list[list[int | None]]:
    """Return the rows of one configuration: where only some of its steps have a measured wait, these and the others apart."""
    accum = counts.accum_count, round(counts.accum_step_time * 1e9)
    unknown = counts.optim_count - counts.sync_count
    rows: list[list[int | None]] = []
    if counts.sync_count:
        rows.append([*key, *accum, counts.sync_count, round(counts.sync_step_time * 1e9), round(counts.optim_sync_time * 1e9)])
        accum = 0, 0
    rest = round(max(counts.optim_step_time - counts.sync_step_time, 0.0) * 1e9)
    if accum[0] or (unknown > 0 and rest):
        rows.append([*key, *accum, unknown, rest, None])
    assert all(len(row) == len(PROFILE_ROW) for row in rows)
    return rows


def replicas_found() -> tuple[int, int]:
    """Read (nodes, replicas) off the environment: of ADAPTDL_NUM_NODES and _REPLICAS, else of torchrun or Slurm; replicas are ranks
    over tensor × pipeline × context parallel, where Megatron has these."""
    world = rank_of()[1]
    nodes = _environment("ADAPTDL_NUM_NODES", "GROUP_WORLD_SIZE", "SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    local = _environment("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
    replicas = _environment("ADAPTDL_NUM_REPLICAS")
    if replicas is None:
        groups = value_or_none(lambda: groups_of([])) or {}
        model = 1
        for name in _MODEL_GROUPS:
            model *= groups.get(name, [0, 1])[1]
        replicas = max(world // model, 1)
    if nodes is None:
        nodes = -(-world // local) if local else 1
    return max(min(nodes, replicas), 1), replicas


def _environment(*names: str) -> int | None:
    for name in names:
        found = value_or_none(lambda name=name: int(os.environ[name]))  # type: ignore[misc]
        if found is not None and found >= 1:
            return found
    return None


# --- The process's recorder ---


class _Process:
    def __init__(self) -> None:
        self.recorder = StepRecorder()


_process: Final = _Process()


def recorder() -> StepRecorder:
    """Return the recorder of this process."""
    return _process.recorder


def use_recorder(new: StepRecorder) -> StepRecorder:
    """Count into another recorder from here on; the one before is returned."""
    old, _process.recorder = _process.recorder, new
    return old


def profile_step_start(atomic_bsz: int) -> None:
    """Begin a micro-step of so many samples on this replica: its time starts, its wait for gradients is 0."""
    _process.recorder.start(atomic_bsz)


def profile_sync_time(sync_time: float) -> None:
    """Add the seconds that this step waited for the reduction of gradients once its backward pass was through, not all of it."""
    _process.recorder.sync(sync_time)


def profile_step_commit(accumulation_step: bool = False) -> None:
    """Close the micro-step. accumulation_step: it neither synchronized gradients nor updated parameters."""
    _process.recorder.commit(accumulation_step)


def get_goodput_fn(fit: bool = False) -> GoodputFunction | None:
    """Return goodput at other sizes, by what is known now; None while parameters of steps, gradient statistics or M0 are missing.

    fit: to what was counted until now, which takes up to 5 s; else by the last fit, which rank 0 makes every 30 s.
    """
    return _process.recorder.goodput_fn(fit=fit)


def set_batch_sizes(
    init_batch_size: int,
    max_batch_size: int | None = None,
    local_bsz_bounds: tuple[int, int] | None = None,
    gradient_accumulation: bool = False,
) -> None:
    """Set the batch sizes of this process, see `StepRecorder.set_batch_sizes`."""
    _process.recorder.set_batch_sizes(init_batch_size, max_batch_size, local_bsz_bounds, gradient_accumulation)


def set_replicas(num_nodes: int, num_replicas: int) -> None:
    """Set the replicas of this process, see `StepRecorder.set_replicas`."""
    _process.recorder.set_replicas(num_nodes, num_replicas)


def set_grad_params(sqr: float, var: float, *, biased: bool = False) -> None:
    """Set the gradient statistics of this process, see `StepRecorder.set_grad_params`."""
    _process.recorder.set_grad_params(sqr, var, biased=biased)


def save_metrics(path: str | os.PathLike[str]) -> None:
    """Write the state of this process, on rank 0 (other ranks do nothing): complete under its name, or as it was before. OSError."""
    if rank_of()[0] == 0:
        _process.recorder.state.save_file(path)


def load_metrics(path: str | os.PathLike[str]) -> bool | None:
    """Take up the state of an earlier start, on every rank, before the first step.

    False where there is none; None, with a warning, where the file is cut or no saved state: training goes on without it.
    """
    try:
        found = _process.recorder.state.load_file(path)
    except (ValueError, OSError) as error:
        warnings.warn(f"no counters of an earlier start were taken up from {os.fspath(path)}: {error}", stacklevel=2)
        return None
    if found:
        _process.recorder.loaded()
    return found


def profile_record(*, last: bool = False) -> dict[str, object] | None:
    """Return the record for the capture file, see `StepRecorder.record`."""
    return _process.recorder.record(last=last)


def set_supervisor(
    url: str | None = None,
    job_id: str | None = None,
    *,
    path: str = PATH,
    method: Literal["POST", "PUT"] = "POST",
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Report to a supervisor after each fit, on rank 0; what is None comes from the environment. Without a URL or a job nothing is sent."""
    recorder().supervisor = Supervisor(url, job_id, path=path, method=method, headers=dict(headers or {}), timeout_s=timeout_s)
