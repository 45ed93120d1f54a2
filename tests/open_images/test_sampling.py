"""Sampling equals the plain loop over the same files, whatever the order of rows or threads."""

from __future__ import annotations

import gzip
import hashlib
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_images_files import NAMES, label_of, plain_sample, plain_singles, write_metadata
from radial.data import DataError
from radial.open_images.catalogue import (
    PUBLISHED,
    class_names,
    find_metadata,
    in_imagenet,
    official_files,
)
from radial.open_images.manifest import (
    Manifest,
    folded,
    folder_fault,
    read_manifest,
    write_manifest,
)
from radial.open_images.sampling import Sampling, choose, find_class, preset, sample

RELEASES = ("boxable", "v7")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("files [1]*?")  # a name, not a pattern
    return {
        release: write_metadata(root / release, images=3000, classes=22, release=release)
        for release in RELEASES
    }


@pytest.fixture(scope="module")
def folder(folders: dict[str, Path]) -> Path:
    return folders["boxable"]


def draw(folder: Path, **changes: Any) -> Manifest:
    asked = Sampling(**({"classes": 6} | changes))
    metadata = find_metadata(
        folder,
        release=asked.release,
        subsets=asked.subsets,
        boxable_only=asked.boxable_only,
        hierarchy=asked.exclude_overlapping,
    )
    return sample(metadata, asked)


def plainly(manifest: Manifest) -> list[tuple[object, ...]]:
    rows = [(*row[:3], *row[4:]) for row in manifest.rows]
    return sorted(rows, key=lambda row: (row[2], row[3]))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("seed", [42, 7])
def test_equals_the_plain_loop(release: str, seed: int, folders: dict[str, Path]) -> None:
    manifest = draw(folders[release], classes=9, release=release, seed=seed)
    assert plainly(manifest) == plain_sample(
        folders[release], classes=9, release=release, seed=seed
    )
    assert set(manifest.counts().values()) == {manifest.per_class}
    assert {row.rotation for row in manifest.rows} == {0, 90, 180, 270}
    assert any(not row.license for row in manifest.rows)  # no image list has it


