"""One function per reader, and one for the routes, that takes any bytes: it may answer, or raise an error of the product; anything else is a fault.

What is found must also hold: no memory below zero, no time that is left over below zero, reports that can be sent, no warning of numpy.
"""

from __future__ import annotations

import atexit
import json
import pickle
import shutil
import tempfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from flask.testing import FlaskClient

import tb_sol_plugin as sol
from tb_sol_plugin import ingest
from tb_sol_plugin.cli.check_files import Baseline, stored
from tb_sol_plugin.cli.check_formats import FORMATS, Link
from tb_sol_plugin.devices import files as device_files
from tb_sol_plugin.errors import SolError
from tb_sol_plugin.format import FORMAT
from tb_sol_plugin.metrics.compare.differences import Side
from tb_sol_plugin.metrics.compare.gate import check, check_budgets, noise_between, wanted_of
from tb_sol_plugin.metrics.compare.samples import samples_of
from tb_sol_plugin.metrics.goodput import points
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.graph_capture import Stated, eager_sets, graph_sets, stated_in
from tb_sol_plugin.model.graph_join import with_graphs
from tb_sol_plugin.model.query import Query, fields, parse
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import encode
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.tables import members
from tb_sol_plugin.web.bounds import MOST_ANSWER
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support import compared, graphs, memory_snapshot, proton_profile
from tests.support.sol_builder import small
from tests.support.trace_builder import TraceBuilder

ANALYSES: Final = ("overview", "operators", "kernels", "steps", "memory", "gpu_breakdown", "modules", "memcpy", "health", "phases")
ROUTES: Final = (
    "timeline", "timeline/names", "timeline/tiles", "timeline/event", "timeline/events", "timeline/search", "timeline/flows", "timeline/export",
    "analysis/timeline_selection", "analysis/kernels", "table/kernels", "search", "summaries", "analyses", "run", "runs", "export",
)  # fmt: skip
EVERY: Final = 32
"""One input in so many is analyzed too, by one analysis: what it costs is many times the reading."""


