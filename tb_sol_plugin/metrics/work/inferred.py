"""Infers the work of kernels whose launch lies before the recorded window.

A recording that starts while the device still has queued work holds kernels without the operator that launched them. Where calls
inside the window ran the same kernel with the same grid, block and shared memory, all of them of one operator with one set of
sizes, and the time is alike, such a kernel did the same work. It becomes a call of its own, without host row, marked as estimated.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, codes, factorize, medians, ranges, stable_order

CLOSE: Final = 1.25
"""Largest ratio of times between such a kernel and the median of its likes, where these differ in their work."""
ALIKE: Final = 2.0
"""The same where all likes did the same work."""
SAME_WORK: Final = 0.02
"""Likes whose FLOP and bytes differ by less than this part did the same work."""
REASON: Final = "launched before the recorded window: work of recorded calls with the same kernel, grid and block"
WORK: Final = ("flop", "flop_vector", "bytes")


def with_inferred(capture: Capture, ops: pd.DataFrame, owner: npt.NDArray[np.int32]) -> tuple[pd.DataFrame, npt.NDArray[np.int32]]:
    """Returns (ops with the inferred calls after the others, owner per device row). Nothing changes where nothing can be inferred.

    ops: rows of `Work.ops`; owner: per device row its row in ops, -1 none. Where likes of the same work differ in name or sizes, the
    call carries both names, and no sizes.
    """
    device = capture.device
    kernel = (device["kind"].to_numpy() == S.KERNEL) & ~device["communication"].to_numpy()
    lost = np.flatnonzero(kernel & (owner < 0) & (device["link"].to_numpy() == S.BEFORE_WINDOW))
    known = np.flatnonzero(kernel & (owner >= 0))
    known = known[ops["modeled"].to_numpy()[owner[known]]]
    if not len(lost) or not len(known):
        return ops, owner
    start, duration = device["start_ns"].to_numpy(), device["duration_ns"].to_numpy().clip(min=0)
    known = known[np.lexsort((start[known], owner[known]))]
    op_of_kernel = owner[known].astype(np.int64)
    fresh = np.concatenate((np.ones(1, bool), op_of_kernel[1:] != op_of_kernel[:-1]))
    opens = np.flatnonzero(fresh)
    events = np.diff(np.append(opens, len(known)))[np.cumsum(fresh) - 1]
    rank = np.arange(len(known)) - opens[np.cumsum(fresh) - 1]
    shape = [codes(device["name"]), codes(device["grid"]), codes(device["block"]), device["shared_memory"].to_numpy().astype(np.int64)]
    both = np.concatenate((known, lost))
    like, _ = factorize([column[both] for column in shape])
    likes = _likes(ops, op_of_kernel, rank, events, like[: len(known)], duration[known])
    found = _matches(likes, like[len(known) :], duration[lost])
    rows = lost[found.row]
    first, number = _calls(device, rows, likes.rank[found.like], likes.events[found.like])
    if not len(first):
        return ops, owner
    use = number >= 0
    total = np.bincount(number[use], duration[rows[use]], minlength=len(first)).astype(np.int64)
    added = _frame(ops, likes.op, found.at(first), total, device["step"].to_numpy()[rows[first]])
    out = owner.copy()
    out[rows[use]] = len(ops) + number[use]
    return stacked(ops, added), out


class _Likes(NamedTuple):
    """Kinds of recorded kernels: likeness, place in the call, kernels of the call, and its signature. op: one such call. usual: ns."""

    like: Ints
    rank: Ints
    events: Ints
    op: Ints
    usual: Floats
    text: dict[str, Ints]
    """Codes of what the calls have in common."""
    work: dict[str, Floats]


class _Found(NamedTuple):
    """What explains kernels without a call. row: position among these, ascending. name, other_name: codes, of calls that all may be it."""

    row: Ints
    like: Ints
    """Position of the kind among the likes."""
    name: Ints
    other_name: Ints
    several_shapes: Mask

    def at(self, places: npt.NDArray[np.intp]) -> _Found:
        """Returns some of them."""
        return _Found(self.row[places], self.like[places], self.name[places], self.other_name[places], self.several_shapes[places])


def _likes(ops: pd.DataFrame, op_of_kernel: Ints, rank: Ints, events: Ints, like: Ints, duration: Ints) -> _Likes:
    """Returns the kinds of recorded kernels, in order of first appearance."""
    text = {name: codes(ops[name])[op_of_kernel] for name in ("name", "shapes_json", "dtype", "kind", "direction")}
    group, first = factorize([like, rank, events, *text.values()])
    op = op_of_kernel[first]
    work = {name: ops[name].to_numpy(dtype=np.float64)[op] for name in WORK}
    usual = medians(group, duration, len(first))
    return _Likes(like[first], rank[first], events[first], op, usual, {name: code[first] for name, code in text.items()}, work)


def _matches(likes: _Likes, wanted: Ints, time: Ints) -> _Found:
    """Returns what explains lost kernels, where one kind of work does. wanted, time: per lost kernel, its likeness and ns."""
    order = stable_order(likes.like)
    begins, ends = (np.searchsorted(likes.like[order], wanted, side) for side in ("left", "right"))
    row, like = np.repeat(np.arange(len(wanted)), ends - begins), order[ranges(begins, ends - begins)]
    took, usual = time[row].astype(np.float64), likes.usual[like]
    near = (took <= CLOSE * usual) & (usual <= CLOSE * took)
    close = _one_work(likes, row[near], like[near])
    left = np.ones(len(wanted), bool)
    left[close.row] = False
    loose = _one_work(likes, row[left[row]], like[left[row]])
    took, usual = time[loose.row].astype(np.float64), likes.usual[loose.like]
    near = (took <= ALIKE * usual) & (usual <= ALIKE * took)
    both = _Found(*(np.concatenate(columns) for columns in zip(close, loose.at(np.flatnonzero(near)), strict=True)))
    return both.at(stable_order(both.row))


def _one_work(likes: _Likes, row: Ints, like: Ints) -> _Found:
    """Returns the kind with the least bytes per kernel whose kinds agree in type, direction, place in the call and work.

    row, like: pairs of a kernel, ascending, and a kind.
    """
    fresh = np.flatnonzero(np.diff(row, prepend=-1))
    size = np.diff(np.append(fresh, len(row)))

    def ends(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The least and the largest value per kernel, of those that are known."""
        return np.fmin.reduceat(values[like], fresh), np.fmax.reduceat(values[like], fresh)

    if not len(fresh):
        return _Found(row, like, row, row, np.zeros(0, bool))
    same = np.ones(len(fresh), bool)
    for column in (likes.rank, likes.events, likes.text["dtype"], likes.text["kind"], likes.text["direction"]):
        low, high = ends(column)
        same &= low == high
    for work in likes.work.values():
        low, high = ends(work)
        some = np.add.reduceat(~np.isnan(work[like]), fresh, dtype=np.int64)
        same &= (some == 0) | ((some == size) & (high - low <= SAME_WORK * high))
    few, most = ends(likes.text["shapes_json"])
    name, other = ends(likes.text["name"])
    best = np.lexsort((likes.work["bytes"][like], row))[fresh][same]
    return _Found(row[best], like[best], name[same], other[same], (few != most)[same])


