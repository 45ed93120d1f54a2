"""The figures of a report card: what they show, and how Plotly draws it.

Legend: N images, M of them on the map, K kernels, m images of a kernel, S pixels.
"""

from __future__ import annotations

import base64
import colorsys
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from radial.data.images import Images, resized
from radial.evaluation.features import Layers
from radial.metrics.gram import Spectra
from radial.presentation import (
    DRAWN,
    GREY,
    LAYOUT,
    check_plotly,
    colour,
    number,
    plotly_text,
    rounded,
)
from radial.rbf.layer import RBFLayer

if TYPE_CHECKING:
    from radial.scoring.card import Card

POINTS = 1_500  # images on the map
DISTANCES = 20_000  # pairs in a histogram
ROWS, PICTURES, THUMBNAIL = 256, 8, 64  # kernels in the atlas, images of each, pixels
REACH = 3.0  # widths; there a Gaussian has fallen to e^(−4.5) = 1 %
MAP_POINTS = 3000  # of a target; of all targets together three times as many
CRISP = 48  # pixels; a picture of fewer is shown as squares
_RIDGES = {"widths": "#c98613", "kernel to kernel": "#8a68d8", "image to kernel": "#2f7fd0"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Atlas:
    """The images nearest to each kernel, in ε‖x−c‖; the kernels that take most images first."""

    kernels: tuple[int, ...]
    shares: tuple[float, ...]  # of the images whose nearest kernel it is
    images: Tensor  # (kernels shown, images a kernel, 3, S, S) uint8


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


@torch.no_grad()
def figures_of(layers: Layers, layer: RBFLayer | None, images: Images) -> Figures:
    """What is drawn of N images, their ``layers`` and the deepest RBF layer."""
    given = {"backbone": layers.backbone, "projector": layers.projector}
    lines = {name: _relative(Spectra(z)) for name, z in given.items() if z is not None}
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


def _figure(height: int, **layout: Any) -> Any:
    """An empty figure without background; the style sheet sets the colours of text and grid."""
    check_plotly()
    from plotly import graph_objects as go

    figure = go.Figure(
        layout={
            "template": "none",
            "height": height,
            "margin": {"l": 56, "r": 12, "t": 24, "b": 44},
            **LAYOUT,
            **layout,
        }
    )
    look = {"zeroline": False, "automargin": True, "title_font_size": 13, "title_standoff": 6}
    return figure.update_xaxes(**look).update_yaxes(**look)


def _embedded(figure: Any, name: str, *, first: bool = False) -> Any:
    """A div that draws itself; the first of a page brings plotly.js along."""
    from markupsafe import Markup

    options = {"full_html": False, "include_plotlyjs": first, "config": DRAWN, "div_id": name}
    return Markup(figure.to_html(**options))


def spectra_plot(cards: Sequence[Card]) -> Any:
    figure = _figure(
        400 + 12 * len(cards),
        xaxis={"type": "log", "title_text": "rank"},
        yaxis={
            "type": "log",
            "title_text": "eigenvalue / largest",
            "exponentformat": "power",
            "tickfont_size": 11,
        },
        legend={"orientation": "h", "y": -0.18, "yanchor": "top", "x": 0},
    )
    longest, least = 2, 0.1
    for i, card in enumerate(cards):
        spectra = card.figures.spectra if card.figures else {}
        for layer, values in spectra.items():
            ranks = [rank for rank in _ranks(len(values)) if values[rank - 1] > 1e-10]
            longest = max([longest, *ranks])
            least = min([least, *(values[rank - 1] for rank in ranks)])
            dash = "solid" if layer == "backbone" else "dash"
            figure.add_scatter(
                x=ranks,
                y=[rounded(values[rank - 1]) for rank in ranks],
                name=_short(card.target),
                legendgroup=str(i),
                showlegend=layer == next(iter(spectra)),
                mode="lines" if len(ranks) > 1 else "markers",
                line={"color": card_colour(card, i), "dash": dash, "width": 2.25},
                hovertemplate=f"{_short(layer)}, rank %{{x}}: %{{y:.3g}}",
            )
    line = {"x0": 1, "x1": longest, "y0": 1, "y1": 1 / longest}
    figure.add_shape(
        type="line", **line, layer="below", line={"color": GREY, "dash": "dot", "width": 1.5}
    )
    figure.update_xaxes(range=[-0.03, math.log10(longest) + 0.03], dtick=1)
    figure.update_yaxes(range=[math.log10(least) - 0.15, 0.15], dtick=1 if least > 1e-6 else 2)
    return _embedded(figure, "spectra-plot", first=True)


def card_colour(card: Card, index: int) -> str:
    """One a target; the floor is grey."""
    return GREY if card.is_floor else colour(index)


def _ranks(count: int, points: int = 160) -> list[int]:
    """1 to count in equal steps of the logarithm."""
    return sorted({round(count ** (i / (points - 1))) for i in range(points)}) if count else []


@dataclass(frozen=True, kw_only=True)
class KernelView:
    """The kernels of one target, drawn."""

    reach: Any  # HTML, or None
    share: float  # of the distances from image to kernel within REACH median widths
    widths: float  # from image to kernel, in the median
    map: Any  # HTML, or None
    variance: float
    atlas: list[tuple[int, float, str, tuple[int, int]]]  # kernel, share, picture, its size
    crisp: bool  # few pixels: to be shown as squares


def kernel_view(figures: Figures | None, index: int, limit: int) -> KernelView | None:
    if figures is None or not figures.widths:
        return None
    widths, distances = _positive(figures.widths), _positive(figures.image_distances)
    measured = bool(widths.numel() and distances.numel())
    ratios = distances / widths.median() if measured else torch.tensor([math.nan])
    shown = figures.atlas
    pictures = zip(shown.kernels, shown.shares, shown.images) if shown else ()
    return KernelView(
        reach=_embedded(_reach(figures), f"reach-{index}") if measured else None,
        share=float((ratios <= REACH).double().mean()),
        widths=float(ratios.median()),
        map=_embedded(_map(figures, limit), f"map-{index}") if figures.feature_map else None,
        variance=figures.map_variance,
        atlas=[(kernel, share, *_sprite(images)) for kernel, share, images in pictures],
        crisp=shown is not None and shown.images.shape[-1] < CRISP,
    )


def _reach(figures: Figures) -> Any:
    """Three densities above one logarithmic axis, and how far three widths reach."""
    rows = (figures.widths, figures.kernel_distances, figures.image_distances)
    values = {name: _positive(row) for name, row in zip(_RIDGES, rows)}
    edge = REACH * float(values["widths"].median())
    ends = [end for row in values.values() if row.numel() for end in _ends(row)]
    low, high = math.log10(min(ends)) - 0.15, math.log10(max(edge, *ends)) + 0.15
    grid = torch.linspace(low, high, 240, dtype=torch.float64)
    ticks = [
        f"{name}<br>median {number(float(row.median()))}" if row.numel() else name
        for name, row in values.items()
    ]
    figure = _figure(
        380,
        showlegend=False,
        xaxis={
            "type": "log",
            "range": [low, high],
            "title_text": "distance",
            "tickvals": _decades(low, high),
            "ticktext": [f"{mark:g}" for mark in _decades(low, high)],
        },
        yaxis={"tickvals": [0.3, 1.3, 2.3], "ticktext": ticks, "showgrid": False},
    )
    for i, (name, row) in enumerate(values.items()):
        height = i + 0.86 * _density(row.log10(), grid) if row.numel() else torch.full_like(grid, i)
        x = 10.0 ** torch.cat([grid, grid.flip(0)])
        y = torch.cat([height, torch.full_like(grid, i)])
        figure.add_scatter(
            x=[rounded(value) for value in x.tolist()],
            y=[rounded(value) for value in y.tolist()],
            mode="lines",
            fill="toself",
            fillcolor=f"{_RIDGES[name]}55",
            line={"color": _RIDGES[name], "width": 1.75},
            hoverinfo="skip",
        )
    band = {"x0": 10**low, "x1": edge, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
    figure.add_shape(**band, type="rect", fillcolor="rgba(201,134,19,.13)", line={"width": 0})
    dotted = {"color": _RIDGES["widths"], "dash": "dot", "width": 1.5}
    figure.add_shape(**band | {"x0": edge}, type="line", line=dotted)
    label = {"text": "3 widths", "x": math.log10(edge), "y": 1, "yref": "paper"}
    figure.add_annotation(**label, xanchor="right", yanchor="bottom", showarrow=False)
    return figure


def _decades(low: float, high: float) -> list[float]:
    """Marks of a logarithmic axis that spans 10^low to 10^high."""
    steps = (1, 2, 5) if high - low < 2 else (1, 3) if high - low < 4 else (1,)
    powers = range(math.floor(low), math.ceil(high))
    return [rounded(step * 10.0**power) for power in powers for step in steps]


def _ends(values: Tensor) -> list[float]:
    """Between them lie all values but a few in a thousand."""
    return [float(values.quantile(share)) for share in (0.001, 0.999)]


def _density(values: Tensor, grid: Tensor) -> Tensor:
    """Kernel density estimate on the grid, its maximum 1; a single value is a narrow bump."""
    values = values[:: max(1, len(values) // 4000)]
    spread = float(values.std(correction=0)) * len(values) ** -0.2
    bandwidth = max(spread, 0.006 * float(grid[-1] - grid[0]))
    density: Tensor = (-0.5 * ((grid[:, None] - values) / bandwidth).square()).exp().mean(1)
    return density / density.max()


def _map(figures: Figures, limit: int) -> Any:
    count, kernels = len(figures.feature_map), len(figures.kernel_map)
    chosen = [i * count // limit for i in range(limit)] if count > limit else range(count)
    nearest = [figures.nearest[i] for i in chosen]
    taken = set(nearest)
    share = f"{100 * figures.map_variance:.0f} % of the variance"
    figure = _figure(
        380,
        showlegend=False,
        xaxis={"title_text": f"first two principal axes: {share}", "showticklabels": False},
        yaxis={"scaleanchor": "x", "showticklabels": False},
    )
    figure.add_scatter(
        **_places(figures.feature_map[i] for i in chosen),
        mode="markers",
        marker={"size": 4.5, "opacity": 0.6, "color": [_hue(kernel) for kernel in nearest]},
        customdata=nearest,
        hovertemplate="image nearest to kernel %{customdata}<extra></extra>",
    )
    hues = [_hue(kernel) if kernel in taken else "rgba(0,0,0,0)" for kernel in range(kernels)]
    figure.add_scatter(
        **_places(figures.kernel_map),
        uid="kernels",  # the style sheet outlines them in the colour of text
        mode="markers",
        marker={"size": 11 if kernels <= 64 else 7, "color": hues, "line": {"width": 1.5}},
        customdata=list(range(kernels)),
        hovertemplate="kernel %{customdata}<extra></extra>",
    )
    return figure


def _sprite(images: Tensor) -> tuple[str, tuple[int, int]]:
    """(m, 3, S, S) uint8 → one picture as a data URI, four images a row, and its size.

    As WebP, a quarter of PNG: an atlas may hold hundreds of kernels.
    """
    from PIL import Image, features

    tiles = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images.cpu()]
    side, columns = tiles[0].width, min(4, len(tiles))
    gap = max(1, side // 16)
    size = (columns * (side + gap) - gap, math.ceil(len(tiles) / columns) * (side + gap) - gap)
    sheet = Image.new("RGBA", size)
    for i, tile in enumerate(tiles):
        sheet.paste(tile, (i % columns * (side + gap), i // columns * (side + gap)))
    file = io.BytesIO()
    kind = "webp" if features.check("webp") else "png"
    sheet.save(file, kind, quality=90)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}", size


def _positive(values: Sequence[float]) -> Tensor:
    """The finite values, at least 10⁻⁶ of the largest: for a logarithmic axis."""
    finite = torch.tensor([v for v in values if math.isfinite(v)], dtype=torch.float64)
    largest = float(finite.max()) if finite.numel() else 0.0
    return finite.clamp(min=1e-6 * largest) if largest > 0.0 else finite[:0]


def _places(points: Iterable[tuple[float, float]]) -> dict[str, list[float]]:
    pairs = [(rounded(x), rounded(y)) for x, y in points]
    return {"x": [x for x, _ in pairs], "y": [y for _, y in pairs]}


def _hue(kernel: int) -> str:
    """A colour a kernel; two that follow each other lie a golden angle apart."""
    channels = colorsys.hls_to_rgb(kernel * 0.381966 % 1.0, 0.54, 0.58)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def _short(name: str, length: int = 36) -> str:
    """For a legend: the middle left out of a long name, safe from plotly's own markup."""
    if len(name) > length:
        name = f"{name[: length // 2 - 1]}…{name[-length // 2 :]}"
    return plotly_text(name)
