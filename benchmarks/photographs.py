"""`radial train` on JPEG files of 64 and 224 px beside LightlySSL's example, which reads the same.

    python benchmarks/photographs.py [FOLDER] [--rounds 3]

FOLDER holds class folders of JPEGs of about 64 px such as Tiny-ImageNet; without it, coarse colours
under noise. For 224 px they are enlarged to 500 × 375 with noise, about 100 kB each as in ImageNet.
LightlySSL's side is torchvision's ImageFolder, its SimCLR transform with the crops, colours and
blur of radial's recipe, its head and loss, in a loader with two workers; the same backbone. At 64
px radial holds the pixels in memory, as it does below 2 GiB. At 224 px it is told not to, as with a
set too large for that: it reads files through its cache of decoded images, in loader workers. Its
first epoch there includes the pass that checks and decodes all files, and begins without a cache;
its later epochs are read at the third, as the pages that its loader workers share when they start
are copied once: seconds, which would count in epochs as short as these.
Medians of interleaved rounds in one run, written to results/photographs.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from measure import record, verdict

# ruff: isort: split
import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torchvision.datasets import ImageFolder
from views import of_lightly

from radial.data import load_data
from radial.data.augmentations import recipe
from radial.processes import keep_freed_memory
from radial.training.callbacks import Metrics
from radial.training.config import RunConfig
from radial.training.run import train
from radial.training.rundir import METRICS
from training import Example


@dataclass(frozen=True, kw_only=True)
class Case:
    size: int  # side of the views, px
    pixels: tuple[int, int]  # width and height of the files
    backbone: str
    batch: int
    steps: int  # of an epoch
    memory: float  # GiB that decoded images may take


CASES = (
    Case(size=64, pixels=(64, 64), backbone="resnet9-w0.125", batch=256, steps=8, memory=2.0),
    Case(size=224, pixels=(500, 375), backbone="resnet18", batch=32, steps=16, memory=0.0),
)


def write_files(case: Case, photographs: list[Path], root: Path) -> Path:
    """train/ with as many images as make the steps beside a tenth for validation, and test/."""
    random = np.random.default_rng(0)
    wanted = {"train": -(-case.steps * case.batch * 10 // 9), "test": case.batch}
    width, height = case.pixels
    for part, count in wanted.items():
        for number in range(count):
            if photographs:
                with Image.open(photographs[number % len(photographs)]) as file:
                    image = file.convert("RGB")
            else:
                image = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8))
            if image.size != case.pixels:
                image = image.resize((width, height), Image.Resampling.BICUBIC)
                noise = random.normal(0, 6, (height, width, 3))
                image = Image.fromarray((image + noise).clip(0, 255).astype(np.uint8))
            path = root / part / f"class{number % 2}" / f"{number:05d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path, quality=90)
    return root


def ours(case: Case, folder: Path) -> tuple[float, float]:
    """Images/s of the first epoch, with the reading of all files before it, and of the third."""
    with tempfile.TemporaryDirectory() as scratch:
        begin = time.perf_counter()
        data = load_data(
            f"folder:{folder}", image_size=case.size, root=scratch, memory_limit=case.memory
        )
        reading = time.perf_counter() - begin
        config = RunConfig(
            data=f"folder:{folder}",
            image_size=case.size,
            backbone=case.backbone,
            batch_size=case.batch,
            epochs=3,
            out=f"{scratch}/run",
        )
        train(config, data=data, console=Console(quiet=True))
        metrics = Metrics(Path(scratch) / "run" / METRICS)
        metrics.read(epochs=3)
        first, *_, later = (float(row["images_per_second"]) for row in metrics.rows)
        images = case.steps * case.batch
        return images / (images / first + reading), later


def compare(case: Case, photographs: list[Path], root: Path, rounds: int) -> dict[str, float]:
    folder = write_files(case, photographs, root)
    files = [path.stat().st_size for path in folder.rglob("*.jpg")]
    images = ImageFolder(folder / "train", of_lightly(recipe("simclr", case.size)[0]))
    example = Example(images, backbone=case.backbone, size=case.size, batch=case.batch, hidden=2048)
    speeds: dict[str, list[float]] = {}
    for _ in range(rounds):
        theirs = example.epoch()
        first, later = ours(case, folder)
        found = {"LightlySSL's example": theirs, "first epoch": first, "later epochs": later}
        for name, speed in found.items():
            speeds.setdefault(name, []).append(speed)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    print(
        f"SimCLR, {case.backbone}, {case.size} px, batch {case.batch}, "
        f"files of {statistics.mean(files) / 1000:.1f} kB, {torch.get_num_threads()} threads"
    )
    for name, value in medians.items():
        rates = ", ".join(f"{speed:.1f}" for speed in speeds[name])
        print(f"  {name:<24}{value:>9,.1f} images/s  ({rates})", flush=True)
    return medians


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="radial train on JPEG files beside LightlySSL")
    parser.add_argument("folder", type=Path, nargs="?", help="class folders of JPEGs of 64 px")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[case.size for case in CASES])
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    keep_freed_memory()  # as the CLI does, for both sides
    torch.set_flush_denormal(True)
    photographs = []
    if options.folder:
        photographs = sorted(
            path for path in options.folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")
        )
    figures = {}
    for case in CASES:
        if case.size in options.sizes:
            with tempfile.TemporaryDirectory() as scratch:
                figures[str(case.size)] = compare(case, photographs, Path(scratch), options.rounds)
    goals = {"64": {"later epochs": 3.0}, "224": {"first epoch": 1.3, "later epochs": 1.8}}
    for size, speeds in figures.items():
        for name, least in goals[size].items():
            ratio = speeds[name] / speeds["LightlySSL's example"]
            verdict(f"{size} px, {name} / LightlySSL's example", ratio, least=least)
    if len(figures) == len(CASES):
        record("photographs", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
