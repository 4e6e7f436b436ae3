"""Recordings of graph captures are found beside a trace or named, and tell what its graph launches replay."""

from __future__ import annotations

import gzip
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.cli.command import main
from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.metrics.timeline.timeline import timeline_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.graph_capture import graph_sets
from tb_sol_plugin.store.cache import Cache
from tb_sol_plugin.store.load import Loader, open_here
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.scan import Heads, scan
from tests.support.graphs import LAYER, ROOT, capture_window, eager, named_call, pair, replay
from tests.support.trace_builder import TraceBuilder

TWO = (LAYER, LAYER)
PIECE = "execute_8_context_1(sq4sk4sqsq16sqsk16)_generation_4(sq4sk90sqsq4sqsk90)"


def amd() -> TraceBuilder:
    return TraceBuilder(device="AMD Instinct MI300X")


def opened(path: Path, **more: str) -> Capture:
    return sol.open_capture(str(path), cache=False, **more)  # type: ignore[arg-type]


def launches(capture: Capture) -> list[dict[str, object]]:
    return capture.tables["graph_launches"].astype(object).to_dict("records")  # type: ignore[return-value]


def operators(capture: Capture) -> dict[str, tuple[int, int]]:
    """Calls and own device time by operator; device time of none under its row."""
    table = capture.analyze("operators").table("operators")
    return {r["name"]: (r["calls"], r["device_self_ns"]) for r in table.to_dict("records")}


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """Two decode iterations of two layers beside the recording of their capture."""
    captured, replayed = amd(), amd()
    capture_window(captured, TWO, 0)
    replay(replayed, TWO, 0, 10_000)
    replay(replayed, TWO, 30_000, 40_000)
    return pair(tmp_path / "run", captured, replayed, details=[{"file": "graph_capture_rank_0.pt.trace.json", "batch_size": 8, "mode": "FULL"}])


def test_replayed_events_take_operator_sizes_and_module_of_what_was_captured(both: Path) -> None:
    # GIVEN two replays of one graph WHEN the trace is opened
    c = opened(both)
    # THEN both launches are aligned in order, and every event has the operator of its own launch
    assert [(r["how"], r["events"], r["captured_batch"], r["mode"]) for r in launches(c)] == [(0, 6, 8, "FULL")] * 2
    assert operators(c) == {
        "aten::mm": (4, 12_000), "vllm::unified_attention_with_output": (4, 8_000), "aten::add": (4, 4_000),
    }  # fmt: skip
    modules = c.analyze("modules").table("modules")
    assert {r["name"]: (r["calls"], r["device_total_ns"]) for r in modules.to_dict("records")} == {"Layer_0": (2, 12_000), "Layer_1": (2, 12_000)}
    gemm = c.analyze("roofline").table("ops").set_index("name").loc["aten::mm"]
    assert gemm["flop"] == 4 * 2 * 8 * 64 * 64
    # and no sum changes: the same kernels, calls and busy time as without, and no time on the host
    plain = sol.open_capture(str(both.rename(both.parent.parent / "alone.pt.trace.json")), cache=False)
    for name in ("devices", "steps"):
        tables = [x.analyze("gpu_breakdown" if name == "devices" else name).table(name) for x in (c, plain)]
        same = [n for n in tables[0] if n.endswith("_ns") and n != "sol_ns"]
        assert len(same) > 6 and tables[0][same].equals(tables[1][same])
    for column in ("name", "duration_ns", "start_ns", "graph", "step", "bytes"):
        assert c.device[column].tolist() == plain.device[column].tolist()
    assert c.host["duration_ns"].sum() == plain.host["duration_ns"].sum()
    assert bool((plain.device["operator"] < 0).all())


def test_replayed_kernels_take_the_blocks_of_their_launch_and_tell_the_width_of_experts(tmp_path: Path) -> None:
    # GIVEN a captured layer of 64 experts, 2 per token of 64 columns, whose two products started 32 and 16 blocks, of 128 columns each
    kernels = [(f"_matmul_ogs_NNT_bf16xbf16xbf16_16x128x64x1{gate}", blocks) for gate, blocks in (("_swiglu", 32), ("", 16))]
    captured, replayed = amd(), amd()
    captured.annotation("capture_8_FULL", 0, 5_000)
    captured.call("hipStreamBeginCapture", 100, 50)
    captured.op("vllm::moe_forward", 500, 2_000, shapes=[[8, 64], [8, 64]], types=["c10::BFloat16"] * 2)
    for k, (name, blocks) in enumerate(kernels):
        named_call(captured, name, 600 + 500 * k, grid=(blocks, 1, 1))
    captured.call("hipStreamEndCapture", 4_000, 50)
    replay(replayed, [[("", name, 1_000) for name, _ in kernels]], 0, 10_000)
    for event in replayed.events[1:]:  # the recorder of replays writes none
        event["args"] = {k: v for k, v in (event.get("args") or {}).items() if k not in ("grid", "block")}  # type: ignore[attr-defined]
    # WHEN the trace is opened beside it THEN its kernels have these blocks
    c = opened(pair(tmp_path / "run", captured, replayed))
    assert c.device["grid"].tolist() == ["[32,1,1]", "[16,1,1]"] and set(c.device["block"]) == {"[256,1,1]"}
    # AND 16 blocks of rows leave 130 to 256 columns for the first product, 2 T k D (H1 + H1 / 2) FLOP at least
    (row,) = c.analyze("roofline").table("ops").to_dict("records")
    assert (row["name"], row["flop"], row["measured_ns"]) == ("vllm::moe_forward", 2 * 16 * 64 * (130 + 65), 2_000)


