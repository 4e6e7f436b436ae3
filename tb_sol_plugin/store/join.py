"""Finds the recordings of one process that belong together, and attaches them to its trace or SOL log when that is handed out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tb_sol_plugin import format as F
from tb_sol_plugin.errors import SolError, StillLoading
from tb_sol_plugin.model.recordings import GRAPH_CAPTURE, GRAPH_DETAILS, SNAPSHOT, TIMELINE, WORDS, Recording, natural
from tb_sol_plugin.store.graphs import JoinedFiles, captures_of, join_graphs
from tb_sol_plugin.store.names import rank_in

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture


# -- Recordings of memory alone (allocator snapshots, memory timelines) ----------------------------------------------
# To which trace or SOL log they belong, and which of several is joined to it.


MEMORY_KINDS: Final = (SNAPSHOT, TIMELINE)
MOST_OPENED: Final = 4
"""Recordings of one kind that are opened in search of the one that was made at the time of a capture."""
APART_NS: Final = 60 * 10**9
"""A snapshot or timeline further from a recording is of another run."""
_AFTER: Final = re.compile(r"[^A-Za-z0-9]")


class Index(Struct, frozen=True):
    """Of the recordings of one run: names of workers that could bear memory; recordings of memory by kind, by rank, by bearer."""

    bearers: frozenset[str]
    of_rank: Mapping[tuple[str, int], list[Recording]]
    of_name: Mapping[tuple[str, str], list[Recording]]
    of_kind: Mapping[str, list[Recording]]


def index_of(recordings: Sequence[Recording]) -> Index:
    """Builds the index of the recordings of a run in one pass."""
    bearers = frozenset(r.worker for r in recordings if bears(r))
    index = Index(bearers, defaultdict(list), defaultdict(list), defaultdict(list))
    for r in recordings:
        if r.kind in MEMORY_KINDS:
            rank = rank_in(r.worker)
            index.of_kind[r.kind].append(r)
            index.of_name[r.kind, _bearer_of(r.worker, bearers)].append(r)
            if rank is not None:
                index.of_rank[r.kind, rank].append(r)
    return index


def bears(recording: Recording) -> bool:
    """Whether memory can be joined to it: to a trace or a SOL capture."""
    return recording.kind not in (*MEMORY_KINDS, "proton")


def memory_recordings_of(
    bearer: Recording, recordings: Sequence[Recording], rank: int | None = None, *, index: Index | None = None
) -> list[Recording]:
    """Returns snapshots and timelines of the worker of a trace or a SOL capture among others of its run, in natural order.

    recordings: without SOL logs that are shown with a trace, which bear none.

    Of each kind: by the worker's name, whole or in front of another word (`host_7.memory.pickle`); else by the rank in the name, or as
    the header of the recording says; else where the run has one worker that could bear it and one file's name of that kind.
    """
    if not bears(bearer):
        return []
    found = index_of([bearer, *(r for r in recordings if r.run == bearer.run)]) if index is None else index
    own = rank_in(bearer.worker) if rank is None else rank
    out: list[Recording] = []
    for kind in MEMORY_KINDS:
        there = found.of_kind.get(kind, [])
        named = found.of_name.get((kind, bearer.worker), [])
        ranked = found.of_rank.get((kind, own), []) if own is not None else []
        alone = found.bearers <= {bearer.worker} and len({r.worker for r in there}) == 1
        alone = alone and (own is None or rank_in(there[0].worker) in (None, own))
        out += named or ranked or (there if alone else [])
    return sorted(out, key=lambda r: (r.kind, natural(r.worker), natural(r.span)))


def same_worker(bearer: str, other: str) -> bool:
    """Whether a file's name is that of a worker by itself: by its beginning, or by the rank that both state."""
    rank = rank_in(bearer)
    return bool(_bearer_of(other, frozenset({bearer}))) or (rank is not None and rank_in(other) == rank)


def _bearer_of(name: str, workers: frozenset[str]) -> str:
    """Returns the worker whose name a file's name is, or begins with up to a separator; the longest of several; "" none."""
    if name in workers:
        return name
    ends = [m.start() for m in _AFTER.finditer(name)]
    return next((name[:end] for end in reversed(ends) if name[:end] in workers), "")


