"""Findings about matrix products: their type, the units they run on, their sizes, and other kernels for the same sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.cost import Inputs
from tb_sol_plugin.cost.products import product
from tb_sol_plugin.metrics.rules.time.matmul import tile_of, tiles
from tests.support.findings import H100_BANDWIDTH, H100_BF16, H100_FP32, H100_TF32, H100_UNITS, call, found, step

BF16 = "c10::BFloat16"
SGEMM = "ampere_sgemm_128x128_nn"
TF32 = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(x)"
SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x5_nn_align1>(x)"
MMA = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
ODD = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(x)"


def rules(tmp_path: Path, m: int, n: int, k: int, us: int, *, kernel: str, types: str = BF16, **more: object) -> dict[str, object]:
    """Findings of one product that runs `us` us and fills its step."""
    t = step((us + 1) * 1_000)
    call(t, "aten::mm", 1_000, us * 1_000, [[m, k], [k, n]], kernel=kernel, types=types, **more)
    return dict(found(t, tmp_path))


def limit(m: int, n: int, k: int, peak: float, size: int) -> float:
    """ns: work at a peak, or m k + k n + m n elements of `size` bytes at the memory's rate."""
    return max(2 * m * n * k / peak, (m * k + k * n + m * n) * size / H100_BANDWIDTH) * 1e9


# -- types and units ------------------------------------------------------------------------------------------


def test_fp32_products_on_plain_units_are_compared_with_tf32(tmp_path: Path) -> None:
    # GIVEN 1024**3 in FP32 on a kernel without matrix units, 100 us
    finding = rules(tmp_path, 1024, 1024, 1024, 100, kernel=SGEMM, types="float")["fp32_matrix"]
    # THEN in TF32 the work takes 4.3 us (in BF16 2.2 us), the traffic 3.8 us
    assert finding.saving == pytest.approx(100_000 - limit(1024, 1024, 1024, H100_TF32, 4), abs=2)  # type: ignore[attr-defined]
    assert "4.34\u202fµs in TF32 and 2.17\u202fµs in BF16" in finding.evidence  # type: ignore[attr-defined]
    assert 'set_float32_matmul_precision("high")' in finding.fix  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kernel", "types"), [(TF32, "float"), (MMA, BF16), (SGEMM, BF16), (SGEMM, "double")])
def test_products_in_tf32_bf16_and_fp64_get_no_advice_about_fp32(tmp_path: Path, kernel: str, types: str) -> None:
    assert "fp32_matrix" not in rules(tmp_path, 1024, 1024, 1024, 1000, kernel=kernel, types=types)


def test_on_amd_the_advice_is_bf16(tmp_path: Path) -> None:
    # GIVEN FP32 on an MI300X, whose FP32 products run on its matrix units already (163.4 TFLOP/s against 1307 in BF16)
    t = step(501_000, device="AMD Instinct MI300X")
    name = "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN"
    call(t, "aten::mm", 1_000, 500_000, [[2048, 2048], [2048, 2048]], kernel=name, kernel_api="hipModuleLaunchKernel")
    finding = found(t, tmp_path)["fp32_matrix"]
    assert "bfloat16" in finding.fix and "TF32" not in finding.evidence and "Tensor Core" not in finding.title


def test_bf16_products_on_plain_units_are_a_finding(tmp_path: Path) -> None:
    # GIVEN 1024**3 in BF16 in 200 us, 10.7 TFLOP/s, by a kernel that says so
    finding = rules(tmp_path, 1024, 1024, 1024, 200, kernel=SIMT)["plain_units"]
    assert finding.saving == pytest.approx(200_000 - limit(1024, 1024, 1024, H100_BF16, 2), abs=2)  # type: ignore[attr-defined]
    assert "Tensor Cores" in finding.title  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("m", "us", "kernel"),
    [(1024, 200, MMA), (1024, 200, "some_new_gemm"), (1, 200, "gemv2T_kernel_val"), (1024, 10, SIMT)],
    ids=["matrix kernel", "unknown kernel", "bound by memory", "faster than plain units can be"],
)
def test_no_advice_about_units_where_it_is_not_known_or_does_not_matter(tmp_path: Path, m: int, us: int, kernel: str) -> None:
    # the last: 1024**3 in 10 us are 215 TFLOP/s, three times the rate of the plain units: the name misleads
    assert "plain_units" not in rules(tmp_path, m, 1024, 1024, us, kernel=kernel)


