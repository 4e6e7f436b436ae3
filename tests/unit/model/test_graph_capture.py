"""What a graph replayed is aligned with what was captured into it by names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.model.engines import PATTERNS, iteration_of
from tb_sol_plugin.model.graph_capture import align, place_pieces, stated_in

A, B, C, D = range(4)


def aligned(events: list[int], launches: list[int], streams: list[int] | None = None) -> tuple[int, list[int]]:
    found = align(np.array(events), np.array(streams or [0] * len(events)), np.array(launches))
    return found.how, found.place.tolist()


@pytest.mark.parametrize(
    ("events", "launches", "expected"),
    [
        ([A, B, A], [A, B, A], (0, [0, 1, 2])),  # in order
        ([A, B, A], [A, C, B, C, A, C], (1, [0, 2, 4])),  # launches that replayed nothing are left out
        ([A, B, A, C], [B, A, C, A], (2, [1, 0, 3, 2])),  # another order: the first A is the first A
        ([A, B, C], [A, B], (-1, [0, 1])),  # an event is never left out
        ([A, D, B], [A, B, C], (-1, [0])),
        ([], [A], (-1, [])),
        ([-1, -1], [-2, -2], (-1, [])),  # names that nobody knows are not equal
    ],
)
def test_alignment(events: list[int], launches: list[int], expected: tuple[int, list[int]]) -> None:
    assert aligned(events, launches) == expected


@pytest.mark.parametrize(
    ("pieces", "launches", "expected"),
    [
        ([[A, B], [C, A], [C, D]], [A, B, D, C, A, D, C, D], [0, 3, 6]),
        ([[A, B], [C, D]], [A, B, C, D, A, B, C, D], [4, 6]),  # the model ran twice: the last time
        ([[A], [A]], [A, A, A], None),  # the first and the second, or the second and the third
        ([[A], [B]], [A, A, B], None),
        ([[A], [B], [C]], [A, B, B, C], None),
        ([[A], [B]], [A, C, C, C, C, B], None),  # far apart
        ([[A, B]], [B, A], None),
        ([[A], []], [A], None),
        ([[-1]], [-2], None),
        ([], [A], None),
    ],
)
def test_pieces_stand_in_an_eager_run_in_one_way_only(pieces: list[list[int]], launches: list[int], expected: list[int] | None) -> None:
    assert place_pieces([np.array(piece, np.int64) for piece in pieces], np.array(launches)) == expected


def test_streams_each_keep_their_order() -> None:
    # GIVEN two streams whose events interleave otherwise than they were captured, and one launch that replayed nothing
    events, streams = [A, C, B, D], [1, 2, 1, 2]
    # WHEN they are aligned THEN each stream takes its launches first in first out
    assert aligned(events, [A, B, C, C, D], streams) == (3, [0, 2, 1, 4])


def test_of_two_streams_the_one_that_goes_on_longest_takes_a_launch() -> None:
    # GIVEN A at the head of both streams, and a capture in which A B stands first, then A C
    assert aligned([A, A, C, B, D], [A, B, C, A, C, D], [1, 2, 1, 2, 1]) == (3, [3, 0, 4, 1, 5])


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 2), min_size=12, max_size=12))
def test_what_is_aligned_has_the_same_name_and_a_launch_of_its_own(events: list[int], launches: list[int], streams: list[int]) -> None:
    how, place = aligned(events, launches, streams[: len(events)])
    assert all(launches[at] == event for at, event in zip(place, events, strict=False))
    if how >= 0:
        assert len(place) == len(events) and len(set(place)) == len(place)
    if how in (0, 1):
        assert place == sorted(place)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30).filter(lambda rows: any(kept for _, kept in rows)))
def test_a_replay_that_leaves_launches_out_is_always_found(rows: list[tuple[int, bool]]) -> None:
    how, place = aligned([name for name, kept in rows if kept], [name for name, _ in rows])
    assert how in (0, 1) and len(place) == sum(kept for _, kept in rows)


@pytest.mark.parametrize(
    ("name", "kind", "requests", "context", "generation", "batch", "keys"),
    [
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", "decode", 32, 0, 32, 32, 55_086),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill", 1, 888, 0, 888, -1),
        ("execute_40_context_1(sq36sk36sqsq1296sqsk1296)_generation_4(sq4sk90sqsq4sqsk90)", "mixed", 5, 36, 4, 40, 126),
        ("step[DECODE bs=8]", "decode", 8, 0, 8, 8, -1),
        ("step[EXTEND bs=2 toks=812]", "prefill", 2, 812, 0, 812, -1),
        ("step[MIXED bs=4 toks=90]", "mixed", 4, -1, -1, 90, -1),
        ("prefill[bs=1 tok=128]", "prefill", 1, 128, 0, 128, -1),
        ("decode[bs=32 tok=32]", "decode", 32, 0, 32, 32, -1),
        ("execute_diffusion_2_1024x1024", "diffusion step", 2, -1, -1, 2, -1),
    ],
)
def test_iterations_of_engines(name: str, kind: str, requests: int, context: int, generation: int, batch: int, keys: int) -> None:
    # GIVEN an annotation as an engine writes it WHEN it is read THEN its numbers are known, and what it does not say is not
    found = iteration_of(name)
    assert found is not None and not found.contradicts
    assert (found.kind, found.requests, found.context_tokens, found.generation_tokens) == (kind, requests, context, generation)
    assert (found.batch, found.key_tokens) == (batch, keys)


@pytest.mark.parametrize(
    "name",
    [
        "execute_8_context_0(sq0sk0)_generation_16(sq16sk16)",  # 16 tokens of 8
        "execute_context_0(5)_generation_4(4)",  # tokens of no request
        "execute_context_9(3)_generation_0(0)",  # fewer tokens than requests
        "step[DECODE bs=8 bs=9]",
        "step[EXTEND bs=9 toks=3]",
    ],
)
def test_numbers_that_exclude_each_other_are_unknown(name: str) -> None:
    found = iteration_of(name)
    assert found is not None and found.contradicts and found.batch == -1 and found.generation_tokens == -1


@pytest.mark.parametrize("name", ["ProfilerStep#3", "forward", "execute_context_1", "step[8]", "x execute_diffusion_1_8", "decode[" + "a" * 999])
def test_other_annotations_are_no_iterations(name: str) -> None:
    assert iteration_of(name) is None


def test_every_pattern_matches_its_witness() -> None:
    for one in PATTERNS:
        found = iteration_of(one.witness)
        assert found is not None and found.engine == one.engine


def test_details_of_captures() -> None:
    # GIVEN a list with SGLang's mode, a path, a file named twice, and rows that are none
    text = (
        '[{"file": "a.json", "batch_size": 8, "mode": "DECODE"}, {"file": "x/b.json", "batch_size": 4, "mode": "PIECEWISE"}, 7, '
        '{"file": "c.json", "batch_size": 1}, {"file": "c.json", "batch_size": 2}, {"file": "a.json", "batch_size": true}]'
    )
    # WHEN it is read THEN a file that is named once has its batch and mode
    assert stated_in(text, ["a.json", "b.json", "c.json"]) == {"a.json": (8, "FULL"), "b.json": (4, "PIECEWISE")}
    for bad in ("{}", "nothing", "[" * 100_000):
        with pytest.raises(ValueError, match=r"no (JSON|list)"):
            stated_in(bad, ["a.json"])
