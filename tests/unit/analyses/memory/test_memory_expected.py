"""Expected against actual memory: LLaMA-7B on two tensor and two pipeline ranks, whose numbers are published sums, and what may be missing."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.api import Run
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.report import FigureSection, Report, TableSection, UnavailableReport, encode
from tests.support.sol_builder import CUDA, Json, Record, SolBuilder

GB, MIB = 1_000_000_000, 1 << 20
P = 16 * (202_383_360 - 8192) // 2 + 16 * 8192 + 4096 * 32000 // 2
"""Parameters of the first stage: 16 layers halved but for their norms, the embedding halved; the last one has a norm of 4096 more."""
SIZES: dict[str, Json] = {
    "hidden": [4096, "config.hidden_size"], "layers": [32, "config.num_layers"], "vocab": [32000, "args.padded_vocab_size"],
    "ffn": [11008, "config.ffn_hidden_size"], "heads": [32, "config.num_attention_heads"], "gated": [True, "args.swiglu"],
    "rms_norm": [True, "config.normalization"], "tied": [False, "told"], "seq": [2048, "inputs"], "micro_batch": [1, "inputs"],
    "tp": [2, "process groups"], "pp": [2, "process groups"], "dp": [1, "process groups"], "dtype": ["bf16", "parameters"],
    "optimizer": ["adam", "FusedAdam"], "sharding": ["none", "told"], "recompute": ["selective", "told"],
}  # fmt: skip


def record(b: SolBuilder, parts: dict[str, int], **fields: Json) -> None:
    """A record of memory at the end of iteration 0, with parts of {category: bytes} in BF16 or FP32 on device 0."""
    narrow = ("params", "grads")
    rows: list[Json] = [[c, "bf16" if c in narrow else "fp32", -1, 0, int(size > 0), size, size] for c, size in parts.items()]
    made: Record = {"kind": "memory", "tag": "iteration", "iteration": 0, "time_ns": 5_000_000, "device": 0, "parts": rows}
    b.records.insert(-1, made | fields)


def state_of(parameters: int) -> dict[str, int]:
    """2 + 4 + 4 + 8 bytes per parameter, in the categories of a record."""
    return {
        "params": 2 * parameters, "buffers": 0, "grads": 0, "main_grads": 4 * parameters, "master_weights": 4 * parameters,
        "exp_avg": 4 * parameters, "exp_avg_sq": 4 * parameters, "other_optimizer": 0,
    }  # fmt: skip


def builder(rank: int = 0, *, stage: int | None = None, plan: Json = None, **header: Json) -> SolBuilder:
    groups: dict[str, Json] = {"tp": [rank % 2, 2]} | ({} if stage is None else {"pp": [stage, 2]})
    b = SolBuilder(rank=rank, world_size=4, groups=groups, plan=SIZES if plan is None else plan, device=CUDA, time_source="event", **header)
    b.iteration(0, 0, 6_000_000)
    b.close(1)
    return b


PASSING = (4 * GB, 2_200_000_000)
"""In use at the peak beside what stays, by stage."""


def llama(folder: Path, **changed: dict[str, int]) -> Path:
    """Two ranks of the first stage and two of the last, each with what the closed form says; changed: categories of `rankN`."""
    for rank in range(4):
        b = builder(rank, stage=rank // 2)
        parts = state_of(P + (4096 if rank // 2 else 0)) | changed.get(f"rank{rank}", {})
        record(b, parts, max_allocated=sum(parts.values()) + PASSING[rank // 2], total=80 * GB)
        b.write(folder / b.name)
    return folder


@pytest.fixture(scope="module")
def llama_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four ranks that hold what the closed form says."""
    return sol.open(str(llama(tmp_path_factory.mktemp("llama"))), cache=False)


def report_of(folder: Path | Run, **query: object) -> Report:
    run = sol.open(str(folder), cache=False) if isinstance(folder, Path) else folder
    found = run.analyze("memory_expected", **query)
    assert isinstance(found, Report), found
    json.loads(encode(found))
    return found


def cells(report: Report, rank: int = 0) -> pd.DataFrame:
    """Rows of one rank by part."""
    table = report.table("parts")
    return table[table["rank"] == rank].set_index("part")


def marks(report: Report, column: str, part: str, rank: int = 0) -> str:
    """What is said of one cell of the parts, "" for nothing."""
    section = report.section("parts")
    assert isinstance(section, TableSection)
    at = next(i for i, (r, p) in enumerate(zip(section.data["rank"], section.data["part"], strict=True)) if (r, p) == (rank, part))
    found = section.marks.get(column, {}).get(str(at))
    return "" if found is None else f"{found.state}: {found.why}"