def test_rows_of_the_capture_stand_below_the_launch(both: Path) -> None:
    # GIVEN a merged trace THEN its host table is a tree in preorder, and the stack of the launch stands above that of the capture
    c = opened(both)
    host = c.host
    parent, end, start, depth = (host[n].to_numpy() for n in ("parent", "end", "start_ns", "depth"))
    for row in range(len(host)):
        assert parent[row] < row < end[row] <= len(host)
        if parent[row] >= 0:
            assert end[row] <= end[parent[row]] and depth[row] == depth[parent[row]] + 1 and start[row] >= start[parent[row]]
    row, names = int(c.tables["replays"]["origin"].iloc[-1]), []
    while row >= 0:
        names.append(host["name"].iloc[row])
        row = int(parent[row])
    assert names == ["aten::add", "nn.Module: Layer_1", "hipGraphLaunch", ROOT]
    assert set(host["name"].iloc[c.device["call"]].astype(str)) == {"hipGraphLaunch"} and bool(c.device["graph"].all())


def test_of_a_recording_of_captures_the_rows_of_its_graphs_are_kept(tmp_path: Path) -> None:
    # GIVEN a capture of two layers between 50 operators and launches of another kind
    captured = amd()
    for k in range(50):
        captured.op(f"aten::other_{k}", 1_000 * k, 500, shapes=[[k]], types=["float"])
        named_call(captured, f"other_{k}", 1_000 * k + 100)
    capture_window(captured, TWO, 100_000)
    # WHEN its graphs are found THEN of its host rows there are those around their launches, and these: 6 calls, 6 operators, 2 modules
    (one,), lost = graph_sets(opened(captured.write(tmp_path / "w.pt.trace.json")), "w")
    names = one.capture.host["name"]
    assert lost == 0 and len(names) == 14 and not [n for n in names.cat.categories if "other" in str(n)]
    (graph,) = one.graphs
    assert names.iloc[graph.calls].tolist() == ["hipModuleLaunchKernel"] * 6
    assert names.iloc[graph.rows[graph.around]].tolist() == [operator for layer in TWO for operator, _, _ in layer]
    assert [len(one.capture.tables[t]) for t in ("operators", "calls")] == [6, 6]


def test_a_folder_of_captures_is_no_run_and_the_list_says_what_it_is_for(both: Path) -> None:
    # GIVEN the logdir WHEN it is scanned
    listing = scan(single(str(both.parent.parent)), StoreOptions(), Heads({}))
    # THEN there is one run of one recording, and the list of files says what the others were taken for
    assert {run: [r.file for r in own] for run, own in listing.runs.items()} == {"run": ["run/rank0.pt.trace.json"]}
    said = {r.file: (r.what, r.note) for r in listing.rejected}
    assert said["run/capture_traces/graph_capture_rank_0.pt.trace.json"] == (
        "a recording of graph captures", "tells what the graph launches of run run replay; no run of its own",
    )  # fmt: skip
    assert said["run/capture_traces/execution_details.json"][0] == "a list of graph captures"
    # and a server joins it as well, read in its own processes' way and let go when it changes
    loader = Loader(StoreOptions(cache_dir=str(both.parent.parent / "cache")), ThreadPoolExecutor(1))
    (recording,) = listing.runs["run"]
    found = loader.capture(recording, 60.0, recordings=[recording])
    assert len(found.tables["replays"]) == 12 and loader.capture(recording, 60.0, recordings=[recording]) is found
    loader.close()
    # and captures alone are recordings like any other
    alone = scan(single(str(both.parent / "capture_traces")), StoreOptions(), Heads({}))
    assert len(alone.runs) == 1


