"""Finds idle time in what a program does once: loading of code, set-up of the driver, first calls of operators, memory from the driver.

    warm_up, device_allocation          # rules
    calls_named(context, WAITING)       # host rows of runtime calls by name, for other rules
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.rules.engine import Answer, count_text, rule, time_text
from tb_sol_plugin.metrics.rules.time.context import TimeContext
from tb_sol_plugin.metrics.rules.time.engine_fixes import warm_fix
from tb_sol_plugin.metrics.rules.time.host_code import quiet
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import WAITING, device_word, host_idle
from tb_sol_plugin.metrics.time.frames import launching_threads
from tb_sol_plugin.metrics.work.ownership import outermost
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints

LAUNCH: Final = re.compile(r"^(cuda|hip|cu)(Ext)?(Module|Coop\w*)?Launch")
"""Calls that start a kernel: the first start of a kernel loads its code."""
SET_UP: Final = re.compile(r"^(cuda|hip)(GetDevice|DeviceGet|Module|Func|Occupancy|StreamCreate|Init)|^cu(Module|Library|Init)")
"""Calls that create what the driver keeps for the rest of the program."""
ALLOCATE: Final = re.compile(r"^(cuda|hip)(Malloc|Free)(Async|Host|Managed)?$|^cuMem(Create|Map|Unmap|Release|Alloc|Free)")
"""Calls that take device memory from the driver or give it back."""
CONTEXT_NS: Final = 100_000_000
"""An allocation of over 100 ms creates the context: it is part of the warm-up."""
FIRST_USE_NS: Final = 1_000_000
"""A launch takes 2 to 20 µs; one of over 1 ms loads code or waits for the driver."""
CAPTURE: Final = re.compile(r"^(cuda|hip|cu)StreamBeginCapture")
CAPTURED: Final = re.compile(r"^(cuda|hip|cu)StreamEndCapture")
INSTANTIATE: Final = re.compile(r"^(cuda|hip|cu)GraphInstantiate")
"""Calls around what is recorded into a graph instead of being run, and those that make the graph ready."""
USUAL: Final = 2
"""So many later calls of an operator over the same sizes tell what it usually takes."""
TIMES: Final = 5
"""A first call of over 5 times what later ones take does something that they do not."""
BY_NAME: Final = 100
"""The same where sizes are not known, against the longest later call."""


def calls_named(context: TimeContext, pattern: re.Pattern[str]) -> Ints:
    """Returns the host rows of runtime and driver calls whose name matches."""
    capture = context.capture
    return memo(capture, ("calls_named", pattern.pattern), lambda: at.named(capture, S.CALL, lambda name: pattern.search(name) is not None))


@rule(
    "warm_up", title="The recording begins before the program is warm",
    fix="torch.profiler.schedule(wait=1, warmup=3, active=3)  # the first steps stay out of the recording", page="gpu_breakdown",
    label="Idle causes", color="host",
)  # fmt: skip
def warm_up(context: TimeContext) -> Answer:
    """Finds idle time in what happens once: first launches and set-up calls of over 1 ms, capture of graphs, first calls of operators.

    The recording begins before warm-up. Of an operator's first call over some sizes counts its time above the median of the later ones.
    """
    capture, device, h = context.capture, context.capture.device, at.host(context.capture)
    call = device["call"].to_numpy()
    new = call[~device["name"].duplicated().to_numpy() & (call >= 0)]
    launch, setup, memory = (calls_named(context, pattern) for pattern in (LAUNCH, SET_UP, ALLOCATE))
    rows = np.concatenate((launch[np.isin(launch, new)], setup, memory[h.duration[memory] >= CONTEXT_NS]))
    rows = rows[h.duration[rows] >= FIRST_USE_NS]
    rows = rows[iv.overlap_with(h.start[rows], h.stop[rows], context.idle) > 0]
    others = memo(capture, ("first_use.others",), lambda: _other_causes(context))
    operators, usual, sized = memo(capture, ("first_use.calls",), lambda: _first_calls(context, others))
    slow = iv.subtract(iv.union(h.start[operators], h.stop[operators] - usual), others)
    spans = iv.union(h.start[rows], h.stop[rows]), _captures(context), slow
    idle = context.ledger.take_idle(iv.intersect(iv.merge(*spans), host_idle(capture)))
    if not iv.length(idle):
        return None
    inside, captured, slow = (iv.intersect(part, idle) for part in iv.exclusive(spans))
    parts = []
    if iv.length(inside):
        (name,), _ = arrays.largest([capture.host["name"]], rows, iv.overlap_with(h.start[rows], h.stop[rows], inside))
        calls = count_text(len(outermost(np.sort(rows), h.end)), "call")  # a runtime call and the driver call in it are one
        parts.append((inside, f"during {calls} to load code or set up the driver, most of it in `{name}`"))
    if iv.length(captured):
        parts.append((captured, "while graphs are captured"))
    time = iv.overlap_with(h.start[operators], h.stop[operators], slow)
    operators, usual, time = operators[time > 0], usual[time > 0], time[time > 0]
    if len(operators):
        most = int(time.argmax())
        name = str(arrays.pick(capture.host["name"], [operators[most]])[0])
        took, later = time_text(int(h.duration[operators[most]])), time_text(int(usual[most]))
        calls = count_text(len(outermost(np.sort(operators), h.end)), "first call")
        over, most_later = (" over their sizes", later) if sized else ("", f"at most {later}")
        words = f"in {calls} of operators{over}, most of it in `{name}` (the first call takes {took}, later ones {most_later})"
        parts.append((slow, words))
    text = ", ".join(f"{time_text(iv.length(part))} {words}" for part, words in parts)
    evidence = f"The {device_word(capture)} idles {text}: first use, not a cost of every step."
    return context.finding(evidence, idle=idle, fix=warm_fix(capture))


def _first_calls(context: TimeContext, others: iv.Spans) -> tuple[Ints, Ints, bool]:
    """Returns (host rows of first calls of operators over their sizes that take over 1 ms and much more than later ones, their median).

    Of operators on launching threads that launch something or call the runtime. Where no sizes were recorded, first calls by name that take
    so much longer than every later one that sizes do not explain it, and the longest of these. Last, whether sizes were recorded.
    others: time that has another cause.
    """
    capture, h = context.capture, at.host(context.capture)
    table = capture.tables["operators"]
    known = arrays.where(table["shapes"], lambda text: text not in ("", "[]"))
    sized = bool(known.any())
    host, text = table["host"].to_numpy() if sized else at.of_kind(capture, S.OPERATOR), arrays.coded(capture.host["name"])
    long = np.flatnonzero(h.duration[host] >= FIRST_USE_NS)
    long = long[np.isin(h.thread[host[long]], launching_threads(capture))]
    names = np.zeros(len(text.categories) + 1, np.bool_)
    names[text.codes[host[long[known[long]] if sized else long]]] = True
    may = np.flatnonzero(names[text.codes[host]])  # all calls of the few names of which a first call may be slow
    may = may[known[may]] if sized else may
    host = host[may].astype(np.int64)
    if not len(host):
        return host, host, sized
    name, keys = text.codes[host], [arrays.coded(table[column]).codes[may] for column in ("shapes", "concrete")] if sized else []
    order = np.argsort(h.start[host], kind="stable")
    host, keys = host[order], [key[order] for key in keys]
    code = arrays.together(name[order], *keys)
    first = np.flatnonzero(np.diff(code, prepend=-1) > 0)  # codes are in order of first use
    first = first[np.diff(np.maximum.accumulate(code[first]), prepend=-1) > 0]
    first = first[h.duration[host[first]] >= FIRST_USE_NS]
    rows = host[first]
    time = h.duration[rows] - iv.overlap_with(h.start[rows], h.stop[rows], others)
    slow = (time >= FIRST_USE_NS) & np.isin(h.thread[rows], launching_threads(capture)) & ~quiet(capture, rows)
    first, time = first[slow], time[slow]
    again = np.isin(code, code[first])  # calls of the few that may be slow
    again[first] = False
    later, of, count = h.duration[host[again]], code[again], int(code.max()) + 1
    usual = np.full(count, -np.inf)
    if keys:
        usual = arrays.medians(of, later, count)
    else:
        np.maximum.at(usual, of, later)
    usual[np.bincount(of, minlength=count) < USUAL] = np.inf
    slow = time > (TIMES if keys else BY_NAME) * usual[code[first]]
    return host[first[slow]], usual[code[first[slow]]].astype(np.int64), sized


def _captures(context: TimeContext) -> iv.Spans:
    """Returns when graphs are captured, from each begin of a capture to the next end on its thread, and made ready."""
    h = at.host(context.capture)
    begin, end = calls_named(context, CAPTURE), calls_named(context, CAPTURED)
    ready = calls_named(context, INSTANTIATE)
    parts = [iv.union(h.start[ready], h.stop[ready])]
    for thread in np.unique(h.thread[begin]).tolist():
        start, stop = np.sort(h.start[begin[h.thread[begin] == thread]]), np.sort(h.stop[end[h.thread[end] == thread]])
        until = np.searchsorted(stop, start)
        closed = until < len(stop)
        parts.append(iv.union(start[closed], stop[until[closed]]))
    return iv.merge(*parts)


def _other_causes(context: TimeContext) -> iv.Spans:
    """Returns the calls that wait for the device or ask the driver for memory: what they take is no first use of an operator."""
    h = at.host(context.capture)
    rows = np.concatenate([calls_named(context, pattern) for pattern in (ALLOCATE, WAITING)])
    return iv.union(h.start[rows], h.stop[rows])


@rule(
    "device_allocation", title="The allocator asks the driver for memory during the step", page="gpu_breakdown", label="Idle causes",
    color="host",
)  # fmt: skip
def device_allocation(context: TimeContext) -> Answer:
    """Finds idle time while the allocator takes memory from the driver or gives it back."""
    capture, h = context.capture, at.host(context.capture)
    rows = calls_named(context, ALLOCATE)
    inside = iv.overlap_with(h.start[rows], h.stop[rows], context.idle)
    rows, inside = rows[inside > 0], inside[inside > 0]
    if not len(rows):
        return None
    (name,), _ = arrays.largest([capture.host["name"]], rows, inside)
    idle = context.ledger.take_idle(iv.intersect(iv.union(h.start[rows], h.stop[rows]), host_idle(capture)))
    calls = count_text(len(outermost(np.sort(rows), h.end)), "call")  # a runtime call and the driver call in it are one
    vendor = "HIP" if context.vendor == "amd" else "CUDA"
    return context.finding(
        f"The {device_word(capture)} idles {time_text(iv.length(idle))} during {calls} to allocate or free device memory, most of it in "
        f"`{name}`: a warm allocator serves the step from what it has reserved.",
        idle=idle,
        fix=f"PYTORCH_{vendor}_ALLOC_CONF=expandable_segments:True  # and no torch.cuda.empty_cache() in the step",
    )
