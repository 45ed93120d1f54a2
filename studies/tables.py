"""Every table of docs/FINDINGS.md, from the results kept in docs/findings, as Markdown.

The statistics are those of REGISTERED.md, in evidence.py; findings.py puts each in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from candidates import judge
from confirmed import CHALLENGER
from evidence import RESAMPLES, Evidence, fisher, regret, spearman
from rates import best
from scipy.stats import kendalltau

from radial.data.augmentations import FIXED_VIEWS
from radial.study.analysis import (
    paired_heads,
    partial_spearman,
    stopping_summary,
    stopping_table,
)
from radial.study.analysis.columns import BASELINES, final, numbers, oriented, with_clid
from radial.study.analysis.correlation import fisher_mean
from radial.study.analysis.peaks import t_interval
from radial.study.audit import audit
from radial.study.results import directions

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "findings"
METHODS = {
    "simclr": "SimCLR", "moco": "MoCo v2", "nnclr": "NNCLR", "byol": "BYOL", "simsiam": "SimSiam",
    "swav": "SwAV", "dino": "DINO", "barlow_twins": "Barlow Twins", "vicreg": "VICReg",
}  # fmt: skip
ARMS = ("default", "mlp-silu", "linear", "residual-linear", "rbfn")  # of the registered claims
CHOOSING = ("simclr", "byol")  # of study `scores`: what a score was chosen on
DATA = {
    "scores": "CIFAR-10 16 px",
    "second": "Tiny-ImageNet 32 px",
    "second64": "Tiny-ImageNet 64 px",
    "long": "CIFAR-10 32 px",
    "vit": "CIFAR-10 32 px, ViT",
}
REGISTERED = ("second", "second64", "long", "vit")  # the confirming studies
FIRST = "scores"  # the first edition's hundred runs, trained again
BUDGETS = (1, 3, 10, 20)  # epochs at which `long` is judged
LATE = 20  # its last
BEST = "view_retrieval@backbone"
READ = ("second", "second64", "vit", "long")  # what the challenger was read on: kept weights
SETTINGS = ("color_strength", "min_scale", "base_lr")  # that the runs of a pool differ in
LABELS = {"knn_1pct": "kNN, 1 % of labels", "logistic_1pct": "logistic regression, 1 %",
          "logistic_10pct": "logistic regression, 10 %", "knn": "kNN, all labels"}  # fmt: skip
NAMES = {
    BEST: "**view retrieval**: whitened, log rank",
    CHALLENGER: f"`{CHALLENGER}`",
    "view_retrieval_top1@backbone": "whitened, top-1",
    "view_retrieval_plain@backbone": "plain, log rank",
    "info_nce_whitened@backbone": "InfoNCE, whitened",
    "info_nce@backbone": "InfoNCE",
    "arc@backbone": "ARC: plain, top-1",
    "garc_mean@backbone": "GARC",
    "rotation_probe@backbone": "rotation probe",
    "clid@backbone": "CLID",
    "kmeans_agreement@backbone": "agreement of k-means",
    "alignment@backbone": "alignment",
    "uniformity@backbone": "uniformity",
    "rankme@projector": "RankMe, projector",
    "rankme@backbone": "RankMe, backbone",
    "lidar@projector": "LiDAR, projector",
    "lidar@backbone": "LiDAR, backbone",
    "train_loss": "training loss",
    **LABELS,
}


@cache
def kept(name: str) -> pd.DataFrame:
    return pd.read_parquet(KEPT / name / "results.parquet")


def there(name: str) -> bool:
    return (KEPT / name / "results.parquet").is_file()


def points(value: float, *, sign: bool = True) -> str:
    text = f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"
    return text.replace("-", "−")


def span(low: float, high: float) -> str:
    return f"{points(low)} to {points(high)}"


def rho(value: float, low: float | None = None, high: float | None = None) -> str:
    text = f"{value:+.2f}" if low is None else f"{value:+.2f} ({low:+.2f} to {high:+.2f})"
    return "–" if "nan" in text else text.replace("-", "−")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def lost_points(row: Mapping[str, float] | pd.Series) -> str:
    """Regret and its interval, in points."""
    return f"{row['regret']:.1f} ({row['regret_low']:.1f} to {row['regret_high']:.1f})"


# ------------------------------------------------------------------ which run


def readings(name: str, label: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a study with its scores oriented, and which of them (nearly) every run has."""
    runs = kept(name)
    runs = runs[runs["accuracy"].notna()]
    stem = runs["run"].astype(str).str.partition("@")[0]
    cells = runs["method"] + " " + runs["epoch"].astype(int).astype(str)
    runs, better = with_clid(runs.assign(data=cells), directions(runs))  # CLID's pool is a cell
    better |= {k: way for k, way in BASELINES.items() if k != "steps"} | {"knn": "higher"}
    better = {k: way for k, way in better.items() if way != "none"}
    values = {k: oriented(numbers(runs, k), way) for k, way in better.items()}
    frame = pd.DataFrame(values, index=runs.index)
    frame = frame.loc[:, frame.notna().mean() > 0.95]
    facts = ["method", "head", "accuracy", "epoch", "verdict", *SETTINGS]
    known = runs[facts].assign(run=stem, data=label)
    return pd.concat([known, frame], axis=1), list(frame.columns)


