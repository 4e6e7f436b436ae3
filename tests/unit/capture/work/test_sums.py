"""A step that does the work of the one before is summed up from what is known of that one, with the same result."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tb_sol_plugin.capture.report.analysis import analyze  # noqa: E402
from tb_sol_plugin.capture.roofline import Precision  # noqa: E402
from tb_sol_plugin.capture.work.sums import FoldCache, LazySequence  # noqa: E402
from tests.support import toy  # noqa: E402
from tests.support.ledger import Counting  # noqa: E402
from tests.support.sol_step import device, gpu, step  # noqa: E402


def forbidden():
    raise AssertionError("the records were looked at")


@pytest.fixture(scope="module")
def counting():
    """A ledger of a training step on the CPU."""
    model, tokens = toy.fused_qkv(), toy.some_tokens()
    counting = Counting(model)
    counting.run(lambda: torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward())
    return counting


def with_times(counting, factor, *, untimed=False):
    """(rows, records) with other times."""
    for at, row in enumerate(counting.ledger.rows.values()):
        row[1] = -1 if untimed else factor * (1000 + 7 * at)
    return {key: list(row) for key, row in counting.ledger.rows.items()}, counting.records


@pytest.mark.parametrize("spec", [device(), gpu(), None])
@pytest.mark.parametrize("untimed", [False, True])
def test_the_same_work_again_has_the_analysis_of_a_step_that_was_never_seen(counting, spec, untimed):
    # GIVEN a step that was analyzed
    cache = FoldCache()
    rows, records = with_times(counting, 1, untimed=untimed)
    first = analyze(records, step(), spec, precision=Precision(), counted=rows, cache=cache)
    assert first == analyze(records, step(), spec, precision=Precision())
    # WHEN one follows that did the same in other times THEN no record is looked at
    rows, records = with_times(counting, 3, untimed=untimed)
    again = analyze(LazySequence(forbidden), step(1), spec, precision=Precision(), counted=rows, cache=cache)
    # AND the answer is the same to the last bit, single operations too
    assert again == analyze(records, step(1), spec, precision=Precision())
    assert len(again.top) == 50 and again.top == analyze(records, step(1), spec, precision=Precision()).top


def test_the_order_in_which_it_was_counted_does_not_matter(counting):
    cache = FoldCache()
    rows, records = with_times(counting, 1)
    first = analyze(records, step(), device(), counted=rows, cache=cache)
    turned = dict(reversed(rows.items()))
    assert analyze(LazySequence(forbidden), step(), device(), counted=turned, cache=cache) == first


CHANGES = {
    "one more call": lambda rows: {**rows, next(iter(rows)): [next(iter(rows.values()))[0] + 1, 5]},
    "one row less": lambda rows: dict(list(rows.items())[1:]),
    "a row without time": lambda rows: {**rows, next(iter(rows)): [next(iter(rows.values()))[0], -1]},
}


@pytest.mark.parametrize("what", CHANGES)
def test_other_work_is_summed_anew(counting, what):
    cache = FoldCache()
    rows, records = with_times(counting, 1)
    analyze(records, step(), device(), counted=rows, cache=cache)
    with pytest.raises(AssertionError, match="looked at"):
        analyze(LazySequence(forbidden), step(1), device(), counted=CHANGES[what](rows), cache=cache)


def test_other_limits_or_settings_are_summed_anew(counting):
    cache = FoldCache()
    rows, records = with_times(counting, 1)
    analyze(records, step(), device(), precision=Precision(), counted=rows, cache=cache)
    for spec, precision in ((gpu(), Precision()), (device(), Precision("high")), (None, Precision())):
        with pytest.raises(AssertionError, match="looked at"):
            analyze(LazySequence(forbidden), step(1), spec, precision=precision, counted=rows, cache=cache)
