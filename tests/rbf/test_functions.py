"""Every radial function against its closed form in NumPy float64, and finite everywhere."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from radial.rbf.functions import RADIAL_FUNCTIONS, as_radial_function

CLOSED_FORMS = {
    "gaussian": lambda s: np.exp(-(s**2)),
    "quadratic": lambda s: 1 + s**2,
    "inverse_quadratic": lambda s: 1 / (1 + s**2),
    "multiquadric": lambda s: np.sqrt(1 + s**2),
    "inverse_multiquadric": lambda s: 1 / np.sqrt(1 + s**2),
    "tps": lambda s: s**2 * np.log(np.where(s > 0, s, 1)),
    "linear": lambda s: s,
    "rth": lambda s: s * np.tanh(s),
    "matern32": lambda s: (1 + math.sqrt(3) * s) * np.exp(-math.sqrt(3) * s),
    "matern52": lambda s: (1 + math.sqrt(5) * s + 5 * s**2 / 3) * np.exp(-math.sqrt(5) * s),
}
NAMES = list(RADIAL_FUNCTIONS)


def test_registry_and_closed_forms_cover_the_same_names() -> None:
    assert set(NAMES) == set(CLOSED_FORMS)


@pytest.mark.parametrize("name", NAMES)
def test_equals_closed_form(name: str) -> None:
    s = np.concatenate([[0.0], np.geomspace(1e-3, 30.0, 200)])
    got = RADIAL_FUNCTIONS[name](torch.from_numpy(s)).numpy()
    np.testing.assert_allclose(got, CLOSED_FORMS[name](s), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", [n for n in NAMES if RADIAL_FUNCTIONS[n].log_fn])
def test_log_form_is_the_log(name: str) -> None:
    record, u = RADIAL_FUNCTIONS[name], torch.linspace(0.0, 20.0, 100, dtype=torch.float64)
    torch.testing.assert_close(record.log_fn(u), record.fn(u).log())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_finite_with_finite_gradient_everywhere(name: str, dtype: torch.dtype) -> None:
    record = RADIAL_FUNCTIONS[name]
    largest = torch.finfo(dtype).max
    points = [0.0, 1e-30, 1e-12, 1e-3, 1.0, 10.0, 1e3, 1e6, 1e18, largest]
    s = torch.tensor(points, dtype=dtype, requires_grad=True)
    for function in filter(None, (record, _of_distance(record.log_fn))):
        phi = function(s)
        (grad,) = torch.autograd.grad(phi.sum(), s)
        assert torch.isfinite(phi).all(), phi
        assert torch.isfinite(grad).all(), grad


def _of_distance(log_fn):
    return None if log_fn is None else dataclasses.replace(RADIAL_FUNCTIONS["linear"], fn=log_fn)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_by_finite_differences(name: str) -> None:
    s = torch.linspace(0.1, 4.0, 20, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(RADIAL_FUNCTIONS[name], (s,))


@pytest.mark.parametrize("name", [n for n in NAMES if RADIAL_FUNCTIONS[n].positive_definite])
def test_operating_point_is_where_a_relative_change_of_distance_moves_most(name: str) -> None:
    record = RADIAL_FUNCTIONS[name]
    u = torch.linspace(0.01, 10.0, 100_000, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(record.fn(u).sum(), u)
    best = u.detach()[(u.detach() * slope).abs().argmax()]
    assert float(best) == pytest.approx(record.operating_point, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_positive_definite_as_declared(name: str) -> None:
    """A Gram matrix of distinct points has no negative eigenvalue, or has one."""
    x = torch.randn(40, 3, dtype=torch.float64)
    gram = RADIAL_FUNCTIONS[name](torch.cdist(x, x))
    smallest = float(torch.linalg.eigvalsh(gram)[0])
    assert (smallest > -1e-9) == RADIAL_FUNCTIONS[name].positive_definite


def test_own_callable_receives_the_scaled_distance() -> None:
    seen = []

    def own(s: torch.Tensor) -> torch.Tensor:
        seen.append(s)
        return s

    as_radial_function(own).fn(torch.tensor([0.0, 4.0, 9.0]))
    torch.testing.assert_close(seen[0], torch.tensor([0.0, 2.0, 3.0]))


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"unknown radial function 'gausian'.*gaussian, quadratic"):
        as_radial_function("gausian")
    with pytest.raises(ValueError, match="a name or a callable, not 3"):
        as_radial_function(3)
