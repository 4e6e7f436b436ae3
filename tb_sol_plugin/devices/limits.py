"""Chooses the device limits of a recording: as recorded, from a device file, or as a reader asks.

`device_for(capture, override)` is the way in. `match.py` matches names, `expression.py` parses what
readers write, `files.py` makes the book of rows that device files add.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgspec

from tb_sol_plugin.devices.catalog import by_name, known_keys, table
from tb_sol_plugin.devices.expression import FORM, apply, parse
from tb_sol_plugin.devices.match import UNKNOWN, match
from tb_sol_plugin.devices.rates import RATES, Figure, figures
from tb_sol_plugin.devices.spec import EMPTY, DeviceBook, DeviceProps, DeviceSpec
from tb_sol_plugin.errors import BadQuery

if TYPE_CHECKING:
    import pandas as pd

    from tb_sol_plugin.model.capture import Capture

__all__ = [
    "RATES", "DeviceSpec", "Figure", "caution", "choices", "cpu_limits", "device_for", "devices_in_use", "figures", "host_of",
    "known_keys", "match", "overridden", "table", "why_no_limits",
]  # fmt: skip

SOL_CAPTURE: Final = "sol_capture"
PROTON: Final = "proton"
TO_GIVE: Final = "Choose limits in the bar or with --sol_device, or give its figures in sol_devices.json beside the recordings"
_HANDLER: Final = re.compile(r"^(?P<host>.+)_\d+\.\d{10,}\.pt\.trace\.json(?:\.gz)?$")


def device_for(capture: Capture, override: str = "") -> DeviceSpec | None:
    """Returns the spec of the device that did most of the recorded work, or None (`why_no_limits` says why).

    override: `KEY`, `KEY@1410MHz`, `KEY+sparse` or both; without KEY it changes the limits as recorded. Raises BadQuery where it
    does not parse, names no device, or the device lacks what it asks for. Without it the server's default holds, for
    recordings of its kind. A recording of a CPU alone has limits where a device file holds measured ones for its machine.
    Devices of one recording that match different specs are rare (a mixed host); the busiest one is taken.
    """
    return _chosen(capture, override) if override.strip() else _default(capture)


def _default(capture: Capture) -> DeviceSpec | None:
    """Returns the limits without a reader's choice, found once under the device files in use."""
    kept = capture.memo.get("limits.default")
    if not isinstance(kept, _Found) or kept.book is not capture.devices:
        kept = capture.memo["limits.default"] = _Found(capture.devices, _found(capture))
    return kept.spec


class _Found(NamedTuple):
    """Limits, and the device files under which they were found."""

    book: DeviceBook
    spec: DeviceSpec | None


def _found(capture: Capture) -> DeviceSpec | None:
    expression = capture.devices.default
    if not expression:
        return _recorded(capture)
    wanted = parse(expression)
    on_cpu = not devices_in_use(capture) and not len(capture.device)
    if wanted.base:
        spec = overridden(wanted.base, capture.devices)
        return apply(spec, wanted) if (spec.vendor == "cpu") == on_cpu else _recorded(capture)
    found = _recorded(capture)
    return apply(found, wanted) if found is not None and not on_cpu else found


def _chosen(capture: Capture, override: str) -> DeviceSpec | None:
    wanted = parse(override)
    spec = overridden(wanted.base, capture.devices) if wanted.base else _default(capture)
    return apply(spec, wanted) if spec is not None else None


def _recorded(capture: Capture) -> DeviceSpec | None:
    """Returns the limits by what is known here of the device; of a SOL capture else the limits that were in use while recording."""
    used = devices_in_use(capture)
    if not len(capture.device) and not used:
        return _measured(capture) or capture.facts.limits
    for props in used or [DeviceProps(0)] * bool(capture.devices.layers):
        spec = match(props, vendor=capture.facts.vendor, book=capture.devices)
        if spec is not None and not (spec.key == UNKNOWN and capture.facts.source == PROTON and capture.facts.limits is not None):
            return spec
    return capture.facts.limits


def _measured(capture: Capture) -> DeviceSpec | None:
    """Returns limits of the CPU that a recording without any device was made on: its host names a row, or a file holds for all."""
    if capture.facts.devices:
        return None
    return cpu_limits(capture.devices, host_of(capture))


def cpu_limits(book: DeviceBook, host: str) -> DeviceSpec | None:
    """Returns the row of device files that holds for the CPU of a host: one that names it, or the only CPU of a file; highest file
    first.
    """
    host = host.lower()
    for layer in reversed(book.layers):
        own = layer.named.get(host, "") if host else ""
        if own and book.specs[own].vendor == "cpu":
            return msgspec.structs.replace(book.specs[own], method="measured" if _is_measured(book.specs[own]) else "file")
        if layer.every_cpu:
            return msgspec.structs.replace(book.specs[layer.every_cpu], method="file")
    return None


