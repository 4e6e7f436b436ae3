"""Many tiny copies, and copies in a row: one recording at each threshold and one below."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.copy_findings import KIB, MIB, US, found, steps
from tests.support.trace_builder import TraceBuilder

RATE = 10.0
"""Bytes per ns."""


def moved(t: TraceBuilder, start: int, size: int, *, direction: str = "HtoD", stream: int = 7, latency: int = 2_000) -> int:
    """A copy of `size` bytes that takes `latency` + size / 10 ns; returns its end."""
    length = latency + round(size / RATE)
    src, dst = ("Pinned", "Device") if direction == "HtoD" else ("Device", "Device")
    t.copy(direction, start, length, bytes=size, src=src, dst=dst, call=(max(start - 4_000, 0), 300), stream=stream)
    return start + length


def sizes(t: TraceBuilder, at: int, direction: str, latency: int = 2_000) -> None:
    """Three larger copies on another stream, so that the latency can be fitted."""
    for i, size in enumerate((256 * KIB, 8 * MIB, 32 * MIB)):
        at = moved(t, at + 4_000_000 * i, size, direction=direction, stream=20, latency=latency)


def tiny(count: int, size: int, *, direction: str = "HtoD", latency: int = 2_000) -> TraceBuilder:
    """`count` copies of `size` bytes, 2 ms apart, in a step of 200 ms; and larger ones behind a kernel."""
    t = steps(1, 200_000 * US)
    for i in range(count):
        moved(t, i * 2_000 * US + 10 * US, size, direction=direction, latency=latency)
    t.launch("k", at=150_000 * US, start=150_100 * US, duration=40_000 * US)
    sizes(t, 151_000 * US, direction, latency)
    return t


@pytest.mark.parametrize("direction", ["HtoD", "DtoD"])
def test_many_tiny_copies_save_all_latencies_but_one(direction: str, tmp_path: Path) -> None:
    # GIVEN 32 copies of 1000 B in a step: each 2000 ns + 100 ns
    got = found(tiny(32, 1000, direction=direction), tmp_path)[f"tiny_{direction}"]
    # THEN n t0 - (t0 + bytes / rate) = 32 x 2000 - (2000 + 32 000 B / 10 B per ns) = 58 800 ns
    assert got.saving == pytest.approx(58_800, rel=0.03) and len(got.rows) == 32 and got.candidate


def test_one_copy_less_or_larger_ones_are_not_many_tiny_copies(tmp_path: Path) -> None:
    assert "tiny_HtoD" not in found(tiny(31, 1000), tmp_path / "a")
    assert "tiny_HtoD" in found(tiny(32, 64 * KIB - 1, latency=20_000), tmp_path / "b")
    assert "tiny_HtoD" not in found(tiny(32, 64 * KIB, latency=20_000), tmp_path / "c")
    assert "tiny_HtoD" in found(tiny(16, 1000), tmp_path / "d", thresholds="least_share=0,tiny_count=16")


def test_tiny_copies_are_counted_per_step(tmp_path: Path) -> None:
    # GIVEN 31 copies in each of two steps WHEN no step has 32 THEN nothing is told
    t = steps(2, 100_000 * US)
    for i in range(62):
        moved(t, (i // 31) * 100_000 * US + (i % 31) * 2_000 * US + 10 * US, 1000)
    assert "tiny_HtoD" not in found(t, tmp_path)


def test_without_a_fit_the_longest_copy_is_left(tmp_path: Path) -> None:
    # GIVEN 32 copies of one size: their latency cannot be told from their rate
    t = steps(1, 200_000 * US)
    for i in range(32):
        moved(t, i * 2_000 * US + 10 * US, 1000)
    got = found(t, tmp_path)["tiny_HtoD"]
    # THEN at most 31 of 32 x 2100 ns
    assert got.saving == 31 * 2_100 and "too few sizes" in got.evidence


def test_tiny_copies_behind_a_kernel_save_nothing(tmp_path: Path) -> None:
    t = tiny(32, 1000)
    t.launch("long", at=0, start=0, duration=150_000 * US, stream=30)
    assert "tiny_HtoD" not in found(t, tmp_path)


def row(count: int, size: int, gap: int, *, other: str = "") -> TraceBuilder:
    """`count` copies of `size` bytes with `gap` ns between; `other`: what stands between the first and the second."""
    t = steps(1, 200_000 * US)
    end = 10 * US
    for i in range(count):
        end = moved(t, end + gap, size, stream=8 if other == "stream" and i == 0 else 7)
        if i == 0 and other == "kernel":
            t.launch("k", at=2 * US, start=end, duration=gap)
        if i == 0 and other == "direction":
            moved(t, end + 10, 1000, direction="DtoD")
    t.launch("k", at=150_000 * US, start=150_100 * US, duration=40_000 * US)
    sizes(t, 151_000 * US, "HtoD")
    return t


def test_copies_in_a_row_save_all_latencies_but_one(tmp_path: Path) -> None:
    # GIVEN 3 copies of 100 000 B in a row, 999 999 ns apart THEN 2 x 2000 ns
    got = found(row(3, 100_000, 999_999), tmp_path)["coalescable_HtoD"]
    assert got.saving == pytest.approx(4_000, rel=0.03) and len(got.rows) == 3 and got.candidate
    assert "one run of up to 3" in got.evidence or "1 run of up to 3" in got.evidence


@pytest.mark.parametrize(
    "other",
    [(2, 100_000, 5_000), (3, MIB, 5_000), (3, 100_000, 1_000_000)],
    ids=["two copies", "of 1 MiB", "1 ms apart"],
)
def test_two_large_or_distant_copies_are_not_coalescable(other: tuple[int, int, int], tmp_path: Path) -> None:
    assert "coalescable_HtoD" not in found(row(*other), tmp_path)


@pytest.mark.parametrize("between", ["kernel", "direction", "stream"])
def test_a_row_is_broken_by_other_work(between: str, tmp_path: Path) -> None:
    assert "coalescable_HtoD" not in found(row(3, 100_000, 50_000, other=between), tmp_path)
    assert len(found(row(4, 100_000, 50_000, other=between), tmp_path / "more")["coalescable_HtoD"].rows) == 3


def test_tiny_copies_in_a_row_are_reported_once(tmp_path: Path) -> None:
    # GIVEN 32 tiny copies in a row WHEN all of them are tiny THEN that is told, and not again that they stand in a row
    got = found(row(32, 1000, 5_000), tmp_path)
    assert "tiny_HtoD" in got and "coalescable_HtoD" not in got
