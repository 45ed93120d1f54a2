"""How well frozen features tell by which quarter turn an image was rotated.

Legend: n images with 4 turns each, D features.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from radial.checks import check_finite, check_size, check_tensor
from radial.metrics.registry import ROTATION_IMAGES, ROTATION_VARIANCE

TURNS = 4
_ITERATIONS = 500


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
