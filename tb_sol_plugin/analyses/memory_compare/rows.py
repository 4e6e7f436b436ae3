"""Two lists of who held memory as one: matched by name, with their difference; sums stay exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from tb_sol_plugin.analyses.memory_compare.part import REST, SMALLER, ComparePart, Row
from tb_sol_plugin.metrics.memory.attribution import GROUPINGS
from tb_sol_plugin.metrics.memory.labels import color, label

BOTH: Final = "both"
_LAST: Final = ("before", "unknown")


@dataclass(frozen=True)
class Differences:
    """frame: one row per name: name, key (as the source has it), a, b, delta, abs_delta (bytes), allocations_a, allocations_b, only ("a",
    "b", both), kind, color, estimated. Its a and b add up to the peaks, so delta does to their difference.
    """

    frame: pd.DataFrame

    def largest(self, *, falls: bool) -> list[tuple[str, int]]:
        """(name, delta) of the rows that fell (or rose) most, largest first, rows that nobody can name left out."""
        rows = [(str(n), int(d)) for n, d, k in zip(self.frame["name"], self.frame["delta"], self.frame["kind"], strict=True) if k != REST]
        mine = [r for r in rows if (r[1] < 0) == falls and r[1]]
        return sorted(mine, key=lambda r: -abs(r[1]))


def grouping(a: ComparePart, b: ComparePart, asked: str) -> tuple[str, str]:
    """(the grouping to show, "" where there is none; why it is another than asked for)."""
    both = [by for by in GROUPINGS if by in a.held and by in b.held]
    if asked in both:
        return asked, ""
    first = both[0] if both else ""
    if asked == "auto":
        return first, "" if both else "No grouping is known of both recordings."
    can = f"; both can by {', '.join(both)}" if both else ""
    return first, f"Not both recordings tell it by {asked}{can}."


def differences(a: Sequence[Row], b: Sequence[Row], by: str) -> Differences:
    """Rows matched by name. Of a list that was cut, a name that it lacks may be among its smaller ones: such rows are added to these."""
    left, right = _by_key(a), _by_key(b)
    least = {side: min((r.bytes for r in rows if r.kind == "row"), default=0) if any(r.kind == REST for r in rows) else -1
             for side, rows in (("a", a), ("b", b))}  # fmt: skip
    out: list[dict[str, object]] = []
    small = [0, 0]
    for key in dict.fromkeys([*left, *right]):
        x, y = left.get(key), right.get(key)
        one = x or y
        assert one is not None
        if one.kind == REST or (y is None and one.bytes <= least["b"]) or (x is None and one.bytes <= least["a"]):
            small[0] += x.bytes if x is not None else 0
            small[1] += y.bytes if y is not None else 0
            continue
        out.append(_row(one, x, y, by))
    if any(r.kind == REST for r in (*a, *b)):
        rest = Row(SMALLER, 0, -1, REST, False)
        sides = (Row(SMALLER, size, -1, REST, False) for size in small)
        out.append(_row(rest, next(sides), next(sides), by))
    columns = ["name", "key", "a", "b", "delta", "abs_delta", "allocations_a", "allocations_b", "only", "kind", "color", "estimated"]
    frame = pd.DataFrame(out, columns=columns)
    empty = (frame["kind"] == "unknown") & (frame["a"] == 0) & (frame["b"] == 0)
    return Differences(frame[~empty].sort_values("abs_delta", ascending=False, kind="stable", ignore_index=True))


def _by_key(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    return {(r.kind if r.kind != "row" else "", r.name): r for r in rows}


def _row(one: Row, x: Row | None, y: Row | None, by: str) -> dict[str, object]:
    a, b = (r.bytes if r is not None else 0 for r in (x, y))
    category = by == "category" and one.kind == "row"
    shown = label(one.name) if category else one.name
    plain = {"before": "host", "unknown": "idle", REST: "other"}.get(one.kind, "compute")
    return {
        "name": shown, "key": f"{one.kind}:{one.name}", "a": a, "b": b, "delta": b - a, "abs_delta": abs(b - a),
        "allocations_a": _known(x), "allocations_b": _known(y),
        "only": BOTH if one.kind != "row" or (x is not None and y is not None) else "a" if x is not None else "b", "kind": one.kind,
        "color": color(one.name) if category else plain, "estimated": any(r is not None and r.estimated for r in (x, y)),
    }  # fmt: skip


def _known(row: Row | None) -> int | None:
    """Allocations: none of a name that is not there, unknown where the source does not count them."""
    return 0 if row is None else row.allocations if row.allocations >= 0 else None
