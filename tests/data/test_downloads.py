"""torchvision's own download code against a server on this machine."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import io
import pickle
import struct
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import datasets

from radial.data import DataError, load_data


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address it is served at."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def cifar(served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> tuple[Path, np.ndarray]:
    """A tiny CIFAR-10: 100 training and 20 test images; its archive and the images."""
    folder, address = served
    images = np.random.default_rng(0).integers(0, 256, (120, 3 * 32 * 32), np.uint8)
    entries = {
        name: pickle.dumps({"data": images[rows], "labels": [i % 10 for i in range(120)][rows]})
        for name, rows in (
            *((f"data_batch_{n + 1}", slice(20 * n, 20 * n + 20)) for n in range(5)),
            ("test_batch", slice(100, 120)),
        )
    }
    entries["batches.meta"] = pickle.dumps({"label_names": list("abcdefghij")})
    packed = archive({f"cifar-10-batches-py/{name}": data for name, data in entries.items()})
    sums = {name: md5(data) for name, data in entries.items()}
    (folder / "cifar.tar.gz").write_bytes(packed)
    kind = datasets.CIFAR10
    monkeypatch.setattr(kind, "url", f"{address}/cifar.tar.gz")
    monkeypatch.setattr(kind, "tgz_md5", md5(packed))
    batches = [[name, sums[name]] for name in sums if name.startswith("data")]
    monkeypatch.setattr(kind, "train_list", batches)
    monkeypatch.setattr(kind, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": sums["batches.meta"]})
    return folder / "cifar.tar.gz", images.reshape(-1, 3, 32, 32)


def test_cifar10_is_downloaded_once(cifar: tuple[Path, np.ndarray], cache: Path) -> None:
    source, images = cifar
    data = load_data("cifar10")
    assert data.name == "cifar10"
    assert data.classes == tuple("abcdefghij")
    assert data.split == "the dataset's own (val: 10 % of train, stratified, seed 42)"
    assert [len(part) for part in (data.train, data.val, data.test)] == [90, 10, 20]
    assert data.val.labels is not None
    assert sorted(data.val.labels.tolist()) == list(range(10))
    for part in (data.train, data.val, data.test):
        found = part.__getitems__(range(len(part)))
        assert np.array_equal(found, images[part.index])
        assert torch.equal(part.labels, part.index % 10)
    assert [path.name for path in cache.iterdir()] == ["cifar-10-batches-py"]

    source.unlink()
    again = load_data("cifar10", split="paper")
    assert [len(part) for part in (again.train, again.val, again.test)] == [84, 12, 24]
    assert again.split == "stratified 70/10/20, seed 42"


def test_a_damaged_download_is_repaired(cifar: tuple[Path, np.ndarray], cache: Path) -> None:
    whole = load_data("cifar10")
    (cache / "cifar-10-batches-py" / "test_batch").write_bytes(b"damaged")
    assert torch.equal(load_data("cifar10").test[0], whole.test[0])
    assert [path.name for path in cache.iterdir()] == ["cifar-10-batches-py"]


@pytest.mark.parametrize("failure", ["refused", "missing", "cut", "other content"])
def test_failed_downloads_are_one_line_and_leave_nothing(
    cifar: tuple[Path, np.ndarray], cache: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    source, _ = cifar
    if failure == "refused":
        monkeypatch.setattr(datasets.CIFAR10, "url", "http://127.0.0.1:9/cifar.tar.gz")
    elif failure == "missing":
        source.unlink()
    elif failure == "cut":
        source.write_bytes(source.read_bytes()[:1000])
    else:
        source.write_bytes(b"<html>please log in</html>")
    with pytest.raises(DataError, match=r"^cannot download cifar10 to .*: .+$") as error:
        load_data("cifar10")
    assert "\n" not in str(error.value)
    assert list(cache.iterdir()) == []


def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot download cifar100 to .*file"):
        load_data("cifar100", root=tmp_path / "file")


def test_fashion_mnist_is_padded(
    served: tuple[Path, str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = served
    images = np.random.default_rng(0).integers(0, 256, (120, 28, 28), np.uint8)
    labels = (np.arange(120) % 10).astype(np.uint8)
    resources = []
    for start, rows in (("train", slice(100)), ("t10k", slice(100, 120))):
        count = len(images[rows])
        files = {
            f"{start}-images-idx3-ubyte.gz": struct.pack(">4i", 2051, count, 28, 28)
            + images[rows].tobytes(),
            f"{start}-labels-idx1-ubyte.gz": struct.pack(">2i", 2049, count)
            + labels[rows].tobytes(),
        }
        for name, content in files.items():
            (folder / name).write_bytes(gzip.compress(content))
            resources.append((name, md5((folder / name).read_bytes())))
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [f"{address}/"])
    monkeypatch.setattr(datasets.FashionMNIST, "resources", resources)
    data = load_data("fashion-mnist")
    assert (data.image_size, data.train.stored_size) == (32, 32)
    assert [len(part) for part in (data.train, data.val, data.test)] == [90, 10, 20]
    found = data.test.__getitems__(range(20)).numpy()
    assert np.array_equal(found[:, 1, 2:-2, 2:-2], images[100:])
    assert found.astype(int).sum() == 3 * images[100:].astype(int).sum()
    assert torch.equal(data.test.labels, torch.from_numpy(labels[100:]).long())


def test_stl10_trains_on_unlabelled_images_too(
    served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = served
    pixels = np.random.default_rng(0).integers(0, 256, (60, 3, 96, 96), np.uint8)
    ids = (np.arange(60) % 2 + 1).astype(np.uint8)
    parts = {"train": slice(30), "unlabeled": slice(30, 50), "test": slice(50, 60)}
    files = {f"{name}_X.bin": pixels[rows].tobytes() for name, rows in parts.items()}
    files |= {f"{name}_y.bin": ids[parts[name]].tobytes() for name in ("train", "test")}
    files["class_names.txt"] = b"plane\nbird\n"
    packed = archive({f"stl10_binary/{name}": content for name, content in files.items()})
    (folder / "stl10.tar.gz").write_bytes(packed)
    kind = datasets.STL10
    monkeypatch.setattr(kind, "url", f"{address}/stl10.tar.gz")
    monkeypatch.setattr(kind, "tgz_md5", md5(packed))
    for names in ("train_list", "test_list"):
        known = [[name, md5(files[name])] for name, _ in getattr(kind, names)]
        monkeypatch.setattr(kind, names, known)
    data = load_data("stl10")
    assert data.classes == ("plane", "bird")
    assert (data.image_size, data.train.stored_size) == (96, 96)
    assert [len(part) for part in (data.train, data.val, data.test)] == [47, 3, 10]
    assert data.train.labels is not None
    assert int((data.train.labels == -1).sum()) == 20
    assert data.val.labels is not None
    assert (data.val.labels >= 0).all()
    assert "val: 10 % of labelled train, stratified" in data.split
    assert np.array_equal(data.test[0], pixels[50].transpose(0, 2, 1))  # stored column by column
    data.require_labels()
    paper = load_data("stl10", split="paper")
    assert [len(part) for part in (paper.train, paper.val, paper.test)] == [28, 4, 8]
