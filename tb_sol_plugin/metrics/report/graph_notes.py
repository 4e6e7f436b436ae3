"""Reports what is known of graph launches: how many have the names of what was captured, what differs, how to record a capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from msgspec import Struct

from tb_sol_plugin.metrics.time.scope import engine_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import EAGER_RUN, GRAPH_CAPTURE
from tb_sol_plugin.model.report import Column, Link, Notice, Sort, TableSection, make_table
from tb_sol_plugin.units import human

COLUMNS: Final = (
    Column("batch", "Batch", "count", "That the iteration asked for; empty where it does not say.", missing="not said"),
    Column("captured_batch", "Captured for", "count", "Batch that the graph was captured for.", missing="not known"),
    Column("mode", "Mode", "", "FULL: one graph per iteration; PIECEWISE: one per piece, with eager work between them.", "badge"),
    Column("launches", "Launches", "count", "Graph launches."),
    Column("events", "Events", "count", "Device events that they replayed."),
    Column("device_ns", "Device time", "ns", "Sum of their durations.", "bar", color="gemm"),
    Column("aligned", "Aligned", "", "How their events were aligned with what was captured or ran eagerly, by names.", "badge"),
    Column("named_by", "Named by", "", "A capture, or an eager run that stands in for it.", "badge", missing="nothing"),
    Column("why", "What differs", "", "First difference, of launches that are not aligned.", "text"),
)


class Advice(Struct, frozen=True):
    """How to record the capture of an engine's graphs. engine: as it is called in the steps. eager: how to run it without graphs."""

    engine: str
    how: str
    eager: str


ADVICE: Final = (
    Advice("SGLang", "start the server with --enable-profile-cuda-graph", "--disable-cuda-graph"),
    Advice(
        "ATOM",
        "start the server with --enable-capture-profiling where ATOM runs here, as the spelling of the iterations is its own; in a loop of "
        "one's own run what captures the graphs inside torch.profiler.profile(record_shapes=True, with_stack=True)",
        "--enforce-eager",
    ),
    Advice(
        "vLLM", "run capture_model() of the model runner inside torch.profiler.profile(record_shapes=True, with_stack=True)",
        "--enforce-eager",
    ),
    Advice(
        "", "run the code that captures the graphs inside torch.profiler.profile(record_shapes=True, with_stack=True)", "its graphs off",
    ),
)  # fmt: skip
"""Options are those of the engines' own documentation; the last row holds for any other."""
WHERE: Final = "and put the trace into a folder capture_traces beside this recording, or name it with --capture"


def advice_for(capture: Capture) -> str:
    """Returns how to record the capture of the graphs that are launched here."""
    one = next((one for one in ADVICE if one.engine == engine_of(capture)), ADVICE[-1])
    return f"{one.how}, {WHERE}; a recording of the same program with {one.eager} serves too, named with --capture"


def kinds_notices(capture: Capture, rows: Sequence[int]) -> list[Notice]:
    """Returns that a mean over these steps mixes iterations of several kinds; nothing where they are of one."""
    if not engine_of(capture):
        return []
    kinds = capture.steps.iloc[list(rows)]["kind"].astype(str).value_counts()
    if len(kinds) < 2:
        return []
    count = ", ".join(f"{human(int(n), 'count')} {kind}" for kind, n in kinds.items())
    text = f"Steps are iterations of inference: {count}. Means here mix them; Serving tells them apart."
    return [Notice(text, "info", Link("serving", {"by": "kind"}, label="By kind"))]


def aligned(capture: Capture) -> tuple[int, int]:
    """Returns (graph launches that are aligned with a capture, all that were looked up)."""
    how = capture.tables[S.GRAPH_LAUNCHES.name]["how"].to_numpy()
    return int((how >= 0).sum()), len(how)


def replay_notices(capture: Capture) -> list[Notice]:
    """Returns what the names of replayed kernels are from, and what of the captures beside the recording is not used."""
    named, every = aligned(capture)
    if not every:
        return []
    out = []
    link = Link("health", {}, label="Graph launches")
    remedy = "Record the captures with the same version and settings as the replays"
    if named:
        files = [(word, capture.facts.metadata.get(key)) for key, word in ((GRAPH_CAPTURE, "the capture"), (EAGER_RUN, "the eager run"))]
        source = " and ".join(f"{word} {file}" for word, file in files if file)
        count = "the graph launch" if named == every == 1 else f"{human(named, 'count')} of {human(every, 'count')} graph launches"
        out.append(Notice(f"What {count} replayed has operators, sizes and modules from {source}.", "info", link))
    if named < every:
        table = capture.tables[S.GRAPH_LAUNCHES.name]
        rest = table[table["how"].to_numpy() < 0]
        why = str(rest["why"].iloc[0])
        text = f"{human(every - named, 'count')} of {human(every, 'count')} graph launches agree with no capture or eager run"
        out.append(Notice(f"{text}: of the first, {why}. {remedy}.", "warn", link))
    return out


def graph_section(capture: Capture) -> list[TableSection]:
    """Returns the table of graph launches by batch, mode and alignment; nothing where none was looked up."""
    table = capture.tables[S.GRAPH_LAUNCHES.name]
    if not len(table):
        return []
    words = np.array([*S.ALIGNMENTS, "no"], object)
    frame = pd.DataFrame(
        {
            "batch": table["batch"],
            "captured_batch": table["captured_batch"],
            "mode": table["mode"].astype(str),
            "aligned": words[table["how"].to_numpy()],
            "named_by": np.where(table["how"] < 0, "", np.where(table["eager"], "eager run", "capture")),
            "why": table["why"].astype(str),
            "events": table["events"],
            "device_ns": table["device_ns"],
        }
    )
    keys = ["batch", "captured_batch", "mode", "aligned", "named_by", "why"]
    sums = {"launches": ("events", "size"), "events": ("events", "sum"), "device_ns": ("device_ns", "sum")}
    shown = frame.groupby(keys, sort=False, as_index=False).agg(**sums)
    for name in ("batch", "captured_batch"):
        shown[name] = shown[name].astype(object).where(shown[name] >= 0, None)
    named, every = aligned(capture)
    return [
        make_table(
            "graphs", "Graph launches", shown, COLUMNS, sort=Sort("device_ns"), filters=["mode", "aligned"],
            subtitle=f"{human(named, 'count')} of {human(every, 'count')} have the names of a recorded capture",
        )
    ]  # fmt: skip
