"""Loops as people write them, on the CPU, tracked for real: nothing is stubbed but where a test says so."""

from __future__ import annotations

import gc

import pytest

torch = pytest.importorskip("torch", reason="records training loops")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Bit-equality of two runs needs the same split of every sum."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_stays() -> None:
    """Trackers of compiled models look through all objects: not through what earlier tests keep open, half a second each time."""
    gc.collect()
    gc.freeze()
