#!/usr/bin/env python3
"""Two processes that train one model in BF16 with a distributed optimizer: what each holds in memory, recorded in every way a CPU allows.

python samples/capture_memory.py           # writes samples/capture_memory; needs torch, no GPU, some twenty seconds
tensorboard --logdir samples

Per rank: a SOL capture with records of memory (before the model, after the process group, at intervals, between backward and the
optimizer), and of one iteration a trace with memory events and the memory timeline that torch makes of them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import torch
from neutral import HERE, HOST, LIMITS, fresh, neutral
from small_llama import SmallLlama
from torch import Tensor, distributed, nn

import tb_sol_plugin as sol
from tb_sol_plugin.capture import record_base_memory

RANKS, STEPS, BATCH, LENGTH = 2, 31, 4, 128
TRACED = 5
"""The iteration that the profiler records: none of those whose work is counted."""
SIZES = {"width": 256, "layers": 2, "vocabulary": 2048, "inner": 704, "heads": 4, "kv_heads": 2}


class DistributedOptimizer:
    """Adam over FP32 masters of BF16 parameters. All ranks hold all parameters and main gradients; of masters and moments each has a share.

    Parameters and main gradients lie in two flat buffers. A gradient is added to the main gradient as soon as it is made, and freed.
    """

    def __init__(self, model: nn.Module, *, lr: float) -> None:
        parameters = list(model.parameters())
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
        share = -(-sum(p.numel() for p in parameters) // ranks)
        self.param_data = torch.zeros(share * ranks, dtype=torch.bfloat16)
        self.grad_data = torch.zeros(share * ranks)
        at = 0
        for parameter in parameters:
            place = slice(at, at + parameter.numel())
            self.param_data[place] = parameter.detach().flatten()
            parameter.data = self.param_data[place].view(parameter.shape)
            parameter.main_grad = self.grad_data[place].view(parameter.shape)
            parameter.register_post_accumulate_grad_hook(into_main_gradient)
            at += parameter.numel()
        self.own = slice(rank * share, (rank + 1) * share)
        self.master = self.param_data[self.own].float()
        self.master.grad = self.grad_data[self.own]
        self.optimizer = torch.optim.AdamW([self.master], lr=lr, foreach=False)
        self.param_groups = self.optimizer.param_groups

    def step(self) -> None:
        distributed.all_reduce(self.grad_data)
        self.grad_data /= distributed.get_world_size()
        self.optimizer.step()
        self.param_data[self.own] = self.master
        distributed.all_gather(list(self.param_data.chunk(distributed.get_world_size())), self.param_data[self.own].clone())
        self.grad_data.zero_()


def into_main_gradient(parameter: Tensor) -> None:
    """Add the gradient to the main gradient, and free it."""
    if parameter.grad is not None:
        parameter.main_grad += parameter.grad  # type: ignore[attr-defined]
        parameter.grad = None


def train(rank: int, meeting: str, logdir: str) -> None:
    """What one rank does."""
    torch.set_num_threads(1)
    record_base_memory("start")
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    record_base_memory("process group")
    torch.manual_seed(0)
    model = SmallLlama(**SIZES).bfloat16()
    optimizer = DistributedOptimizer(model, lr=1e-3)
    torch.manual_seed(1 + rank)

    def batch() -> Tensor:
        return torch.randint(0, SIZES["vocabulary"], (BATCH, LENGTH + 1))

    def loss_of(tokens: Tensor) -> Tensor:
        logits = model(tokens[:, :-1].contiguous())
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def store(profile: torch.profiler.profile) -> None:
        profile.export_chrome_trace(f"{logdir}/{HOST}_rank{rank}.{time.time_ns()}.pt.trace.json.gz")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch prefers snapshots, which a CPU does not have
            profile.export_memory_timeline(f"{logdir}/{HOST}_rank{rank}.raw.json.gz", device="cpu")

    plan = {"dp": RANKS, "tp": 1, "pp": 1, "cp": 1, "recompute": "selective"}  # fused attention keeps no scores: as if they were recomputed
    profiler = torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=TRACED - 1, warmup=1, active=1, repeat=1), on_trace_ready=store, record_shapes=True,
        profile_memory=True, with_stack=True,
    )  # fmt: skip
    tracker = sol.capture(
        logdir, model=model, optimizer=optimizer, every_n_steps=10, report_interval=10, device=LIMITS, memory=True, memory_every=1,
        plan=plan, tensorboard=False, console=False,
    )  # fmt: skip
    with profiler, tracker:
        for step in range(STEPS):
            with tracker.phase("forward"):
                loss = loss_of(batch())
            with tracker.phase("backward"):
                loss.backward()
            if step == 1:
                tracker.record_memory("after backward")
            with tracker.phase("optimizer"):
                optimizer.step()
            tracker.step()
            profiler.step()
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logdir", type=Path, default=HERE / "capture_memory")
    logdir: Path = fresh(parser.parse_args().logdir)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, args=(f"{folder}/meeting", str(logdir)), nprocs=RANKS)
    neutral(logdir)


if __name__ == "__main__":
    main()
