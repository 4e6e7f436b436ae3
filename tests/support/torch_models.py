"""Small models for witnesses, and the work that the product reads off a recording of them. Imports torch and pandas where they are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def recorded(step: Callable[[], object], folder: Path, *, dense: bool = False) -> pd.DataFrame:
    """The owning calls of a recording of `step` on the CPU. dense: attention with every pair."""
    from torch.profiler import ProfilerActivity, profile

    from tb_sol_plugin.ingest import read
    from tb_sol_plugin.metrics.work.work import work

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step()
    path = folder / "step.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    return work(read(str(path)), dense=dense).ops


def matrix_flop(ops: pd.DataFrame, **where: str) -> int:
    """Sum of matrix FLOP of the rows whose columns have these values."""
    import numpy as np

    chosen = np.isfinite(ops["flop"].to_numpy())
    for column, value in where.items():
        chosen &= (ops[column].astype(str) == value).to_numpy()
    return int(ops.loc[chosen, "flop"].sum())


def transformer(
    *, layers: int, width: int, heads: int, kv_heads: int, hidden: int, vocab: int, gated: bool, causal: bool, fused: bool
) -> Any:
    """A decoder: embedding, blocks of attention and MLP, head. fused: scaled_dot_product_attention, else products and softmax."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.d = width // heads
            self.q, self.o = nn.Linear(width, width), nn.Linear(width, width)
            self.kv = nn.Linear(width, 2 * kv_heads * self.d)
            self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
            self.gate = nn.Linear(width, hidden) if gated else None
            self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x: Any) -> Any:
            b, s, _ = x.shape
            y = self.n1(x)
            q = self.q(y).view(b, s, heads, self.d).transpose(1, 2)
            k, v = self.kv(y).view(b, s, 2, kv_heads, self.d).unbind(2)
            k, v = k.transpose(1, 2), v.transpose(1, 2)
            if fused:
                a = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv_heads != heads)
            else:
                a = torch.softmax(q @ k.transpose(-2, -1) / self.d**0.5, -1) @ v
            x = x + self.o(a.transpose(1, 2).reshape(b, s, width))
            y = self.n2(x)
            up = self.up(y) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
            return x + self.down(F.gelu(up) if self.gate is None else up)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(vocab, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    return Decoder()


def resnet18() -> Any:
    """ResNet-18 for 1000 classes (He et al. 2015, table 1)."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        _basic(64, 64, 1), _basic(64, 64, 1), _basic(64, 128, 2), _basic(128, 128, 1), _basic(128, 256, 2), _basic(256, 256, 1),
        _basic(256, 512, 2), _basic(512, 512, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000),
    )  # fmt: skip


def bottleneck(width: int, narrow: int, stride: int, groups: int = 1) -> Any:
    """A bottleneck block width -> narrow -> narrow -> 4 narrow, with a projection on the short way; groups as in ResNeXt."""
    from torch import nn

    return _residual(
        nn.Sequential(
            nn.Conv2d(width, narrow, 1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU(),
            nn.Conv2d(narrow, narrow, 3, stride=stride, padding=1, groups=groups, bias=False), nn.BatchNorm2d(narrow), nn.ReLU(),
            nn.Conv2d(narrow, 4 * narrow, 1, bias=False), nn.BatchNorm2d(4 * narrow),
        ),
        nn.Sequential(nn.Conv2d(width, 4 * narrow, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * narrow)),
    )  # fmt: skip


def _basic(width: int, out: int, stride: int) -> Any:
    from torch import nn

    short = nn.Identity() if stride == 1 else nn.Sequential(nn.Conv2d(width, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))
    main = nn.Sequential(
        nn.Conv2d(width, out, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
        nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out),
    )  # fmt: skip
    return _residual(main, short)


def _residual(main: Any, short: Any) -> Any:
    from torch import nn
    from torch.nn import functional as F

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.short = main, short

        def forward(self, x: Any) -> Any:
            return F.relu(self.main(x) + self.short(x))

    return Residual()
