"""Defines every error that the product raises on purpose.

    SolError                     code            status
    ├── BadQuery                 bad_query       400   a parameter that does not parse; names the field
    ├── NotFound                 not_found       404   a run, worker, span, file or analysis that is not there
    ├── StillLoading             still_loading   409   the capture is being read; carries the progress
    ├── Changed                  changed         409   rows of a report that is not the one they were requested of any more
    ├── ReadOnlyView             forbidden       403   a route that was switched off
    ├── Unavailable              unavailable     200   the recording lacks what an analysis needs (not a fault)
    └── BadInput                 bad_input       422   a file that cannot be read
        ├── NotATrace            not_a_trace     422   recognized, but not something to open
        └── WorkerKilled         worker_killed   500   the process that read the file died or ran out of time

Each error carries one sentence (`message`) and the next step for the reader (`hint`).
Neither holds a local absolute path: `file` is logdir-relative or a base name.
"""

from __future__ import annotations

MOST_SHOWN = 600
"""Characters of a message or a hint that are shown."""


def shown(text: str) -> str:
    """Returns a text that quotes what it was given, cut in the middle where it is long: its start and its end say what does not fit."""
    if len(text) <= MOST_SHOWN:
        return text
    kept = MOST_SHOWN // 2
    return f"{text[:kept]} … ({len(text) - 2 * kept:,} characters left out) … {text[-kept:]}"


def one_line(text: str) -> str:
    """Returns one line without control characters: names come from files."""
    return "".join(c if c.isprintable() else " " for c in text)


class SolError(Exception):
    """Base of all errors of the product.

    `message` says what is wrong, `hint` says what to do next, `field` names the query field, `file` the input.
    """

    code = "error"
    status = 500
    exit_status = 1

    def __init__(self, message: str, *, hint: str = "", field: str = "", file: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuilds an error that crossed a process boundary from the keyword fields."""
        return (_rebuild, (type(self), self.message, self.hint, self.field, self.file))

    def copy(self) -> SolError:
        """Returns the same error anew: one that is kept and raised often must not collect tracebacks."""
        return _rebuild(type(self), self.message, self.hint, self.field, self.file)

    def line(self) -> str:
        """Returns one line for a terminal."""
        where = f"{self.file}: " if self.file else ""
        hint = f" ({shown(self.hint)})" if self.hint else ""
        return f"{where}{shown(self.message)}{hint}"


def _rebuild(kind: type[SolError], message: str, hint: str, field: str, file: str) -> SolError:
    return kind(message, hint=hint, field=field, file=file)


class BadQuery(SolError):
    """A query parameter that is unknown or does not parse."""

    code = "bad_query"
    status = 400
    exit_status = 2


class NotFound(SolError):
    """A run, worker, span, file or analysis that does not exist here."""

    code = "not_found"
    status = 404


class StillLoading(SolError):
    """The capture is being read in another process."""

    code = "still_loading"
    status = 409


class Changed(SolError):
    """Rows were requested of a report whose recording has changed since. now: name of the state that there is now, where it has one."""

    code = "changed"
    status = 409
    now = ""


class ReadOnlyView(SolError):
    """A route that is switched off on this server."""

    code = "forbidden"
    status = 403


class Unavailable(SolError):
    """The recording lacks what an analysis needs: a plain answer, not a fault.

    `message` is the reason ("recorded without record_shapes"), `hint` says how to record it.
    """

    code = "unavailable"
    status = 200
    exit_status = 3


class BadInput(SolError):
    """A file that cannot be read."""

    code = "bad_input"
    status = 422


class NotATrace(BadInput):
    """A file that was recognized as something else than a recording."""

    code = "not_a_trace"


class WorkerKilled(BadInput):
    """The process that read the file died, ran out of memory or out of time."""

    code = "worker_killed"
    status = 500
