"""The page of a search: how it went, what mattered, what it cost, and whether the best is better
than the defaults. In the frame of a study's report; figures by Optuna.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from radial.files import write_atomically
from radial.presentation import (
    COLOURS,
    GREY,
    between,
    check_plotly,
    duration,
    fixed,
    known,
    listed,
    number,
    percent,
    plain,
    several,
    with_interval,
    words,
)
from radial.scoring.leaderboard import hints
from radial.study.analysis.peaks import t_interval
from radial.study.report.charts import layout_of
from radial.study.report.content import (
    Block,
    Cell,
    Column,
    Figure,
    Section,
    any_number,
    setting,
    sheet,
    text,
)
from radial.study.report.content import percent as percent_cell
from radial.study.report.headlines import KeyFigure
from radial.study.report.write import draw
from radial.study.search import BEST, DEFAULT, TRIAL, Search, configured, search_of
from radial.study.store import STUDY, Store
from radial.study.tune import COMPLETE, PRUNED, Trial, best, history, replay, table

if TYPE_CHECKING:
    import optuna

FEWEST = 4  # trials that importances and parallel coordinates are drawn of


def write_search(
    store: Store, *, html: Path | str, against: Path | str | None = None, small: bool = False
) -> Path:
    """Write the page of a search.

    Args:
        store: its directory.
        html: where the page goes.
        against: directory of a search to compare with, such as one with labels.
        small: leave plotly.js to its CDN.
    """
    check_plotly()
    other = None if against is None else Found(Store(Path(against)))
    write_atomically(html, page(Found(store), other, small=small))
    return Path(html)


class Found:
    """What a search found, read and reckoned."""

    def __init__(self, store: Store) -> None:
        self.store, self.study = store, store.study()
        self.search: Search = search_of(self.study)
        self.table = table(store, self.study)
        self.best: Trial = best(store, self.study)
        self.epochs = configured(self.study, {}, 0).epochs
        self.params = [
            str(name)
            for name in self.table.columns[list(self.table.columns).index("accuracy") + 1 :]
        ]

    @property
    def trials(self) -> pd.DataFrame:
        return self.table[self.table["kind"] == TRIAL]

    @property
    def complete(self) -> pd.DataFrame:
        return self.trials[self.trials["state"] == COMPLETE]

    @property
    def chosen(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.row(self.best.id)
        return found

    def row(self, run: str) -> Any:
        return self.table[self.table["run"] == run].iloc[0]

    @property
    def full(self) -> int:
        """Epochs that all trials take without pruning."""
        return self.epochs * len(self.trials)

    @property
    def spent(self) -> int:
        return int(self.trials["epochs"].sum())

    def difference(self, column: str) -> tuple[float, float, float, int]:
        """Best less default over the confirming seeds: mean, its interval, and how many pairs."""
        ours = self.table[(self.table["kind"] == BEST) & (self.table["of"] == self.best.id)]
        defaults = self.table[self.table["kind"] == DEFAULT]
        pairs = ours.merge(defaults, on="seed", suffixes=("", "_default"))
        values = (pairs[column] - pairs[f"{column}_default"]).dropna().to_numpy(np.float64)
        if not len(values):
            return math.nan, math.nan, math.nan, 0
        return float(values.mean()), *t_interval(values), len(values)

    def accuracy(self) -> float:
        """Of the best settings on test images: over the confirming seeds, else of the trial."""
        again = self.table[(self.table["kind"] == BEST) & (self.table["of"] == self.best.id)]
        rows = again if len(again) else self.table[self.table["run"] == self.best.id]
        return float(rows["accuracy"].mean())

    def by_labels(self) -> Any | None:
        """The complete trial that validation labels would have chosen."""
        rows = self.complete.dropna(subset=["val_accuracy", "accuracy"])
        return None if rows.empty else rows.loc[rows["val_accuracy"].idxmax()]


def page(found: Found, other: Found | None = None, *, small: bool = False) -> str:
    """One HTML page; self-contained, unless it shall be small."""
    file = found.store.path / STUDY
    config = configured(found.study, found.best.params or {}, found.study.seeds[0])
    of_search = [(words(name), plain(value)) for name, value in vars(found.search).items()]
    return draw(
        brand="radial tune",
        name=found.study.name,
        datasets=[config.data],
        sentences=list(sentences(found, other)),
        key_figures=list(figures_of(found)),
        sections=sections(found),
        tables={"trials": found.trials, "confirmed": found.table[found.table["kind"] != TRIAL]},
        hover=[],
        facts={"Search": of_search},
        notes=(),
        study=file.read_text(encoding="utf-8"),
        small=small,
    )


def sentences(found: Found, other: Found | None) -> Iterator[str]:
    """What came out, in words."""
    search, trials = found.search, found.trials
    states = trials["state"].value_counts()
    yield (
        f"{several(len(trials), 'trial')} of {listed(list(found.study.methods))}, chosen by "
        f"{search.objective}: {states.get(COMPLETE, 0)} complete, {states.get(PRUNED, 0)} pruned. "
        f"Best is {found.best.id} with {number(found.best.value or math.nan)}."
    )
    if not search.labels:
        yield from hints(search.score, tuple(found.study.methods))
    settings = [f"{words(k)} {plain(v)}" for k, v in (found.best.params or {}).items()]
    yield f"Its settings: {', '.join(settings) or 'the defaults'}."
    if found.best.number == 0:
        yield "No trial was better than the default settings."
    mean, low, high, pairs = found.difference("value")
    if pairs:
        yield (
            f"Against the default settings, {several(pairs, 'further seed')} each: "
            f"{search.objective} {with_interval(mean, low, high, 4)}."
        )
    mean, low, high, pairs = (*(100 * v for v in found.difference("accuracy")[:3]), pairs)
    if known(mean):
        yield f"In accuracy on test images: {with_interval(mean, low, high)} points."
    yield (
        f"It cost {duration(float(trials['seconds'].sum()))} and {found.spent:,} epochs of the "
        f"{found.full:,} that all trials at full length take: "
        f"{percent(1 - found.spent / found.full)} % were saved."
    )
    if (labelled := found.by_labels()) is not None and search.labels is not True:
        regret = 100 * (labelled["accuracy"] - found.chosen["accuracy"])
        yield (
            f"Of these complete trials labels would have chosen {labelled['run']}: "
            f"{percent(labelled['accuracy'])} % on test images against "
            f"{percent(found.chosen['accuracy'])} %: a regret of {fixed(regret)} points."
        )
    if other is not None:
        regret = 100 * (other.accuracy() - found.accuracy())
        yield (
            f"The search {other.study.name} by {other.search.objective}, "
            f"{other.spent:,} epochs, chose settings with {percent(other.accuracy())} % on test "
            f"images, this one {percent(found.accuracy())} %: a regret of {fixed(regret)} points."
        )


def figures_of(found: Found) -> Iterator[KeyFigure]:
    yield KeyFigure(
        label="Best score", value=number(found.best.value or math.nan),
        note=f"{found.search.objective}, {found.best.id}",
    )  # fmt: skip
    for column, label, factor, digits in (
        ("value", "Best − default, score", 1, 3),
        ("accuracy", "Best − default, accuracy", 100, 1),
    ):
        mean, low, high, pairs = found.difference(column)
        if pairs:
            low, high = factor * low, factor * high
            kind = "good" if low > 0 else "bad" if high < 0 else "mute"
            said = {"good": "ahead", "bad": "behind", "mute": "not decided"}[kind]
            yield KeyFigure(
                label=label, value=fixed(factor * mean, digits, sign=True),
                note=f"{between(low, high, digits)} {several(pairs, 'seed')}", chip=(kind, said),
            )  # fmt: skip
    yield KeyFigure(
        label="Saved by pruning", value=f"{percent(1 - found.spent / found.full)} %",
        note=f"{found.spent:,} of {found.full:,} epochs",
    )  # fmt: skip


def sections(found: Found) -> list[Section]:
    rungs = found.search.rungs(found.epochs)
    when = f"after {several(rungs[0], 'epoch')}" if rungs else "at full length"
    early = _early(found)
    enough = len(early.trials) >= FEWEST and found.params
    few = () if enough else ("too few trials",)
    return [
        Section(
            key="history", title="How the search went", short="History",
            lead="Score at full length; a cross is a trial that was pruned, at its last score.",
            blocks=(Block(figures=(_history(found),), label="score of each trial"),),
        ),
        Section(
            key="importance", title="What mattered", short="Importances",
            lead=f"Share of the variance of the score {when}, which all trials reached.",
            blocks=(Block(figures=_importances(early), label="importances"),) if enough else (),
            missing=few,
        ),
        Section(
            key="parallel", title="Settings side by side", short="Settings",
            lead=f"A line a trial, by its score {when}: the darker, the better.",
            blocks=(Block(figures=(_parallel(early, found),), label="settings"),) if enough else (),
            missing=few,
        ),
        Section(
            key="cost", title="What it cost", short="Cost",
            lead="Epochs of each trial; successive halving ends those that fall behind.",
            blocks=(Block(figures=(_cost(found),), label="epochs of each trial"),),
        ),
        Section(
            key="confirmed", title="The best against the defaults", short="Best",
            lead="Seeds that the search has not seen.",
            blocks=_confirmed(found),
            missing=() if found.search.confirm else ("confirm: 0, no further seeds",),
        ),
        Section(
            key="trials", title="All trials", short="Trials",
            blocks=(Block(sheets=(_sheet("trials", found.trials, found),)),),
        ),
    ]  # fmt: skip


def _early(found: Found) -> optuna.Study:
    """Optuna's study of all trials by the score that each of them has: that at the first rung."""
    trials = [
        Trial(id=trial.id, params=trial.params, values={1: min(trial.values.items())[1]},
              state=COMPLETE)
        for trial in history(found.store, found.study)
        if trial.params is not None and trial.values and min(trial.values.items())[1] is not None
    ]  # fmt: skip
    return replay(found.study, trials)


