"""Scores of nearest kernels: closed forms, scikit-learn, and a permutation experiment."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_mutual_info_score, cohen_kappa_score, mutual_info_score

from radial.metrics.separation import agreement, information, occupancy


def views(n: int = 400, kernels: int = 6, flips: float = 0.3, q: int = 2) -> torch.Tensor:
    """Each image has a kernel of its own; a share of its views goes elsewhere."""
    random = np.random.default_rng(0)
    own = random.integers(0, kernels, (n, 1)).repeat(q, 1)
    astray = random.random((n, q)) < flips
    return torch.from_numpy(np.where(astray, random.integers(0, kernels, (n, q)), own))


def test_occupancy_closed_forms() -> None:
    assert occupancy(torch.arange(8).view(4, 2), 8) == pytest.approx(1.0)
    assert occupancy(torch.zeros(4, 2, dtype=torch.int64), 8) == 0.0
    half = torch.tensor([[0, 0], [1, 1]])
    assert occupancy(half, 4) == pytest.approx(math.log(2) / math.log(4))


def test_information_is_what_scikit_learn_adjusts() -> None:
    nearest = views()
    a, b = nearest.T.numpy()
    # AMI = (I − E) / (mean H − E), so E follows from AMI, I and the entropies
    plain, adjusted = mutual_info_score(a, b), adjusted_mutual_info_score(a, b)
    entropies = np.mean([mutual_info_score(x, x) for x in (a, b)])
    expected = (plain - adjusted * entropies) / (1 - adjusted)
    assert information(nearest) == pytest.approx(plain - expected, rel=1e-9)


def test_information_by_chance_is_nothing() -> None:
    """Where a permutation deals the second views to images, the correction takes all away."""
    nearest, random = views(n=150, kernels=40), np.random.default_rng(1)
    shuffled, plain = [], []
    for _ in range(200):
        a, b = nearest.numpy().T
        b = random.permutation(b)
        shuffled.append(information(torch.from_numpy(np.stack([a, b], 1))))
        plain.append(mutual_info_score(a, b))
    assert abs(np.mean(shuffled)) < 0.01
    assert np.mean(plain) > 1.0  # what the correction is for
    assert information(nearest) > 0.3


def test_information_is_the_mean_over_pairs_of_views() -> None:
    nearest = views(q=3)
    pairs = [information(nearest[:, [i, j]]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert information(nearest) == pytest.approx(np.mean(pairs))


def test_agreement_closed_forms_and_scikit_learn() -> None:
    assert agreement(torch.arange(9)[:, None].repeat(1, 3)) == 1.0
    assert agreement(torch.zeros(5, 2, dtype=torch.int64)) == 0.0
    assert agreement(torch.tensor([[0, 1], [1, 0]])) == -1.0
    nearest = views(n=4000)
    a, b = nearest.T.numpy()
    both = np.concatenate([a, b]), np.concatenate([b, a])  # with equal margins π is κ
    assert agreement(nearest) == pytest.approx(cohen_kappa_score(*both), rel=1e-9)


def test_more_noise_is_less_of_both() -> None:
    scores = [(information(x), agreement(x)) for x in (views(flips=f) for f in (0.1, 0.4, 0.8))]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: occupancy(torch.zeros(4, 2), 8), r"must be int64 of shape \(n ≥ 2, q\)"),
        (lambda: occupancy(torch.full((4, 2), 8), 8), r"must be in 0 … 8 − 1, not 8 … 8"),
        (lambda: occupancy(torch.zeros(4, 2, dtype=torch.int64), 1), "kernels must be an integer"),
        (lambda: information(torch.zeros(4, 1, dtype=torch.int64)), "at least two views"),
        (lambda: agreement(torch.zeros(4, 1, dtype=torch.int64)), "at least two views"),
        (lambda: agreement(torch.zeros(4, dtype=torch.int64)), r"not torch.int64 of shape \(4,\)"),
        (lambda: information(torch.full((4, 2), -1)), "not -1 … -1"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
