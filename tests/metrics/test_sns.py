"""SNS against a double loop in float64, its properties, and its published value."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from radial import RBFLayer, sns


def double_loop(centers, scales, mu: float = 1e-8, dimensions: int | None = None) -> float:
    c, s = centers.double().tolist(), scales.double().tolist()
    k, d = len(c), dimensions or len(c[0])
    total = 0.0
    for i in range(k):
        for j in range(k):
            if i != j:
                squared = math.fsum((a - b) ** 2 for a, b in zip(c[i], c[j]))
                delta2 = squared / (d * (s[i] ** 2 + s[j] ** 2 + mu))
                total += delta2 * math.exp(-delta2)
    return total / (k * (k - 1))


@pytest.mark.parametrize("chunk_size", [None, 1, 5, 17, 100])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_a_float64_double_loop(chunk_size: int | None, dtype: torch.dtype) -> None:
    c, s = torch.randn(17, 6, dtype=dtype), torch.rand(17, dtype=dtype) + 0.1
    tolerance = 1e-12 if dtype == torch.float64 else 1e-7
    got = sns(c, s, chunk_size=chunk_size)
    assert got.dtype == dtype
    assert abs(float(got) - double_loop(c, s)) < tolerance
    got = sns(c, s, mu=0.5, dimension_correction=False, chunk_size=chunk_size)
    assert abs(float(got) - double_loop(c, s, 0.5, 1)) < tolerance


def test_far_from_the_origin() -> None:
    c, s = torch.randn(12, 6, dtype=torch.float64), torch.rand(12, dtype=torch.float64) + 0.1
    assert float(sns(c + 1e5, s)) == pytest.approx(float(sns(c, s)), abs=1e-9)


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("dimension_correction", [True, False])
def test_gradcheck(chunk_size: int | None, dimension_correction: bool) -> None:
    c = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    s = (torch.rand(7, dtype=torch.float64) + 0.3).requires_grad_()

    def run(c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return sns(c, s, dimension_correction=dimension_correction, chunk_size=chunk_size)

    assert torch.autograd.gradcheck(run, (c, s))


@pytest.mark.parametrize("kernels", [128, 512])
def test_value_of_the_published_initialisation(kernels: int) -> None:
    layer = RBFLayer(2048, kernels, 1, init="paper").requires_grad_(False)
    assert float(sns(layer.centers, layer.shapes)) == pytest.approx(0.237, abs=0.004)


def test_published_form_underflows_on_a_live_layer_and_the_width_form_does_not() -> None:
    layer = RBFLayer(2048, 128, 1).requires_grad_(False)
    assert float(sns(layer.centers, layer.shapes)) == 0.0
    assert float(sns(layer.centers, layer.widths, dimension_correction=False)) > 0.3


def test_only_the_width_form_is_invariant_under_a_rescale_that_keeps_the_function() -> None:
    layer = RBFLayer(4, 16, 8).double().requires_grad_(False)
    scaled = copy.deepcopy(layer)
    scaled.kernels_centers.mul_(3.0)
    scaled.log_shapes.sub_(math.log(3.0))
    x = torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(scaled(3.0 * x), layer(x))
    by_width = [float(sns(each.centers, each.widths)) for each in (layer, scaled)]
    by_shape = [float(sns(each.centers, each.shapes)) for each in (layer, scaled)]
    assert by_width[0] == pytest.approx(by_width[1], rel=1e-6)
    assert by_shape[0] != pytest.approx(by_shape[1], rel=0.1)


def test_bounds_and_symmetry() -> None:
    c, s = torch.randn(20, 5), torch.rand(20) + 0.1
    order = torch.randperm(20)
    assert float(sns(c[order], s[order])) == pytest.approx(float(sns(c, s)), rel=1e-5)
    assert 0.0 <= float(sns(c, s)) <= math.exp(-1)
    two = torch.tensor([[0.0], [1.0]])
    assert float(sns(two, torch.full((2,), math.sqrt(0.5)), mu=0.0)) == pytest.approx(math.exp(-1))
    assert float(sns(torch.zeros(3, 4), torch.ones(3))) == 0.0


@pytest.mark.slow
def test_65536_kernels_fit_in_2_gib() -> None:
    c = torch.randn(65_536, 128, requires_grad=True)
    s = torch.full((65_536,), 0.7, requires_grad=True)
    with torch.profiler.profile(profile_memory=True) as profile:
        score = sns(c, s)
        score.backward()
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    assert 0 < peak < 2 * 2**30
    assert torch.isfinite(c.grad).all()
    few = torch.arange(0, 65_536, 64)
    sample = sns(c.detach()[few], s.detach()[few])
    assert float(sample) == pytest.approx(float(score.detach()), rel=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sns(torch.zeros(1, 3), torch.ones(1)), r"K ≥ 2, not \(1, 3\)"),
        (lambda: sns(torch.zeros(4), torch.ones(4)), r"shape \(K, D\) with K ≥ 2, not \(4,\)"),
        (lambda: sns(torch.zeros(4, 3), torch.ones(3)), r"scales must have shape \(4,\), not \(3,"),
        (
            lambda: sns(torch.zeros(4, 3), torch.ones(4), mu=-1.0),
            "mu must be a finite number of at",
        ),
        (lambda: sns(torch.zeros(4, 3), torch.ones(4), mu=math.nan), "mu must be a finite"),
        (lambda: sns(torch.zeros(4, 3), -torch.ones(4)), "positive, but the smallest is -1.0"),
        (lambda: sns(torch.full((4, 3), math.nan), torch.ones(4)), "12 of 12 values are NaN"),
        (lambda: sns(torch.zeros(4, 3).int(), torch.ones(4)), "floating-point.*not torch.int32"),
        (lambda: sns([[0.0], [1.0]], [1.0, 1.0]), "floating-point torch tensor, not list"),
        (lambda: sns(torch.zeros(4, 3), torch.ones(4), chunk_size=0), "chunk_size must be an inte"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
