"""Scores of the trained kernels *with* unlabelled images: which kernel answers to which image.

Each image comes as q augmented views, and each view is assigned to its nearest kernel in scaled
distance ε_k ‖x − c_k‖. A head that has learned uses many of its kernels (occupancy), and gives
the views of one image the same kernel where views of other images get other ones (information,
agreement). All three are better when higher: declared here, before any accuracy was looked at.

Legend: n images, q views, K kernels, a = nearest kernels (n, q).
"""

from __future__ import annotations

import math
from itertools import combinations

import torch
from torch import Tensor

from radial.checks import check_size


def occupancy(nearest: Tensor, kernels: int) -> float:
    """H(a) / ln K: 1 where all kernels take as many views, 0 where one takes all.

    >>> occupancy(torch.tensor([[0, 1], [2, 3]]), 4)
    1.0
    """
    check_size("kernels", kernels, minimum=2)
    _check(nearest, kernels)
    share = torch.bincount(nearest.flatten(), minlength=kernels).double() / nearest.numel()
    return float(torch.special.entr(share).sum() / math.log(kernels))


def information(nearest: Tensor) -> float:
    """I(a; b) − E I, in nats: what the kernel of one view tells of that of another.

    I is the mutual information in the table of pairs of views, E I its expectation where the
    views are dealt to images at random with the same occupancy (Vinh et al., 2010,
    https://jmlr.org/papers/v11/vinh10a.html): without it few images and many kernels would
    look like information. The mean over all pairs of the q views.

    >>> round(information(torch.arange(4).repeat(64)[:, None].expand(-1, 2)), 2)  # ln 4 less 0.02
    1.37
    """
    from sklearn.metrics import mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

    _check(nearest)
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

    >>> agreement(torch.tensor([[0, 0], [1, 1], [2, 2]]))
    1.0
    """
    _check(nearest)
    n, q = nearest.shape
    if q < 2:
        raise ValueError("agreement needs at least two views of each image, not 1")
    share = torch.bincount(nearest.flatten()).double() / nearest.numel()
    chance = float(share.square().sum())
    if chance >= 1.0:
        return 0.0
    pairs = (nearest[:, :, None] == nearest[:, None, :]).sum() - n * q
    return (float(pairs) / (n * q * (q - 1)) - chance) / (1.0 - chance)


def _check(nearest: Tensor, kernels: int | None = None) -> None:
    if nearest.dtype != torch.int64 or nearest.dim() != 2 or len(nearest) < 2:
        found = f"{nearest.dtype} of shape {tuple(nearest.shape)}"
        raise ValueError(f"nearest kernels must be int64 of shape (n ≥ 2, q), not {found}")
    low, high = int(nearest.min()), int(nearest.max())
    if low < 0 or (kernels is not None and high >= kernels):
        raise ValueError(f"nearest kernels must be in 0 … {kernels or 'K'} − 1, not {low} … {high}")
