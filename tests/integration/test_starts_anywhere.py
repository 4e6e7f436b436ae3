"""`tb-sol serve` for users without a home, or with one that cannot be read or written, from a package that cannot be written."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import tb_sol_plugin
from tests.support.trace_builder import TraceBuilder

ROUTES = (
    "runs",
    "analyses?run=job",
    "analysis/overview?run=job",
    "analysis/kernels?run=job",
    "analysis/modules?run=job",
    "search?run=job&q=gemm",
)
DROPPED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
"""Root without its rights: other users' files, and its own that are closed, are closed to it."""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="closed folders are those of POSIX")


def _unprivileged() -> list[str]:
    if os.getuid():
        return []
    if shutil.which(DROPPED[0]) is None:
        pytest.skip("root reads everything, and setpriv is not here to drop its rights")
    return DROPPED


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package that cannot be written, a logdir, and a temporary folder that all servers here share."""
    root = tmp_path_factory.mktemp("anywhere")
    package = root / "site" / "tb_sol_plugin"
    shutil.copytree(Path(tb_sol_plugin.__file__).parent, package, ignore=shutil.ignore_patterns("*.nbi", "*.nbc"))
    t = TraceBuilder()
    t.step(1, 0, 50_000)
    t.op("aten::mm", 0, 900, shapes=[[64, 64], [64, 64]], types=["float", "float"])
    t.launch("gemm", at=100, start=2_000, duration=10_000)
    t.write(root / "logs" / "job" / "w.json")
    (root / "tmp").mkdir()
    _as_compiled_before(package, root / "tmp")
    for folder, _, _ in os.walk(root / "site", topdown=False):
        os.chmod(folder, 0o555)
    return root


LEFT_OUT = "intervals."
"""The loops that the first server compiles and keeps; the others are there as an earlier one kept them: compiling all takes half a minute."""


def _as_compiled_before(package: Path, temporary: Path) -> None:
    """Puts compiled loops of the package under test where servers keep them that can write neither the package nor a home."""
    folder = temporary / f"tb-sol-compiled-{os.getuid()}"
    folder.mkdir(mode=0o700)
    tested = Path(tb_sol_plugin.__file__).parent
    for file in tested.rglob("__pycache__/*.nb?"):
        copied = package / file.parent.parent.relative_to(tested)
        own = folder / f"{copied.name}_{hashlib.sha1(str(copied).encode()).hexdigest()}"  # as numba names it
        if not file.name.startswith(LEFT_OUT):
            own.mkdir(exist_ok=True)
            shutil.copy2(file, own)


def test_every_route_answers(place: Path, tmp_path: Path) -> None:
    # GIVEN a home of each kind, one after the other, so that only the first has loops to compile
    for home in ("read-only", "missing", "unreadable", "unset"):
        (tmp_path / home).mkdir()
        _serve(place, tmp_path / home, home)


def _serve(place: Path, tmp_path: Path, home: str) -> None:
    # GIVEN a package that nobody may write into, and no variable that names a place for caches
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(place / "site"), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(place / "tmp")}
    folder = tmp_path / "home"
    folder.mkdir()
    if (
        home == "unset"
    ):  # then it is the one of the account, in which a test has nothing to write: the package's own folder has what is compiled
        env["PYTHONPATH"] = str(Path(tb_sol_plugin.__file__).resolve().parents[1])
        env["TB_SOL_CACHE_DIR"] = str(tmp_path / "cache")
    else:
        env["HOME"] = str(folder / "nowhere" if home == "missing" else folder)
        folder.chmod(0 if home == "unreadable" else 0o500)
    before = sorted(p.name for p in (place / "logs").rglob("*"))
    kept = {path: path.stat().st_mtime_ns for path in (place / "tmp").rglob("*.nbc")}
    command = [*_unprivileged(), sys.executable, "-m", "tb_sol_plugin.cli", "serve", str(place / "logs"), "--port", "0"]
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    # WHEN it serves THEN every route answers
    with subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address.startswith("http://")
            assert {route: _status(f"{address}api/v1/{route}") for route in ROUTES} == dict.fromkeys(ROUTES, 200), home
        finally:
            server.terminate()
            server.wait(60)
    # AND nothing stands where nobody asked for it, nothing of the server is left, and loops that were compiled once are found again
    assert not list(cwd.iterdir()) and sorted(p.name for p in (place / "logs").rglob("*")) == before
    left = [p.name for p in (place / "tmp").iterdir()]
    assert [name for name in left if not name.startswith("tb-sol-compiled-")] == []
    after = {path: path.stat().st_mtime_ns for path in (place / "tmp").rglob("*.nbc")}
    assert kept.items() <= after.items() and any(path.name.startswith(LEFT_OUT) for path in after), home
    assert home == "read-only" or len(after) == len(kept), home


def _status(url: str) -> int:
    """Returns the status of a route once it no longer says that a recording is being read."""
    until = time.monotonic() + 300
    while True:
        try:
            with urllib.request.urlopen(f"{url}{'&wait=20' if '?' in url else ''}", timeout=120) as answer:
                json.load(answer)
                return int(answer.status)
        except urllib.error.HTTPError as error:
            if error.code != 409 or time.monotonic() > until:
                return error.code
