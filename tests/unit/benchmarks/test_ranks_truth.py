"""The tables of truth print what the comparisons of ranks find, beside what is true."""

from __future__ import annotations

from itertools import islice

import pytest

from benchmarks import ranks_truth as R


def test_rows_hold_what_was_found_beside_the_truth(capsys: pytest.CaptureFixture[str]) -> None:
    title, header, rows = R.TABLES[0]
    R.table(title, header, islice(rows(False), 1))
    assert capsys.readouterr().out.splitlines()[-1] == "| TP 8, DP 2 | 16 | 300 us | 478 | 478 | 0 | 0 |"
    for _, header, rows in R.TABLES[2:]:
        assert len(next(rows(False))) == len(header)  # type: ignore[call-overload]
