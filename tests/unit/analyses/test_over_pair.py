"""Analyses over two recordings: the example of the docs, parts that are kept, and what stays as it is for others."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.model import registry as registry_module
from tb_sol_plugin.model.answer import reducer_of
from tb_sol_plugin.model.query import PairQuery
from tb_sol_plugin.model.registry import availability, get
from tb_sol_plugin.model.report import Report
from tests.conftest import ROOT
from tests.support.captures import capture
from tests.support.ranks import write_run


@pytest.fixture
def example() -> Iterator[str]:
    """The example of the docs, registered as the module that it says it is."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if 'scope="pair"' in block)
    module = types.ModuleType("tb_sol_plugin.analyses.longer_kernel")
    sys.modules[module.__name__] = module
    registry_module.registry()
    exec(compile(code, "extending.md", "exec"), module.__dict__)
    registry_module.registry.cache_clear()
    yield "longer_kernel"
    del sys.modules[module.__name__], registry_module._FOUND["longer_kernel"]
    registry_module.registry.cache_clear()


def test_the_example_of_the_docs(tmp_path: Path, example: str) -> None:
    # GIVEN a run whose longest device event is an upload of 40 us, of rank 7 400 us WHEN two ranks are set beside each other
    run = sol.open(str(write_run(tmp_path / "job")), cache=False)
    found = run.analyze(example, other_worker=7)
    # THEN the first worker in natural order is shown: the second recording of rank 3, of 90 us
    assert isinstance(found, Report) and found.facts["more_ns"] == 400_000 - 90_000
    assert [s.notes for s in found.sections] == [{"more_ns": "rank 7 less rank 3"}]  # type: ignore[union-attr]
    assert found.fields["other_worker"].value == "rank7" and not found.notices
    # AND what nobody names is chosen, and said
    found = run.analyze(example)
    assert isinstance(found, Report) and "another worker of this run" in found.notices[0].text


def test_every_pair_has_the_fields_that_name_the_other_one() -> None:
    pairs = [item for item in registry_module.registry().values() if item.scope == "pair"]
    assert pairs and all(issubclass(item.query, PairQuery) for item in pairs)
    assert all(not set(item.reduction.fields) & {"other_run", "other_worker", "other_span"} for item in pairs)


def test_a_part_serves_every_other_recording() -> None:
    # GIVEN fields that name the other recording THEN the part of a recording does not depend on them
    keys = {reducer_of("memory_compare", raw).key for raw in ({}, {"other_run": "x"}, {"other_worker": "1"}, {"by": "module"}, {"align": "start"})}
    assert len(keys) == 1 and reducer_of("memory_compare", {"step": "3"}).key not in keys


def test_it_is_there_where_another_recording_is(tmp_path: Path) -> None:
    path = next((ROOT / "samples" / "simulated_memory" / "after").glob("sim0_rank0.*.json.gz"))
    c, item = capture(path), get("memory_compare")
    assert availability(item, c, ranks=1, others=True) is None
    missing = availability(item, c, ranks=4, others=False)
    assert missing is not None and "two recordings" in missing.because
