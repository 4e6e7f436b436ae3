"""What is derived of a recording is bounded: what is cheap to make again goes first, and answers stay the same."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pandas as pd
import pytest
from msgspec import Struct

import tb_sol_plugin as sol
from tb_sol_plugin import ingest
from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.model import results
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import encode
from tb_sol_plugin.model.results import BOUNDED_FROM, BYTES_PER_ROW, Results, arrays_of, limit_of
from tb_sol_plugin.tables.table import StoredTables, as_table
from tests.support.tiny import trace

KB = 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock of processor time that stands still but for what a test adds to `now`."""
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(results, "time", SimpleNamespace(thread_time=lambda: made.now))
    return made


def taking(clock: SimpleNamespace, seconds: float, value: object) -> Callable[[], object]:
    def make() -> object:
        clock.now += seconds
        return value

    return make


def held(kept: Results) -> int:
    every: dict[int, int] = {}
    for value in kept.values():
        every |= arrays_of(value)
    return sum(every.values())


def test_answers_are_the_same_whatever_went_before(tmp_path: Path) -> None:
    # GIVEN answers of all analyses of a recording that keeps all results
    path = str(trace(tmp_path / "rank0.1.pt.trace.json.gz"))
    names = list(registry())
    whole = ingest.read(path)
    answers = [encode(whole.analyze(name)) for name in names]
    # WHEN hardly any are kept, and other threads answer, and let go, meanwhile THEN the answers are the same
    bounded = ingest.read(path)
    bounded.memo.limit = KB
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda name: encode(bounded.analyze(name)), names)) == answers
    assert encode(bounded.analyze("overview")) == answers[names.index("overview")]
    assert len(bounded.memo.dropped) > 5 and len(bounded.memo) < len(whole.memo)


def test_results_are_kept_within_the_bound(clock: SimpleNamespace) -> None:
    # GIVEN results of 100 kB each, of which the one that was made last is the cheapest WHEN each comes THEN never more than the bound is kept
    kept = Results(1000 * KB)
    for n in range(40):
        kept.timed(("rows", n), taking(clock, 40.0 - n, np.zeros(100 * KB, np.int8)))
        kept.shrink()
        assert held(kept) <= 1000 * KB
    assert len(kept) >= 9 and kept.dropped == {"rows"}


def test_what_is_cheap_for_its_size_and_not_used_goes_first(clock: SimpleNamespace) -> None:
    # GIVEN a result that takes long to make, one that takes a tenth, and one as cheap that is used in each answer
    kept = Results(350 * KB)
    for name, seconds in {"dear": 1.0, "cheap": 0.1, "used": 0.11}.items():
        kept.timed((name,), taking(clock, seconds, np.zeros(100 * KB, np.int8)))
    for _ in range(5):
        kept.used(("used",))
        assert kept.shrink() == 0
    kept.used(("used",))
    # WHEN there is no room for the next THEN the one that is cheap and was not used goes
    kept.timed(("next",), taking(clock, 1.0, np.zeros(100 * KB, np.int8)))
    assert kept.shrink() == 100 * KB and set(kept) == {("dear",), ("used",), ("next",)}


def test_time_of_what_a_result_is_made_of_is_not_its_own(clock: SimpleNamespace) -> None:
    # GIVEN a result that rests on another one, which took nearly all of its time
    kept = Results(150 * KB)

    def outer() -> object:
        kept.timed(("inner",), taking(clock, 9.0, np.zeros(90 * KB, np.int8)))
        clock.now += 1.0
        return np.zeros(90 * KB, np.int8)

    kept.timed(("outer",), outer)
    # WHEN one has to go THEN it is the outer one, though it was made in more time
    kept.shrink()
    assert set(kept) == {("inner",)}


def test_an_array_that_several_hold_is_freed_by_the_last(clock: SimpleNamespace) -> None:
    # GIVEN three results with one array among them, and views and frames of it THEN it is counted once
    rows = np.zeros(100 * KB, np.int8)
    kept = Results(100 * KB)
    kept.timed(("whole",), taking(clock, 1.0, rows))
    kept.timed(("view",), taking(clock, 1.0, {"part": [rows[10:]]}))
    kept.timed(("frame",), taking(clock, 1.0, pd.DataFrame({"rows": rows}, copy=False)))
    assert kept.shrink() == 0 and len(kept) == 3
    # WHEN there is no room for it THEN all of them go, of which each alone would free nothing
    kept.limit = 90 * KB
    kept.timed(("more",), taking(clock, 9.0, 7))
    assert kept.shrink() == 100 * KB and set(kept) == {("more",)}


