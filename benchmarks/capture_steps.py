"""The measurements of `benchmarks.capture`: training steps, timed one by one, untracked and tracked."""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import platform
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tb_sol_plugin as sol
from tb_sol_plugin.format import SUFFIX
from tests.support.torch_models import transformer

Figures = dict[str, Any]
"""{"machine", "torch", "import_ms", "models": {name: {"calls", "ways": {way: {...}}, ...}}}; times in s unless a name says otherwise."""

SIZES = {
    "small": {"layers": 8, "width": 32, "heads": 4, "vocab": 128, "batch": 2, "length": 16, "pairs": 40},
    "medium": {"layers": 8, "width": 128, "heads": 4, "vocab": 1000, "batch": 2, "length": 64, "pairs": 12},
    "large": {"layers": 6, "width": 256, "heads": 4, "vocab": 2000, "batch": 2, "length": 128, "pairs": 5},
}
"""Decoders, and how many pairs of steps a round is. The step of the small one is nothing but launches; the kernels of the medium one fill
the first cache, those of the large one the second."""
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


class Pass(TorchDispatchMode):  # type: ignore[misc]
    """Passes calls on by the shortest way there is: what a dispatch mode costs that does nothing."""

    def _pass(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function._op(*args, **kwargs) if kwargs else function._op(*args)


try:  # torch wraps the method of a class body so that its compiler stays out, which costs a microsecond; see capture/work/ledger.py
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:
    Pass.__torch_dispatch__ = torch._disable_dynamo(Pass._pass, recursive=True)
else:
    set_code_exec_strategy(Pass._pass.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    Pass.__torch_dispatch__ = Pass._pass


class Meeting(TorchDispatchMode):  # type: ignore[misc]
    """Times the additions of gradients that meet. Torch does many of them in place, but none under a mode, whatever mode it is.

    longer: seconds of each beyond the same addition in place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.longer: list[float] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        meets = (
            function is torch.ops.aten.add.Tensor
            and torch._C._current_graph_task_id() >= 0
            and len(args) == 2
            and args[0].shape == args[1].shape
        )
        if not meets:
            return function(*args, **(kwargs or {}))
        room = args[0].clone()
        if len(self.longer) % 2:  # who comes second finds the caches warm
            inside = clocked(lambda: room.add_(args[1]))
        began = time.perf_counter()
        result = function(*args, **(kwargs or {}))
        outside = time.perf_counter() - began
        if not len(self.longer) % 2:
            inside = clocked(lambda: room.add_(args[1]))
        self.longer.append(outside - inside)
        return result


def meeting(job: Job, steps: int = 10) -> Figures:
    """Additions of gradients in a step, and by how many µs they last longer than if all were in place."""
    with Meeting() as mode:
        for _ in range(steps):
            job.step(no_phase)
    return {"added": len(mode.longer) // steps, "added_us": sum(mode.longer) / steps * 1e6}


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
    measured: dict[str, Pairs] = {way: Pairs() for way in WAYS}
    for n in range(rounds):
        for way, run in WAYS.items():
            gc.collect()
            run(job, size["pairs"], folder / way / str(n), measured[way])
    base = statistics.median([t for pairs in measured.values() for t in pairs.plain])
    ways: Figures = {"off": {"step_s": base}}
    for way, pairs in measured.items():
        over = more(pairs.plain, pairs.tracked)
        ways[way] = {"step_s": base * (1 + over), "over": over, "us_per_call": over * base / count.calls * 1e6}
        if pairs.ends:
            ways[way]["end_s"] = statistics.median(pairs.ends)
        if pairs.recorded:
            over = more(pairs.plain, pairs.recorded)
            ways[f"{way}, as recorded"] = {"step_s": base * (1 + over), "over": over}
    parameters = sum(p.numel() for p in job.model.parameters())
    return {"calls": count.calls, "parameters": parameters, "ways": ways, **meeting(job), **sizes(folder / "sampled" / "0")}


def more(plain: list[float], tracked: list[float]) -> float:
    """The median of what a tracked step lasts longer than the untracked one next to it, as a share of an untracked step."""
    return statistics.median(b - a for a, b in zip(plain, tracked, strict=True)) / statistics.median(plain)


@dataclass
class Pairs:
    """Seconds of untracked steps and of a tracked one next to each; of `tracker.step()` after it; of the same on the recorder's clock."""

    plain: list[float] = field(default_factory=list)
    tracked: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    recorded: list[float] = field(default_factory=list)


def always_on(scalars: bool) -> Way:
    """No step is sampled. scalars: whether TensorBoard gets them in each step. The end of the iteration is part of the step."""

    def run(job: Job, count: int, logdir: Path, into: Pairs) -> None:
        options = {"console": False, "wandb": False, "tensorboard": scalars, "every_n_steps": NEVER}
        with sol.capture(str(logdir), model=job.model, **options) as tracker:
            for _ in range(3):
                job.step(tracker.phase)
                tracker.step()
            for _ in range(3 * count):  # one or two percent are looked for
                into.plain.append(clocked(lambda: job.step(no_phase)))
                tracker.start_step()
                into.tracked.append(clocked(lambda: (job.step(tracker.phase), tracker.step())))

    return run


def sampled(mode: str) -> Way:
    """Every second step is sampled, the others are left alone."""

    def run(job: Job, count: int, logdir: Path, into: Pairs) -> None:
        options = {"console": False, "wandb": False, "every_n_steps": 2, "report_interval": NEVER}
        with sol.capture(str(logdir), model=job.model, mode=mode, **options) as tracker:
            for _ in range(3):
                job.step(tracker.phase)
                tracker.step()
            for _ in range(count):
                assert not tracker.sampled
                into.plain.append(clocked(lambda: job.step(no_phase)))
                tracker.step()
                assert tracker.sampled
                into.tracked.append(clocked(lambda: job.step(tracker.phase)))
                into.ends.append(clocked(tracker.step))
        into.recorded += [d for n, d in enumerate(durations(logdir)) if n > 2 and n % 2 == 0]

    return run


def under(mode: Callable[[Job], AbstractContextManager[object]]) -> Way:
    """Steps under something else, which is entered and left for each."""

    def run(job: Job, count: int, logdir: Path, into: Pairs) -> None:
        def step() -> None:
            with mode(job):
                job.step(no_phase)

        step()
        for _ in range(min(count, 8)):
            into.plain.append(clocked(lambda: job.step(no_phase)))
            into.tracked.append(clocked(step))

    return run


def flop_counter(job: Job) -> AbstractContextManager[object]:
    from torch.utils.flop_counter import FlopCounterMode

    return FlopCounterMode(display=False)


def profiler(job: Job) -> AbstractContextManager[object]:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if job.device == "cuda" else [])]
    return profile(activities=activities, record_shapes=True, with_flops=True)


Way = Callable[[Job, int, Path, Pairs], None]
WAYS: dict[str, Way] = {
    "always on": always_on(False), "scalars": always_on(True), "sampled": sampled("dispatch"), "hooks": sampled("hooks"),
    "pass": under(lambda job: Pass()), "empty": under(lambda job: Count()), "counter": under(flop_counter), "profiler": under(profiler),
}  # fmt: skip


def clocked(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def lines(logdir: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(bytes, record) of a capture file; the bytes of a packed record count for the first of those that it holds."""
    (path,) = logdir.glob(f"*{SUFFIX}")
    for line in path.read_bytes().splitlines(keepends=True):
        size, record = len(line), json.loads(line)
        packed = record["kind"] == "packed"
        for one in map(json.loads, zlib.decompress(base64.b64decode(record["data"])).splitlines()) if packed else (record,):
            yield size, one
            size = 0


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
        pending += size  # a definition comes before the iteration that uses it first
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
