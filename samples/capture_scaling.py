#!/usr/bin/env python3
"""One model trained by one replica and by two (DistributedDataParallel on gloo), each with three batch sizes: points for the page Scaling.

python samples/capture_scaling.py          # writes samples/capture_scaling; needs torch, no GPU, some thirty seconds
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

import tb_sol_plugin as sol
from tb_sol_plugin.capture import profile_step_commit, profile_step_start, set_batch_sizes, watch_gradients

BATCHES, STEPS, LENGTH, VOCABULARY = (4, 8, 16), 40, 64, 256


def train(rank: int, ranks: int, meeting: str, logdir: str) -> None:
    """What one replica does: three batch sizes one after the other, each step timed, its gradients measured."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model: nn.Module = Decoder(vocabulary=VOCABULARY, width=128, layers=2, heads=4, length=LENGTH)
    if ranks > 1:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    set_batch_sizes(
        init_batch_size=BATCHES[0], max_batch_size=16 * BATCHES[-1], local_bsz_bounds=(1, 4 * BATCHES[-1]), gradient_accumulation=True
    )
    instrumented = watch_gradients(model, optimizer)
    torch.manual_seed(1 + rank)
    step = torch.arange(LENGTH + 1)
    with sol.capture(logdir, model=model, every_n_steps=0, device=LIMITS, console=False) as tracker:
        for size in BATCHES:
            for i in range(STEPS + 2):
                tokens = (torch.randint(0, VOCABULARY, (size, 1)) + 3 * step) % VOCABULARY  # a rule that can be learned,
                tokens = torch.where(torch.rand(tokens.shape) < 0.7, torch.randint_like(tokens, VOCABULARY), tokens)  # under noise
                if i >= 2:  # the first steps of a size have one-time costs
                    profile_step_start(size)
                logits = model(tokens[:, :-1].contiguous())
                nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                if i >= 2:
                    profile_step_commit()
                tracker.step(batch=size, tokens=size * LENGTH)
    instrumented.remove()
    if ranks > 1:
        distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logdir", type=Path, default=HERE / "capture_scaling")
    logdir: Path = fresh(parser.parse_args().logdir)
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (1, 2):
            run = logdir / f"{ranks}_replica{'s' if ranks > 1 else ''}"
            torch.multiprocessing.spawn(train, args=(ranks, f"{folder}/meeting", str(run)), nprocs=ranks)
            neutral(run)


if __name__ == "__main__":
    main()
