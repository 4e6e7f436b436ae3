"""Profiles of Proton, Triton's profiler, into Captures: the tree of scopes and kernels that it writes as Hatchet JSON or MessagePack.

A profile holds sums, not events: each kernel of each scope with its time, its launches and the work that a launch hook stated.
Scopes become labels, kernels rows of the ledger, frames that copy memory rows of the table `copies`.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.proton import decode
from tb_sol_plugin.ingest.proton.device import devices_of, limits_of, named, properties
from tb_sol_plugin.ingest.proton.tables import build
from tb_sol_plugin.ingest.proton.tree import OPEN, frames_of
from tb_sol_plugin.ingest.source import Progress, Report, Source
from tb_sol_plugin.model.capture import Capture, Facts

SOURCE: Final = "proton"
LARGEST: Final = 256 << 20
"""Bytes of text that are taken in: a profile is sums, and larger ones hold something else."""
_FLAGS: Final[dict[str, bool | None]] = dict.fromkeys(("record_shapes", "with_stack", "profile_memory", "with_modules"), False)


def read(path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None) -> Capture:
    """Read one profile (local path or fsspec URL). BadInput or NotATrace where it holds none."""
    with Source(path, fs_options) as source:
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
    blocks, size = [], 0
    for block in source.blocks():
        blocks.append(block)
        size += len(block)
        if size > LARGEST:
            hint = "profile a shorter part, or use proton.start(context='shadow')"
            raise BadInput(f"the profile is larger than {LARGEST >> 20} MiB", hint=hint, file=source.name)
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
        health.add(f"metric that is not understood: {key}", count, effect="not shown")
    tables["issues"] = health.table()
    used = {d for d, t in zip(frames.device, frames.time, strict=True) if t}
    chosen = [d for d in devices if d.index in used] or list(devices)
    said = named(tuple(chosen))
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
            warnings=(said,) if said else (),
            pseudo_step=True,
            limits=next((found for found in map(limits_of, chosen) if found is not None), None),
        ),
        tables,
    )


def _vendor(kind: str) -> str:
    from tb_sol_plugin.ingest.proton.device import VENDORS

    return VENDORS.get(kind.upper(), "other")
