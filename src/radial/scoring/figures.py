"""What the page of a card draws, from features and kernels.

Legend: N images, D dimensions of the RBF layer's input, K kernels, S side of a thumbnail.
"""

from __future__ import annotations

import torch
from torch import Tensor

from radial.data.images import Images, resized
from radial.evaluation.features import Layers
from radial.metrics.gram import Spectra
from radial.rbf.layer import RBFLayer
from radial.scoring.card import Atlas, Figures

POINTS = 1_500  # images on the map
DISTANCES = 20_000  # pairs in a histogram
ROWS, PICTURES, THUMBNAIL = 256, 8, 64  # kernels in the atlas, images of each, pixels


@torch.no_grad()
def draw(
    layers: Layers, spectra: dict[str, Spectra], layer: RBFLayer | None, images: Images
) -> Figures:
    """``layers`` and ``images`` are of the same N images, ``layer`` the deepest RBF layer."""
    lines = {name: _relative(values) for name, values in spectra.items()}
    if layer is None or layers.kernel_input is None:
        return Figures(spectra=lines)
    x, centers = layers.kernel_input, layer.centers.detach()
    squared = layer.squared_distances(x)
    scaled = squared * layer.shapes.square()  # (N, K)
    nearest = scaled.argmin(1)
    mean = x.mean(0)
    with torch.random.fork_rng(devices=[]):  # a randomised method
        torch.manual_seed(0)
        _, values, axes = torch.pca_lowrank(x - mean, q=min(8, *x.shape), center=False)
    values, axes = values[:2], axes[:, :2]
    shown = slice(0, POINTS)
    power = 1.0 if layer.distance == "manhattan" else 2.0
    pairs = torch.pdist(centers.double(), power) if len(centers) > 1 else torch.zeros(0)
    total = float((x - mean).square().sum())
    return Figures(
        spectra=lines,
        kernel_distances=_sampled(pairs),
        image_distances=_sampled(squared.sqrt().flatten()),
        widths=tuple(layer.widths.detach().tolist()),
        kernel_map=_plane((centers - mean) @ axes),
        feature_map=_plane((x[shown] - mean) @ axes),
        nearest=tuple(nearest[shown].tolist()),
        map_variance=float(values.square().sum()) / total if total else 0.0,
        atlas=_atlas(scaled, nearest, images),
    )


def _relative(spectra: Spectra) -> tuple[float, ...]:
    values = spectra.eigenvalues
    return tuple((values / values[0]).clamp(min=0.0).tolist()) if float(values[0]) > 0 else ()


def _sampled(values: Tensor) -> tuple[float, ...]:
    if len(values) > DISTANCES:
        generator = torch.Generator().manual_seed(0)
        values = values[torch.randint(len(values), (DISTANCES,), generator=generator)]
    return tuple(values.tolist())


def _plane(points: Tensor) -> tuple[tuple[float, float], ...]:
    """Two coordinates, the second 0 where there is one dimension only."""
    flat = points if points.shape[1] == 2 else torch.cat([points, torch.zeros_like(points)], 1)
    return tuple((float(x), float(y)) for x, y in flat[:, :2])


def _atlas(scaled: Tensor, nearest: Tensor, images: Images) -> Atlas:
    shares = torch.bincount(nearest, minlength=scaled.shape[1]).double() / len(nearest)
    kernels = shares.argsort(descending=True, stable=True)[:ROWS]
    count = min(PICTURES, len(scaled))
    rows = scaled.topk(count, dim=0, largest=False).indices.T[kernels]  # (shown, count)
    wanted, places = rows.flatten().unique(return_inverse=True)
    side = min(THUMBNAIL, images.stored_size)
    pictures = torch.cat(
        [resized(images.__getitems__(part.tolist()), side) for part in wanted.split(256)]
    )
    return Atlas(
        kernels=tuple(kernels.tolist()),
        shares=tuple(shares[kernels].tolist()),
        images=pictures[places].view(*rows.shape, *pictures.shape[1:]),
    )
