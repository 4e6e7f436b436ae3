"""Latency and bandwidth from the times of copies, and when they cannot be told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.metrics.copies import bandwidth

MIB = 1 << 20


def frame(size: object, duration: object, *, direction: str = "HtoD", src: str = "Pinned", dst: str = "Device") -> pd.DataFrame:
    return pd.DataFrame(
        {"direction": direction, "src_kind": src, "dst_kind": dst, "bytes": np.asarray(size, np.int64),
         "duration_ns": np.rint(np.asarray(duration, np.float64)).astype(np.int64)}
    )  # fmt: skip


def only(found: pd.DataFrame) -> bandwidth.Fit:
    (one,) = bandwidth.fits(found)
    return one


def test_latency_and_rate_come_back_from_copies_that_mostly_waited() -> None:
    # GIVEN copies of 2 us plus bytes over 25 GB/s in four bins; nine tenths of them take 1.5 times as long
    size = np.repeat([1024, 32 << 10, 1 << 19, 8 << 20], 10)
    exact = 2001 + size / 25.0
    found = frame(size, exact * np.where(np.arange(40) % 10 == 0, 1.0, 1.5))
    fit = only(found)
    assert fit.latency_ns == pytest.approx(2001, rel=0.01) and fit.bytes_per_s == pytest.approx(25e9, rel=0.01)
    assert (fit.direction, fit.src_kind, fit.dst_kind, fit.bins, fit.copies, fit.why) == ("HtoD", "Pinned", "Device", 4, 40, "")
    assert fit.residual < 0.001
    assert bandwidth.latency_fit(found, "HtoD") == (fit.latency_ns, fit.bytes_per_s) and bandwidth.latency_fit(found, "DtoH") is None


@settings(deadline=None)
@given(
    st.floats(300, 20_000), st.floats(1, 2_000), st.integers(0, 2**32 - 1), st.integers(0, 1),
)  # fmt: skip
def test_the_fit_finds_any_latency_and_rate(latency: float, gb_per_s: float, seed: int, bad: int) -> None:
    # GIVEN a link of any latency and rate; 500 copies from 64 B to 256 MiB, each up to twice as long as it must be, and perhaps one far
    # too fast: recorded with a thousandfold of its bytes
    r = np.random.default_rng(seed)
    size = np.rint(2 ** r.uniform(6, 28, 500))
    time = (latency + size / gb_per_s) * r.uniform(1, 2, 500)
    size[:bad] = np.minimum(size[:bad] * 1000, 2**30)
    fit = only(frame(size, time + 0.3))
    # THEN what is told is right within a third: the fastest of 20 per octave takes 1.05 times the shortest time, now and then 1.3
    if not np.isnan(fit.bytes_per_s):
        assert fit.bytes_per_s == pytest.approx(gb_per_s * 1e9, rel=0.35)
    if not np.isnan(fit.latency_ns):
        assert fit.latency_ns == pytest.approx(latency, rel=0.35)
    # and where half of the time of the large copies is size, and of the small ones latency, both are told
    if not bad and latency > 500 and 2**28 / gb_per_s > 10 * latency and latency > 10 * 64 / gb_per_s:
        assert fit.why == ""


def test_one_wrong_size_of_copies_does_not_move_the_line() -> None:
    # GIVEN eight octaves on the line 1.5 us + bytes / 20 GB/s, all copies of one of them eight times as long
    size = 1024 * 4 ** np.arange(8)
    time = 1500 + size / 20.0
    time[4] *= 8
    fit = only(frame(size, time))
    assert fit.bytes_per_s == pytest.approx(20e9, rel=0.1) and fit.latency_ns == pytest.approx(1500, rel=0.1)


def test_pairs_of_kinds_have_lines_of_their_own() -> None:
    size = np.array([4096, 65536, MIB, 16 * MIB, 64 * MIB])
    parts = [frame(size, 1501 + size / 25), frame(size, 3001 + size / 10, src="Pageable"), frame(size, 901 + size / 700, direction="DtoD")]
    found = pd.concat(parts, ignore_index=True)
    assert [(f.direction, f.src_kind, round(f.latency_ns), round(f.bytes_per_s / 1e9, 1)) for f in bandwidth.fits(found)] == [
        ("HtoD", "Pageable", 3001, 10.0), ("HtoD", "Pinned", 1501, 25.0), ("DtoD", "Pinned", 901, 700.0),
    ]  # fmt: skip


def test_few_sizes_give_no_line() -> None:
    alike = only(frame([MIB] * 50, [50_001] * 50))
    assert (alike.bins, alike.copies) == (1, 50) and alike.why == "copies of 1 size bin only; three are needed"
    two = only(frame([1024, 2048, 8192, 65536], [1001, 1002, 1003, 1004]))
    assert two.bins == 2 and np.isnan(two.latency_ns) and np.isnan(two.bytes_per_s) and np.isnan(two.residual)


def test_times_that_do_not_grow_give_no_rate() -> None:
    flat = only(frame([1024, 65536, MIB, 16 * MIB], [5001, 5002, 5000, 5003]))
    falling = only(frame([1024, 65536, MIB, 16 * MIB], [9001, 5002, 3000, 2003]))
    for fit in (flat, falling):
        assert np.isnan(fit.bytes_per_s) and np.isnan(fit.latency_ns) and "do not grow" in fit.why


def test_a_fitted_rate_below_measured_ones_is_dropped() -> None:
    # GIVEN sets of memory of which a middle size takes another way: 16 KiB in 3 us, 4 MiB in 6
    size, time = np.array([4, 64, 3072, 15_360, 16_384, 4 * MIB]), np.array([1001, 1002, 1003, 3001, 3002, 6001])
    fit = only(frame(size, time, direction="Memset"))
    assert fit.why and (np.isnan(fit.bytes_per_s) or fit.bytes_per_s > 4 * MIB / 6001e-9 / 1.3)


def test_a_negative_latency_is_dropped_and_the_rate_stays() -> None:
    # GIVEN small copies that run faster than the rate of the large ones: a line through them starts below zero
    size = np.array([65536, 131072, 2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB])
    fit = only(frame(size, size / 25.0 - 300))
    assert np.isnan(fit.latency_ns) and fit.bytes_per_s == pytest.approx(25e9, rel=0.01) and "negative" in fit.why
    assert bandwidth.latency_fit(frame(size, size / 25.0 - 300), "HtoD") is None


def test_a_clock_of_whole_microseconds_hides_a_short_latency() -> None:
    # GIVEN copies inside a device of 1.2 us + bytes / 500 GB/s as a clock of microseconds writes them: 1, 1, 2, 3, 34, 269 us
    size = np.array([1024, 16 << 10, 256 << 10, MIB, 16 * MIB, 128 * MIB])
    exact = 1200 + size / 500.0
    rounded = only(frame(size, np.floor(exact / 1000) * 1000, direction="DtoD"))
    assert np.isnan(rounded.latency_ns) and "whole microseconds" in rounded.why
    assert rounded.bytes_per_s == pytest.approx(500e9, rel=0.05)
    # the same with nanoseconds tells it
    assert only(frame(size, exact, direction="DtoD")).latency_ns == pytest.approx(1200, rel=0.02)
    # and a latency of 8 us is seen with either clock
    slow = only(frame(size, np.floor((8200 + size / 500.0) / 1000) * 1000))
    assert slow.latency_ns == pytest.approx(8200, rel=0.15)


def test_what_has_no_size_no_time_or_an_impossible_size_is_left_out() -> None:
    size = np.array([1024, 65536, MIB, 64 * MIB, -1, 4096, 10**13])
    found = frame(size, np.concatenate((2001 + size[:4] / 25.8, [50, 0, 900])))
    found["oversize"] = found["bytes"] == 10**13
    fit = only(found)
    assert fit.copies == 4 and fit.why == "" and fit.bytes_per_s == pytest.approx(25.8e9, rel=0.001)
    assert bandwidth.fits(frame([], [])) == []
