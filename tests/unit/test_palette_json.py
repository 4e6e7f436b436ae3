"""The page's colors are the figures' colors."""

from __future__ import annotations

import json

from tb_sol_plugin.model.figure import MARKS, TOKENS
from tests.conftest import ROOT


def test_the_page_has_the_same_palette() -> None:
    """GIVEN the palette built into the page and its source WHEN compared with Python's THEN every token and mark is the same."""
    for path in ("frontend/src/palette.json", "tb_sol_plugin/static/palette.json"):
        page = json.loads((ROOT / path).read_text(encoding="utf-8"))
        assert {k: tuple(v) for k, v in page["tokens"].items()} == TOKENS, path
        assert page["marks"] == MARKS, path
