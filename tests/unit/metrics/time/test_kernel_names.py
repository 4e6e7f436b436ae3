"""Names of kernels: short form, matrix units, kind of work. Names stand as recorders write them."""

from __future__ import annotations

import pytest

from tb_sol_plugin.metrics.time.kernel_names import LONGEST, MATRIX, classify, kind_of, matrix_of, short_name, unit_name
from tb_sol_plugin.model.figure import TOKENS

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 3> >(int, at::native::BinaryFunctor<float, float>)"
)
COPY = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::(anonymous namespace)::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)"
)
CUTLASS = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(cutlass_80::Params)"
SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16, "
    "at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(c10::BFloat16*, c10::BFloat16 const*, int)"
)
GEMV = "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, false, 7, cublasGemvParams<float> >(cublasGemvParams<float>)"
MANGLED = "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassIEEEE"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (ELEMENTWISE, "vectorized_elementwise_kernel<MulFunctor>"),
        (COPY, "elementwise_kernel<direct_copy_kernel_cuda>"),
        (CUTLASS, "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8"),
        (SOFTMAX, "cunn_SoftMaxForward<SoftMaxForwardEpilogue>"),
        (GEMV, "gemvx::kernel"),
        (MANGLED, "Rmsnorm2dFwd"),
        ("_ZN5aiter20fmoe_kernel_functionEv", "aiter::fmoe_kernel_function"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ncclKernel_AllReduce_RING_LL_Sum_float"),
        ("volta_sgemm_64x64_nt", "volta_sgemm_64x64_nt"),
        ("void cub::DeviceScanKernel<cub::Policy<int>::MaxPolicy, int>(int)", "DeviceScanKernel<MaxPolicy>"),
        ("", ""),
        ("f<", "f"),
        (">(", ">"),
    ],
)
def test_names_of_kernels_are_shortened(name, short):
    assert short_name(name) == short


def test_a_very_long_name_is_cut_in_the_middle():
    found = short_name("Cijk_" + "x" * 300 + "_end")
    assert len(found) == LONGEST and found.startswith("Cijk_") and found.endswith("_end") and "…" in found


@pytest.mark.parametrize(
    ("name", "vendor", "uses"),
    [
        (CUTLASS, "nvidia", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas", "nvidia", True),
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "nvidia", True),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et64x16_sm100f", "nvidia", True),
        ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", "nvidia", True),
        (
            "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64> >(pytorch_flash::Flash_fwd_params)",
            "nvidia",
            True,
        ),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)", "nvidia", True),
        ("Cijk_Alik_Bljk_BBS_BH_MT16x16x256_MI16x16x1_SN_ISA942_WS64", "amd", True),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16_SE_K1", "amd", False),
        ("kernel_unified_attention_2d", "amd", True),
        ("triton_tem_fused_mm_0", "amd", True),
        ("triton_poi_fused_add_3", "nvidia", False),
        ("volta_sgemm_64x64_nt", "nvidia", False),
        ("ampere_sgemm_128x64_nn", "nvidia", False),
        ("cutlass_80_simt_sgemm_128x32_8x5_tt_align1", "nvidia", False),
        ("fmha_cutlassF_f32_notaligned_64x64_rf_sm50(Params)", "nvidia", False),
        (ELEMENTWISE, "nvidia", False),
        (SOFTMAX, "nvidia", False),
        (MANGLED, "amd", False),
        ("void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16>(x)", "amd", False),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nvidia", False),
        ("triton__0d1d2d", "nvidia", None),
        ("my_fancy_kernel(float*)", "nvidia", None),
    ],
)
def test_kernels_on_matrix_units_are_known_by_name(name, vendor, uses):
    found = matrix_of(name, vendor)
    assert found.tensor_core is uses
    # a judgment always shows its rule; none has none
    assert bool(found.rule) == (uses is not None)
    assert bool(found.unit) == (uses is True)


def test_a_rule_of_another_vendor_does_not_apply():
    assert matrix_of("something_mfma_kernel", "amd").unit == "Matrix Core (CDNA or newer)"
    assert matrix_of("something_mfma_kernel", "nvidia").tensor_core is None
    assert (unit_name("amd"), unit_name("mtia")) == ("Matrix Core", "matrix unit")


@pytest.mark.parametrize("spelling", [
    "h884", "s884", "h1688", "s1688", "hmma", "i8816", "16816", "dgrad_1x1_stride_2x2", "first_layer_wgrad_kernel",
    "conv1x1", "conv2d_c1_k1", "direct_group", "xmma_implicit_gemm", "xmma_sparse_conv", "xmma_warp_specialized_implicit_gemm", "xmma_gemm",
    "xmma_sparse_gemm", "c1688"])  # fmt: skip
def test_the_names_of_2021_are_still_known(spelling):
    assert matrix_of(f"volta_x_{spelling}_nn", "nvidia").tensor_core is True


@pytest.mark.parametrize(
    ("name", "kind"),
    [(CUTLASS, "gemm"), (SOFTMAX, "norm"), (ELEMENTWISE, "elementwise"), ("ncclDevKernel_AllGather", "communication"),
     ("attn_fwd", "attention"),
     ("implicit_convolve_sgemm<float>(int)", "conv"), ("to_dense_representation_kernel", "other"), ("convert_fp8_kernel", "other")],
)  # fmt: skip
def test_the_kind_of_work_is_known_by_the_kernels_name(name, kind):
    assert kind_of(name) == kind


def test_every_rule_compiles_and_every_kind_has_a_color():
    frame = classify(["a", "nvjet_x"], "nvidia")
    assert frame["name"].tolist() == ["a", "nvjet_x"] and frame["tensor_core"].tolist() == [-1, 1]
    assert all(rule.why for rule in MATRIX)
    assert {kind_of(n) for n in (CUTLASS, SOFTMAX, ELEMENTWISE, COPY)} <= set(TOKENS)
