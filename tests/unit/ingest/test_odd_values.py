"""Single values that no recording has: each is left out or one message, and the good events around it stay."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest

from tb_sol_plugin.errors import BadInput, BadQuery
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.goodput import points
from tb_sol_plugin.metrics.memory.curves import whole
from tb_sol_plugin.model.query import parse
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.store.open import open_run
from tests.support.trace_builder import Raw, TraceBuilder


def issues(path: Path) -> dict[str, int]:
    table = read(str(path)).tables["issues"]
    return dict(zip(table["reason"].astype(str), table["count"].astype(int), strict=True))


def test_arguments_within_each_other_cost_their_own_event_only(tmp_path: Path) -> None:
    # GIVEN 1,000 good events, and one whose shapes are lists within lists 100,000 deep (it lost all of them)
    t = TraceBuilder()
    for i in range(1_000):
        t.op("aten::a", i * 1_000, 900, shapes=[[2, 2]], types=["float"])
    deep = "[" * 100_000 + " " + "]" * 100_000
    t.op("aten::deep", 2_000_000, 900, args={"Input Dims": Raw("@"), "Input type": ["float"]})
    path = tmp_path / "w.pt.trace.json"
    path.write_bytes(t.data().replace(b'"@"', deep.encode()).replace(b"@", deep.encode()))
    # WHEN read and analyzed THEN every event is there, and no analysis fails
    capture = read(str(path))
    assert len(capture.host) == 1_001
    for name in ("overview", "operators", "roofline", "steps", "memory"):
        capture.analyze(name)


def test_a_kernel_at_time_0_beside_times_since_1970_leaves_the_window_alone(tmp_path: Path) -> None:
    # GIVEN events of today, and one kernel at 0
    now = 1_700_000_000_000_000.0
    events = [{"ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": 7, "ts": now + i, "dur": 0.5} for i in range(5)]
    events.append({"ph": "X", "cat": "kernel", "name": "zero", "pid": 0, "tid": 7, "ts": 0, "dur": 0.5})
    path = tmp_path / "w.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    # WHEN read THEN the window is that of the five (it was 53.9 years), and health tells of the sixth
    capture = read(str(path))
    assert capture.facts.extent_ns == (0, 4_500) and len(capture.device) == 5
    assert issues(path)["time of another clock"] == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.json", "[[1, 2, 9223372036854775808], [[0,1,2,3,4,5,6,7,8],[0,1,2,3,4,5,6,7,8],[0,1,2,3,4,5,6,7,8]]]"),
        ("m.raw.json", "[[9223372036854775808, 2, 8, 0], [1, 2, 8, 0]]"),
    ],
)
def test_a_number_above_63_bits_in_a_memory_timeline_is_one_message(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match="larger than any memory"):
        read(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("m.json", "[[1, 2], [[0,1,2,3,4,5,6,7,-8],[0,1,2,3,4,5,6,7,-9]]]", "impossible memory size"),
        ("m.raw.json", "[[1, 2, 8, 0], [2, 4, -16, 0], [3, 2, 32, 1]]", "memory below zero"),
    ],
)
def test_memory_is_never_below_zero(name: str, text: str, reason: str, tmp_path: Path) -> None:
    # GIVEN a timeline that holds less than nothing WHEN read THEN it holds nothing then, and health says so
    (tmp_path / name).write_text(text)
    assert (read(str(tmp_path / name)).tables["memory_timeline"]["bytes"] >= 0).all() and issues(tmp_path / name)[reason] >= 1


def test_replicas_that_no_job_has_are_one_bad_point() -> None:
    # GIVEN points of 1e184 replicas, and 1e9 nodes times four
    text = json.dumps(
        {
            "num_nodes": [1, 1],
            "num_replicas": [1e184, 4],
            "atomic_bsz": [32, 32],
            "accum_step_time": [0.3] * 2,
            "optim_step_time": [0.4] * 2,
        }
    )
    found = points.parse(text, "x.json")
    # THEN the first is told, the second stays
    assert len(found.points) == 1 and "larger than any job's" in found.bad[0]
    with pytest.raises(BadQuery):
        points.parse('{"run": ["\ud800"]}', "x.json")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "NaN"])
def test_a_number_of_a_query_is_finite(value: str) -> None:
    with pytest.raises(BadQuery, match="parameter 'gap_us' does not fit"):
        parse(registry()["gpu_breakdown"].query, {"gap_us": value})


@pytest.mark.parametrize(
    "name", [b"a\nb.pt.trace.json", b"\xff\xfe.pt.trace.json", b"a\x1b[31m.pt.trace.json"], ids=["newline", "no UTF-8", "escape"]
)
def test_file_names_of_any_bytes_open(name: bytes, tmp_path: Path) -> None:
    # GIVEN a file whose name is no UTF-8 or holds a newline or an escape
    t = TraceBuilder()
    t.op("aten::a", 0, 900)
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "wb") as stream:
        stream.write(t.data())
    # WHEN opened alone and with its folder THEN it is there under a name that can be sent
    for where in (os.fsdecode(path), str(tmp_path)):
        run, _ = open_run(where, cache=False)
        capture = run.captures[0]
        assert len(capture.host) == 1
        capture.facts.file.encode()
        json.loads(json.dumps(capture.analyze("overview").title))


def test_odd_values_warn_of_nothing(tmp_path: Path) -> None:
    # GIVEN NaN, infinity and huge numbers wherever a number stands WHEN read and analyzed THEN numpy has nothing to warn of
    t = TraceBuilder()
    for i, odd in enumerate(("NaN", "1e308", "-1e308", "9223372036854775807", "Infinity", "1e-320", "-5")):
        t.op(
            "aten::mm", i * 1_000, 900, args={"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"], "Sequence number": Raw(odd)}
        )
        t.kernel(f"k{i}", i * 1_000 + 100, 80, args={"blocks per SM": Raw(odd), "bytes": Raw(odd), "memory bandwidth (GB/s)": Raw(odd)})
    path = t.write(tmp_path / "w.pt.trace.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        capture = read(str(path))
        for name in ("overview", "kernels", "operators", "gpu_breakdown", "memcpy"):
            capture.analyze(name)


def test_totals_of_memory_below_what_was_allocated_are_told(tmp_path: Path) -> None:
    # GIVEN 4 GB allocated and not freed while the total says 512 B, and a free of more than there is without a total
    def memory(at: int, size: int, **total: int) -> dict[str, object]:
        args = {"Bytes": size, "Addr": 4096 + at, "Device Id": 0, "Device Type": 1, **total}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": at, "args": args}

    events = [memory(1, 512, **{"Total Allocated": 512}), memory(2, 4 << 30, **{"Total Allocated": 512}), memory(3, -(8 << 30))]
    path = tmp_path / "w.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    # WHEN read THEN health says so, and no level of the curve is below zero
    capture = read(str(path))
    assert issues(path)["memory total below what was allocated"] == 1
    for curve in whole(capture):
        assert curve.relative or (curve.allocated is not None and int(curve.allocated.min()) >= 0)
