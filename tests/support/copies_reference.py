"""A second, slow reader of copies of memory that shares no code with the product: JSON, whole nanoseconds, one event at a time.

`read(path)` gives every copy, set and copy kernel of a recording with what surrounds it; the functions below it sum them up.
Rules that are not obvious:
    join       a device event belongs to the runtime or driver call with its correlation; of two such calls to the first
    owner      the innermost operator, module frame or user range of the call's thread whose interval holds the start of the call
    step       the ProfilerStep (without any, the iteration of vLLM) that holds the start of the call; without a call the step whose time on the device holds the start;
               none for work from before the first step (see `_before`), which begins on the device when that work has ended
    hidden     behind a kernel of the same device that is neither communication nor a copy the driver runs as a kernel
    held       why the host could not go on, by what CUDA documents of kinds of memory and by the times of the calls; see `reason`
"""

from __future__ import annotations

import bisect
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

Spans = list[tuple[int, int]]
FOLD = {"H": "H", "D": "D", "A": "A", "P": "P", "M": "H"}
COPY_API = re.compile(r"^(cuda|hip)Mem(cpy|set|Prefetch|Advise)|^cuMem(cpy|set|Prefetch|Advise)")
PEER_NAMES = ("nccl", "rccl", "cross_device_reduce", "multimem_", "nvshmem", "deep_ep", "deepep", "all_reduce", "allreduce", "all_gather",
              "allgather", "reduce_scatter", "reducescatter", "all_to_all", "alltoall", "one_shot_all", "oneshot_all", "two_shot_all",
              "twoshot_all")  # fmt: skip
