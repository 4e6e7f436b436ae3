"""Every recording, handed in or shipped as a sample, holds every invariant; of some samples the plain suite holds it (`tests/unit/quirks`)."""

from __future__ import annotations

from pathlib import Path

from tests.support.check_capture import check_capture
from tests.support.recordings import HANDED_IN, SAMPLES, over, path_of
from tests.unit.quirks.test_samples import PLAIN


@over(HANDED_IN, [name for name in SAMPLES if name not in PLAIN])
def test_every_recording_keeps_every_invariant(name: str, tmp_path: Path) -> None:
    # GIVEN a recording made by someone else, or a sample WHEN it is read and asked everything THEN every invariant holds
    check_capture(path_of(name), tmp_path)
