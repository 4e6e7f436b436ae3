"""The cache gives back what was put in, survives damage and bad disks, and stays below its limit."""

from __future__ import annotations

import os
import pickle
import random
import stat
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.devices.spec import DeviceBook, DeviceProps
from tb_sol_plugin.model import schemas
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.recordings import Reduced, ReducedFacts
from tb_sol_plugin.store import cache as arrow
from tb_sol_plugin.store import seal, timelines
from tb_sol_plugin.store.cache import Cache, key_of
from tb_sol_plugin.store.reductions import ReductionFiles
from tb_sol_plugin.tables.schema import Field, Schema
from tests.support.cache_damage import Kept

REDUCED = msgspec.msgpack.encode(Reduced(ReducedFacts("kineto", None, None, "", "", (), 0, False, (0, 0)), b"x"))


def small_capture(rows: int = 3) -> Capture:
    facts = Facts(
        source="kineto", file="a.json", size=12, total_events=rows, extent_ns=(0, 30), vendor="nvidia", rank=2, world_size=4,
        devices=(DeviceProps(id=0, name="H100", units=132),), flags={"with_stack": True, "with_flops": None}, metadata={"dtype": "bf16"},
    )  # fmt: skip
    host = schemas.HOST.frame({
        "name": pd.Categorical([f"aten::{i % 2}" for i in range(rows)]), "start_ns": np.arange(rows) * 10, "duration_ns": np.full(rows, 5),
        "clipped": np.arange(rows) % 2 == 0, "parent": np.full(rows, -1, np.int32),
    })  # fmt: skip
    return Capture(facts, {"host": host, "steps": schemas.STEPS.frame({"number": [7], "start_ns": [0], "end_ns": [30]})})


def same(a: Capture, b: Capture) -> None:
    assert a.facts == b.facts
    for name in schemas.ALL:
        pd.testing.assert_frame_equal(a.tables[name], b.tables[name])
        for column in a.tables[name]:
            left, right = a.tables[name][column].dtype, b.tables[name][column].dtype
            assert left == right
            if isinstance(left, pd.CategoricalDtype):
                assert left.categories.dtype == right.categories.dtype
                assert a.tables[name][column].cat.codes.dtype == b.tables[name][column].cat.codes.dtype


def test_a_capture_survives_the_cache_unchanged(tmp_path: Path) -> None:
    # GIVEN a capture WHEN it is saved and loaded THEN facts, every table, every dtype are the same
    cache = Cache(tmp_path / "c")
    capture = small_capture()
    assert cache.save("k", capture)
    loaded = cache.load("k")
    assert loaded is not None
    same(capture, loaded)


def test_tables_without_rows_are_not_kept(tmp_path: Path) -> None:
    # GIVEN captures with rows in two tables and in none WHEN they are saved THEN the other tables are empty when they are loaded
    cache = Cache(tmp_path)
    for key, capture, tables in (("k", small_capture(), {"host", "steps"}), ("none", Capture(Facts("kineto", "x", 0), {}), set())):
        cache.save(key, capture)
        assert cache._contents(key).tables.keys() == tables
        loaded = cache.load(key)
        assert loaded is not None and {name for name, table in loaded.tables.items() if len(table)} == tables
        assert loaded.tables.keys() == schemas.ALL.keys()


def test_a_table_is_made_when_it_is_asked_for_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a saved capture WHEN it is loaded, given other devices and asked for one table twice THEN that table alone is made, once
    made: list[str] = []
    monkeypatch.setattr(arrow, "read", lambda file, place, schema, read=arrow.read: made.append(schema.name) or read(file, place, schema))
    cache = Cache(tmp_path)
    cache.save("k", small_capture())
    loaded = cache.load("k")
    assert loaded is not None and made == []
    # AND rows are counted, and a column is read, without it
    assert (loaded.rows("host"), loaded.rows("device"), len(loaded.column("device", "name")), made) == (3, 0, 0, [])
    pd.testing.assert_series_equal(loaded.column("host", "name"), small_capture().host["name"], check_names=False)
    assert made == [] and small_capture().column("host", "duration_ns").tolist() == loaded.column("host", "duration_ns").tolist() == [5, 5, 5]
    for column in ("name", "start_ns", "clipped"):
        one, two = small_capture().numbers("host", column), loaded.numbers("host", column)
        assert one.tolist() == two.tolist() and one.dtype == two.dtype and not two.flags.writeable and made == []
    other = loaded.with_devices(DeviceBook())
    assert loaded.tables["host"] is other.tables["host"] and len(loaded.tables["device"]) == 0 and made == ["host"]
    # AND it can be sent to another process
    assert pickle.loads(pickle.dumps(dict(loaded.tables)))["host"].equals(loaded.host)
    assert isinstance(pickle.loads(pickle.dumps(loaded.tables)), dict)


