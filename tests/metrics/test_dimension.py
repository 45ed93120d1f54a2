"""Intrinsic dimension: scikit-dimension, scipy's spanning tree, cubes of known dimension."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

from radial.metrics.dimension import _tree_length, mst_dimension, two_nn


def cube(n: int, d: int, wide: int, generator: torch.Generator) -> torch.Tensor:
    """Uniform in d dimensions, turned into ``wide`` of them."""
    rotation = torch.linalg.qr(torch.randn(wide, wide, generator=generator)).Q
    return torch.rand(n, d, generator=generator) @ rotation[:d]


@pytest.mark.parametrize("d", [2, 5, 10])
def test_two_nn_is_scikit_dimensions(d, generator) -> None:
    skdim = pytest.importorskip("skdim", reason="scikit-dimension is not installed")
    z = cube(1000, d, 20, generator)
    theirs = skdim.id.TwoNN(discard_fraction=0.1).fit(z.double().numpy()).dimension_
    assert two_nn(z) == pytest.approx(theirs, rel=2e-3)


@pytest.mark.parametrize("score", [two_nn, mst_dimension])
def test_cubes(score, generator) -> None:
    found = [score(cube(2000, d, 30, generator)) for d in (1, 2, 5)]
    assert found == pytest.approx([1.0, 2.0, 5.0], rel=0.15)


def test_two_nn_by_brute_force(generator) -> None:
    z = torch.randn(500, 12, generator=generator) + 30.0
    apart = np.sort(squareform(pdist(z.double().numpy())), axis=1)
    ratios = np.sort(np.log(apart[:, 2] / apart[:, 1]))[:450]
    share = -np.log(1 - np.arange(1, 451) / 500)
    assert two_nn(z) == pytest.approx((ratios @ share) / (ratios @ ratios), rel=1e-9)


def test_tree_is_scipys(generator) -> None:
    z = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    apart = squareform(pdist(z.numpy()))
    expected = minimum_spanning_tree(apart).sum()
    assert _tree_length(torch.from_numpy(apart)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("score", [two_nn, mst_dimension])
def test_duplicates_scale_and_shift_do_not_matter(score, generator) -> None:
    z = torch.randn(300, 8, generator=generator, dtype=torch.float64)
    assert score(torch.cat([z, z[:100], z])) == pytest.approx(score(z), rel=1e-9)
    assert score(1000.0 * z) == pytest.approx(score(z), rel=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: two_nn(torch.ones(50, 4)), "different samples are needed"),
        (lambda: mst_dimension(torch.ones(50, 4)), "different samples are needed"),
        (lambda: mst_dimension(torch.randn(5, 4)), "different samples are needed"),
        (lambda: two_nn(torch.randn(50, 4), discard=1.0), "discard"),
        (lambda: two_nn(torch.full((50, 4), math.nan)), "NaN or inf"),
        (lambda: two_nn(torch.eye(12)), "equally far"),
        (lambda: mst_dimension(torch.randn(50, 4), seed=-1), "seed"),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
