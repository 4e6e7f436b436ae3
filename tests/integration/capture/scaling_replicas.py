"""A replica that counts its steps: `python -m tests.integration.capture.scaling_replicas RANK RANKS MEETING LOGDIR`."""

from __future__ import annotations

import os
import sys

BATCHES, STEPS = (4, 8), 4


def train(rank: int, ranks: int, meeting: str, logdir: str) -> None:
    import torch
    from torch import distributed, nn

    import tb_sol_plugin as sol
    from tb_sol_plugin.capture import profile_step_commit, profile_step_start, set_batch_sizes, watch_gradients

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    if ranks > 1:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    set_batch_sizes(init_batch_size=4, max_batch_size=64, local_bsz_bounds=(1, 32))
    watch = watch_gradients(model, optimizer)
    torch.manual_seed(1 + rank)
    with sol.capture(logdir, model=model, every_n_steps=0, console=False) as tracker:
        for size in BATCHES:
            for _ in range(STEPS):
                profile_step_start(size)
                model(torch.randn(size, 16)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                profile_step_commit()
                tracker.step(batch=size)
    watch.remove()
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    train(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
