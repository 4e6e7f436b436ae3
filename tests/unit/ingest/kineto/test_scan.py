"""Cutting events out of JSON text, against the json module on the same text, whatever the layout and the chunking."""

from __future__ import annotations

import ctypes
import json
import mmap
import random
import sys
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.ingest.columns import Interner
from tb_sol_plugin.ingest.kineto import decode, spans
from tb_sol_plugin.ingest.kineto import scan as K
from tb_sol_plugin.ingest.kineto.decode import Batch, Raw, Room, Scanner

KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args"]
LEAF = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.text(max_size=12), st.floats(allow_nan=False, allow_infinity=False)
)
VALUE = st.recursive(LEAF, lambda c: st.one_of(st.lists(c, max_size=3), st.dictionaries(st.text(max_size=4), c, max_size=3)), max_leaves=6)
KEPT_TEXTS, KEPT_NUMBERS = ("Input Dims", "Call stack", "kind", "grid"), ("correlation", "External id", "bytes")
ARGS = st.dictionaries(st.text(max_size=6).filter(lambda key: key not in KEPT_TEXTS + KEPT_NUMBERS), VALUE, max_size=5)
EVENT = st.dictionaries(st.sampled_from([*KEYS[:8], "bp", "tts"]), VALUE, max_size=8).flatmap(
    lambda d: st.one_of(st.just(d), ARGS.map(lambda a: {**d, "args": a}))
)
KEPT = st.fixed_dictionaries({}, optional={**dict.fromkeys(KEPT_TEXTS, VALUE), **{k: st.integers(-(2**52), 2**52) for k in KEPT_NUMBERS}})
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


@given(st.lists(st.tuples(ARGS, KEPT), min_size=1, max_size=40))
@settings(max_examples=80, deadline=None)
def test_arguments_are_found_by_name(events: list[tuple[dict[str, object], dict[str, object]]]) -> None:
    # GIVEN events whose arguments are in part those that are kept, in any order and with gaps between the events that have them
    text = json.dumps([{"ph": "X", "args": {**a, **k}} for a, k in events], separators=(", ", ": ")).encode()[1:]
    batches: list[Batch] = []
    # WHEN scanned
    Scanner().feed(text, batches.append)
    batch, rows = batches[0], np.arange(len(events))
    # THEN each that is kept is there with its value, and missing elsewhere
    interner = Interner()
    for key in KEPT_TEXTS:
        codes = batch.codes(key, rows, interner).tolist()
        shown = [list(interner)[code] for code in codes]
        assert shown == [json.dumps(k[key]).encode() if key in k else b"" for _, k in events]
        assert batch.where(key, rows).tolist() == [k.get(key) not in (None, "") for _, k in events]
    for key in KEPT_NUMBERS:
        assert batch.ints(key, rows).tolist() == [k.get(key, -1) for _, k in events]
        assert batch.has(key) == any(key in k for _, k in events)


@pytest.mark.parametrize("text", [b'{"ph" "X"}]', b"7, {}]", b'{"ph": "X"} {"ph": "X"}]', b'{ph: "X"}]', b'{"ph": }]', b'{"args": {"a"}}]'])
def test_text_off_the_grammar_is_refused_where_it_stands(text: bytes) -> None:
    fed = Scanner().feed(text, lambda _: pytest.fail("no event may be given"))
    assert fed.broken and fed.consumed == 0


def test_the_last_of_two_equal_keys_counts() -> None:
    batches: list[Batch] = []
    Scanner().feed(b'{"ph":"X","ts":1,"args":{"bytes":1,"size":2},"ts":2,"args":{"bytes":3}}]', batches.append)
    batch, row = batches[0], np.array([0])
    assert batch.times(K.TS, row)[0].tolist() == [2000] and batch.ints("bytes", row).tolist() == [3] and not batch.has("size")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forbids pages as Linux does")
def test_no_byte_behind_the_text_is_read() -> None:
    # GIVEN memory whose last page may not be read: to touch it ends the process
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 4 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(start + 3 * page), page, 0) == 0
    event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm \\"", "pid": 1, "tid": 22, "ts": 171219549551.0479, "dur": 3.5, "args": {"External id": '
    event += b'123456789012, "Call stack": "a.py(1): f;b.py(2): g", "Input Dims": [[1, 2], []], "bytes": 1.25, "queued": 0}}'
    raw, room = Raw(), Room(16)
    # WHEN every beginning of two events, and each with one byte changed, is scanned so that it ends where that page begins
    dice = random.Random(1)
    for size in range(1, 2 * len(event)):
        for changed in (None, *dice.choices(range(size), k=6)):
            text = bytearray((event + b"," + event)[:size])
            if changed is not None:
                text[changed] = dice.choice(b'"\\{}[]:,. 09-x')
            memory[3 * page - size : 3 * page] = bytes(text)
            begin, damage = start + 3 * page - size, np.zeros(spans.BUDGET + 1, np.int64)
            K.scan(begin, size, 0, 0, room.empty().addresses(raw.after), raw.values.table, 0, damage.ctypes.data)
            why, events, at = K.scan(begin, size, 0, 0, room.empty().addresses(raw.after), raw.values.table, spans.STRICT, 0)
            # THEN it stays inside, and says so
            assert why in (K.INCOMPLETE, K.BROKEN, K.CLOSED) and events <= 2 and at <= size


def test_names_that_collide_in_one_process_do_not_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN names that all fall into one of 64 slots under one secret, as an attacker who knows it would choose them
    def slots(names: list[bytes], secret: int) -> np.ndarray:
        monkeypatch.setattr(decode, "SECRET", np.frombuffer(random.Random(secret).randbytes(8 * K.SECRET), np.uint64))
        interner, length = decode.ByteInterner(), np.array([len(n) for n in names])
        interner.codes(decode.text_of(b"".join(names)), np.cumsum(length) - length, length)
        return (interner._entries[: len(names), 0] & np.uint64(63)).astype(np.int64)

    names = [b"kernel_%d" % i for i in range(6_400)]
    of_first = slots(names, 1)
    chosen = [name for name, slot in zip(names, of_first.tolist(), strict=True) if slot == of_first[0]]
    assert 50 < len(chosen) < 200
    # THEN under another secret they stand apart
    assert np.bincount(slots(chosen, 2), minlength=64).max() < 12
