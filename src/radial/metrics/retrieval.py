"""Do the views of an image find each other among the views of all images?

Legend: n images, q views of each, M = nq views, D features (or kernels).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from radial.checks import check_finite, check_tensor

IMAGES = 512  # at most: M × M similarities are looked at
TIE = 1e-12  # cosines as near as that are equal
SHRINKAGE = 0.1  # of the covariance towards a multiple of the identity


@torch.no_grad()
def view_retrieval(views: Tensor, *, shrinkage: float = SHRINKAGE) -> float:
    """1 − mean ln(1 + r) / ln(M − q + 1): 1 where every view's nearest neighbour is of its image.

    ``views`` has shape (n, q, D). They are whitened, z = Σ^(−½)(x − μ), with the covariance of all
    views shrunk towards a multiple of the identity, Σ = (1 − s)Σ̂ + s tr(Σ̂)/D I, and compared by
    cosine. r is how many views of *other* images are as near to a view as the nearest one of its
    own image, or nearer: from 0 to M − q, so that a collapse to a few points is no success. The
    logarithm lets the first ranks count most; whitening keeps a few directions of large variance
    (brightness, background) from deciding. 0 for features that do not vary. Of the first 512
    images at most. Higher is better. The form was chosen by accuracy on runs of SimCLR and BYOL,
    and confirmed on other methods: docs/FINDINGS.md.

    >>> view_retrieval(torch.eye(8)[:, None].expand(-1, 2, -1))
    1.0
    """
    check_tensor("views", views)
    if views.dim() != 3 or len(views) < 2 or views.shape[1] < 2:
        shape = tuple(views.shape)
        raise ValueError(f"views must have shape (n ≥ 2, q ≥ 2, D), not {shape}")
    if not 0.0 < shrinkage <= 1.0:
        raise ValueError(f"shrinkage must lie in (0, 1], not {shrinkage}")
    check_finite("views", views)
    x = views[:IMAGES].double()
    n, q, _ = x.shape
    x = x.flatten(0, 1)
    x = x - x.mean(0)
    covariance = x.T @ x / len(x)
    level = float(covariance.diagonal().mean())
    if level <= torch.finfo(torch.float64).tiny:
        return 0.0
    covariance.mul_(1.0 - shrinkage).diagonal().add_(shrinkage * level)
    root = torch.linalg.cholesky(covariance)
    z = torch.linalg.solve_triangular(root, x.T, upper=False).T  # (M, D)
    z = torch.nn.functional.normalize(z, dim=1)
    similarity = z @ z.T
    similarity.fill_diagonal_(-math.inf)
    image = torch.arange(n, device=x.device).repeat_interleave(q)
    own = image[:, None] == image
    nearest = similarity.masked_fill(~own, -math.inf).amax(1, keepdim=True)
    ahead = ((similarity >= nearest - TIE) & ~own).sum(1)
    return 1.0 - float(torch.log1p(ahead.double()).mean()) / math.log(n * q - q + 1)
