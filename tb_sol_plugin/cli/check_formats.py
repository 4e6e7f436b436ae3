"""Writes the result of a check as text, JSON, JUnit XML or Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import msgspec

from tb_sol_plugin.errors import one_line
from tb_sol_plugin.metrics.compare.causes import Cause
from tb_sol_plugin.metrics.compare.differences import BASES, BUSY, PATH, SLOW, STEP, Bar
from tb_sol_plugin.metrics.compare.gate import Judged, Verdict
from tb_sol_plugin.metrics.compare.samples import METRICS, text_of
from tb_sol_plugin.metrics.critical.parts import PARTS as ON_PATH
from tb_sol_plugin.units import signed, signed_percent

WORDS: Final = {
    "regression": "REGRESSION", "within": "passed", "better": "passed, better", "inconclusive": "INCONCLUSIVE",
    "unavailable": "UNAVAILABLE",
}  # fmt: skip
BARS: Final = {
    SLOW: "slow steps", STEP: "step", "kernel_ns": "kernels", "memcpy_ns": "copies", "memset_ns": "memset", "communication_ns":
    "exposed communication", "runtime_ns": "runtime calls", "dataloader_ns": "DataLoader", "cpu_exec_ns": "CPU execution",
    "other_ns": "nothing recorded", BUSY[0]: "device busy", BUSY[1]: "rest of the step",
} | {f"{PATH}{name}": part[0][0].lower() + part[0][1:] for name, part in ON_PATH.items()}  # fmt: skip
MOST_LINES: Final = 40
NAME: Final = 160
"""Characters of a name that are printed."""


@dataclass(frozen=True)
class Link:
    """Where a page shows the candidate: address and run; "" none."""

    base: str = ""
    run: str = ""

    @property
    def address(self) -> str:
        return f"{self.base.rstrip('/')}/#sol&p.sol.v=1&p.sol.page=compare&p.sol.run={quote(self.run, safe='')}" if self.base else ""


def percent(part: float | None) -> str:
    """Returns `+3.1 %`."""
    return "unknown" if part is None else signed_percent(part)


def _label(name: str) -> str:
    return METRICS[name].label if name in METRICS else name[:NAME]


def _one(judged: Judged) -> str:
    """Returns a metric in one line: verdict, change, interval, limit."""
    change = judged.change
    if change is None or change.a is None or change.b is None:
        return f"{_label(judged.name)} {WORDS[judged.outcome]}: {judged.because}"
    sizes = f"{text_of(change.a, judged.unit)} → {text_of(change.b, judged.unit)}"
    interval = f", 95 % interval {percent(change.low)} to {percent(change.high)}" if change.low != change.high else ""
    by_how_much = f"{percent(change.change)} ({sizes}{interval})" if change.change is not None else sizes
    detail = f"; {judged.detail}" if judged.detail else ""
    return f"{_label(judged.name)} {WORDS[judged.outcome]}: {by_how_much}, limit {judged.limit.text}{detail}"


def first_line(found: Verdict) -> str:
    """Returns the line that alone says what came out and why."""
    worst = next(j for j in found.metrics if j.outcome == found.outcome)
    cause = found.causes[0].sentence.replace("`", "") if found.causes and found.outcome == "regression" else ""
    return f"{_one(worst)}{f'; cause: {cause}' if cause else ''}"


def text(found: Verdict, status: int, link: Link) -> str:
    """Returns at most 25 lines for a terminal."""
    lines = [first_line(found), f"{found.base} → {found.candidate}"]
    lines += [f"  {_one(j)}" for j in found.metrics[:8]] if len(found.metrics) > 1 else []
    lines += [f"  cause {i}: {_cause(c)}" for i, c in enumerate(found.causes, 1)]
    bars = _bars(found)[:5]
    lines += [f"  mean step, {BASES[found.waterfall.basis]}:"] if bars else []
    lines += [f"  {signed(b.delta_ns, 'ns')}  {BARS.get(b.name, b.name)}" for b in bars]
    lines += [f"  needs about {j.more} more steps a side to decide: {_label(j.name)}" for j in found.metrics if j.more is not None][:2]
    lines += [f"  differs: {name}: {a or 'not recorded'} → {b or 'not recorded'}" for name, a, b in found.settings[:3]]
    lines += [f"  note: {w}" for w in found.warnings[:3]]
    return "\n".join(one_line(line) for line in lines[:25]) + "\n"


def _cause(cause: Cause) -> str:
    return f"{cause.sentence.replace('`', '')} ({100 * cause.share:.0f} % of the change)"


def _bars(found: Verdict) -> list[Bar]:
    return sorted((b for b in found.waterfall.bars if b.delta_ns), key=lambda b: -abs(b.delta_ns))


def as_json(found: Verdict, status: int, link: Link) -> str:
    """Returns one object; times in ns, changes as parts."""
    body = {
        "check": 1, "verdict": found.outcome, "status": status, "base": found.base, "candidate": found.candidate,
        "metrics": [_plain(j) for j in found.metrics],
        "causes": [
            {"kind": c.kind, "sentence": c.sentence, "delta_ns": c.delta_ns, "share": c.share, "name": c.name,
             "evidence": [{"analysis": "compare", "selection": {"find": c.name}}, {"analysis": c.analysis, "selection": {}}]}
            for c in found.causes
        ],
        "settings": [{"fact": n, "a": a, "b": b} for n, a, b in found.settings], "warnings": list(found.warnings),
        "waterfall": {"a_ns": found.waterfall.a_ns, "b_ns": found.waterfall.b_ns, "basis": found.waterfall.basis,
                      "bars": [_bar(b) for b in found.waterfall.bars]},
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode() + "\n"


def _plain(judged: Judged) -> dict[str, object]:
    change = judged.change
    return {
        "name": judged.name, "unit": judged.unit, "limit": judged.limit.text, "verdict": judged.outcome,
        "a": change and change.a, "b": change and change.b, "change": change and change.change, "low": change and change.low,
        "high": change and change.high, "detectable": change and change.detectable, "samples": change and change.samples,
        "runs": change and change.runs, "because": judged.because or None, "detail": judged.detail or None, "more_steps": judged.more,
    }  # fmt: skip


def _bar(bar: Bar) -> dict[str, object]:
    return {"name": bar.name, "delta_ns": bar.delta_ns, "low_ns": bar.low_ns, "high_ns": bar.high_ns, "parts": [_bar(p) for p in bar.parts]}


def junit(found: Verdict, status: int, link: Link) -> str:
    """Returns one suite with a case per metric: a regression is a failure, an unavailable metric an error, an undecided one is skipped."""
    fails = status == 4 and found.outcome == "inconclusive"
    cases, failures, errors, skipped = [], 0, 0, 0
    falls = "\n".join(f"{signed(b.delta_ns, 'ns')} {BARS.get(b.name, b.name)}" for b in _bars(found))
    for j in found.metrics:
        seconds = j.change.b / 1e9 if j.change is not None and j.change.b is not None and j.unit == "ns" else 0.0
        inner = ""
        if j.outcome == "regression" or (j.outcome == "inconclusive" and fails):
            failures += 1
            cause = found.causes[0].sentence.replace("`", "") if found.causes else _one(j)
            inner = f"<failure message={_attribute(cause)}>{_xml(f'{_one(j)}{chr(10)}{falls}')}</failure>"
        elif j.outcome == "inconclusive":
            skipped += 1
            inner = f"<skipped message={_attribute(_one(j))}/>"
        elif j.outcome == "unavailable":
            errors += 1
            inner = f"<error message={_attribute(_one(j))}/>"
        cases.append(f'    <testcase classname="tb-sol" name={_attribute(j.name)} time="{seconds:.6f}">{inner}</testcase>')
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}" skipped="{skipped}"'
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites {counts}>\n  <testsuite name="tb-sol" {counts}>\n'
        + "\n".join(cases)
        + "\n  </testsuite>\n</testsuites>\n"
    )


def _xml(text: str) -> str:
    return escape("".join(c if c == "\n" or c.isprintable() else " " for c in text))


def _attribute(text: str) -> str:
    return quoteattr(one_line(text))


def markdown(found: Verdict, status: int, link: Link) -> str:
    """Returns at most 40 lines of GitHub Markdown."""
    word = {"regression": "❌ Regression", "within": "✅ Passed", "better": "✅ Passed, better", "inconclusive": "⚠️ Inconclusive",
            "unavailable": "⚠️ Unavailable"}[found.outcome]  # fmt: skip
    lines = [f"### {word}: `{_code(found.base)}` → `{_code(found.candidate)}`", "", escaped_markdown(first_line(found)), ""]
    lines += ["| metric | base | candidate | change | 95 % interval | limit | verdict |", "| --- | ---: | ---: | ---: | --- | ---: | --- |"]
    for j in found.metrics[:10]:
        c = j.change
        a, b = (text_of(v, j.unit) for v in ((c.a, c.b) if c else (None, None)))
        interval = f"{percent(c.low)} to {percent(c.high)}" if c and c.low is not None and c.low != c.high else "—"
        change = percent(c.change) if c else "—"
        cells = escaped_markdown(_label(j.name)), a, b, change, interval, escaped_markdown(j.limit.text), WORDS[j.outcome]
        lines.append(f"| {' | '.join(cells)} |")
    if found.causes:
        lines += ["", "**Causes**", ""] + [f"{i}. {escaped_markdown(_cause(c))}" for i, c in enumerate(found.causes, 1)]
    bars = _bars(found)[:5]
    if bars:
        basis = BASES[found.waterfall.basis]
        lines += ["", f"Mean step, {basis}: " + ", ".join(f"{signed(b.delta_ns, 'ns')} {BARS.get(b.name, b.name)}" for b in bars) + "."]
    if found.settings:
        lines += ["", _also_different(found)]
    more = [j for j in found.metrics if j.more is not None]
    if more:
        lines += ["", f"To decide, record about {max(j.more or 0 for j in more)} more steps on each side."]
    lines += [""] + [f"> {escaped_markdown(w)}" for w in found.warnings[:3]] if found.warnings else []
    if link.address:
        lines += ["", f"[Open the comparison]({link.address})"]
    return "\n".join(lines[:MOST_LINES]) + "\n"


def _also_different(found: Verdict) -> str:
    """Returns the settings that differ, in a sentence."""
    changed = [(escaped_markdown(n), escaped_markdown(a or "—"), escaped_markdown(b or "—")) for n, a, b in found.settings[:5]]
    return "Also different: " + "; ".join(f"{n} {a} → {b}" for n, a, b in changed) + "."


def escaped_markdown(text: str) -> str:
    """Returns text without markup of Markdown or HTML: names of a trace are not trusted."""
    out = one_line(text)
    for sign in "\\`*_[]|~#":
        out = out.replace(sign, f"\\{sign}")
    return out.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def _code(text: str) -> str:
    return one_line(text).replace("`", "'")[:NAME]


FORMATS: Final[Mapping[str, Callable[[Verdict, int, Link], str]]] = {"text": text, "json": as_json, "junit": junit, "markdown": markdown}
