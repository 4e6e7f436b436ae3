"""Reads and writes the files that `tb-sol check` compares with: samples of a baseline, and budgets, which people write too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from tb_sol_plugin.cli.files import replace
from tb_sol_plugin.errors import BadInput, BadQuery
from tb_sol_plugin.metrics.compare.differences import Side
from tb_sol_plugin.metrics.compare.gate import Budget, budget_of, budget_text
from tb_sol_plugin.metrics.compare.samples import MOST_ROWS, ROW_STEPS, Samples, per_step
from tb_sol_plugin.redact import text as redacted

MOST_BYTES: Final = 64 << 20
"""Bytes of a file that are read."""
MOST_BUDGETS: Final = 200
LARGEST: Final = 1 << 53
"""No number of a step reaches it: 104 days in ns, 9 PB; sums and means of smaller ones are exact enough."""
MOST_NUMBERS: Final = 64 * MOST_ROWS * ROW_STEPS
"""Of the rows of a grouping."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A base that was stored: samples of its runs, without names of files or users."""

    tb_sol_baseline: Literal[1] = 1
    runs: tuple[Samples, ...]


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """Committed numbers: by metric what it may take, as `4.9ms`, and how much more passes, as `4.9ms +5%`."""

    tb_sol_budgets: Literal[1] = 1
    budgets: dict[str, str]


def stored(path: str) -> Baseline | list[Budget] | None:
    """Returns the baseline or the budgets in a file; None where it is neither. BadInput where it says that it is one and cannot be read."""
    try:
        with open(path, "rb") as file:
            head = b"".join(file.read(64).split())
            kind: type[Baseline] | type[Budgets] | None = None
            for name, struct in (("tb_sol_baseline", Baseline), ("tb_sol_budgets", Budgets)):
                kind = struct if head.startswith(b'{"' + name.encode()) else kind
            if kind is None:
                return None
            file.seek(0)
            text = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        return None
    what = "budgets" if kind is Budgets else "baseline"
    if len(text) > MOST_BYTES:
        raise BadInput(f"{what} of more than {MOST_BYTES >> 20} MiB", hint="store it again from fewer runs", file=Path(path).name)
    try:
        found = msgspec.json.decode(text, type=kind)
        if isinstance(found, Budgets):
            if len(found.budgets) > MOST_BUDGETS:
                raise ValueError(f"more than {MOST_BUDGETS} budgets")
            return [budget_of(name, value) for name, value in found.budgets.items()]
        _checked(found)
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        hint = "write it as docs/check.md says" if kind is Budgets else "store it again with --save-baseline"
        raise BadInput(f"damaged {what}: {error}", hint=hint, file=Path(path).name) from None
    except BadQuery as error:
        raise BadInput(f"damaged {what}: {error.message}", hint=error.hint, file=Path(path).name) from None
    return found


def _checked(found: Baseline) -> None:
    """Raises ValueError where the numbers of a baseline do not fit together."""
    if not found.runs:
        raise ValueError("no runs")
    if any(one.tree is not None for one in found.runs):
        raise ValueError("the tree of a step, which no baseline stores")
    for one in found.runs:
        count = len(one.steps)
        on_path = [*one.path.parts.values()] if one.path is not None else []
        each_step = [*one.values.values(), *one.parts.values(), *on_path]
        if not count or any(len(v) != count for v in each_step) or "step_time" not in one.values:
            raise ValueError("numbers of different lengths")
        if any(abs(number) >= LARGEST for numbers in (one.steps, *each_step) for number in numbers):
            raise ValueError("a number that no step has")
        if any(not 0 <= place < count for place in one.row_steps):
            raise ValueError("a step that is not there")
        for rows in [*one.groupings.values(), *([one.path.items] if one.path is not None else [])]:
            if len(rows.of) != len(rows.names) or len(rows.names) * len(one.row_steps) > MOST_NUMBERS:
                raise ValueError("rows of different lengths")
            columns = [per_step(rows, column, len(one.row_steps)) for column in ("calls", "host", "device", "work")]
            if any(int(c.min(initial=0)) <= -LARGEST or int(c.max(initial=0)) >= LARGEST for c in columns):
                raise ValueError("a number that no step has")


def save_baseline(path: str, side: Side) -> None:
    """Stores a side: the settings that name a model or a file are left out."""
    runs = [
        msgspec.structs.replace(
            r, settings={n: redacted(t) for n, t in r.settings.items()}, tree=None, began_ns=None
        )
        for r in side.runs
    ]
    _write(path, msgspec.json.encode(Baseline(runs=tuple(runs))))


def save_budgets(path: str, before: Mapping[str, Budget], measured: Mapping[str, tuple[float, str]]) -> None:
    """Stores what was measured as budgets; others, and what each allows more, stay as they were. measured: median and unit by metric."""
    texts = {name: b.text for name, b in before.items()}
    for name, (value, unit) in measured.items():
        texts[name] = budget_text(value, unit, before[name].allowed if name in before else None)
    _write(path, msgspec.json.format(msgspec.json.encode(Budgets(budgets=texts)), indent=2) + b"\n")


def _write(path: str, text: bytes) -> None:
    replace(path, [text], field="base", hint="choose another place")
