"""Convolutions, products and attention against another tool's sheets, with that tool's known errors corrected.

What `test_oracles.py` compares through the product is not repeated here: these are the entries that it leaves out, because the
recording the reference merged is not in the set (their sizes stand in the entry), or because the reference is wrong.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tb_sol_plugin.cost import Cost, Inputs, estimate
from tb_sol_plugin.metrics.work.work import group, work
from tests.real.test_oracles import BINDING, ENTRIES, FOLDER, covered
from tests.support.captures import capture

pytestmark = pytest.mark.real
ENTRY = {e["id"]: e for e in ENTRIES}
LEFT = [e for e in BINDING if e["quantity"] in ("gemm_perf", "attention_fwd_perf", "gemm_shape", "attention_fwd") and not covered(e)]
MIB = 2**20


def trace(entry: dict[str, Any]) -> Any:
    return capture(FOLDER / entry["trace"])


def by_sizes(entry: dict[str, Any], around: str = "") -> Cost:
    """The cost of the entry's operator on the entry's own sizes, BF16 throughout."""
    dims = json.loads(entry["params"]["input_dims"])
    types = ["c10::BFloat16" if size and size != [0] else "" for size in dims]
    found = estimate(entry["params"]["op"], Inputs(json.dumps(dims), json.dumps(types), around=around))
    assert found is not None, entry["params"]
    return found


@pytest.mark.parametrize("entry", [e for e in LEFT if e["quantity"] == "gemm_perf"], ids=lambda e: e["id"])
def test_products_of_a_recording_that_is_not_there(entry: dict[str, Any]) -> None:
    # GIVEN the sizes of a product with a bias; the sheet adds one FLOP per result for it, here a bias is bytes only
    m, n, k = (int(entry["params"][x]) for x in "MNK")
    found, want = by_sizes(entry), entry["expected"]
    assert found.flop == 2 * m * n * k
    assert (found.flop + m * n) / 1e9 == pytest.approx(want["gflop_per_call"], rel=1e-6)
    # THEN traffic is that of the sheet: operands, bias, result
    assert (found.bytes or 0) / MIB == pytest.approx(want["data_moved_MiB"], rel=1e-6)


@pytest.mark.parametrize("entry", [e for e in LEFT if e["quantity"] == "attention_fwd_perf"], ids=lambda e: e["id"])
def test_attention_over_a_paged_cache(entry: dict[str, Any]) -> None:
    # GIVEN a decode step that names the sums of its requests' lengths THEN work and traffic are those of the sheet
    p = entry["params"]
    sums = {kind: "".join(f"{name}{p[f'{kind}_{name}']}" for name in ("sq", "sk", "sqsq", "sqsk")) for kind in "cg"}
    found = by_sizes(entry, f"execute_32_context_0({sums['c']})_generation_32({sums['g']})")
    assert (found.flop or 0) / 1e9 == pytest.approx(entry["expected"]["gflop_per_call"], rel=1e-9)
    assert (found.bytes or 0) / MIB == pytest.approx(entry["expected"]["data_moved_MiB"], rel=1e-9)


def test_the_name_of_that_step_is_in_the_recording_that_is_there() -> None:
    names = trace(ENTRY[869]).host["name"].cat.categories
    assert any("generation_32(sq32sk55086sqsq32sqsk55086)" in str(name) for name in names)


def test_a_patch_convolution() -> None:
    # GIVEN 5 calls of 1x3x1008x1008 with 1024x3x14x14, stride 14, no bias: 72 x 72 results, 1024 channels, 3 x 14 x 14 products each
    entry = ENTRY[271]
    done = work(trace(entry))
    rows = done.ops[(done.ops["kind"] == "conv") & done.ops["shapes_json"].astype(str).str.startswith("[[1,3,1008,1008],[1024,3,14,14]")]
    want = entry["expected"]
    assert len(rows) == want["calls"]
    flop, data = float(rows["flop"].sum()) / 5, float(rows["bytes"].sum()) / 5
    assert flop == 2 * 72 * 72 * 1024 * 3 * 14 * 14 == 6_242_697_216 == round(want["gflop_per_call"] * 1e9)
    # THEN bytes are input, weight and result in BF16, nothing for a bias
    assert data == 2 * (3 * 1008**2 + 1024 * 3 * 14 * 14 + 1024 * 72 * 72)
    assert data / MIB == pytest.approx(want["data_moved_MiB"], rel=1e-9)
    assert flop / data == pytest.approx(want["flops_per_byte"], rel=1e-9)
    assert float(rows["measured_ns"].sum()) / 5e3 == pytest.approx(want["kernel_us_mean"], rel=1e-3)
    # AND the sheet's rate is a mean of five rates; work over time is 23.107 here as well, within its last digits
    assert flop * 5 / float(rows["measured_ns"].sum()) == pytest.approx(want["tflops_mean"] * 1e3, rel=1e-2)


def test_nested_products_count_once() -> None:
    # GIVEN E-94: the sheet lists vllm::rocm_unquantized_gemm and the aten operator inside it: 146 calls, 155.961803 GFLOP
    entry = ENTRY[865]
    want = entry["expected"]
    assert want["calls"] == 2 * 73 and want["gflop"] / 2 == pytest.approx(77.980902, abs=1e-6)
    # 24 blocks of two products with a bias (counted as one FLOP per result there), a router, and the head
    m = 32
    block = 2 * m * 5120 * 2880 + 2 * m * 2880 * 4096 + 2 * m * 32 * 2880
    biases = m * (5120 + 2880 + 32)
    assert 24 * (block + biases) + 2 * m * 201_088 * 2880 == pytest.approx(want["gflop"] / 2 * 1e9, rel=1e-6)
    # THEN with the recording of its graph's capture each of the 73 products counts once, without the biases
    ops = work(trace(entry)).ops
    mine = group(ops[ops["name"].astype(str).isin(entry["params"]["ops"]) & ops["modeled"]], "name")
    assert int(mine["calls"].sum()) == 73 and int(mine["flop"].sum()) == 24 * block + 2 * m * 201_088 * 2880
