"""What no cost model covers, with the reason."""

from __future__ import annotations

from pathlib import Path

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.unmodeled import unmodeled
from tb_sol_plugin.metrics.work.work import work
from tests.support.trace_builder import TraceBuilder


def test_every_call_without_a_model_has_its_reason(tmp_path: Path) -> None:
    # GIVEN a modeled product, an unknown operator twice, a product without sizes, one that names no type, and a collective
    t = TraceBuilder()
    bf16 = ["c10::BFloat16"] * 2
    calls: list[tuple[str, dict[str, object], int]] = [
        ("aten::mm", {"shapes": [[64, 32], [32, 16]], "types": bf16}, 500),
        ("my::kernel", {"shapes": [[64, 32]], "types": bf16[:1]}, 300),
        ("my::kernel", {"shapes": [[64, 32]], "types": bf16[:1]}, 200),
        ("aten::mm", {}, 400),
        ("aten::add", {"shapes": [[64, 32], [64, 32]], "types": ["my_type", "my_type"]}, 100),
    ]
    for at, (name, arguments, duration) in enumerate(calls):
        t.op(name, 1000 * at, 900, **arguments)  # type: ignore[arg-type]
        t.launch("kernel", at=1000 * at + 100, start=10_000 + 1000 * at, duration=duration)
    t.op("record_param_comms", 9000, 900)
    t.launch("ncclDevKernel_AllReduce", at=9100, start=20_000, duration=500)
    capture = read(str(t.write(tmp_path / "t.pt.trace.json")))
    done = work(capture)
    found = unmodeled(capture, done, done.ops)
    # THEN rows are grouped, longest first, shares are of all time (2,000 ns), and communication is not among them
    assert found[["name", "input_shapes", "calls", "measured_ns", "share"]].to_numpy().tolist() == [
        ["my::kernel", "64×32", 2, 500, 0.25],
        ["aten::mm", "", 1, 400, 0.2],
        ["aten::add", "64×32 64×32", 1, 100, 0.05],
    ]
    why = found["why"].tolist()
    assert why[0] == "no cost model"
    assert "recorded" in why[1]
    assert "my_type" in why[2]


def test_a_recording_whose_calls_all_have_a_model_has_no_unmodeled_rows(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::mm", 0, 900, shapes=[[64, 32], [32, 16]], types=["float", "float"])
    t.launch("gemm", at=100, start=2000, duration=500)
    capture = read(str(t.write(tmp_path / "t.pt.trace.json")))
    done = work(capture)
    assert unmodeled(capture, done, done.ops).empty
