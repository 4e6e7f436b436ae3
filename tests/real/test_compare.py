"""Comparisons of recorded pairs: sums exact, known differences found, swaps negated."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.metrics.compare.alignment import Trees
from tb_sol_plugin.metrics.compare.causes import causes_of
from tb_sol_plugin.metrics.compare.differences import Side, metrics_of, rows_of, waterfall_of
from tb_sol_plugin.metrics.compare.samples import GROUPINGS, LAUNCH, samples_of
from tb_sol_plugin.model.query import Query
from tests.conftest import TRACES
from tests.support.captures import capture

pytestmark = pytest.mark.real
PAIRS = {
    "diff": ("hta/trace_diff/control/control.json.gz", "hta/trace_diff/test/test.json.gz"),
    "bert": ("tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz", "tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz"),
}


def side(name: str, file: str) -> Side:
    return Side(name, [samples_of(capture(TRACES / file), Query())])


@pytest.mark.parametrize("pair", PAIRS)
def test_differences_add_up_and_swap(pair: str) -> None:
    a, b = (side(n, f) for n, f in zip("AB", PAIRS[pair], strict=True))
    there, back = ({by: rows_of(x, y, by) for by in (*GROUPINGS, LAUNCH)} for x, y in ((a, b), (b, a)))
    falls, reverse = waterfall_of(a, b, there), waterfall_of(b, a, back)
    assert sum(bar.delta_ns for bar in falls.bars) == falls.b_ns - falls.a_ns
    for bar, other in zip(falls.bars, reverse.bars, strict=True):
        assert bar.delta_ns == -other.delta_ns
        assert not bar.parts or sum(p.delta_ns for p in bar.parts) == bar.delta_ns
    for by in GROUPINGS:
        ours, theirs = there[by], back[by]
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            names = [was or name for was, name in zip(ours.was, ours.name, strict=True)]  # a renamed row has the name of the second side
            assert dict(zip(names, ours.delta_ns.tolist(), strict=True)) == {
                n: -d for n, d in zip(theirs.name, theirs.delta_ns.tolist(), strict=True)
            }


def test_another_model_on_fewer_devices() -> None:
    # GIVEN the pair of HTA's trace diff: 1,575 and 2,503 device events in a step, the second compiled
    a, b = (side(n, f) for n, f in zip("AB", PAIRS["diff"], strict=True))
    rows = {by: rows_of(a, b, by) for by in GROUPINGS}
    metrics = {m.name: m for m in metrics_of(a, b)}
    assert (metrics["launches"].change.a, metrics["launches"].change.b) == (1575, 2503)
    assert metrics["step_time"].verdict == "worse"
    causes = causes_of(waterfall_of(a, b, rows), rows, list(metrics.values()))
    assert (causes[0].kind, causes[0].name) == ("added", "CompiledFunctionBackward")
    operators = rows["operator"]
    assert operators is not None and {"CompiledFunction", "CompiledFunctionBackward"} <= {
        n for n, m in zip(operators.name, operators.match, strict=True) if m == "only_b"
    }


def test_what_of_two_steps_goes_together() -> None:
    # GIVEN the same model on devices of two vendors THEN the trees go together whole; of another model and world size in part, as far as launch
    # order under the same operators does: 72.8 % and 58.4 % of the device's time, by a prototype of its own
    trees = Trees.of(*(side(n, f) for n, f in zip("AB", PAIRS["bert"], strict=True)))
    assert trees is not None and trees.found.shares == (1.0, 1.0)
    found = sol.compare(*(str(TRACES / f) for f in PAIRS["diff"]), step="1010")
    assert found.facts["matched_time_share_a"] >= 0.728 and found.facts["matched_time_share_b"] >= 0.584  # type: ignore[union-attr]


def plain_counts(file: str, step: int) -> Counter[str]:
    """Calls of each operator that begins inside of a step, from the JSON alone: what HTA's trace diff counts on the host."""
    with gzip.open(TRACES / file) as stream:
        events = json.load(stream)["traceEvents"]
    around = next(e for e in events if e.get("name") == f"ProfilerStep#{step}" and e.get("cat") == "user_annotation")
    end = around["ts"] + around["dur"]
    return Counter(e["name"] for e in events if e.get("cat") == "cpu_op" and e.get("ph") == "X" and around["ts"] <= e["ts"] < end)


def test_the_operators_of_a_step_against_plain_counts() -> None:
    # GIVEN the pair of HTA's trace diff WHEN the operators of a step are set against those of the other THEN names that came, that went,
    # and that are called more often, less often and as often are those of the files
    (a, b), step = PAIRS["diff"], 1010
    before, after = plain_counts(a, step), plain_counts(b, step)
    found = sol.open(str(TRACES / b)).analyze("operators", against=str(TRACES / a), step=str(step)).table("operators").set_index("id")
    assert (sum(n not in before for n in after), sum(n not in after for n in before)) == (3, 72)
    assert set(found.index[found["in_base"] == "new"]) == set(after) - set(before)
    assert set(found.index[found["in_base"] == "baseline only"]) == set(before) - set(after)
    both = found[found["in_base"] == "both"]["calls_delta"].drop("(no operator)")
    assert both.astype(int).to_dict() == {n: after[n] - before[n] for n in before.keys() & after.keys()}
    assert [int((both > 0).sum()), int((both < 0).sum()), int((both == 0).sum())] == [17, 49, 38]
