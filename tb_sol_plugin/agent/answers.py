"""Small answers about the recordings of one logdir, for programs that read a little at a time: plain values, each with its unit.

A recording of a gigabyte fits into no context, a report does. Every answer names its analysis, says how many rows there are and which share
of the whole is shown, and is cut to a number of characters; what is unknown is None with the reason. Nothing outside of the logdir is read.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import RLock
from typing import Any, Final, TypeAlias

from tb_sol_plugin.cli.markdown import report_markdown
from tb_sol_plugin.errors import BadQuery, NotFound
from tb_sol_plugin.ingest.source import Progress
from tb_sol_plugin.model import docs
from tb_sol_plugin.model.answer import AnalysisRequest, Run, answer
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import as_text
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.model.registry import Analysis, availability, get, registry
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    FindingsSection,
    Report,
    Sort,
    TableSection,
    UnavailableReport,
)
from tb_sol_plugin.model.rows import Bounds, Choice, TableRows
from tb_sol_plugin.store.open import is_file, listing_of, open_run, options_for
from tb_sol_plugin.store.processes import WATCHED
from tb_sol_plugin.units import human
from tb_sol_plugin.web.bounds import row_count
from tb_sol_plugin.web.links import command_of, live_address, python_of, view_hash

Plain: TypeAlias = "dict[str, Any]"

ROWS: Final = 20
COLUMNS: Final = 15
MOST_ROWS: Final = 500
USUAL: Final = 16_000
MOST: Final = 80_000
"""Characters of JSON of an answer, usually and at the most: about four to a token."""
LONGEST: Final = 160
"""Characters of a text in a row."""
KEPT: Final = 4
"""Runs that stay open."""
COMMON: Final = frozenset((
    "and", "are", "but", "can", "did", "does", "for", "from", "has", "have", "how", "its", "many", "much", "not", "the", "them", "they",
    "this", "was", "what", "when", "where", "which", "why", "with",
))  # fmt: skip
"""Words of a question that say nothing of its subject."""
WORDS: Final = 3
"""Letters of a word that a question is matched by, at the least."""


_DONE: ContextVar[Callable[[float, float, str], None]] = ContextVar("tb_sol_done", default=lambda done, total, what: None)


@contextmanager
def watched(done: Callable[[float, float, str], None]) -> Iterator[None]:
    """Tells how far what is asked inside has come: so much of so much, and of what. Raising Canceled from it ends the reading."""

    def read(progress: Progress) -> None:
        done(progress.bytes_read, progress.total_bytes, f"{progress.stage}, {human(progress.events, 'count')} events so far")

    tokens = _DONE.set(done), WATCHED.set(read)
    try:
        yield
    finally:
        _DONE.reset(tokens[0])
        WATCHED.reset(tokens[1])


def _ranks_done(done: int, total: int) -> None:
    _DONE.get()(done, total, f"{human(done, 'count')} of {human(total, 'count')} recordings")


class Recordings:
    """The runs of one logdir, by the names of its listing. Several threads may ask; recordings are read one after another.

    device: limits used where a question names none. live: address of the page that shows the same logdir to people, "" where none does.
    """

    def __init__(self, logdir: str, device: str = "", live: str = "") -> None:
        self._logdir, self._device, self._live = logdir, device, live_address(live).partition("#")[0]
        self._lock = RLock()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._captures: OrderedDict[Recording, Capture] = OrderedDict()

    def run(self, name: str) -> Run:
        """Returns a run by its name, "" for the only or first one. NotFound where there is none."""
        with self._lock:
            if name not in self._runs:
                self._runs[name] = open_run(self._logdir, run=name, device=self._device)[0]
                while len(self._runs) > KEPT:
                    self._runs.popitem(last=False)
            return self._runs[name]

    def _shown(self, run: Run, worker: str) -> Recording:
        """Returns the latest recording of a worker, of the first one where none is named, a trace before others."""
        if worker and worker not in run.workers:
            raise NotFound(f"no worker {worker[:80]!r} in this run", hint=f"there is: {', '.join(run.workers[:8])}", field="worker")
        every = [r for r in run.recordings if not worker or r.worker == worker]
        traces = [r for r in every if r.kind == "kineto"] or every
        return [r for r in traces if r.worker == traces[0].worker][-1]

    def capture(self, run: str, worker: str) -> Capture:
        """Returns an opened recording."""
        with self._lock:
            found = self.run(run)
            recording = self._shown(found, worker)
            if recording not in self._captures:
                self._captures[recording] = found.open(recording)
                while len(self._captures) > KEPT:
                    self._captures.popitem(last=False)
            return self._captures[recording]

    def report(self, name: str, run: str, worker: str, raw: Mapping[str, str]) -> Report | UnavailableReport:
        """Returns a report; a field that would name a file is refused."""
        item, raw = get(name), {k: text for k, v in raw.items() if (text := as_text(v)) != ""}
        for field in item.query.LOCAL:
            if field in raw:
                raise BadQuery(f"{field} names a file, which this server does not read", hint="leave it out", field=field)
        if any(mark in raw.get("device_limits", "") for mark in "/\\"):
            raise BadQuery("device_limits is a key here, as H100_SXM", hint="leave it out for the recorded device", field="device_limits")
        with self._lock:
            _DONE.get()(0, 1, "reading the recording")  # nobody may wait any more
            if item.scope == "capture":
                return self.capture(run, worker).analyze(name, **raw)
            if item.scope == "none" and not run and not worker:
                return answer(AnalysisRequest(name, raw))
            found = self.run(run)
            return answer(AnalysisRequest(name, raw, self._shown(found, worker), found.name, progress=_ranks_done), found.source)

    # -- questions ----------------------------------------------------------------------------------------------------

    def list_runs(self) -> Plain:
        """Returns the runs of the logdir with their workers."""
        options = options_for(device=self._device)
        runs = {"": self.run("").recordings} if is_file(self._logdir, options) else listing_of(self._logdir, options).runs
        out = []
        for name, recordings in [*runs.items()][:MOST_ROWS]:
            workers, kinds = list(dict.fromkeys(r.worker for r in recordings)), sorted({r.kind for r in recordings})
            out.append({"run": name, "workers": workers[:ROWS], "worker_count": len(workers), "kinds": kinds})
        return cut({"runs": out, "total": len(runs), "truncated": len(out) < len(runs)}, USUAL, "runs")

    def list_analyses(self, run: str = "", worker: str = "") -> Plain:
        """Returns every analysis with its question, whether the recording has data for it, its tables and the options it takes."""
        capture, count = self.capture(run, worker), len(self.run(run).workers)
        out = []
        for item in registry().values():
            missing = availability(item, capture, count)
            one: Plain = {"name": item.name, "title": item.title, "question": item.question, "available": missing is None}
            if missing is None:
                one |= {"tables": list(item.tables), "options": {f.name: list(f.choices) or docs.values(f) for f in item.fields if f.doc}}
            else:
                one |= {"because": missing.because, "record": missing.record_it_with}
            out.append(one)
        return cut({"analyses": out, "total": len(out)}, USUAL, "analyses")

    def analyze(
        self, name: str, run: str = "", worker: str = "", steps: str = "", options: Mapping[str, str] | None = None, table: str = "",
        columns: Sequence[str] = (), where: Mapping[str, str] | None = None, sort: str = "", limit: int = ROWS, most: int = USUAL,
    ) -> Plain:  # fmt: skip
        """Returns a report in few words: headline, facts, findings, and the first rows of one table.

        table: its id, the first where none is named. where: COLUMN: text that its value contains, or "ABOVE~BELOW" for a number. sort:
        a column, with `-` before it the largest first. limit: rows, at most MOST_ROWS. most: characters of the answer.
        """
        raw = {**(options or {}), **({"step": steps} if steps else {})}
        report = self.report(name, run, worker, raw)
        if isinstance(report, UnavailableReport):
            return _unavailable(report)
        tables = {s.id: s for s in report.sections if isinstance(s, TableSection)}
        if table and table not in tables:
            raise BadQuery(f"no table {table[:40]!r} in {name}", hint=f"there is: {', '.join(tables)}", field="table")
        out: Plain = {"analysis": name, "title": report.title, "selection": dict(report.selection), "headline": report.headline}
        if report.notices:
            out["notices"] = [n.text for n in report.notices]
        if not table:
            out["facts"] = {s.id: facts_of(s) for s in report.sections if isinstance(s, FactsSection)}
            found = [f for s in report.sections if isinstance(s, FindingsSection) for f in findings_of(s)]
            out |= {"findings": found[:ROWS]} if found else {}
            out |= {"figures": {s.id: s.summary for s in report.sections if isinstance(s, FigureSection) and s.summary}}
        shown = tables.get(table) or next(iter(tables.values()), None)
        if shown is not None:
            limit = max(1, min(limit, MOST_ROWS))
            out["table"] = rows_of(name, shown, columns=columns, where=where or {}, sort=sort, limit=limit)
            out["other_tables"] = {i: {"title": s.title, "rows": _count(s)} for i, s in tables.items() if s is not shown}
        return cut(out, min(most, MOST), "table", "rows")

    def findings(self, run: str = "", worker: str = "", top: int = 5) -> Plain:
        """Returns what to fix first, each with its saving, evidence and fix."""
        report = self.report("findings", run, worker, {})
        if isinstance(report, UnavailableReport):
            return _unavailable(report)
        every = [f for s in report.sections if isinstance(s, FindingsSection) for f in findings_of(s)]
        shown = every[: max(1, top)]
        out = {"analysis": "findings", "headline": report.headline, "findings": shown, "total": len(every)}
        return cut(out | {"truncated": len(shown) < len(every)}, USUAL, "findings")

    def compare(self, base: str, candidate: str, limit: int = ROWS) -> Plain:
        """Returns what changed from one run to another: headline, facts, and the causes."""
        with self._lock:
            report = self.run(base).analyze("compare", other=self.run(candidate))
        if isinstance(report, UnavailableReport):
            return _unavailable(report)
        tables = {s.id: s for s in report.sections if isinstance(s, TableSection)}
        out: Plain = {"analysis": "compare", "base": base, "candidate": candidate, "headline": report.headline}
        out["notices"] = [n.text for n in report.notices]
        out["facts"] = {s.id: facts_of(s) for s in report.sections if isinstance(s, FactsSection)}
        causes = tables.get("causes") or next(iter(tables.values()), None)
        out |= {"table": rows_of("compare", causes, limit=max(1, min(limit, MOST_ROWS)))} if causes is not None else {}
        return cut(out, USUAL, "table", "rows")

    def window(
        self, start_ns: int | None = None, end_ns: int | None = None, run: str = "", worker: str = "", steps: str = "", tracks: str = "",
        group_by: str = "name", limit: int = ROWS,
    ) -> Plain:  # fmt: skip
        """Returns what lies in a window of the timeline, added up: times since the start of the recording, ns; of the steps where they
        are open. tracks: paths with `;` between them, "" for all. group_by: name, category or track.
        """
        if start_ns is not None and end_ns is not None and end_ns <= start_ns:
            raise BadQuery("the window ends before it begins", hint="give end_ns after start_ns", field="end_ns")
        edges = {name: str(value) for name, value in (("start_ns", start_ns), ("end_ns", end_ns)) if value is not None}
        options = {**edges, "tracks": tracks, "group_by": group_by}
        return self.analyze("timeline_selection", run, worker, steps, options, limit=limit)

    def link(self, name: str, run: str = "", worker: str = "", steps: str = "", options: Mapping[str, str] | None = None) -> Plain:
        """Returns where a person sees the same: the address of the page, a link as Markdown, a command and a line of Python."""
        report = self.report(name, run, worker, {**(options or {}), **({"step": steps} if steps else {})})
        raw = {k: as_text(v) for k, v in (options or {}).items() if v}
        where = {"run": run, "worker": worker, "step": steps, "device": raw.pop("device_limits", self._device)}
        behind = view_hash(name, where, raw)
        headline = report.headline if isinstance(report, Report) else report.because
        lead = headline.replace("**", "").replace("`", "").replace("[", "(").replace("]", ")")
        out: Plain = {"analysis": name, "headline": headline, "behind": behind}
        if self._live:
            out |= {"address": self._live + behind, "markdown": f"[{report.title}: {lead}]({self._live}{behind})"}
        else:
            out["note"] = "put `behind` after the address of TensorBoard or of `tb-sol serve`; `tb-sol mcp --live ADDRESS` writes it whole"
        return out | {"command": command_of(name, where, raw), "python": python_of(name, where, raw)}

    def recommend_recording(self, question: str, run: str = "", worker: str = "") -> Plain:
        """Returns the analyses that answer a question, and what to record for those that lack data."""
        words = {w for w in _words(question) if len(w) >= WORDS and w not in COMMON}
        scored = [(3 * len(words & _words(f"{i.name} {i.title}")) + len(words & _words(i.question)), i) for i in registry().values()]
        scored.sort(key=lambda one: -one[0])
        capture, count = self.capture(run, worker), len(self.run(run).workers)
        out = []
        for hits, item in scored[:5]:
            missing = availability(item, capture, count)
            there: Plain = {"available": True} if missing is None else {"available": False, "because": missing.because}
            lacking = {"record": missing.record_it_with, "argument": missing.argument} if missing is not None else {}
            out += [{"analysis": item.name, "question": item.question, **there, **lacking}] if hits else []
        return {"question": question[:LONGEST], "analyses": out}

    def page(self, run: str, name: str) -> str:
        """Returns a page as Markdown."""
        return report_markdown(self.report(name, run, "", {}))


def about(name: str) -> str:
    """Returns what an analysis is, as Markdown: its question, parameters, numbers and columns. NotFound where there is none."""
    return docs.page(get(name))


def explain(metric: str) -> Plain:
    """Returns the definitions of a number: of every fact and column with that name or label. NotFound where there is none."""
    wanted = metric.strip().lower()
    every = [one for item in registry().values() for one in _definitions(item)]
    out = [one for one in every if wanted in (one["name"].lower(), one["label"].lower())]
    if not out:
        near = ", ".join(sorted({one["name"] for one in every if wanted and wanted in one["name"].lower()})[:12])
        raise NotFound(f"no number is called {metric[:60]!r}", hint=f"there is: {near}" if near else "see list_analyses", field="metric")
    return cut({"metric": metric, "definitions": out, "total": len(out)}, USUAL, "definitions")


def _unavailable(report: UnavailableReport) -> Plain:
    return {"analysis": report.analysis, "available": False, "because": report.because, "record": report.record_it_with}


def _definitions(item: Analysis) -> list[dict[str, str]]:
    places: list[tuple[str, Sequence[Fact | Column]]] = [("facts", item.facts)]
    places += [(f"table {table}", columns) for table, columns in item.tables.items()]
    return [
        {"analysis": item.name, "where": where, "name": one.name, "label": one.label, "unit": one.unit, "meaning": one.doc}
        for where, numbers in places
        for one in numbers
    ]


# -- parts of a report -------------------------------------------------------------------------------------------------


def facts_of(section: FactsSection) -> Plain:
    """Returns the facts of a section: value, the same as a person reads it, unit, and how sure it is."""
    out: Plain = {}
    for name, value in section.values.items():
        mark = section.marks.get(name)
        one = amount(value, section.units.get(name, "")) | {"label": section.labels.get(name, name)}
        out[name] = one | ({"mark": mark.state, "why": mark.why} if mark is not None else {})
    return out


def findings_of(section: FindingsSection) -> list[Plain]:
    """Returns findings with their savings."""
    memory = section.saves == "memory"
    out = []
    for one in section.findings:
        saving = amount(one.saving_bytes if memory else one.saving_ns, "B" if memory else "ns")
        out.append({"title": one.title, "saving": saving, "share_of_step": amount(one.share, "ratio"), "evidence": one.evidence,
                    "fix": one.fix, "proven": not one.candidate})  # fmt: skip
        if one.removed_ns is not None:
            takes = amount(one.removed_ns, "ns")
            out[-1] |= {"basis": "replay of all dependencies", "takes": takes, "hidden_behind_other_work": one.hidden}
        elif not memory and one.saving_ns is not None:
            out[-1] |= {"basis": "at most"}
    return out


def amount(value: object, unit: str) -> Plain:
    """Returns a number exactly, and with its unit as a person reads it; texts and flags as they are, None as unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return {"value": value, "text": "unknown" if value is None else str(value)}
    return {"value": value, "text": human(value, unit), "unit": unit}


