"""What allocations are for, as it is estimated: one step by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.attribution import BEFORE, UNKNOWN, attribution
from tb_sol_plugin.metrics.memory.categories import NAMES, categories
from tb_sol_plugin.metrics.memory.curves import curves
from tb_sol_plugin.metrics.memory.labels import CATEGORIES
from tb_sol_plugin.model.capture import Capture
from tests.support.trace_builder import TraceBuilder
from tests.unit.metrics.memory.test_attribution import bytes_by_name

CUDA0 = R.Device(1, 0)


class Step:
    """Two training steps of 100 us on one thread, memory events in order of time."""

    def __init__(self) -> None:
        self.t = TraceBuilder()
        self.events: list[tuple[int, int, int]] = []
        self.level = 10_000
        for n in (0, 1):
            at = n * 100_000
            self.t.annotation("enumerate(DataLoader)#_Iter.__next__", at + 1_000, 4_000)
            self.t.op("aten::stack", at + 2_000, 2_000)
            self.t.op("aten::to", at + 6_000, 2_000)
            self.t.module("Net_0", at + 10_000, 20_000, module_id=1)
            self.t.op("aten::linear", at + 11_000, 8_000)
            self.t.op("aten::addmm", at + 12_000, 6_000)
            self.t.op("aten::relu", at + 20_000, 5_000)
            self.t.op("autograd::engine::evaluate_function: AddmmBackward0", at + 40_000, 10_000)
            self.t.op("AddmmBackward0", at + 41_000, 5_000)
            self.t.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at + 51_000, 4_000)
            self.t.annotation("Optimizer.step#Adam.step", at + 60_000, 20_000)
            self.t.op("aten::zeros_like", at + 61_000, 2_000)
            self.t.op("aten::sqrt", at + 65_000, 2_000)

    def life(self, start: int, end: int | None, size: int) -> None:
        address = 0x1000 * (len(self.events) + 1)
        self.events.append((start, size, address))
        if end is not None:
            self.events.append((end, -size, address))

    def capture(self, path: Path) -> Capture:
        for time, size, address in sorted(self.events):
            self.level += size
            self.t.memory(time, size, address=address, allocated=self.level, reserved=1 << 20)
        return read(str(self.t.write(path / "a.pt.trace.json")))


def test_each_allocation_of_a_step_has_its_likely_category(tmp_path: Path) -> None:
    # GIVEN allocations of distinct sizes in the first of two steps, by where they are made and freed
    s = Step()
    wanted = {
        101: ("inputs", 2_500, 95_000), 102: ("inputs", 7_000, 95_000),  # by the loader; by a copy to the device in front of the model
        103: ("temporary", 12_500, 13_000), 104: ("temporary", 12_600, 18_500),  # in addmm; in linear, which is around it
        105: ("activations", 13_500, 45_000), 106: ("activations", 21_000, 29_000),  # saved for backward; between two operators
        107: ("temporary", 42_000, 43_000), 108: ("autograd_detail", 44_000, 53_000),  # in a node; handed on to the next one
        109: ("grads", 45_000, 90_000), 110: ("grads", 52_000, None),  # freed after the step; kept
        111: ("optimizer", 61_500, None), 112: ("temporary", 65_500, 70_000),  # state; between two operators of one optimizer step
        113: ("unknown", 14_000, None),  # made by a module and kept through steps: a cache, or a workspace
    }  # fmt: skip
    for size, (_, start, end) in wanted.items():
        s.life(start, end, size)
    s.events.append((30_000, -500, 0x999000))  # from before the window
    c = s.capture(tmp_path)
    # WHEN named THEN each has the category that its place suggests, and all but what was before or is unknown is an estimate
    a, found = R.allocations(c, CUDA0), categories(c, CUDA0)
    names = dict(zip(a["bytes"].tolist(), (NAMES[i] for i in found["category"].tolist()), strict=True))
    assert names == {size: name for size, (name, _, _) in wanted.items()} | {500: "before"}
    sure = {size for size, e in zip(a["bytes"].tolist(), found["estimated"].tolist(), strict=True) if not e}
    assert sure == {113, 500}
    # AND 44.5 us in, what is alive adds up to what is in use, with 10,000 B less the 500 B that were there before
    (curve,) = curves(c)
    at = attribution(c, curve, "category", 44_500 - 1_000)  # the recording begins at 1 us
    assert bytes_by_name(at) == {"inputs": 203, "autograd_detail": 108, "activations": 105, BEFORE: 9_500, UNKNOWN: 113}
    assert at.rows["estimated"].tolist() == [True, True, True, False, False] and "estimated" in at.notes[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_category_has_a_label_and_a_color(name: str) -> None:
    assert all(CATEGORIES[name])


def test_what_comes_back_from_a_device_is_no_activation_of_the_host(tmp_path: Path) -> None:
    # GIVEN a copy to the host behind the model, in a recording with a kernel and in one without
    for kernel, wanted in ((True, "unknown"), (False, "activations")):
        t = TraceBuilder()
        t.module("Net_0", 1_000, 5_000, module_id=1)
        t.op("aten::to", 10_000, 2_000)
        if kernel:
            t.launch("gemm_kernel", at=2_000, start=3_000, duration=1_000, stream=7)
        t.memory(11_000, 64, address=1, allocated=64, device_type=0, device_id=-1)
        t.memory(20_000, -64, address=1, allocated=0, device_type=0, device_id=-1)
        c = read(str(t.write(tmp_path / f"{wanted}.pt.trace.json")))
        # WHEN named THEN it is a result, whatever it is for, beside a device; without one it is what an operator made
        assert [NAMES[i] for i in categories(c, R.Device(0, -1))["category"]] == [wanted]