def unchosen(name: str) -> tuple[pd.DataFrame, list[str]]:
    """The readings of a study that are judged: nothing was chosen on them, at the budgets."""
    runs, names = readings(name, DATA[name])
    if name == FIRST:
        runs = runs[~runs["method"].isin(CHOOSING)]
    if name == "long":
        runs = runs[runs["epoch"].isin(BUDGETS)]
    return runs, names


@cache
def confirming(*studies: str) -> Evidence:
    """The cells of these studies."""
    parts, names = [], None
    for name in studies:
        runs, found = unchosen(name)
        parts.append(runs)
        names = found if names is None else [n for n in names if n in found]
    return Evidence(pd.concat(parts, ignore_index=True), names or [], labelled=list(LABELS))


def ranking_table(found: Evidence, names: Mapping[str, str], best: str = BEST) -> str:
    """ρ, the least method, the better half, regret, and how far the best is ahead."""
    table, ahead = found.table(), found.ahead(best)
    rows = []
    for name, text in names.items():
        if name not in table.index:
            continue
        row = table.loc[name]
        behind = rho(*ahead.loc[name, ["ahead", "low", "high"]]) if name != best else ""
        p = "" if np.isnan(row["p_holm"]) else f"{row['p_holm']:.3f}".replace("0.000", "< 0.001")
        rows.append([
            text, rho(row["rho"], row["low"], row["high"]), rho(row["least"]),
            rho(row["top_half"]), lost_points(row), p, behind,
        ])  # fmt: skip
    lost = np.mean([cell.accuracy.max() - cell.accuracy.mean() for cell in found.cells])
    rows.append(["a random run", "", "", "", points(lost, sign=False), "", ""])
    header = ["", "ρ with accuracy", "least method", "better half", "regret@1", "p (Holm)",
              "view retrieval is ahead by" if best == BEST else "the mean is ahead by"]  # fmt: skip
    return markdown(header, rows)


def datasets_table(*studies: str) -> str:
    """The main scores on each study alone."""
    rows = []
    for name in studies:
        found = confirming(name)
        table = found.table()
        for score in (BEST, "arc@backbone", "rankme@backbone", "logistic_1pct", "knn"):
            row = table.loc[score]
            rows.append([DATA[name], str(found.runs), str(len(found.cells)),
                         NAMES[score].partition(":")[0],
                         rho(row["rho"], row["low"], row["high"]), rho(row["least"]),
                         lost_points(row)])  # fmt: skip
    return markdown(["", "runs", "cells", "", "ρ with accuracy", "least method", "regret@1"], rows)


