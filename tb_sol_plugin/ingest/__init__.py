"""LAYER 2: bytes to Capture, one file per format, chosen by content."""

from __future__ import annotations

from tb_sol_plugin.errors import NotATrace
from tb_sol_plugin.ingest.detect import CERTAIN, PROTON_TRACE, Classification, classify
from tb_sol_plugin.ingest.source import Progress, Report, base_name, head
from tb_sol_plugin.model.capture import Capture

FORMAT_VERSION = 10
"""Part of every cache key: raise it when the tables of a Capture, or what stands in them, change."""


def read(path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None) -> Capture:
    """Read one recording (local path or fsspec URL), by its content. BadInput or NotATrace where it holds none."""
    found = classify(head(path, fs_options=fs_options), base_name(path))
    if found.kind == "proton":
        from tb_sol_plugin.ingest import proton

        return proton.read(path, fs_options=fs_options, progress=progress)
    if found.what == PROTON_TRACE:
        from tb_sol_plugin.ingest.proton import chrome

        return chrome.read(path, fs_options=fs_options, progress=progress)
    if found.kind == "memory_timeline":
        from tb_sol_plugin.ingest.memory import timeline

        return timeline.read(path, fs_options=fs_options, progress=progress)
    if found.kind == "memory_snapshot":
        from tb_sol_plugin.ingest.memory import snapshot

        return snapshot.read(path, fs_options=fs_options, progress=progress)
    if found.kind in ("proton_cycles", "memory_picture", "other_pickle"):
        raise NotATrace(f"this is a {found.what}", hint=found.note, file=base_name(path))
    if found.kind == "sol_capture":
        from tb_sol_plugin.ingest.sol import reader as sol

        return sol.read(path, fs_options=fs_options, progress=progress)
    from tb_sol_plugin.ingest.kineto import reader as kineto

    return kineto.read(path, fs_options=fs_options, progress=progress)


__all__ = ["CERTAIN", "FORMAT_VERSION", "Classification", "Progress", "Report", "classify", "head", "read"]
