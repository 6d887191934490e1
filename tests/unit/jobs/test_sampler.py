"""Batches cover each epoch once, whatever the shards, and depend on the step alone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrain_jobs.training.sampler import BatchSampler
from sbtrain_perf.errors import RequestError


def samplers(samples: int, batch: int, shards: int, seed: int = 3) -> list[BatchSampler]:
    return [
        BatchSampler(samples=samples, batch=batch, shard=shard, shards=shards, seed=seed)
        for shard in range(shards)
    ]


@settings(deadline=None)
@given(
    samples=st.integers(1, 60),
    batch=st.integers(1, 70),
    shards=st.integers(1, 4),
    steps=st.integers(1, 12),
)
def test_each_sample_comes_once_an_epoch(
    samples: int, batch: int, shards: int, steps: int
) -> None:
    readers = samplers(samples, batch, shards)
    drawn = [
        int(number)
        for step in range(1, steps + 1)
        for reader in readers
        for number in reader.batch(step)
    ]
    assert len(drawn) == steps * shards * batch
    for first in range(0, len(drawn) - samples + 1, samples):
        assert sorted(drawn[first : first + samples]) == list(range(samples))
    counts = Counter(drawn)
    assert max(counts.values()) - min(counts.get(n, 0) for n in range(samples)) <= 1


@settings(deadline=None)
@given(steps=st.permutations(range(1, 20)))
def test_a_batch_depends_on_the_step_alone(steps: list[int]) -> None:
    straight = samplers(50, 7, 2)[1]
    expected = {step: straight.batch(step).tolist() for step in range(1, 20)}
    jumping = samplers(50, 7, 2)[1]
    assert {step: jumping.batch(step).tolist() for step in steps} == expected


def test_epochs_and_seeds_shuffle_differently() -> None:
    (reader,) = samplers(100, 100, 1)
    (other,) = samplers(100, 100, 1, seed=4)
    orders = [reader.batch(1).tolist(), reader.batch(2).tolist(), other.batch(1).tolist()]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_epochs_are_counted_over_all_shards() -> None:
    assert samplers(64, 8, 2)[0].epoch(6) == 1.5


@pytest.mark.parametrize(("samples", "batch", "shard"), [(0, 1, 0), (5, 0, 0), (5, 1, 2)])
def test_refuses_what_cannot_be_drawn(samples: int, batch: int, shard: int) -> None:
    with pytest.raises(RequestError, match="cannot draw"):
        BatchSampler(samples=samples, batch=batch, shard=shard, shards=2, seed=0)
