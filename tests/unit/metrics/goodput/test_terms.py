"""The terms of a question: who chose each, what memory allows, what to measure next."""

from __future__ import annotations

from dataclasses import replace

from tb_sol_plugin.cost.goodput.model import GradParams
from tb_sol_plugin.metrics.goodput.part import ScalingPart
from tb_sol_plugin.metrics.goodput.points import Point, PointsFile
from tb_sol_plugin.metrics.goodput.predict import TermsQuery, measure_next, memory_limit, resolve_terms

PART = ScalingPart((), 0, "", False, 8, "", False, 0, 0)


def point(n: int, r: int, b: int) -> Point:
    return Point("r", n, r, b, 0.1, 0.12, 0.02, 5, 0, "trace")


def test_terms_that_nobody_chose_come_from_the_points() -> None:
    # GIVEN 1 x 32 and 8 on 2 nodes x 64 WHEN nothing is chosen THEN M0 is 32, totals up to 4 x 512, 4 to a node, micro-steps up to 64
    found = resolve_terms([point(1, 1, 32), point(2, 8, 64)], [], PointsFile(), TermsQuery())
    t = found.terms
    assert (t.initial, t.most, t.low, t.high, t.per_node, t.replicas, t.grads) == (32, 2048, 1, 64, 4, 32, None)
    assert found.origin["initial"].startswith("the smallest") and found.origin["grads"] == ""


def test_chosen_terms_override_recorded_ones_and_those_those_of_a_file() -> None:
    parts = [PART.__class__(**{f: getattr(PART, f) for f in PART.__struct_fields__} | {"initial": 64, "most": 1024, "sqr": 1.0, "var": 5.0})]
    given = PointsFile(initial=16, most=512, bounds=(4, 40), accumulation=False)
    t = resolve_terms([point(1, 1, 32)], parts, given, TermsQuery(initial=100)).terms
    assert (t.initial, t.most, t.low, t.high, t.accumulation) == (100, 1024, 4, 40, False) and t.grads == GradParams(1.0, 5.0)
    assert resolve_terms([point(1, 1, 32)], parts, given, TermsQuery(sqr=2.0, var=3.0)).terms.grads == GradParams(2.0, 3.0)


def test_memory_of_two_batch_sizes_bounds_the_micro_step() -> None:
    # GIVEN 2 GB + 0.5 GB per sample on a device of 16 GB THEN 28 samples fit; one batch size alone says nothing
    gb = 10**9
    assert memory_limit([(4, 4 * gb, 16 * gb), (8, 6 * gb, 16 * gb)])[0] == 28
    assert memory_limit([(4, 4 * gb, 16 * gb), (4, 5 * gb, 16 * gb)]) == (0, "")
    assert memory_limit([(4, 4 * gb, -1), (8, 6 * gb, 16 * gb)]) == (0, "")
    assert memory_limit([(4, 6 * gb, 16 * gb), (8, 6 * gb, 16 * gb)]) == (0, "")


def test_the_next_configuration_to_measure_is_suggested() -> None:
    # GIVEN one point THEN another batch, two replicas, two nodes are asked for; GIVEN a full grid THEN nothing
    assert len(measure_next([point(1, 1, 32)])) == 3 and "two replicas" in measure_next([point(1, 1, 32)])[1]
    full = [point(n, r, b) for n, r in ((1, 1), (1, 2), (1, 4), (2, 8), (4, 16)) for b in (16, 32)]
    assert measure_next(full) == []
    apart = [point(1, 1, 16), point(1, 2, 32), point(1, 4, 16), point(2, 8, 32), point(4, 16, 16)]
    assert measure_next(apart) == ["16 replicas on 4 nodes with a second batch per replica"]
    assert "one configuration" in measure_next([replace(point(1, 1, 8), used=False)])[0]
