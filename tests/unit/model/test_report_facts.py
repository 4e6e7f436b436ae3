"""Facts are stated once, and every value has one."""

from __future__ import annotations

import pytest

from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import Fact, make_facts
from tb_sol_plugin.units import UNITS

FACTS = (Fact("busy_ns", "Busy", "ns", "Union of all events."), Fact("idle_ns", "Idle", "ns", "The rest.", "idle"), Fact("name", ""))


def test_a_section_says_what_its_facts_say_in_the_order_of_the_values() -> None:
    # GIVEN facts WHEN a section is made of some values THEN label, unit, sentence and color are theirs, in the order of the values
    section = make_facts("facts", "Numbers", {"name": "a", "idle_ns": None, "busy_ns": 3}, FACTS, span=4)
    assert list(section.values) == list(section.units) == list(section.labels) == list(section.docs) == ["name", "idle_ns", "busy_ns"]
    assert section.labels == {"name": "name", "idle_ns": "Idle", "busy_ns": "Busy"} and section.units["busy_ns"] == "ns"
    assert section.colors == {"idle_ns": "idle"} and section.span == 4 and section.title == "Numbers"
    # AND this report may say it in its own words, and add the formula
    own = make_facts("facts", "", {"busy_ns": 3}, FACTS, labels={"busy_ns": "GPU busy"}, more_docs={"busy_ns": "3 / 4."})
    assert own.labels == {"busy_ns": "GPU busy"} and own.docs == {"busy_ns": "Union of all events.\n3 / 4."}


def test_a_value_without_a_fact_is_an_error() -> None:
    with pytest.raises(KeyError, match="no Fact for"):
        make_facts("facts", "", {"busy_ns": 3, "total_ns": 4}, FACTS)


@pytest.mark.parametrize("name", list(registry()))
def test_every_fact_has_a_name_of_its_own_a_unit_that_exists_and_a_sentence(name: str) -> None:
    facts = registry()[name].facts
    assert len({f.name for f in facts}) == len(facts)
    assert all(f.doc and f.unit in UNITS for f in facts)
