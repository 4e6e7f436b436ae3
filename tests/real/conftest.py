"""Tests of one recording run one after another, so that it is opened, analyzed and read by the slow references once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = f"{Path(__file__).parent}{os.sep}"


def recording_of(item: pytest.Item) -> str:
    """The recording that a test is about, by its parameters; "" where it names none."""
    spec = getattr(item, "callspec", None)
    files = getattr(getattr(item, "module", None), "FILES", {})
    for value in spec.params.values() if spec is not None else ():
        name = value.get("trace") if isinstance(value, dict) else files.get(value, value) if isinstance(value, str) else None
        if isinstance(name, str) and name.endswith(".gz"):
            return name.removeprefix("others/")
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts the tests of this folder by recording; the order within one, and of those about none, stays."""
    places = [at for at, item in enumerate(items) if str(item.path).startswith(HERE)]
    for at, item in zip(places, sorted((items[at] for at in places), key=recording_of), strict=True):
        items[at] = item
