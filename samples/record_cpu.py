#!/usr/bin/env python3
"""Records the CPU samples: a small transformer and a small CNN in training, the CNN twice so that there is something to compare.

    python samples/record_cpu.py            # writes into the folder of this file; needs torch, no GPU, less than a minute

What a recording needs to be worth looking at is in `recorded` below: shapes, stacks, memory, a few steps after a warm-up, and
`record_function` around the phases of a step (a `/` in a name nests it).
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from small_model import Block
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, TensorDataset

HERE = Path(__file__).resolve().parent
STEPS = 4


class Transformer(nn.Module):
    """A language model of the usual shape, small."""

    def __init__(self, vocabulary: int = 2048, width: int = 256, layers: int = 3, heads: int = 4, length: int = 128) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        with record_function("forward/embedding"):
            x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        with record_function("forward/blocks"):
            for block in self.blocks:
                x = block(x)
        with record_function("forward/head"):
            return self.head(self.norm(x))


def cnn() -> nn.Module:
    """Three stages of convolution, normalization and pooling, then a classifier."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def train(
    model: nn.Module, batches: Iterator[tuple[Tensor, ...]], loss_of: Callable[[Tensor, Tensor], Tensor], done: Callable[[], None]
) -> None:
    """Training steps with their phases named; `done` after each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for inputs, target in batches:
        with record_function("forward"):
            prediction = model(inputs)
            with record_function("forward/loss"):
                loss = loss_of(prediction, target)
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            with record_function("optimizer/clip"):
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        done()


def recorded(run: str, work: Callable[[Callable[[], None]], None]) -> None:
    """Run `work(done)` under the profiler and write `run/worker0.<time>.pt.trace.json.gz`."""
    folder = HERE / run
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.pt.trace.json.gz"):
        old.unlink()
    raw = folder / "recording.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=2, active=STEPS, repeat=1),
        record_shapes=True,
        with_stack=True,
        profile_memory=True,
        on_trace_ready=lambda p: p.export_chrome_trace(str(raw)),
    ) as profiler:
        work(profiler.step)
    text = stripped(raw.read_text())
    trace = json.loads(text)
    began = trace["baseTimeNanoseconds"] + int(min(e["ts"] for e in trace["traceEvents"] if e["ph"] == "X") * 1000)
    raw.unlink()
    target = folder / f"worker0.{began}.pt.trace.json.gz"
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{target.relative_to(HERE)}  {target.stat().st_size / 1e6:.2f} MB, {len(text) / 1e6:.1f} MB unpacked", file=sys.stderr)


def stripped(text: str) -> str:
    """Returns the recording without host name, folders and object addresses of the machine."""
    text = re.sub(r'^.*"host_name":.*\n', "", text, flags=re.M)
    text = re.sub(r'("traceName": )"[^"]*"', r'\1"recording.json"', text)
    text = re.sub(r'(?<=")/[^"():]*?/(?=(?:samples|torch|site-packages|lib/python[\d.]*)/)', "", text)
    text = re.sub(r"(?<=[\" ])(?:/[\w.+-]+)+/(?=[\w.+-]+\.py\()", "", text)
    return re.sub(r"\b0x[0-9a-f]{6,}", "0x0", text)


def loader(data: tuple[Tensor, ...], batch: int) -> Iterator[tuple[Tensor, ...]]:
    """Batches of a fixed data set, shuffled in the same order every time."""
    order = torch.Generator().manual_seed(0)
    return iter(DataLoader(TensorDataset(*data), batch_size=batch, shuffle=True, generator=order, drop_last=True))


def transformer_run(done: Callable[[], None]) -> None:
    torch.manual_seed(0)
    tokens = torch.randint(0, 2048, (8 * (STEPS + 2), 129))
    batches = loader((tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()), 8)
    train(Transformer(), batches, lambda p, t: nn.functional.cross_entropy(p.flatten(0, 1), t.flatten()), done)


def cnn_run(memory_format: torch.memory_format) -> Callable[[Callable[[], None]], None]:
    def work(done: Callable[[], None]) -> None:
        torch.manual_seed(0)
        images = torch.rand(16 * (STEPS + 2), 3, 64, 64)
        batches = loader((images.to(memory_format=memory_format), torch.randint(0, 10, (len(images),))), 16)
        train(cnn().to(memory_format=memory_format), batches, nn.functional.cross_entropy, done)

    return work


def main() -> None:
    torch.set_num_threads(2)
    recorded("cpu_transformer", transformer_run)
    recorded("cpu_cnn/baseline", cnn_run(torch.contiguous_format))
    recorded("cpu_cnn/channels_last", cnn_run(torch.channels_last))


if __name__ == "__main__":
    main()
