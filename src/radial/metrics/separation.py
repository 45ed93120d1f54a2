"""Scores of the trained kernels alone: no images, no labels.

Legend: K kernels, D features, R rows of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from radial.checks import check_finite, check_shape, check_size, check_tensor
from radial.metrics.gram import Spectra
from radial.metrics.spectra import entropy_rank
from radial.rbf.distance import squared_norm

_BLOCK_ELEMENTS = 2**19  # of an R×K block: 4 MiB in float64, of which some four are alive


def sns(
    centers: Tensor,
    scales: Tensor,
    *,
    mu: float = 1e-8,
    dimension_correction: bool = True,
    chunk_size: int | None = None,
) -> Tensor:
    """Scale-Normalized Separation of kernels: mean over i ≠ j of δ² exp(−δ²).

        δ_ij = ‖c_i − c_j‖ / (√D √(s_i² + s_j² + μ))

    Given shapes ε (K) as ``scales`` it is the published score. ε is an inverse width,
    though: a rescale x → ax, c → ac, ε → ε/a leaves the layer's function as it is and
    changes that score. Given widths σ = 1/(√2 ε) it does not. ``dimension_correction=False``
    leaves out √D.

    The value lies in [0, 1/e]. At the published initialisation it is about 0.237 in any
    dimension, trained or not; on a head that is alive the published form underflows to 0.

    Differentiable. Works through the pairs in blocks of ``chunk_size`` rows, again in the
    backward pass, in float64: memory stays bounded for any K.

    >>> from radial import sns
    >>> sns(torch.tensor([[0.0], [1.0]]), torch.tensor([0.5**0.5, 0.5**0.5]), mu=0.0)
    tensor(0.3679)
    """
    _check_centers("SNS", centers)
    check_shape("scales", scales, (len(centers),))
    check_finite("scales", scales)
    if not bool((scales > 0).all()):
        raise ValueError(f"scales must be positive, but the smallest is {float(scales.min())}")
    if not 0.0 <= mu < float("inf"):
        raise ValueError(f"mu must be a finite number of at least 0, not {mu}")
    if chunk_size is not None:
        check_size("chunk_size", chunk_size)
    rows = chunk_size or max(1, _BLOCK_ELEMENTS // len(centers))
    dimensions = centers.shape[1] if dimension_correction else 1
    score: Tensor = _Separation.apply(centers, scales, mu, dimensions, rows)
    return score


class _Separation(torch.autograd.Function):
    """SNS with its gradient, over the upper triangle of pairs, R rows at a time.

    With δ² = q/v, q = ‖c_i − c_j‖²/D and v = s_i² + s_j² + μ, one pair contributes
    ψ = δ²e^(−δ²), and ∂ψ/∂δ² = (1 − δ²)e^(−δ²).
    """

    @staticmethod
    def forward(
        ctx: Any, centers: Tensor, scales: Tensor, mu: float, dimensions: int, rows: int
    ) -> Tensor:
        ctx.save_for_backward(centers, scales)
        ctx.settings = (mu, dimensions, rows)
        total = torch.zeros((), dtype=torch.float64, device=centers.device)
        for _, delta2, _ in _blocks(*_prepare(centers, scales), *ctx.settings):
            total += (delta2 * torch.exp(-delta2)).triu_(1).sum()
        return (total * _pair_weight(centers)).to(centers.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        centers, scales = ctx.saved_tensors
        c, s2 = _prepare(centers, scales)
        pull, grad_s2, grad_c = torch.zeros_like(s2), torch.zeros_like(s2), torch.zeros_like(c)
        for start, delta2, v in _blocks(c, s2, *ctx.settings):
            rows, columns = slice(start, start + len(delta2)), slice(start, None)
            # ∂ψ/∂q; the pairs on and below the diagonal belong to other rows
            slope = torch.exp(-delta2).mul_(1.0 - delta2).div_(v).triu_(1)
            pull[rows] += slope.sum(1)
            pull[columns] += slope.sum(0)
            grad_c[rows].addmm_(slope, c[columns], alpha=-1.0)
            grad_c[columns].addmm_(slope.T, c[rows], alpha=-1.0)
            slope.mul_(delta2)  # −∂ψ/∂v
            grad_s2[rows] -= slope.sum(1)
            grad_s2[columns] -= slope.sum(0)
        weight = grads[0].double() * _pair_weight(centers)
        grad_c.addcmul_(c, pull[:, None]).mul_(2.0 * weight / ctx.settings[1])
        grad_scales = grad_s2.mul_(scales).mul_(2.0 * weight)
        return grad_c.to(centers.dtype), grad_scales.to(scales.dtype), None, None, None


def _prepare(centers: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Centres shifted to their mean, and squared scales, in float64."""
    c = centers.to(torch.float64, copy=True)
    return c.sub_(c.mean(0)), scales.double().square()


def _blocks(
    c: Tensor, s2: Tensor, mu: float, dimensions: int, rows: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(start, δ², v) for rows start:start+R against columns start:K."""
    norms = squared_norm(c)
    for start in range(0, len(c), rows):
        end = min(start + rows, len(c))
        v = s2[start:end, None] + s2[start:] + mu
        q = norms[start:end, None] + norms[start:]
        q.addmm_(c[start:end], c[start:].T, alpha=-2.0)
        yield start, q.clamp_(min=0.0).div_(v).div_(dimensions), v


def _pair_weight(centers: Tensor) -> float:
    kernels = len(centers)
    return 2.0 / (kernels * (kernels - 1))


def center_spread(centers: Tensor) -> float:
    """√(mean_k ‖c_k − c̄‖² / D): how far the centres lie apart, in units of the layer's input.

    Behind BatchNorm, whose outputs have about unit variance, 1 means "as far as the samples".
    It is not invariant under a rescale of the input: compare heads of one kind.
    """
    _check_centers("the spread of centres", centers)
    c = centers.double()
    return float((c - c.mean(0)).square().mean().sqrt())


def center_rank(centers: Tensor) -> float:
    """exp of the entropy of the centred centres' normalised singular values: directions in use.

    From 1 (all centres on a line) to min(K − 1, D); 0 where all centres are the same.
    """
    _check_centers("the rank of centres", centers)
    values = Spectra(centers).eigenvalues.sqrt()
    return entropy_rank(values, 0.0) if float(values.sum()) > 0.0 else 0.0


def _check_centers(what: str, centers: Tensor) -> None:
    check_tensor("centers", centers)
    if centers.dim() != 2 or len(centers) < 2 or centers.shape[1] < 1:
        raise ValueError(
            f"{what} needs centres of shape (K, D) with K ≥ 2, not {tuple(centers.shape)}"
        )
    check_finite("centers", centers)
