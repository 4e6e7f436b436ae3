"""The memory plan: figures of a worked example, where values are from, other layouts, devices, what cannot be."""

from __future__ import annotations

import re

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.devices.catalog import table as device_table
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.answer import answer_query
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import FigureSection, Report, TableSection
from tests.conftest import ROOT

GB, GIB, MIB = 1e9, float(1 << 30), float(1 << 20)


def plan(**query: object) -> Report:
    """The report of a query."""
    found = sol.analyze("memory_plan", **query)
    assert isinstance(found, Report)
    return found


def llama(**query: object) -> Report:
    """LLaMA-7B on TP 2, PP 2 as far as the query does not say otherwise."""
    return plan(**{"preset": "llama-7b", "tp": 2, "pp": 2, **query})


# -- the worked example ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("embedding", "head", "parameters", "gb", "gib"), [
    ("own", "own", 1.6847, 30.32, 28.24),
    ("all", "all", 1.7502, 31.50, 29.34),
    ("all", "all_full", 1.8157, 32.68, 30.44),
    ("all_full", "all_full", 1.8813, 33.86, 31.54),
])  # fmt: skip
def test_state_of_both_stages_by_placement(embedding: str, head: str, parameters: float, gb: float, gib: float) -> None:
    t = llama(embedding_placement=embedding, head_placement=head).table("stages")
    assert len(t) == 2
    for row in t.itertuples():
        assert row.parameters / GB == pytest.approx(parameters, abs=1e-4)
        assert row.state_bytes / GB == pytest.approx(gb, abs=0.01)
        assert row.state_gib == pytest.approx(gib, abs=0.01)
        # 2 bytes of parameters, 4 of main gradients, 4 of master weights, 8 of moments
        parts = (row.parameter_bytes, row.gradient_bytes, row.main_gradient_bytes, row.master_bytes, row.optimizer_bytes)
        assert parts == tuple(n * row.parameters for n in (2, 4, 4, 4, 8))
        six = (row.parameter_bytes + row.gradient_bytes) / GB
        assert six == pytest.approx(parameters * 6, abs=0.01)


def test_a_stage_without_embedding_and_head() -> None:
    # GIVEN a pipeline of three stages of 16 layers each WHEN the middle one is planned THEN it is the first row of the worked example
    middle = plan(preset="llama-7b", layers=48, tp=2, pp=3).table("stages").iloc[1]
    assert middle["parameters"] / GB == pytest.approx(1.6191, abs=1e-4)
    assert middle["state_bytes"] / GB == pytest.approx(29.14, abs=0.01) and middle["state_gib"] == pytest.approx(27.14, abs=0.01)


@pytest.mark.parametrize(("d", "mib", "gb", "gib"), [
    (1, 28_919, 30.324, 28.241), (2, 19_280, 20.216, 18.828), (4, 14_460, 15.162, 14.121), (8, 12_050, 12.635, 11.767),
])  # fmt: skip
def test_the_distributed_optimizer(d: int, mib: int, gb: float, gib: float) -> None:
    most = llama(dp=d, distributed_optimizer=True).table("stages").iloc[0]
    assert most["state_bytes"] / MIB == pytest.approx(mib, abs=1)
    assert most["state_bytes"] / GB == pytest.approx(gb, abs=0.01) and most["state_gib"] == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize(("d", "gb"), [(4, 16.34), (8, 13.62)])
def test_the_distributed_optimizer_with_a_whole_head_on_each_stage(d: int, gb: float) -> None:
    t = llama(dp=d, distributed_optimizer=True, embedding_placement="all", head_placement="all_full").table("stages")
    assert t["state_bytes"].max() / GB == pytest.approx(gb, abs=0.01)


@pytest.mark.parametrize(("tp", "pp", "gb"), [
    (1, 1, 121.291), (2, 1, 60.648), (1, 2, 60.646), (4, 1, 30.326), (4, 2, 15.163), (8, 1, 15.166),
])  # fmt: skip
def test_the_fullest_stage_of_other_layouts(tp: int, pp: int, gb: float) -> None:
    assert llama(tp=tp, pp=pp).table("stages")["state_bytes"].max() / GB == pytest.approx(gb, abs=0.01)


