"""All pages of a large recording as one HTML file: its size, and what of it is the page itself."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.web.html_file import MOST_ROWS, html_file
from tests.support.html_file import inside, packed

pytestmark = pytest.mark.real


def test_all_pages_of_a_large_recording_fit(traces: Path) -> None:
    # GIVEN 130,000 events of an H100 WHEN all their pages are saved
    file = html_file(sol.open_capture(str(traces / "tracelens" / "h100" / "google_owlv2-large-patch14-ensemble__1016001.json.gz")))
    # THEN they have at most 8 MB: the page itself less than 3 MB, the tiles of the timeline at most 5 MB
    assert len(file) <= 8_000_000
    data, tiles = (len(base64.b64encode(gzip.compress(packed(file, name), 6))) for name in ("data", "tiles"))
    assert len(file) - data - tiles < 3_000_000 and 500_000 < tiles <= 5_000_000
    # AND no table has too many rows
    answers, _ = inside(file)
    tables = [s for report in answers.values() if isinstance(report, dict) for s in report.get("sections", []) if s["kind"] == "table"]
    assert tables and max(len(next(iter(s["data"].values()), ())) for s in tables) <= MOST_ROWS