def counted_table() -> str:
    """The registered mean, and what it is when the same cells count otherwise."""
    rows = []
    shorter = [name for name in REGISTERED if name != "long"]
    whole, short = (confirming(*n).only([BEST, "knn"]) for n in (REGISTERED, shorter))
    for text, found, by, apart in (
        ("every cell alike, **as registered**", whole, None, True),
        ("the same; a method is drawn in all its studies at once", whole, None, False),
        ("the four studies alike", whole, "data", True),
        ("the nine methods alike", whole, "method", True),
        ("without `long`, which is read at four budgets", short, None, True),
    ):
        groups = pd.Series([str(n) if by is None else getattr(cell, by)
                            for n, cell in enumerate(found.cells)])  # fmt: skip
        weight = 1 / groups.map(groups.value_counts()).to_numpy()
        mine, ceiling = (found.counted(name, weight, apart=apart) for name in (BEST, "knn"))
        rows.append([text, f"{found.runs}", f"{len(found.cells)}",
                     rho(mine["rho"], mine["low"], mine["high"]), rho(mine["plain"]),
                     lost_points(mine), rho(ceiling["rho"], ceiling["low"], ceiling["high"]),
                     lost_points(ceiling)])  # fmt: skip
    header = ["how the cells count", "runs", "cells", "view retrieval: ρ", "plain mean of ρ",
              "regret@1", "kNN, all labels: ρ", "regret@1"]  # fmt: skip
    return markdown(header, rows)


def settings_table() -> str:
    """What a rule by settings alone would do, and view retrieval among runs of equal settings."""
    rules = {"color_strength": "more colour jitter", "min_scale": "larger crops",
             "base_lr": "a larger learning rate"}  # fmt: skip
    runs = pd.concat([unchosen(name)[0] for name in REGISTERED], ignore_index=True)
    found = Evidence(runs, [BEST, *rules, "knn"], labelled=["knn"])
    table = found.table()
    rows = []
    for name in (BEST, *rules, "knn"):
        text, row = rules.get(name, NAMES.get(name, name)), table.loc[name]
        controls = [n for n in ("color_strength", "min_scale") if name in (BEST, "knn")]
        left = [
            partial_spearman(cell.scores[:, found.names.index(name)], cell.accuracy,
                             {n: cell.scores[:, found.names.index(n)] for n in controls})
            for cell in found.cells
        ]  # fmt: skip
        sizes = [len(cell.accuracy) for cell in found.cells]
        equal = rho(float(fisher_mean(left, sizes)[()])) if controls else ""
        rows.append([text, rho(row["rho"], row["low"], row["high"]), rho(row["least"]),
                     lost_points(row), equal])  # fmt: skip
    header = ["", "ρ with accuracy", "least method", "regret@1", "ρ at equal jitter and crops"]
    return markdown(header, rows)


def exclusions_table(*studies: str) -> str:
    """View retrieval without the runs that a verdict leaves out, and Kendall's τ-b."""
    rows = []
    for name in studies:
        runs, _ = unchosen(name)
        poor = runs.loc[runs["verdict"].notna() & (runs["verdict"] != "ok"), "run"]
        whole, left = (
            Evidence(part, [BEST, "knn"]) for part in (runs, runs[~runs["run"].isin(poor)])
        )
        tau = np.mean([kendalltau(c.scores[:, 0], c.accuracy)[0] for c in whole.cells])
        (mine, ceiling), (mine_left, ceiling_left) = np.tanh([whole.z.mean(0), left.z.mean(0)])
        rows.append([DATA[name], rho(mine), rho(tau), str(whole.runs - left.runs), rho(mine_left),
                     rho(ceiling), rho(ceiling_left)])  # fmt: skip
    header = ["", "ρ", "τ-b", "dead or collapsed", "ρ without them",
              "kNN, all labels: ρ", "without them"]  # fmt: skip
    return markdown(header, rows)


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


def methods_table(found: Evidence) -> str:
    """ρ of view retrieval and of kNN with all labels in every cell."""
    places = [found.names.index(name) for name in (BEST, "knn")]
    values = {
        (cell.method, cell.data, cell.budget): " / ".join(
            rho(spearman(cell.scores[:, place], cell.accuracy)) for place in places
        )
        for cell in found.cells
    }
    columns = list(dict.fromkeys((cell.data, cell.budget) for cell in found.cells))
    header = ["", *(f"{data}, epoch {float(budget):.0f}" for data, budget in columns)]
    rows = []
    for method, text in METHODS.items():
        cells = [values.get((method, *column), "") for column in columns]
        if any(cells):
            rows.append([text, *cells])
    return markdown(header, rows)


# ---------------------------------------------------------------- which epoch


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


def lost_by(lost: pd.Series, methods: pd.Series) -> str:
    mean, low, high = meant(lost, methods)
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


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


# -------------------------------------------------------------- which settings


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


# ------------------------------------------------------------- which challenger


