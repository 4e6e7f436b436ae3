"""`tb-sol doctor --measure`: the limits of this machine's CPU, measured once and kept in the user's device file."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tb_sol_plugin.cli.text import plain
from tb_sol_plugin.devices.figures import figures
from tb_sol_plugin.devices.files import book_of, parse
from tb_sol_plugin.devices.measure import Measured, key_of, measure, row_of
from tb_sol_plugin.devices.places import ENVIRONMENT, user_file
from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.units import human

SHAPE = 'make it [{"key": ...}] or {"devices": [...]}, or name another file with --write'


def run(out: Console, *, write: str = "", again: bool = False, host: str = "") -> int:
    """Measure and keep; what was measured before is shown instead, unless `again`. BadInput where the file cannot be used."""
    import socket

    path = Path(write).expanduser() if write else Path(user_file() or "")
    if not write and not user_file():
        raise BadInput(f"{ENVIRONMENT} is empty: there is no file to keep the figures in", hint="name one with --write PATH")
    if path.suffix.lower() != ".json":
        raise BadInput("the figures are written as JSON", hint="name a .json file", file=path.name)
    key = key_of(host or socket.gethostname())
    rows = read_rows(path)
    known = next((row for row in rows if isinstance(row, dict) and row.get("key") == key), None)
    if known is not None and not again:
        out.print(Text(plain(f"{key} is there already, in {path}")))
        _show(out, known)
        out.print(Text("measure once more with tb-sol doctor --measure --again", "dim"))
        return 0
    found = measure(lambda what: print(f"tb-sol: measuring {what}", file=sys.stderr, flush=True))
    row = row_of(found, host=host)
    keep(path, [row if r is known else r for r in rows] if known is not None else [*rows, row])
    _table(out, found)
    _show(out, row)
    out.print(Text(plain(f"written as {key} to {path}")))
    where = host or found.host
    out.print(Text(plain(f"CPU recordings of {where} are measured against it; others where you choose {key} as device limits"), "dim"))
    return 0


def read_rows(path: Path) -> list[object]:
    """The rows of a JSON device file, as they are; [] where there is none. BadInput where it is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or "not JSON"
        raise BadInput(f"this device file cannot be read: {why}", hint=SHAPE, file=path.name) from None
    if isinstance(content, dict):
        content = content.get("devices", [content])
    if not isinstance(content, list):
        raise BadInput("this is no device file", hint=SHAPE, file=path.name)
    return content


def keep(path: Path, rows: list[object]) -> None:
    """Write a device file, as a whole or not at all. BadInput where that is not possible."""
    text = "[\n" + ",\n".join(json.dumps(row, indent=1, ensure_ascii=False) for row in rows) + "\n]\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            stream.write(text)
        os.replace(stream.name, path)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", hint="name another file with --write", file=path.name) from None


def _table(out: Console, found: Measured) -> None:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for title in ("measured", "best", "with"):
        table.add_column(title, justify="right" if title == "best" else "left")
    for rate in found.rates:
        table.add_row(rate.label, human(rate.value, rate.unit), plain(rate.how))
    out.print(table)


def _show(out: Console, row: dict[str, object] | dict[str, str | int | float]) -> None:
    read = parse(json.dumps([row]).encode(), "device.json")
    book = book_of([("user", read)])
    for note in book.notes():
        out.print(Text(plain(note), "yellow"))
    for spec in book.specs.values():
        out.print(Text(plain(f"{spec.key}: {spec.name}"), "bold"))
        for figure in figures(spec):
            out.print(Text(plain(f"  {figure.label:<24}{human(figure.value, figure.unit):>16}  {figure.provenance}")))
        out.print(Text(plain(f"  {spec.notes}"), "dim"))
