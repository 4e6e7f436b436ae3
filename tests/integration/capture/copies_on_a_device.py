"""Run by test_copies.py in a process of its own: a tracked loop that copies to and from a device. Arguments: folder of the capture."""

from __future__ import annotations

import sys

import torch
from torch import nn

import tb_sol_plugin as sol
from tb_sol_plugin.capture import SOLTracker
from tb_sol_plugin.capture.work import copies
from tests.support import toy_device

PINNED: set[int] = set()
copies.is_pinned = lambda tensor: id(tensor) in PINNED


class Mixes(nn.Module):
    """A layer that sends its result through the host."""

    def forward(self, x):
        y = x * 2
        return y.cpu().to("toy")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixes = Mixes()

    def forward(self, x):
        return self.mixes(x).sum()


def step(tracker, model, host, pinned):
    with tracker.phase("load"):
        x = host.to("toy")
        pinned.to("toy", non_blocking=True)
        pinned.to("toy")
    with tracker.phase("forward"):
        x.requires_grad_(True)
        loss = model(x)
    with tracker.phase("backward"):
        loss.backward()
    with tracker.phase("report"):
        value = loss.item()
        (x.detach() > 0).nonzero()
    return value


def main(folder):
    model, host, pinned = Net(), torch.ones(256), torch.ones(64)
    PINNED.add(id(pinned))
    with sol.capture(folder, model=model, every_n_steps=1, tensorboard=False, wandb=False) as tracker:
        values = []
        for _ in range(3):
            values.append(step(tracker, model, host, pinned))
            tracker.step()
    plain = step(SOLTracker(), model, host, pinned)  # one that was never started: nothing is watched
    assert values == [plain] * 3 == [512.0] * 3
    assert toy_device.data(host.to("toy")).equal(host)


if __name__ == "__main__":
    main(sys.argv[1])
