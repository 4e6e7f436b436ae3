"""SOL captures that are broken, hostile or strange: read as far as they can be, counted, never an error but SolError."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import NotATrace
from tb_sol_plugin.ingest.sol import collect, reader, records
from tb_sol_plugin.ingest.sol.reader import lines
from tb_sol_plugin.model.capture import Capture
from tests.support.check_capture import host_tree_is_whole
from tests.support.sol_builder import WALL_NS, SolBuilder, small


def read(tmp_path: Path, text: bytes, name: str = "x.sol.jsonl") -> Capture:
    (tmp_path / name).write_bytes(text)
    c = ingest.read(str(tmp_path / name))
    host_tree_is_whole(c)
    return c


def issues(c: Capture) -> dict[str, int]:
    table = c.tables["issues"]
    assert (table["effect"].astype(str) != "").all()
    found = dict(zip(table["reason"].astype(str), table["count"].tolist(), strict=True))
    found.pop("no close record", None)
    return found


def one(**row: object) -> SolBuilder:
    """A recording of one iteration with one signature, a phase and a module."""
    b = SolBuilder()
    b.phase("train"), b.module("fc", "Linear")
    b.sig("aten::mm", [[2, 2], [2, 2]], [[2, 2]], flop=16, bytes=48)
    b.iteration(0, 0, 1000, rows=[b.row(0, phase=0, module=1)], phases=[b.time(0, 0, 900)], modules=[b.time(1, 10, 100)])
    return b


def plain(b: SolBuilder) -> bytes:
    """The lines as Python's json writes them: NaN and all."""
    return b"".join(json.dumps(r).encode() + b"\n" for r in b.records)


def ledger_of(b: SolBuilder, rows: object) -> SolBuilder:
    next(r for r in b.records if r["kind"] == "ledger")["rows"] = rows  # type: ignore[assignment]
    return b


# -- lines ----------------------------------------------------------------------------------------------------------


def test_a_truncated_last_line_costs_that_line(tmp_path: Path) -> None:
    text = b"".join(one().lines())
    c = read(tmp_path, text[:-20])
    assert issues(c) == {"truncated last line": 1} and c.facts.truncated and len(c.tables["ledger"]) == 1


def test_a_last_line_without_its_line_feed_is_read_where_it_is_whole(tmp_path: Path) -> None:
    b = one()
    b.close(1)
    c = read(tmp_path, b"".join(b.lines())[:-1])
    assert c.tables["issues"].empty and not c.facts.truncated


def test_garbage_between_lines_is_skipped_and_named_by_its_line(tmp_path: Path) -> None:
    parts = one().lines()
    garbage = [
        b"\x00" * 500 + b"\n",
        b"{not json\n",
        b"[1,2]\n",
        b'"text"\n',
        b'{"a":1}\n',
        b'{"kind":7}\n',
        b"\xff\xfe\n",
        b"[" * 5000 + b"\n",
    ]
    c = read(tmp_path, b"".join([*parts[:3], *garbage, *parts[3:]]))
    assert issues(c) == {"line that is not a record": 8} and len(c.tables["ledger"]) == 1
    assert str(c.tables["issues"].set_index("reason")["example"]["line that is not a record"]).startswith("line 4:")


