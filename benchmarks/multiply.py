"""A big trace from a small one: `python -m benchmarks.multiply TRACE COPIES OUT[.gz]`.

Each copy is moved behind the one before it, with correlation, external, python, flow and sequence numbers of its own, so that links stay
within a copy. Metadata and the header are written once. Times stay exact: they are handled as decimal text.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from isal import igzip

from tests.support.trace_builder import Raw, _value

IDS = {
    "correlation": "c", "External id": "c", "external id": "c", "Python id": "p", "Python parent id": "p", "Ev Idx": "e",
    "Sequence number": "s", "Record function id": "r",
}  # fmt: skip
"""Argument -> the family of numbers it belongs to; flow ids are of family c (launches) or f (autograd)."""
_TIME, _NUMBER = "\x00", "\x01"
"""Characters that JSON never writes as they are: places of a time and of a number."""
ONCE = {"Record Window End", "PyTorch Profiler (0)"}


def multiply(source: Path, copies: int, target: TextIO) -> int:
    """Write `copies` of the events of `source`; returns the number of events written."""
    data = source.read_bytes()
    trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, parse_float=Decimal)
    events: list[dict[str, Any]] = trace.pop("traceEvents")
    repeated = [e for e in events if e.get("ph") != "M" and e.get("name") not in ONCE and e.get("cat") != "Trace"]
    once = [e for e in events if e.get("ph") == "M"]
    low = min(Decimal(e["ts"]) for e in repeated)
    span = max(Decimal(e["ts"]) + Decimal(e.get("dur", 0)) for e in repeated) - low + 1000
    widths = _widths(repeated)
    steps = {int(e["name"].partition("#")[2]) for e in repeated if str(e.get("name", "")).startswith("ProfilerStep#")}
    stride = max(steps) - min(steps) + 1 if steps else 0

    for key, value in trace.items():
        target.write(f"{'{' if key == next(iter(trace)) else ','}\n  {json.dumps(key)}: {_value(_raw(value))}")
    target.write(("," if trace else "{") + '\n  "traceEvents": [\n')
    form = _Form(repeated, span, widths, stride)
    texts = [*(form.copy(k) for k in range(copies)), *([",\n".join(map(_text, once))] if once else [])] if repeated or once else []
    for at, text in enumerate(texts):
        target.write((",\n" if at else "") + text)
    target.write("\n  ]\n}\n")
    return len(repeated) * copies + len(once)


class _Form:
    """The text of one copy with a place for each of its numbers that differ from copy to copy: filled in at once, not event by event."""

    def __init__(self, events: list[dict[str, Any]], span: Decimal, widths: dict[str, int], stride: int) -> None:
        self._base: list[int] = []
        self._step: list[int] = []
        times = [Decimal(e["ts"]) for e in events]
        self._digits = max([0, *(-int(t.as_tuple().exponent) for t in [*times, span])])
        self._time = [int(t.scaleb(self._digits)) for t in times]
        self._span = int(span.scaleb(self._digits))
        texts = [_text(self._with_places(e, widths, stride)) for e in events]
        self._text = ",\n".join(texts).replace("%", "%%").replace(_TIME, "%s").replace(_NUMBER, "%d")
        self._is_time = np.array([c == _TIME for c in "".join(c for text in texts for c in text if c in (_TIME, _NUMBER))], np.bool_)

    def _with_places(self, event: dict[str, Any], widths: dict[str, int], stride: int) -> dict[str, Any]:
        moved = dict(event)
        for key, value in event.items():  # in the order in which they are written
            if key == "ts":
                moved[key] = Raw(_TIME)
            elif key == "name" and str(value).startswith("ProfilerStep#"):
                moved[key] = self._place(int(value.partition("#")[2]), stride, "ProfilerStep#")
            elif key == "id" and event.get("ph") in "stf" and isinstance(value, int):
                moved[key] = self._place(value, widths[_flow(event)])
            elif key == "args" and isinstance(value, dict):
                moved[key] = {
                    k: self._place(v, widths[IDS[k]]) if k in IDS and isinstance(v, int) and v < 2**53 else v for k, v in value.items()
                }
        return moved

    def _place(self, value: int, step: int, word: str = "") -> Raw:
        self._base.append(value)
        self._step.append(step)
        return Raw(f'"{word}{_NUMBER}"' if word else _NUMBER)

    def copy(self, k: int) -> str:
        """Returns the text of the events of one copy."""
        values = np.empty(len(self._is_time), object)
        values[self._is_time] = [_fixed(t + k * self._span, self._digits) for t in self._time]
        values[~self._is_time] = [base + k * step for base, step in zip(self._base, self._step, strict=True)]
        return self._text % tuple(values)


def _fixed(value: int, digits: int) -> str:
    """Returns a whole number of 10^-digits as decimal text."""
    sign, whole = ("-", -value) if value < 0 else ("", value)
    text = str(whole).rjust(digits + 1, "0")
    return sign + (f"{text[:-digits]}.{text[-digits:]}" if digits else text)


def _widths(events: list[dict[str, Any]]) -> dict[str, int]:
    """One more than the largest number of each family."""
    out = {"c": 0, "p": 0, "e": 0, "s": 0, "r": 0, "f": 0}
    for event in events:
        for key, family in IDS.items():
            value = event.get("args", {}).get(key) if isinstance(event.get("args"), dict) else None
            if isinstance(value, int) and value < 2**53:
                out[family] = max(out[family], value + 1)
        if event.get("ph") in "stf" and isinstance(event.get("id"), int):
            out[_flow(event)] = max(out[_flow(event)], event["id"] + 1)
    return out


def _flow(event: dict[str, Any]) -> str:
    return "f" if event.get("cat") in ("fwdbwd", "forward_backward") else "c"


def _text(event: dict[str, Any]) -> str:
    parts = []
    for key, value in event.items():
        parts.append(f"    {json.dumps(key)}: {_value(_raw(value))}")
    return "  {\n" + ",\n".join(parts) + "\n  }"


def _raw(value: Any) -> Any:
    """Decimals as their own text, nothing through a float."""
    if isinstance(value, Decimal):
        return Raw(format(value, "f"))
    if isinstance(value, list):
        return [_raw(v) for v in value]
    if isinstance(value, dict):
        return {k: _raw(v) for k, v in value.items()}
    return value


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.multiply", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, metavar="TRACE")
    parser.add_argument("copies", type=int, metavar="COPIES")
    parser.add_argument("target", type=Path, metavar="OUT")
    options = parser.parse_args()
    with options.target.open("wb") as stored:
        packed = igzip.GzipFile(fileobj=stored, mode="wb", compresslevel=2, mtime=0) if options.target.suffix == ".gz" else stored
        with io.TextIOWrapper(io.BufferedWriter(packed, 1 << 20), encoding="utf-8", write_through=False) as text:  # type: ignore[type-var]
            written = multiply(options.source, options.copies, text)
    print(f"{written:,} events, {options.target.stat().st_size / 1e6:.1f} MB stored", file=sys.stderr)


if __name__ == "__main__":
    main()
