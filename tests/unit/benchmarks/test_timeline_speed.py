"""The table of the timeline's speed: one cell of each recording for each budget, between its marks, however often it is made."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import timeline_speed as speed
from tb_sol_plugin import ingest
from tests.support.trace_builder import TraceBuilder


def test_the_table_stands_between_its_marks() -> None:
    # GIVEN a page with marks and figures of some recordings WHEN the table is made twice THEN it is there once, and the rest is as it was
    figures = json.loads(speed.FIGURES.read_text(encoding="utf-8"))
    once = speed.page(f"before\n{speed.BEGIN}{speed.END}after\n", figures)
    assert speed.page(once, figures) == once and once.startswith("before\n") and once.endswith(f"{speed.END}after\n")
    rows = [line.split(" | ") for line in once.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(speed.BUDGETS) and {len(row) for row in rows} == {2 + len(figures["files"])}
    assert [row[0].removeprefix("| ") for row in rows[2:]] == list(speed.BUDGETS)
    # AND figures stand where their budget does
    (tiles,) = (row for row in rows if "screen of tiles" in row[0])
    routes = figures["files"][0]["server"]["routes"]
    assert tiles[2] == f"{routes['tiles, 1 % of it']['median']:.1f} / {routes['tiles, all of it']['first']:.0f}"


def test_many_workers_stand_below_the_table() -> None:
    # GIVEN figures with and without those of many workers THEN they stand in a sentence of their own, and the table is the same
    figures = json.loads(speed.FIGURES.read_text(encoding="utf-8"))
    table = speed.section({name: value for name, value in figures.items() if name != "workers"})
    found = {"workers": 64, "events": 104_159, "picture": 1_677, "cpu": 390, "cpu_all": 560, "from_disk": 2_280}
    text = speed.section(figures | {"workers": found})
    assert text.startswith(table) and " ".join(text[len(table) :].split()) == (
        "64 workers of 104,159 events each under each other, as summaries: first picture 1,677 ms after a click (budget 1,000), of which the "
        "server computes 390 ms; 2,280 ms where the cache has to come from the disk."
    )


def test_copies_are_made_one_at_a_time(tmp_path: Path) -> None:
    # GIVEN a trace of two events WHEN one and three copies of it are asked for THEN each file is there while it is measured, and no longer
    t = TraceBuilder()
    t.op("aten::mm", 0, 100)
    t.kernel("gemm", 20, 50)
    source = t.write(tmp_path / "a.pt.trace.json")
    paths, events = [], []
    for path in speed.copied([source], [1, 3]):
        paths.append(path)
        events.append(len(ingest.read(str(path)).host) + len(ingest.read(str(path)).device))
        assert sum(one.exists() for one in paths) == 1
    assert events == [2, 6] and not any(path.exists() for path in paths)
    assert list(speed.copied([source], [])) == [source] and source.exists()
