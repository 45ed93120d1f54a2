"""Batched random views on the training device, with parameters of their own for every sample.

    images (B, 3, H, W) → crop, resize, flip → jitter → grey → blur → solarise → (B, 3, S, S)

Written here because torchvision's v2 transforms draw one set of parameters a batch, while kornia,
measured on one core, runs at 4.6 times the speed of lightly's transform at 32 px but 0.6 times at
224 px. The few operations needed are linear maps and arithmetic on whole batches:

- resized crop: separable, so a product with two interpolation matrices, R_y X R_xᵀ, antialiased
  as in PIL and torchvision; on the CPU large images go one by one to torch's own kernel for that;
- jitter: torchvision's four operations in an order of its own for every sample. Brightness,
  contrast and saturation are blends f x + (1 − f) a with a = 0, mean grey, grey: one pass serves
  all three, and the samples whose hue turn comes between two passes are picked out;
- blur: separable Gaussian as a grouped convolution, cut at 4 σ, reflected at the edge.

Only the samples an operation was drawn for are touched. Values stay float32, clamped to [0, 1]
where torchvision clamps; PIL pipelines round to 8 bits after every operation, these do not. Against
torchvision on floats, antialias=True, the same parameters: crops deviate by at most 4e-6 (measured,
256 → 224 px), SimCLR's whole recipe by 1.2e-5. PIL's blur, three boxes, differs by up to 0.01.

Shapes: B samples, n samples of all ranks, (H, W) stored image, S side of the view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from radial.data.augmentations import View

ATTEMPTS = 10  # at a crop that fits, as torchvision
TRUNCATE = 4.0  # standard deviations at which the blur's kernel ends
CHUNK = 2**20  # values handled at once on the CPU: what its cache holds
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # the entries of `Parameters.order`
GREY = (0.2989, 0.587, 0.114)  # ITU-R 601-2 luma as torchvision rounds it
MATMUL = 40 * 40  # H·W up to which, on the CPU, matrix products beat a kernel image by image


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What was drawn for each of n samples: tensors whose first axis is the sample."""

    box: Tensor  # (n, 4): top, left, height, width in pixels
    flip: Tensor  # (n,) bool
    jitter: Tensor  # (n,) bool
    brightness: Tensor  # (n,) factors
    contrast: Tensor
    saturation: Tensor
    hue: Tensor  # (n,) shift in turns
    order: Tensor  # (n, 4): BRIGHTNESS, CONTRAST, SATURATION, HUE in the order they are done
    grey: Tensor  # (n,) bool
    sigma: Tensor  # (n,) pixels; 0 means no blur
    solarise: Tensor  # (n,) bool

    @property
    def factors(self) -> Tensor:
        """Of brightness, contrast and saturation, (n, 3)."""
        return torch.stack([self.brightness, self.contrast, self.saturation], dim=1)

    def part(self, start: int, stop: int) -> Parameters:
        return self.at(slice(start, stop))

    def at(self, index: Tensor | slice) -> Parameters:
        return Parameters(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def to(self, device: torch.device | str) -> Parameters:
        return Parameters(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})


def draw_parameters(
    view: View, n: int, image_size: tuple[int, int], generator: torch.Generator
) -> Parameters:
    """Parameters of n samples, on the CPU, so that they do not depend on the training device.

    The crop is torchvision's: area uniform, aspect ratio log-uniform, the first of 10 attempts that
    fits, else the largest central crop of an allowed ratio. A sample takes the same count of
    random numbers whatever the view's probabilities are.
    """
    if generator.device.type != "cpu":
        raise ValueError(f"generator is on {generator.device}; parameters are drawn on the cpu")
    height, width = image_size
    if n < 1 or height < 1 or width < 1:
        raise ValueError(f"n={n}, image_size={image_size} must all be at least 1")
    u = torch.rand(n, 2 * ATTEMPTS + 16, generator=generator, dtype=torch.float64)
    areas, ratios, where, chances, strengths, keys = torch.split(
        u, [ATTEMPTS, ATTEMPTS, 2, 5, 5, 4], dim=1
    )
    flip, jitter, grey, blur, solarise = (
        chances < torch.tensor([view.flip, view.jitter, view.grey, view.blur, view.solarise])
    ).unbind(1)

    def uniform(column: int, low: float, high: float) -> Tensor:
        return (low + (high - low) * strengths[:, column]).float()

    def factor(column: int, strength: float) -> Tensor:
        return uniform(column, max(0.0, 1 - strength), 1 + strength)

    return Parameters(
        box=_boxes(view, areas, ratios, where, height, width),
        flip=flip,
        jitter=jitter,
        brightness=factor(0, view.brightness),
        contrast=factor(1, view.contrast),
        saturation=factor(2, view.saturation),
        hue=uniform(3, -view.hue, view.hue),
        order=keys.argsort(dim=1),
        grey=grey,
        sigma=uniform(4, *view.sigma) * blur,
        solarise=solarise,
    )