# -- a run that is as it should be --------------------------------------------------------------------------------------


def test_each_part_of_each_rank(llama_run: Run) -> None:
    # GIVEN four ranks that hold what the closed form says THEN on the first stage that is 3.37 + 6.74 + 6.74 + 13.48 GB
    report = report_of(llama_run)
    first = cells(report)
    wanted = {"parameters": 3.37, "main parameters": 6.74, "main gradients": 6.74, "optimizer state": 13.48}
    for part, size in wanted.items():
        row = first.loc[part]
        assert row["expected_bytes"] / GB == pytest.approx(size, abs=0.01) and row["actual_bytes"] == row["expected_bytes"], part
        assert (row["difference_bytes"], row["of_expected"], row["verdict"]) == (0, 0.0, "ok")
    assert (first.loc["gradients", "expected_bytes"], first.loc["gradients", "verdict"]) == (0, "ok")
    # AND the last stage has a norm of 4096 more: 18 bytes each
    last = cells(report, 3)
    assert set(first["stage"]) == {0} and set(last["stage"]) == {1}
    state = list(wanted)
    assert last.loc[state, "expected_bytes"].sum() - first.loc[state, "expected_bytes"].sum() == 18 * 4096
    # AND each has its formula with what was put in
    assert (first.loc["optimizer state", "formula"], first.loc["optimizer state", "inputs"]) == ("8 · P", f"P = {P}")
    assert report.facts["parts_ok"] == 4 * 6 == report.facts["parts_compared"] and len(report.table("parts")) == 4 * 10


def test_activations_are_what_is_left_of_the_peak(llama_run: Run) -> None:
    # GIVEN 4 GB between what stays and the allocator's peak THEN they are activations, estimated; with two microbatches held, without
    # sequence parallel being said: 3.867 GB on the first stage, and no logits
    report = report_of(llama_run)
    row = cells(report).loc["activations"]
    assert row["expected_bytes"] / GB == pytest.approx(3.867, abs=0.001) and row["actual_bytes"] == 4 * GB and row["verdict"] == "ok"
    assert "what is left of the peak" in marks(report, "actual_bytes", "activations")
    assert cells(report).loc["logits", "expected_bytes"] == 0
    # AND on the last stage the logits are in them: half of 2048 x 32000 in FP32, and their gradient
    last = cells(report, 2)
    assert last.loc["logits", "expected_bytes"] == 2 * 4 * 2048 * 32000 // 2 and pd.isna(last.loc["logits", "actual_bytes"])
    both = last.loc["activations", "expected_bytes"] + last.loc["logits", "expected_bytes"]
    assert last.loc["activations", "difference_bytes"] == PASSING[1] - both and "together" in marks(report, "difference_bytes", "activations", 2)


def test_the_two_fields_under_their_names(llama_run: Run) -> None:
    # GIVEN master weights of 4 bytes per parameter THEN both fields are that in MiB, per rank and the most of all
    report = report_of(llama_run)
    table = report.table("captured").set_index("rank")
    assert table.loc[0, "Actual_Captured_Master_Weight_bytes"] == 4 * P == table.loc[0, "Actual_Captured_Main_Grad_Mem_bytes"]
    assert table.loc[0, "Actual_Captured_Master_Weight_MB"] == 4 * P / MIB == table.loc[0, "Actual_Captured_Main_Grad_Mem_MB"]
    assert report.facts["Actual_Captured_Master_Weight_MB"] == 4 * (P + 4096) / MIB == report.facts["Actual_Captured_Main_Grad_Mem_MB"]
    # AND parameters are counted and by formula
    assert (table.loc[3, "parameters"], table.loc[3, "expected_parameters"], table.loc[3, "parameters_verdict"]) == (P + 4096, P + 4096, "ok")
    assert report.facts["model_parameters"] == 6_738_415_616


def test_sizes_formulas_and_the_plan(llama_run: Run) -> None:
    report = report_of(llama_run)
    sizes = report.table("sizes").set_index("name")
    assert sizes.loc["hidden"].tolist() == ["4096", "recorded: config.hidden_size"] and sizes.loc["vpp", "from"] == "assumed"
    formulas = report.table("formulas")
    assert set(formulas["stage"].dropna()) == {0, 1} and "The model" in formulas["figure"].tolist()
    # AND a link opens the plan with what is known, and the fields above stand as they are used
    (link,) = report.section("parts").links
    assert link.analysis == "memory_plan" and (link.query["hidden"], link.query["tp"], link.query["sharding"]) == ("4096", "2", "none")
    assert "vpp" not in link.query
    assert report.fields["hidden"].value == "4096" and report.fields["vpp"].value == "1"
    assert isinstance(report.section("bars"), FigureSection)


