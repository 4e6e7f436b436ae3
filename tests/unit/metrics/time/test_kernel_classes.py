"""What names of kernels say, of few and of many: each as it is alone, and nothing of them held twice."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.metrics.time import kernel_classes, kernel_names
from tb_sol_plugin.metrics.time.distinct_names import short_names
from tb_sol_plugin.metrics.time.kernel_classes import classes_of
from tb_sol_plugin.tables.arrays import from_codes

NAMES = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)", "ampere_sgemm_128x64_tn", "k<float>", "k<int>",
    "nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", "triton_poi_fused_add_0<7>", "triton_poi_fused_add_1<7>", "ncclDevKernel_AllReduce", "operator<7>",
    "_ZN2at6native12kernel", "Kernel<flash::Params>", " spaced <7>", "flash_fwd_kernel<Traits>(Params)", "Cijk_MI16x16x1", "ReduceOp<Mean<x>>",
)  # fmt: skip


@pytest.mark.parametrize("vendor", ["", "nvidia", "amd"])
@pytest.mark.parametrize("many", [False, True])
def test_each_name_is_judged_as_it_is_alone(monkeypatch: pytest.MonkeyPatch, many: bool, vendor: str) -> None:
    # GIVEN a column with names, one of its dictionary in no row and rows without a name, looked at as few names are and as many, in pieces
    if many:
        monkeypatch.setattr(kernel_names, "MANY", 0)
        monkeypatch.setattr(kernel_classes, "MANY", 0)
        monkeypatch.setattr(kernel_classes, "AT_ONCE", 4)
    texts = [*NAMES[:5], "in no row", *NAMES[5:]]
    code = np.array([i for i in range(len(texts)) if i != 5 for _ in range(2)] + [-1])
    # WHEN they are judged
    found, row = classes_of(pd.Series(from_codes(code, texts)), vendor)
    # THEN each is what it is alone, and short names are those of all together
    assert found.names() == [*NAMES] and len(found) == len(NAMES)
    assert [found.kind_names[k] for k in found.kind.tolist()] == [kernel_names.kind_of(n) for n in NAMES]
    assert [found.matches[k] for k in found.match.tolist()] == [kernel_names.matrix_of(n, vendor) for n in NAMES]
    assert found.tensor_core.tolist() == [{None: -1, True: 1, False: 0}[kernel_names.matrix_of(n, vendor).tensor_core] for n in NAMES]
    assert found.short_names() == short_names(NAMES) and found.short_names(np.array([3, 2])) == ["k · int", "k · float"]
    assert [found.short_name(i) for i in range(len(NAMES))] == short_names(NAMES)
    assert row[code].tolist() == [i for i in range(len(NAMES)) for _ in range(2)] + [-1] and row[5] == -1


def test_of_many_names_no_text_is_held_again() -> None:
    # GIVEN 60,000 names WHEN all is said of them that can be THEN it takes a few bytes each, not those of a text
    texts = [f"triton_poi_fused_add_{i:07d}_kernel<{i % 97}>" for i in range(60_000)]
    column = pd.Series(from_codes(np.arange(len(texts)), texts))
    tracemalloc.start()
    try:
        found, _ = classes_of(column, "nvidia")
        assert 0 in found.tensor_core and set(found.kind.tolist()) == {found.kind_names.index("elementwise")}
        assert found.short_name(7) == "triton_poi_fused_add_0000007_kernel"
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 30 * len(texts)
