"""The line of a program that asked for memory: out of call stacks, the innermost that is not torch's own."""

from __future__ import annotations

import json
import re
from typing import Final

_TORCH: Final = re.compile(
    r"(?:^|/)torch/(?:_[^/]*|nn|autograd|optim|utils|cuda|xpu|mps|cpu|distributed|profiler|amp|fx|jit|func|ao|testing|functional\.py|"
    r"storage\.py|serialization\.py|random\.py|overrides\.py|library\.py|__init__\.py)(?:/|$)"
)
_PASSING: Final = re.compile(r"(?:^|/)(?:contextlib|functools|threading|runpy|concurrent/futures/\w+|importlib/\S+)\.py$|^<")
_FRAME: Final = re.compile(r"^(?P<file>.*?)\(\d+\): ", re.DOTALL)
PYTHON: Final = (".py", ".ipynb", ".pyx")
MOST_LINES: Final = 64
"""Frames of one stack that are said."""


def is_users(file: str) -> bool:
    """Whether a file holds lines of the program and not of torch or of python's plumbing (wrappers, threads)."""
    return not _TORCH.search(file) and not _PASSING.search(file)


def is_users_frame(name: str) -> bool:
    """The same of a python frame as a profiler writes it: `model.py(7): forward`."""
    match = _FRAME.match(name)
    return match is not None and is_users(match["file"])


def frames(text: str) -> list[tuple[str, int, str]]:
    """(file, line, function) of a call stack of `memory_events` or `memory_blocks`, innermost first; none where it cannot be read."""
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return []
    return [(str(f[0]), int(f[1]), str(f[2])) for f in found if isinstance(f, list) and len(f) == 3]


def said(frame: tuple[str, int, str]) -> str:
    """`model.py(7): forward`, as a profiler writes python frames; the part of the path in front of installed packages is left out."""
    file, line, function = frame
    for package in ("site-packages/", "dist-packages/"):
        file = file.rpartition(package)[2]
    return f"{file}({line}): {function}" if line >= 0 else f"{file}: {function}"


def own_line(text: str) -> str:
    """The innermost line of the program in a call stack; without one the innermost python line, else the innermost frame; "" of none."""
    every = frames(text)
    python = [f for f in every if f[0].endswith(PYTHON)]
    for found in ([f for f in python if is_users(f[0])], python, every):
        if found:
            return said(found[0])
    return ""


def stack_text(text: str) -> str:
    """A call stack as lines, innermost first."""
    every = frames(text)
    more = len(every) - MOST_LINES
    return "\n".join([said(f) for f in every[:MOST_LINES]] + [f"… {more:,} more"] * (more > 0))
