"""Compiled kernels, mixtures of experts and sparse features: work read off buffers, names and recorded fields, by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tb_sol_plugin.cost import Cost, Inputs, estimate, explain, model_for
from tb_sol_plugin.cost.inputs import Launch
from tb_sol_plugin.cost.ops.experts import experts_touched
from tb_sol_plugin.cost.ops.triton import operations
from tests.unit.cost.calls import call, cost


def kernel(name: str, *args: object, dtype: str = "bf16", **extra: object) -> Cost | None:
    recorded = call(*args, dtype=dtype)
    texts = (json.dumps(recorded.shapes), json.dumps(recorded.types), "", recorded._concrete)
    return estimate(name, Inputs(*texts, extra=json.dumps(extra)))


def known(found: Cost | None) -> Cost:
    assert found is not None
    return found


# -- compiled kernels --------------------------------------------------------------------------------------------


def test_names_of_kernels_list_operators() -> None:
    assert operations("triton_red_fused_add_mean_mul_pow_rsqrt_0") == ("add", "mean", "mul", "pow", "rsqrt")
    assert operations("triton_poi_fused_add_bitwise_and_bitwise_not_ge_12") == ("add", "bitwise_and", "bitwise_not", "ge")
    assert operations("triton_per_fused_native_layer_norm_3") == ("native_layer_norm",)
    assert operations("my_kernel") == ()


def test_a_fused_norm_counts_each_buffer_once() -> None:
    # GIVEN x[8, 4096, 2048], a weight of 2048, a result like x, loops of 32768 x 2048; THEN five operations per point
    x = (8, 4096, 2048)
    found = known(kernel("triton_red_fused_add_mean_mul_pow_rsqrt_0", x, (2048,), x, "32768", "2048"))
    points = 32_768 * 2048
    assert (found.flop_vector, found.bytes) == (5 * points, 2 * (2 * points + 2048))
    assert found.estimated and found.kind == "elementwise"


def test_a_table_that_a_kernel_picks_from_is_not_read_as_a_whole() -> None:
    # 16 tokens of 64 columns out of a table of 50,000 rows: 1024 points
    args = (((16,), "int64"), (50_000, 64), (16, 64))
    found = known(kernel("triton_poi_fused_embedding_0", *args, "1024"))
    assert (found.flop_vector, found.bytes) == (0, 8 * 16 + 2 * 1024 + 2 * 1024)
    # without the size of the loops nobody knows how much of it
    assert kernel("triton_poi_fused_embedding_0", *args) is None
    assert "picks" in explain("triton_poi_fused_embedding_0", call(*args, dtype="bf16"))


def test_without_sizes_of_its_loops_a_kernel_covers_what_its_blocks_do() -> None:
    # GIVEN a recorded kernel without operators in its name: 8 rows of 64 out of a table of 50,000, 4 blocks of 128 points
    recorded = call(((8,), "int64"), (50_000, 64), (8, 64), dtype="bf16")
    texts, name = (json.dumps(recorded.shapes), json.dumps(recorded.types), "", ""), "triton_poi_fused_0"

    def moved(launched: tuple[Launch, ...], sizes: str = "XBLOCK=128,num_warps=4") -> int | None:
        return known(estimate(name, Inputs(*texts, extra=json.dumps({"kernel_kwargs": sizes}), launched=launched))).bytes

    # THEN no more than 512 elements of the table are read
    assert moved((Launch(name, (4, 1, 1)),)) == 8 * 8 + 2 * 512 + 2 * 512
    assert moved((Launch(name, (2, 2, 1)),), "YBLOCK=16,XBLOCK=8") == 8 * 8 + 2 * 512 + 2 * 512
    # AND where blocks or their sizes are not known it counts as a whole
    for launched, sizes in (((), "XBLOCK=128"), ((Launch(name),), "XBLOCK=128"), ((Launch(name, (4, 1, 1)),), "num_warps=4")):
        assert moved(launched, sizes) == 8 * 8 + 2 * 50_000 * 64 + 2 * 512


def test_numbers_before_the_loop_sizes_are_not_loop_sizes() -> None:
    # dynamic sizes and a start come first; only the last number is the loop, as large as the buffers
    found = known(kernel("triton_poi_fused_add_0", (888,), (888,), "0", "25136", "201088", "888"))
    assert (found.flop_vector, found.bytes) == (888, 4 * 888)


def test_figures_that_the_compiler_recorded_come_first() -> None:
    found = known(kernel("triton_poi_fused_add_0", (888,), (888,), "888", kernel_num_gb=1e-5))
    assert found.bytes == 10_000 and "recorded" in found.reason
    # nonsense there is not taken
    assert known(kernel("triton_poi_fused_add_0", (888,), (888,), "888", kernel_num_gb="many")).bytes == 4 * 888
    assert known(kernel("triton_poi_fused_add_0", (888,), (888,), "888", kernel_num_gb=0)).bytes == 4 * 888


def traffic(name: str, *args: object, dtype: str = "fp32") -> tuple[int | None, bool]:
    """Bytes, and whether the reason says that a buffer is changed in place."""
    found = known(kernel(name, *args, dtype=dtype))
    return found.bytes, "in place" in found.reason


@pytest.mark.exhaustive
def test_the_compiler_gives_buffers_changed_in_place_first_then_inputs_then_results_then_sizes() -> None:
    # GIVEN the compiler's own list of a kernel's arguments, in which inputs, a result, a change in place and a size are met in turn
    torch = pytest.importorskip("torch", reason="asks the compiler of PyTorch")
    common = pytest.importorskip("torch._inductor.codegen.common")
    virtual = pytest.importorskip("torch._inductor.virtualized").V
    symbols = pytest.importorskip("sympy")
    removed: set[str] = set()
    of_kernel = SimpleNamespace(removed_buffers=removed, inplaced_to_remove=removed)
    graph = SimpleNamespace(
        get_dtype=lambda name: torch.float32, wrapper_code=None, scheduler=None, unaligned_buffers=removed, removed_buffers=removed,
        inplaced_to_remove=removed,
    )  # fmt: skip
    made = common.KernelArgs()
    with virtual.set_graph_handler(graph), virtual.set_kernel_handler(of_kernel):
        made.input("bias")
        made.output("out")
        made.input("x")
        made.make_inplace("x", "sum")
        made.input("late")
        made.size(symbols.Symbol("s0"))
        names = [a.name for a in made.python_argdefs()[0]]
    # THEN they stand in the order that `_in_place` reads them by
    assert names == ["in_out_ptr0", "in_ptr0", "in_ptr2", "out_ptr0", "ks0"]


def test_a_buffer_that_a_kernel_changes_in_place_is_read_and_written() -> None:
    # GIVEN triton_poi_fused_relu_0(in_out_ptr0, xnumel): its only buffer is read and written THEN 2 x 4 bytes per element
    assert traffic("triton_poi_fused_relu_0", (8, 64), "512") == (2 * 4 * 512, True)
    assert traffic("triton_per_fused__softmax_1", (8, 64), "8", "64") == (2 * 4 * 512, True)
    # GIVEN a bias behind the result of a convolution: (in_out_ptr0, in_ptr0): a result would be as large as the loops, the bias is not
    image, n = (2, 16, 4, 4), 2 * 16 * 16
    assert traffic("triton_poi_fused_convolution_relu_2", image, (16,), "512") == (4 * (2 * n + 16), True)
    # GIVEN the gradient of relu: it needs the incoming gradient and the saved result, and has no third buffer
    assert traffic("triton_poi_fused_threshold_backward_3", image, image, "512") == (4 * 3 * n, True)
    # GIVEN a gate in place and the raw matrix of a product (sizes of a recorded call): reads 2, writes 1
    gate = ((8, 4096, 8192), (32_768, 8192), "268435456")
    assert traffic("triton_poi_fused__unsafe_view_mul_silu_2", *gate, dtype="bf16") == (2 * 3 * 268_435_456, True)
    # AND a residual of two states and a product (sizes of a recorded call): reads 3, writes 1
    state = ((8, 4096, 2048), (8, 4096, 2048), (32_768, 2048), "67108864")
    assert traffic("triton_poi_fused__unsafe_view_add_3", *state, dtype="bf16") == (2 * 4 * 67_108_864, True)


def test_a_kernel_whose_buffers_may_be_results_counts_each_once() -> None:
    image, n = (2, 16, 4, 4), 2 * 16 * 16
    # GIVEN numbers out of nothing, or a name without operators: the only buffer may be just written
    for name in ("triton_poi_fused_zeros_like_0", "triton_poi_fused_full_0", "triton_poi_fused_arange_mul_0", "triton_poi_fused_0"):
        assert traffic(name, image, "512") == (4 * n, False), name
    # GIVEN an input and a result, with a bias in front or between
    assert traffic("triton_poi_fused_relu_0", image, image, "512") == (4 * 2 * n, False)
    assert traffic("triton_poi_fused_convolution_relu_0", image, (16,), image, "512") == (4 * (2 * n + 16), False)
    assert traffic("triton_poi_fused_mul_0", (16,), image, "512") == (4 * (n + 16), False)
    # GIVEN what may be an input and a result, or two inputs of which one is overwritten: the record does not tell
    assert traffic("triton_poi_fused_add_0", image, image, "512") == (4 * 2 * n, False)
    # GIVEN the result of a product in front of a new result; a copy into a matrix
    raw = ((32_768, 2048), (8, 4096, 2048), "67108864")
    assert traffic("triton_poi_fused__unsafe_view_silu_0", *raw) == (4 * 2 * 67_108_864, False)
    assert traffic("triton_poi_fused__unsafe_view_clone_mul_0", raw[1], raw[0], raw[2]) == (4 * 2 * 67_108_864, False)
    # GIVEN a kernel that adds rows into a smaller table, and one whose loops were not recorded
    assert traffic("triton_poi_fused_index_put_0", image, (16,), "512") == (4 * (n + 16), False)
    assert traffic("triton_poi_fused_convolution_relu_0", image, (16,)) == (4 * (n + 16), False)
    # AND a reduction keeps fewer numbers than it reads
    assert traffic("triton_red_fused_sum_0", (8, 64), (8,), "8", "64") == (4 * (512 + 8), False)


def test_templates_are_products_where_one_assignment_fits() -> None:
    found = known(kernel("triton_tem_fused_addmm_relu_2", (512,), (141, 512), (512, 2048), (141, 2048), "9", "1", "1"))
    assert found.flop == 2 * 141 * 512 * 2048 and found.kind == "gemm" and found.dtype == "bf16"
    assert found.bytes == 2 * (512 + 141 * 512 + 512 * 2048 + 141 * 2048)
    batched = known(kernel("triton_tem_fused_bmm_0", (16, 64, 32), (16, 32, 48), (16, 64, 48)))
    assert batched.flop == 2 * 16 * 64 * 32 * 48
    # square operands fit both ways round with the same work; different widths do not
    assert known(kernel("triton_tem_fused_mm_0", (8, 8), (8, 8), (8, 8))).flop == 1024
    assert kernel("triton_tem_fused_mm_plus_mm_0", (8, 4), (4, 8), (8, 6), (6, 8), (8, 8)) is None
    image = (1, 8, 4, 4)
    assert kernel("triton_tem_fused_convolution_0", image, (8, 8, 1, 1), image) is None
    told = known(kernel("triton_tem_fused_convolution_0", image, (8, 8, 1, 1), image, kernel_flop=4096.0))
    assert (told.flop, told.estimated) == (4096, True)


def test_compiled_graphs_and_unknown_kernels_have_no_work() -> None:
    assert model_for("triton_unknown") is None and model_for("my_triton_kernel") is None
    assert estimate("CompiledFunction", call((4, 8))) is None
    assert "compiled graph" in explain("CompiledFunction", call((4, 8)))


# -- experts -----------------------------------------------------------------------------------------------------


def test_different_experts_by_counting_all_choices() -> None:
    # GIVEN 3 tokens that each choose 1 of 4 experts in all 64 ways; THEN the mean number of different ones
    from itertools import product

    ways = list(product(range(4), repeat=3))
    assert experts_touched(4, 3, 1) == pytest.approx(sum(len(set(w)) for w in ways) / len(ways))
    assert experts_touched(8, 1, 2) == pytest.approx(2)
    assert experts_touched(32, 10_000, 4) == pytest.approx(32)
    assert experts_touched(0, 4, 1) == 0


def test_fused_experts_by_tokens_choices_and_widths() -> None:
    # 32 tokens of 3072, 4 of 32 experts each, gated to 2 x 1536: 2 x 32 x 4 x 3072 x (3072 + 1536) FLOP
    args = ((32, 3072), (32, 3072, 3072), (32, 3072, 1536), ((32, 4), "fp32"), ((32, 4), "int32"))
    found = cost("vllm::outplace_fused_experts", *args, dtype="bf16")
    assert found.flop == 2 * 32 * 4 * 3072 * (3072 + 1536)
    weights = experts_touched(32, 32, 4) * 2 * 3072 * (3072 + 1536)
    rest = 2 * 2 * 32 * 3072 + 2 * 4 * 128
    assert found.bytes == pytest.approx(weights + rest, abs=1)
    assert found.estimated and "uniform" in found.reason and found.kind == "gemm"
    for name in ("aiter::fused_moe_", "sglang::inplace_fused_experts", "vllm::rocm_aiter_fused_moe"):
        assert cost(name, *args, dtype="bf16").flop == found.flop
    # sizes that contradict each other say nothing
    assert estimate("vllm::outplace_fused_experts", call((32, 3072), (32, 3072, 99), (32, 3072, 1536), (32, 4), ((32, 4), "int32"))) is None


def test_experts_of_one_rank_get_their_part_of_the_choices() -> None:
    # 8 of 32 experts stand here: a quarter of the choices and a quarter of the experts in use
    here = ((32, 3072), (8, 3072, 3072), (8, 3072, 1536), ((32, 4), "fp32"), ((32, 4), "int32"))
    part = cost("aiter::fused_moe_", *here, ((32,), "int32"), "0", dtype="bf16")
    assert part.flop == 2 * 32 * 3072 * (3072 + 1536)
    weights = experts_touched(32, 32, 4) / 4 * 2 * 3072 * (3072 + 1536)
    assert part.bytes == pytest.approx(weights + 2 * 2 * 32 * 3072 + 2 * 4 * 128, abs=1)
    eight = ((32, 3072), ((8, 3072, 3072), "fp8"), ((8, 3072, 1536), "fp8"), ((32, 4), "fp32"), ((32, 4), "int32"))
    assert cost("aiter::fused_moe_", *eight, dtype="bf16").dtype == "fp8"


def test_packed_experts_count_logical_sizes() -> None:
    # two FP4 numbers per byte along the inner size
    args = ((32, 3072), ((32, 3072, 1536), "uint8"), ((32, 3072, 768), "uint8"), ((32, 4), "fp32"), ((32, 4), "int32"))
    found = cost("vllm::outplace_fused_experts", *args, dtype="bf16")
    assert found.flop == 2 * 32 * 4 * 3072 * (3072 + 1536) and found.dtype == "bf16"


def test_a_layer_that_is_only_named_has_no_work() -> None:
    recorded = call((888, 3072), (888, 128), None, dtype="bf16")
    assert estimate("vllm::moe_forward", recorded) is None
    assert "experts not recorded" in explain("vllm::moe_forward", recorded)


def test_routing_and_combining() -> None:
    routed = cost("_moe_C::topk_softmax", (8, 4), ((8, 4), "int32"), ((8, 4), "int32"), (8, 32))
    assert (routed.flop_vector, routed.bytes) == (5 * 256, 4 * (96 + 256))
    summed = cost("_moe_C::moe_sum", (8, 4, 16), (8, 16), dtype="bf16")
    assert (summed.flop_vector, summed.bytes) == (512, 2 * (512 + 128))
    aligned = cost("sgl_kernel::moe_align_block_size", ((8, 4), "int32"), "32", "16", ((544,), "int32"), ((34,), "int32"), ((1,), "int32"))
    assert aligned.bytes == 4 * (32 + 544 + 34 + 1)
    sent = cost("PermuteMoE_topK", (8, 16), ((8, 4), "int32"), None, dtype="bf16")
    assert sent.bytes == 2 * 128 + 2 * 32 * 16 + 4 * 32
    back = cost("UnpermuteMoE_topK", (32, 16), ((32,), "int32"), ((8, 4), "fp32"), dtype="bf16")
    assert (back.flop_vector, back.bytes) == (1024, 2 * 512 + 2 * 128 + 128 + 128)


# -- sparse features ---------------------------------------------------------------------------------------------


def test_pooled_lookup_over_several_tables() -> None:
    # 6 tables, 648 columns in all, 1024 bags each, 73,087 indices; the whole array holds 6480 numbers
    args = [((6480,), "fp16"), ((6,), "int64"), ((7,), "int32"), "648", ((7,), "int64"), ((73_087,), "int64"), ((6145,), "int64"), "0"]
    found = cost("fbgemm::split_embedding_codegen_forward_cpu", *args, None, "0")
    assert found.bytes == 2 * 6480 + 8 * 73_087 + 8 * 6145 + 4 * 1024 * 648
    assert found.flop_vector == 73_087 * 648 // 6 and found.estimated
    unrecorded = call(*args[:3], None, *args[4:], values=False)
    assert estimate("fbgemm::split_embedding_codegen_forward_cpu", unrecorded) is None


def test_permuted_features() -> None:
    # all 8 features chosen once: their lengths and every value in and out
    args = (((8,), "int32"), ((8, 1024), "int32"), ((113_303,), "int32"))
    assert cost("fbgemm::permute_2D_sparse_data", *args, None, None).bytes == 4 * (8 + 2 * 8192 + 2 * 113_303)
    # some chosen: the recorded sum, or none
    some = (((6,), "int32"), *args[1:])
    assert cost("fbgemm::permute_2D_sparse_data", *some, None, "73149").bytes == 4 * (6 + 2 * 6144 + 2 * 73_149)
    left = cost("fbgemm::permute_2D_sparse_data", *some, None, None)
    assert left.bytes == 4 * (6 + 2 * 6144) and "lower bound" in left.reason


def test_other_features() -> None:
    assert cost("fbgemm::permute_pooled_embs_auto_grad", (1024, 70_904), ((981,), "int64")).bytes == 8 * 1024 * 70_904
    assert cost("fbgemm::offsets_range", ((1025,), "int64"), "39288").bytes == 8 * (1025 + 39_288)
    moved = cost("fbgemm::block_bucketize_sparse_features", ((4,), "int32"), ((100,), "int32"), "True", "True", ((2,), "int32"), "8", None)
    assert moved.bytes == 4 * (4 + 2 + 100 + 32 + 100 + 200)
    assert "updated rows" in explain("torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>", call((8192, 8720)))
