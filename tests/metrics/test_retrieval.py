"""Whether views of an image find each other, by all rivals: against loops, and where known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from radial.metrics.compute import Sample
from radial.metrics.registry import RETRIEVAL_IMAGES as IMAGES
from radial.metrics.registry import SCORES
from radial.metrics.retrieval import acr, arc, gacr, info_nce, view_retrieval
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


def some_views(noise: float = 0.8, q: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    images = 1.0 + torch.randn(24, 1, 7, generator=generator)
    return (images + noise * torch.randn(24, q, 7, generator=generator)).double()


def unit(views: np.ndarray) -> np.ndarray:
    return views / np.linalg.norm(views, axis=-1, keepdims=True)


def test_the_two_by_two_of_whitening_and_log_rank() -> None:
    views = some_views()
    z = unit(views.numpy().reshape(72, 7))
    logs, first = [], []
    for i in range(72):
        order = sorted((j for j in range(72) if j != i), key=lambda j: -float(z[i] @ z[j]))
        rank = next(k for k, j in enumerate(order) if j // 3 == i // 3)
        logs.append(math.log(1 + rank))
        first.append(rank == 0)
    plain = 1 - np.mean(logs) / math.log(72 - 3 + 1)
    assert view_retrieval(views, whiten=False) == pytest.approx(plain, abs=1e-12)
    assert view_retrieval(views, whiten=False, top1=True) == pytest.approx(np.mean(first))
    assert acr(views) == pytest.approx(1 - np.mean(first))
    assert view_retrieval(views, top1=True) != view_retrieval(views, top1=True, whiten=False)


def test_confusion_by_scikit_learn() -> None:
    from sklearn.neighbors import NearestNeighbors

    z = unit(some_views().numpy().reshape(72, 7))
    index = NearestNeighbors(n_neighbors=2).fit(z).kneighbors(z, return_distance=False)[:, 1]
    assert acr(some_views()) == pytest.approx(np.mean(index // 3 != np.arange(72) // 3))


@pytest.mark.parametrize("over", ["mean", "min", "max"])
def test_generalised_confusion_equals_a_loop(over: str) -> None:
    views = some_views()
    z = unit(views.numpy())
    taken = {"mean": np.mean, "min": np.min, "max": np.max}[over]
    wrong = []
    for i in range(24):
        for a in range(3):
            far = [np.linalg.norm(z[j] - z[i, a], axis=1) for j in range(24)]
            far[i] = np.delete(far[i], a)
            wrong.append(int(np.argmin([taken(each) for each in far])) != i)
    assert gacr(views, over=over) == pytest.approx(np.mean(wrong))
    if over == "min":
        assert gacr(views, over=over) == acr(views)


@pytest.mark.parametrize("whiten", [False, True])
def test_info_nce_equals_a_loop(whiten: bool) -> None:
    views = some_views()
    x = views.numpy().reshape(72, 7)
    if whiten:
        x = x - x.mean(0)
        covariance = np.cov(x.T, bias=True)
        level = np.trace(covariance) / 7
        values, axes = np.linalg.eigh(0.9 * covariance + 0.1 * level * np.eye(7))
        x = x @ axes / np.sqrt(values)
    e = np.exp(unit(x) @ unit(x).T / 0.2)
    image = np.arange(72) // 3
    losses = [
        -math.log(e[i, j] / (e[i, j] + e[i, image != image[i]].sum()))
        for i in range(72)
        for j in range(72)
        if i != j and image[i] == image[j]
    ]
    assert info_nce(views, whiten=whiten) == pytest.approx(np.mean(losses), abs=1e-10)


def test_closed_forms_of_the_rivals() -> None:
    code = torch.eye(16)[:, None].expand(-1, 3, -1)  # q views alike, images orthogonal
    collapsed = torch.ones(16, 3, 5)
    assert (acr(code), acr(collapsed)) == (0.0, 1.0)
    for over in ("mean", "min", "max"):
        assert (gacr(code, over=over), gacr(collapsed, over=over)) == (0.0, 1.0)
    assert info_nce(code) == pytest.approx(math.log(1 + 45 * math.exp(-5.0)))
    for whiten in (False, True):
        assert info_nce(collapsed, whiten=whiten) == pytest.approx(math.log(46))
    assert view_retrieval(collapsed, whiten=False) == 0.0
    # a common mean hides what tells images apart from the plain ones, not from the whitened
    noisy = 50.0 + some_views()
    assert info_nce(noisy) > info_nce(some_views()) + 0.5
    assert info_nce(noisy, whiten=True) == pytest.approx(info_nce(some_views(), whiten=True))


def test_relative_confusion() -> None:
    assert arc(0.1, 0.1) == 1.0
    assert arc(0.0, 0.75) == 4.0
    with pytest.raises(ValueError, match="confuses all views"):
        arc(0.5, 1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        arc(1.5, 0.5)
    sample = Sample(views=some_views(0.3), start_views=some_views(1.5))
    assert SCORES["arc"].fn(sample) == pytest.approx(
        (1 - acr(some_views(0.3))) / (1 - acr(some_views(1.5)))
    )
    assert SCORES["garc_max"].fn(sample) > 1.0
    scores = Scores(["arc"], repeats=0)
    scores.update("backbone", views=some_views())
    assert scores.compute() == ()  # a target whose start is not known has no such score


def test_mean_over_recipes_of_views() -> None:
    kinds = [some_views(noise) for noise in (0.3, 0.8, 1.5)]
    value = SCORES["view_retrieval_recipes"].fn(Sample(recipes=torch.stack(kinds, dim=1)))
    assert value == pytest.approx(sum(view_retrieval(views) for views in kinds) / 3)


def test_scores_of_one_sample_share_their_gallery() -> None:
    sample = Sample(views=some_views())
    assert sample.gallery("views") is sample.gallery("views")
    assert sample.half(0, 0).gallery("views").n == 12
    with pytest.raises(ValueError, match="unknown over 'median'"):
        gacr(some_views(), over="median")
    with pytest.raises(ValueError, match="temperature"):
        info_nce(some_views(), temperature=0.0)
