"""Radial functions φ, each written in the scaled squared distance u = (εr)².

The squared distance is what a matrix product yields, and most radial functions need no
square root of it. Every function here is finite with finite gradients for all u ≥ 0, the
point u = 0 and very large u included.

Legend: r distance, ε shape, s = εr scaled distance, u = s².
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor

TensorFunction = Callable[[Tensor], Tensor]

_EXP_IS_ZERO = 1e3  # exp(−1000) is 0 in every dtype; a² times a gradient must not overflow there


@dataclass(frozen=True, slots=True, kw_only=True)
class RadialFunction:
    """One radial function and what a layer must know of it.

    Calling the record evaluates φ at the scaled distance εr; ``fn`` takes its square.

    ``log_fn`` is log φ(u) where φ is positive everywhere, so that a normalised layer can
    work in log space. ``operating_point`` is the u at which calibrated kernels work: the
    maximum of |u φ'(u)| for a decaying φ, which is where a relative change of the distance
    moves the activation most.

    >>> RADIAL_FUNCTIONS["gaussian"](torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.3679])
    """

    name: str
    fn: TensorFunction
    description: str
    positive_definite: bool
    operating_point: float = 1.0
    log_fn: TensorFunction | None = None

    def __call__(self, scaled_distance: Tensor) -> Tensor:
        return self.fn(bounded_square(scaled_distance))


def largest(u: Tensor) -> float:
    """The bound of squared distances: even u·log u, or u times a shape², is finite there."""
    return torch.finfo(u.dtype).max * 1e-8


def bounded(u: Tensor) -> Tensor:
    return u.clamp(max=largest(u))


def bounded_square(s: Tensor) -> Tensor:
    return s.clamp(max=largest(s) ** 0.5).square()


def sqrt(u: Tensor) -> Tensor:
    """√u with the gradient 0, not inf, at u = 0."""
    positive = u > 0
    return torch.where(positive, torch.where(positive, u, 1.0).sqrt(), 0.0)


def _gaussian(u: Tensor) -> Tensor:
    return torch.exp(-u)


def _quadratic(u: Tensor) -> Tensor:
    return 1.0 + u


def _inverse_quadratic(u: Tensor) -> Tensor:
    return 1.0 / (1.0 + u)


def _multiquadric(u: Tensor) -> Tensor:
    return torch.sqrt(1.0 + u)


def _inverse_multiquadric(u: Tensor) -> Tensor:
    return torch.rsqrt(1.0 + u)


def _thin_plate_spline(u: Tensor) -> Tensor:
    return 0.5 * u * torch.where(u > 0, u, 1.0).log()


def _rth(u: Tensor) -> Tensor:
    s = sqrt(u)
    return s * torch.tanh(s)


def _matern32(u: Tensor) -> Tensor:
    a = sqrt(3.0 * u).clamp(max=_EXP_IS_ZERO)
    return (1.0 + a) * torch.exp(-a)


def _matern52(u: Tensor) -> Tensor:
    a = sqrt(5.0 * u).clamp(max=_EXP_IS_ZERO)
    return (1.0 + a + a.square() / 3.0) * torch.exp(-a)


def _log_power(u: Tensor, exponent: float) -> Tensor:
    return exponent * torch.log1p(u)


def _log_matern32(u: Tensor) -> Tensor:
    a = sqrt(3.0 * u)
    return torch.log1p(a) - a


def _log_matern52(u: Tensor) -> Tensor:
    a = sqrt(5.0 * u)
    return torch.log1p(a + a.square() / 3.0) - a


_RECORDS = (
    RadialFunction(
        name="gaussian",
        fn=_gaussian,
        log_fn=torch.neg,
        description="exp(−s²)",
        positive_definite=True,
    ),
    RadialFunction(
        name="quadratic",
        fn=_quadratic,
        log_fn=partial(_log_power, exponent=1.0),
        description="1 + s²",
        positive_definite=False,
    ),
    RadialFunction(
        name="inverse_quadratic",
        fn=_inverse_quadratic,
        log_fn=partial(_log_power, exponent=-1.0),
        description="1 / (1 + s²)",
        positive_definite=True,
    ),
    RadialFunction(
        name="multiquadric",
        fn=_multiquadric,
        log_fn=partial(_log_power, exponent=0.5),
        description="√(1 + s²)",
        positive_definite=False,
    ),
    RadialFunction(
        name="inverse_multiquadric",
        fn=_inverse_multiquadric,
        log_fn=partial(_log_power, exponent=-0.5),
        description="1 / √(1 + s²)",
        positive_definite=True,
        operating_point=2.0,
    ),
    RadialFunction(
        name="tps",
        fn=_thin_plate_spline,
        description="s² log s; worked far above its sign change at s = 1, where it bends least",
        positive_definite=False,
        operating_point=100.0,
    ),
    RadialFunction(name="linear", fn=sqrt, description="s", positive_definite=False),
    RadialFunction(name="rth", fn=_rth, description="s tanh s", positive_definite=False),
    RadialFunction(
        name="matern32",
        fn=_matern32,
        log_fn=_log_matern32,
        description="(1 + √3 s) exp(−√3 s)",
        positive_definite=True,
        operating_point=4.0 / 3.0,
    ),
    RadialFunction(
        name="matern52",
        fn=_matern52,
        log_fn=_log_matern52,
        description="(1 + √5 s + 5s²/3) exp(−√5 s)",
        positive_definite=True,
        operating_point=(1.0 + math.sqrt(3.0)) ** 2 / 5.0,
    ),
)

RADIAL_FUNCTIONS: Mapping[str, RadialFunction] = MappingProxyType({f.name: f for f in _RECORDS})


def _of_distance(u: Tensor, function: TensorFunction) -> Tensor:
    return function(sqrt(u))


def as_radial_function(function: str | RadialFunction | TensorFunction) -> RadialFunction:
    """The record of a name, of a record, or of the user's own callable of εr.

    >>> as_radial_function("tps").name
    'tps'
    >>> as_radial_function(torch.sigmoid).fn(torch.zeros(1))
    tensor([0.5000])
    """
    if isinstance(function, RadialFunction):
        return function
    if isinstance(function, str):
        if function not in RADIAL_FUNCTIONS:
            known = ", ".join(RADIAL_FUNCTIONS)
            raise ValueError(f"unknown radial function {function!r}; known: {known}")
        return RADIAL_FUNCTIONS[function]
    if not callable(function):
        raise ValueError(f"radial_function must be a name or a callable, not {function!r}")
    return RadialFunction(
        name=getattr(function, "__name__", type(function).__name__),
        fn=partial(_of_distance, function=function),
        description="the user's own",
        positive_definite=False,
    )
