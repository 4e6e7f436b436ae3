"""Expected beside actual, one row per rank and part, and what is thought of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tb_sol_plugin.analyses.memory_expected.expectation import Expectation, Expected
from tb_sol_plugin.analyses.memory_expected.part import ExpectedPart, Held
from tb_sol_plugin.metrics.memory.expected import ROWS
from tb_sol_plugin.model.recordings import WorkerPart
from tb_sol_plugin.model.report import Mark, Scalar
from tb_sol_plugin.units import human

TOLERANCE: Final = 0.05
"""Share of what is expected up to which a difference is ok."""
NAMES: Final = {
    "parameters": "parameters", "main_parameters": "main parameters", "gradients": "gradients",
    "main_gradients": "main gradients", "optimizer_state": "optimizer state", "activations": "activations", "logits": "logits",
    "total": "in use at most", "base": "base", "other": "other, unknown",
}  # fmt: skip
GUESSED_STAGE: Final = "the stage is not recorded: it follows from the number of the rank, as Megatron orders ranks"


@dataclass(frozen=True)
class Rank:
    """One worker with what is expected of it."""

    worker: WorkerPart[ExpectedPart]
    part: ExpectedPart
    expected: Expectation

    @property
    def label(self) -> str:
        return self.worker.worker if self.worker.rank is None else f"rank {self.worker.rank}"

    def group(self, name: str) -> str | None:
        """`0 of 4`."""
        found = self.part.groups.get(name)
        return None if found is None else f"{found[0]} of {found[1]}"


@dataclass(frozen=True)
class Row:
    """One part of one rank."""

    rank: Rank
    name: str
    expected: Expected
    held: Held
    against: int | None
    """Bytes that the actual ones are held against: of activations with the logits, which are recorded together with them."""

    @property
    def difference(self) -> int | None:
        return None if self.held.bytes is None or self.against is None else self.held.bytes - self.against

    @property
    def verdict(self) -> str:
        return verdict(self.held.bytes, self.against)

    @property
    def key(self) -> str:
        return f"{self.rank.worker.worker}|{self.name}"

    def values(self) -> dict[str, Scalar]:
        """By column."""
        difference, against = self.difference, self.against
        return {
            "rank": self.rank.worker.rank, "stage": self.rank.expected.stage, "part": NAMES[self.name],
            "expected_bytes": self.expected.bytes, "actual_bytes": self.held.bytes, "difference_bytes": difference,
            "of_expected": difference / against if difference is not None and against else None, "verdict": self.verdict,
            "formula": self.expected.formula or None, "inputs": self.expected.inputs or None,
            "source": self.held.source if self.held.bytes is not None else self.held.why, "worker": self.rank.worker.worker,
            "tp": self.rank.group("tp"), "dp": self.rank.group("dp"), "id": self.key,
        }  # fmt: skip

    def marks(self) -> dict[str, Mark]:
        """By column."""
        out = {}
        if self.held.bytes is not None and self.held.estimated:
            out["actual_bytes"] = Mark("estimated", self.held.estimated)
        if self.rank.expected.guessed:
            out["stage"] = Mark("estimated", GUESSED_STAGE)
        if self.held.bytes is None:
            out["actual_bytes"] = Mark("unknown", self.held.why)
        if self.name == "activations" and self.against is not None and self.against != self.expected.bytes:
            out["difference_bytes"] = Mark("partial", f"of activations and logits together, {human(self.against, 'B')}")
        if self.name == "other" and self.rank.part.flag:
            out["actual_bytes"] = Mark("flagged", _flag(self.rank.part))
        if self.verdict in ("more", "less"):
            out["verdict"] = Mark("flagged", f"{human(abs(self.difference or 0), 'B')} {self.verdict} than expected")
        return out


def verdict(actual: int | None, expected: int | None) -> str:
    """ok (at most 5 % apart), more, less, not recorded, or no expectation."""
    if actual is None:
        return "not recorded"
    if expected is None:
        return "no expectation"
    if abs(actual - expected) <= TOLERANCE * expected:
        return "ok"
    return "more" if actual > expected else "less"


def rows_of(ranks: Sequence[Rank]) -> list[Row]:
    """All parts of all ranks, in their order."""
    out = []
    for rank in ranks:
        for name in ROWS:
            expected = rank.expected.parts[name]
            against = expected.bytes
            if name == "activations" and against is not None:
                against += rank.expected.parts["logits"].bytes or 0
            out.append(Row(rank, name, expected, rank.part.held[name], against))
    return out


def compared(rows: Sequence[Row]) -> list[Row]:
    """Rows with both numbers, without the total, which the others make up."""
    return [row for row in rows if row.difference is not None and row.name != "total"]


def _flag(part: ExpectedPart) -> str:
    unknown, whole = human(part.unknown, "B"), human(part.whole, "B")
    if part.flag == "negative":
        return f"{unknown} of {whole} are unknown: something is counted twice, or memory around it was given back"
    return f"{unknown} of {whole} are unknown, more than 5 %"
