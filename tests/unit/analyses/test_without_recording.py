"""Analyses that need no recording: the example of the docs, notebook, command line, HTTP."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

import tb_sol_plugin as sol
from tb_sol_plugin.cli import command
from tb_sol_plugin.errors import BadQuery, NotFound
from tb_sol_plugin.model import registry as registry_module
from tb_sol_plugin.model.report import Report
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.conftest import ROOT
from tests.support.tiny import trace

Capsys = pytest.CaptureFixture[str]
PLAN = "/api/v1/analysis/memory_plan"


@pytest.fixture
def example() -> Iterator[str]:
    """The example of the docs, registered as the module that it says it is."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if 'scope="none"' in block)
    module = types.ModuleType("tb_sol_plugin.analyses.step_budget")
    sys.modules[module.__name__] = module
    registry_module.registry()
    exec(compile(code, "extending.md", "exec"), module.__dict__)
    registry_module.registry.cache_clear()
    yield "step_budget"
    del sys.modules[module.__name__], registry_module._FOUND["step_budget"]
    registry_module.registry.cache_clear()


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    """A server over an empty logdir."""
    (tmp_path / "logs").mkdir()
    return create_app(Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir="")), WebOptions()).test_client()


def test_the_example_of_the_docs_with_and_without_a_recording(tmp_path: Path, example: str) -> None:
    # GIVEN no recording THEN 1 000 steps of 100 ms, GIVEN one of 100 us (see tests/support/tiny.py) THEN what it says; what is asked wins
    assert sol.analyze(example).facts["training_ns"] == 100_000_000_000  # type: ignore[union-attr]
    assert sol.analyze(example, steps=10, step_ms=None).facts["training_ns"] == 1_000_000_000  # type: ignore[union-attr]
    capture = sol.open_capture(str(trace(tmp_path / "rank0.json")), cache=False)
    found = capture.analyze(example)
    assert isinstance(found, Report) and found.facts["training_ns"] == 1000 * (capture.facts.extent_ns[1] - capture.facts.extent_ns[0])
    assert capture.analyze(example, step_ms=2).facts["training_ns"] == 2_000_000_000  # type: ignore[union-attr]
    item = registry_module.get(example)
    assert registry_module.availability(item, capture) is None and item.without_recording is not None and not item.requirements
    steps, step_ms = [f for f in item.fields if f.group]
    assert (steps.name, steps.group, steps.slider, step_ms.slider) == ("steps", "Training", ("100", "1000", "10000"), ())


def test_what_needs_a_recording_says_so() -> None:
    with pytest.raises(BadQuery, match="kernels needs a recording"):
        sol.analyze("kernels")
    with pytest.raises(NotFound):
        sol.analyze("nothing")


# -- command line ----------------------------------------------------------------------------------------------------


def run(*arguments: object) -> int:
    return command.main([str(a) for a in arguments])


def test_the_command_takes_no_path(capsys: Capsys) -> None:
    assert run("analyze", "memory_plan", "--preset", "llama-7b", "--tp", "2", "--pp", "2", "--format", "json") == 0
    body = json.loads(capsys.readouterr().out)
    assert body["available"] is True and body["selection"] == {"preset": "llama-7b", "tp": "2", "pp": "2"}
    stages = next(s for s in body["sections"] if s["id"] == "stages")
    assert stages["data"]["parameters"] == [1_684_668_416, 1_684_672_512]
    assert {c["name"] for c in stages["columns"]} >= {
        "stage", "parameters", "parameter_bytes", "gradient_bytes", "master_bytes", "optimizer_bytes", "activation_bytes", "total_bytes",
    }  # fmt: skip
    assert next(s for s in body["sections"] if s["id"] == "formulas")["data"]["formula"]


