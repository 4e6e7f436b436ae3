"""Groups operator calls by name, or by name and one more property, as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.inputs import first_dtype, readable_shapes
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.trees.module_tree import module_class_name, phase_name
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays

Codes = npt.NDArray[np.int32]
GROUPS: Final = ("name", "name_shape", "name_dtype", "name_module", "name_thread", "name_phase")


@dataclass(frozen=True)
class Groups:
    """Operator calls of a selection in groups.

    rows: host rows of the selected operators. code: group per host row, -1 for every other row.
    columns: per group id, name, input_shapes, dtype, module, thread, phase; a count in words where calls differ."""

    rows: npt.NDArray[np.int64]
    code: Codes
    columns: dict[str, list[Any]]


def groups(capture: Capture, by: str, part: Scope) -> Groups:
    """Returns operator calls of a selection, grouped; kept for the whole recording."""
    if part.whole:
        return memo(capture, ("operator_groups", by), lambda: _groups(capture, by, part))
    return _groups(capture, by, part)


@dataclass(frozen=True)
class _Alike:
    """Operator calls of a selection by all that is said of them. rows: their host rows. kind: number of what is alike, of each.

    columns: of each kind, in order of first appearance.
    """

    rows: npt.NDArray[np.int64]
    kind: Codes
    columns: dict[str, Column]


def _groups(capture: Capture, by: str, part: Scope) -> Groups:
    alike = memo(capture, ("operators_alike",), lambda: _alike(capture, part)) if part.whole else _alike(capture, part)
    if by == "name_phase":
        alike = _with_phase(capture, alike)
    second = {
        "name_shape": "input_shapes",
        "name_dtype": "dtype",
        "name_module": "module",
        "name_thread": "thread",
        "name_phase": "phase",
    }.get(by)
    names, texts = alike.columns["name"]
    if second is None:
        key = names.astype(np.int64)
    else:
        other, _ = alike.columns[second]
        key = names.astype(np.int64) * (int(other.max(initial=0)) + 2) + other
    keys, group = arrays.in_order(key)
    code = np.full(len(at.host(capture).start), -1, np.int32)
    code[alike.rows] = group.astype(np.int32)[alike.kind]
    first = np.zeros(len(keys), np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    columns: dict[str, list[Any]] = {"name": texts[names[first]].tolist() if len(first) else []}
    for label, (values, categories) in alike.columns.items():
        if label != "name":
            columns[label] = _one_or_count(values, categories, group, first, _PLURAL[label])
    own = columns["name"] if second is None else [f"{n} {other or ''}" for n, other in zip(columns["name"], columns[second], strict=True)]
    return Groups(alike.rows, code, {"id": own, **columns})


def _alike(capture: Capture, part: Scope) -> _Alike:
    rows = np.flatnonzero((at.host(capture).kind == S.OPERATOR) & part.host)
    columns = {"name": _codes(capture.host["name"], rows), **_properties(capture, rows)}
    kind, first = arrays.factorize([codes for codes, _ in columns.values()])
    return _Alike(rows, kind.astype(np.int32), {label: (codes[first], texts) for label, (codes, texts) in columns.items()})


def _with_phase(capture: Capture, alike: _Alike) -> _Alike:
    phase, texts = _phase(capture, alike.rows)
    kind, first = arrays.factorize([alike.kind, phase])
    before = alike.kind[first]
    columns = {label: (codes[before], words) for label, (codes, words) in alike.columns.items()}
    return _Alike(alike.rows, kind.astype(np.int32), {**columns, "phase": (phase[first], texts)})


_PLURAL = {"input_shapes": "shapes", "dtype": "types", "module": "modules", "thread": "threads", "phase": "phases"}
Column = tuple[npt.NDArray[np.int32], npt.NDArray[np.object_]]
"""Codes per operator row and the texts they stand for; "" is unknown."""


def _properties(capture: Capture, rows: npt.NDArray[np.int64]) -> dict[str, Column]:
    """Returns what can be said of each operator besides its name, whatever they are grouped by."""
    return {
        "input_shapes": _shapes(capture, rows),
        "dtype": _dtype(capture, rows),
        "module": module_class(capture, rows),
        "thread": thread_name(capture, rows),
    }


def _codes(column: pd.Series, rows: npt.NDArray[np.int64]) -> Column:
    return column.cat.codes.to_numpy()[rows].astype(np.int32), np.asarray(column.cat.categories, dtype=object)


def _argument(capture: Capture, rows: npt.NDArray[np.int64], name: str) -> Column:
    """Returns a column of the operators table per host row; "" where the call carries no arguments."""
    column = capture.tables["operators"][name]
    texts = np.asarray(column.cat.categories, dtype=object)
    own = capture.operator_of_host[rows]
    codes = column.cat.codes.to_numpy()
    if not len(codes):
        return np.zeros(len(rows), np.int32), np.array([""], object)
    plus = np.append(texts, "")
    out = np.where(own >= 0, codes[np.maximum(own, 0)], len(texts))
    return out.astype(np.int32), plus


def _shapes(capture: Capture, rows: npt.NDArray[np.int64]) -> Column:
    """Returns sizes of the inputs as a person reads them: `16×5185×64 16×64×5185`."""
    codes, texts = _argument(capture, rows, "shapes")
    used = np.zeros(len(texts), bool)
    used[codes] = True
    return _recode(codes, [readable_shapes(str(t)) if u else "" for t, u in zip(texts, used.tolist(), strict=True)])


def _dtype(capture: Capture, rows: npt.NDArray[np.int64]) -> Column:
    codes, texts = _argument(capture, rows, "types")
    return _recode(codes, [first_dtype(str(t)) for t in texts])


def module_class(capture: Capture, rows: npt.NDArray[np.int64]) -> Column:
    """Returns the class of the innermost module call around each host row."""
    around = at.nearest(capture, S.MODULE, rows)
    return _outer_name(capture, around, module_class_name)


def _phase(capture: Capture, rows: npt.NDArray[np.int64]) -> Column:
    whole = len(rows) == len(at.of_kind(capture, S.OPERATOR))
    return _outer_name(capture, at.annotation_of_operators(capture) if whole else at.annotation_around(capture, rows)[0], phase_name)


def _outer_name(capture: Capture, around: Codes, rename) -> Column:  # type: ignore[no-untyped-def]
    names = arrays.coded(capture.host["name"])
    size = len(names.categories)
    codes = np.where(around >= 0, names.codes[np.maximum(around, 0)], size) if len(names) else around
    used = arrays.in_use(codes, size)
    place = np.full(size + 1, len(used), np.int32)  # the last, and no name, for what is outside
    place[used] = np.arange(len(used), dtype=np.int32)
    return _recode(place[codes], [*map(rename, arrays.spelled(names.categories, used)), ""])


def thread_name(capture: Capture, rows: npt.NDArray[np.int64]) -> Column:
    """Name of the thread of each host row: as labeled, else its number."""
    threads = capture.tables["threads"]
    texts = [str(label or number) for label, number in zip(threads["thread_name"].tolist(), threads["thread"].tolist(), strict=True)]
    return _recode(at.host(capture).thread[rows], texts)


def _recode(codes: npt.NDArray[np.int32], texts: list[str]) -> Column:
    """Returns the same values with equal texts under one code."""
    if not texts:
        return np.zeros(len(codes), np.int32), np.array([""], object)
    merged, unique = pd.factorize(np.asarray(texts, dtype=object))
    return merged[codes].astype(np.int32), np.asarray(unique, dtype=object)


def _one_or_count(
    codes: Codes, texts: npt.NDArray[np.object_], group: npt.NDArray[np.intp], first: npt.NDArray[np.int64], plural: str
) -> list[str | None]:
    """Returns per group its one value, None if unknown, or `3 shapes`."""
    count = np.ones(len(first), np.int64)
    differ = np.flatnonzero(codes != codes[first][group]) if len(texts) > 1 else codes[:0]
    if len(differ):
        several = np.zeros(len(first), np.bool_)
        several[group[differ]] = True
        rows = np.flatnonzero(several[group])
        pairs = pd.unique(group[rows].astype(np.int64) * (len(texts) + 1) + codes[rows])
        count = np.maximum(count, np.bincount(pairs // (len(texts) + 1), minlength=len(first)))
    values: list[str] = texts[codes[first]].tolist() if len(first) else []
    return [(v or None) if n == 1 else f"{n} {plural}" for v, n in zip(values, count.tolist(), strict=True)]
