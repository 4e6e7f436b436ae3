"""Every analysis answers on every SOL capture: whole, cut, empty, without work, without times, and damaged."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import SolError
from tb_sol_plugin.model.registry import registry
from tests.support.check_capture import check_capture, is_contract_shaped
from tests.support.sol_builder import CUDA, SolBuilder, small


def without(kind: str) -> SolBuilder:
    b = small()
    b.records = [r for r in b.records if r["kind"] != kind]
    return b


def unsampled() -> SolBuilder:
    b = SolBuilder(mode="off")
    phase = b.phase("train")
    for number in range(5):
        b.iteration(number, number * 1000, 900, phases=[b.time(phase, number * 1000 + 1, 500)])
    return b


def on_a_device() -> SolBuilder:
    """Device times of phases and modules, none of single calls."""
    b = small(device=CUDA, time_source="event")
    for record in b.records:
        if record["kind"] == "ledger":
            record["rows"] = [[*row[:7], None] for row in record["rows"]]  # type: ignore[index,union-attr]
        elif record["kind"] in ("phase_time", "module_time"):
            record["rows"] = [[*row[:3], row[2], row[4]] for row in record["rows"]]  # type: ignore[index,union-attr]
        elif record["kind"] == "step":
            record["device_ns"] = record["duration_ns"]
    return b


CASES: dict[str, Callable[[], SolBuilder]] = {
    "whole": small,
    "device": on_a_device,
    "header": SolBuilder,
    "unsampled": unsampled,
    **{f"without {kind}": lambda kind=kind: without(kind) for kind in ("sig", "label", "ledger", "step", "phase_time", "module_time")},
}


@pytest.mark.parametrize("case", CASES)
def test_every_analysis_answers(case: str, tmp_path: Path) -> None:
    check_capture(CASES[case]().write(tmp_path / "x.sol.jsonl"), tmp_path / "cache")


ODD = st.none() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=4) | st.just([]) | st.just({})


@settings(max_examples=25)
@given(changes=st.lists(st.tuples(st.integers(1, 23), st.randoms(use_true_random=False), ODD), min_size=1, max_size=4))
def test_every_analysis_answers_on_a_damaged_capture(changes: list[tuple[int, object, object]]) -> None:
    # GIVEN a recording with some fields, or cells of rows, replaced
    records = small().records
    for place, random, value in changes:
        record = records[place]
        rows = record.get("rows")
        if isinstance(rows, list) and rows:
            row = random.choice(rows)  # type: ignore[attr-defined]
            row[random.randrange(len(row))] = value  # type: ignore[attr-defined]
        else:
            record[random.choice(sorted(record))] = value  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sol.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
        try:
            c = ingest.read(str(path))
        except SolError:
            return
    # WHEN every analysis is asked, THEN each gives a report, or says why not
    for name in registry():
        is_contract_shaped(name, c.analyze(name))