# -- sizes ----------------------------------------------------------------------------------------------------


def test_products_with_rows_that_are_not_16_bytes_apart_are_a_finding(tmp_path: Path) -> None:
    # GIVEN n = 4095 in BF16 (rows of 8190 bytes), 500 us where 139 us are the limit, by a kernel that loads one element at a time
    finding = rules(tmp_path, 4096, 4095, 4096, 500, kernel=ODD)["misaligned_products"]
    # THEN padded to 4096 the limit grows by 4096 / 4095
    padded = limit(4096, 4095, 4096, H100_BF16, 2) * 4096 / 4095
    assert finding.saving == pytest.approx(500_000 - padded, abs=2) and not finding.candidate  # type: ignore[attr-defined]
    assert "4095 elements between rows of the second" in finding.evidence  # type: ignore[attr-defined]
    assert "loads one element at a time" in finding.evidence  # type: ignore[attr-defined]


def test_without_alignment_in_the_kernels_name_the_finding_is_a_candidate(tmp_path: Path) -> None:
    assert rules(tmp_path, 4096, 4095, 4096, 500, kernel=MMA)["misaligned_products"].candidate  # type: ignore[attr-defined]


@pytest.mark.parametrize(("m", "n", "us"), [(4095, 4096, 500), (4096, 4096, 500), (4096, 4095, 200)], ids=["m", "none", "fast anyway"])
def test_odd_row_counts_and_fast_products_are_left_alone(tmp_path: Path, m: int, n: int, us: int) -> None:
    # a number of rows that is odd leaves every row aligned; at 200 us the product reaches 69 % of its limit
    assert "misaligned_products" not in rules(tmp_path, m, n, 4096, us, kernel=ODD)


def test_a_last_round_of_blocks_that_is_not_full_is_a_finding(tmp_path: Path) -> None:
    # GIVEN 12 x 12 tiles of 128 x 128 on 132 SMs: 1.09 rounds where 2 run
    got = rules(tmp_path, 1536, 1536, 4096, 100, kernel=MMA, kernel_grid=(12, 12, 1))
    finding = got["unfilled_tiles"]
    assert finding.saving == pytest.approx(100_000 * (1 - 144 / (2 * H100_UNITS)), abs=2) and finding.candidate  # type: ignore[attr-defined]
    assert "144 blocks on 132 SMs are 1.09 rounds where 2 run (54.5\u202f%)" in finding.evidence  # type: ignore[attr-defined]
    # AND the call is in no other finding
    assert "gemm_above_limit" not in got


def test_a_result_that_does_not_fill_its_tiles_is_a_finding(tmp_path: Path) -> None:
    # GIVEN 1408 x 1496 in 11 x 12 tiles of 128 x 128: one full round, 1408 * 1496 of 1408 * 1536 elements used; 580 us, the limit is 558
    finding = rules(tmp_path, 1408, 1496, 131_072, 580, kernel=MMA, kernel_grid=(12, 11, 1))["unfilled_tiles"]
    assert finding.saving == pytest.approx(580_000 * (1 - 1496 / 1536), abs=2)  # type: ignore[attr-defined]


