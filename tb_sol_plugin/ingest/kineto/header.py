"""Reads the header of a trace (the object around the events) into facts: devices, flags, versions, ranks; secrets stay out."""

from __future__ import annotations

import re
from typing import Final

from tb_sol_plugin import redact
from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.tables.members import text_of

FLAGS: Final = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
VERSIONS: Final = (
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "roctracer_version",
    "rocprofiler_version",
    "hip_runtime_version",
    "hip_driver_version",
    "schemaVersion",
    "torch_version",
    "pytorch_version",
)
TRACE_KEYS: Final = frozenset(
    {*FLAGS, *VERSIONS, "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "traceName", "displayTimeUnit", "trace_id"}
)
"""A header with any of these is a profiler's, even with no event in it."""


def devices(header: dict[str, object]) -> tuple[DeviceProps, ...]:
    """Returns `deviceProperties`, keyed by their `id`; entries that are not objects are left out."""
    found = header.get("deviceProperties")
    out = []
    for place, item in enumerate(found if isinstance(found, list) else []):
        if not isinstance(item, dict):
            continue
        major, minor = item.get("computeMajor"), item.get("computeMinor")
        out.append(
            DeviceProps(
                id=_int(item.get("id"), place),
                name=redact.text(str(item.get("name") or ""))[:200],
                memory_bytes=_int(item.get("totalGlobalMem")),
                compute_capability=f"{_int(major)}.{_int(minor)}" if major is not None and minor is not None else "",
                units=_int(item.get("numSms")),
                warp_size=_int(item.get("warpSize")),
                max_threads_per_unit=_int(item.get("maxThreadsPerMultiprocessor")),
                registers_per_block=_int(item.get("regsPerBlock")),
                shared_memory_per_block=_int(item.get("sharedMemPerBlock")),
            )
        )
    return tuple(out)


def flags(header: dict[str, object]) -> dict[str, bool | None]:
    """Returns what the recording was asked for; None where the header does not say."""
    return {name: None if header.get(name) is None else bool(_int(header.get(name))) for name in FLAGS}


def versions(header: dict[str, object]) -> dict[str, str]:
    """Returns versions as text: 12040 of CUDA reads 12.4."""
    out: dict[str, str] = {}
    for name in VERSIONS:
        value = header.get(name)
        if isinstance(value, int) and name in ("cuda_runtime_version", "cuda_driver_version") and value >= 1000:
            out[name] = f"{value // 1000}.{value % 1000 // 10}"
        elif isinstance(value, int | float | str) and value != "":
            out[str(name)] = redact.text(str(value))[:80]
    return out


def distributed(header: dict[str, object]) -> tuple[int | None, int | None, str]:
    """Returns (rank, world size, backend) of `distributedInfo`; None and "" where it does not say."""
    found = header.get("distributedInfo")
    info = found if isinstance(found, dict) else {}
    rank, world = (-1 if isinstance(info.get(k), bool) else _int(info.get(k), -1) for k in ("rank", "world_size"))
    backend = info.get("backend")
    shown = redact.text(backend)[:80] if isinstance(backend, str) else ""
    return (rank if 0 <= rank < 2**31 else None), (world if 0 < world < 2**31 else None), shown


MOST_GROUPS: Final = 10_000
"""Process groups of a header that are read."""
MOST_RUNS: Final = 4_096
"""Evenly spaced stretches of ranks that a group of a header is kept as; one of more is kept without its ranks."""


def process_groups(header: dict[str, object]) -> dict[str, list[object]]:
    """Returns columns of the table `process_groups` from `pg_config` of `distributedInfo`; entries that are not objects are left out."""
    info = header.get("distributedInfo")
    found = info.get("pg_config") if isinstance(info, dict) else None
    groups = [item for item in found[:MOST_GROUPS] if isinstance(item, dict)] if isinstance(found, list) else []
    return {
        "name": [redact.text(str(g.get("pg_name", "")))[:200] for g in groups],
        "description": [redact.text(str(g.get("pg_desc", "")))[:200] for g in groups],
        "ranks": [_runs(g.get("ranks")) for g in groups],
        "size": [_int(g.get("pg_size"), -1) for g in groups],
    }


def _runs(ranks: object) -> str:
    """Returns ranks as `tables.members` writes them; "" where they are no list of ranks, or too irregular to keep."""
    if not isinstance(ranks, list) or not all(isinstance(r, int) and 0 <= r < 2**31 for r in ranks):
        return ""
    text = text_of(ranks)
    return text if text.count(",") < MOST_RUNS else ""


def logged(header: dict[str, object], name: str) -> tuple[str, ...]:
    """Returns the recorder's own ERROR or WARNING lines, without secrets, at most 20."""
    found = header.get(name)
    lines = found if isinstance(found, list) else [found] if isinstance(found, str) else []
    return tuple(redact.text(str(line))[:400] for line in lines[:20])


TOLD = ("atomic_bsz", "num_nodes", "num_replicas")
"""Numbers that a program adds to its trace with `prof.add_metadata_json`, as `metrics/scaling` reads them."""
READ: Final = TRACE_KEYS | {*TOLD, "metadata", "host_name", "ERROR", "WARNING"}
"""Fields that are read; of all others only the name is known."""


def metadata(header: dict[str, object]) -> dict[str, str]:
    """Returns the allowlisted, redacted part of the free-form metadata."""
    found = header.get("metadata")
    out = redact.allowlisted(found) if isinstance(found, dict) else {}
    return out | {name: str(n) for name in TOLD if (n := _int(header.get(name))) > 0}


def base_time(header: dict[str, object]) -> int | None:
    """Returns `baseTimeNanoseconds`, which is added to every time; None where the header has none."""
    value = header.get("baseTimeNanoseconds")
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and 0 < value < 2**62 else None


def vendor(header: dict[str, object], device_categories: set[str], call_names: set[str], names: tuple[str, ...]) -> str:
    """Returns nvidia, amd, mtia, xpu, hpu or other; "" without device events. Versions first, then what the events are called."""
    if not device_categories:
        return ""
    lower = {c.lower() for c in device_categories}
    if any(c.startswith("mtia") for c in lower):
        return "mtia"
    if "hpu_op" in lower:
        return "hpu"
    if any(header.get(k) for k in ("hip_runtime_version", "hip_driver_version", "roctracer_version")):
        return "amd"
    if any(c.startswith("hip") for c in call_names) or any("AMD" in n or "Instinct" in n for n in names):
        return "amd"
    if any(header.get(k) for k in ("cupti_version", "cuda_runtime_version", "cuda_driver_version")):
        return "nvidia"
    if any(re.match("cuda|cu[A-Z]", c) for c in call_names) or any(re.search("NVIDIA|Tesla|GeForce", n) for n in names):
        return "nvidia"
    return "xpu" if any(c.startswith(("ze", "ur")) for c in call_names) else "other"


def _int(value: object, default: int = 0) -> int:
    """Returns a number or a text of one as int; `default` for anything else and for what fits no int64."""
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            return default
    return int(value) if isinstance(value, int | float) and abs(value) < 2**62 else default
