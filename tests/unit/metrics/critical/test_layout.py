"""Changes over the laid-out graph of a selection give what changes of the whole graph give; another scale only replays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.critical import layout as L
from tb_sol_plugin.metrics.critical.changes import Change, outcome, plan_of
from tb_sol_plugin.metrics.critical.edges import DEVICE, EVENT, HOST, LAUNCH
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.path import CLASSES, PLACE, device_classes, host_classes, path_of
from tb_sol_plugin.metrics.critical.selection import undropped
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.captures import report
from tests.support.trace_builder import TraceBuilder
from tests.unit.metrics.critical.test_prediction import PROGRAMS, recorded

CHANGED = {"kernels": DEVICE, "host": HOST, "overlap": EVENT}


def of_whole_graph(capture: Capture, change: str, scale: float) -> tuple[int, np.ndarray]:
    """The end, and ns of kernels, host code and launches on the path, by a replay and a walk over every edge of the graph."""
    graph = graph_of(capture)
    edges, nodes = graph.edges, graph.nodes
    classes = [CLASSES[k] for k in device_classes(capture)]
    on_device = np.zeros(len(edges), np.bool_)
    runs = edges.kind == DEVICE
    on_device[runs] = [classes[row].startswith("kernel") for row in nodes.device_rows(edges.target[runs])]
    host = np.isin(host_classes(capture)[nodes.inside], [PLACE[c] for c in ("host_python", "host_operator", "host_other")])
    chosen = np.zeros(len(edges), np.bool_)
    works = np.flatnonzero((edges.kind == HOST) & graph.works)
    chosen[works] = host[edges.target[works] - 1] & (nodes.inside[edges.target[works] - 1] >= 0)
    chosen = {"kernels": on_device, "host": chosen, "overlap": edges.kind == EVENT}[change]
    lag = graph.lag.copy()
    lag[chosen] = -(2**61) if change == "overlap" else np.rint(lag[chosen] * scale)
    time = graph.replay(lag)
    v = int(time.argmax())
    took = np.zeros(3, np.int64)
    while graph.binding[v] >= 0:
        into = range(int(graph.first[v]), int(graph.first[v + 1]))
        e = max(into, key=lambda e: (int(time[edges.source[e]]) + int(lag[e]), e == graph.binding[v], -e))
        for at, kind in enumerate((DEVICE, HOST, LAUNCH)):
            took[at] += int(lag[e]) if edges.kind[e] == kind else 0
        v = int(edges.source[e])
    return int(time.max()), took


@pytest.mark.parametrize("change", CHANGED)
def test_a_change_is_that_of_the_whole_graph(change: str, tmp_path: Path) -> None:
    # GIVEN programs with several streams and waits WHEN kernels, the host or waits between streams change THEN the end and what holds it are
    # those of a replay of every edge, but for the half nanosecond of each edge that is scaled
    for name, program in PROGRAMS.items():  # of each some hundred events
        capture = recorded(program, tmp_path / name)
        where = scope(capture, Query())
        for scale in (0.0, 0.3, 1.7):
            found = outcome(capture, where, (Change(change=change, scale=scale),))  # type: ignore[arg-type]
            end, took = of_whole_graph(capture, change, scale)
            assert abs(int(path_of(capture, where).end.max()) - found.saved - end) <= found.changed
            assert found.after.sum() == found.window - found.saved and found.before.sum() == found.window
            parts = [[c for c in CLASSES if c.startswith(prefix)] for prefix in (("kernel_", "communication", "copy", "memset"), ("host", "wait"))]
            parts[0].remove("kernel_gap")
            for names, ns in zip(parts, took.tolist(), strict=False):
                assert abs(int(found.after[[PLACE[c] for c in names]].sum()) - ns) <= found.changed + 1, (name, scale, names)


def test_another_scale_only_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a change that was asked for WHEN it is asked for at another scale THEN no edge of the recording is looked at again
    capture = recorded(PROGRAMS["balanced"], tmp_path)
    where = scope(capture, Query())
    looked = []
    own = L.shares_of
    monkeypatch.setattr(L, "shares_of", lambda *given: looked.append(len(given[2])) or own(*given))
    one = outcome(capture, where, (Change(item="gemm_kernel", scale=0.5),))
    assert len(looked) == 2  # of all edges once, and of those of the item
    other = outcome(capture, where, (Change(item="gemm_kernel", scale=0.1),))
    assert len(looked) == 2 and other.saved > one.saved > 0
    # AND the last few changes are kept, not all that were ever asked for
    for i in range(2 * L.KEPT):
        plan_of(capture, where, (Change(item=f"no kernel {i}"),))
    count = len(looked)
    plan_of(capture, where, (Change(item=f"no kernel {2 * L.KEPT - 1}"),))
    assert len(looked) == count
    plan_of(capture, where, (Change(item="gemm_kernel"),))
    assert len(looked) == count + 1


def test_a_moment_keeps_the_last_that_it_waits_for(tmp_path: Path) -> None:
    # GIVEN waits that are taken away WHEN a moment would wait for nothing THEN all of its own stay: it would happen before all time
    capture = recorded(PROGRAMS["balanced"], tmp_path)
    window = L.layout_of(capture, scope(capture, Query())).window
    several = int(np.flatnonzero(np.diff(window.first) > 1)[0])
    into = np.arange(window.first[several], window.first[several + 1])
    assert not len(undropped(window, into)) and len(undropped(window, into[1:])) == len(into) - 1
    assert not len(undropped(window, np.arange(len(window.lag))))


def test_kernels_at_their_limits(tmp_path: Path) -> None:
    # GIVEN a product of 4096 by 4096 in BF16 that takes 1 ms for 137 GFLOP, and a kernel of no operator WHEN all run at their limits THEN the
    # product takes 2 x 4096^3 / 989.4 TFLOP/s, 139 us, and the other kernel what it took; nothing else holds the step
    t = TraceBuilder()
    t.step(1, 0, 50_000)
    sizes = [[4096, 4096], [4096, 4096]]
    t.op("aten::mm", 1_000, 20_000, shapes=sizes, types=["c10::BFloat16"] * 2)
    t.launch("nvjet_gemm", at=5_000, start=15_000, duration=1_000_000, call_duration=2_000)
    t.launch("mine", at=30_000, start=1_015_000, duration=100_000, call_duration=2_000)
    capture = read(str(t.write(tmp_path / "w.pt.trace.json")))
    answer = report(capture, "what_if", change="roofline")
    limit = round(2 * 4096**3 / 989.4e12 * 1e9)
    assert answer.facts["dependencies"] == 1 and abs(answer.facts["saved_ns"] - (1_000_000 - limit)) <= 0.001 * limit
    assert answer.facts["saved_ns"] == answer.facts["naive_ns"] == answer.facts["first_order_ns"]
    assert "every kernel with a cost model ran at the limits of H100 SXM" in answer.headline and not answer.notices
    # AND with more changes: half of what is left of all kernels; a time that is set is that time, before or after; twice is once
    for query, saved in (
        ({"change": "roofline", "also": '[{"change": "kernels"}]'}, 1_000_000 - limit / 2 + 50_000),
        ({"change": "roofline", "also": '[{"item": "nvjet_gemm", "set_ns": 200000}]'}, 800_000),
        ({"item": "nvjet_gemm", "set_ns": "200000", "also": '[{"change": "roofline"}]'}, 800_000),
        ({"change": "roofline", "also": '[{"change": "roofline"}]'}, 1_000_000 - limit),
    ):
        more = report(capture, "what_if", **query).facts
        assert abs(more["saved_ns"] - saved) <= 0.001 * limit and more["dependencies"] == (2 if "kernels" in query["also"] else 1)
    # AND of a device that is not known it says what is missing, without shapes too
    other = report(capture, "what_if", change="roofline", device_limits="a100")
    assert other.facts["saved_ns"] != answer.facts["saved_ns"]
    bare = recorded(PROGRAMS["balanced"], tmp_path / "bare")
    none = report(bare, "what_if", change="roofline")
    assert none.facts["saved_ns"] == 0 and any("limit" in n.text for n in none.notices)
