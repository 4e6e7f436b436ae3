"""Why a row is faster than its limit."""

from __future__ import annotations

from math import nan

import msgspec
import pytest

from tb_sol_plugin.analyses.efficiency.roofline_selection import Case, likely_cause
from tb_sol_plugin.devices.catalog import table

H100 = table()["H100_SXM"]
V100 = table()["V100_SXM2_32"]
CONV = Case("conv", "fp32", "compute", "volta_sgemm_64x64_nt\nwinograd_nonfused::winogradForwardFilter4x4", 30, 1e9, 1.68, "mask assumed")
GEMM = Case("gemm", "fp32", "compute", "sm90_xmma_gemm", 1, 1e9, 1.5, "")
MUL = Case("elementwise", "bf16", "memory", "vectorized", 10, 10 * 30e6, 1.4, "")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        # a name proves it, even where something was assumed
        (CONV, "Winograd convolution"),
        (CONV._replace(kernels="void fft2d_r2c_32x32<float>"), "FFT convolution"),
        (CONV._replace(kernels="cfft_gemm"), "FFT convolution"),
        (CONV._replace(kernels="offset_kernel"), "an estimate: mask assumed"),
        # 30 MB a call fit into the 50 MiB of L2; 60 MB do in part; 600 MB do not
        (MUL, "stayed in cache: 30.00\u202fMB a call, L2 holds 52.43\u202fMB"),
        (MUL._replace(bytes=10 * 60e6), "part of its data stayed in cache"),
        (MUL._replace(bytes=10 * 600e6), "touched less data"),
        (MUL._replace(bytes=10 * 600e6, reason="offsets not recorded"), "an estimate: offsets not recorded"),
        # fp32 on an H100: 66.9 TFLOP/s; 1.5 times that is within the 494.7 of TF32
        (GEMM, "likely computed in tf32"),
        (GEMM._replace(efficiency=1.05), "the clock"),
        (GEMM._replace(efficiency=12.0), "likely computed in bf16"),
        (GEMM._replace(efficiency=90.0), "a wrong limit"),
        (GEMM._replace(dtype="fp8", efficiency=1.9), "structured sparsity"),
        (GEMM._replace(bytes=nan, reason="sizes of the list assumed"), "an estimate"),
    ],
)
def test_the_likeliest_cause(case: Case, words: str) -> None:
    assert words in likely_cause(case, H100)


def test_a_device_without_the_narrower_type_did_not_use_it() -> None:
    # GIVEN a V100, which has no TF32: only its fp16 matrix units are faster than its fp32 ones
    assert "likely computed in fp16" in likely_cause(GEMM, V100)


def test_without_a_known_cache_no_size_of_it_is_claimed() -> None:
    blind = msgspec.structs.replace(H100, l2_bytes=None)
    assert likely_cause(MUL, blind) == "its data may have stayed in a cache: 30.00\u202fMB a call"
    assert "touched less data" in likely_cause(MUL._replace(bytes=10 * 600e6), blind)
