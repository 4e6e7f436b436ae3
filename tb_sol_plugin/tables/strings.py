"""Texts of new DataFrames as Python strings while an answer is made, whatever the program around us has chosen."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tb_sol_plugin.process import is_ours

OPTION: Final = "mode.string_storage"
_lock: Final = threading.Lock()
_inside: list[object] = []
"""What the option was, then a None for each further thread that is inside."""


@contextmanager
def python_strings() -> Iterator[None]:
    """Makes pandas keep the texts of new columns as Python strings inside the block.

    Its default with pyarrow is Arrow's layout, in which the short columns of an answer cost a fifth of all analysis time: each comparison,
    selection and element goes through pyarrow. The values are the same. The option belongs to the whole process, which may be TensorBoard
    or a notebook: the first thread in sets it, the last one out puts back what was there. In a process that is ours it stays.
    """
    if "pandas" not in sys.modules:
        yield
        return
    import pandas as pd

    if is_ours():  # once and for all
        if pd.get_option(OPTION) != "python":
            pd.set_option(OPTION, "python")
        yield
        return
    with _lock:
        if not _inside:
            _inside.append(pd.get_option(OPTION))
            pd.set_option(OPTION, "python")
        else:
            _inside.append(None)
    try:
        yield
    finally:
        with _lock:
            before = _inside[0]
            _inside.pop()
            if not _inside:
                pd.set_option(OPTION, before)
