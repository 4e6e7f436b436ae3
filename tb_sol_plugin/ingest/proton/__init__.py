"""Reads profiles of Proton, Triton's profiler: the tree of scopes and kernels that it writes as Hatchet JSON or MessagePack.

A profile holds sums, not events: each kernel of each scope with its time, its launches and the work that a launch hook stated.
Scopes become labels, kernels rows of the ledger, frames that copy memory rows of the table `copies`.

Devices are described by type and index, never by name: architecture, units, clocks in kHz and bus width.

    {"CUDA": {"0": {"arch": "90", "num_sms": 132, "clock_rate": 1980000, "memory_clock_rate": 2619000, "bus_width": 5120}}}

The memory moves `2 x bus_width x memory_clock_rate / 8` bytes per second, as Proton's own viewer has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from tb_sol_plugin.devices.catalog import table
from tb_sol_plugin.devices.match import match
from tb_sol_plugin.devices.spec import DeviceProps, DeviceSpec
from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.proton import decode
from tb_sol_plugin.ingest.proton.decode import whole
from tb_sol_plugin.ingest.proton.tables import OPEN, build, frames_of
from tb_sol_plugin.ingest.source import Progress, Report, Source
from tb_sol_plugin.model.capture import Capture, Facts

# -- devices of a profile --------------------------------------------------------------------------------------------


VENDORS: Final = {"CUDA": "nvidia", "HIP": "amd", "XPU": "xpu", "MTIA": "mtia"}
NEAR: Final = 0.06
"""A row of the table whose bandwidth is within 6 % of the recorded clocks and width is the same memory."""
_CAPABILITY: Final = {"gfx90a": "9.0", "gfx940": "9.4", "gfx941": "9.4", "gfx942": "9.4", "gfx950": "9.5"}
MOST: Final = 1024
"""Devices that are looked at."""


@dataclass(frozen=True)
class Device:
    """One device. type: as written (CUDA, HIP). Unknown figures are 0, texts empty. bandwidth: bytes/s."""

    type: str
    index: int
    arch: str = ""
    units: int = 0
    clock_khz: int = 0
    bandwidth: float = 0.0

    @property
    def vendor(self) -> str:
        return VENDORS.get(self.type.upper(), "other")

    @property
    def capability(self) -> str:
        """Compute capability as `deviceProperties` of a trace has it; "" unknown."""
        if self.vendor == "amd":
            return _CAPABILITY.get(self.arch.partition(":")[0], "")
        return f"{self.arch[:-1]}.{self.arch[-1]}" if self.arch.isdigit() and 2 <= len(self.arch) <= 3 else ""


def devices_of(info: object, health: Health) -> tuple[Device, ...]:
    """Returns the devices in the second part of a profile, in order of type and index; what does not fit is counted."""
    out: list[Device] = []
    for kind, entries in info.items() if isinstance(info, dict) else ():
        for index, entry in entries.items() if isinstance(entries, dict) else ():
            number = whole(index)
            if number is None or not isinstance(entry, dict) or not 0 <= number < 2**31 or len(out) >= MOST:
                health.add("device information that does not fit", 1, str(index)[:80])
                continue
            arch = entry.get("arch")
            out.append(
                Device(
                    str(kind)[:40],
                    number,
                    str(arch)[:40] if isinstance(arch, str | int) and not isinstance(arch, bool) else "",
                    _figure(entry, "num_sms", 2**20),
                    _figure(entry, "clock_rate", 10**8),
                    _bandwidth(entry),
                )
            )
    return tuple(sorted(out, key=lambda d: (d.type, d.index)))


def _bandwidth(entry: Mapping[object, object]) -> float:
    width, clock = _figure(entry, "bus_width", 2**20), _figure(entry, "memory_clock_rate", 10**8)
    return 2.0 * width * clock * 1e3 / 8


def _figure(entry: Mapping[object, object], name: str, most: int) -> int:
    value = whole(entry.get(name))
    return value if value is not None and 0 < value <= most else 0


def row_of(device: Device) -> DeviceSpec | None:
    """Returns the one row of the table with its architecture and units, told apart by bandwidth; None where none or several fit."""
    rows = [
        spec
        for spec in table().values()
        if spec.vendor == device.vendor and device.units and spec.units == device.units and _same_architecture(spec, device)
    ]
    near = [r for r in rows if r.memory_bandwidth and device.bandwidth and abs(device.bandwidth / r.memory_bandwidth - 1) <= NEAR]
    rows = near if device.bandwidth else rows
    if len({(tuple(sorted(r.matrix.items())), r.memory_bandwidth) for r in rows}) == 1:
        return rows[0]
    return min(rows, key=lambda r: abs(device.bandwidth / (r.memory_bandwidth or 1.0) - 1), default=None) if _apart(rows, device) else None


def _apart(rows: list[DeviceSpec], device: Device) -> bool:
    """Whether one row is clearly the nearest: half as far off as the next."""
    off = sorted(abs(device.bandwidth / (r.memory_bandwidth or 1.0) - 1) for r in rows)
    return len(off) > 1 and 2 * off[0] < off[1]


def _same_architecture(spec: DeviceSpec, device: Device) -> bool:
    return spec.compute_capability == (device.arch.partition(":")[0] if device.vendor == "amd" else device.capability)


def properties(device: Device) -> DeviceProps:
    """Returns the devices as a trace lists them, under the name of its row of the table where that is clear."""
    row = row_of(device)
    name = "" if row is None else row.device_names[0] if row.device_names else row.name
    return DeviceProps(id=device.index, name=name, compute_capability=device.capability, units=device.units)


def limits_of(device: Device) -> DeviceSpec | None:
    """Returns limits of a device that is no row of the table: rates of its generation at its own clock, bandwidth of its own memory."""
    if row_of(device) is not None:
        return None
    found = match(DeviceProps(id=device.index, compute_capability=device.capability, units=device.units), vendor=device.vendor)
    if found is None:
        return None
    clock = device.clock_khz / 1e3
    factor = clock / found.boost_tensor_mhz if clock and found.boost_tensor_mhz else 1.0
    where = f"{device.units} units at {clock:,.0f} MHz" if clock else f"{device.units} units"
    return msgspec.structs.replace(
        found,
        matrix={d: p * factor for d, p in found.matrix.items()},
        vector={d: p * factor for d, p in found.vector.items()},
        boost_tensor_mhz=clock or found.boost_tensor_mhz,
        boost_vector_mhz=clock or found.boost_vector_mhz,
        memory_bandwidth=device.bandwidth or None,
        provenance={**found.provenance, "mem_bw_gb_per_s": "derived"},
        notes=f"it is not in the table, its peaks follow from {where}, its bandwidth from clock and width of its memory",
    )


def named(devices: tuple[Device, ...]) -> str:
    """Returns how the name of the devices was found, as a sentence for the warnings; "" where none was."""
    identified: dict[str, None] = {}
    for device in devices:
        row = row_of(device)
        if row is not None:
            arch = f"compute capability {device.capability}" if device.vendor == "nvidia" else device.arch
            memory = f" and {device.bandwidth / 1e12:.2f} TB/s" if device.bandwidth else ""
            identified[f"{row.name} by {arch}, {device.units} units{memory}"] = None
    return "the profile does not name its device: taken as " + "; ".join(identified) if identified else ""


SOURCE: Final = "proton"
SHARE: Final = 64
"""One part in so many of the limit of text: a profile is sums, and larger ones hold something else."""
LESS: Final = "profile a shorter part, or use proton.start(context='shadow')"
_FLAGS: Final[dict[str, bool | None]] = dict.fromkeys(("record_shapes", "with_stack", "profile_memory", "with_modules"), False)


def read(path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None) -> Capture:
    """Read one profile (local path or fsspec URL). BadInput or NotATrace where it holds none."""
    with Source(path, fs_options, share=SHARE, hint=LESS) as source:
        data = _all_of(source, progress)
        name, size, broken = source.name, source.size, source.truncated
    if not data.strip():
        raise BadInput("the file is empty: its profiler has written nothing yet", hint="end the profile with proton.finalize()", file=name)
    health = Health()
    if broken:
        health.add("truncated file", 1, broken)
    text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in b"[{":
        return _capture(decode.decode_json(text.decode("utf-8", "replace"), name), health, name, size)
    if data[0] < 0x80:
        raise NotATrace("this is no profile: neither JSON nor MessagePack", hint=OPEN, file=name)
    return _capture(decode.decode(data, name), health, name, size)


def _all_of(source: Source, progress: Report | None) -> bytes:
    blocks = []
    for block in source.blocks():
        blocks.append(block)
        if progress is not None:
            progress(Progress(source.position, source.size, 0, "reading"))
    return b"".join(blocks)


def _capture(value: object, health: Health, name: str, size: int) -> Capture:
    frames, info = frames_of(value, health, name)
    if frames.cycles and not any(t is not None and t > 0 for t in frames.time):
        raise BadInput(
            "this profile counts cycles inside of kernels, without times",
            hint="profile with proton.start(backend='cupti') to see times of kernels; proton-viewer shows cycles",
            file=name,
        )
    devices = devices_of(info, health)
    tables = build(frames, {(d.type, d.index): d.arch for d in devices}, health)
    for key, count in sorted(frames.other.items()):
        health.add(f"unknown metric: {key}", count, effect="not shown")
    tables["issues"] = health.table()
    used = {d for d, t in zip(frames.device, frames.time, strict=True) if t}
    chosen = [d for d in devices if d.index in used] or list(devices)
    identified = named(tuple(chosen))
    types = {t for t in frames.device_type if t} | {d.type for d in devices}
    vendors = {vendor for vendor in (_vendor(t) for t in types) if vendor}
    return Capture(
        Facts(
            source=SOURCE,
            file=name,
            size=size,
            total_events=len(frames),
            vendor=vendors.pop() if len(vendors) == 1 else "other" if vendors else "",
            devices=tuple(properties(d) for d in devices),
            flags=dict(_FLAGS),
            metadata={"frames": str(len(frames)), "depth": str(frames.deepest)},
            warnings=(identified,) if identified else (),
            pseudo_step=True,
            limits=next((found for found in map(limits_of, chosen) if found is not None), None),
        ),
        tables,
    )


def _vendor(kind: str) -> str:

    return VENDORS.get(kind.upper(), "other")
