"""`tb-sol export`: a recording in the form of another tool."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.capture import Capture

BY = ("auto", "module", "phase", "operator")
"""As `metrics.hatchet.CHOICES`, which is not loaded before it is needed."""
HATCHET = "the tree of modules (or phases), operators, kernels and copies, as Proton writes it: for llnl-hatchet and proton-viewer"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The options beside those that name a recording."""
    parser.add_argument("form", choices=("hatchet",), metavar="FORM", help=f"hatchet: {HATCHET}")
    parser.add_argument("path", metavar="PATH", help="logdir, run directory, trace file, or fsspec URL of one")
    parser.add_argument("-o", "--output", default="-", metavar="OUT", help="file to write (default: -, the standard output)")
    parser.add_argument("--by", choices=BY, default="auto", help="what the tree is made of (default: modules where any were recorded)")


def export(capture: Capture, options: argparse.Namespace) -> int:
    """Write the export; returns the exit status. BadQuery where the file cannot be written."""
    from tb_sol_plugin.metrics.hatchet import hatchet

    pieces = hatchet(capture, options.by)
    if options.output == "-":
        sys.stdout.writelines(piece.decode() for piece in pieces)
        sys.stdout.flush()
        return 0
    _write(options.output, pieces)
    print(f"tb-sol: wrote {options.output}", file=sys.stderr)
    return 0


def _write(path: str, pieces: Iterable[bytes]) -> None:
    """Write a file in one go: what stood there stays until all of the new is written."""
    beside = f"{path}.part"
    try:
        with open(beside, "wb") as stream:
            stream.writelines(pieces)
        os.replace(beside, path)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadQuery(f"cannot write {path[:200]!r}: {why}", hint="choose another -o", field="output") from None
