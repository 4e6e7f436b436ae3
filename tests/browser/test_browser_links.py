"""A view is a link: what is seen is in the address, and the address shows it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from tests.browser.conftest import Server, hash_of

pytestmark = pytest.mark.browser
RUN = "simulated_gpu_train"


def rows(v: Any, section: str) -> list[str]:
    return v.frame().locator(f"[data-section={section}] tbody tr:not(.gap)").all_text_contents()


def arrange(v: Any) -> list[str]:
    """Sorts by calls, filters, and selects the first row of the kernels page."""
    f = v.frame()
    f.locator("[data-section=kernels] th button", has_text="Calls").click()
    f.locator("[data-section=kernels] .find-input").fill("kernel")
    v.page.wait_for_function("location.hash.includes('p.sol.find=kernel')")
    f.locator("[data-section=kernels] tbody tr:not(.total)").first.click()
    f.wait_for_selector("[data-section=kernels] tr.selected")
    return rows(v, "kernels")


def test_a_copied_link_shows_the_same_view_in_a_fresh_browser(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a sorted, filtered table with a selected row
    v = view()
    v.open(serve.home + hash_of(v="1", page="kernels", run=RUN))
    before = rows(v, "kernels")
    shown = arrange(v)
    assert shown and shown != before
    link = v.page.url
    assert "p.sol.find=kernel" in link and "p.sol.t.kernels.s=" in link and "p.sol.t.kernels.k=" in link
    # WHEN a teammate opens the address THEN rows, order and selection are the same
    other = view()
    other.open(link)
    assert rows(other, "kernels") == shown
    assert other.page.locator("[data-section=kernels] tr.selected").count() == 1
    # AND a reload keeps it
    other.page.reload()
    other.settle()
    assert rows(other, "kernels") == shown


def test_back_and_forward_go_through_the_pages(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN three pages visited by clicks WHEN Back and Forward are pressed THEN the pages come again
    v = view()
    v.open(serve.home + hash_of(v="1", page="overview", run=RUN))
    for title in ("Kernels", "Phases"):
        v.page.locator(".nav-item", has_text=title).click()
        v.page.wait_for_selector(f"h1:has-text('{title}')")
    v.page.go_back()
    v.page.wait_for_selector("h1:has-text('Kernels')")
    v.page.go_back()
    v.page.wait_for_selector(".nav-item.on:has-text('Overview')")
    v.page.go_forward()
    v.page.wait_for_selector("h1:has-text('Kernels')")


def test_a_switch_of_the_page_is_in_the_address(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the operators WHEN they are grouped by shape THEN the address names it, and the default is left out of it
    v = view()
    v.open(serve.home + hash_of(v="1", page="operators", run=RUN))
    v.page.locator(".switch button", has_text="Name, shape").click()
    v.page.wait_for_function("location.hash.includes('p.sol.q.group_by=name_shape')")
    v.settle()
    v.page.locator(".switch button").first.click()
    v.page.wait_for_function("!location.hash.includes('group_by')")


def test_a_step_is_chosen_and_stepped(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a recording of several steps WHEN ] is pressed twice THEN the second step is shown, and the address names it
    v = view()
    v.open(serve.home + hash_of(v="1", page="steps", run=RUN))
    _, answer = serve.api(f"analyses?run={RUN}&wait=30")
    numbers = [s["number"] for s in answer["steps"]]  # type: ignore[attr-defined]
    v.page.keyboard.press("]")
    v.page.wait_for_function(f"location.hash.includes('p.sol.step={numbers[0]}')")
    v.page.keyboard.press("]")
    v.page.wait_for_function(f"location.hash.includes('p.sol.step={numbers[1]}')")
    v.settle()
    assert f"{numbers[1]} · 1 of {len(numbers)}" in v.page.locator(".bar").text_content()


def test_a_link_to_an_absent_run_reports_it_and_offers_similar_names(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a link whose run is not in this logdir WHEN it is opened THEN no other run is shown in its place
    v = view()
    v.open(serve.home + hash_of(v="1", page="kernels", run="simulated_gpu_trian"))
    assert v.page.locator("h1").text_content() == "Not found here"
    v.page.locator(".side-list a").first.click()
    v.page.wait_for_selector("h1:has-text('Kernels')")
    assert f"p.sol.run={RUN}" in v.page.url


@pytest.mark.parametrize("allowed", [True, False])
def test_copy_link_works_with_and_without_a_clipboard(serve: Server, view: Callable[..., Any], allowed: bool) -> None:
    # GIVEN a browser that grants the clipboard, or one that has none WHEN Copy link is pressed
    v = view(permissions=["clipboard-read", "clipboard-write"] if allowed else [])
    if not allowed:
        v.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    v.open(serve.home + hash_of(v="1", page="kernels", run=RUN))
    v.page.locator("button[aria-label='Copy link']").click()
    if allowed:  # THEN it answers in place and the clipboard holds the address
        v.page.wait_for_selector("text=Copied")
        assert v.page.evaluate("navigator.clipboard.readText()") == v.page.url
    else:  # THEN a field opens with the address selected
        field = v.page.locator(".copy-field")
        assert field.input_value() == v.page.url
        assert v.page.evaluate("document.activeElement.selectionEnd - document.activeElement.selectionStart") == len(v.page.url)
        v.page.keyboard.press("Escape")
        assert field.count() == 0


def test_the_csv_of_a_table_holds_its_rows_in_base_units(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the kernels filtered to some WHEN the CSV is saved THEN its rows are those shown, its numbers those of the server
    import csv

    v = view()
    v.open(serve.home + hash_of(v="1", page="kernels", run=RUN, find="kernel"))
    shown = v.page.locator("[data-section=kernels] tbody tr[data-key]").count()
    with v.page.expect_download() as saved:
        v.page.locator("[data-section=kernels] button", has_text="CSV").click()
    with open(saved.value.path(), encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    _, report = serve.api(f"analysis/kernels?run={RUN}&wait=30")
    table = next(s for s in report["sections"] if s["id"] == "kernels")  # type: ignore[attr-defined]
    times = set(table["data"]["total_ns"])
    assert len(lines) == shown > 0
    assert all(int(line["total_ns"]) in times for line in lines)


def test_a_filter_is_applied_once_the_typing_pauses(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the kernels WHEN a filter is typed letter by letter THEN the address holds the whole of it and never a part
    v = view()
    v.open(serve.home + hash_of(v="1", page="kernels", run=RUN))
    v.page.evaluate("""() => {
        window.__found = [];
        const replace = history.replaceState.bind(history);
        history.replaceState = (...given) => { replace(...given); window.__found.push(new URLSearchParams(location.hash.slice(1)).get('p.sol.find')); };
    }""")
    rows = v.page.locator("[data-section=kernels] tbody tr:not(.total)")
    every = rows.count()
    field = v.page.locator("[data-section=kernels] .find-input")
    field.press_sequentially("gemm")
    v.page.wait_for_function("location.hash.includes('p.sol.find=gemm')")
    assert set(v.page.evaluate("window.__found")) <= {"gemm", None} and 0 < rows.count() < every
    # WHEN Escape is pressed THEN every row is shown at once; WHEN Enter is, what was typed is looked for at once
    field.press("Escape")
    assert rows.count() == every and field.input_value() == ""
    field.fill("no kernel is called this")
    field.press("Enter")
    assert rows.count() < every


def test_keys_move_and_never_fire_while_typing(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the overview WHEN g k is pressed THEN the kernels open; WHEN the same is typed into a filter THEN it is text
    v = view()
    v.open(serve.home + hash_of(v="1", page="overview", run=RUN))
    v.page.keyboard.press("g")
    v.page.keyboard.press("k")
    v.page.wait_for_selector("h1:has-text('Kernels')")
    v.settle()
    v.page.keyboard.press("/")
    v.page.keyboard.type("gk")
    assert v.page.locator(".find-input").first.input_value() == "gk"
    v.page.keyboard.press("Escape")
    v.page.keyboard.press("Escape")
    v.page.keyboard.press("?")
    assert v.page.locator(".dialog h2").text_content() == "Help and keys"
    v.page.keyboard.press("Escape")
    assert v.page.locator(".dialog").count() == 0


def test_arrow_keys_walk_and_open_a_tree(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the tree of phases WHEN a branch is closed and opened by keys THEN its state is announced and kept in the address
    v = view()
    v.open(serve.home + hash_of(v="1", page="phases", run=RUN))
    scroll = v.page.locator("[data-section=phases] .table-scroll")
    scroll.focus()
    v.page.keyboard.press("Home")
    first = v.page.locator("[data-section=phases] tbody tr[aria-level='1']").first
    assert first.get_attribute("aria-expanded") == "true"
    before = len(rows(v, "phases"))
    v.page.keyboard.press("ArrowLeft")
    assert first.get_attribute("aria-expanded") == "false"
    assert len(rows(v, "phases")) < before
    assert "p.sol.t.phases.x=" in v.page.url
    v.page.keyboard.press("ArrowRight")
    assert len(rows(v, "phases")) == before and "p.sol.t.phases.x=" not in v.page.url


def test_a_selected_row_is_marked_in_the_figure(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the roofline WHEN a row that has a point is selected THEN the point gets a ring and a line to its limit, and the address holds the row
    v = view()
    _, report = serve.api(f"analysis/roofline?run={RUN}&wait=30")
    figure = next(s for s in report["sections"] if s["kind"] == "figure")  # type: ignore[attr-defined]
    key = next(t["customdata"][0] for t in figure["figure"]["data"] if t.get("customdata"))
    v.open(serve.home + hash_of(v="1", page="roofline", run=RUN))
    v.page.wait_for_selector(".plot .scatterlayer")
    traces = v.page.locator(".plot .scatterlayer .trace").count()
    v.page.locator("[data-section=ops] tbody tr:not(.total)").evaluate_all(
        "(rows, key) => rows.find((r) => r.dataset.key === key).click()", key
    )
    v.page.wait_for_function(f"document.querySelectorAll('.plot .scatterlayer .trace').length > {traces}")
    assert f"p.sol.t.ops.k={key}" in unquote(v.page.url)
    # AND the ring goes with the selection
    v.page.locator("[data-section=ops] tr.selected").click()
    v.page.wait_for_function(f"document.querySelectorAll('.plot .scatterlayer .trace').length === {traces}")


def test_a_long_read_shows_its_progress_and_can_be_stopped(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a recording that is still being read
    v = view()
    requests: list[str] = []
    error = {"code": "still_loading", "message": "is being read", "hint": "ask again"}
    progress = {"bytes": 153_000_000, "total": 251_000_000, "events": 1_000_000, "stage": "reading", "elapsed_s": 1.1, "queue_position": 0}

    def still(route: Any) -> None:
        requests.append(route.request.url)
        route.fulfill(status=202, json={"error": error, "progress": progress})

    v.page.route("**/api/v1/analyses?run=*", still)
    v.page.goto(serve.home + hash_of(v="1", page="kernels", run=RUN))
    # WHEN the page waits THEN it shows bytes, rate and time left, and keeps asking
    v.page.wait_for_selector("text=Reading simulated_gpu_train")
    shown = (v.page.locator(".loading-head").text_content() or "").replace("\u202f", " ")
    assert "153.0 MB of 251.0 MB, 139.1 MB/s, about 1 s left" in shown
    assert v.page.locator("[role=progressbar]").get_attribute("aria-valuenow") == "61"
    with v.page.expect_request(lambda r: "/api/v1/analyses?run=" in r.url):
        pass
    # WHEN it is canceled THEN the server is told, and gets no more requests
    with v.page.expect_request(lambda r: "/api/v1/cancel" in r.url and r.method == "POST"):
        v.page.locator("button", has_text="Cancel").click()
    v.page.wait_for_selector("text=Reading was stopped")
    count = len(requests)
    v.page.wait_for_timeout(700)
    assert len(requests) == count
    # WHEN it is tried again and the server is done THEN the page is shown
    v.page.unroute("**/api/v1/analyses?run=*")
    v.page.locator("button", has_text="Try again").click()
    v.page.wait_for_selector("h1:has-text('Kernels')")
