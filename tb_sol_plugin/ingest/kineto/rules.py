"""Lists the spellings of categories, communication kernels and copies. Spellings name the producers that use them.

Matching is case-insensitive and by suffix where vendors add their own prefix (`xpu_runtime`, `privateuse1_driver`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tb_sol_plugin.tables.arrays import hinted

# buckets an event can fall into ------------------------------------------------------------------------------
HOST_OPERATOR: Final = 0
HOST_ANNOTATION: Final = 1
HOST_CALL: Final = 2
HOST_FRAME: Final = 3
HOST_OTHER: Final = 4
DEVICE: Final = 5
SYNC: Final = 6
DEVICE_ANNOTATION: Final = 7
FLOW: Final = 8
MEMORY_OR_INSTANT: Final = 9
META: Final = 10
BEGIN_END: Final = 11
COUNT_ONLY: Final = 12
UNKNOWN_PHASE: Final = 13

_COMPLETE: Final = {
    "operator": HOST_OPERATOR,  # torch <= 1.11, user ranges among them
    "cpu_op": HOST_OPERATOR,
    "user_annotation": HOST_ANNOTATION,
    "python_function": HOST_FRAME,
    "kernel": DEVICE,
    "memcpy": DEVICE,
    "memset": DEVICE,
    "gpu_memcpy": DEVICE,
    "gpu_memset": DEVICE,
    "hpu_op": DEVICE,
    "mtia_ccp_events": DEVICE,
    "gpu_user_annotation": DEVICE_ANNOTATION,
    "cuda_sync": SYNC,
    "cuda_event": SYNC,
    "xpu_sync": SYNC,
    "trace": COUNT_ONLY,  # the recorder's own span over everything
    "critical_path": COUNT_ONLY,  # a row of our own export, whose events stand in the file a second time
    "runtime": HOST_CALL,
}
LEGACY_OPERATOR: Final = "operator"
LEGACY_ANNOTATION: Final = re.compile(
    r"ProfilerStep#|enumerate\(Data(Loader|Pipe)\)|Optimizer\.|DistributedDataParallel\.forward|DataParallel\.forward"
)
STEP: Final = re.compile(r"ProfilerStep#(\d+)$")


def bucket(phase: str, category: str | None) -> int:
    """Returns where an event goes, by its `ph` and `cat` (None: no category)."""
    if phase == "X":
        name = (category or "").lower()
        if name in _COMPLETE:
            return _COMPLETE[name]
        return HOST_CALL if name.endswith(("_runtime", "_driver")) else HOST_OTHER
    if phase in ("s", "t", "f"):
        return FLOW
    if phase in ("i", "I", "C"):
        return MEMORY_OR_INSTANT
    if phase == "M":
        return META
    return BEGIN_END if phase in ("B", "E") else UNKNOWN_PHASE


# arguments of events ------------------------------------------------------------------------------------------
NUMBERS: Final = (
    "External id", "external id", "correlation", "cbid", "Sequence number", "Fwd thread id", "stream", "device", "inDevice", "context",
    "inContext", "registers per thread", "shared memory", "blocks per SM", "warps per SM", "est. achieved occupancy %", "bytes", "size",
    "memory bandwidth (GB/s)", "graph node id", "Device Type", "Device Id", "Addr", "Bytes", "Total Allocated", "Total Reserved",
    "Python id", "Python parent id", "Python module id", "wait_on_cuda_event_record_corr_id", "wait_on_stream", "fromDevice",
    "toDevice", "In msg nelems", "Out msg nelems", "Group size", "Seq", "Src Rank", "Dst Rank",
    "Global rank start", "Global rank stride",
)  # fmt: skip
"""Arguments that are read as numbers."""
EXTRA: Final = (
    "Call stack", "Module Hierarchy", "kernel_backend", "kernel_name", "kernel_file", "kernel_hash", "kernel_kwargs", "num_warps",
    "num_stages", "Rank",
)  # fmt: skip
"""Rarely recorded arguments that are kept together, as they are. Rank: of `record_param_comms`, the root where the collective has one."""
TEXTS: Final = (
    *EXTRA, "Input Dims", "Input dims", "Input type", "Input Strides", "Concrete Inputs", "kind", "direction", "grid", "block",
    "Collective name", "dtype", "Process Group Name", "Process Group Description", "Process Group Ranks", "In split size",
    "Out split size", "Comms Id", "labels", "name", "kernel",
)  # fmt: skip
"""Arguments whose raw values are told apart. What is neither here nor in `NUMBERS` is passed over."""

# flows -------------------------------------------------------------------------------------------------------
LAUNCH_FLOWS: Final = ("ac2g", "async", "async_gpu", "async_cpu_to_gpu")
AUTOGRAD_FLOWS: Final = ("fwdbwd", "forward_backward")

# communication -----------------------------------------------------------------------------------------------
NARROW: Final = re.compile(r"nccl|rccl|cross_device_reduce", re.IGNORECASE)
WIDE: Final = re.compile(
    r"nccl|rccl|cross_device_reduce|multimem_|nvshmem|deep_?ep\b|deep_ep|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|one_?shot_all|two_?shot_all",
    re.IGNORECASE,
)
_WIDE_HINTS: Final = ("ccl", "reduce", "mem_", "hmem", "deep", "gather", "toall", "to_all", "hot")
"""What `WIDE` matches holds one of these in lower case; looking for them is a hundred times faster."""
COMMUNICATION_RANGE: Final = re.compile(r"(nccl|gloo|hccl|ucc|mpi|xccl|oneccl):|record_param_comms$")
"""A host range whose device work is communication whatever its kernels are called."""

# copies ------------------------------------------------------------------------------------------------------
COPY_KERNEL: Final = re.compile(r"__amd_rocclr_(?:(?!__amd_rocclr_).)*copy", re.IGNORECASE)
_INNER: Final = re.compile(r"\(([^()]*)\)")
_SHORT: Final = re.compile(r"(?:(?<![A-Za-z0-9])|(?<=[a-z]))([HDAMPS])(?:to|2)([HDAMPS])(?![A-Za-z0-9])")
"""HtoD, DtoA, PtoP (CUPTI, HIP); H2D, M2D, S2H, "D2D - P2P" (Level Zero: M is memory of the host that no driver allocated, S is shared)."""
_SHORT_WORD: Final = re.compile(r"(?<![a-z0-9])([hdamps])(?:to|2)([hdamps])(?![a-z0-9])")
_LONG: Final = re.compile(r"(host|device|array|peer)[\s_]*to[\s_]*(host|device|array|peer)", re.IGNORECASE)
"""CopyHostToDevice2D (roctracer), DEVICE_TO_HOST (MTIA), MEMORY_COPY_HOST_TO_DEVICE (rocprofiler-sdk), PeerToPeer."""
_SET: Final = re.compile(r"mem(?:ory)?[\s_]*(?:set|fill)|fill[\s_]*buffer|usm[\s_]*fill", re.IGNORECASE)
"""Memset (CUPTI), FillBuffer (roctracer), zeCommandListAppendMemoryFill, urEnqueueUSMFill."""
_WORDS: Final = re.compile(r"[A-Za-z ]+")
_END: Final = {"H": "H", "M": "H", "D": "D", "A": "D", "P": "P"}
"""Array ends (CUPTI kinds 3 to 7) fold into the device. Shared memory lies on either side: its copies have no known direction."""


_COPY_HINTS: Final = ("__amd_rocclr_",)


def communicating(kernels: Sequence[str]) -> list[int]:
    """Returns the places of the names of kernels that are ones of communication, as `WIDE` says."""
    return [i for i in hinted(kernels, _WIDE_HINTS) if WIDE.search(kernels[i]) is not None]


def copying(kernels: Sequence[str]) -> list[int]:
    """Returns the places of the names of kernels that copy, as `COPY_KERNEL` says."""
    return [i for i in hinted(kernels, _COPY_HINTS) if COPY_KERNEL.search(kernels[i]) is not None]


def copy_of(name: str, is_set: bool, kind: str = "") -> tuple[str, str, str]:
    """Returns (direction, source kind, destination kind) of a copy or set, from its name, else from the recorder's `kind`.

    Where neither names a direction it is "Unknown", whatever its ends: they are kept as recorded.
    """
    inner = [text.strip() for text in _INNER.findall(name)]
    if is_set or (_SET.search(name) and not direction_of(name)):
        return "Memset", "", next(filter(_WORDS.fullmatch, inner), "")
    source, target = next((tuple(side.strip() for side in text.split("->", 1)) for text in inner if "->" in text), ("", ""))
    return direction_of(name) or direction_of(kind) or "Unknown", source, target


def direction_of(text: str) -> str:
    """Returns the direction that a text spells, "Unknown" where it spells one that is not known, "" for none."""
    short = [*_SHORT.findall(text), *(tuple(side.upper() for side in pair) for pair in _SHORT_WORD.findall(text))]
    pairs = [(_END.get(a, ""), _END.get(b, "")) for a, b in short]
    pairs += [(_END[a[0].upper()], _END[b[0].upper()]) for a, b in _LONG.findall(text)]
    if ("P", "P") in pairs:
        return "PtoP"
    return (_pair(*pairs[0]) or "Unknown") if pairs else ""


def _pair(a: str, b: str) -> str:
    return f"{a}to{b}" if a and b and (a == "P") == (b == "P") else ""
