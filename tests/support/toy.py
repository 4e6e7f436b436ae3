"""A decoder whose layers and functions are few enough to count: 17 Linear, 9 LayerNorm, 1 Embedding, 8 products, 4 softmax in a forward."""

from __future__ import annotations

from typing import Any

BLOCKS, WIDTH, HEADS, LENGTH, BATCH, VOCAB = 4, 128, 4, 64, 2, 1000
LINEAR = 2 * BATCH * LENGTH * (BLOCKS * (3 * WIDTH**2 + WIDTH**2 + 2 * 4 * WIDTH**2) + WIDTH * VOCAB)
"""Matrix FLOP of all Linear layers in a forward pass."""
ATTENTION = BLOCKS * 2 * 2 * BATCH * HEADS * LENGTH**2 * (WIDTH // HEADS)
FORWARD = LINEAR + ATTENTION


def fused_qkv() -> Any:
    """The decoder, with one Linear for query, key and value, and attention by torch.matmul and torch.softmax."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            b, s, _ = x.shape
            q, k, v = self.qkv(self.n1(x)).view(b, s, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            a = torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * (WIDTH // HEADS) ** -0.5, -1), v)
            x = x + self.out(a.transpose(1, 2).reshape(b, s, WIDTH))
            return x + self.down(torch.nn.functional.gelu(self.up(self.n2(x))))

    class Toy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCAB, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    return Toy()


def some_tokens() -> Any:
    import torch

    return torch.randint(0, VOCAB, (BATCH, LENGTH), generator=torch.Generator().manual_seed(7))
