"""Processes that train and are tracked: `python -m tests.support.sol_workers KIND LOGDIR RANK RANKS MEETING`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.forked import python

ROOT = Path(__file__).resolve().parents[2]


def launch(kind: str, logdir: Path, *, ranks: int = 1) -> list[Any]:
    """The running processes of a job, one per rank."""
    return [python("-m", "tests.support.sol_workers", kind, logdir, rank, ranks, logdir.parent / "meeting") for rank in range(ranks)]


def finished(processes: list[Any], seconds: float) -> list[str]:
    """What each wrote. AssertionError where one fails; whoever is not done in time is killed, and that is an AssertionError too."""
    end, out = time.monotonic() + seconds, []
    try:
        for rank, process in enumerate(processes):
            try:
                text, _ = process.communicate(timeout=max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"rank {rank} still runs after {seconds} s: a deadlock") from None
            assert process.returncode == 0, f"rank {rank} ended with {process.returncode}:\n{text[-4000:]}"
            out.append(text)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return out


def main(kind: str, logdir: str, rank: int, ranks: int, meeting: str) -> None:
    import torch
    from torch import distributed

    from tests.support.training_loops import plain, run, toy

    torch.set_num_threads(1)
    model = toy()
    if ranks > 1:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)

    losses: dict[str, list[Any]] = {}
    for where in ("", logdir):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        losses[where] = run(model, plain, steps=4, logdir=Path(where) if where else None, every_n_steps=3)[0]
        model.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(losses[""], losses[logdir], strict=True)), losses
    print("equal")
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
