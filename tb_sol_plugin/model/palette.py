"""The colours with a fixed meaning, light and dark.

Figures are built with the light values; a dark surface replaces each by its partner in `TOKENS`.
The frontend reads the same table from `static/palette.json`, which `python -m tb_sol_plugin.model.palette` prints.
"""

from __future__ import annotations

from typing import Final

TOKENS: Final[dict[str, tuple[str, str]]] = {
    # surfaces and ink
    "bg": ("#F6F7F9", "#0F1216"),
    "surface": ("#FFFFFF", "#161A20"),
    "sunken": ("#F1F3F6", "#1C2128"),
    "line": ("#E3E7ED", "#272D36"),
    "line-strong": ("#CDD4DE", "#3A424E"),
    "ink": ("#14181F", "#E8EBEF"),
    "ink-2": ("#48525F", "#B4BCC8"),
    "ink-3": ("#626D7C", "#939DAB"),
    "bar-ink": ("#3C4A5E", "#A9B7CA"),
    "accent": ("#4A3FC4", "#ABA5FF"),
    "accent-bg": ("#EEEDFB", "#25243F"),
    "accent-line": ("#C5C0F0", "#48458A"),
    "warn": ("#8A5300", "#F0BC62"),
    "error": ("#B3261E", "#FF8F85"),
    # time
    "compute": ("#0E67C1", "#53A7F5"),
    "communication": ("#E48330", "#F5A544"),
    "memcpy": ("#8A1257", "#F04FB4"),
    "memset": ("#DBA3BC", "#8B4E6C"),
    "host": ("#7C838C", "#7F8792"),
    "idle": ("#E2E6EA", "#2A3038"),
    "idle-hatch": ("#B4BECA", "#5C6878"),
    # kind of work
    "gemm": ("#0E67C1", "#53A7F5"),
    "attention": ("#14A88C", "#4FC5B3"),
    "conv": ("#6A3160", "#A766C4"),
    "norm": ("#E3A70F", "#FECA55"),
    "elementwise": ("#8BCFF6", "#B4E4F9"),
    "other": ("#757B84", "#868E99"),
    # copy direction
    "HtoD": ("#8A1257", "#F04FB4"),
    "DtoH": ("#D65A9A", "#F3A6D2"),
    "DtoD": ("#3B7F96", "#5FB4CC"),
    "Memset": ("#DBA3BC", "#8B4E6C"),
    # bound
    "bound-compute": ("#0B57A4", "#7DBCF7"),
    "bound-memory": ("#8A5301", "#F0BC62"),
    # efficiency 0, 25, 50, 75, 100 %
    "eff-0": ("#B8471A", "#E4673A"),
    "eff-25": ("#E08E4F", "#C9813F"),
    "eff-50": ("#F3D3A8", "#8C7A5C"),
    "eff-75": ("#C9DCEA", "#4D6A88"),
    "eff-100": ("#7FB2DB", "#3F7FB8"),
}

MARKS: Final[dict[str, str]] = {
    "gemm": "circle",
    "attention": "diamond",
    "conv": "square",
    "norm": "triangle-up",
    "elementwise": "cross",
    "other": "x",
    "HtoD": "triangle-up",
    "DtoH": "triangle-down",
    "DtoD": "circle",
    "Memset": "square",
}
"""Plotly marker symbol of a kind or a copy direction: colour is never alone."""


def light(token: str) -> str:
    """Light hex of a token; an unknown token reads as `other`."""
    return TOKENS.get(token, TOKENS["other"])[0]


def efficiency_colour(value: float | None) -> str:
    """Light hex of the efficiency scale, the nearest of five stops, `idle` where there is no model. Out of range clamps the colour only."""
    if value is None:
        return light("idle")
    stops = [light(f"eff-{p}") for p in (0, 25, 50, 75, 100)]
    position = min(max(value, 0.0), 1.0) * 4
    low = min(int(position), 3)
    part = position - low
    return stops[low] if part < 0.5 else stops[low + 1]


if __name__ == "__main__":
    import json

    print(json.dumps({"tokens": TOKENS, "marks": MARKS}, indent=1))
