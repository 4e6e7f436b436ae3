"""Runs the command line: `tb-sol analyze | report | check | export | serve | mcp | doctor`.

Answers go to stdout, complaints to stderr as one line. Exit status: 0 answered, 1 bad input, 2 bad usage, 3 the
recording lacks what the analysis needs; of `check` also 4 regression, 5 inconclusive.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tb_sol_plugin.cli.export import export, export_flags
from tb_sol_plugin.cli.files import replace
from tb_sol_plugin.cli.index import EXECUTOR, index, index_flags
from tb_sol_plugin.errors import BadInput, BadQuery, NotFound, SolError, one_line
from tb_sol_plugin.process import claim, end, import_libraries, keep_loaded
from tb_sol_plugin.units import human
from tb_sol_plugin.version import __version__

if TYPE_CHECKING:
    from tb_sol_plugin.cli.kept import Printed
    from tb_sol_plugin.model.answer import Run
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.recordings import Recording
    from tb_sol_plugin.model.registry import Analysis


COMMANDS = {
    "analyze": "one report of a recording, as JSON, CSV or text",
    "report": "the whole story of a recording on one page of the terminal",
    "check": "whether a run got slower than another one, and why: for continuous integration",
    "export": "a recording in the form of another tool",
    "serve": "the page of the SOL tab without TensorBoard",
    "index": "read all ranks of the runs of a logdir, so that pages over ranks open at once; on a Dask cluster where one is named",
    "mcp": "answers agents about a logdir, by the Model Context Protocol: over standard input and output, or HTTP",
    "doctor": "what is installed, what was found in a logdir, what was not taken and why",
}
OWN_FLAGS = (
    "run", "worker", "span", "capture", "format", "section", "rows", "no_cache", "path", "command", "name", "unit", "against",
    "against_worker",
)  # fmt: skip
"""Names that a query field may not have: they mean the same for every analysis."""
MEMCPY = "memcpy"
"""The analysis whose text begins with a summary of its own."""
DEVICE = "device limits to measure against: a key as H100_SXM, H100_SXM@1410MHz or H100_SXM+sparse, or a device file (default: as recorded)"


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line, exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    warnings.filterwarnings("ignore", category=UserWarning, module="tb_sol_plugin")
    if arguments is None:
        claim()
    try:
        return _dispatch(given)
    except SolError as error:
        print(f"tb-sol: {one_line(error.line())}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("tb-sol: interrupted", file=sys.stderr)
        return 130
    finally:
        if arguments is None:
            keep_loaded()  # Python looks for garbage as it ends, a third of a second long: what goes with the process needs none


def run() -> NoReturn:
    """Runs the command that this process was started with, and ends the process with its exit status."""
    end(main())


def _dispatch(given: list[str]) -> int:
    if given[:1] == ["analyze"]:
        return _analyze(given[1:])
    if given[:1] == ["check"]:
        return _check(given[1:])
    if given[:1] == ["--help-all"]:
        return _help_all()
    options = _parser()[0].parse_args(given)
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "report": _report, "export": _export, "serve": _serve, "index": index, "mcp": _mcp, "doctor": _doctor,
    }  # fmt: skip
    return commands[options.command](options)


def _parser() -> tuple[Parser, dict[str, Parser]]:
    """Returns the parser, and those of the commands by name. Two commands read what stands behind them themselves."""
    parser = Parser("tb-sol", description="How close a PyTorch job runs to the speed of light of its hardware.")
    parser.add_argument("--version", action="version", version=f"tb-sol {__version__}")
    parser.add_argument("--help-all", action="store_true", help="every command, analysis, column and exit status on one page")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    made = {name: commands.add_parser(name, help=COMMANDS[name], description=COMMANDS[name]) for name in COMMANDS}
    for name, flags in (
        ("report", _report_flags), ("export", _export_flags), ("serve", _serve_flags), ("index", index_flags), ("mcp", _mcp_flags),
        ("doctor", _doctor_flags),
    ):  # fmt: skip
        flags(made[name])
    return parser, made


def _help_all() -> int:
    """Prints everything that there is to ask, and how."""
    from tb_sol_plugin.cli import check
    from tb_sol_plugin.cli.help_all import help_all

    made = _parser()[1]
    check.flags(made["check"])
    made["analyze"].add_argument("name", metavar="NAME", help="an analysis, see below")
    made["analyze"].add_argument("path", metavar="PATH", help="logdir, run directory, trace file, or fsspec URL of one")
    _which_flags(made["analyze"])
    _form_flags(made["analyze"])
    _write(help_all(made))
    return 0


# -- analyze ---------------------------------------------------------------------------------------------------------


def listed() -> dict[str, str]:
    """Returns title and question of each analysis by name, as they stand in the generated OpenAPI: help needs none of them imported."""
    paths = json.loads((Path(__file__).parents[1] / "web" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    return {path.rpartition("/")[2]: one["get"]["summary"] for path, one in paths.items() if path.rpartition("/")[0].endswith("/analysis")}


def _analyze_help(given: list[str]) -> None:
    """Prints the help of `analyze` with a line per analysis, or that the name is missing; raises SystemExit."""
    lines = "\n".join(f"  {name:<18} {text}" for name, text in listed().items())
    parser = Parser(
        "tb-sol analyze", usage="tb-sol analyze NAME PATH [options]", description="Prints one report of a recording. "
        "tb-sol analyze NAME --help lists the options of an analysis.", epilog=f"names:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", help="an analysis, see below")
    parser.parse_args(given)


def _analyze(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        _analyze_help(given[:1])
    from tb_sol_plugin.cli.kept import printed

    place = printed(given)
    before = place.load() if place is not None else None
    if before is not None:
        _write(before)
        return 0
    import_libraries()
    from tb_sol_plugin.model.registry import get, registry

    try:
        item = get(given[0])
    except NotFound:
        overview = Parser("tb-sol analyze", usage="tb-sol analyze NAME PATH [options]")
        overview.add_argument("name", choices=list(registry()), metavar="NAME")
        overview.parse_args(given[:1])
        raise
    parser = Parser(f"tb-sol analyze {item.name}", description=f"{item.title}: {item.question}")
    what = "logdir, run directory, trace file, or fsspec URL of one"
    if item.without_recording is None:
        parser.add_argument("path", metavar="PATH", help=what)
    else:
        parser.add_argument("path", metavar="PATH", nargs="?", default="", help=f"{what}: it fills in what is left open (default: none)")
    _which_flags(parser)
    if item.compares:
        text = "run whose numbers stand beside, as a baseline: a name, or the path of a run directory or file"
        parser.add_argument("--against", default="", metavar="RUN", help=text)
        parser.add_argument("--against-worker", default="", metavar="WORKER", help="its worker, by name or rank (default: the same one)")
    _form_flags(parser)
    if item.name == MEMCPY:
        from tb_sol_plugin.cli.text import add_flags

        add_flags(parser)
    for field in item.fields:
        flags = list(dict.fromkeys(f"--{field.name}".replace("_", mark) for mark in ("-", "_")))
        text = field.doc.replace("%", "%%") + (f" (default: {field.default})" if field.default not in ("", "None") else "")
        if field.type == "flag":
            parser.add_argument(*flags, dest=f"q.{field.name}", nargs="?", const="true", metavar="true|false", help=text)
        else:
            values = field.choices if field.type == "choice" else None
            parser.add_argument(*flags, dest=f"q.{field.name}", choices=values, metavar=None if values else "VALUE", help=text)
    options = parser.parse_args(given[1:])
    raw = {name[2:]: str(value) for name, value in vars(options).items() if name.startswith("q.") and value is not None}
    return _answer(item.name, raw, options, place)


def _answer(name: str, raw: dict[str, str], options: argparse.Namespace, place: Printed | None = None) -> int:
    """Prints a report. place: where it is kept for the next time."""
    from tb_sol_plugin.model.answer import AnalysisRequest, collect
    from tb_sol_plugin.model.query import parse
    from tb_sol_plugin.model.recordings import OtherNames
    from tb_sol_plugin.model.registry import get
    from tb_sol_plugin.model.report import UnavailableReport, encode
    from tb_sol_plugin.store.sidecars import split_choice

    item = get(name)
    parse(item.query, raw)
    options.device = raw.pop("device_limits") if options.path and split_choice(raw.get("device_limits", ""))[0] else ""
    if options.path:
        run, shown = which_one(options)
        if item.reduce is None:
            _note_which(run, shown, options)
        progress = _note_progress if sys.stderr.isatty() else lambda done, total: None
        against = item.compares and (options.against or options.against_worker)
        base = OtherNames(options.against, options.against_worker) if against else None
        inputs = collect(AnalysisRequest(name, raw, shown, run.name, base=base, progress=progress), run.source)
    else:
        inputs = collect(AnalysisRequest(name, raw))
    if inputs.capture is not None:
        _note_devices(inputs.capture)
    report = inputs.report()
    lacking = isinstance(report, UnavailableReport)
    if options.format == "json":
        text = encode(report).decode() + "\n"
        _write(text)
        if place is not None and not lacking and _kept(item, inputs.capture):
            place.save(text)
    elif isinstance(report, UnavailableReport):
        print(f"tb-sol: {one_line(f'{report.title} is not available: {report.because} ({report.record_it_with})')}", file=sys.stderr)
    elif options.format == "file":
        _write(report.file(options.section).text + "\n")
    elif options.format == "csv":
        from tb_sol_plugin.web.wire import csv_of

        _write(csv_of(report, options.section))
    else:
        from tb_sol_plugin.cli.text import console, print_report

        if name == MEMCPY and not options.section and inputs.capture is not None:
            from tb_sol_plugin.cli.text import NOTES, summary

            _write(f"{summary(inputs.capture, inputs.request.query, options.unit)}\n\n{NOTES[options.unit]}")
        print_report(console(), report, rows=options.rows, section=options.section)
    return 3 if lacking else 0


def _kept(item: Analysis, capture: Capture | None) -> bool:
    """Whether a report is kept as it was printed: one of a single recording, by an analysis of this package, with nothing on stderr."""
    ours = item.function.__module__.partition(".")[0] == __name__.partition(".")[0]
    return ours and item.scope == "capture" and capture is not None and not capture.devices.notes()


def _note_progress(done: int, total: int) -> None:
    """Shows on a terminal, in one line that goes away, how many workers of a run have been read."""
    text = f"tb-sol: reading worker {human(done + 1, 'count')} of {human(total, 'count')}" if done < total else ""
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def open_one(options: argparse.Namespace) -> Capture:
    """Returns the capture that PATH, --run, --worker and --span name; says on stderr what was left out."""
    run, shown = which_one(options)
    _note_which(run, shown, options)
    capture = run.open(shown)
    _note_devices(capture)
    return capture


def _note_which(run: Run, shown: Recording, options: argparse.Namespace) -> None:
    """Say which of several recordings is shown, where nobody named it."""
    if len(run.recordings) > 1 and not (options.worker and options.span):
        which = one_line(f"worker {shown.worker}, span {shown.span}")
        print(f"tb-sol: {len(run.recordings)} recordings in this run, showing {which}", file=sys.stderr)


def _note_devices(capture: Capture) -> None:
    """Say what is wrong in the device files that hold for a capture."""
    for note in capture.devices.notes():
        print(f"tb-sol: {one_line(note)}", file=sys.stderr)


def which_one(options: argparse.Namespace) -> tuple[Run, Recording]:
    """Returns the run and the recording that PATH, --run, --worker and --span name, unopened; says on stderr which run of several."""
    from tb_sol_plugin.store.open import open_run

    run, every = open_run(options.path, run=options.run, cache=not options.no_cache, device=options.device, capture=options.capture)
    if len(every) > 1 and not options.run:
        print(f"tb-sol: {len(every)} runs here, showing {one_line(run.name)}; choose another with --run", file=sys.stderr)
    worker = options.worker or _first_worker(run)
    spans = [r for r in run.recordings if r.worker == worker]
    if not spans:
        raise NotFound(f"no worker {worker!r} in this run", hint=f"there is: {', '.join(run.workers[:8])}", field="worker")
    shown = next((r for r in spans if r.span == options.span), None) if options.span else _latest(run, spans)
    if shown is None:
        raise NotFound(f"no span {options.span!r}", hint=f"there is: {', '.join(run.spans(worker)[:8])}", field="span")
    return run, shown


def _latest(run: Run, spans: list[Recording]) -> Recording:
    """Returns the last of a worker's recordings, memory that is shown with another one only where there is nothing else."""
    from tb_sol_plugin.store.join import shown_with_another

    attached = shown_with_another(run.recordings)
    return next((r for r in reversed(spans) if r not in attached or r.kind == "sol_capture"), spans[-1])


