"""What the page draws of a target, computed while its features are at hand.

Legend: N images, M of them on the map, K kernels, m images of a kernel or of a query, S pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from radial.data.images import Images, resized
from radial.evaluation.features import Layers
from radial.metrics.gram import Spectra
from radial.rbf.layer import RBFLayer

POINTS = 1_500  # images on the map
DISTANCES = 20_000  # pairs in a histogram
ROWS, PICTURES, THUMBNAIL = 256, 8, 64  # kernels in the atlas, images of each, pixels
QUERIES, NEIGHBOURS = 6, 6


@dataclass(frozen=True, kw_only=True, eq=False)
class Atlas:
    """The images nearest to each kernel, in ε‖x−c‖; the kernels that take most images first."""

    kernels: tuple[int, ...]
    shares: tuple[float, ...]  # of the images whose nearest kernel it is
    images: Tensor  # (kernels shown, images a kernel, 3, S, S) uint8


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """A few images, the same for every target, and those nearest to each by its backbone."""

    queries: Tensor  # (queries, 3, S, S) uint8
    images: Tensor  # (queries, m, 3, S, S) uint8, the nearest first
    cosines: tuple[tuple[float, ...], ...]  # likewise, of centred features


@dataclass(frozen=True, kw_only=True, eq=False)
class Figures:
    """What the page draws; absent where the target has no projector or no kernels."""

    spectra: dict[str, tuple[float, ...]]  # layer → eigenvalues / largest, centred, descending
    kernel_distances: tuple[float, ...] = ()  # ‖c_i − c_j‖ of pairs i < j, a sample
    image_distances: tuple[float, ...] = ()  # ‖x − c_k‖ of images and kernels, a sample
    widths: tuple[float, ...] = ()  # σ_k = 1/(√2 ε_k)
    kernel_map: tuple[tuple[float, float], ...] = ()  # kernels in the plane of the features' PCA
    feature_map: tuple[tuple[float, float], ...] = ()  # M images likewise
    nearest: tuple[int, ...] = ()  # of each of the M images, the nearest kernel
    map_variance: float = 0.0  # share of the variance that the plane shows
    atlas: Atlas | None = None
    neighbours: Neighbours | None = None


@torch.no_grad()
def figures_of(layers: Layers, layer: RBFLayer | None, images: Images) -> Figures:
    """What is drawn of N images, their ``layers`` and the deepest RBF layer."""
    near = neighbours_of(layers.backbone, images)
    given = {"backbone": layers.backbone, "projector": layers.projector}
    lines = {name: _relative(Spectra(z)) for name, z in given.items() if z is not None}
    if layer is None or layers.kernel_input is None:
        return Figures(spectra=lines, neighbours=near)
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
        neighbours=near,
    )


def neighbours_of(features: Tensor, images: Images) -> Neighbours:
    """The images nearest to the first few, by the cosine of features less their mean."""
    unit = F.normalize(features - features.mean(0), dim=1)
    queries = torch.arange(min(QUERIES, len(unit)))
    cosines = unit[queries] @ unit.T
    cosines[queries, queries] = -2.0  # not itself
    found = cosines.topk(min(NEIGHBOURS, len(unit) - 1), dim=1)
    pictures = _thumbnails(torch.cat([queries, found.indices.flatten()]), images)
    return Neighbours(
        queries=pictures[: len(queries)],
        images=pictures[len(queries) :].view(*found.indices.shape, *pictures.shape[1:]),
        cosines=tuple(map(tuple, found.values.tolist())),
    )


def _thumbnails(rows: Tensor, images: Images) -> Tensor:
    """(len(rows), 3, S, S) uint8; each image is read once."""
    wanted, places = rows.unique(return_inverse=True)
    side = min(THUMBNAIL, images.stored_size)
    small = [resized(images.__getitems__(part.tolist()), side) for part in wanted.split(256)]
    return torch.cat(small)[places]


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
    pictures = _thumbnails(rows.flatten(), images)
    return Atlas(
        kernels=tuple(kernels.tolist()),
        shares=tuple(shares[kernels].tolist()),
        images=pictures.view(*rows.shape, *pictures.shape[1:]),
    )
