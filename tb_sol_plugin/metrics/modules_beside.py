"""Modules of a trace that recorded none, from the SOL capture beside it: a capture of the sampled iterations that do the work of its steps.

The view holds what the SOL capture knows of those iterations and nothing of the trace but its device: their ledger, the times of their
modules and labels. Whatever reads a SOL capture whose modules are labels alone reads the view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.devices.limits import devices_in_use
from tb_sol_plugin.metrics import memo, source
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.metrics.work.joined import iterations_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

MOST_NAMED: Final = 4


@dataclass(frozen=True)
class Beside:
    """capture: the view. iterations: sampled ones that are its steps. steps: how many are selected; alike: of how many these iterations
    do the work; where that is none, the last iteration that was sampled stands in. file: name of the SOL capture."""

    capture: Capture
    iterations: tuple[int, ...]
    steps: int
    alike: int
    file: str

    @property
    def words(self) -> str:
        """`iteration 20`, `iterations 20, 40`, of many `12 iterations from 20 to 240`."""
        if len(self.iterations) > MOST_NAMED:
            return f"{len(self.iterations)} iterations from {self.iterations[0]} to {self.iterations[-1]}"
        return f"iteration{'s' if len(self.iterations) > 1 else ''} {', '.join(map(str, self.iterations))}"


def known_beside(capture: Capture) -> bool:
    """Whether a trace has no module calls, and the SOL capture beside it counted work in modules."""
    if source.source_of(capture) != "both" or (capture.host["kind"].to_numpy() == S.MODULE).any():
        return False
    return bool((capture.tables["ledger"]["module"].to_numpy() >= 0).any())


def modules_beside(capture: Capture, part: Scope) -> Beside | None:
    """The view for the selected steps of a trace; None where `known_beside` is not."""
    if not known_beside(capture):
        return None
    pairs = iterations_of(capture)
    found = [pairs[row] for row in part.rows if row in pairs]
    chosen = tuple(sorted(set(found))) or (int(capture.tables["ledger"]["iteration"].to_numpy().max()),)
    view = memo(capture, ("modules.beside", chosen), lambda: _view(capture, chosen))
    name = (capture.facts.metadata.get("sol_capture", "") or "a SOL capture of this run").replace("\\", "/").rpartition("/")[2]
    return Beside(view, chosen, len(part.rows), len(found), name)


def _view(capture: Capture, chosen: tuple[int, ...]) -> Capture:
    table, ledger, times = (capture.tables[n] for n in ("iterations", "ledger", "label_times"))
    number = table["number"].to_numpy()
    last = {int(n): row for row, n in enumerate(number.tolist())}  # of a number that ran twice the later one
    kept = [n for n in chosen if n in last]
    rows = np.array([last[n] for n in kept], np.int64)
    start, length = table["start_ns"].to_numpy()[rows], table["duration_ns"].to_numpy()[rows]
    steps = S.STEPS.frame(
        {
            "number": np.array(kept, np.int64),
            "name": [f"ProfilerStep#{n}" for n in kept],
            "host": np.full(len(kept), -1, np.int32),
            "host_start_ns": start,
            "host_end_ns": start + length,
            "start_ns": start,
            "end_ns": start + length,
            "device_events": np.zeros(len(kept), np.int64),
            "complete": np.ones(len(kept), bool),
        }
    )
    place = {n: i for i, n in enumerate(kept)}
    ledger = ledger[np.isin(ledger["iteration"].to_numpy(), chosen)].reset_index(drop=True)
    none = np.full(len(ledger), -1, np.int32)
    own = np.fromiter((place.get(n, -1) for n in ledger["iteration"].tolist()), np.int32, len(ledger))
    ledger = ledger.assign(step=own, module_host=none, phase_host=none)
    timed = bool(np.isfinite(ledger["time_ns"].to_numpy(dtype=np.float64)).any())
    facts = msgspec.structs.replace(
        capture.facts,
        source=source.SOL_CAPTURE,
        devices=() if timed else tuple(devices_in_use(capture)) or capture.facts.devices,
        pseudo_step=not kept,
        extent_ns=(int(start.min()), int((start + length).max())) if kept else (0, 0),
        warnings=(),
    )
    tables = {"labels": capture.tables["labels"], "iterations": table, "ledger": ledger, "label_times": times, "steps": steps}
    return Capture(facts, tables, run=capture.run, worker=capture.worker, span=capture.span, devices=capture.devices)
