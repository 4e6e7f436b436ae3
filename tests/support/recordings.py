"""Names the recordings that sweeps go over: those handed in from outside, and those shipped as samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.conftest import TRACES as FOLDER

NOT_TRACES = {"hta/memory_analysis/memory_timeline.raw.gz"}
"""Recordings that hold memory over time and no event."""
HANDED_IN = sorted(str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*.gz")) if FOLDER.is_dir() else []
TRACES = [name for name in HANDED_IN if name not in NOT_TRACES]
JSON = [name for name in HANDED_IN if name.endswith(".json.gz")]
"""Those in JSON."""
ALIKE = "samples/simulated_ranks/rank"
"""Sixteen recordings that hold the same: the tests of single recordings read one of them."""
SAMPLES = sorted(
    name for p in (ROOT / "samples").rglob("*.pt.trace.json.gz")
    if not (name := str(p.relative_to(ROOT))).startswith(ALIKE) or name.startswith(f"{ALIKE}5.")
)  # fmt: skip


def path_of(name: str) -> Path:
    """The file of a recording: samples are named from the repository's root, the others from the folder that was handed in."""
    return ROOT / name if name.startswith("samples/") else FOLDER / name


def over(*names: list[str]) -> pytest.MarkDecorator:
    """Parametrizes `name` over recordings; those handed in are marked `real`."""
    return pytest.mark.parametrize(
        "name", [n if n.startswith("samples/") else pytest.param(n, marks=pytest.mark.real) for some in names for n in some]
    )
