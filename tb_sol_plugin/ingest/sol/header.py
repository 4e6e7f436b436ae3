"""The header of a SOL capture into Facts: device, limits in use, versions, ranks, what was recorded. Free texts are redacted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from tb_sol_plugin import format as F
from tb_sol_plugin import redact
from tb_sol_plugin.devices.spec import MATRIX_COLUMNS, VECTOR_COLUMNS, DeviceProps, DeviceSpec
from tb_sol_plugin.errors import BadInput

FLAGS: Final[dict[str, bool | None]] = {
    "record_shapes": True, "with_stack": False, "profile_memory": False, "with_flops": False, "with_modules": True,
}  # fmt: skip
_PLAIN: Final = ("mode", "every_n_steps", "time_source", "convention")
_MODEL: Final = ("class", "parameters", "trainable", "parameter_bytes", "modules", "compiled")
_DTYPES: Final = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp4_e2m1": "fp4"}
_PLANNED: Final = 80
"""Characters of a size of the plan, and of where it is from."""
_HIGHEST: Final = 1e21
"""FLOP/s, bytes/s or bytes that no device has."""



def check_version(header: Mapping[str, object], file: str) -> tuple[int, int]:
    """(major, minor). BadInput for another major version, with what to do."""
    given = header.get("version")
    parts = given if isinstance(given, list) else [given]
    major, minor = (_whole(parts[i] if i < len(parts) else 0) for i in (0, 1))
    if major is None:
        raise BadInput("the header states no version", hint="write the file anew with tb_sol_plugin.capture", file=file)
    if major not in F.READABLE:
        newer = major > F.VERSION[0]
        known = " and ".join(f"{one}.x" for one in F.READABLE)
        hint = "update tb-sol-plugin" if newer else "open it with the version of tb-sol-plugin that wrote it"
        raise BadInput(f"a SOL capture of format {major}.{minor or 0}; this version reads {known}", hint=hint, file=file)
    return major, minor or 0


def wall_ns(header: Mapping[str, object]) -> int | None:
    """Time since 1970 of the recorder's zero; None where it does not say."""
    value = _whole(header.get("wall_ns"))
    return value if value is not None and 0 < value < 2**62 else None


def thread(header: Mapping[str, object]) -> str:
    """The recording process."""
    value = _whole(header.get("pid"))
    return str(value) if value is not None and value >= 0 else "0"


def rank(header: Mapping[str, object]) -> tuple[int | None, int | None]:
    """(rank, world size)."""
    own, world = _whole(header.get("rank")), _whole(header.get("world_size"))
    return (own if own is not None and 0 <= own < 2**31 else None), (world if world is not None and 0 < world < 2**31 else None)


def host(header: Mapping[str, object]) -> str:
    """The machine."""
    return redact.text(_text(header.get("host")))[:80]


def versions(header: Mapping[str, object]) -> dict[str, str]:
    """Versions by the names a profiler trace gives them."""
    names = {"torch": "torch_version", "cuda": "cuda_runtime_version", "hip": "hip_runtime_version", "library": "tb_sol_plugin"}
    return {name: redact.text(_text(header[key]))[:80] for key, name in names.items() if _text(header.get(key))}


def vendor(header: Mapping[str, object]) -> str:
    """nvidia, amd, xpu or other; "" of a CPU."""
    kind = _text(_part(header, "device").get("type"))
    if kind in ("", "cpu"):
        return ""
    if kind == "cuda":
        return "amd" if _text(header.get("hip")) else "nvidia"
    return "xpu" if kind == "xpu" else "other"


def devices(header: Mapping[str, object]) -> tuple[DeviceProps, ...]:
    """The device that did the work; nothing for a CPU."""
    device = _part(header, "device")
    if not vendor(header):
        return ()
    memory, units = _whole(device.get("memory_bytes")) or 0, _whole(device.get("units")) or 0
    return (
        DeviceProps(
            id=0,
            name=redact.text(_text(device.get("name")))[:200],
            memory_bytes=memory if 0 <= memory < 2**62 else 0,
            units=units if 0 <= units < 2**31 else 0,
        ),
    )


