"""Which recording stands beside another: chosen for a reader, or as its names say."""

from __future__ import annotations

import pytest

from tb_sol_plugin.errors import BadQuery, NotFound, Unavailable
from tb_sol_plugin.model.recordings import OtherNames, Recording
from tb_sol_plugin.store.pairs import has_other, paired


def recording(run: str, worker: str, span: str = "1", kind: str = "kineto") -> Recording:
    return Recording(run, worker, span, f"/{run}/{worker}.{span}", f"{run}/{worker}.{span}", 1, 1.0, kind)


def logdir(**runs: list[tuple[str, str]]) -> dict[str, list[Recording]]:
    """Runs by name (`__` is a slash) with the worker and span of each recording."""
    return {n.replace("__", "/"): [recording(n.replace("__", "/"), *one) for one in found] for n, found in runs.items()}


RANKS = [("rank0", "1"), ("rank1", "1"), ("rank10", "1"), ("rank2", "1")]
JOBS = logdir(other=[("rank0", "1"), ("rank7", "1")], job__a=RANKS, job__b=RANKS[:2], job__c=[("rank1", "1")])


def found(runs: dict[str, list[Recording]], name: str, place: int = 0, **asked: str) -> tuple[str, str, str]:
    """(run, worker, span) of the other recording."""
    other = paired(runs[name][place], runs, OtherNames(**asked)).other
    return other.run, other.worker, other.span


@pytest.mark.parametrize(("run", "place", "want"), [
    ("job/a", 0, ("job/b", "rank0", "1")),  # the next run of the folder
    ("job/b", 0, ("job/a", "rank0", "1")),  # job/c lacks rank 0, so the one before
    ("job/a", 3, ("job/a", "rank10", "1")),  # nobody beside has rank 2: the next rank of this run
    ("job/a", 2, ("job/a", "rank0", "1")),  # after the last rank the first
    ("job/c", 0, ("job/b", "rank1", "1")),
    ("other", 0, ("other", "rank7", "1")),  # of no folder, and of a job of its own: another rank before another run
    ("other", 1, ("other", "rank0", "1")),
])  # fmt: skip
def test_the_other_recording_is_chosen_by_run_then_worker_then_span(run: str, place: int, want: tuple[str, str, str]) -> None:
    # GIVEN a logdir of four runs WHEN nothing is asked for THEN the neighbor with the same worker stands beside, else another rank
    assert found(JOBS, run, place) == want


def test_runs_with_the_same_workers_are_neighbors_without_a_folder() -> None:
    runs = logdir(before=RANKS, after=RANKS, third=[("rank0", "1")])
    assert found(runs, "before") == ("after", "rank0", "1")
    assert found(runs, "after", 1) == ("before", "rank1", "1")


@pytest.mark.parametrize(("asked", "want"), [
    ({"run": "job/a"}, ("job/a", "rank1", "1")),  # this run itself: another rank of it
    ({"run": "job/b"}, ("job/b", "rank0", "1")),
    ({"run": "job/c"}, ("job/c", "rank1", "1")),  # which has no rank 0: its first
    ({"run": "other", "worker": "7"}, ("other", "rank7", "1")),  # a rank by its number
    ({"worker": "rank1"}, ("job/b", "rank1", "1")),  # the run is chosen first, then its worker
    ({"run": "job/a", "worker": "rank 10"}, ("job/a", "rank10", "1")),
    ({"run": "job/b", "span": "1"}, ("job/b", "rank0", "1")),
])  # fmt: skip
def test_a_named_run_worker_or_span_is_taken(asked: dict[str, str], want: tuple[str, str, str]) -> None:
    assert found(JOBS, "job/a", **asked) == want


def test_the_answer_says_how_the_other_recording_was_chosen() -> None:
    # GIVEN a choice that was made THEN it says how; one that the reader made says nothing, unless a part of it was made
    def said(**asked: str) -> str:
        return paired(JOBS["job/a"][0], JOBS, OtherNames(**asked)).chosen

    assert said() == "the same worker of another run"
    assert said(run="job/b") == said(run="job/b", worker="rank1") == ""
    assert said(run="job/c") == "its first worker"
    assert said(run="job/a") == "another worker of this run"


