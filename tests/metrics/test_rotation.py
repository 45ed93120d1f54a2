"""The rotation probe: where the turn is known, where nothing is, and beside a fit of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from radial.metrics.multiview import rotation_probe


def turned(signal: float, n: int = 120, d: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(n, 1, d, generator=generator)
    return images + signal * torch.eye(4, d) + torch.randn(n, 4, d, generator=generator)


def test_ends_of_the_scale() -> None:
    assert rotation_probe(turned(20.0)) == 1.0
    # 240 answers of one in four: a standard error of 0.028
    assert rotation_probe(turned(0.0)) == pytest.approx(0.25, abs=0.1)
    assert rotation_probe(torch.ones(16, 4, 3)) == 0.25


def test_what_an_image_looks_like_is_no_help() -> None:
    """All turns of an image on one side: a code of the image, however clear, says nothing."""
    code = torch.eye(64)[:, None].expand(-1, 4, -1)
    assert rotation_probe(code) == 0.25


def test_equals_a_fit_by_scipy() -> None:
    x = turned(1.0).double()
    order = torch.randperm(120, generator=torch.Generator().manual_seed(0))
    fit, test = x[order[:60]].reshape(240, 6).numpy(), x[order[60:]].reshape(240, 6).numpy()
    mean, deviation = fit.mean(0), fit.std(0)
    fit, test = (fit - mean) / deviation, (test - mean) / deviation
    y = np.tile(np.arange(4), 60)

    def loss(theta: np.ndarray) -> float:
        w, b = theta[:24].reshape(4, 6), theta[24:]
        logits = fit @ w.T + b
        chosen = logits[np.arange(240), y] - np.logaddexp.reduce(logits, axis=1)
        return float(-chosen.sum() * 10.0 / 6 + 0.5 * (w**2).sum())  # C = 10/D

    theta = minimize(loss, np.zeros(28), method="BFGS").x
    guess = (test @ theta[:24].reshape(4, 6).T + theta[24:]).argmax(1)
    assert rotation_probe(x) == pytest.approx(float((guess == y).mean()), abs=1 / 240)


@pytest.mark.parametrize("shape", [(8, 3, 4), (2, 4, 4), (8, 4)])
def test_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rotations must have shape"):
        rotation_probe(torch.zeros(shape))
    with pytest.raises(ValueError, match="rotations"):
        rotation_probe(torch.full((8, 4, 2), math.nan))
