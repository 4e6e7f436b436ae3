"""What a user can set about scanning, caching and reading."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

GB = 1_000_000_000


@dataclass(frozen=True)
class StoreOptions:
    """Limits of the store. Zero means "no limit" for seconds and bytes.

    cache_dir: None for the user's cache directory, "" for no cache at all. cache_bytes: size at which old entries go.
    workers: processes that read files. worker_bytes: resident memory at which one is ended. load_seconds: its time limit.
    open_bytes: captures kept open, by the size of their tables. scan_seconds, scan_files: budget of one scan.
    fresh_seconds: age at which a listing is renewed when somebody asks for it. fs_options: passed on to fsspec.
    device: limits used where a query names none: a key of the table, an expression, or the path of a device file.
    """

    cache_dir: str | None = None
    cache_bytes: int = 20 * GB
    workers: int = field(default_factory=lambda: min(2, os.cpu_count() or 1))
    worker_bytes: int = 0
    load_seconds: float = 3600.0
    open_bytes: int = 4 * GB
    scan_seconds: float = 20.0
    scan_files: int = 500_000
    fresh_seconds: float = 10.0
    fs_options: Mapping[str, object] = field(default_factory=dict)
    device: str = ""


def cache_directory(chosen: str | None) -> Path | None:
    """Where captures are kept: as chosen, else `TB_SOL_CACHE_DIR`, else the user's cache directory; None for nowhere."""
    if chosen is None:
        chosen = os.environ.get("TB_SOL_CACHE_DIR")
    if chosen is None:
        import platformdirs

        return Path(platformdirs.user_cache_dir("tb-sol-plugin", appauthor=False))
    return Path(chosen).expanduser() if chosen else None
