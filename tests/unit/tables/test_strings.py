"""While an answer is made, new texts are Python strings; what the program around it chose comes back afterwards."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.tables.schema import Field, Schema
from tb_sol_plugin.tables.strings import OPTION, python_strings
from tests.support.trace_builder import TraceBuilder


@pytest.fixture(params=["python", "pyarrow", "auto"])
def chosen(request):
    with pd.option_context(OPTION, request.param):
        yield request.param


def test_it_holds_inside_and_comes_back(chosen):
    with python_strings():
        assert pd.get_option(OPTION) == "python"
        with pytest.raises(ValueError, match="inside"), python_strings():
            raise ValueError("inside")
        assert pd.get_option(OPTION) == "python"
    assert pd.get_option(OPTION) == chosen


def test_the_last_thread_out_puts_it_back(chosen):
    # GIVEN a second thread that enters after the first and leaves before it, and a third that outlives the first
    inside, leave = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]

    def stay(k: int) -> None:
        with python_strings():
            inside[k].set()
            leave[k].wait(60)

    threads = [threading.Thread(target=stay, args=(k,)) for k in range(2)]
    with python_strings():
        for k, thread in enumerate(threads):
            thread.start()
            assert inside[k].wait(60)
        leave[0].set()
        threads[0].join(60)
        assert pd.get_option(OPTION) == "python"
    # THEN it holds as long as one is inside, and no longer
    assert pd.get_option(OPTION) == "python"
    leave[1].set()
    threads[1].join(60)
    assert pd.get_option(OPTION) == chosen


def test_an_answer_leaves_the_option_as_it_was(tmp_path, chosen):
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 500)
    trace.launch("k", at=10, start=50, duration=10)
    capture = read(str(trace.write(tmp_path / "worker.pt.trace.json")))
    assert capture.analyze("kernels").sections
    assert pd.get_option(OPTION) == chosen


def test_tables_have_the_same_columns_wherever_they_are_made() -> None:
    # GIVEN a table that is first made while an answer is made THEN it equals one that is made later
    schema = Schema("t", "one per row", {"time": Field("int64", "ns")})
    with python_strings():
        inside = schema.frame({"time": np.array([1])})
    pd.testing.assert_frame_equal(inside, schema.frame({"time": np.array([1])}))
