"""Profiles that are damaged, hostile or something else: each has its own reason and remedy, none costs memory or a stack."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path

import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import limits
from tb_sol_plugin.ingest.proton import decode, tables
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import registry
from tests.support.proton_profile import ONE, kernel, root, scope, write


def read(path: Path, content: bytes | str, name: str = "p.hatchet") -> Capture:
    file = path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return ingest.read(str(file))


def refused(path: Path, content: bytes | str, name: str = "p.hatchet") -> BadInput:
    with pytest.raises(BadInput) as found:
        read(path, content, name)
    error = found.value
    assert error.hint and error.file == name and str(path) not in error.line()
    return error


def chain(levels: int) -> str:
    """Scopes inside each other with one kernel at the bottom, written without recursion."""
    leaf = json.dumps(kernel("k", 5, 2, flops16=8))
    begin = '{"frame": {"name": "f", "type": "function"}, "metrics": {}, "children": ['
    return "[" + begin * levels + leaf + "]}" * levels + "," + json.dumps(ONE) + "]"


def test_a_tree_of_a_hundred_thousand_levels_is_read(tmp_path: Path) -> None:
    # GIVEN a chain of 100,000 scopes WHEN it is read
    capture = read(tmp_path, chain(100_000))
    # THEN the kernel is there, 200 levels are told apart, the rest is counted, and every page answers
    assert capture.facts.metadata == {"frames": "100001", "depth": "100001"}
    assert len(capture.tables["labels"]) == 200 and capture.tables["ledger"]["phase"].tolist() == [199]
    issues = dict(zip(capture.tables["issues"]["reason"].astype(str), capture.tables["issues"]["count"], strict=True))
    assert issues == {"scope below 200 others": 99_800}
    for name in registry():
        capture.analyze(name)


def test_wide_and_deep_trees_stay_within_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for 10 levels in all and four branches of 5 scopes (0 + 1 + 2 + 3 + 4 levels each) WHEN read
    from tb_sol_plugin.ingest.proton import tables

    monkeypatch.setattr(tables, "MOST_LEVELS", 10)
    branches = []
    for b in range(4):
        inner = kernel("k", 1)
        for level in range(5):
            inner = scope(f"b{b} l{4 - level}", [inner])
        branches.append(inner)
    capture = ingest.read(str(write(tmp_path / "p.hatchet", root(*branches))))
    # THEN the first branch fills the room, of the others the outermost stand, and no launch is lost
    assert len(capture.tables["labels"]) == 5 + 3 and capture.tables["ledger"]["count"].sum() == 4
    assert (capture.tables["ledger"]["phase"] >= 0).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has written nothing yet"),
        ("   \n", "has written nothing yet"),
        ("[", "ends too early"),
        ('[{"frame": {"name": "RO', "ends too early"),
        ('[{"frame": {"name": "ROOT"}, "metrics": {"count": 1', "ends too early"),
        ('[{"frame": {"name": "ROOT"}} {', "this is no JSON: character"),
        ('[{"frame": tru}]', "this is no JSON: character"),
        ("[]", "holds no frames"),
        ('[{"CUDA": {}}]', "holds no frames"),
        ("[1, 2, 3]", "holds no frames"),
        ("{}", "holds no frames"),
        ('"text"', "this is no"),
    ],
)
def test_a_file_that_is_no_profile_is_refused_with_the_reason(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text).message


def test_every_cut_of_a_profile_is_refused_as_cut(tmp_path: Path) -> None:
    # GIVEN a profile WHEN cut at any byte THEN it is refused as ending too early: half a sum is no sum
    plain = json.dumps([root(scope("a \u20ac", [kernel("k", 5, 2)])), ONE]).encode()
    packed = write(tmp_path / "x.hatchet_msgpack", root(scope("a \u20ac", [kernel("k", 5, 2)]))).read_bytes()
    for data, name in ((plain, "p.hatchet"), (packed, "p.hatchet_msgpack")):
        for end in range(1, len(data), 7):
            message = refused(tmp_path, data[:end], name).message
            assert "ends too early" in message or "bytes are left" in message, (end, message)


def test_damaged_gzip_is_an_error_with_the_reason(tmp_path: Path) -> None:
    import gzip

    data = gzip.compress(json.dumps([root(kernel("k", 5)), ONE]).encode())
    assert "ends too early" in refused(tmp_path, data[:-20], "p.hatchet.gz").message


@pytest.mark.parametrize("head", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdc\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\x7f\xff\xff\xff"])
def test_announced_sizes_allocate_nothing(tmp_path: Path, head: bytes) -> None:
    # GIVEN MessagePack that announces up to four billion entries, nested a thousand times WHEN read THEN refused in little memory
    data = b"\x92\x83\xa5frame" + (head * 1000)
    tracemalloc.start()
    error = refused(tmp_path, data, "p.hatchet_msgpack")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ("are left" in error.message or "ends too early" in error.message) and peak < 4_000_000


def test_messagepack_of_any_depth_and_odd_values() -> None:
    # GIVEN 100,000 lists inside each other, extensions, map keys that are lists WHEN decoded THEN plain values
    found, levels = decode.decode(b"\x91" * 100_000 + b"\xc0", "f"), 0
    while isinstance(found, list):
        found, levels = found[0], levels + 1
    assert found is None and levels == 100_000
    assert decode.decode(b"\x92\xd4\x05\x00\xc7\x02\x01ab", "f") == [None, None]
    assert decode.decode(b"\x81\x91\x01\x02", "f") == {None: 2}
    assert decode.decode(b"\xcb" + struct.pack(">d", 0.5), "f") == 0.5
    with pytest.raises(BadInput, match="byte 1 does not fit"):
        decode.decode(b"\xc1", "f")
    with pytest.raises(BadInput, match="1 bytes follow the end"):
        decode.decode(b"\xc0\xc0", "f")


def test_a_trace_inside_messagepack_is_named(tmp_path: Path) -> None:
    # GIVEN what Proton's trace is as MessagePack: one text WHEN opened under the ending of a tree THEN it says what it is
    text = b'{"traceEvents": []}'
    error = refused(tmp_path, b"\xd9" + bytes([len(text)]) + text, "p.hatchet_msgpack")
    assert isinstance(error, NotATrace) and "chrome_trace" in error.hint


def test_size_and_number_of_frames_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps([root(*(kernel("k", 1) for _ in range(50))), ONE])
    monkeypatch.setenv(limits.TEXT, str(64 * 1024 / 1e9))
    assert "larger than" in refused(tmp_path, text).message
    monkeypatch.delenv(limits.TEXT)
    monkeypatch.setattr(tables, "MOST_FRAMES", 20)
    assert "more than 20 frames" in refused(tmp_path, text).message


@pytest.mark.parametrize(
    ("value", "reason", "known"),
    [
        ("7", "number written as text", True),
        ("1e3", "number written as text", True),
        (-7, "metric that is negative", False),
        (float("nan"), "metric that is not finite", False),
        (float("inf"), "metric that is not finite", False),
        (1e300, "metric that is too large", False),
        (10**30, "metric that is too large", False),
        ("seven", "metric that is no number", False),
        ([1, 2], "metric that is no number", False),
        ({}, "metric that is no number", False),
        (True, "metric that is no number", False),
    ],
)
def test_odd_amounts_are_counted_and_never_guessed(tmp_path: Path, value: object, reason: str, known: bool) -> None:
    # GIVEN a kernel whose bytes are odd WHEN read THEN the oddity is counted, the bytes are unknown or exactly what the text says
    text = json.dumps([root(kernel("k", 5, 1, flops16=8.0, bytes=value)), ONE])  # type: ignore[arg-type]
    capture = read(tmp_path, text)
    table = capture.tables["issues"]
    assert dict(zip(table["reason"].astype(str), table["count"], strict=True)) == {reason: 1}
    assert capture.tables["ledger"]["bytes"].tolist()[0] == (float(value) if known else pytest.approx(float("nan"), nan_ok=True))  # type: ignore[arg-type]


def test_malformed_frames_are_counted(tmp_path: Path) -> None:
    # GIVEN entries of every wrong kind among the frames WHEN read THEN they are counted, and the good kernel stays
    frames = [1, None, "x", [], {}, {"frame": 3, "metrics": [], "children": {}}, {"metrics": {"count": 1.5, "time (ns)": 4}}, kernel("k", 5)]
    capture = read(tmp_path, json.dumps([{"frame": {"name": "ROOT"}, "children": frames}, ONE]))
    issues = dict(zip(capture.tables["issues"]["reason"].astype(str), capture.tables["issues"]["count"], strict=True))
    assert issues["malformed frame"] == 6 and issues["frame without a name"] == 2
    assert issues["metrics that are no object"] == 1 and issues["count that is no whole number"] == 1 and issues["work without a count"] == 1
    assert capture.tables["ledger"]["name"].tolist() == ["(unnamed)", "k"] and capture.tables["ledger"]["time_ns"].tolist() == [4.0, 5.0]


def test_names_reach_no_page_as_markup_and_no_terminal_as_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN names with markup and control characters WHEN printed THEN the terminal gets none of them
    from tb_sol_plugin.cli import command

    file = write(tmp_path / "p.hatchet", root(scope("<b>\x1b[31m", [kernel("k\x07\x1b]0;x\x07", 5, 1, bytes=9)])))
    for name in ("phases", "kernels", "overview", "roofline"):
        assert command.main(["analyze", name, str(file), "--format", "text"]) == 0
        assert "\x1b" not in (out := capsys.readouterr().out) and "\x07" not in out


def test_counts_that_no_machine_holds_cost_no_memory(tmp_path: Path) -> None:
    # GIVEN 2^60 launches of one kernel WHEN its pages are asked for THEN they answer with that number
    capture = read(tmp_path, json.dumps([root(kernel("k", 2**50, 2**60, flops16=1e18, bytes=1e15)), ONE]))
    for name in registry():
        capture.analyze(name)
    (row,) = capture.analyze("kernels").table("kernels").to_dict("records")  # type: ignore[union-attr]
    assert row["calls"] == 2**60 and row["total_ns"] == 2**50


def test_a_profile_of_cycles_is_refused_with_the_reason(tmp_path: Path) -> None:
    frame = scope("load", (), {"cycles": 120, "normalized_cycles": 1.5, "device_id": "0", "device_type": "1"})
    error = refused(tmp_path, json.dumps([root(frame), ONE]))
    assert "counts cycles inside of kernels" in error.message and "proton-viewer" in error.hint


def test_json_reads_as_the_standard_reader_reads_it() -> None:
    # GIVEN documents WHEN decoded without recursion THEN the same values as json.loads gives
    for text in ('{"a": [1, 2.5, -3e2, true, false, null, "\\u20ac\\n\\"", []], "b": {}}', "[[], [[]], {}]", '"x"', " 7 ", '{"a": {"a": {"a": 1}}}'):
        assert decode.decode_json(text, "f") == json.loads(text)
    assert decode.decode_json('"\\ud800"', "f") == "?", "half of a pair stands for nothing"
