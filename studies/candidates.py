"""Candidates for a score that ranks runs better than view retrieval, all of them, on one study.

    python studies/candidates.py read STUDY_DIRECTORY folder:CIFAR --out candidates.parquet
    python studies/candidates.py judge candidates.parquet RESULTS.parquet

`read` computes every candidate from the kept weights of a study (resumable: runs that are in the
file are not read again). `judge` prints how each ranks the runs: Spearman's ρ with accuracy within
a method, averaged by Fisher's z, the least of the methods, ρ among the better half of the runs,
regret@1 in points, and what colour is worth to it: the coefficient of a run's colour strength, in
ranks, at equal accuracy (0 is fair). A candidate is chosen by its mean ρ on the study that
REGISTERED.md names, once.

What was tried: five view recipes (SimCLR's; crops alone; stronger; colour alone; small parts), each
read by whitened log rank, plain log rank and whitened InfoNCE; another 512 images; neighbours among
*other* images that two views of an image share; retrieval of what a colour histogram does not
predict; means over recipes; rank averages with other scores; ridge regressions on the ranks of
scores, fitted on the other methods.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from radial.data import Data, load_data
from radial.data.augmentations import View, scoring_view
from radial.evaluation.features import extract_layers
from radial.metrics.retrieval import Gallery, info_nce, view_retrieval
from radial.scoring.targets import build, find
from radial.study.analysis.correlation import fisher_mean, spearman

IMAGES, VIEWS = 512, 4
NEIGHBOURS = 10  # other images that a view is surrounded by
RIDGE = 1.0  # of the combinations, on standardised ranks
SEED = 0


def recipes(size: int) -> dict[str, View]:
    fixed, strong = scoring_view("fixed", size), scoring_view("strong", size)
    crop = scoring_view("crop", size)
    return {
        "fixed": fixed,
        "crop": crop,
        "strong": strong,
        "colour": replace(strong, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0),
        "parts": replace(crop, scale=(0.08, 0.25)),
    }


class Histogram(nn.Module):
    """(B, 3, S, S) in [0, 1] to (B, 27 + 6): a joint colour histogram, means and deviations."""

    def forward(self, images: Tensor) -> Tensor:
        bins = (images.clamp(0, 1 - 1e-6) * 3).long()
        joint = (9 * bins[:, 0] + 3 * bins[:, 1] + bins[:, 2]).flatten(1)
        counts = F.one_hot(joint, 27).float().mean(1)
        return torch.cat([counts, images.mean((2, 3)), images.std((2, 3))], dim=1)


def shared_neighbours(views: Tensor) -> float:
    """How many of the nearest other images two views of an image have in common, beyond chance.

    Views v of all images are a gallery of their own, whitened together; images a view is not of.
    """
    n, q, _ = views.shape
    cosines = Gallery(views).whitened.view(n, q, n, q)
    near = []
    for v in range(q):
        within = cosines[:, v, :, v].clone().fill_diagonal_(-2.0)
        near.append(F.one_hot(within.topk(NEIGHBOURS, dim=1).indices, n).sum(1).double())
    pairs = [(near[a] * near[b]).sum(1).mean() for a in range(q) for b in range(a)]
    shared = float(torch.stack(pairs).mean()) / NEIGHBOURS
    chance = NEIGHBOURS / (n - 1)
    return (shared - chance) / (1 - chance)


def without_colour(views: Tensor, colours: Tensor) -> Tensor:
    """What a linear regression on the views' colour histograms leaves of their features."""
    x = F.pad(colours.double().flatten(0, 1), (0, 1), value=1.0)
    y = views.double().flatten(0, 1)
    ridge = 1e-3 * torch.eye(x.shape[1], dtype=x.dtype) * x.square().sum(0).mean()
    weights = torch.linalg.solve(x.T @ x + ridge, x.T @ y)
    return (y - x @ weights).view_as(views)


@torch.no_grad()
def candidates(directory: Path, data: Data, colours: dict[str, Tensor]) -> dict[str, float]:
    """Every candidate of one run, from its backbone's features."""
    target = find(str(directory))
    network = build(target, image_size=data.image_size)
    settings = {
        "mean": torch.tensor(target.facts["mean"]),
        "std": torch.tensor(target.facts["std"]),
    }
    order = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(SEED))
    found: dict[str, float] = {}
    for name, view in recipes(data.image_size).items():
        images = data.test.subset(order[: 2 * IMAGES if name == "fixed" else IMAGES])
        drawn = {"view": view, "q": VIEWS, "seed": SEED, "image_size": data.image_size}
        views = extract_layers(network.backbone, None, images, **settings, **drawn).backbone
        if name not in colours:
            zero, one = torch.zeros(3), torch.ones(3)
            plain = extract_layers(Histogram(), None, images, mean=zero, std=one, **drawn)
            colours[name] = plain.backbone
        first = views[:IMAGES]
        gallery = Gallery(first)
        residual = without_colour(first, colours[name][:IMAGES])
        if name == "fixed":  # what the choice of images is worth
            found["fixed: log rank of other images"] = view_retrieval(views[IMAGES:])
        found[f"{name}: whitened log rank"] = view_retrieval(gallery)
        found[f"{name}: plain log rank"] = view_retrieval(gallery, whiten=False)
        found[f"{name}: whitened InfoNCE"] = -info_nce(gallery, whiten=True)
        found[f"{name}: shared neighbours"] = shared_neighbours(first)
        found[f"{name}: without colour"] = view_retrieval(residual)
    return found


