"""Findings about memory: of each rule a recording that shows it, one just below its threshold, and one without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.ingest.memory.snapshot import capture_of
from tb_sol_plugin.metrics.rules import memory as R
from tb_sol_plugin.metrics.rules.engine import Finding, Missing
from tb_sol_plugin.metrics.rules.memory import card, memory_section
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support import memory_heaps as heaps
from tests.support.memory_snapshot import MIB
from tests.support.memory_steps import training
from tests.support.trace_builder import TraceBuilder

GB = 10**9


def found(c: Capture) -> dict[str, Finding]:
    context = R.memory_context(c)
    assert context is not None
    return {f.rule: f for f in R.memory_findings(context)[0]}


def lacking(c: Capture) -> dict[str, Missing]:
    context = R.memory_context(c)
    assert context is not None
    return {x.rule: x for x in R.memory_findings(context)[1]}


def records(parts: list[tuple[str, str, str, int, int]] = (), *, meta: dict[str, str] | None = None, world: int = 1, peak: int = 100 * GB,
            reserved: int = 0, iterations: int = 1, copies: Any = None) -> Capture:  # fmt: skip
    """Records of one device with a look at (category, dtype, module, class is the name's last part, numbers, bytes) at each."""
    n = np.arange(iterations)
    table = S.MEMORY_RECORDS.frame({
        "device": [0] * iterations, "iteration": n, "time_ns": n * 1000, "allocated": [peak] * iterations, "since": ["process"] * iterations,
        "max_allocated": [peak] * iterations, "reserved": [reserved or peak] * iterations, "max_reserved": [reserved or peak] * iterations,
    })  # fmt: skip
    names = sorted({p[2] for p in parts if p[2]})
    labels = S.LABELS.frame({"what": ["module"] * len(names), "parent": [-1] * len(names), "name": names, "class_name": names})
    rows = [(r, *p) for r in n.tolist() for p in parts]
    found_parts = S.MEMORY_PARTS.frame({
        "record": [r[0] for r in rows], "category": [r[1] for r in rows], "dtype": [r[2] for r in rows],
        "module": [names.index(r[3]) if r[3] else -1 for r in rows], "tensors": [1] * len(rows), "bytes": [r[5] for r in rows],
        "view_bytes": [r[4] * {"fp32": 4, "bf16": 2}[r[2]] for r in rows],
    })  # fmt: skip
    facts = Facts("sol_capture", "x", 0, world_size=world, rank=0, metadata=meta or {})
    tables = {"memory_records": table, "memory_parts": found_parts, "labels": labels}
    return Capture(facts, tables | ({"copies": copies} if copies is not None else {}))


# -- reserved far above what is in use --------------------------------------------------------------------------


@pytest.mark.parametrize(("peak", "reserved", "shown"), [
    (800 * MIB, 1000 * MIB, True),  # exactly 20 %
    (801 * MIB, 1000 * MIB, False),
    (936 * MIB, 1000 * MIB, False),  # 64 MiB, but 6 %
    (100 * MIB, 163 * MIB, False),  # 39 %, but 63 MiB
    (100 * MIB, 100 * MIB, False),
])  # fmt: skip
def test_memory_reserved_far_above_use_is_a_finding(peak: int, reserved: int, shown: bool) -> None:
    f = found(records(peak=peak, reserved=reserved)).get("reserved_above_use")
    assert (f is not None) == shown
    if f is not None:
        assert f.saving == reserved - peak and f.share == (reserved - peak) / peak
        assert "expandable_segments:True" in f.fix


def test_reserved_memory_above_use_quotes_the_blocks_of_a_snapshot() -> None:
    # GIVEN 222 MiB reserved and 100 in use, 102 MiB beside used blocks WHEN found THEN the evidence has both, and growing segments help
    f = found(capture_of(heaps.fragmented(), file="m"))["reserved_above_use"]
    assert f.saving == 222 * MIB - (99 * MIB + 500) and "largest free block is 62.91" in f.evidence and "expandable" in f.fix
    # AND where they grow already, or a graph's pool holds it, it is not that
    value = heaps.fragmented(expandable_segments=True)
    assert "empty_cache" in found(capture_of(value, file="m"))["reserved_above_use"].fix
    value = heaps.private_pool()
    value["segments"][1]["blocks"][0]["size"] = value["segments"][1]["total_size"] = 90 * MIB
    assert "graph" in found(capture_of(value, file="m"))["reserved_above_use"].fix


def test_on_amd_the_setting_has_its_own_name() -> None:
    c = capture_of(heaps.fragmented(), file="m")
    facts = Facts("memory_snapshot", "m", 0, vendor="amd", metadata=c.facts.metadata, pseudo_step=True)
    assert found(Capture(facts, c.tables))["reserved_above_use"].fix.startswith("PYTORCH_HIP_ALLOC_CONF")


# -- leak -------------------------------------------------------------------------------------------------------


def test_growth_from_step_to_step_is_a_leak(tmp_path: Path) -> None:
    # GIVEN 3,000 B a step in 8 steps THEN a finding of the growth, whatever its size; the state of an optimizer and 4 steps are none
    f = found(training(tmp_path / "a", [3_000] * 8))["leak"]
    assert f.saving == 21_000 and "Cache_0" in f.evidence and not f.candidate
    assert "leak" not in found(training(tmp_path / "b", [0] * 8, state=600_000))
    few = training(tmp_path / "c", [3_000] * 4)
    assert "leak" not in found(few) and "more steps" in lacking(few)["leak"].record_it_with


# -- the peak held by one module --------------------------------------------------------------------------------


def modules(path: Path, sizes: list[int]) -> Capture:
    """Module i holds `sizes[i]` bytes until the end; nothing was there before."""
    t = TraceBuilder()
    total = 0
    for i, size in enumerate(sizes):
        t.module(f"Linear_{i}", 1_000 * i, 900, module_id=i + 1)
        t.op("aten::mm", 1_000 * i + 100, 500)
        total += size
        t.memory(1_000 * i + 200, size, address=i + 1, allocated=total, reserved=total)
    return ingest.read(str(t.write(path / "a.pt.trace.json")))


@pytest.mark.parametrize(("sizes", "shown"), [
    ([329, 300, 329, 42], False),  # below 33 %
    ([330, 300, 329, 41], True),
    ([340, 330, 330], True),
    ([100, 100, 800], True),
    ([200, 800], False),  # of two modules one always holds most
    ([250] * 4, False),
])  # fmt: skip
def test_one_module_with_most_of_the_peak_is_a_finding(tmp_path: Path, sizes: list[int], shown: bool) -> None:
    f = found(modules(tmp_path, sizes)).get("one_module")
    assert (f is not None) == shown
    if f is not None:
        assert f.saving == max(sizes) and f.candidate and f"Linear_{sizes.index(max(sizes))}" in f.evidence
        assert "split" in f.fix  # an inference run: recomputing would free nothing
        # AND its link opens the table of the peak, filtered to its row, which holds what the finding claims
        assert f.page == "memory" and f.query["by"] == "module"
        peak = modules(tmp_path, sizes).analyze("memory", by=f.query["by"]).table("peak")
        assert peak[peak["name"] == f.query["t.peak.c.name"]]["bytes"].tolist() == [f.saving]


# -- the state of the optimizer ---------------------------------------------------------------------------------

N = 1_000_000_000
ADAM = [("params", "fp32", "", N, 4 * N), ("exp_avg", "fp32", "", N, 4 * N), ("exp_avg_sq", "fp32", "", N, 4 * N)]


def adam(share: float = 1.0, **more: Any) -> Capture:
    parts = [ADAM[0], *((c, d, m, int(n * share), int(b * share)) for c, d, m, n, b in ADAM[1:])]
    return records(parts, meta=more.pop("meta", {"groups.dp": "0 of 8"}), world=8, peak=20 * GB, **more)


def test_an_optimizer_state_that_every_rank_keeps_is_a_finding() -> None:
    # GIVEN 8 GB of Adam's state for a billion parameters on each of 8 data parallel ranks WHEN found THEN 7 of the 8 GB could go
    f = found(adam())["optimizer_unsharded"]
    assert f.saving == 7 * GB and f.share == 7 / 20 and not f.candidate and "8 ranks of the data parallel group" in f.evidence


def test_a_sharded_optimizer_is_no_finding() -> None:
    # GIVEN an eighth of the state, or just below nine tenths (frozen parameters) THEN nothing is said; at nine tenths it is
    assert "optimizer_unsharded" not in found(adam(1 / 8)) and "optimizer_unsharded" not in found(adam(0.89))
    assert "optimizer_unsharded" in found(adam(0.9))
    # AND neither without data parallelism, nor where the plan says it is sharded, or a wrapper holds shards of the parameters
    assert "optimizer_unsharded" not in found(adam(meta={"groups.dp": "0 of 1"}))
    assert "optimizer_unsharded" not in found(adam(meta={"groups.dp": "0 of 8", "plan.sharding": "optimizer"}))
    assert "optimizer_unsharded" not in found(adam(meta={"groups.dp": "0 of 8", "model.class": "FullyShardedDataParallel"}))


def test_frozen_parameters_have_no_state() -> None:
    # GIVEN a tenth of the parameters trained, all of whose state is here THEN it is not divided; unknown which are trained, it may be
    assert "optimizer_unsharded" not in found(adam(0.1))
    f = found(records([ADAM[0], *((c, d, m, N // 10, 4 * N // 10) for c, d, m, _, _ in ADAM[1:])], world=8, peak=10 * GB,
                      meta={"groups.dp": "0 of 8", "model.trainable": str(N // 10)}))  # fmt: skip
    assert f["optimizer_unsharded"].saving == 700_000_000


def test_without_groups_the_size_of_the_job_is_a_guess() -> None:
    # GIVEN no groups THEN 8 ranks may be data parallel: a candidate; with 2 x 2 of tensors and stages known, 2 are
    assert found(adam(meta={}))["optimizer_unsharded"].candidate
    f = found(adam(meta={"groups.tp": "0 of 2", "groups.pp": "0 of 2"}))["optimizer_unsharded"]
    assert f.saving == 4 * GB and not f.candidate
    # AND beside a trace the groups stand under the capture's name
    assert not found(adam(meta={"sol_capture.groups.dp": "0 of 8"}))["optimizer_unsharded"].candidate


def test_without_a_record_of_the_optimizer_the_rule_states_what_to_record() -> None:
    assert "optimizer=optimizer" in lacking(records(world=8, meta={"groups.dp": "0 of 8"}))["optimizer_unsharded"].record_it_with


# -- embedding and head -----------------------------------------------------------------------------------------


def stage(number: int, modules_: list[str], stages: int = 4, **meta: str) -> dict[str, Finding]:
    """Each module: 131 M parameters in BF16 (262 MB), and 14 more bytes each of gradients and state told by module."""
    n = 131_072_000
    parts = [(c, d, m, n, b * n) for m in modules_ for c, d, b in (("params", "bf16", 2), ("main_grads", "fp32", 4), ("exp_avg", "fp32", 10))]
    return found(records(parts, meta={"groups.pp": f"{number} of {stages}", **meta}, world=stages, peak=20 * GB))


@pytest.mark.parametrize(("number", "modules_", "wrong"), [
    (0, ["model.embed_tokens", "lm_head"], ["lm_head"]),
    (1, ["model.embed_tokens", "lm_head"], ["model.embed_tokens", "lm_head"]),
    (3, ["model.embed_tokens", "lm_head"], ["model.embed_tokens"]),
    (3, ["model.embed_tokens"], []),  # tied: it is the head there
    (2, ["embedding.word_embeddings"], ["embedding.word_embeddings"]),
    (0, ["model.embed_tokens"], []),
    (3, ["decoder.output_layer"], []),
    (1, ["embedding.position_embeddings"], []),
    (1, ["layers.0.attention.out_proj", "layers.0.mlp.output_dense"], []),
])  # fmt: skip
def test_embeddings_and_heads_on_the_wrong_stage_are_a_finding(number: int, modules_: list[str], wrong: list[str]) -> None:
    f = stage(number, modules_).get("vocabulary_misplaced")
    assert (f is not None) == bool(wrong)
    if f is not None:
        assert f.saving == len(wrong) * 16 * 131_072_000 and all(f"`{m}`" in f.evidence for m in wrong)
        assert f"stage {number} of 0 to 3" in f.evidence


def test_a_model_of_one_stage_needs_embedding_and_head() -> None:
    assert "vocabulary_misplaced" not in stage(0, ["embed_tokens", "lm_head"], stages=1)


def test_a_whole_head_on_tensor_parallel_ranks_is_a_finding() -> None:
    # GIVEN 32,000 x 4,096 numbers on the last stage, and 2 tensor parallel ranks THEN half of the head's bytes could go
    sizes = {"plan.vocab": "32000", "plan.hidden": "4096"}
    f = stage(3, ["lm_head"], **{"groups.tp": "0 of 2", **sizes})["vocabulary_undivided"]
    assert f.saving == 8 * 131_072_000
    assert "vocabulary_undivided" not in stage(3, ["lm_head"], **{"groups.tp": "0 of 1", **sizes})
    assert "vocabulary_undivided" not in stage(3, ["lm_head"], **{"groups.tp": "0 of 2", "plan.vocab": "64000", "plan.hidden": "4096"})


# -- gradients --------------------------------------------------------------------------------------------------


def with_gradients(levels: list[int], peak: int = 1_000) -> Capture:
    """A timeline over steps of 1,000 ns; gradients as each step begins, 600 ns later none; parameters fill up to the peak."""
    rows = [(i * 1_000 + at, name, size) for i, g in enumerate(levels)
            for at, name, size in ((-5, "gradient", g), (-5, "parameter", peak - g), (600, "gradient", 0))]  # fmt: skip
    start = np.arange(len(levels)) * 1_000
    return Capture(Facts("memory_timeline", "m", 0), {
        "memory_timeline": S.MEMORY_TIMELINE.frame({
            "time_ns": [r[0] for r in rows], "device": ["cuda:0"] * len(rows), "category": [r[1] for r in rows], "bytes": [r[2] for r in rows],
        }),
        "steps": S.STEPS.frame({"number": np.arange(len(levels)), "host_start_ns": start, "host_end_ns": start + 999, "name": ["s"] * len(levels)}),
    })  # fmt: skip


@pytest.mark.parametrize(("levels", "saving"), [
    ([0, 100, 100, 100, 100, 100], 100),
    ([0, 100, 120, 110, 100, 0], 100),  # four of five
    ([0, 100, 0, 100, 0, 100], None),  # the middle of accumulated steps
    ([100, 0, 0, 0, 0, 0], None),  # before the first step is warm-up
    ([0, 19, 19, 19, 19, 19], None),  # below 2 % of the peak
    ([0, 20, 20, 20, 20, 20], 20),
])  # fmt: skip
def test_gradients_kept_between_steps_are_a_finding(levels: list[int], saving: int | None) -> None:
    f = found(with_gradients(levels)).get("gradients_kept")
    assert (f is None) == (saving is None)
    if f is not None:
        assert f.saving == saving and "set_to_none" in f.fix and not f.candidate


def test_gradients_at_the_end_of_iterations_are_a_candidate() -> None:
    # GIVEN records at the end of 4 iterations that saw 5 GB of gradients THEN it may be; main gradients are kept on purpose
    f = found(records([("grads", "bf16", "", 1, 5 * GB)], iterations=4))["gradients_kept"]
    assert f.saving == 5 * GB and f.candidate and "at the end of 3 of 3" in f.evidence
    assert "gradients_kept" not in found(records([("main_grads", "fp32", "", 1, 5 * GB), ("grads", "bf16", "", 0, 0)], iterations=4))


# -- activations ------------------------------------------------------------------------------------------------


def transformer(path: Path, layer: int, other: int, layers: int = 4, backward: bool = True) -> Capture:
    """Layers of 1 µs of kernels each, which keep `layer` bytes until the backward pass; one module that keeps `other`; 1,000 before."""
    t = TraceBuilder()
    total, address, alive = 1_000, 0, []
    t.step(1, 0, 100_000)
    for i in range(layers + 1):
        at, size = 1_000 + 2_000 * i, layer if i < layers else other
        t.module(f"Block_{i}" if i < layers else "Head_0", at, 1_800, module_id=i + 1)
        t.op("aten::mm", at + 100, 1_000, shapes=[[8, 8], [8, 8]], types=["float", "float"], sequence=i)
        t.launch("gemm", at=at + 150, start=at + 300, duration=1_000)
        if size:
            address, total = address + 1, total + size
            t.memory(at + 200, size, address=address, allocated=total, reserved=total)
            alive.append((address, size))
    if backward:
        t.op("autograd::engine::evaluate_function: MmBackward0", 30_000, 4_000, thread=99, sequence=0, forward_thread=t.thread)
        t.op("MmBackward0", 30_100, 3_000, thread=99, sequence=0, forward_thread=t.thread)
        t.op("aten::mm", 30_200, 2_000, thread=99, shapes=[[8, 8], [8, 8]], types=["float", "float"])
        t.launch("gemm", at=30_300, start=31_000, duration=2_000, thread=99)
    for number, size in alive:
        total -= size
        t.memory(40_000 + number, -size, address=number, allocated=total, reserved=total, thread=99 if backward else None)
    return ingest.read(str(t.write(path / "a.pt.trace.json")))


def test_layers_whose_activations_fill_the_peak_may_be_recomputed(tmp_path: Path) -> None:
    # GIVEN 4 blocks that keep 1,000 B each over 1,000 B that were there WHEN found THEN 3 of the 4 are freed for 4 x 1 µs of forward work
    f = found(transformer(tmp_path, 1_000, 0))["activations_recompute"]
    assert f.saving == 3_000 and f.share == 3_000 / 5_000 and f.cost_ns == pytest.approx(4_000) and f.candidate
    assert "4 layers `Block`" in f.evidence


@pytest.mark.parametrize(("layer", "other", "shown"), [
    (60, 0, False),  # 240 of 1,240 B: below a fifth
    (65, 0, True),
    (100, 1_000, False),  # 400 of 1,400: below 30 % of the activations
    (110, 1_000, True),
])  # fmt: skip
def test_few_activations_are_no_finding(tmp_path: Path, layer: int, other: int, shown: bool) -> None:
    assert ("activations_recompute" in found(transformer(tmp_path, layer, other))) == shown


def test_one_layer_or_no_backward_pass_frees_nothing(tmp_path: Path) -> None:
    assert "activations_recompute" not in found(transformer(tmp_path / "a", 1_000, 0, layers=1))
    assert "activations_recompute" not in found(transformer(tmp_path / "b", 1_000, 0, backward=False))


def test_memory_that_a_record_does_not_name_counts_as_activations() -> None:
    # GIVEN a peak of 100 GB of which 12 GB are told THEN 88 are the rest; with 85 told it is below a fifth
    assert found(records(ADAM))["activations_recompute"].saving == 88 * GB
    assert "activations_recompute" not in found(records(ADAM, peak=14 * GB))


# -- pinned memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pinned", "moved", "saving"), [
    (100, 0, None), (200, 99, 101 * MIB // 2), (200, 100, None), (127, 0, None), (128, 0, 64 * MIB), (0, 500, None),
])  # fmt: skip
def test_pinned_memory_that_no_copy_reads_is_a_finding(pinned: int, moved: int, saving: int | None) -> None:
    """pinned, moved: MiB of two iterations together; 64 MiB an iteration are worth a word."""
    copies = S.COPIES.frame({
        "iteration": [0, 1, 1], "direction": ["HtoH", "HtoH", "HtoD"], "dst_kind": ["Pinned", "Pinned", "Device"],
        "src_kind": ["Pageable", "Pageable", "Pinned"], "bytes": [pinned * MIB // 2, pinned * MIB // 2, moved * MIB], "count": [1, 1, 1],
    })  # fmt: skip
    f = found(records(copies=copies)).get("pinned_unused")
    assert (f is None) == (saving is None)
    if f is not None:
        assert f.saving == saving and f.share is None


def test_what_is_pinned_is_read_from_a_trace_too(tmp_path: Path) -> None:
    # GIVEN a step that pins 100 x 1 MiB floats and copies one tenth of it from pinned memory
    t = TraceBuilder()
    t.step(1, 0, 9_000)
    t.op("aten::_pin_memory", 100, 500, shapes=[[100, 262_144], []], types=["float", "Device"])
    t.copy("HtoD", 2_000, 500, bytes=10 * MIB, src="Pinned", dst="Device", call=(1_900, 50))
    t.memory(3_000, 100, address=1, allocated=100, reserved=100)
    f = found(ingest.read(str(t.write(tmp_path / "a.pt.trace.json"))))["pinned_unused"]
    assert f.saving == 90 * MIB and "threads" in f.evidence


def test_without_records_of_pinned_memory_the_rule_states_what_to_record() -> None:
    assert "copies=True" in lacking(records())["pinned_unused"].record_it_with


# -- all --------------------------------------------------------------------------------------------------------


def test_the_largest_comes_first_and_small_ones_are_left_out() -> None:
    # GIVEN an unsharded optimizer of 7 GB and a misplaced head of 0.8 % of the peak WHEN sorted THEN only what frees 1 % or more stands
    out = R.memory_findings(R.memory_context(adam()))[0]  # type: ignore[arg-type]
    assert out == sorted(out, key=lambda f: (f.candidate, -f.saving))
    assert all(f.share is None or f.share >= 0.01 for f in out)
    assert set(R.RULES) >= {f.rule for f in out}


def test_a_card_links_to_its_proof() -> None:
    f = found(adam())["optimizer_unsharded"]
    shown = card(f, {"memory_expected": 1})
    assert shown.rule == "memory_optimizer_unsharded" and shown.saving_bytes == 7 * GB and shown.saving_ns is None
    assert shown.link is not None and shown.link.analysis == "memory_expected" and card(f, {}).link is None


def test_memory_is_a_problem_only_where_it_ran_out_is_nearly_full_or_leaks(tmp_path: Path) -> None:
    pages = {"memory_findings": 1, "memory": 1}
    # GIVEN an unsharded optimizer alone THEN the step's pages say nothing of memory
    assert memory_section(adam(), pages) is None
    # GIVEN a leak THEN it stands first, with its link
    leaks = memory_section(training(tmp_path, [3_000] * 8), pages)
    assert leaks is not None and leaks.findings[0].rule == "memory_leak" and leaks.saves == "memory" and "3 kB per step" in _plain(leaks.subtitle)
    # GIVEN one of 16 B a step, more than 1 % of 1.5 MB in 1,000 steps, and one of 14 THEN only the first matters
    assert memory_section(training(tmp_path / "b", [16] * 8), pages) is not None
    assert memory_section(training(tmp_path / "c", [14] * 8), pages) is None
    # GIVEN an allocation that failed THEN that is said, with the finding that frees most
    c = capture_of(heaps.out_of_memory(70 * MIB, 6 * MIB), file="m")
    facts = Facts("memory_snapshot", "m", 0, devices=(DeviceProps(0, "GPU", heaps.TOTAL),), metadata=c.facts.metadata, pseudo_step=True)
    failed = memory_section(Capture(facts, c.tables), pages)
    assert failed is not None and failed.subtitle.startswith("Memory ran out") and "train.py(31)" in failed.subtitle
    assert failed.findings[0].rule == "memory_reserved_above_use"


def _plain(text: str) -> str:
    return text.replace("\u202f", " ").replace("3.00", "3")
