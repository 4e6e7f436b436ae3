"""One quantity per word: what several pages call "Modeled" or "Efficiency" is one number, on samples of every kind of recording."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import api
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import FactsSection, Report, TableSection
from tests.conftest import ROOT
from tests.support.findings import call
from tests.support.findings import step as one_step
from tests.support.training import read_back

KINDS = ("simulated_gpu_train", "simulated_gpu_llm", "cpu_transformer", "capture_train", "capture_rl", "proton")
"""Distributed training with communication and copies, a model on one GPU, a CPU, SOL captures, a profile."""
ON_A_GPU = KINDS[:2]
WORDS = ("Modeled", "Efficiency")


@cache
def capture_of(sample: str) -> Capture:
    return api.open(str(ROOT / "samples" / sample), cache=False).captures[0]


@cache
def report_of(sample: str, name: str, step: str = "") -> Report | None:
    found = capture_of(sample).analyze(name, **({"step": step} if step else {}))
    return found if isinstance(found, Report) else None


def tables(report: Report) -> list[TableSection]:
    return [s for s in report.sections if isinstance(s, TableSection)]


def stated(sample: str, word: str) -> dict[str, float]:
    """What the pages state under a word for the whole recording: their facts of that label, and totals of columns of that label."""
    out: dict[str, float] = {}
    for name in ("overview", "roofline", "operators", "kernels", "phases", "modules", "whatif"):
        report = report_of(sample, name)
        for section in report.sections if report is not None else ():
            if isinstance(section, FactsSection):
                values = {k: v for k, v in section.values.items() if section.labels.get(k) == word}
            elif isinstance(section, TableSection) and section.total:
                values = {c.name: section.total.get(c.name) for c in section.columns if c.label == word}
            else:
                continue
            out |= {f"{name}.{k}": v for k, v in values.items() if isinstance(v, float)}
    return out


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("sample", KINDS)
def test_pages_that_use_one_word_state_one_number(sample: str, word: str) -> None:
    # GIVEN every page of a sample WHEN its facts and totals are read by their labels
    found = stated(sample, word)
    # THEN the roofline states the word, other pages too, and all state the same number
    assert any(k.startswith("roofline") for k in found)
    assert len({k.partition(".")[0] for k in found}) > 1 or word == "Modeled"
    assert found == pytest.approx(dict.fromkeys(found, found["roofline." + ("efficiency" if word == "Efficiency" else "modelled_share")]))


@pytest.mark.parametrize("sample", ON_A_GPU)
def test_rows_of_phases_add_up_to_the_modeled_part_of_the_roofline(sample: str) -> None:
    # GIVEN the outermost phases and the device work outside of all
    table = next(t for t in tables(report_of(sample, "phases")) if t.id == "phases")  # type: ignore[arg-type]
    top = [i for i, parent in enumerate(table.data["parent"]) if parent is None]
    share, time = (np.array([table.data[n][i] or 0 for i in top], np.float64) for n in ("modelled_share", "device_sum_ns"))
    # THEN their modeled parts, weighted by their device time, are that of the roofline
    assert (share * time).sum() / time.sum() == pytest.approx(report_of(sample, "roofline").facts["modelled_share"])  # type: ignore[union-attr]


@pytest.mark.parametrize("sample", ON_A_GPU)
def test_the_modeled_part_of_a_step_is_that_of_the_roofline_of_the_step(sample: str) -> None:
    # GIVEN the table of steps WHEN the roofline is asked for each of them THEN both state the same part
    table = tables(report_of(sample, "steps"))[0]  # type: ignore[arg-type]
    assert next(c.label for c in table.columns if c.name == "modelled_share") == "Modeled"
    for step, share in zip(table.data["step"], table.data["modelled_share"], strict=True):
        of_step = report_of(sample, "roofline", str(step))
        assert of_step is not None and share == pytest.approx(of_step.facts["modelled_share"]), step


def test_other_quantities_have_other_words() -> None:
    # GIVEN distributed training, where communication and copies are half of the device time
    sample = "simulated_gpu_train"
    shares = {name: report_of(sample, name).facts["modelled_share"] for name in ("overview", "roofline", "kernels", "whatif")}  # type: ignore[union-attr]
    # THEN four parts of four times differ, and only one of them is called "Modeled"
    assert len({round(v, 3) for v in shares.values() if isinstance(v, float)}) >= 3
    labels = {name: {fact.name: fact.label for fact in get(name).facts} for name in shares}
    assert {n: labels[n]["modelled_share"] for n in shares} == {
        "overview": "Own work modeled", "roofline": "Modeled", "kernels": "Kernel time modeled", "whatif": "Covered",
    }  # fmt: skip
    assert labels["kernels"]["efficiency"] == "Kernel efficiency" and labels["overview"]["efficiency_while_busy"] == "Efficiency while busy"


@pytest.mark.parametrize("sample", KINDS)
def test_a_ratio_over_a_part_of_the_time_says_over_which_part(sample: str) -> None:
    # GIVEN every row and fact with an efficiency, and the part of its time that has a limit
    for name in ("roofline", "operators", "kernels", "phases", "modules"):
        report = report_of(sample, name)
        for section in report.sections if report is not None else ():
            if isinstance(section, FactsSection):
                pairs = [("efficiency", section.values.get("efficiency"), section.values.get("modelled_share"))]
                marks = section.marks
            elif isinstance(section, TableSection) and {"efficiency", "modelled_share"} <= set(section.data):
                data = section.data
                pairs = [(str(i), *both) for i, both in enumerate(zip(data["efficiency"], data["modelled_share"], strict=True))]
                marks = section.marks.get("efficiency", {})
            else:
                continue
            # THEN where that is less than 95 %, a mark says how much it is
            for key, efficiency, share in pairs:
                if isinstance(efficiency, float) and isinstance(share, float) and share < 0.95 and efficiency <= 1.05:
                    assert marks[key].why == f"covers {100 * share:.1f} % of the time", (name, section.id, key)


def test_the_roofline_leads_with_what_is_known_where_that_is_little(tmp_path: Path) -> None:
    # GIVEN a product of 100 us with a limit, and a kernel of 300 us without a model
    t = one_step(500_000)
    call(t, "aten::mm", 10_000, 100_000, [[1024, 1024], [1024, 1024]])
    t.launch("mine", at=200, start=150_000, duration=300_000)
    roofline = read_back(t, tmp_path).analyze("roofline")
    assert isinstance(roofline, Report)
    # THEN the sentence begins with the part that has a limit, and its efficiency is no claim about the whole
    assert roofline.headline.startswith("Limits are known for **25.0\u202f%** of device time; that part runs at ")
