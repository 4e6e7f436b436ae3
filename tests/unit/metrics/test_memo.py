"""What is derived once and kept with a recording; what depends on device limits goes where others are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin import ingest, metrics
from tests.support.tiny import trace

ANALYSES = ("overview", "steps", "roofline", "phases", "kernels")


def test_a_large_recording_keeps_results_under_one_set_of_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = ingest.read(str(trace(tmp_path / "rank0.1.pt.trace.json.gz")))

    def ask(device: str) -> list[object]:
        return [capture.analyze(name, device_limits=device) for name in ANALYSES]

    # GIVEN a small recording under two sets of limits THEN both are kept, and asking again derives nothing
    first, other = ask("H100_SXM"), ask("A100_SXM_80")
    assert first != other
    small = set(capture.memo)
    assert ask("H100_SXM") == first and set(capture.memo) == small
    # GIVEN one that counts as large WHEN other limits are asked for THEN as many results are kept as under one, and the answers are the same
    monkeypatch.setattr(metrics, "LARGE", 0)
    assert ask("A100_SXM_80") == other
    one = len(capture.memo)
    assert one < len(small)
    assert ask("H100_SXM") == first and len(capture.memo) == one
    assert ask("A100_SXM_80") == other and len(capture.memo) == one
