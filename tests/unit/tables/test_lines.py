"""Lines of JSON from columns, against Python's own writer."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.tables.lines import Lines

ROW = st.tuples(st.integers(-1, 3), st.integers(-2, 2**62), st.integers(-(2**62), 2**62), st.integers(-1, 4))
NAMES = ['"a"', '"日本語"', '"\\u2028 \\"quoted\\""', "{}"]


@given(st.lists(ROW, max_size=30))
def test_each_row_is_an_object_of_what_is_known(rows: list[tuple[int, int, int, int]]) -> None:
    # GIVEN rows of which some lack a name or a number
    place, number, time, second = (np.array([r[i] for r in rows], np.int64) for i in range(4))
    lines = Lines(len(rows))
    lines.constant("{")
    lines.text(place, NAMES, '"name": ', part=True)
    lines.number(number, '"number": ')
    lines.number(second, '"second": ')
    lines.signed(time, '"signed": ')
    lines.constant(', "ts": ')
    lines.time(time, "")
    lines.constant("}")
    text = bytes(lines.written()).decode()
    # WHEN written THEN a reader of JSON finds what there is, and times to the ns
    found = json.loads("[" + text.replace("{, ", "{") + "]", parse_float=Fraction)
    want = [
        {
            **({"name": json.loads(NAMES[p])} if p >= 0 else {}), **({"number": n} if n >= 0 else {}), **({"second": s} if s >= 0 else {}),
            "signed": t, "ts": Fraction(t, 1000),
        }
        for p, n, t, s in rows
    ]  # fmt: skip
    assert found == want and text.count("\n") == max(len(rows) - 1, 0)


def test_nothing_is_nothing() -> None:
    assert Lines(0).written() == b"" and Lines(3).written() == b""
