"""Puts large tables of reports into pages, reads what a request asks of a table's rows, and streams them as CSV.

A report that is requested with `tables=pages` has no more than `MOST_BYTES`, unless figures alone are larger: of its large tables it
holds the first rows and what a reader needs of the others. What bounds every answer is in `bounds`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace
from werkzeug.datastructures import MultiDict

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.columns import MANY_ROWS
from tb_sol_plugin.model.report import FigureSection, Report, Scalar, Sort, TablePage, TableSection, UnavailableReport, encode
from tb_sol_plugin.model.rows import Bounds, Choice, TableRows
from tb_sol_plugin.web.bounds import bounded, section_json
from tb_sol_plugin.web.wire import cell

MOST_BYTES = 1_000_000
"""Bytes of JSON of an answer."""
WHOLE_ROWS = MANY_ROWS
"""Rows of a table up to which it comes whole where the report stays below `MOST_BYTES`."""
FIRST_ROWS = 100
FIRST_BYTES = 200_000
MOST_ROWS = 1_000
"""Rows of a page."""
MOST_TEXT = 1_000
MOST_WORDS = 32
MOST_FILTERS = 64
MOST_CHOSEN = 20_000
"""Values to keep and keys to pick, all filters together."""
MOST_BODY = 4_000_000

NAMES = ("section", "offset", "limit", "sort", "find", "keep", "range", "key", "open", "columns", "version", "format")
"""Parameters of a request for rows besides those of the report; no analysis may have a query field of such a name."""


# -- a report whose large tables are in pages ------------------------------------------------------------------------


def in_pages(report: Report | UnavailableReport, version: str) -> tuple[bytes, dict[str, TableRows]]:
    """Returns the JSON of a report with its large tables in pages, and the rows of these tables by the id of their section.

    Tables of more than `WHOLE_ROWS` rows are in pages; so are further ones, the largest first, while the report is larger than
    `MOST_BYTES`.
    """
    if isinstance(report, UnavailableReport):
        return bounded(report), {}
    places = {s.id: i for i, s in enumerate(report.sections) if isinstance(s, TableSection) and not s.error}
    tables = {s.id: s for s in report.sections if isinstance(s, TableSection) and not s.error}
    sections, paged = list(report.sections), {}

    def put(name: str) -> None:
        paged[name] = rows_of(report, tables[name], version)
        sections[places[name]] = _first_page(tables[name], paged[name])

    for s in tables.values():
        if _row_count(s) > WHOLE_ROWS:
            put(s.id)
    parts = [section_json(s) for s in sections]
    size = len(encode(msgspec.structs.replace(report, sections=[]))) + sum(len(part) + 1 for part in parts)
    if size > MOST_BYTES + 1:
        rest = {s.id: _bytes_of(s) for s in tables.values() if s.id not in paged and _row_count(s) > FIRST_ROWS}
        for name in sorted(rest, key=lambda n: (-rest[n], n)):
            put(name)
            at = places[name]
            size -= len(parts[at])
            parts[at] = section_json(sections[at])
            size += len(parts[at])
            if size <= MOST_BYTES + 1:
                break
    return bounded(msgspec.structs.replace(report, sections=sections), parts), paged


def rows_of(report: Report, section: TableSection, version: str) -> TableRows:
    """Returns the rows of a table, with the keys of the points that figures of the report draw of them."""
    points = {s.id: _keys_of(s) for s in report.sections if isinstance(s, FigureSection) and s.table == section.id}
    return TableRows(section, {name: keys for name, keys in points.items() if keys}, version)


def _row_count(section: TableSection) -> int:
    return max((len(values) for values in section.data.values()), default=0)


def _bytes_of(section: TableSection) -> int:
    """Returns the bytes of a table's JSON, as they come whole."""
    return len(msgspec.json.encode(msgspec.structs.replace(section, row_links=dict(section.row_links.items())), enc_hook=list))


