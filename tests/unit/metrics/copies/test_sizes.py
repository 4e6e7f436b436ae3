"""The histogram of sizes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.metrics.copies import bandwidth, records

MIB = 1 << 20


def test_bins_have_inclusive_upper_ends() -> None:
    # GIVEN sizes on both sides of every edge, one of no bytes, one that was not recorded
    size = [0, 4096, 4097, 65536, 65537, MIB, MIB + 1, 16 * MIB, 16 * MIB + 1, 256 * MIB, 256 * MIB + 1, -1]
    frame = pd.DataFrame({"direction": "HtoD", "bytes": size, "duration_ns": 10})
    found = bandwidth.sizes(frame)
    # THEN two in each bin and one in the last; the one without a size is in none
    assert found["bin"].tolist() == [0, 1, 2, 3, 4, 5] and found["count"].tolist() == [2, 2, 2, 2, 2, 1]
    assert found["bytes"].tolist() == [4096, 4097 + 65536, 65537 + MIB, 17 * MIB + 1, 272 * MIB + 1, 256 * MIB + 1]
    assert len(records.BINS) == len(records.EDGES) + 1


def test_bandwidth_is_bytes_over_time_per_bin_and_direction() -> None:
    frame = pd.DataFrame(
        {"direction": ["DtoH", "HtoD", "HtoD", "HtoD"], "bytes": [100, 1000, 3000, MIB], "duration_ns": [0, 100, 300, 20_000]}
    )
    found = pd.DataFrame(bandwidth.sizes(frame)).set_index(["direction", "bin"])
    assert found.index.tolist() == [("HtoD", 0), ("HtoD", 2), ("DtoH", 0)]  # directions in order of display
    assert found.loc[("HtoD", 0), "bandwidth_bytes_per_s"] == pytest.approx(10e9)  # 4,000 B in 400 ns
    assert np.isnan(found.loc[("DtoH", 0), "bandwidth_bytes_per_s"])  # no time, no rate


def test_no_copy_gives_an_empty_histogram() -> None:
    frame = pd.DataFrame({"direction": np.array([], object), "bytes": np.array([], np.int64), "duration_ns": np.array([], np.int64)})
    assert not any(len(values) for values in bandwidth.sizes(frame).values())