def join_memory(capture: Capture, attached: Sequence[Recording], opened: Callable[[Recording], Capture], state: str) -> Capture:
    """Returns the capture with the tables of one snapshot and one timeline out of those of its worker: the one that shares most of its
    time.

    One that cannot be read hides nothing and is named in the warnings, as is one of another time. StillLoading where one is being read.
    """
    from tb_sol_plugin.model.memory_join import with_memory  # with pandas, which a scan does without

    problems: list[str] = []
    chosen: dict[str, Capture] = {}
    for kind in MEMORY_KINDS:
        best = -1
        for recording in _nearest_first(capture, [r for r in attached if r.kind == kind])[:MOST_OPENED]:
            name = recording.file.rpartition("/")[2]
            try:
                other = opened(recording)
            except StillLoading:
                raise
            except SolError as error:
                problems.append(f"{name}: {error.message}")
                continue
            if not (capture.facts.absolute and other.facts.absolute):
                which = "this recording" if other.facts.absolute else f"this {WORDS[kind]}"
                problems.append(f"{name}: {which} does not say when it was, so that their times cannot be compared")
                continue
            shared = shared_ns(capture, other)
            if shared < 0:
                problems.append(f"{name}: this {WORDS[kind]} is of another time")
            elif shared > best:
                chosen[kind], best = other, shared
    if chosen:  # files of other times are none of this recording's, once there is one that is
        kept = {kind: [r.file.rpartition("/")[2] for r in attached if r.kind == kind] for kind in chosen}
        other_times = {f"{name}: this {WORDS[kind]} is of another time" for kind, names in kept.items() for name in names}
        problems = [p for p in problems if p not in other_times]
    return with_memory(capture, chosen, attached_state=state, problems=tuple(problems))


def _nearest_first(capture: Capture, found: list[Recording]) -> list[Recording]:
    """Returns those written soonest after the capture ended; without times the latest first."""
    from tb_sol_plugin.model.memory_join import spans_of

    if not capture.facts.absolute:
        return list(reversed(found))
    end = spans_of(capture)[1] / 1e9
    return sorted(found, key=lambda r: abs(r.mtime - end))


def shared_ns(capture: Capture, other: Capture) -> int:
    """Returns time that two recordings of known times share; -1 where they are further apart than APART_NS.

    A snapshot that keeps a short history may begin after the trace ended, and be of the same run.
    """
    from tb_sol_plugin.model.memory_join import spans_of

    (a, b), (c, d) = spans_of(capture), spans_of(other)
    shared = min(b, d) - max(a, c)
    return max(shared, 0) if shared >= -APART_NS else -1


SOL_CAPTURE: Final = "sol_capture"
WITHOUT_STEPS: Final = (SOL_CAPTURE, "proton", "memory_timeline", "memory_snapshot")
"""Kinds of recordings that no SOL log is shown with: it itself, profiles, which hold sums and no steps, and what an allocator wrote."""
MOST_TRIED: Final = 4
"""SOL captures opened in search of the one that holds the steps of a trace."""
_EPOCH_NS: Final = 10**17


def sol_logs_of(trace: Recording, recordings: Sequence[Recording], rank: int | None = None) -> list[Recording]:
    """Returns SOL captures of a trace's worker among the recordings of its run, in natural order; nothing for what is no trace.

    By the worker's name; else by host and process; else by rank, in the name or as the trace's header says; else where the run has
    one worker of either kind.
    """
    found = [r for r in recordings if r.kind == SOL_CAPTURE and r.run == trace.run]
    if trace.kind in WITHOUT_STEPS or not found:
        return []
    found.sort(key=lambda r: natural(r.span))
    named = [r for r in found if r.worker == trace.worker]
    same = named or [r for r in found if trace.worker in _processes(r)]
    if same:
        return same
    own = rank_in(trace.worker) if rank is None else rank
    if own is not None:
        return [r for r in found if rank_in(r.worker) == own]
    traces = {trace.worker} | {r.worker for r in recordings if r.kind not in WITHOUT_STEPS}
    return found if len(traces) == 1 and len({r.worker for r in found}) == 1 else []


def attached_to(recording: Recording, recordings: Sequence[Recording], rank: int | None = None) -> list[Recording]:
    """Lists what is attached to a recording: recordings of graph captures, SOL logs, snapshots, timelines to a trace; the last two to a
    SOL log without a trace.
    """
    found = [*captures_of(recording, rank), *sol_logs_of(recording, recordings, rank)]
    if not any(r.kind in MEMORY_KINDS for r in recordings):
        return found
    if recording.kind == SOL_CAPTURE and recording in companions(tuple(recordings)):
        return found  # its trace bears them
    return [*found, *memory_recordings_of(recording, [r for r in recordings if r not in found], rank)]


def _processes(capture: Recording) -> tuple[str, ...]:
    """Returns the names of workers that torch's trace handler gives to the process of a SOL capture."""
    found = F.NAME.match(capture.file.rpartition("/")[2])
    return (f"{found['host']}_{found['pid']}",) if found else ()


def companion(recording: Recording, recordings: Sequence[Recording]) -> Recording | None:
    """Returns the other recording of a worker, by names alone: of a trace its SOL capture, of a SOL capture the first trace after it began.

    Of a snapshot or a timeline the recording that it is shown with.
    """
    if recording.kind in MEMORY_KINDS:
        return companions(tuple(recordings)).get(recording)
    if recording.kind != SOL_CAPTURE:
        attached = sol_logs_of(recording, recordings)
        began = _began(recording)
        earlier = [r for r in attached if 0 < _began(r) <= began]
        return earlier[-1] if earlier else attached[-1] if attached else None
    traces = [r for r in recordings if r.kind not in (SOL_CAPTURE, *MEMORY_KINDS) and companion(r, recordings) == recording]
    return min(traces, key=lambda r: natural(r.span), default=None)