def rows_of(
    analysis: str, section: TableSection, *, columns: Sequence[str] = (), where: Mapping[str, str] | None = None, sort: str = "",
    limit: int = ROWS,
) -> Plain:  # fmt: skip
    """Returns rows of a table: columns with their units, rows with exact values and, of the first number, the share of the whole."""
    known = {c.name: c for c in section.columns}
    for name in (*columns, *(where or {}), *([sort.removeprefix("-")] if sort else [])):
        if name not in known:
            raise BadQuery(f"no column {name[:40]!r} in table {section.id}", hint=f"there is: {', '.join(known)}", field="columns")
    rows = TableRows(section)
    order = Sort(sort.removeprefix("-"), sort.startswith("-")) if sort else None
    keep, ranges = _filters(where or {}, section)
    chosen = Choice(order, "", keep, ranges, base="a")
    places = rows.rows(chosen)[: 0 if any(not values for _, values in keep) else None]  # a text that no value contains
    shown = [known[c] for c in columns] or sorted(section.columns, key=lambda c: c.rank)[:COLUMNS]
    first = places[:limit].tolist()
    names = [c.name for c in shown]
    out: Plain = {
        "analysis": analysis, "table": section.id, "title": section.title,
        "columns": [{"name": c.name, "label": c.label, "unit": c.unit} for c in shown],
        "rows": [[_cell(section.data[name][at]) for name in names] for at in first],
        "as_read": [[_read(section.data[c.name][at], c) for c in shown if c.unit] for at in first[:3]],
        "total_rows": _count(section), "passing_rows": len(places), "truncated": len(first) < len(places),
    }  # fmt: skip
    if out["truncated"]:
        out["more"] = f"ask again with a larger limit (at most {MOST_ROWS}), a filter in where, or another sort"
    share = {name: _share(section, name, first) for name in (rows.additive if not section.tree else ()) if name in names}
    return out | {"share_of_whole": {name: value for name, value in share.items() if value is not None}}


