"""Where the time of a step goes: an exclusive split by priority, device work first, then the host.

Each category gets the part of the window that no category before it covers, so the categories add up to the window exactly.
DataLoader, for example, is only the loading time that is not hidden behind device work or runtime calls.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.breakdown import COMMUNICATION, COMPUTATION, MEMCPY, Rule, classes, spans_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as I

CATEGORIES: Final = ("kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "dataloader_ns", "cpu_exec_ns", "other_ns")
"""In order of priority; `other_ns` is what none of them covers."""

DATALOADER: Final = re.compile(r"enumerate\(DataLoader\)#.*\.__next__|enumerate\(DataPipe\)#")
STEP_RANGE: Final = re.compile(r"ProfilerStep#\d+$")


def split_windows(capture: Capture, start: npt.ArrayLike, end: npt.ArrayLike, *, rule: Rule = "wide") -> pd.DataFrame:
    """The split of each window `[start, end)` in ns; a column per category, which add up to the window's length.

    kernel: kernels that are neither communication nor copies. memcpy: copies, copy kernels among them. runtime: runtime and driver
    calls of any thread. dataloader: `enumerate(DataLoader)#….__next__` and `enumerate(DataPipe)#…`. cpu_exec: operators,
    user annotations (not the step's own), modules and python frames of any thread.
    """
    first, last = np.asarray(start, np.int64), np.asarray(end, np.int64)
    layers = memo(capture, ("step_split.layers", rule), lambda: I.exclusive(_layers(capture, rule)))
    out = {name: I.overlap_with(first, last, layer) for name, layer in zip(CATEGORIES, layers, strict=False)}
    out["other_ns"] = np.maximum(last - first, 0) - np.sum(list(out.values()), axis=0, dtype=np.int64)
    return pd.DataFrame(out)


def split_steps(capture: Capture, *, rule: Rule = "wide") -> pd.DataFrame:
    """Every row of `steps` with its split over the GPU-aware bounds.

    Columns: step (number, -1 for the pseudo-step), start_ns, duration_ns, complete, device_events, host_ns (the host's own
    length), and the categories, which add up to duration_ns.
    """
    steps = capture.steps
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    head = pd.DataFrame({
        "step": steps["number"].to_numpy(), "start_ns": start, "duration_ns": end - start, "complete": steps["complete"].to_numpy(),
        "device_events": steps["device_events"].to_numpy(), "host_ns": steps["host_end_ns"].to_numpy() - steps["host_start_ns"].to_numpy(),
    })  # fmt: skip
    return pd.concat([head, split_windows(capture, start, end, rule=rule)], axis=1)


def average(frame: pd.DataFrame) -> dict[str, int]:
    """Mean duration and categories over the rows, in whole ns; what rounding leaves over goes to `other_ns`, so the sum stays exact."""
    count = max(len(frame), 1)
    out = {"duration_ns": round(int(frame["duration_ns"].sum()) / count)}
    out |= {name: int(frame[name].sum()) // count for name in CATEGORIES[:-1]}
    out["other_ns"] = out["duration_ns"] - sum(out[name] for name in CATEGORIES[:-1])
    return out


def _layers(capture: Capture, rule: Rule) -> list[I.Spans]:
    kind = classes(capture, rule)
    is_set = capture.device["kind"].to_numpy() == S.MEMSET
    device = [(kind == COMPUTATION) & ~is_set, kind == MEMCPY, is_set, kind == COMMUNICATION]
    host_kind = capture.host["kind"].to_numpy()
    loads, steps = (_named(capture.host["name"], pattern) for pattern in (DATALOADER, STEP_RANGE))
    named = np.isin(host_kind, (S.OPERATOR, S.ANNOTATION, S.FRAME, S.MODULE))
    host = [host_kind == S.CALL, loads & named, named & ~loads & ~steps]
    return [spans_of(capture, rows) for rows in device] + [_host_spans(capture, rows) for rows in host]


def _host_spans(capture: Capture, rows: npt.NDArray[np.bool_]) -> I.Spans:
    start = capture.host["start_ns"].to_numpy()[rows]
    return I.union(start, start + capture.host["duration_ns"].to_numpy()[rows])


def _named(names: pd.Series[str], pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Rows whose name matches, looked up once per distinct name."""
    hit = np.array([pattern.match(str(text)) is not None for text in names.cat.categories] or [False], bool)
    codes = names.cat.codes.to_numpy()
    return np.asarray(hit[np.maximum(codes, 0)] & (codes >= 0), np.bool_)
