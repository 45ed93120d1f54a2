"""OpenImagesV7: published splits, augmentations that never change, folders that are not whole."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from radial.data import DataError, OpenImagesV7, load_data
from radial.data.images import hash_order
from radial.data.subset import open_subset, split_published
from radial.open_images.journal import FOLDER
from radial.open_images.manifest import Manifest, Row, write_manifest

PARTS = ("train", "val", "test")


def names(data: OpenImagesV7) -> list[str]:
    return [data.item(index)[0] for index in range(len(data))]


def pixels(item: tuple[Image.Image, int]) -> np.ndarray:
    return np.asarray(item[0])


@pytest.fixture
def subset(make_folder) -> Path:
    return make_folder({"Food": 20, "Toy": 20, "Tree": 20}, size=(24, 20), suffix="jpg")


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published 100-class subset in numbers: 34,500 files, one and the same small image."""
    root = tmp_path_factory.mktemp("oiv7-100")
    Image.new("RGB", (8, 8)).save(root / "image.jpg")
    for label in range(100):
        (root / f"Class {label:02}").mkdir()
        for number in range(345):
            place = root / f"Class {label:02}" / f"{1000 * label + number:016x}.jpg"
            os.link(root / "image.jpg", place)
    return root


def test_sizes_of_the_published_subset(hundred: Path) -> None:
    collection = open_subset(hundred)
    assert collection.labels is not None
    assert len(collection.classes) == 100
    split = split_published(collection)
    sizes = [len(getattr(split, part)) for part in PARTS]
    assert sizes == [24_149, 3_451, 6_900]
    assert split.description == (
        "stratified 70/10/20 as published, seed 42; a plain folder, without a manifest"
    )
    whole = torch.cat([getattr(split, part) for part in PARTS])
    assert torch.equal(whole.sort().values, torch.arange(34_500))
    for part, share in zip(PARTS, (0.7, 0.1, 0.2)):
        of_class = collection.labels[getattr(split, part)].bincount(minlength=100)
        assert (of_class - 345 * share).abs().max() < 1


def test_augmented_sizes_of_the_published_subset(hundred: Path) -> None:
    train = OpenImagesV7(hundred, num_augments=3)
    assert len(train) == 4 * 24_149 == len(train.targets)  # about as many as ImageNet-100
    assert min(Counter(train.targets).values()) >= 4 * 241
    full = OpenImagesV7(hundred, samples_per_class=1300)
    assert set(Counter(full.targets).values()) == {1300}
    for part, size in (("val", 3_451), ("test", 6_900), ("all", 34_500)):
        assert len(OpenImagesV7(hundred, part, num_augments=3)) == size


def test_members_are_those_of_the_published_code(subset: Path) -> None:
    """Drawn here step by step with scikit-learn, on the files as torchvision lists them."""
    from sklearn.model_selection import train_test_split
    from torchvision.datasets import ImageFolder

    listed = ImageFolder(str(subset))
    labels = np.array(listed.targets)
    rest, test = train_test_split(
        np.arange(60), test_size=0.2, stratify=labels, shuffle=True, random_state=42
    )
    train, val = train_test_split(
        rest, test_size=0.1 / (0.7 + 0.1), stratify=labels[rest], shuffle=True, random_state=42
    )
    for part, rows in zip(PARTS, (train, val, test)):
        found = OpenImagesV7(subset, part)
        expected = sorted(Path(listed.samples[row][0]) for row in rows)
        assert [subset / name for name in names(found)] == expected
        assert found.targets == sorted(labels[rows])


@pytest.mark.parametrize(
    "lengths", [(0.7, 0.1, 0.2), (0.5, 0.25, 0.25), (0.8, 0, 0.2), (0.9, 0.1, 0), (1, 0, 0)]
)
@pytest.mark.parametrize("seed", [0, 42])
def test_splits_are_stratified_and_cover_everything(make_folder, lengths, seed: int) -> None:
    counts = {"a": 40, "b": 13, "c": 27}
    root = make_folder(counts, size=(2, 2))
    found = []
    for part, length in zip(PARTS, lengths):
        if not length:
            with pytest.raises(DataError, match=f"the {part} split is empty: split_lengths="):
                OpenImagesV7(root, part, lengths, seed)
            continue
        data = OpenImagesV7(root, part, lengths, seed)
        found += names(data)
        for label, count in enumerate(counts.values()):
            assert abs(data.targets.count(label) - length * count) <= 1.5
    assert sorted(found) == sorted(names(OpenImagesV7(root, "all", lengths, seed)))
    assert len(set(found)) == 80


