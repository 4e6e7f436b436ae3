"""Holds the context of rules about memory: one memory of a recording, its peak, headroom and leak, and the layout of the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.memory.attribution import records_with_parts
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.expected import place
from tb_sol_plugin.metrics.memory.leaks import Leak, best_leak
from tb_sol_plugin.metrics.memory.sources import Memory
from tb_sol_plugin.metrics.memory.summary import Headroom, headroom
from tb_sol_plugin.metrics.rules.engine import CaptureContext, Finding, Subject
from tb_sol_plugin.metrics.work.ownership import in_backward
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays

LEAST_SHARE: Final = 0.01
"""Of the memory in use at the peak: a finding that frees less is left out (a leak is shown whatever its size)."""

ACTIVATION_SHARE: Final = 0.2
"""Of the peak, that activations must hold before recomputing them is reported."""
LAYER_SHARE: Final = 0.3
"""Of the activations, that a class of layers must hold to be the one to recompute."""
FEWEST_LAYERS: Final = 2
"""Instances of such a class: recomputing one single module frees nothing while it runs."""


@dataclass
class MemoryContext(CaptureContext):
    """One memory of a recording. curve: the one that a page shows; limits: device limits that were chosen."""

    subject: ClassVar[Subject] = "memory"
    memory: Memory
    curve: Curves
    limits: str = ""

    def large_enough(self, found: Finding) -> bool:
        """Tells whether a finding frees at least 1 % of the peak; a leak always counts."""
        return found.rule == "leak" or found.share is None or found.share >= LEAST_SHARE

    @cached_property
    def room(self) -> Headroom:
        return headroom(self.capture, self.curve, limits=self.limits)

    @cached_property
    def leak(self) -> Leak:
        """Of the source that saw most steps; a leak that one of them found comes first."""
        found = best_leak(self.capture, self.memory.curves)
        assert found is not None  # a memory has a curve
        return found

    @cached_property
    def trains(self) -> bool | None:
        """Whether the recording holds a backward pass; None where it cannot tell."""
        if len(self.capture.tables[S.BACKWARD.name]) or in_backward(self.capture).any():
            return True
        ledger = self.capture.tables[S.LEDGER.name]
        if len(ledger):
            return bool((ledger["direction"].to_numpy() == 1).any())
        return False if (self.capture.host["kind"].to_numpy() == S.OPERATOR).any() else None

    @cached_property
    def peak(self) -> int:
        """Bytes in use at most, of the curve; 0 unknown."""
        return self.curve.peak if not self.curve.relative else 0

    def share(self, size: int) -> float | None:
        """Returns the share of `size` in the memory in use at the peak; None where that is unknown or less.

        In that case the sources contradict each other.
        """
        return size / self.peak if self.peak > 0 and size <= self.peak else None

    def curve_of(self, *sources: str) -> Curves | None:
        """Returns the first of this memory's curves from one of these sources."""
        return next((c for source in sources for c in self.memory.curves if c.source == source), None)


# -- What the program itself recorded of its parameters, gradients and optimizer -----------------------------------------
# the last memory record with parts, and the layout of the job.


HOW: Final = "look at it in the program: sol.capture(logdir, model=model, memory=True, optimizer=optimizer)"
WIDTHS: Final = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "uint8": 1, "int64": 8, "int32": 4, "int16": 2,
                 "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "bool": 1}  # fmt: skip
"""Bytes of one number, by the names that recorders give types."""
OPTIMIZER: Final = ("exp_avg", "exp_avg_sq", "other_optimizer", "master_weights")


@dataclass(frozen=True)
class Layout:
    """The job as a recorder knows it: this rank's stage and the stages of the pipeline, sizes of the tensor and data parallel groups.

    None unknown. recorded: whether the data parallel size was; if not, it is the rest of the world size, a guess.
    """

    stage: int | None
    stages: int | None
    tp: int | None
    dp: int | None
    recorded: bool


def last_parts(context: MemoryContext) -> pd.DataFrame | None:
    """Returns category, dtype, module (qualified name, ""), class_name, tensors, bytes, view_bytes of the last record with parts.

    None where no record has parts.
    """
    number = context.memory.number if not context.memory.host else -1
    rows = records_with_parts(context.capture, number)
    if not len(rows):
        return None
    return parts_of(context.capture, int(rows[-1]))


def parts_of(capture: Capture, record: int) -> pd.DataFrame:
    """Returns the same of one record."""
    parts = capture.tables[S.MEMORY_PARTS.name]
    own = parts[parts["record"].to_numpy() == record]
    labels = capture.tables[S.LABELS.name]
    label = own["module"].to_numpy().astype(np.int64)
    known = len(labels) > 0
    return pd.DataFrame({
        "category": own["category"].astype(str).to_numpy(), "dtype": own["dtype"].astype(str).to_numpy(),
        "module": arrays.pick(labels["name"], label) if known else np.full(len(own), "", object),
        "class_name": arrays.pick(labels["class_name"], label) if known else np.full(len(own), "", object),
        "tensors": own["tensors"].to_numpy(), "bytes": own["bytes"].to_numpy(), "view_bytes": own["view_bytes"].to_numpy(),
    })  # fmt: skip


def numbers_in(parts: pd.DataFrame, *categories: str) -> float | None:
    """Returns numbers (elements) in tensors of these categories; None where a type has no known width."""
    own = parts[parts["category"].isin(categories) & (parts["tensors"].to_numpy() > 0)]
    width = np.array([WIDTHS.get(name, 0) for name in own["dtype"].tolist()], np.int64)
    return None if (width == 0).any() else float((own["view_bytes"].to_numpy() / width).sum())


def bytes_in(parts: pd.DataFrame, *categories: str) -> int:
    """Returns bytes of these categories."""
    return int(parts.loc[parts["category"].isin(categories), "bytes"].sum())


def layout(capture: Capture) -> Layout:
    """Returns the layout by the header of the capture and, for the data parallel size, by the size of the job."""
    at = place(capture)
    found: dict[str, tuple[int | None, int | None]] = {
        name: at.get(name) or (None, _whole(header_text(capture, f"plan.{name}"))) for name in ("pp", "tp", "dp", "cp")
    }
    world = capture.facts.world_size
    dp = found["dp"][1]
    recorded = dp is not None
    if dp is None and world is not None:
        others = [found[n][1] or 1 for n in ("pp", "tp", "cp")]
        rest = world // int(np.prod(others))
        dp = rest if rest * int(np.prod(others)) == world else None
        recorded = any(found[n][1] is not None for n in ("pp", "tp"))
    return Layout(found["pp"][0], found["pp"][1], found["tp"][1], dp, recorded)


def header_text(capture: Capture, name: str) -> str:
    """Returns a text of a SOL capture's header, of this capture or of the one that belongs to its trace; "" where it has none."""
    header = capture.facts.metadata
    return header.get(name, "") or header.get(f"sol_capture.{name}", "")


def planned(capture: Capture, name: str) -> str:
    """Returns a size or word of the header's plan, "" where it is not there."""
    return header_text(capture, f"plan.{name}")


def planned_number(capture: Capture, name: str) -> int | None:
    """Returns a size of the header's plan as a whole number."""
    return _whole(planned(capture, name))


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None
