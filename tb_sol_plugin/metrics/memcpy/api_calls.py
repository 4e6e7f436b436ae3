"""Host calls that copy or set memory, or say where it should live, with the device work that each led to.

Which calls: runtime, driver and HIP functions by one expression (`records.COPY_API`), so that a new form of `cudaMemcpy…` needs no new
line here; and any other call that a copy is joined to (a graph launch, a call of another vendor), so that nothing joined is left out.
Where a recorder writes a runtime call and the driver call inside of it, both are rows of their own: host time is per row, not to be summed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics.memcpy.records import COPY_API, api_name, copies, family_of, waits_by_name
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints, Mask

WHAT: Final = {"cpy": "copy", "set": "set", "Prefetch": "prefetch", "Advise": "advise"}
OTHER: Final = "other"
MANAGED: Final = ("Managed", "Managed Static")
"""Kinds of memory that the driver moves between host and device by itself."""


def calls(capture: Capture, host: Mask) -> pd.DataFrame:
    """The calls among some host rows (a mask over `host`), by function, longest host time first.

    Columns: api (name without version and stream suffixes), family ("runtime", "driver", "hip", "" other), what (copy, set, prefetch,
    advise; other: a call of another sort that copies are joined to), is_async (1 yes; 0: it waits, by its name; -1 not told by the name),
    calls, without_device (calls without a device row; prefetch and advice never have one), host_ns (sum of their durations),
    waited (calls that returned after their last copy had ended), copies (device rows joined, sets included), bytes (NaN where none was
    recorded), without_bytes, device_ns (plain sum), managed (copies with an end in managed memory).
    """
    found = copies(capture, np.ones(len(capture.device), bool))[["call", "start_ns", "duration_ns", "bytes", "src_kind", "dst_kind"]]
    found = found[found["call"].to_numpy() >= 0]
    chosen = _chosen(capture, host, found["call"].to_numpy())
    rows = np.flatnonzero(chosen)
    names = capture.host["name"].cat.categories
    used, code = np.unique(capture.host["name"].cat.codes.to_numpy()[rows], return_inverse=True)
    said = [str(names[c]) for c in used.tolist()]
    api, place = np.unique(np.array([api_name(n) for n in said], object).astype(str), return_inverse=True)
    api_of = place[code] if len(rows) else np.zeros(0, np.int64)
    texts = api.tolist()
    joined = found[chosen[found["call"].to_numpy()]] if len(chosen) else found.iloc[:0]
    out = pd.DataFrame({
        "api": np.array(texts, object),
        "family": np.array([family_of(t) for t in texts], object),
        "what": np.array([what_of(t) for t in texts], object),
        "is_async": np.array([-1 if what_of(t) == OTHER else 0 if waits_by_name(t) else 1 for t in texts], np.int8),
        **_sums(capture, rows, api_of, joined, len(texts)),
    })  # fmt: skip
    return out.sort_values(["host_ns", "api"], ascending=[False, True], kind="stable", ignore_index=True)


def what_of(api: str) -> str:
    """copy, set, prefetch or advise; other for a call that is none of them."""
    found = COPY_API.match(api)
    return WHAT[found[1]] if found else OTHER


def _chosen(capture: Capture, host: Mask, joined: npt.NDArray[np.int32]) -> Mask:
    """Calls among the rows whose name says that they copy, or that a copy is joined to."""
    if not len(capture.host):
        return np.zeros(0, bool)
    names = capture.host["name"]
    good = np.fromiter((COPY_API.match(str(n)) is not None for n in names.cat.categories), bool, len(names.cat.categories))
    chosen = good[names.cat.codes.to_numpy()] & (capture.host["kind"].to_numpy() == S.CALL)
    chosen[joined] = True
    return np.asarray(chosen & host, np.bool_)


def _sums(
    capture: Capture, rows: npt.NDArray[np.intp], api: npt.NDArray[np.integer], joined: pd.DataFrame, count: int
) -> dict[str, npt.NDArray[np.generic]]:
    h = at.host(capture)
    call = joined["call"].to_numpy()
    last = np.full(len(h.start), -1, np.int64)
    np.maximum.at(last, call, joined["start_ns"].to_numpy() + joined["duration_ns"].to_numpy())
    place = np.zeros(len(h.start), np.int64)
    place[rows] = api
    of_copy = place[call]
    size = joined["bytes"].to_numpy()
    known = size >= 0
    with_size = at.sum_by(of_copy[known], size[known], count)
    copied, bare = _count(of_copy, count), _count(of_copy[~known], count)
    managed = joined["src_kind"].isin(MANAGED).to_numpy() | joined["dst_kind"].isin(MANAGED).to_numpy()
    return {
        "calls": _count(api, count),
        "without_device": _count(api[last[rows] < 0], count),
        "host_ns": at.sum_by(api, h.duration[rows], count),
        "waited": _count(api[(last[rows] >= 0) & (h.stop[rows] >= last[rows])], count),
        "copies": copied,
        "bytes": np.where(bare < copied, with_size.astype(np.float64), np.nan),
        "without_bytes": bare,
        "device_ns": at.sum_by(of_copy, joined["duration_ns"].to_numpy(), count),
        "managed": _count(of_copy[managed], count),
    }


def _count(code: npt.NDArray[np.integer], count: int) -> Ints:
    return np.bincount(code, minlength=count).astype(np.int64)
