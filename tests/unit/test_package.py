"""The package as it is installed: entry points, the built page, what it costs to import, old Pythons."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tb_sol_plugin"
SOURCES = sorted(p for p in PACKAGE.rglob("*.py") if "__pycache__" not in p.parts)


def project() -> str:
    return (ROOT / "pyproject.toml").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from a copy of the tracked and new files, without Node."""
    folder = tmp_path_factory.mktemp("build")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=False
    ).stdout
    names = [n for n in listed.decode().split("\0") if n and (ROOT / n).is_file()]
    if not names:
        pytest.skip("not a git checkout")
    source = folder / "source"
    for name in names:
        if name.startswith(("tb_sol_plugin/", "README", "LICENSE", "MANIFEST", "pyproject", "setup", "CHANGELOG", "CONTRIBUTING")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    code = "import setuptools.build_meta as b; b.build_wheel('../out'); b.build_sdist('../out')"
    (folder / "out").mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    return folder / "out"


def test_wheel_and_sdist_carry_the_page_and_the_data(built: Path) -> None:
    # GIVEN wheel and sdist WHEN their names are listed
    (wheel,), (sdist,) = list(built.glob("*.whl")), list(built.glob("*.tar.gz"))
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    # THEN every file of the built page, the device table, the OpenAPI description and the type marker is in both
    static = {str(p.relative_to(ROOT)) for p in (PACKAGE / "static").rglob("*") if p.is_file()}
    wanted = static | {"tb_sol_plugin/devices/devices.csv", "tb_sol_plugin/web/openapi.json", "tb_sol_plugin/py.typed"}
    assert any(n.endswith("index.js") for n in static), "the page is not built"
    assert wanted <= in_wheel and wanted <= in_sdist
    assert {"README.md", "LICENSE", "pyproject.toml"} <= in_sdist
    # AND the wheel holds the package and nothing else
    assert {n.split("/")[0] for n in in_wheel if not n.startswith("tb_sol_plugin-")} == {"tb_sol_plugin"}
    assert not [n for n in in_wheel if n.endswith((".nbi", ".nbc", ".pyc"))]


def test_the_wheel_names_its_entry_points(built: Path) -> None:
    # GIVEN the wheel's metadata THEN TensorBoard and the shell find the package
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("entry_points.txt"))
        text = archive.read(name).decode()
    assert re.search(r"\[tensorboard_plugins\]\s+tb_sol_plugin = tb_sol_plugin\.loader:Loader", text)
    assert re.search(r"\[console_scripts\]\s+tb-sol = tb_sol_plugin\.cli:run", text)


def test_entry_points_load() -> None:
    # GIVEN the names in pyproject.toml WHEN they are imported THEN they are callable
    from tb_sol_plugin.cli import run
    from tb_sol_plugin.loader import Loader

    assert callable(run) and callable(Loader)
    assert '"tb_sol_plugin.loader:Loader"' in project() and '"tb_sol_plugin.cli:run"' in project()


def test_torch_is_pinned_exactly_in_the_test_extra_and_absent_from_the_core() -> None:
    # GIVEN the declared dependencies
    text = project()
    core = text.partition("dependencies = [")[2].partition("]")[0]
    test = text.partition("\ntest = [")[2].partition("]")[0]
    # THEN the test extra pins torch, and installing the package alone brings none
    assert '"torch==2.13.0"' in test and "torch" not in core


@pytest.mark.parametrize("module", ["tb_sol_plugin", "tb_sol_plugin.loader"])
def test_importing_the_entry_point_is_cheap(module: str) -> None:
    # GIVEN a fresh interpreter WHEN TensorBoard imports the module at its start THEN nothing heavy comes with it
    code = f"import sys, json; import {module}; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout))
    heavy = {"numpy", "pandas", "pyarrow", "plotly", "numba", "flask", "werkzeug", "msgspec", "fsspec", "isal", "torch", "rich"}
    assert not heavy & loaded, "TensorBoard's own base class is all it may bring"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_source_is_python_3_10(path: Path) -> None:
    # GIVEN a file of the package WHEN it is parsed with the grammar of 3.10 THEN it parses, and uses no newer module or name
    tree = ast.parse(path.read_text(), filename=str(path), feature_version=(3, 10))
    newer = {("typing", "Self"), ("typing", "assert_never"), ("typing", "override"), ("typing", "Never"), ("typing", "NotRequired"),
             ("typing", "TypeAliasType"), ("enum", "StrEnum"), ("datetime", "UTC"), ("itertools", "batched")}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not {(node.module, a.name) for a in node.names} & newer, f"line {node.lineno}"
        if isinstance(node, ast.Import):
            assert not {a.name for a in node.names} & {"tomllib"}, f"line {node.lineno}"
        assert not isinstance(node, getattr(ast, "TryStar", ())), f"line {node.lineno}: except*"


def test_every_room_is_in_the_folder_guide() -> None:
    # GIVEN the folders and top files of the package THEN the guide names each, in under 40 lines
    guide = (PACKAGE / "README.md").read_text()
    assert len(guide.splitlines()) < 40
    rooms = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert not [r for r in rooms if f"`{r}/`" not in guide]


def test_links_in_the_docs_lead_somewhere() -> None:
    # GIVEN every relative link of the documents WHEN it is followed THEN the file is there
    documents = [ROOT / n for n in ("README.md", "CONTRIBUTING.md", "samples/README.md")] + sorted((ROOT / "docs").rglob("*.md"))
    links = [(d, t) for d in documents for t in re.findall(r"\]\((?!https?:|#)([^)#]+)", d.read_text())]
    broken = [f"{d.relative_to(ROOT)}: {t}" for d, t in links if not (d.parent / t).exists()]
    assert not broken


def test_the_installed_version_is_the_package_version() -> None:
    # GIVEN an installation of this checkout, where there is one WHEN asked THEN metadata and package agree
    import tb_sol_plugin

    try:
        installed = importlib.metadata.version("tb-sol-plugin")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not installed: running from the checkout")
    assert installed == tb_sol_plugin.__version__
