"""What is kept of an image: its bytes, or its pixels turned and shrunk; never half of one."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from radial.data.images import decode
from radial.open_images.workers import NotWhole, prepared

PIXELS = np.kron(
    np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8), np.ones((8, 8, 1), np.uint8)
)  # 56 × 40, of even squares, which JPEG keeps


def encoded(kind: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    buffer = io.BytesIO()
    if kind == "JPEG":
        options = {"quality": 95, "subsampling": 0, **options}
    Image.fromarray(PIXELS).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def pixels(content: bytes) -> Any:
    with Image.open(io.BytesIO(content)) as image:
        assert image.format == "JPEG"
        assert not image.getexif()
        return np.asarray(image.convert("RGB"), float)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}])
def test_every_cut_is_noticed(mode: str, options: dict[str, Any]) -> None:
    whole = encoded(mode=mode, **options)
    assert prepared(whole) == whole
    assert prepared(whole + b"\0\0") == whole + b"\0\0"
    for length in range(0, len(whole), 7):
        with pytest.raises(NotWhole):
            prepared(whole[:length])
    with pytest.raises(NotWhole, match="cut short"):
        prepared(whole[:-1])


def test_the_end_of_a_png_is_missed() -> None:
    whole = encoded("PNG")
    assert prepared(whole) == whole
    for length in (*range(1, 30), 200):
        with pytest.raises(NotWhole):
            prepared(whole[:-length])
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    with pytest.raises(NotWhole):
        prepared(bytes(damaged))


def test_sixteen_bits_become_eight() -> None:
    grey = np.arange(4096, dtype=np.uint16).reshape(64, 64) * 16
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "PNG")
    turned = pixels(prepared(buffer.getvalue(), 180))
    assert np.abs(turned - np.rot90(grey / 257, 2)[..., None]).max() < 4


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "an empty file"),
        (b"  <!DOCTYPE HTML><title>Log in</title>", "a web page instead of an image"),
        (b'<?xml version="1.0"?><Error/>', "a web page instead of an image"),
        (b"\xff\xd8\xff\xe0" + bytes(1000), "not an image"),
        (bytes(1000), "not an image"),
        (encoded("GIF"), "not an image"),
    ],
)
def test_what_is_no_image_is_named(content: bytes, reason: str) -> None:
    with pytest.raises(NotWhole, match=f"^{reason}$"):
        prepared(content)


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 56 * 40)
    assert prepared(encoded())
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 56 * 40 - 1)
    with pytest.raises(NotWhole):
        prepared(encoded())


@pytest.mark.parametrize("rotation", [90, 180, 270])
@pytest.mark.parametrize(("kind", "mode"), [("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGBA")])
def test_images_are_turned_counter_clockwise(kind: str, mode: str, rotation: int) -> None:
    content = encoded(kind, mode)
    with Image.open(io.BytesIO(content)) as image:
        wanted = np.rot90(np.asarray(image.convert("RGB"), float), rotation // 90)
    turned = prepared(content, rotation)
    assert np.abs(pixels(turned) - wanted).max() < 12
    assert prepared(content, rotation) == turned


@pytest.mark.parametrize(
    ("size", "shape"), [(20, (20, 28)), (39, (39, 55)), (40, None), (1000, None), (1, (1, 1))]
)
def test_the_short_side_is_shrunk_and_never_enlarged(
    size: int, shape: tuple[int, int] | None
) -> None:
    content = encoded()
    if shape is None:
        assert prepared(content, size=size) == content
    else:
        assert pixels(prepared(content, size=size)).shape == (*shape, 3)
    turned = pixels(prepared(content, 90, size))
    assert turned.shape == ((*shape[::-1], 3) if shape else (56, 40, 3))


def test_shrunk_images_are_what_pillow_makes_of_the_pixels() -> None:
    content = encoded("PNG")
    wanted = Image.fromarray(PIXELS).resize((28, 20), Image.Resampling.LANCZOS)
    assert np.abs(pixels(prepared(content, size=20)) - np.asarray(wanted, float)).mean() < 3


def test_the_tag_of_the_camera_counts_where_the_list_says_nothing(tmp_path: Any) -> None:
    """As when the file is read: a shrunk image shows what the whole one does."""
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    content = encoded(exif=exif)
    assert prepared(content) == content
    (tmp_path / "a.jpg").write_bytes(content)
    seen = decode(str(tmp_path / "a.jpg"), 20).transpose(1, 2, 0)
    shrunk = pixels(prepared(content, size=20))
    assert shrunk.shape == (28, 20, 3)
    assert np.abs(shrunk[4:24] - seen).mean() < 25
    turned = pixels(prepared(content, 180))  # the list says more than the tag
    assert np.abs(turned - np.rot90(PIXELS, 2)).max() < 12
