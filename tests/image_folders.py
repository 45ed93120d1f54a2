"""Shared by the tests of data: a cache of their own, and folders of images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

MakeFolder = Callable[..., Path]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RADIAL_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """Random images: ``make_folder({"cat": 10, "dog": 10})`` makes cat/00.png and so on."""

    def make(
        counts: dict[str, int],
        size: tuple[int, int] = (16, 16),
        suffix: str = "png",
        reverse: bool = False,
        name: str = "images",
    ) -> Path:
        for place in sorted(counts, reverse=reverse):
            folder = tmp_path / name / place
            folder.mkdir(parents=True, exist_ok=True)
            numbers = range(counts[place])
            for number in reversed(numbers) if reverse else numbers:
                seed = [*place.encode(), number]
                pixels = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), np.uint8)
                Image.fromarray(pixels).save(folder / f"{number:02}.{suffix}")
        return tmp_path / name

    return make
