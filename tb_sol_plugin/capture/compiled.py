"""Compiled code while a step is sampled: it runs eagerly for that step, and is the same compiled code afterwards.

Left to itself, torch.compile gives up for good on every function that is called under a dispatch mode (torch 2.13: its frame is marked
to be skipped and stays eager for the rest of the process), and compiles again whatever is called with hooks or replaced functions.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class CompiledEagerly:
    """Runs all compiled functions of the process eagerly from enter to exit, and none is compiled meanwhile.

    It goes around hooks, replaced functions and the dispatch mode: enter it before them, leave it after them.
    """

    def __init__(self) -> None:
        self._stance: AbstractContextManager[object] | None = None

    @staticmethod
    def possible() -> bool:
        """False where something is compiled that cannot be made to run eagerly (torch before 2.6): then nothing may be watched."""
        import torch

        return hasattr(torch.compiler, "set_stance") or not something_compiled()

    def __enter__(self) -> CompiledEagerly:
        import torch

        make = getattr(torch.compiler, "set_stance", None)
        if make is not None and self._stance is None:
            try:
                self._stance = make("force_eager")
            except Exception:  # this Python or platform has no compiler, so nothing is compiled
                self._stance = None
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        stance, self._stance = self._stance, None
        if stance is not None:
            stance.__exit__(kind, problem, trace)


def something_compiled() -> bool:
    """Whether torch.compile was used in this process; also True where that cannot be told."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return frames is not None and bool(getattr(frames, "cached_backends", True))
