"""Sums of one process; those of several are in the tests of jobs."""

from __future__ import annotations

import io
import math

import pytest

from tb_sol_plugin.capture.goodput.state import Accumulator


def test_additions_and_their_sums():
    acc = Accumulator()
    for x in (1.5, 2.0, -0.25):
        acc["loss"] += x
        acc["samples"] += 4
    acc["samples"] -= 2
    with acc.synchronized() as inside:
        assert inside is acc and dict(acc) == {"loss": 3.25, "samples": 10.0} and len(acc) == 2 and "loss" in acc
    # AND later ones add to them; sums are as exact as a float can be
    for _ in range(3000):
        acc["tenths"] += 0.1
    with acc.synchronized():
        assert acc["tenths"] == pytest.approx(300.0, abs=1e-9) and acc["loss"] == 3.25
        # AND inside they are plain numbers, that can be set and dropped
        acc["loss"] = 0
        del acc["tenths"]
        assert acc["loss"] / acc["samples"] == 0.0
    with acc.synchronized():
        assert dict(acc) == {"loss": 0.0, "samples": 10.0}


def test_values_are_readable_only_where_they_are_known():
    acc = Accumulator()
    acc["loss"] += 1
    for read in (
        lambda: float(acc["loss"]), lambda: bool(acc["loss"]), lambda: int(acc["loss"]), lambda: list(acc), lambda: len(acc), lambda: "loss" in acc,
        lambda: acc["other"] + acc["loss"],
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="only inside"):
            read()
    for wrong in (lambda: acc.__setitem__("loss", 5), lambda: acc.__setitem__("a", acc["b"]), lambda: acc["loss"] + "x", lambda: acc["loss"] + True):
        with pytest.raises(TypeError):
            wrong()
    with acc.synchronized():
        assert acc["loss"] == 1.0
        with pytest.raises(KeyError):
            acc["other"]
        with pytest.raises(RuntimeError), acc.synchronized():
            pass
    with pytest.raises(RuntimeError, match="only inside"):
        del acc["loss"]


def test_a_restart_counts_what_runs_again_once():
    acc, file = Accumulator(), io.StringIO()
    for step in range(5):
        acc["steps"] += 1
        acc["sum"] += step
    acc.save(file)
    for step in range(5, 8):  # lost with the process
        acc["steps"] += 1
        acc["sum"] += step
    file.seek(0)
    again = Accumulator()
    again["steps"] += 100  # before the state was taken up: not part of it
    again.load(file)
    for step in range(5, 10):
        again["steps"] += 1
        again["sum"] += step
    with again.synchronized():
        assert dict(again) == {"steps": 10.0, "sum": 45.0}


def test_sums_go_through_a_file(tmp_path):
    acc = Accumulator()
    assert not acc.load_file(tmp_path / "none")
    acc["a"] += 2
    acc.save_file(tmp_path / "sums")
    again = Accumulator()
    assert again.load_file(tmp_path / "sums")
    with again.synchronized():
        assert dict(again) == {"a": 2.0}
    for text in ("", "{}", '{"format": "tb-sol-accumulator", "version": 1}', '{"format": "tb-sol-accumulator", "version": 1, "sums": {"a": "x"}}'):
        with pytest.raises(ValueError):
            again.load(io.StringIO(text))


def test_tensors_and_odd_numbers():
    torch = pytest.importorskip("torch", reason="adds tensors")
    acc = Accumulator()
    value = torch.tensor(1.5, requires_grad=True)
    acc["a"] += value
    with torch.no_grad():
        value += 100  # what was added is what it was then
    acc["a"] -= torch.tensor([0.5])
    acc["inf"] += float("inf")
    acc["inf"] -= float("inf")
    with pytest.raises(TypeError, match="only single numbers"):
        acc["a"] += torch.ones(2)
    with acc.synchronized():
        assert acc["a"] == 1.0 and math.isnan(acc["inf"])
