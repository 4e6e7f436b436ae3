"""Scalars and tables in TensorBoard's own event files, read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.capture.report.analysis import Analysis, analyze, carry
from tb_sol_plugin.capture.report.loggers import log_tensorboard, markdown
from tests.support.sol_step import device, gpu, op, records, step

GROUPS = {
    "sol_layer/Linear": (7, 0.07, 0.11, 100 * 70 / 110),
    "sol_layer/(unattributed)": (2, 0.012, 0.015, 120.0),
    "sol_layer/LayerNorm": (1, 0.008, 0.016, 50.0),
    "sol_func/F.linear": (3, 0.03, 0.06, 50.0),
    "sol_func/F.layer_norm": (1, 0.008, 0.016, 50.0),
    "sol_phase/train/backward": (5, 0.05, 0.07, 100 * 50 / 70),
    "sol_phase/train/forward": (3, 0.028, 0.056, 50.0),
    "sol_phase/(no phase)": (2, 0.012, 0.015, 120.0),
}
TOTALS = {
    "sol/total_ops": 10,
    "sol/total_tflops": 0.007,
    "sol/total_memory_gb": 0.055,
    "sol/estimated_time_ms": 0.09,
    "sol/measured_time_ms": 0.141,
    "sol/efficiency_pct": 100 * 90 / 136,
    "sol/capture_age_iters": 0,
}
EXPECTED = TOTALS | {
    f"{name}/{part}": value
    for name, values in GROUPS.items()
    for part, value in zip(("count", "estimated_ms", "measured_ms", "efficiency_pct"), values, strict=True)
}
"""Every scalar of the step by hand (`tests/support/sol_step.py`)."""


class Plain:
    """A writer that knows scalars only."""

    def __init__(self) -> None:
        self.scalars: dict[tuple[str, int | None], float] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        assert (tag, global_step) not in self.scalars
        self.scalars[tag, global_step] = scalar_value


class Texts(Plain):
    """A writer that knows texts too, as tensorboardX does."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}

    def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> None:
        self.texts[tag] = text_string


def logged(analysis: Analysis) -> dict[str, float]:
    writer = Plain()
    log_tensorboard(analysis, analysis.iteration, writer, tables=True)
    assert {at for _, at in writer.scalars} == {analysis.iteration}
    return {tag: value for (tag, _), value in writer.scalars.items()}


def test_every_scalar_by_name_and_value() -> None:
    assert logged(analyze(records(), step(), device())) == pytest.approx(EXPECTED)


def test_a_group_without_time_has_neither_time_nor_efficiency() -> None:
    values = logged(analyze(records(timed=False), step(), gpu()))
    missing = {name for name in EXPECTED if name.endswith(("measured_ms", "measured_time_ms", "efficiency_pct"))}
    assert values == pytest.approx({name: value for name, value in EXPECTED.items() if name not in missing})


def test_without_limits_neither_estimate_nor_efficiency() -> None:
    values = logged(analyze(records(), step(), None))
    missing = {name for name in EXPECTED if name.endswith(("estimated_ms", "estimated_time_ms", "efficiency_pct"))}
    assert values == pytest.approx({name: value for name, value in EXPECTED.items() if name not in missing})


def test_unknown_figures_are_left_out_and_not_0() -> None:
    values = logged(analyze([op(flops=None, flops_vector=None, bytes=None, layer_type="Linear")], step(), device()))
    assert values == {
        "sol/total_ops": 1, "sol/capture_age_iters": 0, "sol_layer/Linear/count": 1, "sol_phase/(no phase)/count": 1,
    }  # fmt: skip


def test_a_step_that_was_not_counted_repeats_work_and_tells_its_age() -> None:
    last = analyze(records(timed=False), step(device_us=180.0), gpu())
    values = logged(carry(last, step(12, device_us=120.0), phase_times={"train/forward": 40.0}))

    assert {name: values[name] for name in TOTALS} == pytest.approx(
        TOTALS | {"sol/measured_time_ms": 0.12, "sol/efficiency_pct": 75.0, "sol/capture_age_iters": 5}
    )
    assert values["sol_phase/train/forward/efficiency_pct"] == pytest.approx(70.0)
    assert "sol_phase/train/backward/measured_ms" not in values
    assert not any(name.startswith(("sol_layer/", "sol_func/")) for name in values)


# -- event files -------------------------------------------------------------------------------------------------------


