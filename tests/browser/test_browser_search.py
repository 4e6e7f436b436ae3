"""Search by keys over everything that has a name, and what the menu of runs says of each run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Server, hash_of

pytestmark = pytest.mark.browser
RUN = "simulated_gpu_train"
FIELD = ".palette input[role=combobox]"


def chosen(v: Any) -> str:
    """The text of the option that the field names as active."""
    field = v.frame().locator(FIELD)
    option = v.frame().locator(f"#{field.get_attribute('aria-activedescendant')}")
    assert option.get_attribute("aria-selected") == "true"
    return str(option.inner_text())


def test_search_finds_a_kernel_by_keys_and_opens_its_row(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a page of a recording
    v = view()
    v.open(serve.home + hash_of(v="1", page="steps", run=RUN))
    v.settle()

    # WHEN the key opens the search and two words of a kernel's name are typed
    v.page.keyboard.press("Control+k")
    v.page.wait_for_selector(FIELD)
    v.page.keyboard.type("flash bwd")
    v.page.wait_for_selector(".palette [role=listbox][aria-busy=false] [role=group][aria-label=Kernels] [role=option]")
    names = v.page.locator(".palette [role=option]").all_inner_texts()
    assert len(names) > 1 and all("flash" in n and "bwd" in n for n in names)

    # THEN the arrows move in the list, around its ends, and Enter opens the page filtered to that one kernel
    first = chosen(v)
    v.page.keyboard.press("ArrowDown")
    assert chosen(v) == names[1] != first
    v.page.keyboard.press("ArrowUp")
    v.page.keyboard.press("ArrowUp")
    assert chosen(v) == names[-1]
    v.page.keyboard.press("ArrowDown")
    v.page.keyboard.press("Enter")
    v.page.wait_for_selector("[data-section=kernels] tbody tr[data-key]")
    v.settle()
    rows = v.page.locator("[data-section=kernels] tbody tr[data-key]:not(.total):not(.gap)").evaluate_all("(r) => r.map((x) => x.dataset.key)")
    assert len(rows) == 1 and "flash" in rows[0] and "bwd" in rows[0]
    assert not v.page.locator(".palette").count()
    v.page.wait_for_function(
        "document.querySelector('[data-section=kernels] tbody tr[data-key]').getBoundingClientRect().bottom < innerHeight", timeout=10_000
    )


def test_search_closes_gives_the_focus_back_and_says_when_nothing_is_found(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a search opened by its button
    v = view()
    v.open(serve.home + hash_of(v="1", page="overview", run=RUN))
    v.settle()
    button = v.page.get_by_role("button", name=re.compile("^Search"))
    button.click()

    # WHEN nothing has the name THEN it says so, markup stays text
    v.page.locator(FIELD).fill("<img src=x onerror=alert(1)>")
    v.page.wait_for_function("document.querySelector('.palette [role=status]').textContent.startsWith('Nothing is named')")
    assert not v.page.locator(".palette img").count() and not v.page.locator(".palette [role=option]").count()

    # AND Esc closes it and gives the focus back
    v.page.keyboard.press("Escape")
    assert not v.page.locator(".palette").count()
    assert button.evaluate("(b) => b === document.activeElement")


def test_search_works_in_tensorboard_in_400_pixels(tensorboard: Server, view: Callable[..., Any]) -> None:
    # GIVEN the page in TensorBoard, dark and narrow
    v = view(color_scheme="dark")
    v.open(tensorboard.root + hash_of(v="1", page="overview", run=RUN))
    v.resize(400)

    # WHEN it is opened and typed into
    v.frame().get_by_role("button", name=re.compile("^Search")).click()
    v.frame().locator(FIELD).fill("operators")
    v.frame().locator(".palette [role=group][aria-label=Pages] [role=option]").first.wait_for()

    # THEN the card fits, and a page opens
    box = v.frame().locator(".palette").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 400
    v.frame().locator(".palette [role=option]").first.click()
    v.frame().locator("h1", has_text="Operators").wait_for()


def test_the_menu_of_runs_says_what_is_known_of_each(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a run whose overview was opened
    serve.api(f"analysis/overview?run={RUN}&wait=30")
    v = view()
    v.open(serve.home + hash_of(v="1", page="overview", run=RUN))
    v.settle()

    # WHEN the menu is opened
    v.page.locator("button.pick").first.click()
    own = v.page.locator(f".option:has-text('{RUN}')")
    own.locator(".detail").wait_for()

    # THEN it has date, device, step and ratio; no run shows a zero for what is unknown
    text = own.locator(".detail").inner_text()
    assert "H100" in text and "step 17" in text and "of the speed of light" in text and "unknown" not in text
    assert all(" 0 " not in t for t in v.page.locator(".option .detail").all_inner_texts())
