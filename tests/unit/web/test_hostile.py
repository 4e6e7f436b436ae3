"""Nothing in a request leads out of the logdir, and nothing in a recording runs anywhere."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.routes import create_app
from tb_sol_plugin.web.wire import cell
from tests.support.tiny import EVENTS, trace

FORMS = [
    "../secret.json", "../../etc/passwd", "..%2fsecret.json", "..%2f..%2fetc%2fpasswd", "%2e%2e/secret.json", "%2e%2e%2fsecret.json",
    "..%252fsecret.json", "..\\secret.json", "..%5csecret.json", "%2e%2e%5csecret.json", "/etc/passwd", "//etc/passwd", "%2fetc%2fpasswd",
    "....//secret.json", "..;/secret.json", "job/../../secret.json", "C:\\windows\\win.ini", "C:%5cwindows", "file:///etc/passwd",
    "\\\\host\\share\\x", "..%c0%afsecret.json", "secret.json%00.js", "~/secret.json", "job%00", ".%2e/secret.json", "..", ".", "%2e%2e",
]  # fmt: skip


@pytest.fixture
def outside(logdir: Path) -> None:
    (logdir.parent / "secret.json").write_text('{"traceEvents": [], "top": "SECRET"}')


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("form", FORMS)
def test_no_address_leads_out_of_the_logdir_and_the_static_files(client: FlaskClient, form: str) -> None:
    # GIVEN a file beside the logdir WHEN its name comes in any form, anywhere in an address THEN 404 (or 400, 403), never its content
    for address in (f"/{form}", f"/vendor/{form}", f"/api/v1/{form}", f"/api/v1/analysis/{form}?run=job", f"/static/{form}"):
        reply = client.get(address)
        assert reply.status_code in (400, 403, 404, 308), (address, reply.status_code)  # `//etc/passwd` names a host
        assert b"SECRET" not in reply.data and b"root:" not in reply.data


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parameter", ["run", "worker", "span"])
def test_no_parameter_leads_out_of_the_logdir(client: FlaskClient, form: str, parameter: str) -> None:
    for value in (form, quote(form, safe="")):
        query = {"run": "job", "worker": "rank2", "span": "1"} | {parameter: form}
        address = "&".join(f"{k}={value if k == parameter else v}" for k, v in query.items())
        for route in ("analyses", "analysis/health", "trace"):
            reply = client.get(f"/api/v1/{route}?{address}")
            assert reply.status_code == 404, (route, value)
            assert b"SECRET" not in reply.data and b"root:" not in reply.data
            assert reply.get_json()["error"]["field"] == parameter


def test_very_long_and_odd_parameters_are_errors(client: FlaskClient) -> None:
    for value in ("x" * 100_000, "\x00", "\ud7ff", "%", "%zz", "<script>", "a\r\nSet-Cookie: x=1"):
        reply = client.get("/api/v1/analysis/health", query_string={"run": value})
        assert reply.status_code == 404 and "Set-Cookie" not in reply.headers and len(reply.data) < 4000


@pytest.mark.parametrize("text", ["x" * 30_000, "1," * 15_000, "flops=" + "9" * 30_000, ("x" * 15 + "ü") * 2_000])
def test_no_answer_quotes_a_long_parameter(shared: FlaskClient, text: str) -> None:
    # GIVEN a text of 30 kB or more WHEN it is the value of any field of any analysis, and of the other parameters
    one = {"run": "job", "worker": "rank2", "span": "1", "wait": "20"}
    addresses = [(f"analysis/{n}", f.name) for n, item in registry().items() for f in item.fields]
    addresses += [(f"analysis/{n}", p) for n in ("overview", "scaling") for p in ("run", "section", "tables", "format", "zzz")]
    addresses += [
        ("analyses", "device_limits"),
        ("search", "device_limits"),
        ("export", "by"),
        ("table/kernels", "find"),
        ("table/kernels", "key"),
    ]
    for route, name in addresses:
        reply = shared.get(
            f"/api/v1/{route}", query_string={"section": "kernels"} | one | {name: text} if "table" in route else one | {name: text}
        )
        # THEN the answer holds a few hundred characters of it at most
        assert len(reply.data) < 5_000 or text[:2_000] not in reply.get_data(as_text=True), (
            route,
            name,
            reply.status_code,
            len(reply.data),
        )
        if reply.status_code != 200:
            assert len(reply.data) < 2_500, (route, name, reply.data[:300])


def test_hostile_names_arrive_escaped_and_unchanged(client: FlaskClient, store: Store) -> None:
    # GIVEN a file whose name holds markup, quotes, percent and umlaut WHEN listed and opened THEN the same name, as JSON
    store.rescan()
    (run,) = [r for r in client.get("/api/v1/runs").get_json()["runs"] if r["name"] == "odd"]
    name = run["workers"][0]["name"]
    assert name == "a <script>alert('x')&\"%2f ü"
    reply = client.get("/api/v1/analysis/health", query_string={"run": "odd", "worker": name, "wait": 20})
    assert reply.get_json()["selection"]["worker"] == name and reply.content_type == "application/json"


SECRET = "hf_" + "QwErTyUiOpAsDfGhJkLz"


def test_secrets_of_a_recording_appear_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN a recording with an environment dump, a token in its log lines and in a note
    header = {
        "metadata": {"system": {"env": {"HF_TOKEN": SECRET, "AWS_SECRET_ACCESS_KEY": "s3cr3tvalue"}}, "experiment": {"repo_id": "acme/m"}},
        "ERROR": [f"ERROR: could not log in with {SECRET}"],
        "WARNING": ["password=hunter2secret"],
        "username": "joe",
    }
    trace(tmp_path / "logs" / "a.json", EVENTS, **header)
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "cache")), executor=pool)
        client = create_app(store).test_client()
        bodies = [client.get("/api/v1/analyses?run=logs&wait=20").data]
        names = [a["name"] for a in json.loads(bodies[0])["analyses"]]
        bodies += [client.get(f"/api/v1/analysis/{n}?run=logs&format={f}").data for n in names for f in ("json", "csv")]
        bodies += [client.get("/api/v1/run?run=logs").data, client.get("/api/v1/runs").data]
    # THEN no answer, no file of the cache, no line of a log holds them; what is useful is there
    kept = [p.read_bytes() for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    printed = capfd.readouterr()
    everything = b"".join([*bodies, *kept, caplog.text.encode(), printed.out.encode(), printed.err.encode()])
    for secret in (SECRET.encode(), b"s3cr3tvalue", b"hunter2secret"):
        assert secret not in everything
    assert b"acme/m" in b"".join(kept)


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|'/C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", "＋1", "－2+3", "＠SUM(A1)"]
)
def test_a_cell_of_a_csv_is_never_a_formula(text: str) -> None:
    assert cell(text) == "'" + text
    assert cell(-2) == -2 and cell("aten::mm") == "aten::mm" and cell(None) == "" and cell(True) == "true"
