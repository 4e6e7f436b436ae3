"""What the roofline says in sentences: the headline and the notices."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.roofline.selection import NO_MODEL, Selection
from tb_sol_plugin.devices.limits import caution, why_no_limits
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.work.work import Work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Notice, Scalar, number_of
from tb_sol_plugin.units import human

PLAIN = 0.95
"""A modelled share from which the ratio stands without its share."""


def headline(frame: pd.DataFrame, facts: dict[str, Scalar], spec: DeviceSpec | None, *, by_host: bool, counted: str = "") -> str:
    """How far the modelled work is from its limit, and how few rows hold the time above it.

    counted: of a SOL capture, what its work was counted in (`3 sampled iterations`).
    """
    share, efficiency = facts["modelled_share"], facts["efficiency"]
    if not isinstance(efficiency, float) and counted:
        return _counted(frame, facts, spec, counted, by_host=by_host)
    if not isinstance(efficiency, float):
        if by_host:
            return "This recording has no device work: rates are over host time, and the limits of this CPU are not known."
        covered = human(number_of(share), "ratio")
        if spec is not None:
            return f"No work with a known limit is selected: {covered} of device time is modelled."
        return f"The limits of the device are not known: rates are shown, efficiencies are not. {covered} of device time is modelled."
    who = "operators" if by_host else "kernels"
    first = f"Modelled {who} run at **{human(efficiency, 'ratio')}** of what the {spec.name if spec else 'device'} allows."
    if isinstance(share, float) and share < PLAIN:
        covered = f"{human(share, 'ratio')} of {'host' if by_host else 'device'} time"
        first = f"Modelled {who}, {covered}, run at **{human(efficiency, 'ratio')}** of what the {spec.name if spec else 'device'} allows."
    wasted = frame["wasted_ns"].to_numpy(dtype=np.float64)
    above = np.sort(wasted[np.isfinite(wasted) & (wasted > 0)])[::-1]
    if not len(above):
        return first
    running = np.cumsum(above) / above.sum()
    count = min(int(np.searchsorted(running, 0.8)) + 1, 5, len(above))
    word = ("", "One row holds", "Two rows hold", "Three rows hold", "Four rows hold", "Five rows hold")[count]
    rows = word if running[count - 1] >= 0.8 else "The five largest rows hold"
    return f"{first} {rows} **{human(float(running[count - 1]), 'ratio')}** of the time above the limit."


def _counted(frame: pd.DataFrame, facts: dict[str, Scalar], spec: DeviceSpec | None, counted: str, *, by_host: bool) -> str:
    """The work of a SOL capture, and its limit where that is known."""
    flop, vector = number_of(facts["total_flop"]), number_of(facts["total_vector_flop"])
    work = human(flop, "FLOP") if flop else f"{human(vector, 'FLOP')} of vector work" if vector else "no work with a cost model"
    traffic = f" and {human(number_of(facts['total_bytes']), 'B')}" if facts["total_bytes"] else ""
    first = (
        f"{counted[0].upper()}{counted[1:]} hold **{work}**{traffic}"
        if counted[:1].isdigit()
        else f"The {counted} holds **{work}**{traffic}"
    )
    sol = number_of(facts["sol_ns"])
    if sol is None or spec is None:
        return f"{first}; the limits of {'this CPU' if by_host else 'the device'} are not known."
    steps = number_of(facts.get("steps_ns"))
    if steps:
        took = f"; they took {human(steps, 'ns')}" if counted[:1].isdigit() else f"; it took {human(steps, 'ns')}"
        return f"{first}, which take **{human(sol, 'ns')}** at the limits of {spec.name}{took}."
    return f"{first}, which take **{human(sol, 'ns')}** at the limits of {spec.name}."


def notices(capture: Capture, done: Work, chosen: Selection, unmodelled: pd.DataFrame, *, direction: str, l2: bool) -> list[Notice]:
    """Why limits are missing or guessed, what is not modelled, what was launched before the window, what a choice leaves out."""
    spec = done.spec
    out: list[Notice] = []
    if spec is None:
        why = why_no_limits(capture)
        out.append(Notice(f"{why[0].upper()}{why[1:]}.", "info" if done.by_host_time else "warn"))
    elif caution(spec):
        out.append(Notice(caution(spec)))
    if l2 and (spec is None or spec.l2_bytes_per_s is None):
        name = spec.name if spec else "this device"
        text = f"No L2 bandwidth of {name} is known, so there is no L2 roof; a device file can give it as `l2_bw_gb_per_s`."
        out.append(Notice(text, "info"))
    out += _without_model(chosen, unmodelled, by_host=done.by_host_time)
    early = chosen.ops["inferred"].to_numpy()
    if early.any():
        time = human(int(chosen.ops["measured_ns"].to_numpy()[early].sum()), "ns")
        left = chosen.outside.get(at.BEFORE, 0)
        rest = f" {human(left, 'ns')} more match no recorded call." if left else ""
        text = f"{time} were launched before the recording began and take the work of recorded calls with the same kernel, grid and block."
        out.append(Notice(f"{text} They stand in rows of their own, marked estimated.{rest}", "info"))
    if direction != "both" and len(capture.device):
        alone = int(capture.device["duration_ns"].to_numpy().clip(min=0)[done.owner < 0].sum())
        if alone:
            text = f"Only the {direction} pass is shown. {human(alone, 'ns')} that no operator launched belong to no pass and are left out."
            out.append(Notice(text, "info"))
    return out


def _without_model(chosen: Selection, unmodelled: pd.DataFrame, *, by_host: bool) -> list[Notice]:
    bare = chosen.whole_ns - chosen.modelled_ns - chosen.apart_ns
    if not chosen.whole_ns or bare <= 0.1 * chosen.whole_ns or by_host:
        return []
    covered = human(chosen.modelled_ns / chosen.whole_ns, "ratio")
    apart = chosen.apart_ns
    rest = f" {human(apart, 'ns')} are communication and copies over a link, which this chart does not bound." if apart else ""
    largest = unmodelled.groupby("name", sort=False)["measured_ns"].sum().sort_values(ascending=False, kind="stable").head(3)
    named = ", ".join(f"`{name}` {human(int(time), 'ns')}" for name, time in largest.items()) if chosen.parts.get(NO_MODEL) else ""
    tail = f" Largest without: {named}." if named else ""
    return [Notice(f"A cost model covers {covered} of device time.{rest}{tail}", "info")]
