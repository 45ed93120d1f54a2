"""Intrinsic dimension: scikit-dimension, scipy's spanning tree, cubes of known dimension."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist, pdist
from torch import Tensor

from radial.metrics import dimension as module
from radial.metrics import hypersphere
from radial.metrics.dimension import _tree_length, _two_nearest, mst_dimension, two_nn
from radial.metrics.hypersphere import Pairs, uniformity


def cube(n: int, d: int, features: int) -> Tensor:
    """Uniform in a cube of d dimensions that lies somehow in more."""
    turn = torch.linalg.qr(torch.randn(features, features, dtype=torch.float64)).Q
    return torch.rand(n, d, dtype=torch.float64) @ turn[:d] + 5.0


@pytest.mark.parametrize("discard", [0.05, 0.1, 0.37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_nn_is_that_of_scikit_dimension(discard: float, dtype: torch.dtype) -> None:
    peer = pytest.importorskip("skdim", reason="scikit-dimension 0.5.0 is the peer compared with")
    for z in (cube(700, 5, 60), cube(500, 3, 8), torch.randn(600, 200)):
        z = z.to(dtype)
        theirs = peer.id.TwoNN(discard_fraction=discard).fit(z.double().numpy()).dimension_
        assert two_nn(z, discard=discard) == pytest.approx(theirs, rel=1e-8)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])
def test_neighbours_of_tight_pairs_far_apart(scale: float) -> None:
    """Pairs that a float32 product cannot tell from one point, and one sample far off."""
    centres = torch.randn(60, 20, dtype=torch.float64)
    z = (centres[:, None] + scale * torch.randn(60, 12, 20, dtype=torch.float64)).flatten(0, 1)
    z[0] += 1e3
    exact = np.sort(cdist(z.numpy(), z.numpy()), axis=1)[:, 1:3]
    np.testing.assert_allclose(_two_nearest(Pairs(z)).numpy(), exact, rtol=1e-9)


@pytest.mark.parametrize("n", [3, 5, 9, 10])
def test_neighbours_of_a_few(n: int) -> None:
    z = torch.randn(n, 4)
    exact = np.sort(cdist(z.double().numpy(), z.double().numpy()), axis=1)[:, 1:3]
    np.testing.assert_allclose(_two_nearest(Pairs(z)).numpy(), exact, rtol=1e-12)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    z = cube(300, 4, 30)
    whole = two_nn(z)
    monkeypatch.setattr(module, "_ELEMENTS", 1000)
    monkeypatch.setattr(hypersphere, "_TILE", 7)
    assert two_nn(z) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_a_cube_has_about_its_dimension(d: int) -> None:
    z = cube(1500, d, 40)
    assert two_nn(z) == pytest.approx(d, rel=0.12)
    assert mst_dimension(z) == pytest.approx(d, rel=0.12)
    assert mst_dimension(z.float(), seed=1) == pytest.approx(d, rel=0.12)


def test_the_tree_is_that_of_scipy() -> None:
    for z in (cube(200, 3, 20), torch.randn(64, 300, dtype=torch.float64)):
        distances = cdist(z.numpy(), z.numpy())
        exact = minimum_spanning_tree(distances).sum()
        assert _tree_length(distances) == pytest.approx(exact, rel=1e-12)


def test_the_slope_is_that_of_scipys_trees() -> None:
    z = cube(256, 3, 20)
    generator = torch.Generator().manual_seed(3)
    x = torch.unique(z, dim=0)[torch.randperm(256, generator=generator)].numpy()
    sizes = [32, 45, 64, 91, 128, 181, 256]
    logs = []
    for _ in range(4):
        y = x[torch.randperm(256, generator=generator).numpy()]
        logs.append([np.log(minimum_spanning_tree(cdist(y[:n], y[:n])).sum()) for n in sizes])
    slope = np.polyfit(np.log(sizes), np.mean(logs, axis=0), 1)[0]
    assert mst_dimension(z, seed=3) == pytest.approx(1.0 / (1.0 - slope), rel=1e-9)


@pytest.mark.parametrize("score", [two_nn, mst_dimension])
def test_invariances_and_duplicates(score) -> None:
    z = cube(300, 3, 12)
    exact = score(z)
    assert score(torch.cat([z, z[:100], z[:7]])) == pytest.approx(exact, rel=1e-12)
    assert score(z[torch.randperm(300)]) == pytest.approx(exact, rel=1e-12)
    assert score(1e4 * z) == pytest.approx(exact, rel=1e-9)
    turn = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64)).Q
    tolerance = 1e-9 if score is two_nn else 0.2  # sorted otherwise, other parts are drawn
    assert score(z @ turn) == pytest.approx(exact, rel=tolerance)


@pytest.mark.parametrize("score", [two_nn, mst_dimension])
def test_input_is_left_alone(score) -> None:
    z = cube(60, 3, 12).requires_grad_()
    before = z.detach().clone()
    score(z)
    torch.testing.assert_close(z.detach(), before, rtol=0.0, atol=0.0)


def test_the_seed_draws_the_parts() -> None:
    z = cube(300, 3, 12)
    assert mst_dimension(z, seed=1) == mst_dimension(z, seed=1)
    assert mst_dimension(z, seed=1) != mst_dimension(z, seed=2)


def test_all_samples_equally_far() -> None:
    z = torch.eye(40)
    for score in (two_nn, mst_dimension):
        with pytest.raises(ValueError, match=r"equally far|no finite dimension"):
            score(z)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: two_nn(torch.randn(2, 4)), r"N ≥ 3, not \(2, 4\)"),
        (lambda: two_nn(torch.ones(50, 4)), "3 different samples are needed, but of 50 1 are"),
        (lambda: mst_dimension(torch.ones(50, 4)), "32 different samples .* of 50 1 are"),
        (lambda: mst_dimension(torch.randn(31, 4)), "32 different samples .* of 31 31 are"),
        (lambda: two_nn(torch.randn(9, 4), discard=1.0), "discard must be .* between 0 and 0.9"),
        (lambda: two_nn(torch.randn(9, 4), discard=math.nan), "discard must be a finite"),
        (lambda: mst_dimension(torch.randn(50, 4), seed=-1), "seed must be an integer"),
        (lambda: two_nn(torch.full((9, 4), math.nan)), "36 of 36 values are NaN or inf"),
        (lambda: mst_dimension(torch.ones(50, 4).int()), "floating-point torch tensor"),
        (lambda: two_nn(torch.randn(9)), r"not \(9,\)"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_nothing_discarded_still_leaves_the_last_out() -> None:
    assert math.isfinite(two_nn(torch.randn(50, 4), discard=0.0))
    assert math.isfinite(two_nn(torch.randn(3, 4), discard=0.9))


def features(kind: str) -> Tensor:
    """(700, 48) in float32, each hard on products in float32 in its own way."""
    z = torch.randn(700, 48, generator=torch.Generator().manual_seed(0)) * torch.logspace(0, -2, 48)
    if kind == "large offset":
        z += 1e4
    elif kind == "tiny scale":
        z *= 1e-30
    elif kind == "huge scale":
        z *= 1e30
    elif kind == "duplicates":
        z[350:600] = z[:250]
    elif kind == "dead columns":
        z[:, ::3] = 0.0
    elif kind == "one long row":
        z[0] *= 1e6
    elif kind == "short rows":
        z[:200] *= 1e-5
    elif kind == "tight clusters":
        z = z[:70].repeat(10, 1) + 1e-4 * z
    return z


KINDS = (
    "large offset", "tiny scale", "huge scale", "duplicates", "dead columns", "one long row",
    "short rows", "tight clusters",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_float32_products_are_as_good_as_float64(kind: str) -> None:
    z = features(kind)
    exact = z.double().numpy()
    assert two_nn(z) == pytest.approx(two_nn(z.double()), rel=1e-9)
    u = exact / np.linalg.norm(exact, axis=1, keepdims=True)
    squared = pdist(u, "sqeuclidean")
    pairs_of = Pairs(z)
    assert uniformity(z) == pytest.approx(math.log(np.exp(-2.0 * squared).mean()), abs=1e-6)
    assert uniformity(pairs_of) == pytest.approx(uniformity(z), abs=1e-9)
    assert two_nn(pairs_of) == pytest.approx(two_nn(z), rel=1e-9)  # one look for both


def test_neighbours_with_a_row_without_direction() -> None:
    z = features("")
    z[3] = 0.0
    exact = np.sort(cdist(z.double().numpy(), z.double().numpy()), axis=1)[:, 1:3]
    np.testing.assert_allclose(_two_nearest(Pairs(z)).numpy(), exact, rtol=1e-12)
    with pytest.raises(ValueError, match="no direction"):
        uniformity(Pairs(z))