def _first_worker(run: Run) -> str:
    """Returns the worker that the page shows first: one whose recordings are shown with those of another gives way to that one."""
    from tb_sol_plugin.store.join import shown_with_another

    attached = shown_with_another(run.recordings)
    apart = [r.worker for r in run.recordings if r not in attached]
    return next((w for w in run.workers if w in apart), run.workers[0])


def _form_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("json", "csv", "text", "file"), default="json")
    parser.add_argument("--section", default="", metavar="ID", help="with csv or text: one section only; with file: which one")
    parser.add_argument("--rows", type=int, default=30, metavar="N", help="with text: rows shown of a table (0: all)")


def _which_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", default="", help="name of a run, where PATH holds several (default: the first)")
    parser.add_argument("--worker", default="", help="name of a worker (default: the first, as on the page)")
    parser.add_argument("--span", default="", help="name of a span (default: the latest, as on the page)")
    text = "recording of graph captures or of an eager run, or a folder: what graph launches replay (default: captures beside a trace)"
    parser.add_argument("--capture", default="", metavar="FILE", help=text)
    parser.add_argument("--no-cache", action="store_true", help="neither use nor write the cache of parsed recordings")


# -- the other commands ----------------------------------------------------------------------------------------------


def _check(given: list[str]) -> int:
    from tb_sol_plugin.cli import check

    parser = Parser("tb-sol check", description=COMMANDS["check"])
    check.flags(parser)
    return check.run(parser.parse_args(given), which_one)


