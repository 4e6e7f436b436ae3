"""Defines what an analysis answers: a Report of ordered Sections. Plain data, units attached, no HTML.

Text fields may use `**bold**` and `` `code` ``; nothing else is markup, everything is escaped where it is shown.
Numbers stand in base units (ns, bytes, FLOP); unknown is `None`, never 0 and never NaN.
Colors stand as the light hex values of `model/figure.py`; surfaces with a dark theme map them one to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from tb_sol_plugin.errors import NotFound, Unavailable

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

    from tb_sol_plugin.model.columns import Spell

Scalar: TypeAlias = str | int | float | bool | None
Show: TypeAlias = Literal["number", "bar", "share", "efficiency", "stack", "badge", "code", "symbol", "tree", "text", "shapes"]
"""How a column is drawn.

number      right-aligned, one unit per column         bar         in-cell bar left of the number, scale shared by the column
share       a ratio as percent                         efficiency  bar in a track that ends at 100 %, plus percent
stack       stacked bar of the columns in `parts`      badge       small bordered tag (bound, direction, flags)
code        monospace name                             symbol      the kind's mark and the name
tree        indented name with caret (needs `tree`)    text        plain text        shapes      tensor shapes, monospace, cut in the middle
"""
State: TypeAlias = Literal["estimated", "unverified", "flagged", "unknown", "lower_bound", "partial", "incomplete"]


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """Another analysis with a Selection. `query` holds query fields and, as `find`, a text filter for its table.

    Keys that begin with `t.` set a table of the page, as in its address (`only_row`).
    """

    analysis: str
    query: dict[str, str] = {}
    label: str = ""


def only_rows(table: str, column: str, values: Iterable[str]) -> dict[str, str]:
    """Returns what a link's query needs for a table of the page to keep the rows with some values in a column (`joinList` of the page)."""
    texts = [v.replace("\\", "\\\\").replace(",", "\\,") for v in values]
    return {f"t.{table}.c.{column}": "\\" if texts == [""] else ",".join(texts)}


def only_row(table: str, column: str, value: str) -> dict[str, str]:
    """Returns the same for one value."""
    return only_rows(table, column, [value])


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a number is not plainly measured."""

    state: State
    why: str = ""


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """One column of a table.

    unit: see `units.UNITS`. doc: one sentence that defines the number.
    rank: 1 always shown, 2 hidden first when narrow, 3 only through the column chooser.
    color: a member of the palette ("compute", "gemm", …) for bars; color_by: the column that names the member per row.
    parts: columns stacked in a `stack` cell, each drawn in the palette color of the same position in `part_colors`.
    missing: why a null can stand here ("not recorded by AMD's tracer"), shown on hover of the dash.
    full: the column with the whole of a text that this one abbreviates, shown on hover and copied.
    per: "call" for times of single calls: all of them in a table are shown in one unit, apart from that of its sums.
    """

    name: str
    label: str
    unit: str = ""
    doc: str = ""
    show: Show = "number"
    rank: int = 1
    color: str = ""
    color_by: str = ""
    parts: tuple[str, ...] = ()
    part_colors: tuple[str, ...] = ()
    missing: str = ""
    full: str = ""
    per: Literal["", "call"] = ""


class Fact(msgspec.Struct, frozen=True):
    """One named single value of a report.

    label: what a reader sees beside the value; "" shows the name. unit: see `units.UNITS`. doc: one sentence that defines the number.
    color: a member of the palette, of a value that is a part of a whole.
    """

    name: str
    label: str
    unit: str = ""
    doc: str = ""
    color: str = ""


class TreeSpec(msgspec.Struct, frozen=True):
    """Names of the columns that make a table a tree: unique row id, parent id (null at a root)."""

    id: str = "id"
    parent: str = "parent"


class Sort(msgspec.Struct, frozen=True):
    """The order a table opens in."""

    column: str
    descending: bool = True


class Section(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What every section has.

    span: columns of the page's 12 (cards of 4 to 8 take the full width below 1180 px).
    weight: headline (no card, top of the page), card, full. subtitle: one line after the title.
    """

    id: str
    title: str
    subtitle: str = ""
    span: int = 12
    weight: Literal["headline", "card", "full"] = "card"
    error: str = ""
    links: list[Link] = []