def test_numbers_are_views_of_the_file(tmp_path: Path) -> None:
    # GIVEN a saved capture WHEN loaded THEN its numbers are not copies: they own no memory and cannot be written
    cache = Cache(tmp_path)
    cache.save("k", small_capture(100))
    loaded = cache.load("k")
    assert loaded is not None
    for column in ("start_ns", "parent", "clipped"):
        values = loaded.host[column].to_numpy()
        assert not values.flags.owndata and not values.flags.writeable, column
    codes = loaded.host["name"].array.codes  # type: ignore[attr-defined]
    assert not codes.flags.owndata


SCHEMA = Schema(
    "t", "a row", {"word": Field("category"), "n": Field("int64"), "x": Field("float64"), "b": Field("bool"), "k": Field("int8")}
)
ROW = st.tuples(
    st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=6)),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=True),
    st.booleans(),
    st.integers(-128, 127),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, max_size=20), st.booleans(), st.sampled_from([0, arrow.AT_ONCE]))
def test_any_table_survives_the_cache_unchanged(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[object, ...]], as_object: bool, at_once: int
) -> None:
    words = [r[0] for r in rows]
    known = sorted({w for w in words if w is not None})  # type: ignore[type-var]
    categories = pd.Index(known, dtype=object if as_object else "str")
    frame = SCHEMA.frame({
        "word": pd.Categorical(words, categories=categories), "n": np.array([r[1] for r in rows], np.int64),
        "x": np.array([r[2] for r in rows], np.float64), "b": np.array([r[3] for r in rows], bool), "k": np.array([r[4] for r in rows], np.int8),
    })  # fmt: skip
    path = str(tmp_path_factory.mktemp("arrow") / "t.arrow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "AT_ONCE", at_once)
        placed, sealed = arrow.write({"other": (frame, SCHEMA), "t": (frame, SCHEMA)}, path)
    back = arrow.read(arrow.mapped(path, sealed), placed["t"], SCHEMA)
    pd.testing.assert_frame_equal(frame, back, check_exact=True)
    assert list(back["word"].cat.categories) == known
    for name in SCHEMA.fields:
        pd.testing.assert_series_equal(back[name], arrow.read_column(arrow.mapped(path, sealed), placed["t"], SCHEMA, name), check_names=False)
    assert back["word"].cat.codes.tolist() == frame["word"].cat.codes.tolist()


@pytest.mark.parametrize("harm", ["truncate", "garbage", "remove", "facts", "facts_empty", "swap"])
def test_a_damaged_entry_is_removed(tmp_path: Path, harm: str) -> None:
    # GIVEN a saved entry WHEN a file of it is harmed THEN loading answers None, the entry is gone, a new save works
    cache = Cache(tmp_path)
    cache.save("k", small_capture(50))
    table, facts = tmp_path / "k" / arrow.FILE, tmp_path / "k" / "facts.json"
    if harm == "truncate":
        table.write_bytes(table.read_bytes()[:-40])
    elif harm == "garbage":
        table.write_bytes(os.urandom(table.stat().st_size))
    elif harm == "remove":
        table.unlink()
    elif harm == "facts":
        facts.write_bytes(b'{"source": 1}')
    elif harm == "facts_empty":
        facts.write_bytes(b"")
    else:
        cache.save("other", small_capture(51))
        table.write_bytes((tmp_path / "other" / arrow.FILE).read_bytes())
    assert cache.load("k") is None
    assert not cache.has("k")
    assert cache.save("k", small_capture(50)) and cache.load("k") is not None


def test_damaged_files_never_change_an_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    # GIVEN two recordings in a cache WHEN files of it are flipped, cut, removed, swapped THEN what comes back is what a fresh read gives
    monkeypatch.setattr(timelines, "FEWEST", 1)
    kept = Kept(tmp_path)
    for number in range(16):
        what = kept.damage(random.Random(f"suite {number}"))
        assert not kept.differs(), what
    # AND the log says what was made again, without a path
    said = [r.getMessage() for r in caplog.records]
    assert any("made again" in line for line in said) and not any(str(tmp_path) in line for line in said)


def test_entries_that_change_places_are_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN two whole entries WHEN they change names, and a reduction goes under another's name THEN neither is taken for the other
    cache, files = Cache(tmp_path), ReductionFiles(tmp_path)
    cache.save("one", small_capture(3))
    cache.save("two", small_capture(5))
    files.save("aa-1", REDUCED)
    for old, new in (("one", "x"), ("two", "one"), ("x", "two"), ("parts/aa/aa-1.part", "parts/aa/aa-2.part")):
        (tmp_path / old).rename(tmp_path / new)
    assert cache.facts("one") is None
    assert cache.load("one") is None and cache.load("two") is None and files.load("aa-2") is None
    assert len(caplog.records) == 3


def test_an_entry_that_cannot_be_removed_is_written_over(tmp_path: Path) -> None:
    # GIVEN what is left of an entry: a folder without its facts WHEN the recording is read again THEN it is kept
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / arrow.FILE).write_bytes(b"x")
    cache = Cache(tmp_path)
    assert cache.save("k", small_capture()) and cache.load("k") is not None


