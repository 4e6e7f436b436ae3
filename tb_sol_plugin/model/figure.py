"""Builds Plotly figure dictionaries of one style: made in Python, drawn in a browser, a notebook or an exported page.

Colors are the light values of `model/figure.py`; a dark surface maps them one to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Final, TypeAlias

from tb_sol_plugin.units import NARROW, human, scale_of

# -- The colors with a fixed meaning, light and dark ----------------------------------------------------------------


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
"""Plotly marker symbol of a kind or a copy direction: color is never alone."""


def light(token: str) -> str:
    """Returns the light hex of a token; an unknown token reads as `other`."""
    return TOKENS.get(token, TOKENS["other"])[0]


def efficiency_color(value: float | None) -> str:
    """Returns the light hex of the efficiency scale, the nearest of five stops, `idle` where there is no model. Out of range clamps the
    color only.
    """
    if value is None:
        return light("idle")
    position = min(max(value, 0.0), 1.0) * 4
    low = min(int(position), 3)
    return _STOPS[low] if position - low < 0.5 else _STOPS[low + 1]


_STOPS: Final = tuple(light(f"eff-{p}") for p in (0, 25, 50, 75, 100))


if __name__ == "__main__":
    import json

    print(json.dumps({"tokens": TOKENS, "marks": MARKS}, indent=1))


Plain: TypeAlias = dict[str, object]


FONT: Final = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif'
MONO: Final = 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace'


def axis(title: str = "", **more: object) -> Plain:
    """Returns one axis of the template: a quiet grid, no zero line, no tick marks. `more` goes over it."""
    base: Plain = {
        "title": {"text": title, "font": {"size": 12, "color": light("ink-3")}, "standoff": 8},
        "gridcolor": light("line"),
        "zeroline": False,
        "linecolor": light("line-strong"),
        "showline": True,
        "ticks": "",
        "tickfont": {"size": 11.5, "color": light("ink-3")},
        "automargin": True,
    }
    return base | more


def figure(data: Sequence[Plain], *, x: Plain | None = None, y: Plain | None = None, **layout: object) -> Plain:
    """Returns a figure of traces and two axes in the common template. `layout` goes over it."""
    base: Plain = {
        "font": {"family": FONT, "size": 12, "color": light("ink-2")},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 58, "r": 14, "t": 10, "b": 46},
        "showlegend": False,
        "separators": "." + NARROW,
        "bargap": 0.3,
        "hoverlabel": {
            "bgcolor": light("surface"),
            "bordercolor": light("line-strong"),
            "font": {"color": light("ink"), "size": 12},
            "align": "left",
        },
        "xaxis": x if x is not None else axis(),
        "yaxis": y if y is not None else axis(),
    }
    return {"data": list(data), "layout": base | layout}


def fill(token: str) -> Plain:
    """Returns the `marker` of a filled mark in a palette color: idle is hatched, fills lighter than 3:1 get an outline."""
    marker: Plain = {"color": light(token), "line": {"width": 0.8, "color": light("surface")}}
    if token == "idle":
        hatch: Plain = {"shape": "/", "fgcolor": light("idle-hatch"), "bgcolor": light("idle"), "size": 6, "solidity": 0.3}
        marker["pattern"] = hatch | {"fillmode": "replace"}
    if token in ("memset", "Memset", "norm", "elementwise"):
        marker["line"] = {"width": 0.8, "color": light("ink-2")}
    return marker


def symbol(token: str) -> str:
    """Returns Plotly's marker symbol of a kind or a direction."""
    return MARKS.get(token, MARKS["other"])


def time_scale(longest_ns: float) -> tuple[float, str]:
    """Returns (divisor, unit) in which a person reads an axis of time that ends at `longest_ns`."""
    return scale_of(max(longest_ns, 1.0), "ns")


def escape(text: str) -> str:
    """Returns text for a label or a hover of Plotly, which reads a few tags: nothing in it is markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cut(text: str, most: int) -> str:
    """Returns a name of at most so many characters, cut in the middle: both ends tell kernels apart."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"


def decades(low: float, high: float, unit: str) -> Plain:
    """Returns tick labels of a logarithmic axis in base units (`B/s`, `FLOP/s`): the decades only, with their unit."""
    values = [10.0**p for p in range(floor(log10(max(low, 1e-12))), ceil(log10(max(high, 1e-12))) + 1)]
    return {"type": "log", "tickvals": values, "ticktext": [_round(v, unit) for v in values]}


def _round(value: float, unit: str) -> str:
    """Returns a power of ten without decimals where it is whole in its unit: `10 GB/s`."""
    factor, name = scale_of(value, unit)
    return f"{round(value / factor)}{NARROW}{name}" if value >= factor else human(value, unit)


def sizes(low: float, high: float) -> Plain:
    """Returns tick labels of a logarithmic axis of byte sizes, in powers of 8: 8 B, 64 B, 512 B, 4 KiB …"""
    names = ("B", "KiB", "MiB", "GiB", "TiB")
    values = [8**p for p in range(14) if max(low, 1) / 8 <= 8**p <= high * 8]
    text = []
    for value in values:
        step = min((value.bit_length() - 1) // 10, 4)
        text.append(f"{value >> (10 * step)}{NARROW}{names[step]}")
    return {"type": "log", "tickvals": values, "ticktext": text}
