"""`make new-analysis NAME=streams [ROOM=time]`: write a small analysis that works, and its test, to begin from."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

ANALYSIS = '''"""{title}: how long each stream of a device is busy."""

from __future__ import annotations

import pandas as pd

from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, Report, make_facts, make_table
from tb_sol_plugin.units import human

COLUMNS = (
    Column("stream", "Stream", "", "Stream of the device.", "code"),
    Column("events", "Events", "count", "Device events on the stream."),
    Column("total_ns", "Time", "ns", "Sum of the durations of its device events.", "bar", color="compute"),
)
FACTS = (Fact("total_ns", "Device time", "ns", "Sum of the durations of all device events."),)


class {cls}Query(Query, kw_only=True, frozen=True):
    """least_events: only streams with at least so many device events"""

    least_events: int = 1


@analysis(
    title="{title}",
    question="Which stream works how long?",
    group="Time",
    order=90,
    requirements=("device_events",),
    query={cls}Query,
    tables={{"streams": COLUMNS}},
    facts=FACTS,
)
def {name}(capture: Capture, query: {cls}Query) -> Report:
    events = capture.device[scope(capture, query).device]
    total = int(events["duration_ns"].sum())
    by_stream = events.groupby("stream", observed=True)["duration_ns"].agg(["count", "sum"]).reset_index()
    by_stream = by_stream[by_stream["count"] >= query.least_events]
    frame = pd.DataFrame({{"stream": by_stream["stream"].astype(str), "events": by_stream["count"], "total_ns": by_stream["sum"]}})
    frame = frame.sort_values("total_ns", ascending=False)
    return Report(
        analysis="{name}",
        title="{title}",
        headline=f"{{len(frame)}} streams, **{{human(total, 'ns')}}** of device time in all.",
        sections=[
            make_facts("totals", "Totals", {{"total_ns": total}}, FACTS),
            make_table("streams", "Streams", frame, COLUMNS, key="stream"),
        ],
    )
'''
TEST = '''"""{title}: numbers of a trace that is written here."""

from __future__ import annotations

from pathlib import Path

import tb_sol_plugin as sol
from tb_sol_plugin.model.report import Report
from tests.support.trace_builder import TraceBuilder


def test_time_by_stream(tmp_path: Path) -> None:
    # GIVEN kernels of 10 us and 20 us on stream 7, and one of 5 us on stream 8
    t = TraceBuilder()
    t.kernel("a", 1_000, 10_000, stream=7)
    t.kernel("b", 20_000, 20_000, stream=7)
    t.kernel("c", 20_000, 5_000, stream=8)
    capture = sol.open_capture(str(t.write(tmp_path / "rank0.json")), cache=False)
    # WHEN it is computed THEN 30 us and 5 us, 35 us in all; a field leaves the second stream out
    found = capture.analyze("{name}")
    assert isinstance(found, Report)
    assert found.table("streams")["total_ns"].tolist() == [30_000, 5_000] and found.facts["total_ns"] == 35_000
    assert capture.analyze("{name}", least_events=2).table("streams")["stream"].tolist() == ["7"]
'''


def main(name: str, room: str = "time") -> int:
    """Write both files; status 1, and nothing written, where the name does not fit or one of them is there."""
    if not name.isidentifier() or name != name.lower():
        print(f"{name!r} is no name of a module: give lower case letters, digits and _", file=sys.stderr)
        return 1
    title = name.replace("_", " ").capitalize()
    words = {"name": name, "title": title, "cls": name.title().replace("_", "")}
    places = {
        ROOT / "tb_sol_plugin" / "analyses" / room / f"{name}.py": ANALYSIS,
        ROOT / "tests" / "unit" / "analyses" / room / f"test_{name}.py": TEST,
    }
    wrong = [str(p.relative_to(ROOT)) for p in places if p.exists()] or [str(p.parent) for p in places if not p.parent.is_dir()][:1]
    existing = next((ROOT / "tb_sol_plugin" / "analyses").glob(f"*/{name}.py"), None)
    if wrong or existing:
        print(f"there is {existing.relative_to(ROOT) if existing else ''} already, or no such room: {', '.join(wrong)}", file=sys.stderr)
        return 1
    for path, text in places.items():
        path.write_text(text.format(**words), encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
