"""The plugin inside TensorBoard's own WSGI application: routing, prefix, validator, activity."""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from tensorboard.backend import application
from tensorboard.plugins import base_plugin
from werkzeug.test import Client

from tb_sol_plugin.loader import ErrorPlugin, Loader
from tb_sol_plugin.plugin import SolPlugin, store_options, web_options
from tests.conftest import ROOT
from tests.support.tiny import EVENTS, trace

HOME = "/data/plugin/sol"


def flags(**given: object) -> argparse.Namespace:
    """Flags as TensorBoard gives them: its own, and ours at their defaults."""
    parser = argparse.ArgumentParser()
    Loader().define_flags(parser)
    base = {"logdir_spec": "", "host": None, "bind_all": False, "path_prefix": ""}
    return argparse.Namespace(**{**vars(parser.parse_args([])), **base, **given})


def plugin(logdir: str, **given: object) -> SolPlugin:
    return SolPlugin(base_plugin.TBContext(logdir=logdir, flags=flags(**given)))


@pytest.fixture
def board(logdir: Path) -> Iterator[tuple[SolPlugin, Client]]:
    made = plugin(str(logdir), sol_workers=1)
    yield made, Client(application.TensorBoardWSGI([made]))
    made._store.close()


# -- B-03 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "/some/prefix"])
def test_every_route_below_any_prefix(logdir: Path, prefix: str) -> None:
    made = plugin(str(logdir))
    client = Client(application.TensorBoardWSGI([made], path_prefix=prefix))
    try:
        made._store.rescan()
        runs = client.get(f"{prefix}{HOME}/api/v1/runs")
        assert runs.status_code == 200 and [r["name"] for r in json.loads(runs.data)["runs"]] == ["job"]
        for path, status in (
            ("/api/v1/run?run=job", 200), ("/api/v1/analyses?run=job&wait=30", 200), ("/api/v1/analysis/health?run=job&wait=30", 200),
            ("/api/v1/analysis/health?run=job&format=csv", 200), ("/api/v1/trace?run=job", 200), ("/api/v1/openapi.json", 200),
            ("/api/v1/health", 200), ("/vendor/plotly.min.js", 200), ("/vendor/plotly-custom.min.js", 200), ("/api/v1/none", 404), ("/none.js", 404), ("/api/v1/run", 400),
        ):  # fmt: skip
            assert client.get(f"{prefix}{HOME}{path}").status_code == status, path
        assert client.post(f"{prefix}{HOME}/api/v1/rescan").status_code == 200
        assert client.get(f"{prefix}/data/plugin/sol2/api/v1/runs").status_code == 404
    finally:
        made._store.close()


def test_the_listing_of_plugins_names_ours(board: tuple[SolPlugin, Client]) -> None:
    listing = json.loads(board[1].get("/data/plugins_listing").data)["sol"]
    assert listing["enabled"] is True and listing["tab_name"] == "SOL" and listing["disable_reload"] is False
    assert listing["loading_mechanism"] == {"type": "IFRAME", "module_path": f"{HOME}/index.js"}
    entry = board[1].get("/data/plugin_entry.html?name=sol").data.decode()
    assert 'base href="plugin/sol/"' in entry and "index.js" in entry


# -- B-05 ------------------------------------------------------------------------------------------------------------