def _report_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="logdir, run directory, trace file, or fsspec URL of one")
    _which_flags(parser)
    parser.add_argument("--rows", type=int, default=8, metavar="N", help="rows shown of each table")
    parser.add_argument("--device", default="", metavar="KEY|PATH", help=DEVICE)
    parser.add_argument("--markdown", action="store_true", help="as Markdown, for a pull request or an issue")
    page = parser.add_argument_group("as a file")
    page.add_argument("--html", default="", metavar="FILE", help="write the pages as one HTML file, which opens without a server")
    text = "pages of the file, as overview,roofline,kernels?group_by=name (default: all that the recording has data for)"
    page.add_argument("--pages", default="all", metavar="NAME,NAME", help=text)
    page.add_argument("--steps", default="", metavar="N|N-M", help="with --html: one step or a range (default: the whole recording)")
    text = "with --html: address of the page that shows the same, for readers who may open it; it is kept as it is (default: none)"
    page.add_argument("--live", default="", metavar="ADDRESS", help=text)
    page.add_argument("--with-paths", action="store_true", help="with --html: keep paths, host and user names (default: left out)")


def _report(options: argparse.Namespace) -> int:
    from tb_sol_plugin.cli.report import print_story
    from tb_sol_plugin.cli.text import console

    if options.html:
        return _html(options)
    if options.markdown:
        from tb_sol_plugin.cli.markdown import story_markdown

        _write(story_markdown(open_one(options), command=f"tb-sol report {os.path.basename(options.path.rstrip('/'))} --markdown"))
        return 0
    if options.pages != "all" or options.steps or options.with_paths or options.live:
        raise BadQuery("--pages, --steps, --with-paths and --live belong to --html", hint="add --html FILE")
    print_story(console(), open_one(options), rows=options.rows)
    return 0


