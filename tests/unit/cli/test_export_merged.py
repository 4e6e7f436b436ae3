"""`tb-sol export merged`: ranks of a run in one trace file, on one clock."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_sol_plugin.cli import command, export
from tests.support.rank_factory import Job, Made, simulate

OFFSET_NS = 5e6


@pytest.fixture(scope="module")
def job() -> Made:
    """Four ranks on two hosts whose clocks differ by milliseconds."""
    return simulate(Job(dp=4, ranks_per_host=2, layers=2, steps=2, buckets=2, offset_ns=OFFSET_NS))


@pytest.fixture(scope="module")
def run(job: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return job.write(tmp_path_factory.mktemp("logs") / "run")


def merged(run: Path, target: Path, *flags: str) -> dict[str, Any]:
    assert command.main(["export", "merged", str(run), "-o", str(target), "--no-cache", *flags]) == 0
    return json.loads(gzip.decompress(target.read_bytes()))  # type: ignore[no-any-return]


def processes(made: dict[str, Any]) -> dict[Any, str]:
    return {e["pid"]: e["args"]["name"] for e in made["traceEvents"] if e["ph"] == "M" and e["name"] == "process_name"}


def ends(made: dict[str, Any]) -> list[list[float]]:
    """When each collective ends on each rank, us: those of one group and sequence number together."""
    found = defaultdict(list)
    for e in made["traceEvents"]:
        args = e.get("args", {})
        if e["ph"] == "X" and "Collective name" in args and args.get("Seq") is not None:
            found[args["Process Group Description"], args["Process Group Ranks"], args["Seq"]].append(e["ts"] + e["dur"])
    return list(found.values())


def test_ranks_stand_on_one_clock_and_apart(job: Made, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN hosts whose clocks differ WHEN the run is merged THEN the members of each collective end together, to microseconds
    made = merged(run, tmp_path / "out.json.gz")
    together = ends(made)
    assert len(together) == 6 and all(len(one) == 4 for one in together)
    assert np.median([max(one) - min(one) for one in together]) < 50
    # AND by the clocks of the files they are as far apart as these are
    apart = [max(one) - min(one) for one in ends(merged(run, tmp_path / "clock.json.gz", "--align", "clock"))]
    truth = np.ptp(job.truth.offset_ns) / 1e3
    assert abs(np.median(apart) - truth) < 0.02 * truth
    # AND every rank has processes of its own, named after it, with all of its events
    names = processes(made)
    assert {name.split(":")[0] for name in names.values()} == {f"rank {rank}" for rank in range(4)}
    for rank in range(4):
        pids = {pid for pid, name in names.items() if name.startswith(f"rank {rank}:")}
        own = [e for e in made["traceEvents"] if e["ph"] == "X" and e.get("cat") == "kernel" and e["pid"] in pids]
        alone = json.loads(gzip.decompress(next(run.glob(f"rank{rank}.*")).read_bytes()))["traceEvents"]
        assert len(own) == sum(e["ph"] == "X" and e.get("cat") == "kernel" for e in alone)
    assert "4 ranks, by the ends of matched collectives, within" in capsys.readouterr().err


def test_ranks_and_a_window_can_be_chosen(run: Path, tmp_path: Path) -> None:
    made = merged(run, tmp_path / "out.json.gz", "--ranks", "0,2-3", "--start", "1000000", "--end", "2000000", "--clip")
    assert {name.split(":")[0] for name in processes(made).values()} == {"rank 0", "rank 2", "rank 3"}
    times = [(e["ts"], e["ts"] + e["dur"]) for e in made["traceEvents"] if e["ph"] == "X"]
    assert times and min(begin for begin, _ in times) >= 1_000 and max(end for _, end in times) <= 2_000


def test_a_rank_that_cannot_be_read_is_named_and_left_out(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a copy of the run in which one file is broken WHEN all are merged THEN the others are, and that one is named
    for file in run.glob("rank*"):
        (tmp_path / "run").mkdir(exist_ok=True)
        body = b"{" if file.name.startswith("rank1.") else file.read_bytes()
        (tmp_path / "run" / file.name).write_bytes(gzip.compress(body) if body == b"{" else body)
    made = merged(tmp_path / "run", tmp_path / "out.json.gz")
    assert {name.split(":")[0] for name in processes(made).values()} == {"rank 0", "rank 2", "rank 3"}
    assert "left out rank1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "why"),
    [(["--ranks", "7"], "rank 7"), (["--ranks", "a-b"], "no ranks"), (["--start", "9", "--end", "3"], "window"), (["--align", "moon"], "alignment")],
)
def test_what_is_not_there_is_refused_and_writes_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], why: str
) -> None:
    target = tmp_path / "out.json.gz"
    assert command.main(["export", "merged", str(run), "-o", str(target), "--no-cache", *flags]) == 2
    assert why in capsys.readouterr().err and not target.exists()


def test_more_ranks_than_a_viewer_opens_are_to_be_chosen(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "MOST_RANKS", 3)
    assert command.main(["export", "merged", str(run), "-o", str(tmp_path / "out.json.gz"), "--no-cache"]) == 2
    assert "--ranks 0-2" in capsys.readouterr().err