def _is_measured(spec: DeviceSpec) -> bool:
    return "measured" in spec.provenance.values()


def host_of(capture: Capture) -> str:
    """Returns the machine that made a recording: as its header says, else as torch's trace handler names files
    (`host_pid.time.pt.trace.json`).
    """
    if capture.facts.host_name:
        return capture.facts.host_name
    found = _HANDLER.match(capture.facts.file.replace("\\", "/").rpartition("/")[2])
    return found["host"] if found else ""


def overridden(key: str, book: DeviceBook = EMPTY) -> DeviceSpec:
    """Returns the spec that a reader chose by key, alias or device name. Raises BadQuery when neither book nor table has it."""
    wanted = key.strip().lower()
    found = book.by_name.get(wanted) or next((n for n in (layer.named.get(wanted) for layer in reversed(book.layers)) if n), "")
    known = by_name().get(wanted, "")
    if not found and known in book.specs:
        found = known
    if found:
        return msgspec.structs.replace(book.specs[found], method="override")
    if not known or not table()[known].vendor:
        raise BadQuery(
            f"no device {key.strip()[:80]!r} in the table", hint=f"known: {', '.join(choices(book))}; {FORM}", field="device_limits"
        )
    return msgspec.structs.replace(table()[known], method="override")


def choices(book: DeviceBook = EMPTY) -> tuple[str, ...]:
    """Returns keys to choose from: rows of device files first, then the table's."""
    return tuple(dict.fromkeys((*book.specs, *known_keys())))


def devices_in_use(capture: Capture) -> list[DeviceProps]:
    """Returns recorded properties of the devices with work, busiest first; all recorded ones where ids do not meet, and of a SOL
    capture.
    """
    if not len(capture.device):
        return _of_a_ledger(capture) if capture.facts.source in (SOL_CAPTURE, PROTON) else []
    key = ("devices_in_use",)
    if key not in capture.memo:
        device, time = (capture.device[name].to_numpy() for name in ("device", "duration_ns"))
        time = time.clip(0)
        capture.memo[key] = {one: int(time[device == one].sum()) for one in capture.device["device"].unique().tolist()}
    busy = cast("dict[int, float]", capture.memo[key])
    known = {props.id: props for props in capture.facts.devices}
    used = [known[i] for i in sorted(busy, key=lambda i: (-busy[i], i)) if i in known]
    return used or list(capture.facts.devices)


def _of_a_ledger(capture: Capture) -> list[DeviceProps]:
    """Returns the devices of counted work; where it is told apart by device, those with work, busiest first."""
    table = capture.tables["ledger"]
    spent = _sums(table["time_ns"].astype("float64").fillna(0.0), table["device"])
    used = sorted((d for d in capture.facts.devices if d.id in spent), key=lambda d: -spent[d.id])
    return used or list(capture.facts.devices)


def _sums(times: pd.Series, devices: pd.Series) -> dict[int, float]:
    """Adds times by device. This module loads neither numpy nor pandas: the recorder uses it too."""
    sums = times.groupby(devices.to_numpy()).sum()
    return dict(zip(sums.index.tolist(), sums.tolist(), strict=True))


def why_no_limits(capture: Capture) -> str:
    """Returns one sentence that says why `device_for` answers None, and how to get limits."""
    if not len(capture.device) and not devices_in_use(capture):
        if capture.facts.devices:
            names = _names(capture.facts.devices)
            return f"the recording lists {names} but holds no device activity: which work ran on the CPU is not known"
        host = host_of(capture)
        where = f"{host} once with tb-sol doctor --measure" if host else "the machine once with tb-sol doctor --measure"
        return f"a CPU has no fixed peak: FLOP/s are shown, efficiencies are not; measure {where}, or choose a measured row"
    used = devices_in_use(capture)
    if not used:
        return "the recording does not name its device; choose its limits to see efficiencies"
    return f"{_names(used)} is not in the table of devices; choose its limits to see efficiencies"


def _names(devices: Sequence[DeviceProps]) -> str:
    return ", ".join(sorted({props.name or "a device without a name" for props in devices}))


def caution(spec: DeviceSpec | None) -> str:
    """Returns one sentence for a banner where limits are no plain figures of a known device; "" where there is nothing to say."""
    if spec is None or spec.method == "override":
        return ""
    if spec.key.partition("@")[0].partition("+")[0] == UNKNOWN:
        return f"The limits of {spec.name} are derived: {spec.notes}. {TO_GIVE}."
    if spec.method == "derived" and spec.name.endswith("MIG"):
        return f"The limits are derived: {spec.notes}."
    if spec.method == "derived":
        return f"The limits are derived: the device has no name, and {spec.key} is the one row with its architecture, units and memory."
    return ""
