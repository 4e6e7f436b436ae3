"""What speed of light costs once a recording is open: models per signature, ownership and limits per call, the roofline page.

    python -m benchmarks.modeling [--calls 100000] [--signatures 1000] [--repeats 5] [FILE...]

Without a file a made-up recording is used: `--calls` operator calls (products, additions, norms, softmax, copies over different
sizes) with `--signatures` distinct signatures, one kernel each. Every stage runs in this one process on one thread; medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.costs import costs
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import encode

Answer = TypeVar("Answer")
GROUPINGS = ("op_shape", "op", "kernel", "module", "phase")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.modeling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--signatures", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tb-sol-bench-") as folder:
        files = options.files or [made_up(Path(folder) / "calls.pt.trace.json", options.calls, options.signatures)]
        for path in files:
            show(path, options.repeats)


def made_up(path: Path, calls: int, signatures: int) -> Path:
    """A recording of `calls` operators on an H100, each with one kernel, in turn with one of `signatures` sets of arguments."""
    kinds = (
        ("aten::mm", lambda n: [[64 + n, 256], [256, 128]]),
        ("aten::add", lambda n: [[64 + n, 256], [64 + n, 256]]),
        ("aten::native_layer_norm", lambda n: [[64 + n, 256], [], [256], [256], []]),
        ("aten::_softmax", lambda n: [[64 + n, 256], [], []]),
        ("aten::copy_", lambda n: [[64 + n, 256], [64 + n, 256]]),
    )
    events: list[dict[str, object]] = []
    for at in range(calls):
        name, sizes = kinds[at % signatures % len(kinds)]
        shapes = sizes(at % signatures)
        strides = [[s[1], 1] if len(s) == 2 else [1] * len(s) for s in shapes]
        types = ["c10::BFloat16" if shape else "Scalar" for shape in shapes]
        host = {"pid": 1, "tid": 1, "ph": "X"}
        events += [
            {**host, "cat": "cpu_op", "name": name, "ts": 10 * at, "dur": 8,
             "args": {"Input Dims": shapes, "Input type": types, "Input Strides": strides, "Concrete Inputs": [""] * len(shapes)}},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10 * at + 1, "dur": 2, "args": {"correlation": at + 1}},
            {"ph": "X", "cat": "kernel", "name": f"kernel_{name[6:]}", "pid": 0, "tid": 7, "ts": 10 * at + 5, "dur": 4,
             "args": {"device": 0, "stream": 7, "correlation": at + 1, "grid": [at % 7 + 1, 1, 1], "block": [256, 1, 1]}},
        ]  # fmt: skip
    memory = 85_000_000_000
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": memory, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": events}))
    return path


def show(path: Path, repeats: int) -> None:
    """Print the stages of one recording."""
    capture = read(str(path))
    spec = device_for(capture)
    stages: dict[str, Callable[[Capture], object]] = {
        "costs, one per signature": costs,
        "calls, owners and limits": lambda c: work(c, spec),
    }
    print(f"{path.name}: {len(capture.tables['operators']):,} calls with arguments, {len(costs(capture).costs):,} modeled signatures")
    timed: dict[str, list[float]] = {}
    for _ in range(repeats):
        capture.memo.clear()
        for label, stage in stages.items():
            timed.setdefault(label, []).append(seconds(lambda stage=stage: stage(capture))[0])  # type: ignore[misc]
        for by in GROUPINGS:
            first, report = seconds(lambda by=by: answer_capture("roofline", capture, {"by": by}))  # type: ignore[misc]
            timed.setdefault(f"roofline by {by}, as answered", []).append(first + seconds(lambda r=report: encode(r))[0])  # type: ignore[misc]
    for label, values in timed.items():
        print(f"  {label:40} {statistics.median(values) * 1e3:8.1f} ms")


def seconds(call: Callable[[], Answer]) -> tuple[float, Answer]:
    """(seconds of wall clock, answer)."""
    clock = time.perf_counter()
    answer = call()
    return time.perf_counter() - clock, answer


if __name__ == "__main__":
    main()