# -- what is not as it should be ------------------------------------------------------------------------------------------


def test_a_full_head_on_a_stage_is_found(tmp_path: Path) -> None:
    # GIVEN rank 0 of LLaMA-7B with the original placement: half of the embedding and a whole head, 1.8157 B parameters
    more = P + 4096 * 32000
    assert more / 1e9 == pytest.approx(1.8157, abs=1e-4)
    report = report_of(llama(tmp_path, rank0=state_of(more)))
    row = cells(report).loc["parameters"]
    assert row["verdict"] == "more" and row["difference_bytes"] == 2 * 4096 * 32000 and row["of_expected"] == pytest.approx(0.0778, abs=1e-4)
    # AND the largest difference is named, with its rank, and the count does not fit the sizes
    assert (report.facts["worst_part"], report.facts["worst_rank"]) == ("optimizer state", "rank 0")
    assert "rank 0" in report.headline and any("counted 1\u202f815" in n.text for n in report.notices)
    # AND saying where the head stands makes it fit
    placed = report_of(tmp_path, embedding_placement="own", head_placement="all_full")
    assert cells(placed).loc["parameters", "verdict"] == "ok"


@pytest.mark.parametrize(("share", "verdict"), [(0.951, "ok"), (0.949, "less"), (1.049, "ok"), (1.051, "more")])
def test_differences_up_to_5_percent_are_ok(tmp_path: Path, share: float, verdict: str) -> None:
    report = report_of(llama(tmp_path, rank1={"master_weights": round(4 * P * share)}))
    assert cells(report, 1).loc["main parameters", "verdict"] == verdict


def test_what_was_not_recorded_is_said_and_is_not_nothing(tmp_path: Path) -> None:
    # GIVEN a rank whose program looked at the model, without an optimizer, when there were no gradients
    b = builder(stage=0)
    record(b, {"params": 2 * P, "buffers": 0, "grads": 0})
    b.write(tmp_path / b.name)
    report = report_of(tmp_path)
    rows = cells(report)
    for part in ("main parameters", "gradients", "main gradients", "optimizer state", "activations", "in use at most", "base"):
        assert pd.isna(rows.loc[part, "actual_bytes"]) and rows.loc[part, "verdict"] == "not recorded", part
        assert pd.isna(rows.loc[part, "difference_bytes"])
    assert "optimizer=optimizer" in rows.loc["optimizer state", "source"] and "after backward" in rows.loc["gradients", "source"]
    assert rows.loc["parameters", "verdict"] == "ok" and report.facts["Actual_Captured_Master_Weight_MB"] is None
    assert report.facts["parts_compared"] == 1 and report.facts["actual_bytes"] is None


def test_base_other_and_what_is_unknown(tmp_path: Path) -> None:
    # GIVEN 500 MB in use before the model and 800 after the process group, then 20 GB reserved, of which 19 are in use and the parts
    # take 18, and 21 GB in use on the device
    b = builder(stage=0)
    for time, used in ((-2, 500), (-1, 800)):
        b.records.insert(1, {"kind": "memory", "tag": "x", "time_ns": time, "device": 0, "device_used": used * 10**6, "reserved": 0, "allocated": 0})
    record(b, {"params": 17 * GB, "buffers": GB}, device_used=21 * GB, reserved=20 * GB, allocated=19 * GB)
    b.write(tmp_path / b.name)
    report = report_of(tmp_path)
    rows = cells(report)
    # THEN the base is 0.8 GB, and the rest of 3.2 GB is told: 1 of buffers, 1 without a use, 1.2 unknown, which is more than 5 %
    assert rows.loc["base", "actual_bytes"] == 800 * 10**6 and rows.loc["base", "verdict"] == "no expectation"
    assert rows.loc["other, unknown", "actual_bytes"] == 3_200_000_000
    assert marks(report, "actual_bytes", "other, unknown").startswith("flagged: 1.20\u202fGB of 21.00\u202fGB are unknown")
    table = report.table("captured")
    assert table["unknown_bytes"].tolist() == [1_200_000_000] and table["in_all_of"].tolist() == ["device_used"]
    # AND every record is there with what it adds up to
    budgets = report.table("records")
    assert budgets["tag"].tolist() == ["x", "x", "iteration"] and budgets["total_bytes"].tolist() == [500 * 10**6, 800 * 10**6, 21 * GB]
    names = ("base_context", "nccl", "others", "params", "buffers", "gradients", "master_weights", "optimizer", "fragmentation", "unknown")
    assert (budgets[[f"{name}_bytes" for name in names]].fillna(0).sum(axis=1) == budgets["total_bytes"]).all()
    last = budgets.iloc[2]
    assert (last["base_context_bytes"], last["nccl_bytes"], last["fragmentation_bytes"]) == (500 * 10**6, 300 * 10**6, GB)
    assert pd.isna(budgets.loc[0, "params_bytes"]) and pd.isna(last["optimizer_bytes"]) and last["iteration"] == 0