@lru_cache(maxsize=256)
def companions(recordings: tuple[Recording, ...]) -> Mapping[Recording, Recording]:
    """Maps every trace of a run to its SOL log, that to its first trace, and memory alone to what it is attached to. Made once per
    listing.
    """
    out: dict[Recording, Recording] = {}
    if not any(r.kind in (SOL_CAPTURE, *MEMORY_KINDS) for r in recordings):
        return out
    for trace in (r for r in recordings if r.kind not in (SOL_CAPTURE, *MEMORY_KINDS)):
        other = companion(trace, recordings)
        if other is not None:
            out[trace] = other
            out.setdefault(other, trace)
    free = [r for r in recordings if not (r.kind == SOL_CAPTURE and r in out)]
    index = index_of(free)
    for bearer in sorted(filter(bears, free), key=lambda r: (r.kind != SOL_CAPTURE, natural(r.span))):  # the latest trace has the last word
        out |= dict.fromkeys(memory_recordings_of(bearer, recordings, index=index), bearer)
    return out


def shown_with_another(recordings: Sequence[Recording]) -> set[Recording]:
    """Returns the SOL logs that are shown with a trace, and memory that is shown with a trace or a SOL log."""
    return {r for r in companions(tuple(recordings)) if r.kind in (SOL_CAPTURE, *MEMORY_KINDS)}


def _began(recording: Recording) -> int:
    """Start in ns since 1970 as the file's name says; 0 where it does not."""
    return int(recording.span) if recording.span.isdigit() and int(recording.span) >= _EPOCH_NS else 0


def attached_state(attached: Sequence[Recording], stamp: Callable[[Recording], str]) -> str:
    """Returns `Capture.attached_state` for these recordings: it changes with any of them."""
    return "|".join(stamp(r) for r in attached)


def with_attached(
    capture: Capture,
    attached: Sequence[Recording],
    opened: Callable[[Recording], Capture],
    state: str,
    fs_options: Mapping[str, object] | None = None,
    joined: JoinedFiles | None = None,
) -> Capture:
    """Returns the capture with the tables of what is attached: a trace with those of a SOL log, either with those of memory alone.

    One that cannot be read is named in the warnings and hides nothing. StillLoading where one is being read. Before that, graph launches
    of a trace get the names of what they replay. joined: where that is kept; None keeps it nowhere.
    """
    with_work = capture if capture.unjoined is None else capture.unjoined.with_devices(capture.devices)
    graphs = [r for r in attached if r.kind in (GRAPH_CAPTURE, GRAPH_DETAILS)]
    unjoined = with_work if graphs else None
    if graphs:
        with_work = join_graphs(with_work, graphs, opened, fs_options or {}, joined)
    if capture.facts.source != SOL_CAPTURE:
        with_work = _with_sol_capture(with_work, [r for r in attached if r.kind == SOL_CAPTURE], opened, state)
    out = join_memory(with_work, [r for r in attached if r.kind in MEMORY_KINDS], opened, state)
    out.unjoined = unjoined
    return out


def _with_sol_capture(trace: Capture, attached: Sequence[Recording], opened: Callable[[Recording], Capture], state: str) -> Capture:
    """Returns the trace with the tables of its SOL capture; of several the one that ran then, else the one that holds its steps."""
    problems: list[str] = []
    chosen: Capture | None = None
    steps = set(trace.steps["number"].tolist()) - {-1}
    for recording in _in_order(trace, attached)[:MOST_TRIED]:
        try:
            other = opened(recording)
        except StillLoading:
            raise
        except SolError as error:
            name = recording.file.rpartition("/")[2]
            problems.append(f"{name}: {error.message}")
            continue
        chosen = chosen or other
        if len(attached) == 1 or _ran_then(trace, other) or steps & set(other.tables["iterations"]["number"].tolist()):
            chosen = other
            break
    return trace.with_ledger(chosen, attached_state=state, unread="; ".join(problems))


def _in_order(trace: Capture, attached: Sequence[Recording]) -> list[Recording]:
    """Returns those begun before the trace first, latest first; then the others, latest first."""
    latest_first = list(reversed(attached))
    if not trace.facts.absolute:
        return latest_first
    end = trace.facts.origin_ns + trace.facts.extent_ns[1]
    return sorted(latest_first, key=lambda r: _began(r) > end)


def _ran_then(trace: Capture, other: Capture) -> bool:
    """Whether the trace began while the other recording ran."""
    iterations = other.tables["iterations"]
    if not (trace.facts.absolute and other.facts.absolute and len(iterations)):
        return False
    from tb_sol_plugin.model.capture import own_work_until

    start = trace.facts.origin_ns - other.facts.origin_ns
    begun = iterations["start_ns"].to_numpy()
    begun = begun + own_work_until(other, begun)
    return bool(int(begun[0]) <= start <= int(begun[-1]) + int(iterations["duration_ns"].iloc[-1]) + int(60e9))
