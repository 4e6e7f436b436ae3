"""Every recording, handed in or shipped as a sample, holds every invariant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.check_capture import check_capture

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("TB_SOL_TRACES", ROOT.parent / "shared" / "traces"))
TRACES = sorted(str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*.gz")) if FOLDER.is_dir() else []
SAMPLES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "samples").rglob("*.pt.trace.json.gz"))


@pytest.mark.real
@pytest.mark.parametrize("name", TRACES)
def test_handed_in_trace(name: str, tmp_path: Path) -> None:
    # GIVEN a recording made by someone else WHEN it is read and asked everything THEN every invariant holds
    check_capture(FOLDER / name, tmp_path)


@pytest.mark.parametrize("name", SAMPLES)
def test_sample(name: str, tmp_path: Path) -> None:
    # GIVEN a sample of this repository WHEN it is read and asked everything THEN every invariant holds
    check_capture(ROOT / name, tmp_path)
