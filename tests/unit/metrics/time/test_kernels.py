"""Groups of kernels: what is said of names is the same whether they are few or many."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.analyses.time import kernels as page
from tb_sol_plugin.metrics.time import kernels
from tb_sol_plugin.metrics.time.kernel_names import plain_name
from tests.support.tiny import trace


def test_many_names_are_judged_once_per_recording_and_as_few_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording of few names WHEN its rows are judged name by name, and as if there were many THEN alike
    capture = ingest.read(str(trace(tmp_path / "a.pt.trace.json.gz")))
    rows = np.arange(len(capture.device))
    places = {kind: place for place, kind in enumerate(("gemm", "other", "attention", "elementwise"))}

    def judged() -> tuple[list[int], list[int]]:
        return kernels.kinds_at(capture, rows, places).tolist(), kernels.matrix_units_at(capture, rows).tolist()

    one_by_one = judged()
    assert one_by_one[0] == [places.get(kernels.kind_of(name), 1) for name in capture.device["name"].tolist()]
    monkeypatch.setattr(kernels, "MANY", 0)
    assert judged() == one_by_one
    assert len(rows) and ("kernel_classes",) in capture.memo


def of_names(path: Path, count: int, calls: int = 1) -> Path:
    """Writes a recording of kernels with `count` names, each called `calls` times; later ones last as long as earlier ones or less."""
    events: list[dict[str, object]] = [
        {
            "ph": "X", "cat": "kernel", "name": f"void kernel_{i % count}<float, 4>(float*, int)", "pid": 0, "tid": 7, "ts": 10 * i,
            "dur": 5 - 4 * (i % count) // count, "args": {"device": 0, "stream": 7},
        }
        for i in range(count * calls)
    ]  # fmt: skip
    return trace(path, events)


def test_groups_come_longest_first_then_by_calls_and_id(tmp_path: Path) -> None:
    # GIVEN 40 names of few different times WHEN grouped THEN the order is that of (total, calls, id), and each row is of one name
    capture = ingest.read(str(of_names(tmp_path / "a.pt.trace.json", 40, calls=3)))
    found = pd.DataFrame(kernels.groups(capture, np.ones(len(capture.device), bool)))
    assert found.equals(found.sort_values(["total_ns", "calls", "id"], ascending=[False, False, True], kind="stable", ignore_index=True))
    duration = capture.device.groupby(capture.device["name"].astype(str))["duration_ns"]
    assert dict(zip(found["name"], found["total_ns"], strict=True)) == duration.sum().to_dict()
    assert dict(zip(found["name"], found["max_ns"], strict=True)) == duration.max().to_dict()
    assert found["share"].sum() == pytest.approx(1) and set(found["calls"]) == {3} and set(found["streams"]) == {1}


def test_a_table_of_many_names_keeps_few_copies_of_its_columns(tmp_path: Path) -> None:
    # GIVEN 20,000 names, judged already WHEN the page is made THEN it takes less than eight bytes for each of 50 columns (80 before)
    capture = ingest.read(str(of_names(tmp_path / "a.pt.trace.json", 20_000)))
    capture.analyze("kernels")
    tracemalloc.start()
    try:
        report = capture.analyze("kernels")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 400 * 20_000
    # AND its texts are those of each row
    table = report.table("kernels")
    assert table["name"].nunique() == 20_000 and table["id"].nunique() > 19_990
    assert table["short_name"].tolist() == [plain_name(name) for name in table["name"]]


@pytest.mark.parametrize("seed", range(3))
def test_the_longest_rows_are_those_of_a_sort_of_all(seed: int) -> None:
    # GIVEN values of which many are equal and some are not known WHEN the first are taken THEN they are those of a sort by value and number
    dice = np.random.default_rng(seed)
    for size in (0, 3, 10, 11, 500):
        value, number = np.where(dice.random(size) < 0.2, np.nan, dice.integers(0, 8, size)), dice.permutation(size).astype(np.uint32)
        wanted = sorted(np.flatnonzero(~np.isnan(value)).tolist(), key=lambda row: (-value[row], number[row]))[: page.TOP]
        assert page._largest(value, number).tolist() == wanted
