"""One sample of each kind holds every invariant; all of them, and the recorded traces, do so in tests/real."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.check_capture import check_capture
from tests.support.recordings import SAMPLES, path_of

PLAIN = {
    name for name in SAMPLES if Path(name).match("simulated_gpu_train/rank0*") or Path(name).match("simulated_copies/rank1*") or "cpu_transformer/" in name
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_a_sample_holds_every_invariant(name: str, tmp_path: Path) -> None:
    check_capture(path_of(name), tmp_path)


def test_of_each_kind_there_is_one() -> None:
    assert [name.split("/")[1] for name in sorted(PLAIN)] == ["cpu_transformer", "simulated_copies", "simulated_gpu_train"]
