"""`python -m tb_sol_plugin.model.docs` writes the tables of docs/analyses: parameters, facts and columns, as the registry declares them.

A page is written by hand, but for what stands between a line `<!-- generated: NAME -->` and `<!-- end -->`: NAME is `question`,
`parameters`, `facts`, or `table` and its id. A block that a page lacks is added at its end, an analysis without a page gets one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tb_sol_plugin.model.query import Field
from tb_sol_plugin.model.registry import Analysis, registry

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "analyses"
END: Final = "<!-- end -->"
_BLOCK: Final = re.compile(r"<!-- generated: ([\w ]+) -->\n.*?<!-- end -->\n", re.DOTALL)


def page(item: Analysis, text: str = "") -> str:
    """Returns the page of an analysis with fresh tables. text: the page as it is, "" without any. ValueError for a block of nothing there
    is.
    """
    wanted = {name: (heading, "\n".join(lines)) for name, heading, lines in _blocks(item)}
    found = _BLOCK.findall(text)
    unknown = [name for name in found if name not in wanted]
    if unknown:
        raise ValueError(f"docs/analyses/{item.name}.md: {item.name} has no {', '.join(unknown)}; remove it")
    text = _BLOCK.sub(lambda match: _marked(match[1], wanted[match[1]][1]), text) or f"# {item.title}\n"
    for name, (heading, body) in wanted.items():
        if name not in found:
            about = f"\n`{item.name}`: {item.help}\n" if name == "question" and item.help else ""
            text += (f"\n{heading}\n" if heading else "") + f"\n{_marked(name, body)}{about}"
    return text


def write(folder: Path = FOLDER) -> list[Path]:
    """Write the page of every analysis; those that changed."""
    changed = []
    for name, item in registry().items():
        path = folder / f"{name}.md"
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = page(item, before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


def _marked(name: str, body: str) -> str:
    return f"<!-- generated: {name} -->\n{body}\n{END}\n"


def _blocks(item: Analysis) -> Iterator[tuple[str, str, list[str]]]:
    """Yields (name, heading, lines) of all that is generated."""
    yield "question", "", [f"*{item.question}*"]
    rows = [(f"`{f.name}`", values(f), "–" if f.default in ("", "None") else f.default, f.doc) for f in item.fields]
    yield "parameters", "## Parameters", _table(("parameter", "values", "default", "meaning"), rows)
    if item.facts:
        facts = [(f"`{f.name}`", f.label, f.unit, f.doc) for f in item.facts]
        yield "facts", "## Facts", _table(("fact", "label", "unit", "meaning"), facts)
    for name, columns in item.tables.items():
        cells = [(f"`{c.name}`", c.label, c.unit, c.doc) for c in columns]
        yield f"table {name}", f"## Table `{name}`", _table(("column", "label", "unit", "meaning"), cells)


def values(field: Field) -> str:
    """Returns what a field takes, in words."""
    if field.type == "flag":
        return "true, false"
    if field.rows:
        return f"list of {', '.join(field.rows)}, as JSON"
    return ", ".join(c or '""' for c in field.choices) if field.type == "choice" else field.type


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(c.replace("|", "\\|") or "–" for c in row) for row in rows)]
    return [f"| {line} |" for line in lines]


if __name__ == "__main__":
    for changed in write():
        print(changed)
