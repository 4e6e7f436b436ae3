"""Cost models that other packages bring, through real entry points of installed distributions."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tb_sol_plugin.cost import estimate, explain, model_for, registered
from tb_sol_plugin.cost import plugins as P
from tb_sol_plugin.cost.model import registering
from tests.support.waiting import until
from tests.unit.cost.calls import call, cost

Install = Callable[[str, str, str], None]

GEMM = '''
from tb_sol_plugin.cost import Cost, model, pattern

@model("my_ext::gemm", kind="gemm")
def gemm(call):
    """my_ext::gemm(a[M, K], b[K, N]): 2 M K N."""
    a, b = call.tensor(0), call.tensor(1)
    return Cost(flop=2 * a.shape[0] * a.shape[1] * b.shape[1], bytes=0, dtype=a.dtype, kind="gemm")

@pattern(r"my_ext::fill_\\w+", kind="other")
def fill(call):
    """fill_*(x): x written."""
    return Cost(bytes=call.tensor(0).bytes)
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution of one module with one entry point below a folder of the import path; forgets all of it afterwards."""
    modules: list[str] = []

    def make(name: str, source: str, value: str = "") -> None:
        (tmp_path / f"{name}.py").write_text(source)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[tb_sol_plugin.cost_models]\n{name} = {value or name}\n")
        modules.append(name)
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    P.forget()
    with pytest.raises(KeyError, match="undo"), registering("test"):
        yield make
        raise KeyError("undo")
    P.forget()
    for name in modules:
        sys.modules.pop(name, None)


def test_a_module_registers_models_by_name_and_by_pattern(install: Install) -> None:
    # GIVEN an installed package whose entry point names a module
    install("good_gemm", GEMM, "")
    # THEN its models answer, are listed, and carry its name
    assert cost("my_ext::gemm", (3, 4), (4, 5)).flop == 120
    assert cost("my_ext::fill_zero", (3, 4)).bytes == 48
    assert "my_ext::gemm" in registered()
    found = model_for("my_ext::gemm")
    assert found is not None and found.plugin == "good_gemm"
    assert [(p.name, p.error) for p in P.load()] == [("good_gemm", "")]
    assert P.load()[0].models == ("my_ext::gemm", r"my_ext::fill_\w+")


def test_an_entry_point_may_name_a_callable(install: Install) -> None:
    install("by_call", f"def setup():\n{''.join('    ' + line + chr(10) for line in GEMM.splitlines())}", "by_call:setup")
    assert cost("my_ext::gemm", (3, 4), (4, 5)).flop == 120


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1 / 0", "ZeroDivisionError"), ("def broken(:", "SyntaxError"), ("import a_package_that_is_not_there", "ModuleNotFoundError"),
        (GEMM + "\nraise RuntimeError('half way')", "half way"),
    ],
)  # fmt: skip
def test_a_broken_plugin_costs_itself_only(install: Install, source: str, reason: str) -> None:
    # GIVEN a broken plugin beside a good one
    install("a_broken_one", source, "")
    install("good_gemm", GEMM.replace("my_ext", "other"), "")
    # THEN a warning names it, and everything else is as before
    with pytest.warns(RuntimeWarning, match=f"'a_broken_one'.*{reason}"):
        loaded = P.load()
    assert [(p.name, bool(p.error)) for p in loaded] == [("a_broken_one", True), ("good_gemm", False)]
    assert model_for("my_ext::gemm") is None
    assert cost("other::gemm", (3, 4), (4, 5)).flop == cost("aten::mm", (3, 4), (4, 5)).flop == 120


def test_a_built_in_model_is_replaced_only_explicitly(install: Install) -> None:
    # GIVEN a plugin that registers a built-in name without saying so
    install("takes_mm", GEMM.replace("my_ext::gemm", "aten::mm"), "")
    with pytest.warns(RuntimeWarning, match="'takes_mm'.*two cost models for aten::mm"):
        assert P.load()[0].error
    # THEN the built-in one stays, and nothing else of the plugin does
    assert cost("aten::mm", (3, 4), (4, 5)).bytes == 4 * (12 + 20 + 15)
    assert model_for("my_ext::fill_zero") is None


def test_a_name_that_a_built_in_pattern_covers_counts_as_built_in(install: Install) -> None:
    install("takes_flex", GEMM.replace("my_ext::gemm", "flex_attention"), "")
    with pytest.warns(RuntimeWarning, match="two cost models for flex_attention"):
        P.load()


@pytest.mark.parametrize("how", ['model("aten::mm", kind="gemm", replace=True)', 'pattern("aten::mm", kind="gemm", replace=True)'])
def test_an_explicit_replacement_takes_the_place(install: Install, how: str) -> None:
    install("takes_mm", GEMM.replace('model("my_ext::gemm", kind="gemm")', how), "")
    c = cost("aten::mm", (3, 4), (4, 5))
    assert (c.flop, c.bytes) == (120, 0)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return 1 / 0", "ZeroDivisionError"), ("return 7", "not a Cost"), ("return Cost(flop=-1)", "flop is -1"),
        ("return Cost(bytes=float('nan'))", "bytes is nan"), ("return Cost(flop=float('inf'))", "flop is inf"),
    ],
)  # fmt: skip
def test_a_formula_that_fails_has_no_cost(install: Install, body: str, reason: str) -> None:
    # GIVEN a formula of a plugin that raises, or answers with what is no work
    install(
        "wild",
        f'from tb_sol_plugin.cost import Cost, model\n@model("wild::op", kind="gemm")\ndef op(call):\n    """op()"""\n    {body}\n',
        "",
    )
    with pytest.warns(RuntimeWarning, match=f"'wild' failed.*{reason}"):
        assert estimate("wild::op", call((2, 3))) is None
    # THEN the reason can be shown
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert reason in explain("wild::op", call((2, 3)))


def test_a_plugin_may_ask_for_costs_while_it_is_loaded(install: Install) -> None:
    # GIVEN a plugin that uses the registry at its import; THEN it is loaded once, and sees the built-in models
    install("curious", GEMM + "\nfrom tb_sol_plugin.cost import model_for\nassert model_for('aten::mm')\n", "")
    assert cost("my_ext::gemm", (3, 4), (4, 5)).flop == 120
    assert [p.error for p in P.load()] == [""]


def test_threads_wait_for_the_first_one(install: Install) -> None:
    # GIVEN a plugin that counts its calls, and four threads, of which all but one ask while it is being loaded
    source = "import threading\ncalls, go = [], threading.Event()\ndef setup():\n    calls.append(1)\n    assert go.wait(120)\n"
    install("slow", source + "".join("    " + line + "\n" for line in GEMM.splitlines()), "slow:setup")
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(lambda: cost("my_ext::gemm", (3, 4), (4, 5)).flop) for _ in range(4)]
        until(lambda: "slow" in sys.modules and sys.modules["slow"].__dict__.get("calls"))
        sys.modules["slow"].go.set()
        assert [f.result() for f in found] == [120] * 4 and sys.modules["slow"].calls == [1]
