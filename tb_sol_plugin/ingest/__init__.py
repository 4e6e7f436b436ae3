"""LAYER 2: bytes to Capture, one file per format, chosen by content."""

from __future__ import annotations

from tb_sol_plugin.ingest.classify import CERTAIN, Classification, classify
from tb_sol_plugin.ingest.progress import Progress, Report
from tb_sol_plugin.ingest.source import head
from tb_sol_plugin.ingest.torch_trace import read

FORMAT_VERSION = 2
"""Part of every cache key: raise it when the tables of a Capture, or what stands in them, change."""

__all__ = ["CERTAIN", "FORMAT_VERSION", "Classification", "Progress", "Report", "classify", "head", "read"]
