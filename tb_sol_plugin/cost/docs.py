"""`python -m tb_sol_plugin.cost.docs` prints docs/cost-models.md: every model of the registry, as its docstring describes it."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import NamedTuple

from tb_sol_plugin.cost import CONVENTION, FAMILIES
from tb_sol_plugin.cost.model import Model, everything

HEAD = f"""# Cost models

All cost models: the FLOP and bytes of every operator that is known. Made by `python -m tb_sol_plugin.cost.docs`; a test compares it with
the models. Do not edit.

A cost model says how much work one call of an operator is, from what the recording holds of its arguments: sizes, element types,
strides and values. It is looked up by the operator's name, first by exact name, then by pattern. What has no model, or whose recorded
arguments do not suffice, has no work: it is unknown, never 0, and listed with what is missing.

Convention `{CONVENTION}`:

- One multiply-add is 2 FLOP. A bias counts as bytes, not as FLOP.
- Matrix work (products, convolutions, attention) and vector work (elementwise, norms, softmax, reductions) are counted apart; only
  matrix work enters MFU and HFU.
- The backward pass of fused attention runs five products, 2.5 times its forward, since it computes the scores again. HFU counts all
  five; MFU, which leaves out what is done again, takes twice the forward, as for every other layer.
- Bytes are the least traffic to device memory: each operand read once, each result written once, each at its own element size. A
  dimension of stride 0 is one element wide. Caches may save less than that, never more.
- Compute type: from all matrix operands; FP8 with FP8 is FP8, a mix runs at the wider type, a quantized weight at that of the
  activations.
- Numbers in the text are argument positions. `estimated` results say what was assumed: a missing mask, a missing result type, packed
  lengths.
- A *wrapper* only calls other operators: it owns the work just where these explain less of its time.

The limit that follows is max(FLOP / peak of the compute type, vector FLOP / vector peak, bytes / memory bandwidth).
Models of your own: [extending.md](extending.md).
"""


class Row(NamedTuple):
    """Models that share one formula's text: exact names, patterns, kind, wrapper, text."""

    names: list[str]
    patterns: list[str]
    kind: str
    wrapper: bool
    text: str


def rows(family: ModuleType) -> list[Row]:
    """Returns the formulas of one module in the order of its source, names in the order they were registered."""
    found: dict[tuple[str, str, bool], Row] = {}
    for name, exact, model in everything():
        if model.formula.__module__ != family.__name__ or model.plugin:
            continue
        text = described(model)
        row = found.setdefault((text, model.kind, model.wrapper), Row([], [], model.kind, model.wrapper, text))
        (row.names if exact else row.patterns).append(name)
    return list(found.values())


def described(model: Model) -> str:
    """Returns a formula's docstring as one paragraph, "" if it has none."""
    return " ".join(inspect.cleandoc(model.formula.__doc__ or "").split())


def page() -> str:
    """Returns the whole page as Markdown."""
    parts = [HEAD]
    for family in FAMILIES:
        listed = rows(family)
        if not listed:
            continue
        parts.append(_head(family))
        parts.append("| operators | kind | work |\n| --- | --- | --- |")
        parts += [_line(row) for row in listed]
        parts.append("")
    return "\n".join(parts).rstrip("\n") + "\n"


def _head(family: ModuleType) -> str:
    """Returns the first line and the rest of a module's docstring as a section."""
    title, _, rest = inspect.cleandoc(family.__doc__ or "").partition("\n")
    return f"## {family.__name__.rpartition('.')[2]}: {title.rstrip('.')}\n\n{rest.strip()}\n"


def _line(row: Row) -> str:
    names = [f"`{name}`" for name in row.names] + [f"like `{regex}`" for regex in row.patterns]
    kind = f"{row.kind}, wrapper" if row.wrapper else row.kind
    return f"| {_cell(', '.join(names))} | {kind} | {_cell(row.text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