def candidates_table(most: int = 8) -> str:
    """The best candidates on the hundred runs of `scores`, view retrieval among them."""
    table = judge(KEPT / "candidates" / "scores.parquet", KEPT / "scores" / "results.parquet",
                  ["knn"])  # fmt: skip
    table = pd.concat([table.head(most), table[table["candidate"] == "knn"]])
    table = table.drop_duplicates("candidate").replace({"candidate": LABELS})
    rows = [
        [row["candidate"], rho(row["rho"]), rho(row["least"]), rho(row["top half"]),
         f"{row['regret']:.1f}", rho(row["colour"])]
        for _, row in table.iterrows()
    ]  # fmt: skip
    return markdown(["", "ρ", "least method", "better half", "regret@1", "worth of colour"], rows)


def with_challenger(runs: pd.DataFrame, name: str) -> pd.DataFrame:
    """The runs of a study with what the challenger says of those it was read on, at their end."""
    recipes = [f"{recipe}: whitened log rank" for recipe in FIXED_VIEWS]
    read = pd.read_parquet(KEPT / "candidates" / f"{name}.parquet").set_index("run")[recipes]
    ended = runs["epoch"] == runs.groupby("run")["epoch"].transform("max")
    return runs.assign(**{CHALLENGER: runs["run"].map(read.mean(axis=1)).where(ended)})


@cache
def challenged(*studies: str) -> Evidence:
    """The cells of the runs that the challenger was read on."""
    parts = [with_challenger(unchosen(name)[0], name) for name in studies]
    names = [CHALLENGER, *confirming(*studies).names]
    return Evidence(pd.concat(parts, ignore_index=True), names, labelled=list(LABELS))


def challengers_table() -> str:
    """The challenger beside view retrieval, on each study it was read on and on all."""
    rows = []
    for studies in (*((name,) for name in READ), READ):
        found = challenged(*studies)
        table, ahead = found.table(), found.ahead(CHALLENGER).loc[BEST]
        text = DATA[studies[0]] if len(studies) == 1 else "**together**"
        for name in (BEST, CHALLENGER, "logistic_1pct", "knn"):
            row, gain = table.loc[name], ""
            if name == CHALLENGER:
                gain = rho(*ahead[["ahead", "low", "high"]])
                if studies == READ:
                    low, high = found.ahead(CHALLENGER, 99).loc[BEST, ["low", "high"]]
                    gain += f"; 99 %: {rho(low)} to {rho(high)}"
            rows.append([
                text, f"{found.runs}", NAMES[name].partition(":")[0],
                rho(row["rho"], row["low"], row["high"]), rho(row["least"]),
                f"{row['regret']:.1f}", gain,
            ])  # fmt: skip
    header = ["", "runs", "", "ρ with accuracy", "least method", "regret@1",
              "ahead of view retrieval by"]  # fmt: skip
    return markdown(header, rows)


# ------------------------------------------------------------------ which pool


POOL = {"pool": "0", "pool-0.125": "0.125", "pool-0.25": "0.25", "pool-0.5": "0.5", "pool-1": "1"}
SHOWN = (BEST, CHALLENGER, "view_retrieval_top1@backbone", "info_nce_whitened@backbone",
         "arc@backbone", "rotation_probe@backbone", "rankme@backbone",
         "lidar@backbone")  # fmt: skip


def pool_table() -> str:
    """Means over seeds of what scores say of each network, at the rate that all were run with."""
    rows = []
    for name, strength in POOL.items():
        runs = with_challenger(final(kept(name)), "pool")
        for method, part in runs[runs["base_lr"] == 0.12].groupby("method", sort=False):
            text = {"supervised": "cross-entropy", "supcon": "SupCon"}.get(method, "SimCLR")
            if strength != "0":
                text += f", watermark {strength}"
            cells = [f"{numbers(part, score).mean():.3g}" for score in SHOWN]
            labelled = [points(part[name].mean(), sign=False) for name in ("accuracy", "knn")]
            rows.append([text, *labelled, *cells])
    heads = [NAMES[score].partition(":")[0] for score in SHOWN]
    return markdown(["", "accuracy, %", "kNN, all labels, %", *heads], rows)


