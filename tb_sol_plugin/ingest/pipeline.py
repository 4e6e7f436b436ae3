"""Two things at once: the next chunk is read and cut while the columns of the last one are made.

The compiled loops and gunzip release the interpreter lock, so one thread beside the reader is worth almost a core.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from tb_sol_plugin.ingest.batch import Batch
from tb_sol_plugin.ingest.decode import Columns

AHEAD = 2
"""Batches that may wait: bounds the memory."""


class Pipeline:
    """Adds batches to columns, in order, on a thread of its own. An error there is raised by the next call here."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tb-sol-columns")
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)

    def put(self, batch: Batch) -> None:
        """Hand over a batch; waits while too many are ahead."""
        self._waiting.append(self._pool.submit(self._columns.add, batch))
        while len(self._waiting) > AHEAD:
            self._waiting.popleft().result()

    def drain(self) -> None:
        """Wait until everything handed over is in the columns."""
        while self._waiting:
            self._waiting.popleft().result()