def test_a_product_whose_tiles_explain_little_is_left_to_the_general_rule(tmp_path: Path) -> None:
    # GIVEN the same tiles, 2.6 % of them unused, and a product that takes six times its limit of 17 us
    got = rules(tmp_path, 1408, 1496, 4096, 100, kernel=MMA, kernel_grid=(12, 11, 1))
    # THEN its one finding says how far above the limit it is
    assert "unfilled_tiles" not in got
    assert got["gemm_above_limit"].saving == pytest.approx(100_000 - limit(1408, 1496, 4096, H100_BF16, 2), abs=2)  # type: ignore[attr-defined]


def test_a_product_with_fewer_blocks_than_units_is_a_finding(tmp_path: Path) -> None:
    # GIVEN 8 x 8 tiles on 132 SMs, 50 us
    finding = rules(tmp_path, 1024, 1024, 4096, 50, kernel=MMA, kernel_grid=(8, 8, 1))["small_products"]
    assert finding.saving == pytest.approx(50_000 * (1 - 64 / H100_UNITS), abs=2) and finding.candidate  # type: ignore[attr-defined]


def test_full_rounds_of_full_tiles_are_left_alone(tmp_path: Path) -> None:
    # GIVEN 11 x 12 tiles of 128 x 128: exactly 132
    got = rules(tmp_path, 1408, 1536, 4096, 100, kernel=MMA, kernel_grid=(12, 11, 1))
    assert not {"unfilled_tiles", "small_products"} & set(got)


def test_split_products_fill_the_device_by_their_grid(tmp_path: Path) -> None:
    # GIVEN 8 x 8 tiles, split four ways over k: 256 blocks in 2 rounds of 132; 575 us, the limit is 556
    got = rules(tmp_path, 1024, 1024, 262_144, 575, kernel=MMA, kernel_grid=(8, 8, 4))
    assert "small_products" not in got
    assert got["unfilled_tiles"].saving == pytest.approx(575_000 * (1 - 256 / 264), abs=2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [
        (MMA, (128, 128)), (ODD, (128, 128)), ("nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT", (64, 16)),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize96x128x32_stage4", (96, 128)),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x208x64_MI16x16x1_SN", (256, 208)), (SGEMM, (128, 128)), ("splitKreduce_kernel", None),
    ],
)  # fmt: skip
def test_the_tile_is_read_from_the_kernels_name(kernel: str, tile: tuple[int, int] | None) -> None:
    assert tile_of(kernel) == tile


def test_tiles_count_with_the_better_orientation() -> None:
    # GIVEN a 256 x 100 result and tiles of 128 x 256: upright 2 x 1 tiles are 39 % full, turned 1 x 1 tile is 78 % full
    found = product("aten::mm", Inputs("[[256, 64], [64, 100]]", '["float", "float"]'))
    assert found is not None and tiles(found, (128, 256)) == (1, 256 * 100 / (256 * 128))


def test_sizes_and_alignment_of_products_are_read_from_their_arguments() -> None:
    # GIVEN a linear layer over a batch, its weight as (out, in)
    found = product("aten::linear", Inputs("[[4, 10, 64], [30, 64], [30]]", '["c10::Half", "c10::Half", "c10::Half"]'))
    # THEN 40 x 30 by 64; rows of 60 bytes in the result are 4-aligned
    assert found is not None and found[:5] == (1, 40, 30, 64, 4) and "30 elements" in found.odd
    # AND of a transposed second matrix its columns are the dense ones
    turned = product("aten::mm", Inputs("[[8, 100], [100, 16]]", '["float", "float"]', "[[100, 1], [1, 100]]"))
    assert turned is not None and turned.aligned == 16
    assert product("aten::mm", Inputs("[[8, 7], [9, 16]]", '["float", "float"]')) is None


# -- elsewhere in the recording -------------------------------------------------------------------------------


