"""`tensorboard` as a program, with the plugin found by its entry point."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.support.tiny import EVENTS, trace

pytestmark = pytest.mark.tensorboard
HOME = "/data/plugin/sol"


def test_listed_served_and_loaded(tensorboard: Callable[..., Any], logdir: Path) -> None:
    # GIVEN a started TensorBoard WHEN its page asks THEN our tab is enabled and a recording loads in a process of its own
    server = tensorboard("--logdir", str(logdir))
    listing = json.loads(server.get("/data/plugins_listing")[2])
    assert listing["sol"]["enabled"] is True and listing["sol"]["tab_name"] == "SOL"
    status, _, body = server.get(f"{HOME}/api/v1/analysis/health?run=job&wait=30")
    assert status == 200 and json.loads(body)["available"] is True
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(120)
    end = time.monotonic() + 120
    while any(alive(int(c)) for c in children):
        assert time.monotonic() < end, "a reading process outlived the server"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_reader_is_an_error_on_the_page_and_tensorboard_lives(tensorboard: Callable[..., Any], logdir: Path) -> None:
    # GIVEN a recording large enough to be caught while it is read
    big = logdir / "big" / "w.pt.trace.json"
    big.parent.mkdir()
    one = json.dumps(EVENTS[0])
    with open(big, "w", encoding="ascii") as stream:
        stream.write('{"traceEvents":[')
        for _ in range(40):
            stream.write((one + ",") * 20_000)
        stream.write(one + "]}")
    server = tensorboard("--logdir", str(logdir))
    # WHEN the process that reads it is killed, and the one that tries again
    address = f"{HOME}/api/v1/analyses?run=big"
    status, _, body = server.get(address)
    assert status == 409 and json.loads(body)["progress"]["total"] == big.stat().st_size
    task = Path(f"/proc/{server.process.pid}/task")
    killed: set[str] = set()
    end = time.monotonic() + 120
    # THEN the page gets an error with the file's name, soon; other recordings open
    while (reply := server.get(address))[0] == 409:
        assert time.monotonic() < end
        if (json.loads(reply[2]).get("progress") or {}).get("stage") in ("reading", "linking", "starting"):
            for thread in task.iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread, or a child, that ended meanwhile
                    for child in (thread / "children").read_text().split():
                        os.kill(int(child), signal.SIGKILL)
                        killed.add(child)
    assert len(killed) == 2
    error = json.loads(reply[2])["error"]
    assert reply[0] == 500 and error["code"] == "worker_killed" and error["file"] == "big/w.pt.trace.json" and error["hint"]
    assert server.get(f"{HOME}/api/v1/analysis/health?run=job&wait=30")[0] == 200


TEAM = ROOT / "docs" / "team"
NGINX = shutil.which("nginx") or ""
NAME = "profiles.example.com"


@contextlib.contextmanager
def nginx(folder: Path, upstream: str) -> Iterator[str]:
    """nginx with the configuration that the docs show, but for its port, upstream and place of passwords; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    (folder / "htpasswd").write_text(f"reader:{{SHA}}{base64.b64encode(hashlib.sha1(b'secret').digest()).decode()}\n")
    text = (TEAM / "nginx.conf").read_text(encoding="utf-8")
    for shown, here in (
        ("listen 8080;", f"listen 127.0.0.1:{port};"), ("http://tensorboard:6006;", f"http://{upstream};"),
        ("/etc/nginx/htpasswd", str(folder / "htpasswd")), ("http {", f"http {{ access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};"),
    ):  # fmt: skip
        assert shown in text
        text = text.replace(shown, here)
    (folder / "nginx.conf").write_text(text)
    options = f"daemon off; master_process off; pid {folder}/pid;"
    process = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "errors"), "-g", options])
    try:
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None and time.monotonic() < end, (folder / "errors").read_text()
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def test_a_team_behind_nginx_as_the_docs_show(tensorboard: Callable[..., Any], logdir: Path, tmp_path: Path) -> None:
    # GIVEN TensorBoard with the flags of docs/team/compose.yaml: two logdirs, a path prefix, a cache
    trace(tmp_path / "two" / "a.json")
    cache = tmp_path / "my-cache"
    services = yaml.safe_load((TEAM / "compose.yaml").read_text(encoding="utf-8"))["services"]
    words = services["tensorboard"]["command"][-1].partition("exec tensorboard ")[2].split()
    flags = dict(zip(words[::2], words[1::2], strict=True))
    assert flags.pop("--host") == "0.0.0.0" and flags.pop("--port") == "6006"
    places = {"--logdir_spec": f"x:{logdir},y:{tmp_path / 'two'}", "--sol_cache_dir": str(cache)}
    assert places.keys() <= flags.keys()
    server = tensorboard(*(word for pair in (flags | places).items() for word in pair))
    assert server.address.endswith(flags["--path_prefix"])
    assert json.loads(server.get("/data/plugins_listing")[2])["sol"]["loading_mechanism"]["module_path"]
    end = time.monotonic() + 120
    while not (runs := json.loads(server.get(f"{HOME}/api/v1/runs")[2]))["runs"]:
        assert time.monotonic() < end
    # WHEN asked directly THEN the flags are those of the plugin
    assert [r["name"] for r in runs["runs"]] == ["x/job", "y"] and runs["features"]["original"] is False
    assert server.get(f"{HOME}/api/v1/analyses?run=y&wait=30")[0] == 200
    assert len(list(cache.iterdir())) == 1
    assert server.get(f"{HOME}/api/v1/trace?run=y")[0] == 403
    # AND the ingress leads to the same place
    (rule,) = yaml.safe_load((TEAM / "ingress.yaml").read_text(encoding="utf-8"))["spec"]["rules"]
    assert rule["host"] == flags["--sol_hosts"] == NAME and rule["http"]["paths"][0]["path"] == flags["--path_prefix"]
    if not NGINX:
        assert os.environ.get("TB_SOL_REQUIRE_NGINX") != "1", "nginx is required and not there"
        pytest.skip("no nginx to put in front (apt install nginx-light)")
    with nginx(tmp_path / "nginx", server.address.split("/")[2]) as address:
        # WHEN asked through nginx, by the name of the team's host THEN a password is wanted, and all the rest answers below the prefix
        own = {"Host": NAME, "Authorization": "Basic " + base64.b64encode(b"reader:secret").decode()}
        base = address + flags["--path_prefix"]
        assert asked(base + "/", {"Host": NAME})[0] == 401
        assert asked(address + "/", own)[1].partition(NAME)[2].endswith("/profiles/")
        assert asked(base + "/", own)[0] == 200 and asked(f"{base}{HOME}/index.js", own)[0] == 200
        assert json.loads(asked(f"{base}{HOME}/api/v1/runs", own)[2])["runs"]
        saved = asked(f"{base}{HOME}/api/v1/export?run=y&form=html&wait=30", own)
        assert saved[0] == 200 and saved[2].startswith(b"<!doctype html>") and saved[2].rstrip().endswith(b"</html>")
        # AND its own page may have it scan again; that of another site may not, nor is another name of the host taken
        for origin, status in ((f"http://{NAME}", 200), ("http://evil.invalid", 403)):
            assert asked(f"{base}{HOME}/api/v1/rescan", {**own, "Origin": origin}, b"")[0] == status
        assert asked(f"{base}{HOME}/api/v1/runs", {**own, "Host": "evil.invalid"})[0] == 403


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *given: object) -> None:
        return None


def asked(url: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, str, bytes]:
    """Status, where it leads to, and body; errors are answers too."""
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.build_opener(_Stay).open(request, timeout=120) as reply:
            return reply.status, "", reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("Location", ""), error.read()


def test_a_wrong_flag_is_refused(tensorboard: Callable[..., Any], logdir: Path) -> None:
    with pytest.raises(AssertionError, match="sol_cache_gb must not be negative"):
        tensorboard("--logdir", str(logdir), "--sol_cache_gb", "-1")
