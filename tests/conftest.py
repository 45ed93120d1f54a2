"""Shared by all tests: one seed, no compiled code left over, a tiny dataset and a tiny run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from radial.training.config import RunConfig


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of 48 noisy 16×16 images: one bright at the top, one at the bottom."""
    root, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for label, name in enumerate(("top", "bottom")):
        (root / name).mkdir()
        for number in range(48):
            pixels = random.integers(0, 120, (16, 16, 3))
            half = slice(8 * label, 8 * label + 8)
            pixels[half] += random.integers(60, 130, 3)
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{number:03d}.png")
    return root


@pytest.fixture
def config(folder: Path, tmp_path: Path) -> Callable[..., RunConfig]:
    def make(**changes: Any) -> RunConfig:
        settings: dict[str, Any] = {
            "data": f"folder:{folder}",
            "data_root": str(tmp_path / "root"),
            "backbone": "resnet9-w0.0625",
            "hidden_dim": 24,
            "output_dim": 12,
            "num_kernels": 8,
            "batch_size": 16,
            "epochs": 3,
            "threads": 1,
            "out": str(tmp_path / "run"),
        }
        settings |= changes
        if not settings.get("head", "").startswith("rbfn"):
            settings.pop("num_kernels", None)
        return RunConfig(**settings)

    return make
