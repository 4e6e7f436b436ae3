"""The measurements of `benchmarks.capture`: training steps, timed one by one, untracked and tracked."""

from __future__ import annotations

import contextlib
import gc
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tb_sol_plugin as sol
from tb_sol_plugin.format import SUFFIX
from tests.support.torch_models import transformer

Figures = dict[str, Any]
"""{"machine", "torch", "import_ms", "models": {name: {"calls", "ways": {way: {...}}, ...}}}; times in s unless a name says otherwise."""

WAYS = ("off", "sampled", "hooks", "counter", "profiler")
SIZES = {
    "small": {"layers": 8, "width": 32, "heads": 4, "vocab": 128, "batch": 2, "length": 16, "steps": 30},
    "medium": {"layers": 6, "width": 256, "heads": 4, "vocab": 2000, "batch": 2, "length": 128, "steps": 5},
}
NEVER = 1_000_000


@dataclass
class Job:
    """A model in training. `step(phase)` runs one step with five phases; the device has finished when it returns."""

    model: Any
    optimizer: Any
    tokens: Any
    device: str

    def step(self, phase: Callable[[str], AbstractContextManager[None]]) -> None:
        with phase("train/forward"):
            logits = self.model(self.tokens)
        with phase("train/loss"):
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.tokens.flatten())
        with phase("train/backward"):
            loss.backward()
        with phase("train/clip"):
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        with phase("train/optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        if self.device == "cuda":
            torch.cuda.synchronize()


def no_phase(name: str) -> AbstractContextManager[None]:
    return nullcontext()


def job(size: dict[str, int], device: str) -> Job:
    """One of SIZES."""
    model = transformer(
        layers=size["layers"], width=size["width"], heads=size["heads"], kv_heads=size["heads"], hidden=4 * size["width"],
        vocab=size["vocab"], gated=False, causal=True, fused=True,
    ).to(device)  # fmt: skip
    tokens = torch.randint(0, size["vocab"], (size["batch"], size["length"]), device=device)
    return Job(model, torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9), tokens, device)


class Count(TorchDispatchMode):  # type: ignore[misc]
    """Counts ATen calls, views too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return function(*args, **(kwargs or {}))


def measure(folder: Path, *, rounds: int, device: str) -> Figures:
    """All figures, measured in this process on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models = {name: of_model(job(size, device), size, folder / name, rounds) for name, size in SIZES.items()}
    machine = torch.cuda.get_device_name() if device == "cuda" else processor()
    return {
        "machine": machine, "torch": torch.__version__, "python": platform.python_version(), "rounds": rounds,
        "import_ms": import_ms(), "models": models,
    }  # fmt: skip


def of_model(job: Job, size: dict[str, int], folder: Path, rounds: int) -> Figures:
    for _ in range(3):
        job.step(no_phase)
    with Count() as count:
        job.step(no_phase)
    steps = size["steps"]
    blocks: dict[str, list[float]] = {way: [] for way in WAYS}
    ends: dict[str, list[float]] = {}
    recorded: list[float] = []
    for n in range(rounds):
        for way in WAYS:
            gc.collect()
            logdir = folder / f"{way}{n}"
            bodies, after = RUNS[way](job, steps, logdir)
            blocks[way].append(statistics.median(bodies))
            if after:
                ends.setdefault(way, []).append(statistics.median(after))
            if way == "sampled":
                recorded.append(statistics.median(durations(logdir)[2:]))
    gc.collect()
    on = {title: always_on(job, rounds * steps * 2, folder / title, scalars) for title, scalars in (("always on", False), ("scalars", True))}
    base = statistics.median(blocks["off"])
    calls = count.calls
    ways: Figures = {}
    for way in WAYS:
        ratio = statistics.median(block / off for block, off in zip(blocks[way], blocks["off"], strict=True))
        ways[way] = {"step_s": base * ratio, "over": ratio - 1, "us_per_call": (ratio - 1) * base / calls * 1e6}
        if way in ends:
            ways[way]["end_s"] = statistics.median(ends[way])
    for title, (plain, tracked_) in on.items():
        over = median_over(plain, tracked_)
        ways[title] = {"step_s": base * (1 + over), "over": over}
    ratio = statistics.median(r / off for r, off in zip(recorded, blocks["off"], strict=True))
    ways["sampled, as recorded"] = {"step_s": base * ratio, "over": ratio - 1}
    return {"calls": calls, "parameters": sum(p.numel() for p in job.model.parameters()), "ways": ways, **sizes(folder / "sampled0")}


