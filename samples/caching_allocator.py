"""A made-up caching allocator that follows the published rules of torch's: sizes, pools, best fit, splitting, what it gives back.

Sizes round up to 512 bytes. Up to 1 MiB they come out of segments of 2 MiB, up to 10 MiB out of segments of 20 MiB, larger ones out of a
segment of their own, rounded up to 2 MiB. The smallest free block that fits is taken, and what is left of it is cut off where it is worth
it. When the device is full, segments without a live block are given back, and the request is tried once more.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

MIB = 1 << 20
SMALL, SMALL_SEGMENT, MIDDLE, MIDDLE_SEGMENT, ROUND = 1 * MIB, 2 * MIB, 10 * MIB, 20 * MIB, 2 * MIB


@dataclass
class Block:
    """A part of a segment. requested: bytes asked for, 0 while it is free. stack: frames of its allocation. about: its owner."""

    address: int
    size: int
    segment: Segment
    requested: int = 0
    stack: list[dict[str, object]] = field(default_factory=list)
    about: tuple[str, ...] = ()

    @property
    def free(self) -> bool:
        return self.requested == 0


@dataclass
class Segment:
    address: int
    size: int
    small: bool
    blocks: list[Block] = field(default_factory=list)

    @property
    def live(self) -> bool:
        return any(not b.free for b in self.blocks)


class OutOfMemory(Exception):
    """Carries what was free on the device."""

    def __init__(self, free: int) -> None:
        super().__init__(free)
        self.free = free


class Allocator:
    """One device. outside: bytes of it that are no segments: the context and the communication library.

    events: (action, address, bytes) of the last call, in order, as a history names them.
    """

    def __init__(self, total: int, outside: int) -> None:
        self.total, self.outside = total, outside
        self.segments: list[Segment] = []
        self.allocated = self.reserved = 0
        self.events: list[tuple[str, int, int]] = []
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._blocks: dict[int, Block] = {}
        self._next = 0x7F2000000000

    @property
    def device_free(self) -> int:
        return self.total - self.outside - self.reserved

    def allocate(self, size: int) -> Block:
        """A block of at least `size` bytes. OutOfMemory where the device has no room for it."""
        self.events = []
        rounded = max(-(-size // 512) * 512, 512)
        small = rounded <= SMALL
        pool = self._free[small]
        at = bisect_left(pool, (rounded, 0))
        block = self._blocks[pool.pop(at)[1]] if at < len(pool) else self._segment(rounded, small)
        left = block.size - rounded
        if left >= 512 if small else left > SMALL:
            rest = Block(block.address + rounded, left, block.segment)
            block.size = rounded
            block.segment.blocks.insert(block.segment.blocks.index(block) + 1, rest)
            self._keep(rest)
        block.requested = size
        self.allocated += block.size
        self.events.append(("alloc", block.address, size))
        return block

    def release(self, block: Block) -> None:
        """Give a block back to its pool."""
        self.events = [("free_requested", block.address, block.requested), ("free_completed", block.address, block.requested)]
        self.allocated -= block.size
        block.requested, block.stack, block.about = 0, [], ()
        around = block.segment.blocks
        at = around.index(block)
        for other in (at + 1, at - 1):
            if 0 <= other < len(around) and around[other].free:
                self._drop(around[other])
        first, last = at, at
        if at > 0 and around[at - 1].free:
            first = at - 1
        if at + 1 < len(around) and around[at + 1].free:
            last = at + 1
        whole = Block(around[first].address, sum(b.size for b in around[first : last + 1]), block.segment)
        around[first : last + 1] = [whole]
        self._keep(whole)

    def _segment(self, rounded: int, small: bool) -> Block:
        size = SMALL_SEGMENT if small else MIDDLE_SEGMENT if rounded < MIDDLE else -(-rounded // ROUND) * ROUND
        if size > self.device_free:
            self._give_back()
        if size > self.device_free:
            self.events.append(("oom", self.device_free, size))
            raise OutOfMemory(self.device_free)
        segment = Segment(self._next, size, small)
        self._next += -(-size // ROUND) * ROUND + (ROUND << 4)
        segment.blocks.append(Block(segment.address, size, segment))
        self.segments.append(segment)
        self.reserved += size
        self.events.append(("segment_alloc", segment.address, size))
        self._blocks[segment.address] = segment.blocks[0]
        return segment.blocks[0]

    def _give_back(self) -> None:
        """Returns segments without a live block to the device."""
        for segment in [s for s in self.segments if not s.live]:
            self._drop(segment.blocks[0])
            self.segments.remove(segment)
            self.reserved -= segment.size
            self.events.append(("segment_free", segment.address, segment.size))

    def _keep(self, block: Block) -> None:
        insort(self._free[block.segment.small], (block.size, block.address))
        self._blocks[block.address] = block

    def _drop(self, block: Block) -> None:
        pool = self._free[block.segment.small]
        del pool[bisect_left(pool, (block.size, block.address))]

    # -- snapshots -------------------------------------------------------------------------------------------

    def cut_off(self) -> int:
        """Returns the free bytes in segments with live blocks: these cannot be returned to the device."""
        return sum(b.size for s in self.segments if s.live for b in s.blocks if b.free)

    def largest_free(self) -> int:
        """The largest free block."""
        return max((b.size for s in self.segments for b in s.blocks if b.free), default=0)

    def dump(self) -> list[dict[str, object]]:
        """The segments as a snapshot lists them, in order of their addresses."""
        out: list[dict[str, object]] = []
        for s in self.segments:
            live = [b for b in s.blocks if not b.free]
            blocks = [{
                "address": b.address, "size": b.size, "requested_size": b.requested,
                "state": "inactive" if b.free else "active_allocated", "frames": b.stack,
            } for b in s.blocks]  # fmt: skip
            out.append({
                "device": 0, "address": s.address, "total_size": s.size, "allocated_size": sum(b.size for b in live),
                "active_size": sum(b.size for b in live), "requested_size": sum(b.requested for b in live), "stream": 0,
                "segment_type": "small" if s.small else "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                "blocks": blocks,
            })  # fmt: skip
        return out
