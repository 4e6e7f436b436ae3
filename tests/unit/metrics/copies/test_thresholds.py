"""Thresholds as a query writes them."""

from __future__ import annotations

import dataclasses

import pytest

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.copies.thresholds import DEFAULT, MEANINGS, Thresholds, changed, from_text


def test_an_empty_query_changes_no_threshold() -> None:
    assert from_text("") == from_text(" , ,") == DEFAULT and changed(DEFAULT) == {}


def test_values_that_are_named_are_changed() -> None:
    # GIVEN two names, with blanks WHEN read THEN those two differ and nothing else
    got = from_text("tiny_count=16, exposed_share = 0.25")
    assert got == dataclasses.replace(DEFAULT, tiny_count=16, exposed_share=0.25)
    assert changed(got) == {"tiny_count": 16, "exposed_share": 0.25}


@pytest.mark.parametrize(
    "text",
    ["tiny", "tiny_count", "tiny_count:16", "tiny_count=", "tiny_count=many", "tiny_count=1.5", "tiny_count=-1", "exposed_share=1.01",
     "exposed_share=nan", "exposed_share=-0.1", "outlast_ns=99999999999999999999", "no_such=1", "=1"],
)  # fmt: skip
def test_a_bad_threshold_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(BadQuery) as error:
        from_text(text)
    assert error.value.field == "thresholds" and error.value.hint


def test_every_threshold_is_described() -> None:
    assert list(MEANINGS) == [f.name for f in dataclasses.fields(Thresholds)]