def _boxes(
    view: View, areas: Tensor, ratios: Tensor, where: Tensor, height: int, width: int
) -> Tensor:
    """(n, 4) crops from uniform numbers: (n, 10) areas and ratios, (n, 2) places."""
    area = height * width * (view.scale[0] + (view.scale[1] - view.scale[0]) * areas)
    low, high = math.log(view.ratio[0]), math.log(view.ratio[1])
    ratio = (low + (high - low) * ratios).exp()
    w, h = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.int().argmax(dim=1, keepdim=True)
    whole = min(max(width / height, view.ratio[0]), view.ratio[1])  # the nearest allowed ratio
    central = torch.tensor(
        [min(height, max(1, round(width / whole))), min(width, max(1, round(height * whole)))]
    )
    side = torch.cat([h.gather(1, first), w.gather(1, first)], dim=1).long()
    found = fits.any(dim=1, keepdim=True)
    side = torch.where(found, side, central)
    room = torch.tensor([height, width]) - side
    place = torch.where(found, (where * (room + 1)).long(), room // 2)
    return torch.cat([place, side], dim=1)


@torch.no_grad()
def apply(
    images: Tensor,
    view: View,
    parameters: Parameters,
    *,
    mean: Tensor | None = None,
    std: Tensor | None = None,
    interpolation: str = "bilinear",
) -> Tensor:
    """(B, 3, S, S) float32 views of images (B, 3, H, W), either uint8 or floats in [0, 1].

    With `mean` and `std`, (3,) each, the views are normalised per channel. Parameters may stay on
    the CPU: then which samples an operation is for is known without waiting for the device.
    `interpolation` is that of the crops: bilinear or bicubic, both antialiased.
    """
    _check_images(images)
    _check_parameters(images, parameters)
    _check_statistics(mean, std)
    device = images.device
    step = max(1, CHUNK // (3 * view.size**2)) if device.type == "cpu" else len(images)
    out = torch.empty(len(images), 3, view.size, view.size, device=device)
    with torch.autocast(device.type, enabled=False):
        for i in range(0, len(images), step):
            out[i : i + step] = _view(
                images[i : i + step], view, parameters.part(i, i + step), interpolation
            )
    if mean is not None and std is not None:
        out.sub_(mean.to(out)[:, None, None]).div_(std.to(out)[:, None, None])
    return out


def augment(
    images: Tensor,
    views: Sequence[View],
    generator: torch.Generator,
    *,
    mean: Tensor | None = None,
    std: Tensor | None = None,
    rank: int = 0,
    world: int = 1,
) -> list[Tensor]:
    """One batch (B, 3, S, S) for each view, of the B images that `rank` of `world` holds.

    Parameters are drawn for the world·B samples of the global batch and rank's part is applied: the
    ranks together see what one process would see. All ranks need equal B and generator state.

    >>> from radial.data.augmentations import recipe
    >>> images = torch.rand(4, 3, 32, 32)
    >>> a, b = augment(images, recipe("simclr", 32), torch.Generator().manual_seed(0))
    >>> a.shape
    torch.Size([4, 3, 32, 32])
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank={rank} must be in 0 ... world − 1, world={world}")
    _check_images(images)
    b, (height, width) = len(images), images.shape[-2:]
    drawn = [draw_parameters(view, world * b, (height, width), generator) for view in views]
    return [
        apply(images, view, parameters.part(rank * b, (rank + 1) * b), mean=mean, std=std)
        for view, parameters in zip(views, drawn)
    ]


def _check_images(images: Tensor) -> None:
    if images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"images of shape {tuple(images.shape)} must be (B, 3, H, W)")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(f"images of dtype {images.dtype} must be torch.uint8 or floating point")


def _check_parameters(images: Tensor, p: Parameters) -> None:
    if len(p.box) != len(images):
        raise ValueError(f"parameters of {len(p.box)} samples do not fit {len(images)} images")
    size = torch.tensor(images.shape[-2:])
    if p.box.device.type == "cpu" and (p.box[:, :2] + p.box[:, 2:] > size).any():
        raise ValueError(f"parameters were drawn for images larger than {tuple(size.tolist())}")


def _check_statistics(mean: Tensor | None, std: Tensor | None) -> None:
    if (mean is None) != (std is None):
        raise ValueError("mean and std must be given together")
    for name, value in (("mean", mean), ("std", std)):
        if value is not None and value.shape != (3,):
            raise ValueError(f"{name} of shape {tuple(value.shape)} must be (3,)")


def _view(images: Tensor, view: View, p: Parameters, interpolation: str) -> Tensor:
    """(B, 3, S, S) in [0, 1]: the crops, then each operation on the samples it was drawn for."""
    x = crop(images, p.box, p.flip, view.size, interpolation)
    radius = min(math.ceil(TRUNCATE * view.sigma[1]), view.size - 1)
    steps: tuple[tuple[Tensor, Callable[[Tensor, Parameters], Tensor]], ...] = (
        (p.jitter, lambda y, q: jitter(y, q.order, q.factors, q.hue)),
        (p.grey, lambda y, _: grey(y).expand_as(y)),
        (p.sigma > 0, lambda y, q: blur(y, q.sigma, radius)),
        (p.solarise, lambda y, _: torch.minimum(y, 1 - y)),  # 1 − y from 0.5 on
    )
    for chosen, operation in steps:
        index = chosen.nonzero().squeeze(1)
        if len(index):
            q, at = p.at(index).to(x.device), index.to(x.device)
            x.index_copy_(0, at, operation(x.index_select(0, at), q))
    return x


def crop(
    images: Tensor, box: Tensor, flip: Tensor, size: int, interpolation: str = "bilinear"
) -> Tensor:
    """Crop, resize with antialiased weights, flip: (B, 3, S, S) float32 in [0, 1]."""
    height, width = images.shape[-2:]
    large = images.device.type == "cpu" and height * width > MATMUL
    if large or interpolation != "bilinear":
        x = _crop_each(images, box, flip, size, interpolation)
    else:
        box, flip = box.to(images.device), flip.to(images.device)
        rows = _weights(box[:, 0], box[:, 2], torch.zeros_like(flip), height, size)
        columns = _weights(box[:, 1], box[:, 3], flip, width, size)
        half = images.float().flatten(1, 2) @ columns.mT  # (B, 3H, S)
        x = rows[:, None] @ half.view(-1, 3, height, size)
    x = x.div_(255) if images.dtype == torch.uint8 else x
    return x if interpolation == "bilinear" else x.clamp_(0, 1)  # bicubic weights overshoot


def _crop_each(images: Tensor, box: Tensor, flip: Tensor, size: int, interpolation: str) -> Tensor:
    """The same image by image: with torch's kernel, which skips the weights that are zero."""
    x = torch.empty(len(images), 3, size, size, device=images.device)
    for i, ((top, left, height, width), turn) in enumerate(zip(box.tolist(), flip.tolist())):
        part = images[i : i + 1, :, top : top + height, left : left + width]
        part = part.flip(-1) if turn else part
        x[i] = F.interpolate(part.float(), (size, size), mode=interpolation, antialias=True)[0]
    return x


def _weights(start: Tensor, length: Tensor, flip: Tensor, pixels: int, size: int) -> Tensor:
    """(B, S, pixels) rows w_ij ∝ max(0, 1 − |j + ½ − c_i| / max(1, length/S)) in the crop.

    c_i = start + (i + ½) length/S is the centre of output pixel i; rows sum to 1.
    """
    i = torch.arange(size, device=start.device) + 0.5
    j = torch.arange(pixels, device=start.device)
    start, length = start[:, None, None], length[:, None, None]
    step = length / size
    centre = start + torch.where(flip[:, None], size - i, i)[:, :, None] * step
    weight = (1 - (j + 0.5 - centre).abs_() / step.clamp(min=1)).clamp_(min=0)
    weight *= (j >= start) & (j < start + length)
    return weight / weight.sum(dim=2, keepdim=True)


def grey(x: Tensor) -> Tensor:
    """(B, 1, S, S) luma."""
    red, green, blue = torch.split(x, 1, dim=1)
    return (red * GREY[0]).add_(green * GREY[1]).add_(blue * GREY[2])


def jitter(x: Tensor, order: Tensor, factors: Tensor, turns: Tensor) -> Tensor:
    """Every sample's four operations in its order (B, 4); x is overwritten.

    `factors` (B, 3) are those of brightness, contrast and saturation, `turns` (B,) those of hue.

    Three passes do the k-th blend of every sample, x ← clamp(f x + (1 − f) a); before each pass and
    after the last, hue turns where it is a sample's turn.
    """
    blends = order[order != HUE].view(-1, 3)
    turn = (order == HUE).int().argmax(dim=1)
    for k in range(4):
        at = (turn == k).nonzero().squeeze(1)
        if len(at):
            x.index_copy_(0, at, hue(x.index_select(0, at), turns[at]))
        if k < 3:
            kind = blends[:, k, None, None, None]
            f = factors.gather(1, blends[:, k : k + 1])[:, :, None, None]
            luma = grey(x)
            mean = luma.mean(dim=(2, 3), keepdim=True)
            a = luma.mul_((1 - f) * (kind == SATURATION)).add_(mean * (1 - f) * (kind == CONTRAST))
            x.mul_(f).add_(a).clamp_(0, 1)
    return x


def hue(x: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue of (B, 3, S, S) by (B,) turns, value and saturation of HSV kept.

    With m and C the least and the range of (r, g, b), hue in sixths of a turn is
    h = ±(1 + (g + b − r − m) / C), + where g ≥ b: the usual three cases in one. Back, a channel is
    m + C clamp(t) with t = |h − 3| − 1, 2 − |h − 2|, 2 − |h − 4| for red, green, blue, h in [0, 6).
    """
    red, green, blue = x.unbind(dim=1)
    low = torch.minimum(torch.minimum(red, green), blue)
    spread = torch.maximum(torch.maximum(red, green), blue).sub_(low)
    h = (green + blue).sub_(red).sub_(low).div_(spread.clamp(min=1e-12)).add_(1)
    h = h.copysign_(green - blue).div_(6).add_(shift[:, None, None])
    h = h.sub_(h.floor()).mul_(6)
    out = torch.empty_like(x)
    for channel, (centre, sign, offset) in enumerate(((3, 1, -1), (2, -1, 2), (4, -1, 2))):
        t = (h - centre).abs_().mul_(sign).add_(offset).clamp_(0, 1)
        out[:, channel] = t.mul_(spread).add_(low)
    return out


def blur(x: Tensor, sigma: Tensor, radius: int) -> Tensor:
    """Gaussian of (B,) sigma pixels along rows and columns, kernel of 2 radius + 1, reflected."""
    t = torch.arange(-radius, radius + 1, device=x.device)
    kernel = (-0.5 * (t / sigma[:, None]) ** 2).softmax(dim=1)  # (B, 2 radius + 1)
    kernel = kernel.repeat_interleave(3, dim=0)[:, None]  # (3B, 1, 2 radius + 1)
    y = F.pad(x, [radius] * 4, mode="reflect").flatten(0, 1)[None]  # (1, 3B, ...)
    y = F.conv2d(y, kernel[:, :, None], groups=y.shape[1])
    y = F.conv2d(y, kernel[:, :, :, None], groups=y.shape[1])
    return y.view_as(x)
