"""A small decoder in the manner of LLaMA: its parameters are those of the closed form, exactly.

With width h, L layers, a vocabulary of V, a feed-forward of f, a heads of which g have keys and values of their own:
`L (2 h² (1 + g/a) + 3 h f + 2 h) + 2 h V + h`.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Causal attention with rotated positions; several heads share keys and values."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, each = heads, kv_heads, width // heads
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(width, kv_heads * each, bias=False) for _ in range(2))

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        batch, length, width = x.shape

        def split(y: Tensor, heads: int) -> Tensor:
            return y.view(batch, length, heads, -1).transpose(1, 2)

        q, k = (rotated(split(y, n), rotation) for y, n in ((self.q_proj(x), self.heads), (self.k_proj(x), self.kv_heads)))
        v = split(self.v_proj(x), self.kv_heads)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(attended.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    """Three matrices, one of which gates."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and feed-forward, each after a norm, with a residual connection."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(config.hidden_size), nn.RMSNorm(config.hidden_size)
        self.attention = Attention(config.hidden_size, config.num_attention_heads, config.num_key_value_heads)
        self.feed_forward = FeedForward(config.hidden_size, config.intermediate_size)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), rotation)
        return x + self.feed_forward(self.norm2(x))


class SmallLlama(nn.Module):
    """Tokens in, logits out: [batch, length] int64 to [batch, length, vocabulary]. `config` has the names that Hugging Face uses."""

    def __init__(self, *, width: int, layers: int, vocabulary: int, inner: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(
            hidden_size=width, num_hidden_layers=layers, vocab_size=vocabulary, intermediate_size=inner, num_attention_heads=heads,
            num_key_value_heads=kv_heads, tie_word_embeddings=False,
        )  # fmt: skip
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        self.layers = nn.ModuleList(Layer(self.config) for _ in range(layers))
        self.norm = nn.RMSNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        rotation = angles(tokens.shape[1], self.config.hidden_size // self.config.num_attention_heads).to(x.dtype)
        for layer in self.layers:
            x = layer(x, rotation)
        return self.head(self.norm(x))


def angles(length: int, width: int) -> Tensor:
    """Cosines and sines of the positions: [2, length, width / 2]."""
    angle = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angle.cos(), angle.sin()])


def rotated(x: Tensor, rotation: Tensor) -> Tensor:
    """Each pair of numbers of [batch, heads, length, width] turned by the angle of its position."""
    a, b = x.chunk(2, dim=-1)
    cos, sin = rotation
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
