"""A study of tiny runs, on one thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.study.plan import Study, from_values

sys.path.append(str(Path(__file__).parents[2] / "studies"))  # its scripts are tested here


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny(folder: Path) -> Callable[..., Study]:
    """Four runs of a second each, unless told otherwise."""

    def make(**changes: Any) -> Study:
        values: dict[str, Any] = {
            "name": "tiny",
            "constants": {
                "data": f"folder:{folder}",
                "backbone": "resnet9-w0.0625",
                "hidden_dim": 24,
                "output_dim": 12,
                "batch_size": 16,
                "epochs": 3,
            },
            "methods": ["simclr"],
            "heads": {"default": {}, "rbfn": {"num_kernels": 8}},
            "seeds": [0, 1],
            "score": {"images": 16, "view_images": 8, "repeats": 0, "scores": ["rankme"]},
        }
        return from_values(values | changes)

    return make