RANGES = ("nccl:", "gloo:", "hccl:", "ucc:", "mpi:", "xccl:", "oneccl:")
SCALARS = {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"}
READS = SCALARS | {"aten::nonzero", "aten::nonzero_numpy", "aten::argwhere", "aten::equal", "aten::allclose", "aten::masked_select",
                   "aten::repeat_interleave"}  # fmt: skip
BIN_ENDS = (4096, 65536, 1 << 20, 16 << 20, 256 << 20)


class Api(NamedTuple):
    """One host call. plain: its name without version and stream suffixes."""

    name: str
    plain: str
    thread: tuple[object, object]
    start: int
    end: int
    number: int

    @property
    def is_async(self) -> bool:
        return "async" in self.plain.lower()


class Copy(NamedTuple):
    """One copy or set. size: None where the recorder wrote none. operators: around the call, outermost first."""

    number: int
    direction: str
    src: str
    dst: str
    device: int
    stream: int
    start: int
    end: int
    size: int | None
    call: Api | None
    step: int | None
    operators: tuple[str, ...]
    module: str
    frame: str
    ranges: tuple[str, ...]

    @property
    def time(self) -> int:
        return self.end - self.start


class Trace(NamedTuple):
    """copies in order of the file; calls: every copy, set, prefetch and advise call; work: computation per device; busy: and communication.

    acts: per thread the calls that start work of a device or wait for it, in order. waited: stream that a waiting call waits for.
    lanes: per device and stream the numbers of all its events, in order of start.
    """

    copies: tuple[Copy, ...]
    calls: tuple[Api, ...]
    work: dict[int, Spans]
    busy: dict[int, Spans]
    steps: tuple[int, ...]
    acts: dict[tuple[object, object], list[Api]]
    waited: dict[int, int]
    lanes: dict[tuple[int, int], list[int]]


# -- reading --------------------------------------------------------------------------------------------------


def ns(value: object) -> int:
    if type(value) is int:
        return value * 1000
    return int((Decimal(str(value)) * 1000).quantize(Decimal(1), ROUND_HALF_UP))


def number(value: object) -> int:
    """7 of 7, "7" and "stream 7"; -1 of anything else."""
    if isinstance(value, bool) or value is None:
        return -1
    if isinstance(value, int):
        return value if value >= 0 else -1
    found = re.search(r"(?:^| )(\d+)$", str(value))
    return int(found[1]) if found else -1


def plain(name: str) -> str:
    return re.sub(r"(_v\d+|_ptds|_ptsz)+$", "", name)


def direction_of(name: str, kind: str) -> tuple[str, str, str]:
    """(direction, source, destination) from the words of a name, else from what the recorder says beside it."""
    ends = re.search(r"\(([^()]*)->([^()]*)\)", name)
    src, dst = (ends[1].strip(), ends[2].strip()) if ends else ("", "")
    for text in (*re.findall(r"\w+", name), kind):
        short = re.fullmatch(r"(?i)([hdapm])(?:to|2)([hdapm])", text)
        if short:
            a, b = FOLD[short[1].upper()], FOLD[short[2].upper()]
            if "A" in (a, b):
                a, b = ("H" if a == "H" else "D"), ("H" if b == "H" else "D")
            return f"{a}to{b}", src, dst
        long = re.fullmatch(r"(?:copy)?(host|device)_?to_?(host|device)", text.lower())
        if long:
            return f"{long[1][0].upper()}to{long[2][0].upper()}", src, dst
    return "Unknown", src, dst


class Nest:
    """Intervals of one thread and one sort; `around` gives those that hold a moment, outermost first."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str]] = []
        self.up: list[int] | None = None

    def around(self, at: int) -> list[str]:
        if self.up is None:
            self.rows.sort(key=lambda r: (r[0], -r[1]))
            self.up = []
            stack: list[int] = []
            for place, row in enumerate(self.rows):
                while stack and self.rows[stack[-1]][1] <= row[0]:
                    stack.pop()
                self.up.append(stack[-1] if stack else -1)
                stack.append(place)
        place, out = bisect.bisect_right(self.rows, at, key=lambda r: r[0]) - 1, []
        while place >= 0:
            if self.rows[place][1] > at:
                out.append(self.rows[place][2])
            place = self.up[place]
        return out[::-1]


@lru_cache(maxsize=2)
def read(path: Path) -> Trace:
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf8", "replace")
    whole = json.loads(text, parse_float=Decimal)
    nests: dict[str, dict[tuple[object, object], Nest]] = {k: defaultdict(Nest) for k in ("operator", "module", "frame", "range")}
    api_of: dict[int, Api] = {}
    calls: list[Api] = []
    device: list[tuple[int, dict[str, Any], str]] = []
    marks: list[tuple[int, int, int]] = []
    served: list[tuple[int, int]] = []
    waits: list[tuple[Api, int]] = []
    streams: dict[int, int] = {}
    for at, e in enumerate(whole["traceEvents"] if isinstance(whole, dict) else whole):
        category = str(e.get("cat", "")).lower()
        if e.get("ph") != "X" or "ts" not in e:
            continue
        name, thread, args = str(e.get("name", "")), (e.get("pid"), str(e.get("tid"))), e.get("args") or {}
        if category in ("kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset", "hpu_op", "mtia_ccp_events"):
            device.append((at, e, category))
            continue
        start = ns(e["ts"])
        end = start + max(ns(e.get("dur", 0)), 0)
        if category in ("cpu_op", "operator", "user_annotation"):
            step = re.fullmatch(r"ProfilerStep#(\d+)", name)
            if step:
                marks.append((int(step[1]), start, end))
            elif re.match(r"execute(_\d+)?_context_\d+\(", name):
                served.append((start, end))
            is_range = category == "user_annotation" or (category == "operator" and is_old_range(name))
            nests["range" if is_range else "operator"][thread].rows.append((start, end, name))
        elif category == "python_function" and (name.startswith("nn.Module: ") or number(args.get("Python module id")) >= 0):
            nests["module"][thread].rows.append((start, end, name.removeprefix("nn.Module: ")))
        elif category == "python_function" and re.match(r".*\(\d+\): ", name, re.DOTALL):
            nests["frame"][thread].rows.append((start, end, re.sub(r"(?s)^(.*)\((\d+)\): ", r"\1:\2 ", name)))
        elif category == "cuda_sync" and name.lower().startswith("stream sync"):
            streams[number(args.get("correlation"))] = number(args.get("stream"))
        elif category == "runtime" or category.endswith(("_runtime", "_driver")):
            api = Api(name, plain(name), thread, start, end, at)
            key = number(args.get("correlation"))
            if key > 0 and (key not in api_of or start < api_of[key].start):
                api_of[key] = api
            if COPY_API.search(api.plain):
                calls.append(api)
            if re.match(r"(cuda|hip|cu|musa)\w*Synchronize", name):
                waits.append((api, key))
    marks = marks or [(k, *one) for k, one in enumerate(sorted(served), 1)]  # iterations of a serving engine, by their place
    found = _joined(device, api_of, calls, nests, marks)
    used = {number((e.get("args") or {}).get("correlation")) for _, e, _ in device}
    starting = {api.number: api for key, api in api_of.items() if key in used} | {api.number: api for api, _ in waits}
    for api in sorted(starting.values(), key=lambda a: (a.start, -a.end, a.number)):
        found.acts.setdefault(api.thread, []).append(api)
    found.waited.update({api.number: streams[key] for api, key in waits if key in streams and key > 0})
    return found


def is_old_range(name: str) -> bool:
    """User ranges stood among the operators up to torch 1.11."""
    return bool(re.match(r"ProfilerStep#|enumerate\(Data|Optimizer\.|(Distributed)?DataParallel\.forward", name))


def _joined(
    device: list[tuple[int, dict[str, Any], str]],
    api_of: dict[int, Api],
    calls: list[Api],
    nests: dict[str, dict[tuple[object, object], Nest]],
    marks: list[tuple[int, int, int]],
) -> Trace:
    longest: dict[int, tuple[int, int]] = {}
    for mark, start, end in marks:
        if mark not in longest or end - start > longest[mark][1] - longest[mark][0]:
            longest[mark] = (start, end)
    steps = sorted(((start, end, mark) for mark, (start, end) in longest.items()), key=lambda s: s[0])
    rows = []
    reach = {mark: end for _, end, mark in steps}
    for at, e, category in device:
        args = e.get("args") or {}
        start = ns(e["ts"])
        end = start + max(ns(e.get("dur", 0)), 0)
        call = api_of.get(number(args.get("correlation")))
        step = next((m for low, high, m in reversed(steps) if low <= call.start < high), None) if call else None
        if step is not None:
            reach[step] = max(reach[step], end)
        rows.append((at, e, category, args, start, end, call, step))
    before = _before([(r[3], r[4], r[5], r[6]) for r in rows], [lane_of(r[1], r[2]) for r in rows], api_of, steps[0][0]) if steps else {}
    bounds, last = [], max(before.values(), default=None)
    for low, _, mark in steps:
        low = low if last is None else max(low, last)
        bounds.append((low, max(reach[mark], low), mark))
        last = bounds[-1][1]
    copies, work, busy = [], defaultdict(list), defaultdict(list)
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for i, (at, e, category, args, start, end, call, step) in enumerate(rows):
        name = str(e.get("name", ""))
        where, stream = lane_of(e, category)
        around = {k: n[call.thread].around(call.start) if call else [] for k, n in nests.items()}
        if call is None and i not in before:
            step = next((m for low, high, m in bounds if low <= start < high), None)
        copy = _copy(name, category, args)
        lanes[where, stream].append((start, at))
        if copy is None:
            peers = any(p in name.lower() for p in PEER_NAMES)
            for own in (around["operator"], around["range"]):
                peers = peers or bool(own and (own[-1].startswith(RANGES) or own[-1] == "record_param_comms"))
            busy[where].append((start, end))
            if not peers:
                work[where].append((start, end))
            continue
        direction, src, dst, size = copy
        module = around["module"][-1] if around["module"] else ""
        copies.append(Copy(at, direction, src, dst, where, stream, start, end, size, call, step, tuple(around["operator"]), module,
                           around["frame"][-1] if around["frame"] else "", tuple(around["range"])))  # fmt: skip
    return Trace(tuple(copies), tuple(calls), {d: union(s) for d, s in work.items()}, {d: union(s) for d, s in busy.items()},
                 tuple(m for _, _, m in steps), {}, {}, {k: [n for _, n in sorted(v)] for k, v in lanes.items()})  # fmt: skip


def lane_of(e: dict[str, Any], category: str) -> tuple[int, int]:
    """Device and stream of a device event."""
    args = e.get("args") or {}
    device = number(args.get("device")) if "device" in args else number(e.get("pid"))
    return device, number(args["stream"]) if "stream" in args else -1 if category == "mtia_ccp_events" else number(e.get("tid"))


def _before(
    rows: list[tuple[dict[str, Any], int, int, Api | None]], lanes: list[tuple[int, int]], api_of: dict[int, Api], first_step: int
) -> dict[int, int]:
    """Place in `rows` -> end of the work that was launched before the first step: by a call before it; or without a call, if it starts
    before that step or has a correlation below all calls, and nothing with a call starts before it on its stream."""
    first: dict[tuple[int, int], int] = {}
    for (_, start, _, call), lane in zip(rows, lanes, strict=True):
        if call is not None:
            first[lane] = min(first.get(lane, start), start)
    lowest = min(api_of, default=0)
    out = {}
    for i, ((args, start, end, call), lane) in enumerate(zip(rows, lanes, strict=True)):
        if call is not None:
            early = call.start < first_step
        else:
            early = (start < first_step or 0 < number(args.get("correlation")) < lowest) and start <= first.get(lane, start)
        if early:
            out[i] = end
    return out


def _copy(name: str, category: str, args: dict[str, Any]) -> tuple[str, str, str, int | None] | None:
    """(direction, source, destination, size) of a copy or set; None for any other device work."""
    size = args.get("bytes")
    if category == "mtia_ccp_events":
        if "direction" not in args:
            return None
        return *direction_of("", str(args["direction"])), number(args["size"]) if "size" in args else None
    if "memset" in category or ("memcpy" in category and name.lower().startswith("memset")):
        kind = re.search(r"\(([^()]*)\)", name)
        return "Memset", "", kind[1].strip() if kind else "", size
    if "memcpy" in category:
        return *direction_of(name, str(args.get("kind", ""))), size
    return ("copy kernel", "", "", size) if re.search(r"(?i)__amd_rocclr_.*copy", name) else None


# -- intervals ------------------------------------------------------------------------------------------------


def union(spans: Iterable[tuple[int, int]]) -> Spans:
    out: Spans = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def both(a: Spans, b: Spans) -> int:
    """Length of what two unions share."""
    few, many = sorted((a, b), key=len)
    if 10 * len(few) < len(many):
        return sum(covered(start, end, many) for start, end in few)
    total = i = j = 0
    while i < len(a) and j < len(b):
        total += max(0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return total


# -- sums -----------------------------------------------------------------------------------------------------


class Sums(NamedTuple):
    """Of one group of copies. size: of those that carry one; sized_time: their time."""

    copies: int
    size: int
    without: int
    time: int
    sized_time: int
    union: int
    hidden: int
    exposed: int
    idle_exposed: int


def sums(trace: Trace, copies: Iterable[Copy]) -> Sums:
    mine = list(copies)
    length = hidden = behind = 0
    for device in {c.device for c in mine}:
        spans = union((c.start, c.end) for c in mine if c.device == device)
        length += sum(end - start for start, end in spans)
        hidden += both(spans, trace.work.get(device, []))
        behind += both(spans, trace.busy.get(device, []))
    known = [c for c in mine if c.size is not None]
    return Sums(len(mine), sum(c.size or 0 for c in known), len(mine) - len(known), sum(c.time for c in mine), sum(c.time for c in known),
                length, hidden, length - hidden, length - behind)  # fmt: skip


def grouped(trace: Trace, key: Callable[[Copy], object]) -> dict[Any, Sums]:
    groups: dict[object, list[Copy]] = defaultdict(list)
    for c in trace.copies:
        groups[key(c)].append(c)
    return {k: sums(trace, v) for k, v in groups.items()}


def histogram(trace: Trace) -> dict[tuple[str, int], tuple[int, int, int]]:
    """(direction, bin) -> copies, bytes, time of the copies that carry a size; the upper end belongs to the bin."""
    out: dict[tuple[str, int], tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for c in trace.copies:
        if c.size is not None:
            key = c.direction, sum(c.size > end for end in BIN_ENDS)
            n, size, time = out[key]
            out[key] = n + 1, size + c.size, time + c.time
    return dict(out)


def api_table(trace: Trace) -> dict[str, tuple[int, int, int, int, int]]:
    """Copy calls by plain name -> calls, host time, device copies joined, their bytes, their time."""
    by_number: dict[int, list[Copy]] = defaultdict(list)
    for c in trace.copies:
        if c.call is not None:
            by_number[c.call.number].append(c)
    out: dict[str, tuple[int, int, int, int, int]] = defaultdict(lambda: (0, 0, 0, 0, 0))
    for api in trace.calls:
        mine = by_number[api.number]
        add = 1, api.end - api.start, len(mine), sum(c.size or 0 for c in mine), sum(c.time for c in mine)
        out[api.plain] = tuple(a + b for a, b in zip(out[api.plain], add, strict=True))  # type: ignore[assignment]
    return dict(out)


# -- what blocked the host ---------------------------------------------------------------------------------------


def covered(start: int, end: int, spans: Spans) -> int:
    """Length of one interval that a union covers."""
    place, total = bisect.bisect_right(spans, start, key=lambda s: s[1]), 0
    while place < len(spans) and spans[place][0] < end:
        total += min(end, spans[place][1]) - max(start, spans[place][0])
        place += 1
    return total


class Held(NamedTuple):
    """reason "" and spans () for a copy that held nothing; spans: the call, and a wait that follows at once."""

    reason: str
    spans: tuple[tuple[int, int], ...]

    @property
    def time(self) -> int:
        return sum(end - start for start, end in self.spans)


def held(trace: Trace, outlast: int = 50_000, read: int = 64) -> dict[int, Held]:
    """Per copy (by its number) whether it blocked the host, and why."""
    wait = _waits_after(trace)
    out = {}
    for c in trace.copies:
        why = reason(c, c.number in wait, outlast, read)
        spans = [(a.start, a.end) for a in (c.call, wait.get(c.number)) if a is not None] if why else []
        out[c.number] = Held(why, tuple(spans))
    return out


def reason(c: Copy, waited: bool, outlast: int = 50_000, read: int = 64) -> str:
    """The first that holds of tiny_read, sync_api, pageable, waits, managed_set; "" for none.

    Copies inside of a device and between devices do not block the host, except where AMD's tracer tells the reading of a value as such;
    memory that is managed, or the host on both sides, makes every call synchronous.
    """
    call = c.call
    if call is None or not COPY_API.search(call.plain):
        return ""
    ends, sets = (c.src, c.dst), re.match(r"(cuda|hip|cu)Memset", call.plain) is not None
    managed = any(e.startswith("Managed") for e in ends)
    if c.direction == "Memset":
        host = any(e in ("Pinned", "Pageable") for e in ends)
        return "managed_set" if sets and not call.is_async and (managed or host) else ""
    if re.match(r"(cuda|hip|cu)Memcpy", call.plain) is None:
        return ""
    inside = c.direction in ("DtoD", "PtoP") and not managed
    unsure = c.direction in ("copy kernel", "Unknown")
    small = c.size is not None and c.size <= read
    if small and c.direction == "DtoH" and any(o in READS or re.match(r"aten::_?unique", o) for o in c.operators):
        return "tiny_read"
    if small and (inside or unsure) and not call.is_async and SCALARS & set(c.operators):
        return "tiny_read"
    if inside:
        return ""
    if not unsure and (not call.is_async or managed or (c.direction == "HtoH" and "Pageable" not in ends)):
        return "sync_api"
    if not unsure and "Pageable" in ends:
        return "pageable"
    late = call.end - call.start > c.time + outlast or call.start <= c.end <= call.end
    return "waits" if late or waited else ""


def _waits_after(trace: Trace) -> dict[int, Api]:
    """Per copy (by its number) the call that waits for it: the next act of its thread, which holds the end of the copy."""
    last: dict[int, tuple[int, int]] = {}
    wait: dict[int, Api] = {}
    for c in trace.copies:
        if c.call is None or not c.call.is_async or c.direction in ("DtoD", "PtoP", "Memset"):
            continue
        if COPY_API.search(c.call.plain) is None:
            continue
        acts = trace.acts.get(c.call.thread, [])
        place = next((i for i, a in enumerate(acts) if a.number == c.call.number), len(acts)) + 1
        following = acts[place] if place < len(acts) else None
        if following is None or "Synchronize" not in following.name:
            continue
        stream = trace.waited.get(following.number, -1)
        fits = following.start >= c.call.end and following.start <= c.end <= following.end
        later = following.number not in last or last[following.number] < (c.end, c.number)
        if fits and later and (stream < 0 or c.stream < 0 or stream == c.stream):
            if following.number in last:
                del wait[last[following.number][1]]
            last[following.number] = c.end, c.number
            wait[c.number] = following
    return wait


def host_lost(trace: Trace, found: dict[int, Held]) -> int:
    """Time in which copies held the threads of the host, each moment of a thread once."""
    threads: dict[tuple[object, object], list[tuple[int, int]]] = defaultdict(list)
    for c in trace.copies:
        if c.call is not None:
            threads[c.call.thread].extend(found[c.number].spans)
    return sum(end - start for spans in threads.values() for start, end in union(spans))


# -- patterns -------------------------------------------------------------------------------------------------

MOVES = ("HtoD", "DtoH", "DtoD", "PtoP")


def inside(trace: Trace) -> list[Copy]:
    """Copies that steps launched; all of them where no step was recorded."""
    return [c for c in trace.copies if c.step is not None or not trace.steps]


def tiny(trace: Trace, below: int = 65536, least: int = 32) -> dict[str, set[int]]:
    """Direction -> numbers of its copies below a size, of steps that have at least so many of them."""
    groups: dict[tuple[str, int | None], set[int]] = defaultdict(set)
    for c in inside(trace):
        if c.size is not None and c.size < below and c.direction in MOVES:
            groups[c.direction, c.step].add(c.number)
    out: dict[str, set[int]] = defaultdict(set)
    for (direction, _), own in groups.items():
        if len(own) >= least:
            out[direction] |= own
    return dict(out)


def runs(trace: Trace, below: int = 1 << 20, gap: int = 1_000_000, least: int = 3) -> list[list[Copy]]:
    """Copies one after another on a stream with nothing between: one direction, one step, each small, with little time between."""
    by_number = {c.number: c for c in inside(trace) if c.direction in MOVES and c.size is not None and c.size < below}
    out: list[list[Copy]] = []
    for lane in trace.lanes.values():
        own: list[Copy] = []
        for at in lane:
            c = by_number.get(at)
            if c is None or (own and ((c.direction, c.step) != (own[-1].direction, own[-1].step) or c.start - own[-1].end >= gap)):
                out.append(own)
                own = []
            if c is not None:
                own.append(c)
        out.append(own)
    return [r for r in out if len(r) >= least]


def round_trips(trace: Trace, within: int = 10_000_000, least: int = 2, read: int = 64) -> set[int]:
    """Numbers of copies to the host and back, in turns: one step, one device, one size, each soon after the one before."""
    groups: dict[object, list[Copy]] = defaultdict(list)
    for c in inside(trace):
        if c.direction in ("HtoD", "DtoH") and c.size is not None and c.size > read:
            groups[c.step, c.device, c.size].append(c)
    out: set[int] = set()
    for own in groups.values():
        own.sort(key=lambda c: (c.start, c.number))
        chains: list[list[Copy]] = [[]]
        for c in own:
            last = chains[-1][-1] if chains[-1] else None
            if last is None or last.direction == c.direction or c.start - last.end > within:
                chains.append([])
            if chains[-1] or c.direction == "DtoH":
                chains[-1].append(c)
        for chain in chains:
            trips = len(chain) // 2
            if trips >= least:
                out |= {c.number for c in chain[: 2 * trips]}
    return out
