"""The file of a real loop: its size, and the same work through the reader as the closed form of the model has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tests.support.packed_lines import records_in

pytest.importorskip("torch")

FORWARD = 4 * (2 * 128 * 128 * 384 + 2 * 128 * 128 * 128 + 2 * 2 * 128 * 128 * 512 + 2 * 2 * 2 * 4 * 64 * 64 * 32) + 2 * 128 * 128 * 1000
"""L x (qkv + projection + two of the MLP + two of the attention) + head; B x S = 128, D = 128, H = 4, V = 1000."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of four sampled iterations of the toy."""
    from tests.support.training_loops import phase, run, tokens_of_toy, toy

    tokens = tokens_of_toy()

    def step(model: Any, optimizer: Any, tracker: Any) -> Any:
        with phase(tracker, "forward"):
            loss = model(tokens).square().mean()
        with phase(tracker, "backward"):
            loss.backward()
        with phase(tracker, "optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        return loss

    folder = tmp_path_factory.mktemp("toy")
    run(toy(), step, steps=4, logdir=folder, tensorboard=False, console=False)
    (written,) = folder.glob("*.sol.jsonl")
    return written


def test_the_toy_of_the_closed_form_through_writer_and_reader(path: Path) -> None:
    # GIVEN four sampled iterations of the toy
    assert FORWARD == 250_871_808
    # WHEN the file is read
    c = ingest.read(str(path))
    # THEN it holds the work of the closed form, forward and twice as much backward, in the phases it was done in
    ledger, labels = c.tables["ledger"], c.tables["labels"]
    work = (ledger["flop"] * ledger["count"]).to_numpy()
    forward = (ledger["direction"] == 0).to_numpy()
    phase = labels["name"].astype(str).to_numpy()[ledger["phase"].to_numpy()]
    for number in (1, 2, 3):
        own = (ledger["iteration"] == number).to_numpy()
        assert work[own & forward].sum() == FORWARD and work[own & ~forward].sum() == 2 * FORWARD
        assert work[own & (phase == "forward")].sum() == FORWARD and work[own & (phase == "backward")].sum() == 2 * FORWARD
    assert c.tables["iterations"]["flop"].tolist() == [3 * FORWARD] * 4 and c.tables["issues"].empty
    # AND everything with FLOP stands at a module call and a phase of its own step on the timeline
    host = c.host["start_ns"].to_numpy()
    steps = c.steps.iloc[ledger["step"].to_numpy()]
    for column in ("module_host", "phase_host"):
        rows = ledger[column].to_numpy()
        assert (rows[work > 0] >= 0).all()
        inside = rows >= 0
        assert (host[rows[inside]] >= steps["start_ns"].to_numpy()[inside]).all()
        assert (host[rows[inside]] < steps["end_ns"].to_numpy()[inside]).all()
    # AND on the CPU the calls' own times are no more than the iteration's
    spent = np.bincount(ledger["step"], ledger["time_ns"])
    assert (spent > 0).all() and (spent <= (c.steps["end_ns"] - c.steps["start_ns"]).to_numpy()).all()


def test_a_signature_costs_less_than_200_bytes_per_sampled_iteration(path: Path) -> None:
    # GIVEN four sampled iterations of the toy
    text = path.read_bytes()
    # WHEN the file's bytes, definitions and all, are shared out over the distinct signatures of each iteration
    ledgers = [r for r in records_in(text) if r["kind"] == "ledger"]
    distinct = sum(len({row[0] for row in r["rows"]}) for r in ledgers)
    # THEN each costs less than 200
    print(f"{len(text):,} bytes, {distinct} signatures and iterations: {len(text) / distinct:.0f} bytes each")
    assert len(ledgers) == 4 and len(text) / distinct < 200
