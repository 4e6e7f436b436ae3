"""Labels name the module, phase and function that work belongs to; each thread has one stack per kind of label.

A label is interned by (what, parent, name), so its id names a place in a tree: a module called from two places has two labels.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

NONE: Final = -1
"""Id of no label."""


class Label(NamedTuple):
    """Is a name in the tree of labels.

    what: module, phase or function. parent: id of the label around it, NONE at a root. class_name: of a module, "" otherwise.
    """

    what: str
    parent: int
    name: str
    class_name: str = ""


class Labels:
    """Keeps all labels of a tracker by id. Ids are never reused."""

    def __init__(self) -> None:
        self.known: list[Label] = []
        self._ids: dict[tuple[str, int, str, str], int] = {}
        self._lock = threading.Lock()

    def id_of(self, what: str, parent: int, name: str, class_name: str = "") -> int:
        """Return the id of a label, which is made at first use."""
        key = (what, parent, name, class_name)
        found = self._ids.get(key)
        if found is None:
            with self._lock:
                found = self._ids.setdefault(key, len(self.known))
                if found == len(self.known):
                    self.known.append(Label(*key))
        return found

    def path(self, label: int) -> tuple[str, ...]:
        """Return the names from the root down; () for NONE."""
        out: list[str] = []
        while label != NONE:
            out.append(self.known[label].name)
            label = self.known[label].parent
        return tuple(reversed(out))


class Stack(threading.local):
    """Keeps the ids of the labels that are open on the calling thread, innermost last."""

    def __init__(self) -> None:
        self.open: list[int] = []

    @property
    def top(self) -> int:
        """The innermost open label, NONE if there is none."""
        return self.open[-1] if self.open else NONE
