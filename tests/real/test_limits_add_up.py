"""Every page says the same: over any page's rows, limits and modeled time add up to the roofline's totals, device time to all of it."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Report
from tests.support.captures import answered, capture
from tests.support.recordings import SAMPLES, TRACES, over, path_of

STEPPED = [name for name in SAMPLES if "capture_traces" not in name]
"""Without recordings of graph captures, which have no steps and no work that ran."""


def asked(c: Capture, name: str, **query: str) -> Report | None:
    answer = answered(c, name, **query)
    return answer if isinstance(answer, Report) else None


def total(table: pd.DataFrame, column: str) -> float:
    return float(np.nansum(pd.to_numeric(table[column]).to_numpy(dtype=np.float64)))


def near(got: float, want: float, rows: int) -> bool:
    """Equal up to the rounding of each row to whole ns (or bytes, or FLOP), and of floats of 16 digits."""
    return math.isclose(got, want, abs_tol=rows + 1.0, rel_tol=1e-9)


def check(c: Capture, step: str = "") -> None:
    roofline = asked(c, "roofline", step=step)
    if roofline is None:
        return
    want = {name: float(roofline.facts[name] or 0) for name in ("sol_ns", "measured_ns")}  # type: ignore[arg-type]
    pages: dict[str, pd.DataFrame] = {}
    for by in ("name", "name_shape"):
        answer = asked(c, "operators", step=step, group_by=by)
        if answer is not None:
            pages[f"operators by {by}"] = answer.table("operators")
            assert near(float(answer.facts["sol_ns"] or 0), want["sol_ns"], 1)  # type: ignore[arg-type]
    for direction in ("both", "forward"):
        answer = asked(c, "modules", step=step, direction=direction)
        if answer is not None:
            table = answer.table("modules")
            pages[f"modules, {direction}"] = table[table["parent"].isna()]
    answer = asked(c, "phases", step=step)
    if answer is not None:
        table = answer.table("phases")
        pages["phases"] = table[table["parent"].isna()]
        if any(s.id == "once" for s in answer.sections):
            pages["phases, once"] = answer.table("once")
    for page, table in pages.items():
        # GIVEN the outermost rows of a page THEN limits and modeled time are those of the roofline
        for column, value in want.items():
            assert near(total(table, column), value, len(table)), (page, column, total(table, column), value)
        # AND time above the limit is modeled time less the limit, in every row that has both
        both = table[pd.to_numeric(table["efficiency"]).notna()]
        above = pd.to_numeric(both["wasted_ns"]) - pd.to_numeric(both["measured_ns"]) + pd.to_numeric(both["sol_ns"])
        assert above.abs().max() <= 2 or both.empty, page
    if not len(c.device):
        return
    # AND device time over all rows is the device time of the roofline
    whole = float(roofline.facts["device_ns"] or 0)  # type: ignore[arg-type]
    if not step:
        for page, column in (("operators by name", "device_self_ns"), ("modules, both", "time_ns"), ("phases", "device_sum_ns")):
            if page in pages:
                assert total(pages[page], column) == whole, (page, column)
    # AND kernels hold their part of it: the rest is copies and sets of memory
    answer = asked(c, "kernels", step=step)
    if answer is not None:
        table = answer.table("kernels")
        assert total(table, "sol_ns") <= want["sol_ns"] + len(table) + 1
        only = [asked(c, "kernels", step=step, group_by=by) for by in ("name_op", "properties")]
        for other in only:
            assert other is not None
            split = other.table("kernels")
            assert near(total(split, "sol_ns"), total(table, "sol_ns"), len(split) + len(table))


@over(TRACES, SAMPLES)
def test_all_pages_of_a_recording_have_the_limits_of_its_roofline(name: str) -> None:
    check(capture(path_of(name)))


@over([t for t in TRACES if "resnet50" in t or "ns_resolution" in t], STEPPED)
def test_all_pages_of_one_step_have_the_limits_of_its_roofline(name: str) -> None:
    c = capture(path_of(name))
    check(c, step=str(int(c.steps["number"].iloc[-1])))


@over([s for s in STEPPED if "simulated" in s and "simulated_ranks" not in s])  # those have no sizes of operators
def test_steps_and_overview_agree(name: str) -> None:
    # GIVEN the average over complete steps WHEN the overview and the steps page state it THEN limit, ratio and MFU are equal
    c = capture(path_of(name))
    steps, overview, whatif = (asked(c, n) for n in ("steps", "overview", "whatif"))
    assert steps is not None and overview is not None and whatif is not None
    devices = waterfall(c, scope(c, Query()))
    assert steps.facts["sol_ns"] == pytest.approx(overview.facts["sol_ns"], abs=1)
    assert whatif.facts["sol_ns"] == pytest.approx(overview.facts["sol_ns"] * devices.parallel, abs=2)  # sums over the devices
    assert steps.facts["sol_ratio"] == pytest.approx(overview.facts["speed_of_light"])
    assert steps.facts["mfu"] == pytest.approx(overview.facts["mfu"])
