"""What the pages of a profile without events must add up to: its ledger and its copies, each row once."""

from __future__ import annotations

import numpy as np

from tb_sol_plugin.model.capture import Capture
from tests.support.captures import report


def sums_of_profile(c: Capture) -> None:
    """Kernels by name and by scope, scopes at the top, the roofline and the copies hold the same launches, time and work."""
    ledger, copies = c.tables["ledger"], c.tables["copies"]
    count = ledger["count"].to_numpy().clip(min=0)
    launches, time = int(count.sum()), float(np.nansum(ledger["time_ns"]))
    flop = float(np.nansum(ledger["flop"].to_numpy() * np.maximum(count, 1)))
    moved = float(np.nansum(copies["time_ns"]))
    if launches or time:
        for by in ("name", "name_op"):
            t = report(c, "kernels", group_by=by).table("kernels")
            assert int(t["calls"].sum()) == launches and abs(float(t["total_ns"].sum()) - time) <= len(t), by
    if len(c.tables["labels"]):
        t = report(c, "phases").table("phases")
        tops = t[t["parent"].isna()]
        assert int(tops["ops"].sum()) == launches
        assert abs(float(tops["device_sum_ns"].astype(float).sum()) - time - moved) <= len(tops)
        assert np.isclose(float(tops["flop"].astype(float).sum()), flop if len(ledger) else 0.0, rtol=1e-9, atol=len(tops))
    if len(ledger):
        t = report(c, "roofline", by="op").table("ops")
        assert int(t["calls"].sum()) == launches and abs(float(t["measured_ns"].astype(float).sum()) - time) <= len(t)
    if len(copies):
        t = report(c, "memcpy").table("counted")
        assert int(t["count"].sum()) == int(copies["count"].sum()) and int(t["without_bytes"].sum()) == int(copies["without_bytes"].sum())
        assert int(t["bytes"].astype(float).sum()) == int(copies["bytes"].sum())
