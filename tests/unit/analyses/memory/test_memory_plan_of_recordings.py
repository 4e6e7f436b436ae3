"""The memory plan where a recording is named: what is taken from it, and what is chosen over it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tb_sol_plugin import ingest
from tb_sol_plugin.analyses.memory.memory_plan import memory_plan as planned_report
from tb_sol_plugin.analyses.memory.memory_plan_query import MemoryPlanQuery
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Report
from tests.support.sol_builder import Json, small

GB = 10**9
MODEL: dict[str, Json] = {
    "hidden": [1024, "config.n_embd"], "layers": [24, "config.n_layer"], "vocab": [50304, "told"], "ffn": [4096, "config.n_inner"],
    "heads": [16, "config.n_head"], "gated": [False, "modules"], "rms_norm": [False, "modules"], "tied": [True, "storages"],
}  # fmt: skip
"""GPT-2 medium."""
LAYOUT: dict[str, Json] = {
    "tp": [2, "groups"], "pp": [2, "groups"], "dp": [4, "groups"], "seq": [1024, "args"], "micro_batch": [8, "args"], "dtype": ["fp16", "args"],
    "sharding": ["optimizer", "optimizer"],
}  # fmt: skip


def recorded(tmp_path: Path, plan: Json) -> Capture:
    b = small(plan=plan)
    return ingest.read(str(b.write(tmp_path / b.name)))


def report(capture: Capture, **query: object) -> Report:
    found = capture.analyze("memory_plan", **query)
    assert isinstance(found, Report)
    return found


def test_model_and_layout_as_recorded(tmp_path: Path) -> None:
    found = report(recorded(tmp_path, MODEL | LAYOUT))
    assert found.facts["model"] == "the recorded model" and found.headline.startswith("The recorded model on TP")
    # 24 layers of 12 h² + 4 h, the tied table, a norm of two vectors
    assert found.facts["model_parameters"] == 24 * (12 * 1024**2 + 4 * 1024) + 1024 * 50304 + 2 * 1024
    assert found.facts["world"] == 16 and found.facts["bytes_per_parameter"] == "4 + 16/d"
    assert {n: found.fields[n].value for n in ("hidden", "tp", "dtype", "seq", "sharding")} == {
        "hidden": "1024", "tp": "2", "dtype": "fp16", "seq": "1024", "sharding": "optimizer",
    }  # fmt: skip
    assert found.notices[0].text.startswith("Taken from the recording: hidden, layers, vocab, ffn, heads, gated, rms_norm, tied, ")


def test_what_is_chosen_stands_over_the_recording(tmp_path: Path) -> None:
    capture = recorded(tmp_path, MODEL | LAYOUT)
    changed = report(capture, layers=48, tp=4, distributed_optimizer=False)
    assert changed.facts["model"] == "the recorded model with changes" and changed.facts["world"] == 32
    assert changed.facts["bytes_per_parameter"] == "20" and "tp" not in changed.notices[0].text.partition(":")[2].split(".")[0].split(", ")
    # a preset is another model on the same layout
    preset = report(capture, preset="llama-7b")
    assert preset.facts["model"] == "LLaMA-7B" and preset.facts["world"] == 16 and "hidden" not in preset.notices[0].text
    # devices in all give the data parallel size, not the recorded one
    assert report(capture, world=64).facts["world"] == 64


def test_a_recording_that_says_little_is_filled_up_and_says_so(tmp_path: Path) -> None:
    found = report(recorded(tmp_path, {"hidden": [512, "told"], "tp": [2, "groups"], "optimizer": ["Shampoo", "told"], "recompute": ["full", "args"]}))
    assert found.facts["model"] == "LLaMA-7B" and found.facts["world"] == 2 and found.fields["recompute"].value == "full"
    assert found.notices[0].text == "The recording does not say layers, vocab, ffn, heads of its model: the sizes are those of LLaMA-7B until you give them."
    assert found.notices[1].text.startswith("Taken from the recording: tp, recompute.")
    whole = report(recorded(tmp_path, {"hidden": [512, "told"]}), layers=2, vocab=1000, ffn=2048, heads=8)
    assert whole.facts["model"] == "the recorded model with changes" and whole.fields["hidden"].value == "512"


def test_a_recording_without_a_model_is_the_preset_and_says_so(tmp_path: Path) -> None:
    capture = recorded(tmp_path, None)
    found = report(capture)
    text = "The recording does not say hidden, layers, vocab, ffn, heads of its model: the sizes are those of LLaMA-7B until you give them."
    assert found.facts["model"] == "LLaMA-7B" and text in [n.text for n in found.notices]
    assert len([n for n in found.notices if not n.text.startswith("It fits on ")]) == 2
    # GIVEN a preset, the same one among them, or no recording at all THEN nothing was taken for the recorded model
    assert not any("does not say" in n.text for n in report(capture, preset="llama-7b").notices)
    assert not any("does not say" in n.text for n in planned_report(MemoryPlanQuery()).notices)


def test_the_base_is_what_the_program_read_last(tmp_path: Path) -> None:
    # GIVEN 0.4 GB of context before the process group and 1.2 GB after it, and a later record of the training
    capture = recorded(tmp_path, None)
    rows = [(1, -1, int(0.4 * GB), 0, 0), (2, -1, int(1.2 * GB), 0, 0), (3, 5, 30 * GB, 28 * GB, 27 * GB)]
    numbers = {n: np.full(3, -1, np.int64) for n, f in S.MEMORY_RECORDS.fields.items() if f.dtype in ("int64", "int32")}
    numbers |= {n: np.array(v, np.int64) for n, v in zip(("time_ns", "iteration", "device_used", "reserved", "allocated"), zip(*rows, strict=True), strict=True)}
    numbers |= {"device": np.zeros(3, np.int64), "phase": np.full(3, -1, np.int32)}
    words = {n: pd.Categorical([w] * 3) for n, w in (("tag", "x"), ("since", "process"))}
    capture.tables[S.MEMORY_RECORDS.name] = S.MEMORY_RECORDS.frame(numbers | words)
    found = report(capture, preset="llama-7b", tp=8, device="80GB")
    # THEN context and group stand in the plan, marked as measured, and a base that is given goes over it
    assert found.facts["base_bytes"] == int(1.2 * GB)
    assert found.facts["headroom_bytes"] == 80 * GB - int(1.2 * GB) - found.facts["largest_bytes"]  # type: ignore[operator]
    assert found.sections[0].notes["base_bytes"].startswith("measured")  # type: ignore[union-attr]
    assert "beside 1.20\u202fGB (1.12\u202fGiB) of base memory" in found.headline
    assert report(capture, base_gb=0).facts["base_bytes"] == 0


def test_the_device_of_a_recording(tmp_path: Path) -> None:
    # GIVEN a CPU without device memory THEN the default device is taken; device limits and a device are chosen over it
    capture = recorded(tmp_path, None)
    assert report(capture).facts["device"] == "H100 SXM"
    assert report(capture, device_limits="A100_SXM_40").facts["device"] == "A100 SXM 40 GB"
    assert report(capture, device_limits="A100_SXM_40", device="MI300X").facts["device"] == "MI300X"
