"""Runs `tb-sol check BASE CANDIDATE`: fails a build whose step got slower, and names the cause.

Exit status: 0 passed, 1 bad input, 2 bad usage, 3 a metric is unavailable, 4 a regression, 5 inconclusive (`--inconclusive` turns it into
0 or 4). The same input gives the same output, byte for byte.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tb_sol_plugin.cli.check_files import Baseline, save_baseline, save_budgets, stored
from tb_sol_plugin.cli.check_formats import FORMATS, Link
from tb_sol_plugin.errors import BadQuery, NotFound, Unavailable, one_line
from tb_sol_plugin.metrics.compare.differences import Side
from tb_sol_plugin.metrics.compare.gate import FINDING, Verdict, check, check_budgets, levels_between, limit_of, noise_between, wanted_of
from tb_sol_plugin.metrics.compare.on_path import samples_with_path
from tb_sol_plugin.metrics.compare.ranks import slowest
from tb_sol_plugin.metrics.compare.samples import Samples, findings_in
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.redact import text as redacted
from tb_sol_plugin.store.reductions import recordings_by_worker

if TYPE_CHECKING:
    from tb_sol_plugin.model.answer import Run
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.recordings import Recording

Which: TypeAlias = Callable[[argparse.Namespace], "tuple[Run, Recording]"]


def flags(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    what = "trace, run directory or logdir; several, separated by commas, are runs of one side; or a file of a baseline or of budgets"
    parser.add_argument("base", metavar="BASE", help=what)
    parser.add_argument("candidate", metavar="CANDIDATE", nargs="?", default="", help=f"{what} (not with --save-baseline)")
    parser.add_argument("--max-regression", default="3%", metavar="LIMIT", help="change that passes, as 3%% or 5ms (default: 3%%)")
    parser.add_argument(
        "--metric", action="append", default=[], metavar="NAME[=LIMIT]",
        help="what is checked, once or several times (default: step_time): step_time, device_busy, kernel_time, exposed_communication, "
        "exposed_memcpy, idle, host_time, dataloader, launches, syncs, allocations, copied_bytes, peak_memory, efficiency, mfu, findings, "
        "operator:NAME, kernel:NAME, module:PATH, phase:PATH, finding:RULE",
    )  # fmt: skip
    parser.add_argument("--steps", default="", metavar="RANGE", help="steps that are compared, as 12 or 12-40 (default: all complete ones)")
    parser.add_argument("--run", default="", help="name of the run, where a path holds several (default: the first)")
    parser.add_argument("--worker", default="", help="name of the worker that is compared (default: of each step the slowest one)")
    parser.add_argument("--history", default="", metavar="DIR", help="earlier runs of the base: their noise from run to run replaces 0.5%%")
    parser.add_argument("--update", action="store_true", help="replace BASE, a baseline or budgets, by what CANDIDATE takes")
    parser.add_argument("--min-steps", type=int, default=5, metavar="N", help="steps below which a warning says so (default: 5)")
    parser.add_argument("--inconclusive", choices=("fail", "pass"), default="", help="what an undecided metric is (default: status 5)")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text")
    parser.add_argument("--output", default="", metavar="FILE", help="write the result there too, in the format")
    parser.add_argument("--link-base", default="", metavar="URL", help="with markdown: address of a page that shows the logdir")
    parser.add_argument("--save-baseline", default="", metavar="FILE", help="store BASE there, to be checked against later")
    text = "device limits of efficiency, mfu and findings: a key as H100_SXM, or a device file (default: as recorded)"
    parser.add_argument("--device", default="", metavar="KEY|PATH", help=text)
    parser.add_argument("--no-cache", action="store_true", help="neither use nor write the cache of parsed recordings")


def run(options: argparse.Namespace, which: Which) -> int:
    """Checks, prints and returns the exit status. which: finds the run and the recording that options name."""
    if options.save_baseline:
        base = _side(options.base, "base", options, which)
        save_baseline(options.save_baseline, base)
        steps = sum(len(r.steps) for r in base.runs)
        print(f"tb-sol: stored {len(base.runs)} run{'s' if len(base.runs) > 1 else ''} with {steps} steps in {options.save_baseline}",
              file=sys.stderr)  # fmt: skip
        return 0
    if not options.candidate:
        raise BadQuery("no CANDIDATE", hint="tb-sol check BASE CANDIDATE", field="candidate")
    candidate = _side(options.candidate, "candidate", options, which)
    if options.update:
        return _update(options, candidate)
    found = _verdict(options, candidate, which)
    status = found.status(options.inconclusive or "inconclusive")
    link = Link(options.link_base, options.candidate if os.path.isdir(options.candidate) else "")
    text = FORMATS[options.format](found, status, link)
    sys.stdout.write(text)
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
    _on_github(found, status, link)
    return status


def _verdict(options: argparse.Namespace, candidate: Side, which: Which) -> Verdict:
    """Returns the verdict against samples, or against the numbers of a file of budgets."""
    default = None if options.max_regression == "3%" else limit_of(options.max_regression, "ns")
    budgets = stored(options.base)
    base = None if isinstance(budgets, list) else _side(options.base, "base", options, which)
    wanted = wanted_of(options.metric or ([b.name for b in budgets] if isinstance(budgets, list) else []), default)
    history = _earlier(options.history, options, which) if options.history else None
    names = [w.name for w in wanted]
    between, notes = (noise_between(history, names), levels_between(history, names)) if history is not None else ({}, [])
    if base is not None:
        found = check(base, candidate, wanted, least=options.min_steps, between=between, history=history)
    else:
        assert isinstance(budgets, list)
        found = check_budgets(budgets, candidate, wanted, _name_of(options.base), least=options.min_steps, between=between)
    return replace(found, warnings=[*notes, *found.warnings])


def _update(options: argparse.Namespace, candidate: Side) -> int:
    """Replaces BASE by what the candidate takes: a baseline by its samples, budgets by the medians of the same metrics."""
    file = stored(options.base)
    if isinstance(file, Baseline):
        save_baseline(options.base, candidate)
    elif file is None and os.path.exists(options.base):
        raise BadQuery("--update replaces a baseline or budgets: BASE is neither", hint="name the file of one, or a new one", field="base")
    else:
        before = {b.name: b for b in file or []}
        wanted = wanted_of(options.metric or [*before])
        found = check_budgets([], candidate, wanted, _name_of(options.base), least=options.min_steps)
        lacking = next((j for j in found.metrics if j.change is None or j.change.b is None), None)
        if lacking is not None:
            raise BadQuery(f"{lacking.name}: {lacking.because}", hint="leave it out", field="metric")
        measured = {j.name: (j.change.b, j.unit) for j in found.metrics if j.change is not None and j.change.b is not None}
        save_budgets(options.base, before, measured)
    print(f"tb-sol: updated {Path(options.base).name}", file=sys.stderr)
    return 0


def _name_of(path: str) -> str:
    return Path(path).name.partition(".")[0]


def _earlier(path: str, options: argparse.Namespace, which: Which) -> Side:
    """Returns earlier runs of the base.

    path: a logdir of runs, several paths, or a baseline of several runs.
    """
    from tb_sol_plugin.store.open import open_run

    paths = [p for p in path.split(",") if p.strip()]
    names: Sequence[str] = ("",)
    if len(paths) == 1 and stored(paths[0]) is None:
        _, names = open_run(paths[0], cache=not options.no_cache)
    runs: list[Samples] = []
    for name in names:
        one = argparse.Namespace(**{**vars(options), "run": name or options.run})
        runs += _side(path, "history", one, which).runs
    return Side("history", runs)


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
        file = stored(path)
        if isinstance(file, list):
            raise BadQuery(f"{Path(path).name} has budgets, no samples", hint="give it alone, as BASE", field=what)
        if file is not None:
            runs += file.runs
            names.append(_name_of(path))
            continue
        samples, name = _samples(path, what, options, which)
        runs.append(samples)
        names.append(name)
    if not runs:
        raise BadQuery(f"no path for {what.upper()}", field=what)
    name = names[0] if len(names) == 1 else f"{len(runs)} runs"
    return Side(redacted(name), runs)


def _samples(path: str, what: str, options: argparse.Namespace, which: Which) -> tuple[Samples, str]:
    """Returns the samples of a run, of several workers those of the slowest one of each step, and its name. what: base, candidate."""
    try:
        wanted = {name: getattr(options, name) for name in ("run", "worker", "no_cache", "device")}
        run, shown = which(argparse.Namespace(path=path, span="", capture="", **wanted))
    except NotFound as error:
        if error.field != "worker":
            raise
        because = f"{what.upper()} {one_line(Path(path).name)!r} has no worker {options.worker[:80]!r}"
        hint = f"{error.hint}; name one that both sides have, or leave --worker out to take of each step the slowest worker"
        raise NotFound(because, hint=hint, field="worker") from None
    query = Query(step=options.steps)
    recordings = [shown] if options.worker else [own[-1] for own in recordings_by_worker(run.recordings, shown.kind).values()]
    joined = slowest([_of_recording(run.open(r), query, _looks_for_findings(options)) for r in recordings])
    if len(recordings) > 1:
        most = recordings[joined.rank].worker
        print(f"tb-sol: {run.name or path}: of each step the slowest of {len(recordings)} workers, mostly {most}", file=sys.stderr)
    return joined.samples, Path(path.rstrip("/")).name if run.name in ("", ".") else run.name.rpartition("/")[2]


def _looks_for_findings(options: argparse.Namespace) -> bool:
    """Whether findings are a metric of this check; a baseline stores them for later ones."""
    named = [text.rpartition("=")[0] or text for text in options.metric]
    budgets = stored(options.base)
    if isinstance(budgets, list) and not named:
        named = [budget.name for budget in budgets]
    if options.save_baseline or (options.update and isinstance(budgets, Baseline)):
        return True
    return any(name.partition(":")[0] in ("findings", FINDING) for name in named)


def _of_recording(capture: Capture, query: Query, findings: bool) -> Samples:
    """Returns the samples of a recording. findings: whether those are looked for, which takes as long as the page of them."""
    found = samples_with_path(capture, query)
    if not findings:
        return found
    try:
        return msgspec.structs.replace(found, findings=findings_in(capture, query))
    except Unavailable:
        return found