@pytest.mark.parametrize(("seq", "batch", "parallel", "one", "one_gib", "two", "two_gib"), [
    (2048, 1, True, 1.934, 1.801, 3.867, 3.601), (2048, 4, True, 7.734, 7.203, 15.469, 14.407), (4096, 1, True, 3.867, 3.601, 7.734, 7.203),
    (2048, 1, False, 3.109, 2.895, 6.219, 5.792), (2048, 4, False, 12.437, 11.583, 24.874, 23.166),
    (4096, 1, False, 6.219, 5.792, 12.437, 11.583),
])  # fmt: skip
def test_activations_of_the_first_stage(
    seq: int, batch: int, parallel: bool, one: float, one_gib: float, two: float, two_gib: float
) -> None:
    for m, gb, gib in ((1, one, one_gib), (2, two, two_gib), (64, two, two_gib), (0, two, two_gib)):
        first = llama(seq=seq, micro_batch=batch, sequence_parallel=parallel, microbatches=m).table("stages").iloc[0]
        assert first["activation_bytes"] / GB == pytest.approx(gb, abs=0.01)
        assert first["activation_bytes"] / GIB == pytest.approx(gib, abs=0.01)


def test_logits_stand_within_the_activations_of_the_last_stage() -> None:
    # 2048 x 32000 / 2 logits of 4 bytes are 0.131 GB, and their gradient as much
    first, last = llama().table("stages").to_dict("records")
    assert first["logits_bytes"] == 0 and last["logits_bytes"] == 2 * 4 * 2048 * 32000 // 2
    assert last["logits_bytes"] / 2 / GB == pytest.approx(0.131, abs=0.001) and last["activation_bytes"] > last["logits_bytes"]


def test_what_the_published_log_says_cannot_be() -> None:
    # GIVEN the peak of 8.5 GB on stage 0 THEN it is below parameters and main gradients alone, whatever divides the optimizer
    for d in (1, 8, 1024):
        first = llama(dp=d, distributed_optimizer=True).table("stages").iloc[0]
        assert first["parameter_bytes"] + first["gradient_bytes"] > 10.1e9 > 8.5e9
    # and a whole head left out of a stage, with half an embedding, saves less than the 7.4 GB
    before = llama(embedding_placement="all_full", head_placement="all_full").table("stages").iloc[0]["state_bytes"]
    after = llama().table("stages").iloc[0]["state_bytes"]
    assert (before - after) / GB == pytest.approx(196.6e6 * 18 / GB, abs=0.01) and before - after < 3.6e9


