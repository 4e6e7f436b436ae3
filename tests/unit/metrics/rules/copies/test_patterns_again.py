"""Uploads that repeat, round trips, and ways around by the host: one recording at each threshold and one below."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.metrics.rules.copies import context, copy_context, findings_without
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.query import Query
from tests.support.copy_findings import KIB, US, found, steps
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

STEP = 20_000 * US


def upload(t: TraceBuilder, at: int, *, size: int = 100 * KIB, module: str = "Mask_0", operator: str = "aten::to", stream: int = 7) -> None:
    """A pinned copy of 50 us that nothing hides, launched inside of a module."""
    if module:
        t.module(module, at - 50 * US, 100 * US, module_id=1)
    t.op(operator, at - 40 * US, 30 * US)
    t.copy("HtoD", at, 50 * US, bytes=size, src="Pinned", call=(at - 35 * US, 2 * US), stream=stream)


def uploaded(which: list[int], **more: object) -> TraceBuilder:
    """Four steps with two device events each; those in `which` upload."""
    t = steps(4, STEP)
    for n in range(4):
        t.launch("k", at=n * STEP + 100 * US, start=n * STEP + 200 * US, duration=10 * US)
        if n in which:
            upload(t, n * STEP + 1_000 * US, **more)  # type: ignore[arg-type]
        else:
            t.launch("k", at=n * STEP + 900 * US, start=n * STEP + 1_000 * US, duration=50 * US)
    return t


def test_the_same_upload_in_three_steps_in_a_row_is_redundant(tmp_path: Path) -> None:
    # GIVEN uploads of one size from one module in steps 1 to 3 of 4 THEN 3 x 50 us over 4 steps, as a candidate
    got = found(uploaded([0, 1, 2]), tmp_path)["redundant_upload"]
    assert got.saving == 3 * 50 * US // 4 and got.candidate and len(got.rows) == 3 and "register_buffer" in got.fix


@pytest.mark.parametrize("which", [[0, 1], [0, 1, 3], [2, 3]])
def test_the_same_upload_in_two_steps_or_with_gaps_is_chance(which: list[int], tmp_path: Path) -> None:
    assert "redundant_upload" not in found(uploaded(which), tmp_path)


def test_another_size_place_or_operator_is_another_upload(tmp_path: Path) -> None:
    for name in ("size", "module", "operator"):
        t = steps(3, STEP)
        for n in range(3):
            value = {"size": 100 * KIB + (n == 1), "module": f"M{n % 2}_0", "operator": ("aten::to", "aten::copy_")[n % 2]}[name]
            upload(t, n * STEP + 1_000 * US, **{name: value})  # type: ignore[arg-type]
        assert "redundant_upload" not in found(t, tmp_path / name)


@pytest.mark.parametrize("around", ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#AdamW.step"])
def test_batches_and_the_optimizer_bring_new_data(around: str, tmp_path: Path) -> None:
    t = uploaded([0, 1, 2, 3])
    for n in range(4):
        t.annotation(around, n * STEP + 900 * US, 200 * US)
    assert "redundant_upload" not in found(t, tmp_path)


def test_without_modules_inputs_are_known_by_their_place_in_the_step(tmp_path: Path) -> None:
    # GIVEN uploads outside of every module: on a stream that computes after the step's first kernel, before it, and on another stream
    assert "redundant_upload" in found(uploaded([0, 1, 2], module=""), tmp_path / "a")
    assert "redundant_upload" not in found(uploaded([0, 1, 2], module="", stream=20), tmp_path / "b")
    t = steps(3, STEP)
    for n in range(3):
        upload(t, n * STEP + 100 * US, module="")
        t.launch("k", at=n * STEP + 400 * US, start=n * STEP + 500 * US, duration=10 * US)
    assert "redundant_upload" not in found(t, tmp_path / "c")


def test_where_modules_are_recorded_a_batch_is_no_constant(tmp_path: Path) -> None:
    # GIVEN a kernel inside of a module in every step, and uploads after it outside of every module
    t = uploaded([0, 1, 2], module="")
    for n in range(4):
        t.module("Net_0", n * STEP + 90 * US, 50 * US, module_id=1)
    assert "redundant_upload" not in found(t, tmp_path)


def test_what_came_from_the_device_before_is_no_constant(tmp_path: Path) -> None:
    # GIVEN in each step two uploads of one size inside of a module, each 100 us after a copy of that size to the host
    t = steps(3, STEP)
    for n in range(3):
        for at in (1_000, 2_000):
            upload(t, n * STEP + at * US)
            t.copy("DtoH", n * STEP + (at - 120) * US, 20 * US, bytes=100 * KIB, dst="Pinned", call=(n * STEP + (at - 700) * US, US))
    got = found(t, tmp_path)
    assert "ping_pong" in got and "redundant_upload" not in got


def trips(gaps: list[int], *, size: int = 4096, first: str = "DtoH", devices: tuple[int, ...] = (0, 0), other: int = 0) -> TraceBuilder:
    """Copies of 20 us in turns with `gaps` us between them, in one step of 100 ms; other: bytes that every second one is larger."""
    t = steps(1, 100_000 * US, devices=2)
    at, turn = 1_000 * US, first == "DtoH"
    for i, gap in enumerate([*gaps, 0]):
        direction = "DtoH" if turn else "HtoD"
        src, dst = ("Device", "Pinned") if turn else ("Pinned", "Device")
        device = devices[i % 2]
        t.copy(direction, at, 20 * US, bytes=size + other * (i % 2), src=src, dst=dst, call=(at - 500 * US, US), device=device)
        at, turn = at + 20 * US + gap * US, not turn
    return t


def test_two_round_trips_in_a_step_are_a_finding(tmp_path: Path) -> None:
    # GIVEN to the host, back, to the host, back: 10 ms apart at most THEN all four copies could stay away: 80 us
    got = found(trips([10_000, 10_000, 10_000]), tmp_path)["ping_pong"]
    assert got.saving == 80 * US and got.candidate and len(got.rows) == 4 and "2 round trips" in got.evidence


@pytest.mark.parametrize(
    "trace",
    [
        {"gaps": [10_000, 10_000]},  # one trip, and one copy to the host
        {"gaps": [10_001, 100, 100]},  # the first pair is too far apart
        {"gaps": [100, 100, 100], "first": "HtoD"},  # up, down, up, down: one trip between
        {"gaps": [100, 100, 100], "other": 1},  # of different sizes
        {"gaps": [100, 100, 100], "size": 64},  # values that are read, and set
        {"gaps": [100, 100, 100], "devices": (0, 1)},  # to another device
    ],
)
def test_one_trip_or_copies_of_other_sizes_are_no_round_trips(trace: dict, tmp_path: Path) -> None:  # type: ignore[type-arg]
    assert "ping_pong" not in found(trips(**trace), tmp_path)


def test_a_copy_to_another_device_through_the_host_is_a_finding(tmp_path: Path) -> None:
    # GIVEN a copy to the host from device 0, and 5 ms later one of the same size to device 1 THEN both could be one: 40 us
    got = found(trips([5_000], devices=(0, 1)), tmp_path)["through_host"]
    assert got.saving == 40 * US and got.candidate and len(got.rows) == 2


@pytest.mark.parametrize(
    "trace", [{"gaps": [5_001]}, {"gaps": [100], "other": 1}, {"gaps": [100], "devices": (0, 0)}, {"gaps": [100], "size": 64}]
)
def test_distant_small_or_unequal_copies_do_not_go_through_the_host(trace: dict, tmp_path: Path) -> None:  # type: ignore[type-arg]
    assert "through_host" not in found(trips(**{"devices": (0, 1), **trace}), tmp_path)


def test_evidence_is_written_only_for_findings_that_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording with a finding about uploads
    c = read_back(uploaded([0, 1, 2]), tmp_path)
    where = scope(c, Query())
    written = []
    monkeypatch.setattr(context, "evidence", lambda *a, **k: written.append(a) or "evidence")
    # WHEN only copies inside of the device are asked for THEN nothing is found, and nothing is put into words
    assert findings_without(c, where, {}, asked=lambda direction, host: direction == "DtoD") == [] and not written
    # AND WHEN all are asked for THEN each finding is put into words once
    rules = [f.rule for f in findings_without(c, where, {})]
    assert "redundant_upload" in rules and len(written) == len(rules)
    # AND what does not depend on claims is found once for both
    assert copy_context(c, where, {}).columns is copy_context(c, where, {}).columns
