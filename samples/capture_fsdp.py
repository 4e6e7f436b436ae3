#!/usr/bin/env python3
"""Two processes that train one sharded model (FSDP2 on gloo), each tracked: one capture per rank.

python samples/capture_fsdp.py             # writes samples/capture_fsdp; needs torch, no GPU, some twenty seconds
tensorboard --logdir samples
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from neutral import HERE, LIMITS, fresh, neutral
from small_model import Decoder
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tb_sol_plugin as sol

RANKS, STEPS, BATCH, LENGTH, VOCABULARY = 2, 31, 4, 64, 512


def train(rank: int, meeting: str, logdir: str) -> None:
    """What one rank does: a shard of every block, a batch of its own."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    model = Decoder(vocabulary=VOCABULARY, width=128, layers=2, heads=4, length=LENGTH)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + rank)

    with sol.capture(logdir, model=model, every_n_steps=10, device=LIMITS) as tracker:
        for _ in range(STEPS):
            batch = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1))
            with tracker.phase("forward"):
                logits = model(batch[:, :-1].contiguous())
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            with tracker.phase("backward"):
                loss.backward()
            with tracker.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            tracker.step()
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logdir", type=Path, default=HERE / "capture_fsdp")
    logdir: Path = fresh(parser.parse_args().logdir)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, args=(f"{folder}/meeting", str(logdir)), nprocs=RANKS)
    neutral(logdir)


if __name__ == "__main__":
    main()
