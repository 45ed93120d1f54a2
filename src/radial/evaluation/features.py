"""Frozen features of images: one pass in eval mode, of their centres or of random views.

Legend: N images, n images with q views each, B images of a batch, F features of a layer.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from radial.checks import check_finite, check_shape, check_size, one_line
from radial.data.augmentations import View
from radial.data.images import Data, Images
from radial.data.views import apply, draw_parameters
from radial.devices import lowered
from radial.evaluation.cache import Cache, cache_key
from radial.rbf.layer import deepest_rbf_layer

Prepare = Callable[[Tensor, int], Tensor]  # pixels (B, 3, S, S) from image `start` on → input
Progress = Callable[[int, int], None]

_THREADS = 4  # that decode at most, one batch each


class NotFinite(ValueError):
    """A model gave NaN or inf: the fault of its weights, not of how it was called."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Layers:
    """Outputs of a frozen model: (N, ·) for plain images, (n, q, ·) for views; CPU, float32."""

    backbone: Tensor
    projector: Tensor | None = None  # output of the projection head, where there is one
    kernel_input: Tensor | None = None  # what its deepest RBF layer sees, where it has one


def stacked(passes: Sequence[Layers]) -> Layers:
    """(n, r, q, ·) of r passes over views, for the images that come first in all of them."""
    n = min(len(layers.backbone) for layers in passes)
    backbone = torch.stack([layers.backbone[:n] for layers in passes], dim=1)
    heads = [layers.projector[:n] for layers in passes if layers.projector is not None]
    return Layers(backbone=backbone, projector=torch.stack(heads, dim=1) if heads else None)


@torch.no_grad()
def extract(backbone: nn.Module, images: Images, data: Data, *, batch: int = 256) -> Tensor:
    """(N, F) on the CPU: the centre of each image, normalised; the backbone is left as it was."""
    last = _normalised(_place(backbone), data.mean, data.std)
    centre = _then(_centre(images, data.image_size), last)
    return _run(backbone, None, images, [centre], batch)["backbone"][:, 0]