def twice(tmp_path: Path, calls: int, slow_us: int) -> dict[str, object]:
    """4096**3 in BF16: `calls` times 200 us in one kernel, as often `slow_us` in another."""
    t = step(1_000 + calls * (200 + slow_us) * 1_000)
    at = 1_000
    for kernel, us in ((MMA, 200), (MMA.replace("128x128", "256x64"), slow_us)):
        for _ in range(calls):
            call(t, "aten::mm", at, us * 1_000, [[4096, 4096], [4096, 4096]], kernel=kernel, types=BF16, kernel_grid=(32, 33, 1))
            at += us * 1_000
    return dict(found(t, tmp_path))


def test_a_product_in_a_slower_kernel_than_an_equal_one_is_a_finding(tmp_path: Path) -> None:
    # GIVEN three calls of 200 us and three of 300 us THEN the latter could save 100 us each
    finding = twice(tmp_path, 3, 300)["slower_kernel"]
    assert finding.saving == 3 * 100_000 and "1.50×" in finding.evidence  # type: ignore[attr-defined]


@pytest.mark.parametrize(("calls", "slow_us"), [(2, 300), (3, 220)], ids=["too few", "alike"])
def test_times_that_differ_by_chance_are_no_slower_kernel(tmp_path: Path, calls: int, slow_us: int) -> None:
    assert "slower_kernel" not in twice(tmp_path, calls, slow_us)


def beside(tmp_path: Path, other_us: int, *, kernel: str = MMA) -> dict[str, object]:
    """Three calls of 4096**3 in BF16 at 200 us (138.9 us are the limit) and three of 4096 x 4096 by 2048 at `other_us` (69.5 us)."""
    t = step(1_000 + 3 * (200 + other_us) * 1_000)
    at = 1_000
    for k, us in ((4096, 200), (2048, other_us)):
        for _ in range(3):
            call(t, "aten::mm", at, us * 1_000, [[4096, k], [k, 4096]], kernel=kernel, types=BF16, kernel_grid=(32, 33, 1))
            at += us * 1_000
    return dict(found(t, tmp_path))


def test_a_product_far_behind_another_of_its_type_is_a_finding(tmp_path: Path) -> None:
    # GIVEN 69.5 % of the limit here and 34.7 % there WHEN the second ran at the rate of the first it would take 100 us instead of 200
    finding = beside(tmp_path, 200)["behind_the_best"]
    assert finding.saving == pytest.approx(3 * 100_000, abs=5) and finding.candidate  # type: ignore[attr-defined]
    assert "34.7\u202f%" in finding.evidence and "69.5\u202f%" in finding.evidence  # type: ignore[attr-defined]


def test_the_same_sizes_in_two_types_are_compared_each_with_its_own(tmp_path: Path) -> None:
    # GIVEN 2048**3 three times in FP32 (300 us, 256.8 us are the limit) and three times in TF32 (60 us, 34.7 us), at 86 % and 58 %
    t = step(1_000 + 3 * 360_000)
    at = 1_000
    for kernel, us in (("some_gemm_kernel", 300), (TF32, 60)):
        for _ in range(3):
            call(t, "aten::mm", at, us * 1_000, [[2048, 2048], [2048, 2048]], kernel=kernel)
            at += us * 1_000
    assert not {"behind_the_best", "slower_kernel"} & set(found(t, tmp_path))


def test_a_product_a_little_behind_another_is_left_alone(tmp_path: Path) -> None:
    # GIVEN 69.5 % and 57.9 %: 83 % of it
    assert "behind_the_best" not in beside(tmp_path, 120)


def test_the_parts_of_one_product_add_up_to_its_time_above_the_limit(tmp_path: Path) -> None:
    # GIVEN an odd, unfilled, slow product THEN all that is said of it is no more than its time above its limit
    got = rules(tmp_path, 1536, 1535, 4096, 100, kernel=ODD, kernel_grid=(12, 12, 1))
    assert sum(f.saving for f in got.values()) <= 100_000 - limit(1536, 1535, 4096, H100_BF16, 2) + 1_000 + len(got)  # type: ignore[attr-defined]
    assert H100_FP32 < H100_BF16