@given(
    images=st.integers(30, 300), classes=st.integers(1, 12), seed=st.integers(0, 99)
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_equals_the_plain_loop_on_any_files(
    images: int, classes: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write_metadata(
        tmp_path_factory.mktemp("any"), images=images, classes=classes, seed=seed
    )
    number = len(plain_singles(folder))
    expected = plain_sample(folder, classes=number, seed=seed)
    assert plainly(draw(folder, classes=number, seed=seed, threads=1)) == expected


def test_order_of_rows_threads_and_compression_change_no_byte(folder: Path, tmp_path: Path) -> None:
    written = []
    for number, (order, compress, threads, limit) in enumerate(
        [
            (None, False, None, "1GB"),
            (1, False, 1, "1GB"),
            (2, True, 2, "400MB"),
            (3, False, 4, "1GB"),
        ]
    ):
        files = tmp_path / f"other place {number}"
        write_metadata(files, images=3000, classes=22, order=order, compress=compress)
        path = tmp_path / f"{number}.csv"
        settings = {"threads": threads, "memory_limit": limit, "temp_directory": tmp_path}
        write_manifest(path, draw(files, **settings))
        written.append((path.read_bytes(), Path(f"{path}.json").read_bytes()))
    assert len(set(written)) == 1
    write_manifest(tmp_path / "same.csv", draw(folder))
    assert (tmp_path / "same.csv").read_bytes() == written[0][0]
    assert not list(tmp_path.glob("radial-*"))


def test_hash_order_depends_on_seed_and_id_only(folder: Path) -> None:
    manifest = draw(folder, seed=5)
    for rows in manifest.by_class().values():
        keys = [hashlib.sha256(f"5/{row.id}".encode()).hexdigest() for row in rows]
        assert keys == sorted(keys)
    few, many = draw(folder, classes=3), draw(folder, classes=8)
    for name, rows in few.by_class().items():  # other classes beside it change no order
        assert [row.id for row in rows] == [row.id for row in many.by_class()[name]]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_manifest_of_awkward_names_comes_back(
    form: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    manifest = draw(folders["v7"], classes=22, release="v7")
    write_manifest(tmp_path / f"m.{form}", manifest)
    assert read_manifest(tmp_path / f"m.{form}") == manifest
    names = set(manifest.classes)
    jaguars = {f"Jaguar (m-{label_of(12)[3:]})", f"jaguar (m-{label_of(15)[3:]})"}
    assert {"AC_DC", "hidden", "Tab_here", "He said _hi_, twice"} | jaguars <= names
    assert all(folder_fault(name) is None for name in names)


def test_per_class_and_reserves(folder: Path) -> None:
    everything = draw(folder)
    smallest = min(everything.classes.values())
    assert everything.per_class == smallest
    assert len(everything.rows) == sum(everything.classes.values())
    few = draw(folder, per_class=5, reserves=2)
    assert few.counts() == dict.fromkeys(few.classes, 5)
    assert few.counts("reserve") == dict.fromkeys(few.classes, 2)
    assert few.classes == everything.classes
    assert not any(draw(folder, reserves=0).counts("reserve").values())
    with pytest.raises(DataError, match=f"per_class {smallest + 1} is more than class .* has"):
        draw(folder, per_class=smallest + 1)


def test_subsets_and_boxable_list(folders: dict[str, Path]) -> None:
    folder = folders["v7"]
    manifest = draw(folder, release="v7", subsets=("test", "validation"))
    assert {row.subset for row in manifest.rows} == {"validation", "test"}
    assert manifest.settings["subsets"] == ["validation", "test"]
    everything, boxable = draw(folder, release="v7"), draw(folder, release="v7", boxable_only=True)
    assert all(row.license for row in boxable.rows)
    ids = {row.id for row in boxable.rows}
    assert 0 < len(ids) < len({row.id for row in everything.rows})
    name = Path(official_files()["images/train"]).name
    listed = (folder / name).read_text()
    assert all(row.id in listed for row in boxable.rows if row.subset == "train")
    with pytest.raises(DataError, match="boxable_only needs the boxable image lists"):
        sample(
            find_metadata(folder, release="v7"),
            Sampling(release="v7", boxable_only=True),
        )
    with pytest.raises(DataError, match="metadata of release 'boxable'"):
        sample(find_metadata(folders["boxable"]), Sampling(release="v7"))


COUNTS = {label_of(number): 100 - 7 * number for number in range(len(NAMES))}
DISPLAYS = {label_of(number): name for number, name in enumerate(NAMES)}
OVERLAPS = {
    label_of(a): frozenset({label_of(b)}) for a, b in ((0, 2), (2, 0), (3, 5), (5, 3))
}  # Person and Human face, Car and Taxi


def names_of(**changes: Any) -> list[str]:
    return [DISPLAYS[label] for label in choose(COUNTS, DISPLAYS, Sampling(**changes), OVERLAPS)]


def test_choice_of_classes() -> None:
    assert names_of(classes=3) == ["Person", "Tree", "Human face"]
    tied = dict.fromkeys(COUNTS, 9)
    assert choose(tied, DISPLAYS, Sampling(classes=2)) == sorted(COUNTS)[:2]
    drawn = {tuple(names_of(classes=3, choice="random", seed=seed)) for seed in range(20)}
    assert len(drawn) > 10
    frequent = names_of(classes=5, choice="random", minimum=72)
    assert sorted(frequent) == sorted(NAMES[:5])
    assert names_of(classes=4, exclude_overlapping=True) == ["Person", "Tree", "Car", "Flower"]
    without = names_of(classes=8, exclude_imagenet=True)
    assert {"Pretzel", "Organ (Musical Instrument)", "Taxi"}.isdisjoint(without)
    assert names_of(classes=["car", label_of(1)]) == ["Car", "Tree"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 13}, "13 classes asked for, but only 12 have images with exactly one"),
        ({"classes": 9, "minimum": 72}, r"only 5 have .* \(at least 72 images\)"),
        ({"classes": 12, "exclude_imagenet": True}, r"only 8 .*without ImageNet-1K synonyms"),
        ({"classes": 12, "exclude_overlapping": True}, "without overlapping classes"),
        ({"classes": ["Tre"]}, r"unknown class 'Tre' among 12; did you mean 'Tree'\?"),
        ({"classes": ["zzz"]}, "unknown class 'zzz' among 12$"),
        ({"classes": ["Tree", "tree"]}, "'tree' is named twice: it is 'Tree'"),
        ({"classes": ["Person", "Human face"], "exclude_overlapping": True}, "overlaps with 'Per"),
        ({"classes": ["Pretzel"], "exclude_imagenet": True}, "it is an ImageNet-1K category"),
        ({"classes": ["Ski"], "minimum": 50}, "class 'Ski' has 30 images"),
    ],
)
def test_classes_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        names_of(**changes)


