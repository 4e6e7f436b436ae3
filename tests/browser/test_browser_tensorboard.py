"""The page inside a real TensorBoard: its address, its theme, its reload button, its dashboards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import TENSORBOARD_RUN as RUN
from tests.browser.conftest import Server, hash_of

pytestmark = [pytest.mark.browser, pytest.mark.tensorboard]


def test_the_tab_opens_and_follows_the_theme(tensorboard: Server, view: Callable[..., Any]) -> None:
    # GIVEN TensorBoard WHEN the tab is opened THEN the overview is shown; WHEN the host turns dark THEN the page turns with it
    v = view()
    v.open(tensorboard.root + hash_of(v="1", page="overview", run=RUN))
    frame = v.frame()
    assert "plugin_entry.html" in frame.url
    assert frame.locator(".nav-item.on").text_content().startswith("Overview")
    assert frame.locator("button[aria-label='Dark theme']").count() == 0
    v.page.evaluate("document.body.classList.add('dark-mode')")
    frame.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    v.page.evaluate("document.body.classList.remove('dark-mode')")
    frame.wait_for_function("document.documentElement.dataset.theme === 'light'")


def test_pages_with_every_kind_of_chart_in_the_frame(tensorboard: Server, view: Callable[..., Any]) -> None:
    # GIVEN TensorBoard's content policy WHEN pages are opened by their links THEN nothing is refused, charts included
    v = view()
    for name in ("overview", "findings", "gpu_breakdown", "steps", "modules", "roofline", "memcpy_hist", "memory", "memory_plan"):
        v.open(tensorboard.root + hash_of(v="1", page=name, run=RUN))
        current = "[aria-current=page]"
        v.frame().wait_for_selector(current if name == "overview" else f"{current}[href*='p.sol.page={name}']")
        assert v.frame().locator(".failed").count() == 0, name


def test_a_link_of_tensorboard_shows_the_same_view_in_a_fresh_browser(tensorboard: Server, view: Callable[..., Any]) -> None:
    # GIVEN a view arranged inside TensorBoard WHEN its address is opened by someone else THEN the rows are the same
    v = view()
    v.open(tensorboard.root + hash_of(v="1", page="kernels", run=RUN))
    frame = v.frame()
    frame.locator("[data-section=kernels] th button", has_text="Calls").click()
    frame.locator("[data-section=kernels] .find-input").fill("kernel")
    v.page.wait_for_function("location.hash.includes('p.sol.find=kernel')")
    rows = frame.locator("[data-section=kernels] tbody tr").all_text_contents()
    other = view()
    other.open(v.page.url)
    assert other.frame().locator("[data-section=kernels] tbody tr").all_text_contents() == rows


def test_back_walks_through_pages_inside_tensorboard(tensorboard: Server, view: Callable[..., Any]) -> None:
    # GIVEN two pages visited by clicks WHEN Back is pressed in the browser THEN the page before comes, the frame is not loaded again
    v = view()
    v.open(tensorboard.root + hash_of(v="1", page="kernels", run=RUN))
    v.frame().evaluate("window.__same = true")
    v.frame().locator(".nav-item", has_text="Phases").click()
    v.frame().wait_for_selector("h1:has-text('Phases')")
    v.page.go_back()
    v.frame().wait_for_selector("h1:has-text('Kernels')")
    assert v.frame().evaluate("window.__same") is True


def test_another_dashboard_and_back_keeps_the_view(tensorboard: Server, view: Callable[..., Any]) -> None:
    # GIVEN our page WHEN another dashboard is shown and ours again THEN the view is as it was, and we never wrote while hidden
    v = view()
    v.open(tensorboard.root + hash_of(v="1", page="kernels", run=RUN))
    v.page.evaluate("location.hash = location.hash.replace('#sol', '#timeseries')")
    v.page.wait_for_timeout(1500)
    assert v.page.url.split("#")[1].startswith("timeseries")
    v.page.evaluate("location.hash = location.hash.replace('#timeseries', '#sol')")
    v.page.wait_for_timeout(500)
    v.settle()
    assert v.frame().locator("h1").text_content() == "Kernels"
    assert f"p.sol.run={RUN}" in v.page.url


def test_reload_keeps_the_view_and_answers_the_host(tensorboard: Server, view: Callable[..., Any]) -> None:
    # GIVEN our page WHEN TensorBoard's reload button is pressed THEN the runs are read again and the view stays
    v = view()
    v.open(tensorboard.root + hash_of(v="1", page="kernels", run=RUN))
    with v.page.expect_request(lambda r: r.url.endswith("api/v1/rescan") and r.method == "POST", timeout=120_000):
        v.page.locator("app-header-reload button, button[title*='Reload'], .reload-button, button.reload").first.click()
    v.page.wait_for_timeout(600)
    assert v.frame().locator("h1").text_content() == "Kernels"


def test_keys_work_in_the_frame_at_once_and_after_a_click_on_a_chart(tensorboard: Server, view: Callable[..., Any]) -> None:
    # GIVEN a page that was just opened WHEN g k is pressed THEN the kernels are shown
    v = view()
    v.open(tensorboard.root + hash_of(v="1", page="gpu_breakdown", run=RUN))
    v.page.keyboard.press("g")
    v.page.keyboard.press("k")
    v.frame().wait_for_selector("h1:has-text('Kernels')")
    v.page.go_back()
    v.frame().wait_for_selector("h1:has-text('GPU breakdown')")
    v.settle()
    # GIVEN the focus in TensorBoard's document WHEN a chart is clicked, which keeps the press to itself, and g o pressed THEN the overview is shown
    v.page.evaluate("document.activeElement.blur(), window.focus()")
    v.frame().locator(".plot .nsewdrag").first.click()
    v.page.keyboard.press("g")
    v.page.keyboard.press("o")
    v.frame().wait_for_selector("h1:has-text('Overview'), .nav-item.on:has-text('Overview')")
    # THEN what is typed into a field of TensorBoard stays there
    v.page.evaluate("const i = document.body.appendChild(document.createElement('input')); i.id = 'elsewhere'; i.focus()")
    v.page.keyboard.type("gk")
    assert v.page.locator("#elsewhere").input_value() == "gk"
