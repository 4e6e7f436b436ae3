"""Tree of a comparison: a step of each side aligned, with the time of what stands where on both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.compare.alignment import GUESSES, Alignment, Nodes, Trees
from tb_sol_plugin.metrics.report.settings import named
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.report import Column, Fact, FigureSection, Mark, Scalar, TableSection, TreeSpec, make_table
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import how_many, human, number, signed

MOST_ROWS: Final = 1_000
LEAST: Final = 0.001
"""Of the time of the step: what changed by less, and is on both sides, stands in the row around it."""
ALIKE: Final = 0.1
"""Of the time of a layer: one whose difference is further from the usual one stands by itself."""
ENOUGH: Final = 0.5
"""Of the time of a side: where less is matched, the tree stands there only for who asks for it."""
TREE: Final = (
    Column("name", "Step", doc="phase, module or operator; modules by class and place among those of one class", show="tree"),
    Column("match", "In", doc="same: on both sides; moved: elsewhere in A; renamed, fused, split: guesses by place", show="badge"),
    Column("delta_ns", "Difference", "ns", "B less A, with all that is inside"),
    Column("time_a", "A", "ns", "time in A of what stands here, with all that is inside", missing="not in A"),
    Column("time_b", "B", "ns", "time in B, with all that is inside", missing="not in B"),
    Column("because", "Why", doc="what speaks for a guess", show="text", rank=2, missing="no guess"),
    Column("was", "Before", doc="where, or under which name, it was in A", show="code", missing="the same"),
    Column("id", "Id", doc="of the row", rank=3),
    Column("parent", "Parent", doc="id of the row around it", rank=3),
)  # fmt: skip
EXECUTIONS: Final = (
    Column("order", "Order", "count", "place in the step"),
    Column("name", "Operator", doc="outermost operator, or a row of short ones that follow each other", show="code"),
    Column("match", "In", doc="both, or the one side that has it here", show="badge"),
    Column("delta_ns", "Difference", "ns", "B less A"),
    Column("time_a", "A", "ns", "time in A of what stands here, with all that is inside", missing="not in A"),
    Column("time_b", "B", "ns", "time in B, with all that is inside", missing="not in B"),
    Column("accumulated_a", "Accumulated, A", "ns", "time in A from the begin of the step to here", rank=2),
    Column("accumulated_b", "Accumulated, B", "ns", "time in B from the begin of the step to here", rank=2),
    Column("accumulated_delta_ns", "Accumulated difference", "ns", "B less A, from the begin of the step to here"),
)  # fmt: skip
FACTS: Final = (
    Fact("matched_time_share_a", "", "ratio", "part of the time of A's step whose phase, module or operator has a partner in B's"),
    Fact("matched_time_share_b", "", "ratio", "part of the time of B's step whose phase, module or operator has a partner in A's"),
    Fact("matched_same", "", "count", "phases, modules and operators that are the same in both trees"),
    Fact("matched_moved", "", "count", "those that stand elsewhere in the tree"),
    Fact("matched_renamed", "", "count", "those of another name in the same place, a guess"),
    Fact("matched_fused", "", "count", "operators of B in the place of several of A, a guess"),
    Fact("matched_split", "", "count", "operators of A in whose place several of B stand, a guess"),
    Fact("only_a", "", "count", "phases, modules and operators that A's step alone has"),
    Fact("only_b", "", "count", "phases, modules and operators that B's step alone has"),
)


def facts_of_tree(trees: Trees | None) -> dict[str, Scalar]:
    """Returns how much of the two trees goes together; nothing where there are none."""
    if trees is None:
        return {}
    a, b = trees.found.shares
    counts = {n if n.startswith("only") else f"matched_{n}": v for n, v in trees.found.counts().items()}
    return {"matched_time_share_a": a, "matched_time_share_b": b, **counts}


def is_alike(found: Alignment) -> bool:
    """Whether half of the time of both sides has a partner."""
    return all(share is None or share >= ENOUGH for share in found.shares)


@dataclass(frozen=True)
class _Joined:
    """Rows of both trees, parents first. a, b: node of each side, -1 none. own_a, own_b: ns of the row itself, of several nodes of A.

    count: modules that a row stands for.
    """

    a: list[int]
    b: list[int]
    parent: list[int]
    own_a: Ints
    own_b: Ints
    count: list[int]

    def inside(self, own: Ints) -> Ints:
        """Returns the sums of rows with all that is inside."""
        out = own.copy()
        for row in range(len(out) - 1, 0, -1):
            out[self.parent[row]] += out[row]
        return out


def tree_table(names: tuple[str, str], found: Alignment, *, device: bool, steps: tuple[int, int]) -> TableSection:
    """Builds the tree of the step of the second side, with what only the first has in its place. names, steps: of both sides."""
    joined = _joined(found)
    rows = _folded(found, joined)
    time_a, time_b = rows.inside(rows.own_a), rows.inside(rows.own_b)
    shown = _shown(found, rows, time_a, time_b)
    how = [_how(found, rows, row) for row in shown]
    frame = pd.DataFrame({
        "name": [_shown_name(found, rows, row) for row in shown], "match": how, "delta_ns": (time_b - time_a)[shown],
        "time_a": [None if h == "only B" and not time_a[r] else int(time_a[r]) for h, r in zip(how, shown, strict=True)],
        "time_b": [None if h == "only A" and not time_b[r] else int(time_b[r]) for h, r in zip(how, shown, strict=True)],
        "because": [_because(found, rows, row) for row in shown], "was": [_before(found, rows, row) for row in shown],
        "id": [str(row) for row in shown],
        "parent": [str(rows.parent[row]) if rows.parent[row] > 0 else None for row in shown],
    }, dtype=object)  # fmt: skip
    frame["match"] = [{"only A": f"only {names[0]}", "only B": f"only {names[1]}"}.get(h, h) for h in how]
    shares = [f"{number(100 * share, 1)} % of {name}" for name, share in zip(names, found.shares, strict=True) if share is not None]
    deepest = found.a.cut + found.b.cut
    cut = f" The deepest {human(deepest, 'count')} rows count where they were called." if deepest else ""
    guess = {str(i): Mark("estimated", "a guess: by its place, its shapes and its name") for i, h in enumerate(how) if h in GUESSES}
    return make_table(
        "tree", "Step by step", frame, named(TREE, names), key="id", tree=TreeSpec(), marks={"match": guess} if guess else {},
        filters=["match"],
        subtitle=f"time {'of the device' if device else 'on the host'} in step {steps[0]} of {names[0]} and step {steps[1]} of {names[1]}; "
        f"matched: {' and '.join(shares)}",
        footer=f"{human(len(shown), 'count')} of {human(len(joined.a) - 1, 'count')} rows: those that changed by a thousandth of the step "
        f"or more, and what is around them. Layers that hold the same and changed alike are one row, as Layer 24×.{cut}",
    )  # fmt: skip


def _joined(found: Alignment) -> _Joined:
    """Returns the tree of B, and below it what A alone has; parents first."""
    a, b = found.a, found.b
    row_a = [-1] * len(a)
    parents: list[int] = []
    nodes_a, nodes_b = [], []
    for j in range(len(b)):
        parents.append(b.parent[j])
        nodes_b.append(j)
        nodes_a.append(found.partner_b[j])
    for i in range(len(a)):
        if found.partner_a[i] >= 0:
            row_a[i] = found.partner_a[i]
        else:
            row_a[i] = len(parents)
            parents.append(row_a[a.parent[i]])
            nodes_b.append(-1)
            nodes_a.append(i)
    own_a, own_b = np.zeros(len(parents), np.int64), np.zeros(len(parents), np.int64)
    np.add.at(own_a, row_a, a.times)
    own_b[: len(b)] = b.times
    return _Joined(nodes_a, nodes_b, parents, own_a, own_b, [1] * len(parents))


def _folded(found: Alignment, rows: _Joined) -> _Joined:
    """Returns the rows with modules of one class as one row where they stand in one parent, hold the same and changed by about as much.

    As much: within a tenth of their time, or a thousandth of the step, of what is usual among them, so that a layer that changed otherwise
    stays by itself.
    """
    time_a, time_b = rows.inside(rows.own_a), rows.inside(rows.own_b)
    delta, time = time_b - time_a, np.maximum(time_a, time_b)
    least = LEAST * max(int(rows.own_a.sum()), int(rows.own_b.sum()), 1)
    below: list[list[int]] = [[] for _ in rows.parent]
    for row, parent in enumerate(rows.parent[1:], 1):
        below[parent].append(row)
    signs = _signs(found, rows, below)
    into, count = list(range(len(rows.a))), [1] * len(rows.a)
    for row in range(len(rows.a)):
        if into[row] != row:
            continue
        groups: dict[int, list[int]] = {}
        for child in below[row]:
            if _kind(found, rows, child) == S.MODULE:
                groups.setdefault(signs[child], []).append(child)
        for group in groups.values():
            usual, near = float(np.median(delta[group])), max(least, ALIKE * float(np.median(time[group])))
            alike = [child for child in group if abs(float(delta[child]) - usual) <= near]
            for child in alike[1:]:
                _merge(into, below, child, alike[0])
            count[(alike or group)[0]] = max(len(alike), 1)
    kept = [row for row in range(len(rows.a)) if into[row] == row]
    place = {row: i for i, row in enumerate(kept)}
    for row in range(len(into)):  # what a row was merged into may have been merged itself
        while into[into[row]] != into[row]:
            into[row] = into[into[row]]
    target = np.array([place[first] for first in into], np.int64)
    own_a, own_b = (np.bincount(target, own, len(kept)).astype(np.int64) for own in (rows.own_a, rows.own_b))
    return _Joined(
        [rows.a[r] for r in kept], [rows.b[r] for r in kept], [place[into[rows.parent[r]]] if r else -1 for r in kept], own_a, own_b,
        [count[r] for r in kept],
    )  # fmt: skip


def _signs(found: Alignment, rows: _Joined, below: list[list[int]]) -> list[int]:
    """Returns a number per row that is the same for rows that are called, were matched and hold the same."""
    ids: dict[tuple[object, ...], int] = {}
    out = [0] * len(rows.a)
    for row in range(len(rows.a) - 1, -1, -1):
        name = _class(_name(found, rows, row)) if _kind(found, rows, row) == S.MODULE else _name(found, rows, row)
        how = _how(found, rows, row)
        was = _before(found, rows, row) if how in GUESSES else None
        out[row] = ids.setdefault((name, how, was, *(out[child] for child in below[row])), len(ids))
    return out


def _merge(into: list[int], below: list[list[int]], row: int, first: int) -> None:
    """Notes that a row, and each one below it, goes into the one in the same place of another row."""
    left = [(row, first)]
    while left:
        one, other = left.pop()
        into[one] = other
        left += zip(below[one], below[other], strict=True)


def _class(name: str) -> str:
    """Returns `Layer` of `Layer[3]`."""
    return name.rpartition("[")[0] or name


def _kind(found: Alignment, rows: _Joined, row: int) -> int:
    return found.b.kind[rows.b[row]] if rows.b[row] >= 0 else found.a.kind[rows.a[row]]


def _shown(found: Alignment, rows: _Joined, time_a: Ints, time_b: Ints) -> list[int]:
    """Returns the rows that changed, those around them, and the outermost ones, without the step itself; siblings in order of time."""
    least = LEAST * max(int(time_a[0]), int(time_b[0]), 1)
    weight = np.abs(time_b - time_a)
    other = np.array([_how(found, rows, row) != "same" for row in range(len(rows.a))], np.bool_)
    weight = np.where(other, np.maximum(weight, np.maximum(time_a, time_b)), weight)
    outermost = np.array(rows.parent) == 0
    wanted = np.flatnonzero((weight >= least) | (outermost & (np.maximum(time_a, time_b) >= least)))
    keep: set[int] = set()
    for row in wanted[np.argsort(-weight[wanted], kind="stable")].tolist():
        while row > 0 and row not in keep:
            keep.add(row)
            row = rows.parent[row]
        if len(keep) >= MOST_ROWS:
            break
    below: dict[int, list[int]] = {}
    for row in sorted(keep):
        below.setdefault(rows.parent[row], []).append(row)
    out, left = [], below.get(0, [])[::-1]
    while left:
        out.append(left.pop())
        left += below.get(out[-1], [])[::-1]
    return out


def _how(found: Alignment, rows: _Joined, row: int) -> str:
    if rows.b[row] < 0:
        return "only A"
    how = found.how_b[rows.b[row]]
    return "only B" if how == "only" else how


def _shown_name(found: Alignment, rows: _Joined, row: int) -> str:
    """Returns what a row is called; `Layer 24×` of several."""
    name = _name(found, rows, row)
    return name if rows.count[row] == 1 else f"{_class(name)} {rows.count[row]}×"


def _because(found: Alignment, rows: _Joined, row: int) -> str | None:
    """Returns what speaks for a guess; None of what is none."""
    how, i, j = _how(found, rows, row), rows.a[row], rows.b[row]
    if how == "renamed":
        alike = found.a.shapes[i] and found.a.shapes[i] == found.b.shapes[j]
        return "in the same place, with a first input of the same shape" if alike else "in the same place, spelled nearly alike"
    if how not in ("fused", "split"):
        return None
    side, node = (found.b, j) if how == "fused" else (found.a, i)
    where = "in the place of these" if how == "fused" else "in its place"
    return f"{where}; what it takes, these take too" if side.inputs[node] else f"{where}; no inputs were recorded"


def _name(found: Alignment, rows: _Joined, row: int) -> str:
    return found.b.name[rows.b[row]] if rows.b[row] >= 0 else found.a.name[rows.a[row]]


def _before(found: Alignment, rows: _Joined, row: int) -> str | None:
    """Returns where a row that moved was, and what one of another name was called."""
    node, how = rows.a[row], _how(found, rows, row)
    if how in ("renamed", "split"):
        return found.a.name[node]
    if how == "fused":
        several = [found.a.name[i] for i, j in enumerate(found.partner_a) if j == rows.b[row]]
        return ", ".join(dict.fromkeys(several)) if several else None
    if how != "moved":
        return None
    parts = [found.a.name[node]]
    while found.a.parent[node] > 0 and len(parts) < 8:
        node = found.a.parent[node]
        parts.append(found.a.name[node])
    return "/".join(reversed(parts))


# -- In order of execution --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Execution:
    """Outermost operators of both steps in one order. side: "both", "a" or "b". time_a, time_b: ns with all that is inside."""

    name: list[str]
    side: list[str]
    time_a: Ints
    time_b: Ints


def executed(found: Alignment) -> Execution:
    """Returns the outermost operators of B in order, each with the time of what it stands for in A, and what A alone has after what was
    before it there. Short ones that follow each other are one row: those below a thousandth of the step on both sides.
    """
    ours, theirs = _outermost(found.a), _outermost(found.b)
    place = {node: at for at, node in enumerate(theirs)}
    inside_a, inside_b = _inside(found.a), _inside(found.b)
    time_a = np.zeros(len(theirs), np.int64)
    alone: list[tuple[int, int]] = []  # behind which one of B, the node of A
    last = -1
    for node in ours:
        at = place.get(found.partner_a[node])
        if at is None:
            alone.append((last, node))
        else:
            time_a[at] += inside_a[node]
            last = at
    sides_b = ["both" if found.partner_b[node] >= 0 else "b" for node in theirs]
    rows = [(at, 0, found.b.name[node], sides_b[at], int(time_a[at]), int(inside_b[node])) for at, node in enumerate(theirs)]
    rows += [(at, 1, found.a.name[node], "a", int(inside_a[node]), 0) for at, node in alone]
    rows.sort(key=lambda row: row[:2])
    least = LEAST * max(sum(r[4] for r in rows), sum(r[5] for r in rows), 1)
    names: list[str] = []
    sides: list[str] = []
    times: list[tuple[int, int]] = []
    few = 0
    for _, _, name, side, a, b in rows:
        short = max(a, b) < least
        if short and few:
            few += 1
            names[-1], sides[-1], times[-1] = f"({human(few, 'count')} short ones)", "both", (times[-1][0] + a, times[-1][1] + b)
            continue
        few = int(short)
        names.append(name)
        sides.append(side)
        times.append((a, b))
    both = np.array(times, np.int64).reshape(-1, 2)
    return Execution(names, sides, both[:, 0], both[:, 1])


def _outermost(side: Nodes) -> list[int]:
    """Returns the operators that no operator is around, in order."""
    out, left = [], [0]
    while left:
        node = left.pop()
        if node and side.kind[node] == S.OPERATOR:
            out.append(node)
        else:
            left += side.children[node][::-1]
    return out


def _inside(side: Nodes) -> Ints:
    """Returns the time of each node with all that is inside."""
    out = side.times.copy()
    for node in range(len(out) - 1, 0, -1):
        out[side.parent[node]] += out[node]
    return out


def executions(names: tuple[str, str], trees: Trees) -> tuple[FigureSection, TableSection] | None:
    """Draws both steps in order of execution, with a table; None where they hold no operators with time."""
    found = executed(trees.found)
    if not (found.time_a.any() or found.time_b.any()):
        return None
    a, b, delta = np.cumsum(found.time_a), np.cumsum(found.time_b), found.time_b - found.time_a
    sides = {"both": "both", "a": f"only {names[0]}", "b": f"only {names[1]}"}
    frame = pd.DataFrame({
        "order": np.arange(1, len(a) + 1), "name": found.name, "match": [sides[side] for side in found.side], "delta_ns": delta,
        "time_a": [None if side == "b" else v for side, v in zip(found.side, found.time_a.tolist(), strict=True)],
        "time_b": [None if side == "a" else v for side, v in zip(found.side, found.time_b.tolist(), strict=True)],
        "accumulated_a": a, "accumulated_b": b, "accumulated_delta_ns": b - a,
    }, dtype=object)  # fmt: skip
    what = f"time {'of the device' if trees.device else 'on the host'}"
    steps = f"step {trees.steps[0]} of {names[0]} and step {trees.steps[1]} of {names[1]}"
    table = make_table(
        "executions", "Operators in order of execution", frame, named(EXECUTIONS, names), key="order", filters=["match"],
        subtitle=f"{what} in {steps}",
        footer="Outermost operators; those below a thousandth of the step that follow each other are one row.",
    )  # fmt: skip
    totals = tuple(zip(names, (a, b), ("compute", "communication"), strict=True))
    scale, unit = F.time_scale(float(max(a[-1], b[-1], 1)))
    order = list(range(1, len(a) + 1))
    hover = [
        f"<b>{F.escape(F.cut(name, 60))}</b><br>{signed(d, 'ns')}; {signed(t, 'ns')} since the begin of the step"
        for name, d, t in zip(found.name, delta.tolist(), (b - a).tolist(), strict=True)
    ]
    data: list[F.Plain] = [
        {"type": "bar", "x": order, "y": (delta / scale).tolist(), "marker": {"color": F.light("ink-3")}, "name": "difference",
         "width": 0.8, "customdata": order, "hoverinfo": "text", "hovertext": hover},
        *({"type": "scatter", "mode": "lines", "x": order, "y": (total / scale).tolist(), "name": F.escape(name), "hoverinfo": "skip",
           "line": {"color": F.light(color), "width": 1.8}} for name, total, color in totals),
    ]  # fmt: skip
    notes: list[F.Plain] = [
        {"xref": "paper", "yref": "paper", "x": at, "y": 1, "xanchor": ("left", "right")[at], "yanchor": "bottom", "showarrow": False,
         "yshift": 15 * (1 - at),
         "text": f"<b>{F.escape(F.cut(name, 28))}</b> {human(int(total[-1]), 'ns')}", "font": {"size": 12, "color": F.light(color)}}
        for at, (name, total, color) in enumerate(totals)
    ]  # fmt: skip
    figure = FigureSection(
        id="order", title="In order of execution", height=300, table="executions",
        subtitle=f"{what}, accumulated over outermost operators, and the difference of each; {steps}",
        figure=F.figure(data, x=F.axis("operators, in order", showgrid=False), y=F.axis(unit), annotations=notes,
                        margin={"l": 58, "r": 14, "t": 37, "b": 46}),
        summary=f"Over {how_many(len(a), 'row')} in order of execution {names[0]} takes {human(int(a[-1]), 'ns')} and {names[1]} "
        f"{human(int(b[-1]), 'ns')}.",
    )  # fmt: skip
    return figure, table
