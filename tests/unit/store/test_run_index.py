"""Indexes of runs: ranks in a few Parquet files with a manifest, what is added to them, and what is left when they are damaged."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tb_sol_plugin.model.answer import reducer_of
from tb_sol_plugin.model.recordings import Reduced, ReducedFacts
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.store import reductions, run_index
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.run_index import COLUMNS, FOLDER, IndexedRank, RunIndexes
from tb_sol_plugin.store.store import Store
from tests.support.rank_factory import Job, simulate


def rank(number: int, *, again: str = "") -> IndexedRank:
    facts = ReducedFacts("trace", number, 8, f"node{number // 4}", "NVIDIA", ("H100",), 1000, True, (0, 500 + number))
    body = msgspec.msgpack.encode(Reduced(facts, b"%d" % number * 100))
    return IndexedRank(f"rank{number}", "1", f"job/rank{number}.json", f"key{number}{again}", body)


def bodies(*ranks: IndexedRank) -> dict[str, bytes]:
    return {one.key: one.body for one in ranks}


@pytest.fixture
def indexes(tmp_path: Path) -> RunIndexes:
    return RunIndexes(tmp_path)


def files(indexes: RunIndexes) -> dict[str, bytes]:
    assert indexes.directory is not None
    return {p.name: p.read_bytes() for p in (indexes.directory / "run").iterdir()}


def test_ranks_come_back_as_they_were_and_can_be_read_by_anyone(indexes: RunIndexes) -> None:
    every = [rank(n) for n in range(6)]
    assert indexes.add("run", every) == set(bodies(*every))
    # THEN some or all of them come back, those of another server too
    assert RunIndexes(indexes.directory.parent if indexes.directory else None).load("run", list(bodies(*every))) == bodies(*every)
    assert indexes.load("run", ["key2", "other"]) == bodies(rank(2)) and indexes.load("other", ["key2"]) == {}
    # AND the file is a table of ranks
    (name,) = [n for n in files(indexes) if n.endswith(".parquet")]
    assert indexes.directory is not None
    table = pq.read_table(indexes.directory / "run" / name)
    assert table.column_names == list(COLUMNS) and table["rank"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert table["host"].to_pylist()[3:5] == ["node0", "node1"] and table["last_ns"].to_pylist()[5] == 505


def test_new_ranks_are_added_and_many_files_become_one(indexes: RunIndexes) -> None:
    # GIVEN ranks that come one by one THEN what is there is not written again, until there are too many files
    for count in range(1, run_index.MOST_FILES + 1):
        before = files(indexes) if count > 1 else {}
        indexes.add("run", [rank(n) for n in range(count)])
        after = files(indexes)
        assert {n: b for n, b in before.items() if n.endswith(".parquet")}.items() <= after.items() and len(after) == count + 1
    every = [rank(n) for n in range(run_index.MOST_FILES + 1)]
    assert indexes.add("run", every) == set(bodies(*every)) and len(files(indexes)) == 2
    assert indexes.load("run", list(bodies(*every))) == bodies(*every)
    # AND nothing new writes nothing; the same ranks make the same bytes whatever order they came in
    before = files(indexes)
    indexes.add("run", every)
    assert files(indexes) == before
    shutil.rmtree(indexes.directory or "")
    indexes.add("run", every)
    assert files(indexes) == before


def test_rows_of_files_that_changed_go_and_those_nobody_asked_for_stay(indexes: RunIndexes) -> None:
    # GIVEN ranks 0 to 4, of which 0 to 2 are recorded anew, twice WHEN more rows are old than are asked for THEN these go, and 3 and 4 stay
    indexes.add("run", [rank(n) for n in range(5)])
    assert len(indexes.add("run", [rank(n, again="b") for n in range(3)])) == 8
    had = indexes.add("run", [rank(n, again="c") for n in range(3)])
    assert had == {"key3", "key4", "key0c", "key1c", "key2c"} and indexes.load("run", ["key3"]) == bodies(rank(3)) and len(files(indexes)) == 2


@pytest.mark.parametrize("name", ["manifest.json", ".parquet"])
def test_a_damaged_file_costs_its_ranks_alone(indexes: RunIndexes, name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert indexes.directory is not None
    indexes.add("run", [rank(0), rank(1)])
    indexes.add("run", [rank(n) for n in range(4)])
    path = next(p for p in sorted((indexes.directory / "run").iterdir()) if p.name.endswith(name))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    left = indexes.load("run", [f"key{n}" for n in range(4)])
    assert len(left) == (0 if name == "manifest.json" else 2) and "damaged in the cache" in caplog.text
    # AND it is made again
    every = [rank(n) for n in range(4)]
    indexes.add("run", every)
    assert indexes.load("run", list(bodies(*every))) == bodies(*every)


def test_one_writes_at_a_time_and_one_that_was_killed_is_no_hindrance(indexes: RunIndexes) -> None:
    assert indexes.directory is not None
    indexes.add("run", [rank(0)])
    lease = indexes.directory / "run" / "writing"
    # GIVEN another writer at work THEN nothing is written, and readers do not wait
    lease.write_bytes(b"")
    assert indexes.add("run", [rank(0), rank(1)]) == frozenset() and indexes.load("run", ["key0", "key1"]) == bodies(rank(0))
    # WHEN it was killed, between its Parquet file and the manifest THEN the next one goes on, and what it left goes
    orphan, old = indexes.directory / "run" / "ranks-0000.parquet", time.time() - 2 * run_index.LEASE_SECONDS
    orphan.write_bytes(b"half")
    for path in (lease, orphan):
        os.utime(path, (old, old))
    assert indexes.add("run", [rank(0), rank(1)]) == {"key0", "key1"} and not orphan.exists() and not lease.exists()


def test_indexes_used_longest_ago_go_first(tmp_path: Path) -> None:
    made = RunIndexes(tmp_path)
    assert made.evict() == 0 and RunIndexes(None).add("run", [rank(0)]) == frozenset() and RunIndexes(None).load("run", ["key0"]) == {}
    for at, name in enumerate("abc"):
        made.add(name, [rank(0)])
        os.utime(tmp_path / FOLDER / name, (1000 + at, 1000 + at))
    size = sum(p.stat().st_size for p in (tmp_path / FOLDER / "a").iterdir())
    small = RunIndexes(tmp_path, 20 * 2 * size)
    assert small.evict() == 1 and sorted(p.name for p in (tmp_path / FOLDER).iterdir()) == ["b", "c"]
    # AND a disk that does not let us keeps nothing, and is no error
    (tmp_path / "file").write_text("")
    assert RunIndexes(tmp_path / "file").add("run", [rank(0)]) == frozenset()


def test_a_server_finds_the_ranks_of_a_run_in_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a run of four ranks, where three are many
    monkeypatch.setattr(reductions, "FEWEST", 3)
    job, cache = simulate(Job(tp=2, dp=2, layers=1, steps=1)), tmp_path / "cache"
    for number in range(4):
        job.trace(number).write(tmp_path / "logs" / "job" / f"rank{number}.1.pt.trace.json.gz")

    def ask(logdir: str = "logs", run: str = "job") -> list[Any]:
        store = Store(single(str(tmp_path / logdir)), StoreOptions(cache_dir=str(cache)), ranks_executor=ThreadPoolExecutor(1))
        found = store.rank_reductions(store.recording(run), reducer_of("ranks", {}), get("ranks").reduction.decode, wait=120.0)
        made = [one.reduced for one in found]
        store.close()
        return made

    first = ask()
    (index,) = (cache / FOLDER).iterdir()
    before = {p.name: p.read_bytes() for p in index.iterdir()}
    assert len(first) == 4 and not list((cache / "parts").rglob("*.part")) and sum(n.endswith(".parquet") for n in before) == 1
    # THEN another server has them from it, and makes nothing; one that comes later is read alone, and has a file of its own until there are more
    monkeypatch.setattr(reductions, "make_reduction", None)
    assert ask() == first and ask("", "logs/job") == first
    monkeypatch.undo()
    job.trace(3).write(tmp_path / "logs" / "job" / "rank4.1.pt.trace.json.gz")
    assert ask()[:4] == first and len(list((cache / "parts").rglob("*.part"))) == 1
    assert {p.name: p.read_bytes() for p in index.iterdir()} == before
