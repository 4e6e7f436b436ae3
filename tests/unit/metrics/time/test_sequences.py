"""Runs of kernels that repeat, against a search that tries every window."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.metrics.time import sequences as Q


def kernels(streams: list[list[int]]) -> Q.Kernels:
    """Kernels of 10 ns, 2 ns apart, on each of some streams."""
    name = np.array([n for one in streams for n in one], np.int64)
    stream = np.array([k for k, one in enumerate(streams) for _ in one], np.int64)
    start = np.array([12 * i for one in streams for i in range(len(one))], np.int64)
    return Q.kernels_of(np.arange(len(name)), name, stream, start, np.full(len(name), 10, np.int64))


def windows(streams: list[list[int]], length: int) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    out: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for k, one in enumerate(streams):
        for i in range(len(one) - length + 1):
            out.setdefault(tuple(one[i : i + length]), []).append((k, i))
    return out


def tried(streams: list[list[int]]) -> dict[tuple[int, ...], int]:
    """Runs by names: how often, without overlap; those of which no longer one occurs as often, and that are no shorter ones repeated."""
    found = {}
    for length in range(Q.SHORTEST, max(map(len, streams)) + 1):
        longer = windows(streams, length + 1)
        for run, places in windows(streams, length).items():
            if any(len(own) == len(places) for other, own in longer.items() if run in (other[1:], other[:-1])):
                continue
            if any(run[period:] == run[:-period] for period in range(1, length // 2 + 1)):
                continue
            count, end = 0, (-1, 0)
            for stream, at in places:
                if stream != end[0] or at >= end[1]:
                    count, end = count + 1, (stream, at + length)
            if count > 1:
                found[run] = count
    return found


class Plain:
    """The compiled numbering as plain Python, which counts as loaded."""

    loaded = True
    loop = staticmethod(Q.longer_kernel.py_func)

    def __call__(self, *arguments: object) -> object:
        return self.loop(*arguments)


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=14), min_size=1, max_size=3))
def test_the_compiled_numbering_and_the_one_of_columns_find_the_same(streams: list[list[int]]) -> None:
    # GIVEN some kernels WHEN their runs are found by the loop that is compiled, and where loading it does not pay
    own = kernels(streams)
    with patch.object(Q, "longer_kernel", SimpleNamespace(loaded=False)):
        columns = Q.repeated_runs(own)
    with patch.object(Q, "longer_kernel", Plain()):
        loop = Q.repeated_runs(own)
    # THEN they are the same
    assert [(r.length, r.at.tolist(), r.total_ns, r.gap_ns) for r in loop] == [
        (r.length, r.at.tolist(), r.total_ns, r.gap_ns) for r in columns
    ]


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=14), min_size=1, max_size=3))
def test_the_runs_are_those_that_trying_every_window_finds(streams: list[list[int]]) -> None:
    # GIVEN some kernels on some streams WHEN their runs are looked for
    own = kernels(streams)
    found = Q.repeated_runs(own)
    # THEN they are those of a search of every window, each as often
    names = [tuple(own.name[run.at[0] : run.at[0] + run.length].tolist()) for run in found]
    assert dict(zip(names, (len(run.at) for run in found), strict=True)) == tried(streams)
    # AND each occurrence has these names, of 10 ns each, with 2 ns between two of them
    for run, one in zip(found, names, strict=True):
        for at in run.at.tolist():
            assert tuple(own.name[at : at + run.length].tolist()) == one and len(set(own.stream[at : at + run.length].tolist())) == 1
        assert (run.total_ns, run.gap_ns) == (10 * run.length * len(run.at), 2 * (run.length - 1) * len(run.at))


def test_a_run_is_no_longer_than_it_may_be_and_one_of_all_is_a_layer() -> None:
    # GIVEN two steps of a first kernel, 5 layers of 6 different kernels, a last one
    step = [0, *[1, 2, 3, 4, 5, 6] * 5, 7]
    own = kernels([step * 2])
    runs = Q.repeated_runs(own)
    layer = Q.layer_of(runs, own, 2)
    # THEN the layer is the longest run that occurs more than once per step; the step itself, 32 kernels, is none
    assert layer is not None
    assert (runs[layer.place].length, len(runs[layer.place].at), layer.share) == (6, 10, 60 / 64)
    # AND 70 different kernels that repeat as a whole are told by no more than 64 of them
    assert {run.length for run in Q.repeated_runs(kernels([list(range(70)) * 2]))} <= {Q.LONGEST}
    assert Q.layer_of([], own, 1) is None


def test_of_very_many_kernels_the_first_are_looked_through(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(Q, "MOST_KERNELS", 4)
    own = kernels([[1, 2, 1, 2], [1, 2, 1, 2]])
    # THEN the first of both streams by start are kept, in order of each
    assert own.stream.tolist() == [0, 0, 1, 1] and own.start.tolist() == [0, 12, 0, 12]
