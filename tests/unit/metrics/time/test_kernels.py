"""Groups of kernels: what is said of names is the same whether they are few or many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.time import kernels
from tests.support.tiny import trace


def test_many_names_are_judged_once_per_recording_and_as_few_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording of few names WHEN its rows are judged name by name, and as if there were many THEN alike
    capture = ingest.read(str(trace(tmp_path / "a.pt.trace.json.gz")))
    rows = np.arange(len(capture.device))
    one_by_one = kernels.kinds_at(capture, rows), kernels.matrix_units_at(capture, rows).tolist()
    monkeypatch.setattr(kernels, "MANY", 0)
    assert (kernels.kinds_at(capture, rows), kernels.matrix_units_at(capture, rows).tolist()) == one_by_one
    assert len(rows) and ("kernel_classes",) in capture.memo
