"""LiDAR against scipy's generalised eigenvalues, and its traps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from radial.metrics import gram, multiview
from radial.metrics.multiview import lidar


def by_scipy(views: Tensor, delta: float, epsilon: float = 1e-7) -> float:
    x = views.double().numpy()
    n, _, d = x.shape
    means = x.mean(1)
    between = np.cov(means, rowvar=False, bias=True).reshape(d, d)
    within = sum(np.cov(image, rowvar=False, bias=True).reshape(d, d) for image in x) / n
    values = scipy.linalg.eigh(between, within + delta * np.eye(d), eigvals_only=True)
    p = values.clip(0.0) / values.clip(0.0).sum() + epsilon
    return float(np.exp(-(p * np.log(p)).sum()))


def make_views(n: int, q: int, d: int, noise: float = 0.5) -> Tensor:
    images = torch.randn(n, 1, d) * torch.arange(1, d + 1) ** -0.5
    return images + noise * torch.randn(n, q, d) * torch.rand(d) + 3.0


@pytest.mark.parametrize("delta", [1e-8, 1e-4, 1.0])
@pytest.mark.parametrize("shape", [(300, 4, 50), (120, 2, 20), (400, 3, 1)])
def test_equals_scipy(shape: tuple[int, int, int], delta: float) -> None:
    views = make_views(*shape)
    assert lidar(views, delta=delta) == pytest.approx(by_scipy(views, delta), rel=1e-9)
    got = lidar(views, delta=delta, epsilon=1e-5)
    assert got == pytest.approx(by_scipy(views, delta, 1e-5), rel=1e-9)


@pytest.mark.parametrize("shape", [(40, 5, 100), (60, 2, 60), (2, 2, 3)])
def test_fewer_images_than_features_warn(shape: tuple[int, int, int]) -> None:
    views = make_views(*shape)
    with pytest.warns(UserWarning, match=f"{shape[0]} images in {shape[2]} dimensions"):
        got = lidar(views, delta=1e-4)
    assert got == pytest.approx(by_scipy(views, 1e-4), rel=1e-9)
    assert got < shape[0]


def test_closed_form() -> None:
    """Images at ±a_j e_j, views that differ along one axis each by the same amount."""
    d, q = 4, 2 * 4
    a = torch.tensor([4.0, 2.0, 1.0, 0.5], dtype=torch.float64)
    images = torch.cat([a.diag(), -a.diag()]).repeat(2, 1)  # (16, d), mean 0
    offsets = torch.cat([torch.eye(d), -torch.eye(d)]).double()  # (q, d): Sw = I/d
    views = images[:, None] + offsets
    assert views.shape == (16, q, d)
    p = a.square() / a.square().sum()
    exact = float(torch.exp(torch.special.entr(p).sum()))
    assert lidar(views, delta=1e-6, epsilon=0.0) == pytest.approx(exact, rel=1e-9)


def test_images_that_differ_in_every_direction_have_rank_d() -> None:
    views = torch.randn(4000, 1, 16) + 0.1 * torch.randn(4000, 4, 16)
    assert lidar(views, delta=1e-4) == pytest.approx(16.0, rel=0.01)
    one = torch.randn(4000, 1, 1) * torch.ones(16) + 0.001 * torch.randn(4000, 4, 16)
    assert lidar(one, delta=1e-4) == pytest.approx(1.0, abs=0.05)


def test_views_in_the_wrong_order_give_a_larger_number_and_no_error() -> None:
    """The trap: all first views, then all second ones, read as images with q views."""
    n, q, d = 400, 4, 32
    views = make_views(n, q, d, noise=0.05)
    view_major = views.transpose(0, 1).reshape(q * n, d)
    mistaken = view_major.reshape(n, q, d)
    right, wrong = lidar(views, delta=1e-4), lidar(mistaken, delta=1e-4)
    assert wrong > 1.3 * right
    restored = view_major.reshape(q, n, d).transpose(0, 1)
    assert lidar(restored, delta=1e-4) == pytest.approx(right, rel=1e-9)


def test_invariances() -> None:
    views = make_views(200, 3, 12).double()
    exact = lidar(views, delta=1e-3)
    turn = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64)).Q
    for same in (views @ turn, views[torch.randperm(200)], views[:, [2, 0, 1]], views - 50.0):
        assert lidar(same, delta=1e-3) == pytest.approx(exact, rel=1e-9)
    assert lidar(10.0 * views, delta=1e-1) == pytest.approx(exact, rel=1e-9)
    assert lidar(10.0 * views, delta=1e-3) != pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6])
def test_images_that_are_all_the_same_have_rank_1(value: float) -> None:
    views = torch.full((20, 3, 5), value) * torch.rand(5)
    assert lidar(views, delta=1e-4) == 1.0
    steps = torch.tensor([-1.0, 0.0, 1.0])[:, None] * torch.rand(5)  # only the views differ
    assert lidar(steps.expand(20, 3, 5), delta=1e-4) == 1.0


@pytest.mark.parametrize(
    ("views", "delta", "message"),
    [
        (torch.randn(9, 3), 1e-4, r"\(n, q, D\) with n ≥ 2 and q ≥ 2, not \(9, 3\)"),
        (torch.randn(9, 1, 3), 1e-4, r"q ≥ 2, not \(9, 1, 3\)"),
        (torch.randn(1, 2, 3), 1e-4, r"n ≥ 2 and q ≥ 2, not \(1, 2, 3\)"),
        (torch.ones(9, 2, 3).int(), 1e-4, "views must be a floating-point torch tensor"),
        (torch.full((9, 2, 3), math.nan), 1e-4, "54 of 54 values are NaN or inf"),
        (torch.randn(9, 2, 3), 0.0, "delta must be a finite number above 0, not 0.0"),
        (torch.randn(9, 2, 3), -1.0, "delta must be a finite number above 0, not -1.0"),
        (torch.randn(9, 2, 3), math.nan, "delta must be a finite number above 0, not nan"),
        (torch.randn(9, 2, 3), math.inf, "delta must be a finite number"),
        (torch.randn(9, 2, 3), True, "delta must be a finite number"),
        (torch.randn(9, 2, 1) * torch.ones(3), 1e-40, "delta 1e-40 vanishes beside"),
    ],
)
def test_bad_input(views: Tensor, delta: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lidar(views, delta=delta)


def test_input_is_left_alone() -> None:
    views = make_views(30, 2, 5).double().requires_grad_()
    before = views.detach().clone()
    lidar(views, delta=1e-4)
    torch.testing.assert_close(views.detach(), before, rtol=0.0, atol=0.0)


def test_delta_has_no_default_and_epsilon_is_checked() -> None:
    with pytest.raises(TypeError, match="delta"):
        lidar(torch.randn(9, 2, 3))
    with pytest.raises(ValueError, match="epsilon must be a finite number of at least 0"):
        lidar(torch.randn(9, 2, 3), delta=1e-4, epsilon=-1.0)


@pytest.mark.parametrize(
    ("exponent", "mean", "tries"), [(0.0, 0.0, 1), (-0.5, 100.0, 1), (-2.0, 3.0, 2)]
)
def test_float32_products_are_good_to_1e_6_or_float64_follows(
    exponent: float, mean: float, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales = torch.arange(1, 65) ** exponent
    images = torch.randn(400, 1, 64) * torch.arange(1, 65) ** -0.5 + mean
    views = images + 0.3 * scales * torch.randn(400, 3, 64)
    exact = lidar(views.double(), delta=1e-8)
    kinds = []
    within = multiview._within
    monkeypatch.setattr(gram, "_LARGE", 0)  # as of large features
    monkeypatch.setattr(multiview, "_within", lambda *a: kinds.append(a[-1]) or within(*a))
    assert lidar(views, delta=1e-8) == pytest.approx(exact, rel=1e-6)
    assert kinds == [torch.float32, torch.float64][:tries]
