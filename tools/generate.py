"""`make generate`: write everything that is made from the code: cost models, pages and list of the analyses, OpenAPI, performance.

`python tools/generate.py` writes what is stale and prints it; `--check` writes nothing and ends with status 1 where something is.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LIST = re.compile(r"<!-- generated: analyses -->\n.*?<!-- end -->\n", re.DOTALL)


def names_in(page: str) -> str:
    """docs/http-api.md with the names of all analyses."""
    from tb_sol_plugin.model.registry import registry

    text = textwrap.fill(f"Names of analyses: {', '.join(f'`{name}`' for name in registry())}.", 140, break_on_hyphens=False)
    return LIST.sub(lambda _: f"<!-- generated: analyses -->\n{text}\n<!-- end -->\n", page)


def pages() -> Iterator[tuple[Path, str]]:
    """Every generated file with what it should hold."""
    from benchmarks import performance_page, timeline_speed
    from tb_sol_plugin.cost import docs as cost
    from tb_sol_plugin.model import docs
    from tb_sol_plugin.model.registry import registry
    from tb_sol_plugin.web import openapi

    yield ROOT / "docs" / "cost-models.md", cost.page()
    for name, item in registry().items():
        path = docs.FOLDER / f"{name}.md"
        yield path, docs.page(item, path.read_text(encoding="utf-8") if path.exists() else "")
    path = ROOT / "docs" / "http-api.md"
    yield path, names_in(path.read_text(encoding="utf-8"))
    yield openapi.FILE, openapi.text()
    path = ROOT / "docs" / "timeline.md"
    figures = json.loads(timeline_speed.FIGURES.read_text(encoding="utf-8"))
    yield path, timeline_speed.page(path.read_text(encoding="utf-8"), figures)
    yield ROOT / "docs" / "performance.md", performance_page.page(json.loads(performance_page.FIGURES.read_text(encoding="utf-8")))


def stale() -> Iterator[tuple[Path, str]]:
    """Generated files that do not hold what they should, with that."""
    for path, text in pages():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, text


def main(arguments: list[str]) -> int:
    """Write what is stale, or with --check only say so."""
    found = list(stale())
    for path, text in found:
        print(path.relative_to(ROOT))
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    return 1 if found and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
