"""Pages of a Proton profile: efficiencies as its own viewer defines them, scopes, kernels, words where events are needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FactsSection, Report, UnavailableReport
from tests.support.captures import report
from tests.support.proton_profile import H100, kernel, root, scope, serving, write


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return ingest.read(str(write(tmp_path / "decode.hatchet", serving())))


def read(path: Path, *children: dict, devices: object = None) -> Capture:  # type: ignore[type-arg]
    tree = root(*children)
    return ingest.read(str(write(path / "p.hatchet", tree) if devices is None else write(path / "p.hatchet", tree, devices)))  # type: ignore[arg-type]


def test_efficiency_is_the_utilization_of_its_viewer(tmp_path: Path) -> None:
    # GIVEN the two kernels of 204.8 µs in its viewer's own example, and the peaks that it takes for their devices:
    #   arch 89: 330.3e12 FLOP/s at 8 bits, 2 x 384 bit x 10.501 GHz / 8 = 1008.096 GB/s
    #   arch 90: 132 / 114 x 1980 / 1755 x 1513e12 = 1976.5e12 FLOP/s, 2 x 6144 bit x 2.619 GHz / 8 = 4022.784 GB/s
    ada = {"arch": "89", "bus_width": 384, "clock_rate": 2_625_000, "memory_clock_rate": 10_501_000, "num_sms": 128}
    hopper = {**H100, "bus_width": 6144}
    for device, figures, flop, size, peak, rate, said in (
        ("0", ada, 1e10, 1e7, 330.3e12, 1008.096e9, 0.147830),
        ("1", hopper, 1e11, 1e8, 132 / 114 * 1980 / 1755 * 1513e12, 4022.784e9, 0.247044),
    ):
        c = read(tmp_path, kernel("foo", 204_800, 1, device=device, flops8=flop, bytes=size), devices={"CUDA": {device: figures}})
        spec = DeviceSpec(key="x", name="x", vendor="nvidia", matrix={"fp8": peak}, memory_bandwidth=rate)
        (row,) = work(c, spec).ops.to_dict("records")
        # WHEN limit over time is taken THEN it is max(FLOP / peak, bytes / rate) / time: 14.78 % and 24.70 %, as the viewer says
        assert row["sol_ns"] / row["measured_ns"] == pytest.approx(max(flop / peak, size / rate) / 204.8e-6)
        assert row["sol_ns"] / row["measured_ns"] == pytest.approx(said, abs=1e-5)


def test_efficiencies_match_those_computed_by_hand(tmp_path: Path) -> None:
    # GIVEN an H100 SXM (989.4 TFLOP/s in 16 bit, 3.352 TB/s) and kernels of 1 ms over 10 launches
    compute = kernel("dot", 1_000_000, 10, flops16=494.7e9, bytes=1e6)  # 0.5 ms of arithmetic
    memory = kernel("add", 1_000_000, 10, flops16=1e6, bytes=2.6816e9)  # 0.8 ms of traffic
    c = read(tmp_path, scope("both", [compute, memory]), kernel("silent", 500_000, 1))
    # WHEN the roofline is asked THEN 50 % and 80 %, together 1.3 ms over 2 ms, and the silent one has time and no limit
    rows = report(c, "roofline", by="op", device_limits="H100_SXM").table("ops").set_index("name")
    assert rows.loc["dot", "efficiency"] == pytest.approx(0.5, abs=1e-3) and rows.loc["dot", "bound"] == "compute"
    assert rows.loc["add", "efficiency"] == pytest.approx(0.8, abs=2e-3) and rows.loc["add", "bound"] == "memory"
    assert rows.loc["silent", "measured_ns"] == 500_000 and rows.loc["silent", "efficiency"] != rows.loc["silent", "efficiency"]
    assert rows["calls"].to_dict() == {"dot": 10, "add": 10, "silent": 1}
    scopes = report(c, "phases", device_limits="H100_SXM").table("phases").set_index("id")
    assert scopes.loc["both", "efficiency"] == pytest.approx(0.65, abs=2e-3) and scopes.loc["both", "device_sum_ns"] == 2_000_000


def test_scopes_hold_what_is_inside(capture: Capture) -> None:
    # GIVEN the profile of `serving` WHEN its phases are asked for THEN sums over each subtree, copies in the time, launches apart
    t = report(capture, "phases").table("phases").set_index("id")
    assert t["ops"].to_dict() == {
        "forward": 128, "forward/attention": 32, "forward/mlp": 96, "load": 0, "(outside every scope)": 1,
    }  # fmt: skip
    assert t["device_sum_ns"].to_dict() == {
        "forward": 13_900_000, "forward/attention": 4_100_000, "forward/mlp": 9_800_000, "load": 3_640_000, "(outside every scope)": 4_064,
    }  # fmt: skip
    assert t.loc["forward", "flop"] == 8e12 and t.loc["load", "host_ns"] == 9_000_000
    assert t.loc["forward", "host_ns"] is None or t.loc["forward", "host_ns"] != t.loc["forward", "host_ns"], "not taken is not 0"


def test_scopes_of_one_name_stay_two(tmp_path: Path) -> None:
    # GIVEN two scopes that read the same: `a/b`, and b inside a WHEN shown THEN each has a key of its own
    c = read(tmp_path, scope("a", [scope("b", [kernel("k", 1)])]), scope("a/b", [kernel("k", 2)]))
    t = report(c, "phases").table("phases")
    assert t["id"].tolist() == ["a", "a/b", "a/b #2"] and t["device_sum_ns"].tolist() == [1, 1, 2]


def test_kernels_by_name_and_by_scope(tmp_path: Path) -> None:
    # GIVEN one kernel in two scopes WHEN grouped by name THEN one row; by operator THEN one per scope
    c = read(tmp_path, scope("a", [kernel("k", 10, 2)]), scope("b", [kernel("k", 30, 3)]), kernel("j", 5))
    t = report(c, "kernels").table("kernels")
    assert t[["name", "calls", "total_ns", "mean_ns"]].values.tolist() == [["k", 5, 40, 8], ["j", 1, 5, 5]]
    t = report(c, "kernels", group_by="name_op").table("kernels")
    assert t[["name", "operator", "calls", "total_ns"]].values.tolist() == [
        ["k", "b", 3, 30], ["k", "a", 2, 10], ["j", "(outside every scope)", 1, 5],
    ]  # fmt: skip


def test_the_overview_says_what_a_profile_is(capture: Capture) -> None:
    answer = report(capture, "overview")
    assert "Kernels take **13.80 ms** in all" in answer.headline.replace("\u202f", " ")
    assert answer.notices[0].text.startswith("Proton profile: 129 launches and 76 copies summed by kernel and scope, no single events.")
    facts = {k: v for s in answer.sections if isinstance(s, FactsSection) for k, v in s.values.items()}
    assert facts["kernel_sum_ns"] == 13_804_064 and facts["copies_sum_ns"] == 3_740_000 and facts["matrix_flop"] == 8_000_000_000_000


def test_without_stated_work_there_is_time_and_no_limit(tmp_path: Path) -> None:
    # GIVEN a profile without a launch hook WHEN opened THEN times are shown, limits are not, and why is told
    answer = report(read(tmp_path, kernel("k", 1_000, 2)), "overview")
    assert "no launch hook stated any work" in answer.headline and any("No launch hook" in n.text for n in answer.notices)
    facts = {k: v for s in answer.sections if isinstance(s, FactsSection) for k, v in s.values.items()}
    assert facts["efficiency_while_busy"] is None and facts["matrix_flop"] is None and facts["kernel_sum_ns"] == 1_000


@pytest.mark.parametrize("name", ["findings", "gpu_breakdown", "operators", "modules", "steps", "iterations", "links", "memcpy_copies"])
def test_pages_of_events_say_that_a_profile_has_none(capture: Capture, name: str) -> None:
    answer = capture.analyze(name)
    assert isinstance(answer, UnavailableReport) and "Proton profile" in answer.because and answer.record_it_with


def test_copies_open_with_their_times(capture: Capture) -> None:
    # GIVEN copies of a profile WHEN the page of copies is asked for THEN counts, bytes and device time by direction
    t = report(capture, "memcpy").table("counted").set_index("direction")
    assert t["count"].to_dict() == {"HtoD": 20, "DtoD": 32, "Memset": 8, "DtoH": 16}
    assert t["time_ns"].to_dict() == {"HtoD": 3_500_000, "DtoD": 100_000, "Memset": 20_000, "DtoH": 120_000}
    assert t.loc["HtoD", "bytes"] == 67_108_864 and t.loc["HtoD", "without_bytes"] == 4


def test_an_empty_profile_opens(tmp_path: Path) -> None:
    # GIVEN a profile without any kernel WHEN every page is asked for THEN each answers, and none with a number
    c = read(tmp_path)
    assert isinstance(c.analyze("overview"), Report) and "no device time" in report(c, "overview").headline
    assert isinstance(c.analyze("kernels"), UnavailableReport) and isinstance(c.analyze("phases"), UnavailableReport)
