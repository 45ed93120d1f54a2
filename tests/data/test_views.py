"""Views against torchvision: every operation, the distributions drawn, and the parts of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
import torch
import torchvision.transforms.v2 as T
import torchvision.transforms.v2.functional as TF
from numpy.typing import ArrayLike
from scipy.stats import ks_2samp
from torch import Tensor

from radial.data import views
from radial.data.augmentations import RECIPES, View, recipe
from radial.data.views import Parameters, apply, augment, draw_parameters

PLAIN = View(
    size=32,
    flip=0.0,
    jitter=0.0,
    brightness=0.8,
    contrast=0.8,
    saturation=0.8,
    hue=0.2,
    grey=0.0,
    blur=0.0,
)
OPERATIONS = (TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation, TF.adjust_hue)
P_VALUE = 1e-3


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Many small operations: on a busy machine threads wait for each other most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pictures(n: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Natural-like: noise at several scales, with flat grey, black and white patches."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.zeros(n, 3, height, width)
    for cells in (2, 4, 8, 16):
        noise = torch.rand(n, 3, cells, cells, generator=generator)
        x += TF.resize(noise, [height, width], antialias=True) * 2 / cells
    x = (x / x.amax(dim=(1, 2, 3), keepdim=True)).clamp(0, 1)
    for i, level in enumerate((0.0, 0.5, 1.0)):
        x[:, :, : height // 4, i * width // 4 : (i + 1) * width // 4] = level
    return x


def same_law(ours: ArrayLike, theirs: ArrayLike) -> bool:
    return bool(ks_2samp(ours, theirs, method="asymp").pvalue > P_VALUE)


def drawn(view: View, n: int, image_size: tuple[int, int] = (48, 48), seed: int = 0) -> Parameters:
    return draw_parameters(view, n, image_size, torch.Generator().manual_seed(seed))


def by_torchvision(image: Tensor, view: View, p: Parameters, i: int) -> Tensor:
    """Sample i with torchvision's functions, one after the other."""
    factors = [float(f[i]) for f in (p.brightness, p.contrast, p.saturation, p.hue)]
    side = [view.size, view.size]
    x = TF.resized_crop(image, *p.box[i].tolist(), side, antialias=True)
    if p.flip[i]:
        x = TF.horizontal_flip(x)
    if p.jitter[i]:
        for operation in p.order[i].tolist():
            x = OPERATIONS[operation](x, factors[operation])
    if p.grey[i]:
        x = TF.rgb_to_grayscale(x, num_output_channels=3)
    if p.sigma[i] > 0:
        radius = min(8, view.size - 1)
        x = TF.gaussian_blur(x, [2 * radius + 1] * 2, [float(p.sigma[i])] * 2)
    if p.solarise[i]:
        x = TF.solarize(x, 0.5)
    return x


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"scale": (0.9, 1.0)},
        {"flip": 1.0},
        {"jitter": 1.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0},
        {"jitter": 1.0, "brightness": 0.0, "saturation": 0.0, "hue": 0.0},
        {"jitter": 1.0, "brightness": 0.0, "contrast": 0.0, "hue": 0.0},
        {"jitter": 1.0, "brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.5},
        {"grey": 1.0},
        {"blur": 1.0},
        {"solarise": 1.0},
    ],
    ids=lambda changed: " ".join(list(changed)[:1] + [k for k, v in changed.items() if v == 0.0]),
)
@pytest.mark.parametrize("image_size", [(32, 32), (37, 40), (64, 90)], ids=str)
def test_single_operations_are_torchvisions(
    changed: dict[str, float], image_size: tuple[int, int]
) -> None:
    view = replace(PLAIN, **changed)  # type: ignore[arg-type]
    images, p = pictures(12, *image_size), drawn(view, 12, image_size)
    expected = torch.stack([by_torchvision(images[i], view, p, i) for i in range(12)])
    torch.testing.assert_close(apply(images, view, p), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("size", [9, 16, 32, 70])
def test_everything_together_is_torchvisions(size: int) -> None:
    view = replace(
        PLAIN, size=size, flip=0.5, jitter=0.8, grey=0.2, blur=0.5, solarise=0.3, hue=0.5
    )
    images, p = pictures(48, 48, 60), drawn(view, 48, (48, 60))
    expected = torch.stack([by_torchvision(images[i], view, p, i) for i in range(48)])
    deviation = (apply(images, view, p) - expected).abs()
    assert deviation.max() < 1e-3
    assert deviation.mean() < 1e-6


def test_hue_of_random_colours_is_torchvisions() -> None:
    x = torch.rand(8, 3, 64, 64)
    shift = torch.linspace(-0.5, 0.5, 8)
    expected = torch.stack([TF.adjust_hue(x[i], float(shift[i])) for i in range(8)])
    torch.testing.assert_close(views.hue(x, shift), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("image_size", "size"), [((40, 40), 32), ((256, 200), 96)])
def test_both_ways_to_crop_agree(
    image_size: tuple[int, int], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = replace(PLAIN, size=size, flip=0.5)
    images, p = pictures(6, *image_size), drawn(view, 6, image_size)
    monkeypatch.setattr(views, "MATMUL", 0)
    one_by_one = apply(images, view, p)
    monkeypatch.setattr(views, "MATMUL", 10**9)
    torch.testing.assert_close(apply(images, view, p), one_by_one, atol=2e-5, rtol=0)


@pytest.mark.parametrize("image_size", [(32, 32), (200, 300), (20, 200)], ids=str)
@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.05, 0.14), (0.5, 1.0)], ids=str)
def test_boxes_follow_torchvisions_distribution(
    image_size: tuple[int, int], scale: tuple[float, float]
) -> None:
    n, blank = 3000, torch.empty(3, *image_size)
    peer = T.RandomResizedCrop(32, scale=scale)
    rows = [list(peer.make_params([blank]).values()) for _ in range(n)]
    box = drawn(replace(PLAIN, scale=scale), n, image_size).box
    for ours, theirs in zip(box.T, torch.tensor(rows).T):
        assert same_law(ours, theirs)
    places = [box[:, 0] / (image_size[0] + 1 - box[:, 2]), box[:, 2] / box[:, 3]]
    others = torch.tensor(rows)
    peers = [others[:, 0] / (image_size[0] + 1 - others[:, 2]), others[:, 2] / others[:, 3]]
    for ours, theirs in zip(places, peers):
        assert same_law(ours, theirs)
    assert (box[:, 2:] >= 1).all()
    assert (box[:, :2] >= 0).all()
    assert (box[:, :2] + box[:, 2:] <= torch.tensor(image_size)).all()


