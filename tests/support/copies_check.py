"""The pages on copies held against `copies_reference`: one recording, read twice, number by number."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any

import pandas as pd

from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Report, UnavailableReport
from tests.support import copies_reference as R
from tests.support.captures import answered

COLUMNS = ("count", "bytes", "without_bytes", "time_ns", "union_ns", "hidden_ns", "exposed_ns", "idle_exposed_ns")
ADDITIVE = 4
"""Of those, how many add up where several rows stand for one group of the reference."""
KEYS: dict[str, Callable[[R.Copy], tuple[object, ...]]] = {
    "direction": lambda c: (c.direction,),
    "kind": lambda c: (c.direction, c.src, c.dst),
    "stream": lambda c: (c.direction, c.device, c.stream),
    "step": lambda c: (c.direction, c.step),
    "module": lambda c: (c.direction, c.module),
}
REASONS = {
    "Reads a value": "tiny_read", "Synchronous call": "sync_api", "Pageable memory": "pageable", "The host waits for it": "waits",
    "Set of host memory": "managed_set",
}  # fmt: skip
"""Words of the page for what the reference calls it."""
BINS = ("≤ 4 KiB", "4–64 KiB", "64 KiB–1 MiB", "1–16 MiB", "16–256 MiB", "> 256 MiB")


def report(c: Capture, name: str, **query: str) -> Report:
    answer = answered(c, name, **query)
    assert isinstance(answer, Report), answer
    return answer


def says_why_not(c: Capture, *names: str) -> None:
    """A recording without copies has no page, and each says so."""
    for name in names:
        answer = c.analyze(name)
        assert isinstance(answer, UnavailableReport) and answer.because and answer.record_it_with, name


def sums_agree(c: Capture, raw: R.Trace, by: str) -> None:
    """Every sum of every group of `memcpy`, to the nanosecond and the byte."""
    devices = {copy.device for copy in raw.copies}
    got: dict[tuple[object, ...], list[int]] = {}
    rows: dict[tuple[object, ...], int] = {}
    for row in report(c, "memcpy", by=by).table("copies").to_dict("records"):
        key = _key(row, by, next(iter(devices)) if len(devices) == 1 else None)
        values = [0 if pd.isna(row[column]) else int(row[column]) for column in COLUMNS]
        got[key] = [a + b for a, b in zip(got.get(key, [0] * len(COLUMNS)), values, strict=True)]
        rows[key] = rows.get(key, 0) + 1
    wanted = R.grouped(raw, KEYS[by])
    assert set(got) == set(wanted)
    for key, s in wanted.items():
        want = [s.copies, s.size, s.without, s.time, s.union, s.hidden, s.exposed, s.idle_exposed]
        shown = len(COLUMNS) if rows[key] == 1 else ADDITIVE
        assert got[key][:shown] == want[:shown], (by, key)


def rows_agree(c: Capture, raw: R.Trace) -> None:
    """Every single copy of `memcpy_copies`: where, when, how large, what hides it, who launched it, and whether it blocked the host."""
    answer = report(c, "memcpy_copies", most="200000")
    found = R.held(raw)
    wanted = sorted((row(raw, copy, found[copy.number]) for copy in raw.copies), key=repr)
    got = sorted((_row(r) for r in answer.table("copies").to_dict("records")), key=repr)
    assert len(got) == len(wanted)
    for mine, theirs in zip(wanted, got, strict=True):
        assert mine == theirs
    facts = answer.facts
    assert facts["held"] == sum(1 for h in found.values() if h.reason)
    assert facts["lost_ns"] == R.host_lost(raw, found)
    calls = {(copy.call.number, copy.call.start, copy.call.end) for copy in raw.copies if copy.call}
    assert (facts["call_ns"] or 0) == sum(end - start for _, start, end in calls)


def row(raw: R.Trace, copy: R.Copy, held: R.Held) -> tuple[object, ...]:
    """One copy as a comparable row. Times are durations: where the recording begins is not compared here."""
    hidden = R.covered(copy.start, copy.end, raw.work.get(copy.device, []))
    ends = copy.dst if copy.direction == "Memset" else f"{copy.src or '?'} → {copy.dst or '?'}" if copy.src or copy.dst else ""
    call = copy.call
    return (
        copy.direction, ends or None, copy.size, copy.time, hidden,
        copy.time - hidden, copy.device, copy.stream, call.plain if call else None, call.end - call.start if call else None,
        held.reason, held.time if held.reason else None, copy.operators[-1] if copy.operators else None, copy.module or None,
        copy.frame or None, copy.step,
    )  # fmt: skip


def _row(r: dict[Hashable, object]) -> tuple[object, ...]:
    def whole(name: str) -> int | None:
        value = r[name]
        return None if pd.isna(value) else int(value)  # type: ignore[call-overload, arg-type]

    def text(name: str) -> str | None:
        value = r[name]
        return value if isinstance(value, str) and value else None

    reason, step, module = text("reason"), text("step") or "", text("module") or ""
    place = [int(v) if isinstance(v, str) else -1 for v in (r["device"], r["stream"])]
    return (
        r["direction"], text("kinds"), whole("bytes"), whole("duration_ns"), whole("hidden_ns"), whole("exposed_ns"), *place, text("api"),
        whole("call_ns"), REASONS[reason] if reason else "", whole("host_ns"), text("operator"), None if _outside(module) else module,
        text("frame"), int(step) if step.isdigit() else None,
    )  # fmt: skip


def bins_agree(c: Capture, raw: R.Trace) -> None:
    """The histogram of `memcpy_hist`."""
    answer = report(c, "memcpy_hist")
    table = answer.table("sizes")
    got = {
        (d, BINS.index(size)): (int(n), int(b), int(t))
        for d, size, n, b, t in table[["direction", "size", "count", "bytes", "time_ns"]].itertuples(index=False)
    }
    assert got == R.histogram(raw)
    assert answer.facts["without_bytes"] == sum(copy.size is None for copy in raw.copies)


def patterns_agree(c: Capture, raw: R.Trace) -> None:
    """Tiny copies, copies in a row, and round trips of `memcpy_findings`: as many of them, with as many bytes.

    A finding that would save nothing is not shown. A copy stands in one finding: beside findings of earlier rules it may be some fewer.
    """
    table = report(c, "memcpy_findings", thresholds="least_share=0").table("patterns")
    shown = {r["rule"]: (r["count"], 0 if pd.isna(r["bytes"]) else r["bytes"]) for r in table.to_dict("records")}
    size = {copy.number: copy.size or 0 for copy in raw.copies}
    tiny, wanted = R.tiny(raw), {"ping_pong": R.round_trips(raw)}
    packed = {n for d, own in tiny.items() if f"tiny_{d}" in shown for n in own}
    for direction in R.MOVES:
        fresh = [r for r in R.runs(raw) if r[0].direction == direction and any(copy.number not in packed for copy in r)]
        wanted |= {f"tiny_{direction}": tiny.get(direction, set()), f"coalescable_{direction}": {copy.number for r in fresh for copy in r}}
    earlier = set(shown) - {k for k in shown if k.startswith(("coalescable_", "exposed_"))}
    for rule, own in wanted.items():
        every = (len(own), sum(size[n] for n in own))
        if earlier - {rule}:
            assert rule not in shown or all(a <= b for a, b in zip(shown[rule], every, strict=True)), rule
        elif rule in shown or not own:
            assert shown.get(rule, (0, 0)) == every, rule


def rates_agree(c: Capture, raw: R.Trace) -> None:
    """Bandwidth is bytes over time of the copies that carry a size."""
    table = report(c, "memcpy").table("copies").set_index("direction")
    for direction, s in R.grouped(raw, lambda copy: copy.direction).items():
        shown = table.loc[direction, "bandwidth_bytes_per_s"]
        if s.size and s.sized_time:
            assert abs(shown / (s.size / s.sized_time * 1e9) - 1) < 1e-12, direction
        else:
            assert pd.isna(shown), direction


def _outside(label: str) -> bool:
    return not label or label.startswith("(") or "launch" in label


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _key(row: dict[Hashable, Any], by: str, only_device: int | None) -> tuple[object, ...]:
    direction = row["direction"]
    if by == "kind":
        return direction, _text(row["src_kind"]), _text(row["dst_kind"])
    if by == "stream":
        numbers = [int(n) for n in re.findall(r"-?\d+", row["stream"])]
        return direction, numbers[0] if only_device is None else only_device, numbers[-1] if numbers else -1
    if by == "step":
        return direction, int(row["step"]) if row["step"].isdigit() else None
    if by == "module":
        return direction, "" if _outside(row["module"]) else row["module"]
    return (direction,)
