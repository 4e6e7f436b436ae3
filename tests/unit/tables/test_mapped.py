"""Files of values with mapped arrays: what was written comes back, and anything else is a ValueError."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tb_sol_plugin.tables.mapped import ALIGNED, read, written

ARRAYS = st.one_of(*(arrays(np.dtype(kind), array_shapes(max_dims=2, min_side=0, max_side=5)) for kind in ("i8", "i1", "?", "<f8", ">i4")))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text() | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=8,
)  # fmt: skip


def joined(values: object) -> memoryview:
    return memoryview(b"".join(bytes(piece) for piece in written(values)))


def same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.shape == other.shape and one.tobytes() == other.astype(one.dtype).tobytes()
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(v, other[k]) for k, v in one.items())
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return one == other


@settings(max_examples=20)
@given(VALUES)
def test_what_was_written_comes_back(values: object) -> None:
    assert same(values, read(joined(values)))


def test_arrays_lie_in_the_file_at_even_places_and_cannot_be_written_to() -> None:
    body = joined([np.arange(3, dtype=np.int8), {"a": np.arange(5)}])
    base = np.frombuffer(body, np.uint8).__array_interface__["data"][0]
    first, second = read(body)[0], read(body)[1]["a"]
    assert [(one.__array_interface__["data"][0] - base) % ALIGNED for one in (first, second)] == [0, 0]
    assert not first.flags.writeable and second.tolist() == [0, 1, 2, 3, 4]


@settings(max_examples=30)
@given(st.binary(max_size=200), st.data())
def test_other_bytes_are_a_value_error(noise: bytes, data: st.DataObject) -> None:
    whole = bytes(joined([np.arange(40), "text"]))
    at = data.draw(st.integers(0, len(whole) - 1))
    for body in (noise, whole[:at], noise + whole):
        try:
            read(memoryview(body))
        except ValueError:
            continue
    with pytest.raises(ValueError, match="not a file of values"):
        read(memoryview(whole[:20]))


def test_what_is_neither_plain_nor_an_array_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot write object"):
        written([object()])
