"""Every page on every sample, in both themes and four widths: no console error, no request elsewhere, nothing sideways."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import HOSTILE, HOSTILE_RUN, MADE, Server, hash_of
from tests.support.tiny import EVENTS, trace

pytestmark = pytest.mark.browser
RUNS = [
    "simulated_gpu_train", HOSTILE_RUN,
    "capture_fsdp", "capture_memory", "capture_rl", "capture_scaling/1_replica", "capture_scaling/2_replicas", "capture_train",
    "cpu_cnn/baseline", "cpu_cnn/channels_last", "cpu_decode", "cpu_transformer", "proton", "simulated_copies", "simulated_gpu_llm",
    "simulated_memory/after", "simulated_memory/before", "simulated_ranks", "simulated_serving",
]  # fmt: skip
NARROW = {"simulated_gpu_train": (1024, 700), HOSTILE_RUN: (700, 400)}
"""Widths in which all pages of a run are opened, apart from that of a screen."""
ONCE = {
    "memory_plan": "simulated_gpu_train", "trend": HOSTILE_RUN, "scaling": "capture_scaling/1_replica",
    "scaling_cluster": "capture_scaling/1_replica",
}  # fmt: skip
"""Pages that hardly differ between the runs of a logdir, and the run that they are opened with."""
FEW = {
    "cpu_decode": ("serving",), "simulated_serving": ("serving", "health"), "simulated_ranks": ("ranks", "collectives", "parallelism", "pipeline", "clocks"),
}  # fmt: skip
"""Runs whose other pages differ from those of other samples in numbers only: the server's tests read them, the browser opens these."""
REASONS = {"simulated_gpu_train", "capture_fsdp", "cpu_transformer", "proton"}
"""Runs whose pages without data are opened too: of every kind of recording one."""
TWINS = {"capture_scaling/2_replicas", "cpu_cnn/channels_last", "simulated_memory/after"}
"""Runs that the same script records as another one, with another setting: the server's tests read them, the browser opens the other."""
SHOTS = os.environ.get("TB_SOL_SHOTS", "")


def test_the_list_of_samples_is_complete(serve: Server) -> None:
    # GIVEN the logdir of these tests WHEN the server lists it THEN every run is one that the tests below open
    assert {run for run in serve.pages if run.split("/")[0] not in MADE} == set(RUNS)


@pytest.mark.parametrize("run", [run for run in RUNS if run not in TWINS])
def test_every_page_shows_a_report_or_the_reason_why_not_and_turns_dark(serve: Server, view: Callable[..., Any], run: str) -> None:
    # GIVEN a sample WHEN each of its pages is opened THEN it shows a report or the reason why not, no wider than the window
    v = view()
    widths = [1440, *NARROW.get(run, ())]
    for name in pages_of(serve, run):
        v.open(serve.home + hash_of(v="1", page=name, run=run))
        assert v.page.locator("main h1, main h2").first.text_content()
        assert v.page.locator(".failed").count() == 0, f"{name}: {v.page.locator('.failed').text_content()}"
        assert v.page.locator(".notice.error").count() == 0, f"{name}: {v.page.locator('.notice.error').first.text_content()}"
        assert v.page.locator('[aria-current="page"]').count() == 1
        text = v.page.locator("main").inner_text().replace("**bold** `code`", "")  # a name of the run beside it, which is compared with it
        assert run == HOSTILE_RUN or "`" not in text, f"{name}: marks shown as text"
        assert v.page.evaluate("window.__pwned") is None, name
        # THEN in narrower windows only tables scroll sideways, inside their cards; the next page is opened in the last of the widths
        fits(v, f"{run}-{name}", widths[0])
        for width in widths[1:]:
            v.resize(width)
            fits(v, f"{run}-{name}", width)
        widths.reverse()
        # THEN when the system turns dark, the page and its charts do: of each page the first sample that has what it needs
        if run == next((r for r in RUNS if r not in TWINS and name in serve.available[r] and ONCE.get(name, r) == r), None):
            turns_dark(v, f"{run}-{name}")


def turns_dark(v: Any, name: str) -> None:
    v.page.emulate_media(color_scheme="dark")
    v.page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    v.settle()
    ground = v.page.evaluate("getComputedStyle(document.querySelector('#tb-sol')).backgroundColor")
    assert ground == "rgb(15, 18, 22)"
    picture(v, f"{name}-dark")
    v.page.emulate_media(color_scheme="light")


def pages_of(serve: Server, run: str) -> list[str]:
    """The pages of a run to open: those with data, of the runs in `REASONS` all."""
    known = serve.pages[run] if run in REASONS else [name for name in serve.pages[run] if name in serve.available[run]]
    return [name for name in known if ONCE.get(name, run) == run and name in FEW.get(run, known)]


def fits(v: Any, name: str, width: int) -> None:
    wide = v.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"{name} is {wide} px wide at {width}"
    picture(v, f"{name}-{width}")


def test_hostile_names_are_text(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN names that hold scripts, quotes, templates and formulas WHEN they are listed THEN each is read as it is
    v = view()
    v.open(serve.home + hash_of(v="1", page="operators", run=HOSTILE_RUN))
    shown = v.page.locator("[data-section=operators] tbody tr").all_text_contents()
    for name in HOSTILE:
        assert any(name in row for row in shown), name
    assert v.page.locator("[data-section=operators] tbody :is(script, img, strong)").count() == 0


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
    assert group.get_by_role("link").get_attribute("aria-label") == f"steps, {reason}, failed to load"
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


def test_an_empty_logdir_lists_the_files_that_are_no_recording(empty: Server, view: Callable[..., Any]) -> None:
    # GIVEN a logdir with one file that is no recording WHEN it is served THEN the page names the file, why not, and how to record one
    v = view()
    v.open(empty.home)
    v.page.wait_for_selector("text=No recording in this logdir yet")
    assert "notes.json" in v.page.locator("main").text_content()
    profiler, capture = v.page.locator(".snippet").all_text_contents()
    assert "tensorboard_trace_handler" in profiler and 'sol.capture("nothing", model=model)' in capture
    picture(v, "empty")


def test_a_changed_file_is_reported_and_read_on_demand(serve: Server, logdir: Path, view: Callable[..., Any]) -> None:
    # GIVEN a page that shows a recording
    v = view()
    v.open(serve.home + hash_of(v="1", page="health", run="changing/run"))
    before = v.page.locator("main .headline").text_content()
    # WHEN its file is written anew and the server has scanned again
    more = [*EVENTS, {**EVENTS[0], "name": "aten::relu", "ts": 100}, {**EVENTS[0], "name": "aten::add", "ts": 200}]
    trace(logdir / "changing" / "run" / "w.pt.trace.json", more)
    urllib.request.urlopen(urllib.request.Request(serve.home + "api/v1/rescan", method="POST"), timeout=120).close()
    # THEN the page keeps what it shows and reports the change; Read again shows the new recording
    again = v.page.wait_for_selector("button:has-text('Read again')", timeout=120_000)
    assert v.page.locator("main .headline").text_content() == before
    again.click()
    v.page.wait_for_function(
        "(old) => { const h = document.querySelector('main .headline'); return h && h.textContent !== old; }", arg=before
    )
    assert v.page.locator("button:has-text('Read again')").count() == 0


def picture(v: Any, name: str) -> None:
    """Saves a screenshot into the folder TB_SOL_SHOTS, if there is one."""
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
        v.page.screenshot(path=str(Path(SHOTS) / f"{safe}.png"), full_page=True)
