"""Pickles that want to run code, or to fill the memory: each is refused, and nothing in them runs."""

from __future__ import annotations

import builtins
import copyreg
import os
import pickle
import pickletools
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.ingest.memory.pickles import load
from tests.support.memory_snapshot import snapshot

KEY = b"\x8c\x08segments\x94"
"""A name that makes a file look like a snapshot."""


class Runs:
    """Runs a command when a pickle of it is loaded."""

    def __init__(self, function: Callable[..., object], *args: object) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


class State:
    def __init__(self) -> None:
        self.value = 1


def gadgets(mark: Path) -> dict[str, bytes]:
    """Files that write `mark` when a plain reader loads them, by name."""
    touch = f"touch {mark}"
    code = f"open({str(mark)!r}, 'w').close()"
    out = {f"os.system, protocol {p}": pickle.dumps({"segments": [], "x": Runs(os.system, touch)}, p) for p in (0, 1, 2, 4, 5)}
    out["builtins.eval"] = pickle.dumps({"segments": Runs(builtins.eval, code)})
    out["builtins.exec behind values"] = pickle.dumps({"segments": [{"a": 1}] * 500, "z": Runs(builtins.exec, code)})
    out["old global"] = b"(S'segments'\ncos\nsystem\n(S'" + touch.encode() + b"'\ntRd."
    out["old instance"] = b"(S'segments'\n(S'" + touch.encode() + b"'\nios\nsystem\nd."
    out["object"] = b"\x80\x02}U\x08segments(cos\nsystem\nU" + bytes([len(touch)]) + touch.encode() + b"os."
    return out


def test_gadgets_do_run_in_a_plain_reader(tmp_path: Path) -> None:
    # GIVEN the files of the next test WHEN loaded without care THEN each one writes: the test can fail
    for name, data in gadgets(tmp_path / "mark").items():
        pickle.loads(data)  # what this package never does
        assert (tmp_path / "mark").exists(), name
        (tmp_path / "mark").unlink()


def test_no_gadget_runs(tmp_path: Path) -> None:
    # GIVEN pickles that call something WHEN opened as snapshots THEN each is refused with the reason, and nothing was called
    mark, path = tmp_path / "mark", tmp_path / "memory.pickle"
    for name, data in gadgets(mark).items():
        path.write_bytes(data)
        with pytest.raises(BadInput) as caught:
            ingest.read(str(path))
        assert not mark.exists(), name
        assert "refused, nothing in it was run" in caught.value.message and caught.value.hint and caught.value.file == "memory.pickle", name


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\x8c\x02os\x8c\x06system\x93", "names a python object (STACK_GLOBAL"),
        (b"cos\nsystem\n", "names a python object (GLOBAL"),
        (b"Pid\n", "asks for a persistent object (PERSID"),
        (b"K\x01Q", "asks for a persistent object (BINPERSID"),
        (b"\x82\x01", "asks for a registered extension (EXT1"),
        (b"\x83\x01\x00", "asks for a registered extension (EXT2"),
        (b"\x84\x01\x00\x00\x00", "asks for a registered extension (EXT4"),
        (b"))\x81", "makes an object of a class (NEWOBJ"),
        (b"))}\x92", "makes an object of a class (NEWOBJ_EX"),
        (b"}}b", "sets the state of an object (BUILD"),
        (b")R", "calls a function (REDUCE"),
        (b"\x97", "NEXT_BUFFER"),
        (b"\x96\xff\xff\xff\xff\xff\xff\xff\x7f", "BYTEARRAY8"),
        (b"\x8f", "EMPTY_SET"),
        (b"\xfe", "0xfe"),
        (b"\x80\x06", "newer protocol"),
    ],
)
def test_opcodes_that_no_plain_value_needs_are_refused(body: bytes, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(b"\x80\x04}" + KEY + body + b"s.", file="f")
    assert said in caught.value.message and "refused" in caught.value.message


def test_a_registered_extension_does_not_run(tmp_path: Path) -> None:
    # GIVEN a class registered as extension and already looked up once, which plain readers give without asking `find_class`
    copyreg.add_extension(__name__, "State", 77)
    try:
        data = pickle.dumps(State(), 4)
        assert b"\x82\x4d" in data and isinstance(pickle.loads(data), State)
        # WHEN read THEN it is refused
        with pytest.raises(BadInput, match="registered extension"):
            load(data, file="f")
    finally:
        copyreg.remove_extension(__name__, "State", 77)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x80\x04X\xff\xff\xff\x7f", "ends too early"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 63), "ends too early"),
        (b"\x80\x04B\xff\xff\xff\xffabc.", "ends too early"),
        (b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.", "ends too early"),
        (b"\x80\x04\x8b\xff\xff\xff\x7f", "ends too early"),
        (b"\x80\x04\x8b\x00\x10\x00\x00" + b"\x01" * 4096 + b".", "more than 64 bits"),
        (b"I" + b"9" * 5000 + b"\n.", "more than 64 bits"),
        (b"\x80\x04Nr\xff\xff\xff\x7f.", "not there"),
        (b"Np2000000000\n.", "not there"),
        (b"\x80\x04h\x05.", "not there"),
        (b"\x80\x04" + b"]" * 100 + b"a" * 99 + b".", "nest deeper"),
        (b"\x80\x04N" + b"\x85" * 100_000 + b".", "nest deeper"),
        (b"\x80\x04" + b"(" * 200_000 + b".", "nest deeper"),
        (b"\x80\x04" + b"]" * 250_000 + b".", "more than 8 MiB"),
        (b"\x80\x04](" + b"}" * 125_000 + b"e.", "more than 8 MiB"),
        (b"\x80\x04](" + b"N" * 1_125_000 + b"e.", "more than 8 MiB"),
        (b"\x80\x04\x95" + struct.pack("<Q", 3) + b"X\x04\x00\x00\x00abcd.", "damaged"),
        (b"\x80\x04\x95" + struct.pack("<Q", 11) + b"N0\x95" + struct.pack("<Q", 2) + b"N.", "damaged"),
        (b"\x80\x04.", "damaged"),
        (b"\x80\x040.", "damaged"),
        (b"\x80\x04e.", "damaged"),
        (b"\x80\x04}(Nu.", "damaged"),
        (b"\x80\x04NNa.", "damaged"),
        (b"\x80\x04}]Ns.", "the key of a dict"),
        (b"", "ends too early"),
    ],
)
def test_pickles_that_would_fill_memory_or_are_damaged_are_one_error(data: bytes, said: str) -> None:
    # GIVEN lengths, places, depths and counts that lie WHEN loaded with 8 MiB at most THEN it ends with the reason
    with pytest.raises(BadInput) as caught:
        load(data, file="f", most_memory=8 << 20)
    assert said in caught.value.message, caught.value.message


