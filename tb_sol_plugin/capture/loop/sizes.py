"""Samples and tokens of iterations, and which iterations had inputs of the same sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tb_sol_plugin.capture.loop.guard import Guard
    from tb_sol_plugin.capture.loop.options import Sizes

SizePair: TypeAlias = "tuple[int | None, int | None]"
"""(samples, tokens) of an iteration on this rank."""


class InputSignatures:
    """Guesses the inputs of iterations that were not sampled.

    Nothing of the recorder is on the model in such an iteration, so its inputs are known by what the script says (`batch`, `tokens`): it is
    like the sampled iterations of the same numbers, if those were all alike. Where the script says nothing, it is taken to be like the
    sampled iteration before, if that had inputs of the same sizes as the sampled one before it.
    """

    def __init__(self) -> None:
        self._by_size: dict[SizePair, str] = {}
        self._last: list[tuple[str, int | None, int | None]] = []

    def add(self, signature: str, *, given: SizePair, sizes: SizePair) -> None:
        """Add a sampled iteration: the signature of its inputs, the sizes that the script gave, and those that are shown."""
        if given != (None, None):
            self._by_size[given] = signature if self._by_size.get(given, signature) == signature else ""
        self._last = [*self._last[-1:], (signature, *sizes)]

    def guess(self, given: SizePair) -> tuple[str, int | None, int | None]:
        """Return (signature or "", samples, tokens) of an iteration that was not sampled."""
        if given != (None, None):
            return self._by_size.get(given, ""), *given
        if len(self._last) == 2 and self._last[0] == self._last[1] and self._last[1][0]:
            return self._last[1]
        return "", None, None


class IterationSizes:
    """Sizes of iterations by the arguments of `step`, else by the options of the tracker, else by a sampled iteration like it."""

    def __init__(self, batch: Sizes, tokens: Sizes, guard: Guard) -> None:
        self._batch, self._tokens, self._guard = batch, tokens, guard
        self.signatures = InputSignatures()
        self.by_function = callable(batch) or callable(tokens)

    def given(self, batch: int | None, tokens: int | None) -> SizePair:
        """Return the sizes that the script gave for the iteration that ends now."""
        return self._number(batch, self._batch), self._number(tokens, self._tokens)

    def _number(self, given: int | None, otherwise: Sizes) -> int | None:
        if given is None and otherwise is None:
            return None

        def ask() -> int | None:
            found = given if given is not None else otherwise() if callable(otherwise) else otherwise
            return None if found is None else int(found)

        return self._guard.attempt("sizes", ask, None)

    def forget(self) -> None:
        """Take no iteration from now on to be like one before."""
        self.signatures = InputSignatures()
