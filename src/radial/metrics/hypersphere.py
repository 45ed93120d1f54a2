"""Scores of directions: features brought to unit length, as points of a sphere.

Legend: N samples, D features; u a row of unit length. A row of length 0 has no
direction and is an error.

Of samples that all point the same way, uniformity is 0, W₂ uniformity √2 and SelfCluster 1: the
worst values they have.

All pairs of samples are looked at once, for uniformity and TwoNN together (`Pairs`). With
z of length l = ‖z‖, u = z/l, ū the mean of the u, w = u − ū:

    ‖u_i − u_j‖² = ‖w_i‖² + ‖w_j‖² − 2 w_i·w_j
    ‖z_i − z_j‖² = l_i l_j ‖u_i − u_j‖² + (l_i − l_j)²

The product is most of the work, N²D/2 multiplications; both follow from it. Taking ū away first
makes what is rounded small where directions are close, and the second line only adds.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from radial.checks import check_number
from radial.metrics.gram import Spectra, as_spectra, check_features, lengths, row_blocks
from radial.rbf.functions import squared_norm

T = 2.0  # of uniformity, as published
_TILE = 1024  # 4 MiB in float32: a tile stays in the cache while it is looked at
_CANDIDATES = 3  # neighbours of each sample that are kept
_MARGIN = {torch.float32: 1e-5, torch.float64: 1e-13}  # a hundred times the rounding
_FLOAT32_T = 10.0  # up to here float32 products are good enough


class Pairs:
    """Looks at the pairs of z (N, D) when first asked, for both scores."""

    def __init__(self, z: Tensor) -> None:
        self.z = z.detach()

    @cached_property
    def seen(self) -> Seen:
        return look(self.z, t=T, neighbours=True)


class Seen(NamedTuple):
    potential: float  # Σ over i < j of exp(−t‖u_i − u_j‖²)
    candidates: Tensor  # (N, k) the nearest samples, about in order
    reach: Tensor  # (N,) no other sample is nearer than that, squared distance


def look(z: Tensor, *, t: float, neighbours: bool, wide: bool = False) -> Seen:
    """One pass over the tiles on and right of the diagonal; products in float64 if ``wide``.

    Without ``neighbours`` there are no candidates, and nothing is known of their reach.
    """
    n, device = len(z), z.device
    dtype = torch.float64 if wide or z.dtype == torch.float64 else torch.float32
    length, mean = lengths(z), Spectra(z).unit_mean
    largest = float(length.max())
    w = torch.empty_like(z, dtype=dtype)
    for part, x, own in zip(row_blocks(w), row_blocks(z), row_blocks(length, z.shape[1])):
        part.copy_(x.double() / own[:, None] - mean)
    norms = torch.cat([squared_norm(x.double()) for x in row_blocks(w)]).to(dtype)
    length = length / largest  # far from overflow in float32
    beyond = (length - length.mean()).to(dtype)  # their differences keep what is left
    near = length.to(dtype)
    k = min(_CANDIDATES, n - 1)
    best = torch.full((n, k), torch.inf, dtype=dtype, device=device)
    index = torch.zeros(n, k, dtype=torch.int64, device=device)

    def keep(rows: slice, squared: Tensor, first: int) -> None:
        found, at = squared.topk(min(k, squared.shape[1]), largest=False)
        values, order = torch.cat([best[rows], found], 1).topk(k, largest=False)
        best[rows] = values
        index[rows] = torch.cat([index[rows], at + first], 1).gather(1, order)

    potential = 0.0
    tiles = [slice(start, min(start + _TILE, n)) for start in range(0, n, _TILE)]
    for number, rows in enumerate(tiles):
        for columns in tiles[number:]:
            same = rows == columns
            squared = norms[rows, None] + norms[columns]
            squared.addmm_(w[rows], w[columns].T, alpha=-2.0).clamp_(min=0.0)
            e = (squared * -t).exp_()
            potential += float((e.triu_(1) if same else e).sum(1).double().sum())
            if not neighbours:
                continue
            apart = beyond[rows, None] - beyond[columns]
            squared.mul_(near[rows, None]).mul_(near[columns]).addcmul_(apart, apart)
            if same:
                squared.fill_diagonal_(torch.inf)
            keep(rows, squared, columns.start)
            if not same:
                keep(columns, squared.T.contiguous(), rows.start)
    size = near * norms.sqrt() + beyond.abs()
    reach = best[:, -1].double() * (1.0 - _MARGIN[dtype])
    reach -= _MARGIN[dtype] * (size * size.max()).double()
    if k == n - 1:
        reach.fill_(torch.inf)  # all others are candidates
    return Seen(potential, index, reach * largest**2)


def uniformity(z: Tensor | Pairs, *, t: float = T) -> float:
    """log of the mean of exp(−t‖u_i − u_j‖²) over all pairs i < j; at most 0, lower is better.

    Wang & Isola, 2020, https://arxiv.org/abs/2005.10242. Every pair counts, in tiles.

    ‖u − v‖² comes from a matrix product of the rows less their mean, so that what is rounded is
    small where the rows are close. For t ≤ 10 and features that are not float64 the product and
    exp are float32, with sums in float64: at t = 2 the value differs by less than 1e-7.

    Args:
        z: features (N, D), or `radial.metrics.hypersphere.Pairs` of them, shared with TwoNN.
        t: sharpness of the potential.

    Returns:
        At most 0.

    Raises:
        ValueError: features that are not (N, D) with N ≥ 2 and finite, or a row of length 0.

    Example:
        >>> import torch
        >>> round(uniformity(torch.tensor([[1.0, 0.0], [-3.0, 0.0]])), 6)  # −t‖u − v‖² = −2·4
        -8.0
    """
    check_number("t", t, low=1e-6, high=100.0)  # exp(−4t) is then far above underflow
    rows = z.z if isinstance(z, Pairs) else z
    check_features(rows)
    if isinstance(z, Pairs) and t == T:
        potential = z.seen.potential
    else:
        potential = look(rows.detach(), t=t, neighbours=False, wide=t > _FLOAT32_T).potential
    n = len(rows)
    return math.log(potential * 2.0 / (n * (n - 1)))


def w2_uniformity(z: Tensor | Spectra) -> float:
    """√(‖μ‖² + 1 + tr Σ − (2/√D) tr Σ^½) of the unit-length rows; lower is better.

    Fang et al., 2024, https://arxiv.org/abs/2403.00642: the Wasserstein distance between Gaussians,
    one with the rows' mean μ and covariance Σ (1/N), the other N(0, I/D), which the uniform
    distribution on the sphere is close to. Σ^½ is the matrix square root. Between 0 and √2, and
    unlike `uniformity` it sees that directions are missing.

    Args:
        z: features (N, D), or a `Spectra` of them.

    Returns:
        0 to √2.

    Raises:
        ValueError: features that are not (N, D) with N ≥ 2 and finite, or a row of length 0.

    Example:
        >>> import torch
        >>> round(w2_uniformity(torch.cat([torch.eye(4), -torch.eye(4)])), 6)
        0.0
    """
    spectra = as_spectra(z)
    values = spectra.unit_eigenvalues
    own = float(spectra.unit_mean.square().sum() + values.sum())
    squared = own + 1.0 - 2.0 / math.sqrt(spectra.d) * float(values.sqrt().sum())
    return math.sqrt(max(squared, 0.0))


def self_cluster(z: Tensor | Spectra) -> float:
    """SelfCluster: (Q − N − N(N−1)/D) / (N² − N − N(N−1)/D), Q = Σ_ij cos²(z_i, z_j).

    Tsitsulin et al., 2023, https://arxiv.org/abs/2305.16562: how much the rows cluster, from
    0 for directions drawn evenly from the sphere (a little below for sets more even than that)
    to 1 where all lie on one line; lower is better. With W of unit rows, Q = ‖WᵀW‖²_F.
    One feature is one line: 1.

    Args:
        z: features (N, D), or a `Spectra` of them.

    Returns:
        About 0 to 1.

    Raises:
        ValueError: features that are not (N, D) with N ≥ 2 and finite, or a row of length 0.

    Example:
        >>> import torch
        >>> round(self_cluster(torch.ones(4, 3)), 6)
        1.0
    """
    spectra = as_spectra(z)
    if spectra.d == 1:
        return 1.0
    n = float(spectra.n)
    even = n + n * (n - 1.0) / spectra.d
    return (spectra.squared_cosines - even) / (n * n - even)
