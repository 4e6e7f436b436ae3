"""A card per direction: how much, how long, how fast against its limit, how much of it exposed; what was not recorded; the sums."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.copies import records
from tb_sol_plugin.metrics.copies.records import COLORS, NAMES
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import AnySection, FactsSection, Link, Mark, Scalar, plain_list
from tb_sol_plugin.units import human

CARD: Final = {
    "count": ("Copies", "count", "copies"),
    "bytes": ("Bytes", "B", "bytes of the copies that carry a size"),
    "time_ns": ("Time", "ns", "plain sum of durations"),
    "bandwidth_bytes_per_s": ("Bandwidth", "B/s", "bytes over time of the copies that carry a size"),
    "link_share": ("Of its limit", "ratio", "bandwidth of copies of at least 1 MiB over the limit of the link or memory"),
    "exposed_ns": ("Exposed", "ns", "union of the copies less kernels that are no communication"),
}
"""What a direction's card says: label, unit, definition."""
FIT: Final = {"latency_ns": "fitted time of an empty copy", "rate_bytes_per_s": "fitted bandwidth of an endless copy"}


def _fact(direction: str, name: str) -> str:
    return f"{direction.lower().replace(' ', '_')}_{name}"


FACTS: Final = {
    "count": "copies and sets in the selection",
    "bytes": "their bytes, as far as recorded",
    "without_bytes": "copies whose size was not recorded",
    "time_ns": "plain sum of their durations",
    "exposed_ns": "exposed time of all directions, summed",
    "hidden_ns": "hidden time of all directions, summed",
    "steps": "steps the per-step figures divide by",
    "time_per_step_ns": "time of the copies that steps launched, over steps",
    "exposed_per_step_ns": "exposed time of the copies that steps launched, over steps",
    **{_fact(d, n): f"{NAMES[d]}: {doc}" for d in records.DIRECTIONS for n, (_, _, doc) in CARD.items()},
    **{_fact(d, n): f"{NAMES[d]}: {doc}" for d in records.DIRECTIONS for n, doc in FIT.items()},
}


def cards(
    capture: Capture, found: pd.DataFrame, directions: pd.DataFrame, limits: dict[str, tuple[float, str]], step: str
) -> list[AnySection]:
    """A card per direction that has copies, and one for each kind of transfer that the recorder may have left out.

    directions: `groups.table` by direction with `link_share`. step: goes on to the links.
    """
    out: list[AnySection] = [_card(str(row["direction"]), row, limits, step) for _, row in directions.iterrows()]
    return [*out, *_peers(capture, directions), *_migrations(capture, found)]


def _card(direction: str, row: pd.Series[float], limits: dict[str, tuple[float, str]], step: str) -> FactsSection:
    values = {_fact(direction, n): plain_list([row[n]])[0] for n in CARD}
    for name in ("count", "bytes", "time_ns", "exposed_ns"):
        value = values[_fact(direction, name)]
        values[_fact(direction, name)] = None if value is None else int(value)
    share, exposed, whole = values[_fact(direction, "link_share")], int(row["exposed_ns"]), int(row["union_ns"])
    notes = {_fact(direction, "exposed_ns"): f"{human(exposed / whole, 'ratio')} not hidden" if whole else ""}
    if direction in limits:
        peak, what = limits[direction]
        small = "all below 1 MiB: latency bound" if row["bytes"] == row["bytes"] else "no size recorded"
        notes[_fact(direction, "link_share")] = f"of {what}, {human(peak, 'B/s')}" if share is not None else small
    elif share is None:
        notes[_fact(direction, "link_share")] = "no limit known"
    marks = {}
    if row["without_bytes"] and values[_fact(direction, "bytes")] is not None:
        marks[_fact(direction, "bytes")] = Mark("lower_bound", f"{int(row['without_bytes'])} copies carry no size")
    if isinstance(share, float) and share > 1.05:
        marks[_fact(direction, "link_share")] = Mark("flagged", "faster than the assumed limit: the link assumption is wrong")
    query = {"direction": direction} | ({"step": step} if step else {})
    return FactsSection(
        id=_fact(direction, "card"),
        title=NAMES.get(direction, direction),
        style="card",
        span=2,
        values=values,
        units={_fact(direction, n): u for n, (_, u, _) in CARD.items()},
        labels={_fact(direction, n): label for n, (label, _, _) in CARD.items()},
        docs={_fact(direction, n): FACTS[_fact(direction, n)] for n in CARD},
        colors=dict.fromkeys(values, COLORS.get(direction, "other")),
        notes={n: t for n, t in notes.items() if t},
        marks=marks,
        value_links={_fact(direction, "count"): Link("memcpy_copies", query, "these copies")},
    )


