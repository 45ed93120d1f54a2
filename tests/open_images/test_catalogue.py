"""Official files are found where they lie, or fetched once; what is not one is named."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from open_images_files import label_of, write_metadata
from radial.data import DataError
from radial.open_images.catalogue import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    Overlaps,
    check_table,
    find_metadata,
    official_files,
    read_classes,
    read_overlaps,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_metadata(tmp_path_factory.mktemp("metadata"), images=50)


def test_official_names() -> None:
    assert official_files()["classes"] == "v5/class-descriptions-boxable.csv"
    v7 = official_files("v7")
    assert v7["labels/validation"] == "v7/oidv7-val-annotations-human-imagelabels.csv"
    assert v7["images/train"] == "v6/oidv6-train-images-with-labels-with-rotation.csv"
    assert len(v7) == 7
    boxable = "2018_04/train/train-images-boxable-with-rotation.csv"
    assert official_files("v7", boxable_only=True)["images/train"] == boxable
    with pytest.raises(DataError, match="unknown release 'v8'; known: boxable, v7"):
        official_files("v8")
    with pytest.raises(DataError, match="unknown subset 'val'; known: train, validation, test"):
        official_files(subsets=["val"])
    with pytest.raises(DataError, match="no subset; known"):
        official_files(subsets=[])


def test_local_copies(files: Path, tmp_path: Path) -> None:
    metadata = find_metadata(files)
    assert metadata.classes == files / "class-descriptions-boxable.csv"
    assert list(metadata.labels) == ["train", "validation", "test"]
    assert all(path.parent == files for path in metadata.images.values())
    for name in official_files(subsets=["test"]).values():  # as on the server, compressed
        place = tmp_path / f"{name}.gz"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(gzip.compress((files / place.stem).read_bytes()))
    metadata = find_metadata(str(tmp_path), subsets="test")
    assert metadata.labels["test"].name.endswith("boxable.csv.gz")
    with pytest.raises(DataError, match=r"lacks 4 of 7 files .*: train-annotations"):
        find_metadata(tmp_path)
    with pytest.raises(DataError, match="is not there"):
        find_metadata(tmp_path / "none")


@pytest.fixture
def server(tmp_path: Path, files: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A bucket with the files of the test subset: its URL, its folder, what was asked for."""
    root = tmp_path / "bucket"
    for name in official_files(subsets=["test"]).values():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((files / Path(name).name).read_bytes())
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root))) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/", root, asked
        http.shutdown()
        thread.join()


def test_downloads_once(server: tuple[str, Path, list[str]], cache: Path) -> None:
    base, root, asked = server
    told: list[tuple[str, int, int | None]] = []
    for _ in range(2):
        metadata = find_metadata(subsets=["test"], base=base, progress=lambda *p: told.append(p))
    assert len(asked) == 3
    wanted = official_files(subsets=["test"])["labels/test"]
    assert metadata.labels["test"] == cache / "open-images" / wanted
    assert metadata.labels["test"].read_bytes() == (root / wanted).read_bytes()
    size = (root / wanted).stat().st_size
    assert (Path(wanted).name, size, size) in told


def test_a_page_of_the_server_is_not_kept(
    server: tuple[str, Path, list[str]], tmp_path: Path
) -> None:
    base, root, _ = server
    place = root / official_files(subsets=["test"])["labels/test"]
    good = place.read_bytes()
    place.write_text("<!DOCTYPE html><title>Sorry</title>")
    with pytest.raises(DataError, match="is HTML or XML, not CSV"):
        find_metadata(subsets=["test"], base=base, cache=tmp_path / "other")
    place.write_bytes(good)
    find_metadata(subsets=["test"], base=base, cache=tmp_path / "other")
    place.unlink()
    with pytest.raises(DataError, match="404"):
        find_metadata(subsets=["test"], base=base, cache=tmp_path / "third")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty, or begins with an empty line"),
        (b"  <html><body>x", "is HTML or XML, not CSV: it begins with '<html><body>x'"),
        (b"<?xml version='1.0'?><Error>", "is HTML or XML"),
        (b"ImageID,Label\n", "lacks the columns Source, LabelName, Confidence"),
        (b"ImageID,Source,LabelName,Confidence,Source\n", "has a column twice"),
        (b"\xff\xfe\x00", "cannot read"),
    ],
)
@pytest.mark.parametrize("compress", [False, True])
def test_what_is_not_a_table(content: bytes, message: str, compress: bool, tmp_path: Path) -> None:
    path = tmp_path / ("labels.csv.gz" if compress else "labels.csv")
    path.write_bytes(gzip.compress(content) if compress else content)
    with pytest.raises(DataError, match=message) as caught:
        check_table(path, LABEL_COLUMNS)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_may_be_exported_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(b"\xef\xbb\xbfConfidence,LabelName,ImageID,Source,More\r\n1,/m/0,0,v,x")
    assert check_table(path, LABEL_COLUMNS)[0] == "Confidence"
    path.write_bytes(b"not gzip")
    with pytest.raises(DataError, match="cannot read"):
        check_table(path.rename(tmp_path / "labels.csv.gz"), IMAGE_COLUMNS)
    with pytest.raises(DataError, match="No such file"):
        check_table(tmp_path / "none.csv", IMAGE_COLUMNS)


