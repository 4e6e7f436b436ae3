"""Findings that rest on the kind of memory, and large copies that nothing hides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.metrics.rules.copies import rules_off
from tb_sol_plugin.metrics.rules.engine import combined_ns, to_report
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.query import Query
from tests.support.copy_findings import MIB, US, found, steps
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back


def loads(pageable: int, pinned: int, *, src: str = "Pageable") -> TraceBuilder:
    """Two copies to the device: `pageable` bytes in [100, 600) us of which a kernel hides [500, 600), `pinned` bytes behind it."""
    t = steps(1)
    t.launch("k", at=0, start=500 * US, duration=500 * US, stream=9)
    t.copy("HtoD", 100 * US, 500 * US, bytes=pageable, src=src, call=(90 * US, 2 * US))
    t.copy("HtoD", 700 * US, 50 * US, bytes=pinned, src="Pinned", call=(95 * US, 2 * US))
    return t


def test_loading_from_pageable_memory_is_a_finding(tmp_path: Path) -> None:
    # GIVEN 8 000 000 B of 10 000 000 from pageable memory in 500 us, over a link of 40 GB/s
    got = found(loads(8_000_000, 2_000_000), tmp_path, limits={"HtoD": 40e9})
    # THEN pinned they take 8e6 / (0.8 x 40) = 250 us, 250 us less; all exposed time, 400 us, could go; and 2 us in which the call holds
    # the host of an idle device
    loading = got["pageable_loading"]
    assert loading.saving == 402 * US and not loading.candidate and "250.0\u202fµs less" in loading.evidence
    assert "80.0\u202f% of the bytes to the device" in loading.evidence and "pin_memory=True" in loading.fix
    # AND the same copies are not told again as exposed or as holding the host
    assert set(got) == {"pageable_loading"}


def test_the_host_that_waits_for_loading_counts_too(tmp_path: Path) -> None:
    # GIVEN a copy from pageable memory [100, 150) us whose call blocks the host in [20, 160), and an idle device around it
    t = steps(1)
    t.launch("a", at=0, start=0, duration=30 * US)
    t.copy("HtoD", 100 * US, 50 * US, bytes=1 << 20, src="Pageable", call=(20 * US, 140 * US))
    t.launch("b", at=170 * US, start=180 * US, duration=820 * US)
    # THEN 50 us of the copy and 30 us until the next kernel; in the 70 us before it the device has the copy and waits for something else
    assert found(t, tmp_path)["pageable_loading"].saving == 80 * US


def test_values_from_pageable_memory_are_no_data(tmp_path: Path) -> None:
    got = found(loads(4_000, 500), tmp_path)["pageable_loading"]
    assert got.title == "Small copies to the device come from pageable memory" and "device=device" in got.fix


def test_less_than_four_fifths_is_no_pageable_loading(tmp_path: Path) -> None:
    got = found(loads(7_999_999, 2_000_000), tmp_path)
    assert "pageable_loading" not in got and got["exposed_HtoD"].saving == 400 * US


def test_a_tracer_that_does_not_tell_kinds_switches_the_rules_off(tmp_path: Path) -> None:
    # GIVEN a recording of an AMD device, whose host memory is just "Host"
    t = steps(1, device="AMD Instinct MI300X")
    t.copy("HtoD", 100 * US, 500 * US, bytes=8_000_000, src="Host", call=(90 * US, 2 * US), api="hipMemcpyAsync")
    c = read_back(t, tmp_path)
    assert rules_off(c, scope(c, Query())) == (
        "AMD's tracer does not record whether memory is pinned, pageable or unified: rules that need the kind of memory are off."
    )
    assert set(found(t, tmp_path / "b")) == {"exposed_HtoD"}
    # AND for one that tells them, or that holds no copy over a link, there is nothing to say
    c = read_back(loads(8_000_000, 2_000_000), tmp_path / "c")
    assert rules_off(c, scope(c, Query())) == ""
    t = steps(1)
    t.copy("DtoD", 0, 10, bytes=4, call=(0, 1))
    c = read_back(t, tmp_path / "d")
    assert rules_off(c, scope(c, Query())) == ""


def test_copies_of_unified_memory_are_a_finding(tmp_path: Path) -> None:
    # GIVEN a copy from unified memory [100, 140) us whose call returned at 95 us WHEN the device has no other work until 150 us
    t = steps(1)
    t.launch("a", at=0, start=0, duration=80 * US)
    t.copy("HtoD", 100 * US, 40 * US, bytes=4096, src="Managed", call=(90 * US, 5 * US))
    t.launch("b", at=96 * US, start=150 * US, duration=850 * US)
    got = found(t, tmp_path / "a")
    # THEN the copy, the 5 us in which it blocks the host, and as much of the wait after that are its own: 45 us
    assert list(got) == ["managed_copies"] and got["managed_copies"].saving == 45 * US
    t = steps(1)
    t.copy("HtoD", 100 * US, 40 * US, bytes=4096, src="Pinned", call=(90 * US, 5 * US))
    assert "managed_copies" not in found(t, tmp_path / "b")


def exposed(direction: str, length: int, hidden: int) -> TraceBuilder:
    """One pinned copy of `length` ns from 500 us on, the first `hidden` ns of it behind a kernel."""
    t = steps(1)
    t.launch("k", at=0, start=400 * US, duration=100 * US + hidden, stream=9)
    src, dst = {"HtoD": ("Pinned", "Device"), "DtoH": ("Device", "Pinned")}.get(direction, ("Device", "Device"))
    t.copy(direction, 500 * US, length, bytes=2 << 20, src=src, dst=dst, call=(10 * US, 2 * US))
    return t


@pytest.mark.parametrize("direction", ["HtoD", "DtoH", "PtoP"])
def test_large_copies_that_nothing_hides_are_a_finding(direction: str, tmp_path: Path) -> None:
    # GIVEN a copy of 100 001 ns of which 50 001 are exposed: more than half THEN these are the saving
    got = found(exposed(direction, 100_001, 50_000), tmp_path)[f"exposed_{direction}"]
    assert got.saving == 50_001 and got.direction == direction and not got.host and "copy_stream" in got.fix


@pytest.mark.parametrize(("direction", "length", "hidden"), [("HtoD", 100_000, 0), ("HtoD", 200_000, 100_000), ("DtoD", 200_000, 0)])
def test_short_half_hidden_and_device_internal_copies_are_no_finding(direction: str, length: int, hidden: int, tmp_path: Path) -> None:
    assert not [k for k in found(exposed(direction, length, hidden), tmp_path) if k.startswith("exposed")]


def test_what_communication_hides_is_no_saving(tmp_path: Path) -> None:
    # GIVEN a copy of 200 us, of which 80 us run beside a collective THEN hiding it saves the other 120 us
    t = exposed("HtoD", 200_000, 0)
    t.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at=1_000, start=500 * US, duration=80 * US, stream=20)
    assert found(t, tmp_path)["exposed_HtoD"].saving == 120 * US


def test_the_share_of_the_links_bandwidth_is_reported_and_at_most_one(tmp_path: Path) -> None:
    t = exposed("HtoD", 200_000, 0)  # 2 MiB in 200 us: 10.49 GB/s
    assert "41.9\u202f% of link" in found(t, tmp_path / "a", limits={"HtoD": 25e9})["exposed_HtoD"].evidence
    assert "link assumption is wrong" in found(t, tmp_path / "b", limits={"HtoD": 9e9})["exposed_HtoD"].evidence


def test_a_copy_stands_in_one_finding(tmp_path: Path) -> None:
    # GIVEN round trips of 150 us each way: two uploads and two reads, all exposed, in pinned memory
    t = steps(1, 10_000 * US)
    for i, direction in enumerate(("DtoH", "HtoD", "DtoH", "HtoD")):
        src, dst = ("Device", "Pinned") if direction == "DtoH" else ("Pinned", "Device")
        t.copy(direction, (1_000 + 200 * i) * US, 150 * US, bytes=4 << 20, src=src, dst=dst, call=(100 * US, US))
    got = found(t, tmp_path)
    # THEN of the rules that fit these 600 us the most specific one has them
    assert {k: f.saving for k, f in got.items()} == {"ping_pong": 600 * US}
    assert combined_ns(list(got.values())) == 600 * US and combined_ns([]) == 0
    # AND a card links to the copies behind it
    card = to_report(got["ping_pong"], pages=("memcpy_findings",), step_ns=10_000 * US, keep={"step": "1"})
    assert card.link is not None and (card.link.analysis, card.link.query) == ("memcpy_findings", {"step": "1", "rule": "ping_pong"})
    assert card.share == pytest.approx(0.06) and card.candidate and card.rule == "copies_ping_pong"


# -- Data that is not loaded in every step -------------------------------------------------------------------------------


def upload(t: TraceBuilder, at: int, size: int, *, src: str = "Pageable", operator: str = "aten::to") -> None:
    """A copy to the device of 100 us that nothing hides, by an operator; 150 us after `at` the device is free."""
    t.op(operator, at, 120 * US)
    t.op("aten::copy_", at + US, 118 * US)
    t.copy("HtoD", at + 10 * US, 100 * US, bytes=size, src=src, call=(at + 5 * US, 110 * US))


def model(t: TraceBuilder, at: int = 0, layers: int = 6) -> int:
    """Parameters of layers that are alike go to the device one after another; returns when."""
    for i in range(layers):
        upload(t, at + 150 * US * i, 8 * MIB)
    upload(t, at + 150 * US * layers, 3 * MIB)
    return at + 150 * US * (layers + 1)


def test_parameters_that_go_to_the_device_once_are_no_loading(tmp_path: Path) -> None:
    # GIVEN a recording without steps that moves a model to the device and runs it, as `AlexNet().cuda()(x)`
    t = TraceBuilder()
    end = model(t)
    t.op("aten::conv2d", end, 500 * US)
    t.launch("k", at=end + 10 * US, start=end + 20 * US, duration=500 * US)
    # THEN the copies are told as what they are, without advice about a DataLoader or pinned memory
    got = found(t, tmp_path)
    assert got["pageable_loading"].title == "Data goes to the device once, from pageable memory"
    assert all("pin_memory" not in f.fix and "DataLoader" not in f.fix and "next_batch" not in f.fix for f in got.values())


def test_batches_of_a_recording_without_steps_are_loading(tmp_path: Path) -> None:
    # GIVEN the same model, and then four batches of 20 MiB from pageable memory, each with a kernel after it
    t = TraceBuilder()
    end = model(t)
    for i in range(4):
        at = end + 1_000 * US * i
        upload(t, at, 20 * MIB)
        t.launch("k", at=at + 200 * US, start=at + 210 * US, duration=500 * US)
    got = found(t, tmp_path)["pageable_loading"]
    # THEN these four are the finding, and pinned memory the advice
    assert len(got.rows) == 4 and "pin_memory=True" in got.fix and got.title == "Data is loaded from pageable memory"


def test_parameters_of_the_first_step_are_not_told_as_its_batches(tmp_path: Path) -> None:
    # GIVEN six steps WHEN the first one also moves the model
    def training(batches: bool) -> TraceBuilder:
        t = steps(6, 3_000 * US)
        model(t)
        for n in range(6):
            z = n * 3_000 * US + 1_200 * US
            if batches:
                upload(t, z, (10 + n % 3) * MIB)
            t.launch("k", at=z + 200 * US, start=z + 210 * US, duration=1_000 * US)
        return t

    # THEN batches of several sizes are the finding, but for that of the first step, which no size tells from the model
    got = found(training(batches=True), tmp_path / "a")
    assert len(got["pageable_loading"].rows) == 5 and "pin_memory=True" in got["pageable_loading"].fix
    assert all("pin_memory" not in f.fix for name, f in got.items() if name != "pageable_loading")
    # AND without them the model alone is no loading
    got = found(training(batches=False), tmp_path / "b")
    assert len(got["pageable_loading"].rows) == 7 and "pin_memory" not in got["pageable_loading"].fix


def test_pinned_parameters_are_not_the_next_batch(tmp_path: Path) -> None:
    t = TraceBuilder()
    for i in range(3):
        upload(t, 150 * US * i, (3 + i) * MIB, src="Pinned")
    t.launch("k", at=500 * US, start=510 * US, duration=500 * US)
    got = found(t, tmp_path, thresholds="least_share=0,long_ns=1000")
    assert set(got) >= {"exposed_HtoD"} and all("next_batch" not in f.fix and "pin_memory" not in f.fix for f in got.values())
