"""Findings about copies of a hand-made recording, and the pieces that their tests build recordings from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.copies import records
from tb_sol_plugin.metrics.copies.blocking import blocking
from tb_sol_plugin.metrics.copies.thresholds import from_text
from tb_sol_plugin.metrics.rules.copies import KEYS, copy_findings
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

US = 1_000
KIB, MIB = 1 << 10, 1 << 20


def findings_of(c: Capture, *, step: str = "", thresholds: str = "least_share=0", limits: Mapping[str, float] | None = None) -> dict[str, Finding]:
    """Every finding of a recording by its key. limits: bytes/s by direction."""
    peaks = {d: (rate, "link") for d, rate in (limits or {}).items()}
    out: list[Finding] = copy_findings(c, scope(c, Query(step=step)), peaks, from_text(thresholds))
    keys = [f.rule for f in out]
    assert len(set(keys)) == len(keys) and set(keys) <= set(KEYS) and keys == [f.rule for f in sorted(out, key=lambda f: (f.candidate, -f.saving))]
    assert all(f.saving > 0 and f.title and f.evidence and f.fix and "nan" not in f.evidence for f in out)
    return dict(zip(keys, out, strict=True))


def found(t: TraceBuilder, folder: Path, **more: object) -> dict[str, Finding]:
    """The same of a recording that is written and read first."""
    out: dict[str, Finding] = findings_of(read_back(t, folder), **more)  # type: ignore[arg-type]
    return out


def with_blocking(t: TraceBuilder, folder: Path) -> pd.DataFrame:
    """`blocking` of all copies of a recording beside their records."""
    c = read_back(t, folder)
    copies = records.copies(c, np.ones(len(c.device), bool))
    return pd.concat([copies, blocking(c, copies)], axis=1)


def steps(count: int, length: int = 1_000 * US, **more: object) -> TraceBuilder:
    """A recording with steps 1, 2 … of `length` ns, one after another."""
    t = TraceBuilder(**more)  # type: ignore[arg-type]
    for n in range(count):
        t.step(n + 1, n * length, length)
    return t
