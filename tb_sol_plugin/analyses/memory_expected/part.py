"""What expected against actual memory needs of one worker."""

from __future__ import annotations

import msgspec

from tb_sol_plugin.format import PLAN
from tb_sol_plugin.metrics.memory.actual import actual
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.selection import Query


class Held(msgspec.Struct, frozen=True):
    """One part that was recorded, as `metrics.memory.actual.Amount`."""

    bytes: int | None
    source: str
    estimated: str
    why: str


class ExpectedPart(msgspec.Struct, frozen=True):
    """One worker. plan: sizes as recorded by their names; origin: where each stood. groups: {name: (rank, size)}. held: by part.

    parameters: counted on this rank, of type `dtype` for the most part. master_weight_bytes, main_grad_bytes: in FP32. whole: what the
    parts of its largest record add up to, `of` what that is, `unknown` of it what nothing explains, flag: negative, large or "".
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
    extent_ns: int


def part(capture: Capture, query: Query) -> ExpectedPart:
    """The part of one worker."""
    metadata = capture.facts.metadata
    plan = {name: metadata[f"plan.{name}"] for name in PLAN if metadata.get(f"plan.{name}")}
    origin = {name: metadata.get(f"plan.{name}.from", "") for name in plan}
    groups = {}
    for name in ("tp", "pp", "dp", "cp", "ep"):
        own, of, size = metadata.get(f"groups.{name}", "").partition(" of ")
        if of and own.isdigit() and size.isdigit():
            groups[name] = (int(own), int(size))
    found = actual(capture)
    if found.optimizer and "optimizer" not in plan:
        plan["optimizer"], origin["optimizer"] = found.optimizer, "moments that were seen"
    held = {name: Held(one.bytes, one.source, one.estimated, one.why) for name, one in found.parts.items()}
    start, end = capture.facts.extent_ns
    return ExpectedPart(
        plan, origin, groups, held, found.parameters, found.dtype, found.master_weight_bytes, found.main_grad_bytes, found.whole, found.of,
        found.unknown, found.flag, max(end - start, 0),
    )  # fmt: skip
