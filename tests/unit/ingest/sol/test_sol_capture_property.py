"""What is written is what is read; what is cut keeps all before the cut; what is damaged gives a recording or a plain error."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin import format as F
from tb_sol_plugin import ingest
from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.loop.schedule import StepRecord
from tb_sol_plugin.capture.report.writer import CaptureWriter
from tb_sol_plugin.errors import SolError
from tb_sol_plugin.model.capture import Capture
from tests.support.check_capture import host_tree_is_whole
from tests.support.sol_builder import WALL_NS, small

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
TIMES = st.integers(0, 2**50)


@dataclass
class Sig:
    """A signature as the ledger has it."""

    id: int
    op: str
    shapes: str
    types: str
    flop: float | None
    flop_vector: float | None
    bytes: float | None
    dtype: str
    kind: str
    reason: str
    estimated: bool
    strides: str = ""
    concrete: str = ""
    out_shapes: str = ""
    out_types: str = ""
    direction: str = "fwd"


@dataclass
class Ledger:
    signatures: list[Sig] = field(default_factory=list)
    rows: dict[tuple[int, ...], list[int]] = field(default_factory=dict)


@dataclass
class Loop:
    """A recorded training loop: what a writer is given."""

    labels: Labels
    steps: list[tuple[StepRecord, Ledger]]


@st.composite
def loops(draw: st.DrawFn) -> Loop:
    """Random label trees, signatures and ledgers."""
    labels = Labels()
    for _ in range(draw(st.integers(0, 12))):
        parent = draw(st.integers(-1, len(labels.known) - 1))
        labels.id_of(draw(st.sampled_from(("module", "phase", "function"))), parent, draw(WORDS), draw(WORDS))
    amounts = st.none() | st.integers(0, 2**53)
    sigs = [
        Sig(i, draw(WORDS), draw(WORDS), draw(WORDS), draw(amounts), draw(amounts), draw(amounts), draw(WORDS), draw(WORDS), draw(WORDS), draw(st.booleans()))
        for i in range(draw(st.integers(1, 6)))
    ]  # fmt: skip
    of = {w: [-1, *(i for i, label in enumerate(labels.known) if label.what == w)] for w in ("module", "phase", "function")}
    steps = []
    for number in range(draw(st.integers(0, 6))):
        rows: dict[tuple[int, ...], list[int]] = {}
        for _ in range(draw(st.integers(0, 5))):
            phase = st.sampled_from(of["phase"])
            key = (
                draw(st.integers(0, len(sigs) - 1)), draw(st.sampled_from(of["module"])), draw(phase), draw(phase),
                draw(st.sampled_from(of["function"])), draw(st.integers(0, 15)),
            )  # fmt: skip
            rows[key] = [draw(st.integers(1, 10**6)), draw(st.integers(-1, 2**50))]
        record = StepRecord(
            number, start_ns=number * 2**51 // 8, duration_ns=draw(TIMES), device_ns=draw(st.none() | TIMES),
            sampled=draw(st.booleans()), signature=draw(WORDS), batch=draw(st.none() | st.integers(0, 2**40)),
            overhead_ns=draw(TIMES),
        )  # fmt: skip
        for what, times in (("phase", record.phase_times), ("module", record.module_times)):
            for label in draw(st.lists(st.sampled_from(of[what][1:]), max_size=3)) if of[what][1:] else []:
                times.append((label, draw(TIMES), draw(TIMES), draw(st.none() | TIMES), draw(st.integers(1, 9))))
        steps.append((record, Ledger(sigs, rows)))
    return Loop(labels, steps)


def floats(values: object) -> list[float | None]:
    return [None if v != v else v for v in np.asarray(values, np.float64).tolist()]


@settings(max_examples=40)
@given(loop=loops(), cap=st.sampled_from([700, 3000, F.CAP_BYTES]))
def test_what_was_written_is_what_is_read(loop: Loop, cap: int) -> None:
    # GIVEN a random loop, written in one file or in parts
    with tempfile.TemporaryDirectory() as folder:
        writer = CaptureWriter(folder, {"host": "h", "rank": 0, "wall_ns": WALL_NS}, cap_bytes=cap)
        for record, ledger in loop.steps:
            writer.step(record, ledger, loop.labels)
        writer.close(len(loop.steps))
        assert writer.problem == "closed"
        c = ingest.read(str(min(Path(folder).iterdir(), key=lambda p: ("part" in p.name, p.name))))
    # THEN every iteration is there as it was
    steps, table = [s for s, _ in loop.steps], c.tables["iterations"]
    assert table["number"].tolist() == [s.iteration for s in steps]
    assert table["duration_ns"].tolist() == [s.duration_ns for s in steps] and table["overhead_ns"].tolist() == [
        s.overhead_ns for s in steps
    ]
    assert floats(table["device_ns"]) == [s.device_ns for s in steps] and table["sampled"].tolist() == [s.sampled for s in steps]
    assert table["batch"].tolist() == [-1 if s.batch is None else s.batch for s in steps]
    assert table["signature"].astype(object).tolist() == [s.signature for s in steps]
    # AND every label that is used stands where it stood
    labels = c.tables["labels"]

    def path(row: int) -> tuple[tuple[str, str, str], ...]:
        label = labels.iloc[row]
        own = (str(label["what"]), str(label["name"]), str(label["class_name"]))
        return (*(path(int(label["parent"])) if label["parent"] >= 0 else ()), own)

    def wanted(label: int) -> tuple[tuple[str, str, str], ...]:
        known = loop.labels.known[label]
        return (*(wanted(known.parent) if known.parent >= 0 else ()), (known.what, known.name, known.class_name))

    # AND the ledgers, less the first sampled one where there is a later one
    worked = [i for i, s in enumerate(steps) if s.sampled]
    if len(worked) > 1 and worked[0] == 0:
        worked = worked[1:]
    expected: Counter[object] = Counter()
    for i in worked:
        for (sig, *ids, flags), (count, time_ns) in loop.steps[i][1].rows.items():
            s = loop.steps[i][1].signatures[sig]
            of = tuple(wanted(label) if label >= 0 else () for label in ids)
            marks = (flags & 1, bool(flags & 2), bool(flags & 4) or s.estimated, bool(flags & 8))
            amounts = tuple(None if a is None else float(a) for a in (s.flop, s.flop_vector, s.bytes))
            time = None if time_ns < 0 else float(time_ns)
            expected[(i, s.op, s.shapes, s.types, s.dtype, s.kind, s.reason, *amounts, of, marks, count, time)] += 1
    found: Counter[object] = Counter()
    for row in c.tables["ledger"].itertuples(index=False):
        of = tuple(path(label) if label >= 0 else () for label in (row.module, row.phase, row.forward_phase, row.function))
        texts = (row.name, row.shapes, row.types, row.dtype, row.kind, row.reason)
        marks = (row.direction, row.recompute, row.estimated, row.compiled)
        found[(row.iteration, *texts, *floats([row.flop, row.flop_vector, row.bytes]), of, marks, row.count, floats([row.time_ns])[0])] += 1
    assert found == expected
    # AND all times of labels
    listed = c.tables["label_times"]
    times = Counter((s.iteration, wanted(t[0]), *t[1:]) for s in steps for t in (*s.phase_times, *s.module_times))
    seen = zip(
        listed["iteration"],
        listed["label"],
        listed["start_ns"],
        listed["duration_ns"],
        floats(listed["device_ns"]),
        listed["count"],
        strict=True,
    )
    assert Counter((i, path(label), *rest) for i, label, *rest in seen) == times
    assert c.tables["issues"]["reason"].astype(str).isin(
        ["ranges summed up while recording", "overlaps its enclosing event", "time out of range"]
    ).all()  # fmt: skip
    host_tree_is_whole(c)


def opened(text: bytes) -> Capture | None:
    """What is read from the text; None for a plain error."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sol.jsonl"
        path.write_bytes(text)
        try:
            c = ingest.read(str(path))
        except SolError as error:
            assert error.message and error.hint and "/" not in error.file
            return None
    host_tree_is_whole(c)
    for name, column in (("ledger", "module"), ("ledger", "phase"), ("ledger", "function"), ("label_times", "label")):
        assert (c.tables[name][column] < len(c.tables["labels"])).all()
    assert (c.tables["labels"]["parent"].to_numpy() < np.arange(len(c.tables["labels"]))).all()
    assert (c.tables["ledger"]["phase_host"] < len(c.host)).all() and (c.tables["ledger"]["step"] < len(c.steps)).all()
    return c


