"""Hostile texts of any size, and how the time of reading them grows: `python -m tests.fuzz.growth --largest 10000000`.

Each shape is a function of a number of bytes. The run doubles the size from 10 kB on, prints CPU seconds and ends with status 1 where
the largest text took more than `FACTOR` per doubling. The test in `tests/unit/ingest/test_growth.py` does the same with two sizes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import SolError
from tb_sol_plugin.format import FORMAT

FACTOR: Final = 2.2
"""What doubling a text may cost, at most."""
FREE: Final = 0.25
"""CPU seconds below which growth says nothing: compiling, imports, the bounded search behind damaged events."""
EVENT: Final = b'{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":2}'
KERNEL: Final = b'{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":3,"dur":2,"args":{"correlation":1,"device":0,"stream":7}}'


def _events(text: bytes) -> bytes:
    return b'{"traceEvents":[' + EVENT + b"," + text


def _repeated(head: bytes, piece: bytes, tail: bytes = b"") -> Callable[[int], bytes]:
    return lambda size: head + piece * (max(size - len(head) - len(tail), 0) // len(piece)) + tail


def _numbered(head: bytes, piece: bytes, tail: bytes) -> Callable[[int], bytes]:
    """Pieces that hold a running number in the place of `%d`."""
    return lambda size: head + b",".join(piece.replace(b"%d", b"%d" % i) for i in range(size // (len(piece) + 5) + 1)) + tail


def _event(**fields: object) -> bytes:
    shown = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2} | fields
    return json.dumps(shown, separators=(",", ":")).encode()


def _pairs(opening: bytes, closing: bytes, head: bytes, tail: bytes) -> Callable[[int], bytes]:
    return lambda size: head + opening * (size // (len(opening) + len(closing))) + closing * (size // (len(opening) + len(closing))) + tail


def _call_stacks(size: int) -> bytes:
    """A Proton trace of few kernels whose call stacks are deep."""
    stack = [f"f{i}" for i in range(size // 60)]
    events = [_event(cat="kernel", name="k", args={"call_stack": stack[i:]}) for i in range(3)]
    return b'{"displayTimeUnit":"us","traceEvents":[' + b",".join([_event(cat="scope", args={"call_stack": ["x"]}), *events]) + b"]}"


TRACE: Final = "worker.pt.trace.json"
SHAPES: Final[dict[str, tuple[str, Callable[[int], bytes]]]] = {
    "header string of escapes": (TRACE, _repeated(b'{"x":"', b'\\"', b'","traceEvents":[' + EVENT + b"]}")),
    "header string that does not close": (TRACE, _repeated(b'{"x":"', b'\\"')),
    "string behind the events that does not close": (TRACE, _repeated(_events(EVENT + b'],"x":"'), b'\\"')),
    "header of many keys": (TRACE, _numbered(b"{", b'"k%d":[1]', b',"traceEvents":[' + EVENT + b"]}")),
    "header of lists": (TRACE, _repeated(b'{"metadata":{"a":[', b"[],", b'0]},"traceEvents":[' + EVENT + b"]}")),
    "header of deep lists": (TRACE, _pairs(b"[", b"]", b'{"metadata":', b',"traceEvents":[' + EVENT + b"]}")),
    "header of objects without events": ("x.json", _repeated(b'{"traceEvents":[]}', b"{}")),
    "entries that are no events": (TRACE, _repeated(_events(b"7"), b",7", b"]}")),
    "entries that are lists": (TRACE, _repeated(_events(b"7"), b",[]", b"]}")),
    "strings that are no events": (TRACE, _repeated(_events(b"7"), b',"\\""', b"]}")),
    "damaged events between good ones": (TRACE, _repeated(_events(b"7"), b',{"ph" 1},' + EVENT, b"]}")),
    "events cut within each other": (TRACE, _repeated(_events(b""), b'{"args":{"x":')),
    "lists of events cut within each other": (TRACE, _repeated(_events(b""), b'{"name":"x","args":[')),
    "name that does not close": (TRACE, _repeated(_events(b'{"ph":"X","name":"'), b'\\"')),
    "braces that close nothing": (TRACE, _repeated(_events(b"7"), b",}", b"]}")),
    "space everywhere": (TRACE, _repeated(b'{"traceEvents":[', b" ", EVENT + b"]}")),
    "one long name": (TRACE, lambda size: _events(_event(name="a" * size)) + b"]}"),
    "one long argument": (TRACE, lambda size: _events(_event(args={"Input Dims": [[8] * (size // 2)]})) + b"]}"),
    "a category per event": (TRACE, _numbered(b"[", _event(cat="c%d"), b"]")),
    "a phase per event": (TRACE, _numbered(b"[", _event(ph="p%d"), b"]")),
    "a thread per event": (TRACE, _numbered(b"[", _event(tid="t%d"), b"]")),
    "an argument per event": (TRACE, _numbered(b"[", _event(args={"a%d": 1}), b"]")),
    "times in unusual forms": (TRACE, _numbered(b"[", _event(ts="1e%d"), b"]")),
    "digits without end": (TRACE, lambda size: _events(_event(args={"correlation": "9" * (size // 2)}, ts="9" * (size // 2))) + b"]}"),
    "operators within each other": (
        TRACE, lambda size: b"[" + b",".join(_event(ts=i, dur=10**9 - 2 * i) for i in range(size // 80)) + b"]",
    ),
    "begins without ends": (TRACE, _numbered(b"[", _event(ph="B"), b"]")),
    "kernels of one launch": (TRACE, _repeated(b"[" + KERNEL, b"," + KERNEL, b"]")),
    "flows of one number": (TRACE, _numbered(b"[", _event(ph="s", id=1), b"]")),
    "shapes within each other": (TRACE, lambda size: _events(_event(args={"Input Dims": 0})[:-3] + b"[" * (size // 2) + b"]" * (size // 2) + b"}}]}")),
    "timeline whose times do not end": ("memory.json", _repeated(b"[[", b"1,")),
    "timeline of brackets": ("memory.json", _repeated(b"[[1,2],", b"[")),
    "timeline of space": ("memory.json", _repeated(b"[[1,2]", b" ", b",[[0,1,2,3,4,5,6,7,8]]]")),
    "timeline of changes": ("memory.raw.json.gz", _repeated(b"[[1,1,8,0]", b",[1,2,8,0]", b"]")),
    "profile whose string does not close": ("x.hatchet", _repeated(b'[{"frame":{"name":"', b'\\"')),
    "profile of deep frames": ("x.hatchet", _pairs(b'{"frame":{"name":"a"},"metrics":{},"children":[', b"]}", b"[", b",{}]")),
    "packed profile of deep lists": ("x.hatchet", lambda size: b"\x92\x83\xa5frame" + b"\x91" * size),
    "Proton trace of deep call stacks": ("proton.json", _call_stacks),
    "Proton trace of many objects": ("proton.json", _repeated(b'{"traceEvents":[' + _event(args={"call_stack": ["a"]}) + b"]}", b'{"traceEvents":[]}\n')),
    "SOL log of one line": ("x.sol.jsonl", _repeated(b'{"kind":"header","format":"' + FORMAT.encode() + b'","x":"', b'\\"')),
    "SOL log of short lines": ("x.sol.jsonl", _repeated(b'{"kind":"header","format":"' + FORMAT.encode() + b'","version":[2,0]}\n', b"{}\n")),
    "SOL log of labels within each other": (
        "x.sol.jsonl",
        lambda size: b'{"kind":"header","format":"' + FORMAT.encode() + b'","version":[2,0]}\n'
        + b"".join(b'{"kind":"label","id":%d,"what":"module","parent":%d,"name":"a"}\n' % (i, i - 1) for i in range(size // 55)),
    ),
    "pickle that does not end": ("x.pickle", _repeated(b"\x80\x04segments", b"]")),
    "list of other lists": ("x.json", _repeated(b"[[1,", b'["ph",', b"")),
    "list of strings that do not close": ("x.json", _repeated(b'[{"ph', b'\\"')),
}  # fmt: skip


def seconds(name: str, size: int, folder: Path) -> float:
    """Returns the CPU seconds of classifying and reading one shape of so many bytes; an error of ours is an answer too."""
    file, make = SHAPES[name]
    path = folder / file
    path.write_bytes(make(size))
    begin = time.process_time()
    try:
        ingest.classify(ingest.head(str(path)), file)
        ingest.read(str(path))
    except SolError:
        pass
    return time.process_time() - begin


def too_steep(small: float, large: float, doublings: float, factor: float = FACTOR) -> bool:
    """Whether the time of the larger text is more than linear in its size: more than `factor` times per doubling."""
    return large > FREE and large > small * factor**doublings


def main(arguments: list[str]) -> int:
    """Print a line per shape; the status is 1 where one grows faster than linearly."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.growth", description=__doc__)
    parser.add_argument("shapes", nargs="*", help="names of shapes, or parts of them (default: all)")
    parser.add_argument("--largest", type=int, default=10_000_000, help="bytes of the largest text")
    options = parser.parse_args(arguments)
    steep = []
    with tempfile.TemporaryDirectory(prefix="tb-sol-growth-") as folder:
        for name in SHAPES:
            if options.shapes and not any(part in name for part in options.shapes):
                continue
            seconds(name, 10_000, Path(folder))
            sizes = [10_000 << k for k in range(int(math.log2(options.largest / 10_000)) + 1)]
            taken: list[float] = []
            for size in sizes:
                taken.append(seconds(name, size, Path(folder)))
                if taken[-1] > 20:
                    break
            bad = any(b > 1 and too_steep(a, b, 1) for a, b in pairwise(taken)) or taken[-1] > 20
            steep += [name] * bad
            print(f"{'STEEP ' if bad else ''}{name}: {' '.join(f'{t:.3f}' for t in taken)}", flush=True)
    return 1 if steep else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
