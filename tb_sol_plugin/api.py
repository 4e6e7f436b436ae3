"""Offers the calls of a notebook: open a path, request a report, get pandas and Plotly objects.

    import tb_sol_plugin as sol

    run = sol.open("logs/")                                   # logdir, run directory, file, or fsspec URL
    report = run.captures[0].analyze("kernels", group_by="name")
    report.table("kernels"), report.facts["union_ns"], report.findings
    run.analyze("memcpy_ranks").table("directions")           # over all workers of the run, one open at a time
    sol.compare("logs/before", "logs/after").table("causes")  # what changed from one run to another
    sol.analyze("memory_plan", preset="llama-7b", tp=2, pp=2).table("stages")   # an analysis that needs no recording

Needs neither TensorBoard nor a server. Files are read in this process and kept in the cache for the next time.
"""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Mapping

from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.model.answer import Run, answer_query
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import as_text
from tb_sol_plugin.model.registry import AnalysisInfo, described
from tb_sol_plugin.model.report import IN_NOTEBOOKS, Report, UnavailableReport


def open(
    path: str,
    *,
    run: str = "",
    cache: bool = True,
    fs_options: Mapping[str, object] | None = None,
    device: str = "",
    capture: str = "",
) -> Run:
    """Returns the run at `path`: a logdir, a run directory, a trace file, or an fsspec URL of any of these.

    A logdir with several runs gives the one named by `run`, else the first in natural order, with a warning that names
    the others. device: limits used where a query names none, a key of the table (`H100_SXM@1410MHz`) or the path of a device
    file. capture: a recording of the capture of the graphs that the traces launch, or a folder of such, in place of those beside them.
    Raises BadInput for a path without a recording and NotFound for a run that is not there.
    """
    from tb_sol_plugin.store.open import open_run

    found, every = open_run(str(path), run=run, cache=cache, fs_options=fs_options, device=device, capture=str(capture))
    if len(every) > 1 and not run:
        rest = ", ".join(every[1:6]) + (", …" if len(every) > 6 else "")
        warnings.warn(f"{len(every)} runs here; opened {found.name!r}, choose another with run=: {rest}", stacklevel=2)
    return found


def open_capture(
    path: str, *, cache: bool = True, fs_options: Mapping[str, object] | None = None, device: str = "", capture: str = ""
) -> Capture:
    """Returns the one recording at `path`; `device` and `capture` as in `open`. BadInput if it cannot be read, or if `path` is a
    directory with more than one.
    """
    from tb_sol_plugin.store.open import open_run

    found, every = open_run(str(path), cache=cache, fs_options=fs_options, device=device, capture=str(capture))
    if len(every) > 1 or len(found.recordings) != 1:
        raise BadInput("more than one recording here", hint="name one file, or use open()", file=found.name)
    return found.captures[0]


def analyze(name: str, **query: object) -> Report | UnavailableReport:
    """Returns the Report of an analysis that needs no recording; query fields as keywords, None for what is left open.

    BadQuery where the analysis needs a recording (`open(path).analyze(name)`), and on a wrong field; NotFound on a wrong name.
    """
    return answer_query(name, {k: as_text(v) for k, v in query.items() if v is not None})


def compare(a: Run | str, b: Run | str, **query: str) -> Report | UnavailableReport:
    """Returns what changed from run `a` to run `b`: the Report of the analysis `compare`; its fields as keywords.

    A run is one that was opened, or the path of a run directory, a file or a URL of these; BadInput where none is there.
    """
    return (open(a) if isinstance(a, str) else a).analyze("compare", other=b, **query)


def _show(report: Report | UnavailableReport) -> str:
    from tb_sol_plugin.web.html_file import report_frame

    return report_frame(report)


def _as_markdown(report: Report | UnavailableReport) -> str:
    from tb_sol_plugin.cli.markdown import report_markdown

    return report_markdown(report)


def _as_text(report: Report | UnavailableReport) -> str:
    lead = report.headline if isinstance(report, Report) else f"not available: {report.because} ({report.record_it_with})"
    return f"{report.title}: {lead}".replace("**", "").replace("`", "")


IN_NOTEBOOKS.update({"text/html": _show, "text/markdown": _as_markdown, "text/plain": _as_text})


def save_html(
    what: Run | Capture | str, path: str, *, pages: str = "all", steps: str = "", with_paths: bool = False, live: str = ""
) -> None:
    """Writes pages of a recording as one HTML file at `path`, which opens by a double click, without a server or network.

    what: a recording, a run (whose first recording is shown, with the pages over all its ranks), or the path of one. pages: names of
    analyses, each with query fields where it is to open with others, as `overview,kernels?group_by=name`; `all` that it has data for.
    steps: one or a range, as `12` or `12-15`. with_paths: keep paths, host and user names, which are left out otherwise. live: address of
    the page that shows the same, for readers who may open it.
    Raises NotFound for a name that is no analysis, BadQuery for a field that does not fit.
    """
    from tb_sol_plugin.web.html_file import html_file

    run = open(what) if isinstance(what, str) else what
    if isinstance(run, Run):
        ranks = lambda name, raw: run.analyze(name, **raw)
        shown, workers = run.first, len(run.workers)
        made = html_file(shown, pages.split(","), step=steps, with_paths=with_paths, live=live, workers=workers, ranks=ranks)
    else:
        made = html_file(run, pages.split(","), step=steps, with_paths=with_paths, live=live)
    with builtins.open(path, "wb") as file:
        file.write(made)


def analyses() -> dict[str, AnalysisInfo]:
    """Returns every analysis by name: title, question, needs, query fields, section ids, columns."""
    return described()
