"""The figures of a study as plain Plotly descriptions: {"data": …, "layout": …}, lists of numbers.

The page draws them (templates/report.js); colours of text and grid are those of its style sheet.
One colour a method, one symbol a head, hollow where the audit found that a run did not learn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from radial.presentation import (
    COLOURS,
    FONT,
    GREY,
    LAYOUT,
    between,
    colour,
    fixed,
    known,
    percent,
    plain,
    plotly_text,
    rounded,
    with_interval,
    words,
)
from radial.study.analysis.columns import METHODS, method_order, numbers
from radial.study.analysis.peaks import POOLED
from radial.study.report.content import Figure, score_label

SYMBOLS = {
    "default": "circle", "rbfn": "diamond", "rbfn-normalized": "star", "rbfn-paper": "square",
    "mlp": "cross", "linear": "triangle-up",
}  # fmt: skip
OTHERS = ("hexagon", "triangle-down", "pentagon")
SHAPES = {  # the symbols as paths in a box of 16, for the legend
    "circle": "M6 0A6 6 0 1 1-6 0A6 6 0 1 1 6 0Z",
    "diamond": "M0-7L7 0L0 7L-7 0Z",
    "square": "M-5.5-5.5H5.5V5.5H-5.5Z",
    "triangle-up": "M0-6.5L6.5 5H-6.5Z",
    "triangle-down": "M0 6.5L6.5-5H-6.5Z",
    "cross": "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
    "star": "M0-7L1.6-2.2H6.7L2.6.8L4.1 5.7L0 2.7L-4.1 5.7L-2.6.8L-6.7-2.2H-1.6Z",
    "hexagon": "M0-6.5L5.6-3.2V3.2L0 6.5L-5.6 3.2V-3.2Z",
    "pentagon": "M0-6.5L6.2-2L3.8 5.3H-3.8L-6.2-2Z",
}
INK = "#808a9b"  # readable on white and on near-black
RAMP = ("#2f7fd0", "#b457b0", "#e0475b")  # of a setting's value, low to high
ROW = 34  # pixels
MOST_BARS = 16  # scores; the table has all
MOST_LINES, MOST_POINTS = 120, 60  # of a panel, of a line
CHOSEN = {
    "train_loss": "training loss",
    "val_loss": "validation loss",
    "knn": "kNN accuracy on validation images",
    "knn_1pct": "kNN with 1 % of the labels",
}


def method_colours(methods: Iterable[str]) -> dict[str, str]:
    """The same colour for a method in every study, as long as it is one of the paper's."""
    names = [*METHODS, *(name for name in method_order(methods) if name not in METHODS)]
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def head_colours(heads: Iterable[str]) -> dict[str, str]:
    names = [*SYMBOLS, *(name for name in dict.fromkeys(heads) if name not in SYMBOLS)]
    return {name: colour(i) for i, name in enumerate(names)}


def head_symbols(heads: Iterable[str]) -> dict[str, str]:
    others = [name for name in dict.fromkeys(heads) if name not in SYMBOLS]
    return SYMBOLS | {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(others)}


def hover_lines(runs: pd.DataFrame, settings: Sequence[str]) -> list[str]:
    """What is said of each run: what it is, its settings that vary, its accuracy and its id."""
    lines = []
    for row in runs.to_dict("records"):
        seed = f" · seed {plain(row['seed'])}" if "seed" in row else ""
        shown = [f"{words(name)} {plotly_text(plain(row[name]))}" for name in settings
                 if plain(row.get(name)) != "–"]  # fmt: skip
        low, high = (_hundred(row.get(f"accuracy_{end}")) for end in ("low", "high"))
        accuracy = f"accuracy {percent(row.get('accuracy'))} % {between(low, high)}".rstrip()
        lines.append(
            "<br>".join(
                [f"<b>{plotly_text(row['method'])} · {plotly_text(row['head'])}{seed}</b>",
                 *(" · ".join(shown[i : i + 2]) for i in range(0, len(shown), 2)),
                 accuracy, f"run {plotly_text(row['run'])}"]
            )
        )  # fmt: skip
    return lines


