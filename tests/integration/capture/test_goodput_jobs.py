"""Jobs of several replicas on gloo: statistics of gradients, waits for their reduction, sums across a restart, and what the file holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.capture.goodput.adaptive import Proposal
from tests.support.goodput_workers import SAMPLES, SIZE, launch
from tests.support.sol_workers import finished

torch = pytest.importorskip("torch", reason="trains")
pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed package")
SECONDS = 120


@pytest.mark.parametrize("kind", ["ddp-accumulate", "ddp-adam", "fsdp2-accumulate"])
def test_two_replicas_measure_what_their_gradients_are(tmp_path: Path, kind: str) -> None:
    if kind.startswith("fsdp2"):
        pytest.importorskip("torch.distributed.fsdp", reason="fully_shard needs torch 2.6 or newer")
        if not hasattr(torch.distributed.fsdp, "fully_shard"):
            pytest.skip("fully_shard needs torch 2.6 or newer")
    # GIVEN two replicas of which one is 50 ms late in each step WHEN they train
    # THEN each finds the statistics of all gradients, and the punctual one has waited (they check it themselves)
    said = finished(launch(kind, tmp_path, ranks=2), SECONDS)
    assert all("measured" in text for text in said)
    # AND the files hold what was counted, with both statistics
    for c in sol.open(str(tmp_path / "run")).captures:
        t = c.tables["profile"]
        assert t[["num_nodes", "num_replicas", "atomic_bsz", "optim_count"]].to_numpy().tolist() == [[1, 2, SIZE, 8]]
        assert t["accum_count"][0] == (8 if kind.endswith("accumulate") else 0) and not t["grad_biased"][0]
        assert 0 <= t["sync_time_ns"][0] < t["optim_time_ns"][0] and t["init_batch_size"][0] == 8 and t["grad_var"].notna().all()


def test_steps_shorter_than_a_sum_of_replicas_are_measured_to_the_end(tmp_path: Path) -> None:
    # GIVEN 600 steps of 5 ms whose sums of gradients take 12 ms to arrive, the first twenty slow WHEN two replicas train
    # THEN every wait is measured, gradients now and then, nothing is given up, and there is a fit (they check it themselves)
    assert all("measured" in text for text in finished(launch("ddp-short", tmp_path, ranks=2), SECONDS))


def test_an_epoch_over_two_replicas_one_and_two_has_each_sample_once(tmp_path: Path) -> None:
    # GIVEN a job of two replicas that restarts as one and as two again, and takes the sizes that are proposed WHEN an epoch is over
    everything: list[int] = []
    for until, ranks in (("0.3", 2), ("0.6", 1), ("1.0", 2)):
        assert all("measured" in text for text in finished(launch(f"adaptive-{until}", tmp_path, ranks=ranks), SECONDS))
        found = [json.loads((tmp_path / f"seen-{until}-{rank}").read_text()) for rank in range(ranks)]
        # THEN replicas were proposed the same, and have the same weights
        assert all(one["proposals"] == found[0]["proposals"] and one["weights"] == found[0]["weights"] for one in found)
        everything += [index for one in found for index in one["seen"]]
        # AND gradients that are mostly noise make larger batches than the first one worth while
        assert any(Proposal(*one).batch_size > 8 for one in found[0]["proposals"] if one)
    # AND each sample came once; a checkpoint's position is that of all replicas
    assert sorted(everything) == list(range(SAMPLES))
    saved = json.loads((tmp_path / "checkpoint").read_text())
    assert (saved["sampler"]["epoch"], saved["sampler"]["position"], saved["adaptive"]["applied"]) == (1, 0, True)


def test_sums_of_four_replicas_across_a_restart_are_exact(tmp_path: Path) -> None:
    # GIVEN four replicas that end after six steps, with a checkpoint of the fourth WHEN started again THEN every step counts once
    for process in launch("accumulator-killed", tmp_path, ranks=4):
        process.wait(SECONDS)
    assert (tmp_path / "sums").exists()
    assert all("measured" in text for text in finished(launch("accumulator", tmp_path, ranks=4), SECONDS))
