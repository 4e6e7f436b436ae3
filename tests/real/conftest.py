"""Tests of one recording run one after another, so that it is opened, analyzed and read by the slow references once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = f"{Path(__file__).parent}{os.sep}"
SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def recording_of(item: pytest.Item) -> str:
    """The recording that a test is about, by its parameters; "" where it names none."""
    spec = getattr(item, "callspec", None)
    files = getattr(getattr(item, "module", None), "FILES", {})
    for value in spec.params.values() if spec is not None else ():
        name = value.get("trace") if isinstance(value, dict) else files.get(value, value) if isinstance(value, str) else None
        if isinstance(name, str) and name.endswith(".gz"):
            return f"samples/{name}" if (SAMPLES / name).exists() else name.removeprefix("others/")
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts the tests of this folder by recording, with those of other folders that are about one; the order within one, and of those
    about none, stays.
    """
    first = next((at for at, item in enumerate(items) if str(item.path).startswith(HERE)), None)
    if first is None:
        return
    mine = {item: recording_of(item) for item in items if str(item.path).startswith(HERE) or recording_of(item)}
    before, after = ([item for item in some if item not in mine] for some in (items[:first], items[first:]))
    items[:] = [*before, *sorted(mine, key=mine.__getitem__), *after]
