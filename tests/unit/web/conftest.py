"""A logdir and the application over it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.tiny import trace


def write_logdir(root: Path) -> Path:
    """Write two runs: `job` with ranks 2 and 10 and two spans, `odd` with a hostile name; one file that is no recording."""
    for name in ("rank2.1", "rank2.2", "rank10.1"):
        trace(root / "job" / f"{name}.pt.trace.json.gz")
    trace(root / "odd" / "a <script>alert('x')&\"%2f ü.json")
    (root / "config.json").write_text('{"a": 1}')
    return root


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return write_logdir(tmp_path / "logs")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    """A client of one server for all tests that change nothing in it: what was read once stays read."""
    folder = tmp_path_factory.mktemp("shared")
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(write_logdir(folder / "logs"))), StoreOptions(cache_dir=str(folder / "cache")), executor=pool)
        yield create_app(store, WebOptions()).test_client()
        store.close()


@pytest.fixture
def store(logdir: Path, tmp_path: Path) -> Iterator[Store]:
    with ThreadPoolExecutor(1) as pool:
        yield Store(single(str(logdir)), StoreOptions(cache_dir=str(tmp_path / "cache")), executor=pool)


@pytest.fixture
def client(store: Store) -> FlaskClient:
    return create_app(store, WebOptions()).test_client()
