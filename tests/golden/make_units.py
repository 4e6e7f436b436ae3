"""Writes `units.json` beside it: what `units.human` says for a spread of values of every unit.

The frontend's formatter is held to the same answers (`frontend/test/units.test.ts`). Run: `python tests/golden/make_units.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from tb_sol_plugin.units import UNITS, human

VALUES = [
    0, 1, 7, 12.34, 99.994, 99.995, 99.996, 100, 123.456, 999, 999.4, 999.5, 999.94, 999.95, 1000, 1234.5, 9_999, 12_345, 99_999, 123_456,
    999_499, 999_500, 999_949, 999_950, 1_000_000, 1_211_000_000, 160_049_999, 3.35e12, 989.4e12, 1.979e15, 2.5e18, 7e21,
    0.000_4, 0.000_5, 0.000_6, 0.012, 0.132, 0.468, 0.5, 0.9994, 0.9995, 0.9999, 1.02, 1.273, 2.5, 0.125, 0.375, 0.0625, 1.005, 2.675,
    10.05, 10.15, 100.25, 100.35, 1000.5, 1001.5, 2500.5,
    -1, -0.000_4, -0.02, -12.5, -619_040_000, -478_400_000, -1e12,
]  # fmt: skip

if __name__ == "__main__":
    rows = [[value, unit, human(value, unit)] for unit in UNITS for value in VALUES] + [[None, unit, human(None, unit)] for unit in UNITS]
    text = "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"
    Path(__file__).with_name("units.json").write_text(text, encoding="utf-8")
