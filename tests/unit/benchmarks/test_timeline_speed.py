"""The table of the timeline's speed: one cell of each recording for each budget, between its marks, however often it is made."""

from __future__ import annotations

import json

from benchmarks import timeline_speed as speed


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