def _first_page(section: TableSection, rows: TableRows) -> TableSection:
    pages = rows.pages(page_within(rows, Choice(), limit=FIRST_ROWS, most=FIRST_BYTES))
    marks = {column: {"total": entries["total"]} for column, entries in section.marks.items() if "total" in entries}
    return msgspec.structs.replace(section, data={}, marks=marks, cell_links={}, row_links={}, pages=pages)


def _keys_of(figure: FigureSection) -> list[str]:
    """Returns the row keys that the points of a figure carry in `customdata`: a value, the first of several, or `key` of an object."""
    out: dict[str, None] = {}
    traces = figure.figure.get("data")
    for trace in traces if isinstance(traces, list) else []:
        for custom in trace.get("customdata") or () if isinstance(trace, dict) else ():
            first = custom[0] if isinstance(custom, list | tuple) and custom else custom.get("key") if isinstance(custom, dict) else custom
            if isinstance(first, str | int | float) and first != "":
                out[str(first)] = None
    return list(out)


# -- what a request asks for -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowsRequest:
    """A request for rows of one table. columns: of a CSV; none: all. version: of the report that it belongs to, "" for any."""

    section: str
    choice: Choice
    offset: int = 0
    limit: int = FIRST_ROWS
    key: str = ""
    columns: tuple[str, ...] = ()
    version: str = ""
    form: str = "json"


def rows_request(values: MultiDict[str, str], picked: Sequence[object] | None = None, toggled: Sequence[object] = ()) -> RowsRequest:
    """Returns what parameters ask for; picked: row keys that alone may pass; toggled: ids of a tree's rows that are open or closed
    unlike the others. BadQuery names the one that does not fit.
    """
    section, form = values.get("section", ""), values.get("format", "json")
    if not section:
        raise BadQuery("parameter 'section' is missing", hint="give the id of a table of the report", field="section")
    if form not in ("json", "csv"):
        raise BadQuery(f"no format {form[:40]!r}", hint="choose json or csv", field="format")
    find = values.get("find", "")
    if len(find) > MOST_TEXT or len(Choice(find=find).words) > MOST_WORDS:
        raise BadQuery("the text to find is too long", hint=f"give at most {MOST_TEXT} letters and {MOST_WORDS} words", field="find")
    keep = tuple((name, tuple(dict.fromkeys(split_list(text)))) for name, text in _by_column(values, "keep"))
    ranges = tuple((name, _bounds(text)) for name, text in _by_column(values, "range"))
    for name, given in (("picked", picked or ()), ("toggled", toggled)):
        if not all(isinstance(k, str) for k in given):
            raise BadQuery(f"{name!r} does not fit", hint="give a list of texts", field=name)
    if values.get("open", "d") not in ("d", "a", "n"):
        raise BadQuery("parameter 'open' does not fit", hint="choose d for the heaviest branches, a for all, n for none", field="open")
    if sum(len(v) for _, v in keep) + len(picked or ()) + len(toggled) > MOST_CHOSEN:
        raise BadQuery("too many values are chosen", hint=f"give at most {MOST_CHOSEN:,} in all", field="keep" if keep else "picked")
    sort = values.get("sort", "")
    return RowsRequest(
        section=section,
        choice=Choice(
            Sort(sort.removeprefix("-"), sort.startswith("-")) if sort else None, find, keep, ranges,
            frozenset(str(k) for k in picked) if picked is not None else None, values.get("open", "d"), frozenset(map(str, toggled)),
        ),
        offset=_whole(values, "offset", 0, 0, 10**9),
        limit=_whole(values, "limit", FIRST_ROWS, 1, MOST_ROWS),
        key=values.get("key", ""),
        columns=tuple(dict.fromkeys(split_list(values.get("columns", "")))),
        version=values.get("version", ""),
        form=form,
    )  # fmt: skip


