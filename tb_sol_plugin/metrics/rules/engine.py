"""Runs rules that find what to fix: a rule looks at a context and reports findings, or what the recording would need.

    @rule("recompute", title="Forward work runs a second time", fix="…", page="modules", label="Modules", color="other")
    def recompute(context: TimeContext) -> Answer: ...

    found, missing = run(RULES, context)                              # what is proven first, the largest saving first
    cards = [to_report(f, step_ns=step_ns, pages=registry()) for f in found]

Rules run in order over one context. What a rule takes from the context's `Ledger` is offered to no later rule: a call, a copy and an
idle moment stand in at most one finding. Calls and copies of a finding that is too small to show go back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.model import report
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.units import capitalized, human

LEAST: Final = 0.005
"""Smallest saving shown among what to fix, as a part of the step."""
WHOLE: Final = 0.95
"""A saving by replay of so much of the time that a fix takes away needs no words about the rest."""
Subject: TypeAlias = Literal["time", "copies", "memory", "ranks"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One cause: its evidence, what fixing it could save at most, and where the proof is.

    saving: ns per step, of memory bytes. rule: stable name within its subject. page, query: the analysis that proves it; label: words of
    the link. color: palette member of what it frees. candidate: the cause is possible, not proven; it stands apart and says so.
    What a finding leaves empty of its rule, title, fix, page, label and color is as its rule states it.
    rows: operator calls (rows of `Work.ops`); of copies, positions in `copies(capture, scope.device)`. claimed: ns that it takes of each
    call over all steps. spans: of copies, the time that the saving is taken from, over the whole selection. idle: idle time of the
    device that it takes; copies: device rows of copies outside of operator calls that it takes. events, events_ns: device rows that it is
    about besides, and the ns that it takes of each: calls, idle time and events together make the saving over all steps.
    direction: of copies; host: they block the host (else they take the device's own time); host_ns: for how long per step.
    pieces: of memory, what the saving is counted from, as `memory.pieces` makes it: what is taken of all rows makes the saving.
    share: of memory, the saving over the memory in use at the peak, None where that is unknown; cost_ns: time per step of the fix.
    removed: of time, where the saving is that of a replay, the ns per step that the fix takes away, which its rows make up; else None, and
    the saving is that at most. hidden: by replay it saves too little to be shown among the others, as other work holds the step.
    """

    evidence: str
    saving: int
    rule: str = ""
    title: str = ""
    fix: str = ""
    page: str = ""
    label: str = ""
    color: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    names: Sequence[str] = ()
    candidate: bool = False
    subject: Subject = "time"
    rows: npt.NDArray[np.integer] = field(default_factory=lambda: np.zeros(0, np.int64), compare=False, repr=False)
    claimed: Floats = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)
    spans: iv.Spans = field(default_factory=iv.empty, compare=False, repr=False)
    idle: iv.Spans = field(default_factory=iv.empty, compare=False, repr=False)
    copies: npt.NDArray[np.integer] = field(default_factory=lambda: np.zeros(0, np.int64), compare=False, repr=False)
    events: npt.NDArray[np.integer] = field(default_factory=lambda: np.zeros(0, np.int64), compare=False, repr=False)
    events_ns: Floats = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)
    pieces: pd.DataFrame | None = field(default=None, compare=False, repr=False)
    direction: str = ""
    host: bool = False
    host_ns: int = 0
    share: float | None = None
    cost_ns: float | None = None
    removed: int | None = None
    hidden: bool = False

    @property
    def id(self) -> str:
        """Stable name among the findings of all subjects."""
        return self.rule if self.subject == "time" else f"{self.subject}_{self.rule}"


@dataclass(frozen=True)
class Missing:
    """Why a rule cannot tell, and how to record what it needs."""

    because: str
    record_it_with: str
    rule: str = ""


Answer: TypeAlias = "Finding | Sequence[Finding] | Missing | None"
"""What a rule reports; None: it finds nothing."""


@dataclass
class RuleContext:
    """What rules look at. reported: findings of the rules that ran before, those that are shown."""

    subject: ClassVar[Subject]
    reported: list[Finding] = field(default_factory=list, init=False)

    @property
    def vendor(self) -> str:
        """Vendor of the recorded device, in whose words advice is given; "" unknown."""
        return ""

    def large_enough(self, found: Finding) -> bool:
        """Tells whether a finding is large enough to be shown."""
        raise NotImplementedError

    def keep(self, found: Finding) -> None:
        """Notes a finding that is shown: what it is about is offered to no later rule."""
        self.reported.append(found)

    def give_back(self, found: Finding) -> None:
        """Offers to later rules what a finding has taken that is too small to show."""


