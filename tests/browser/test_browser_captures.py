"""SOL captures in Chromium: without and with a trace, and on narrow windows; the source that each page names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Server, hash_of
from tests.browser.test_browser_pages import picture

pytestmark = pytest.mark.browser
ALONE, BOTH = "capture_rl", "capture_train"
PAGES = {"Overview": "overview", "Phases": "phases", "Modules": "modules", "Roofline": "roofline", "Iterations": "iterations"}


def open_page(v: Any, serve: Server, **state: str) -> Any:
    v.open(serve.home + hash_of(v="1", **state))
    return v.page


def badge(page: Any) -> str:
    return page.locator(".bar .badge.kind").text_content() or ""


def test_the_page_list_leads_through_the_pages_of_a_capture_alone(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a run with a SOL capture and no trace WHEN its pages are opened one after the other from the page list
    v = view()
    page = open_page(v, serve, page="overview", run=ALONE)
    assert badge(page) == "SOL capture"
    for title, name in PAGES.items():
        page.locator(f".nav-item:has-text('{title}')").first.click()
        page.wait_for_function("(name) => location.hash.includes('page=' + name) || name === 'overview'", arg=name)
        v.settle()
        # THEN each is a report with figures drawn or a table, and nothing failed
        assert page.locator("main .page").count() == 1, name
        assert page.locator("main .failed, main .notice.error").count() == 0, name
        assert set(page.locator("main .section-empty").all_inner_texts()) <= {"Everything is modeled."}, name
        assert page.locator("main [data-section]").count() >= 2, name


def test_a_page_that_a_capture_has_no_data_for_shows_how_to_record_it(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a SOL capture of a CPU WHEN the kernels are opened THEN the page states that, and asks for no trace: one would hold none either
    page = open_page(view(), serve, page="kernels", run=ALONE)
    assert page.locator(".nav-item.off[aria-current=page] .nav-reason").text_content() == "the job ran on a CPU"
    assert page.locator("main .state h2").first.text_content().startswith("The job ran on a CPU") and page.locator(".snippet").count() == 0
    # THEN every reason in the page list is whole
    assert page.evaluate("[...document.querySelectorAll('.nav-reason')].filter((e) => e.scrollHeight > e.clientHeight + 1).length") == 0
    assert page.locator(".nav-reason").count() > 1
    # WHEN single operators are opened THEN the reason is in the page list and on the page, with the one argument marked
    page = open_page(view(), serve, page="operators", run=ALONE)
    assert page.locator(".nav-item.off[aria-current=page] .nav-reason").text_content() == "no single operator calls in a SOL capture"
    assert page.locator("main .state h2").first.text_content().startswith("No single operator calls in a SOL capture")
    assert page.locator(".snippet .mark-code").text_content() == "profile=True"
    assert "sol.capture(logdir, model=model, profile=True)" in page.locator(".snippet").text_content()


def test_a_trace_joined_with_a_capture_says_so_and_links_to_the_capture_and_back(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a run with traces and the SOL capture of the same worker WHEN it is opened THEN the newest trace is shown, joined
    v = view()
    page = open_page(v, serve, page="iterations", run=BOTH)
    assert badge(page) == "trace + SOL capture"
    assert page.locator("[data-section=iterations] tbody tr:has-text('in the trace')").count() <= 1  # a row is drawn where it is in sight
    assert "In the trace" in page.locator("[data-section=course] .legend").text_content()
    # AND the span's card lists each recording with its kind, and leads to the capture alone and back
    page.locator(".pick:has-text('Span')").click()
    notes = page.locator(".float .option .note").all_text_contents()
    assert sum(note.startswith("SOL capture") for note in notes) == 1 and sum(note.startswith("trace + SOL capture") for note in notes) == 3
    page.locator(".float a:has-text('Open the SOL capture of this worker')").click()
    page.wait_for_function("document.querySelector('.bar .badge.kind')?.textContent === 'SOL capture'")
    v.settle()
    assert "In the trace" not in page.locator("[data-section=course] .legend").text_content()
    # AND a page of single operators says that the trace has them, without asking to record what is there
    page.locator(".nav-item:has-text('Operators')").click()
    page.wait_for_selector("main .state")
    assert "Open the profiler trace of this worker" in page.locator("main .state .prose").first.text_content()
    assert page.locator(".snippet").count() == 0 and page.get_by_role("link", name="This page of the profiler trace").count() == 1
    page.locator(".pick:has-text('Span')").click()
    page.locator(".float a:has-text('Open the profiler trace of this worker')").click()
    page.wait_for_function("document.querySelector('.bar .badge.kind')?.textContent === 'trace + SOL capture'")
    v.settle()


def test_a_sampled_iteration_is_selected_in_chart_and_table(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the iterations of a capture WHEN the row of iteration 20 is selected THEN its point has a ring and its card
    v = view()
    page = open_page(v, serve, page="iterations", run=ALONE)
    table = page.locator("[data-section=iterations] tbody tr")
    table.filter(has_text="sampled").nth(1).click()
    page.wait_for_selector("[data-section=iterations] tbody tr.selected")
    assert "t.iterations.k=" in page.evaluate("decodeURIComponent(location.hash)")
    # AND the other metric draws its own line
    page.locator("main .page-head button:has-text('Tokens')").click()
    page.wait_for_selector("text=Tokens/s over iterations")
    v.settle()
    picture(v, "iterations-tokens")


def test_captures_fit_narrow_windows(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN pages of a capture, alone and joined with a trace WHEN the window gets narrow THEN only tables scroll, and the kind is seen
    v = view()
    for run, name in [(ALONE, n) for n in PAGES.values()] + [(BOTH, n) for n in ("overview", "steps", "health", "iterations")]:
        page = open_page(v, serve, page=name, run=run)
        for width in (700, 400):
            v.resize(width)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} of {run} is {wide} px wide at {width}"
            assert "SOL capture" in badge(page)
            picture(v, f"{run}-{name}-{width}")


def test_a_plain_trace_has_no_badge_and_says_how_to_record_iterations(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a trace without a SOL capture WHEN its iterations are opened THEN the page shows the call that records them
    page = open_page(view(), serve, page="iterations", run="cpu_transformer")
    assert page.locator(".bar .badge.kind").count() == 0
    assert page.locator(".snippet .mark-code").text_content() == "sol.capture(logdir, model=model)"
