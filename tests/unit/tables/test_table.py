"""A table of a recording looks a column up once and is not changed."""

from __future__ import annotations

import pandas as pd
import pytest

from tb_sol_plugin.tables.table import Table


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
