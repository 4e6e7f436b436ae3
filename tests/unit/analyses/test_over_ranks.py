"""Analyses over the workers of a run: the parts, their keys, what reports get, and the example of the docs."""

from __future__ import annotations

import pickle
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model import registry as registry_module
from tb_sol_plugin.model.answer import AnalysisRequest, from_ranks, reducer_of
from tb_sol_plugin.model.recordings import Missing, Recording, RecordingReduction
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import Report, UnavailableReport
from tests.conftest import ROOT
from tests.support.ranks import rank_trace, write_run


@pytest.fixture
def example() -> Iterator[str]:
    """The example of the docs, registered as the module that it says it is."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if 'scope="ranks"' in block)
    module = types.ModuleType("tb_sol_plugin.analyses.longest_kernel")
    sys.modules[module.__name__] = module
    registry_module.registry()
    exec(compile(code, "extending.md", "exec"), module.__dict__)
    registry_module.registry.cache_clear()
    yield "longest_kernel"
    del sys.modules[module.__name__], registry_module._FOUND["longest_kernel"]
    registry_module.registry.cache_clear()


def test_the_example_of_the_docs(tmp_path: Path, example: str) -> None:
    # GIVEN a run of twelve workers whose longest device event is an upload of 40 us, of rank 7 400 us, of the second rank 3 90 us
    found = sol.open(str(write_run(tmp_path / "job"))).analyze(example)
    assert isinstance(found, Report)
    t = found.table("workers").set_index("worker")["kernel_ns"]
    assert len(t) == 10 and (t["rank0"], t["rank7"], t["again_rank3"]) == (40_000, 400_000, 90_000)
    assert found.table("left_out")["worker"].tolist() == ["rank8", "rank9"]


def test_a_reduction_depends_on_no_other_field_than_it_declares() -> None:
    # GIVEN the comparison of copies, whose part depends on the step THEN other fields make no other part, and do not reach it
    keys = {
        reducer_of("memcpy_ranks", raw).key for raw in ({}, {"what": "bytes"}, {"device_limits": "H100_SXM"}, {"step": ""}, {"step": " "})
    }
    assert len(keys) == 1 and reducer_of("memcpy_ranks", {"step": "3"}).key not in keys
    assert reducer_of("memcpy_ranks", {"what": "bytes", "step": " 3 "}).raw == (("step", "3"),)
    with pytest.raises(BadQuery):
        reducer_of("memcpy_ranks", {"what": "colour"})


def test_the_key_changes_with_version_and_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    item = get("memcpy_ranks")
    before = reducer_of("memcpy_ranks", {}).key
    monkeypatch.setitem(registry_module._FOUND, "memcpy_ranks", _with(item, version=2))
    assert reducer_of("memcpy_ranks", {}).key != before


def _with(item: registry_module.Analysis, **changes: object) -> registry_module.Analysis:
    import dataclasses

    return msgspec.structs.replace(item, reduce=dataclasses.replace(item.reduction, **changes))  # type: ignore[arg-type]


def test_a_reducer_can_be_sent_to_another_process(tmp_path: Path) -> None:
    # GIVEN a maker that was sent THEN it is the same, and makes the same
    maker = reducer_of("memcpy_ranks", {"step": "1"})
    sent = pickle.loads(pickle.dumps(maker))
    capture = sol.open_capture(str(rank_trace(3).write(tmp_path / "rank3.json")))
    assert sent == maker and sent.key == maker.key and sent(capture) == maker(capture)
    made = maker(capture)
    assert made.facts.rank == 3 and made.missing is None and len(made.body) < 1000
    missing = reducer_of("memcpy_ranks", {"step": "9"})(capture)
    assert missing.missing == Missing("no step 9", "recorded: 1–2", error=True, field="step") and not missing.body


def worker(name: str, state: str, **more: object) -> RecordingReduction[msgspec.Struct]:
    return RecordingReduction(name, "1", f"job/{name}.json", state, **more)  # type: ignore[arg-type]


def of_ranks(
    ranks: list[RecordingReduction[msgspec.Struct]], raw: dict[str, str] | None = None, shown: Recording | None = None
) -> Report | UnavailableReport:
    return from_ranks(AnalysisRequest("memcpy_ranks", raw or {}, shown), ranks).report()


def test_reasons_where_there_is_no_report() -> None:
    # GIVEN one worker THEN it says so; GIVEN only broken ones THEN the first reason; GIVEN one that lacks something THEN what to record
    failed = [worker(f"rank{i}", "failed", problem=f"broken {i}", hint="mend it") for i in range(3)]
    one = of_ranks(failed[:1])
    assert isinstance(one, UnavailableReport) and "one worker here" in one.because
    none = of_ranks(failed, shown=Recording("job", "", "", "", "", 0, 0.0))
    assert isinstance(none, UnavailableReport) and none.because == "none of the 3 workers can be read; job/rank0.json: broken 0"
    assert none.record_it_with == "mend it" and none.selection == {"run": "job"}
    lacking = worker("rank9", "lacking", problem="no device", missing=Missing("no device", "record CUDA", "ProfilerActivity.CUDA"))
    lack = of_ranks([*failed, lacking])
    assert isinstance(lack, UnavailableReport) and (lack.because, lack.argument) == ("no device", "ProfilerActivity.CUDA")
    with pytest.raises(BadQuery, match="no step 7"):
        of_ranks([worker("a", "lacking", missing=Missing("no step 7", error=True, field="step")), failed[0]], {"step": "7"})


def test_while_all_recordings_are_waiting_no_number_is_reported() -> None:
    found = of_ranks([worker("a", "waiting"), worker("b", "waiting")])
    assert isinstance(found, Report) and found.reading is not None and (found.reading.done, found.reading.total) == (0, 2)
    assert "None of 2 workers has been read" in found.headline and found.facts["time_per_step_ns"] is None
