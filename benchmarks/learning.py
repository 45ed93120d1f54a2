"""Does each method learn, with its default head and with an RBFN head? On real images.

Trains every method from scratch on the CPU with one fixed budget on CIFAR-10 images in class
folders, then fits a logistic regression on the frozen backbone (standardised features of the
train split, accuracy on the test split). SimCLR with three seeds, the others with one. The
published head gets one epoch: long enough for the guard to say what it is.

    python benchmarks/learning.py FOLDER

About forty minutes on two cores, two runs of one thread at a time. Each finished run is kept in
benchmarks/results/learning.csv and not repeated; delete its line to have it run again.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev

import torch
from rich.console import Console

from radial.checkpoints import part, read_checkpoint
from radial.evaluation.probe import probe_backbone
from radial.files import atomic
from radial.methods import METHODS
from radial.training.build import Parts, build
from radial.training.config import RunConfig
from radial.training.run import train

RESULTS = Path(__file__).parent / "results" / "learning.csv"
BACKBONE, EPOCHS = "resnet9-w0.125", 6
COLUMNS = ("method", "head", "seed", "epochs", "accuracy", "loss", "constant_loss", "spread",
           "verdict", "seconds")  # fmt: skip
T_975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # of Student's t, by number of seeds


def plan() -> list[tuple[str, str, int]]:
    runs = [("simclr", head, seed) for seed in range(3) for head in ("default", "rbfn")]
    runs += [(m, head, 0) for m in METHODS if m != "simclr" for head in ("default", "rbfn")]
    runs += [(method, "rbfn-paper", 0) for method in METHODS]
    return [*[("untrained", "–", seed) for seed in range(3)], *runs]


def run(method: str, head: str, seed: int, folder: Path) -> dict[str, object]:
    untrained = method == "untrained"
    epochs = 1 if head == "rbfn-paper" else EPOCHS
    with tempfile.TemporaryDirectory() as directory:
        config = RunConfig(
            method="simclr" if untrained else method,
            head="default" if untrained else head,
            data=f"folder:{folder}",
            backbone=BACKBONE,
            epochs=epochs,
            seed=seed,
            threads=1,
            out=str(Path(directory) / "run"),
        )
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        begin = time.perf_counter()
        parts = build(config)
        row: dict[str, object] = {"method": method, "head": head, "seed": seed, "epochs": epochs}
        if untrained:
            return row | {"epochs": 0, "accuracy": accuracy(parts)}
        result = train(config, console=Console(stderr=True))
        state = read_checkpoint(config.directory / "last.ckpt")["state_dict"]
        parts.method.load_state_dict(part(state, "method."))
        row |= {"loss": result.train_loss, "constant_loss": result.constant_loss}
        row |= {"spread": result.spread, "verdict": result.verdict}
        row["seconds"] = round(time.perf_counter() - begin, 1)
        return row | {"accuracy": accuracy(parts)}


def accuracy(parts: Parts) -> float:
    """At one strength, so that rows of the table stay comparable."""
    return probe_backbone(parts.method.backbone, parts.data, strengths=(1.0,)).accuracy


def done() -> list[dict[str, str]]:
    if not RESULTS.is_file():
        return []
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def interval(values: list[float]) -> str:
    if len(values) < 2:
        return f"{mean(values):.1%}"
    half = T_975[len(values)] * stdev(values) / len(values) ** 0.5
    return f"{mean(values):.1%} ± {100 * half:.1f}"


def table(rows: list[dict[str, str]]) -> None:
    def accuracies(method: str, head: str) -> list[float]:
        chosen = [row for row in rows if (row["method"], row["head"]) == (method, head)]
        return [float(row["accuracy"]) for row in sorted(chosen, key=lambda row: row["seed"])]

    print(f"untrained backbone: {interval(accuracies('untrained', '–'))}")
    print(f"{'method':<14}{'default':<16}{'rbfn':<16}{'rbfn-paper, one epoch':<24}verdict of it")
    for method in METHODS:
        cells = [interval(x) if (x := accuracies(method, head)) else "–"
                 for head in ("default", "rbfn", "rbfn-paper")]  # fmt: skip
        verdicts = {
            r["verdict"] for r in rows if (r["method"], r["head"]) == (method, "rbfn-paper")
        }
        print(f"{method:<14}{cells[0]:<16}{cells[1]:<16}{cells[2]:<24}{', '.join(verdicts)}")
    pairs = list(zip(accuracies("simclr", "default"), accuracies("simclr", "rbfn")))
    if len(pairs) > 1:
        print(f"simclr, rbfn − default, paired: {interval([b - a for a, b in pairs])} points")
    print("± is the half-width of a 95 % t-interval over seeds; no ± means one seed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="class folders of CIFAR-10 images")
    folder = parser.parse_args().folder
    kept = {(row["method"], row["head"], int(row["seed"])) for row in done()}
    left = [case for case in plan() if case not in kept]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for running in as_completed([pool.submit(run, *case, folder) for case in left]):
            rows = [*done(), running.result()]
            with atomic(RESULTS) as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    table(done())
    return 0


if __name__ == "__main__":
    sys.exit(main())
