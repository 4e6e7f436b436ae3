"""What a reader chooses with the mouse or by keys: points, areas of a chart, bounds of numbers, device limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from tests.browser.conftest import Server, hash_of

pytestmark = pytest.mark.browser
RUN = "simulated_gpu_train"
ROWS = "[data-section=ops] tbody tr:not(.total):not(.gap)"
CHIP = "[data-filters=ops] .chip.on"


def section(serve: Server, kind: str, section_id: str) -> dict[str, Any]:
    """A section of the roofline as the server answers it."""
    status, report = serve.api(f"analysis/roofline?run={RUN}&wait=30")
    assert status == 200
    return next(s for s in report["sections"] if s["kind"] == kind and s["id"] == section_id)  # type: ignore[attr-defined]


def points(serve: Server) -> dict[str, tuple[float, float]]:
    """Row key to place in the chart: the points of rows with arithmetic, not those of the strip below, not the one of the whole program."""
    out = {}
    for trace in section(serve, "figure", "roofline")["figure"]["data"]:
        if "customdata" in trace and "xaxis" not in trace:
            keys = [k[0] if isinstance(k, list) else k for k in trace["customdata"]]
            out |= dict(zip(keys, zip(trace["x"], trace["y"], strict=True), strict=True))
    return {key: place for key, place in out.items() if key}


def keys_of(v: Any) -> list[str]:
    found: list[str] = v.page.locator(ROWS).evaluate_all("(rows) => rows.map((r) => r.dataset.key)")
    return found


def roofline(serve: Server, view: Callable[..., Any], **state: str) -> Any:
    v = view()
    v.open(serve.home + hash_of(v="1", page="roofline", run=RUN, **state))
    v.page.wait_for_selector("[data-figure=roofline] .scatterlayer")
    return v


def test_an_area_dragged_in_the_chart_filters_the_table(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the roofline WHEN a box is drawn over the whole chart THEN the table keeps the rows of its points, and the address the box
    v = roofline(serve, view)
    all_rows, drawn = len(keys_of(v)), points(serve)
    box = v.page.locator("[data-figure=roofline] .nsewdrag").first.bounding_box()
    v.page.mouse.move(box["x"] + 2, box["y"] + 2)
    v.page.mouse.down()
    v.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
    v.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] - 2, steps=3)
    v.page.mouse.up()
    v.page.wait_for_selector(CHIP)
    assert set(keys_of(v)) == set(drawn) and 0 < len(drawn) < all_rows
    assert f"Selected in chart:{len(drawn)}" in v.page.locator(CHIP).text_content()
    assert "p.sol.f.roofline=b:" in v.page.url
    # AND the chip takes it away
    v.page.locator(CHIP).click()
    v.page.wait_for_function("!location.hash.includes('f.roofline')")
    assert len(keys_of(v)) == all_rows
    # AND the filters say what they apply to, as there are tables below that they leave; a text that nothing passes takes every point away
    assert "and its chart; the rest of the page stays whole" in v.page.locator("[data-filters=ops]").inner_text()
    shown = v.page.locator("[data-figure=roofline] .points path").count()
    v.page.get_by_role("searchbox", name="Filter Operators").fill("no such operator")
    v.page.wait_for_function(
        "(most) => document.querySelectorAll('[data-figure=roofline] .points path').length <= most", arg=shown - len(drawn), timeout=20_000
    )


def test_an_area_given_by_keys_is_the_same_choice_and_a_link(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the points of the chart, and a bound between the two of highest rate
    drawn = points(serve)
    rates = sorted({y for _, y in drawn.values()})
    bound = (rates[-1] * rates[-2]) ** 0.5
    expected = {key for key, (_, y) in drawn.items() if y > bound}
    v = roofline(serve, view)
    # WHEN it is typed into the form THEN the rows above it stay
    v.page.locator("button[aria-label^='Select an area']").focus()
    v.page.keyboard.press("Enter")
    v.page.locator("input[aria-label='from, up']").fill(f"{bound:.6e}")
    v.page.keyboard.press("Enter")
    v.page.wait_for_selector(CHIP)
    assert set(keys_of(v)) == expected
    # AND the same rows in a fresh browser, the other points faded where they are, all of them again after Esc
    other = view()
    other.open(v.page.url)
    assert set(keys_of(other)) == expected
    faded = "[...document.querySelectorAll('[data-figure=roofline] .scatterlayer .point')].filter((p) => Number(p.style.opacity) < 0.2)"
    other.page.wait_for_function(f"{faded}.length >= {len(drawn) - len(expected)}")
    other.page.keyboard.press("Escape")
    other.page.wait_for_function("!location.hash.includes('f.roofline')")


def test_bounds_of_a_number_are_a_chip_and_a_link(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the operators by time, and a bound in ms between the second and the third
    table = section(serve, "table", "ops")
    times = sorted((t for t in table["data"]["measured_ns"] if t is not None), reverse=True)
    bound = (times[1] + times[2]) / 2e6
    above = [t for t in times if t > bound * 1e6]
    v = roofline(serve, view)
    head = v.page.locator("[data-section=ops] th", has_text="Time, ms")
    # WHEN it is given in the menu of the heading, by keys
    head.locator(".head-caret").focus()
    v.page.keyboard.press("Enter")
    v.page.locator(".bounds input").first.fill(f"{bound:.4f}")
    v.page.keyboard.press("Enter")
    v.page.wait_for_selector(CHIP)
    # THEN as many rows stay, the chip and the count say it in ms, the address holds base units
    shown = v.page.locator(CHIP).text_content().replace("\u202f", " ")
    assert re.fullmatch(r"Time > [\d.]+ ms", shown), shown
    assert len(keys_of(v)) == len(above) == 2
    count = v.page.locator("[data-section=ops] .count").text_content().replace("\u202f", " ")
    share = sum(above) / table["total"]["measured_ns"]
    assert count.startswith(f"2 of {len(table['data']['measured_ns'])} with time above ") and count.endswith(
        f"; {share:.1%} of time".replace("%", " %")
    )
    low = re.search(r"t\.ops\.n\.measured_ns=([\d.]+)~", unquote(v.page.url))
    assert low and times[2] < float(low.group(1)) < times[1]
    other = view()
    other.open(v.page.url)
    assert keys_of(other) == keys_of(v)
    # AND the chip takes it away
    other.page.locator(CHIP).click()
    assert len(keys_of(other)) == len(times)


def test_a_selected_point_has_a_card_with_its_row(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the roofline, and of its points the one that is farthest from all others
    table = section(serve, "table", "ops")
    drawn = {key: (math.log10(x), math.log10(y)) for key, (x, y) in points(serve).items()}
    key = max(drawn, key=lambda k: min(math.dist(drawn[k], place) for other, place in drawn.items() if other != k))
    at = table["data"][table["key"]].index(key)
    v = roofline(serve, view)
    left, top = v.page.evaluate(
        """([x, y]) => {
            const el = document.querySelector('[data-figure=roofline]'), { xaxis, yaxis } = el._fullLayout, box = el.getBoundingClientRect();
            return [box.left + xaxis._offset + xaxis.l2p(x), box.top + yaxis._offset + yaxis.l2p(y)];
        }""",
        list(drawn[key]),
    )
    # WHEN it is clicked THEN its row is selected, and a card in the chart holds its name and numbers, and leads on
    v.page.mouse.move(left - 3, top)
    v.page.mouse.move(left, top)
    v.page.mouse.click(left, top)
    card = v.page.locator("[data-section=roofline] .pinned")
    card.wait_for()
    assert v.page.locator("[data-section=ops] tr.selected").get_attribute("data-key") == key
    assert v.page.locator("[data-section=above] tr.selected").count() == (key in section(serve, "table", "above")["data"]["id"])
    assert table["data"]["name"][at] in card.locator(".pinned-head").text_content()
    numbers = dict(zip(card.locator("dt").all_text_contents(), card.locator("dd").all_text_contents(), strict=True))
    assert numbers["Calls"] == str(table["data"]["calls"][at]) and "s" in numbers["Time"]
    before = card.locator("dt").count()
    card.locator("button", has_text="more").click()
    assert card.locator("dt").count() > before
    if str(at) in table.get("row_links", {}):
        assert card.locator("a.link").count() >= 1
    # AND the words at the point are those of its note
    note = section(serve, "figure", "roofline")["notes"][key]
    assert note["text"] in v.page.locator("[data-figure=roofline] .annotation-text").all_text_contents()
    # WHEN the mouse is over other points THEN their hover boxes stand off the card
    seen = 0
    for mark in v.page.locator("[data-figure=roofline] .points path").all()[::3]:
        box = mark.bounding_box()
        v.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=2)
        v.page.wait_for_timeout(90)  # Plotly hovers at most once in 50 ms
        over = v.page.evaluate(
            """() => {
                const card = document.querySelector('[data-section=roofline] .pinned').getBoundingClientRect();
                const shown = [...document.querySelectorAll('[data-figure=roofline] .hovertext')].filter((h) => h.style.visibility !== 'hidden');
                return shown.map((h) => h.getBoundingClientRect()).map((h) => Math.max(0, Math.min(h.right, card.right) - Math.max(h.left, card.left))
                    * Math.max(0, Math.min(h.bottom, card.bottom) - Math.max(h.top, card.top)));
            }"""
        )
        seen += len(over)
        assert all(area < 1 for area in over), over
    assert seen
    # WHEN Esc is pressed THEN the card, the ring and the selection are gone
    v.page.keyboard.press("Escape")
    card.wait_for(state="detached")
    assert "t.ops.k" not in v.page.url
    assert v.page.locator("[data-section=ops] tr.selected").count() == 0


def test_device_limits_are_shown_checked_and_kept_in_the_link(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the roofline WHEN the menu is opened THEN it holds every figure of the limits, those marked that nobody confirmed
    v = roofline(serve, view)
    pick = v.page.locator("button.pick", has_text="Device limits")
    pick.click()
    device: Any = serve.api(f"analyses?run={RUN}&wait=30")[1]["device"]
    assert v.page.locator(".limits-figures dt").all_text_contents() == [f["label"] for f in device["figures"]]
    marked = [f["label"] for f in device["figures"] if f["provenance"] == "unverified" or f["name"] in device["unverified"]]
    assert v.page.locator(".limits-figures div:has(.unverified) dt").all_text_contents() == marked
    # WHEN unknown limits are entered THEN the menu reports it and the page stays
    field = v.page.locator(".limits .search input")
    field.fill("NOT_A_DEVICE@1MHz")
    field.press("Enter")
    wrong = v.page.wait_for_selector(".limits-wrong")
    assert "NOT_A_DEVICE" in wrong.text_content() and "p.sol.device" not in v.page.url
    # WHEN a known device at another clock is entered THEN the page measures against it, and the address names it
    field.fill("H100_SXM@1410MHz")
    field.press("Enter")
    v.page.wait_for_function("location.hash.includes('p.sol.device=H100_SXM%401410MHz')")
    v.settle()
    assert "H100 SXM" in pick.text_content()
    # WHEN sparse peaks are switched on in the menu THEN the clock stays
    pick.click()
    assert v.page.locator(".limits .bound").input_value() == "1410"
    v.page.locator(".limits .chip", has_text="sparse").click()
    v.page.wait_for_function("decodeURIComponent(location.hash).includes('p.sol.device=H100_SXM@1410MHz+sparse')")
    v.settle()
    # AND the device as recorded comes back by its own entry
    pick.click()
    v.page.locator(".limits .option", has_text="As recorded").click()
    v.page.wait_for_function("!location.hash.includes('p.sol.device')")


def test_the_page_list_has_the_number_of_oddities_in_trace_health(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN each sample WHEN its page list is shown THEN Trace health has the number of kinds of oddities, none where there is none
    v = view()
    for run in ("simulated_gpu_train", "cpu_transformer"):
        report: Any = serve.api(f"analysis/health?run={run}&wait=30")[1]
        kinds = len(next(s for s in report["sections"] if s["id"] == "issues")["data"]["reason"])
        v.open(serve.home + hash_of(v="1", page="health", run=run))
        # the page of the run before is there until this one's list has come
        v.page.wait_for_function(
            """(count) => {
                const entry = [...document.querySelectorAll('.nav-foot .nav-item')].find((e) => e.textContent.includes('Trace health'));
                return entry && (entry.querySelector('.nav-count')?.textContent ?? '') === count;
            }""",
            arg=str(kinds) if kinds else "",
        )


def test_changes_of_what_if_are_rows_of_choices(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN what if WHEN a change is added, slid and taken away THEN the report, its chart and the address follow
    v = view()
    v.open(serve.home + hash_of(v="1", run=RUN, page="what_if", **{"q.change": "kernels"}))
    v.page.get_by_role("button", name="Add a change").click()
    second = v.page.get_by_role("group", name="Change 2")
    second.wait_for()
    v.page.wait_for_selector("[data-section=changes] tbody tr:nth-child(2)")
    assert v.page.get_by_role("group", name="What changes").get_by_role("button", name="Item by").count() == 0, "says nothing of all kernels"
    second.get_by_role("slider", name="Scale").press("Home")
    v.page.wait_for_function("""() => JSON.parse(new URLSearchParams(location.hash.slice(5)).get('p.sol.q.also'))[0].scale === 0""")
    second.get_by_role("button", name="Change:").click()
    v.page.get_by_role("option", name="Syncs").click()
    v.page.wait_for_function("() => document.querySelector('.headline').textContent.includes('waited for the device nowhere')")
    assert second.get_by_role("slider", name="Scale").count() == 0
    second.get_by_role("button", name="Take away: Change 2").click()
    v.page.wait_for_function("() => !location.hash.includes('q.also') && !document.querySelector('[data-section=changes]')")
