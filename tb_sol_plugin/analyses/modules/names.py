"""Names in the model as a tree shows them: below `blocks.0`, the module `blocks.0.mlp` is `mlp`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pandas as pd

from tb_sol_plugin.metrics.trees.modules import MergedRow

NUMBERED: Final = re.compile(r"(?P<stem>.*?)(?P<number>\d{1,9})$")
MOST_NAMED: Final = 3
MOST_LETTERS: Final = 32


def below(name: str, above: str) -> str:
    """The part of a qualified name that its parent's does not hold; all of it where the parent is no prefix (a module used elsewhere)."""
    return name.removeprefix(f"{above}.") if above else name


def node_names(nodes: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Per row of `module_times` its name below its parent's. names: per node of the tree its name in the model, "" unknown."""
    own = [names[n] for n in nodes["node"].tolist()]
    at = {int(n): i for i, n in enumerate(nodes["node"].tolist())}
    ups = [at.get(int(up), -1) for up in nodes["parent"].tolist()]
    instances = nodes["name"].tolist()
    return [below(name, own[up] if up >= 0 else "") or str(number) for name, up, number in zip(own, ups, instances, strict=True)]


def row_names(rows: Sequence[MergedRow], each: Sequence[str]) -> list[str]:
    """The same per row, merged ones in one word. each: of `node_names`."""
    return [_together([each[n] for n in row.nodes], row.class_name) if row.merged else each[row.nodes[0]] for row in rows]


def _together(names: list[str], class_name: str) -> str:
    """`layers.0–23 24×`, `qkv + out 6×`; the class where there are too many."""
    distinct = list(dict.fromkeys(names))
    said = _range(distinct) or " + ".join(distinct)
    if (len(distinct) > MOST_NAMED and said.count(" + ")) or len(said) > MOST_LETTERS:
        said = class_name
    return f"{said} {len(names)}×"


def _range(names: list[str]) -> str:
    """`layers.0–23` of names that count up by one, else ""."""
    found = [NUMBERED.match(name) for name in names]
    numbers = [int(m["number"]) for m in found if m is not None]
    one_stem = len({m["stem"] if m is not None else None for m in found}) == 1
    if len(names) < 2 or len(numbers) < len(names) or not one_stem or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return ""
    return f"{names[0]}–{numbers[-1]}"
