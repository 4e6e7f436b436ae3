"""The formatter, held by hand to what a person expects and by a shared vector to the frontend's mirror."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tb_sol_plugin.units import MINUS, NARROW, UNITS, capitalized, how_many, human, humans, side_by_side

VECTOR = Path(__file__).parent.parent / "golden" / "units.json"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_211_000_000, "ns", "1 211 ms"),
        (9_994_000_000, "ns", "9 994 ms"),
        (12_110_000_000, "ns", "12.11 s"),
        (160_049_999, "ns", "160.0 ms"),
        (999_950, "ns", "1.00 ms"),
        (7, "ns", "7 ns"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (989.4e12, "FLOP/s", "989.4 TFLOP/s"),
        (5185, "count", "5 185"),
        (0.132, "ratio", "13.2 %"),
        (1.273, "ratio", "127.3 %"),
        (0.0004, "ratio", "< 0.1 %"),
        (0, "ns", "0 ns"),
        (-478_400_000, "ns", "-478.4 ms"),
        (12, "", "12.00"),
    ],
)
def test_a_number_reads_as_a_person_writes_it(value: float, unit: str, text: str) -> None:
    """GIVEN a value in base units WHEN it is formatted THEN unit, digits, spaces and sign are those of the design."""
    assert human(value, unit) == text.replace(" ", NARROW).replace("<" + NARROW, "< ").replace("-", MINUS)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_unknown_is_a_dash_and_never_zero(value: float | None) -> None:
    """GIVEN an unknown value WHEN it is formatted THEN it is an em dash in every unit."""
    assert {human(value, unit) for unit in UNITS} == {"—"}


def test_the_shared_vector_is_what_python_says() -> None:
    """GIVEN the vector the frontend is tested against WHEN Python formats it again THEN nothing differs, and every unit is in it."""
    rows = json.loads(VECTOR.read_text(encoding="utf-8"))
    assert len(rows) > 500
    assert {row[1] for row in rows} == set(UNITS)
    assert [(value, unit, human(value, unit)) for value, unit, _ in rows] == [tuple(row) for row in rows]


def test_many_numbers_are_written_as_each_is_alone() -> None:
    """GIVEN the vector, and numbers next to where a unit or a digit changes WHEN all of a unit are formatted at once THEN nothing differs."""
    rows = json.loads(VECTOR.read_text(encoding="utf-8"))
    edges = [0, 0.4, 0.5, 998.4, 999, 999.4, 999.5, 999.6, 1000, 9_995, 99_995, 999_949, 999_951, 1e10, 1e13, 1e22, math.inf, math.nan, -5]
    for unit in UNITS:
        values = edges + [value for value, own, _ in rows if own == unit and value is not None]
        assert humans(values, unit) == [human(value, unit) for value in values]


def test_how_many_and_the_first_letter() -> None:
    assert how_many(1, "replica") == "1 replica" and how_many(0, "row") == "0 rows" and how_many(2000, "copy", "copies") == "2\u202f000 copies"
    assert capitalized("fp8 GEMM runs") == "Fp8 GEMM runs" and capitalized("") == ""


@pytest.mark.parametrize(
    ("values", "unit", "texts"),
    [
        ([4_007_000, 17_300, None], "ns", ["4.01 ms", "0.0173 ms", "—"]),
        ([1_211_000_000, 159_900_000, 250_000, 250], "ns", ["1 211 ms", "159.9 ms", "0.250 ms", "250 ns"]),
        ([900, 12], "ns", ["900 ns", "12 ns"]),
        ([2_500_000_000, 1_000, 0], "B", ["2.50 GB", "1.00 kB", "0 B"]),
        ([0.5, 0.0001], "ratio", ["50.0 %", "< 0.1 %"]),
        ([], "ns", []),
    ],
)
def test_amounts_side_by_side_have_the_unit_of_the_largest(values: list[float | None], unit: str, texts: list[str]) -> None:
    assert [t.replace(NARROW, " ") for t in side_by_side(values, unit)] == texts
