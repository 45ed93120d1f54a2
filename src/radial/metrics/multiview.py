"""Scores of several views of each image: are they alike, and unlike those of other images?

And of its quarter turns: can they be told?

Legend: n images with q views, or 4 turns, each, D features (or kernels); u, v rows of unit length.
"""

from __future__ import annotations

import warnings

import torch
from torch import Generator, Tensor

from radial.checks import check_finite, check_number, check_size, check_tensor, needs
from radial.metrics.gram import check_values, gram_matrix, lengths, product_dtype, row_blocks
from radial.metrics.registry import ROTATION_IMAGES, ROTATION_VARIANCE
from radial.metrics.spectra import entropy_rank

_ROUNDING = 1e-24  # a variance of so little of the mean square
_FLOAT32_RESOLVES = 100.0  # largest variance over what is new in a feature, on average
TURNS = 4
_ITERATIONS = 500


def alignment(views: Tensor) -> float:
    """Mean of ‖u − v‖² over all pairs of views u, v of one image; lower is better.

    Of samples that all point the same way it is 0, its best: read it beside other scores.

    Wang & Isola, 2020, https://arxiv.org/abs/2005.10242, with their α = 2. ``views`` has shape
    (n, q, D). With ū the mean of an image's views, Σ_{v<w} ‖u_v − u_w‖² = q Σ_v ‖u_v − ū‖².

    Args:
        views: (n, q, D), the q ≥ 2 views of one image together.

    Returns:
        0 to 4.

    Raises:
        ValueError: another shape, NaN or inf, or a view of length 0.

    Example:
        >>> alignment(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]))
        2.0
    """
    _check_grouped(views, least=1)
    views, q = views.detach(), views.shape[1]
    total = 0.0
    for x, length in zip(row_blocks(views), row_blocks(lengths(views), views[0].numel())):
        u = x.double() / length[..., None]
        total += float((u - u.mean(1, keepdim=True)).square_().sum())
    return total * 2.0 / ((q - 1) * len(views))


def lidar(views: Tensor, *, delta: float, epsilon: float = 1e-7) -> float:
    """exp H(p), p = λ/‖λ‖₁ + ε, λ the D eigenvalues of Sw^−½ Sb Sw^−½; higher is better.

    Thilak et al., 2023, https://arxiv.org/abs/2312.04000. With μ_i the mean of the views of
    image i and μ the mean of all,

        Sb = 1/n Σ_i (μ_i − μ)(μ_i − μ)ᵀ,   Sw = 1/(nq) Σ_i Σ_v (x_iv − μ_i)(x_iv − μ_i)ᵀ + δI

    ``views`` has shape (n, q, D): the q views of one image stand together. Views given in another
    order, such as all first views and then all second ones, make another, larger number and no
    error. The value depends on δ (in the paper 1e-4), which has no default: record it. Scaling
    features by a and δ by a² changes nothing.

    λ is at most n − 1 long, so n bounds the value: a warning where n ≤ D. Where all images have
    the same mean, Sb is 0 and the value 1: the smallest.

    Of large float32 features the products are float32, summed in float64, where Sw is conditioned
    so well that this is good to 1e-6; float64 elsewhere.

    Args:
        views: (n, q, D), the q ≥ 2 views of one image together.
        delta: added to the diagonal of Sw.
        epsilon: added to each share p.

    Returns:
        The effective rank, 1 to min(n − 1, D).

    Raises:
        ValueError: another shape, NaN or inf, or a ``delta`` that vanishes beside Sw.

    Example:
        >>> images = torch.cat([torch.eye(4), -torch.eye(4)])
        >>> round(lidar(images[:, None].expand(-1, 2, -1), delta=1e-4), 3)
        4.0
    """
    _check_grouped(views, least=2)
    if not delta > 0.0:
        raise ValueError(f"delta must be a finite number above 0, not {delta!r}")
    check_number("delta", delta)
    check_number("epsilon", epsilon)
    views = views.detach()
    n, _, d = views.shape
    if n <= d:
        warnings.warn(f"LiDAR of {n} images in {d} dimensions is bounded by {n}", stacklevel=2)
    means = torch.cat([x.double().mean(1) for x in row_blocks(views)])  # (n, D)
    centred = means - means.mean(0)
    if float(centred.square().sum()) <= _ROUNDING * float(means.square().sum()):
        return 1.0
    dtype = product_dtype(views.flatten(0, 1))
    within, factor = _within(views, delta, dtype)
    variances, new = within.diagonal(), factor.diagonal().square()  # in what is left of a feature
    if dtype == torch.float32 and not float((variances.max() / new).mean()) < _FLOAT32_RESOLVES:
        dtype = torch.float64
        within, factor = _within(views, delta, dtype)
    if not bool((factor.diagonal() > 0.0).all()):
        largest = float(variances.max())
        raise ValueError(f"delta {delta:g} vanishes beside a within-image variance of {largest:g}")
    if n > d:
        between = gram_matrix(
            (x.to(dtype) for x in row_blocks(centred, large=True)), d, views.device
        )
        white = torch.linalg.solve_triangular(factor, between, upper=False)
        white = torch.linalg.solve_triangular(factor, white.T, upper=False)
    else:  # the n×n matrix of the same eigenvalues is smaller
        rows = torch.linalg.solve_triangular(factor, centred.T, upper=False)
        white = rows.T @ rows
    values = torch.linalg.eigvalsh(white).clamp_(min=0.0)
    return entropy_rank(torch.cat([values, values.new_zeros(d - len(values))]), epsilon)


