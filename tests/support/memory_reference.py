"""A second reader of what recordings say of memory, that shares no code with the product: JSON and pickles, one event after the other.

A trace's events are walked through with a map of addresses; whose an event is follows from the calls that are open on its thread at its
time; in the backward pass its module is that of the forward operator with the same sequence number. A snapshot is added up block by block, its history backwards from them. All times are ns since the first event of the file.
"""

from __future__ import annotations

import gzip
import json
import pickle
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

NESTED = {"cpu_op": "operator", "Operator": "operator", "python_function": "python", "user_annotation": "phase"}
OUTSIDE = {"operator": "(no operator)", "module": "(no module)", "frame": "(no python line)", "phase": "(no phase)"}
MODULE = "nn.Module: "
LINE = re.compile(r"^(.*?)\(\d+\): ", re.DOTALL)
PASSED_OVER = ("contextlib.py", "functools.py", "threading.py", "runpy.py")


class Change(NamedTuple):
    """One memory event. total, reserved, address: None where the file does not say. around: by sort of call the names, outermost first."""

    time: int
    bytes: int
    address: int | None
    total: int | None
    reserved: int | None
    around: dict[str, list[Any]]


class Life(NamedTuple):
    """bytes; begin, end: places of its events in the order of time, None where it was there before or is never freed."""

    bytes: int
    begin: int | None
    end: int | None


def load(path: Path) -> Any:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8", "replace")
    return json.loads(text, parse_float=Decimal, strict=False)


def ns(value: Any) -> int:
    return int(Decimal(str(value)) * 1000)


class Trace:
    """The memory events of a trace by (device type, device id), in order of time, then of the file; steps as (number, start, end)."""

    def __init__(self, path: Path) -> None:
        events = load(path)["traceEvents"]
        whole = [e for e in events if e.get("ph") == "X" and e.get("cat") != "Trace"]
        self.begin = min(ns(e["ts"]) for e in whole)
        memory = [(ns(e["ts"]), i, e) for i, e in enumerate(events) if e.get("name") == "[memory]"]
        self.begin = min([self.begin, *(m[0] for m in memory)])
        memory.sort(key=lambda m: m[:2])
        self.by_device: dict[tuple[int, int], list[Change]] = defaultdict(list)
        calls: dict[Any, list[tuple[int, int, int, str, str, Any]]] = defaultdict(list)
        forward: dict[int, tuple[Any, int]] = {}  # of a sequence number the last operator of the forward pass that has it
        self.count: Counter[str] = Counter()
        steps = {}
        for i, e in enumerate(whole):
            sort = NESTED.get(e.get("cat", ""))
            if sort is None:
                continue
            if e["cat"] == "Operator" and re.match(r"ProfilerStep\s*#|Optimizer\.|enumerate\(", e["name"]):
                sort = "phase"  # files of old versions call ranges of the program operators
            start = ns(e["ts"]) - self.begin
            end = ns(Decimal(str(e["ts"])) + Decimal(str(e.get("dur", 0)))) - self.begin
            number = e.get("args", {}).get("Sequence number")
            backward = bool(e.get("args", {}).get("Fwd thread id")) or e["name"].startswith("autograd::engine")
            calls[str(e["tid"])].append((start, -end, i, sort, e["name"], number if backward else None))
            if sort == "operator" and number is not None and not backward and start >= forward.get(number, (None, -1))[1]:
                forward[number] = (str(e["tid"]), start)
            self.count[e["name"]] += sort == "operator"
            if sort == "phase" and (found := re.fullmatch(r"ProfilerStep\s*#\s*(\d+)", e["name"])):
                steps[int(found[1])] = (start, end)
        self.steps = sorted((n, a, z) for n, (a, z) in steps.items())
        around, issuers = ({t: _Open(rows) for t, rows in calls.items()} for _ in range(2))
        modules = {}
        asked = {tid: _Open(rows) for tid, rows in calls.items()}
        for number, (tid, start) in sorted(forward.items(), key=lambda f: f[1][1]):
            modules[number] = [n for n in asked[tid].at(start)["python"] if n.startswith(MODULE)]
        by: dict[str, Counter[str]] = defaultdict(Counter)  # of a thread the threads whose backward pass it runs
        for tid, rows in calls.items():
            by[tid].update(forward[r[5]][0] for r in rows if r[5] in forward)
        none: dict[str, list[Any]] = {"operator": [], "python": [], "phase": [], "backward": []}
        for time, _, e in memory:
            args, at = e["args"], time - self.begin
            open_ = around[str(e["tid"])].at(at) if str(e["tid"]) in around else none
            number = (open_["backward"] or [None])[-1]
            open_ |= {"forward modules": modules.get(number, [])}
            called = by[str(e["tid"])].most_common(1)
            if not open_["phase"] and called and called[0][0] != str(e["tid"]):  # a range of the thread whose backward pass runs here
                open_["phase"] = issuers[called[0][0]].at(at)["phase"]
            self.by_device[args["Device Type"], args["Device Id"]].append(Change(
                at, args["Bytes"], args.get("Addr"), args.get("Total Allocated"), args.get("Total Reserved"), open_,
            ))  # fmt: skip


