"""Payload and traffic of collectives, against nccl-tests' factors and figures worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.cost.ops.collectives import collective, collective_kind, element_type, wire_bytes


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "all_reduce"), ("_allgather_base", "all_gather"), ("allgather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"), ("reduce_scatter_tensor_coalesced", "reduce_scatter"), ("all_to_allv", "all_to_all"),
        ("broadcast", "broadcast"), ("_broadcast_oop", "broadcast"), ("reduce", "reduce"), ("gather", "gather"), ("scatter", "scatter"),
        ("send", "send"), ("recv", "recv"), ("barrier", "barrier"), ("nccl:all_reduce", "all_reduce"), ("nccl:recv 0<-1", "recv"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter"), ("ncclKernel_AllGather_RING_LL_Sum_int8_t", "all_gather"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"), ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("c10d::allreduce_", "all_reduce"), ("_c10d_functional::all_gather_into_tensor", "all_gather"),
        ("symm_mem::multimem_all_reduce_", "all_reduce"), ("void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>(vllm::RankData*)", "all_reduce"),
        ("coalesced", None), ("wait", None), ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", None),
    ],
)  # fmt: skip
def test_kinds_by_name(name: str, kind: str | None) -> None:
    assert collective_kind(name) == kind


def test_factors_of_eight_ranks_by_hand() -> None:
    # GIVEN 8 ranks and 1024 floats, 4096 bytes; THEN nccl-tests' factors: 2 x 7/8 = 1.75 and 7/8 = 0.875
    assert wire_bytes("allreduce", 1024, 1024, "Float", 8) == 7168
    assert wire_bytes("_allgather_base", 128, 1024, "Float", 8) == 3584
    assert wire_bytes("_reduce_scatter_base", 1024, 128, "Float", 8) == 3584
    assert wire_bytes("all_to_allv", 1024, 1024, "Float", 8) == 3584
    assert wire_bytes("gather", 128, 1024, "Float", 8) == 3584
    assert [wire_bytes(n, 1024, 1024, "Float", 8) for n in ("broadcast", "reduce", "send", "recv")] == [4096] * 4


def test_a_published_all_gather() -> None:
    # 318 all_gathers of 1,711,308,800 B over 8 ranks in 1,921.317 ms are quoted as 283.24 GB/s and 247.84 GB/s on the bus
    name, size = "_allgather_base", 1_711_308_800 // 2
    one, sent = collective(name, size // 8, size, "BFloat16", 8), wire_bytes(name, size // 8, size, "BFloat16", 8)
    assert one.bytes == 1_711_308_800 and (one.flop, one.flop_vector) == (0, 0)
    assert 318 * one.bytes / 1.921317 == pytest.approx(283.24e9, rel=1e-4)
    assert sent is not None and 318 * sent / 1.921317 == pytest.approx(247.84e9, rel=1e-4)


def test_unknown_is_none_with_a_reason() -> None:
    assert collective("allreduce", -1, -1, "Float", 8).bytes is None
    assert "not recorded" in collective("allreduce", -1, -1, "Float", 8).reason
    assert "not recorded" in collective("allreduce", 4, 4, "Posit8", 8).reason
    assert "not known" in collective("coalesced", 4, 4, "Float", 8).reason
    assert wire_bytes("allreduce", 4, 4, "Float", -1) is None
    assert wire_bytes("allreduce", 4, 4, "Posit8", 8) is None


def test_one_rank_moves_nothing() -> None:
    assert collective("allreduce", 4, 4, "Float", 1).bytes == 0
    assert wire_bytes("allreduce", 4, 4, "Float", 1) == 0
    assert wire_bytes("barrier", 0, 0, "", 8) == 0


def test_types_as_two_recorders_write_them() -> None:
    assert [element_type(t) for t in ("BFloat16", "c10::BFloat16", "Long", "Byte", "Float8_e4m3fn", "fp32", "", "Undefined")] == [
        "bf16", "bf16", "int64", "uint8", "fp8_e4m3", "fp32", "", "",
    ]  # fmt: skip


@given(st.integers(2, 4096), st.integers(1, 1 << 40))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(n: int, each: int) -> None:
    # GIVEN any group; THEN the parts send as much as the whole, and never less than half of the message per direction
    whole = wire_bytes("allreduce", n * each, n * each, "Float", n)
    parts = (wire_bytes("reduce_scatter", n * each, each, "Float", n), wire_bytes("all_gather", each, n * each, "Float", n))
    assert whole == sum(p for p in parts if p is not None) == 8 * (n - 1) * each
