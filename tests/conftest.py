"""Shared by all tests: one seed, and no compiled code left over."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
