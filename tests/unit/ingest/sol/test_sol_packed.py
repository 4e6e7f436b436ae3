"""Packed records: what the recorder packs is read as if it stood there plain; damage and too much of it stay bounded."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_sol_plugin import format as F
from tb_sol_plugin import ingest
from tb_sol_plugin.capture.report.writer import LEAST, packed
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.sol.reader import Unpacker
from tb_sol_plugin.model.capture import Capture
from tests.conftest import ROOT
from tests.support.packed_lines import records_in

SAMPLE = ROOT / "samples" / "capture_train"


def plain_sample() -> list[bytes]:
    """The lines of a recorded file, none of them packed."""
    (path,) = SAMPLE.glob("*.sol.jsonl")
    return [F.encode(record) for record in records_in(path.read_bytes())]


def issues(capture: Capture) -> dict[str, int]:
    table = capture.tables["issues"]
    return dict(zip(table["reason"].astype(str), table["count"].tolist(), strict=True))


def record(text: bytes, **fields: object) -> bytes:
    """A packed record of any text."""
    data = base64.b64encode(zlib.compress(text)).decode()
    return F.encode({"kind": "packed", "bytes": len(text), "data": data, **fields})


def opened(folder: Path, *lines: bytes) -> Capture:
    folder.mkdir(exist_ok=True)
    path = folder / "a.sol.jsonl"
    path.write_bytes(b"".join(lines))
    return ingest.read(str(path))


HEADER = F.encode({"kind": "header", "format": F.FORMAT, "version": [2, 0], "rank": 0})
LABELS = [F.encode({"kind": "label", "id": n, "what": "phase", "parent": -1, "name": f"phase {n}"}) for n in range(200)]
STEP = F.encode({"kind": "step", "iteration": 0, "start_ns": 0, "duration_ns": 10})


def test_a_packed_file_is_read_as_the_plain_one(tmp_path: Path) -> None:
    # GIVEN a recorded file as plain lines, and the same with all but its header packed
    header, *lines = plain_sample()
    small = packed(lines)
    assert len(small) == 1 and sum(map(len, small)) < 0.35 * sum(map(len, lines))
    # WHEN both are read
    plain, short = opened(tmp_path / "plain", header, *lines), opened(tmp_path / "short", header, *small)
    # THEN all tables are equal, and so is what was counted
    assert list(plain.tables) == list(short.tables) and plain.facts.total_events == short.facts.total_events
    for name, table in plain.tables.items():
        assert table.equals(short.tables[name]), name


def test_short_groups_stay_plain() -> None:
    few = LABELS[:40]
    assert sum(map(len, few)) < LEAST
    assert packed(few) == few and packed([]) == []


def test_long_groups_are_several_records_and_a_line_that_fits_in_none_stays_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for 1000 bytes in a record WHEN a line of more stands among many THEN all are there, in their order, within bounds
    monkeypatch.setattr(F, "PACKED_BYTES", 1000)
    long = F.encode({"kind": "label", "id": 999, "name": "x" * 2000})
    given = [*LABELS[:90], long, *LABELS[90:]]
    found = packed(given)
    assert long in found and list(records_in(b"".join(found))) == [json.loads(line) for line in given]
    assert all(json.loads(line)["bytes"] <= 1000 for line in found if line != long)


def test_files_of_the_version_before_are_read(tmp_path: Path) -> None:
    c = opened(tmp_path / "x", HEADER.replace(b"[2,0]", b"[1,0]"), *LABELS, STEP)
    assert c.facts.versions["capture_format"] == "1.0" and len(c.tables["labels"]) == 200


def test_a_decompression_bomb_is_refused_and_the_lines_around_it_are_read(tmp_path: Path) -> None:
    # GIVEN a record of 9 MiB of text, more than one may hold, in 9 kB
    bomb = record(b" " * (9 << 20) + b"\n")
    assert len(bomb) < 20_000
    c = opened(tmp_path / "x", HEADER, LABELS[0], bomb, STEP)
    # THEN nothing of it is taken, the file says so, and the rest is there
    assert issues(c)["packed record above the size limit"] == 1
    assert len(c.tables["labels"]) == 1 and len(c.tables["iterations"]) == 1


def test_all_packed_records_of_a_file_have_a_bound_too() -> None:
    # GIVEN room for 10 000 bytes in all WHEN three records of 4000 are unpacked THEN the third is refused
    health = Health()
    unpacker = Unpacker(health, most=10_000)
    data = base64.b64encode(zlib.compress(b"x" * 3999 + b"\n")).decode()
    assert [len(list(unpacker.lines(data, 4000, n))) for n in (1, 2, 3)] == [1, 1, 0]
    assert health.table()["count"].tolist() == [1]


@pytest.mark.parametrize(
    ("damage", "least"),
    [
        (lambda data: data[: len(data) // 2], 50),  # cut
        (lambda data: data[:4000] + "!" + data[4001:], 40),  # no base64
        (lambda data: data[:400] + ("A" if data[400] != "A" else "B") + data[401:], 100),  # other bytes
        (lambda data: "", 0),
        (lambda data: "AAAA", 0),
        (lambda data: "\u00e9" * 8, 0),
    ],
)
def test_a_damaged_record_gives_the_lines_before_the_damage(tmp_path: Path, damage: Callable[[str], str], least: int) -> None:
    # GIVEN a packed record with damage WHEN it is read THEN its first lines are there as they were, the damage is counted, and the file goes on
    text = b"".join(LABELS)
    data = damage(base64.b64encode(zlib.compress(text, 0)).decode())
    c = opened(tmp_path / "x", HEADER, record(text, data=data), STEP)
    names = c.tables["labels"]["name"].astype(str).tolist()
    assert "damaged packed record" in issues(c) and len(c.tables["iterations"]) == 1
    assert len(names) >= least
    true = [name for name in names if name in {f"phase {n}" for n in range(200)}]
    assert len(true) >= len(names) - 1 and true == sorted(true, key=lambda name: int(name.split()[1]))  # one name may have the changed byte


def test_every_single_changed_byte_leaves_a_file_that_opens(tmp_path: Path) -> None:
    # GIVEN a file with a packed record WHEN any one of its bytes is changed THEN it opens, or is refused with a reason
    body = record(b"".join(LABELS[:60]))
    for at in range(0, len(body) - 1, 7):
        changed = body[:at] + bytes([body[at] ^ 0x15]) + body[at + 1 :]
        c = opened(tmp_path / "x", HEADER, changed, STEP)
        assert len(c.tables["iterations"]) == 1 and len(c.tables["labels"]) <= 61


def test_a_packed_record_within_one_and_a_packed_header_are_skipped_and_counted(tmp_path: Path) -> None:
    # GIVEN a packed record that holds another one, and a header WHEN it is read THEN both are passed over and counted, the label is read
    inner = record(LABELS[1])
    c = opened(tmp_path / "x", HEADER, record(LABELS[0] + inner + HEADER), STEP)
    assert issues(c)["packed record with a nested or header record"] == 2
    assert c.tables["labels"]["name"].astype(str).tolist() == ["phase 0"]


def test_a_wrong_length_of_a_packed_record_is_counted(tmp_path: Path) -> None:
    c = opened(tmp_path / "x", HEADER, record(b"".join(LABELS), bytes=7), STEP)
    assert len(c.tables["labels"]) == 200 and issues(c)["damaged packed record"] == 1
