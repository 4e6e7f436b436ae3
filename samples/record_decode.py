#!/usr/bin/env python3
"""Records the CPU sample of inference: a small decoder reads four prompts, then makes six tokens of each, one iteration at a time.

    python samples/record_decode.py         # writes into the folder of this file; needs torch and a C++ compiler, no GPU, a minute

Each iteration stands in an annotation that says its kind, requests and tokens, in the spelling that serving engines use: so it is a step
on every page, and *Serving* reads it. Prefill runs eagerly, decode is compiled: its operators are the kernels that Inductor wrote, and the
products that it leaves to a library. Keys and values of a request stand in a cache of fixed length, so that decode is compiled once.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import torch
from record_cpu import stripped
from small_llama import SmallLlama, angles, rotated
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

HERE = Path(__file__).resolve().parent
RUN = "cpu_decode"
REQUESTS, PROMPT, TOKENS = 4, 48, 6
ROOM = PROMPT + TOKENS + 2
"""Tokens of each request for which the cache has room: those of the prompt, of the recording, and of the warm-up."""


class Decoder(nn.Module):
    """The layers of a small LLaMA over a cache of keys and values; returns the next token of each request."""

    def __init__(self, model: SmallLlama) -> None:
        super().__init__()
        self.model = model
        attention = model.layers[0].attention
        width = model.config.hidden_size // attention.heads
        shape = (len(model.layers), 2, REQUESTS, attention.kv_heads, ROOM, width)
        self.register_buffer("cache", torch.zeros(shape))
        self.register_buffer("rotation", angles(ROOM, width))

    def forward(self, tokens: Tensor, at: Tensor) -> Tensor:
        """tokens: [requests, length], at their places `at` [length]. Returns [requests, 1]."""
        x = self.model.embedding(tokens)
        seen = torch.arange(ROOM)[None, :] <= at[:, None]
        for layer, cache in zip(self.model.layers, self.cache, strict=True):
            x = x + self.attended(layer.attention, layer.norm1(x), cache, at, seen)
            x = x + layer.feed_forward(layer.norm2(x))
        return torch.argmax(self.model.head(self.model.norm(x[:, -1:])), dim=-1)

    def attended(self, own: nn.Module, x: Tensor, cache: Tensor, at: Tensor, seen: Tensor) -> Tensor:
        """Attention of new tokens over all that the cache holds; their own keys and values are written to it first."""
        rotation = self.rotation[:, at]
        q, k, v = (
            made(x).view(REQUESTS, len(at), heads, -1).transpose(1, 2)
            for made, heads in ((own.q_proj, own.heads), (own.k_proj, own.kv_heads), (own.v_proj, own.kv_heads))
        )
        cache[0].index_copy_(2, at, rotated(k, rotation))
        cache[1].index_copy_(2, at, v)
        out = nn.functional.scaled_dot_product_attention(rotated(q, rotation), cache[0], cache[1], attn_mask=seen, enable_gqa=True)
        return own.o_proj(out.transpose(1, 2).flatten(2))


@torch.inference_mode()
def serve(decoder: Decoder, decode: nn.Module, prompts: Tensor, tokens: int, first: int) -> None:
    """One prefill, then `tokens` iterations of decode, the first of them for place `first`."""
    with record_function(f"prefill[bs={REQUESTS} tok={prompts.numel()}]"):
        now = decoder(prompts, torch.arange(PROMPT))
    for k in range(tokens):
        with record_function(f"decode[bs={REQUESTS} tok={REQUESTS}]"):
            now = decode(now, torch.tensor([first + k]))


def main() -> None:
    torch.set_num_threads(1)  # small work: a second thread would mostly wait
    torch.manual_seed(0)
    decoder = Decoder(SmallLlama(width=256, layers=2, vocabulary=4096, inner=688, heads=8, kv_heads=2)).eval()
    decode = torch.compile(decoder, dynamic=False)
    prompts = torch.randint(0, 4096, (REQUESTS, PROMPT))
    serve(decoder, decode, prompts, 2, PROMPT + TOKENS)  # compiles, and warms up
    folder = HERE / RUN
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.pt.trace.json.gz"):
        old.unlink()
    raw = folder / "recording.json"
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        serve(decoder, decode, prompts, TOKENS, PROMPT)
    profiler.export_chrome_trace(str(raw))
    text = stripped(raw.read_text())
    raw.unlink()
    target = folder / "worker0.1795800000000000000.pt.trace.json.gz"
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{target.relative_to(HERE)}  {target.stat().st_size / 1e3:.0f} kB, {len(text) / 1e6:.1f} MB unpacked", file=sys.stderr)


if __name__ == "__main__":
    main()
