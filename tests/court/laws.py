"""Laws that the findings of any recording keep, whoever made it.

Every law is checked from the tables of the capture, without the ledger that rules take their savings from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.rules.engine import Finding, combined_ns
from tb_sol_plugin.metrics.time.scope import extent
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tests.court.case import RULES, Found, findings_of
from tests.support.findings import assert_disjoint

BLAME: Final = ("input_wait", "warm_up", "device_allocation", "host_sync", "launch_bound", "operator_wait", "python_wait", "host_wait")
"""Findings that say that the device waits for the host."""
PROFILER: Final = ("Activity Buffer Request", "Buffer Flush")
"""Work of the profiler itself, as it names it."""
PROFILES: Final = re.compile(r"torch/(autograd/)?profiler[^:]*\(\d+\): ")
"""Python frames of the profiler."""
QUOTED: Final = re.compile(r"`([^`]+)`")


def broken(c: Capture) -> list[str]:
    """Returns the laws that the findings of a recording break, each in words; none for a good one."""
    found = findings_of(c)
    return [*_words(found), *(_savings(found) if found.waterfall is not None else ()), *_names(c, found), *_memory(found), *_edges(c, found)]


def _words(found: Found) -> Iterator[str]:
    """Every finding is known, has all of its words, and none of them is a number that is none."""
    for subject in (found.time, found.copies, found.memory):
        ids = [f.id for f in subject]
        if len(set(ids)) != len(ids):
            yield f"a rule reports twice: {ids}"
        if subject != sorted(subject, key=lambda f: (f.candidate, -f.saving)):
            yield f"not in order: {ids}"
        for f in subject:
            if f.id not in RULES:
                yield f"{f.id} is no rule"
            if not (f.title and f.evidence and f.fix) or re.search(r"\b(nan|None|inf)\b", f"{f.title} {f.evidence} {f.fix}"):
                yield f"{f.id} lacks words: {f.title!r} {f.evidence!r} {f.fix!r}"


def _savings(found: Found) -> Iterator[str]:
    """No saving is above the step, nor their sum; none takes more of a call than the call has, and none takes a call that it does not show."""
    fall = found.waterfall
    assert fall is not None
    step = fall.total_ns / fall.steps
    for f in (*found.time, *found.copies):
        if not 0 < f.saving <= step + 1:
            yield f"{f.id} saves {f.saving} of a step of {step}"
    for name, subject in (("time", found.time), ("copies", found.copies)):
        if combined_ns(subject, fall.steps if name == "copies" else 1) > step + len(subject):
            yield f"findings of {name} save {combined_ns(subject)} of a step of {step} together"
    if sum(f.saving for f in found.time) > step + len(found.time):
        yield f"the sum of savings is {sum(f.saving for f in found.time)} of a step of {step}"
    taken = np.zeros(len(fall.work.ops))
    for f in found.time:
        if len(f.rows) != len(f.claimed) or len(np.unique(f.rows)) != len(f.rows):
            yield f"{f.id} claims rows twice, or without time"
        np.add.at(taken, f.rows, f.claimed)
    yield from _evidence(found.time, fall)
    measured = fall.work.ops["measured_ns" if fall.work.by_host_time else "device_sum_ns"].to_numpy(dtype=np.float64)
    if not (taken <= measured + 1).all():
        yield f"findings take {taken.max()} ns of a call"


def _evidence(found: list[Finding], fall: Waterfall) -> Iterator[str]:
    """The rows of a finding are its saving to the nanosecond, and no row stands in two findings."""
    for f in found:
        rows = float(f.claimed.sum()) + iv.length(f.idle) + float(f.events_ns.sum())
        if not rows:
            yield f"{f.id} has no evidence"
        elif abs(rows - f.saving * fall.steps) > fall.steps:
            yield f"{f.id} saves {f.saving} in each of {fall.steps} steps, its rows are {rows:.0f} ns"
        if iv.length(iv.subtract(f.idle, fall.idle)):
            yield f"{f.id} takes idle time in which the device works"
    try:
        assert_disjoint(found)
    except AssertionError:
        yield "a call, a copy or an idle moment stands in two findings"


def _memory(found: Found) -> Iterator[str]:
    """No finding about memory frees more than there is."""
    for f in found.memory:
        if f.saving <= 0 or (f.share is not None and not 0 < f.share <= 1):
            yield f"{f.id} frees {f.saving}, {f.share} of the peak"


def _names(c: Capture, found: Found) -> Iterator[str]:
    """What evidence quotes stands in the recording, and no link looks for words."""
    if found.waterfall is None:
        return
    columns = (c.host["name"], c.device["name"], found.waterfall.work.ops["name"])
    known = "\n".join({str(name) for column in columns for name in column.cat.categories})
    for f in (*found.time, *found.copies):
        for quoted in QUOTED.findall(f.evidence):
            parts = [p for p in re.split(r" → |…|:\d+ |/", quoted) if p]
            if not any(p.strip() in known for p in parts):
                yield f"{f.id} quotes {quoted!r}, which is not in the recording"
        if "find" in f.query:
            yield f"{f.id} looks for {f.query['find']!r}: other rows can hold these words"


def _edges(c: Capture, found: Found) -> Iterator[str]:
    """The host is blamed for no more idle time than its own late launches leave, and for no edge that they do not explain."""
    fall, device, host = found.waterfall, c.device, c.host
    if fall is None or not len(device) or not len(host) or len(device["device"].unique()) > 1:
        return
    start = device["start_ns"].to_numpy()
    stop = start + device["duration_ns"].to_numpy()
    low, high = extent(c)
    begin, end = iv.gaps(iv.union(start, stop), low, high)
    work = np.flatnonzero(stop > start)
    work = work[np.argsort(start[work], kind="stable")]
    call = device["call"].to_numpy()[work]
    launch = np.where(call >= 0, host["start_ns"].to_numpy()[np.maximum(call, 0)], np.iinfo(np.int64).min)
    last = int(stop.max())
    allowed = []
    for a, b in zip(begin.tolist(), end.tolist(), strict=True):
        at = int(np.searchsorted(start[work], b, side="left"))
        following = launch[at : at + 8][start[work[at : at + 8]] == b]  # several may start at once
        if a >= last or (following >= a).any():  # what stands after the last work is the host's while it runs
            allowed.append((a, b))
    blaming = [f for f in found.time if f.id in BLAME]
    blamed = sum(f.saving for f in blaming) * fall.steps
    spans = iv.union(np.array([s for s, _ in allowed], np.int64), np.array([s for _, s in allowed], np.int64))
    own = arrays.where(host["name"], lambda n: n in PROFILER or PROFILES.search(n) is not None)
    own &= host["end"].to_numpy() == np.arange(len(host)) + 1  # with nothing of the program inside
    first = host["start_ns"].to_numpy()[own]
    spans = iv.subtract(spans, iv.union(first, first + host["duration_ns"].to_numpy()[own]))
    most = iv.length(iv.intersect(iv.intersect(fall.windows, spans), fall.idle))
    for f in blaming:
        if beyond := iv.length(iv.subtract(f.idle, spans)):
            yield f"{f.id} blames the host for {beyond} ns that no late launch explains"
    if blamed > most + len(BLAME) * fall.steps:
        yield f"the host is blamed for {blamed} ns, its launches were late for {most}"
    if (call < 0).all() and blamed:
        yield "the host is blamed though no launch was recorded"
