"""Registration: what does not fit is an error with its reason, and one broken analysis leaves the others alone."""

from __future__ import annotations

import importlib
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import tb_sol_plugin as sol
from tb_sol_plugin.cli import doctor
from tb_sol_plugin.errors import NotFound
from tb_sol_plugin.model import registry as R
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Report
from tb_sol_plugin.model.requirements import REQUIREMENTS, Requirement
from tb_sol_plugin.web import listings
from tests.conftest import ROOT

GOOD = '''"""Good."""
from tb_sol_plugin.analyses import analysis
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Report

@analysis(title="Good", question="Good?", group="Run", order=99, query=Query)
def good(capture, query):
    return Report(analysis="good", title="Good")
'''


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[None]:
    """A room with a good analysis, one that raises on import, one of a group that there is not, and one whose name is taken."""
    room = tmp_path / "odd_room"
    room.mkdir()
    for name, text in {
        "__init__": "", "good": GOOD, "raises": f"import os\nraise RuntimeError('not today, {tmp_path}/secret.py')",
        "wrong_group": GOOD.replace('group="Run"', 'group="Tme"'), "health": GOOD.replace("Good", "Other"),
    }.items():  # fmt: skip
        (room / f"{name}.py").write_text(text)
    package = importlib.import_module("tb_sol_plugin.analyses")
    R.registry()  # the analyses of the product come first
    package.__path__.append(str(tmp_path))
    R._modules.cache_clear()
    R.registry.cache_clear()
    yield
    package.__path__.remove(str(tmp_path))
    R._FOUND.pop("good", None)
    for name in [n for n in sys.modules if n.startswith("tb_sol_plugin.analyses.odd_room")]:
        del sys.modules[name]
    R._modules.cache_clear()
    R.registry.cache_clear()


def test_one_broken_analysis_leaves_the_others_alone(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a room with three broken analyses THEN the good one beside them and all others are there
    there = sol.analyses()
    files = (ROOT / "tb_sol_plugin" / "analyses").glob("*/*.py")
    assert "good" in there and len(there) == 1 + sum("\n@analysis(\n" in f.read_text() for f in files) and there["health"]["title"] != "Other"
    # AND the broken ones are reported, each with its reason and without a local folder
    failed = R.failures()
    assert set(failed) == {"raises", "wrong_group", "health"} and failed["raises"] == "RuntimeError: not today, secret.py"
    assert "group 'Tme' is none of '', 'Time', 'Speed of light', 'Run', 'Experimental', 'foot'" in failed["wrong_group"]
    assert "analysis 'health' is registered already, by tb_sol_plugin.analyses.quality.health" in failed["health"]
    with pytest.raises(NotFound, match="'raises' failed to load: RuntimeError"):
        R.get("raises")
    # AND doctor and the catalog say so
    doctor._parts(Console(width=200, file=sys.stdout))
    assert "wrong_group" in capsys.readouterr().out
    assert listings.catalog().failed == failed


def test_where_nothing_fails_nothing_is_said() -> None:
    import msgspec

    assert not R.failures() and "failed" not in msgspec.to_builtins(listings.catalog())


def test_requirements_stand_once() -> None:
    assert typing.get_args(Requirement) == tuple(REQUIREMENTS)
    assert importlib.import_module("tb_sol_plugin.analyses").analysis is R.analysis


def _of_capture(capture: object, query: Query) -> Report:
    raise AssertionError


def _reduced(capture: object, query: Query) -> Report:
    raise AssertionError


@pytest.mark.parametrize(("given", "words"), [
    ({"group": "Tme"}, "group 'Tme' is none of"),
    ({"scope": "rank"}, "scope 'rank' is none of 'capture', 'ranks', 'pair', 'runs', 'none'"),
    ({"requirements": ("kernel",)}, "requirement 'kernel' is none of"),
    ({"scope": "none"}, r"the function of scope 'none' takes \(query\)"),
    ({"scope": "runs", "reduce": R.Reduction(_reduced)}, r"takes \(ranks, files, query\)"),
    ({"scope": "ranks"}, "scope 'ranks' needs reduce"),
    ({"reduce": R.Reduction(_reduced)}, "scope 'capture' takes no reduce"),
    ({"scope": "pair", "reduce": R.Reduction(_reduced)}, "PairQuery"),
    ({"scope": "ranks", "reduce": R.Reduction(_reduced, files=("x",))}, "for scope 'runs'"),
    ({"with_recording": _of_capture}, "with_recording= is for scope 'none'"),
])  # fmt: skip
def test_what_does_not_fit_is_an_error(given: dict[str, object], words: str) -> None:
    plain: dict[str, object] = {"title": "T", "question": "Q?", "group": "Run", "order": 99, "query": Query}
    with pytest.raises(ValueError, match=words):
        R.analysis(**{**plain, **given})(_of_capture)  # type: ignore[arg-type]
    assert __name__.rpartition(".")[2] not in R._FOUND


def test_a_named_analysis_is_imported_without_the_others() -> None:
    # GIVEN a process of its own WHEN it asks for one analysis
    code = (
        "import sys; from tb_sol_plugin.model.registry import get; assert get('kernels').name == 'kernels'\n"
        "print(*[n for n in sys.modules if n.startswith('tb_sol_plugin.analyses.goodput.') or n == 'scipy.optimize'])"
    )
    # THEN those of other rooms, and what only they need, are not there
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
