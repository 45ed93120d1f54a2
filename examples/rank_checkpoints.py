"""Which of my checkpoints is best? Rank them without labels, from Python.

Every checkpoint sees the same images and views. What is printed: a verdict (dead, collapsed and
broken networks are called so, and come last), a few scores with intervals over images, and what
may be said of the order. With --check the labels are asked afterwards; nothing is ranked by them.

    python examples/rank_checkpoints.py --check       # trains four tiny runs on digits: a minute
    python examples/rank_checkpoints.py runs/a runs/b --data folder:photos
    python examples/rank_checkpoints.py mine.ckpt torchvision:resnet18 --image-size 64 --by rankme

Run directories of `radial train`, Lightning and PyTorch checkpoints, safetensors and models by
name go together; --backbone names the architecture where it is not one of torchvision's ResNets.
"""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from radial import RunConfig, evaluate, score, train
from radial.scoring.card import Card, cell, footnotes, ranking, short_names
from radial.scoring.settings import EvalSettings, Settings

SCORES = ("kernel_retrieval@kernels", "view_retrieval@backbone", "lidar@projector")
TINY_RUNS = {  # name: head and epochs
    "default": ("default", 5),
    "rbfn": ("rbfn", 5),
    "rbfn-short": ("rbfn", 1),
    "published": ("rbfn-paper", 1),
}


def tiny_runs(root: Path, data: str) -> list[str]:
    """Train a few runs to rank, one of them with a dead head; those that exist are kept."""
    for name, (head, epochs) in TINY_RUNS.items():
        if not (root / name / "result.json").is_file():
            config = RunConfig(
                method="simclr",
                head=head,
                data=data,
                image_size=16,
                backbone="resnet9-w0.125",
                epochs=epochs,
                out=str(root / name),
            )
            train(config, overwrite=True)
    return [str(root / name) for name in TINY_RUNS]


def table(cards: list[Card], accuracies: dict[str, str]) -> Table:
    """Best first: verdict, scores with intervals, and the accuracy where it was asked for."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    keys = dict.fromkeys(score.key for card in cards for score in card.scores)
    for column in ("checkpoint", "verdict", *keys, *(["accuracy"] if accuracies else [])):
        shown.add_column(column.replace("@", "\n@"), no_wrap=True)
    for name, card in zip(short_names([card.target for card in cards]), cards):
        found = [cell(card.score(key)) for key in keys]
        shown.add_row(name, card.status, *found, accuracies.get(card.target, ""))
    return shown


def accuracy(target: str, settings: EvalSettings) -> str:
    """What a logistic regression on the frozen backbone makes of the labels."""
    found = evaluate(target, settings)["probes"]["exact"]
    return f"{found['accuracy']:.1%} ({found['low']:.1%}–{found['high']:.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoints", nargs="*", help="by default: tiny runs, trained now")
    parser.add_argument("--data", default="digits", help="images to score on: folder:PATH, …")
    parser.add_argument("--image-size", type=int, help="by default what each was trained at")
    parser.add_argument("--backbone", help="architecture of checkpoints that are not radial's")
    parser.add_argument("--by", help="score to rank by; by default view_retrieval")
    parser.add_argument("--check", action="store_true", help="show the accuracy as well")
    parser.add_argument("--out", type=Path, default=Path("runs/tiny"), help="of the tiny runs")
    options = parser.parse_args()

    targets = options.checkpoints or tiny_runs(options.out, options.data)
    shared = {name: getattr(options, name) for name in ("data", "image_size", "backbone")}
    wanted = dict.fromkeys(filter(None, (options.by, *SCORES)))
    cards = score(targets, Settings(scores=tuple(wanted), **shared))
    cards, sentences = ranking(cards, options.by)
    labels = EvalSettings(**shared)
    accuracies = {t: accuracy(t, labels) for t in targets} if options.check else {}

    console = Console(width=200, highlight=False)
    console.print(table(cards, accuracies))
    for line in [*footnotes(cards), *sentences]:
        console.print(line, markup=False)


if __name__ == "__main__":
    main()
