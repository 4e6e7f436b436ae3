"""Replicas that train and count their steps: `python -m tests.support.goodput_workers KIND FOLDER RANK RANKS`. Each checks what it measured.

A meeting point in the folder; what is measured is compared with gradients of a model without hooks, gathered from all replicas.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.forked import python

SIZE, INITIAL = 6, 8
SHORT = 600
SAMPLES = 2003


def launch(kind: str, folder: Path, *, ranks: int) -> list[Any]:
    """The running processes of a job, one per replica."""
    return [python("-m", "tests.support.goodput_workers", kind, folder, rank, ranks) for rank in range(ranks)]


def small() -> Any:
    import torch

    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def norm(grads: Any, over: Any = None) -> float:
    return sum(float(((g if over is None else g / o) ** 2).sum()) for g, o in zip(grads, over or grads, strict=True))


def gathered(grads: Any, ranks: int) -> Any:
    """The gradients of every replica, one list each."""
    import torch
    from torch import distributed

    flat = torch.cat([g.flatten() for g in grads])
    out = [torch.empty_like(flat) for _ in range(ranks)]
    distributed.all_gather(out, flat)
    return [list(one.split([g.numel() for g in grads])) for one in out]


def train(kind: str, folder: Path, rank: int, ranks: int) -> None:
    import contextlib

    import torch
    from torch import distributed

    from tb_sol_plugin import capture
    from tb_sol_plugin.capture.goodput import steps as G
    from tb_sol_plugin.capture.goodput.gradients import Averages, watch_gradients

    micro = 2 if kind.endswith("accumulate") else 1
    torch.manual_seed(1)
    model, twin = small(), small()
    if kind.startswith("fsdp2"):
        from torch.distributed.fsdp import fully_shard

        twin.load_state_dict(model.state_dict())
        whole = [p.detach().clone() for p in model.parameters()]
        fully_shard(model[0])
        wrapped: Any = fully_shard(model)
    else:
        whole = None
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    rate = 0.1
    optimizer = torch.optim.Adam(wrapped.parameters(), 0.01) if kind == "ddp-adam" else torch.optim.SGD(wrapped.parameters(), rate)
    G.set_replicas(1, ranks)
    G.set_batch_sizes(INITIAL)
    watch = watch_gradients(wrapped, optimizer)
    expected = Averages()
    torch.manual_seed(100 + rank)
    slow = 0.05
    with capture(str(folder / "run"), model=wrapped, every_n_steps=3, tensorboard=False, console=False) as tracker:
        for update in range(8):
            optimizer.zero_grad()
            data = [torch.randn(SIZE, 5) for _ in range(micro)]
            if whole is None:
                twin.load_state_dict(model.state_dict())
            else:
                for p, value in zip(twin.parameters(), whole, strict=True):
                    p.data.copy_(value)
            mine = [torch.autograd.grad(twin(x).square().mean(), list(twin.parameters())) for x in data]
            parts = [part for grads in mine for part in gathered(grads, ranks)]
            mean = [sum(column) / len(parts) for column in zip(*parts, strict=True)]
            over, adam = None, kind == "ddp-adam" and update >= 5
            if adam:
                states = [optimizer.state[p] for p in model.parameters()]
                over = [((s["exp_avg_sq"] / (1 - 0.999**update)).sqrt() + 1e-8).flatten() for s in states]
            count = ranks * micro
            expected.update(
                [sum(norm(p, over) for p in parts) / count], [norm(mean, over)], count, count * SIZE / INITIAL, preconditioned=adam
            )
            distributed.barrier()
            for k, x in enumerate(data):
                last = k == micro - 1
                G.profile_step_start(SIZE)
                if kind.startswith("fsdp2"):
                    wrapped.set_requires_gradient_sync(last)
                    loss = wrapped(x).square().mean() / micro
                    if rank == 0 and last:
                        time.sleep(slow)  # rank 0 is late: rank 1 waits for it
                    loss.backward()
                else:
                    with contextlib.nullcontext() if last else wrapped.no_sync():
                        loss = wrapped(x).square().mean() / micro
                        if rank == 0 and last:
                            time.sleep(slow)
                        loss.backward()
                if last:
                    optimizer.step()
                G.profile_step_commit(not last)
            watch.flush()  # every update is measured where each sum arrives before the next one
            if whole is not None:
                whole = [w - rate * m.view_as(w) for w, m in zip(whole, mean, strict=True)]
            tracker.step()
    assert watch.averages.updates == 8, watch.averages
    found, wanted = watch.averages.grad_params(), expected.grad_params()
    assert all(abs(a - b) <= 1e-3 * abs(b) + 1e-6 for a, b in zip(found, wanted, strict=True)), (found, wanted)
    counts = G.recorder().state.profile[1, ranks, SIZE]
    assert (counts.accum_count, counts.optim_count, counts.sync_count) == (8 * (micro - 1), 8, 8), counts
    assert 0 <= counts.optim_sync_time < counts.optim_step_time, counts
    if rank == 1 and kind.startswith("ddp"):  # a sharded model on this backend waits within its backward pass, for each module
        assert counts.optim_sync_time > 8 * slow * 0.5, counts


class Late:
    """A sum over replicas that arrives 12 ms after it was started, as on a network of many replicas."""

    def __init__(self, work: Any) -> None:
        self._work, self._from = work, time.perf_counter() + 0.012

    def is_completed(self) -> bool:
        return time.perf_counter() >= self._from and self._work.is_completed()

    def wait(self, *timeout: Any) -> Any:
        return self._work.wait(*timeout)


def short(rank: int, ranks: int) -> None:
    """Steps of 5 ms, shorter than a sum over the replicas takes."""
    import torch
    from torch import distributed

    from tb_sol_plugin.capture import get_goodput_fn
    from tb_sol_plugin.capture.goodput import steps as G
    from tb_sol_plugin.capture.goodput.gradients import watch_gradients

    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), 0.0)  # the weights stay: what is measured has one value
    G.set_replicas(1, ranks)
    G.set_batch_sizes(INITIAL, 4 * INITIAL)
    reduce = distributed.all_reduce
    distributed.all_reduce = lambda *args, **options: Late(reduce(*args, **options))
    watch = watch_gradients(model, optimizer, every=1)
    data = [torch.randn(SIZE, 5) for _ in range(16)]
    parts = [list(torch.autograd.grad(model.module(x).square().mean(), list(model.parameters()))) for x in data]
    local = sum(norm(p) for p in parts) / len(parts)
    chosen = torch.randint(len(data), (SHORT,), generator=torch.Generator().manual_seed(rank)).tolist()
    for update in range(SHORT):
        optimizer.zero_grad()
        G.profile_step_start(SIZE)
        if update < 20 and rank == 0:
            time.sleep(0.05)  # a slow start, whose waits stand for no later step
        time.sleep(0.004)
        model(data[chosen[update]]).square().mean().backward()
        optimizer.step()
        G.profile_step_commit()
    watch.flush()
    counts = G.recorder().state.profile[1, ranks, SIZE]
    accum, optim = counts.times() or (0.0, 0.0)
    # waits are measured to the end, and no time is below 0 or above the step
    assert counts.sync_count == counts.optim_count == SHORT, counts
    assert 0 < accum <= optim, counts
    # and so are gradients, now and then: many of them, of the whole run
    assert watch.averages.updates >= SHORT // 20 and watch.averages.skipped == 0, watch.averages
    sqr, var = watch.averages.grad_params() or (0.0, 0.0)
    assert abs(sqr + var * INITIAL / SIZE - local) < 0.4 * local, (sqr, var, local)  # E|g|^2 of one replica
    assert not {"gradients", "behind", "commit hook"} & G.recorder()._warned_of, G.recorder()._warned_of
    assert get_goodput_fn() is None and get_goodput_fn(fit=True) is not None
    distributed.barrier()


def adapt(folder: Path, rank: int, ranks: int, until: float) -> None:
    """Train a data set until a part of its epoch is passed, from where the job before this one stopped; propose sizes and take them."""
    import contextlib
    import json

    import torch
    from torch.utils.data import DataLoader

    from tb_sol_plugin import capture as C

    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    C.set_replicas(1, ranks)
    C.set_batch_sizes(INITIAL, 16 * INITIAL, (1, 4 * INITIAL), gradient_accumulation=True)
    C.load_metrics(folder / "metrics")
    C.watch_gradients(model, optimizer)
    sampler = C.ElasticSampler(SAMPLES, INITIAL // ranks, seed=5)
    adaptive = C.AdaptiveBatchSize(sampler, optimizer)
    path, proposals, seen = folder / "checkpoint", [], []
    if path.exists():
        state = json.loads(path.read_text())
        sampler.load_state_dict(state["sampler"])
        adaptive.load_state_dict(state["adaptive"])
        model.module.load_state_dict({name: torch.tensor(value) for name, value in state["model"].items()})
    start = asked = sampler.position
    generator = torch.Generator().manual_seed(2)
    data = torch.randn(SAMPLES, 5, generator=generator)
    targets = 3 * torch.randn(SAMPLES, 1, generator=generator)  # gradients are mostly noise, and large batches pay
    for index in DataLoader(torch.arange(SAMPLES), batch_sampler=sampler):
        C.profile_step_start(len(index))
        time.sleep(0.002 + 0.0002 * len(index))
        with contextlib.nullcontext() if sampler.last else model.no_sync():
            ((model(data[index]) - targets[index]).square().mean() / sampler.micro_steps).backward()
        last = sampler.last
        if last:
            optimizer.step()
            optimizer.zero_grad()
        C.profile_step_commit(not last)
        sampler.advance()
        seen += index.tolist()
        reached = sampler.position or SAMPLES  # the same on all replicas, whose batches may differ by a sample
        if last and reached >= asked + 80:
            asked = reached
            proposal = adaptive.propose()
            proposals.append(proposal)
            if proposal is not None and proposal.gain > 1:
                adaptive.apply(proposal)
        if last and start <= sampler.position and sampler.position >= until * SAMPLES:
            break
    assert sampler.epoch == (until == 1) and optimizer.param_groups[0]["lr"] == 0.01
    assert any(proposals), "no size was proposed"
    weights = {name: value.tolist() for name, value in model.module.state_dict().items()}
    (folder / f"seen-{until}-{rank}").write_text(json.dumps({"seen": seen, "proposals": proposals, "weights": weights}))
    C.save_metrics(folder / "metrics")
    if rank == 0:
        path.write_text(json.dumps({"sampler": sampler.state_dict(), "adaptive": adaptive.state_dict(), "model": weights}))


def accumulate(kind: str, folder: Path, rank: int, ranks: int) -> None:
    """Adds 1000 rank + step, 8 steps; the first start is killed after the sixth, its checkpoint is of the fourth."""
    from tb_sol_plugin.capture.goodput.state import Accumulator

    acc, path = Accumulator(), folder / "sums"
    first = 4 if acc.load_file(path) else 0
    for step in range(first, 8):
        acc["sum"] += 1000 * rank + step
        acc["steps"] += 1
        acc[f"rank {rank}"] += 1
        if step == 1:
            with acc.synchronized():
                assert acc["steps"] == 2 * ranks
        if step == 3:
            acc.save_file(path)
        if step == 5 and kind == "accumulator-killed":
            os._exit(0)
    with acc.synchronized():
        assert acc["sum"] == sum(1000 * r + s for r in range(ranks) for s in range(8)), dict(acc)
        assert acc["steps"] == 8 * ranks and all(acc[f"rank {r}"] == 8 for r in range(ranks))


def main(kind: str, folder: str, rank: int, ranks: int) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    meeting = Path(folder) / f"meeting-{kind}"
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    if kind == "ddp-short":
        short(rank, ranks)
    elif kind.startswith("adaptive-"):
        adapt(Path(folder), rank, ranks, float(kind.removeprefix("adaptive-")))
    else:
        (accumulate if kind.startswith("accumulator") else train)(kind, Path(folder), rank, ranks)
    print("measured", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
