"""Two processes on gloo: a file per rank, nothing waits for the other rank because of the recorder, collectives are counted as such."""

from __future__ import annotations

from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tests.support.sol_reading import read_file
from tests.support.sol_workers import finished, launch
from tests.support.training_loops import FORWARD

torch = pytest.importorskip("torch", reason="records training loops")
SECONDS = 120
"""Hard limit; on an idle machine a job takes six."""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed package")
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_ranks_write_a_file_each_and_train_as_untracked(tmp_path: Path, kind: str) -> None:
    if kind == "fsdp2":
        pytest.importorskip("torch.distributed.fsdp", reason="fully_shard needs torch 2.6 or newer")
        if not hasattr(torch.distributed.fsdp, "fully_shard"):
            pytest.skip("fully_shard needs torch 2.6 or newer")
    # GIVEN a model on two ranks WHEN both train, untracked and tracked, with steps 0, 1 and 3 sampled
    logdir = tmp_path / "run"
    said = finished(launch(kind, logdir, ranks=2), SECONDS)
    # THEN no rank hangs, and losses are equal bit for bit
    assert all("equal" in text for text in said)
    # AND there is one closed file per rank that knows its rank
    files = [read_file(path) for path in sorted(logdir.glob("*.sol.jsonl"))]
    assert [(f.header["rank"], f.header["world_size"], f.closed) for f in files] == [(0, 2, True), (1, 2, True)]
    for recorded in files:
        assert recorded.sampled == [0, 1, 3]
        # AND each rank has the work of its own batch: the toy's, forward and backward
        assert recorded.flop(1, backward=False) == FORWARD and recorded.flop(1) == 3 * FORWARD
        # AND there are collectives, without FLOP of the matrix kind
        collectives = [row for row in recorded.ledgers[1] if row.op.startswith(("c10d::", "_c10d_functional::", "fsdp::"))]
        assert any(row.op.startswith("c10d::") for row in collectives), recorded.calls(1)
        assert not any(row.flop for row in collectives)
    # AND rank 0 alone logs metrics
    assert len(list(logdir.glob("events.out.tfevents.*"))) == 1
    # AND the run opens as two workers
    assert len(sol.open(str(logdir)).captures) == 2
