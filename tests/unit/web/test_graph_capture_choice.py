"""A reader of the page chooses what names the kernels that graph launches replay; the address says which."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.graphs import LAYER, ROOT, capture_window, eager, pair, replay
from tests.support.trace_builder import TraceBuilder

BESIDE = "run/capture_traces/graph_capture_rank_0.pt.trace.json"
OTHER = "second/capture_traces/graph_capture_rank_0.pt.trace.json"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FlaskClient]:
    """`run`: two ranks that replay a layer, beside the capture of rank 0. `second`: other names of operators for the same kernels. `eager`:
    the layer without graphs."""
    for run, prefix in (("run", ""), ("second", "second::")):
        captured, replayed = TraceBuilder(), TraceBuilder()
        capture_window(captured, [[(prefix + o, k, d) for o, k, d in LAYER]], 0)
        replay(replayed, [LAYER], 0, 10_000)
        pair(tmp_path / "logs" / run, captured, replayed)
    replay(t := TraceBuilder(), [LAYER], 0, 10_000)
    t.write(tmp_path / "logs" / "run" / "rank1.pt.trace.json")
    without = TraceBuilder()
    without.annotation(ROOT, 0, 20_000)
    eager(without, [[("eager::" + o, k, d) for o, k, d in LAYER]], 100, 1_000)
    without.write(tmp_path / "logs" / "eager" / "rank0.pt.trace.json")
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "cache")), executor=pool)
        yield create_app(store, WebOptions()).test_client()
        store.close()


def test_the_capture_that_the_address_names(client: FlaskClient) -> None:
    def get(path: str, **query: str) -> dict:
        answer = client.get(f"/api/v1/{path}", query_string={"run": "run", "worker": "rank0", "wait": "30", **query})
        assert answer.status_code == 200, answer.get_data(as_text=True)
        return answer.get_json()  # type: ignore[no-any-return]

    def operators(**query: str) -> set[str]:
        table = next(s for s in get("analysis/operators", **query)["sections"] if s["id"] == "operators")
        return set(table["data"]["name"])

    own = {"aten::mm", "vllm::unified_attention_with_output", "aten::add"}
    # GIVEN captures beside two runs WHEN the runs are listed THEN both can be chosen
    assert get("runs")["captures"] == [BESIDE, OTHER]
    # WHEN a page is asked for with none named, another run's, an eager run's, none, and its own THEN each is of that
    assert operators() == own and get("analyses")["named_by"] == "graph_capture_rank_0.pt.trace.json"
    assert operators(capture=OTHER) == {"second::" + name for name in own}
    assert operators(capture="eager/rank0.pt.trace.json") == {"eager::" + name for name in own}
    bare = get("analyses", capture="none")
    assert bare["replays"] is True and bare["named_by"] == "" and get("analysis/operators", capture="none")["available"] is False
    assert operators(capture=BESIDE) == own
    # AND the timeline of both is another one, with the rows of the capture
    prints = {get("timeline", capture=name)["fingerprint"] for name in ("", OTHER, "none")}
    assert len(prints) == 3
    # AND rank 1, which has no capture of its own, is named by that of rank 0: names decide
    assert operators(worker="rank1") == own and operators(worker="rank1", capture=OTHER) == {"second::" + name for name in own}
    # AND both ranks of a comparison are named by it
    compared = get("analysis/compare", capture=OTHER, by="operator", other_run="run", other_worker="rank1")
    rows = next(s["data"]["name"] for s in compared["sections"] if s["id"] == "rows")
    assert set(rows) == {"second::" + name for name in own}


@pytest.mark.parametrize("name", ["nowhere.json", "../../etc/passwd", "/etc/passwd", "run", "ü" * 20_000])
def test_a_capture_that_is_not_listed_is_refused(client: FlaskClient, name: str) -> None:
    for path in ("analyses", "analysis/operators", "timeline"):
        answer = client.get(f"/api/v1/{path}", query_string={"run": "run", "capture": name, "wait": "30"})
        assert answer.status_code in (404, 414), (path, answer.status_code)
        if answer.status_code == 404:
            error = answer.get_json()["error"]
            assert error["field"] == "capture" and len(error["message"]) < 200
