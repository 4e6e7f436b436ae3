"""Makes one HTML file of the pages of a recording: the page of the SOL tab with its answers inside, which opens without a server.

The file holds the built page, the bundle of Plotly and a block of data: the answers that the page would ask a server for, as JSON, gzip,
base64. It has no path, no host name and no user name of the recording unless they are asked for, and may connect to nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from tb_sol_plugin.errors import BadQuery, SolError
from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import parse
from tb_sol_plugin.model.registry import Analysis, availability, described, get, registry
from tb_sol_plugin.model.report import Notice, Report, TableSection, TimelineSection, UnavailableReport
from tb_sol_plugin.redact import text
from tb_sol_plugin.version import __version__
from tb_sol_plugin.web import wire
from tb_sol_plugin.web.bounds import bounded, first_rows, row_count
from tb_sol_plugin.web.http import CUSTOM_PLOTLY, STATIC
from tb_sol_plugin.web.links import live_address
from tb_sol_plugin.web.listings import catalog, offered_analyses
from tb_sol_plugin.web.timeline_file import FINGERPRINT, saved_timeline

Raw: TypeAlias = "dict[str, str]"
AnswerRanks: TypeAlias = Callable[[str, Mapping[str, str]], "Report | UnavailableReport"]
"""Answers an analysis over all ranks of the run, by its name and its query."""

FIRST: Final = "overview"
EVERY: Final = "all"
LIVE_ONLY: Final = ("links",)
"""Analyses whose pages ask a server for more than their report and the timeline."""
TIMELINE: Final = "timeline"
MOST_ROWS: Final = 10_000
"""Rows of a table in a file."""
MOST_PAGE: Final = 4_000_000
MOST_DATA: Final = 24_000_000
SMALL_PAGE: Final = 300_000
"""Bytes of JSON of one page, of all pages, and of each one that comes after so many."""
COMMON: Final = ("step", "device_limits")
"""Query fields of the selection bar, which a single report does not have."""
NOT_HERE: Final = "not in this file"

_CHARS: Final = r"""[^\s/"'\\:,;()\[\]<>{}|]"""
_PATH: Final = re.compile(rf"(?<![\w.~/-])~?(?:/{_CHARS}+)+/({_CHARS}+)|\b[A-Za-z]:(?:\\\\[^\\\"/:*?<>|]+)+")
_LIBRARY: Final = re.compile(r".*(?:site-packages|dist-packages|lib[/\\]+python\d[\d.]*)[/\\]+(.*)")
_HOME: Final = re.compile(rf"(?<![\w.])(?:home|Users)/{_CHARS}+/")
_PLAIN_NAME: Final = re.compile(r"(?:rank|worker|node|span|step|run)?[\W_]*\d*|[A-Za-z]*", re.IGNORECASE)


@dataclass(frozen=True)
class Chosen:
    """A page of the file: its analysis, and the query fields that it was asked with."""

    item: Analysis
    raw: Raw


def html_file(
    capture: Capture,
    pages: Sequence[str] = (EVERY,),
    *,
    step: str = "",
    device: str = "",
    with_paths: bool = False,
    workers: int = 1,
    ranks: AnswerRanks | None = None,
    live: str = "",
) -> bytes:
    """Returns the file.

    pages: names of analyses, each with the query fields that differ from those the page opens with, as `kernels?group_by=name`; `all`:
    every one that the recording has data for. step, device: as chosen in the selection bar. with_paths: keep paths, host and user names.
    workers: of the run, over which `ranks` answers. live: address of the page itself, where a reader can reach it: it is kept as it is.
    Raises NotFound for a name that is no analysis and BadQuery for a field that does not fit.
    """
    live = live_address(live)
    shown = capture if with_paths else anonymous(capture)
    common = {name: value for name, value in (("step", step), ("device_limits", device)) if value}
    chosen = _chosen(pages, common, shown, workers if ranks else 1)
    answers: dict[str, msgspec.Raw] = {}
    size, timelines = 0, []
    for page in chosen:
        report = _report(page, shown, ranks)
        if isinstance(report, Report):
            timelines += [(page.item.name != TIMELINE, s) for s in report.sections if isinstance(s, TimelineSection)]
        body = bounded(report, most=MOST_PAGE if size < MOST_DATA else SMALL_PAGE)
        size += len(body)
        answers[name_of(f"api/v1/analysis/{page.item.name}", page.raw)] = msgspec.Raw(body)
    tiles = b""
    if timelines and (saved := saved_timeline(shown, _window(min(timelines, key=lambda one: one[0])[1]))):
        answers[name_of("api/v1/timeline", {})] = msgspec.Raw(saved.shape)
        answers[name_of("api/v1/timeline/names", {"fp": FINGERPRINT})] = msgspec.Raw(saved.names)
        if saved.path:
            answers[name_of("api/v1/timeline/flows", {"kind": "path"})] = msgspec.Raw(saved.path)
        tiles = saved.tiles
    there = {page.item.name for page in chosen}
    limits = {"device_limits": device} if device else {}
    offered = msgspec.Raw(msgspec.json.encode(_offered(offered_analyses(shown, device, workers), there)))
    answers |= {name_of("api/v1/analyses", {}): offered, name_of("api/v1/analyses", limits): offered}
    answers[name_of("api/v1/runs", {})] = msgspec.Raw(msgspec.json.encode(_runs(shown)))
    body = msgspec.json.encode(answers)
    if not with_paths:
        body = without_places(body.decode(), names_of(capture)).encode()
    body = b'{"answers":%s,"live":%s}' % (body, msgspec.json.encode(live))
    start = {"page": chosen[0].item.name if chosen else FIRST, "step": step, "device": device}
    return _document(body, {k: v for k, v in start.items() if v}, shown.run or "Speed of light", tiles=tiles)


def _window(section: TimelineSection) -> tuple[int, int] | None:
    """Returns the stretch of time that a timeline opens with, None for everything."""
    return (section.start_ns, section.end_ns) if section.start_ns is not None and section.end_ns is not None else None


def name_of(path: str, query: Mapping[str, str]) -> str:
    """Returns the name under which the file holds an answer; `nameOf` of the page does the same."""
    return "\n".join([path, *sorted(f"{name}={value}" for name, value in query.items() if value)])


def _chosen(pages: Sequence[str], common: Raw, capture: Capture, workers: int) -> list[Chosen]:
    """Returns the pages that are named, each once, the first of them first."""
    out: dict[tuple[str, tuple[tuple[str, str], ...]], Chosen] = {}
    for given in pages:
        name, _, query = given.strip().partition("?")
        fields = dict(parse_qsl(query, keep_blank_values=True))
        named = [get(name)] if name != EVERY else [item for item in _in_order() if _can(item, capture, workers)]
        for item in named:
            raw = {**_page_defaults(item), **fields, **common}
            parse(item.query, raw)
            out.setdefault((item.name, tuple(sorted(raw.items()))), Chosen(item, raw))
    return list(out.values())


def _in_order() -> list[Analysis]:
    return sorted(registry().values(), key=lambda item: item.name != FIRST)


def _can(item: Analysis, capture: Capture, workers: int) -> bool:
    """Returns whether a file can have this page: its recording, or all ranks of its run, are all it needs."""
    if item.name in LIVE_ONLY or item.scope not in ("capture", "ranks", "none") or (item.scope == "ranks" and workers < 2):
        return False
    return availability(item, capture, workers) is None


def _page_defaults(item: Analysis) -> Raw:
    """Returns the query fields with which the page asks where it opens with others than a script."""
    return {f.name: f.page for f in item.fields if f.page and f.page != f.default and f.name not in item.query.LOCAL}


def _report(page: Chosen, capture: Capture, ranks: AnswerRanks | None) -> Report | UnavailableReport:
    """Returns the report of a page, no table too long. One that fails does not cost the others."""
    item = page.item
    try:
        over_ranks = ranks is not None and (item.scope == "ranks" or item.joins)
        report = ranks(item.name, page.raw) if over_ranks and ranks is not None else answer_capture(item.name, capture, page.raw)
    except BadQuery:
        raise
    except SolError as error:
        report = UnavailableReport(analysis=item.name, title=item.title, because=text(error.message), record_it_with=text(error.hint))
    except Exception as error:
        because = f"it failed ({type(error).__name__})"
        report = UnavailableReport(analysis=item.name, title=item.title, because=because, record_it_with="tb-sol analyze says more")
    return _shortened(report) if isinstance(report, Report) else report


def _shortened(report: Report) -> Report:
    """Returns the report with at most MOST_ROWS rows of each table; what is left out is said above the page."""
    sections, notices = list(report.sections), list(report.notices)
    for at, section in enumerate(sections):
        rows = row_count(section)
        if isinstance(section, TableSection) and rows > MOST_ROWS:
            sections[at] = first_rows(section, MOST_ROWS)
            command = f"tb-sol analyze {report.analysis} PATH --format csv --section {section.id}"
            notices.append(Notice(f"This file has the first {MOST_ROWS:,} of {rows:,} rows of “{section.title}”. All of them: {command}"))
    return msgspec.structs.replace(report, sections=sections, notices=notices)


def _offered(analyses: wire.Analyses, there: Iterable[str]) -> wire.Analyses:
    """Returns the list of pages, with those that the file does not have grayed."""
    infos = [
        info
        if not info.available or info.name in there
        else msgspec.structs.replace(info, available=False, because=NOT_HERE, record_it_with="open the live page: tb-sol serve LOGDIR")
        for info in analyses.analyses
    ]
    return msgspec.structs.replace(analyses, analyses=infos)


def _runs(capture: Capture) -> wire.Runs:
    facts = capture.facts
    span = wire.Span(capture.span, capture.span, facts.file, facts.size, 0.0, "ready", facts.source if facts.source else "kineto")
    return _list_of_one({"run": capture.run, "worker": capture.worker}, span, facts.rank)


def _list_of_one(names: Mapping[str, str], span: wire.Span, rank: int | None) -> wire.Runs:
    run = wire.Run(names["run"], [wire.Worker(names["worker"], rank, [span])])
    return wire.Runs(wire.Scan("done", 1, 0, 1, 0, [], None, []), [run], [], wire.Features(False, False, __version__), [], [])


# -- no path, host or user -------------------------------------------------------------------------------------------


def anonymous(capture: Capture) -> Capture:
    """Returns the recording without the names of its file, host and worker: those of a run are kept, without folders. Tables are shared."""
    facts = msgspec.structs.replace(capture.facts, host_name="", file="recording")
    worker = f"rank {facts.rank}" if facts.rank is not None else "worker"
    run = capture.run.replace("\\", "/").rstrip("/").rpartition("/")[2]
    names = {"run": run or "recording", "worker": worker, "span": "1"}
    made = Capture(facts, capture.tables, **names, devices=capture.devices, attached_state=capture.attached_state)
    made.unjoined = capture.unjoined
    return made


def names_of(capture: Capture) -> list[str]:
    """Returns names of host, worker, span and file of a recording that are no common words, the longest first.

    A host whose name is letters alone counts too, unless the page itself has that word; other names of letters alone do not: a file is
    often called as the model is.
    """
    host = capture.facts.host_name
    file = os.path.basename(capture.facts.file)
    found = {host, capture.worker, capture.span, file, file.partition(".")[0]}
    stems = (capture.worker, file.partition(".")[0])
    hosts = {host.partition(".")[0], *(stem for name in stems if (stem := re.split(r"_\d+$|\.\d+$", name)[0]) != name)}
    plain = {n for n in hosts if len(n) > 2 and n.isalpha() and n.lower() not in _words_of_the_page()}
    rare = {n for n in found | hosts if len(n) > 3 and not _PLAIN_NAME.fullmatch(n)}
    return sorted(plain | rare, key=lambda n: (-len(n), n))


@cache
def _words_of_the_page() -> frozenset[str]:
    """Words that the page is made of: its code and styles, and all that the catalog of analyses says. Lower case."""
    listed = msgspec.json.encode(catalog()).decode() + msgspec.json.encode(described()).decode()
    texts = (*_built()[1:], listed)
    return frozenset(word.lower() for word in chain.from_iterable(re.findall(r"[A-Za-z]{3,}", text) for text in texts))


def without_places(line: str, names: Sequence[str] = ()) -> str:
    r"""Returns a text without folders, home folders and `names`: of a path its last part is kept, of one inside of a library that there.

    line: may be JSON, where a backslash is written twice.
    """
    parts = line.split('"')  # no path goes over one, and few of the parts have one
    for at, part in enumerate(parts):
        if "/" in part or "\\" in part:
            parts[at] = _HOME.sub("…/", _PATH.sub(_short_path, part))
    line = '"'.join(parts)
    if names and any(name in line for name in names):
        known = "|".join(map(re.escape, names))
        line = re.sub(rf"(?<![A-Za-z0-9])(?:{known})(?![A-Za-z0-9])(?!\":)", "recording", line)  # not the name of a field
    return line


def _short_path(found: re.Match[str]) -> str:
    whole = found.group()
    inside = _LIBRARY.search(whole)
    return "…/" + (inside.group(1) if inside else re.split(r"[/\\]", whole)[-1])


# -- one report ------------------------------------------------------------------------------------------------------


def report_frame(report: Report | UnavailableReport) -> str:
    """Returns a frame with one report, as a cell of a notebook shows it: it needs neither the kernel nor a network afterwards."""
    item = get(report.analysis)
    body = bounded(_shortened(report) if isinstance(report, Report) else report, most=MOST_PAGE)
    names = {name: str(report.selection.get(name, "")) for name in ("run", "worker", "span")}
    runs = _list_of_one(names, wire.Span(names["span"], names["span"], "recording", 0, 0.0, "ready"), None)
    answers = {
        name_of(f"api/v1/analysis/{item.name}", {}): msgspec.Raw(body),
        name_of("api/v1/analyses", {}): msgspec.Raw(msgspec.json.encode(_offered(catalog(), [item.name]))),
        name_of("api/v1/runs", {}): msgspec.Raw(msgspec.json.encode(runs)),
    }
    fields = {f"q.{f.name}": str(report.selection[f.name]) for f in item.fields if f.name in report.selection and f.name not in COMMON}
    data = without_places(msgspec.json.encode({"answers": answers, "live": ""}).decode()).encode()
    document = html.escape(_document(data, {"page": item.name, **fields}, item.title, alone=True).decode(), quote=True)
    return f'<iframe srcdoc="{document}" title="{html.escape(item.title)}" style="width:100%;height:640px;border:0"></iframe>'


# -- the document ----------------------------------------------------------------------------------------------------


_LOADER: Final = """
const unpack = async (id) => {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};
for (const [id, type] of [["tb-sol-plotly", "text/javascript"], ["tb-sol-page", "module"]]) {
  const script = document.createElement("script");
  script.type = type;
  script.textContent = await unpack(id);
  document.body.append(script);
}
"""


def _document(data: bytes, start: Mapping[str, str], title: str, *, alone: bool = False, tiles: bytes = b"") -> bytes:
    """Returns the whole file. Scripts are named in its policy by what they are, so that no other one runs."""
    plotly, page, style = _built()
    allowed = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in (plotly, page, _LOADER))
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; base-uri 'none'"
    pairs = html.escape(json.dumps(start, ensure_ascii=True), quote=True)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tb-sol {__version__}">
<meta name="referrer" content="no-referrer">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page needs JavaScript. The same numbers: tb-sol report PATH</noscript>
<script type="text/plain" id="tb-sol-data" data-start="{pairs}" data-alone="{str(alone).lower()}">{_packed(data)}</script>
<script type="text/plain" id="tb-sol-tiles">{_packed(tiles)}</script>
<script type="text/plain" id="tb-sol-plotly">{_packed(plotly.encode())}</script>
<script type="text/plain" id="tb-sol-page">{_packed(page.encode())}</script>
<script type="module">{_LOADER}</script>
</body>
</html>
""".encode()


@cache
def _built() -> tuple[str, str, str]:
    """Returns Plotly, the built page with what starts it, and its styles."""
    page, style = ((STATIC / name).read_text("utf-8") for name in ("index.js", "index.css"))
    return CUSTOM_PLOTLY.read_text("utf-8"), f"{page}\nrender();\n", style.replace("</", "<\\/")


@lru_cache(maxsize=4)
def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()
