"""Device limits that users add to the package's table: rows of device files, in rising order of precedence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec

from tb_sol_plugin.model.devices.spec import DeviceSpec

Place: TypeAlias = Literal["user", "logdir", "chosen"]
"""user: the reader's own file; logdir: a file beside the recordings; chosen: named on the command line."""


class Problem(msgspec.Struct, frozen=True):
    """What is wrong in a device file. severity: an error keeps a row out, a warning does not. place: row and field, or line and column."""

    severity: Literal["error", "warning"]
    file: str
    place: str
    message: str
    hint: str = ""

    def line(self) -> str:
        """One line for a page or a terminal."""
        where = f"{self.file}, {self.place}" if self.place else self.file
        return f"{where}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class Layer(msgspec.Struct, frozen=True):
    """What one device file says. file: its name, never its folder.

    named: lower-case device name (or, for a CPU, host name) to the key of the row that names it.
    every_gpu, every_cpu: key of the only row of its kind, which applies to all recordings of that kind; "" without.
    """

    file: str
    place: Place
    rows: tuple[str, ...] = ()
    named: dict[str, str] = {}
    every_gpu: str = ""
    every_cpu: str = ""
    problems: tuple[Problem, ...] = ()


class DeviceBook(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Rows of device files over the package's table. Empty by default.

    specs: by key, later files over earlier ones; a key of the table stands for that row with some figures changed.
    layers: the files, lowest first. default: the expression used where a query names no limits ("" as recorded).
    """

    specs: dict[str, DeviceSpec] = {}
    layers: tuple[Layer, ...] = ()
    default: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of everything here; "" for an empty book."""
        if not self.layers and not self.default:
            return ""
        content = json.dumps(msgspec.to_builtins(self), sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    @cached_property
    def by_name(self) -> Mapping[str, str]:
        """Lower-case key or alias to key."""
        out: dict[str, str] = {}
        for key, spec in self.specs.items():
            for name in (key, *spec.aliases):
                out[name.lower()] = key
        return out

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong in the files, lowest file first."""
        return tuple(problem for layer in self.layers for problem in layer.problems)

    def notes(self) -> list[str]:
        """The problems in words."""
        return [problem.line() for problem in self.problems]


EMPTY: DeviceBook = DeviceBook()
