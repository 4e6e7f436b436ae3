"""Copies from the dispatcher to the page: a tracked loop on a device in Python, and loops on the CPU in all their ways."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tb_sol_plugin as sol  # noqa: E402
from tb_sol_plugin import ingest  # noqa: E402
from tb_sol_plugin.metrics.copies import counted  # noqa: E402
from tb_sol_plugin.metrics.hatchet import hatchet  # noqa: E402
from tb_sol_plugin.model.report import UnavailableReport  # noqa: E402
from tests.support.forked import python  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def on_a_device(tmp_path_factory):
    """The capture of three steps of `copies_on_a_device.py`."""
    pytest.importorskip("torch.utils.backend_registration", reason="this torch takes no device in Python")
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch takes no device in Python (2.10 and later do)")
    folder = tmp_path_factory.mktemp("device")
    process = python("-m", "tests.integration.capture.copies_on_a_device", folder, errors_apart=True)
    printed, errors = process.communicate(300)
    assert process.returncode == 0, errors[-2000:]
    to, back = "5 to the device (3.58 kB, 3 from pageable memory)", "4 to the host (2.05 kB, 2 to pageable memory, 2 numbers read)"
    assert f"Copies: {to}, {back}; the host waits for 8." in " ".join(printed.split())  # the report on the console
    (path,) = folder.glob("*.sol.jsonl")
    return ingest.read(str(path))


def sums(capture, by):
    frame = counted.table(capture, by)
    keys = frame["direction"] if by == "direction" else zip(frame["direction"], frame["group"], strict=True)
    values = zip(frame["count"], frame["bytes"], frame["without_bytes"], frame["blocking"], strict=True)
    return {k: tuple(None if v != v else int(v) for v in row) for k, row in zip(keys, values, strict=True)}


def test_every_copy_to_and_from_a_device_is_counted_once(on_a_device):
    # GIVEN steps that load 1024 and twice 256 bytes, send 1024 through the host and back in forward and in backward, read a number and
    # ask how many elements are positive; the first of three steps is left out
    assert counted.iterations(on_a_device) == 2
    # THEN to the device go 3 x 1024 + 2 x 256 bytes per step, of which only the pinned copy with non_blocking lets the host run on
    # AND to the host come 2 x 1024 + 4 bytes, and one answer without a size; the host waits for all of them
    assert sums(on_a_device, "direction") == {"HtoD": (10, 7168, 0, 8), "DtoH": (8, 4104, 2, 8)}
    assert not len(on_a_device.tables["issues"])


def test_copies_belong_to_their_phase_and_module(on_a_device):
    assert sums(on_a_device, "phase") == {
        ("HtoD", "load"): (6, 3072, 0, 4),
        ("HtoD", "forward"): (2, 2048, 0, 2),
        ("DtoH", "forward"): (2, 2048, 0, 2),
        ("HtoD", "backward"): (2, 2048, 0, 2),
        ("DtoH", "backward"): (2, 2048, 0, 2),
        ("DtoH", "report"): (4, 8, 2, 4),
    }
    # AND those of the backward pass to the layer whose forward they undo
    assert sums(on_a_device, "module") == {
        ("HtoD", "mixes"): (4, 4096, 0, 4), ("DtoH", "mixes"): (4, 4096, 0, 4),
        ("HtoD", "(no module)"): (6, 3072, 0, 4), ("DtoH", "(no module)"): (4, 8, 2, 4),
    }  # fmt: skip
    assert sums(on_a_device, "operator") == {
        ("HtoD", "aten::_to_copy"): (10, 7168, 0, 8), ("DtoH", "aten::_to_copy"): (4, 4096, 0, 4),
        ("DtoH", "aten::_local_scalar_dense"): (2, 8, 0, 2), ("DtoH", "aten::nonzero"): (2, None, 2, 2),
    }  # fmt: skip
    kinds = counted.table(on_a_device, "kind")
    found = {(r.src_kind, r.dst_kind): int(r["count"]) for _, r in kinds.iterrows()}
    assert found == {("Pageable", "Device"): 6, ("Pinned", "Device"): 4, ("Device", "Pageable"): 4, ("Device", ""): 4}


def test_the_page_opens_and_says_what_to_fix(on_a_device):
    report = on_a_device.analyze("memcpy")
    # THEN per step 3584 and 2052 bytes go over, and the host waits for 8 copies
    said = report.headline.replace("\u202f", " ")
    assert said == "Copies move **3.58 kB** to the device, **2.05 kB** back to the host per step. The host waits for **8** copies per step."
    rules = {f.rule: f for f in report.findings}
    assert set(rules) == {"copies_reads", "copies_pageable", "copies_blocking"}
    assert all(f.saving_ns is None for f in report.findings)
    assert "`aten::_local_scalar_dense`" in rules["copies_reads"].evidence and "phase `report`" in rules["copies_reads"].evidence
    assert "non_blocking=True" in rules["copies_blocking"].fix and "phase `load`" in rules["copies_blocking"].evidence
    facts = report.facts
    assert (facts["htod_count"], facts["htod_bytes"], facts["htod_blocking"]) == (10, 7168, 8)
    for by in ("kind", "device", "step", "phase", "module", "operator", "stream"):
        query = {"by": by} if by in ("kind", "step", "phase", "module", "stream") else {}
        frame = on_a_device.analyze("memcpy", **query).table("counted")
        assert (frame["count"].sum(), frame["bytes"].sum()) == (18, 11_272)  # parts sum to the whole
    one = on_a_device.analyze("memcpy", step="2")
    assert one.table("counted")["count"].sum() == 9


def loop(folder, steps=3, **options):
    model = nn.Linear(8, 8)
    with sol.capture(str(folder), model=model, every_n_steps=1, tensorboard=False, console=False, wandb=False, **options) as tracker:
        for _ in range(steps):
            model(torch.ones(2, 8).clone()).sum().backward()
            tracker.step()
    (path,) = folder.glob("*.sol.jsonl")
    return path


def test_a_loop_on_the_cpu_copies_within_the_host(tmp_path):
    capture = ingest.read(str(loop(tmp_path)))
    # THEN each of the two steps looked at copies 2 x 8 floats, and more where autograd keeps a gradient: nothing crosses, nobody waits
    frame = counted.table(capture, "direction")
    assert frame["direction"].tolist() == ["HtoH"] and frame["blocking"].tolist() == [0]
    assert capture.analyze("memcpy").headline.startswith("No copy crosses to a device: ")
    assert capture.analyze("memcpy").findings == []


def test_copies_can_be_left_uncounted_and_the_page_says_so(tmp_path):
    path = loop(tmp_path, copies=False)
    answer = ingest.read(str(path)).analyze("memcpy")
    assert isinstance(answer, UnavailableReport) and answer.because == "copies were not counted" and "copies=True" in answer.record_it_with


def test_a_loop_without_copies_says_that_there_were_none(tmp_path):
    with sol.capture(str(tmp_path), model=None, every_n_steps=1, tensorboard=False, console=False, wandb=False) as tracker:
        for _ in range(2):
            torch.ones(4).add_(1)
            tracker.step()
    (path,) = tmp_path.glob("*.sol.jsonl")
    assert ingest.read(str(path)).analyze("memcpy").because == "no copy between memories in the counted iterations"


def test_a_copy_stands_once_in_a_hatchet_profile(on_a_device):
    # GIVEN copies that are operators of the ledger too WHEN exported THEN calls and bytes of `_to_copy` are those of the copies alone,
    # while `nonzero`, which also computes, keeps its own
    root, *_ = json.loads(b"".join(hatchet(on_a_device, "phase")))
    found = {}

    def visit(frame):
        mine = found.setdefault(frame["frame"]["name"], [0, 0])
        mine[0] += frame["metrics"].get("count", 0)
        mine[1] += frame["metrics"].get("bytes", 0)
        for child in frame["children"]:
            visit(child)

    visit(root)
    assert found["aten::_to_copy"] == [0, 0] and found["aten::nonzero"][0] == 2
    moved = [v for name, v in found.items() if name.startswith("Memcpy")]
    assert sum(c for c, _ in moved) == 18 and sum(b for _, b in moved) == 7168 + 4104
