"""Features, neighbours and the probe, against scikit-learn and by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

from radial import RBFLayer, RBFNProjectionHead
from radial.data import DataError, load_data
from radial.data.augmentations import View, recipe
from radial.data.images import Files, Images
from radial.evaluation.classification import knn_accuracy
from radial.evaluation.features import Layers, NotFinite, extract, extract_layers
from radial.evaluation.probe import few_label_probe

N, STORED, SIZE = 23, 20, 16
MEAN, STD = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3])
VIEW = recipe("simclr", SIZE)[0]
LAYERS = ("backbone", "projector", "kernel_input")
MIRROR = View(  # the whole image, turned or not
    size=STORED, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.5, jitter=0.0, grey=0.0, blur=0.0,
    brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0,
)  # fmt: skip


def make_images(n: int = N, side: int = STORED) -> Images:
    pixels = np.random.default_rng(0).integers(0, 256, (2 * n, 3, side, side), np.uint8)
    index = torch.arange(n) * 2  # rows of a store that holds more
    return Images(torch.from_numpy(pixels), index, stored_size=side)


def make_backbone() -> nn.Sequential:
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Dropout(0.5),
    )  # fmt: skip
    net(torch.randn(64, 3, SIZE, SIZE))  # BatchNorm's statistics
    return net


def make_head() -> RBFNProjectionHead:
    torch.manual_seed(2)
    return RBFNProjectionHead(24, 10, 7, 3, num_kernels=5)


def layers_of(images: Images, **options: Any) -> Layers:
    settings: dict[str, Any] = {"mean": MEAN, "std": STD, "image_size": SIZE}
    modules = options.pop("modules", None) or (make_backbone(), make_head())
    return extract_layers(*modules, images, **(settings | options))


def assert_same(a: Layers, b: Layers, **tolerance: float) -> None:
    for name in LAYERS:
        torch.testing.assert_close(getattr(a, name), getattr(b, name), **tolerance)


@torch.no_grad()
def by_hand(images: Images, backbone: nn.Module, head: RBFNProjectionHead) -> Layers:
    """One image at a time, its centre cut out and normalised in NumPy."""
    rows: dict[str, list[Tensor]] = {name: [] for name in LAYERS}
    backbone.eval()
    head.eval()
    for i in range(len(images)):
        pixels = images[i].numpy()[:, 2:18, 2:18].transpose(1, 2, 0) / 255.0
        x = (pixels - MEAN.numpy()) / STD.numpy()
        h = features = backbone(torch.tensor(x.transpose(2, 0, 1), dtype=torch.float32)[None])
        for stage in head.layers:
            seen = h if isinstance(stage, RBFLayer) else None
            h = stage(h)
            if seen is not None:
                deepest = seen
        for name, value in zip(LAYERS, (features, h, deepest)):
            rows[name].append(value[0])
    return Layers(**{name: torch.stack(values) for name, values in rows.items()})


def test_extract_normalises_in_order_and_leaves_the_mode() -> None:
    data = load_data("digits")
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5), nn.Dropout(0.5)).train()
    features = extract(backbone, data.val, data, batch=100)
    images = torch.stack([data.val[i] for i in range(len(data.val))]) / 255.0
    images = (images - data.mean[:, None, None]) / data.std[:, None, None]
    with torch.no_grad():
        expected = backbone[1](images.flatten(1))
    torch.testing.assert_close(features, expected)
    assert backbone.training


def test_neighbours_agree_with_scikit_learn(generator) -> None:
    centers = torch.randn(3, 8, generator=generator)
    labels = torch.arange(300) % 3
    x = centers[labels] + 1.2 * torch.randn(300, 8, generator=generator)
    train, test = x[:200], x[200:]
    unit = nn.functional.normalize(x, dim=1)
    peer = KNeighborsClassifier(
        n_neighbors=7, metric="cosine", weights=lambda d: torch.exp(-torch.tensor(d) / 0.1).numpy()
    ).fit(unit[:200], labels[:200])
    expected = peer.score(unit[200:], labels[200:])
    found = knn_accuracy(train, labels[:200], test, labels[200:], k=7, temperature=0.1, chunk=33)
    assert found == pytest.approx(expected)
    assert 0.4 < found < 1.0


def test_samples_without_a_label_take_no_part() -> None:
    x = torch.eye(4).repeat(5, 1)
    labels = torch.arange(4).repeat(5)
    hidden = labels.clone()
    hidden[:4] = -1
    assert knn_accuracy(x, hidden, x, labels, k=3) == 1.0
    assert few_label_probe(x, hidden, x, hidden).accuracy == 1.0
    with pytest.raises(ValueError, match="need labelled samples"):
        knn_accuracy(x, torch.full((20,), -1), x, labels)


def test_layers_agree_with_a_loop_over_images() -> None:
    backbone, head = make_backbone(), make_head()
    found = layers_of(make_images(), modules=(backbone, head), batch=10)
    assert [tuple(getattr(found, name).shape) for name in LAYERS] == [(N, 24), (N, 7), (N, 10)]
    assert all(getattr(found, name).dtype == torch.float32 for name in LAYERS)
    assert_same(found, by_hand(make_images(), backbone, head), rtol=1e-5, atol=1e-6)


def test_extract_gives_the_same_features() -> None:
    data = load_data("digits")
    backbone = make_backbone()
    settings = {"mean": data.mean, "std": data.std, "image_size": data.image_size}
    layers = extract_layers(backbone, None, data.val, **settings)
    assert torch.equal(layers.backbone, extract(backbone, data.val, data))
    assert layers.projector is None
    assert layers.kernel_input is None


def test_kernel_input_is_what_the_deepest_layer_sees() -> None:
    head = make_head()
    deepest = [module for module in head.modules() if isinstance(module, RBFLayer)][-1]
    found = layers_of(make_images(), modules=(make_backbone(), head), view=VIEW, q=2)
    rest = head.layers[6:].eval()
    with torch.no_grad():
        projected = rest(deepest(found.kernel_input.flatten(0, 1)))
    torch.testing.assert_close(found.projector.flatten(0, 1), projected, rtol=1e-5, atol=1e-6)
    assert not deepest._forward_hooks
    plain = layers_of(make_images(), modules=(make_backbone(), nn.Linear(24, 3)))
    assert plain.projector.shape == (N, 3)
    assert plain.kernel_input is None


def test_views_of_one_image_stand_together() -> None:
    """A backbone that copies its input shows which image each row comes from, or its mirror."""
    images = make_images()
    found = layers_of(
        images, modules=(nn.Flatten(), None), view=MIRROR, q=6, batch=5, image_size=STORED
    ).backbone
    pixels = torch.stack([images[i] for i in range(N)]) / 255.0
    x = (pixels - MEAN[:, None, None]) / STD[:, None, None]
    found = found.view(N, 6, 3, STORED, STORED)
    plain = (found - x[:, None]).abs().amax((2, 3, 4)) < 1e-5  # (N, q)
    turned = (found - x.flip(-1)[:, None]).abs().amax((2, 3, 4)) < 1e-5
    assert (plain ^ turned).all()
    assert plain.float().mean() == pytest.approx(0.5, abs=0.15)
    assert (plain != plain[:, :1]).any()  # views of an image are drawn apart


@pytest.mark.parametrize("view", [None, replace(MIRROR, flip=0.0)], ids=["plain", "view"])
def test_permuted_images_permute_the_rows(view: View | None) -> None:
    images, order = make_images(), torch.randperm(N)
    options: dict[str, Any] = {"view": view, "q": 2 if view else 1}
    found, permuted = layers_of(images, **options), layers_of(images.subset(order), **options)
    for name in LAYERS:
        torch.testing.assert_close(getattr(permuted, name), getattr(found, name)[order])


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_neither_batch_nor_number_of_views_matters(batch: int) -> None:
    found = layers_of(make_images(), view=VIEW, q=3, batch=8)
    assert_same(layers_of(make_images(), view=VIEW, q=3, batch=batch), found, rtol=1e-5, atol=1e-5)
    fewer = layers_of(make_images(), view=VIEW, q=2, batch=8)
    assert torch.equal(fewer.backbone, found.backbone[:, :2])
    other = layers_of(make_images(), view=VIEW, q=3, batch=8, seed=1).backbone
    assert not torch.isclose(other, found.backbone).all(-1).any()
    views = found.backbone.unbind(1)
    assert not torch.isclose(views[0], views[1]).all(-1).any()


def test_random_state_is_neither_used_nor_touched() -> None:
    modules = make_backbone(), make_head()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = layers_of(make_images(), modules=modules, view=VIEW, q=2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert torch.equal(layers_of(make_images(), modules=modules, view=VIEW, q=2).backbone,
                       first.backbone)  # fmt: skip


class Stumbles(nn.Module):
    """Fails on the second batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(self.training)
        if len(self.seen) == 2:
            raise RuntimeError("stumbled")
        return x