def test_items(subset: Path) -> None:
    data = OpenImagesV7(subset, "all")
    assert data.classes == ("Food", "Toy", "Tree")
    assert data.class_to_idx == {"Food": 0, "Toy": 1, "Tree": 2}
    assert len(data) == 60
    image, target = data[25]
    assert target == 1
    assert image.mode == "RGB"
    with Image.open(subset / "Toy" / "05.jpg") as saved:
        assert np.array_equal(np.asarray(image), np.asarray(saved))
    assert np.array_equal(pixels(data[-1]), pixels(data[59]))
    assert len(list(data)) == 60
    for index in (60, -61):
        with pytest.raises(IndexError, match=f"item {index} of 60"):
            data[index]


def test_transforms_come_last(subset: Path) -> None:
    seen = []
    data = OpenImagesV7(
        subset,
        num_augments=1,
        augmentation=lambda image: image.resize((7, 5)),
        transform=lambda image: seen.append(image.size) or image.size[0],
        target_transform=lambda target: f"class {target}",
    )
    assert [data[index] for index in (0, 1, -1)] == [
        (24, "class 0"),
        (7, "class 0"),
        (7, "class 2"),
    ]
    assert seen == [(24, 20), (7, 5), (7, 5)]
    assert data.targets[-1] == 2


