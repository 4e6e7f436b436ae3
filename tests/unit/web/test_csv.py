"""Tables as CSV: columns kept as arrays are written as lists of the same values are."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from tb_sol_plugin.model.columns import Distinct, Numbers
from tb_sol_plugin.model.report import Column, Report, Scalar, TableSection
from tb_sol_plugin.web.wire import csv_of


def test_columns_of_arrays_are_written_as_lists_are() -> None:
    # GIVEN a table with numbers, words that a spreadsheet would run as a formula, truth values and unknown ones, as arrays and as lists
    known = np.array([True, False, True, True])
    data: dict[str, Sequence[Scalar]] = {
        "whole": Numbers(np.array([1, 0, 2**60, -3]), known),
        "ratio": Numbers(np.array([0.1, 0.0, -1e300, 5.0]), known),
        "name": Distinct(np.array([0, 1, -1, 2], np.int32), ["=1+1", 'a,"b"\n', "@x"]),
        "truth": Distinct(np.array([0, 1, 0, -1], np.int32), [True, False]),
    }
    lists: dict[str, Sequence[Scalar]] = {name: list(column) for name, column in data.items()}
    texts = []
    for values in (data, lists):
        section = TableSection(id="t", title="T", columns=[Column(name, name) for name in data], data=values)
        texts.append(csv_of(Report(analysis="kernels", title="Kernels", sections=[section])))
    # WHEN both are written THEN each cell is the value in base units, an unknown one empty, and no text is a formula
    assert texts[0] == texts[1]
    assert list(csv.reader(io.StringIO(texts[0], newline=""))) == [
        ["whole", "ratio", "name", "truth"],
        ["1", "0.1", "'=1+1", "true"],
        ["", "", 'a,"b"\n', "false"],
        [str(2**60), "-1e+300", "", "true"],
        ["-3", "5.0", "'@x", ""],
    ]
