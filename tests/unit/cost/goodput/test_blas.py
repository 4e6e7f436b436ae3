"""Fits run with one thread of linear algebra, whoever else uses it."""

from __future__ import annotations

import pytest

from tb_sol_plugin.cost.goodput import blas
from tb_sol_plugin.cost.goodput.fit import Budget, fit
from tests.unit.cost.goodput import reference as R


def test_threads_are_one_inside_and_as_before_after_the_last_block(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a library of eight threads WHEN two blocks overlap, as of two requests THEN the first one to end changes nothing
    now = [8]
    monkeypatch.setattr(blas, "_threads", lambda: (lambda: now[-1], now.append))
    first, second = blas.one_thread(), blas.one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert now == [8, 1]
    second.__exit__(None, None, None)
    assert now == [8, 1, 8]
    # AND an error inside brings them back
    with pytest.raises(ValueError), blas.one_thread():
        raise ValueError
    assert now == [8, 1, 8, 1, 8]


def test_a_library_that_cannot_be_asked_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_threads", lambda: None)
    with blas.one_thread():
        pass


def test_the_library_of_scipy_is_found_and_set_while_a_fit_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the wheels of scipy WHEN a job is fitted THEN every evaluation sees one thread
    functions = blas._threads()
    assert functions is not None
    get, _ = functions
    before, seen = get(), set()
    monkeypatch.setattr(Budget, "take", lambda self: seen.add(get()))
    fit(*R.columns(R.rows(R.P1, R.GRID[:8])))
    assert seen == {1} and get() == before
