"""The layout of a page: parts next to each other where there is room, whole where there is little, with texts that name their content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Server, hash_of

pytestmark = pytest.mark.browser
LLM = "simulated_gpu_llm"
BOXES = """() => ['.equation-total', '.equation-tiles', '.equation'].map((s) => document.querySelector(s).getBoundingClientRect())
    .map((b) => ({top: b.top, bottom: b.bottom, left: b.left, right: b.right}))"""
CUT = """() => [...document.querySelectorAll('.table-scroll')].filter((t) => t.scrollWidth > t.clientWidth + 1)
    .map((t) => t.getAttribute('aria-label'))"""


def test_facts_are_right_of_the_ratio_or_in_a_line_below_it(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a recording with four facts and a ratio WHEN the window is wide or less so
    v = view()
    v.open(serve.home + hash_of(v="1", page="overview", run=LLM))
    assert v.page.locator(".equation-tiles .tile").count() == 4
    for width, right in ((1440, True), (1300, False)):
        v.resize(width)
        ratio, tiles, card = v.page.evaluate(BOXES)
        # THEN they are right of the ratio, or below it over the whole card: never in a corner of their own
        if right:
            assert tiles["left"] > ratio["right"] and tiles["top"] < ratio["bottom"]
        else:
            assert tiles["top"] > ratio["bottom"]
        assert card["right"] - tiles["right"] < 30
        assert v.page.locator(".equation-tiles").evaluate("(e) => getComputedStyle(e).borderLeftWidth") == ("1px" if right else "0px")


@pytest.mark.parametrize(("name", "width"), [("roofline", 1024), ("steps", 1440)])
def test_wide_tables_fit_their_cards(serve: Server, view: Callable[..., Any], name: str, width: int) -> None:
    # GIVEN pages whose tables need much room WHEN they are opened in less THEN the last column is inside its card
    v = view(viewport={"width": width, "height": 900})
    v.open(serve.home + hash_of(v="1", page=name, run=LLM))
    assert v.page.locator(".table-scroll").count() > 0
    assert v.page.evaluate(CUT) == []


def test_the_heading_of_findings_has_what_they_save_together(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the findings of a recording, replayed one by one and at once
    _, report = serve.api(f"analysis/findings?run={LLM}&wait=30")
    section = next(s for s in report["sections"] if s["kind"] == "findings")  # type: ignore[attr-defined]
    total, count = section["combined_ns"], len(section["findings"])
    assert max(f["saving_ns"] for f in section["findings"]) <= total <= sum(f["removed_ns"] for f in section["findings"]) and count > 2
    # WHEN the page is opened THEN the heading holds that and no word of an overlap
    v = view()
    v.open(serve.home + hash_of(v="1", page="findings", run=LLM))
    shown = v.page.locator("[data-section=levers] .subtitle").text_content().replace("\u202f", " ")
    assert shown.endswith(f"these {count} together {total / 1e6:.2f} ms") and "overlap" not in shown


def test_an_area_in_a_chart_whose_points_share_rows_selects_whole_rows(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN copies by direction, a row for many points WHEN an area over all of them is selected THEN the chip names whole rows
    v = view()
    v.open(serve.home + hash_of(v="1", page="memcpy", run="simulated_gpu_train", **{"f.bandwidth": "b:1~1e12~1~1e15"}))
    chip = v.page.locator(".chip.on")
    assert chip.text_content().startswith("Direction with points selected:")
    assert "whole" in chip.get_attribute("data-tip")


def test_a_zoomed_axis_keeps_labels(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the roofline, labeled by decades WHEN it is zoomed into a part of one THEN both axes have labels, rates with their unit
    v = view()
    v.open(serve.home + hash_of(v="1", page="roofline", run=LLM, **{"f.roofline": "x:2.1~2.9;y:14.1~14.9"}))
    v.page.wait_for_function("document.querySelectorAll('[data-figure=roofline] .xtick text').length >= 3")
    rates = v.page.locator("[data-figure=roofline] .ytick text").all_text_contents()
    assert len(rates) >= 3 and all(t.endswith("FLOP/s") for t in rates), rates


COLLIDING = """() => {
    const labels = [...document.querySelectorAll('[data-figure=roofline] .annotation')].filter((e) => e.style.visibility !== 'hidden')
    const boxes = labels.map((e) => [e.textContent, e.getBoundingClientRect()])
    const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1
    return [boxes.length, boxes.flatMap(([n, a], i) => boxes.slice(i + 1).filter(([, b]) => meet(a, b)).map(([m]) => `${n} | ${m}`))]
}"""


def test_labels_of_the_roofline_never_collide(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the roofline, whose labels the server places for a usual width WHEN it is shown in 440 px THEN no two labels meet, and the roof is named
    v = view(viewport={"width": 440, "height": 900})
    v.open(serve.home + hash_of(v="1", page="roofline", run=LLM))
    v.page.wait_for_selector("[data-figure=roofline] .annotation")
    v.page.wait_for_timeout(300)
    count, colliding = v.page.evaluate(COLLIDING)
    assert count >= 3 and colliding == []
    assert "bf16 matrix" in v.page.locator("[data-figure=roofline] .annotation").first.text_content()


def test_a_column_is_as_wide_as_the_reader_wants(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a table of kernels, whose names are cut
    v = view(viewport={"width": 1024, "height": 900})
    v.open(serve.home + hash_of(v="1", page="kernels", run=LLM))
    edge = v.page.get_by_role("separator", name="Width of Kernel").first
    edge.wait_for()

    def width() -> float:
        return float(edge.evaluate("(e) => e.parentElement.getBoundingClientRect().width"))

    # WHEN its edge is dragged THEN the column follows; keys do the same; a double click fits the longest name; Delete undoes all of it
    edge.scroll_into_view_if_needed()
    usual, box = width(), edge.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    v.page.mouse.move(x, y)
    v.page.mouse.down()
    v.page.mouse.move(x + 120, y, steps=4)
    v.page.mouse.up()
    assert abs(width() - usual - 120) < 8
    edge.focus()
    v.page.keyboard.press("ArrowLeft")
    assert abs(width() - usual - 104) < 8
    edge.dblclick()
    cut = "(e) => { const n = [...e.closest('table').querySelectorAll('tbody tr > :first-child *')]; return n.filter((c) => c.scrollWidth > c.clientWidth + 1).length }"
    assert width() > usual + 104 and edge.evaluate(cut) == 0
    edge.focus()
    v.page.keyboard.press("Delete")
    assert abs(width() - usual) < 2
