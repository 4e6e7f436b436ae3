"""The event generator writes what it was told, as a recorder would."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

from tests.support.trace_builder import BASE_NS, Raw, TraceBuilder


def test_a_launch_is_a_call_and_a_kernel_with_one_correlation() -> None:
    # GIVEN one launch at 1 500 ns of a kernel from 3 000 ns on for 4 001 ns
    t = TraceBuilder()
    t.launch("k", at=1_500, start=3_000, duration=4_001, stream=9)
    # WHEN the text is parsed with exact decimals
    data = json.loads(t.text(), parse_float=Decimal)
    # THEN both carry the same correlation, and times are microseconds after the builder's zero
    call, _, kernel, _ = data["traceEvents"]
    assert (call["cat"], kernel["cat"]) == ("cuda_runtime", "kernel")
    assert call["args"]["correlation"] == kernel["args"]["correlation"] == 100
    assert call["ts"] == Decimal("1000000001.500") and kernel["ts"] == Decimal("1000000003.000")
    assert kernel["dur"] == Decimal("4.001") and kernel["args"]["stream"] == 9
    assert data["baseTimeNanoseconds"] == BASE_NS and data["deviceProperties"][0]["numSms"] == 132


def test_the_same_events_give_the_same_bytes(tmp_path: Path) -> None:
    # GIVEN two builders told the same
    def build(path: Path) -> bytes:
        t = TraceBuilder(rank=1, world_size=2)
        t.collective("allreduce", 0, 10, elements=4)
        return t.write(path).read_bytes()

    # WHEN both are written compressed THEN the files are equal, and hold the collective's arguments
    first = build(tmp_path / "a" / "x.json.gz")
    assert first == build(tmp_path / "b" / "x.json.gz")
    data = json.loads(gzip.decompress(first))
    assert data["distributedInfo"]["rank"] == 1
    assert data["traceEvents"][0]["args"]["Process Group Ranks"] == "[0, 1]"
    assert data["traceEvents"][0]["name"].startswith("ncclDevKernel_AllReduce_Sum_Float")


def test_raw_text_and_missing_header_keys() -> None:
    # GIVEN an argument with bare NaN, and a header key taken out
    t = TraceBuilder(header={"schemaVersion": None, "extra": "é"})
    t.op("aten::x", 0, 1, args={"odd": Raw("NaN")})
    # THEN the text holds it verbatim, and the key is gone
    assert '"odd": NaN' in t.text() and "schemaVersion" not in t.header and '"extra": "é"' in t.text()
    assert t.text(events_last=False).index("traceEvents") < t.text(events_last=False).index("baseTime")
