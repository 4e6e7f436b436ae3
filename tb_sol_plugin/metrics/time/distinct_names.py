"""Gives kernels short names that no other kernel of the recording has: where two are alike, what tells them apart is added.

short_names(["void fill<4, Fill<float>>(…)", "void fill<4, Fill<int>>(…)"])   # "fill<Fill> · float", "fill<Fill> · int"
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.time.kernel_names import plain_name

TOKEN: Final = re.compile(r"#\d+|[^\W_]+|[*&]")
"""A word of a name: letters and digits; the number of a lambda; what makes a pointer or a reference."""
BEFORE: Final = " · "
MOST_WORDS: Final = 12
"""Words that are added to a short name."""
BUILTIN: Final = {
    "f": "float", "d": "double", "b": "bool", "i": "int", "l": "long", "x": "long long", "j": "unsigned", "m": "unsigned long",
    "h": "uint8", "a": "int8", "s": "short", "DF16_": "half", "DF16b": "bfloat16",
}  # fmt: skip
NAMESPACE: Final = re.compile(r"(?:\b\w+::)+")
_MANGLED: Final = re.compile(
    r"(?:L[a-z]|E)(?P<literal>n?\d+)E|(?P<length>(?<!\d)\d{1,9})(?=[A-Za-z_])|(?P<type>DF16[_b]|[fdbilxjmhas])|.", re.DOTALL
)


def short_names(names: Sequence[str], plain: Sequence[str] = ()) -> list[str]:
    """Returns the short name of each of several different names, uncut: no two are the same. plain: their `plain_name`, where known."""
    out = list(plain or map(plain_name, names))
    code, distinct = pd.factorize(np.array(out, object))
    often = np.bincount(code, minlength=len(distinct))[code] > 1
    alike: dict[str, list[int]] = {}
    for i in np.flatnonzero(often).tolist():
        alike.setdefault(out[i], []).append(i)
    for text, rows in alike.items():
        for i, words in zip(rows, _apart([names[i] for i in rows]), strict=True):
            out[i] = f"{text}{BEFORE}{words}" if words else text
    return out


def _apart(names: list[str]) -> list[str]:
    """Returns for each of several names the words in which it differs from the others, as few as tell all of them apart."""
    split = [_words(NAMESPACE.sub("", n)) for n in names]
    if len({tuple(words) for words in split}) < len(names):
        split = [_words(n) for n in names]
    columns = list(zip(*split, strict=True)) if len({len(words) for words in split}) == 1 else _loose(split)
    order = sorted((c for c in dict.fromkeys(columns) if len(set(c)) > 1), key=lambda c: any(w.startswith("#") for w in c))
    chosen: list[tuple[str, ...]] = []
    told, codes = 1, [0] * len(names)
    for column in order[: 20 * MOST_WORDS]:
        seen: dict[tuple[int, str], int] = {}
        more = [seen.setdefault(pair, len(seen)) for pair in zip(codes, column, strict=True)]
        if len(seen) > told:
            told, codes = len(seen), more
            chosen.append(column)
        if told == len(names) or len(chosen) == MOST_WORDS:
            break
    texts = [", ".join(w for w in words if w) for words in zip(*chosen, strict=True)] if chosen else [""] * len(names)
    count: Counter[str] = Counter()
    for i, text in enumerate(texts):  # what differs in no word is numbered, in the order of the names
        count[text] += 1
        if count[text] > 1:
            texts[i] = f"{text} ({count[text]})".lstrip()
    return texts


def _loose(split: list[list[str]]) -> list[tuple[str, ...]]:
    """Returns columns of words of names with different numbers of them: the first words of each that not all of them have."""
    counts = [Counter(words) for words in split]
    shared = counts[0].copy()
    for one in counts[1:]:
        shared &= one
    rest = []
    for words in split:
        left, own = shared.copy(), []
        for word in words:
            if left[word] > 0:
                left[word] -= 1
            elif word not in own:
                own.append(word)
        rest.append(own)
    longest = max(map(len, rest))
    return [tuple(own[i] if i < len(own) else "" for own in rest) for i in range(min(longest, 20 * MOST_WORDS))]


def _words(name: str) -> list[str]:
    if name.startswith("_Z"):
        return _mangled_words(name)
    return TOKEN.findall(name)


def _mangled_words(name: str) -> list[str]:
    """Returns identifiers, numbers and builtin types of an Itanium-mangled symbol."""
    out, at = [], 2
    while at < len(name) and (found := _MANGLED.match(name, at)):
        at = found.end()
        if found["length"]:
            out.append(name[at : at + int(found["length"])])
            at += int(found["length"])
        elif found["literal"]:
            out.append(found["literal"].replace("n", "-"))
        elif found["type"]:
            out.append(BUILTIN[found["type"]])
    return out
