"""Memory in recordings made by others: the timeline against its reference values, curves of traces against sums of the plain JSON."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.ingest.memory.timeline import CATEGORIES
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.allocations import by_operator
from tb_sol_plugin.metrics.memory.attribution import GROUPINGS, attribution, groupings_of
from tb_sol_plugin.metrics.memory.curves import HOST_RESERVED, curves

TIMELINE = "hta/memory_analysis/memory_timeline.raw.gz"


@pytest.mark.real
def test_the_timeline_holds_the_reference_values(traces: Path) -> None:
    # GIVEN the reference: bytes per category after the n-th distinct time of the plain file, counted from 0, the time -1 included
    entry = next(e for e in json.loads((traces / "oracles.json").read_text()) if e["quantity"] == "memory_timeline")
    times = sorted({row[0] for row in json.loads(gzip.decompress((traces / TIMELINE).read_bytes()))})
    moment = times[entry["params"]["time_index"]]
    # WHEN the file is read THEN each category holds that many bytes at that time
    c = ingest.read(str(traces / TIMELINE))
    t = c.tables["memory_timeline"]
    before = t[t["time_ns"] <= moment - c.facts.origin_ns]
    held = [before.loc[before["category"] == name, "bytes"].tolist()[-1:] or [0] for name in CATEGORIES]
    assert [n for (n,) in held] == entry["expected"]


# -- memory events of traces ------------------------------------------------------------------------------------

WITH_TOTALS = {
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": "CUDA 0",
    "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz": "CUDA 0",
    "tracelens/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz": "CUDA 0",
    "tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz": "HIP 0",
    "tracelens/perf_model/normalization/normalization_layer_test.json.gz": "HIP 0",
}
OLD = "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz"


def plain_events(path: Path) -> dict[tuple[int, int], list[dict[str, int]]]:
    """Arguments of the memory events of each device in order of time, from the plain JSON."""
    with gzip.open(path) as stream:
        events = json.load(stream, parse_float=Decimal, strict=False)["traceEvents"]
    found = [(Decimal(e["ts"]), i, e["args"]) for i, e in enumerate(events) if e.get("name") == "[memory]"]
    out: dict[tuple[int, int], list[dict[str, int]]] = defaultdict(list)
    for _, _, args in sorted(found, key=lambda f: f[:2]):
        out[args["Device Type"], args["Device Id"]].append(args)
    return out


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(WITH_TOTALS))
def test_curves_of_traces_end_where_the_plain_sum_does(traces: Path, name: str) -> None:
    # GIVEN the trace, and its plain JSON added up event by event
    plain = plain_events(traces / name)
    c = ingest.read(str(traces / name))
    found = {d: R.replay(c, d) for d in R.devices(c)}
    drawn = {curve.device: curve for curve in curves(c)}
    assert {(d.type, d.id) for d in found} == set(plain) and WITH_TOTALS[name] in drawn
    for device, r in found.items():
        events = plain[device.type, device.id]
        level = before = events[0]["Total Allocated"] - events[0]["Bytes"]
        highest, live, lost = before, {}, 0
        for place, args in enumerate(events):
            level += args["Bytes"]
            highest = max(highest, level)
            # THEN the running sum is the recorded total after every event, and the replay has both
            assert level == args["Total Allocated"] == int(r.allocated[place])
            if args["Bytes"] > 0:
                live[args["Addr"]] = args["Bytes"]
            elif live.pop(args["Addr"], None) is None:
                lost += 1
        assert r.before == before and r.differs == 0
        # AND the curve begins, ends and peaks there; what is never freed and what was freed from before are those of the plain file
        curve = drawn[device.label]
        assert curve.allocated is not None and (int(curve.allocated[0]), int(curve.allocated[-1]), curve.peak) == (before, level, highest)
        a = R.allocations(c, device)
        assert int(a["before"].sum()) == lost and sorted(a.loc[a["last"] < 0, "bytes"]) == sorted(live.values())
        # AND reserved memory is that of the file on a device, and not tracked on the host
        if device.type == R.CPU:
            assert {e["Total Reserved"] for e in events} == {0} and curve.reserved is None and HOST_RESERVED in curve.notes
        else:
            assert curve.reserved is not None and int(curve.reserved[-1]) == events[-1]["Total Reserved"]
            assert (curve.reserved >= curve.allocated).all()
        t = by_operator(c, device)
        assert int(t["self_size_increase"].sum()) == level - before and int(t["self_allocations"].sum()) == sum(
            e["Bytes"] > 0 for e in events
        )


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(WITH_TOTALS))
def test_who_held_memory_at_the_peak_adds_up_to_it(traces: Path, name: str) -> None:
    # GIVEN the trace, and what is alive at the peak by a map of addresses over the plain JSON
    plain = plain_events(traces / name)
    c = ingest.read(str(traces / name))
    for curve in curves(c, most=100):
        device = next(d for d in R.devices(c) if d.label == curve.device)
        events = plain[device.type, device.id]
        levels = [e["Total Allocated"] for e in events]
        before = levels[0] - events[0]["Bytes"]
        last = levels.index(max(levels)) if max(levels) > before else -1
        live: dict[int, int] = {}
        gone = 0
        for args in events[: last + 1]:
            if args["Bytes"] > 0:
                live[args["Addr"]] = args["Bytes"]
            elif live.pop(args["Addr"], None) is None:
                gone -= args["Bytes"]
        # WHEN asked by everything that can be told THEN rows add up to the peak, nothing is unknown but by category, and memory made
        # in the window and memory from before are those of the map
        can = groupings_of(c, curve)
        assert "operator" in can and "category" in can
        for by in GROUPINGS:
            found = attribution(c, curve, by)
            earlier = int(found.rows.loc[found.rows["kind"] == "before", "bytes"].sum())
            assert int(found.rows["bytes"].sum()) == found.total == curve.peak == max(levels + [before])
            if by != "category":
                assert int(found.rows.loc[found.rows["kind"] == "row", "bytes"].sum()) == sum(live.values())
                assert found.unknown == 0
            assert earlier == before - gone


@pytest.mark.real
def test_an_old_trace_without_totals_shows_the_change(traces: Path) -> None:
    # GIVEN a trace of 2021, whose events carry neither totals nor addresses WHEN drawn THEN curves are changes that add up to the plain sum
    plain = plain_events(traces / OLD)
    c = ingest.read(str(traces / OLD))
    for device, curve in zip(R.devices(c), curves(c), strict=True):
        found = attribution(c, curve, "operator")
        assert groupings_of(c, curve) == () and found.unknown == found.total == curve.peak and any("no addresses" in n for n in found.notes)
        assert int(by_operator(c, device)["self_size_increase"].sum()) == sum(e["Bytes"] for e in plain[device.type, device.id])
        assert curve.relative and curve.before == -1 and curve.reserved is None and curve.allocated is not None
        assert int(curve.allocated[-1]) == sum(e["Bytes"] for e in plain[device.type, device.id])
        assert not R.allocations(c, device)["paired"].any()


@pytest.mark.real
def test_the_timeline_peaks_at_its_largest_sum(traces: Path) -> None:
    # GIVEN the timeline added up row by row WHEN drawn with few points THEN the largest sum over all moments is the peak
    rows = json.loads(gzip.decompress((traces / TIMELINE).read_bytes()))
    first = next(r[0] for r in rows if r[0] >= 0)
    after: dict[int, int] = {}
    level = 0
    for time, _, size, _ in rows:
        level += size
        after[max(time, first)] = level
    (curve,) = curves(ingest.read(str(traces / TIMELINE)), most=200)
    assert curve.peak == max(after.values()) and curve.allocated is not None and int(curve.allocated[-1]) == level
    assert curve.peak_ns + first in [t for t, n in after.items() if n == curve.peak] and len(curve.time_ns) <= 200


# -- torch-tb-profiler 0.4.3 on the same files: size increase and self size increase of operators in bytes, and the peak -------------------

VIEWER = {
    "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz": (101_305_344, {
        "aten::addmm": (13_949_440, -13_313_536), "aten::empty": (28_745_728, 28_745_728), "aten::layer_norm": (1_443_840, -20_480),
        "aten::linear": (13_949_440, 0), "aten::gelu": (2_454_528, 2_454_528), "aten::scaled_dot_product_attention": (577_536, -18_432),
    }),
    "tracelens/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz": (2_707_847_680, {
        "aten::empty": (8_982_446_080, 8_982_446_080), "aten::reshape": (1_274_726_400, 0),
    }),
}  # fmt: skip
INSIDE_ITSELF = {"aten::arange": (10_240, 5_120), "aten::where": (107_520, 53_760)}
"""Of the second trace: operators that call themselves. There the bytes of the inner call count once more in the outer one; here once."""


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(VIEWER))
def test_operators_and_peak_as_another_viewer_has_them(traces: Path, name: str) -> None:
    # GIVEN what torch-tb-profiler 0.4.3 says of the trace WHEN summed here THEN it is the same
    peak, operators = VIEWER[name]
    c = ingest.read(str(traces / name))
    assert curves(c)[0].peak == peak
    t = by_operator(c, R.devices(c)[0]).set_index("name")
    for operator, (whole, alone) in operators.items():
        assert (int(t.loc[operator, "size_increase"]), int(t.loc[operator, "self_size_increase"])) == (whole, alone)
    # AND but for operators inside themselves, whose bytes it counts more than once
    if "owlv2" in name:
        assert {o: int(t.loc[o, "size_increase"]) for o in INSIDE_ITSELF} == {o: once for o, (_, once) in INSIDE_ITSELF.items()}
