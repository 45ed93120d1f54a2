"""Tables of which epoch and which settings: points lost by a choice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from evidence import RESAMPLES, Evidence, fisher, regret, spearman
from frames import (
    BEST,
    BUDGETS,
    DATA,
    LABELS,
    LATE,
    NAMES,
    confirming,
    kept,
    markdown,
    readings,
    rho,
    unchosen,
)

from radial.study.analysis import stopping_summary, stopping_table


def methodwise(values: pd.Series, methods: pd.Series, seed: int = 0) -> tuple[float, float]:
    """95 % of a mean, methods drawn with replacement, then runs within them."""
    random = np.random.default_rng(seed)
    groups = [values[methods == m].to_numpy() for m in methods.unique()]
    shape = (RESAMPLES, len(groups))
    drawn = random.integers(0, len(groups), shape)  # which method stands at each place
    within = [g[random.integers(0, len(g), (*shape, len(g)))].mean(-1) for g in groups]
    means = np.choose(drawn, within).mean(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def along(name: str) -> tuple[list[pd.DataFrame], pd.Series]:
    """The checkpoints of each run of a study in their order, and the runs' methods."""
    runs = readings(name, name)[0].sort_values("epoch")
    groups = [group for _, group in runs.groupby("run") if len(group) > 3]
    return groups, pd.Series([group["method"].iloc[0] for group in groups])


def points_lost(groups: Sequence[pd.DataFrame], column: str) -> pd.Series:
    """Of each run: the accuracy of its best checkpoint minus that of the one a column picks."""
    return pd.Series([
        100 * (g["accuracy"].max() - g["accuracy"].iloc[np.nanargmax(g[column])]) for g in groups
    ])  # fmt: skip


def meant(values: pd.Series, methods: pd.Series) -> tuple[float, float, float]:
    """The mean of method means, and its interval."""
    return float(values.groupby(methods).mean().mean()), *methodwise(values, methods)


def lost_by(lost: pd.Series, methods: pd.Series) -> str:
    mean, low, high = meant(lost, methods)
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def epoch_rules() -> dict[str, tuple[float, float, float, float]]:
    """Points lost by keeping one of a run's checkpoints, by rule: mean, interval, most."""
    groups, methods = along("long")
    columns = {
        "epoch": "the last epoch", BEST: "the best **view retrieval**",
        "rankme@backbone": "the highest RankMe, backbone",
        "rankme@projector": "the highest RankMe, projector",
        "lidar@backbone": "the highest LiDAR, backbone",
        "lidar@projector": "the highest LiDAR, projector",
        "info_nce_whitened@backbone": "the best InfoNCE, whitened",
        "rotation_probe@backbone": "the best rotation probe",
        "train_loss": "the lowest training loss",
        "logistic_1pct": "logistic regression, 1 % of labels",
        "logistic_10pct": "logistic regression, 10 %", "knn": "kNN, all labels",
    }  # fmt: skip
    lost = {text: points_lost(groups, column) for column, text in columns.items()}
    top = [100 * (g["accuracy"].max() - g["accuracy"].mean()) for g in groups]
    lost["a random one"] = pd.Series(top)
    return {text: (*meant(x, methods), float(x.max())) for text, x in lost.items()}


def epochs_table() -> str:
    rows = [[text, f"{mean:.2f} ({low:.2f} to {high:.2f})", f"{most:.1f}"]
            for text, (mean, low, high, most) in epoch_rules().items()]  # fmt: skip
    groups, methods = along("long")
    gain = points_lost(groups, "epoch") - points_lost(groups, BEST)
    rows.append(["the last epoch less view retrieval, paired", rho(*meant(gain, methods)), ""])
    return markdown(["what is kept of a run", "points lost", "most"], rows)


def along_table() -> str:
    """ρ with accuracy over the checkpoints of one run, averaged by Fisher's z; and of their age."""
    groups, methods = along("long")
    rows = []
    for name in (BEST, "view_retrieval_top1@backbone", "info_nce_whitened@backbone",
                 "arc@backbone", "rotation_probe@backbone", "rankme@backbone", "rankme@projector",
                 "lidar@backbone", "lidar@projector", "train_loss", "epoch", "logistic_1pct",
                 "knn"):  # fmt: skip
        each = [(g[name].to_numpy(), g["accuracy"].to_numpy()) for g in groups]
        found = np.array([spearman(score, accuracy) for score, accuracy in each])
        z = pd.Series([fisher(r, len(x)) for r, (x, _) in zip(found, each, strict=True)])
        text = NAMES.get(name, "its age: later is better")
        rows.append([text, rho(*np.tanh(meant(z, methods))), rho(found.min())])
    return markdown(["", "ρ along a run", "least run"], rows)