def test_codes_out_of_range_count_as_damage(tmp_path: Path) -> None:
    # GIVEN a file whose codes point past the words (one byte changed in place) WHEN read THEN it is refused, not read past the end
    schema = Schema("t", "", {"w": Field("category")})
    path = tmp_path / "t.arrow"
    frame = schema.frame({"w": pd.Categorical(["a", "b", "a", "b", "a", "b", "a", "b"])})
    placed, sealed = arrow.write({"t": (frame, schema)}, str(path))
    raw = path.read_bytes()
    codes = bytes([0, 1, 0, 1, 0, 1, 0, 1])
    assert raw.count(codes) == 1
    path.write_bytes(raw.replace(codes, bytes([0, 1, 0, 99, 0, 1, 0, 1])))
    with pytest.raises(arrow.Damaged, match="checksum"):
        arrow.mapped(str(path), sealed)
    # AND where a writer gave it a checksum all the same
    forged = arrow.mapped(str(path), arrow.Sealed(len(raw), seal.checksum(path.read_bytes(), arrow.FILE)))
    with pytest.raises(arrow.Damaged, match="word"):
        arrow.read(forged, placed["t"], schema)
    with pytest.raises(arrow.Damaged, match="word"):
        arrow.read_column(forged, placed["t"], schema, "w")
    with pytest.raises(arrow.Damaged, match="rows"):
        arrow.read(forged, msgspec.structs.replace(placed["t"], rows=9), schema)


def test_the_oldest_entries_are_evicted_above_the_limit(tmp_path: Path) -> None:
    # GIVEN room for two entries WHEN a third comes THEN the one used longest ago goes
    one = Cache(tmp_path / "probe")
    one.save("a", small_capture())
    size = one.size_of("a")
    cache = Cache(tmp_path / "c", limit_bytes=size * 2 + size // 2)
    for stamp, key in ((100, "a"), (200, "b")):
        cache.save(key, small_capture())
        os.utime(tmp_path / "c" / key, (stamp, stamp))
    cache.load("a")  # used now: "b" is the oldest
    cache.save("c", small_capture())
    assert (cache.has("a"), cache.has("b"), cache.has("c")) == (True, False, True)


def test_a_cache_with_much_room_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for many more WHEN entries are saved THEN the cache is measured once; with room for few it is measured for each
    measured: list[str] = []
    monkeypatch.setattr(Cache, "evict", lambda self, keep="", evict=Cache.evict: measured.append(keep) or evict(self, keep))
    one = Cache(tmp_path / "probe")
    one.save("a", small_capture())
    size = one.size_of("a")
    for limit, times in ((size * 6_400, 1), (size * 20, 9)):
        measured.clear()
        for number in range(9):
            Cache(tmp_path / str(limit), limit).save(f"k{number}", small_capture())
        assert len(measured) == times


def test_a_cache_that_cannot_be_written_has_a_note(tmp_path: Path) -> None:
    # GIVEN a path below a file (nobody can make a directory there, root neither) WHEN saving THEN False and a note
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    assert not cache.save("k", small_capture())
    assert "cache" in cache.note and str(tmp_path) not in cache.note
    assert cache.load("k") is None
    assert not Cache(None).save("k", small_capture())


def test_a_full_disk_leaves_no_partial_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrow, "write", full)
    cache = Cache(tmp_path)
    assert not cache.save("k", small_capture())
    assert "No space left" in cache.note
    assert list(tmp_path.iterdir()) == []


def test_the_key_changes_with_the_file_and_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    base = key_of("/a", 1, 2.0)
    assert len({base, key_of("/b", 1, 2.0), key_of("/a", 2, 2.0), key_of("/a", 1, 2.5)}) == 4
    monkeypatch.setattr("tb_sol_plugin.store.cache.FORMAT", 999)
    assert key_of("/a", 1, 2.0) != base


def test_cache_entries_are_readable_by_the_user_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    cache.save("k", small_capture())
    assert stat.S_IMODE((tmp_path / "c" / "k").stat().st_mode) & 0o077 == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_folders_of_the_cache_are_the_user_s_alone(tmp_path: Path) -> None:
    # GIVEN a cache directory that is not there, with its parent, and an older one that others may read WHEN something is kept
    for root in (tmp_path / "new" / "c", tmp_path / "old"):
        if root.name == "old":
            (root / "parts").mkdir(parents=True)
            root.chmod(0o755)
            (root / "parts").chmod(0o755)
        assert ReductionFiles(root).save("abcd", b"x") and Cache(root).save("k", small_capture())
        # THEN every folder is open to the user alone, and every file to nobody else
        for path in (root, *root.rglob("*")):
            assert path.is_file() or stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_a_cache_that_a_group_shares_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    Cache(tmp_path).save("k", small_capture())
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o775 and stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o700