def test_another_span_of_one_worker_is_chosen() -> None:
    # GIVEN one worker with three recordings and nobody else THEN the one before stands beside; of the first the second
    runs = logdir(job=[("w", "1"), ("w", "2"), ("w", "10")])
    assert found(runs, "job", 2) == ("job", "w", "2") and found(runs, "job", 0) == ("job", "w", "2")
    assert found(runs, "job", 0, span="10") == ("job", "w", "10")
    # AND of two runs the recording in the same place is taken, or the last
    runs |= logdir(more=[("w", "5"), ("w", "6")])
    assert [found(runs, "job", i, run="more")[2] for i in range(3)] == ["5", "6", "6"]


def test_the_next_worker_of_one_run_is_chosen() -> None:
    # GIVEN runs of one worker each, whose names carry process numbers THEN they go together
    runs = logdir(x__one=[("host_12", "1")], x__two=[("host_99", "1")])
    assert found(runs, "x/one") == ("x/two", "host_99", "1")


@pytest.mark.parametrize(("asked", "field", "near"), [
    ({"run": "job/d"}, "other_run", "job/a"), ({"worker": "rank3"}, "other_worker", "rank0"),
    ({"run": "job/b", "span": "9"}, "other_span", "1"), ({"worker": "44"}, "other_worker", "rank"),
])  # fmt: skip
def test_an_unknown_name_is_an_error_with_near_names(asked: dict[str, str], field: str, near: str) -> None:
    # GIVEN a wrong name THEN the error names the field, and near names
    with pytest.raises(NotFound) as error:
        paired(JOBS["job/a"][0], JOBS, OtherNames(**asked))
    assert error.value.field == field and near in error.value.hint


def test_without_a_second_recording_there_is_nothing_to_compare() -> None:
    # GIVEN one recording alone THEN there is none to compare it with; where it is named, it is the recording itself
    alone = logdir(job=[("w", "1")])
    with pytest.raises(Unavailable):
        paired(alone["job"][0], alone, OtherNames())
    with pytest.raises(BadQuery):
        paired(alone["job"][0], alone, OtherNames(run="job"))
    assert not has_other(alone["job"][0], alone) and has_other(JOBS["other"][0], JOBS)


def test_names_tell_two_recordings_apart() -> None:
    def names(name: str, place: int = 0, **asked: str) -> tuple[str, str]:
        return paired(JOBS[name][place], JOBS, OtherNames(**asked)).names

    assert names("job/a") == ("a", "b")  # without the folder that both have, nor the rank
    assert names("job/a", run="job/b", worker="rank1") == ("a, rank 0", "b, rank 1")
    assert names("job/a", run="job/a") == ("rank 0", "rank 1")
    assert names("job/a", run="other") == ("job/a", "other")
    spans = logdir(job=[("w", "170"), ("w", "180")])
    assert paired(spans["job"][1], spans, OtherNames()).names == ("span 2", "span 1")


def test_the_query_fields_hold_the_choice_and_its_alternatives() -> None:
    # GIVEN a pair THEN every field shows what was taken, and what could be
    stands = paired(JOBS["job/a"][0], JOBS, OtherNames()).fields
    assert (stands["other_run"].value, stands["other_run"].values) == ("job/b", ("other", "job/a", "job/b", "job/c"))
    assert (stands["other_worker"].value, stands["other_worker"].values) == ("rank0", ("rank0", "rank1"))


def test_recordings_attached_to_a_trace_are_no_workers() -> None:
    # GIVEN a trace and a SOL capture of the same rank THEN only the trace stands beside another trace
    runs = {name: [recording(name, "host_rank0", "9", "sol_capture"), recording(name, "host_rank0", "1")] for name in ("x/a", "x/b")}
    assert paired(runs["x/a"][1], runs, OtherNames()).other == runs["x/b"][1]
    # AND beside a SOL capture stands the SOL capture
    assert paired(runs["x/a"][0], runs, OtherNames()).other == runs["x/b"][0]
