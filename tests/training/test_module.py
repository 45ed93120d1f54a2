"""What the LightningModule tells of its embeddings."""

from __future__ import annotations

import pytest
import torch

from radial.training.module import embedding_spread


def test_spread_of_isotropic_and_of_collapsed_embeddings() -> None:
    assert embedding_spread(torch.randn(4096, 64)) == pytest.approx(1.0, abs=0.01)
    assert embedding_spread(torch.ones(64, 16) + 1e-6 * torch.randn(64, 16)) < 1e-4
