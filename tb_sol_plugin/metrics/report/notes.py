"""Writes notices about the source of work: of a trace with a SOL log, of a profile without events, and of a SOL log alone."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.report.graph_notes import advice_for
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.breakdown import spans_of
from tb_sol_plugin.metrics.time.scope import Scope, engine_of
from tb_sol_plugin.metrics.work.joined import COUNTED, EXPLAINED
from tb_sol_plugin.metrics.work.work import Work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Link, Notice
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.units import capitalized, human

WHOLE: Final = 0.95
"""Part of the device's own work with a model from which a trace should explain all that was counted."""


class Check(Struct, frozen=True):
    """Matrix FLOP of the matched steps of a selection: explained by the trace itself, counted by the SOL capture, recomputed work left out.

    taken: of the counted, the work of calls of unnamed time. steps: matched steps; iterations: those whose work they do.
    whole: the trace has a cost model for nearly all of its own work, so that both should be equal.
    """

    explained: float
    counted: float
    taken: float
    steps: int
    iterations: tuple[int, ...]
    whole: bool

    @property
    def agree(self) -> bool:
        """Whether the trace explains what was counted, where it should."""
        return not self.whole or abs(self.explained - self.counted) <= (1 - EXPLAINED) * self.counted


def check_of(capture: Capture, done: Work, part: Scope) -> Check | None:
    """Returns the comparison over the selected steps; None where no step of theirs has an iteration of the same work."""
    steps = [s for s in done.match.steps if s.row in part.rows] if done.match is not None else []
    if not steps:
        return None
    ops = done.ops
    inside = np.isin(ops["step"].to_numpy(), [s.row for s in steps])
    own = inside & ~(ops["link"] | ops["collective"]).to_numpy() & (ops["name"] != COUNTED).to_numpy()
    time = ops["measured_ns" if done.by_host_time else "device_sum_ns"].to_numpy(dtype=np.float64)
    spent = float(time[own].sum())
    taken = ops["flop"].to_numpy(dtype=np.float64)[inside & (ops["name"] == COUNTED).to_numpy()]
    return Check(
        explained=sum(sum(s.explained.values()) for s in steps),
        counted=sum(s.counted for s in steps),
        taken=float(taken.sum()),
        steps=len(steps),
        iterations=tuple(sorted({s.iteration for s in steps})),
        whole=not len(taken) and bool(spent) and float(time[own & ops["modeled"].to_numpy()].sum()) >= WHOLE * spent,
    )


def joined_notices(capture: Capture, done: Work, part: Scope) -> list[Notice]:
    """Returns the notices about a trace and its SOL capture together; none where there is only one of them."""
    if scope.source_of(capture) != "both":
        return []
    name = (capture.facts.metadata.get("sol_capture", "") or "a SOL capture of this run").replace("\\", "/").rpartition("/")[2]
    found = check_of(capture, done, part)
    if found is None:
        why = "no iteration with inputs of the same sizes was sampled" if part.rows else "this trace has no steps"
        return [Notice(f"Work and times are those of this trace. The SOL capture {name} beside it is not used: {why}.", "info")]
    where = f"iteration{'s' if len(found.iterations) > 1 else ''} {', '.join(map(str, found.iterations))}"
    if found.taken:
        each = human(round(found.taken / found.steps), "FLOP")
        text = f"{each} of matrix work per step that this trace does not name are those that the SOL capture {name} counted in {where}"
        return [Notice(f"{text}. All times are those of this trace.", "info", Link("roofline", {"by": "phase"}))]
    if not found.agree:
        one, two = (human(round(v / found.steps), "FLOP") for v in (found.explained, found.counted))
        return [Notice(f"This trace explains {one} of matrix work per step, the SOL capture {name} counted {two} ({where}).", "warn")]
    if abs(found.explained - found.counted) <= (1 - EXPLAINED) * found.counted:
        return [Notice(f"Work and times are those of this trace. The SOL capture {name} beside it counted the same work.", "info")]
    one, two = (human(round(v / found.steps), "FLOP") for v in (found.explained, found.counted))
    text = f"Work and times are those of this trace. It explains {one} of matrix work per step"
    return [Notice(f"{text}, the SOL capture {name} beside it counted {two} ({where}).", "info")]


def graph_notices(capture: Capture, done: Work, own: Ints) -> list[Notice]:
    """Returns that replayed graphs have no operators to judge, where these are a tenth of the device's time; own: ns per device row.

    With a SOL capture beside the trace the work of a replay is known.
    """
    if not len(capture.device) or scope.source_of(capture) == "both" or len(done.owner) != len(own):
        return []
    bare = capture.device["graph"].to_numpy() & (done.owner < 0)
    share = float(own[bare].sum() / max(int(own.sum()), 1))
    if share < BARE:
        return []
    return [Notice(
        f"{human(share, 'ratio')} of the device time is in replayed graphs, whose kernels have no operators or sizes: no finding about "
        f"these covers it. {_how_to_name(capture)}", "info",
    )]  # fmt: skip


