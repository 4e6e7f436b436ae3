"""What the writer of the capture file is given: signatures, ledgers and steps made by hand. Loads nothing but the recorder's labels."""

from __future__ import annotations

from dataclasses import dataclass, field

from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.loop.schedule import StepRecord

HEADER: dict[str, object] = {
    "rank": 3,
    "world_size": 8,
    "host": "node1",
    "pid": 77,
    "wall_ns": 1_700_000_000_000_000_000,
    "mode": "dispatch",
}


@dataclass
class Sig:
    """A signature as the ledger has it."""

    id: int
    op: str = "aten::mm"
    shapes: str = "[[8,16],[16,4]]"
    types: str = '["float","float"]'
    strides: str = "[[16,1],[4,1]]"
    concrete: str = '["",""]'
    out_shapes: str = "[[8,4]]"
    out_types: str = '["float"]'
    flop: float | None = 1024
    flop_vector: float | None = 0
    bytes: float | None = 896
    dtype: str = "fp32"
    kind: str = "gemm"
    direction: str = "fwd"
    estimated: bool = False
    reason: str = ""


@dataclass
class Ledger:
    """The ledger of one iteration."""

    signatures: list[Sig] = field(default_factory=list)
    rows: dict[tuple[int, ...], list[int]] = field(default_factory=dict)


def labeled() -> tuple[Labels, int, int]:
    """(labels, a phase, a module)."""
    labels = Labels()
    return labels, labels.id_of("phase", -1, "forward"), labels.id_of("module", -1, "fc", "Linear")


def sampled(number: int = 0, **more: object) -> StepRecord:
    return StepRecord(number, start_ns=1000 * number, duration_ns=900, sampled=True, **more)  # type: ignore[arg-type]
