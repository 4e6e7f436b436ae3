"""Hides secrets in the names that a recording holds, once per distinct name, before anything is made of them or kept of them.

Names are those of kernels, operators, annotations, frames, threads, processes; raw arguments too. Tables hold each distinct text
once, so the cost is that of the dictionaries: one pass over their bytes picks the texts that can hold a secret at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin import redact
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.tables.arrays import Ints

_WORD = np.isin(np.arange(256), np.frombuffer(redact.WORD.encode(), np.uint8))


def without_secrets(capture: Capture) -> Capture:
    """Returns the recording with `[redacted]` for what has the shape of a secret; the same object where nothing has.

    Two names that differ only in their secrets stay two: the second ends with ` (2)`.
    """
    shared = {id(c): c for c in (c.cat.categories for c in _text_columns(capture))}
    known = dict.fromkeys(str(text) for categories in shared.values() for text in categories.tolist())
    shown = _shown(list(known))
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


def _text_columns(capture: Capture) -> Iterable[pd.Series]:
    for table in capture.tables.values():
        for name, dtype in table.dtypes.items():
            if isinstance(dtype, pd.CategoricalDtype):
                yield table[name]


def _table(table: pd.DataFrame, renamed: dict[int, pd.Index]) -> pd.DataFrame:
    new: dict[str, object] = {
        str(name): pd.Categorical.from_codes(table[name].cat.codes.to_numpy(), dtype=pd.CategoricalDtype(renamed[id(dtype.categories)]))
        for name, dtype in table.dtypes.items()
        if isinstance(dtype, pd.CategoricalDtype) and renamed[id(dtype.categories)] is not dtype.categories
    }
    return table.assign(**new) if new else table  # type: ignore[arg-type]


def _renamed(categories: pd.Index, shown: dict[str, str]) -> pd.Index:
    texts = categories.tolist()
    if not any(text in shown for text in texts):
        return categories
    renamed: pd.Index = pd.Index([shown.get(text, text) for text in texts], dtype=categories.dtype)
    return renamed


def _shown(texts: list[str]) -> dict[str, str]:
    """Returns what is shown in place of each text that holds a secret; no two texts become the same one."""
    out: dict[str, str] = {}
    taken = set(texts)
    for row in _candidates(texts).tolist():
        text = texts[row]
        clean = shown = _clean(text)
        if clean == text:
            continue
        number = 2
        while shown in taken:
            shown, number = f"{clean} ({number})", number + 1
        taken.add(shown)
        out[text] = shown
    return out


def _candidates(texts: Sequence[str]) -> Ints:
    """Returns the rows of the texts that can hold a secret: one pass over all bytes, no text is looked at alone.

    A text of JSON (one that begins with a brace) can hold one under a telling key too.
    """
    if not texts:
        return np.zeros(0, np.int64)
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    data = b"\n".join(encoded)
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)) + 1)
    word = np.zeros(len(data) + 2, np.int8)
    word[1:-1] = _WORD[np.frombuffer(data, np.uint8)]
    edges = np.flatnonzero(word[1:] != word[:-1])
    long = edges[::2][edges[1::2] - edges[::2] >= redact.LONG_WORD]
    low = data.lower()
    found = [np.searchsorted(ends, long, "right")]
    found += [_rows(low, mark.encode(), ends) for mark in redact.MARKS]
    objects = np.fromiter((text.startswith(b"{") for text in encoded), np.bool_, len(encoded))
    if objects.any():
        labeled = np.concatenate([_rows(low, label.encode(), ends) for label in redact.LABELS])
        found.append(labeled[objects[labeled]])
    return np.unique(np.concatenate(found)).astype(np.int64)


def _rows(data: bytes, mark: bytes, ends: Ints) -> Ints:
    """Returns the rows of the texts that hold `mark`, one search per row that does."""
    rows: list[int] = []
    at = data.find(mark)
    while at >= 0:
        row = int(np.searchsorted(ends, at, "right"))
        rows.append(row)
        at = data.find(mark, int(ends[row]))
    return np.array(rows, np.int64)


def _clean(text: str) -> str:
    """Returns a text without its secrets; JSON stays JSON."""
    if text[:1] in ("{", "["):
        try:
            content = msgspec.json.decode(text)
            clean = _inside(content)
            return text if clean == content else msgspec.json.encode(clean).decode()
        except RecursionError:
            return redact.HIDDEN
        except (msgspec.MsgspecError, UnicodeError):
            pass  # a name that begins with a bracket
    return redact.name(text)


def _inside(content: object, *, labels: bool = True) -> object:
    """Returns content of JSON without secrets. labels: a text under the name of a secret is one too, unless it is a number."""
    if isinstance(content, str):
        return redact.name(content)
    if isinstance(content, (list, tuple)):
        return type(content)(_inside(one, labels=labels) for one in content)
    if isinstance(content, dict):
        pairs = ((key, redact.HIDDEN if labels and _labeled(key, one) else one) for key, one in content.items())
        return {redact.name(key): _inside(one, labels=labels) for key, one in pairs}
    return content


def _labeled(key: str, content: object) -> bool:
    return isinstance(content, str) and content != "" and not content.isdecimal() and redact.secret_name(key)
