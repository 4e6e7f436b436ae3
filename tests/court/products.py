"""Matrix products that their types, sizes or kernels hold back."""

from __future__ import annotations

from typing import Final

from tests.court.case import US, guilty, saves
from tests.support.findings import H100_BANDWIDTH, H100_BF16, H100_TF32, H100_UNITS, call, filled
from tests.support.trace_builder import TraceBuilder

BF16: Final = "c10::BFloat16"
SGEMM: Final = "ampere_sgemm_128x128_nn"
SIMT: Final = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x5_nn_align1>(x)"
MMA: Final = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
ODD: Final = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(x)"
FULL: Final = (12, 11, 1)
"""A grid of 132 blocks: one full round of an H100."""


def least(m: int, n: int, k: int, peak: float = H100_BF16, size: int = 2) -> float:
    """ns: work at a peak, or m k + k n + m n elements of `size` bytes at the memory's rate."""
    return max(2 * m * n * k / peak, (m * k + k * n + m * n) * size / H100_BANDWIDTH) * 1e9


def product(m: int, n: int, k: int, us: int, kernel: str = MMA, *, types: str = BF16, **more: object) -> TraceBuilder:
    """One product that runs `us` us and fills its step but for the first us."""
    t = filled((us + 1) * US)
    call(t, "aten::mm", US, us * US, [[m, k], [k, n]], kernel=kernel, types=types, **more)
    return t


@guilty(fp32_matrix=saves(100 * US - least(1024, 1024, 1024, H100_TF32, 4), says='set_float32_matmul_precision("high")'))
def an_fp32_product_on_plain_units() -> TraceBuilder:
    """1024**3 in FP32 in 100 us, by sgemm, which does not use Tensor Cores."""
    return product(1024, 1024, 1024, 100, SGEMM, types="float")


@guilty(fp32_kernels=saves(100 * US, possible=True, says="TF32 is 7.4 times"))
def an_fp32_product_without_recorded_sizes() -> TraceBuilder:
    """A product in 100 us by sgemm, recorded without shapes."""
    t = filled(101 * US)
    t.op("aten::mm", US, 20 * US)
    t.launch(SGEMM, at=2 * US, start=US, duration=100 * US)
    return t


@guilty(
    fp32_matrix=saves(500 * US - 2 * 2048**3 / 1307.4e12 * 1e9, says="bfloat16", never="TF32"),
)  # fmt: skip
def an_fp32_product_of_amd() -> TraceBuilder:
    """2048**3 in FP32 on an MI300X in 500 us: its matrix units take it, and BF16 at eight times the rate."""
    t = filled(501 * US, device="AMD Instinct MI300X")
    name = "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN"
    call(t, "aten::mm", US, 500 * US, [[2048, 2048], [2048, 2048]], kernel=name, kernel_api="hipModuleLaunchKernel")
    return t


@guilty(plain_units=saves(200 * US - least(1024, 1024, 1024), says="Tensor Cores"))
def a_bf16_product_on_plain_units() -> TraceBuilder:
    """1024**3 in BF16 in 200 us, by a kernel that says that it uses plain units."""
    return product(1024, 1024, 1024, 200, SIMT)


@guilty(misaligned_products=saves(500 * US - least(4096, 4095, 4096) * 4096 / 4095, says="loads one element at a time"))
def rows_are_not_aligned() -> TraceBuilder:
    """n = 4095 in BF16 in 500 us, by a kernel that loads one element at a time."""
    return product(4096, 4095, 4096, 500, ODD)


@guilty(misaligned_products=saves(500 * US - least(4096, 4095, 4096) * 4096 / 4095, possible=True))
def rows_are_not_aligned_and_the_kernel_does_not_say() -> TraceBuilder:
    """The same by a kernel whose name does not say how it loads: possible."""
    return product(4096, 4095, 4096, 500, MMA)


@guilty(
    unfilled_tiles=saves(100 * US * (1 - 144 / (2 * H100_UNITS)), possible=True, says="1.09 rounds where 2 run"),
    gemm_above_limit=saves(100 * US * 144 / (2 * H100_UNITS) - least(1536, 1536, 4096), optional=True),
)  # fmt: skip
def the_last_round_is_nearly_empty() -> TraceBuilder:
    """12 x 12 tiles on 132 SMs in 100 us; the rest above the limit is the product's own."""
    return product(1536, 1536, 4096, 100, kernel_grid=(12, 12, 1))


@guilty(
    small_products=saves(50 * US * (1 - 64 / H100_UNITS), possible=True),
    gemm_above_limit=saves(50 * US * 64 / H100_UNITS - least(1024, 1024, 4096), optional=True),
)  # fmt: skip
def a_product_has_too_few_blocks() -> TraceBuilder:
    """8 x 8 tiles on 132 SMs in 50 us."""
    return product(1024, 1024, 4096, 50, kernel_grid=(8, 8, 1))


@guilty(gemm_above_limit=saves(100 * US - least(1408, 1536, 4096), says="max-autotune"))
def a_product_is_slow_for_no_known_reason() -> TraceBuilder:
    """One full round of full tiles, aligned, in BF16 on Tensor Cores, in 100 us: what remains above the limit."""
    return product(1408, 1536, 4096, 100, kernel_grid=FULL)


@guilty(
    slower_kernel=saves(3 * 150 * US, says="1.50×"),
    gemm_above_limit=saves(3 * (300 * US - least(1408, 12 * 1536, 4096)), 6 * (300 * US - least(1408, 12 * 1536, 4096))),
)  # fmt: skip
def a_second_kernel_for_the_same_sizes_is_slower() -> TraceBuilder:
    """Six products of one size: three in 300 us, three in 450 us by another kernel."""
    t = filled((1 + 3 * 300 + 3 * 450) * US)
    at = US
    for kernel, us in ((MMA, 300), (MMA.replace("128x128", "256x64"), 450)):
        for _ in range(3):
            call(t, "aten::mm", at, us * US, [[1408, 4096], [4096, 12 * 1536]], kernel=kernel, types=BF16, kernel_grid=(132, 12, 1))
            at += us * US
    return t


GOOD, POOR = least(1408, 12 * 1536, 4096), least(1408, 12 * 1536, 2048)


@guilty(
    behind_the_best=saves(3 * 1.5 * POOR, 3 * 1.5 * POOR + 9, possible=True), gemm_above_limit=saves(3 * GOOD / 4 - 9, 3 * GOOD / 4 + 3 * POOR / 4 + 9),
)  # fmt: skip
def one_size_reaches_far_less_than_another() -> TraceBuilder:
    """Three products at 80 % of their limit, and three of half the depth at 36 %: at the rate of the others they take 1.25 limits, not 2.75."""
    good, poor = round(1.25 * GOOD), round(2.75 * POOR)
    t = filled(US + 3 * (good + poor))
    at = US
    for k, ns in ((4096, good), (2048, poor)):
        for _ in range(3):
            call(t, "aten::mm", at, ns, [[1408, k], [k, 12 * 1536]], kernel=MMA, types=BF16, kernel_grid=(132, 12, 1))
            at += ns
    return t
