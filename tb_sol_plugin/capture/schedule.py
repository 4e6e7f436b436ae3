"""Which iterations are sampled, traced and reported, and which of the others do the same work as a sampled one."""

from __future__ import annotations


class Schedule:
    """By the index of an iteration, counted from 0 at the start of the process.

    Sampled: 0, 1 and every `every`-th (0: none). Iteration 0 carries costs that arise once, 1 is the first ordinary one. A sample that
    could not be had is made up for in the next iteration. Traced: up to `traces` iterations that follow a sampled one and are not
    sampled themselves, since a dispatch mode changes what a trace shows.
    """

    def __init__(self, every: int, *, report: int, traces: int = 0) -> None:
        self.every, self.report, self.traces = max(0, every), max(1, report), max(0, traces)
        self.index = 0
        self.owed = False
        self._last_sampled = -2

    def samples(self) -> bool:
        """Whether the iteration that begins now is due to be sampled."""
        if not self.every:
            return False
        return self.owed or self.index < 2 or self.index % self.every == 0

    def traced(self, *, compiled: bool = False) -> bool:
        """Whether the iteration that begins now, which is not sampled, is due to be traced.

        compiled: the fourth in place of the third, which is the first to run compiled code, and is spent on compiling it.
        """
        after = self._last_sampled == self.index - 1
        if compiled and self.index < 4:
            after = self.index == 3 and self._last_sampled >= 1
        return self.traces > 0 and self.index >= 2 and after

    def reported(self, iteration: int, *, sampled: bool) -> bool:
        """Whether the iteration that ends now gets a detailed report: every `report`-th, by index or by its own number."""
        return self.index % self.report == 0 or (sampled and iteration % self.report == 0)

    def quiet(self) -> int:
        """How many iterations, from the running one, which is not sampled, are not reported and not followed by one to be watched."""
        index = self.index
        if self.owed or (self.every and index < 1) or (self.traces and index < 4) or index % self.report == 0:
            return 0
        until = self.report - index % self.report
        return min(until, self.every - 1 - index % self.every) if self.every else until

    def ended(self, *, sampled: bool) -> None:
        """The iteration is over; `sampled`: its work was counted."""
        if sampled:
            self._last_sampled = self.index
        self.index += 1


class Alike:
    """What is known of the inputs of iterations that nobody watched.

    Nothing of the recorder is on the model in such an iteration, so its inputs are known by what the script says (`batch`, `tokens`): it is
    like the sampled iterations of the same numbers, if those were all alike. Where the script says nothing, it is taken to be like the
    sampled iteration before, if that had inputs of the same sizes as the sampled one before it.
    """

    def __init__(self) -> None:
        self._by_size: dict[tuple[int | None, int | None], str] = {}
        self._last: list[tuple[str, int | None, int | None]] = []

    def saw(self, signature: str, *, given: tuple[int | None, int | None], sizes: tuple[int | None, int | None]) -> None:
        """A sampled iteration: the signature of its inputs, what the script said, and (samples, tokens) as they are to be shown."""
        if given != (None, None):
            self._by_size[given] = signature if self._by_size.get(given, signature) == signature else ""
        self._last = [*self._last[-1:], (signature, *sizes)]

    def guess(self, given: tuple[int | None, int | None]) -> tuple[str, int | None, int | None]:
        """(signature or "", samples, tokens) of an iteration that was not sampled."""
        if given != (None, None):
            return self._by_size.get(given, ""), *given
        if len(self._last) == 2 and self._last[0] == self._last[1] and self._last[1][0]:
            return self._last[1]
        return "", None, None
