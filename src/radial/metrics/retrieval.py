"""Do the views of an image find each other among those of all images? By rank, nearest or softmax.

Legend: n images with q views each, M = nq views, D features (or kernels); u, v rows of unit length,
s cosines. A value depends on the gallery, n and q and how the views are drawn: compare only equal
ones.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from radial.checks import check_choice, check_finite, check_number, check_tensor
from radial.metrics.gram import gram_matrix
from radial.metrics.registry import (
    INFO_NCE_TEMPERATURE,
    RETRIEVAL_IMAGES,
    RETRIEVAL_SHRINKAGE,
)

_TIE = 1e-12  # cosines as near as that are equal
_TIE_DISTANCE = 1e-6  # distances of unit vectors, √(2 · _TIE) and a little less
OVER_VIEWS = ("mean", "min", "max")


class Gallery:
    """Cosines between all views of the first 512 images at most, plain and whitened, once.

    Whitened: z = Σ^(−½)(x − μ), with the covariance of all views shrunk towards a multiple of the
    identity, Σ = (1 − s)Σ̂ + s tr(Σ̂)/D I. Views that do not vary are all alike: cosine 1.

    Args:
        views: (n, q, D) with n, q ≥ 2, the views of one image together.
        shrinkage: s, in (0, 1].

    Raises:
        ValueError: for another shape, NaN or inf, or a shrinkage outside (0, 1].
    """

    def __init__(self, views: Tensor, *, shrinkage: float = RETRIEVAL_SHRINKAGE) -> None:
        check_tensor("views", views)
        if views.dim() != 3 or len(views) < 2 or views.shape[1] < 2:
            shape = tuple(views.shape)
            raise ValueError(f"views must have shape (n ≥ 2, q ≥ 2, D), not {shape}")
        if not 0.0 < shrinkage <= 1.0:
            raise ValueError(f"shrinkage must lie in (0, 1], not {shrinkage}")
        check_finite("views", views)
        x = views[:RETRIEVAL_IMAGES].detach().double()
        self.n, self.q, self.shrinkage = x.shape[0], x.shape[1], shrinkage
        self.x = x.flatten(0, 1)  # (M, D)

    @cached_property
    def own(self) -> Tensor:
        """(M, M), whether two views are of one image."""
        image = torch.arange(self.n, device=self.x.device).repeat_interleave(self.q)
        return image[:, None] == image

    @property
    def others(self) -> int:
        """M − q, how many views of other images there are."""
        return (self.n - 1) * self.q

    @cached_property
    def plain(self) -> Tensor:
        """(M, M) cosines of the views as they are."""
        return _products(F.normalize(self.x, dim=1))

    @cached_property
    def whitened(self) -> Tensor:
        """(M, M) cosines after whitening."""
        x = self.x - self.x.mean(0)
        covariance = _products(x.T).div_(len(x))
        level = float(covariance.diagonal().mean())
        if level <= torch.finfo(torch.float64).tiny:
            return torch.ones(len(x), len(x), dtype=x.dtype, device=x.device)
        covariance.mul_(1.0 - self.shrinkage).diagonal().add_(self.shrinkage * level)
        root = torch.linalg.cholesky(covariance)
        z = torch.linalg.solve_triangular(root, x.T, upper=False).T  # (M, D)
        return _products(F.normalize(z, dim=1))

    def cosines(self, whiten: bool) -> Tensor:
        """Of all views with all.

        Args:
            whiten: first.

        Returns:
            (M, M).
        """
        return self.whitened if whiten else self.plain

    def ranks(self, whiten: bool) -> Tensor:
        """r: views of other images as near as the nearest one of its own image, or nearer.

        Args:
            whiten: compare after whitening.

        Returns:
            (M,), 0 to M − q.
        """
        similarity = self.cosines(whiten).clone().fill_diagonal_(-math.inf)
        nearest = similarity.masked_fill(~self.own, -math.inf).amax(1, keepdim=True)
        return ((similarity >= nearest - _TIE) & ~self.own).sum(1)


def _products(rows: Tensor) -> Tensor:
    """Of all pairs of rows, each pair once."""
    return gram_matrix([rows.T], len(rows), rows.device)


def view_retrieval(
    views: Tensor | Gallery,
    *,
    shrinkage: float = RETRIEVAL_SHRINKAGE,
    whiten: bool = True,
    top1: bool = False,
) -> float:
    """1 − mean ln(1 + r) / ln(M − q + 1): 1 where every view's nearest neighbour is of its image.

    r is how many views of *other* images are as near to a view, by cosine, as the nearest one of
    its own image, or nearer: from 0 to M − q, so that a collapse to a few points is no success.
    The logarithm lets the first ranks count most; whitening keeps a few directions of large
    variance (brightness, background) from deciding. 0 for features that do not vary. Of the first
    512 images at most. Higher is better. The form was chosen by accuracy on runs of SimCLR and
    BYOL, and confirmed on other methods: docs/FINDINGS.md.

    With ``top1`` the mean of [r = 0]. Plain top-1 is 1 − ACR, see `acr`.

    Args:
        views: (n, q, D), or a gallery of them.
        shrinkage: of the covariance, see `Gallery`; a gallery has its own.
        whiten: compare after whitening.
        top1: count the views whose nearest neighbour is of their image, in place of the log rank.

    Returns:
        The score, 0 to 1.

    Raises:
        ValueError: as `Gallery`.

    Example:
        >>> view_retrieval(torch.eye(8)[:, None].expand(-1, 2, -1))
        1.0
    """
    gallery = _gallery(views, shrinkage)
    ranks = gallery.ranks(whiten).double()
    if top1:
        return float((ranks == 0).double().mean())
    return 1.0 - float(torch.log1p(ranks).mean()) / math.log(gallery.others + 1)


def acr(views: Tensor | Gallery) -> float:
    """Average confusion ratio: how often a view's nearest neighbour is of another image.

        ACR = 1/M Σ_i [r_i > 0]

    of views of unit length, by Euclidean distance, one neighbour. Lower is better. Wang et al.,
    "Chaos is a Ladder", 2022, https://arxiv.org/abs/2203.13457. Checked against the authors' code,
    with two differences: every view asks, not one view an image, and a tie counts as confusion,
    so that a collapsed network has 1.

    Args:
        views: (n, q, D), or a gallery of them.

    Returns:
        The ratio, 0 to 1.

    Raises:
        ValueError: as `Gallery`.

    Example:
        >>> acr(torch.eye(8)[:, None].expand(-1, 2, -1))
        0.0
    """
    return 1.0 - view_retrieval(views, whiten=False, top1=True)


def gacr(views: Tensor | Gallery, *, over: str = "mean") -> float:
    """ACR with the distance of a view to an image: the mean, min or max over the image's views.

    A view is confused where another image is as near to it as its own, or nearer; its own image
    is represented by its q − 1 other views. Lower is better. With ``min`` this is `acr`.
    Zhang, Wang, Wang, 2025, https://arxiv.org/abs/2511.03114. The paper's text was not at hand:
    this follows the authors' published code (one way of averaging for the own image and one for
    others; here the same for both), in which the nearest image but one is looked at, an oversight
    that is not followed.

    Args:
        views: (n, q, D), or a gallery of them.
        over: mean, min or max.

    Returns:
        The ratio, 0 to 1.

    Raises:
        ValueError: for another ``over``, or as `Gallery`.
    """
    check_choice("over", over, OVER_VIEWS)
    found = _gallery(views)
    distance = (2.0 - 2.0 * found.plain).clamp_(min=0.0).sqrt_()
    distance.fill_diagonal_(math.inf if over == "min" else 0.0)
    grouped = distance.unflatten(1, (found.n, found.q))  # (M, n, q)
    own = found.own[:, :: found.q]  # (M, n)
    if over == "mean":
        to_image = grouped.sum(2) / torch.where(own, found.q - 1, found.q)
    else:
        to_image = grouped.amin(2) if over == "min" else grouped.amax(2)
    mine = to_image[own][:, None]
    confused = ((to_image <= mine + _TIE_DISTANCE) & ~own).any(1)
    return float(confused.double().mean())


def arc(confusion: float, confusion_at_start: float) -> float:
    """Average relative confusion, (1 − ACR) / (1 − ACR of the network before training).

    Higher is better. Runs from one start are ordered as by ACR; what the ratio adds is that a
    recipe whose views an untrained network can match already is not taken for learning. Wang et
    al., 2022, https://arxiv.org/abs/2203.13457; of GACR it is GARC,
    https://arxiv.org/abs/2511.03114.

    Args:
        confusion: ACR or GACR of the trained network.
        confusion_at_start: the same of the network before its first step, on the same views.

    Returns:
        The ratio, at least 0.

    Raises:
        ValueError: if a ratio is outside 0 to 1, or the start confuses all views.

    Example:
        >>> arc(0.25, 0.5)
        1.5
    """
    check_number("confusion", confusion, high=1.0)
    check_number("confusion_at_start", confusion_at_start, high=1.0)
    if confusion_at_start == 1.0:
        raise ValueError("the network before training confuses all views: no ratio to it")
    return (1.0 - confusion) / (1.0 - confusion_at_start)


def info_nce(
    views: Tensor | Gallery,
    *,
    temperature: float = INFO_NCE_TEMPERATURE,
    whiten: bool = False,
    shrinkage: float = RETRIEVAL_SHRINKAGE,
) -> float:
    """Held-out InfoNCE: the smooth twin of retrieval, which does not saturate; lower is better.

        mean over ordered pairs i ≠ j of one image of
        −log exp(s_ij/τ) / (exp(s_ij/τ) + Σ_k exp(s_ik/τ)),  k over the M − q views of others

    ln(M − q + 1) where all views are alike. van den Oord et al., 2018,
    https://arxiv.org/abs/1807.03748, as in SimCLR but with other images' views only as negatives.

    Args:
        views: (n, q, D), or a gallery of them.
        temperature: τ; fixed, whatever a run was trained with.
        whiten: compare after whitening.
        shrinkage: of the covariance, see `Gallery`; a gallery has its own.

    Returns:
        The loss in nats.

    Raises:
        ValueError: if the temperature is not above 0, or as `Gallery`.

    Example:
        >>> round(info_nce(torch.ones(5, 2, 3)), 4) == round(math.log(9), 4)
        True
    """
    check_number("temperature", temperature, low=1e-6)
    gallery = _gallery(views, shrinkage)
    logits = gallery.cosines(whiten) / temperature
    negatives = logits.masked_fill(gallery.own, -math.inf).logsumexp(1, keepdim=True)  # (M, 1)
    pairs = gallery.own.clone().fill_diagonal_(False)
    return float(F.softplus(negatives - logits)[pairs].mean())


def _gallery(views: Tensor | Gallery, shrinkage: float = RETRIEVAL_SHRINKAGE) -> Gallery:
    return views if isinstance(views, Gallery) else Gallery(views, shrinkage=shrinkage)
