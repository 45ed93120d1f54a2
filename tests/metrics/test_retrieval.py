"""Whether views of an image find each other: against brute force, and where it is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from radial.metrics.compute import Sample
from radial.metrics.multiview import view_retrieval
from radial.metrics.registry import RETRIEVAL_IMAGES as IMAGES
from radial.metrics.registry import SCORES
from radial.metrics.scores import Scores


def brute_force(views: np.ndarray, shrinkage: float) -> float:
    """One view after the other, with an eigendecomposition in place of Cholesky's."""
    n, q, width = views.shape
    x = views.reshape(n * q, width)
    x = x - x.mean(0)
    covariance = np.cov(x.T, bias=True)
    level = np.trace(covariance) / width
    values, axes = np.linalg.eigh((1 - shrinkage) * covariance + shrinkage * level * np.eye(width))
    z = x @ axes / np.sqrt(values)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    logs = []
    for i in range(n * q):
        cosines = z @ z[i]
        own = [j for j in range(n * q) if j // q == i // q and j != i]
        best = max(cosines[j] for j in own)
        ahead = sum(cosines[j] >= best for j in range(n * q) if j // q != i // q)
        logs.append(math.log(1 + ahead))
    return 1 - float(np.mean(logs)) / math.log(n * q - q + 1)


@pytest.mark.parametrize("shrinkage", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_equals_brute_force(noise: float, shrinkage: float) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(24, 1, 7, generator=generator) * torch.tensor([9, 3, 1, 1, 1, 0.3, 0.1])
    views = images + noise * torch.randn(24, 3, 7, generator=generator)
    found = view_retrieval(views, shrinkage=shrinkage)
    assert found == pytest.approx(brute_force(views.double().numpy(), shrinkage), abs=1e-12)


def test_ends_of_the_scale() -> None:
    same = torch.randn(64, 1, 16, generator=torch.Generator().manual_seed(0)).expand(-1, 4, -1)
    assert view_retrieval(same) == 1.0
    assert view_retrieval(torch.ones(8, 2, 4)) == 0.0
    noise = torch.randn(256, 2, 16, generator=torch.Generator().manual_seed(1))
    # among M − 1 others the partner's place is uniform: E ln(1 + r) of r = 0 … M − q
    ranks = torch.arange(256 * 2 - 1).double()
    chance = 1 - float(torch.log1p(ranks).mean()) / math.log(256 * 2 - 1)
    assert view_retrieval(noise) == pytest.approx(chance, abs=0.02)


def test_a_collapse_to_a_few_points_is_no_success() -> None:
    two_points = torch.tensor([[0.0], [1.0]]).repeat(16, 1)[:, None].expand(-1, 2, -1)
    assert view_retrieval(two_points) < 0.25  # fifteen other images are as near


def test_half_samples_are_halves_of_what_is_used() -> None:
    views = torch.randn(IMAGES + 200, 2, 6, generator=torch.Generator().manual_seed(0))
    fewer, more = (Sample(views=part) for part in (views[:IMAGES], views))
    score = SCORES["view_retrieval"]
    assert score.fn(more) == score.fn(fewer)
    for number in range(3):
        assert score.fn(more.half(number, 0)) == score.fn(fewer.half(number, 0))
    scores = Scores(["view_retrieval@backbone"], repeats=2)
    scores.update("backbone", views=views)
    assert scores.compute()[0].samples == IMAGES


def test_what_it_does_not_depend_on() -> None:
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(32, 1, 6, generator=generator) + torch.randn(32, 3, 6, generator=generator)
    value = view_retrieval(views)
    turned = views @ torch.linalg.qr(torch.randn(6, 6, generator=generator)).Q
    assert view_retrieval(7.0 * turned + 3.0) == pytest.approx(value, abs=1e-6)
    order = torch.randperm(32, generator=generator)
    assert view_retrieval(views[order]) == pytest.approx(value, abs=1e-12)
    assert view_retrieval(views[:, [2, 0, 1]]) == pytest.approx(value, abs=1e-12)


def test_more_noise_is_worse_and_more_images_change_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(IMAGES + 100, 1, 8, generator=generator)
    noise = torch.randn(IMAGES + 100, 2, 8, generator=generator)
    values = [view_retrieval(images + level * noise) for level in (0.1, 0.5, 1.0, 2.0)]
    assert values == sorted(values, reverse=True)
    assert view_retrieval((images + noise)[:IMAGES]) == values[2]


@pytest.mark.parametrize("shape", [(8, 4), (1, 2, 4), (8, 1, 4)])
def test_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="views must have shape"):
        view_retrieval(torch.zeros(shape))


def test_refused_shrinkage_and_nan() -> None:
    with pytest.raises(ValueError, match="shrinkage must lie in"):
        view_retrieval(torch.randn(4, 2, 3), shrinkage=0.0)
    with pytest.raises(ValueError, match="views"):
        view_retrieval(torch.full((4, 2, 3), math.nan))
