"""A run of twelve ranks whose copies are known: eleven files, of which one is broken, one empty, and one rank is there twice.

Rank r of the job of 13 (0 to 12), two steps each; rank 5 has no file, rank 12 neither; ranks 8 (broken) and 9 (empty) cannot be read.
Per step: one upload of 1,000,000 bytes in 40 us, except rank 7, whose takes 400 us; one copy back of 4,096 bytes in 10 us. Of the upload
the first 10 us lie behind a kernel of 10 us. Rank 3 has a second, shorter file of one step, whose upload takes 90 us.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.support.trace_builder import TraceBuilder

WORLD = 13
STEP = 1_000_000
UPLOAD_NS, SLOW_NS, BACK_NS, KERNEL_NS = 40_000, 400_000, 10_000, 10_000
UPLOAD_BYTES, BACK_BYTES = 1_000_000, 4096
READ = (0, 1, 2, 3, 4, 6, 7, 10, 11)


def rank_trace(rank: int, *, steps: int = 2, upload_ns: int = UPLOAD_NS, world: int = WORLD) -> TraceBuilder:
    """One rank: per step an upload of which 10 us are hidden, and a copy back."""
    t = TraceBuilder(rank=rank, world_size=world)
    for i in range(steps):
        at = i * STEP
        t.step(i + 1, at, STEP)
        t.launch("gemm", at=at + 100_000, start=at + 200_000, duration=KERNEL_NS, stream=7)
        t.copy("HtoD", at + 200_000, upload_ns, src="Pinned", dst="Device", bytes=UPLOAD_BYTES, call=(at + 110_000, 5_000), stream=8)
        t.copy("DtoH", at + 800_000, BACK_NS, src="Device", dst="Pinned", bytes=BACK_BYTES, call=(at + 700_000, 5_000), stream=8)
    return t


def write_run(folder: Path) -> Path:
    """Write the run into a folder; returns it."""
    for rank in READ:
        upload = SLOW_NS if rank == 7 else UPLOAD_NS
        rank_trace(rank, upload_ns=upload).write(folder / f"rank{rank}.1700000000000000000.pt.trace.json.gz")
    rank_trace(3, steps=1, upload_ns=90_000).write(folder / "again_rank3.1700000000000000000.pt.trace.json.gz")
    (folder / "rank8.1700000000000000000.pt.trace.json.gz").write_bytes(gzip.compress(b'{"this is": "no trace"}'))
    (folder / "rank9.1700000000000000000.pt.trace.json.gz").write_bytes(b"")
    return folder