def test_a_trace_that_was_joined_is_kept_and_no_capture_is_read_for_it_again(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a server that has joined a capture, with its cache
    logdir = both.parent.parent
    options = StoreOptions(cache_dir=str(logdir / "cache"))
    (recording,) = scan(single(str(logdir)), options, Heads({})).runs["run"]
    first = open_here(recording, options, recordings=[recording])
    # WHEN another one opens the trace, where captures can neither be read nor aligned
    capture_file = both.parent / "capture_traces" / "graph_capture_rank_0.pt.trace.json"
    changed = capture_file.stat().st_mtime
    capture_file.unlink()
    monkeypatch.setattr("tb_sol_plugin.model.graph_join.with_graphs", None)
    loader = Loader(options, ThreadPoolExecutor(1))
    second = loader.capture(recording, 60.0, recordings=[recording])
    # THEN it has the same tables, mapped from the disk
    for name, table in first.tables.items():
        assert second.tables[name].astype(object).equals(table.astype(object)), name
    assert second.facts == first.facts and len(second.tables["replays"]) == 12 and second.run == "run"
    origin = first.tables["replays"]["origin"].tolist()
    # AND an entry that is changed in place is found out and made anew, as any other
    monkeypatch.undo()
    capture_window(other := amd(), TWO, 0)
    other.write(capture_file)
    os.utime(capture_file, (changed, changed))
    cache = Cache(logdir / "cache")
    (kept,) = (p for p in (logdir / "cache").glob("*/tables.arrow") if "replays" in cache._contents(p.parent.name).tables)
    kept.write_bytes(b"x" * kept.stat().st_size)
    third = loader.capture(recording, 60.0, recordings=[recording])
    assert third is not second and third.tables["replays"]["origin"].tolist() == origin
    loader.close()


def test_captures_that_are_named(both: Path) -> None:
    # GIVEN a capture elsewhere WHEN it is named, as a file or by its folder THEN it is used; what is not there is said
    folder = both.parent / "capture_traces"
    elsewhere = folder.rename(both.parent.parent / "elsewhere")
    assert not len(opened(both).tables["graph_launches"])
    for named in (elsewhere, elsewhere / "graph_capture_rank_0.pt.trace.json"):
        assert [r["how"] for r in launches(opened(both, capture=str(named)))] == [0, 0]
        assert [r["how"] for r in launches(sol.open(str(both.parent), cache=False, capture=str(named)).captures[0])] == [0, 0]
    with pytest.raises(BadInput, match="no such file"):
        opened(both, capture=str(both.parent / "nowhere"))
    (both.parent / "empty").mkdir()
    with pytest.raises(BadInput, match="no recording of graph captures"):
        opened(both, capture=str(both.parent / "empty"))


def test_pieces_go_in_order_and_work_between_them_stays_eager(tmp_path: Path) -> None:
    # GIVEN two pieces captured for a batch of 8, and an iteration of 8 tokens with an eager kernel between its two launches
    captured, replayed = amd(), amd()
    after = capture_window(captured, [LAYER], 0, mode="PIECEWISE")
    capture_window(captured, [LAYER[:2]], after, mode="PIECEWISE")
    replayed.annotation(PIECE, 0, 60_000)
    replay(replayed, [LAYER], 0, 10_000, root="")
    replayed.op("aten::eager", 20_000, 1_000)
    replayed.launch("eager", at=20_100, start=20_500, duration=700)
    replay(replayed, [LAYER[:2]], 30_000, 40_000, root="")
    # WHEN both are read
    c = opened(pair(tmp_path, captured, replayed))
    # THEN each launch has its piece and the eager kernel its own operator
    assert [(r["how"], r["events"], r["mode"]) for r in launches(c)] == [(0, 3, "PIECEWISE"), (0, 2, "PIECEWISE")]
    assert operators(c) == {
        "aten::mm": (2, 6_000), "vllm::unified_attention_with_output": (2, 4_000), "aten::add": (1, 1_000), "aten::eager": (1, 700),
    }  # fmt: skip


def test_the_smallest_captured_batch_that_holds_the_iteration_is_taken(tmp_path: Path) -> None:
    # GIVEN graphs of the same kernels for 4, 16 and 32, and an iteration of 8 WHEN they are read THEN sizes are those of 16
    captured, replayed = amd(), amd()
    at = 0
    for batch in (32, 4, 16):
        at = capture_window(captured, TWO, at, batch=batch)
    replay(replayed, TWO, 0, 10_000)
    c = opened(pair(tmp_path, captured, replayed))
    assert [(r["batch"], r["captured_batch"]) for r in launches(c)] == [(8, 16)]
    assert c.analyze("roofline").table("ops").set_index("name").loc["aten::mm", "flop"] == 2 * 2 * 16 * 64 * 64


def test_without_annotation_or_list_the_batch_is_estimated_from_the_operators(tmp_path: Path) -> None:
    captured, replayed = amd(), amd()
    capture_window(captured, TWO, 0, batch=12, annotated=False)
    replay(replayed, TWO, 0, 10_000)
    assert [(r["how"], r["captured_batch"]) for r in launches(opened(pair(tmp_path, captured, replayed)))] == [(0, 12)]


# -- what ran eagerly stands in for a capture --------------------------------------------------------------------------


def unnamed(t: TraceBuilder, at: int, calls: int, *, batch: int = 8, mode: str = "FULL") -> int:
    """A stream capture as CUPTI records it: its calls do not say which kernel they launch."""
    t.annotation(f"capture_{batch}_{mode}", at, 1_000 * calls + 3_000)
    t.call("cudaStreamBeginCapture", at + 100, 50)
    for k in range(calls):
        named_call(t, "", at + 500 + 1_000 * k, api="cudaLaunchKernel")
    t.call("cudaStreamEndCapture", at + 1_000 * calls + 1_000, 50)
    return at + 1_000 * calls + 5_000


def test_the_warm_up_before_a_capture_names_what_its_graph_replays(tmp_path: Path) -> None:
    # GIVEN a capture on CUDA for 8 requests, whose calls name no kernel, behind two warm-up runs of what it captures and one for 16
    captured, replayed = TraceBuilder(), TraceBuilder()
    at = unnamed(captured, eager(captured, TWO, 0, 1_000, batch=16), 6, batch=16)
    at = unnamed(captured, eager(captured, TWO, eager(captured, TWO, at, at + 1_000), at + 20_000), 6)
    replay(replayed, TWO, 0, 10_000)
    # WHEN both are read
    c = opened(pair(tmp_path / "run", captured, replayed))
    # THEN the replay has the operators, modules and sizes of that warm-up: 2 x 8 x 64 x 64 FLOP each
    (one,) = launches(c)
    assert (one["how"], one["eager"], one["captured_batch"], one["mode"]) == (1, True, -1, "")
    assert operators(c) == {
        "aten::mm": (2, 6_000), "vllm::unified_attention_with_output": (2, 4_000), "aten::add": (2, 2_000),
    }  # fmt: skip
    assert c.analyze("roofline").table("ops").set_index("name").loc["aten::mm", "flop"] == 2 * 2 * 8 * 64 * 64
    assert {r["name"] for r in c.analyze("modules").table("modules").to_dict("records")} == {"Layer_0", "Layer_1"}
    # AND the page says that they are from an eager run
    notices = [n.text for n in c.analyze("serving").notices]
    assert any("from the eager run graph_capture_rank_0" in text for text in notices)
    assert c.analyze("health").table("graphs")["named_by"].tolist() == ["eager run"]


def test_the_warm_up_before_pieces_names_each_of_them(tmp_path: Path) -> None:
    # GIVEN a capture on CUDA of pieces for 16 and for 8 tokens, each batch behind two eager runs of the model: layers with other attention between
    def other(k: int) -> tuple[tuple[str, str, int], ...]:
        return (("vllm::unified_attention_with_output", f"attention_{k}", 900),)

    first, middle, last = (("aten::embedding", "embed", 400), LAYER[0]), LAYER[::2], (LAYER[2], ("aten::mm", "head", 700))
    model = (first, other(0), middle, other(1), middle, other(2), last)
    captured, replayed = TraceBuilder(), TraceBuilder()
    at = 0
    for batch in (16, 8):
        for _ in range(2):
            at = eager(captured, model, at, at + 1_000, batch=batch) + 20_000
        for _ in range(4):
            at = unnamed(captured, at, 2, batch=batch, mode="PIECEWISE")
    # WHEN an iteration of 8 tokens replays them, with another attention launched between
    replayed.annotation(PIECE, 0, 190_000)
    for k, piece in enumerate((first, middle, middle, last)):
        replay(replayed, [piece], 40_000 * k, 10_000 + 40_000 * k, root="")
        replayed.op("vllm::unified_attention_with_output", 40_000 * k + 8_000, 1_000)
        replayed.launch("flash", at=40_000 * k + 8_100, start=40_000 * k + 25_000, duration=5_000)
    c = opened(pair(tmp_path / "run", captured, replayed))
    # THEN every piece has its operators and modules, of the sizes of that batch, and the attention its own
    assert [(r["how"], r["eager"], r["events"]) for r in launches(c)] == [(1, True, 2)] * 4
    assert operators(c) == {
        "aten::embedding": (1, 400), "aten::mm": (4, 9_700), "aten::add": (3, 3_000), "vllm::unified_attention_with_output": (4, 20_000),
    }  # fmt: skip
    assert {r["name"] for r in c.analyze("modules").table("modules").to_dict("records")} >= {"Layer_0", "Layer_2", "Layer_4", "Layer_6"}
    assert c.analyze("roofline").table("ops").set_index("name").loc["aten::mm", "flop"] == 4 * 2 * 8 * 64 * 64


def test_an_iteration_without_graphs_stands_in_for_a_capture(tmp_path: Path) -> None:
    # GIVEN the same program recorded with its graphs off, with kernels before and behind the layers, and named
    without, replayed = TraceBuilder(), TraceBuilder()
    for k in range(3):
        without.annotation(ROOT, 50_000 * k, 20_000)
        end = eager(without, [(("aten::copy_", "prepare", 500),), *TWO, (("aten::argmax", "sample", 500),)], 50_000 * k + 100, 50_000 * k + 1_000)
        assert end < 50_000 * k + 20_000
    replay(replayed, TWO, 0, 10_000)
    other = without.write(tmp_path / "other" / "eager.pt.trace.json")
    path = replayed.write(tmp_path / "run" / "rank0.pt.trace.json")
    c = opened(path, capture=str(other))
    # THEN its operators are those of one such iteration, marked as from an eager run
    assert [(r["how"], r["eager"], r["file"]) for r in launches(c)] == [(1, True, "eager.pt.trace.json")]
    assert operators(c)["aten::mm"] == (2, 6_000)
    # AND launches in no iteration are each looked up by themselves: they need not belong together
    bare = TraceBuilder()
    for k in range(2):
        replay(bare, TWO, 30_000 * k, 10_000 + 30_000 * k, root="")
    alone = opened(bare.write(tmp_path / "bare" / "rank0.pt.trace.json"), capture=str(other))
    assert [(r["how"], r["eager"], r["events"]) for r in launches(alone)] == [(1, True, 6)] * 2
    # AND beside a capture that agrees the capture is used
    captured = TraceBuilder(device="AMD Instinct MI300X")
    capture_window(captured, TWO, 0)
    captured.write(path.parent / "capture_traces" / "graph_capture_rank_0.pt.trace.json")
    assert [r["eager"] for r in launches(opened(path))] == [False]


def test_what_ran_eagerly_names_nothing_where_it_proves_nothing(tmp_path: Path) -> None:
    # GIVEN an eager run in which the replayed kernels stand far apart; pieces; other kernels WHEN they are read THEN nothing is named
    without = TraceBuilder()
    without.annotation(ROOT, 0, 90_000)
    eager(without, [LAYER, *[(("aten::relu", "relu", 100),)] * 20, LAYER], 100, 1_000)
    other = without.write(tmp_path / "other" / "eager.pt.trace.json")
    for name, layers, many, said in (
        ("far", TWO, 1, "agree"), ("pieces", [LAYER], 2, "where each begins"), ("pair", [LAYER[:1]], 2, "where each begins"), ("strange", [(("aten::exp", "exp", 5),)], 1, "has its names"),
    ):  # fmt: skip
        replayed = TraceBuilder()
        if many == 2:
            replayed.annotation(ROOT, 0, 60_000)
        for k in range(many):
            replay(replayed, layers, 30_000 * k, 10_000 + 30_000 * k, root=ROOT if many == 1 else "")
        c = opened(replayed.write(tmp_path / name / "rank0.pt.trace.json"), capture=str(other))
        assert [r["how"] for r in launches(c)] == [-1] * many and bool((c.device["operator"] < 0).all())
        assert said in " ".join([*c.facts.warnings, *(str(r["why"]) for r in launches(c)), *(n.text for n in c.analyze("serving").notices)])


# -- what cannot be used ------------------------------------------------------------------------------------------------


def warned(capture: Capture) -> str:
    return " | ".join(capture.facts.warnings)


def test_a_capture_that_was_cut(tmp_path: Path) -> None:
    # GIVEN a recording that ends in the middle of its second stream capture THEN the complete one serves, and the other is told of
    captured, replayed = amd(), amd()
    after = capture_window(captured, TWO, 0)
    capture_window(captured, TWO, after, batch=16, ended=False)
    replay(replayed, TWO, 0, 10_000)
    c = opened(pair(tmp_path, captured, replayed))
    assert [r["how"] for r in launches(c)] == [0]
    assert "graph_capture_rank_0.pt.trace.json: 1 of its stream captures have no end" in warned(c) and "record the captures as a whole" in warned(c)


def test_two_models_in_one_recording_are_told_apart_by_names(tmp_path: Path) -> None:
    other = (("aten::relu", "relu", 500),)
    captured, replayed = amd(), amd()
    after = capture_window(captured, [other], 0)
    capture_window(captured, TWO, after)
    replay(replayed, TWO, 0, 10_000)
    replay(replayed, [other], 50_000, 60_000)
    c = opened(pair(tmp_path, captured, replayed))
    assert [r["how"] for r in launches(c)] == [0, 0] and operators(c)["aten::relu"] == (1, 500)


def test_a_graph_that_was_never_captured_in_the_file(tmp_path: Path) -> None:
    # GIVEN a capture of another model THEN nothing of it is used, no sum changes, and the first difference is named
    captured, replayed = amd(), amd()
    capture_window(captured, [(LAYER[0], ("aten::relu", "relu", 500))], 0)
    replay(replayed, TWO, 0, 10_000)
    c = opened(pair(tmp_path, captured, replayed))
    (one,) = launches(c)
    assert one["how"] == -1 and one["rows"] == 0 and bool((c.device["operator"] < 0).all())
    assert "the first 1 of its 6 events have the names of the FULL graph for batch 8 in graph_capture_rank_0.pt.trace.json" in str(one["why"])
    assert "then 'attention' was replayed where 'relu' was captured" in str(one["why"])
    assert "not used: graph_capture_rank_0.pt.trace.json: none of the 1 graph launches here has its names" in warned(c)


def test_an_order_of_another_version_is_not_taken_by_position(tmp_path: Path) -> None:
    # GIVEN as many launches as events, of other names THEN they are not aligned
    captured, replayed = amd(), amd()
    capture_window(captured, [tuple((o, k + "_v2", d) for o, k, d in LAYER)], 0)
    replay(replayed, [LAYER], 0, 10_000)
    (one,) = launches(opened(pair(tmp_path, captured, replayed)))
    assert one["how"] == -1 and "then 'gemm' was replayed where 'gemm_v2' was captured" in str(one["why"])


def test_a_batch_larger_than_any_captured(tmp_path: Path) -> None:
    captured, replayed = amd(), amd()
    capture_window(captured, TWO, 0, batch=4)
    replay(replayed, TWO, 0, 10_000)
    (one,) = launches(opened(pair(tmp_path, captured, replayed)))
    assert one["how"] == -1 and one["why"] == "its batch of 8 is larger than any that was captured, 4 at most"


def test_pieces_and_launches_whose_counts_differ(tmp_path: Path) -> None:
    captured, replayed = amd(), amd()
    after = capture_window(captured, [LAYER], 0, mode="PIECEWISE")
    capture_window(captured, [LAYER], after, mode="PIECEWISE")
    replay(replayed, [LAYER], 0, 10_000)
    (one,) = launches(opened(pair(tmp_path, captured, replayed)))
    assert one["how"] == -1 and one["why"] == "its iteration launches 1 graphs where 2 pieces were captured for batch 8"


def test_numbers_of_an_iteration_that_exclude_each_other(tmp_path: Path) -> None:
    # GIVEN an annotation whose batch is unknown and graphs of two batches with the same names THEN none is guessed
    captured, replayed = amd(), amd()
    capture_window(captured, TWO, capture_window(captured, TWO, 0), batch=16)
    replay(replayed, TWO, 0, 10_000, root="execute_4_context_0(sq0sk0)_generation_9(sq9sk9)")
    (one,) = launches(opened(pair(tmp_path, captured, replayed)))
    assert one["batch"] == -1 and one["why"] == "graphs of batches 8 and 16 have its names, and no iteration tells its batch"


def test_a_graph_inside_a_graph(tmp_path: Path) -> None:
    captured, replayed = amd(), amd()
    capture_window(captured, [LAYER], 0)
    captured.call("hipGraphLaunch", 3_400, 50)
    replay(replayed, TWO, 0, 10_000)
    (one,) = launches(opened(pair(tmp_path, captured, replayed)))
    assert one["how"] == -1 and "1 other graphs were launched while it was captured" in str(one["why"])


def test_calls_that_do_not_name_their_kernels(tmp_path: Path) -> None:
    # GIVEN a recorder of calls (CUPTI) that does not write kernels THEN it says so
    captured, replayed = amd(), amd()
    capture_window(captured, [tuple((o, "", d) for o, _, d in LAYER)], 0)
    replay(replayed, [LAYER], 0, 10_000)
    (one,) = launches(opened(pair(tmp_path, captured, replayed)))
    assert one["how"] == -1 and "does not name the kernels" in str(one["why"])


@pytest.mark.parametrize(("details", "said"), [("{", "no JSON"), ("{}", "no list of")])
def test_a_list_of_captures_that_is_none(tmp_path: Path, details: str, said: str) -> None:
    captured, replayed = amd(), amd()
    capture_window(captured, TWO, 0)
    replay(replayed, TWO, 0, 10_000)
    c = opened(pair(tmp_path, captured, replayed, details=details))
    assert [r["how"] for r in launches(c)] == [0] and f"execution_details.json: {said}" in warned(c)


def test_a_capture_that_cannot_be_read_hides_nothing(tmp_path: Path) -> None:
    captured, replayed = amd(), amd()
    capture_window(captured, TWO, 0)
    replay(replayed, TWO, 0, 10_000)
    path = pair(tmp_path, captured, replayed)
    (tmp_path / "capture_traces" / "graph_capture_rank_0.pt.trace.json").write_text("nothing")
    c = opened(path)
    assert len(c.device) == 6 and "graph_capture_rank_0.pt.trace.json: " in warned(c)


def test_only_the_captures_of_its_own_rank_are_opened(tmp_path: Path) -> None:
    # GIVEN captures of two ranks, that of the other one with other operators THEN rank 1 takes its own
    replayed, mine, other = amd(), amd(), amd()
    capture_window(mine, TWO, 0)
    capture_window(other, [tuple((f"{o}_0", k, d) for o, k, d in LAYER)] * 2, 0)
    replay(replayed, TWO, 0, 10_000)
    for rank, one in ((0, other), (1, mine)):
        one.write(tmp_path / "capture_traces" / f"graph_capture_rank_{rank}.pt.trace.json")
    c = opened(replayed.write(tmp_path / "host_rank1.pt.trace.json"))
    assert set(operators(c)) == {"aten::mm", "vllm::unified_attention_with_output", "aten::add"}


def test_copies_and_sets_are_aligned_by_kind(tmp_path: Path) -> None:
    # GIVEN a captured copy and a captured set THEN they are one, whatever direction the replay has
    captured, replayed = amd(), amd()
    captured.annotation("capture_8_FULL", 0, 9_000)
    captured.call("hipStreamBeginCapture", 100, 50)
    captured.op("aten::copy_", 1_000, 500)
    named_call(captured, "", 1_100, api="hipMemcpyAsync")
    captured.op("aten::zero_", 2_000, 500)
    named_call(captured, "", 2_100, api="hipMemsetAsync")
    captured.call("hipStreamEndCapture", 8_000, 50)
    replayed.annotation(ROOT, 0, 9_000)
    correlation = replayed.call("hipGraphLaunch", 1_000, 500)
    replayed.copy("DtoD", 10_000, 300, bytes=64, correlation=correlation)
    replayed.memset(11_000, 200, bytes=64, correlation=correlation)
    c = opened(pair(tmp_path, captured, replayed))
    assert operators(c) == {"aten::copy_": (1, 300), "aten::zero_": (1, 200)} and launches(c)[0]["how"] == 0
    assert c.device["kind"].tolist() == [S.MEMCPY, S.MEMSET]


# -- what pages say ------------------------------------------------------------------------------------------------------


def test_health_counts_launches_by_batch_and_shows_the_first_difference(tmp_path: Path) -> None:
    # GIVEN two launches of a captured graph and one of another WHEN health is asked for
    captured, replayed = amd(), amd()
    capture_window(captured, TWO, 0)
    for k in range(2):
        replay(replayed, TWO, 30_000 * k, 10_000 + 30_000 * k)
    replay(replayed, [(("aten::relu", "relu", 500),)], 90_000, 95_000)
    report = opened(pair(tmp_path, captured, replayed)).analyze("health")
    # THEN they stand apart, with their device time
    rows = report.table("graphs").to_dict("records")
    assert [(r["launches"], r["events"], r["device_ns"], r["aligned"]) for r in rows] == [(2, 12, 24_000, "in order"), (1, 1, 500, "no")]
    assert "then 'relu' was replayed where 'gemm' was captured" in rows[1]["why"]
    texts = [n.text for n in report.notices]
    assert any("What 2 of 3 graph launches replayed has operators, sizes and modules from the capture graph_capture_rank_0" in t for t in texts)
    assert any("1 of 3 graph launches agree with no capture" in t and "same version" in t for t in texts)


def test_without_a_capture_the_page_says_how_to_record_one(tmp_path: Path) -> None:
    # GIVEN replays of an engine, most of the device time, and no capture THEN the share is told, and the option of that engine
    for root, said in ((ROOT, "run capture_model()"), ("step[DECODE bs=8]", "--enable-profile-cuda-graph"), ("decode[bs=8]", "--enable-capture-profiling")):
        t = amd()
        t.op("aten::mm", 0, 900, shapes=[[8, 64], [64, 64]], types=["float", "float"])
        t.launch("eager", at=100, start=2_000, duration=700)
        replay(t, TWO, 10_000, 20_000, root=root)
        texts = [n.text for n in opened(t.write(tmp_path / said[:4] / "w.pt.trace.json")).analyze("overview").notices]
        assert any("of the device time is in replayed graphs" in text and said in text and "capture_traces" in text for text in texts)


def test_a_recording_of_captures_alone_has_no_speed_of_light(tmp_path: Path) -> None:
    # GIVEN one kernel that ran and six that were captured THEN no limit of the one is set against the time of all
    t = amd()
    t.op("aten::mm", 0, 900, shapes=[[8, 64], [64, 64]], types=["float", "float"])
    t.launch("gemm", at=100, start=500, duration=700)
    capture_window(t, TWO, 2_000)
    report = opened(t.write(tmp_path / "w.pt.trace.json")).analyze("overview")
    assert "6 launches became nodes of graphs and did not run" in report.headline and "same work" not in report.headline


def test_too_many_frames_are_left_out_and_operators_stay(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN more rows of captured graphs than are kept WHEN the trace is opened THEN python frames are left out, and it is said
    captured = amd()
    captured.frame("model.py(7): forward", 400, 90_000)
    capture_window(captured, TWO, 0)
    captured.frame("layer.py(9): forward", 560, 2_000)
    captured.write(both.parent / "capture_traces" / "graph_capture_rank_0.pt.trace.json")
    whole = opened(both)
    monkeypatch.setattr("tb_sol_plugin.model.graph_join.MOST_ROWS", 10)
    c = opened(both)
    assert [r["rows"] for r in launches(whole)] == [10, 10] and [r["rows"] for r in launches(c)] == [8, 8]
    assert operators(c) == operators(whole) and "4 Python frames of captured graphs are left out" in warned(c)
    # AND where even these are too many, later launches keep no names
    monkeypatch.setattr("tb_sol_plugin.model.graph_join.MOST_WITHOUT_FRAMES", 10)
    c = opened(both)
    assert [(r["how"], r["rows"]) for r in launches(c)] == [(0, 8), (-1, 0)] and "are not kept" in str(launches(c)[1]["why"])


def test_the_timeline_shows_rows_of_a_capture_below_the_launch_and_an_export_leaves_them_out(both: Path, tmp_path: Path) -> None:
    # GIVEN a merged trace THEN its lanes are no deeper for the stacks of the capture, and its export holds the events of the file alone
    c = opened(both)
    built = timeline_of(c, "process")
    host = next(track for track in built.tracks if track.kind == "thread")
    assert host.lanes == 3  # the iteration, the launch, and what was captured
    out = tmp_path / "export.json"
    assert main(["export", "timeline", str(both), "-o", str(out), "--no-cache"]) == 0
    plain = json.loads(both.read_text())
    written = [e["name"] for e in json.loads(gzip.decompress(out.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    assert sorted(written) == sorted(e["name"] for e in plain["traceEvents"] if e.get("ph") == "X")


def test_host_events_of_a_merged_trace_are_those_of_its_file(both: Path) -> None:
    # GIVEN a merged trace THEN what comes from the capture is no event of the file
    plain = json.loads(both.read_text())["traceEvents"]
    hosts = [e for e in plain if e["ph"] == "X" and e["cat"] in ("user_annotation", "cuda_runtime")]
    assert opened(both).analyze("health").facts["host_events"] == len(hosts)


def test_doctor_names_what_is_read_together(both: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a trace with its captures WHEN doctor looks at the logdir THEN it names both, and what the files were taken for
    monkeypatch.setenv("COLUMNS", "400")  # no line is broken, however long the folder's name is
    assert main(["doctor", str(both.parent.parent)]) == 0
    out = capsys.readouterr().out
    assert "trace + graph capture" in " ".join(out.split()) and "a recording of graph captures" in " ".join(out.split())


def test_captures_that_change_are_joined_anew(both: Path) -> None:
    # GIVEN a server that has joined a capture WHEN the capture is replaced by that of another model, and then goes
    logdir = both.parent.parent
    loader = Loader(StoreOptions(cache_dir=str(logdir / "cache")), ThreadPoolExecutor(1))

    def now() -> Capture:
        loader.forget_errors()  # as a scan does
        (recording,) = scan(single(str(logdir)), StoreOptions(), Heads({})).runs["run"]
        return loader.capture(recording, 60.0, recordings=[recording])

    first = now()
    other = amd()
    capture_window(other, [(("aten::relu", "relu", 500),)], 0)
    other.write(both.parent / "capture_traces" / "graph_capture_rank_0.pt.trace.json")
    second = now()
    for path in (both.parent / "capture_traces").iterdir():
        path.unlink()
    third = now()
    # THEN each time the trace has what its captures say now, from its own rows
    assert [len(c.tables["replays"]) for c in (first, second, third)] == [12, 0, 0]
    assert [len(c.host) for c in (second, third)] == [len(first.host) - 16] * 2
    assert "not used" in warned(second) and not warned(third)
    loader.close()
