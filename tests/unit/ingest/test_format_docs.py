"""docs/format.md says what the reader reads: its example is a capture, its fields are the fields there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tb_sol_plugin import format as F
from tb_sol_plugin import ingest
from tb_sol_plugin.capture.report.writer import packed
from tb_sol_plugin.ingest.sol import reader as H
from tb_sol_plugin.ingest.sol import records as R
from tb_sol_plugin.model.registry import registry
from tests.conftest import ROOT
from tests.support.sol_builder import HEADER

TEXT = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```jsonl\n(.*?)```", TEXT, re.DOTALL)


def section(title: str) -> str:
    found = re.search(rf"^### {title}$(.*?)(?=^##)", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None, f"no section {title}"
    return found[1]


def first_column(text: str) -> set[str]:
    return {name for row in re.findall(r"^\| (.+?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


def test_the_example_is_a_capture_and_says_what_the_text_says(tmp_path: Path) -> None:
    # GIVEN the example of the document
    assert EXAMPLE is not None
    (tmp_path / "a.sol.jsonl").write_text(EXAMPLE[1], encoding="utf-8")
    # WHEN it is read
    c = ingest.read(str(tmp_path / "a.sol.jsonl"))
    # THEN there is nothing odd in it
    assert c.tables["issues"].empty and not c.facts.warnings and not c.facts.truncated
    # AND the layer did 3 x 1024 FLOP in 0.45 ms in the phase, in iteration 0; iteration 1 took 1.5 ms and was not sampled
    (row,) = c.tables["ledger"].to_dict("records")
    labels = c.tables["labels"]["name"].astype(str).tolist()
    assert (row["iteration"], labels[row["module"]], labels[row["phase"]]) == (0, "head.fc", "forward")
    assert (row["count"], row["flop"], row["time_ns"]) == (3, 1024.0, 450_000.0) and 2 * 8 * 16 * 4 == 1024
    assert row["bytes"] == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert c.tables["iterations"]["duration_ns"].tolist() == [2_000_000, 1_500_000]
    assert c.tables["iterations"]["sampled"].tolist() == [True, False] and c.tables["iterations"]["ops"].tolist() == [3, -1]
    # AND every record in it has what the text calls needed, and each line is as the recorder would write it
    for line in EXAMPLE[1].splitlines():
        assert F.encode(json.loads(line)) == line.encode() + b"\n"


@pytest.mark.parametrize(("kind", "record"), [("label", R.Label), ("sig", R.Sig), ("step", R.Step), ("packed", R.Packed)])
def test_fields_of_the_document_are_those_the_reader_knows(kind: str, record: type[msgspec.Struct]) -> None:
    fields = {f.encode_name: f.required for f in msgspec.structs.fields(record)}
    text = section(f"`{kind}`")
    written = {"out_types"} if kind == "sig" else set()  # for people
    assert first_column(text) == set(fields) | written
    needed = set(re.findall(r"\*\*`(\w+)`\*\*", text))
    assert {name for name, required in fields.items() if required} <= needed


def test_fields_of_the_header_are_those_that_are_written() -> None:
    text = section("`header`")
    assert first_column(text) == set(HEADER) - {"kind"}
    for name in ("peak_flops", "peak_flops_vector", "memory_bandwidth_bytes_per_sec", "assume_sparsity"):
        assert f"`{name}`" in text


def test_the_document_names_all_kinds_of_records_and_their_columns() -> None:
    assert f"`[{', '.join(F.LEDGER_ROW)}]`" in TEXT and f"`[{', '.join(F.TIME_ROW)}]`" in TEXT
    assert first_column(section("`ledger`")) == set(F.LEDGER_ROW)
    assert f"`[{', '.join(F.COPY_ROW)}]`" in TEXT and first_column(section("`copies`")) == set(F.COPY_ROW)
    assert all(f"`{kind}`" in TEXT for kind in F.KINDS)
    assert f'"{F.FORMAT}"' in TEXT and f"`{list(F.VERSION)}`" in TEXT and F.CAP_BYTES == 256 << 20
    assert set(H.FLAGS) == {"record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules"}


def test_the_unpacking_code_of_the_document_gives_plain_lines(tmp_path: Path) -> None:
    # GIVEN a file with a packed record, and the few lines of Python that the document has for such files
    plain = [F.encode({"kind": "label", "id": n, "what": "phase", "name": f"phase {n}"}) for n in range(100)]
    header = F.encode(dict(HEADER))
    (tmp_path / "a.sol.jsonl").write_bytes(b"".join([header, *packed(plain)]))
    code = re.findall(r"```python\n(.*?)```", section("`packed`"), re.DOTALL)
    # WHEN they are run THEN they print the lines as they would stand without packing
    out = subprocess.run([sys.executable, "-c", code[0], tmp_path / "a.sol.jsonl"], capture_output=True, check=True, timeout=300).stdout
    assert out == b"".join([header, *plain]) and len(packed(plain)) == 1


def test_pages_that_the_document_links_to_exist() -> None:
    titles = {a.title for a in registry().values()}
    assert {"Iterations", "Trace health"} <= titles and "*Iterations*" in TEXT and "*Trace health*" in TEXT
