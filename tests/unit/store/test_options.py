"""Answers are made once and bounded by bytes."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.store.options import Memo


def test_one_thread_makes_all_get() -> None:
    memo: Memo[int] = Memo(100, lambda _: 1)
    made = []

    def make() -> int:
        made.append(1)
        time.sleep(0.05)
        return 7

    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(memo.get("k", make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [7] * 8 and made == [1]


def test_an_error_is_not_kept() -> None:
    memo: Memo[int] = Memo(100, lambda _: 1)
    with pytest.raises(ZeroDivisionError):
        memo.get("k", lambda: 1 // 0)
    assert memo.get("k", lambda: 3) == 3


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=40), st.integers(1, 15))
def test_like_a_slow_list(uses: list[tuple[int, int]], limit: int) -> None:
    # GIVEN any order of puts WHEN compared with a list kept by hand THEN the same keys remain, the last one always
    memo: Memo[int] = Memo(limit, lambda v: v)
    kept: list[tuple[int, int]] = []
    for key, size in uses:
        memo.put(key, size)
        kept = [(k, s) for k, s in kept if k != key] + [(key, size)]
        while sum(s for _, s in kept) > limit and len(kept) > 1:
            kept.pop(0)
        assert [k in memo for k in range(6)] == [any(k == x for x, _ in kept) for k in range(6)]
        assert memo.total_bytes == sum(s for _, s in kept)
    assert len(memo) == len(kept)
