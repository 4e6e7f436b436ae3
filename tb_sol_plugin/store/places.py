"""Where recordings may lie: the roots named by `--logdir` or `--logdir_spec`, local or any fsspec URL."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True)
class Root:
    """A place to scan. `name` prefixes its runs ("" for a single logdir); `url` is a local path or an fsspec URL."""

    name: str
    url: str

    @property
    def local(self) -> bool:
        return not is_url(self.url)

    @property
    def label(self) -> str:
        """What may be shown of it: its given name, else the last part of its path. Never the whole path."""
        return self.name or basename(self.url)


def is_url(path: str) -> bool:
    """Whether `path` goes through fsspec. `file://` too is a URL; a drive letter is not."""
    return bool(_URL.match(path)) or "::" in path


def basename(path: str) -> str:
    """The last part of a path or URL; "." where there is none."""
    tail = path.split("://", 1)[-1].rstrip("/").replace(os.sep, "/").rsplit("/", 1)[-1]
    return tail or "."


def single(logdir: str) -> tuple[Root, ...]:
    """The root of `--logdir`; nothing for an empty one."""
    return (Root("", _clean(logdir)),) if logdir else ()


def named(spec: str) -> tuple[Root, ...]:
    """The roots of `--logdir_spec`: `name:/path,name2:/path2,/path3`. All entries count.

    A prefix before a colon is a name unless it is the scheme of a URL or a drive letter. Entries without a name are
    called by the last part of their path; equal names are told apart by a number.
    """
    roots: list[Root] = []
    taken: set[str] = set()
    for entry in filter(None, (part.strip() for part in spec.split(","))):
        name, colon, rest = entry.partition(":")
        if not colon or is_url(entry) or (len(name) == 1 and (rest[:1] == "\\" or os.name == "nt")) or "/" in name:
            name, rest = "", entry
        name = name or basename(rest)
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name}_{number}", number + 1
        taken.add(unique)
        roots.append(Root(unique, _clean(rest)))
    return tuple(roots)


def roots_of(logdir: str, spec: str = "") -> tuple[Root, ...]:
    """All roots of a TensorBoard command line."""
    return (*single(logdir), *named(spec))


def _clean(path: str) -> str:
    if is_url(path):
        return path
    return os.path.abspath(os.path.expanduser(path))