def test_gradients_in_16_bits_are_explained(tmp_path: Path, llama_run: Run) -> None:
    # GIVEN a rank that keeps gradients of 2 bytes, and no main gradients THEN two rows differ, and a line says why
    report = report_of(llama(tmp_path, rank0={"grads": 2 * P, "main_grads": 0}))
    rows = cells(report)
    assert (rows.loc["gradients", "verdict"], rows.loc["main gradients", "verdict"]) == ("more", "less")
    assert any("in the type in which the backward pass makes them" in n.text for n in report.notices)
    assert not any("in the type" in n.text for n in report_of(llama_run).notices)


# -- sizes that are not known, or asked for ---------------------------------------------------------------------------------


def test_without_sizes_counted_parameters_stand_in(tmp_path: Path) -> None:
    # GIVEN a run whose header knows nothing of the model but its optimizer, and 1000 parameters in BF16 with Adam
    b = builder(plan={"optimizer": ["adam", "AdamW"], "tp": [1, "one process"], "pp": [1, "one process"], "dp": [1, "one process"]})
    record(b, state_of(1000))
    b.write(tmp_path / b.name)
    report = report_of(tmp_path)
    rows = cells(report)
    # THEN bytes per parameter are held against these, and what passes through the model is not expected
    assert rows.loc["optimizer state", ["expected_bytes", "verdict", "formula"]].tolist() == [8000, "ok", "8 · P"]
    assert rows.loc["main gradients", "expected_bytes"] == 4000 and pd.isna(rows.loc["activations", "expected_bytes"])
    assert any("`hidden`, `layers`, `vocab`, `ffn`, `heads`" in n.text and "as counted" in n.text for n in report.notices)
    # AND data parallel ranks divide what the query says they do
    assert cells(report_of(tmp_path, sharding="optimizer", dp=4)).loc["optimizer state", "expected_bytes"] == 2000
    # AND where nobody names the optimizer, two moments in FP32 are those of Adam
    b.records[0]["plan"] = {}
    b.write(tmp_path / b.name)
    report = report_of(tmp_path)
    assert cells(report).loc["optimizer state", "expected_bytes"] == 8000
    assert report.table("sizes").set_index("name").loc["optimizer"].tolist() == ["adam", "recorded: moments that were seen"]
    # AND without them its state is not expected
    other = builder(plan={})
    record(other, state_of(1000) | {"exp_avg": 0, "exp_avg_sq": 0, "other_optimizer": 4000})
    other.write(tmp_path / b.name)
    assert pd.isna(cells(report_of(tmp_path)).loc["optimizer state", "expected_bytes"])


