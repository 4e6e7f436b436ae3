"""Cutting events out of JSON text, against the json module on the same text, whatever the layout and the chunking."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.ingest.kineto import scan as K
from tb_sol_plugin.ingest.kineto.decode import Batch, Scanner

KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args"]
LEAF = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.text(max_size=12), st.floats(allow_nan=False, allow_infinity=False)
)
VALUE = st.recursive(LEAF, lambda c: st.one_of(st.lists(c, max_size=3), st.dictionaries(st.text(max_size=4), c, max_size=3)), max_leaves=6)
ARGS = st.dictionaries(st.text(max_size=6), VALUE, max_size=5)
EVENT = st.dictionaries(st.sampled_from([*KEYS[:8], "bp", "tts"]), VALUE, max_size=8).flatmap(
    lambda d: st.one_of(st.just(d), ARGS.map(lambda a: {**d, "args": a}))
)
LAYOUT = st.sampled_from([(None, (",", ":")), (2, (",", ": ")), (None, (", ", ": "))])


def collect(text: bytes, sizes: Iterable[int]) -> tuple[list[dict[str, object]], bool]:
    """Feed `text` in pieces of the given sizes; events as dictionaries of the fields the scanner knows, and whether the list closed."""
    scanner, out = Scanner(), []

    def sink(batch: Batch) -> None:
        for i in range(batch.count):
            fields = {}
            for which, key in enumerate(KEYS):
                offset, length = batch.field(which, np.array([i]))
                if length[0]:
                    fields[key] = json.loads(batch.text.piece(offset[0], length[0]))
            out.append(fields)

    rest, closed = b"", False
    pieces = iter(sizes)
    position = 0
    while position < len(text) and not closed:
        size = next(pieces, len(text))
        rest += text[position : position + size]
        position += size
        fed = scanner.feed(rest, sink)
        assert not fed.broken
        rest, closed = rest[fed.consumed :], fed.closed
    return out, closed


@given(st.lists(EVENT, max_size=6), LAYOUT, st.lists(st.integers(1, 60), max_size=30))
@settings(max_examples=120, deadline=None)
def test_events_come_out_whole_however_the_text_is_cut(
    events: list[dict[str, object]], layout: tuple[int | None, tuple[str, str]], sizes: list[int]
) -> None:
    # GIVEN a JSON array of objects in any of three layouts, followed by more of the file
    text = json.dumps(events, indent=layout[0], separators=layout[1]).encode()[1:] + b', "tail": [{"name": 1}]}'
    # WHEN it is fed in arbitrary pieces
    got, closed = collect(text, sizes)
    # THEN every event has exactly its fields, and the list closed where it closes
    assert closed
    assert got == [{k: v for k, v in e.items() if k in KEYS} for e in events]


@given(st.lists(ARGS, min_size=1, max_size=5))
@settings(max_examples=80, deadline=None)
def test_arguments_are_found_by_name(args: list[dict[str, object]]) -> None:
    # GIVEN events with arguments WHEN scanned THEN each key of each event is there with its value
    text = json.dumps([{"ph": "X", "args": a} for a in args]).encode()[1:]
    batches: list[Batch] = []
    Scanner().feed(text, batches.append)
    got: list[dict[str, object]] = [{} for _ in args]
    for batch in batches:
        for event, key, size, offset, length in batch._args.tolist():
            name = json.loads(b'"' + batch.text.piece(key, size) + b'"')
            got[event][name] = json.loads(batch.text.piece(offset, length))
    assert got == args


@pytest.mark.parametrize("text", [b'{"ph" "X"}]', b"7, {}]", b'{"ph": "X"} {"ph": "X"}]', b'{ph: "X"}]', b'{"ph": }]', b'{"args": {"a"}}]'])
def test_text_off_the_grammar_is_refused_where_it_stands(text: bytes) -> None:
    fed = Scanner().feed(text, lambda _: pytest.fail("no event may be given"))
    assert fed.broken and fed.consumed == 0


def test_the_last_of_two_equal_keys_counts() -> None:
    batches: list[Batch] = []
    Scanner().feed(b'{"ph":"X","ts":1,"args":{"a":1,"b":2},"ts":2,"args":{"a":3}}]', batches.append)
    batch, row = batches[0], np.array([0])
    assert batch.times(K.TS, row)[0].tolist() == [2000] and batch.ints("a", row).tolist() == [3] and not batch.has("b")