@pytest.mark.parametrize("image_size", [(10, 400), (400, 10)], ids=str)
def test_a_crop_that_never_fits_is_the_central_one(image_size: tuple[int, int]) -> None:
    view = replace(PLAIN, scale=(1.0, 1.0))
    peer = T.RandomResizedCrop(32, scale=(1.0, 1.0)).make_params([torch.empty(3, *image_size)])
    box = drawn(view, 5, image_size).box
    assert box.tolist() == [[peer[k] for k in ("top", "left", "height", "width")]] * 5


def test_colours_follow_torchvisions_distribution() -> None:
    n, view = 3000, replace(PLAIN, brightness=0.4, contrast=1.5, saturation=0.2, hue=0.1)
    peer = T.ColorJitter(0.4, 1.5, 0.2, 0.1)
    rows = [peer.make_params([]) for _ in range(n)]
    p = drawn(view, n)
    for name in ("brightness", "contrast", "saturation", "hue"):
        theirs = [row[f"{name}_factor"] for row in rows]
        assert same_law(getattr(p, name), theirs), name
    counts = torch.unique(p.order, dim=0, return_counts=True)[1]
    assert len(counts) == 24
    assert ((counts - n / 24) ** 2 / (n / 24)).sum() < 50  # χ², 23 degrees: p = 0.001 at 49.7


