"""Writes `simulated_serving/`: a language model served on one SIMULATED MI300X, the capture of its graphs, and `truth.json`.

    python samples/simulate_serving.py [FOLDER]

Nothing here was measured. A prefill runs eagerly; a mixed iteration replays three pieces with eager attention between them; decode replays
one graph, but for the one whose batch no graph was captured for. `capture_traces/` holds what the engine wrote when it captured the graphs:
FULL ones for 8 and 16 requests in one recording, with annotations, and the pieces for 64 tokens in another, named by a list.
Sums that a reader must find stand in `truth.json`. Everything is integer nanoseconds and the same on every machine.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.trace_builder import Json, TraceBuilder

FOLDER = "simulated_serving"
TRACE = "rank0_4000.1700000000000000000.pt.trace.json.gz"
FULL_FILE = "graph_capture_rank_0_full.pt.trace.json.gz"
PIECES_FILE = "graph_capture_rank_0_pieces.pt.trace.json.gz"
HIDDEN, HEADS, HEAD, LAYERS, VOCABULARY = 4096, 32, 128, 2, 32_000
FULL, PIECEWISE, EAGER = "FULL", "PIECEWISE", "eager"
BANDWIDTH = 5_300
"""Bytes per nanosecond of the device's memory."""
SHARE = 0.6
"""Of its limit that every kernel reaches here."""

Emit = Callable[[str, str, list[Json], int], None]
"""Emits one operator: its name, its kernel, sizes of its inputs, time of the kernel in ns."""


def moved(elements: int) -> int:
    """Time of a kernel that moves so many bf16 elements."""
    return int(2 * elements / (BANDWIDTH * SHARE)) + 2_000


def norm(emit: Emit, rows: int) -> None:
    emit("vllm::rms_norm", "rms_norm_kernel", [[rows, HIDDEN], [HIDDEN]], moved(2 * rows * HIDDEN))


def matmul(emit: Emit, rows: int, wide: int, deep: int) -> None:
    kernel = f"Cijk_Alik_Bljk_BBS_BH_MT{16 if rows <= 16 else 64}x256x64_MI16x16x1_SN_{wide}"
    emit("aten::mm", kernel, [[rows, deep], [deep, wide]], moved(wide * deep + rows * (wide + deep)))


def attention(emit: Emit, rows: int, keys: int) -> None:
    sizes: list[Json] = [[rows, HEADS, HEAD]] * 3
    emit("vllm::unified_attention", "kernel_unified_attention_3d", sizes, moved(2 * keys * HEADS * HEAD + 2 * rows * HIDDEN))


def before_attention(emit: Emit, rows: int) -> None:
    norm(emit, rows)
    matmul(emit, rows, 3 * HIDDEN, HIDDEN)


def after_attention(emit: Emit, rows: int) -> None:
    matmul(emit, rows, HIDDEN, HIDDEN)
    norm(emit, rows)
    matmul(emit, rows, 4 * HIDDEN, HIDDEN)
    matmul(emit, rows, HIDDEN, 4 * HIDDEN)


