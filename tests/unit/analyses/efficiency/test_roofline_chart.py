"""The roofline chart: words that do not meet, lines where the limits are, notes where the points are."""

from __future__ import annotations

from math import cos, inf, log10, nan, radians, sin
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.analyses.efficiency.roofline_figures import Point, Program, distance, draw
from tb_sol_plugin.analyses.efficiency.roofline_roofs import Ceilings, ceilings, powers
from tb_sol_plugin.devices.catalog import known_keys, table

H100 = table()["H100_SXM"]
ALL_TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
WIDTH = 540.0


def _point(key: str = "a", *, intensity: float = 62.5, rate: float = 50.8e12, bandwidth: float = 814e9, efficiency: float = 0.243,
           kind: str = "gemm", time: float = 1e6, cause: str = "") -> Point:  # fmt: skip
    return Point(key, f"aten::{key}", "16×16", kind, 3, time, time * efficiency, intensity, rate, bandwidth, efficiency, "memory", "k", bool(cause), cause)


def _boxes(figure: dict[str, Any], height: float) -> list[tuple[str, list[tuple[float, float, float, float]]]]:
    """What each text of the chart covers in a plot of WIDTH x height px: characters of 5.5 px, lines of 13 px, turned ones in pieces."""
    (x0, x1), (y0, y1) = figure["layout"]["xaxis"]["range"], figure["layout"]["yaxis"]["range"]
    out = []
    for note in figure["layout"]["annotations"]:
        if note.get("xref") == "paper":
            continue
        wide = 5.5 * len(note["text"])
        x = (note["x"] - x0) / (x1 - x0) * WIDTH + note.get("xshift", 0)
        y = (note["y"] - y0) / (y1 - y0) * height + note.get("yshift", 0)
        if note.get("textangle"):
            turn = radians(-note["textangle"])
            places = [(x + s * cos(turn), y + s * sin(turn)) for s in (wide * (i / 20 - 0.5) for i in range(21))]
            out.append((note["text"], [(a - 4, b - 4, a + 4, b + 4) for a, b in places]))
            continue
        left = x - {"left": 0, "center": wide / 2, "right": wide}[note["xanchor"]]
        bottom = y - {"bottom": 0, "middle": 6.5, "top": 13}[note["yanchor"]]
        out.append((note["text"], [(left, bottom, left + wide, bottom + 13)]))
    return out


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def check_words(figure: dict[str, Any], height: float = 340.0) -> list[str]:
    """No two texts of the chart overlap and none leaves it; the texts."""
    found = _boxes(figure, height)
    for i, (text, boxes) in enumerate(found):
        for other, more in found[:i]:
            assert not any(_meet(a, b) for a in boxes for b in more), (text, other)
        assert all(box[0] > -8 and box[2] < WIDTH + 8 and box[1] > -8 and box[3] < height + 12 for box in boxes), text
    return [text for text, _ in found]


@pytest.mark.parametrize("key", known_keys())
@pytest.mark.parametrize("types", [("bf16",), ("fp32", "bf16"), ALL_TYPES])
def test_words_never_overlap_on_any_device(key: str, types: tuple[str, ...]) -> None:
    # GIVEN a device of the table and work in one, two or all types
    found = ceilings(table()[key], types, ("fp32", "fp64"))
    points = [_point("a"), _point("b", intensity=0.25, rate=1e11, kind="elementwise"), _point("c", intensity=700, rate=4e14)]
    # WHEN the chart is drawn THEN its words stand apart, the leading roof and the memory bandwidth among them
    words = check_words(draw(points, [Program("whole program", "whole", 1e6, 1e5, 57.0, 5e13)], found).figure)
    assert "whole program" in words
    if found.roofs:
        assert any(word.startswith(found.roofs[0].name) for word in words)
    if found.roofs and found.bandwidth:
        assert any(word.startswith("memory ") and word != "memory bound" for word in words)


numbers = st.floats(1e-3, 1e5)


