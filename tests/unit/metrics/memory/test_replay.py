"""Memory events replayed: by hand, against a slow replay, with missing totals, addresses and frees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.memory import categories as O
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.allocations import by_operator
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support.trace_builder import TraceBuilder

CUDA0, HOST = R.Device(1, 0), R.Device(0, -1)


def recorded(tmp_path: Path) -> Capture:
    """One step of 10 us: a module whose addmm allocates 100 B in an inner empty; a free from before the window; one event on the host."""
    t = TraceBuilder()
    t.step(1, 0, 10_000)
    t.annotation("forward", 500, 5_000)
    t.module("Linear_0", 1_000, 3_000, module_id=1)
    t.frame("model.py(7): forward", 1_100, 2_800)
    t.op("aten::addmm", 1_500, 2_000)
    t.op("aten::empty", 1_600, 200)
    t.memory(1_700, 100, address=0x10, allocated=1_100, reserved=4_096)
    t.memory(2_500, 40, address=0x20, allocated=1_140, reserved=4_096)
    t.memory(2_600, 8, address=0x99, allocated=8, reserved=0, device_type=0, device_id=-1)
    t.memory(3_000, -40, address=0x20, allocated=1_100, reserved=4_096)
    t.memory(6_000, -300, address=0x30, allocated=800, reserved=4_096)
    t.memory(12_000, -100, address=0x10, allocated=700, reserved=4_096)
    return read(str(t.write(tmp_path / "a.pt.trace.json")))


def test_what_is_in_use_and_what_was_before(tmp_path: Path) -> None:
    # GIVEN the recording above WHEN replayed
    c = recorded(tmp_path)
    r = R.replay(c, CUDA0)
    # THEN 1,100 after the first event of 100 means 1,000 before it, and every total is the running sum
    assert (r.before, r.differs, r.tracked) == (1_000, 0, True) and r.allocated.tolist() == [1_100, 1_140, 1_100, 800, 700]
    # AND the most is in use after the second event: 140 B by rows, 300 B freed later from before, 700 B without a row
    assert r.peak == 1
    rows, rest = R.live_allocations(c, CUDA0, r.peak)
    assert sorted(rows["bytes"]) == [40, 100, 300] and rest == 700
    assert [d.label for d in R.devices(c)] == ["CUDA 0", "CPU"]


def test_each_allocation_has_a_row_with_its_lifetime(tmp_path: Path) -> None:
    c = recorded(tmp_path)
    a = R.allocations(c, CUDA0)
    assert a["bytes"].tolist() == [100, 40, 300] and a["before"].tolist() == [False, False, True]
    assert a["lifetime_ns"].tolist() == [12_000 - 1_700, 500, -1] and a["start_ns"].tolist()[2] == -1
    host = R.allocations(c, HOST)
    assert host["last"].tolist() == [-1] and host["end_ns"].tolist() == [-1]


def test_reserved_memory_of_the_host_is_not_tracked(tmp_path: Path) -> None:
    r = R.replay(recorded(tmp_path), HOST)
    assert not r.tracked and r.reserved.tolist() == [-1] and r.allocated.tolist() == [8]


def test_events_belong_to_what_ran_around_them(tmp_path: Path) -> None:
    # GIVEN the recording above WHEN owners are asked for
    c = recorded(tmp_path)
    o = O.owners(c)
    names = c.host["name"].astype(str).to_numpy()

    def said(column: str) -> list[str]:
        return [names[i] if i >= 0 else "" for i in o[column].tolist()]

    # THEN each has its innermost operator, module and frame, those of the thread at that time
    assert said("operator") == ["aten::empty", "aten::addmm", "aten::addmm", "aten::addmm", "", ""]
    assert said("module")[:4] == ["nn.Module: Linear_0"] * 4 and said("module")[4:] == ["", ""]
    assert said("frame")[0] == "model.py(7): forward" and o["step"].tolist() == [0, 0, 0, 0, 0, -1]
    assert (o["phase_node"].to_numpy()[:4] >= 0).all() and o["around"].tolist()[5] == -1


def test_sums_per_operator(tmp_path: Path) -> None:
    # GIVEN the recording above: addmm holds +100 +40 -40, its inner empty +100, -300 and -100 lie outside
    t = by_operator(recorded(tmp_path), CUDA0).set_index("name")
    columns = ["calls", "size_increase", "self_size_increase", "allocations", "self_allocations", "allocated_bytes", "self_allocated_bytes"]
    assert t.loc["aten::addmm", columns].tolist() == [1, 100, 0, 2, 1, 140, 40]
    assert t.loc["aten::empty", columns].tolist() == [1, 100, 100, 1, 1, 100, 100]
    assert t.loc["", columns].tolist() == [0, -400, -400, 0, 0, 0, 0]


def test_an_operator_within_itself_counts_once(tmp_path: Path) -> None:
    # GIVEN an operator that calls itself, and 64 B inside WHEN summed THEN they count once in it
    t = TraceBuilder()
    t.op("aten::to", 0, 1_000)
    t.op("aten::to", 100, 500)
    t.memory(200, 64, allocated=64)
    found = by_operator(read(str(t.write(tmp_path / "a.pt.trace.json"))), CUDA0)
    assert found[["calls", "size_increase", "self_size_increase"]].values.tolist() == [[2, 64, 64]]


def made(rows: list[tuple[int, int, int, int]]) -> Capture:
    """(time, address, bytes, total) per event of one device."""
    count = len(rows)
    columns = np.array(rows, np.int64).reshape(-1, 4)
    table = S.MEMORY.frame({
        "time_ns": columns[:, 0], "device_type": np.ones(count), "device_id": np.zeros(count), "address": columns[:, 1],
        "bytes": columns[:, 2], "total_allocated": columns[:, 3], "index": np.arange(count),
    })  # fmt: skip
    return Capture(Facts("kineto", "x", 0), {"memory": table})


def test_missing_totals_and_addresses_stay_unknown() -> None:
    # GIVEN an older trace: neither totals nor addresses
    c = made([(1, -1, 100, -1), (2, -1, 50, -1), (3, -1, -100, -1)])
    r = R.replay(c, CUDA0)
    # THEN only the change is known, and no free is tied to an allocation
    assert not r.known and r.before == -1 and r.allocated.tolist() == [-1] * 3 and r.change.tolist() == [100, 150, 50] and r.peak == 1
    a = R.allocations(c, CUDA0)
    assert not a["paired"].any() and not a["before"].any() and a["lifetime_ns"].tolist() == [-1] * 3
    assert R.live_allocations(c, CUDA0, 1)[1] == -1


def test_totals_of_some_events_go_on_from_the_last() -> None:
    # GIVEN totals on the second and third event of four WHEN replayed THEN the others follow by their bytes
    r = R.replay(made([(1, 1, 10, -1), (2, 2, 20, 130), (3, 3, 30, 160), (4, 3, -30, -1)]), CUDA0)
    assert r.before == 100 and r.allocated.tolist() == [110, 130, 160, 130] and r.differs == 0


def test_totals_that_do_not_add_up_are_counted_and_shown_as_recorded() -> None:
    r = R.replay(made([(1, 1, 10, 110), (2, 2, 20, 500), (3, 2, -20, 480)]), CUDA0)
    assert r.differs == 2 and r.allocated.tolist() == [110, 500, 480]


def test_an_address_that_is_reused_without_a_free_ends_the_allocation() -> None:
    # GIVEN an address allocated twice, freed once WHEN replayed THEN the first ended no later than the second began
    c = made([(1, 7, 10, 10), (2, 7, 30, 40), (3, 7, -30, 10)])
    a = R.allocations(c, CUDA0)
    assert a["reused"].tolist() == [True, False] and a["last"].tolist() == [-1, 2] and a["stop"].tolist() == [1, 2]
    assert R.live_allocations(c, CUDA0, 1)[0]["bytes"].tolist() == [30]


def test_where_frees_come_first_the_most_was_in_use_before() -> None:
    r = R.replay(made([(1, 7, -10, 90), (2, 8, 5, 95)]), CUDA0)
    assert r.peak == -1 and r.before == 100
    rows, rest = R.live_allocations(made([(1, 7, -10, 90), (2, 8, 5, 95)]), CUDA0, -1)
    assert rows["bytes"].tolist() == [10] and rest == 90


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(1, 50)), max_size=30), st.integers(0, 5))
@settings(max_examples=75, deadline=None)
def test_replay_equals_a_slow_one(choices: list[tuple[int, int, int]], hidden: int) -> None:
    # GIVEN any sequence of allocations and frees of which the first `hidden` are not in the recording
    live: dict[int, tuple[int, int]] = {}
    history: list[tuple[int, int, int, int]] = []
    lives: list[tuple[int, int, int]] = []  # first, last, bytes: as a plain replay keeps them
    total = 0
    for step, address, size in choices:
        now = len(history)
        if address in live:
            first, old = live.pop(address)
            total -= old
            history.append((now, address, -old, total))
            lives.append((first, now, old))
        elif step < 3:
            live[address] = (now, size)
            total += size
            history.append((now, address, size, total))
    lives += [(first, -1, size) for first, size in live.values()]
    if len(history) <= hidden:
        return
    c = made(history[hidden:])
    wanted = sorted((max(f - hidden, -1), -1 if e < 0 else e - hidden, n) for f, e, n in lives if (e < 0 and f >= hidden) or e >= hidden)
    # WHEN replayed THEN each life, what was before, and what lives after every event are the same
    a = R.allocations(c, CUDA0)
    assert sorted(zip(a["first"].tolist(), a["last"].tolist(), a["bytes"].tolist(), strict=True)) == wanted
    r = R.replay(c, CUDA0)
    assert r.before == (history[hidden - 1][3] if hidden else 0) and r.differs == 0
    assert r.allocated.tolist() == [h[3] for h in history[hidden:]]
    never = sum(n for f, e, n in lives if f < hidden and e < 0)
    for at in range(-1, len(history) - hidden):
        rows, rest = R.live_allocations(c, CUDA0, at)
        there = sorted(n for f, e, n in lives if f <= at + hidden and (e < 0 or e > at + hidden) and not (f < hidden and e < 0))
        assert sorted(rows["bytes"].tolist()) == there and rest == never
