"""The page of memory with a real mouse: a drag chooses a window, a click a moment, a row is drawn, and each is a place in the address."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Server, hash_of

pytestmark = pytest.mark.browser
PLOT = "[data-figure=curve_figure]"


def opened(serve: Server, view: Callable[..., Any], **state: str) -> Any:
    v = view()
    v.open(serve.home + hash_of(v="1", page="memory", run="memory/run", **state))
    v.page.wait_for_selector(f"{PLOT} .scatterlayer")
    return v


def area(v: Any) -> dict[str, float]:
    box: dict[str, float] = v.page.locator(f"{PLOT} .nsewdrag").first.bounding_box()
    return box


def drag(v: Any, start: float, end: float) -> None:
    """From one part of the width of the chart to another."""
    box = area(v)
    middle = box["y"] + box["height"] / 2
    v.page.mouse.move(box["x"] + box["width"] * start, middle)
    v.page.mouse.down()
    v.page.mouse.move(box["x"] + box["width"] * (start + end) / 2, middle + 3, steps=4)
    v.page.mouse.move(box["x"] + box["width"] * end, middle, steps=4)
    v.page.mouse.up()


def window(v: Any) -> list[float]:
    """The window of the address in ms."""
    found = re.search(r"p\.sol\.q\.window=([\d.]+)ms-([\d.]+)ms", v.page.url)
    assert found, v.page.url
    return [float(found[1]), float(found[2])]


def sizes(v: Any) -> list[str]:
    """The sizes in the table of allocations, as they are shown."""
    rows = v.page.locator("#s-allocations [role=row][data-key], #s-allocations tr[data-key]")
    return [re.sub(r"\s", "", t) for t in rows.evaluate_all("(rows) => rows.map((r) => r.textContent)")]


def test_a_drag_selects_a_window_and_everything_follows(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the whole recording: the peak of 1.14 GB is in the first sentence
    v = opened(serve, view)
    assert "1.14" in v.page.locator("p.headline").text_content() and len(sizes(v)) == 3
    # WHEN the second half is dragged over, from the right to the left THEN the address holds it, to a pixel
    drag(v, 0.995, 0.5)
    v.page.wait_for_selector(".notice :text('Whole recording')")
    low, high = window(v)
    assert low == pytest.approx(10, abs=0.05) and high == pytest.approx(19.9, abs=0.05)
    v.settle()
    # AND the peak, the tables and the figure are of it: 1.1 GB from before, and 60 MB that come there
    assert "1.10" in v.page.locator("p.headline").text_content()
    assert [t[:2] for t in sizes(v)] == ["10", "60"]
    assert v.page.locator("#s-per_step").count() == 1
    ticks = v.page.locator(f"{PLOT} .xtick").all_text_contents()
    assert min(float(t) for t in ticks) >= 10
    # AND Back, the chip and the link lead to the whole again
    v.page.go_back()
    v.page.wait_for_function("!location.hash.includes('q.window')")
    v.page.go_forward()
    v.page.wait_for_selector(".fields .chip:has-text('Window')")
    v.page.locator(".fields .chip", has_text="Window").click()
    v.page.wait_for_function("!location.hash.includes('q.window')")
    v.settle()
    assert len(sizes(v)) == 3


def test_a_window_can_be_dragged_within_a_window(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN 10 to 20 ms WHEN its first half is dragged THEN the window is 10 to 15 ms: the axis is that of the recording
    v = opened(serve, view, **{"q.window": "10ms-20ms"})
    drag(v, 0.004, 0.5)
    v.page.wait_for_function("!location.hash.includes('10ms-20ms')")
    assert window(v) == pytest.approx([10, 15], abs=0.08)


def test_a_click_shows_the_memory_of_that_moment(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the peak WHEN 13 ms is clicked, between two events THEN 1 GB is in use then, and the table shows it; the tiles still show the peak
    v = opened(serve, view)
    box = area(v)
    v.page.mouse.click(box["x"] + box["width"] * 13 / 20, box["y"] + box["height"] * 0.5)
    v.page.wait_for_selector("#s-peak .card-tools :text('At the peak')")
    found = re.search(r"p\.sol\.q\.at=([\d.]+)ms", v.page.url)
    assert found and float(found[1]) == pytest.approx(13, abs=0.06)
    assert "1.00" in v.page.locator("#s-peak .subtitle").text_content()
    assert "1.14" in v.page.locator("#s-answer").text_content()
    # AND the link leads back
    v.page.locator("#s-peak .card-tools").get_by_text("At the peak").click()
    v.page.wait_for_function("!location.hash.includes('q.at')")


def test_a_selected_row_is_drawn_in_the_figure(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the allocations WHEN the 40 MB are selected THEN a stretch from 4 to 5 ms is tinted, a twentieth of the chart
    v = opened(serve, view)
    before = v.page.locator(f"{PLOT} .shapelayer path").count()
    v.page.locator("#s-allocations [data-key]").nth(2).click()
    v.page.wait_for_function(f"document.querySelectorAll('{PLOT} .shapelayer path').length > {before}")
    drawn = v.page.locator(f"{PLOT} .shapelayer path").last.bounding_box()
    box = area(v)
    assert drawn["width"] == pytest.approx(box["width"] / 20, rel=0.1)
    assert drawn["x"] - box["x"] == pytest.approx(box["width"] * 4 / 20, abs=3)
    assert "40.00" in v.page.locator(f"{PLOT} .annotation").last.text_content()


def test_the_memory_of_the_host_is_one_click_away(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a device and the host WHEN the host is chosen THEN the page is of it, and names what is not known of it
    v = opened(serve, view)
    v.page.locator(".fields .switch button", has_text="CPU").click()
    v.page.wait_for_function("location.hash.includes('q.device=CPU')")
    v.settle()
    assert "8.00" in v.page.locator("p.headline").text_content()
    assert "not tracked" in v.page.locator("#s-answer").text_content()


def test_the_page_fits_every_window(serve: Server, view: Callable[..., Any]) -> None:
    v = view()
    v.open(serve.home + hash_of(v="1", page="memory", run="memory/run"))
    for width in (1440, 1024, 700):
        v.resize(width)
        assert v.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert v.page.evaluate(
            "[...document.querySelectorAll('main .card')].every((c) => c.scrollWidth <= c.clientWidth + 1 || c.querySelector('.table-scroll'))"
        )
