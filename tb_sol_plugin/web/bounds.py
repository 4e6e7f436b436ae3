"""Bounds the JSON of a report, whatever the recording holds: what an answer leaves out is counted in it, and CSV and command line have all.

First long texts are cut, then rows of tables that come whole; a section that is still too large is left out with a sentence in its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tb_sol_plugin.model.report import (
    AnySection,
    FigureSection,
    Notice,
    Report,
    TableSection,
    UnavailableReport,
    encode,
    plain_section,
    to_plain,
)
from tb_sol_plugin.model.row_links import RowLinks

MOST_ANSWER: Final = 20_000_000
"""Bytes of JSON of any report."""
ROOM: Final = 1_000_000
"""Bytes of it for what is no section."""
MOST_TEXT: Final = 1_500
"""Characters of a text in an answer that would be larger."""
MOST_CELLS: Final = 1_000_000
"""Values in tables up to which a report is written before its size is known."""
SAMPLE: Final = 2_000
"""Rows of a table from which its size is estimated."""


@dataclass
class LeftOut:
    """What an answer leaves out: characters by text, rows by the title of a table, titles of sections."""

    texts: int = 0
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    sections: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """Returns what was left out, in words; "" where nothing was."""
        parts = [f"{left:,} of {of:,} rows of “{title}”" for title, (left, of) in self.rows.items()]
        parts += [f"“{title}”" for title in self.sections]
        parts += [f"the middle of {self.texts:,} texts of more than {MOST_TEXT:,} characters"] if self.texts else []
        if not parts:
            return ""
        what = ", ".join(parts)
        return f"An answer has at most {MOST_ANSWER // 10**6} MB. Left out here: {what}. CSV and the command line have all of it."


def bounded(report: Report | UnavailableReport, encoded: Sequence[bytes] = (), most: int = MOST_ANSWER) -> bytes:
    """Returns the JSON of a report, in no more than `most` bytes; what was left out is said in a notice above the page.

    encoded: the JSON of its sections, where it is known.
    """
    if isinstance(report, UnavailableReport):
        return encode(report)
    if sum(map(len, encoded)) + ROOM <= MOST_ANSWER and len(encoded) == len(report.sections):
        return _joined(report, encoded)
    if not encoded and sum(row_count(s) * len(s.data) for s in report.sections if isinstance(s, TableSection)) <= MOST_CELLS:
        body = encode(report)
        if len(body) <= most:
            return body
    sizes = [len(part) for part in encoded] or [_size(s) for s in report.sections]
    if sum(sizes) <= most // 2 and len(body := encode(report)) <= most:
        return body
    left = LeftOut()
    parts: list[bytes] = [b""] * len(sizes)
    room, open_ = most - min(ROOM, most // 4), len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: sizes[i]):  # what a small one does not need is for the others
        parts[i] = _within(report.sections[i], room // open_, left)
        room, open_ = room - len(parts[i]), open_ - 1
    said = left.sentence()
    return _joined(msgspec.structs.replace(report, notices=[*report.notices, *([Notice(said)] if said else [])]), parts)


def _joined(report: Report, sections: Sequence[bytes]) -> bytes:
    head = to_plain(msgspec.structs.replace(report, sections=[]))
    return msgspec.json.encode({**head, "sections": [msgspec.Raw(s) for s in sections]})


def section_json(section: AnySection) -> bytes:
    """Returns the JSON of a section as it stands in that of a report."""
    return msgspec.json.encode(section if isinstance(section, FigureSection) else plain_section(section))


def _size(section: AnySection) -> int:
    """Returns about how many bytes of JSON a section has, of a table of many rows by some that are spread over it."""
    count = row_count(section)
    if not isinstance(section, TableSection) or count <= 2 * SAMPLE:
        return len(section_json(section))
    step = -(-count // SAMPLE)
    data = {name: values[::step] for name, values in section.data.items()}
    links = {row: section.row_links[row] for row in map(str, range(0, count, step)) if row in section.row_links}
    rest = msgspec.structs.replace(section, data={}, row_links={})
    return len(section_json(rest)) + step * (len(msgspec.json.encode(data, enc_hook=list)) + len(msgspec.json.encode(links)))


def row_count(section: AnySection) -> int:
    """Returns how many rows of a table there are, 0 of other sections."""
    return max((len(values) for values in section.data.values()), default=0) if isinstance(section, TableSection) else 0


def _within(section: AnySection, most: int, left: LeftOut) -> bytes:
    """Returns the JSON of a section in no more than `most` bytes, but for a sentence."""
    kept = count = row_count(section)
    while True:
        part = first_rows(section, kept) if isinstance(section, TableSection) and kept < count else section
        size = _size(part)
        body = section_json(part) if size <= 2 * most else b""
        texts = 0
        if not body or len(body) > most:
            if size <= 4 * MOST_ANSWER:
                short, texts = _cut_texts(plain_section(part))
                body = msgspec.json.encode(short)
            size = max(len(body) or size, 1)
        if body and len(body) <= most:
            left.texts += texts
            if kept < count:
                left.rows[section.title] = count - kept, count
            return body
        if kept <= 1:
            break
        kept = min(kept - 1, max(1, int(kept * most / size * 0.95)))
    left.sections.append(section.title)
    why = f"this section has {size / 1e6:,.0f} MB, more than an answer may have: narrow it down by step or filter, or use the command line"
    return section_json(type(section)(id=section.id, title=section.title, subtitle=section.subtitle, span=section.span, error=why))


def first_rows(section: TableSection, kept: int) -> TableSection:
    """Returns the first rows of a table, with the marks and links that are theirs."""

    def theirs(name: str) -> bool:
        return not name.isdigit() or int(name) < kept

    links = section.row_links
    return msgspec.structs.replace(
        section,
        data={name: values[:kept] for name, values in section.data.items()},
        marks={column: {r: m for r, m in entries.items() if theirs(r)} for column, entries in section.marks.items()},
        cell_links={column: {r: k for r, k in entries.items() if theirs(r)} for column, entries in section.cell_links.items()},
        row_links=links.first(kept) if isinstance(links, RowLinks) else {r: k for r, k in links.items() if theirs(r)},
        truncated=section.truncated + row_count(section) - kept,
    )


def short(text: str) -> str:
    """Returns a text without its middle where it has more than `MOST_TEXT` characters; texts that differ stay different."""
    if len(text) <= MOST_TEXT:
        return text
    mark = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{text[: MOST_TEXT - 600]} … ({len(text) - MOST_TEXT + 100:,} characters left out, {mark}) … {text[-500:]}"


def fitting(items: Sequence[object], most: int) -> int:
    """Returns how many of some items, from the first on, have no more than `most` bytes of JSON."""
    left = most
    for count, item in enumerate(items):
        left -= len(msgspec.json.encode(item)) + 1
        if left < 0:
            return count
    return len(items)


def _cut_texts(value: object) -> tuple[object, int]:
    """Returns plain data with the middle of long texts left out, and of how many."""
    cut = 0

    def text(given: str) -> str:
        nonlocal cut
        cut += len(given) > MOST_TEXT
        return short(given)

    def walk(found: object) -> object:
        if isinstance(found, str):
            return text(found)
        if isinstance(found, Mapping):
            return {text(k) if isinstance(k, str) else k: walk(v) for k, v in found.items()}
        if isinstance(found, list | tuple):
            return [walk(v) for v in found]
        return found

    return walk(value), cut
