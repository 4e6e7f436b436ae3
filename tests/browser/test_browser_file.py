"""Pages that were saved as one HTML file, and a cell of a notebook: opened from the disk in Chromium and in Firefox, without a server."""

from __future__ import annotations

import os
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Server, missing, opened
from tests.conftest import ROOT
from tests.support.firefox import FIREFOX, firefox

pytestmark = pytest.mark.browser
SHOTS = os.environ.get("TB_SOL_SHOTS", "")
"""A folder for pictures of what was seen, if there is one."""


@pytest.fixture(scope="module")
def saved(serve: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages of a sample, as the server gives them out."""
    file = tmp_path_factory.mktemp("saved") / "report.html"
    with urllib.request.urlopen(serve.root + "api/v1/export?run=simulated_gpu_train&form=html&wait=20") as reply:
        file.write_bytes(reply.read())
    return file


def test_pages_in_chromium(saved: Path, chromium: Any) -> None:
    # GIVEN the pages of a sample as one HTML file, opened from the disk in a dark window
    context, page = opened(chromium, viewport={"width": 1280, "height": 900}, color_scheme="dark")
    faults: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(saved.as_uri())
    # WHEN it is read THEN the number is there, in the theme of the window, and a figure is drawn
    page.wait_for_selector(".js-plotly-plot .main-svg")
    assert "of the speed of light" in page.inner_text("main") and page.evaluate("document.documentElement.dataset.theme") == "dark"
    # AND links, filters and the list of pages work as on the page; fields that need a server do not
    page.click("nav >> text=Roofline")
    page.wait_for_selector("h1:has-text('Roofline')")
    assert page.locator("fieldset.fields").get_attribute("disabled") is not None
    page.fill("main input[placeholder='Filter']", "addmm")
    page.wait_for_selector("main >> text=aten::addmm")
    page.click("nav >> text=Compare")
    page.wait_for_selector("h2:has-text('not in this file')")
    page.go_back()
    page.wait_for_selector("h1:has-text('Roofline')")
    # AND the timeline is drawn, as finely as it is zoomed to; what is known of an event besides needs a server
    page.click("nav >> text=Timeline")
    page.wait_for_selector(".tl-tally:has-text('events')")
    page.click("button:has-text('Path')")  # which stands in the file
    page.wait_for_selector("button[aria-pressed='true']:has-text('Path')")
    before = page.inner_text(".tl-tally")
    page.locator(".tl").focus()
    for _ in range(8):
        page.keyboard.press("w")
    page.wait_for_selector(f".tl-tally:not(:has-text('{before}'))")  # the policy of the file lets no test evaluate a condition
    page.wait_for_selector(".tl-progress:not(.on)", state="attached")
    box = page.locator(".tl canvas").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 120)  # a stream, below the head
    page.wait_for_selector("text=not all that is known of each event")
    # AND the link of the view has other forms
    page.click("button[aria-label='Link in other forms']")
    page.click("text=Copy as command")
    assert "tb-sol analyze timeline LOGDIR" in page.input_value("textarea.copy-field")
    page.keyboard.press("Escape")
    # AND nothing was asked of anybody, and nothing went wrong
    context.close()
    assert faults == [] and [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


def test_cells_of_a_notebook_need_no_kernel_afterwards(chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the notebook of the samples, executed in its folder as Jupyter does
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for folder in ("notebooks", "simulated_gpu_train", "cpu_cnn"):
        shutil.copytree(ROOT / "samples" / folder, tmp_path / folder)
    notebook = nbformat.read(tmp_path / "notebooks" / "recording.ipynb", 4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path / "notebooks")}}).execute()
    shown = [output.data for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs if "data" in output]
    # THEN reports are there as a frame, as Markdown and as text, tables as HTML, the figure as Plotly, and the file is written
    frames = [data for data in shown if data.get("text/html", "").startswith("<iframe")]
    assert [data["text/plain"].partition(":")[0] for data in frames] == ["Overview", "Compare"]
    assert all(data["text/markdown"].startswith("### ") for data in frames) and any("<table" in data.get("text/html", "") for data in shown)
    assert sum("application/vnd.plotly.v1+json" in data for data in shown) == 1 and (tmp_path / "notebooks" / "report.html").exists()
    # WHEN its cells are shown by a browser without a kernel THEN each is the page of its report alone, in the theme of the window
    cell = tmp_path / "cells.html"
    cell.write_text("<!doctype html><meta charset='utf-8'>" + "".join(data["text/html"] for data in frames))
    context, page = opened(chromium, color_scheme="dark")
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(cell.as_uri())
    for place, (title, words) in enumerate((("Overview", "of the speed of light"), ("Compare", "channels_last"))):
        frame = page.frame_locator("iframe").nth(place)
        frame.locator(f"main >> text={words}").first.wait_for()
        assert frame.locator("h1").all_inner_texts() in ([title], []) and frame.locator(".nav, .bar, .tabs").count() == 0
        assert frame.locator("html").get_attribute("data-theme") == "dark"
    heights = [frame.bounding_box()["height"] for frame in page.query_selector_all("iframe")]
    context.close()
    assert faults == [] and all(height > 640 for height in heights)


def test_pages_in_firefox(saved: Path, tmp_path: Path) -> None:
    if not FIREFOX:
        missing("no Firefox; TB_SOL_FIREFOX names one (apt install firefox-esr)")
    with firefox(tmp_path / "profile") as f:
        # GIVEN the same file in a person's light theme WHEN opened THEN the number is there and a figure is drawn
        f.theme(dark=False)
        f.open(saved.as_uri())
        f.wait("document.querySelector('.js-plotly-plot .main-svg')")
        assert "33.4" in f.script("return document.querySelector('main').innerText")
        light = f.script("return [document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor]")
        # AND it follows the person into the dark
        f.theme(dark=True)
        f.wait("document.documentElement.dataset.theme === 'dark'")
        assert light == ["light", "rgb(246, 247, 249)"] != f.script("return ['light', getComputedStyle(document.body).backgroundColor]")
        # AND links and keys work as on the page: a page of the list, its filter, and the help
        f.click("nav a[href*='page=roofline']")
        f.wait("document.querySelector('h1')?.innerText === 'Roofline'")
        f.press("main input[placeholder='Filter']", "addmm")
        f.wait("[...document.querySelectorAll('main td')].some((cell) => cell.innerText.includes('aten::addmm'))")
        f.press("nav a[aria-current]", "?")
        f.wait("document.querySelector('[role=dialog]')")
        if SHOTS:
            (Path(SHOTS) / "firefox.png").write_bytes(f.picture())
        # AND nothing was asked of anybody, and nothing went wrong
        assert f.faults() == []
