"""Every kind of image file becomes the right pixels, or is named as unreadable."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from radial import pictures
from radial.data import DataError, load_data
from radial.data.images import decode, square
from radial.pictures import read_picture

RED = (200, 40, 20)


def saved(image: Image.Image, path: Path, **options: object) -> str:
    image.save(path, **options)
    return str(path)


@pytest.mark.parametrize(
    ("mode", "suffix", "tolerance"),
    [
        ("RGB", "png", 0),
        ("RGB", "bmp", 0),
        ("RGB", "tiff", 0),
        ("RGB", "jpg", 4),
        ("RGB", "webp", 6),
        ("RGBA", "png", 0),
        ("P", "png", 0),
        ("P", "gif", 0),
        ("CMYK", "jpg", 6),
        ("CMYK", "tiff", 0),
        ("YCbCr", "jpg", 4),
    ],
)
def test_colours(tmp_path: Path, mode: str, suffix: str, tolerance: int) -> None:
    image = Image.new("RGB", (8, 8), RED)
    image = image.quantize() if mode == "P" else image.convert(mode)
    options = {"lossless": True} if suffix == "webp" else {}
    pixels = decode(saved(image, tmp_path / f"image.{suffix}", **options), 8)
    assert pixels.shape == (3, 8, 8)
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - np.array(RED)[:, None, None]).max() <= tolerance


@pytest.mark.parametrize("mode", ["L", "LA", "1"])
def test_greys(tmp_path: Path, mode: str) -> None:
    image = Image.fromarray(np.array([[0, 255], [255, 0]], np.uint8)).convert(mode)
    pixels = decode(saved(image, tmp_path / "grey.png"), 2)
    assert pixels.tolist() == [[[0, 255], [255, 0]]] * 3


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bits(tmp_path: Path, suffix: str) -> None:
    deep = np.array([[0, 257], [32768, 65535]], np.uint16)
    pixels = decode(saved(Image.fromarray(deep), tmp_path / f"deep.{suffix}"), 2)
    assert pixels.tolist() == [[[0, 1], [128, 255]]] * 3


def test_palette_with_transparency(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 8), RED).quantize()
    path = saved(image, tmp_path / "clear.png", transparency=bytes([0, 128]))
    assert decode(path, 8)[:, 0, 0].tolist() == list(RED)


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(tmp_path: Path, orientation: int, suffix: str) -> None:
    upright = np.zeros((32, 32, 3), np.uint8)
    upright[:8, :16] = 255  # bright and wide at the top left
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(np.ascontiguousarray(stored))
    pixels = decode(saved(image, tmp_path / f"turned.{suffix}", exif=exif), 32)
    assert np.abs(pixels.astype(int) - upright.transpose(2, 0, 1)).max() < 30


@pytest.mark.parametrize("size", [(40, 20), (20, 40)])
def test_the_centre_is_kept(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    top, left = (size[1] - 20) // 2, (size[0] - 20) // 2
    pixels[top : top + 20, left : left + 20] = np.arange(20 * 20 * 3).reshape(20, 20, 3) % 256
    path = saved(Image.fromarray(pixels), tmp_path / "long.png")
    centre = pixels[top : top + 20, left : left + 20].transpose(2, 0, 1)
    assert np.array_equal(decode(path, 20), centre)
    halves = centre.reshape(3, 10, 2, 10, 2).mean((2, 4))
    assert np.abs(decode(path, 10) - halves).mean() < 25


def test_shrinking_is_antialiased(tmp_path: Path) -> None:
    stripes = np.tile(np.array([0, 255], np.uint8), (64, 32))
    pixels = decode(saved(Image.fromarray(stripes), tmp_path / "stripes.png"), 8)
    assert np.abs(pixels.astype(int) - 127).max() <= 12


def broken_files() -> dict[str, bytes]:
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(noise).save(buffer, "JPEG")
    png = io.BytesIO()
    Image.fromarray(noise).save(png, "PNG")
    return {
        "cut.jpg": buffer.getvalue()[: len(buffer.getvalue()) // 2],
        "cut.png": png.getvalue()[:200],
        "empty.jpg": b"",
        "page.jpg": b"<!doctype html><title>404</title>",
        "zeros.png": bytes(500),
    }


@pytest.mark.parametrize("memory_limit", [0.0, 2.0])
def test_unreadable_images_are_skipped_and_named(make_folder, memory_limit: float) -> None:
    path = make_folder({"a": 15, "b": 15})
    whole = load_data(f"folder:{path}")
    for name, content in broken_files().items():
        (path / "a" / name).write_bytes(content)
    spec = f"folder:{path}"
    for _ in range(2):  # read, then remembered
        with pytest.warns(
            UserWarning, match=r"5 of 35 images .* left out: 'a/cut.jpg', "
        ) as caught:
            data = load_data(spec, memory_limit=memory_limit, max_bad=5)
        assert len(caught) == 1
        assert data.skipped == tuple(sorted(f"a/{name}" for name in broken_files()))
        assert len(data.train) + len(data.val) + len(data.test) == 30
        assert data.image_size == whole.image_size == 16
        pixels = data.train.__getitems__(range(len(data.train))).double() / 255
        torch.testing.assert_close(data.mean.double(), pixels.mean((0, 2, 3)), rtol=1e-6, atol=0)
        with pytest.raises(
            DataError, match=r"than the 4 that may be .*: 'a/cut.jpg' \(.*\), .*, …"
        ):
            load_data(spec, memory_limit=memory_limit, max_bad=4)


def test_images_that_can_be_read_again_are_taken_back(
    make_folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_folder({"a": 10, "b": 10})
    opened = pictures._regular

    def failing(file: str) -> Any:
        if file.endswith("a/00.png"):
            raise OSError(5, "Input/output error")
        return opened(file)

    with monkeypatch.context() as patch:
        patch.setattr(pictures, "_regular", failing)
        with pytest.warns(UserWarning, match=r"1 of 20 images .* 'a/00.png'"):
            load_data(f"folder:{path}", memory_limit=0)
    assert load_data(f"folder:{path}", memory_limit=0).skipped == ()


def test_nothing_readable(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.png").write_bytes(b"")
    with pytest.raises(DataError, match="than the 3 that may be"):
        load_data(f"folder:{tmp_path}", max_bad=3)
    with pytest.raises(DataError, match="no readable image is left"):
        load_data(f"folder:{tmp_path}", max_bad=10)


@pytest.mark.parametrize("factor", [0.6, 3])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    path = saved(Image.new("L", (100, 100)), tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(10_000 / (2 * factor)))
    with pytest.raises(DataError, match="decompression bomb"):
        decode(path, 8)


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    path = saved(Image.fromarray(np.ones((4, 4), np.float32)), tmp_path / "float.tiff")
    with pytest.raises(DataError, match="no known range"):
        decode(path, 4)


def test_a_file_that_breaks_later_is_named(make_folder) -> None:
    path = make_folder({"a": 10, "b": 10})
    data = load_data(f"folder:{path}", memory_limit=0)
    name = data.train.name(0)
    (path / name).write_bytes(b"")
    with pytest.raises(DataError, match=rf"cannot read image '.*{name}': not an image"):
        data.train[0]
    (path / name).unlink()
    with pytest.raises(DataError, match=rf"cannot read image '.*{name}': No such file"):
        data.train[0]


@pytest.mark.parametrize("orientation", [1, 6])
def test_large_jpegs_are_decoded_small(tmp_path: Path, monkeypatch, orientation: int) -> None:
    y, x = np.mgrid[0:900, 0:1200] / 100.0
    waves = np.stack([np.sin(x + y), np.cos(x * y / 3), np.sin(3 * x)], 2)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray((127.5 * (waves + 1)).astype(np.uint8))
    path = saved(image, tmp_path / "large.jpg", quality=95, exif=exif)
    whole = square(read_picture(path), 64).astype(int)
    sizes: list[tuple[int, int]] = []
    turn = ImageOps.exif_transpose

    def spy(image: Image.Image, **how: Any) -> None:
        sizes.append(image.size)
        turn(image, **how)

    monkeypatch.setattr(ImageOps, "exif_transpose", spy)
    small = decode(path, 64).astype(int)
    assert sizes == [(300, 225)]  # a quarter: an eighth would be less than twice the size
    assert np.abs(small - whole).mean() < 1
    assert np.abs(small - whole).max() < 12
    assert np.array_equal(decode(path, 460), square(read_picture(path), 460))
