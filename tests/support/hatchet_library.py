"""The Hatchet library that exports are checked with. Its requirements pin an older pandas, so it is installed apart:

    pip install --no-deps "llnl-hatchet>=2026.2" caliper-reader multiprocess dill && pip install textX pydot matplotlib pytz

Absent, its tests skip with this message; TB_SOL_REQUIRE_HATCHET=1 makes that a failure.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest


def hatchet_library() -> ModuleType:
    """The imported library; skips the test where it is not installed."""
    if os.environ.get("TB_SOL_REQUIRE_HATCHET") == "1":
        return importlib.import_module("hatchet")
    found: ModuleType = pytest.importorskip("hatchet", reason=(__doc__ or "").splitlines()[2].strip())
    return found
