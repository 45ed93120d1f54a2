"""radial.data.views beside lightly's transform: images a second on one thread, SimCLR's two views.

lightly works image by image on PIL images, as a data loader's worker does; both get the strengths,
crops and blur that radial's recipe has at that size, and both normalise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

from measure import Task, median_seconds, record, verdict

# ruff: isort: split
import torch
from lightly.transforms import SimCLRTransform
from lightly.transforms.utils import IMAGENET_NORMALIZE
from PIL import Image
from torch import Tensor

from radial.data.augmentations import View, recipe
from radial.data.views import augment


@dataclass(frozen=True, kw_only=True)
class Case:
    stored: int  # side of the stored images, px
    size: int  # side of the views, px
    batch: int
    goal: float  # times lightly's images a second


CASES = (
    Case(stored=32, size=32, batch=256, goal=5.0),
    Case(stored=256, size=224, batch=32, goal=1.5),
)


def pictures(n: int, side: int) -> Tensor:
    """(n, 3, side, side) uint8: coarse colours under fine noise."""
    coarse = torch.nn.functional.interpolate(torch.rand(n, 3, 8, 8), side, mode="bilinear")
    return (255 * (0.9 * coarse + 0.1 * torch.rand(n, 3, side, side))).to(torch.uint8)


def of_lightly(view: View) -> SimCLRTransform:
    return SimCLRTransform(
        input_size=view.size,
        cj_prob=view.jitter,
        cj_bright=view.brightness,
        cj_contrast=view.contrast,
        cj_sat=view.saturation,
        cj_hue=view.hue,
        min_scale=view.scale[0],
        random_gray_scale=view.grey,
        gaussian_blur=view.blur,
        sigmas=view.sigma,
        hf_prob=view.flip,
    )


def tasks(case: Case) -> dict[str, Task]:
    images = pictures(case.batch, case.stored)
    files = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    views = recipe("simclr", case.size)
    transform = of_lightly(views[0])
    mean, std = (torch.tensor(IMAGENET_NORMALIZE[name]) for name in ("mean", "std"))
    generator = torch.Generator().manual_seed(0)

    def lightly() -> Tensor:
        first, _second = zip(*(transform(file) for file in files))
        return torch.stack(first)

    def radial() -> Tensor:
        return augment(images, views, generator, mean=mean, std=std)[0]

    forms: dict[str, Callable[[], Tensor]] = {"lightly": lightly, "radial": radial}
    return {name: Task(forward=form) for name, form in forms.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("stored  view  batch     lightly      radial   ratio   (images/s, both views)")
    ratios, figures = [], {}
    for case in CASES:
        rate = {k: case.batch / s for k, s in median_seconds(tasks(case), rounds).items()}
        ratios.append(rate["radial"] / rate["lightly"])
        figures[str(case.size)] = rate
        print(
            f"{case.stored:6}  {case.size:4}  {case.batch:5}  {rate['lightly']:10.1f}"
            f"  {rate['radial']:10.1f}  {ratios[-1]:5.2f}x"
        )
    for case, ratio in zip(CASES, ratios):
        verdict(f"{case.size} px, times lightly's speed ≥ {case.goal}", ratio, least=case.goal)
    record("views", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
