"""`radial data` as a new user types it: from label files to a dataset, and every mistake a line."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from open_images_files import write_metadata
from open_images_server import bucket_and_manifest, rows_of, serving
from radial.cli import main
from radial.cli.terminal import Bars
from radial.data import load_data
from radial.open_images.catalogue import official_files
from radial.open_images.manifest import read_manifest, write_manifest


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


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
        assert f"radial: 1 image could not be fetched, such as {server.base}{gone}:" in captured.err
        assert main(["train", "--data", f"open-images:{images}", "--out", str(tmp_path / "r")]) == 2
        assert "is not complete" in capsys.readouterr().err
        server.recovered = True
        assert main(fetch) == 0
    told = capsys.readouterr().out
    assert (
        told == f"{3 * manifest.per_class} images, {manifest.per_class} of each class: {images}\n"
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
    for words in (["data"], ["data", "--help"]):
        assert main(words) == 0
        assert "sample, fetch" in capsys.readouterr().out
    for words in (SAMPLE, FETCH, ["data", "stats"], ["data", "contact-sheet"]):
        with pytest.raises(SystemExit) as left:
            main([*words, "--help"])
        assert left.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: radial {' '.join(words)}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data", "statistics"], "unknown command 'statistics'; known: open-images"),
        (["data", "open-images", "get"], "unknown command 'get'; known: sample, fetch"),
        ([*SAMPLE], "the following arguments are required: --out"),
        ([*SAMPLE, "--preset", "oiv7-20", "--out", "x"], "invalid choice: 'oiv7-20'"),
        ([*SAMPLE, "--out", "x", "--metadata", "none"], "none is not there"),
        (
            [*SAMPLE, "--out", "x", "--metadata", "META", "--classes", "99"],
            "99 classes asked for, but only 6 have images with exactly one human-verified label",
        ),
        (
            [*SAMPLE, "--out", "x", "--metadata", "META", "--classes", "Tree,Persn"],
            "unknown class 'Persn' among 6; did you mean 'Person'?",
        ),
        (
            [*SAMPLE, "--out", "x", "--choice", "best"],
            "unknown choice 'best'; known: 'largest', 'random'",
        ),
        ([*FETCH, "none.csv", "--out", "x"], "cannot read none.csv: No such file or directory"),
        (
            [*FETCH, "none.csv", "--out", "x", "--connections", "0"],
            "--connections must be at least 1, not 0",
        ),
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


def test_it_says_what_was_cut_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, manifest = bucket_and_manifest({"Cat": 30, "Dog": 30, "Toy": 40}, 30)
    source = tmp_path / "manifest.csv"
    write_manifest(source, manifest)
    cats, dogs, toys = (rows_of(manifest, name) for name in ("Cat", "Dog", "Toy"))
    with serving(files) as server:

        def fetched(out: str, *gone: str) -> str:
            server.rules = dict.fromkeys(gone, "404")
            command = [*FETCH, str(source), "--out", str(tmp_path / out), "--base", server.base]
            assert main([*command, "--connections", "2"]) == 0
            return capsys.readouterr().out.partition(f": {tmp_path}")[0]

        cut = "81 images, 27 of each class (30 planned: class 'Cat' ran out; 3 were gone)"
        assert fetched("a", cats[5], *cats[28:]) == cut
        assert fetched("a") == cut  # from the manifest that is there
        about = json.loads((tmp_path / "a" / "manifest.csv.json").read_text())["settings"]["fetch"]
        assert (about["per_class"], about["limited_by"], len(about["sizes"])) == (30, "Cat", 81)
        tie = "87 images, 29 of each class (30 planned: class 'Cat' ran out; 1 was gone)"
        assert fetched("b", cats[29], dogs[29]) == tie
        assert (
            fetched("c", toys[3]) == "90 images, 30 of each class; 1 was gone, replaced by others"
        )
        assert fetched("d") == "90 images, 30 of each class"


def test_a_fetch_that_was_ended_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, manifest = bucket_and_manifest({"Cat": 100, "Dog": 100}, 100)
    write_manifest(tmp_path / "manifest.csv", manifest)
    with serving(files, dict.fromkeys(files, "500")) as server:
        command = [*FETCH, str(tmp_path), "--out", str(tmp_path / "o"), "--base", server.base]
        assert main([*command, "--connections", "2", "--retries", "0"]) == 1
    said = capsys.readouterr().err
    assert re.match(rf"radial: \d+ images in a row did not come: {server.base}/", said)
    assert "could not be fetched" not in said


def test_unknown_classes_are_named_before_the_large_files_come(
    metadata: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {f"/{n}": (metadata / Path(n).name).read_bytes() for n in official_files().values()}
    with serving(files) as server:
        place = ["--base", server.base, "--out", str(tmp_path / "x")]
        assert main([*SAMPLE, *place, "--classes", "Persn"]) == 2
        assert "unknown class 'Persn' among 6; did you mean" in capsys.readouterr().err
        assert list(server.requests) == ["/v5/class-descriptions-boxable.csv"]


def test_a_preset_of_other_files_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_metadata(tmp_path / "files", images=600, classes=11)
    place = ["--metadata", str(folder), "--out", str(tmp_path / "x")]
    assert main([*SAMPLE, *place, "--preset", "oiv7-10"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("radial: ")
    assert "the published subset has 4073: the files are others" in said
    assert said.count("\n") == 1


def test_pyarrow_is_needed_for_parquet_only(
    metadata: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "radial.checks.find_spec", lambda name: None if name == "pyarrow" else find(name)
    )
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    small = [*SAMPLE, "--classes", "2", "--metadata", str(metadata), "--out"]
    assert main([*small, str(tmp_path / "x.csv")]) == 0
    assert main([*small, str(tmp_path / "x.parquet")]) == 2
    assert "pyarrow is not installed: pip install" in capsys.readouterr().err


def test_progress_off_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("radial.cli.terminal.time.monotonic", lambda: clock[0])
    with Bars() as bar:
        for second in range(0, 101, 10):
            clock[0] = 100.0 + second
            bar("images", 12 * second, 40_000, note="1.5 MB/s", left=60.0 * second)
            bar("a.csv", 10**7 * second, 2 * 10**9, unit="B")
    assert capsys.readouterr().err.splitlines() == [
        "radial: images: 360 of 40,000, 1.5 MB/s, 30 min left",
        "radial: images: 720 of 40,000, 1.5 MB/s, 1 h 0 min left",
        "radial: images: 1,080 of 40,000, 1.5 MB/s, 1 h 30 min left",
    ]
    monkeypatch.setattr(Bars, "every", 0.0)
    with Bars() as bar:
        for second in (0, 50):
            clock[0] = 300.0 + second
            bar("a.csv", 10**7 * second, 2 * 10**9, unit="B")
    assert capsys.readouterr().err.splitlines()[-1] == (
        "radial: a.csv: 500.0 of 2,000.0 MB, 10.0 MB/s, 2 min left"
    )


def test_progress_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with Bars() as bar:
        bar("images", 1200, 40_730, note="1.5 MB/s", left=1000.0)
        bar.shown.refresh()
    said = capsys.readouterr().err
    assert "1,200 of 40,730, 1.5 MB/s, 17 min left" in said


def test_without_the_extra_it_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radial.checks.find_spec", lambda name: None)
    assert main([*SAMPLE, "--out", str(tmp_path / "x")]) == 2
    assert "pip install 'radial-ssl[data]'" in capsys.readouterr().err
