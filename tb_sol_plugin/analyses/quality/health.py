"""Trace health: what the file held, what was odd in it, what was not recorded, and what that does to the numbers.

Of a SOL capture, alone or beside a trace, also how it was recorded: what was sampled, what was not counted, what the recorder itself cost.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.metrics.report.graph_notes import COLUMNS as GRAPH_COLUMNS
from tb_sol_plugin.metrics.report.graph_notes import graph_section, replay_notices
from tb_sol_plugin.metrics.report.notes import LOST, oddities
from tb_sol_plugin.metrics.report.overview import FLAG_WORDS
from tb_sol_plugin.metrics.time.attribution import captured_rows
from tb_sol_plugin.metrics.time.iterations import iterations, recorder_overhead
from tb_sol_plugin.metrics.time.scope import is_capture, is_memory, is_profile
from tb_sol_plugin.metrics.work.counted import ledger_costs
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.memory_join import NOT_JOINED, joined_files
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import WORDS as MEMORY_WORDS
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, FactsSection, Link, Notice, Report, Scalar, Sort, TableSection, make_facts, make_table
from tb_sol_plugin.model.requirements import REQUIREMENTS
from tb_sol_plugin.units import capitalized, human

CATEGORY_COLUMNS = (
    Column("category", "Category", "", "Category as written in the file; empty where the event has none.", "code"),
    Column("phase", "Phase", "", "X complete, i instant, s and f halves of a flow, M metadata, C counter, B and E begin and end.", "badge"),
    Column("count", "Events", "count", "Events of that category and phase in the file.", "bar", color="host"),
)
ISSUE_COLUMNS = (
    Column("reason", "What", "", "What was odd.", "text"),
    Column("count", "Count", "count", "How often."),
    Column("example", "Example", "", "One place where it happened.", "code", rank=2),
    Column("effect", "Effect", "", "What it does to the numbers.", "text"),
)
RECORDED_COLUMNS = (
    Column("what", "What", "", "A kind of data that some pages need.", "text"),
    Column("recorded", "Recorded", "", "Whether this recording holds it.", "badge"),
    Column("because", "Why not", "", "What is missing.", "text"),
    Column("record_it_with", "Record it with", "", "The call or argument that records it.", "code"),
)
LOG_COLUMNS = (
    Column("level", "Level", "", "Source of the message: the profiler, the recorder of a SOL capture, or this reader.", "badge"),
    Column("message", "Message", "", "The line, without secrets.", "text"),
)
FACTS: Final = (
    Fact("total_events", "Events", "count", "Length of traceEvents, all phases; of a SOL capture its records."),
    Fact("host_events", "Host events", "count", "Complete events of the host."),
    Fact("device_events", "Device events", "count", "Complete kernels, copies and sets of memory."),
    Fact("linked_device_events", "With a launch", "count", "Device events whose launch was found."),
    Fact("unlinked_device_events", "Without a launch", "count", "Device events without a launch: before the window, or without a record."),
    Fact("unlinked_device_ns", "Their device time", "ns", "Sum of the durations of the unlinked device events."),
    Fact("clipped_host_events", "Overlapping host events", "count", "Host events that end after the event around them; kept, the "
         "surplus does not count against the parent."),
    Fact("threads", "Threads", "count", "Host threads."),
    Fact("issues", "Kinds of oddities", "count", "Kinds of oddities met while reading."),
    Fact("truncated", "Cut short", "", "Whether the file ended early; the complete events before that are kept."),
    Fact("size", "File size", "B", "Size of the file as stored."),
    Fact("extent_ns", "Time recorded", "ns", "First start to last end over all complete events."),
    Fact("sol_capture", "SOL capture", "", "The SOL capture of this worker, recorded with the trace."),
    Fact("capture_format", "Format", "", "Version of the format of the SOL capture."),
    Fact("mode", "Counted by", "", "How work was counted: at every operator (dispatch), or estimated from modules and functions (hooks)."),
    Fact("iterations", "Iterations", "count", "Iterations that the SOL capture timed."),
    Fact("sampled", "Sampled", "count", "Those whose work was counted."),
    Fact("counted_calls", "Calls counted", "count", "Operator calls counted in the sampled iterations."),
    Fact("unknown_calls", "Without a cost", "count", "Those without a cost: their work is in no sum."),
    Fact("estimated_calls", "Estimated", "count", "Those whose work is estimated, by the fallback mode or for want of sizes."),
    Fact("compiled_calls", "Of compiled code", "count", "Calls of compiled code, counted by running it eagerly."),
    Fact("lost_calls", "Not recorded", "count", "Calls and times that the recorder met and could not record, by its own account."),
    Fact("overhead_share", "Recorder", "ratio", "Measured work of the recorder over all time of the job, that work included; the first "
         "iteration is left out."),
    Fact("overhead_sampled_share", "Recorder, sampled", "ratio", "The same of sampled iterations, with what follows them: analysis, "
         "writing."),
)  # fmt: skip
WORDS = {
    "device_events": "Device activity",
    "host_events": "Host activity",
    "operators": "Operators",
    "shapes": "Input shapes",
    "modules": "Python frames and modules",
    "annotations": "User ranges",
    "steps": "Steps",
    "memory": "Memory events",
    "memory_use": "Memory in use, of any source",
    "collectives": "Communication kernels",
    "backward": "Backward pass",
    "copies": "Copies",
    "moves": "Copies, as events or counted",
    "kernels": "Kernels, as events or summed",
    "events": "Events of the profiler",
    "work": "Work (FLOP and bytes)",
    "iterations": "Iterations of the training loop",
}
MOST_NOTES = 8
IN_ITS_WORK = ("shapes", "backward")
"""Needs that mean single events of a trace; of a SOL capture sizes and direction are part of the work it counts."""
SUMMED = ("moves", "kernels")
"""Needs that say something only where sums stand in the place of events."""


@analysis(
    title="Trace health",
    question="Can I trust this?",
    group="foot",
    order=0,
    query=Query,
    tables={
        "issues": ISSUE_COLUMNS,
        "recorded": RECORDED_COLUMNS,
        "graphs": GRAPH_COLUMNS,
        "categories": CATEGORY_COLUMNS,
        "log": LOG_COLUMNS,
    },
    facts=FACTS,
    count=oddities,
)
def health(capture: Capture, query: Query) -> Report:
    """Returns what the file held and what was done about what was odd; always about the whole file, whatever steps are selected."""
    facts = _facts(capture)
    report = Report(analysis="health", title="Trace health", headline=_headline(capture, facts), notices=_notices(capture, query))
    report.sections = [
        _facts_section(capture, facts),
        *_recorder(capture),
        _issues(capture),
        _recorded(capture),
        *graph_section(capture),
        *([_categories(capture)] if len(capture.tables["categories"]) else []),
        _log(capture),
    ]
    return report


def _facts(capture: Capture) -> dict[str, int | bool]:
    device = capture.device
    unlinked = (device["link"].to_numpy() == S.BEFORE_WINDOW) | (device["link"].to_numpy() == S.NO_RECORD)
    low, high = capture.facts.extent_ns
    return {
        "total_events": capture.facts.total_events,
        "host_events": len(capture.host) - len(captured_rows(capture)),
        "device_events": len(device),
        "linked_device_events": int((~unlinked).sum()),
        "unlinked_device_events": int(unlinked.sum()),
        "unlinked_device_ns": int(device["duration_ns"].to_numpy()[unlinked].sum()),
        "clipped_host_events": int(capture.host["clipped"].to_numpy().sum()),
        "threads": len(capture.tables["threads"]),
        "issues": oddities(capture),
        "truncated": capture.facts.truncated,
        "size": capture.facts.size,
        "extent_ns": high - low,
    }


def _headline(capture: Capture, facts: dict[str, int | bool]) -> str:
    events, word = human(facts["total_events"], "count"), _word(capture)
    if facts["truncated"]:
        return f"The file ends early: **{events} complete {word}** were kept."
    loud = oddities(capture)
    if facts["unlinked_device_events"]:
        share = facts["unlinked_device_events"] / facts["device_events"]
        alone = "have no launch in this recording and are listed in rows of their own"
        return f"All {events} {word} were read; **{human(share, 'ratio')}** of the device events {alone}."
    if loud:
        kinds = "one kind of oddity** was" if loud == 1 else f"{loud} kinds of oddity** were"
        return f"All {events} {word} were read; **{kinds} met, listed below with the effect."
    return f"All **{events} {word}** were read and nothing in them is odd."


def _word(capture: Capture) -> str:
    if is_memory(capture):
        return "rows"
    return "records" if is_capture(capture) else "frames" if is_profile(capture) else "events"


def _notices(capture: Capture, query: Query) -> list[Notice]:
    out = []
    if capture.facts.truncated:
        of = "a record" if is_capture(capture) else "a row" if is_memory(capture) else "an event"
        out.append(Notice(f"The file ends in the middle of {of}. Copy it again if the job has finished.", "warn"))
    if capture.facts.errors:
        count = len(capture.facts.errors)
        out.append(Notice(f"The profiler itself logged {count} {'error' if count == 1 else 'errors'}, listed at the end.", "warn"))
    out += _joined_memory(capture)
    out += replay_notices(capture)
    if query.step:
        out.append(Notice("This page is about the whole file, not about the selected steps.", "info"))
    out += [Notice(f"Device file: {note}.", "warn") for note in capture.devices.notes()[:MOST_NOTES]]
    return out


def _joined_memory(capture: Capture) -> list[Notice]:
    """Returns what of memory is read together with the recording, and what is not and why."""
    found = [f"the {MEMORY_WORDS[what]} {_file_name(file)}" for what, file in joined_files(capture).items()]
    out = [Notice(f"Read together with {' and '.join(found)}.", "info")] if found else []
    return out + [Notice(f"{capitalized(w)}.", "warn") for w in capture.facts.warnings if w.startswith(NOT_JOINED)]


def _file_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _facts_section(capture: Capture, facts: dict[str, int | bool]) -> FactsSection:
    labels: dict[str, str] = {}
    recorded = [word for flag, word in FLAG_WORDS.items() if capture.facts.flags.get(flag)]
    notes = {"total_events": f"recorded with {', '.join(recorded)}"} if recorded else {}
    links = {"unlinked_device_events": Link("links", label="How events were linked")}
    hidden = []
    if is_capture(capture):
        labels |= {"total_events": "Records", "host_events": "Ranges on the host"}
        hidden = [n for n in facts if "device_" in n or n == "threads" or (n == "clipped_host_events" and not facts[n])]
    if is_memory(capture):
        labels |= {"total_events": "Rows"}
        hidden = [n for n in facts if "device_" in n or n in ("host_events", "threads", "clipped_host_events")]
    if is_profile(capture):
        labels |= {"total_events": "Frames"}
        hidden = [n for n in facts if "device_" in n or n in ("host_events", "threads", "clipped_host_events", "extent_ns")]
    return make_facts(
        "facts",
        "What the file held",
        facts,
        FACTS,
        labels=labels,
        subtitle=capture.facts.file,
        notes=notes,
        value_links=links,
        hidden=hidden,
        span=6 if len(capture.tables["iterations"]) else 12,
    )


def _recorder(capture: Capture) -> list[FactsSection]:
    """Returns how a SOL capture was made; nothing where there is none."""
    table, ledger, issues = capture.tables["iterations"], capture.tables["ledger"], capture.tables["issues"]
    if not len(table):
        return []
    sampled = table["sampled"].to_numpy()
    own = recorder_overhead(iterations(capture, None).frame)
    count = ledger["count"].to_numpy()
    unmodeled = ~ledger_costs(capture).usable if len(ledger) else count > 0
    reason = issues["reason"].astype(str)
    metadata = capture.facts.metadata
    attached = "sol_capture." if "sol_capture" in metadata else ""
    values: dict[str, Scalar] = {
        "sol_capture": metadata.get("sol_capture"),
        "capture_format": capture.facts.versions.get("capture_format"),
        "mode": metadata.get(f"{attached}mode"),
        "iterations": len(table),
        "sampled": int(sampled.sum()),
        "counted_calls": int(count.sum()),
        "unknown_calls": int(count[unmodeled].sum()),
        "estimated_calls": int(count[ledger["estimated"].to_numpy()].sum()),
        "compiled_calls": int(count[ledger["compiled"].to_numpy()].sum()),
        "lost_calls": int(issues.loc[reason.str.startswith(LOST), "count"].sum()),
        "overhead_share": own.share,
        "overhead_sampled_share": own.sampled,
    }
    every, clock = metadata.get(f"{attached}every_n_steps", ""), metadata.get(f"{attached}time_source", "")
    notes = {
        "sampled": f"the first two, then one in {every}" if every.isdigit() and int(every) > 1 else "",
        "mode": {"cpu": "times of the host", "event": "times by device events"}.get(clock, ""),
    }
    return [
        make_facts(
            "recorder",
            "The SOL capture of this worker" if attached else "How it was recorded",
            values,
            FACTS,
            subtitle="without the recorder's own work in any time",
            span=6,
            notes={n: text for n, text in notes.items() if text},
            hidden=[n for n, v in values.items() if v is None or (v == 0 and n in ("estimated_calls", "compiled_calls", "lost_calls"))],
            value_links={"iterations": Link("iterations", label="Over iterations")},
        )
    ]


def _recorded(capture: Capture) -> TableSection:
    rows = []
    for need in REQUIREMENTS:
        if (is_capture(capture) and need in IN_ITS_WORK) or need in ("program", "serving"):
            continue
        if need in SUMMED and (len(capture.device) or capture.missing(need) is not None):
            continue
        missing = capture.missing(need)
        because, hint, _ = missing or ("", "", "")
        rows.append({"what": WORDS.get(need, need), "recorded": "no" if missing else "yes", "because": because, "record_it_with": hint})
    columns = {c.name: [row[c.name] for row in rows] for c in RECORDED_COLUMNS}
    return make_table("recorded", "What was recorded", columns, RECORDED_COLUMNS, key="what")


def _issues(capture: Capture) -> TableSection:
    return make_table(
        "issues",
        "Oddities",
        capture.tables["issues"],
        ISSUE_COLUMNS,
        subtitle=f"counted by reason; nothing is dropped without a line here{_harmless(capture)}",
        key="reason",
        sort=Sort("count"),
        empty="Nothing odd was met.",
    )


def _harmless(capture: Capture) -> str:
    quiet = len(capture.tables["issues"]) - oddities(capture)
    return f"; {quiet} of them {'is' if quiet == 1 else 'are'} without effect and not counted above" if quiet else ""


def _categories(capture: Capture) -> TableSection:
    table = capture.tables["categories"]
    count = table["count"].to_numpy()
    return make_table(
        "categories",
        "Events by category",
        {"category": table["category"].to_numpy(object), "phase": table["phase"].to_numpy(object), "count": count},
        CATEGORY_COLUMNS,
        subtitle="as written in the file",
        sort=Sort("count"),
        total={"category": "All", "count": int(count.sum())},
        filters=["category", "phase"],
    )


def _log(capture: Capture) -> TableSection:
    voice = "recorder" if is_capture(capture) else "warning"
    rows = [("error", line) for line in capture.facts.errors] + [(voice, line) for line in capture.facts.warnings]
    rows += [("recorder", line) for line in capture.facts.attached_notes]
    return make_table(
        "log",
        "Log",
        {"level": [level for level, _ in rows], "message": [line for _, line in rows]},
        LOG_COLUMNS,
        subtitle="the profiler's own lines, the reader's, and those of what was recorded with it"
        if capture.facts.attached_notes
        else "the recorder's own lines and the reader's"
        if is_capture(capture)
        else "the profiler's own lines and the reader's",
        empty=f"Neither the {'recorder' if is_capture(capture) else 'profiler'} nor the reader logged anything.",
    )
