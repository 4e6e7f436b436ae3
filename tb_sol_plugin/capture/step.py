"""What a tracker knows of one iteration of a training loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

TimeRow: TypeAlias = "tuple[int, int, int, int | None, int]"
"""label, start_ns, duration_ns, device_ns (None: not timed), count, as `format.TIME_ROW` names them."""

CopyRow: TypeAlias = "tuple[str, str, str, str, int, int, bool, int, int, int, int, int, int, int | None, int | None]"
"""One row of copies, as `format.COPY_ROW` names it."""


@dataclass
class StepRecord:
    """One iteration. Times in ns on the recorder's clock (`capture/clock.py`).

    device_ns: between two events on the device's stream, None where not timed or not known yet. sampled: its work was counted.
    signature: of the sizes of the model's inputs, "" unknown. overhead_ns: the recorder's own measured work inside the step; before_ns:
    since the end of the step before (of the first, since tracking was set up), when it analyses and writes what has ended.
    lost: things that could not be recorded, by reason. phase_times, module_times: TimeRow. totals: of a sampled step, filled by the
    analysis: {ops, flop, flop_vector, bytes, sol_ns, unknown}. compiled: the model is compiled, and its work was counted by running
    it eagerly, so that the times of this step are not those of the model. copies: CopyRow, None where copies were not counted.
    """

    iteration: int
    start_ns: int = 0
    duration_ns: int = 0
    device_ns: int | None = None
    sampled: bool = False
    signature: str = ""
    batch: int | None = None
    tokens: int | None = None
    overhead_ns: int = 0
    before_ns: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    phase_times: list[TimeRow] = field(default_factory=list)
    module_times: list[TimeRow] = field(default_factory=list)
    totals: dict[str, int | float | None] = field(default_factory=dict)
    compiled: bool = False
    copies: list[CopyRow] | None = None
