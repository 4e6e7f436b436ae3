"""Files that commands write: as a whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tb_sol_plugin.cli.files import replace
from tb_sol_plugin.errors import BadQuery


def failing() -> Iterator[bytes]:
    yield b"half"
    raise OSError(28, "No space left on device")


def test_a_file_is_replaced_by_a_whole_one_or_stays(tmp_path: Path) -> None:
    # GIVEN a file that others may not read, and a link to it
    path, link = tmp_path / "a.json", tmp_path / "link.json"
    path.write_text("before")
    path.chmod(0o600)
    link.symlink_to(path)
    # WHEN what is to be written fails half-way THEN the file stays, and nothing is left beside it
    with pytest.raises(BadQuery, match=r"cannot write .*No space left on device") as caught:
        replace(str(path), failing(), field="base", hint="choose another")
    assert (caught.value.field, caught.value.hint) == ("base", "choose another")
    assert path.read_text() == "before" and sorted(os.listdir(tmp_path)) == ["a.json", "link.json"]
    # WHEN it is written through the link THEN the link stays one, and the file has its rights
    replace(str(link), [b"af", b"ter"], field="base", hint="")
    assert link.is_symlink() and path.read_text() == "after" and stat.S_IMODE(path.stat().st_mode) == 0o600
    # AND a new file gets the usual rights
    mask = os.umask(0o027)
    try:
        replace(str(tmp_path / "new"), [b"x"], field="base", hint="")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_place_that_is_no_file_is_written_into(tmp_path: Path) -> None:
    # GIVEN a pipe WHEN it is named as the output THEN who reads from it gets the bytes, and it is still a pipe
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    replace(str(pipe), [b"all"], field="output", hint="")
    reader.join(60)
    assert got == [b"all"] and stat.S_ISFIFO(pipe.stat().st_mode)
    # AND a folder is named as what cannot be written
    with pytest.raises(BadQuery, match="directory"):
        replace(str(tmp_path), [b"x"], field="output", hint="")
