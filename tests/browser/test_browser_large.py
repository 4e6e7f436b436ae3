"""A table whose rows stay on the server: sorted, filtered, scrolled, chosen by a link and saved, as one that is whole."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browser.conftest import LARGE, Server, hash_of

TABLE = "[data-section=kernels]"
NONE_ABSENT = (
    f"() => document.querySelector('{TABLE} tbody tr[data-key]') && !document.querySelector('{TABLE} tr.absent, {TABLE} .is-waiting')"
)


def opened(serve: Server, view: Callable[..., Any], **state: str) -> Any:
    v = view()
    v.open(serve.home + hash_of(v="1", page="kernels", run="large/run", **state))
    v.page.wait_for_function(NONE_ABSENT)
    return v


def keys_of(v: Any) -> list[str]:
    """The keys of the rows that are drawn, in order."""
    return v.page.evaluate(f"() => [...document.querySelectorAll('{TABLE} tbody tr[data-key]')].map((r) => r.dataset.key)")


def first_is(v: Any, key: str) -> None:
    v.page.wait_for_function(f"(key) => document.querySelector('{TABLE} tbody tr[data-at=\"0\"]')?.dataset.key === key", arg=key)


def test_a_large_table_is_sorted_filtered_and_summed_on_the_server(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN 2,500 kernels, the last the longest WHEN opened THEN the longest are first, and the page asked for no whole table
    v = opened(serve, view)
    assert keys_of(v)[:2] == ["gemm_kernel_2499", "gemm_kernel_2498"]
    sizes = v.page.evaluate(
        "() => performance.getEntriesByType('resource').filter((e) => e.name.includes('analysis/kernels')).map((e) => [e.name, e.decodedBodySize])"
    )
    assert sizes and all("tables=pages" in name and size < 1_000_000 for name, size in sizes)
    # WHEN sorted by name THEN people's order, over all rows
    v.page.locator(f"{TABLE} th button", has_text="Kernel").first.click()
    first_is(v, "gemm_kernel_1")
    assert keys_of(v)[:4] == ["gemm_kernel_1", "gemm_kernel_2", "gemm_kernel_3", "gemm_kernel_4"]
    # WHEN filtered by a text THEN those that hold it, with a total of what is shown against all
    v.page.locator(f"{TABLE} .find-input").fill("REDUCE")
    first_is(v, "reduce_kernel_0")
    shown = [i for i in range(LARGE) if not i % 5]
    total, every = sum(1000 + i for i in shown), sum(1000 + i for i in range(LARGE))
    row = v.page.locator(f"{TABLE} .shown-total")
    assert "shown: 500 of 2\u202f500" in row.text_content() and f"{total / 1e6:.2f}" in row.text_content()
    assert f"500 of 2\u202f500; {100 * total / every:.1f}\u202f% of total" in v.page.locator(f"{TABLE} .count").text_content()
    assert v.page.locator(f"{TABLE} tr.total:not(.shown-total)").count() == 0
    # AND saved as CSV, all of these, not the page of them
    with v.page.expect_download() as saved:
        v.page.locator(f"{TABLE} button", has_text="CSV").click()
    with Path(saved.value.path()).open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["short_name"] for line in lines] == [f"reduce_kernel_{i}" for i in shown]
    # WHEN nothing passes THEN it says so, and the filter is taken away there
    v.page.locator(f"{TABLE} .find-input").fill("no such kernel")
    v.page.locator(f"{TABLE} .section-empty button").click()
    first_is(v, "gemm_kernel_1")


def test_rows_come_where_a_reader_scrolls_and_where_keys_lead(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the kernels, longest first WHEN scrolled to the middle THEN the rows of that place are drawn
    v = opened(serve, view)
    v.page.evaluate(f"() => {{ const e = document.querySelector('{TABLE} .table-scroll'); e.scrollTop = e.scrollHeight / 2; }}")
    v.page.wait_for_function(f"() => Number(document.querySelector('{TABLE} tbody tr[data-key]')?.dataset.at) > 1000")
    v.page.wait_for_function(NONE_ABSENT)
    for at, key in v.page.evaluate(
        f"() => [...document.querySelectorAll('{TABLE} tbody tr[data-key]')].map((r) => [+r.dataset.at, r.dataset.key])"
    ):
        assert key.endswith(f"_{LARGE - 1 - at}")
    # WHEN End is pressed THEN the last row has the cursor, and can be chosen
    v.page.locator(f"{TABLE} .table-scroll").focus()
    v.page.keyboard.press("End")
    v.page.wait_for_selector(f"{TABLE} tr.cursor[data-key=reduce_kernel_0]")
    v.page.keyboard.press(" ")
    v.page.wait_for_selector(f"{TABLE} tr.selected[data-key=reduce_kernel_0]")
    assert "p.sol.t.kernels.k=reduce_kernel_0" in v.page.url


def test_a_link_to_a_row_far_down_shows_it(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a link that names a row in the middle and filters WHEN opened THEN the row is there, chosen, among those that pass
    v = opened(serve, view, **{"t.kernels.k": "gemm_kernel_1203", "t.kernels.n.total_ns": "~3000", "t.kernels.c.kind": "gemm"})
    v.page.wait_for_selector(f"{TABLE} tr.selected[data-key=gemm_kernel_1203]")
    assert v.page.locator(f"{TABLE} tr.selected").get_attribute("data-at") == str(sum(1 for i in range(1204, 2000) if i % 5))
    assert "1\u202f600 of 2\u202f500" in v.page.locator(f"{TABLE} .count").text_content()


def test_rows_that_do_not_come_say_why_and_can_be_asked_for_again(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a server that fails for the rows WHEN scrolled THEN the place says so and, asked again, shows them
    v = opened(serve, view)
    v.page.route("**/api/v1/table/**", lambda route: route.fulfill(status=200, content_type="text/plain", body="broken"))
    v.page.evaluate(f"() => {{ const e = document.querySelector('{TABLE} .table-scroll'); e.scrollTop = e.scrollHeight / 2; }}")
    again = v.page.locator(f"{TABLE} tr.absent button", has_text="Try again").first
    again.wait_for()
    assert "could not be loaded: The server answered 200 without JSON." in v.page.locator(f"{TABLE} tr.absent").first.text_content()
    v.page.unroute("**/api/v1/table/**")
    again.click()
    v.page.wait_for_function(NONE_ABSENT)
    assert keys_of(v)


def test_a_large_tree_opens_branch_by_branch_from_the_server(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN 2,550 modules, all blocks closed WHEN one below the first page of rows is opened THEN its layers follow it, the longest first
    v = view()
    tree = "[data-section=modules]"
    v.open(serve.home + hash_of(v="1", page="modules", run="large/run", **{"q.merge": "off"}))

    def keys(count: int) -> list[str]:
        v.page.wait_for_function(f"(n) => document.querySelectorAll('{tree} tbody tr[data-key]').length === n", arg=count)
        return v.page.locator(f"{tree} tbody tr[data-key]").evaluate_all("(rows) => rows.map((r) => r.dataset.key)")

    assert keys(50)[:2] == ["Block_49", "Block_48"]
    v.page.locator(f'{tree} tr[data-key="Block_47"] .caret').click()
    v.page.wait_for_selector(f'{tree} tr[data-key="Block_47/Layer_2399"]')
    drawn = v.page.locator(f"{tree} tbody tr[data-key]").evaluate_all("(rows) => rows.map((r) => [r.dataset.key, r.ariaLevel, r.ariaExpanded])")
    assert drawn[2:5] == [["Block_47", "1", "true"], ["Block_47/Layer_2399", "2", None], ["Block_47/Layer_2398", "2", None]]
    # WHEN filtered THEN the layer that passes stands below its block
    v.page.locator(f"{tree} .find-input").fill("layer_777")
    assert keys(2) == ["Block_15", "Block_15/Layer_777"]
    # WHEN a link leads to a layer of a closed block THEN the block opens and the layer is selected and seen
    v.page.goto("about:blank")
    v.open(serve.home + hash_of(v="1", page="modules", run="large/run", **{"q.merge": "off", "t.modules.k": "Block_3/Layer_160"}))
    chosen = v.page.wait_for_selector(f"{tree} tr.selected")
    assert chosen.get_attribute("data-key") == "Block_3/Layer_160" and chosen.is_visible()