class _Open:
    """The calls of one thread, asked for those that are open at times that only grow."""

    def __init__(self, rows: list[tuple[int, int, int, str, str, Any]]) -> None:
        self.rows, self.next, self.open = sorted(rows, key=lambda r: r[:3]), 0, list[tuple[int, str, str, Any]]()

    def at(self, time: int) -> dict[str, list[Any]]:
        while self.next < len(self.rows) and self.rows[self.next][0] <= time:
            start, end, _, sort, name, number = self.rows[self.next]
            self.open = [o for o in self.open if o[0] > start] + [(-end, sort, name, number)]
            self.next += 1
        out: dict[str, list[Any]] = {"operator": [], "python": [], "phase": [], "backward": []}
        for end, sort, name, number in self.open:
            if end > time:
                out[sort].append(name)
                if number is not None:
                    out["backward"].append(number)
        return out


# -- a walk over events -------------------------------------------------------------------------------------------


class Walk:
    """Levels after each event, lives of all allocations, and the peak."""

    def __init__(self, events: list[Change]) -> None:
        self.events = events
        self.known = events[0].total is not None
        self.before = (events[0].total or 0) - events[0].bytes if self.known else 0
        level, self.levels = self.before, list[int]()
        for e in events:
            level += e.bytes
            self.levels.append(level)
        self.peak = max([self.before, *self.levels])
        self.peak_at = self.levels.index(self.peak) if self.peak in self.levels and self.peak > self.before else -1
        self.lives: list[Life] = []
        there: dict[int, tuple[int, int]] = {}
        for i, e in enumerate(events):
            if e.address is None:
                continue
            if e.bytes > 0:
                if e.address in there:  # taken again without a free: it ended by then
                    size, begin = there.pop(e.address)
                    self.lives.append(Life(size, begin, None))
                there[e.address] = (e.bytes, i)
            elif e.bytes < 0:
                size, begin = there.pop(e.address, (-e.bytes, None))  # type: ignore[arg-type]
                self.lives.append(Life(size, begin, i))
        self.lives += [Life(size, begin, None) for size, begin in there.values()]

    def alive(self, at: int) -> list[Life]:
        """Allocations of the window that are in use after event `at`."""
        return [x for x in self.lives if x.begin is not None and x.begin <= at and (x.end is None or x.end > at)]

    def from_before(self, at: int) -> int:
        """Bytes from before the window that are still in use after event `at`."""
        return self.before - sum(x.bytes for x in self.lives if x.begin is None and x.end is not None and x.end <= at)

    def held_by(self, by: str, at: int) -> dict[str, tuple[int, int]]:
        """(bytes, allocations) in use after event `at` by the name of what made them."""
        out: dict[str, tuple[int, int]] = {}
        for x in self.alive(at):
            assert x.begin is not None
            name = whose(self.events[x.begin], by)
            size, count = out.get(name, (0, 0))
            out[name] = (size + x.bytes, count + 1)
        return out

    def position(self, time: int) -> int:
        """The last event up to a time, -1 before the first."""
        return bisect_right([e.time for e in self.events], time) - 1

    def extremes(self, start: int, end: int) -> tuple[int, int]:
        """(least, most) in use in `[start, end)`, the level that holds at its start among them."""
        times = [e.time for e in self.events]
        first = bisect_right(times, start) - 1
        inside = [self.before if first < 0 else self.levels[first]] + self.levels[first + 1 : bisect_left(times, end)]
        return min(inside), max(inside)


