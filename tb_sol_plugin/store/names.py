"""Names runs, workers and spans, from paths alone."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from tb_sol_plugin import format as F
from tb_sol_plugin import redact
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
"""No recordings: an analysis reads them where a person laid them, see `store.sidecars`."""
_STEM = re.compile(r"\.(?:(?:raw\.)?jsonl?|trace|chrome_trace|pt\.trace|raw|pickle|pkl)(?:\.gz)?$", re.IGNORECASE)
_RANK = re.compile(r"(?:^|[^a-z])rank[-_.]?(\d+)", re.IGNORECASE)

DEFAULT_SPAN = "default"


CAPTURES: Final = "capture_traces"
"""Folder that holds recordings of graph captures, beside the recordings of what the graphs replay."""
DETAILS: Final = "execution_details.json"
"""What each recording of graph captures was made for."""
_GRAPH_CAPTURE: Final = re.compile(r"graph[-_.]?capture|capture[-_.]?trace", re.IGNORECASE)


def replays_of(file: str) -> str | None:
    """Returns the folder of the traces whose graph replays a recording of captures is for, by its path; None for any other file."""
    folder, _, name = file.rpartition("/")
    above, _, last = folder.rpartition("/")
    if last == CAPTURES:
        return above
    return folder if name == DETAILS or _GRAPH_CAPTURE.search(name) else None


def kind_of(file_name: str) -> str:
    """Returns kineto, sol_capture or proton where the name alone says so, else ""."""
    if F.PART.search(file_name):
        return "sol_capture"
    if PROTON.match(file_name):
        return "proton"
    return "kineto" if TRACE.match(file_name) else ""


def worker_and_span(file_name: str) -> tuple[str, str]:
    """Splits `host_12.1623143089861.pt.trace.json.gz` into (`host_12`, `1623143089861`); without a time the span is `default`.

    A profile of Proton `decode.part_2.hatchet` -> (`decode`, `part_2`).
    A SOL capture `host_rank3_12_1623143089861.sol.jsonl` -> (`host_rank3`, `1623143089861`).
    What has the shape of a secret is `[redacted]` in both.
    """
    worker, span = _worker_and_span(file_name)
    return redact.name(worker), redact.name(span)


def _worker_and_span(file_name: str) -> tuple[str, str]:
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
    """Returns the rank a worker's name states (`rank3`, `job-rank_12`), else None: a process id is not a rank."""
    match = _RANK.search(worker)
    return int(match.group(1)) if match else None


def run_name(root_name: str, root_label: str, folder: str, folders: Iterable[str]) -> str:
    """Returns the run of a folder (relative to its root, "" for the root itself).

    The root takes its own last part as name, or "." where a folder inside already has that name. What has the shape of a
    secret is `[redacted]`.
    """
    return redact.name(_run_name(root_name, root_label, folder, folders))


def _run_name(root_name: str, root_label: str, folder: str, folders: Iterable[str]) -> str:
    if folder:
        return f"{root_name}/{folder}" if root_name else folder
    if root_name:
        return root_name
    return "." if root_label in folders else root_label


def labels(spans: Iterable[str]) -> dict[str, str]:
    """Returns span name -> what a person calls it: 1, 2, 3 in natural order; `default` keeps its name when it is the only one."""
    ordered = sorted(spans, key=natural)
    if ordered == [DEFAULT_SPAN]:
        return {DEFAULT_SPAN: DEFAULT_SPAN}
    return {name: str(number) for number, name in enumerate(ordered, 1)}


# -- Where recordings may lie ----------------------------------------------------------------------------------------
# the roots named by `--logdir` or `--logdir_spec`, local or any fsspec URL.


_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


IN_PROCESS: Final = "memory://"
"""A file system that lives in this process: no other one can read its files."""


class Root(Struct, frozen=True):
    """A place to scan. `name` prefixes its runs ("" for a single logdir); `url` is a local path or an fsspec URL."""

    name: str
    url: str

    @property
    def local(self) -> bool:
        return not is_url(self.url)

    @property
    def label(self) -> str:
        """What may be shown of it: its given name, else the last part of its path. Never the whole path."""
        return self.name or basename(self.url)


def is_url(path: str) -> bool:
    """Whether `path` goes through fsspec. `file://` too is a URL; a drive letter is not."""
    return bool(_URL.match(path)) or "::" in path


def basename(path: str) -> str:
    """Returns the last part of a path or URL; "." where there is none."""
    tail = path.split("://", 1)[-1].rstrip("/").replace(os.sep, "/").rsplit("/", 1)[-1]
    return tail or "."


def single(logdir: str) -> tuple[Root, ...]:
    """Returns the root of `--logdir`; nothing for an empty one."""
    return (Root("", _clean(logdir)),) if logdir else ()


def named(spec: str) -> tuple[Root, ...]:
    """Returns the roots of `--logdir_spec`: `name:/path,name2:/path2,/path3`. All entries count.

    A prefix before a colon is a name unless it is the scheme of a URL or a drive letter. Entries without a name are
    called by the last part of their path; equal names are told apart by a number.
    """
    roots: list[Root] = []
    taken: set[str] = set()
    for entry in filter(None, (part.strip() for part in spec.split(","))):
        name, colon, rest = entry.partition(":")
        if not colon or is_url(entry) or (len(name) == 1 and (rest[:1] == "\\" or os.name == "nt")) or "/" in name:
            name, rest = "", entry
        name = name or basename(rest)
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name}_{number}", number + 1
        taken.add(unique)
        roots.append(Root(unique, _clean(rest)))
    return tuple(roots)


def roots_of(logdir: str, spec: str = "") -> tuple[Root, ...]:
    """Returns all roots of a TensorBoard command line."""
    return (*single(logdir), *named(spec))


def _clean(path: str) -> str:
    if is_url(path):
        return path
    return os.path.abspath(os.path.expanduser(path))


def near(name: str, known: Iterable[str]) -> str:
    """Returns what is there in place of a name that is not: the names most like it, else the first."""
    names = list(known)
    close = difflib.get_close_matches(name[:200], names, 3, 0.4) or names[:3]
    return f"there is: {', '.join(close)}" if close else ""