def test_blank_lines_byte_order_mark_and_carriage_returns_are_no_oddity(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + b"\r\n\n".join(line.rstrip(b"\n") for line in one().lines()) + b"\r\n"
    assert issues(read(tmp_path, text)) == {}


def test_nan_and_bytes_that_are_not_utf8_are_read_and_counted(tmp_path: Path) -> None:
    b = one()
    b.records[3]["flop"] = float("nan")
    text = plain(b).replace(b'"name": "fc"', b'"name": "f\xff"')
    c = read(tmp_path, text)
    assert issues(c) == {"NaN, Infinity or N/A": 1, "bytes that are not UTF-8": 1}
    assert np.isnan(c.tables["ledger"]["flop"].iloc[0]) and c.tables["ledger"]["bytes"].iloc[0] == 48
    assert "f�" in set(c.tables["labels"]["name"].astype(str))


def test_lines_of_any_length_in_blocks_of_any_size() -> None:
    text = b"a\n\nbb\n" + b"c" * 50 + b"\nd"
    for size in (1, 2, 3, 7, 100):
        blocks = [text[i : i + size] for i in range(0, len(text), size)]
        found = [(line.number, line.text, line.ended) for line in lines(blocks, longest=10)]
        assert found == [(1, b"a", True), (3, b"bb", True), (4, b"", True), (5, b"d", False)]


def test_a_gzip_that_ends_too_early_gives_what_it_held(tmp_path: Path) -> None:
    b = one()
    for number in range(1, 400):
        b.iteration(number, number * 1000, 900, signature=f"{number * 7919}")
    packed = gzip.compress(b"".join(b.lines()))
    c = read(tmp_path, packed[: len(packed) // 2], "x.sol.jsonl.gz")
    found = issues(c)
    assert found["truncated file"] == 1 and c.facts.truncated and 10 < len(c.tables["iterations"]) < 400


# -- records --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "field", "value", "reason"),
    [
        (3, "op", 7, "value of the wrong type"),
        (3, "flop", "many", "value of the wrong type"),
        (3, "flop", -5, "impossible amount of work"),
        (3, "flop", 10**400, "value of the wrong type"),
        (3, "bytes", 1e25, "impossible amount of work"),
        (3, "id", "zero", "record with missing fields"),
        (3, "id", 2**40, "id out of range"),
        (3, "id", -1, "id out of range"),
        (2, "what", "planet", "label of an unknown type"),
        (2, "parent", 1, "label whose parent is not defined before it"),
        (2, "parent", 99, "label whose parent is not defined before it"),
        (2, "parent", 10**30, "label whose parent is not defined before it"),
        (2, "name", [1], "value of the wrong type"),
        (4, "duration_ns", -5, "negative duration"),
        (4, "duration_ns", 1e300, "iteration without its time"),
        (4, "start_ns", None, "iteration without its time"),
        (4, "iteration", -3, "iteration without a number"),
        (4, "iteration", 10**25, "iteration without a number"),
        (4, "iteration", "first", "record with missing fields"),
        (4, "batch", {}, "value of the wrong type"),
        (4, "lost", [1], "value of the wrong type"),
        (4, "sampled", "yes", "value of the wrong type"),
        (5, "rows", 3, "row that cannot be read"),
        (6, "rows", [[0, 5, -9, None, 1]], "negative duration"),
        (6, "rows", [[0, 1e25, 5, None, 1]], "time out of range"),
        (6, "rows", [[1, 5, 5, None, 1]], "phase that is not defined"),
        (6, "rows", [[-1, 5, 5, None, 1]], "range without a label"),
        (6, "rows", [[0, None, 5, None, 1]], "time out of range"),
        (6, "rows", [{}, None, [0]], "row that cannot be read"),
    ],
)
def test_one_bad_value_is_counted_and_costs_no_more_than_its_record(
    tmp_path: Path, place: int, field: str, value: object, reason: str
) -> None:
    # GIVEN a good recording with one value replaced, and a good iteration behind it
    b = one()
    b.records[place][field] = value  # type: ignore[assignment]
    b.sig("aten::add", [[4], [4]], flop=0)
    b.iteration(1, 5000, 1000, rows=[b.row(1)])
    # WHEN it is read, THEN the reason is counted, and the second iteration is whole
    c = read(tmp_path, plain(b))
    assert reason in issues(c), issues(c)
    assert 1 in c.tables["iterations"]["number"].tolist() and c.tables["ledger"]["name"].astype(str).iloc[-1] == "aten::add"


@pytest.mark.parametrize(
    ("row", "reason", "kept"),
    [
        ([9, -1, -1, -1, -1, 0, 1, None], "work of a signature that is not defined", True),
        ([0, 0, -1, -1, -1, 0, 1, None], "module that is not defined", True),
        ([0, 10**6, -1, -1, -1, 0, 1, None], "module that is not defined", True),
        ([0, -1, 1, -1, -1, 0, 1, None], "phase that is not defined", True),
        ([0, -1, -1, -7, -1, 0, 1, None], "phase that is not defined", True),
        ([0, -1, -1, -1, 5, 0, 1, None], "function that is not defined", True),
        ([0, -1, -1, -1, -1, 0, 0, None], "work with an impossible number of calls", False),
        ([0, -1, -1, -1, -1, 0, -4, None], "work with an impossible number of calls", False),
        ([0, -1, -1, -1, -1, 0, 10**12, None], "work with an impossible number of calls", False),
        ([0, -1, -1, -1, -1, 0, 10**400, None], "work with an impossible number of calls", False),
        ([0, -1, -1, -1, -1, 0, 1, -5], "negative time", True),
        ([0, -1, -1, -1, -1, "x", 1, 5], "row that cannot be read", False),
        ([0, -1], "row that cannot be read", False),
    ],
)
def test_one_bad_row_of_a_ledger_costs_no_more_than_itself(tmp_path: Path, row: list[object], reason: str, kept: bool) -> None:
    # GIVEN a bad row between two good ones
    good = [0, 1, 0, -1, -1, 0, 2, 30]
    c = read(tmp_path, plain(ledger_of(one(), [good, row, good])))
    # THEN the good ones are there, and the bad one is kept without what it lacks, or left out
    assert issues(c) == {reason: 1}
    assert len(c.tables["ledger"]) == (3 if kept else 2) and c.tables["ledger"]["flop"].iloc[-1] == 16.0
    if reason.startswith("work of a signature"):
        assert str(c.tables["ledger"]["name"].iloc[1]) == "(not defined in the file)" and np.isnan(c.tables["ledger"]["flop"].iloc[1])


def test_flags_and_device_times_that_cannot_be_are_not_believed(tmp_path: Path) -> None:
    b = ledger_of(one(), [[0, 1, 0, -1, -1, -1, 1, None], [0, 1, 0, -1, -1, 2**40, 1, None]])
    b.records[4]["device_ns"] = -7
    c = read(tmp_path, plain(b))
    assert not c.tables["ledger"][["recompute", "estimated", "compiled"]].to_numpy().any()
    assert np.isnan(c.tables["iterations"]["device_ns"].iloc[0])


def test_the_last_of_two_definitions_of_an_id_counts(tmp_path: Path) -> None:
    # GIVEN a signature and a label that are defined again, first as they were, then otherwise
    b = one()
    b.records += [dict(b.records[2]), dict(b.records[3]), {**b.records[3], "op": "aten::bmm"}]
    b.iteration(1, 5000, 1000, rows=[b.row(0, module=1)])
    c = read(tmp_path, plain(b))
    # THEN the later one holds for what follows
    assert issues(c) == {"id defined twice": 1}
    assert c.tables["ledger"]["name"].astype(str).tolist() == ["aten::bmm"] and len(c.tables["labels"]) == 2


def test_labels_that_are_their_own_parents_stand_at_the_top(tmp_path: Path) -> None:
    # GIVEN a label inside itself, and two inside each other
    b = SolBuilder()
    b.module("a", "A", 0), b.module("b", "B", 2), b.module("c", "C", 1)
    b.sig("aten::mm", [[2, 2], [2, 2]], flop=16)
    b.iteration(0, 0, 10, rows=[b.row(0, module=2)])
    c = read(tmp_path, plain(b))
    assert c.tables["labels"]["parent"].tolist() == [-1, -1, 1] and issues(c)["label whose parent is not defined before it"] == 2


def test_two_recordings_in_one_file_have_ids_and_times_of_their_own(tmp_path: Path) -> None:
    # GIVEN a file with another one appended, whose process began a second later and counts from 0 again
    later = small(wall_ns=WALL_NS + 10**9, pid=4243)
    c = read(tmp_path, b"".join([*small().lines(), *later.lines()]))
    # THEN labels are shared, times are on the first one's clock, nothing is lost
    assert issues(c)["second header in one file"] == 1 and len(c.tables["labels"]) == 6
    assert c.tables["iterations"]["start_ns"].tolist() == [0, 10**7, 18 * 10**6, 10**9, 10**9 + 10**7, 10**9 + 18 * 10**6]


def test_without_a_readable_header_the_rest_is_read(tmp_path: Path) -> None:
    parts = small().lines()
    c = read(tmp_path, b"".join([b"\x00" * len(parts[0]) + b"\n", *parts[1:]]))
    assert issues(c)["no readable header"] == 1 and len(c.tables["ledger"]) == 6 and not c.facts.absolute and c.facts.rank is None


@pytest.mark.parametrize(
    "header",
    [
        {"rank": "zero", "world_size": -1, "pid": None, "wall_ns": "now", "host": 7, "torch": ["2"], "device": [], "model": 5},
        {"rank": 2**80, "world_size": 1e400, "pid": -5, "wall_ns": -1, "device": {"type": 5, "limits": {"peak_flops": [1]}}},
        {"device": {"type": "cuda", "name": None, "memory_bytes": 1e400, "units": "many", "limits": {"peak_flops": {"bf16": -1}}}},
        {"device": {"type": "cuda", "limits": {"memory_bandwidth_bytes_per_sec": True, "peak_flops": {"bf16": "fast", "fp32": 1e99}}}},
        {"device": None, "groups": {"tp": [1], "pp": "x", "dp": [None, 3]}, "precision": 3, "part": "x", "every_n_steps": {}},
    ],
)
def test_a_header_of_odd_values_gives_unknown_facts(tmp_path: Path, header: dict[str, object]) -> None:
    b = small()
    b.records[0] |= header  # type: ignore[arg-type]
    c = read(tmp_path, plain(b).replace(b"Infinity", b"1e999"))
    assert c.facts.limits is None and len(c.tables["ledger"]) == 6
    assert c.facts.world_size is None or c.facts.world_size == 1


def test_secrets_do_not_leave_a_header(tmp_path: Path) -> None:
    secret = "hf_abcdefghijklmnop1234"
    b = small(host=f"n-{secret}", mode=secret, environment={"HF_TOKEN": secret}, argv=[secret])
    b.records[0]["model"] = {"class": secret, "notes": secret}
    b.note("x", f"token={secret}")
    assert secret not in repr(read(tmp_path, plain(b)).facts)


def test_iterations_that_overlap_or_run_backwards_are_sorted(tmp_path: Path) -> None:
    # GIVEN sampled iterations one around another, one before all, with ranges outside them
    b = SolBuilder()
    phase = b.phase("p")
    b.sig("aten::mm", [[2, 2], [2, 2]], flop=16)
    for number, start, length in ((0, 5000, 10), (1, 1000, 3000), (2, 1500, 100), (3, 1500, 100), (4, 0, 1100), (5, 3999, 0)):
        b.iteration(
            number, start, length, rows=[b.row(0, phase=phase)], phases=[b.time(phase, start - 50, 2 * length), b.time(phase, -5, 1)]
        )
    c = read(tmp_path, plain(b))
    assert c.steps["number"].tolist() == [4, 1, 2, 3, 5] and (c.steps["end_ns"] >= c.steps["start_ns"]).all()
    assert (c.steps["start_ns"].to_numpy()[1:] >= c.steps["start_ns"].to_numpy()[:-1]).all()
    assert c.tables["ledger"]["phase_host"].min() >= 0


# -- size -----------------------------------------------------------------------------------------------------------


def test_of_too_many_rows_the_latest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a reader that keeps 100 rows, and 50 iterations with 10 each
    monkeypatch.setattr(collect, "MOST_LEDGER_ROWS", 100)
    b = SolBuilder()
    b.sig("aten::mm", [[2, 2], [2, 2]], flop=16)
    for number in range(50):
        b.iteration(number, number * 100, 90, rows=[b.row(0)] * 10)
    c = read(tmp_path, plain(b))
    # THEN it keeps those of the last ten, says so, and lists all iterations, with sums where they are known
    assert sorted(set(c.tables["ledger"]["iteration"])) == list(range(40, 50)) and issues(c) == {"work of early iterations": 400}
    assert len(c.tables["iterations"]) == 50 and c.steps["number"].tolist() == list(range(40, 50))
    assert np.isnan(c.tables["iterations"]["flop"].iloc[0]) and c.tables["iterations"]["flop"].iloc[-1] == 160.0


def test_two_hundred_thousand_labels_in_a_chain_are_read_without_recursion(tmp_path: Path) -> None:
    # GIVEN 200,000 modules each inside the one before, and work in the last one
    count = 200_000
    head = one().lines()[0]
    labels = b"".join(b'{"kind":"label","id":%d,"what":"module","parent":%d,"name":"m","class":"M"}\n' % (i, i - 1) for i in range(count))
    b = SolBuilder()
    b.sig("aten::mm", [[2, 2], [2, 2]], flop=16)
    b.iteration(0, 0, 1000, rows=[b.row(0, module=count - 1)])
    c = read(tmp_path, head + labels + b"".join(b.lines()[1:]))
    # THEN nothing recurses
    assert len(c.tables["labels"]) == count and c.tables["ledger"]["module"].tolist() == [count - 1]


def test_many_reasons_are_one_line_and_no_count_is_lost(tmp_path: Path) -> None:
    # GIVEN 80 iterations, each of which lost something else
    b = SolBuilder()
    for number in range(80):
        b.iteration(number, number * 100, 90, lost={f"operator {number}": 2})
    found = issues(read(tmp_path, plain(b)))
    assert len(found) == 51 and found["not recorded: other reasons"] == 60 and sum(found.values()) == 160


def test_a_line_of_too_many_values_is_passed_over_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a line of 30,000 lists, and a limit below it WHEN the file is read THEN the others are, and this one is not parsed
    long = b'{"kind":"ledger","iteration":5,"rows":[' + b",".join([b"[]"] * 30_000) + b"]}\n"
    parsed: list[int] = []
    monkeypatch.setattr(reader, "MOST_VALUES", 20_000)
    monkeypatch.setattr(records, "_rows", lambda *a: parsed.append(len(a[0])) or [])
    c = read(tmp_path, plain(small()) + long)
    assert issues(c) == {"line of too many values": 1} and parsed == []
    # AND a file of nothing else says so
    with pytest.raises(NotATrace, match="hold more than 20,000 values"):
        read(tmp_path, long, "y.sol.jsonl")


def test_rows_that_cannot_be_read_are_tried_so_many_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN two records of rows that cannot be read, good ones between them WHEN 5 may be tried in vain
    b = one()
    rows = next(r for r in b.records if r["kind"] == "ledger")["rows"]
    ledger_of(b, [[], [], [], *rows, [], [], [], [], *rows])
    monkeypatch.setattr(records, "MOST_UNREADABLE", 5)
    c = read(tmp_path, plain(b))
    # THEN what follows the fifth and one more is passed over, and every row is counted
    assert len(c.tables["ledger"]) == len(rows) and issues(c)["row that cannot be read"] == 7 + len(rows)
