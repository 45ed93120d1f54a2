"""Every radial function and option starts alive: a corner of benchmarks/liveness.py."""

from __future__ import annotations

import itertools

import pytest
import torch

from radial import RBFNProjectionHead, calibrate, diagnose
from radial.rbf.functions import RADIAL_FUNCTIONS

OPTIONS = list(itertools.product((False, True), (False, True)))


def features(dimensions: int) -> torch.Tensor:
    mix = torch.randn(64, dimensions, generator=torch.Generator().manual_seed(1))
    return torch.relu(torch.randn(256, 64) @ mix / 8.0 + 0.5)


def check_alive(head: RBFNProjectionHead, x: torch.Tensor) -> None:
    report = diagnose(head, x)
    assert report.alive, report
    assert report.dead_kernels == 0.0
    assert 0.1 < report.gradient_gain / report.mlp_gradient_gain < 10.0, report


def check_both_starts(name: str, normalize: bool, batch_norm: bool, dimensions: int) -> None:
    head = RBFNProjectionHead(
        dimensions,
        dimensions,
        64,
        num_kernels=64,
        radial_function=name,
        normalize=normalize,
        batch_norm=batch_norm,
        residual=False,
    )
    check_alive(head, features(dimensions))
    check_alive(calibrate(head, features(dimensions)), features(dimensions))


@pytest.mark.parametrize("name", list(RADIAL_FUNCTIONS))
@pytest.mark.parametrize(("normalize", "batch_norm"), OPTIONS)
def test_alive(name: str, normalize: bool, batch_norm: bool) -> None:
    check_both_starts(name, normalize, batch_norm, 128)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RADIAL_FUNCTIONS))
@pytest.mark.parametrize(("normalize", "batch_norm"), OPTIONS)
def test_alive_in_2048_dimensions(name: str, normalize: bool, batch_norm: bool) -> None:
    check_both_starts(name, normalize, batch_norm, 2048)
