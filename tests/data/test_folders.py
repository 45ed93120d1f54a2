"""Layouts of image folders."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from radial.data import Data, DataError, load_data
from radial.data.sources import IMAGENET100


def names(data: Data) -> dict[str, list[str]]:
    parts = {"train": data.train, "val": data.val, "test": data.test}
    return {part: [im.name(i) for i in range(len(im))] for part, im in parts.items()}


@pytest.mark.parametrize("memory_limit", [0.0, 2.0])
def test_class_folders(make_folder, memory_limit: float) -> None:
    path = make_folder({"dog": 10, "cat": 20, "ant": 10})
    data = load_data(f"folder:{path}", memory_limit=memory_limit)
    assert data.name == "folder:images"
    assert data.classes == ("ant", "cat", "dog")
    assert data.split == "stratified 70/10/20, seed 42"
    for part in (data.train, data.val, data.test):
        assert part.labels is not None
        for image, label, row in zip(part, part.labels.tolist(), part.index.tolist()):
            place = data.classes[label]
            number = row - (0, 10, 30)[label]
            with Image.open(path / place / f"{number:02}.png") as saved:
                assert np.array_equal(image.permute(1, 2, 0), np.asarray(saved))


def test_order_is_by_name_not_by_the_file_system(make_folder) -> None:
    counts = {"b": 12, "a": 10, "c/deep": 10}
    one = load_data(f"folder:{make_folder(counts, name='one')}", memory_limit=0)
    two = load_data(f"folder:{make_folder(counts, name='two', reverse=True)}", memory_limit=0)
    assert names(one) == names(two)
    found = sorted(chain(*names(one).values()))
    assert len(set(found)) == 32
    assert found[-1] == "c/deep/09.png"


def test_hidden_and_other_files_are_left_out(make_folder) -> None:
    path = make_folder({"a": 10, "b": 10, ".git": 3, "a/.thumbnails": 3})
    (path / "a" / ".hidden.png").write_bytes(b"no image")
    (path / "a" / "notes.txt").write_text("no image")
    (path / "empty").mkdir()
    (path / "a" / "00.png").rename(path / "a" / "00.PNG")
    data = load_data(f"folder:{path}")
    assert data.classes == ("a", "b")
    assert sum(map(len, names(data).values())) == 20


def test_flat_folder_is_unlabelled(make_folder) -> None:
    data = load_data(f"folder:{make_folder({'': 20})}")
    assert data.train.labels is data.val.labels is data.test.labels is None
    assert data.classes == ()
    assert data.split == "random 70/10/20, seed 42"
    assert [len(part) for part in (data.train, data.val, data.test)] == [14, 2, 4]
    with pytest.raises(DataError, match="no labels in its train split"):
        data.require_labels()


def test_one_class_is_enough_to_train_not_to_evaluate(make_folder) -> None:
    data = load_data(f"folder:{make_folder({'only': 10})}")
    assert data.classes == ("only",)
    with pytest.raises(DataError, match="1 class in its train split, at least 2"):
        data.require_labels()


def test_a_folder_around_the_folder_is_entered(make_folder) -> None:
    data = load_data(f"folder:{make_folder({'v1/set/a': 10, 'v1/set/b': 10})}")
    assert data.classes == ("a", "b")


def test_images_beside_class_folders_have_no_class(make_folder) -> None:
    data = load_data(f"folder:{make_folder({'a': 10, 'b': 10, '': 20})}", memory_limit=0)
    assert data.classes == ("a", "b")
    assert len(data.all) == 40
    for part in (data.train, data.val, data.test):
        assert part.labels is not None
        for i, label in enumerate(part.labels.tolist()):
            assert part.name(i).rpartition("/")[0] == ("a", "b", "")[label]
    data.require_labels()


def test_linked_folders_are_entered_loops_are_not(make_folder, tmp_path: Path) -> None:
    path = make_folder({"a": 10, "b": 10})
    other = make_folder({"": 10}, name="elsewhere")
    (path / "c").symlink_to(other)
    (path / "a" / "loop").symlink_to(path / "a")
    data = load_data(f"folder:{path}")
    assert data.classes == ("a", "b", "c")
    assert sum(map(len, names(data).values())) == 30


@pytest.mark.parametrize("val", ["val", "valid", "validation"])
def test_own_splits(make_folder, val: str) -> None:
    counts = {f"{part}/{name}": 3 for part in ("train", val, "test") for name in "ab"}
    path = make_folder(counts)
    data = load_data(f"folder:{path}", memory_limit=0)
    assert data.split == "the dataset's own"
    for part, folder in (("train", "train"), ("val", val), ("test", "test")):
        assert names(data)[part] == [f"{folder}/{n}/0{i}.png" for n in "ab" for i in range(3)]
    assert data.test.labels is not None
    assert data.test.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_own_splits_without_val(make_folder) -> None:
    path = make_folder({"train/a": 10, "train/b": 10, "test/a": 4, "test/b": 4})
    data = load_data(f"folder:{path}", memory_limit=0)
    assert data.split == "the dataset's own (val: 10 % of train, stratified, seed 42)"
    assert len(data.train) == 18
    assert {name.split("/")[0] for name in names(data)["test"]} == {"test"}
    whole = load_data(f"folder:{path}", split="paper")
    assert [len(part) for part in (whole.train, whole.val, whole.test)] == [19, 3, 6]


def test_own_splits_that_do_not_fit_together(make_folder) -> None:
    foreign = make_folder({"train/a": 5, "test/a": 5, "test/b": 5}, name="foreign")
    data = load_data(f"folder:{foreign}")  # to train on and to score
    assert [len(part) for part in (data.train, data.val, data.test)] == [4, 1, 10]
    with pytest.raises(DataError, match="1 classes that train/ has not: 'b'"):
        data.require_labels()
    twice = make_folder({"train/a": 5, "val/a": 5, "valid/a": 5}, name="twice")
    with pytest.raises(DataError, match="val/ and valid/: only one can be the val split"):
        load_data(f"folder:{twice}")


def test_train_may_be_a_class(make_folder) -> None:
    data = load_data(f"folder:{make_folder({'train': 10, 'bus': 10})}")
    assert data.classes == ("bus", "train")


@pytest.mark.parametrize(
    ("train", "held_out"),
    [("Train", "Test"), ("training", "testing"), ("TRAINING", "Val"), ("train", "Validation")],
)
def test_names_of_splits_in_any_case(make_folder, train: str, held_out: str) -> None:
    path = make_folder({f"{part}/{name}": 10 for part in (train, held_out) for name in "ab"})
    data = load_data(f"folder:{path}", memory_limit=0)
    assert data.classes == ("a", "b")
    assert data.split.startswith("the dataset's own")
    assert {name.split("/")[0] for name in names(data)["test"]} == {held_out}
    assert {name.split("/")[0] for name in names(data)["train"]} == {train}


@pytest.mark.parametrize(
    ("counts", "classes"),
    [
        ({"Test": 20}, ()),
        ({"train": 20}, ()),
        ({"val": 10, "Test": 10}, ()),
        ({"Test/a": 10, "Test/b": 10}, ("a", "b")),
        ({"val/a": 10, "val/b": 10, "test/a": 10}, ("a", "b")),
    ],
)
def test_splits_without_a_train_folder_are_pooled(make_folder, counts, classes) -> None:
    data = load_data(f"folder:{make_folder(counts)}", memory_limit=0)
    assert data.classes == classes
    assert len(data.all) == sum(counts.values())
    assert "70/10/20" in data.split


@pytest.mark.parametrize(
    "counts",
    [
        {f"2024-05-{day:02}": 1 for day in range(1, 31)},  # an image a folder
        {f"2024/05/{day:02}": 1 + day % 4 for day in range(1, 20)},
        {"": 30, "edits": 1},
        {"Train/monday": 9, "Train/tuesday": 1, "Test/wednesday": 5},
    ],
    ids=["one a folder", "by day", "flat with a folder", "days in a split"],
)
def test_folders_as_people_have_them_need_no_label(make_folder, counts) -> None:
    data = load_data(f"folder:{make_folder(counts)}", memory_limit=0)
    everything = sum(counts.values())
    assert len(data.train) + len(data.val) + len(data.test) == len(data.all) == everything
    assert len({data.all.name(i) for i in range(everything)}) == everything
    with pytest.raises(DataError, match=r"class|labels"):
        data.require_labels()


def test_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "nothing" / "inside").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no images in .*nothing: expected files ending in"):
        load_data(f"folder:{tmp_path / 'nothing'}")


def test_imagenet100_keeps_its_synsets(make_folder) -> None:
    assert len(set(IMAGENET100)) == 100
    counts = {f"train/{synset}": 10 for synset in (*IMAGENET100, "n00000000")}
    counts |= {f"val/{synset}": 1 for synset in (*IMAGENET100, "n00000000")}
    path = make_folder(counts, size=(4, 4))
    data = load_data(f"imagenet100:{path}", memory_limit=0, image_size=8)
    assert data.name == "imagenet100"
    assert data.classes == IMAGENET100
    assert data.split == (
        "the dataset's own (test: its val; val: 10 % of train, stratified, seed 42)"
    )
    assert [len(part) for part in (data.train, data.val, data.test)] == [900, 100, 100]
    everything = load_data(f"imagenet:{path}", memory_limit=0, image_size=8)
    assert len(everything.classes) == 101


def test_imagenet_with_parts_missing(make_folder) -> None:
    path = make_folder({f"train/{synset}": 1 for synset in IMAGENET100[5:]}, size=(4, 4))
    with pytest.raises(DataError, match=r"lacks 5 of 100 synset folders: n01558993, .*, …"):
        load_data(f"imagenet100:{path}")
    with pytest.raises(DataError, match=r"val is not there"):
        load_data(f"imagenet:{path}")
