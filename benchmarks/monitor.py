"""What the monitor costs: one look beside the training that lies between two looks.

    python benchmarks/monitor.py [--rounds 3] [--batch 32]

A look is the default of `radial.Monitor`: 512 images, four views of each, view retrieval. It is
compared with SimCLR steps (two views drawn, both passed, gradients, SGD) at the default intervals:
an epoch of CIFAR-10's 45,000 images at 32 px with a ResNet-9, and 200 steps or an epoch of
ImageNet-100's 126,689 images at 224 px with a ResNet-18. All are of 256 images; at 224 px a step
of --batch images is measured, which fits in memory, and counted for its share. Interleaved rounds,
medians, written to results/monitor.json.
"""

from __future__ import annotations

import argparse

from measure import Task, median_seconds, record, verdict

# ruff: isort: split
import torch
from lightly.loss.ntx_ent_loss import NTXentLoss
from lightly.models.modules.heads import SimCLRProjectionHead
from torch import Tensor, nn

import radial
from radial.backbones import build_backbone
from radial.data.augmentations import recipe
from radial.data.views import augment

BATCH = 256
MOST = 0.02
CASES = {  # name: size, backbone, steps between two looks
    "32 px, ResNet-9, an epoch of 45,000": (32, "resnet9-w0.25", 45_000 // BATCH),
    "224 px, ResNet-18, 200 steps": (224, "resnet18", 200),
    "224 px, ResNet-18, an epoch of 126,689": (224, "resnet18", 126_689 // BATCH),
}


def tasks(size: int, name: str, batch: int) -> dict[str, Task]:
    """A look at a network, and a step of it."""
    backbone, info = build_backbone(name, image_size=size)
    model = nn.Sequential(backbone, SimCLRProjectionHead(info.feature_dim, 512, 128))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randint(0, 256, (512, 3, size, size), dtype=torch.uint8)
    monitor, criterion, views = radial.Monitor(images), NTXentLoss(), recipe("simclr", size)

    def step() -> Tensor:
        optimizer.zero_grad()
        drawn = augment(images[:batch], views, torch.Generator().manual_seed(0))
        with torch.enable_grad():
            loss = criterion(*(model(view) for view in drawn))
            loss.backward()
        optimizer.step()
        return loss

    def look() -> Tensor:
        return torch.tensor(monitor(backbone)["view_retrieval"])

    return {"look": Task(forward=look), "step": Task(forward=step)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="images of a 224-px step")
    options = parser.parse_args()
    figures, known = {}, {}
    for case, (size, name, steps) in CASES.items():
        batch = BATCH if size < 64 else options.batch
        if (size, name) not in known:
            known[size, name] = median_seconds(tasks(size, name, batch), options.rounds)
        found = known[size, name]
        step = found["step"] * BATCH / batch
        share = found["look"] / (steps * step)
        print(f"{case}: a look {found['look']:.2f} s, a step {step:.2f} s, {share:.2%}")
        verdict(case, share, most=MOST)
        figures[case] = {"look": found["look"], "step": step, "steps": steps, "share": share}
    record("monitor", figures)


if __name__ == "__main__":
    main()
