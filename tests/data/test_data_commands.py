"""`radial data` as a new user types it: from label files to a dataset, and every mistake a line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from open_images_files import write_metadata
from open_images_server import serving
from PIL import Image

from radial.cli import main
from radial.data import load_data
from radial.data.open_images.manifest import read_manifest

SAMPLE = ["data", "open-images", "sample"]
FETCH = ["data", "open-images", "fetch"]


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_metadata(tmp_path_factory.mktemp("metadata"), images=600, classes=6)


def jpeg(seed: str) -> bytes:
    pixels = np.random.default_rng(int(seed, 16)).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def test_from_label_files_to_a_dataset(
    metadata: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "oi3"
    chosen = ["--classes", "3", "--metadata", str(metadata), "--out", str(out)]
    assert main([*SAMPLE, *chosen]) == 0
    told = capsys.readouterr().out
    assert told.startswith("3 classes of ")
    assert f"radial data open-images fetch {out / 'manifest.csv'}" in told
    manifest = read_manifest(out / "manifest.csv")
    other = ["--seed", "0", "--reserves", "0", "--out", str(tmp_path / "other.parquet")]
    assert main([*SAMPLE, *chosen[:-2], *other]) == 0
    bare = read_manifest(tmp_path / "other.parquet")
    assert bare.settings["seed"] == 0
    assert not any(bare.counts("reserve").values())
    assert main([*SAMPLE, *chosen]) == 2  # it is there already
    assert "is there already" in capsys.readouterr().err
    files = {f"/{row.subset}/{row.id}.jpg": jpeg(row.id) for row in manifest.rows}
    gone = next(f"/{row.subset}/{row.id}.jpg" for row in manifest.rows if row.role == "chosen")
    images = out / "images"
    with serving(files, {gone: "500"}) as server:
        fetch = [*FETCH, str(out), "--out", str(images), "--base", server.base, "--retries", "0"]
        assert main(fetch) == 1
        captured = capsys.readouterr()
        assert "the same command goes on" in captured.out
        assert "1 images could not be fetched, such as" in captured.err
        assert main(["train", "--data", f"open-images:{images}", "--out", str(tmp_path / "r")]) == 2
        assert "is not complete" in capsys.readouterr().err
        server.recovered = True
        assert main(fetch) == 0
    assert f"{3 * manifest.per_class} images, {manifest.per_class} of each class" in (
        capsys.readouterr().out
    )
    data = load_data(f"open-images:{images}", image_size=16, root=tmp_path)
    assert len(data.train) + len(data.val) + len(data.test) == 3 * manifest.per_class
    assert main(["data", "stats", str(images), "--json", str(tmp_path / "s.json")]) == 0
    assert json.loads((tmp_path / "s.json").read_text())["images"] == 3 * manifest.per_class
    sheet = tmp_path / "sheet.png"
    assert main(["data", "contact-sheet", str(images), "--out", str(sheet)]) == 0
    with Image.open(sheet) as picture:
        assert picture.width > 8 * 96


def test_help_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["data"], ["data", "--help"], ["data", "open-images"]):
        assert main(words) == 0
        assert "open-images sample" in capsys.readouterr().out
    for words in (SAMPLE, FETCH, ["data", "stats"], ["data", "contact-sheet"]):
        with pytest.raises(SystemExit) as left:
            main([*words, "--help"])
        assert left.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: radial {' '.join(words)}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data", "statistics"], "unknown verb 'statistics' of radial data; known: open-images"),
        (["data", "open-images", "get"], "unknown verb 'get' of radial data open-images"),
        ([*SAMPLE], "the following arguments are required: --out"),
        ([*SAMPLE, "--preset", "oiv7-20", "--out", "x"], "invalid choice: 'oiv7-20'"),
        ([*SAMPLE, "--out", "x", "--metadata", "none"], "none"),
        ([*SAMPLE, "--out", "x", "--metadata", "META", "--classes", "99"], "99"),
        ([*SAMPLE, "--out", "x", "--metadata", "META", "--classes", "Persn"], "Person"),
        ([*SAMPLE, "--out", "x", "--choice", "best"], "unknown choice 'best'"),
        ([*FETCH, "none.csv", "--out", "x"], "none.csv"),
        ([*FETCH, "none.csv", "--out", "x", "--connections", "0"], "'0' is not a number"),
        (["data", "stats", "none"], "none is not there"),
        (["data", "contact-sheet", "none"], "none is not there"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str],
    message: str,
    metadata: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(metadata) if word == "META" else word for word in words]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("radial: error: ")
    assert message in said
    assert "\n" not in said
    assert not list(tmp_path.iterdir())


def test_without_the_extra_it_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([*SAMPLE, "--out", str(tmp_path / "x")]) == 2
    assert "pip install 'radial-ssl[data]'" in capsys.readouterr().err
