"""The host calls behind the copies: which functions, how often, how long they held a thread, and what they moved."""

from __future__ import annotations

from typing import Final

import pandas as pd

from tb_sol_plugin.metrics.copies import blocking
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Sort, TableSection, make_table

NONE: Final = "moves nothing by itself"
COLUMNS: Final = (
    Column("api", "Call", doc="function, without version and stream suffixes", show="code"),
    Column("family", "Family", doc="runtime, driver or HIP", missing="another library", rank=2),
    Column("what", "What", doc="copy, set, prefetch, advise; other: another call that copies are joined to, such as a graph launch"),
    Column("waits", "By its name", doc="whether its name says that it returns at once", missing="its name does not tell", rank=2),
    Column("calls", "Calls", "count", "calls of this function"),
    Column("host_ns", "Host time", "ns", "plain sum of their durations on the host, the drain of a stream included",
           show="bar", color="host"),
    Column("mean_ns", "Mean", "ns", "host time over calls"),
    Column("waited", "Held the host", "count", "calls that returned after their last copy had ended"),
    Column("copies", "Copies", "count", "copies and sets joined to these calls"),
    Column("without_device", "Without copy", "count", "calls that no copy is joined to; prefetch and advice never have one", rank=2),
    Column("bytes", "Bytes", "B", "bytes of those copies, as far as recorded", missing=NONE),
    Column("device_ns", "On device", "ns", "plain sum of the durations of those copies", missing=NONE),
    Column("managed", "Managed", "count", "copies with an end in unified memory", rank=3),
)  # fmt: skip


def section(capture: Capture, where: Scope) -> list[TableSection]:
    """The table of calls in the selection; none where no such call was recorded."""
    found = blocking.calls(capture, where.host)
    if not len(found):
        return []
    nothing = found["copies"].to_numpy() == 0
    frame = found.assign(
        mean_ns=(found["host_ns"] / found["calls"]).round().astype("int64"),
        family=pd.Series([f or None for f in found["family"]], dtype=object),
        waits=pd.Series([{1: "returns at once", 0: "waits"}.get(a) for a in found["is_async"].tolist()], dtype=object),
        bytes=pd.Series([None if b != b else int(b) for b in found["bytes"]], dtype=object),
        device_ns=pd.Series([None if n else int(t) for t, n in zip(found["device_ns"], nothing, strict=True)], dtype=object),
    )
    return [
        make_table(
            "calls",
            "Host calls",
            frame,
            COLUMNS,
            key="api",
            subtitle=where.label,
            sort=Sort("host_ns"),
            filters=["what"],
            footer="Host time is the thread's, the drain of a stream included. A runtime call and the driver call inside of it are two "
            "rows: their times do not add up.",
        )
    ]