def _within(views: Tensor, delta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sw and its Cholesky factor, (D, D) in float64; the factor is 0 where there is none.

    By q − 1 orthonormal contrasts of the views, HX with H1 = 0: as many rows as there is to know,
    a q-th less than views. H(X − x_1) is the same, and loses nothing beside a large mean.
    """
    from scipy.linalg import helmert

    n, q, d = views.shape
    contrasts = torch.from_numpy(helmert(q)[:, 1:]).to(views.device, dtype)
    rows = (
        (contrasts @ (x[:, 1:] - x[:, :1])).flatten(0, 1)
        for x in (x.to(dtype) for x in row_blocks(views, large=True))
    )
    within = gram_matrix(rows, d, views.device).div_(n * q)
    within.diagonal().add_(delta)
    factor, failed = torch.linalg.cholesky_ex(within)
    return within, torch.zeros_like(factor) if int(failed) else factor


def _check_grouped(views: Tensor, least: int) -> None:
    """(n, q, D) with q ≥ 2, floating point and finite."""
    check_tensor("views", views)
    if views.dim() != 3 or len(views) < least or views.shape[1] < 2 or views.shape[2] < 1:
        raise ValueError(
            f"views must have shape (n, q, D) with n ≥ {least} and q ≥ 2, not {tuple(views.shape)}"
        )
    check_values("views", views)


def rotation_probe(rotations: Tensor, *, seed: int = 0) -> float:
    """Accuracy of a 4-way logistic regression that predicts the turn; ¼ by chance, higher better.

    Reed et al., "SelfAugment", 2021, https://arxiv.org/abs/2009.07724. The regression has scikit-
    learn's objective with an L2 penalty, C = 10/D on features standardised by the training half,
    so that the prior variance of a logit is 10 whatever D is; the paper fits a linear layer by SGD.
    Half of the images, drawn by ``seed``, train it and the others test it: all four turns of an
    image are on one side. Of the first 512 images at most.

    Args:
        rotations: (n, 4, D), features of an image turned by 0°, 90°, 180° and 270°.
        seed: of the split.

    Returns:
        The accuracy on the test half.

    Raises:
        ValueError: for another shape, NaN or inf.

    Example:
        >>> turns = torch.eye(4).expand(8, 4, 4)
        >>> rotation_probe(turns + 0.01 * torch.arange(8.0)[:, None, None])
        1.0
    """
    needs("score", "sklearn")
    from sklearn.linear_model import LogisticRegression

    check_tensor("rotations", rotations)
    if rotations.dim() != 3 or len(rotations) < 4 or rotations.shape[1] != TURNS:
        shape = tuple(rotations.shape)
        raise ValueError(f"rotations must have shape (n ≥ 4, 4, D), not {shape}")
    check_finite("rotations", rotations)
    check_size("seed", seed, minimum=0)
    x = rotations[:ROTATION_IMAGES].detach().cpu().double()
    order = torch.randperm(len(x), generator=Generator().manual_seed(seed))
    fitting, testing = (x[rows].flatten(0, 1) for rows in order.tensor_split(2))
    mean, deviation = fitting.mean(0), fitting.std(0, correction=0)
    scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    model = LogisticRegression(C=ROTATION_VARIANCE / x.shape[2], max_iter=_ITERATIONS)
    turns = [torch.arange(TURNS).repeat(len(part) // TURNS).numpy() for part in (fitting, testing)]
    model.fit(((fitting - mean) / scale).numpy(), turns[0])
    return float(model.score(((testing - mean) / scale).numpy(), turns[1]))