@torch.no_grad()
def extract_layers(
    backbone: nn.Module,
    projection_head: nn.Module | None,
    images: Images,
    *,
    mean: Tensor,
    std: Tensor,
    image_size: int,
    crop: float | None = None,
    interpolation: str = "bilinear",
    transform: Callable[[Any], Tensor] | None = None,
    view: View | None = None,
    q: int = 1,
    turned: bool = False,
    seed: int = 0,
    batch: int = 256,
    device: torch.device | None = None,
    precision: str = "32",
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> Layers:
    """What the layers of a model make of images, in one pass; both modules are left as they were.

    Without ``view``, of the normalised centre of each image: (N, ·). With ``view``, of ``q``
    random views of each image, the views of one image together: (n, q, ·). The parameters of
    view number v are drawn for all images at once from (seed, v). So they depend neither on
    ``batch`` nor on how many views there are, and torch's own random state is not touched;
    they belong to the image's place, not to its content. They are drawn in the coordinates of the
    stored images: networks of any size see the same crops and colours, where each gets the view
    `radial.data.augmentations.View.at` its size. With ``turned``, of the centre turned by
    0, 90, 180 and 270 degrees: (n, 4, ·).

    ``crop`` is the share of a stored image's side that its centre keeps before it is resized to
    ``image_size`` with ``interpolation``; by default the centre is cut out as it is. A
    ``transform``, PIL image to tensor, takes the place of resizing and normalising.

    Computed on ``device``, to which the modules are moved meanwhile, by default where the
    parameters of the backbone are; in ``precision``, see `radial.devices`. ``progress`` is
    called with the views done and their total after each batch of each view. ``cache`` keeps
    the results on disk, see `radial.evaluation.cache.Cache`.

    Raises ValueError where a layer does not give one row an image, NotFinite where it gives NaN
    or inf.

    >>> from radial.backbones import build_backbone
    >>> from radial.data import load_data
    >>> from radial.data.augmentations import recipe
    >>> data = load_data("digits")
    >>> backbone, _ = build_backbone("resnet9-w0.125", image_size=32)
    >>> settings = {"mean": data.mean, "std": data.std, "image_size": data.image_size}
    >>> images, view = data.val.subset(range(8)), recipe("simclr", 32)[0]
    >>> extract_layers(backbone, None, images, view=view, q=3, **settings).backbone.shape
    torch.Size([8, 3, 64])
    """
    check_size("q", q)
    check_size("seed", seed, minimum=0)
    for name, value in (("mean", mean), ("std", std)):
        check_shape(name, value, (3,))
        check_finite(name, value)
    if not bool((std > 0).all()):
        raise ValueError(f"std must be positive, not {std.tolist()}")
    if view is None and q > 1:
        raise ValueError(f"q={q} views of an image need a view: without one all would be alike")
    if turned and view is not None:
        raise ValueError("an image is turned or seen by random views, not both")
    key = ""
    cache = cache if transform is None else None  # what a function does cannot be told by its name
    if cache is not None:
        settings = {
            "image_size": image_size,
            "mean": mean.tolist(),
            "std": std.tolist(),
            "seen": [crop, interpolation],
            "view": ("turned" if turned else None) if view is None else [asdict(view), q, seed],
            "batch": batch,  # which can change the last bit
            "device": (device or _place(backbone).device).type,
            "precision": precision,
        }
        key = cache_key([backbone, projection_head], images, settings)
        known = cache.get(key)
        if known is not None:
            if progress is not None:
                progress(len(images) * q, len(images) * q)
            return Layers(**known)
    if view is None:
        quarters = range(4 if turned else 1)
        seen = _centre(images, image_size, crop, interpolation)
        inputs = [_turned(seen, turn) for turn in quarters]
    else:
        inputs = [_view(images, view, _seed(seed, v), interpolation) for v in range(q)]
    with _moved(device, backbone, projection_head), lowered(precision, _place(backbone).device):
        place = _place(backbone)
        last = _normalised(place, mean, std) if transform is None else _by_hand(transform)
        inputs = [_then(first, last) for first in inputs]
        outputs = _run(backbone, projection_head, images, inputs, batch, progress)
    for name, values in outputs.items():
        _check_images_finite(name, values)
    if view is None and not turned:
        outputs = {name: values[:, 0] for name, values in outputs.items()}
    if cache is not None:
        cache.put(key, outputs)
    return Layers(**outputs)


def _centre(
    images: Images, image_size: int, crop: float | None = None, interpolation: str = "bilinear"
) -> Prepare:
    """The central part of each image in [0, 1], resized unless it has ``image_size`` already."""
    check_size("image_size", image_size)
    stored = images.stored_size
    if crop is None and image_size > stored:
        raise ValueError(f"image_size={image_size} is more than the images have: {stored} px")
    part = image_size if crop is None else max(1, round(crop * stored))
    margin = (stored - part) // 2
    side = slice(margin, margin + part)

    def prepare(pixels: Tensor, start: int) -> Tensor:
        x = pixels[:, :, side, side]
        if part == image_size:
            return x.float() / 255.0
        x = F.interpolate(x.float(), (image_size,) * 2, mode=interpolation, antialias=True)
        return (x / 255.0).clamp_(0, 1)  # bicubic weights overshoot

    return prepare


def _turned(prepare: Prepare, quarters: int) -> Prepare:
    if not quarters:
        return prepare
    return lambda pixels, start: torch.rot90(prepare(pixels, start), quarters, (2, 3))


def _view(images: Images, view: View, seed: int, interpolation: str) -> Prepare:
    size = images.stored_size
    drawn = draw_parameters(view, len(images), (size, size), Generator().manual_seed(seed))

    def prepare(pixels: Tensor, start: int) -> Tensor:
        part = drawn.part(start, start + len(pixels))
        return apply(pixels, view, part, interpolation=interpolation)

    return prepare


def _normalised(place: Tensor, mean: Tensor, std: Tensor) -> Callable[[Tensor], Tensor]:
    mean, std = (value.to(place.device, torch.float32)[:, None, None] for value in (mean, std))
    return lambda x: ((x - mean) / std).to(place)


def _by_hand(transform: Callable[[Any], Tensor]) -> Callable[[Tensor], Tensor]:
    from torchvision.transforms.functional import to_pil_image

    return lambda x: torch.stack([transform(to_pil_image(one)) for one in x.cpu()]).to(x.device)


def _then(prepare: Prepare, last: Callable[[Tensor], Tensor]) -> Prepare:
    return lambda pixels, start: last(prepare(pixels, start))


def _seed(seed: int, view: int) -> int:
    digest = hashlib.sha256(f"{seed}/view/{view}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _run(
    backbone: nn.Module,
    head: nn.Module | None,
    images: Images,
    inputs: Sequence[Prepare],
    batch: int,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """(N, inputs, ·) of each layer that is there."""
    check_size("batch", batch)
    if not len(images):
        raise ValueError("there are no images to take features of")
    outputs: dict[str, Tensor] = {}
    place, done, total = _place(backbone), 0, len(images) * len(inputs)
    with _frozen(backbone, head), _kernel_inputs(head) as seen:
        for start, pixels in _batches(images, batch):
            pixels = pixels.to(place.device)
            for number, prepare in enumerate(inputs):
                for name, value in _layers(backbone, head, prepare(pixels, start), seen):
                    _check_rows(name, value, len(pixels))
                    if name not in outputs:
                        outputs[name] = torch.empty(len(images), len(inputs), value.shape[1])
                    outputs[name][start : start + len(pixels), number] = value
                done += len(pixels)
                if progress is not None:
                    progress(done, total)
    return outputs


def _layers(
    backbone: nn.Module, head: nn.Module | None, x: Tensor, seen: list[Tensor]
) -> Iterator[tuple[str, Tensor]]:
    try:
        features = backbone(x)
    except (RuntimeError, AssertionError) as error:  # a ViT takes one size only
        shape = tuple(x.shape[1:])
        raise ValueError(f"the backbone does not take {shape}: {one_line(error)}") from error
    yield "backbone", features  # checked before the head gets it
    if head is not None:
        seen.clear()
        yield "projector", head(features.to(_place(head)))
        yield from (("kernel_input", value) for value in seen[-1:])


def _batches(images: Images, batch: int) -> Iterator[tuple[int, Tensor]]:
    """(first image, pixels); files are decoded ahead, some batches at a time."""

    def read(start: int) -> Tensor:
        return images.__getitems__(range(start, min(start + batch, len(images))))

    starts = range(0, len(images), batch)
    if images.in_memory:
        yield from ((start, read(start)) for start in starts)
        return
    threads = min(_THREADS, os.cpu_count() or 1)
    ahead: deque[tuple[int, Future[Tensor]]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for start in starts:
            ahead.append((start, pool.submit(read, start)))
            if len(ahead) > threads:
                first, pixels = ahead.popleft()
                yield first, pixels.result()
        while ahead:
            first, pixels = ahead.popleft()
            yield first, pixels.result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _moved(device: torch.device | None, *modules: nn.Module | None) -> Iterator[None]:
    """On ``device``, if one is named; afterwards where they were."""
    whole = [module for module in modules if module is not None and device is not None]
    before = [(module, _place(module).device) for module in whole]
    try:
        for module in whole:
            module.to(device)
        yield
    finally:
        for module, place in before:
            module.to(place)


@contextmanager
def _frozen(*modules: nn.Module | None) -> Iterator[None]:
    """In eval mode; afterwards every submodule is in the mode it was in."""
    whole = [module for module in modules if module is not None]
    modes = [(part, part.training) for module in whole for part in module.modules()]
    try:
        for module in whole:
            module.eval()
        yield
    finally:
        before = dict(modes)
        for module in whole:
            module.train(before[module])  # undoes what an eval() of its own may have done
        for part, training in modes:
            part.training = training


@contextmanager
def _kernel_inputs(head: nn.Module | None) -> Iterator[list[Tensor]]:
    """A list to which the head's deepest RBF layer, if it has one, adds what it sees."""
    seen: list[Tensor] = []

    def keep(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append(args[0])

    layer = None if head is None else deepest_rbf_layer(head)
    hook = None if layer is None else layer.register_forward_hook(keep)
    try:
        yield seen
    finally:
        if hook is not None:
            hook.remove()


def _place(module: nn.Module) -> Tensor:
    """A tensor of the device and type that a module computes in."""
    tensors = chain(module.parameters(), module.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))


def _check_rows(name: str, value: object, rows: int) -> None:
    if not isinstance(value, Tensor):
        found = type(value).__name__
    elif value.dim() != 2 or len(value) != rows or not value.is_floating_point():
        found = f"{tuple(value.shape)} of {value.dtype}"
    else:
        return
    raise ValueError(f"{name} must give one row of features an image, ({rows}, F), not {found}")


def _check_images_finite(name: str, values: Tensor) -> None:
    bad = int((~values.isfinite()).flatten(1).any(1).sum())
    if bad:
        raise NotFinite(f"{name}: features of {bad} of {len(values)} images have NaN or inf")
