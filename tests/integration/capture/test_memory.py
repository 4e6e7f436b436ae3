"""Memory from a recorded run to the tables: the toy on one process by closed form, and sharded over two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.model.capture import Capture
from tests.support.forked import python
from tests.support.sol_workers import finished
from tests.support.training_loops import plain, tokens_of_toy, toy

torch = pytest.importorskip("torch", reason="records training loops")
TOY = 4_197_376
"""Bytes of the parameters of the toy in FP32."""
SECONDS = 120


def sums(capture: Capture, tag: str) -> dict[str, int]:
    """Bytes by category of the record of that tag, without those of none."""
    records, parts = capture.tables["memory_records"], capture.tables["memory_parts"]
    (row,) = records.index[records["tag"].astype(str) == tag]
    chosen = parts[parts["record"] == row]
    found = chosen.groupby(chosen["category"].astype(str))["bytes"].sum()
    return {name: int(size) for name, size in found.items() if size}


def test_a_run_from_the_loop_to_the_tables(tmp_path: Path) -> None:
    # GIVEN a tracked loop over the toy with AdamW, sampled, with records before it, at reports, and with gradients
    from tb_sol_plugin.capture import record_base_memory

    record_base_memory("start")
    model = toy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    options = {"console": False, "wandb": False, "tensorboard": False, "every_n_steps": 2, "report_interval": 4}
    with sol.capture(str(tmp_path), model=model, memory=True, optimizer=optimizer, **options) as tracker:
        for _ in range(6):
            plain(model, optimizer, tracker)
            tracker.step()
        tokens = tokens_of_toy()
        torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        tracker.record_memory("gradients")
        tracker.step()
    # WHEN it is read THEN parameters, gradients and moments are what the closed form says, and a count of 4 bytes for each of 60 parameters
    (path,) = tmp_path.glob("*.sol.jsonl")
    capture = sol.open_capture(str(path))
    state = {"params": TOY, "exp_avg": TOY, "exp_avg_sq": TOY, "other_optimizer": 240}
    assert sums(capture, "gradients") == {**state, "grads": TOY}
    records = capture.tables["memory_records"]
    assert records["tag"].astype(str).tolist() == ["start", "run start", "iteration", "iteration", "gradients", "run end"]
    assert records["iteration"].tolist() == [-1, 0, 0, 4, 6, 6] and (records["device"] == -1).all()
    assert records["time_ns"].is_monotonic_increasing and records["time_ns"].iloc[0] < 0 <= records["time_ns"].iloc[1]
    # AND the modules are those of the counted work: no label is there twice
    labels = capture.tables["labels"]
    modules = labels[labels["what"].astype(str) == "module"]
    assert not modules.duplicated(["parent", "name", "class_name"]).any() and not modules["name"].astype(str).duplicated().any()
    used = set(capture.tables["memory_parts"]["module"]) - {-1}
    assert used <= set(modules.index) and used & set(capture.tables["ledger"]["module"])
    # AND nothing about the file is odd, and no iteration is missing
    assert capture.tables["issues"].empty and capture.tables["iterations"]["number"].tolist() == list(range(7))


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed package")
def test_a_sharded_model_on_two_ranks(tmp_path: Path) -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp", reason="fully_shard needs torch 2.6 or newer")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("fully_shard needs torch 2.6 or newer")
    # GIVEN the toy sharded over two ranks, computing in BF16 with FP32 parameters
    logdir = tmp_path / "run"
    module = "tests.integration.capture.memory_on_ranks"
    texts = finished([python("-m", module, logdir, rank, 2, tmp_path / "meeting") for rank in range(2)], SECONDS)
    said = [json.loads(line.removeprefix("said ")) for text in texts for line in text.splitlines() if line.startswith("said ")]
    # THEN the base records before and after the process group are there on both ranks
    assert [one["problems"] for one in said] == [["", ""]] * 2 and [one["ranks"][1] for one in said] == [0, 1]
    for one in said:
        # AND each rank has the half of what can be halved (rows of 1000 and multiples of 128: all of it)
        assert one["local"] == TOY // 2 and one["left_out"] == {}
        half = dict.fromkeys(("params", "grads", "exp_avg", "exp_avg_sq"), TOY // 2)
        assert {name: size for name, size in one["views"].items() if size} == {**half, "other_optimizer": 240}
        # AND storages are no smaller, and by no more than padding larger
        assert all(one["views"][name] <= one["bytes"][name] <= 1.02 * one["views"][name] for name in half)
        assert one["bytes"]["main_grads"] == 0 == one["bytes"]["master_weights"]
    # AND the files say the same, each of its rank
    for path in sorted(logdir.glob("*.sol.jsonl")):
        capture = sol.open_capture(str(path))
        rank = capture.facts.rank or 0
        assert sums(capture, "gradients") == {name: size for name, size in said[rank]["bytes"].items() if size}
        tags = capture.tables["memory_records"]["tag"].astype(str).tolist()
        assert tags[:2] == ["start", "process group"]
