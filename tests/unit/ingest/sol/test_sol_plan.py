"""Sizes of a model and its layout in the header of a SOL capture: read where they can be, left out where they cannot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tb_sol_plugin import format as F
from tb_sol_plugin import ingest
from tb_sol_plugin.cost.transformer.query import NAMES, WORDS, model_and_layout
from tests.conftest import ROOT
from tests.support.sol_builder import Json, small

TEXT = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")


def plan_of(tmp_path: Path, plan: Json) -> dict[str, str]:
    b = small(plan=plan)
    metadata = ingest.read(str(b.write(tmp_path / b.name))).facts.metadata
    return {name: value for name, value in metadata.items() if name.startswith("plan.")}


def test_planned_sizes_are_read_with_their_origin(tmp_path: Path) -> None:
    # GIVEN a number, a flag and a word THEN each is a text, and beside it stands where it is from
    found = plan_of(tmp_path, {"hidden": [4096, "config.hidden_size"], "tied": [False, "told"], "recompute": ["full", "args"]})
    assert found == {
        "plan.hidden": "4096", "plan.hidden.from": "config.hidden_size", "plan.tied": "false", "plan.tied.from": "told",
        "plan.recompute": "full", "plan.recompute.from": "args",
    }  # fmt: skip


@pytest.mark.parametrize(
    "odd",
    [None, 5, [], {"hidden": 4096}, {"hidden": [4096]}, {"hidden": [None, "x"]}, {"hidden": [{}, "x"]}, {"hidden": [-1, "x"]},
     {"hidden": [1.5, "x"]}, {"colour": ["red", "told"]}, {"hidden": [2**70, "x"]}],
)  # fmt: skip
def test_impossible_planned_sizes_are_left_out(tmp_path: Path, odd: Json) -> None:
    assert plan_of(tmp_path, odd) == {}


def test_texts_are_short_and_hold_no_secrets(tmp_path: Path) -> None:
    found = plan_of(tmp_path, {"recompute": ["x" * 1000, "token=hf_abcdefghijklmnop1234"]})
    assert len(found["plan.recompute"]) == 80 and "abcdefghijklmnop" not in repr(found)


def test_the_names_are_those_that_the_plan_understands() -> None:
    # GIVEN the names of the format THEN the plan knows all of them, and the document lists them with their words
    assert set(F.PLAN) == set(NAMES) - {"preset", "world", "distributed_optimizer"}
    said = set(re.findall(r"`(\w+)`", TEXT.partition("`plan` holds what")[2].partition("Of free text")[0]))
    assert set(F.PLAN) | {word for _, words in WORDS.values() for word in words} == said
    model, layout = model_and_layout({"hidden": "64", "layers": "2", "vocab": "100", "ffn": "128", "heads": "4", "sharding": "full", "dtype": "fp32"})
    assert (model.hidden, layout.sharding, layout.number) == (64, "full", "fp32")
