"""Findings of a synthetic recording, and the pieces that their tests build recordings from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.rules.time import RULES, time_findings
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import intervals as iv
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

H100_FP32, H100_TF32, H100_BF16, H100_BANDWIDTH, H100_UNITS = 66.9e12, 494.7e12, 989.4e12, 3.35e12, 132
"""Limits of an H100 SXM as its data sheet has them: FLOP/s, bytes/s, multiprocessors."""


def found(t: TraceBuilder, folder: Path, limits: str = "") -> dict[str, Finding]:
    """Every finding of a recording by its rule."""
    c = read_back(t, folder)
    part = scope(c, Query())
    out = time_findings(c, part, waterfall(c, part, limits))
    rules = [f.id for f in out]
    assert len(set(rules)) == len(rules) and set(rules) <= set(RULES)
    return {f.id: f for f in out}


def assert_disjoint(out: Sequence[Finding]) -> None:
    """Check that no operator call, no copy, no other event and no idle moment stands in two findings."""
    for places in ([f.rows for f in out], [f.copies for f in out], [f.events for f in out]):
        together = np.concatenate(places) if places else np.zeros(0, np.int64)
        assert len(together) == len(np.unique(together))
    assert iv.length(iv.merge(*(f.idle for f in out))) == sum(iv.length(f.idle) for f in out) if out else True


def step(length: int = 1_000_000, **more: object) -> TraceBuilder:
    """A recording with one step of `length` ns."""
    t = TraceBuilder(**more)  # type: ignore[arg-type]
    t.step(1, 0, length)
    return t


def filled(length: int, **more: object) -> TraceBuilder:
    """The same, whose first us is a kernel of no operator: work that follows it leaves no time without work."""
    t = step(length, **more)
    t.launch("k", at=0, start=0, duration=1_000)
    return t


def call(
    t: TraceBuilder, name: str, at: int, duration: int, shapes: list[list[int]], *, kernel: str = "k", types: str = "float", **more: object
) -> None:
    """An operator of 40 ns at host time `at` // 100 that launches one kernel [at, at + duration): the device never waits for the host.

    shapes: sizes of its tensors; types: the type of all of them. more: further arguments of the operator, or of the kernel
    where they begin with `kernel_`.
    """
    host = at // 100
    own = {k: v for k, v in more.items() if not k.startswith("kernel_")}
    kernel_own = {k.removeprefix("kernel_"): v for k, v in more.items() if k.startswith("kernel_")}
    t.op(name, host, 40, shapes=shapes, types=[types] * len(shapes), **own)  # type: ignore[arg-type]
    t.launch(kernel, at=host + 10, start=at, duration=duration, call_duration=20, **kernel_own)  # type: ignore[arg-type]