def budgets_table() -> str:
    """The longer runs at each budget: ρ, regret, and whether the score has room left."""
    runs, names = unchosen("long")
    rows = []
    for epoch, part in runs.groupby("epoch"):
        found = Evidence(part, names, labelled=list(LABELS))
        table = found.table()
        for name in (BEST, "logistic_1pct", "knn"):
            row, text = table.loc[name], NAMES[name].partition(":")[0]
            value = np.mean([cell.scores[:, names.index(name)].mean() for cell in found.cells])
            rows.append([f"{epoch:.0f}", text, rho(row["rho"], row["low"], row["high"]),
                         f"{row['regret']:.1f}", f"{value:.2f}"])  # fmt: skip
    return markdown(["after epoch", "by", "ρ with accuracy then", "regret@1", "its mean"], rows)


def early_table() -> str:
    """Scores after few epochs against accuracy at the end, within methods."""
    runs, names = readings("long", DATA["long"])
    end = runs[runs["epoch"] == LATE].set_index("run")["accuracy"]
    rows = []
    for epoch in (e for e in BUDGETS if e < LATE):
        part = runs[(runs["epoch"] == epoch) & runs["run"].isin(end.index)]
        part = part.assign(then=part["accuracy"], accuracy=part["run"].map(end))
        shown = [n for n in (BEST, "train_loss", "rankme@backbone", "logistic_1pct", "knn", "then")
                 if n in [*names, "then"]]  # fmt: skip
        table = Evidence(part, shown).table()
        for name in shown:
            row = table.loc[name]
            text = NAMES.get(name, "accuracy at that time")
            rows.append([f"{epoch}", text, rho(row["rho"], row["low"], row["high"]),
                         f"{row['regret']:.1f}"])  # fmt: skip
    header = ["after epoch", "by", f"ρ with accuracy after {LATE}", "regret@1"]
    return markdown(header, rows)


def stopping_rules() -> str:
    """What is lost by keeping the best epoch by view retrieval, and by stopping by it."""
    table = stopping_table(kept("stopping"), BEST, patience=3)
    methods = kept("stopping").drop_duplicates("run").set_index("run")["method"]
    names = {"last": "the last epoch", "kept": "the epoch of the best view retrieval",
             "stopped": "the same, stopped when it has not risen for three"}  # fmt: skip
    rows = []
    for _, row in stopping_summary(table).iterrows():
        lost, of = 100 * table[f"{row['rule']}_regret"], table["run"].map(methods)
        saved = f"{100 * row['saved']:.0f} %"
        rows.append([names[row["rule"]], lost_by(lost, of), f"{lost.max():.1f}", saved])
    groups, of = along("stopping")
    lost = points_lost(groups, "knn")
    rows.append(["kNN, all labels", lost_by(lost, of), f"{lost.max():.1f}", "0 %"])
    return markdown(["what is kept of a run", "points lost", "most", "epochs saved"], rows)


def drawn_table() -> str:
    """What is lost by one of the ten settings of each method that `second` drew, and by none."""
    found = confirming("second")
    methods = pd.Series([cell.method for cell in found.cells])
    top = pd.Series([cell.accuracy.max() for cell in found.cells])
    default = methods.map(kept("defaults").set_index("method")["accuracy"])
    lost = {NAMES[name].partition(":")[0]: pd.Series([
        regret(cell.scores[:, found.names.index(name)], cell.accuracy) for cell in found.cells
    ]) for name in (BEST, "info_nce_whitened@backbone", "arc@backbone", "rankme@backbone",
                    "train_loss", "logistic_1pct", "logistic_10pct", "knn")}  # fmt: skip
    lost["the default settings"] = top - default
    lost["a random one"] = top - [cell.accuracy.mean() for cell in found.cells]
    rows = [[text, lost_by(100 * x, methods), f"{100 * x.max():.1f}"] for text, x in lost.items()]
    return markdown(["which of ten settings", "points lost", "most"], rows)


SEARCHES = {"label-free": "**view retrieval**, `radial tune`", "labelled": "all labels",
            "labelled-10": "10 % of the training labels",
            "labelled-1": "1 % of the training labels",
            "default": "none: the default settings", "random": "none: a random one"}  # fmt: skip


def searched_table() -> str:
    """What settings found by each search are worth, beside those found by view retrieval."""
    kept_rows = kept("tuning")
    wide = kept_rows.pivot(index=["method", "repeat"], columns="by", values="accuracy") * 100
    wide, epochs = wide.reset_index(), kept_rows.groupby("by")["epochs"].sum()
    rows = []
    for by, text in SEARCHES.items():
        if by in wide:
            ahead = ahead_by(wide["label-free"] - wide[by], wide["method"])
            cost = f"{epochs[by]:.0f}" if epochs[by] else ""
            shown = "" if by == "label-free" else ahead
            rows.append([text, f"{wide[by].mean():.1f}", cost, shown])
    return markdown(["settings by", "accuracy, %", "epochs searched", "view retrieval is ahead by"],
                    rows)  # fmt: skip


def ahead_by(values: pd.Series, methods: pd.Series) -> str:
    mean, low, high = meant(values, methods)
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})".replace("-", "−")