class Recorder:
    """One recording: emits events, and keeps the sums that must be found in it."""

    def __init__(self) -> None:
        self.t = TraceBuilder(device="AMD Instinct MI300X", pid=4000, rank=0, world_size=1)
        self.now = self.free = 0
        self.operators: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.modules: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.launches: list[dict[str, object]] = []
        self.iterations: list[dict[str, object]] = []
        self.inside = ""
        self.device = [0, 0]

    def module(self, name: str, number: int, inside: Callable[[], None]) -> None:
        start, outer = self.now, self.inside
        self.inside = name
        self.now += 1_000
        inside()
        self.now += 500
        self.inside = outer
        self.t.module(name, start, self.now - start, module_id=number)

    def ran(self, operator: str, duration: int) -> None:
        """Adds one call of an operator and the kernel that it launched, to the sums."""
        self.operators[operator][0] += 1
        self.operators[operator][1] += duration
        if self.inside:
            self.modules[self.inside][1] += duration
        self.device[0] += 1
        self.device[1] += duration

    def call(self, kernel: str, api: str = "hipModuleLaunchKernel") -> int:
        """A launch, which this recorder writes with the name of the kernel."""
        correlation = self.t.call(api, self.now, 3_000)
        args = self.t.events[-1]["args"]
        assert isinstance(args, dict)
        args["kernel"] = kernel
        self.now += 3_500
        return correlation

    def op(self, name: str, sizes: list[Json], launch: Callable[[], None]) -> None:
        start = self.now
        self.now += 2_000
        launch()
        self.now += 1_000
        self.t.op(name, start, self.now - start, shapes=sizes, types=["c10::BFloat16"] * len(sizes))

    def eager(self, operator: str, kernel: str, sizes: list[Json], duration: int) -> None:
        def launch() -> None:
            correlation = self.call(kernel)
            self.run(kernel, duration, correlation)

        self.op(operator, sizes, launch)
        self.ran(operator, duration)

    def captured(self, operator: str, kernel: str, sizes: list[Json], duration: int) -> None:
        self.op(operator, sizes, lambda: self.call(kernel) and None)

    def run(self, kernel: str, duration: int, correlation: int) -> None:
        start = max(self.now + 2_000, self.free)
        self.t.kernel(kernel, start, duration, correlation=correlation, blocks_per_sm=None, warps_per_sm=None, occupancy=None)
        self.free = start + duration

    def replay(self, work: Callable[[Emit, int], None], mode: str, batch: int, captured: int) -> None:
        """One graph launch of what was captured for a batch of `captured`."""
        correlation = self.t.call("hipGraphLaunch", self.now, 40_000)
        before = list(self.device)

        def emit(operator: str, kernel: str, sizes: list[Json], duration: int) -> None:
            self.run(kernel, duration, correlation)
            self.ran(operator, duration)

        self.layers(work, emit, captured, quiet=True)
        self.now += 45_000
        events, time = (now - then for now, then in zip(self.device, before, strict=True))
        self.launches.append(
            {"mode": mode, "batch": batch, "captured_batch": captured, "events": events, "device_ns": time}
        )  # fmt: skip

    def layers(self, work: Callable[[Emit, int], None], emit: Emit, rows: int, *, quiet: bool = False) -> None:
        """Emits work inside of a module call, of which only the sums are kept where it is replayed."""
        if not quiet:
            return self.module("Decoder_0", 0, lambda: work(emit, rows))
        self.inside = "Decoder_0"
        work(emit, rows)
        self.inside = ""
        return None

    def capture(self, work: Callable[[Emit, int], None], batch: int, mode: str, *, annotated: bool) -> None:
        """One stream capture."""
        start = self.now
        self.now += 5_000
        self.t.call("hipStreamBeginCapture", self.now, 1_000)
        self.now += 2_000
        self.layers(work, self.captured, batch)
        self.t.call("hipStreamEndCapture", self.now, 5_000)
        self.now += 10_000
        if annotated:
            self.t.annotation(f"capture_{batch}_{mode}", start, self.now - start)
        self.now += 20_000


KEYS = 4_000
"""Keys that the attention of an iteration sees, those of all its requests together, while any decodes."""


def whole(emit: Emit, rows: int, keys: int = KEYS) -> None:
    for _ in range(LAYERS):
        before_attention(emit, rows)
        attention(emit, rows, keys)
        after_attention(emit, rows)
    norm(emit, rows)


def between_attentions(emit: Emit, rows: int) -> None:
    after_attention(emit, rows)
    before_attention(emit, rows)


def last_piece(emit: Emit, rows: int) -> None:
    after_attention(emit, rows)
    norm(emit, rows)


PIECES: tuple[Callable[[Emit, int], None], ...] = (before_attention, between_attentions, last_piece)


