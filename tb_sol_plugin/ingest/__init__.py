"""LAYER 2: bytes to Capture, one file per format, chosen by content."""

from __future__ import annotations

from tb_sol_plugin.errors import NotATrace
from tb_sol_plugin.ingest.classify import CERTAIN, PROTON_TRACE, Classification, classify
from tb_sol_plugin.ingest.progress import Progress, Report
from tb_sol_plugin.ingest.source import base_name, head
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
        from tb_sol_plugin.ingest import memory_timeline

        return memory_timeline.read(path, fs_options=fs_options, progress=progress)
    if found.kind == "memory_snapshot":
        from tb_sol_plugin.ingest import memory_snapshot

        return memory_snapshot.read(path, fs_options=fs_options, progress=progress)
    if found.kind in ("proton_cycles", "memory_picture", "other_pickle"):
        raise NotATrace(f"this is a {found.what}", hint=found.note, file=base_name(path))
    if found.kind == "sol_capture":
        from tb_sol_plugin.ingest import sol_capture

        return sol_capture.read(path, fs_options=fs_options, progress=progress)
    from tb_sol_plugin.ingest import torch_trace

    return torch_trace.read(path, fs_options=fs_options, progress=progress)


__all__ = ["CERTAIN", "FORMAT_VERSION", "Classification", "Progress", "Report", "classify", "head", "read"]