def test_tensorboards_validator_has_nothing_to_say(board: tuple[SolPlugin, Client], caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN TensorBoard's application (its security validator is inside) WHEN answers of every kind pass THEN no warning
    caplog.set_level(logging.WARNING)
    client = board[1]
    codes = set()
    addresses = ["/api/v1/runs", "/api/v1/analysis/health?run=job&wait=30", "/api/v1/none", "/api/v1/run", "/vendor/plotly-custom.min.js", "/index.html",
                 "/api/v1/trace?run=job", "/api/v1/trace?run=none", "/api/v1/analysis/health?run=job&format=csv"]  # fmt: skip
    for path in addresses:
        reply = client.get(HOME + path)
        codes.add(reply.status_code)
        if "ETag" in reply.headers:
            again = client.get(HOME + path, headers={"If-None-Match": reply.headers["ETag"]})
            codes.add(again.status_code)
            assert again.headers["Content-Type"] == reply.headers["Content-Type"]
    codes.add(client.post(HOME + "/api/v1/rescan", headers={"Origin": "http://evil.example"}).status_code)
    assert {200, 304, 400, 403, 404} <= codes
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


# -- B-08 ------------------------------------------------------------------------------------------------------------


def test_is_active_answers_while_the_file_system_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a file system that does not answer WHEN TensorBoard asks whether the tab is active THEN it is told so at once, again and again
    trace(tmp_path / "a.pt.trace.json")
    answers, plain = threading.Event(), os.scandir

    def hangs(folder: str) -> object:
        assert answers.wait(120)
        return plain(folder)

    monkeypatch.setattr(os, "scandir", hangs)
    made = plugin(str(tmp_path))
    try:
        assert [made.is_active() for _ in range(20)] == [True] * 20
    finally:
        answers.set()
    # AND once it has answered, and the runs are listed, without a look at it
    made._store.rescan()
    looked: list[str] = []
    monkeypatch.setattr(os, "scandir", lambda folder: looked.append(folder) or plain(folder))
    assert made.is_active() is True and not looked


def test_activity_without_anything_to_show(tmp_path: Path) -> None:
    assert plugin("").is_active() is False
    made = plugin(str(tmp_path))
    made._store.rescan()
    assert made.is_active() is False
    assert plugin(str(tmp_path / "missing")).is_active() in (True, False)  # unknown counts as yes; it never raises


def test_making_the_plugin_starts_nothing(logdir: Path) -> None:
    # GIVEN a fresh interpreter WHEN the plugin is made THEN no thread, no heavy import; all analyses load without what only a fit needs
    code = f"""
import sys, threading, argparse
from tb_sol_plugin.loader import Loader
light = {{m for m in ("numpy", "pandas", "pyarrow", "flask", "msgspec", "numba", "fsspec") if m in sys.modules}} - BEFORE
parser = argparse.ArgumentParser(); Loader().define_flags(parser); flags = parser.parse_args([])
from tensorboard.plugins import base_plugin
plugin = Loader().load(base_plugin.TBContext(logdir={str(logdir)!r}, flags=flags))
plugin.get_plugin_apps(); plugin.frontend_metadata()
heavy = {{m for m in ("pandas", "pyarrow", "flask", "numba", "fsspec", "plotly") if m in sys.modules}} - BEFORE
print(sorted(light), sorted(heavy), threading.active_count(), type(plugin).__name__)
import tb_sol_plugin
print(len(tb_sol_plugin.analyses()) > 20, "scipy.optimize" in sys.modules)
"""
    code = "import sys\nfrom tensorboard.plugins import base_plugin\nBEFORE = set(sys.modules)\n" + code
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert out == ["[]", "[]", "1", "SolPlugin", "True", "False"]


# -- B-01 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["msgspec", "tb_sol_plugin.plugin"])
def test_a_missing_dependency_gives_a_page_that_says_so(monkeypatch: pytest.MonkeyPatch, logdir: Path, missing: str) -> None:
    # GIVEN a dependency that cannot be imported WHEN TensorBoard loads us THEN the tab is there and shows the reason
    for name in [m for m in sys.modules if m.startswith("tb_sol_plugin.") and m != "tb_sol_plugin.loader"]:
        parent, _, child = name.rpartition(".")
        if parent in sys.modules:  # the fresh imports below hang themselves onto their parents: give those back too
            monkeypatch.setattr(sys.modules[parent], child, sys.modules[name], raising=False)
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    made = Loader().load(base_plugin.TBContext(logdir=str(logdir), flags=flags()))
    assert type(made).__name__ == "ErrorPlugin"
    client = Client(application.TensorBoardWSGI([made]))
    script = client.get(f"{HOME}/index.js")
    assert script.status_code == 200 and script.content_type.startswith("text/javascript")
    assert missing in script.text and "export function render" in script.text
    assert client.get(f"{HOME}/api/v1/runs").status_code == 503
    assert json.loads(client.get("/data/plugins_listing").data)["sol"]["enabled"] is True


def test_the_reason_cannot_break_out_of_the_script() -> None:
    made = ErrorPlugin(base_plugin.TBContext(), RuntimeError('</script><script>alert(1)//" + `${x}`\nsecond line'))
    client = Client(application.TensorBoardWSGI([made]))
    text = client.get(f"{HOME}/index.js").text
    assert "</script>" not in text and "second line" not in text


# -- flags -----------------------------------------------------------------------------------------------------------


def test_flags_have_our_prefix_and_are_checked() -> None:
    given = vars(flags())
    ours = [name for name in given if name.startswith("sol_")]
    assert len(ours) == 9
    Loader().fix_flags(flags())
    for name in ("sol_cache_gb", "sol_memory_gb", "sol_scan_seconds", "sol_workers"):
        with pytest.raises(base_plugin.FlagsError, match=name):
            Loader().fix_flags(flags(**{name: -1}))


def test_an_embedding_program_may_define_none_of_them(tmp_path: Path) -> None:
    made = SolPlugin(base_plugin.TBContext(logdir=str(tmp_path), flags=SimpleNamespace()))
    assert made.is_active() in (True, False)
    assert store_options(SimpleNamespace()) == store_options(flags())


@pytest.mark.parametrize(
    ("given", "original"),
    [
        ({}, True),
        ({"bind_all": True}, False),
        ({"host": "0.0.0.0"}, False),
        ({"host": "localhost"}, True),
        ({"bind_all": True, "sol_serve_original": "on"}, True),
        ({"sol_serve_original": "off"}, False),
    ],
)
def test_original_files_stay_here_when_the_server_is_open(given: dict[str, Any], original: bool) -> None:
    assert web_options(flags(**given)).original is original


# -- B-09 ------------------------------------------------------------------------------------------------------------


def listed(made: SolPlugin) -> list[str]:
    made._store.rescan()
    client = Client(application.TensorBoardWSGI([made]))
    return [r["name"] for r in json.loads(client.get(f"{HOME}/api/v1/runs").data)["runs"]]


def test_several_named_logdirs(logdir: Path, tmp_path: Path) -> None:
    trace(tmp_path / "more" / "a.json")
    assert listed(plugin("", logdir_spec=f"first:{logdir},second:{tmp_path / 'more'}")) == ["first/job", "second"]


def test_a_logdir_in_memory(tmp_path: Path) -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/board/run/a.json", json.dumps({"traceEvents": EVENTS}).encode())
    try:
        made = plugin("memory://board", sol_cache_dir=str(tmp_path))
        assert listed(made) == ["run"]
        client = Client(application.TensorBoardWSGI([made]))
        assert client.get(f"{HOME}/api/v1/analysis/health?run=run&wait=30").status_code == 200
        assert client.get(f"{HOME}/api/v1/trace?run=run").data == fs.cat("/board/run/a.json")
    finally:
        fs.store.clear()


def test_files_appear_grow_and_vanish_while_served(board: tuple[SolPlugin, Client], logdir: Path) -> None:
    made, client = board
    assert listed(made) == ["job"]
    new = trace(logdir / "late" / "a.json")
    assert listed(made) == ["job", "late"]
    address = f"{HOME}/api/v1/run?run=late"
    client.get(f"{HOME}/api/v1/analyses?run=late&wait=30")
    facts = json.loads(client.get(address).data)["workers"][0]["spans"][0]["facts"]
    assert facts["total_events"] == 3
    trace(new, EVENTS * 3)
    listed(made)
    assert json.loads(client.get(address).data)["workers"][0]["spans"][0]["state"] == "new"
    client.get(f"{HOME}/api/v1/analyses?run=late&wait=30")
    assert json.loads(client.get(address).data)["workers"][0]["spans"][0]["facts"]["total_events"] == 9
    new.unlink()
    assert listed(made) == ["job"]
    assert client.get(address).status_code == 404


# -- device limits ---------------------------------------------------------------------------------------------------


def test_limits_of_the_flag_and_of_the_logdir(logdir: Path, tmp_path: Path) -> None:
    # GIVEN a logdir with a device file, and the flag with nothing, an expression, a file, a file that is not there
    (logdir / "sol_devices.json").write_text('[{"key": "ours", "inherits": "H100_SXM", "bf16_tensor_tflops": 500}]')
    given = tmp_path / "given.json"
    given.write_text('[{"key": "given", "inherits": "H200"}]')
    for flag, key in (
        ("", "ours"), ("A100_SXM_80@705MHz", "A100_SXM_80@705MHz"), (str(given), "given"), (f"{given}#H100+sparse", "H100_SXM+sparse"),
        (str(tmp_path / "none.json"), "ours"),
    ):  # fmt: skip
        made = plugin(str(logdir), sol_device=flag, sol_workers=1)
        client = Client(application.TensorBoardWSGI([made]))
        try:
            body = json.loads(client.get(f"{HOME}/api/v1/analyses?run=job&wait=30").data)
            notes = json.loads(client.get(f"{HOME}/api/v1/health").data)["notes"]
        finally:
            made._store.close()
        # THEN the limits are those, and a fault is told
        assert body["device"]["key"] == key, flag
        assert len(notes) == ("none.json" in flag) and all("no such file" in note for note in notes)
