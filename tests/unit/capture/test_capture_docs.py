"""The page on tracking names every option, note, reason and metric that exists."""

from __future__ import annotations

import argparse
import inspect
import re

import pytest

from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
QUOTED = set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)))
SOURCES = sorted((ROOT / "tb_sol_plugin" / "capture").rglob("*.py"))


def test_every_option_of_capture_is_explained() -> None:
    # GIVEN the parameters of `capture` THEN each is named in the table of options
    pytest.importorskip("torch", reason="the tracker needs PyTorch")
    from tb_sol_plugin.capture.context import capture

    assert not set(inspect.signature(capture).parameters) - QUOTED - {"traces"} and "`traces`" in TEXT


def test_every_argument_of_the_command_line_is_explained() -> None:
    # GIVEN the options that a script gets THEN each is named, and no other
    from tb_sol_plugin.capture import add_sol_arguments

    parser = add_sol_arguments(argparse.ArgumentParser(add_help=False))
    options = {o for action in parser._actions for o in action.option_strings}
    assert options == {q for q in QUOTED if re.fullmatch(r"--(rl-sol|sol|timing)-[a-z-]+", q)}


def test_every_note_of_the_recorder_is_explained() -> None:
    # GIVEN the codes of notes in the source THEN each has a line; a code that is made up as it runs stands there by its beginning
    codes = {
        code
        for path in SOURCES
        for code in re.findall(r"""\b(?:_?note|_once)\(\s*f?"(\w+?)(?:\{|")""", path.read_text(encoding="utf-8"))
    }
    assert "two_trackers" in codes
    explained = {q.rstrip("…") for q in QUOTED}
    assert not codes - explained


def test_every_reason_of_a_loss_is_explained() -> None:
    # GIVEN the texts by which losses are counted THEN the page has each, or the words that it begins with
    reasons = {
        text.split("{")[0].strip(": ")
        for path in SOURCES
        for text in re.findall(r"""\blost\[\s*f?"([^"]+)"\]""", path.read_text(encoding="utf-8"))
    }
    assert reasons
    beginnings = [q.split("…")[0].strip(": ") for q in QUOTED if len(q) > 5]
    assert not [r for r in reasons if not any(r.startswith(b) for b in beginnings if b)]


def test_metrics_have_their_documented_names() -> None:
    # GIVEN the source of the metrics THEN the documented scalars and tables are those
    from tb_sol_plugin.capture.report import analysis, scalars

    source = inspect.getsource(analysis) + inspect.getsource(scalars)
    names = set(re.findall(r'"(sol/\w+)"', source)) | {analysis.AGE}
    assert names == {q for q in QUOTED if re.fullmatch(r"sol/\w+", q)}
    assert ", ".join(analysis.GROUP_COLUMNS) in QUOTED


def test_the_samples_it_names_exist() -> None:
    for script in re.findall(r"python (samples/\w+\.py)", TEXT):
        assert (ROOT / script).is_file()