def test_each_image_is_followed_by_its_augmentations(subset: Path) -> None:
    plain, data = OpenImagesV7(subset), OpenImagesV7(subset, num_augments=2)
    assert len(data) == 3 * len(plain)
    for index in range(len(data)):
        assert data.item(index) == (plain.item(index // 3)[0], index % 3)
        assert data.targets[index] == plain.targets[index // 3]
    assert np.array_equal(pixels(data[3]), pixels(plain[1]))
    changed = [not np.array_equal(pixels(data[n]), pixels(data[n - n % 3])) for n in range(60)]
    assert not any(changed[::3])
    assert sum(changed) > 30
    for part in ("val", "test", "all"):
        assert names(OpenImagesV7(subset, part, num_augments=2)) == names(
            OpenImagesV7(subset, part)
        )


@pytest.mark.parametrize("wanted", [1, 5, 14, 15, 28, 33, 100])
def test_samples_per_class(subset: Path, wanted: int) -> None:
    plain = OpenImagesV7(subset)
    data = OpenImagesV7(subset, samples_per_class=wanted)
    assert Counter(data.targets) == {0: wanted, 1: wanted, 2: wanted}
    for label, name in enumerate(data.classes):
        of_class = [plain.item(n)[0] for n, target in enumerate(plain.targets) if target == label]
        order = hash_order(of_class, 42)
        assert sorted(order) == sorted(of_class)
        items = Counter(item for item in names(data) if item.startswith(f"{name}/"))
        assert set(items) == set(order[:wanted])
        counts = [items[image] for image in order[:wanted]]
        assert counts == sorted(counts, reverse=True)  # the first have one more
        assert counts[0] - counts[-1] in (0, 1)
    for part in ("val", "test", "all"):
        assert len(OpenImagesV7(subset, part, samples_per_class=wanted)) == len(
            OpenImagesV7(subset, part)
        )


def test_fewer_samples_are_among_more(subset: Path) -> None:
    def items(wanted: int) -> set[tuple[str, int]]:
        data = OpenImagesV7(subset, samples_per_class=wanted)
        return {data.item(index) for index in range(len(data))}

    assert items(3) < items(9) < items(17) < items(40)


@pytest.mark.parametrize("augmentation", ["autoaugment", "augmix", "randaugment"])
def test_an_item_is_always_the_same_picture(subset: Path, augmentation: str) -> None:
    data = OpenImagesV7(subset, num_augments=2, augmentation=augmentation)
    first = [pixels(data[index]) for index in range(12)]
    torch.manual_seed(7)
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    for index in (7, 11, 2, 7):
        assert np.array_equal(pixels(data[index]), first[index])
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == state[1:]
    assert not np.array_equal(first[1], first[2])
    other = OpenImagesV7(subset, num_augments=2, augmentation=augmentation, seed=1)
    shared = next(i for i in range(1, len(other)) if other.item(i) == data.item(1))
    assert not np.array_equal(pixels(other[shared]), first[1])
    again = pickle.loads(pickle.dumps(data))
    assert np.array_equal(pixels(again[8]), first[8])


def test_the_same_in_another_process_and_folder(subset: Path, tmp_path: Path) -> None:
    code = (
        "import sys, hashlib; from radial.data import OpenImagesV7\n"
        "data = OpenImagesV7(sys.argv[1], num_augments=2)\n"
        "for i in range(9): print(hashlib.sha256(data[i][0].tobytes()).hexdigest(), data.item(i))"
    )
    elsewhere = tmp_path / "elsewhere"
    subset.rename(elsewhere)
    environment = os.environ | {"PYTHONHASHSEED": "5", "OMP_NUM_THREADS": "1"}
    run = [sys.executable, "-c", code, str(elsewhere)]
    printed = subprocess.run(run, env=environment, check=True, capture_output=True, text=True)
    elsewhere.rename(subset)
    data = OpenImagesV7(subset, num_augments=2)
    expected = [
        f"{hashlib.sha256(data[i][0].tobytes()).hexdigest()} {data.item(i)}" for i in range(9)
    ]
    assert printed.stdout.splitlines() == expected


def test_functions_that_draw_from_any_generator(subset: Path) -> None:
    def drawn(image: Image.Image) -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    data = OpenImagesV7(subset, num_augments=1, augmentation=drawn)
    first = [data[index][0] for index in range(1, 20, 2)]
    assert len(set(first)) == 10
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert [*pool.map(lambda index: data[index][0], range(1, 20, 2))] == first


def test_loads_in_workers(subset: Path) -> None:
    data = OpenImagesV7(subset, num_augments=1, transform=lambda im: torch.tensor(np.asarray(im)))
    plain = torch.stack([data[index][0] for index in range(16)])
    loader = DataLoader(data, batch_size=16, num_workers=1)
    images, targets = next(iter(loader))
    assert torch.equal(images, plain)
    assert targets.tolist() == data.targets[:16]


def test_load_data(subset: Path) -> None:
    data = load_data(f"open-images:{subset}")
    assert data.name == "open-images:images"
    assert data.image_size == 224
    assert data.classes == ("Food", "Toy", "Tree")
    assert data.split.startswith("stratified 70/10/20 as published, seed 42; a plain folder")
    data.require_labels()
    lazy = load_data(f"open-images:{subset}", seed=3, memory_limit=0)
    for part in PARTS:
        images, expected = getattr(lazy, part), OpenImagesV7(subset, part, seed=3)
        assert [images.name(index) for index in range(len(images))] == names(expected)
        assert images.labels.tolist() == expected.targets
    with pytest.raises(DataError, match="has no split of its own"):
        load_data(f"open-images:{subset}", split="own")


def test_files_beside_class_folders_are_left_out(subset: Path) -> None:
    before = names(OpenImagesV7(subset, "all"))
    (subset / "notes.csv").write_text("id\n")
    (subset / "sheet.png").write_bytes(b"")
    (subset / ".cache").mkdir()
    (subset / "Toy" / ".05.jpg").write_bytes(b"")
    (subset / "Toy" / "notes.txt").write_text("")
    (subset / "Toy" / "more").mkdir()
    assert names(OpenImagesV7(subset, "all")) == before


def test_an_unfinished_fetch_is_refused(subset: Path) -> None:
    (subset / FOLDER).mkdir()
    for load in (OpenImagesV7, lambda path: load_data(f"open-images:{path}")):
        with pytest.raises(
            DataError, match=r"is not complete: .*fetch MANIFEST --out .*images` ag"
        ):
            load(subset)


def test_images_must_be_those_of_the_manifest(tmp_path: Path) -> None:
    rows = tuple(
        Row(f"{kind:08x}{rank:08x}", "train", f"/m/{kind}", name, rank,
            "chosen" if rank < 10 else "reserve", 0)
        for kind, name in enumerate(("Food", "Toy")) for rank in range(12)
    )  # fmt: skip
    write_manifest(tmp_path / "manifest.csv", Manifest(rows=rows))
    for row in rows:
        if row.role == "chosen":
            (tmp_path / row.class_name).mkdir(exist_ok=True)
            Image.new("RGB", (8, 8)).save(tmp_path / row.path)
    assert len(OpenImagesV7(tmp_path, "all")) == 20
    split = split_published(open_subset(tmp_path))
    assert split.description == "stratified 70/10/20 as published, seed 42"
    (tmp_path / "Toy" / "notes.txt").write_text("")
    (tmp_path / "Other").mkdir()
    os.link(tmp_path / rows[0].path, tmp_path / "Other" / "x.jpg")
    with pytest.raises(DataError, match=r"has 1 image that its .*such as Other/x\.jpg"):
        OpenImagesV7(tmp_path)
    (tmp_path / "Other" / "x.jpg").rename(tmp_path / "Food" / "x.jpg")
    (tmp_path / "Other").rmdir()
    with pytest.raises(DataError, match=r"such as Food/x\.jpg: move them away"):
        OpenImagesV7(tmp_path)
    (tmp_path / "Food" / "x.jpg").unlink()
    for row in rows[3:5]:
        (tmp_path / row.path).unlink()
    with pytest.raises(DataError, match=r"lacks 2 of the 20 .*such as Food/0{15}3\.jpg: .*fetch "):
        load_data(f"open-images:{tmp_path}")
    (tmp_path / "manifest.csv").write_text("id\n")
    with pytest.raises(DataError, match="has columns id; a manifest has"):
        OpenImagesV7(tmp_path)


def test_links_out_of_the_folder_are_refused(subset: Path, make_folder) -> None:
    other = make_folder({"Secret": 10}, name="elsewhere")
    (subset / "Toy" / "inside.jpg").symlink_to(subset / "Toy" / "05.jpg")
    assert len(OpenImagesV7(subset, "all")) == 61
    (subset / "Toy" / "outside.png").symlink_to(other / "Secret" / "00.png")
    with pytest.raises(DataError, match=r"outside.png is a link that leads out of"):
        OpenImagesV7(subset)
    (subset / "Toy" / "outside.png").unlink()
    (subset / "Secret").symlink_to(other / "Secret")
    with pytest.raises(DataError, match=r"Secret is a link that leads out of"):
        OpenImagesV7(subset)
    linked = subset.with_name("linked")
    (subset / "Secret").unlink()
    linked.symlink_to(subset)
    assert len(OpenImagesV7(linked, "all")) == 61


def test_unreadable_images_are_named_when_asked_for(subset: Path) -> None:
    (subset / "Food" / "00.jpg").write_bytes(b"<html>not here</html>")
    whole = (subset / "Food" / "01.jpg").read_bytes()
    (subset / "Food" / "01.jpg").write_bytes(whole[: len(whole) // 2])
    data = OpenImagesV7(subset, "all")
    with pytest.raises(DataError, match=r"cannot read image '.*Food/00.jpg': not an image"):
        data[0]
    with pytest.raises(DataError, match=r"cannot read image '.*Food/01.jpg': "):
        data[1]
    assert data[2][1] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "valid"}, "unknown split 'valid'; known: 'train', 'val', 'test', 'all'"),
        ({"split_lengths": (0.7, 0.2, 0.2)}, r"must sum to 1, not to 1.1: \(0.7, 0.2, 0.2\)"),
        ({"split_lengths": (0.8, 0.2)}, r"three, of train, val and test, not \(0.8, 0.2\)"),
        ({"split_lengths": 0.7}, "three, of train, val and test, not 0.7"),
        ({"split_lengths": (1.2, -0.1, -0.1)}, "between 0 and 1, not 1.2"),
        ({"seed": -1}, "seed must be an integer of at least 0, not -1"),
        ({"seed": 2**32, "split": "all"}, r"seed must be below 2\*\*32"),
        ({"num_augments": -1}, "num_augments must be an integer of at least 0, not -1"),
        ({"samples_per_class": 0}, "samples_per_class must be an integer of at least 1, not 0"),
        ({"samples_per_class": 5, "num_augments": 1}, "num_augments=1 and samples_per_class=5"),
        ({"augmentation": "cutmix"}, "unknown augmentation 'cutmix'; known: 'autoaugment', "),
    ],
)
def test_settings_that_cannot_be(subset: Path, settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OpenImagesV7(subset, **settings)


def test_folders_that_cannot_be(make_folder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere is not there"):
        OpenImagesV7(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is not a folder"):
        OpenImagesV7(__file__)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no class folders in .*empty"):
        OpenImagesV7(tmp_path / "empty")
    few = make_folder({"a": 30, "b": 3}, size=(2, 2), name="few")
    with pytest.raises(DataError, match=r"class 'b' has 3 of 33 images: too few .* 70/10/20"):
        OpenImagesV7(few)
    assert len(OpenImagesV7(few, "all")) == 33
    single = make_folder({"a": 30, "b": 1}, size=(2, 2), name="single")
    with pytest.raises(DataError, match="class 'b' has 1 of 31 images"):
        OpenImagesV7(single)
    (few / "c").mkdir()
    with pytest.raises(DataError, match=r"class folder .*few/c has no images"):
        OpenImagesV7(few)