@pytest.mark.parametrize("fails", [False, True])
def test_modules_are_left_as_they_were(fails: bool) -> None:
    backbone, head = make_backbone().train(), make_head().train()
    backbone[1].eval()  # a BatchNorm frozen by its owner
    head.layers[1].eval()
    if fails:
        backbone.append(Stumbles())
    state = {k: v.clone() for k, v in (backbone.state_dict() | head.state_dict()).items()}
    modes = [module.training for module in (*backbone.modules(), *head.modules())]
    if fails:
        with pytest.raises(ValueError, match=r"does not take .* stumbled"):
            layers_of(make_images(), modules=(backbone, head), batch=10)
        assert backbone[-1].seen == [False, False]
    else:
        layers_of(make_images(), modules=(backbone, head), view=VIEW, q=2, batch=10)
    assert [m.training for m in (*backbone.modules(), *head.modules())] == modes
    now = backbone.state_dict() | head.state_dict()
    assert all(torch.equal(now[name], value) for name, value in state.items())
    assert all(p.grad is None and p.requires_grad for p in backbone.parameters())
    assert not any(module._forward_hooks for module in head.modules())


def test_files_are_decoded_when_asked_for(tmp_path: Path) -> None:
    held = make_images()
    names = [f"{i:02}.png" for i in range(N)]
    for i, name in enumerate(names):
        Image.fromarray(held[i].permute(1, 2, 0).numpy()).save(tmp_path / name)
    files = Images(Files(tmp_path, names), torch.arange(N), stored_size=STORED)
    assert not files.in_memory
    for options in ({}, {"view": VIEW, "q": 2}):
        assert_same(layers_of(files, batch=3, **options), layers_of(held, batch=3, **options))
    (tmp_path / names[-1]).write_bytes(b"no image")
    with pytest.raises(DataError, match=r"cannot read image .*22\.png"):
        layers_of(files, batch=3)


