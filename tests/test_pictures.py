"""What may be opened as an image, whatever a file is named."""

from __future__ import annotations

import ast
import io
import os
from pathlib import Path

import pytest
from PIL import Image

import radial
from radial.data import DataError, OpenImagesV7, load_data
from radial.data.contact_sheet import contact_sheet
from radial.data.statistics import folder_statistics
from radial.open_images.workers import NotWhole, prepared
from radial.pictures import FORMATS, read_picture

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.fixture
def ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``gs`` that Pillow would find and run; the file that it leaves behind when it was."""
    mark, program = tmp_path / "it ran", tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho ran >> '{mark}'\necho 10.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # looked for only once
    return mark


def test_the_program_that_must_not_run_would(ghostscript: Path, tmp_path: Path) -> None:
    """Else the next test could not fail."""
    (tmp_path / "a.png").write_bytes(POSTSCRIPT)
    with Image.open(tmp_path / "a.png") as image, pytest.raises(OSError):  # noqa: PT011
        image.load()
    assert ghostscript.exists()


def test_postscript_named_png_runs_nothing(
    ghostscript: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RADIAL_DATA", str(tmp_path / "cache"))
    folder = tmp_path / "images"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (16, 16)).save(folder / name / f"{number}.png")
    (folder / "a" / "0.png").write_bytes(POSTSCRIPT)
    reason = "not an image (JPEG, PNG, WEBP, BMP, GIF, TIFF)"
    for limit in (2.0, 0.0):  # read at once, and when asked for
        with pytest.warns(UserWarning, match=r"1 of 20 images .* left out: 'a/0.png'"):
            assert load_data(f"folder:{folder}", memory_limit=limit).skipped == ("a/0.png",)
    assert folder_statistics(folder).unreadable == {"a/0.png": reason}
    contact_sheet(folder, tmp_path / "sheet.png", per_class=10)
    for read in (lambda: read_picture(f"{folder}/a/0.png"), lambda: OpenImagesV7(folder, "all")[0]):
        with pytest.raises(DataError) as said:
            read()
        assert str(said.value).endswith(reason)
        assert "\n" not in str(said.value)
    with pytest.raises(NotWhole, match=r"^not an image$"):
        prepared(POSTSCRIPT)
    assert not ghostscript.exists()


@pytest.mark.parametrize("form", FORMATS)
def test_formats_that_are_meant(form: str, tmp_path: Path) -> None:
    """By what is in the file, not by its name."""
    image = Image.new("RGB", (4, 3), (250, 0, 0))
    image.save(tmp_path / "any.jpg", form)
    found = read_picture(str(tmp_path / "any.jpg"))
    assert (found.mode, found.size) == ("RGB", (4, 3))
    red, green, blue = found.getpixel((1, 1))
    assert red > 240
    assert max(green, blue) < 10


def test_there_is_no_other_way_in() -> None:
    """Every image that the package opens goes through ``radial.pictures``."""
    root = Path(radial.__file__).parent
    found = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if any(
            ast.unparse(node) == "Image.open"
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute)
        )
    ]
    assert found == ["pictures.py"]


def test_what_is_read_from_memory_is_limited_too() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "EPS")
    with pytest.raises(NotWhole):
        prepared(buffer.getvalue())


def test_a_pipe_among_images_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(DataError, match="not a regular file"):
        read_picture(str(tmp_path / "a.png"))
