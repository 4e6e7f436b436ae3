"""No recording can make a cost model raise, or answer with work that is no number."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_sol_plugin.cost import Cost, Inputs, estimate, explain
from tb_sol_plugin.cost.model import Formula, everything, why_not
from tests.unit.cost.calls import NAMES, call

FORMULAS: dict[Formula, str] = {model.formula: name for name, _, model in everything() if not model.plugin}
TYPES = (*NAMES.values(), "", "Scalar", "ScalarList", "TensorList", "GenericList", "c10::Novel", "Device")
FIELDS = ("flop", "flop_dense", "flop_vector", "bytes")


def sound(found: Cost | None) -> bool:
    """None, or whole numbers of at least 0; unknown where there is nothing to say."""
    if found is None:
        return True
    values = [getattr(found, name) for name in FIELDS]
    return all(v is None or (type(v) is int and v >= 0) for v in values) and (found.estimated or found.flop is None or not found.reason)


def answers(inputs: Inputs) -> None:
    """Every formula of the registry answers soundly, and every refusal has a reason in words."""
    for formula, name in FORMULAS.items():
        found = formula(inputs)
        assert sound(found), f"{name}: {found}"
        why = why_not(formula, inputs)
        assert isinstance(why, str) and len(why) < 300, name
        if found is None:
            assert why, f"{name}: no answer and no reason"


numbers = st.one_of(st.integers(-3, 9), st.integers(0, 2**70), st.just("s0"), st.none(), st.floats(), st.booleans())
anything = st.recursive(st.one_of(numbers, st.text(max_size=8)), lambda inner: st.lists(inner, max_size=5), max_leaves=20)
values = st.one_of(
    st.sampled_from(["", "0", "1", "-1", "True", "False", "[]", "[1, 1]", "[0, 0]", "[-1]", "[True, False]", "15", "inf", "nan", "1e400", "[[",
                     "__import__('os')", "ij,jk->ik", "...", "9" * 60, "[1, None, 'x']"]),
    st.integers(-4, 4).map(str), st.text(max_size=6),
)  # fmt: skip
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@quick
@given(st.lists(anything, max_size=8), st.lists(anything, max_size=8), st.lists(anything, max_size=8), st.lists(anything, max_size=8))
def test_any_json_in_the_four_texts(shapes: list[object], types: list[object], strides: list[object], concrete: list[object]) -> None:
    answers(Inputs(*(json.dumps(part) for part in (shapes, types, strides, concrete))))


@quick
@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_any_text_at_all(shapes: str, types: str, strides: str, concrete: str) -> None:
    answers(Inputs(shapes, types, strides, concrete))


@quick
@given(st.data())
def test_tensors_and_values_in_any_order(data: st.DataObject) -> None:
    # GIVEN what looks like a call: tensors of any rank, lists of them, values, in any order, with types known and unknown
    shape = st.lists(st.integers(0, 5), max_size=5)
    shapes = data.draw(st.lists(st.one_of(shape, shape, st.lists(shape, min_size=1, max_size=4)), min_size=1, max_size=16))
    types = data.draw(st.lists(st.sampled_from(TYPES), min_size=len(shapes), max_size=len(shapes)))
    concrete = data.draw(st.lists(values, min_size=len(shapes), max_size=len(shapes)))
    hint = data.draw(st.sampled_from(["", "bf16", "opaque16"]))
    result = data.draw(st.one_of(st.none(), st.lists(st.integers(0, 5), max_size=5).map(tuple)))
    answers(Inputs(json.dumps(shapes), json.dumps(types), "", json.dumps(concrete), hint=hint, result=result))


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_formulas_answer_or_decline_equal_tensors_in_every_place(rank: int) -> None:
    # GIVEN equal tensors in every place, with every single value behind them: most formulas come to an answer here
    random.seed(rank)
    for value in ("1", "0", "-1", "True", "False", "[1, 1]", "[0]", "[True, True, True]", "15", "100000"):
        answers(call(*[(4,) * rank] * 3, *[value] * 12))
        answers(call(*[(4,) * rank] * 12, value))


def test_huge_sizes_do_not_overflow() -> None:
    # GIVEN 2^40 rows: more FLOP than 64 bits hold THEN no device can have done them, and the call has no cost
    assert estimate("aten::mm", call((2**40, 2**40), (2**40, 2**40))) is None
    # AND attention over 2^24 tokens, 2^55 FLOP causal, still counts; over 2^40 it does not
    name, rest = "aten::_scaled_dot_product_flash_attention", ("0.", "True", "False")
    attention = estimate(name, call(*[(1, 1, 2**24, 64)] * 3, *rest))
    assert attention is not None and attention.flop == 2 * 128 * 2**48 // 2
    assert estimate(name, call(*[(1, 1, 2**40, 64)] * 3, *rest)) is None


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten::mm", ((2, 64), (128, 4))), ("aten::addmm", ((4,), (2, 64), (128, 4))), ("aten::bmm", ((2, 3, 4), (2, 5, 6))),
        ("aten::linear", ((2, 64), (128, 32))), ("aten::matmul", ((2, 3, 4), (5, 4, 6))), ("aten::mv", ((2, 3), (4,))),
        ("aten::dot", ((2,), (3,))), ("aten::linear_backward", ((2, 3), (2, 4), (5, 3), "[True, True, True]")),
        ("aten::_scaled_dot_product_flash_attention", ((1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4), "0.", "False")),
        ("aten::convolution", ((1, 3, 8, 8), (4, 2, 3, 3), None, "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1")),
        ("aten::convolution", ((1, 3, 2, 2), (4, 3, 3, 3), None, "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1")),
        ("aten::convolution_backward", ((1, 5, 8, 8), (1, 3, 8, 8), (4, 3, 1, 1), "[4]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1",
                                        "[True, True, False]")),
        ("aten::_grouped_mm", ((24, 8), (3, 9, 16), ((3,), "int32"))), ("aten::_int_mm", ((2, 3), (4, 5))),
    ],
)  # fmt: skip
def test_contradicting_sizes_have_no_work_and_say_so(name: str, args: tuple[object, ...]) -> None:
    assert estimate(name, call(*args)) is None
    assert "contradict" in explain(name, call(*args))
