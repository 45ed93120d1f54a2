"""Statistics of a folder against NumPy in float64, and torch as the published code uses it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from radial.data import DataError
from radial.data.statistics import FolderStatistics, folder_statistics, mean_std, print_statistics


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """37 + 14 images of many sizes, of low and high contrast."""
    rng = np.random.default_rng(3)
    for name, count in (("Food", 37), ("Toy & game", 14)):
        (tmp_path / "mixed" / name).mkdir(parents=True)
        for number in range(count):
            width, height = rng.integers(1, 70, 2)
            low, high = np.sort(rng.integers(0, 256, 2))
            pixels = rng.integers(low, high + 1, (height, width, 3)).astype(np.uint8)
            pixels[..., 1] //= 2
            Image.fromarray(pixels).save(tmp_path / "mixed" / name / f"{number:016x}.png")
    return tmp_path / "mixed"


def opened(root: Path, size: int | None = None) -> list[np.ndarray]:
    """float64 (H, W, 3) in [0, 1]"""
    found = []
    for path in sorted(root.rglob("*.png")):
        with Image.open(path) as image:
            small = image.resize((size, size), Image.Resampling.BILINEAR) if size else image
            found.append(np.asarray(small).astype(np.float64) / 255)
    return found


def printed(stats: FolderStatistics, width: int = 90) -> str:
    console = Console(width=width, file=io.StringIO())
    print_statistics(stats, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("size", [None, 32])
@pytest.mark.parametrize("threads", [1, 3])
def test_equal_to_numpy_in_float64(mixed: Path, size: int | None, threads: int) -> None:
    stats = folder_statistics(mixed, image_size=size, threads=threads)
    images = opened(mixed, size)
    pixels = np.concatenate([image.reshape(-1, 3) for image in images])
    exact = {"rtol": 1e-12, "atol": 1e-15}
    np.testing.assert_allclose(stats.mean, pixels.mean(0), **exact)
    np.testing.assert_allclose(stats.std, pixels.std(0), **exact)
    means = np.array([image.mean((0, 1)) for image in images])
    stds = np.array([i.reshape(-1, 3).std(0, ddof=int(i.size > 3)) for i in images])
    np.testing.assert_allclose(stats.image_mean, means.mean(0), **exact)
    np.testing.assert_allclose(stats.image_std, stds.mean(0), **exact)
    sizes = [image.shape for image in opened(mixed)]
    assert stats.pixels == len(pixels)
    assert stats.height == pytest.approx(np.mean([height for height, _, _ in sizes]), rel=1e-15)
    assert stats.width == pytest.approx(np.mean([width for _, width, _ in sizes]), rel=1e-15)
    assert (stats.images, stats.classes) == (51, {"Food": 37, "Toy & game": 14})
    assert stats.unreadable == {}
    if size:
        np.testing.assert_allclose(stats.mean, stats.image_mean, **exact)
        assert all(inner < outer for inner, outer in zip(stats.image_std, stats.std))


def test_published_figures_at_224_px(mixed: Path) -> None:
    """As the published tool computes them: squashed by torchvision, torch's std, in float32."""
    from torchvision.transforms import v2

    transform = v2.Compose(
        [v2.Resize((224, 224)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    )
    means, stds = [], []
    for path in sorted(mixed.rglob("*.png")):
        with Image.open(path) as image:
            pixels = transform(image)
        means.append(pixels.mean((1, 2)))
        stds.append(pixels.std((1, 2)))
    stats = folder_statistics(mixed, image_size=224)
    np.testing.assert_allclose(stats.image_mean, torch.stack(means).double().mean(0), atol=1e-6)
    np.testing.assert_allclose(stats.image_std, torch.stack(stds).double().mean(0), atol=1e-6)


def test_threads_do_not_change_a_digit(mixed: Path) -> None:
    one, many = (folder_statistics(mixed, threads=threads) for threads in (1, 5))
    assert one == many


def test_training_statistics_are_the_same(mixed: Path) -> None:
    stats = folder_statistics(mixed, image_size=16)
    pixels = np.concatenate([image.reshape(-1, 3) for image in opened(mixed, 16)])
    values = (pixels * 255).round().astype(np.int64)
    mean, std = mean_std(np.stack([np.bincount(channel, minlength=256) for channel in values.T]))
    assert stats.mean == pytest.approx(mean, rel=1e-14)
    assert stats.std == pytest.approx(std, rel=1e-14)


def test_one_colour_has_no_spread(tmp_path: Path) -> None:
    (tmp_path / "grey").mkdir()
    Image.new("RGB", (5, 3), (51, 51, 51)).save(tmp_path / "grey" / "a.png")
    Image.new("L", (1, 1), 51).save(tmp_path / "grey" / "b.png")
    stats = folder_statistics(tmp_path / "grey")
    assert stats.mean == stats.image_mean == (0.2, 0.2, 0.2)
    assert stats.std == stats.image_std == (0, 0, 0)
    assert (stats.width, stats.height, stats.pixels, stats.classes) == (3, 2, 16, {})
    assert "2 images, unlabelled" in printed(stats)


def test_images_are_turned_upright(tmp_path: Path) -> None:
    (tmp_path / "turned").mkdir()
    image = Image.new("RGB", (40, 10))
    exif = image.getexif()
    exif[0x0112] = 6  # a quarter turn
    image.save(tmp_path / "turned" / "a.jpg", exif=exif)
    stats = folder_statistics(tmp_path / "turned")
    assert (stats.width, stats.height) == (10, 40)


def test_unreadable_files_are_named(mixed: Path) -> None:
    whole = folder_statistics(mixed)
    (mixed / "Food" / "[b]page.jpg").write_text("<html>")
    content = (mixed / "Food" / f"{3:016x}.png").read_bytes()
    (mixed / "Food" / "cut.png").write_bytes(content[: len(content) // 2])
    stats = folder_statistics(mixed, threads=2)
    assert stats.unreadable.keys() == {"Food/[b]page.jpg", "Food/cut.png"}
    assert stats.unreadable["Food/[b]page.jpg"] == "not an image (JPEG, PNG, WEBP, BMP, GIF, TIFF)"
    assert (stats.mean, stats.std, stats.classes) == (whole.mean, whole.std, whole.classes)
    assert stats.image_std == pytest.approx(whole.image_std, rel=1e-14)
    shown = printed(stats)
    assert "2 files cannot be read:\n  Food/[b]page.jpg: not an image (" in shown
    assert "\n  Food/cut.png: " in shown
    for number in range(30):
        (mixed / "Food" / f"x{number}.png").write_bytes(b"")
    assert "\n  … and 12 more\n" in printed(folder_statistics(mixed))


def test_what_is_printed(mixed: Path) -> None:
    stats = folder_statistics(mixed, image_size=224)
    shown = printed(stats)
    assert shown.startswith("51 images in 2 classes, 14 to 37 each\nmean resolution ")
    assert "; here resized to 224 × 224 px\n" in shown
    assert "Food 37   Toy & game 14" in shown
    for label, values in (
        ("mean of all pixels", stats.mean),
        ("std of all pixels", stats.std),
        ("mean of images' means", stats.image_mean),
        ("mean of images' stds, as published", stats.image_std),
    ):
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{label}  ")]
        assert line.split()[-3:] == [f"{value:.5f}" for value in values]
    assert "as published" not in printed(folder_statistics(mixed))


def test_to_dict_is_json(mixed: Path) -> None:
    (mixed / "Food").rename(mixed / "Fo\nod\udcff")
    stats = folder_statistics(mixed)
    written = json.loads(json.dumps(stats.to_dict(), ensure_ascii=False).encode())
    assert written["mean"] == list(stats.mean)
    assert written["classes"] == {"Fo�od�": 37, "Toy & game": 14}
    assert written["path"] == str(mixed)
    assert "Fo�od� 37" in printed(stats)


def test_progress(mixed: Path) -> None:
    calls: list[tuple[int, int]] = []
    folder_statistics(mixed, threads=1, progress=lambda done, of: calls.append((done, of)))
    assert calls == [(16, 51), (32, 51), (48, 51), (51, 51)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"image_size": 0}, "image_size must be an integer of at least 1, not 0"),
        ({"threads": 0}, "threads must be an integer of at least 1, not 0"),
        ({"path": "/no/such/place"}, "/no/such/place is not there"),
    ],
)
def test_arguments_that_cannot_be(mixed: Path, settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        folder_statistics(**{"path": mixed} | settings)


def test_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    with pytest.raises(DataError, match=r"no images in .*bad"):
        folder_statistics(tmp_path / "bad")
    (tmp_path / "bad" / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"none of 1 images in .*bad can be read, .*'a.png': not"):
        folder_statistics(tmp_path / "bad")
