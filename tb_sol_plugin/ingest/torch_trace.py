"""Kineto / Chrome trace to Capture."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pandas as pd

from tb_sol_plugin import redact
from tb_sol_plugin.errors import NotATrace
from tb_sol_plugin.ingest import assemble, copies, link
from tb_sol_plugin.ingest import header as H
from tb_sol_plugin.ingest.batch import Scanner
from tb_sol_plugin.ingest.decode import Columns, Decoder
from tb_sol_plugin.ingest.pipeline import Pipeline
from tb_sol_plugin.ingest.progress import Progress, Report
from tb_sol_plugin.ingest.source import Source
from tb_sol_plugin.ingest.split import Splitter
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts

OPEN = "open the file that the profiler wrote (*.pt.trace.json)"
EPOCH_US = 10**14
"""Without a base time, a ts from here on (in µs) is time since 1970; below it the origin is unknown."""


def read(
    path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None, decoder: Decoder | None = None
) -> Capture:
    """Read one trace file (local path or fsspec URL). BadInput or NotATrace where it holds no trace."""
    with Source(path, fs_options) as source:
        return read_from(source, progress=progress, decoder=decoder)


def read_from(source: Source, *, progress: Report | None = None, decoder: Decoder | None = None) -> Capture:
    """Read what `source` gives; errors as for `read`."""
    columns = Columns()
    with _without_gc(), Pipeline(columns) as pipeline:
        splitter = Splitter(source, columns, decoder or Scanner(), pipeline)
        last = 0.0
        for _ in splitter.run():
            now = time.monotonic()
            if progress is not None and now - last > 0.1:
                progress(Progress(source.position, source.size, columns.total, "reading"))
                last = now
        if columns.total == 0 and not splitter.is_list and not (H.TRACE_KEYS & set(splitter.header)) and not splitter.truncated:
            raise NotATrace("this JSON holds no traceEvents", hint=OPEN, file=source.name)
        if progress is not None:
            progress(Progress(source.size, source.size, columns.total, "linking"))
        capture = build(columns, splitter.header, source=source, warnings=splitter.warnings, truncated=splitter.truncated)
        if splitter.is_list and columns.total and not any(str(phase) for phase in capture.tables["categories"]["phase"].cat.categories):
            raise NotATrace("this JSON list holds no trace events: none has a phase (ph)", hint=OPEN, file=source.name)
        return capture


@contextmanager
def _without_gc() -> Iterator[None]:
    """No garbage collection while columns grow: there are no cycles, and every pass would walk what is kept."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def build(columns: Columns, header: dict[str, object], *, source: Source, warnings: list[str], truncated: bool) -> Capture:
    """Tables, trees and links of what was read."""
    assemble.pair_begin_end(columns)
    origin = min((b.minimum("start") for b in (columns.host, columns.device) if b.rows), default=0)
    host, old_to_new = assemble.host(columns, origin)
    host_table = S.HOST.frame(host)
    operators = assemble.remapped(columns.operators, old_to_new)
    calls = assemble.remapped(columns.calls, old_to_new)
    frames = assemble.remapped(columns.frames, old_to_new)
    tables: dict[str, pd.DataFrame] = {
        "host": host_table,
        "operators": S.OPERATORS.frame(
            {
                **{k: operators[k] for k in ("host", "sequence", "forward_thread", "external_id") if k in operators},
                **{
                    k: getattr(columns, k).categorical(operators[k])
                    for k in ("shapes", "types", "strides", "concrete", "extra")
                    if k in operators
                },
            }
        ),
        "calls": S.CALLS.frame(calls),
        "frames": S.FRAMES.frame(frames),
        "threads": assemble.threads(columns),
        "flows": assemble.flows(columns, origin),
        "memory": assemble.memory(columns, origin),
        "sync": assemble.sync(columns, origin),
        "annotations_device": assemble.device_annotations(columns, origin),
        "instants": assemble.instants(columns, origin),
        "categories": assemble.categories(columns),
    }
    view = link.Host(host_table)
    device, device_table, device_order = assemble.device(columns, origin, view, tables)
    low, high = assemble.extent(view, device)
    tables["steps"], step = link.steps(view, host_table, device_table, (low, high))
    device["step"] = step
    tables["device"] = S.DEVICE.frame(device)
    tables["backward"] = link.backward(view, tables["operators"], tables["flows"])
    tables["collectives"] = assemble.collectives(columns, device_order)
    tables["peers"] = copies.peers(columns, device_order)
    assemble.observe(columns, tables, view)
    copies.observe(tables["device"], H.devices(header), columns.health)
    tables["issues"] = columns.health.table()
    facts = _facts(columns, header, source, tables, origin, (low, high), warnings, truncated)
    return Capture(facts, tables)


# -- facts ----------------------------------------------------------------------------------------------------


def _facts(
    columns: Columns,
    header: dict[str, object],
    source: Source,
    tables: dict[str, pd.DataFrame],
    origin: int,
    extent: tuple[int, int],
    warnings: list[str],
    truncated: bool,
) -> Facts:
    base = H.base_time(header)
    rank, world, backend = H.distributed(header)
    devices = H.devices(header)
    calls = tables["calls"]["host"].to_numpy()[:2000]
    call_names = set(tables["host"]["name"].iloc[calls].astype(object).unique()) if len(calls) else set()
    device_categories = set(tables["device"]["category"].astype(object).unique()) if len(tables["device"]) else set()
    if columns.total == 0:
        warnings = [*warnings, "the file holds no events"]
    return Facts(
        source="kineto",
        file=source.name,
        size=source.size,
        total_events=columns.total,
        origin_ns=origin + (base or 0),
        absolute=base is not None or origin >= EPOCH_US * 1000,
        extent_ns=extent,
        vendor=H.vendor(header, device_categories, call_names, tuple(d.name for d in devices)),
        devices=devices,
        flags=H.flags(header),
        versions=H.versions(header),
        rank=rank,
        world_size=world,
        backend=backend,
        host_name=redact.text(str(header.get("host_name") or ""))[:80],
        metadata=H.metadata(header),
        errors=H.logged(header, "ERROR"),
        warnings=tuple(warnings) + H.logged(header, "WARNING"),
        truncated=truncated,
        pseudo_step=bool((tables["steps"]["number"] < 0).all()),
        external_id_regime=_regime(tables),
    )


def _regime(tables: dict[str, pd.DataFrame]) -> int:
    """1 to 4: what the external id of calls and device events means; 0 where none is recorded."""
    calls = tables["calls"]
    ids, correlation = calls["external_id"].to_numpy(), calls["correlation"].to_numpy()
    given = ids > 0
    if not given.any():
        return 0
    if (ids[given] == correlation[given]).mean() > 0.95:
        return 2
    legacy = bool(tables["host"]["category"].astype(object).isin(["Operator", "Runtime"]).any())
    return 1 if legacy else 3 if (ids == correlation).any() else 4
