"""Order, schedule and seeds: functions of (seed, epoch, step) and nothing else."""

from __future__ import annotations

import math

import pytest
import torch

from radial.training.build import EpochBatches, generator, key, learning_rate


def test_each_image_once_an_epoch_in_an_order_of_its_own() -> None:
    batches = EpochBatches(10, 4, seed=0, shuffle=True)
    first = list(batches)
    assert len(first) == len(batches) == 2
    assert len({i for batch in first for i in batch}) == 8
    assert list(batches) == first
    batches.set_epoch(1)
    assert list(batches) != first
    assert list(EpochBatches(10, 4, seed=1, shuffle=True)) != first
    assert list(EpochBatches(10, 4, seed=9, shuffle=False)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_ranks_divide_the_batch_of_one_process() -> None:
    whole = list(EpochBatches(50, 12, seed=0, shuffle=True))
    parts = [list(EpochBatches(50, 12, seed=0, rank=r, world=3, shuffle=True)) for r in range(3)]
    assert [a + b + c for a, b, c in zip(*parts)] == whole


def test_learning_rate_is_warm_up_then_half_a_cosine() -> None:
    rates = [learning_rate(step, warmup=10, total=110) for step in range(111)]
    assert rates[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert rates[10] == 1.0
    assert rates[60] == pytest.approx(0.5)
    assert rates[110] == pytest.approx(0.0, abs=1e-12)
    assert rates[35] == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert learning_rate(0, warmup=0, total=10) == 1.0


def test_keys_differ_in_every_part() -> None:
    places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 10, 0), (0, 1, 10)]
    keys = [key(seed, "views", epoch, step) for seed, epoch, step in places]
    keys.append(key(0, "order", 0, 0))
    assert len(set(keys)) == len(keys)
    assert all(0 <= value < 2**63 for value in keys)
    one, two = (torch.rand(3, generator=generator(7, "views", 1, 2)) for _ in range(2))
    assert torch.equal(one, two)