def test_a_name_of_several_labels() -> None:
    displays = {"/m/01": "Jaguar", "/m/02": "Jaguar", "/m/03": "jaguar"}
    assert find_class("jaguar", displays) == "/m/03"
    assert find_class("/m/02", displays) == "/m/02"
    with pytest.raises(DataError, match="has several labels, name one of them: /m/01, /m/02"):
        find_class("Jaguar", displays)


@given(
    st.dictionaries(
        st.text("0123456789abc_", min_size=1).map("/m/{}".format), st.text(max_size=99), max_size=6
    )
)
@settings(max_examples=50, deadline=None)
def test_names_of_folders_are_safe_and_differ(displays: dict[str, str]) -> None:
    names = class_names(displays)
    assert list(names) == list(displays)
    assert all(folder_fault(name) is None for name in names.values())
    assert len({folded(name) for name in names.values()}) == len(names)


def test_names_are_cut_by_bytes_and_differ_with_their_labels() -> None:
    long = "犬" * 80  # 240 bytes
    names = class_names({"/m/1": long, "/m/2": f"{long}!", "/m/3": "Ж" * 90})
    assert names["/m/1"] == "犬" * 64 + " (m-1)"  # 192 + 6 of 200 bytes: a 65th has no room
    assert names["/m/2"] == "犬" * 64 + " (m-2)"
    assert names["/m/3"] == "Ж" * 90
    displays = {"/m/2": "Jaguar", "/m/3": "jaguar", "/m/4": "Jaguar (m-2)", "/m/5": "con"}
    assert list(class_names(displays).values()) == [
        "Jaguar (m-2)", "jaguar (m-3)", "Jaguar (m-2) (m-4)", "con (m-5)",
    ]  # fmt: skip
    assert class_names({"/m/1": "...", "/m/2": "m-1"}) == {"/m/1": "m-1", "/m/2": "m-1 (m-2)"}
    accents = class_names({"/m/1": "CAFE\u0301", "/m/2": "caf\u00e9"})
    assert list(accents.values()) == ["CAF\u00c9 (m-1)", "caf\u00e9 (m-2)"]
    assert class_names({"/m/1": 'What? <a:b|c*"d">'}) == {"/m/1": "What_ _a_b_c__d__"}


def test_imagenet() -> None:
    assert in_imagenet("goldfish")
    assert in_imagenet("Band-aid")
    assert in_imagenet("Mobile phone")
    assert not in_imagenet("Dog")
    assert not in_imagenet("Fish")


def test_overlapping_classes_are_left_out_by_the_official_hierarchy(folder: Path) -> None:
    assert {"Person", "Human face", "Car", "Taxi"} <= set(draw(folder, classes=8).classes)
    left = set(draw(folder, classes=8, exclude_overlapping=True).classes)
    assert {"Person", "Tree", "Car"} <= left
    assert not {"Human face", "Taxi"} & left
    with pytest.raises(DataError, match="exclude_overlapping needs the hierarchy"):
        sample(find_metadata(folder), Sampling(exclude_overlapping=True))


