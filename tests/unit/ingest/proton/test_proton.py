"""Profiles of Proton become captures: scopes as labels, kernels as rows of the ledger, copies as counted copies."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.ingest import classify
from tb_sol_plugin.ingest.proton.tables import copied
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.store import names
from tests.support.check_capture import check_capture
from tests.support.proton_profile import H100, ONE, kernel, root, scope, serving, write


def read(path: Path, *children: dict, devices: object = ONE) -> Capture:
    return ingest.read(str(write(path / "p.hatchet", root(*children), devices)))  # type: ignore[arg-type]


def issues(capture: Capture) -> dict[str, int]:
    table = capture.tables["issues"]
    return dict(zip(table["reason"].astype(str), table["count"].tolist(), strict=True))


def test_every_invariant_holds_for_a_profile(tmp_path: Path) -> None:
    check_capture(write(tmp_path / "p" / "decode.hatchet", serving()), tmp_path / "cache")


def test_scopes_kernels_and_copies_stand_in_their_tables(tmp_path: Path) -> None:
    # GIVEN the profile of `serving` WHEN it is read
    capture = ingest.read(str(write(tmp_path / "decode.hatchet", serving())))
    # THEN its scopes are a tree of phases without the root and without the profiler's own
    labels = capture.tables["labels"]
    assert labels["name"].tolist() == ["forward", "attention", "mlp", "load"] and labels["parent"].tolist() == [-1, 0, 0, -1]
    assert set(labels["what"]) == {"phase"}
    # AND its kernels are rows with the work of one launch: 2e12 FLOP over 32 launches
    ledger = capture.tables["ledger"]
    assert ledger["name"].tolist() == ["_attn_fwd", "matmul_kernel", "silu_kernel", "cuda_kernel"]
    assert ledger["flop"].tolist()[:2] == [6.25e10, 9.375e10] and ledger["flop"].isna().tolist() == [False, False, True, True]
    assert ledger["bytes"].tolist()[:3] == [1.25e7, 1.875e7, 6.25e7] and ledger["dtype"].tolist() == ["fp16", "fp16", "", ""]
    assert ledger["count"].tolist() == [32, 64, 32, 1] and ledger["time_ns"].sum() == 4_000_000 + 9_000_000 + 800_000 + 4_064
    assert ledger["phase"].tolist() == [1, 2, 2, -1] and ledger["device"].tolist() == [0, 0, 0, 0]
    # AND its copies are counted copies, those without a size told
    copies = capture.tables["copies"]
    assert copies["direction"].tolist() == ["DtoD", "HtoD", "HtoD", "DtoH", "Memset"]
    assert copies["src_kind"].tolist() == ["Device", "Pinned", "Pageable", "Device", ""]
    assert copies["count"].tolist() == [32, 16, 4, 16, 8] and copies["without_bytes"].tolist() == [0, 0, 4, 0, 0]
    assert copies["bytes"].tolist() == [67_108_864, 67_108_864, 0, 64, 1 << 20] and copies["phase"].tolist() == [1, 3, 3, 3, 3]
    assert copies["src_device"].tolist() == [0, -1, -1, 0, -1] and copies["dst_device"].tolist() == [0, 0, 0, -1, 0]
    # AND the time of a scope on the host, and what was left out
    times = capture.tables["label_times"]
    assert times["label"].tolist() == [3] and times["duration_ns"].tolist() == [9_000_000]
    assert issues(capture) == {"work of the profiler itself": 10, "copy without bytes": 4}
    assert capture.facts.source == "proton" and capture.facts.total_events == 16 and capture.facts.pseudo_step


def test_messagepack_and_gzip_read_the_same(tmp_path: Path) -> None:
    # GIVEN one profile as JSON, as MessagePack and as zipped JSON WHEN read THEN all tables are equal
    plain = write(tmp_path / "a.hatchet", serving())
    packed = write(tmp_path / "a.hatchet_msgpack", serving())
    zipped = tmp_path / "a.hatchet.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    first, *others = (ingest.read(str(p)) for p in (plain, packed, zipped))
    for other in others:
        for name, table in first.tables.items():
            pd.testing.assert_frame_equal(table, other.tables[name])
        assert other.facts.devices == first.facts.devices


def test_a_profile_is_known_by_its_content_and_by_its_name(tmp_path: Path) -> None:
    # GIVEN names as Proton gives them THEN they say the kind, the worker and the part
    assert names.kind_of("decode.hatchet") == names.kind_of("decode.part_3.hatchet_msgpack") == "proton"
    assert names.worker_and_span("decode.hatchet") == ("decode", "default")
    assert names.worker_and_span("decode.part_3.hatchet") == ("decode", "part_3")
    # AND under any other name the first bytes do
    for suffix in (".hatchet", ".hatchet_msgpack"):
        head = write(tmp_path / f"x{suffix}", serving()).read_bytes()
        assert classify(head, "x.json").kind == "proton"
    deep = json.dumps([serving(), ONE], sort_keys=True).encode()  # as the writer sorts them: children before frame
    assert classify(deep[:200], "profile.json").kind == "proton"
    assert classify(b'[{"ph": "X", "name": "children"}]', "x.json").kind == "kineto"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Memcpy HtoD (Pinned -> Device)", ("HtoD", "Pinned", "Device")),
        ("Memcpy HtoA (Pinned -> Array)", ("HtoD", "Pinned", "Array")),
        ("Memcpy XtoY (Foo -> Bar)", ("Unknown", "Foo", "Bar")),
        ("Memset (Device)", ("Memset", "", "Device")),
        ("[CUDA memcpy Device-to-Host]", ("DtoH", "", "")),
        ("HostToDevice", ("HtoD", "", "")),
        ("MemcpyPeerToPeer", ("PtoP", "", "")),
        ("memcpy", ("Unknown", "", "")),
        ("CopyDeviceToHost", ("DtoH", "", "")),
        ("memcpy_kernel", None),
        ("copy_kernel", None),
        ("void at::native::copy_kernel<float>(float*)", None),
        ("my_memcpy", None),
        ("copy", None),
    ],
)
def test_a_frame_is_a_copy_by_its_whole_name(name: str, found: tuple[str, str, str] | None) -> None:
    # GIVEN names of frames THEN those that name a copy are copies, and kernels with such a word in their name are not
    assert copied(name, "function") == found
    assert copied(name, "kernel") is None, "a frame that says it is a kernel is one"


def test_the_device_is_found_by_its_figures(tmp_path: Path) -> None:
    # GIVEN a device without a name: compute capability 9.0, 132 SMs, 2 x 5120 bit x 2.619 GHz = 3.35 TB/s
    capture = read(tmp_path, kernel("k", 10))
    # THEN it is an H100 SXM, and the reader is told how that is known
    spec = device_for(capture, "")
    assert spec is not None and spec.key == "H100_SXM" and capture.facts.vendor == "nvidia"
    assert capture.facts.warnings == ("the profile does not name its device: taken as H100 SXM by compute capability 9.0, 132 units and 3.35 TB/s",)


def test_a_device_outside_the_table_has_the_limits_of_its_figures(tmp_path: Path) -> None:
    # GIVEN 16 SMs of compute capability 8.6 at 1.14 GHz with 2 x 128 bit x 5.501 GHz / 8 = 176.032 GB/s: no row of the table
    figures = {"arch": "86", "num_sms": 16, "clock_rate": 1_140_000, "memory_clock_rate": 5_501_000, "bus_width": 128}
    capture = read(tmp_path, kernel("k", 10), devices={"CUDA": {"0": figures}})
    spec = device_for(capture, "")
    # THEN FP16 runs at 1024 FLOP per SM and clock: 16 x 1024 x 1.14e9 = 18.68 TFLOP/s
    assert spec is not None and spec.method == "derived" and spec.memory_bandwidth == 176.032e9
    assert spec.matrix_peak("fp16") == pytest.approx(16 * 1024 * 1.14e9)


def test_unknown_figures_are_left_out(tmp_path: Path) -> None:
    # GIVEN devices that say little or nonsense WHEN read THEN they are kept without what is unknown, and nothing is guessed
    devices = {"CUDA": {"0": {}, "x": {}, "1": {"arch": 7, "num_sms": -4, "bus_width": "wide"}}, "HIP": [1]}
    capture = read(tmp_path, kernel("k", 10), devices=devices)
    assert [(d.id, d.name, d.units, d.compute_capability) for d in capture.facts.devices] == [(0, "", 0, ""), (1, "", 0, "")]
    assert device_for(capture, "") is None and issues(capture) == {"device information that does not fit": 1}


def test_several_widths_share_time_and_bytes_and_lose_nothing(tmp_path: Path) -> None:
    # GIVEN a kernel with 3e12 FLOP in 8 bit and 1e12 in 16 bit: 24 to 16 in units of width
    capture = read(tmp_path, kernel("mixed", 1_001, 5, flops8=3e12, flops16=1e12, bytes=1_000))
    ledger = capture.tables["ledger"]
    assert ledger["dtype"].tolist() == ["fp8", "fp16"] and ledger["count"].tolist() == [5, 0] and ledger["estimated"].all()
    # THEN 60 % of time and bytes stand with the first, the rest with the second
    assert ledger["time_ns"].tolist() == [600.0, 401.0]
    assert (ledger["bytes"] * ledger["count"].clip(lower=1)).tolist() == [600.0, 400.0]
    assert (ledger["flop"] * ledger["count"].clip(lower=1)).tolist() == [3e12, 1e12]


@pytest.mark.parametrize(("arch", "of", "dtype"), [("90", "CUDA", "fp8"), ("80", "CUDA", "int8"), ("gfx90a", "HIP", "int8"), ("gfx942", "HIP", "fp8")])
def test_eight_bits_are_integers_where_there_is_no_fp8(tmp_path: Path, arch: str, of: str, dtype: str) -> None:
    # GIVEN work of 8 bits on a device WHEN read THEN its type is one that the device has
    capture = read(tmp_path, kernel("k", 10, flops8=1e9, of=of), devices={of: {"0": {**H100, "arch": arch}}})
    assert capture.tables["ledger"]["dtype"].tolist() == [dtype]


def test_work_that_a_scope_states_counts_there_without_a_launch(tmp_path: Path) -> None:
    # GIVEN a scope with FLOP of its own around a kernel with a time WHEN read
    capture = read(tmp_path, scope("step", [kernel("k", 100, 2)], {"flops16": 1e9, "bytes": 50}))
    ledger = capture.tables["ledger"]
    # THEN the work is a row inside the scope, with no launch and no time
    assert ledger["name"].tolist() == ["step", "k"] and ledger["count"].tolist() == [0, 2] and ledger["phase"].tolist() == [0, 0]
    assert ledger["flop"].tolist()[0] == 1e9 and ledger["time_ns"].isna().tolist() == [True, False]


def test_units_of_time_and_metrics_that_are_not_understood(tmp_path: Path) -> None:
    # GIVEN a time in µs and metrics of another kind WHEN read THEN the time is in ns, the others are counted by name
    capture = read(tmp_path, scope("k", (), {"time (us)": 1.5, "count": 2, "num_samples": 7, "stalled_wait": 3}))
    assert capture.tables["ledger"]["time_ns"].tolist() == [1500.0]
    found = issues(capture)
    assert found["unknown metric: num_samples"] == found["unknown metric: stalled_wait"] == 1


def test_kernels_of_another_kind_of_device_have_no_limit(tmp_path: Path) -> None:
    # GIVEN kernels on an H100 and, for less time, on an A100 WHEN held against the limits of the first
    a100 = {"arch": "80", "num_sms": 108, "clock_rate": 1_410_000, "memory_clock_rate": 1_593_000, "bus_width": 5120}
    frames = (kernel("k", 900, bytes=1_000), kernel("k", 100, device="1", bytes=1_000))
    capture = read(tmp_path, *frames, devices={"CUDA": {"0": H100, "1": a100}})
    from tb_sol_plugin.metrics.work.work import work

    ops = work(capture, device_for(capture, "")).ops
    # THEN the second has time and no limit, and says why
    assert ops["sol_ns"].isna().tolist() == [False, True] and ops["measured_ns"].tolist() == [900, 100]
    assert ops["reason"].tolist()[1] == "ran on another kind of device than the limits are of"
