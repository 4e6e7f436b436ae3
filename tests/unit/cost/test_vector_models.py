"""Cost of single vector operations, worked out by hand: FLOP, bytes, direction, what is marked as estimated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.cost import Cost, Inputs, estimate, explain, model_for
from tests.unit.cost.calls import call, cost


def numbers(found: Cost) -> tuple[int | None, int | None, str]:
    return found.flop_vector, found.bytes, found.direction


# -- norms -------------------------------------------------------------------------------------------------------


def test_instance_norm_keeps_statistics_per_sample_and_channel() -> None:
    # 8 x 16 x 32 x 32 floats, weight and bias of 16: 8 n FLOP; 2 n + 32 + 2 x 8 x 16 floats
    found = cost("aten::instance_norm", (8, 16, 32, 32), (16,), (16,), None, None, "True", "0.1", "1e-05", "True")
    assert numbers(found) == (8 * 131_072, 4 * (2 * 131_072 + 32 + 256), "fwd")
    assert model_for("aten::instance_norm").wrapper  # type: ignore[union-attr]


def test_gradients_that_are_not_asked_for_are_not_written() -> None:
    def back(mask: str) -> Cost:
        return cost("aten::native_layer_norm_backward", (4, 8), (4, 8), "[8]", (4, 1), (4, 1), (8,), (8,), mask)

    # grad, x, mean, rstd and weight are read: 32 + 32 + 4 + 4 + 8 floats; dx 32, dw 8, db 8 written
    assert numbers(back("[True, True, True]")) == (512, 4 * (80 + 48), "bwd")
    assert numbers(back("[False, True, True]")) == (256, 4 * (80 + 16), "bwd")
    assert numbers(back("[True, False, False]")) == (512, 4 * (80 + 32), "bwd")


def test_batch_norm_by_its_many_names() -> None:
    x, c = (8, 16, 4, 4), (16,)
    n = 8 * 16 * 16
    fixed = (2 * n, 4 * (2 * n + 4 * 16), "fwd")
    training = (8 * n, 4 * (2 * n + 8 * 16), "fwd")
    assert numbers(cost("aten::_batch_norm_no_update", x, c, c, c, c, "0.1", "1e-5")) == fixed
    assert numbers(cost("aten::_native_batch_norm_legit_no_training", x, c, c, c, c, "0.1", "1e-5")) == fixed
    assert numbers(cost("aten::_batch_norm_with_update", x, c, c, c, c, "0.1", "1e-5")) == training
    assert numbers(cost("aten::miopen_batch_norm", x, c, c, c, c, "True", "0.1", "1e-5")) == training
    # without running statistics the flag stands third
    assert numbers(cost("aten::_native_batch_norm_legit", x, c, c, "True", "0.1", "1e-5")) == (8 * n, 4 * (2 * n + 4 * 16), "fwd")
    assert not cost("aten::_batch_norm_with_update", x, c, c, c, c, "0.1", "1e-5").estimated
    unknown = cost("aten::cudnn_batch_norm", x, c, c, c, c, values=False)
    assert unknown.estimated and "training assumed" in unknown.reason


def test_batch_norm_backward_with_fixed_statistics() -> None:
    args = ((8, 16, 4, 4), (8, 16, 4, 4), (16,), (16,), (16,), (16,), (16,))
    n = 8 * 16 * 16
    trained = cost("aten::native_batch_norm_backward", *args, "True", "1e-5", "[True, True, True]")
    fixed = cost("aten::native_batch_norm_backward", *args, "False", "1e-5", "[True, True, True]")
    assert numbers(trained) == (16 * n, 4 * (3 * n + 5 * 16), "bwd")
    assert numbers(fixed) == (4 * n, 4 * (3 * n + 5 * 16), "bwd")
    assert numbers(cost("aten::cudnn_batch_norm_backward", *args, "1e-5", ((0,), "uint8"))) == (16 * n, 4 * (3 * n + 5 * 16), "bwd")


def test_weight_norm_both_ways() -> None:
    assert numbers(cost("aten::_weight_norm_interface", (6, 8), (6, 1), "0")) == (144, 4 * (48 + 6 + 48 + 6), "fwd")
    back = cost("aten::_weight_norm_interface_backward", (6, 8), (6, 8), (6, 1), (6, 1), "0")
    assert numbers(back) == (288, 4 * (48 + 48 + 6 + 6 + 48 + 6), "bwd")


def test_fused_add_norms_of_serving_engines() -> None:
    # 32 tokens of 2880 in BF16: x and residual read, both results written, one weight: 4 n + 2880 elements of 2 bytes
    n = 32 * 2880
    whole = (9 * n, 2 * (4 * n + 2880), "fwd")
    assert numbers(cost("_C::fused_add_rms_norm", (32, 2880), (32, 2880), (2880,), "1e-6", dtype="bf16")) == whole
    four = ((32, 2880),) * 4
    assert numbers(cost("aiter::rmsnorm2d_fwd_with_add_ck", *four, (2880,), "1e-5", "0", dtype="bf16")) == whole
    plain = cost("aiter::rms_norm", (32, 2880), (2880,), "1e-5", "0", dtype="bf16")
    assert numbers(plain) == (8 * n, 2 * (2 * n + 2880), "fwd")
    quantized = cost("_C::rms_norm_static_fp8_quant", ((32, 2880), "fp8"), (32, 2880), (2880,), ((1,), "fp32"), "1e-6", dtype="bf16")
    assert numbers(quantized) == (8 * n, n + 2 * n + 2 * 2880 + 4, "fwd")
    assert estimate("_C::fused_add_rms_norm", call((32, 2880), (32, 99), (2880,), "1e-6")) is None


def test_norms_that_quantize_what_they_write() -> None:
    n, two = 4 * 256, ((4, 256), (256,))
    grouped = cost("vllm::rocm_aiter_rmsnorm_fp8_group_quant", *two, "1e-6", "128", dtype="bf16")
    assert numbers(grouped) == (8 * n, 2 * n + 512 + n + 4 * 8, "fwd")
    added = cost("vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant", (4, 256), *two, "1e-6", "128", dtype="bf16")
    assert numbers(added) == (9 * n, 4 * n + 2 * n + 512 + n + 32, "fwd")
    both = cost("aiter::_fused_qk_rmsnorm", *two, "1e-6", (4, 64), (64,), "1e-6", dtype="bf16")
    assert numbers(both) == (8 * (n + 256), 2 * (2 * n + 256 + 2 * 256 + 64), "fwd")


def test_a_norm_that_records_its_gradient_only() -> None:
    back = cost("LigerRMSNormFunctionBackward", (4, 8), dtype="bf16")
    assert numbers(back) == (16 * 32, 3 * 64, "bwd") and "as large as the gradient" in back.reason


# -- losses and softmax ------------------------------------------------------------------------------------------


def test_a_loss_owns_what_it_calls() -> None:
    # mean over 8x16x32x32 floats: both read, one number written
    found = cost("aten::mse_loss", (8, 16, 32, 32), (8, 16, 32, 32), "1")
    assert numbers(found) == (3 * 131_072, 4 * (2 * 131_072 + 1), "fwd")
    assert not model_for("aten::mse_loss").wrapper  # type: ignore[union-attr]
    assert cost("aten::mse_loss", (4, 8), (4, 8), "0").bytes == 4 * 96
    assert cost("aten::mse_loss", (4, 8), (4, 8), values=False).estimated
    assert estimate("aten::mse_loss", call((4, 8), (4, 9), "1")) is None


def test_cross_entropy_counts_five_per_logit() -> None:
    found = cost("aten::cross_entropy_loss", (32, 1000), ((32,), "int64"), None, "1", "-100", "0.")
    assert numbers(found) == (160_000, 4 * 32_000 + 8 * 32 + 4, "fwd")
    assert model_for("aten::cross_entropy_loss").wrapper  # type: ignore[union-attr]
    picked = cost("aten::nll_loss_forward", (32, 1000), ((32,), "int64"), None, "1", "-100")
    assert numbers(picked) == (32, 4 * 32 + 8 * 32 + 4, "fwd")


# -- embeddings and picking --------------------------------------------------------------------------------------


def test_an_embedding_reads_no_more_rows_than_there_are() -> None:
    assert cost("aten::embedding", (3, 16), ((100,), "int64")).bytes == 4 * 3 * 16 + 4 * 100 * 16 + 800
    bag = cost("aten::_embedding_bag", (50, 8), ((20,), "int64"), ((4,), "int64"), "False", "0", "False", None, "False")
    assert numbers(bag) == (160, 4 * 20 * 8 + 160 + 32 + 4 * 4 * 8, "fwd") and bag.estimated
    last = cost("aten::_embedding_bag", (50, 8), ((20,), "int64"), ((5,), "int64"), "False", "0", "False", None, "True")
    assert last.bytes == 4 * 20 * 8 + 160 + 40 + 4 * 4 * 8
    back = cost("aten::embedding_dense_backward", (6, 8), ((6,), "int64"), "50", "-1", "False")
    assert numbers(back) == (48, 4 * 48 + 48 + 4 * 400 + 2 * 4 * 48, "bwd")


def test_places_without_sizes_leave_a_lower_bound() -> None:
    # GIVEN values of 1024 doubles put at places whose sizes were not recorded; THEN the values in and out are what is known
    found = cost("aten::index_put_", ((21_708,), "fp64"), None, ((1024,), "fp64"), "False")
    assert found.bytes == 2 * 8 * 1024 and found.estimated and "lower bound" in found.reason
    copied = cost("aten::index_put", ((21_708,), "fp64"), None, ((1024,), "fp64"), "False")
    assert copied.bytes == found.bytes + 2 * 8 * 21_708  # type: ignore[operator]
    # nothing at all is known about what an index of unknown size picks
    assert estimate("aten::index", call((888, 2880), None)) is None
    assert "not recorded" in explain("aten::index", call((888, 2880), None))


def test_forms_that_add_read_their_target() -> None:
    index = ((4, 3), "int64")
    put = cost("aten::scatter_", (4, 8), "1", index, (4, 3))
    added = cost("aten::scatter_add_", (4, 8), "1", index, (4, 3))
    assert numbers(put) == (0, 96 + 48 + 48, "fwd")
    assert numbers(added) == (12, 96 + 48 + 96, "fwd")
    assert cost("aten::scatter_add", (4, 8), "1", index, (4, 3)).bytes == 96 + 48 + 96 + 2 * 128
    assert cost("aten::index_add_", (10, 8), "0", ((3,), "int64"), (3, 8), "1").bytes == 4 * 24 + 24 + 8 * 24


# -- fills, pooling, resampling ----------------------------------------------------------------------------------


def test_new_tensors_are_sized_by_recorded_values() -> None:
    assert cost("aten::zeros", "[3, 5]", "15", None, None, "False").bytes == 30
    assumed = cost("aten::ones", "[3, 5]", None, None, None, None)
    assert assumed.bytes == 60 and "assumed" in assumed.reason
    assert cost("aten::randn", "[5, 128]", "6", None, None, "False").flop_vector == 640
    assert cost("aten::scalar_tensor", "1.5", "7", "", "", "False").bytes == 8
    assert cost("aten::randint", "10", "[5, 128]", "", "", "", "False").bytes == 640 * 8  # randint(high, size): int64
    assert cost("aten::randint", "3", "10", "[5, 128]", "3", "", "", "False").bytes == 640 * 4  # randint(low, high, size, int32)
    assert cost("aten::arange", "6144", None, None, None, "False").bytes == 8 * 6144
    assert cost("aten::arange", "2", "10", "3", ((0,), "int32")).bytes == 4 * 3
    assert estimate("aten::zeros", call(None, "6", values=False)) is None
    assert estimate("aten::arange", call("0", "10", "0", None, None, None, None)) is None


def test_a_pool_without_its_recorded_kernel_counts_its_input() -> None:
    found = cost("aten::max_pool2d_with_indices", (32, 64, 112, 112), None, None, None, None, None, values=False)
    assert found.bytes == 4 * 32 * 64 * 112 * 112 and "lower bound" in found.reason
    assert estimate("aten::avg_pool2d", call((1, 2, 4, 4), "[9, 9]", "[1, 1]", "[0, 0]", "False")) is None


def test_resampling_counts_its_taps() -> None:
    linear = cost("aten::upsample_bilinear2d", (1, 2, 4, 4), "[8, 8]", "False", None, None)
    assert numbers(linear) == (8 * 128, 4 * (32 + 128), "fwd")
    # one pixel of a large picture does not read the picture
    assert cost("aten::upsample_nearest2d", (1, 1, 100, 100), "[1, 1]", None).bytes == 8
    back = cost("aten::upsample_bilinear2d_backward", (1, 2, 8, 8), "[8, 8]", "[1, 2, 4, 4]", "False")
    assert numbers(back) == (8 * 128, 4 * (128 + 32), "bwd")


# -- lists -------------------------------------------------------------------------------------------------------


def listed(name: str, *lists: list[list[int]], hint: str = "fp32") -> Cost:
    types = ",".join(['"TensorList"'] * len(lists))
    found = estimate(name, Inputs(str(list(lists)), f"[{types}]", hint=hint))
    assert found is not None
    return found


def test_fused_optimizers_count_flop_and_bytes_per_parameter() -> None:
    p = [[10], [2, 5]]
    assert numbers(listed("aten::_fused_sgd_", p, p)) == (40, 4 * 20 * 3, "fwd")
    assert numbers(listed("aten::_fused_sgd_", p, p, p)) == (80, 4 * 20 * 5, "fwd")
    assert numbers(listed("aten::_fused_adagrad_", p, p, p)) == (120, 4 * 20 * 5, "fwd")
    adam = listed("multi_tensor_adam", p, p, p, p)
    assert numbers(adam) == (240, 4 * 20 * 7, "fwd") and adam.estimated
    assert listed("aten::_amp_foreach_non_finite_check_and_unscale_", p).bytes == 160
    norms = listed("aten::_foreach_norm", p)
    assert numbers(norms) == (20, 4 * 20 + 8, "fwd")


def test_sharded_copies_take_the_type_of_their_result() -> None:
    shards = Inputs("[[[4],[6]],[40]]", '["TensorList","float"]')
    found = estimate("fsdp::all_gather_copy_in", shards)
    assert found is not None and found.bytes == 2 * 4 * 10 and "assumed" in found.reason


# -- rotary embedding and quantization ---------------------------------------------------------------------------


def test_rotary_embedding_in_place() -> None:
    # 10 tokens, queries of 8 and keys of 2 heads of 64, a table row of 64: 3 x 6400 FLOP; 2 x 6400 BF16, 10 rows, 10 places
    found = cost("_C::rotary_embedding", ((10,), "int64"), (10, 512), (10, 128), "64", (4096, 64), "True", dtype="bf16")
    assert numbers(found) == (19_200, 80 + 2 * 640 + 2 * 2 * 6400, "fwd")
    # half of each head turns
    half = cost("_C::rotary_embedding", ((10,), "int64"), (10, 512), (10, 128), "64", (4096, 32), "True", dtype="bf16")
    assert numbers(half) == (9600, 80 + 2 * 320 + 2 * 2 * 3200, "fwd")


def test_rotary_functions_of_training_libraries() -> None:
    both = cost("LigerRopeFunction", (2, 8, 16, 64), (2, 2, 16, 64), (1, 16, 64), (1, 16, 64), dtype="bf16")
    n = 2 * 10 * 16 * 64
    assert numbers(both) == (3 * n, 2 * (2 * n + 2 * 16 * 64), "fwd")
    one = cost("ApplyRotaryEmb", (2, 16, 8, 64), (16, 32), (16, 32), "False", dtype="bf16")
    assert numbers(one) == (3 * 16_384, 2 * (2 * 16_384 + 2 * 512), "fwd")
    out_first = cost("aiter::rope_fwd_impl", (16, 2, 8, 64), (16, 2, 8, 64), (16, 1, 1, 32), "0", dtype="bf16")
    assert numbers(out_first) == (3 * 16_384, 2 * (2 * 16_384 + 512), "fwd")


def test_quantization_and_cache_writes() -> None:
    found = cost("_C::dynamic_per_token_scaled_fp8_quant", ((4, 8), "fp8"), (4, 8), ((4, 1), "fp32"), None, dtype="bf16")
    assert numbers(found) == (64, 32 + 64 + 16, "fwd")
    cache = cost("_C_cache_ops::reshape_and_cache_flash", (4, 2, 8), (4, 2, 8), (9, 16, 2, 8), (9, 16, 2, 8), ((4,), "int64"), dtype="bf16")
    assert numbers(cache) == (0, 4 * 128 + 32, "fwd")


# -- properties --------------------------------------------------------------------------------------------------

small = st.integers(1, 12)
quick = settings(max_examples=60, deadline=None)


@quick
@given(small, small, st.integers(1, 6))
def test_a_batch_in_parts_is_the_same_work(rows: int, width: int, parts: int) -> None:
    # GIVEN an elementwise operation, a softmax and a norm over parts * rows rows; THEN the parts do as much, parameters once per part
    for name, args in (("aten::gelu", ()), ("aten::_softmax", ("-1", "False")), ("aten::mean", ("[-1]", "False", None))):
        whole, part = cost(name, (parts * rows, width), *args), cost(name, (rows, width), *args)
        assert whole.bytes == parts * part.bytes and whole.flop_vector == parts * part.flop_vector  # type: ignore[operator]
    norm = [cost("aten::native_layer_norm", (n, width), f"[{width}]", (width,), (width,), "1e-5") for n in (parts * rows, rows)]
    assert norm[0].bytes == parts * norm[1].bytes - (parts - 1) * 8 * width  # type: ignore[operator]


@quick
@given(small, small, small)
def test_expanding_an_operand_moves_no_more(a: int, b: int, c: int) -> None:
    # GIVEN a row added to a block, as itself or expanded by strides of 0; THEN both read the row once
    plain = cost("aten::add", (a, b, c), (c,))
    expanded = cost("aten::add", (a, b, c), (a, b, c), strides={1: [0, 0, 1]})
    assert plain.bytes == expanded.bytes and plain.flop_vector == expanded.flop_vector == a * b * c
    copied = cost("aten::clone", (a, b, c), strides={0: [0, 0, 1]})
    assert copied.bytes == 4 * (c + a * b * c)


@quick
@given(st.permutations([0, 1, 2]), small, small, small)
def test_the_order_of_strides_moves_no_more(order: list[int], a: int, b: int, c: int) -> None:
    shape = (a, b, c)
    steps, step = [0, 0, 0], 1
    for at in reversed(order):
        steps[at], step = step, step * shape[at]
    assert cost("aten::exp", shape, strides={0: steps}).bytes == cost("aten::exp", shape).bytes


@pytest.mark.parametrize("name", ["aten::add", "aten::sum", "aten::_softmax", "aten::native_layer_norm", "aten::copy_", "aten::cat"])
@pytest.mark.parametrize("broken", ["[[-1,4]]", '[["s0",4]]', "[[4,null]]", "[[]]", "[4]", "{}", "broken", ""])
def test_sizes_that_are_none_have_no_cost(name: str, broken: str) -> None:
    # GIVEN symbolic, negative or missing sizes; THEN no number at all, and a reason
    found = estimate(name, Inputs(broken, '["",""]'))
    assert found is None or found.bytes is None
    assert explain(name, Inputs(broken, '["",""]'))


def test_an_unknown_type_has_operations_but_no_bytes() -> None:
    found = cost("aten::exp", ((4, 8), "c10::Posit16"))
    assert (found.flop_vector, found.bytes) == (32, None)
    assert "Posit16" in explain("aten::exp", call(((4, 8), "c10::Posit16")))