def _peers(capture: Capture, directions: pd.DataFrame) -> list[FactsSection]:
    """Peer copies may be left out by the profiler: with several devices and none recorded they are unknown, not zero."""
    if (directions["direction"] == "PtoP").any():
        return []
    used = int(capture.device["device"].nunique())
    ranks = capture.facts.world_size or 1
    if max(used, ranks) < 2:
        return []
    who = f"{ranks} ranks ran" if ranks > 1 else f"{used} devices ran"
    text = f"Not recorded. {who} and the file holds no peer copy; the profiler may leave them out. Unknown, not zero."
    return [FactsSection(id="ptop_card", title=NAMES["PtoP"], style="card", span=2, text=text)]


def _migrations(capture: Capture, found: pd.DataFrame) -> list[FactsSection]:
    """Pages of unified memory that move on their own: no PyTorch trace holds them, so they are unknown where unified memory is used."""
    ends = np.zeros(len(found), np.bool_)
    for name in ("src_kind", "dst_kind"):
        code, kinds = pd.factorize(found[name])
        ends |= np.array([str(k).startswith("Managed") for k in kinds], np.bool_)[code]
    asked = hints(capture)
    if not ends.any() and not asked:
        return []
    many = int(ends.sum())
    seen = [f"{human(many, 'count')} {'copy has' if many == 1 else 'copies have'} a managed end"] if many else []
    seen += [f"the program calls {' and '.join(f'`{a}`' for a in asked[:2])}"] if asked else []
    said = " and ".join(seen)
    text = f"Not recorded. {said[0].upper() + said[1:]}; the profiler holds no page migration and no page fault. Unknown, not zero."
    return [FactsSection(id="unified_card", title="Unified memory", style="card", span=2, text=text)]


def hints(capture: Capture) -> list[str]:
    """Names of the calls of the recording that prefetch unified memory or advise on it."""
    names = capture.host["name"].cat.categories
    used = set(np.unique(capture.host["name"].cat.codes.to_numpy()[capture.host["kind"].to_numpy() == S.CALL]).tolist())
    named = (records.api_name(str(n)) for i, n in enumerate(names) if i in used and (m := records.COPY_API.match(str(n))) is not None
             and ({"Prefetch", "Advise"} & {*m.groups()}))  # fmt: skip
    return sorted(set(named))


def totals(directions: pd.DataFrame, launched: pd.DataFrame, where: Scope) -> dict[str, Scalar]:
    """Sums over all directions, and per step where steps were recorded. launched: the same table of the copies that steps launched."""
    time, exposed = int(directions["time_ns"].sum()), int(directions["exposed_ns"].sum())
    steps = where.step_count if where.steps else 0
    return {
        "count": int(directions["count"].sum()),
        "bytes": int(directions["bytes"].sum()) if directions["bytes"].notna().any() else None,
        "without_bytes": int(directions["without_bytes"].sum()),
        "time_ns": time,
        "exposed_ns": exposed,
        "hidden_ns": int(directions["hidden_ns"].sum()),
        "steps": steps,
        "time_per_step_ns": round(int(launched["time_ns"].sum()) / steps) if steps else None,
        "exposed_per_step_ns": round(int(launched["exposed_ns"].sum()) / steps) if steps else None,
    }


def numbers(found: dict[str, Scalar], fits: dict[str, tuple[float, float]]) -> FactsSection:
    """The sums and the fitted latencies and rates as a list."""
    labels = {
        "count": "Copies and sets", "bytes": "Bytes", "without_bytes": "Without a size", "time_ns": "Time, sum", "exposed_ns": "Exposed",
        "hidden_ns": "Hidden", "steps": "Steps", "time_per_step_ns": "Time per step", "exposed_per_step_ns": "Exposed per step",
    }  # fmt: skip
    values: dict[str, Scalar] = {n: v for n, v in found.items() if v is not None and (n != "steps" or v)}
    for direction, (latency, rate) in fits.items():
        for name, value, label in (("latency_ns", latency, "latency"), ("rate_bytes_per_s", rate, "rate")):
            values[_fact(direction, name)] = round(value)
            labels[_fact(direction, name)] = f"{NAMES[direction]}, {label}"
    fitted = [_fact(d, n) for d in fits for n in FIT]
    units = {n: "B/s" if n.endswith("bytes_per_s") else "ns" if n.endswith("_ns") else "B" if n == "bytes" else "count" for n in values}
    return FactsSection(
        id="facts",
        title="Numbers",
        values=values,
        units=units,
        labels={n: labels[n] for n in values},
        docs={n: FACTS[n] for n in values},
        marks=dict.fromkeys(fitted, Mark("estimated", "fitted through the fastest copies of each size")),
    )
