"""Two recordings that are not alike: what differs is said, what can be compared is, and nothing is made of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.cli.command import main
from tb_sol_plugin.model.report import Report
from tests.support.compared import KERNELS, Job, trace
from tests.support.trace_builder import BASE_NS, TraceBuilder, _header

NAME = "worker0.1700000000000000000.pt.trace.json.gz"
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "ac2g")


def without(found: TraceBuilder, *, steps: bool = False, device: bool = False) -> TraceBuilder:
    """Leaves steps, or all device work and its launches, out of a recording."""
    found.events = [
        e for e in found.events
        if not (steps and str(e.get("name", "")).startswith("ProfilerStep")) and not (device and e.get("cat") in ON_DEVICE)
    ]  # fmt: skip
    return found


def of(found: TraceBuilder, device: str = "NVIDIA H100 80GB HBM3", rank: int | None = None, ranks: int = 1) -> TraceBuilder:
    """Says that a recording is of another device, or of one rank of several."""
    found.header.update(_header(device, 1, BASE_NS, rank, ranks))
    return found


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unlike")
    other_names = {name: f"mine::op{i}" for i, name in enumerate(KERNELS)}
    runs = {
        "base": of(trace(Job(), 0), rank=0, ranks=8), "v100": of(trace(Job(clock=2.0), 1), "Tesla V100-SXM2-16GB"),
        "ranks": of(trace(Job(), 2), rank=0, ranks=2), "shapes": trace(Job(batch=1), 4), "bare": without(trace(Job(), 5), steps=True),
        "bare2": without(trace(Job(), 6), steps=True), "cpu": without(trace(Job(), 7), device=True),
        "compiled": trace(Job(ops={"aten::mm": "CompiledFunction"}), 8), "model": trace(Job(ops=other_names), 9),
    }  # fmt: skip
    for name, found in runs.items():
        found.write(folder / name / NAME)
    return folder


def compare(logdir: Path, other: str, run: str = "base") -> Report:
    found = sol.open(str(logdir), run=run).analyze("compare", other_run=other)
    assert isinstance(found, Report)
    return found


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("v100", "device NVIDIA H100 80GB HBM3 and Tesla V100-SXM2-16GB"), ("ranks", "world size 8 and 2"),
        ("shapes", "No shapes were recorded in base: more work is not told from slower calls"),
        ("cpu", "No device work was recorded in cpu: rows have times on the host."), ("compiled", "compiled no and yes"),
        ("model", "The two run mostly different operators"), ("bare", "bare has no steps: all of it stands beside a step of base."),
    ],
)  # fmt: skip
def test_what_differs_is_said(logdir: Path, other: str, said: str) -> None:
    found = compare(logdir, other)
    assert any(said in notice.text for notice in found.notices), [n.text for n in found.notices]


def test_times_on_a_device_are_not_set_against_none(logdir: Path) -> None:
    # GIVEN a recording of the host alone THEN operators are compared there, as long as before, and no kernel is called gone
    found = compare(logdir, "cpu")
    rows = found.table("rows").set_index("name")
    assert rows.loc["aten::mm", "delta_ns"] == 0 and rows.loc["aten::mm", "time_a"] == 6 * 8_000 and set(rows["match"]) == {"same"}
    assert not {"hidden", "findings"} & {s.id for s in found.sections}


def test_a_whole_recording_is_not_set_against_a_step(logdir: Path) -> None:
    # GIVEN twelve steps without their marks THEN no change is told of sums, no cause is named, and calls stand beside each other
    found = compare(logdir, "bare")
    assert found.headline.startswith("`bare` has no steps, all of it takes ") and found.facts["change"] is None
    assert not {"causes", "findings", "falls", "waterfall"} & {s.id for s in found.sections}
    rows = found.table("rows").set_index("name")
    assert (rows.loc["aten::mm", "calls_a"], rows.loc["aten::mm", "calls_b"]) == (6, 72)
    # AND of two of these the sums are told, and nothing is proven
    found = compare(logdir, "bare2", run="bare")
    assert "Without steps it cannot be told from noise" in found.headline and found.facts["verdict"] == "unknown"


def test_the_gate_without_steps(logdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(a: str, b: str, *more: str) -> tuple[int, str]:
        status = main(["check", str(logdir / a), str(logdir / b), *more])
        return status, capsys.readouterr().out

    status, out = check("base", "bare")
    assert status == 3 and "bare has no steps to set against those of base; call `prof.step()`" in out
    status, out = check("bare", "bare2")
    assert status == 5 and "no steps: one sample a side" in out
    assert check("bare", "bare2", "--metric", "launches")[0] == 0


def test_a_copy_at_another_time_on_other_threads_in_another_order_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a recording, and a copy of it that begins an hour later, on another thread, with its events in reverse
    trace(Job(batch=1), 3).write(tmp_path / "base" / NAME)
    copy = trace(Job(batch=1), 3)
    for event in copy.events:
        if event.get("tid") == copy.thread:
            event["tid"] = 77
    copy.header["baseTimeNanoseconds"] = BASE_NS + 3_600_000_000_000
    copy.events.reverse()
    copy.write(tmp_path / "copy" / NAME)
    # WHEN they are compared THEN nothing differs, and the gate passes
    found = compare(tmp_path, "copy")
    assert found.facts["change"] == 0 and found.facts["matched_time_share_b"] == 1 and found.facts["only_a"] == found.facts["only_b"] == 0
    for table, column in (("rows", "delta_ns"), ("waterfall", "delta_ns"), ("tree", "delta_ns"), ("metrics", "change")):
        assert set(found.table(table)[column]) == {0}, table
    assert set(found.table("rows")["match"]) == {"same"} and found.facts["outcome"] in ("no change", "no change shown")
    assert main(["check", str(tmp_path / "base"), str(tmp_path / "copy"), "--metric", "step_time", "--metric", "launches"]) == 0
    capsys.readouterr()
