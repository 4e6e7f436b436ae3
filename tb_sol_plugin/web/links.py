"""Writes what leads to a view: its address, the command and the line of Python that answer the same. `ways.ts` of the page does so too."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit

from tb_sol_plugin.errors import BadQuery

LOGDIR: Final = "LOGDIR"
"""Stands where a person names the logdir."""
_PLAIN: Final = ",/:+~*'()!"
"""Characters that the page leaves as they are in its address, besides letters, digits and `-_.`."""


def live_address(text: str) -> str:
    """Returns the address of a live page, "" for none. BadQuery for one that is not of the web."""
    address = text.strip()
    parts = urlsplit(address)
    if address and (parts.scheme not in ("http", "https") or not parts.hostname or parts.password is not None):
        raise BadQuery(f"no address of a page: {text[:60]!r}", hint="give one as https://host/path, without a password", field="live")
    return address


def view_hash(page: str, where: Mapping[str, str], query: Mapping[str, str]) -> str:
    """Returns what stands in the address of a view behind the page's own.

    where: run, worker, span, step, capture, device, as far as they are chosen. query: fields of the analysis.
    """
    pairs = {"v": "1", "page": page, **{name: where.get(name, "") for name in ("run", "worker", "span", "step", "capture", "device")}}
    pairs |= {f"q.{name}": value for name, value in sorted(query.items())}
    return "#sol" + "".join(f"&p.sol.{quote(name, safe=_PLAIN)}={quote(value, safe=_PLAIN)}" for name, value in pairs.items() if value)


def command_of(page: str, where: Mapping[str, str], query: Mapping[str, str], path: str = LOGDIR) -> str:
    """Returns the command that prints the same report."""
    options = {name: where.get(name, "") for name in ("run", "worker", "span", "step", "capture")}
    options |= {"device-limits": where.get("device", "")} | {name.replace("_", "-"): value for name, value in sorted(query.items())}
    given = [word for name, value in options.items() if value for word in (f"--{name}", value)]
    return shlex.join(["tb-sol", "analyze", page, path, *given, "--format", "text"])


def python_of(page: str, where: Mapping[str, str], query: Mapping[str, str], path: str = LOGDIR) -> str:
    """Returns the line of Python that makes the same report."""
    run = f"sol.open({_text(path)}{''.join(f', {name}={_text(where[name])}' for name in ('run', 'capture') if where.get(name))})"
    named = [f"c.{name} == {_text(where[name])}" for name in ("worker", "span") if where.get(name)]
    shown = f"next(c for c in {run}.captures if {' and '.join(named)})" if named else run
    options = {"step": where.get("step", ""), "device_limits": where.get("device", ""), **dict(sorted(query.items()))}
    return f"{shown}.analyze({', '.join([_text(page), *(f'{name}={_text(value)}' for name, value in options.items() if value)])})"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
