"""Whole models, forward and backward: the work read off their recordings is that of the architecture, written down by hand.

The closed forms below know nothing of operators: they are sums over layers of the published architectures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.torch_models import bottleneck, matrix_flop, recorded, resnet18, transformer

torch = pytest.importorskip("torch", reason="records small models with PyTorch")

TOY = {"layers": 4, "width": 128, "heads": 4, "kv_heads": 4, "hidden": 512, "vocab": 1000}
MODERN = {"layers": 2, "width": 64, "heads": 8, "kv_heads": 2, "hidden": 160, "vocab": 256}


def decoder(
    batch: int, length: int, *, layers: int, width: int, heads: int, kv_heads: int, hidden: int, vocab: int, gated: bool
) -> tuple[int, int]:
    """(FLOP of all weights, FLOP of the two products of attention with every pair) of a forward pass."""
    tokens = batch * length
    attention = width * width + width * 2 * kv_heads * (width // heads) + width * width
    mlp = (3 if gated else 2) * width * hidden
    weights = 2 * tokens * (layers * (attention + mlp) + width * vocab)
    return weights, layers * 2 * 2 * batch * heads * length**2 * (width // heads)


def train(model: Any, *inputs: Any) -> None:
    model(*inputs).square().mean().backward()


def test_a_transformer_of_plain_products(tmp_path: Path) -> None:
    # GIVEN 4 blocks of width 128, 4 heads, 64 tokens, batch 2, vocabulary 1000, attention by products and softmax
    model = transformer(**TOY, gated=False, causal=False, fused=False)
    tokens = torch.randint(0, 1000, (2, 64))
    # WHEN a training step is recorded
    ops = recorded(lambda: train(model, tokens), tmp_path)
    # THEN forward is 4 (2 M D 3D + 2 M D D + 4 M D 4D + 4 B H S^2 D/H) + 2 M D V with M = 128, and backward is twice that
    assert sum(decoder(2, 64, **TOY, gated=False)) == 250_871_808
    assert matrix_flop(ops, direction="fwd") == 250_871_808
    assert matrix_flop(ops) == 752_615_424
    assert set(ops.loc[ops["flop"] > 0, "kind"].astype(str)) == {"gemm"}


@pytest.mark.parametrize("causal", [False, True])
def test_a_transformer_with_grouped_queries_and_fused_attention(tmp_path: Path, causal: bool) -> None:
    # GIVEN 2 gated blocks with 8 query heads on 2 key heads, fused attention
    model = transformer(**MODERN, gated=True, causal=causal, fused=True)
    tokens = torch.randint(0, 256, (3, 32))
    ops = recorded(lambda: train(model, tokens), tmp_path)
    weights, scores = decoder(3, 32, **MODERN, gated=True)
    # THEN products with weights cost three times the forward; attention once forward and 2.5 times backward, causal half of each
    assert matrix_flop(ops, kind="gemm", direction="fwd") == weights
    assert matrix_flop(ops, kind="gemm") == 3 * weights
    part = 2 if causal else 1
    assert matrix_flop(ops, kind="attention", direction="fwd") == scores // part
    assert matrix_flop(ops, kind="attention", direction="bwd") == scores * 5 // 2 // part
    # and keys and values are read with their own two heads: q, k, v, o, 4 bytes each, and one logsumexp per row of scores
    one = ops[(ops["kind"] == "attention") & (ops["direction"] == "fwd")].iloc[0]
    assert one["bytes"] == 4 * 3 * 32 * (64 + 16 + 16 + 64) + 4 * 3 * 8 * 32


def test_dense_equivalent_attention_counts_every_pair(tmp_path: Path) -> None:
    model = transformer(**MODERN, gated=True, causal=True, fused=True)
    tokens = torch.randint(0, 256, (3, 32))
    ops = recorded(lambda: train(model, tokens), tmp_path, dense=True)
    assert matrix_flop(ops, kind="attention") == decoder(3, 32, **MODERN, gated=True)[1] * 7 // 2


RESNET18_MACS = (
    112**2 * 64 * 3 * 49  # the 7x7 convolution
    + 4 * 56**2 * 64 * 64 * 9  # stage 1: two blocks of two
    + sum(
        side**2 * wide * ((wide // 2) * 9 + 3 * wide * 9 + wide // 2)  # stages 2 to 4: four convolutions, one projection
        for side, wide in ((28, 128), (14, 256), (7, 512))
    )
    + 512 * 1000
)


def test_resnet18(tmp_path: Path) -> None:
    # GIVEN ResNet-18 on one image of 224x224: 1.81 GMAC, as its paper and the model zoos say
    assert RESNET18_MACS == 1_814_073_344
    ops = recorded(lambda: train(resnet18(), torch.randn(1, 3, 224, 224)), tmp_path)
    # THEN forward is 2 FLOP per multiply-add; backward twice that, but for the image, which needs no gradient
    assert matrix_flop(ops, direction="fwd") == 2 * RESNET18_MACS
    assert matrix_flop(ops, direction="bwd") == 2 * (2 * RESNET18_MACS - 112**2 * 64 * 3 * 49)
    assert matrix_flop(ops, kind="gemm") == 3 * 2 * 512 * 1000
    assert ops.loc[ops["kind"] == "conv", "modeled"].all()


@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (2, 4)])
def test_a_bottleneck_block(tmp_path: Path, stride: int, groups: int) -> None:
    # GIVEN the block 64 -> 32 -> 32 -> 128 of ResNet-50 (ResNeXt with groups) on 2 images of 16x16
    block = bottleneck(64, 32, stride, groups)
    x = torch.randn(2, 64, 16, 16, requires_grad=True)
    ops = recorded(lambda: train(block, x), tmp_path)
    out = (16 // stride) ** 2
    macs = 2 * (256 * 64 * 32 + out * 32 * 32 * 9 // groups + out * 32 * 128 + out * 64 * 128)
    assert matrix_flop(ops, direction="fwd") == 2 * macs
    assert matrix_flop(ops) == 6 * macs