def holds(capture: Capture, data: bytes) -> None:
    """Checks what is true of any recording; one in `EVERY` is analyzed."""
    timeline = capture.tables.get("memory_timeline")
    assert timeline is None or (timeline["bytes"].to_numpy() >= 0).all(), "memory below zero"
    for name in ("host", "device"):
        table = capture.tables.get(name)
        assert table is None or (table["duration_ns"].to_numpy() >= 0).all(), f"{name}: a duration below zero"
    capture.facts.file.encode()
    number = zlib.crc32(data)
    if number % EVERY == 0:
        report = capture.analyze(ANALYSES[number // EVERY % len(ANALYSES)])
        body = json.loads(encode(report))
        _check_numbers(body)


def _check_numbers(body: object) -> None:
    """Checks every column and fact of a report that cannot be negative."""
    if isinstance(body, dict):
        for name, one in body.items():
            values = one if isinstance(one, list) else [one]
            if name == "other_ns" and all(isinstance(v, int | float) or v is None for v in values):
                assert all(v is None or v >= 0 for v in values), "other_ns below zero"
            _check_numbers(one)
    elif isinstance(body, list):
        for one in body:
            _check_numbers(one)


def _file(name: str) -> Callable[[bytes, Path], None]:
    def run(data: bytes, folder: Path) -> None:
        path = folder / name
        path.write_bytes(data)
        ingest.classify(ingest.head(str(path)), name)
        holds(ingest.read(str(path)), data)

    return run


def _device_file(data: bytes, folder: Path) -> None:
    name = "sol_devices.json" if data[:1] in b"[{" else "sol_devices.csv"
    device_files.parse(data, name)


def _scaling_file(data: bytes, folder: Path) -> None:
    found = points.parse(data.decode("utf-8", "replace"), "x.json" if data[:1] in b"[{" else "x.csv")
    assert all(0 <= p.num_replicas < 2**31 or not p.used for p in found.points)


def _query(data: bytes, folder: Path) -> None:
    name, _, rest = data.decode("utf-8", "replace").partition("?")
    known = sorted(registry())
    query = registry()[name if name in registry() else known[zlib.crc32(name.encode()) % len(known)]].query
    raw = dict(pair.partition("=")[::2] for pair in rest.split("&"))
    names = {f.name for f in fields(query)}
    parse(query, {k: v for k, v in raw.items() if k in names} if zlib.crc32(data) % 2 else raw)


def _request(data: bytes, folder: Path) -> None:
    """Asks a route of a server over one small recording: `ROUTE?QUERY`, where the route is none another one of `ROUTES`."""
    route, _, query = data.decode("utf-8", "replace").partition("?")
    route = route if route in ROUTES else ROUTES[zlib.crc32(route.encode()) % len(ROUTES)]
    reply = _client().get(f"/api/v1/{route}", query_string=query)
    assert reply.status_code in (200, 202, 400, 404, 409, 416), f"{route}: status {reply.status_code}: {reply.data[:300]!r}"
    assert len(reply.data) < MOST_ANSWER, f"{route}: {len(reply.data)} bytes"


@cache
def _client() -> FlaskClient:
    """A server that lives as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="tb-sol-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "job").mkdir()
    (folder / "job" / "worker.1.pt.trace.json").write_bytes(_trace())
    store = Store(single(str(folder)), StoreOptions(cache_dir=""), executor=ThreadPoolExecutor(1))
    client = create_app(store, WebOptions(first_wait=20.0)).test_client()
    assert client.get("/api/v1/timeline?wait=20").status_code == 200
    return client


# -- Files that say something of other recordings ---------------------------------------------------------------------


def _graph_capture(data: bytes, folder: Path) -> None:
    """Joins a recording of graph captures to a trace that launches two graphs: what is grafted stays in order."""
    path = folder / "graph_capture_rank_0.pt.trace.json"
    path.write_bytes(data)
    trace, name = _replays(), path.name
    captured = ingest.read(str(path))
    made, _ = graph_sets(captured, name, Stated(8, "FULL"))
    joined = with_graphs(trace, made + eager_sets(captured, name))
    assert len(joined.device) == len(trace.device) and len(joined.host) >= len(trace.host), "events of the trace are gone"
    holds(joined, data)


def _graph_details(data: bytes, folder: Path) -> None:
    """Reads what an `execution_details.json` says of two captures."""
    try:
        found = stated_in(data.decode("utf-8-sig"), ["a.json", "b.json"])
    except ValueError:  # also of text that is no UTF-8: said beside the joined graphs
        return
    assert all(one.batch > 0 and one.mode in ("FULL", "PIECEWISE") for one in found.values())


def _rank_map(data: bytes, folder: Path) -> None:
    """Reads `distributedInfo` of one of two ranks, and lists of ranks in its collectives; reports the groups of both."""
    text = data.decode("utf-8", "replace")
    listed = members.listed(text)
    assert listed is None or len(listed) <= len(text)
    for part in (text, text.partition("|")[2]):
        assert len(members.members_of(part)) <= members.MOST
    head, _, ranks = data.partition(b"|")
    path = folder / "rank1.1.pt.trace.json"
    path.write_bytes(_rank(1).replace(b'"MAP"', head, 1).replace(b"LIST", json.dumps(ranks.decode("utf-8", "replace"))[1:-1].encode(), 1))
    read = ingest.read(str(path))
    assert read.facts.rank is None or 0 <= read.facts.rank < 2**31
    if zlib.crc32(data) % EVERY == 0:
        (folder / "rank0.1.pt.trace.json").write_bytes(_rank(0).replace(b'"MAP"', seeds()["rank_map"][0].partition(b"|")[0], 1))
        for name in ("groups", "collectives", "parallelism", "stragglers", "imbalance"):
            encode(sol.open(str(folder), cache=False, run=".").analyze(name))


def _check_file(data: bytes, folder: Path) -> None:
    """Checks a run against a baseline or budgets, and prints the verdict in every form."""
    path = folder / "base.json"
    path.write_bytes(data)
    found = stored(str(path))
    if found is None:
        return
    candidate, wanted = _candidate(), wanted_of([])
    if isinstance(found, list):
        verdict = check_budgets(found, candidate, wanted_of([b.name for b in found]) or wanted, "base")
    else:
        verdict = check(Side("base", found.runs), candidate, wanted)
        noise_between(Side("history", found.runs), ["step_time"])
    for form in FORMATS.values():
        form(verdict, verdict.status("inconclusive"), Link("", "")).encode()


@cache
def _replays() -> Capture:
    t = TraceBuilder(device="AMD Instinct MI300X")
    graphs.replay(t, (graphs.LAYER,), graphs.replay(t, (graphs.LAYER,), 0, 10_000), 60_000)
    with tempfile.TemporaryDirectory(prefix="tb-sol-fuzz-") as folder:
        return ingest.read(str(t.write(Path(folder) / "rank0.pt.trace.json")))


@cache
def _candidate() -> Side:
    return Side("candidate", [samples_of(compared.recording(compared.Job(steps=6)), Query())])


@cache
def _rank(number: int) -> bytes:
    """A trace of one rank in which the words MAP and LIST stand for its groups and the ranks of its collective."""
    t = TraceBuilder(rank=number, world_size=2, header={"distributedInfo": "MAP"})
    t.step(1, 0, 10_000)
    args: dict[str, object] = {"Process Group Ranks": "LIST"} if number else {}
    t.collective("allreduce", 1_000, 500, elements=64, args=args)  # type: ignore[arg-type]
    return t.data()


def run(name: str, data: bytes, folder: Path) -> None:
    """Runs one target; errors of the product are answers."""
    try:
        with np.errstate(divide="warn", over="warn", invalid="warn"):  # a work too small for a float is 0
            TARGETS[name](data, folder)
    except SolError as error:
        error.line().encode()


TARGETS: Final[dict[str, Callable[[bytes, Path], None]]] = {
    "trace": _file("worker.pt.trace.json"),
    "sol_log": _file("host_rank0_1_2.sol.jsonl"),
    "snapshot": _file("memory.pickle"),
    "timeline": _file("memory.json"),
    "timeline_raw": _file("memory.raw.json"),
    "proton": _file("profile.hatchet"),
    "proton_packed": _file("profile.hatchet_msgpack"),
    "proton_trace": _file("proton.json"),
    "device_file": _device_file,
    "scaling_file": _scaling_file,
    "query": _query,
    "request": _request,
    "graph_capture": _graph_capture,
    "graph_details": _graph_details,
    "rank_map": _rank_map,
    "check_file": _check_file,
}


def _trace() -> bytes:
    t = TraceBuilder()
    t.op("aten::mm", 0, 1_000, shapes=[[2, 2], [2, 2]], types=["float", "float"])
    t.launch("gemm", at=100, start=400, duration=40)
    t.op("aten::copy_", 2_000, 1_000)
    t.launch("Memcpy HtoD (Pinned -> Device)", at=2_100, start=2_400, duration=60)
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1.5,
              "args": {"Total Reserved": 1024, "Total Allocated": 512, "Bytes": 512, "Addr": 4096, "Device Id": 0, "Device Type": 1}}  # fmt: skip
    return t.data().replace(b'"traceEvents": [', b'"traceEvents": [' + json.dumps(memory).encode() + b",", 1)


_REQUESTS: Final = (
    ("timeline", "worker=worker&span=1&wait=1&fp=0"), ("timeline/names", "fp=0"), ("timeline/tiles", "z=3&i=0-1&tracks=0-2,4&format=json"),
    ("timeline/tiles", "z=52&i=1099511627776&tracks=0&format=binary"), ("timeline/event", "track=4&event=1&device_limits=H100_SXM"),
    ("timeline/event", "track=4&start_ns=1&duration_ns=-2"), ("timeline/events", "track=4&lane=0&start_ns=0&end_ns=9&cursor=3&limit=1000"),
    ("timeline/search", "text=a&names=0-3,2&tracks=0-4&after_ns=4611686018427387904&direction=previous&limit=3"),
    ("timeline/flows", "events=4:1,4:2&kind=launch&start_ns=-4611686018427387904"),
    ("timeline/export", "start_ns=1&end_ns=9&tracks=1-3&flows=0&clip=1&split_overlaps=1&path=1"),
    ("analysis/timeline_selection", "start_ns=1&end_ns=4611686018427387904&tracks=0,1&tables=pages&group_by=name&find=a&step=1"),
    ("analysis/kernels", "format=csv&section=kernels&step=1-2"),
    ("table/kernels", "section=kernels&from=0&count=9&sort=-total_ns&find=a&key=b&filter=x"),
    ("search", "q=gemm&device_limits=H100_SXM"), ("export", "by=name"), ("run", "x=1"),
)  # fmt: skip


@cache
def seeds() -> dict[str, tuple[bytes, ...]]:
    """Returns small good inputs of each target."""
    packed = json.dumps([proton_profile.serving(), proton_profile.ONE]).encode()
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "tid": 7, "args": {"call_stack": ["ROOT", "a", "k"]}}
    scope = {"ph": "X", "cat": "scope", "name": "a", "ts": 0, "dur": 9, "tid": 1, "args": {"call_stack": ["ROOT", "a"]}}
    scaling = {"num_nodes": [1, 2], "num_replicas": [4, 8], "atomic_bsz": [32, 32], "accum_step_time": [0.3, 0.3], "optim_step_time": [0.34, 0.41],
               "grad_params": {"sqr": 1.0, "var": 2.0}, "init_batch_size": 128, "max_batch_size": 1024}  # fmt: skip
    captures = TraceBuilder(device="AMD Instinct MI300X")
    graphs.capture_window(captures, (graphs.LAYER,), graphs.capture_window(captures, (graphs.LAYER,), 0), batch=4, mode="PIECEWISE", annotated=False)
    of_cupti = TraceBuilder()
    graphs.eager(of_cupti, (graphs.LAYER,), 0, 5_000)
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}]
    job = {"backend": "nccl", "rank": 1, "world_size": 2, "pg_count": 1, "pg_config": groups}
    base = msgspec.json.encode(Baseline(runs=tuple(_candidate().runs)))
    return {
        "graph_capture": (captures.data(), of_cupti.data()),
        "graph_details": (b'[{"file":"x/a.json","batch_size":8,"mode":"PIECEWISE"},{"file":"b.json","batch_size":1,"mode":"DECODE"}]',),
        "rank_map": (json.dumps(job).encode() + b"|[0, 1]", json.dumps(job).encode() + b"|0:1:2,7:3:4"),
        "check_file": (base, b'{"tb_sol_budgets": 1, "budgets": {"step_time": "4.9ms +5%", "launches": "30", "operator:aten::mm": "2 ms"}}'),
        "trace": (_trace(), b'[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":2}]'),
        "sol_log": (b"".join(line.rstrip(b"\n") + b"\n" for line in small().lines()), b'{"kind":"header","format":"' + FORMAT.encode() + b'","version":[2,0]}\n'),
        "snapshot": tuple(pickle.dumps(memory_snapshot.snapshot(), p) for p in (0, 2, 4)),
        "timeline": (b"[[1000, 2000], [[0,1,2,3,4,5,6,7,8],[0,8,7,6,5,4,3,2,1]]]",),
        "timeline_raw": (b"[[-1,1,64,0],[5,2,8,3],[7,3,8,4],[9,4,-8,4]]",),
        "proton": (packed,),
        "proton_packed": (msgspec.msgpack.encode([proton_profile.serving(), proton_profile.ONE]),),
        "proton_trace": (json.dumps({"displayTimeUnit": "us", "traceEvents": [scope, event]}).encode(),),
        "device_file": (b"key,name,based_on,mem_bw_gb_per_s\nmine,My GPU,H100_SXM,3000\n", b'{"devices":[{"key":"mine","based_on":"H100_SXM","mem_bw_gb_per_s":3000}]}'),
        "scaling_file": (json.dumps(scaling).encode(), b"num_nodes,num_replicas,atomic_bsz,accum_step_time,optim_step_time\n1,4,32,0.3,0.34\n2,8,32,0.3,0.41\n"),
        "request": tuple(f"{route}?run=job&{query}".encode() for route, query in _REQUESTS),
        "query": tuple(f"{n}?step=1-2&device_limits=H100_SXM&gap_us=5&top=10&search=a".encode() for n in ("gpu_breakdown", "kernels", "scaling", "memory_plan")),
    }  # fmt: skip


def cases() -> dict[str, list[Path]]:
    """Returns the committed inputs that were faults once, by target."""
    found: dict[str, list[Path]] = {}
    for path in sorted((Path(__file__).parent / "cases").glob("*")):
        found.setdefault(path.name.partition("-")[0], []).append(path)
    return found
