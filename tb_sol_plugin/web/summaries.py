"""Says of every run what is known without opening it: its date, device, step time and ratio of the speed of light.

Facts come from the cache. Step time and ratio are those of its last overview: noted when it is made, beside the cached capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.model.report import FactsSection, Report, Scalar
from tb_sol_plugin.store.cache import cache_key
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.version import __version__
from tb_sol_plugin.web import wire

JOINED: Final = ("sol_capture", "memory_snapshot", "memory_timeline")


class Noted(msgspec.Struct):
    """What an overview said. made_with: the version and the device files it was made with; other ones make it unknown."""

    made_with: str
    step_ns: float | None = None
    whole: bool = False
    ratio: float | None = None
    estimated: bool = False


def _made_with(fingerprint: str) -> str:
    return f"{__version__} {fingerprint}"


def note_overview(store: Store, recording: Recording, report: Report) -> None:
    """Keeps what the overview of a whole recording says, for the list of runs."""
    facts = store.loader.cache.facts(cache_key(recording))
    if facts is None:  # nothing is kept of it
        return
    sections = [s for s in report.sections if isinstance(s, FactsSection)]
    values = {name: value for s in reversed(sections) for name, value in s.values.items()}
    marked = any("speed_of_light" in s.marks for s in sections)
    noted = Noted(
        _made_with(store.book(recording).fingerprint), _number(values.get("step_ns")), facts.pseudo_step,
        _number(values.get("speed_of_light")), marked,
    )  # fmt: skip
    store.loader.cache.write_note(cache_key(recording), msgspec.json.encode(noted))


def _number(value: Scalar) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def summaries(store: Store, most: int = 500) -> list[wire.RunSummary]:
    """Returns what is known of the recording that each run opens with; nothing is read but what the cache holds of it."""
    _, listing = store.listing()
    return [_summary(store, name, _opened(recordings)) for name, recordings in list(listing.runs.items())[:most] if recordings]


def _opened(recordings: Sequence[Recording]) -> Recording:
    """Returns one of the recordings that a run opens with: what is only shown joined to another one comes last."""
    return next((r for r in recordings if r.kind not in JOINED), recordings[0])


def _summary(store: Store, run: str, first: Recording) -> wire.RunSummary:
    _, listing = store.listing()
    shown = [r for r in listing.runs[run] if r.worker == first.worker and r.kind == first.kind][-1]
    out = wire.RunSummary(run, shown.mtime)
    key = cache_key(shown)
    facts = store.loader.cache.facts(key)
    if facts is None:
        return out
    if facts.absolute:
        out.recorded = (facts.origin_ns + facts.extent_ns[0]) / 1e9
    out.device = next((d.name for d in facts.devices if d.name), "") or ("CPU" if not facts.vendor else "")
    body = store.loader.cache.read_note(key)
    try:
        noted = msgspec.json.decode(body, type=Noted) if body else None
    except msgspec.MsgspecError:
        noted = None
    if noted is not None and noted.made_with == _made_with(store.book(shown).fingerprint):
        out.step_ns, out.whole, out.ratio, out.estimated = noted.step_ns, noted.whole, noted.ratio, noted.estimated
    return out
