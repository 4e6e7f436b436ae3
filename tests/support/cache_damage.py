"""Damages what a cache holds at random and asks for it again: `python -m tests.support.cache_damage --count 2000`. The status is 1 for a fault.

Every time the tables, facts, reductions, answers and timelines that come back must be those of a fresh read. A crash ends the program,
which is a fault too.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np

from tb_sol_plugin.metrics.timeline.kept import Stored
from tb_sol_plugin.metrics.timeline.timeline import Timeline, root_of
from tb_sol_plugin.model import schemas
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import Recording, Reduced, ReducedFacts
from tb_sol_plugin.store import timelines
from tb_sol_plugin.store.cache import Cache, cache_key
from tb_sol_plugin.store.kept import KeptFiles
from tb_sol_plugin.store.load import open_here
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.reductions import ReductionFiles
from tb_sol_plugin.store.timelines import KeptTimeline
from tb_sol_plugin.web.answers import FOLDER
from tests.support.trace_builder import TraceBuilder


class Kept:
    """Two recordings in a cache, with a reduction, an answer and a timeline each, and what fresh reads of them give."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.options = StoreOptions(cache_dir=str(self.cache))
        self.recordings = [_recording(folder, name) for name in ("a", "b")]
        none = StoreOptions(cache_dir="")
        self.fresh = [open_here(recording, none) for recording in self.recordings]
        self.parts = {f"{cache_key(r)}-part": _part(r) for r in self.recordings}
        self.answers = {f"{cache_key(r)[::-1]}": r.file.encode() * 99 for r in self.recordings}
        self.timelines = [Timeline(capture) for capture in self.fresh]
        assert all(one.pyramid.levels for one in self.timelines)
        self.fill()

    def fill(self) -> None:
        """Put back what is missing."""
        files = ReductionFiles(self.cache)
        for key, body in self.parts.items():
            files.save(key, body)
        for key, body in self.answers.items():
            self._answers.save(key, body)
        for recording, shown in zip(self.recordings, self.timelines, strict=True):
            open_here(recording, self.options)
            kept = KeptTimeline(Cache(self.cache), cache_key(recording))
            if kept.load(root_of(shown.capture), len(shown.events)) is None:
                assert kept.save(*shown.to_keep()), "timelines of few events are kept where `store.timelines.FEWEST` is 1"

    @property
    def _answers(self) -> KeptFiles:
        return KeptFiles(self.cache, FOLDER)

    def damage(self, dice: random.Random) -> str:
        """Damages one or two files; returns how."""
        what = dice.choice(("flip", "flip", "flip", "cut", "grow", "swap", "swap", "swap entries", "remove", "zeros"))
        files = sorted(path for path in self.cache.rglob("*") if path.is_file())
        apart = [p for p in files if p.suffix == ".part" or p.name.startswith("timeline")]
        path = dice.choice(apart if dice.random() < 0.3 else files)
        body = bytearray(path.read_bytes())
        if what == "flip":
            for _ in range(dice.choice((1, 1, 2, 20))):
                body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
            path.write_bytes(body)
        elif what == "cut":
            os.truncate(path, dice.randrange(len(body)))
        elif what == "grow":
            path.write_bytes(bytes(body) + bytes(dice.randrange(1, 5000)))
        elif what == "zeros":
            path.write_bytes(bytes(len(body)))
        elif what == "remove":
            path.unlink()
        elif what == "swap":
            same = [p for p in files if p.suffix == path.suffix and p != path and (dice.random() < 0.5 or p.name == path.name)]
            _swap(path, dice.choice(same or files), self.cache / "x")
        else:
            _swap(*(self.cache / cache_key(r) for r in self.recordings), self.cache / "x")
        return f"{what} {path.relative_to(self.cache)}"

    def differs(self) -> str:
        """Returns what comes back otherwise than fresh, "" for nothing; afterwards the cache is whole again."""
        for recording, fresh in zip(self.recordings, self.fresh, strict=True):
            found = open_here(recording, self.options)
            if other := different(found, fresh):
                return f"{recording.file}: {other}"
        files = ReductionFiles(self.cache)
        for key, body in self.parts.items():
            if files.load(key) not in (None, body):
                return f"reduction {key}"
        for key, body in self.answers.items():
            if self._answers.load(key) not in (None, body):
                return f"answer {key}"
        for recording, shown in zip(self.recordings, self.timelines, strict=True):
            kept = KeptTimeline(Cache(self.cache), cache_key(recording)).load(root_of(shown.capture), len(shown.events))
            if kept is not None and (other := different_timeline(kept, shown)):
                return f"timeline of {recording.file}: {other}"
        self.fill()
        return ""


def different(found: Capture, fresh: Capture) -> str:
    """Returns which part of a capture is another one, "" for none. Linear in its rows."""
    if found.facts != fresh.facts:
        return "facts"
    return next((name for name in schemas.ALL if not found.tables[name].equals(fresh.tables[name])), "")


def different_timeline(found: Stored, shown: Timeline) -> str:
    """Returns which part of a kept timeline is another one, "" for none."""
    head, parts = shown.to_keep()
    if msgspec.json.encode(found.head) != msgspec.json.encode(head):
        return "head"
    for name, part in parts.items():
        got = found.part(name)
        if got is not None and not (list(got) == list(part) and all(np.array_equal(got[c], part[c]) for c in part)):
            return name
    return ""


def _recording(folder: Path, name: str) -> Recording:
    trace = TraceBuilder()
    trace.step(1, 1_000, 90_000)
    for i in range(40 if name == "a" else 43):
        trace.op(f"aten::{name}{i % 7}", 2_000 + 1_000 * i, 500)
        trace.launch(f"gemm_{name}{i % 5}", at=2_100 + 1_000 * i, start=2_200 + 1_000 * i, duration=600)
    for i in range(400):  # more than one to a bucket, so that the timeline has levels
        trace.op("short", 60_000 + 20 * i, 3)
    path = trace.write(folder / f"{name}.json")
    info = path.stat()
    return Recording("", name, "", str(path), path.name, info.st_size, info.st_mtime, "kineto")


def _part(recording: Recording) -> bytes:
    return msgspec.msgpack.encode(Reduced(ReducedFacts("kineto", None, None, "", "", (), 0, False, (0, 0)), recording.file.encode() * 50))


def _swap(one: Path, other: Path, free: Path) -> None:
    if one != other:
        one.rename(free)
        other.rename(one)
        free.rename(other)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    faulthandler.enable()
    timelines.FEWEST = 1  # type: ignore[misc]
    faults = 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tb-sol-damage-") as folder:
        kept = Kept(Path(folder))
        for number in range(options.count):
            what = kept.damage(random.Random(f"{options.seed} {number}"))
            try:
                other = kept.differs()
            except Exception as error:
                other = f"{type(error).__name__}: {error}"
            if other:
                faults += 1
                print(f"FAULT {number}: {what}: {other}", flush=True)
                kept.fill()
    print(f"{options.count} damages, {faults} faults, {time.monotonic() - begin:.0f} s")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
