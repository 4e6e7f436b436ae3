"""Pipeline stages: bubbles of a noiseless 1F1B are those of its closed form, and a stage that is longer sets the pace."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tb_sol_plugin.metrics.ranks.by_name import BY, TOTALS
from tb_sol_plugin.metrics.ranks.calls import Member
from tb_sol_plugin.metrics.ranks.job import job_of_members
from tb_sol_plugin.metrics.ranks.pipeline import BUBBLES, ENDS, Pipeline, by_stage, ends_text, pipeline
from tb_sol_plugin.tables.packed import pack
from tests.support.rank_factory import Job, Slow, simulate

QUIET = Job(
    pp=4, dp=1, layers=2, steps=3, micro_batches=8, ranks_per_host=4, layer_ns=1e6, jitter=0.0, alpha_ns=0.0, completion_ns=1e-3,
    activation_bytes=2, optimizer_ns=0.0, drift_ppm=0.0, device_ns=0.0, offset_ns=0.0,
)  # fmt: skip


def found_in(job: Job) -> Pipeline:
    found = pipeline(job_of_members(simulate(job).members()).waits)
    assert found is not None
    return found


def test_bubbles_of_a_quiet_1f1b_are_those_of_its_schedule() -> None:
    # GIVEN four stages of two layers, forward 1 ms and backward 2 ms a layer, eight micro-batches
    found = found_in(QUIET)
    table = by_stage(found).set_index("stage")
    # THEN each stage computes 8 * 6 ms and waits (4 - 1) * 6 ms: stage s 2 s ms for its first activations, 4 s ms at the end
    assert table["compute_ns"].tolist() == pytest.approx([48e6] * 4, abs=20) and table["bubble_ns"].tolist() == pytest.approx([18e6] * 4, abs=50)
    assert table["bubble_warmup_ns"].tolist() == pytest.approx([0, 2e6, 4e6, 6e6], abs=50)
    assert table["bubble_cooldown_ns"].tolist() == pytest.approx([0, 4e6, 8e6, 12e6], abs=50)
    assert table["model_bubble_ns"].tolist() == pytest.approx([18e6] * 4, abs=20) and set(table["micro_batches"]) == {8.0}
    assert (found.stages, found.virtual) == (4, 1)
    # AND the parts of each rank and step add up to the nanosecond, to the step too
    rows = found.rows
    assert (rows[list(BUBBLES)].sum(axis=1) == rows["bubble_ns"]).all()
    assert (rows["compute_ns"] + rows["inside_ns"] + rows["bubble_ns"] == rows["duration_ns"]).all()


def test_communication_inside_a_stage_is_no_bubble() -> None:
    table = by_stage(found_in(Job(tp=2, pp=2, dp=2, layers=3, micro_batches=4)))
    assert (table["inside_ns"] > 1e6).all() and table["micro_batches"].tolist() == [4, 4] and table["ranks"].tolist() == [4, 4]
    slow = by_stage(found_in(replace(QUIET, stragglers=(Slow(1, "compute", 1.3),))))
    assert slow["of_mean"].tolist() == pytest.approx([1 / 1.075, 1.3 / 1.075, 1 / 1.075, 1 / 1.075], rel=1e-3)


def test_stages_without_a_recording_pass_micro_batches_all_the_same() -> None:
    # GIVEN the first two of four stages alone: the second one receives gradients from a rank that is not recorded
    found = found_in(replace(QUIET, missing=(2, 3)))
    assert by_stage(found)["micro_batches"].tolist() == [8, 8] and found.stages == 4


def test_embedding_and_head_are_named_where_modules_are_recorded() -> None:
    # GIVEN a stage of two ranks with an embedding, one with a rotary embedding alone, one with a head and its loss, in two steps each
    names = ("Embedding_0", "GPT_0.VocabParallelEmbedding_0.Linear_0", "Layer_0.RotaryEmbedding_1", "GPT_0.LMHead_0", "CrossEntropyLoss_0", "gemm")
    module, kernel = BY.index("module"), BY.index("kernel")

    def with_modules(member: Member, rows: list[tuple[int, int, int, int]]) -> Member:
        columns = {name: np.array(values, np.int64) for name, values in zip(TOTALS, zip(*rows, strict=True), strict=True)}
        return member._replace(summary=msgspec.structs.replace(member.summary, totals=pack(columns, TOTALS), names=names))

    given = {
        0: [(module, 0, 1, 300), (module, 1, 1, 100), (module, 0, 2, 500), (kernel, 0, 1, 9_999)],
        1: [(module, 0, 1, 200), (module, 2, 2, 70)],
        2: [(module, 2, 1, 70)],
        4: [(module, 3, 1, 1_000), (module, 4, 1, 200), (module, 3, 2, 1_200)],
    }
    job = replace(QUIET, pp=3, tp=2, ranks_per_host=8)
    members = [with_modules(m, given[m.rank]) if m.rank in given else m for m in simulate(job).members()]
    found = pipeline(job_of_members(members).waits)
    assert found is not None
    table = by_stage(found).set_index("stage")
    # THEN the first stage has (900 / 2 + 200 / 2) / 2 per step, and the last one's head 2,400 / 2 on the rank that recorded it
    assert table["embedding_ns"].fillna(-1).tolist() == [275, -1, -1] and table["head_ns"].fillna(-1).tolist() == [-1, -1, 1_200]
    assert [ends_text(one) for _, one in table.iterrows()] == [", 275\u202fns in its embedding", "", ", 1.20\u202fµs in its head"]


@pytest.mark.parametrize(("path", "head"), [
    ("GPT_0.LMHead_0", True), ("DistributedDataParallel_0.LlamaForCausalLM_0.Linear_112", True), ("GPT2LMHeadModel_0.Linear_0", True),
    ("GPTModel_0.output_layer_0", True), ("GPT2LMHeadModel_0.GPT2Model_0.GPT2Block_3.GPT2MLP_3", False), ("GPT2LMHeadModel_0", False),
    ("LlamaForCausalLM_0.LlamaModel_0.LlamaDecoderLayer_0.LlamaMLP_0.Linear_4", False), ("ToyModel_0.Linear_9", False),
])  # fmt: skip
def test_a_head_is_told_by_what_holds_it(path: str, head: bool) -> None:
    assert (ENDS["head_ns"].search(path) is not None) == head


def test_stages_are_compared_by_micro_batch() -> None:
    # GIVEN even stages of which one was recorded with half of its micro-batches THEN per micro-batch it computes twice as long
    found = found_in(QUIET)
    half = found.rows.assign(micro_batches=np.where(found.rows["stage"] == 2, 4, found.rows["micro_batches"]))
    assert by_stage(replace(found, rows=half))["of_mean"].tolist() == pytest.approx([0.8, 0.8, 1.6, 0.8], rel=1e-3)


def test_without_stages_there_is_no_pipeline() -> None:
    assert pipeline(job_of_members(simulate(Job(tp=2, dp=2)).members()).waits) is None
    # GIVEN sends and receives of which no group is known THEN there is none either
    members = [m._replace(summary=msgspec.structs.replace(m.summary, groups=tuple(msgspec.structs.replace(g, ranks="") for g in m.summary.groups)))
               for m in simulate(replace(QUIET, steps=1)).members()]  # fmt: skip
    assert pipeline(job_of_members(members).waits) is None


def test_interleaved_stages_are_counted() -> None:
    # GIVEN stage 0 of three sends each micro-batch to the next stage twice, since the last one sends it back once
    job = job_of_members(simulate(replace(QUIET, pp=3, ranks_per_host=3, steps=1)).members())
    calls = job.calls
    sent = np.flatnonzero((calls["kind"] == 9) & (calls["source"] == 1) & (calls["target"] == 2))
    assert len(sent) == 8
    more = {name: np.concatenate((column, column[:0])) for name, column in calls.columns.items()}
    half = np.flatnonzero((more["source"] == 1) & (more["target"] == 0) & (more["kind"] == 10))[:4]
    more["source"][half], more["target"][half] = 2, 0
    waits = replace(job.waits, found=replace(job.waits.found, calls=replace(calls, columns=more)))
    found = pipeline(waits)
    assert found is not None and found.virtual == 2 and set(found.rows["micro_batches"]) == {4}
