"""Which of my checkpoints is best? Rank them without labels, from Python.

Every checkpoint sees the same images and views. What is printed: a verdict (dead, collapsed and
broken networks are called so, and come last), the score that ranks with its interval over images,
and what may be said of the order. With --check the labels are asked afterwards; nothing is ranked
by them.

    python examples/rank_checkpoints.py --check       # trains four tiny runs on digits: a minute
    python examples/rank_checkpoints.py runs/a runs/b --data folder:photos
    python examples/rank_checkpoints.py mine.ckpt torchvision:resnet18 --image-size 64 --by rankme

Run directories of `radial train`, Lightning and PyTorch checkpoints, safetensors and models by
name go together; --backbone names the architecture where it is not one of torchvision's ResNets.
"""

import argparse
from pathlib import Path

from radial import RunConfig, evaluate, score, train

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
    shared = {"image_size": options.image_size, "backbone": options.backbone}
    wanted = tuple(dict.fromkeys(filter(None, (options.by, *SCORES))))
    result = score(targets, options.data, by=options.by, scores=wanted, **shared)
    result.show(every=True)
    if options.check:
        evaluate(targets, options.data, **shared).show()


if __name__ == "__main__":
    main()
