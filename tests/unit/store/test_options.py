"""`Memo` makes a value once, and is bounded by bytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.store.options import Memo
from tests.support.waiting import Gate, until


def test_one_thread_makes_a_value_and_all_get_it() -> None:
    # GIVEN eight threads that ask for the same key while the first makes its value THEN it is made once, and all have it
    memo: Memo[int] = Memo(100, lambda _: 1)
    gate, made = Gate(), []

    def make() -> int:
        made.append(1)
        gate.wait()
        return 7

    with ThreadPoolExecutor(8) as pool:
        got = [pool.submit(memo.get, "k", make) for _ in range(8)]
        until(lambda: made)
        gate.open()
        assert [g.result() for g in got] == [7] * 8 and made == [1]


def test_an_error_is_not_cached() -> None:
    memo: Memo[int] = Memo(100, lambda _: 1)
    with pytest.raises(ZeroDivisionError):
        memo.get("k", lambda: 1 // 0)
    assert memo.get("k", lambda: 3) == 3


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=40), st.integers(1, 15))
def test_any_order_of_puts_keeps_what_a_list_would_keep(uses: list[tuple[int, int]], limit: int) -> None:
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
