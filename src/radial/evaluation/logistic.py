"""Multinomial logistic regression with an L2 penalty, to convergence, along a path of strengths.

    f(W, b) = 1/N Σ_i −log softmax(W x_i + b)[y_i] + λ/2 ‖W‖²,  λ = 1/(C N)

This is scikit-learn's objective with its C, the strength, a large one meaning a weak penalty;
the intercepts b are free. Two classes get λ = 2/(C N): scikit-learn then penalises the one
vector w = W_1 − W_0, and ‖w‖²/2 = ‖W_0‖² + ‖W_1‖² at the optimum.

Legend: N samples, D features, K classes, R leading directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from radial.checks import check_number, check_size

TOLERANCE = 1e-5  # nats
_DIRECTIONS = 128  # R: of ResNet features the classes lie along fewer; more cost more inside
_MEMORY = 10  # pairs that L-BFGS keeps
_SHORTEST = 1e-4  # step: where not even this one helps, float resolution is reached
_STALLED = 5  # steps in a row that gain less than it
_FLATTEST = 1e-3  # of 1/K: keeps 1/a finite where every p is 0 or 1
_INNER_GAP = 0.1  # over the leading directions, as a share of the gap over all
_INNER_ITERATIONS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    strength: float
    weight: Tensor  # (K, D)
    bias: Tensor  # (K,)
    loss: float  # f
    gap: float  # f − min f, estimated
    iterations: int  # over all features
    inner_iterations: int  # over the leading directions
    converged: bool

    @property
    def all_iterations(self) -> int:
        return self.iterations + self.inner_iterations

    def logits(self, x: Tensor) -> Tensor:
        """(·, D) -> (·, K)"""
        return torch.addmm(self.bias, x, self.weight.T)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Point:
    """Where a minimisation stands: θ is V outside, [U b] inside."""

    theta: Tensor
    f: float
    gradient: Tensor
    gap: float
    a: float  # mean of p(1 − p) over samples and classes
    residual: Tensor  # (p − y)/N, (N, K)
    inner: Tensor | None = None  # outside: [U b]
    noise: float = 0.0  # by which f may be too high and still be accepted
    inner_iterations: int = 0  # on the way here


class Regression:
    """Fits to one training set: x (N, D), standardised, and y (N,) of 0…K−1, each at least once.

    Computed where and in the precision that x is (float32 or float64). Beside x it holds up to
    five N×K matrices.

    A fit has converged when its estimated distance from the optimum is at most ``tolerance``
    nats. f is λ-strongly convex in W, so that f − min f ≤ ‖∂f/∂W‖²/(2λ) for the best b; the
    intercepts add ‖∂f/∂b‖²/(2a) with their mean curvature a, which makes it an estimate, right
    to about a factor of two. A limit on the largest entry of the gradient, as scikit-learn has
    it, says little of the distance: with 2048 features and C = 1 its default of 1e-4 is met far
    from the optimum.

    Variable projection. W = U Qᵀ + V, where the columns of Q (D, R) are the leading directions
    of x and V Q = 0, so that ‖W‖² = ‖U‖² + ‖V‖². L-BFGS minimises h(V) = min over U, b of f,
    and at each V another L-BFGS finds U and b, at R/D of the cost of a product with x. Features
    are far from isotropic, and classes lie apart, along few directions; with those out of the
    way h is easy. The gradient of h is that of f at the minimum. Inside, the Hessian is near
    a·diag(s) + λ for each class, with the variances s along Q and a = mean p(1 − p): this is
    where L-BFGS starts from. Products with x, most of the time, are a fraction of those of
    L-BFGS on all features: benchmarks/probe.py counts them beside scikit-learn's.

    >>> x = torch.tensor([[-1.5], [-0.5], [0.5], [1.5]])
    >>> fit = Regression(x, torch.tensor([0, 1, 0, 1])).fit(1.0)
    >>> round(fit.loss, 4), fit.converged
    (0.6371, True)
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y[:, None]
        self.frequency = torch.bincount(y).to(x) / len(x)  # (K,)
        self.directions, self.variances, shadow = leading_directions(x, min(_DIRECTIONS, *x.shape))
        self.leading = torch.cat([shadow, x.new_ones(len(x), 1)], dim=1)  # (N, R + 1)

    def path(self, strengths: Sequence[float], *, tolerance: float = TOLERANCE) -> Iterator[Fit]:
        """A fit for each strength, from the strongest penalty to the weakest, as asked for.

        Each starts on the line through the last two over log C.
        """
        solved: list[Fit] = []  # the last two
        for strength in sorted(set(strengths)):
            start = (solved[-1].weight, solved[-1].bias) if solved else None
            if len(solved) == 2:
                before, last = solved
                a, b, c = (math.log(value) for value in (before.strength, last.strength, strength))
                # at most as far again as the last step went: farther the line is no guess at all
                along = 1.0 + min(1.0, (c - b) / (b - a))
                start = before.weight.lerp(last.weight, along), before.bias.lerp(last.bias, along)
            fit = self.fit(strength, start=start, tolerance=tolerance)
            solved = [*solved[-1:], fit]
            yield fit

    def fit(
        self,
        strength: float,
        *,
        start: tuple[Tensor, Tensor] | None = None,
        tolerance: float = TOLERANCE,
        max_iterations: int = 1000,
    ) -> Fit:
        """From ``start``, a weight and a bias; by default 0 and the classes' log frequencies."""
        check_number("strength", strength, low=1e-300)
        check_number("tolerance", tolerance)
        check_size("max_iterations", max_iterations)
        k, q = len(self.frequency), self.directions
        penalty = (2.0 if k == 2 else 1.0) / (strength * len(self.x))
        weight, bias = start or (self.x.new_zeros(k, self.x.shape[1]), self.frequency.log())
        u = weight @ q
        first = torch.cat([u, bias[:, None]], dim=1)

        def scale(gradient: Tensor, point: _Point) -> Tensor:
            # V lies across the leading directions, where no variance is above the last of theirs
            return gradient / (point.a * float(self.variances[-1]) + penalty)

        def evaluate(v: Tensor, near: _Point | None) -> _Point:
            return self._outside(v, near, first, penalty, tolerance)

        begin = evaluate(weight - u @ q.T, None)
        point, iterations = _minimise(evaluate, scale, begin, tolerance, max_iterations)
        assert point.inner is not None
        return Fit(
            strength=strength,
            weight=point.theta + point.inner[:, :-1] @ q.T,
            bias=point.inner[:, -1],
            loss=point.f,
            gap=point.gap,
            iterations=iterations,
            inner_iterations=point.inner_iterations,
            converged=point.gap <= tolerance,
        )

    def _outside(
        self, v: Tensor, near: _Point | None, first: Tensor, penalty: float, tolerance: float
    ) -> _Point:
        """h(V) and its gradient; U and b are sought from those of the point nearby on."""
        offset = self.x @ v.T  # (N, K)

        def scale(gradient: Tensor, point: _Point) -> Tensor:
            a = torch.tensor([point.a]).to(gradient)
            return gradient / torch.cat([point.a * self.variances + penalty, a])

        def evaluate(theta: Tensor, near: _Point | None) -> _Point:
            return self._inside(theta, offset, penalty)

        begin = evaluate(first if near is None or near.inner is None else near.inner, None)
        everything = self.directions.shape[0] == self.directions.shape[1]  # then V is 0
        # Inside only as exact as the outside can use: a tenth of its gap, and never finer than a
        # third of what is asked for in the end, so that inner and outer gap together stay below.
        goal = 0.0 if everything else _INNER_GAP * (begin.gap if near is None else near.gap)
        goal = max(goal, tolerance / 3.0)
        inner, iterations = _minimise(evaluate, scale, begin, goal, _INNER_ITERATIONS)
        gradient = inner.residual.T @ self.x
        # Back across the directions, or rounding would let V grow along them and ‖W‖² not add up
        gradient -= (gradient @ self.directions) @ self.directions.T
        gradient += penalty * v
        return _Point(
            theta=v,
            f=inner.f + 0.5 * penalty * _squared(v),
            gradient=gradient,
            gap=_squared(gradient) / (2.0 * penalty) + inner.gap,
            a=inner.a,
            residual=inner.residual,
            inner=inner.theta,
            noise=min(inner.gap, tolerance),  # h is known from above only: by at most the inner gap
            inner_iterations=iterations + (near.inner_iterations if near else 0),
        )

    def _inside(self, theta: Tensor, offset: Tensor, penalty: float) -> _Point:
        """f without the penalty of V, as a function of [U b]."""
        n, k = offset.shape
        p = F.log_softmax(torch.addmm(offset, self.leading, theta.T), dim=1)
        # In float64: a float32 sum of many losses would drown the last gains, and stop too early
        loss = -float(p.gather(1, self.y).sum(dtype=torch.float64)) / n
        # From here on p is overwritten: log p, then p, then (p − y)/N; N×K is the largest there is
        a = max((1.0 - _squared(p.exp_()) / n) / k, _FLATTEST / k)
        p.scatter_add_(1, self.y, p.new_full(self.y.shape, -1.0)).div_(n)
        u, gradient = theta[:, :-1], p.T @ self.leading
        gradient[:, :-1] += penalty * u
        slope_u, slope_b = _squared(gradient[:, :-1]), _squared(gradient[:, -1])
        return _Point(
            theta=theta,
            f=loss + 0.5 * penalty * _squared(u),
            gradient=gradient,
            gap=slope_u / (2.0 * penalty) + slope_b / (2.0 * a),
            a=a,
            residual=p,
        )


