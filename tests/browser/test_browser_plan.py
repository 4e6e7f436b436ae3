"""The memory plan's page: there without a recording, its fields move the report, impossible values are reported next to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Server, hash_of

pytestmark = pytest.mark.browser
REFUSED = "status of 400"


def open_plan(v: Any, server: Server, **query: str) -> None:
    v.open(server.home + hash_of(v="1", page="memory_plan", **query))
    v.page.wait_for_selector("[data-section=stages] tbody tr")


def headline(v: Any, words: str) -> None:
    v.page.wait_for_function("(words) => document.querySelector('.headline')?.textContent.includes(words)", arg=words)


def test_an_empty_logdir_offers_the_plan(empty: Server, view: Callable[..., Any]) -> None:
    # GIVEN nothing recorded WHEN the page opens THEN it offers the plan, which answers, and has a link of its own
    v = view()
    v.open(empty.home)
    v.page.get_by_role("heading", name="Without a recording").wait_for()
    v.page.locator(".side-list a", has_text="Memory plan").click()
    headline(v, "LLaMA-7B on TP\u202f1, PP\u202f1, DP\u202f1")
    assert "p.sol.page=memory_plan" in v.page.url
    assert v.page.get_by_role("button", name="Copy link").is_visible() and v.page.locator(".nav-item.on").inner_text() == "Memory plan"


def test_sliders_change_the_report_and_the_address(empty: Server, view: Callable[..., Any]) -> None:
    v = view()
    open_plan(v, empty)
    # WHEN the slider of pipeline stages is moved by a key THEN there are two stages, and the address has the value
    v.page.get_by_role("slider", name="Pipeline stages").focus()
    v.page.keyboard.press("ArrowRight")
    headline(v, "PP\u202f2")
    assert v.page.locator("[data-section=stages] tbody tr:not(.total)").count() == 2
    v.page.wait_for_function("() => location.hash.includes('p.sol.q.pp=2')")
    # WHEN a value is typed THEN the slider is there; the end of the slider is the last that divides 32 heads
    box = v.page.get_by_role("textbox", name="Tensor parallel")
    box.fill("2")
    box.press("Enter")
    headline(v, "TP\u202f2, PP\u202f2")
    tensor = v.page.get_by_role("slider", name="Tensor parallel")
    assert tensor.get_attribute("aria-valuetext") == "2"
    tensor.press("End")
    headline(v, "TP\u202f32, PP\u202f2")
    # WHEN a list and a switch are used THEN the report follows
    v.page.get_by_role("button", name="Preset").click()
    v.page.get_by_role("option", name="llama-13b").click()
    v.page.wait_for_selector(".notice.error")  # 40 heads do not divide over 32
    v.page.get_by_role("textbox", name="Tensor parallel").fill("4")
    v.page.keyboard.press("Enter")
    headline(v, "LLaMA-13B on TP\u202f4, PP\u202f2")
    v.page.get_by_role("switch", name="Sequence parallel").click()
    v.page.wait_for_function("() => location.hash.includes('sequence_parallel=false')")
    # WHEN the link is opened anew THEN the same is shown; Reset removes all of it
    address = v.page.url
    other = view()
    other.open(address)
    headline(other, "LLaMA-13B on TP\u202f4, PP\u202f2")
    assert other.page.get_by_role("switch", name="Sequence parallel").get_attribute("aria-checked") == "false"
    other.page.get_by_role("button", name="Reset all").click()
    headline(other, "LLaMA-7B on TP\u202f1, PP\u202f1")
    assert "q." not in other.page.url
    v.faults[:] = [f for f in v.faults if REFUSED not in f]


def test_dragging_requests_only_the_last_value(empty: Server, view: Callable[..., Any]) -> None:
    v = view()
    open_plan(v, empty)
    requests: list[str] = []
    v.page.on("request", lambda r: requests.append(r.url) if "analysis/memory_plan" in r.url else None)
    slider = v.page.get_by_role("slider", name="Data parallel")
    slider.focus()
    for _ in range(6):
        v.page.keyboard.press("ArrowRight")
    headline(v, "DP\u202f64")
    assert "dp=64&" in requests[-1] and len(requests) < 6


def test_an_impossible_layout_is_reported_at_its_field(empty: Server, view: Callable[..., Any]) -> None:
    # GIVEN a link with an impossible layout THEN the fields have their values, the wrong one is marked, and nothing else is shown
    v = view()
    v.page.goto(empty.home + hash_of(v="1", page="memory_plan", **{"q.tp": "3"}))
    notice = v.page.locator(".notice.error")
    notice.wait_for()
    assert "32 heads do not divide over tp = 3" in notice.inner_text() and "tp = 2 or 4" in notice.inner_text()
    box = v.page.get_by_role("textbox", name="Tensor parallel")
    assert box.get_attribute("aria-invalid") == "true" and v.page.locator("[data-section]").count() == 0
    v.page.wait_for_function("() => document.querySelector('[aria-label=\"Sequence\"]').value === '2048'")
    # WHEN it is corrected THEN the report is shown again
    box.fill("4")
    box.press("Enter")
    headline(v, "TP\u202f4")
    assert v.page.locator(".notice.error").count() == 0
    v.faults[:] = [f for f in v.faults if REFUSED not in f]


def test_a_layout_opens_in_the_sliders(empty: Server, view: Callable[..., Any]) -> None:
    v = view()
    open_plan(v, empty, **{"q.tp": "2", "q.pp": "2", "q.device": "A100_SXM_40"})
    first = v.page.locator("[data-section=layouts] tbody tr:not(.total) a.cell-link").first
    size = first.inner_text()
    first.click()
    v.page.wait_for_function("() => location.hash.includes('q.dp=')")
    tp, pp, dp = (part.split()[1] for part in size.split("·"))
    headline(v, f"TP\u202f{tp}, PP\u202f{pp}, DP\u202f{dp}")
    assert "q.device=A100_SXM_40" in v.page.url
    v.page.go_back()
    headline(v, "TP\u202f2, PP\u202f2, DP\u202f1")


def test_the_plan_with_a_run_chosen(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a run WHEN the plan is opened THEN the run stays chosen, and the recorded device is the one it is held against
    v = view()
    run = next(r for r in serve.pages if "gpu_llm" in r)
    open_plan(v, serve, run=run)
    v.page.wait_for_function("() => document.querySelector('[data-section=answer]').textContent.includes('as recorded')")
    assert v.page.locator(".bar").get_by_role("button", name="Run:").count() == 1
    # a run that is not here costs the plan nothing
    gone = view()
    open_plan(gone, serve, run="no such run")
    headline(gone, "LLaMA-7B")


def test_all_fields_fit_every_window(empty: Server, view: Callable[..., Any]) -> None:
    v = view()
    open_plan(v, empty, **{"q.preset": "gpt3-175b", "q.tp": "8", "q.pp": "12", "q.embedding_placement": "all_full"})
    for button in v.page.locator(".editor .more").all():
        button.click()
    inside = """() => [...document.querySelectorAll('.editor-group *')].filter((e) => {
        const [a, b] = [e.getBoundingClientRect(), e.closest('.editor-group').getBoundingClientRect()];
        return a.width && (a.right > b.right + 2 || a.left < b.left - 2);
    }).map((e) => e.outerHTML.slice(0, 120))"""
    small = (
        "() => [...document.querySelectorAll('.editor button, .editor input')].filter((e) => e.getBoundingClientRect().height < 20).length"
    )
    for width in (1440, 1024, 700):
        v.resize(width)
        assert v.page.evaluate("() => document.documentElement.scrollWidth") <= width
        assert v.page.evaluate(inside) == []
        assert v.page.evaluate(small) == 0
