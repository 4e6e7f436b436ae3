"""LAYER 4: bytes to Capture. Classifies a file by its content (its name only decides between equals) and picks its reader."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final, Literal

import msgspec

from tb_sol_plugin.errors import NotATrace
from tb_sol_plugin.format import FORMAT, SUFFIX
from tb_sol_plugin.ingest.source import Progress, Report, base_name, head
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.process import give_back
from tb_sol_plugin.tables.compiled import import_numba

CERTAIN = re.compile(r"^(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$")
"""Names that torch's own handler writes: worker, span."""
_SOL = re.compile(rb'"format"\s*:\s*"' + FORMAT.encode() + rb'"')
_SOL_NAME = re.compile(re.escape(SUFFIX) + r"(?:\.gz)?$")
_PROTON_NAME = re.compile(r"\.hatchet(?:_msgpack)?(?:\.gz)?$", re.IGNORECASE)
_PROTON_PACKED = b"\x92\x83\xa5frame"
"""MessagePack of two parts whose first is a frame."""
_KINETO = re.compile(rb'"(?:deviceProperties|schemaVersion|baseTimeNanoseconds|cuda_runtime_version)"\s*:')
PROTON: Final = "Proton profile"
PROTON_TRACE: Final = "Proton trace"
CYCLES: Final = "its times are cycles of single warps, which no page here shows: open it in Perfetto"
TIMELINE: Final = "memory timeline"
SNAPSHOT: Final = "memory snapshot"
PICTURE: Final = 'its numbers are in the picture only: export them with prof.export_memory_timeline("memory.json", device="cuda:0")'
_TIMELINE: Final = re.compile(rb"\[\s*\[[\s\d,.+\-eE]*(?:\]|$)")
"""The first inner list holds numbers only."""
_PICKLED: Final = re.compile(rb"\x80[\x02-\x05]")
_PICKLE_NAME: Final = re.compile(r"\.(?:pickle|pkl)(?:\.gz)?$", re.IGNORECASE)
_PICTURE: Final = re.compile(rb"<title>\s*GPU Memory Timeline")


class Classification(msgspec.Struct, frozen=True):
    """kind: kineto, sol_capture, proton, memory_timeline and memory_snapshot are recordings; the others are recognized and not opened.

    what: for a person. note: what to do with it.
    """

    kind: Literal[
        "kineto", "sol_capture", "proton", "memory_timeline", "memory_snapshot",
        "proton_cycles", "memory_picture", "other_pickle", "execution_trace", "other_json", "not_json", "empty",
    ]  # fmt: skip
    what: str
    note: str = ""


def classify(head: bytes, name: str) -> Classification:
    """Classifies a file by its first bytes (uncompressed, 64 kB are plenty) and the base name."""
    certain = CERTAIN.match(name) is not None
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _SOL_NAME.search(name) or (text[:1] == b"{" and _SOL.search(text.partition(b"\n")[0])):
        return Classification("sol_capture", "SOL capture" if text else "a SOL capture without content yet")
    if _PROTON_NAME.search(name) or head.startswith(_PROTON_PACKED):
        return Classification("proton", PROTON if text else f"{PROTON} without content yet")
    if _PICKLED.match(head) or (_PICKLE_NAME.search(name) and text):
        if b"segment" in head or b"device_traces" in head:
            return Classification("memory_snapshot", SNAPSHOT)
        return Classification("other_pickle", "a pickle that is no memory snapshot", "never opened: a pickle can run code")
    if text[:1] == b"<" and _PICTURE.search(text):
        return Classification("memory_picture", "picture of a memory timeline", PICTURE)
    if not text:
        return Classification("kineto", "a trace without content yet") if certain else Classification("empty", "an empty file", "skipped")
    if text[:1] == b"{":
        return _object(text, certain)
    if text[:1] == b"[":
        return _list(text, certain)
    return Classification("kineto", "a trace that is not JSON") if certain else Classification("not_json", "not JSON", "skipped")


