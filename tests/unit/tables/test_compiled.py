"""Compiled loops work where nothing can be kept, and are kept only where nobody else can put others."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tb_sol_plugin
from tb_sol_plugin.tables import compiled as C


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the system with nothing in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    C.private_folder.cache_clear()
    yield tmp_path
    C.private_folder.cache_clear()


def test_a_loop_whose_compiled_form_can_be_kept_nowhere_is_compiled_for_the_process(caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN two functions of a source that is no file: numba finds no place beside it, as where every folder is read-only
    C._note_lost.cache_clear()
    made: dict[str, object] = {}
    exec(compile("def twice(n):\n    return 2 * n\ndef thrice(n):\n    return 3 * n\n", "/nowhere/loops.py", "exec"), made)
    # WHEN they are compiled
    with caplog.at_level(logging.WARNING):
        twice, thrice = C.compiled()(made["twice"]), C.compiled()(made["thrice"])
    # THEN they work, and one line of the log says what to set
    assert (twice(21), thrice(14)) == (42, 42)
    said = [r.getMessage() for r in caplog.records if r.name == C.__name__]
    assert len(said) == 1 and "NUMBA_CACHE_DIR" in said[0]


def test_the_temporary_folder_is_this_users_alone(temporary: Path) -> None:
    folder = Path(C.private_folder())
    assert folder.parent == temporary and folder.stat().st_mode & 0o777 == 0o700
    C.private_folder.cache_clear()
    assert C.private_folder() == str(folder), "it is found again"


@pytest.mark.parametrize("planted", ["link", "file", "open"])
def test_what_somebody_else_may_have_put_there_is_not_used(temporary: Path, planted: str) -> None:
    # GIVEN a place that is taken: by a link to a folder of ours, by a file, by a folder that others may write into
    place = temporary / f"tb-sol-compiled-{os.getuid()}"
    (temporary / "elsewhere").mkdir(mode=0o700)
    if planted == "link":
        place.symlink_to(temporary / "elsewhere")
    elif planted == "file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(0o770)
    # THEN nothing is loaded from there
    assert C.private_folder() == ""


def test_a_user_without_a_home_leaves_no_folder_named_after_it(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(temporary)
    source = temporary / "loops.py"
    source.write_text("def twice(n):\n    return 2 * n\n")
    made: dict[str, object] = {}
    exec(compile(source.read_text(), str(source), "exec"), made)
    assert C.compiled()(made["twice"])(21) == 42
    assert not (temporary / "~").exists() and any(Path(C.private_folder()).rglob("*.nbi"))


def test_every_loop_of_the_package_is_compiled_by_this_decorator() -> None:
    # numba's own decorator with cache=True fails at import where nothing can be written
    for path in Path(tb_sol_plugin.__file__).parent.rglob("*.py"):
        if path.name != "compiled.py":
            assert not re.search(r"\b(n?jit|vectorize)\b.*cache=True|from numba import .*jit", path.read_text(encoding="utf-8")), path


def test_a_loop_that_ran_over_many_small_tables_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a process without numba and a loop that pays to load for more than 5 rows WHEN it runs over 5 at a time
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    loop, other, large = (C.Loop(lambda n: 2 * n, forceinline=False) for _ in range(3))
    # THEN it runs plain, until it ran over ten times that, which the import of numba costs; from then on compiled, however few they are
    assert [loop.of(5, 5) is loop for _ in range(12)] == [False] * 11 + [True]
    assert loop.of(1, 5) is loop
    # GIVEN more at once THEN it runs compiled
    assert large.of(6, 5) is large and not large.loaded
    # GIVEN a process that has numba THEN it is loaded as soon as it ran over what loading costs
    monkeypatch.setitem(sys.modules, "numba", C)
    assert [other.of(5, 5) is other for _ in range(3)] == [False, False, True]
