"""Rows that reach into a stretch of time, against a look at all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.reaching import Reaching, calls_reaching, operators_reaching, reaching
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tests.support.trace_builder import TraceBuilder


def recording(folder: Path) -> Capture:
    """Two threads of operators with calls in them; each third call holds two others, and one of thread 2 lasts to the end."""
    t = TraceBuilder()
    for thread, shift in ((11, 0), (12, 700)):
        for i in range(12):
            start = 10_000 * i + shift
            t.op("aten::add", start, 6_000, thread=thread)
            t.op("aten::empty", start + 500, 300, thread=thread)
            t.call("cudaMemcpyAsync", start + 1_000, 4_000, thread=thread)
            if i % 3 == 0:
                t.call("cuMemcpyHtoDAsync_v2", start + 1_500, 1_000, thread=thread)
                t.call("cuEventRecord", start + 3_000, 1_000, thread=thread)
    t.call("cudaDeviceSynchronize", 100, 125_000, thread=13)
    return ingest.read(str(t.write(folder / "a.pt.trace.json.gz")))


def test_all_rows_that_reach_into_a_stretch_are_found_and_few_others(tmp_path: Path) -> None:
    # GIVEN calls of three threads, some inside of others
    capture = recording(tmp_path)
    h, of = at.host(capture), calls_reaching(capture)
    first, last = int(h.start.min()), int(h.stop.max())
    # WHEN stretches of every length begin at every place THEN no call that covers some of one is missing, and all are in order
    for low in range(first - 1_000, last + 1_000, 3_700):
        for length in (1, 900, 8_000, 200_000):
            rows = of.into(low, low + length)
            covers = at.of_kind(capture, S.CALL)
            covers = covers[(h.start[covers] < low + length) & (h.stop[covers] > low)]
            assert (np.diff(rows) > 0).all() and set(covers.tolist()) <= set(rows.tolist())
    # AND a short one has a few calls of each thread, not those of the whole recording
    assert len(of.into(first + 62_000, first + 63_000)) <= 5 < len(of.rows) / 4


def test_of_operators_those_that_no_other_is_around_are_looked_for(tmp_path: Path) -> None:
    capture = recording(tmp_path)
    h, rows = at.host(capture), operators_reaching(capture).into(int(at.host(capture).start.min()), int(at.host(capture).stop.max()))
    assert len(rows) == 24 and set(h.duration[rows].tolist()) == {6_000}
    none = np.zeros(0, np.int64)
    assert len(operators_reaching(capture).within((none, none))) == 0


def test_rows_out_of_order_are_found_too() -> None:
    # GIVEN rows of a thread whose starts do not ascend, as their least start from each on says
    start, stop = np.array([5, 3, 9, 7]), np.array([6, 4, 10, 8])
    of = Reaching(np.arange(4), [(0, 4)], np.minimum.accumulate(start[::-1])[::-1], np.maximum.accumulate(stop))
    # THEN a stretch that the last of them covers has it
    assert of.into(7, 8).tolist() == [2, 3] and of.into(3, 4).tolist() == [0, 1] and len(of.into(10, 20)) == 0


def test_what_is_looked_through_is_made_once_per_name(tmp_path: Path) -> None:
    capture = recording(tmp_path)
    every = at.of_kind(capture, S.OPERATOR)
    assert reaching(capture, "some", lambda: every[:3]) is reaching(capture, "some", lambda: every)
    assert len(reaching(capture, "none", lambda: every[:0]).into(0, 1 << 62)) == 0
