"""Scores of directions: features brought to unit length, as points of a sphere.

Legend: N samples, D features; u a row of unit length. A row of length 0 has no
direction and is an error.

Of samples that all point the same way, uniformity is 0, W₂ uniformity √2 and SelfCluster 1: the
worst values they have.
"""

from __future__ import annotations

import math

from torch import Tensor

from radial.checks import check_number
from radial.metrics.gram import Spectra, as_spectra, check_features
from radial.metrics.pairs import Pairs, T, look

_FLOAT32_T = 10.0  # up to here float32 products are good enough


def uniformity(z: Tensor | Pairs, *, t: float = T) -> float:
    """log of the mean of exp(−t‖u_i − u_j‖²) over all pairs i < j; at most 0, lower is better.

    Wang & Isola, 2020, https://arxiv.org/abs/2005.10242. Every pair counts, in tiles.

    ‖u − v‖² comes from a matrix product of the rows less their mean, so that what is rounded is
    small where the rows are close. For t ≤ 10 and features that are not float64 the product and
    exp are float32, with sums in float64: at t = 2 the value differs by less than 1e-7.

    Args:
        z: features (N, D), or :class:`radial.metrics.pairs.Pairs` of them, shared with TwoNN.
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
    unlike :func:`uniformity` it sees that directions are missing.

    Args:
        z: features (N, D), or a :class:`Spectra` of them.

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
        z: features (N, D), or a :class:`Spectra` of them.

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
