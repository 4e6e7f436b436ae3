"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")  # as in processes of ours
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the suite runs one process per core: threads of BLAS and torch would only wait for each other

from pathlib import Path

import pytest
from hypothesis import settings

# Container images often forbid bytecode files. Without them every worker rewrites the assertions of all tests, and each of the hundreds of
# processes that tests start compiles the package again: a quarter of the suite's time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What the libraries and the tests themselves define is a million objects that stay: looking through them for garbage again and again is a
# fifth of the suite's time. Tests that ask what is freed call gc.collect().
gc.set_threshold(100_000, 20, 100)

settings.register_profile("tb_sol", deadline=None)  # the first call of a compiled loop compiles it
settings.register_profile("thorough", deadline=None)
settings.load_profile("tb_sol")
SHARE_OF_EXAMPLES = 3

ROOT = Path(__file__).resolve().parent.parent
TRACES = Path(os.environ.get("TB_SOL_TRACES", ROOT.parent / "shared" / "traces"))
NO_TRACES = f"no recorded traces at {TRACES}; set TB_SOL_TRACES to run the tests marked real"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Several workers take contiguous parts of the suite: what tests of a file share (servers, opened recordings) is made once.

    On a fresh machine the loops are compiled before: else every worker, and every process that tests start, would compile them at once.
    """
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        if config.option.dist == "no":
            config.option.dist = "worksteal"
        if not config.option.collectonly and not os.environ.get("TB_SOL_COMPILED"):
            subprocess.run([sys.executable, "-m", "tests.support.compiled"], cwd=ROOT, check=True)


def pytest_xdist_auto_num_workers() -> int | None:
    """`-n auto`: as many workers as cores. One more would fill the waits for a browser, but imports, collects and loads everything again.

    PYTEST_XDIST_AUTO_NUM_WORKERS takes precedence.
    """
    return None if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") else min(len(os.sched_getaffinity(0)), 8)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sweeps over recordings, tests/real and all marked `real`, are exhaustive; without the recordings those marked `real` are skipped."""
    sweeps = f"{ROOT / 'tests' / 'real'}{os.sep}"
    for item in items:
        real = item.get_closest_marker("real")
        if real or str(item.path).startswith(sweeps):
            item.add_marker("exhaustive")
        if real and not TRACES.is_dir():
            item.add_marker(pytest.mark.skip(reason=NO_TRACES))
    if config.getoption("hypothesis_profile", None) != "thorough":
        for test in {getattr(item, "function", None) for item in items}:
            _try_fewer(test)


def _try_fewer(test: object) -> None:
    """A property is tried on a third of its examples: each run draws others. All of them: --hypothesis-profile=thorough."""
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is not None:
        fewer = max(min(own.max_examples, 10), own.max_examples // SHARE_OF_EXAMPLES)
        test._hypothesis_internal_use_settings = settings(own, max_examples=fewer)  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """What is loaded by now stays: garbage is looked for among later objects only."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of recorded traces handed in from outside; skips where it is absent."""
    if not TRACES.is_dir():
        pytest.skip(NO_TRACES)
    return TRACES


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests never touch the user's cache nor read the user's device file; one cache per test session keeps them quick."""
    base = tmp_path_factory.getbasetemp() / "tb-sol-cache"
    monkeypatch.setenv("TB_SOL_CACHE_DIR", str(base))
    monkeypatch.setenv("TB_SOL_DEVICES", "")


@pytest.fixture(autouse=True)
def _nothing_compiled_by_others() -> Iterator[None]:
    """What a test compiles is forgotten after it: once something was compiled, each tracker looks through all objects for it, half a second."""
    yield
    dynamo = sys.modules.get("torch._dynamo")
    if getattr(getattr(dynamo, "eval_frame", None), "cached_backends", None):
        dynamo.reset()  # type: ignore[union-attr]
