"""Bombs: every reader stops at one bound of unpacked text and one of rows, and says which setting lifts it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.format import FORMAT
from tb_sol_plugin.ingest import limits

EVENT = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":2}'
FILES = {
    "trace": ("w.pt.trace.json.gz", b'{"traceEvents":[' + EVENT, b"," + EVENT, b"]}"),
    "header of a trace": ("w.pt.trace.json.gz", b'{"x":"', b"a" * 100, b'","traceEvents":[]}'),
    "Proton trace": ("x.json.gz", b'{"traceEvents":[{"ph":"X","args":{"call_stack":[]}}', b"," + EVENT, b"]}"),
    "Proton profile": ("x.hatchet.gz", b'[{"frame":{"name":"a"},"metrics":{},"children":[', b" " * 100, b"]}]"),
    "timeline of rows": ("m.json.gz", b"[[1,2],[[0,1,2,3,4,5,6,7,8]", b",[0,1,2,3,4,5,6,7,8]", b"]]"),
    "timeline of changes": ("m.raw.json.gz", b"[[1,1,8,0]", b",[1,2,8,0]", b"]"),
    "snapshot": ("m.pickle.gz", b"\x80\x04}\x8c\x08segments](", b"}", b"es."),
    "SOL log": ("x.sol.jsonl.gz", b'{"kind":"header","format":"' + FORMAT.encode() + b'","version":[2,0]}\n', b'{"kind":"close"}\n', b""),
}


def put(folder: Path, name: str, size: int) -> str:
    file, head, piece, tail = FILES[name]
    path = folder / file
    path.write_bytes(gzip.compress(head + piece * (size // len(piece)) + tail, 1))
    return str(path)


@pytest.mark.parametrize("name", FILES)
def test_text_above_the_limit_ends_with_the_setting_that_lifts_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a file of a few kB that unpacks to 4 MB, where 2 MB are allowed
    path = put(tmp_path, name, 4_000_000)
    monkeypatch.setenv(limits.TEXT, "0.002")
    # WHEN read THEN it ends at the bound, and the hint names the setting
    with pytest.raises(BadInput, match="above a limit: its text is larger than") as caught:
        ingest.read(path)
    assert "TB_SOL_TEXT_GB above 0.002" in caught.value.hint and caught.value.file == Path(path).name


@pytest.mark.parametrize("name", ["trace", "timeline of rows", "timeline of changes", "SOL log"])
def test_rows_above_the_limit_end_with_the_setting_that_lifts_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN 20,000 rows and more, where 10,000 (of a trace, a tenth of others) are allowed
    path = put(tmp_path, name, 1_500_000)
    monkeypatch.setenv(limits.ROWS, "0.01")
    with pytest.raises(BadInput, match=r"above a limit: it holds more than (10|1),000 rows") as caught:
        ingest.read(path)
    # THEN the hint names the setting, and with it the file opens
    assert "TB_SOL_MILLION_ROWS above 0.01" in caught.value.hint
    monkeypatch.setenv(limits.ROWS, "10")
    ingest.read(path)


@pytest.mark.parametrize("value", ["", "many", "nan", "-1", "0", "inf"])
def test_a_setting_that_is_no_number_is_the_default(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.TEXT, value)
    assert limits.most(limits.TEXT) == 16_000_000_000 and limits.most(limits.TEXT, 16) == 1_000_000_000
