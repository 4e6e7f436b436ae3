"""The common look of figures."""

from __future__ import annotations

import plotly.graph_objects as go

from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.figure import light


def test_a_figure_is_one_plotly_accepts():
    # GIVEN a bar in the color of idle, with the template around it
    plain = F.figure([{"type": "bar", "x": [1], "y": [2], "marker": F.fill("idle")}], x=F.axis("ms"), barmode="stack")
    # THEN Plotly validates every property, and idle is hatched
    built = go.Figure(plain)
    assert built.data[0].marker.pattern.shape == "/"
    assert built.layout.xaxis.title.text == "ms" and built.layout.barmode == "stack"
    assert built.layout.font.color == light("ink-2")


def test_sizes_are_labeled_in_powers_of_eight():
    found = F.sizes(1, 1 << 20)
    assert found["tickvals"][:4] == [1, 8, 64, 512]
    assert found["ticktext"][:4] == ["1\u202fB", "8\u202fB", "64\u202fB", "512\u202fB"]
    assert found["ticktext"][4:8] == ["4\u202fKiB", "32\u202fKiB", "256\u202fKiB", "2\u202fMiB"]


def test_decades_carry_their_unit():
    assert F.decades(2e6, 5e7, "B/s")["ticktext"] == ["1\u202fMB/s", "10\u202fMB/s", "100\u202fMB/s"]


def test_the_axis_unit_follows_the_longest_time():
    assert F.time_scale(2_500_000) == (1e6, "ms") and F.time_scale(0) == (1.0, "ns")
    # a step of 1.2 s is told in ms, a recording of a minute in s
    assert F.time_scale(1_211_000_000) == (1e6, "ms") and F.time_scale(60e9) == (1e9, "s")


def test_a_recorded_name_is_no_markup_and_keeps_both_ends():
    assert F.escape("a<b> & c") == "a&lt;b&gt; &amp; c"
    assert F.cut("abcdefghij", 10) == "abcdefghij" and F.cut("abcdefghijk", 10) == "abcde…hijk" and len(F.cut("x" * 99, 7)) == 7