def curve_panel(
    title: str, curves: pd.DataFrame, places: Mapping[str, int], levels: Mapping[str, float]
) -> Figure:
    """The runs of one method over epochs: a thin line a run, a colour a head.

    Args:
        title: of the panel.
        curves: run, head, series, epoch, value.
        places: run -> its row in the table of runs; the page says on hovering which run it is.
        levels: series -> a value to draw a dotted line at.
    """
    heads = list(dict.fromkeys(curves["head"]))
    ink = head_colours(heads)
    runs = list(dict.fromkeys(curves["run"]))
    drawn = {runs[i * len(runs) // MOST_LINES] for i in range(MOST_LINES)}
    drawn = drawn if len(runs) > MOST_LINES else set(runs)
    data: list[Figure] = [
        {"type": "scatter", "mode": "lines+markers", "name": plotly_text(head), "x": [], "y": [],
         "hovertemplate": "%{text}<br>epoch %{x}: %{y:.4g}<extra></extra>", "connectgaps": False,
         "line": {"width": 1.4, "color": ink[head]}, "opacity": 0.75,
         "marker": {"size": 3, "color": ink[head]}}
        for head in heads
    ]  # fmt: skip
    choices = []
    for series, part in curves[curves["run"].isin(drawn)].groupby("series", sort=False):
        lines: list[list[Any]] = [[] for _ in heads]
        for (head, run), line in part.groupby(["head", "run"], sort=False):
            kept = _thinned(len(line), MOST_POINTS)
            values = [
                _numbers(line[name].to_numpy(np.float64)[kept]) for name in ("epoch", "value")
            ]
            lines[heads.index(head)].append([places[run], *values])
        label, layer = score_label(str(series))
        level = levels.get(str(series))
        choices.append(
            {"name": series, "label": CHOSEN.get(str(series), label), "said": "", "lines": lines,
             "group": layer if "@" in str(series) else "training",
             "shapes": [] if level is None else [_line_at(y=level)]}
        )  # fmt: skip
    layout = layout_of(
        250,
        xaxis={"title": {"text": "epoch"}, "rangemode": "tozero"},
        yaxis={"title": {"text": ""}, "nticks": 6},
        dragmode="zoom",
    )
    return {"data": data, "layout": layout, "choices": choices, "chosen": "yaxis", "title": title}


def heads_figure(heads: pd.DataFrame, ink: Mapping[str, str]) -> Figure:
    """Differences in accuracy with their intervals, a block for each head compared."""
    ticks: list[str] = []
    data: list[Figure] = []
    for (a, b), group in heads.groupby(["a", "b"], sort=False):
        ticks.append(f"<b>{plotly_text(b)} − {plotly_text(a)}</b>")
        for row in group.to_dict("records"):
            pooled = row["method"] == POOLED
            ticks.append("all methods" if pooled else plotly_text(row["method"]))
            tint = INK if pooled else ink[row["method"]]
            x, low, high = (100 * row[name] for name in ("difference", "low", "high"))
            place = -len(ticks) + 1
            said = f"{with_interval(x, low, high)} points, {row['pairs']} pairs"
            if known(low) and known(high):
                data.append(_segment([low, high], [place, place], tint, 3 if pooled else 2.5))
            symbol = ("diamond" if pooled else "circle") + ("" if known(low) else "-open")
            data.append(
                {"type": "scatter", "mode": "markers", "x": _numbers([x]), "y": [place],
                 "marker": {"size": 13 if pooled else 11, "color": tint, "symbol": symbol},
                 "hovertemplate": f"{ticks[-1]}: {said}<extra></extra>"}
            )  # fmt: skip
    ends = [100 * x for name in ("difference", "low", "high") for x in heads[name] if known(x)]
    least, most = min(0.0, *ends), max(0.0, *ends)
    edge = 0.04 * (most - least) or 1.0
    title = "difference in accuracy, percentage points"
    layout = layout_of(
        ROW * len(ticks) + 70,
        xaxis={"title": {"text": title}, "range": _numbers([least - edge, most + edge])},
        yaxis=_name_axis(ticks),
        shapes=[_line_at(x=0.0)],
    )
    return {"data": data, "layout": layout}


def swarm_figure(
    values: pd.DataFrame, importance: pd.DataFrame, places: Mapping[str, int]
) -> Figure:
    """SHAP values, a row a feature, the most important on top; points pushed apart."""
    order = importance.sort_values("mean_abs", ascending=False, kind="stable")["feature"]
    data: list[Figure] = []
    ticks = []
    for place, feature in enumerate(order):
        part = values[values["feature"] == feature]
        phi, value = 100 * numbers(part, "phi"), numbers(part, "value")
        setting, _, kind = feature.partition("=")
        about = f"{words(setting)} is {kind}" if kind else words(setting)
        meant = [("yes" if v else "no") if kind else plain(float(v)) for v in value]
        data.append(
            {"type": "scatter", "mode": "markers", "x": _numbers(phi),
             "y": _numbers(y - place for y in _swarm(phi)),
             "customdata": [[places.get(run), v] for run, v in zip(part["run"], meant)],
             "hovertemplate": f"{plotly_text(about)}: %{{customdata[1]}}<br>φ %{{x:+.1f}} points"
             "<br>%{text}<extra></extra>",
             "marker": {"size": 6.5, "opacity": 0.85, "color": _ranked(value), "cmin": 0, "cmax": 1,
                        "colorscale": [[i / 2, tint] for i, tint in enumerate(RAMP)]}}
        )  # fmt: skip
        small = f"<br><span style='font-size:11px'>{plotly_text(words(setting))}</span>"
        shown = kind.replace("_", " ") if kind else words(setting)
        ticks.append(plotly_text(shown) + (small if kind else ""))
    layout = layout_of(
        46 * len(ticks) + 76,
        xaxis={"title": {"text": "φ: effect on accuracy, percentage points"}},
        yaxis=_name_axis(ticks, 0.55),
        shapes=[_line_at(x=0.0)],
    )
    return {"data": data, "layout": layout}


def scatter_figure(
    runs: pd.DataFrame,
    said: Mapping[str, str],
    places: Mapping[str, int],
    dead: Mapping[str, bool],
    ink: Mapping[str, str],
) -> Figure:
    """Accuracy over a score, which is chosen on the page.

    Args:
        runs: of one dataset, those with an accuracy.
        said: score or baseline -> what is said of it; those that no run has are left out.
        places: run -> its row in the table of runs.
        dead: run -> whether it shows no sign of having learned.
        ink: method -> its colour.
    """
    accuracy = 100 * numbers(runs, "accuracy")
    symbols = head_symbols(runs["head"])
    parts = {
        (method, head): np.flatnonzero((runs["method"] == method) & (runs["head"] == head))
        for method in method_order(runs["method"])
        for head in dict.fromkeys(runs["head"])
    }
    parts = {key: rows for key, rows in parts.items() if len(rows)}
    data: list[Figure] = []
    for (method, head), rows in parts.items():
        names = [str(name) for name in runs["run"].iloc[rows]]
        data.append(
            {"type": "scatter", "mode": "markers",
             "name": f"{plotly_text(method)} · {plotly_text(head)}",
             "x": [], "y": _numbers(accuracy[rows]), "customdata": [[places[n]] for n in names],
             "hovertemplate": "%{text}<br>%{xaxis.title.text}: %{x}<extra></extra>",
             "marker": {"size": 10, "opacity": 0.85, "color": ink[method],
                        "symbol": [symbols[head] + ("-open" if dead[n] else "") for n in names],
                        "line": {"width": 1.6, "color": ink[method]}}}
        )  # fmt: skip
    choices = []
    for name in said:
        x = numbers(runs, name)
        if np.isfinite(x).any():
            label, layer = score_label(name)
            choices.append({"name": name, "label": CHOSEN.get(name, label), "group": layer,
                            "said": said[name],
                            "x": [_numbers(x[rows], 5) for rows in parts.values()]})  # fmt: skip
    layout = layout_of(
        470,
        dragmode="zoom",
        xaxis={"title": {"text": ""}},
        yaxis={"title": {"text": "accuracy, %"}},
    )
    return {"data": data, "layout": layout, "choices": choices, "chosen": "xaxis"}


def regret_figure(bars: pd.DataFrame) -> Figure:
    """Regret@3 inside regret@1, the lowest on top; a tick where a random pick lies.

    ``bars``: score, kind, regret1, regret3, random1; sorted.
    """
    labels = []
    for name, layer in map(score_label, bars["score"]):
        baseline = f"<b>{plotly_text(name)}</b>"
        plain_score = f"{plotly_text(name)} · {plotly_text(layer)}"
        labels.append(baseline if layer == "baseline" else plain_score)
    places = [-i for i in range(len(bars))]
    one, three, chance = (100 * numbers(bars, name) for name in ("regret1", "regret3", "random1"))
    base = (bars["kind"] == "baseline").to_numpy()
    said = [f"{label}<br>regret@1 {fixed(a)}, @3 {fixed(b)}<br>"
            f"random pick from the same runs {fixed(c)}"
            for label, a, b, c in zip(labels, one, three, chance)]  # fmt: skip
    most = float(np.nanmax([*one, *chance, 0.1]))
    common = {"y": places, "text": said, "hovertemplate": "%{text}<extra></extra>"}
    bar = common | {"type": "bar", "orientation": "h", "textposition": "none"}
    pale = ["rgba(128,138,155,.35)" if b else "rgba(47,127,208,.32)" for b in base]
    full = ["#7d8798" if b else COLOURS[0] for b in base]
    tick = {"symbol": "line-ns", "size": 15, "line": {"width": 2, "color": COLOURS[1]}}
    data: list[Figure] = [
        bar | {"x": _numbers(one), "width": 0.62, "marker": {"color": pale}},
        bar | {"x": _numbers(three), "width": 0.3, "marker": {"color": full}},
        common | {"type": "scatter", "mode": "markers", "x": _numbers(chance), "marker": tick},
    ]
    column = ["@1 · @3", *(f"{fixed(a)} · {fixed(b)}" for a, b in zip(one, three))]
    shown = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 8, "showarrow": False}
    layout = layout_of(
        27 * (len(bars) + 1) + 70,
        margin={"l": 8, "r": 88, "t": 8, "b": 44},
        annotations=[shown | {"y": y, "text": text} for y, text in zip([1, *places], column)],
        barmode="overlay",
        xaxis={"title": {"text": "regret, percentage points"}, "range": [0, rounded(1.03 * most)]},
        yaxis=_name_axis(labels) | {"range": [-len(labels) + 0.3, 1.5]},
    )
    return {"data": data, "layout": layout}


def seeds_figure(seeds: pd.DataFrame, ink: Mapping[str, str]) -> Figure:
    """Spread between seeds (hollow) and between configurations (full), a line a method."""
    data: list[Figure] = []
    for i, row in enumerate(seeds.to_dict("records")):
        ends = [100 * row["between_seeds"], 100 * row["between_configurations"]]
        tint = ink[row["method"]]
        data.append(_segment(ends, [-i, -i], GREY, 2))
        data.append(
            {"type": "scatter", "mode": "markers", "x": _numbers(ends), "y": [-i, -i],
             "marker": {"size": 13, "color": tint, "symbol": ["circle-open", "circle"],
                        "line": {"width": 2, "color": tint}},
             "hovertemplate": "%{text}: %{x:.1f} points<extra></extra>",
             "text": ["between seeds", "between configurations"]}
        )  # fmt: skip
    layout = layout_of(
        ROW * len(seeds) + 70,
        xaxis={"title": {"text": "standard deviation of accuracy, points"}, "rangemode": "tozero"},
        yaxis=_name_axis([plotly_text(name) for name in seeds["method"]]),
    )
    return {"data": data, "layout": layout}


def layout_of(height: int, **given: Any) -> Figure:
    """Of every figure here."""
    axis = {"zeroline": False, "automargin": True, "showline": False, "ticks": "outside",
            "ticklen": 6, "tickcolor": "rgba(0,0,0,0)"}  # fmt: skip
    layout = {
        **LAYOUT,
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 44},
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


def _name_axis(ticks: Sequence[str], edge: float = 0.7) -> Figure:
    """An axis of names from top to bottom."""
    return {"tickvals": [-i for i in range(len(ticks))], "ticktext": list(ticks),
            "range": [-len(ticks) + 1 - edge, edge], "showgrid": False,
            "fixedrange": True}  # fmt: skip


def _segment(x: Sequence[float], y: Sequence[float], tint: str, width: float) -> Figure:
    return {"type": "scatter", "mode": "lines", "x": _numbers(x), "y": list(y),
            "line": {"color": tint, "width": width}, "hoverinfo": "skip"}  # fmt: skip


def _line_at(x: float | None = None, y: float | None = None) -> Figure:
    """A line across the figure at a value of one axis; dotted where it lies at a height."""
    across = {"x0": 0, "x1": 1, "xref": "paper"} if x is None else {"x0": x, "x1": x}
    up = {"y0": 0, "y1": 1, "yref": "paper"} if y is None else {"y0": y, "y1": y}
    line = {"color": GREY, "width": 1.5, "dash": "solid" if y is None else "dot"}
    return {"type": "line", "layer": "below", "line": line, **across, **up}


def _swarm(x: Any, reach: float = 0.36) -> list[float]:
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


def _ranked(value: Any) -> list[float | None]:
    """Where each value stands among the distinct ones, 0 to 1; None where there is none."""
    kinds = np.unique(value[np.isfinite(value)])
    steps = max(len(kinds) - 1, 1)
    return [round(float(np.searchsorted(kinds, v)) / steps, 3) if math.isfinite(v) else None
            for v in value]  # fmt: skip


def _thinned(length: int, most: int) -> Any:
    """Places of at most so many of a line's points, the first and the last among them."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int))


def _numbers(values: Iterable[float], digits: int = 4) -> list[float | None]:
    """For JSON: short, None for what is not finite."""
    return [rounded(float(v), digits) if math.isfinite(v) else None for v in values]


def _hundred(value: Any) -> float | None:
    return 100 * value if known(value) else None