def _frame(ops: pd.DataFrame, op: Ints, found: _Found, total: Ints, step: npt.NDArray[np.integer]) -> pd.DataFrame:
    names = np.array(ops["name"].cat.categories.astype(str), object)
    one, other = names[found.name], names[found.other_name]
    added = ops.iloc[op[found.like]].reset_index(drop=True)
    shapes, text = (np.where(found.several_shapes, "", added[c].astype(object).to_numpy()) for c in ("shapes", "shapes_json"))
    return added.assign(
        name=np.where(one == other, one, one + " or " + other), shapes=shapes, shapes_json=text, layer="", host=-1, module=-1,
        annotation=-1, measured_ns=total, device_sum_ns=total, step=step, estimated=True, reason=REASON, inferred=True, recompute=False,
        flop_again=np.where(added["recompute"], 0, added["flop_again"]),
    )  # fmt: skip


def stacked(ops: pd.DataFrame, added: pd.DataFrame) -> pd.DataFrame:
    """Returns both, with the column types of `ops`; texts that are new become categories."""
    columns: dict[str, pd.Categorical | npt.NDArray[np.generic]] = {}
    for name in ops.columns:
        if isinstance(ops[name].dtype, pd.CategoricalDtype):
            known = ops[name].cat.categories
            fresh = pd.Index(pd.unique(added[name].astype(object)), dtype=object)
            whole = known.append(fresh[~fresh.isin(known)])
            code = np.concatenate((codes(ops[name]), whole.get_indexer(pd.Index(added[name].astype(object)))))
            columns[name] = pd.Categorical.from_codes(code, whole, ordered=ops[name].cat.ordered)
        else:
            values = ops[name].to_numpy()
            columns[name] = np.concatenate((values, added[name].to_numpy().astype(values.dtype)))
    return pd.DataFrame(columns)


def _calls(device: pd.DataFrame, rows: Ints, rank: Ints, events: Ints) -> tuple[Ints, Ints]:
    """Returns (positions in `rows` of the first kernel of each whole call, call number per entry of `rows` or -1).

    A call of several kernels is whole if they follow each other on their stream, among `rows`, in the order of the example's.
    """
    stream = device["stream"].to_numpy()[rows]
    order = np.lexsort((device["start_ns"].to_numpy()[rows], stream, device["device"].to_numpy()[rows]))
    lead = np.flatnonzero(rank[order] == 0)
    lead = lead[lead + events[order][lead] <= len(order)]
    many = events[order][lead]
    whole = np.ones(len(lead), bool)
    for step in range(1, int(many.max(initial=1))):
        at = order[np.minimum(lead + step, len(order) - 1)]
        whole &= (step >= many) | ((rank[at] == step) & (events[at] == many) & (stream[at] == stream[order[lead]]))
    lead, many = lead[whole], many[whole]
    number = np.full(len(rows), -1, np.int64)
    for step in range(int(many.max(initial=1))):
        on = np.flatnonzero(step < many)
        number[order[lead[on] + step]] = on
    return np.asarray(order[lead], np.int64), number
