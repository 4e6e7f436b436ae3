"""Makes a small timeline of the stretch that proves something: around the longest of some spans, with all spans in it marked."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import TimelineSection
from tb_sol_plugin.tables import intervals as iv

MOST_MARKED: Final = 200
_ROOM: Final = 2.0
_LEAST_ROOM_NS: Final = 20_000
HEIGHT: Final = 230


def stretch(
    capture: Capture, section_id: str, title: str, spans: iv.Spans, word: str = "", *, path: bool = False
) -> TimelineSection | None:  # fmt: skip
    """Returns a small timeline around the longest span; None where there is none, or no event in the recording.

    spans: (starts, ends), ns after the start of the recording. word: what the marked spans are. Spans outside of the shown window, and
    more than 200 in it, are not marked. path: the critical path is drawn.
    """
    start, end = (np.asarray(one, np.int64) for one in spans)
    if not len(start) or not len(capture.device) + len(capture.host):
        return None
    longest = int((end - start).argmax())
    low, high = int(start[longest]), int(end[longest])
    room = max(round((high - low) * _ROOM), _LEAST_ROOM_NS)
    low, high = max(low - room, 0), high + room
    inside = np.flatnonzero((end > low) & (start < high))
    shown = np.sort(inside[np.argsort(start[inside] - end[inside], kind="stable")[:MOST_MARKED]])
    marked = [(int(start[i]), int(end[i]), word if i == longest else "") for i in shown.tolist()]
    return TimelineSection(id=section_id, title=title, start_ns=low, end_ns=high, highlight=marked, path=path, height=HEIGHT)
