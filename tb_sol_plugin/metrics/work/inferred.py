"""Infers the work of kernels whose launch lies before the recorded window.

A recording that starts while the device still has queued work holds kernels without the operator that launched them. Where calls
inside the window ran the same kernel with the same grid, block and shared memory, all of them of one operator with one set of
sizes, and the time is alike, such a kernel did the same work. It becomes a call of its own, without host row, marked as estimated.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints, codes, factorize

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
    first, number = _calls(device, lost[found["row"]], found["rank"].to_numpy(), found["events"].to_numpy())
    if not len(first):
        return ops, owner
    rows = lost[found["row"]]
    use = number >= 0
    total = np.bincount(number[use], duration[rows[use]], minlength=len(first)).astype(np.int64)
    added = _frame(ops, found.iloc[first], total, device["step"].to_numpy()[rows[first]])
    out = owner.copy()
    out[rows[use]] = len(ops) + number[use]
    return stacked(ops, added), out


def _likes(ops: pd.DataFrame, op_of_kernel: Ints, rank: Ints, events: Ints, like: Ints, duration: Ints) -> pd.DataFrame:
    """Returns one row per likeness and signature of a call.

    Columns: like, op (an example), rank, events, name, shapes, dtype, kind, work, usual (ns).
    """
    text = ("name", "shapes_json", "dtype", "kind", "direction")
    frame = pd.DataFrame({"like": like, "rank": rank, "events": events, "usual": duration.astype(np.float64), "op": op_of_kernel})
    frame = frame.assign(**{c: codes(ops[c])[op_of_kernel] for c in text})
    keys = ["like", "rank", "events", *text]
    out = frame.groupby(keys, sort=False).agg(usual=("usual", "median"), op=("op", "first"), count=("op", "size")).reset_index()
    return out.assign(**{c: ops[c].to_numpy(dtype=np.float64)[out["op"].to_numpy()] for c in WORK})


def _matches(likes: pd.DataFrame, wanted: Ints, time: Ints) -> pd.DataFrame:
    """Returns one row per lost kernel that one kind of work explains.

    Columns: row (position in `wanted`), op, rank, events, names (codes), several_shapes.
    """
    lost = pd.DataFrame({"row": np.arange(len(wanted)), "like": wanted, "time": time.astype(np.float64)})
    pairs = lost.merge(likes, on="like")
    close = _one_work(pairs[(pairs["time"] <= CLOSE * pairs["usual"]) & (pairs["usual"] <= CLOSE * pairs["time"])])
    loose = _one_work(pairs[~np.isin(pairs["row"].to_numpy(), close["row"].to_numpy())])
    loose = loose[(loose["time"] <= ALIKE * loose["usual"]) & (loose["usual"] <= ALIKE * loose["time"])]
    return pd.concat([close, loose]).sort_values("row", kind="stable").reset_index(drop=True)


def _one_work(pairs: pd.DataFrame) -> pd.DataFrame:
    """Returns one pair per kernel whose pairs agree in kind, type, direction, place in the call and work: the one with the least bytes."""
    by = pairs.groupby("row", sort=False)
    same = np.ones(len(pairs), bool)
    for column in ("rank", "events", "dtype", "kind", "direction"):
        same &= (by[column].transform("min") == by[column].transform("max")).to_numpy()
    for column in WORK:
        high, low = by[column].transform("max"), by[column].transform("min")
        some = by[column].transform("count").to_numpy()
        same &= (some == 0) | ((some == by["row"].transform("size").to_numpy()) & (high - low <= SAME_WORK * high).to_numpy())
    several = (by["shapes_json"].transform("min") != by["shapes_json"].transform("max")).to_numpy()
    low, high = by["name"].transform("min"), by["name"].transform("max")
    pairs = pairs.assign(several_shapes=several, name=low, other_name=high)[same]
    return pairs.sort_values(["row", "bytes"], kind="stable").drop_duplicates("row")


def _frame(ops: pd.DataFrame, found: pd.DataFrame, total: Ints, step: npt.NDArray[np.integer]) -> pd.DataFrame:
    names = np.array(ops["name"].cat.categories.astype(str), object)
    one, other = names[found["name"].to_numpy()], names[found["other_name"].to_numpy()]
    several = found["several_shapes"].to_numpy()
    added = ops.iloc[found["op"].to_numpy()].reset_index(drop=True)
    shapes, text = (np.where(several, "", added[c].astype(object).to_numpy()) for c in ("shapes", "shapes_json"))
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
