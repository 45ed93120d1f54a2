"""The figures of a study as plain Plotly descriptions: {"data": …, "layout": …}, lists of numbers.

The page draws them (templates/report.js); colours of text and grid are those of its style sheet.
One colour a method, one symbol a head, hollow where the audit found that a run did not learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from radial.presentation.formats import fixed, known, plain, with_interval, words
from radial.study.analysis.columns import method_order, numbers
from radial.study.analysis.peaks import POOLED
from radial.study.report.drawing import (
    GREY,
    HIGH,
    INK,
    LOW,
    MIDDLE,
    ROW,
    Figure,
    feature_tick,
    frame,
    meant,
    name_axis,
    ranked,
    safe,
    score_tick,
    segment,
    short,
    shorts,
    spread,
    upright,
)
from radial.study.report.sheets import score_label

MOST_BARS = 16  # scores; the table has all
CHOSEN = {"train_loss": "training loss", "knn_1pct": "kNN with 1 % of the labels"}


def hover_lines(runs: pd.DataFrame, settings: Sequence[str]) -> list[str]:
    """What is said of each run: what it is, its settings that vary, its accuracy and its id."""
    lines = []
    for row in runs.to_dict("records"):
        seed = f" · seed {plain(row['seed'])}" if "seed" in row else ""
        shown = [f"{words(name)} {safe(plain(row[name]))}" for name in settings
                 if plain(row.get(name)) != "–"]  # fmt: skip
        low, high = row.get("accuracy_low"), row.get("accuracy_high")
        accuracy = fixed(100 * row["accuracy"]) if known(row.get("accuracy")) else "–"
        span = f" ({fixed(100 * low)} to {fixed(100 * high)})" if known(low) and known(high) else ""
        lines.append(
            "<br>".join(
                [f"<b>{safe(row['method'])} · {safe(row['head'])}{seed}</b>",
                 *(" · ".join(shown[i : i + 2]) for i in range(0, len(shown), 2)),
                 f"accuracy {accuracy} %{span}", f"run {safe(row['run'])}"]
            )
        )  # fmt: skip
    return lines


def heads_figure(heads: pd.DataFrame, colour: Mapping[str, str]) -> Figure:
    """Differences in accuracy with their intervals, a block for each head compared."""
    ticks: list[str] = []
    data: list[Figure] = []
    for (a, b), group in heads.groupby(["a", "b"], sort=False):
        ticks.append(f"<b>{safe(b)} − {safe(a)}</b>")
        for row in group.to_dict("records"):
            pooled = row["method"] == POOLED
            ticks.append("all methods" if pooled else safe(row["method"]))
            ink = INK if pooled else colour[row["method"]]
            x, low, high = (100 * row[name] for name in ("difference", "low", "high"))
            place = -len(ticks) + 1
            said = f"{with_interval(x, low, high)} points, {row['pairs']} pairs"
            if known(low) and known(high):
                data.append(segment([low, high], [place, place], ink, 3 if pooled else 2.5))
            marker = {"size": 13 if pooled else 11, "color": ink,
                      "symbol": "diamond" if pooled else "circle"}  # fmt: skip
            if not known(low):
                marker["symbol"] = f"{marker['symbol']}-open"
            data.append(
                {"type": "scatter", "mode": "markers", "x": [short(x)], "y": [place],
                 "marker": marker, "hovertemplate": f"{ticks[-1]}: {said}<extra></extra>"}
            )  # fmt: skip
    ends = [100 * x for name in ("difference", "low", "high") for x in heads[name] if known(x)]
    least, most = min(0.0, *ends), max(0.0, *ends)
    edge = 0.04 * (most - least) or 1.0
    layout = frame(
        ROW * len(ticks) + 70,
        xaxis={
            "title": {"text": "difference in accuracy, percentage points"},
            "range": [short(least - edge), short(most + edge)],
        },
        yaxis=name_axis(ticks),
        shapes=[upright(0.0)],
    )
    return {"data": data, "layout": layout}


def swarm_figure(
    values: pd.DataFrame, importance: pd.DataFrame, places: Mapping[str, int]
) -> Figure:
    """SHAP values, a row a feature, the most important on top; points pushed apart.

    ``places``: run -> its row in the table of runs; the page says on hovering which run it is.
    """
    order = importance.sort_values("mean_abs", ascending=False, kind="stable")["feature"]
    data: list[Figure] = []
    for place, feature in enumerate(order):
        part = values[values["feature"] == feature]
        phi, value = 100 * numbers(part, "phi"), numbers(part, "value")
        setting, _, kind = feature.partition("=")
        name = f"{words(setting)} is {kind}" if kind else words(setting)
        about = [[places.get(run), meant(feature, v)] for run, v in zip(part["run"], value)]
        data.append(
            {"type": "scatter", "mode": "markers", "x": [short(p) for p in phi],
             "y": [short(y - place) for y in spread(phi)], "customdata": about,
             "hovertemplate": f"{safe(name)}: %{{customdata[1]}}<br>φ %{{x:+.1f}} points<br>"
             "%{text}<extra></extra>",
             "marker": {"size": 6.5, "opacity": 0.85, "color": ranked(value), "cmin": 0, "cmax": 1,
                        "colorscale": [[0, LOW], [0.5, MIDDLE], [1, HIGH]]}}
        )  # fmt: skip
    ticks = [feature_tick(name) for name in order]
    layout = frame(
        46 * len(ticks) + 76,
        xaxis={"title": {"text": "φ: effect on accuracy, percentage points"}},
        yaxis=name_axis(ticks, 0.55),
        shapes=[upright(0.0)],
    )
    return {"data": data, "layout": layout}


def scatter_figure(
    runs: pd.DataFrame,
    scores: Mapping[str, str],
    said: Mapping[str, str],
    places: Sequence[int],
    dead: Sequence[bool],
    colour: Mapping[str, str],
    symbol: Mapping[str, str],
) -> Figure:
    """Accuracy over a score, which is chosen on the page among ``scores`` (name -> direction)."""
    accuracy = 100 * numbers(runs, "accuracy")
    pairs = list(zip(runs["method"], runs["head"]))
    parts = [
        (method, head, [i for i, pair in enumerate(pairs) if pair == (method, head)])
        for method in method_order(runs["method"])
        for head in dict.fromkeys(runs["head"])
    ]
    parts = [part for part in parts if len(part[2])]
    data: list[Figure] = []
    for method, head, rows in parts:
        shape = symbol[head]
        data.append(
            {"type": "scatter", "mode": "markers", "name": f"{safe(method)} · {safe(head)}",
             "x": [], "y": shorts(accuracy[rows]), "customdata": [[places[i]] for i in rows],
             "hovertemplate": "%{text}<br>%{xaxis.title.text}: %{x}<extra></extra>",
             "marker": {"size": 10, "opacity": 0.85, "color": colour[method],
                        "symbol": [f"{shape}-open" if dead[i] else shape for i in rows],
                        "line": {"width": 1.6, "color": colour[method]}}}
        )  # fmt: skip
    choices = []
    for name, better in scores.items():
        x = numbers(runs, name)
        if np.isfinite(x).any():
            label, layer = score_label(name)
            choices.append({"name": name, "label": CHOSEN.get(name, label), "group": layer,
                            "said": said[name], "better": better,
                            "x": [shorts(x[rows], 5) for *_, rows in parts]})  # fmt: skip
    layout = frame(
        470,
        dragmode="zoom",
        xaxis={"title": {"text": ""}},
        yaxis={"title": {"text": "accuracy, %"}},
    )
    return {"data": data, "layout": layout, "choices": choices}


def shown_first(runs: pd.DataFrame, scores: Mapping[str, str], judged: pd.DataFrame) -> str | None:
    """The score that ranks best within methods, else the first there is."""
    found = judged[judged["kind"] == "score"].dropna(subset=["spearman"])
    if len(found):
        return str(found.loc[found["spearman"].idxmax(), "score"])
    return next((name for name in scores if np.isfinite(numbers(runs, name)).any()), None)


def regret_figure(bars: pd.DataFrame) -> Figure:
    """Regret@3 inside regret@1, the lowest on top; a tick where a random pick lies.

    ``bars``: score, kind, regret1, regret3, random1; sorted.
    """
    labels = [score_tick(*score_label(name)) for name in bars["score"]]
    places = [-i for i in range(len(bars))]
    one, three, chance = (100 * numbers(bars, name) for name in ("regret1", "regret3", "random1"))
    base = (bars["kind"] == "baseline").to_numpy()
    said = [f"{label.replace('<br>', ' ')}<br>regret@1 {fixed(a)}, @3 {fixed(b)}<br>"
            f"random pick from the same runs {fixed(c)}"
            for label, a, b, c in zip(labels, one, three, chance)]  # fmt: skip
    most = float(np.nanmax([*one, *chance, 0.1]))
    common = {"type": "bar", "orientation": "h", "y": places, "text": said, "textposition": "none",
              "hovertemplate": "%{text}<extra></extra>"}  # fmt: skip
    pale = ["rgba(128,138,155,.35)" if b else "rgba(47,127,208,.32)" for b in base]
    full = ["#7d8798" if b else "#2f7fd0" for b in base]
    data: list[Figure] = [
        common | {"x": shorts(one), "width": 0.62, "marker": {"color": pale}},
        common | {"x": shorts(three), "width": 0.3, "marker": {"color": full}},
        {"type": "scatter", "mode": "markers", "x": shorts(chance), "y": places, "text": said,
         "hovertemplate": "%{text}<extra></extra>",
         "marker": {"symbol": "line-ns", "size": 15, "line": {"width": 2, "color": "#d9742b"}}},
    ]  # fmt: skip
    column = ["@1 · @3", *(f"{fixed(a)} · {fixed(b)}" for a, b in zip(one, three))]
    shown = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 8, "showarrow": False}
    layout = frame(
        27 * (len(bars) + 1) + 70,
        margin={"l": 8, "r": 88, "t": 8, "b": 44},
        annotations=[shown | {"y": y, "text": text} for y, text in zip([1, *places], column)],
        barmode="overlay",
        xaxis={"title": {"text": "regret, percentage points"}, "range": [0, short(1.03 * most)]},
        yaxis=name_axis(labels) | {"range": [-len(labels) + 0.3, 1.5]},
    )
    return {"data": data, "layout": layout}


def seeds_figure(seeds: pd.DataFrame, colour: Mapping[str, str]) -> Figure:
    """Spread between seeds (hollow) and between configurations (full), a line a method."""
    data: list[Figure] = []
    for i, row in enumerate(seeds.to_dict("records")):
        ends = [100 * row["between_seeds"], 100 * row["between_configurations"]]
        data.append(segment(ends, [-i, -i], GREY, 2))
        marker = {"size": 13, "color": colour[row["method"]], "symbol": ["circle-open", "circle"],
                  "line": {"width": 2, "color": colour[row["method"]]}}  # fmt: skip
        data.append(
            {"type": "scatter", "mode": "markers", "x": shorts(np.array(ends)), "y": [-i, -i],
             "marker": marker, "hovertemplate": "%{text}: %{x:.1f} points<extra></extra>",
             "text": ["between seeds", "between configurations"]}
        )  # fmt: skip
    layout = frame(
        ROW * len(seeds) + 70,
        xaxis={"title": {"text": "standard deviation of accuracy, points"}, "rangemode": "tozero"},
        yaxis=name_axis([safe(name) for name in seeds["method"]]),
    )
    return {"data": data, "layout": layout}
