"""Where kernels should stand, how wide they should be, how loud: pure functions of tensors.

A layer uses them on synthetic standard-normal inputs (``init="scaled"``), ``calibrate`` on
real features; both end in the same state, a layer that is alive on what it was fitted to.

Legend: N samples, K kernels, D features.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from radial.rbf.functions import RadialFunction, TensorFunction, bounded, squared_norm

# Standard deviation of log φ over samples and kernels that a normalised layer is set to:
# neither uniform (every kernel 1/K) nor saturated (one kernel takes every sample).
_LOG_SPREAD = 1.0
_SCALES = (1e-3, 1e6)  # of u = (εr)², the bracket of the bisection
_ROUNDING = 1e-6
_CONSTANT = 1e-14  # variance of activations relative to their mean square: float32 noise


def orthogonal_rows(rows: int, columns: int, generator: Generator | None = None) -> Tensor:
    """Random rows of length about √columns, orthogonal in blocks.

    Independent rows would lose rank layer after layer. The lengths differ by 1/columns at
    random: enough that centres on a line do not coincide, and too little in many dimensions
    for one kernel to be nearer to everything than another.
    """
    blocks = []
    for start in range(0, rows, columns):
        shape = (min(columns, rows - start), columns)
        block = torch.randn(shape, generator=generator, dtype=torch.float32)
        blocks.append(torch.linalg.qr(block.T).Q.T)
    lengths = math.sqrt(columns) * (
        1.0 + torch.randn(rows, 1, generator=generator, dtype=torch.float32) / columns
    )
    return torch.cat(blocks) * lengths


def spread_out(features: Tensor, num_kernels: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """K centres among the N×D features, far from each other as in k-means++, and whose they are.

    Samples are first moved towards the sphere of their root mean square distance ρ around
    their mean: a sample at distance d goes to ρ (d/ρ)^(1/D). In one dimension that changes
    nothing, and in many, where samples lie near that sphere anyway, it keeps outliers from
    becoming kernels that no other sample meets and makes all kernels respond alike to the
    length of a sample. Each next centre is then a sample drawn with probability proportional
    to its squared distance to the nearest centre so far; beyond N centres, samples are drawn
    again, with a jitter along the sphere towards another one.

    Returns the centres (K×D) and the index of the sample each is made of (K).
    """
    samples, dimensions = features.shape
    mean = features.mean(0)
    rays = features - mean
    lengths = rays.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rays.dtype).tiny)
    radius = lengths.square().mean().sqrt()
    rays = rays / lengths * (radius * (lengths / radius).pow(1.0 / dimensions))
    norms = squared_norm(rays)
    picks = [int(torch.randint(samples, (), generator=generator))]
    nearest = torch.full_like(norms, torch.inf)
    while len(picks) < min(num_kernels, samples):
        newest = picks[-1]
        to_newest = norms + norms[newest] - 2.0 * (rays @ rays[newest])
        nearest = torch.minimum(nearest, to_newest.clamp(min=0.0))
        nearest[newest] = 0.0
        if float(nearest.sum()) <= _ROUNDING * float(norms.sum()):
            break  # only copies of the samples taken are left
        picks.append(int(torch.multinomial(nearest.cpu().double(), 1, generator=generator)))
    again, towards = torch.randint(samples, (2, num_kernels - len(picks)), generator=generator)
    jittered = 0.9 * rays[again] + 0.19**0.5 * rays[towards]
    return mean + torch.cat([rays[picks], jittered]), torch.cat([torch.tensor(picks), again])


def fit_shapes(function: RadialFunction, squared: Tensor, *, spread: bool) -> Tensor:
    """Shapes ε (K) from squared distances (N×K).

    ε_k = √(a / mean_n r²_nk): every kernel sees its samples at the same mean u = a. For a
    plain layer a is the radial function's operating point. For a normalised one (``spread``)
    only differences of log φ between kernels matter, so a is chosen to give those a standard
    deviation of 1; a function with algebraic tails, or without a log form, cannot reach that
    at any width and keeps its operating point.
    """
    mean = squared.mean(0).clamp(min=torch.finfo(squared.dtype).tiny)
    scale = function.operating_point
    if spread and function.log_fn is not None and squared.shape[1] > 1:
        scale = _scale_for_spread(function.log_fn, squared / mean) or scale
    return (scale / mean).sqrt()


def _scale_for_spread(log_fn: TensorFunction, relative: Tensor) -> float | None:
    """The a at which log φ(a·relative) spreads by `_LOG_SPREAD`, by bisection in log a."""

    def too_sharp(scale: float) -> bool:
        logits = log_fn(bounded(scale * relative))
        return float((logits - logits.mean(1, keepdim=True)).std()) > _LOG_SPREAD

    low, high = _SCALES
    if not too_sharp(high):
        return None
    for _ in range(40):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if too_sharp(middle) else (middle, high)
    return low


def fit_weights(weights: Tensor, activations: Tensor, *, whiten: bool = False) -> Tensor:
    """Output weights (out×K) rescaled for a mean output variance of 1 on activations (N×K).

    Their rows are centred: activations share a large constant part (e⁻¹ for a Gaussian at
    its operating point) that says nothing about the sample, and weights that sum to zero
    cancel it. Activations that do not vary at all (one normalised kernel) scale nothing.

    ``whiten`` first multiplies them by C^(−½), C the covariance of the activations. With
    centres drawn from data C is about the square of the data's own covariance, and without
    this each layer would square the spectrum again and lose rank with depth. C is shrunk
    towards a multiple of the identity, the more the fewer samples there are for a kernel.
    """
    samples, kernels = activations.shape
    centred = activations - activations.mean(0)
    if float(centred.square().mean()) <= _CONSTANT * float(activations.square().mean()):
        return weights / kernels
    if whiten:
        wide = centred.cpu().double()  # not every GPU has float64, or eigenvectors
        spectrum, axes = torch.linalg.eigh(wide.T @ wide)  # ascending (K), columns of (K, K)
        shrinkage = kernels / (samples + kernels)
        relative = spectrum.clamp(min=0.0) / spectrum.mean()
        gains = ((1.0 - shrinkage) * relative + shrinkage).rsqrt()
        weights = weights @ ((axes * gains) @ axes.T).to(weights)
    if kernels > 1:
        weights = weights - weights.mean(1, keepdim=True)
    variance = (centred @ weights.T).square().sum(0).mean() / (samples - 1)
    return weights / variance.sqrt()