def _how_to_name(capture: Capture) -> str:
    if engine_of(capture):
        return f"A recording of the captures would name them: {advice_for(capture)}."
    return "Run the loop inside sol.capture(logdir, model=model), or record some steps without graphs."


BARE: Final = 0.1
"""A smaller part of the device time leaves the findings about operators as they are."""


# -- The first notice of a profile without events --------------------------------------------------------------


def profile_notices(capture: Capture) -> list[Notice]:
    """Returns the notice that a profile holds sums, and how its device was found; none for other recordings."""
    if not scope.is_profile(capture):
        return []
    table, copies = capture.tables[S.LEDGER.name], capture.tables[S.COPIES.name]
    launches = int(table["count"].to_numpy().clip(min=0).sum())
    moved = int(copies["count"].to_numpy().sum())
    summary = f"{human(launches, 'count')} launches" + (f" and {human(moved, 'count')} copies" if moved else "")
    text = (
        f"Proton profile: {summary} summed by kernel and scope, no single events. Times are plain sums on the device; "
        "what ran at the same time counts twice."
    )
    out = [Notice(text, "info", Link("health"))]
    warnings = [w for w in capture.facts.warnings if w]
    out += [Notice(f"{capitalized(w)}.", "info") for w in warnings[:2]]
    if len(table) and not np.isfinite(table[["flop", "bytes"]].to_numpy(dtype=np.float64)).any():
        lack = "No launch hook stated any work: there is time, and no limit to hold it against."
        out.append(Notice(lack, "info"))
    return out


# -- Notices about the edges of the recording -------------------------------------------------------------------------


def edge_notices(capture: Capture, part: Scope) -> list[Notice]:
    """Returns a notice about device work that was launched before the first step of a selection, where there is any."""
    if 0 not in part.rows:
        return []
    return memo(capture, ("notes.edges",), lambda: _edge_notices(capture, scope.before_steps(capture, part)))


def _edge_notices(capture: Capture, before: Mask) -> list[Notice]:
    if not before.any():
        return []
    events, time = int(before.sum()), human(iv.length(spans_of(capture, before)), "ns")
    early = int((before & (capture.device["link"].to_numpy() == S.BEFORE_WINDOW)).sum())
    rest = "" if early in (0, events) else f", {human(early, 'count')} of them before the recording began"
    when = "the recording began" if early == events else "the first step"
    several, were = ("", "was") if events == 1 else ("s", "were")
    text = (
        f"{human(events, 'count')} device event{several} ({time}) {were} launched before {when}{rest}. "
        "The first step begins when that work ends; it is in no step and in no number per step."
    )
    return [Notice(text, "info", Link("health", {}, "Trace health"))]


# -- Notices about the source of work -------------------------------------------------------------------
# which iterations were counted, what the recorder lost, how normal their times are.


MOST_NAMED: Final = 6
MOST_WARNINGS: Final = 3
LOST: Final = "not recorded: "
"""How the reader begins the reason of what the recorder could not count or time."""
WORKLESS: Final = ("tensors without data",)
"""Beginnings of reasons that cost no work: sharded models try sizes on tensors without data. Trace health lists them."""


def source_notices(capture: Capture, part: Scope) -> list[Notice]:
    """Returns notices about the source: sampled iterations of a SOL capture, sums of a profile; none for a trace."""
    if not scope.is_capture(capture):
        return profile_notices(capture)
    out = [Notice(_what(capture, part), "info", Link("iterations"))]
    out += [Notice(text, "warn", Link("health")) for text in _lost(capture)]
    usual = scope.step_time(capture, part.rows)
    if usual is not None and abs(usual.ratio - 1) > scope.DIFFERS:
        out.append(Notice(_differs(usual), "info", Link("iterations")))
    return out


def sampled_words(capture: Capture, part: Scope) -> str:
    """Returns `sampled iteration 100`, `3 sampled iterations`."""
    count = len(part.steps)
    return f"sampled iteration {part.steps[0]}" if count == 1 else f"{human(count, 'count')} sampled iterations"


def _what(capture: Capture, part: Scope) -> str:
    table = capture.tables["iterations"]
    every = len(table)
    if not len(capture.tables["ledger"]):
        return "This is a SOL capture in which no iteration has been sampled yet: times of phases, no work."
    if not part.rows:
        return "This is a SOL capture. No sampled iteration of it stands on the timeline: all work in it is shown together."
    names = [str(n) for n in part.steps]
    listed = ", ".join(names) if len(names) <= MOST_NAMED else f"{', '.join(names[: MOST_NAMED - 2])} … {names[-1]}"
    of = f"{human(len(names), 'count')} of {human(every, 'count')} recorded"
    timed = "operators are timed by the wall clock" if scope.calls_timed(capture) else "operators are not timed one by one"
    left = _left_out(capture)
    word = "iteration" if len(names) == 1 else "iterations"
    return f"This is a SOL capture: work counted in sampled {word} {listed} ({of}); {timed}.{left}"


