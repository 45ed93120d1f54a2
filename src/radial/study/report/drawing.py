"""What the figures of a study are drawn with: colours, symbols, axes, marks and short numbers.

Plain Plotly descriptions. One colour a method, one symbol a head; each symbol has a path in
report.py, for the legend.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from radial.presentation.formats import plain, words
from radial.presentation.pages import COLOURS
from radial.study.analysis.columns import METHODS, method_order

Figure = dict[str, Any]
SYMBOLS = {
    "default": "circle", "rbfn": "diamond", "rbfn-normalized": "star", "rbfn-paper": "square",
    "mlp": "cross", "linear": "triangle-up",
}  # fmt: skip
OTHERS = ("hexagon", "triangle-down", "pentagon")
GREY, INK = "rgba(128,138,155,.8)", "#808a9b"  # readable on white and on near-black
LOW, MIDDLE, HIGH = "#2f7fd0", "#b457b0", "#e0475b"  # of a setting's value
FONT = "system-ui, sans-serif"
ROW = 34  # pixels


def colours(methods: Iterable[str]) -> dict[str, str]:
    """The same colour for a method in every study, as long as it is one of the paper's."""
    names = [*METHODS, *(name for name in method_order(methods) if name not in METHODS)]
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def symbols(heads: Iterable[str]) -> dict[str, str]:
    others = [name for name in dict.fromkeys(heads) if name not in SYMBOLS]
    return SYMBOLS | {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(others)}


def safe(value: Any) -> str:
    """Safe from Plotly's own markup."""
    return html.escape(str(value), quote=False)


def frame(height: int, **given: Any) -> Figure:
    axis = {"zeroline": False, "automargin": True, "showline": False, "ticks": "outside",
            "ticklen": 6, "tickcolor": "rgba(0,0,0,0)"}  # fmt: skip
    layout = {
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13},
        "margin": {"l": 8, "r": 12, "t": 8, "b": 44},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#1b2029", "bordercolor": "#59626f", "align": "left",
                       "font": {"color": "#f4f6f9", "size": 12.5, "family": FONT}},
        "showlegend": False,
        "dragmode": False,
    }  # fmt: skip
    for name in ("xaxis", "yaxis"):
        given[name] = axis | given.get(name, {})
        if "title" in given[name]:
            given[name]["title"] = {"standoff": 8, "font": {"size": 13}} | given[name]["title"]
    return layout | given


def name_axis(ticks: Sequence[str], edge: float = 0.7) -> Figure:
    """An axis of names from top to bottom."""
    return {"tickvals": [-i for i in range(len(ticks))], "ticktext": list(ticks),
            "range": [-len(ticks) + 1 - edge, edge], "showgrid": False,
            "fixedrange": True}  # fmt: skip


def segment(x: Sequence[float], y: Sequence[float], colour: str, width: float) -> Figure:
    return {"type": "scatter", "mode": "lines", "x": [short(v) for v in x], "y": list(y),
            "line": {"color": colour, "width": width}, "hoverinfo": "skip"}  # fmt: skip


def upright(x: float) -> Figure:
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
            "line": {"color": GREY, "width": 1.5}}  # fmt: skip


def spread(x: Any, reach: float = 0.36) -> list[float]:
    """Offsets such that points with nearly one value lie beside each other, not on each other."""
    span = float(np.ptp(x)) if len(x) else 0.0
    bins = np.round(x / span * 70).astype(int) if span else np.zeros(len(x), dtype=int)
    seen: dict[int, int] = {}
    found = []
    for place in bins:
        seen[place] = seen.get(place, 0) + 1
        found.append((seen[place] // 2) * (1 if seen[place] % 2 else -1))
    widest = max(map(abs, found), default=0)
    return [offset * min(0.1, reach / max(widest, 1)) for offset in found]


def ranked(value: Any) -> list[float | None]:
    """Where each value stands among the distinct ones, 0 to 1; None where there is none."""
    kinds = np.unique(value[np.isfinite(value)])
    steps = max(len(kinds) - 1, 1)
    return [round(float(np.searchsorted(kinds, v)) / steps, 3) if math.isfinite(v) else None
            for v in value]  # fmt: skip


def meant(feature: str, value: float) -> str:
    if "=" in feature:
        return "yes" if value else "no"
    return plain(float(value))


def feature_tick(name: str) -> str:
    setting, equal, value = name.partition("=")
    if not equal:
        return safe(words(setting))
    small = f"<span style='font-size:11px'>{safe(words(setting))}</span>"
    return f"{safe(value.replace('_', ' '))}<br>{small}"


def score_tick(name: str, layer: str) -> str:
    return f"<b>{safe(name)}</b>" if layer == "baseline" else f"{safe(name)} · {safe(layer)}"


def short(value: float, digits: int = 4) -> float | None:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def shorts(values: Any, digits: int = 4) -> list[float | None]:
    return [short(float(value), digits) for value in values]