def chosen_in(body: bytes) -> tuple[list[object] | None, list[object]]:
    """Returns (row keys that alone may pass or None, ids of toggled rows) of a request's body, `{"picked": [...], "toggled": [...]}`."""
    if not body:
        return None, []
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if (
        not isinstance(found, dict)
        or not found
        or not set(found) <= {"picked", "toggled"}
        or not all(isinstance(v, list) for v in found.values())
    ):
        raise BadQuery("the body of the request does not fit", hint='send {"picked": ["KEY", ...], "toggled": ["ID", ...]}', field="picked")
    return (list(found["picked"]) if "picked" in found else None), list(found.get("toggled", []))


def split_list(text: str) -> list[str]:
    r"""Returns the items of a list as addresses write it: joined by commas, `\` before a comma or backslash of an item, `\` for one empty
    text.
    """
    if text == "":
        return []
    if text == "\\":
        return [""]
    out, item, at = [], "", 0
    while at < len(text):
        letter = text[at]
        if letter == "\\" and at + 1 < len(text):
            at += 1
            item += text[at]
        elif letter == ",":
            out.append(item)
            item = ""
        else:
            item += letter
        at += 1
    return [*out, item]


def _by_column(values: MultiDict[str, str], name: str) -> list[tuple[str, str]]:
    every = values.getlist(name)
    if len(every) > MOST_FILTERS:
        raise BadQuery(f"too many of parameter {name!r}", hint=f"give at most {MOST_FILTERS}", field=name)
    parts = [text.partition(":") for text in every]
    if not all(column and colon for column, colon, _ in parts):
        raise BadQuery(f"parameter {name!r} does not fit", hint=_FORMS[name], field=name)
    return [(column, text) for column, _, text in parts]


_FORMS = {"keep": "give COLUMN:VALUE,VALUE", "range": "give COLUMN:ABOVE~BELOW, one of the two may be left out"}


def _bounds(text: str) -> Bounds:
    low, tilde, high = text.partition("~")
    try:
        ends = [float(end) if end else None for end in (low, high)]
    except ValueError:
        ends = [math.nan]
    if not tilde or any(end is not None and not math.isfinite(end) for end in ends) or ends == [None, None]:
        raise BadQuery(f"parameter 'range' does not fit: {text[:40]!r}", hint=_FORMS["range"], field="range")
    return Bounds(ends[0], ends[1])


def _whole(values: MultiDict[str, str], name: str, default: int, least: int, most: int) -> int:
    given = values.get(name, "")
    if not given:
        return default
    if not (given.isascii() and given.isdigit() and len(given) <= 12 and least <= int(given) <= most):
        raise BadQuery(f"parameter {name!r} does not fit: {given[:40]!r}", hint=f"give a whole number from {least} to {most}", field=name)
    return int(given)


# -- answers ---------------------------------------------------------------------------------------------------------


def page_within(
    rows: TableRows, choice: Choice, *, offset: int = 0, limit: int = FIRST_ROWS, key: str = "", most: int = MOST_BYTES
) -> TablePage:
    """Returns a page of at most `most` bytes: with fewer rows than asked for where they are long, but never without any."""
    while True:
        page = rows.page(choice, offset=offset, limit=limit, key=key)
        size = len(msgspec.json.encode(page))
        if size <= most or page.length <= 1:
            return page
        limit = max(1, min(page.length - 1, page.length * most // size))


def as_csv(rows: TableRows, request: RowsRequest) -> Iterator[str]:
    """Yields all rows that pass as CSV, in order, of a tree the closed ones too. BadQuery, before the first line, names a column that is
    not there.
    """
    names = request.columns or tuple(rows.columns)
    chosen = rows.rows(replace(request.choice, base="a", toggled=frozenset()))
    records = rows.records(chosen, names)

    def lines() -> Iterator[str]:
        yield _lines([names])
        for part in records:
            yield _lines([[cell(v) for v in record] for record in part])

    return lines()


def _lines(records: Sequence[Sequence[Scalar]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(records)
    return out.getvalue()
