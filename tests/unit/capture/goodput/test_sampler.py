"""Each sample once in an epoch: whatever the replicas, batches, restarts and sizes that change on the way."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="shuffles")
from tb_sol_plugin.capture import ElasticSampler


def replicas_of(count: int, length: int, batch: int, accum: int = 0, state=None, **options) -> list[ElasticSampler]:
    own = [ElasticSampler(length, batch, accum, num_replicas=count, rank=rank, **options) for rank in range(count)]
    for one in own:
        if state is not None:
            one.load_state_dict(json.loads(json.dumps(state)))
    return own


def train(own: list[ElasticSampler], most: int) -> list[list[int]]:
    """Up to so many steps of all replicas, within one epoch; the batches, those of one step one after the other."""
    iterators, seen = [iter(one) for one in own], []
    for _ in range(most):
        batches = [next(iterator, None) for iterator in iterators]
        if batches[0] is None:
            assert batches == [None] * len(own)
            break
        seen += batches
        for one in own:
            one.advance()
    return seen


@given(st.integers(1, 200), st.integers(0, 10_000))
def test_no_sample_is_lost_or_doubled_over_restarts(length: int, seed: int) -> None:
    # GIVEN a job that restarts at any number of replicas that has samples left, with sizes that change WHEN an epoch is over
    r, state, seen = random.Random(seed), None, []
    while state is None or state["epoch"] == 0:
        left = length - (state["position"] if state else 0)
        own = replicas_of(r.randint(1, min(5, left)), length, r.randint(1, 8), r.randint(0, 2), state, seed=3)
        for one in own:
            one.set_batch_size(one.batch_size + 1, one.accum_steps)
        seen += train(own, r.randint(1, 6))
        assert len({json.dumps(one.state_dict()) for one in own}) == 1
        state = own[0].state_dict()
    # THEN each sample came once, in batches that are not empty
    assert sorted(i for batch in seen for i in batch) == list(range(length)) and all(seen)
    assert (state["epoch"], state["position"]) == (1, 0)


@given(st.integers(1, 300), st.integers(1, 6), st.integers(1, 9), st.integers(0, 3))
def test_replicas_have_as_many_batches_of_the_size_or_less(length: int, count: int, batch: int, accum: int) -> None:
    own = replicas_of(min(count, length), length, batch, accum)
    expected = len(own[0])
    seen = train(own, length + 1)
    assert len(seen) == expected * len(own) and max(map(len, seen)) <= max(batch, 2)
    # AND an update has its micro-steps, but the last one of the epoch
    iterator, counts = iter(own[0]), []
    for _ in iterator:
        counts.append((own[0].micro_steps, own[0].last))
        own[0].advance()
    assert sum(last for _, last in counts) == -(-expected // (accum + 1))
    assert all(micro == accum + 1 for micro, _ in counts[: expected // (accum + 1) * (accum + 1)])


def test_the_order_is_of_seed_and_epoch_only():
    epochs = []
    for _ in range(2):
        (own,) = replicas_of(1, 50, 50, seed=7)
        epochs.append([train([own], 9)[0], train([own], 9)[0]])
        assert own.epoch == 2
    assert epochs[0] == epochs[1] and epochs[0][0] != epochs[0][1]
    (plain,) = replicas_of(1, 5, 2, shuffle=False)
    assert train([plain], 9) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_reads_ahead_loses_nothing(workers):
    # GIVEN a loader with workers, which take batches before they are trained WHEN it ends in the middle THEN only what was trained is passed
    from torch.utils.data import DataLoader

    (own,) = replicas_of(1, 40, 4, seed=1)
    seen = []
    for batch in DataLoader(range(40), batch_sampler=own, num_workers=workers):
        seen += batch.tolist()
        own.advance()
        if len(seen) == 12:
            break
    (again,) = replicas_of(1, 40, 5, state=own.state_dict())
    assert again.position == 12 and len(DataLoader(range(40), batch_sampler=again)) == 7
    for batch in DataLoader(range(40), batch_sampler=again, num_workers=workers):
        seen += batch.tolist()
        again.advance()
    assert sorted(seen) == list(range(40)) and again.epoch == 1


def test_sizes_of_updates_that_were_given_out_stay():
    (own,) = replicas_of(1, 100, 4, 1)
    iterator = iter(own)
    assert len(next(iterator)) == 4 and own.update_size == 8 and not own.last
    own.set_batch_size(10)
    own.advance()
    assert len(next(iterator)) == 4 and own.last and own.micro_steps == 2
    own.advance()
    assert len(next(iterator)) == 10 and own.last and own.update_size == 10


def test_more_replicas_than_samples_repeat_some_and_say_so(caplog):
    own = replicas_of(4, 2, 3, shuffle=False)
    assert train(own, 9) == [[0], [1], [0], [1]] and "2 samples are left for 4 replicas" in caplog.text


def test_what_cannot_be_is_refused():
    for arguments, options in (((0, 1), {}), ((5, 0), {}), ((5, 1, -1), {}), ((5, 1), {"num_replicas": 2, "rank": 2})):
        with pytest.raises(ValueError):
            ElasticSampler(*arguments, **options)
    own = ElasticSampler(5, 2)
    with pytest.raises(RuntimeError, match="one `advance` per batch"):
        own.advance()
    for wrong in ({"length": 6}, {"position": 5}, {"epoch": -1}, {"batch_size": 0}):
        with pytest.raises(ValueError):
            own.load_state_dict({**own.state_dict(), **wrong})
