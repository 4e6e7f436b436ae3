"""Bounds what one recording may take while it is read: one bound by unpacked text and one by rows, the same for every reader.

They hold wherever a file is read, in a worker process, on the command line and in a notebook. Readers that keep the whole text in memory
have a share of the bound. Two environment variables lift them, and each message names the one that does.
"""

from __future__ import annotations

import math
import os
from typing import Final

from tb_sol_plugin.errors import BadInput

TEXT: Final = "TB_SOL_TEXT_GB"
"""GB of text that a recording may unpack to."""
ROWS: Final = "TB_SOL_MILLION_ROWS"
"""Millions of events or rows that a recording may hold."""
DEFAULTS: Final = {TEXT: 16.0, ROWS: 100.0}
_UNITS: Final = {TEXT: 1e9, ROWS: 1e6}


def setting(name: str) -> float:
    """Returns the value of a setting; its default where the environment holds no positive number."""
    try:
        value = float(os.environ.get(name, ""))
    except ValueError:
        return DEFAULTS[name]
    return value if value > 0 and math.isfinite(value) else DEFAULTS[name]


def most(name: str, share: int = 1) -> int:
    """Returns the bound in bytes or rows for a reader that has one part in `share` of it."""
    return int(setting(name) * _UNITS[name] / share)


def check(name: str, found: int, bound: int, file: str, hint: str = "") -> None:
    """Raises BadInput where more was found than the bound, with the setting that lifts it."""
    if found <= bound:
        return
    what = f"its text is larger than {bound / 1e6:,.0f} MB" if name == TEXT else f"it holds more than {bound:,} rows"
    lift = f"set the environment variable {name} above {setting(name):g} to read it all the same, where there is memory for it"
    raise BadInput(f"this recording is above a limit: {what}", hint=f"{hint}, or {lift}" if hint else lift, file=file)