class FactsSection(Section, tag="facts"):
    """Named single values.

    style: list (two columns), tiles (label, value, context), equation (first value = second x third …, then tiles),
    split (values are exclusive parts of a whole: a bar with labeled chips), card (a small card with a heading).
    notes: one line of context per value. colors: palette member per value. `text`: a sentence beside the values.
    of: for a value that is a part, the name of the value that is its whole.
    base: the same values of a baseline, where the report is set against one.
    """

    values: dict[str, Scalar] = {}
    units: dict[str, str] = {}
    labels: dict[str, str] = {}
    docs: dict[str, str] = {}
    notes: dict[str, str] = {}
    colors: dict[str, str] = {}
    marks: dict[str, Mark] = {}
    value_links: dict[str, Link] = {}
    hidden: list[str] = []
    base: dict[str, Scalar] = {}
    style: Literal["list", "tiles", "equation", "split", "card"] = "list"
    text: str = ""


class TablePage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some rows of a large table, in the order and choice that were asked for.

    rows: places in the whole table of the rows in `data`; marks and links go by them. The first `length` of them stand from `offset` on in
    the order; one more may follow: the row that was asked for by its key and does not pass the filters. at: where that row stands.
    count: rows that pass; of: all there are. sums: of the columns that add up, over the rows that pass, where some do not.
    passing: by figure of the table, keys of its points that pass, where some rows do not. version: changes with the table.
    Of a tree alone: shown: rows in the order, those of closed branches left out; `count` counts them. depth: of each row; branch: 0 a row
    without rows below, 1 closed, 2 open; above: what its parent says in the tree's column. path: ids to open, the innermost first, to show
    the row that was asked for.
    """

    table: str
    version: str
    offset: int
    length: int
    count: int
    of: int
    rows: list[int] = []
    data: dict[str, list[Scalar]] = {}
    marks: dict[str, dict[str, Mark]] = {}
    cell_links: dict[str, dict[str, Link]] = {}
    row_links: dict[str, Link] = {}
    sums: dict[str, Scalar] = {}
    passing: dict[str, list[str]] = {}
    at: int | None = None
    shown: int | None = None
    depth: list[int] = []
    branch: list[int] = []
    above: list[str | None] = []
    path: list[str] = []


class TablePages(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands for the rows of a large table in a report that was asked for in pages; the others come from `api/v1/table`.

    page: the first rows in the order the table opens in. profile: some values of each column that stand for all in its unit and width.
    full: the largest sum of a column of stacked bars. values: of each column to filter by, the most frequent values and how often each is
    there. additive: columns whose rows add up to the total. partial: keys of points in figures whose efficiency is of a part only.
    """

    rows: int
    version: str
    page: TablePage
    profile: dict[str, list[Scalar]] = {}
    full: dict[str, float] = {}
    values: dict[str, list[tuple[str, int]]] = {}
    additive: list[str] = []
    partial: list[str] = []


