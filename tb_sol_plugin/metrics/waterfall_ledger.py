"""The steps of a SOL capture in exclusive parts: by the times in its ledger.

    steps = modelled operators + operators without a model + communication + everything else

Counting makes the host slower, so a step lasts as long as the iterations of the same inputs in which nothing was counted (their median);
where there are none, as long as the sampled ones. Of a device it is the time between the events at both ends. The recorder times the
operators of a CPU one by one, so their times add up where they run one after another; everything else is Python, dispatch and what the
recorder does not see. It is negative where operators take longer than the step: several threads at once, or slower while they are
counted. A device's operators are not timed: its steps stay whole.
"""

from __future__ import annotations

import numpy as np

from tb_sol_plugin.metrics import source
from tb_sol_plugin.metrics.waterfall_host import HostSplit
from tb_sol_plugin.metrics.work.calls import Work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv


def split_ledger(capture: Capture, done: Work, windows: iv.Spans, rows: tuple[int, ...]) -> HostSplit:
    """The parts of the steps `rows`, whose bounds are `windows`."""
    ops = done.ops
    time = np.nan_to_num(ops["measured_ns"].to_numpy(dtype=np.float64))
    if rows:
        time[~np.isin(ops["step"].to_numpy(), rows)] = 0.0
    modelled, apart = ops["modelled"].to_numpy(), ops["collective"].to_numpy()
    own = np.where(modelled, np.rint(time), 0.0).astype(np.int64)
    bare = round(float(time[~modelled & ~apart].sum()))
    moving = round(float(time[~modelled & apart].sum()))
    total = iv.length(windows)
    if source.is_profile(capture):  # sums of a whole profile: nothing is known of what lies between
        total = int(own.sum()) + bare + moving
    usual = source.step_time(capture, rows)
    if usual is not None:
        total = round(usual.length_ns * len(rows))
    busy = int(own.sum()) + bare + moving
    return HostSplit(
        own=own,
        busy=iv.empty(),
        busy_ns=busy,
        total_ns=total,
        loading_ns=0,
        unmodelled_ns=bare,
        framework_ns=0,
        outside_ns=total - busy if done.timed else 0,
        communication_ns=moving,
    )
