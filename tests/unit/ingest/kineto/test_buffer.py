"""Columns that grow piece by piece, and columns of few texts."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.ingest.columns import Buffer
from tb_sol_plugin.ingest.kineto import decode, reader
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
