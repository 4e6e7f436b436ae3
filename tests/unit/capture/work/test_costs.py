"""Costs of signatures, and the kinds of operations and elements."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

from tb_sol_plugin.capture.operation_registry import DataType, OpType  # noqa: E402
from tb_sol_plugin.capture.work import costs  # noqa: E402
from tb_sol_plugin.capture.work.signatures import Signature  # noqa: E402
from tests.support.ledger import Counting  # noqa: E402


def signature(op, shapes="[]", types="[]", **fields):
    out = Signature(op)
    out.shapes, out.types = shapes, types
    for key, value in fields.items():
        setattr(out, key, value)
    return out


def product():
    return signature("aten::mm", "[[4, 8], [8, 3]]", '["float", "float"]', strides="[[8, 1], [3, 1]]", concrete='["", ""]')


def test_the_cost_of_a_matrix_product():
    one = product()
    assert (one.flop, one.flop_vector, one.kind, one.dtype, one.reason) == (2 * 4 * 8 * 3, 0, "gemm", "fp32", "")
    assert one.bytes == 4 * (4 * 8 + 8 * 3 + 4 * 3)


def test_a_cost_is_computed_once_per_signature(monkeypatch):
    calls = []
    found = costs.models()
    monkeypatch.setattr(found, "estimate", lambda *a, **k: calls.append(a))
    monkeypatch.setattr(found, "explain", lambda *a: "")
    one = product()
    assert one.flop is None and one.bytes is None and one.reason
    asked = len(calls)
    assert one.known is one.known and len(calls) == asked


def test_an_unknown_cost_has_a_reason():
    assert signature("aten::nothing_like_it").reason == "no cost model"
    assert signature("aten::nothing_like_it").flop is None
    assert signature("aten::mm", odd="sparse tensor").reason == "sparse tensor: its sizes do not tell its work"
    missing = signature("aten::mm", "[[], []]", '["", ""]')
    assert missing.flop is None and missing.reason


def test_without_cost_models_work_is_unknown(monkeypatch):
    # GIVEN an installation of the capture library alone
    costs.models.cache_clear()
    costs.has_model.cache_clear()
    monkeypatch.setitem(sys.modules, "tb_sol_plugin.cost", None)
    try:
        one = product()
        assert (one.flop, one.flop_vector, one.bytes, one.reason) == (None, None, None, costs.NO_MODELS)
        counting = Counting()
        x = torch.ones(3, 3)
        counting.run(lambda: x @ x)
        (row,) = counting.records
        assert (row.flops, row.bytes, row.op_type, row.count) == (None, None, OpType.MATMUL, 1)
        assert row.input_shapes == [(3, 3), (3, 3)]
    finally:
        costs.models.cache_clear()
        costs.has_model.cache_clear()


def test_a_model_that_fails_is_a_reason(monkeypatch):
    def broken(*_, **__):
        raise ValueError

    monkeypatch.setattr(costs.models(), "estimate", broken)
    assert product().reason == "the cost model failed: ValueError"


def test_collectives_do_no_work_in_memory():
    one = Signature("c10d::allreduce_", communication=True)
    assert (one.flop, one.flop_vector, one.bytes, one.reason) == (0, 0, 0, "")


@pytest.mark.parametrize(
    ("op", "kind", "expected"),
    [
        ("aten::mm", "gemm", OpType.MATMUL), ("aten::baddbmm", "other", OpType.MATMUL), ("aten::_scaled_mm", "gemm", OpType.MATMUL),
        ("aten::linear_backward", "gemm", OpType.MATMUL), ("aten::convolution_backward", "conv", OpType.CONV),
        ("aten::cudnn_convolution", "other", OpType.CONV), ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention", OpType.ATTENTION),
        ("aten::_flash_attention_backward", "other", OpType.ATTENTION), ("aten::native_layer_norm_backward", "norm", OpType.LAYERNORM),
        ("aten::_fused_rms_norm", "other", OpType.LAYERNORM), ("aten::native_batch_norm", "norm", OpType.LAYERNORM),
        ("aten::linalg_vector_norm", "elementwise", OpType.REDUCTION), ("aten::embedding", "other", OpType.EMBEDDING),
        ("aten::embedding_dense_backward", "other", OpType.EMBEDDING), ("aten::_log_softmax_backward_data", "norm", OpType.SOFTMAX),
        ("aten::_softmax", "elementwise", OpType.SOFTMAX), ("aten::gelu_backward", "elementwise", OpType.ELEMENTWISE),
        ("aten::add_", "elementwise", OpType.ELEMENTWISE), ("aten::sum", "elementwise", OpType.REDUCTION),
        ("aten::copy_", "other", OpType.MEMORY), ("aten::cat", "other", OpType.MEMORY), ("aten::zeros_like", "other", OpType.MEMORY),
        ("aten::_fused_adamw_", "elementwise", OpType.OPTIMIZER), ("c10d::allreduce_", "other", OpType.COMMUNICATION),
        ("_c10d_functional::all_gather_into_tensor", "other", OpType.COMMUNICATION), ("mylib::thing", "other", OpType.OTHER),
        ("higher_order::flex_attention", "attention", OpType.ATTENTION), ("aten::dropout", "elementwise", OpType.ELEMENTWISE),
    ],
)  # fmt: skip
def test_kinds_of_operations(op, kind, expected):
    assert costs.op_type_of(op, kind) is expected


def test_element_types():
    assert costs.data_type_of("bf16") is DataType.BF16
    assert costs.data_type_of("fp8") is DataType.FP8_E4M3
    assert costs.data_type_of("fp8_e5m2") is DataType.FP8_E5M2
    assert costs.data_type_of("complex64") is costs.data_type_of("") is DataType.OTHER
    assert {costs.data_type_of(name.value) for name in DataType if name is not DataType.OTHER} == set(DataType) - {DataType.OTHER}
