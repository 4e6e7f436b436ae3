"""Counts what is odd in a recording, one line per reason whatever the number."""

from __future__ import annotations

import pandas as pd

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables.arrays import few_texts

EFFECTS = {
    "digits past nanoseconds": "rounded half up to whole nanoseconds",
    "time in an unusual form": "read as a decimal number",
    "complete event without ts": "has no place in time: counted, not shown on the timeline nor in any sum",
    "complete event without dur": "kept as a call of length 0",
    "negative duration": "kept as a call of length 0",
    "time out of range": "counted, not placed",
    "time of another clock": "more than ten years from the other events: counted, not placed",
    "event without a name": "shown as (unnamed)",
    "name above the length limit": "its beginning is shown, with its length; different names stay different",
    "event without a category": "shown under the category unknown",
    "arguments that are not an object": "read as if there were none",
    "entry that is not an event": "skipped",
    "unknown phase": "counted, not shown",
    "event of a rare category among thousands": "counted, not shown",
    "NaN, Infinity or N/A": "read as not recorded",
    "invalid escape or control character": "read as the literal character",
    "bytes that are not UTF-8": "shown as a replacement character",
    "unreadable event": "skipped; all others are kept",
    "header text above the length limit": "its beginning is kept",
    "header value above the length limit": "read as not recorded",
    "begin or end event without its partner": "a begin without an end: kept as a call of length 0",
    "overlaps its enclosing event": "kept; the part outside does not count against the encloser",
    "zero-length event": "counted as a call, adds no time",
    "launched before the window": "in all device totals, as a row of its own",
    "no launch record": "in all device totals, belongs to no operator, module or phase",
    "starts before its launch": "shown as recorded: the device's clock differs from its host's",
    "two calls with one correlation": "device events go to the last call that starts before them",
    "unknown copy direction": "shown as Unknown",
    "copy without bytes": "its time counts, its bytes and bandwidth are unknown",
    "memory total below what was allocated": "shown as recorded: parts may exceed it, and what is unknown is then below zero",
    "number that no device has": "read as not recorded",
    "copy with an impossible size": "its time counts, its bytes and bandwidth are unknown",
    "copy larger than its device's memory": "kept as recorded and marked",
    "copy without a stream": "its stream is unknown",
    "copy whose name and kind disagree": "the name decides",
    "recorded bandwidth disagrees with bytes over time": "not used: bandwidth is bytes over time",
    "backward operator without a forward": "its device time is in no module's backward column",
    "step without device events": "marked incomplete and left out of averages",
    "flow with one half": "not used; the correlation decides",
    "same-stream overlap": "busy time is a union, so it counts once",
    "GPU copy of a user annotation": "not GPU work",
    "annotation of a collective without a kernel": "host communication only",
    "python parent that is not in the file": "placed by time on its thread",
    # SOL captures
    "line that is not a record": "skipped; all others are kept",
    "line above the length limit": "skipped; all others are kept",
    "line of too many values": "skipped; all others are kept",
    "damaged packed record": "the lines before the damage are kept",
    "packed record above the size limit": "skipped; all others are kept",
    "packed record with a nested or header record": "these are skipped; all others are kept",
    "record of an unknown kind": "passed over: a newer version wrote it",
    "record with missing fields": "skipped",
    "value of the wrong type": "read as not recorded",
    "row that cannot be read": "skipped; the other rows of its record are kept, but for those after 100,000 such rows",
    "truncated last line": "the record being written when the recorder was ended; all before it are kept",
    "truncated file": "read up to where it is whole",
    "no close record": "the recorder is still running, or was ended from outside; all finished iterations are there",
    "no readable header": "rank, device, clock and versions are unknown",
    "second header in one file": "read on as another part of the recording",
    "header of another format": "skipped",
    "id out of range": "not defined; what refers to it counts without it",
    "id defined twice": "the later definition holds for what follows",
    "label of an unknown type": "skipped; what refers to it counts without it",
    "label whose parent is not defined before it": "shown at the top",
    "module that is not defined": "its work counts without a module",
    "phase that is not defined": "its work counts without a phase",
    "function that is not defined": "its work counts without a function",
    "range without a label": "skipped",
    "work of a signature that is not defined": "counted as calls without a cost",
    "work with an impossible number of calls": "skipped",
    "impossible number of copies": "skipped",
    "impossible number of bytes of copies": "copies without a size",
    "more copies without a size than copies": "all of them are without a size",
    "more waiting copies than copies": "how many of them the host waited for is unknown",
    "copies of an unknown direction": "shown as Unknown",
    "copies of early iterations": "left out: there are too many",
    "memory record without a time": "skipped",
    "peak memory below current memory": "the largest use is unknown",
    "impossible number of bytes of memory": "unknown; a part of memory without its bytes is skipped",
    "memory of an impossible device index": "shown as memory of the host",
    "impossible memory breakdown": "skipped; the other parts of its record are kept",
    "tensors larger than their storages": "taken to be as large as these",
    "memory records beyond the limit": "left out: there are too many",
    "memory breakdown rows beyond the limit": "left out: there are too many",
    "tensor that the recorder could not count": "in no sum of memory",
    "memory that the recorder could not read": "unknown",
    "impossible amount of work": "unknown; worked out from the sizes where they are known",
    "negative time": "read as not timed",
    "iteration without a number": "skipped",
    "iteration without its time": "skipped",
    "iteration with the number of an earlier one": "the later one stands on the timeline",
    "sampled iteration without its work": "listed as not sampled",
    "work of an iteration that has no step record": "in no step: not in the sums",
    "ranges summed up while recording": "in the sums, not on the timeline",
    "work of early iterations": "left out: the recording is too long; the latest iterations are kept",
    "times of early iterations": "left out: the recording is too long; the latest iterations are kept",
}


class Health:
    """Reasons with a count and one example; `table()` is the `issues` table, most frequent first."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, str] = {}
        self._effects: dict[str, str] = {}

    def add(self, reason: str, count: int = 1, example: str = "", effect: str = "") -> None:
        """Count `reason`; the first example and effect given stay. Counts of 0 add nothing."""
        if count <= 0:
            return
        self._counts[reason] = self._counts.get(reason, 0) + int(count)
        self._examples.setdefault(reason, example[:200])
        self._effects.setdefault(reason, effect or EFFECTS.get(reason, ""))

    def count(self, reason: str) -> int:
        """Returns how often a reason was counted so far."""
        return self._counts.get(reason, 0)

    def table(self) -> pd.DataFrame:
        order = sorted(self._counts, key=lambda r: (-self._counts[r], r))
        return S.ISSUES.frame(
            {
                "reason": pd.Categorical(order, categories=order),
                "count": [self._counts[r] for r in order],
                "example": few_texts([self._examples[r] for r in order]),
                "effect": few_texts([self._effects[r] for r in order]),
            }
        )
