"""Every page on every sample, in both themes and three widths: no console error, no request elsewhere, nothing sideways."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import HOSTILE, Server, hash_of

pytestmark = pytest.mark.browser
RUNS = [
    "capture_fsdp", "capture_memory", "capture_rl", "capture_scaling/1_replica", "capture_scaling/2_replicas", "capture_train",
    "cpu_cnn/baseline", "cpu_cnn/channels_last", "cpu_transformer",
    "hostile <run> & 100%", "proton", "simulated_copies", "simulated_gpu_llm", "simulated_gpu_train",
    "simulated_memory/after", "simulated_memory/before",
]  # fmt: skip
SHOTS = os.environ.get("TB_SOL_SHOTS", "")


def test_the_list_of_samples_is_complete(serve: Server) -> None:
    # GIVEN the logdir of these tests WHEN the server lists it THEN every run is one that the tests below open
    assert sorted(serve.pages) == sorted(RUNS)


@pytest.mark.parametrize("run", RUNS)
def test_every_page_in_both_themes(serve: Server, view: Callable[..., Any], run: str) -> None:
    # GIVEN a sample WHEN each of its pages is opened THEN it shows a report or says why not, in light and after a switch to dark
    v = view(color_scheme="light")
    for name in serve.pages[run]:
        v.page.emulate_media(color_scheme="light")
        v.open(serve.home + hash_of(v="1", page=name, run=run))
        assert v.page.locator("main h1, main h2").first.text_content()
        assert v.page.locator(".failed").count() == 0, f"{name}: {v.page.locator('.failed').text_content()}"
        assert v.page.locator(".notice.error").count() == 0, f"{name}: {v.page.locator('.notice.error').first.text_content()}"
        assert v.page.locator('[aria-current="page"]').count() == 1
        assert run.startswith("hostile") or "`" not in v.page.locator("main").inner_text(), f"{name}: marks shown as text"
        picture(v, f"{run}-{name}-light")
        v.page.emulate_media(color_scheme="dark")
        v.page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
        v.settle()
        ground = v.page.evaluate("getComputedStyle(document.querySelector('#tb-sol')).backgroundColor")
        assert ground == "rgb(15, 18, 22)"
        picture(v, f"{run}-{name}-dark")


@pytest.mark.parametrize("width", [1440, 1024, 700, 400])
def test_no_page_scrolls_sideways(serve: Server, view: Callable[..., Any], width: int) -> None:
    # GIVEN a window of some width WHEN each page is opened THEN only tables scroll, inside their cards
    v = view(viewport={"width": width, "height": 900})
    for run, name in [(r, n) for r in ("simulated_gpu_train", "hostile <run> & 100%") for n in serve.pages[r]]:
        v.open(serve.home + hash_of(v="1", page=name, run=run))
        wide = v.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{name} of {run} is {wide} px wide at {width}"
        if width != 1440:
            picture(v, f"{run}-{name}-{width}")


def test_hostile_names_are_text(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a recording whose names hold scripts, quotes, templates and formulas WHEN its pages are opened THEN each name is read as it is
    v = view()
    for name in serve.pages["hostile <run> & 100%"]:
        v.open(serve.home + hash_of(v="1", page=name, run="hostile <run> & 100%"))
        assert v.page.evaluate("window.__pwned") is None
    v.open(serve.home + hash_of(v="1", page="operators", run="hostile <run> & 100%"))
    shown = v.page.locator("[data-section=operators] tbody tr").all_text_contents()
    for name in HOSTILE:
        assert any(name in row for row in shown), name
    assert (
        v.page.locator(
            "[data-section=operators] tbody script, [data-section=operators] tbody img, [data-section=operators] tbody strong"
        ).count()
        == 0
    )


def test_an_analysis_that_failed_to_load_is_listed_with_its_reason(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a server that could not load the analysis "steps" WHEN a page is opened
    reason = "ModuleNotFoundError: No module named 'missing_package'"

    def without_steps(route: Any) -> None:
        answer = route.fetch()
        body = answer.json()
        body["analyses"] = [a for a in body["analyses"] if a["name"] != "steps"]
        body["failed"] = {"steps": reason}
        route.fulfill(response=answer, json=body)

    v = view()
    v.page.route("**/api/v1/analyses*", without_steps)
    v.open(serve.home + hash_of(v="1", page="kernels", run="proton"))
    # THEN the list of pages has it in a group of its own, and its page and the help say why and what helps
    group = v.page.get_by_role("group", name="Failed to load")
    assert group.get_by_role("link").get_attribute("aria-label") == f"steps, failed to load: {reason}"
    group.get_by_role("link").click()
    v.page.get_by_role("heading", name='Analysis "steps" failed to load').wait_for()
    assert reason in (shown := v.page.locator("main").inner_text()) and "restart the server" in shown
    picture(v, "failed")
    v.page.keyboard.press("?")
    assert reason in v.page.get_by_role("dialog").inner_text()
    v.page.keyboard.press("Escape")
    # THEN the other pages work
    v.page.get_by_role("link", name="Kernels", exact=True).click()
    v.settle()
    assert v.page.locator("[data-section=kernels] tbody tr").count()


def test_an_empty_logdir_says_what_was_looked_at(chromium: object, view: Callable[..., Any], tmp_path: Path) -> None:
    # GIVEN a logdir with one file that is no recording WHEN it is served THEN the page names the file, why not, and how to record one
    import sys

    from tests.browser.conftest import environment, start, stop

    (tmp_path / "notes.json").write_text('{"a": 1}')
    process, home = start(
        [sys.executable, "-m", "tb_sol_plugin.cli", "serve", str(tmp_path), "--port", "0"], environment({"TB_SOL_CACHE_DIR": ""})
    )
    try:
        v = view()
        v.open(home)
        v.page.wait_for_selector("text=No recording in this logdir yet")
        assert "notes.json" in v.page.locator("main").text_content()
        trace, capture = v.page.locator(".snippet").all_text_contents()
        assert "tensorboard_trace_handler" in trace and f'sol.capture("{tmp_path.name}", model=model)' in capture
        picture(v, "empty")
    finally:
        stop(process)


def picture(v: Any, name: str) -> None:
    """Keeps what was seen where TB_SOL_SHOTS says."""
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
        v.page.screenshot(path=str(Path(SHOTS) / f"{safe}.png"), full_page=True)


def test_a_changed_file_is_told_and_read_on_demand(chromium: object, view: Callable[..., Any], tmp_path: Path) -> None:
    # GIVEN a page that shows a recording
    import sys
    import urllib.request

    from tests.browser.conftest import environment, start, stop
    from tests.support.tiny import EVENTS, trace

    path = trace(tmp_path / "logs" / "job" / "w.pt.trace.json")
    process, home = start(
        [sys.executable, "-m", "tb_sol_plugin.cli", "serve", str(tmp_path / "logs"), "--port", "0"],
        environment({"TB_SOL_CACHE_DIR": str(tmp_path / "cache")}),
    )
    try:
        v = view()
        v.open(home + hash_of(v="1", page="health", run="job"))
        before = v.page.locator("main .headline").text_content()
        # WHEN its file is written anew and the server has looked again
        trace(path, [*EVENTS, {**EVENTS[0], "name": "aten::relu", "ts": 100}, {**EVENTS[0], "name": "aten::add", "ts": 200}])
        urllib.request.urlopen(urllib.request.Request(home + "api/v1/rescan", method="POST"), timeout=120).close()
        # THEN the page keeps what it shows and says so; Read again shows the new recording
        again = v.page.wait_for_selector("button:has-text('Read again')", timeout=120_000)
        assert v.page.locator("main .headline").text_content() == before
        again.click()
        v.page.wait_for_function(
            "(old) => { const h = document.querySelector('main .headline'); return h && h.textContent !== old; }", arg=before
        )
        assert v.page.locator("button:has-text('Read again')").count() == 0
    finally:
        stop(process)
