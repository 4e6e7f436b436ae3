"""Getting ready while the reader of the page looks at the list of runs.

The first report of a server pays for imports and for loading compiled loops, a third of a second in all. A recording of
three events, asked for the first page, pays it ahead, in a thread, while another process still reads the real file.
"""

from __future__ import annotations

import contextlib
import threading


class Warmth:
    """`start` warms once; later calls do nothing. A failure stays silent: it shows again, with a name, at a real request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless that was done."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=warm, name="tb-sol-warm", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it is over within `seconds`; True if it was never begun."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()


def warm() -> None:
    """Import what reports need and run the first page on a recording of three events."""
    with contextlib.suppress(Exception):
        from tb_sol_plugin.model.registry import registry, run_analysis
        from tb_sol_plugin.store.processes import smallest_capture

        first = next(iter(registry()))
        run_analysis(first, smallest_capture(), {})
