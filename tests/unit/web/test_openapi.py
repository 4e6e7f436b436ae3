"""The committed description is what the code says, and the code answers as described."""

from __future__ import annotations

import json

import pytest
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator

from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.web import openapi
from tests.conftest import ROOT


def test_the_committed_file_is_fresh() -> None:
    assert openapi.FILE.read_text(encoding="utf-8") == openapi.text(), "run: make generate"


def test_every_route_is_described(shared: FlaskClient) -> None:
    rules = {str(r) for r in shared.application.url_map.iter_rules() if str(r).startswith("/api/")}
    described = set(openapi.document()["paths"])
    assert {f"/api/v1/analysis/{name}" for name in registry()} <= described
    assert {r.replace("<name>", "{name}") for r in rules} - {"/api/v1/analysis/{name}"} == {p for p in described if "/analysis/" not in p}


@pytest.mark.parametrize(
    ("address", "schema"),
    [
        ("/api/v1/runs", "Runs"),
        ("/api/v1/run?run=job", "Run"),
        ("/api/v1/analyses?run=job&wait=20", "Analyses"),
        ("/api/v1/analyses", "Analyses"),
        ("/api/v1/health", "Health"),
        ("/api/v1/run?run=none", "Error"),
        *((f"/api/v1/analysis/{name}?run=job&wait=20", "") for name in registry()),
    ],
)
def test_answers_fit_their_schema(shared: FlaskClient, address: str, schema: str) -> None:
    document = openapi.document()
    body = json.loads(shared.get(address).data)
    name = schema or ("Report" if body["available"] else "UnavailableReport")
    root = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    errors = [f"{list(e.path)[:6]}: {e.message[:200]}" for e in Draft202012Validator(root).iter_errors(body)]
    assert errors == []


def test_the_page_on_http_names_every_route() -> None:
    page = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    for path in openapi.document()["paths"]:
        if "/analysis/" not in path:
            assert path.removeprefix("/").replace("{name}", "NAME") in page, path
    for name in registry():
        assert f"`{name}`" in page, name