@settings(max_examples=100)
@given(
    peaks=st.dictionaries(st.sampled_from(ALL_TYPES), st.floats(1e10, 1e16), min_size=1),
    bandwidth=st.floats(1e10, 2e13),
    reach=st.floats(0.3, 1.0),
    places=st.lists(st.tuples(numbers, st.floats(1e5, 1e15), st.floats(0, 1e9)), max_size=12),
)
def test_words_never_overlap_with_any_limits(
    peaks: dict[str, float], bandwidth: float, reach: float, places: list[tuple[float, float, float]]
) -> None:
    rates = {dtype: peak * reach for dtype, peak in peaks.items()}
    spec = msgspec.structs.replace(H100, matrix=peaks, memory_bandwidth=bandwidth, achievable_rates=rates, achievable_bf16=None)
    points = [_point(str(i), intensity=x, rate=y, time=t) for i, (x, y, t) in enumerate(places)]
    program = [Program("whole program", "whole", 1.0, 1.0, places[0][0], places[0][1])] if places else []
    check_words(draw(points, program, ceilings(spec, tuple(peaks), ("fp32",))).figure)


def test_points_do_not_stand_behind_the_names_of_limits() -> None:
    # GIVEN large points on the dashed line of the achievable rate, where its name would stand at the right end
    found = ceilings(table()["MI300X"], ("bf16",), ("fp32",))
    rows = ((1560.4, 5.865e14, 3.75e6), (2040.0, 2.985e14, 3.68e6), (993.0, 4.894e14, 2.25e6), (1560.4, 5.4e14, 2.4e6), (0.125, 5e11, 1e4))
    points = [_point(str(i), intensity=x, rate=y, time=time) for i, (x, y, time) in enumerate(rows)]
    figure = draw(points, [Program("whole program", "whole", 12.55e6, 5e6, 835.7, 4.381e14)], found).figure
    (x0, x1), (y0, y1) = figure["layout"]["xaxis"]["range"], figure["layout"]["yaxis"]["range"]  # type: ignore[index,call-overload]
    marks = []
    for t in (t for t in figure["data"] if t.get("customdata")):  # type: ignore[union-attr]
        for x, y, size in zip(t["x"], t["y"], t["marker"]["size"], strict=True):  # type: ignore[index,call-overload]
            a, b, half = (log10(x) - x0) / (x1 - x0) * WIDTH, (log10(y) - y0) / (y1 - y0) * 340.0, 0.3 * size
            marks.append((a - half, b - half, a + half, b + half))
    # THEN the name stands before the beginning of its line, and no name but the highest roof's and the program's has a point behind it
    words = _boxes(figure, 340.0)  # type: ignore[arg-type]
    assert any("achievable" in text for text, _ in words) and len(marks) == 5
    for text, boxes in words:
        if "whole program" not in text and "bf16 matrix" not in text:
            assert not any(_meet(box, mark) for box in boxes for mark in marks), text


def test_ceilings_are_those_of_the_work_at_hand() -> None:
    # GIVEN bf16 and fp16 products and fp32 vector work on an H100: one peak for both types, 794 TFLOP/s achievable in both
    found = ceilings(H100, ("bf16", "fp16"), ("fp32", "bf16", ""))
    assert [(roof.name, roof.peak) for roof in found.roofs] == [("bf16, fp16 matrix", 989.4e12), ("fp32 vector", 66.9e12)]
    assert [(roof.name, roof.peak) for roof in found.reach] == [("bf16, fp16", 794e12)]
    assert (found.bandwidth, found.l2) == (3350e9, None)
    assert ceilings(None, ("bf16",), ()) == Ceilings()
    # AND double precision has its own vector roof; an L2 roof only where it was asked for and is known
    assert [roof.name for roof in ceilings(H100, (), ("fp64", "fp32")).roofs] == ["fp32 vector", "fp64 vector"]
    fast = msgspec.structs.replace(H100, l2_bytes_per_s=7e12)
    assert ceilings(fast, ("bf16",), (), l2=True).l2 == 7e12 and ceilings(fast, ("bf16",), ()).l2 is None


