"""Scores of the spectrum of features: how many directions they use, and how evenly.

Legend: N samples, D features, k = min(N, D); σ singular values of the features
Z (N, D) as they are, λ eigenvalues of their covariance (centred, 1/N), both descending.

Every function takes a tensor, or a `Spectra` of it, which computes once what they share.
Of samples that are all the same, the effective ranks are 1: the smallest value they have.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from radial.checks import check_number, check_size
from radial.metrics.gram import Spectra, as_spectra

_USED = 1e-9  # of the largest eigenvalue: here the ranks of a power law end


def entropy_rank(values: Tensor, epsilon: float) -> float:
    """exp of the entropy of p = values/‖values‖₁ + ε; 1 where all values are 0."""
    total = values.sum()
    if not total > 0.0:
        return 1.0
    return float(torch.special.entr(values / total + epsilon).sum().exp())


def rankme(z: Tensor | Spectra, *, epsilon: float = 1e-7) -> float:
    """RankMe: exp H(p), p = σ/‖σ‖₁ + ε, between 1 and k; higher is better.

    Garrido et al., 2023, https://arxiv.org/abs/2210.02885, of the singular values of the
    features as they are, not centred; published for 25,600 *projector* embeddings, and to
    compare runs of one method. p sums to 1 + kε, so the value can exceed k a little; with an
    ε of 1e-5 it does so by much.

    Args:
        z: features (N, D), or a `Spectra` of them.
        epsilon: added to each share p.

    Returns:
        The effective rank, 1 to k.

    Raises:
        ValueError: features that are not (N, D) with N ≥ 2, floating point and finite.

    Example:
        >>> round(rankme(torch.eye(8)), 3)
        8.0
    """
    check_number("epsilon", epsilon)
    return entropy_rank(as_spectra(z).singular, epsilon)


def rankme_centred(z: Tensor | Spectra, *, epsilon: float = 1e-7) -> float:
    """RankMe of the features less their mean: one large mean direction then hides nothing.

    exp H(p), p = √λ/‖√λ‖₁ + ε. Not the published score, which `rankme` is.

    Args:
        z: features (N, D), or a `Spectra` of them.
        epsilon: added to each share p.

    Returns:
        The effective rank, 1 to k; higher is better.

    Raises:
        ValueError: features that are not (N, D) with N ≥ 2, floating point and finite.

    Example:
        >>> round(rankme_centred(torch.eye(8) + 100.0), 3)  # one direction less than rows
        7.0
    """
    check_number("epsilon", epsilon)
    return entropy_rank(as_spectra(z).eigenvalues.sqrt(), epsilon)


def nesum(z: Tensor | Spectra) -> float:
    """NESum: Σλ/λ₁ of the centred covariance, between 1 and k; higher is better.

    He & Ozay, 2022, https://proceedings.mlr.press/v162/he22c.html.

    Args:
        z: features (N, D), or a `Spectra` of them.

    Returns:
        Σλ/λ₁, 1 to k.

    Raises:
        ValueError: features that are not (N, D) with N ≥ 2, floating point and finite.

    Example:
        >>> nesum(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]]))
        1.25
    """
    return float(_relative(as_spectra(z).eigenvalues).sum())


def stable_rank(z: Tensor | Spectra) -> float:
    """‖Z‖²_F/σ₁² of the features as they are, between 1 and k; higher is better.

    Args:
        z: features (N, D), or a `Spectra` of them.

    Returns:
        The stable rank, 1 to k.

    Raises:
        ValueError: features that are not (N, D) with N ≥ 2, floating point and finite.

    Example:
        >>> stable_rank(torch.diag(torch.tensor([2.0, 1.0])))
        1.25
    """
    return float(_relative(as_spectra(z).singular.square()).sum())


def participation_ratio(z: Tensor | Spectra) -> float:
    """(Σλ)²/Σλ² of the centred covariance, between 1 and k; higher is better.

    Args:
        z: features (N, D), or a `Spectra` of them.

    Returns:
        The participation ratio, 1 to k.

    Raises:
        ValueError: features that are not (N, D) with N ≥ 2, floating point and finite.

    Example:
        >>> round(participation_ratio(torch.eye(4)), 6)
        3.0
    """
    values = _relative(as_spectra(z).eigenvalues)
    return float(values.sum().square() / values.square().sum())


def _relative(values: Tensor) -> Tensor:
    """To the largest; where all are 0, one direction is all there is."""
    return values / values[0] if values[0] > 0.0 else torch.ones_like(values[:1])


def decorrelation(z: Tensor | Spectra) -> float:
    """Mean squared correlation of two different features, between 0 and 1; lower is better.

    Constant features have no correlation and are left out; ``Spectra.constant`` tells how many.
    Where fewer than two vary, the value is 1: the worst. Of independent features the expected
    value is not 0 but about 1/N. Confounded where a method's loss decorrelates.

        1/(V(V − 1)) Σ_(i≠j) corr(i, j)² over the V features that vary

    Args:
        z: features (N, D), or a `Spectra` of them.

    Returns:
        0 to 1.

    Raises:
        ValueError: features that are not (N, D) with N ≥ 2, floating point and finite.

    Example:
        >>> round(decorrelation(torch.arange(8.0)[:, None] * torch.ones(3)), 6)
        1.0
    """
    spectra = as_spectra(z)
    varying = spectra.d - spectra.constant
    if varying < 2:
        return 1.0
    return spectra.squared_correlations / (varying * (varying - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """λ_j ∝ j^−α, fitted to the ranks first to last, both included and counted from 1."""

    alpha: float
    r2: float  # share of the (weighted) variance of log λ that the line explains
    first: int
    last: int


def alpha_req(z: Tensor | Spectra, *, first: int = 1, last: int | None = None) -> PowerLaw:
    """α-ReQ: slope of log λ_j on log j, weights 1/j, ranks j from ``first`` to ``last``.

    Agrawal et al., 2022, https://openreview.net/forum?id=ii9X4vtZGTZ. Near 1 is best: not a score
    to maximise or minimise. The value depends on the range, so that is returned with it;
    by default all ranks with an eigenvalue above 1e-9 of the largest.

    Args:
        z: features (N, D), or a `Spectra` of them.
        first: the first rank, counted from 1.
        last: the last one, included; by default the last that is above 1e-9 of the largest.

    Returns:
        α of λ_j ∝ j^−α, how well it fits, and the ranks.

    Raises:
        ValueError: fewer than three ranks, as of samples that are all the same: no slope.

    Example:
        >>> root = torch.arange(1.0, 9.0, dtype=torch.float64) ** -0.5
        >>> law = alpha_req(torch.cat([root.diag(), -root.diag()]))  # λ_j ∝ 1/j
        >>> round(law.alpha, 9), round(law.r2, 9), law.first, law.last
        (1.0, 1.0, 1, 8)
    """
    check_size("first", first)
    values = as_spectra(z).eigenvalues
    used = int((values > _USED * values[0]).sum())
    if last is None:
        last = used
    else:
        check_size("last", last)
    if last > used or last - first < 2:
        raise ValueError(
            f"a power law needs at least 3 ranks with eigenvalues above {_USED:g} of the largest; "
            f"these are ranks 1 to {used}, and first is {first}, last {last}"
        )
    j = torch.arange(first, last + 1, dtype=torch.float64, device=values.device)
    weights = 1.0 / j
    weights /= weights.sum()
    x, y = j.log(), values[first - 1 : last].log()
    x, y = x - weights @ x, y - weights @ y
    slope = (weights * x) @ y / ((weights * x) @ x)
    total, rest = weights @ y.square(), weights @ (y - slope * x).square()
    r2 = float(1.0 - rest / total) if total > 0.0 else 1.0
    return PowerLaw(alpha=-float(slope), r2=r2, first=first, last=last)
