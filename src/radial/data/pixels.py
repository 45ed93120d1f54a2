"""Arithmetic on batches of images: what the views of :mod:`radial.data.views` are made of.

Shapes: B samples, (H, W) stored image, S side of the view. Values are float32 in [0, 1].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # the entries of `Parameters.order`
GREY = (0.2989, 0.587, 0.114)  # ITU-R 601-2 luma as torchvision rounds it
MATMUL = 40 * 40  # H·W up to which, on the CPU, matrix products beat a kernel image by image


def crop(images: Tensor, box: Tensor, flip: Tensor, size: int) -> Tensor:
    """Crop, resize with antialiased bilinear weights, flip: (B, 3, S, S) float32 in [0, 1]."""
    height, width = images.shape[-2:]
    if images.device.type == "cpu" and height * width > MATMUL:
        x = _crop_each(images, box, flip, size)
    else:
        box, flip = box.to(images.device), flip.to(images.device)
        rows = _weights(box[:, 0], box[:, 2], torch.zeros_like(flip), height, size)
        columns = _weights(box[:, 1], box[:, 3], flip, width, size)
        half = images.float().flatten(1, 2) @ columns.mT  # (B, 3H, S)
        x = rows[:, None] @ half.view(-1, 3, height, size)
    return x.div_(255) if images.dtype == torch.uint8 else x


def _crop_each(images: Tensor, box: Tensor, flip: Tensor, size: int) -> Tensor:
    """The same image by image: with torch's kernel, which skips the weights that are zero."""
    x = torch.empty(len(images), 3, size, size)
    for i, ((top, left, height, width), turn) in enumerate(zip(box.tolist(), flip.tolist())):
        part = images[i : i + 1, :, top : top + height, left : left + width]
        part = part.flip(-1) if turn else part
        x[i] = F.interpolate(part.float(), (size, size), mode="bilinear", antialias=True)[0]
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