def _lines(figure: dict[str, Any]) -> list[dict[str, Any]]:
    return [t for t in figure["data"] if t.get("mode") == "lines" and "xaxis" not in t]


def test_lines_meet_at_the_ridge() -> None:
    # GIVEN bf16 work on an H100: its ridge is 989.4e12 / 3350e9 = 295.34 FLOP/B
    figure = draw([_point()], [], ceilings(msgspec.structs.replace(H100, l2_bytes_per_s=7e12), ("bf16",), (), l2=True)).figure
    ridge = 989.4e12 / 3350e9
    diagonals = [t for t in _lines(figure) if t["x"][0] != t["x"][1] and t["y"][0] != t["y"][1]]
    # THEN the memory diagonal ends there, the L2 diagonal earlier, each of its own slope
    assert sorted(t["y"][1] / t["x"][1] for t in diagonals) == pytest.approx([3350e9, 7e12])
    assert [t["y"][1] for t in diagonals] == pytest.approx([989.4e12] * 2)
    dots = next(t for t in figure["data"] if t.get("name") == "ridge")
    assert (dots["x"], dots["y"]) == ([pytest.approx(ridge)], [989.4e12])
    # AND the achievable rate is dashed, from where the diagonal reaches it
    dashed = next(t for t in _lines(figure) if t["line"]["dash"] == "4px,3px")
    assert (dashed["x"][0], dashed["y"]) == (pytest.approx(794e12 / 3350e9), [794e12, 794e12])
    words = check_words(figure)
    assert "ridge 295\u202fFLOP/B" in words and any("L2" in word for word in words)


def test_axes_hold_every_point_and_every_roof() -> None:
    points = [_point("a", intensity=0.01, rate=2e7), _point("b", intensity=9e3, rate=1.2e15)]
    figure = draw(points, [], ceilings(H100, ("bf16",), ("fp32",))).figure
    (x0, x1), (y0, y1) = figure["layout"]["xaxis"]["range"], figure["layout"]["yaxis"]["range"]
    assert x0 < log10(0.01) and x1 > log10(9e3) and y0 < log10(2e7) and y1 > log10(1.2e15)
    assert x1 - log10(9e3) < 4 and y1 - log10(1.2e15) < 1


def test_notes_say_where_a_point_and_its_limit_are() -> None:
    # GIVEN a row in the chart, one in the strip, one above its limit and one without a limit
    points = [
        _point("slow"),
        _point("strip", rate=nan, intensity=nan, bandwidth=1.5e12, efficiency=0.45),
        _point("fast", efficiency=1.68, cause="Winograd convolution"),
        _point("bare", efficiency=nan),
    ]
    drawing = draw(points, [], ceilings(H100, ("bf16",), ("fp32",)))
    # THEN a ring sits on the point, and the line ends at the limit: rate over efficiency, in the strip bandwidth over efficiency
    slow, strip = drawing.notes["slow"], drawing.notes["strip"]
    assert (slow.x, slow.y, slow.limit, slow.axis) == (62.5, 50.8e12, pytest.approx(50.8e12 / 0.243), "x")
    assert slow.text == "4.1× below its limit"
    assert (strip.x, strip.limit, strip.axis) == (1.5e12, pytest.approx(1.5e12 / 0.45), "x2") and strip.text == "2.2× below its limit"
    assert drawing.notes["fast"].text == "1.7× above its limit" and drawing.notes["bare"].limit is None
    traces = [t for t in drawing.figure["data"] if t.get("customdata")]  # type: ignore[attr-defined]
    placed = {key: (x, y) for t in traces for key, x, y in zip(t["customdata"], t["x"], t["y"], strict=True)}
    assert placed == {key: (note.x, note.y) for key, note in drawing.notes.items()}
    # AND the flagged one is outlined and says why
    chart = next(t for t in traces if "fast" in t["customdata"] and "xaxis" not in t)
    at = chart["customdata"].index("fast")
    assert chart["marker"]["line"]["width"][at] == 2.0
    assert "Winograd convolution" in chart["hovertext"][at]