class OnTimeline(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which columns of a table say when each row was: such a row has a link to that stretch of the timeline.

    column: where the link stands. start, duration: columns, ns. offset_ns: of the start column after the timeline's begin. what: what is
    shown of a row that is more than one stretch (`its longest call`), "" for the row itself.
    """

    column: str
    start: str
    duration: str
    offset_ns: int = 0
    what: str = ""


class TableSection(Section, tag="table"):
    """Rows in columns: `data[column][row]`.

    key: the column whose value names a row in links and in figures. total: a first row over all rows. adds: of a table without it, columns
    that add up over rows; a choice of rows then has their sum. last: keys of rows outside of the sum: always last, in quiet ink. apart: of
    rows whose values set no scale (a first iteration): units and bars are those of the others.
    marks[column][str(row)] and cell_links[column][str(row)] are sparse. row_links[str(row)]: opened by Enter.
    timeline: where its rows are on the timeline. footer: definitions a reader needs. truncated: rows left out of `data`, 0 if none.
    pages: of a large table, where the report was asked for in pages; then `data` is empty and the marks are those of the total.
    """

    columns: list[Column] = []
    data: dict[str, Sequence[Scalar]] = {}  # of many rows no lists, but arrays that read like them: model/columns.py
    key: str = ""
    tree: TreeSpec | None = None
    sort: Sort | None = None
    total: dict[str, Scalar] | None = None
    adds: list[str] = []
    last: list[str] = []
    apart: list[str] = []
    marks: dict[str, dict[str, Mark]] = {}
    cell_links: dict[str, dict[str, Link]] = {}
    row_links: Mapping[str, Link] = {}  # of many rows no dict, but one that makes them: model/row_links.py
    filters: list[str] = []
    timeline: OnTimeline | None = None
    footer: str = ""
    empty: str = ""
    truncated: int = 0
    pages: TablePages | None = None


class PointNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a selected point of a figure says: where its ring sits, and where its dotted line to the limit ends.

    x, y: the ring, in data units of the axes (base units also on logarithmic axes: not powers of ten). limit: the end of the dotted
    line, None without one. axis: "x" for the chart (`xaxis`, `yaxis`): the line rises from (x, y) to (x, limit); "x2" for the strip
    (`xaxis2`, `yaxis2`): it runs from (x, y) to (limit, y). text: words at the end of the line, such as "4.1× below its limit".
    """

    x: float
    y: float
    limit: float | None = None
    text: str = ""
    axis: Literal["x", "x2"] = "x"


class Zoom(msgspec.Struct, frozen=True, omit_defaults=True):
    """What dragging and clicking along x in a figure ask for: other values of query fields, so that the tables beside it follow.

    window: the text field that a drag writes, as `12.5ms-40ms`. at: the one that a click writes, as `12.5ms`; "" for none.
    scale: ns per unit of the axis, whose 0 is the start of the recording.
    """

    window: str
    at: str = ""
    scale: float = 1.0


class Stretch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of the x axis that a table's row stands for; None: to the edge of the figure. text: words at its side."""

    start: float | None = None
    end: float | None = None
    text: str = ""


class FigureSection(Section, tag="figure"):
    """A Plotly figure `{"data": [...], "layout": {...}}` and one sentence that says what it shows.

    table: id of the table section that holds the same numbers; linked traces carry its row keys in `customdata`.
    notes: by row key, what is drawn at the point of the selected row. height: pixels. zoom: what dragging asks for, where it is not a
    matter of the figure alone. stretches: by table and row key, what the selected row covers. asks: by the name of a row (its y), fields
    of the page's query that a click on it asks for.
    """

    figure: dict[str, object] = {}
    summary: str = ""
    table: str = ""
    notes: dict[str, PointNote] = {}
    height: int = 320
    zoom: Zoom | None = None
    stretches: dict[str, dict[str, Stretch]] = {}
    asks: dict[str, dict[str, str]] = {}


class Finding(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One recommendation.

    rule: stable id. saving_ns: ns per step that fixing it could save; None where it cannot be said. removed_ns: where that is by replay,
    ns per step that the fix takes away; None: the saving is that time, at most. hidden: that time hides behind other work.
    saving_bytes: of a finding about memory, bytes that fixing it could free, at most; it stands in place of a time.
    share: saving over the step, or over the memory in use at the peak.
    title: a plain sentence about the cause. evidence: one or two lines with numbers.
    fix: code, one line. link: the view that explains it. rows: the view of exactly the rows that its saving is taken from. color: palette
    member of what it removes. candidate: the cause is possible, not proven.
    """

    rule: str
    title: str
    evidence: str
    saving_ns: int | None = None
    removed_ns: int | None = None
    saving_bytes: int | None = None
    share: float | None = None
    fix: str = ""
    link: Link | None = None
    rows: Link | None = None
    color: str = "other"
    candidate: bool = False
    hidden: bool = False


class FindingsSection(Section, tag="findings"):
    """Findings: what is proven, what is possible, what other work hides, the largest saving of each first.

    combined_ns: what all of them save together: by replay where their savings are, else one bound over the union of the time they touch.
    saves: what the savings are: time, or memory.
    """

    findings: list[Finding] = []
    combined_ns: int | None = None
    saves: Literal["time", "memory"] = "time"
    empty: str = ""


class TimelineSection(Section, tag="timeline"):
    """A stretch of the timeline; its events are fetched as tiles of what can be seen.

    start_ns, end_ns: the window it opens with, ns since the start of the recording; None for everything. tracks: paths of those that are
    shown, none for all. highlight: stretches to mark, each with a word. path: the critical path is drawn. height: pixels of a small one
    inside another page; 0: as the page needs.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    tracks: list[str] = []
    highlight: list[tuple[int, int, str]] = []
    path: bool = False
    height: int = 0


AnySection: TypeAlias = FactsSection | TableSection | FigureSection | FindingsSection | TimelineSection


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line above the page: level info, warn or error; an optional link that says more."""

    text: str
    level: Literal["info", "warn", "error"] = "warn"
    link: Link | None = None


class Reading(msgspec.Struct, frozen=True):
    """How many workers of a run a report speaks of already; it is worth asking again while `done` is less than `total`."""

    done: int
    total: int


class FieldNow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A query field: the value used where the query leaves it open, others that would do; idle: it says nothing as the others are."""

    value: str = ""
    values: tuple[str, ...] = ()
    idle: bool = False


class ReportFile(msgspec.Struct, frozen=True):
    """A small file that a report brings for another program. id: its name in addresses; file: under which it is saved."""

    id: str
    label: str
    file: str
    text: str
    mimetype: str = "application/json"


IN_NOTEBOOKS: Final[dict[str, Callable[[Report | UnavailableReport], str]]] = {}
"""What makes the forms of a report that a notebook chooses from, by media type. `api` fills it: what shows a report is in a layer above."""


def shown_in_notebook(report: Report | UnavailableReport) -> dict[str, str]:
    """Returns a report in all forms by media type."""
    return {kind: make(report) for kind, make in IN_NOTEBOOKS.items()}


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one analysis says about one selection.

    headline: the answer first, in one sentence. reading: while workers of a run are still being read. provisional: it says more once other
    pages have read the other ranks. fields: of query fields that depend on each other, how they stand. files: for other programs.
    """

    analysis: str
    title: str
    available: bool = msgspec.field(default=True)
    headline: str = ""
    selection: dict[str, Scalar] = {}
    notices: list[Notice] = []
    sections: list[AnySection] = []
    reading: Reading | None = None
    provisional: bool = False
    fields: dict[str, FieldNow] = {}
    files: list[ReportFile] = []

    # -- reading (notebook, tests, CLI) -------------------------------------------------------------------

    def section(self, section_id: str) -> AnySection:
        """Returns the section of that id; KeyError names the ids there are."""
        for section in self.sections:
            if section.id == section_id:
                return section
        raise KeyError(f"no section {section_id!r}; there are {[s.id for s in self.sections]}")

    def file(self, file_id: str) -> ReportFile:
        """Returns the file of that id; NotFound names those there are."""
        for one in self.files:
            if one.id == file_id:
                return one
        there = ", ".join(f.id for f in self.files)
        raise NotFound(f"no file {file_id[:40]!r} in this report", hint=f"there is: {there}" if there else "it has none", field="section")

    @property
    def facts(self) -> dict[str, Scalar]:
        """All facts of the report by name, base units."""
        return {k: v for s in self.sections if isinstance(s, FactsSection) for k, v in s.values.items()}

    @property
    def units(self) -> dict[str, str]:
        """Unit of every fact."""
        return {k: v for s in self.sections if isinstance(s, FactsSection) for k, v in s.units.items()}

    @property
    def findings(self) -> list[Finding]:
        """All findings, in the order of the report."""
        return [f for s in self.sections if isinstance(s, FindingsSection) for f in s.findings]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Returns what a notebook shows of the report."""
        return shown_in_notebook(self)

    def table(self, section_id: str) -> pandas.DataFrame:
        """Returns a table section as a DataFrame; `df.attrs["units"]` names the unit of each column."""
        import pandas

        section = self.section(section_id)
        if not isinstance(section, TableSection):
            raise KeyError(f"section {section_id!r} is a {type(section).__name__}, not a table")
        frame = pandas.DataFrame({n: list(v) for n, v in section.data.items()}, columns=[c.name for c in section.columns])
        frame.attrs["units"] = {c.name: c.unit for c in section.columns}
        return frame

    def figure(self, section_id: str) -> plotly.graph_objects.Figure:
        """Returns a figure section as a Plotly figure."""
        import plotly.graph_objects as go

        section = self.section(section_id)
        if not isinstance(section, FigureSection):
            raise KeyError(f"section {section_id!r} is a {type(section).__name__}, not a figure")
        return go.Figure(section.figure, skip_invalid=True)


class UnavailableReport(msgspec.Struct, kw_only=True):
    """The answer of an analysis that lacks its input. Never an empty table. fields: as of a report, where they chose what is missing."""

    analysis: str
    title: str
    because: str
    record_it_with: str
    available: bool = False
    selection: dict[str, Scalar] = {}
    argument: str = ""
    fields: dict[str, FieldNow] = {}

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Returns what a notebook shows in its place."""
        return shown_in_notebook(self)

    def table(self, section_id: str) -> pandas.DataFrame:
        """Raises Unavailable, as there is none, with what is missing and how to record it."""
        raise self._error(section_id)

    def figure(self, section_id: str) -> plotly.graph_objects.Figure:
        """Raises Unavailable, as there is none, with what is missing and how to record it."""
        raise self._error(section_id)

    def _error(self, section_id: str) -> Unavailable:
        return Unavailable(f"{self.analysis} has no {section_id}: {self.because}", hint=self.record_it_with)


def make_table(
    section_id: str,
    title: str,
    frame: pandas.DataFrame | Mapping[str, object],
    columns: Sequence[Column],
    spelled: Mapping[str, Spell] | None = None,
    **more: object,
) -> TableSection:
    """Returns a table section from a DataFrame, or its columns by name, that has each of `columns` but those that are `spelled`."""
    from tb_sol_plugin.model.columns import column_data

    data = column_data(frame, columns, spelled)
    return TableSection(id=section_id, title=title, columns=list(columns), data=data, **more)  # type: ignore[arg-type]


def make_facts(
    section_id: str,
    title: str,
    values: Mapping[str, Scalar],
    facts: Sequence[Fact],
    *,
    labels: Mapping[str, str] | None = None,
    more_docs: Mapping[str, str] | None = None,
    **more: object,
) -> FactsSection:
    """Returns a section of the values, in their order, each of which has its `Fact`; KeyError for one that has none.

    labels: those that differ in this report. more_docs: lines after a definition, such as the formula in numbers.
    """
    known = {f.name: f for f in facts}
    unknown = [name for name in values if name not in known]
    if unknown:
        raise KeyError(f"no Fact for {unknown} in section {section_id!r}")
    own, after, shown = labels or {}, more_docs or {}, [known[name] for name in values]
    more.setdefault("colors", {f.name: f.color for f in shown if f.color})
    return FactsSection(
        id=section_id,
        title=title,
        values=dict(values),
        units={f.name: f.unit for f in shown},
        labels={f.name: own.get(f.name) or f.label or f.name for f in shown},
        docs={f.name: f"{f.doc}\n{after[f.name]}" if after.get(f.name) else f.doc for f in shown},
        **more,  # type: ignore[arg-type]
    )


def encode(report: Report | UnavailableReport) -> bytes:
    """Encodes a report as JSON: `kind` first in every section, `available` always there, no NaN."""
    return msgspec.json.encode(to_plain(report))


def to_plain(report: Report | UnavailableReport) -> dict[str, object]:
    """Returns the report as JSON-ready builtins, with the fields the contract promises even where they are defaults."""
    if isinstance(report, UnavailableReport):
        unavailable: dict[str, object] = msgspec.to_builtins(report)
        if not report.fields:
            del unavailable["fields"]
        return unavailable
    body: dict[str, object] = msgspec.to_builtins(msgspec.structs.replace(report, sections=[]))
    body.setdefault("selection", {})
    body["available"] = True
    body["sections"] = [plain_section(section) for section in report.sections]
    return body


def plain_section(section: AnySection) -> dict[str, object]:
    """Returns a section as JSON-ready builtins."""
    if isinstance(section, TableSection):
        plain = getattr(section.row_links, "plain", None)  # of `RowLinks`
        links = dict(section.row_links.items()) if plain is None else {"": Link("")}
        full: dict[str, object] = msgspec.to_builtins(msgspec.structs.replace(section, columns=[], data={}, row_links=links))
        full |= {"row_links": plain()} if plain is not None else {}
        full["columns"] = [
            {"name": c.name, "label": c.label, "unit": c.unit, "doc": c.doc, **msgspec.to_builtins(c)} for c in section.columns
        ]
        full["data"] = {name: values if isinstance(values, list) else list(values) for name, values in section.data.items()}
        return full
    full = msgspec.to_builtins(section)
    if isinstance(section, FactsSection):
        full["values"], full["units"] = section.values, section.units
    if isinstance(section, FindingsSection):
        full["findings"] = msgspec.to_builtins(section.findings)
    return full