def iteration(r: Recorder, context: int, context_tokens: int, requests: int, captured: int, mode: str, gap: int) -> None:
    """One iteration of the engine. captured: batch that its graphs were captured for; 0 where it runs eagerly."""
    r.now += gap
    start, before, launches = r.now, list(r.device), len(r.launches)
    tokens = context_tokens + requests
    r.now += 30_000
    if mode == FULL:
        r.replay(whole, FULL, requests, captured)
        r.modules["Decoder_0"][0] += 1
    elif mode == PIECEWISE:
        for k, piece in enumerate(PIECES):
            r.replay(piece, PIECEWISE, tokens, captured)
            r.modules["Decoder_0"][0] += 1
            if k < LAYERS:
                attention(r.eager, tokens, KEYS)
    else:
        r.modules["Decoder_0"][0] += 1
        r.layers(partial(whole, keys=KEYS if requests else context_tokens), r.eager, tokens)
    r.modules["LMHead_0"][0] += 1
    r.module("LMHead_0", 1, lambda: matmul(r.eager, context + requests, VOCABULARY, HIDDEN))
    r.eager("aten::argmax", "reduce_kernel", [[context + requests, VOCABULARY]], moved((context + requests) * VOCABULARY))
    at = r.now
    r.now = max(r.now + 2_000, r.free + 5_000)  # the sampled tokens are awaited
    r.t.call("hipStreamSynchronize", at, r.now - at)
    keys = (context_tokens, KEYS - context_tokens if requests else 0)
    lengths = [f"sq{n}sk{k}sqsq{n * n}sqsk{n * k}" for n, k in zip((context_tokens, requests), keys, strict=True)]
    name = f"execute_{tokens}_context_{context}({lengths[0]})_generation_{requests}({lengths[1]})"
    r.t.annotation(name, start, r.now - start)
    kind = "mixed" if context and requests else "prefill" if context else "decode"
    r.iterations.append({
        "kind": kind, "requests": context + requests, "context_tokens": context_tokens, "generation_tokens": requests,
        "batch": requests if kind == "decode" else tokens, "graphs": len(r.launches) - launches, "mode": mode,
        "captured_batch": captured or None, "wall_ns": r.now - start, "gap_before_ns": gap if len(r.iterations) else None,
        "device_events": r.device[0] - before[0], "device_ns": r.device[1] - before[1],
    })  # fmt: skip


def serve() -> Recorder:
    """Returns the recording of the iterations."""
    r = Recorder()
    iteration(r, 2, 300, 0, 0, EAGER, 10_000)
    for requests in (2, 2, 6):
        iteration(r, 0, 0, requests, 8, FULL, 60_000)
    iteration(r, 1, 40, 6, 64, PIECEWISE, 90_000)
    for requests in (7, 8, 9, 12):
        iteration(r, 0, 0, requests, 8 if requests <= 8 else 16, FULL, 60_000)
    iteration(r, 0, 0, 20, 0, EAGER, 60_000)
    iteration(r, 0, 0, 12, 16, FULL, 400_000)
    return r


def captures() -> tuple[Recorder, Recorder]:
    """Returns the recordings of the capture of FULL graphs and of pieces."""
    full, pieces = Recorder(), Recorder()
    for batch in (16, 8):
        full.capture(whole, batch, FULL, annotated=True)
    for piece in PIECES:
        pieces.capture(piece, 64, PIECEWISE, annotated=False)
    return full, pieces


def main(folder: Path) -> None:
    """Write the recordings and the truth into a folder."""
    served, (full, pieces) = serve(), captures()
    for recorder, path in ((served, TRACE), (full, f"capture_traces/{FULL_FILE}"), (pieces, f"capture_traces/{PIECES_FILE}")):
        recorder.t.header |= {"traceName": "recording.json", "simulated": 1}
        recorder.t.write(folder / path)
    details = [{"file": PIECES_FILE, "batch_size": 64, "mode": PIECEWISE}]
    (folder / "capture_traces" / "execution_details.json").write_text(json.dumps(details, indent=1) + "\n")
    truth = {
        "device_events": served.device[0], "device_ns": served.device[1], "iterations": served.iterations, "launches": served.launches,
        "operators": {name: dict(zip(("calls", "device_self_ns"), v, strict=True)) for name, v in sorted(served.operators.items())},
        "modules": {name: dict(zip(("calls", "device_total_ns"), v, strict=True)) for name, v in sorted(served.modules.items())},
    }  # fmt: skip
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / FOLDER)
