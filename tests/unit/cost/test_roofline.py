"""Roofline arithmetic: single numbers worked out by hand, arrays equal to them."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin import roofline as one
from tb_sol_plugin.cost import roofline as many

WORK = st.none() | st.just(0.0) | st.floats(1.0, 1e17)
RATE = st.none() | st.just(0.0) | st.floats(1e6, 1e17)
CALL = st.tuples(WORK, WORK, WORK, RATE, RATE)


def test_the_larger_side_is_the_limit() -> None:
    # GIVEN 2 GFLOP and 10 MB at 100 TFLOP/s and 1 TB/s WHEN arithmetic takes 20 µs and traffic 10 THEN arithmetic sets the limit
    at = {"peak": 100e12, "vector_peak": 5e12, "bandwidth": 1e12}
    assert one.limit(2e9, 0, 10e6, **at) == (pytest.approx(20e-6), "compute")
    assert one.limit(2e9, 0, 40e6, **at) == (pytest.approx(40e-6), "memory")
    assert one.limit(0, 1e9, 10e6, **at) == (pytest.approx(200e-6), "compute")
    assert (one.intensity(2e9, 10e6), one.ridge(100e12, 1e12)) == (200.0, 100.0)


def test_what_is_unknown_has_no_limit_and_what_does_nothing_none_that_binds() -> None:
    at = {"peak": None, "vector_peak": 5e12, "bandwidth": 1e12}
    assert one.limit(1.0, 0, 1.0, **at) == (None, "none")  # matrix work without a peak
    assert one.limit(None, 1.0, None, **at) == (None, "none")  # vector work whose traffic is unknown
    assert one.limit(0, 0, 0, **at) == (0.0, "none")
    assert one.limit(1e12, 0, None, peak=1e12, vector_peak=None, bandwidth=None) == (1.0, "compute")  # a lower bound


@pytest.mark.parametrize(("ratio", "above"), [(None, False), (1.02, False), (1.0200001, True), (0.0, False)])
def test_two_percent_above_the_limit_are_tolerated(ratio: float | None, above: bool) -> None:
    assert one.exceeds_limit(ratio) is above


@given(st.lists(CALL, min_size=1, max_size=20), RATE)
def test_arrays_and_single_numbers_agree(calls: list[tuple[float | None, ...]], bandwidth: float | None) -> None:
    """Both ways give the same bits, whatever is unknown."""

    def array(at: int) -> np.ndarray:
        return np.array([math.nan if call[at] is None else call[at] for call in calls], np.float64)

    ns, bound = many.limit(*(array(at) for at in range(5)), math.nan if bandwidth is None else bandwidth)
    quotients = many.ratio(array(0), array(3))
    for at, (flop, vector, data, peak, vector_peak) in enumerate(calls):
        seconds, side = one.limit(flop, vector, data, peak=peak, vector_peak=vector_peak, bandwidth=bandwidth)
        assert many.BOUNDS[bound[at]] == side
        assert math.isnan(ns[at]) if seconds is None else ns[at] == seconds * 1e9
        quotient = one.quotient(flop, peak)
        assert math.isnan(quotients[at]) if quotient is None else quotients[at] == quotient


def test_the_arithmetic_of_single_numbers_loads_nothing() -> None:
    # GIVEN a training process WHEN it loads the arithmetic, and the recorder's roofline THEN no package of the page comes along
    code = "import sys, tb_sol_plugin.roofline, tb_sol_plugin.capture.roofline; print({'numpy', 'pandas', 'msgspec', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout == "set()\n"
