"""What is kept in docs/findings as frames, names of studies and scores, and how figures print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pandas as pd
from confirmed import CHALLENGER
from evidence import Evidence

from radial.data.augmentations import FIXED_VIEWS
from radial.study.analysis.columns import BASELINES, numbers, oriented, with_clid
from radial.study.results import directions

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "findings"
METHODS = {
    "simclr": "SimCLR", "moco": "MoCo v2", "nnclr": "NNCLR", "byol": "BYOL", "simsiam": "SimSiam",
    "swav": "SwAV", "dino": "DINO", "barlow_twins": "Barlow Twins", "vicreg": "VICReg",
}  # fmt: skip
ARMS = ("default", "mlp", "mlp-silu", "linear", "residual-linear", "rbfn", "rbfn-plain",
        "rbfn-frozen")  # fmt: skip
FIRST_ARMS = ("default", "mlp", "linear", "rbfn", "rbfn-normalized", "rbfn-paper")
CHOOSING = ("simclr", "byol")  # of study `scores`: what a score was chosen on
DATA = {
    "scores": "CIFAR-10 16 px",
    "second": "Tiny-ImageNet 32 px",
    "second64": "Tiny-ImageNet 64 px",
    "long": "CIFAR-10 32 px",
    "vit": "CIFAR-10 32 px, ViT",
    "again": "Tiny-ImageNet 32 px, again",
}
REGISTERED = ("second", "second64", "long", "vit")  # judged first: the claims have their state
AGAIN = ("again",)  # judged by the same goals, when those were known
CONFIRMING = (*REGISTERED, *AGAIN)
FIRST = "scores"  # the first edition's hundred runs, trained again
BUDGETS = (1, 3, 10, 20)  # epochs at which `long` is judged
LATE = 20  # its last
BEST = "view_retrieval@backbone"
READ = ("second", "second64", "vit", "long")  # three looks at the challenger: kept weights
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


def with_challenger(runs: pd.DataFrame, name: str) -> pd.DataFrame:
    """The runs of a study with what the challenger says of those it was read on, at their end.

    Studies that began when it was a score of the registry have it among their scores.
    """
    if CHALLENGER in runs:
        return runs
    recipes = [f"{recipe}: whitened log rank" for recipe in FIXED_VIEWS]
    read = pd.read_parquet(KEPT / "candidates" / f"{name}.parquet").set_index("run")[recipes]
    ended = runs["epoch"] == runs.groupby("run")["epoch"].transform("max")
    return runs.assign(**{CHALLENGER: runs["run"].map(read.mean(axis=1)).where(ended)})


@cache
def challenged(*studies: str) -> Evidence:
    """The cells of the runs that the challenger was read on."""
    parts = [with_challenger(unchosen(name)[0], name) for name in studies]
    names = [CHALLENGER, *(n for n in confirming(*studies).names if n != CHALLENGER)]
    return Evidence(pd.concat(parts, ignore_index=True), names, labelled=list(LABELS))


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
