"""Who owns device work, what it costs, and how far from its limit it ran."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.devices.catalog import table
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.costs import element_of
from tb_sol_plugin.metrics.work.work import Work, group, work
from tb_sol_plugin.model.capture import Capture
from tests.support.trace_builder import TraceBuilder

H100 = table()["H100_SXM"]
BF16, FP32 = "c10::BFloat16", "float"


def tensors(*shapes: list[int], dtype: str = BF16, scalars: int = 0) -> dict[str, list[object]]:
    """Arguments of an operator: tensors, then scalars."""
    return {"shapes": [*shapes, *([[]] * scalars)], "types": [*([dtype] * len(shapes)), *(["Scalar"] * scalars)]}


def opened(trace: TraceBuilder, folder: Path) -> Capture:
    return read(str(trace.write(folder / "t.pt.trace.json")))


def calls(done: Work) -> dict[str, list[float]]:
    """Per operator name (calls, matrix FLOP, measured ns)."""
    sums = group(done.ops, "name")
    return {str(n): [int(c), f, int(m)] for n, c, f, m in zip(sums["name"], sums["calls"], sums["flop"], sums["measured_ns"], strict=True)}


MM = 2 * 64 * 32 * 16


def test_nested_products_count_once(tmp_path: Path) -> None:
    # GIVEN a serving wrapper around aten::mm around a vendor call that launches (E-94)
    t = TraceBuilder()
    t.op("vllm::rocm_unquantized_gemm", 0, 1000, **tensors([64, 32], [16, 32]))
    t.op("aten::mm", 100, 800, **tensors([64, 32], [32, 16]))
    t.op("aiter::gemm_a16w16", 200, 600, **tensors([64, 32], [16, 32]))
    t.launch("gemm", at=300, start=2000, duration=500)
    done = work(opened(t, tmp_path), H100)
    # THEN one call owns it, once
    assert calls(done) == {"aten::mm": [1, MM, 500]}
    assert done.modelled_share == 1.0


def test_a_wrapper_owns_where_nothing_below_explains_it(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::linear", 0, 1000, **tensors([64, 32], [16, 32]))
    t.op("some::unknown_kernel", 100, 800, **tensors([64, 32]))
    t.launch("gemm", at=200, start=2000, duration=500)
    done = work(opened(t, tmp_path), H100)
    assert calls(done) == {"aten::linear": [1, MM, 500]}


def test_a_wrapper_gives_way_to_its_leaves(tmp_path: Path) -> None:
    # GIVEN a linear layer that copies for 900 ns and multiplies for 100
    t = TraceBuilder()
    t.op("aten::linear", 0, 1000, **tensors([64, 32], [16, 32]))
    t.op("my::pack", 10, 100, **tensors([64, 32]))
    t.launch("pack", at=20, start=1500, duration=900, call_duration=10)
    t.op("aten::mm", 200, 500, **tensors([64, 32], [32, 16]))
    t.launch("gemm", at=300, start=3000, duration=100)
    done = work(opened(t, tmp_path), H100)
    # THEN the product owns its FLOP although the copy took longer
    assert calls(done) == {"my::pack": [1, pytest.approx(np.nan, nan_ok=True), 900], "aten::mm": [1, MM, 100]}
    assert done.modelled_ns == 100 and done.unmodelled_ns == 900


def test_attention_by_parts_is_owned_by_its_parts(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::scaled_dot_product_attention", 0, 2000, **tensors([1, 2, 8, 4], [1, 2, 8, 4], [1, 2, 8, 4], scalars=3))
    t.op("aten::_scaled_dot_product_attention_math", 10, 1900, **tensors([1, 2, 8, 4], [1, 2, 8, 4], [1, 2, 8, 4], scalars=3))
    for at, (name, shapes) in enumerate(
        (("aten::bmm", ([2, 8, 4], [2, 4, 8])), ("aten::_softmax", ([2, 8, 8],)), ("aten::bmm", ([2, 8, 8], [2, 8, 4])))
    ):
        t.op(name, 100 + 500 * at, 400, **tensors(*shapes))
        t.launch(name, at=150 + 500 * at, start=3000 + 500 * at, duration=100)
    assert calls(work(opened(t, tmp_path), H100)) == {"aten::bmm": [2, 2 * 2 * 2 * 8 * 8 * 4, 200], "aten::_softmax": [1, 0, 100]}


def test_time_of_a_call_is_a_union_per_device(tmp_path: Path) -> None:
    # GIVEN one call whose kernels overlap on two streams, [2000, 2500) and [2300, 2600), and one more [3000, 3100)
    t = TraceBuilder()
    t.op("aten::mm", 0, 1000, **tensors([64, 32], [32, 16]))
    t.launch("a", at=100, start=2000, duration=500, stream=7)
    t.launch("b", at=300, start=2300, duration=300, stream=8)
    t.launch("c", at=500, start=3000, duration=100, stream=7)
    row = work(opened(t, tmp_path), H100).ops.iloc[0]
    assert (row["measured_ns"], row["device_sum_ns"], row["device_events"]) == (700, 900, 3)


def test_device_work_without_operator_or_model_is_kept(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("my::op", 0, 500)
    t.launch("mine", at=100, start=1000, duration=70)
    t.launch("alone", at=600, start=2000, duration=30)
    t.kernel("before", 10, 5)
    done = work(opened(t, tmp_path), H100)
    assert sorted(done.owner.tolist()) == [-1, -1, 0]
    assert (done.device_ns, done.unowned_ns, done.modelled_ns, done.unmodelled_ns) == (105, 35, 0, 105)
    assert done.modelled_share == 0.0


def test_copies_over_the_link_have_no_memory_limit(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::copy_", 0, 400, **tensors([1024], [1024], dtype=FP32))
    t.copy("HtoD", 1000, 200, src="Pinned", bytes=4096, call=(100, 50))
    t.op("aten::copy_", 500, 400, **tensors([1024], [1024], dtype=FP32))
    t.copy("DtoD", 2000, 100, bytes=4096, call=(600, 50))
    ops = work(opened(t, tmp_path), H100).ops
    assert ops["link"].tolist() == [True, False]
    assert ops["modeled"].tolist() == [False, True]
    assert np.isnan(ops["sol_ns"].iloc[0]) and np.isnan(ops["bytes"].iloc[0])
    assert ops["sol_ns"].iloc[1] == pytest.approx(8192 / 3350e9 * 1e9)


def test_the_limit_of_a_large_product_by_hand(tmp_path: Path) -> None:
    # GIVEN 4096^3 in BF16 in 200 us: 2 x 4096^3 / 989.4 TFLOP/s = 138.9 us against 3 x 2 x 4096^2 / 3.35 TB/s = 30.0 us
    t = TraceBuilder()
    t.op("aten::mm", 0, 1000, **tensors([4096, 4096], [4096, 4096]))
    t.launch("gemm", at=100, start=2000, duration=200_000)
    row = work(opened(t, tmp_path), H100).ops.iloc[0]
    assert row["sol_ns"] == pytest.approx(2 * 4096**3 / 989.4e12 * 1e9)
    assert row["bound"] == "compute"
    assert row["sol_ns"] / row["measured_ns"] == pytest.approx(0.694554, rel=1e-5)


def test_fp32_products_take_the_type_their_kernel_names(tmp_path: Path) -> None:
    t = TraceBuilder()
    for at, kernel in enumerate(("sm80_xmma_gemm_f32f32_tf32f32_f32", "ampere_sgemm_128x64_nn", "cutlass_80_tensorop_s1688gemm_128x64")):
        t.op("aten::mm", 1000 * at, 900, **tensors([4096, 4096], [4096, 4096], dtype=FP32))
        t.launch(kernel, at=1000 * at + 100, start=10_000 + 10_000_000 * at, duration=9_000_000)
    ops = work(opened(t, tmp_path), H100).ops
    assert ops["dtype"].tolist() == ["tf32", "fp32", "tf32"]
    assert ops["sol_ns"].tolist() == pytest.approx([2 * 4096**3 / p * 1e9 for p in (494.7e12, 66.9e12, 494.7e12)])


def test_without_limits_work_is_known_and_limits_are_not(tmp_path: Path) -> None:
    t = TraceBuilder(device="Some Accelerator")
    t.op("aten::mm", 0, 1000, **tensors([64, 32], [32, 16]))
    t.launch("gemm", at=100, start=2000, duration=500)
    capture = opened(t, tmp_path)
    ops = work(capture, None).ops
    assert ops["flop"].tolist() == [MM] and np.isnan(ops["sol_ns"]).all() and ops["bound"].tolist() == ["none"]
    assert np.isnan(group(ops, "name")["efficiency"]).all()


def test_unknown_bandwidth_leaves_the_compute_limit_and_marks_it(tmp_path: Path) -> None:
    import msgspec

    t = TraceBuilder()
    t.op("aten::mm", 0, 400, **tensors([64, 32], [32, 16]))
    t.launch("gemm", at=100, start=2000, duration=500)
    t.op("aten::add", 500, 400, **tensors([64, 32], [64, 32]))
    t.launch("add", at=600, start=3000, duration=500)
    ops = work(opened(t, tmp_path), msgspec.structs.replace(H100, key="x", memory_bandwidth=None)).ops
    assert ops["sol_ns"].iloc[0] == pytest.approx(MM / 989.4e12 * 1e9)
    assert np.isnan(ops["sol_ns"].iloc[1])
    assert ops["estimated"].all()


def test_calls_of_the_backward_pass_have_the_direction_bwd(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::mm", 0, 400, **tensors([64, 32], [32, 16]))
    t.launch("gemm", at=100, start=2000, duration=500)
    t.op("autograd::engine::evaluate_function: MmBackward0", 500, 900, sequence=3, forward_thread=0)
    t.op("MmBackward0", 510, 880, sequence=3, forward_thread=t.thread)
    t.op("aten::mm", 600, 400, **tensors([64, 16], [16, 32]))
    t.launch("gemm", at=700, start=3000, duration=500)
    assert work(opened(t, tmp_path), H100).ops["direction"].tolist() == ["fwd", "bwd"]


def test_groups_sum_before_they_divide(tmp_path: Path) -> None:
    # GIVEN the same product in 1000 ns and in 3000 ns; THEN efficiency is 2 limits over 4000 ns, not the mean of two ratios
    t = TraceBuilder()
    for at, duration in enumerate((1000, 3000)):
        t.op("aten::mm", 1000 * at, 900, **tensors([512, 512], [512, 512]))
        t.launch("gemm", at=1000 * at + 100, start=10_000 + 10_000 * at, duration=duration)
    done = work(opened(t, tmp_path), H100)
    row = group(done.ops, ["name", "shapes"]).iloc[0]
    one = max(2 * 512**3 / 989.4e12, 3 * 2 * 512 * 512 / 3350e9) * 1e9
    assert row["efficiency"] == pytest.approx(2 * one / 4000)
    assert row["wasted_ns"] == pytest.approx(4000 - 2 * one)
    assert (row["calls"], row["bound"], row["modelled_share"]) == (2, "memory", 1.0)
    halves = group(done.ops, np.array([5, 9]))
    assert halves["group"].tolist() == [5, 9] and halves["measured_ns"].tolist() == [1000, 3000]


def test_dense_equivalent_counts_what_a_mask_hides(tmp_path: Path) -> None:
    t = TraceBuilder()
    args = tensors([1, 2, 64, 32], [1, 2, 64, 32], [1, 2, 64, 32], scalars=3)
    t.op("aten::_scaled_dot_product_flash_attention", 0, 400, **args, concrete=["", "", "", "0.", "True", "False"])
    t.launch("flash", at=100, start=1000, duration=300)
    capture = opened(t, tmp_path)
    assert work(capture, H100).ops["flop"].tolist() == [4 * 2 * 64 * 64 * 32 / 2]
    assert work(capture, H100, dense=True).ops["flop"].tolist() == [4 * 2 * 64 * 64 * 32]


def test_a_cpu_recording_is_measured_by_host_time(tmp_path: Path) -> None:
    # GIVEN a linear layer of 1000 ns around a product of 700 ns, and an operator of its own with 300 ns
    t = TraceBuilder(device="")
    t.op("aten::linear", 0, 1000, **tensors([64, 32], [16, 32], dtype=FP32))
    t.op("aten::addmm", 200, 700, **tensors([16], [64, 32], [32, 16], dtype=FP32, scalars=2))
    t.op("my::op", 2000, 300)
    capture = opened(t, tmp_path)
    done = work(capture, device_for(capture))
    # THEN the product owns its time, what is left of the layer its own, and nothing has a limit
    assert done.by_host_time and len(done.owner) == 0
    assert calls(done) == {
        "aten::linear": [1, pytest.approx(np.nan, nan_ok=True), 300],
        "aten::addmm": [1, MM, 700],
        "my::op": [1, pytest.approx(np.nan, nan_ok=True), 300],
    }
    assert np.isnan(done.ops["sol_ns"]).all()
    assert (done.device_ns, done.modelled_ns) == (1300, 700)


def test_operators_over_lists_take_their_type_from_the_kernels_name(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::cat", 0, 400, shapes=[[[4, 8], [2, 8]], []], types=["TensorList", "Scalar"])
    t.launch("CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 2, 64, 64>", at=100, start=1000, duration=300)
    row = work(opened(t, tmp_path), H100).ops.iloc[0]
    assert (row["bytes"], row["estimated"], row["dtype"]) == (2 * 2 * 48, True, "")


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("CatArrayBatchedCopy<OpaqueType<4u>, 3>", "opaque32"),
        ("multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>", "fp32"),
        ("multi_tensor_apply_kernel<UnaryOpFunctor<c10::BFloat16, 1>, float>", "bf16"),
        ("FunctorOf<c10::Half, c10::BFloat16>", ""),
        ("ampere_sgemm", ""),
    ],
)
def test_element_type_of_a_kernel_name(kernel: str, dtype: str) -> None:
    assert element_of(kernel) == dtype


def test_an_old_convolution_takes_its_result_from_its_backward(tmp_path: Path) -> None:
    # GIVEN a recording without concrete values; the gradient of the result is 2x8x4x4
    t = TraceBuilder()
    t.op("aten::cudnn_convolution", 0, 400, **tensors([2, 3, 8, 8], [8, 3, 3, 3], dtype=FP32, scalars=7))
    t.launch("conv", at=100, start=1000, duration=300)
    t.op("aten::cudnn_convolution_backward", 500, 400, **tensors([2, 3, 8, 8], [2, 8, 4, 4], [8, 3, 3, 3], dtype=FP32, scalars=8))
    t.launch("dgrad", at=600, start=2000, duration=300)
    ops = work(opened(t, tmp_path), H100).ops
    one = 2 * 2 * 8 * 16 * 27
    assert ops["flop"].tolist() == [one, 2 * one]
    assert ops["estimated"].tolist() == [True, True]


def test_a_recording_without_events_has_no_work(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.annotation("nothing", 0, 100)
    done = work(opened(t, tmp_path), H100)
    assert len(done.ops) == 0 and done.modelled_share is None
    assert len(group(done.ops, ["name", "shapes"])) == 0
