"""MFU, HFU and bandwidth utilization against values worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from tb_sol_plugin.devices.catalog import table
from tb_sol_plugin.metrics.work.sums import utilization

H100 = table()["H100_SXM"]


def _ops(*rows: tuple[float | None, float | None, str, bool]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["flop", "bytes", "dtype", "recompute"])
    return frame.assign(dtype=frame["dtype"].astype("category"), modeled=True)


def test_recomputed_work_counts_in_hfu_alone() -> None:
    # GIVEN 989.4e9 FLOP in BF16 (1 ms at the peak of 989.4 TFLOP/s), a third of it again, over 4 ms
    ops = _ops((989.4e9, 3.35e9, "bf16", False), (329.8e9, 3.35e9, "bf16", True))
    used = utilization(ops, H100, 4_000_000)
    assert used.mfu == pytest.approx(1 / 4)
    assert used.hfu == pytest.approx((1 + 1 / 3) / 4)
    # 6.7 GB at 3.35 TB/s are 2 ms
    assert used.bandwidth_utilisation == pytest.approx(0.5)
    assert (used.model_flop, used.recompute_flop, used.dtype) == (989_400_000_000, 329_800_000_000, "bf16")


def test_types_are_summed_as_time_at_their_own_peak() -> None:
    # GIVEN 1 ms of BF16 work and 1 ms of TF32 work (494.7 TFLOP/s), over 4 ms of two devices
    ops = _ops((989.4e9, None, "bf16", False), (494.7e9, None, "tf32", False))
    used = utilization(ops, H100, 4_000_000, devices=2)
    assert used.mfu == used.hfu == pytest.approx(0.25)
    assert used.bandwidth_utilisation is None


def test_utilization_is_unknown_without_work_peak_or_time() -> None:
    ops = _ops((1e12, 1e9, "bf16", False))
    assert utilization(ops, None, 1000).mfu is None
    assert utilization(ops, None, 1000).model_flop == 1_000_000_000_000
    assert utilization(ops, H100, 0).mfu is None
    assert utilization(_ops((None, 1e9, "bf16", False)), H100, 1_000_000).mfu is None
    # a type without a peak is in no ratio, and counted apart
    mixed = utilization(_ops((989.4e9, None, "bf16", False), (7e9, None, "complex64", False)), H100, 1_000_000)
    assert mixed.mfu == pytest.approx(1.0)
    assert mixed.without_peak_flop == 7_000_000_000