def _filters(
    where: Mapping[str, str], section: TableSection
) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[tuple[str, Bounds], ...]]:
    """Returns values to keep and bounds of numbers. A text keeps the values that contain it."""
    keep, ranges = [], []
    for name, text in where.items():
        low, tilde, high = text.partition("~")
        if tilde:
            try:
                ranges.append((name, Bounds(float(low) if low else None, float(high) if high else None)))
            except ValueError:
                raise BadQuery(f"no numbers in {text[:40]!r}", hint="give ABOVE~BELOW", field="where") from None
        else:
            values = dict.fromkeys(str(v) for v in section.data[name] if v is not None and text.lower() in str(v).lower())
            keep.append((name, tuple(values)))
    return tuple(keep), tuple(ranges)


def _share(section: TableSection, name: str, rows: Sequence[int]) -> float | None:
    """Returns the sum of a column over some rows as a share of that over all; None where not all are known numbers."""
    values = section.data[name]
    every = [v for v in values if isinstance(v, int | float)]
    whole = section.total.get(name) if section.total else sum(every)
    some = [v for v in (values[at] for at in rows) if isinstance(v, int | float)]
    return round(sum(some) / whole, 4) if isinstance(whole, int | float) and whole > 0 else None


def _cell(value: object) -> object:
    return f"{value[:LONGEST]}…" if isinstance(value, str) and len(value) > LONGEST else value


def _read(value: object, column: Column) -> str:
    return f"{column.name} = {amount(value, column.unit)['text']}"


def _count(section: TableSection) -> int:
    return row_count(section) + section.truncated


def _words(text: str) -> set[str]:
    return set("".join(c.lower() if c.isalnum() else " " for c in text).split())


def cut(out: Plain, most: int, *path: str) -> Plain:
    """Returns an answer of at most `most` characters of JSON: of the list at `path` so many from the first on; then says so."""
    if len(_text(out)) <= most:
        return out
    holder: Any = out
    for name in path[:-1]:
        holder = holder.get(name, {})
    items = holder.get(path[-1])
    while isinstance(items, list) and len(items) > 1 and len(_text(out)) > most:
        items = holder[path[-1]] = items[: len(items) // 2]
        holder["truncated"] = True
        holder["more"] = f"cut to {most:,} characters: choose fewer columns, a filter, or a part by its name"
    for name in ("figures", "facts", "other_tables"):
        if len(_text(out)) > most and name in out:
            out[name] = "left out: the answer would be too long; ask for one table by its id"
    return out


def _text(out: Plain) -> str:
    return json.dumps(out, ensure_ascii=False, default=str, indent=2)  # as the SDK sends it

