"""Recordings of several makers placed in one run: the comparison of ranks against sums over the plain JSON of each file."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.model.report import Report

FILES = {
    "rank0": "hta/negative_queue_length_values_check/rank0.json.gz",
    "rank1": "hta/trace_diff/control/control.json.gz",
    "rank2": "hta/trace_diff/test/test.json.gz",
    "rank3": "hta/rank_non_gpu/rank_non_gpu.json.gz",
    "rank4": "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "rank5": "hta/memory_analysis/memory_timeline.raw.gz",
}
"""A DLRM of 16 ranks with large copies inside the device, two of one job, a rank without device, a ResNet, and a file that is no trace."""
DIRECTION = re.compile(r"Memcpy (HtoD|DtoH|DtoD|PtoP|HtoH)")


def plain_sums(path: Path) -> dict[str, tuple[int, int, int]]:
    """(events, bytes, ns) of a file's copies and sets by direction, from its JSON alone."""
    out: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    with gzip.open(path) as stream:
        events = json.load(stream, parse_float=Decimal, strict=False)["traceEvents"]
    for event in events:
        if str(event.get("cat", "")).lower() not in ("gpu_memcpy", "gpu_memset", "memcpy", "memset") or event.get("ph") != "X":
            continue
        found = DIRECTION.search(event["name"])
        mine = out[found[1] if found else "Memset"]
        size = event.get("args", {}).get("bytes")
        mine[0] += 1
        mine[1] += int(size) if size is not None else 0
        mine[2] += round(Decimal(event["dur"]) * 1000)
    return {name: (a, b, c) for name, (a, b, c) in out.items()}


@pytest.mark.real
def test_rows_are_the_sums_of_each_file(traces: Path, tmp_path: Path) -> None:
    # GIVEN six files in one run, each as a rank by its name WHEN ranks are compared
    for worker, name in FILES.items():
        (tmp_path / "job").mkdir(exist_ok=True)
        (tmp_path / "job" / f"{worker}.1.pt.trace.json.gz").symlink_to(traces / name)
    found = sol.open(str(tmp_path / "job"), cache=False).analyze("memcpy_ranks")
    assert isinstance(found, Report)
    t = found.table("ranks")
    # THEN every row holds what the plain file adds up to, copies run as kernels apart
    compared = 0
    for worker in ("rank0", "rank1", "rank2", "rank4"):
        mine = t[(t["worker"] == worker) & (t["direction"] != "copy kernel")]
        wanted = plain_sums(traces / FILES[worker])
        assert dict(zip(mine["direction"], mine["count"], strict=True)) == {d: n for d, (n, _, _) in wanted.items()}, worker
        for direction, size, time, hidden, exposed in zip(
            mine["direction"], mine["bytes"], mine["time_ns"], mine["hidden_ns"], mine["exposed_ns"], strict=True
        ):
            assert (size or 0, time) == wanted[direction][1:], (worker, direction)
            assert hidden >= 0 and exposed >= 0 and hidden + exposed <= time
            compared += 1
    assert compared >= 10
    # THEN the rank without a device lacks what is compared, the file that is no trace says so, and both are in no number
    left = found.table("left_out").set_index("worker")
    assert "no device activity" in left.loc["rank3", "why"] and "memory timeline" in left.loc["rank5", "why"].lower()
    assert found.facts["workers"] == 6 and found.facts["workers_read"] == 4


@pytest.mark.real
def test_one_recording_twice_is_even(traces: Path, tmp_path: Path) -> None:
    # GIVEN the same recording under two names without a header's rank in the way THEN there is no imbalance in any direction
    for i in range(2):
        (tmp_path / "job").mkdir(exist_ok=True)
        (tmp_path / "job" / f"copy{i}.1.pt.trace.json.gz").symlink_to(traces / FILES["rank4"])
    found = sol.open(str(tmp_path / "job"), cache=False).analyze("memcpy_ranks")
    assert isinstance(found, Report)
    t = found.table("directions")
    t = t[t["ranks"].notna()]
    assert len(t) and (t["imbalance"] == 1.0).all() and (t["excess_ns"] == 0).all() and "copy alike" in found.headline
