"""Random recordings on the pages on copies, number by number against a second reader that shares no code with the product."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TypeAlias

import pytest

from tb_sol_plugin.ingest import read
from tests.support import copies_reference as R
from tests.support.copies_check import KEYS, bins_agree, patterns_agree, rates_agree, rows_agree, sums_agree
from tests.support.trace_builder import TraceBuilder

NAMES = (
    "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)",
    "Memcpy DtoH (Device -> Pinned)", "Memcpy DtoD (Device -> Device)", "Memcpy PtoP (Device -> Device)", "Memcpy HtoH (Pageable -> Pinned)",
    "Memcpy HtoH (Pinned -> Pinned)", "Memcpy HtoA (Pinned -> Array)", "Memcpy AtoD (Array -> Device)", "Memcpy HtoD (Managed -> Device)",
    "Memcpy HtoD (Host -> Device)", "Memcpy XtoY (Foo -> Bar)", "CopyHostToDevice", "Memory copy D2H", "Memset (Device)", "Memset (Managed)",
    "Memset (Pinned)", "Memset", "__amd_rocclr_copyBuffer", "ncclDevKernel_AllReduce", "gemm",
)  # fmt: skip
APIS = (
    "cudaMemcpyAsync", "cudaMemcpyAsync", "cudaMemcpyAsync", "cudaMemcpy", "cudaMemcpy_ptds", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoH_v2",
    "hipMemcpyWithStream", "cudaMemsetAsync", "cudaMemset", "cudaGraphLaunch", "cudaLaunchKernel", "cudaMemcpyPeerAsync",
)  # fmt: skip
WAYS = ("called", "called", "called", "called", "before", "lost", "shared")
SIZES = (None, 0, 1, 4, 64, 65, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1, 16 << 20, (256 << 20) + 1)
OPERATORS = ("", "aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::copy_", "nccl:all_reduce")
DELAYS, LENGTHS, WAITS = (0, 500, 4_000, 60_000), (100, 3_000, 50_001, 55_000, 150_000), (0, 0, 900, 200_000)
QUICK = 4
"""Seeds of the plain suite; their recordings are short."""
Event: TypeAlias = "tuple[str, str, str, int | None, str, int, int, int, int, int, int]"


def drawn(r: random.Random) -> Event:
    """Name, call, way of linking, size, operator, delay and time on the device, stream, device, length of the call, of a wait after it."""
    return (r.choice(NAMES), r.choice(APIS), r.choice(WAYS), r.choice(SIZES), r.choice(OPERATORS), r.choice(DELAYS) + r.randrange(500),
            r.choice((0, 1, 700, 20_000, 60_000)), r.choice((7, 7, 24)), r.choice((0, 0, 1)), r.choice(LENGTHS), r.choice(WAITS))  # fmt: skip


def recording(events: list[Event], steps: int, modules: bool) -> TraceBuilder:
    """Device events, each with a call, an operator around it, and sometimes a wait after it; steps and modules over them."""
    t = TraceBuilder(devices=2)
    at = shared = 0
    for number, (name, api, way, size, operator, delay, duration, stream, device, length, wait) in enumerate(events):
        begin = at + 1_000
        correlation = {"called": 1_000 + number, "before": 3, "lost": 500_000 + number, "shared": shared or 1_000 + number}[way]
        thread = t.pid + (number % 5 == 4)
        if operator:
            t.op(operator, begin - 500, length + 1_500, thread=thread)
        if number % 3 == 0:
            t.frame(f"a/b c({number}): f", begin - 600, length + 2_000, thread=thread)
        if way == "called":
            t.call(
                api,
                begin,
                length,
                correlation=correlation,
                thread=thread,
                category="cuda_driver" if api.startswith("cuM") else "cuda_runtime",
            )
            shared = correlation
        if wait:
            own = t.call("cudaStreamSynchronize", begin + length + 100, wait, correlation=900_000 + number, thread=thread)
            t.sync("Stream Sync", begin + length + 100, wait, stream=stream, correlation=own)
        category = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy" if re.match("Mem|Copy", name) else "kernel"
        args = {"device": device, "context": 1, "stream": stream, "correlation": correlation} | ({} if size is None else {"bytes": size})
        t.add({"ph": "X", "cat": category, "name": name, "pid": device, "tid": stream, "ts": t.ts(at + delay), "dur": duration / 1000,
               "args": args})  # fmt: skip
        at += length + 5_000
    for s in range(steps):
        t.step(s + 5, s * at // steps, at // steps - 300)
        if modules:
            t.module(f"Net_{s}", s * at // steps + 500, at // (2 * steps), module_id=s)
    return t


@pytest.mark.parametrize("seed", [*range(QUICK), *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(QUICK, 12))])
def test_every_number_agrees_with_a_slow_reader(seed: int, tmp_path: Path) -> None:
    # GIVEN copies of any direction and kind, with and without size, call, operator, wait, beside kernels, on two devices
    r = random.Random(seed)
    events = [drawn(r) for _ in range(r.choice((5, 30, 60) if seed < QUICK else (5, 60, 150)))]
    path = recording(events, r.randrange(4), r.random() < 0.5).write(tmp_path / "w.1.pt.trace.json")
    c, raw = read(str(path)), R.read(path)
    # THEN the pages give what the slow reader gives: sums of all groups, rates, histogram, and every single copy
    assert raw.copies
    for by in KEYS:
        sums_agree(c, raw, by)
    rates_agree(c, raw)
    bins_agree(c, raw)
    rows_agree(c, raw)
    patterns_agree(c, raw)