def test_classes_are_looked_at_before_the_large_files_come(
    server: tuple[str, Path, list[str]],
) -> None:
    base, _, asked = server

    def refuse(displays: Mapping[str, str], overlaps: Overlaps) -> None:
        raise DataError(f"none of {len(displays)} will do")

    for _ in range(2):  # downloaded now, and there already
        with pytest.raises(DataError, match="none of 12 will do"):
            find_metadata(subsets=["test"], base=base, check=refuse)
    assert asked == [f"/{official_files()['classes']}"]


def test_classes_with_and_without_header(tmp_path: Path) -> None:
    names = []
    for release in ("boxable", "v7"):
        write_metadata(tmp_path, images=1, classes=12, release=release)
        names.append(read_classes(tmp_path / Path(official_files(release)["classes"]).name))
    assert names[0] == names[1]
    assert names[0][label_of(6)] == "Kitchen & dining room table"
    assert list(names[0]) == sorted(names[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("<html>", "HTML"),
        ("LabelName,DisplayName\n", "has no classes"),
        ("/m/01,Cat\n/m/02", "line 2: '/m/02' is not a label .*cut short"),
        ("/m/01,Cat\nDog,/m/02\n", "line 2: 'Dog,/m/02' is not a label"),
        ("/m/01,Cat\n/m/01,Dog\n", "label /m/01 has two names"),
    ],
)
def test_damaged_classes(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "classes.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_classes(path)


HIERARCHY = {
    "LabelName": "/m/0bl9f",
    "Subcategory": [
        {"LabelName": "/m/tree"},
        {
            "LabelName": "/m/person",
            "Subcategory": [{"LabelName": "/m/man"}, {"LabelName": "/m/woman"}],
            "Part": [{"LabelName": "/m/head", "Part": [{"LabelName": "/m/eye"}]}],
        },
        {
            "LabelName": "/m/vehicle",
            "Subcategory": [{"LabelName": "/m/car", "Subcategory": [{"LabelName": "/m/taxi"}]}],
            "Part": [{"LabelName": "/m/wheel"}],
        },
        {"LabelName": "/m/toy", "Subcategory": [{"LabelName": "/m/car"}]},
    ],
}


def test_kinds_and_parts_overlap(tmp_path: Path) -> None:
    """By a hierarchy of the official form, where a class may stand in several places."""
    (tmp_path / "h.json").write_text(json.dumps(HIERARCHY))
    overlaps = read_overlaps(tmp_path / "h.json")

    def names(label: str) -> set[str]:
        return {other.removeprefix("/m/") for other in overlaps.get(f"/m/{label}", ())}

    assert names("taxi") == {"car", "vehicle", "wheel"}
    assert names("car") == {"taxi", "vehicle", "wheel", "toy"}
    assert names("eye") == {"head", "person", "man", "woman"}
    assert names("man") == {"person", "head", "eye"}
    assert names("tree") == names("0bl9f") == names("unknown") == set()
    for one, others in overlaps.items():
        assert all(one in overlaps[other] for other in others)
        assert one not in others
    assert read_overlaps(None) == {}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"LabelName": "/m/0"}', '{"Subcategory": [3]}', "<html>"]
)
def test_a_damaged_hierarchy(content: str, tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text(content)
    with pytest.raises(DataError, match=r"h\.json is not the hierarchy of Open Images"):
        read_overlaps(tmp_path / "h.json")
    with pytest.raises(DataError, match="No such file"):
        read_overlaps(tmp_path / "none.json")
