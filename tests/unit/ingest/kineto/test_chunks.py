"""Events that lie across the ends of chunks, against the same events as they were written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.ingest.kineto.reader import CHUNK, ROOM


@pytest.mark.parametrize("size", [1000, ROOM - 200, ROOM, 3 * ROOM, CHUNK + 17], ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_an_event_across_the_ends_of_chunks_is_read_whole(tmp_path: Path, size: int, packed: bool) -> None:
    # GIVEN five chunks of events, each with an argument so long that what is cut off at the end of a chunk has, or has not, room before the next
    count = 5 * CHUNK // size + 2
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"op {i}", "pid": 1, "tid": 1, "ts": 10 * i, "dur": 5, "args": {"long": "x" * (size - i % 97)}}
        for i in range(count)
    ]
    text = json.dumps({"traceEvents": events, "schemaVersion": 1}).encode()
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    # WHEN it is read
    capture = read(str(path))
    # THEN every event is there, with its own name and time
    host = capture.tables["host"]
    assert host["name"].astype(str).tolist() == [f"op {i}" for i in range(count)]
    assert host["start_ns"].tolist() == [10_000 * i for i in range(count)]
    assert not capture.facts.truncated and not len(capture.tables["issues"])
