"""Memory in recordings made by others: the timeline against its reference values, curves of traces against sums of the plain JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.ingest.memory_timeline import CATEGORIES

TIMELINE = "hta/memory_analysis/memory_timeline.raw.gz"


@pytest.mark.real
def test_the_timeline_holds_the_reference_values(traces: Path) -> None:
    # GIVEN the reference: bytes per category after the n-th distinct time of the plain file, counted from 0, the time -1 included
    entry = next(e for e in json.loads((traces / "oracles.json").read_text()) if e["quantity"] == "memory_timeline")
    times = sorted({row[0] for row in json.loads(gzip.decompress((traces / TIMELINE).read_bytes()))})
    moment = times[entry["params"]["time_index"]]
    # WHEN the file is read THEN each category holds that many bytes at that time
    c = ingest.read(str(traces / TIMELINE))
    t = c.tables["memory_timeline"]
    before = t[t["time_ns"] <= moment - c.facts.origin_ns]
    held = [before.loc[before["category"] == name, "bytes"].tolist()[-1:] or [0] for name in CATEGORIES]
    assert [n for (n,) in held] == entry["expected"]