def _html(options: argparse.Namespace) -> int:
    """Writes the pages of a recording as one HTML file."""
    from tb_sol_plugin.model.answer import AnalysisRequest, answer
    from tb_sol_plugin.web.html_file import html_file

    run, shown = which_one(options)
    _note_which(run, shown, options)
    capture = run.open(shown)
    _note_devices(capture)
    made = html_file(
        capture, options.pages.split(","), step=options.steps, with_paths=options.with_paths, workers=len(run.workers),
        ranks=lambda name, raw: answer(AnalysisRequest(name, raw, shown, run.name), run.source), live=options.live,
    )  # fmt: skip
    replace(options.html, [made], field="output", hint="choose another --html")
    print(f"tb-sol: wrote {options.html}", file=sys.stderr)
    return 0


def _export_flags(parser: argparse.ArgumentParser) -> None:
    export_flags(parser)
    _which_flags(parser)
    parser.add_argument("--device", default="", metavar="KEY|PATH", help=DEVICE)


def _export(options: argparse.Namespace) -> int:
    return export(options, which_one, open_one)


_PRIVATE = ("localhost", "127.0.0.1", "::1")
"""Hosts that only this machine can reach."""


def _serve_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logdir", metavar="LOGDIR", help="directory or fsspec URL; several as name:dir,name2:dir2 with --spec")
    parser.add_argument("--spec", action="store_true", help="LOGDIR is a list like TensorBoard's --logdir_spec")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=6007, help="0 takes a free one")
    parser.add_argument("--device", default="", metavar="KEY|PATH", help=DEVICE)
    parser.add_argument("--cache-dir", default=None, metavar="DIR", help='where parsed recordings are kept; "" keeps none')
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes that read recordings")
    share = "memory one of them may use (default: 40 %% of the machine's)"
    parser.add_argument("--memory-gb", type=float, default=0.0, metavar="GB", help=share)
    time = "time one recording may take to read (default: an hour)"
    parser.add_argument("--load-seconds", type=float, default=3600.0, metavar="S", help=time)
    parser.add_argument("--executor", default="", metavar="dask://HOST:PORT", help=EXECUTOR)
    parser.add_argument("--serve-original", choices=("auto", "on", "off"), default="auto", help="give out the recordings' own bytes")
    parser.add_argument("--hosts", default="", metavar="NAME,NAME", help="names besides localhost under which a proxy asks; * for any")


