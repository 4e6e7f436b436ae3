"""Makes the rows of a SOL capture's ledger calls, in the form of `Work.ops`.

A row of the ledger stands for `count` alike calls and becomes as many rows, so that calls count by rows here as everywhere. Work is
as recorded; what the recorder left open is worked out from the sizes by the cost models. Time is that of the row over its calls where
the recorder timed operators one by one (on a CPU), and unknown (NaN) elsewhere.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin import cost
from tb_sol_plugin.cost import Cost, Inputs
from tb_sol_plugin.cost.inputs import first_dtype, readable_shapes
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.kernel_names import kinds_of, plain_name
from tb_sol_plugin.metrics.work.costs import DIRECTIONS, KINDS
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Mask, factorize

Rows = npt.NDArray[np.int64]

SIGNATURE: Final = ("name", "shapes", "types", "strides", "concrete")
COLLECTIVE: Final = re.compile(r"_?c10d(_functional)?::")
"""Operators that communicate: what they move is bound by a link, not by this device."""
TF32_MATMUL: Final = ("high", "medium")
"""Settings of torch's matmul precision that let products of FP32 run in TF32."""


class LedgerCosts(NamedTuple):
    """Work of one call per row of the ledger, NaN unknown; dtype, kind, reason as texts. flop_again: 0 where flop is unknown."""

    flop: Floats
    flop_again: Floats
    flop_dense: Floats
    flop_vector: Floats
    bytes: Floats
    dtype: npt.NDArray[np.object_]
    kind: npt.NDArray[np.int8]
    estimated: Mask
    reason: npt.NDArray[np.object_]

    @property
    def usable(self) -> Mask:
        """Rows whose cost says enough to place an operation: its traffic, or matrix work."""
        return np.isfinite(self.bytes) | (np.nan_to_num(self.flop) > 0)


def ledger_inputs(capture: Capture, row: int) -> Inputs:
    """Returns the arguments of a row of the ledger."""
    table = capture.tables["ledger"]
    return Inputs(*(str(arrays.pick(table[c], [row])[0]) for c in SIGNATURE[1:]))


def ledger_costs(capture: Capture) -> LedgerCosts:
    """Returns work per row of the ledger: as recorded, else by the cost models; a model runs once per distinct signature."""
    return memo(capture, ("work.ledger_costs",), lambda: _costs(capture))


def _costs(capture: Capture) -> LedgerCosts:
    table = capture.tables["ledger"]
    flop, vector, data = (table[c].to_numpy(dtype=np.float64).copy() for c in ("flop", "flop_vector", "bytes"))
    dense, again = np.full(len(table), np.nan), np.zeros(len(table))
    dtype, kind_word, reason = (arrays.pick(table[c], np.arange(len(table))) for c in ("dtype", "kind", "reason"))
    kind = np.array([KINDS.index(k) if k in KINDS else -1 for k in kind_word.tolist()], np.int8)
    estimated = table["estimated"].to_numpy(dtype=bool).copy()
    ask = np.flatnonzero(
        np.isnan(flop) | np.isnan(vector) | np.isnan(data) | (kind < 0) | (dtype == "") | (kind == KINDS.index("attention"))
    )
    if len(ask):
        code, first = factorize([arrays.codes(table[c])[ask] for c in SIGNATURE])
        found = [_model(capture, int(row)) for row in ask[first].tolist()]
        for name, own in (("flop", flop), ("flop_vector", vector), ("bytes", data), ("flop_dense", dense)):
            of_model = np.array([np.nan if c is None or getattr(c, name) is None else float(getattr(c, name)) for c in found])[code]
            fresh = np.isnan(own[ask]) & np.isfinite(of_model)
            own[ask[fresh]] = of_model[fresh]
            guessed = np.array([c is not None and c.estimated for c in found], bool)[code] & fresh & (name != "flop_dense")
            estimated[ask[guessed]] = True
            reason[ask[guessed]] = np.array([c.reason if c is not None else "" for c in found], object)[code][guessed]
        again[ask] = np.array([0 if c is None else c.flop_again for c in found], np.float64)[code]
        words = np.array([c.dtype if c is not None else "" for c in found], object)[code]
        dtype[ask] = np.where(dtype[ask] == "", words, dtype[ask])
        kinds = np.array([KINDS.index(c.kind) if c is not None else -1 for c in found], np.int8)[code]
        kind[ask] = np.where(kind[ask] < 0, kinds, kind[ask])
    kind[kind < 0] = KINDS.index("other")
    untyped = np.flatnonzero(dtype == "")
    if len(untyped):
        types = arrays.pick(table["types"], untyped)
        known = {text: first_dtype(text) for text in set(types.tolist())}
        dtype[untyped] = np.array([known[t] for t in types.tolist()], object)
    _tf32(capture, dtype, kind, flop)
    again = np.minimum(np.where(table["recompute"].to_numpy(dtype=bool), np.inf, again), np.nan_to_num(flop))
    return LedgerCosts(flop, again, dense, vector, data, dtype, kind, estimated, reason)


