"""Holds the context of rules about time: the calls, kernels and idle time of one recording, and what no rule has claimed of them.

Time that can be saved stands in three places: the calls of operators (`left`, ns per row of `Work.ops`), the idle time of the
device (`idle`) and the exposed parts of communication and copies. A rule takes from the ledger what it claims, so the savings of all
findings add up to at most the time of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.cost import Inputs
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics import kept_with
from tb_sol_plugin.metrics.rules.engine import LEAST, CaptureContext, Finding, Ledger, Subject, time_text, with_sizes
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import explained_idle, recorder_time
from tb_sol_plugin.metrics.time.kernels import matrix_units_at
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import NO_KIND, SCALED, Waterfall
from tb_sol_plugin.metrics.trees.phases import phase_tree
from tb_sol_plugin.metrics.work.joined import COUNTED
from tb_sol_plugin.metrics.work.rows import ids_of_calls
from tb_sol_plugin.metrics.work.unmodeled import arguments_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import only_rows
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, factorize

MOST_IDS: Final = 40
"""Rows by operator and sizes that a link names; of more it names the operators."""
TABLES: Final = {"kernels": "name", "operators": "name", "phases": "id"}
"""Pages whose table has the same id, and the column that names its rows."""


@dataclass(frozen=True)
class Claim:
    """What a rule has taken of operator calls. rows: of `Work.ops`; ns: of each, over all steps."""

    rows: Ints
    ns: Floats
    ops: pd.DataFrame = field(compare=False, repr=False)

    @property
    def total(self) -> float:
        """ns of all calls together."""
        return float(self.ns.sum())

    @property
    def worst(self) -> int:
        """Place among `rows` of the call of which most is taken."""
        return int(self.ns.argmax())

    @cached_property
    def _largest(self) -> tuple[list[str], float]:
        return arrays.largest([self.ops["name"], self.ops["shapes"]], self.rows, self.ns)

    @property
    def name(self) -> str:
        """The operator of which most is taken (by operator and sizes)."""
        return self._largest[0][0]

    @property
    def where(self) -> str:
        """The same in words, with its sizes."""
        return with_sizes(*self._largest[0])

    @property
    def most(self) -> str:
        """What is taken of it, in words."""
        return time_text(self._largest[1])

    def largest(self, column: str) -> str:
        """Returns the text of a column of `Work.ops` of which most is taken."""
        return arrays.largest([self.ops[column]], self.rows, self.ns)[0][0]


class Gaps(NamedTuple):
    """Gaps on the device that end with its work: start, stop, the idle time in it that no rule has claimed, the device row that ends it."""

    start: Ints
    stop: Ints
    free: Ints
    ended: Ints


@dataclass
class TimeContext(CaptureContext):
    """One recording (or a selection of its steps).

    time: per operator call its exclusive part of the device's time inside the windows; on a recording of the host, of the host's
    time. limit: its limit in ns, NaN unknown (of several devices as in the waterfall). ledger: what no rule has claimed.
    on_host: a recording without device work. gaps: those of some unclaimed idle time.
    """

    subject: ClassVar[Subject] = "time"
    part: Scope
    waterfall: Waterfall
    time: Floats
    limit: Floats
    ledger: Ledger
    on_host: bool
    gaps: tuple[iv.Spans, Gaps] | None = None

    # -- shorthands -------------------------------------------------------------------------------------------

    @property
    def left(self) -> Floats:
        """What no rule has claimed of `time`."""
        return self.ledger.calls

    @property
    def idle(self) -> iv.Spans:
        """Idle spans that have a recorded cause and that no rule has claimed."""
        return self.ledger.idle

    @cached_property
    def recorder(self) -> iv.Spans:
        """Idle time in which the profiler itself works."""
        return iv.intersect(recorder_time(self.capture), self.waterfall.idle)

    @property
    def ops(self) -> pd.DataFrame:
        """Rows of `Work.ops`."""
        return self.waterfall.work.ops

    @property
    def spec(self) -> DeviceSpec | None:
        """The limits in use."""
        return self.waterfall.work.spec

    @property
    def vendor(self) -> str:
        """Who made the device: of the recording, "cpu" for one of the host."""
        return "cpu" if self.on_host else self.capture.facts.vendor

    @cached_property
    def flop(self) -> Floats:
        """Matrix FLOP per call, 0 where none or unknown."""
        return np.asarray(np.nan_to_num(self.ops["flop"].to_numpy(dtype=np.float64)), np.float64)

    @cached_property
    def bytes(self) -> Floats:
        """Least traffic per call, NaN unknown."""
        return np.asarray(self.ops["bytes"].to_numpy(dtype=np.float64), np.float64)

    @cached_property
    def known(self) -> Mask:
        """Calls with a limit inside the windows."""
        return np.isfinite(self.limit) & (self.time > 0)

    def named(self, test: Callable[[str], bool]) -> Mask:
        """Returns calls whose operator's name passes a test."""
        return arrays.where(self.ops["name"], test)

    def of_kind(self, *kinds: str) -> Mask:
        """Returns calls of some kinds of work."""
        return self._among("kind", kinds)

    def of_type(self, *types: str) -> Mask:
        """Returns calls that compute in one of some types."""
        return self._among("dtype", types)

    def _among(self, column: str, texts: tuple[str, ...]) -> Mask:
        """Returns calls with one of some texts in a column, found once for all rules; it is not to be changed."""
        if (column, texts) not in self._masks:
            self._masks[column, texts] = arrays.where(self.ops[column], frozenset(texts).__contains__)
        return self._masks[column, texts]

    @cached_property
    def _masks(self) -> dict[tuple[str, tuple[str, ...]], Mask]:
        return {}

    def each(self, ns: float) -> int:
        """Returns a time over all steps as time per step."""
        return round(ns / self.waterfall.steps)

    # -- findings ---------------------------------------------------------------------------------------------

    def large_enough(self, found: Finding) -> bool:
        """Tells whether a finding saves at least 0.5 % of the step."""
        return found.saving > 0 and found.saving >= self.least

    @property
    def least(self) -> float:
        """Smallest saving that is shown, in ns per step."""
        return LEAST * self.waterfall.total_ns / self.waterfall.steps

    def explains(self, rows: Ints, wanted: Floats) -> Mask:
        """Tells of which unclaimed calls a cause that would save `wanted` ns is the main one: it explains half of the time above the limit.

        Any part of a call whose limit is unknown.
        """
        above = self.left[rows] - self.limit[rows]
        return np.asarray((self.left[rows] > 0) & (wanted > 0) & ~(2 * wanted < above), np.bool_)

    def claim(self, rows: Ints, wanted: Floats) -> Claim:
        """Take calls for up to `wanted` ns of each."""
        return Claim(rows, self.ledger.take_calls(rows, wanted), self.ops)

    def keep(self, found: Finding) -> None:
        """Notes a finding that is shown, with a link that keeps exactly its rows."""
        query = dict(found.query)
        if found.page == "roofline" and len(found.rows):
            calls = np.asarray(found.rows, np.int64)
            ids = ids_of_calls(self.ops, calls, "op_shape")
            many = len(ids) > MOST_IDS
            query |= ({"by": "op"} if many else {}) | only_rows("ops", "id", ids_of_calls(self.ops, calls, "op") if many else ids)
        elif found.page in TABLES and found.names:
            query |= only_rows(found.page, TABLES[found.page], sorted(set(found.names)))
        super().keep(replace(found, query=query))

    def give_back(self, found: Finding) -> None:
        """Offers to later rules what a finding has taken that is too small to show."""
        self.ledger.give_back(found)

    def finding(
        self, evidence: str, claim: Claim | None = None, *, idle: iv.Spans | None = None, ns: float = 0, names: Sequence[str] = (),
        rule: str = "", title: str = "", fix: str = "", page: str = "", label: str = "", color: str = "", candidate: bool = False,
    ) -> Finding:  # fmt: skip
        """Returns a finding that saves what it has taken of calls and of idle time, and `ns` of other time of the selection.

        names: rows that its link keeps, see `Finding`; a link to the roofline keeps the rows of its calls.
        """
        taken = np.flatnonzero(claim.ns > 0) if claim is not None else np.zeros(0, np.int64)
        rows, claimed = (claim.rows[taken], claim.ns[taken]) if claim is not None else (taken, np.zeros(0))
        many = f"In {self.waterfall.steps} steps" if self.waterfall.steps > 1 else "In this step" if self.waterfall.scaled else ""
        many += (f", {SCALED}: " if self.waterfall.scaled else ": ") if many else ""
        spans = iv.empty() if idle is None else idle
        return Finding(
            evidence=many + evidence, saving=self.each(ns + iv.length(spans) + float(claimed.sum())), rule=rule, title=title, fix=fix,
            page=page, label=label, color=color, names=names, candidate=candidate, rows=rows, claimed=claimed,
            idle=spans,
        )  # fmt: skip

    # -- kernels of calls -------------------------------------------------------------------------------------

    @property
    def main(self) -> Ints:
        """Per call the device row of its longest kernel, -1 without one."""
        return kept_with(self.ops, "rules.main_kernel", self._main)

    def _main(self) -> Ints:
        out = np.full(len(self.ops), -1, np.int64)
        owner, device = self.waterfall.work.owner, self.capture.device
        if not len(owner):
            return out
        rows = np.flatnonzero((owner >= 0) & (device["kind"].to_numpy() == S.KERNEL))
        call, time = owner[rows], device["duration_ns"].to_numpy()[rows]
        longest = np.full(len(out), np.iinfo(np.int64).min)
        np.maximum.at(longest, call, time)
        most = time == longest[call]
        out[call[most]] = rows[most]  # of equal ones the last
        return out

    @property
    def matrix_unit(self) -> npt.NDArray[np.int8]:
        """Per call whether its longest kernel runs on matrix units: 1 yes, 0 no, -1 unknown or without a kernel."""
        return kept_with(self.ops, "rules.matrix_unit", self._matrix_unit)

    def _matrix_unit(self) -> npt.NDArray[np.int8]:
        main = self.main
        out, some = np.full(len(main), -1, np.int8), np.flatnonzero(main >= 0)
        out[some] = matrix_units_at(self.capture, main[some])
        return out

    def kernel_names(self, rows: Ints) -> list[str]:
        """Returns the names of the longest kernels of calls, each once."""
        places = self.main[rows]
        return sorted(set(arrays.pick(self.capture.device["name"], places[places >= 0]).tolist()))

    def phases_of(self, rows: npt.NDArray[np.integer]) -> list[str]:
        """Returns the paths of the phases that host rows are, each once."""
        tree = phase_tree(self.capture)
        nodes = tree.node[rows] if len(tree.node) else np.zeros(0, np.int32)
        return [tree.path[i] for i in np.unique(nodes[nodes >= 0]).tolist()]

    def kernel_name(self, row: int) -> str:
        """Name of the longest kernel of a call, "" without one."""
        place = int(self.main[row])
        return str(arrays.pick(self.capture.device["name"], [place])[0]) if place >= 0 else ""

    # -- arguments of calls -----------------------------------------------------------------------------------

    def by_signature(self, rows: Ints) -> tuple[Ints, list[tuple[str, Inputs]]]:
        """Returns (signature per row, what stands in each signature): rows alike in name, sizes, types, strides and values are read once.

        Calls that were launched before the window have no arguments of their own.
        """
        known = kept_with(self.ops, "rules.signatures", self._signatures)
        code, first = arrays.numbered(known.of[rows])
        return code, known.read(known.of[rows[first]])

    def _signatures(self) -> _Signatures:
        every = np.arange(len(self.ops))
        table, place = arguments_of(self.capture, self.waterfall.work, self.ops, every)
        texts = [arrays.coded(self.ops["name"]), *(arrays.coded(table[c]) for c in _COLUMNS)]
        codes = [texts[0].codes, *(np.where(place >= 0, t.codes[place], -1) if len(table) else place for t in texts[1:])]
        of, first = factorize([code.astype(np.int64, copy=False) for code in codes])
        return _Signatures(of, [code[first] for code in codes], [t.categories for t in texts])