def _serve(options: argparse.Namespace) -> int:
    """Serve until interrupted or terminated. Prints the address on stdout once it listens. BadInput if it cannot listen there."""
    import logging
    import signal
    import socket

    from werkzeug.serving import WSGIRequestHandler, make_server

    import_libraries()
    from tb_sol_plugin.store.cluster import cluster
    from tb_sol_plugin.store.names import is_url, named, single
    from tb_sol_plugin.store.options import GB, StoreOptions
    from tb_sol_plugin.store.sidecars import check_choice
    from tb_sol_plugin.store.store import Store
    from tb_sol_plugin.web.mount import WebOptions, host_names
    from tb_sol_plugin.web.routes import create_app

    class Quiet(WSGIRequestHandler):
        """No line per request, and no versions in a header."""

        def version_string(self) -> str:
            return "tb-sol"

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            return

    roots = named(options.logdir) if options.spec else single(options.logdir)
    for root in roots:
        if not is_url(root.url) and not os.path.exists(root.url):
            raise BadInput("there is no such directory", hint="check the path", file=root.label)
    check_choice(options.device)
    workers = options.workers or min(2, os.cpu_count() or 1)
    if not (0 <= options.memory_gb < 1e9 and 0 <= options.load_seconds < 1e9):
        raise BadQuery("--memory-gb and --load-seconds are numbers from 0 to a billion", hint="leave them out for the defaults")
    limits = {"worker_bytes": int(options.memory_gb * GB), "load_seconds": options.load_seconds}
    elsewhere = cluster(options.executor) if options.executor else None
    settings = StoreOptions(cache_dir=options.cache_dir, workers=workers, device=options.device, **limits)
    store = Store(roots, settings, ranks_executor=elsewhere)
    open_to_all = options.host not in _PRIVATE
    web = WebOptions(serve_original=options.serve_original, bind_all=open_to_all, hosts=host_names(options.hosts))
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    try:
        server = make_server(options.host, options.port, create_app(store, web), threaded=True, request_handler=Quiet)
    except (OSError, SystemExit) as error:
        raise BadInput(f"cannot listen on {options.host}:{options.port}", hint="choose another --port, or 0 for a free one") from error
    host = socket.gethostname() if options.host in ("0.0.0.0", "::") else options.host
    print(f"http://{f'[{host}]' if ':' in host else host}:{server.port}/", flush=True)
    if open_to_all:
        print("tb-sol: anybody who reaches this machine can see these recordings", file=sys.stderr)
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what stands in temporary folders goes with the server
    try:
        store.loader.warm()  # while the browser loads the page
        server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        store.close()
    return 0