def test_chances_are_the_views() -> None:
    n = 20_000
    view = replace(PLAIN, flip=0.5, jitter=0.8, grey=0.2, blur=0.3, solarise=0.1)
    p = drawn(view, n)
    flags = {"flip": p.flip, "jitter": p.jitter, "grey": p.grey, "solarise": p.solarise}
    for name, flag in (flags | {"blur": p.sigma > 0}).items():
        chance = getattr(view, name)
        error = 4 * (chance * (1 - chance) / n) ** 0.5
        assert flag.float().mean().item() == pytest.approx(chance, abs=error), name
    blurred = p.sigma[p.sigma > 0]
    uniform = torch.rand(n) * 1.9 + 0.1
    assert same_law(blurred, uniform)


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("method", RECIPES)
def test_every_recipe_makes_its_views(method: str, size: int) -> None:
    chosen = recipe(method, size)
    images = (255 * pictures(3, size + size // 8, size)).to(torch.uint8)
    made = augment(images, chosen, torch.Generator().manual_seed(0))
    crops = {"swav": {32: 6, 224: 8}, "dino": {32: 6, 224: 10}}
    count = crops[method][size] if method in crops else 2
    assert len(made) == len(chosen) == count
    assert chosen[0].size == size
    assert all((view.blur == 0) == (size == 32) for view in chosen)
    for view, x in zip(chosen, made):
        assert x.shape == (3, 3, view.size, view.size)
        assert x.dtype == torch.float32
        assert x.min() >= -1e-6
        assert x.max() <= 1 + 1e-6
        assert not x.requires_grad


def test_recipes_as_published() -> None:
    one, two = recipe("byol", 224)
    assert (one.blur, one.solarise, two.blur, two.solarise) == (1.0, 0.0, 0.1, 0.2)
    assert recipe("barlow_twins", 224) == (one, two)
    assert [view.size for view in recipe("swav", 224)] == [224] * 2 + [96] * 6
    assert [view.size for view in recipe("swav", 32)] == [32] * 2 + [16] * 4
    small = recipe("simclr", 32)[0]
    assert (small.brightness, small.contrast, small.saturation, small.hue) == (0.4, 0.4, 0.4, 0.1)
    assert recipe("moco", 224)[0].hue == 0.1


def test_samples_of_a_batch_differ_and_seeds_repeat() -> None:
    images = pictures(1, 32, 32).expand(16, -1, -1, -1)
    first, again, other = (
        augment(images, recipe("simclr", 32), torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    )
    for a, b, c in zip(first, again, other):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
        distances = torch.cdist(a.flatten(1), a.flatten(1)) + torch.eye(16)
        assert distances.min() > 1e-3
    assert not torch.equal(*first)


@pytest.mark.parametrize(("method", "side", "size"), [
    ("byol", 36, 32), ("simclr", 72, 64), ("swav", 130, 112), ("vicreg", 40, 33),
])  # fmt: skip
def test_ranks_together_see_what_one_process_sees(
    method: str, side: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "CHUNK", 5 * 3 * size**2)  # parts and chunks cut differently
    images = (255 * pictures(24, side, side)).to(torch.uint8)
    chosen = recipe(method, size)
    whole = augment(images, chosen, torch.Generator().manual_seed(3))
    for world in (2, 3):
        parts = [
            augment(part, chosen, torch.Generator().manual_seed(3), rank=rank, world=world)
            for rank, part in enumerate(images.chunk(world))
        ]
        for k, expected in enumerate(whole):
            assert torch.equal(torch.cat([part[k] for part in parts]), expected)


def test_bytes_and_floats_agree() -> None:
    bits = (255 * pictures(8, 40, 40)).to(torch.uint8)
    for method in ("simclr", "byol"):
        chosen = recipe(method, 64)
        a, b = (
            augment(x, chosen, torch.Generator().manual_seed(0))
            for x in (bits, bits.double() / 255)
        )
        for x, y in zip(a, b):
            solarised = (x - y).abs() > 1e-4  # none but where 0.5 was just missed
            assert solarised.float().mean() < 1e-3


def test_normalisation_is_per_channel_and_autocast_leaves_it_alone() -> None:
    images, p = pictures(4, 32, 32), drawn(PLAIN, 4, (32, 32))
    mean, std = torch.tensor([0.1, 0.5, 0.9]), torch.tensor([0.2, 1.0, 3.0])
    plain = apply(images, PLAIN, p)
    expected = TF.normalize(plain, mean.tolist(), std.tolist())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(apply(images, PLAIN, p, mean=mean, std=std), expected)


def test_parameters_are_cut_and_moved_whole() -> None:
    p = drawn(PLAIN, 8)
    part = p.part(2, 5).to("cpu")
    for field in fields(Parameters):
        assert torch.equal(getattr(part, field.name), getattr(p, field.name)[2:5])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"size": 0}, "size=0"),
        ({"flip": 1.5}, r"flip=1\.5 must be a probability"),
        ({"solarise": -0.1}, "solarise"),
        ({"hue": 0.6}, r"hue=0\.6"),
        ({"contrast": -1.0}, "contrast"),
        ({"brightness": float("nan")}, "brightness"),
        ({"scale": (0.5, 1.5)}, "scale"),
        ({"scale": (0.0, 1.0)}, "scale"),
        ({"ratio": (2.0, 1.0)}, "ratio"),
        ({"sigma": (0.0, 1.0)}, "sigma"),
    ],
)
def test_a_view_names_what_is_wrong(changed: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PLAIN, **changed)  # type: ignore[arg-type]


def test_bad_input_is_named() -> None:
    images, p = pictures(4, 32, 32), drawn(PLAIN, 4, (32, 32))
    generator = torch.Generator()
    with pytest.raises(ValueError, match=r"'mae' is not one of .*'byol'"):
        recipe("mae", 32)
    with pytest.raises(ValueError, match="size=1"):
        recipe("byol", 1)
    with pytest.raises(ValueError, match="shape"):
        apply(images[:, :1], PLAIN, p)
    with pytest.raises(ValueError, match="shape"):
        augment(images[0, 0], [PLAIN], generator)
    with pytest.raises(ValueError, match=r"torch\.int64"):
        apply(images.long(), PLAIN, p)
    with pytest.raises(ValueError, match="4 samples do not fit 3 images"):
        apply(images[:3], PLAIN, p)
    with pytest.raises(ValueError, match=r"larger than \(16, 16\)"):
        apply(images[..., :16, :16], PLAIN, p)
    with pytest.raises(ValueError, match="together"):
        apply(images, PLAIN, p, mean=torch.zeros(3))
    with pytest.raises(ValueError, match="std of shape"):
        apply(images, PLAIN, p, mean=torch.zeros(3), std=torch.ones(1))
    with pytest.raises(ValueError, match="rank=2"):
        augment(images, [PLAIN], generator, rank=2, world=2)
    with pytest.raises(ValueError, match="n=0"):
        augment(images[:0], [PLAIN], generator)
