"""What expected against actual memory needs of one worker."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.format import PLAN
from tb_sol_plugin.metrics.memory.budget import CATEGORIES, budget, totals
from tb_sol_plugin.metrics.memory.expected import actual
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query

MOST_RECORDS: Final = 60
"""Records of one worker whose budgets are shown."""


MOST_DIGITS: Final = 9
"""Of a rank; longer numbers are none."""


class Held(msgspec.Struct, frozen=True):
    """One part that was recorded, as `metrics.memory.actual.Amount`."""

    bytes: int | None
    source: str
    estimated: str
    why: str


class Record(msgspec.Struct, frozen=True):
    """One record of the program with its budget: bytes by category of `budget.CATEGORIES`, None unknown; of: what they add up to."""

    tag: str
    iteration: int
    of: str
    total: int
    flag: str
    bytes: dict[str, int | None]


class ExpectedPart(msgspec.Struct, frozen=True):
    """One worker. plan: sizes as recorded by their names; origin: where each stood. groups: {name: (rank, size)}. held: by part.

    parameters: counted on this rank, of type `dtype` for the most part. master_weight_bytes, main_grad_bytes: in FP32. whole: what the
    parts of its largest record add up to, `of` what that is, `unknown` of it what nothing explains, flag: negative, large or "". records:
    those before the first iteration and those that looked at the model, in order of time, and how many were left out.
    """

    plan: dict[str, str]
    origin: dict[str, str]
    groups: dict[str, tuple[int, int]]
    held: dict[str, Held]
    parameters: int | None
    dtype: str
    master_weight_bytes: int | None
    main_grad_bytes: int | None
    whole: int | None
    of: str
    unknown: int | None
    flag: str
    records: list[Record]
    left_out: int
    extent_ns: int


def part(capture: Capture, query: Query) -> ExpectedPart:
    """The part of one worker."""
    metadata = capture.facts.metadata
    plan = {name: metadata[f"plan.{name}"] for name in PLAN if metadata.get(f"plan.{name}")}
    origin = {name: metadata.get(f"plan.{name}.from", "") for name in plan}
    groups = {}
    for name in ("tp", "pp", "dp", "cp", "ep"):
        own, of, size = metadata.get(f"groups.{name}", "").partition(" of ")
        if of and own.isdecimal() and size.isdecimal() and max(len(own), len(size)) <= MOST_DIGITS:
            groups[name] = (int(own), int(size))
    found = actual(capture)
    if found.optimizer and "optimizer" not in plan:
        plan["optimizer"], origin["optimizer"] = found.optimizer, "moments that were seen"
    held = {name: Held(one.bytes, one.source, one.estimated, one.why) for name, one in found.parts.items()}
    records, left_out = _records(capture)
    start, end = capture.facts.extent_ns
    return ExpectedPart(
        plan, origin, groups, held, found.parameters, found.dtype, found.master_weight_bytes, found.main_grad_bytes, found.whole, found.of,
        found.unknown, found.flag, records, left_out, max(end - start, 0),
    )  # fmt: skip


def _records(capture: Capture) -> tuple[list[Record], int]:
    """Budgets of the records that say most; of too many those that are evenly apart."""
    table, whole = capture.tables[S.MEMORY_RECORDS.name], totals(capture)
    row = whole["record"].to_numpy()
    seen = np.isin(row, capture.tables[S.MEMORY_PARTS.name]["record"].to_numpy()) | (table["iteration"].to_numpy()[row] < 0)
    seen &= whole["of"].astype(str).to_numpy() != "parts"
    at = np.flatnonzero(seen)
    at = at[np.argsort(table["time_ns"].to_numpy()[row[at]], kind="stable")]
    kept = at[np.unique(np.linspace(0, len(at) - 1, min(len(at), MOST_RECORDS)).round().astype(int))] if len(at) else at
    found = budget(capture)
    size, known = (found[name].to_numpy().reshape(-1, len(CATEGORIES)) for name in ("bytes", "known"))
    tags, iterations = table["tag"].astype(str).to_numpy(), table["iteration"].to_numpy()
    out = [
        Record(
            tags[row[i]], int(iterations[row[i]]), str(whole["of"].iloc[i]), int(whole["total"].iloc[i]), str(whole["flag"].iloc[i]),
            {c: int(b) if k else None for c, b, k in zip(CATEGORIES, size[i], known[i], strict=True)},
        )
        for i in kept.tolist()
    ]  # fmt: skip
    return out, len(at) - len(kept)