def test_the_page_of_the_docs_holds_the_same_figures() -> None:
    text = (ROOT / "docs" / "analyses" / "memory_plan.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .*? \| ([\d.]+) × 10⁹ \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    middle = plan(preset="llama-7b", layers=48, tp=2, pp=3).table("stages").iloc[1]
    places = [("own", "own"), ("all", "all"), ("all", "all_full"), ("all_full", "all_full")]
    shown = [middle, *(llama(embedding_placement=e, head_placement=h).table("stages").iloc[0] for e, h in places)]
    assert len(rows) == len(shown)
    for (parameters, gb, gib), stage in zip(rows, shown, strict=True):
        said = (f"{stage['parameters'] / GB:.4f}", f"{stage['state_bytes'] / GB:.2f}", f"{stage['state_gib']:.2f}")
        assert said == (parameters, gb, gib)


# -- the report ------------------------------------------------------------------------------------------------------


def test_parts_add_up_to_the_total_and_the_figure_shows_them() -> None:
    report = plan(preset="llama-70b", tp=8, pp=4, dp=2, dtype="fp16", sharding="gradients", device="80GB", base_gb=1.5)
    t = report.table("stages")
    parts = ["parameter_bytes", "gradient_bytes", "master_bytes", "optimizer_bytes", "activation_bytes"]
    assert (t[parts].sum(axis=1) == t["total_bytes"]).all() and (t["state_bytes"] == t[parts[:-1]].sum(axis=1)).all()
    assert (t["total_gib"] * GIB).round().astype("int64").tolist() == t["total_bytes"].tolist()
    section = report.section("stages")
    assert isinstance(section, TableSection) and section.total is not None
    assert section.total["total_bytes"] == t["total_bytes"].sum() and section.total["parameters"] == t["parameters"].sum()
    # AND what is left is the memory less the total and the base
    assert (t["headroom_bytes"] == 80_000_000_000 - 1_500_000_000 - t["total_bytes"]).all()
    figure = report.section("bars")
    assert isinstance(figure, FigureSection)
    bars = [trace for trace in figure.figure["data"] if trace["type"] == "bar"]  # type: ignore[attr-defined]
    for k in range(4):
        assert sum(b["x"][k] for b in bars) == pytest.approx((t["total_bytes"][k] + 1.5e9) / 1e9)
    (line,) = figure.figure["layout"]["shapes"]  # type: ignore[index]
    assert line["x0"] == line["x1"] == 80.0


@pytest.mark.parametrize(("memory", "verdict", "words"), [("40GB", "fits", "to spare"), ("36 GB", "tight", "fits tightly"), ("32gib", "tight", "tightly"),
                                                         ("34GB", "too large", "more than a device of 34GB has")])  # fmt: skip
def test_the_verdict_matches_the_headroom_computed_by_hand(memory: str, verdict: str, words: str) -> None:
    # 34.19 GB on stage 0: 40 GB leave 15 %, 36 GB 5 %, 32 GiB = 34.36 GB 0.5 %, 34 GB none
    report = llama(device=memory)
    assert report.facts["verdict"] == verdict and words in report.headline
    assert "34.19\u202fGB (31.8\u202fGiB)" in report.headline


def test_every_device_of_the_table_is_judged() -> None:
    t = llama().table("devices").set_index("device")
    known = {key: spec.memory_bytes for key, spec in device_table().items() if spec.memory_bytes}
    assert set(t.index) == set(known) and "CPU" not in t.index
    needed = llama().facts["largest_bytes"]
    assert isinstance(needed, int)
    for key, row in t.iterrows():
        left = known[str(key)] - needed
        assert row["headroom_bytes"] == left and row["memory_gib"] * GIB == known[str(key)]
        assert row["verdict"] == ("too large" if left < 0 else "tight" if left < 0.1 * known[str(key)] else "fits")
    assert t["memory_bytes"].is_monotonic_increasing
    footer = llama().section("devices").footer  # type: ignore[union-attr]
    assert "not known" in footer and "1.50\u202fGB" in llama(base_gb=1.5).section("devices").footer  # type: ignore[union-attr]


def test_layouts_stand_best_first_and_open_in_the_query() -> None:
    report = llama(device="A100_SXM_40", microbatches=8, dp=4)
    section = report.section("layouts")
    assert isinstance(section, TableSection)
    t = report.table("layouts")
    order = {"fits": 0, "tight": 1, "too large": 2}
    assert [order[v] for v in t["verdict"]] == sorted(order[v] for v in t["verdict"]) and set(t["verdict"]) == set(order)
    assert (t["tp"] * t["pp"] * t["dp"] == 16).all()
    # the samples of a step stay 8 x 1 x 4
    assert (t["microbatches"] * t["micro_batch"] * t["dp"] == 32).all()
    assert set(section.marks["largest_bytes"]) == {str(i) for i, v in enumerate(t["verdict"]) if v == "too large"}
    for at in (0, len(t) // 2, len(t) - 1):
        link, row = section.row_links[str(at)], t.iloc[at]
        opened = answer_query("memory_plan", dict(link.query))
        assert isinstance(opened, Report) and opened.facts["largest_bytes"] == row["largest_bytes"]
        assert opened.facts["device"] == "A100 SXM 40 GB" and opened.facts["world"] == 16


def test_a_plan_that_is_too_large_says_what_fits() -> None:
    # GIVEN LLaMA-7B on one device of 80 GB: 121.3 GB of state alone WHEN it is planned
    report = plan(device="80GB")
    # THEN the fewest devices that hold it with a tenth to spare: half of the state, 60.65 GB, and half of what one sample keeps
    first = report.notices[0]
    assert first.text.startswith("It fits on 2 devices with TP 2, PP 1, DP 1, micro-batch 1, recompute selective: 6")
    assert first.link is not None and first.link.query["tp"] == "2"
    # AND the link leads to a plan that fits and offers nothing else
    there = answer_query("memory_plan", dict(first.link.query))
    assert isinstance(there, Report)
    assert there.facts["verdict"] == "fits" and not there.notices[0].text.startswith("It fits on")


def test_the_glance_shows_the_layouts_of_this_micro_batch() -> None:
    # GIVEN 16 devices THEN the squares are the layouts of micro-batch 2 with full recomputation, each under its verdict, the present one bold
    report = llama(dp=4, micro_batch=2, recompute="full", device="A100_SXM_40")
    figure = report.section("glance")
    assert isinstance(figure, FigureSection)
    t = report.table("layouts")
    own = t[(t["micro_batch"] == 2) & (t["recompute"] == "full")].set_index("id")
    traces = figure.figure["data"]
    squares = {key: (trace["name"], x, y) for trace in traces for key, x, y in zip(trace["customdata"], trace["x"], trace["y"], strict=True)}  # type: ignore[attr-defined]
    assert len(own) == 15 and set(squares) == set(own.index)
    for key, (name, x, y) in squares.items():
        assert (int(x), int(y)) == (own.loc[key, "pp"], own.loc[key, "tp"]) and name == {"tight": "fits tightly"}.get(own.loc[key, "verdict"], own.loc[key, "verdict"])
    bold = [key for trace in traces for key, w in zip(trace["customdata"], trace["marker"]["line"]["width"], strict=True) if w > 1]  # type: ignore[attr-defined]
    assert bold == ["2x2x4.2.full"] and t[t["layout"].str.endswith("(now)")]["id"].tolist() == bold
    assert figure.table == "layouts"


def test_a_large_world_is_bounded() -> None:
    report = plan(preset="gpt3-175b", world=4096, tp=8, pp=8, distributed_optimizer=True, sequence_parallel=False)
    section = report.section("layouts")
    assert isinstance(section, TableSection)
    # six powers of two divide 96 heads and 96 layers each, with four micro-batches and three kinds of recomputation: 6 · 6 · 12 = 432
    assert len(report.table("layouts")) == 240 and section.truncated == 432 - 240 and report.facts["world"] == 4096


def test_formulas_cover_first_fullest_and_last_stage() -> None:
    t = plan(preset="llama-7b", pp=4, microbatches=1).table("formulas")  # one microbatch: the last stage with its logits is fullest
    assert t["stage"].dropna().unique().tolist() == [0, 3]
    model = t[t["figure"] == "The model"].iloc[0]
    assert model["count"] == 6_738_415_616 and model["formula"] == "L · N + 2 · h · V + h"
    total = t[(t["figure"] == "Total") & (t["stage"] == 3)].iloc[0]
    assert total["bytes"] == plan(preset="llama-7b", pp=4, microbatches=1).facts["largest_bytes"]


def test_a_table_on_every_rank_is_told_with_what_it_costs() -> None:
    report = llama(embedding_placement="all_full", head_placement="all_full")
    (note,) = [n for n in report.notices if n.level == "warn"]
    # 196.6 M parameters of 18 bytes, and on the last stage the other half of the logits: 3.54 GB of state, first stage fullest
    assert "whole on every rank" in note.text and "3.54\u202fGB" in note.text
    assert note.link is not None and note.link.query["head_placement"] == "own"
    assert [n.level for n in llama().notices] == ["info"]


def test_what_is_not_counted_is_said() -> None:
    (note,) = llama().notices
    assert all(word in note.text for word in ("context", "NCCL", "fragmentation", "fused attention"))
    # one layer of LLaMA-7B in BF16: 202 383 360 x 2 bytes
    (gathered,) = plan(sharding="full", dp=8).notices
    assert "404.8\u202fMB" in gathered.text


def test_fields_stand_with_what_they_would_do_as_well() -> None:
    fields = plan(preset="llama-13b", tp=2).fields
    # 40 heads, a feed-forward of 2^9 · 27, a vocabulary of 2^8 · 125 and a sequence of 2^11: tp divides all of them
    assert fields["tp"].value == "2" and fields["tp"].values == ("1", "2", "4", "8")
    assert fields["pp"].values == ("1", "2", "4", "5", "8", "10", "20", "40")
    assert (fields["hidden"].value, fields["layers"].value, fields["recompute"].value) == ("5120", "40", "selective")
    assert fields["vpp"].values == ("1",) and plan(preset="llama-13b", pp=5).fields["vpp"].values == ("1", "2", "4", "8")


# -- what is asked ---------------------------------------------------------------------------------------------------


def test_nothing_asked_is_the_smallest_preset() -> None:
    report = plan()
    assert report.facts["model"] == "LLaMA-7B" and report.facts["world"] == 1 and report.facts["model_parameters"] == 6_738_415_616


def test_a_model_of_its_own_is_whole_without_a_preset() -> None:
    # GPT-2 medium: 24 layers of 12 h² + 13 h less biases = 12 h² + 4 h, a vocabulary padded to 50304, tied, LayerNorm
    report = plan(hidden=1024, layers=24, vocab=50304, ffn=4096, heads=16, gated=False, rms_norm=False, tied=True)
    assert report.facts["model"] == "a model of its own"
    assert report.facts["model_parameters"] == 24 * (12 * 1024**2 + 4 * 1024) + 1024 * 50304 + 2 * 1024
    assert len(report.notices) == 1


def test_sizes_that_are_not_said_are_named() -> None:
    report = plan(hidden=2048, heads=16)
    assert report.facts["model"] == "LLaMA-7B with changes"
    assert report.notices[0].text == "Not said: layers, vocab, ffn. Theirs are the sizes of LLaMA-7B."
    assert plan(preset="llama-7b", hidden=2048).notices[0].text.startswith("Not in these figures")


@pytest.mark.parametrize(("query", "field", "message", "hint"), [
    ({"tp": 3}, "tp", "32 heads do not divide", "tp = 2 or 4"),
    ({"pp": 5}, "pp", "32 layers", "pp = 4 or 8"),
    ({"world": 12, "tp": 8}, "world", "12 devices", "8 or 16"),
    ({"world": 16, "tp": 2, "dp": 4}, "dp", "8, not 16", "dp = 8"),
    ({"ep": 4}, "ep", "experts", "ep = 1"),
    ({"cp": 3}, "seq", "2048", "seq = 2046"),
    ({"device": "H1000"}, "device", "H1000", "H100_SXM"),
    ({"device": "0GB"}, "device", "0GB", "80GB"),
    ({"base_gb": -1}, "base_gb", "-1", "GB"),
    ({"base_gb": "nan"}, "base_gb", "nan", "finite number"),
    ({"preset": "bert"}, "preset", "bert", "llama-7b"),
    ({"tp": "two"}, "tp", "two", "right type"),
    ({"tp": 0}, "tp", "0", "from 1"),
    ({"colour": "red"}, "colour", "colour", "known"),
    ({"hidden": 1 << 20, "layers": 4096, "ffn": 1 << 22, "experts": 4096}, "hidden", "9 PB", "digit"),
])  # fmt: skip
def test_invalid_queries_say_why_and_what_is_possible(query: dict[str, object], field: str, message: str, hint: str) -> None:
    with pytest.raises(BadQuery) as error:
        plan(**query)
    assert error.value.field == field and message in error.value.message and hint in error.value.hint


def test_device_limits_choose_the_device_where_none_is_named() -> None:
    assert plan(device_limits="A100_SXM_40@1200MHz").facts["device"] == "A100 SXM 40 GB"
    assert plan(device_limits="A100_SXM_40", device="H200").facts["device"] == "H200"
    assert plan().facts["device"] == "H100 SXM"


def test_an_analysis_of_recordings_needs_one() -> None:
    with pytest.raises(BadQuery) as error:
        sol.analyze("kernels")
    assert error.value.field == "path" and get("memory_plan").without_recording is not None


def test_every_preset_has_a_plan_and_a_name():
    from tb_sol_plugin.analyses.memory.memory_plan_tables import CALLED
    from tb_sol_plugin.cost.transformer.memory import PRESETS

    assert set(CALLED) == set(PRESETS)
    for name in PRESETS:
        assert CALLED[name] in str(plan(preset=name).sections)
