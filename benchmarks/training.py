"""`radial train` beside LightlySSL's own SimCLR example, and an RBFN head beside an MLP.

    python benchmarks/training.py [FOLDER] [--steps 16] [--rounds 3]

FOLDER holds class folders of 32 px images such as CIFAR-10; without it, random images of that
size: the times do not depend on what is in them. LightlySSL's side is its example for CIFAR-10
restated: its transform image by image in a loader with two workers, its head and loss, SGD,
batch 256, the same backbone. Ours is an epoch of `radial train` with Lightning's loop, guards and
log, without the validation and the checkpoint after it; its networks are compiled, and were before.
The bare step is the same networks, compiled, with the same views, loss and optimiser in a plain
loop. Medians of interleaved rounds in one run, written to results/training.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Literal

from measure import Task, median_seconds, record, seconds, verdict

# ruff: isort: split
import numpy as np
import torch
from lightly.loss.ntx_ent_loss import NTXentLoss
from lightly.models.modules.heads import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from PIL import Image
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader, Dataset

from radial.backbones import build_backbone
from radial.data import load_data
from radial.data.augmentations import recipe
from radial.data.views import augment
from radial.rbf.optim import parameter_groups
from radial.training.build import build
from radial.training.callbacks import Metrics
from radial.training.compilation import compile_networks
from radial.training.config import RunConfig
from radial.training.run import train
from radial.training.rundir import METRICS

BACKBONE, BATCH = "resnet9-w0.125", 256


class Pictures(Dataset[tuple[list[torch.Tensor], int]]):
    """Arrays that become PIL images and then two views, as in torchvision and LightlySSL."""

    def __init__(self, images: torch.Tensor) -> None:
        self.images = images.permute(0, 2, 3, 1).contiguous().numpy()
        view = recipe("simclr", 32)[0]
        self.transform = SimCLRTransform(
            input_size=32,
            cj_strength=0.5,
            min_scale=view.scale[0],
            gaussian_blur=0.0,
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[list[torch.Tensor], int]:
        return self.transform(Image.fromarray(self.images[index])), 0


class Example:
    """LightlySSL's SimCLR example on a set of (views, label): epoch() gives images/s."""

    def __init__(
        self, images: Dataset[Any], *, backbone: str, size: int, batch: int, hidden: int
    ) -> None:
        network, info = build_backbone(backbone, image_size=size)
        self.model = nn.Sequential(network, SimCLRProjectionHead(info.feature_dim, hidden, 128))
        self.criterion = NTXentLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.06)
        self.batch = batch
        self.loader = DataLoader(
            images,
            batch_size=batch,
            shuffle=True,
            drop_last=True,
            num_workers=2,
            persistent_workers=True,
        )

    def epoch(self) -> float:
        steps, begin = 0, 0.0
        for (x0, x1), _ in self.loader:
            if steps == 0:
                begin = time.perf_counter()  # workers have started and filled their queue
            loss = self.criterion(self.model(x0), self.model(x1))
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            steps += 1
        return steps * self.batch / (time.perf_counter() - begin)


def ours(folder: Path, directory: Path, how: Literal["on", "off"]) -> float:
    config = RunConfig(
        data=f"folder:{folder}",
        backbone=BACKBONE,
        batch_size=BATCH,
        epochs=1,
        compile=how,
        out=str(directory),
    )
    train(config, overwrite=True, console=Console(quiet=True))
    metrics = Metrics(directory / METRICS)
    metrics.read(epochs=1)
    return float(metrics.rows[-1]["images_per_second"])


def step(head: str, folder: Path, *, compiled: bool = False) -> Task:
    """A whole training step: views, both passes, backward, optimiser."""
    parts = build(RunConfig(data=f"folder:{folder}", head=head, backbone=BACKBONE))
    if compiled:
        compile_networks(parts.method)
    batch = parts.data.train.__getitems__(range(BATCH))
    groups = parameter_groups(parts.method, lr=0.01, weight_decay=5e-4)
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9)
    random = torch.Generator().manual_seed(0)
    data = parts.data

    def forward() -> torch.Tensor:
        with torch.enable_grad():
            views = augment(batch, parts.views, random, mean=data.mean, std=data.std)
            loss = parts.method(views).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return Task(forward=forward)


def write_images(root: Path, steps: int) -> Path:
    """That many batches in the training part, 70 % of all."""
    random = np.random.default_rng(0)
    for number in range(steps * BATCH * 10 // 7 + 10):
        path = root / f"class{number % 2}" / f"{number:05d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
    return root


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="radial train beside LightlySSL's example")
    parser.add_argument("folder", type=Path, nargs="?", help="class folders of 32 px images")
    parser.add_argument("--steps", type=int, default=16, help="of an epoch")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    torch.set_flush_denormal(True)
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        (Path(scratch) / "images").mkdir()
        folder = options.folder or write_images(Path(scratch) / "images", options.steps)
        images = load_data(f"folder:{folder}").train
        pictures = Pictures(images.__getitems__(range(min(len(images), options.steps * BATCH))))
        example = Example(pictures, backbone=BACKBONE, size=32, batch=BATCH, hidden=256)
        bare = step("default", folder, compiled=True)
        ours(folder, run, "on")  # fills the compile cache
        bare.run()
        speeds: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            times = [seconds(bare) for _ in range(options.steps)]
            for name, speed in (
                ("LightlySSL's example", example.epoch()),
                ("radial train, compiled", ours(folder, run, "on")),
                ("radial train, eager", ours(folder, run, "off")),
                ("the bare compiled step", BATCH / statistics.median(times)),
            ):
                speeds.setdefault(name, []).append(speed)
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        print(f"SimCLR, {BACKBONE}, batch {BATCH}, 32 px, {torch.get_num_threads()} threads")
        for name, value in medians.items():
            print(f"  {name:<24}{value:>8,.0f} images/s")
        lightly, compiled, _, plain = medians.values()
        verdict("radial train / LightlySSL's example", compiled / lightly, least=4.0)
        verdict("radial train / the bare compiled step", compiled / plain, least=0.9)
        times_of = median_seconds({head: step(head, folder) for head in ("mlp", "rbfn")}, 9)
        print("whole training step, same depth and width, K = 128")
        verdict("rbfn / mlp", times_of["rbfn"] / times_of["mlp"], most=1.1)
        figures = {"images_per_second": medians, "rounds": speeds, "step_seconds": times_of}
        record("training", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
