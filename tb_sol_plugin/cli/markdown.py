"""Writes reports as Markdown, for pull requests, issues and notebooks: what GitHub renders, with names of a recording as plain text.

`tb-sol report PATH --markdown` is the story of a recording in at most `MOST_BYTES`; `report_markdown` is one report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tb_sol_plugin.cli.check_formats import escaped_markdown
from tb_sol_plugin.cli.text import MARKUP, base_text, contents, fact_text, table_cells
from tb_sol_plugin.errors import SolError, one_line
from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import (
    AnySection,
    FactsSection,
    FigureSection,
    Finding,
    FindingsSection,
    Report,
    TableSection,
    UnavailableReport,
)
from tb_sol_plugin.units import human
from tb_sol_plugin.version import __version__

MOST_BYTES: Final = 60_000
"""Of a story: GitHub takes 65,536 characters of a comment."""
ROWS: Final = 10
WIDTH: Final = 130
"""Characters of a line of a table, by which its columns are chosen."""
STORY: Final = ("kernels", "modules", "phases", "roofline", "memcpy")
"""Analyses whose first table a story has, after the overview: as many as are available."""
TABLES: Final = 5


def report_markdown(report: Report | UnavailableReport, rows: int = ROWS) -> str:
    """Returns a report: headline, notices, and its sections, tables with their first rows."""
    if isinstance(report, UnavailableReport):
        return f"### {escaped_markdown(report.title)}\n\n{_prose(f'Not available: {report.because} ({report.record_it_with})')}\n"
    parts = [f"### {escaped_markdown(report.title)}", *_head(report)]
    for section in report.sections:
        parts += _section(section, rows)
    return "\n\n".join(parts) + "\n"


def story_markdown(capture: Capture, device: str = "", command: str = "") -> str:
    """Returns the story of a recording: headline, waterfall, findings, five tables of ten rows, and what it was made with.

    device: device limits to measure against; command: as it was called, for the footer. Raises BadQuery for a device that is none.
    """
    facts = capture.facts
    devices = ", ".join(dict.fromkeys(d.name for d in facts.devices if d.name)) or facts.vendor or "no device"
    parts = [f"## {escaped_markdown(capture.run or 'Recording')} on {escaped_markdown(devices)}"]
    overview = _answer(capture, "overview", device)
    tables: list[TableSection] = []
    if isinstance(overview, Report):
        parts += _head(overview)
        for section in overview.sections:
            if isinstance(section, TableSection):
                tables += [section] if section.id != "parts" else []
                parts += _section(section, 0) if section.id == "parts" else []
            elif not isinstance(section, FigureSection):
                parts += _section(section, ROWS)
    else:
        parts.append(_prose(f"{overview.title}: {overview.because} ({overview.record_it_with})"))
    for name in STORY:
        report = _answer(capture, name, device) if name in registry() else None
        tables += [s for s in report.sections if isinstance(s, TableSection)][:1] if isinstance(report, Report) else []
    for section in tables[:TABLES]:
        parts += ["<details><summary>" + escaped_markdown(section.title) + "</summary>", *_section(section, ROWS)[1:], "</details>"]
    versions = ", ".join(f"{k.removesuffix('_version')} {v}" for k, v in facts.versions.items() if k != "schemaVersion")
    made = f"{contents(capture)}; {versions}; tb-sol {__version__}" if versions else f"{contents(capture)}; tb-sol {__version__}"
    foot = f"{_prose(made)}{f': `{_code(command)}`' if command else ''}"
    return _within(parts, foot)


def _within(parts: list[str], foot: str) -> str:
    """Returns the parts that there is room for, the first ones first, and the footer."""
    out, size = [], len(foot.encode()) + 200
    for part in parts:
        size += len(part.encode()) + 2
        if size > MOST_BYTES:
            out.append("*More is left out here: GitHub shows no longer text.*")
            break
        out.append(part)
    return "\n\n".join([*out, foot]) + "\n"


def _answer(capture: Capture, name: str, device: str) -> Report | UnavailableReport:
    try:
        return answer_capture(name, capture, {"device_limits": device} if device else {})
    except SolError:
        raise
    except Exception as error:  # one broken analysis must not cost the rest of the story
        return UnavailableReport(analysis=name, title=name, because=f"it failed ({type(error).__name__})", record_it_with="")


def _head(report: Report) -> list[str]:
    return [f"**{_prose(report.headline, bold=False)}**"] * bool(report.headline) + [f"> {_prose(n.text)}" for n in report.notices]


def _section(section: AnySection, rows: int) -> list[str]:
    """Returns the parts of a section, its title first."""
    title = f"**{escaped_markdown(section.title)}**" + (f" {_prose(section.subtitle)}" if section.subtitle else "")
    if section.error:
        return [title, _prose(f"failed: {section.error}")]
    if isinstance(section, FactsSection):
        return [title, *([_prose(section.text)] if section.text else []), _rows(["", "", ""], _facts(section), "lrl")]
    if isinstance(section, TableSection):
        return [title, *_table(section, rows)]
    if isinstance(section, FindingsSection):
        return [title, "\n".join(_findings(section)) or _prose(section.empty or "nothing stands out")]
    if isinstance(section, FigureSection):
        return [title, _prose(section.summary or "a figure")]
    return [title, "a timeline: see it on the page"]


def _facts(section: FactsSection) -> Iterator[list[str]]:
    for name in section.values:
        if name not in section.hidden:
            label = section.labels.get(name) or name.replace("_", " ").capitalize()
            note = " ".join(filter(None, (base_text(section, name), section.notes.get(name, ""))))
            yield [escaped_markdown(label), escaped_markdown(fact_text(section, name)), _prose(note)]


def _table(section: TableSection, rows: int) -> list[str]:
    cells = table_cells(section, rows, WIDTH)
    if cells is None:
        return [_prose(section.empty or "no rows")]
    sides = "".join("l" if text else "r" for text in cells.texts)
    total = [[f"**{escaped_markdown(c)}**" if c else "" for c in cells.total]] if cells.total else []
    body = [[escaped_markdown(c) for c in row] for row in cells.rows]
    more = [f"{human(len(body), 'count')} of {human(cells.of, 'count')} rows"] if len(body) < cells.of else []
    return [_rows([escaped_markdown(h) for h in cells.headings], [*total, *body], sides), *more]


def _findings(section: FindingsSection) -> Iterator[str]:
    for number, one in enumerate(section.findings, 1):
        mark = "Hidden: " if one.hidden else "Possible: " if one.candidate else ""
        yield f"{number}. {_saving(one, memory=section.saves == 'memory')}{mark}{_prose(one.title)}"
        yield f"   {_prose(one.evidence)}"
        if one.fix:
            yield f"   `{_code(one.fix)}`"


def _saving(one: Finding, *, memory: bool) -> str:
    amount = one.saving_bytes if memory else one.saving_ns
    if amount is None:
        return ""
    share = "" if one.share is None else f" ({human(one.share, 'ratio')})"
    return f"**−{human(amount, 'B' if memory else 'ns')}**{share} "


def _rows(headings: list[str], rows: object, sides: str) -> str:
    lines = ["| " + " | ".join(headings) + " |", "| " + " | ".join("---:" if side == "r" else "---" for side in sides) + " |"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]  # type: ignore[attr-defined]
    return "\n".join(lines)


def _prose(text: str, *, bold: bool = True) -> str:
    """Returns a text of a report, whose two marks are those of Markdown; everything else in it is plain."""
    out, at = [], 0
    for match in MARKUP.finditer(text):
        out.append(escaped_markdown(text[at : match.start()]))
        strong, code = match.group(1), match.group(2)
        out.append(f"`{_code(code)}`" if code else f"**{escaped_markdown(strong)}**" if bold else escaped_markdown(strong))
        at = match.end()
    return "".join((*out, escaped_markdown(text[at:]))).strip()


def _code(text: str) -> str:
    return one_line(text).replace("`", "'").replace("|", "\\|")
