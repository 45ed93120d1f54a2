"""How the figures of a report card are drawn, by Plotly and as pictures."""

from __future__ import annotations

import base64
import colorsys
import gzip
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from radial.presentation import (
    DRAWN,
    GREY,
    LAYOUT,
    check_plotly,
    colour,
    json_in_page,
    number,
    plotly_text,
    rounded,
)
from radial.scoring.figures import Figures

if TYPE_CHECKING:
    from radial.scoring.card import Card

REACH = 3.0  # widths; there a Gaussian has fallen to e^(−4.5) = 1 %
MAP_POINTS = 3000  # of a target; of all targets together three times as many
CRISP = 48  # pixels; a picture of fewer is shown as squares
_RIDGES = {"widths": "#c98613", "kernel to kernel": "#8a68d8", "image to kernel": "#2f7fd0"}


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


def _embedded(figure: Any, name: str) -> Any:
    """A place for a figure and what page.js draws there."""
    from markupsafe import Markup

    drawn = json_in_page(json.loads(figure.to_json()) | {"config": dict(DRAWN)})
    script = Markup('<script type="application/json" data-figure="{}">{}</script>')
    return Markup('<div id="{}"></div>').format(name) + script.format(name, drawn)


def plotly_packed() -> Any:
    """plotly.js as gzip in base64, a third of its size; page.js unpacks it."""
    check_plotly()
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    packed = gzip.compress(get_plotlyjs().encode(), mtime=0)
    text = base64.b64encode(packed).decode()
    return Markup('<script type="text/plain" id="plotly">{}</script>').format(text)


def spectra_plot(cards: Sequence[Card], names: Sequence[str]) -> Any:
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
                name=_short(names[i]),
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
    return _embedded(figure, "spectra-plot")


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


def kernel_view(figures: Figures | None, index: int, limit: int, room: int) -> KernelView | None:
    """The kernels of a target with at most ``limit`` points and ``room`` bytes of pictures."""
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
        atlas=list(_within(room, ((k, share, *sprite(images)) for k, share, images in pictures))),
        crisp=shown is not None and shown.images.shape[-1] < CRISP,
    )


Picture = tuple[int, float, str, tuple[int, int]]  # kernel, share, picture, its size


def _within(room: int, pictures: Iterable[Picture]) -> Iterator[Picture]:
    """As many as fit, in their order."""
    for one in pictures:
        room -= len(one[2])
        if room < 0:
            return
        yield one


@dataclass(frozen=True, kw_only=True)
class NeighbourView:
    """One image, and a strip of its nearest by each target."""

    query: str  # picture
    side: int  # of it in pixels
    strips: list[tuple[int, str, tuple[int, int], str]]  # number of the target, picture, size, alt


def neighbour_views(cards: Sequence[Card], room: int) -> list[NeighbourView]:
    """As many images as fit into ``room`` bytes of pictures; all targets have the same ones."""
    known = [
        (i, card.figures.neighbours)
        for i, card in enumerate(cards)
        if card.figures is not None and card.figures.neighbours is not None
    ]
    views: list[NeighbourView] = []
    for at in range(len(known[0][1].queries) if known else 0):
        query, (side, _) = sprite(known[0][1].queries[at : at + 1])
        strips = []
        for i, found in known:
            cosines = ", ".join(f"{value:.2f}" for value in found.cosines[at])
            source, size = sprite(found.images[at], columns=len(found.images[at]))
            strips.append((i, source, size, f"cosines {cosines}"))
        room -= len(query) + sum(len(source) for _, source, _, _ in strips)
        if room < 0:
            break
        views.append(NeighbourView(query=query, side=side, strips=strips))
    return views


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


def sprite(images: Tensor, columns: int = 4) -> tuple[str, tuple[int, int]]:
    """(m, 3, S, S) uint8 → one picture as a data URI, some images a row, and its size.

    As WebP, a quarter of PNG: an atlas may hold hundreds of kernels.
    """
    from PIL import Image, features

    tiles = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images.cpu()]
    side, columns = tiles[0].width, min(columns, len(tiles))
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
