"""Features on disk: the same as without, found again only if nothing they depend on changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import radial
from radial import RBFNProjectionHead
from radial.data.augmentations import recipe
from radial.data.images import Files, Images
from radial.evaluation.cache import Cache, default_cache
from radial.evaluation.features import Layers, extract_layers

VIEW = recipe("simclr", 16)[0]
LAYERS = ("backbone", "projector", "kernel_input")


class Net(nn.Module):
    """Counts its passes where a key does not look."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * 16 * 16, 8)
        self.scale = scale
        self.register_buffer("shift", torch.zeros(8), persistent=False)
        self._passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self._passes += 1
        return self.scale * self.linear(x.flatten(1)) + self.shift


class OtherNet(Net):
    """The same weights, another function."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).tanh()


def make_pixels() -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (12, 3, 16, 16), np.uint8))


def make_inputs(net: type[Net] = Net, **options: Any) -> dict[str, Any]:
    """All that features depend on, built anew."""
    torch.manual_seed(0)
    backbone = net(**options)
    return {
        "backbone": backbone,
        "projection_head": RBFNProjectionHead(8, 6, 4, num_kernels=3),
        "images": Images(make_pixels(), torch.arange(10), stored_size=16),
        "mean": torch.full((3,), 0.5),
        "std": torch.full((3,), 0.25),
        "image_size": 16,
        "view": VIEW,
        "q": 2,
        "seed": 0,
        "batch": 4,
    }


def passes(inputs: dict[str, Any], cache: Cache | None) -> tuple[Layers, int]:
    inputs["backbone"]._passes = 0
    return extract_layers(**inputs, cache=cache), inputs["backbone"]._passes


def assert_equal(a: Layers, b: Layers) -> None:
    for name in LAYERS:
        first, second = getattr(a, name), getattr(b, name)
        assert (first is None) == (second is None)
        assert first is None or torch.equal(first, second)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "features")


@pytest.mark.parametrize(
    "options",
    [{}, {"view": None, "q": 1}, {"projection_head": None}],
    ids=["views", "plain", "bare"],
)
def test_second_time_is_read_and_equal_bit_for_bit(cache: Cache, options: dict[str, Any]) -> None:
    without, _ = passes(make_inputs() | options, None)
    calls: list[tuple[int, int]] = []
    first, computed = passes(make_inputs() | options, cache)
    again, recomputed = passes(
        make_inputs() | options | {"progress": lambda *now: calls.append(now)}, cache
    )
    assert computed > 0
    assert recomputed == 0
    total = first.backbone.shape[:-1].numel()
    assert calls == [(total, total)]
    assert_equal(first, without)
    assert_equal(again, without)
    assert again.backbone.dtype == torch.float32
    again.backbone.zero_()  # a result of one's own, not a window on the file
    assert_equal(passes(make_inputs() | options, cache)[0], without)


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "weight": lambda i: i["backbone"].linear.weight[3, 3].add_(1e-6),
    "head's centre": lambda i: i["projection_head"].layers[2].centers[0, 0].add_(1e-6),
    "head's buffer": lambda i: i["projection_head"].layers[1].running_var[0].add_(1e-6),
    "buffer not saved": lambda i: i["backbone"].shift[0].add_(1e-6),
    "attribute": lambda i: setattr(i["backbone"], "scale", 2.0),
    "no head": lambda i: i.update(projection_head=None),
    "pixel": lambda i: i["images"]._store[7, 1, 8, 8].bitwise_xor_(1),
    "order": lambda i: i.update(images=i["images"].subset([1, 0, *range(2, 10)])),
    "fewer images": lambda i: i.update(images=i["images"].subset(range(9))),
    "mean": lambda i: i["mean"][1].add_(1e-6),
    "std": lambda i: i["std"][1].add_(1e-6),
    "seed": lambda i: i.update(seed=1),
    "view": lambda i: i.update(view=replace(VIEW, flip=0.4)),
    "no view": lambda i: i.update(view=None, q=1),
    "fewer views": lambda i: i.update(q=1),
    "image size": lambda i: i.update(image_size=15),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_features_depend_on_is_part_of_the_key(cache: Cache, name: str) -> None:
    passes(make_inputs(), cache)
    inputs = make_inputs()
    with torch.no_grad():
        CHANGES[name](inputs)
    changed, computed = passes(inputs, cache)
    assert computed > 0
    assert_equal(changed, passes(inputs, None)[0])
    assert passes(make_inputs(), cache)[1] == 0  # still there


def test_another_version_computes_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    passes(make_inputs(), cache)
    assert passes(make_inputs(), cache)[1] == 0
    monkeypatch.setattr(radial, "__version__", "0.1.0.post1")
    assert passes(make_inputs(), cache)[1] > 0


def test_another_class_with_the_same_weights(cache: Cache) -> None:
    first, _ = passes(make_inputs(), cache)
    other, computed = passes(make_inputs(OtherNet), cache)
    assert computed > 0
    assert not torch.equal(first.backbone, other.backbone)
    assert passes(make_inputs(scale=3.0), cache)[1] > 0


def test_what_makes_no_difference_is_not_part_of_the_key(cache: Cache) -> None:
    passes(make_inputs(), cache)
    inputs = make_inputs()
    inputs["images"]._store[11] = 0  # a row that is not used
    inputs["backbone"].train()
    inputs["projection_head"].eval()
    assert passes(inputs, cache)[1] == 0
    plain = {"view": None, "q": 1}
    passes(make_inputs() | plain, cache)
    assert passes(make_inputs() | plain | {"seed": 7}, cache)[1] == 0


def test_files_count_by_name_size_and_time(cache: Cache, tmp_path: Path) -> None:
    def save(folder: str) -> dict[str, Any]:
        names = [f"{i}.bmp" for i in range(10)]
        (tmp_path / folder).mkdir(exist_ok=True)
        for pixels, name in zip(make_pixels(), names):
            Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(tmp_path / folder / name)
            os.utime(tmp_path / folder / name, (1, 1))
        files = Files(tmp_path / folder, names)
        return {"images": Images(files, torch.arange(10), stored_size=16)}

    first, computed = passes(make_inputs() | save("a"), cache)
    assert computed > 0
    assert_equal(first, passes(make_inputs(), None)[0])
    assert passes(make_inputs() | save("a"), cache)[1] == 0
    assert passes(make_inputs() | save("b"), cache)[1] > 0  # all alike, but another folder
    inputs = make_inputs() | save("a")
    Image.new("RGB", (16, 16)).save(tmp_path / "a" / "3.bmp")  # of the same size, now
    changed, computed = passes(inputs, cache)
    assert computed > 0
    assert not torch.equal(changed.backbone[3], first.backbone[3])


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "other", "header"])
def test_damaged_files_are_computed_again(cache: Cache, damage: str) -> None:
    first, _ = passes(make_inputs(), cache)
    (path,) = cache.folder.iterdir()
    content = bytearray(path.read_bytes())
    whole = bytes(content)
    content[-5] ^= 1
    path.write_bytes(
        {
            "truncated": whole[:-9],
            "flipped": bytes(content),
            "empty": b"",
            "other": b"no tensors here, but long enough to be read as a header",
            "header": whole[:20] + b"\xff" + whole[21:],
        }[damage]
    )
    again, computed = passes(make_inputs(), cache)
    assert computed > 0
    assert_equal(again, first)
    assert path.read_bytes() == whole
    assert passes(make_inputs(), cache)[1] == 0


def test_least_recently_used_files_go(tmp_path: Path) -> None:
    tensors = {"backbone": torch.ones(250)}  # 1,000 bytes and a header
    cache = Cache(tmp_path, limit=4000)
    for number, key in enumerate("abc"):
        cache.put(key, tensors)
        os.utime(tmp_path / f"{key}.safetensors", (number + 1, number + 1))
    (tmp_path / "d.safetensors.1.part").write_bytes(bytes(100))  # of a killed process
    os.utime(tmp_path / "d.safetensors.1.part", (0, 0))
    assert cache.get("a") is not None  # used now
    cache.put("e", tensors)
    names = {path.name.split(".")[0] for path in tmp_path.iterdir()}
    assert names == {"a", "c", "e"}
    assert cache.get("b") is None
    cache.put("f", {"backbone": torch.ones(2000)})  # more than all the room there is
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == names


def test_a_folder_that_cannot_be_written_to_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file")
    with pytest.warns(UserWarning, match="cannot keep features"):
        found, computed = passes(make_inputs(), cache)
    assert computed > 0
    assert_equal(found, passes(make_inputs(), None)[0])


def test_nothing_is_kept_of_features_that_are_not_finite(cache: Cache) -> None:
    inputs = make_inputs()
    with torch.no_grad():
        inputs["backbone"].linear.bias[0] = torch.nan
    with pytest.raises(ValueError, match="backbone: features of 10 of 10 images"):
        passes(inputs, cache)
    assert not cache.folder.exists()


def test_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADIAL_DATA", str(tmp_path))
    assert default_cache().folder == tmp_path / "features"
    monkeypatch.delenv("RADIAL_DATA")
    assert default_cache().folder == Path.home() / ".cache" / "radial" / "features"
    assert default_cache().limit == 8 * 2**30


def test_bad_limit() -> None:
    with pytest.raises(ValueError, match="limit must be a finite number of at least 0, not -1"):
        Cache("anywhere", limit=-1)
