"""Logs the metrics of a step as scalars, its tables as text. Nothing here imports TensorBoard or W&B: the writer is the caller's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from tb_sol_plugin.capture.report import analysis as log_values
from tb_sol_plugin.capture.report.analysis import Analysis, Cell
from tb_sol_plugin.capture.report.console import notes_of

NOTED: Final = "sol/by_layer_type"
"""The table that all notes stand below."""
EVENT_AT_ONCE: Final = "torch.utils.tensorboard.writer"
"""The writer whose scalars go into one event; any other gets them one by one."""
NO_TIMES: Final[Mapping[str, float]] = {}
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]()#+!|~<>&-])")


class Writer(Protocol):
    """Is what is used of a summary writer (torch.utils.tensorboard, tensorboardX, Lightning's experiment).

    `add_text(tag, text, global_step)` is used for tables where it is there.
    """

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = ...) -> object: ...


def log_tensorboard(
    analysis: Analysis | None, iteration: int, writer: Writer, tables: bool = False, *, times: Mapping[str, float] = NO_TIMES
) -> None:
    """Log the scalars of a step. What the writer raises passes through.

    analysis: None where its work is not known. tables: at report intervals also the tables, as Markdown. times: scalars of the step itself.
    """
    values = {**({} if analysis is None else log_values.scalars(analysis)), **times}
    if not _in_one_event(writer, values, iteration):
        for name, value in values.items():
            writer.add_scalar(name, value, iteration)
    add_text = getattr(writer, "add_text", None)
    if tables and add_text is not None and analysis is not None:
        add_tables(analysis, iteration, add_text, age=analysis.age)


def add_tables(analysis: Analysis, iteration: int, add_text: Callable[[str, str, int], object], *, age: int) -> None:
    """Log the tables of the last sampled step as Markdown. age: iterations since."""
    for name, (columns, rows) in log_values.tables(analysis).items():
        if rows:
            add_text(name, markdown(columns, rows) + _notes(analysis, age, every=name == NOTED), iteration)


def _notes(analysis: Analysis, age: int, *, every: bool) -> str:
    """Lists the sentences below a table: of which earlier iteration it is; every: all that a reader must know."""
    notes = notes_of(analysis.reported, age)
    shown = notes if every else notes[: age > 0]
    return "".join(f"\n\n{_escaped(note)}" for note in shown)


def is_torch_writer(writer: object) -> bool:
    """Return whether that is a summary writer of torch as it is: each event of it takes half a millisecond, on a thread of its own."""
    own = any(f"{cls.__module__}.{cls.__qualname__}" == f"{EVENT_AT_ONCE}.SummaryWriter" for cls in type(writer).__mro__)
    plain = (
        own and getattr(getattr(type(writer), "add_scalar", None), "__module__", "") == EVENT_AT_ONCE and "add_scalar" not in vars(writer)
    )
    return plain and hasattr(writer, "_get_file_writer")


def _in_one_event(writer: object, values: Mapping[str, float], iteration: int) -> bool:
    """Write all scalars as one event where the writer is torch's own: a tenth of the time that single ones take."""
    if not is_torch_writer(writer):
        return False
    from tensorboard.compat.proto.summary_pb2 import Summary

    summary = Summary()
    for name, value in values.items():
        summary.value.add(tag=name, simple_value=float(value))
    writer._get_file_writer().add_summary(summary, iteration)  # type: ignore[attr-defined]
    return True


def markdown(columns: tuple[str, ...], rows: list[list[Cell]]) -> str:
    """Writes a Markdown table. Names are escaped: they show as they are."""
    right = [all(not isinstance(row[at], str) for row in rows) for at in range(len(columns))]
    lines = [
        "| " + " | ".join(_escaped(name) for name in columns) + " |",
        "| " + " | ".join("---:" if number else "---" for number in right) + " |",
    ]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Cell) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return str(value) if isinstance(value, int) else _escaped(value)


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


# -- log_wandb -------------------------------------------------------------------------------------------------------
# who has a run has it.


ITERATION: Final = "sol/iteration"
"""The horizontal axis of all metrics here: the iteration, whatever the run's own step counts."""
PATTERNS: Final = ("sol/*", "sol_layer/*", "sol_func/*", "sol_phase/*")


class Run(Protocol):
    """Is what is used of a run of `wandb`."""

    id: str

    def define_metric(self, name: str, step_metric: str | None = None, *, hidden: bool | None = None) -> object: ...
    def log(self, data: dict[str, object], *, commit: bool | None = None) -> None: ...


_defined: list[str] = []


def log_wandb(
    analysis: Analysis | None, iteration: int, tables: bool = False, *, commit: bool = False, times: Mapping[str, float] = NO_TIMES
) -> bool:
    """Log the scalars of a step into the open run, tables at report intervals. Returns whether there was a run to log into.

    The figures join the row that the training loop logs next, so the run's own step counter stays as it is. Where a loop logs less often
    than this, a row has the latest figures, and their iteration. commit: make a row of their own, for loops that never log themselves;
    each raises the run's step by one.
    """
    wandb = sys.modules.get("wandb")
    run: Run | None = getattr(wandb, "run", None)
    if wandb is None or run is None:
        return False
    if run.id not in _defined:
        run.define_metric(ITERATION, hidden=True)
        for pattern in PATTERNS:
            run.define_metric(pattern, step_metric=ITERATION)
        _defined[:] = [run.id]
    data: dict[str, object] = {ITERATION: iteration, **({} if analysis is None else log_values.scalars(analysis)), **times}
    if tables and analysis is not None:
        for name, (columns, rows) in log_values.tables(analysis).items():
            data[name] = wandb.Table(columns=list(columns), data=rows)
    run.log(data, commit=commit)
    return True
