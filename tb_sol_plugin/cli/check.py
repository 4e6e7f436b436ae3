"""Runs `tb-sol check BASE CANDIDATE`: fails a build whose step got slower, and names the cause.

Exit status: 0 passed, 1 bad input, 2 bad usage, 3 a metric is unavailable, 4 a regression, 5 inconclusive (`--inconclusive` turns it into
0 or 4). The same input gives the same output, byte for byte.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from tb_sol_plugin.cli.check_formats import FORMATS, Link
from tb_sol_plugin.errors import BadInput, BadQuery
from tb_sol_plugin.metrics.compare.differences import Side
from tb_sol_plugin.metrics.compare.gate import Verdict, check, limit_of, wanted_of
from tb_sol_plugin.metrics.compare.samples import Samples, samples_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.redact import text as redacted

if TYPE_CHECKING:
    from tb_sol_plugin.model.answer import Run
    from tb_sol_plugin.model.recordings import Recording

Which: TypeAlias = Callable[[argparse.Namespace], "tuple[Run, Recording]"]
MOST_BASELINE: Final = 64 << 20
"""Bytes of a baseline file that are read."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A base that was stored: samples of its runs, without names of files or users."""

    tb_sol_baseline: Literal[1] = 1
    runs: tuple[Samples, ...]


