"""Names of runs, workers and spans, from paths alone."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tb_sol_plugin import format as F
from tb_sol_plugin.model.recordings import natural

TRACE = re.compile(r"^(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$")
"""A recording by its name alone: what `torch.profiler.tensorboard_trace_handler` writes."""
PROTON = re.compile(r"^(.*?)(?:\.(part_\d+))?\.hatchet(?:_msgpack)?(?:\.gz)?$", re.IGNORECASE)
"""A profile of Proton by its name alone; `part_3` is its fourth part."""
MAYBE = re.compile(r"\.(?:jsonl?|trace|chrome_trace|raw|pickle|pkl)(?:\.gz)?$|\.pt\.trace(?:\.gz)?$|\.html$", re.IGNORECASE)
"""Worth a look inside."""
LINES = re.compile(r"\.jsonl(?:\.gz)?$", re.IGNORECASE)
"""Lines of JSON: often metrics of other programs, which are no matter of ours."""
BESIDE = ("sol_scaling.json", "sol_scaling.csv")
"""No recordings: an analysis reads them where a person laid them, see `store.beside`."""
_STEM = re.compile(r"\.(?:(?:raw\.)?jsonl?|trace|chrome_trace|pt\.trace|raw|pickle|pkl)(?:\.gz)?$", re.IGNORECASE)
_RANK = re.compile(r"(?:^|[^a-z])rank[-_.]?(\d+)", re.IGNORECASE)

DEFAULT_SPAN = "default"


def kind_of(file_name: str) -> str:
    """kineto, sol_capture or proton where the name alone says so, else ""."""
    if F.PART.search(file_name):
        return "sol_capture"
    if PROTON.match(file_name):
        return "proton"
    return "kineto" if TRACE.match(file_name) else ""


def worker_and_span(file_name: str) -> tuple[str, str]:
    """`host_12.1623143089861.pt.trace.json.gz` -> (`host_12`, `1623143089861`); without a time the span is `default`.

    A profile of Proton `decode.part_2.hatchet` -> (`decode`, `part_2`).
    A SOL capture `host_rank3_12_1623143089861.sol.jsonl` -> (`host_rank3`, `1623143089861`).
    """
    match = TRACE.match(file_name)
    if match:
        return match.group(1) or file_name, (match.group(2) or "")[1:] or DEFAULT_SPAN
    proton = PROTON.match(file_name)
    if proton:
        return proton.group(1) or file_name, proton.group(2) or DEFAULT_SPAN
    sol = F.NAME.match(file_name)
    if sol:
        return f"{sol['host']}_rank{sol['rank']}", sol["start"]
    part = F.PART.search(file_name)
    stem = file_name[: part.start()] if part else _STEM.sub("", file_name)
    return stem or file_name, DEFAULT_SPAN


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