def _mcp_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logdir", metavar="LOGDIR", help="logdir, run directory, trace file, or fsspec URL of one")
    parser.add_argument("--device", default="", metavar="KEY|PATH", help=DEVICE)
    text = "answer by HTTP on a port of this machine (0: a free one) in place of standard input and output"
    parser.add_argument("--http", type=int, nargs="?", const=0, default=None, metavar="PORT", help=text)
    parser.add_argument("--live", default="", metavar="ADDRESS", help="of the page that shows LOGDIR to people, for links to it")


def _mcp(options: argparse.Namespace) -> int:
    """Answers until the standard input ends. BadInput where there is no such logdir, or the SDK is not installed."""
    from tb_sol_plugin.agent.answers import Recordings
    from tb_sol_plugin.store.open import is_file, options_for

    is_file(options.logdir, options_for(device=options.device))
    recordings = Recordings(options.logdir, options.device, options.live)
    try:
        from tb_sol_plugin.agent.server import make_server, serve_http
    except ImportError as error:
        what = f"the SDK of the Model Context Protocol is not there ({error.name})"
        raise BadInput(what, hint='pip install "tb_sol_plugin[mcp]"') from None
    if options.http is None:
        make_server(recordings).run("stdio")
    else:
        serve_http(make_server(recordings), options.http, lambda text: print(text, flush=True))
    return 0


def _doctor_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logdir", nargs="?", default="", metavar="LOGDIR", help="also look into this logdir")
    parser.add_argument("--quick", action="store_true", help="list the recordings without reading them")
    parser.add_argument("--device", default="", metavar="KEY|PATH", help=DEVICE)
    parser.add_argument("--measure", action="store_true", help="measure the limits of this machine's CPU once and keep them")
    parser.add_argument("--again", action="store_true", help="with --measure: measure anew")
    parser.add_argument("--write", default="", metavar="PATH", help="with --measure: device file to put the row into (default: your own)")
    parser.add_argument("--host", default="", metavar="NAME", help="with --measure: what to call this machine (default: its host name)")


def _doctor(options: argparse.Namespace) -> int:
    from tb_sol_plugin.cli.doctor import examine
    from tb_sol_plugin.cli.text import console

    if options.measure:
        from tb_sol_plugin.cli.doctor import run

        return run(console(), write=options.write, again=options.again, host=options.host)
    if options.again or options.write or options.host:
        raise BadQuery("--again, --write and --host belong to --measure", hint="add --measure")
    return examine(console(), options.logdir, read=not options.quick, device=options.device)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