def median_over(plain: list[float], on: list[float]) -> float:
    """The median of what a tracked step lasts longer than the untracked one before it, as a share of an untracked step."""
    return statistics.median(b - a for a, b in zip(plain, on, strict=True)) / statistics.median(plain)


def always_on(job: Job, pairs: int, logdir: Path, scalars: bool) -> tuple[list[float], list[float]]:
    """Seconds of untracked steps and of steps with phases and step times, in turns; no step among them is sampled.

    scalars: whether TensorBoard gets them in each step.
    """
    plain, on = [], []
    options = {"console": False, "wandb": False, "tensorboard": scalars, "every_n_steps": NEVER}
    with sol.capture(str(logdir), model=job.model, **options) as tracker:
        for _ in range(3):
            job.step(tracker.phase)
            tracker.step()
        for _ in range(pairs):
            began = time.perf_counter()
            job.step(no_phase)
            plain.append(time.perf_counter() - began)
            tracker.start_step()
            began = time.perf_counter()
            job.step(tracker.phase)
            tracker.step()
            on.append(time.perf_counter() - began)
    return plain, on


def untracked(job: Job, steps: int, logdir: Path) -> tuple[list[float], list[float]]:
    return [clocked(lambda: job.step(no_phase)) for _ in range(steps)], []


def tracked(mode: str) -> Callable[[Job, int, Path], tuple[list[float], list[float]]]:
    """(seconds of the steps themselves, seconds of `tracker.step()` after each), every step sampled; the first two are left out."""

    def run(job: Job, steps: int, logdir: Path) -> tuple[list[float], list[float]]:
        bodies, ends = [], []
        with sol.capture(
            str(logdir), model=job.model, every_n_steps=1, mode=mode, console=False, wandb=False, report_interval=NEVER
        ) as tracker:
            for _ in range(steps + 2):
                bodies.append(clocked(lambda: job.step(tracker.phase)))
                ends.append(clocked(tracker.step))
        return bodies[2:], ends[2:]

    return run


def counted(job: Job, steps: int, logdir: Path) -> tuple[list[float], list[float]]:
    """Steps under FlopCounterMode."""
    from torch.utils.flop_counter import FlopCounterMode

    def step() -> None:
        with FlopCounterMode(display=False):
            job.step(no_phase)

    return [clocked(step) for _ in range(min(steps, 8))], []


def profiled(job: Job, steps: int, logdir: Path) -> tuple[list[float], list[float]]:
    """Steps under torch.profiler with shapes, started and stopped for each."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if job.device == "cuda" else [])]

    def step() -> None:
        with profile(activities=activities, record_shapes=True, with_flops=True):
            job.step(no_phase)

    return [clocked(step) for _ in range(min(steps, 5) + 1)][1:], []


RUNS = {"off": untracked, "sampled": tracked("dispatch"), "hooks": tracked("hooks"), "counter": counted, "profiler": profiled}


def clocked(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def lines(logdir: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(bytes, record) of a capture file."""
    (path,) = logdir.glob(f"*{SUFFIX}")
    for line in path.read_bytes().splitlines(keepends=True):
        yield len(line), json.loads(line)


def durations(logdir: Path) -> list[float]:
    """Seconds of each iteration, as recorded."""
    return [record["duration_ns"] / 1e9 for _, record in lines(logdir) if record["kind"] == "step"]


def sizes(logdir: Path) -> dict[str, float]:
    """Bytes per distinct signature: of the first sampled step, which defines them, and of a later one."""
    steps: dict[int, int] = {}
    signatures: set[int] = set()
    pending = 0
    for size, record in lines(logdir):
        if record["kind"] in ("header", "note", "close"):
            continue
        pending += size  # a definition stands before the iteration that uses it first
        if "iteration" in record:
            steps[record["iteration"]] = steps.get(record["iteration"], 0) + pending
            pending = 0
        if record["kind"] == "ledger":
            signatures = {row[0] for row in record["rows"]}
    return {"signatures": len(signatures), "bytes_first": steps[0] / len(signatures), "bytes_later": steps[max(steps)] / len(signatures)}


def import_ms() -> float:
    """`import tb_sol_plugin.capture` in a fresh interpreter, without torch; the median of nine."""
    text = (
        "import sys, time; began = time.perf_counter(); import tb_sol_plugin.capture; took = time.perf_counter() - began; "
        "assert 'torch' not in sys.modules; print(took * 1e3)"
    )
    return statistics.median(float(subprocess.check_output([sys.executable, "-c", text])) for _ in range(9))


def processor() -> str:
    """The name of the CPU."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
