"""What an allocator's snapshot says of who held memory at any moment of its history: worked back from the blocks at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.held import Groups, summed
from tb_sol_plugin.metrics.memory.lines import own_line, stack_text
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints

NO_LINE: Final = "(no call stack)"


@dataclass(frozen=True)
class Lives:
    """Allocations of one device with their place in its history: one entry per allocation.

    first: entry that allocated it, -1 before the history. stop: entry after which it is gone, -1 never. bytes: that were asked for.
    stack: code of its call stack in `texts`, -1 unknown: freed in the history, allocated before it.
    """

    first: Ints
    stop: Ints
    bytes: Ints
    stack: Ints
    texts: tuple[str, ...]

    def at(self, place: int) -> npt.NDArray[np.intp]:
        """Those that live after entry `place` (-1: before the first)."""
        return np.flatnonzero((self.first <= place) & ((self.stop < 0) | (self.stop > place)))


def lives(capture: Capture, device: int) -> Lives:
    """Every allocation that the history or the blocks of a device name."""
    return memo(capture, ("memory.lives_of_blocks", device), lambda: _lives(capture, device))


def _lives(capture: Capture, device: int) -> Lives:
    events, blocks = capture.tables[S.MEMORY_EVENTS.name], capture.tables[S.MEMORY_BLOCKS.name]
    events, blocks = events[events["device"] == device], blocks[blocks["device"] == device]
    gain = arrays.where(events["action"], lambda a: a == "alloc")
    free = arrays.where(events["action"], lambda a: a == "free_requested")
    address = events["address"].to_numpy()
    size = events["bytes"].to_numpy().clip(min=0)
    use = np.flatnonzero(gain | free)
    order = use[np.argsort(address[use], kind="stable")]
    same = np.r_[address[order][1:] == address[order][:-1], False] if len(order) else np.zeros(0, bool)
    begins = gain[order]
    nxt = np.where(same, np.r_[order[1:], -1] if len(order) else order, -1)
    starts = order[begins]
    stop = nxt[begins]
    ended = np.zeros(len(events), bool)  # frees whose allocation the history holds
    followed = stop[stop >= 0]
    ended[followed[free[followed]]] = True
    alone = np.flatnonzero(free & ~ended)
    open_at = set(address[starts[stop < 0]].tolist())
    state = arrays.where(blocks["state"], lambda s: s == "active_allocated") if len(blocks) else np.zeros(0, bool)
    at = blocks["address"].to_numpy()
    older = np.flatnonzero(state & ~np.fromiter((a in open_at for a in at.tolist()), bool, len(at)))
    asked = np.where(blocks["requested"].to_numpy() >= 0, blocks["requested"].to_numpy(), blocks["bytes"].to_numpy()).clip(min=0)
    names: dict[str, int] = {}
    of_events = _codes(events["frames"], names)
    of_blocks = _codes(blocks["frames"], names)
    none = np.full(len(alone), -1, np.int64)
    return Lives(
        first=np.concatenate([starts, none, np.full(len(older), -1, np.int64)]),
        stop=np.concatenate([stop, alone, np.full(len(older), -1, np.int64)]),
        bytes=np.concatenate([size[starts], size[alone], asked[older]]),
        stack=np.concatenate([of_events[starts], none, of_blocks[older]]),
        texts=tuple(names),
    )


def _codes(column: pd.Series, names: dict[str, int]) -> Ints:
    """Per row the number of its text in `names`, which grows."""
    every = [*(str(text) for text in column.cat.categories), ""]
    of = np.array([names.setdefault(text, len(names)) for text in every], np.int64)
    return of[arrays.codes(column)]


def by_line(capture: Capture, device: int, place: int) -> tuple[Groups, int]:
    """(allocations that live after entry `place` by the line of the program, bytes of those allocated before whose stack is unknown)."""
    every = lives(capture, device)
    alive = every.at(place)
    known = alive[every.stack[alive] >= 0]
    stack = every.stack[known]
    seen, inverse = np.unique(stack, return_inverse=True)
    said = [own_line(every.texts[i]) or NO_LINE for i in seen.tolist()]
    names: dict[str, int] = {}
    of_stack = np.array([names.setdefault(text, len(names)) for text in said], np.int64)
    code = of_stack[inverse] if len(seen) else np.zeros(0, np.int64)
    size = every.bytes[known]
    largest = [""] * len(names)
    for i in np.argsort(size, kind="stable").tolist():
        largest[int(code[i])] = every.texts[int(stack[i])]
    groups = summed(code, list(names), size, stacks=[stack_text(text) for text in largest])
    return groups, int(every.bytes[alive].sum()) - int(size.sum())


def freed_from_before(capture: Capture, device: int, place: int) -> int:
    """Bytes from before the history that were freed up to entry `place`."""
    every = lives(capture, device)
    gone = (every.first < 0) & (every.stop >= 0) & (every.stop <= place)
    return int(every.bytes[gone].sum())
