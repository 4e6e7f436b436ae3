"""The simulated samples against the truth their scripts wrote beside them: what the product reads is what was put in."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tests.real.oracle_checks import gemm_of
from tests.support.captures import capture, report

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {
    "simulated_gpu_train": "simulate_gpu.py",
    "simulated_gpu_llm": "simulate_llm.py",
    "simulated_copies": "simulate_copies.py",
}
TRUTH: dict[str, dict[str, dict[str, Any]]] = {
    folder: json.loads((ROOT / "samples" / folder / "truth.json").read_text()) for folder in SCRIPTS
}
each_rank = pytest.mark.parametrize(("folder", "worker"), [(f, w) for f, ranks in TRUTH.items() for w in sorted(ranks)])


def load(folder: str, worker: str) -> tuple[Capture, dict[str, Any]]:
    (path,) = (ROOT / "samples" / folder).glob(f"{worker}.*.json.gz")
    return capture(path), TRUTH[folder][worker]


@each_rank
def test_events_steps_and_device_time(folder: str, worker: str) -> None:
    # GIVEN one simulated rank WHEN it is read THEN counts, steps and unions are those the simulator added up
    c, truth = load(folder, worker)
    assert c.facts.total_events == truth["total_events"] and len(c.device) == truth["device_events"]
    assert c.facts.rank == int(worker[4]) and c.facts.world_size == len(TRUTH[folder])
    assert c.steps["number"].tolist() == [s["number"] for s in truth["steps"]]
    durations = (c.steps["host_end_ns"] - c.steps["host_start_ns"]).tolist()
    assert durations == [s["duration_ns"] for s in truth["steps"]]
    row = report(c, "gpu_breakdown").table("devices").set_index("device").loc["all"]
    assert int(row["busy_ns"]) == truth["device_busy_ns"] and int(row["total_ns"]) == truth["device_extent_ns"]
    facts = report(c, "links").facts
    assert (facts["before_window_events"], facts["before_window_ns"]) == (
        truth["before_window"]["events"],
        truth["before_window"]["total_ns"],
    )
    assert int(c.device.loc[c.device["graph"], "duration_ns"].sum()) == truth["graph"]["total_ns"]
    assert facts["fwdbwd_flow_pairs"] == truth["forward_backward_flows"] == facts["backward_linked"]


@each_rank
def test_kernels_copies_and_collectives(folder: str, worker: str) -> None:
    c, truth = load(folder, worker)
    # GIVEN the kernels by name THEN calls and time agree for each
    table = report(c, "kernels").table("kernels")
    got = {n: {"calls": int(k), "total_ns": int(t)} for n, k, t in zip(table["name"], table["calls"], table["total_ns"], strict=True)}
    assert got == truth["kernels"]
    # AND the copies by direction and memory kind
    table = report(c, "memcpy", by="kind").table("copies")
    for name, want in truth["copies"].items():
        direction, _, kinds = name.partition(" ")
        rows = table[table["direction"] == direction]
        if kinds:
            src, _, dst = kinds.partition(" -> ")
            rows = rows[(rows["src_kind"] == src) & (rows["dst_kind"] == dst)]
        assert (int(rows["count"].sum()), int(rows["bytes"].sum()), int(rows["time_ns"].sum())) == tuple(want.values()), name
    # AND the all-reduces: two bytes an element
    sizes = c.tables["collectives"]
    duration = c.device["duration_ns"].to_numpy()[sizes["device"].to_numpy()]
    want = truth["collectives"]
    assert (len(sizes), int(sizes["in_elements"].sum()) * 2, int(duration.sum())) == (want["count"], want["bytes"], want["time_ns"])


@each_rank
def test_operators_and_modules(folder: str, worker: str) -> None:
    c, truth = load(folder, worker)
    # GIVEN operators by name THEN calls and directly launched device time agree
    table = report(c, "operators").table("operators").set_index("name")
    for name, want in truth["operators"].items():
        assert (int(table.loc[name, "calls"]), int(table.loc[name, "device_self_ns"])) == (want["calls"], want["device_self_ns"]), name
    # AND module instances: forward by containment, backward through the autograd links
    table = report(c, "modules").table("modules").groupby("name")[["calls", "device_total_ns", "backward_device_ns"]].sum()
    for name, want in truth["modules"].items():
        got = tuple(int(v) for v in table.loc[name])
        assert got == (want["calls"], want["device_total_ns"], want["backward_device_ns"]), name


@each_rank
def test_matrix_products_and_memory(folder: str, worker: str) -> None:
    c, truth = load(folder, worker)
    # GIVEN every shape of matrix product THEN calls, FLOP and device time agree
    table = report(c, "roofline", by="op_shape").table("ops")
    got: dict[str, list[int]] = {}
    for name, shapes, calls, flop, time in zip(
        table["name"], table["input_shapes"], table["calls"], table["flop"], table["measured_ns"], strict=True
    ):
        size = gemm_of(name, shapes) if name in ("aten::mm", "aten::addmm") else None
        if size:
            sums = got.setdefault(f"{name} {size[1]}x{size[2]}x{size[3]}", [0, 0, 0])
            bias = int(calls) * size[1] * size[2] if name == "aten::addmm" else 0  # bytes for the product, adds for the simulator
            for i, value in enumerate((calls, flop + bias, time)):
                sums[i] += int(value)
    assert got == {name: list(want.values()) for name, want in truth["gemms"].items()}
    # AND the highest point of allocated memory
    assert int(c.tables["memory"]["total_allocated"].max()) == truth["peak_allocated_bytes"]


@each_rank
def test_phases_by_launching_thread(folder: str, worker: str) -> None:
    c, truth = load(folder, worker)
    # GIVEN annotations WHEN device events are attributed by the thread that launched them
    rows = c.device["annotation"].to_numpy()
    names, parents, kind = c.host["name"].astype(str).to_numpy(), c.host["parent"].to_numpy(), c.host["kind"].to_numpy()
    sums: dict[str, int] = {}
    for row, duration in zip(rows, c.device["duration_ns"].to_numpy(), strict=True):
        seen = set()
        while row >= 0:
            if kind[row] == S.ANNOTATION:
                seen.add(names[row])
            row = parents[row]
        for name in seen:
            sums[name] = sums.get(name, 0) + int(duration)
    # THEN each annotation holds what the simulator launched inside it
    assert sums == {name: want["device_ns"] for name, want in truth["phases"].items() if want["device_ns"]}


@each_rank
def test_forward_work_that_runs_again(folder: str, worker: str) -> None:
    # GIVEN what the simulator ran twice WHEN the recording is read THEN every page finds that time, and no other
    c, truth = load(folder, worker)
    want = truth["recompute"]["total_ns"]
    for name in ("operators", "modules"):
        assert report(c, name).facts["recompute_ns"] == want, name
    ops = work(c, device_for(c)).ops
    again = ops[ops["recompute"].to_numpy()]
    assert int(again["device_events"].sum()) == truth["recompute"]["events"] and (again["direction"] == "fwd").all()


@pytest.mark.parametrize("folder", list(SCRIPTS))
def test_the_sample_is_what_its_script_writes(folder: str, tmp_path: Path) -> None:
    # GIVEN the committed script WHEN it runs once more, in a copy of its folder
    script = SCRIPTS[folder]
    for name in (script, "simulator.py"):
        (tmp_path / name).write_text((ROOT / "samples" / name).read_text())
    subprocess.run([sys.executable, str(tmp_path / script)], check=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""})
    # THEN it writes the committed recordings, event for event
    for path in sorted((ROOT / "samples" / folder).iterdir()):
        fresh = (tmp_path / folder / path.name).read_bytes()
        committed = path.read_bytes()
        if path.suffix == ".gz":
            fresh, committed = gzip.decompress(fresh), gzip.decompress(committed)
        assert fresh == committed, f"{path.name} is stale: run samples/{script}"


def test_the_language_model_tells_its_story() -> None:
    # GIVEN a head in FP32, checkpointed blocks and an optimizer of many passes, put in on purpose
    c, _ = load("simulated_gpu_llm", "rank0_4000")
    answer = report(c, "overview")
    # THEN these are the first three findings, and the sentence on top names the first
    rules = [f.rule for f in answer.findings[:3]]
    assert len(rules) == len(set(rules)) == 3
    titles = " ".join(f.title.lower() for f in answer.findings[:3])
    assert all(word in titles for word in ("fp32", "second time", "optimizer"))
    assert "fp32" in answer.headline.lower()
    # AND in BF16 the head's limit falls: 6 x 2 x 2048 x 8192 x 2048 FLOP at 989.4 instead of 66.9 TFLOP/s, over two steps
    asked = (report(c, "whatif", device="H100_SXM", dtype=d) for d in ("recorded", "bf16"))
    here, there = (float(r.facts["sol_then_ns"]) for r in asked)  # type: ignore[arg-type]
    assert here - there == pytest.approx(3 * 2 * 2048 * 8192 * 2048 * (1 / 66.9e12 - 1 / 989.4e12) * 1e9, rel=1e-3)
