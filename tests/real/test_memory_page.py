"""The page of memory on traces made by others, against sums of the plain JSON: peak, who held it, operators, windows, lives."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest

from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.report import Report, TableSection
from tests.support.captures import capture

TRACES = {
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": (1, 0),
    "tracelens/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz": (1, 0),
    "tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz": (6, 0),
}


class Plain:
    """The memory events of one device and the operators around them, from the plain JSON: times in ns since the first complete event."""

    def __init__(self, path: Path, device: tuple[int, int]) -> None:
        with gzip.open(path) as stream:
            events = json.load(stream, parse_float=Decimal, strict=False)["traceEvents"]
        begin = min(Decimal(e["ts"]) for e in events if e.get("ph") == "X" and e.get("cat") != "Trace")  # that one spans them all
        self.ns = lambda ts: int((Decimal(ts) - begin) * 1000)
        found = [(Decimal(e["ts"]), i, e) for i, e in enumerate(events) if e.get("name") == "[memory]"]
        own = [e for _, _, e in sorted(found, key=lambda f: f[:2]) if (e["args"]["Device Type"], e["args"]["Device Id"]) == device]
        self.events = [(self.ns(e["ts"]), e["args"]["Bytes"], e["args"]["Addr"], e["args"]["Total Allocated"], e["tid"]) for e in own]
        self.around: list[list[str]] = [[] for _ in self.events]  # names of the operators around each event, outermost first
        for thread in {t for *_, t in self.events}:
            operators = sorted(
                (self.ns(e["ts"]), -self.ns(Decimal(e["ts"]) + Decimal(e["dur"])), e["name"])
                for e in events if e.get("cat") == "cpu_op" and e.get("ph") == "X" and e["tid"] == thread
            )  # fmt: skip
            stack: list[tuple[int, str]] = []
            place = 0
            for i, (time, *_, own_thread) in enumerate(self.events):
                if own_thread != thread:
                    continue
                while place < len(operators) and operators[place][0] <= time:
                    start, end, name = operators[place]
                    stack = [(z, n) for z, n in stack if z > start] + [(-end, name)]
                    place += 1
                stack = [(z, n) for z, n in stack if z > time]
                self.around[i] = [n for _, n in stack]


@cache
def plain_of(path: Path, device: tuple[int, int]) -> Plain:
    return Plain(path, device)


def answer(path: Path, **query: str) -> Report:
    found = answer_capture("memory", capture(path), query)
    assert isinstance(found, Report)
    return found


def table(report: Report, name: str, key: str, *columns: str) -> dict[object, tuple[object, ...]]:
    found = report.section(name)
    assert isinstance(found, TableSection)
    return dict(zip(found.data[key], zip(*(found.data[c] for c in columns), strict=True), strict=True))


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(TRACES))
def test_the_peak_and_who_holds_it(traces: Path, name: str) -> None:
    # GIVEN the plain events of the device, walked through once
    plain = plain_of(traces / name, TRACES[name])
    before = plain.events[0][3] - plain.events[0][1]
    level = peak = before
    at = -1
    for i, (_, size, _, total, _) in enumerate(plain.events):
        level += size
        assert level == total
        if level > peak:
            peak, at = level, i
    live: dict[int, tuple[int, int]] = {}
    for i, (_, size, address, *_) in enumerate(plain.events[: at + 1]):
        if size > 0:
            live[address] = (size, i)
        else:
            live.pop(address, None)
    owners: Counter[str] = Counter()
    for size, i in live.values():
        owners[(plain.around[i] or ["(no operator)"])[-1]] += size
    # WHEN the page is asked THEN peak, time, what was before and every operator's share are those of the walk
    r = answer(traces / name, by="operator")
    assert (r.facts["peak_bytes"], r.facts["before_bytes"], r.facts["end_bytes"]) == (peak, before, plain.events[-1][3])
    assert abs(int(r.facts["peak_ns"] or 0) - plain.events[at][0]) <= 1
    held = {n: b for n, (b, kind) in table(r, "peak", "name", "bytes", "kind").items() if kind == "row"}
    assert held == dict(owners)
    assert sum(b for (b,) in table(r, "peak", "name", "bytes").values()) == peak  # type: ignore[misc]


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(TRACES))
def test_operators_of_the_whole_and_of_a_window(traces: Path, name: str) -> None:
    # GIVEN sums over the plain events, each counted once in every operator around it, and alone in the innermost
    plain = plain_of(traces / name, TRACES[name])
    first, last = plain.events[0][0], plain.events[-1][0]
    for window in (None, (first + (last - first) // 3, first + 2 * (last - first) // 3)):
        increase: Counter[str] = Counter()
        alone: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for i, (time, size, *_) in enumerate(plain.events):
            if window is not None and not window[0] <= time <= window[1]:
                continue
            around = plain.around[i] or ["(no operator)"]
            alone[around[-1]] += size
            for operator in set(around):
                increase[operator] += size
                count[operator] += size > 0
        # THEN the table holds the same numbers
        r = answer(traces / name, **({"window": f"{window[0]}-{window[1]}"} if window is not None else {}))
        found = table(r, "operators", "name", "size_increase_bytes", "self_size_increase_bytes", "allocation_count")
        assert found == {n: (increase[n], alone[n], count[n]) for n in increase}


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(TRACES))
def test_lives_in_a_window(traces: Path, name: str) -> None:
    # GIVEN a window of a third of the events WHEN each address is followed by hand THEN rows begin or end in it, with the same lives
    plain = plain_of(traces / name, TRACES[name])
    start, end = plain.events[len(plain.events) // 3][0], plain.events[2 * len(plain.events) // 3][0]
    open_: dict[int, tuple[int, int]] = {}
    lives = []
    for time, size, address, _, _ in plain.events:
        if size > 0:
            open_[address] = (size, time)
        elif size < 0:
            lives.append((*open_.pop(address, (-size, None)), time))
    lives += [(size, time, None) for size, time in open_.values()]
    inside = [
        (size, a, z) for size, a, z in lives if (a is not None and start <= a <= end) or (z is not None and start <= z <= end)
    ]  # fmt: skip
    largest = sorted(inside, key=lambda x: -x[0])[:1000]
    found = table(answer(traces / name, window=f"{start}-{end}"), "allocations", "id", "bytes", "start_ns", "end_ns", "lifetime_ns")
    assert Counter(b for b, *_ in found.values()) == Counter(b for b, *_ in largest)
    if len(inside) <= 1000:
        assert {(b, a, z) for b, a, z, _ in found.values()} == set(inside)
    assert all(life == z - a for _, a, z, life in found.values() if a is not None and z is not None)  # type: ignore[operator]
