"""Builds the table of how two recordings were made, one beside the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import pandas as pd

from tb_sol_plugin.model.report import Column, TableSection, make_table

SETTINGS: Final = (
    Column("setting", "Setting", doc="how a recording was made", show="text"),
    Column("a", "A", doc="of the recording that is shown", show="text", missing="not recorded"),
    Column("b", "B", doc="of the other recording", show="text", missing="not recorded"),
    Column("same", "Same", doc="whether both say the same", show="badge"),
)


def settings_table(names: tuple[str, str], settings: tuple[Mapping[str, str], Mapping[str, str]], *, span: int = 12) -> TableSection:
    """Returns a row per setting that one of two recordings has, those that differ first. names: of the recordings."""
    a, b = settings
    rows = [(n, a.get(n), b.get(n), "same" if a.get(n) == b.get(n) else "differs") for n in dict.fromkeys([*a, *b])]
    rows.sort(key=lambda row: row[3] == "same")
    labels = {"A": names[0], "B": names[1]}
    columns = [msgspec.structs.replace(c, label=labels.get(c.label, c.label)) for c in SETTINGS]
    return make_table(
        "settings", "How they were recorded", pd.DataFrame(rows, columns=[c.name for c in SETTINGS], dtype=object), columns, key="setting",
        span=span, subtitle="what both recordings say of the job", empty="Neither recording has its settings.",
    )  # fmt: skip