def whose(event: Change, by: str) -> str:
    """Name of what an event belongs to. Phases one below the other, with `/`; steps without their number."""
    if by == "operator":
        return (event.around["operator"] or [OUTSIDE[by]])[-1]
    if by == "module":
        found = [n for n in event.around["python"] if n.startswith(MODULE)] or event.around["forward modules"]
        return found[-1].removeprefix(MODULE).strip() if found else OUTSIDE[by]
    if by == "frame":
        placed = [n for n in event.around["python"] if LINE.match(n)]
        own = [n for n in placed if _is_own(LINE.match(n)[1])]  # type: ignore[index]
        return (own or placed or [OUTSIDE[by]])[-1]
    path: list[str] = []
    for name in event.around["phase"]:
        parts = re.sub(r"\s*#\s*\d+$", "", name).split("/")
        while len(parts) > 1 and parts[0] in path:  # `forward/loss` inside `forward`
            parts = parts[1:]
        path += parts
    return "/".join(path) or OUTSIDE[by]


def _is_own(file: str) -> bool:
    parts = file.split("/")
    torch = "torch" in parts[:-1] and parts[parts.index("torch") + 1] not in ("bench", "benchmarks")
    return not torch and parts[-1] not in PASSED_OVER and not file.startswith("<") and "importlib" not in parts


def operators(events: list[Change], window: tuple[int, int] | None = None) -> dict[str, tuple[int, int, int, int, int, int]]:
    """Per name: (size increase, self size increase, allocations, self allocations, bytes allocated, self bytes allocated)."""
    out: dict[str, list[int]] = defaultdict(lambda: [0] * 6)
    for e in events:
        if window is not None and not window[0] <= e.time <= window[1]:
            continue
        names = e.around["operator"] or [OUTSIDE["operator"]]
        gain = max(e.bytes, 0)
        for name in set(names):
            for place, value in ((0, e.bytes), (2, int(gain > 0)), (4, gain)):
                out[name][place] += value
        for place, value in ((1, e.bytes), (3, int(gain > 0)), (5, gain)):
            out[names[-1]][place] += value
    return {name: (v[0], v[1], v[2], v[3], v[4], v[5]) for name, v in out.items()}


# -- snapshots ------------------------------------------------------------------------------------------------------


class Snapshot:
    """One device of a snapshot that this project's own samples wrote: loaded as a pickle, which nothing but such a test may do."""

    def __init__(self, path: Path, device: int = 0) -> None:
        raw = path.read_bytes()
        value = pickle.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        self.segments = [s for s in value["segments"] if s.get("device", 0) == device]
        self.history = value["device_traces"][device]
        blocks = [(s, b) for s in self.segments for b in s["blocks"]]
        self.reserved = sum(s["total_size"] for s in self.segments)
        used = [b for _, b in blocks if b["state"] == "active_allocated"]
        self.used = sum(b["size"] for b in used)
        self.awaiting = sum(b["size"] for _, b in blocks if b["state"] in ("active_pending_free", "active_awaiting_free"))
        self.free = sum(b["size"] for _, b in blocks if b["state"] == "inactive")
        self.requested = sum(b["requested_size"] for b in used)
        busy = {id(s) for s, b in blocks if b["state"] != "inactive"}
        self.split = sum(b["size"] for s, b in blocks if b["state"] == "inactive" and id(s) in busy)
        self.whole = sum(b["size"] for s, b in blocks if b["state"] == "inactive" and id(s) not in busy)
        self.largest = max((b["size"] for _, b in blocks if b["state"] == "inactive"), default=0)
        self.failures = [e for e in self.history if e["action"] == "oom"]
        signs = {"alloc": 1, "free_requested": -1}
        holds = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
        level, held = self.requested, self.reserved
        self.levels, self.held = [level], [held]  # backwards from what is there at the end
        for e in reversed(self.history):
            level -= signs.get(e["action"], 0) * e["size"]
            held -= holds.get(e["action"], 0) * e["size"]
            self.levels.append(level)
            self.held.append(held)
        self.levels.reverse()
        self.held.reverse()
        self.times = [e["time_us"] * 1000 for e in self.history]
