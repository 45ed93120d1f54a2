"""Manifests come back as they were written, and nothing unsafe or altered comes back at all."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radial.data import DataError
from radial.open_images.manifest import (
    COLUMNS,
    Manifest,
    Row,
    folded,
    folder_fault,
    read_manifest,
    sidecar,
    write_manifest,
)

FORMS = ("csv", "parquet")


def make(classes: int = 3, chosen: int = 2, reserves: int = 1) -> Manifest:
    rows = []
    for number in range(classes):
        for rank in range(chosen + reserves):
            rows.append(
                Row(
                    hashlib.sha256(f"{number}/{rank}".encode()).hexdigest()[:16],
                    ("train", "validation", "test")[rank % 3],
                    f"/m/0{number}",
                    f"Class {number}",
                    rank,
                    "chosen" if rank < chosen else "reserve",
                    (0, 90, 180, 270)[rank % 4],
                    "by/2.0",
                    'Doe, "Jo"',
                    "https://example.org/a,b.jpg",
                )
            )
    counts = {f"Class {number}": 10 + number for number in range(classes)}
    return Manifest(rows=tuple(rows), settings={"seed": 42, "classes": classes}, classes=counts)


def changed(**fields: Any) -> tuple[Row, ...]:
    """Rows of a good manifest, the fourth of them (first of its class) changed."""
    rows = list(make().rows)
    rows[3] = rows[3]._replace(**fields)
    return tuple(rows)


@pytest.mark.parametrize("form", FORMS)
def test_round_trip(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"manifest.{form}"
    manifest = make()
    write_manifest(path, manifest)
    again = read_manifest(path)
    assert again == manifest
    assert again.per_class == 2
    assert again.sha256 == manifest.sha256
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name, f"{path.name}.json"]


def test_csv_is_canonical_and_hashes_to_what_the_json_says(tmp_path: Path) -> None:
    path = tmp_path / "manifest.csv"
    write_manifest(path, make())
    content = path.read_bytes()
    about = json.loads(sidecar(path).read_text())
    assert hashlib.sha256(content).hexdigest() == about["sha256"]
    assert b"\r" not in content
    rows = list(csv.reader(content.decode().splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert rows[1][3:9] == ["Class 0", "0", "chosen", "0", "by/2.0", 'Doe, "Jo"']
    assert about["format"] == 1
    assert about["per_class"] == 2
    assert about["classes"] == {"Class 0": 10, "Class 1": 11, "Class 2": 12}


_ROTATIONS = st.sampled_from([0, 90, 180, 270])
_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=20)
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: folder_fault(name) is None
)


@given(
    names=st.lists(_NAMES, min_size=1, max_size=4, unique_by=folded),
    texts=st.lists(_TEXT, min_size=3, max_size=3),
    rotation=_ROTATIONS,
    form=st.sampled_from(FORMS),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_survives(
    names: list[str], texts: list[str], rotation: int, form: str, tmp_path: Path
) -> None:
    rows = tuple(
        Row(f"{number:016x}", "test", f"/m/{number}", name, 0, "chosen", rotation, *texts)
        for number, name in enumerate(sorted(names))
    )
    manifest = Manifest(rows=rows)
    path = tmp_path / f"m.{form}"
    write_manifest(path, manifest)
    assert read_manifest(path) == manifest
    sidecar(path).unlink()
    assert read_manifest(path) == manifest


def test_without_json_the_rows_speak_for_themselves(tmp_path: Path) -> None:
    path = tmp_path / "manifest.csv"
    write_manifest(path, make())
    sidecar(path).unlink()
    again = read_manifest(path)
    assert again.rows == make().rows
    assert again.settings == {}
    assert again.classes == {"Class 0": 3, "Class 1": 3, "Class 2": 3}


def test_by_class_and_counts() -> None:
    manifest = make()
    assert list(manifest.by_class()) == ["Class 0", "Class 1", "Class 2"]
    assert [row.rank for row in manifest.by_class()["Class 1"]] == [0, 1, 2]
    assert manifest.counts() == dict.fromkeys(manifest.classes, 2)
    assert manifest.counts("reserve") == dict.fromkeys(manifest.classes, 1)
    assert manifest.rows[0].path == f"Class 0/{manifest.rows[0].id}.jpg"


UNSAFE = (
    "", "..", ".", "../up", "a/b", "a\\b", ".hidden", "a\nb", "a\0b", " a", "a ", "x" * 300,
    *(f"a{letter}b" for letter in '<>:"|?*'), "a.", "CON", "nul", "Aux.x", "com1", "LPT9",
    "é" * 101,
)  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_class_names_are_refused(name: str, tmp_path: Path) -> None:
    rows = (Row("0" * 16, "train", "/m/0", name, 0, "chosen", 0),)
    with pytest.raises(DataError, match="cannot be a folder") as caught:
        Manifest(rows=rows)
    assert "\n" not in str(caught.value)
    path = tmp_path / "manifest.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    with pytest.raises(DataError, match=r"manifest\.csv: row 1: class"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": "../../../etc/pass"}, "row 4: id '../../../etc/pass' is not 16 hexadecimal"),
        ({"id": "0" * 15}, "not 16 hexadecimal digits"),
        ({"id": "ABCDEF0123456789"}, "not 16 hexadecimal digits"),
        ({"id": "0" * 16 + "\n"}, "not 16 hexadecimal digits"),
        ({"id": make().rows[0].id}, "is there twice"),
        ({"subset": "../train"}, "unknown subset '../train'; known: train, validation, test"),
        ({"label": "m/01"}, "not of the form /m/"),
        ({"label": "/m/00"}, "has two classes"),
        ({"rank": 1}, "rank 1 of class 'Class 1' where 0 is due"),
        ({"role": "spare"}, "unknown role 'spare'; known: chosen, reserve, gone, cut"),
        ({"rotation": 45}, "rotation 45 is not one of 0, 90, 180, 270"),
        ({"author": "a\nb"}, "line break"),
        ({"class_name": "Class 0"}, "rank 0 of class 'Class 0'|label '/m/01'"),
        ({"class_name": "A class"}, "rows must be sorted"),
        ({"role": "gone"}, "as many chosen images in each class: 'Class 1' has 1"),
    ],
)
def test_bad_rows_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Manifest(rows=changed(**fields))


def test_names_that_differ_in_case_only_are_refused() -> None:
    rows = tuple(
        Row(f"{number:016x}", "test", f"/m/{number}", name, 0, "chosen", 0)
        for number, name in enumerate(("Cat", "cat"))
    )
    with pytest.raises(DataError, match="one folder where case is ignored"):
        Manifest(rows=rows)
    rows = tuple(
        Row(f"{number:016x}", "test", f"/m/{number}", name, 0, "chosen", 0)
        for number, name in enumerate(("CAFE\u0301", "Caf\u00e9"))
    )
    with pytest.raises(DataError, match="accents are written otherwise"):
        Manifest(rows=rows)


@pytest.mark.parametrize("form", FORMS)
def test_tampering_is_noticed(form: str, tmp_path: Path) -> None:
    path, other = tmp_path / f"manifest.{form}", tmp_path / f"other.{form}"
    write_manifest(path, make())
    write_manifest(other, Manifest(rows=changed(author="Someone"), classes=make().classes))
    path.write_bytes(other.read_bytes())
    with pytest.raises(DataError, match="is not what was written"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has columns none; a manifest has id,subset"),
        (b"id,class\n", "has columns id,class"),
        (b"<html></html>", "has columns <html>"),
        (b"\xff\xfe", "line 1: .*utf-8"),
        (",".join(COLUMNS).encode() + b"\n0123,train\n", "line 2: 2 of 10 fields"),
        (",".join(COLUMNS).encode() + b'\n"0123', "line"),
        (",".join(COLUMNS).encode() + b"\n0,t,l,c,x,r,0,,,\n", "line 2: rank 'x' is not a whole"),
        (",".join(COLUMNS).encode() + b"\n0,t,l,c,0,r,-90,,,\n", "rotation '-90' is not a whole"),
    ],
)
def test_damaged_csv(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_manifest(path)
    assert "\n" not in str(caught.value)


def test_damaged_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "manifest.parquet"
    write_manifest(path, make())
    sidecar(path).unlink()
    table = pq.read_table(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match="not a whole Parquet file"):
        read_manifest(path)
    pq.write_table(table.drop_columns(["url"]), path)
    with pytest.raises(DataError, match="has columns id,subset"):
        read_manifest(path)
    pq.write_table(table.set_column(4, "rank", pa.array(["0"] * len(table))), path)
    with pytest.raises(DataError, match="column rank must hold whole numbers"):
        read_manifest(path)
    pq.write_table(table.set_column(0, "id", pa.nulls(len(table), pa.string())), path)
    with pytest.raises(DataError, match="column id must hold text in every row"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "written by a newer radial"),
        ({"format": None}, "has no format"),
        ({"sha256": 5}, "has no sha256"),
        ({"classes": {"Class 0": "9"}}, "class counts"),
        ({"classes": {"Else": 9}}, "must be the same classes"),
        ({"per_class": 1}, r"says 1"),
    ],
)
def test_damaged_json(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.csv"
    write_manifest(path, make())
    about = json.loads(sidecar(path).read_text())
    sidecar(path).write_text(json.dumps(about | change))
    with pytest.raises(DataError, match=message):
        read_manifest(path)
    sidecar(path).write_text("{")
    with pytest.raises(DataError, match="is not JSON"):
        read_manifest(path)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"suffix '.txt'; known: .csv, .parquet"):
        read_manifest(tmp_path / "manifest.txt")
    for form in FORMS:
        with pytest.raises(DataError, match=r"cannot read .*No such file"):
            read_manifest(tmp_path / f"manifest.{form}")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write"):
        write_manifest(tmp_path / "file" / "manifest.csv", make())