def _drawn(figure: Any, height: int, **layout: Any) -> Figure:
    """A figure of Optuna's in the house's colours."""
    values: Figure = json.loads(figure.to_json())
    kept = {k: v for k, v in values["layout"].items() if k not in ("template", "title")}
    return {"data": values["data"], "layout": layout_of(height, **(kept | layout))}


def _history(found: Found) -> Figure:
    import optuna

    every = replay(found.study, history(found.store, found.study))
    name = found.search.objective
    drawn = _drawn(optuna.visualization.plot_optimization_history(every, target_name=name), 340)
    points, line = drawn["data"][:2]
    of_trial = [int(run.rpartition("-")[2]) for run in found.complete["run"]]
    hover = "trial %{x}: %{y:.4g}<extra></extra>"
    points |= {"x": of_trial, "y": found.complete["value"].tolist(), "hovertemplate": hover}
    points |= {"marker": {"size": 9, "color": COLOURS[0]}}
    sign = np.maximum if found.search.direction == "maximize" else np.minimum
    line |= {"x": of_trial, "y": sign.accumulate(found.complete["value"].to_numpy()).tolist()}
    line |= {"line": {"color": COLOURS[1], "shape": "hv", "width": 1.6}, "hoverinfo": "skip"}
    pruned = [t for t in history(found.store, found.study) if t.state == PRUNED]
    last = [(t.number, max(t.values.items())[1]) for t in pruned]
    crosses = {
        "type": "scatter", "mode": "markers", "x": [n for n, _ in last], "y": [v for _, v in last],
        "marker": {"symbol": "x", "size": 7, "color": GREY},
        "hovertemplate": "trial %{x}, pruned: %{y:.4g}<extra></extra>",
    }  # fmt: skip
    drawn["data"] = [points, line, crosses]
    return drawn


