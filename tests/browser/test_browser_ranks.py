"""The page that compares ranks: it fills while they are read, marks and opens ranks, and stays within a narrow window."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Server, hash_of

pytestmark = pytest.mark.browser
RUN = "simulated_copies"
ROWS = "[data-section=ranks] tbody tr:not(.total):not(.gap)"
ALL_READ = "() => document.querySelector('[data-section=facts]')?.textContent.includes('all read')"


def open_ranks(v: Any, serve: Server, **more: str) -> None:
    v.open(serve.home + hash_of(v="1", page="memcpy_ranks", run=RUN, **more))
    v.page.wait_for_function(ALL_READ, timeout=120_000)
    v.settle()


def test_a_run_of_four_ranks_has_a_row_per_rank_and_direction(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a run of four ranks WHEN the page is shown THEN it names the rank that copies longest, with a row per rank and direction
    v = view()
    open_ranks(v, serve)
    body = serve.api(f"analysis/memcpy_ranks?run={RUN}&wait=30")[1]
    tables = {s["id"]: s["data"] for s in body["sections"] if s["kind"] == "table"}  # type: ignore[attr-defined]
    assert v.page.locator(ROWS).count() == len(tables["ranks"]["id"])
    assert tables["directions"]["longest_rank"][0] in v.page.locator(".headline").first.text_content()
    # WHEN another measure is chosen THEN it is there at once, in the address and in the figure's title
    v.page.get_by_role("radio", name="Bytes").or_(v.page.get_by_text("Bytes", exact=True)).first.click()
    v.page.wait_for_function("() => document.querySelector('[data-section=panels]').textContent.includes('bytes per step')")
    assert "p.sol.q.what=bytes" in v.page.url


def test_a_rank_opens_its_copies(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the first row WHEN its rank is clicked THEN the copies of that worker and direction are shown; Back returns
    v = view()
    open_ranks(v, serve, worker="rank0_4000")
    first = v.page.locator(ROWS).first
    direction = first.locator("td").nth(1).text_content().strip()
    rank = first.locator("td").nth(0).text_content().strip()
    first.locator("a.cell-link").first.click()
    v.page.wait_for_selector(".tabs a[aria-current=page][href*='page=memcpy&'], .tabs a[aria-current=page][href$='page=memcpy']")
    v.settle()
    assert f"p.sol.worker=rank{rank}_400{rank}" in v.page.url and f"p.sol.find={direction}" in v.page.url
    v.page.go_back()
    v.page.wait_for_selector(ROWS)
    assert "p.sol.page=memcpy_ranks" in v.page.url and "p.sol.worker=rank0_4000" in v.page.url


def test_the_page_asks_until_all_are_read(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a server that answers twice with a part of the workers THEN the page shows each, and asks no more once all are there
    v = view()
    whole = serve.api(f"analysis/memcpy_ranks?run={RUN}&wait=30")[1]
    requests: list[str] = []

    def answer(route: Any) -> None:
        requests.append(route.request.url)
        body = dict(whole)
        if len(requests) < 3:
            body |= {
                "reading": {"done": len(requests), "total": 4},
                "notices": [{"text": f"{len(requests)} of 4 workers", "level": "info"}],
            }
        route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

    v.page.route("**/api/v1/analysis/memcpy_ranks*", answer)
    v.open(serve.home + hash_of(v="1", page="memcpy_ranks", run=RUN))
    v.page.wait_for_selector("text=2 of 4 workers")
    v.page.wait_for_function("() => !document.body.textContent.includes('of 4 workers')")
    # a further question would come 600 ms after the last answer
    v.page.wait_for_timeout(1500)
    assert len(requests) == 3


def test_nothing_is_wider_than_a_narrow_window(serve: Server, view: Callable[..., Any]) -> None:
    v = view(viewport={"width": 700, "height": 900})
    open_ranks(v, serve)
    assert v.page.evaluate("document.documentElement.scrollWidth") <= 700


@pytest.mark.parametrize("goes", ["to another page", "away"])
def test_a_page_that_no_longer_waits_says_so(serve: Server, view: Callable[..., Any], goes: str) -> None:
    # GIVEN a page whose workers are still being read
    v = view()
    body = serve.api(f"analysis/memcpy_ranks?run={RUN}&wait=30")[1] | {
        "reading": {"done": 1, "total": 4},
        "notices": [{"text": "1 of 4 workers", "level": "info"}],
    }
    v.page.route(
        "**/api/v1/analysis/memcpy_ranks*", lambda r: r.fulfill(status=200, content_type="application/json", body=json.dumps(body))
    )
    # what is sent while a page closes is not shown to the test: the page notes it
    v.page.add_init_script(
        "const send = navigator.sendBeacon.bind(navigator);"
        "navigator.sendBeacon = (url, data) => { localStorage.left = (localStorage.left ?? '') + ' ' + url; return send(url, data); };"
    )
    v.open(serve.home + hash_of(v="1", page="memcpy_ranks", run=RUN))
    v.page.wait_for_selector("text=1 of 4 workers")
    assert v.page.evaluate("localStorage.left") is None
    # WHEN it shows another page, or is left THEN the server hears of it
    if goes == "to another page":
        v.page.evaluate("() => { location.hash = location.hash.replace('memcpy_ranks', 'kernels'); }")
        v.page.wait_for_selector("[data-section=kernels] tbody tr")
    else:
        v.page.goto(f"{serve.home}api/v1/health")
    v.page.wait_for_function("localStorage.left !== undefined")  # the page that goes may say it after the next one has come
    assert set(v.page.evaluate("localStorage.left").split()) == {"api/v1/leave"}
