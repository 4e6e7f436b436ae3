"""Every number of the pages on copies against a second, slow reader of the same files, over every recording that is there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import UnavailableReport
from tests.support import copies_reference as R
from tests.support.captures import capture, report

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("TB_SOL_TRACES", ROOT.parent / "shared" / "traces"))
NOT_TRACES = {"hta/memory_analysis/memory_timeline.raw.gz"}
NAMES = sorted(str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*.gz")) if FOLDER.is_dir() else []
SAMPLES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "samples").glob("simulated_*/*.gz"))
each = pytest.mark.parametrize("name", [*(pytest.param(n, marks=pytest.mark.real) for n in NAMES if n not in NOT_TRACES), *SAMPLES])

COLUMNS = ("count", "bytes", "without_bytes", "time_ns", "union_ns", "hidden_ns", "exposed_ns", "idle_exposed_ns")
ADDITIVE = 4
"""Of those, how many add up where several rows stand for one group of the reference."""
KEYS: dict[str, Callable[[R.Copy], tuple[object, ...]]] = {
    "direction": lambda c: (c.direction,),
    "kind": lambda c: (c.direction, c.src, c.dst),
    "stream": lambda c: (c.direction, c.device, c.stream),
    "step": lambda c: (c.direction, c.step),
    "module": lambda c: (c.direction, c.module),
}


def both(name: str) -> tuple[Capture, R.Trace]:
    path = ROOT / name if name.startswith("samples") else FOLDER / name
    return capture(path), R.read(path)


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def key_of(row: pd.Series, by: str, only_device: int | None) -> tuple[object, ...]:
    direction = row["direction"]
    if by == "kind":
        return direction, text(row["src_kind"]), text(row["dst_kind"])
    if by == "stream":
        numbers = [int(n) for n in re.findall(r"-?\d+", row["stream"])]
        return direction, numbers[0] if only_device is None else only_device, numbers[-1]
    if by == "step":
        return direction, int(row["step"]) if row["step"].isdigit() else None
    if by == "module":
        outside = row["module"].startswith("(") or "launch" in row["module"]
        return direction, "" if outside else row["module"]
    return (direction,)


@pytest.mark.parametrize("by", KEYS)
@each
def test_sums_of_every_group(name: str, by: str) -> None:
    # GIVEN a recording, read twice
    c, raw = both(name)
    answer = c.analyze("memcpy", by=by)
    # WHEN it has no copy THEN the page says so
    if not raw.copies:
        assert isinstance(answer, UnavailableReport) and answer.because and answer.record_it_with
        return
    devices = {copy.device for copy in raw.copies}
    got: dict[tuple[object, ...], list[int]] = {}
    rows: dict[tuple[object, ...], int] = {}
    for _, row in report(c, "memcpy", by=by).table("copies").iterrows():
        key = key_of(row, by, next(iter(devices)) if len(devices) == 1 else None)
        values = [0 if pd.isna(row[column]) else int(row[column]) for column in COLUMNS]
        got[key] = [a + b for a, b in zip(got.get(key, [0] * len(COLUMNS)), values, strict=True)]
        rows[key] = rows.get(key, 0) + 1
    wanted = R.grouped(raw, KEYS[by])
    # THEN the groups are the same, and every sum of each to the nanosecond and the byte
    assert set(got) == set(wanted)
    for key, s in wanted.items():
        want = [s.copies, s.size, s.without, s.time, s.union, s.hidden, s.exposed, s.idle_exposed]
        shown = len(COLUMNS) if rows[key] == 1 else ADDITIVE
        assert got[key][:shown] == want[:shown], key


@each
def test_bandwidth_is_bytes_over_time_of_sized_copies(name: str) -> None:
    c, raw = both(name)
    if not raw.copies:
        pytest.skip("a recording without copies: its page says so in the test above")
    table = report(c, "memcpy").table("copies").set_index("direction")
    for direction, s in R.grouped(raw, lambda copy: copy.direction).items():
        shown = table.loc[direction, "bandwidth_bytes_per_s"]
        if s.size and s.sized_time:
            assert shown == pytest.approx(s.size / s.sized_time * 1e9, rel=1e-12), direction
        else:
            assert pd.isna(shown), direction
