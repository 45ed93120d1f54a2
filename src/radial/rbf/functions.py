"""Radial functions φ, each written in the scaled squared distance u = (εr)².

The squared distance is what a matrix product yields, and most radial functions need no
square root of it. Every function here is finite with finite gradients for all u ≥ 0, the
point u = 0 and very large u included.

The distances themselves, between samples and centres, need no B×K×D tensor.

Legend: r distance, ε shape, s = εr scaled distance, u = s²; B samples, K kernels, D features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

TensorFunction = Callable[[Tensor], Tensor]

_EXP_IS_ZERO = 1e3  # exp(−1000) is 0 in every dtype; a² times a gradient must not overflow there
DISTANCES = ("euclidean", "manhattan")

_MANHATTAN_ELEMENTS = 2**24  # of B×block×D, what torch.cdist's CUDA backward may allocate


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


class _SquaredEuclidean(torch.autograd.Function):
    """‖x_b − c_k‖² with the gradient written out.

    Autograd would give the same gradient from the same formula, but keeps the shifted
    copies of x and c and allocates each term of the sum; written out, forward and backward
    cost about what a linear layer of the same shape costs, in time and in memory.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, centers: Tensor) -> Tensor:
        return _matrix_product_form(x, centers)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (g,) = grads  # (B, K)
        x, c = _shift(*ctx.saved_tensors)
        by_sample, by_kernel = g.sum(1, keepdim=True), g.sum(0).unsqueeze(1)
        if torch.is_grad_enabled():  # a graph of the gradient itself needs x and c again
            grad_x = torch.addmm(x * by_sample, g, c, beta=2.0, alpha=-2.0)
            return grad_x, torch.addmm(c * by_kernel, g.T, x, beta=2.0, alpha=-2.0)
        if len(x) > len(c):  # otherwise the larger of the shifted copies becomes its gradient
            grad_c = (c * by_kernel).addmm_(g.T, x, beta=2.0, alpha=-2.0)
            return x.mul_(by_sample).addmm_(g, c, beta=2.0, alpha=-2.0), grad_c
        grad_x = (x * by_sample).addmm_(g, c, beta=2.0, alpha=-2.0)
        return grad_x, c.mul_(by_kernel).addmm_(g.T, x, beta=2.0, alpha=-2.0)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        x, c = _shift(*ctx.saved_tensors)
        dx, dc = (torch.zeros_like(p) if t is None else t for p, t in zip((x, c), tangents))
        own: Tensor = torch.linalg.vecdot(x, dx).unsqueeze(1) + torch.linalg.vecdot(c, dc)
        return 2.0 * (own - dx @ c.T - x @ dc.T)


def _shift(x: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    mean = centers.mean(0)
    return x - mean, centers - mean


def squared_norm(x: Tensor) -> Tensor:
    """‖x‖² over the last dimension, without the tensor x·x."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norm.square()


def _matrix_product_form(x: Tensor, centers: Tensor) -> Tensor:
    x, c = _shift(x, centers)
    norms = squared_norm(x).unsqueeze(1) + squared_norm(c)
    return torch.addmm(norms, x, c.T, alpha=-2.0).clamp(min=0.0, max=largest(x))


def squared_euclidean(x: Tensor, centers: Tensor) -> Tensor:
    """‖x − c‖² for every sample and centre, (…, D) and (K, D) → (…, K).

    By matrix product, ‖x‖² − 2x·c + ‖c‖². That sum cancels badly where ‖x‖ ≫ ‖x − c‖, so
    both sides are first shifted by the mean centre m, on which distances do not depend. What
    remains is an absolute error of about eps·(‖x − m‖ + ‖c − m‖)²: relative to the size of
    the cloud of centres, not to its distance from the origin. Rounding below 0 is clamped, and
    overflow too.

    >>> squared_euclidean(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([[25.]])
    """
    flat = x.reshape(-1, x.shape[-1])
    if torch.compiler.is_compiling():  # it fuses by itself, and takes no Function with a jvp
        squared = _matrix_product_form(flat, centers)
    else:
        squared = _SquaredEuclidean.apply(flat, centers)
    return squared.reshape(*x.shape[:-1], centers.shape[0])


def manhattan(x: Tensor, centers: Tensor) -> Tensor:
    """Σ|x − c| for every sample and centre, (…, D) and (K, D) → (…, K).

    ``torch.cdist`` needs no B×K×D tensor on the CPU but allocates one in its CUDA backward
    pass; going over the centres in blocks bounds that.
    """
    flat = x.reshape(-1, x.shape[-1])
    block = max(1, _MANHATTAN_ELEMENTS // max(1, flat.numel()))
    parts = [torch.cdist(flat, part, p=1.0) for part in torch.split(centers, block)]
    return torch.cat(parts, 1).reshape(*x.shape[:-1], centers.shape[0])
