"""`radial tune` against the default settings, a random choice and a search with labels, on CIFAR.

    python studies/tuning.py folder:CIFAR --out findings/tuning --workers 2
    python studies/tuning.py --small --out /tmp/tuning      # digits, minutes: does it all work

Registered (studies/REGISTERED.md, `tuning`): three methods, each at its own space
(`radial.study.search.SPACES`) with its default head; three repeats, each with seeds and a sampler
of its own. A repeat holds five searches of equal settings:

* **label-free**: TPE and successive halving on `view_retrieval@backbone` of validation images;
* **labelled**: the same by the accuracy on validation images of a probe fitted to the training
  images: as many trials, as long;
* **labelled-10**, **labelled-1**: of a probe fitted to 10 % and to 1 % of their labels, judged on
  the same validation images;
* **random**: settings drawn at random, trained at full length.

What each chose, and the default settings, are trained again with a seed that no search has seen;
the accuracy of that run on test images is what is compared. Regret is the labelled choice less the
other, in points. Intervals are Student's t over the repeats of a method, and over all pairs. It
holds if the mean regret of the label-free choice is at most 0.5 points and pruning saves at least
half of the epochs. Some 2,400 epochs of 14,000 images at 16 px; after an interruption it goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import radial.study
from radial.files import write_atomically
from radial.presentation import fixed, percent, several, with_interval
from radial.study.analysis.peaks import t_interval
from radial.study.plan import from_values
from radial.study.search import BEST, DEFAULT, TRIAL, as_search

METHODS = ("simclr", "moco", "byol")
LABELS = {"labelled": True, "labelled-10": 0.1, "labelled-1": 0.01}
BY = ("label-free", *LABELS, "random")
GOAL = 0.5  # points of regret


def plan(by: str, method: str, repeat: int, options: argparse.Namespace) -> radial.study.Study:
    """One search; that at random is of settings at the seed by which all are compared."""
    seed = 100 * repeat
    tune: dict[str, Any] = {"trials": options.trials, "confirm": 1, "seed": repeat}
    tune |= {"labels": LABELS.get(by, False)}
    if by == "random":
        tune = {"trials": 1 + options.random, "confirm": 0, "seed": 1000 + repeat}
        tune |= {"sampler": "random", "pruner": "none"}
        seed += 1
    constants = {"data": options.data, "epochs": options.epochs, "batch_size": 128}
    constants |= {"image_size": options.image_size, "backbone": options.backbone}
    values = {"name": f"{method} {by} {repeat}", "constants": constants, "methods": [method]}
    values |= {"heads": ["default"], "seeds": [seed], "tune": tune, "keep_weights": by != "random"}
    return as_search(from_values(values))


def rows_of(found: pd.DataFrame, by: str, epochs: int) -> list[dict[str, Any]]:
    """Accuracy of what a search chose, at the seed that none has seen, and what the search cost."""
    trials = found[found["kind"] == TRIAL]
    if by == "random":
        drawn = trials[trials["run"] != "trial-000"]["accuracy"]
        return [{"by": "random", "accuracy": drawn.mean()}]
    cost = {"epochs": trials["epochs"].sum(), "full": epochs * len(trials)}
    chosen = found[found["kind"] == BEST]["accuracy"].mean()
    rows: list[dict[str, Any]] = [{"by": by, "accuracy": chosen, **cost}]
    if by == "label-free":
        usual = found[found["kind"] == DEFAULT]["accuracy"].mean()
        rows.append({"by": "default", "accuracy": usual})
    return rows


def summary(results: pd.DataFrame) -> str:
    """Markdown: accuracy and regret by method and over all, each with its interval."""
    wide = results.pivot(index=["method", "repeat"], columns="by", values="accuracy") * 100
    names = {"label-free": "regret: label-free", "labelled-10": "10 % of training labels",
             "labelled-1": "1 % of training labels", "default": "default settings",
             "random": "random choice"}  # fmt: skip
    arms = [name for name in names if name in wide]
    header = ["method", "labelled search, %", *(names[arm] for arm in arms)]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    groups = [*wide.groupby(level="method", sort=False), ("all", wide)]
    for method, group in groups:
        regrets = [(group["labelled"] - group[arm]).to_numpy(np.float64) for arm in arms]
        told = [with_interval(values.mean(), *t_interval(values)) for values in regrets]
        shown = [str(method), fixed(group["labelled"].mean()), *told]
        lines.append(f"| {' | '.join(shown)} |")
    searched = results[results["by"] == "label-free"]
    saved = 1 - searched["epochs"].sum() / searched["full"].sum()
    regret = float((wide["labelled"] - wide["label-free"]).mean())
    lines += [
        "",
        f"Points of accuracy on test images; 95 % intervals over {several(len(wide), 'repeat')} in "
        f"all. Pruning saved {percent(saved)} % of the epochs of the label-free searches.",
        f"Goal (regret at most {GOAL} points, half of the cost saved): "
        f"{'met by the mean' if regret <= GOAL and saved >= 0.5 else 'missed'}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="?", default="digits", help="such as folder:CIFAR")
    parser.add_argument("--out", type=Path, default=Path("findings/tuning"))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--by", nargs="+", choices=BY, default=list(BY))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--random", type=int, default=3, help="settings drawn at random, a repeat")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--image-size", type=int, default=16)
    parser.add_argument("--backbone", default="resnet9-w0.125")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--small", action="store_true", help="to try it: few, short, tiny runs")
    options = parser.parse_args()
    if options.small:
        options.methods, options.repeats, options.trials, options.random = ["simclr"], 2, 4, 1
        options.epochs, options.image_size, options.backbone = 3, 16, "resnet9-w0.0625"

    results = []
    for repeat in range(options.repeats):  # a whole comparison first, then the next
        for method in options.methods:
            for by in options.by:
                place = options.out / f"{method}-{by}-{repeat}"
                study = plan(by, method, repeat, options)
                done = radial.study.run(study, out=place, workers=options.workers, threads=1)
                if done.failed:
                    parser.exit(1, f"{place}: {done.failed}\n")
                told = {"method": method, "repeat": repeat}
                results += [told | row for row in rows_of(done.table, by, options.epochs)]
        table = pd.DataFrame(results)
        write_atomically(options.out / "results.parquet", table.to_parquet())
    if set(options.by) == set(BY):
        write_atomically(options.out / "tuning.md", summary(table))
        print(summary(table))


if __name__ == "__main__":
    main()
