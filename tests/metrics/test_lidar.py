"""LiDAR: scipy's generalised eigenvalues, closed forms, and the trap of a wrong grouping."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.linalg import eigh

from radial.metrics.lidar import lidar


def by_scipy(views: torch.Tensor, delta: float) -> float:
    x = views.double().numpy()
    n, q, d = x.shape
    means = x.mean(1)
    between = (means - means.mean(0)).T @ (means - means.mean(0)) / n
    within = np.einsum("iva,ivb->ab", x - means[:, None], x - means[:, None]) / (n * q)
    values = eigh(between, within + delta * np.eye(d), eigvals_only=True).clip(0)
    p = values / values.sum() + 1e-7
    return float(np.exp(-(p * np.log(p)).sum()))


def views_of(n: int, q: int, d: int, generator: torch.Generator) -> torch.Tensor:
    scale = torch.linspace(2.0, 0.2, d)
    means = torch.randn(n, 1, d, generator=generator) * scale
    return means + 0.5 * torch.randn(n, q, d, generator=generator)


@pytest.mark.parametrize("delta", [1e-4, 0.1])
@pytest.mark.parametrize("shape", [(200, 3, 16), (40, 2, 30)])
def test_is_scipys(shape, delta, generator) -> None:
    views = views_of(*shape, generator)
    assert lidar(views, delta=delta) == pytest.approx(by_scipy(views, delta), rel=1e-8)


def test_fewer_images_than_features_is_told(generator) -> None:
    views = views_of(20, 3, 24, generator)
    with pytest.warns(UserWarning, match="LiDAR of 20 images in 24 dimensions"):
        found = lidar(views, delta=0.1)
    assert found == pytest.approx(by_scipy(views, 0.1), rel=1e-6)


def test_closed_forms(generator) -> None:
    # images at ±e_j, views without spread: Sw = δI, Sb isotropic → D
    corners = torch.cat([torch.eye(8), -torch.eye(8)])[:, None].repeat(1, 2, 1)
    assert lidar(corners, delta=1e-3) == pytest.approx(8.0, rel=1e-4)
    line = torch.arange(-10.0, 10.0)[:, None, None] * torch.ones(1, 2, 6)
    assert lidar(line, delta=1e-3) == pytest.approx(1.0, abs=1e-3)
    same = torch.randn(1, 4, 6, generator=generator).expand(30, 4, 6)
    assert lidar(same, delta=1e-3) == 1.0


def test_scale_of_features_and_delta_together_do_not_matter(generator) -> None:
    views = views_of(100, 3, 8, generator)
    assert lidar(views * 10.0, delta=1.0) == pytest.approx(lidar(views, delta=0.01), rel=1e-5)


def test_views_in_another_order_give_another_number(generator) -> None:
    """The trap: view-major rows read as image-major. No error, and a larger value."""
    views = views_of(300, 4, 8, generator) * torch.linspace(1.0, 0.0, 8).square()
    wrong = views.transpose(0, 1).reshape(300, 4, 8)
    right = lidar(views, delta=1e-4)
    assert lidar(wrong, delta=1e-4) != pytest.approx(right, rel=0.1)


def test_delta_has_no_default() -> None:
    with pytest.raises(TypeError, match="delta"):
        lidar(torch.randn(10, 2, 4))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lidar(torch.randn(10, 2, 4), delta=0.0), "delta must be a finite number above 0"),
        (lambda: lidar(torch.randn(10, 2, 4), delta=math.inf), "delta"),
        (lambda: lidar(torch.randn(10, 1, 4), delta=1.0), "q ≥ 2"),
        (lambda: lidar(torch.randn(1, 2, 4), delta=1.0), "n ≥ 2"),
        (lambda: lidar(torch.randn(10, 4), delta=1.0), "views must have shape"),
        (lambda: lidar(torch.full((10, 2, 4), math.nan), delta=1.0), "NaN or inf"),
    ],
)
def test_bad_input(call, message) -> None:
    with warnings.catch_warnings(), pytest.raises(ValueError, match=message):
        call()
