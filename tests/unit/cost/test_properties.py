"""Properties that hold for any sizes: splitting, expanding, reordering of strides, growing a batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.cost.ops.attention import pairs
from tests.unit.cost.calls import cost

small = st.integers(1, 9)
fast = settings(max_examples=60, deadline=None)
Shape = tuple[int, ...]

# (operator, arguments for a batch of n, bytes of what is shared by the batch: weights, their gradients, biases)
Family = Callable[[int, list[int]], "tuple[str, tuple[object, ...], int]"]


def linear(n: int, s: list[int]) -> tuple[str, tuple[object, ...], int]:
    k, m = s[0], s[1]
    return "aten::linear", ((n, 3, k), (m, k), (m,)), 4 * (k * m + m)


def addmm(n: int, s: list[int]) -> tuple[str, tuple[object, ...], int]:
    k, m = s[0], s[1]
    return "aten::addmm", ((m,), (n, k), (k, m), "1", "1"), 4 * (k * m + m)


def bmm(n: int, s: list[int]) -> tuple[str, tuple[object, ...], int]:
    return "aten::bmm", ((n, s[0], s[1]), (n, s[1], s[2])), 0


def conv(n: int, s: list[int]) -> tuple[str, tuple[object, ...], int]:
    values = ("[2, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1")
    return "aten::convolution", ((n, s[0], 9, 8), (s[1], s[0], 3, 3), (s[1],), *values), 4 * (9 * s[0] * s[1] + s[1])


def transposed(n: int, s: list[int]) -> tuple[str, tuple[object, ...], int]:
    values = ("[2, 1]", "[1, 1]", "[1, 1]", "True", "[0, 0]", "1")
    return "aten::convolution", ((n, s[0], 9, 8), (s[0], s[1], 3, 3), None, *values), 4 * 9 * s[0] * s[1]


def conv_backward(n: int, s: list[int]) -> tuple[str, tuple[object, ...], int]:
    values = ("[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, True]")
    args = ((n, s[1], 6, 5), (n, s[0], 6, 5), (s[1], s[0], 1, 1), f"[{s[1]}]", *values)
    return "aten::convolution_backward", args, 4 * (2 * s[0] * s[1] + s[1])


def linear_backward(n: int, s: list[int]) -> tuple[str, tuple[object, ...], int]:
    return "aten::linear_backward", ((n, s[0]), (n, s[1]), (s[1], s[0]), "[True, True, True]"), 4 * (2 * s[0] * s[1] + s[1])


def attention(n: int, s: list[int]) -> tuple[str, tuple[object, ...], int]:
    q, k, v = (n, 2 * s[0], s[1], 8), (n, s[0], s[2], 8), (n, s[0], s[2], 4)
    return "aten::_scaled_dot_product_flash_attention", (q, k, v, "0.", "True", "False"), 0


def attention_backward(n: int, s: list[int]) -> tuple[str, tuple[object, ...], int]:
    q, k = (n, s[1], s[0], 8), (n, s[2], s[0], 8)
    args = (q, q, k, k, q, (n, s[0], s[1]), None, None, str(s[1]), str(s[2]), "0.", "True")
    return "aten::_flash_attention_backward", args, 0


FAMILIES = (linear, addmm, bmm, conv, transposed, conv_backward, linear_backward, attention, attention_backward)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
@fast
@given(small, small, st.lists(small, min_size=3, max_size=3))
def test_splitting_a_batch_splits_the_work(family: Family, first: int, second: int, sizes: list[int]) -> None:
    # GIVEN one call over a batch, and two over its parts
    name, args, shared = family(first + second, sizes)
    whole = cost(name, *args)
    parts = [cost(name, *family(n, sizes)[1]) for n in (first, second)]
    # THEN the FLOP are those of the parts exactly; activations move once either way, what the batch shares moves once more
    for field in ("flop", "flop_dense", "flop_vector"):
        values = [getattr(c, field) for c in (whole, *parts)]
        assert values[0] is None or values[0] == values[1] + values[2], field
    assert sum(p.bytes or 0 for p in parts) == (whole.bytes or 0) + shared > 0


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
@fast
@given(st.integers(2, 5), st.lists(small, min_size=3, max_size=3))
def test_work_grows_with_the_batch(family: Family, times: int, sizes: list[int]) -> None:
    name, args, _ = family(times, sizes)
    assert cost(name, *args).flop == times * (cost(name, *family(1, sizes)[1]).flop or 0) > 0


@fast
@given(small, small, small, st.permutations((0, 1, 2)))
def test_bytes_do_not_depend_on_the_order_of_strides(b: int, m: int, k: int, order: list[int]) -> None:
    # GIVEN a dense tensor laid out in any order of its dimensions
    shape, strides, step = (b, m, k), [0, 0, 0], 1
    for at in order:
        strides[at] = step
        step *= shape[at]
    # THEN a product over it, and an addition, move as many bytes as over the contiguous one
    other = (b, k, 3)
    assert cost("aten::bmm", shape, other, strides={0: strides}).bytes == cost("aten::bmm", shape, other).bytes
    assert cost("aten::add", shape, shape, "1", strides={0: strides, 1: strides}).bytes == cost("aten::add", shape, shape, "1").bytes


@fast
@given(small, small, small, st.sampled_from([0, 1, 2]))
def test_an_expanded_operand_moves_no_more_bytes(b: int, m: int, k: int, dim: int) -> None:
    # GIVEN an operand that is one wide along a dimension, and its expansion
    strides = [m * k, k, 1]
    strides[dim] = 0
    expanded = cost("aten::bmm", (b, m, k), (b, k, 3), strides={0: strides})
    dense = cost("aten::bmm", (b, m, k), (b, k, 3))
    # THEN the same work, over no more bytes: less by exactly what is not stored
    elements = b * m * k
    assert expanded.flop == dense.flop
    assert dense.bytes - expanded.bytes == 4 * (elements - elements // (b, m, k)[dim])  # type: ignore[operator]
    # AND a contiguous copy of the expansion writes it in full
    assert cost("aten::clone", (b, m, k), "0", strides={0: strides}).bytes == 4 * (elements // (b, m, k)[dim] + elements)


@fast
@given(st.integers(1, 12), st.integers(1, 12), st.integers(-1, 13), st.integers(-1, 13))
def test_pairs_by_counting_them(nq: int, nk: int, left: int, right: int) -> None:
    # GIVEN a window around the diagonal; THEN every pair inside it counts once; a square causal mask counts as half
    def count(shift: int, causal: bool) -> int:
        seen = 0
        for q in range(nq):
            for k in range(nk):
                away = k - q - shift
                seen += (not causal or away <= 0) and (left < 0 or -away <= left) and (causal or right < 0 or away <= right)
        return seen

    assert pairs(nq, nk, "none", (left, right)) == count(nk - nq, False)
    narrow = 0 <= left < nk - 1
    for mask, shift in (("bottom_right", nk - nq), ("top_left", 0)):
        want = count(shift, True) if narrow or nq != nk else nq * nk / 2
        assert pairs(nq, nk, mask, (left, right)) == want, mask  # type: ignore[arg-type]


def test_pairs_of_long_sequences_are_exact() -> None:
    # a million queries after a million keys: no loop, no rounding
    n = 1_000_000
    assert pairs(n, 2 * n, "bottom_right") == n * n + n * (n + 1) // 2
    assert pairs(n, n, "bottom_right", (4095, 0)) == 4096 * n - 4096 * 4095 // 2
