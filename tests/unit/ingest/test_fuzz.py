"""The targets of tests/fuzz: good inputs, inputs that were faults once, and a few mutations of each with a fixed seed."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest

from tests.fuzz.__main__ import fuzz, main
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, cases, run, seeds


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_are_answers_or_errors_of_ours(name: str, tmp_path: Path) -> None:
    # GIVEN the seeds of a target, what was a fault once, and ten mutations WHEN run THEN nothing foreign is raised
    dice = random.Random(name)
    pool = (*seeds()[name], *(path.read_bytes() for path in cases().get(name, ())))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for data in (*pool, *(mutated(dice.choice(pool), dice, pool) for _ in range(10))):
            run(name, data, tmp_path)


def test_a_fault_is_written_and_ends_the_run_with_a_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a reader that fails on some inputs
    def fails(data: bytes, folder: Path) -> None:
        if len(data) % 7 == 0:
            raise ZeroDivisionError("seven")

    monkeypatch.setitem(TARGETS, "query", fails)
    monkeypatch.setattr("tests.fuzz.__main__.seeds", lambda: {"query": (b"12345678",)})
    # WHEN fuzzed THEN the status says so and one input of the kind is there
    assert main(["--seconds", "0", "--least", "200", "--seed", "1", "--out", str(tmp_path), "query"]) == 1
    written = [p for p in tmp_path.iterdir() if p.name.startswith("query-ZeroDivisionError-")]
    assert len(written) == 1 and len(written[0].read_bytes()) % 7 == 0
    # AND one that does not fail ends with none
    monkeypatch.setitem(TARGETS, "query", lambda data, folder: None)
    assert fuzz("query", 0, tmp_path, tmp_path, 1, least=50) == (50, {})
