"""Captures and reports of trace files, each read once per test process."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import tb_sol_plugin as sol
from tb_sol_plugin.ingest import read
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import parse
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import Report, UnavailableReport


@lru_cache(maxsize=4)
def capture(path: Path) -> Capture:
    """The capture of one file. Tests that go file by file read each file once.

    A file that stands alone is the same to `alone`: this is that one then, so that both share what is analyzed.
    """
    opened, own = sol.open_capture(str(path)), alone(path)
    same = opened.facts == own.facts and {k: len(t) for k, t in opened.tables.items()} == {k: len(t) for k, t in own.tables.items()}
    return own if same else opened


@lru_cache(maxsize=4)
def alone(path: Path) -> Capture:
    """The capture of one file as it is read: not from a cache, and without the SOL log of the same process."""
    return read(str(path))


def answered(of: Capture, name: str, **query: str) -> Report | UnavailableReport:
    """What an analysis answers of a capture, remembered on it however the same is asked; not to be changed."""
    key = ("test answer", name, parse(get(name).query, query))
    if key not in of.memo:
        of.memo[key] = of.analyze(name, **query)
    found = of.memo[key]
    assert isinstance(found, Report | UnavailableReport)
    return found


def report(of: Capture, name: str, **query: str) -> Report:
    """An analysis of a capture, remembered on it; fails where the analysis is unavailable."""
    answer = answered(of, name, **query)
    assert isinstance(answer, Report), f"{name} is unavailable for {of.facts.file}: {answer}"
    return answer
