#!/usr/bin/env python3
"""Reinforcement learning in the shape of Megatron-RL, tracked through the classic interface: rollout, log-probabilities, GRPO loss.

    python samples/capture_rl.py               # writes samples/capture_rl; needs torch, no GPU, some ten seconds
    tensorboard --logdir samples

A policy of two layers learns to end its sentences with an even token. Each iteration samples groups of answers to a few prompts, judges
them, and takes one step of group-relative policy optimization. The phases are those of such a loop, one inside the other.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import NamedTuple

import torch
from neutral import HERE, LIMITS, fresh, neutral
from small_model import Decoder
from torch import Tensor, nn

from tb_sol_plugin.capture import add_sol_arguments, clear_sol_captures, initialize_sol, log_training_sol, sol_nvtx_range

VOCABULARY, PROMPT, ANSWER, PROMPTS, GROUP = 128, 8, 8, 4, 8
LENGTH = PROMPT + ANSWER


class Rollouts(NamedTuple):
    """tokens [PROMPTS * GROUP, LENGTH] int64, rewards [PROMPTS, GROUP] float32."""

    tokens: Tensor
    rewards: Tensor


@torch.no_grad()
def rollout(policy: nn.Module, prompts: Tensor) -> Rollouts:
    """GROUP answers to each prompt, sampled token by token, with their rewards."""
    with sol_nvtx_range("rl_timing/rollout", 1):
        tokens = prompts.repeat_interleave(GROUP, 0)
        with sol_nvtx_range("rl_timing/rollout/generate", 2):
            for _ in range(ANSWER):
                chances = torch.softmax(policy(tokens)[:, -1], -1)
                tokens = torch.cat([tokens, torch.multinomial(chances, 1)], 1)
        with sol_nvtx_range("rl_timing/rollout/rewards", 2):
            rewards = (tokens[:, -1] % 2 == 0).float().view(PROMPTS, GROUP)
    return Rollouts(tokens, rewards)


def prepare_data(rollouts: Rollouts) -> tuple[Tensor, Tensor, Tensor]:
    """(tokens in, tokens out, advantage of each answer): [PROMPTS * GROUP, LENGTH - 1] twice, [PROMPTS * GROUP, 1]."""
    with sol_nvtx_range("rl_timing/prepare-data", 1):
        with sol_nvtx_range("rl_timing/prepare-data/group-stats", 2):
            mean, spread = rollouts.rewards.mean(1, keepdim=True), rollouts.rewards.std(1, keepdim=True)
        with sol_nvtx_range("rl_timing/prepare-data/advantages", 2):
            advantages = ((rollouts.rewards - mean) / (spread + 1e-4)).view(-1, 1)
        with sol_nvtx_range("rl_timing/prepare-data/trajectories", 2):
            inputs, targets = rollouts.tokens[:, :-1].contiguous(), rollouts.tokens[:, 1:].contiguous()
    return inputs, targets, advantages


def log_probabilities(policy: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Of each token of the answers, [PROMPTS * GROUP, ANSWER]."""
    logits = policy(inputs)[:, -ANSWER:]
    return nn.functional.log_softmax(logits, -1).gather(-1, targets[:, -ANSWER:, None]).squeeze(-1)


def grpo_loss(new: Tensor, old: Tensor, reference: Tensor, advantages: Tensor) -> Tensor:
    """Clipped ratios times advantages, with a penalty for leaving the reference (Shao et al. 2024, eq. 3 and 4)."""
    with sol_nvtx_range("rl_timing/grpo-loss", 1):
        with sol_nvtx_range("rl_timing/grpo-loss/ratios", 2):
            ratios = (new - old).exp()
            away = reference - new
            penalty = away.exp() - away - 1
        with sol_nvtx_range("rl_timing/grpo-loss/advantages", 2):
            gained = torch.min(ratios * advantages, ratios.clamp(0.8, 1.2) * advantages)
        with sol_nvtx_range("rl_timing/grpo-loss/final", 2):
            return (0.04 * penalty - gained).mean()


def iterate(policy: nn.Module, reference: nn.Module, optimizer: torch.optim.Optimizer, prompts: Tensor) -> float:
    """One iteration; returns the mean reward of its rollouts."""
    rollouts = rollout(policy, prompts)
    inputs, targets, advantages = prepare_data(rollouts)
    with sol_nvtx_range("rl_timing/compute-logprobs", 1):
        with torch.no_grad():
            with sol_nvtx_range("rl_timing/compute-logprobs/old", 2):
                old = log_probabilities(policy, inputs, targets)
            with sol_nvtx_range("rl_timing/compute-logprobs/ref", 2):
                ref = log_probabilities(reference, inputs, targets)
        with sol_nvtx_range("rl_timing/compute-logprobs/batch/forward", 2):
            new = log_probabilities(policy, inputs, targets)
    loss = grpo_loss(new, old, ref, advantages)
    with sol_nvtx_range("rl_timing/backward", 1):
        loss.backward()
    with sol_nvtx_range("rl_timing/optimizer", 1):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return float(rollouts.rewards.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tensorboard-dir", type=Path, default=HERE / "capture_rl")
    parser.add_argument("--timing-log-level", type=int, default=2, choices=range(3))
    parser.add_argument("--train-iters", type=int, default=41)
    add_sol_arguments(parser)
    parser.set_defaults(rl_sol_report_interval=20, rl_sol_device=LIMITS)
    args = parser.parse_args()
    fresh(args.tensorboard_dir)
    torch.manual_seed(0)
    policy = Decoder(vocabulary=VOCABULARY, width=64, layers=2, heads=4, length=LENGTH)
    reference = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)

    tracker = initialize_sol({"policy": policy, "reference": reference}, args)
    for iteration in range(args.train_iters):
        clear_sol_captures()
        reward = iterate(policy, reference, optimizer, torch.randint(0, VOCABULARY, (PROMPTS, PROMPT)))
        log_training_sol(iteration, clear=True)
        if iteration % 10 == 0:
            print(f"iteration {iteration}: mean reward {reward:.2f}")
    if tracker is not None:  # tracking is off with --timing-log-level 0
        tracker.close()
    neutral(args.tensorboard_dir)


if __name__ == "__main__":
    main()