def _model(capture: Capture, row: int) -> Cost | None:
    return cost.estimate(str(arrays.pick(capture.tables["ledger"]["name"], [row])[0]), ledger_inputs(capture, row))


def _tf32(capture: Capture, dtype: npt.NDArray[np.object_], kind: npt.NDArray[np.int8], flop: Floats) -> None:
    """Marks FP32 matrix work of an NVIDIA device as TF32 where the program allowed it; what ran is not seen by the recorder."""
    if capture.facts.vendor != "nvidia":
        return
    metadata = capture.facts.metadata
    matrix = (np.nan_to_num(flop) > 0) & (dtype == "fp32")
    conv = kind == KINDS.index("conv")
    if metadata.get("precision.matmul", "") in TF32_MATMUL:
        dtype[matrix & ~conv] = "tf32"
    if metadata.get("precision.cudnn_tf32", "") == "true":
        dtype[matrix & conv] = "tf32"


def counted_rows(capture: Capture) -> Rows:
    """Returns rows of the ledger that belong to the counted steps; all of them where the capture has no step."""
    step = capture.tables["ledger"]["step"].to_numpy()
    if not (step >= 0).any():
        return np.arange(len(step), dtype=np.int64)
    return np.flatnonzero(np.isin(step, scope.counted_steps(capture)))


def ledger_calls(capture: Capture) -> pd.DataFrame:
    """Returns the calls of the counted steps as rows of `Work.ops`, without limits; `ledger` is their row in the ledger.

    measured_ns is NaN for a call that was not timed, device_sum_ns 0 on a CPU and NaN elsewhere. Where compiled code ran eagerly to be
    counted, no time of the iteration is that of the program: all are NaN.
    """
    table = capture.tables["ledger"]
    known = ledger_costs(capture)
    chosen = counted_rows(capture)
    count = table["count"].to_numpy()[chosen].clip(min=0)
    at = np.repeat(chosen, count)
    each = table["time_ns"].to_numpy(dtype=np.float64)[chosen] / np.maximum(count, 1)
    if table["compiled"].to_numpy(dtype=bool)[chosen].any():
        each = np.full(len(each), np.nan)
    collective = arrays.where(table["name"], lambda name: COLLECTIVE.match(name) is not None)[at]
    modeled = known.usable[at] & ~collective
    size = len(at)
    labels = capture.tables["labels"]
    return pd.DataFrame(
        {
            "host": np.full(size, -1, np.int32),
            "name": _taken(table["name"], at),
            "kind": pd.Categorical.from_codes(known.kind[at], pd.Index(KINDS)),
            "direction": pd.Categorical.from_codes((table["direction"].to_numpy()[at] > 0).astype(np.int8), pd.Index(DIRECTIONS)),
            "dtype": _words(known.dtype, at),
            "shapes": _read(table["shapes"], at),
            "shapes_json": _taken(table["shapes"], at),
            "flop": np.where(collective, np.nan, known.flop[at]),  # what a collective moves is not counted, and not 0
            "flop_again": np.where(collective, 0, known.flop_again[at]),
            "flop_vector": np.where(collective, np.nan, known.flop_vector[at]),
            "flop_dense": known.flop_dense[at],
            "bytes": np.where(collective, np.nan, known.bytes[at]),
            "measured_ns": np.repeat(each, count),
            "device_sum_ns": np.zeros(size) if scope.on_cpu(capture) else np.full(size, np.nan),
            "device_events": np.zeros(size, np.int64),
            "module": table["module_host"].to_numpy()[at].astype(np.int32),
            "annotation": table["phase_host"].to_numpy()[at].astype(np.int32),
            "step": table["step"].to_numpy()[at].astype(np.int32),
            "estimated": known.estimated[at],
            "reason": _words(known.reason, at),
            "modeled": modeled,
            "link": np.zeros(size, bool),
            "collective": collective,
            "link_bytes": np.full(size, np.nan),
            "recompute": table["recompute"].to_numpy(dtype=bool)[at],
            "inferred": np.zeros(size, bool),
            "layer": _words(arrays.pick(labels["class_name"], table["module"].to_numpy()), at)
            if len(labels)
            else _words(np.full(len(table), "", object), at),
            "ledger": at.astype(np.int32),
        }
    )


def _taken(column: pd.Series, at: Rows) -> pd.Categorical:
    return pd.Categorical.from_codes(arrays.codes(column)[at], column.cat.categories)