@dataclass(frozen=True)
class _Signatures:
    """What calls are alike in name, sizes, types, strides and values: each such call is read once.

    of: per row of `Work.ops` its number. codes: by number, of its name and its arguments; texts: of these codes.
    """

    of: Ints
    codes: list[npt.NDArray[np.integer]]
    texts: list[pd.Index]
    _known: dict[int, tuple[str, Inputs]] = field(default_factory=dict)

    def read(self, numbers: Ints) -> list[tuple[str, Inputs]]:
        """Returns the name and the arguments of the calls with each number."""
        new = [number for number in numbers.tolist() if number not in self._known]
        given = [arrays.words(text, codes[new]).tolist() for text, codes in zip(self.texts, self.codes, strict=True)]
        for number, name, *arguments in zip(new, *given, strict=True):
            self._known[number] = name, Inputs(*arguments)
        return [self._known[number] for number in numbers.tolist()]


_COLUMNS = ("shapes", "types", "strides", "concrete")


def time_context(capture: Capture, part: Scope, waterfall: Waterfall) -> TimeContext:
    """Makes the context with a ledger in which all of the waterfall's time is unclaimed, but idle time without a recorded cause."""
    ops, owner = waterfall.work.ops, waterfall.work.owner
    on_host = not len(capture.device)
    copy = (capture.device["kind"].to_numpy() == S.MEMCPY) & (waterfall.kind == NO_KIND)  # copies that are no call's work
    if on_host:
        time = waterfall.op_own.astype(np.float64)
    else:
        time = np.zeros(len(ops), np.float64)
        own_work = ~capture.device["communication"].to_numpy() & ~copy
        owned = np.flatnonzero((owner >= 0) & own_work & (waterfall.own > 0)) if len(owner) == len(copy) else np.zeros(0, np.int64)
        time += np.bincount(owner[owned], waterfall.own[owned], minlength=len(ops))
    named = ~arrays.where(ops["name"], COUNTED.__eq__)  # what the SOL capture counted for a phase stands for calls of all kinds
    limit = np.where(waterfall.counted & named, ops["sol_ns"].to_numpy(dtype=np.float64) / waterfall.parallel, np.nan)
    explained = waterfall.idle if on_host else explained_idle(capture, waterfall.idle)
    ledger = Ledger(time.copy(), np.where(copy, waterfall.own, 0).astype(np.float64), explained)
    return TimeContext(capture, part, waterfall, time, limit, ledger, on_host)


def thread_of(context: TimeContext, rows: Ints) -> npt.NDArray[np.int32]:
    """Returns the host thread of each call, -1 where it was launched before the window."""
    host = context.ops["host"].to_numpy()[rows]
    thread = at.host(context.capture).thread
    return np.asarray(np.where(host >= 0, thread[np.maximum(host, 0)], -1) if len(thread) else host, np.int32)
