"""Records of memory in a SOL capture: read into two tables; what cannot be is unknown, and counted."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_sol_plugin import format as F
from tb_sol_plugin import ingest
from tb_sol_plugin.ingest.sol import records as R
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tests.conftest import ROOT
from tests.support.sol_builder import SolBuilder

TEXT = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
GIB = 1 << 30


def opened(builder: SolBuilder, folder: Path) -> Capture:
    return ingest.read(str(builder.write(folder / builder.name)))


def issues(capture: Capture) -> dict[str, int]:
    table = capture.tables["issues"]
    found = dict(zip(table["reason"].astype(str), table["count"].tolist(), strict=True))
    found.pop("no close record", None)
    return found


def memory(**fields: object) -> dict[str, object]:
    return {"kind": "memory", "time_ns": 5, "tag": "x", "device": 0, **fields}


def one_step() -> SolBuilder:
    b = SolBuilder()
    b.iteration(0, 0, 1000)
    return b


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    # GIVEN a record of 80 GiB of which 30 are used, with parts of two modules, one on the host, and peaks of two phases
    b = SolBuilder()
    forward, backward = b.phase("forward"), b.phase("backward")
    layer, head = b.module("layer", "Linear"), b.module("head", "Linear")
    parts = [["params", "bf16", layer, 0, 2, 100, 100], ["params", "bf16", head, 0, 1, 60, 50], ["exp_avg", "fp32", layer, -1, 2, 200, 200],
             ["buffers", "", -1, -1, 0, 0, 0]]  # fmt: skip
    b.records.append(
        memory(
            tag="step", iteration=7, time_ns=-20, device=2, total=80 * GIB, device_used=30 * GIB, process_used=29 * GIB, allocated=20 * GIB,
            reserved=28 * GIB, max_allocated=26 * GIB, max_reserved=28 * GIB, since="iteration", phase=backward, parts=parts,
            phases=[[forward, 22 * GIB, 24 * GIB], [backward, 26 * GIB, 28 * GIB]], context=2 * GIB, Actual_Captured_Master_Weight_MB=0.0,
        )
    )  # fmt: skip
    parts[1][3] = parts[0][3] = 2
    b.iteration(7, 0, 1000)
    c = opened(b, tmp_path)
    # THEN there is one row for the device, one for the host, on which the moment is, and one for each phase
    records, found = c.tables["memory_records"], c.tables["memory_parts"]
    labels = c.tables["labels"]["name"].astype(str).tolist()
    assert (
        records["device"].tolist() == [2, -1, 2, 2]
        and records["iteration"].tolist() == [7] * 4
        and records["time_ns"].tolist() == [-20] * 4
    )
    assert records["tag"].astype(str).tolist() == ["step"] * 4
    assert records["since"].astype(str).tolist() == ["iteration", "iteration", "phase", "phase"]
    assert [labels[k] if k >= 0 else "" for k in records["phase"]] == ["backward", "", "forward", "backward"]
    assert records["max_allocated"].tolist() == [26 * GIB, -1, 22 * GIB, 26 * GIB]
    assert records.loc[0, ["total", "device_used", "process_used", "allocated", "reserved"]].tolist() == [
        80 * GIB, 30 * GIB, 29 * GIB, 20 * GIB, 28 * GIB
    ]  # fmt: skip
    # AND one row per part, with what was looked for and is not there
    rows = [
        (r.record, r.category, r.dtype, labels[r.module] if r.module >= 0 else "", r.tensors, r.bytes, r.view_bytes)
        for r in found.itertuples()
    ]
    assert rows == [
        (0, "params", "bf16", "layer", 2, 100, 100), (0, "params", "bf16", "head", 1, 60, 50), (1, "exp_avg", "fp32", "layer", 2, 200, 200),
        (0, "buffers", "", "", 0, 0, 0),
    ]  # fmt: skip
    assert issues(c) == {}


def test_a_file_without_them_has_empty_tables(tmp_path: Path) -> None:
    c = opened(one_step(), tmp_path)
    assert c.tables["memory_records"].empty and c.tables["memory_parts"].empty and issues(c) == {}
    assert list(c.tables["memory_records"]) == list(S.MEMORY_RECORDS.fields)


def test_amounts_that_a_record_leaves_out_are_unknown(tmp_path: Path) -> None:
    # GIVEN a record with its time alone THEN it is of the host, and nothing of it is 0
    b = one_step()
    b.records.append({"kind": "memory", "time_ns": 5})
    (row,) = opened(b, tmp_path).tables["memory_records"].to_dict("records")
    assert row.pop("time_ns") == 5 and row.pop("since") == "process" and row.pop("tag") == ""
    assert set(row.values()) == {-1}


def test_a_continued_file_has_its_own_clock_and_labels(tmp_path: Path) -> None:
    # GIVEN a recording in two parts of which the second begins 1000 ns later, with another module as label 0
    first, second = SolBuilder(), SolBuilder(part=1, wall_ns=1_700_000_000_000_001_000)
    for builder, name in ((first, "a"), (second, "b")):
        layer = builder.module(name, "Linear")
        builder.records.append(memory(parts=[["params", "fp32", layer, 0, 1, 4, 4]]))
    path = first.write(tmp_path / first.name)
    second.write(Path(str(path).replace(F.SUFFIX, f".part1{F.SUFFIX}")))
    c = ingest.read(str(path))
    labels = c.tables["labels"]["name"].astype(str)
    assert c.tables["memory_records"]["time_ns"].tolist() == [5, 1005]
    assert labels[c.tables["memory_parts"]["module"]].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (memory(time_ns=None), "memory record without a time"),
        (memory(time_ns=10**40), "memory record without a time"),
        (memory(total=-5), "impossible number of bytes of memory"),
        (memory(total=10**30), "impossible number of bytes of memory"),
        (memory(allocated="much"), "value of the wrong type"),
        (memory(allocated=50, max_allocated=40), "peak memory below current memory"),
        (memory(device=1 << 40), "memory of an impossible device index"),
        (memory(phase=99), "phase that is not defined"),
        (memory(phase=10**400), "phase that is not defined"),
        (memory(parts=5), "row that cannot be read"),
        (memory(parts=[["params"]]), "row that cannot be read"),
        (memory(parts=[["cheese", "fp32", -1, 0, 1, 4, 4]]), "impossible memory breakdown"),
        (memory(parts=[["params", "fp32", -1, 0, 1, -4, 4]]), "impossible memory breakdown"),
        (memory(parts=[["params", "fp32", 77, 0, 1, 4, 4]]), "module that is not defined"),
        (memory(parts=[["params", "fp32", -1, 0, 1, 4, 8]]), "tensors larger than their storages"),
        (memory(phases=[[3, 5, 6]]), "phase that is not defined"),
        (memory(left_out={"tensors without data (meta)": 4}), "tensor that the recorder could not count"),
        (memory(problem="RuntimeError: no"), "memory that the recorder could not read"),
        ({"kind": "memory"}, "record with missing fields"),
    ],
)  # fmt: skip
def test_impossible_amounts_are_counted_and_the_rest_is_read(tmp_path: Path, record: dict[str, object], reason: str) -> None:
    # GIVEN an odd record before a good one
    b = one_step()
    b.records += [record, memory(tag="good", total=7, parts=[["params", "fp32", -1, 0, 1, 4, 4]])]
    c = opened(b, tmp_path)
    # THEN it is said why, each reason with what becomes of it, and the good one is there
    assert reason in issues(c)
    assert (c.tables["issues"]["effect"].astype(str) != "").all()
    records, parts = c.tables["memory_records"], c.tables["memory_parts"]
    good = records.index[records["tag"].astype(str) == "good"]
    assert records.loc[good, "total"].tolist() == [7] and parts.loc[parts["record"] == good[0], "bytes"].tolist() == [4]
    assert (parts["view_bytes"] <= parts["bytes"]).all() and not (
        records["max_allocated"].between(0, 49) & (records["allocated"] == 50)
    ).any()


def test_records_beyond_the_most_are_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tb_sol_plugin.ingest.sol import collect as module

    monkeypatch.setattr(module, "MOST_RECORDS", 3)
    monkeypatch.setattr(module, "MOST_PARTS", 3)
    b = one_step()
    for k in range(5):
        b.records.append(memory(tag=str(k), parts=[["params", "fp32", -1, 0, 1, 4, 4]] * 2))
    c = opened(b, tmp_path)
    assert len(c.tables["memory_records"]) == 3 and len(c.tables["memory_parts"]) == 2
    assert issues(c) == {"memory records beyond the limit": 2, "memory breakdown rows beyond the limit": 4}


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([f.name for f in msgspec.structs.fields(R.Memory)]), ANY))
def test_any_json_in_a_memory_record_is_read_or_counted(tmp_path: Path, fields: dict[str, object]) -> None:
    b = one_step()
    b.records += [{"kind": "memory", **fields}, memory(tag="good")]
    c = opened(b, tmp_path)
    records, parts = c.tables["memory_records"], c.tables["memory_parts"]
    assert records["tag"].astype(str).tolist()[-1] == "good"
    numbers = [name for name, field in S.MEMORY_RECORDS.fields.items() if field.dtype == "int64" and name != "time_ns"]
    assert (records[numbers] >= -1).all().all() and parts["record"].between(0, len(records) - 1).all()


def test_the_document_names_all_fields_and_columns() -> None:
    section = re.search(r"^### `memory`$(.*?)(?=^###)", TEXT, re.DOTALL | re.MULTILINE)
    assert section is not None
    named = {name for row in re.findall(r"^\| (.+?) \|", section[1], re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    for_people = {"context"} | {f"Actual_Captured_{what}_{unit}" for what in ("Master_Weight", "Main_Grad_Mem") for unit in ("MB", "bytes")}
    assert named == {f.name for f in msgspec.structs.fields(R.Memory)} | for_people | set(F.PART_ROW)
    assert f"`[{', '.join(F.PART_ROW)}]`" in TEXT and f"`[{', '.join(F.PEAK_ROW)}]`" in TEXT