@pytest.mark.parametrize(
    ("efficiency", "words"),
    [
        (0.243, "4.1× below its limit"),
        (0.005, "200× below its limit"),
        (0.95, "1.05× below its limit"),
        (1.0, "at its limit"),
        (1.3, "1.3× above its limit"),
        (nan, ""),
        (0.0, ""),
        (inf, ""),
    ],
)
def test_the_distance_to_the_limit_is_worded(efficiency: float, words: str) -> None:
    assert distance(efficiency) == words


def test_the_program_is_an_open_diamond_without_a_key() -> None:
    # GIVEN a run of two steps
    program = [
        Program("whole program", "whole", 2e6, 1e6, 50.0, 1e13),
        Program("average of 2 complete steps", "average", 1e6, 5e5, 50.0, 1e13),
        Program("step 1", "step", 9e5, 5e5, 49.0, 1.1e13),
        Program("step 2", "step", 1.1e6, 5e5, 51.0, 0.9e13),
    ]
    figure = draw([_point()], program, ceilings(H100, ("bf16",), ())).figure
    found = next(t for t in figure["data"] if t.get("name") == "program")  # type: ignore[attr-defined]
    # THEN the whole is drawn last and largest, and no row of the table answers to any of them
    assert found["marker"]["symbol"] == "diamond-open" and "customdata" not in found
    assert found["marker"]["size"] == sorted(found["marker"]["size"]) and "whole program" in found["hovertext"][-1]
    assert "whole program" in check_words(figure)


def test_without_limits_there_are_points_and_no_lines() -> None:
    figure = draw([_point(efficiency=nan)], [Program("whole program", "whole", 1e6, nan, 50.0, 1e13)], Ceilings()).figure
    assert not _lines(figure)
    assert check_words(figure) == ["whole program"]


def test_an_axis_names_one_more_value_in_the_place_of_the_decade_beside_it() -> None:
    ticks = powers(10.0, 13.0, unit="B/s", also=900e9)
    assert ticks["ticktext"] == ["10\u202fGB/s", "100\u202fGB/s", "900.0\u202fGB/s", "10\u202fTB/s"]


def test_calls_that_were_not_timed_stand_hollow_at_their_limits() -> None:
    # GIVEN two rows without times, of 1 and 3 ms at the limit and 2e9 and 9e9 FLOP, and one without FLOP WHEN they are drawn
    def bare(key: str, limit: float, intensity: float, flop: float) -> Point:
        allowed = flop / (limit / 1e9) if flop else nan
        return Point(key, key, "", "gemm", 1, nan, limit, intensity, nan, nan, nan, "memory", "", False, "", allowed)

    points = [bare("a", 1e6, 0.5, 2e9), bare("b", 3e6, 400.0, 9e9), bare("c", 1e6, nan, 0.0)]
    drawing = draw(points, [], ceilings(H100, ("bf16",), ()))
    marks = next(trace for trace in drawing.figure["data"] if trace.get("name") == "gemm")
    # THEN the first two are, larger first, hollow, at the rates of their limits, in areas of 3 to 1, and told as not timed
    assert marks["customdata"] == ["b", "a"] and marks["y"] == pytest.approx([3e12, 2e12])
    assert str(marks["marker"]["symbol"]).endswith("-open")
    large, small = marks["marker"]["size"]
    assert (large / small) ** 2 == pytest.approx(3, rel=0.02)
    assert "Not timed" in marks["hovertext"][0] and "At its limit: 3.00 TFLOP/s" in marks["hovertext"][0].replace("\u202f", " ")
    assert drawing.figure["layout"]["yaxis"]["title"]["text"] == "at the limit"


def test_one_time_is_enough_to_draw_times_only() -> None:
    # GIVEN a timed row and one that was not WHEN they are drawn THEN only the timed one is: both kinds of heights do not mix
    timed = _point("t")
    other = timed._replace(key="u", measured_ns=nan, rate=nan, bandwidth=nan, efficiency=nan, allowed=1e12)
    drawing = draw([timed, other], [], ceilings(H100, ("bf16",), ()))
    assert list(drawing.notes) == ["t"]
