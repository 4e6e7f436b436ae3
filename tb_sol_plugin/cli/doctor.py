"""Runs `tb-sol doctor`: what is installed, what was found, what was rejected and why."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tb_sol_plugin.cli.files import replace
from tb_sol_plugin.cli.text import contents, plain, prose
from tb_sol_plugin.devices.files import book_of, parse
from tb_sol_plugin.devices.measure import Measured, key_of, measure, row_of
from tb_sol_plugin.devices.places import ENVIRONMENT, user_file
from tb_sol_plugin.devices.rates import figures
from tb_sol_plugin.errors import BadInput, SolError
from tb_sol_plugin.store.options import cache_directory, private
from tb_sol_plugin.units import how_many, human

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.recordings import Recording


PACKAGES = (
    "tb-sol-plugin", "tensorboard", "flask", "werkzeug", "numpy", "pandas", "pyarrow", "plotly", "msgspec", "isal", "fsspec", "numba",
    "rich", "platformdirs", "xxhash", "torch",
)  # fmt: skip
OPTIONAL = ("tb-sol-plugin", "torch")
MOST = 50
MOST_NOTES = 3
KINDS = {
    "kineto": "trace", "sol_capture": "SOL capture", "proton": "Proton profile",
    "memory_timeline": "memory timeline", "memory_snapshot": "memory snapshot", "graph_capture": "graph capture",
}  # fmt: skip


def examine(out: Console, logdir: str, *, read: bool = True, device: str = "") -> int:
    """Print the findings; 1 if something is wrong that keeps the product from working, or a recording does not open.

    device: limits to use as with `--sol_device`.
    """
    wrong = _installed(out) + _entry_point(out) + _parts(out)
    _cache(out)
    wrong += device_files(out, logdir, device)
    if logdir:
        wrong += _logdir(out, logdir, read, device)
    out.print()
    out.print(
        Text(
            "all is well" if not wrong else f"{wrong} thing{'s' if wrong > 1 else ''} to look at", "bold green" if not wrong else "bold red"
        )
    )
    return 1 if wrong else 0


def _line(out: Console, good: bool | None, label: str, text: str) -> int:
    mark = Text({True: "  ok ", False: "  !! ", None: "     "}[good], {True: "green", False: "red", None: ""}[good])
    out.print(mark.append(f"{label:<16}", "dim").append(plain(text), ""))
    return 1 if good is False else 0


def _installed(out: Console) -> int:
    wrong = _line(out, None, "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores")
    for name in PACKAGES:
        version = _version(name)
        optional = name in OPTIONAL
        wrong += _line(
            out, True if version else (None if optional else False), name, version or ("not installed" if optional else "MISSING")
        )
    return wrong


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _entry_point(out: Console) -> int:
    points = [p for p in metadata.entry_points(group="tensorboard_plugins") if p.value.startswith("tb_sol_plugin")]
    if not points:
        return _line(out, False, "entry point", "TensorBoard does not know the plugin: install it with pip in this environment")
    try:
        points[0].load()
    except Exception as error:  # whatever keeps TensorBoard from loading us is the finding
        return _line(out, False, "entry point", f"{points[0].value} does not load: {type(error).__name__}: {error}")
    return _line(out, True, "entry point", points[0].value)


def _parts(out: Console) -> int:
    from tb_sol_plugin.web.http import CUSTOM_PLOTLY, STATIC, plotly_script

    wrong = 0
    try:
        from tb_sol_plugin.devices.catalog import known_keys
        from tb_sol_plugin.model.registry import failures, registry

        wrong += _line(out, True, "analyses", ", ".join(registry()))
        for name, reason in failures().items():
            wrong += _line(out, False, "analyses", f"{name} failed to load and is left out: {reason}")
        wrong += _line(out, True, "device limits", f"{len(known_keys())} devices known")
    except Exception as error:
        wrong += _line(out, False, "analyses", f"do not load: {type(error).__name__}: {error}")
    page = (STATIC / "index.js").is_file() and CUSTOM_PLOTLY.is_file()
    wrong += _line(out, page, "page", "built" if page else "the built frontend is missing")
    plotly = plotly_script()
    return wrong + _line(out, bool(plotly), "plotly.min.js", "found" if plotly else "not in the plotly package")


def _cache(out: Console) -> None:
    from tb_sol_plugin.store.cache import Cache

    folder = cache_directory(None)
    cache = Cache(folder)
    if folder is None or cache.directory is None:
        _line(out, None, "cache", "switched off")
        return
    keys = [p.name for p in folder.iterdir() if (p / "facts.json").exists()] if folder.is_dir() else []
    try:
        private(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
        state = f"{len(keys)} recordings, {human(sum(map(cache.size_of, keys)), 'B')}"
        _line(out, True, "cache", f"{folder} ({state})")
    except OSError as error:
        _line(out, None, "cache", f"{folder} cannot be written ({error.strerror}): recordings are read anew each time")


def _logdir(out: Console, logdir: str, read: bool, device: str) -> int:
    from tb_sol_plugin.model.memory_join import NOT_JOINED
    from tb_sol_plugin.store.load import open_here
    from tb_sol_plugin.store.open import RECORD_ONE, book_for, is_file, listing_of, options_for, recording_of
    from tb_sol_plugin.store.scan import Listing

    options = options_for(device=device)
    try:
        one = is_file(logdir, options)
        listing = Listing({"": (recording_of(logdir, options),)}, files=1) if one else listing_of(logdir, options)
    except BadInput as error:
        return _line(out, False, "logdir", error.line())
    every = [r for recordings in listing.runs.values() for r in recordings]
    count = len(every)
    searched = f"{how_many(listing.files, 'file')} in {how_many(listing.directories, 'directory', 'directories')}, {listing.elapsed_ms} ms"
    wrong = _line(out, count > 0, "logdir", f"{_counted(every)} in {how_many(len(listing.runs), 'run')} ({searched})")
    if not count:
        for way in RECORD_ONE.split(", or "):
            text = f"{'or ' if way.startswith('the whole') else ''}{way}"
            out.print(prose(" " * 21 + text, "dim"), no_wrap=True, overflow="fold", crop=False)
    wrong += sum(_line(out, False, "logdir", error) for error in listing.errors)
    book = book_for(logdir, options, file=one)
    grid = Table.grid(padding=(0, 2))
    for name, recordings in listing.runs.items():
        for recording in recordings[:MOST]:
            state, style, limits = human(recording.size, "B"), "", ""
            notes: tuple[str, ...] = ()
            kind = _kind(recording, recordings)
            if read:
                start = time.perf_counter()
                try:
                    capture = open_here(recording, options, book, recordings)
                    took = human(int((time.perf_counter() - start) * 1e9), "ns")
                    state, limits = f"{contents(capture)}, {took}", limits_of(capture)
                    joined = tuple(w for w in capture.facts.warnings if w.startswith(NOT_JOINED))
                    notes = capture.facts.warnings if capture.facts.source == "sol_capture" else joined
                except SolError as error:
                    state, style = f"{error.message} ({error.hint})", "red"
                    wrong += 1
            cells = (
                Text(plain(name)),
                Text(plain(recording.worker)),
                Text(plain(recording.span), "dim"),
                Text(kind),
                Text(plain(state), style),
            )
            grid.add_row("    ", *cells, Text(plain(limits), "dim"))
            for note in notes[:MOST_NOTES]:
                grid.add_row("    ", "", "", "", "", Text(plain(note), "yellow"), "")
    out.print(grid)
    for item in listing.rejected[:MOST]:
        _line(out, None, "not taken", f"{item.file}: {item.what}{', ' + item.note if item.note else ''}")
    if listing.unrelated or len(listing.rejected) > MOST:
        more = f", {len(listing.rejected) - MOST} more looked into" if len(listing.rejected) > MOST else ""
        _line(out, None, "not taken", f"{how_many(listing.unrelated, 'file')} by their names{more}")
    return wrong


def _kind(recording: Recording, recordings: Sequence[Recording]) -> str:
    """Returns `trace + SOL capture + memory timeline`: what is read as one."""
    from tb_sol_plugin.store.join import attached_to

    every = (recording, *attached_to(recording, recordings))
    return " + ".join(dict.fromkeys(KINDS[r.kind] for r in every if r.kind in KINDS))


def _counted(recordings: list[Recording]) -> str:
    """Returns `5 recordings: 3 traces, 2 SOL captures`; of one kind alone without the split."""
    counts = {word: sum(r.kind == kind for r in recordings) for kind, word in KINDS.items()}
    split = ", ".join(how_many(count, word) for word, count in counts.items() if count)
    return how_many(len(recordings), "recording") + (f": {split}" if counts["trace"] < len(recordings) else "")


def device_files(out: Console, logdir: str, device: str = "") -> int:
    """Returns where device limits come from besides the table, and what is wrong there; the number of rows that are left out."""
    from tb_sol_plugin.devices.places import user_file
    from tb_sol_plugin.store.open import is_file, options_for
    from tb_sol_plugin.store.sidecars import DeviceFiles, check_choice, folders_above

    try:
        check_choice(device)
    except BadInput as error:
        return _line(out, False, "device file", error.line())
    try:
        folders = folders_above(logdir, file=is_file(logdir, options_for())) if logdir else ()
    except BadInput:
        folders = ()  # printed with the logdir
    found = DeviceFiles(device).book(*folders)
    own = user_file()
    if own and not any(layer.place == "user" for layer in found.layers):
        _line(out, None, "device file", f"{own}: none (tb-sol doctor --measure writes the limits of this CPU there)")
    words = {"user": own, "logdir": "of the logdir", "chosen": "chosen"}
    wrong = 0
    for layer in found.layers:
        rows = ", ".join(layer.rows) or "no row"
        wrong += _line(out, bool(layer.rows) or None, "device file", f"{layer.file} ({words[layer.place]}): {rows}")
        for problem in layer.problems:
            wrong += _line(out, False if problem.severity == "error" else None, "device file", problem.line())
    return wrong


def limits_of(capture: Capture) -> str:
    """Returns the device limits of a recording and how they were found."""
    from tb_sol_plugin.devices.limits import device_for, why_no_limits

    try:
        if capture.missing("program"):
            return "memory alone: no work to hold against limits"
        spec = device_for(capture)
    except SolError as error:
        return error.message
    if spec is None:
        return f"no limits: {why_no_limits(capture)}"
    where = "" if spec.source == "table" else f", {spec.source}"
    return f"{spec.key} ({spec.method}{where})"


# -- `tb-sol doctor --measure`: the limits of this machine's CPU, measured once and kept in the user's device file ---


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
    """Returns the rows of a JSON device file, as they are; [] where there is none. BadInput where it is no such file."""
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
    """Write a device file, as a whole or not at all. BadQuery where that is not possible."""
    text = "[\n" + ",\n".join(json.dumps(row, indent=1, ensure_ascii=False) for row in rows) + "\n]\n"
    with contextlib.suppress(OSError):  # then the file cannot be written either, which says why
        path.parent.mkdir(parents=True, exist_ok=True)
    replace(str(path), [text.encode()], field="write", hint="name another file with --write")


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