def _words(values: npt.NDArray[np.object_], at: Rows) -> pd.Categorical:
    """Returns texts per row of the ledger, taken at rows."""
    code, names = pd.factorize(values)
    return pd.Categorical.from_codes(code[at], pd.Index(names, dtype=object))


def _read(column: pd.Series, at: Rows) -> pd.Categorical:
    """Returns sizes as a person reads them; two texts may read the same."""
    read = np.array([*(readable_shapes(str(text)) for text in column.cat.categories), ""], object)
    code, names = pd.factorize(read)
    return pd.Categorical.from_codes(code[arrays.codes(column)][at], pd.Index(names, dtype=object))


# -- Work of a profile without events (Proton) -----------------------------------------------------------------------
# each row of its ledger once, in the form of `Work.ops`.
#
# A row holds the sums over all launches of one kernel in one scope. `launches` says how many; work, time and limits are those of all of
# them together: they add up, so that limits over time are those of the calls. What nobody stated is unknown: no cost model can tell the
# work of a kernel from its name.


Codes = npt.NDArray[np.int8]

OTHER_DEVICE: Final = "ran on another kind of device than the limits are of"


def profile_calls(capture: Capture) -> pd.DataFrame:
    """Returns rows of `Work.ops`, one per row of the ledger, and `launches`.

    measured_ns is NaN where a scope stated work without a time.
    """
    table = capture.tables[S.LEDGER.name]
    size = len(table)
    launches = table["count"].to_numpy().clip(min=0)
    each = np.maximum(launches, 1)
    flop, data = (table[c].to_numpy(dtype=np.float64) * each for c in ("flop", "bytes"))
    time = table["time_ns"].to_numpy(dtype=np.float64)
    stated = np.isfinite(data) | (np.nan_to_num(flop) > 0)
    foreign = _on_another_kind(capture)
    reason = arrays.pick(table["reason"], np.arange(size))
    reason = np.where(foreign, OTHER_DEVICE, reason).astype(object)
    kind, collective = _kinds(capture)
    nothing = np.zeros(size, bool)
    none = np.full(size, -1, np.int32)
    empty = pd.Categorical.from_codes(np.zeros(size, np.int8), categories=pd.Index([""], dtype=object))  # type: ignore[arg-type]
    return pd.DataFrame(
        {
            "host": none,
            "name": table["name"].array,
            "kind": pd.Categorical.from_codes(kind, pd.Index(KINDS)),
            "direction": pd.Categorical.from_codes(np.zeros(size, np.int8), pd.Index(DIRECTIONS)),
            "dtype": table["dtype"].array,
            "shapes": empty,
            "shapes_json": empty,
            "flop": flop,
            "flop_again": np.zeros(size),
            "flop_vector": np.full(size, np.nan),
            "flop_dense": flop,
            "bytes": data,
            "measured_ns": time,
            "device_sum_ns": time,
            "device_events": np.zeros(size, np.int64),
            "module": none,
            "annotation": none,
            "step": none,
            "estimated": table["estimated"].to_numpy(dtype=bool),
            "reason": pd.Categorical(reason),
            "modeled": stated & ~foreign & ~collective,
            "link": nothing,
            "collective": collective,
            "link_bytes": np.full(size, np.nan),
            "recompute": nothing,
            "inferred": nothing,
            "layer": empty,
            "ledger": np.arange(size, dtype=np.int32),
            "launches": launches,
        }
    )


def _kinds(capture: Capture) -> tuple[Codes, Mask]:
    """Returns (kind of work per row, whether it communicates), judged by the kernel's name."""
    names = capture.tables[S.LEDGER.name]["name"]
    words = kinds_of([plain_name(str(name)) for name in names.cat.categories])
    places = {word: i for i, word in enumerate(KINDS)}
    other = places["other"]
    known = np.array([*(places.get(word, other) for word in words), other], np.int8)  # type: ignore[call-overload]
    moves = np.array([*(word == "communication" for word in words), False], bool)
    code = arrays.codes(names)
    return known[code], moves[code]


def _on_another_kind(capture: Capture) -> Mask:
    """Returns whether a row ran on a device unlike the one with most of the time, whose limits count."""
    table = capture.tables[S.LEDGER.name]
    device = table["device"].to_numpy()
    alike = {d.id: (d.name, d.compute_capability, d.units) for d in capture.facts.devices}
    time = np.nan_to_num(table["time_ns"].to_numpy(dtype=np.float64))
    spent: dict[int, float] = {}
    for one in np.unique(device).tolist():
        spent[one] = float(time[device == one].sum())
    known = [d for d in spent if d in alike]
    if len({alike[d] for d in known}) < 2:
        return np.zeros(len(table), bool)
    main = alike[max(known, key=lambda d: spent[d])]
    return np.isin(device, [d for d in known if alike[d] != main])