def test_the_event_file_of_torch_read_back(tmp_path: Path) -> None:
    # GIVEN torch's own writer, two iterations and the tables of the second
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    writer.add_scalar("loss", 0.5, 6)
    for iteration, tables in ((7, False), (8, True)):
        log_tensorboard(analyze(records(), step(iteration), device()), iteration, writer, tables)
    writer.close()

    # WHEN TensorBoard reads them
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()

    # THEN each scalar is there twice, under its exact name
    assert set(events.Tags()["scalars"]) == {*EXPECTED, "loss"}
    for name, value in EXPECTED.items():
        assert [(e.step, pytest.approx(e.value, rel=1e-6)) for e in events.Scalars(name)] == [(7, value), (8, value)]
    tables = {f"sol/{name}/text_summary" for name in ("by_layer_type", "by_function", "by_phase", "top_operations")}
    assert set(events.Tags()["tensors"]) == tables
    (text,) = events.Tensors("sol/by_layer_type/text_summary")
    lines = text.tensor_proto.string_val[0].decode().splitlines()
    assert text.step == 8
    assert lines[2] == "| Linear | 7 | 0.07 | 77.78 | 0.11 | 63.64 | 0.007 | 0.035 | compute |"


def test_a_writer_that_was_changed_gets_each_scalar_by_itself(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    seen: list[str] = []

    class Own(tensorboard.SummaryWriter):  # type: ignore[misc, name-defined]
        def add_scalar(self, tag: str, *args: object, **more: object) -> None:
            seen.append(tag)

    with Own(str(tmp_path / "a")) as writer:
        log_tensorboard(analyze(records(), step(), device()), 7, writer)
    assert set(seen) == set(EXPECTED)
    seen.clear()
    with tensorboard.SummaryWriter(str(tmp_path / "b")) as writer:
        writer.add_scalar = lambda tag, value, global_step=None: seen.append(tag)
        log_tensorboard(analyze(records(), step(), device()), 7, writer)
    assert set(seen) == set(EXPECTED)


def test_all_scalars_are_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        summaries: list[object] = []
        monkeypatch.setattr(writer._get_file_writer(), "add_summary", lambda summary, *_: summaries.append(summary))
        log_tensorboard(analyze(records(), step(), device()), 7, writer)
    assert len(summaries) == 1 and len(summaries[0].value) == len(EXPECTED)  # type: ignore[attr-defined]


# -- tables ------------------------------------------------------------------------------------------------------------


def test_tables_only_when_asked_for_and_where_the_writer_has_texts() -> None:
    analysis, writer = analyze(records(), step(), device()), Texts()
    log_tensorboard(analysis, 7, writer)
    assert writer.texts == {}
    log_tensorboard(carry(analysis, step(8)), 8, writer, tables=True)
    assert set(writer.texts) == {"sol/by_layer_type", "sol/by_function", "sol/by_phase", "sol/top_operations"}


def test_columns_of_the_tables() -> None:
    writer = Texts()
    log_tensorboard(analyze(records(), step(), device()), 7, writer, tables=True)

    head, rule, first, *rest = writer.texts["sol/top_operations"].splitlines()
    assert head.replace("\\", "") == (
        "| rank | name | layer_name | phase | direction | shapes | dtype | count | flops | bytes | arithmetic_intensity | estimated_us"
        " | measured_us | efficiency_pct | bound | flags |"
    )
    assert rule.count("---") == 16 and len(rest) == 5
    assert first.replace("\\", "") == (
        "| 1 | aten::mm | net.a | train/backward | bwd | [8, 4] [4, 8] | bf16 | 4 | 4000000000 | 20000000 | 200 | 40 | 50 | 80 | compute |  |"
    )
    for name in ("by_layer_type", "by_function", "by_phase"):
        assert writer.texts[f"sol/{name}"].splitlines()[0].replace("\\", "") == (
            "| name | count | estimated_ms | share_pct | measured_ms | efficiency_pct | tflops | memory_gb | bound |"
        )


def test_notes_stand_below_the_tables() -> None:
    last, writer = analyze(records(), step(), device()), Texts()
    log_tensorboard(last, 7, writer, tables=True)
    by_layer, by_phase = (writer.texts[f"sol/by_{name}"].replace("\\", "") for name in ("layer_type", "phase"))
    assert "\n\n1 of 10 ops have no estimate: their work is not known.\n\n(unattributed), (no phase): above the limit" in by_layer
    assert by_phase.splitlines()[-1].startswith("| (no phase)")

    log_tensorboard(carry(last, step(9)), 9, writer, tables=True)
    for name in ("by_layer_type", "by_function", "by_phase", "top_operations"):
        assert writer.texts[f"sol/{name}"].replace("\\", "").count("Counted and timed in iteration 7, 2 iterations ago.") == 1


def test_names_cannot_break_a_table_or_become_markup() -> None:
    """As TensorBoard itself renders Markdown: the cells of a row are those of the columns, and a tag in a name is text."""
    plugin_util = pytest.importorskip("tensorboard.plugin_util")
    name = "a|b <script>x</script> **bold** [link](http://x) `code`\n| c | \\| &lt;"
    html = plugin_util.markdown_to_safe_html(markdown(("name", "count"), [[name, 3], ["plain_name", None]]))

    assert html.count("<tr>") == 3 and html.count("<td") == 4
    for tag in ("<script", "<strong", "<a ", "<code", "<em"):
        assert tag not in html
    assert "plain_name" in html and "**bold**" in html and "a|b" in html and "—" in html
