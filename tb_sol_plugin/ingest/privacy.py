"""Hides secrets in the names that a recording holds, once per distinct name, before anything is made of them or kept of them.

Names are those of kernels, operators, annotations, frames, threads, processes; raw arguments too. Tables hold each distinct text
once, so the cost is that of the dictionaries: one pass over their bytes picks the texts that can hold a secret at all.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin import redact
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.tables.arrays import Bytes, Ints, Mask, coded, from_codes


def _members(characters: str) -> Mask:
    return np.isin(np.arange(256), np.frombuffer(characters.encode(), np.uint8))


MANY: Final = 8
"""Pieces above which it pays to load what looks for all marks of secrets at once."""
PIECE: Final = 1 << 20
"""Characters of text in one pass, which takes some thirty times as many bytes of memory."""
_WORD, _HEX = _members(redact.WORD), _members(string.hexdigits)
_DIGIT, _CAPITAL, _SMALL = _members(string.digits), _members(string.ascii_uppercase), _members(string.ascii_lowercase)


def without_secrets(capture: Capture) -> Capture:
    """Returns the recording with `[redacted]` for what has the shape of a secret; the same object where nothing has.

    Two names that differ only in their secrets stay two: the second ends with ` (2)`.
    """
    types = [one for table in capture.tables.values() if len(table) for one in table.dtypes.tolist()]
    shared = {id(one.categories): one.categories for one in types if isinstance(one, pd.CategoricalDtype)}
    shown = _shown([str(text) for categories in shared.values() for text in categories.tolist()])
    facts = _facts(capture.facts)
    if not shown and facts is capture.facts:
        return capture
    renamed = {key: _renamed(categories, shown) for key, categories in shared.items()}
    tables = {name: _table(table, renamed) for name, table in capture.tables.items()}
    return Capture(facts, tables)


def _facts(facts: Facts) -> Facts:
    """Returns the facts with every text cleaned: what readers redact by its label, this does by its shape."""
    held = msgspec.to_builtins(facts)
    clean = _inside(held, labels=False)
    return facts if clean == held else msgspec.convert(clean, Facts)


def _table(table: pd.DataFrame, renamed: dict[int, pd.Index]) -> pd.DataFrame:
    new: dict[str, object] = {
        str(name): from_codes(coded(table[name]).codes, renamed[id(dtype.categories)])
        for name, dtype in table.dtypes.items()
        if isinstance(dtype, pd.CategoricalDtype) and renamed[id(dtype.categories)] is not dtype.categories
    } if len(table) else {}  # fmt: skip
    return table.assign(**new) if new else table  # type: ignore[arg-type]


def _renamed(categories: pd.Index, shown: dict[str, str]) -> pd.Index:
    texts = categories.tolist()
    if not any(text in shown for text in texts):
        return categories
    renamed: pd.Index = pd.Index([shown.get(text, text) for text in texts], dtype=categories.dtype)
    return renamed


def _shown(texts: list[str]) -> dict[str, str]:
    """Returns what is shown in place of each text that holds a secret; no two texts become the same one. Some may stand there twice."""
    out: dict[str, str] = {}
    by_shape: set[int] = set()
    labeled: set[int] = set()
    pieces = [*_pieces(texts)]
    for begin, end in pieces:
        for rows, found in zip((by_shape, labeled), _candidates(texts[begin:end], many=len(pieces) > MANY), strict=True):
            rows.update((begin + found).tolist())
    taken = set(texts) if by_shape or labeled else set()
    for row in sorted(by_shape | labeled):
        text = texts[row]
        if text in out:
            continue
        clean = _clean(text, shapes=row in by_shape)
        if clean == text:
            continue
        out[text] = redact.free_name(clean, taken)
        taken.add(out[text])
    return out


def _pieces(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yields (first, last + 1) of runs of texts that together hold `PIECE` characters, or a little more by their last one."""
    begin = size = 0
    for row, text in enumerate(texts):
        size += len(text)
        if size >= PIECE:
            yield begin, row + 1
            begin, size = row + 1, 0
    if begin < len(texts):
        yield begin, len(texts)


