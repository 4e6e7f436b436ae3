"""Columns that grow piece by piece, and columns of few texts."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.ingest.columns import Buffer
from tb_sol_plugin.ingest.kineto import decode, reader, tables
from tb_sol_plugin.tables.arrays import few_texts


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_a_buffer_gives_back_its_pieces_joined(share: float) -> None:
    # GIVEN pieces of many lengths, none and types that widen, with any part of the file read
    dice = np.random.default_rng(1)
    sizes = [3, 0, 1, 500, *dice.integers(0, 300, 40).tolist()]
    pieces = [dice.integers(-100, 100, n).astype(np.int8 if k < 5 else np.int64) for k, n in enumerate(sizes)]
    buffer = Buffer(lambda: share)
    # WHEN they are added
    for piece in pieces:
        buffer.add(a=piece, b=piece.astype(np.float32))
    joined = np.concatenate(pieces)
    # THEN they come back in order, in the type that holds all of them, and the buffer is empty
    assert buffer.rows == len(joined) and buffer.minimum("a") == joined.min()
    out = buffer.take()
    assert out["a"].dtype == joined.dtype and (out["a"] == joined).all() and (out["b"] == joined).all() and not buffer.take()


@pytest.mark.parametrize("values", [[], [""], ["b", "a", "b", "", "ä"], *([str(i % n) for i in range(300)] for n in (126, 127, 128, 300))])
def test_few_texts_are_what_pandas_makes_of_them(values: list[str]) -> None:
    made, plain = few_texts(values), pd.Categorical(values)
    assert made.dtype == plain.dtype and made.categories.dtype == plain.categories.dtype and made.categories.tolist() == plain.categories.tolist()
    assert made.codes.dtype == plain.codes.dtype and (made.codes == plain.codes).all()


def test_what_reading_needs_is_free_once_a_recording_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording, with what reads it watched: its columns, and its different values
    made: list[weakref.ref[object]] = []

    def watched(kind: type) -> type:
        class Watched(kind):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                made.append(weakref.ref(self))

        return Watched

    monkeypatch.setattr(reader, "Columns", watched(reader.Columns))
    monkeypatch.setattr(decode, "Raw", watched(decode.Raw))
    path = tmp_path / "a.pt.trace.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"stream": 7}}]}')
    # WHEN it is read, and no garbage is looked for
    gc.disable()
    try:
        capture = reader.read(str(path))
        left = [one() for one in made]
    finally:
        gc.enable()
    # THEN nothing of it is left: a million names are there once
    assert len(capture.device) == 1 and len(made) == 2 and left == [None, None]


def test_columns_of_one_value_are_one_array() -> None:
    # GIVEN columns of one value, of several, and of one at both ends only WHEN asked THEN those of one value are told
    nan = float("nan")
    one = [np.full(5, -1), np.full(5, nan), np.zeros(5, bool), np.full(5, 2.5), np.ones(1)]
    several = [np.array([-1, 0, -1]), np.array([nan, 1.0, nan]), np.array([1.0, nan, 1.0]), np.array([nan, 1.0]), np.array([False, True])]
    assert all(map(tables._is_constant, one)) and not any(map(tables._is_constant, several))
    # AND those of one type and value share their memory, which nobody writes to; others do not
    once: dict[tuple[str, str], np.ndarray] = {}
    made = [tables._constant(column, once) for column in (*one[:4], np.full(5, -1), np.full(5, -1.0), np.full(5, nan))]
    assert made[0] is made[4] and made[1] is made[6] and len(once) == 5 and made[5].dtype == float
    assert all(np.array_equal(a, b, equal_nan=b.dtype.kind == "f") for a, b in zip(made, one[:4], strict=False))
    with pytest.raises(ValueError, match="read-only"):
        made[0][0] = 1
