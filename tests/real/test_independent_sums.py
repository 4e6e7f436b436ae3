"""Numbers of the pages against sums over the raw files: nothing here but JSON, intervals and formulas written once more, by hand.

Of the operator calls around the launch of a device event the outermost with a cost owns it, else the innermost.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from math import isclose, prod
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.report import Report, encode
from tests.support.captures import answered, capture
from tests.support.raw_trace import SIZE, Call, Device, raw, union
from tests.support.trace_builder import TraceBuilder

ROOT = Path(__file__).resolve().parents[2]
H100_BF16, H100_FP32, H100_BYTES = 132 * 4096 * 1830e6, 66.9e12, 3350e9
MI300_BF16, MI300_FP32, MI300_BYTES = 304 * 2048 * 2100e6, 163.4e12, 5300e9
OWLV2 = "tracelens/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz"
BERT = "tracelens/{}/gaunernst_bert-small-uncased__1016001.json.gz"
NORMS = "tracelens/perf_model/normalization/normalization_layer_test.json.gz"
COMPILED = "tracelens/torch_compile_triton/trace.json.gz"
RESNET = "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz"
LLM = "simulated_gpu_llm/rank0_4000.1700000000000000000.pt.trace.json.gz"
CPU = "cpu_transformer/worker0.1795234249397371427.pt.trace.json.gz"
RANK1 = "simulated_gpu_train/rank1_4001.1700000000000000000.pt.trace.json.gz"
TRACES = [OWLV2, BERT.format("h100"), BERT.format("mi300"), NORMS, COMPILED, RESNET]
SAMPLES = [LLM, RANK1]

real = pytest.mark.real


def answer(path: Path, name: str, **query: str) -> Report:
    report = answered(capture(path), name, **query)
    assert isinstance(report, Report)
    return report


def place(name: str) -> Path:
    if name in (*SAMPLES, CPU):
        return ROOT / "samples" / name
    folder = Path(os.environ.get("TB_SOL_TRACES", ROOT.parent / "shared" / "traces"))
    if not (folder / name).is_file():
        pytest.skip(f"no recorded trace {name}; set TB_SOL_TRACES to run the tests marked real")
    return folder / name


each = pytest.mark.parametrize("name", [*(pytest.param(t, marks=real) for t in TRACES), *SAMPLES])


def owned(path: Path, table: pd.DataFrame) -> dict[tuple[str, str], dict[Call, list[Device]]]:
    covered = set(table.loc[table["modelled_share"].astype(float) > 0, ["name", "input_shapes"]].itertuples(index=False, name=None))
    groups: dict[tuple[str, str], dict[Call, list[Device]]] = defaultdict(lambda: defaultdict(list))
    for event in raw(path):
        if event.around:
            owner = next((c for c in event.around if (c.name, c.sizes) in covered), event.around[-1])
            groups[owner.name, owner.sizes][owner].append(event)
    return groups


@each
def test_calls_and_time_of_every_row(name: str) -> None:
    # GIVEN device events, each with the calls around its launch WHEN each is given to its owner
    path = place(name)
    report = answer(path, "roofline")
    table = report.table("ops")
    groups = owned(path, table)
    got = table.groupby(["name", "input_shapes"], sort=False)[["calls", "measured_ns"]].sum()
    seen = 0
    for key, row in got.iterrows():
        if str(key[0]).startswith("("):  # type: ignore[index]
            continue
        calls = groups[key]  # type: ignore[index]
        # THEN time is, call by call, the union of its events, to the nanosecond
        assert int(row["measured_ns"]) == sum(union(events) for events in calls.values()), key
        # AND calls are as many; those whose events were all rounded to 0 us are left to the innermost operator
        if calls and all(union(events) for events in calls.values()):
            assert int(row["calls"]) == len(calls), key
            seen += 1
    assert seen >= min(0.9 * len(got), len(got) - 2)
    # AND what no row holds is what was launched outside every call
    lost = sum(d.end - d.start for d in raw(path) if not d.around)
    assert lost == int(table.loc[table["name"].str.startswith("("), "measured_ns"].sum())
    assert report.facts["device_ns"] == sum(d.end - d.start for d in raw(path)) == report.table("kinds")["device_ns"].sum()


# -- work by hand ---------------------------------------------------------------------------------------------

UNARY = {"sigmoid", "gelu", "silu", "tanh", "relu", "relu_", "neg", "exp", "sqrt", "rsqrt", "cos", "sin"}
BINARY = {"add", "add_", "mul", "mul_", "sub", "div"}


def by_hand(call: Call) -> tuple[int, int, int] | None:
    """(matrix FLOP, vector FLOP, bytes); None for what is not written out here."""
    name, tensors = call.name.removeprefix("aten::"), call.tensors
    moved = sum(elements * SIZE[kind] for _, kind, elements in tensors)
    if name in ("mm", "addmm", "bmm") and len(tensors) == (3 if name == "addmm" else 2):
        (left, kind, _), (right, _, _) = tensors[-2:]
        out = prod(left[:-1]) * right[-1]
        return 2 * out * left[-1], 0, moved + out * SIZE[kind]
    if not tensors:
        return None
    shape, kind, _ = tensors[0]
    n = prod(shape)
    if name == "_softmax":
        return 0, 5 * n, moved + n * SIZE[kind]
    if name == "copy_" and len(tensors) == 2:
        return 0, 0, n * SIZE[kind] + tensors[1][2] * SIZE[tensors[1][1]]
    if name in UNARY and len(tensors) == 1:
        return 0, n, moved + n * SIZE[kind]
    if name in BINARY and len(tensors) == 2 and tensors[1][1] == kind:
        rows = [(1,) * (8 - len(s)) + s for s, _, _ in tensors]
        out = prod(max(pair) for pair in zip(*rows, strict=True))
        return 0, out, moved + out * SIZE[kind]
    return None


@pytest.mark.parametrize(
    ("name", "bf16", "fp32", "bandwidth", "least"),
    [
        pytest.param(OWLV2, H100_BF16, H100_FP32, H100_BYTES, 40, marks=real),
        pytest.param(BERT.format("h100"), H100_BF16, H100_FP32, H100_BYTES, 7, marks=real),
        pytest.param(BERT.format("mi300"), MI300_BF16, MI300_FP32, MI300_BYTES, 7, marks=real),
        (LLM, H100_BF16, H100_FP32, H100_BYTES, 10),
        (RANK1, H100_BF16, H100_FP32, H100_BYTES, 10),
    ],
)
def test_work_and_limit_of_rows(name: str, bf16: float, fp32: float, bandwidth: float, least: int) -> None:
    path = place(name)
    table = answer(path, "roofline").table("ops")
    groups = owned(path, table)
    checked = 0
    for row in table.itertuples():
        costs = {by_hand(call) for call in groups[row.name, row.input_shapes]}
        whole = len(table[(table["name"] == row.name) & (table["input_shapes"] == row.input_shapes)]) == 1
        if "link" in row.flags or not whole or len(costs) != 1 or None in costs:
            continue
        # GIVEN the sizes of a row's calls WHEN FLOP and bytes are counted by hand THEN they are the row's
        ((matrix, vector, data),) = costs  # type: ignore[misc]
        assert (row.flop, row.vector_flop, row.bytes) == (row.calls * matrix, row.calls * vector, row.calls * data), row.id
        # AND the limit is the longest of matrix, vector and memory time, in whole ns; published peaks have four digits
        peak = {"bf16": bf16, "fp32": fp32}.get(row.dtype, fp32)
        limit = max(matrix / peak, vector / fp32, data / bandwidth) * 1e9 * row.calls
        assert isclose(row.sol_ns, limit, rel_tol=2e-4, abs_tol=1), row.id
        assert isclose(row.efficiency, limit / row.measured_ns, rel_tol=2e-4), row.id
        checked += 1
    assert checked >= least


GROUPS = ("op", "kernel", "module", "phase", "layer", "dtype", "step", "kind")


@each
def test_sums_do_not_depend_on_the_grouping(name: str) -> None:
    # GIVEN rows by operator and sizes WHEN rows are made in any other way THEN limits and work add up to the same
    path = place(name)
    report = answer(path, "roofline")
    wanted = {"sol_ns": "sol_ns", "flop": "total_flop", "vector_flop": "total_vector_flop", "bytes": "total_bytes"}
    for by in (*GROUPS, "op_shape"):
        table = answer(path, "roofline", by=by).table("ops")
        for column, fact in wanted.items():
            total = pd.to_numeric(table[column]).sum()
            assert isclose(total, float(report.facts[fact] or 0), rel_tol=1e-9, abs_tol=len(table) + 1), (by, column)  # type: ignore[arg-type]
    # AND limits of rows without a flag take no longer than these rows ran
    rows = report.table("ops")
    plain = rows[~rows["flags"].str.contains("above limit") & rows["efficiency"].notna()]
    assert pd.to_numeric(plain["sol_ns"]).sum() <= 1.02 * plain["measured_ns"].sum()


# -- whole models ---------------------------------------------------------------------------------------------


def convolutions() -> tuple[int, int]:
    """(multiply-adds of one image, of that in the stem) of ResNet-50: 7x7 stem, 3-4-6-3 bottlenecks, stride in the 3x3."""
    macs = [112 * 112 * 64 * 3 * 49]
    given = 64
    for width, blocks, side in ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)):
        for block in range(blocks):
            before = side * 2 if block == 0 and width > 64 else side
            macs += [before**2 * given * width, side**2 * width * width * 9, side**2 * width * 4 * width]
            macs += [side**2 * given * 4 * width] if block == 0 else []
            given = 4 * width
    return sum(macs), macs[0]


@real
def test_resnet50_is_its_closed_form() -> None:
    # GIVEN six training steps over 32 images WHEN products are counted: forward, gradient of input and of weight, none of the images
    report = answer(place(RESNET), "roofline")
    macs, stem = convolutions()
    conv, dense = 3 * macs - stem, 3 * 2048 * 1000
    assert report.facts["total_flop"] == 6 * 32 * 2 * (conv + dense)
    # THEN MFU is that over the steps at the FP32 peak of a V100: 15.7 TFLOP/s
    hand = 6 * 32 * 2 * (conv + dense) / 15.7e12 * 1e9 / float(report.facts["steps_ns"])  # type: ignore[arg-type]
    assert report.facts["mfu"] == pytest.approx(hand, rel=1e-9)


def test_language_model_is_its_closed_form() -> None:
    # GIVEN 4 layers of width 2048, 4 of 16 heads for keys, gated 5632, 8192 words, 2048 tokens; head in FP32, blocks run twice
    width, keys, feed, tokens, words, layers = 2048, 512, 5632, 2048, 8192, 4
    block = 2 * tokens * (2 * width * width + 2 * width * keys + 3 * width * feed) * layers
    attention = 4 * tokens * tokens * width // 2 * layers
    head = 2 * tokens * width * words
    facts = answer(place(LLM), "roofline").facts
    first = 3 * block + attention * 7 // 2 + 3 * head
    again = block + attention
    # THEN total work is that, twice for two steps
    assert facts["total_flop"] == 2 * (first + again)
    # AND MFU leaves out what ran again, HFU counts it; head at the FP32 peak, the rest at BF16
    time = 15_170_232 + 15_139_882
    # (MFU takes twice the forward for the backward pass of attention, which computes its scores again: 2.5 times)
    model = 2 * ((first - attention // 2 - 3 * head) / 989.4e12 + 3 * head / 66.9e12)
    seconds = 2 * ((first - 3 * head) / 989.4e12 + 3 * head / 66.9e12)
    assert facts["steps_ns"] == time
    assert facts["mfu"] == pytest.approx(model * 1e9 / time, rel=1e-9)
    assert facts["hfu"] == pytest.approx((seconds + 2 * again / 989.4e12) * 1e9 / time, rel=1e-9)
    # AND the rule of thumb, 6 x parameters x tokens, lies 9 % below: it leaves attention out
    parameters = layers * (2 * width * width + 2 * width * keys + 3 * width * feed) + words * width
    assert first / (6 * parameters * tokens) == pytest.approx(1.099, abs=1e-3)


def test_small_transformer_is_its_closed_form() -> None:
    # GIVEN 3 layers of width 256, 8 sequences of 128 tokens, 2048 words, causal attention, four steps on a CPU
    width, layers, batch, length, words = 256, 3, 8, 128, 2048
    tokens, parameters = batch * length, layers * 12 * width * width + width * words
    attention = 4 * batch * length * length * width // 2 * layers
    facts = answer(place(CPU), "roofline").facts
    # THEN work is 6 x parameters x tokens, and 3.5 times the forward of attention, a step; 4 % above the rule of thumb
    assert facts["total_flop"] == 4 * (6 * parameters * tokens + attention * 7 // 2)
    assert float(facts["total_flop"]) / (4 * 6 * parameters * tokens) == pytest.approx(1.0398, abs=1e-4)  # type: ignore[arg-type]


@each
def test_the_step_is_the_sum_of_its_parts(name: str) -> None:
    # GIVEN the parts between the measured step and its limit THEN they add up to it, each once
    path = place(name)
    report = answer(path, "overview")
    parts = report.table("parts")
    step = int(report.facts["step_ns"])  # type: ignore[arg-type]
    assert parts["time_ns"].iloc[0] == step and parts["time_ns"].min() >= 0
    assert abs(int(parts["time_ns"].iloc[1:].sum()) - step) <= len(parts)
    # AND all findings together save no more than there is
    findings = answer(path, "findings").findings
    assert findings and sum(f.saving_ns or 0 for f in findings) < step


# -- other limits ---------------------------------------------------------------------------------------------


def test_clock_and_sparsity() -> None:
    # GIVEN a table at 1830 MHz (matrix) and 1980 MHz (vector) WHEN limits are asked at 915 MHz
    path = place(LLM)
    base = answer(path, "roofline").facts
    slow = answer(path, "roofline", device_limits="H100_SXM@915MHz").facts
    sparse = answer(path, "roofline", device_limits="H100_SXM+sparse").facts
    for dtype in ("tf32", "fp16", "bf16", "fp8", "int8"):
        peak = f"peak_flop_per_s_{dtype}"
        # THEN matrix peaks halve, and double with 2:4 sparsity
        assert slow[peak] == base[peak] / 2 and sparse[peak] == base[peak] * 2  # type: ignore[operator]
    # AND vector peaks follow their own clock; bandwidth stays
    assert slow["peak_flop_per_s_vector"] == pytest.approx(base["peak_flop_per_s_vector"] * 915 / 1980)  # type: ignore[operator]
    assert sparse["peak_flop_per_s_vector"] == base["peak_flop_per_s_vector"]
    assert slow["peak_bytes_per_s"] == sparse["peak_bytes_per_s"] == base["peak_bytes_per_s"] == H100_BYTES


@pytest.mark.parametrize("wrong", ["H101", "H100_SXM@0MHz", "H100_SXM@", "H100_SXM+foo", "V100_SXM2+sparse", "H100_SXM@1MHz@2MHz"])
def test_wrong_limits_say_what_to_write(wrong: str) -> None:
    with pytest.raises(BadQuery) as caught:
        sol.open_capture(str(place(LLM))).analyze("roofline", device_limits=wrong)
    assert caught.value.hint and "\n" not in caught.value.line()


def test_what_if_is_the_ratio_of_what_binds() -> None:
    # GIVEN an H100 and an H200: equal peaks, bandwidth 4800 / 3350
    path = place(LLM)
    same, there = answer(path, "whatif", device="H100_SXM"), answer(path, "whatif", device="H200")
    assert same.facts["sol_ns"] == same.facts["sol_then_ns"] and same.facts["ratio"] == 1
    rows = answer(path, "roofline").table("ops")
    rows = rows[rows["sol_ns"].notna()]
    by_name = {f"{name} · {dtype}": set(g["bound"]) for (name, dtype), g in rows.groupby(["name", "dtype"])}
    table = there.table("operators").set_index("name")
    seen = set()
    for name, bounds in by_name.items():
        if name in table.index and len(bounds) == 1:
            # THEN memory-bound operators gain exactly the bandwidth, compute-bound ones nothing
            (bound,) = bounds
            seen.add(bound)
            assert table.loc[name, "ratio"] == pytest.approx(4800 / 3350 if bound == "memory" else 1.0, rel=1e-12), name
    assert seen == {"memory", "compute"}


# -- bad input ------------------------------------------------------------------------------------------------

BF16 = "c10::BFloat16"
HOSTILE: list[tuple[str, list[Any], list[Any]]] = [
    ("aten::mm", [], []),
    ("aten::mm", [["s0", 64], [64, 64]], [BF16] * 2),
    ("aten::mm", [[-64, 64], [64, 64]], [BF16] * 2),
    ("aten::mm", [[64, 32], [64, 64]], [BF16] * 2),
    ("aten::mm", [[10**30, 64], [64, 10**200]], [BF16] * 2),
    ("aten::mm", [[64.5, 64], [64, 64]], [BF16] * 2),
    ("aten::mm", [[2**40, 1], [1, 2**40]], [BF16] * 2),
    ("aten::cat", [[[[[4]]]]], ["TensorList"]),
    ("aten::add", [[3, 4], [5, 4]], ["float"] * 2),
    ("aten::cudnn_convolution", [[1, 3, 8, 8], [8, 5, 3, 3]], ["float"] * 2),
    ("<script>alert('x')</script>\n\"&", [[4, 4]], ["float"]),
]


@pytest.mark.parametrize("device", ["NVIDIA Wonder 9000", "<img src=x>\n\"'", "NVIDIA H100 80GB HBM3"])
def test_hostile_recordings_are_answered(device: str, tmp_path: Path) -> None:
    # GIVEN calls whose sizes say nothing, contradict or cannot be, one of an unknown type, and one good one
    t = TraceBuilder(device=device)
    square: list[Any] = [[64, 64], [64, 64]]
    for at, (name, shapes, types) in enumerate([*HOSTILE, ("aten::mm", square, ["Wonder"] * 2), ("aten::mm", square, [BF16] * 2)]):
        t.op(name, 5000 * at, 1000, shapes=shapes, types=types)
        t.launch(f"kernel{at}<b>\n", at=5000 * at + 100, start=5000 * at + 2000, duration=500)
    path = t.write(tmp_path / "t.pt.trace.json")
    opened = sol.open_capture(str(path))
    # WHEN every analysis is asked THEN each answers, in JSON without NaN and infinity
    for name in sol.analyses():
        if name in ("memory_plan", "scaling"):
            continue
        json.loads(encode(opened.analyze(name)), parse_constant=pytest.fail)
    report = opened.analyze("roofline")
    assert isinstance(report, Report)
    rows = report.table("ops")
    # AND only the good call has work of full cost; that of unknown type has FLOP without bytes or limit; nothing is 0 in place of unknown
    good = rows[(rows["input_shapes"] == "64×64 64×64") & (rows["dtype"] == "bf16")]
    odd = rows[(rows["input_shapes"] == "64×64 64×64") & (rows["dtype"] == "")]
    assert good["flop"].tolist() == odd["flop"].tolist() == [2 * 64**3] and good["bytes"].tolist() == [3 * 64 * 64 * 2]
    assert odd["bytes"].isna().all() and odd["sol_ns"].isna().all()
    others = rows.drop(index=[*good.index, *odd.index])
    assert others[["flop", "vector_flop", "bytes", "sol_ns", "efficiency"]].isna().all(axis=None)
    # AND each of them stands among what is not modeled, with a reason
    assert len(report.table("unmodelled")) >= len(HOSTILE) - 1 and (report.table("unmodelled")["why"].str.len() > 0).all()
