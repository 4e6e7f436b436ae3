"""Rules that are data: categories, communication kernels, copies. Spellings name the producers that use them.

Matching is case-insensitive and by suffix where vendors add their own prefix (`xpu_runtime`, `privateuse1_driver`).
"""

from __future__ import annotations

import re
from typing import Final

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
    "runtime": HOST_CALL,
}
LEGACY_OPERATOR: Final = "operator"
LEGACY_ANNOTATION: Final = re.compile(
    r"ProfilerStep#|enumerate\(Data(Loader|Pipe)\)|Optimizer\.|DistributedDataParallel\.forward|DataParallel\.forward"
)
STEP: Final = re.compile(r"ProfilerStep#(\d+)$")


def bucket(phase: str, category: str | None) -> int:
    """Where an event goes, by its `ph` and `cat` (None: no category)."""
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


# flows -------------------------------------------------------------------------------------------------------
LAUNCH_FLOWS: Final = ("ac2g", "async", "async_gpu", "async_cpu_to_gpu")
AUTOGRAD_FLOWS: Final = ("fwdbwd", "forward_backward")

# communication -----------------------------------------------------------------------------------------------
NARROW: Final = re.compile(r"nccl|rccl|cross_device_reduce", re.IGNORECASE)
WIDE: Final = re.compile(
    r"nccl|rccl|cross_device_reduce|multimem_|nvshmem|deep_?ep\b|deep_ep|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|one_?shot_all|two_?shot_all",
    re.IGNORECASE,
)
COMMUNICATION_RANGE: Final = re.compile(r"(nccl|gloo|hccl|ucc|mpi|xccl|oneccl):|record_param_comms$")
"""A host range whose device work is communication whatever its kernels are called."""

# copies ------------------------------------------------------------------------------------------------------
COPY_KERNEL: Final = re.compile(r"__amd_rocclr_.*copy", re.IGNORECASE)
COPY_NAME: Final = re.compile(r"(?:Memcpy|Memory copy)\s+(\w+)(?:\s*\(\s*([^()]*?)\s*->\s*([^()]*?)\s*\))?", re.IGNORECASE)
SET_NAME: Final = re.compile(r"Memset\s*(?:\(\s*([^()]*?)\s*\))?", re.IGNORECASE)
DIRECTIONS: Final = {
    "htod": "HtoD",
    "dtoh": "DtoH",
    "dtod": "DtoD",
    "htoh": "HtoH",
    "ptop": "PtoP",
    "htoa": "HtoD",
    "atoh": "DtoH",
    "atoa": "DtoD",
    "atod": "DtoD",
    "dtoa": "DtoD",
    "h2d": "HtoD",
    "d2h": "DtoH",
    "d2d": "DtoD",
    "h2h": "HtoH",
    "m2d": "HtoD",
    "d2m": "DtoH",
    "m2m": "HtoH",
    "hosttodevice": "HtoD",
    "devicetohost": "DtoH",
    "devicetodevice": "DtoD",
    "hosttohost": "HtoH",
    "peertopeer": "PtoP",
    "copyhosttodevice": "HtoD",
    "copydevicetohost": "DtoH",
    "copydevicetodevice": "DtoD",
    "fillbuffer": "Memset",
    "device_to_host": "DtoH",
    "host_to_device": "HtoD",
    "device_to_device": "DtoD",
}
"""Array kinds fold into host or device (CUPTI ids 3 to 7)."""


def copy_of(name: str, is_set: bool, kind: str = "") -> tuple[str, str, str]:
    """(direction, source kind, destination kind) of a copy or set from its name, or from the recorder's `kind`."""
    if is_set or name.lower().startswith("memset"):
        found = SET_NAME.search(name)
        return "Memset", "", (found.group(1) or "") if found else ""
    found = COPY_NAME.search(name)
    sides = (found.group(2) or "", found.group(3) or "") if found else ("", "")
    spelled = (found.group(1) if found else "", kind.strip().replace(" ", ""), name.strip().replace(" ", ""), *re.findall(r"\w+", name))
    return next((DIRECTIONS[text.lower()] for text in spelled if text.lower() in DIRECTIONS), "Unknown"), *sides
