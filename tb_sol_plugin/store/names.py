"""Names of runs, workers and spans, from paths alone."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tb_sol_plugin.model.run import natural

TRACE = re.compile(r"^(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$")
"""A recording by its name alone: what `torch.profiler.tensorboard_trace_handler` writes."""
MAYBE = re.compile(r"\.(?:json|trace|raw|pickle)(?:\.gz)?$|\.pt\.trace(?:\.gz)?$|\.html$", re.IGNORECASE)
"""Worth a look inside."""
_STEM = re.compile(r"\.(?:json|trace|pt\.trace)(?:\.gz)?$", re.IGNORECASE)
_RANK = re.compile(r"(?:^|[^a-z])rank[-_.]?(\d+)", re.IGNORECASE)

DEFAULT_SPAN = "default"


def certain(file_name: str) -> bool:
    """Whether the name alone says that this is a recording."""
    return TRACE.match(file_name) is not None


def worker_and_span(file_name: str) -> tuple[str, str]:
    """`host_12.1623143089861.pt.trace.json.gz` -> (`host_12`, `1623143089861`); without a time the span is `default`."""
    match = TRACE.match(file_name)
    if match:
        return match.group(1) or file_name, (match.group(2) or "")[1:] or DEFAULT_SPAN
    return _STEM.sub("", file_name) or file_name, DEFAULT_SPAN


def rank_in(worker: str) -> int | None:
    """The rank a worker's name states (`rank3`, `job-rank_12`), else None: a process id is not a rank."""
    match = _RANK.search(worker)
    return int(match.group(1)) if match else None


def run_name(root_name: str, root_label: str, folder: str, folders: Iterable[str]) -> str:
    """The run of a folder (relative to its root, "" for the root itself).

    The root takes its own last part as name, or "." where a folder inside already has that name.
    """
    if folder:
        return f"{root_name}/{folder}" if root_name else folder
    if root_name:
        return root_name
    return "." if root_label in folders else root_label


def labels(spans: Iterable[str]) -> dict[str, str]:
    """Span name -> what a person calls it: 1, 2, 3 in natural order; `default` keeps its name when it is the only one."""
    ordered = sorted(spans, key=natural)
    if ordered == [DEFAULT_SPAN]:
        return {DEFAULT_SPAN: DEFAULT_SPAN}
    return {name: str(number) for number, name in enumerate(ordered, 1)}
