"""Docs that cannot rot: what exists is in them, and what stands in their tables exists."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from tb_sol_plugin.devices.catalog import known_keys, table
from tb_sol_plugin.devices.files import known_columns, parse
from tb_sol_plugin.devices.rates import ORIGINS
from tb_sol_plugin.loader import Loader
from tb_sol_plugin.model import docs
from tb_sol_plugin.model.registry import registry

ROOT = Path(__file__).resolve().parents[2]
ANALYSES = ROOT / "docs" / "analyses"


@pytest.mark.parametrize("name", list(registry()))
def test_the_page_of_an_analysis_is_fresh(name: str) -> None:
    # GIVEN the page of an analysis WHEN its tables are made again THEN nothing changes: every parameter, fact and column is there
    text = (ANALYSES / f"{name}.md").read_text(encoding="utf-8")
    assert docs.page(registry()[name], text) == text, "run: make generate"


def test_a_page_keeps_what_is_written_by_hand_and_gets_what_it_lacks(tmp_path: Path) -> None:
    # GIVEN a page with its own title and prose WHEN a table is stale THEN it alone is made again
    item = registry()["memory_plan"]
    fresh = docs.page(item, (ANALYSES / "memory_plan.md").read_text(encoding="utf-8"))
    column, fact, field = item.tables["stages"][0], item.facts[0], item.fields[0]
    assert docs.page(item, fresh.replace(f"| {column.doc} |", "| stale |")) == fresh
    # AND of an analysis without a page one is written, with its question, parameters, facts and tables
    new = docs.page(item)
    assert new.startswith(f"# {item.title}\n") and item.question in new and docs.page(item, new) == new
    assert all(f"| `{one.name}` |" in new and one.doc in new for one in (column, fact, field))
    assert f"| `{fact.name}` | {fact.label} | {fact.unit or '–'} | {fact.doc} |" in new
    assert len(docs.write(tmp_path)) == len(registry()) and docs.write(tmp_path) == []
    # AND a table that no analysis has any more is reported
    with pytest.raises(ValueError, match="memory_plan has no table gone; remove it"):
        docs.page(item, "<!-- generated: table gone -->\n<!-- end -->\n")


def test_no_page_is_left_over() -> None:
    assert {p.stem for p in ANALYSES.glob("*.md")} == set(registry())


def test_every_flag_of_tensorboard_is_documented() -> None:
    # GIVEN the flags the plugin adds to TensorBoard
    parser = argparse.ArgumentParser()
    Loader().define_flags(parser)
    flags = {s for action in parser._actions for s in action.option_strings if s.startswith("--sol")}
    text = "".join(p.read_text(encoding="utf-8") for p in [*ROOT.glob("docs/*.md"), ROOT / "README.md"])
    # THEN each is named in the docs, and no flag in the docs is one that does not exist
    assert flags and not {f for f in flags if f not in text}
    assert set(re.findall(r"--sol_\w+", text)) <= flags


@pytest.mark.parametrize("command", ["serve", "index", "report", "analyze", "export", "doctor"])
def test_every_command_is_documented(command: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    assert f"tb-sol {command}" in text


def test_links_between_documents_lead_somewhere() -> None:
    # GIVEN all Markdown files THEN relative links name files that exist
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("samples/*.md"), *ROOT.glob("tb_sol_plugin/*.md")]
    targets = [(page, t) for page in pages for t in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))]
    broken = [f"{page.relative_to(ROOT)}: {t}" for page, t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not broken


def test_the_page_on_devices_names_every_key_column_and_provenance() -> None:
    # GIVEN the page on device limits THEN every row, column, method, provenance and flag that exists is named, with the figures of the table
    text = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    quoted = set(re.findall(r"`([^`\n]+)`", text))
    assert not {*known_columns(), *known_keys(), *ORIGINS} - quoted
    lines = re.findall(r"^\| `(\w+)` \| ([\d.]*) \| ([\d.]*) \| ([\d.]*) \| ([\d.]*) \|", text, re.MULTILINE)
    assert tuple(line[0] for line in lines) == known_keys()
    for line in lines:
        spec = table()[line[0]]
        figures = (spec.matrix.get("bf16"), spec.matrix.get("fp8"), spec.vector.get("fp32"))
        assert [float(t) * 1e12 if t else None for t in line[1:4]] == [pytest.approx(f) if f else None for f in figures], line[0]
        assert (float(line[4]) * 1e9 if line[4] else None) == (pytest.approx(spec.memory_bandwidth) if spec.memory_bandwidth else None)
    # and the file it shows is a good one
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert parse(example.encode(), "example.json").problems == ()