@dataclass
class CaptureContext(RuleContext):
    """What rules about one recording, or a part of it, look at."""

    capture: Capture

    @property
    def vendor(self) -> str:
        """Vendor of the recorded device."""
        return self.capture.facts.vendor


C = TypeVar("C", bound=RuleContext)


@dataclass(frozen=True)
class Rule(Generic[C]):
    """A rule: the names of its findings, their texts unless a finding has its own, and the function that looks for them."""

    ids: tuple[str, ...]
    look: Callable[[C], Answer]
    defaults: Finding

    def __call__(self, context: C) -> list[Finding] | Missing:
        """Returns the findings of a context, complete."""
        answer = self.look(context)
        if isinstance(answer, Missing):
            return replace(answer, rule=answer.rule or self.ids[0])
        found = [answer] if isinstance(answer, Finding) else list(answer or ())
        return [_in_own_words(self._complete(f, context.subject), context.vendor) for f in found]

    def _complete(self, found: Finding, subject: Subject) -> Finding:
        own = {n: getattr(self.defaults, n) for n in _TEXTS if not getattr(found, n)}
        if "rule" in own and found.direction and len(self.ids) > 1:
            own["rule"] = next(i for i in self.ids if i.endswith(f"_{found.direction}"))
        return replace(found, **own, subject=subject if found.subject == "time" else found.subject)


def _in_own_words(found: Finding, vendor: str) -> Finding:
    """Returns a finding whose advice has the module of torch for the recorded device: `torch.cuda` is that of NVIDIA and AMD."""
    if vendor not in ("mtia", "xpu"):
        return found
    fix = found.fix.replace("torch.cuda.set_sync_debug_mode('warn')", "profile(with_stack=True)")
    return replace(found, fix=fix.replace("torch.cuda.", f"torch.{vendor}.").replace("'cuda:", f"'{vendor}:"))


_TEXTS: Final = ("rule", "title", "fix", "page", "label", "color", "candidate")


def rule(
    *ids: str, title: str = "", fix: str = "", page: str = "", label: str = "", color: str = "", candidate: bool = False
) -> Callable[[Callable[[C], Answer]], Rule[C]]:
    """Make a rule of a function. ids: stable names of what it finds, the usual one first; several directions end in theirs."""
    defaults = Finding(evidence="", saving=0, rule=ids[0], title=title, fix=fix, page=page, label=label, color=color, candidate=candidate)
    return lambda look: Rule(ids, look, defaults)


def ids_of(rules: Iterable[Rule[C]]) -> tuple[str, ...]:
    """Returns the name of every finding that these rules can report."""
    return tuple(name for one in rules for name in one.ids)


def run(rules: Iterable[Rule[C]], context: C) -> tuple[list[Finding], list[Missing]]:
    """Returns (findings that are large enough, as `ranked` orders them; what rules that lack data would need)."""
    context.reported.clear()
    missing = []
    for one in rules:
        answer = one(context)
        if isinstance(answer, Missing):
            missing.append(answer)
            continue
        for found in answer:
            if context.large_enough(found):
                context.keep(found)
            else:
                context.give_back(found)
    return ranked(context.reported), missing


def ranked(found: Iterable[Finding]) -> list[Finding]:
    """Returns findings that are proven, then those that are possible, then those that other work hides, the largest of each first."""
    return sorted(found, key=lambda f: (f.hidden, f.candidate, -f.saving, -(f.removed or 0)))


@dataclass
class Ledger:
    """Time that no rule has claimed yet: what one takes is offered to no later one, so that savings add up.

    A call and a copy are claimed as a whole: all or nothing of their time is left. calls: ns per operator call. copies: ns per device row
    of copies that are no operator's work. idle: spans without device work that have a recorded cause.
    """

    calls: Floats
    copies: Floats
    idle: iv.Spans
    _whole: tuple[Floats, Floats] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._whole = self.calls.copy(), self.copies.copy()

    def take_calls(self, rows: Ints, wanted: Floats) -> Floats:
        """Take calls for up to `wanted` ns of each; returns what was granted. Those of which nothing is granted stay."""
        granted = np.minimum(np.maximum(np.nan_to_num(wanted), 0.0), self.calls[rows])
        self.calls[rows[granted > 0]] = 0.0
        return granted

    def take_copies(self, rows: Ints, part: float) -> float:
        """Take copies for a part of the time of each; returns how much that was."""
        granted = float(self.copies[rows].sum() * part)
        if granted > 0:
            self.copies[rows] = 0.0
        return granted

    def take_idle(self, spans: iv.Spans) -> iv.Spans:
        """Take the idle time inside `spans`; returns it."""
        granted = iv.intersect(self.idle, spans)
        if len(granted[0]):
            self.idle = iv.subtract(self.idle, granted)
        return granted

    def give_back(self, found: Finding) -> None:
        """Returns to the ledger the calls and copies of a finding. Idle time keeps its cause: it is no other rule's because it is short."""
        calls, copies = self._whole
        self.calls[found.rows] = calls[found.rows]
        self.copies[found.copies] = copies[found.copies]