class Held(msgspec.Struct, frozen=True, dict=True):
    rows: object


@dataclass(frozen=True)
class Lazy:
    rows: object

    @cached_property
    def twice(self) -> object:
        return np.zeros(200 * KB, np.int8)


@pytest.mark.parametrize(
    "of",
    [
        lambda rows: Held(rows), lambda rows: Held(Held({"rows": [rows]})), lambda rows: Lazy(rows), lambda rows: partial(max, rows),
        lambda rows: as_table(pd.DataFrame({"rows": rows})), lambda rows: pd.Series(rows)[5:],
        lambda rows: [(rows[n:], rows[:n]) for n in range(300)], lambda rows: dict.fromkeys(range(50), rows),
    ],
)  # fmt: skip
def test_arrays_are_found_wherever_a_result_holds_them(of: Callable[[object], object]) -> None:
    assert sum(arrays_of(of(np.zeros(100 * KB, np.int8))).values()) // (100 * KB) == 1


def test_what_is_made_lazily_counts_once_it_is_there() -> None:
    held, lazy = Held(np.zeros(KB)), Lazy(np.zeros(KB))
    assert sum(arrays_of(lazy).values()) == sum(arrays_of(held).values()) == 8 * KB
    assert lazy.twice is not None
    held.__dict__["_kept"] = lazy.twice
    assert sum(arrays_of(lazy).values()) == sum(arrays_of(held).values()) == 208 * KB


def test_a_long_list_of_texts_is_not_looked_through() -> None:
    assert sum(arrays_of([str(n) for n in range(2000)]).values()) == 200 * KB


def test_tables_of_the_recording_count_for_no_result(clock: SimpleNamespace) -> None:
    rows = np.zeros(100 * KB, np.int8)
    table = pd.DataFrame({"rows": rows}, copy=False)
    kept = Results(10 * KB)
    kept.timed(("of the table",), taking(clock, 1.0, rows[5:]))
    assert kept.shrink([table]) == 0 and len(kept) == 1


def test_a_small_recording_keeps_all_and_a_large_one_by_its_rows(tmp_path: Path) -> None:
    assert limit_of(BOUNDED_FROM - 1) == 0 and limit_of(2 * BOUNDED_FROM) == 2 * BOUNDED_FROM * BYTES_PER_ROW
    small = ingest.read(str(trace(tmp_path / "rank0.1.pt.trace.json.gz")))
    first = memo(small, ("some",), lambda: np.zeros(10**6))
    small.shrink()
    assert small.memo.limit == 0 and memo(small, ("some",), lambda: np.zeros(0)) is first


def test_a_capture_goes_to_another_process_without_its_results(tmp_path: Path) -> None:
    # GIVEN a capture with results, as one that could not be kept on disk comes from the process that read it
    capture = ingest.read(str(trace(tmp_path / "rank0.1.pt.trace.json.gz")))
    capture.memo.limit = 10**6
    answer = encode(capture.analyze("findings"))
    # WHEN it is pickled THEN it has the same bound and no results, and answers the same
    again = pickle.loads(pickle.dumps(capture))
    assert again.memo.limit == 10**6 and not again.memo and encode(again.analyze("findings")) == answer


def test_pages_of_tables_on_disk_are_let_go_after_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a large recording whose tables lie in the cache
    monkeypatch.setenv("TB_SOL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tb_sol_plugin.store.load.SMALL", 0)
    capture = sol.open_capture(str(trace(tmp_path / "rank0.1.pt.trace.json.gz")))
    assert isinstance(capture.tables, StoredTables)
    capture.memo.limit = KB
    before = capture.host["duration_ns"].to_numpy().copy()
    gone: list[bool] = []
    let_go = capture.tables.let_go
    capture.tables.let_go = lambda: gone.append(let_go() is None)
    # WHEN an analysis answers THEN its pages are given back before and after, and what they hold is there again when it is looked at
    capture.analyze("kernels")
    assert gone == [True, True] and (capture.host["duration_ns"].to_numpy() == before).all()


class _Record(Struct, frozen=True, dict=True):
    column: np.ndarray
    beside: dict[str, np.ndarray]


def test_arrays_of_records_count_with_those_that_are_made_of_them_later() -> None:
    # GIVEN a record with arrays of 800 and 400 bytes THEN both count, one that is kept with it later too
    found = _Record(np.zeros(100), {"b": np.zeros(50)})
    assert sum(arrays_of([found]).values()) == 1200
    found.__dict__["later"] = np.zeros(25)
    assert sum(arrays_of(found).values()) == 1400
