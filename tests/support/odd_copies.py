"""One recording with a copy of every sort: each direction and kind of memory, each recorder's spelling, and what goes wrong with copies.

`recording()` writes the events, `ROWS` says what each must become: (number of the row, direction, source, destination, bytes, time).
Two devices of 85,018,279,936 bytes each; two steps of 100 us; all copies one after the other, 2 us apart.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.trace_builder import Json, TraceBuilder

APART = 2_000
FIRST = 5_000
MIB = 1 << 20


class Copy(NamedTuple):
    """What is written, and what it must be read as. size: None where none is written. call: "" no launch."""

    name: str
    direction: str
    src: str
    dst: str
    size: int | None
    duration: int = 500
    call: str = "cudaMemcpyAsync"
    args: dict[str, Json] = {}
    category: str = "gpu_memcpy"
    tid: Json = 7
    known: bool = True
    """Whether the size counts."""

    @property
    def bytes(self) -> int:
        return self.size if self.size is not None and self.known else -1


COPIES = (
    Copy("Memcpy HtoD (Pageable -> Device)", "HtoD", "Pageable", "Device", 4096, 1_000),
    Copy("Memcpy HtoD (Pinned -> Device)", "HtoD", "Pinned", "Device", 2 * MIB, 1_900),
    Copy("Memcpy DtoH (Device -> Pageable)", "DtoH", "Device", "Pageable", None, call="cudaMemcpy_ptds"),
    Copy("Memcpy DtoH (Device -> Pinned)", "DtoH", "Device", "Pinned", 64, 0),
    Copy("Memcpy DtoD (Device -> Device)", "DtoD", "Device", "Device", 8_192, args={"memory bandwidth (GB/s)": "N/A"}),
    Copy("Memcpy HtoH (Pageable -> Pinned)", "HtoH", "Pageable", "Pinned", 10**12, 1_900),  # the host may well be as large
    Copy("Memcpy PtoP (Device -> Device)", "PtoP", "Device", "Device", MIB, call="cudaMemcpyPeerAsync",
         args={"fromDevice": 1, "inDevice": 1, "toDevice": 0, "inContext": 3, "device": None, "context": None}),
    Copy("Memcpy HtoA (Pinned -> Array)", "HtoD", "Pinned", "Array", 512, call="cudaMemcpy2DToArrayAsync"),
    Copy("Memcpy AtoA (Array -> Array)", "DtoD", "Array", "Array", 256, call="cuMemcpyAtoA_v2"),
    Copy("Memcpy HtoD (Managed -> Device)", "HtoD", "Managed", "Device", 1_024),
    Copy("Memcpy DtoH (Device -> Host)", "DtoH", "Device", "Host", 4_000, call="hipMemcpyWithStream", args={"kind": "DtoH", "stream": 0}),
    Copy("CopyHostToDevice", "HtoD", "", "", 100, call="hipMemcpyAsync"),
    Copy("FillBuffer", "Memset", "", "", 200, call="hipMemsetAsync"),
    Copy("zeCommandListAppendMemoryCopy(M2D)", "HtoD", "", "", 300, call="urEnqueueUSMMemcpy"),
    Copy("zeCommandListAppendMemoryCopy(D2D - P2P)", "PtoP", "", "", 300, call="urEnqueueUSMMemcpy"),
    Copy("Memset (Device)", "Memset", "", "Device", 2_048, call="cuMemsetD32Async_ptsz", category="gpu_memset"),
    Copy("Memset (Managed)", "Memset", "", "Managed", 16, call="cudaMemset", category="gpu_memset"),
    Copy("Memcpy DtoD (Device -> Device)", "DtoD", "Device", "Device", 1_000, call="cudaGraphLaunch", args={"graph node id": 9}),
    Copy("Memcpy HtoD (Pinned -> Device)", "HtoD", "Pinned", "Device", 1_001, call="", args={"correlation": 999_999}),
    Copy("Memcpy HtoD (Pinned -> Device)", "HtoD", "Pinned", "Device", 1_002, call="", args={"correlation": 1}),
    Copy("Memcpy XtoY (Foo -> Bar)", "Unknown", "Foo", "Bar", 7),
    Copy("Memcpy HtoD (Pinned -> Device)", "HtoD", "Pinned", "Device", 10**12, 1_900),  # larger than the device
    Copy("Memcpy HtoD (Pinned -> Device)", "HtoD", "Pinned", "Device", -5, known=False),
    Copy("Memcpy DtoH (Device -> Pinned)", "DtoH", "Device", "Pinned", 1_003, args={"stream": None}, tid="side"),
    Copy("Memcpy HtoD (Pinned -> Device)", "HtoD", "Pinned", "Device", 100_000, 1_000, args={"memory bandwidth (GB/s)": 50.0}),
    Copy("Memcpy HtoD (Pinned -> Device)", "HtoD", "Pinned", "Device", 100_000, 1_000, args={"memory bandwidth (GB/s)": 101.0}),
    Copy("Memcpy DtoD (Device -> Device)", "DtoD", "Device", "Device", 5, args={"kind": "HtoD"}),
    Copy("__amd_rocclr_copyBuffer", "copy kernel", "", "", None, call="hipMemcpyAsync", category="kernel"),
)  # fmt: skip
"""Bandwidths: 100,000 B in 1,000 ns are 100 GB/s, so 50 contradicts them and 101 does not."""


def recording() -> TraceBuilder:
    """The copies in order, the even ones in step 1 inside `aten::copy_` of the module Net_0 called from train.py, line 42."""
    t = TraceBuilder(devices=2)
    last = FIRST + APART * len(COPIES)
    t.step(1, 0, 100_000)
    t.step(2, 100_000, 100_000)
    t.annotation("load", FIRST - 500, last)
    t.frame("train.py(42): step", 500, 99_000)
    for i, copy in enumerate(COPIES):
        at = FIRST + APART * i
        correlation = 1_000 + i
        if copy.call:
            if i % 2 == 0:
                t.module("Net_0", at - 300, 1_500, module_id=0)
                t.frame("<built-in method to of Tensor>", at - 250, 1_400)
                t.op("aten::copy_", at - 200, 1_300)
            category = "cuda_driver" if copy.call.startswith("cuM") else "cuda_runtime"
            t.call(copy.call, at, 1_000 if copy.call == "hipMemcpyWithStream" else 100, correlation=correlation, category=category)
        args: dict[str, Json] = {"device": 0, "context": 1, "stream": 7, "correlation": correlation, "bytes": copy.size, **copy.args}
        t.add({
            "ph": "X", "cat": copy.category, "name": copy.name, "pid": 0, "tid": copy.tid, "ts": t.ts(at + 50), "dur": copy.duration / 1000,
            "args": {k: v for k, v in args.items() if v is not None},
        })  # fmt: skip
    t.kernel("gemm", FIRST, 400, correlation=None)  # over the first copy, which runs [5050, 6050): hides 350 ns of it
    return t