WHOLE = b"".join(small().lines())
ENDS = [i + 1 for i, byte in enumerate(WHOLE) if byte == 10]


@settings(max_examples=60)
@given(cut=st.integers(0, len(WHOLE)) | st.sampled_from([e + d for e in ENDS for d in (-2, -1, 0, 1) if e + d <= len(WHOLE)]))
def test_a_file_cut_at_any_byte_keeps_every_record_before_the_cut(cut: int) -> None:
    # GIVEN a good file cut somewhere
    complete = sum(1 for end in ENDS if end - 1 <= cut)  # a line that lacks its line feed alone is whole
    c = opened(WHOLE[:cut])
    # THEN there is a recording as soon as the header is whole, and it has all whole records
    assert (c is None) == (complete == 0)
    if c is None:
        return
    assert c.facts.total_events == complete
    records = [json.loads(line) for line in WHOLE.splitlines()[:complete]]
    assert len(c.tables["iterations"]) == sum(r["kind"] == "step" for r in records)
    assert len(c.tables["labels"]) == sum(r["kind"] == "label" for r in records)
    rows = sum(len(r["rows"]) for r in records if r["kind"] in ("phase_time", "module_time"))
    assert len(c.tables["label_times"]) == rows
    ledgers = [r for r in records if r["kind"] == "ledger"]
    assert len(c.tables["ledger"]) == (len(ledgers[-1]["rows"]) if ledgers else 0)


@settings(max_examples=80)
@given(flips=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_flipped_bytes_give_a_recording_or_a_plain_error(flips: list[tuple[int, int]]) -> None:
    text = bytearray(WHOLE)
    for place, value in flips:
        text[place] = value
    opened(bytes(text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({key for record in small().records for key in record})


@settings(max_examples=80)
@given(changes=st.lists(st.tuples(st.integers(0, len(ENDS) - 1), st.sampled_from(FIELDS), JSON), min_size=1, max_size=5))
def test_any_json_in_any_field_gives_a_recording_or_a_plain_error(changes: list[tuple[int, str, object]]) -> None:
    records = small().records
    for place, name, value in changes:
        records[place][name] = value  # type: ignore[assignment]
    opened(b"".join(json.dumps(r).encode("utf-8", "replace") + b"\n" for r in records))