def test_progress_counts_views() -> None:
    calls: list[tuple[int, int]] = []
    layers_of(make_images(), view=VIEW, q=2, batch=10, progress=lambda *now: calls.append(now))
    assert calls == [(10, 46), (20, 46), (30, 46), (40, 46), (43, 46), (46, 46)]


def test_half_precision_gives_float32() -> None:
    found = layers_of(make_images(), modules=(make_backbone().bfloat16(), make_head()))
    assert found.backbone.dtype == found.projector.dtype == torch.float32
    full = layers_of(make_images())
    torch.testing.assert_close(found.backbone, full.backbone, rtol=0.1, atol=0.05)


class Log(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).log()


def test_what_is_not_finite_is_told_by_layer_and_images() -> None:
    pixels = torch.full((9, 3, 8, 8), 100, dtype=torch.uint8)
    pixels[[2, 5], 1, 4, 4] = 0
    images = Images(pixels, torch.arange(9), stored_size=8)
    settings: dict[str, Any] = {"mean": torch.zeros(3), "std": torch.ones(3), "image_size": 8}
    with pytest.raises(NotFinite, match="backbone: features of 2 of 9 images have NaN or inf"):
        layers_of(images, modules=(Log(), None), **settings)
    with pytest.raises(NotFinite, match="projector: features of 2 of 9 images have NaN or inf"):
        layers_of(images, modules=(nn.Flatten(), Log()), **settings)


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"modules": (nn.Identity(), None)},
            r"backbone must give one row .* not \(23, 3, 16, 16\)",
        ),
        ({"modules": (Pair(), None)}, r"backbone must give one row .* not tuple"),
        ({"modules": (nn.Flatten(0, 1), None)}, "backbone must give one row"),
        ({"modules": (nn.Flatten(), nn.Unflatten(1, (3, -1)))}, "projector must give one row"),
        ({"q": 2}, "q=2 views of an image need a view"),
        ({"q": 0}, "q must be an integer of at least 1, not 0"),
        ({"batch": 0}, "batch must be an integer of at least 1, not 0"),
        ({"seed": -1}, "seed must be an integer of at least 0, not -1"),
        ({"image_size": 32}, "image_size=32 is more than the images have: 20 px"),
        ({"mean": torch.zeros(1)}, r"mean must have shape \(3,\), not \(1,\)"),
        ({"std": torch.tensor([1.0, 0.0, 1.0])}, r"std must be positive, not \[1.0, 0.0, 1.0\]"),
        ({"std": torch.full((3,), torch.nan)}, "std: 3 of 3 values are NaN or inf"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layers_of(make_images(), **options)


def test_no_images() -> None:
    with pytest.raises(ValueError, match="there are no images"):
        layers_of(make_images().subset([]))
