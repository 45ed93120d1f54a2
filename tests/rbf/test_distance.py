"""Distances against brute force in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from radial.rbf import functions
from radial.rbf.functions import manhattan, squared_euclidean


def brute_force(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return (x.double().unsqueeze(-2) - c.double()).square().sum(-1)


@pytest.mark.parametrize("dimensions", [1, 3, 64, 512, 2048])
def test_random_data_within_1e_5_of_float64(dimensions: int) -> None:
    x, c = torch.randn(64, dimensions), torch.rand(48, dimensions) * 2 - 1
    torch.testing.assert_close(
        squared_euclidean(x, c).double(), brute_force(x, c), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4])
def test_far_from_the_origin_the_error_stays_that_of_the_cloud(offset: float) -> None:
    """‖x‖ ≫ ‖x − c‖: bounded by 32 eps (‖x−m‖ + ‖c−m‖)², wherever the cloud lies."""
    x = (torch.randn(64, 256) + offset).requires_grad_()
    c = (torch.randn(32, 256) + offset).requires_grad_()
    got = squared_euclidean(x, c)
    m = c.detach().double().mean(0)
    cloud = ((x - m).norm(dim=1)[:, None] + (c - m).norm(dim=1)).square()
    eps = torch.finfo(torch.float32).eps
    assert ((got.double() - brute_force(x, c)).abs() <= 32 * eps * cloud).all()
    if offset:  # the shift does the work: without it the formula fails by far
        plain = x.square().sum(1)[:, None] - 2 * x @ c.T + c.square().sum(1)
        assert ((plain.double() - brute_force(x, c)).abs() > 32 * eps * cloud).any()


def test_hard_case_gradients_equal_float64(generator: torch.Generator) -> None:
    x = (torch.randn(16, 64) + 1e3).requires_grad_()
    c = (torch.randn(8, 64) + 1e3).requires_grad_()
    g = torch.randn(16, 8, generator=generator)
    got = torch.autograd.grad(squared_euclidean(x, c), (x, c), g)
    wanted = torch.autograd.grad(brute_force(x, c), (x, c), g.double())
    for a, b in zip(got, wanted):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-2)


def test_coincident_points_give_zero_not_less() -> None:
    x = torch.randn(32, 512) * 100
    assert (squared_euclidean(x, x) >= 0).all()
    assert squared_euclidean(x, x).diagonal().max() < 1e-3 * squared_euclidean(x, x).mean()


def test_first_and_second_derivative_and_forward_mode() -> None:
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    c = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(squared_euclidean, (x, c), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(squared_euclidean, (x, c))


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(0, 3), min_size=0, max_size=3),
    dimensions=st.integers(1, 5),
    kernels=st.integers(1, 4),
)
def test_any_leading_dimensions(shape: list[int], dimensions: int, kernels: int) -> None:
    x, c = torch.randn(*shape, dimensions), torch.randn(kernels, dimensions)
    for function, p in ((squared_euclidean, 2), (manhattan, 1)):
        wanted = (x.unsqueeze(-2) - c).abs().pow(p).sum(-1)
        torch.testing.assert_close(function(x, c), wanted, rtol=1e-4, atol=1e-5)


def test_manhattan_blocks_equal_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(6, 7, dtype=torch.float64, requires_grad=True)
    c = torch.randn(9, 7, dtype=torch.float64, requires_grad=True)
    whole = manhattan(x, c)
    monkeypatch.setattr(functions, "_MANHATTAN_ELEMENTS", 2 * x.numel())
    torch.testing.assert_close(manhattan(x, c), whole)
    assert torch.autograd.gradcheck(manhattan, (x, c))


def test_euclidean_never_allocates_samples_by_kernels_by_dimensions() -> None:
    b, k, d = 64, 64, 512
    x, c = torch.randn(b, d, requires_grad=True), torch.randn(k, d, requires_grad=True)
    with torch.profiler.profile(profile_memory=True, record_shapes=False) as profile:
        squared_euclidean(x, c).sum().backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert 0 < largest < b * k * d * 4 / 8
