"""Finds the recordings of graph captures that hold for a trace, gives its graph launches their names, and keeps the outcome on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from tb_sol_plugin.errors import NotFound, SolError, StillLoading
from tb_sol_plugin.model.recordings import GRAPH_CAPTURE, GRAPH_DETAILS, Recording
from tb_sol_plugin.store.kept import code_state
from tb_sol_plugin.store.names import near, rank_in

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.store.cache import Cache

NO_CAPTURE: Final = "none"
"""In place of the name of a capture recording: graph launches get no names."""
MOST_CHOICES: Final = 500
"""Names of capture recordings that are offered."""
LARGEST_DETAILS: Final = 4 << 20
"""Bytes of an `execution_details.json` at most."""


# -- which recordings ------------------------------------------------------------------------------------------------


def captures_of(recording: Recording, rank: int | None) -> list[Recording]:
    """Returns the files about graph captures that hold for a trace: of its rank or of none; of the first rank where there is none of its
    own. Ranks replay the same kernels, and names decide.
    """
    own = rank_in(recording.worker) if rank is None else rank
    ranks = {r: rank_in(r.worker) for r in recording.captures}
    known = sorted({n for n in ranks.values() if n is not None})
    chosen = own if own in known else known[0] if known else None
    return [r for r, n in ranks.items() if n is None or n == chosen]


def capture_choices(captures: Iterable[Recording]) -> list[str]:
    """Returns the names that a reader may choose among: folders that hold several recordings of captures, then each of these."""
    found = [r.file for r in captures if r.kind == GRAPH_CAPTURE]
    folders = [folder for folder in dict.fromkeys(map(_folder, found)) if folder and sum(_folder(f) == folder for f in found) > 1]
    return [*folders, *found][:MOST_CHOICES]


def with_chosen(recording: Recording, name: str, captures: Sequence[Recording], traces: Sequence[Recording]) -> Recording:
    """Returns a trace with the recordings of captures that a reader names, in place of those that lie beside it; others as they are.

    name: a file or a folder of `capture_choices`, a trace of an eager run among `traces`, NO_CAPTURE, or "" for those beside it.
    captures: all files about captures that were listed. NotFound offers near names.
    """
    if not name or recording.kind != "kineto":
        return recording
    if name == NO_CAPTURE:
        return msgspec.structs.replace(recording, captures=())
    there = [r for r in captures if r.kind == GRAPH_CAPTURE and name in (r.file, _folder(r.file))]
    folders = {_folder(r.file) for r in there}
    there += [r for r in captures if r.kind == GRAPH_DETAILS and _folder(r.file) in folders]
    if not there:
        there = [msgspec.structs.replace(r, kind=GRAPH_CAPTURE, captures=()) for r in traces if r.kind == "kineto" and r.file == name]
    if not there:
        hint = near(name, [*capture_choices(captures), *(r.file for r in traces if r.kind == "kineto"), NO_CAPTURE])
        raise NotFound(f"no recording of graph captures {name[:80]!r} here", hint=hint, field="capture")
    return msgspec.structs.replace(recording, captures=tuple(there))


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


# -- what they tell --------------------------------------------------------------------------------------------------


class JoinedFiles(Struct, frozen=True):
    """Where a trace whose graph launches have names is kept: as an entry of the cache of its own, under both fingerprints."""

    cache: Cache
    key: str

    @classmethod
    def of(cls, cache: Cache, trace: str, attached: Sequence[Recording], key_of: Callable[[Recording], str]) -> JoinedFiles | None:
        """Returns where to keep a trace with the capture recordings among `attached`; None where there are none.

        trace: name of the entry of the trace alone. The name changes with any of the files, and with the code that aligns them.
        """
        graphs = [key_of(r) for r in attached if r.kind in (GRAPH_CAPTURE, GRAPH_DETAILS)]
        if not graphs:
            return None
        text = "\0".join((code_state(), trace, *graphs))
        return cls(cache, hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest())

    def load(self, plain: Capture) -> Capture | None:
        """Returns the trace with its names, under the names of the plain one; None where it is not kept."""
        from tb_sol_plugin.model.capture import Capture

        found = self.cache.load(self.key)
        if found is None:
            return None
        facts = msgspec.structs.replace(found.facts, file=plain.facts.file, size=plain.facts.size)
        return Capture(facts, found.tables, run=plain.run, worker=plain.worker, span=plain.span, devices=plain.devices)


def join_graphs(
    trace: Capture, attached: Sequence[Recording], opened: Callable[[Recording], Capture], fs_options: Mapping[str, object],
    joined: JoinedFiles | None = None,
) -> Capture:  # fmt: skip
    """Returns the trace with what its graph launches replay, as its recordings of graph captures have it.

    One that cannot be read hides nothing and is named in the warnings. StillLoading where one is being read. Nothing is opened where no
    graph was launched, nor where the outcome is kept in `joined`.
    """
    if not bool(trace.device["graph"].to_numpy().any()):
        return trace
    found = joined.load(trace) if joined is not None else None
    if found is not None:
        return found
    made, whole = _with_names(trace, attached, opened, fs_options)
    if joined is not None and whole and joined.cache.save(joined.key, made):
        return joined.load(trace) or made  # mapped from the disk, not held in memory
    return made


def _with_names(
    trace: Capture, attached: Sequence[Recording], opened: Callable[[Recording], Capture], fs_options: Mapping[str, object]
) -> tuple[Capture, bool]:
    """Returns (the trace with the names of what its graphs replay, whether every file could be read)."""
    from tb_sol_plugin.model.graph_capture import GraphSet, Stated, eager_sets, graph_names, graph_sets, stated_in
    from tb_sol_plugin.model.graph_join import with_graphs

    captures = [r for r in attached if r.kind == GRAPH_CAPTURE]
    problems: list[str] = []
    stated: dict[str, Stated] = {}
    whole = True
    for details in (r for r in attached if r.kind == GRAPH_DETAILS):
        name = details.file.rpartition("/")[2]
        try:
            stated |= stated_in(_text_of(details, fs_options), [r.path.replace("\\", "/").rpartition("/")[2] for r in captures])
        except (OSError, ValueError) as error:
            whole = whole and not isinstance(error, OSError)
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            problems.append(f"{name}: {why}; what each capture is for is taken from its annotations")
    sets: list[GraphSet] = []
    for recording in captures:
        name = recording.file.rpartition("/")[2]
        try:
            read = opened(recording)
            said = stated.get(recording.path.replace("\\", "/").rpartition("/")[2])
            made, lost = graph_sets(read, name, said)
            if not any(graph_names(graph) for one in made for graph in one.graphs):  # CUPTI's, or an eager run
                made += eager_sets(read, name, said)
        except StillLoading:
            raise
        except SolError as error:
            whole = False
            problems.append(f"{name}: {error.message}")
            continue
        sets += made
        if lost:
            problems.append(f"{name}: {lost:,} of its stream captures have no end or hold no launch; record the captures as a whole")
        elif not made:  # neither captures nor eager work
            problems.append(
                f"{name}: no stream capture was recorded in it, and no iteration that ran eagerly; profile the time in which the engine "
                "captures its graphs, or an iteration without graphs"
            )
    return with_graphs(trace, sets, problems=problems), whole


def _text_of(recording: Recording, fs_options: Mapping[str, object]) -> str:
    """Returns a small text file. OSError; ValueError where it is none."""
    from tb_sol_plugin.store import files

    with files.opener(recording.path, fs_options)() as stream:
        body = stream.read(LARGEST_DETAILS + 1)
    if len(body) > LARGEST_DETAILS:
        raise ValueError(f"larger than {LARGEST_DETAILS >> 20} MiB")
    return body.decode("utf-8-sig")
