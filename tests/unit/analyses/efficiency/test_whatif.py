"""What if: limits of the same work elsewhere or in another type, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.devices.catalog import table
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.other_device import BYTES, STANDS_FOR, demand, eligible, limits
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import fields
from tb_sol_plugin.model.report import FactsSection, FigureSection, Report, TableSection, UnavailableReport, encode
from tests.support.trace_builder import TraceBuilder

BF16, FP32 = "c10::BFloat16", "float"
N = 4096
FLOP = 2 * N**3


def product(t: TraceBuilder, at: int, start: int, time: int, dtype: str, kernel: str = "gemm") -> None:
    t.op("aten::mm", at, 900, shapes=[[N, N], [N, N]], types=[dtype, dtype])
    t.launch(kernel, at=at + 100, start=start, duration=time)


def small(t: TraceBuilder, at: int, start: int, time: int) -> None:
    """A product of 16384 x 16 by 16 x 64 in BF16: 2 x 16384 x 16 x 64 FLOP over (16384 x 16 + 16 x 64 + 16384 x 64) x 2 B: memory-bound."""
    t.op("aten::mm", at, 900, shapes=[[16384, 16], [16, 64]], types=[BF16, BF16])
    t.launch("gemm_small", at=at + 100, start=start, duration=time)


@pytest.fixture
def run(tmp_path: Path) -> Capture:
    """Two equal steps. forward: a BF16 product of 200 us; backward: an FP32 product of 3 000 us; then 100 us that no model knows."""
    t = TraceBuilder()
    for step in range(2):
        zero = step * 100_000
        t.step(step + 1, zero, 50_000)
        t.annotation("forward", zero + 100, 5_000)
        product(t, zero + 200, 10_000_000 * (step + 1), 200_000, BF16)
        t.annotation("backward", zero + 10_000, 20_000)
        product(t, zero + 10_100, 10_000_000 * (step + 1) + 300_000, 3_000_000, FP32, "ampere_sgemm_128x64_nn")
        t.op("my::op", zero + 20_000, 900)
        t.launch("odd", at=zero + 20_100, start=10_000_000 * (step + 1) + 3_400_000, duration=100_000)
    return read(str(t.write(tmp_path / "t.pt.trace.json")))


def asked(c: Capture, **query: str) -> Report:
    answer = c.analyze("whatif", **query)
    assert isinstance(answer, Report), answer
    return answer


def phases(report: Report) -> pd.DataFrame:
    return report.table("phases").set_index("name")


def test_the_same_device_in_the_recorded_types(run: Capture) -> None:
    # GIVEN the recorded device asked about THEN here and there are one: F / 989.4 TFLOP/s and F / 66.9 TFLOP/s, per step
    report = asked(run, device="H100_SXM")
    rows = phases(report)
    want = {"forward": round(FLOP / 989.4e12 * 1e9), "backward": round(FLOP / 66.9e12 * 1e9)}
    assert rows["sol_ns"].to_dict() == want == rows["sol_then_ns"].to_dict()
    assert rows["measured_ns"].to_dict() == {"backward": 3_000_000, "forward": 200_000} and rows["calls"].tolist() == [1, 1]
    assert report.facts["ratio"] == 1.0 and report.facts["sol_ns"] == pytest.approx(sum(want.values()), abs=1)
    # AND what no model covers is in no row, and said: 100 of 3 300 us a step
    assert report.facts["modelled_share"] == pytest.approx(3_200 / 3_300) and report.facts["uncovered_ns"] == 100_000
    assert any("not a forecast" in n.text for n in report.notices)


def test_nothing_asked_compares_with_the_lowest_limit_of_another_device(run: Capture) -> None:
    report = asked(run)
    devices = report.table("devices")
    others = devices[(devices["device"] != "H100_SXM") & devices["sol_ns"].notna()]
    best = others.sort_values("sol_ns").iloc[0]
    # THEN the table of devices comes first, names what is compared, and the headline has both limits
    assert report.sections[0].id == "devices" and best["note"].startswith("compared") and devices["note"].str.contains("compared").sum() == 1
    assert report.facts["device_then"] == best["name"] != report.facts["device"] and report.facts["sol_then_ns"] == best["sol_ns"]
    assert report.facts["ratio"] == pytest.approx(report.facts["sol_ns"] / best["sol_ns"], rel=1e-6) and best["name"] in report.headline
    # AND another type alone stays on the recorded device
    assert asked(run, dtype="bf16").facts["device_then"] == report.facts["device"]


def test_a_recording_that_names_no_device_opens_on_the_lowest_limit_of_all(tmp_path: Path) -> None:
    # GIVEN a product of 3 ms on a device that the recording does not name, and the same product on the host alone
    t = TraceBuilder(device="")
    product(t, 0, 100_000, 3_000_000, FP32)
    unnamed = read(str(t.write(tmp_path / "unnamed.pt.trace.json")))
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 3_000_000, shapes=[[N, N], [N, N]], types=[FP32, FP32])
    host = read(str(t.write(tmp_path / "host.pt.trace.json")))
    for capture, where in ((unnamed, "on a device whose limits are not known"), (host, "on the host")):
        for dtype in ("recorded", "bf16"):
            report = asked(capture, dtype=dtype)
            devices = report.table("devices")
            best = devices.iloc[0]
            # THEN the page opens on the first of the devices, in the type asked for, and says that and why there is no limit here
            assert report.sections[0].id == "devices" and best["note"].startswith("compared")
            assert report.facts["device"] is None and report.facts["device_then"] == best["name"]
            assert report.facts["sol_then_ns"] == best["sol_ns"] == devices["sol_ns"].min() and report.facts["sol_ns"] is None
            assert where in report.headline and f"on {best['name']}" in report.headline
            assert any("there is no limit here, only those of other devices" in n.text for n in report.notices)
            assert phases(report)["sol_then_ns"].notna().all() and phases(report)["sol_ns"].isna().all()


@pytest.mark.parametrize("device", ["", "NVIDIA H100 80GB HBM3"])
def test_time_far_above_the_limit_is_not_put_down_to_peaks(tmp_path: Path, device: str) -> None:
    for factor in (99, 101):
        t = TraceBuilder(device=device)
        product(t, 0, 100_000, round(FLOP / table()["H100_SXM"].matrix["bf16"] * 1e9) * factor, BF16)
        report = asked(read(str(t.write(tmp_path / f"{factor}.pt.trace.json"))), device="A100_SXM_80" if device else "H100_SXM")
        # THEN it is judged by the limit here, and by that of the other device only where there is none here
        assert any("times the limit on H100 SXM. Peaks do not explain" in n.text for n in report.notices) is (factor > 100), factor
    # GIVEN a host without limits THEN that it is slower than a GPU is no oddity
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 10**9, shapes=[[N, N], [N, N]], types=[BF16, BF16])
    assert not any("Peaks" in n.text for n in asked(read(str(t.write(tmp_path / "host.pt.trace.json"))), device="H100_SXM").notices)


def test_limits_of_another_device_are_worked_out(run: Capture) -> None:
    # GIVEN an A100: 311.9 TFLOP/s bf16, 19.5 TFLOP/s fp32
    report = asked(run, device="A100_SXM_80")
    a100 = table()["A100_SXM_80"]
    rows = phases(report)
    assert rows.loc["forward", "sol_then_ns"] == round(FLOP / a100.matrix["bf16"] * 1e9)
    assert rows.loc["backward", "sol_then_ns"] == round(FLOP / a100.vector["fp32"] * 1e9)
    assert rows.loc["forward", "ratio"] == pytest.approx(a100.matrix["bf16"] / 989.4e12, rel=1e-4)
    assert rows.loc["forward", "headroom"] == pytest.approx(200_000 / (FLOP / a100.matrix["bf16"] * 1e9), rel=1e-4)
    assert report.facts["device_then"] == a100.name and "A100" in report.headline


def test_fp32_products_in_tf32_and_bf16(run: Capture) -> None:
    # GIVEN TF32: only FP32 work changes, to 494.7 TFLOP/s; its bytes stay
    rows = phases(asked(run, dtype="tf32"))
    assert rows.loc["backward", "sol_then_ns"] == round(FLOP / 494.7e12 * 1e9)
    assert rows.loc["forward", "sol_then_ns"] == rows.loc["forward", "sol_ns"]
    # AND in BF16 it meets the forward product's limit
    report = asked(run, dtype="bf16")
    assert phases(report).loc["backward", "sol_then_ns"] == round(FLOP / 989.4e12 * 1e9)
    assert report.facts["changed_share"] == pytest.approx(3_000 / 3_200)


def test_a_device_without_the_type_says_so_in_place_of_a_number(run: Capture) -> None:
    # GIVEN FP8 on an A100, which has no FP8 units
    report = asked(run, device="A100_SXM_80", dtype="fp8")
    rows = phases(report)
    assert rows["sol_then_ns"].isna().all() and rows["ratio"].isna().all() and set(rows["lacking"]) == {"fp8"}
    assert report.facts["sol_then_ns"] is None and "has no rate for fp8" in report.headline
    devices = report.table("devices").set_index("device")
    assert pd.isna(devices.loc["A100_SXM_80", "sol_ns"]) and "no rate for fp8" in devices.loc["A100_SXM_80", "note"]
    # AND BF16 work on a V100, which has no BF16 units
    rows = phases(asked(run, device="V100_SXM2"))
    assert pd.isna(rows.loc["forward", "sol_then_ns"]) and rows.loc["forward", "lacking"] == "bf16"
    assert rows.loc["backward", "sol_then_ns"] == round(FLOP / table()["V100_SXM2_32"].vector["fp32"] * 1e9)


def test_bytes_of_a_memory_bound_product_scale_with_the_element(tmp_path: Path) -> None:
    # GIVEN a memory-bound BF16 product; its bytes: (16384 x 16 + 16 x 64 + 16384 x 64) x 2
    t = TraceBuilder()
    small(t, 0, 10_000, 50_000)
    c = read(str(t.write(tmp_path / "t.pt.trace.json")))
    data = (16384 * 16 + 16 * 64 + 16384 * 64) * 2
    report = asked(c, dtype="fp8")
    row = phases(report).iloc[0]
    # THEN FP8 halves them, FP32 doubles them, and both stay bound by memory
    assert (row["sol_ns"], row["sol_then_ns"]) == (round(data / 3350e9 * 1e9), round(data / 2 / 3350e9 * 1e9))
    assert (row["bound"], row["bound_then"]) == ("memory", "memory")
    assert phases(asked(c, dtype="fp32")).iloc[0]["sol_then_ns"] == round(2 * data / 3350e9 * 1e9)
    # AND without phases the rows are passes
    assert phases(report).index.tolist() == ["Forward"]


def test_only_floating_matrix_work_changes() -> None:
    types = pd.Categorical(["fp32", "tf32", "bf16", "fp16", "fp64", "int8", "fp8", "fp32"])
    ops = pd.DataFrame({"dtype": types, "flop": [1.0] * 7 + [0.0]})
    chosen = {d: ops["dtype"][eligible(ops, d)].tolist() for d in ("tf32", "bf16", "fp16", "fp8", "fp32")}  # type: ignore[arg-type]
    assert chosen == {
        "tf32": ["fp32"],
        "bf16": ["fp32", "tf32", "fp16"],
        "fp16": ["fp32", "tf32", "bf16"],
        "fp8": ["fp32", "tf32", "bf16", "fp16"],
        "fp32": ["tf32", "bf16", "fp16"],
    }
    assert not eligible(ops, "recorded").any()
    assert set(STANDS_FOR) <= set(BYTES) and all(name in BYTES for names in STANDS_FOR.values() for name in names)


def test_limits_as_recorded_are_those_of_the_roofline(run: Capture) -> None:
    # GIVEN the same work and device THEN this page's arithmetic gives what every other page shows
    from tb_sol_plugin.metrics.work.work import work

    spec = device_for(run)
    assert spec is not None
    done = work(run, spec)
    ops = done.ops[done.ops["modeled"].to_numpy()]
    assert np.allclose(limits(demand(ops), spec).sol_ns, ops["sol_ns"].to_numpy(dtype=float))


def test_devices_are_sorted_by_limit_and_name_the_recorded_one(run: Capture) -> None:
    report = asked(run, device="H200")
    devices = report.table("devices")
    known = devices["sol_ns"].dropna().tolist()
    assert known == sorted(known) and len(devices) >= 7 and devices["device"].is_unique
    notes = devices.set_index("device")["note"]
    assert "recorded" in notes["H100_SXM"] and "chosen" in notes["H200"]
    # AND a row leads to that device
    section = report.section("devices")
    assert isinstance(section, TableSection)
    assert {link.query["device"] for link in section.row_links.values()} == set(devices.loc[devices["sol_ns"].notna(), "device"])


def test_every_table_adds_up_to_the_same_limit(run: Capture) -> None:
    report = asked(run, device="B200", dtype="bf16")
    for name in ("phases", "kinds", "operators"):
        rows = report.table(name)
        assert rows["sol_then_ns"].sum() == pytest.approx(report.facts["sol_then_ns"], abs=len(rows))
        assert rows["measured_ns"].sum() == report.facts["measured_ns"]
    assert isinstance(report.section("bars"), FigureSection) and isinstance(report.section("facts"), FactsSection)
    assert b"NaN" not in encode(report)


def test_a_recording_of_the_host_has_a_bound_on_a_chosen_gpu(tmp_path: Path) -> None:
    # GIVEN host events only: one FP32 product of 900 ns
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 900, shapes=[[64, 32], [32, 16]], types=[FP32, FP32])
    c = read(str(t.write(tmp_path / "t.pt.trace.json")))
    bare = asked(c)
    assert bare.facts["sol_ns"] is None and "on the host" in bare.headline
    report = asked(c, device="H100_SXM")
    data = (64 * 32 + 32 * 16 + 64 * 16) * 4
    assert report.facts["measured_ns"] == 900 and report.facts["sol_then_ns"] == round(data / 3350e9 * 1e9)
    assert any("host time" in n.text for n in report.notices)


def test_odd_questions_are_refused_and_empty_recordings_say_why(run: Capture, tmp_path: Path) -> None:
    with pytest.raises(BadQuery) as error:
        run.analyze("whatif", device="no such device")
    assert error.value.field == "device"
    with pytest.raises(BadQuery) as error:
        run.analyze("whatif", dtype="fp3")
    assert error.value.field == "dtype"
    t = TraceBuilder()
    t.op("my::op", 0, 900, shapes=[[4]], types=[FP32])
    t.launch("odd", at=100, start=2_000, duration=10)
    assert isinstance(read(str(t.write(tmp_path / "t.pt.trace.json"))).analyze("whatif"), UnavailableReport)


def test_a_device_is_suggested_and_any_other_text_is_taken(run: Capture) -> None:
    from tb_sol_plugin.analyses.efficiency.whatif import WhatifQuery

    known = {f.name: f for f in fields(WhatifQuery)}
    assert known["device"].type == "text" and "H100_SXM" in known["device"].choices
    assert known["dtype"].type == "choice" and known["dtype"].choices[0] == "recorded"
    # GIVEN a clock of half the table's THEN the compute-bound limit doubles
    half = phases(asked(run, device="H100_SXM@915MHz"))
    assert half.loc["forward", "ratio"] == pytest.approx(0.5, rel=1e-3)
