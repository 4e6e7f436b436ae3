"""Writes one SOL capture file (see `tb_sol_plugin.format`): one group of records per iteration, each by a single write. Never raises.

A process that is killed loses at most the group it was writing. A failure to write ends the file: one warning, then silence; `problem`
says why. A forked process writes nothing.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import json
import math
import os
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Final, Protocol

from tb_sol_plugin import format as F

if TYPE_CHECKING:
    from tb_sol_plugin.capture.loop.labels import Labels
    from tb_sol_plugin.capture.loop.schedule import StepRecord


# -- Makes large groups of records small -----------------------------------------------------------------------------
# whole lines, compressed, as the data of a `packed` record (see `tb_sol_plugin.format`).


LEAST: Final = 4096
"""Bytes below which a group stays as it is: plain lines can be read with any tool."""
LEVEL: Final = 1
"""Of compression. The usual one takes three times as long, between two iterations of a training loop, for a sixth less bytes."""


def packed(lines: Iterable[bytes]) -> list[bytes]:
    """Compresses lines into packed records of at most `format.PACKED_BYTES` of text each; a few short ones stay as they are."""
    given = list(lines)
    if sum(map(len, given)) < LEAST:
        return given
    return [line for some in _portions(given) for line in (some if len(some) == 1 and len(some[0]) > F.PACKED_BYTES else [_record(some)])]


def _portions(lines: list[bytes]) -> Iterator[list[bytes]]:
    """Yields runs of lines that fit into one record; a line that fits into none stands alone."""
    some: list[bytes] = []
    size = 0
    for line in lines:
        if some and size + len(line) > F.PACKED_BYTES:
            yield some
            some, size = [], 0
        some.append(line)
        size += len(line)
    if some:
        yield some


def _record(lines: list[bytes]) -> bytes:
    text = b"".join(lines)
    data = binascii.b2a_base64(zlib.compress(text, LEVEL), newline=False).decode()
    return F.encode({"kind": "packed", "bytes": len(text), "data": data})


SYNC_SECONDS: Final = 10.0
"""A sampled iteration is brought to the disk at once, but no more often than this."""
DIRECT: Final = 1 << 16
"""More bytes than a record of a common iteration has."""
MOST_HEADS: Final = 50_000
"""Keys of rows whose text is kept."""
MOST_NOTES: Final = 200
MOST_FAILURES: Final = 3
"""Iterations that could not be put into records; after so many the file ends."""
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class _Signature(Protocol):
    """Is what the writer reads of a signature; costs are None where unknown."""

    id: int
    op: str
    shapes: str
    types: str
    strides: str
    concrete: str
    out_shapes: str
    out_types: str

    @property
    def flop(self) -> float | None: ...
    @property
    def flop_vector(self) -> float | None: ...
    @property
    def bytes(self) -> float | None: ...
    @property
    def dtype(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def direction(self) -> str: ...
    @property
    def estimated(self) -> bool: ...
    @property
    def reason(self) -> str: ...


class _Ledger(Protocol):
    """Is the ledger of one finished iteration: all signatures by id, and rows as `format.LEDGER_ROW` orders them."""

    @property
    def signatures(self) -> Sequence[_Signature]: ...
    @property
    def rows(self) -> Mapping[tuple[int, ...], Sequence[int]]: ...


class CaptureWriter:
    """Writes one file per process, in `folder`; it is made at once, so that a reader sees the header. header: without kind, format,
    version, part.

    path: of the part being written, "" where there is none. problem: why nothing is written any more, "" while all is well.
    """

    def __init__(self, folder: str, header: Mapping[str, object], *, cap_bytes: int = F.CAP_BYTES) -> None:
        self.problem = ""
        self.path = ""
        self.size = 0
        self.part = 0
        self._cap = cap_bytes
        self._header = dict(header)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._fd = -1
        self._labels = 0
        self._sigs: set[int] = set()
        self._heads: dict[tuple[int, ...], str] = {}
        self._notes: dict[tuple[str, str], int] = {}
        self._synced = 0.0
        self._failures = 0
        self._empty = 0
        self._dirty = False  # a write was interrupted, perhaps within a line
        self._folder = str(folder)
        self._guarded(lambda: self._open(os.fspath(folder)))

    # -- what is written --------------------------------------------------------------------------------------

    def step(self, step: StepRecord, ledger: _Ledger, labels: Labels) -> None:
        """Writes the records of one finished iteration, with the definitions that they are the first to use."""
        self._guarded(lambda: self._step(step, ledger, labels))

    def memory(self, record: dict[str, object], labels: Labels) -> None:
        """Writes a record of memory, with the labels that it is the first to use."""
        self._guarded(lambda: self._memory(record, labels))

    def note(self, code: str, text: str, count: int = 1) -> None:
        """Keeps a remark; it is written with the next iteration, and counted where it repeats before."""
        if not self.problem and os.getpid() == self._pid and (len(self._notes) < MOST_NOTES or (code, text) in self._notes):
            self._notes[code, text] = self._notes.get((code, text), 0) + count

    def sync(self) -> None:
        """Bring what was written to the disk."""
        self._guarded(self._sync)

    def close(self, iterations: int, before_ns: int = 0) -> None:
        """Writes the last record; nothing is written afterwards. before_ns: own work since the end of the last iteration."""
        record = {"kind": "close", "wall_ns": time.time_ns(), "iterations": iterations, "before_ns": before_ns}

        def finish() -> None:
            self._append([*self._take_notes(), _line(record)])
            self._sync()
            self._end()
            self.problem = "closed"

        self._guarded(finish)

    # -- for who writes common records itself ------------------------------------------------------------------

    def direct(self) -> tuple[int, int, int, dict[tuple[str, str], int], int]:
        """Returns where records of common iterations may be written without a call of this class.

        The file (-1: nowhere), its size, up to which size that may go on, the notes that wait (while there are any it may not), and how
        many labels are defined.
        """
        fd = -1 if self.problem or os.getpid() != self._pid else self._fd
        return fd, self.size, self._cap - DIRECT, self._notes, self._labels

    def continued(self, size: int, record: bytes, done: int, error: OSError | None) -> None:
        """Continues a record of which the file system took `done` bytes. size: of the file before it; error: why the rest was refused."""

        def rest() -> None:
            self.size = size
            if error is not None:
                raise error
            self._append([record], done)

        self._guarded(rest)

    def interrupted(self) -> None:
        """Notes that an exception came while a record was written."""
        self._dirty = True

    # -- inside -----------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        """Runs `work`; no exception of it reaches training code."""
        if self.problem or os.getpid() != self._pid:
            return
        with self._lock:
            if self.problem:
                return
            try:
                work()
            except OSError as error:
                self._fail(error.strerror or type(error).__name__)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"[:200]
                self._failures += 1
                if self._failures >= MOST_FAILURES:
                    self._fail(reason)
                else:
                    self._notes["group_lost", reason] = self._notes.get(("group_lost", reason), 0) + 1

    def _fail(self, reason: str) -> None:
        self.problem = reason
        with contextlib.suppress(OSError):
            self._end()
            if self.path and not self.size:
                os.unlink(self.path)
        with contextlib.suppress(Exception):  # a filter may turn warnings into errors
            what = "nothing more is written" if self.size else "nothing is written"
            warnings.warn(f"SOL capture: {what} to {self._folder}: {reason}", RuntimeWarning, stacklevel=5)

    def _open(self, folder: str) -> None:
        if "://" in folder:
            raise OSError(errno.ENOTSUP, "captures are written to local folders; copy them from there")
        os.makedirs(folder, exist_ok=True)
        start = _whole(self._header.get("wall_ns")) or time.time_ns()
        host, rank, pid = str(self._header.get("host") or "host"), _whole(self._header.get("rank")), _whole(self._header.get("pid"))
        for later in range(100):  # another tracker of this process may have begun in the same nanosecond
            name = F.file_name(host[:120], rank, pid or self._pid, start + later)
            self.path = os.path.join(folder, name)
            try:
                self._fd = os.open(self.path, _FLAGS, 0o644)
                break
            except FileExistsError:
                continue
        else:
            raise FileExistsError(errno.EEXIST, "the file is there already")
        self._write(self._head())

    def _head(self) -> bytes:
        own = {"kind": "header", "format": F.FORMAT, "version": list(F.VERSION), "part": self.part}
        return _line({**own, **{k: v for k, v in self._header.items() if k not in own}})

    def _step(self, step: StepRecord, ledger: _Ledger, labels: Labels) -> None:
        if not step.sampled and len(labels.known) == self._labels and not self._notes:
            lines = _ordinary(step)
            if self.size + sum(map(len, lines)) <= self._cap:
                self._append(lines)
                return
        work = ledger.rows if step.sampled else {}
        rows = self._rows(work)
        count = len(labels.known)  # other threads may add labels meanwhile
        fresh = sorted({key[0] for key in work} - self._sigs)
        notes, records = self._take_notes(), [*_records(step, rows)]
        lines = [*notes, *packed([*_labels(labels, self._labels, count), *_signatures(ledger, fresh), *records])]
        if self.size + sum(map(len, lines)) > self._cap and self.size > self._empty:
            self._next_part()
            lines = [*notes, *packed([*_labels(labels, 0, count), *_signatures(ledger, sorted(self._sigs.union(fresh))), *records])]
        self._append(lines)
        self._labels = count
        self._sigs.update(fresh)
        if step.sampled and time.monotonic() - self._synced > SYNC_SECONDS:
            self._sync()

    def _rows(self, work: Mapping[tuple[int, ...], Sequence[int]]) -> str:
        """Encodes rows of the ledger as JSON. The text of a key is kept: making it is half of all that is done for a sampled step."""
        heads = self._heads
        if len(heads) > MOST_HEADS:
            heads.clear()
        out = []
        for key, row in work.items():
            head = heads.get(key)
            if head is None:
                head = heads[key] = f"[{','.join(map(str, key))},"
            out.append(f"{head}{row[0]},{'null' if row[1] < 0 else row[1]}]")
        return ",".join(out)

    def _memory(self, record: dict[str, object], labels: Labels) -> None:
        count = len(labels.known)
        lines = packed([*_labels(labels, self._labels, count), _line(record)])
        if self.size + sum(map(len, lines)) > self._cap and self.size > self._empty:
            self._next_part()
            self._sigs.clear()
            lines = packed([*_labels(labels, 0, count), _line(record)])
        self._append(lines)
        self._labels = count

    def _next_part(self) -> None:
        if self.part + 1 >= F.MOST_PARTS:
            raise OSError(errno.EFBIG, f"more than {F.MOST_PARTS} parts")
        note = {"kind": "note", "code": "continued", "text": f"continued in part {self.part + 1}", "count": 1}
        self._append([_line(note)])
        self._sync()
        self._end()
        self.part += 1
        stem = self.path.removesuffix(F.SUFFIX).removesuffix(f".part{self.part - 1}")
        self.path = f"{stem}.part{self.part}{F.SUFFIX}"
        self._fd = os.open(self.path, _FLAGS, 0o644)
        self.size = 0
        self._write(self._head())

    def _write(self, header: bytes) -> None:
        self._append([header])
        self._empty = self.size

    def _append(self, lines: Sequence[bytes], done: int = 0) -> None:
        """Writes whole lines at once. What a full disk took of them is taken back, so that no part of a line stays.

        done: bytes of it that are there already.
        """
        text = memoryview(b"".join((b"\n" * self._dirty, *lines)))
        self._dirty = True
        try:
            while done < len(text):
                done += os.write(self._fd, text[done:])
        except OSError:
            if done:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self.size)
            raise
        self.size += done
        self._dirty = False

    def _take_notes(self) -> list[bytes]:
        notes, self._notes = self._notes, {}
        return [_line({"kind": "note", "code": code, "text": text, "count": count}) for (code, text), count in notes.items()]

    def _sync(self) -> None:
        self._synced = time.monotonic()
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno != errno.EINVAL:  # not every file system can
                raise

    def _end(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


# -- records ----------------------------------------------------------------------------------------------------------


def _labels(labels: Labels, start: int, stop: int) -> Iterable[bytes]:
    for number in range(start, stop):
        what, parent, name, class_name = labels.known[number]
        record: dict[str, object] = {"kind": "label", "id": number, "what": what, "parent": parent, "name": name}
        yield _line({**record, "class": class_name} if class_name else record)


def _signatures(ledger: _Ledger, ids: Iterable[int]) -> Iterable[bytes]:
    for number in ids:
        sig = ledger.signatures[number]
        lists = {
            "in": sig.shapes, "types": sig.types, "strides": sig.strides, "concrete": sig.concrete, "out": sig.out_shapes,
            "out_types": sig.out_types,
        }  # fmt: skip
        texts = {name: _plain_list(text) for name, text in lists.items()}
        texts |= {"dtype": sig.dtype, "class": sig.kind, "direction": sig.direction, "reason": sig.reason}
        amounts = {"flop": sig.flop, "flop_vector": sig.flop_vector, "bytes": sig.bytes}
        record = {"kind": "sig", "id": number, "op": sig.op, **{k: v for k, v in texts.items() if v}, **amounts}
        yield _line({**record, "estimated": True} if sig.estimated else record)


def _plain_list(text: str) -> object:
    """Parses a JSON list, so that it is written without quotes within quotes; any other text is returned unchanged."""
    try:
        found: object = json.loads(text) if text[:1] == "[" else text
    except (ValueError, RecursionError):
        return text
    return found


def _records(step: StepRecord, rows: str) -> Iterable[bytes]:
    """Yields the records of an iteration. rows: of the ledger, as JSON without the brackets around them."""
    known: dict[str, object] = {
        "kind": "step", "iteration": step.iteration, "start_ns": step.start_ns, "duration_ns": step.duration_ns, "sampled": step.sampled,
        "device_ns": step.device_ns, "signature": step.signature or None, "batch": step.batch, "tokens": step.tokens,
        "overhead_ns": step.overhead_ns, "before_ns": step.before_ns, "totals": step.totals or None, "lost": step.lost or None,
        "compiled": step.compiled or None, "evaluation_ns": step.evaluation_ns or None,
    }  # fmt: skip
    yield _line({k: v for k, v in known.items() if v is not None})
    if step.sampled:
        yield f'{{"kind":"ledger","iteration":{int(step.iteration)},"rows":[{rows}]}}\n'.encode()
        if step.copies is not None:
            yield _line({"kind": "copies", "iteration": step.iteration, "rows": step.copies})
    if step.phase_times:
        yield _line({"kind": "phase_time", "iteration": step.iteration, "rows": step.phase_times})
    if step.module_times:
        yield _line({"kind": "module_time", "iteration": step.iteration, "rows": step.module_times})


def _ordinary(step: StepRecord) -> Sequence[bytes]:
    """Returns the records of an iteration that was not sampled, in a third of the time that `_records` takes."""
    if step.totals or step.lost or step.module_times or not f"a{step.signature}".isalnum() or step.compiled:
        return [*_records(step, "")]
    sizes = "" if step.device_ns is None else f',"device_ns":{step.device_ns:d}'
    if step.signature:
        sizes += f',"signature":"{step.signature}"'
    if step.batch is not None:
        sizes += f',"batch":{step.batch:d}'
    if step.tokens is not None:
        sizes += f',"tokens":{step.tokens:d}'
    head = f'{{"kind":"step","iteration":{step.iteration:d},"start_ns":{step.start_ns:d},"duration_ns":{step.duration_ns:d},"sampled":false'
    line = f'{head}{sizes},"overhead_ns":{step.overhead_ns:d},"before_ns":{step.before_ns:d}}}\n'
    if step.phase_times:
        rows = ",".join([f"[{a:d},{b:d},{c:d},{'null' if d is None else d},{n:d}]" for a, b, c, d, n in step.phase_times])
        line += f'{{"kind":"phase_time","iteration":{step.iteration:d},"rows":[{rows}]}}\n'
    return (line.encode(),)


def _line(record: dict[str, object]) -> bytes:
    """Encodes one line; what JSON cannot express is null, or the text of it."""
    try:
        return F.encode(record)
    except (ValueError, TypeError):
        return F.encode({str(key): _plain(value) for key, value in record.items()})


def _plain(value: object, depth: int = 0) -> object:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else None
    if depth < 8 and isinstance(value, Mapping):
        return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}
    if depth < 8 and isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner, depth + 1) for inner in value]
    return str(value)[:400]


def _whole(value: object) -> int:
    return int(value) if isinstance(value, Integral) else 0