def read(study: Path, name: str, out: Path) -> None:
    table = pd.read_parquet(out) if out.is_file() else pd.DataFrame({"run": []})
    rows = table.to_dict("records")
    done = {row["run"] for row in rows}
    data, colours = None, {}
    for directory in sorted((study / "runs").iterdir()):
        if directory.name in done or not (directory / "eval.json").is_file():
            continue
        if data is None:
            size = find(str(directory)).image_size
            data = load_data(name, image_size=size)
        rows.append({"run": directory.name, **candidates(directory, data, colours)})
        if len(rows) % 10 == 0:
            pd.DataFrame(rows).to_parquet(out)
        print(directory.name, flush=True)
    pd.DataFrame(rows).to_parquet(out)


def combined(runs: pd.DataFrame, names: list[str]) -> dict[str, np.ndarray]:
    """Means over recipes, rank averages, and regressions fitted on the other methods."""
    ranks = runs.groupby("method")[[*names, "accuracy"]].rank(pct=True) - 0.5
    logs = [f"{name}: whitened log rank" for name in ("fixed", "crop", "strong")]
    found = {
        "mean of fixed, crop, strong": runs[logs].mean(axis=1),
        "least of fixed, crop, strong": runs[logs].min(axis=1),
        "rank average: fixed, crop, strong": ranks[logs].mean(axis=1),
        "rank average: fixed, strong": ranks[[logs[0], logs[2]]].mean(axis=1),
        "rank average: fixed, shared neighbours": ranks[[logs[0], "fixed: shared neighbours"]].mean(
            axis=1
        ),
        "rank average: all log ranks": ranks[[n for n in names if "log rank" in n]].mean(axis=1),
    }
    for label, chosen in {
        "regression: all candidates": names,
        "regression: log ranks": [n for n in names if "whitened log rank" in n],
    }.items():
        predicted = pd.Series(0.0, index=runs.index)
        for method in runs["method"].unique():
            held = runs["method"] == method
            x, y = ranks.loc[~held, chosen].to_numpy(), ranks.loc[~held, "accuracy"].to_numpy()
            weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(len(chosen)), x.T @ y)
            predicted[held] = ranks.loc[held, chosen].to_numpy() @ weights
        found[label] = predicted
    return {name: np.asarray(values) for name, values in found.items()}


def judge(found: Path, results: Path, registered: list[str]) -> pd.DataFrame:
    runs = pd.read_parquet(results).merge(pd.read_parquet(found), on="run")
    runs = runs[runs["accuracy"].notna()].reset_index(drop=True)
    names = [name for name in runs.columns if ": " in name]
    columns = {name: runs[name].to_numpy() for name in [*names, *registered]}
    columns |= combined(runs, names)
    rows = []
    for name, values in columns.items():
        per, top, regret, bias, sizes = {}, [], [], [], []
        for method, index in runs.groupby("method").groups.items():
            accuracy, score = runs.loc[index, "accuracy"].to_numpy(), values[index]
            per[method] = spearman(score, accuracy)
            sizes.append(len(index))
            better = accuracy >= np.median(accuracy)
            top.append(spearman(score[better], accuracy[better]))
            regret.append(100 * (accuracy.max() - accuracy[score.argmax()]))
            part = runs.loc[index].assign(score=score)
            ranks = part[["score", "accuracy", "color_strength"]].rank(pct=True)
            x = np.column_stack([ranks["accuracy"], ranks["color_strength"], np.ones(len(ranks))])
            bias.append(np.linalg.lstsq(x, ranks["score"].to_numpy(), rcond=None)[0][1])
        rows.append({"candidate": name, "rho": float(fisher_mean(list(per.values()), sizes)[()]),
                     "least": min(per.values()), "top half": np.mean(top),
                     "regret": np.mean(regret), "colour": np.mean(bias), **per})  # fmt: skip
    return pd.DataFrame(rows).sort_values("rho", ascending=False)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    reading = commands.add_parser("read")
    reading.add_argument("study", type=Path)
    reading.add_argument("data")
    reading.add_argument("--out", type=Path, required=True)
    judging = commands.add_parser("judge")
    judging.add_argument("candidates", type=Path)
    judging.add_argument("results", type=Path)
    judging.add_argument("--registered", nargs="*", default=["view_retrieval@backbone"])
    options = parser.parse_args(arguments)
    if options.command == "read":
        read(options.study, options.data, options.out)
    else:
        table = judge(options.candidates, options.results, options.registered)
        print(table.round(2).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
