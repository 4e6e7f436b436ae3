"""The toy decoder of the closed forms, and a training loop with and without tracking. Imports torch where it is called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import tb_sol_plugin as sol
from tests.support.torch_models import transformer

FORWARD = 250_871_808
"""Matrix FLOP of a forward pass of the toy: L(2 M D 3D + 2 M D D + 2 * 2 M D 4D + 2 * 2 B H S^2 D/H) + 2 M D V, with 4 blocks of width
D = 128 and 4 heads, S = 64 tokens, B = 2, M = B S, V = 1000. Backward is twice that."""


def toy() -> Any:
    """The decoder of the closed form: products and softmax instead of fused attention."""
    return transformer(
        layers=4, width=128, heads=4, kv_heads=4, hidden=512, vocab=1000, gated=False, causal=False, fused=False
    )  # fmt: skip


def tokens_of_toy() -> Any:
    import torch

    return torch.randint(0, 1000, (2, 64), generator=torch.Generator().manual_seed(7))


Step = Callable[[Any, Any, Any], Any]
"""(model, optimizer, tracker or None) -> loss"""


def run(model: Any, step: Step, *, steps: int = 3, logdir: Path | None = None, **options: Any) -> tuple[list[Any], list[Any]]:
    """(losses, parameters and buffers at the end) of `steps` steps; tracked where `logdir` is given, every step sampled by default."""
    import torch

    torch.manual_seed(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    options = {"every_n_steps": 1, **options}
    with sol.capture(str(logdir), model=model, **options) if logdir else nullcontext() as tracker:
        for _ in range(steps):
            losses.append(step(model, optimizer, tracker).detach().clone())
            if tracker is not None:
                tracker.step()
    return losses, [t.detach().clone() for t in model.state_dict().values()]


def phase(tracker: Any, name: str) -> Any:
    """The phase of a tracked loop, nothing in an untracked one."""
    return nullcontext() if tracker is None else tracker.phase(name)


def plain(model: Any, optimizer: Any, tracker: Any) -> Any:
    """A step of the toy in three phases."""
    import torch

    tokens = tokens_of_toy()
    with phase(tracker, "forward"):
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    with phase(tracker, "backward"):
        loss.backward()
    with phase(tracker, "optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss


def same(a: tuple[list[Any], list[Any]], b: tuple[list[Any], list[Any]]) -> bool:
    """Equal bit for bit."""
    import torch

    return all(len(x) == len(y) and all(torch.equal(s, t) for s, t in zip(x, y, strict=True)) for x, y in zip(a, b, strict=True))
