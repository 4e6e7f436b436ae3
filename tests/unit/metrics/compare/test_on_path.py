"""The difference of the step by parts of its critical path."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.compare.causes import compared
from tb_sol_plugin.metrics.compare.differences import PATH, Side, Waterfall
from tb_sol_plugin.metrics.compare.on_path import samples_with_path, waterfall_on_path, why_no_path
from tb_sol_plugin.metrics.compare.ranks import slowest
from tb_sol_plugin.metrics.compare.samples import Samples, per_step
from tb_sol_plugin.model.query import Query
from tests.support.compared import Job, recording
from tests.support.trace_builder import TraceBuilder

US = 1_000


def on_path(waits: int, gelu_us: int) -> Samples:
    """The samples of eight steps: a loop that launches six products and gelus, waits for the device, and works on the host for 100 us a wait."""
    t = TraceBuilder()
    now = 0
    for number in range(1, 9):
        begin, device = now, now
        for name, length in (("aten::mm", 200), ("aten::gelu", gelu_us)) * 6:
            t.op(name, now, 8 * US)
            device = max(device, now + 6 * US)
            t.launch(f"{name[6:]}_kernel", at=now + 2 * US, start=device, duration=length * US, call_duration=3 * US)
            now, device = now + 9 * US, device + length * US + US
        t.call("cudaDeviceSynchronize", now, device + 4 * US - now)
        now = device + 5 * US
        for _ in range(waits):
            t.op("aten::item", now, 100 * US)
            now += 101 * US
        t.step(number, begin, now - begin)
        now += US
    with TemporaryDirectory() as folder:
        capture = read(str(t.write(Path(folder) / "worker0.1700000000000000000.pt.trace.json.gz")))
    return samples_with_path(capture, Query())


@pytest.fixture(scope="module")
def sides() -> tuple[Side, Side]:
    """A loop, and one whose gelu takes 180 us in place of 60, with one operator more on the host."""
    return Side("A", [on_path(1, 60)]), Side("B", [on_path(2, 180)])


def exact(found: Waterfall) -> None:
    assert sum(bar.delta_ns for bar in found.bars) == found.b_ns - found.a_ns
    left = list(found.bars)
    while left:
        bar = left.pop()
        left += bar.parts
        assert not bar.parts or sum(part.delta_ns for part in bar.parts) == bar.delta_ns


def test_parts_of_the_path_add_up_and_swap(sides: tuple[Side, Side]) -> None:
    a, b = sides
    path = a.runs[0].path
    assert path is not None and path.grade in ("good", "fair") and not why_no_path(a, b)
    assert [sum(step) for step in zip(*path.parts.values(), strict=True)] == list(a.runs[0].values["step_time"])
    found, back = waterfall_on_path(a, b), waterfall_on_path(b, a)
    exact(found)
    exact(back)
    assert found.basis == "path" and {bar.name: bar.delta_ns for bar in found.bars} == {bar.name: -bar.delta_ns for bar in back.bars}


def test_what_holds_the_step_is_its_largest_part(sides: tuple[Side, Side]) -> None:
    # GIVEN six kernels that take 120 us more each, and an operator more of 100 us on the host THEN the path has both, and nothing else of size
    found = {bar.name.removeprefix(PATH): bar for bar in waterfall_on_path(*sides).bars}
    assert found["kernel_ns"].delta_ns == 6 * 120 * US
    gelu = found["kernel_ns"].parts
    assert [(part.name, part.delta_ns) for part in (*gelu, *gelu[0].parts)] == [("aten::gelu", 6 * 120 * US), ("gelu_kernel", 6 * 120 * US)]
    assert found["host_ns"].delta_ns == pytest.approx(101 * US, abs=3 * US) and found["host_ns"].parts[0].name == "aten::item"
    assert sum(abs(bar.delta_ns) for name, bar in found.items() if name not in ("kernel_ns", "host_ns")) < 5 * US


def test_paths_that_say_nothing(sides: tuple[Side, Side]) -> None:
    a, b = sides
    path = b.runs[0].path
    assert path is not None
    poor = Side("B", [msgspec.structs.replace(b.runs[0], path=msgspec.structs.replace(path, grade="poor"))])
    unseen = Side("B", [msgspec.structs.replace(b.runs[0], path=msgspec.structs.replace(path, silent=0.6))])
    bare = Side("B", [msgspec.structs.replace(b.runs[0], path=None)])
    assert why_no_path(a, poor) == "the critical path of B is graded poor"
    assert why_no_path(bare, a) == "B has no critical path of all of its steps"
    assert why_no_path(a, unseen).startswith("for 60 % of the steps of B nothing is recorded on the host while the device works")
    # THEN exclusive parts take their place, and it is said why
    for other in (poor, unseen, bare):
        both = compared(a, other)
        assert both.waterfall.basis == "exclusive" and both.no_path == why_no_path(a, other)
    assert compared(a, b).waterfall.basis == "path" and compared(a, b, by_path=False).waterfall.basis == "exclusive"


def test_causes_are_those_of_the_path(sides: tuple[Side, Side]) -> None:
    # GIVEN a slower kernel and an operator more on the host THEN both are causes, by the parts of the path that they make longer
    a, b = sides
    causes = compared(a, b).causes
    assert [(c.kind, c.name, c.delta_ns) for c in causes] == [
        ("slower_same_kernel", "aten::gelu", 720 * US), ("host", "aten::item", pytest.approx(101 * US, abs=3 * US)),
    ]  # fmt: skip
    assert causes[1].sentence.startswith("`aten::item`: host code that the step waits for, ") and causes[1].analysis == "critical_path"


def test_a_loop_that_waits_unseen() -> None:
    # GIVEN steps that end with the device, with and without a call that waits for it THEN without it the path lies on a silent host
    silent = [samples_with_path(recording(Job(steps=3, waits=waits)), Query()).path for waits in (True, False)]
    assert silent[0] is not None and silent[1] is not None and silent[0].silent == 0.0 and silent[1].silent > 0.8


def test_of_several_ranks_the_path_is_that_of_the_slowest(sides: tuple[Side, Side]) -> None:
    # GIVEN two ranks of which the one is slower in every step, and in the first step the other THEN each step has the path of its slowest
    a, b = (side.runs[0] for side in sides)
    assert a.path is not None and b.path is not None
    late = {n: (v[0] + (2_000 * US if n in ("step_time", "path:host_ns") else 0), *v[1:]) for n, v in {**a.values, **a.path.parts}.items()}
    path = msgspec.structs.replace(a.path, parts={n: late[n] for n in a.path.parts}, grade="fair")
    ours = msgspec.structs.replace(a, values={n: late[n] for n in a.values}, path=path)
    found = slowest([ours, b]).samples
    assert found.path is not None and found.path.grade == "fair"
    for name, times in found.path.parts.items():
        assert times == (late[name][0], *b.path.parts[name][1:])
    assert [sum(step) for step in zip(*found.path.parts.values(), strict=True)] == list(found.values["step_time"])
    rows = per_step(found.path.items, "device", len(found.row_steps))
    theirs = per_step(b.path.items, "device", len(b.row_steps))
    assert (rows.sum(0)[1:] == theirs.sum(0)[1:]).all() and rows.sum(0)[0] == per_step(a.path.items, "device", len(a.row_steps)).sum(0)[0]
    assert slowest([msgspec.structs.replace(ours, path=None), b]).samples.path is None
