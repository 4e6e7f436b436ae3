"""The server of the Model Context Protocol, asked by the official client: in this process, and over standard input and output."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

mcp = pytest.importorskip("mcp", reason="the package mcp is not installed")
from tb_sol_plugin.agent.answers import Recordings  # noqa: E402  (needs mcp)
from tb_sol_plugin.agent.server import PROMPTS, make_server  # noqa: E402
from tests.support.tiny import trace  # noqa: E402

TOOLS = {"list_runs", "list_analyses", "analyze", "findings", "explain", "compare", "recommend_recording"}


async def dialogue(client: Any) -> None:
    async with client as c:
        # WHEN everything is listed THEN each tool says what it takes and returns
        tools = (await c.list_tools()).tools
        assert {t.name for t in tools} == TOOLS
        assert all(t.description and t.input_schema["type"] == "object" and t.output_schema for t in tools)
        # AND answers are structured, the same as in the text
        found = await c.call_tool("list_runs", {})
        assert not found.is_error and found.structured_content["runs"][0]["run"] == "job"
        assert json.loads(found.content[0].text) == found.structured_content
        # AND several at once are answered, each its own
        calls = [c.call_tool("analyze", {"name": name, "run": "job"}) for name in ("kernels", "operators", "health")]
        assert [r.structured_content["analysis"] for r in await asyncio.gather(*calls)] == ["kernels", "operators", "health"]
        kernels = await c.call_tool("analyze", {"name": "kernels", "table": "kernels", "where": {"name": "gemm"}, "columns": ["name", "total_ns"]})
        assert kernels.structured_content["table"]["rows"] == [["gemm", 30_000]]
        # AND what is wrong is an error of the tool with a remedy, without a stack trace
        for tool, given, said in (
            ("analyze", {"name": "nothing"}, "there are: overview"),
            ("analyze", {"name": "kernels", "run": "../.."}, "there is: job"),
            ("explain", {"metric": "no such"}, "no number is called"),
            ("analyze", {"name": "kernels", "limit": "many"}, "limit"),
            ("findings", {"run": "job", "worker": "none"}, "no worker"),
        ):
            wrong = await c.call_tool(tool, given)
            assert wrong.is_error and said in wrong.content[0].text and "Traceback" not in wrong.content[0].text
        # AND a page is a resource, and the questions of a person are prompts
        page = await c.read_resource("sol://job/kernels")
        assert page.contents[0].text.startswith("### Kernels") and page.contents[0].mime_type == "text/markdown"
        assert {p.name for p in (await c.list_prompts()).prompts} == set(PROMPTS)
        prompt = await c.get_prompt("why_is_my_step_slow", {})
        assert "findings" in prompt.messages[0].content.text


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    trace(tmp_path / "logs" / "job" / "rank0.pt.trace.json")
    return tmp_path / "logs"


def test_a_dialogue_in_this_process(logdir: Path) -> None:
    asyncio.run(dialogue(mcp.Client(make_server(Recordings(str(logdir))))))


def test_the_same_dialogue_over_standard_input_and_output(logdir: Path) -> None:
    # GIVEN `tb-sol mcp LOGDIR` as a client starts it
    command = mcp.StdioServerParameters(command=sys.executable, args=["-m", "tb_sol_plugin.cli", "mcp", str(logdir)])
    asyncio.run(dialogue(mcp.Client(command)))


def test_a_fault_is_told_by_its_number(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an answer that breaks WHEN asked for THEN the client gets a number to look for in the log, and the next one is answered
    recordings = Recordings(str(logdir))
    monkeypatch.setattr(recordings, "findings", lambda *given: 1 / 0)

    async def ask() -> None:
        async with mcp.Client(make_server(recordings)) as c:
            wrong = await c.call_tool("findings", {})
            assert wrong.is_error and "ZeroDivisionError" in wrong.content[0].text and "division" not in wrong.content[0].text
            assert not (await c.call_tool("list_runs", {})).is_error

    asyncio.run(ask())
