"""How time grows: of training with images, of scores with N, D and K, of studies with runs.

    python benchmarks/growth.py

The exponent of a power law through the times at some sizes, beside what the arithmetic has. Plan,
status and report are a user's commands on a study of 1,000 runs, made up here, nothing trained.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from measure import record, verdict

# ruff: isort: split
import numpy as np
import torch
import yaml
from rich.console import Console

from radial.data.datasets import Data, load_data
from radial.metrics.compute import Sample, kernel_scores
from radial.metrics.registry import SCORES
from radial.rbf.kernels import Kernels
from radial.study.plan import from_values
from radial.study.store import Store
from radial.training.config import RunConfig
from radial.training.run import train

SLACK = 0.15  # of an exponent


def median_of(task: Callable[[], Any], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        task()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of log seconds on log size, over the larger two: small ones are all overhead."""
    (a, b), (s, t) = sizes[-2:], seconds[-2:]
    return math.log(t / s) / math.log(b / a)


def grows(
    what: str, sizes: Sequence[int], make: Callable[[int], Callable[[], Any]], most: float,
    rounds: int,
) -> dict[str, Any]:  # fmt: skip
    make(sizes[0])()  # warm
    seconds = [median_of(make(size), rounds) for size in sizes]
    print(f"\n{what}")
    for size, value in zip(sizes, seconds):
        print(f"{size:10,}{value:10.3f} s")
    found = exponent(sizes, seconds)
    verdict(f"exponent of {what}", found, most=most + SLACK)
    return {"sizes": list(sizes), "seconds": seconds, "exponent": found, "arithmetic": most}


def epochs_of(data: Data, epochs: int) -> Callable[[], Any]:
    """A run of so many epochs: Lightning, guards, log, checkpoints and all."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as place:
            config = RunConfig(
                data="digits", backbone="resnet9-w0.125", batch_size=64, epochs=epochs,
                compile="off", out=str(Path(place) / "run"),
            )  # fmt: skip
            train(config, overwrite=True, console=Console(quiet=True), data=data)

    return run


def all_scores(n: int, d: int) -> Callable[[], Any]:
    z = torch.randn(n, d) * torch.arange(1, d + 1) ** -0.5
    views = z[: n // 4, None] + 0.3 * torch.randn(n // 4, 4, d)
    names = [name for name, info in SCORES.items() if info.needs in ("features", "views")]

    def run() -> None:
        sample = Sample(features=z, views=views)
        for name in names:
            SCORES[name].fn(sample)

    return run


def of_kernels(k: int, d: int) -> Callable[[], Any]:
    shapes = torch.rand(k) + 0.5
    widths = 1 / (2**0.5 * shapes)
    found = Kernels(name="layers.2", centers=torch.randn(k, d), shapes=shapes, widths=widths)
    return functools.partial(kernel_scores, found)


def made_up(path: Path, runs: int) -> Store:
    """A study whose runs are all done, with curves, an evaluation and every score of images."""
    study = from_values({
        "name": f"of {runs}",
        "constants": {"data": "digits", "backbone": "resnet9-w0.125", "epochs": 4},
        "grid": {"base_lr": [round(0.01 * 1.07**i, 5) for i in range(runs // 20)]},
        "methods": ["simclr", "byol", "moco", "swav", "simsiam"],
        "heads": ["default", "rbfn"],
        "seeds": [0, 1],
    })  # fmt: skip
    store = Store(path)
    store.create(study)
    asked, random = store.steps(study), np.random.default_rng(0)
    keys = [(name, layer) for name, info in SCORES.items() for layer in info.layers]
    assert len(study.runs()) == runs
    for run in study.runs():
        folder = store.run(run.id)
        folder.mkdir(parents=True)
        skill = 0.5 + 0.3 * random.random()
        losses = [5.0 - skill * e for e in range(1, 5)]
        lines = [f"{e},{9 * e},{loss},,{skill * e / 4}" for e, loss in enumerate(losses, 1)]
        files: dict[str, Any] = {
            "config.yaml": yaml.safe_dump(run.config.to_dict()),
            "environment.json": {"torch": torch.__version__, "seed": 1},
            "metrics.csv": "\n".join(["epoch,step,train_loss,val_loss,knn", *lines]),
            "result.json": {
                "verdict": "ok", "reason": "", "steps": 36, "epochs": 4, "seconds": 9.0,
                "train_loss": losses[-1], "constant_loss": 6.2, "val_loss": None,
                "head_health": "alive",
            },
            "eval.json": {
                "probes": {"exact": {
                    "accuracy": skill, "f1": skill, "precision": skill, "recall": skill,
                    "low": skill - 0.02, "high": skill + 0.02, "test_samples": 360,
                }},
                "knn_few": {"accuracy": skill - 0.1}, "asked": asked["eval.json"],
            },
            "scores.json": {
                "status": "ok", "asked": asked["scores.json"],
                "scores": [
                    {"name": name, "layer": layer, "value": skill + 0.1 * random.random()}
                    for name, layer in keys
                ],
            },
        }  # fmt: skip
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / name).write_text(text, encoding="utf-8")
    return store


def command(*arguments: str) -> float:
    line = [sys.executable, "-m", "radial", "study", *arguments]
    began = time.perf_counter()
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def studies(sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    """Seconds of each command by the number of runs."""
    found: dict[str, Any] = {}
    for runs in sizes:
        with tempfile.TemporaryDirectory() as place:
            path = str(made_up(Path(place) / "study", runs).path)
            report = ("report", path)
            found[str(runs)] = {
                "plan": statistics.median(
                    command("plan", path, "--no-trial") for _ in range(rounds)
                ),
                "status": statistics.median(command("status", path) for _ in range(rounds)),
                "report": command(*report),
            }
        line = ", ".join(f"{name} {taken:.2f} s" for name, taken in found[str(runs)].items())
        print(f"\nstudy of {runs:,} runs: {line}")
    most = found[str(sizes[-1])]
    for name, limit in (("plan", 2.0), ("status", 2.0), ("report", 30.0)):
        verdict(f"{name} of {sizes[-1]:,} runs, seconds", most[name], most=limit)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="studies of 20 and 100 runs alone")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if args.quick:
        studies((20, 100), 1)
        return
    data = load_data("digits")
    per_epoch = len(data.train)
    figures = {
        "studies": studies((100, 1000), args.rounds),
        "training": grows(
            f"training with epochs of {per_epoch:,} images", (4, 8, 16),
            lambda epochs: epochs_of(data, epochs), 1.0, 1,
        ),
        "scores by samples": grows(
            "all scores with N, D = 256", (4096, 8192, 16384), lambda n: all_scores(n, 256), 1.0,
            args.rounds,
        ),
        "scores by features": grows(
            "all scores with D, N = 4,096", (256, 512, 1024), lambda d: all_scores(4096, d), 2.0,
            args.rounds,
        ),
        "kernels by K": grows(
            "kernels alone with K, D = 512", (1024, 2048, 4096), lambda k: of_kernels(k, 512), 2.0,
            args.rounds,
        ),
    }  # fmt: skip
    record("growth", figures)


if __name__ == "__main__":
    main()
