"""One sample of each kind holds every invariant; all of them, and the recorded traces, do so in tests/real."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.check_capture import check_capture


@pytest.mark.parametrize("pattern", ["simulated_gpu_train/rank0*.gz", "simulated_copies/rank1*.gz", "cpu_transformer/*.gz"])
def test_a_sample_holds_every_invariant(pattern: str, tmp_path: Path) -> None:
    (path,) = (ROOT / "samples").glob(pattern)
    check_capture(path, tmp_path)
