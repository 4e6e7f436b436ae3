"""Gradients that live on from one step to the next, where they meet the activations of its forward pass."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.holders import answers, holders
from tb_sol_plugin.metrics.memory.per_step import per_step, records_of
from tb_sol_plugin.metrics.memory.rules.case import Answer, Case, Lack, MemoryFinding
from tb_sol_plugin.metrics.memory.rules.limits import GRADIENT_STEPS, GRADIENTS_SHARE
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

MOST_STEPS: Final = 24
"""Steps that are looked at; of more, evenly spread ones."""
FEWEST: Final = 2
AGREES: Final = 0.01
"""Two sources that differ by less say the same."""
HOW: Final = "record several steps with profile(profile_memory=True) and call prof.step()"


def gradients_kept(case: Case) -> Answer:
    """Gradients in use at the begin of nearly every step: by category at that moment, else by what a recorder found at its end."""
    if case.trains is False:
        return None
    for curve in case.memory.curves:
        if curve.source != "recorder" and "category" in answers(case.capture, curve):
            found = at_begin(case, curve)
            if found is not None:
                return _judged(case, found, estimated=curve.source == "events" and not _agrees(found, at_end(case)))
    found = at_end(case)
    if found is not None:
        return _judged(case, found, estimated=True, at="end")
    return Lack("gradients_kept", "gradients at the begin of a step were not recorded", HOW)


def at_begin(case: Case, curve: Curves) -> np.ndarray | None:
    """Bytes of gradients as each step begins, the first one left out; None where there are too few steps."""
    steps = per_step(case.capture, curve)["start_ns"].to_numpy()[1:]
    if len(steps) < FEWEST:
        return None
    looked = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS)).astype(np.int64))]
    return np.array([_bytes_of(holders(case.capture, curve, "category", int(t)).rows) for t in looked.tolist()], np.int64)


def at_end(case: Case) -> np.ndarray | None:
    """The same of records at the end of iterations in which parameters and gradients were looked at."""
    number = case.memory.number if not case.memory.host else -1
    own = records_of(case.capture, number) if number >= 0 else _of_host(case)
    own = own[own["iteration"].to_numpy() > 0]
    parts = case.capture.tables[S.MEMORY_PARTS.name]
    gradient = arrays.where(parts["category"], lambda c: c == "grads")
    looked = own[np.isin(own.index.to_numpy(), parts["record"].to_numpy()[gradient])]
    if len(looked) < FEWEST:
        return None
    sums = parts[gradient].groupby("record")["bytes"].sum()
    return np.array([int(sums[r]) for r in looked.index], np.int64)


def _agrees(begin: np.ndarray, end: np.ndarray | None) -> bool:
    """Whether what a trace takes for gradients is what the program found, so that it is no estimate."""
    return end is not None and abs(float(np.median(begin)) - float(np.median(end))) <= AGREES * float(np.median(end))


def _of_host(case: Case) -> pd.DataFrame:
    table = case.capture.tables[S.MEMORY_RECORDS.name]
    return table[(table["device"].to_numpy() < 0) & ~arrays.where(table["since"], lambda s: s == "phase")]


def _bytes_of(rows: pd.DataFrame) -> int:
    return int(rows.loc[(rows["kind"] == "row") & (rows["name"] == "grads"), "bytes"].sum())


def _judged(case: Case, found: np.ndarray, *, estimated: bool, at: str = "begin") -> Answer:
    there = found[found > 0]
    if len(there) < GRADIENT_STEPS * len(found):
        return None
    size = int(np.median(there))
    share = case.share(size)
    if share is not None and share < GRADIENTS_SHARE:
        return None
    said = f"{human(size, 'B')} of gradients are in use at the {at} of {len(there)} of {len(found)} steps."
    more = (
        " Freed before the forward pass, they do not meet its activations at the peak." if at == "begin" else
        " Unless the next step frees them before its forward pass, they meet its activations at the peak."
    )  # fmt: skip
    return MemoryFinding(
        "gradients_kept", "Gradients stay in memory between steps", said + more,
        "optimizer.zero_grad(set_to_none=True)  # right after optimizer.step()", size, share, "memory", "Memory by category",
        query=(("by", "category"),), candidate=estimated, color="norm",
    )  # fmt: skip