def test_nothing_known_at_all_still_shows_what_is_there(tmp_path: Path) -> None:
    # GIVEN a record of a device alone
    b = builder(plan={})
    b.records.insert(-1, {"kind": "memory", "time_ns": 1, "device": 0, "allocated": 5 * GB, "max_allocated": 6 * GB})
    b.write(tmp_path / b.name)
    report = report_of(tmp_path)
    # THEN the page asks for the sizes of the model, with the names under which they are given, and shows no number of what is not known
    assert report.headline.startswith("How large is the model?") and cells(report).loc["in use at most", "actual_bytes"] == 6 * GB
    (asks,) = [n.text for n in report.notices if "does not say" in n.text]
    assert "`hidden`, `layers`, `vocab`, `ffn`, `heads`" in asks and "choose a preset" in asks and 'plan={"hidden": …' in asks
    (tiles,) = [s for s in report.sections if s.id == "facts"]
    assert report.facts["parts_ok"] is None and "parts_ok" in tiles.hidden and "0 of 0" not in str(tiles)  # type: ignore[union-attr]
    assert not {"bars", "captured", "sizes", "formulas"} & {s.id for s in report.sections}
    assert report.table("parts")["actual_bytes"].notna().all(), "no row of dashes"
    shown = {c.name for c in report.section("parts").columns if c.rank < 3}  # type: ignore[union-attr]
    assert "actual_bytes" in shown and not {"expected_bytes", "difference_bytes", "verdict"} & shown
    # AND a preset is enough to expect something
    full = report_of(tmp_path, preset="llama-7b", tp=2, pp=2)
    assert {"bars", "sizes", "formulas"} <= {s.id for s in full.sections} and not any("does not say" in n.text for n in full.notices)
    rows = cells(full)
    assert rows.loc["parameters", "expected_bytes"] == 2 * P and rows.loc["in use at most", "verdict"] == "less"


def test_what_is_asked_for_stands_over_what_is_recorded(llama_run: Run) -> None:
    # GIVEN the distributed optimizer on four data parallel ranks WHEN it is asked for THEN masters and state are a quarter
    report = report_of(llama_run, distributed_optimizer=True, dp=4)
    rows = cells(report)
    assert rows.loc["main parameters", "expected_bytes"] == P and rows.loc["optimizer state", "expected_bytes"] == 2 * P
    assert rows.loc["optimizer state", "verdict"] == "more" and rows.loc["optimizer state", "formula"] == "8 · P/d"
    assert report.table("sizes").set_index("name").loc["sharding"].tolist() == ["optimizer", "asked for"]
    # AND the size of the world gives the data parallel ranks
    assert report_of(llama_run, world=16).table("sizes").set_index("name").loc["dp"].tolist() == ["4", "asked for"]


def test_the_stage_follows_from_the_rank_where_nobody_says(tmp_path: Path) -> None:
    for rank in range(4):
        b = builder(rank)
        record(b, state_of(P))
        b.write(tmp_path / b.name)
    report = report_of(tmp_path)
    assert report.table("captured")["rank"].tolist() == [0, 1, 2, 3]
    assert [int(cells(report, r)["stage"].iloc[0]) for r in range(4)] == [0, 0, 1, 1]
    assert marks(report, "stage", "parameters").startswith("estimated")


def test_layouts_that_cannot_be_and_values_that_do_not_fit(tmp_path: Path) -> None:
    folder = llama(tmp_path)
    # GIVEN tensor parallel ranks that do not divide the heads THEN nothing is expected, with the reason and what would do
    report = report_of(folder, tp=3)
    assert any("32 heads do not divide over tp = 3" in n.text for n in report.notices) and cells(report)["expected_bytes"].isna().all()
    assert cells(report).loc["parameters", "actual_bytes"] == 2 * P and "do not fit" in report.headline
    for odd in ({"hidden": 0}, {"hidden": "wide"}, {"preset": "llama-8b"}, {"recompute": "some"}, {"tp": -1}, {"colour": "red"}):
        with pytest.raises(BadQuery):
            report_of(folder, **odd)


def test_sizes_that_cannot_be_are_not_taken_from_a_header(tmp_path: Path) -> None:
    # GIVEN a header with a layer count of 10^12 and a word that is none
    b = builder(plan={**SIZES, "layers": [10**12, "config"], "recompute": ["sometimes", "told"]}, stage=0)
    record(b, state_of(P))
    b.write(tmp_path / b.name)
    report = report_of(tmp_path)
    assert any("`layers`" in n.text for n in report.notices)
    assert report_of(tmp_path, layers=32).table("sizes").set_index("name").loc["recompute", "from"] == "assumed"


def test_one_capture_without_its_run(tmp_path: Path) -> None:
    # GIVEN one file, opened alone THEN it is one rank
    b = builder(2, stage=1)
    record(b, state_of(P + 4096))
    found = sol.open_capture(str(b.write(tmp_path / b.name))).analyze("memory_expected", micro_batch=2)
    assert isinstance(found, Report) and found.facts["workers"] == 1 and found.table("sizes").set_index("name").loc["micro_batch", "value"] == "2"
    # AND a file without memory says how to record it
    empty = builder(stage=0)
    lack = sol.open_capture(str(empty.write(tmp_path / "b.sol.jsonl"))).analyze("memory_expected")
    assert isinstance(lack, UnavailableReport) and "memory=True" in lack.record_it_with
