"""States a situation with its truth, and judges what the rules report about it."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.copies.bandwidth import peaks
from tb_sol_plugin.metrics.rules.copies import KEYS, copy_findings
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.rules.memory import RULES as OF_MEMORY
from tb_sol_plugin.metrics.rules.memory import memory_context, memory_findings
from tb_sol_plugin.metrics.rules.time import RULES as OF_TIME
from tb_sol_plugin.metrics.rules.time import time_findings
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall, _waterfall, waterfall
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

US: Final = 1_000
MS: Final = 1_000_000
ROUND: Final = 2
"""ns (or bytes) by which a saving may miss its closed form: times are whole numbers, and so is what is left per step."""
RULES: Final = tuple(dict.fromkeys((*OF_TIME, *(f"copies_{k}" for k in KEYS), *(f"memory_{r}" for r in OF_MEMORY))))
"""Every finding that any rule can report, by its id."""
Recording: TypeAlias = "TraceBuilder | Capture"


@dataclass(frozen=True)
class Truth:
    """What is true of one finding: its saving lies in [least, most] (ns per step, or bytes).

    possible: it must not claim to be proven (None: either way). says, never: what its words must and must not hold.
    missed: why it is known not to be seen yet. optional: it need not be said where another finding is about the same time.
    """

    least: float
    most: float
    possible: bool | None = False
    says: str = ""
    never: str = ""
    missed: str = ""
    optional: bool = False

    def holds(self, found: Finding) -> bool:
        """Tells whether a finding is what is true."""
        words = f"{found.title} {found.evidence} {found.fix}"
        fits = self.least - ROUND <= found.saving <= self.most + ROUND and (self.possible is None or found.candidate == self.possible)
        return fits and self.says in words and not (self.never and self.never in words)


def saves(least: float, most: float | None = None, **more: object) -> Truth:
    """What a finding saves, exactly or between two bounds."""
    return Truth(least, least if most is None else most, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Situation:
    """One recording with its truth. resembles: rules that a look-alike must not convince."""

    name: str
    story: str
    make: Callable[[], Recording]
    truth: Mapping[str, Truth]
    resembles: tuple[str, ...] = ()
    spec: DeviceSpec | None = None

    @property
    def innocent(self) -> bool:
        """Whether it is a look-alike."""
        return bool(self.resembles)


_FILES: Final = ("waiting", "work", "products", "copying", "memory", "innocent", "innocent_data")
_ALL: list[Situation] = []
Make: TypeAlias = Callable[[], Recording]


def guilty(spec: DeviceSpec | None = None, **truth: Truth) -> Callable[[Make], Make]:
    """Adds a situation in which these findings, and no others, are true. spec: limits of a device that the table does not have."""
    return _adds((), spec, truth)


def innocent(*resembles: str, spec: DeviceSpec | None = None, **truth: Truth) -> Callable[[Make], Make]:
    """Adds a look-alike of some rules: nothing is true of it but `truth`."""
    return _adds(resembles, spec, truth)


def _adds(resembles: tuple[str, ...], spec: DeviceSpec | None, truth: Mapping[str, Truth]) -> Callable[[Make], Make]:
    unknown = {*truth, *resembles} - set(RULES)
    assert not unknown, f"no such rule: {sorted(unknown)}"

    def add(make: Make) -> Make:
        story = (make.__doc__ or "").strip().splitlines()[0]
        _ALL.append(Situation(make.__name__, story, make, truth, resembles, spec))
        return make

    return add


def library() -> list[Situation]:
    """Returns every situation."""
    for name in _FILES:
        importlib.import_module(f"tests.court.{name}")
    return _ALL


# -- What the rules report ---------------------------------------------------------------------------------------------


def opened(situation: Situation) -> Capture:
    """Returns the recording of a situation, as the product reads it: once, however many ask."""
    return _opened(situation.make)


@lru_cache(maxsize=256)
def _opened(make: Make) -> Capture:
    made = make()
    if isinstance(made, Capture):
        return made
    with tempfile.TemporaryDirectory(prefix="court-") as folder:
        return read_back(made, Path(folder))


@dataclass(frozen=True)
class Found:
    """All findings of a recording. copies: as the page of copies has them; they can claim the same time as those of `time`."""

    waterfall: Waterfall | None
    time: list[Finding]
    copies: list[Finding]
    memory: list[Finding]

    @property
    def every(self) -> dict[str, Finding]:
        """Every finding by its id; what stands among time and copies once, as among time."""
        return {f.id: f for f in (*self.memory, *self.copies, *self.time)}


def findings_of(c: Capture, spec: DeviceSpec | None = None) -> Found:
    """Runs every rule of every subject over a recording."""
    context = memory_context(c)
    memory = memory_findings(context)[0] if context is not None else []
    if not len(c.device) and not len(c.host):
        return Found(None, [], [], memory)
    part = scope(c, Query())
    fall = waterfall(c, part) if spec is None else _waterfall(c, part, work(c, spec))
    return Found(fall, time_findings(c, part, fall), copy_findings(c, part, peaks(fall.work.spec)), memory)


# -- The verdict -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What the rules said of one situation: rules that are right, that are wrong (with what they said), that should have spoken."""

    situation: Situation
    right: tuple[str, ...]
    wrong: Mapping[str, Finding] = field(default_factory=dict)
    silent: tuple[str, ...] = ()

    @property
    def unknown(self) -> tuple[str, ...]:
        """Rules that should have spoken and are not known to miss this."""
        return tuple(r for r in self.silent if not self.situation.truth[r].missed)

    @property
    def found_now(self) -> tuple[str, ...]:
        """Rules that are listed as missing this and do not."""
        return tuple(r for r in self.right if self.situation.truth[r].missed)


def judge(situation: Situation) -> Verdict:
    """Returns the verdict of one situation."""
    found = findings_of(opened(situation), situation.spec).every
    right = tuple(r for r, t in situation.truth.items() if r in found and t.holds(found[r]))
    wrong = {r: f for r, f in found.items() if r not in right}
    return Verdict(situation, right, wrong, tuple(r for r, t in situation.truth.items() if r not in found and not t.optional))


@dataclass
class Score:
    """One rule over the library. alike: look-alikes of it that it was not convinced by, of how many."""

    right: int = 0
    wrong: int = 0
    missed: int = 0
    alike: int = 0
    alikes: int = 0

    @property
    def precision(self) -> float | None:
        """Part of its findings that are true, None without a finding."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else None

    @property
    def recall(self) -> float | None:
        """Part of what is true that it finds, None where nothing is."""
        return self.right / (self.right + self.missed) if self.right + self.missed else None


def scores(verdicts: list[Verdict]) -> dict[str, Score]:
    """Returns the score of every rule."""
    out = {rule: Score() for rule in RULES}
    for v in verdicts:
        for rule in v.right:
            out[rule].right += 1
        for rule in v.wrong:
            out[rule].wrong += 1
        for rule, truth in v.situation.truth.items():
            out[rule].missed += rule not in v.right and not (truth.optional and rule not in v.wrong)
        for rule in v.situation.resembles:
            out[rule].alikes += 1
            out[rule].alike += rule not in v.wrong
    return out
