"""Compiled code while a dispatch mode watches: it has to run eagerly for that step, and be the same compiled code afterwards.

Left to itself, torch.compile gives up for good on every function that is called under a dispatch mode (torch 2.13: the frame is marked
to be skipped, and stays eager for the rest of the process).
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class CompiledEagerly:
    """Runs all compiled functions of the process eagerly from enter to exit; what was compiled before is in use again after it.

    `possible` says beforehand whether that can be had. Where it cannot (torch before 2.6, with something compiled), no dispatch mode may
    be entered. Entering never raises.
    """

    def __init__(self) -> None:
        self._stance: AbstractContextManager[object] | None = None

    @staticmethod
    def possible() -> bool:
        import torch

        return hasattr(torch.compiler, "set_stance") or "torch._dynamo" not in sys.modules

    def __enter__(self) -> CompiledEagerly:
        import torch

        make = getattr(torch.compiler, "set_stance", None)
        if make is not None and self._stance is None:
            try:
                self._stance = make("force_eager")
            except Exception:  # no compiler for this Python or platform: then nothing is compiled either
                self._stance = None
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        stance, self._stance = self._stance, None
        if stance is not None:
            stance.__exit__(kind, problem, trace)
