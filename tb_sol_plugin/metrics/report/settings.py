"""Says of two recordings which is which in the labels of columns, and how each was made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import pandas as pd

from tb_sol_plugin.model.report import Column, TableSection, make_table

SETTINGS: Final = (
    Column("setting", "Setting", doc="how a recording was made", show="text"),
    Column("a", "A", doc="of A", show="text", missing="not recorded"),
    Column("b", "B", doc="of B", show="text", missing="not recorded"),
    Column("same", "Same", doc="whether both say the same", show="badge"),
)


_SIDE: Final = re.compile(r"\b[AB]\b")


def named(columns: Iterable[Column], names: tuple[str, str]) -> list[Column]:
    """Returns columns with the names of two recordings in place of A and B in their labels and meanings."""
    of = {"A": names[0], "B": names[1]}

    def put(text: str) -> str:
        return _SIDE.sub(lambda found: of[found[0]], text)

    return [msgspec.structs.replace(c, label=put(c.label), doc=put(c.doc), missing=put(c.missing)) for c in columns]


def settings_table(names: tuple[str, str], settings: tuple[Mapping[str, str], Mapping[str, str]], *, span: int = 12) -> TableSection:
    """Returns a row per setting that one of two recordings has, those that differ first. names: of the recordings."""
    a, b = settings
    rows = [(n, a.get(n), b.get(n), "same" if a.get(n) == b.get(n) else "differs") for n in dict.fromkeys([*a, *b])]
    rows.sort(key=lambda row: row[3] == "same")
    frame = pd.DataFrame(rows, columns=[c.name for c in SETTINGS], dtype=object)
    return make_table(
        "settings", "How they were recorded", frame, named(SETTINGS, names), key="setting", span=span,
        subtitle="what both recordings say of the job", empty="Neither recording has its settings.",
    )  # fmt: skip