def leading_directions(x: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Orthonormal (D, R), variances (R,) of x along them, descending, and x in them (N, R).

    By one step of randomised power iteration, the same every time: near the leading ones is all
    that is needed.
    """
    q = torch.randn(x.shape[1], rank, generator=Generator().manual_seed(0)).to(x)
    q = torch.linalg.qr(x.T @ (x @ q)).Q  # one power step sets them apart from the rest
    shadow = x @ q
    values, vectors = torch.linalg.eigh(shadow.T @ shadow / len(x))
    vectors = vectors.flip(1)
    return q @ vectors, values.flip(0).clamp(min=0.0), shadow @ vectors


def _minimise(
    evaluate: Callable[[Tensor, _Point | None], _Point],
    scale: Callable[[Tensor, _Point], Tensor],
    point: _Point,
    goal: float,
    max_iterations: int,
) -> tuple[_Point, int]:
    """L-BFGS until the gap is at most ``goal``; ``scale`` is the inverse Hessian to begin with."""
    resolution = torch.finfo(point.theta.dtype).eps
    pairs: list[tuple[Tensor, Tensor, float]] = []  # s, y, sᵀy
    stalled = 0
    for iteration in range(max_iterations):
        if point.gap <= goal or stalled == _STALLED:
            return point, iteration
        step = _direction(point, pairs, scale)
        slope, length = _dot(point.gradient, step), 1.0
        while True:  # the function is convex: that it falls enough is all a step must do
            new = evaluate(point.theta + length * step, point)
            rise = new.f - new.noise - point.f
            if rise <= 1e-4 * length * slope + resolution * abs(point.f):
                break
            if length < _SHORTEST:
                return point, iteration
            ratio = -0.5 * length * slope / (rise - length * slope)
            length *= min(max(0.1, ratio), 0.5)  # in this order NaN, where f is inf, gives 0.1
        stalled = stalled + 1 if rise > -resolution * abs(point.f) else 0
        s, y = new.theta - point.theta, new.gradient - point.gradient
        point = new
        if (curvature := _dot(s, y)) > 0.0:  # by rounding it can be 0, and says nothing
            pairs = [*pairs[1 - _MEMORY :], (s, y, curvature)]
    return point, max_iterations


def _direction(
    point: _Point,
    pairs: list[tuple[Tensor, Tensor, float]],
    scale: Callable[[Tensor, _Point], Tensor],
) -> Tensor:
    """Minus the gradient times the inverse Hessian, by the two loops of L-BFGS."""
    q, along = point.gradient.clone(), []
    for s, y, curvature in reversed(pairs):
        along.append(_dot(s, q) / curvature)
        q -= along[-1] * y
    q = scale(q, point)
    if pairs:  # the model's Hessian, brought to the curvature that the last step really met
        _, y, curvature = pairs[-1]
        q *= curvature / _dot(y, scale(y, point))
    for (s, y, curvature), amount in zip(pairs, reversed(along)):
        q += (amount - _dot(y, q) / curvature) * s
    return -q


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.flatten(), b.flatten()))


def _squared(a: Tensor) -> float:
    return float(a.square().sum(dtype=torch.float64))
