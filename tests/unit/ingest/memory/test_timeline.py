"""Memory timelines as `export_memory_timeline` writes them: two forms of one history, damage, and what is none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import classify
from tb_sol_plugin.ingest.memory.timeline import CATEGORIES
from tb_sol_plugin.model.capture import Capture
from tests.support.check_capture import check_capture

EPOCH = 1_700_000_000_000_000_000
RAW = [
    [-1, 1, 4_197_376, 0],
    [-1, 1, 100, 7],
    [EPOCH + 5_000, 2, 512, 4],
    [EPOCH + 5_000, 2, 64, 5],
    [EPOCH + 7_000, 3, -64, 5],
    [EPOCH + 7_000, 3, 64, 1],
    [EPOCH + 9_000, 4, -512, 4],
]
"""There before: parameters and something unknown. Made: an activation and a gradient, which becomes state of the optimizer. Freed: the first."""


def put(folder: Path, value: object, name: str = "memory.json") -> Path:
    path = folder / name
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def rows(capture: Capture) -> list[tuple[int, str, int]]:
    t = capture.tables["memory_timeline"]
    return list(zip(t["time_ns"].tolist(), t["category"].astype(str).tolist(), t["bytes"].tolist(), strict=True))


def issues(capture: Capture) -> dict[str, int]:
    table = capture.tables["issues"]
    return dict(zip(table["reason"].astype(str), table["count"].tolist(), strict=True))


def test_changes_are_replayed_to_bytes_held(tmp_path: Path) -> None:
    # GIVEN the changes above WHEN read THEN each category has its bytes from each moment at which they change
    c = ingest.read(str(put(tmp_path, RAW, "memory.raw.json.gz")))
    assert rows(c) == [
        (0, "parameter", 4_197_376), (0, "activation", 512), (0, "gradient", 64), (0, "unknown", 100),
        (2_000, "optimizer_state", 64), (2_000, "gradient", 0), (4_000, "activation", 0),
    ]  # fmt: skip
    # AND what was there before stands at the first moment known, since 1970
    assert c.facts.source == "memory_timeline" and c.facts.origin_ns == EPOCH + 5_000 and c.facts.absolute
    assert c.facts.total_events == 7 and not issues(c) and not c.facts.truncated


def test_columns_of_rows_are_the_categories_in_their_order(tmp_path: Path) -> None:
    # GIVEN the same history as times in microseconds and rows of nine columns, each column another number
    times = [EPOCH // 1000 + 5, EPOCH // 1000 + 7]
    table = [[0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 50, 6, 7, 8]]
    c = ingest.read(str(put(tmp_path, [times, table])))
    # THEN column n is category n, and only what changes has a row again
    order = ["parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", "unknown"]
    assert rows(c) == [(0, name, n) for n, name in enumerate(order, 1)] + [(2_000, "activation", 50)]
    assert list(CATEGORIES) == order and c.facts.metadata["clock"] == "us" and c.facts.absolute


def test_rows_with_times_in_nanoseconds(tmp_path: Path) -> None:
    # GIVEN a version that wrote nanoseconds WHEN read THEN 2,000 ns lie between its two times
    c = ingest.read(str(put(tmp_path, [[EPOCH, EPOCH + 2_000], [[0, 1] + [0] * 7, [0, 2] + [0] * 7]])))
    assert [r[:1] + r[2:] for r in rows(c) if r[1] == "parameter"] == [(0, 1), (2_000, 2)]


def test_every_invariant_holds_for_both_forms_of_a_timeline(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    check_capture(put(tmp_path, RAW), tmp_path / "a")
    check_capture(put(tmp_path, [[1, 2], [[0] * 9, [0] * 8 + [7]]], "x.json"), tmp_path / "b")


def test_a_list_of_four_times_is_no_row_of_changes(tmp_path: Path) -> None:
    # GIVEN the form with rows, of exactly four times WHEN read THEN it is not taken for changes
    c = ingest.read(str(put(tmp_path, [[1, 2, 3, 4], [[0, n, 0, 0, 0, 0, 0, 0, 0] for n in (5, 6, 6, 7)]])))
    assert c.facts.metadata["form"] == "rows" and [r for r in rows(c) if r[1] == "parameter"] == [
        (0, "parameter", 5), (1_000, "parameter", 6), (3_000, "parameter", 7),
    ]  # fmt: skip


def test_a_page_that_needs_events_says_what_is_missing(tmp_path: Path) -> None:
    # GIVEN a memory timeline WHEN pages of a program are asked for THEN each says what the file holds instead
    c = ingest.read(str(put(tmp_path, RAW)))
    for name in ("overview", "findings", "steps", "kernels", "operators", "memcpy", "links"):
        answer = c.analyze(name)
        assert not answer.available and "a memory timeline holds memory over time" in answer.because, name
        assert "profile(" in answer.record_it_with


@pytest.mark.parametrize(
    ("text", "left"),
    [(json.dumps(RAW)[:-1], 7), (json.dumps(RAW)[:-20], 6), (json.dumps(RAW)[:-2] + ", ", 6)],
    ids=["the last bracket", "within a row", "after a row"],
)
def test_a_cut_file_gives_its_whole_rows(tmp_path: Path, text: str, left: int) -> None:
    # GIVEN a file that ends too early WHEN read THEN whole rows are there and the end is told
    c = ingest.read(str(put(tmp_path, text.encode())))
    assert c.facts.total_events == left and c.facts.truncated and issues(c)["truncated file"] == 1


def test_damaged_values_are_counted(tmp_path: Path) -> None:
    # GIVEN an unknown action, an unknown category and a free with a positive size
    c = ingest.read(str(put(tmp_path, [[1, 2, 8, 0], [2, 9, 8, 0], [3, 2, 8, 12], [4, 4, 8, 0]])))
    # THEN the first is skipped, the second unknown, the third takes away
    assert rows(c) == [(0, "parameter", 8), (2, "unknown", 8), (3, "parameter", 0)]
    assert issues(c) == {
        "memory change of an unknown kind": 1,
        "memory of an unknown category": 1,
        "memory change whose sign contradicts its kind": 1,
    }


def test_impossible_sizes_count_in_no_level(tmp_path: Path) -> None:
    # GIVEN changes and rows with sizes beyond every memory, and a row at a time beyond all times
    c = ingest.read(str(put(tmp_path, [[1, 2, 8, 0], [2, 2, 1 << 62, 0], [3, 4, -(1 << 62), 1], [4, 4, -8, 0]])))
    # THEN such a change is skipped, such a number is as in the row before, such a row is left out; each is counted
    assert rows(c) == [(0, "parameter", 8), (3, "parameter", 0)] and issues(c) == {"impossible memory size": 2}
    held = [[0, 8, 0, 0, 0, 0, 0, 0, 5], [0, 1 << 62, 0, 0, 0, 0, 0, 0, -(1 << 63)], [0, 9, 0, 0, 0, 0, 0, 0, 5], [0, 1, 0, 0, 0, 0, 0, 0, 1]]
    c = ingest.read(str(put(tmp_path, [[1, 2, 3, 1 << 62], held], "rows.json")))
    assert [r for r in rows(c) if r[1] in ("parameter", "unknown")] == [(0, "parameter", 8), (0, "unknown", 5), (2000, "parameter", 9)]
    assert issues(c) == {"impossible memory size": 2, "time out of range": 1}


@pytest.mark.parametrize(
    "text",
    [b'[[1, 2, 3, 4], [1, "a", 3, 4]]', b"[[1, 2, 3, 4], [1, 2, 3]]", b"[[1, 2, 3, 99999999999999999999999]]", b"[[], []]", b"[[1], [[0, 1]]]",
     b"[[1, 2, 3, 4], [" + b"1" * 200_000, b"[[" + b"1," * 40_000, b"[[1, 2, 3, 4], [1, 2, 3, 1e400]]"],
    ids=["a text", "short row", "huge number", "nothing", "few columns", "row without end", "times only", "not finite"],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_one_error(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(BadInput) as caught:
        ingest.read(str(put(tmp_path, text)))
    assert caught.value.file == "memory.json" and caught.value.hint and "memory timeline" in caught.value.message


def test_megabytes_of_space_between_the_lists_take_no_time(tmp_path: Path) -> None:
    # GIVEN a list of times and 3 MB of space behind it, and 6 MB WHEN read THEN the first opens, the second is no timeline (it never ended)
    times, rows_ = b"[[1, 2]", b", [[0,1,2,3,4,5,6,7,8],[0,1,2,3,4,5,6,7,8]]]"
    assert ingest.read(str(put(tmp_path, times + b" " * 3_000_000 + rows_))).facts.total_events == 2
    with pytest.raises(NotATrace):
        ingest.read(str(put(tmp_path, times + b" " * 6_000_000 + rows_)))


def test_a_picture_of_a_timeline_is_refused_with_the_way_out(tmp_path: Path) -> None:
    # GIVEN the HTML form, which holds a picture WHEN opened THEN the message says how to export numbers
    text = b"<html>\n<head><meta charset=\"utf-8\" /><title>GPU Memory Timeline HTML</title></head>\n<body><img src='data:image/png;base64,AAAA'>"
    assert classify(text, "memory.html").kind == "memory_picture"
    with pytest.raises(NotATrace) as caught:
        ingest.read(str(put(tmp_path, text, "memory.html")))
    assert "picture" in caught.value.message and "export_memory_timeline" in caught.value.hint


@given(st.lists(st.tuples(st.integers(-1, 20), st.integers(1, 4), st.integers(0, 1000), st.integers(0, 7)), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_replayed_changes_equal_a_slow_replay(tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, int, int]]) -> None:
    # GIVEN any changes WHEN replayed one by one in plain Python
    raw = sorted(([t, a, -n if a == 4 else n, k] for t, a, n, k in changes), key=lambda r: r[0])
    first = min((r[0] for r in raw if r[0] >= 0), default=0)
    held: dict[int, int] = dict.fromkeys(range(8), 0)
    wanted: dict[tuple[int, int], int] = {}
    for t, _, n, k in raw:
        held[k] += n
        for category in range(8):
            wanted[max(t, first), category] = max(held[category], 0)
    # THEN at every moment the last row of a category up to it holds the same
    c = ingest.read(str(put(tmp_path_factory.mktemp("t"), raw)))
    found = rows(c)
    for (t, k), n in wanted.items():
        last = [b for at, name, b in found if name == CATEGORIES[k] and at + c.facts.origin_ns <= t]
        assert (last[-1] if last else 0) == n
