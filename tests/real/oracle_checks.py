"""How each quantity of the oracle file is read off the product.

A check takes a capture, the entry's parameters and its expected value, and returns the value the product gives in the same shape.
Times of the oracles are microseconds, the product's nanoseconds; FLOP are GFLOP there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pandas as pd

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tests.support.captures import report

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
Check: TypeAlias = Callable[[Capture, dict[str, Value], Value], Value]
CHECKS: dict[str, Check] = {}


def check(*quantities: str) -> Callable[[Check], Check]:
    def register(function: Check) -> Check:
        CHECKS.update(dict.fromkeys(quantities, function))
        return function

    return register


def us(ns: object) -> float:
    """Microseconds; a null of the product is an error here, not a zero."""
    assert ns is not None and ns == ns, "the product says unknown"
    return float(ns) / 1000.0  # type: ignore[arg-type]


# -- what the file holds ----------------------------------------------------------------------------------------


@check("event_count_total")
def _total(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    return int(report(c, "health").facts["total_events"])  # type: ignore[arg-type]


@check("event_count_by_category")
def _categories(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    table = report(c, "health").table("categories")
    rows = table[table["phase"] == params["ph"]]
    return {str(k): int(v) for k, v in zip(rows["category"], rows["count"], strict=True)}


@check("flow_event_counts")
def _flows(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    table = report(c, "health").table("categories")
    rows = table[table["phase"].isin(["s", "t", "f"])]
    return {f"{k}/{p}": int(v) for k, p, v in zip(rows["category"], rows["phase"], rows["count"], strict=True)}


@check("gpu_link_counts")
def _links(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    facts = report(c, "health").facts
    device, flows = c.device, c.tables["flows"]
    launch = flows[flows["category"].isin(["ac2g", "async", "async_gpu", "async_cpu_to_gpu"])]
    halves = [set(launch.loc[launch["phase"] == phase, "id"]) for phase in ("s", "f")]
    both = device["correlation"].isin(halves[0] & halves[1]) | device["graph"]
    linked = device["link"].isin([S.BY_CORRELATION])
    return {
        "gpu_events": int(facts["device_events"]),  # type: ignore[arg-type]
        "linked_by_correlation": int(facts["linked_device_events"]),  # type: ignore[arg-type]
        "linked_with_both_ac2g_halves_or_graph": int((linked & both).sum()),
    }


@check("user_annotation_kinds")
def _annotation_kinds(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    if params["cat"] == "gpu_user_annotation":
        return int(c.tables["annotations_device"]["name"].nunique())
    before_last_step = c.host["start_ns"] < c.steps["host_start_ns"].max()  # the entry's step filter
    return int(c.host.loc[(c.host["kind"] == S.ANNOTATION) & before_last_step, "name"].nunique())


@check("streams")
def _streams(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    return sorted(int(s) for s in c.device["stream"].unique() if s >= 0)


@check("no_gpu_trace")
def _no_gpu(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    answer = c.analyze("gpu_breakdown")
    assert not answer.available, "a CPU recording has no GPU breakdown"
    return {"queue_length_series": len(c.device), "memory_bw": None}


# -- device time ------------------------------------------------------------------------------------------------

BREAKDOWN = {
    "computation_time": "computation_ns", "exposed_comm_time": "exposed_communication_ns", "exposed_memcpy_time": "exposed_memcpy_ns",
    "busy_time": "busy_ns", "idle_time": "idle_ns", "total_time": "total_ns", "total_comm_time": "communication_ns",
    "total_memcpy_time": "memcpy_ns", "comp_comm_overlap": "overlap_ns",
}  # fmt: skip


def devices(c: Capture, scope: str = "all", rule: str = "narrow") -> pd.Series:
    """The row of all devices of `gpu_breakdown`."""
    table = report(c, "gpu_breakdown", scope=scope, communication_rule=rule).table("devices")
    row: pd.Series = table[table["device"] == "all"].iloc[0]
    return row


@check("gpu_breakdown")
def _breakdown(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    row = devices(c, "all" if params["gpu_events"] == "all" else "linked")
    return {name: us(row[column]) for name, column in BREAKDOWN.items()}


@check("comm_comp_overlap_pct")
def _overlap(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    row = devices(c)
    communication = float(row["communication_ns"])
    return 100.0 * float(row["overlap_ns"]) / communication if communication else 0.0


@check("temporal_breakdown_pct")
def _temporal(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    row = devices(c)
    total = float(row["total_ns"])
    return {
        "idle": 100 * float(row["idle_ns"]) / total,
        "compute": 100 * float(row["computation_ns"]) / total,
        "non_compute": 100 * float(row["exposed_memcpy_ns"] + row["exposed_communication_ns"]) / total,
    }


def kernels(c: Capture) -> pd.DataFrame:
    return report(c, "kernels").table("kernels")


@check("kernel_totals")
def _kernel_totals(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    table = kernels(c)
    return {"count": int(table["calls"].sum()), "distinct_names": int(table["name"].nunique()), "sum_us": us(table["total_ns"].sum())}


@check("kernel_by_name")
def _kernel_by_name(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    table = kernels(c)
    rows = table[table["name"] == params["name"]]
    return {"count": int(rows["calls"].sum()), "sum_us": us(rows["total_ns"].sum())}


@check("short_kernels")
def _short(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    linked = c.device["link"] == S.BY_CORRELATION  # the reference sheet lists linked kernels only
    duration = c.device.loc[(c.device["kind"] == S.KERNEL) & linked, "duration_ns"]
    short = duration[duration < float(params["threshold_us"]) * 1000]  # type: ignore[arg-type]
    return {"count": len(short), "sum_us": us(short.sum())}


@check("memcpy_by_direction")
def _copies(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    table = report(c, "memcpy", by="direction").table("copies")
    rows = table[table["direction"] == params["direction"]]
    return {
        "count": int(rows["count"].sum()), "bytes": int(rows["bytes"].fillna(0).sum()), "sum_us": us(rows["time_ns"].sum()),
        "without_bytes_arg": int(rows["without_bytes"].sum()),
    }  # fmt: skip


# -- operators and modules --------------------------------------------------------------------------------------


@check("op_device_time")
def _op_device_time(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    table = report(c, "operators").table("operators")
    rows = table[table["name"] == params["op"]]
    launching = c.device.loc[c.device["operator"] >= 0, "operator"].unique()
    names = c.host["name"].to_numpy()[launching]
    return {"count": int((names == params["op"]).sum()), "us": us(rows["device_self_union_ns"].sum())}


def modules(c: Capture) -> pd.DataFrame:
    """Module rows; device time outside every module has a row without calls."""
    table = report(c, "modules").table("modules")
    return table[table["calls"].fillna(0) > 0]


@check("nn_module_counts")
def _module_counts(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    table = (
        modules(c)
        .groupby("name", as_index=False)
        .agg({"class_name": "first", "calls": "sum", "device_total_ns": "sum", "device_events": "sum"})
    )
    return {
        "instances": len(table), "calls": int(table["calls"].sum()), "classes": int(table["class_name"].nunique()),
        "instances_with_gpu_time": int((table["device_events"] > 0).sum()),
    }  # fmt: skip


@check("nn_module_device_time")
def _module_time(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    table = modules(c)
    rows = table[table["name"] == params["module"]]
    return {"calls": int(rows["calls"].sum()), "sum_us": us(rows["device_total_ns"].sum()), "gpu_events": int(rows["device_events"].sum())}


@check("nn_module_class_device_time")
def _class_time(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    sums = modules(c).groupby("class_name")["device_total_ns"].sum()
    return {str(name): us(value) for name, value in sums.items()}


# -- forward and backward, annotations, communication -----------------------------------------------------------


@check("fwd_bwd_flow_pairs")
def _flow_pairs(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    return int(report(c, "links").facts["fwdbwd_flow_pairs"])  # type: ignore[arg-type]


@check("fwd_bwd_links_by_sequence_number")
def _sequence_links(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    facts = report(c, "links").facts
    return {
        "sequence_numbers_with_evaluate_function": int(facts["sequence_numbers_with_backward"]),  # type: ignore[arg-type]
        "linked_to_a_forward_op_on_another_thread": int(facts["backward_linked"]),  # type: ignore[arg-type]
    }


@check("gpu_kernel_annotation")
def _annotation_of(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    row = c.device[c.device["correlation"] == params["correlation"]].iloc[0]
    assert isinstance(expected, dict)
    name = str(row["name"])
    wanted = str(expected.get("kernel_contains", ""))
    found: dict[str, Value] = {"annotation": str(c.host["name"].iloc[int(row["annotation"])])}
    return found | ({"kernel": name} if "kernel" in expected else {"kernel_contains": wanted if wanted in name else name})


@check("gpu_kernels_after_step_filter")
def _step_filter(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    call = c.device["call"].to_numpy()
    starts = c.host["start_ns"].to_numpy()[call[call >= 0]]
    return int((starts < int(c.steps["host_start_ns"].max())).sum())


@check("collective")
def _collective(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    table = c.tables["collectives"]
    keys = {"name": "name", "dtype": "dtype", "in_nelems": "in_elements", "out_nelems": "out_elements", "group_size": "group_size",
            "pg": "process_group"}  # fmt: skip
    mask = np.logical_and.reduce([table[column].astype(str) == str(params[key]) for key, column in keys.items()])
    rows = c.device["duration_ns"].to_numpy()[table["device"].to_numpy()[mask]]
    return {"count": len(rows), "sum_us": us(rows.sum())}


@check("nccl_kernels")
def _nccl(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    names = c.device["name"].astype(str)
    mine = names.str.contains(str(params["name_contains"]), regex=False) & c.device["communication_narrow"]
    longest = int(c.device.loc[mine, "duration_ns"].idxmax())
    row = c.tables["collectives"].set_index("device").loc[longest]
    return {
        "count": int(mine.sum()),
        "longest": {
            "collective": str(row["name"]), "in_nelems": int(row["in_elements"]), "out_nelems": int(row["out_elements"]),
            "pg": str(row["process_group"]), "pg_desc": str(row["process_group_description"]), "pg_ranks": str(row["ranks"]),
        },
    }  # fmt: skip


# -- single events ----------------------------------------------------------------------------------------------


def _event(c: Capture, index: Value) -> pd.Series:
    row: pd.Series = c.device[c.device["index"] == index].iloc[0]
    return row


@check("launch_delay")
def _launch_delay(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    row = _event(c, params["kernel_event_index"])
    return us(row["start_ns"] - c.host["start_ns"].iloc[int(row["call"])])


@check("kernel_kernel_delay")
def _kernel_gap(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    first, second = _event(c, params["from_event_index"]), _event(c, params["to_event_index"])
    return us(second["start_ns"] - first["start_ns"] - first["duration_ns"])


@check("kernel_launch_stats")
def _launch_stats(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    row = c.device[c.device["correlation"] == params["correlation"]].iloc[0]
    call = c.host.iloc[int(row["call"])]
    delay = row["start_ns"] - call["start_ns"] - call["duration_ns"]
    return {"cpu_duration": us(call["duration_ns"]), "gpu_duration": us(row["duration_ns"]), "launch_delay": us(max(delay, 0))}


# -- speed of light ---------------------------------------------------------------------------------------------

GEMMS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


def modeled(c: Capture) -> pd.DataFrame:
    """Rows of the roofline; kernels launched before the window, which only likeness explains, are not in the references."""
    table = report(c, "roofline", by="op_shape").table("ops")
    return table[~table["id"].astype(str).str.endswith("| before the window")]


def dims(text: object) -> list[list[int]]:
    """Sizes of the tensors in the shown input shapes (`512 141×512 512×512`), in order."""
    return [[int(n) for n in part.split("×")] for part in re.findall(r"\d+(?:×\d+)*", str(text))]


def gemm_of(name: object, text: object) -> tuple[int, int, int, int] | None:
    """B, M, N, K of a matrix product from its input shapes; the first input of addmm and baddbmm is the bias, a third one `out`."""
    operands = dims(text)[1:3] if name in ("aten::addmm", "aten::baddbmm") else dims(text)[:2]
    if len(operands) < 2 or min(map(len, operands)) < 2:
        return None
    a, b = operands
    return (a[0] if len(a) == 3 else 1, a[-2], b[-1], a[-1])


@check("gemm_flops_total")
def _gemm_total(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    table = modeled(c)
    rows = table[table["name"].isin(params["ops"])]  # type: ignore[arg-type]
    return {"calls": int(rows["calls"].sum()), "gflop": with_bias_adds(rows) / 1e9, "kernel_us": us(rows["measured_ns"].sum())}


def with_bias_adds(rows: pd.DataFrame) -> float:
    """FLOP as the oracles define them: one more add per result element of addmm and baddbmm.

    The product's convention counts a bias as bytes, not as FLOP (`cost/model.py`), and says so beside the number.
    """
    adds = 0
    for name, shapes, calls in zip(rows["name"], rows["input_shapes"], rows["calls"], strict=True):
        size = gemm_of(name, shapes) if name in ("aten::addmm", "aten::baddbmm") else None
        if size:
            adds += int(calls) * size[0] * size[1] * size[2]
    return float(rows["flop"].sum()) + adds


def _gemm_rows(c: Capture, op: Value, b: int, m: int, n: int, k: int) -> pd.DataFrame:
    table = modeled(c)
    table = table[table["name"] == op]
    return table[np.array([gemm_of(op, s) == (b, m, n, k) for s in table["input_shapes"]], bool)]


@check("gemm_shape")
def _gemm_shape(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    rows = _gemm_rows(c, params["op"], *(int(str(params[x])) for x in "BMNK"))
    return _totals(rows)


def _totals(rows: pd.DataFrame) -> dict[str, Value]:
    calls, flop, time = int(rows["calls"].sum()), with_bias_adds(rows), float(rows["measured_ns"].sum())
    assert calls, "no such row in the roofline table"
    return {"calls": calls, "gflop_per_call": flop / calls / 1e9, "kernel_us": time / 1e3, "tflops_from_totals": flop / time / 1e3}


def _perf(rows: pd.DataFrame) -> dict[str, Value]:
    sums = _totals(rows)
    calls, size = int(rows["calls"].sum()), float(rows["bytes"].sum())
    return {
        "calls": calls, "gflop_per_call": sums["gflop_per_call"], "data_moved_MiB": size / calls / 2**20,
        "flops_per_byte": with_bias_adds(rows) / size, "kernel_us_mean": float(rows["measured_ns"].sum()) / calls / 1e3,
    }  # fmt: skip


@check("gemm_perf")
def _gemm_perf(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    return _perf(_gemm_rows(c, params["op"], *(int(str(params.get(x, 1))) for x in "BMNK")))


def _attention_rows(c: Capture, op: Value, q: list[int], k: list[int]) -> pd.DataFrame:
    table = modeled(c)
    table = table[table["name"] == op]
    return table[np.array([dims(s)[:2] == [q, k] for s in table["input_shapes"]], bool)]


@check("attention_fwd")
def _attention(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    b, h, nq, nkv, d = (int(str(params[x])) for x in ("B", "H", "Nq", "Nkv", "Dqk"))
    return _totals(_attention_rows(c, params["op"], [b, h, nq, d], [b, h, nkv, d]))


@check("attention_fwd_perf")
def _attention_perf(c: Capture, params: dict[str, Value], expected: Value) -> Value:
    q, k = json.loads(str(params["input_dims"]))[:2]
    rows = _attention_rows(c, params["op"], q, k)
    # The product also counts the log-sum-exp that the forward writes, one float per row of scores; the reference does not.
    return _perf(rows.assign(bytes=rows["bytes"] - rows["calls"] * 4 * q[0] * q[1] * q[2]))
