"""Numbers, times and interned values from bytes, against the standard library on the same text."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.ingest.kineto import decode
from tb_sol_plugin.ingest.kineto import scan as K


def batch_of(key: str, texts: list[bytes]) -> decode.Batch:
    """Returns events that have each text as a field of this name, or as an argument."""
    field = b'"%s": %%s' if key in ("ts", "dur", "id") else b'"args": {"%s": %%s}'
    events = [b"{%s}" % (field % key.encode() % text if text else b"") for text in texts]
    batches: list[decode.Batch] = []
    decode.Scanner().feed(b", ".join(events) + b"]", batches.append)
    assert batches[0].count == len(texts)
    return batches[0]


def times(texts: list[bytes]) -> tuple[list[int], list[bool]]:
    """Returns (ns, given) of texts as `ts`, and checks that `dur` reads the same."""
    rows = np.arange(len(texts))
    out, other = ([column.tolist() for column in batch_of(key, texts).times(which, rows)] for key, which in (("ts", K.TS), ("dur", K.DUR)))
    assert out == other
    return out[0], out[1]


def ranges(items: list[bytes]) -> tuple[decode.Text, np.ndarray, np.ndarray]:
    """(text, offset, length) of items written one after the other with a comma between."""
    text = b",".join(items) + b","
    length = np.array([len(i) for i in items], np.int32)
    offset = np.concatenate([[0], np.cumsum(length + 1)[:-1]]).astype(np.int32) if items else np.zeros(0, np.int32)
    return decode.text_of(text), offset, length


DECIMAL = st.builds(
    lambda sign, whole, places, digits: f"{'-' if sign else ''}{whole}" + (f".{digits:0{places}d}"[: places + 1] if places else ""),
    st.booleans(),
    st.integers(0, 2_305_843_009_213_000),  # 73 years: `values.FARTHEST`
    st.integers(0, 5),
    st.integers(0, 99999),
)


@given(st.lists(DECIMAL, min_size=1, max_size=20))
@settings(max_examples=300, deadline=None)
def test_decimal_microseconds_become_exact_nanoseconds(texts: list[str]) -> None:
    # GIVEN microseconds as decimal text WHEN read as ns THEN they equal decimal arithmetic, rounded half up past the third digit
    ns, given_ = times([t.encode() for t in texts])
    assert all(given_)
    assert ns == [int((Decimal(t) * 1000).to_integral_value(ROUND_HALF_UP)) for t in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1419247332972.313", 1419247332972313),
        ("1682725898237042.007", 1682725898237042007),  # beyond float64: its nearest is ...042.0
        ("1e3", 1_000_000),
        ('"12.5"', 12_500),
        ("2.0005", 2001),
        ("1623142623460111", 1623142623460111000),
    ],
)
def test_times_spelled_as_recorders_write_them_are_read(text: str, expected: int) -> None:
    assert times([text.encode()])[0] == [expected]


@pytest.mark.parametrize("text", ["null", '""', '"soon"', "[]", "NaN", "1e30", "", "2305843009213694", "-9000000000000000.5"])
def test_text_that_is_no_time_is_unknown(text: str) -> None:
    assert times([text.encode()])[1] == [False]


@given(
    st.lists(
        st.one_of(st.integers(-(10**17), 10**17), st.floats(allow_nan=False, allow_infinity=False), st.none(), st.text(max_size=5)),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=300, deadline=None)
def test_numbers_agree_with_the_json_module(items: list[object]) -> None:
    # GIVEN any JSON scalars WHEN read as floats THEN numbers are bit for bit those of the json module, others unknown
    texts = [json.dumps(i).encode() for i in items]
    rows = np.arange(len(texts))
    got = batch_of("Bytes", texts).floats("Bytes", rows)
    for item, value in zip(items, got.tolist(), strict=True):
        if isinstance(item, int | float):
            assert value == float(item)
        elif item is None:
            assert np.isnan(value)
    # AND read as integers, whole numbers are exact
    for whole in (batch_of("Bytes", texts).ints("Bytes", rows), batch_of("id", texts).numbers(K.ID, rows)):
        for item, value in zip(items, whole.tolist(), strict=True):
            if isinstance(item, int):
                assert value == item
            elif isinstance(item, float) and abs(item) < 2**61:
                assert value == int(item)
            elif item is None:
                assert value == -1


def test_bare_words_are_unknown_and_counted() -> None:
    batch = batch_of("Bytes", [b"NaN", b"-Infinity", b"N/A", b'"N/A"', b"null", b"true"])
    assert np.isnan(batch.floats("Bytes", np.arange(6))).all()
    table = batch.health.table()
    assert table["count"].tolist() == [3] and table["reason"].tolist() == ["NaN, Infinity or N/A"]


@given(st.lists(st.binary(max_size=40), max_size=200), st.lists(st.binary(max_size=40), max_size=200))
@settings(max_examples=200, deadline=None)
def test_interned_values_come_back(first: list[bytes], second: list[bytes]) -> None:
    # GIVEN two batches of byte strings WHEN interned THEN equal bytes have equal codes and every code gives its bytes back
    interner = decode.ByteInterner()
    for items in (first, second):
        codes = interner.codes(*ranges(items))
        assert [interner.value(c) for c in codes.tolist()] == items
    assert len(interner) == len(set(first) | set(second))


def test_an_interner_grows_past_its_first_tables() -> None:
    # GIVEN more distinct values and more bytes than the first tables hold
    items = [f"value {i} {'x' * (i % 50)}".encode() for i in range(20_000)]
    interner = decode.ByteInterner()
    codes = interner.codes(*ranges(items))
    assert codes.tolist() == list(range(20_000)) and interner.value(19_999) == items[-1]
