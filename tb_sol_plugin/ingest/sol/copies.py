"""Records of counted copies to the table COPIES, with labels checked and what cannot be taken for unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.ingest.columns import Interner
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.sol.records import CopyRow, amount
from tb_sol_plugin.ingest.values import FARTHEST
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables.arrays import Floats, Ints

LabelRows: TypeAlias = "Callable[[Floats, str, int], Ints]"
"""Rows of labels by their ids, their sort and the number of the line."""

DIRECTIONS: Final = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset", "copy kernel", "Unknown")
MOST_ROWS: Final = 500_000
"""Rows kept; of a longer recording the latest."""
MOST_COPIES: Final = 10_000_000
"""Copies of one row; no step has as many alike."""
MOST_BYTES: Final = 2**53
HIGHEST_DEVICE: Final = 1 << 16
_TEXT: Final = 200
_WIDTH: Final = 15


class CopyRows:
    """Rows of all iterations so far; `iterations` had their copies counted, also where there were none."""

    def __init__(self, health: Health) -> None:
        self.health = health
        self.iterations = 0
        self.dropped = 0
        self._texts = Interner()
        self._directions = Interner()
        self._pieces: list[Floats] = []
        self._first = self._count = 0

    def add(self, instance: int, rows: Sequence[CopyRow], labels: LabelRows, number: int) -> None:
        """The rows of one iteration."""
        self.iterations += 1
        if not rows:
            return
        out = np.array([self._row(row, instance) for row in rows], np.float64)
        for place, what in ((7, "module"), (8, "phase"), (9, "function")):
            out[:, place] = labels(out[:, place], what, number)
        count, size, without, blocking = (out[:, i] for i in (10, 11, 12, 13))
        good = (count >= 1) & (count <= MOST_COPIES)
        self._note("copies in an impossible number", ~good, number)
        odd = good & ~(size < MOST_BYTES)
        self._note("impossible number of bytes of copies", odd, number)
        unsized = np.minimum(np.where(odd, count, np.nan_to_num(without)), count)
        self._note("more copies without a size than copies", good & (without > count), number)
        wrong = good & (blocking > count)
        self._note("more waiting copies than copies", wrong, number)
        out[:, 11], out[:, 12] = np.where(odd, 0, size), unsized
        out[:, 13] = np.where(wrong | np.isnan(blocking), -1, blocking)
        self._put(out[good])

    def _row(self, row: CopyRow, instance: int) -> list[float]:
        op, direction, src, dst, src_device, dst_device, _, module, phase, function, count, size, without, blocking, call_ns = row
        known = direction if direction in DIRECTIONS else "Unknown"
        self.health.add("copies of a direction this reader does not know", int(known != direction), direction[:80])
        call = amount(call_ns)
        return [
            instance, self._texts[op[:_TEXT]], self._directions[known], self._texts[src[:_TEXT]], self._texts[dst[:_TEXT]],
            _device(src_device), _device(dst_device), module, phase, function, amount(count), amount(size), amount(without),
            amount(blocking), call if call < FARTHEST else np.nan,
        ]  # fmt: skip

    def _note(self, reason: str, where: npt.NDArray[np.bool_], number: int) -> None:
        self.health.add(reason, int(where.sum()), f"line {number}")

    def _put(self, piece: Floats) -> None:
        self._pieces.append(piece)
        self._count += len(piece)
        while self._count > MOST_ROWS and self._first < len(self._pieces) - 1:
            old = len(self._pieces[self._first])
            self._pieces[self._first] = np.zeros((0, _WIDTH))
            self._first += 1
            self._count -= old
            self.dropped += old

    def instances(self) -> Ints:
        """The instance of each row."""
        self._pieces = [np.concatenate(self._pieces) if self._pieces else np.zeros((0, _WIDTH))]
        self._first = 0
        return np.asarray(self._pieces[0][:, 0].astype(np.int64))

    def table(self, keep: npt.NDArray[np.bool_], number: Ints, step: Ints) -> pd.DataFrame:
        """COPIES of the rows to keep. number, step: of each of those rows."""
        rows = self._pieces[0][keep]
        whole = rows[:, :14].astype(np.int64)
        texts = {name: self._texts.categorical(whole[:, i].astype(np.int32)) for name, i in (("name", 1), ("src_kind", 3), ("dst_kind", 4))}
        return S.COPIES.frame(
            {
                "iteration": number,
                "step": step.astype(np.int32),
                **texts,
                "direction": self._directions.categorical(whole[:, 2].astype(np.int32)),
                **{name: whole[:, i] for name, i in (("src_device", 5), ("dst_device", 6), ("count", 10), ("bytes", 11))},
                "without_bytes": whole[:, 12],
                "time_ns": np.full(len(rows), np.nan),
                "call_ns": rows[:, 14],
                "blocking": whole[:, 13],
                **{name: whole[:, i].astype(np.int32) for name, i in (("module", 7), ("phase", 8), ("function", 9))},
            }
        )


def _device(value: float | None) -> float:
    found = amount(value)
    return float(int(found)) if found < HIGHEST_DEVICE else -1.0
