"""Why a call has no cost: the first thing a formula asked for and did not find."""

from __future__ import annotations

import json

import pytest

from tb_sol_plugin.cost import Inputs, explain


def recorded(shapes: object, types: object, values: list[str] | None = None) -> Inputs:
    return Inputs(json.dumps(shapes), json.dumps(types), "", json.dumps(values) if values else "")


F = "float"


@pytest.mark.parametrize(
    ("name", "call", "why"),
    [
        ("my::operator", recorded([[2]], [F]), "no cost model"),
        ("aten::mm", Inputs("", ""), "no sizes recorded"),
        ("aten::mm", recorded([], []), "no sizes recorded"),
        ("aten::mm", recorded([[], []], ["", ""]), "no sizes recorded"),
        ("aten::mm", recorded([[2, 3]], [F]), "sizes of argument 1 not recorded"),
        ("aten::mm", recorded([[2, 3], ["s0", 4]], [F, F]), "sizes of argument 1 not known: [s0, 4]"),
        ("aten::mm", recorded([[2, 3], [-1, 4]], [F, F]), "sizes of argument 1 not known: [-1, 4]"),
        ("aten::mm", recorded([[2, 3], [None, 4]], [F, F]), "sizes of argument 1 not known: [None, 4]"),
        ("aten::mm", recorded([[2, 64], [128, 4]], [F, F]), "sizes contradict: K 64 and 128"),
        ("aten::bmm", recorded([[2, 3, 4], [5, 4, 6]], [F, F]), "sizes contradict: batches of 2 and 5"),
        ("aten::mm", recorded([[2, 3], [3, 4]], ["foo", F]), "element type of argument 0 not known: 'foo'"),
        ("aten::cat", recorded([[], []], ["TensorList", "Scalar"]), "sizes of argument 0 (a tensor list) not recorded"),
        ("aten::cat", recorded([[[2], [3]], []], ["TensorList", "Scalar"]), "element type of argument 0 (a tensor list) not recorded"),
        ("aten::cudnn_convolution", recorded([[2, 3, 8, 8], [4, 3, 3, 3], [], []], [F, F, "", ""]), "stride, padding and dilation not recorded"),
        ("aten::convolution", recorded([[2, 3, 8, 8], [4, 3, 3, 3]], [F, F]), "stride, padding and dilation not recorded"),
        ("aten::einsum", recorded([[], [[2, 3], [3, 4]], []], ["", "TensorList", ""], ["", "", ""]), "equation not recorded"),
        ("aten::_scaled_dot_product_flash_attention", recorded([[1, 4, 8, 64]] + 2 * [[1, 3, 8, 64]], [F] * 3),
         "sizes contradict: 4 query heads, 3 key heads"),
        ("vllm::unified_attention_with_output", recorded([[888, 8, 64]] * 4, [F] * 4), "key lengths stand in a page table, not in the recording: at least 3.64\u202fMB of keys and values are read"),  # 2 x 888 x 8 x 64 x 4
    ],
)  # fmt: skip
def test_a_missing_size_type_or_value_is_named(name: str, call: Inputs, why: str) -> None:
    assert explain(name, call) == why


def test_a_call_with_a_cost_needs_no_reason() -> None:
    assert explain("aten::mm", recorded([[2, 3], [3, 4]], [F, F])) == ""
    assert explain("aten::add", recorded([[2, 3], [2, 3], []], [F, F, "Scalar"], ["", "", "1"])) == ""


def test_hostile_text_is_cut() -> None:
    why = explain("aten::mm", recorded([[2, 3], ["x" * 5000]], [F, F]))
    assert len(why) < 90 and why.endswith("…")
    assert len(explain("aten::mm", recorded([[2, 3], [3, 4]], ["y" * 5000, F]))) < 90
