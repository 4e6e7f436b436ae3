"""The overhead benchmark: what it refuses, and where its table goes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.capture_table import ROWS, budget, cells, into_docs, markdown, regressions
from tb_sol_plugin.format import encode

FIGURES: dict[str, Any] = {
    "machine": "a CPU", "torch": "2.13.0", "python": "3.11.7", "rounds": 3, "import_ms": 8.0,
    "models": {"small": {
        "calls": 1000, "parameters": 2_500_000, "signatures": 100, "bytes_first": 400.0, "bytes_later": 50.0,
        "ways": {way: {"step_s": 0.004, "over": 0.015 if way == "always on" else 2.0, "us_per_call": 8.0, "end_s": 0.01} for way, _ in ROWS},
    }},
}  # fmt: skip


def changed(**values: float) -> dict[str, Any]:
    """FIGURES with other values of the small model; `always_on` and `sampled` by their budgeted figure."""
    out = copy.deepcopy(FIGURES)
    small = out["models"]["small"]
    for name, value in values.items():
        if name == "always_on":
            small["ways"]["always on"]["over"] = value
        elif name == "sampled":
            small["ways"]["sampled"]["us_per_call"] = value
        elif name == "import_ms":
            out["import_ms"] = value
        else:
            small[name] = value
    return out


def test_the_budget() -> None:
    # GIVEN figures within the budget THEN nothing is said; each one beyond it is named alone
    assert budget(FIGURES) == []
    for name, value in (("always_on", 0.021), ("sampled", 10.1), ("bytes_later", 201.0), ("import_ms", 51.0)):
        (problem,) = budget(changed(**{name: value}))
        assert "more than" in problem


def test_behind_large_kernels_a_call_is_compared_with_a_mode_that_only_counts() -> None:
    # GIVEN a larger model where a call takes 18 µs, 9 of them already in a mode that only counts THEN that is within the budget
    figures = copy.deepcopy(FIGURES)
    figures["models"] = {"medium": figures["models"]["small"]}
    ways = figures["models"]["medium"]["ways"]
    ways["sampled"]["us_per_call"], ways["empty"]["us_per_call"] = 18.0, 9.0
    assert budget(figures) == []
    # AND 10.5 µs beyond it are not
    ways["sampled"]["us_per_call"] = 19.5
    (problem,) = budget(figures)
    assert problem == "medium: a sampled step takes 10.5 µs per ATen call beyond those of a mode that only counts, more than 10"


def test_a_regression_above_a_quarter_is_found() -> None:
    # GIVEN committed figures, where a sampled step lasts 200 % longer WHEN it is 245 % THEN that is noise; 255 % is more than a quarter above
    slower = copy.deepcopy(FIGURES)
    slower["models"]["small"]["ways"]["sampled"]["over"] = 2.45
    assert regressions(slower, FIGURES) == []
    slower["models"]["small"]["ways"]["sampled"]["over"] = 2.55
    assert regressions(slower, FIGURES) == ["small: sampled, % more: 255.0, was 200.0"]
    assert regressions(changed(bytes_first=501.0), FIGURES) == ["small: bytes_first: 501.0, was 400.0"]
    # AND without committed figures there is nothing to compare with
    assert regressions(FIGURES, {}) == []


def test_the_table_goes_between_its_markers(tmp_path: Path) -> None:
    # GIVEN a page with a place for the CPU's figures WHEN they are written twice THEN they stand there once
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- overhead cpu -->\nold\n<!-- end of overhead cpu -->\nafter\n")
    into_docs(page, "cpu", FIGURES)
    into_docs(page, "cpu", FIGURES)
    text = page.read_text()
    assert text == f"before\n<!-- overhead cpu -->\n{markdown(FIGURES)}\n<!-- end of overhead cpu -->\nafter\n"
    assert "| always on: 5 phases, step time | 4.00 | +1.5 % |  |" in text
    # AND a page without the place is refused
    with pytest.raises(ValueError, match="no place for the figures of cuda"):
        into_docs(page, "cuda", FIGURES)


def test_rows_have_a_cell_per_column() -> None:
    assert {len(row) for row in cells(FIGURES)} == {4}
    assert cells(FIGURES)[0] == ["untracked", "4.00", "", ""]


def test_bytes_per_signature(tmp_path: Path) -> None:
    # GIVEN a file whose first iteration defines two signatures and whose second one uses them again
    torch = pytest.importorskip("torch", reason="the benchmark trains with PyTorch")
    assert torch
    from benchmarks.capture_steps import sizes

    records: list[dict[str, Any]] = [
        {"kind": "header"},
        {"kind": "sig", "id": 0}, {"kind": "sig", "id": 1},
        {"kind": "step", "iteration": 0}, {"kind": "ledger", "iteration": 0, "rows": [[0], [1], [1]]},
        {"kind": "step", "iteration": 1}, {"kind": "ledger", "iteration": 1, "rows": [[0], [1]]},
        {"kind": "close"},
    ]  # fmt: skip
    (tmp_path / "a_rank0_1_2.sol.jsonl").write_bytes(b"".join(encode(r) for r in records))
    # WHEN its size is counted THEN the definitions belong to the first, and header and close to none
    lengths = [len(json.dumps(r, separators=(",", ":"))) + 1 for r in records]
    assert sizes(tmp_path) == {"signatures": 2, "bytes_first": sum(lengths[1:5]) / 2, "bytes_later": sum(lengths[5:7]) / 2}
