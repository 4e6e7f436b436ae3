"""Measures whether comparisons name what was changed between recordings of a small model on the CPU.

    python -m benchmarks.recorded_pairs --trials 20           # four changes in turn, each recorded beside the unchanged job

Each trial records the job and the changed one in turn, in this process, on one thread. A change counts as named where the first cause is of
its kind. An alarm is a regression between two recordings of the unchanged job at a limit of 3 %. Needs torch; a quiet machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

from benchmarks.comparisons import exact
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.compare.causes import compared
from tb_sol_plugin.metrics.compare.differences import Side
from tb_sol_plugin.metrics.compare.gate import check, wanted_of
from tb_sol_plugin.metrics.compare.on_path import samples_with_path
from tb_sol_plugin.metrics.compare.samples import Samples
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.units import how_many

STEPS: Final = 14


@dataclass(frozen=True)
class Job:
    """A small training job. width: of the middle layer. loading_ms: of each batch."""

    width: int = 512
    batch: int = 128
    dtype: torch.dtype = torch.float32
    loading_ms: float = 1.0


CHANGES: Final = {
    "one layer wider": (replace(Job(), width=1_536), ("more_work",)),
    "batch doubled": (replace(Job(), batch=256), ("more_work",)),
    "dataloader slowed": (replace(Job(), loading_ms=15.0), ("dataloader",)),
    "one dtype changed": (replace(Job(), dtype=torch.float64), ("slower_same_kernel", "more_work")),
}


class Rows(Dataset[Tensor]):
    """Batches that take a while to load."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __len__(self) -> int:
        return STEPS + 2

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(self.job.loading_ms / 1e3)
        return torch.ones(self.job.batch, 512, dtype=self.job.dtype) * index


def recorded(job: Job, folder: Path) -> Samples:
    """Returns the samples of a recording of a job."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, job.width), nn.GELU(), nn.Linear(job.width, 512), nn.GELU(), nn.Linear(512, 512)).to(job.dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    file = folder / "worker0.1700000000000000000.pt.trace.json"
    with profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=2, active=STEPS, repeat=1), record_shapes=True,
        on_trace_ready=lambda p: p.export_chrome_trace(str(file)),
    ) as profiler:  # fmt: skip
        for inputs in DataLoader(Rows(job), batch_size=None):
            model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    return samples_with_path(read(str(file)), Query())


def raises(runs: list[Samples]) -> bool:
    """Returns whether the step time of recordings of one job, in turns of side A and B, is called a regression."""
    return check(Side("A", runs[::2]), Side("B", runs[1::2]), wanted_of(["step_time"])).outcome == "regression"


def main() -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser("python -m benchmarks.recorded_pairs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="recordings of a changed job")
    options = parser.parse_args()
    torch.set_num_threads(1)
    named: dict[str, list[bool]] = defaultdict(list)
    wrong: dict[str, list[str]] = defaultdict(list)
    broken = paths = 0
    same: list[Samples] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i in range(options.trials):
            what = list(CHANGES)[i % len(CHANGES)]
            job, kinds = CHANGES[what]
            same.append(recorded(Job(), folder))
            a, b = Side("A", same[-1:]), Side("B", [recorded(job, folder)])
            both = compared(a, b)
            broken += not exact(both.waterfall.bars, both.waterfall.b_ns - both.waterfall.a_ns)
            paths += both.waterfall.basis == "path"
            first = both.causes[0] if both.causes else None
            named[what].append(first is not None and first.kind in kinds)
            if not named[what][-1]:
                wrong[what].append("none" if first is None else f"{first.kind} {first.name}")
    table = Table("change", "named first", "of", "in place of it")
    for what, rights in named.items():
        table.add_row(what, str(sum(rights)), str(len(rights)), ", ".join(dict.fromkeys(wrong[what])))
    out = Console(width=150, highlight=False)
    out.print(table)
    out.print(f"{paths} by the critical path; {broken} waterfalls that do not add up")
    for runs in (1, 3):
        pairs = [same[i : i + 2 * runs] for i in range(len(same) - 2 * runs + 1)]
        alarms = sum(raises(pair) for pair in pairs)
        out.print(f"{alarms} alarms in {len(pairs)} pairs of unchanged jobs, with {how_many(runs, 'recording')} a side, in turns")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
