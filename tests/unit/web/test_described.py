"""Generated requests, fitting the committed description and not: schemathesis looks whether each answer is as described.

More of them by hand: `TB_SOL_REQUESTS=200 python -m pytest -n 0 tests/unit/web/test_described.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Flask
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import openapi
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.trace_builder import TraceBuilder

schemathesis = pytest.importorskip("schemathesis")
from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

REQUESTS = int(os.environ.get("TB_SOL_REQUESTS", "6"))
PATHS = json.loads(openapi.FILE.read_text(encoding="utf-8"))["paths"]
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    folder = tmp_path_factory.mktemp("described")
    for rank in (0, 1):
        made = TraceBuilder()
        for step in (1, 2):
            made.step(step, step * 100_000, 90_000)
            made.op("aten::mm", step * 100_000 + 2_000, 3_000, shapes=[[64, 64], [64, 64]], types=["float", "float"])
            made.launch("gemm", at=step * 100_000 + 2_100, start=step * 100_000 + 5_000, duration=9_000)
            made.copy("HtoD", step * 100_000 + 20_000, 500, bytes=4096, src="Pageable", dst="Device", call=(step * 100_000 + 19_900, 650))
        made.write(folder / "logs" / "job" / f"rank{rank}.1.pt.trace.json")
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(folder / "logs")), StoreOptions(cache_dir=str(folder / "cache")), executor=pool)
        made_app = create_app(store, WebOptions(first_wait=20.0))
        made_app.test_client().get("/api/v1/analysis/memcpy_ranks?wait=20")
        yield made_app
        store.close()


@pytest.fixture(scope="module")
def described(app: Flask) -> schemathesis.BaseSchema:
    found = schemathesis.openapi.from_dict({"openapi": "3.1.0", **json.loads(openapi.FILE.read_text(encoding="utf-8"))})
    found.app = app
    return found


OPERATIONS = [
    (path, method, mode)
    for path, methods in PATHS.items()
    for method, operation in methods.items()
    for mode in (GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if operation["parameters"] else []))
]


@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS, ids=lambda v: str(v).removeprefix("/api/v1/"))
def test_answers_to_generated_requests_are_as_described(
    described: schemathesis.BaseSchema, path: str, method: str, mode: GenerationMode
) -> None:
    # GIVEN an operation of the committed description WHEN requests are made up that fit it, or miss it in one place
    @settings(max_examples=REQUESTS, database=None, phases=[Phase.generate], derandomize=REQUESTS < 10, suppress_health_check=list(HealthCheck))
    @given(described[path][method.upper()].as_strategy(generation_mode=mode), st.booleans())
    def answers(case: schemathesis.Case, named: bool) -> None:
        if not named and mode is GenerationMode.POSITIVE:
            case.query = {k: v for k, v in (case.query or {}).items() if k not in ("run", "worker", "span", "wait")}
        if "{name}" in path:
            case.path_parameters = {"name": "kernels"}
        case.headers = {**(case.headers or {}), "Accept-Encoding": "identity"}  # the client does not unpack
        # THEN each answer has a status, a type and a body as described, and is no fault of ours
        case.call_and_validate(checks=CHECKS)

    answers()