def outliers_table() -> str:
    """Areas under the curve and agreements, a column a seed."""
    runs = kept("outliers").set_index("run")
    rows = [[name, *(f"{value:.3f}" for value in runs[name])] for name in runs.columns]
    return markdown(["", *(f"seed {run}" for run in runs.index)], rows)


# ---------------------------------------------------------------- which head


def heads_table(runs: pd.DataFrame, heads: Sequence[str]) -> str:
    """Mean accuracy in percent with Student's 95 % interval over seeds."""

    def cell(method: str, head: str) -> str:
        found = runs[(runs["method"] == method) & (runs["head"] == head)]["accuracy"].to_numpy()
        low, high = t_interval(found, 1 / float(runs["test_samples"].min()))
        return f"{points(found.mean(), sign=False)} ± {50 * (high - low):.1f}"

    rows = [[text, *(cell(m, h) for h in heads)]
            for m, text in METHODS.items() if m in set(runs["method"])]  # fmt: skip
    return markdown(["", *(f"`{head}`" for head in heads)], rows)


def pairs_table(runs: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> str:
    """One head minus another: by method, pairs alike, and methods as clusters."""
    tables = [paired_heads(runs, b, a).set_index("method") for a, b in pairs]
    rows = []
    for method, name in [*METHODS.items(), ("pooled", "pairs alike")]:
        if method in tables[0].index:
            cells = [table.loc[method] for table in tables]
            texts = [f"{points(c['difference'])} ({span(c['low'], c['high'])})" for c in cells]
            rows.append([name, *texts])
    texts = []
    for gain, low, high in (clustered(runs, a, b) for a, b in pairs):
        texts.append(f"**{points(gain)}** ({span(low, high)})")
    rows.append(["**methods as clusters**", *texts])
    return markdown(["", *(f"`{a}` − `{b}`" for a, b in pairs)], rows)


def clustered(runs: pd.DataFrame, head: str, other: str) -> tuple[float, float, float]:
    """Mean accuracy of one head minus another's, paired by method and seed; methods drawn."""
    wide = runs.pivot_table(index=["method", "seed"], columns="head", values="accuracy")
    gain = (wide[head] - wide[other]).dropna().reset_index()
    mean = float(gain[0].groupby(gain["method"]).mean().mean())
    return mean, *methodwise(gain[0], gain["method"])


def rates_table() -> str:
    """The rate that each head takes, and the grid of its method."""
    table = kept("rates")
    chosen = best(table).set_index(["method", "head"])["base_lr"]
    rows = []
    for method, text in METHODS.items():
        grid = sorted(table.loc[table["method"] == method, "base_lr"].unique())
        cells = [f"{chosen[method, head]:g}" for head in ARMS]
        rows.append([text, f"{grid[0]:g} to {grid[-1]:g}", *cells])
    return markdown(["", "grid, factors of 4", *(f"`{head}`" for head in ARMS)], rows)


def learns_table() -> str:
    """Do the new methods learn: accuracy beside the untrained backbone's."""
    rows = []
    for name, network in (("learns", "ResNet-9"), ("learns-vit", "ViT-nano")):
        runs = final(kept(name))
        for method in (m for m in METHODS if m in set(runs["method"])):
            part = runs[runs["method"] == method].set_index("head")
            cells = [points(part["accuracy"][h], sign=False) for h in ("default", "rbfn")]
            start = points(part["start_accuracy"].iloc[0], sign=False)
            rows.append([network, METHODS[method], start, *cells])
    return markdown(["", "", "untrained", "`default`", "`rbfn`"], rows)


def published_table(runs: pd.DataFrame) -> str:
    """Pooled correlations of the SNS forms with accuracy, with and without unlearned runs."""
    table = audit(final(runs), directions(runs)).correlations.set_index("score")
    rows = []
    for name in ("sns_paper@kernels", "sns_width@kernels"):
        one = table.loc[name]
        figures = [rho(one[f"{kind}_{part}"])
                   for kind in ("pearson", "spearman") for part in ("all", "left")]  # fmt: skip
        rows.append([f"`{name}`", *figures, f"{one['n_all']:.0f}", f"{one['n_left']:.0f}"])
    header = ["score", "Pearson, all", "Pearson, learned", "Spearman, all", "Spearman, learned",
              "runs", "learned"]  # fmt: skip
    return markdown(header, rows)
