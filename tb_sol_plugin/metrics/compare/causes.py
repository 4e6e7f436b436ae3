"""Names the causes of a difference between two sides: what, where, how much, by what evidence.

A cause is a part of the waterfall that goes the way the step went, followed down to the row that makes most of it. At most three are
named; when they explain less than half of the change, that is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tb_sol_plugin.metrics.compare.change import Change
from tb_sol_plugin.metrics.compare.differences import (
    DEVICE_SPEED,
    OTHERS,
    PATH,
    RESIDUE,
    SLOW,
    STEP,
    Bar,
    MetricChange,
    Rows,
    Side,
    Waterfall,
    common_factor,
    metrics_of,
    rows_of,
    waterfall_of,
)
from tb_sol_plugin.metrics.compare.on_path import waterfall_on_path, why_no_path
from tb_sol_plugin.metrics.compare.samples import GROUPINGS, LAUNCH, NO_MODULE, NO_OPERATOR, OTHER
from tb_sol_plugin.units import capitalized, how_many, human, number

Kind = Literal[
    "device_speed", "substitution", "more_calls", "fewer_calls", "more_work", "less_work", "fused", "split", "slower_same_kernel",
    "faster_same_kernel", "added", "removed", "host",
    "sync_added", "sync_removed", "memory_pressure", "dataloader", "copy", "communication", "schedule", "launch", "slow_steps", "step",
]  # fmt: skip
SAME_KERNEL: Final[tuple[Kind, Kind]] = ("slower_same_kernel", "faster_same_kernel")
MOST: Final = 3
LEAST_CHANGE: Final = 0.01
LEAST_SHARE: Final = 0.1
"""Of the change; what is less is no cause."""
MAJORITY: Final = 0.5
"""Of a bar: a row with so much of it names the bar."""
IDLE: Final = {
    "runtime_ns": "runtime calls while the device idles", "cpu_exec_ns": "operators and Python on the host while the device idles",
    "other_ns": "time in which nothing recorded runs", f"{PATH}host_ns": "host code that the step waits for",
    f"{PATH}runtime_ns": "runtime calls that the step waits for", f"{PATH}latency_ns": "launches and gaps between device events",
    f"{PATH}wait_ns": "hand-overs between streams and threads", f"{PATH}unexplained_ns": "waits that nothing recorded explains",
    f"{PATH}window_ns": "time outside of what was recorded",
}  # fmt: skip
"""What a part of the step without device work is called."""
LIKE: Final = {
    f"{PATH}kernel_ns": "kernel_ns", f"{PATH}communication_ns": "communication_ns", f"{PATH}rank_wait_ns": "communication_ns",
    f"{PATH}copies_ns": "memcpy_ns", f"{PATH}dataloader_ns": "dataloader_ns",
}  # fmt: skip
"""The exclusive part of a step that a part of the critical path has the rows of."""
LAUNCHING: Final = ("runtime_ns", f"{PATH}runtime_ns", f"{PATH}latency_ns")
HIDING: Final = 0.3
"""Of a change of the exposed part: where the whole changed by less, the overlap did."""
MOSTLY: Final = 0.7
"""Of a bar: a change of the work of all operators with so much of it explains it."""
WHERE: Final = 0.8
"""Of a row: a module with so much of it is where it is."""


@dataclass(frozen=True)
class Cause:
    """One cause. delta_ns: of the mean step, B less A. share: of the change. analysis: the page that has its rows. name: what it is of."""

    kind: Kind
    sentence: str
    delta_ns: int
    share: float
    name: str
    analysis: str

    @property
    def plain(self) -> str:
        """The sentence without marks, as the begin of a line; a name that it begins with keeps its letters."""
        text = self.sentence.replace("`", "")
        return text if self.sentence.startswith("`") else capitalized(text)


@dataclass(frozen=True)
class Hidden:
    """A change that the length of the step does not show. delta_ns: B less A per step."""

    name: str
    delta_ns: int
    because: str


@dataclass(frozen=True)
class Comparison:
    """All that two sides differ in. rows: by grouping, None where a side does not have it. no_path: why the waterfall is not by parts of
    the critical path; "" where it is.
    """

    metrics: list[MetricChange]
    rows: Mapping[str, Rows | None]
    waterfall: Waterfall
    causes: list[Cause]
    hidden: list[Hidden]
    no_path: str = ""


def compared(a: Side, b: Side, *, by_path: bool = True) -> Comparison:
    """Sets side B against side A. by_path: the step is split by parts of the critical path where both sides have one to rest on."""
    rows = {by: rows_of(a, b, by) for by in (*GROUPINGS, LAUNCH)}
    metrics, no_path = metrics_of(a, b), why_no_path(a, b) if by_path else "exclusive parts are wanted"
    falls = waterfall_of(a, b, rows) if no_path else waterfall_on_path(a, b)
    return Comparison(metrics, rows, falls, causes_of(falls, rows, metrics), hidden_changes(falls, rows, metrics), no_path)


def hidden_changes(found: Waterfall, rows: Mapping[str, Rows | None], metrics: list[MetricChange]) -> list[Hidden]:
    """Returns what changed without changing the step: parts that cancel, and work that other work hides; largest first.

    Of a proven change of 1 % of the step or more. Work that is hidden: its sum over streams or threads changed, its exposed part by less
    than half as much.
    """
    step = next(m for m in metrics if m.name == "step_time")
    least = LEAST_CHANGE * found.a_ns
    out = []
    if step.verdict in ("same", "inconclusive"):
        real = [b for b in found.bars if b.low_ns is not None and _real(b) and abs(b.delta_ns) >= least]
        if any(b.delta_ns > 0 for b in real) and any(b.delta_ns < 0 for b in real):
            out += [Hidden(b.name, b.delta_ns, "cancels with others: the step is as long") for b in real]
    exposed: dict[str, int] = {}
    for b in found.bars:
        exposed[_part(b)] = exposed.get(_part(b), 0) + b.delta_ns
    kernels, copies = rows.get("kernel"), rows.get("copy")
    for part, grouping, wanted in (("communication_ns", kernels, True), ("kernel_ns", kernels, False), ("memcpy_ns", copies, None)):
        if grouping is None or part not in exposed or grouping.time != "device":
            continue
        own = [i for i in range(len(grouping)) if wanted is None or (grouping.of[i] == "communication") == wanted]
        sure = [i for i in own if grouping.verdict[i] in ("worse", "better")]
        total = int(grouping.delta_ns[sure].sum())
        if abs(total) >= least and abs(exposed[part]) < MAJORITY * abs(total):
            first = max(sure, key=lambda i: abs(int(grouping.delta_ns[i])))
            out.append(Hidden(grouping.name[first], total, "runs behind other work: the step does not show it"))
    return sorted(out, key=lambda h: -abs(h.delta_ns))


def causes_of(found: Waterfall, rows: Mapping[str, Rows | None], metrics: list[MetricChange]) -> list[Cause]:
    """Returns the causes of the change, largest first. rows: by grouping.

    None where the step is the same, or its change within the noise. With too few steps to tell, those of a change of 1 % or more.
    """
    total = found.b_ns - found.a_ns
    step = next(m for m in metrics if m.name == "step_time")
    if step.verdict in ("same", "inconclusive") or (step.verdict == "unknown" and abs(total) < LEAST_CHANGE * found.a_ns):
        return []
    factor = common_factor(rows.get("kernel"))
    counts = {m.name: m.change for m in metrics}
    out = []
    for bar in found.bars:
        if bar.delta_ns * total <= 0 or abs(bar.delta_ns) < LEAST_SHARE * abs(total) or not _real(bar):
            continue
        out.append(_cause(bar, bar.delta_ns / total, rows, factor, counts))
    out = _joined(out)
    out.sort(key=lambda c: -abs(c.delta_ns))
    return out[:MOST]


def _part(bar: Bar) -> str:
    """Returns the exclusive part of a step that a bar has the rows of."""
    return LIKE.get(bar.name, bar.name)


def _real(bar: Bar) -> bool:
    """Whether the interval of a bar is known and without 0, or not known at all."""
    return bar.low_ns is None or bar.high_ns is None or bar.low_ns > 0 or bar.high_ns < 0


def _joined(causes: list[Cause]) -> list[Cause]:
    """Returns causes of one kind and name as one: a blocking call shows in several parts of the idle time."""
    out: dict[tuple[str, str], Cause] = {}
    for cause in causes:
        key = cause.kind, cause.name
        if key in out:
            one = out[key]
            first = one if abs(one.delta_ns) >= abs(cause.delta_ns) else cause
            cause = Cause(first.kind, first.sentence, one.delta_ns + cause.delta_ns, one.share + cause.share, first.name, first.analysis)
        out[key] = cause
    return list(out.values())


def _cause(
    bar: Bar, share: float, rows: Mapping[str, Rows | None], factor: float | None, counts: Mapping[str, Change]
) -> Cause:
    """Returns what a bar of the waterfall comes from."""
    part = _part(bar)
    if part == "kernel_ns":
        if factor is not None and abs(factor - 1) > DEVICE_SPEED and (factor > 1) == (bar.delta_ns > 0):
            text = f"all kernels take {_percent(factor - 1)}: another clock, power limit or device, not the code"
            return Cause("device_speed", f"{text}; {_amount(bar)}", bar.delta_ns, share, "device", "kernels")
        return _of_work(bar, share, rows)
    overlap = _overlap(bar, share, rows)
    if overlap is not None:
        return overlap
    if part == "communication_ns":
        return _of_row(bar, share, rows.get("kernel"), "communication", "communication", "gpu_breakdown")
    if part in ("memcpy_ns", "memset_ns"):
        return _of_row(bar, share, rows.get("copy"), "copy", "copies", "memcpy")
    if part == "dataloader_ns":
        return Cause("dataloader", f"loading of the next batch, {_amount(bar)}", bar.delta_ns, share, "DataLoader", "steps")
    if bar.name == SLOW:
        return Cause("slow_steps", f"slow steps, {_amount(bar)}", bar.delta_ns, share, "slow steps", "steps")
    if bar.name == STEP:
        text = f"the step, {_amount(bar)}; these recordings do not say what it consists of"
        return Cause("step", text, bar.delta_ns, share, "step", "steps")
    return _of_host(bar, share, rows, counts)


def _overlap(bar: Bar, share: float, rows: Mapping[str, Rows | None]) -> Cause | None:
    """Returns the cause of communication or copies that take as long as before and are less, or more, behind other work; else None."""
    words = {"communication_ns": ("kernel", "communication", "gpu_breakdown"), "memcpy_ns": ("copy", "copies", "memcpy")}
    by, what, analysis = words.get(_part(bar), ("", "", ""))
    found = rows.get(by)
    own = _own_rows(found, _part(bar))
    if found is None or found.time != "device" or not own:
        return None
    before, change = float(found.time_a[own].sum()), int(found.delta_ns[own].sum())
    if before <= 0 or (change * bar.delta_ns > 0 and abs(change) >= HIDING * abs(bar.delta_ns)):
        return None
    less = "less" if bar.delta_ns > 0 else "more"
    total = f"{human(round(before), 'ns')} → {human(round(before + change), 'ns')} in all"
    text = f"{what}: as much as before ({total}), {less} of it behind other work; {_amount(bar)}"
    return Cause("schedule", text, bar.delta_ns, share, what, analysis)


def _of_work(bar: Bar, share: float, rows: Mapping[str, Rows | None]) -> Cause:
    """Returns the operator whose device time changed most, where it makes most of the bar, else the kernel."""
    operators = rows.get("operator")
    row = _largest(operators, bar.delta_ns, "device") if operators is not None and operators.time == "device" else None
    if operators is None or row is None:
        return _of_row(bar, share, rows.get("kernel"), SAME_KERNEL[0], "kernels", "kernels")
    name, kind, detail = operators.name[row], *_how(operators, row)
    grown = _of_all(operators, bar)
    if grown and abs(int(operators.delta_ns[row])) < MOSTLY * abs(bar.delta_ns):
        return Cause("more_work" if bar.delta_ns > 0 else "less_work", f"{grown}; {_amount(bar)}", bar.delta_ns, share, "all", "operators")
    if kind in ("added", "removed"):
        kind, detail = _in_place_of(operators, row) or (kind, detail)
    swapped = _swapped(rows.get("kernel"), int(operators.delta_ns[row])) if kind in SAME_KERNEL else ""
    if swapped:
        kind, detail = "substitution", f"other kernel ({swapped}), as many calls"
    text = f"`{name}`{_where(rows, bar.delta_ns)}: {detail}; {_amount(bar)} by all kernels"
    return Cause(kind, text, bar.delta_ns, share, name, "operators")


def _of_host(bar: Bar, share: float, rows: Mapping[str, Rows | None], counts: Mapping[str, Change]) -> Cause:
    """Returns what the host does while the device idles: more blocking calls, or the operator that takes longer."""
    operators = rows.get("operator")
    for name, kinds, why in (
        ("allocations", ("memory_pressure", "memory_pressure"), "of the driver's allocator, memory that the caching one did not have"),
        ("syncs", ("sync_added", "sync_removed"), "to wait for the device"),
    ):
        before, after = (counts[name].a, counts[name].b) if name in counts else (None, None)
        if before is not None and after is not None and (after - before) * bar.delta_ns > 0:
            many, added = _calls(abs(after - before)), after > before
            text = f"{many} {'more' if added else 'fewer'} per step {why} ({number(before, 0)} → {number(after, 0)})"
            kind: Kind = kinds[0] if added else kinds[1]  # type: ignore[assignment]
            page = "memory" if name == "allocations" else "overview"
            return Cause(kind, f"{text}; {_amount(bar)}", bar.delta_ns, share, name, page)
    if operators is not None and operators.time == "host":
        row = _largest(operators, bar.delta_ns, "host")
        if row is not None:
            kind, detail = _how(operators, row)
            text = f"`{operators.name[row]}`{_where(rows, bar.delta_ns)}: {detail}; {_amount(bar)} of the host"
            return Cause(kind, text, bar.delta_ns, share, operators.name[row], "operators")
    what, kind = IDLE.get(bar.name, bar.name), "launch" if bar.name in LAUNCHING else "host"
    page = "critical_path" if bar.name.startswith(PATH) else "steps"
    named = [p for p in bar.parts if p.name[:1] != "(" and p.name not in (OTHERS, RESIDUE)]  # of the path: what it holds most of
    first = max(named, key=lambda p: p.delta_ns * bar.delta_ns, default=None)
    if first is not None and first.delta_ns * bar.delta_ns >= MAJORITY * bar.delta_ns**2:
        return Cause(kind, f"`{first.name}`: {what}, {_amount(bar)}", bar.delta_ns, share, first.name, page)
    return Cause(kind, f"{what}, {_amount(bar)}", bar.delta_ns, share, what, page)


def _of_row(bar: Bar, share: float, found: Rows | None, kind: Kind, what: str, analysis: str) -> Cause:
    """Returns the row of a grouping that makes most of a bar, else the bar as a whole."""
    own = _own_rows(found, _part(bar))
    row = next((i for i in own if found is not None and int(found.delta_ns[i]) * bar.delta_ns > 0 and found.name[i] != OTHER), None)
    if found is None or row is None or abs(int(found.delta_ns[row])) < MAJORITY * abs(bar.delta_ns):
        return Cause(kind, f"{what}, {_amount(bar)}", bar.delta_ns, share, what, analysis)
    how, detail = _how(found, row)
    text = f"{what} `{found.name[row]}`: {detail}; {_amount(bar)}"
    return Cause(how if kind in SAME_KERNEL else kind, text, bar.delta_ns, share, found.name[row], analysis)


def _own_rows(found: Rows | None, part: str) -> list[int]:
    """Returns the rows of kernels or copies that a part of the step consists of."""
    if found is None:
        return []
    if found.by == "kernel":
        return [i for i, of in enumerate(found.of) if (of == "communication") == (part == "communication_ns")]
    return [i for i, name in enumerate(found.name) if (name == "Memset") == (part == "memset_ns")]


def _largest(found: Rows, delta: int, time: str) -> int | None:
    """Returns the row that changed most in one direction; None where none has a tenth of the change."""
    for i in range(len(found)):  # the largest differences stand first
        if int(found.delta_ns[i]) * delta > 0 and found.name[i] not in (OTHER, NO_OPERATOR):
            return i if abs(int(found.delta_ns[i])) >= LEAST_SHARE * abs(delta) and found.time == time else None
    return None


def _how(found: Rows, i: int) -> tuple[Kind, str]:
    """Returns how a row changed: added, removed, more or fewer calls, or slower ones."""
    a, b = found.calls_a[i], found.calls_b[i]
    size = abs(int(found.delta_ns[i]))
    delta, sign = human(size, "ns"), "more" if found.delta_ns[i] > 0 else "less"
    if found.match[i] == "only_b":
        return "added", f"new, {_calls(b)} and {delta} per step"
    if found.match[i] == "only_a":
        return "removed", f"gone, {_calls(a)} and {delta} per step"
    if abs(int(found.calls_effect_ns[i])) > MAJORITY * size:
        return ("more_calls" if b > a else "fewer_calls"), f"{number(a, 1)} → {_calls(b)} per step, {delta} {sign}"
    if int(found.work_effect_ns[i]) * int(found.delta_ns[i]) > 0 and abs(int(found.work_effect_ns[i])) > MAJORITY * size:
        factor = (found.work_b[i] / b) / (found.work_a[i] / a)
        return ("more_work" if factor > 1 else "less_work"), f"{number(factor, 2)} times the work per call, {delta} {sign} per step"
    each = found.device_a if found.time == "device" else found.host_a
    after = found.device_b if found.time == "device" else found.host_b
    mean_a, mean_b = each[i] / max(a, 1e-9), after[i] / max(b, 1e-9)
    each_call = f"a call takes {human(round(mean_b), 'ns')} instead of {human(round(mean_a), 'ns')}"
    return SAME_KERNEL[bool(found.delta_ns[i] < 0)], f"{each_call}, {delta} {sign} per step"


def _of_all(operators: Rows, bar: Bar) -> str:
    """Returns by which factor the operators got more or less work, where this makes most of a bar; else ""."""
    effect = int(operators.work_effect_ns.sum())
    known = np.isfinite(operators.work_a) & np.isfinite(operators.work_b) & (operators.work_effect_ns != 0)
    if effect * bar.delta_ns <= 0 or abs(effect) < MOSTLY * abs(bar.delta_ns) or known.sum() < 2:
        return ""
    time = operators.device_a[known]
    factor = float((time + operators.work_effect_ns[known]).sum() / time.sum())
    return f"{how_many(int(known.sum()), 'operator')} do {number(factor, 2)} times the work in as many calls: other shapes, as of a batch"


def _in_place_of(found: Rows, i: int) -> tuple[Kind, str] | None:
    """Returns how a row that is on one side alone took the place of those of the other side; None where it did not."""
    mine, other = found.match[i], "only_a" if found.match[i] == "only_b" else "only_b"
    there = [k for k in range(len(found)) if found.match[k] == other and found.name[k] != OTHER]
    taken = [k for k in there if found.of[k] == found.of[i]][:MOST]
    before, after = sum(int(found.delta_ns[k]) for k in taken), int(found.delta_ns[i])
    if not taken or abs(before) < MAJORITY * abs(after):
        return None
    names = ", ".join(f"`{found.name[k]}`" for k in taken)
    calls = sum(found.calls_a[k] + found.calls_b[k] for k in taken)
    own = found.calls_a[i] + found.calls_b[i]
    kind: Kind = "fused" if (own < calls) == (mine == "only_b") else "split"
    way, net = "likely in place of" if mine == "only_b" else "likely gave way to", before + after
    together = f"{human(abs(net), 'ns')} {'more' if net > 0 else 'less'} together"
    return kind, f"{way} {names}, {_calls(own)} and {_calls(calls)} per step, {together}"


def _calls(count: float) -> str:
    """Returns `1 call`, `12 calls` or, of a mean, `2.5 calls`."""
    return how_many(round(count), "call") if abs(count - round(count)) < 0.05 else f"{number(count, 1)} calls"


def _swapped(kernels: Rows | None, delta: int) -> str:
    """Returns `old → new` where one kernel went and another came with about as many calls, and this makes most of a change; else ""."""
    if kernels is None:
        return ""
    for i, change in enumerate(kernels.delta_ns.tolist()):
        if kernels.match[i] == "renamed" and change * delta > 0 and abs(change) >= MAJORITY * abs(delta):
            return f"`{kernels.was[i]}` → `{kernels.name[i]}`"
    gone = next((i for i in range(len(kernels)) if kernels.match[i] == "only_a"), None)
    came = next((i for i in range(len(kernels)) if kernels.match[i] == "only_b"), None)
    if gone is None or came is None or abs(kernels.calls_a[gone] - kernels.calls_b[came]) > 0.01 * kernels.calls_a[gone]:
        return ""
    made = int(kernels.delta_ns[gone] + kernels.delta_ns[came])
    return f"`{kernels.name[gone]}` → `{kernels.name[came]}`" if made * delta > 0 and abs(made) >= MAJORITY * abs(delta) else ""


def _where(rows: Mapping[str, Rows | None], delta: int) -> str:
    """Returns ` in MODULE` where one module has nearly all of a change."""
    modules = rows.get("module")
    if modules is None:
        return ""
    for i in range(len(modules)):
        if int(modules.delta_ns[i]) * delta > 0:
            there = modules.name[i] not in (NO_MODULE, OTHER) and abs(int(modules.delta_ns[i])) >= WHERE * abs(delta)
            return f" in `{modules.name[i]}`" if there else ""
    return ""


def _amount(bar: Bar) -> str:
    """Returns `3.1 ms (±0.2 ms) more per step`."""
    spread = ""
    if bar.low_ns is not None and bar.high_ns is not None:
        spread = f" (±{human(round((bar.high_ns - bar.low_ns) / 2), 'ns')})"
    return f"{human(abs(bar.delta_ns), 'ns')}{spread} {'more' if bar.delta_ns > 0 else 'less'} per step"


def _percent(part: float) -> str:
    return f"{number(100 * abs(part), 1)} % {'more' if part > 0 else 'less'} time"
