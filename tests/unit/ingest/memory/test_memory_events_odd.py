"""Memory events of traces whose numbers are missing, or are those of no memory: nothing is made up of them."""

from __future__ import annotations

from pathlib import Path

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.curves import curves
from tb_sol_plugin.model.capture import Capture
from tests.support.trace_builder import TraceBuilder


def read(tmp_path: Path, *events: dict[str, object]) -> Capture:
    """A trace of memory events of device 0, one every microsecond, with these arguments."""
    b = TraceBuilder()
    b.op("aten::empty", 0, 100_000)
    for i, args in enumerate(events):
        b.add({
            "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": b.pid, "tid": b.thread, "ts": b.ts(1000 * (i + 1)),
            "args": {"Device Type": 1, "Device Id": 0, **args},
        })  # fmt: skip
    return ingest.read(str(b.write(tmp_path / "odd.pt.trace.json")))


def issues(c: Capture) -> dict[str, int]:
    table = c.tables["issues"]
    return dict(zip(table["reason"].astype(str), table["count"].tolist(), strict=True))


def test_an_event_without_a_size_is_unknown_and_no_free_of_one_byte(tmp_path: Path) -> None:
    # GIVEN an allocation, two events whose bytes are missing or no number, and a real free of one byte
    c = read(
        tmp_path,
        {"Bytes": 1, "Addr": 64, "Total Allocated": 101, "Total Reserved": 500},
        {"Addr": 128, "Total Allocated": 151, "Total Reserved": 500},
        {"Bytes": "NaN", "Addr": 192, "Total Allocated": 251, "Total Reserved": 500},
        {"Bytes": -1, "Addr": 64, "Total Allocated": 250, "Total Reserved": 500},
    )
    # THEN these two add nothing of their own, levels are those of the totals, and both are counted
    (device,) = R.devices(c)
    r = R.replay(c, device)
    assert r.bytes.tolist() == [1, 0, 0, -1] and r.allocated.tolist() == [101, 151, 251, 250] and r.before == 100
    assert issues(c)["memory event without a size"] == 2
    # AND the one byte was allocated and freed
    found = R.allocations(c, device)
    assert found[["bytes", "first", "last"]].to_numpy().tolist() == [[1, 0, 3]]


def test_impossible_sizes_are_unknown(tmp_path: Path) -> None:
    # GIVEN a change, a total and a reserved total beyond every memory, and negative totals, between sound events
    c = read(
        tmp_path,
        {"Bytes": 100, "Addr": 64, "Total Allocated": 100, "Total Reserved": 500},
        {"Bytes": 1 << 62, "Addr": 128, "Total Allocated": 1 << 62, "Total Reserved": 1 << 61},
        {"Bytes": 50, "Addr": 192, "Total Allocated": -7, "Total Reserved": -9},
        {"Bytes": -(1 << 63), "Addr": 192, "Total Allocated": 150, "Total Reserved": 500},
    )
    # THEN none of them is in a level, each is counted, and what the allocator held there is that of the last event that says it
    (device,) = R.devices(c)
    r = R.replay(c, device)
    assert r.bytes.tolist() == [100, 0, 50, 0] and r.allocated.tolist() == [100, 100, 150, 150]
    assert issues(c)["impossible memory size"] == 6
    (curve,) = curves(c)
    assert curve.peak == 150 and curve.reserved is not None and curve.reserved.tolist() == [500, 500, 500, 500, 500]