def _candidates(texts: Sequence[str], *, many: bool = False) -> tuple[Ints, Ints]:
    """Returns the rows of the texts that can hold a secret by its shape, and of those of JSON objects that can under a telling key.

    Over all bytes at once; no text is looked at alone. many: there are many such pieces, of which most hold none of the marks.
    """
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    data = b"\n".join(encoded)
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)) + 1)
    low = data.lower()
    found = [np.searchsorted(ends, _long_words(np.frombuffer(data, np.uint8)), "right")]
    if not many or _holds_mark(low):
        found += [_rows(low, mark.encode(), ends) for mark in redact.MARKS]
    labeled = np.zeros(0, np.int64)
    objects = np.fromiter((text.startswith(b"{") for text in encoded), np.bool_, len(encoded))
    if objects.any():
        labeled = np.concatenate([_rows(low, label.encode(), ends) for label in redact.LABELS])
        labeled = labeled[objects[labeled]]
    return np.unique(np.concatenate(found)).astype(np.int64), labeled


def _holds_mark(low: bytes) -> bool:
    """Whether any of the marks of secrets is in a text: one search for all, a tenth of the time of one for each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    marks = "|".join(re.escape(mark) for mark in redact.MARKS)
    return bool(pc.match_substring_regex(pa.array([low], pa.large_binary()), marks)[0].as_py())


def _long_words(data: Bytes) -> Ints:
    """Returns where the long words begin that read like hex or mix digits, capitals and small letters."""
    word = np.zeros(len(data) + 2, np.int8)
    word[1:-1] = _WORD[data]
    edges = np.flatnonzero(word[1:] != word[:-1])
    long = edges[1::2] - edges[::2] >= redact.LONG_WORD
    start, end = edges[::2][long], edges[1::2][long]
    mixed = np.ones(len(start), np.bool_)
    for kind in (_DIGIT, _CAPITAL, _SMALL):
        mixed &= _counted(kind[data], start, end) > 0
    return np.asarray(start[mixed | (_counted(_HEX[data], start, end) >= end - start - 1)], np.int64)


def _counted(hit: Mask, start: Ints, end: Ints) -> Ints:
    total = np.zeros(len(hit) + 1, np.int64)
    np.cumsum(hit, out=total[1:])
    return np.asarray(total[end] - total[start], np.int64)


def _rows(data: bytes, mark: bytes, ends: Ints) -> Ints:
    """Returns the rows of the texts that hold `mark`, one search per row that does."""
    rows: list[int] = []
    at = data.find(mark)
    while at >= 0:
        row = int(np.searchsorted(ends, at, "right"))
        rows.append(row)
        at = data.find(mark, int(ends[row]))
    return np.array(rows, np.int64)


def _clean(text: str, *, shapes: bool = True) -> str:
    """Returns a text without its secrets; JSON stays JSON. shapes: also those known by their shape, not by a telling key alone."""
    if text[:1] in ("{", "["):
        try:
            content = msgspec.json.decode(text)
            clean = _inside(content, shapes=shapes)
            return text if clean == content else msgspec.json.encode(clean).decode()
        except RecursionError:
            return redact.HIDDEN
        except (msgspec.MsgspecError, UnicodeError):
            pass  # a name that begins with a bracket
    return redact.name(text) if shapes else text


def _inside(content: object, *, labels: bool = True, shapes: bool = True) -> object:
    """Returns content of JSON without secrets. labels: a text under the name of a secret is one too, unless it is a number."""
    if isinstance(content, str):
        return redact.name(content) if shapes else content
    if isinstance(content, (list, tuple)):
        return type(content)(_inside(one, labels=labels, shapes=shapes) for one in content)
    if isinstance(content, dict):
        pairs = ((key, redact.HIDDEN if labels and _labeled(key, one) else one) for key, one in content.items())
        return {redact.name(key) if shapes else key: _inside(one, labels=labels, shapes=shapes) for key, one in pairs}
    return content


def _labeled(key: str, content: object) -> bool:
    return isinstance(content, str) and content != "" and not content.isdecimal() and redact.secret_name(key)
