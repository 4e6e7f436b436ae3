"""One worker's recording after ingest: immutable Tables and Facts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.devices.book import EMPTY, DeviceBook
from tb_sol_plugin.model.devices.spec import DeviceSpec

if TYPE_CHECKING:
    from tb_sol_plugin.model.report import Report, UnavailableReport


class DeviceProps(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of `deviceProperties`. Zero or "" where the recorder left it out."""

    id: int
    name: str = ""
    memory_bytes: int = 0
    compute_capability: str = ""
    units: int = 0
    warp_size: int = 0
    max_threads_per_unit: int = 0
    registers_per_block: int = 0
    shared_memory_per_block: int = 0


class Facts(msgspec.Struct, frozen=True):
    """What is known about a recording as a whole. None is unknown.

    origin_ns: what was taken off every time; absolute is True when origin_ns is epoch time (ranks can be aligned).
    extent_ns: first start and last end over all complete events. vendor: nvidia, amd, mtia, xpu, other or "" without device.
    flags: record_shapes, with_stack, profile_memory, with_flops, with_modules. metadata: an allowlist, already redacted.
    source: kineto (a profiler trace) or sol_capture. limits: those a SOL capture was judged against while recording.
    """

    source: str
    file: str
    size: int
    total_events: int = 0
    origin_ns: int = 0
    absolute: bool = False
    extent_ns: tuple[int, int] = (0, 0)
    vendor: str = ""
    devices: tuple[DeviceProps, ...] = ()
    flags: dict[str, bool | None] = {}
    versions: dict[str, str] = {}
    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    host_name: str = ""
    metadata: dict[str, str] = {}
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    truncated: bool = False
    pseudo_step: bool = False
    external_id_regime: int = 0
    limits: DeviceSpec | None = None


class Capture:
    """Facts and tables of one worker's one span. Tables are not to be changed; derive new frames.

    `run`, `worker` and `span` are the names the store gave it ("" when opened directly from a file). `devices` are the rows
    that device files add to the table of devices, as the store found them when it handed the capture out.
    """

    def __init__(
        self,
        facts: Facts,
        tables: Mapping[str, pd.DataFrame],
        *,
        run: str = "",
        worker: str = "",
        span: str = "",
        devices: DeviceBook = EMPTY,
    ) -> None:
        self.facts = facts
        self.tables = {name: tables[name] if name in tables else schema.empty() for name, schema in S.ALL.items()}
        self.run = run
        self.worker = worker
        self.span = span
        self.devices = devices
        self.memo: dict[object, object] = {}
        """For `metrics`: results derived from the tables, by a key of the deriving function (see `metrics.memo`)."""

    def with_devices(self, devices: DeviceBook) -> Capture:
        """The same recording with other rows of device files. Tables are shared; what was derived with the old rows is not."""
        return Capture(self.facts, self.tables, run=self.run, worker=self.worker, span=self.span, devices=devices)

    # -- tables -----------------------------------------------------------------------------------------------

    @property
    def host(self) -> pd.DataFrame:
        return self.tables["host"]

    @property
    def device(self) -> pd.DataFrame:
        return self.tables["device"]

    @property
    def steps(self) -> pd.DataFrame:
        return self.tables["steps"]

    @cached_property
    def operator_of_host(self) -> np.ndarray:
        """int32 per host row: its row in `operators`, -1 if it carries no arguments."""
        out = np.full(len(self.host), -1, np.int32)
        rows = self.tables["operators"]["host"].to_numpy()
        out[rows] = np.arange(len(rows), dtype=np.int32)
        return out

    # -- what was recorded ------------------------------------------------------------------------------------

    def missing(self, need: str) -> tuple[str, str, str] | None:
        """None if the recording has what `need` names; else (because, record it with, the argument to add).

        Needs: device_events, host_events, operators, shapes, modules, annotations, steps, memory, collectives, backward, copies,
        iterations.
        """
        test, because, hint, argument = NEEDS[need]
        return None if test(self) else (because, hint, argument)

    # -- analyses ---------------------------------------------------------------------------------------------

    def analyze(self, name: str, **query: object) -> Report | UnavailableReport:
        """The Report of one analysis; query fields as keywords. NotFound or BadQuery on a wrong name or field."""
        from tb_sol_plugin.analyses import run_analysis

        return run_analysis(name, self, {k: str(v) for k, v in query.items()})


def _has(table: str):  # type: ignore[no-untyped-def]
    return lambda c: len(c.tables[table]) > 0


def _has_kind(kind: int):  # type: ignore[no-untyped-def]
    return lambda c: bool((c.host["kind"].to_numpy() == kind).any())


def _has_shapes(c: Capture) -> bool:
    categories = c.tables["operators"]["shapes"].cat.categories
    return any(text not in ("", "[]") and any(ch.isdigit() for ch in text) for text in categories)


_CUDA = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
NEEDS = {
    "device_events": (_has("device"), "no device activity in this recording", f"record with {_CUDA}", "ProfilerActivity.CUDA"),
    "host_events": (_has("host"), "no host activity in this recording", f"record with {_CUDA}", "ProfilerActivity.CPU"),
    "operators": (_has_kind(S.OPERATOR), "no operators in this recording", f"record with {_CUDA}", "ProfilerActivity.CPU"),
    "shapes": (_has_shapes, "recorded without record_shapes", "record with profile(record_shapes=True)", "record_shapes=True"),
    "modules": (_has_kind(S.MODULE), "recorded without with_stack", "record with profile(with_stack=True)", "with_stack=True"),
    "annotations": (
        lambda c: bool((c.host["kind"].to_numpy() == S.ANNOTATION).any()),
        "no user annotation in this recording",
        'name parts of the step with torch.profiler.record_function("forward"), and call prof.step()',
        'record_function("forward")',
    ),
    "steps": (
        lambda c: not c.facts.pseudo_step,
        "no ProfilerStep in this recording",
        "call prof.step() after every iteration",
        "prof.step()",
    ),
    "memory": (_has("memory"), "recorded without profile_memory", "record with profile(profile_memory=True)", "profile_memory=True"),
    "collectives": (
        lambda c: bool(c.device["communication"].to_numpy().any()),
        "no collective in this recording",
        "record a job with more than one rank",
        "",
    ),
    "backward": (_has("backward"), "no backward pass in this recording", "record a training step", ""),
    "copies": (
        lambda c: bool(((c.device["kind"].to_numpy() != S.KERNEL) | c.device["copy_kernel"].to_numpy()).any()),
        "no copy in this recording",
        f"record with {_CUDA}",
        "ProfilerActivity.CUDA",
    ),
    "iterations": (
        _has("iterations"),
        "no SOL capture of this worker",
        "run the training loop inside sol.capture(logdir, model=model) and call tracker.step() after every iteration",
        "sol.capture(logdir, model=model)",
    ),
}
