"""The page of scaling with a real mouse: terms move the answer and the address, hints are exported, nothing recorded says what to record."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin.cost.goodput.model import PerfParams, accum_time, optim_time
from tests.browser.conftest import Server, environment, hash_of, start, stop
from tests.support.scaling_runs import write_run
from tests.support.trace_builder import TraceBuilder

pytestmark = pytest.mark.browser
TRUE = PerfParams(0.12, 0.0056, 0.4, 0.025, 0.07, 0.0024, 1.8)
FIGURES = ("grid", "curves", "gain", "split", "fit", "residuals", "overlap")


def served(root: Path, cache: Path) -> Iterator[Server]:
    env = environment({"TB_SOL_CACHE_DIR": str(cache)})
    process, address = start([sys.executable, "-m", "tb_sol_plugin.cli", "serve", str(root), "--port", "0"], env)
    server = Server(address, address, process)
    server.warm()
    yield server
    stop(process)


@pytest.fixture(scope="module")
def scaling(chromium: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Runs on one and two nodes, of known parameters, two batches each."""
    root = tmp_path_factory.mktemp("scaling")
    for n, r in ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (3, 12)):
        for b in (32, 64):
            write_run(root / f"job/{n}x{r}-{b}", nodes=n, replicas=r, batch=b, accum_s=float(accum_time(TRUE, b)),
                      optim_s=float(optim_time(TRUE, n, r, b)), steps=2)  # fmt: skip
    yield from served(root, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def nothing(chromium: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A recording without a step."""
    root = tmp_path_factory.mktemp("nothing")
    t = TraceBuilder()
    t.op("aten::mm", 0, 1000)
    t.write(root / "run" / "w.1700000000000000000.pt.trace.json.gz")
    yield from served(root, tmp_path_factory.mktemp("cache"))


def shown(v: Any, server: Server, **query: str) -> None:
    v.open(server.home + hash_of(v="1", page="scaling", **query))
    v.page.wait_for_selector("[data-section=points] tbody tr", timeout=120_000)


def headline(v: Any, words: str) -> None:
    v.page.wait_for_function("(words) => document.querySelector('.headline')?.textContent.includes(words)", arg=words, timeout=120_000)


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1024, "dark"), (700, "light")])
def test_the_page_stands_in_every_width(scaling: Server, view: Callable[..., Any], width: int, scheme: str) -> None:
    # GIVEN twelve runs WHEN the page opens THEN it recommends in one sentence, all figures are drawn, and nothing sticks out to the side
    v = view(viewport={"width": width, "height": 900}, color_scheme=scheme)
    shown(v, scaling)
    headline(v, "times one replica")
    for name in FIGURES:
        section = v.page.locator(f"[data-section={name}]")
        section.scroll_into_view_if_needed()
        section.locator(".main-svg").first.wait_for(timeout=120_000)
    assert v.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    rows = "document.querySelectorAll('[data-section=points] tbody tr').length === 12"  # while runs are being read there are fewer
    v.page.wait_for_function(rows, timeout=120_000)


def test_terms_move_the_answer_and_the_address(scaling: Server, view: Callable[..., Any]) -> None:
    v = view()
    shown(v, scaling)
    # WHEN a price is typed THEN its tile is there; WHEN the share is moved to its end THEN fewer replicas pay
    before = v.page.locator(".headline").inner_text()
    box = v.page.get_by_role("textbox", name="Price per device hour")
    box.fill("2.5")
    box.press("Enter")
    v.page.get_by_text("Cost per M samples").first.wait_for()
    v.page.wait_for_function("() => location.hash.includes('p.sol.q.price=2.5')")
    v.page.get_by_role("slider", name="Pays from, %").focus()
    v.page.keyboard.press("End")
    v.page.wait_for_function("(old) => document.querySelector('.headline')?.textContent !== old", arg=before, timeout=120_000)
    headline(v, "90")
    v.page.wait_for_function("() => location.hash.includes('p.sol.q.share=90')")


def test_hints_are_exported(scaling: Server, view: Callable[..., Any]) -> None:
    v = view()
    shown(v, scaling)
    v.page.get_by_role("button", name="Export").click()
    with v.page.expect_download() as download:
        v.page.get_by_text("Hints for a scheduler").click()
    found = json.loads(Path(download.value.path()).read_text())
    assert found["maxProfiledReplicas"] == 12 and found["perfParams"]["gamma"] == pytest.approx(1.8, rel=0.01)


def test_the_cluster_is_a_tab_beside_it(scaling: Server, view: Callable[..., Any]) -> None:
    v = view()
    shown(v, scaling)
    v.page.get_by_role("link", name="Cluster").or_(v.page.get_by_role("tab", name="Cluster")).first.click()
    v.page.wait_for_selector("[data-section=jobs] tbody tr", timeout=120_000)
    assert "A simulation" in v.page.locator("main").inner_text()


def test_without_steps_the_page_says_what_to_record(nothing: Server, view: Callable[..., Any]) -> None:
    v = view()
    v.open(nothing.home + hash_of(v="1", page="scaling"))
    v.page.wait_for_selector("main .state")
    words = v.page.locator("main").inner_text()
    assert "prof.step()" in words and "profile_step_start" in words
