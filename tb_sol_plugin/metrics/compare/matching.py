"""Finds which names of two sides are of the same thing where they are not spelled alike: other releases name kernels and operators anew.

A name that only one side has goes with one of the other side that is the same without overload, architecture and tile sizes, or that is
spelled nearly alike and called as often. Where several would do nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

ALIKE: Final = 0.8
"""Share of pairs of letters that two names have in common (Dice) from which on they are spelled alike."""
AS_OFTEN: Final = 0.01
MOST: Final = 60
"""Names of a side that are compared letter by letter, those with most time."""
SYNONYMS: Final = {
    "cudnn_convolution": "convolution", "miopen_convolution": "convolution", "mkldnn_convolution": "convolution",
    "cudnn_batch_norm": "batch_norm", "miopen_batch_norm": "batch_norm", "native_batch_norm": "batch_norm",
    "_scaled_dot_product_flash_attention": "attention", "_scaled_dot_product_efficient_attention": "attention",
    "_scaled_dot_product_cudnn_attention": "attention", "_scaled_dot_product_flash_attention_for_cpu": "attention",
    "_flash_attention_forward": "attention_forward", "_efficient_attention_forward": "attention_forward",
    "_cudnn_attention_forward": "attention_forward", "_flash_attention_backward": "attention_backward",
    "_efficient_attention_backward": "attention_backward", "_cudnn_attention_backward": "attention_backward",
}  # fmt: skip
"""What operators of one meaning are called, by vendor and backend."""
_PARTS: Final = re.compile(r"(?:sm|gfx|v|ampere|volta|turing|hopper|cutlass)_?\d*|\d+x\d+(?:x\d+)*|stages?\d+|\d+", re.IGNORECASE)

_STEPS: Final = re.compile(r"::|/|: ")


@dataclass(frozen=True)
class Named:
    """What a name stands for on one side. of: what it belongs to. calls: per step. time: ns per step."""

    of: str
    calls: float
    time: float


def key_of(name: str, by: str) -> str:
    """Returns a name without what changes between releases: overloads, vendors, architectures, tile sizes; "" where nothing is left."""
    if by == "operator":
        space, colons, rest = name.rpartition("::")
        rest = rest.partition(".")[0].removesuffix("_")
        return f"{space}{colons}{SYNONYMS.get(rest, rest)}"
    if by == "kernel":
        return "_".join(part for part in re.split(r"[^A-Za-z]+", _PARTS.sub("_", name)) if part).lower()
    return name


def renamed(a: Mapping[str, Named], b: Mapping[str, Named], by: str) -> dict[str, str]:
    """Returns, of names that only B has, those of A that they go with. a, b: names that the other side does not have."""
    out: dict[str, str] = {}
    ours, theirs = _by_key(a, by), _by_key(b, by)
    for key, names in theirs.items():
        others = ours.get(key, [])
        if key and len(names) == len(others) == 1:
            out[names[0]] = others[0]
    gone = set(out.values())
    left_a = sorted((n for n in a if n not in gone), key=lambda n: -a[n].time)[:MOST]
    left_b = sorted((n for n in b if n not in out), key=lambda n: -b[n].time)[:MOST]
    near = [(alike(x, y), y, x) for y in left_b for x in left_a if _may_be(a[x], b[y])]
    for share, y, x in sorted((n for n in near if n[0] >= ALIKE), key=lambda n: (-n[0], n[1], n[2])):
        rivals = [n for n in near if n[0] >= share and (n[1] == y) != (n[2] == x)]
        if y not in out and x not in out.values() and not rivals:
            out[y] = x
    return out


def _by_key(names: Iterable[str], by: str) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for name in names:
        out.setdefault(key_of(name, by), []).append(name)
    return out


def _may_be(a: Named, b: Named) -> bool:
    return a.of == b.of and a.calls > 0 and abs(a.calls - b.calls) <= AS_OFTEN * a.calls


def alike(a: str, b: str) -> float:
    """Returns how nearly alike two names are spelled, 0 to 1, leaving out the parts of their paths that are the same."""
    left, right = _STEPS.split(a), _STEPS.split(b)
    for end in (0, -1):
        while left and right and left[end] == right[end]:
            left.pop(end)
            right.pop(end)
    return _dice(_pairs("/".join(left)), _pairs("/".join(right)))


def _pairs(name: str) -> frozenset[str]:
    return frozenset(name[i : i + 2] for i in range(len(name) - 1))


def _dice(a: frozenset[str], b: frozenset[str]) -> float:
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0
