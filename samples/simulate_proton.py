"""Makes the samples in `samples/proton`: profiles in the form that Proton writes, of a decoder that was never run.

    python samples/simulate_proton.py

Times follow from the published limits of an H100 SXM (989.4 TFLOP/s in 16 bit, 3.35 TB/s) and a share of them per kernel, so that each
efficiency that is shown was planted here. Nothing is random.
"""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "proton"
FLOPS, BYTES = 989.4e12, 3.352e12
H100 = {"arch": "90", "num_sms": 132, "clock_rate": 1_980_000, "memory_clock_rate": 2_619_000, "bus_width": 5120}
LAYERS, HIDDEN, WIDE, HEADS, STEPS = 4, 4096, 14336, 32, 64
BATCH, CONTEXT = 64, 2048
Frame = dict[str, object]


def scope(name: str, *children: Frame, **metrics: float) -> Frame:
    return {"children": list(children), "frame": {"name": name, "type": "function"}, "metrics": dict(metrics)}


def kernel(name: str, count: int, share: float, *, flop: float = 0.0, data: float = 0.0) -> Frame:
    """A kernel that reaches `share` of its limit; the work is that of all launches. Without work it takes 2 µs each."""
    limit = max(flop / FLOPS, data / BYTES) * 1e9
    metrics: dict[str, object] = {"count": count, "device_id": "0", "device_type": "CUDA"}
    metrics["time (ns)"] = round(limit / share) if limit else 2_000 * count
    metrics |= {n: v for n, v in (("flops16", flop), ("bytes", data)) if v}
    return {"children": [], "frame": {"name": name, "type": "function"}, "metrics": metrics}


def copy(name: str, count: int, size: int, rate: float) -> Frame:
    """`count` copies of `size` bytes at `rate` bytes per second."""
    time = round(count * size / rate * 1e9)
    metrics = {"bytes": count * size, "count": count, "device_id": "0", "device_type": "CUDA", "time (ns)": time}
    return {"children": [], "frame": {"name": name, "type": "function"}, "metrics": metrics}


def product(name: str, rows: int, inner: int, columns: int, share: float, count: int = STEPS) -> Frame:
    data = 2.0 * (rows * inner + inner * columns + rows * columns)
    return kernel(name, count, share, flop=2.0 * rows * inner * columns * count, data=data * count)


def layer(number: int) -> Frame:
    cache = 2.0 * 2 * BATCH * CONTEXT * HIDDEN  # keys and values of one layer
    return scope(
        f"layer {number}",
        kernel("_rms_norm_kernel", 2 * STEPS, 0.45, data=2.0 * 2 * BATCH * HIDDEN * 2 * STEPS),
        scope(
            "attention",
            product("_matmul_qkv", BATCH, HIDDEN, 3 * HIDDEN, 0.72),
            kernel("_rotary_kernel", STEPS, 0.30, data=2.0 * 4 * BATCH * HIDDEN * STEPS),
            kernel("_paged_attention_kernel", STEPS, 0.58, flop=4.0 * BATCH * CONTEXT * HIDDEN * STEPS, data=cache * STEPS),
            product("_matmul_out", BATCH, HIDDEN, HIDDEN, 0.66),
            copy("Memcpy DtoD (Device -> Device)", STEPS, 2 * BATCH * HIDDEN, 0.6e12),
        ),
        scope(
            "mlp",
            product("_matmul_up", BATCH, HIDDEN, 2 * WIDE, 0.81),
            kernel("_silu_and_mul_kernel", STEPS, 0.52, data=2.0 * 3 * BATCH * WIDE * STEPS),
            product("_matmul_down", BATCH, WIDE, HIDDEN, 0.79),
        ),
    )


def decode() -> Frame:
    """64 steps of decoding with a batch of 64, after the weights were loaded."""
    weights = LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * WIDE)  # a quarter of 2 bytes each comes from pageable memory
    return scope(
        "ROOT",
        scope(
            "load weights",
            copy("Memcpy HtoD (Pinned -> Device)", 24, weights * 3 // 2 // 24, 54e9),
            copy("Memcpy HtoD (Pageable -> Device)", 8, weights // 2 // 8, 11e9),
            copy("Memset (Device)", 8, 1 << 24, 1.5e12),
            **{"cpu_time (ns)": 131_000_000},
        ),
        scope("decode", *(layer(n) for n in range(LAYERS)), scope("__proton_launch_metadata", kernel("elementwise_kernel", 40, 1.0))),
        scope(
            "sample",
            product("_matmul_head", BATCH, HIDDEN, 32_000, 0.77),
            kernel("_softmax_kernel", STEPS, 0.35, data=2.0 * 2 * BATCH * 32_000 * STEPS),
            kernel("void at::native::(anonymous namespace)::multinomial_kernel<float>", STEPS, 1.0),
            copy("Memcpy DtoH (Device -> Pageable)", STEPS, 4 * BATCH, 0.09e9),
        ),
        count=0,
        **{"time (ns)": 0},
    )


def event(kind: str, name: str, lane: int, at: float, length: float, stack: list[str]) -> dict[str, object]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 0, "tid": lane, "ts": at, "dur": length, "args": {"call_stack": stack}}


def trace() -> dict[str, object]:
    """Two steps of a small loop as a trace: scopes of the host, two streams, flows."""
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "Trace"}},
        {"ph": "M", "pid": 0, "tid": 1, "name": "thread_name", "args": {"name": "CPU Thread 0"}},
        {"ph": "M", "pid": 0, "tid": 100, "name": "thread_name", "args": {"name": "GPU Stream 7"}},
        {"ph": "M", "pid": 0, "tid": 101, "name": "thread_name", "args": {"name": "GPU Stream 13"}},
    ]
    number = 0
    for step in range(2):
        begin = 1_000.0 * step
        for name, at, length, path in (("step", 0, 900, []), ("forward", 20, 300, ["step"]), ("backward", 340, 520, ["step"])):
            events.append(event("scope", name, 1, begin + at, length, ["ROOT", *path, name]))
        for kernel_name, at, length, lane, path in (
            ("_matmul_kernel", 60, 180, 100, "forward"), ("_gelu_kernel", 245, 40, 100, "forward"),
            ("_matmul_kernel", 380, 360, 100, "backward"), ("_reduce_kernel", 420, 90, 101, "backward"),
        ):  # fmt: skip
            number += 1
            launched = begin + (20 if path == "forward" else 340)
            flow = {"name": "launch->kernel", "cat": "flow", "pid": 0, "id": number, "bp": "e"}
            events += [
                {**flow, "ph": "s", "tid": 1, "ts": launched},
                {**flow, "ph": "f", "tid": lane, "ts": begin + at},
                event("kernel", kernel_name, lane, begin + at, length, ["ROOT", "step", path, kernel_name]),
            ]
    return {"displayTimeUnit": "us", "traceEvents": events}


def main(folder: Path = FOLDER) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "decode.hatchet").write_text(json.dumps([decode(), {"CUDA": {"0": H100}}], indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "loop.chrome_trace").write_text(json.dumps(trace(), sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
