"""Records of counted steps: the last one stands, what cannot be is left out and counted."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import format as F
from tb_sol_plugin import ingest
from tests.support.sol_builder import SolBuilder

ROW = [2, 8, 32, 3, 3_000_000, 5, 10_000_000, 4_000_000]


def read(tmp_path: Path, *profiles: dict[str, object]):
    b = SolBuilder()
    b.iteration(0, 0, 1_000_000)
    b.records += [{"kind": "profile", "wall_ns": 10, **p} for p in profiles]
    c = ingest.read(str(b.write(tmp_path / b.name)))
    return c.tables["profile"], c.tables["issues"].set_index("reason")["count"].to_dict()


def test_the_last_profile_record_counts(tmp_path: Path) -> None:
    # GIVEN two records, the second with one configuration more and gradient statistics
    first = {"rows": [ROW]}
    later = {
        "rows": [[2, 8, 32, 4, 4_000_000, 6, 12_000_000, 5_000_000], [1, 1, 64, 0, 0, 9, 90, None]], "grad_sqr": -0.5, "grad_var": 3.0, "grad_biased": True,
        "init_batch_size": 128, "max_batch_size": 4096, "local_bsz_bounds": [16, 256], "gradient_accumulation": True,
    }  # fmt: skip
    t, issues = read(tmp_path, first, later)
    # WHEN read THEN the table is the second, in the format's columns; a wait that nobody told is unknown
    assert t[list(F.PROFILE_ROW)].to_numpy().tolist() == [[2, 8, 32, 4, 4_000_000, 6, 12_000_000, 5_000_000], [1, 1, 64, 0, 0, 9, 90, -1]]
    assert t["grad_sqr"].tolist() == [-0.5] * 2 and t["grad_var"].tolist() == [3.0] * 2 and t["grad_biased"].all()
    assert t.iloc[0][["init_batch_size", "max_batch_size", "least_atomic_bsz", "most_atomic_bsz"]].tolist() == [128, 4096, 16, 256]
    assert t["gradient_accumulation"].all() and not [r for r in issues if "counted steps" in r]


def test_without_a_record_and_with_an_empty_one_the_table_is_empty(tmp_path: Path) -> None:
    for name, profiles in (("a", ()), ("b", ({},)), ("c", ({"rows": []},))):
        t, _ = read(tmp_path / name, *profiles)
        assert t.empty and t["grad_sqr"].dtype == np.float64


@pytest.mark.parametrize(
    "row",
    [
        [3, 2, 32, 0, 0, 1, 5, 0], [1, 1, 0, 0, 0, 1, 5, 0], [1, 1, 8, 0, 0, 0, 0, 0], [1, 1, 8, 0, 0, 1, 0, 0], [1, 1, 8, 1, None, 1, 5, 0],
        [1, 1, 8, 0, 0, 1, 5, -1], [1, 1, 8, -1, 0, 1, 5, 0], [None, 1, 8, 0, 0, 1, 5, 0], [1, 1e300, 8, 0, 0, 1, 5, 0],
    ],
)  # fmt: skip
def test_rows_that_cannot_be_are_left_out_and_counted(tmp_path: Path, row: list[object]) -> None:
    t, issues = read(tmp_path, {"rows": [row, ROW]})
    assert t[list(F.PROFILE_ROW)].to_numpy().tolist() == [ROW] and issues["impossible counted steps"] == 1


def test_rows_of_the_wrong_form_do_not_hide_the_others(tmp_path: Path) -> None:
    t, issues = read(tmp_path, {"rows": ["x", [1], ROW], "grad_sqr": "text", "grad_var": 1.0, "local_bsz_bounds": [9, 3]})
    assert len(t) == 1 and math.isnan(t["grad_sqr"][0]) and math.isnan(t["grad_var"][0]) and t["least_atomic_bsz"][0] == -1
    assert sum(issues.values()) >= 2
