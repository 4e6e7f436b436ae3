"""Every recording, handed in or shipped as a sample, holds every invariant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tb_sol_plugin.errors import NotATrace
from tb_sol_plugin.ingest import read
from tests.support.check_capture import check_capture

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("TB_SOL_TRACES", ROOT.parent / "shared" / "traces"))
NOT_TRACES = {"hta/memory_analysis/memory_timeline.raw.gz"}
TRACES = sorted(str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*.gz")) if FOLDER.is_dir() else []
SAMPLES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "samples").rglob("*.pt.trace.json.gz"))


@pytest.mark.real
@pytest.mark.parametrize("name", [t for t in TRACES if t not in NOT_TRACES])
def test_handed_in_trace(name: str, tmp_path: Path) -> None:
    # GIVEN a recording made by someone else WHEN it is read and asked everything THEN every invariant holds
    check_capture(FOLDER / name, tmp_path)


@pytest.mark.parametrize("name", SAMPLES)
def test_sample(name: str, tmp_path: Path) -> None:
    # GIVEN a sample of this repository WHEN it is read and asked everything THEN every invariant holds
    check_capture(ROOT / name, tmp_path)


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(NOT_TRACES))
def test_what_is_no_trace_says_so(name: str, traces: Path) -> None:
    # GIVEN a file of another kind WHEN it is opened THEN one sentence says what it is and what to do
    with pytest.raises(NotATrace) as caught:
        read(str(traces / name))
    assert "memory timeline" in caught.value.message.lower() and caught.value.hint
