"""The page of all findings: what it adds to them is where their time is spent, and a selection by layer and phase."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.rules import ranks
from tb_sol_plugin.metrics.rules.time import RULES
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import registry
from tests.conftest import ROOT
from tests.support.captures import report
from tests.support.findings import H100_BANDWIDTH, call, step
from tests.support.training import read_back

MILLION = 1 << 20


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """One step of 100 us: 1 us idle, a chain of two elementwise kernels in `a` (39 us), a lone kernel (40 us), a chain in `b` (20 us)."""
    t = step(100_000)
    t.annotation("## a ##", 0, 300)
    t.annotation("## b ##", 700, 300)
    for name, at, us in (("relu", 1, 19), ("sigmoid", 20, 20), ("relu", 80, 10), ("sigmoid", 90, 10)):
        call(t, f"aten::{name}", at * 1_000, us * 1_000, [[MILLION]])
    t.launch("alone", at=450, start=40_000, duration=40_000)
    t.call("cudaDeviceSynchronize", 1_000, 99_000)
    return read_back(t, tmp_path_factory.mktemp("findings"))


LIMIT = 2 * 4 * MILLION / H100_BANDWIDTH * 1e9
"""A fused chain of two reads 4 MiB and writes 4 MiB."""


def test_savings_add_up_and_say_where(run: Capture) -> None:
    answer = report(run, "findings")
    # GIVEN two chains THEN one finding of both, its saving split over the phases
    chains = next(f for f in answer.findings if f.rule == "fusable_chains")
    assert chains.saving_ns == pytest.approx(59_000 - 2 * LIMIT, abs=3)
    places = answer.table("places").query("rule == 'fusable_chains'")
    assert dict(zip(places["phase"], places["saving_ns"], strict=True)) == pytest.approx({"a": 39_000 - LIMIT, "b": 20_000 - LIMIT}, abs=3)
    # AND the facts are sums of the cards
    facts = answer.facts
    assert facts["findings"] == len(answer.findings) and facts["combined_ns"] == sum(f.saving_ns or 0 for f in answer.findings)
    assert facts["step_ns"] == 100_000 and facts["after_ns"] == 100_000 - int(facts["combined_ns"])  # type: ignore[arg-type]
    # AND the step and its limit are those of the waterfall
    overview = report(run, "overview").facts
    assert (facts["step_ns"], facts["sol_ns"]) == (overview["step_ns"], overview["sol_ns"])
    assert answer.table("findings")["saving_ns"].tolist() == [f.saving_ns for f in answer.findings]


def test_one_phase_keeps_its_part_only(run: Capture) -> None:
    answer = report(run, "findings", phase="b")
    assert [f.rule for f in answer.findings] == ["fusable_chains"]
    assert answer.findings[0].saving_ns == pytest.approx(20_000 - LIMIT, abs=3)
    assert set(answer.table("places")["phase"]) == {"b"}


@pytest.mark.parametrize("query", [{"phase": "c"}, {"layer": "Linear"}])
def test_a_place_without_findings_is_refused_with_those_there_are(run: Capture, query: dict[str, str]) -> None:
    with pytest.raises(BadQuery) as error:
        report(run, "findings", **query)
    assert error.value.field == next(iter(query))


def test_links_lead_to_pages_that_exist(run: Capture) -> None:
    assert all(f.link is not None and f.link.analysis in registry() for f in report(run, "findings").findings)


def test_a_step_without_findings_says_so(tmp_path: Path) -> None:
    t = step(100_000)
    t.launch("alone", at=0, start=0, duration=100_000)
    answer = report(read_back(t, tmp_path), "findings")
    assert answer.findings == [] and "Nothing was found" in answer.headline and answer.facts["combined_ns"] == 0


def test_every_rule_is_described_and_every_description_has_a_rule() -> None:
    # GIVEN the tables of docs/findings.md WHEN the names in their first column are read
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.split("## Thresholds")[0].splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    # THEN they are the rules, each once, and the finding about ranks that saves nothing
    assert sorted(named) == sorted([*RULES, *(f"ranks_{name}" for name in ranks.RULES), ranks.INCONSISTENT])


@pytest.mark.parametrize(("graph", "around", "said"), [(800_000, "", True), (10_000, "", False), (800_000, "aten::mm", False)])
def test_graph_replays_without_operators_say_how_to_record_their_work(graph: int, around: str, said: bool, tmp_path: Path) -> None:
    # GIVEN a graph that no operator launches and that fills most of the device time; a short one; one inside of an operator
    t = step()
    call(t, "aten::mm", 1_000, 199_000, [[64, 64], [64, 64]])
    if around:
        t.op(around, 9_000, 1_000, shapes=[[64, 64], [64, 64]], types=["float", "float"])
    t.launch("k", at=9_100, start=200_000, duration=graph, api="cudaGraphLaunch")
    run = read_back(t, tmp_path)
    # THEN only the first has no operators to judge, and both pages that show findings say so
    for page in ("findings", "overview"):
        notices = [n.text for n in report(run, page).notices]
        assert any("replayed graphs" in n and "sol.capture(" in n for n in notices) == said
