"""load_data as users call it: digits, arguments, statistics, memory, the cache."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader

from radial.data import DATASETS, Data, DataError, Images, load_data, survey

CIFAR = Path(__file__).parents[2].parent / "shared" / "data" / "cifar10-20k.tar.gz"


def everything(images: Images) -> torch.Tensor:
    return images.__getitems__(range(len(images)))


def identity(batch: torch.Tensor) -> torch.Tensor:
    return batch


def assert_same(one: Data, two: Data) -> None:
    for part in ("train", "val", "test"):
        a, b = getattr(one, part), getattr(two, part)
        assert torch.equal(everything(a), everything(b))
        assert a.labels is b.labels is None or torch.equal(a.labels, b.labels)
    assert torch.equal(one.mean, two.mean)
    assert torch.equal(one.std, two.std)
    assert (one.split, one.skipped, one.image_size) == (two.split, two.skipped, two.image_size)


def assert_statistics(data: Data) -> None:
    pixels = everything(data.train).numpy().astype(np.float64) / 255
    np.testing.assert_allclose(data.mean, pixels.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(data.std, pixels.std(axis=(0, 2, 3)), rtol=1e-6)


def test_digits() -> None:
    data = load_data()
    assert data.name == "digits"
    assert data.image_size == data.train.stored_size == 32
    assert data.classes == tuple("0123456789")
    assert data.train.in_memory
    assert data.train.labels is not None
    assert data.train.labels.dtype == torch.int64
    images = everything(data.train)
    assert images.shape == (1257, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert (int(images.min()), int(images.max())) == (0, 255)
    assert torch.equal(images[:, 0], images[:, 2])
    assert_statistics(data)
    data.require_labels(at_least=10)
    with pytest.raises(DataError, match="10 classes in its train split, at least 11"):
        data.require_labels(at_least=11)


def test_digits_are_the_digits() -> None:
    data = load_data("digits")
    source = load_digits()
    for part in (data.train, data.val, data.test):
        rows = part.index.numpy()
        np.testing.assert_array_equal(part.labels, source.target[rows])
        small = everything(part)[:, 0].double().unfold(1, 4, 4).unfold(2, 4, 4).mean((-1, -2))
        correlation = np.corrcoef(small.numpy().ravel(), source.images[rows].ravel())[0, 1]
        assert correlation > 0.97


def test_two_calls_give_the_same_and_another_seed_another() -> None:
    assert_same(load_data("digits"), load_data("digits"))
    other = load_data("digits", seed=1)
    assert not torch.equal(other.test.index, load_data("digits").test.index)
    assert other.split == "stratified 70/10/20, seed 1"


def test_one_image_and_batches_agree() -> None:
    images = load_data("digits").val
    batch = images.__getitems__([3, 0, 3])
    assert torch.equal(batch, torch.stack([images[3], images[0], images[3]]))
    assert len(list(images)) == len(images)
    part = images.subset([5, 7])
    assert torch.equal(part[1], images[7])
    assert part.labels is not None
    assert images.labels is not None
    assert part.labels.tolist() == images.labels[[5, 7]].tolist()
    assert part.name(0) == images.name(5)


@pytest.mark.parametrize("memory_limit", [0.0, 2.0])
def test_arrays_at_another_size(memory_limit: float) -> None:
    data = load_data("digits", image_size=64, memory_limit=memory_limit)
    assert data.image_size == 64
    assert data.train.stored_size == 73
    assert data.train[0].shape == (3, 73, 73)
    assert_same(data, load_data("digits", image_size=64))
    assert_statistics(data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"spec": "mnist"}, "unknown dataset 'mnist'; known: digits, folder:PATH, cifar10"),
        ({"spec": "folder"}, "needs a path: 'folder:PATH', not 'folder'"),
        ({"spec": "imagenet:"}, "needs a path: 'imagenet:PATH'"),
        ({"spec": "digits:there"}, "takes no path: 'digits'"),
        ({"split": "half"}, "unknown split 'half'; known: 'auto', 'paper', 'own'"),
        ({"split": "own"}, "digits has no split of its own"),
        ({"image_size": 0}, "image_size must be"),
        ({"max_bad": -1}, "max_bad must be"),
        ({"memory_limit": -1.0}, "memory_limit must be"),
        ({"memory_limit": float("nan")}, "memory_limit must be"),
        ({"threads": 0}, "threads must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**32}, "seed must be"),
        ({"spec": "folder:/no/such/place"}, "/no/such/place is not there"),
        ({"spec": f"folder:{__file__}"}, "is not a folder"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        load_data(**arguments)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("info", DATASETS.values(), ids=lambda info: info.name)
def test_registry(info) -> None:
    assert DATASETS[info.name] is info
    assert info.description
    assert info.spec == info.name + ":PATH" * info.takes_path


@pytest.mark.parametrize("size", [(16, 16), (100, 70)], ids=["native", "resized"])
def test_lazy_equals_in_memory(make_folder, cache: Path, size: tuple[int, int]) -> None:
    path = make_folder({"a": 10, "b": 11}, size=size, suffix="jpg")
    image_size = None if size == (16, 16) else 64
    kept = load_data(f"folder:{path}", image_size=image_size)
    lazy = load_data(f"folder:{path}", image_size=image_size, memory_limit=0)
    assert kept.train.in_memory
    assert not lazy.train.in_memory
    assert kept.train.stored_size == (16 if image_size is None else 73)
    assert_same(kept, lazy)
    assert_statistics(lazy)
    fresh = load_data(
        f"folder:{path}", image_size=image_size, memory_limit=0, root=cache / "other", threads=1
    )
    assert_same(kept, fresh)


def test_loader_workers_decode(make_folder) -> None:
    data = load_data(f"folder:{make_folder({'a': 10, 'b': 10})}", memory_limit=0)
    loader = DataLoader(data.train, batch_size=4, num_workers=1, collate_fn=identity)
    assert torch.equal(torch.cat(list(loader)), everything(data.train))


def test_sizes_by_the_images(make_folder) -> None:
    small = load_data(f"folder:{make_folder({'': 10}, size=(96, 96), name='small')}")
    assert (small.image_size, small.train.stored_size) == (96, 96)
    large = load_data(f"folder:{make_folder({'': 10}, size=(97, 97), name='large')}")
    assert (large.image_size, large.train.stored_size) == (224, 256)
    wide = load_data(f"folder:{make_folder({'': 10}, size=(20, 16), name='wide')}", image_size=16)
    assert (wide.image_size, wide.train.stored_size) == (16, 16)


def test_constant_images_can_be_normalised(tmp_path: Path) -> None:
    (tmp_path / "black").mkdir()
    for number in range(10):
        Image.new("RGB", (8, 8)).save(tmp_path / "black" / f"{number}.png")
    data = load_data(f"folder:{tmp_path / 'black'}")
    assert data.mean.tolist() == [0, 0, 0]
    assert data.std.tolist() == pytest.approx([1 / 255] * 3)


def test_cache_is_written_once_used_and_outdated_by_change(
    make_folder, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_folder({"a": 10, "b": 10})
    spec = f"folder:{path}"
    first = load_data(spec, memory_limit=0)
    (written,) = (cache / "statistics").iterdir()
    before = written.stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(survey, "_read_all", None)
        assert_same(first, load_data(spec, memory_limit=0))
    assert load_data(spec).train.in_memory
    assert written.stat().st_mtime_ns == before

    Image.new("RGB", (16, 16), "white").save(path / "a" / "00.png")
    changed = load_data(spec, memory_limit=0)
    assert_statistics(changed)
    os.utime(path / "a" / "00.png", ns=(1, 1))
    load_data(spec, memory_limit=0)
    load_data(spec, memory_limit=0, seed=1)
    load_data(spec, memory_limit=0, image_size=64)
    assert len(list((cache / "statistics").iterdir())) == 5


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"survey": 1}', "other mean", "\0" * 50])
def test_damaged_cache_is_not_trusted(make_folder, cache: Path, damage: str) -> None:
    spec = f"folder:{make_folder({'a': 10, 'b': 10})}"
    first = load_data(spec, memory_limit=0)
    (written,) = (cache / "statistics").iterdir()
    whole = written.read_text()
    saved = json.loads(whole)
    saved["survey"]["mean"][0] += 0.1
    written.write_text(json.dumps(saved) if damage == "other mean" else damage)
    assert_same(first, load_data(spec, memory_limit=0))
    assert written.read_text() == whole


def test_cache_that_cannot_be_written_is_only_a_warning(make_folder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="cannot remember the statistics"):
        load_data(f"folder:{make_folder({'a': 10})}", root=tmp_path / "file")


def test_real_images(tmp_path: Path) -> None:
    if not CIFAR.exists():
        pytest.skip(f"{CIFAR} is not there: run beside the shared data")
    with tarfile.open(CIFAR) as archive:
        wanted = [m for m in archive if m.name.split("/")[1:2] in (["airplane"], ["automobile"])]
        archive.extractall(tmp_path, members=wanted, filter="data")
    data = load_data(f"folder:{tmp_path / 'cifar10-20k'}")
    assert data.name == "folder:cifar10-20k"
    assert data.classes == ("airplane", "automobile")
    assert [len(part) for part in (data.train, data.val, data.test)] == [2800, 400, 800]
    assert (data.image_size, data.train.stored_size, data.skipped) == (32, 32, ())
    assert data.test.labels is not None
    assert data.test.labels.bincount().tolist() == [400, 400]
    assert_statistics(data)
    assert 0.4 < data.mean.mean() < 0.6
