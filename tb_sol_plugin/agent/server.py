"""Serves the answers of `agent.answers` by the Model Context Protocol, on its official SDK (the extra `mcp`).

Tools only read. What goes wrong is an error of the tool with what to do about it, never a stack trace.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from threading import Event
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import unquote

import anyio.from_thread
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings

from tb_sol_plugin.agent.answers import MOST, ROWS, Recordings, about, explain, watched
from tb_sol_plugin.errors import BadInput, SolError, one_line
from tb_sol_plugin.redact import text
from tb_sol_plugin.store.processes import Canceled
from tb_sol_plugin.version import __version__

Message: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

log = logging.getLogger("tb_sol_plugin")
T = TypeVar("T")

INSTRUCTIONS = """Recordings of PyTorch jobs (profiler traces, SOL captures), and how close they run to the speed of light of their
hardware. Begin with list_runs, then analyze("overview") for where a step goes and findings for what to fix; list_analyses says what else
there is. Times are in ns, sizes in bytes, ratios from 0 to 1; every number names its unit. Unknown is null: never take it for 0. A finding
that is not proven is possible only. A saving is a bound, not a forecast."""
PROMPTS = {
    "why_is_my_step_slow": (
        "Why is my step slow",
        "Use analyze('overview') and findings. Say where the time of a step goes, with the largest parts, then the two largest findings "
        "with their savings and fixes. Name the analysis behind each number.",
    ),
    "what_changed": (
        "What changed between these runs",
        "Use list_runs, then compare(base, candidate). Say by how much the step changed and its interval, then the causes in order of "
        "their part.",
    ),
    "will_it_fit": (
        "Will it fit",
        "Use analyze('memory_plan') with the sizes of the model as options (or a preset), and analyze('memory') of a recording where there "
        "is one. Say what each device holds, the largest part, and what would make it fit.",
    ),
}


async def _ask(context: Context, work: Callable[[], T]) -> T:
    """Runs what may take long on a thread, tells how far it is, and ends it when nobody waits any more; others are answered meanwhile."""
    left = Event()

    def done(part: float, whole: float, what: str) -> None:
        if left.is_set():
            raise Canceled
        anyio.from_thread.run(context.report_progress, part, whole, what)

    def worked() -> T:
        with watched(done):
            return work()

    try:
        found: T = await anyio.to_thread.run_sync(worked, abandon_on_cancel=True)
    except SolError as error:
        raise ToolError(text(one_line(f"{error.message}: {error.hint}" if error.hint else error.message))) from None
    except Exception as error:
        number = secrets.token_hex(4)
        log.error("error %s for an agent", number, exc_info=error)
        raise ToolError(f"this failed ({type(error).__name__}); the server's log has more under {number}") from None
    finally:
        left.set()
    await context.report_progress(1, 1, "done")
    return found


def make_server(recordings: Recordings) -> MCPServer:
    """Returns the server; it reads nothing before it is asked."""
    server = MCPServer("tb-sol", title="Speed of light", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")

    async def list_runs(context: Context) -> dict[str, Any]:
        """List the runs of the logdir, with their workers (ranks)."""
        return await _ask(context, recordings.list_runs)

    async def list_analyses(context: Context, run: str = "", worker: str = "") -> dict[str, Any]:
        """List every analysis: its question, whether the recording has data for it, its tables and options, or what to record for it.

        run, worker: names from list_runs; empty for the first.
        """
        return await _ask(context, lambda: recordings.list_analyses(run, worker))

    async def analyze(
        context: Context, name: str, run: str = "", worker: str = "", steps: str = "", options: dict[str, str] | None = None,
        table: str = "", columns: list[str] | None = None, where: dict[str, str] | None = None, sort: str = "", limit: int = ROWS,
        long: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Answer one analysis (overview, kernels, operators, modules, roofline, memory, ...): headline, facts, findings, rows of a table.

        steps: one step or a range, as 12 or 12-15. options: query fields of the analysis, as {"group_by": "name"}. table: id of one table,
        which then comes alone. columns: of it. where: {"name": "gemm"} keeps values that contain the text, {"time_ns": "1000~"} numbers
        above. sort: a column, with - before it the largest first. limit: rows. long: up to 20,000 tokens in place of 4,000.
        """
        most = {"most": MOST} if long else {}
        ask = lambda: recordings.analyze(name, run, worker, steps, options, table, columns or (), where, sort, limit, **most)
        return await _ask(context, ask)

    async def findings(context: Context, run: str = "", worker: str = "", top: int = 5) -> dict[str, Any]:
        """List what to fix first: each with the time it saves at most, its evidence and its fix."""
        return await _ask(context, lambda: recordings.findings(run, worker, top))

    async def explain_metric(context: Context, metric: str) -> dict[str, Any]:
        """Define a number by its name or label, as mfu or time_ns: meaning, unit, and where it stands."""
        return await _ask(context, lambda: explain(metric))

    async def compare(context: Context, base: str, candidate: str, limit: int = ROWS) -> dict[str, Any]:
        """Say what changed from one run to another: steps, interval, causes. base, candidate: names from list_runs."""
        return await _ask(context, lambda: recordings.compare(base, candidate, limit))

    async def window(
        context: Context, start_ns: int | None = None, end_ns: int | None = None, run: str = "", worker: str = "", steps: str = "",
        tracks: str = "", group_by: Literal["name", "category", "track"] = "name", limit: int = ROWS,
    ) -> dict[str, Any]:  # fmt: skip
        """Add up what lies in a window of the timeline: device time by kind, gaps, and events by name, kind of work or track.

        start_ns, end_ns: since the start of the recording; left open: of the steps, or of everything. tracks: paths of threads and streams
        with ; between them, as the table `tracks` names them; empty for all.
        """
        return await _ask(context, lambda: recordings.window(start_ns, end_ns, run, worker, steps, tracks, group_by, limit))

    async def link(
        context: Context, name: str, run: str = "", worker: str = "", steps: str = "", options: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Say where a person sees the same analysis: address of the page, a link as Markdown, a command and a line of Python."""
        return await _ask(context, lambda: recordings.link(name, run, worker, steps, options))

    async def recommend_recording(context: Context, question: str, run: str = "", worker: str = "") -> dict[str, Any]:
        """Name the analyses that answer a question in words, and what to record for those that lack data."""
        return await _ask(context, lambda: recordings.recommend_recording(question, run, worker))

    def page(run: str, page: str) -> str:
        """A page of a run as Markdown; a slash in the name of a run is written %2F."""
        return recordings.page(unquote(run), page)

    def help_page(analysis: str) -> str:
        """What an analysis is, as Markdown: its question, parameters, numbers and columns."""
        return about(analysis)

    for tool in (list_runs, list_analyses, analyze, findings, compare, window, link, recommend_recording):
        server.add_tool(tool)
    server.add_tool(explain_metric, name="explain")
    server.resource("sol://{run}/{page}", mime_type="text/markdown")(page)
    server.resource("sol-docs://{analysis}", mime_type="text/markdown")(help_page)
    for name, (title, words) in PROMPTS.items():
        server.prompt(name=name, title=title)(_saying(words))
    return server


def _saying(words: str) -> Callable[[], str]:
    def prompt() -> str:
        return words

    prompt.__doc__ = words
    return prompt


# -- HTTP --------------------------------------------------------------------------------------------------------------

PATH: Final = "/mcp"
HOST: Final = "127.0.0.1"


def with_token(inner: Application, token: str) -> Application:
    """Returns the application for those who know the token: others are told that they need it, and nothing else."""
    wanted = f"Bearer {token}".encode()

    async def checked(scope: Message, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope.get("headers", ()) if name == b"authorization"), b"")
        if scope["type"] != "http" or hmac.compare_digest(given, wanted):
            return await inner(scope, receive, send)
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        body = b"send the token that this server printed as it started: Authorization: Bearer TOKEN\n"
        await send({"type": "http.response.body", "body": body})

    return checked


def http_application(server: MCPServer, port: int, token: str) -> Application:
    """Returns the server by streamable HTTP: under a name of this machine only, and from no page of another site."""
    names = [f"{host}:{port}" for host in (HOST, "localhost")]
    security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
    return with_token(server.streamable_http_app(streamable_http_path=PATH, transport_security=security, host=HOST), token)


def serve_http(server: MCPServer, port: int, say: Callable[[str], None]) -> None:
    """Answers on a port of this machine, 0 for a free one, until it is interrupted. say: is told the address, and the token once.

    BadInput where the port is taken.
    """
    import uvicorn

    token = secrets.token_urlsafe(24)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except (OSError, OverflowError):
            raise BadInput(f"cannot listen on {HOST}:{port}", hint="choose another port with --http, or 0 for a free one") from None
        listening.listen()  # who has read the address may ask at once
        port = listening.getsockname()[1]
        say(f"http://{HOST}:{port}{PATH}\nAuthorization: Bearer {token}")
        config = uvicorn.Config(http_application(server, port, token), log_level="warning", lifespan="on", server_header=False)
        uvicorn.Server(config).run(sockets=[listening])