def flags(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    what = "trace, run directory or logdir; several, separated by commas, are runs of one side; or a baseline file"
    parser.add_argument("base", metavar="BASE", help=what)
    parser.add_argument("candidate", metavar="CANDIDATE", nargs="?", default="", help=f"{what} (not with --save-baseline)")
    parser.add_argument("--max-regression", default="3%", metavar="LIMIT", help="change that passes, as 3%% or 5ms (default: 3%%)")
    parser.add_argument(
        "--metric", action="append", default=[], metavar="NAME[=LIMIT]",
        help="what is checked, once or several times (default: step_time): step_time, device_busy, kernel_time, exposed_communication, "
        "exposed_memcpy, idle, host_time, dataloader, launches, syncs, copied_bytes, peak_memory, operator:NAME, kernel:NAME, module:PATH, "
        "phase:PATH",
    )  # fmt: skip
    parser.add_argument("--steps", default="", metavar="RANGE", help="steps that are compared, as 12 or 12-40 (default: all complete ones)")
    parser.add_argument("--run", default="", help="name of the run, where a path holds several (default: the first)")
    parser.add_argument("--worker", default="", help="name of the worker that is compared (default: the first)")
    parser.add_argument("--min-steps", type=int, default=5, metavar="N", help="steps below which a warning says so (default: 5)")
    parser.add_argument("--inconclusive", choices=("fail", "pass"), default="", help="what an undecided metric is (default: status 5)")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text")
    parser.add_argument("--output", default="", metavar="FILE", help="write the result there too, in the format")
    parser.add_argument("--link-base", default="", metavar="URL", help="with markdown: address of a page that shows the logdir")
    parser.add_argument("--save-baseline", default="", metavar="FILE", help="store BASE there, to be checked against later")
    parser.add_argument("--no-cache", action="store_true", help="neither use nor write the cache of parsed recordings")


def run(options: argparse.Namespace, which: Which) -> int:
    """Checks, prints and returns the exit status. which: finds the run and the recording that options name."""
    base = _side(options.base, "base", options, which)
    if options.save_baseline:
        _save(options.save_baseline, base)
        steps = sum(len(r.steps) for r in base.runs)
        print(f"tb-sol: stored {len(base.runs)} run{'s' if len(base.runs) > 1 else ''} with {steps} steps in {options.save_baseline}",
              file=sys.stderr)  # fmt: skip
        return 0
    if not options.candidate:
        raise BadQuery("no CANDIDATE", hint="tb-sol check BASE CANDIDATE", field="candidate")
    candidate = _side(options.candidate, "candidate", options, which)
    wanted = wanted_of(options.metric, None if options.max_regression == "3%" else limit_of(options.max_regression, "ns"))
    found = check(base, candidate, wanted, least=options.min_steps)
    status = found.status(options.inconclusive or "inconclusive")
    link = Link(options.link_base, options.candidate if os.path.isdir(options.candidate) else "")
    text = FORMATS[options.format](found, status, link)
    sys.stdout.write(text)
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
    _on_github(found, status, link)
    return status


def _on_github(found: Verdict, status: int, link: Link) -> None:
    """Writes the summary of a job of GitHub Actions, and an annotation where the check did not pass."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if not summary or os.environ.get("GITHUB_ACTIONS") != "true":
        return
    with open(summary, "a", encoding="utf-8") as file:
        file.write(FORMATS["markdown"](found, status, link))
    if status:
        first = FORMATS["text"](found, status, link).splitlines()[0]
        escaped = first.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        print(f"::{'error' if status != 5 else 'warning'} title=tb-sol check::{escaped}", file=sys.stderr)


# -- Sides ------------------------------------------------------------------------------------------------------------


def _side(paths: str, what: str, options: argparse.Namespace, which: Which) -> Side:
    """Returns the side that some paths name; several are its runs."""
    names: list[str] = []
    runs: list[Samples] = []
    for path in filter(None, (p.strip() for p in paths.split(","))):
        stored = _stored(path)
        if stored is not None:
            runs += stored.runs
            names.append(Path(path).name.partition(".")[0])
            continue
        capture, name = _capture(path, options, which)
        runs.append(samples_of(capture, Query(step=options.steps)))
        names.append(name)
    if not runs:
        raise BadQuery(f"no path for {what.upper()}", field=what)
    name = names[0] if len(names) == 1 else f"{len(runs)} runs"
    return Side(redacted(name), runs)


def _capture(path: str, options: argparse.Namespace, which: Which) -> tuple[Capture, str]:
    """Returns the recording that is compared, and what to call it."""
    run, shown = which(argparse.Namespace(
        path=path, run=options.run, worker=options.worker, span="", no_cache=options.no_cache, device="", capture=""))  # fmt: skip
    ranks = len(run.workers)
    if ranks > 1 and not options.worker:
        print(f"tb-sol: {run.name or path}: {ranks} workers, comparing {shown.worker}; choose another with --worker", file=sys.stderr)
    return run.open(shown), Path(path.rstrip("/")).name if run.name in ("", ".") else run.name.rpartition("/")[2]


def _stored(path: str) -> Baseline | None:
    """Returns the baseline in a file; None where it is none. BadInput where it says that it is one and cannot be read."""
    try:
        with open(path, "rb") as file:
            if not file.read(32).lstrip().startswith(b'{"tb_sol_baseline"'):
                return None
            file.seek(0)
            text = file.read(MOST_BASELINE + 1)
    except (OSError, ValueError):
        return None
    if len(text) > MOST_BASELINE:
        raise BadInput(f"a baseline of more than {MOST_BASELINE >> 20} MiB", hint="store it again from fewer runs", file=Path(path).name)
    try:
        found = msgspec.json.decode(text, type=Baseline)
        _checked(found)
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        raise BadInput(f"a damaged baseline: {error}", hint="store it again with --save-baseline", file=Path(path).name) from None
    return found


def _checked(found: Baseline) -> None:
    """Raises ValueError where the numbers of a baseline do not fit together."""
    if not found.runs:
        raise ValueError("no runs")
    for one in found.runs:
        count = len(one.steps)
        if not count or any(len(v) != count for v in [*one.values.values(), *one.parts.values()]) or "step_time" not in one.values:
            raise ValueError("numbers of different lengths")
        if any(not 0 <= place < count for place in one.row_steps):
            raise ValueError("a step that is not there")
        for rows in one.groupings.values():
            size = 8 * len(rows.names) * len(one.row_steps)
            if len(rows.of) != len(rows.names) or any(len(column) != size for column in (rows.calls, rows.host, rows.device)):
                raise ValueError("rows of different lengths")


def _save(path: str, side: Side) -> None:
    """Stores a side: the settings that name a model or a file are left out."""
    runs = [msgspec.structs.replace(r, settings={n: redacted(t) for n, t in r.settings.items()}) for r in side.runs]
    text = msgspec.json.encode(Baseline(runs=tuple(runs)))
    new = f"{path}.new"
    Path(new).write_bytes(text)
    os.replace(new, path)
