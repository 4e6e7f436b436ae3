"""Docs that cannot rot: what exists is in them, and what stands in their tables exists."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from tb_sol_plugin.analyses import registry
from tb_sol_plugin.loader import Loader

ROOT = Path(__file__).resolve().parents[2]
ANALYSES = ROOT / "docs" / "analyses"


@pytest.mark.parametrize("name", list(registry()))
def test_a_page_per_analysis_names_its_parameters_facts_and_columns(name: str) -> None:
    # GIVEN an analysis WHEN its page is read
    item = registry()[name]
    text = (ANALYSES / f"{name}.md").read_text(encoding="utf-8")
    quoted = set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)))
    # THEN it names every parameter, fact and column, and the question the analysis answers
    wanted = (
        {f.name for f in item.fields} | set(item.facts) | {c.name for columns in item.tables.values() for c in columns} | set(item.tables)
    )
    assert not wanted - quoted, f"docs/analyses/{name}.md does not name {sorted(wanted - quoted)}"
    assert item.question in text


def test_no_page_is_left_over() -> None:
    assert {p.stem for p in ANALYSES.glob("*.md")} <= {*registry(), "README"}


def test_every_flag_of_tensorboard_is_documented() -> None:
    # GIVEN the flags the plugin adds to TensorBoard
    parser = argparse.ArgumentParser()
    Loader().define_flags(parser)
    flags = {s for action in parser._actions for s in action.option_strings if s.startswith("--sol")}
    text = "".join(p.read_text(encoding="utf-8") for p in [*ROOT.glob("docs/*.md"), ROOT / "README.md"])
    # THEN each is named in the docs, and no flag in the docs is one that does not exist
    assert flags and not {f for f in flags if f not in text}
    assert set(re.findall(r"--sol_\w+", text)) <= flags


@pytest.mark.parametrize("command", ["serve", "report", "analyze", "doctor"])
def test_every_command_is_documented(command: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    assert f"tb-sol {command}" in text


def test_links_between_documents_lead_somewhere() -> None:
    # GIVEN all Markdown files THEN relative links name files that exist
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("samples/*.md"), *ROOT.glob("tb_sol_plugin/*.md")]
    targets = [(page, t) for page in pages for t in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))]
    broken = [f"{page.relative_to(ROOT)}: {t}" for page, t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not broken
