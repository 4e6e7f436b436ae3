"""Writes the files that a command was asked for."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable

from tb_sol_plugin.errors import BadQuery


def replace(path: str, pieces: Iterable[bytes], *, field: str, hint: str) -> None:
    """Writes a file as a whole or not at all: what stood there stays until all of the new is written.

    What is there and no file, as a pipe or `/dev/null`, is written into. BadQuery of `field`, with `hint`, where that cannot be.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as stream:
                stream.writelines(pieces)
            return
        where = os.path.realpath(path)  # a link stays one
        folder, name = os.path.split(where)
        made, partial = tempfile.mkstemp(dir=folder, prefix=f".{name[:60]}.")
        try:
            with open(made, "wb") as stream:
                stream.writelines(pieces)
            os.chmod(partial, _mode(where))
            os.replace(partial, where)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadQuery(f"cannot write {path[-200:]!r}: {why}", hint=hint, field=field) from None


def _mode(path: str) -> int:
    """Returns the rights that a file has, or that a new one gets."""
    try:
        return os.stat(path).st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
