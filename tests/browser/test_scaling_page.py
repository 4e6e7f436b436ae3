"""The page of scaling with a real mouse: parameters change the report and the address, hints are exported, a run without steps shows what to record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PARAMETERS, Server, hash_of

pytestmark = pytest.mark.browser
FIGURES = ("grid", "curves", "gain", "split", "fit", "residuals", "overlap")


def shown(v: Any, server: Server, **query: str) -> None:
    v.open(server.home + hash_of(v="1", page="scaling", run="job/1x1-32", **query))
    v.page.wait_for_selector("[data-section=points] tbody tr", timeout=120_000)


def headline(v: Any, words: str) -> None:
    v.page.wait_for_function("(words) => document.querySelector('.headline')?.textContent.includes(words)", arg=words, timeout=120_000)


def test_the_page_recommends_and_draws_all_figures_in_every_width(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN twelve runs WHEN the page opens THEN it recommends in one sentence, all figures are drawn, and nothing sticks out to the side
    v = view(viewport={"width": 700, "height": 900})
    shown(v, serve)
    headline(v, "times one replica")
    for name in FIGURES:
        section = v.page.locator(f"[data-section={name}]")
        section.scroll_into_view_if_needed()
        section.locator(".main-svg").first.wait_for(timeout=120_000)
    for width in (700, 1024, 1440):
        v.resize(width)
        assert v.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    rows = "document.querySelectorAll('[data-section=points] tbody tr').length === 12"  # while runs are being read there are fewer
    v.page.wait_for_function(rows, timeout=120_000)


def test_a_changed_parameter_changes_the_report_and_the_address(serve: Server, view: Callable[..., Any]) -> None:
    v = view()
    shown(v, serve)
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


def test_hints_are_exported(serve: Server, view: Callable[..., Any]) -> None:
    v = view()
    shown(v, serve)
    v.page.get_by_role("button", name="Export").click()
    with v.page.expect_download() as download:
        v.page.get_by_text("Hints for a scheduler").click()
    found = json.loads(Path(download.value.path()).read_text())
    assert found["maxProfiledReplicas"] == 12 and found["perfParams"]["gamma"] == pytest.approx(PARAMETERS.gamma, rel=0.01)


def test_the_cluster_is_a_tab_of_scaling(serve: Server, view: Callable[..., Any]) -> None:
    v = view()
    shown(v, serve)
    v.page.get_by_role("link", name="Cluster").or_(v.page.get_by_role("tab", name="Cluster")).first.click()
    v.page.wait_for_selector("[data-section=jobs] tbody tr", timeout=120_000)
    assert "A simulation" in v.page.locator("main").inner_text()


def test_without_steps_the_page_says_what_to_record(serve: Server, view: Callable[..., Any]) -> None:
    v = view()
    v.open(serve.home + hash_of(v="1", page="scaling", run="stepless/run"))
    v.page.wait_for_selector("main .state")
    words = v.page.locator("main").inner_text()
    assert "prof.step()" in words and "profile_step_start" in words