def _left_out(capture: Capture) -> str:
    """Returns sampled iterations whose work is not read, in a sentence of its own."""
    counted = scope.counted_steps(capture)
    evaluates = scope.evaluating_steps(capture)
    apart = 0 if evaluates[counted].any() else int(evaluates.sum())
    said = ""
    if apart:
        table = capture.tables["iterations"]
        spent = table["evaluation_ns"].to_numpy()
        mean = human(round(float(spent[spent > 0].mean())), "ns")
        which = "one that also evaluated the model is" if apart == 1 else f"{human(apart, 'count')} that also evaluated the model are"
        each = " in each" if apart > 1 else ""
        said = f" Of the sampled ones {which} left out: evaluation took {mean}{each} and is no part of a training step."
    lost = len(capture.steps) - len(counted) - apart
    if lost <= 0:
        return said
    most = human(scope.MOST_CALLS, "count")
    return f" {human(lost, 'count')} earlier sampled ones are left out: together they hold more than {most} calls.{said}"


QUIET: Final = frozenset(("zero-length event", "GPU copy of a user annotation", "digits past nanoseconds"))
"""Oddities that change no number a reader would look at."""


def oddities(capture: Capture) -> int:
    """Returns how many kinds of oddity a reader should know of: headline, badge and facts show this number."""
    reasons = capture.tables["issues"]["reason"]
    return len(reasons) - int(arrays.where(reasons, QUIET.__contains__).sum())


def _lost(capture: Capture) -> list[str]:
    out = [f"{capitalized(text)}." for text in capture.facts.warnings if text][:MOST_WARNINGS]
    issues = capture.tables["issues"]
    reasons = arrays.pick(issues["reason"], np.arange(len(issues))).tolist()
    found = [(r.removeprefix(LOST), int(n)) for r, n in zip(reasons, issues["count"].tolist(), strict=True) if r.startswith(LOST)]
    found = [(reason, n) for reason, n in found if not reason.startswith(WORKLESS)]
    if found:
        lost = ", ".join(f"{human(n, 'count')} × {reason}" for reason, n in found[:MOST_WARNINGS])
        out.append(f"Some work or times were not recorded: {lost}.")
    return out


def _differs(usual: scope.StepTime) -> str:
    others = "the one other" if usual.count == 1 else f"the {human(usual.count, 'count')} others"
    own, other = human(round(usual.sampled_ns), "ns"), human(round(usual.median_ns), "ns")
    return (
        f"A sampled iteration lasts {own}, {others} of the same inputs {other}"
        f"{' (median)' if usual.count > 1 else ''}: ranges on the host are those of the sampled ones, a step is as long as the others."
    )


# -- How a recording was made, as names and texts --------------------------------------------------------------------
# what two recordings should have in common before their numbers are compared.


FLAGS: Final = {"record_shapes": "record_shapes", "with_stack": "with_stack", "profile_memory": "profile_memory"}
GROUPS: Final = {
    "pp": "pipeline stage", "tp": "tensor parallel", "dp": "data parallel", "ep": "expert parallel", "cp": "context parallel",
}  # fmt: skip
LONGEST: Final = 200
"""Characters of one text."""


def setting(capture: Capture) -> dict[str, str]:
    """Returns names and texts, in order; what is not known is left out."""
    facts, metadata = capture.facts, capture.facts.metadata
    own = {name.removeprefix("sol_capture."): text for name, text in metadata.items()}
    out: dict[str, str] = {}
    if facts.world_size:
        out["world size"] = human(facts.world_size, "count")
    for name, words in GROUPS.items():
        if own.get(f"groups.{name}"):
            out[words] = own[f"groups.{name}"]
    batch = _batch(capture)
    if batch:
        out["batch"] = batch
    if own.get("model.class"):
        out["model"] = own["model.class"]
    if own.get("model.parameters", "").isdigit():
        out["parameters"] = human(int(own["model.parameters"]), "count")
    names = list(dict.fromkeys(d.name for d in facts.devices if d.name))
    if names:
        out["device"] = ", ".join(names)
    memory = {d.memory_bytes for d in facts.devices if d.memory_bytes}
    if len(memory) == 1:
        out["memory of the device"] = human(memory.pop(), "B")
    for name, words in (("torch_version", "torch"), ("cuda_runtime_version", "CUDA"), ("hip_runtime_version", "HIP")):
        if facts.versions.get(name):
            out[words] = facts.versions[name]
    for name in ("precision.matmul", "allocator_settings"):
        if own.get(name):
            out[name.replace("_", " ").replace("precision.matmul", "precision of matrix products")] = own[name]
    steps = capture.steps if not facts.pseudo_step else capture.steps.iloc[:0]
    out["steps recorded"] = human(len(steps), "count")
    out |= {words: "on" if facts.flags[name] else "off" for name, words in FLAGS.items() if facts.flags.get(name) is not None}
    return {name: text[:LONGEST] for name, text in out.items()}


def _batch(capture: Capture) -> str:
    """Returns samples and tokens of an iteration, as the last one that knows them says."""
    table = capture.tables[S.ITERATIONS.name]
    parts = []
    for column, word in (("batch", "samples"), ("tokens", "tokens")):
        known = table[column].to_numpy()
        known = known[known >= 0]
        if len(known):
            parts.append(f"{human(int(known[-1]), 'count')} {word}")
    return ", ".join(parts)