def limits(header: Mapping[str, object]) -> DeviceSpec | None:
    """The limits in use while recording; None where the header has none that can be used."""
    device = _part(header, "device")
    given = _part(device, "limits")
    matrix, vector, achievable = (
        _rates(given, key, allowed)
        for key, allowed in (
            ("peak_flops", MATRIX_COLUMNS), ("peak_flops_vector", VECTOR_COLUMNS), ("peak_flops_achievable", MATRIX_COLUMNS),
        )
    )  # fmt: skip
    bandwidth = _figure(given, "memory_bandwidth_bytes_per_sec")
    if not matrix and not vector and bandwidth is None:
        return None
    sparse = _rates(given, "peak_flops_sparse", MATRIX_COLUMNS) if given.get("assume_sparsity") is True else {}
    origins = device.get("provenance")
    key = _text(device.get("key")) or "capture"
    memory, units, l2 = (_figure(given, name) for name in ("memory_bytes", "num_units", "l2_bytes"))
    return DeviceSpec(
        key=redact.text(key)[:80],
        name=redact.text(_text(device.get("name")) or key)[:200],
        vendor=vendor(header) or "cpu",
        matrix=matrix | sparse,
        vector=vector,
        achievable_rates=achievable,
        memory_bandwidth=bandwidth,
        memory_bytes=None if memory is None else int(memory),
        units=None if units is None else int(units),
        l2_bytes=None if l2 is None else int(l2),
        link_bytes_per_s=_figure(given, "link_bytes_per_sec"),
        pcie_bytes_per_s=_figure(given, "pcie_bytes_per_sec"),
        sparse=bool(sparse),
        provenance={str(k)[:80]: redact.text(_text(v))[:80] for k, v in origins.items()} if isinstance(origins, dict) else {},
        method="capture",
        source="capture",
        notes="the limits in use while recording",
    )


def metadata(header: Mapping[str, object]) -> dict[str, str]:
    """Settings of the recorder, sizes of the model and its layout, groups of ranks; nothing else of the header leaves the reader."""
    found: dict[str, object] = {name: header.get(name) for name in _PLAIN}
    found |= {f"model.{name}": _part(header, "model").get(name) for name in _MODEL}
    precision = _part(header, "precision")
    found |= {"precision.matmul": precision.get("matmul"), "precision.cudnn_tf32": precision.get("cudnn_tf32")}
    device = _part(header, "device")
    found |= {"device.type": device.get("type"), "device.key": device.get("key"), "device.name": device.get("name")}
    for name in ("tp", "pp", "dp", "ep", "cp"):
        place = _part(header, "groups").get(name)
        if isinstance(place, list) and len(place) == 2 and all(_whole(v) is not None for v in place):
            found[f"groups.{name}"] = f"{_whole(place[0])} of {_whole(place[1])}"
    out = {}
    for name, value in found.items():
        shown = str(value).lower() if isinstance(value, bool) else _text(value)
        if shown:
            out[name] = redact.text(shown)[: redact.LONGEST]
    return out | _plan(_part(header, "plan"))


def _plan(given: Mapping[str, object]) -> dict[str, str]:
    """`plan.hidden` and so on, and `plan.hidden.from`, where it stands: names that the format knows, with values that can be."""
    out = {}
    for name in F.PLAN:
        pair = given.get(name)
        value, where = pair if isinstance(pair, list) and len(pair) == 2 else (None, "")
        shown = str(value).lower() if isinstance(value, bool) else _text(value) if isinstance(value, str) else ""
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62:
            shown = str(value)
        if shown:
            out[f"plan.{name}"] = redact.text(shown)[:_PLANNED]
            out[f"plan.{name}.from"] = redact.text(_text(where))[:_PLANNED]
    return out


def counted_copies(header: Mapping[str, object], iterations: int) -> dict[str, str]:
    """{"copies": …}: `counted in 3` iterations, `off`, `older` (a recorder that knows no copies), `none yet`; {} without a header."""
    if iterations or not header:
        return {"copies": f"counted in {iterations}"} if iterations else {}
    told = header.get("copies")
    return {"copies": "older" if not isinstance(told, bool) else "none yet" if told and header.get("mode") == "dispatch" else "off"}


def _rates(given: Mapping[str, object], key: str, allowed: Mapping[str, str]) -> dict[str, float]:
    found = _part(given, key)
    out: dict[str, float] = {}
    for dtype in found:
        name = _DTYPES.get(str(dtype).lower(), str(dtype).lower())
        value = _figure(found, dtype)
        if name in allowed and value is not None:
            out.setdefault(name, value)
    return out


def _figure(given: Mapping[str, object], name: str) -> float | None:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < _HIGHEST and math.isfinite(value) else None


def _part(given: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = given.get(name)
    return found if isinstance(found, dict) else {}


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return int(value)


def _text(value: object) -> str:
    return str(value)[:400] if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
