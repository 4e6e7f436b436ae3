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
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

from tests.support.trace_builder import Raw, _value

IDS = {
    "correlation": "c", "External id": "c", "external id": "c", "Python id": "p", "Python parent id": "p", "Ev Idx": "e",
    "Sequence number": "s", "Record function id": "r",
}  # fmt: skip
"""Argument -> the family of numbers it belongs to; flow ids are of family c (launches) or f (autograd)."""
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
    written = 0
    for event in _copies(repeated, once, copies, span, widths, stride):
        target.write((",\n" if written else "") + _text(event))
        written += 1
    target.write("\n  ]\n}\n")
    return written


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


def _copies(
    repeated: list[dict[str, Any]], once: list[dict[str, Any]], copies: int, span: Decimal, widths: dict[str, int], stride: int
) -> Iterator[dict[str, Any]]:
    for k in range(copies):
        for event in repeated:
            moved = dict(event)
            moved["ts"] = Decimal(event["ts"]) + k * span
            name = str(event.get("name", ""))
            if name.startswith("ProfilerStep#"):
                moved["name"] = f"ProfilerStep#{int(name.partition('#')[2]) + k * stride}"
            if event.get("ph") in "stf" and isinstance(event.get("id"), int):
                moved["id"] = event["id"] + k * widths[_flow(event)]
            if k and isinstance(event.get("args"), dict):
                moved["args"] = {
                    key: value + k * widths[IDS[key]] if key in IDS and isinstance(value, int) and value < 2**53 else value
                    for key, value in event["args"].items()
                }
            yield moved
    yield from once


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
        packed = gzip.GzipFile(fileobj=stored, mode="wb", compresslevel=6, mtime=0) if options.target.suffix == ".gz" else stored
        with io.TextIOWrapper(io.BufferedWriter(packed, 1 << 20), encoding="utf-8", write_through=False) as text:  # type: ignore[type-var]
            written = multiply(options.source, options.copies, text)
    print(f"{written:,} events, {options.target.stat().st_size / 1e6:.1f} MB stored", file=sys.stderr)


if __name__ == "__main__":
    main()
