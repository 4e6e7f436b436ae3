"""docs/cost-models.md is made from the registry, and every formula says what it reads and where it is from."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from tb_sol_plugin.cost import FAMILIES, docs, explain
from tb_sol_plugin.cost.model import everything, registering
from tb_sol_plugin.cost.ops import attention
from tests.conftest import ROOT
from tests.unit.cost.calls import call, cost

PAGE = ROOT / "docs" / "cost-models.md"
BUILT_IN = [(name, model) for name, _, model in everything() if not model.plugin]


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == docs.page(), "run: python -m tb_sol_plugin.cost.docs > docs/cost-models.md"


def test_the_command_prints_the_page() -> None:
    out = subprocess.run([sys.executable, "-m", "tb_sol_plugin.cost.docs"], capture_output=True, text=True, encoding="utf-8", check=True)
    assert out.stdout == docs.page() and not out.stderr


def test_every_formula_has_words() -> None:
    # GIVEN the whole registry; THEN no formula is without a docstring that names its call or arguments
    bare = sorted({name for name, model in BUILT_IN if len(docs.described(model)) < 20})
    assert not bare, f"formulas that say nothing: {bare}"


def test_every_name_and_pattern_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("\\|", "|")
    assert not [name for name, _ in BUILT_IN if f"`{name}`" not in text]


@pytest.mark.parametrize("family", [f for f in FAMILIES if docs.rows(f)], ids=lambda f: f.__name__.rpartition(".")[2])
def test_every_family_names_its_source_and_its_limits(family: object) -> None:
    text = inspect.getdoc(family) or ""
    assert "Source" in text and "Limits" in text


def test_every_model_belongs_to_a_family() -> None:
    # GIVEN formulas and families; THEN none is left out of the page because its module is not listed
    modules = {family.__name__ for family in FAMILIES} | {attention.__name__}
    assert {model.formula.__module__ for _, model in BUILT_IN} <= modules


def test_the_example_of_a_model_of_ones_own_works() -> None:
    # GIVEN the code of docs/extending.md
    example = re.findall(r"```python\n(.*?)```", (PAGE.parent / "extending.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    with pytest.raises(KeyError, match="undo"), registering("an example"):
        exec(compile(example, "extending.md", "exec"), {})
        # THEN 2 x 3 x 5 x 4 FLOP; 12 + 20 + 15 elements of two bytes; a K that does not fit is named
        found = cost("my_ext::gemm_relu", (3, 4), (5, 4), dtype="bf16")
        assert (found.flop, found.bytes, found.dtype, found.kind) == (120, 94, "bf16", "gemm")
        assert explain("my_ext::gemm_relu", call((3, 4), (5, 6))) == "sizes contradict: K 4 and 6"
        raise KeyError("undo")
