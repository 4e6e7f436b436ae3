"""The small decoder of the samples, whose parameters are those of the closed form, and ways to train it. Imports torch where it is called."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from tb_sol_plugin.cost.transformer.memory import Model

SIZES = {"width": 64, "layers": 2, "vocabulary": 512, "inner": 160, "heads": 4, "kv_heads": 2}
MODEL = Model(hidden=64, layers=2, vocab=512, ffn=160, heads=4, kv_heads=2)
"""The same in the words of the memory plan."""
PARAMETERS = 2 * (2 * 64**2 * 3 // 2 + 3 * 64 * 160 + 2 * 64) + 2 * 64 * 512 + 64
"""L (2 h² (1 + g/a) + 3 h f + 2 h) + 2 h V + h, with g/a = 1/2."""
TENSORS = 2 * 9 + 3
"""Of each layer four matrices of the attention, three of the feed-forward, two norms; two tables and the last norm."""
BATCH, LENGTH = 4, 64


def small_llama(*, half: bool = False) -> Any:
    """The model, in FP32 or BF16."""
    import torch

    place = Path(__file__).resolve().parents[2] / "samples" / "small_llama.py"
    spec = importlib.util.spec_from_file_location("small_llama", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model = module.SmallLlama(**SIZES)
    return model.bfloat16() if half else model


def tokens() -> Any:
    import torch

    return torch.randint(0, SIZES["vocabulary"], (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(7))


def backward(model: Any) -> None:
    """Forward and backward of one batch."""
    from torch import nn

    batch = tokens()
    logits = model(batch[:, :-1].contiguous())
    nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten()).backward()


class Masters:
    """Adam over FP32 copies of the parameters of a model, as mixed precision with masters is done by hand."""

    def __init__(self, model: Any) -> None:
        import torch

        self.parameters = list(model.parameters())
        self.masters = [p.detach().float() for p in self.parameters]
        self.optimizer = torch.optim.AdamW(self.masters, foreach=False)

    def step(self) -> None:
        import torch

        for master, own in zip(self.masters, self.parameters, strict=True):
            master.grad = own.grad.float()
        self.optimizer.step()
        with torch.no_grad():
            for master, own in zip(self.masters, self.parameters, strict=True):
                own.copy_(master)

    def zero_grad(self) -> None:
        for one in (*self.masters, *self.parameters):
            one.grad = None
