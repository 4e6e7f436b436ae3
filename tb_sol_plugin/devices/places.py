"""Names the places where device files lie on this machine. Nothing here opens them."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Final

NAMES: Final = ("sol_devices.json", "sol_devices.csv")
"""A device file of these names in a logdir applies to all its runs; the first one found is read."""
ENVIRONMENT: Final = "TB_SOL_DEVICES"
_PLACED_BY: Final = ("XDG_CONFIG_HOME", "HOME", "USERPROFILE", "APPDATA")
"""Variables that say where the user's configuration is."""


def user_file() -> str:
    """Returns the reader's own device file: `TB_SOL_DEVICES` ("" for none), else `devices.json` or `.csv` in the user's configuration."""
    given = os.environ.get(ENVIRONMENT)
    if given is not None:
        return os.path.abspath(os.path.expanduser(given)) if given else ""
    folder = _configuration(*map(os.environ.get, _PLACED_BY))
    return str(next((p for p in (folder / "devices.json", folder / "devices.csv") if os.path.isfile(p)), folder / "devices.json"))


@lru_cache(maxsize=8)
def _configuration(*environment: str | None) -> Path:
    """Returns the user's configuration folder of this program: looked up once for what the environment says."""
    import platformdirs

    return Path(platformdirs.user_config_dir("tb-sol", appauthor=False))


def folders_above(folder: str) -> tuple[str, ...]:
    """Returns a local folder and the two above it, nearest first: the first of them that has a device file counts."""
    out = [os.path.abspath(os.path.expanduser(folder))]
    for _ in range(2):
        out.append(os.path.dirname(out[-1]))
    return tuple(dict.fromkeys(out))
