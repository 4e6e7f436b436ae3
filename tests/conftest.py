"""Fixtures that every test may use."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the suite runs one process per core: threads of BLAS and torch would only wait for each other

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("tb_sol", deadline=None)  # the first call of a compiled loop compiles it
settings.load_profile("tb_sol")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of recorded traces handed in from outside; skips where it is absent."""
    folder = Path(os.environ.get("TB_SOL_TRACES", ROOT.parent / "shared" / "traces"))
    if not folder.is_dir():
        pytest.skip(f"no recorded traces at {folder}; set TB_SOL_TRACES to run the tests marked real")
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests never touch the user's cache nor read the user's device file; one cache per test session keeps them quick."""
    base = tmp_path_factory.getbasetemp() / "tb-sol-cache"
    monkeypatch.setenv("TB_SOL_CACHE_DIR", str(base))
    monkeypatch.setenv("TB_SOL_DEVICES", "")
