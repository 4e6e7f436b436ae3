"""The three example scripts: each runs by one command, its work is that of the architecture, and what is shipped is what it writes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tests.support.forked import python
from tests.support.sol_reading import Recorded, read_file
from tests.support.sol_workers import ROOT

torch = pytest.importorskip("torch", reason="records training loops")
OPTION = {"capture_train": "--logdir", "capture_rl": "--tensorboard-dir", "capture_fsdp": "--logdir"}


def run(name: str, folder: Path) -> str:
    """What the script says that writes into a folder."""
    process = python(ROOT / "samples" / f"{name}.py", OPTION[name], folder, cwd=folder.parent, errors_apart=True)
    printed, errors = process.communicate(300)
    assert process.returncode == 0, errors[-4000:]
    return str(printed)


def products(tokens: int, width: int, layers: int, words: int) -> int:
    """FLOP of all weights of the small decoder, forward: 3 D + D + 2 * 4 D outputs of D inputs a layer, and the head."""
    return 2 * tokens * (layers * 12 * width * width + width * words)


def attention(batch: int, length: int, width: int, layers: int) -> int:
    """FLOP of the two products of causal attention, forward: half of every pair."""
    return layers * 2 * 2 * batch * length * length * width // 2


def work_of_train(recorded: Recorded) -> None:
    forward, scores = products(8 * 64, 128, 3, 512), attention(8, 64, 128, 3)
    assert recorded.flop(1, backward=False) == forward + scores
    # the embedding needs a gradient, so backward is twice the products; fused attention runs its scores again: 2.5 times
    assert recorded.flop(1, backward=True) == 2 * forward + scores * 5 // 2
    assert (recorded.steps[1]["batch"], recorded.steps[1]["tokens"]) == (8, 512)


def work_of_rl(recorded: Recorded) -> None:
    flop: dict[str, int] = {}
    for row in recorded.ledgers[1]:
        flop[row.phase] = flop.get(row.phase, 0) + (row.flop or 0)
    passed = products(32 * 15, 64, 2, 128) + attention(32, 15, 64, 2)
    logprobs = "rl_timing/compute-logprobs"
    assert flop[f"{logprobs}/old"] == flop[f"{logprobs}/ref"] == flop[f"{logprobs}/batch/forward"] == passed
    assert flop["rl_timing/rollout/generate"] == sum(products(32 * n, 64, 2, 128) + attention(32, n, 64, 2) for n in range(8, 16))
    assert flop["rl_timing/backward"] == 2 * products(32 * 15, 64, 2, 128) + attention(32, 15, 64, 2) * 5 // 2
    # backward answers the forward with gradients, and no other
    assert {row.forward_phase for row in recorded.ledgers[1] if row.flop and row.backward} == {f"{logprobs}/batch/forward"}


def work_of_fsdp(recorded: Recorded) -> None:
    forward, scores = products(4 * 64, 128, 2, 512), attention(4, 64, 128, 2)
    assert recorded.flop(1) == 3 * forward + scores * 7 // 2
    assert recorded.header["groups"] == {"dp": [recorded.header["rank"], 2]}


WORK = {"capture_train": work_of_train, "capture_rl": work_of_rl, "capture_fsdp": work_of_fsdp}


@pytest.mark.parametrize("name", list(OPTION))
def test_an_example_runs_and_what_is_shipped_is_what_it_writes(tmp_path: Path, name: str) -> None:
    # GIVEN an example WHEN it is run by its one command
    said = run(name, tmp_path / "run")
    # THEN it prints its report
    assert "SOL (Speed of Light) Analysis" in said and "By Phase:" in said
    fresh = [read_file(path) for path in sorted((tmp_path / "run").glob("*.sol.jsonl"))]
    shipped = [read_file(path) for path in sorted((ROOT / "samples" / name).glob("*.sol.jsonl"))]
    # AND both have the work of the architecture, worked out by hand
    for recorded in fresh + shipped:
        assert recorded.closed and not recorded.notes
        WORK[name](recorded)
    # AND a shipped recording differs from a fresh one in times alone
    assert len(fresh) == len(shipped)
    for new, old in zip(fresh, shipped, strict=True):
        assert (new.header["version"], new.header["rank"], new.sampled, len(new.steps)) == (
            old.header["version"], old.header["rank"], old.sampled, len(old.steps),
        )  # fmt: skip
        same = new.header["torch"] == old.header["torch"]  # versions of torch differ in what an operator is made of
        assert not same or new.calls(1) == old.calls(1), f"samples/{name} is stale: run samples/{name}.py"
    # AND the product opens it
    assert len(sol.open(str(tmp_path / "run")).captures) == len(fresh) + len(list((tmp_path / "run").glob("*.pt.trace.json.gz")))


@pytest.mark.parametrize("name", list(OPTION))
def test_what_is_shipped_is_small_and_tells_nothing_of_the_machine(name: str) -> None:
    # GIVEN the shipped files of an example THEN each is below 300 kB, named neutrally, and without the name of this host or its folders
    for path in (ROOT / "samples" / name).iterdir():
        assert path.stat().st_size < 300_000, path.name
        assert "worker0" in path.name
        if path.suffix == ".jsonl":
            text = path.read_text(encoding="utf-8")
            assert f'"{socket.gethostname()}"' not in text and str(ROOT) not in text and '"host":"worker0"' in text
