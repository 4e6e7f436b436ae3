"""The engine of rules: what a finding claims, no other one has; what is too small to show claims nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from tb_sol_plugin.metrics.rules.engine import CaptureContext, Finding, Ledger, Subject, rule, run
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.tables import intervals as iv
from tests.support.findings import assert_disjoint


@dataclass
class Context(CaptureContext):
    """Four calls of 100 ns, two copies of 50 ns, 1000 ns of idle time; findings below 60 ns are too small."""

    subject: ClassVar[Subject] = "time"
    ledger: Ledger = field(default_factory=lambda: Ledger(np.full(4, 100.0), np.full(2, 50.0), iv.one(0, 1_000)))

    def large_enough(self, found: Finding) -> bool:
        return found.saving >= 60

    def give_back(self, found: Finding) -> None:
        self.ledger.give_back(found)


def of_calls(context: Context, rows: list[int], wanted: float, name: str) -> Finding:
    at = np.array(rows)
    ns = context.ledger.take_calls(at, np.full(len(at), wanted))
    return Finding(evidence=name, saving=int(ns.sum()), rule=name, rows=at[ns > 0], claimed=ns[ns > 0])


def of_idle(context: Context, start: int, stop: int, name: str) -> Finding:
    idle = context.ledger.take_idle(iv.one(start, stop))
    return Finding(evidence=name, saving=iv.length(idle), rule=name, idle=idle)


def context(vendor: str = "nvidia") -> Context:
    return Context(Capture(Facts("kineto", "a", 0, vendor=vendor), {}))


@pytest.mark.parametrize(("vendor", "fix"), [
    ("nvidia", "torch.cuda.stream(s); x.to('cuda:1')"), ("amd", "torch.cuda.stream(s); x.to('cuda:1')"),
    ("xpu", "torch.xpu.stream(s); x.to('xpu:1')"), ("mtia", "torch.mtia.stream(s); x.to('mtia:1')"),
])  # fmt: skip
def test_advice_has_the_module_of_the_recorded_device(vendor: str, fix: str) -> None:
    # GIVEN a rule with the words of CUDA WHEN it reports a finding of a device of AMD, Intel or Meta THEN torch is spoken to as there
    one = rule("one", fix="torch.cuda.stream(s); x.to('cuda:1')")(lambda c: of_calls(c, [0], 90, ""))
    assert [f.fix for f in run([one], context(vendor))[0]] == [fix]


def test_a_call_belongs_to_the_first_rule_that_claims_it() -> None:
    # GIVEN a rule that takes 40 of 100 ns of two calls, and one that would take all of three
    first = rule("first")(lambda c: of_calls(c, [0, 1], 40.0, "first"))
    second = rule("second")(lambda c: of_calls(c, [1, 2, 3], 100.0, "second"))
    found, _ = run((first, second), context())
    # THEN the second has the two calls that the first did not claim
    assert {f.rule: (f.rows.tolist(), f.saving) for f in found} == {"first": ([0, 1], 80), "second": ([2, 3], 200)}
    assert_disjoint(found)


def test_calls_and_copies_of_a_small_finding_go_to_later_rules() -> None:
    # GIVEN a rule whose finding saves 10 ns of a call, 20 ns of idle time and 2 ns of a copy: too little to show
    def small(c: Context) -> Finding:
        calls, idle = of_calls(c, [0], 10.0, "small"), of_idle(c, 0, 20, "small")
        copies = np.array([0])
        part = c.ledger.take_copies(copies, 0.04)
        return Finding(evidence="", saving=30 + int(part), rows=calls.rows, claimed=calls.claimed, idle=idle.idle, copies=copies)

    one = context()
    found, _ = run((rule("small")(small), rule("calls")(lambda c: of_calls(c, [0], 100.0, "calls"))), one)
    # THEN the next rule has the whole call, and the copy is free; the idle time keeps its cause
    assert [(f.rule, f.saving) for f in found] == [("calls", 100)]
    assert one.ledger.calls.tolist() == [0, 100, 100, 100]
    assert one.ledger.copies.tolist() == [50, 50] and iv.length(one.ledger.idle) == 980


def test_idle_time_is_claimed_once() -> None:
    # GIVEN two rules over spans that overlap
    rules = (rule("a")(lambda c: of_idle(c, 0, 300, "a")), rule("b")(lambda c: of_idle(c, 200, 400, "b")))
    found, _ = run(rules, context())
    # THEN the second has what is left
    assert {f.rule: f.saving for f in found} == {"a": 300, "b": 100}
    assert_disjoint(found)