def combined_ns(found: Sequence[Finding], steps: int = 1) -> int:
    """Returns what all of `found` could save together, per step and at most.

    No nanosecond counts twice, whether rules claimed it or share spans.
    """
    total = sum(f.saving for f in found)
    shared = iv.merge(*(f.spans for f in found)) if found else iv.empty()
    return min(total, iv.length(shared) // steps) if len(shared[0]) else total


def to_report(
    found: Finding, *, pages: Container[str], step_ns: float = 0.0, keep: Mapping[str, str] | None = None, rows: bool = True
) -> report.Finding:
    """Returns a finding as a page shows it. pages: analyses a link may lead to; keep: query fields that the link keeps. rows: it links
    to the rows that its saving is taken from.
    """
    of_memory = found.subject == "memory"
    own = {"rule": found.rule} if found.subject == "copies" else found.query
    there = "memory_findings" if of_memory else "findings"
    return report.Finding(
        rule=found.id,
        title=found.title,
        evidence=found.evidence + _replay_text(found),
        saving_ns=None if of_memory else found.saving,
        removed_ns=found.removed,
        hidden=found.hidden,
        saving_bytes=found.saving if of_memory else None,
        share=found.share if of_memory else found.saving / step_ns if step_ns else None,
        fix=found.fix,
        link=report.Link(found.page, {**(keep or {}), **own}, found.label) if found.page in pages else None,
        rows=rows_link(found) if rows and there in pages else None,
        color=found.color,
        candidate=found.candidate,
    )


def _replay_text(found: Finding) -> str:
    """Returns what the saving leaves of the time that a fix takes away, in a sentence; "" where it keeps it, or is at most."""
    if found.removed is None or (not found.hidden and found.saving >= WHOLE * found.removed):
        return ""
    taken = time_text(found.removed)
    if found.hidden:
        left = f"alone it saves {time_text(found.saving)}" if found.saving else "alone it saves nothing"
        return f" It takes {taken}, but that time hides behind other work: {left}."
    return f" It takes {taken}, of which other work hides {time_text(found.removed - found.saving)}."


def rows_link(found: Finding, keep: Mapping[str, str] | None = None) -> report.Link | None:
    """Returns the link to the calls, gaps, device events or pieces of memory that a finding's saving is taken from; None without any."""
    if found.subject == "memory":
        some = found.pieces is not None and len(found.pieces) > 0
        return report.Link("memory_findings", {**(keep or {}), "rule": found.rule}, _piece_text(found)) if some else None
    parts = ((len(found.claimed), "call"), (len(found.idle[0]), "gap"), (len(found.events), "device event"))
    words = [count_text(n, word) for n, word in parts if n]
    if not words:
        return None
    text = " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]
    return report.Link("findings", {"rule": found.id}, capitalized(text))


def _piece_text(found: Finding) -> str:
    """Returns `12 allocations`, `One row`: what the pieces are, where they are all of one kind."""
    assert found.pieces is not None
    kinds = found.pieces["what"].unique()
    text = count_text(len(found.pieces), "allocation" if kinds.tolist() == ["allocation"] else "row")
    return capitalized(text)


# -- Phrases that rules share ------------------------------------------------------------------------------------------


def count_text(n: int, one: str, many: str = "") -> str:
    """Returns `one call`, `12 calls`."""
    return f"one {one}" if n == 1 else f"{human(n, 'count')} {many or one + 's'}"


def subject_verb(n: int, one: str, verb: str, many: str = "") -> str:
    """Returns `One call runs`, `12 calls run`: a count at the head of a sentence and its verb (given for one: `runs`)."""
    text = count_text(n, one, many)
    return f"{capitalized(text)} {verb if n == 1 else verb.removesuffix('s')}"


def times_text(n: int) -> str:
    """Returns `once`, `12 times`."""
    return "once" if n == 1 else f"{human(n, 'count')} times"


def time_text(ns: float) -> str:
    """Returns a time as a person reads it."""
    return human(round(ns), "ns")


def with_sizes(name: str, shapes: str) -> str:
    """Returns `` `aten::mm` over 512×512 512×512 ``; the sizes only where they are known."""
    return f"`{name}`{f' over {shapes}' if shapes else ''}"