def _importances(early: optuna.Study) -> tuple[Figure, ...]:
    import optuna

    with warnings.catch_warnings():  # where few trials are all alike
        warnings.simplefilter("ignore")
        figure = optuna.visualization.plot_param_importances(early)
    drawn = _drawn(figure, 90 + 34 * len(figure.data[0].y))
    bars = drawn["data"][0]
    bars |= {"marker": {"color": COLOURS[0]}, "y": [words(name) for name in bars["y"]]}
    bars["hovertemplate"] = "%{y}: %{x:.2f}<extra></extra>"
    drawn["layout"]["margin"] |= {"r": 50}
    drawn["layout"]["yaxis"].pop("title")
    return (drawn,)


def _parallel(early: optuna.Study, found: Found) -> Figure:
    import optuna

    drawn = _drawn(
        optuna.visualization.plot_parallel_coordinate(early, target_name="score"), 380,
        margin={"l": 60, "r": 60, "t": 60, "b": 60},
    )  # fmt: skip
    for trace in drawn["data"]:
        if trace["mode"] == "lines" and trace.get("customdata"):
            height = trace["y"][0] if found.search.direction == "maximize" else 1 - trace["y"][0]
            trace["line"] |= {"color": COLOURS[0], "width": 1 + 2 * height}
            trace["opacity"] = 0.12 + 0.85 * height**2
        elif trace["mode"] == "markers":
            trace["marker"]["showscale"] = False
    return drawn


def _cost(found: Found) -> Figure:
    rows = found.trials
    colours = [COLOURS[0] if state == COMPLETE else GREY for state in rows["state"]]
    data = {
        "type": "bar", "x": rows["run"].tolist(), "y": rows["epochs"].tolist(),
        "marker": {"color": colours}, "hovertemplate": "%{x}: %{y} epochs<extra></extra>",
    }  # fmt: skip
    layout = layout_of(280, yaxis={"title": {"text": "epochs"}}, xaxis={"tickangle": -60})
    return {"data": [data], "layout": layout}


def _confirmed(found: Found) -> tuple[Block, ...]:
    rows = found.table[found.table["kind"] != TRIAL]
    if rows.empty:
        return ()
    return (Block(sheets=(_sheet("confirmed", rows, found),)),)


def _sheet(name: str, rows: pd.DataFrame, found: Found) -> Any:
    labelled, first = rows["accuracy"].notna().any(), name == "trials"
    columns = [
        Column("run", lambda run: text(run, bold=run == found.best.id), "run", numeric=False),
        Column("state", _state, "state", numeric=False),
        *([] if first else [Column("seed", setting, "seed")]),
        Column("score", any_number, "value", title="at full length"),
        *([Column("at first rung", any_number, "first_value")] if first else []),
        Column("epochs", setting, "epochs"),
        Column("seconds", partial(_fixed, digits=0), "seconds"),
        *([Column("val. accuracy", percent_cell, "val_accuracy"),
           Column("test accuracy", percent_cell, "accuracy")] if labelled else []),
        *(Column(words(param), any_number if rows[param].dtype == float else setting, param)
          for param in (found.params if first else ())),
    ]  # fmt: skip
    return sheet(name, rows.to_dict("records"), columns, find=len(rows) > 24)


def _state(value: str) -> Cell:
    return Cell(text=value, chip="good" if value == COMPLETE else "mute")


def _fixed(value: float, digits: int) -> Cell:
    return Cell(text=fixed(value, digits), sort=value)
