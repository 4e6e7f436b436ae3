"""A table of a recording looks a column up once and is not changed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.tables.table import FEW, Table, as_table, frame_of


def test_a_column_is_looked_up_once_and_what_is_derived_is_a_plain_frame() -> None:
    # GIVEN a table WHEN a column is asked for twice THEN it is the same one, equal to that of the frame
    frame = pd.DataFrame({"time": [3, 1], "name": pd.Categorical(["a", "b"])})
    table = Table(frame)
    assert table["time"] is table["time"] and table["time"].tolist() == [3, 1] and table["name"].cat.codes.tolist() == [0, 1]
    # AND frames derived of it are plain, with columns of their own
    more = table.assign(time=table["time"] * 2)
    assert type(more) is type(table[["time"]]) is type(table[table["time"] > 1]) is type(table.copy()) is pd.DataFrame
    assert more["time"].tolist() == [6, 2] and table["time"].tolist() == [3, 1]
    with pytest.raises(KeyError):
        table["none"]


def test_it_is_not_changed() -> None:
    # GIVEN a table WHEN a column is set THEN it refuses: what was looked up would be another
    table = Table({"time": [1]})
    with pytest.raises(TypeError, match="assign"):
        table["time"] = [2]


@pytest.mark.parametrize("rows", [0, 3, FEW + 1])
def test_a_frame_of_arrays_is_what_pandas_makes_of_them(rows: int) -> None:
    # GIVEN columns of several kinds
    columns: dict[str, object] = {
        "whole": np.arange(rows), "small": np.arange(rows, dtype=np.int32), "part": np.arange(rows) / 3, "truth": np.arange(rows) % 2 == 0,
        "text": np.array([f"t{i}" for i in range(rows)], object), "coded": pd.Categorical([f"c{i % 2}" for i in range(rows)], ["c0", "c1"]),
        "listed": [f"l{i}" for i in range(rows)], "numbers": list(range(rows)), "some": pd.Series([None, *range(rows)][:rows], dtype=object),
    }  # fmt: skip
    # WHEN a frame is made of them THEN pandas' own has the same values, of texts and objects as they are
    found = frame_of(columns)
    plain = pd.DataFrame({name: pd.Series(values, dtype=found[name].dtype) for name, values in columns.items()})
    pd.testing.assert_frame_equal(found, plain, check_column_type=False)
    assert found["text"].dtype == object and (not rows or found["small"].dtype == np.int32)
    # AND so has a table over it, column by column
    table = as_table(found)
    for name in plain.columns:
        pd.testing.assert_series_equal(table[name], plain[name])


def test_a_frame_of_arrays_has_its_own_rows_and_one_length() -> None:
    assert frame_of({"a": np.array([5, 6])}, pd.Index([1, 0])).index.tolist() == [1, 0]
    with pytest.raises(ValueError, match="different lengths"):
        frame_of({"a": np.zeros(1), "b": np.zeros(2)})


def test_columns_of_one_name_come_together_and_a_missing_one_is_a_key_error() -> None:
    table = as_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    assert table["a"].values.tolist() == [[1, 2]]
    with pytest.raises(KeyError):
        table["b"]
