"""SOL logs whose sampled steps are slow: no time of a sampled step is set against a step that was not."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import tb_sol_plugin as sol
from tb_sol_plugin.metrics.rules.time import time_findings
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import FactsSection, FindingsSection
from tests.support.captures import report
from tests.support.sol_builder import CUDA, SolBuilder

CPU = {"key": "fast", "name": "A CPU", "vendor": "cpu", "fp32_matrix_tflops": 1e6, "fp32_vector_tflops": 1e6, "mem_bw_gb_per_s": 1e7}
BUSY = ("gpu_busy", "host_busy", "loading_share", "operator_share")
PAGES = ("overview", "findings", "phases", "modules", "iterations", "roofline", "steps", "whatif")


def logged(folder: Path, usual: list[int], sampled: list[list[int]], *, slower: float = 1.0, device: bool = False) -> Capture:
    """Returns a log: iterations of `usual` ns that were not sampled, and sampled ones whose operators take some ns each.

    slower: a sampled iteration over the sum of its operators; below 1 where several threads run them at once.
    """
    header = {"device": CUDA, "time_source": "event"} if device else {}
    b = SolBuilder(**header)  # type: ignore[arg-type]
    forward, root = b.phase("forward"), b.module("net", "Net")
    only = b.phase("evaluation")
    layer = b.module("net.fc", "Linear", root)
    kinds = [
        b.sig("aten::mm", [[64, 64], [64, 64]], [[64, 64]], flop=524_288, bytes=49_152),
        b.sig("aten::add", [[64, 64]], [[64, 64]], flop_vector=4_096, bytes=49_152, work="elementwise"),
        b.sig("aten::native_layer_norm", [[64, 64]], [[64, 64]], flop_vector=4_096, bytes=32_768, work="norm"),
        b.sig("my::op", [[64, 64]], [[64, 64]], flop=None, bytes=None, work="other", reason="no cost model"),
        b.sig("c10d::allreduce_", [[64]], [[64]], flop=None, bytes=None, work="other"),
    ]
    at = 0
    for number, times in enumerate([*sampled, *usual]):
        rows = None
        duration = times if isinstance(times, int) else round(sum(times) * slower)
        if isinstance(times, list):
            rows = [
                b.row(kinds[i % 5], module=layer, phase=forward, time_ns=None if device else ns, flags=2 * (i == 7))
                for i, ns in enumerate(times)
            ]
        half = duration // 2
        phases = [b.time(forward, at, half, half if device else None)]
        if rows is not None:
            phases.append(b.time(only, at + half, half, half if device else None))
        b.iteration(number, at, duration, rows=rows, phases=phases, device_ns=duration if device else None)
        at += duration
    (folder / "sol_devices.json").write_text(json.dumps([CPU]))
    return sol.open_capture(str(b.write(folder / b.name)))


def numbers(value: object, key: str = "") -> Iterator[tuple[str, float]]:
    """Yields all numbers of a report with the key that they stand under, those of a column with its name."""
    if isinstance(value, (int, float)):
        yield key, value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from numbers(one, str(name))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from numbers(one, key)


TIMES = st.lists(st.lists(st.integers(1_000, 10_000_000), min_size=1, max_size=12), min_size=1, max_size=4)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1_000, 5_000_000), max_size=6), TIMES, st.floats(0.3, 20), st.booleans())
def test_no_saving_exceeds_its_step_and_no_share_all_of_it(usual: list[int], sampled: list[list[int]], slower: float, device: bool) -> None:
    # GIVEN sampled steps of any length, whose operators run one after another or at once, between steps of any other length
    with tempfile.TemporaryDirectory() as folder:
        c = logged(Path(folder), usual, sampled, slower=slower, device=device)
        part = scope(c, Query())
        fall = waterfall(c, part)
        found = time_findings(c, part, fall)
        pages = {name: msgspec.to_builtins(report(c, name)) for name in PAGES if name != "findings" or fall.work.timed}
    # THEN the parts of the step add up to it, none is below zero
    assert sum(fall.measured_parts.values()) == fall.total_ns or not fall.work.timed
    assert min(fall.measured_parts.values()) >= 0 and fall.busy_ns <= fall.total_ns
    # AND savings are within the step, alone and together
    step = fall.total_ns / fall.steps
    assert all(f.saving <= step + 1 for f in found) and sum(f.saving for f in found) <= step + len(found)
    for name, page in pages.items():
        shares = [(key, v) for key, v in numbers(page) if "share" in key or key in BUSY]
        assert all(v <= 1.001 for _, v in shares), (name, shares)
        words = page["headline"] + " ".join(n["text"] for n in page.get("notices", []))
        assert not re.search(r"\b(?!100\b)[1-9]\d{2,} % of the step", words.replace("**", "").replace(" ", " ")), words


def test_times_of_slow_sampled_steps_are_scaled_and_marked(tmp_path: Path) -> None:
    # GIVEN 4 ms of a product and 1 ms of an addition in a sampled step of 10 ms; the others take 4 ms
    c = logged(tmp_path, [4_000_000] * 3, [[4_000_000, 1_000_000]] * 3, slower=2.0)
    page = report(c, "overview")
    parts = page.table("parts").set_index("part")["time_ns"]
    # THEN the step takes 4 ms: 1.6 ms of the product, 0.4 ms of the addition, 2 ms of the rest
    assert parts["Step time, measured"] == 4_000_000 and parts["Outside operators"] == 2_000_000
    fall = waterfall(c, scope(c, Query()))
    assert fall.scaled and {k: v for k, v in fall.kind_ns.items() if v} == {"gemm": 2 * 1_600_000, "elementwise": 2 * 400_000}
    # AND what follows from them says so, while the operators themselves keep the times that they were measured with
    answer = page.section("answer")
    assert isinstance(answer, FactsSection) and answer.values["gpu_busy"] == 0.5
    assert "scaled from sampled steps" in answer.marks["gpu_busy"].why
    levers = page.section("levers")
    assert isinstance(levers, FindingsSection) and all("scaled from sampled steps" in f.evidence for f in levers.findings)
    assert page.table("operators").set_index("name")["measured_ns"].to_dict() == {"aten::mm": 8_000_000, "aten::add": 2_000_000}
    assert report(c, "whatif").headline.startswith("The modeled work of a sampled step takes 5")


def test_a_phase_that_only_sampled_steps_have_takes_its_part_of_the_others(tmp_path: Path) -> None:
    # GIVEN a GPU whose sampled steps take 20 ms, half of it in a phase that the others, of 4 ms, do not have
    c = logged(tmp_path, [4_000_000] * 3, [[10_000_000]] * 3, slower=2.0, device=True)
    phases = report(c, "phases").table("phases").set_index("name")["device_ns"]
    # THEN it takes half of 4 ms in each of two steps
    assert phases["evaluation"] == 4_000_000 and phases["forward"] == 4_000_000 and phases["ProfilerStep"] == 8_000_000
