#!/usr/bin/env python3
"""A plain training loop that is tracked: the work of sampled steps, phases of every step, and a trace of the step after a sampled one.

python samples/capture_train.py            # writes samples/capture_train; needs torch, no GPU, some ten seconds
tensorboard --logdir samples
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from neutral import HERE, LIMITS, fresh, neutral
from small_model import Decoder
from torch import nn

import tb_sol_plugin as sol

STEPS, BATCH, LENGTH, VOCABULARY = 61, 8, 64, 512


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logdir", type=Path, default=HERE / "capture_train")
    logdir: Path = fresh(parser.parse_args().logdir)
    torch.manual_seed(0)
    model = Decoder(vocabulary=VOCABULARY, width=128, layers=3, heads=4, length=LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randint(0, VOCABULARY, (STEPS, BATCH, LENGTH + 1))

    with sol.capture(str(logdir), model=model, every_n_steps=20, profile=True, device=LIMITS) as tracker:
        for batch in data:
            tokens, target = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
            with tracker.phase("forward"):
                logits = model(tokens)
                with tracker.phase("forward/loss"):
                    loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
            with tracker.phase("backward"):
                loss.backward()
            with tracker.phase("optimizer"):
                with tracker.phase("optimizer/clip"):
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            tracker.step()
    neutral(logdir)


if __name__ == "__main__":
    main()