def test_presets(folder: Path) -> None:
    for classes, images in PUBLISHED.items():
        settings = preset(f"oiv7-{classes}", seed=1)
        assert (settings.classes, settings.expected) == (classes, images)
    with pytest.raises(DataError, match="unknown preset 'oiv7-20'; known: oiv7-10, oiv7-30"):
        preset("oiv7-20")
    metadata = find_metadata(folder)
    with pytest.warns(
        UserWarning, match=r"images a class, limited by .* published subset has 4073"
    ):
        manifest = sample(metadata, preset("oiv7-10", reserves=0))
    told: list[str] = []
    sample(metadata, preset("oiv7-10", reserves=0), tell=told.append)
    assert "the published subset has 4073" in told[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sample(metadata, Sampling(classes=10, reserves=0)) == manifest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 0}, "classes must be an integer of at least 1, not 0"),
        ({"classes": True}, "classes must be an integer"),
        ({"classes": []}, "classes must be a number or a list of names"),
        ({"classes": [3]}, "classes must be a number or a list of names"),
        ({"choice": "best"}, "unknown choice 'best'; known: 'largest', 'random'"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"per_class": 0}, "per_class must be"),
        ({"reserves": -1}, "reserves must be"),
        ({"threads": 0}, "threads must be"),
        ({"subsets": ("val",)}, "unknown subset 'val'"),
        ({"release": "v6"}, "unknown release 'v6'; known: boxable, v7"),
        ({"memory_limit": "much"}, "memory_limit must be like 500MB"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Sampling(**changes)


GOOD = "0123456789abcdef,verification,/m/00000_,1\n"


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("0123456789abcdef,verif", r"2 of 4 fields"),
        ("0123456", r"1 of 4 fields"),
        ("0123456789abcdef,verification,/m/0,1,9\n" + GOOD, "line .*: 5 of 4 fields"),
        ("0123456789abcde,verification,/m/0,1\n", "ImageID '0123456789abcde' is not 16 hexa"),
        ("0123456789ABCDEF,verification,/m/0,1\n", "is not 16 hexadecimal digits"),
        ("1.5e12,verification,/m/0,1\n", "ImageID '1.5e12' is not 16 hexadecimal digits"),
        ("0123456789abcdef,verification,/m/0,yes\n", "Confidence 'yes' of image .* not a number"),
        ("0123456789abcdef,verification,/m/0,\n", "Confidence .* of image .* is not a number"),
        ('0123456789abcdef,"verification,/m/0,1\n', "quote"),
    ],
)
def test_damaged_labels(
    extra: str, message: str, compress: bool, folder: Path, tmp_path: Path
) -> None:
    for name in official_files().values():
        (tmp_path / Path(name).name).write_bytes((folder / Path(name).name).read_bytes())
    path = tmp_path / Path(official_files()["labels/test"]).name
    content = path.read_bytes() + extra.encode()
    path.unlink()
    place = path.with_name(path.name + ".gz") if compress else path
    place.write_bytes(gzip.compress(content) if compress else content)
    with pytest.raises(DataError, match=message) as caught:
        draw(tmp_path)
    assert place.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cut_image_list_is_noticed(tmp_path: Path) -> None:
    write_metadata(tmp_path, images=200)
    path = tmp_path / Path(official_files()["images/test"]).name
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"fields: is the file cut short\?"):
        draw(tmp_path)


def test_too_little_memory(folder: Path) -> None:
    with pytest.raises(DataError, match="memory_limit 20MB is too little"):
        draw(folder, memory_limit="20MB")


def test_other_damage(folder: Path, tmp_path: Path) -> None:
    for name in official_files().values():
        content = gzip.compress((folder / Path(name).name).read_bytes())
        (tmp_path / f"{Path(name).name}.gz").write_bytes(content)
    labels = tmp_path / f"{Path(official_files()['labels/test']).name}.gz"
    whole = labels.read_bytes()
    labels.write_bytes(whole[:-100])
    with pytest.raises(DataError, match=r"test-.*csv\.gz is not a whole gzip file"):
        draw(tmp_path)
    labels.write_bytes(gzip.compress(b"ImageID,Source,LabelName,Confidence\n"))
    assert {row.subset for row in draw(tmp_path).rows} == {"train", "validation"}
    labels.write_bytes(whole)
    images = tmp_path / f"{Path(official_files()['images/test']).name}.gz"
    rows = gzip.decompress(images.read_bytes())
    images.write_bytes(gzip.compress(rows[:-40]))
    with pytest.raises(DataError, match=r"test-images.*of 12 fields: is the file cut short"):
        draw(tmp_path)
    images.write_bytes(gzip.compress(rows.replace(b",270.0\n", b",45.0\n")))
    with pytest.raises(DataError, match=r"the rotation '45.0'; known: 0, 90, 180, 270"):
        draw(tmp_path)


@pytest.mark.parametrize("threads", [1, 4])
def test_line_breaks_in_the_titles_of_a_large_list(threads: int, tmp_path: Path) -> None:
    folder = write_metadata(tmp_path, images=300, missing=0)
    path = folder / Path(official_files()["images/train"]).name
    title = '"' + "\n,,,,,,,,,,,\n".join(['""yes"", \n'] * 30) + '"'
    fill = "".join(
        f"{number:016x},train,u,l,by,p,nobody,{title},1,m,t,90.0\n" for number in range(50_000)
    )
    header, _, rest = path.read_text().partition("\n")
    before = draw(folder)
    path.write_text(f"{header}\n{fill}{rest}")  # 26 MB
    assert draw(folder, threads=threads) == before


def test_quotes_anyhow_in_titles_do_not_stop_it(folder: Path, tmp_path: Path) -> None:
    for name in official_files().values():
        (tmp_path / Path(name).name).write_bytes((folder / Path(name).name).read_bytes())
    path = tmp_path / Path(official_files()["images/train"]).name
    content = path.read_text()
    path.write_text(content.replace('"a, b"', '"a "odd", b"'))
    assert content != path.read_text()
    changed, before = draw(tmp_path), draw(folder)
    assert Counter(row.id for row in changed.rows) == Counter(row.id for row in before.rows)
