"""Steps of a data-parallel job in one worker's trace: how long each lasts, and how long it only waits for gradients to be reduced."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics.breakdown import COMMUNICATION, COMPUTATION, classes, spans_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as I
from tb_sol_plugin.tables.arrays import Ints, Mask

REDUCES: Final = re.compile(r"all_?reduce|reduce_?scatter", re.IGNORECASE)
"""Names of collectives that reduce gradients; others (all-gather of sharded parameters) are no part of it."""
ON_HOST: Final = re.compile(r"(gloo|mpi|ucc):(all_?reduce|reduce_?scatter)", re.IGNORECASE)
"""Ranges in which a backend of the host works."""
BACKWARD: Final = re.compile(r"autograd::engine::evaluate_function")
_WAITS: Final = re.compile(r"autograd::engine::evaluate_function: torch::autograd::AccumulateGrad|c10d::|aten::wait_tensor")
"""Ranges of the host that a reduction may end inside of: waiting in them is no computing."""

COLUMNS: Final = ("number", "duration_ns", "sync_ns", "reduce_ns", "reduces", "complete")


def steps(capture: Capture, *, replicas: int = 0) -> pd.DataFrame:
    """One row per `ProfilerStep#`, in order; none where no step was recorded.

    number; duration_ns (a step ends with the last device event that it launched); reduce_ns: union of the reductions of gradients
    (all-reduce and reduce-scatter, begun after the step's backward pass began); sync_ns: the part of it behind which nothing is
    computed, which is what the step lasts longer for it; reduces: whether there was one; complete.
    replicas: data-parallel size, where it differs from the world's: then collectives of groups of another size are left out, if the
    recording tells sizes.
    """
    table = capture.steps
    if capture.facts.pseudo_step or not len(table):
        return pd.DataFrame({name: pd.Series(dtype=bool if name in ("reduces", "complete") else np.int64) for name in COLUMNS})
    start, end = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    begun = _backward_starts(capture)
    on_device = _device_reductions(capture, begun, replicas)
    if on_device.any() or not _host_names(capture, ON_HOST).any():
        spans, busy = spans_of(capture, on_device), spans_of(capture, classes(capture) == COMPUTATION)
    else:
        spans, busy = _host_reductions(capture), _host_computation(capture)
    reduce = I.overlap_with(start, end, spans)
    return pd.DataFrame({
        "number": table["number"].to_numpy(), "duration_ns": end - start, "sync_ns": I.overlap_with(start, end, I.subtract(spans, busy)),
        "reduce_ns": reduce, "reduces": reduce > 0, "complete": table["complete"].to_numpy(),
    })  # fmt: skip


def _backward_starts(capture: Capture) -> Ints:
    """Per step the host time at which its backward pass began; the step's start where none is recorded."""
    table = capture.steps
    first, last = table["host_start_ns"].to_numpy(), table["host_end_ns"].to_numpy()
    roots = np.sort(capture.host["start_ns"].to_numpy()[_host_names(capture, BACKWARD)])
    if not len(roots):
        return first.copy()
    where = np.searchsorted(roots, first)
    found = roots[np.minimum(where, len(roots) - 1)]
    return np.where((where < len(roots)) & (found < last), found, first)


def _device_reductions(capture: Capture, begun: Ints, replicas: int) -> Mask:
    """Device rows that reduce gradients: launched (or, unlinked, begun) in a step after its backward pass began."""
    device = capture.device
    out = (classes(capture) == COMMUNICATION) & _reducing(capture)
    if replicas > 0:
        sizes = np.full(len(device), -1, np.int64)
        told = capture.tables["collectives"]
        sizes[told["device"].to_numpy()] = told["group_size"].to_numpy()
        if (out & (sizes == replicas)).any():
            out &= (sizes == replicas) | (sizes <= 0)
    launched = at.launches(capture)
    time = np.where(launched.call >= 0, launched.time, device["start_ns"].to_numpy())
    step = device["step"].to_numpy()
    return np.asarray(out & (step >= 0) & (time >= begun[np.maximum(step, 0)]), np.bool_)


def _reducing(capture: Capture) -> Mask:
    """Device rows whose kernel, or whose recorded collective, is a reduction over ranks."""
    out = arrays.where(capture.device["name"], lambda name: REDUCES.search(name) is not None)
    told = capture.tables["collectives"]
    named = arrays.where(told["name"], lambda name: REDUCES.search(name) is not None)
    out[told["device"].to_numpy()[named]] = True
    return out


def _host_names(capture: Capture, pattern: re.Pattern[str]) -> Mask:
    return arrays.where(capture.host["name"], lambda name: pattern.search(name) is not None)


def _host_reductions(capture: Capture) -> I.Spans:
    return _host_spans(capture, _host_names(capture, ON_HOST))


def _host_computation(capture: Capture) -> I.Spans:
    """Operators at work on threads that compute: innermost ones, but for waiting and for the reduction itself."""
    h = at.host(capture)
    operator = h.kind == S.OPERATOR
    waits = _host_names(capture, _WAITS) | _host_names(capture, ON_HOST) | _host_names(capture, BACKWARD)
    threads = np.unique(h.thread[_host_names(capture, ON_HOST)])
    return _host_spans(capture, operator & ~waits & ~np.isin(h.thread, threads))


def _host_spans(capture: Capture, rows: Mask) -> I.Spans:
    h = at.host(capture)
    return I.union(h.start[rows], h.stop[rows])
