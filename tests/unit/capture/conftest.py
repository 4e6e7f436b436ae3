"""What the tests of recording share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="session", autouse=True)
def _what_is_there_stays() -> None:
    """Many tests here look through all objects or collect garbage: not through what tests of other parts keep open, half a second each time."""
    gc.collect()
    gc.freeze()
