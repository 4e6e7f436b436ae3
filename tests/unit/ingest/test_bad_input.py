"""Damaged and odd files: one clear message, or everything that can be kept kept and the rest counted."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import read
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import registry
from tests.support.trace_builder import Raw, TraceBuilder, events_text


def small() -> TraceBuilder:
    """Two operators, each with one launch: 2 operators, 2 calls, 2 kernels of 40 and 60 ns, and 4 flow halves."""
    t = TraceBuilder()
    t.op("aten::a", 0, 1_000)
    t.launch("kernel_a", at=100, start=400, duration=40)
    t.op("aten::b", 2_000, 1_000)
    t.launch("kernel_b", at=2_100, start=2_400, duration=60)
    return t


def put(folder: Path, data: bytes | str, name: str = "worker0.1.pt.trace.json") -> str:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def issues(c: Capture) -> dict[str, int]:
    table = c.tables["issues"]
    return dict(zip(table["reason"].astype(str), table["count"].astype(int), strict=True))


def holds_small(c: Capture) -> None:
    """Nothing of `small()` is lost."""
    assert sorted(c.device["duration_ns"]) == [40, 60]
    assert {"aten::a", "aten::b"} <= set(c.host["name"].astype(str))
    assert (c.device["link"] == S.BY_CORRELATION).all()


# -- the file as a whole ----------------------------------------------------------------------------------------


def test_truncated_json_keeps_the_complete_events(tmp_path: Path) -> None:
    # GIVEN a file that ends within its last event (the eighth: the flow half of kernel_b)
    text = small().text()
    cut = text.rindex('"bp"')
    # WHEN it is read
    c = read(put(tmp_path, text[:cut]))
    # THEN the nine complete events are there, and one warning says how many and where it broke off
    holds_small(c)
    assert c.facts.truncated and c.facts.total_events == 9
    assert len(c.facts.warnings) == 1 and "9" in c.facts.warnings[0]
    assert c.facts.devices[0].name == "NVIDIA H100 80GB HBM3", "the header before the events counts"


@pytest.mark.parametrize("share", [0.35, 0.6, 0.95])
def test_truncated_gzip_keeps_what_it_held(tmp_path: Path, share: float) -> None:
    # GIVEN 4 000 operators in a gzip file cut anywhere
    t = TraceBuilder()
    for i in range(4_000):
        t.op(f"aten::op_{i % 97}", i * 1_000, 900, args={"noise": f"{i * 2654435761 % 2**32:08x}"})
    data = gzip.compress(t.data(), 6)
    # WHEN the part is read
    c = read(put(tmp_path, data[: int(len(data) * share)], "cut.json.gz"))
    # THEN a fitting share of the events is kept, in order, and the warning names their number
    kept = c.facts.total_events
    assert share - 0.15 < kept / 4_000 < share + 0.15
    assert np.array_equal(np.sort(c.host["index"].to_numpy()), np.arange(kept))
    assert c.facts.truncated and any(f"{kept:,}" in w for w in c.facts.warnings)


def test_a_gzip_member_boundary_is_not_an_end(tmp_path: Path) -> None:
    # GIVEN one text in two gzip members, and a name that says it is not compressed
    data = small().data()
    c = read(put(tmp_path, gzip.compress(data[:900]) + gzip.compress(data[900:]), "plain.json"))
    # THEN content decides, and both members are read
    holds_small(c)
    assert not c.facts.truncated


def test_gzip_damaged_in_the_middle_keeps_what_stands_before(tmp_path: Path) -> None:
    # GIVEN a gzip file with 40 bytes overwritten in its middle
    t = TraceBuilder()
    for i in range(3_000):
        t.op(f"aten::op_{i * 7919 % 3001}", i * 1_000, 900)
    data = bytearray(gzip.compress(t.data(), 6))
    middle = len(data) // 2
    data[middle : middle + 40] = b"\xff" * 40
    # WHEN it is read THEN it either gives what came before, with a warning, and never fails
    c = read(put(tmp_path, bytes(data), "broken.json.gz"))
    assert c.facts.warnings and 0 < c.facts.total_events < 3_000


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", BadInput), (b"  \n\t ", BadInput), (gzip.compress(b""), BadInput), (b"this is no trace", BadInput), (b"\x00\x01\x02\x03" * 99, BadInput),
        (b'"a string"', BadInput), (b'{"nodes": [], "schema": "1.0"}', NotATrace), (b"[1, 2, 3]", NotATrace),
        (b'[["a", 2], ["b", 6]]', NotATrace), (b"{}", NotATrace), (b'[{"key": "a"}]', NotATrace),
    ],
    ids=["empty", "blank", "empty gzip", "text", "binary", "a JSON string", "execution trace", "numbers", "rows", "empty object",
         "objects without a phase"],
)  # fmt: skip
def test_no_trace_is_one_message_with_file_and_remedy(tmp_path: Path, data: bytes, kind: type[BadInput]) -> None:
    # GIVEN a file that holds no trace WHEN it is read
    with pytest.raises(kind) as caught:
        read(put(tmp_path, data, "odd.json"))
    # THEN one sentence names the file by its base name and says what to do, without a local path
    error = caught.value
    assert error.file == "odd.json" and error.message and error.hint
    assert str(tmp_path) not in error.line() and "\n" not in error.line()


def test_a_trace_without_events_loads_and_says_so(tmp_path: Path) -> None:
    # GIVEN a header and no event
    c = read(put(tmp_path, TraceBuilder().text()))
    # THEN it is a capture with a plain reason, and every table is there and empty
    assert c.facts.total_events == 0 and "no events" in " ".join(c.facts.warnings)
    assert len(c.host) == len(c.device) == 0 and set(c.tables) == set(S.ALL)


def test_a_trace_may_be_a_list_of_events(tmp_path: Path) -> None:
    # GIVEN a bare list of events, with no header
    c = read(put(tmp_path, "[\n" + events_text(small().events) + "\n]"))
    # THEN it is a trace; what the header would say is unknown
    holds_small(c)
    assert c.facts.devices == () and not c.facts.absolute


def test_a_list_of_events_that_is_not_closed_is_read(tmp_path: Path) -> None:
    # GIVEN the list form as tracers leave it when killed: a trailing comma and no bracket
    c = read(put(tmp_path, "[\n" + events_text(small().events) + ",\n"))
    holds_small(c)


def test_a_header_after_the_events_is_read(tmp_path: Path) -> None:
    # GIVEN all header keys behind the events
    c = read(put(tmp_path, small().text(events_last=False)))
    # THEN both are read
    holds_small(c)
    assert c.facts.absolute and c.facts.flags["record_shapes"] is True


@pytest.mark.parametrize("tail", ["\n\n", "garbage", "{}", '{"traceEvents": []}', "\x00\x00"])
def test_text_after_the_last_brace_is_ignored(tmp_path: Path, tail: str) -> None:
    # GIVEN something behind the trace THEN the trace is read all the same
    holds_small(read(put(tmp_path, small().text() + tail)))


def test_an_object_before_the_trace_is_skipped(tmp_path: Path) -> None:
    # GIVEN two objects joined, the second of which has the events
    holds_small(read(put(tmp_path, '{"note": "first"}\n' + small().text())))


def test_trailing_commas_are_accepted(tmp_path: Path) -> None:
    # GIVEN a comma behind the last event, as hand-edited files have
    text = small().text()
    head, _, tail = text.rpartition("\n  ]")
    holds_small(read(put(tmp_path, head + ",\n  ]" + tail)))


def test_a_directory_named_like_a_trace_is_an_error(tmp_path: Path) -> None:
    # GIVEN a directory with a trace's name
    (tmp_path / "worker0.1.pt.trace.json").mkdir()
    with pytest.raises(BadInput) as caught:
        read(str(tmp_path / "worker0.1.pt.trace.json"))
    assert "directory" in caught.value.message and caught.value.hint and caught.value.file == "worker0.1.pt.trace.json"


def test_a_missing_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    # GIVEN a name that vanished between the scan and the reading
    with pytest.raises(BadInput) as caught:
        read(str(tmp_path / "gone.pt.trace.json"))
    assert "not there" in caught.value.message and caught.value.hint


def test_a_file_that_shrinks_while_it_is_read_keeps_what_was_read(tmp_path: Path) -> None:
    # GIVEN a file of many megabytes, more than is read ahead, that another process empties when the first chunk has been read
    t = TraceBuilder()
    for i in range(20_000):
        t.op(f"aten::op_{i}", i * 1_000, 900, shapes=[[i, i]])
    path = put(tmp_path, t.text().replace(", ", "," + 200 * " "))
    assert os.path.getsize(path) > 20 << 20

    def empty(_: object) -> None:
        os.truncate(path, 0)

    # WHEN it is read THEN what was read is kept and the warning says that the file broke off
    c = read(path, progress=empty)
    assert 0 < c.facts.total_events < 20_000 and c.facts.truncated and c.facts.warnings


# -- inside the JSON --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "N/A", "nan"])
def test_bare_words_become_unknown(tmp_path: Path, word: str) -> None:
    # GIVEN an argument that JSON does not know, as some recorders write it
    t = small()
    t.kernel("kernel_c", 5_000, 80, correlation=None, args={"bytes": Raw(word)})
    c = read(put(tmp_path, t.text()))
    # THEN that argument is unknown, counted, and nothing else is lost
    assert sorted(c.device["duration_ns"]) == [40, 60, 80]
    assert c.device.loc[c.device["duration_ns"] == 80, "bytes"].tolist() == [-1]
    assert issues(c)["NaN, Infinity or N/A"] == 1


def test_bad_escapes_and_control_characters_are_read(tmp_path: Path) -> None:
    # GIVEN a Windows path with single backslashes, and a raw line break inside a name
    t = small()
    t.add(
        {"ph": "X", "cat": "cpu_op", "name": Raw('"C:\\new\\qtip"'), "pid": 1, "tid": 1, "ts": t.ts(9_000), "dur": Raw("0.100"), "args": {}}
    )
    t.add({"ph": "X", "cat": "cpu_op", "name": Raw('"two\nlines"'), "pid": 1, "tid": 1, "ts": t.ts(9_500), "dur": Raw("0.100"), "args": {}})
    c = read(put(tmp_path, t.text()))
    # THEN both names are there, and the repairs are counted. `\n` is a valid escape, so only `\q` is kept as it stands.
    holds_small(c)
    names = set(c.host["name"].astype(str))
    assert any("\\qtip" in n for n in names) and any("two\nlines" in n for n in names)
    assert issues(c)["invalid escape or control character"] >= 2


def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    # GIVEN one Latin-1 byte in a name
    t = small()
    t.op("aten::caf#", 9_000, 100)
    c = read(put(tmp_path, t.data().replace(b"caf#", b"caf\xe9")))
    # THEN the byte is replaced and counted
    holds_small(c)
    assert "aten::caf\ufffd" in set(c.host["name"].astype(str)) and issues(c)["bytes that are not UTF-8"] == 1


def test_events_without_a_key_are_kept_or_counted(tmp_path: Path) -> None:
    # GIVEN events without ts, dur, cat, name, args, and one without anything
    t = small()
    t.add({"ph": "X", "cat": "cpu_op", "name": "no ts", "pid": 1, "tid": 1, "dur": Raw("1.000"), "args": {}})
    t.add({"ph": "X", "cat": "cpu_op", "name": "no dur", "pid": 1, "tid": 1, "ts": t.ts(10_000), "args": {}})
    t.add({"ph": "X", "name": "no cat", "pid": 1, "tid": 1, "ts": t.ts(11_000), "dur": Raw("1.000"), "args": {}})
    t.add({"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": t.ts(13_000), "dur": Raw("1.000"), "args": {}})
    t.add({"ph": "X", "cat": "kernel", "name": "no args", "pid": 0, "tid": 7, "ts": t.ts(15_000), "dur": Raw("0.500")})
    t.add({})
    c = read(put(tmp_path, t.text()))
    # THEN each is kept as far as it can be, and counted
    assert sorted(c.device["duration_ns"]) == [40, 60, 500]
    names = list(c.host["name"].astype(str))
    assert "no ts" not in names and {"no dur", "no cat", "(unnamed)"} <= set(names)
    assert c.host.loc[c.host["name"] == "no dur", "duration_ns"].tolist() == [0]
    found = issues(c)
    assert found["complete event without ts"] == 1 and found["complete event without dur"] == 1
    assert found["event without a category"] == 1
    assert c.facts.total_events == 16, "8 of the small trace, 2 flow halves, 6 odd ones"


def test_entries_and_arguments_of_the_wrong_type_are_counted(tmp_path: Path) -> None:
    # GIVEN entries that are no events, and arguments that are no object
    t = small()
    t.add({"ph": "X", "cat": "cpu_op", "name": "args list", "pid": 1, "tid": 1, "ts": t.ts(9_000), "dur": Raw("1.000"), "args": [1, 2]})
    t.add({"ph": "X", "cat": "cpu_op", "name": "args text", "pid": 1, "tid": 1, "ts": t.ts(9_500), "dur": Raw("1.000"), "args": "x"})
    text = t.text().replace('"traceEvents": [', '"traceEvents": [ 7, null, "text", [1],', 1)
    c = read(put(tmp_path, text))
    # THEN the events stay
    holds_small(c)
    assert {"args list", "args text"} <= set(c.host["name"].astype(str))
    found = issues(c)
    assert found["arguments that are not an object"] == 2 and found["entry that is not an event"] >= 1, "neighboring ones may count as one"


@pytest.mark.parametrize(
    ("duration", "expected", "reason"),
    [("-5.000", 0, "negative duration"), ("1e30", 0, "time out of range"), ("9223372036854775807", 0, "time out of range")],
)
def test_impossible_durations_are_counted(tmp_path: Path, duration: str, expected: int, reason: str) -> None:
    # GIVEN an operator with a duration that cannot be
    t = small()
    t.add({"ph": "X", "cat": "cpu_op", "name": "odd", "pid": 1, "tid": 1, "ts": t.ts(9_000), "dur": Raw(duration), "args": {}})
    c = read(put(tmp_path, t.text()))
    # THEN it is counted under its reason and kept as a call of length 0
    holds_small(c)
    got = c.host.loc[c.host["name"] == "odd", "duration_ns"].tolist()
    assert got == [expected] and issues(c)[reason] == 1
    assert c.facts.extent_ns[1] < 10**9, "the extent is not stretched"


@pytest.mark.parametrize(
    ("text", "ns"),
    [("5", 5_000), ("5.1", 5_100), ("5.12", 5_120), ("5.123", 5_123), ("5.1236", 5_124), ("5e1", 50_000), ('"5.5"', 5_500), ("0", 0)],
)
def test_a_duration_may_be_any_json_number(tmp_path: Path, text: str, ns: int) -> None:
    # GIVEN a duration in one of the forms in the wild (a fourth decimal rounds half up)
    t = TraceBuilder()
    t.add({"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": t.ts(0), "dur": Raw(text), "args": {}})
    # THEN it is exact to the nanosecond
    assert read(put(tmp_path, t.text())).host["duration_ns"].tolist() == [ns]


def test_overlapping_host_events_are_both_kept(tmp_path: Path) -> None:
    # GIVEN b that starts inside a and ends after it, with a launch after a's end
    t = TraceBuilder()
    t.op("a", 0, 1_000)
    t.op("b", 500, 1_000)
    t.launch("k", at=1_200, start=1_600, duration=10)
    c = read(put(tmp_path, t.text()))
    # THEN b is a child of a (which contains its start), ends where it ends, and the launch is b's; the overlap is counted
    names = list(c.host["name"].astype(str))
    row = names.index("b")
    assert names[int(c.host["parent"].iloc[row])] == "a" and int(c.host["duration_ns"].iloc[row]) == 1_000
    assert names[int(c.device["operator"].iloc[0])] == "b"
    assert issues(c)["overlaps its enclosing event"] == 1


def test_duplicate_correlations_and_ids_do_not_double_work(tmp_path: Path) -> None:
    # GIVEN two calls with one correlation, and one kernel of it
    t = TraceBuilder()
    first = t.call("cudaLaunchKernel", 0, 100)
    t.call("cudaLaunchKernel", 500, 100, correlation=first)
    t.kernel("k", 1_000, 10, correlation=first)
    c = read(put(tmp_path, t.text()))
    # THEN the kernel goes to the last call that starts before it, both calls stay, and it is counted
    assert len(c.tables["calls"]) == 2 and int(c.host["start_ns"].iloc[int(c.device["call"].iloc[0])]) == 500
    assert issues(c)["two calls with one correlation"] == 1


def test_work_that_starts_before_its_launch_is_counted_and_stays_where_it_is(tmp_path: Path) -> None:
    # GIVEN a device whose clock is behind that of its host: of four kernels two start before their calls, one with its call
    t = TraceBuilder()
    for at, start in ((1_000, 1_000), (3_000, 2_700), (5_000, 3_600), (7_000, 8_000)):
        t.launch(f"k{at}", at=at, start=start, duration=50)
    c = read(put(tmp_path, t.text()))
    # THEN these two are counted, with what the clocks differ by at least, and no time is changed
    table = c.tables["issues"].set_index("reason")
    assert int(table.loc["starts before its launch", "count"]) == 2
    assert table.loc["starts before its launch", "example"] == "1.40\u202fµs before: k5000"
    begun = c.host["start_ns"].to_numpy()[c.device["call"].to_numpy()]
    assert (c.device["start_ns"].to_numpy() - begun).tolist() == [0, -300, -1_400, 1_000]


def test_the_last_of_duplicate_keys_counts(tmp_path: Path) -> None:
    # GIVEN an event with two names WHEN it is read THEN the last one wins
    t = TraceBuilder()
    t.op("first", 0, 10)
    c = read(put(tmp_path, t.text().replace('"name": "first"', '"name": "first", "name": "last"')))
    assert list(c.host["name"].astype(str)) == ["last"]


NAMES = ["<script>alert(1)</script>", "say \"hi\" & 'bye'", "100 % of a/b/c", "行列積 ядро μ", "a\tb", "x" * 20_000, "\u202eevil", "{}[],:"]


@pytest.mark.parametrize("name", NAMES, ids=lambda n: ascii(n[:12]))
def test_names_survive_as_they_are(tmp_path: Path, name: str) -> None:
    # GIVEN a name that could upset HTML, URLs, CSV or a splitter
    t = small()
    t.op(name, 9_000, 100)
    t.kernel(name, 10_000, 80)
    c = read(put(tmp_path, t.text()))
    # THEN it is stored in full
    assert name in set(c.host["name"].astype(str)) and name in set(c.device["name"].astype(str))
    assert sorted(c.device["duration_ns"]) == [40, 60, 80]


def test_concrete_inputs_are_data_never_code(tmp_path: Path) -> None:
    # GIVEN an input string that would leave a mark if anyone evaluated it
    mark = tmp_path / "mark"
    attack = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    t = small()
    t.op("aten::mm", 9_000, 100, shapes=[[2, 2], [2, 2]], types=["float", "float"], concrete=[attack, attack])
    t.launch("gemm", at=9_010, start=9_200, duration=80)
    c = read(put(tmp_path, t.text()))
    for name in registry():
        c.analyze(name)
    # THEN it stays text
    assert not mark.exists()
    assert any("touch" in text for text in c.tables["operators"]["concrete"].astype(str))


def test_ids_of_any_type_and_many_devices_are_read(tmp_path: Path) -> None:
    # GIVEN 70 devices, an unknown device id and string threads
    t = TraceBuilder(devices=70)
    for device in (0, 64, 69, 1234):
        t.kernel("k", 1_000 * device, 10, device=device)
    t.add({"ph": "X", "cat": "cpu_op", "name": "s", "pid": "4242", "tid": "4242", "ts": t.ts(0), "dur": Raw("1.000"), "args": {}})
    t.op("n", 100, 100)
    c = read(put(tmp_path, t.text()))
    # THEN every device has its rows, and "4242" and 4242 are one thread
    assert sorted(c.device["device"]) == [0, 64, 69, 1234]
    assert c.host["thread"].nunique() == 1


def test_unknown_phases_and_categories_are_counted(tmp_path: Path) -> None:
    # GIVEN a phase and a category nobody knows
    t = small()
    t.add({"ph": "Q", "cat": "odd", "name": "q", "pid": 1, "tid": 1, "ts": t.ts(0)})
    t.add({"ph": "X", "cat": "brand_new", "name": "x", "pid": 1, "tid": 1, "ts": t.ts(9_000), "dur": Raw("1.000"), "args": {}})
    c = read(put(tmp_path, t.text()))
    # THEN the health of the file shows both under their own names
    holds_small(c)
    table = c.tables["categories"]
    assert {("odd", "Q"), ("brand_new", "X")} <= set(zip(table["category"].astype(str), table["phase"].astype(str), strict=True))
    assert issues(c)["unknown phase"] == 1


def test_begin_and_end_events_are_paired(tmp_path: Path) -> None:
    # GIVEN a B/E pair from a tool that edits traces, and a B without an end
    t = small()
    t.add({"ph": "B", "cat": "cpu_op", "name": "pair", "pid": 9, "tid": 9, "ts": t.ts(1_000)})
    t.add({"ph": "E", "cat": "cpu_op", "name": "pair", "pid": 9, "tid": 9, "ts": t.ts(1_700)})
    t.add({"ph": "B", "cat": "cpu_op", "name": "open", "pid": 9, "tid": 9, "ts": t.ts(2_000)})
    c = read(put(tmp_path, t.text()))
    # THEN the pair is one event of 700 ns; the open one is kept with length 0 and counted
    assert c.host.loc[c.host["name"] == "pair", "duration_ns"].tolist() == [700]
    assert c.host.loc[c.host["name"] == "open", "duration_ns"].tolist() == [0]
    assert issues(c)["begin or end event without its partner"] == 1


def test_nested_sizes_of_a_collective_and_an_accumulation_are_read(tmp_path: Path) -> None:
    # GIVEN a TensorList of lists on a collective, a first backward root without a number, two forward operators to one root
    t = TraceBuilder()
    t.op("record_param_comms", 0, 100, shapes=[[[4, 4], [8]]], types=["TensorList"])
    t.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 200, 50, thread=9)
    t.op("aten::mul", 300, 50, sequence=3)
    t.op("aten::add", 400, 50, sequence=3)
    t.op("autograd::engine::evaluate_function: MulBackward0", 600, 100, thread=9, sequence=3, forward_thread=1)
    t.op("MulBackward0", 610, 80, thread=9, sequence=3, forward_thread=1)
    c = read(put(tmp_path, t.text()))
    # THEN all load, and the root is linked to the forward operator that starts last
    assert len(c.host) == 6
    link = c.tables["backward"].iloc[0]
    names = c.host["name"].astype(str).tolist()
    assert (names[link["forward"]], names[link["backward"]]) == ("aten::add", "autograd::engine::evaluate_function: MulBackward0")


def test_a_name_of_megabytes_is_cut_and_different_names_stay_different(tmp_path: Path) -> None:
    # GIVEN three operators whose names are longer than any name, two of which differ in their last character only
    t = TraceBuilder()
    for place, last in enumerate("aab"):
        t.op("n" * 1_000_000 + last, place * 1_000, 900)
    # WHEN read
    c = read(put(tmp_path, t.text()))
    # THEN their beginnings are kept, as two names, and health says so
    names = c.host["name"].astype(str)
    assert names.str.len().max() < 33_000 and names.nunique() == 2 and issues(c)["name above the length limit"] == 2


def test_events_between_a_million_other_entries_are_kept(tmp_path: Path) -> None:
    # GIVEN good events between entries that are no events: numbers, lists, texts, braces that close nothing, and damaged events
    one = '{"ph": "X", "cat": "cpu_op", "name": "aten::a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    entries = [one, *["7"] * 100_000, one, *['["ph", {"ph": 1}]'] * 1_000, one, "}", one, *['{"ph" 1}'] * 1_000, one]
    # WHEN read THEN each of the five is there, and the others are counted
    c = read(put(tmp_path, '{"traceEvents": [' + ",".join(entries) + "]}"))
    assert len(c.host) == 5 and not c.facts.truncated
    assert issues(c)["entry that is not an event"] == 101_001 and issues(c)["unreadable event"] == 1, "neighboring ones count as one"


def test_the_search_for_the_next_event_loses_none_while_few_are_damaged(tmp_path: Path) -> None:
    # GIVEN 200 events, each behind one whose arguments do not end
    one = '{"ph": "X", "cat": "cpu_op", "name": "aten::a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    text = '{"traceEvents": [' + ",".join(['{"ph":"X","args":{"Input Dims":[[[1]}}', one] * 200) + "]}"
    # WHEN read THEN every good one is kept, although each damaged one reaches to the end of the file
    c = read(put(tmp_path, text))
    assert len(c.host) == 200
