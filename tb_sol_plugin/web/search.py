"""Finds kernels, operators, modules and findings of a recording by words of their names: what the search of the page shows.

    found = search(capture, "flash bwd")       # the largest of each kind whose name holds every word, in any case

The names are gathered once per recording; a search passes over all of them and returns the largest few of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time.scope import is_profile
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import availability, registry
from tb_sol_plugin.model.report import FindingsSection, Link, Report, Scalar, TableSection, only_row
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.web import wire

MOST: Final = 8
"""Hits of one kind at most; how many there are is counted."""
LONGEST: Final = 200
"""Characters of a query that are looked at."""
KEPT_LOWER: Final = 100_000
"""Names of one kind up to which they are kept in lower case."""
SHOWN: Final = 400
"""Characters of a name that are shown; the link holds all of them."""


@dataclass(frozen=True)
class Names:
    """What can be found of one kind. ns: its time, -1 unknown; links: one per name. Largest first."""

    kind: str
    note: str
    names: Sequence[str]
    ns: Sequence[int] | npt.NDArray[np.int64]
    link: Callable[[int], Link]

    @cached_property
    def _kept(self) -> list[str]:
        return [name.lower() for name in self.names]

    @property
    def lower(self) -> Iterable[str]:
        """The names in lower case; of very many they are made for each search: a second copy of them costs more than its time."""
        return self._kept if len(self.names) <= KEPT_LOWER else map(str.lower, self.names)


def search(capture: Capture, text: str, limits: str = "") -> wire.Found:
    """Returns the largest of each kind whose names hold every word of a text; without a word the largest of all.

    limits: the device limits that findings are measured against.
    """
    words = text[:LONGEST].lower().split()
    hits: list[wire.Hit] = []
    counts: dict[str, int] = {}
    for one in memo(capture, ("search", limits), lambda: _gather(capture, limits)):
        found = [i for i, name in enumerate(one.lower) if all(word in name for word in words)]
        counts[one.kind] = len(found)
        same = " ".join(words)
        found.sort(key=lambda i: one.names[i].lower() != same)  # stable: a name that is the query itself comes first
        for i in found[:MOST]:
            ns = int(one.ns[i])
            hits.append(wire.Hit(one.kind, one.names[i][:SHOWN], ns if ns >= 0 else None, one.note, one.link(i)))
    return wire.Found(text[:LONGEST], hits, counts)


def _gather(capture: Capture, limits: str) -> list[Names]:
    """Returns every name by kind, the largest first. A page that the recording does not have brings none."""
    kinds = (("findings", lambda c: _findings(c, limits)), ("kernels", _kernels), ("operators", _operators), ("modules", _modules))
    pages = registry()
    there = [make for page, make in kinds if page in pages and availability(pages[page], capture) is None]
    return [found for make in there if (found := make(capture)) is not None and len(found.names)]


def _sorted(kind: str, note: str, names: Sequence[str], ns: npt.NDArray[np.int64], link: Callable[[int], Link]) -> Names:
    order = np.argsort(-ns, kind="stable")
    return Names(kind, note, [names[i] for i in order.tolist()], ns[order], lambda i: link(int(order[i])))


def kept(page: str, column: str, value: str) -> Link:
    """Returns the link to a page whose main table, called like it, keeps one value of a column, over the whole recording."""
    return Link(page, {"step": "", **only_row(page, column, value)})


def _kernels(capture: Capture) -> Names | None:
    if is_profile(capture):
        return _of_table(capture, "kernels", "kernel", "sum over its calls", ("name",), ("total_ns",))
    device = capture.device
    rows = np.flatnonzero(device["kind"].to_numpy() == S.KERNEL)
    codes, names = arrays.codes(device["name"])[rows], device["name"].cat.categories
    ns = arrays.exact_sums(codes, device["duration_ns"].to_numpy()[rows], len(names))
    used = arrays.in_use(codes, len(names))
    texts = names.take(used).tolist()
    return _sorted("kernel", "sum over its calls", texts, ns[used], lambda i: kept("kernels", "name", texts[i]))


def _operators(capture: Capture) -> Names | None:
    host, device = capture.host, capture.device
    rows = np.flatnonzero(host["kind"].to_numpy() == S.OPERATOR)
    if not len(rows):
        return _of_table(capture, "operators", "operator", "", ("name",), ("device_self_ns", "host_total_ns"))
    codes, names = arrays.codes(host["name"]), host["name"].cat.categories
    if len(device):
        owner = device["operator"].to_numpy()
        owned = np.flatnonzero(owner >= 0)
        note, ns = "device self", arrays.exact_sums(codes[owner[owned]], device["duration_ns"].to_numpy()[owned], len(names))
    else:
        note, ns = "host", arrays.exact_sums(codes[rows], host["duration_ns"].to_numpy()[rows], len(names))
    used = arrays.in_use(codes[rows], len(names))
    texts = names.take(used).tolist()
    return _sorted("operator", note, texts, ns[used], lambda i: kept("operators", "name", texts[i]))


def _modules(capture: Capture) -> Names | None:
    found = _of_table(capture, "modules", "module", "with what it calls", ("id",), ("time_ns", "host_total_ns"))
    if found is None:
        return None
    own = found.link

    def link(i: int) -> Link:
        one = own(i)
        return Link(one.analysis, one.query | {"t.modules.k": found.names[i]})

    return Names(found.kind, found.note, found.names, found.ns, link)


def _findings(capture: Capture, limits: str) -> Names | None:
    report = capture.analyze("findings", device_limits=limits)
    if not isinstance(report, Report):
        return None
    cards = [f for s in report.sections if isinstance(s, FindingsSection) for f in s.findings]
    links = [f.rows or f.link or Link("findings") for f in cards]
    titles = [f"{'Hidden: ' if f.hidden else 'Possible: ' if f.candidate else ''}{f.title}".replace("`", "") for f in cards]
    return Names("finding", "saving per step", titles, [f.saving_ns or -1 for f in cards], lambda i: links[i])


def _whole(value: Scalar) -> int:
    return round(value) if isinstance(value, int | float) else -1


def _of_table(capture: Capture, page: str, kind: str, note: str, key: tuple[str, ...], time: tuple[str, ...]) -> Names | None:
    """Returns the rows of the main table of a page. key, time: columns, the first that is there and known."""
    report = capture.analyze(page)
    sections = report.sections if isinstance(report, Report) else []
    table = next((s.data for s in sections if isinstance(s, TableSection) and s.id == page), None)
    column = next((k for k in key if table and k in table), None)
    if table is None or column is None:
        return None
    values = next((table[t] for t in time if t in table and any(v is not None for v in table[t])), None)
    rows = [i for i, v in enumerate(table[column]) if isinstance(v, str) and v]
    names = [str(table[column][i]) for i in rows]
    times = [-1 if values is None else _whole(values[i]) for i in rows]
    return _sorted(kind, note, names, np.array(times, np.int64), lambda i: kept(page, column, names[i]))
