"""One step of a training loop, written down by hand, on a device with round figures. Its estimates in µs:

    aten::mm   Linear a     fwd  train/forward   F.linear      max(2e9 / 100e12, 10e6 / 1e12) = max(20, 10) = 20   2 calls
    aten::mm   Linear a     bwd  train/backward                max(4e9 / 100e12, 20e6 / 1e12) = max(40, 20) = 40   4 calls
    layer norm LayerNorm n  fwd  train/forward   F.layer_norm  max(1e6 / 5e12, 8e6 / 1e12)    = max(0.2, 8) =  8   1 call
    aten::mm   Linear a     fwd  train/backward  F.linear      max(1e9 / 100e12, 5e6 / 1e12)  = max(10, 5)  = 10   1 call, recomputed
    aten::add                                                  max(1e6 / 5e12, 12e6 / 1e12)   = max(0.2, 12) = 12  1 call
    my::op                                                     unknown                                             1 call

Measured, where operations are timed singly: 40, 50, 16, 20, 10 and 5 µs.
"""

from __future__ import annotations

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.loop.schedule import StepRecord
from tb_sol_plugin.capture.operation_registry import DataType, OpRecord, OpType


def device(**changed: object) -> DeviceSpec:
    """BF16 100 TFLOP/s (200 sparse), TF32 50, FP32 10, vector 5; 1 TB/s."""
    figures: dict[str, object] = {
        "name": "ROUND",
        "memory_bandwidth_bytes_per_sec": 1e12,
        "peak_flops": {DataType.BF16: 100e12, DataType.TF32: 50e12, DataType.FP32: 10e12},
        "peak_flops_sparse": {DataType.BF16: 200e12},
        "peak_flops_vector": {DataType.FP32: 5e12, DataType.FP64: 2.5e12},
        "vendor": "cpu",
    }
    return DeviceSpec(**{**figures, **changed})  # type: ignore[arg-type]


def gpu(**changed: object) -> DeviceSpec:
    """The same figures of a GPU."""
    return device(**{"vendor": "nvidia", **changed})


def op(name: str = "aten::mm", kind: OpType = OpType.MATMUL, **fields: object) -> OpRecord:
    """A record in BF16 without work, but for what is given."""
    plain: dict[str, object] = {"dtype": DataType.BF16, "flops": 0, "flops_vector": 0, "bytes": 0, "input_shapes": [(8, 4), (4, 8)]}
    return OpRecord(name, kind, **{**plain, **fields})  # type: ignore[arg-type]


def records(*, timed: bool = True) -> list[OpRecord]:
    """The step of the docstring; timed: with a time for each record."""
    linear = {"layer_name": "net.a", "layer_type": "Linear", "module_context": "net.a"}
    rows = [
        op(flops=2_000_000_000, bytes=10_000_000, count=2, phase="train/forward", func_name="F.linear", **linear),
        op(flops=4_000_000_000, bytes=20_000_000, count=4, phase="train/backward", direction="bwd", **linear),
        op(
            "aten::native_layer_norm", OpType.LAYERNORM, flops_vector=1_000_000, bytes=8_000_000, phase="train/forward",
            func_name="F.layer_norm", layer_name="net.n", layer_type="LayerNorm",
        ),
        op(flops=1_000_000_000, bytes=5_000_000, phase="train/backward", func_name="F.linear", is_recompute=True, **linear),
        op("aten::add", OpType.ELEMENTWISE, flops_vector=1_000_000, bytes=12_000_000),
        op("my::op", OpType.OTHER, flops=None, flops_vector=None, bytes=None),
    ]  # fmt: skip
    for row, time in zip(rows, (40.0, 50.0, 16.0, 20.0, 10.0, 5.0), strict=True):
        row.measured_time_us = time if timed else None
    return rows


def step(iteration: int = 7, *, device_us: float | None = None, wall_us: float = 200.0) -> StepRecord:
    """200 µs by wall clock; device_us between events, if any."""
    device_ns = None if device_us is None else round(device_us * 1e3)
    return StepRecord(iteration, duration_ns=round(wall_us * 1e3), device_ns=device_ns, sampled=True)
