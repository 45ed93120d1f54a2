"""Contact sheets: every class is on them, in its place, with the images it should have."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from radial.data import DataError
from radial.data.contact_sheet import Layout, contact_sheet


@pytest.fixture
def make_colours(tmp_path: Path):
    """Class folders whose images are of one colour each, red saying the class, green the number."""

    def make(counts: dict[str, int], name: str = "colours") -> Path:
        for label, (place, count) in enumerate(counts.items()):
            (tmp_path / name / place).mkdir(parents=True)
            for number in range(count):
                image = Image.new("RGB", (30, 20), (2 * label, 10 * number, 77))
                image.save(tmp_path / name / place / f"{number:016x}.png")
        return tmp_path / name

    return make


def read(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def middles(pixels: np.ndarray, layout: Layout, number: int) -> list[tuple[int, ...]]:
    """The colours in the middle of a class's images."""
    left, top = layout.corner(number)
    row = top + layout.label + layout.side // 2
    columns = [left + n * (layout.side + layout.gap) for n in range(layout.per_class)]
    return [tuple(pixels[row, column + layout.side // 2]) for column in columns]


@pytest.mark.parametrize("classes", [1, 2, 10, 33, 100])
def test_every_class_is_on_it(make_colours, tmp_path: Path, classes: int) -> None:
    root = make_colours({f"Class {label:03}": 5 for label in range(classes)})
    out = contact_sheet(root, tmp_path / "new" / "sheet.png", per_class=3, size=32)
    assert out == tmp_path / "new" / "sheet.png"
    assert [path.name for path in out.parent.iterdir()] == ["sheet.png"]
    layout = Layout(classes, 3, 32)
    pixels = read(out)
    assert pixels.shape == (layout.size[1], layout.size[0], 3)
    order = sorted(range(5), key=lambda n: hashlib.sha256(f"0/{n:016x}".encode()).digest())
    for number in range(classes):
        assert middles(pixels, layout, number) == [(2 * number, 10 * n, 77) for n in order[:3]]
        left, top = layout.corner(number)
        label = pixels[top : top + layout.label, left : left + layout.block[0]]
        assert (label.min(2) < 100).sum() > 20  # dark ink of a name


@pytest.mark.parametrize("classes", [1, 2, 3, 7, 10, 30, 50, 70, 100, 600])
@pytest.mark.parametrize("per_class", [1, 8])
def test_blocks_lie_apart_and_inside(classes: int, per_class: int) -> None:
    layout = Layout(classes, per_class, 96)
    width, height = layout.size
    corners = [layout.corner(number) for number in range(classes)]
    assert len(set(corners)) == classes
    assert {left for left, _ in corners} == {
        corners[0][0] + column * (layout.block[0] + layout.margin)
        for column in range(layout.columns)
    }
    assert max(left for left, _ in corners) + layout.block[0] + layout.margin == width
    assert max(top for _, top in corners) + layout.block[1] + layout.margin == height
    if classes >= 30:
        assert 1.1 < width / height < 2.1


def test_names_differ_and_long_ones_are_cut(make_colours, tmp_path: Path) -> None:
    names = ["Bat", "Cat", "A name that is longer than all of its images " * 2, "no\nlines \udcff"]
    root = make_colours(dict.fromkeys(names, 2))
    pixels = read(contact_sheet(root, tmp_path / "sheet.png", per_class=2, size=48))
    layout = Layout(4, 2, 48)
    shown = []
    for number in range(4):
        left, top = layout.corner(number)
        shown.append(pixels[top : top + layout.label, left : left + layout.block[0]].tolist())
        beside = pixels[top : top + layout.label, left + layout.block[0] + 1 :][
            :, : layout.margin - 2
        ]
        assert (beside > 200).all()
    assert all(shown[a] != shown[b] for a in range(4) for b in range(a))


def test_the_same_sheet_everywhere(make_folder, tmp_path: Path) -> None:
    counts = {"a": 20, "b": 20}
    one = make_folder(counts, name="one/set")
    two = make_folder(counts, name="two/set", reverse=True)
    sheets = [
        contact_sheet(root, tmp_path / f"{number}.png", seed=seed).read_bytes()
        for number, (root, seed) in enumerate(((one, 0), (two, 0), (one, 1)))
    ]
    assert sheets[0] == sheets[1] != sheets[2]


def test_unreadable_images_are_replaced_by_the_next(make_colours, tmp_path: Path) -> None:
    root = make_colours({"few": 2, "many": 9, "none": 1})
    order = sorted(range(9), key=lambda n: hashlib.sha256(f"0/{n:016x}".encode()).digest())
    (root / "many" / f"{order[1]:016x}.png").write_bytes(b"<html>")
    (root / "none" / f"{0:016x}.png").write_bytes(b"")
    layout = Layout(3, 4, 32)
    pixels = read(contact_sheet(root, tmp_path / "sheet.png", per_class=4, size=32))
    paper = tuple(pixels[0, 0])
    assert middles(pixels, layout, 1) == [(2, 10 * order[n], 77) for n in (0, 2, 3, 4)]
    assert middles(pixels, layout, 0)[2:] == [paper, paper]
    empty, *rest = middles(pixels, layout, 2)
    assert empty not in (paper, (4, 0, 77))
    assert rest == [paper] * 3


def test_no_wider_than_there_are_images(make_colours, tmp_path: Path) -> None:
    root = make_colours({"a": 3, "b": 2})
    pixels = read(contact_sheet(root, tmp_path / "sheet.png", per_class=500))
    assert pixels.shape[1::-1] == Layout(2, 3, 96).size


def test_unlabelled_images_and_own_splits(make_folder, tmp_path: Path) -> None:
    flat = contact_sheet(make_folder({"": 4}, name="flat"), tmp_path / "flat.png")
    assert read(flat).shape[1::-1] == Layout(1, 4, 96).size
    counts = {f"{part}/{name}": 2 for part in ("train", "val") for name in "ab"}
    parts = contact_sheet(make_folder(counts, name="parts"), tmp_path / "parts.png")
    assert read(parts).shape[1::-1] == Layout(2, 4, 96).size


@pytest.mark.parametrize(
    ("name", "kind"), [("a.jpg", "JPEG"), ("a.JPEG", "JPEG"), ("a.png", "PNG"), ("a.webp", "WEBP")]
)
def test_formats(make_colours, tmp_path: Path, name: str, kind: str) -> None:
    with Image.open(contact_sheet(make_colours({"a": 2}), str(tmp_path / name))) as image:
        assert image.format == kind


def test_arguments_that_cannot_be(make_colours, tmp_path: Path) -> None:
    root, out = make_colours({"a": 200, "b": 2}), tmp_path / "sheet.png"
    with pytest.raises(DataError, match=r"cannot write '.*sheet.svg': known suffixes are .png, "):
        contact_sheet(root, tmp_path / "sheet.svg")
    with pytest.raises(ValueError, match="per_class must be an integer of at least 1, not 0"):
        contact_sheet(root, out, per_class=0)
    with pytest.raises(ValueError, match="size must be an integer of at least 16, not 8"):
        contact_sheet(root, out, size=8)
    with pytest.raises(
        DataError, match=r"2 classes with 200 images of 96 px is .* fewer per_class"
    ):
        contact_sheet(root, out, per_class=200)
    with pytest.raises(DataError, match=r"a/sheet.png would lie among the images of .*a: choose"):
        contact_sheet(root, root / "a" / "sheet.png")
    with pytest.raises(DataError, match="nowhere is not there"):
        contact_sheet(tmp_path / "nowhere", out)
    assert not out.exists()
    assert not (root / "a" / "sheet.png").exists()
