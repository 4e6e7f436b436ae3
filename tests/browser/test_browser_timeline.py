"""The timeline as a person uses it: by mouse, by keys, by link; its pixels are those of the tiles."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import HOSTILE_RUN, HOUR, TENSORBOARD_RUN, Server, hash_of, missing, serve_folder
from tests.conftest import ROOT

pytestmark = pytest.mark.browser
RUN = "simulated_gpu_train"
AXE = ROOT / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
SURFACE = "document.querySelector('.tl-plot').timeline"
QUIET = (
    f"() => !!document.querySelector('.tl[data-ready]') && {SURFACE}.model.names.peek().text.length > 0 && !{SURFACE}.model.waiting.peek()"
)


def shown(v: Any) -> None:
    """Waits until all tiles of the view are there."""
    v.frame().wait_for_selector(".tl[data-ready]")
    v.frame().wait_for_function(QUIET)
    v.frame().evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    v.frame().wait_for_function(QUIET)


def timeline(v: Any, server: Server, run: str = RUN, **state: str) -> None:
    v.open(server.home + hash_of(v="1", page="timeline", run=run, **state))
    shown(v)


def model(v: Any, text: str) -> Any:
    return v.frame().evaluate(f"() => {SURFACE}.model.{text}")


def window(v: Any) -> tuple[float, float]:
    found = model(v, "window.peek()")
    return found["start"], found["end"]


def tracks(server: Server, run: str = RUN) -> list[dict[str, Any]]:
    return server.api(f"timeline?run={urllib.parse.quote(run)}")[1]["tracks"]  # type: ignore[return-value]


def place(v: Any, path: str, time: float, lane: int = 0) -> tuple[float, float]:
    """Where a time of a lane is on the screen."""
    at = v.frame().evaluate(
        """([path, time, lane]) => {
            const surface = document.querySelector('.tl-plot').timeline, model = surface.model;
            const row = model.rows.rowOf(model.trackAt(path).track), view = model.window.peek();
            const box = document.querySelector('.tl-canvas').getBoundingClientRect();
            const top = row.pinned ? row.y : row.y + model.rows.shown.peek().pinnedHeight - surface.scroller.scrollTop;
            return [box.left + (time - view.start) / (view.end - view.start) * model.width.peek(), box.top + top + 2 + (lane + 0.5) * row.lane];
        }""",
        [path, time, lane],
    )
    return at[0], at[1]


def longest(server: Server, kind: str, run: str = RUN) -> tuple[str, dict[str, Any]]:
    """Path of the first track of a kind, and its longest kernel or other event that is no copy."""
    track = next(t for t in tracks(server, run) if t["kind"] == kind and t["lanes"])
    found = server.api(f"timeline/events?run={urllib.parse.quote(run)}&track={track['track']}")[1]["events"]
    kernels = [e for e in found if not e["name"].startswith("Mem")]
    return track["path"], max(kernels, key=lambda e: e["duration_ns"])


def test_every_pixel_of_a_stream_is_that_of_its_events(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the timeline of a recording
    v = view()
    timeline(v, serve)
    track = next(t for t in tracks(serve) if t["kind"] == "stream")
    events = serve.api(f"timeline/events?run={RUN}&track={track['track']}")[1]["events"]
    view_start, view_end = window(v)
    width = model(v, "width.peek()")
    # WHEN the middle line of a stream is read from the canvas THEN it is painted where an event is longer than two pixels, nowhere else
    _, y = place(v, track["path"], 0)
    row = v.frame().evaluate(
        """([y, width]) => {
            const canvas = document.querySelector('.tl-canvas'), box = canvas.getBoundingClientRect();
            const data = canvas.getContext('2d').getImageData(0, Math.round(y - box.top), width, 1).data;
            return Array.from({ length: width }, (_, x) => `${data[4 * x]},${data[4 * x + 1]},${data[4 * x + 2]}`);
        }""",
        [y - 9, width],
    )
    scale = width / (view_end - view_start)
    painted, wide = set(), 0
    for e in events:  # type: ignore[union-attr, attr-defined]
        x0, x1 = (e["start_ns"] - view_start) * scale, (e["start_ns"] + e["duration_ns"] - view_start) * scale
        painted |= set(range(int(x0) - 1, int(x1) + 3))
        if x1 - x0 >= 4:
            wide += 1
            inner = {row[x] for x in range(int(x0) + 1, int(x1) - 1)}
            assert "255,255,255" not in inner, e
    assert wide >= 3
    empty = {row[x] for x in range(width) if x not in painted}
    assert all(all(int(c) >= 200 for c in color.split(",")) for color in empty), empty  # background, grid, edges of steps
    # AND the words beside say how many events are in view
    assert "events" in v.frame().locator(".tl-tally").inner_text()


PICTURE = """([dark]) => {
    const surface = document.querySelector('.tl-plot').timeline, { model } = surface, canvas = document.querySelector('.tl-canvas');
    const view = model.window.peek(), width = canvas.width, scale = width / (view.end - view.start), names = model.names.peek();
    const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
    const mix = (a, b, share) => a.map((v, k) => Math.round(v * (1 - share) + b[k] * share)).join();
    const ground = rgb(dark ? '#161A20' : '#FFFFFF'), fills = surface.fills().map(rgb), wrong = [];
    const z = Math.min(Math.max(0, Math.floor(Math.log2((view.end - view.start) / width))), model.cache.top), wide = 2 ** (z + 10);
    const bands = [...model.steps.peek(), ...model.phases.peek()].flatMap((s) => [s.start_ns, s.end_ns]);
    const lines = new Set(bands.map((t) => Math.round((t - view.start) * scale)));
    for (let i = Math.floor(view.start / wide); i * wide <= view.end; i++) { // an item over two tiles is drawn in parts; a short one has no edge
        const x = Math.floor((i * wide - view.start) * scale);
        for (let by = -1; by < 4; by++) lines.add(x + by);
    }
    let items = 0, lanes = 0;
    const { rows, pinnedHeight } = model.rows.shown.peek();
    for (const row of rows) for (let lane = 0; lane < row.lanes; lane++) {
        const y = row.y + pinnedHeight + 2 + lane * row.lane + 1;
        if (y >= canvas.height) continue;
        const want = Array(width).fill('');
        for (let i = Math.max(0, Math.floor(view.start / wide)); i * wide < view.end && i * wide <= model.all.peek().end; i++) {
            const tile = model.cache.covering(row.track.track, z, i).tile;
            for (let k = 0; tile && k < tile.start.length; k++) {
                if (k < tile.bounds[lane] || k >= tile.bounds[lane + 1] || tile.start[k] >= view.end || tile.end[k] <= view.start) continue;
                const x0 = Math.max(0, Math.floor((tile.start[k] - view.start) * scale));
                const x1 = Math.min(width, Math.max(x0 + 1, Math.round((tile.end[k] - view.start) * scale)));
                const fill = fills[names.categories[tile.name[k]]], one = tile.count[k] === 1;
                const color = mix(ground, fill, one ? 1 : 0.35 + 0.65 * (tile.busy[k] >> 4) / 15);
                for (let x = x0; x < x1; x++) want[x] = color;
                if (x1 - x0 >= 4) want[x1 - 1] = mix(fill, ground, 0.45);
                items++;
            }
        }
        lanes++;
        const data = canvas.getContext('2d').getImageData(0, y, width, 1).data;
        for (let x = 0; x < width; x++) {
            const is = [0, 1, 2].map((k) => data[4 * x + k]).join();
            if (want[x] && is !== want[x] && !lines.has(x)) wrong.push([row.track.path, lane, x, is, want[x]]);
            if (!want[x] && is !== ground.join() && !lines.has(x) && want.includes(is)) wrong.push([row.track.path, lane, x, is, 'nothing']);
        }
    }
    return { items, lanes, wrong: wrong.slice(0, 5) };
}"""


WORDS = """() => {
    const surface = document.querySelector('.tl-plot').timeline, names = surface.model.names.peek(), words = [];
    const kept = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { words.push(text); return kept.call(this, text, ...at); };
    surface.draw();
    CanvasRenderingContext2D.prototype.fillText = kept;
    return [words, names.text.map((_, k) => names.short(k))];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_is_that_of_the_tiles(serve: Server, view: Callable[..., Any], theme: str) -> None:
    # GIVEN four views of a recording, from all of it to one kernel WHEN drawn THEN each pixel of each lane has the color that its tile says
    v = view(color_scheme=theme)
    timeline(v, serve)
    path, event = longest(serve, "stream")
    middle, length = event["start_ns"] + event["duration_ns"] / 2, window(v)[1] - window(v)[0]
    for part in (1.0, 0.3, 0.05, 3 * event["duration_ns"] / length):
        v.frame().evaluate(f"([a, b]) => {SURFACE}.model.show({{ start: a, end: b }})", [middle - part * length / 2, middle + part * length / 2])
        shown(v)
        found = v.frame().evaluate(PICTURE, [theme == "dark"])
        assert found["wrong"] == [] and found["items"] > 2 and found["lanes"] > 3, (part, found)
    # AND words on bars are the names of events there, cut to their bars
    words, names = v.frame().evaluate(WORDS)
    cut = [word.removesuffix("…") for word in words]
    assert any(word and event["name"].startswith(word) for word in cut) and path
    assert sum(any(name.startswith(word) for name in names) for word in cut) > 3


def test_a_click_selects_and_the_link_shows_the_same_event(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a kernel WHEN it is clicked THEN all of it is shown, and the address names it by its row, start and duration
    v = view()
    timeline(v, serve)
    path, event = longest(serve, "stream")
    v.page.mouse.click(*place(v, path, event["start_ns"] + event["duration_ns"] / 2))
    card = v.frame().locator(".tl-detail-card")
    card.wait_for()
    assert card.locator("h2").inner_text() == event["name"]
    v.page.wait_for_function("location.hash.includes('p.sol.ev=')")
    assert f"{event['start_ns']}:{event['duration_ns']}" in urllib.parse.unquote(v.page.url)
    # AND its launch is linked: `[` goes there and `]` comes back
    launch = model(v, "detail.peek()")["flows"][0]["source"]["name"]
    assert "Launch" in launch
    v.page.keyboard.press("[")
    v.frame().wait_for_function(f"(name) => {SURFACE}.model.detail.peek()?.name === name", arg=launch)
    v.page.keyboard.press("]")
    v.frame().wait_for_function(f"(name) => {SURFACE}.model.detail.peek()?.name === name", arg=event["name"])
    # AND a teammate who opens the link sees it, zoomed to
    other = view()
    other.open(v.page.url)
    shown(other)
    other.frame().locator(".tl-detail-card").wait_for()
    assert other.frame().locator(".tl-detail-card h2").inner_text() == event["name"]
    # AND the way leads back to the page of the kernel
    other.frame().locator(".tl-links a", has_text="Kernel").click()
    other.frame().wait_for_selector("[data-section=kernels]")
    assert event["name"][:10] in other.frame().locator("[data-section=kernels] tbody tr:not(.total)").first.inner_text()


def test_an_area_is_added_up_by_the_report(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a drag over a stretch of a stream
    v = view()
    timeline(v, serve)
    path, event = longest(serve, "stream")
    low, high = window(v)
    x, y = place(v, path, low + (high - low) * 0.3)
    v.page.mouse.move(x, y)
    v.page.mouse.down()
    v.page.mouse.move(x + 60, y)
    v.page.mouse.move(x + 200, y)
    v.page.mouse.up()
    assert model(v, "hover.peek()") is None and model(v, "reading.peek()") is None  # the card of what was there before is gone
    # THEN the report of that area is below, with the facts that the server has for it, and the address holds it
    v.frame().wait_for_selector(".tl-area:not(.waiting) [data-section=groups]")
    area = model(v, "area.peek()")
    assert area["paths"] == [path]
    query = urllib.parse.urlencode({"run": RUN, "start_ns": area["start"], "end_ns": area["end"], "tracks": path})
    report = serve.api(f"analysis/timeline_selection?{query}")[1]
    facts = {k: x for s in report["sections"] if s["kind"] == "facts" for k, x in s["values"].items()}  # type: ignore[attr-defined]
    assert facts["duration_ns"] == area["end"] - area["start"]
    groups = next(s for s in report["sections"] if s["id"] == "groups")  # type: ignore[attr-defined]
    shown_rows = v.frame().locator("[data-section=groups] tbody tr:not(.total)").count()
    assert shown_rows == len(groups["data"]["name"]) > 0
    assert f"p.sol.area={area['start']}-{area['end']}:" in urllib.parse.unquote(v.page.url)
    # AND a row of it finds its events, and selects the first one of the area
    name = groups["data"]["name"][0]
    v.frame().locator("[data-section=groups] tbody tr[data-at='0'] td").nth(2).click()
    v.frame().wait_for_function(f"(name) => {SURFACE}.model.detail.peek()?.name === name && {SURFACE}.model.finder.state.peek().text === name", arg=name)
    assert area["start"] - model(v, "detail.peek()")["duration_ns"] <= model(v, "detail.peek()")["start_ns"] < area["end"]
    v.frame().locator(".tl").focus()
    for _ in range(2):  # the search, the event
        v.page.keyboard.press("Escape")
    # AND Escape takes it away
    v.page.keyboard.press("Escape")
    v.frame().wait_for_selector(".tl-area", state="detached")
    # AND a selected event becomes an area by R
    v.page.mouse.click(*place(v, path, event["start_ns"] + event["duration_ns"] / 2))
    v.frame().locator(".tl-detail-card").wait_for()
    v.page.keyboard.press("r")
    v.frame().wait_for_selector(".tl-area")
    assert model(v, "area.peek()")["start"] == event["start_ns"]


def test_keys_move_zoom_and_come_back(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the whole recording
    v = view()
    timeline(v, serve)
    v.frame().locator(".tl").focus()
    v.page.keyboard.press("0")
    whole = window(v)
    # WHEN keys are pressed THEN the window does what they say
    v.page.keyboard.press("w")
    near = window(v)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) * 0.7, rel=1e-6)
    v.page.keyboard.press("d")
    assert window(v)[0] > near[0] and window(v)[1] - window(v)[0] == pytest.approx(near[1] - near[0])
    v.page.keyboard.press("a")
    assert window(v) == pytest.approx(near)
    v.page.keyboard.press("s")
    assert window(v)[1] - window(v)[0] == pytest.approx(whole[1] - whole[0], rel=1e-6)
    # AND everything that can be worked or read has a name, rows say their depth and whether they are open, and each id is there once
    nodes = v.context.new_cdp_session(v.page).send("Accessibility.getFullAXTree")["nodes"]
    known = [n for n in nodes if not n["ignored"]]
    roles = [n["role"]["value"] for n in known]
    worked = ("button", "combobox", "image", "link", "searchbox", "textbox", "tree", "treeitem")
    assert [n for n in known if n["role"]["value"] in worked and not n["name"]["value"]] == [] and {"image", "searchbox", "tree"} <= {*roles}
    rows = [{p["name"]: p["value"]["value"] for p in n["properties"]} for n in known if n["role"]["value"] == "treeitem"]
    assert len(rows) > 3 and all(row["level"] >= 1 for row in rows) and any("expanded" in row for row in rows)
    ids = v.frame().evaluate("() => [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    # AND Tab goes through all of it in the order in which it is read, each with a ring, none of it twice; nothing moves by itself
    v.frame().locator(".tl").focus()
    now = """() => { const e = document.activeElement; const by = getComputedStyle(e.closest('label') ?? e);
        return [e.getAttribute('aria-label') ?? e.textContent, by.outlineStyle !== 'none' || !!e.closest('.tl-tree'), !!e.closest('.tl')]; }"""
    order = []
    while len(order) < 40:
        v.page.keyboard.press("Tab")
        name, ring, inside = v.frame().evaluate(now)
        if not inside:
            break
        order.append(name)
        assert ring, name
    wanted = ["Find events by name", "Find a row", "Zoom in", "Zoom out", "Back", "Forward", "Fit F", "All 0", "Path", "Table"]
    assert [" ".join(name.split()) for name in order[:10]] == wanted
    assert order[10:] == ["Save as a trace file, or open in Perfetto", "Rows and view", "Rows of the timeline"]
    v.frame().locator(".tl-progress").evaluate("(e) => e.classList.add('on')")
    still = """() => [...document.querySelectorAll('.tl, .tl *')].flatMap((e) => [e, '::after'].map((part) => getComputedStyle(e, part === e ? null : part)))
        .every((by) => by.animationName === 'none' && parseFloat(by.transitionDuration) === 0)"""
    assert v.frame().evaluate(still)
    v.frame().locator(".tl-progress").evaluate("(e) => e.classList.remove('on')")
    v.frame().locator(".tl").focus()
    # AND without a pointer the first event in view is selected, the list of rows is walked through, and a row is closed and opened
    v.page.keyboard.press("ArrowDown")
    v.frame().wait_for_function(f"() => {SURFACE}.model.detail.peek() !== null")
    assert "depth" in v.frame().locator("#tl-live").inner_text()
    v.page.keyboard.press("Escape")
    rows = v.frame().get_by_role("tree", name="Rows of the timeline")
    rows.focus()
    before = rows.get_attribute("aria-activedescendant")
    v.page.keyboard.press("End")
    assert rows.get_attribute("aria-activedescendant") != before
    v.page.keyboard.press("Home")
    assert rows.get_attribute("aria-activedescendant") == before
    opened = v.frame().locator(f"#{before}")
    was = opened.get_attribute("aria-expanded")
    v.page.keyboard.press("ArrowLeft" if was == "true" else "ArrowRight")
    assert opened.get_attribute("aria-expanded") != was
    v.page.keyboard.press("ArrowRight" if was == "true" else "ArrowLeft")
    assert opened.get_attribute("aria-expanded") == was
    v.frame().locator(".tl").focus()
    # AND a mark, the area of the view, and the next mark
    v.page.keyboard.press("m")
    assert len(model(v, "marks.peek()")) == 1
    v.page.keyboard.press("Control+a")
    v.frame().wait_for_selector(".tl-area")
    # AND a place that was zoomed to is left and found again
    path, event = longest(serve, "stream")
    v.frame().evaluate(
        f"(e) => {SURFACE}.model.go(e)", {"track": event["track"], "start_ns": event["start_ns"], "duration_ns": event["duration_ns"]}
    )
    v.page.keyboard.press("Escape")
    before = window(v)
    v.page.keyboard.press("f")
    zoomed = window(v)
    if zoomed != before:
        v.page.keyboard.press("Alt+ArrowLeft")
        assert window(v) == pytest.approx(before)
    # AND no key acts while someone types
    v.page.keyboard.press("/")
    assert v.frame().evaluate("() => document.activeElement.getAttribute('aria-label')") == "Find events by name"
    kept = window(v)
    v.page.keyboard.type("wasd0")
    assert window(v) == kept
    assert path


def test_the_mouse_pans_zooms_marks_and_measures(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN the whole recording on a screen of two pixels a point
    v = view(device_scale_factor=2)
    timeline(v, serve)
    model(v, "everything()")
    mouse, keyboard, whole = v.page.mouse, v.page.keyboard, window(v)
    head = v.frame().locator(".tl-canvas-head").bounding_box()
    ruler = v.frame().evaluate(f"() => {SURFACE}.parts().ruler[0]") + head["y"] + 4

    def at(part: float) -> float:
        return float(head["x"] + part * head["width"])

    def drag(x0: float, x1: float, y: float) -> tuple[float, float]:
        mouse.move(x0, y)
        mouse.down()
        mouse.move((x0 + x1) / 2, y)
        mouse.move(x1, y)
        mouse.up()
        return window(v)

    # THEN the canvas has two of its own for each
    sizes = "() => (({ width, clientWidth }) => [width, 2 * clientWidth])(document.querySelector('.tl-canvas'))"
    v.frame().wait_for_function(f"() => {{ const [now, twice] = ({sizes})(); return Math.abs(now - twice) <= 2; }}")
    # WHEN a window is dragged in the overview THEN it is shown; by its handle it grows; a click there moves it; a drag of the ruler, too
    length = whole[1] - whole[0]
    low, high = drag(at(0.4), at(0.6), head["y"] + 20)
    assert high - low == pytest.approx(0.2 * length, rel=0.1)
    assert drag(at(0.6), at(0.7), head["y"] + 20)[1] > high + 0.05 * length
    mouse.click(at(0.2), head["y"] + 20)
    low, high = window(v)
    assert (low + high) / 2 == pytest.approx(whole[0] + 0.2 * length, abs=0.05 * length)
    before = window(v)
    assert drag(at(0.5), at(0.6), ruler)[0] == pytest.approx(before[0] - 0.1 * (before[1] - before[0]), rel=0.05, abs=10)
    # AND Ctrl and the wheel zoom where the pointer is, a click on the ruler marks, a double click on a step shows it
    low, high = window(v)
    mouse.move(at(0.25), ruler + 200)
    keyboard.down("Control")
    mouse.wheel(0, -200)
    keyboard.up("Control")
    v.frame().wait_for_function(f"(was) => {SURFACE}.model.window.peek().end - {SURFACE}.model.window.peek().start < was", arg=high - low)
    near = window(v)
    assert near[0] + 0.25 * (near[1] - near[0]) == pytest.approx(low + 0.25 * (high - low), abs=0.01 * (high - low))
    mouse.click(at(0.5), ruler)
    assert len(model(v, "marks.peek()")) == 1
    # AND a counter or a group under the pointer says its value there; an event its name, its row and how long it took
    path, event = longest(serve, "stream")
    model(v, "everything()")
    shown(v)
    x, y = place(v, path, event["start_ns"] + event["duration_ns"] / 2)
    group = v.frame().locator(".tl-label.is-group").first.bounding_box()
    mouse.move(x, group["y"] + 10)
    v.frame().locator(".tl-hover", has_text="Busy").wait_for()
    mouse.move(x, y)
    v.frame().locator(".tl-hover", has_text="Duration").wait_for()
    assert event["name"] in v.frame().locator(".tl-hover").inner_text()
    # AND one that is clicked with Ctrl is one to measure a gap from
    mouse.click(x, y)
    v.frame().locator(".tl-detail-card").wait_for()
    # AND the link to its launch is drawn, also from a pinned row, and ends beside the name of a row that is not shown
    stubs = f"(many) => {SURFACE}.painter.arrows.filter((a) => !!a.stub === many).length > 0"
    v.frame().wait_for_function(stubs, arg=False)
    model(v, f"rows.pin({SURFACE}.model.trackAt('{path}'))")
    v.frame().wait_for_function(f"() => {SURFACE}.model.rows.shown.peek().pinned.length === 1 && ({stubs})(false)")
    launching = model(v, "detail.peek().flows[0].source.track")
    model(v, f"rows.hide({SURFACE}.model.tracks.peek()[{launching}])")
    v.frame().wait_for_function(stubs, arg=True)
    model(v, "rows.showHidden()")
    model(v, "rows.unpin()")
    v.frame().wait_for_function(stubs, arg=False)
    x, y = place(v, path, event["start_ns"] + event["duration_ns"] / 2)
    keyboard.down("Control")
    mouse.click(x, y)
    keyboard.up("Control")
    v.frame().wait_for_function(f"() => {SURFACE}.model.compared.peek().length > 0")
    # AND every key stands in the tip of a control that is there
    v.frame().get_by_role("button", name="Rows and view").click()
    tips = "() => [...document.querySelectorAll('.tl [data-tip], .tl kbd')].map((e) => `(${e.dataset.tip ?? e.textContent})`).join('\\n')"
    words = v.frame().evaluate(tips)
    keys = ["W,", "S,", "A, D", "(F)", "(0)", "Alt + ←", "Alt + →", "(R)", "Ctrl+A", "(.)", "(,)", "(↑)", "(↓)", "([)", "(M)", "Shift+M"]
    keys += ["(/)", "(T)", "(P)", "(H)", "(E)", "Shift+E", "(Q)", "(L)", "(Esc)", "(?)"]
    assert [key for key in keys if key not in words] == []
    keyboard.press("Escape")
    # AND nothing is drawn while nothing changes, but where frames take too long, at one pixel a point until it rests
    frames = """() => new Promise((done) => {
        const surface = document.querySelector('.tl-plot').timeline, times = surface.times;
        let last = -1;
        const look = () => { if (times.length === last) return done(true); last = times.length; setTimeout(look, 300); };
        look();
    })"""
    assert v.frame().evaluate(frames)
    slow = "s.slowSince = performance.now() - 1000; s.drewAt = performance.now(); s.pace(50); s.draw(); return document.querySelector('.tl-canvas').width;"
    slow = f"() => {{ const s = {SURFACE}; {slow} }}"
    assert v.frame().evaluate(slow) == pytest.approx(v.frame().evaluate(sizes)[1] / 2, abs=2)
    v.frame().wait_for_function("() => document.querySelector('.tl-canvas').width > 1.5 * document.querySelector('.tl-canvas').clientWidth")
    # AND where the server has another recording by now its tracks are read anew, in place
    changed = {"status": 409, "json": {"error": {"code": "changed", "message": "changed", "now": "x"}}}
    v.page.route("**/timeline/tiles?*", lambda route: route.fulfill(**changed), times=1)
    with v.page.expect_response(lambda reply: "/timeline?" in reply.url):
        v.frame().evaluate(f"(e) => {SURFACE}.model.show({{ start: e.start_ns, end: e.start_ns + e.duration_ns }})", event)
    shown(v)
    assert window(v)[0] == pytest.approx(event["start_ns"], abs=2) and v.frame().locator(".notice.error").count() == 0
    assert v.faults and all("409" in fault for fault in v.faults)  # the browser's own line about that answer
    v.faults.clear()


def test_any_page_zoom_is_sharp_and_aligned(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a browser that notes which contexts are asked for, and has neither WebGPU nor memory that threads share
    v = view(color_scheme="dark", locale="en-GB")
    v.page.add_init_script("""
        window.__contexts = [];
        const get = HTMLCanvasElement.prototype.getContext;
        HTMLCanvasElement.prototype.getContext = function (kind, ...rest) { window.__contexts.push(kind); return get.call(this, kind, ...rest); };
        delete Navigator.prototype.gpu; delete window.SharedArrayBuffer; delete window.OffscreenCanvas;
    """)
    timeline(v, serve)
    path, event = longest(serve, "stream")
    start, end = event["start_ns"], event["start_ns"] + event["duration_ns"]
    v.frame().evaluate(f"([a, b]) => {SURFACE}.model.show({{ start: a - (b - a), end: b + (b - a) }})", [start, end])
    shown(v)
    screen = v.context.new_cdp_session(v.page)
    edges = """([time, lane, ratio]) => {
        const surface = document.querySelector('.tl-plot').timeline, { model } = surface, canvas = document.querySelector('.tl-canvas');
        if (Math.abs(canvas.width - canvas.clientWidth * ratio) > ratio || Math.abs(canvas.height - canvas.clientHeight * ratio) > ratio) return false;
        const view = model.window.peek(), box = canvas.getBoundingClientRect();
        const x = (time - view.start) / (view.end - view.start) * canvas.width, y = Math.round((lane - box.top) * ratio);
        const at = (by) => canvas.getContext('2d').getImageData(Math.round(x) + by, y, 1, 1).data.join();
        return at(-3) !== at(3) && at(3) === at(5);
    }"""
    # WHEN the page is zoomed, or moved to another screen THEN the canvas has as many pixels as the screen, and an event begins where it did
    for ratio in (0.5, 1.5, 4):
        screen.send("Emulation.setDeviceMetricsOverride", {"width": 1440, "height": 900, "deviceScaleFactor": ratio, "mobile": False})
        v.frame().evaluate(f"() => {SURFACE}.schedule()")  # a screen that is emulated does not always say that it has changed
        v.frame().wait_for_function(edges, arg=[start, place(v, path, start)[1] - 9, ratio])
    # AND all of it was drawn by the 2D context alone
    assert set(v.frame().evaluate("() => window.__contexts")) == {"2d"}


def test_search_counts_like_the_server_and_steps_through_the_hits(serve: Server, view: Callable[..., Any]) -> None:
    v = view()
    timeline(v, serve)
    path, event = longest(serve, "stream")
    word = event["name"][:12]
    total = serve.api(f"timeline/search?{urllib.parse.urlencode({'run': RUN, 'text': word})}")[1]["total"]
    # WHEN a part of a kernel's name is typed THEN the count is that of the server
    field = v.frame().locator(".tl-search input")
    field.fill(word)
    v.frame().wait_for_function(
        "(n) => document.querySelector('.tl-found')?.textContent.replace(/\\D/g, '').startsWith(String(n))", arg=total
    )
    # AND Enter selects one, and N the next one
    field.press("Enter")
    v.frame().wait_for_function(f"(w) => {SURFACE}.model.detail.peek()?.name.toLowerCase().includes(w.toLowerCase())", arg=word)
    first = model(v, "detail.peek()")
    v.frame().locator(".tl").focus()
    v.page.keyboard.press("n")
    v.frame().wait_for_function(f"(e) => {SURFACE}.model.detail.peek()?.event !== e", arg=first["event"])
    second = model(v, "detail.peek()")
    assert second["start_ns"] >= first["start_ns"] and word.lower() in second["name"].lower()
    # AND a wrong pattern is said
    field.fill("/(/")
    v.frame().wait_for_selector(".tl-found .warn-text")
    assert path


def test_rows_are_opened_pinned_hidden_and_found(serve: Server, view: Callable[..., Any]) -> None:
    v = view()
    timeline(v, serve)
    path, _ = longest(serve, "stream")
    label = v.frame().locator(f'.tl-label[data-path="{path}"]')
    # WHEN a row is pinned THEN it stands above the others, in the address, and again after a reload
    label.hover()
    label.get_by_role("button", name="Pin above").click()
    assert v.frame().locator(f'.tl-pinned .tl-label[data-path="{path}"]').count() == 1
    v.page.wait_for_function("location.hash.includes('p.sol.pin=')")
    v.page.reload()
    shown(v)
    assert v.frame().locator(f'.tl-pinned .tl-label[data-path="{path}"]').count() == 1
    # AND hidden by its button, shown again from the menu
    v.frame().locator(f'.tl-label[data-path="{path}"]').hover()
    v.frame().locator(f'.tl-label[data-path="{path}"]').get_by_role("button", name="Unpin").click()
    v.frame().locator(f'.tl-label[data-path="{path}"]').hover()
    v.frame().locator(f'.tl-label[data-path="{path}"]').get_by_role("button", name="Hide").click()
    assert v.frame().locator(f'.tl-label[data-path="{path}"]').count() == 0
    v.frame().get_by_role("button", name="Rows and view").click()
    v.frame().get_by_role("button", name="Show 1 hidden rows").click()
    assert v.frame().locator(f'.tl-label[data-path="{path}"]').count() == 1
    # AND a filter leaves only what matches
    v.frame().get_by_label("Find a row").fill("stream")
    rows = v.frame().locator(".tl-label:not(.is-group)").all_inner_texts()
    assert rows and all("stream" in r for r in rows)


def test_the_table_lists_the_same_events_and_stands_in_without_a_canvas(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a browser without a canvas WHEN the page opens THEN the events are a table, with the reason
    v = view(locale="en-US")  # of its own: what is taken from it must not be missing in others
    v.page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    v.open(serve.home + hash_of(v="1", page="timeline", run=RUN))
    v.frame().wait_for_selector(".tl-table tbody tr")
    assert "no canvas" in v.frame().locator(".tl-table .notice").inner_text()
    stream = next(t for t in tracks(serve) if t["kind"] == "stream")
    v.frame().locator(".tl-table select").select_option(str(stream["track"]))
    v.frame().wait_for_function("(n) => document.querySelector('.tl-table table').getAttribute('aria-rowcount') === String(n + 1)", arg=stream["events"])
    # AND all of them can be scrolled to, though few are in the document
    last = v.frame().locator(f".tl-table tr[data-at='{stream['events'] - 1}']")
    v.frame().wait_for_function(
        """(at) => { const all = document.querySelector('.tl-table-scroll');
            all.scrollTop = all.scrollHeight; return all.querySelector(`tr[data-at='${at}']`); }""",
        arg=stream["events"] - 1,
    )
    assert stream["events"] > 200 and v.frame().locator(".tl-table tbody tr").count() < 100
    # AND a row selects its event
    last.click()
    v.frame().locator(".tl-detail-card").wait_for()
    assert last.get_attribute("aria-selected") == "true"


def test_a_hint_stays_beside_its_name_when_the_page_moves(serve: Server, view: Callable[..., Any]) -> None:
    beside = """() => { const [name, hint] = [".tl-table tr[data-at='3'] button", "[role=tooltip]"].map((s) => document.querySelector(s));
        const [at, box] = [name, hint].map((e) => e?.getBoundingClientRect());
        return at && box && Math.min(Math.abs(box.top - at.bottom - 6), Math.abs(box.bottom - at.top + 6)) < 1; }"""
    v = view()
    timeline(v, serve)
    v.frame().locator(".tl").focus()
    v.page.keyboard.press("l")
    # GIVEN the hint of a name in the table of events THEN it is beside the name
    name = v.frame().locator(".tl-table tr[data-at='3'] button")
    name.scroll_into_view_if_needed()
    v.frame().evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # a hint goes with scrolling
    name.hover()
    v.frame().wait_for_function(beside, timeout=15_000)
    # WHEN what is above grows, as by a click that selects an event, THEN it is still there, or gone where the page scrolled
    v.frame().evaluate("() => { document.querySelector('.tl-table').style.marginTop = '60px'; }")
    v.frame().wait_for_function(f"() => !document.querySelector('[role=tooltip]') || ({beside})()", timeout=15_000)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_check_of_access_finds_no_fault(serve: Server, view: Callable[..., Any], theme: str) -> None:
    # GIVEN the page with an event, an area, the table and the keys opened WHEN axe looks at all of it THEN nothing is in anybody's way:
    # names, roles, contrast, order of headings, what is inside of what
    if not AXE.exists():
        missing("axe-core comes with the packages of the page: npm ci in frontend")
    v = view(color_scheme=theme)
    timeline(v, serve)
    v.frame().locator(".tl").focus()
    v.page.keyboard.press("ArrowDown")
    v.frame().locator(".tl-detail-card").wait_for()
    v.page.keyboard.press("Control+a")
    v.frame().locator(".tl-area table").first.wait_for()
    v.page.keyboard.press("l")
    v.frame().locator(".tl-table tr[data-at]").first.wait_for()
    v.page.keyboard.press("?")
    v.frame().locator("[role=dialog]").first.wait_for()
    v.frame().evaluate(AXE.read_text())
    found = v.frame().evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    faults = [(f["id"], f["help"], [n["html"][:200] for n in f["nodes"][:3]]) for f in found["violations"]]
    assert faults == [] and len(found["passes"]) > 30


def test_a_link_to_what_is_gone_says_so(serve: Server, view: Callable[..., Any]) -> None:
    v = view()
    v.open(serve.home + hash_of(v="1", page="timeline", run=RUN, ev="rank9/GPU 7/stream 3:100:5", area="5-90:no such row"))
    shown(v)
    assert "Not found here" in v.frame().locator(".tl .notice").inner_text()
    path, event = longest(serve, "stream")
    v.open(serve.home + hash_of(v="1", page="timeline", run=RUN, ev=f"{path}:{event['start_ns'] + 1}:{event['duration_ns']}", q="a"))
    shown(v)
    v.frame().wait_for_function("() => document.querySelector('.tl .notice')?.textContent.includes('nearest')")


def test_an_outlier_is_named_and_areas_snap_to_phases(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN one event at time 0, an hour before all others WHEN opened THEN the others are shown, and a link leads to that one
    v = view()
    timeline(v, serve, "odd/late")
    low, high = window(v)
    assert low > HOUR - 10**6 and high < HOUR + 4 * 10**6
    v.frame().get_by_text("1 event lies far outside").wait_for()
    # WHEN an area is dragged to a few pixels beside the begin and the end of a phase THEN it begins and ends there; with Alt where it was let go
    (phase,) = model(v, "phases.peek()")
    head = v.frame().locator(".tl-label.is-group").first.bounding_box()  # a row without events of its own, to whose edges it would snap, too
    x0, x1 = (place(v, tracks(serve, "odd/late")[-1]["path"], phase[key])[0] for key in ("start_ns", "end_ns"))

    def drag() -> dict[str, float]:
        v.page.mouse.move(x0 + 4, head["y"] + 10)
        v.page.mouse.down()
        v.page.mouse.move(x0 + 60, head["y"] + 10)
        v.page.mouse.move(x1 - 4, head["y"] + 10)
        v.page.mouse.up()
        return model(v, "area.peek()")  # type: ignore[no-any-return]

    found = drag()
    assert (found["start"], found["end"]) == (phase["start_ns"], phase["end_ns"])
    v.page.keyboard.down("Alt")
    found = drag()
    v.page.keyboard.up("Alt")
    assert found["start"] > phase["start_ns"] + 1_000 and found["end"] < phase["end_ns"] - 1_000
    # WHEN the system goes over to dark THEN the canvas is drawn anew
    v.frame().locator(".tl").focus()
    corner = "() => document.querySelector('.tl-canvas').getContext('2d').getImageData(3, 1, 1, 1).data[0]"
    assert v.frame().evaluate(corner) > 200
    v.page.emulate_media(color_scheme="dark")
    v.frame().wait_for_function(f"() => ({corner})() < 80")
    # AND N goes on from the time under the pointer, where nothing is selected
    v.frame().locator(".tl-search input").fill("kernel")
    v.frame().wait_for_function(f"() => {SURFACE}.model.finder.state.peek().hits?.total === 2200")
    v.page.mouse.move((x0 + x1) / 2, head["y"] + 10)
    pointer = model(v, "pointer")
    v.frame().locator(".tl-search input").press("Enter")
    v.frame().wait_for_function(f"() => {SURFACE}.model.detail.peek() !== null")
    assert 0 <= model(v, "detail.peek()")["start_ns"] - pointer < 1_000
    # AND C measures from there to the next event of the lane; it is said, and drawn
    v.frame().locator(".tl").focus()
    v.page.keyboard.press("c")
    first = model(v, "detail.peek()")["start_ns"]
    v.page.keyboard.press(".")
    v.frame().wait_for_function(f"(first) => {SURFACE}.model.detail.peek().start_ns > first", arg=first)
    v.frame().get_by_role("button", name="Measure to it").press("Enter")
    assert "gap 500" in v.frame().locator("#tl-live").inner_text()
    # AND the table opens at the event that is selected, hundreds of events into the view
    v.frame().locator(".tl").focus()
    v.page.keyboard.press("l")
    row = v.frame().locator(".tl-table tr.selected")
    row.wait_for()
    assert row.bounding_box()["y"] > v.frame().locator(".tl-table thead").bounding_box()["y"]
    v.page.keyboard.press("l")
    # AND the outlier is shown by its link
    v.frame().get_by_role("button", name="Show the first").press("Enter")
    assert window(v)[0] <= 0 < window(v)[1] < HOUR / 2


def test_hostile_names_are_text(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a run whose every name is hostile WHEN its kernels are hovered, selected and searched THEN nothing of them runs
    v = view()
    timeline(v, serve, HOSTILE_RUN)
    path, event = longest(serve, "stream", HOSTILE_RUN)
    at = place(v, path, event["start_ns"] + event["duration_ns"] / 2)
    v.page.mouse.move(*at)
    v.page.mouse.click(*at)
    v.frame().locator(".tl-detail-card").wait_for()
    v.frame().locator(".tl-search input").fill("<script>")
    v.frame().wait_for_selector(".tl-found:has-text('found')")
    assert v.frame().evaluate("() => window.__pwned") is None


WILD_KEYS = (
    "w", "s", "a", "d", "f", "0", "m", "Shift+m", ".", ",", "ArrowUp", "ArrowDown", "]", "[", "p", "h", "e", "Shift+e", "r", "q", "l", "n", "Escape",
    "Alt+ArrowLeft", "Enter",
)  # fmt: skip
WILD_SECONDS = int(os.environ.get("TB_SOL_WILD_SECONDS", "0"))
"""How long each theme is treated wildly; 0: a few times, in one of them."""
WILD_TRACE = os.environ.get("TB_SOL_WILD_TRACE", "")
"""The recording that is, instead of a sample."""


@pytest.fixture
def wild(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """A server, and the run of it that is treated wildly."""
    if not WILD_TRACE:
        yield request.getfixturevalue("serve"), RUN
        return
    (tmp_path / "logs" / "given").mkdir(parents=True)
    shutil.copy(WILD_TRACE, tmp_path / "logs" / "given" / f"worker.{Path(WILD_TRACE).name}")
    for server in serve_folder(tmp_path / "logs", tmp_path / "cache"):
        server.warm()
        yield server, "given"


@pytest.mark.parametrize("theme", ["light", "dark"] if WILD_SECONDS else ["dark"])
def test_random_input_raises_no_error(wild: tuple[Server, str], view: Callable[..., Any], theme: str) -> None:
    # GIVEN a seeded person who presses, drags and scrolls wildly
    server, run = wild
    v = view(color_scheme=theme)
    timeline(v, server, run)
    chance = random.Random(7)
    box = v.frame().locator(".tl-canvas").bounding_box()
    v.frame().locator(".tl").focus()
    done, end = 0, time.monotonic() + WILD_SECONDS
    while done < 120 or time.monotonic() < end:
        done += 1
        x, y = box["x"] + chance.random() * box["width"], box["y"] + chance.random() * min(box["height"], 400)
        match chance.randrange(4):
            case 0:
                v.page.keyboard.press(chance.choice(WILD_KEYS))
            case 1:
                v.page.mouse.move(x, y)
                v.page.mouse.wheel(chance.randrange(-200, 200), chance.randrange(-200, 200))
            case 2:
                v.page.mouse.move(x, y)
                v.page.mouse.down()
                v.page.mouse.move(x + chance.randrange(-200, 200), y + chance.randrange(-50, 50))
                v.page.mouse.up()
            case 3:
                v.page.mouse.click(x, y)
        if done % 100 == 0:
            assert v.faults == [], done
    # THEN the timeline is still there, whole, and its tiles below their cap (errors of the page fail every test)
    shown(v)
    held = v.frame().evaluate(f"() => {SURFACE}.model.cache.bytes + {SURFACE}.model.cache.pinnedBytes")
    print(f"{done} actions, {held} bytes of tiles")
    assert held <= 64 * 2**20
    assert v.frame().locator(".notice.error").count() == 0


def test_inside_tensorboard_it_is_left_and_found_again(tensorboard: Server, view: Callable[..., Any]) -> None:
    # GIVEN the timeline in TensorBoard, zoomed in
    v = view()
    v.open(tensorboard.root + hash_of(v="1", page="timeline", run=TENSORBOARD_RUN))
    shown(v)
    v.frame().locator(".tl").focus()
    v.page.keyboard.press("w")
    at = window(v)
    v.page.wait_for_function("location.hash.includes('p.sol.t=')")
    # WHEN another page is opened and left THEN the window is the same
    v.frame().locator(".nav-item", has_text="Kernels").click()
    v.frame().wait_for_selector("[data-section=kernels]")
    v.page.go_back()
    shown(v)
    assert window(v) == pytest.approx(at, abs=2)


@pytest.mark.parametrize(
    ("page", "section", "column"), [("kernels", "kernels", "Max"), ("memcpy_copies", "copies", "Start"), ("steps", "steps", "Step")]
)
def test_rows_of_other_pages_are_shown_on_the_timeline(
    serve: Server, view: Callable[..., Any], page: str, section: str, column: str
) -> None:
    # GIVEN a page whose rows say when they were WHEN the time of one is clicked THEN the timeline shows that stretch, selected
    v = view()
    v.open(serve.home + hash_of(v="1", page=page, run=RUN))
    link = v.frame().locator(f"[data-section={section}] td a[href*='page=timeline']").first
    link.wait_for()
    assert column in v.frame().locator(f"[data-section={section}] th").all_inner_texts().__str__()
    link.click()
    shown(v)
    area = model(v, "area.peek()")
    low, high = window(v)
    assert low <= area["start"] < area["end"] <= high
    # AND it holds an event, or a step, of exactly these times
    steps = model(v, "shape.peek().steps")
    found = (
        any(s["start_ns"] <= area["start"] and area["end"] <= s["end_ns"] + 10**9 for s in steps)
        if page == "steps"
        else any(
            (e["start_ns"], e["start_ns"] + e["duration_ns"]) == (area["start"], area["end"])
            for t in tracks(serve)
            if t["kind"] == "stream"
            for e in serve.api(f"timeline/events?run={RUN}&track={t['track']}&start_ns={area['start']}&end_ns={area['end']}")[1]["events"]  # type: ignore[union-attr, attr-defined]
        )
    )
    assert found


def test_the_view_is_saved_as_a_trace_file(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a window zoomed in WHEN it is saved THEN the file holds the events that overlap it, and no other page was loaded
    v = view()
    timeline(v, serve)
    path, event = longest(serve, "stream")
    v.frame().evaluate(
        f"([a, b]) => {SURFACE}.model.show({{ start: a, end: b }})", [event["start_ns"], event["start_ns"] + event["duration_ns"]]
    )
    v.frame().get_by_role("button", name="Save as a trace file, or open in Perfetto").click()
    v.frame().get_by_role("radio", name="View").click()
    with v.page.expect_download() as saved:
        v.frame().get_by_role("button", name="Save as a trace file", exact=True).click()
    found = json.loads(gzip.decompress(Path(saved.value.path()).read_bytes()))["traceEvents"]
    low, high = (x / 1000 for x in window(v))
    written = [e for e in found if e["ph"] == "X"]
    assert event["name"] in {e["name"] for e in written} and path
    assert all(e["ts"] < high + 0.002 and e["ts"] + e["dur"] >= low - 0.002 for e in written)


def test_workers_stand_under_each_other_and_are_saved_together_or_alone(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a run of sixteen ranks under each other THEN it says by which clock, and they open as summaries
    v = view()
    timeline(v, serve, "simulated_ranks", lay="worker")
    assert "16 workers on one clock" in v.frame().locator(".tl-align").inner_text()
    rows = model(v, "rows.shown.peek().rows.map((row) => [row.track.worker, row.open])")
    assert {worker for worker, _ in rows} == set(range(16)) and not any(opened for _, opened in rows)
    # WHEN a window is saved THEN the card says how many events that is, that all are in one file, and that one alone can be opened again
    low, high = (round(x) for x in window(v))
    span = [low + (high - low) // 3, low + (high - low) // 2]
    v.frame().evaluate(f"([a, b]) => {SURFACE}.model.show({{ start: a, end: b }})", span)
    v.frame().get_by_role("button", name="Save as a trace file, or open in Perfetto").click()
    v.frame().get_by_role("radio", name="View").click()
    card = v.frame().locator(".tl-file")
    card.get_by_text("save one worker alone").wait_for()
    # AND of one alone the file holds what its own server answer counts, with its processes as they are
    card.locator("select").select_option(label="rank3 alone")
    offset = model(v, "shape.peek().alignment.find((a) => a.worker === 'rank3').offset_ns")
    begin, end = (round(x) - offset for x in window(v))
    count = serve.api(f"timeline/export?run=simulated_ranks&worker=rank3&start_ns={begin}&end_ns={end + 1}&size=1")[1]["events"]
    assert isinstance(count, int) and count > 10
    card.get_by_text(f"{count} events").wait_for()
    with v.page.expect_download() as saved:
        card.get_by_role("button", name="Save as a trace file", exact=True).click()
    found = json.loads(gzip.decompress(Path(saved.value.path()).read_bytes()))
    assert "rank3" in found["exported_from"]
    assert sum(e["ph"] in "Xi" for e in found["traceEvents"]) == count
    assert not any(e["name"] == "process_name" and ":" in str(e["args"]["name"]) for e in found["traceEvents"])


def test_a_trace_is_handed_to_the_page_of_perfetto_that_is_installed(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a server beside a package with Perfetto's page, and no network but that server
    v = view()
    timeline(v, serve)
    asked: list[str] = []
    v.context.on("request", lambda request: asked.append(request.url))
    v.frame().get_by_role("button", name="Save as a trace file, or open in Perfetto").click()
    v.frame().get_by_role("radio", name="View").click()
    # WHEN the view is opened in Perfetto THEN it is that page that answers, under its policy, and it gets the bytes and then the window, in s
    with v.page.expect_popup() as opened:
        v.frame().get_by_role("button", name="Open in Perfetto", exact=True).click()
    v.frame().get_by_text("Perfetto has the trace.").wait_for()
    opened.value.locator("p").nth(1).wait_for()
    trace, stretch = map(json.loads, opened.value.locator("p").all_inner_texts())
    low, high = (x / 1e9 for x in window(v))
    assert trace["bytes"] > 100 and trace["localOnly"] and trace["keepApiOpen"] and trace["fileName"].endswith(".json.gz")
    assert (stretch["timeStart"], stretch["timeEnd"]) == pytest.approx((low, high))
    assert asked and all(url.startswith(serve.home) for url in asked)
    opened.value.close()


def test_a_finding_shows_its_stretch_and_leads_to_the_timeline(serve: Server, view: Callable[..., Any]) -> None:
    # GIVEN a finding with its rows WHEN its page opens THEN a small timeline is drawn with its spans marked
    report = serve.api(f"analysis/findings?run={RUN}")[1]
    rules = [f["rule"] for s in report["sections"] if s["kind"] == "findings" for f in s["findings"] if f.get("rows")]  # type: ignore[attr-defined]
    v = view()
    v.open(serve.home + hash_of(v="1", page="findings", run=RUN, **{"q.rule": rules[0]}))
    v.frame().wait_for_selector(".tl-small[data-ready]")
    v.frame().wait_for_function(QUIET.replace(".tl[data-ready]", ".tl-small[data-ready]"))
    marked = model(v, "highlight")
    low, high = window(v)
    assert marked and any(low <= a and b <= high for a, b, _ in marked)
    # AND its link opens that stretch, the proof selected
    v.frame().locator(".tl-small a", has_text="Open in the timeline").click()
    v.frame().wait_for_selector(".tl:not(.tl-small)[data-ready]")
    shown(v)
    area = model(v, "area.peek()")
    assert [area["start"], area["end"]] == marked[0][:2]
    assert window(v) == pytest.approx((low, high), abs=2)
