"""A clock of the recorder that stands still but for what a test lets pass."""

from __future__ import annotations

import sys
import types

import pytest


class StoppedClock:
    """Answers as `time.perf_counter_ns` does."""

    def __init__(self) -> None:
        self.ns = 1000

    def __call__(self) -> int:
        return self.ns

    def pass_(self, ns: int) -> None:
        self.ns += ns


def stop_clock(monkeypatch: pytest.MonkeyPatch) -> StoppedClock:
    """Give all modules of the recorder, which must be imported, a clock that stands still."""
    import tb_sol_plugin.capture.hooks.instrument
    import tb_sol_plugin.capture.tracker  # noqa: F401
    from tb_sol_plugin.capture.loop import guard

    made = StoppedClock()
    for name, module in tuple(sys.modules.items()):
        if name.startswith("tb_sol_plugin.capture.") and hasattr(module, "perf_counter_ns"):
            monkeypatch.setattr(module, "perf_counter_ns", made)
    monkeypatch.setattr(guard, "time", types.SimpleNamespace(perf_counter_ns=made, time_ns=lambda: 1_700_000_000_000_000_000))
    return made