def test_a_file_above_the_largest_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="larger than 1 MiB"):
        load(b"\x80\x04N." + bytes(1 << 20), file="f", largest=1 << 20)


DOUBLED = b")" + b"2\x86" * 30
"""A tuple of a tuple twice, thirty levels deep: to hash it takes a thousand million steps."""


@pytest.mark.parametrize(
    "body",
    [b"}" + DOUBLED + b"Ns.", b"}(" + DOUBLED + b"Nu.", b"(" + DOUBLED + b"Nd.", b"}]Ns.", b"}(K\x01N}Nu."],
    ids=["set item", "set items", "dict", "list as a key", "dict as a key"],
)
def test_keys_are_texts_or_numbers(body: bytes) -> None:
    # GIVEN a dict whose key is a tuple, list or dict WHEN loaded THEN it is refused ahead of hashing it
    with pytest.raises(BadInput, match=r"the key of a dict at byte [\d,]+ is a list, tuple or dict"):
        load(b"\x80\x04" + body, file="f")


def test_blocks_that_stand_once_and_are_referred_to_often_are_refused(tmp_path: Path) -> None:
    # GIVEN 50 kB that hold one segment of 5,000 references to one block, and 500 references to that segment (more of them took 2.5 GB)
    block = {"size": 512, "state": "active_allocated"}
    segment = {"device": 0, "blocks": [block] * 5_000}
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment] * 500, "device_traces": []}, 4))
    # WHEN opened THEN it is refused, and says why
    with pytest.raises(BadInput, match="2,500,500 rows are the same few"):
        ingest.read(str(path))


def test_call_stacks_are_kept_in_proportion_to_the_file(tmp_path: Path) -> None:
    # GIVEN 1,000 entries with call stacks of 20 to 60 frames whose names have 1,000 wide characters: 150 MB of text
    frames = [{"filename": chr(0x4E00 + i) * 1000, "line": i, "name": "f"} for i in range(60)]
    trace = [{"action": "alloc", "addr": i, "size": 512, "frames": frames[i % 40 :] + frames[: i // 40]} for i in range(1_000)]
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}, 4))
    # WHEN opened THEN all entries are there, those without room for their frames are counted
    capture = ingest.read(str(path))
    issues = capture.tables["issues"]
    assert len(capture.tables["memory_events"]) == 1_000 and "call stack left out" in set(issues["reason"].astype(str))
    assert sum(map(len, capture.tables["memory_events"]["frames"].cat.categories)) < 40e6


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=40,
)


@given(PLAIN, st.integers(0, 5), st.booleans())
@settings(max_examples=80, deadline=None)
def test_plain_values_survive_pickling_and_loading(value: object, protocol: int, shorter: bool) -> None:
    # GIVEN any plain value in any protocol WHEN loaded THEN it is the same
    data = pickle.dumps(value, protocol)
    assert load(pickletools.optimize(data) if shorter else data, file="f") == value


@given(st.binary(max_size=300), st.integers(0, 2000), st.integers(0, 255))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_a_value_or_a_message(tail: bytes, where: int, byte: int) -> None:
    # GIVEN a snapshot with one byte changed, and bytes of any kind WHEN loaded THEN nothing but a value or BadInput comes
    data = bytearray(pickle.dumps(snapshot(), 4))
    data[where % len(data)] = byte
    for text in (bytes(data), b"\x80\x04" + tail, tail + b"."):
        try:
            load(text, file="f", most_memory=16 << 20)
        except BadInput as error:
            assert error.hint and error.file == "f"