def _object(text: bytes, certain: bool) -> Classification:
    """Classify the beginning of a JSON object. certain: the name is one of a PyTorch trace."""
    events = b'"traceEvents"' in text
    if events and b'"Finalization Time (ns)"' in text:
        return Classification("proton_cycles", "trace of Proton from inside of kernels", CYCLES)
    if events and b'"call_stack"' in text and not certain and not _KINETO.search(text):
        return Classification("kineto", PROTON_TRACE)
    if events or certain:
        return Classification("kineto", "PyTorch profiler trace")
    if b'"nodes"' in text and b'"pid"' in text and b'"schema"' in text:
        return Classification("execution_trace", "execution trace, not a timed trace", "record a profiler trace beside it")
    if b'"deviceProperties"' in text or b'"baseTimeNanoseconds"' in text or (b'"schemaVersion"' in text and b'"record_shapes"' in text):
        return Classification("kineto", "PyTorch profiler trace")
    return Classification("other_json", "JSON without trace events", "skipped after the first 64 kB")


def _list(text: bytes, certain: bool) -> Classification:
    """Classify the beginning of a JSON list. certain: the name is one of a PyTorch trace."""
    inner = text[1:].lstrip()[:1]
    if inner == b"{" and _has_phase(text):
        return Classification("kineto", "list of trace events")
    if inner == b"{" and b'"children"' in text and not certain:
        return Classification("proton", PROTON)
    if inner == b"[":
        if _TIMELINE.match(text):
            return Classification("memory_timeline", TIMELINE)
        return Classification("other_json", "JSON list of lists", "skipped")
    if certain:
        return Classification("kineto", "a trace without events")
    return Classification("other_json", "JSON list without trace events", "skipped")


_STRING: Final = re.compile(rb'("ph"\s*:)|"[^"\\]*(?:\\(?:.|\Z)[^"\\]*)*(?:"|\Z)', re.DOTALL)
"""The key `ph`, or a string; one that does not close goes on to the end, so that no byte is looked at twice."""
_DEPTH: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_MARK: Final = bytes(set(range(256)) - {*_DEPTH, ord('"')})


def _has_phase(text: bytes) -> bool:
    """Whether an object in the list has a `ph` of its own: rows of other lists may hold one deeper down. Grows linearly."""
    if b'"ph"' not in text:
        return False
    marks = _STRING.sub(lambda m: m[1] or b"", text).translate(None, _NO_MARK)  # brackets, and two quotes per `ph`
    depths = accumulate(_DEPTH.get(mark, 0) for mark in marks)
    return any(mark == ord('"') and depth == 2 for mark, depth in zip(marks, depths, strict=True))


FORMAT_VERSION = 21
"""Part of every cache key: raise it when the tables of a Capture, or what stands in them, change."""


def read(path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None) -> Capture:
    """Read one recording (local path or fsspec URL), by its content, without the secrets in its names.

    BadInput or NotATrace where it holds none.
    """
    from tb_sol_plugin.ingest.privacy import without_secrets

    capture = _read(path, fs_options=fs_options, progress=progress)
    many = capture.facts.total_events > MANY
    if many:
        give_back()
    capture = without_secrets(capture)
    if many:
        give_back()
    return capture


MANY: Final = 200_000
"""Events from which on what reading needed is given back to the system at once: some 100 bytes each, for 10 ms."""


def _read(path: str, *, fs_options: dict[str, object] | None, progress: Report | None) -> Capture:
    found = classify(head(path, fs_options=fs_options), base_name(path))
    if found.kind == "proton":
        from tb_sol_plugin.ingest import proton

        return proton.read(path, fs_options=fs_options, progress=progress)
    if found.what == PROTON_TRACE:
        from tb_sol_plugin.ingest.proton import chrome

        return chrome.read(path, fs_options=fs_options, progress=progress)
    if found.kind == "memory_timeline":
        from tb_sol_plugin.ingest.memory import timeline

        return timeline.read(path, fs_options=fs_options, progress=progress)
    if found.kind == "memory_snapshot":
        from tb_sol_plugin.ingest.memory import snapshot

        return snapshot.read(path, fs_options=fs_options, progress=progress)
    if found.kind in ("proton_cycles", "memory_picture", "other_pickle"):
        raise NotATrace(f"this is a {found.what}", hint=found.note, file=base_name(path))
    if found.kind == "sol_capture":
        from tb_sol_plugin.ingest.sol import reader as sol

        return sol.read(path, fs_options=fs_options, progress=progress)
    import_numba()  # the reader's own imports are deeper: see `import_libraries`
    from tb_sol_plugin.ingest.kineto import reader as kineto

    return kineto.read(path, fs_options=fs_options, progress=progress)


__all__ = ["CERTAIN", "FORMAT_VERSION", "Classification", "Progress", "Report", "classify", "head", "read"]
