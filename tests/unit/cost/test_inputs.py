"""Recorded arguments are data: parsed, never evaluated, never guessed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, compute_dtype, literal, readable_shapes, size_of, total, wider


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("None", None), ("True", True), ("False", False), ("7", 7), ("-1", -1), ("0.", 0.0), ("1.0000000000000001e-05", 1e-5),
        ("[False]", (False,)), ("[True, False, True]", (True, False, True)), ("[-1]", (-1,)), ("[14, 14]", (14, 14)), ("[]", ()),
        ("[[1, 2], [3]]", ((1, 2), (3,))), ("mean", "mean"), ("inf", math.inf),
    ],
)  # fmt: skip
def test_literals(text: str, value: object) -> None:
    assert literal(text) == value
    assert type(literal(text)) is type(value)


def test_hostile_text_stays_text() -> None:
    # GIVEN values that a careless parser would run (E-107); THEN they are texts
    for text in ("__import__('os').system('id')", "[x for x in ().__class__.__mro__]", "9**9**9", "1;2", "lambda: 0"):
        found = literal(text)
        assert found == text or all(isinstance(part, str) for part in found)  # type: ignore[union-attr]
    assert literal("[" * 3000 + "]" * 3000) is not None


def test_false_is_false() -> None:
    call = Inputs("[[4],[]]", '["float","Scalar"]', "", '["","False"]')
    assert call.flag(1) is False
    assert Inputs("[[4],[]]", '["float","Scalar"]').flag(1) is None
    assert Inputs("[[]]", '["ScalarList"]', "", '["[False, True]"]').flags(0) == (False, True)


def test_a_value_may_be_an_int_or_a_list() -> None:
    call = Inputs("[[],[]]", '["Scalar","ScalarList"]', "", '["-1","[0, 2]"]')
    assert call.ints(0) == (-1,)
    assert call.ints(1) == (0, 2)
    assert call.ints(5) is None


def test_tensors_scalars_and_lists_are_told_apart() -> None:
    call = Inputs("[[2,3],[],[],[[4],[5,6]],[]]", '["float","Scalar","double","TensorList",""]')
    assert call.tensor(0) == Tensor((2, 3), "fp32")
    assert call.tensor(1) is None
    assert call.tensor(2) == Tensor((), "fp64")
    assert [t.shape for t in call.tensors(3)] == [(4,), (5, 6)]
    assert call.tensor(4) is None
    assert call.tensor(99) is None
    assert len(call.flat) == 4


def test_old_recorders_write_other_names_and_leave_out_values() -> None:
    call = Inputs("[[32,3,8,8],[],[]]", '["unsigned char","GenericList","Int"]')
    assert call.tensor(0) == Tensor((32, 3, 8, 8), "uint8")
    assert call.tensor(1) is None
    assert not call.has_values


@pytest.mark.parametrize("text", ["", "null", "not json", "{}", "[1]", '["x"]', "[[null]]", "[[-1]]", '[["a"]]', "[" * 5000])
def test_bad_lists_give_no_tensor(text: str) -> None:
    assert Inputs(text, '["float"]').tensor(0) is None


def test_unknown_types_have_no_size() -> None:
    # GIVEN a type name that is not known; THEN its bytes are unknown, never a guess of 2
    assert Inputs("[[4]]", '["c10::Novel"]').tensor(0) == Tensor((4,), "")
    assert Tensor((4,), "").bytes is None
    assert total(4, None) is None
    assert total(4, 5) == 9


def test_sizes_by_type() -> None:
    # uint8 is one byte and no fp8 (E-106); FP4 holds two numbers in a stored byte
    assert [size_of(10, d) for d in ("bf16", "fp32", "int64", "bool", "fp8_e4m3", "uint8", "fp4x2", "complex128")] == [
        20,
        40,
        80,
        10,
        10,
        10,
        10,
        160,
    ]


def test_expanded_dimensions_count_once() -> None:
    # 4 x 5 elements seen as 3 x 4 x 5 through stride 0
    assert Tensor((3, 4, 5), "fp32", (0, 5, 1)).bytes == 80
    assert Tensor((3, 4, 5), "fp32", (20, 5, 1)).bytes == 240
    assert Tensor((3, 4, 5), "fp32").bytes == 240


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.permutations(range(4)))
def test_bytes_do_not_depend_on_the_order_of_strides(shape: list[int], order: list[int]) -> None:
    dims = [d for d in order if d < len(shape)]
    strides, step = [0] * len(shape), 1
    for d in dims:
        strides[d] = step
        step *= shape[d]
    assert Tensor(tuple(shape), "fp32", tuple(strides)).bytes == 4 * math.prod(shape)


def test_mixed_operands_compute_in_the_wider_type() -> None:
    assert wider("fp16", "fp32") == "fp32"
    assert wider("bf16", "fp16") == "fp32"
    assert wider("int64", "fp16") == "fp16"
    assert wider("fp32", "") == ""
    assert compute_dtype(Tensor((1,), "fp8_e4m3"), Tensor((1,), "fp8_e5m2")) == "fp8"
    assert compute_dtype(Tensor((1,), "uint8"), Tensor((1,), "uint8")) == "uint8"
    assert compute_dtype(Tensor((1,), "fp8_e4m3"), Tensor((1,), "bf16")) == "bf16"


def test_broadcast() -> None:
    assert broadcast((8, 1, 6), (7, 1)) == (8, 7, 6)
    assert broadcast((), (3,)) == (3,)
    assert broadcast((2,), (3,)) is None


def test_shapes_as_a_person_reads_them() -> None:
    assert readable_shapes("[[16,5185,64],[16,64,5185],[]]") == "16×5185×64 16×64×5185"
    assert readable_shapes("[[[4],[5,6],[],[1],[2]],[3]]") == "[4, 5×6, 1, 1 … 5] 3"
    assert readable_shapes("[]") == ""
    assert readable_shapes("broken") == ""
