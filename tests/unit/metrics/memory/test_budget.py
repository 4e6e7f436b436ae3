"""Categories of memory at each record add up to what is in use, whatever the record leaves out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.memory import budget as B
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support.sol_builder import small

MB = 1_000_000


def capture_of(records: list[dict[str, object]], parts: list[tuple[int, str, int]] = ()) -> Capture:
    """A capture with these records (unknown where not given) and parts of (record, category, bytes)."""
    numbers = [n for n, f in S.MEMORY_RECORDS.fields.items() if f.dtype in ("int64", "int32")]
    columns: dict[str, object] = {n: np.array([int(r.get(n, -1)) for r in records], np.int64) for n in numbers}
    columns["phase"] = np.asarray(columns["phase"], np.int32)
    columns["tag"] = pd.Categorical([str(r.get("tag", "")) for r in records])
    columns["since"] = pd.Categorical([str(r.get("since", "process")) for r in records])
    count = len(parts)
    tables = {
        "memory_records": S.MEMORY_RECORDS.frame(columns),
        "memory_parts": S.MEMORY_PARTS.frame({
            "record": np.array([p[0] for p in parts], np.int32), "category": pd.Categorical([p[1] for p in parts]),
            "dtype": pd.Categorical(["fp32"] * count), "module": np.full(count, -1, np.int32),
            "tensors": np.ones(count, np.int64), "bytes": np.array([p[2] for p in parts], np.int64),
            "view_bytes": np.array([p[2] for p in parts], np.int64),
        }),
    }  # fmt: skip
    return Capture(Facts(source="sol_capture", file="x", size=0), tables)


def row(capture: Capture, record: int) -> dict[str, int]:
    """Bytes by category of one record, those of 0 left out."""
    found = B.budget(capture)
    own = found[found["record"] == record]
    return {c: int(b) for c, b in zip(own["category"].astype(str), own["bytes"], strict=True) if b}


def test_memory_of_a_device_is_split_from_its_context_to_the_unknown_rest() -> None:
    # GIVEN 400 MB of context at first, 600 after the process group, then 5 000 in use of which the allocator has 4 350 and uses 4 200
    c = capture_of(
        [
            {"device": 0, "time_ns": 1, "device_used": 400 * MB, "reserved": 0, "allocated": 0},
            {"device": 0, "time_ns": 2, "device_used": 600 * MB, "reserved": 0, "allocated": 0},
            {"device": 0, "time_ns": 3, "iteration": 5, "device_used": 5_000 * MB, "reserved": 4_350 * MB, "allocated": 4_200 * MB},
        ],
        [(2, "params", 1_000 * MB), (2, "exp_avg", 2_000 * MB), (2, "exp_avg", 1_000 * MB), (2, "grads", 0)],
    )
    # THEN 400 are the context, 200 came with the group, 150 are fragmentation, and 4 200 - 4 000 + 50 of new context are unknown
    assert row(c, 2) == {
        "base_context": 400 * MB, "nccl": 200 * MB, "params": 1_000 * MB, "exp_avg": 3_000 * MB, "fragmentation": 150 * MB,
        "unknown": 250 * MB,
    }  # fmt: skip
    assert row(c, 0) == {"base_context": 400 * MB} and row(c, 1) == {"base_context": 400 * MB, "nccl": 200 * MB}
    # AND 250 of 5 000 are no more than 5 %
    whole = B.totals(c)
    assert whole["of"].astype(str).tolist() == ["device_used"] * 3 and whole["flag"].tolist() == ["", "", ""]
    # AND it is known which parts were looked for
    found = B.budget(c)
    known = found[(found["record"] == 2) & found["known"]]["category"].astype(str).tolist()
    assert known == ["base_context", "nccl", "params", "grads", "exp_avg", "fragmentation", "unknown"]


def test_other_processes_are_separate_where_the_driver_reports_them() -> None:
    # GIVEN a device with 3 000 MB in use, 1 000 of them of other processes, and 1 800 reserved
    first = {"device": 0, "time_ns": 1, "device_used": 1_150 * MB, "process_used": 150 * MB, "reserved": 0, "allocated": 0}
    last = {"device": 0, "time_ns": 2, "iteration": 0, "device_used": 3_000 * MB, "process_used": 2_000 * MB, "reserved": 1_800 * MB,
            "allocated": 1_800 * MB}  # fmt: skip
    c = capture_of([first, last], [(1, "params", 1_800 * MB)])
    assert row(c, 1) == {"base_context": 150 * MB, "others": 1_000 * MB, "params": 1_800 * MB, "unknown": 50 * MB}
    # AND where one record does not tell, no other process is told from the context
    c = capture_of([{**first, "process_used": -1}, last], [(1, "params", 1_800 * MB)])
    assert row(c, 1) == {"base_context": 1_150 * MB, "params": 1_800 * MB, "unknown": 50 * MB}


def test_parts_counted_twice_make_the_unknown_rest_negative() -> None:
    c = capture_of(
        [{"device": 0, "iteration": 0, "device_used": 1_000, "reserved": 900, "allocated": 800}], [(0, "params", 700), (0, "grads", 200)]
    )
    assert row(c, 0) == {"base_context": 100, "params": 700, "grads": 200, "fragmentation": 100, "unknown": -100}
    assert B.totals(c)["flag"].tolist() == ["negative"]


def test_without_device_usage_the_allocators_or_the_process_counts() -> None:
    # GIVEN a device that tells only what is allocated THEN the parts add up to that
    c = capture_of([{"device": 1, "iteration": 0, "allocated": 500, "reserved": 900}], [(0, "params", 300)])
    assert row(c, 0) == {"params": 300, "unknown": 200} and B.totals(c)["of"].astype(str).tolist() == ["allocated"]
    assert B.totals(c)["flag"].tolist() == ["large"]
    # AND on the host they add up to the memory of the process, whose base is what it had before the first iteration
    c = capture_of([{"time_ns": 1, "process_used": 300}, {"time_ns": 2, "iteration": 0, "process_used": 1_000}], [(1, "params", 650)])
    assert row(c, 1) == {"base_context": 300, "params": 650, "unknown": 50} and set(B.totals(c)["of"].astype(str)) == {"process_used"}
    # AND where the system does not tell, what was found is all there is to say
    c = capture_of([{"iteration": 0}], [(0, "params", 650)])
    assert row(c, 0) == {"params": 650} and B.totals(c)["of"].astype(str).tolist() == ["parts"]


def test_a_record_of_a_model_is_no_base() -> None:
    # GIVEN a model that was looked at before the first iteration WHEN the base is asked for THEN it is the record before
    c = capture_of(
        [{"time_ns": 1, "process_used": 300}, {"time_ns": 2, "process_used": 900}, {"time_ns": 3, "process_used": 901, "iteration": 0}],
        [(1, "params", 600)],
    )
    assert B.base_records(c, -1).tolist() == [0] and row(c, 2) == {"base_context": 300, "unknown": 601}


def test_phases_are_no_records_and_an_empty_capture_has_none(tmp_path: Path) -> None:
    b = small()
    b.records.insert(-1, {"kind": "memory", "time_ns": 5, "iteration": 2, "device": 0, "device_used": 70, "allocated": 40, "reserved": 50,
                          "phases": [[0, 45, 50]], "parts": [["params", "fp32", -1, 0, 1, 30, 30], ["buffers", "fp32", -1, -1, 1, 8, 8]]})  # fmt: skip
    c = ingest.read(str(b.write(tmp_path / b.name)))
    # THEN there is the record, and one of the host for the tensors that lie there
    found = B.totals(c)
    assert found["of"].astype(str).tolist() == ["device_used", "parts"] and found["total"].tolist() == [70, 8]
    assert row(c, int(found["record"].iloc[0])) == {"base_context": 20, "params": 30, "fragmentation": 10, "unknown": 10}
    empty = ingest.read(str(small().write(tmp_path / "b.sol.jsonl")))
    assert B.budget(empty).empty and B.totals(empty).empty


amount = st.one_of(st.just(-1), st.integers(0, 10**12))
a_record = st.fixed_dictionaries({
    "device": st.integers(-1, 1), "time_ns": st.integers(-50, 50), "iteration": st.integers(-1, 2), "device_used": amount,
    "process_used": amount, "allocated": amount, "reserved": amount, "total": amount,
    "since": st.sampled_from(["process", "iteration", "phase"]),
})  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(a_record, max_size=4), st.lists(st.tuples(st.integers(0, 3), st.sampled_from(B.PARTS), st.integers(0, 10**12)), max_size=12))
def test_categories_of_any_record_sum_to_the_memory_in_use(records: list[dict[str, object]], parts: list[tuple[int, str, int]]) -> None:
    # GIVEN any records, of which any number is unknown, and any parts
    parts = [p for p in parts if p[0] < len(records)]
    c = capture_of(records, parts)
    found, whole = B.budget(c), B.totals(c)
    # THEN each record but those of phases has every category once
    kept = [at for at, r in enumerate(records) if r["since"] != "phase"]
    assert whole["record"].tolist() == kept and len(found) == len(kept) * len(B.CATEGORIES)
    for at, of, total in zip(whole["record"], whole["of"].astype(str), whole["total"], strict=True):
        own = found[found["record"] == at]
        assert own["category"].astype(str).tolist() == list(B.CATEGORIES)
        size = dict(zip(own["category"].astype(str), own["bytes"].tolist(), strict=True))
        # AND they add up to what the record states, as a slow count has it
        assert sum(size.values()) == total
        assert total == (records[at][of] if of != "parts" else sum(b for record, _, b in parts if record == at))
        for category in B.PARTS:
            assert size[category] == sum(b for record, name, b in parts if (record, name) == (at, category))
        # AND what is not known has no bytes
        assert not own["bytes"].to_numpy()[~own["known"].to_numpy()].any()
