"""Modules nested thousands deep: bounded keys, a bounded answer."""

from __future__ import annotations

import json
from pathlib import Path

from tb_sol_plugin.ingest import read
from tb_sol_plugin.model.report import Report, encode

DEEP = 4_000


def test_thousands_of_nested_modules_make_a_small_answer(tmp_path: Path) -> None:
    # GIVEN modules each inside the one before, whose keys would name all modules around them: 200 MB
    events = [
        {"ph": "X", "cat": "python_function", "name": f"nn.Module: Block{i % 7}_{i}", "pid": 1, "tid": 1, "ts": i, "dur": 2 * (DEEP - i) + 1,
         "args": {"Python id": i + 1, "Python module id": i} | ({"Python parent id": i} if i else {})}
        for i in range(DEEP)
    ]  # fmt: skip
    path = tmp_path / "worker.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    report = read(str(path)).analyze("modules")
    assert isinstance(report, Report)
    # THEN the whole answer is small, every row has a key of its own and hangs below the row before it
    assert len(encode(report)) < 20_000_000
    data = json.loads(encode(report))["sections"][1]["data"]
    assert len(set(data["id"])) == len(data["id"]) == DEEP
    assert data["parent"] == [None, *data["id"][:-1]]
    assert data["id"][2] == "Block0_0/Block1_1/Block2_2"
