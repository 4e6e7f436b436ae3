"""What CONTRIBUTING says of adding an analysis, done in a copy of the checkout; and what is generated is fresh."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import generate

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_generated_is_fresh() -> None:
    assert [str(path.relative_to(ROOT)) for path, _ in generate.stale()] == [], "run: make generate"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what git tracks of the package, its docs, tools and the tests that are run, with the bytecode and the compiled loops there are."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout.decode().split("\0")
    wanted = ("tb_sol_plugin/", "docs/", "tools/", "benchmarks/", "tests/support/", "tests/unit/analyses/time/", "Makefile",
              "pyproject.toml", "CONTRIBUTING.md", "README.md", "tests/__init__.py", "tests/conftest.py")  # fmt: skip
    names = [n for n in listed if n.startswith(wanted) and (ROOT / n).is_file()]
    if not names:
        pytest.skip("not a git checkout")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)  # with its time, which its bytecode is for
        for compiled in (ROOT / name).parent.glob(f"__pycache__/{Path(name).stem}.*") if name.endswith(".py") else ():
            (tmp_path / name).parent.joinpath("__pycache__").mkdir(exist_ok=True)
            shutil.copy2(compiled, (tmp_path / name).parent / "__pycache__")
    return tmp_path


def test_the_steps_of_contributing_lead_to_an_analysis(copy: Path) -> None:
    # GIVEN the first commands of "Add an analysis" WHEN they are followed in a copy of the checkout
    text = (copy / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Add an analysis")[2]
    block = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)[0]
    scaffold, made, tests = (line.split("#")[0].split() for line in block.strip().splitlines())
    assert scaffold[:2] == ["make", "new-analysis"] and made == ["make", "generate"] and tests[:3] == ["python", "-m", "pytest"]

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # THEN the scaffold writes two files and nothing else
    written = run(*scaffold, "-s", f"PYTHON={sys.executable}").split()
    assert written == ["tb_sol_plugin/analyses/time/streams.py", "tests/unit/analyses/time/test_streams.py"]
    # AND what is generated names it: its page, the list of analyses and OpenAPI
    assert set(run(*made, "-s", f"PYTHON={sys.executable}").split()) == {
        "docs/analyses/streams.md", "docs/http-api.md", "tb_sol_plugin/web/openapi.json",
    }  # fmt: skip
    # AND what is generated is fresh, the registry knows it, and its test passes: in one process, which all three have to import everything
    check = (
        "import pytest, sys, tb_sol_plugin as s; from tools import generate; "
        "assert list(generate.stale()) == [] and 'streams' in s.analyses(); "
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests/unit/analyses/time/test_streams.py']))"
    )
    assert "1 passed" in run(sys.executable, "-c", check)
    # AND a second time it is there already
    again = subprocess.run([*scaffold, "-s", f"PYTHON={sys.executable}"], cwd=copy, capture_output=True, text=True, check=False)
    assert again.returncode != 0 and "already" in again.stderr
