"""Scores of the trained kernels: alone, and by which kernel answers to which unlabelled image.

For the latter each image comes as q augmented views, and each view is assigned to its nearest
kernel in scaled distance ε_k ‖x − c_k‖. A head that has learned uses many of its kernels
(occupancy), and gives the views of one image the same kernel where views of other images get
other ones (information, agreement). All three are better when higher: declared here, before any
accuracy was looked at.

Legend: K kernels, D features, R rows of a block; n images, q views, a = nearest kernels (n, q).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from radial.checks import check_finite, check_shape, check_size, check_tensor, needs
from radial.metrics.gram import Spectra
from radial.metrics.spectra import entropy_rank
from radial.rbf.functions import squared_norm

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

    Args:
        centers: (K, D) with K ≥ 2.
        scales: (K), positive: shapes ε as published, or widths σ.
        mu: keeps the denominator above 0.
        dimension_correction: divide by √D.
        chunk_size: rows of a block.

    Returns:
        A tensor without dimensions, 0 to 1/e.

    Raises:
        ValueError: other shapes, NaN or inf, scales or ``mu`` out of range.

    Example:
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

    Args:
        centers: (K, D) with K ≥ 2.

    Returns:
        At least 0; higher is better.

    Raises:
        ValueError: another shape, NaN or inf.

    Example:
        >>> center_spread(torch.tensor([[-1.0, 1.0], [1.0, -1.0]]))
        1.0
    """
    _check_centers("the spread of centres", centers)
    c = centers.double()
    return float((c - c.mean(0)).square().mean().sqrt())


def center_rank(centers: Tensor) -> float:
    """exp of the entropy of the centred centres' normalised singular values: directions in use.

    exp H(p), p = σ/‖σ‖₁, from 1 (all centres on a line) to min(K − 1, D); 0 where all centres
    are the same.

    Args:
        centers: (K, D) with K ≥ 2.

    Returns:
        The effective rank; higher is better.

    Raises:
        ValueError: another shape, NaN or inf.

    Example:
        >>> round(center_rank(torch.eye(9)), 6)
        8.0
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


def occupancy(nearest: Tensor, kernels: int) -> float:
    """H(a) / ln K: 1 where all kernels take as many views, 0 where one takes all.

    Args:
        nearest: a (n, q), int64, the kernel nearest to each view.
        kernels: K, at least 2.

    Returns:
        0 to 1; higher is better.

    Raises:
        ValueError: another shape or type, or a kernel outside 0 … K − 1.

    Example:
        >>> occupancy(torch.tensor([[0, 1], [2, 3]]), 4)
        1.0
    """
    check_size("kernels", kernels, minimum=2)
    _check_nearest(nearest, kernels)
    share = torch.bincount(nearest.flatten(), minlength=kernels).double() / nearest.numel()
    return float(torch.special.entr(share).sum() / math.log(kernels))


def information(nearest: Tensor) -> float:
    """I(a; b) − E I, in nats: what the kernel of one view tells of that of another.

    I is the mutual information in the table of pairs of views, E I its expectation where the
    views are dealt to images at random with the same occupancy (Vinh et al., 2010,
    https://jmlr.org/papers/v11/vinh10a.html): without it few images and many kernels would
    look like information. The mean over all pairs of the q views.

    Args:
        nearest: a (n, q), int64, q ≥ 2.

    Returns:
        Nats; 0 at chance, higher is better.

    Raises:
        ValueError: another shape or type, or one view only.

    Example:
        >>> same = torch.arange(4).repeat(64)[:, None].expand(-1, 2)
        >>> round(information(same), 2)  # ln 4 less 0.02
        1.37
    """
    needs("score", "sklearn")
    from sklearn.metrics import mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

    _check_nearest(nearest)
    n, q = nearest.shape
    if q < 2:
        raise ValueError("mutual information needs at least two views of each image, not 1")
    views = nearest.T.numpy()
    total = 0.0
    for first, second in combinations(range(q), 2):
        table = contingency_matrix(views[first], views[second], sparse=True)
        expected = expected_mutual_information(table, n)
        total += mutual_info_score(None, None, contingency=table) - expected
    return float(total / math.comb(q, 2))


def agreement(nearest: Tensor) -> float:
    """(p − p₀) / (1 − p₀): how often two views of one image share their kernel, beyond chance.

    p is the share of pairs of views of one image with the same kernel, p₀ = Σ_k share_k² that of
    two views taken at random (Scott's π). 0 is chance, 1 certainty; where one kernel takes every
    view nothing can be told and the score is 0.

    Args:
        nearest: a (n, q), int64, q ≥ 2.

    Returns:
        At most 1; 0 at chance, higher is better.

    Raises:
        ValueError: another shape or type, or one view only.

    Example:
        >>> agreement(torch.tensor([[0, 0], [1, 1], [2, 2]]))
        1.0
    """
    _check_nearest(nearest)
    n, q = nearest.shape
    if q < 2:
        raise ValueError("agreement needs at least two views of each image, not 1")
    share = torch.bincount(nearest.flatten()).double() / nearest.numel()
    chance = float(share.square().sum())
    if chance >= 1.0:
        return 0.0
    pairs = (nearest[:, :, None] == nearest[:, None, :]).sum() - n * q
    return (float(pairs) / (n * q * (q - 1)) - chance) / (1.0 - chance)


def _check_nearest(nearest: Tensor, kernels: int | None = None) -> None:
    if nearest.dtype != torch.int64 or nearest.dim() != 2 or len(nearest) < 2:
        found = f"{nearest.dtype} of shape {tuple(nearest.shape)}"
        raise ValueError(f"nearest kernels must be int64 of shape (n ≥ 2, q), not {found}")
    low, high = int(nearest.min()), int(nearest.max())
    if low < 0 or (kernels is not None and high >= kernels):
        raise ValueError(f"nearest kernels must be in 0 … {kernels or 'K'} − 1, not {low} … {high}")
