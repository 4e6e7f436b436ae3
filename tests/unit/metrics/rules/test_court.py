"""The findings court: every rule, over situations whose truth is known, is right about all it says; what it misses is listed."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from benchmarks.court import main, table
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.tables import intervals as iv
from tests.court import case, laws
from tests.court.case import RULES, Situation, Truth, Verdict, judge, library, saves, scores
from tests.support.evidence import check_findings

LIBRARY = {s.name: s for s in library()}
MISSED = {"warm_up"}
"""Rules that are known not to see a situation of the library; each says there why."""


@pytest.fixture(scope="module")
def verdict() -> Callable[[str], Verdict]:
    known: dict[str, Verdict] = {}
    return lambda name: known.setdefault(name, known.get(name) or judge(LIBRARY[name]))


@pytest.mark.parametrize("name", list(LIBRARY))
def test_nothing_but_the_truth_is_found(verdict: Callable[[str], Verdict], name: str) -> None:
    # GIVEN a situation WHEN every rule looks at it THEN each finding is true, and none is missing but those known to
    v = verdict(name)
    assert {r: (f.saving, f.evidence) for r, f in v.wrong.items()} == {}
    assert v.unknown == () and v.found_now == (), f"{v.unknown} are silent; {v.found_now} are found now: take their `missed` away"


def test_every_rule_is_right_about_all_it_says(verdict: Callable[[str], Verdict]) -> None:
    # GIVEN the verdicts on all situations, at least 60 of which 20 are look-alikes
    verdicts = [verdict(name) for name in LIBRARY]
    assert len(verdicts) >= 60 and sum(v.situation.innocent for v in verdicts) >= 20
    # THEN every rule has been tried, with precision 1; and recall 1 but where it is known not to
    found = scores(verdicts)
    assert {r for r, s in found.items() if not s.right} == set()
    assert {r for r, s in found.items() if s.precision != 1} == set()
    assert {r for r, s in found.items() if s.recall != 1} == MISSED == {r for s in LIBRARY.values() for r, t in s.truth.items() if t.missed}
    assert all(s.alike == s.alikes for s in found.values())
    # AND the table says so
    out = Console(file=io.StringIO(), width=150)
    out.print(table(verdicts))
    printed = out.file.getvalue()  # type: ignore[attr-defined]
    assert sum(rule in printed for rule in RULES) == len(RULES)
    assert all(f"{r} cannot see" in printed for r in MISSED)


FIRST = {rule: name for name, s in reversed(LIBRARY.items()) for rule in s.truth if not s.innocent and rule not in MISSED}
"""For each rule the first situation in which it speaks."""


@pytest.mark.parametrize("name", [n if n in FIRST.values() else pytest.param(n, marks=pytest.mark.exhaustive) for n in LIBRARY])
def test_a_finding_opens_what_it_claims(name: str) -> None:
    # GIVEN a situation WHEN the link of each finding is followed THEN its rows make up the saving; each finding that is true is a card
    rules = check_findings(case.opened(LIBRARY[name]))
    expected = {r for r, t in LIBRARY[name].truth.items() if not t.missed and not t.optional}
    assert LIBRARY[name].spec is not None or expected <= rules


# -- The court can convict ---------------------------------------------------------------------------------------------

GUILTY = "a_batch_is_loaded_in_the_training_process"
Rules = Callable[..., list[Finding]]


@pytest.mark.parametrize(("change", "wrong", "silent"), [
    (lambda f: [], [], ["input_wait"]),
    (lambda f: [replace(f, saving=f.saving + 3)], ["input_wait"], []),
    (lambda f: [replace(f, candidate=True)], ["input_wait"], []),
    (lambda f: [replace(f, evidence="One batch loads.", fix="")], ["input_wait"], []),
    (lambda f: [f, replace(f, rule="host_wait", saving=1)], ["host_wait"], []),
], ids=["silence", "too large a saving", "proof denied", "other words", "another rule"])  # fmt: skip
def test_a_false_finding_and_silence_are_seen(
    change: Rules, wrong: list[str], silent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a rule that is right in a situation WHEN it is changed
    rules = case.time_findings
    monkeypatch.setattr(case, "time_findings", lambda *a: [new for f in rules(*a) for new in change(f)])
    v = judge(LIBRARY[GUILTY])
    # THEN the verdict names what is wrong, and the score falls
    assert (list(v.wrong), list(v.unknown)) == (wrong, silent)
    score = scores([v])
    assert all(score[r].precision == 0 for r in wrong) and all(score[r].recall == 0 for r in silent)


def test_a_look_alike_that_convinces_its_rule_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Finding(evidence="e", saving=5, rule="input_wait", title="t", fix="f")
    monkeypatch.setattr(case, "time_findings", lambda *a: [found])
    score = scores([judge(LIBRARY["a_loader_waits_while_the_device_works"])])["input_wait"]
    assert (score.precision, score.alike, score.alikes) == (0, 0, 1)


def test_what_is_optional_or_known_to_be_missed_is_no_surprise() -> None:
    # GIVEN a recording without findings WHEN one is optional and one is known to be missed
    make = LIBRARY["kernels_alone_are_no_program"].make
    truth = {"host_wait": saves(1, optional=True), "handover": saves(1, missed="because")}
    v = judge(Situation("s", "", make, truth))
    assert (v.silent, v.unknown) == (("handover",), ())
    assert scores([v])["handover"].recall == 0 and scores([v])["host_wait"].recall is None


def test_a_truth_bounds_what_is_saved() -> None:
    found = Finding(evidence="e", saving=10, title="t", fix="torch.compile(model)")
    assert saves(10).holds(found) and saves(8).holds(found) and Truth(5, 20).holds(found)
    assert not saves(7).holds(found) and not Truth(13, 20).holds(found) and not saves(10, possible=True).holds(found)
    assert not saves(10, never="torch.compile(").holds(found) and not saves(10, says="graphs").holds(found)


def test_the_command_fails_where_a_finding_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Console(file=io.StringIO(), width=150)
    assert main(["--only", GUILTY], out) == 0
    monkeypatch.setattr(case, "time_findings", lambda *a: [])
    assert main(["--only", GUILTY], out) == 1
    assert f"MISSED  input_wait in {GUILTY}" in out.file.getvalue()  # type: ignore[attr-defined]


# -- The laws of all findings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [GUILTY, "many_short_kernels", "adam_in_eight_passes", "many_tiny_uploads", "a_weight_is_cast_before_its_product"])
def test_situations_keep_the_laws(name: str) -> None:
    assert laws.broken(case.opened(LIBRARY[name])) == []


@pytest.mark.parametrize(("change", "law"), [
    (lambda f: replace(f, saving=10**9), "of a step of"),
    (lambda f: replace(f, saving=0), "of a step of"),
    (lambda f: replace(f, evidence=""), "lacks words"),
    (lambda f: replace(f, evidence="nan of `k`"), "lacks words"),
    (lambda f: replace(f, rule="whim"), "is no rule"),
    (lambda f: replace(f, evidence="Most in `aten::elsewhere`."), "not in the recording"),
    (lambda f: replace(f, query={"find": "aten::elsewhere"}), "can hold these words"),
    (lambda f: replace(f, claimed=f.claimed * 3), "of a call"),
    (lambda f: replace(f, claimed=f.claimed / 3), "its rows are"),
    (lambda f: replace(f, rows=f.rows[:0], claimed=f.claimed[:0]), "has no evidence"),
    (lambda f: replace(f, idle=(np.array([1_500]), np.array([2_000]))), "in which the device works"),
], ids=["above the step", "nothing", "no evidence", "no number", "no rule", "foreign evidence", "foreign link", "more than a call", "other rows", "no rows", "a busy moment"])  # fmt: skip
def test_a_broken_law_is_named(change: Callable[[Finding], Finding], law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = case.time_findings
    monkeypatch.setattr(case, "time_findings", lambda *a: [change(f) for f in rules(*a)])
    assert any(law in one for one in laws.broken(case.opened(LIBRARY["an_elementwise_kernel_is_slow"])))


@pytest.mark.parametrize("name", ["another_process_has_the_device", "the_last_launch_was_before_the_window", "the_profiler_flushes_its_buffers"])
def test_blame_without_a_late_launch_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording in which nothing waits for the host WHEN a rule says that it does THEN the laws say no
    monkeypatch.setattr(case, "time_findings", lambda c, p, fall: [
        Finding(evidence="e", saving=iv.length(fall.idle), rule="host_wait", title="t", fix="f", idle=fall.idle)
    ])  # fmt: skip
    said = laws.broken(case.opened(LIBRARY[name]))
    assert any("no late launch explains" in one for one in said) and any("the host is blamed for" in one for one in said)


def test_a_moment_in_two_findings_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = case.time_findings
    monkeypatch.setattr(case, "time_findings", lambda *a: [g for f in rules(*a) for g in (f, replace(f, rule="host_wait"))])
    assert any("in two findings" in one for one in laws.broken(case.opened(LIBRARY[GUILTY])))
