"""Compiled loops work where nothing can be kept, and say so once."""

import logging

import pytest

from tb_sol_plugin.tables import compiled as C


def test_a_loop_whose_compiled_form_can_be_kept_nowhere_is_compiled_for_the_process(caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN two functions of a source that is no file: numba finds no place beside it, as where every folder is read-only
    C._note.cache_clear()
    made: dict[str, object] = {}
    exec(compile("def twice(n):\n    return 2 * n\ndef thrice(n):\n    return 3 * n\n", "/nowhere/loops.py", "exec"), made)
    # WHEN they are compiled
    with caplog.at_level(logging.WARNING):
        twice, thrice = C.compiled()(made["twice"]), C.compiled()(made["thrice"])
    # THEN they work, and one line of the log says what to set
    assert (twice(21), thrice(14)) == (42, 42)
    said = [r.getMessage() for r in caplog.records if r.name == C.__name__]
    assert len(said) == 1 and "NUMBA_CACHE_DIR" in said[0]