def test_the_command_as_csv_and_text(capsys: Capsys) -> None:
    assert run("analyze", "memory_plan", "--tp", "2", "--format", "csv", "--section", "devices") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {r["device"] for r in rows} >= {"H100_SXM", "MI300X"} and {r["verdict"] for r in rows} == {"fits", "tight", "too large"}
    assert run("analyze", "memory_plan", "--distributed-optimizer", "--dp", "4", "--format", "text") == 0
    assert "6 + 12/d" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "status", "words"), [
    (("--tp", "3"), 2, "tp = 2 or 4"), (("--preset", "bert"), 2, "invalid choice"), (("--layers", "many"), 2, "layers"),
    (("no/such/path",), 1, "no such file"),
])  # fmt: skip
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], status: int, words: str, capsys: Capsys) -> None:
    try:
        code = run("analyze", "memory_plan", *arguments)
    except SystemExit as stop:
        code = int(str(stop.code))
    out, err = capsys.readouterr()
    assert (code, out) == (status, "") and words in err and err.count("\n") == 1


def test_other_commands_still_want_a_path(capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        run("analyze", "kernels")
    assert stop.value.code == 2 and "PATH" in capsys.readouterr().err


def test_a_path_fills_in_what_is_left_open(tmp_path: Path, capsys: Capsys) -> None:
    # GIVEN a recording of an H100, which says nothing of a model THEN its device is taken and the preset stays
    path = trace(tmp_path / "rank0.json")
    assert run("analyze", "memory_plan", path, "--tp", "2", "--no-cache") == 0
    body = json.loads(capsys.readouterr().out)
    facts = next(s for s in body["sections"] if s["id"] == "answer")["values"]
    assert facts["model"] == "LLaMA-7B" and facts["world"] == 2 and body["selection"]["worker"] == "rank0"


# -- HTTP ------------------------------------------------------------------------------------------------------------


def test_an_empty_logdir_answers(client: FlaskClient) -> None:
    reply = client.get(PLAN, query_string={"preset": "llama-7b", "tp": 2, "pp": 2})
    assert reply.status_code == 200 and reply.headers["ETag"]
    body = reply.get_json()
    assert body["available"] is True and body["fields"]["tp"] == {"value": "2", "values": ["1", "2", "4", "8", "16", "32"]}
    # AND the catalog says which analyses do so, and how their fields are shown
    known = {a["name"]: a for a in client.get("/api/v1/analyses").get_json()["analyses"]}
    assert known["memory_plan"]["alone"] and known["memory_plan"]["available"] and not known["kernels"]["alone"]
    fields = {f["name"]: f for f in known["memory_plan"]["fields"]}
    assert fields["tp"]["group"] == "Layout" and fields["tp"]["slider"] and fields["vpp"]["seldom"] and fields["tied"]["type"] == "flag"
    assert client.get("/api/v1/analysis/kernels").status_code == 404


def test_csv_has_a_name_without_a_run(client: FlaskClient) -> None:
    reply = client.get(PLAN, query_string={"format": "csv", "section": "stages"})
    assert reply.mimetype == "text/csv" and 'filename="memory_plan_stages.csv"' in reply.headers["Content-Disposition"]


@pytest.mark.parametrize(("query", "field"), [
    ({"tp": "3"}, "tp"), ({"colour": "1"}, "colour"), ({"tp": "9" * 400}, "tp"), ({"device": "<script>"}, "device"), ({"format": "xml"}, "format"),
    ({"world": "-1"}, "world"), ({"base_gb": "inf"}, "base_gb"),
])  # fmt: skip
def test_wrong_fields_are_400_and_named(client: FlaskClient, query: dict[str, str], field: str) -> None:
    reply = client.get(PLAN, query_string=query)
    assert reply.status_code == 400
    error = reply.get_json()["error"]
    assert error["code"] == "bad_query" and error["field"] == field and error["hint"]


def test_with_a_run_it_is_asked_of_that_recording(tmp_path: Path) -> None:
    trace(tmp_path / "logs" / "job" / "rank0.pt.trace.json.gz")
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=""), executor=pool)
        client = create_app(store, WebOptions()).test_client()
        body = client.get(PLAN, query_string={"run": "job", "wait": "20"}).get_json()
        assert body["selection"]["worker"] == "rank0" and body["available"]
        assert client.get(PLAN, query_string={"run": "none"}).status_code == 404
        assert client.get(PLAN).get_json()["selection"] == {}
